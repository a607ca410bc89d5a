"""The part of the demo about Kafka: runs are held until there is enough for a file; one is killed while it publishes, while a
producer never stops; and an independent consumer finds each record published once.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka import Producer

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Decision, OutcomeState
from airflow_gobblin.model.watermark import MultiLongWatermark
from airflow_gobblin.steps.publishing import MoveStep
from tests.checker import Rows, compare, parquet_rows
from tests.demo.kill import file_names, stop_at_new_file
from tests.demo.runs import Runs, airflow_below
from tests.demo.show import headline, show, table
from tests.demo.verdict import DemoError
from tests.services.airflow import Airflow
from tests.services.environment import ROOT
from tests.services.kafka import Kafka, running_kafka

__all__ = ["CLICKS", "INGESTION", "PARTITIONS", "check", "come", "play"]

DAG, INGESTION = "kafka_to_lake", "clicks"
CLICKS, ORDERS = "clicks", "orders.eu"
PARTITIONS = {CLICKS: 4, ORDERS: 2}
A_SECOND = {CLICKS: 40, ORDERS: 10}
"""How many records come in a second, all the time: so few that they make no batch due, however long Airflow takes to start."""
BURST = 150_000
"""How many clicks make a batch due."""
FILE_MIB = 2
TRIES = 3
"""How often a run that is to be killed may be too fast."""


def play(folder: Path) -> str:
    """Run the demo below an empty folder.

    :return: its last line.
    :raises DemoError: a promise doesn't hold.
    """
    started = time.monotonic()
    headline("The source: a Kafka of one broker, and a producer that never stops")
    (folder / "kafka").mkdir()
    with running_kafka(folder / "kafka") as kafka:
        for topic, partitions in PARTITIONS.items():
            kafka.create_topic(topic, partitions)
        show(", ".join(f"{name}: {count} partitions, {A_SECOND[name]} records/s" for name, count in PARTITIONS.items()))
        with kafka.producing(partial(come, chance=random.Random(1))) as stop:
            headline("Airflow: API server, DAG processor, scheduler, LocalExecutor")
            with airflow_below(folder / "airflow", _environment(folder, kafka)) as airflow:
                show(
                    f"up after {time.monotonic() - started:.0f} s. It runs dags/kafka_to_lake.py unchanged, with Spark."
                )
                demo = Demo(airflow, kafka, folder / "lake")
                demo.hold()
                demo.publish()
                killed = demo.kill_a_run()
                demo.recover(killed, stop)
        headline("The checker: an independent consumer, from the first offset on, and all published rows, as multisets")
        rows = check(demo.journal, kafka)
    return (
        f"passed: {demo.runs.count} runs, 1 of them held and 1 killed, and the last recovered; {rows:,} records, each published "
        f"exactly once; {time.monotonic() - started:.0f} s"
    )


def come(producer: Producer, chance: random.Random) -> None:
    """Let the records of a tenth of a second come."""
    for topic, rate in A_SECOND.items():
        for value in events(rate // 10, chance):
            producer.produce(topic, value, key=value[8:12])


def events(count: int, chance: random.Random) -> Iterator[bytes]:
    """Events as JSON, with text that can't be compressed much."""
    for _ in range(count):
        noise = chance.getrandbits(256)
        yield json.dumps(
            {"user": f"{noise % 10_007:05}", "page": f"/{noise % 211}", "session": f"{noise:064x}"}
        ).encode()


@dataclass(frozen=True)
class Killed:
    """A run that was killed: its slot's decision, and how many of its steps were done."""

    decision: Decision
    done: int


