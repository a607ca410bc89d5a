"""This package, without Airflow around it: plan, run the pack on Spark or in two processes like Spark's Python workers, commit.

The data phase reads and writes all units of the pack and keeps their results. Before it, Spark was started, its executors'
Pythons were started with what they need, and a few rows of the same table were loaded elsewhere in the same session: that isn't
counted, and the cost of a pack's start is a figure of its own (`pack_start`). Planning, data and commit are counted; the modules
and libraries that they need are loaded before (`SQL_MODULES`), and the journal, which an ingestion makes once, is there. The heap
is frozen as in our tasks.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import Attempt, Work
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.watermark import TimestampWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.rows.sinks.iceberg import IcebergSink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.rows.sources.sql import Predicate, SqlSource, SqlTable
from airflow_gobblin.rows.sources.sql.positions import TICK
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.tables.port import table_of
from tests.benchmarks.contenders.parquet_rows import parquet_rows
from tests.benchmarks.contenders.reporting import FEW_ROWS, TARGET, Laps, arguments, begin, cpu_seconds, print_figures

SHOP = "shop"
"""The id of the connection to the database."""
WAREHOUSE = "warehouse"
"""The id of the connection to the tables of PostgreSQL."""
CATALOG = "lake"
"""The id of the connection to the catalog of Iceberg tables."""
_FEW_BYTES = 16 << 10
"""The size of the units of the few rows that are loaded before the clock runs."""
SQL_MODULES = (
    "adbc_driver_postgresql.dbapi",
    "airflow_gobblin.rows.extraction",
    "airflow_gobblin.rows.planning",
    "airflow_gobblin.rows.source_plans",
    "airflow_gobblin.rows.sources.sql.database",
    "airflow_gobblin.rows.sources.sql.planning",
    "airflow_gobblin.rows.sources.sql.reader",
    "airflow_gobblin.storage.stores.local",
    "tests.benchmarks.contenders.sql_libraries",
)
"""The modules that planning and units load when they first need them, and one that loads libraries, as the peers do."""


def ingestion(folder: str, table: str, key: str, kind: str = "parquet") -> Ingestion:
    """The table, all defaults.

    :param kind: of the sink.
    """
    source = SqlSource(SHOP, (SqlTable(table, ExtractKind.APPEND_ONLY, delta=key),))
    return Ingestion("benchmark", source, _sink(folder, kind), journal=f"{folder}/journal", max_packs=1)


def few_rows(folder: str, table: str, key: str, connections: SparkConnections) -> OpenJob:
    """A load of the table's first rows into a place of its own, in a few units, so that each core gets some."""
    few = SqlTable(
        table, ExtractKind.APPEND_ONLY, delta=key, where=(Predicate("id", "<=", FEW_ROWS),), unit_bytes=_FEW_BYTES
    )
    whole = ingestion(f"{folder}/few", table, key)
    return open_job(replace(whole, source=SqlSource(SHOP, (few,))), connections)


def _sink(folder: str, kind: str) -> Sink:
    if kind == "delta":
        return DeltaSink(f"{folder}/lake/{{dataset}}", f"{folder}/work")
    if kind == "iceberg":
        return IcebergSink(CATALOG, "shop.{dataset}", f"{folder}/work")
    if kind == "postgres":
        return PostgresSink(WAREHOUSE, "public.{dataset}", f"{folder}/work")
    return ParquetSink(f"{folder}/target")


def _connections(folder: str, url: str, kind: str) -> SparkConnections:
    """The connections that a sink of this kind takes, and the one to the database."""
    catalog = f"sqlite://{folder}/catalog.db?warehouse={quote(f'file://{folder}/lake', safe='')}"
    tables = {"postgres": {WAREHOUSE: os.environ.get(TARGET, "")}, "iceberg": {CATALOG: catalog}}
    return SparkConnections({SHOP: url, **tables.get(kind, {})})


def rows_of(opened: OpenJob, urn: str) -> int:
    """The rows that were published, counted at their place after the clock was stopped."""
    found = opened.journal.read_dataset(urn)
    if found.table is None:
        return parquet_rows(opened.job.work.target)
    return table_of(found.table).open(opened.connections, opened.files).total().rows


def open_job(job: Ingestion, connections: SparkConnections) -> OpenJob:
    return OpenJob(job, Journal.create(job.journal, job.name), connections)


def on_spark(
    opened: OpenJob,
    run: RunPlan,
    job: Ingestion,
    connections: SparkConnections,
    clock: Laps,
    remote: str,
    before: OpenJob | None = None,
    late: Sequence[str] = (),
) -> float:
    """Run the pack by the driver's own code.

    :param remote: the URL of a Spark Connect server; empty for local mode.
    :param before: an ingestion whose packs are extracted in the session before the clock runs.
    :param late: the modules that units load when they first need them.
    :return: the CPU time of the data phase.
    """
    from airflow_gobblin.spark.pack import run_pack
    from airflow_gobblin.spark.session import REMOTE, spark_session, submit_options
    from airflow_gobblin.spark.ship import ship
    from tests.benchmarks.contenders.spark_session import start_session

    zips: list[str] = []
    if remote:
        os.environ[REMOTE] = remote
        zips = [str(ship((), Path(job.sink.target).parent / "code"))]
    else:
        os.environ["SPARK_SUBMIT_OPTS"] = submit_options()  # as our operator does
        start_session()
    with spark_session("benchmark", zips=zips) as spark:
        _start_pythons(spark, opened.job.work, connections, late)
        if before is not None:
            few = create_work_units(before, RunRequest("before"))
            done = run_pack(spark, before.job.work.workspace, before.staging.folder, few.run, 0, (), connections)
            assert not done.failures, done.failures
        begin(Path(job.journal).parent)
        session, spent = clock.lap("Spark start"), cpu_seconds()
        report = run_pack(spark, job.sink.target, opened.staging.folder, run.run, 0, (), connections)
        seconds, cpu = clock.lap("data"), cpu_seconds() - spent
    assert not report.failures, report.failures
    clock.phases |= {"Spark start": session, "data": seconds}
    clock.lap("Spark stop")
    return cpu


