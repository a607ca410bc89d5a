"""The commit of many files to a Delta table, by us or by deltalake's own write transaction of the same files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.model.table import ColumnStatistics, DataFile, Mark, Owner
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.delta.statistics import statistics
from airflow_gobblin.tables.port import Change
from tests.benchmarks.contenders.saying import Laps, arguments, say

OWNER = Owner("0" * 32, "benchmark", "main.rows")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("updated", pa.timestamp("us", "UTC"))])


def _staged(folder: Path, files: int) -> Iterator[DataFile]:
    """Write the data files, and yield what is known of each."""
    rows = pa.table({"id": range(100), "name": ["name"] * 100, "updated": range(100)}).cast(SCHEMA)
    known = {
        "id": ColumnStatistics(800, 100, 0, None, 0, 99),
        "name": ColumnStatistics(800, 100, 0, None, "name", "name"),
        "updated": ColumnStatistics(800, 100, 0, None, 0, 99),
    }
    for number in range(files):
        path = f"data/gobblin/{'0' * 32}/a/u{number}-r/0.parquet"
        (folder / path).parent.mkdir(parents=True)
        pq.write_table(rows, folder / path)
        yield DataFile(path, (folder / path).stat().st_size, 100, f"u{number}", columns=known)


def main() -> None:
    asked = arguments(folder="", client="", files="")
    folder = Path(asked.folder, "table")
    folder.mkdir(parents=True)
    files = tuple(_staged(folder, int(asked.files)))
    table = DeltaLakeTable(str(folder)).open(NoConnections(), open_files(asked.folder))
    table.create(OWNER, SCHEMA, ())
    warm = table.look(OWNER)
    table.commit(warm, Change(), OWNER, Mark(1, "1" * 32, done=True))  # modules are loaded
    laps = Laps()
    if asked.client == "ours":
        change = Change(lambda: iter(files), len(files), 100 * len(files))
        table.commit(table.look(OWNER), change, OWNER, Mark(2, "0" * 32, done=True))
    else:
        now = int(time.time() * 1000)
        adds = [AddAction(file.path, file.size, {}, now, True, json.dumps(statistics(file, SCHEMA))) for file in files]
        DeltaTable(str(folder)).create_write_transaction([*adds], "append", Schema.from_arrow(SCHEMA))
    seconds = laps.lap("commit")
    say(seconds, laps.phases, files=len(DeltaTable(str(folder)).file_uris()), rows=table.total().rows)


if __name__ == "__main__":
    main()
