"""Spark's own JDBC read and Parquet write. The session and its SQL engine are started before the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.benchmarks.contenders.parquet_rows import parquet_rows, sync_parquet
from tests.benchmarks.contenders.reporting import Laps, arguments, begin, print_figures
from tests.benchmarks.contenders.spark_session import start_session


def main() -> None:
    asked = arguments(folder="", table="", partitions="1", key="", last="0", jars="none", since="never", remote="none")
    clock = Laps()
    spark = start_session(
        "" if asked.jars == "none" else asked.jars, remote="" if asked.remote == "none" else asked.remote
    )
    begin(Path(asked.folder))
    clock.lap("Spark start")
    database, partitions = urlsplit(asked.url), int(asked.partitions)
    properties = {"user": database.username, "password": database.password, "driver": "org.postgresql.Driver"}
    split: dict[str, Any] = {"column": asked.key, "lowerBound": 1, "upperBound": int(asked.last)}
    spark.read.jdbc(
        f"jdbc:postgresql://{database.hostname}:{database.port}{database.path}",
        asked.table
        if asked.since == "never"
        else f"(SELECT * FROM {asked.table} WHERE {asked.key} > '{asked.since}') AS new",
        **({**split, "numPartitions": partitions} if partitions > 1 else {}),
        properties={**properties, "fetchsize": "10000"},
    ).write.parquet(f"{asked.folder}/out")
    seconds = clock.lap("data")
    sync_parquet(asked.folder)
    seconds += clock.lap("sync")
    spark.stop()
    print_figures(seconds, clock.phases, rows=parquet_rows(asked.folder))


if __name__ == "__main__":
    main()
