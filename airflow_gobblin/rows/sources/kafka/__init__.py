"""Topics of Kafka as a source: planned by the offsets of their partitions, read through librdkafka into Arrow.

    KafkaSource(conn_id="kafka", topics=("clicks", "orders.*"), start=Start.EARLIEST)

Each topic is a dataset, whose positions are the offsets of its partitions. Only the journal records where the watermark is: no
consumer group is read. A run plans up to the end of each partition or, for `read_committed`, up to the first open transaction.

A DAG file imports this module; Arrow and the driver are loaded only when a topic is planned or read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.expressions import compiled
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import MultiLongWatermark, Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, ReadRequest
from airflow_gobblin.rows.sources.kafka.values import BytesValues, ValueFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.rows.sources.kafka.cluster import Cluster, Topic
    from airflow_gobblin.rows.sources.kafka.reader import KafkaReader

__all__ = ["Isolation", "KafkaSource", "OutOfRange", "Start"]

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""A valid name of a topic."""


class Start(StrEnum):
    """Where the first load of a topic begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OutOfRange(StrEnum):
    """The response if the offsets to be read next are no longer in the log, or not yet."""

    FAIL = "fail"
    """The topic isn't planned, and the error names partition and offsets."""
    EARLIEST = "earliest"
    """Go on at the beginning of the log. Lost offsets are covered by a unit of their own, which names them in the journal."""
    LATEST = "latest"
    """Go on at the end of the log, likewise."""


