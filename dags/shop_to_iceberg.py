"""Ingest a shop's orders and payments into Iceberg tables by day, and its customers, keeping the newest version of each.

It needs three connections: `shop_db` (Postgres or Sqlite), `lake_catalog` (Iceberg, Postgres or Sqlite) and `spark_default`
(Spark), for example from the environment:

    AIRFLOW_CONN_SHOP_DB=postgresql://user:password@host/shop
    AIRFLOW_CONN_LAKE_CATALOG='{"conn_type": "sqlite", "host": "/path/to/catalog.db", "extra": {"warehouse": "file:///path/to/tables"}}'
    AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2]"}'

Journal and workspaces are below `SHOP_LAKE`, by default the folder `lake` in Airflow's home.
"""

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_gobblin import ExtractKind, GobblinIngestion, IcebergSink, Ingestion, SparkOptions, SqlSource, SqlTable

LAKE = os.environ.get("SHOP_LAKE") or os.path.join(os.environ.get("AIRFLOW_HOME", "~/airflow"), "lake")
LAKE = os.path.abspath(os.path.expanduser(LAKE))

events = Ingestion(
    name="shop_events",
    source=SqlSource(
        conn_id="shop_db",
        tables=tuple(
            SqlTable(name, ExtractKind.APPEND_ONLY, delta="updated_at", lag=timedelta(minutes=10))
            for name in ("orders", "payments")
        ),
    ),
    sink=IcebergSink(
        catalog="lake_catalog",
        table="shop.{dataset}",
        partition=("day(updated_at)",),
        workspace=f"file://{LAKE}/work/events",
    ),
    journal=f"file://{LAKE}/journal",
)

customers = Ingestion(
    name="shop_customers",
    source=SqlSource(
        conn_id="shop_db",
        tables=(SqlTable("customers", ExtractKind.SNAPSHOT_APPEND, delta="updated_at", primary_keys=("id",)),),
    ),
    sink=IcebergSink(
        catalog="lake_catalog", table="shop.{dataset}", merge=True, workspace=f"file://{LAKE}/work/customers"
    ),
    journal=f"file://{LAKE}/journal",
)

with DAG("shop_to_iceberg", schedule=None, max_active_runs=1, doc_md=__doc__):
    for ingestion in (events, customers):
        GobblinIngestion(ingestion, spark=SparkOptions(conn_id="spark_default"))
