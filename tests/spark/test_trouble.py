"""Faults that may happen under a run, on real parts: each row is published once, or the run reports why and the next does.

A lost executor is in `test_standalone`, a killed driver in `test_submit`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_gobblin.errors import StoreError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.work import RowsWork
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.stores import open_store
from tests.faults import Call, FaultyFiles
from tests.services.postgres import Postgres, running_postgres
from tests.services.spark_connect import SparkConnect
from tests.services.spark_standalone import SparkStandalone
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import CODE, PlannedRun, StartDriver, Submit, extract_here, extract_operator, planned_run

URN = "acme.rows0"
T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    """A master and two workers, on two hosts as far as Spark knows: it speculates on another host only."""
    cluster = SparkStandalone(tmp_path_factory.mktemp("trouble"))
    try:
        cluster.start()
        for host in ("127.0.0.1", "127.0.0.2"):
            cluster.add_worker(host=host, cores=1)
        yield cluster
    finally:
        cluster.stop()


def publish(planned: PlannedRun) -> None:
    """Commit what was extracted, and check that each row is published once.

    :raises AssertionError: it isn't.
    """
    opened, pack = planned.opened, planned.run.packs[0]
    write_commit_steps(opened, planned.run, pack)
    (report,) = execute_commit_steps(opened, planned.run, pack)
    assert report.status == "committed", report
    check(opened, len(planned.plan.units))


def check(opened: OpenJob, units: int) -> None:
    work = opened.job.work
    assert isinstance(work, RowsWork)
    source = work.source
    assert isinstance(source, RowsSource)
    rows = opened.journal.read_dataset(URN).to_arrow().to_table().column("id").to_pylist()
    assert Counter(rows) == Counter(range(units * source.rows))


@pytest.mark.soak
def test_a_task_that_spark_runs_twice_counts_once(
    cluster: SparkStandalone, tmp_path: Path, start_driver: StartDriver
) -> None:
    gate, arrivals = tmp_path / "gate", tmp_path / "gate.u0"
    planned = planned_run(tmp_path, RowsSource(2, waiting=("u0",), gate=str(gate)))
    speculating = {
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.task.duration.threshold": "1s",
    }
    driver = start_driver(Submit(master=cluster.url, conf={**cluster.conf, **speculating}), planned)
    driver.wait_until(lambda: len({*lines(arrivals)}) == 2, "both of them")
    assert len({worker_of(cluster, int(pid)) for pid in lines(arrivals)}) == 2
    gate.touch()
    assert driver.end() == 0, driver.output[-5000:]
    (report,) = planned.reports
    assert report.failures == ()
    publish(planned)


@pytest.mark.soak
def test_a_worker_is_killed_with_all_it_runs(
    cluster: SparkStandalone, tmp_path: Path, start_driver: StartDriver
) -> None:
    gate, arrivals = tmp_path / "gate", tmp_path / "gate.u0"
    planned = planned_run(tmp_path, RowsSource(3, waiting=("u0",), gate=str(gate)))
    driver = start_driver(Submit(master=cluster.url, conf=cluster.conf), planned)
    driver.wait_until(lambda: bool(lines(arrivals)), "a unit at the gate")
    (first,) = lines(arrivals)
    os.killpg(worker_of(cluster, int(first)), signal.SIGKILL)
    driver.wait_until(lambda: len(lines(arrivals)) > 1, "the unit on the other worker")
    gate.touch()
    assert driver.end() == 0, driver.output[-5000:]
    (report,) = planned.reports
    assert report.failures == ()
    publish(planned)


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def worker_of(cluster: SparkStandalone, pid: int) -> int:
    """The worker below which a process runs."""
    workers = {worker.pid for worker in cluster.workers}
    return next(parent.pid for parent in psutil.Process(pid).parents() if parent.pid in workers)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=777", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting isn't allowed here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_full(small_disk: Path, spark_connect: SparkConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_WARM", spark_connect.connection)
    planned = planned_run(small_disk, RowsSource(3, rows=300_000), squares=True)
    ballast = small_disk / "ballast"
    room = os.statvfs(small_disk)
    ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - (5 << 12)))
    with pytest.raises(AirflowException, match=r"no result of \d units? of acme.rows0\. .*No space left on device"):
        extract_operator(planned, conn_id="spark_warm").execute({})
    (written,) = write_commit_steps(planned.opened, planned.run, planned.run.packs[0])
    assert not written.ok
    assert planned.opened.journal.history(URN).slots == ()
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    extract_operator(planned, conn_id="spark_warm").execute({})
    publish(planned)


@pytest.fixture
def mortal_server(tmp_path: Path) -> Iterator[Postgres]:
    """A PostgreSQL server of the test's own, with the journal, which the test may kill."""
    folder = tmp_path / "postgres"
    folder.mkdir()
    with running_postgres(folder) as server:
        yield server


class Before:
    """Do something before the first call of a kind, and let all calls through."""

    def __init__(self, operation: str, act: Callable[[], None]) -> None:
        self._operation = operation
        self._act: Callable[[], None] | None = act

    def call(self, call: Call, do: Callable[[], T], tear: Callable[[], object] | None = None) -> T:
        if call.operation == self._operation and self._act is not None:
            act, self._act = self._act, None
            act()
        return do()


def test_the_journals_server_is_killed_between_decision_and_outcome(
    mortal_server: Postgres, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source = RowsSource(4)
    ingestion = Ingestion(
        "acme", source, ParquetSink(str(tmp_path / "target")), journal=mortal_server.url(), max_packs=1, code=CODE
    )
    store = open_store(ingestion.journal)
    request.addfinalizer(store.close)
    journal = Journal.create(store, ingestion.name)
    opened = OpenJob(ingestion, journal, SparkConnections({}))
    run = create_work_units(opened, RunRequest("first"))
    planned = PlannedRun(tmp_path, opened, run)
    extract_here(planned)
    (report,) = write_commit_steps(opened, run, run.packs[0])
    assert report.status == "pending"
    files = FaultyFiles(opened.files, Before("link", mortal_server.kill))
    dying = OpenJob(ingestion, journal, SparkConnections({}), files)
    (report,) = execute_commit_steps(dying, run, run.packs[0])
    assert (report.status, report.retryable) == ("failed", True)
    with pytest.raises(StoreError):
        journal.history(URN)
    assert len(list((tmp_path / "target").glob("acme*/*.parquet"))) == 4  # the files exist, and must not be counted

    mortal_server.start()
    again = OpenJob(ingestion, Journal.create(store, ingestion.name), SparkConnections({}))
    (report,) = verify_recover(again, RunRequest("second"))
    assert report.status == "recovered"
    check(again, 4)
    assert create_work_units(again, RunRequest("second")).packs == ()
