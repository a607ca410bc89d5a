"""This package, without Airflow around it: plan, and run the pack on Spark or in two processes like Spark's Python workers.

What is compared is the data phase: all units of the pack read, written and their results kept. Before it, Spark was started and
its executors' Pythons were, which this package does to check them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_gobblin.extraction import extract_unit
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal import Journal
from airflow_gobblin.pipeline import Pipeline, RunRequest
from airflow_gobblin.plan import RunPlan
from airflow_gobblin.sinks.parquet import ParquetSink
from airflow_gobblin.sources.sql import SqlSource, SqlTable
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.work import ExtractKind
from tests.benchmarks.contenders.parquet_rows import parquet_rows
from tests.benchmarks.contenders.saying import Laps, arguments, say

MODULES = ("pyarrow", "adbc_driver_postgresql.dbapi")


def ingestion(folder: str, table: str, key: str) -> Ingestion:
    """The table, all defaults."""
    source = SqlSource("shop", (SqlTable(table, ExtractKind.APPEND_ONLY, delta=key),))
    return Ingestion("benchmark", source, ParquetSink(f"{folder}/target"), journal=f"{folder}/journal", max_packs=1)


def open_pipeline(job: Ingestion, connections: SparkConnections) -> Pipeline:
    return Pipeline(job, Journal.open(job.journal, job.name), connections)


def on_spark(pipeline: Pipeline, run: RunPlan, job: Ingestion, connections: SparkConnections, clock: Laps) -> float:
    """Run the pack by the driver's own code. :return: the seconds of the data phase."""
    from airflow_gobblin.spark.pack import run_pack
    from airflow_gobblin.spark.probe import probe_executors
    from tests.benchmarks.contenders.spark_session import start_session

    spark = start_session()
    probe_executors(spark, MODULES, None)
    clock.lap("Spark start")
    report = run_pack(spark, job.sink.target, pipeline.staging.folder, run.run, 0, (), connections)
    seconds = clock.lap("data")
    spark.stop()
    assert not report.errors, report.errors
    return seconds


@dataclass(frozen=True)
class _Share:
    """What one process does."""

    folder: str
    table: str
    key: str
    connections: SparkConnections
    run: str
    token: str
    units: tuple[str, ...]


def _extract(share: _Share) -> None:
    job = ingestion(share.folder, share.table, share.key)
    staging = open_pipeline(job, share.connections).staging
    plan = staging.plan(share.token)
    assert plan is not None
    for unit in (unit for unit in plan.units if unit.id in share.units):
        folder = staging.token_folder(plan.token)
        result = extract_unit(staging.job(share.run), plan, unit, "attempt", staging.files, folder, share.connections)
        assert result.error is None, result.error


def _import_only(_: int) -> None:
    import adbc_driver_postgresql.dbapi  # noqa: F401


def in_processes(shares: Sequence[_Share], clock: Laps) -> float:
    """Run the units in two processes that are started before the clock, as Spark's Python workers are."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_import_only, range(2), chunksize=1)
        clock.lap("process start")
        pool.map(_extract, shares, chunksize=1)
        return clock.lap("data")


def main() -> None:
    asked = arguments(folder="", table="", key="", spark="yes")
    connections = SparkConnections({"shop": asked.url})
    job = ingestion(asked.folder, asked.table, asked.key)
    clock = Laps()
    pipeline = open_pipeline(job, connections)
    run = pipeline.create_work_units(RunRequest("benchmark"))
    clock.lap("planning")
    if asked.spark == "yes":
        seconds = on_spark(pipeline, run, job, connections, clock)
    else:
        (dataset,) = run.packs[0].datasets
        plan = pipeline.staging.plan(dataset.token)
        assert plan is not None
        units = tuple(unit.id for unit in plan.units)
        shares = [
            _Share(asked.folder, asked.table, asked.key, connections, run.run, plan.token, units[part::2])
            for part in range(2)
        ]
        seconds = in_processes(shares, clock)
    say(seconds, clock.phases, rows=parquet_rows(asked.folder))


if __name__ == "__main__":
    main()
