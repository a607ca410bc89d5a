"""The cost of a long backlog: each version as much as in a short one."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.journal.trimming import trim, worth_trimming
from airflow_gobblin.model.checkpoint import Checkpoint, ConsumedSlot
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.stages import inputs, lineage
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.testing import inprocess
from tests.stages.chains import SOURCE, Chain, backlog, consumed
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


@pytest.mark.slow
def test_a_version_of_a_long_backlog_reads_no_more_than_one_of_a_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (reads(versions, tmp_path / str(versions), monkeypatch) for versions in (10, 30))
    for kind, count in short.items():
        assert long[kind] < 4 * count, f"{kind}: a look at all there are would be about 9 times as much"
    assert long["input"] < short["input"] + 5, "each record of the input is read once, however many versions are made"
    assert short.keys() == long.keys() == {"seals", "plans", "input", "others"}


def compared(versions: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the parents that a look compares with what their upstream has, of a stage with some versions."""
    upstream = Chain()
    for _ in range(versions):
        upstream.take(Action.COMMIT, "u1")
        if worth_trimming(upstream.history):
            trim(upstream.journal, upstream.history)
    numbers = range(1, versions + 1)
    made = [Checkpoint(datetime.fromtimestamp(3600 * n, UTC), {SOURCE: consumed(n)}, {}) for n in numbers]
    count, valid = Counter[str](), lineage._is_valid

    def look(kind: str, since: int) -> frozenset[ConsumedSlot]:
        def counted(parent: ConsumedSlot, history: History, units: int) -> bool:
            count[kind] += 1
            return valid(parent, history, units)

        with monkeypatch.context() as patch:
            patch.setattr(lineage, "_is_valid", counted)
            return lineage.look(made, {SOURCE: upstream.history}, {SOURCE: since}).retired.get(SOURCE, frozenset())

    assert look("nothing retired", versions) == look("at all", 0) == frozenset()
    upstream.take(Action.COMMIT, "u2", replaces=[UnitRef(3, "u1")])
    assert look("one retired", versions) == look("at all, one retired", 0) == {*consumed(3)}
    return dict(count)


@pytest.mark.slow
def test_a_look_at_a_thousand_versions_compares_what_was_retired_since_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for versions in (100, 1_000):
        found = compared(versions, monkeypatch)
        assert found == {"at all": versions, "one retired": 1, "at all, one retired": versions}
