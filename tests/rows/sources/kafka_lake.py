"""A lake that a topic of a real Kafka is ingested into, and the comparison with what an independent consumer reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import NotFoundError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.watermark import MultiLongWatermark
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.kafka import KafkaSource
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.services.kafka import Kafka, Record
from tests.services.s3 import CONNECTION, S3Access

__all__ = ["KAFKA", "Lake", "expect_same", "numbered", "uris"]

KAFKA = "kafka"
"""The id of the connection to the broker."""


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Values of so many records."""
    return [b"%d" % number for number in range(start, start + count)]


def uris(kafka: Kafka, access: S3Access | None = None) -> dict[str, str]:
    """The connections of an ingestion.

    :param access: to the object store of its lake.
    """
    return {KAFKA: kafka.uri(KAFKA), **({CONNECTION: access.connection} if access else {})}


class Lake:
    """An ingestion of one topic into a folder, or into a bucket.

    :param place: the target: a folder, or a URL with `access` to its object store.
    :param options: of the source, and `of_ingestion` of the ingestion.
    """

    def __init__(
        self,
        kafka: Kafka,
        place: Path | str,
        topic: str,
        of_ingestion: Any = None,
        access: S3Access | None = None,
        **options: Any,
    ) -> None:
        self.kafka, self.topic, self.access = kafka, topic, access
        source = KafkaSource(KAFKA, (topic,), **options)
        of_ingestion = {"sink": ParquetSink(str(place)), **(of_ingestion or {})}
        self.job = Ingestion("clicks", source, journal="unused", **of_ingestion)
        self.journal = Journal.create(MemoryStore(), self.job.name)

    def change(self, of_ingestion: Any = None, **options: Any) -> None:
        """Change the options of the ingestion, and of its source."""
        self.job = replace(self.job, source=replace(self.job.source, **options), **(of_ingestion or {}))  # type: ignore[type-var]

    @property
    def connections(self) -> Connections:
        """Those of the ingestion, anew: the broker may be on another port."""
        return SparkConnections(uris(self.kafka, self.access))

    @property
    def opened(self) -> OpenJob:
        """The ingestion as a task has it."""
        return OpenJob(self.job, self.journal, self.connections)

    def run(self, request: RunRequest | None = None) -> DatasetReport:
        """A whole run in this process.

        :return: the report of the topic.
        """
        return inprocess.run(self.opened, self.connections, request)[self.topic]

    @property
    def watermark(self) -> tuple[int, ...]:
        """The next offset of each partition."""
        mark = self.journal.state(self.topic).watermark
        assert isinstance(mark, MultiLongWatermark)
        return mark.values

    @property
    def files(self) -> list[pa.Table]:
        """The files that a reader of the journal sees."""
        try:
            found = self.journal.read_dataset(self.topic)
        except NotFoundError:  # never published
            return []
        if not found.files:
            return []
        opened = found.to_arrow(self.connections, CONNECTION if self.access else None)
        assert isinstance(opened, ds.FileSystemDataset)
        return [fragment.to_table(opened.schema) for fragment in opened.get_fragments()]

    def rows(self) -> list[dict[str, Any]]:
        """The rows that a reader of the journal sees, file by file."""
        return [row for table in self.files for row in table.to_pylist()]

    def records(self) -> list[Record]:
        """The same, as records."""
        return [record for table in self.files for record in records_of(table)]

    def expect_all(self, isolation: str = "read_committed") -> None:
        """Expect what an independent consumer reads, in order within each partition's part of a file."""
        files = self.files
        expect_same(
            (r for table in files for r in records_of(table)),
            self.kafka.records(self.topic, isolation),
        )
        for table in files:
            expect_ordered(table)


def records_of(table: pa.Table) -> Iterable[Record]:
    """The records of a file."""
    columns = (table[name].to_pylist() for name in ("partition", "offset", "key", "value"))
    return zip(*columns, strict=True)


def expect_same(found: Iterable[Record], expected: Iterable[Record]) -> None:
    """Expect the same multiset of records."""
    published, there = Counter(found), Counter(expected)
    too_many, missing = published - there, there - published
    assert (too_many.total(), missing.total()) == (0, 0), (next(iter(too_many), None), next(iter(missing), None))


def expect_ordered(table: pa.Table) -> None:
    """Expect the offsets of each partition in a file to rise."""
    last: dict[int, int] = {}
    for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
        assert last.get(partition, -1) < offset
        last[partition] = offset
