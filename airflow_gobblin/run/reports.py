"""The report of a task on a dataset: its status, and a sentence for people."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from airflow_gobblin.errors import (
    AlreadyCoveredError,
    GobblinError,
    IncompleteRunError,
    LostRaceError,
    PausedError,
    Remedy,
    with_remedy,
    without_stop,
)
from airflow_gobblin.job import Job
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.model import lost
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import many, shown
from airflow_gobblin.model.plan import DatasetNote
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.watermark import Watermark, encode, highest, split
from airflow_gobblin.model.work import UnitState, UnitSummary, first_cause, first_failure
from airflow_gobblin.run.backfill import by_slot

log = logging.getLogger(__name__)

MOST_NAMED = 10
"""The number of datasets, from the first on, whose cause a run's error gives."""
_SLOTS_NAMED = 5
STUCK_AFTER = 3
"""The number of runs without progress after which it is reported."""


@dataclass(frozen=True)
class DatasetReport:
    """The result of a task for a dataset.

    :param files: the number of files that its slot published; `bytes` is their size, `rows` the number of rows in them, and
        `replaced` how many of them took the place of others.
    :param deleted: the number of files that its slot deleted.
    :param holds: what its slot holds, if it has one.
    :param failure: the error that the task failed with, if it did so here.
    :param remedy: what is to be done again, once the cause is fixed.
    :param retryable: it failed, and the same task may succeed if it is retried.
    :param already: it was committed before, and the task found nothing to do.
    """

    urn: str
    status: Status
    detail: str = ""
    slot: int | None = None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    replaced: int = 0
    deleted: int = 0
    holds: Holds | None = None
    watermark: Watermark | None = None
    retryable: bool = False
    already: bool = False
    failure: Failure | None = None
    remedy: Remedy | None = None

    @property
    def text(self) -> str:
        """The detail with the remedy."""
        return with_remedy(self.detail, self.remedy)

    @property
    def ok(self) -> bool:
        """Whether a run that ends so is green (partial is, if the ingestion allows it)."""
        return self.status.green


def published(slot: Slot, status: Status, detail: str, state: DatasetState) -> DatasetReport:
    """Report a slot, with what it published."""
    return DatasetReport(
        slot.decision.urn,
        status,
        f"{detail}{_acts(slot)}{_letters(slot)}{_lost(slot)}",
        slot.decision.slot,
        files=slot.files,
        rows=slot.rows,
        bytes=slot.bytes,
        replaced=slot.replaced,
        deleted=slot.deleted,
        holds=slot.holds,
        watermark=state.watermark,
    )


def _letters(slot: Slot) -> str:
    """Return how many rows were refused and kept, to be added to the detail of a slot."""
    return f": {many(slot.dead_letters, 'dead letter')}" if slot.dead_letters else ""


def _lost(slot: Slot) -> str:
    """Return what a mirror's target can't keep, to be added to the detail of a slot."""
    summary = lost.summary_of(slot.decision.units)
    return f"; {summary}" if summary else ""


def _acts(slot: Slot) -> str:
    """Return what a difference of files does, to be added to the detail of its slot."""
    if slot.keeps_units:
        return ""
    copied = f"{many(slot.files, 'file')} of {slot.bytes:,} bytes" if slot.files else "no file"
    replaced = f" ({slot.replaced:,} in place of others)" if slot.replaced else ""
    deleted = f", {slot.deleted:,} deleted" if slot.deleted else ""
    return f": {copied} copied{replaced}{deleted}"


def already(slot: Slot, history: History) -> DatasetReport:
    """Report a slot that was finished before."""
    if not slot.done:
        return given_up(slot, history)
    report = published(slot, Status.COMMITTED, f"already committed in {described(slot)}", history.state)
    return replace(report, already=True)


def given_up(slot: Slot, history: History) -> DatasetReport:
    """Report an abandoned slot: by whom, why, and what to do now."""
    return replace(published(slot, Status.LOST, slot.given_up, history.state), remedy=Remedy.PLAN)


