"""The bare loop: one ADBC stream, each batch written to one Parquet file. Numerics stay text, as they arrive."""

from __future__ import annotations

import ctypes
from pathlib import Path

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi as driver
import pyarrow.parquet as pq

from tests.benchmarks.contenders.parquet_rows import parquet_rows, sync_parquet
from tests.benchmarks.contenders.reporting import Laps, arguments, begin, print_figures


def main() -> None:
    asked = arguments(folder="", query="", compression="snappy")
    ctypes.CDLL(adbc_driver_postgresql._driver_path())  # as ours is loaded before the clock runs
    begin(Path(asked.folder))
    clock = Laps()
    with driver.connect(asked.url) as connection, connection.cursor() as cursor:
        cursor.execute(asked.query)
        reader = cursor.fetch_record_batch()
        with pq.ParquetWriter(
            Path(asked.folder) / "all.parquet", reader.schema, compression=asked.compression
        ) as writer:
            for batch in reader:
                writer.write_batch(batch)
    seconds = clock.lap("data")
    sync_parquet(asked.folder)
    seconds += clock.lap("sync")
    print_figures(seconds, clock.phases, rows=parquet_rows(asked.folder))


if __name__ == "__main__":
    main()
