"""The code of a Spark task: it runs some units, in their order; each yields a result, whatever becomes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from threading import Lock

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.job import Attempt, LightWork, SplitWork, UnitPart, Work
from airflow_gobblin.model import wire
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.model.work import UnitResult, WorkUnit
from airflow_gobblin.redaction import redacted_output
from airflow_gobblin.spark.connections import VARIABLE, SparkConnections
from airflow_gobblin.spark.jobs import TaskRow
from airflow_gobblin.spark.probe import Needs, lacking
from airflow_gobblin.spark.worker import freeze_heap_once, schedule_as_batch, use_small_pages
from airflow_gobblin.storage.ahead import read_ahead
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.workspace.staging import Staging

__all__ = ["TaskSpec", "run_task"]


@dataclass(frozen=True)
class TaskSpec:
    """The units of one Spark task; it travels in the task's closure, with the secrets, so it is kept small.

    Spark writes a closure of a megabyte or more to a file on the driver's disk. Job and plans may be large: the task reads
    them from staging.

    :param code: the author's modules, imported before anything is decoded.
    :param workspace: the workspace root.
    :param staging: the ingestion's staging folder below it.
    :param run: the run with its job.
    :param units: by the token of each plan, the units that this task runs.
    :param needs: what its units need of the process, checked before anything is read.
    :param share: as in `Attempt`.
    :param part: as in `Attempt`, if its only unit is run in parts.
    :param joined: the results of the parts, if the task joins them.
    :param snapshots: by the token of each plan that needs one, the name of the snapshot that the driver holds.
    """

    code: tuple[str, ...]
    workspace: str
    staging: str
    attempt: str
    run: str
    units: Mapping[str, tuple[str, ...]]
    snapshots: Mapping[str, str]
    connections: SparkConnections
    needs: Needs
    share: float = 1.0
    part: UnitPart | None = None
    joined: tuple[bytes, ...] = ()


def run_task(spec: TaskSpec) -> Iterator[TaskRow]:
    """Run the units of a spec, and yield each result, with its plan's token; if this process lacks something, only that.

    The error of a failed task appears in Spark's event log, on its pages and in the logs of executors: so it has no secret.
    """
    schedule_as_batch()
    use_small_pages()
    os.environ.pop(VARIABLE, None)  # in local mode executors are started by the driver's process
    connections = spec.connections.guarded()
    with redacted_output(connections.redactor), connections.redactor.guarding("run", "a Spark task"):
        found = lacking(spec.needs)
        freeze_heap_once()  # with all that units need in it
        yield from found or _results(spec, connections)


def _results(spec: TaskSpec, connections: GuardedConnections) -> Iterator[TaskRow]:
    import_kinds(spec.code)
    staging = Staging(open_files(spec.workspace, connections), spec.staging)
    work = staging.work(spec.run)
    at_once = work.units_at_once if isinstance(work, LightWork) else 1
    for token, units in spec.units.items():
        plan = staging.plan(token)
        if plan is None:
            continue  # swept since: it can no longer win
        folder = staging.token_folder(token)
        wanted, snapshot = frozenset(units), spec.snapshots.get(token, "")
        attempt = Attempt(
            spec.attempt, staging.files, folder, connections, snapshot, spec.share, spec.part, turn=Lock()
        )
        of_order = (unit for unit in staging.units(plan) if unit.id in wanted)
        found = staging.with_finished(work, token, islice(of_order, len(wanted)))
        for result in _at_once(partial(_run, spec, work, plan, attempt), found, at_once):
            yield token, wire.dumps(result)


def _at_once(run: Callable[[WorkUnit], UnitResult], units: Iterator[WorkUnit], at_once: int) -> Iterator[UnitResult]:
    """Run units, several at once; yield their results in order."""
    if at_once == 1:
        yield from map(run, units)
        return
    with ThreadPoolExecutor(at_once, "unit") as pool:
        yield from read_ahead(pool, run, units, at_once)


def _run(spec: TaskSpec, work: Work, plan: Plan, attempt: Attempt, unit: WorkUnit) -> UnitResult:
    started = time.time()
    result = _joined(work, unit, plan, attempt, spec) if spec.joined else work.run(unit, plan, attempt)
    times = {"started": started, "finished": time.time()}
    return replace(result, metrics={**result.metrics, **times})


def _joined(work: Work, unit: WorkUnit, plan: Plan, attempt: Attempt, spec: TaskSpec) -> UnitResult:
    assert isinstance(work, SplitWork)
    assert spec.part is not None
    parts = [wire.loads(data, UnitResult, f"a part of unit {unit.id!r}") for data in spec.joined]
    return work.join(unit, plan, attempt, spec.part.place, parts)
