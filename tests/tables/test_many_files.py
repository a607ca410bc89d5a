"""The commit of very many files takes bounded memory, whatever is known of their columns."""

from __future__ import annotations

import pytest

from tests.test_import_direction import run_python

FILES = 100_000
MB = 500

PROGRAM = """
import resource, sys
import pyarrow as pa
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.model.table import ColumnStatistics, DataFile, Mark, Owner, SlotOfStep, TableTarget
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.lists import write_lists, read_lists
from airflow_gobblin.tables.port import Change

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

folder, count = sys.argv[1], int(sys.argv[2])
files, owner = LocalFiles(folder), Owner("0" * 32, "many", "main.orders")
schema = pa.schema([(f"column_{n}", pa.int64()) for n in range(10)])
known = {name: ColumnStatistics(800, 100, 0, None, 0, 99) for name in schema.names}
named = (
    DataFile(f"data/gobblin/{'0' * 32}/a/u{n:06}-r/0.parquet", 1000, 100, f"u{n:06}", columns=known) for n in range(count)
)
lists = tuple(write_lists(files, "lists", named))
table = DeltaLakeTable(folder + "/table").open(NoConnections(), files)
table.create(owner, schema, ())
before, look = peak(), table.look(owner)
change = Change(lambda: read_lists(files, "lists", lists), count, 100 * count)
table.commit(look, change, owner, Mark(1, "0" * 32, done=True))
print(peak() - before, table.look(owner).mark)
"""


@pytest.mark.slow
def test_a_hundred_thousand_files_are_committed_to_delta_in_bounded_memory(tmp_path: object) -> None:
    grown, _, mark = run_python(PROGRAM, str(tmp_path), str(FILES)).partition(" ")
    assert mark.startswith("slot 1 ")
    assert int(grown) < MB, f"{grown} MB"
