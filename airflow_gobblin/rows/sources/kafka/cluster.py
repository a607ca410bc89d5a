"""A Kafka cluster, as planning and reading need it: topics, offsets, and consumers. Every error is a `SourceError`."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, MissingExtraError, SourceError
from airflow_gobblin.rows.sources.kafka import Isolation
from airflow_gobblin.storage.parsed_connection import ParsedConnection

try:
    from confluent_kafka import (
        Consumer,
        ConsumerGroupTopicPartitions,
        IsolationLevel,
        KafkaError,
        KafkaException,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has no __all__
        AdminClient,
        ClusterMetadata,
        ConfigResource,
        OffsetSpec,
        ResourceType,
    )
except ImportError as error:
    raise MissingExtraError(
        operation="use",
        subject="KafkaSource",
        cause=error,
        hint="Install the extra: pip install 'airflow-gobblin[kafka]'.",
    ) from error

T = TypeVar("T")

SECONDS_TO_ANSWER = 30.0
_LOOK = 0.2
"""The seconds between two checks of whether a server has refused the client."""
_EVENTS = 20
"""The number of errors of its connections that a client remembers."""
_OURS = ("group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "isolation.level")
"""Settings that reading exact ranges depends on."""


class Cluster:
    """A connection to a cluster.

    :raises ConfigurationError: there is no such connection, or it isn't one to Kafka.
    """

    def __init__(self, conn_id: str, connections: Connections, isolation: Isolation = Isolation.COMMITTED) -> None:
        self.conn_id = conn_id
        self.isolation = isolation
        self._events: deque[KafkaError] = deque(maxlen=_EVENTS)
        reporting = {"log_level": 0, "error_cb": self._events.append}
        self._settings = {**_settings(ParsedConnection(conn_id, connections.uri(conn_id))), **reporting}
        self._admin = AdminClient(self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._admin

    @property
    def id(self) -> str:
        """The cluster's own id."""
        return str(self._answer("describe", self._admin.describe_cluster(request_timeout=SECONDS_TO_ANSWER)).cluster_id)

    def topics(self) -> list[str]:
        """Return the names of all topics that this user sees, sorted."""
        with self._asking("list", "topics"):
            return sorted(self._metadata().topics)

    def topic(self, name: str) -> Topic:
        """Return a topic.

        :raises SourceError: there is none of this name, or it isn't shown to this user.
        """
        futures = self._admin.describe_topics(TopicCollection([name]), request_timeout=SECONDS_TO_ANSWER)
        found = self._answer("find", futures[name], f"topic {name!r}")
        return Topic(self, name, str(found.topic_id or ""), len(found.partitions))

    def settings_of(self, topic: str) -> Mapping[str, str]:
        """Return the settings of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        futures = self._admin.describe_configs([resource], request_timeout=SECONDS_TO_ANSWER)
        return {n: entry.value for n, entry in self._answer("describe", futures[resource], f"topic {topic!r}").items()}

    def offsets(self, topic: str, asked: Mapping[int, OffsetSpec]) -> dict[int, int | SourceError]:
        """Return an offset of each partition, or the error for one that can't be asked. An offset of -1 means none."""
        if not asked:
            return {}
        level = (
            IsolationLevel.READ_COMMITTED if self.isolation is Isolation.COMMITTED else IsolationLevel.READ_UNCOMMITTED
        )
        wanted = {TopicPartition(topic, partition): spec for partition, spec in asked.items()}
        with self._asking("ask", f"topic {topic!r} for its offsets"):
            futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=SECONDS_TO_ANSWER)
        found: dict[int, int | SourceError] = {}
        for place, future in futures.items():
            try:
                subject = f"partition {place.partition} of topic {topic!r}"
                found[place.partition] = self._answer("ask for the offset of", future, subject).offset
            except SourceError as error:
                found[place.partition] = error
        return found

    def consumer(self, **settings: Any) -> Consumer:
        """Return a consumer that commits nothing and fails where an offset is out of range."""
        ours = {
            "group.id": "airflow_gobblin",  # required by the client; nothing is committed to it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": self.isolation.value,
            "enable.partition.eof": True,
        }
        with self._asking("read", "topics"):
            return Consumer({**self._settings, **settings, **ours})

    def commit(self, group: str, topic: str, offsets: Sequence[int]) -> None:
        """Commit an offset of each partition to a consumer group.

        :raises SourceError: the group has members, this user may not, or the cluster can't be reached.
        """
        places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        with self._asking("commit offsets to", f"consumer group {group!r}"):
            futures = self._admin.alter_consumer_group_offsets(asked, request_timeout=SECONDS_TO_ANSWER)
            for place in self._awaited(futures[group]).topic_partitions:
                if place.error is not None:
                    raise KafkaException(place.error)

    def check_admitted(self, operation: str, subject: str) -> None:
        """Check that no server has refused this client since it last asked: the client would silently keep trying.

        :raises SourceError: one did.
        """
        self._admin.poll(0)
        refusal = next((event for event in self._events if event.code() in _REFUSALS), None)
        if refusal is not None:
            raise self.failed(operation, subject, refusal)

    def failed(self, operation: str, subject: str, error: KafkaError) -> SourceError:
        """Return the error of a broker or of the client."""
        hint = _HINTS.get(error.code(), "Nothing was changed. If it is back, a retry succeeds.")
        return SourceError(
            operation=operation, subject=f"{subject} by connection {self.conn_id!r}", cause=error.str(), hint=hint
        )

    def _answer(self, operation: str, future: Future[T], subject: str = "the cluster") -> T:
        with self._asking(operation, subject):
            return self._awaited(future)

    def _awaited(self, future: Future[T]) -> T:
        deadline = time.monotonic() + SECONDS_TO_ANSWER + 5
        while True:
            try:
                return future.result(_LOOK)
            except TimeoutError:
                self.check_admitted("reach", "the cluster")
                if time.monotonic() > deadline:
                    raise

    def _metadata(self) -> ClusterMetadata:
        deadline = time.monotonic() + SECONDS_TO_ANSWER
        while True:
            try:
                return self._admin.list_topics(timeout=min(SECONDS_TO_ANSWER, 10 * _LOOK))
            except KafkaException:
                self.check_admitted("reach", "the cluster")
                if time.monotonic() > deadline:
                    raise

    @contextlib.contextmanager
    def _asking(self, operation: str, subject: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self.failed(operation, subject, error.args[0]) from error
        except TimeoutError as error:
            cause = f"it didn't answer within {SECONDS_TO_ANSWER:.0f} s"
            raise SourceError(
                operation=operation, subject=f"{subject} by connection {self.conn_id!r}", cause=cause
            ) from error


_CREDENTIALS = "Correct user, password and security protocol of the connection."
_DENIED = "Give the user of the connection the rights to describe and read the topic."
_HINTS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Was it deleted? Correct the topics of the source, or create it.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _DENIED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _DENIED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Give the user of the connection the right to read the group.",
    KafkaError._AUTHENTICATION: _CREDENTIALS,
    KafkaError.SASL_AUTHENTICATION_FAILED: _CREDENTIALS,
    KafkaError._SSL: "Correct `security.protocol` of the connection, or give the certificate of the authority that signed the "
    "broker's: `ssl.ca.location`, or `ssl.ca.pem`.",
}
_REFUSALS = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
"""The errors after which the client tries again forever, though no further try can succeed."""


