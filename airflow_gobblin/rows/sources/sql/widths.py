"""Units of one width, in time or in keys: each begins and ends at a multiple of it, whatever its content."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.watermark import LONGS, LongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.rows.sources.sql.positions import AxisKind
from airflow_gobblin.rows.sources.sql.scan import Extent, Piece, Scan

MAX_UNITS = 100_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEAR = 4
"""The most widths that a bucket of the database covers, except for keys too great to be distinguished as floats."""


@dataclass(frozen=True)
class Width:
    """The width of units: multiples are counted from 0, or from 1970-01-01 00:00 UTC."""

    value: int | timedelta

    def index(self, position: Watermark) -> int:
        """Return the multiple that a position lies at or after."""
        if isinstance(self.value, int):
            assert isinstance(position, LongWatermark)
            return position.value // self.value
        assert isinstance(position, TimestampWatermark)
        return (position.value - _EPOCH) // self.value

    def edge(self, index: int) -> Watermark:
        """Return the position of a multiple."""
        if isinstance(self.value, int):
            return LongWatermark(min(max(LONGS[0], index * self.value), LONGS[1]))
        return TimestampWatermark(_EPOCH + index * self.value)

    @property
    def number(self) -> float:
        """The width as a number, as `number_of` returns one for a value: keys, or seconds."""
        return float(self.value) if isinstance(self.value, int) else self.value.total_seconds()


def split_by_width(scan: Scan, part: Range, extent: Extent) -> list[Piece]:
    """Split a range into pieces of the table's width, clipped at its ends. An empty stretch between rows is one piece.

    :raises ConfigurationError: the width doesn't fit the delta column, or makes too many.
    """
    width = _width(scan)
    rows = _rows(scan, part, extent, width)
    pieces: list[Piece] = []
    low = part.low
    for index in sorted(rows):
        begin, end = max(part.low, width.edge(index)), min(part.high, width.edge(index + 1))
        if low < begin:
            pieces.append((Range(low, begin), 0))
        pieces.append((Range(begin, end), rows[index]))
        low = end
    return [*pieces, (Range(low, part.high), 0)] if low < part.high or not pieces else pieces


def _rows(scan: Scan, part: Range, extent: Extent, width: Width) -> Counter[int]:
    """Estimate the number of rows in each width that may have some."""
    _, axis = scan.positions()
    rows: Counter[int] = Counter()
    for bucket in scan.of_width(part.low, part.high, width.number, MAX_UNITS + 1) if extent.rows else ():
        assert bucket.least is not None
        assert bucket.greatest is not None
        first, last = (width.index(axis.position(value)) for value in (bucket.least, bucket.greatest))
        met = range(first, last + 1) if last - first < _NEAR else (first, last)
        rows.update({index: bucket.rows // len(met) for index in met})
        rows[first] += bucket.rows % len(met)
    if len(rows) > MAX_UNITS:
        raise _refused(scan, f"its `unit_width` makes more than {MAX_UNITS:,} units", "Give a greater one.")
    return rows


def _width(scan: Scan) -> Width:
    given, keys = scan.table.unit_width, "Give `unit_width` as an int, in keys."
    if scan.delta is None or scan.axis is None:
        raise _refused(
            scan, "it has a `unit_width`, and no integer to be split by", "Name one as `delta`, or take it out."
        )
    of = f"its `unit_width` is a {{}}, and its delta column {scan.delta.name!r} of kind {scan.axis.kind.value}"
    if scan.axis.kind is AxisKind.INTEGER:
        if not isinstance(given, int):
            raise _refused(scan, of.format("time"), keys)
        return Width(given)
    if not isinstance(given, float):
        raise _refused(scan, of.format("number"), "Give `unit_width` as a timedelta.")
    time = timedelta(seconds=given)
    if scan.axis.kind is AxisKind.DATE and time % timedelta(days=1):
        raise _refused(scan, f"its `unit_width` is {time}, and its delta column holds dates", "Give whole days.")
    return Width(time)


def _refused(scan: Scan, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="plan", subject=scan.session.subject, cause=cause, hint=hint)
