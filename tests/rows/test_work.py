"""The work on rows passes the contract of works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.connections import Connections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import Job
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.testing import WorkContract
from tests.rows.sources.databases import SqliteDatabase


class TestRowsWork(WorkContract):
    """A table that grows, in four units, and one that is taken whole."""

    @pytest.fixture
    def database(self, tmp_path: Path) -> SqliteDatabase:
        database = SqliteDatabase(tmp_path / "shop.db")
        database.run("CREATE TABLE events (id INTEGER PRIMARY KEY)", "CREATE TABLE prices (cents INTEGER)")
        database.insert("events", [(n,) for n in range(30)])
        database.insert("prices", [(n,) for n in range(5)])
        return database

    @pytest.fixture
    def connections(self, database: SqliteDatabase) -> Connections:
        return database

    @pytest.fixture(params=Layout)
    def make_job(self, request: pytest.FixtureRequest) -> Callable[[str], Job]:
        events = SqlTable("events", ExtractKind.APPEND_ONLY, delta="id", unit_bytes=20, max_units=4)
        source = SqlSource("db", (events, SqlTable("prices", ExtractKind.SNAPSHOT_ONLY)))
        return lambda target: Ingestion("shop", source, ParquetSink(target, layout=request.param), "unused")

    @pytest.fixture
    def grow(self, database: SqliteDatabase) -> Callable[[], None]:
        new = iter(range(30, 100))

        def grow() -> None:
            database.insert("events", [(next(new),) for _ in range(9)])
            database.run("UPDATE prices SET cents = cents + 1")

        return grow

    @pytest.fixture
    def read(self) -> Callable[[bytes], Sequence[object]]:
        return lambda content: pq.read_table(pa.BufferReader(content)).to_pylist()
