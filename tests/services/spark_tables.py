"""A real Spark with Iceberg's and Delta's jars, as a reader of tables besides ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.services.s3 import S3Access
from tests.services.spark_connect import running_spark_connect

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

__all__ = ["running_spark_of_tables"]


@contextmanager
def running_spark_of_tables(folder: Path, store: S3Access) -> Iterator[SparkSession]:
    """Run a Spark that reads tables of Iceberg and Delta by their paths, on a disk and in a store.

    :param folder: an empty one for its files.
    """
    # Classic PySpark may run in this process, too: it has one session for all, and other jars.
    from pyspark.sql.connect.session import SparkSession

    jars = sorted(jar for name in ("TABLE_JARS", "AWS_SDK_JARS") for jar in Path(os.environ[name]).glob("*.jar"))
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        # For a few rows nothing is worth compiling or spreading.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        **{f"spark.hadoop.{name}": value for name, value in store.s3a.items()},
    }
    with running_spark_connect(folder, settings) as server:
        session = SparkSession.builder.remote(server.url).create()
        try:
            yield session
        finally:
            session.stop()