class Isolation(StrEnum):
    """Which records of transactions are read."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


@record("kafka_source")
@dataclass(frozen=True)
class KafkaSource:
    """Topics behind one connection.

    :param conn_id: an Airflow connection of type Kafka, whose extra is librdkafka's configuration, as for Airflow's Kafka
        provider; or `kafka://[user:password@]host:port`.
    :param topics: names, or regular expressions that match whole names; internal topics match by name only.
    :param exclude: likewise: topics that are left out.
    :param start: where the first load begins: at the log's beginning or end, at a point in time, or at an offset of each
        partition, by topic (`{"clicks": (0, 1200)}`; others begin at their beginning). Partitions added later begin at theirs.
    :param out_of_range: what to do where the offsets to be read next aren't in the log.
    :param isolation: which records of transactions are read.
    :param values: the format of the values: `BytesValues()`, `TextValues()`, `JsonValues(…)`, `AvroValues(…)`.
    :param unit_bytes: about how many published bytes a work unit reads; by default those of a file of the sink.
    :param max_units: the most work units of a topic.
    :param commit_group: a consumer group that the offsets are committed to once they are published, for dashboards that show
        its lag; nothing is read back. It must have no members of its own.
    :raises ConfigurationError: there is no topic, or a pattern isn't valid.
    """

    conn_id: str
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    start: Start | datetime | Mapping[str, tuple[int, ...]] = Start.EARLIEST
    out_of_range: OutOfRange = OutOfRange.FAIL
    isolation: Isolation = Isolation.COMMITTED
    unit_bytes: int | None = None
    max_units: int = 64
    values: ValueFormat = field(default_factory=BytesValues)
    commit_group: str = ""

    def __post_init__(self) -> None:
        check_tuples(self)
        if not self.topics:
            raise self._refused("topics=()", "it names no topic", "Write topics=('clicks',).")
        for pattern in (*self.topics, *self.exclude):
            try:
                compiled(pattern)
            except ValueError as error:
                raise self._refused(f"topic {pattern!r}", error, "Give a name, or a regular expression.") from error
        if isinstance(self.start, Mapping):
            offsets = {name: tuple(some) for name, some in self.start.items()}
            object.__setattr__(self, "start", offsets)
        if isinstance(self.start, datetime) and self.start.tzinfo is None:
            raise self._refused(f"start={self.start}", "it has no time zone", "Give the datetime a tzinfo.")
        for name in ("unit_bytes", "max_units"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise self._refused(f"{name}={value}", "it is too small", "Give at least 1.")

    @property
    def reads_in_order(self) -> bool:
        """Whether it can read in order: it can, as each partition is in order."""
        return True

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection to the cluster, and those of the values' format."""
        return (self.conn_id, *self.values.connection_ids)

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return the driver, and the modules of the values' format."""
        return ("confluent_kafka", *self.values.modules)

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        """Return the topics that are asked for, by name. One that the cluster doesn't show to this user fails alone, in `plan`;
        so does a pattern that matches none.

        :raises SourceError: the cluster can't be reached.
        """
        from airflow_gobblin.rows.sources.kafka.cluster import Cluster

        with Cluster(self.conn_id, connections) as cluster:
            names = self._chosen(cluster.topics())
            return tuple(Dataset(n, Extract(ExtractKind.APPEND_ONLY, "", n), f"{cluster.id}/{n}") for n in names)

    def check(self, dataset: Dataset, connections: Connections) -> Iterator[GobblinError]:
        """Yield the fault that keeps a topic from being planned."""
        try:
            self.plan(dataset, {}, PlanRequest(datetime.now().astimezone()), connections)
        except GobblinError as error:
            yield error

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        """Plan the uncovered offsets of a topic, holes first, in units of about one file.

        :raises SourceError: the cluster, or the registry of the values' schema, can't be reached; or the topic isn't there.
        :raises ConfigurationError: the topic was made anew; offsets are out of range; its values can't be columns; or it is a
            pattern that matches none.
        """
        from airflow_gobblin.rows.sources.kafka.cluster import Cluster
        from airflow_gobblin.rows.sources.kafka.planning import plan_topic

        with Cluster(self.conn_id, connections, self.isolation) as cluster:
            state = states[dataset.urn] if dataset.urn in states else DatasetState(dataset.urn)
            return plan_topic(self, self._topic(cluster, dataset.urn), state, request, connections)

    def resolve(self, dataset: Dataset, request: RangeRequest, connections: Connections) -> Range:
        """Resolve a backfill's range: points in time by the records' timestamps, integers as offsets of every partition, and
        offsets by partition unchanged.

        :raises SourceError: the cluster can't be reached.
        :raises NoSuchRangeError: no partition has records in it.
        :raises ConfigurationError: no topic matches a pattern.
        """
        from airflow_gobblin.rows.sources.kafka.cluster import Cluster
        from airflow_gobblin.rows.sources.kafka.planning import resolve_range

        with Cluster(self.conn_id, connections, self.isolation) as cluster:
            return resolve_range(self._topic(cluster, dataset.urn), request)

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> KafkaReader:
        """Start to read a unit.

        :raises SourceError: the cluster can't be reached, or the topic isn't the one that was planned.
        """
        from airflow_gobblin.rows.sources.kafka.cluster import Cluster
        from airflow_gobblin.rows.sources.kafka.reader import KafkaReader

        cluster = Cluster(self.conn_id, connections, self.isolation)
        return KafkaReader(cluster, unit, schema, self.values, connections, in_order=request.in_order)

    def inform(self, urn: str, watermark: Watermark, connections: Connections) -> None:
        """Commit the next offsets of a topic to the consumer group, if there is one.

        :raises SourceError: they can't be committed.
        """
        if not self.commit_group:
            return
        from airflow_gobblin.rows.sources.kafka.cluster import Cluster

        assert isinstance(watermark, MultiLongWatermark)
        with Cluster(self.conn_id, connections) as cluster:
            cluster.commit(self.commit_group, urn, watermark.values)

    def _chosen(self, names: list[str]) -> list[str]:
        chosen: set[str] = set()
        unmatched: set[str] = set()
        for pattern in self.topics:
            internal = [pattern] if pattern.startswith("__") else []
            fitting = [n for n in names if re.fullmatch(pattern, n) and (not n.startswith("__") or n in internal)]
            chosen.update(fitting)
            if not fitting:
                unmatched.add(pattern)
        return sorted(unmatched | {n for n in chosen if not any(re.fullmatch(pattern, n) for pattern in self.exclude)})

    def _topic(self, cluster: Cluster, name: str) -> Topic:
        if _NAME.fullmatch(name):
            return cluster.topic(name)
        names = cluster.topics()
        raise self._refused(
            f"topic {name!r}",
            "the cluster has no topic that matches, or doesn't show it to this user",
            f"It has {', '.join(names[:20]) or 'none'}{' and others' if len(names) > 20 else ''}.",
        )

    def _refused(self, subject: str, cause: object, hint: str) -> ConfigurationError:
        return ConfigurationError(
            operation="use", subject=f"{subject} of KafkaSource({self.conn_id!r})", cause=f"{cause}", hint=hint
        )
