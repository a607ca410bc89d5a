"""The reader of one work unit of a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from airflow_gobblin.errors import Remedy, SourceChangedError, SourceError
from airflow_gobblin.model.watermark import Json, MultiLongWatermark
from airflow_gobblin.model.work import WorkUnit
from airflow_gobblin.rows.sources.kafka.cluster import SECONDS_TO_ANSWER, Cluster
from airflow_gobblin.rows.sources.kafka.planning import LOST, TOPIC_ID
from airflow_gobblin.rows.sources.kafka.records import batch_of

_AT_ONCE = 10_000
"""The most records of a batch."""
_WAIT = 0.1
"""For how many seconds a batch is collected, while fewer records come: so long the end of each unit waits."""
_FETCHING = {
    "fetch.min.bytes": 1 << 20,
    "fetch.wait.max.ms": 100,
    "fetch.max.bytes": 64 << 20,
    "max.partition.fetch.bytes": 8 << 20,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 64 << 10,
    "check.crcs": True,
}


class KafkaReader:
    """A unit being read: each partition from its low offset up to its high one, in order.

    Offsets without a record are left out in silence: they are of transactions' marks, of aborted transactions, or of records
    that were compacted away. An offset that was removed before it could be read is an error.
    """

    def __init__(self, cluster: Cluster, unit: WorkUnit, schema: pa.Schema) -> None:
        low, high = unit.low, unit.expected_high
        assert isinstance(low, MultiLongWatermark)
        assert isinstance(high, MultiLongWatermark)
        self._cluster = cluster
        self._unit = unit
        self._position = [*low.values]
        self._high = high.values
        self._lost = LOST in unit.properties
        self._consumer = None if self._lost else cluster.consumer(**_FETCHING)

    @property
    def actual_high(self) -> MultiLongWatermark:
        """The first offset of each partition that was not read."""
        return MultiLongWatermark(tuple(self._position))

    @property
    def position(self) -> MultiLongWatermark:
        """The same: it can be stopped between any two batches."""
        return self.actual_high

    @property
    def expected_rows(self) -> int | None:
        """Always `None`: offsets don't count records."""
        return None

    @property
    def properties(self) -> Mapping[str, Json]:
        """The topic's id, by which planning knows another one of the same name; and the offsets that are lost."""
        return {name: value for name, value in self._unit.properties.items() if name in (TOPIC_ID, LOST)}

    def close(self) -> None:
        """Leave the cluster."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._lost:
            self._position = [*self._high]
            return
        self._check_same()
        left = {p for p, (low, high) in enumerate(zip(self._position, self._high, strict=True)) if low < high}
        assert self._consumer is not None
        self._consumer.assign([TopicPartition(self._unit.urn, p, self._position[p]) for p in sorted(left)])
        heard = time.monotonic()
        while left:
            messages = self._consume()
            if not messages:
                if time.monotonic() - heard > SECONDS_TO_ANSWER:
                    raise self._failed(f"no record came for {SECONDS_TO_ANSWER:.0f} s")
                continue
            heard = time.monotonic()
            good = self._taken(messages, left)
            if good:
                yield batch_of(good)
        self._check_same()  # else some of it may be of another topic

    def _consume(self) -> list[Message]:
        assert self._consumer is not None
        try:
            return self._consumer.consume(_AT_ONCE, _WAIT)
        except KafkaException as error:
            raise self._cluster.failed("read", self._subject, error.args[0]) from error

    def _taken(self, messages: list[Message], left: set[int]) -> list[Message]:
        """Return the records that belong to the unit, and move the positions; a partition that is done leaves `left`."""
        good: list[Message] = []
        done: list[int] = []
        position, high = self._position, self._high
        for message in messages:
            partition, offset, error = message.partition(), message.offset(), message.error()
            assert partition is not None
            assert offset is not None
            if error is not None:
                self._judge(error, partition, offset)
            elif partition in left and offset < high[partition]:
                good.append(message)
                position[partition] = offset + 1
                if offset + 1 < high[partition]:
                    continue
            if partition in left and (offset >= high[partition] - 1):
                position[partition] = high[partition]
                left.discard(partition)
                done.append(partition)
        if done and left and self._consumer is not None:
            self._consumer.incremental_unassign([TopicPartition(self._unit.urn, p) for p in done])
        return good

    def _judge(self, error: KafkaError, partition: int, offset: int) -> None:
        """Raise the error of a message, unless it says that the end of a log was reached.

        :raises SourceError: it couldn't be read.
        """
        if error.code() == KafkaError._PARTITION_EOF:
            if offset < self._high[partition]:
                raise self._failed(
                    f"partition {partition} ends at offset {offset}, and was to be read up to {self._high[partition]}"
                )
            return
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            at = self._position[partition]
            raise self._failed(
                f"offset {at} of partition {partition} is not in the log any more: {error.str()}", Remedy.PLAN
            )
        if not error.retriable() or error.fatal():
            raise self._cluster.failed("read", self._subject, error)

    def _check_same(self) -> None:
        """Check that the topic is the one that was planned."""
        planned, found = self._unit.properties.get(TOPIC_ID), self._cluster.topic(self._unit.urn).id
        if planned and found and planned != found:
            raise SourceChangedError(
                operation="read",
                subject=self._subject,
                cause=f"it was deleted and made anew: its id was {planned} and is {found}",
                remedy=Remedy.PLAN,
            )

    def _failed(self, cause: str, remedy: Remedy | None = None) -> SourceError:
        return SourceError(operation="read", subject=self._subject, cause=cause, remedy=remedy)

    @property
    def _subject(self) -> str:
        return f"topic {self._unit.urn!r}"
