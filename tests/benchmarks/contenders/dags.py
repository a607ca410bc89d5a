"""The DAGs that are measured: ours, one with a plain Spark JDBC submit, and ours with plain files in place of the journal."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, task

from airflow_gobblin.operators import GobblinIngestion, SparkOptions
from airflow_gobblin.spark.session import JVM_OPTIONS
from tests.benchmarks.contenders.gobblin import ingestion

CONF = {"spark.ui.enabled": "false"}
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def gobblin(name: str, folder: str, table: str, key: str, spark: str) -> None:
    """Our six tasks.

    :param spark: a Spark connection.
    """
    conf = CONF if spark == "spark_here" else {}  # a running server has its own
    with DAG(name, schedule=None):
        GobblinIngestion(ingestion(folder, table, key), spark=SparkOptions(conn_id=spark, conf=conf))


def plain(name: str, folder: str, table: str, jars: str, arguments: list[str]) -> None:
    """One plain submit of a Spark JDBC job among five tasks that do nothing.

    :param arguments: the job's, beside these.
    """
    with DAG(name, schedule=None):

        @task
        def nothing() -> None: ...

        before = [nothing.override(task_id=f"before_{number}")() for number in range(2)]
        extract = SparkSubmitOperator(
            task_id="extract",
            conn_id="spark_here",
            application=str(Path(__file__).with_name("plain_job.py")),
            application_args=[f"--folder={folder}", f"--table={table}", *arguments],
            jars=jars,
            conf=CONF,
        )
        after = [nothing.override(task_id=f"after_{number}")() for number in range(3)]
        before[0] >> before[1] >> extract >> after[0] >> after[1] >> after[2]


def plain_warm(name: str, folder: str, table: str, key: str, since: str, remote: str) -> None:
    """The plain DAG by Spark Connect: its job is a task's own Python.

    :param remote: the server's URL.
    """
    with DAG(name, schedule=None):

        @task
        def nothing() -> None: ...

        @task
        def extract() -> None:
            from argparse import Namespace

            from pyspark.sql import SparkSession

            from tests.benchmarks.contenders.plain_job import copy_rows

            spark = SparkSession.builder.remote(remote).getOrCreate()
            copy_rows(spark, Namespace(folder=folder, table=table, partitions="1", last="0", key=key, since=since))
            spark.stop()

        before = [nothing.override(task_id=f"before_{number}")() for number in range(2)]
        after = [nothing.override(task_id=f"after_{number}")() for number in range(3)]
        before[0] >> before[1] >> extract() >> after[0] >> after[1] >> after[2]


def naive(name: str, folder: str, table: str, key: str) -> None:
    """A job as people often write it by hand, in six tasks, too: the same units and files, moved when all exist, and the
    watermark saved afterwards.

    A crash between the two publishes rows twice, and one in the middle of the moves shows a part.
    """
    place = Path(folder)
    watermark = place / "watermark.json"
    with DAG(name, schedule=None):

        @task
        def read_watermark() -> str | None:
            return str(json.loads(watermark.read_text())) if watermark.exists() else None

        @task
        def plan(since: Any) -> str:
            from airflow_gobblin.hooks.connections import AirflowConnections
            from airflow_gobblin.journal.records import now
            from airflow_gobblin.model import schema, wire
            from airflow_gobblin.model.plan import Plan
            from airflow_gobblin.rows.sources.base import PlanRequest
            from airflow_gobblin.rows.work import RowsBinding

            assert since is None
            source, connections = ingestion(folder, table, key).source, AirflowConnections()
            (dataset,) = source.datasets(connections)
            found = source.plan(dataset, {}, PlanRequest(now()), connections)
            known = schema.encode(found.schema)
            binding, units = RowsBinding(known), tuple(found.units)
            made = Plan("", "naive", "", 0, dataset.urn, dataset.holds, table, units, binding, known, found.planned)
            (place / "tmp").mkdir()
            (place / "plan").write_bytes(wire.dumps(made))
            assert found.planned is not None
            return str(found.planned.high)

        @task
        def publish() -> None:
            (place / "target").mkdir(exist_ok=True)
            for file in (place / "tmp").iterdir():
                file.rename(place / "target" / file.name)

        @task
        def save_watermark(high: Any) -> None:
            watermark.write_text(json.dumps(high))

        @task
        def clean_up() -> None:
            shutil.rmtree(place / "tmp")

        extract = SparkSubmitOperator(
            task_id="extract",
            conn_id="spark_here",
            application=str(Path(__file__).with_name("naive_job.py")),
            application_args=[f"--folder={folder}", f"--table={table}", f"--key={key}"],
            conf={**CONF, "spark.driver.extraJavaOptions": JVM_OPTIONS},
        )
        planned = plan(read_watermark())
        planned >> extract >> publish() >> save_watermark(planned) >> clean_up()


def pipeline(name: str, folder: str, schedule: str, rows: int) -> None:
    """A pipeline of four jobs in a row, by Spark Connect.

    :param schedule: a cron expression, by which a run was due just now.
    """
    from tests.benchmarks.contenders.flights import CHAIN, flights

    made = flights(name, folder, rows, CHAIN)
    made.dags(schedule=schedule, start_date=BEGINNING, spark=SparkOptions(conn_id="spark_warm"))


def chained(name: str, folder: str, schedule: str, jobs: list[str], remote: str) -> None:
    """As many DAGs of six tasks, each woken by the one before: one opens a session by Spark Connect, and the others do nothing.

    :param folder: isn't used.
    :param schedule: as of `pipeline`.
    :param jobs: the second halves of their ids.
    """
    before: Asset | None = None
    for job in jobs:
        after = Asset(f"chained://{name}/{job}")
        when = schedule if before is None else [before]
        with DAG(f"{name}.{job}", schedule=when, start_date=BEGINNING, catchup=False, max_active_runs=1):

            @task
            def nothing() -> None: ...

            @task
            def on_spark() -> None:
                from pyspark.sql import SparkSession

                spark = SparkSession.builder.remote(remote).getOrCreate()
                spark.range(1).collect()
                spark.stop()

            first = [nothing.override(task_id=f"before_{number}")() for number in range(2)]
            then = [nothing.override(task_id=f"after_{number}")() for number in range(2)]
            last = nothing.override(task_id="finish", outlets=[after])()
            first[0] >> first[1] >> on_spark() >> then[0] >> then[1] >> last
        before = after
