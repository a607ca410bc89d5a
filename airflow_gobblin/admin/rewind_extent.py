"""The extent of a rewind, which `actions.py` carries out.

Units are retired whole, and only those that the source can supply again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from airflow_gobblin.journal.history import History
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.watermark import Watermark, join, split


def widened(to: Watermark, units: Mapping[UnitRef, Range]) -> tuple[Watermark, tuple[UnitRef, ...]]:
    """Move a position back to the bounds of the units that reach past it, and return it with these units.

    Each of several positions is moved separately, by the units that hold some of it.
    """
    lows = list(split(to))
    retired: set[UnitRef] = set()
    while True:
        reached = {ref for ref, part in units.items() if any(lows[n] < high for n, _, high in _held(part))}
        if reached == retired:
            return join(tuple(lows), to.kind), tuple(sorted(retired))
        retired = reached
        for ref in reached:
            for number, low, _ in _held(units[ref]):
                lows[number] = min(lows[number], low)


def _held(part: Range) -> Iterator[tuple[int, Watermark, Watermark]]:
    """Yield the positions that a range covers in part, each as its number with the part's low and high."""
    for number, (low, high) in enumerate(zip(split(part.low), split(part.high), strict=True)):
        if low < high:
            yield number, low, high


def not_kept(history: History, retired: Iterable[UnitRef]) -> tuple[Range, ...]:
    """Return the ranges of units that have lost rows at the source since, as far as it reported when slots were decided."""
    bound, live = history.state.kept_from, history.state.live
    if bound is None:
        return ()
    units = ((history.slot(ref.slot).decision.kept_from, live[ref].range) for ref in retired if live[ref].rows_read)
    return tuple(part for then, part in units if part is not None and _has_lost(part, then, bound))


def _has_lost(part: Range, then: Watermark | None, now: Watermark) -> bool:
    """Return whether a source lacks some of a range, if its rows began at `then` when it supplied it, and begin at `now`.

    If `then` isn't known, only a range that ends before `now` is known to lack some.
    """
    positions = zip(split(part.low), split(part.high), split(now if then is None else then), split(now), strict=False)
    return any(
        low < high and (not edge < high if then is None else max(low, was) < edge) for low, high, was, edge in positions
    )
