"""Values of Kafka's records as columns: what each format decodes, and what it refuses."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.model.status import Status
from airflow_gobblin.rows.converters.base import OnBadRow
from airflow_gobblin.rows.sources.kafka.values import BytesValues, Decoded, JsonValues, TextValues, ValueFormat
from airflow_gobblin.run.request import RunRequest
from tests.rows.sources.kafka_lake import Lake
from tests.services.kafka import Kafka

NOWHERE = NoConnections()
ORDER = JsonValues(
    {
        "id": "int64",
        "at": "timestamp[UTC]",
        "local": "timestamp",
        "day": "date",
        "price": "decimal(10,2)",
        "share": "float64",
        "name": "string",
        "paid": "bool",
        "tags": ["string"],
        "lines": [{"sku": "string", "count": "int64"}],
        "address": {"city": "string", "since": "date"},
    }
)


def decode(values: Sequence[bytes | None], kind: ValueFormat) -> tuple[list[Mapping[str, Any]], Mapping[int, str]]:
    """Decode values with a format.

    :return: the rows, and why some are bad.
    """
    planned = kind.plan("orders", NOWHERE)
    found: Decoded = kind.decoder(planned.columns, planned.properties, NOWHERE).decode(pa.array(values, pa.binary()))
    batch = pa.RecordBatch.from_arrays(list(found.columns), schema=planned.columns)
    batch.validate(full=True)
    assert batch.num_rows == len(values)
    return batch.to_pylist(), found.bad


def test_json_has_the_declared_types() -> None:
    text = """
      {"id": 9007199254740993, "at": "2026-01-31T10:00:00.5+02:00", "local": "2026-01-31 10:00:00", "day": "2026-02-28",
       "price": 1.10, "share": 0.1, "name": "Z\\u00fcrich \\ud83d\\ude80", "paid": true, "tags": ["a", null], "other": {"x": 1},
       "lines": [{"count": 2, "sku": "s", "more": []}], "address": {"since": "2020-01-01"}}
    """
    ((row,), bad) = decode([text.encode()], ORDER)
    assert bad == {}
    assert row == {
        "id": 9007199254740993,
        "at": datetime(2026, 1, 31, 8, 0, 0, 500_000, UTC),
        "local": datetime(2026, 1, 31, 10),  # noqa: DTZ001
        "day": date(2026, 2, 28),
        "price": Decimal("1.10"),
        "share": 0.1,
        "name": "Zürich 🚀",
        "paid": True,
        "tags": ["a", None],
        "lines": [{"sku": "s", "count": 2}],
        "address": {"city": None, "since": date(2020, 1, 1)},
    }


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"17",
        b'"{}"',
        b'{"id": 1',
        b'{"id": 1}}',
        b'{"id": 1}{"id": 2}',
        b'{"id": 1}\n{"id": 2}',
        b'{"id": 1},"name":{}',
        b'{"id": 1, "id": 2}',
        b'{"id": 1.5}',
        b'{"id": "1"}',
        b'{"id": 9223372036854775808}',
        b'{"price": 1.005}',
        b'{"price": 123456789.00}',
        b'{"name": 1}',
        b'{"name": "\xff"}',
        b'{"other": "\xff"}',
        b'{"name": "a\nb"}',
        b'{"paid": "true"}',
        b'{"day": "2026-02-29"}',
        b'{"day": 20000}',
        b'{"at": "2026-01-31T10:00:00"}',
        b'{"local": "2026-01-31T10:00:00Z"}',
        b'{"at": 1767225600}',
        b'{"share": 1e999}',
        b'{"tags": "a"}',
        b'{"tags": [1]}',
        b'{"address": "Bern"}',
        b'{"address": {"since": "yesterday"}}',
    ],
)
def test_what_is_not_as_declared_is_bad_alone(value: bytes) -> None:
    rows, bad = decode([b'{"id": 1}', None, value, b'{"id": 3}'], ORDER)
    assert [*bad] == [2]
    assert [row["id"] for row in rows] == [1, None, None, 3]


@pytest.mark.slow
def test_values_are_read_together_as_one_by_one() -> None:
    """Parts of objects, put together in every way, never shift a value to another record."""
    parts = [
        b'{"id": 1}',
        b'{"id": 2, "x": [{}',
        b"]}",
        b'{"x": "',
        b'"}',
        b'{"id": 3}{"id": 4}',
        b"",
        b" {} ",
        b'{"x": {',
    ]
    chosen = random.Random(15)
    seen = set()
    for _ in range(300):
        values: list[bytes | None] = [chosen.choice(parts) for _ in range(chosen.randint(1, 6))]
        together = decode(values, ORDER)
        alone = [decode([value], ORDER) for value in values]
        assert together[0] == [row for rows, _ in alone for row in rows]
        assert [*together[1]] == [number for number, (_, bad) in enumerate(alone) if bad]
        seen.add((len(values), len(together[1])))
    assert {(1, 0), (1, 1), (6, 6)} <= seen, "some are good, and some aren't"


def test_deep_values_are_no_danger() -> None:
    deep = b'{"other": ' + b"[" * 300_000 + b"]" * 300_000 + b', "id": 1}'
    ((row,), bad) = decode([deep], ORDER)
    assert (row["id"], bad) == (1, {})


def test_text_is_utf_8() -> None:
    rows, bad = decode(["Zürich".encode(), None, b"\xff", b""], TextValues())
    assert [row["value"] for row in rows] == ["Zürich", None, None, ""]
    assert bad == {2: "it is not UTF-8 text"}
    assert decode([b"\xff", None], BytesValues()) == ([{"value": b"\xff"}, {"value": None}], {})


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, "an object has at least one field"),
        ({"a": "int32"}, "type 'int32' of 'a'"),
        ({"a": {"b": "rounded int64"}}, "of 'a.b'"),
        ({"a": "binary"}, "there is no such type"),
        ({"a": []}, "a list has one type"),
        ({"a": ["string", "int64"]}, "a list has one type"),
        ({"a": [{}]}, "at least one field"),
    ],
)
def test_a_wrong_schema_is_refused(schema: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        JsonValues(schema)


# --- Topics ------------------------------------------------------------------------------------------------------------------


def failure_of(lake: Lake) -> str:
    """Run, and return why nothing was published; empty if something was."""
    try:
        report = lake.run()
    except GobblinError as error:  # nothing at all could be planned
        return str(error)
    return "" if report.status is Status.COMMITTED else report.text


def objects(*objects_: Any) -> list[bytes | None]:
    return [None if one is None else json.dumps(one).encode() for one in objects_]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return kafka.create_topic(partitions=2)


def test_json_of_a_topic_is_columns_beside_those_of_the_record(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    lake = Lake(kafka, tmp_path, topic, values=JsonValues({"id": "int64", "tags": ["string"]}))
    kafka.produce(topic, objects({"id": 1, "tags": ["a"]}, {"id": 2}, None), 0, b"k")
    assert failure_of(lake) == ""
    found = sorted(lake.rows(), key=lambda row: row["offset"])
    assert [(row["offset"], row["key"], row["id"], row["tags"]) for row in found] == [
        (0, b"k", 1, ["a"]),
        (1, b"k", 2, None),
        (2, b"k", None, None),
    ]
    assert [*found[0]] == ["partition", "offset", "timestamp", "key", "headers", "id", "tags"]


def test_a_new_field_is_a_new_column(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    lake = Lake(kafka, tmp_path, topic, values=JsonValues({"id": "int64"}))
    kafka.produce(topic, objects({"id": 1, "name": "ann"}), 0)
    assert failure_of(lake) == ""
    lake.change(values=JsonValues({"id": "int64", "name": "string"}))
    kafka.produce(topic, objects({"id": 2, "name": "ben"}), 0)
    assert failure_of(lake) == ""
    table = lake.journal.read_dataset(topic).to_arrow().to_table(["id", "name"]).to_pylist()
    assert sorted((row["id"], row["name"]) for row in table) == [(1, None), (2, "ben")]
    lake.change(values=JsonValues({"id": "string"}))
    kafka.produce(topic, objects({"id": "3"}), 0)
    assert "column 'id' was int64 and is now string" in failure_of(lake)


def test_a_bad_value_is_named_and_publishes_nothing(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    lake = Lake(kafka, tmp_path, topic, values=JsonValues({"id": "int64"}))
    kafka.produce(topic, objects({"id": 1}, {"id": "x"}), 1)
    failure = failure_of(lake)
    assert "1 of the 2 rows of a batch are not as JsonValues requires, " in failure
    assert (
        """the first is at {"partition": 1, "offset": 1}: its field 'id' is a string, and not a number. """ in failure
    )
    assert lake.journal.state(topic).watermark is None


def test_bad_values_are_dead_letters_with_their_bytes_and_positions(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    values = JsonValues({"id": "int64"}, on_bad=OnBadRow.DEAD_LETTER)
    lake = Lake(kafka, tmp_path, topic, values=values)
    kafka.produce(topic, [b'{"id": 1}', b"\xff", None, b'{"id": "x"}'], 1, b"k\xff", headers=[("h", b"\x00")])
    kafka.produce(topic, [b"bad"] * 3, 0)
    report = lake.run()
    assert (report.status, report.rows, report.text) == (Status.COMMITTED, 2, "slot 1: 5 dead letters")
    assert [(row["offset"], row["id"]) for row in lake.rows()] == [(0, 1), (2, None)]
    letters = lake.journal.read_dead_letters(topic).to_arrow().to_table().to_pylist()
    assert sorted((one["position"], one["raw"]) for one in letters) == [
        *(('{"partition": 0, "offset": %d}' % offset, b"bad") for offset in range(3)),  # noqa: UP031
        ('{"partition": 1, "offset": 1}', b"\xff"),
        ('{"partition": 1, "offset": 3}', b'{"id": "x"}'),
    ]
    one = next(one for one in letters if one["raw"] == b"\xff")
    assert (one["refused_by"], one["reason"]) == ("kafka_json", "it is not a JSON object")
    row = json.loads(one["row"])
    assert datetime.fromisoformat(row.pop("timestamp")).tzinfo is not None
    expected = {"partition": 1, "offset": 1, "key": "a/8=", "headers": [{"key": "h", "value": "AA=="}]}
    assert row == expected
    assert lake.watermark == (3, 4)

    corrected = JsonValues({"id": "string"}, on_bad=OnBadRow.DEAD_LETTER)
    other = Lake(kafka, tmp_path / "other", topic, values=corrected)
    other.run()
    letters = other.journal.read_dead_letters(topic).to_arrow().to_table().to_pylist()
    assert b'{"id": "x"}' not in [one["raw"] for one in letters]


def test_bad_values_may_be_dropped_up_to_a_bound(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    values = TextValues(OnBadRow.DROP, at_most=0.25)
    lake = Lake(kafka, tmp_path, topic, values=values)
    kafka.produce(topic, [b"a", b"b", b"\xff"], 0)
    assert "1 of its 3 rows fail the check TextValues" in failure_of(lake)
    kafka.produce(topic, [b"c"], 0)
    assert failure_of(lake) == ""
    assert [row["value"] for row in lake.rows()] == ["a", "b", "c"]


def test_a_backfill_reads_dead_letters_again_by_the_right_format(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    lake = Lake(kafka, tmp_path, topic, values=JsonValues({"other": "int64"}, on_bad=OnBadRow.DEAD_LETTER))
    kafka.produce(topic, objects({"id": 1, "other": "x"}, {"id": 2}), 0)
    assert lake.run().text == "slot 1: 1 dead letter"
    lake.change(values=JsonValues({"other": "int64", "id": "int64"}, on_bad=OnBadRow.DEAD_LETTER))
    lake.change(values=JsonValues({"id": "int64"}, on_bad=OnBadRow.DEAD_LETTER))
    assert lake.run(RunRequest("again", {0: 2}, (topic,), {0: 0}, replace=True)).status is Status.COMMITTED
    assert [row["id"] for row in lake.rows()] == [1, 2]
    assert lake.journal.read_dead_letters(topic).files == ()


def test_a_field_named_as_a_column_of_the_record_is_refused_unless_it_has_a_prefix(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    values = JsonValues({"id": "int64", "timestamp": "string", "key": "string"})
    lake = Lake(kafka, tmp_path, topic, values=values)
    kafka.produce(topic, objects({"id": 1, "timestamp": "now", "key": "k"}), 0)
    failure = failure_of(lake)
    assert "'key', 'timestamp'" in failure
    assert "prefix='value_'" in failure
    lake.change(values=JsonValues(values.schema, prefix="value_"))
    assert failure_of(lake) == ""
    (row,) = lake.rows()
    assert (row["value_id"], row["value_timestamp"], row["value_key"], row["key"]) == (1, "now", "k", None)
