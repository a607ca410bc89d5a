"""This package, without Airflow around it, on a topic of Kafka: plan, run the pack on Spark, commit. See `gobblin`."""

from __future__ import annotations

import time

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.kafka import KafkaSource
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from tests.benchmarks.contenders.gobblin import import_drivers, on_spark, open_job
from tests.benchmarks.contenders.parquet_rows import parquet_rows
from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures

KAFKA = "kafka"
"""The id of the connection to the broker."""
PROTOCOL = "the protocol's own CPU time"
_MODULES = ("airflow_gobblin.rows.extraction", "airflow_gobblin.rows.sources.kafka.reader")
"""The modules that planning and units load when they first need them."""


def main() -> None:
    asked = arguments(folder="", servers="", topic="")
    connections = SparkConnections({KAFKA: f"kafka://{asked.servers}"})
    source, sink = KafkaSource(KAFKA, (asked.topic,)), ParquetSink(f"{asked.folder}/target")
    job = Ingestion("benchmark", source, sink, journal=f"{asked.folder}/journal", max_packs=1)
    import_drivers(_MODULES)
    clock, began = Laps(), time.process_time()
    opened = open_job(job, connections)
    run = create_work_units(opened, RunRequest("benchmark"))
    clock.lap("planning")
    protocol = time.process_time() - began
    data = on_spark(opened, run, job, connections, clock, "", late=_MODULES)
    began = time.process_time()
    (pack,) = run.packs
    write_commit_steps(opened, run, pack)
    execute_commit_steps(opened, run, pack)
    finish(opened, run)
    clock.lap("commit")
    protocol += time.process_time() - began
    seconds = sum(clock.phases[name] for name in ("planning", "data", "commit"))
    phases = {**clock.phases, PROTOCOL: protocol}
    print_figures(seconds, phases, protocol + data, rows=parquet_rows(f"{asked.folder}/target"))


if __name__ == "__main__":
    main()
