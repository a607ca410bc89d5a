"""Ingest a shop's tables from PostgreSQL into Parquet in the S3-like store, on Spark; the journal is in PostgreSQL."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_gobblin import ExtractKind, GobblinIngestion, Ingestion, ParquetSink, SparkOptions, SqlSource, SqlTable

shop = Ingestion(
    name="shop",
    source=SqlSource(
        conn_id="shop_db",
        tables=(
            SqlTable("orders", ExtractKind.APPEND_ONLY, delta="updated_at", lag=timedelta(minutes=1)),
            SqlTable("customers", ExtractKind.SNAPSHOT_ONLY),
        ),
    ),
    sink=ParquetSink("s3://lake_s3@lake/shop"),
    journal="shop_journal",
)

with DAG(
    "shop",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
) as dag:
    # An application takes one core of the cluster's four, so several packs run at once.
    GobblinIngestion(shop, spark=SparkOptions(conn_id="spark_default", total_executor_cores=1, executor_memory="1g"))
