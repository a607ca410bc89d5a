"""What a stage says of a dataset: a word for what became of it, and a sentence for people."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from airflow_gobblin.backfill import by_slot
from airflow_gobblin.coverage import Range
from airflow_gobblin.errors import (
    AlreadyCoveredError,
    GobblinError,
    IncompleteRunError,
    LostRaceError,
    PausedError,
    without_stop,
)
from airflow_gobblin.history import History, Slot
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.naming import many, shown
from airflow_gobblin.plan import DatasetNote
from airflow_gobblin.state import DatasetState, UnitRef
from airflow_gobblin.watermark import Watermark, encode, highest, split
from airflow_gobblin.work import UnitState, UnitSummary, first_cause

log = logging.getLogger(__name__)

TOLD = 10
"""Of so many datasets, the first, the error of a run tells the cause."""
_SLOTS_TOLD = 5
_STUCK_AFTER = 3
"""After so many runs without progress it is told."""
_ANEW = "Clear create_work_units with its downstream tasks to plan its range anew."


@dataclass(frozen=True)
class DatasetReport:
    """What a stage did with a dataset.

    :param status: one word of: committed, noop, idle, partial, failed, skipped, lost, covered, quarantined, paused, waiting,
        recovered, pending.
    :param retryable: it failed, and the same stage may succeed if it is tried again.
    :param already: it was committed before, and the stage found nothing to do.
    """

    urn: str
    status: str
    detail: str = ""
    slot: int | None = None
    files: int = 0
    rows: int = 0
    watermark: Watermark | None = None
    retryable: bool = False
    already: bool = False

    @property
    def ok(self) -> bool:
        """Whether a run that ends so is green (partial is, where the ingestion says so)."""
        return self.status in ("committed", "noop", "idle", "covered", "recovered", "paused", "waiting")


def published(slot: Slot, status: str, detail: str, state: DatasetState) -> DatasetReport:
    """What to say of a slot, with what it published."""
    decision = slot.decision
    return DatasetReport(
        decision.urn, status, detail, decision.slot, files=slot.files, rows=slot.rows, watermark=state.watermark
    )


def already(slot: Slot, history: History) -> DatasetReport:
    """What to say of a slot that was finished before."""
    if not slot.done:
        return given_up(slot, history)
    report = published(slot, "committed", f"already committed in {said(slot)}", history.state)
    return replace(report, already=True)


def given_up(slot: Slot, history: History) -> DatasetReport:
    """What to say of a slot that somebody abandoned: who, why, and what now."""
    return published(slot, "lost", f"{slot.given_up}. {_ANEW}", history.state)


def unpublished(urn: str, units: Collection[UnitSummary], then: str = "", stuck: str = "") -> DatasetReport:
    """What to say of a plan of which the policy publishes nothing: the same in each task.

    :param then: what to do. :param stuck: as `no_progress` says.
    """
    why = f"nothing of its {many(len(units), 'unit')} is published" if units else "nothing of it was published"
    cause = without_stop(first_cause(units)) + (f"; {stuck}" if stuck else "")
    return DatasetReport(urn, "failed", f"{why}: {cause}. {then}" if then else f"{why}: {cause}")


def no_progress(history: History) -> str:
    """What to say of a unit of the newest run that made no progress in this and several runs before; empty if there is none."""
    runs = [{unit.low or unit.unit: unit for unit in units if unit.stuck} for units in history.runs()]
    for low, unit in runs[0].items() if len(runs) >= _STUCK_AFTER else ():
        count = sum(1 for _ in takewhile(lambda stuck, low=low: low in stuck, runs))  # type: ignore[misc]
        if count >= _STUCK_AFTER:
            of = "" if unit.low is None else f" of {_bounds(unit)}"
            why = "" if unit.state is UnitState.FAILED else ": it was read, and ended where it began"
            return f"unit {unit.unit!r}{of} has made no progress in {count} runs{why}"
    return ""


def _bounds(unit: UnitSummary) -> str:
    low, high = (None if at is None else encode(at)["value"] for at in (unit.low, unit.expected_high))
    return f"[{low}, {'…' if high is None else high})"


def said(slot: Slot) -> str:
    """A slot, and whose it is as far as its record says."""
    return f"slot {slot.decision.slot}{slot.decision.by_run}"


def covered(
    urn: str, planned: Range, history: History, open_end: bool = False, besides: Collection[UnitRef] = ()
) -> DatasetReport:
    """What to say of a range that other runs committed.

    :param open_end: whether it was to go on to an end that isn't known. :param besides: units that are not in its way.
    """
    spared, end = {*besides}, history.state.coverage.end
    if open_end and end is not None:
        planned = Range(planned.low, highest([planned.high, end]))
    units = {
        ref: unit.range
        for ref, unit in history.state.live.items()
        if unit.range is not None and unit.range.overlaps(planned) and ref not in spared
    }
    if len(split(planned.low)) > 1:
        by = [said(history.slot(number)) for number in sorted({ref.slot for ref in units})]
    else:
        by = [*by_slot(history, units)]
    told = "; ".join(by[:_SLOTS_TOLD]) + (f"; and {len(by) - _SLOTS_TOLD} more" if len(by) > _SLOTS_TOLD else "")
    how = f"was committed by another run: {told}" if by else "is covered without files (imported, or skipped)"
    return DatasetReport(urn, "covered", f"range {planned} {how}")


def final(slot: Slot, history: History) -> DatasetReport:
    """What to say of the slot of a run at its end."""
    number = slot.decision.slot
    if not slot.finished:
        status = "quarantined" if history.state.quarantined else "failed"
        failed = f": {without_stop(slot.last_failure)}" if slot.last_failure else ""
        why = f"slot {number} is decided and not finished{failed}. Clear execute_commit_steps"
        return published(slot, status, why, history.state)
    if not slot.done:
        return given_up(slot, history)
    stuck = no_progress(history) if number == history.state.head else ""
    if not slot.decision.complete:
        left = [u for u in slot.decision.units if u.state is not UnitState.SUCCESSFUL]
        first = first_cause(left, "they are left to the next run")
        first += f"; {stuck}" if stuck else ""
        why = f"not published: {len(left)} of {many(len(slot.decision.units), 'unit')}: {first}"
        return published(slot, "partial", f"slot {number} holds a part; {why}", history.state)
    if stuck:
        return published(slot, "partial", f"slot {number}; {stuck}", history.state)
    return published(slot, "committed", f"slot {number}", history.state)


def left_behind(history: History, pending: Slot) -> DatasetNote:
    """Of a dataset that an earlier run left unfinished and that the source has no more: while there is any, no run is green."""
    status = "quarantined" if history.state.quarantined else "failed"
    why = f"slot {pending.decision.slot} is not finished, and the source has no such dataset any more"
    return DatasetNote(history.urn, status, f"{why}: mend what keeps it from being finished, or abandon it")


def noted(note: DatasetNote, *, unfinished: bool) -> DatasetReport:
    """What a note says at the end of a run. :param unfinished: it is of a slot, and says what to do."""
    detail = note.detail
    if note.status == "failed" and not unfinished and not note.asked:
        detail = f"{without_stop(detail)}. Once that is mended, clear create_work_units with its downstream tasks"
    return DatasetReport(note.urn, note.status, detail, already=note.already)


def failed(operation: str, urn: str, error: Exception) -> DatasetReport:
    """What a stage says of a dataset that it can't go on with, for the other datasets to go on.

    A user's sink or step may raise anything, and so may a disk.
    """
    if isinstance(error, AlreadyCoveredError):
        return DatasetReport(urn, "covered", str(error))
    if isinstance(error, LostRaceError):
        return DatasetReport(urn, "lost", str(error))
    if isinstance(error, PausedError):
        return DatasetReport(urn, "paused", str(error))
    if not isinstance(error, GobblinError):
        log.error("can't %s dataset %r", operation, urn, exc_info=error)
        hint = "See the log. Nothing is lost: clear the task once the cause is mended."
        told = GobblinError(operation=operation, subject=f"dataset {urn!r}", cause=error, hint=hint)
        return DatasetReport(urn, "failed", str(told), retryable=True)
    return DatasetReport(urn, "failed", str(error), retryable=error.retryable)


def unwanted(ingestion: Ingestion, reports: Iterable[DatasetReport]) -> list[DatasetReport]:
    """The datasets that are not as the policy wants them."""
    return [r for r in reports if not r.ok and not (r.status == "partial" and ingestion.partial_ok)]


def incomplete(ingestion: Ingestion, reports: Iterable[DatasetReport]) -> IncompleteRunError | None:
    """The error of a run whose datasets are not all as the policy wants them, or `None`."""
    bad = unwanted(ingestion, reports)
    if not bad:
        return None
    lines = "; ".join(f"{shown(r.urn)}: {r.status} ({without_stop(r.detail)})" for r in bad[:TOLD])
    more = f"; and {len(bad) - TOLD} more" if len(bad) > TOLD else ""
    return IncompleteRunError(
        operation="finish",
        subject=f"the run of ingestion {ingestion.name!r}",
        cause=f"{many(len(bad), 'dataset')} not as the policy wants: {lines}{more}",
        hint="What was published stands. Each line names what to clear or mend.",
    )
