"""The memory table keeps the contract of tables, with data files that stay and with rows that are taken at the commit."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.model.table import DataFile, TableTarget
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.testing.files import write
from airflow_gobblin.testing.memory_files import MemoryFiles
from airflow_gobblin.testing.memory_table import MemoryTable
from airflow_gobblin.testing.tables import FOREIGN_ROW, ForeignAct, Row, TableContract


class MemoryBench:
    """The bench of a table in memory.

    :param location: where its data files stay; empty: it takes their rows.
    """

    def __init__(self, location: str = "") -> None:
        self.table = MemoryTable(uuid.uuid4().hex, location)
        self.files = MemoryFiles()
        self.connections = NoConnections()
        self.acts = frozenset(ForeignAct)
        self.merges = not location

    def stage(self, target: TableTarget, token: str, unit: str, rows: Sequence[Row], schema: pa.Schema) -> DataFile:
        files = open_files(target.location) if target.location else self.files
        path = f"data/gobblin/{token}/a/{unit}-{uuid.uuid4().hex[:8]}/0.parquet"
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([*rows], schema), out)
        files.make_folder(path.rpartition("/")[0])
        return DataFile(path, write(files, path, out.getvalue()).size, len(rows), unit)

    def rows(self) -> Iterable[Row]:
        return self.table.rows()

    def act(self, act: ForeignAct) -> None:
        table = self.table
        match act:
            case ForeignAct.APPEND:
                table.append([FOREIGN_ROW])
            case ForeignAct.DELETE:
                table.delete(lambda row: row["id"] == 1)
            case ForeignAct.COMPACT:
                table.compact()
            case ForeignAct.EXPIRE:
                table.expire()
            case ForeignAct.ROLL_BACK:
                table.roll_back()
            case ForeignAct.DROP:
                table.drop()
            case ForeignAct.ADD_COLUMN:
                table.add_column("theirs")


class TestMemoryTable(TableContract):
    @pytest.fixture
    def new_bench(self) -> Callable[[], MemoryBench]:
        return MemoryBench


class TestMemoryTableOfFiles(TableContract):
    @pytest.fixture
    def new_bench(self, tmp_path: Path) -> Callable[[], MemoryBench]:
        return lambda: MemoryBench(str(tmp_path / uuid.uuid4().hex))
