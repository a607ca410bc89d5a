"""Remedies in Airflow's words: the task to clear."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from airflow_gobblin.errors import GobblinError, Remedy, with_remedy

if TYPE_CHECKING:
    from airflow_gobblin.model.failure import Failure
    from airflow_gobblin.model.plan import DatasetNote
    from airflow_gobblin.run.reports import DatasetReport

__all__ = ["worded", "worded_error", "worded_failure"]

E = TypeVar("E", bound=GobblinError)
T = TypeVar("T", bound="DatasetReport | DatasetNote")

TASKS = {
    Remedy.PLAN: "Clear create_work_units with its downstream tasks to plan anew.",
    Remedy.EXTRACT: "See the log of its extract; once that is fixed, clear it with its downstream tasks.",
    Remedy.WRITE_STEPS: "Once that is fixed, clear write_commit_steps with its downstream tasks.",
    Remedy.CARRY_OUT: "Once that is fixed, clear execute_commit_steps.",
    Remedy.REPEAT: "Once that is fixed, clear the task.",
}


def worded(report: T) -> T:
    """Return a report, or a note, whose detail names the task to clear."""
    return replace(report, detail=with_remedy(report.detail, report.remedy, TASKS), remedy=None)


def worded_error(error: E) -> E:
    """Return an error whose hint names the task to clear; the same one if it has no remedy."""
    if error.remedy is None:
        return error
    copied = copy.copy(error)
    copied.hint = TASKS[error.remedy] if error.hint is None else with_remedy(error.hint, error.remedy, TASKS)
    copied.remedy = None
    for note in getattr(error, "__notes__", ()):
        copied.add_note(note)
    return copied.with_traceback(error.__traceback__)


def worded_failure(failure: Failure) -> str:
    """Return a failure as text that names the task to clear."""
    return f"{failure.kind.value}: {worded_error(failure.error())}"
