"""KafkaSource on a real broker: what is published is what an independent consumer reads."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads
import pytest
from confluent_kafka import Producer

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import MultiLongWatermark
from airflow_gobblin.model.work import Limits
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import Source
from airflow_gobblin.rows.sources.kafka import Isolation, KafkaSource, OutOfRange, Start
from airflow_gobblin.rows.sources.kafka.planning import Piece, cut
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import RangeSourceContract, inprocess
from tests.rows.sources.databases import FixedUri
from tests.services.environment import ROOT
from tests.services.kafka import Kafka, Record

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


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


class Lake:
    """An ingestion of one topic into a folder. :param options: of the source, and `of_ingestion` of the ingestion."""

    def __init__(self, kafka: Kafka, folder: Path, topic: str, of_ingestion: Any = None, **options: Any) -> None:
        self.kafka, self.folder, self.topic = kafka, folder, topic
        source = KafkaSource("kafka", (topic,), **options)
        self.job = Ingestion("clicks", source, ParquetSink(str(folder)), "unused", **(of_ingestion or {}))
        self.journal = Journal.create(MemoryStore(), self.job.name)

    def change(self, of_ingestion: Any = None, **options: Any) -> None:
        self.job = replace(self.job, source=replace(self.job.source, **options), **(of_ingestion or {}))  # type: ignore[type-var]

    @property
    def opened(self) -> OpenJob:
        return OpenJob(self.job, self.journal, self.kafka)

    def run(self, request: RunRequest | None = None) -> DatasetReport:
        return inprocess.run(self.opened, self.kafka, request)[self.topic]

    @property
    def watermark(self) -> tuple[int, ...]:
        mark = self.journal.state(self.topic).watermark
        assert isinstance(mark, MultiLongWatermark)
        return mark.values

    def rows(self) -> list[dict[str, Any]]:
        """What a reader of the journal sees, file by file."""
        found: list[dict[str, Any]] = []
        for path in self.journal.read_dataset(self.topic).paths:
            found += pads.dataset(path).to_table().to_pylist()
        return found

    def records(self) -> list[Record]:
        return [(row["partition"], row["offset"], row["key"], row["value"]) for row in self.rows()]

    def expect_all(self, isolation: str = "read_committed") -> None:
        """Expect what an independent consumer reads, in order within each partition's part of a file."""
        expect_same(self.records(), self.kafka.records(self.topic, isolation))
        for path in self.journal.read_dataset(self.topic).paths:
            rows = pads.dataset(path).to_table(["partition", "offset"]).to_pylist()
            for partition in {row["partition"] for row in rows}:
                offsets = [row["offset"] for row in rows if row["partition"] == partition]
                assert offsets == sorted(offsets)


def expect_same(found: Iterable[Record], expected: Iterable[Record]) -> None:
    assert Counter(found) == Counter(expected)


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
def test_a_first_load_begins_where_it_is_told(
    kafka: Kafka, tmp_path: Path, start: Any, expected: dict[int, int]
) -> None:
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


# --- What isn't there any more -------------------------------------------------------------------------------------------------


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
    from airflow_gobblin.run.plan import create_work_units

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


def test_a_topic_that_goes_between_plan_and_read_fails_and_the_others_go_on(
    lake: Lake, kafka: Kafka, topic: str
) -> None:
    from airflow_gobblin.run.plan import create_work_units

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
    from airflow_gobblin.run.plan import create_work_units

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


# --- Batches -------------------------------------------------------------------------------------------------------------------


def test_a_topic_is_held_until_enough_waits(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=3)
    lake = Lake(kafka, tmp_path, topic, {"batch": Batch(rows=25)})
    told = []
    for number in range(6):
        kafka.produce(topic, numbered(10), number % 3)
        told.append(lake.run().status)
    assert told == ["held", "held", "committed"] * 2
    lake.expect_all()
    assert len(lake.journal.read_dataset(topic).paths) == 2


def test_a_first_batch_by_size_comes_due_though_no_size_is_learned_yet(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    lake = Lake(kafka, tmp_path, topic, {"batch": Batch(bytes=1000)})
    told = []
    for _ in range(2):
        kafka.produce(topic, numbered(5))
        told.append(lake.run().status)
    assert told == ["held", "committed"]


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


def test_the_page_of_kafka() -> None:
    page = (ROOT / "docs" / "kafka.md").read_text()
    (code,) = re.findall(r"<!-- test: kafka -->\n```python\n(.*?)```", page, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(code, "kafka.md", "exec"), defined)
    assert defined["clicks"].source == KafkaSource("kafka", ("clicks", "orders.*"))
    named = set(re.findall(r"`(\w+)`", page))
    assert {field.name for field in fields(KafkaSource)} - {"conn_id"} <= named


# --- Bad input -----------------------------------------------------------------------------------------------------------------


def test_an_unknown_topic_is_named(kafka: Kafka, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"topic 'nowhere'.* has no topic that matches"):
        Lake(kafka, tmp_path, "nowhere").run()


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
        ({"topics": ()}, "it is no list of topics"),
        ({"topics": "clicks"}, "it is no list of topics"),
        ({"topics": ("(",)}, r"missing \)"),
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


def test_a_broker_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_gobblin.rows.sources.kafka import cluster

    monkeypatch.setattr(cluster, "SECONDS_TO_ANSWER", 1.0)
    with pytest.raises(SourceError, match="topics by connection 'kafka'"):
        KafkaSource("kafka", ("clicks",)).datasets(FixedUri("kafka://127.0.0.1:9"))
