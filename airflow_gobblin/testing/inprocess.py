"""A whole run in this process: the tasks of the graph one after another, and `extract` without Spark, unless it is given one."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import Job, connections_of
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.registry import import_kinds
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
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.stage import StageJob
from airflow_gobblin.storage.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["extract", "go_on", "open_job", "publish", "run", "run_units", "run_version"]


def open_job(job: Job, connections: Connections | None = None, journal: Journal | None = None) -> OpenJob:
    """Open a job.

    :param connections: where secrets come from; by default there are none.
    :param journal: its journal; by default a new one in memory.
    """
    journal = journal or Journal.create(MemoryStore(), job.name)
    return OpenJob(job, journal, connections or NoConnections())


def run_version(
    jobs: Iterable[Ingestion | StageJob],
    version: datetime,
    connections: Connections | None = None,
    spark: SparkSession | None = None,
) -> dict[str, DatasetReport]:
    """Run the jobs of a pipeline for a version, in order: ingestions seal it, and stages make all that are ready.

    :param jobs: `Pipeline.bound`, with its journals as they are named there. Its code is imported here.
    :param version: the end of the data interval.
    :param spark: the session that makes the stages' versions.
    :return: the reports of `finish`: a stage's by its name, an ingestion's by its name and each URN, `raw/flights`.
    """
    given = connections or NoConnections()
    found: dict[str, DatasetReport] = {}
    for job in jobs:
        opened = OpenJob(job, Journal.create(job.journal, job.name, given), given)
        if isinstance(job, StageJob):
            import_kinds(job.work.code)
            found |= run(opened, spark=spark)
        else:
            request = RunRequest(f"{job.name}/{version.isoformat()}", version, version=version)
            found |= {f"{job.name}/{urn}": report for urn, report in run(opened, request=request).items()}
    return found


def run(
    opened: OpenJob,
    connections: Connections | None = None,
    request: RunRequest | None = None,
    spark: SparkSession | None = None,
) -> dict[str, DatasetReport]:
    """Carry out a run, from `verify_recover` to `finish`.

    :param connections: those of `extract`; by default the job's.
    :param request: by default that of a new unscheduled run.
    :param spark: the session, for a stage, whose versions are made by Spark.
    :return: the reports of `finish`, by URN.
    """
    request = request or RunRequest(uuid.uuid4().hex)
    verify_recover(opened, request)
    return go_on(opened, create_work_units(opened, request), connections or opened.connections, request, spark)


def go_on(
    opened: OpenJob,
    plan: RunPlan,
    connections: Connections,
    request: RunRequest | None = None,
    spark: SparkSession | None = None,
) -> dict[str, DatasetReport]:
    """Carry out a run from its plan to its end; return the reports of `finish`, by URN.

    :param request: its request, if it may go on with further plans.
    """
    plan = plan if request is None else _extracted(opened, plan, connections, request, spark)
    publish(opened, plan, connections, spark)
    return {report.urn: report for report in finish(opened, plan)}


def _extracted(
    opened: OpenJob, plan: RunPlan, connections: Connections, request: RunRequest, spark: SparkSession | None
) -> RunPlan:
    """Extract a run that goes on until it has no further plan, as its tasks do; return its newest plan."""
    while plan.goes_on:
        extract(opened, plan, connections, spark)
        if not sum(decide_and_plan_again(opened, request, plan, pack) for pack in plan.packs):
            break
        plan = opened.staging.run(plan.run) or plan
    return plan


def publish(opened: OpenJob, plan: RunPlan, connections: Connections, spark: SparkSession | None = None) -> None:
    """Carry out a run from its plan to its outcomes."""
    extract(opened, plan, connections, spark)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)


def extract(opened: OpenJob, plan: RunPlan, connections: Connections, spark: SparkSession | None = None) -> None:
    """Run the missing units of every pack and accept their results, as the Spark application does."""
    if spark is not None:
        connections = SparkConnections({name: connections.uri(name) for name in connections_of(opened.job.work)})
    for token, result in run_units(opened, plan, connections, spark):
        opened.staging.put_result(token, result)
