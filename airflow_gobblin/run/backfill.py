"""Backfills: the ranges of a dataset that a run may fill, and the units that it replaces.

A range is filled once. If part of it is covered already, the backfill is refused, unless it is to replace what is published:
then the published units that it touches are retired whole, and the range is widened to their bounds. In a dataset of several
positions a unit has a range in each of them, so the range of one may be widened to parts of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from airflow_gobblin.errors import OverlapError
from airflow_gobblin.journal.history import History
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.state import UnitRef

_PARTS_NAMED = 5


@dataclass(frozen=True)
class Backfill:
    """A backfill of one dataset.

    :param asked: the requested range.
    :param widened: that range, widened to the whole of each unit that it replaces: one range, unless there are several positions.
    :param ranges: the parts of it to be planned; none if the run has covered it all.
    :param replaces: the live units that the run's units replace.
    :param reopens: ranges covered without a unit, by an import or a skip, that the run's units cover, too.
    """

    asked: Range
    widened: tuple[Range, ...]
    ranges: tuple[Range, ...]
    replaces: tuple[UnitRef, ...] = ()
    reopens: tuple[Range, ...] = ()

    def __str__(self) -> str:
        if not self.replaces and not self.reopens:
            return f"range {self.asked}"
        slots = sorted({ref.slot for ref in self.replaces})
        what = [f"{many(len(self.replaces), 'unit')} of slots {slots}"] if slots else []
        what += [f"what was covered without files, {part}" for part in self.reopens]
        widened = self.widened != (self.asked,)
        asked = f", widened from {self.asked} to the bounds of units" if widened else ""
        return f"range {' and '.join(map(str, self.widened))}{asked}, in place of {' and '.join(what)}"


def plan_backfill(history: History, asked: Range, run_key: str, *, replace: bool) -> Backfill:
    """Plan which parts of a range a run fills. Those that the same run has already published are left as they are.

    :param replace: whether it may replace what others published.
    :raises OverlapError: a part of the range is covered by others, and nothing is to be replaced.
    """
    state = history.state
    touched = {ref: u.range for ref, u in state.live.items() if u.range is not None and u.range.overlaps(asked)}
    slots = {number: history.slot(number).decision for number in {ref.slot for ref in touched}}
    others = {ref: part for ref, part in touched.items() if slots[ref.slot].run_key != run_key}
    bare = _without_units(state.coverage, asked, touched)
    if (others or bare) and not replace:
        raise _overlapping(history, asked, others, bare)
    widened = reduce(Coverage.filled, others.values(), Coverage().filled(asked)).ranges()
    left = state.coverage.without((*others.values(), *bare))
    ranges = tuple(part for whole in widened for part in left.uncovered(whole))
    return Backfill(asked, widened, ranges, tuple(sorted(others)), bare)


def _without_units(coverage: Coverage, asked: Range, touched: Mapping[UnitRef, Range]) -> tuple[Range, ...]:
    """Return the parts of a range that are covered, but by no unit."""
    return Coverage().filled(asked).without((*coverage.uncovered(asked), *touched.values())).ranges()


def _overlapping(
    history: History, asked: Range, others: Mapping[UnitRef, Range], bare: tuple[Range, ...]
) -> OverlapError:
    covered = [*by_slot(history, others), *(f"{part}, without files (imported, or skipped)" for part in bare)]
    more = f"; and {len(covered) - _PARTS_NAMED} more" if len(covered) > _PARTS_NAMED else ""
    return OverlapError(
        operation="backfill",
        subject=f"range {asked} of dataset {history.urn!r}",
        cause=f"a part of it is covered already: {'; '.join(covered[:_PARTS_NAMED])}{more}",
        hint='Nothing was changed. To publish it anew in their place, start a run with "replace": true; or with an open range.',
    )


def by_slot(history: History, units: Mapping[UnitRef, Range]) -> Iterator[str]:
    """Describe the ranges that units cover, by slot and run, for people."""
    for number in sorted({ref.slot for ref in units}):
        parts = Coverage()
        for ref, part in units.items():
            parts = parts.filled(part) if ref.slot == number else parts
        yield f"{', '.join(map(str, parts.ranges()))} in slot {number}{history.slot(number).decision.by_run}"
