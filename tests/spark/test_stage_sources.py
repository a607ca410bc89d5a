"""A stage on real Spark whose first job reads a real PostgreSQL, or topics of a real Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_gobblin import ExtractKind, Ingestion, ParquetSink, Pipeline, Sql, SqlSource, SqlTable, Stage
from airflow_gobblin.connections import Connections
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.rows.sources.kafka import KafkaSource
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.testing import inprocess
from tests.proofs import one_in
from tests.rows.sources.databases import PostgresDatabase
from tests.rows.sources.kafka_lake import KAFKA, numbered, uris
from tests.services.kafka import Kafka
from tests.spark.test_stages import run_stage

pytestmark = one_in(2, "numbers")


@dataclass
class PostgresNumbers:
    """A table of numbers."""

    database: PostgresDatabase
    dataset = "numbers"
    number = "id"

    def __post_init__(self) -> None:
        self.database.run("CREATE TABLE numbers (id bigint PRIMARY KEY)")

    @property
    def source(self) -> SqlSource:
        return SqlSource("db", (SqlTable("numbers", ExtractKind.APPEND_ONLY, delta="id"),))

    @property
    def connections(self) -> Connections:
        return SparkConnections({"db": self.database.url})

    def add(self, numbers: range) -> None:
        self.database.insert("numbers", [(number,) for number in numbers])

    def replacing(self, numbers: range) -> RunRequest:
        return RunRequest("raw/again", numbers.stop, start=numbers.start, replace=True)


@dataclass
class TopicNumbers:
    """A topic of one partition, whose offsets are its numbers."""

    kafka: Kafka
    dataset: str
    number = "cast(cast(value AS string) AS bigint)"

    @property
    def source(self) -> KafkaSource:
        return KafkaSource(KAFKA, (self.dataset,))

    @property
    def connections(self) -> Connections:
        return SparkConnections(uris(self.kafka))

    def add(self, numbers: range) -> None:
        self.kafka.produce(self.dataset, numbered(len(numbers), numbers.start), 0)

    def replacing(self, numbers: range) -> RunRequest:
        return RunRequest("raw/again", {0: numbers.stop}, start={0: numbers.start}, replace=True)


@pytest.fixture(params=["postgres", "kafka"])
def numbers(request: pytest.FixtureRequest) -> PostgresNumbers | TopicNumbers:
    if request.param == "postgres":
        return PostgresNumbers(PostgresDatabase(request.getfixturevalue("postgres_database")))
    kafka: Kafka = request.getfixturevalue("kafka")
    return TopicNumbers(kafka, kafka.create_topic())


def test_a_stage_follows_each_source_also_when_a_range_is_replaced(
    spark: SparkSession, tmp_path: Path, numbers: PostgresNumbers | TopicNumbers
) -> None:
    raw = Ingestion("raw", numbers.source, ParquetSink(f"{tmp_path}/raw"), f"file://{tmp_path}/journal")
    square = f"SELECT {numbers.number} AS number, {numbers.number} * {numbers.number} AS square FROM {{numbers}}"
    squares = Stage("squares", Sql(square), {"numbers": raw[numbers.dataset]}, ParquetSink(f"{tmp_path}/squares"))
    jobs = {job.name: job for job in Pipeline("numbers", (raw, squares), raw.journal).bound}

    def opened(name: str) -> OpenJob:
        return OpenJob(jobs[name], Journal.create(raw.journal, name), numbers.connections)

    def run(version: int, request: RunRequest | None = None) -> list[dict[str, Any]]:
        end = datetime.fromtimestamp(version, UTC)
        request = request or RunRequest(f"raw/{version}", version=end)
        assert inprocess.run(opened("raw"), numbers.connections, request)[numbers.dataset].status == "committed"
        assert run_stage(spark, opened("squares"), RunRequest(f"squares/{version}"), ()).status in ("committed", "idle")
        found = Journal.open(raw.journal, "squares").read_dataset("squares").to_arrow().to_table().to_pylist()
        return sorted(found, key=lambda row: int(row["number"]))

    def expected(count: int) -> list[dict[str, int]]:
        return [{"number": number, "square": number * number} for number in range(count)]

    numbers.add(range(5))
    assert run(1) == expected(5)
    numbers.add(range(5, 8))
    assert run(2) == expected(8)
    run(3, numbers.replacing(range(5)))
    numbers.add(range(8, 9))
    assert run(4) == expected(9)
    actions = [slot.decision.action for slot in Journal.open(raw.journal, "squares").history("squares").slots]
    assert Action.REWIND in actions
