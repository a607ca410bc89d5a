"""The commit of very many files takes bounded memory, whatever is known of their columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs import Proved, some_and_whole
from tests.test_import_direction import run_python

MB = {"delta": 300, "iceberg": 100, "postgres": 100}
"""The most that the commit of a hundred thousand files may take: Delta's is one entry of a log, which has them all."""

FILES = {"delta": 20_000, "iceberg": 20_000, "postgres": 4_000}
"""How many files `make test` commits: PostgreSQL's commit reads each of them."""

PROGRAM = """
import sys
from urllib.parse import quote
import pyarrow as pa
import pyarrow.parquet as pq
from airflow_gobblin.model.table import ColumnStatistics, DataFile, Mark, Owner
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.iceberg import IcebergTable
from airflow_gobblin.tables.lists import write_lists, read_lists
from airflow_gobblin.tables.port import Change
from airflow_gobblin.tables.postgres import PostgresTable
from tests.peak_memory import peak_bytes

form, folder, count, url = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
files, owner = LocalFiles(folder), Owner("0" * 32, "many", "main.orders")
schema = pa.schema([(f"column_{n}", pa.int64()) for n in range(5)])
known = {name: ColumnStatistics(800, 100, 0, None, 0, 99) for name in schema.names}
warehouse = quote(f"file://{folder}/tables", safe="")
connections = SparkConnections({"lake": f"sqlite://{folder}/catalog.db?warehouse={warehouse}", "warehouse": url})
record = {
    "delta": DeltaLakeTable(folder + "/table"),
    "iceberg": IcebergTable("lake", "raw.orders"),
    "postgres": PostgresTable("warehouse", "public", "orders"),
}[form]
same = None
if form == "postgres":  # whose commit reads the files: all are one
    pq.write_table(pa.table({name: range(2) for name in schema.names}, schema), folder + "/one.parquet")
    same = "one.parquet"
rows, size = (100, 1000) if same is None else (2, len(files.read(same)))
named = (
    DataFile(same or f"data/gobblin/{'0' * 32}/a/u{n:06}-r/0.parquet", size, rows, f"u{n:06}", columns=known)
    for n in range(count)
)
lists = tuple(write_lists(files, "lists", named))
table = record.open(connections, files)
table.create(owner, schema, ())
before, look = peak_bytes(), table.look(owner)
change = Change(lambda: read_lists(files, "lists", lists), count, rows * count)
table.commit(look, change, owner, Mark(1, "0" * 32, done=True))
grown = (peak_bytes() - before) >> 20
print(grown, table.look(owner).mark, table.total().rows)
"""


@pytest.mark.slow
@pytest.mark.parametrize("whole", some_and_whole([False], [True]))
@pytest.mark.parametrize("form", ["delta", "iceberg", "postgres"])
def test_very_many_files_are_committed_in_bounded_memory(
    request: pytest.FixtureRequest, form: str, whole: bool, tmp_path: Path, proved: Proved
) -> None:
    count = 100_000 if whole else FILES[form]
    url = request.getfixturevalue("postgres_database") if form == "postgres" else "none"
    grown, _, outcome = run_python(PROGRAM, form, str(tmp_path), str(count), url).strip().partition(" ")
    assert outcome.startswith("slot 1 ")
    assert outcome.endswith(f" {count * (2 if form == 'postgres' else 100)}")
    assert int(grown) < MB[form], f"{grown} MB"
    proved(f"the commit of many files to a table of {form}", f"{count:,} files, {grown} MB", "none")
