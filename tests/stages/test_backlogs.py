"""What a long backlog costs: each version as much as in a short one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.stages import inputs
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.testing import inprocess
from tests.stages.chains import backlog
from tests.stages.lines import LineStage


def reads(versions: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the records that a run reads that makes some versions, a slot each: seals, its input's, plans and others."""
    location = f"file://{folder}/journal"
    stage = LineStage("clean", location, f"{folder}/lake", (backlog(location, versions),))
    opened = inprocess.open_job(stage, journal=Journal.create(location, "clean"))
    read, get = Counter[str](), LocalStore.get

    def counted(store: LocalStore, key: str) -> bytes | None:
        read[
            "seals"
            if "_seals/" in key
            else "input"
            if key.startswith("raw/")
            else "plans"
            if "/again/" in key
            else "others"
        ] += 1
        return get(store, key)

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "_SEALS", 2)  # else a short backlog's are read at once
        patch.setattr(LocalStore, "get", counted)
        report = inprocess.run(opened)["clean"]
    assert (report.slot, len(opened.journal.state("clean").versions)) == (versions, versions)
    return read


def test_a_version_of_a_long_backlog_reads_no_more_than_one_of_a_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (reads(versions, tmp_path / str(versions), monkeypatch) for versions in (10, 30))
    for kind, count in short.items():
        assert long[kind] < 4 * count, f"{kind}: a look at all there are would be about 9 times as much"
    assert long["input"] < short["input"] + 5, "each record of the input is read once, however many versions are made"
    assert short.keys() == long.keys() == {"seals", "plans", "input", "others"}
