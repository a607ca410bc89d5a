"""Ingest all flights that left New York City into a table of an Iceberg catalog, partitioned by month.

It needs three connections: `flights_db` (Sqlite or Postgres), `lake_catalog` (Iceberg, Sqlite or Postgres) and `spark_default`
(Spark), for example from the environment:

    AIRFLOW_CONN_FLIGHTS_DB=sqlite:////path/to/flights.db
    AIRFLOW_CONN_LAKE_CATALOG='{"conn_type": "sqlite", "host": "/path/to/catalog.db", "extra": {"warehouse": "file:///path/to/tables"}}'
    AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2]"}'

Journal and workspace are below `FLIGHTS_LAKE`, by default the folder `lake` in Airflow's home.
"""

import os

from airflow.sdk import DAG

from airflow_gobblin import ExtractKind, GobblinIngestion, IcebergSink, Ingestion, SparkOptions, SqlSource, SqlTable

LAKE = os.environ.get("FLIGHTS_LAKE") or os.path.join(os.environ.get("AIRFLOW_HOME", "~/airflow"), "lake")
LAKE = os.path.abspath(os.path.expanduser(LAKE))

flights = Ingestion(
    name="flights_to_iceberg",
    source=SqlSource(
        conn_id="flights_db",
        tables=(SqlTable("flights", ExtractKind.APPEND_ONLY, delta="row_id", unit_bytes=8 << 20),),
    ),
    sink=IcebergSink(
        catalog="lake_catalog", table="demo.{dataset}", partition=("month",), workspace=f"file://{LAKE}/work"
    ),
    journal=f"file://{LAKE}/journal",
)

with DAG("flights_to_iceberg", schedule=None, max_active_runs=1, doc_md=__doc__):
    GobblinIngestion(flights, spark=SparkOptions(conn_id="spark_default"))
