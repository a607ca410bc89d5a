"""Ingest all flights that left New York City into Parquet: a table that grows, and four small ones that are replaced.

It needs two connections, `flights_db` (Sqlite or Postgres) and `spark_default` (Spark), for example from the environment:

    AIRFLOW_CONN_FLIGHTS_DB=sqlite:////path/to/flights.db
    AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2]"}'

Tables and journal are written below `FLIGHTS_LAKE`, by default the folder `lake` in Airflow's home.
"""

import os

from airflow.sdk import DAG

from airflow_gobblin import ExtractKind, GobblinIngestion, Ingestion, ParquetSink, SparkOptions, SqlSource, SqlTable

LAKE = os.environ.get("FLIGHTS_LAKE") or os.path.join(os.environ.get("AIRFLOW_HOME", "~/airflow"), "lake")
LAKE = os.path.abspath(os.path.expanduser(LAKE))

flights = Ingestion(
    name="flights",
    source=SqlSource(
        conn_id="flights_db",
        tables=(
            # Flights have no key, so the table numbers its rows. It is small, so its units are, too: 1 MiB.
            SqlTable("flights", ExtractKind.APPEND_ONLY, delta="row_id", unit_bytes=1 << 20),
            SqlTable("airlines", ExtractKind.SNAPSHOT_ONLY),
            SqlTable("airports", ExtractKind.SNAPSHOT_ONLY),
            SqlTable("planes", ExtractKind.SNAPSHOT_ONLY),
            SqlTable("weather", ExtractKind.SNAPSHOT_ONLY),
        ),
    ),
    sink=ParquetSink(f"{LAKE}/tables"),
    journal=f"file://{LAKE}/journal",
    max_packs=2,  # two Spark applications a run: `flights`, and all the others
)

with DAG("flights", schedule=None, max_active_runs=1, doc_md=__doc__):
    GobblinIngestion(flights, spark=SparkOptions(conn_id="spark_default"))
