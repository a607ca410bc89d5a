"""A Spark cluster whose Python has neither Airflow nor this package: the wheel, an author's module, a lost executor, a secret."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.spark.connections import VARIABLE
from airflow_gobblin.spark.report import FIRST_ERROR
from tests.services.packages import install, make_environment
from tests.services.processes import command_line
from tests.services.spark_standalone import SparkStandalone, running_spark_standalone
from tests.spark import acme_rows
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import PlannedRun, StartDriver, Submit, planned_run

CANARY = "canary-tE7Wq2"


@pytest.fixture(scope="module")
def executor_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has pyarrow, and neither Airflow nor this package."""
    python = make_environment(tmp_path_factory.mktemp("executor") / "env", "pyarrow")
    for module in ("airflow", "airflow_gobblin"):
        done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False, cwd=python.parent)
        assert b"ModuleNotFoundError" in done.stderr
    return python


@pytest.fixture(scope="module")
def driver_python(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A Python that has this package from its wheel, and no Airflow."""
    python = make_environment(tmp_path_factory.mktemp("driver") / "env", "pandas", "pyarrow")
    install(python, wheel, dependencies=False)
    return python


@pytest.fixture(scope="module")
def cluster_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(cluster_folder: Path, executor_python: Path) -> Iterator[SparkStandalone]:
    """A master and one worker."""
    with running_spark_standalone(cluster_folder, executor_python=executor_python) as running:
        yield running


@pytest.fixture
def submit(cluster: SparkStandalone, driver_python: Path, tmp_path: Path) -> Submit:
    """A submit from the wheel, outside of the checkout, of an author's module that lies in a folder of its own."""
    author, events = tmp_path / "author", tmp_path / "events"
    author.mkdir()
    events.mkdir()
    shutil.copy(acme_rows.__file__, author / "acme_rows.py")
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    return Submit(
        master=cluster.url,
        conf={**cluster.conf, **logged, "spark.pyspark.driver.python": str(driver_python)},
        uris={"db": f"postgresql://reader:{CANARY}@nowhere/db"},
        code=("acme_rows",),
        python=driver_python,
        search=author,
    )


def command_lines() -> list[str]:
    """The command lines of all processes, as anybody on this host sees them."""
    return [command_line(process) for process in psutil.process_iter()]


def published_ids(planned: PlannedRun) -> list[tuple[int, int]]:
    """The staged rows of the valid results."""
    root = planned.folder / "target"
    tables = [pq.read_table(root / file.path) for result in planned.results.values() for file in result.files]
    return sorted((row["id"], row["square"]) for table in tables for row in table.to_pylist())


def test_an_executor_is_killed_and_every_row_is_there_once_and_the_secret_nowhere(
    cluster: SparkStandalone, cluster_folder: Path, submit: Submit, tmp_path: Path, start_driver: StartDriver
) -> None:
    gate, arrivals = tmp_path / "gate", tmp_path / "gate.u2"
    planned = planned_run(tmp_path, RowsSource(3, waiting=("u2",), gate=str(gate), conn_id="db"), squares=True)
    driver = start_driver(submit, planned)
    driver.wait_until(arrivals.exists, "a unit at the gate")
    seen = command_lines()
    (executor,) = cluster.executors
    executor.kill()
    driver.wait_until(lambda: len(arrivals.read_text().split()) > 1, "the unit on another executor")
    gate.touch()
    assert driver.end() == 0, driver.output[-5000:]

    (report,) = planned.reports
    assert report.failures == ()
    assert published_ids(planned) == [(n, n * n) for n in range(300)]
    assert any("extract_pack.py" in line for line in seen)
    assert not [line for line in seen if CANARY in line]
    searched = [path for folder in (tmp_path, cluster_folder) for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in searched if CANARY.encode() in path.read_bytes()]
    assert {driver.log.name, "master.log", "worker-0.log", "stderr"} <= {path.name for path in searched}
    events = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    assert "SparkListenerJobEnd" in events
    assert "SparkListenerExecutorRemoved" in events
    assert "SparkListenerApplicationEnd" in events
    assert VARIABLE not in events


def test_what_the_cluster_lacks_is_named_first(submit: Submit, executor_python: Path, tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1, needs=("adbc_driver_sqlite.dbapi",)))
    done = submit.run(planned)
    assert done.returncode == 1
    line = done.stdout.splitlines()[-1]
    assert line.startswith(f"{FIRST_ERROR}EnvironmentMismatchError: can't run Python ")
    assert f"({executor_python})" in line
    assert "module 'adbc_driver_sqlite.dbapi' can't be imported: ModuleNotFoundError" in line
    assert planned.failures == {}


def test_a_python_that_begins_no_task_is_named(submit: Submit, tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1))
    done = replace(submit, conf={**submit.conf, "spark.pyspark.python": str(tmp_path / "nothing")}).run(planned)
    assert done.returncode == 1
    line = done.stdout.splitlines()[-1]
    assert line.startswith(f"{FIRST_ERROR}EnvironmentMismatchError: can't run Python on the executors: ")
    assert str(tmp_path / "nothing") in line
    assert "spark.pyspark.python" in line
    assert planned.failures == {}
