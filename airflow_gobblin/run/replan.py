"""Plans that a run makes after its first one of a dataset.

A flush publishes what waited when it was planned, no matter which others run meanwhile: where its plan loses, it plans again. A
run of a stage makes every version that is ready, in order, a slot each: once one is published, or its plan lost, it plans the
next one.

Each time the units of a pack have their results, `extract` lets the run decide, and runs the units of the plans that were made in
place of those before. Each decision stays, whatever happens to a later plan. Each loss is the progress of another run.
"""

from __future__ import annotations

import logging

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import DatasetRef, Pack
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.inputs import begin
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import plan_again
from airflow_gobblin.run.request import RunRequest

log = logging.getLogger(__name__)

PLANS = 100
"""The most plans that a run makes of a dataset after its first one; the next run goes on."""


def decide_and_plan_again(opened: OpenJob, request: RunRequest, run: RunPlan, pack: Pack) -> bool:
    """Decide what can be decided of a pack whose run goes on, and plan further what is to be planned. Safe to repeat.

    A plan that a person gave up stays given up.

    :return: whether there are new plans, whose units are to be run.
    :raises TargetError: as `check_target`.
    :raises GobblinError: a dataset can't be planned again, and a retry may succeed.
    """
    if not run.goes_on:
        return False
    reports = write_commit_steps(opened, run, pack)
    ended = {report.urn for report in reports if report.status in (Status.LOST, Status.WAITING)}
    if run.versions:
        done = execute_commit_steps(opened, run, pack)
        ended |= {report.urn for report in done if report.status is Status.COMMITTED}
    refs = {ref.urn: ref for ref in pack.datasets if ref.urn in ended}
    return bool(refs) and _plan_again(opened, request, run, refs)


def _plan_again(opened: OpenJob, request: RunRequest, run: RunPlan, ended: dict[str, DatasetRef]) -> bool:
    planning = begin(opened, request)
    made, errors = False, list[GobblinError]()
    for dataset in planning.datasets:
        ref = ended.get(dataset.urn)
        if ref is None or opened.staging.plans_again(run.run, ref.urn) >= PLANS:
            continue
        history = opened.journal.history(dataset.urn)
        slot = history.by_token(ref.token)
        if slot is not None and not (run.versions and slot.done):
            continue
        found = plan_again(opened, dataset, history, planning)
        if isinstance(found, DatasetRef):
            opened.staging.put_again(run.run, ref, _newer(run, ref, found))
            made = True
        elif isinstance(found, GobblinError):
            log.warning("dataset %r can't be planned again: %s", dataset.urn, found)
            errors.append(found)
        else:
            log.info("dataset %r isn't planned again: %s, %s", dataset.urn, found.status, found.detail)
    if not made and any(error.retryable for error in errors):
        raise errors[0]
    return made


def _newer(run: RunPlan, before: DatasetRef, ref: DatasetRef) -> DatasetRef:
    """Return a new plan as the run has it: a flush's is to cover what waited at first."""
    if run.versions:
        log.info("dataset %r: the next version is planned", ref.urn)
        return ref
    log.info("dataset %r: the plan of this flush lost to another run, and is made again", ref.urn)
    return DatasetRef(ref.urn, ref.token, ref.weight, before.planned, before.open_end)
