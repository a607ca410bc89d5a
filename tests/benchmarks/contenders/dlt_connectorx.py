"""dlt with its connectorx backend, to Parquet files on local disk: extract, normalize, load."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.contenders.parquet_rows import parquet_rows, sync_parquet
from tests.benchmarks.contenders.reporting import Laps, arguments, begin, print_figures


def main() -> None:
    asked = arguments(folder="", table="", partitions="1", key="none", since="never")
    os.environ.update(
        DLT_DATA_DIR=f"{asked.folder}/data", RUNTIME__DLTHUB_TELEMETRY="false", RUNTIME__LOG_LEVEL="ERROR"
    )
    import dlt
    from dlt.sources.sql_database import sql_table

    partitions = int(asked.partitions)
    split: dict[str, Any] = {"partition_on": asked.key, "partition_num": partitions} if partitions > 1 else {}
    begin(Path(asked.folder))
    clock = Laps()
    pipeline = dlt.pipeline(
        "benchmark",
        destination=dlt.destinations.filesystem(f"file://{asked.folder}/out"),
        dataset_name="shop",
        pipelines_dir=f"{asked.folder}/pipelines",
    )
    since = None if asked.since == "never" else datetime.fromisoformat(asked.since)
    orders = sql_table(
        asked.url.replace("postgresql://", "postgresql+psycopg2://"),
        table=asked.table,
        backend="connectorx",
        reflection_level="full_with_precision",
        incremental=None
        if since is None
        else dlt.sources.incremental(asked.key, initial_value=since, range_start="open"),
        backend_kwargs={"conn": asked.url, **split},
    )
    pipeline.run(orders, loader_file_format="parquet")
    seconds = clock.lap("data")
    sync_parquet(f"{asked.folder}/out/shop/{asked.table}")
    seconds += clock.lap("sync")
    print_figures(seconds, clock.phases, rows=parquet_rows(f"{asked.folder}/out/shop/{asked.table}"))


if __name__ == "__main__":
    main()
