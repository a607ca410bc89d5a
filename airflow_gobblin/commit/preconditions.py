"""Preconditions of a decision (rule 3): the dataset goes on, and generation, replaced units and ranges are as planned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from airflow_gobblin.errors import AlreadyCoveredError, LostRaceError, PausedError, Remedy, SourceDataError
from airflow_gobblin.journal.history import History
from airflow_gobblin.model import schema
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.plan import Plan, is_met
from airflow_gobblin.model.state import UnitRef


def check_goes_on(history: History) -> None:
    """Check that anything new may be planned or decided for a dataset.

    :raises PausedError: it is paused.
    """
    if history.state.paused is not None:
        raise PausedError(
            operation="publish anything new of",
            subject=f"dataset {history.urn!r}",
            cause=f"it is {history.state.paused}",
            hint="Its watermark stays. To let it go on: `airflow gobblin resume`.",
        )


def _has_all_columns(plan: Plan, planned: str, published: str) -> bool:
    """Return whether a plan's schema has all published columns; those of a table may be wider."""
    if plan.table is None:
        return schema.includes(planned, published)
    from airflow_gobblin.tables.arrow.schema_rules import holds

    return holds(schema.decode(planned), schema.decode(published))


def check_preconditions(plan: Plan, ranges: tuple[Range, ...], history: History) -> None:
    """Check that a plan still holds against the chain: generation, source, replaced units, ranges (rule 3).

    :raises AlreadyCoveredError: its range was committed by another run.
    :raises LostRaceError: it no longer holds; shows why.
    """
    state = history.state
    by = history.slot(state.head).named if state.head else "nobody"
    if state.generation != plan.generation:
        raised = _raised(history, plan.generation)
        raise _lost(
            plan, f"{raised} raised the generation to {state.generation}, and this plan is of {plan.generation}"
        )
    if state.provenance is not None and plan.provenance is not None and state.provenance.bars(plan.provenance):
        raise _lost(plan, state.provenance.against(plan.provenance))
    if state.schema is not None and (plan.schema is None or not _has_all_columns(plan, plan.schema, state.schema)):
        raise _lost(plan, f"{by} published a column that this plan's schema lacks or has with another type")
    if gone := set(plan.replaces) - set(state.live):
        raise _lost(plan, f"{_retired(history, gone) or by} retired a unit that this plan replaces")
    if plan.holds.covers_ranges:
        _check_ranges(plan, ranges, history, by)
    elif plan.holds.follows_head:
        if history.changed_after(plan.head):
            raise _lost(plan, f"{by} was decided after this plan was made")
    elif history.published_after(plan.head):  # even an empty one, which leaves no unit to recognize it by
        raise _lost(plan, f"{by} published {plan.holds.what} after this plan was made")


def _check_ranges(plan: Plan, ranges: tuple[Range, ...], history: History, by: str) -> None:
    """Check that the ranges of a plan are uncovered, apart from those that it replaces or reopens.

    :param by: the newest slot.
    """
    assert plan.planned is not None
    state = history.state
    live = [unit.range for unit in state.live.values()] if plan.reopens else []
    if any(part is not None and part.overlaps(bare) for part in live for bare in plan.reopens):
        raise _lost(plan, f"{by} published units in a range that this plan found without any")
    coverage = without(history, plan)
    if is_met(plan.planned, plan.open_end, coverage):
        raise AlreadyCoveredError(
            operation="commit",
            subject=f"dataset {plan.urn!r}",
            cause=f"range {plan.asked} was committed by another run, up to {by}",
        )
    taken = [r for r in ranges if coverage.overlaps(r)]
    if taken or (plan.open_end and coverage.reaches_past(plan.planned.high)):
        by = _covering(history, taken) or by
        raise _lost(plan, f"{by} covers a part of range {taken[0] if taken else plan.asked}")


def _raised(history: History, generation: int) -> str:
    """Name the first slot that raised the generation beyond the given one."""
    slots = (history.slot(number) for number in range(1, history.state.head + 1))
    return next((s.named for s in slots if s.done and s.decision.generation > generation), "nobody")


def _retired(history: History, units: Collection[UnitRef]) -> str:
    """Name a slot that retired one of these units, if its records still exist."""
    return next((s.named for s in history.slots if s.done and not {*units}.isdisjoint(s.decision.replaces)), "")


def _covering(history: History, taken: Iterable[Range]) -> str:
    """Name the slot of a live unit in one of these ranges, if any."""
    parts = [*taken]
    live = ((ref.slot, unit.range) for ref, unit in history.state.live.items())
    found = (slot for slot, part in live if part is not None and any(part.overlaps(one) for one in parts))
    number = next(found, None)
    return "" if number is None else history.slot(number).named


def can_win(plan: Plan, history: History) -> bool:
    """Return whether a plan can still be decided.

    Once it can't, it never can again: a range is uncovered only by raising the generation, and a retired unit stays retired.
    """
    if history.by_token(plan.token) is not None or history.answer(plan.run_key) is not None:
        return False
    try:
        check_preconditions(plan, (), history)
    except LostRaceError:
        return False
    return True


def without(history: History, plan: Plan) -> Coverage:
    """Return the coverage without the ranges that a plan would cover anew."""
    return history.state.coverage.without(stood_for(plan, history))


class StandIn(Protocol):
    """A plan, or a backfill before it is one, that replaces units and ranges."""

    @property
    def replaces(self) -> tuple[UnitRef, ...]:
        """The live units that it retires."""

    @property
    def reopens(self) -> tuple[Range, ...]:
        """Ranges that are covered without a unit."""


def stood_for(plan: StandIn, history: History) -> Iterator[Range]:
    """Yield the covered ranges that the units of a plan or a backfill cover anew."""
    replaced = (history.state.live[ref].range for ref in plan.replaces)
    yield from (part for part in replaced if part is not None)
    yield from plan.reopens


def check_whole(plan: Plan, history: History, coverage: Coverage) -> None:
    """Check that a replacement covers all that it replaces: the coverage never shrinks by it.

    :raises SourceDataError: a unit ended too early.
    """
    left = [gone for gone in stood_for(plan, history) if plan.holds.covers_ranges and not coverage.covers(gone)]
    if left:
        raise SourceDataError(
            operation="replace",
            subject=f"range {left[0]} of dataset {plan.urn!r}",
            cause="the new units don't reach to its end",
            hint="Published data stays as it was. See why the source stopped there.",
            remedy=Remedy.PLAN,
        )


def _lost(plan: Plan, why: str) -> LostRaceError:
    return LostRaceError(
        operation="commit",
        subject=f"dataset {plan.urn!r}",
        cause=why,
        hint="Nothing of this plan was published.",
        remedy=Remedy.PLAN,
    )
