"""A pack on a real Spark with two cores: what runs, what is kept, what is reported."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any, cast

import psycopg
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from airflow_gobblin.errors import EnvironmentMismatchError, StoreError
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind, UnitState
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark import pack
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.jobs import TaskRow, collect
from airflow_gobblin.spark.pack import GROUPS_PER_CORE, run_pack
from airflow_gobblin.spark.probe import Needs, lacking, probe_executors
from airflow_gobblin.spark.report import PackReport
from airflow_gobblin.workspace.staging import PlanResults
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import PlannedRun, overlapping, planned_run, run_on

CANARY = "canary-in-a-closure"


def run(spark: SparkSession, planned: PlannedRun) -> PackReport:
    return run_on(spark, planned, SparkConnections({}))


def test_units_run_at_the_same_time_and_each_gives_its_result(shipped_spark: SparkSession, tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(8, pause=0.3), squares=True)
    report = run(shipped_spark, planned)
    assert report.failures == ()
    assert (report.cores, len(report.groups), sum(group.rows for group in report.groups)) == (2, 8, 800)
    assert report.application == shipped_spark.sparkContext.applicationId
    assert set(planned.results) == {f"u{n}" for n in range(8)}
    assert {result.attempt for result in planned.results.values()} == {report.attempt}
    assert list(overlapping(planned.results))
    assert [found.attempt for found in planned.reports] == [report.attempt]


def test_many_units_share_spark_tasks_by_weight(shipped_spark: SparkSession, tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(20))
    report = run(shipped_spark, planned)
    assert len(planned.results) == 20
    assert [group.units for group in report.groups].count(3) == 4
    assert len(report.groups) == GROUPS_PER_CORE * report.cores
    assert {group.weight for group in report.groups} == {1600, 2400}


def test_a_unit_that_fails_is_a_result_and_a_retry_runs_only_it(shipped_spark: SparkSession, tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("u1")
    planned = planned_run(tmp_path, RowsSource(3, failing=str(failing)))
    first = run(shipped_spark, planned)
    assert set(planned.results) == {"u0", "u2"}
    assert planned.failures["u1"].state is UnitState.FAILED
    (failure,) = first.failures
    error = str(failure)
    assert error == planned.failures["u1"].why
    assert "it is made to fail" in error
    failing.write_text("")
    second = run(shipped_spark, planned)
    assert (second.finished, sum(group.units for group in second.groups), second.failures) == (2, 1, ())
    assert ": 1 unit in 1 Spark task, 2 with a result" in str(second)
    assert planned.results["u1"].attempt == second.attempt
    assert planned.results["u0"].attempt == first.attempt


def test_a_process_that_ends_fails_its_own_units(shipped_spark: SparkSession, tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(3, crashing=("u1",)))
    report = run(shipped_spark, planned)
    assert set(planned.results) == {"u0", "u2"}
    (failure,) = report.failures
    error = str(failure)
    assert "unit 'u1' of dataset 'acme.rows0'" in error
    assert "Python worker exited" in error
    assert planned.failures["u1"].why == error


def test_empty_units_cost_no_spark_task(tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(3, rows=0))
    report = run(None, planned)  # type: ignore[arg-type]  # no Spark at all
    assert (report.empty, report.groups, report.failures) == (3, (), ())
    assert ": 0 units in 0 Spark tasks, 0 with a result already" in str(report)
    results = planned.results.values()
    assert [(r.state, r.actual_high) for r in results] == [
        (UnitState.SUCCESSFUL, u.expected_high) for u in planned.plan.units
    ]
    assert run(None, planned).finished == 3  # type: ignore[arg-type]


def test_a_dataset_whose_plan_is_torn_leaves_the_others_alone(shipped_spark: SparkSession, tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1, tables=2))
    other = next(d for d in planned.run.packs[0].datasets if d.urn == "acme.rows1")
    (tmp_path / "target" / planned.opened.staging.folder / "p" / other.token).write_bytes(b'{"torn')
    report = run(shipped_spark, planned)
    assert set(planned.results) == {"u0"}
    (failure,) = report.failures
    error = str(failure)
    assert error.startswith("RecordError: ")
    assert other.token in error


def test_units_that_run_at_the_same_time_show_one_state_of_a_database_that_is_written_to(
    shipped_spark: SparkSession, tmp_path: Path, postgres_database: str
) -> None:
    """A snapshot is held here, and read by the Python workers of Spark."""
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE accounts (id int PRIMARY KEY, cents bigint)")
        connection.execute("INSERT INTO accounts SELECT n, 100 FROM generate_series(1, 8000) n")
    table = SqlTable("accounts", ExtractKind.SNAPSHOT_ONLY, primary_keys=("id",), unit_bytes=5000, max_units=16)
    uris = {"bank": postgres_database}
    planned = planned_run(tmp_path, SqlSource("bank", (table,)), code=(), uris=uris)
    with _transfers(postgres_database, 1, 8000):
        report = run_pack(
            shipped_spark,
            planned.opened.staging.files.root,
            planned.opened.staging.folder,
            planned.run.run,
            0,
            (),
            SparkConnections(uris),
        )
    assert report.failures == ()
    assert sum(group.rows for group in report.groups) == 8000
    results = [*PlanResults(planned.opened.staging, planned.plan, checked=True).read(u.id for u in planned.plan.units)]
    assert len(results) == 16
    assert len({result.snapshot for result in results}) == 1
    files = [str(tmp_path / "target" / file.path) for result in results for file in result.files]
    assert sum(row["cents"] for row in ds.dataset(files, format="parquet").to_table().to_pylist()) == 800_000


def test_of_a_unit_that_the_database_ends_in_the_middle_the_rows_before_are_published(
    shipped_spark: SparkSession, tmp_path: Path, postgres_database: str
) -> None:
    """The next run reads the rest. A row of 8 KB is in the middle if it is far behind what the driver has in a batch."""
    rows, bad = 5000, 4500
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE notes (id int PRIMARY KEY, number text, note text)")
        text = "(SELECT string_agg(md5(n::text || m::text), '') FROM generate_series(1, 250) m)"
        connection.execute(f"INSERT INTO notes SELECT n, n::text, {text} FROM generate_series(1, {rows}) n".encode())
        connection.execute("UPDATE notes SET number = 'many' WHERE id = %s", [bad])
        connection.execute("ANALYZE notes")  # so that rows come by the index, and not when all are sorted
    source = SqlSource("bank", (SqlTable("notes", ExtractKind.APPEND_ONLY, delta="id", casts={"number": "int64"}),))
    uris = {"bank": postgres_database}

    def run_once(name: str) -> tuple[DatasetReport, list[int]]:
        planned = planned_run(
            tmp_path, source, code=(), uris=uris, request=RunRequest(name), policy=CommitPolicy.PARTIAL
        )
        staging = planned.opened.staging
        run_pack(shipped_spark, staging.files.root, staging.folder, planned.run.run, 0, (), SparkConnections(uris))
        write_commit_steps(planned.opened, planned.run, planned.run.packs[0])
        execute_commit_steps(planned.opened, planned.run, planned.run.packs[0])
        (report,) = finish(planned.opened, planned.run)
        table = planned.opened.journal.read_dataset("notes").to_arrow().to_table(["id", "number"])
        assert table["id"].to_pylist() == table["number"].to_pylist()
        return report, sorted(table["id"].to_pylist())

    report, found = run_once("first")
    assert (report.status, report.watermark) == ("partial", LongWatermark(len(found) + 1))
    assert "many" in report.detail
    assert found == [*range(1, len(found) + 1)]
    assert 0 < len(found) < bad
    with psycopg.connect(postgres_database) as connection:
        connection.execute("UPDATE notes SET number = id::text WHERE id = %s", [bad])
    report, found = run_once("second")
    assert report.status == "committed"
    assert found == [*range(1, rows + 1)]


@contextmanager
def _transfers(url: str, low: int, high: int) -> Iterator[None]:
    """Move money from one account to another and back, for as long as the block runs."""
    over = threading.Event()

    def move() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for sign in cycle((-1, 1)):
                if over.is_set():
                    return
                with connection.transaction():
                    for account, cents in ((low, 7 * sign), (high, -7 * sign)):
                        connection.execute("UPDATE accounts SET cents = cents + %s WHERE id = %s", [cents, account])
                over.wait(0.001)

    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        try:
            yield
        finally:
            over.set()
        moving.result()


def test_no_secret_is_in_a_file_of_spark_however_large_the_plan(shipped_spark: SparkSession, tmp_path: Path) -> None:
    """Spark broadcasts a closure of a megabyte or more, by a file in its local folder; the closure holds the secrets."""
    planned = planned_run(tmp_path, RowsSource(2, conn_id="acme_db", note="x" * (2 << 20)))
    uris = SparkConnections({"acme_db": f"postgresql://ann:{CANARY}@db/main"})
    report = run_on(shipped_spark, planned, uris)
    assert (report.failures, set(planned.results)) == ((), {"u0", "u1"})
    local = Path(shipped_spark.sparkContext._temp_dir)
    assert local.is_dir()
    for file in (path for folder in (local.parent, tmp_path) for path in folder.rglob("*") if path.is_file()):
        assert CANARY.encode() not in file.read_bytes(), file


def test_what_executors_lack_is_named_before_anything_is_read(shipped_spark: SparkSession, tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1, needs=("acme_driver_that_nobody_has",)))
    with pytest.raises(EnvironmentMismatchError) as caught:
        run(shipped_spark, planned)
    assert "module 'acme_driver_that_nobody_has' can't be imported" in str(caught.value)
    assert "spark.pyspark.python" in str(caught.value)
    assert planned.failures == {}


def test_an_executor_that_lacks_something_later_fails_its_own_units(
    shipped_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, calls, real = planned_run(tmp_path, RowsSource(3)), count(), collect

    def some_lack(*given: Any) -> list[TaskRow]:
        if next(calls) == 0:
            return real(*given)
        while not planned.results:
            time.sleep(0.01)
        return lacking(Needs(("acme_driver_that_nobody_has",)))

    monkeypatch.setattr(pack, "collect", some_lack)
    report = run(shipped_spark, planned)
    assert (len(planned.results), len(planned.failures)) == (1, 2)
    for failure in report.failures:
        assert "'acme_driver_that_nobody_has' can't be imported" in str(failure)
        assert failure.retryable


def test_a_pack_costs_no_job_but_those_of_its_units(shipped_spark: SparkSession, tmp_path: Path) -> None:
    tracker = shipped_spark.sparkContext.statusTracker()
    before = {*tracker.getJobIdsForGroup()}
    report = run(shipped_spark, planned_run(tmp_path, RowsSource(3)))
    assert len({*tracker.getJobIdsForGroup()} - before) == len(report.groups) == 3


def test_a_spark_that_is_gone_is_no_environment(caplog: pytest.LogCaptureFixture) -> None:
    class Gone:
        def range(self, *_: int) -> None:
            raise RuntimeError("Cannot call methods on a stopped SparkContext")

    assert probe_executors(cast(Any, Gone()), Needs(("module_that_nobody_has",))) is None
    assert "Spark runs no job: Cannot call methods" in caplog.text


def test_a_pack_that_was_swept_is_named(tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1))
    planned.opened.staging.remove_run(planned.run.run)
    with pytest.raises(StoreError, match=r"pack 0 of run .*Plan it anew"):
        run(None, planned)  # type: ignore[arg-type]
