"""The reader of one work unit of a topic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import Remedy, SourceChangedError, SourceError
from airflow_gobblin.model.watermark import Json, MultiLongWatermark
from airflow_gobblin.model.work import WorkUnit
from airflow_gobblin.rows.converters.base import OnBadRow
from airflow_gobblin.rows.sources.base import RefusedRows
from airflow_gobblin.rows.sources.kafka.cluster import SECONDS_TO_ANSWER, Cluster
from airflow_gobblin.rows.sources.kafka.planning import LOST, TOPIC_ID
from airflow_gobblin.rows.sources.kafka.records import RECORD, batch_of
from airflow_gobblin.rows.sources.kafka.values import Decoder, ValueFormat

_AT_ONCE = 2_000
"""The most records of a batch: so few that they stay in the processor's caches until they are in columns."""
_WAIT = 0.1
"""How many seconds a batch is collected for, while fewer records come. The end of each unit waits that long."""
_FETCHING = {
    "fetch.min.bytes": 1 << 20,
    "fetch.wait.max.ms": 100,
    "fetch.max.bytes": 64 << 20,
    "max.partition.fetch.bytes": 8 << 20,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 64 << 10,
    "fetch.queue.backoff.ms": 20,  # a full queue is empty again long before the second that is the default
    "check.crcs": True,
}


class KafkaReader:
    """A unit being read: each partition from its low offset up to its high one, in order.

    Offsets without a record are silently left out: they belong to transactions' marks, to aborted transactions, or to records
    that were compacted away. An offset that was removed before it could be read is an error.
    """

    def __init__(
        self,
        cluster: Cluster,
        unit: WorkUnit,
        schema: pa.Schema,
        values: ValueFormat,
        connections: Connections,
        *,
        in_order: bool = False,
    ) -> None:
        low, high = unit.low, unit.expected_high
        assert isinstance(low, MultiLongWatermark)
        assert isinstance(high, MultiLongWatermark)
        self._cluster = cluster
        self._unit = unit
        self._schema = schema
        self._values = values
        self._connections = connections
        self._refused: RefusedRows | None = None
        self._in_order = in_order
        self._position = [*low.values]
        self._before = low.values
        """The positions before the last batch."""
        self._last: pa.RecordBatch | None = None
        self._high = high.values
        self._highs = pa.array(self._high, pa.int64())
        self._lost = LOST in unit.properties
        self._consumer = None if self._lost else cluster.consumer(**_FETCHING)

    @property
    def actual_high(self) -> MultiLongWatermark:
        """The first offset of each partition that was not read."""
        return MultiLongWatermark(tuple(self._position))

    @property
    def position(self) -> MultiLongWatermark:
        """The actual high so far: it can be stopped between any two batches."""
        return self.actual_high

    def cut(self, rows: int) -> tuple[int, MultiLongWatermark]:
        """Return the first offset of each partition after the first rows of the last batch, which can be cut anywhere."""
        assert self._last is not None
        reached = _ends(self._last.slice(0, rows))
        ends = (max(before, reached.get(partition, 0)) for partition, before in enumerate(self._before))
        return rows, MultiLongWatermark(tuple(ends))

    @property
    def expected_rows(self) -> int | None:
        """The number of rows to expect, which is always `None`: offsets don't count records."""
        return None

    @property
    def properties(self) -> Mapping[str, Json]:
        """The topic's id, by which planning recognizes another one of the same name; the schema of its values; and the offsets
        that are lost.
        """
        return self._unit.properties

    def refused(self) -> RefusedRows | None:
        """Return the records of the batch just yielded whose values can't be decoded, according to the format."""
        return self._refused

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
        columns = pa.schema([*self._schema][len(RECORD) :])
        decoder = self._values.decoder(columns, self._unit.properties, self._connections)
        heard = time.monotonic()
        while left:
            messages = self._consume()
            if not messages:
                self._cluster.check_admitted("read", self._subject)
                if time.monotonic() - heard > SECONDS_TO_ANSWER:
                    raise self._failed(f"no record came for {SECONDS_TO_ANSWER:.0f} s")
                continue
            heard = time.monotonic()
            self._before = tuple(self._position)
            batch = self._taken(messages, left)
            if batch.num_rows:
                yield from self._decoded(batch, decoder)
        self._check_same()  # else some of it may be of another topic

    def _consume(self) -> list[Message]:
        assert self._consumer is not None
        try:
            return self._consumer.consume(_AT_ONCE, _WAIT)
        except KafkaException as error:
            raise self._cluster.failed("read", self._subject, error.args[0]) from error

    def _taken(self, messages: list[Message], left: set[int]) -> pa.RecordBatch:
        """Return the records that belong to the unit, and move the positions; a partition that is done leaves `left`."""
        reached: dict[int, int] = {}
        if any(map(Message.error, messages)):
            reached = self._judged(messages)
            messages = [message for message in messages if message.error() is None]
        batch = batch_of(messages)
        for partition, end in _ends(batch).items():
            reached[partition] = max(end, reached.get(partition, 0))
        for partition in left & {*reached}:
            self._position[partition] = min(reached[partition], self._high[partition])
        done = {partition for partition in left if self._position[partition] == self._high[partition]}
        left -= done
        if done and left and self._consumer is not None:
            self._consumer.incremental_unassign([TopicPartition(self._unit.urn, p) for p in sorted(done)])
        inside = pc.less(batch["offset"], self._highs.take(batch["partition"]))
        return batch if pc.all(inside, min_count=0).as_py() else batch.filter(inside)

    def _judged(self, messages: Iterable[Message]) -> dict[int, int]:
        """Return the ends of logs that were reached.

        :raises SourceError: a message reports that its partition couldn't be read.
        """
        ends: dict[int, int] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                partition, offset = message.partition() or 0, message.offset() or 0
                self._judge(error, partition, offset)
                if error.code() == KafkaError._PARTITION_EOF:
                    ends[partition] = offset
        return ends

    def _decoded(self, batch: pa.RecordBatch, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        """Yield the good records of a batch, with the columns of their values; keep the others for `refused`.

        In order, those before a bad one that fails the unit are a batch of their own.
        """
        decoded = decoder.decode(batch["value"])
        columns = [*batch.columns[: len(RECORD)], *decoded.columns]
        whole = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._refused, self._last = None, whole
        if not decoded.bad:
            yield whole
            return
        bad = sorted(decoded.bad)
        if self._in_order and bad[0] and self._values.on_bad is OnBadRow.FAIL:
            end, self._position = self._position, [*self.cut(bad[0])[1].values]
            yield whole.slice(0, bad[0])
            self._position = end
        rows = batch.select(RECORD.names).take(pa.array(bad, pa.int64()))
        self._refused = RefusedRows(
            self._values,
            rows,
            [decoded.bad[number] for number in bad],
            rows.select(["partition", "offset"]).to_pylist(),
            batch["value"].take(pa.array(bad, pa.int64())).to_pylist(),
        )
        kept = [number for number in range(batch.num_rows) if number not in decoded.bad]
        yield whole.take(pa.array(kept, pa.int64()))

    def _judge(self, error: KafkaError, partition: int, offset: int) -> None:
        """Raise the error of a message, unless it reports that the end of a log was reached.

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


def _ends(batch: pa.RecordBatch) -> dict[int, int]:
    """Return the offset after the last one of each partition in a batch."""
    last = pa.table(batch.columns[:2], ["partition", "offset"]).group_by("partition").aggregate([("offset", "max")])
    return {row["partition"]: row["offset_max"] + 1 for row in last.to_pylist()}
