"""The formats of tables: how an ingestion into each is declared, and what others read there and do to it without us."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import quote

import duckdb
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.rows.sinks.iceberg import IcebergSink
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.tables.iceberg import IcebergTable, OpenIcebergTable
from airflow_gobblin.testing.memory_table import MemoryTable, MemoryTableSink
from tests.protocol.rows import SCHEMA
from tests.services.s3 import CONNECTION, S3Access

__all__ = ["EACH", "ON_A_DISK", "Delta", "Format", "Iceberg", "Memory", "Postgres", "format_of", "formats"]


ON_A_DISK = ("files in memory", "delta", pytest.param("iceberg", marks=pytest.mark.slow))
"""Formats whose data files stay, in a folder."""
EACH = ("memory", *ON_A_DISK, "postgres")
"""Every format once."""


class Format(Protocol):
    """A format, and the place of its tables: each is known by the key of its dataset, and has a column of text, `row`."""

    has_versions: ClassVar[bool]
    """Whether its tables keep versions."""

    @property
    def has_files(self) -> bool:
        """Whether data files stay where they are written."""

    @property
    def merges(self) -> bool:
        """Whether it merges rows by their key."""

    @property
    def uris(self) -> Mapping[str, str]:
        """The connections that it takes."""

    def sink(self, workspace: str, **options: Any) -> Any:
        """Declare a sink of its tables."""

    def make(self, key: str, schema: pa.Schema) -> None:
        """Make a table, as nobody's."""

    def rows(self, key: str, column: str = "row") -> list[Any]:
        """Read a column of a table, as a reader outside does."""

    def append(self, key: str, rows: list[str]) -> None:
        """Add rows."""

    def delete(self, key: str, row: str) -> None:
        """Delete one row."""

    def compact(self, key: str) -> bool:
        """Write all rows into one file; return whether it has such a thing."""

    def forget(self, key: str) -> None:
        """Forget all versions but the newest, and remove their files."""

    def drop(self, key: str) -> None:
        """Drop a table."""


@dataclass(frozen=True)
class Memory:
    """Tables in memory.

    :param lake: the folder of their data files; `None`: their rows are taken.
    """

    lake: Path | None = None
    has_versions: ClassVar[bool] = True
    uris: ClassVar[Mapping[str, str]] = {}
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def has_files(self) -> bool:
        return self.lake is not None

    @property
    def merges(self) -> bool:
        return self.lake is None

    def _place(self, key: str) -> str:
        return "" if self.lake is None else f"{self.lake}/{key}"

    def sink(self, workspace: str, **options: Any) -> MemoryTableSink:
        return MemoryTableSink(workspace, f"{self._id}.{{dataset}}", self._place("{dataset}"), **options)

    def _table(self, key: str) -> MemoryTable:
        return MemoryTable(f"{self._id}.{key}", self._place(key))

    def make(self, key: str, schema: pa.Schema) -> None:
        self._table(key).make(schema)

    def rows(self, key: str, column: str = "row") -> list[Any]:
        return [row[column] for row in self._table(key).rows()]

    def append(self, key: str, rows: list[str]) -> None:
        self._table(key).append([{"row": row} for row in rows])

    def delete(self, key: str, row: str) -> None:
        self._table(key).delete(lambda one: one["row"].rstrip(" ") == row)

    def compact(self, key: str) -> bool:
        self._table(key).compact()
        return True

    def forget(self, key: str) -> None:
        self._table(key).expire()

    def drop(self, key: str) -> None:
        self._table(key).drop()


@dataclass(frozen=True)
class Delta:
    """Delta tables, as deltalake has them.

    :param lake: their folder, or bucket and prefix.
    :param store: the store of these; `None`: a disk.
    """

    lake: Path | str
    store: S3Access | None = None
    has_versions: ClassVar[bool] = True
    has_files: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    @property
    def uris(self) -> Mapping[str, str]:
        return {} if self.store is None else {CONNECTION: self.store.connection}

    def sink(self, workspace: str, **options: Any) -> DeltaSink:
        place = self.lake if self.store is None else self.store.url(str(self.lake))
        return DeltaSink(f"{place}/{{dataset}}", workspace, **options)

    def _url(self, key: str) -> str:
        return f"{self.lake}/{key}" if self.store is None else f"s3://{self.lake}/{key}"

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self.store is None else self.store.deltalake

    def table(self, key: str) -> DeltaTable:
        return DeltaTable(self._url(key), storage_options=self._options)

    def make(self, key: str, schema: pa.Schema) -> None:
        write_deltalake(self._url(key), schema.empty_table(), storage_options=self._options)

    def rows(self, key: str, column: str = "row") -> list[Any]:
        """Read a table by deltalake, and its files on a disk by DuckDB: they agree."""
        table = self.table(key)
        found: list[Any] = table.to_pyarrow_table()[column].to_pylist()
        if self.store is None and (files := table.file_uris()):
            read = duckdb.sql(f"select {column} from read_parquet({files})").fetchall()
            assert sorted(row for (row,) in read) == sorted(found)
        return found

    def append(self, key: str, rows: list[str]) -> None:
        write_deltalake(self.table(key), pa.table({"row": rows}, SCHEMA), mode="append")

    def delete(self, key: str, row: str) -> None:
        self.table(key).delete(f"row like '{row}%'")

    def compact(self, key: str) -> bool:
        self.table(key).optimize.compact()
        return True

    def forget(self, key: str) -> None:
        self.table(key).vacuum(0, enforce_retention_duration=False, dry_run=False)

    def drop(self, key: str) -> None:
        assert isinstance(self.lake, Path)
        shutil.rmtree(self.lake / key)


