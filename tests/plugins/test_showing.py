"""Words and drawings of the page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from airflow_gobblin.admin.views import PositionCoverage, SlotView
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import many, size
from airflow_gobblin.model.status import SlotState
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.plugins.page.showing import WIDTH, Pages, brief, chart, coverage_bars, short

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def between(low: int, high: int) -> Range:
    return Range(LongWatermark(low), LongWatermark(high))


def slot(number: int, *, ranges: tuple[Range, ...] = (), files: int = 0, rows: int = 0) -> SlotView:
    return SlotView(
        slot=number,
        action=Action.COMMIT,
        state=SlotState.DONE,
        decided=NOW,
        ended=NOW,
        ranges=ranges,
        removed=(),
        units={},
        files=files,
        rows=rows,
        rows_read=rows,
        retires=0,
        steps=1,
        run_key="",
        run="",
        actor="",
        reason="",
        abandoned_by="",
        abandon_reason="",
        failures=(),
        releases=(),
        trimmed=False,
    )


def test_a_bar_shows_what_is_covered_what_is_open_and_what_is_coming() -> None:
    covered = (between(10, 30), between(50, 60))
    position = PositionCoverage(0, LongWatermark(10), LongWatermark(30), covered, (between(30, 50),))
    (bar,) = coverage_bars([position], slot(2, ranges=(between(60, 110),)))
    assert (bar.name, bar.low, bar.high) == ("", "10", "110")
    assert [(part.kind, part.x, part.width) for part in bar.bars] == [
        ("covered", 0, 200),
        ("covered", 400, 100),
        ("gap", 200, 200),
        ("pending", 500, 500),
    ]
    assert bar.bars[0].title == "covered: [10, 30)"


def test_a_first_load_that_is_pending_has_a_bar() -> None:
    (bar,) = coverage_bars([], slot(1, ranges=(between(0, 4), between(4, 8))))
    assert [(part.kind, part.x, part.width) for part in bar.bars] == [("pending", 0, 500), ("pending", 500, 500)]
    assert coverage_bars([], None) == ()


def test_each_position_has_a_bar_and_a_narrow_range_is_still_seen() -> None:
    wide = (between(0, 1_000_000),)
    positions = [PositionCoverage(n, LongWatermark(0), LongWatermark(1_000_000), wide, ()) for n in range(2)]
    coming = Range(MultiLongWatermark((1_000_000, 1_000_000)), MultiLongWatermark((1_000_000, 1_000_001)))
    first, second = coverage_bars(positions, slot(2, ranges=(coming,)))
    assert (first.name, second.name) == ("position 0", "position 1")
    assert [part.kind for part in first.bars] == ["covered"]
    assert [part.kind for part in second.bars] == ["covered", "pending"]
    assert 0 < second.bars[-1].width <= WIDTH / 100


def test_there_is_a_column_for_each_slot_the_newest_last() -> None:
    columns = chart([slot(3, rows=50), slot(2, rows=0), slot(1, rows=100)], lambda one: one.rows, "row")
    assert [column.height for column in columns] == [100, 0, 50]
    assert [column.y + column.height for column in columns] == [100, 100, 100]
    assert columns[0].x < columns[1].x < columns[2].x
    assert columns[0].title == "slot 1, done: 100 rows, decided 2026-03-01T12:00:00+00:00"
    (one,) = chart([slot(1, rows=1)], lambda one: one.rows, "row")
    assert one.title == "slot 1, done: 1 row, decided 2026-03-01T12:00:00+00:00"
    assert chart([], lambda one: one.rows, "row") == ()


@dataclass(frozen=True, order=True)
class Long:
    """A watermark whose text may have any length."""

    kind: ClassVar[str] = "test.long_text"
    text: str

    def to_json(self) -> str:
        return self.text

    @classmethod
    def from_json(cls, value: Any) -> Long:
        return cls(value)

    def progress(self, low: Long, high: Long) -> float:
        return 100.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (LongWatermark(4711), "4711"),
        (TimestampWatermark(NOW + timedelta(microseconds=1)), "2026-03-01 12:00:00 UTC"),
        (Long("x" * 500), '"' + "x" * 58 + "…"),
        (None, ""),
    ],
)
def test_a_position_is_shown_in_few_words(value: Watermark | None, expected: str) -> None:
    assert brief(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h"), (90061, "1 d 1 h"), (86400 * 400, "400 d")],
)
def test_a_time_span_is_shown_by_its_largest_units(seconds: int, expected: str) -> None:
    assert short(timedelta(seconds=seconds)) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123.5 kB"), (10**18, "1000.0 PB")]
)
def test_bytes_are_shown_in_a_unit_that_fits(number: int, expected: str) -> None:
    assert size(number) == expected


def test_things_are_counted() -> None:
    assert [many(number, "run") for number in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
    assert (Pages(0, 50, 50, 120).before, Pages(0, 50, 50, 120).after) == (None, 50)
    assert (Pages(100, 20, 50, 120).before, Pages(100, 20, 50, 120).after) == (50, None)
    assert (Pages(20, 50, 50, 120).before, Pages(20, 50, 50, 120).after) == (0, 70)
