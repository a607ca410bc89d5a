"""A Spark job as one writes it first: read by JDBC, write Parquet. It leaves its times in a file."""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from tests.benchmarks.contenders.reporting import DATABASE, arguments


def copy_rows(spark: SparkSession, asked: Namespace) -> None:
    """The job.

    :param asked: its arguments, as `main` has them.
    """
    began = time.time()
    database, partitions = urlsplit(os.environ[DATABASE]), int(asked.partitions)
    split: dict[str, Any] = {"column": asked.key, "lowerBound": 1, "upperBound": int(asked.last)}
    new = f"(SELECT * FROM {asked.table} WHERE {asked.key} > '{asked.since}') AS new"
    spark.read.jdbc(
        f"jdbc:postgresql://{database.hostname}:{database.port}{database.path}",
        asked.table if asked.since == "never" else new,
        **({**split, "numPartitions": partitions} if partitions > 1 else {}),
        properties={
            "user": str(database.username),
            "password": str(database.password),
            "driver": "org.postgresql.Driver",
            "fetchsize": "10000",
        },
    ).write.parquet(f"{asked.folder}/target")
    Path(asked.folder, "times.json").write_text(json.dumps({"data": time.time() - began}))


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    copy_rows(spark, arguments(folder="", table="", partitions="1", last="0", key="id", since="never"))
    spark.stop()


if __name__ == "__main__":
    main()
