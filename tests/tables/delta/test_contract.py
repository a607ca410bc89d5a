"""Delta tables keep the contract of tables, with deltalake on a disk and in an S3 server."""

from __future__ import annotations

import io
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.model.table import DataFile, TableTarget
from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.delta.table import _storage_options
from airflow_gobblin.testing.memory_files import MemoryFiles
from airflow_gobblin.testing.tables import FOREIGN_ROW, SCHEMA, ForeignAct, Row, TableContract
from tests.proofs import one_in
from tests.services.s3 import CONNECTION, S3Server


class DeltaBench:
    """The bench of a Delta table.

    :param location: its folder.
    """

    acts = frozenset(ForeignAct)
    merges = True

    def __init__(self, location: str, connections: Connections) -> None:
        self.table = DeltaLakeTable(location)
        self.connections = connections
        self.files = MemoryFiles()
        self._options = _storage_options(self.table, connections)

    def _read(self) -> DeltaTable:
        return DeltaTable(self.table.url, storage_options=self._options)

    def stage(self, target: TableTarget, token: str, unit: str, rows: Sequence[Row], schema: pa.Schema) -> DataFile:
        path = f"data/gobblin/{token}/a/{unit}-{uuid.uuid4().hex[:8]}/0.parquet"
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([*rows], schema), out)
        place = self.table.place
        if place is not None:
            open_filesystem(place, self.connections).pipe_file(f"{place.path}/{path}", out.getvalue())
        else:
            file = Path(self.table.url, path)
            file.parent.mkdir(parents=True)
            file.write_bytes(out.getvalue())
        return DataFile(path, len(out.getvalue()), len(rows), unit)

    def rows(self) -> Iterable[Row]:
        found: list[Row] = self._read().to_pyarrow_table().to_pylist()
        return found

    def act(self, act: ForeignAct) -> None:
        table = self._read()
        match act:
            case ForeignAct.APPEND:
                write_deltalake(table, pa.Table.from_pylist([dict(FOREIGN_ROW)], SCHEMA), mode="append")
            case ForeignAct.DELETE:
                table.delete("id = 1")
            case ForeignAct.COMPACT:
                table.optimize.compact()
            case ForeignAct.EXPIRE:
                table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
                table = self._read()
                table.create_checkpoint()
                self._expire_entries(table.version())
            case ForeignAct.ROLL_BACK:
                table.restore(table.version() - 1)
            case ForeignAct.DROP:
                self._drop()
            case ForeignAct.ADD_COLUMN:
                table.alter.add_columns([Field("theirs", PrimitiveType("string"))])

    def _expire_entries(self, version: int) -> None:
        names = [f"_delta_log/{number:020}.json" for number in range(version)]
        place = self.table.place
        if place is None:
            for name in names:
                Path(self.table.url, name).unlink(missing_ok=True)
        else:
            filesystem = open_filesystem(place, self.connections)
            for name in names:
                if filesystem.exists(f"{place.path}/{name}"):
                    filesystem.rm_file(f"{place.path}/{name}")

    def _drop(self) -> None:
        place = self.table.place
        if place is None:
            shutil.rmtree(Path(self.table.url, "_delta_log"))
        else:
            open_filesystem(place, self.connections).rm(f"{place.path}/_delta_log", recursive=True)


@pytest.mark.slow
class TestDeltaTableOnADisk(TableContract):
    @pytest.fixture
    def new_bench(self, tmp_path: Path) -> Callable[[], DeltaBench]:
        def make() -> DeltaBench:
            folder = tmp_path / uuid.uuid4().hex
            folder.mkdir()
            return DeltaBench(str(folder), NoConnections())

        return make


@pytest.mark.slow
@one_in(4)
class TestDeltaTableInS3(TableContract):
    @pytest.fixture
    def new_bench(self, versitygw: S3Server, bucket: str) -> Callable[[], DeltaBench]:
        return lambda: DeltaBench(f"s3://{CONNECTION}@{bucket}/{uuid.uuid4().hex}", versitygw.access)
