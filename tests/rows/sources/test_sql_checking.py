"""Problems of a table are found ahead of a run, each column by itself, with a proposal that fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sources.sql import Predicate
from tests.rows.sources.databases import PostgresDatabase, Runs, SqliteDatabase, runs, with_options

SNAPSHOT = ExtractKind.SNAPSHOT_ONLY


def _found(loads: Runs) -> list[str]:
    (dataset,) = loads.source.datasets(loads.database)
    return [str(error) for error in loads.source.check(dataset, loads.database)]


@pytest.fixture
def sqlite(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "some.db")


@pytest.fixture
def postgres(postgres_database: str) -> PostgresDatabase:
    return PostgresDatabase(postgres_database)


@pytest.mark.parametrize(
    ("literal", "cast", "proposal"),
    [
        ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "int64", "'string'"),
        ("1.005::numeric", "decimal(10,2)", "'decimal(38,3)'"),
        ("1.005::numeric", "decimal(10,2)", "'rounded decimal(10,2)', if it may be rounded"),
        ("'2024-02-29 10:00'::text", "date", "'string'"),
        ("'2024-02-29 10:00:01'::timestamp", "date", "'timestamp'"),
        ("'2024-02-30'::text", "date", "'string'"),
        ("7", "bool", "'int64'"),
    ],
)
def test_a_cast_that_postgres_does_not_take_is_found_with_one_that_fits(
    postgres: PostgresDatabase, literal: str, cast: str, proposal: str
) -> None:
    postgres.run(f"CREATE TABLE t AS SELECT {literal} AS x, 1 AS id")
    loads = runs(postgres, "t", SNAPSHOT, casts={"x": cast})
    (found,) = _found(loads)
    assert f"column 'x' can't be read by its cast '{cast}'" in found
    assert proposal in found
    assert _found(with_options(loads, casts={"x": "string"})) == []


def test_every_column_that_does_not_fit_is_named(postgres: PostgresDatabase, sqlite: SqliteDatabase) -> None:
    for database in (postgres, sqlite):
        database.run("CREATE TABLE t (a text, b text, c text)", "INSERT INTO t VALUES ('x', 'y', '3')")
        loads = runs(database, "t", SNAPSHOT, casts={"a": "int64", "b": "float64", "c": "int64"})
        a, b = _found(loads)
        assert "column 'a'" in a
        assert "column 'b'" in b
        assert _found(with_options(loads, where=(Predicate("a", "!=", "x"),))) == []


def test_values_that_are_not_of_their_declared_type_are_found(sqlite: SqliteDatabase) -> None:
    sqlite.run("CREATE TABLE t (id INTEGER PRIMARY KEY, x INTEGER)", "INSERT INTO t VALUES (1, 2.5), (2, 3)")
    (found,) = _found(runs(sqlite, "t", SNAPSHOT))
    assert "column 'x' can't be read by its type 'INTEGER'" in found
    assert "row 1 of the unit has the value 2.5" in found
    assert "casts={'x': 'decimal(38,1)'}, which fits its first 2 values" in found


def test_the_first_rows_alone_are_read(sqlite: SqliteDatabase) -> None:
    sqlite.run("CREATE TABLE t (x INTEGER)")
    sqlite.insert("t", [(n,) for n in range(1000)] + [("many",)])
    assert _found(runs(sqlite, "t", SNAPSHOT)) == []
