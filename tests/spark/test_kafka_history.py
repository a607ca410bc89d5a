"""Runs of real Spark over topics of a real broker, one after the other, with everything that happens to both in between.

A producer never stops. Workers, drivers and publishers are killed, the broker too; partitions are added, unread offsets are
deleted, transactions are aborted, a topic is compacted, and packs and cores change. All of that is drawn like cards, so that each
of it happens as often as the rest. After each run, published files and waiting records are compared with what an independent
consumer has read by then. A seed determines what happens, but not when exactly a kill hits, nor how many records come during a
run.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import psutil
import pytest
from confluent_kafka import Producer

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.watermark import MultiLongWatermark
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.kafka import KafkaSource, OutOfRange
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from tests.proofs import Proved, chosen_by, fresh_seed, shares
from tests.protocol.processes import Child
from tests.rows.sources.kafka_lake import KAFKA, expect_ordered, records_of, uris
from tests.services.kafka import Kafka, Record, running_kafka
from tests.services.processes import children, start_process, stop_process
from tests.spark.runs import PlannedRun, Submit

RUNS = 60
PLAIN, COMPACTED = "plain", "compacted"
DUE_AT, DUE_SELDOM = 400, 650
"""The number of records from which a topic is read: in a whole history, and in a share, most of whose runs hold a topic."""
MOST_PARTITIONS = 6
PAUSE = 0.25
"""The seconds between two records of the producer that never stops."""
KEYS = 4
"""How many keys the records of a compacted topic have."""
Place = tuple[int, int]
"""A partition and an offset."""
T = TypeVar("T")
HAPPENING = (
    "partitions added",
    "transactions aborted",
    "transactions committed",
    "losses",
    "compactions of unread records",
    "brokers killed",
    "changes of packs and cores",
    "workers killed",
    "drivers killed",
    "publishers killed",
    "runs held",
    "runs with records coming",
)
"""The events that each whole history has."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    """A broker of this test's own, which may be killed."""
    folder = tmp_path / "kafka"
    folder.mkdir()
    with running_kafka(folder) as kafka:
        yield kafka


class Deck(Generic[T]):
    """Cards in random order, shuffled again once all were drawn."""

    def __init__(self, cards: Sequence[T], chance: random.Random) -> None:
        self._cards, self._chance = cards, chance
        self._left: list[T] = []

    def draw(self, fits: Callable[[T], bool] = lambda _: True) -> T:
        """Draw the next card that fits. The others keep their places."""
        if not any(fits(card) for card in self._left):
            self._left += self._chance.sample(self._cards, len(self._cards))
        card = next(card for card in self._left if fits(card))
        self._left.remove(card)
        return card

    def put_back(self, card: T) -> None:
        """Let a card be the next one again."""
        self._left.insert(0, card)


