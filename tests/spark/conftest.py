"""Fixtures that the tests of Spark share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from airflow_gobblin.spark.ship import ship
from tests.services.processes import start_process
from tests.spark.runs import CODE, Driver, PlannedRun, StartDriver, Submit


@pytest.fixture(scope="session")
def shipped_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Spark with the package and the modules of `CODE`, as `--py-files` brings them."""
    spark.addArtifacts(str(ship(CODE, tmp_path_factory.mktemp("code"))), pyfile=True)
    return spark


@pytest.fixture
def start_driver(tmp_path: Path) -> Iterator[StartDriver]:
    """Submit a pack without waiting for its end. All that is left of it at the end of the test is killed.

    :param command: by default, the one that `submit` has for the run.
    """
    started: list[Driver] = []

    def start(submit: Submit, planned: PlannedRun, command: Sequence[str] = ()) -> Driver:
        log = planned.folder / f"driver-{len(started)}.log"
        process = start_process(command or submit.command(planned), log=log, env=submit.environment, cwd=tmp_path)
        started.append(Driver(process, log))
        return started[-1]

    yield start
    for driver in started:
        if driver.process.poll() is None:
            driver.kill()
        for process in driver.suspended:
            with suppress(psutil.Error):
                process.kill()
