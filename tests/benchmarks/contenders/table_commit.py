"""The commit of many files to a table, by us or by the format's library: deltalake's write transaction, pyiceberg's `add_files`.

The files are written before the clock, and all that a commit reads of them belongs to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gobblin.model.table import ColumnStatistics, DataFile, Mark, Owner
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.delta.statistics import statistics_of
from airflow_gobblin.tables.iceberg import IcebergTable
from airflow_gobblin.tables.port import Change, OpenTable
from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures

OWNER = Owner("0" * 32, "benchmark", "main.rows")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("updated", pa.timestamp("us", "UTC"))])


def opened(kind: str, folder: Path) -> OpenTable:
    """The table, which is made."""
    catalog = f"sqlite://{folder}/catalog.db?warehouse={quote(f'file://{folder}/lake', safe='')}"
    record = DeltaLakeTable(f"{folder}/lake") if kind == "delta" else IcebergTable("lake", "shop.rows")
    table: OpenTable = record.open(SparkConnections({"lake": catalog}), open_files(str(folder)))
    table.create(OWNER, SCHEMA, ())
    return table


def staged(place: Path, files: int) -> Iterator[DataFile]:
    """Write the data files, of 100 rows each, and yield what is known of each."""
    rows = pa.table({"id": range(100), "name": ["name"] * 100, "updated": range(100)}).cast(SCHEMA)
    known = {
        "id": ColumnStatistics(800, 100, 0, None, 0, 99),
        "name": ColumnStatistics(800, 100, 0, None, "name", "name"),
        "updated": ColumnStatistics(800, 100, 0, None, 0, 99),
    }
    for number in range(files):
        path = f"data/gobblin/{'0' * 32}/a/u{number}-r/0.parquet"
        (place / path).parent.mkdir(parents=True)
        pq.write_table(rows, place / path)
        yield DataFile(path, (place / path).stat().st_size, 100, f"u{number}", columns=known)


def by_deltalake(place: Path, files: Sequence[DataFile]) -> None:
    """A script's write transaction, given what is known of the files."""
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction

    now, statistics = int(time.time() * 1000), statistics_of(SCHEMA)
    adds = [AddAction(file.path, file.size, {}, now, True, json.dumps(statistics(file))) for file in files]
    DeltaTable(str(place)).create_write_transaction([*adds], "append", Schema.from_arrow(SCHEMA))


def by_pyiceberg(folder: Path, place: Path, files: Sequence[DataFile]) -> None:
    """A script's `add_files`, which takes nothing but paths, and reads the rest from the files' footers."""
    from pyiceberg.catalog.sql import SqlCatalog

    table = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db").load_table("shop.rows")
    table.add_files([str(place / file.path) for file in files])


def main() -> None:
    asked = arguments(folder="", kind="", client="", files="")
    folder = Path(asked.folder)
    table = opened(asked.kind, folder)
    warm = table.look(OWNER)
    place = Path(warm.location.removeprefix("file://"))
    files = tuple(staged(place, int(asked.files)))
    table.commit(warm, Change(), OWNER, Mark(1, "1" * 32, done=True))  # modules are loaded
    laps, before = Laps(), time.process_time()  # ticks of the system's clock are too coarse for it
    if asked.client == "ours":
        change = Change(lambda: iter(files), len(files), 100 * len(files))
        table.commit(table.look(OWNER), change, OWNER, Mark(2, "0" * 32, done=True))
    elif asked.kind == "delta":
        by_deltalake(place, files)
    else:
        by_pyiceberg(folder, place, files)
    seconds, cpu = laps.lap("commit"), time.process_time() - before
    total = table.total()
    print_figures(seconds, laps.phases, cpu, files=total.files, rows=total.rows)


if __name__ == "__main__":
    main()
