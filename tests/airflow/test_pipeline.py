"""A pipeline without a schedule in a real Airflow, on real Spark: its stages are woken by what they read.

Its source, its journal and the table of its last stage are in a database, whose password is nowhere to be found.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sqlalchemy import Engine, NullPool, create_engine, inspect, make_url, text

from tests.airflow.canary import CommandLines, Places, owned_by_canary
from tests.airflow.shop import connection_to
from tests.services.airflow import Airflow

PASSWORD = "r0hr/dr0mmel@see%+1"

FUNCTIONS = '''
"""The functions of the pipeline's stages."""

from pyspark.sql import functions as f

from airflow_gobblin import frame


@frame("acme.joined")
def joined(flights, planes):
    return flights.join(planes.drop("id"), "plane", "left").withColumn("at", f.current_timestamp())
'''

DAGS = """
from datetime import UTC, datetime

from airflow_gobblin import (
    ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, PostgresSink, SparkOptions, Sql, SqlSource, SqlTable, Stage
)

tables = tuple(SqlTable(name, ExtractKind.APPEND_ONLY, delta="id") for name in ("flights", "planes"))
raw = Ingestion("raw", SqlSource("acme", tables), ParquetSink("{lake}/raw"), "acme", max_packs=1)
reads = {{"flights": raw["flights"], "planes": raw["planes"]}}
joined = Stage("joined", Frame("acme.joined"), reads, ParquetSink("{lake}/joined"))
report = Stage(
    "report",
    Sql("SELECT seats, count(*) AS flights FROM {{joined}} GROUP BY seats"),
    {{"joined": joined}},
    PostgresSink("acme", "public.report", "{lake}/report"),
)
pipeline = Pipeline("acme", (raw, joined, report), "acme", code=("acme_functions",))
conf = {{"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}}
conf |= {{"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file://{events}", "spark.eventLog.compress": "false"}}
spark = SparkOptions("spark_here", conf)
for dag in pipeline.dags(schedule=None, start_date=datetime(2020, 1, 1, tzinfo=UTC), spark=spark):
    globals()[dag.dag_id] = dag
"""


def flights(url: str) -> Engine:
    """A database with flights and planes."""
    database = create_engine(url, poolclass=NullPool)
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE flights (id INTEGER PRIMARY KEY, plane TEXT)"))
        connection.execute(text("CREATE TABLE planes (id INTEGER PRIMARY KEY, plane TEXT, seats INTEGER)"))
        connection.execute(text("INSERT INTO flights SELECT n, 'N' || n % 5 FROM generate_series(1, 50) n"))
        connection.execute(text("INSERT INTO planes SELECT n, 'N' || n, 100 + n % 2 FROM generate_series(0, 3) n"))
    return database


def test_the_stages_of_a_pipeline_follow_its_source(
    airflow: Airflow, metadata: str, postgres_database: str, tmp_path: Path
) -> None:
    url = owned_by_canary(make_url(postgres_database), PASSWORD)
    database = flights(url.render_as_string(hide_password=False))
    airflow.put_connection(**connection_to("acme", url))
    airflow.put_dag_file("acme_functions.py", FUNCTIONS)
    lake, events = tmp_path / "lake", tmp_path / "events"
    events.mkdir()

    def reported() -> Counter[int | None] | None:
        if not inspect(database).has_table("report"):
            return None
        with database.connect() as connection:
            rows = connection.execute(text("SELECT seats, flights FROM report")).all()
        return Counter(dict(rows)) or None

    with CommandLines() as command_lines:
        airflow.add_dag("acme.py", DAGS.format(lake=lake, events=events), "acme.raw", "acme.joined", "acme.report")
        airflow.trigger("acme.raw")
        assert airflow.wait_for("the report", reported, seconds=600) == {100: 20, 101: 20, None: 10}
        (run,) = airflow.request("GET", "dags/acme.report/dagRuns")["dag_runs"]
        assert run["run_type"] == "asset_triggered"
        assert airflow.wait_for_run("acme.report", run["dag_run_id"]) == "success"
        folders = {
            "lake": lake,
            "event logs": events,
            "task logs": airflow.home / "logs",
            "component logs": airflow.logs,
        }
        places = Places(folders, (create_engine(metadata, poolclass=NullPool), database), command_lines)
        assert places.with_secret(PASSWORD) == {}
        tables = ("xcom", "rendered_task_instance_fields", "task_instance", "gobblin_journal", "owners", "report")
        places.expect_searched("acme", "report", "seats", "100", tables=tables)
