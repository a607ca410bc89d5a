"""Partition columns on a real Spark: written by its tasks, and read by it from the folder and by the journal."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.spark.connections import SparkConnections
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import planned_run, run_on


def test_each_reader_has_every_row_once(shipped_spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(f"{tmp_path}/target", partition=("id",))
    planned = planned_run(tmp_path, RowsSource(3, rows=4), sink=sink, squares=True)
    assert run_on(shipped_spark, planned, SparkConnections({})).failures == ()
    write_commit_steps(planned.opened, planned.run, planned.run.packs[0])
    execute_commit_steps(planned.opened, planned.run, planned.run.packs[0])
    (report,) = finish(planned.opened, planned.run)
    assert report.status == "committed"

    folder = f"{tmp_path}/target/acme.rows0"
    published = planned.opened.journal.read_dataset("acme.rows0")
    assert sorted(Path(path).parent.name for path in published.paths) == sorted(f"id={n}" for n in range(12))
    by_name = shipped_spark.read.parquet(folder)
    by_file = shipped_spark.read.option("recursiveFileLookup", "true").parquet(folder)
    for frame in (by_name, by_file, published.to_spark(shipped_spark)):
        assert sorted(row["id"] for row in frame.collect()) == [*range(12)]
    assert by_name.where("id = 7").count() == 1
