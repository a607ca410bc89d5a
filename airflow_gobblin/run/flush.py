"""Flushes: what waited when one was planned is published, whoever else runs meanwhile.

A run whose plan loses has to be planned again, and that may lose again. A flush does this by itself: each time the units of a
pack have their results, `extract` lets it decide, and runs the units of the plans that were made again in place of those that
lost. Each loss is the progress of another run.
"""

from __future__ import annotations

import logging

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import DatasetRef, Pack
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.inputs import begin
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import plan_again
from airflow_gobblin.run.request import RunRequest

log = logging.getLogger(__name__)


def decide_or_plan_again(opened: OpenJob, request: RunRequest, run: RunPlan, pack: Pack) -> bool:
    """Decide what can be decided of a flush's pack, and plan the datasets again whose plan lost to other runs. Safe to repeat.

    What a person gave up stays given up.

    :return: whether there are new plans, whose units are to be run.
    :raises TargetError: as `check_target`.
    :raises GobblinError: a dataset can't be planned again, and a retry may succeed.
    """
    if not run.flush:
        return False
    lost = {report.urn for report in write_commit_steps(opened, run, pack) if report.status is Status.LOST}
    refs = {ref.urn: ref for ref in pack.datasets if ref.urn in lost}
    return bool(refs) and _plan_again(opened, request, run, refs)


def _plan_again(opened: OpenJob, request: RunRequest, run: RunPlan, lost: dict[str, DatasetRef]) -> bool:
    planning = begin(opened, request)
    made, errors = False, list[GobblinError]()
    for dataset in planning.datasets:
        ref = lost.get(dataset.urn)
        history = None if ref is None else opened.journal.history(dataset.urn)
        if ref is None or history is None or history.by_token(ref.token) is not None:
            continue
        found = plan_again(opened, dataset, history, planning)
        if isinstance(found, DatasetRef):
            log.info("dataset %r: the plan of this flush lost to another run, and is made again", dataset.urn)
            # What waited at first is what it is to cover.
            newer = DatasetRef(found.urn, found.token, found.weight, ref.planned, ref.open_end)
            opened.staging.put_again(run.run, ref, newer)
            made = True
        elif isinstance(found, GobblinError):
            log.warning("dataset %r can't be planned again: %s", dataset.urn, found)
            errors.append(found)
        else:
            log.info("dataset %r isn't planned again: %s, %s", dataset.urn, found.status, found.detail)
    if not made and any(error.retryable for error in errors):
        raise errors[0]
    return made
