"""`execute_commit_steps`: carrying out the decided slots."""

from __future__ import annotations

from airflow_gobblin.errors import GobblinError, LostRaceError
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import DatasetRef, Pack
from airflow_gobblin.run import reports
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.workspace.manifests import put_manifests


def execute_commit_steps(opened: OpenJob, run: RunPlan, pack: Pack) -> tuple[DatasetReport, ...]:
    """Carry out the decided slots of the datasets of a pack. Always safe to repeat.

    :raises TargetError: as `check_target`.
    :raises ConfigurationError: as `check_target`.
    """
    opened.check_target()
    return tuple(_execute(opened, ref, run.run_key) for ref in pack.datasets)


def _execute(opened: OpenJob, ref: DatasetRef, run_key: str) -> DatasetReport:
    try:
        history = opened.journal.history(ref.urn)
        slot = history.by_token(ref.token) or history.answer(run_key)
        if slot is None:
            return DatasetReport(ref.urn, Status.SKIPPED, "nothing is decided for it in this run")
        if slot.finished:
            return reports.already(slot, history)
        done = opened.committer.execute(slot, run_key)
        history = opened.journal.history(ref.urn)
        put_manifests(opened.files, opened.journal, history)
        return reports.published(done, Status.COMMITTED, f"committed in slot {slot.decision.slot}", history.state)
    except Exception as error:
        if isinstance(error, GobblinError) and not isinstance(error, LostRaceError):
            opened.committer.count_failure(ref.urn, run_key, error)
        return opened.failed("execute the commit steps of", ref.urn, error)
