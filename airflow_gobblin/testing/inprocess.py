"""A whole run in this process: the tasks of the graph one after another, and `extract` without Spark."""

from __future__ import annotations

import uuid

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.job import Job
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.here import run_units
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.replan import decide_and_plan_again
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores.memory import MemoryStore

__all__ = ["extract", "go_on", "open_job", "publish", "run", "run_units"]


def open_job(job: Job, connections: Connections | None = None, journal: Journal | None = None) -> OpenJob:
    """Open a job.

    :param connections: where secrets come from; by default there are none.
    :param journal: its journal; by default a new one in memory.
    """
    journal = journal or Journal.create(MemoryStore(), job.name)
    return OpenJob(job, journal, connections or NoConnections())


def run(
    opened: OpenJob, connections: Connections | None = None, request: RunRequest | None = None
) -> dict[str, DatasetReport]:
    """Carry out a run, from `verify_recover` to `finish`.

    :param connections: those of `extract`; by default the job's.
    :param request: by default that of a new unscheduled run.
    :return: the reports of `finish`, by URN.
    """
    request = request or RunRequest(uuid.uuid4().hex)
    verify_recover(opened, request)
    return go_on(opened, create_work_units(opened, request), connections or opened.connections, request)


def go_on(
    opened: OpenJob, plan: RunPlan, connections: Connections, request: RunRequest | None = None
) -> dict[str, DatasetReport]:
    """Carry out a run from its plan to its end; return the reports of `finish`, by URN.

    :param request: its request, if it may go on with further plans.
    """
    plan = plan if request is None else _extracted(opened, plan, connections, request)
    publish(opened, plan, connections)
    return {report.urn: report for report in finish(opened, plan)}


def _extracted(opened: OpenJob, plan: RunPlan, connections: Connections, request: RunRequest) -> RunPlan:
    """Extract a run that goes on until it has no further plan, as its tasks do; return its newest plan."""
    while plan.goes_on:
        extract(opened, plan, connections)
        if not sum(decide_and_plan_again(opened, request, plan, pack) for pack in plan.packs):
            break
        plan = opened.staging.run(plan.run) or plan
    return plan


def publish(opened: OpenJob, plan: RunPlan, connections: Connections) -> None:
    """Carry out a run from its plan to its outcomes."""
    extract(opened, plan, connections)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)


def extract(opened: OpenJob, plan: RunPlan, connections: Connections) -> None:
    """Run the missing units of every pack and accept their results, as the Spark application does."""
    for token, result in run_units(opened, plan, connections):
        opened.staging.put_result(token, result)
