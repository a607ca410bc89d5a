"""Real databases for the tests of the SQL source, filled through drivers of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pytest

from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.work import ExtractKind, Limits, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, ReadRequest
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.rows.sources.sql.postgres import Postgres
from airflow_gobblin.rows.sources.sql.sqlite import Sqlite

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Database(Protocol):
    """A database with one connection id, `db`."""

    kind: str

    def uri(self, conn_id: str) -> str: ...

    def run(self, *statements: str) -> None: ...

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None: ...


class SqliteDatabase:
    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path

    def uri(self, conn_id: str) -> str:
        return f"sqlite:///{quote(str(self._path))}"

    def run(self, *statements: str) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            rows = list(rows)
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


class PostgresDatabase:
    kind = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url

    def uri(self, conn_id: str) -> str:
        return self.url

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            rows = list(rows)
            cursor.executemany(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(rows[0]))})".encode(), rows)


DATABASES = ("sqlite", "postgres")
"""The parameters of a fixture that is an `empty_database`."""


def empty_database(request: pytest.FixtureRequest, folder: Path, name: str = "a.db") -> Database:
    """A database of the kind that is a fixture's parameter.

    :param name: of the file, if it is one.
    """
    if request.param == "sqlite":
        return SqliteDatabase(folder / name)
    return PostgresDatabase(request.getfixturevalue("postgres_database"))


@dataclass(frozen=True)
class FixedUri:
    """A connection whose URI is anything."""

    value: str

    def uri(self, conn_id: str) -> str:
        return self.value


class Connections(Protocol):
    def uri(self, conn_id: str) -> str: ...


@dataclass(frozen=True)
class Given:
    """The result of reading a unit."""

    unit: WorkUnit
    table: pa.Table
    actual_high: Watermark | None
    expected_rows: int | None


@dataclass(frozen=True)
class Planned(DatasetPlan):
    """The plan of a source, with all of its units."""

    units: tuple[WorkUnit, ...]


@contextmanager
def clock_at(now: datetime) -> Iterator[None]:
    """Databases that report this time as now."""
    with ExitStack() as set_back:
        for dialect in (Postgres, Sqlite):
            text = now.astimezone(UTC).replace(tzinfo=None).isoformat()
            set_back.enter_context(patch.object(dialect, "clock", f"'{text}'"))
        yield


@dataclass
class Runs:
    """One table's runs, with its coverage kept between them, as the journal would.

    :param real_clock: whether the database gives the time; else it is the `now` of a run, for worker and database.
    """

    database: Connections
    table: SqlTable
    coverage: Coverage = field(default_factory=Coverage)
    real_clock: bool = False

    @property
    def source(self) -> SqlSource:
        return SqlSource("db", (self.table,))

    def plan(self, now: datetime = NOW, end: datetime | None = None, limits: Limits | None = None) -> Planned:
        (dataset,) = self.source.datasets(self.database)
        state = DatasetState(dataset.urn, self.coverage)
        asked = PlanRequest(now, end, limits or Limits())
        with nullcontext() if self.real_clock else clock_at(now):
            found = self.source.plan(dataset, {dataset.urn: state}, asked, self.database)
        return Planned(
            tuple(found.units), found.schema, found.planned, found.kept_from, found.consistency, merge=found.merge
        )

    def read(self, unit: WorkUnit, schema: pa.Schema, limits: Limits | None = None) -> Given:
        reader = self.source.read(unit, schema, ReadRequest(limits or Limits()), self.database)
        try:
            batches = list(reader)
            assert all(batch.schema.equals(schema, check_metadata=True) for batch in batches)
            table = pa.Table.from_batches(batches, schema)
            table.validate(full=True)
            return Given(unit, table, reader.actual_high, reader.expected_rows)
        finally:
            reader.close()

    def run(self, now: datetime = NOW, end: datetime | None = None, limits: Limits | None = None) -> list[Given]:
        """Plan, read every unit, and cover what was read."""
        plan = self.plan(now, end, limits)
        given = [self.read(unit, plan.schema, limits) for unit in plan.units]
        if self.table.kind is not ExtractKind.SNAPSHOT_ONLY:
            for one in given:
                assert one.unit.low is not None
                assert one.actual_high is not None
                covered = Range(one.unit.low, one.actual_high)
                self.coverage = self.coverage if covered.empty else self.coverage.add(covered)
        return given

    def all_rows(self, limits: Limits | None = None) -> list[tuple[Any, ...]]:
        """The rows of as many runs as needed until nothing is left, in no order."""
        rows: list[tuple[Any, ...]] = []
        while given := self.run(limits=limits):
            rows += [tuple(row.values()) for one in given for row in one.table.to_pylist()]
        return rows

    def rows(self, **request: Any) -> list[tuple[Any, ...]]:
        """The rows that a run gives, in no order."""
        return [tuple(row.values()) for one in self.run(**request) for row in one.table.to_pylist()]


def runs(database: Connections, table: str, kind: ExtractKind = ExtractKind.APPEND_ONLY, **options: Any) -> Runs:
    return Runs(database, SqlTable(table, kind, **options))


def with_options(loads: Runs, **options: Any) -> Runs:
    return replace(loads, table=replace(loads.table, **options))


def column(given: Iterable[Given], name: str) -> list[Any]:
    return [value for one in given for value in one.table.column(name).to_pylist()]
