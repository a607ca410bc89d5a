from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gobblin.errors import ConfigurationError, RecordError, UnknownKindError
from airflow_gobblin.model import watermark
from airflow_gobblin.model.watermark import Json, LongWatermark, MultiLongWatermark, TimestampWatermark, Watermark

integers = st.integers(-(2**63), 2**63)
longs = integers.map(LongWatermark)
multi_longs = st.lists(integers, min_size=1, max_size=5).map(lambda values: MultiLongWatermark(tuple(values)))
timestamps = st.datetimes(
    datetime(1, 1, 3),  # noqa: DTZ001
    datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
).map(TimestampWatermark)
watermarks: st.SearchStrategy[Watermark] = st.one_of(longs, multi_longs, timestamps)


@given(watermarks)
def test_what_is_decoded_is_what_was_encoded(value: Watermark) -> None:
    document = json.loads(json.dumps(watermark.encode(value)))
    assert watermark.decode(document) == value
    assert hash(watermark.decode(document)) == hash(value)


@given(watermarks)
def test_positions_are_joined_as_they_were_split(value: Watermark) -> None:
    assert watermark.join(watermark.split(value), value.kind) == value


@given(st.one_of(st.tuples(longs, longs, longs), st.tuples(timestamps, timestamps, timestamps)))
def test_positions_are_totally_ordered(values: tuple[Any, Any, Any]) -> None:
    low, middle, high = sorted(values)
    assert not middle < low
    assert not high < middle
    assert (low < high) == (low != high)
    assert 0 <= middle.progress(low, high) <= 100
    assert low.progress(low, high) == (0 if low < high else 100)
    assert high.progress(low, high) == 100


def test_progress_in_percent() -> None:
    assert LongWatermark(25).progress(LongWatermark(0), LongWatermark(100)) == 25
    assert LongWatermark(-5).progress(LongWatermark(0), LongWatermark(100)) == 0
    assert LongWatermark(500).progress(LongWatermark(0), LongWatermark(100)) == 100
    assert LongWatermark(0).progress(LongWatermark(-13_076_562_343_181_095), LongWatermark(1)) == 100, (
        "rounded, and not above"
    )
    assert MultiLongWatermark((5, 30)).progress(MultiLongWatermark((0, 30)), MultiLongWatermark((10, 40))) == 25
    day, midday, night = (TimestampWatermark(datetime(2013, 1, 1, hour, tzinfo=UTC)) for hour in (0, 6, 12))
    assert midday.progress(day, night) == 50


def test_a_multi_long_is_behind_only_position_by_position() -> None:
    low, mixed, high = (MultiLongWatermark(v) for v in ((1, 1), (0, 5), (1, 5)))
    assert low < high
    assert mixed < high
    assert not low < mixed
    assert not mixed < low
    assert not low < low  # noqa: PLR0124


@given(st.integers(-840, 840))
def test_a_timestamp_is_one_point_in_time_in_any_zone(minutes: int) -> None:
    at = datetime(2013, 1, 1, 12, tzinfo=UTC)
    there = TimestampWatermark(at.astimezone(timezone(timedelta(minutes=minutes))))
    assert there == TimestampWatermark(at)
    assert there.to_json() == "2013-01-01T12:00:00.000000+00:00"


def test_a_timestamp_without_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it has no time zone"):
        TimestampWatermark(datetime(2013, 1, 1))  # noqa: DTZ001


def test_an_integer_position_has_64_bits_and_a_list_one_position_at_the_least() -> None:
    for beyond in (2**63 + 1, -(2**63) - 1, 10**5000):
        with pytest.raises(ConfigurationError, match="beyond the integers of 64 bits"):
            LongWatermark(beyond)
        with pytest.raises(ConfigurationError, match="beyond the integers of 64 bits"):
            MultiLongWatermark((0, beyond))
    with pytest.raises(ConfigurationError, match="it has no position"):
        MultiLongWatermark(())


@pytest.mark.parametrize(
    "document",
    [
        None,
        5,
        {},
        {"kind": "long"},
        {"kind": "long", "value": 1, "more": 2},
        {"kind": "long", "value": "1"},
        {"kind": "long", "value": True},
        {"kind": "long", "value": 1.0},
        {"kind": "long", "value": 2**63 + 1},
        {"kind": "long", "value": -(2**63) - 1},
        {"kind": "multi_long", "value": 1},
        {"kind": "multi_long", "value": [1, None]},
        {"kind": "multi_long", "value": []},
        {"kind": "multi_long", "value": [1, 2**63 + 1]},
        {"kind": "timestamp", "value": 5},
        {"kind": "timestamp", "value": "yesterday"},
        {"kind": "timestamp", "value": "2013-01-01T00:00:00"},
        {"kind": "timestamp", "value": "0001-01-01T00:00:00+05:00"},
    ],
)
def test_what_is_no_watermark_is_refused(document: Any) -> None:
    with pytest.raises(RecordError, match="watermark"):
        watermark.decode(document)


@pytest.mark.parametrize("kind", ["acme.unknown", None, ["long"]])
def test_an_unknown_kind_is_refused_by_name(kind: Any) -> None:
    with pytest.raises(UnknownKindError, match="code="):
        watermark.decode({"kind": kind, "value": 1})


@watermark.register_watermark
@dataclass(frozen=True, order=True)
class LogFileWatermark:
    """A user's own type: a file and a line in it."""

    kind: ClassVar[str] = "test.log_file"
    file: str
    line: int

    def to_json(self) -> Json:
        return [self.file, self.line]

    @classmethod
    def from_json(cls, value: Any) -> LogFileWatermark:
        return cls(*value)

    def progress(self, low: LogFileWatermark, high: LogFileWatermark) -> float:
        return watermark.percent(self.line - low.line, high.line - low.line)


def test_a_users_own_type_is_a_watermark() -> None:
    value = LogFileWatermark("a.log", 7)
    assert isinstance(value, Watermark)
    assert watermark.decode(watermark.encode(value)) == value
    assert watermark.split(value) == (value,)
    assert watermark.register_watermark(LogFileWatermark) is LogFileWatermark


def test_a_kind_belongs_to_one_class() -> None:
    @dataclass(frozen=True, order=True)
    class Another(LogFileWatermark):
        @classmethod
        def from_json(cls, value: Any) -> Another:
            return cls(*value)

    with pytest.raises(ConfigurationError, match=r"'test.log_file'.*it belongs to .*LogFileWatermark"):
        watermark.register_watermark(Another)
