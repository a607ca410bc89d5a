"""A version of a pipeline, made by the tasks of its stages one after another in this process, on a Spark in local mode.

The source's rows are published before the clock runs. The protocol's CPU time is all that this process takes, which carries the
tasks out, with Python's share of the driver: Spark's own processes are others.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

from airflow_gobblin.job import Job
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.session import submit_options
from airflow_gobblin.testing import inprocess
from tests.benchmarks.contenders.flights import CODE, WIDE, flights
from tests.benchmarks.contenders.parquet_rows import parquet_rows
from tests.benchmarks.contenders.reporting import Laps, arguments, cpu_seconds, print_figures
from tests.benchmarks.contenders.spark_session import start_session
from tests.spark.test_stages import run_stage

PROTOCOL = "CPU of the process that carries the tasks out"
"""The phase with that figure: no part of the seconds."""


def main() -> None:
    asked = arguments(folder="", rows="")
    pipeline = flights("flights", asked.folder, int(asked.rows), WIDE)
    import_kinds(CODE)
    end = datetime(2026, 1, 1, tzinfo=UTC)
    inprocess.run(_opened(pipeline["raw"]), request=RunRequest("raw", end, version=end))
    os.environ["SPARK_SUBMIT_OPTS"] = submit_options()  # as our operator does
    clock = Laps()
    spark = start_session()
    clock.lap("Spark start")
    own, every = time.process_time(), cpu_seconds()
    for stage in WIDE:
        report = run_stage(spark, _opened(pipeline[stage]), RunRequest(stage), CODE)
        assert report.status == "committed", report.text
        clock.lap(stage)
    own, every = time.process_time() - own, cpu_seconds() - every
    seconds = sum(clock.phases[stage] for stage in WIDE)
    spark.stop()
    print_figures(seconds, {**clock.phases, PROTOCOL: own}, every, rows=parquet_rows(f"{asked.folder}/out"))


def _opened(job: Job) -> OpenJob:
    return OpenJob(job, Journal.create(job.journal, job.name), SparkConnections({}))


if __name__ == "__main__":
    main()
