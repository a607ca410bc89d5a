"""A version of a stage with state, made by the tasks of its graph in this process, on a Spark that was just started."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

from airflow_gobblin import ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, SqlSource, SqlTable, Stage, State
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.session import submit_options
from airflow_gobblin.testing import inprocess
from tests.benchmarks.contenders.keyed import SCHEMA, ranges
from tests.benchmarks.contenders.reporting import Laps, arguments, cpu_seconds, print_figures
from tests.benchmarks.contenders.spark_session import start_session
from tests.spark.test_stages import run_stage

CODE = ("tests.benchmarks.contenders.keyed",)


def pipeline(folder: str) -> Pipeline:
    source = SqlSource("ranges", (SqlTable("ranges", ExtractKind.APPEND_ONLY, delta="id"),))
    journal = f"sqlite:///{folder}/journal.db"
    raw = Ingestion("raw", source, ParquetSink(f"{folder}/raw"), journal)
    state = State(("key",), SCHEMA, buckets=16, keep=2)
    totals = Stage(
        "totals",
        Frame("keyed.totals"),
        {"found": raw["ranges"]},
        ParquetSink(f"{folder}/lake"),
        state,
        retention=timedelta(0),
    )
    return Pipeline("keyed", (raw, totals), journal, CODE)


def main() -> None:
    asked = arguments(folder="", version="", keys="", share="0.01")
    folder, version = asked.folder, int(asked.version)
    import_kinds(CODE)
    connections = SparkConnections({"ranges": f"sqlite:///{folder}/ranges.db"})
    with closing(sqlite3.connect(f"{folder}/ranges.db")) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS ranges (id INTEGER PRIMARY KEY, first INT, last INT, keys INT)")
        database.executemany(
            "INSERT INTO ranges VALUES (?, ?, ?, ?)", ranges(version, int(asked.keys), float(asked.share))
        )
    jobs = pipeline(folder)
    end = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=version)
    inprocess.run(_opened(jobs, "raw", connections), connections, RunRequest(f"raw/{version}", end, version=end))
    os.environ["SPARK_SUBMIT_OPTS"] = submit_options()  # as our operator does
    clock = Laps()
    conf = {"spark.sql.shuffle.partitions": "16"}
    if version == 0:  # its keys are all, which Spark takes for few
        conf["spark.sql.autoBroadcastJoinThreshold"] = "-1"
    spark = start_session(conf=conf)
    clock.lap("Spark start")
    every = cpu_seconds()
    report = run_stage(spark, _opened(jobs, "totals", connections), RunRequest(f"totals/{version}"), CODE)
    seconds, every = clock.lap("version"), cpu_seconds() - every
    assert report.status == "committed", report.text
    spark.stop()
    print_figures(seconds + clock.phases["Spark start"], clock.phases, every, rows=report.rows or 0)


def _opened(jobs: Pipeline, name: str, connections: SparkConnections) -> OpenJob:
    return OpenJob(jobs[name], Journal.create(jobs[name].journal, name), connections)


if __name__ == "__main__":
    main()
