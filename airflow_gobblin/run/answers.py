"""Answers from the journal to requests and plans whose staging is gone."""

from __future__ import annotations

import logging
from collections.abc import Collection

from airflow_gobblin.errors import Remedy
from airflow_gobblin.journal.history import History
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.plan import is_met
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.watermark import highest, lowest
from airflow_gobblin.model.work import DatasetRef
from airflow_gobblin.run import reports
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest

log = logging.getLogger(__name__)


def swept(opened: OpenJob, ref: DatasetRef, run_key: str, history: History) -> DatasetReport:
    """Report a plan whose staging is gone: it was done, or could no longer win."""
    slot = history.by_token(ref.token) or history.answer(run_key)
    if slot is None and (covered := covered_since(ref, history)) is not None:
        return covered
    if slot is None:
        head = history.state.head
        newest = f": the newest slot is {history.slot(head).named}" if head else ""
        return DatasetReport(
            ref.urn,
            Status.LOST,
            f"its plan could win no more and was swept{newest}; nothing was published by it",
            remedy=Remedy.PLAN,
        )
    return reports.already(slot, history)


def covered_since(ref: DatasetRef, history: History) -> DatasetReport | None:
    """Report the range that a plan was to cover as covered, if it is: a flush's plan made again may have more to cover."""
    if ref.planned is None or not is_met(ref.planned, ref.open_end, history.state.coverage):
        return None
    return reports.covered(ref.urn, ref.planned, history, ref.open_end)


def answered(opened: OpenJob, request: RunRequest, keys: Collection[str] = ()) -> tuple[DatasetReport, ...]:
    """Report the datasets that were committed for a request whose plan was swept.

    An unreadable dataset may be unrelated to the request: one with torn records fails only if it is named.

    :param keys: only the datasets of these keys; by default those that the request names, or all.
    """
    run_key = request.run_key(opened.job.name)
    named = {*keys} or {dataset_key(urn) for urn in request.datasets}
    found = []
    for key, history in opened.journal.histories(worth=lambda found: not named or found.dataset in named):
        if named and key not in named:
            continue
        if isinstance(history, History):
            if (slot := history.answer(run_key)) is not None:
                found.append(reports.already(slot, history))
        elif named or history.retryable:
            found.append(reports.failed("read", key, history))
        else:
            log.warning("dataset %r can't be read, and is left out: %s", key, history)
    return tuple(found)


def answered_range(opened: OpenJob, urn: str, request: RunRequest) -> tuple[int, Range | None] | None:
    """Return the dataset's newest slot, and the range that a request published and is still live; a snapshot has no range."""
    history = opened.journal.history(urn)
    slot = history.answer(request.run_key(opened.job.name))
    if slot is None:
        return None
    if slot.holds is None or not slot.holds.covers_ranges:
        return history.state.head, None
    number, live = slot.decision.slot, history.state.live
    parts = [unit.range for ref, unit in live.items() if ref.slot == number and unit.range is not None]
    if not parts:
        return None
    return history.state.head, Range(lowest([part.low for part in parts]), highest([part.high for part in parts]))
