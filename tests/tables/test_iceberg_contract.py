"""Iceberg tables keep the contract of tables, with real pyiceberg, in catalogs of three kinds: SQLite, PostgreSQL, REST; on a
disk and in an S3 server.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.model.table import DataFile, TableTarget
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.tables.iceberg import IcebergTable
from airflow_gobblin.testing.files import write
from airflow_gobblin.testing.tables import FOREIGN_ROW, SCHEMA, ForeignAct, Row, TableContract
from tests.proofs import one_in
from tests.services.iceberg_rest import IcebergRest
from tests.services.s3 import CONNECTION, S3Access, S3Server


class IcebergBench:
    """A table of a catalog.

    :param uri: the connection to the catalog; by default it is on SQLite.
    :param place: where its tables are if that is so, as a URL; by default on the disk.
    :param store: the store that this is in.
    """

    def __init__(self, root: Path, uri: str | None = None, place: str = "", store: S3Access | None = None) -> None:
        root.mkdir(parents=True)
        self.table = IcebergTable("catalog", f"raw_{uuid.uuid4().hex}.orders", None if store is None else CONNECTION)
        warehouse = f"warehouse={quote(place or f'file://{root}/lake', safe='')}"
        of_store = {} if store is None else {CONNECTION: store.connection}
        self.connections = SparkConnections({"catalog": uri or f"sqlite://{root}/catalog.db?{warehouse}"} | of_store)
        self.files = LocalFiles(root)
        self.acts = frozenset(ForeignAct)
        self.merges = True

    def stage(self, target: TableTarget, token: str, unit: str, rows: Sequence[Row], schema: pa.Schema) -> DataFile:
        files = open_files(target.location, self.connections)
        path = f"data/gobblin/{token}/a/{unit}-{uuid.uuid4().hex[:8]}/0.parquet"
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([*rows], schema), out)
        files.make_folder(path.rpartition("/")[0])
        return DataFile(path, write(files, path, out.getvalue()).size, len(rows), unit)

    def rows(self) -> Iterable[Row]:
        rows: list[Row] = self._theirs().scan().to_arrow().to_pylist()
        return rows

    def act(self, act: ForeignAct) -> None:
        from pyiceberg.types import StringType

        table = self._theirs()
        head = table.current_snapshot()
        match act:
            case ForeignAct.APPEND:
                table.append(pa.Table.from_pylist([FOREIGN_ROW], SCHEMA))
            case ForeignAct.DELETE:
                table.delete("id = 1")
            case ForeignAct.COMPACT:
                table.overwrite(table.scan().to_arrow())
            case ForeignAct.EXPIRE:
                for snapshot in table.snapshots():
                    if snapshot.snapshot_id != head.snapshot_id:
                        self._theirs().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
            case ForeignAct.ROLL_BACK:
                table.manage_snapshots().rollback_to_snapshot(head.parent_snapshot_id).commit()
            case ForeignAct.DROP:
                table.catalog.drop_table(self.table.table)
            case ForeignAct.ADD_COLUMN:
                with table.update_schema() as update:
                    update.add_column("theirs", StringType())

    def _theirs(self) -> Any:
        return self.table.open(self.connections, self.files)._existing("read")


@pytest.mark.slow
class TestIcebergTable(TableContract):
    @pytest.fixture
    def new_bench(self, tmp_path: Path) -> Callable[[], IcebergBench]:
        return lambda: IcebergBench(tmp_path / uuid.uuid4().hex)


@one_in(4)
class TestIcebergTableInS3(TableContract):
    @pytest.fixture
    def new_bench(self, tmp_path: Path, versitygw: S3Server, bucket: str) -> Callable[[], IcebergBench]:
        place = f"s3://{bucket}/lake"
        return lambda: IcebergBench(tmp_path / uuid.uuid4().hex, place=place, store=versitygw.access)


@one_in(4)
class TestIcebergTableOfRest(TableContract):
    @pytest.fixture
    def new_bench(self, tmp_path: Path, iceberg_rest: IcebergRest) -> Callable[[], IcebergBench]:
        return lambda: IcebergBench(tmp_path / uuid.uuid4().hex, iceberg_rest.uri)


@one_in(4)
class TestIcebergTableOfPostgres(TableContract):
    @pytest.fixture
    def new_bench(self, tmp_path: Path, postgres_database: str) -> Callable[[], IcebergBench]:
        warehouse = quote(f"file://{tmp_path}/lake", safe="")
        return lambda: IcebergBench(tmp_path / uuid.uuid4().hex, f"{postgres_database}?warehouse={warehouse}")
