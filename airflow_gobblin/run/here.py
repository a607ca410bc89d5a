"""A whole run in this process, without Airflow's scheduler and without Spark: the tasks of the graph, one after another."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from airflow_gobblin.connections import Connections
from airflow_gobblin.job import Attempt
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.progress import Progress, ProgressCount
from airflow_gobblin.model.work import UnitResult, UnitState, WorkUnit
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_here(
    opened: OpenJob, request: RunRequest, *, threads: int, report: Callable[[Progress], None]
) -> tuple[DatasetReport, ...]:
    """Carry out a run of a mirror, from `verify_recover` to `finish`.

    :param threads: how many units are copied at once.
    :param report: takes the progress whenever a unit is copied, from any thread, one call at a time.
    :return: the reports of `finish`.
    :raises GobblinError: as the tasks do.
    """
    verify_recover(opened, request)
    plan = create_work_units(opened, request)
    _copy(opened, plan, threads, report)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)
    return tuple(finish(opened, plan))


def run_units(
    opened: OpenJob, plan: RunPlan, connections: Connections, spark: SparkSession | None = None
) -> Iterator[tuple[str, UnitResult]]:
    """Run the missing units of every pack in one attempt; yield each result, which nothing has accepted yet, with its token.

    :param spark: the session, for a work whose units run on the driver.
    """
    attempt = uuid.uuid4().hex
    work = opened.staging.work(plan.run)
    for pack in plan.packs:
        with work.hold(connections) as held:
            for unit_plan, unit in missing_units(opened, pack):
                folder = opened.staging.token_folder(unit_plan.token)
                place = Attempt(attempt, opened.files, folder, connections, held.of(unit_plan), spark=spark)
                yield unit_plan.token, work.run(unit, unit_plan, place)


def _copy(opened: OpenJob, plan: RunPlan, threads: int, report: Callable[[Progress], None]) -> None:
    """Copy the missing units, several at once, and accept their results."""
    attempt, work, reporting = uuid.uuid4().hex, opened.staging.work(plan.run), threading.Lock()
    sizes = [(unit.files, unit.bytes) for pack in plan.packs for _, unit in missing_units(opened, pack)]
    count, share = ProgressCount(sizes), 1 / max(1, min(threads, sum(files > 0 for files, _ in sizes)))

    def copy(one: tuple[Plan, WorkUnit]) -> None:
        of, unit = one
        folder = opened.staging.token_folder(of.token)
        place = Attempt(attempt, opened.files, folder, opened.connections, share=share)
        result = opened.staging.put_result(of.token, work.run(unit, of, place))
        if result.state is UnitState.SUCCESSFUL:
            with reporting:
                report(count.add(unit.files, unit.bytes))

    missing = chain.from_iterable(map(partial(missing_units, opened), plan.packs))
    room = threading.Semaphore(2 * threads)  # plans may have very many units
    with ThreadPoolExecutor(threads, "copy") as pool:
        running = []
        for one in missing:
            room.acquire()
            running.append(pool.submit(copy, one))
            running[-1].add_done_callback(lambda _: room.release())
            running = [future for future in running if not future.done() or future.result()]
        for future in running:
            future.result()
