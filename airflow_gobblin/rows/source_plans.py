"""Checks of a source's plan before anything is read: a fault in it would lose rows, or leave a run green forever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from airflow_gobblin.errors import SourceError
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Watermark, encode, highest, lowest, split
from airflow_gobblin.model.work import WorkUnit


@dataclass(frozen=True)
class JudgedPlan:
    """A source's plan that can be carried out.

    :param units: iterated once; each is checked as it comes. None if a snapshot is empty.
    :param planned: the range that they are to cover; `None` for a snapshot.
    :param open_end: whether the last of them continues from its end to an unknown one.
    """

    units: Iterator[WorkUnit]
    planned: Range | None = None
    open_end: bool = False


def judge_plan(urn: str, units: Iterable[WorkUnit], planned: Range | None, coverage: Coverage) -> JudgedPlan | None:
    """Check the plan of a dataset with positions; return `None` if there is nothing to do.

    If all units are empty, they cover nothing. If the dataset has no start yet, they give it its first watermark.

    :param planned: the source's planned range; without one it is the range of the units, which are then all in memory.
    :param coverage: the committed coverage that is not to be replaced.
    :raises SourceError: a unit doesn't fit the plan; most faults are found only as the units are iterated.
    """
    judge = _Judge(urn, planned, coverage)
    checked = judge.checked(units)
    first = [*_to_first_with_rows(checked)] if planned is not None else [*checked]
    if not first:
        return None
    if all(unit.empty for unit in first):
        low = planned.low if planned is not None else judge.low
        if coverage.starts(low):
            return None
        return JudgedPlan(iter(first), Range(low, low))
    if planned is None:
        return JudgedPlan(iter(first), Range(judge.low, judge.high), judge.open_unit is not None)
    return JudgedPlan(chain(first, checked), planned)


def judge_snapshot(urn: str, units: Iterable[WorkUnit], state: DatasetState) -> JudgedPlan | None:
    """Check the plan of a snapshot, whose units may have bounds to be read by, but no positions.

    If there is no unit, the dataset is empty, and is to be published as empty; return `None` if it already is.

    :raises SourceError: as `judge_plan`.
    """
    judge = _Judge(urn, None, Coverage())
    ordered = judge.in_order(units)
    first = next(ordered, None)
    if first is not None:
        return JudgedPlan(chain([first], ordered))
    is_published = state.schema is not None
    return None if is_published and not state.live else JudgedPlan(ordered)


def _to_first_with_rows(units: Iterator[WorkUnit]) -> Iterator[WorkUnit]:
    for unit in units:
        yield unit
        if not unit.empty:
            return


class _Judge:
    """A checker of units, one by one, that keeps where they begin and end."""

    def __init__(self, urn: str, planned: Range | None, coverage: Coverage) -> None:
        self._urn = urn
        self._planned = planned
        self._coverage = coverage
        self._low: Watermark | None = None
        self._high: Watermark | None = None
        self.open_unit: WorkUnit | None = None
        if planned is not None and _beyond(planned.high, planned.low):
            raise self._refused(f"the planned range is {planned}: its low is above its high")

    @property
    def low(self) -> Watermark:
        """The position where the units begin."""
        assert self._low is not None
        return self._low

    @property
    def high(self) -> Watermark:
        """The position where they end, as far as it is known."""
        assert self._high is not None
        return self._high

    def checked(self, units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
        """Yield the units, each checked as it comes."""
        for unit in units:
            self._check(unit)
            yield unit

    def in_order(self, units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
        """Yield the units, checking only that each begins before it ends."""
        for unit in units:
            self._check_order(unit)
            yield unit

    def _check_order(self, unit: WorkUnit) -> None:
        """Check that a unit begins before it ends."""
        if unit.low is not None and unit.expected_high is not None and _beyond(unit.expected_high, unit.low):
            raise self._refused(f"{_shown(unit)}: its low is above its high")

    def _check(self, unit: WorkUnit) -> None:
        if unit.low is None:
            raise self._refused(f"unit {unit.id!r} has no low position, so the range that it covers is unknown")
        self._check_order(unit)
        low, high = unit.low, unit.low if unit.expected_high is None else unit.expected_high
        self._check_planned(unit, Range(low, high))
        self._check_open(unit, high)
        self._check_covered(unit, Range(low, high))
        self._low = low if self._low is None else lowest([self._low, low])
        self._high = high if self._high is None else highest([self._high, high])

    def _check_planned(self, unit: WorkUnit, part: Range) -> None:
        planned = self._planned
        if planned is None:
            return
        Range(planned.low, part.low)  # raises if they can't be compared
        if _beyond(part.low, planned.low) or _beyond(planned.high, part.high):
            raise self._refused(f"{_shown(unit)}, outside of the planned range {planned}")

    def _check_open(self, unit: WorkUnit, high: Watermark) -> None:
        """Check that no unit lies above the low of a unit whose end isn't known."""
        if unit.expected_high is None and self.open_unit is not None:
            raise self._refused(f"{_shown(unit)}, and where {self.open_unit.id!r} ends is not known, either")
        if unit.expected_high is None:
            self.open_unit = unit
            high = high if self._high is None else self._high
        if self.open_unit is not None and self.open_unit.low is not None and _beyond(self.open_unit.low, high):
            low = _value(self.open_unit.low)
            raise self._refused(
                f"where unit {self.open_unit.id!r} ends is not known, so no other unit may lie above {low}"
            )

    def _check_covered(self, unit: WorkUnit, part: Range) -> None:
        open_end = unit.expected_high is None and self._planned is None
        if self._coverage.overlaps(part) or (open_end and self._coverage.reaches_past(part.low)):
            raise self._refused(f"{_shown(unit)}, and a part of that is covered already")

    def _refused(self, cause: str) -> SourceError:
        return SourceError(
            operation="plan",
            subject=f"dataset {self._urn!r}",
            cause=cause,
            hint="This is a fault of the source's code. Nothing was changed.",
        )


def _beyond(position: Watermark, other: Watermark) -> bool:
    """Return whether `other` lies beyond a position, in at least one of its positions."""
    return any(one < two for one, two in zip(split(position), split(other), strict=True))


def _shown(unit: WorkUnit) -> str:
    low = "…" if unit.low is None else _value(unit.low)
    return f"unit {unit.id!r} is of [{low}, {'…' if unit.expected_high is None else _value(unit.expected_high)})"


def _value(watermark: Watermark) -> str:
    return str(encode(watermark)["value"])
