"""KafkaSource on a real broker: it publishes what an independent consumer reads."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import MultiLongWatermark
from airflow_gobblin.model.work import Limits, WorkUnit
from airflow_gobblin.rows.converters.base import OnBadRow
from airflow_gobblin.rows.converters.checks import NotNull
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import PlanRequest, Source
from airflow_gobblin.rows.sources.kafka import Isolation, KafkaSource, OutOfRange, Start, reader
from airflow_gobblin.rows.sources.kafka.cluster import Topic
from airflow_gobblin.rows.sources.kafka.planning import Piece, cut, plan_topic
from airflow_gobblin.rows.sources.kafka.reader import KafkaReader
from airflow_gobblin.rows.sources.kafka.values import JsonValues
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import RangeSourceContract, inprocess
from tests.protocol.topics import Log, plan_log
from tests.rows.sources.databases import FixedUri
from tests.rows.sources.kafka_lake import Lake, numbered
from tests.services.environment import ROOT
from tests.services.kafka import Kafka

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


class TestTopics(RangeSourceContract):
    """The contract of sources, on a topic of three partitions."""

    @pytest.fixture
    def topic(self, kafka: Kafka) -> str:
        name = kafka.create_topic(partitions=3)
        for partition in range(3):
            kafka.produce(name, numbered(10, 10 * partition), partition)
        return name

    @pytest.fixture
    def source(self, topic: str) -> Source:
        return KafkaSource("kafka", (topic,), unit_bytes=600)

    @pytest.fixture
    def empty_source(self, kafka: Kafka) -> Source:
        return KafkaSource("kafka", (kafka.create_topic(partitions=3),))

    @pytest.fixture
    def connections(self, kafka: Kafka) -> Connections:
        return kafka

    @pytest.fixture
    def grow(self, kafka: Kafka, topic: str) -> Callable[[], None]:
        return lambda: kafka.produce(topic, [uuid.uuid4().bytes for _ in range(5)], 1)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A topic of three partitions, two of which have ten records each."""
    name = kafka.create_topic(partitions=3)
    for partition in (0, 2):
        kafka.produce(name, numbered(10, 10 * partition), partition, b"k%d" % partition)
    return name


@pytest.fixture
def lake(kafka: Kafka, topic: str, tmp_path: Path) -> Lake:
    return Lake(kafka, tmp_path / "lake", topic)


def test_runs_publish_each_record_once(lake: Lake, kafka: Kafka, topic: str) -> None:
    assert lake.run().status == "committed"
    assert lake.watermark == (10, 0, 10)
    lake.expect_all()
    assert lake.run().status == "idle"
    kafka.produce(topic, numbered(7, 100))
    assert lake.run().rows == 7
    lake.expect_all()
    assert len(lake.journal.read_dataset(topic).paths) == 2, "one file a run, however many partitions"


def test_a_record_is_kept_as_it_is(lake: Lake, kafka: Kafka) -> None:
    lake.topic = name = kafka.create_topic()
    lake.change(topics=(name,))
    headers = [("trace", b"\x00\xff"), ("trace", b"2"), ("none", None)]
    kafka.produce(name, [b"\x00\xfe"], 0, "ключ".encode(), timestamp=milliseconds(NOON), headers=headers)
    kafka.produce(name, [None], 0, b"deleted")
    kafka.produce(name, [b""], 0)
    lake.run()
    first, second, third = lake.rows()
    assert first == {
        "partition": 0,
        "offset": 0,
        "timestamp": NOON,
        "key": "ключ".encode(),
        "headers": [{"key": key, "value": value} for key, value in headers],
        "value": b"\x00\xfe",
    }
    assert (second["key"], second["value"], second["headers"]) == (b"deleted", None, None)
    assert (third["key"], third["value"]) == (None, b"")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Start.EARLIEST, {0: 10, 1: 0, 2: 10}),
        (Start.LATEST, {0: 0, 1: 0, 2: 0}),
        (NOON, {0: 0, 1: 0, 2: 10}),
        ("offsets", {0: 6, 1: 0, 2: 10}),
    ],
)
def test_a_first_load_begins_at_its_start(kafka: Kafka, tmp_path: Path, start: Any, expected: dict[int, int]) -> None:
    topic = kafka.create_topic(partitions=3)
    kafka.produce(topic, numbered(10), 0, timestamp=milliseconds(NOON - timedelta(hours=1)))
    kafka.produce(topic, numbered(10), 2, timestamp=milliseconds(NOON))
    lake = Lake(kafka, tmp_path, topic, start={topic: (4,)} if start == "offsets" else start)
    lake.run()
    kafka.produce(topic, [b"later"], 1, timestamp=milliseconds(NOON))
    lake.run()
    found = Counter(partition for partition, *_ in lake.records())
    assert found == Counter(expected | {1: 1})


