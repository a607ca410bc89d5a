"""`finish`: sweeping, cleaning up, and a report of every dataset of the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import chain

from airflow_gobblin.commit.preconditions import check_goes_on, check_preconditions
from airflow_gobblin.commit.sweeping import Sweeper
from airflow_gobblin.errors import AlreadyCoveredError, GobblinError, LostRaceError
from airflow_gobblin.job import InformingWork
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.records import NoteKind
from airflow_gobblin.journal.trimming import trim, worth_trimming
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.plan import FinishedRun, Plan, RunPlan, known_ranges
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.work import DatasetRef
from airflow_gobblin.run import reports
from airflow_gobblin.run.answers import covered_since, swept
from airflow_gobblin.run.decide import propose, results_of
from airflow_gobblin.run.derived import left_to_next, looked, without_old_state
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.sealing import seal
from airflow_gobblin.steps.trash import kept_files
from airflow_gobblin.workspace.manifests import put_manifests

log = logging.getLogger(__name__)

_PUBLISHED = (Status.COMMITTED, Status.PARTIAL)


def finish(opened: OpenJob, run: RunPlan) -> tuple[DatasetReport, ...]:
    """Sweep staging that can no longer win, clean up, and report every dataset of the run.

    :return: a report per dataset; raise `incomplete(…)` for those that don't satisfy the policy.
    :raises TargetError: as `check_target`.
    :raises ConfigurationError: as `check_target`.
    """
    opened.check_target()
    refs = {dataset_key(ref.urn): ref for pack in run.packs for ref in pack.datasets}
    final: dict[str, DatasetReport] = {}
    watermarks: dict[str, Watermark | None] = {}
    pending: set[str] = set()
    names = {key: ref.urn for key, ref in refs.items()}
    before = opened.staging.finished_run(run.run) or FinishedRun()
    kept = cache(lambda: dict(kept_files(opened.files)))
    for key, found in opened.journal.histories(names):  # including those that the source no longer has
        if key in refs:
            report = _final(opened, refs[key], run.run_key, found, before)
            if isinstance(found, History) and found.of_files:
                report = reports.with_kept(report, found, kept())
            # No later run goes on with a backfill: it has failed.
            late = run.backfill and report.status is Status.PAUSED
            final[key] = replace(report, status=Status.FAILED) if late else report
        if isinstance(found, History):
            watermarks[key] = found.state.watermark
            if found.pending is not None:
                pending.add(key)
            elif _has_news(found) or (key in final and final[key].status in _PUBLISHED):
                _inform_source(opened, found)
            _tidy(opened, found, run)
        else:
            log.warning("dataset %r can't be cleaned up: %s", key, found)
    notes = (reports.noted(note, unfinished=dataset_key(note.urn) in pending) for note in run.notes)
    of_plans = (
        final.get(key) or _final(opened, ref, run.run_key, History(ref.urn), before) for key, ref in refs.items()
    )
    reported = tuple(
        report if report.watermark is not None else replace(report, watermark=watermarks.get(dataset_key(report.urn)))
        for report in chain(notes, of_plans)
    )
    _seal(opened, run, reported)
    done = (ref.token for key, ref in refs.items() if key in final and final[key].status is Status.COMMITTED)
    opened.staging.finish_run(run.run, done)
    sweep(opened, keep=run.run)
    return reported


def _seal(opened: OpenJob, run: RunPlan, reported: Iterable[DatasetReport]) -> None:
    """Seal the run's version, if it has one. One that can't be sealed now is part of the next one."""
    if run.seals is None:
        return
    try:
        seal(opened, run, run.seals, reported)
    except (GobblinError, OSError):
        log.warning("version %s can't be sealed now", run.seals.version.isoformat(), exc_info=True)


def _final(
    opened: OpenJob, ref: DatasetRef, run_key: str, history: History | GobblinError, before: FinishedRun
) -> DatasetReport:
    """Report a dataset at the end of a run.

    :param before: what was already done when the run was first reported.
    """
    return left_to_next(opened, ref, _judged(opened, ref, run_key, history, before))


def _judged(
    opened: OpenJob, ref: DatasetRef, run_key: str, history: History | GobblinError, before: FinishedRun
) -> DatasetReport:
    try:
        if isinstance(history, GobblinError):
            raise history
        slot = history.by_token(ref.token) or history.answer(run_key)
        if slot is not None:
            report = reports.final(slot, history)
            return reports.already(slot, history) if slot.done and ref.token in before.done else report
        plan = opened.staging.plan(ref.token)
        if plan is None:  # it may have been decided and published since the history was read
            return swept(opened, ref, run_key, opened.journal.history(ref.urn))
        check_goes_on(history)
        try:
            check_preconditions(plan, known_ranges(plan, opened.staging.units(plan)), history)
            looked(opened, plan)
        except AlreadyCoveredError:
            assert plan.planned is not None
            return reports.covered(ref.urn, plan.planned, history, plan.open_end, besides=plan.replaces)
        except LostRaceError:
            if (covered := covered_since(ref, history)) is not None:
                return covered
            raise
        return _undecided(opened, plan, history)
    except Exception as error:
        return opened.failed("finish", ref.urn, error)


def _undecided(opened: OpenJob, plan: Plan, history: History) -> DatasetReport:
    """Report why a plan that could still be decided wasn't: because of its units, or else of its commit steps."""
    proposal = propose(opened, plan, results_of(opened, plan, checked=True))
    if proposal.decidable:
        return reports.unwritten(plan.urn, proposal.units, opened.staging.unwritten(plan.token))
    return reports.unpublished(plan.urn, proposal.units, reports.no_progress(history))


