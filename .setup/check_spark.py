"""Starts a local Spark, runs a Python function on Arrow batches, writes Parquet and reads it back; run by the set-up."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("set-up check")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    try:
        spark.sparkContext.setLogLevel("ERROR")
        table = str(folder / "table")
        spark.range(1000).mapInArrow(_unchanged, "id long").write.parquet(table)
        count = spark.read.parquet(table).count()
        java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.runtime.version')").first()
    finally:
        spark.stop()
    if count != 1000:
        sys.exit(f"Spark wrote 1000 rows of Parquet and read {count} back")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"Spark {spark.version} on Java {java[0] if java else '?'} wrote Parquet and read it back")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