def unpublished(urn: str, units: Collection[UnitSummary], stuck: str = "") -> DatasetReport:
    """Report a plan of which the policy publishes nothing, in the same words in each task.

    :param stuck: as returned by `no_progress`.
    """
    why = f"nothing of its {many(len(units), 'unit')} is published" if units else "nothing of it was published"
    cause = without_stop(first_cause(units)) + (f"; {stuck}" if stuck else "")
    failure = first_failure(units)
    remedy = (failure.remedy if failure is not None else None) or Remedy.EXTRACT
    return DatasetReport(urn, Status.FAILED, f"{why}: {cause}", remedy=remedy)


def unwritten(urn: str, units: Collection[UnitSummary], failure: Failure | None) -> DatasetReport:
    """Report a plan whose units satisfy the policy, but whose commit steps were not written.

    :param failure: why not; `None` if unknown, since the task that writes them was killed or didn't run.
    """
    if failure is not None:
        again = failure.remedy if failure.remedy in (Remedy.PLAN, Remedy.EXTRACT) else Remedy.WRITE_STEPS
        return DatasetReport(urn, Status.FAILED, failure.text, remedy=again)
    why = f"its {many(len(units), 'unit')} have results, and its commit steps were not written"
    return DatasetReport(urn, Status.FAILED, why, remedy=Remedy.WRITE_STEPS)


def no_progress(history: History) -> str:
    """Describe a unit of the newest run that made no progress in this and several earlier runs; empty if there is none."""
    runs = [{unit.low or unit.unit: unit for unit in units if unit.stuck} for units in history.runs()]
    for low, unit in runs[0].items() if len(runs) >= STUCK_AFTER else ():
        count = sum(1 for _ in takewhile(lambda stuck, low=low: low in stuck, runs))  # type: ignore[misc]
        if count >= STUCK_AFTER:
            of = "" if unit.low is None else f" of {_bounds(unit)}"
            why = "" if unit.state is UnitState.FAILED else ": it was read, and ended where it began"
            return f"unit {unit.unit!r}{of} has made no progress in {count} runs or more{why}"
    return ""


def _bounds(unit: UnitSummary) -> str:
    low, high = (None if at is None else encode(at)["value"] for at in (unit.low, unit.expected_high))
    return f"[{low}, {'…' if high is None else high})"


def described(slot: Slot) -> str:
    """Describe a slot, with its run if recorded."""
    return f"slot {slot.decision.slot}{slot.decision.by_run}"


def covered(
    urn: str, planned: Range, history: History, open_end: bool = False, besides: Collection[UnitRef] = ()
) -> DatasetReport:
    """Report a range that other runs committed.

    :param open_end: whether it was to go on to an end that isn't known.
    :param besides: units that don't conflict with it.
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
        by = [described(history.slot(number)) for number in sorted({ref.slot for ref in units})]
    else:
        by = [*by_slot(history, units)]
    named = "; ".join(by[:_SLOTS_NAMED]) + (f"; and {len(by) - _SLOTS_NAMED} more" if len(by) > _SLOTS_NAMED else "")
    how = f"was committed by another run: {named}" if by else "is covered without files (imported, or skipped)"
    return DatasetReport(urn, Status.COVERED, f"range {planned} {how}")


def with_kept(report: DatasetReport, history: History, kept: Mapping[str, str]) -> DatasetReport:
    """Add to a report the files of its dataset's folder that could not be put back, as long as they are kept.

    :param kept: as returned by `kept_files`.
    """
    mine = [one for one, path in kept.items() if history.has(path)]
    if not mine:
        return report
    named = ", ".join(shown(one) for one in mine[:_SLOTS_NAMED])
    more = f" and {len(mine) - _SLOTS_NAMED:,} more" if len(mine) > _SLOTS_NAMED else ""
    why = "which somebody put in place of a file while it was deleted, and somebody else replaced"
    return replace(report, detail=f"{report.detail}; kept until you take it away: {named}{more}, {why}")


def final(slot: Slot, history: History) -> DatasetReport:
    """Report the slot of a run at its end."""
    number = slot.decision.slot
    if not slot.finished:
        status = Status.QUARANTINED if history.state.quarantined else Status.FAILED
        failed = f": {without_stop(slot.last_failure)}" if slot.last_failure else ""
        why = f"slot {number} is decided and not finished{failed}"
        return replace(published(slot, status, why, history.state), remedy=Remedy.CARRY_OUT)
    if not slot.done:
        return given_up(slot, history)
    stuck = "" if history.changed_after(number) else no_progress(history)
    if not slot.decision.complete:
        left = [u for u in slot.decision.units if u.state is not UnitState.SUCCESSFUL or u.cut]
        first = first_cause(left, "they are left to the next run")
        first += f"; {stuck}" if stuck else ""
        cut = sum(u.cut for u in left)
        rest = f", {cut} of them only from where {'they' if cut > 1 else 'it'} failed on" if cut else ""
        why = f"not published: {len(left)} of {many(len(slot.decision.units), 'unit')}{rest}: {first}"
        return published(slot, Status.PARTIAL, f"slot {number} holds a part; {why}", history.state)
    if stuck:
        return published(slot, Status.PARTIAL, f"slot {number}; {stuck}", history.state)
    return _with_versions(published(slot, Status.COMMITTED, f"slot {number}", history.state), slot, history)


def _with_versions(report: DatasetReport, slot: Slot, history: History) -> DatasetReport:
    """Add to the report of a stage's slot the versions that its run made before it."""
    if slot.holds is None or slot.holds.answers_runs:
        return report
    made = [one for one in history.slots if one.done and one.decision.run_key == slot.decision.run_key]
    if len(made) < 2:
        return report
    return replace(
        report,
        detail=f"{many(len(made), 'version')}, in slots {made[0].decision.slot} to {slot.decision.slot}",
        files=sum(one.files for one in made),
        rows=sum(one.rows for one in made),
        bytes=sum(one.bytes for one in made),
    )


