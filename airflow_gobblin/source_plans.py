"""What a source plans, judged before anything is read: by a fault here rows would be lost, or a run would be green for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.errors import SourceError
from airflow_gobblin.watermark import Watermark, encode, highest, lowest, split
from airflow_gobblin.work import WorkUnit


@dataclass(frozen=True)
class JudgedPlan:
    """A source's plan that can be carried out.

    :param units: gone through once; each is judged as it comes.
    :param planned: the range that they are to cover; `None` of a snapshot.
    :param open_end: whether the last of them goes on from its end to one that isn't known.
    """

    units: Iterator[WorkUnit]
    planned: Range | None = None
    open_end: bool = False


def judge_plan(urn: str, units: Iterable[WorkUnit], planned: Range | None, coverage: Coverage) -> JudgedPlan | None:
    """A plan of a dataset with positions; `None` where there is nothing to do.

    Units that are all empty cover nothing. Where a dataset doesn't start anywhere yet, they give it its first watermark.

    :param planned: as the source says; without one it is what the units cover, which are then all in memory.
    :param coverage: what is committed, and not to be replaced.
    :raises SourceError: a unit can't be of this plan; most are found only as the units are gone through.
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


def judge_snapshot(urn: str, units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
    """The units of a snapshot, which may have bounds to be read by, and no positions. :raises SourceError: as `judge_plan`."""
    judge = _Judge(urn, None, Coverage())
    for unit in units:
        judge.check_order(unit)
        yield unit


def _to_first_with_rows(units: Iterator[WorkUnit]) -> Iterator[WorkUnit]:
    for unit in units:
        yield unit
        if not unit.empty:
            return


class _Judge:
    """Judges units one by one, and keeps where they begin and end."""

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
        """Where the units begin."""
        assert self._low is not None
        return self._low

    @property
    def high(self) -> Watermark:
        """Where they end, as far as that is known."""
        assert self._high is not None
        return self._high

    def checked(self, units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
        """The units, each judged when it comes."""
        for unit in units:
            self._check(unit)
            yield unit

    def check_order(self, unit: WorkUnit) -> None:
        """Whether a unit begins before it ends."""
        if unit.low is not None and unit.expected_high is not None and _beyond(unit.expected_high, unit.low):
            raise self._refused(f"{_said(unit)}: its low is above its high")

    def _check(self, unit: WorkUnit) -> None:
        if unit.low is None:
            raise self._refused(f"unit {unit.id!r} doesn't say where it starts, so it can't be told what it covers")
        self.check_order(unit)
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
        Range(planned.low, part.low)  # or they can't be compared
        if _beyond(part.low, planned.low) or _beyond(planned.high, part.high):
            raise self._refused(f"{_said(unit)}, outside of the planned range {planned}")

    def _check_open(self, unit: WorkUnit, high: Watermark) -> None:
        """A unit whose end isn't known is alone above its low."""
        if unit.expected_high is None and self.open_unit is not None:
            raise self._refused(f"{_said(unit)}, and where {self.open_unit.id!r} ends is not known, either")
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
            raise self._refused(f"{_said(unit)}, and a part of that is covered already")

    def _refused(self, cause: str) -> SourceError:
        return SourceError(
            operation="plan",
            subject=f"dataset {self._urn!r}",
            cause=cause,
            hint="This is a fault of the source's code. Nothing was changed.",
        )


def _beyond(position: Watermark, other: Watermark) -> bool:
    """Whether another position lies beyond one, in one of its positions at least."""
    return any(one < two for one, two in zip(split(position), split(other), strict=True))


def _said(unit: WorkUnit) -> str:
    low = "…" if unit.low is None else _value(unit.low)
    return f"unit {unit.id!r} is of [{low}, {'…' if unit.expected_high is None else _value(unit.expected_high)})"


def _value(watermark: Watermark) -> str:
    return str(encode(watermark)["value"])