@dataclass(frozen=True)
class Topic:
    """A topic as it is now.

    :param id: its id, which another topic of the same name doesn't have; empty if the broker has none.
    """

    cluster: Cluster
    name: str
    id: str
    partitions: int

    def starts(self, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        """Return the first offset of each log."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        """Return, for each log, the offset after the last record that can be read."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def at(self, time: datetime, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        """Return the first offset of each log whose record is not older than a time; -1 if there is none."""
        return self._offsets(partitions, OffsetSpec.for_timestamp(round(time.timestamp() * 1000)))

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings."""
        return self.cluster.settings_of(self.name)

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int | SourceError]:
        return self.cluster.offsets(self.name, dict.fromkeys(partitions, spec))


def _settings(connection: ParsedConnection) -> dict[str, Any]:
    """Return the client's settings from a connection."""
    connection.expect("kafka")
    known = {str(name): value for name, value in connection.extra.items()}
    if taken := sorted({*known} & {*_OURS}):
        raise connection.unfit(
            f"it sets {', '.join(taken)}, and exact ranges are read by settings of our own", "Take it out."
        )
    if "bootstrap.servers" not in known:
        if not connection.host:
            raise connection.unfit("it names no server", 'Give its extra "bootstrap.servers", or a host and a port.')
        known["bootstrap.servers"] = f"{connection.host}:{connection.port or 9092}"
    if connection.login and "sasl.username" not in known:
        known |= {"sasl.username": connection.login, "sasl.password": connection.password}
        known.setdefault("security.protocol", "SASL_SSL")
        known.setdefault("sasl.mechanism", "PLAIN")
    return known


def offsets_of(found: Mapping[int, int | SourceError]) -> dict[int, int]:
    """Return the offset of each partition that could be asked."""
    return {partition: offset for partition, offset in found.items() if not isinstance(offset, SourceError)}


def errors_of(found: Mapping[int, int | SourceError]) -> dict[int, SourceError]:
    """Return the error of each partition that couldn't be asked."""
    return {partition: error for partition, error in found.items() if isinstance(error, SourceError)}


def unusable(topic: str, cause: str, hint: str) -> ConfigurationError:
    """Return the error that a topic can't be planned as things are."""
    return ConfigurationError(operation="plan", subject=f"topic {topic!r}", cause=cause, hint=hint)
