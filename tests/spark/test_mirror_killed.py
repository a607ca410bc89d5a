"""A mirror's Spark task or driver is killed in the middle of a file: nothing of it is published, and the next try finishes."""

from __future__ import annotations

import os
import re
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
from airflow_gobblin.spark.report import FIRST_ERROR
from tests.copy.mirrors import Trees, content, statuses
from tests.proofs import one_in
from tests.spark.runs import Driver, PlannedRun, StartDriver, Submit, run_on

A, B = "a#files", "b#files"
LARGE = 100 << 20
"""The size of a file whose copy takes a second or more, by its bandwidth."""
IN_PARTS = {"checksums": False, "split_above": LARGE // 5}


@pytest.fixture
def trees(request: pytest.FixtureRequest, tmp_path: Path) -> Trees:
    """A file set with a file that is large enough to be copied for a while, in place of another one, and a small one."""
    param = getattr(request, "param", {})
    options = {"keep": Keep("t"), "checksums": True, "bandwidth": LARGE, "max_packs": 1, **param}
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


def suspended_in_mid_file(trees: Trees, driver: Driver) -> psutil.Process:
    """Suspend the process that copies the large file, in the middle of it."""

    def writes(process: psutil.Process) -> bool:
        staged = [file.path for file in process.open_files() if str(trees.target) in file.path]
        large = [path for path in staged if "large" in path or "-parts-" in path]
        return any(1 << 20 < os.stat(path).st_size < LARGE for path in large)

    return driver.suspend("the middle of a file", writes)


def try_again(spark: SparkSession, planned: PlannedRun) -> None:
    """The next try has no driver to start."""
    assert run_on(spark, planned, SparkConnections({})).failures == ()


def publish(planned: PlannedRun) -> dict[str, str]:
    for pack in planned.run.packs:
        write_commit_steps(planned.opened, planned.run, pack)
        execute_commit_steps(planned.opened, planned.run, pack)
    return statuses({report.urn: report for report in finish(planned.opened, planned.run)})


@one_in(2)
@pytest.mark.parametrize("trees", [{}, IN_PARTS], ids=["whole", "in parts"], indirect=True)
def test_a_spark_task_is_killed_in_mid_file_and_only_its_file_set_is_unpublished(
    trees: Trees,
    planned: PlannedRun,
    start_driver: StartDriver,
    shipped_spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = content(trees.target / "a")
    driver = start_driver(Submit(code=()), planned)
    suspended_in_mid_file(trees, driver).kill()
    assert driver.end() == 1, driver.output[-5000:]
    assert FIRST_ERROR in driver.output
    assert publish(planned) == {A: "failed", B: "committed"}
    assert content(trees.target / "a") == before
    assert trees.journal.history(A).slots == ()

    with caplog.at_level("INFO", "airflow_gobblin.spark.pack"):
        try_again(shipped_spark, planned)
    if trees.mirror.split_above is not None:
        assert re.search(r"has 7 parts, of which [1-6] are there", caplog.text), "the others are copied"
    assert publish(planned) == {A: "committed", B: "committed"}
    assert trees.equal()
    assert trees.staged() == []


@pytest.mark.soak
def test_spark_itself_tries_a_task_again_that_was_killed_in_mid_file(
    trees: Trees, planned: PlannedRun, start_driver: StartDriver
) -> None:
    driver = start_driver(Submit(master="local[2,3]", code=()), planned)
    suspended_in_mid_file(trees, driver).kill()
    assert driver.end() == 0, driver.output[-5000:]
    assert publish(planned) == {A: "committed", B: "committed"}
    assert trees.equal()
    assert trees.staged() == [], "the file of the killed task is swept"


def test_a_driver_is_killed_in_mid_file_and_its_task_goes_on_beside_the_next_try(
    trees: Trees, planned: PlannedRun, start_driver: StartDriver, shipped_spark: SparkSession
) -> None:
    before = content(trees.target / "a")
    driver = start_driver(Submit(code=()), planned)
    late = suspended_in_mid_file(trees, driver)
    driver.kill()
    assert content(trees.target / "a") == before

    try_again(shipped_spark, planned)
    with suppress(psutil.NoSuchProcess):
        late.resume()
    assert publish(planned) == {A: "committed", B: "committed"}
    with suppress(psutil.NoSuchProcess):
        late.wait(120)
    assert trees.equal()
    assert statuses(trees.run()) == {A: "idle", B: "idle"}
