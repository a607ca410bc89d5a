"""dlt with its connectorx backend, into a Delta or an Iceberg table on local disk, or a table of PostgreSQL."""

from __future__ import annotations

import os
from typing import Any

from tests.benchmarks.contenders.parquet_rows import sync_parquet
from tests.benchmarks.contenders.reporting import TARGET, Laps, arguments, print_figures


def main() -> None:
    asked = arguments(folder="", table="", kind="", key="id", partitions="2")
    os.environ.update(
        DLT_DATA_DIR=f"{asked.folder}/data", RUNTIME__DLTHUB_TELEMETRY="false", RUNTIME__LOG_LEVEL="ERROR"
    )
    import dlt
    from dlt.sources.sql_database import sql_table

    to_postgres = asked.kind == "postgres"
    clock = Laps()
    destination: Any = (
        dlt.destinations.postgres(os.environ[TARGET])
        if to_postgres
        else dlt.destinations.filesystem(f"file://{asked.folder}/out")
    )
    pipeline = dlt.pipeline(
        "benchmark", destination=destination, dataset_name="shop", pipelines_dir=f"{asked.folder}/pipelines"
    )
    orders = sql_table(
        asked.url.replace("postgresql://", "postgresql+psycopg2://"),
        table=asked.table,
        backend="connectorx",
        reflection_level="full_with_precision",
        backend_kwargs={"conn": asked.url, "partition_on": asked.key, "partition_num": int(asked.partitions)},
    )
    if to_postgres:
        pipeline.run(orders, loader_file_format="csv", write_disposition="replace")
    else:
        pipeline.run(orders, table_format=asked.kind)
    seconds = clock.lap("data")
    if not to_postgres:
        sync_parquet(f"{asked.folder}/out/shop/{asked.table}")
        seconds += clock.lap("sync")
    print_figures(seconds, clock.phases, rows=_rows(pipeline, asked.table, asked.kind))


def _rows(pipeline: Any, table: str, kind: str) -> int:
    """Return the number of a table's rows, by the library of its format: dlt's own client would fetch DuckDB's extensions."""
    if kind == "delta":
        from dlt.common.libs.deltalake import get_delta_tables

        return int(get_delta_tables(pipeline, table)[table].count())
    if kind == "iceberg":
        from dlt.common.libs.pyiceberg import get_iceberg_tables

        return int(get_iceberg_tables(pipeline, table)[table].scan().count())
    with pipeline.sql_client() as client:
        ((rows,),) = client.execute_sql(f"SELECT count(*) FROM {table}")
    return int(rows)


if __name__ == "__main__":
    main()
