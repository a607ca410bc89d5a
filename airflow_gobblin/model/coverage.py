"""Coverage: the committed ranges of a dataset. The watermark is its contiguous edge.

Ranges are half-open, [low, high), over watermarks. A coverage of a `MultiLongWatermark` dataset keeps one set of ranges per
position; every other dataset has one position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest

from airflow_gobblin.errors import ConfigurationError, GobblinError, Remedy
from airflow_gobblin.model.watermark import Watermark, encode, join, split


@dataclass(frozen=True, slots=True)
class Range:
    """[low, high) over source positions.

    :raises ConfigurationError: its bounds are of different kinds, or have different numbers of positions.
    """

    low: Watermark
    high: Watermark

    def __post_init__(self) -> None:
        if self.low.kind != self.high.kind or len(split(self.low)) != len(split(self.high)):
            raise ConfigurationError(
                operation="make",
                subject=f"range {self}",
                cause=f"its bounds, {_shape(self.low)} and {_shape(self.high)}, can't be compared",
                hint="Give both as watermarks of one kind, with as many positions.",
            )

    @property
    def empty(self) -> bool:
        """Whether no position lies in the range."""
        return not any(low < high for low, high in self._positions())

    def overlaps(self, other: Range) -> bool:
        """Return whether a position lies in both."""
        pairs = zip(self._positions(), other._positions(), strict=False)
        return any(low < h and lo < high and low < high and lo < h for (low, high), (lo, h) in pairs)

    def _positions(self) -> Iterator[tuple[Watermark, Watermark]]:
        return zip(split(self.low), split(self.high), strict=True)

    def __str__(self) -> str:
        return f"[{encode(self.low)['value']}, {encode(self.high)['value']})"


def _shape(watermark: Watermark) -> str:
    return f"{watermark.kind!r} of {len(split(watermark))} positions"


def padded(part: Range, origin: Watermark) -> Range:
    """Return a range with as many positions as `origin` has; it is empty in the added ones."""
    later = split(origin)[len(split(part.low)) :]
    low, high = (join((*split(bound), *later), bound.kind) for bound in (part.low, part.high))
    return Range(low, high)


Interval = tuple[Watermark, Watermark]


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Sort intervals, and merge those that touch or overlap."""
    result: list[Interval] = []
    for low, high in sorted((i for i in intervals if i[0] < i[1]), key=lambda i: i[0]):
        if result and not result[-1][1] < low:
            before = result.pop()
            result.append((before[0], max(before[1], high)))
        else:
            result.append((low, high))
    return tuple(result)


def _with(have: tuple[Interval, ...], new: Interval) -> tuple[Interval, ...]:
    """Add an interval to disjoint sorted ones; mostly it comes after all of them."""
    if not have or new[0] < have[-1][0] or not new[0] < new[1]:
        return _merged((*have, new))
    low, high = have[-1]
    return (*have, new) if high < new[0] else (*have[:-1], (low, max(high, new[1])))


def _minus(intervals: Iterable[Interval], taken: Interval) -> tuple[Interval, ...]:
    """Return the remainder of the intervals without `taken`."""
    if not taken[0] < taken[1]:
        return tuple(intervals)
    result: list[Interval] = []
    for low, high in intervals:
        if not low < taken[1] or not taken[0] < high:
            result.append((low, high))
            continue
        if low < taken[0]:
            result.append((low, taken[0]))
        if taken[1] < high:
            result.append((taken[1], high))
    return tuple(result)


