"""Notes on datasets of which a run published nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.records import Note, NoteKind, now
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import UnitSummary
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import STUCK_AFTER

log = logging.getLogger(__name__)


def keep_unpublished(opened: OpenJob, plan: Plan, units: tuple[UnitSummary, ...]) -> None:
    """Note the result of each unit of a plan that publishes nothing.

    If run after run fails in the same way, only as many are noted as are needed to see that there is no progress.
    """
    history = opened.journal.history(plan.urn)
    slot = history.slots[-1] if history.slots else None
    notes = [n for n in (slot.notes if slot else history.early_notes) if n.event is NoteKind.UNPUBLISHED]
    if notes and (notes[-1].token, notes[-1].units) == (plan.token, units):
        return
    of_runs = {note.run_key: _failures(note.units) for note in notes}
    newest = [*of_runs.values()][-STUCK_AFTER:]
    if newest == [_failures(units)] * STUCK_AFTER:
        return
    note = Note(NoteKind.UNPUBLISHED, plan.run_key, now(), token=plan.token, units=units)
    opened.journal.put_note(plan.urn, slot.decision.slot if slot else 0, note)


def _failures(units: Iterable[UnitSummary]) -> list[tuple[object, ...]]:
    """Return where units made no progress, why, and what they left for the next plan: nothing else, as that may vary by run."""
    why = ((unit, None if unit.failure is None else unit.failure.recurring) for unit in units if unit.stuck)
    return [(unit.low or unit.unit, recurring, unit.properties) for unit, recurring in why]


def keep_failure(opened: OpenJob, urn: str, run_key: str, failure: Failure) -> None:
    """Note why a dataset that was never published failed, as no slot records it. The same failure is not noted twice."""
    try:
        history = opened.journal.history(urn)
        noted = history.unpublished.failure if history.unpublished is not None else None
        if history.published or history.pending is not None:
            return
        if noted is not None and noted.recurring == failure.recurring:
            return
        note = Note(NoteKind.UNPUBLISHED, run_key, now(), failure.text, failure=failure)
        opened.journal.put_note(urn, history.state.head, note)
    except GobblinError:  # the same fault may keep it from being noted
        log.warning("that dataset %r failed can't be noted in its journal", urn, exc_info=True)