@dataclass(frozen=True)
class Iceberg:
    """Iceberg tables, as pyiceberg has them.

    :param uris: the connection of the catalog, `lake_catalog`, and that of the store of the tables, if it isn't a disk.
    """

    uris: Mapping[str, str]
    has_versions: ClassVar[bool] = True
    has_files: ClassVar[bool] = True
    merges: ClassVar[bool] = True
    _namespace: str = field(default_factory=lambda: f"raw_{uuid.uuid4().hex}")

    @classmethod
    def of_sqlite(cls, folder: Path, place: str = "", store: S3Access | None = None) -> Iceberg:
        """Return those of a catalog on SQLite.

        :param folder: of the catalog.
        :param place: of the tables, as a URL; by default beside it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite://{folder}/catalog.db?warehouse={quote(place or f'file://{folder}', safe='')}"
        return cls({"lake_catalog": uri} | ({} if store is None else {CONNECTION: store.connection}))

    @property
    def _storage(self) -> str | None:
        return CONNECTION if CONNECTION in self.uris else None

    def sink(self, workspace: str, **options: Any) -> IcebergSink:
        name = f"{self._namespace}.{{dataset}}"
        return IcebergSink("lake_catalog", name, workspace, storage=self._storage, **options)

    def _open(self, key: str) -> OpenIcebergTable:
        record = IcebergTable("lake_catalog", f"{self._namespace}.{key}", self._storage)
        return record.open(SparkConnections(self.uris), LocalFiles("/"))

    def table(self, key: str) -> Any:
        """Return a table, as pyiceberg opens it."""
        return self._open(key)._existing("read")

    def make(self, key: str, schema: pa.Schema) -> None:
        catalog = self._open(key)._catalog
        catalog.create_namespace_if_not_exists(self._namespace)
        catalog.create_table(f"{self._namespace}.{key}", schema)

    def rows(self, key: str, column: str = "row") -> list[Any]:
        found: list[Any] = self.table(key).scan().to_arrow()[column].to_pylist()
        return found

    def append(self, key: str, rows: list[str]) -> None:
        self.table(key).append(pa.table({"row": rows}, SCHEMA))

    def delete(self, key: str, row: str) -> None:
        self.table(key).delete(f"row like '{row}%'")

    def compact(self, key: str) -> bool:
        table = self.table(key)
        table.overwrite(table.scan().to_arrow())
        return True

    def forget(self, key: str) -> None:
        table = self.table(key)
        old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.current_snapshot().snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def drop(self, key: str) -> None:
        self._open(key)._catalog.drop_table(f"{self._namespace}.{key}")


@dataclass(frozen=True)
class Postgres:
    """Tables in schema `raw` of a database that is empty before.

    :param url: of the database.
    """

    url: str
    has_versions: ClassVar[bool] = False
    has_files: ClassVar[bool] = False
    merges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.sql("CREATE SCHEMA IF NOT EXISTS raw")

    @property
    def uris(self) -> Mapping[str, str]:
        return {"warehouse": self.url}

    def sink(self, workspace: str, **options: Any) -> PostgresSink:
        return PostgresSink("warehouse", "raw.{dataset}", workspace, **options)

    def sql(self, statement: str) -> list[Any]:
        """Carry out a statement in the database; return its rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def make(self, key: str, schema: pa.Schema) -> None:
        assert schema.types == [pa.int64()]
        self.sql(f"CREATE TABLE raw.{key} ({schema.names[0]} bigint)")

    def rows(self, key: str, column: str = "row") -> list[Any]:
        return [row for (row,) in self.sql(f"SELECT {column} FROM raw.{key}")]

    def append(self, key: str, rows: list[str]) -> None:
        values = ", ".join(f"('{row}')" for row in rows)
        self.sql(f"INSERT INTO raw.{key} (row) VALUES {values}")

    def delete(self, key: str, row: str) -> None:
        self.sql(f"DELETE FROM raw.{key} WHERE rtrim(row) = '{row}'")

    def compact(self, key: str) -> bool:
        return False

    def forget(self, key: str) -> None:
        raise AssertionError("it keeps no versions")

    def drop(self, key: str) -> None:
        self.sql(f"DROP TABLE raw.{key}")


def format_of(name: str, folder: Path, service: Callable[[str], Any]) -> Format:
    """Return a format by its name in parameters.

    :param folder: for its tables, where it doesn't have a place of its own.
    :param service: returns a service by the name of its fixture.
    """
    match name:
        case "memory":
            return Memory()
        case "files in memory":
            return Memory(folder)
        case "delta":
            return Delta(folder)
        case "iceberg":
            return Iceberg.of_sqlite(folder)
        case "iceberg_rest":
            return Iceberg({"lake_catalog": service("iceberg_rest").uri})
        case "delta on versitygw":
            return Delta(f"{service('bucket')}/lake", service("versitygw").access)
        case "iceberg on versitygw":
            store = service("versitygw").access
            return Iceberg.of_sqlite(folder, f"s3://{service('bucket')}/lake", store)
        case "iceberg_rest on versitygw":
            catalog, store = service("iceberg_rest_in_s3"), service("versitygw").access
            return Iceberg({"lake_catalog": catalog.uri, CONNECTION: store.connection})
        case "postgres":
            return Postgres(service("postgres_database"))
    raise ValueError(name)


def formats(*chosen: Any) -> pytest.MarkDecorator:
    """Repeat a test, of fixture `table_lab`, with these formats only."""
    return pytest.mark.parametrize("table_lab", [*chosen], indirect=True)
