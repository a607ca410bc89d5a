"""`verify_recover`: finishing what earlier runs decided and left."""

from __future__ import annotations

from airflow_gobblin.errors import GobblinError, QuarantinedError
from airflow_gobblin.journal.history import History
from airflow_gobblin.model.status import Status
from airflow_gobblin.run import reports
from airflow_gobblin.run.inputs import Planning
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest


def verify_recover(opened: OpenJob, request: RunRequest) -> tuple[DatasetReport, ...]:
    """Finish what earlier runs decided and left, of all datasets of the journal.

    A dataset that can't be recovered stays as it is, and the others go on. Only what may be unfinished is read.

    :raises TargetError: as `check_target`.
    :raises ConfigurationError: as `check_target`.
    """
    opened.check_target()
    run_key = request.run_key(opened.job.name)
    found = []
    for dataset, history in opened.journal.histories(worth=lambda keys: keys.may_be_pending):
        if isinstance(history, GobblinError):
            found.append(reports.failed("recover", dataset, history))
        elif history.pending is not None:
            found.append(_recover(opened, history.urn, run_key))
    return tuple(found)


def _recover(opened: OpenJob, urn: str, run_key: str) -> DatasetReport:
    try:
        return finish_left(opened, urn, run_key) or DatasetReport(urn, Status.IDLE, "nothing was pending")
    except QuarantinedError as error:
        return DatasetReport(urn, Status.QUARANTINED, error.text)
    except Exception as error:
        return opened.failed("recover", urn, error)


def finish_left(opened: OpenJob, urn: str, run_key: str) -> DatasetReport | None:
    """Finish what an earlier run decided and left of a dataset.

    :return: its report; `None` if nothing was pending.
    """
    slot = opened.committer.recover(urn, run_key)
    if slot is None:
        return None
    detail = f"slot {slot.decision.slot}, which an earlier run left, is done"
    opened.recovered.append(reports.published(slot, Status.RECOVERED, detail, opened.journal.state(urn)))
    return opened.recovered[-1]


def with_left_finished(opened: OpenJob, history: History, planning: Planning) -> History:
    """Return the history of a dataset to plan from, after finishing its pending slot, if it has one."""
    if history.pending is None:
        return history
    finish_left(opened, history.urn, planning.run_key)
    history = opened.journal.history(history.urn)
    planning.add(history.urn, history)
    return history
