"""A password that an author's code leaks, in Spark's tasks and in the driver, is nowhere in what Spark keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from airflow_gobblin.spark.report import FIRST_ERROR
from tests.airflow.canary import files_with, spellings
from tests.proofs import one_in
from tests.spark.leaking_rows import LeakingSource
from tests.spark.runs import PlannedRun, Submit, planned_run
from tests.spellings import SPELLINGS

PASSWORD = "p@ss/w'ö\"rd \\ %+&zwitschert"
URI = f"postgresql://reader:{quote(PASSWORD, safe='')}@db.example/shop"


def planned(folder: Path, in_driver: str) -> tuple[PlannedRun, Submit]:
    """A run whose code leaks a password, and its submission, with an event log."""
    events, spelled = folder / "seen" / "events", folder / "spelled.json"
    events.mkdir(parents=True)
    spelled.write_text(json.dumps([spell(PASSWORD) for spell in SPELLINGS.values()]))
    code = ("tests.spark.leaking_rows",)
    source = LeakingSource(str(spelled), len(SPELLINGS), in_driver)
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    run = planned_run(folder / "seen", source, code=code, uris={"db": URI})
    return run, Submit(master="local[4]", conf=conf, uris={"db": URI}, code=code)


def leaks(text: str) -> Iterator[str]:
    """The lines of an output that show the password."""
    wanted = spellings(PASSWORD)
    yield from (line for line in text.splitlines() if any(form in line.encode() for form in wanted))


@one_in(3)
@pytest.mark.parametrize("in_driver", ["", "Exception", "SystemExit"])
def test_a_password_that_code_on_spark_leaks_is_nowhere(tmp_path: Path, in_driver: str) -> None:
    run, submit = planned(tmp_path, in_driver)
    done = submit.run(run)
    assert done.returncode == 1
    output = done.stdout + done.stderr
    assert [*leaks(output)] == []
    assert output.count("***") > 3
    assert FIRST_ERROR in output
    assert [*files_with(PASSWORD, tmp_path / "seen")] == []
    assert [*files_with("extract_pack", tmp_path / "seen" / "events")]
    if not in_driver:
        failures = run.failures
        assert len(failures) == len(SPELLINGS)
        assert all(result.why for result in failures.values())