def _has_news(history: History) -> bool:
    """Return whether a slot is published but not announced yet, such as one that this run finished for an earlier one."""
    return any(slot.publishes and not slot.noted(NoteKind.ANNOUNCED) for slot in history.slots)


def _inform_source(opened: OpenJob, history: History) -> None:
    """Inform the source of how far a dataset is published; if that fails, the next run that publishes it reports more."""
    work, watermark = opened.job.work, history.state.watermark
    if not isinstance(work, InformingWork) or watermark is None:
        return
    try:
        work.inform(history.urn, watermark, opened.connections)
    except Exception as error:  # a user's source may raise anything
        shown = opened.shown("inform the source of", history.urn, error)
        log.warning(
            "dataset %r is published up to %s, and its source isn't informed of it: %s", history.urn, watermark, shown
        )


def _tidy(opened: OpenJob, history: History, run: RunPlan) -> None:
    """Clean up and trim a dataset, as any run may at its end; whatever fails is tried again by the next one."""
    try:
        history = without_old_state(opened, history, run.dag_run)
        for left in opened.committer.cleanup.clean(history, run.run_key):
            log.warning("dataset %r: %s", history.urn, left)
    except Exception as error:  # a user's step may raise anything
        log.warning(
            "dataset %r can't be cleaned up now",
            history.urn,
            exc_info=opened.shown("clean up", history.urn, error),
        )
    try:
        if worth_trimming(history) or any(not slot.noted(NoteKind.ANNOUNCED) for slot in history.slots):
            put_manifests(opened.files, opened.journal, history)  # before it is trimmed: they are made from its records
            opened.committer.homes.check_here()
            trim(opened.journal, history)
    except (GobblinError, OSError):
        log.warning("dataset %r: its manifests or its journal can't be seen to now", history.urn, exc_info=True)


def sweep(opened: OpenJob, keep: str = "") -> tuple[str, ...]:
    """Delete the staging of every token that has an outcome or can no longer win; never by age (I11).

    :param keep: a run whose plan is kept, though its tokens are gone.
    :return: the tokens that were swept.
    """
    sweeper = Sweeper(opened.journal, opened.staging, opened.claims, opened.job.work, opened.connections)
    return sweeper.sweep(keep)
