"""Delta columns as axes of positions: a column's values map to watermarks, and watermarks to bounds in SQL.

A row belongs to the position of its delta value. An axis has, for each watermark, a *bound*: the smallest value whose
position is at or after it. Bounds grow with their watermarks, so [low, high) of watermarks is `bound(low) <= column <
bound(high)` of values: adjacent ranges take every row once, and equal values always stay together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa

from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark

if TYPE_CHECKING:
    from airflow_gobblin.model.watermark import Watermark

Value = int | date | datetime
"""A value of a delta column: an integer, a date, a timestamp without or with its zone."""

TICK = timedelta(microseconds=1)


class AxisKind(Enum):
    """The type of a delta column's values."""

    INTEGER = "integer"
    DATE = "date"
    LOCAL = "timestamp without time zone"
    INSTANT = "timestamp with time zone"


class Axis(Protocol):
    """The positions along one delta column."""

    kind: ClassVar[AxisKind]
    watermark: ClassVar[type[Watermark]]

    def position(self, value: Value) -> Watermark:
        """Return the position of a row with this value."""

    def bound(self, watermark: Watermark) -> Value:
        """Return the smallest value whose position is at or after a watermark."""

    def after(self, value: Value) -> Watermark:
        """Return the position that follows a value's."""


@dataclass(frozen=True)
class IntegerAxis:
    """An axis of integers, which are their own positions."""

    kind: ClassVar[AxisKind] = AxisKind.INTEGER
    watermark: ClassVar[type[Watermark]] = LongWatermark

    def position(self, value: Value) -> LongWatermark:
        """Return the integer."""
        assert isinstance(value, int)
        return LongWatermark(value)

    def bound(self, watermark: Watermark) -> int:
        """Return the integer."""
        assert isinstance(watermark, LongWatermark)
        return watermark.value

    def after(self, value: Value) -> LongWatermark:
        """Return the next integer."""
        assert isinstance(value, int)
        return LongWatermark(value + 1)


@dataclass(frozen=True)
class DateAxis:
    """An axis of dates, whose position is their midnight in UTC."""

    kind: ClassVar[AxisKind] = AxisKind.DATE
    watermark: ClassVar[type[Watermark]] = TimestampWatermark

    def position(self, value: Value) -> TimestampWatermark:
        """Return midnight of the date, in UTC."""
        assert isinstance(value, date)
        return TimestampWatermark(datetime.combine(value, time(), UTC))

    def bound(self, watermark: Watermark) -> date:
        """Return the first date whose midnight is not before the watermark."""
        day = _instant(watermark).date()
        return day if self.position(day) == watermark else day + timedelta(days=1)

    def after(self, value: Value) -> TimestampWatermark:
        """Return midnight of the next date."""
        assert isinstance(value, date)
        return self.position(value + timedelta(days=1))


@dataclass(frozen=True)
class InstantAxis:
    """An axis of timestamps with their zone, which are points in time."""

    kind: ClassVar[AxisKind] = AxisKind.INSTANT
    watermark: ClassVar[type[Watermark]] = TimestampWatermark

    def position(self, value: Value) -> TimestampWatermark:
        """Return the point in time."""
        assert isinstance(value, datetime)
        return TimestampWatermark(value)

    def bound(self, watermark: Watermark) -> datetime:
        """Return the point in time, in UTC."""
        return _instant(watermark)

    def after(self, value: Value) -> TimestampWatermark:
        """Return the point a microsecond later."""
        assert isinstance(value, datetime)
        return TimestampWatermark(value + TICK)


@dataclass(frozen=True)
class LocalAxis:
    """An axis of timestamps without a zone: wall time in a zone that the author names.

    Wall time is not monotonic: an hour comes twice in autumn, another never in spring. A value that comes twice is placed at
    its second time, so that no range ends before the clock is set back and then misses rows written after it. Values
    that never come share the last position before the gap.
    """

    zone: ZoneInfo
    kind: ClassVar[AxisKind] = AxisKind.LOCAL
    watermark: ClassVar[type[Watermark]] = TimestampWatermark

    def position(self, value: Value) -> TimestampWatermark:
        """Return the last point in time whose bound is not above the value."""
        assert isinstance(value, datetime)
        at = value.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        if self._wall(at) != value:
            earlier, later = sorted((at, value.replace(tzinfo=self.zone, fold=0).astimezone(UTC)))
            at = self._change(earlier, later) - TICK
        return TimestampWatermark(at)

    def bound(self, watermark: Watermark) -> datetime:
        """Return the wall time; if it will come again, the time to which the clock is going to be set back."""
        at = _instant(watermark)
        local = at.astimezone(self.zone)
        again = local.replace(fold=1).astimezone(UTC)
        if again > at:
            return self._wall(self._change(at, again))
        return local.replace(tzinfo=None, fold=0)

    def after(self, value: Value) -> TimestampWatermark:
        """Return the point a microsecond after its position."""
        return TimestampWatermark(self.position(value).value + TICK)

    def _wall(self, at: datetime) -> datetime:
        return at.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _change(self, before: datetime, after: datetime) -> datetime:
        """Return the time when the clock is changed: the first point in time that has the offset of `after`."""
        old = before.astimezone(self.zone).utcoffset()
        while after - before > TICK:
            middle = before + (after - before) // 2
            if middle.astimezone(self.zone).utcoffset() == old:
                before = middle
            else:
                after = middle
        return after


def axis_of(kind: pa.DataType, zone: str) -> Axis | None:
    """Return the axis of a delta column of a type, or `None` if a column of this type has no order of positions."""
    if pa.types.is_integer(kind):
        return IntegerAxis()
    if pa.types.is_date(kind):
        return DateAxis()
    if pa.types.is_timestamp(kind):
        return LocalAxis(ZoneInfo(zone)) if kind.tz is None else InstantAxis()
    return None


def _instant(watermark: Watermark) -> datetime:
    assert isinstance(watermark, TimestampWatermark)
    return watermark.value


def number_of(value: Value) -> float:
    """Return a value as a number that grows with it: the integer, or seconds since 1970 (of wall time, if it has no zone)."""
    if isinstance(value, int):
        return float(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).timestamp()
    return datetime.combine(value, time(), UTC).timestamp()
