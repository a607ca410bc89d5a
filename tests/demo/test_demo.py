"""The parts that the demo rests on: its data, catching a process in time, and a verdict that can be bad."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.iceberg import IcebergSink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.kafka import KafkaSource
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.testing import inprocess
from tests.demo.flights import FLIGHTS, FlightsDatabase
from tests.demo.iceberg import Lake
from tests.demo.iceberg import check as check_table
from tests.demo.kafka import CLICKS, INGESTION, PARTITIONS, come
from tests.demo.kafka import check as check_topics
from tests.demo.kill import file_names, stop_at_new_file
from tests.demo.pipeline import one_pass
from tests.demo.verdict import DemoError, check
from tests.rows.sources.databases import SqliteDatabase
from tests.services.environment import ROOT
from tests.services.kafka import Kafka

MANY_FILES = """
import os, sys
print(flush=True)
for number in range(100_000):
    with open(f"{sys.argv[1]}/{number}.parquet", "x"):
        pass
"""


def test_all_flights_arrive_once_with_a_row_id(tmp_path: Path) -> None:
    source = FlightsDatabase(tmp_path / "flights.db")
    summer = source.arrive(until=(7, 1))
    assert summer == source.count("flights") > 0
    assert summer + source.arrive(until=(13, 1)) == source.count("flights") == FLIGHTS == 336_776
    with closing(sqlite3.connect(source.path)) as database:
        missing, low, high = database.execute(
            "SELECT sum(dep_time IS NULL), min(row_id), max(row_id) FROM flights"
        ).fetchone()
    assert (missing, low, high) == (8_255, 1, FLIGHTS)


def test_a_process_is_stopped_while_it_makes_files(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", MANY_FILES, str(tmp_path)], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            assert stop_at_new_file(psutil.Process(child.pid), tmp_path, frozenset(), seconds=30)
            stopped_with = file_names(tmp_path)
            assert 0 < len(stopped_with) < 100_000
            assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
            assert file_names(tmp_path) == stopped_with
        finally:
            child.kill()


def test_a_process_that_makes_no_file_is_not_stopped(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "print()"], stdout=subprocess.PIPE) as child:
        assert not stop_at_new_file(psutil.Process(child.pid), tmp_path, frozenset(), seconds=1)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """The journal of an ingestion of three rows from `source.db`."""
    database = SqliteDatabase(tmp_path / "source.db")
    database.run("CREATE TABLE flights (row_id INTEGER PRIMARY KEY, dest TEXT)")
    database.insert("flights", [(1, "IAH"), (2, "MIA"), (3, None)])
    source = SqlSource("db", (SqlTable("flights", ExtractKind.APPEND_ONLY, delta="row_id"),))
    ingestion = Ingestion("flights", source, ParquetSink(str(tmp_path / "lake")), f"file://{tmp_path}/journal")
    journal = Journal.create(ingestion.journal, ingestion.name)
    assert inprocess.run(OpenJob(ingestion, journal, database), database)["flights"].ok
    return journal


def test_the_verdict_is_good_if_all_rows_are_there_once(journal: Journal, tmp_path: Path) -> None:
    assert check(journal, tmp_path / "source.db", ("flights",)) == 3


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        pytest.param([0, 1, 2, 2], "4 published; 1 too many", id="duplicate"),
        pytest.param([0, 2], "2 published; 1 missing", id="loss"),
    ],
)
def test_the_demo_fails_on_a_planted_fault(journal: Journal, tmp_path: Path, rows: list[int], finding: str) -> None:
    (path,) = journal.read_dataset("flights").paths
    pq.write_table(pq.read_table(path).take(pa.array(rows)), path)
    with pytest.raises(DemoError, match=re.escape(finding)):
        check(journal, tmp_path / "source.db", ("flights",))


class SourceAndCatalog(SqliteDatabase):
    """The connections of a source and of the catalog of a lake."""

    def __init__(self, source: Path, lake: Lake) -> None:
        super().__init__(source)
        self._catalog = f"sqlite://{lake.catalog_file}?warehouse={quote(f'file://{lake.root}/tables', safe='')}"

    def uri(self, conn_id: str) -> str:
        return self._catalog if conn_id == "lake_catalog" else super().uri(conn_id)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table of an Iceberg catalog with the three rows of `source.db`."""
    lake = Lake(tmp_path / "lake")
    database = SourceAndCatalog(tmp_path / "source.db", lake)
    database.run("CREATE TABLE flights (row_id INTEGER PRIMARY KEY, dest TEXT)")
    database.insert("flights", [(1, "IAH"), (2, "MIA"), (3, None)])
    source = SqlSource("db", (SqlTable("flights", ExtractKind.APPEND_ONLY, delta="row_id"),))
    sink = IcebergSink("lake_catalog", "demo.{dataset}", f"file://{tmp_path}/work")
    ingestion = Ingestion("flights_to_iceberg", source, sink, f"file://{lake.root}/journal")
    journal = Journal.create(ingestion.journal, ingestion.name)
    assert inprocess.run(OpenJob(ingestion, journal, database), database)["flights"].ok
    return lake


def test_the_verdict_on_an_iceberg_table_is_good_if_all_rows_are_there_once(lake: Lake, tmp_path: Path) -> None:
    assert check_table(lake, tmp_path / "source.db") == 3


