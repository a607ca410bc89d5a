"""A pipeline without a schedule in a real Airflow, on real Spark: its stages are woken by what they read."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from airflow_gobblin.errors import NotFoundError
from airflow_gobblin.journal.journal import Journal
from tests.services.airflow import Airflow

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
    ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, SparkOptions, Sql, SqlSource, SqlTable, Stage
)

tables = tuple(SqlTable(name, ExtractKind.APPEND_ONLY, delta="id") for name in ("flights", "planes"))
raw = Ingestion("raw", SqlSource("acme_flights", tables), ParquetSink("{lake}/raw"), "{lake}/journal", max_packs=1)
reads = {{"flights": raw["flights"], "planes": raw["planes"]}}
joined = Stage("joined", Frame("acme.joined"), reads, ParquetSink("{lake}/joined"))
report = Stage(
    "report",
    Sql("SELECT seats, count(*) AS flights FROM {{joined}} GROUP BY seats"),
    {{"joined": joined}},
    ParquetSink("{lake}/report"),
)
pipeline = Pipeline("acme", (raw, joined, report), "sqlite:///{lake}/journal.db", code=("acme_functions",))
spark = SparkOptions("spark_here", {{"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}})
for dag in pipeline.dags(schedule=None, start_date=datetime(2020, 1, 1, tzinfo=UTC), spark=spark):
    globals()[dag.dag_id] = dag
"""


def test_the_stages_of_a_pipeline_follow_its_source(airflow: Airflow, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "flights.db")) as database, database:
        database.execute("CREATE TABLE flights (id INTEGER PRIMARY KEY NOT NULL, plane TEXT)")
        database.execute("CREATE TABLE planes (id INTEGER PRIMARY KEY NOT NULL, plane TEXT, seats INTEGER)")
        database.executemany("INSERT INTO flights (plane) VALUES (?)", [(f"N{n % 5}",) for n in range(50)])
        database.executemany(
            "INSERT INTO planes (plane, seats) VALUES (?, ?)", [(f"N{n}", 100 + n % 2) for n in range(4)]
        )
    airflow.put_connection(connection_id="acme_flights", conn_type="sqlite", host=f"{tmp_path}/flights.db")
    airflow.put_dag_file("acme_functions.py", FUNCTIONS)
    airflow.add_dag("acme.py", DAGS.format(lake=tmp_path), "acme.raw", "acme.joined", "acme.report")
    airflow.trigger("acme.raw")

    def reported() -> Counter[int | None] | None:
        try:
            found = Journal.open(f"sqlite:///{tmp_path}/journal.db", "report").read_dataset("report")
        except NotFoundError:
            return None
        return Counter({row["seats"]: row["flights"] for row in found.to_arrow().to_table().to_pylist()})

    assert airflow.wait_for("the report", reported, seconds=600) == {100: 20, 101: 20, None: 10}
    runs = airflow.request("GET", "dags/acme.report/dagRuns")["dag_runs"]
    assert {run["run_type"] for run in runs} == {"asset_triggered"}
