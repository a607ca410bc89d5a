"""Staged Parquet files into a table of PostgreSQL: the commit of ours, or a script's COPY of the same files through ADBC.

Connections are opened before; all that the commit itself does is timed, its marks and its two looks too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from adbc_driver_postgresql import dbapi

from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.tables.port import Change, DataFile, Mark, Owner
from airflow_gobblin.tables.postgres import PostgresTable
from airflow_gobblin.tables.postgres.table import OpenPostgresTable
from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures

OWNER = Owner("0" * 32, "benchmark", "orders")


def main() -> None:
    asked = arguments(folder="", staged="", way="", table="")
    staged = Path(asked.staged)
    files = [DataFile(**one) for one in json.loads((staged / "files.json").read_text())]
    rows = sum(file.rows for file in files)
    table = OpenPostgresTable(PostgresTable("benchmark", "public", asked.table), asked.url, LocalFiles(staged))
    table.create(OWNER, pq.read_schema(staged / files[0].path), ())
    if asked.way == "ours":
        look = table.look(OWNER)
        change = Change(lambda: iter(files), len(files), rows)
        clock = Laps()
        table.commit(look, change, OWNER, Mark(1, "t", done=True))
        seconds = clock.lap("commit")
    else:
        with dbapi.connect(asked.url) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            clock = Laps()
            schema = pq.read_schema(staged / files[0].path)
            reader = pa.RecordBatchReader.from_batches(schema, _batches(staged, files))
            cursor.adbc_ingest(asked.table, reader, mode="append")
            connection.commit()
            seconds = clock.lap("copy")
    print_figures(seconds, clock.phases, rows=table.total().rows)


def _batches(staged: Path, files: list[DataFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(staged / file.path) as parquet:
            yield from parquet.iter_batches()


if __name__ == "__main__":
    main()
