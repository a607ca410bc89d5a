"""A mirror's Spark task or driver is killed in the middle of a file: nothing of it is published, and the next try finishes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from airflow_gobblin.copy.options import Keep
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.pack import run_pack
from airflow_gobblin.spark.ship import ship
from tests.copy.mirrors import Trees, content, statuses
from tests.services.processes import children, start_process, stop_process
from tests.spark.runs import PlannedRun, Submit, wait_until

A, B = "a#files", "b#files"
LARGE = 300 << 20
"""The size of a file whose copy takes a second or more."""


IN_PARTS = {"checksums": False, "split_above": 64 << 20, "bandwidth": LARGE // 2}


@pytest.fixture
def trees(request: pytest.FixtureRequest, tmp_path: Path) -> Trees:
    """A file set with a file that is large enough to be copied for a while, in place of another one, and a small one."""
    options = {"keep": Keep("t"), "checksums": True, "max_packs": 1, **getattr(request, "param", {})}
    trees = Trees(tmp_path, options)
    for path in ("a/small", "a/large", "b/small"):
        trees.write(path)
    block = os.urandom(1 << 20)
    with (trees.source / "a/large").open("wb") as large:
        for _ in range(LARGE >> 20):
            large.write(block)
    os.utime(trees.write("a/large", "the old one", at=trees.target), ns=(1, 1))
    return trees


@pytest.fixture
def planned(trees: Trees) -> PlannedRun:
    opened = trees.opened()
    return PlannedRun(trees.folder, opened, create_work_units(opened, RunRequest("killed")))


@pytest.fixture
def stopped() -> Iterator[list[psutil.Process]]:
    """Processes that were stopped, and are killed at the end if they still are there."""
    found: list[psutil.Process] = []
    yield found
    for process in found:
        with suppress(psutil.Error):
            process.kill()


def writer_of(trees: Trees, driver: subprocess.Popen[bytes]) -> psutil.Process | None:
    """The process below a driver that is in the middle of the copy of the large file."""
    for process in children(driver):
        with suppress(psutil.Error, OSError):
            for file in process.open_files():
                staged = str(trees.target) in file.path and ("large" in file.path or "-parts-" in file.path)
                if staged and 1 << 20 < os.stat(file.path).st_size < LARGE:
                    return process
    return None


def stop_in_mid_file(
    trees: Trees, driver: subprocess.Popen[bytes], log: Path, stopped: list[psutil.Process]
) -> psutil.Process:
    """Stop the process that copies the large file, in the middle of it."""

    def is_stopped() -> bool:
        writer = writer_of(trees, driver)
        if writer is None:
            return False
        writer.suspend()
        stopped.append(writer)
        return True

    wait_until(is_stopped, "the middle of a file", driver, log)
    wait_for(lambda: stopped[-1].status() == psutil.STATUS_STOPPED)
    assert writer_of(trees, driver) is not None, "it was stopped before its end"
    return stopped[-1]


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def shipped_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Spark with the package, as `--py-files` brings it: the next try there has no driver to start."""
    spark.addArtifacts(str(ship((), tmp_path_factory.mktemp("code"))), pyfile=True)
    return spark


def try_again(spark: SparkSession, planned: PlannedRun) -> None:
    staging = planned.opened.staging
    report = run_pack(spark, staging.files.root, staging.folder, planned.run.run, 0, (), SparkConnections({}))
    assert report.failures == ()


def publish(planned: PlannedRun) -> dict[str, str]:
    for pack in planned.run.packs:
        write_commit_steps(planned.opened, planned.run, pack)
        execute_commit_steps(planned.opened, planned.run, pack)
    return statuses({report.urn: report for report in finish(planned.opened, planned.run)})


@pytest.mark.parametrize("trees", [{}, IN_PARTS], ids=["whole", "in parts"], indirect=True)
def test_a_spark_task_is_killed_in_mid_file_and_only_its_file_set_is_unpublished(
    trees: Trees, planned: PlannedRun, stopped: list[psutil.Process], shipped_spark: SparkSession
) -> None:
    submit, log = Submit(code=()), trees.folder / "driver.log"
    before = content(trees.target / "a")
    driver = start_process(submit.command(planned), log=log, env=submit.environment)
    try:
        stop_in_mid_file(trees, driver, log, stopped).kill()
        assert driver.wait(240) == 1, log.read_text()[-5000:]
    finally:
        stop_process(driver, first=signal.SIGKILL)
    assert "Python worker exited" in log.read_text()
    assert publish(planned) == {A: "failed", B: "committed"}
    assert content(trees.target / "a") == before
    assert trees.journal.history(A).slots == ()

    try_again(shipped_spark, planned)
    assert publish(planned) == {A: "committed", B: "committed"}
    assert trees.equal()
    assert trees.staged() == []


@pytest.mark.soak
def test_spark_itself_tries_a_task_again_that_was_killed_in_mid_file(
    trees: Trees, planned: PlannedRun, stopped: list[psutil.Process]
) -> None:
    submit, log = Submit(master="local[2,3]", code=()), trees.folder / "driver.log"
    driver = start_process(submit.command(planned), log=log, env=submit.environment)
    try:
        stop_in_mid_file(trees, driver, log, stopped).kill()
        assert driver.wait(240) == 0, log.read_text()[-5000:]
    finally:
        stop_process(driver, first=signal.SIGKILL)
    assert publish(planned) == {A: "committed", B: "committed"}
    assert trees.equal()
    assert trees.staged() == [], "what the killed task had written is swept"


def test_a_driver_is_killed_in_mid_file_and_its_task_goes_on_beside_the_next_try(
    trees: Trees, planned: PlannedRun, stopped: list[psutil.Process], shipped_spark: SparkSession
) -> None:
    submit, log = Submit(code=()), trees.folder / "driver.log"
    before = content(trees.target / "a")
    driver = start_process(submit.command(planned), log=log, env=submit.environment)
    try:
        late = stop_in_mid_file(trees, driver, log, stopped)
    finally:
        stop_process(driver, first=signal.SIGKILL)
    assert content(trees.target / "a") == before

    try_again(shipped_spark, planned)
    with suppress(psutil.NoSuchProcess):
        late.resume()
    assert publish(planned) == {A: "committed", B: "committed"}
    with suppress(psutil.NoSuchProcess):
        late.wait(120)
    assert trees.equal()
    assert statuses(trees.run()) == {A: "idle", B: "idle"}