def _start_pythons(spark: Any, work: Work, connections: SparkConnections, late: Sequence[str]) -> None:
    """Start the executors' Pythons, and have them load all that the units need, as the first task of each does."""
    from airflow_gobblin.model.registry import built_in_modules
    from airflow_gobblin.spark.jobs import collect
    from airflow_gobblin.spark.probe import Needs, count_cores, lacking, mismatch_in

    modules = (
        "pyarrow",
        "airflow_gobblin.spark.task",
        *built_in_modules(),
        *work.modules(connections),
        *late,
    )
    rows = collect(spark, lambda _: lacking(Needs(modules)), range(count_cores(spark)))
    assert mismatch_in(rows) is None, rows


@dataclass(frozen=True)
class _Share:
    """The work of one process."""

    folder: str
    table: str
    key: str
    connections: SparkConnections
    run: str
    token: str
    units: tuple[str, ...]


def _extract(share: _Share) -> None:
    job = ingestion(share.folder, share.table, share.key)
    staging = open_job(job, share.connections).staging
    plan = staging.plan(share.token)
    assert plan is not None
    for unit in (unit for unit in plan.units if unit.id in share.units):
        folder = staging.token_folder(plan.token)
        attempt = Attempt("attempt", staging.files, folder, share.connections)
        result = staging.work(share.run).run(unit, plan, attempt)
        assert result.failure is None, result.why
        staging.put_result(plan.token, result)


def import_drivers(late: Sequence[str]) -> None:
    """Load the same before the clock runs as executors have loaded: late modules, and the kinds of records."""
    from airflow_gobblin.model.registry import import_kinds

    import_kinds()
    for module in late:
        importlib.import_module(module)


def import_library(kind: str) -> None:
    """The library of a kind of sink, which planning would load. pyiceberg takes a second."""
    if kind == "iceberg":
        import pyiceberg.catalog.sql
        import pyiceberg.io.pyarrow  # noqa: F401
    elif kind == "delta":
        import airflow_gobblin.tables.delta.table  # noqa: F401


def shares(asked: Namespace, opened: OpenJob, run: RunPlan, connections: SparkConnections) -> list[_Share]:
    """The units of the only dataset, for two processes."""
    (dataset,) = run.packs[0].datasets
    plan = opened.staging.plan(dataset.token)
    assert plan is not None
    units = tuple(unit.id for unit in plan.units)
    return [
        _Share(asked.folder, asked.table, asked.key, connections, run.run, plan.token, units[part::2])
        for part in range(2)
    ]


def in_processes(work: Sequence[_Share], clock: Laps) -> None:
    """Run the units in two processes that are started before the clock, as Spark's Python workers are."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(import_drivers, [SQL_MODULES] * 2, chunksize=1)
        begin(Path(work[0].folder))
        clock.lap("process start")
        pool.map(_extract, work, chunksize=1)
        clock.lap("data")


def load_from(job: Ingestion, table: str, since: str) -> None:
    """Let the table count as loaded up to and with a time, as earlier runs would have left it."""
    administration = Administration(Journal.create(job.journal, job.name), job.sink.target, "benchmark")
    after = datetime.fromisoformat(since).replace(tzinfo=UTC) + TICK
    administration.set_watermark(table, TimestampWatermark(after), "loaded")


def main() -> None:
    from airflow_gobblin.operators.frozen_heap import frozen_heap

    asked = arguments(folder="", table="", key="", spark="yes", since="never", remote="none", sink="parquet")
    connections = _connections(asked.folder, asked.url, asked.sink)
    job = ingestion(asked.folder, asked.table, asked.key, asked.sink)
    if asked.since != "never":
        load_from(job, asked.table, asked.since)
    import_drivers(SQL_MODULES)
    import_library(asked.sink)
    Journal.create(job.journal, job.name)
    clock = Laps()
    with frozen_heap():
        opened = open_job(job, connections)
        run = create_work_units(opened, RunRequest("benchmark"))
        clock.lap("planning")
        if asked.spark == "yes":
            few = few_rows(asked.folder, asked.table, asked.key, connections)
            on_spark(
                opened, run, job, connections, clock, "" if asked.remote == "none" else asked.remote, few, SQL_MODULES
            )
        else:
            in_processes(shares(asked, opened, run, connections), clock)
        (pack,) = run.packs
        write_commit_steps(opened, run, pack)
        execute_commit_steps(opened, run, pack)
        finish(opened, run)
        clock.lap("commit")
    print_figures(
        sum(clock.phases[name] for name in ("planning", "data", "commit")),
        clock.phases,
        rows=rows_of(opened, asked.table),
    )


if __name__ == "__main__":
    main()
