"""A mirror, without Airflow around it: plan, run the pack on Spark, commit.

Before the clock runs, Spark is started, and a mirror of a few files has run in the same session and between the same kinds of
places, so that Spark, its executors' Pythons and their clients are as warm as a peer's program is when it has started. The heap
is frozen as in our tasks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow_gobblin.copy.finders import EachFolder, WholeTree
from airflow_gobblin.copy.options import Existing
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from tests.benchmarks.contenders.reporting import Laps, arguments, begin, cpu_seconds, print_figures

CONNECTION = "BENCHMARK_CONNECTION"
"""The variable that holds the connection of an object store."""
CONNECTION_ID = "lake"


def main() -> None:
    from airflow_gobblin.operators.frozen_heap import frozen_heap

    asked = arguments(folder="", source="", target="", warm_source="", warm_target="", runs="1")
    secret = os.environ.get(CONNECTION, "")
    connections = SparkConnections({CONNECTION_ID: secret} if secret else {})
    warm = _opened("warm", asked.warm_source, asked.warm_target, asked.folder, connections)
    opened = _opened("measured", asked.source, asked.target, asked.folder, connections)
    with _spark() as spark:
        _run(warm, spark, connections, "warm")
        for number in range(1, int(asked.runs)):
            _run(opened, spark, connections, f"before {number}")
        begin(Path(asked.folder), asked.source)
        before = cpu_seconds()
        with frozen_heap():
            phases = _run(opened, spark, connections, "measured")
        cpu = cpu_seconds() - before
    print_figures(sum(phases.values()), phases, cpu=cpu)


def _opened(name: str, source: str, target: str, folder: str, connections: SparkConnections) -> OpenJob:
    """A mirror with default options. The warm one has a dataset for each folder, so that each core gets one."""
    finder = EachFolder() if name == "warm" else WholeTree()
    mirror = Mirror(name, source, target, f"{folder}/{name}-journal", finder, existing=Existing.UPDATE, max_packs=1)
    return OpenJob(mirror, Journal.create(mirror.journal, mirror.name), connections)


def _spark() -> Any:
    from airflow_gobblin.spark.session import spark_session, submit_options
    from tests.benchmarks.contenders.spark_session import start_session

    os.environ["SPARK_SUBMIT_OPTS"] = submit_options()  # as our operator does
    start_session()
    return spark_session("benchmark", zips=[])


def _run(opened: OpenJob, spark: Any, connections: SparkConnections, key: str) -> dict[str, float]:
    """Carry out a run, from listing to DONE; return the seconds of its phases."""
    from airflow_gobblin.spark.pack import run_pack

    clock = Laps()
    run = create_work_units(opened, RunRequest(key))
    clock.lap("listing and diff")
    for pack in run.packs:
        report = run_pack(spark, opened.job.work.workspace, opened.staging.folder, run.run, pack.index, (), connections)
        assert not report.failures, report.failures
        clock.lap("copy")
        write_commit_steps(opened, run, pack)
        clock.lap("steps and decision")
        done = execute_commit_steps(opened, run, pack)
        clock.lap("carrying out to DONE")
        assert {one.status for one in done} == {"committed"}, done
    return clock.phases


if __name__ == "__main__":
    main()
