"""The submitted application: killed in the middle, it leaves what it had, and reports its first error last."""

from __future__ import annotations

from pathlib import Path

from airflow_gobblin.spark.report import FIRST_ERROR
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import StartDriver, Submit, planned_run


def test_a_driver_killed_at_5_of_8_leaves_5_and_the_retry_runs_exactly_the_missing_ones(
    tmp_path: Path, start_driver: StartDriver
) -> None:
    gate = tmp_path / "gate"
    late = ("u5", "u6", "u7")
    planned = planned_run(tmp_path, RowsSource(8, waiting=late, gate=str(gate)))
    submit = Submit(master="local[4]")  # three wait at the gate, and the others pass
    driver = start_driver(submit, planned)
    driver.wait_until(lambda: len(planned.results) == 5, "5 results")
    driver.kill()
    before = planned.results
    assert set(before) == {"u0", "u1", "u2", "u3", "u4"}
    assert planned.reports == []

    gate.touch()
    done = submit.run(planned)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = planned.reports
    assert (report.finished, sum(group.units for group in report.groups)) == (5, 3)
    after = planned.results
    assert {unit: after[unit] for unit in before} == before
    assert {after[unit].attempt for unit in late} == {report.attempt}


def test_the_first_error_is_the_last_thing_a_driver_reports(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("u0")
    planned = planned_run(tmp_path, RowsSource(2, failing=str(failing), conn_id="db"))
    done = Submit(uris={"db": "postgresql://reader:canary@host/db"}).run(planned)
    assert done.returncode == 1
    line = done.stdout.splitlines()[-1]
    assert line.removeprefix(FIRST_ERROR) == planned.failures["u0"].why
    assert set(planned.results) == {"u1"}
