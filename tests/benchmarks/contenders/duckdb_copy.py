"""DuckDB's PostgreSQL scanner and its Parquet writer, with as many threads as we have tasks, and the same level of zstd.

As for ours, the scanner is loaded and a few rows are copied before the clock runs.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import duckdb_extension_postgres_scanner as scanner

from tests.benchmarks.contenders.parquet_rows import parquet_rows, sync_parquet
from tests.benchmarks.contenders.reporting import FEW_ROWS, Laps, arguments, begin, print_figures


def main() -> None:
    asked = arguments(folder="", table="", threads="2", level="1")
    (extension,) = Path(scanner.__file__).parent.rglob("*.duckdb_extension")
    with duckdb.connect() as connection, TemporaryDirectory() as elsewhere:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"SET threads = {int(asked.threads)}")

        def copy(rows: str, folder: str) -> None:
            connection.execute(f"ATTACH '{asked.url}' AS shop (TYPE postgres, READ_ONLY)")
            connection.execute(
                f"COPY (SELECT * FROM shop.public.{asked.table} {rows}) TO '{folder}/all.parquet' "
                f"(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {int(asked.level)})"
            )
            connection.execute("DETACH shop")

        copy(f"WHERE id <= {FEW_ROWS}", elsewhere)
        begin(Path(asked.folder))
        clock = Laps()
        copy("", asked.folder)
        seconds = clock.lap("data")
    sync_parquet(asked.folder)
    seconds += clock.lap("sync")
    print_figures(seconds, clock.phases, rows=parquet_rows(asked.folder))


if __name__ == "__main__":
    main()