def left_behind(history: History, pending: Slot) -> DatasetNote:
    """Note a dataset that an earlier run left unfinished and that the source no longer has: no run is green while this holds."""
    status = Status.QUARANTINED if history.state.quarantined else Status.FAILED
    why = f"slot {pending.decision.slot} is not finished, and the source has no such dataset any more"
    return DatasetNote(history.urn, status, f"{why}: fix what keeps it from being finished, or abandon it")


def noted(note: DatasetNote, *, unfinished: bool) -> DatasetReport:
    """Report a note at the end of a run.

    :param unfinished: its dataset has an unfinished slot, and the note names the way out, unless it has a remedy.
    """
    again = note.status is Status.FAILED and not note.asked and not (unfinished and note.remedy is None)
    return DatasetReport(
        note.urn, note.status, note.detail, already=note.already, remedy=Remedy.PLAN if again else note.remedy
    )


def failed(operation: str, urn: str, error: Exception) -> DatasetReport:
    """Report a dataset that a task can't go on with, so that the other datasets go on.

    A user's sink or step may raise anything, and so may a disk.
    """
    if not isinstance(error, GobblinError):
        log.error("can't %s dataset %r", operation, urn, exc_info=error)
        hint, remedy = "See the log. Nothing is lost.", Remedy.REPEAT
        wrapped = GobblinError(operation=operation, subject=f"dataset {urn!r}", cause=error, hint=hint, remedy=remedy)
        return replace(failed(operation, urn, wrapped), retryable=True)
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), Status.FAILED)
    report = DatasetReport(urn, status, error.text, remedy=error.remedy)
    if status is not Status.FAILED:
        return report
    return replace(report, retryable=error.retryable, failure=Failure.of(error))


_STATUSES: dict[type[GobblinError], Status] = {
    AlreadyCoveredError: Status.COVERED,
    LostRaceError: Status.LOST,
    PausedError: Status.PAUSED,
}
"""The status that an error means, where a dataset hasn't failed; the first that fits."""


def unwanted(job: Job, reports: Iterable[DatasetReport]) -> list[DatasetReport]:
    """Return the datasets that don't satisfy the policy."""
    return [r for r in reports if not r.ok and not (r.status is Status.PARTIAL and job.partial_ok)]


def incomplete(job: Job, reports: Iterable[DatasetReport]) -> IncompleteRunError | None:
    """Return the error of a run in which not every dataset satisfies the policy, or `None`."""
    bad = unwanted(job, reports)
    if not bad:
        return None
    lines = "; ".join(f"{shown(r.urn)}: {r.status} ({without_stop(r.text)})" for r in bad[:MOST_NAMED])
    more = f"; and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    return IncompleteRunError(
        operation="finish",
        subject=f"the run of ingestion {job.name!r}",
        cause=f"{many(len(bad), 'dataset')} not as the policy wants: {lines}{more}",
        hint="Everything published stays. Each line names what to fix or to do.",
    )
