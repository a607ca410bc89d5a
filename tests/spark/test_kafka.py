"""A topic of a real Kafka read by Spark, whose task or driver is killed in the middle: it publishes what an independent
consumer reads, each record once.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.report import FIRST_ERROR
from tests.rows.sources.kafka_lake import Lake, uris
from tests.services.kafka import Kafka
from tests.services.s3 import S3Server
from tests.spark.runs import Driver, PlannedRun, StartDriver, Submit, run_on

PARTITIONS, RECORDS, BYTES = 3, 3000, 10_000
"""The size of the topic: each partition has 30 MB, which take a Spark task a while."""
FILE_BYTES = 8 << 20


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    name = kafka.create_topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        kafka.produce(name, (os.urandom(BYTES) for _ in range(RECORDS)), partition, b"k%d" % partition)
    return name


@pytest.fixture
def lake(request: pytest.FixtureRequest, kafka: Kafka, topic: str, tmp_path: Path) -> Lake:
    """An ingestion in units of a partition, of a few files each. The parameter names the place."""
    place, access = str(tmp_path / "lake"), None
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("versitygw")
        access = server.access
        place = access.url(f"{server.create_bucket()}/lake")
    sink = ParquetSink(place, file_bytes=FILE_BYTES)
    # Before any record was published, one is taken for 100 bytes.
    return Lake(kafka, place, topic, {"sink": sink, "max_packs": 1}, access, unit_bytes=100 * RECORDS)


@pytest.fixture
def planned(lake: Lake, tmp_path: Path) -> PlannedRun:
    return planned_run(lake, tmp_path, "first")


def planned_run(lake: Lake, folder: Path, dag_run: str) -> PlannedRun:
    opened = lake.opened
    return PlannedRun(folder, opened, create_work_units(opened, RunRequest(dag_run)))


def submission(lake: Lake) -> Submit:
    return Submit(uris=uris(lake.kafka, lake.access), code=())


def try_again(spark: SparkSession, lake: Lake, planned: PlannedRun) -> None:
    """The next try has no driver to start."""
    connections = SparkConnections(uris(lake.kafka, lake.access))
    assert run_on(spark, planned, connections).failures == ()


def suspended_reader(lake: Lake, planned: PlannedRun, driver: Driver) -> psutil.Process:
    """Suspend a process that reads a unit and has written a part of its files."""
    client = None if lake.access is None else lake.access.filesystem()
    return driver.suspend(
        "the middle of a unit",
        lambda process: reads(process, lake.kafka.port) and has_begun(client, planned, process),
    )


def reads(process: psutil.Process, port: int) -> bool:
    """Whether a process is connected to a broker."""
    return any(getattr(c.raddr, "port", None) == port for c in process.net_connections("tcp"))


def has_begun(client: Any, planned: PlannedRun, process: psutil.Process) -> bool:
    """Whether a file of a unit has some content; on S3, whether there is a part of one.

    :param client: of S3.
    """
    if client is None:
        staged = [file.path for file in process.open_files() if "_gobblin" in file.path]
        return any(os.stat(path).st_size > 1 << 20 for path in staged)
    bucket, _, _ = planned.opened.job.work.target.partition("@")[2].partition("/")
    return bool(client.call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads"))


def publish(planned: PlannedRun) -> str:
    """Decide and publish.

    :return: what became of the topic.
    """
    for pack in planned.run.packs:
        write_commit_steps(planned.opened, planned.run, pack)
        execute_commit_steps(planned.opened, planned.run, pack)
    (report,) = finish(planned.opened, planned.run)
    return report.status.value


@pytest.mark.parametrize("lake", [pytest.param("disk", marks=pytest.mark.soak), "s3"], indirect=True)
def test_a_task_is_killed_in_the_middle_and_what_it_read_is_read_again(
    lake: Lake, planned: PlannedRun, start_driver: StartDriver, shipped_spark: SparkSession
) -> None:
    driver = start_driver(submission(lake), planned)
    suspended_reader(lake, planned, driver).kill()
    assert driver.end() == 1, driver.output[-5000:]
    assert FIRST_ERROR in driver.output
    assert publish(planned) == "failed"
    assert lake.files == []

    try_again(shipped_spark, lake, planned)
    assert publish(planned) == "committed"
    assert len(lake.files) > PARTITIONS
    lake.expect_all()


@pytest.mark.parametrize("lake", ["disk", pytest.param("s3", marks=pytest.mark.soak)], indirect=True)
def test_a_driver_is_killed_and_its_task_goes_on_beside_the_next_try(
    lake: Lake, planned: PlannedRun, start_driver: StartDriver, shipped_spark: SparkSession
) -> None:
    driver = start_driver(submission(lake), planned)
    late = suspended_reader(lake, planned, driver)
    driver.kill()
    assert lake.files == []

    try_again(shipped_spark, lake, planned)
    with suppress(psutil.NoSuchProcess):
        late.resume()
    assert publish(planned) == "committed"
    lake.expect_all()
    with suppress(psutil.NoSuchProcess):
        late.wait(120)

    lake.kafka.produce(lake.topic, [b"more"] * 10)
    next_run = planned_run(lake, planned.folder, "next")
    try_again(shipped_spark, lake, next_run)
    assert publish(next_run) == "committed"
    lake.expect_all()
    assert planned_run(lake, planned.folder, "last").run.packs == ()
