"""The contract of sources, on SQL tables of each kind in each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sources.base import Source
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.testing import RangeSourceContract, SourceContract
from airflow_gobblin.testing.sources import Reading
from tests.protocol.rows import RowSource, Table
from tests.rows.sources.databases import DATABASES, Database, clock_at, empty_database

TIME = "2026-03-01 08:{:02}:00"


class SqlTables:
    """A table `events`, by its integer key or by its time, and another one without rows.

    :cvar kind: how they are extracted. :cvar delta: by which column.
    """

    kind = ExtractKind.APPEND_ONLY
    delta: str | None = "id"

    @pytest.fixture(params=DATABASES)
    def database(self, request: pytest.FixtureRequest, tmp_path: Path) -> Database:
        database = empty_database(request, tmp_path)
        columns = "id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL, name TEXT, cents DECIMAL(10, 2)"
        database.run(f"CREATE TABLE events ({columns})", f"CREATE TABLE none ({columns})")
        self.insert(database, 0, 30)
        return database

    def insert(self, database: Database, start: int, end: int) -> None:
        database.insert("events", [(n, TIME.format(n), f"event {n}", f"{n}.25") for n in range(start, end)])

    def table(self, name: str) -> SqlTable:
        lag = timedelta(minutes=1) if self.delta == "at" else None
        return SqlTable(name, self.kind, delta=self.delta, unit_bytes=100, max_units=4, lag=lag)

    @pytest.fixture
    def source(self, database: Database) -> Source:
        return SqlSource("db", (self.table("events"),))

    @pytest.fixture
    def empty_source(self, database: Database) -> Source:
        return SqlSource("db", (self.table("none"),))

    @pytest.fixture
    def connections(self, database: Database) -> Connections:
        return database

    @pytest.fixture
    def grow(self, database: Database) -> Callable[[], None]:
        rows = iter(range(30, 60, 5))

        def grow() -> None:
            start = next(rows)
            self.insert(database, start, start + 5)

        return grow


class TestTablesByKey(SqlTables, RangeSourceContract):
    pass


class TestTablesByTime(SqlTables, RangeSourceContract):
    """The database's clock goes on when rows are added."""

    delta = "at"

    @pytest.fixture
    def clock(self) -> Iterator[Callable[[int], None]]:
        with ExitStack() as clocks:

            def go_to(minute: int) -> None:
                clocks.enter_context(clock_at(datetime(2026, 3, 1, 8, minute, tzinfo=UTC)))

            go_to(31)
            yield go_to

    @pytest.fixture
    def grow(self, database: Database, clock: Callable[[int], None]) -> Callable[[], None]:
        rows = iter(range(30, 50, 5))

        def grow() -> None:
            start = next(rows)
            self.insert(database, start, start + 5)
            clock(start + 6)

        return grow

    @pytest.fixture
    def source(self, database: Database, clock: Callable[[int], None]) -> Source:
        return SqlSource("db", (self.table("events"),))


class TestSnapshots(SqlTables, SourceContract):
    kind = ExtractKind.SNAPSHOT_ONLY
    delta = None


class TestSnapshotsByKey(SqlTables, SourceContract):
    kind = ExtractKind.SNAPSHOT_ONLY


class TestSnapshotsThenNewRows(SqlTables, RangeSourceContract):
    kind = ExtractKind.SNAPSHOT_APPEND


class TestPositionsOfManyBatches:
    """The rows that the proofs are made with, when a position takes several batches: those within it have no place to cut."""

    @pytest.fixture
    def positioned(self) -> list[Reading]:
        source = RowSource((Table("t", ExtractKind.APPEND_ONLY, 8, ties=7),))
        return [Reading(source, dataset, NoConnections()) for dataset in source.datasets(NoConnections())]

    def test_a_batch_within_one_needs_no_place(self, positioned: list[Reading]) -> None:
        RangeSourceContract().test_rows_in_order_can_be_cut_between_two_positions(positioned)