class World:
    """Topics, their lake, and what was seen of both."""

    def __init__(self, kafka: Kafka, folder: Path, seed: int, due_at: int) -> None:
        self.kafka = kafka
        self.folder = folder
        self.chance = random.Random(seed)
        events = (
            self.add_a_partition,
            self.end_transactions,
            self.delete_unread,
            self.compact,
            self.kill_the_broker,
            self.change,
        )
        self.events = Deck[Callable[[], None]](events, self.chance)
        self.victims = Deck(("", "worker", "driver", "publisher"), self.chance)
        self.counts = Counter[str]()
        self.came = 0
        self.seen: dict[str, dict[Place, Record]] = {PLAIN: {}, COMPACTED: {}}
        self.lost: dict[str, set[Place]] = {PLAIN: set(), COMPACTED: set()}
        self.cores = 2
        source = KafkaSource(KAFKA, (PLAIN, COMPACTED), out_of_range=OutOfRange.EARLIEST, unit_bytes=20_000)
        sink, batch = ParquetSink(str(folder / "lake"), file_bytes=100_000), Batch(rows=due_at)
        self.job = Ingestion("history", source, sink, f"{folder}/journal", max_packs=1, batch=batch)
        kafka.create_topic(PLAIN, 3)
        kafka.create_topic(
            COMPACTED,
            2,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            segment_ms="500",
            delete_retention_ms="1000000",
        )

    @property
    def journal(self) -> Journal:
        return Journal.create(self.job.journal, self.job.name)

    def opened(self) -> OpenJob:
        return OpenJob(self.job, self.journal, SparkConnections(uris(self.kafka)))

    # Events between runs

    def happen(self) -> None:
        """Let records come, and something else."""
        for topic in (PLAIN, COMPACTED):
            for partition in range(self.partitions(topic)):
                values = [self.chance.randbytes(60) for _ in range(self.chance.randint(20, 120))]
                key = b"%d" % self.chance.randrange(KEYS) if topic == COMPACTED else None
                self.kafka.produce(topic, values, partition, key)
        self.see()
        self.events.draw(self.is_possible)()

    def come(self, producer: Producer) -> None:
        """Let a record come, at any time; not to the compacted topic, where it could be published and gone before it is seen."""
        producer.produce(PLAIN, uuid.uuid4().bytes, on_delivery=self._count)
        producer.poll(0)

    def _count(self, error: object, _message: object) -> None:
        self.came += error is None

    def is_possible(self, event: Callable[[], None]) -> bool:
        """Whether something can happen now. Before the first load, deleted offsets would be no loss."""
        if event == self.add_a_partition:
            return self.partitions(PLAIN) < MOST_PARTITIONS
        return event != self.delete_unread or bool(self.watermark(PLAIN))

    def partitions(self, topic: str) -> int:
        return len(self.kafka.admin.list_topics(topic, timeout=30).topics[topic].partitions)

    def see(self) -> dict[str, set[Place]]:
        """Read all topics as an independent consumer.

        :return: which records are there now.
        """
        there = {topic: {record[:2]: record for record in self.kafka.records(topic)} for topic in self.seen}
        for topic, records in there.items():
            seen = self.seen[topic]
            assert all(seen.setdefault(place, record) == record for place, record in records.items())
        return {topic: {*records} for topic, records in there.items()}

    def add_a_partition(self) -> None:
        self.kafka.add_partitions(PLAIN, self.partitions(PLAIN) + 1)
        self.counts["partitions added"] += 1

    def end_transactions(self) -> None:
        for commit in (False, True):
            self.transaction(commit=commit)
            self.counts[f"transactions {'committed' if commit else 'aborted'}"] += 1

    def transaction(self, *, commit: bool) -> None:
        producer = self.kafka.producer(**{"transactional.id": uuid.uuid4().hex})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(50):
            producer.produce(PLAIN, b"in a transaction", partition=number % 2)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)

    def delete_unread(self) -> None:
        """Remove offsets that no run has read yet, as retention does."""
        unread = self.watermark(PLAIN)[0]
        assert max(offset for partition, offset in self.seen[PLAIN] if partition == 0) > unread + 5
        self.kafka.delete_records(PLAIN, {0: unread + 5})
        self.counts["losses"] += 1

    def compact(self) -> None:
        """Let the cleaner remove records that no run has read yet."""
        read = (*self.watermark(COMPACTED), 0)[0]
        unread = {
            (partition, offset) for partition, offset in self.seen[COMPACTED] if partition == 0 and offset >= read
        }
        assert unread

        def is_cleaned() -> bool:
            for key in range(KEYS):
                self.kafka.produce(COMPACTED, [self.chance.randbytes(60)], 0, b"%d" % key)
            self.see()
            return not unread <= {record[:2] for record in self.kafka.records(COMPACTED)}

        self.kafka.wait_until(is_cleaned)
        self.counts["compactions of unread records"] += 1

    def kill_the_broker(self) -> None:
        self.kafka.stop(signal.SIGKILL)
        self.kafka.start()
        self.kafka.wait_until(lambda: self.kafka.records(PLAIN) is not None)
        self.counts["brokers killed"] += 1

    def change(self) -> None:
        """Change packs and cores."""
        self.cores = self.chance.choice([cores for cores in (1, 2, 3) if cores != self.cores])
        self.job = replace(self.job, max_packs=3 - (self.job.max_packs or 1))
        self.counts["changes of packs and cores"] += 1

    # A run

    def run(self, number: int, *, flush: bool = False) -> None:
        """A whole run, in which something may be killed."""
        opened, request = self.opened(), RunRequest(f"run {number}", flush=flush)
        verify_recover(opened, request)
        plan = create_work_units(opened, request)
        self.counts["runs"] += 1
        if not plan.packs:
            self.counts["runs held"] += 1
            return
        victim, came = "" if flush else self.victims.draw(), self.came
        killed = [self.extract(PlannedRun(self.folder, opened, plan), pack.index, victim) for pack in plan.packs]
        killed.append(self.publish(opened, plan, victim))
        self.counts["runs with records coming"] += self.came > came
        if any(killed):
            self.counts[f"{victim}s killed"] += 1
        elif victim:
            self.victims.put_back(victim)  # it had ended already

    def extract(self, planned: PlannedRun, pack: int, victim: str) -> bool:
        """Submit a pack; where a worker or a driver is killed, perhaps again, as Airflow tries a task again.

        :return: whether something was killed.
        """
        submit = Submit(master=f"local[{self.cores}]", uris=uris(self.kafka), code=())
        command = [f"--pack={pack}" if word == "--pack=0" else word for word in submit.command(planned)]
        log = self.folder / "driver.log"
        killed = False
        driver = start_process(command, log=log, env=submit.environment)
        try:
            if victim in ("worker", "driver"):
                killed = self.kill(driver, victim)
            code = driver.wait(240)
        finally:
            stop_process(driver, first=signal.SIGKILL)
        if victim in ("worker", "driver"):
            if self.chance.random() < 0.5:
                done = start_process(command, log=log, env=submit.environment)
                assert done.wait(240) == 0, log.read_text()[-5000:]
        else:
            assert code == 0, log.read_text()[-5000:]
        return killed

    def kill(self, driver: subprocess.Popen[bytes], victim: str) -> bool:
        """Kill a worker that reads, or the driver while one does.

        :return: whether one was found.
        """
        deadline = time.monotonic() + 240
        while driver.poll() is None:
            assert time.monotonic() < deadline
            for process in children(driver):
                with suppress(psutil.Error):
                    if any(getattr(c.raddr, "port", None) == self.kafka.port for c in process.net_connections("tcp")):
                        time.sleep(self.chance.random() * 0.3)
                        (process if victim == "worker" else driver).send_signal(signal.SIGKILL)
                        return True
            time.sleep(0.01)
        return False

    def publish(self, opened: OpenJob, plan: RunPlan, victim: str) -> bool:
        """Decide and publish, in a process of its own, that may be killed. The next run finishes what it leaves.

        :return: whether it was killed.
        """

        def work(_send: object) -> None:
            mine = OpenJob(self.job, self.journal, NoConnections())
            for pack in plan.packs:
                write_commit_steps(mine, plan, pack)
                execute_commit_steps(mine, plan, pack)

        child = Child(work)
        killed = victim == "publisher" and not child.ended(self.chance.random() * 0.1)
        if killed:
            child.send(signal.SIGKILL)
        child.result(120)
        if victim != "publisher":
            # After a kill of a worker or driver it fails in one of many ways; where nothing was killed, it doesn't.
            failed = [report.text for report in finish(opened, plan) if report.status == "failed"]
            assert victim or not failed, failed
        return killed

    # Checks

    def watermark(self, topic: str) -> tuple[int, ...]:
        mark = self.journal.state(topic).watermark
        return mark.values if isinstance(mark, MultiLongWatermark) else ()

    def check(self) -> None:
        """Each record is published once, waits, or is lost by name; and a compacted one may be gone before it was read."""
        there = self.see()
        for topic, seen in self.seen.items():
            history = self.journal.history(topic)
            if not history.slots or history.pending is not None or not self.watermark(topic):
                continue
            found = self.journal.read_dataset(topic)
            published: Counter[Record] = Counter()
            if found.files:
                opened = found.to_arrow()
                for fragment in opened.get_fragments():
                    table = fragment.to_table(opened.schema)
                    expect_ordered(table)
                    published.update(records_of(table))
            assert set(published.values()) <= {1}
            lost = self.lost[topic]
            lost.update(self.named_lost(topic))
            mark = self.watermark(topic)
            for place, record in seen.items():
                read = place[0] < len(mark) and place[1] < mark[place[0]]
                if not read:
                    assert record not in published
                elif record not in published:
                    assert place in lost or (topic == COMPACTED and place not in there[topic]), (topic, record)
            assert all(seen.get(record[:2]) == record for record in published)

    def named_lost(self, topic: str) -> Iterator[Place]:
        """The offsets that the journal names as lost."""
        for slot in self.journal.history(topic).slots:
            for unit in slot.decision.units:
                if "lost" in unit.properties:
                    assert unit.range is not None
                    low, high = unit.range.low, unit.range.high
                    assert isinstance(low, MultiLongWatermark)
                    assert isinstance(high, MultiLongWatermark)
                    for p, (a, b) in enumerate(zip(low.values, high.values, strict=True)):
                        yield from ((p, offset) for offset in range(a, b))


