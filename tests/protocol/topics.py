"""A cluster of Kafka in memory, as planning and reading see it: so that histories run the product's own planning and reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, cast

import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import SourceError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import MultiLongWatermark
from airflow_gobblin.model.work import WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest
from airflow_gobblin.rows.sources.kafka import KafkaSource, OutOfRange
from airflow_gobblin.rows.sources.kafka.cluster import Cluster, Topic
from airflow_gobblin.rows.sources.kafka.planning import LOST, plan_topic, resolve_range
from airflow_gobblin.rows.sources.kafka.reader import KafkaReader

_AT_ONCE = 2
"""How many records a consumer gets at a time."""


@dataclass(frozen=True)
class Log:
    """The logs of a topic: each third offset has no record, as after a transaction. A later partition ends earlier.

    :param length: the end of the first.
    :param start: where all begin, or at their end if that is before.
    """

    urn: str
    partitions: int
    length: int
    start: int = 0
    id: ClassVar[str] = "one"
    settings: ClassVar[Mapping[str, str]] = {}

    def end(self, partition: int) -> int:
        return max(0, self.length - partition)

    def records(self, partition: int, low: int, high: int) -> list[int]:
        return [offset for offset in range(low, high) if offset % 3 != 1]

    def row(self, partition: int, offset: int) -> str:
        return f"{self.urn}/{partition}/{offset}"

    def rows(self, part: Range) -> list[str]:
        """The rows that a range has, or had before the log lost them."""
        assert isinstance(part.low, MultiLongWatermark)
        assert isinstance(part.high, MultiLongWatermark)
        bounds = enumerate(zip(part.low.values, part.high.values, strict=True))
        return [self.row(p, offset) for p, (low, high) in bounds for offset in self.records(p, low, high)]

    # As a `Cluster` and a `Topic`

    @property
    def name(self) -> str:
        return self.urn

    def topic(self, name: str) -> Log:
        return self

    def starts(self, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        return {p: min(self.start, self.end(p)) for p in partitions}

    def ends(self, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        return {p: self.end(p) for p in partitions}

    def at(self, time: datetime, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        """A time is an offset, in seconds."""
        found = {p: max(self.start, int(time.timestamp())) for p in partitions}
        return {p: offset if offset < self.end(p) else -1 for p, offset in found.items()}

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(self)

    def failed(self, operation: str, subject: str, error: KafkaError) -> SourceError:
        return SourceError(operation=operation, subject=subject, cause=error.str())


class Consumer:
    """A consumer of exact ranges: a few records at a time, of one partition after the other."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next: dict[int, int] = {}

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self._next = {place.partition: place.offset for place in places}

    def incremental_unassign(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._next.pop(place.partition, None)

    def consume(self, most: int, timeout: float) -> list[Message]:
        found: list[Message] = []
        for partition, offset in self._next.items():
            records = self._log.records(partition, offset, self._log.end(partition))[: _AT_ONCE - len(found)]
            for at in records:
                found.append(self._message(partition, at, value=self._log.row(partition, at).encode()))
                self._next[partition] = at + 1
            if not records and len(found) < _AT_ONCE:
                error = KafkaError(KafkaError._PARTITION_EOF)
                found.append(self._message(partition, self._log.end(partition), error=error))
        return found

    def _message(self, partition: int, offset: int, **given: Any) -> Message:
        return Message(topic=self._log.urn, partition=partition, offset=offset, timestamp=(1, 0), **given)

    def close(self) -> None:
        pass


def plan_log(log: Log, state: DatasetState, request: PlanRequest) -> DatasetPlan:
    """As `KafkaSource.plan`, in units of a few records. Lost offsets are named."""
    source = KafkaSource("kafka", (log.urn,), out_of_range=OutOfRange.EARLIEST, unit_bytes=300)
    return plan_topic(source, cast(Topic, log), state, request, NoConnections())


def resolve_log(log: Log, request: RangeRequest) -> Range:
    return resolve_range(cast(Topic, log), request)


def read_log(log: Log, unit: WorkUnit, schema: pa.Schema) -> KafkaReader:
    return KafkaReader(cast(Cluster, log), unit, schema, KafkaSource("kafka", (log.urn,)).values, NoConnections())


def is_lost(properties: Mapping[str, object]) -> bool:
    """Whether a unit names offsets that were lost."""
    return LOST in properties