@pytest.mark.parametrize(
    ("plant", "finding"),
    [
        pytest.param(lambda table: table.append(table.scan().to_arrow().slice(0, 1)), "1 too many", id="duplicate"),
        pytest.param(lambda table: table.delete("row_id = 2"), "1 missing", id="loss"),
    ],
)
def test_the_demo_of_an_iceberg_table_fails_on_a_planted_fault(
    lake: Lake, tmp_path: Path, plant: Callable[[Any], None], finding: str
) -> None:
    with closing(load_catalog("lake_catalog", type="sql", uri=f"sqlite:///{lake.catalog_file}")) as catalog:
        plant(catalog.load_table("demo.flights"))
    with pytest.raises(DemoError, match=re.escape(finding)):
        check_table(lake, tmp_path / "source.db")


def test_one_pass_joins_each_flight_with_each_weather_of_its_hour(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "source.db")
    database.run(
        "CREATE TABLE flights (row_id INTEGER PRIMARY KEY, carrier, year, month, dep_time, dep_delay, origin, time_hour)",
    )
    database.run("CREATE TABLE weather (origin, time_hour, wind_speed)")
    database.insert("weather", [("JFK", "05", 19.9), ("JFK", "05", 20.0), ("JFK", "06", None)])
    flights = [
        (1, "AA", 2013, 1, 505, 5, "JFK", "05"),
        (2, "AA", 2013, 1, 600, None, "JFK", "06"),
        (3, "UA", 2013, 2, 507, 7, "LGA", "05"),
        (4, "AA", 2013, 1, 509, 9, "JFK", "05"),
        (5, "UA", 2013, 2, None, None, "JFK", "05"),
    ]
    database.insert("flights", flights)
    found = [sorted(one_pass(tmp_path / "source.db", before, upto)) for before, upto in ((0, 3), (3, 5))]
    assert found == [
        [("AA", 2013, 1, 3, 10, 1, 0), ("UA", 2013, 2, 1, 7, 0, 0)],
        [("AA", 2013, 1, 5, 28, 2, 0), ("UA", 2013, 2, 1, 7, 0, 1)],
    ]


def test_the_frames_of_the_demo_give_what_one_pass_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "dags")
    frames: Any = import_module("flights_frames")
    weather = spark.createDataFrame(
        [("JFK", "05", 19.9), ("JFK", "05", 20.0)], "origin string, time_hour string, wind_speed double"
    )
    for column in ("temp", "precip", "visib"):
        weather = weather.selectExpr("*", f"0.0D AS {column}")
    columns = (
        "carrier string, year bigint, month bigint, dep_time bigint, dep_delay bigint, origin string, time_hour string"
    )
    state = spark.createDataFrame(
        [], "carrier string, year bigint, month bigint, flights bigint, minutes bigint, windy bigint, cancelled bigint"
    )
    found = []
    for rows in (
        [("AA", 2013, 1, 505, 5, "JFK", "05"), ("UA", 2013, 2, 507, 7, "LGA", "05")],
        [("UA", 2013, 2, None, None, "JFK", "05")],
    ):
        made = frames.with_weather(spark.createDataFrame(rows, columns), weather)
        totals = frames.month_to_date(made.rows, made.channels["cancelled"], state)
        found.append(sorted(map(tuple, totals.rows.collect())))
        state = totals.state
    assert found == [[("AA", 2013, 1, 2, 10, 1, 0), ("UA", 2013, 2, 1, 7, 0, 0)], [("UA", 2013, 2, 1, 7, 0, 1)]]


@pytest.fixture
def topics(kafka: Kafka, tmp_path: Path) -> Iterator[Journal]:
    """The journal of an ingestion of the topics of the demo, into which some records came."""
    for topic, partitions in PARTITIONS.items():
        kafka.create_topic(topic, partitions)
    chance, source = random.Random(3), KafkaSource("kafka", tuple(PARTITIONS))
    with kafka.producing(partial(come, chance=chance)):
        kafka.wait_until(lambda: all(kafka.records(topic) for topic in PARTITIONS))
    ingestion = Ingestion(INGESTION, source, ParquetSink(str(tmp_path / "lake")), f"file://{tmp_path}/journal")
    journal = Journal.create(ingestion.journal, ingestion.name)
    reports = inprocess.run(OpenJob(ingestion, journal, kafka), kafka)
    assert all(reports[topic].ok for topic in PARTITIONS)
    yield journal
    for topic in PARTITIONS:
        kafka.delete_topic(topic)


def test_the_verdict_on_topics_is_good_if_all_records_are_there_once(topics: Journal, kafka: Kafka) -> None:
    assert check_topics(topics, kafka) == sum(len(kafka.records(topic)) for topic in PARTITIONS) > 0


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        pytest.param(lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "1 too many", id="duplicate"),
        pytest.param(lambda rows: rows.slice(1), "1 missing", id="loss"),
    ],
)
def test_the_demo_of_topics_fails_on_a_planted_fault(
    topics: Journal, kafka: Kafka, change: Callable[[pa.Table], pa.Table], finding: str
) -> None:
    path, *_ = topics.read_dataset(CLICKS).paths
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(DemoError, match=re.escape(finding)):
        check_topics(topics, kafka)
