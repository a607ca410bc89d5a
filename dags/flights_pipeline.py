"""Ingest flights and weather of New York City, join them, and sum up delays month to date: three jobs, each with its own DAG.

The join has two outputs: flights that left, with their weather, and those that were cancelled, as a channel. The sums cover both.

A stage makes each version of its rows once, from what the jobs before have published for it, and follows when any of that is
taken back.

It needs two connections, `flights_db` (Sqlite or Postgres) and `spark_default` (Spark), for example from the environment:

    AIRFLOW_CONN_FLIGHTS_DB=sqlite:////path/to/flights.db
    AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2]"}'

Tables and journal are written below `FLIGHTS_LAKE`, by default the folder `lake` in Airflow's home. A version is the end of an
interval of `FLIGHTS_SCHEDULE`, by default an hour. The DAGs are paused at first.
"""

import os
from datetime import UTC, datetime

from airflow_gobblin import (
    ExtractKind,
    Frame,
    Ingestion,
    ParquetSink,
    Pipeline,
    SparkOptions,
    SqlSource,
    SqlTable,
    Stage,
    State,
    Whole,
)

LAKE = os.environ.get("FLIGHTS_LAKE") or os.path.join(os.environ.get("AIRFLOW_HOME", "~/airflow"), "lake")
LAKE = os.path.abspath(os.path.expanduser(LAKE)) + "/pipeline"

raw = Ingestion(
    name="raw",
    source=SqlSource(
        conn_id="flights_db",
        tables=(
            SqlTable("flights", ExtractKind.APPEND_ONLY, delta="row_id"),
            SqlTable("weather", ExtractKind.APPEND_ONLY, delta="time_hour"),
        ),
    ),
    sink=ParquetSink(f"{LAKE}/raw"),
    journal=f"file://{LAKE}/journal",
)
joined = Stage(
    name="joined",
    function=Frame("flights.with_weather"),
    reads={"flights": raw["flights"], "weather": Whole(raw["weather"])},  # new flights, and all weather until then
    writes=ParquetSink(f"{LAKE}/joined"),
    channels=("cancelled",),
)
delays = Stage(
    name="delays",
    function=Frame("flights.month_to_date"),
    reads={"joined": joined, "cancelled": joined["cancelled"]},
    writes=ParquetSink(f"{LAKE}/delays"),
    state=State(
        key=("carrier", "year", "month"),
        schema="carrier string, year bigint, month bigint, flights bigint, minutes bigint, windy bigint, cancelled bigint",
        buckets=4,
    ),
)
flights = Pipeline("flights_pipeline", (raw, joined, delays), f"file://{LAKE}/journal", code=("flights_frames",))

for dag in flights.dags(
    schedule=os.environ.get("FLIGHTS_SCHEDULE") or "@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    spark=SparkOptions(conn_id="spark_default", conf={"spark.sql.shuffle.partitions": "4"}),
    doc_md=__doc__,
    is_paused_upon_creation=True,
):
    globals()[dag.dag_id] = dag