def test_partitions_added_later_begin_at_their_beginning(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.change(start=Start.LATEST)
    lake.run()
    kafka.add_partitions(topic, 5)
    kafka.produce(topic, numbered(3), 4)
    kafka.produce(topic, numbered(2), 1)
    assert lake.run().rows == 5
    assert lake.watermark == (10, 2, 10, 0, 3)
    kafka.produce(topic, numbered(1), 3)
    assert lake.run().rows == 1


def test_what_came_before_a_first_load_from_the_end_is_never_read(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.change(start=Start.LATEST)
    assert lake.run().status in ("idle", "committed")
    kafka.produce(topic, numbered(2), 0)
    lake.run()
    assert [offset for _, offset, *_ in lake.records()] == [10, 11]


# --- Transactions and compaction: offsets without a record ---------------------------------------------------------------------


def transactional(kafka: Kafka, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer: Producer = kafka.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_aborted_transactions_are_gaps_and_their_marks_too(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    lake = Lake(kafka, tmp_path / "one", topic)
    transactional(kafka, topic, numbered(5), commit=True)
    transactional(kafka, topic, numbered(4, 100), commit=False)
    assert lake.run().rows == 5
    assert lake.watermark == (11,), "the marks have offsets, too"
    lake.expect_all()
    assert lake.run().status == "idle"
    both = Lake(kafka, tmp_path / "other", topic, isolation=Isolation.UNCOMMITTED)
    assert both.run().rows == 9
    both.expect_all("read_uncommitted")


def test_an_open_transaction_is_left_to_later_runs(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    lake = Lake(kafka, tmp_path, topic)
    kafka.produce(topic, [b"before"])
    producer: Producer = kafka.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"inside", partition=0)
    producer.flush(30)
    kafka.produce(topic, [b"after"])
    assert lake.run().rows == 1
    assert lake.watermark == (1,)
    producer.commit_transaction(30)
    assert lake.run().rows == 2
    lake.expect_all()


# --- Records that are gone -----------------------------------------------------------------------------------------------------


def test_offsets_that_the_log_lost_stop_the_topic_by_name(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.run()
    kafka.produce(topic, numbered(10), 0)
    kafka.delete_records(topic, {0: 15})
    report = lake.run()
    assert report.status == "failed"
    assert "doesn't have offsets [10, 15) of partition 0 any more, which were not read" in report.text
    assert lake.watermark == (10, 0, 10)


@pytest.mark.parametrize(
    ("choice", "rows", "lost"),
    [(OutOfRange.EARLIEST, 5, "[10, 15) of partition 0"), (OutOfRange.LATEST, 0, "[10, 20) of partition 0")],
)
def test_a_loss_that_is_accepted_is_named_in_the_journal(
    lake: Lake, kafka: Kafka, topic: str, choice: OutOfRange, rows: int, lost: str
) -> None:
    lake.run()
    lake.change(out_of_range=choice)
    kafka.produce(topic, numbered(10), 0)
    kafka.delete_records(topic, {0: 15})
    report = lake.run()
    assert (report.status, report.rows) == ("committed", rows)
    assert lake.watermark == (20, 0, 10)
    decision = lake.journal.history(topic).slots[-1].decision
    (unit,) = (unit for unit in decision.units if "lost" in unit.properties)
    assert unit.properties["lost"] == lost
    assert str(unit.range) == f"[[10, 0, 10], [{lost.split(')', maxsplit=1)[0].split(' ')[1]}, 0, 10])"


def test_records_that_go_between_plan_and_read_fail_the_unit(
    lake: Lake, kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake.opened
    plan = create_work_units(opened, RunRequest("one"))
    kafka.delete_records(topic, {0: 5})
    report = inprocess.go_on(opened, plan, kafka)[topic]
    assert report.status == "failed"
    assert "offset 0 of partition 0 is not in the log any more" in report.text


def test_a_topic_made_anew_stops_by_name(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.run()
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 3)
    kafka.produce(topic, numbered(20), 0)
    kafka.produce(topic, numbered(20), 2)
    report = lake.run()
    assert report.status == "failed"
    assert "it was deleted and made anew" in report.text
    assert len(lake.records()) == 20


class Nameless(Log):
    """The logs of a topic without an id."""

    id: ClassVar[str] = ""


@pytest.mark.parametrize("log", [Log, Nameless], ids=["with an id", "without one"])
def test_a_log_that_ends_before_what_was_read_stops_by_name(log: type[Log]) -> None:
    """Its end was lost; or it was made anew, in a cluster whose topics have no ids."""
    read = DatasetState("t", Coverage().add(Range(MultiLongWatermark((0, 0)), MultiLongWatermark((10, 9)))))
    with pytest.raises(ConfigurationError, match="partition 0 ends at offset 8, and was read up to 10"):
        plan_log(log("t", 2, 8), read, PlanRequest(NOON))


def test_a_partition_whose_offsets_cant_be_had_keeps_its_watermark_and_the_others_go_on() -> None:
    read = DatasetState("t", Coverage().add(Range(MultiLongWatermark((0, 0, 0)), MultiLongWatermark((10, 9, 8)))))
    found = plan_log(Headless("t", 3, 20), read, PlanRequest(NOON))
    assert found.planned == Range(MultiLongWatermark((10, 9, 8)), MultiLongWatermark((20, 9, 18)))
    assert {place.partition for unit in found.units for place in pieces_of(unit)} == {0, 2}


def test_a_partition_with_nothing_new_is_in_no_unit() -> None:
    read = DatasetState("t", Coverage().add(Range(MultiLongWatermark((0, 0)), MultiLongWatermark((5, 9)))))
    found = plan_log(Log("t", 2, 10), read, PlanRequest(NOON))
    assert {place.partition for unit in found.units for place in pieces_of(unit)} == {0}


@pytest.mark.parametrize("question", ["starts", "ends", "at"])
def test_a_first_load_waits_for_a_partition_that_cant_be_asked(question: str) -> None:
    """Left out, it would begin at its end, and its records before that would never be read."""
    source = KafkaSource("kafka", ("t",), start=datetime.fromtimestamp(5, UTC))

    def first_load(log: Log) -> Range | None:
        return plan_topic(source, cast(Topic, log), DatasetState("t"), PlanRequest(NOON), NoConnections()).planned

    assert first_load(Log("t", 3, 20)) == Range(MultiLongWatermark((5, 5, 5)), MultiLongWatermark((20, 19, 18)))
    silent = type("Silent", (Headless,), {"silent_to": (question,)})
    with pytest.raises(SourceError, match=r"can't begin the first load of topic 't': .*partition 1: it has no leader"):
        first_load(silent("t", 3, 20))


class Headless(Log):
    """The logs of a topic whose second partition has no leader.

    :param silent_to: the questions that it doesn't answer.
    """

    silent_to: ClassVar[tuple[str, ...]] = ("starts", "ends", "at")

    def starts(self, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        return self._but_one("starts", super().starts(partitions))

    def ends(self, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        return self._but_one("ends", super().ends(partitions))

    def at(self, time: datetime, partitions: Iterable[int]) -> dict[int, int | SourceError]:
        return self._but_one("at", super().at(time, partitions))

    def _but_one(self, question: str, found: dict[int, int | SourceError]) -> dict[int, int | SourceError]:
        error = SourceError(operation="ask", subject="partition 1", cause="it has no leader")
        return {p: error if p == 1 and question in self.silent_to else offset for p, offset in found.items()}


def pieces_of(unit: WorkUnit) -> list[Piece]:
    """The offsets that a unit reads."""
    assert isinstance(unit.low, MultiLongWatermark)
    assert isinstance(unit.expected_high, MultiLongWatermark)
    bounds = enumerate(zip(unit.low.values, unit.expected_high.values, strict=True))
    return [Piece(p, low, high) for p, (low, high) in bounds if low < high]


def test_a_topic_that_goes_between_plan_and_read_fails_and_the_others_go_on(
    lake: Lake, kafka: Kafka, topic: str
) -> None:
    other = kafka.create_topic()
    kafka.produce(other, numbered(3))
    lake.change(topics=(topic, other))
    plan = create_work_units(lake.opened, RunRequest("one"))
    kafka.delete_topic(topic)
    reports = inprocess.go_on(lake.opened, plan, kafka)
    assert reports[other].status == "committed"
    assert reports[topic].status == "failed"
    assert topic in reports[topic].text


# --- Units ---------------------------------------------------------------------------------------------------------------------


def test_several_partitions_share_a_file_and_a_hot_one_has_several() -> None:
    pieces = [Piece(0, 5, 8), Piece(1, 0, 2), Piece(2, 0, 23), Piece(4, 7, 8)]
    assert cut(pieces, 10) == [
        [Piece(0, 5, 8), Piece(1, 0, 2), Piece(2, 0, 5)],
        [Piece(2, 5, 15)],
        [Piece(2, 15, 23), Piece(4, 7, 8)],
    ]
    assert cut([Piece(0, 0, 3), Piece(0, 5, 6)], 10) == [[Piece(0, 0, 3)], [Piece(0, 5, 6)]], "holes are apart"


def test_what_failed_is_apart_the_next_time(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.change({"policy": CommitPolicy.SUCCESSFUL, "partial_ok": True}, unit_bytes=1000)
    kafka.produce(topic, numbered(10), 1)
    plan = create_work_units(lake.opened, RunRequest("one"))
    kafka.delete_records(topic, {0: 1})
    assert inprocess.go_on(lake.opened, plan, kafka)[topic].status == "partial"
    lake.change(out_of_range=OutOfRange.EARLIEST, unit_bytes=None)
    kafka.produce(topic, numbered(5), 2)
    assert lake.run().status == "committed"
    last = lake.journal.history(topic).slots[-1].decision
    assert sorted(unit.rows_read for unit in last.units) == [0, 5, 9], "what was lost, what failed, and what is new"
    assert lake.watermark == (10, 10, 15)


def test_limits_stop_a_unit_between_records(lake: Lake, kafka: Kafka, topic: str) -> None:
    kafka.produce(topic, numbered(30_000), 1)
    lake.change({"limits": Limits(rows=12_000)})
    runs = 0
    while lake.run().status == "committed":
        runs += 1
    assert runs >= 2
    lake.expect_all()


# --- Backfills -----------------------------------------------------------------------------------------------------------------


def backfill(start: Any, end: Any = None, *, replaces: bool = False, name: str = "backfill") -> RunRequest:
    return RunRequest(f"{name}/{uuid.uuid4().hex}", end, (), start, replaces)


@pytest.mark.parametrize(
    ("start", "end", "widened"),
    [
        ({0: 3}, {0: 5}, {0: (0, 10)}),
        ({2: 12}, None, {2: (10, 15), 1: (0, 5)}),
        ({0: 0, 2: 3}, {0: 1, 2: 4}, {0: (0, 10), 2: (0, 10)}),
        (3, 12, {0: (0, 10), 1: (0, 5), 2: (0, 15)}),
    ],
)
def test_a_replaced_range_is_widened_in_each_partition_to_the_units_that_it_touches(
    lake: Lake, kafka: Kafka, topic: str, start: Any, end: Any, widened: dict[int, tuple[int, int]]
) -> None:
    """Partitions 0 and 2 are units of their own at first; then 1 and 2 share one."""
    lake.change(unit_bytes=1000)
    lake.run()
    lake.change(unit_bytes=None)
    for partition in (1, 2):
        kafka.produce(topic, numbered(5, 50), partition)
    lake.run()
    before = lake.journal.read_dataset(topic).paths
    report = lake.run(backfill(start, end, replaces=True))
    assert report.status == "committed"
    lake.expect_all()
    assert lake.watermark == (10, 5, 15)
    decision = lake.journal.history(topic).slots[-1].decision
    read = {(p, o) for row in decision.ranges for p, o in offsets_of(row)}
    assert read == {(p, o) for p, (low, high) in widened.items() for o in range(low, high)}
    assert not {*before} >= {*lake.journal.read_dataset(topic).paths}


def offsets_of(part: Range) -> Iterator[tuple[int, int]]:
    assert isinstance(part.low, MultiLongWatermark)
    assert isinstance(part.high, MultiLongWatermark)
    for partition, (low, high) in enumerate(zip(part.low.values, part.high.values, strict=True)):
        yield from ((partition, offset) for offset in range(low, high))


def test_a_covered_range_is_refused_by_slots_and_an_open_one_filled(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.run()
    report = lake.run(backfill({0: 4}))
    assert report.status == "failed"
    assert "[[0, 0, 0], [10, 0, 10]) in slot 1" in report.text
    kafka.produce(topic, numbered(10, 50), 0)
    kafka.produce(topic, numbered(10, 70), 1)
    assert lake.run(backfill({0: 15}, {0: 18})).rows == 3
    assert lake.watermark == (10, 0, 10), "it waits for what lies before"
    lake.run()
    assert lake.watermark == (20, 10, 10)
    lake.expect_all()


def test_a_range_of_time_is_that_of_the_records_timestamps(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2)
    for hours in range(4):
        for partition in range(2):
            at = milliseconds(NOON + timedelta(hours=hours))
            kafka.produce(topic, numbered(1 + partition, 10 * hours), partition, timestamp=at)
    lake = Lake(kafka, tmp_path, topic)
    assert lake.run(backfill(NOON + timedelta(hours=1), NOON + timedelta(hours=3))).rows == 6
    assert {row["timestamp"] for row in lake.rows()} == {NOON + timedelta(hours=hours) for hours in (1, 2)}
    lake.run()
    lake.expect_all()
    assert lake.watermark == (4, 8), "the first load begins where it would have begun"


def test_what_lies_before_the_first_load_is_filled_on_its_own(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.change(start=Start.LATEST)
    lake.run()
    kafka.produce(topic, numbered(1), 0)
    lake.run()
    assert lake.run(backfill({0: 2, 1: 0}, {0: 5})).rows == 3
    assert lake.run().status == "idle"
    assert sorted(offset for _, offset, *_ in lake.records()) == [2, 3, 4, 10]


def test_units_from_before_partitions_were_added_are_replaced(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.run()
    kafka.add_partitions(topic, 4)
    kafka.produce(topic, numbered(3), 3)
    lake.run()
    assert lake.run(backfill({0: 0, 3: 0}, replaces=True)).status == "committed"
    assert lake.watermark == (10, 0, 10, 3)
    lake.expect_all()
    assert lake.run(backfill(0, replaces=True, name="again")).rows == 23
    lake.expect_all()


def test_what_was_skipped_is_filled_in_its_place(lake: Lake, topic: str) -> None:
    lake.run()
    admin = Administration(lake.journal, lake.job.work.target, "ann")
    admin.rewind(topic, MultiLongWatermark((0, 0, 0)), "to be skipped")
    admin.set_watermark(topic, MultiLongWatermark((10, 0, 4)), "they are of a test")
    assert "without files (imported, or skipped)" in lake.run(backfill({0: 2, 2: 1})).text
    assert lake.run(backfill({0: 2, 2: 1}, {0: 5, 2: 6}, replaces=True)).rows == 8
    assert lake.run().rows == 4
    found = Counter((partition, offset) for partition, offset, *_ in lake.records())
    assert found == Counter([*((0, n) for n in range(2, 5)), *((2, n) for n in range(1, 10))])


def test_what_the_log_has_lost_is_not_replaced(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.run()
    kafka.delete_records(topic, {0: 5})
    before = lake.records()
    report = lake.run(backfill({0: 7}, replaces=True))
    assert report.status == "failed"
    assert "doesn't have offsets [0, 5) of partition 0 any more: units are replaced whole" in report.text
    assert lake.records() == before


def test_a_range_that_the_topic_doesnt_have_is_named(lake: Lake) -> None:
    assert "it has no partition 7" in lake.run(backfill({7: 0})).text
    assert "its log has no records from {1: 0} to its end" in lake.run(backfill({1: 0})).text


def test_backfills_and_other_runs_at_once_publish_each_record_once(lake: Lake, kafka: Kafka, topic: str) -> None:
    lake.run()
    kafka.produce(topic, numbered(10, 60), 0)
    kafka.produce(topic, numbered(10, 80), 1)
    requests = (RunRequest("scheduled"), backfill({0: 12}, {0: 15}), backfill({2: 0}, replaces=True))
    several = [(lake.opened, create_work_units(lake.opened, request)) for request in requests]
    found = [inprocess.go_on(opened, plan, kafka)[topic].status for opened, plan in several]
    assert found == ["committed", "covered", "committed"]
    lake.expect_all()


# --- The policy `partial` ------------------------------------------------------------------------------------------------------


def partial(kafka: Kafka, folder: Path, topic: str, **options: Any) -> Lake:
    return Lake(kafka, folder, topic, {"policy": CommitPolicy.PARTIAL, **options})


def test_a_value_that_cant_be_decoded_cuts_its_unit(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2)
    for values in ([b'{"n": 1}'] * 7, [b"{"], [b'{"n": 2}'] * 5):
        kafka.produce(topic, values, 1)
    lake = partial(kafka, tmp_path, topic)
    lake.change(values=JsonValues({"n": "int64"}))
    report = lake.run()
    assert (report.status, report.rows, lake.watermark) == ("partial", 7, (0, 7))
    assert '{"partition": 1, "offset": 7}' in report.detail
    assert lake.run().status == "failed", "nothing good comes before it"
    lake.change(values=JsonValues({"n": "int64"}, on_bad=OnBadRow.DROP))
    assert lake.run().rows == 5
    assert lake.watermark == (0, 13)


def test_a_bad_row_cuts_its_unit_at_its_offset(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2)
    for partition in range(2):
        kafka.produce(topic, numbered(6), partition, b"key")
    kafka.produce(topic, [b"without a key"], 1)
    kafka.produce(topic, numbered(3, 50), 1, b"key")
    lake = partial(kafka, tmp_path, topic, checks=(NotNull(("key",)),))
    assert lake.run().status == "partial"
    read = sum(lake.watermark)
    assert 6 <= read <= 12
    assert lake.watermark[1] <= 6
    found = [(partition, offset) for partition, offset, *_ in lake.records()]
    assert sorted(found) == [(p, o) for p, end in enumerate(lake.watermark) for o in range(end)]
    lake.change({"checks": ()})
    assert lake.run().status == "committed"
    lake.expect_all()


def test_a_broker_that_fails_in_mid_unit_cuts_it(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.create_topic(partitions=2)
    for partition in range(2):
        kafka.produce(topic, numbered(20), partition)
    lake, consume, calls = partial(kafka, tmp_path, topic), KafkaReader._consume, Counter[str]()

    def failing(self: KafkaReader) -> Any:
        calls["consume"] += 1
        if calls["consume"] > 3:
            raise SourceError(operation="read", subject="the topic", cause="the broker is gone")
        return consume(self)

    monkeypatch.setattr(reader, "_AT_ONCE", 4)
    with monkeypatch.context() as patch:
        patch.setattr(KafkaReader, "_consume", failing)
        report = lake.run()
    assert report.status in ("partial", "failed")
    assert (report.status == "partial") == bool(lake.journal.state(topic).live)
    lake.run()
    lake.expect_all()
    assert lake.watermark == (20, 20)


def test_a_queue_that_was_full_is_filled_again_at_once(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic()
    for _ in range(20):  # a fetch brings whole batches of the producer
        kafka.produce(topic, [b"." * 1000] * 150)
    small = {"queued.max.messages.kbytes": 100, "max.partition.fetch.bytes": 100_000, "fetch.min.bytes": 1}
    for name, value in small.items():
        monkeypatch.setitem(reader._FETCHING, name, value)
    monkeypatch.setattr(reader, "_AT_ONCE", 50)
    started = time.monotonic()
    assert Lake(kafka, tmp_path, topic).run().rows == 3000
    assert time.monotonic() - started < 10, "twenty queues, each of which takes a second by the client's defaults"


# --- Batches -------------------------------------------------------------------------------------------------------------------


def test_a_topic_is_held_until_enough_waits(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=3)
    lake = Lake(kafka, tmp_path, topic, {"batch": Batch(rows=25)})
    found = []
    for number in range(6):
        kafka.produce(topic, numbered(10), number % 3)
        found.append(lake.run().status)
    assert found == ["held", "held", "committed"] * 2
    lake.expect_all()
    assert len(lake.journal.read_dataset(topic).paths) == 2


def test_a_first_batch_by_size_comes_due_though_no_size_is_learned_yet(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    lake = Lake(kafka, tmp_path, topic, {"batch": Batch(bytes=1000)})
    found = []
    for _ in range(2):
        kafka.produce(topic, numbered(5))
        found.append(lake.run().status)
    assert found == ["held", "committed"]


def test_the_oldest_record_makes_a_batch_due(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2, retention_ms="-1")
    lake = Lake(kafka, tmp_path, topic, {"batch": Batch(age=timedelta(hours=1))})
    kafka.produce(topic, [b"young"], 0)
    report = lake.run()
    assert report.status == "held"
    assert "1 row, " in report.detail
    kafka.produce(topic, [b"old"], 1, timestamp=milliseconds(datetime.now(UTC) - timedelta(hours=2)))
    assert lake.run().status == "committed"
    lake.expect_all()


def test_nothing_is_held_for_longer_than_a_share_of_what_the_topic_keeps(kafka: Kafka, tmp_path: Path) -> None:
    day = str(24 * 3600 * 1000)
    topic = kafka.create_topic(retention_ms=day)
    lake = Lake(kafka, tmp_path, topic, {"batch": Batch(rows=100)})
    kafka.produce(topic, [b"x"], 0, timestamp=milliseconds(datetime.now(UTC) - timedelta(hours=11)))
    assert lake.run().status == "held"
    lake.change({"batch": Batch(rows=100, kept=0.4)})
    assert lake.run().status == "committed"


def test_an_age_above_what_the_topic_keeps_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(retention_ms="3600000")
    kafka.produce(topic, [b"x"])
    report = Lake(kafka, tmp_path, topic, {"batch": Batch(age=timedelta(hours=2))}).run()
    assert "its source keeps rows for 1:00:00 only" in report.text


def test_the_page_of_kafka(kafka: Kafka, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "kafka.md").read_text()
    (code,) = re.findall(r"<!-- test: kafka -->\n```python\n(.*?)```", page, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(code, "kafka.md", "exec"), defined)
    source = defined["clicks"].source
    assert (source.topics, source.values.on_bad) == (("clicks", "orders.*"), OnBadRow.DEAD_LETTER)
    topic = kafka.create_topic()
    kafka.produce(topic, [b'{"id": 1, "at": "2026-01-01T00:00:00Z"}', b"no JSON"])
    report = Lake(kafka, tmp_path, topic, values=source.values).run()
    assert (report.rows, report.text) == (1, "slot 1: 1 dead letter")
    (code,) = re.findall(r"<!-- test: values -->\n```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "kafka.md", "exec"), defined)
    assert defined["clicks"].values.plan("clicks", NoConnections()).columns.names[:2] == ["click_id", "click_at"]
    assert defined["orders"].connection_ids == ("kafka", "my_registry")
    named = set(re.findall(r"`(\w+)`", page))
    assert {field.name for field in fields(KafkaSource)} - {"conn_id"} <= named


# --- Bad input -----------------------------------------------------------------------------------------------------------------


def test_an_unknown_topic_is_named_and_the_others_go_on(lake: Lake, topic: str) -> None:
    lake.change(topics=(topic, "nowhere"))
    reports = inprocess.run(lake.opened, lake.connections)
    assert reports["nowhere"].status == "failed"
    assert "can't find topic 'nowhere' by connection 'kafka'" in reports["nowhere"].text
    assert reports[topic].status == "committed"


def test_a_pattern_that_matches_nothing_is_named_and_the_others_go_on(lake: Lake, topic: str) -> None:
    lake.change(topics=(topic, "nowhere.*"))
    reports = inprocess.run(lake.opened, lake.connections)
    assert reports["nowhere.*"].status == "failed"
    assert re.search(r"topic 'nowhere\.\*' of .* has no topic that matches", reports["nowhere.*"].text)
    assert reports[topic].status == "committed"


def test_topics_are_chosen_by_patterns(kafka: Kafka) -> None:
    prefix = uuid.uuid4().hex[:8]
    for name in ("a", "b", "b.test"):
        kafka.create_topic(f"{prefix}.{name}")
    source = KafkaSource("kafka", (f"{prefix}\\..*",), exclude=(".*\\.test",))
    assert [dataset.urn for dataset in source.datasets(kafka)] == [f"{prefix}.a", f"{prefix}.b"]
    assert KafkaSource("kafka", ("__consumer_offsets|.*",)).datasets(kafka) != ()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"topics": ()}, "it names no topic"),
        ({"topics": "clicks"}, "it is not a tuple"),
        ({"topics": ("(",)}, r"missing \)"),
        ({"topics": ("a{99999999999}",)}, "too large"),
        ({"topics": ("(" * 5000 + ")" * 5000,)}, "it is nested too deep"),
        ({"start": datetime(2026, 1, 1)}, "it has no time zone"),  # noqa: DTZ001
        ({"max_units": 0}, "it is too small"),
    ],
)
def test_a_source_that_cant_work_is_refused(options: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        KafkaSource(**{"conn_id": "kafka", "topics": ("clicks",), **options})


@pytest.mark.parametrize(
    ("uri", "cause"),
    [
        ("http://somewhere", "it is of type 'http'"),
        ("kafka://", "it names no server"),
        ("kafka://?group.id=mine&bootstrap.servers=a:1", "it sets group.id"),
    ],
)
def test_a_connection_that_cant_work_is_refused(uri: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        KafkaSource("kafka", ("clicks",)).datasets(FixedUri(uri))


@pytest.mark.slow
def test_a_broker_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_gobblin.rows.sources.kafka import cluster

    monkeypatch.setattr(cluster, "SECONDS_TO_ANSWER", 1.0)
    with pytest.raises(SourceError, match="topics by connection 'kafka'"):
        KafkaSource("kafka", ("clicks",)).datasets(FixedUri("kafka://127.0.0.1:9"))


# --- Offsets for dashboards ----------------------------------------------------------------------------------------------------


def committed(kafka: Kafka, group: str, topic: str, partitions: int) -> list[int]:
    """The offsets of a consumer group, as any tool reads them."""
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": group})
    try:
        return [place.offset for place in consumer.committed([TopicPartition(topic, p) for p in range(partitions)], 30)]
    finally:
        consumer.close()


def test_what_is_published_is_committed_to_a_group_and_never_read_back(lake: Lake, kafka: Kafka, topic: str) -> None:
    group = uuid.uuid4().hex
    lake.run()
    assert committed(kafka, group, topic, 3) == [OFFSET_INVALID] * 3, "no group was named"
    lake.change(commit_group=group)
    kafka.produce(topic, numbered(5, 100), 1)
    lake.run()
    assert committed(kafka, group, topic, 3) == [10, 5, 10]
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 999)], asynchronous=False)
    consumer.close()
    kafka.produce(topic, numbered(5, 200), 1)
    assert lake.run().rows == 5
    lake.expect_all()
    assert committed(kafka, group, topic, 3) == [10, 10, 10]


def test_a_group_that_refuses_the_offsets_is_logged_and_changes_nothing(
    lake: Lake, kafka: Kafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = uuid.uuid4().hex
    member = Consumer({"bootstrap.servers": kafka.servers, "group.id": group})
    try:
        member.subscribe([topic])
        kafka.wait_until(lambda: member.poll(0.1) or member.assignment())
        lake.change(commit_group=group)
        assert lake.run().status == "committed"
    finally:
        member.close()
    assert f"its source isn't informed of it: can't commit offsets to consumer group '{group}'" in caplog.text
    lake.expect_all()


def test_sixty_small_runs_publish_as_few_files_as_their_bytes_are_worth(kafka: Kafka, tmp_path: Path) -> None:
    size, chance = 256 << 10, random.Random(1)
    topic = kafka.create_topic(partitions=4)
    of_size = {"sink": ParquetSink(str(tmp_path), file_bytes=size), "batch": Batch(bytes=size)}
    lake = Lake(kafka, tmp_path, topic, of_size)
    found = Counter[str]()
    for _ in range(60):
        for partition in range(4):
            kafka.produce(topic, [chance.randbytes(500) for _ in range(chance.randint(5, 30))], partition)
        found[lake.run().status] += 1
    assert set(found) == {"held", "committed"}
    files = lake.journal.read_dataset(topic).files
    assert len(files) <= 1.2 * sum(file.bytes for file in files) / size
    assert max(file.bytes for file in files) < 1.6 * size
    lake.run(RunRequest("the last", flush=True))
    lake.expect_all()
