"""Datasets that are made from what other jobs publish: they go back if any of that is gone, and look before deciding."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from airflow_gobblin.commit.preconditions import check_goes_on
from airflow_gobblin.job import DerivedWork, StageWork, StatefulWork
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import DatasetRef
from airflow_gobblin.run.inputs import Planning
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.recover import with_left_finished
from airflow_gobblin.run.reports import DatasetReport

log = logging.getLogger(__name__)


def keep_inputs(opened: OpenJob, run: str) -> None:
    """Keep on record what a stage reads, for people who ask what it waits for."""
    if isinstance(opened.job.work, StageWork):
        opened.job.work.keep_inputs(opened.journal.store, now(), run)


def restore(opened: OpenJob, history: History, planning: Planning) -> History:
    """Return the history of a dataset, once it has taken back what was made from something that is gone.

    :param history: one with nothing pending, as is the one returned.
    :raises PausedError: it is paused.
    :raises StateGivenUpError: it can't go back that far.
    """
    work, urn = opened.job.work, history.urn
    if not isinstance(work, DerivedWork):
        return history
    while True:
        check_goes_on(history)
        restore = work.to_restore(history.state, opened.connections)
        if restore is None:
            return history
        log.info("dataset %r goes back: %s", urn, restore.why)
        opened.committer.take_back(history, restore.units, restore.looked, planning.request.dag_run, restore.why)
        history = opened.journal.history(urn)
        planning.add(urn, history)
        while history.pending is not None:  # another run took the slot
            history = with_left_finished(opened, history, planning)


def would_take_back(opened: OpenJob, history: History) -> str:
    """Return what a run would take back of a dataset before it plans it, as `restore` does; empty if nothing.

    :raises StateGivenUpError: it can't go back that far.
    """
    work = opened.job.work
    if not isinstance(work, DerivedWork) or history.state.paused is not None:
        return ""
    restore = work.to_restore(history.state, opened.connections)
    return "" if restore is None else f"{many(restore.versions, 'version')} would be taken back: {restore.why}"


def looked(opened: OpenJob, plan: Plan) -> Mapping[str, int]:
    """Look for retired parents of a plan that isn't decided, and of what is live beside it; return how far, by upstream.

    :raises LostRaceError: one is retired.
    """
    work = opened.job.work
    if not isinstance(work, DerivedWork):
        return {}
    return work.look(plan, opened.journal.state(plan.urn), opened.connections)


def without_old_state(opened: OpenJob, history: History, run: str) -> History:
    """Return the history of a dataset, once it has given up the state of its versions that nothing needs any more."""
    work = opened.job.work
    if not isinstance(work, StatefulWork) or history.pending is not None or history.state.paused is not None:
        return history
    gone = work.to_give_up(history.state)
    if gone is None:
        return history
    opened.committer.give_up_state(history, gone.units, gone.floor, run, gone.why)
    return opened.journal.history(history.urn)


def left_to_next(opened: OpenJob, ref: DatasetRef, report: DatasetReport) -> DatasetReport:
    """Return the report of a plan. If the plan of a version lost, it waits: the next run plans what is ready then.

    A plan that a person gave up is lost all the same.
    """
    if not isinstance(opened.job.work, DerivedWork) or report.status is not Status.LOST:
        return report
    if opened.journal.history(ref.urn).by_token(ref.token) is not None:
        return report
    detail = f"{report.detail}; the next run plans it again"
    return replace(report, status=Status.WAITING, detail=detail, remedy=None)
