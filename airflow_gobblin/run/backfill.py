"""Backfills: the ranges of a dataset that a run may fill, and the units that it replaces.

A range is filled once. If part of it is covered already, the backfill is refused, unless it is to replace what is published:
then the published units that it touches are retired whole, and the range is widened to their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_gobblin.errors import NoSuchRangeError, OverlapError
from airflow_gobblin.journal.history import History
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.watermark import split

_TOLD = 5


@dataclass(frozen=True)
class Backfill:
    """A backfill of one dataset.

    :param asked: the requested range.
    :param widened: that range, widened to the whole of each unit that it replaces.
    :param ranges: the parts of it to be planned; none if the run has covered it all.
    :param replaces: the live units that the run's units replace.
    :param reopens: ranges covered without a unit, by an import or a skip, that the run's units cover, too.
    """

    asked: Range
    widened: Range
    ranges: tuple[Range, ...]
    replaces: tuple[UnitRef, ...] = ()
    reopens: tuple[Range, ...] = ()

    def __str__(self) -> str:
        if not self.replaces and not self.reopens:
            return f"range {self.asked}"
        slots = sorted({ref.slot for ref in self.replaces})
        what = [f"{many(len(self.replaces), 'unit')} of slots {slots}"] if slots else []
        what += [f"what was covered without files, {part}" for part in self.reopens]
        asked = f", widened from {self.asked} to the bounds of units" if self.widened != self.asked else ""
        return f"range {self.widened}{asked}, in place of {' and '.join(what)}"


def plan_backfill(history: History, asked: Range, run_key: str, *, replace: bool) -> Backfill:
    """Plan what a run fills of a range. Parts that the same run has already published are left as they are.

    :param replace: whether it may replace what others published.
    :raises NoSuchRangeError: the positions of the dataset are lists.
    :raises OverlapError: a part of the range is covered by others, and nothing is to be replaced.
    """
    if len(split(asked.low)) > 1:
        raise NoSuchRangeError(
            operation="backfill",
            subject=f"dataset {history.urn!r}",
            cause=f"its positions are lists, as in {asked}, and ranges of these aren't filled one by one",
            hint="Leave it out of the backfill; a rewind takes it back to a position.",
        )
    state = history.state
    touched = {ref: u.range for ref, u in state.live.items() if u.range is not None and u.range.overlaps(asked)}
    slots = {number: history.slot(number).decision for number in {ref.slot for ref in touched}}
    others = {ref: part for ref, part in touched.items() if slots[ref.slot].run_key != run_key}
    bare = _without_units(state.coverage, asked, touched)
    if (others or bare) and not replace:
        raise _overlapping(history, asked, others, bare)
    widened = asked
    for part in others.values():
        widened = Range(min(widened.low, part.low), max(widened.high, part.high))
    left = state.coverage
    for part in (*others.values(), *bare):
        left = left.remove(part)
    return Backfill(asked, widened, left.uncovered(widened), tuple(sorted(others)), bare)


def _without_units(coverage: Coverage, asked: Range, touched: Mapping[UnitRef, Range]) -> tuple[Range, ...]:
    """Return the parts of a range that are covered, but by no unit."""
    bare = Coverage().filled(asked)
    for part in (*coverage.uncovered(asked), *touched.values()):
        bare = bare.remove(part)
    return bare.ranges()


def _overlapping(
    history: History, asked: Range, others: Mapping[UnitRef, Range], bare: tuple[Range, ...]
) -> OverlapError:
    covered = [*by_slot(history, others), *(f"{part}, without files (imported, or skipped)" for part in bare)]
    more = f"; and {len(covered) - _TOLD} more" if len(covered) > _TOLD else ""
    return OverlapError(
        operation="backfill",
        subject=f"range {asked} of dataset {history.urn!r}",
        cause=f"a part of it is covered already: {'; '.join(covered[:_TOLD])}{more}",
        hint='Nothing was changed. To publish it anew in their place, start a run with "replace": true; or with an open range.',
    )


def by_slot(history: History, units: Mapping[UnitRef, Range]) -> Iterator[str]:
    """Describe the ranges that units cover, by slot and run, for people. Only for datasets of one position."""
    for number in sorted({ref.slot for ref in units}):
        parts = Coverage()
        for ref, part in units.items():
            parts = parts.filled(part) if ref.slot == number else parts
        yield f"{', '.join(map(str, parts.ranges()))} in slot {number}{history.slot(number).decision.by_run}"
