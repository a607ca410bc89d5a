"""A real Kafka of one broker, which is its own controller (KRaft), for tests: on ports of its own, gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has no __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.services.certificates import server_certificate
from tests.services.processes import free_port, start_process, stop_process

__all__ = ["Kafka", "Record", "running_kafka"]

Record = tuple[int, int, bytes | None, bytes | None]
"""The identity of a record of a topic: partition, offset, key, value."""
USER, SCRAM_USER = "reader", "scram-reader"
PASSWORDS = {USER: "kan@ri/9%f1+nch=trillert", SCRAM_USER: "c4nary-0f-scr4m"}
"""The users of the secure listener."""
_NOT_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._UNKNOWN_PARTITION,
)
"""The errors for a partition that its broker doesn't know of yet, or that the client hasn't heard of from it."""


@dataclass
class Kafka:
    """A running broker, which is the `Connections` of its one connection."""

    port: int
    secure_port: int
    folder: Path
    process: Any = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def uri(self, _conn_id: str) -> str:
        """The connection, as Airflow's."""
        return f"kafka://{self.servers}"

    def secure_settings(self, mechanism: str = "PLAIN", password: str | None = None) -> dict[str, str]:
        """The client's settings for the listener that wants a user, by TLS.

        :param password: by default, the right one.
        """
        user = SCRAM_USER if mechanism.startswith("SCRAM") else USER
        return {
            "bootstrap.servers": f"127.0.0.1:{self.secure_port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.folder / "authority.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
        }

    def deny(self, topic: str) -> None:
        """Let only somebody else read a topic by that listener."""
        somebody = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:somebody",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        _done(self.admin.create_acls([somebody]))

    @cached_property
    def admin(self) -> AdminClient:
        """A client, which its futures need for as long as they aren't done."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(self, name: str = "", partitions: int = 1, **settings: str) -> str:
        """A new topic, once the broker answers for its partitions: on a busy machine that is later than its creation.

        :return: its name.
        """
        name = name or f"t{uuid.uuid4().hex[:10]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        _done(self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]))
        self.wait_until(lambda: self._answers_for(name, range(partitions)))
        return name

    def _answers_for(self, topic: str, partitions: Iterable[int]) -> bool:
        """Whether the broker has these partitions and leads them."""
        try:
            _done(self.admin.describe_topics(TopicCollection([topic])))
            _done(self.admin.list_offsets({TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}))  # type: ignore[no-untyped-call]
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return False
        return True

    def delete_topic(self, name: str) -> None:
        _done(self.admin.delete_topics([name]))
        self.wait_until(lambda: name not in self.admin.list_topics(timeout=10).topics)

    def add_partitions(self, name: str, count: int) -> None:
        """Let a topic have so many partitions in all."""
        _done(self.admin.create_partitions([NewPartitions(name, count)]))
        self.wait_until(lambda: self._answers_for(name, range(count)))

    def alter(self, name: str, **settings: str) -> None:
        config = {key.replace("_", "."): value for key, value in settings.items()}
        _done(self.admin.alter_configs([ConfigResource(ResourceType.TOPIC, name, config)]))

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Remove the records of partitions before an offset, as retention does."""
        _done(self.admin.delete_records([TopicPartition(name, p, offset) for p, offset in before.items()]))

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 5, **settings})

    def produce(
        self, topic: str, values: Iterable[bytes | None], partition: int = -1, key: bytes | None = None, **record: Any
    ) -> None:
        """Produce records, in order.

        :param partition: by default Kafka's choice.
        """
        refused: list[KafkaError] = []

        def note(error: KafkaError | None, _: object) -> None:
            if error is not None:
                refused.append(error)

        producer = self.producer()
        for value in values:
            producer.produce(topic, value, key, partition, on_delivery=note, **record)
            producer.poll(0)
        assert (producer.flush(60), refused) == (0, [])

    @contextmanager
    def producing(self, produce: Callable[[Producer], None], every: float = 0.1) -> Iterator[threading.Event]:
        """Let records come while the block runs, or until the event is set.

        :param produce: what is called again and again, with a pause of so many seconds.
        """
        stop = threading.Event()

        def go_on() -> None:
            producer = self.producer(**{"topic.metadata.refresh.interval.ms": 1000})  # partitions may be added
            while not stop.wait(every):
                produce(producer)
            producer.flush(60)

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join(60)

    def records(self, topic: str, isolation: str = "read_committed") -> list[Record]:
        """All records of a topic, as an independent consumer reads them."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
            }
        )
        try:
            left = {*self.admin.list_topics(topic, timeout=10).topics[topic].partitions}
            consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
            found: list[Record] = []
            while left:
                message = consumer.poll(30)
                assert message is not None
                error = message.error()
                if error is None:
                    place = (message.partition() or 0, message.offset() or 0)
                    found.append((*place, _bytes(message.key()), _bytes(message.value())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                else:
                    raise AssertionError(error)
            return found
        finally:
            consumer.close()

    @staticmethod
    def wait_until(is_so: Any, seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    # The broker's process

    def start(self) -> None:
        """Start the broker, or start it again."""
        log = self.folder / f"log-{uuid.uuid4().hex[:6]}"
        command = _java("kafka.Kafka", str(self.folder / "server.properties"))
        self.process = start_process(command, log=log, cwd=self.folder)
        deadline = time.monotonic() + 120
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command} doesn't start:\n{log.read_text()}")
            time.sleep(0.1)
        self.admin.list_topics(timeout=60)

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self, first: signal.Signals = signal.SIGTERM) -> None:
        stop_process(self.process, first=first)


@contextmanager
def running_kafka(folder: Path) -> Iterator[Kafka]:
    """Run a Kafka."""
    kafka = Kafka(free_port(), free_port(), folder)
    controller = free_port()
    keys, _ = server_certificate(folder)
    (folder / "server.properties").write_text(
        f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{kafka.port},SECURE://127.0.0.1:{kafka.secure_port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{kafka.port},SECURE://127.0.0.1:{kafka.secure_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
ssl.keystore.type=PEM
ssl.keystore.location={keys}
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.secure.plain.sasl.jaas.config={_module("plain.Plain")} user_{USER}="{PASSWORDS[USER]}";
listener.name.secure.scram-sha-512.sasl.jaas.config={_module("scram.Scram")};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
log.dirs={folder}/data
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.ms=-1
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=100
log.cleaner.backoff.ms=500
metadata.max.idle.interval.ms=0
"""  # without a delay, it looks for what to delete all the time; and no record shows that nothing happens
    )
    command = _java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", "server.properties")
    command += ["--add-scram", f"SCRAM-SHA-512=[name={SCRAM_USER},password={PASSWORDS[SCRAM_USER]}]"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.stop()


def _module(name: str) -> str:
    return f"org.apache.kafka.common.security.{name}LoginModule required"


def _java(*arguments: str) -> list[str]:
    jars = [*Path(os.environ["KAFKA_JARS"]).glob("*.jar")]
    command = [f"{os.environ['JAVA_HOME']}/bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx400m"]
    return [*command, "-XX:-UsePerfData", "-cp", os.pathsep.join(map(str, jars)), *arguments]


def _done(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(60)


def _bytes(value: Any) -> bytes | None:
    assert value is None or isinstance(value, bytes)
    return value