@shares(20)
@pytest.mark.timeout(7200)
def test_runs_publish_each_record_once_whatever_is_killed(
    broker: Kafka, tmp_path: Path, share: int, proved: Proved
) -> None:
    seed, runs = fresh_seed(), RUNS // share
    world = World(broker, tmp_path, seed, DUE_AT if share == 1 else DUE_SELDOM)
    with broker.producing(world.come, PAUSE):
        for number in range(runs):
            world.happen()
            world.run(number)
            world.check()
    world.run(runs, flush=True)
    world.check()
    for topic, seen in world.seen.items():
        assert max(place[1] for place in seen) < max(world.watermark(topic)), "the flush has read all"
    world.kafka.delete_topic(PLAIN)
    world.kafka.create_topic(PLAIN, MOST_PARTITIONS)
    world.kafka.produce(PLAIN, [b"of another topic"] * 1000)
    opened = world.opened()
    (note,) = (note for note in create_work_units(opened, RunRequest("anew")).notes if note.urn == PLAIN)
    assert "it was deleted and made anew" in note.detail
    files = sum(len(world.journal.read_dataset(topic).files) for topic in world.seen)
    if share == 1:
        missing = [what for what in HAPPENING if not world.counts[what]]
        assert not missing
        assert world.lost[PLAIN] & {*world.seen[PLAIN]}, "records were lost, by name"
    figures = ", ".join(f"{count} {what}" for what, count in sorted(world.counts.items()))
    proved("Kafka on real Spark", f"{figures}; {files} files", f"seed {seed}; {chosen_by(share, seed)}")
