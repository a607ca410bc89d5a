"""Ingest topics of Kafka into Parquet files of a good size, each record once: a run every five minutes looks at what waits, and
reads it once it is worth a file, or is an hour old.

It needs two connections, `kafka_default` (Kafka) and `spark_default` (Spark), for example from the environment:

    AIRFLOW_CONN_KAFKA_DEFAULT='{"conn_type": "kafka", "extra": {"bootstrap.servers": "localhost:9092"}}'
    AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2]"}'

Files and journal are written below `KAFKA_LAKE`, by default the folder `kafka` in Airflow's home. `KAFKA_FILE_MIB` is the size of
a file. `KAFKA_SCHEDULE` is when runs start; if it is empty, they start by hand only.
"""

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_gobblin import Batch, GobblinIngestion, Ingestion, KafkaSource, ParquetSink, SparkOptions, Start

LAKE = os.environ.get("KAFKA_LAKE") or os.path.join(os.environ.get("AIRFLOW_HOME", "~/airflow"), "kafka")
LAKE = os.path.abspath(os.path.expanduser(LAKE))
FILE = int(os.environ.get("KAFKA_FILE_MIB", "256")) << 20

clicks = Ingestion(
    name="clicks",
    source=KafkaSource(conn_id="kafka_default", topics=("clicks", "orders.*"), start=Start.EARLIEST),
    batch=Batch(bytes=FILE, age=timedelta(hours=1)),
    sink=ParquetSink(f"{LAKE}/raw", file_bytes=FILE),
    journal=f"file://{LAKE}/journal",
    max_packs=1,  # one Spark application a run, for all topics
)

with DAG(
    "kafka_to_lake",
    schedule=os.environ.get("KAFKA_SCHEDULE", "*/5 * * * *") or None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
):
    GobblinIngestion(clicks, spark=SparkOptions(conn_id="spark_default"))