@dataclass(frozen=True)
class Coverage:
    """The committed ranges of a dataset, from its `origin` (the low of the first range that was ever planned).

    `intervals` contains, for each position, disjoint sorted intervals.
    """

    origin: Watermark | None = None
    intervals: tuple[tuple[Interval, ...], ...] = ()

    def starting_at(self, origin: Watermark) -> Coverage:
        """Return this coverage with an origin, if it has none yet. New positions (one more partition) start empty."""
        width = len(split(origin))
        if self.starts(origin) and width <= len(self.intervals):
            return self
        grown = self.intervals + ((),) * (width - len(self.intervals))
        if self.origin is None:
            return Coverage(origin, grown)
        known = split(self.origin)
        return Coverage(join(known + split(origin)[len(known) :], self.origin.kind), grown)

    def add(self, added: Range) -> Coverage:
        """Return this coverage with one more range.

        :raises GobblinError: it overlaps a covered range (I2), or is of another kind.
        """
        if self.overlaps(added):
            raise GobblinError(
                operation="cover",
                subject=f"range {added}",
                cause="a part of it is covered already",
                remedy=Remedy.PLAN,
            )
        return self.filled(added)

    def filled(self, added: Range) -> Coverage:
        """Return this coverage with a range that may be partly covered already.

        :raises GobblinError: as `add`, except for an overlap.
        """
        added = self._fitting(added)
        base = self.starting_at(added.low)
        return Coverage(
            base.origin,
            tuple(_with(have, new) for have, new in zip(base.intervals, added._positions(), strict=True)),
        )

    def remove(self, removed: Range) -> Coverage:
        """Return this coverage without a range; one that is not covered changes nothing.

        :raises GobblinError: it is of another kind.
        """
        # A coverage may have fewer positions than the range, if nothing of the newer ones is covered.
        gone = tuple(self._fitting(removed)._positions())[: len(self.intervals)]
        return Coverage(self.origin, tuple(_minus(have, part) for have, part in zip(self.intervals, gone, strict=True)))

    def without(self, removed: Iterable[Range]) -> Coverage:
        """Return this coverage without some ranges. Errors are those of `remove`."""
        left = self
        for gone in removed:
            left = left.remove(gone)
        return left

    def overlaps(self, other: Range) -> bool:
        """Return whether any position of `other` is covered.

        :raises GobblinError: it is of another kind.
        """
        self._fitting(other)
        return any(
            low < h and lo < high
            for have, (lo, h) in zip(self.intervals, other._positions(), strict=False)
            for low, high in have
            if lo < h
        )

    def covers(self, other: Range) -> bool:
        """Return whether every position of `other` is covered.

        :raises GobblinError: it is of another kind.
        """
        other = self._fitting(other)
        width = len(split(other.low))
        have = self.intervals + ((),) * (width - len(self.intervals))
        return all(not _uncovered(h, part) for h, part in zip(have, other._positions(), strict=True))

    def starts(self, low: Watermark) -> bool:
        """Return whether it has an origin with at least as many positions as `low`."""
        return self.origin is not None and len(split(low)) <= len(split(self.origin))

    def reaches_past(self, position: Watermark) -> bool:
        """Return whether anything beyond a position is covered, in at least one of its positions."""
        return any(have and low < have[-1][1] for have, low in zip(self.intervals, split(position), strict=False))

    @property
    def edge(self) -> Watermark | None:
        """The watermark: the end of the contiguous coverage from the origin on."""
        if self.origin is None:
            return None
        edges = (
            next((high for low, high in have if not start < low and not high < start), start)
            for have, start in zip(self.intervals, split(self.origin), strict=True)
        )
        return join(tuple(edges), self.origin.kind)

    @property
    def end(self) -> Watermark | None:
        """The highest covered position, regardless of gaps; the origin if nothing is covered."""
        if self.origin is None:
            return None
        ends = (have[-1][1] if have else start for have, start in zip(self.intervals, split(self.origin), strict=True))
        return join(tuple(ends), self.origin.kind)

    def uncovered(self, within: Range) -> tuple[Range, ...]:
        """Return the parts of a range that are not covered, in order; with several positions, in the form of `ranges_of`."""
        return ranges_of(self.gaps(within), within.low)

    def gaps(self, within: Range) -> tuple[tuple[Interval, ...], ...]:
        """Return the intervals of a range that are not covered, in order, for each of its positions."""
        self._fitting(within)
        pairs = zip_longest(self.intervals, within._positions(), fillvalue=())
        return tuple(_uncovered(have, part) for have, part in pairs if part)

    def _fitting(self, other: Range) -> Range:
        """Return a range with at least as many positions as the coverage has: it may date from before the dataset had more.

        :raises GobblinError: it can't be compared with the coverage.
        """
        if self.origin is None:
            return other
        if self.origin.kind == other.low.kind:
            return padded(other, self.origin)
        raise GobblinError(
            operation="compare",
            subject=f"range {other} with the coverage",
            cause=f"its bounds are {_shape(other.low)}, and the coverage is {_shape(self.origin)}",
            hint="The source gives other positions than before: go back to the former ones, or publish under another URN.",
        )

    def ranges(self) -> tuple[Range, ...]:
        """Return the covered ranges, in order; with several positions, in the form of `ranges_of`."""
        return () if self.origin is None else ranges_of(self.intervals, self.origin)


def ranges_of(intervals: Sequence[Sequence[Interval]], rest: Watermark) -> tuple[Range, ...]:
    """Return the intervals of each position as ranges: the first one of each together, then the second of each, and so on.

    :param rest: where a range is empty, in the positions that have no more intervals.
    """
    rows = zip_longest(*intervals)
    return tuple(
        _joined([part or (at, at) for part, at in zip(row, split(rest), strict=True)], rest.kind) for row in rows
    )


def _joined(parts: Iterable[Interval], kind: str) -> Range:
    lows, highs = zip(*parts, strict=True)
    return Range(join(lows, kind), join(highs, kind))


def _uncovered(have: Iterable[Interval], part: Interval) -> tuple[Interval, ...]:
    whole: tuple[Interval, ...] = (part,) if part[0] < part[1] else ()
    return reduce(_minus, have, whole)