class Demo:
    """The runs, and what they left."""

    def __init__(self, airflow: Airflow, kafka: Kafka, lake: Path) -> None:
        self.runs = Runs(airflow, DAG)
        self._kafka = kafka
        self._lake = lake
        self._chance = random.Random(2)

    @property
    def journal(self) -> Journal:
        return Journal.open(f"file://{self._lake}/journal", INGESTION)

    @property
    def _folder(self) -> Path:
        return self._lake / "raw" / CLICKS

    def hold(self) -> None:
        """Run while there is too little for a file."""
        headline("Run 1: held, since there is too little for a file")
        run = self.runs.trigger()
        self.runs.finish_well(run)
        lines = self.runs.logged_by(run, "create_work_units", CLICKS)
        if not any(": held, " in line for line in lines) or file_names(self._folder):
            raise DemoError(f"{run} was not held: {lines}")
        show("No Spark was started, and nothing was read or written. The log shows what waits:")
        for line in lines:
            show(f"  {line}")

    def publish(self) -> None:
        """Run when there is enough."""
        headline(f"Run {self.runs.count + 1}: due, by its size")
        self._burst()
        self.runs.finish_well(self.runs.trigger())
        self._show_published()

    def kill_a_run(self) -> Killed:
        """Kill the run that publishes the next batch, between two publish steps."""
        for _ in range(TRIES):
            headline(f"Run {self.runs.count + 1}: killed between two publish steps")
            self._burst()
            killed = self._kill()
            if killed is not None:
                return killed
            show("It was too fast, and ended well. Once more, with other records.")
        raise DemoError(f"of {TRIES} runs, none could be stopped between two publish steps")

    def recover(self, killed: Killed, stop: threading.Event) -> None:
        """Add partitions, stop the producer, and flush what waits: the run finishes the killed one's slot first."""
        headline(f"Run {self.runs.count + 1}: a flush, which recovers first; the topic has more partitions now")
        self._kafka.add_partitions(CLICKS, PARTITIONS[CLICKS] + 2)
        self._burst()
        stop.set()
        time.sleep(1)
        run = self.runs.trigger(flush=True)
        self.runs.finish_well(run)
        slot = self.journal.history(CLICKS).slots[killed.decision.slot - 1]
        lines = [line for line in self.runs.logged_by(run, "verify_recover", CLICKS) if ": step " not in line]
        if not lines or slot.outcome is None or slot.outcome.state is not OutcomeState.DONE:
            raise DemoError(f"slot {killed.decision.slot} was not finished by verify_recover of {run}: {lines}")
        show(f"verify_recover found {killed.done} of {killed.decision.steps} steps done, and did the rest:")
        for line in lines:
            show(f"  {line}")
        show("Then the run's own batch was planned, from that slot's offsets on:")
        self._show_published()

    def _burst(self) -> None:
        self._kafka.produce(CLICKS, events(BURST, self._chance))
        show(f"{BURST:,} clicks come at once, besides those that come all the time.")

    def _show_published(self) -> None:
        rows: list[tuple[object, ...]] = []
        for topic in PARTITIONS:
            if topic not in self.journal.datasets() or self.journal.state(topic).watermark is None:
                rows.append((topic, 0, 0, "it waits"))
                continue
            read = self.journal.read_dataset(topic)
            assert isinstance(read.watermark, MultiLongWatermark)
            rows.append(
                (topic, len(read.files), read.rows, " ".join(f"{offset:,}" for offset in read.watermark.values))
            )
        table(("topic", "files", "rows", "next offset of each partition"), rows)

    def _kill(self) -> Killed | None:
        """Start a run, and kill the task that publishes; `None` if it was too fast."""
        known = file_names(self._folder)
        run = self.runs.trigger()
        publishing, stopped = self.runs.wait_for_publisher(run), False
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(publishing.pid)
            stopped = stop_at_new_file(process, self._folder, known, seconds=60)
        slot = self.journal.history(CLICKS).pending
        if not stopped or slot is None:
            if stopped:
                process.resume()
            self.runs.finish_well(run)
            return None
        moves = [step for step in self.journal.steps(slot.decision) if isinstance(step, MoveStep)]
        process.kill()
        psutil.wait_procs([process], timeout=10)
        done = sum((self._lake / "raw" / step.target).exists() for step in moves)
        show(
            f"SIGKILL to process {process.pid}, execute_commit_steps. Slot {slot.decision.slot} of {CLICKS} is decided:"
        )
        table(("steps", "done", "to do"), [(slot.decision.steps, done, slot.decision.steps - done)])
        show(
            "It is bound to be finished. A listing of the folder shows a part of it, the journal's reader nothing of it."
        )
        self.runs.give_up(run)
        return Killed(slot.decision, done)


def check(journal: Journal, kafka: Kafka) -> int:
    """Compare what is published with what an independent consumer reads.

    :return: how many records are the same.
    :raises DemoError: some aren't.
    """
    columns, verdicts = ("partition", "offset", "key", "value"), []
    for topic in PARTITIONS:
        published = parquet_rows(journal.read_dataset(topic).paths)
        at = [published.columns.index(name) for name in columns]
        rows = (tuple(row[n] for n in at) for row in published.rows)
        verdicts.append(compare(topic, Rows(columns, kafka.records(topic)), Rows(columns, [*rows])))
    table(
        ("topic", "records in Kafka", "rows published", "verdict"),
        [(v.name, v.source_rows, v.published_rows, "the same" if v.ok else "DIFFERENT") for v in verdicts],
    )
    if bad := [str(verdict) for verdict in verdicts if not verdict.ok]:
        raise DemoError("; ".join(bad))
    return sum(verdict.published_rows for verdict in verdicts)


def _environment(folder: Path, kafka: Kafka) -> Mapping[str, str]:
    servers = {"bootstrap.servers": kafka.servers}
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # A slow machine is not a dead task.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
        "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": servers}),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "KAFKA_FILE_MIB": str(FILE_MIB),
        "KAFKA_LAKE": str(folder / "lake"),
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} -XX:+UseSerialGC",
    }
