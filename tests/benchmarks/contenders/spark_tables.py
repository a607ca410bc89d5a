"""Spark's own JDBC read, and the write of a table by the format's own writer. The session is started before the clock."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.benchmarks.contenders.parquet_rows import sync_parquet
from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures
from tests.benchmarks.contenders.spark_session import start_session


def main() -> None:
    asked = arguments(folder="", table="", kind="", partitions="4", key="", last="", jars="")
    clock = Laps()
    spark = start_session(asked.jars, _settings(asked.kind, asked.folder))
    clock.lap("Spark start")
    database = urlsplit(asked.url)
    properties = {"user": database.username or "", "password": database.password or ""}
    rows = spark.read.jdbc(
        f"jdbc:postgresql://{database.hostname}:{database.port}{database.path}",
        asked.table,
        column=asked.key,
        lowerBound=1,
        upperBound=int(asked.last),
        numPartitions=int(asked.partitions),
        properties={**properties, "driver": "org.postgresql.Driver", "fetchsize": "10000"},
    )
    if asked.kind == "delta":
        rows.write.format("delta").save(f"{asked.folder}/out")
    else:
        rows.writeTo(f"lake.shop.{asked.table}").create()
    seconds = clock.lap("data")
    sync_parquet(asked.folder)
    seconds += clock.lap("sync")
    found = (
        spark.read.format("delta").load(f"{asked.folder}/out")
        if asked.kind == "delta"
        else spark.table(f"lake.shop.{asked.table}")
    )
    count = found.count()
    spark.stop()
    print_figures(seconds, clock.phases, rows=count)


def _settings(kind: str, folder: str) -> dict[str, str]:
    if kind == "delta":
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"{folder}/out",
    }


if __name__ == "__main__":
    main()
