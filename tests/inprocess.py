"""A whole run in this process, stage by stage as the operators do it, with `extract` on no Spark."""

from __future__ import annotations

import uuid

from airflow_gobblin.extraction import extract_unit
from airflow_gobblin.pipeline import Pipeline, RunRequest
from airflow_gobblin.plan import RunPlan
from airflow_gobblin.reporting import DatasetReport
from airflow_gobblin.sources.base import Connections
from airflow_gobblin.sources.snapshots import PackSnapshot


def extract(pipeline: Pipeline, plan: RunPlan, connections: Connections) -> None:
    """Extract the missing units of every pack of a run."""
    attempt = uuid.uuid4().hex
    job = pipeline.staging.job(plan.run)
    for pack in plan.packs:
        with PackSnapshot(job.source, connections) as snapshot:
            for unit_plan, unit in pipeline.missing_units(pack):
                folder, held = pipeline.staging.token_folder(unit_plan.token), snapshot.of(unit_plan)
                result = extract_unit(job, unit_plan, unit, attempt, pipeline.files, folder, connections, held)
                pipeline.staging.put_result(unit_plan.token, result)


def run(pipeline: Pipeline, connections: Connections, request: RunRequest | None = None) -> dict[str, DatasetReport]:
    """One run, from `verify_recover` to `finish`. :return: what `finish` says, by URN."""
    request = request or RunRequest(uuid.uuid4().hex)
    pipeline.verify_recover(request)
    return go_on(pipeline, pipeline.create_work_units(request), connections)


def go_on(pipeline: Pipeline, plan: RunPlan, connections: Connections) -> dict[str, DatasetReport]:
    """A run from its plan to its end."""
    publish(pipeline, plan, connections)
    return {report.urn: report for report in pipeline.finish(plan)}


def publish(pipeline: Pipeline, plan: RunPlan, connections: Connections) -> None:
    """A run from its plan to its outcomes."""
    extract(pipeline, plan, connections)
    for pack in plan.packs:
        pipeline.write_commit_steps(plan, pack)
        pipeline.execute_commit_steps(plan, pack)
