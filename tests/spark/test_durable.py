"""Durable drivers on a real standalone cluster: they outlive the task that submitted them, and a retry finds them again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin.hooks.spark_jobs import spark_job
from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.spark.connections import FILE_VARIABLE, VARIABLE
from tests.services.processes import command_line, environment_of
from tests.services.spark_standalone import SparkStandalone, running_spark_standalone
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import PlannedRun, extract_operator, planned_run

CANARY = "canary-Hs5jK1"
AIRFLOWS_OWN = "canary-of-airflow"


@pytest.fixture(scope="module")
def cluster_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("durable")


@pytest.fixture(scope="module")
def connections_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where drivers on the cluster find their secrets."""
    file = tmp_path_factory.mktemp("secrets") / "connections.json"
    file.write_text(json.dumps({"db": f"postgresql://reader:{CANARY}@nowhere/db", "other": "sqlite:////x"}))
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def cluster(cluster_folder: Path, connections_file: Path) -> Iterator[SparkStandalone]:
    """A master and two workers."""
    environment = {FILE_VARIABLE: str(connections_file)}
    with running_spark_standalone(cluster_folder, workers=2, worker_environment=environment) as running:
        yield running


@pytest.fixture(autouse=True)
def connections(cluster: SparkStandalone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", cluster.connection)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("AIRFLOW_CONN_DB", f"postgresql://reader:{CANARY}@nowhere/db")
    for name in ("AIRFLOW__CORE__FERNET_KEY", "SPARK_ACME_TOKEN"):
        monkeypatch.setenv(name, AIRFLOWS_OWN)


@dataclass
class Remembered:
    """The values that Airflow keeps for a task from try to try."""

    values: dict[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def set(self, key: str, value: Any) -> None:
        self.values[key] = value

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


def operator(cluster: SparkStandalone, planned: PlannedRun, **options: Any) -> ExtractOperator:
    conf = {**cluster.conf, "spark.ui.enabled": "false", "spark.cores.max": "1", "spark.executor.memory": "600m"}
    arguments = {"conn_id": "spark_cluster", "durable": True, "conf": conf, "driver_memory": "600m", **options}
    return extract_operator(planned, **arguments)


class Try(threading.Thread):
    """One try of the task."""

    def __init__(self, task: ExtractOperator, remembered: Remembered) -> None:
        super().__init__()
        self.task = task
        self.context: Any = {"task_state_store": remembered}
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.task.execute(self.context)
        except AirflowException as error:
            self.failure = error


def until(holds: Any, what: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.1)


def test_a_second_try_finds_the_driver_again_and_a_third_sees_that_units_are_missing(
    cluster: SparkStandalone, cluster_folder: Path, tmp_path: Path
) -> None:
    gate, remembered, before = tmp_path / "gate", Remembered(), set(cluster.drivers)
    planned = planned_run(tmp_path, RowsSource(2, waiting=("u0",), gate=str(gate), conn_id="db"), squares=True)
    first, second = (Try(operator(cluster, planned), remembered) for _ in range(2))
    try:
        first.start()
        until((tmp_path / "gate.u0").exists, "a unit at the gate")
        (driver,) = remembered.values.values()
        second.start()
        until(lambda: second.task._driver is not None, "the second try with the driver")
        lines = [command_line(process) for process in psutil.process_iter()]
        environments = "".join(f"{environment_of(process)}" for process in cluster.below_workers)
    finally:
        gate.touch()
        first.join(120)
        second.join(120)
    assert (first.failure, second.failure) == (None, None)
    assert set(cluster.drivers) - before == {driver}
    assert set(planned.results) == {"u0", "u1"}
    assert any(f"--run={planned.run.run}" in line for line in lines)
    assert any(
        "-Xmx600M" in line and "CoarseGrainedExecutorBackend" in line for line in lines
    )  # the settings arrived there
    assert not [line for line in lines if CANARY in line or AIRFLOWS_OWN in line]
    assert FILE_VARIABLE in environments
    assert AIRFLOWS_OWN not in environments
    searched = [path for folder in (tmp_path, cluster_folder) for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in searched if {CANARY, AIRFLOWS_OWN} & set(path.read_text(errors="replace").split('"'))]

    (file,) = planned.results["u1"].files
    (tmp_path / "target" / file.path).unlink()
    third = Try(operator(cluster, planned), remembered)
    third.run()
    assert third.failure is None
    assert set(planned.results) == {"u0", "u1"}
    assert len(set(cluster.drivers) - before) == 2
    assert [(report.finished, len(report.groups)) for report in planned.reports] == [(0, 2), (1, 1)]


def test_a_driver_that_comes_to_nothing_reports_why_and_the_next_try_submits_anew(
    cluster: SparkStandalone, connections_file: Path, tmp_path: Path
) -> None:
    planned = planned_run(tmp_path, RowsSource(1, conn_id="db"))
    task = operator(cluster, planned)
    key = f"spark_driver_{planned.run.run}_0"
    remembered = Remembered({key: "driver-20200101000000-0000"})  # of a master that was restarted since
    connections_file.chmod(0o644)
    try:
        failing = Try(task, remembered)
        failing.run()
    finally:
        connections_file.chmod(0o600)
    assert isinstance(failing.failure, AirflowFailException)
    assert "others than its owner may read or write it (mode 644). chmod 600" in str(failing.failure)
    assert CANARY not in str(failing.failure)
    failed = remembered.values[key]
    again = Try(operator(cluster, planned), remembered)
    again.run()
    assert again.failure is None
    assert set(planned.results) == {"u0"}
    assert remembered.values[key] != failed


def test_killing_the_task_ends_the_driver_and_its_executors(cluster: SparkStandalone, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    planned = planned_run(tmp_path, RowsSource(1, waiting=("u0",), gate=str(gate)))
    running = Try(operator(cluster, planned), Remembered())
    running.start()
    try:
        until((tmp_path / "gate.u0").exists, "a unit at the gate")
        assert cluster.executors
    finally:
        running.task.on_kill()
        running.join(60)
    assert running.failure is not None
    until(lambda: not cluster.executors, "the end of the executors")
    assert planned.results == {}


def test_a_driver_without_secrets_names_both_places_for_them(tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1, conn_id="db"))
    staging = planned.opened.staging
    where = [f"--root={staging.files.root}", f"--staging={staging.folder}", f"--run={planned.run.run}", "--pack=0"]
    command = [sys.executable, str(spark_job("extract_pack.py")), *where]
    environment = {name: value for name, value in os.environ.items() if name not in (VARIABLE, FILE_VARIABLE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (report,) = planned.reports
    assert f"neither {VARIABLE} nor {FILE_VARIABLE} is in its environment" in str(report.failures[0])
    assert done.stderr.splitlines()[-1].endswith(report.failures[0].line)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"conn_id": "spark_here"}, r"durable driver to 'local\[2\]'.*not a standalone cluster"),
        ({"conn_id": "spark_nowhere"}, "'spark_nowhere': Airflow has no such connection"),
        ({"env_vars": {"A": "b"}}, "it runs in the environment of a worker, and `env_vars` can't be added to that"),
    ],
)
def test_where_no_driver_is_kept_it_is_refused(
    cluster: SparkStandalone, tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    planned = planned_run(tmp_path, RowsSource(1))
    with pytest.raises(AirflowFailException, match=why):
        operator(cluster, planned, **options).execute({})
