"""A topic of Kafka to Parquet, planning to commit, against Spark's own reader, as a batch and as a stream. Values are bytes.

Spark is started before. All have their files on the disk at the end: Spark's are synced, as a phase of its own.

And a run over 1,000 partitions whose batch isn't due: how long it looks.

python -m tests.benchmarks.kafka_to_parquet --rounds 3
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.status import Status
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from tests.benchmarks.measure import SEED, Contender, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER, named_jars
from tests.benchmarks.results import JSON, Limit, Row, Target, keep, rows_of
from tests.rows.sources.kafka_lake import Lake
from tests.services.environment import use_environment
from tests.services.kafka import Kafka, running_kafka

OURS = "airflow_gobblin, Spark tasks in local[2]"
BATCH = "Spark's batch Kafka read and Parquet write"
STREAM = "Structured Streaming, AvailableNow, to Parquet"
HELD = "airflow_gobblin, a run that is held"
CONNECTOR, TOKENS, CLIENT, POOL = "4.1.1", "4.0.0", "3.9.1", "2.12.1"
PARTITIONS, VALUE_BYTES, MANY = 8, 200, 1000


def connector() -> str:
    """The jars of Spark's Kafka connector: each is named, as all else that they need is Spark's own."""
    named = [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{TOKENS}",
    ]
    named += [f"org.apache.kafka:kafka-clients:{CLIENT}", f"org.apache.commons:commons-pool2:{POOL}"]
    return ",".join(map(str, named_jars(*named)))


def values(count: int) -> Iterator[bytes]:
    """Events as JSON, each different, of one size."""
    chance = random.Random(SEED)
    for number in range(count):
        noise = chance.getrandbits(256)
        event = f'{{"id": {number}, "user": {noise % 1_000_003}, "page": "/products/{noise % 9973}", "session": "{noise:064x}"'
        yield f'{event}, "agent": "'.encode().ljust(VALUE_BYTES - 2, b"m") + b'"}'


def filled_topic(kafka: Kafka, messages: int) -> str:
    """A new topic with so many messages."""
    name = kafka.create_topic(partitions=PARTITIONS)
    producer = kafka.producer(**{"linger.ms": 50, "batch.size": 1 << 20, "queue.buffering.max.messages": 10_000_000})
    for number, value in enumerate(values(messages)):
        producer.produce(name, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return name


def contenders(kafka: Kafka, topic: str) -> list[Contender]:
    """All contenders."""

    def contender(who: str, program: str, **options: object) -> Contender:
        def run(folder: Path) -> Once:
            asked = {"folder": folder, "servers": kafka.servers, "topic": topic, **options}
            return run_program(Path(sys.executable), program, asked, secrets={})

        return Contender(who, run)

    spark = partial(contender, program="spark_kafka", jars=connector())
    return [
        contender(OURS, "gobblin_kafka"),
        spark(BATCH, way="batch"),
        spark(STREAM, way="stream"),
    ]


def measure(kafka: Kafka, rounds: int, messages: int, folder: Path) -> list[Row]:
    """The rows of this work."""
    topic = filled_topic(kafka, messages)
    figures = alternately(contenders(kafka, topic), rounds, folder / "rounds")
    kafka.delete_topic(topic)
    return rows_of(
        f"Kafka to Parquet, {messages:,} messages of {VALUE_BYTES} bytes in {PARTITIONS} partitions, planning to commit",
        figures,
        _command(rounds, messages),
        ours=OURS,
        targets=[Target(BATCH, 1.5), Target(STREAM, 1.5)],
        versions={"Kafka connector": CONNECTOR, "kafka-clients": CLIENT},
    )


def measure_held(kafka: Kafka, rounds: int, messages: int, folder: Path) -> list[Row]:
    """The rows of a run that has nothing to read yet."""
    topic = kafka.create_topic(partitions=MANY)
    kafka.produce(topic, values(MANY))
    lake = Lake(kafka, folder / "held", topic, {"batch": Batch(rows=100 * MANY)})

    def look(own: Path) -> Once:
        opened = lake.opened
        started = time.perf_counter()
        run = create_work_units(opened, RunRequest(own.name))
        seconds = time.perf_counter() - started
        assert [note.status for note in run.notes] == [Status.HELD]
        return Once(seconds)

    look(folder / "first")  # modules are loaded, and the folders are there
    figures = alternately([Contender(HELD, look)], rounds, folder / "looks")
    work = f"Kafka: planning a run over {MANY:,} partitions, whose batch isn't due"
    return rows_of(work, figures, _command(rounds, messages), ours=HELD, limits=[Limit(HELD, "seconds", 1)])


def _command(rounds: int, messages: int) -> str:
    return f"python -m tests.benchmarks.kafka_to_parquet --rounds {rounds} --messages {messages}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        (folder / "kafka").mkdir()
        with running_kafka(folder / "kafka") as kafka:
            keep(measure(kafka, asked.rounds, asked.messages, folder), asked.results)
            keep(measure_held(kafka, asked.rounds, asked.messages, folder), asked.results)


if __name__ == "__main__":
    main()
