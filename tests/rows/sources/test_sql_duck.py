"""SqlSource on PostgreSQL through DuckDB: the same rows as through ADBC, and the same errors."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Context, Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from airflow_gobblin.errors import SourceError
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sources.base import ReadRequest
from airflow_gobblin.rows.sources.sql import Predicate, duck, postgres, reader
from airflow_gobblin.rows.sources.sql.duck import EXTENSION, DuckResult
from airflow_gobblin.rows.sources.sql.scan import Scan
from tests.rows.sources.databases import PostgresDatabase, Runs, runs, with_options

pytest.importorskip(EXTENSION, reason="the extra `duckdb` is not installed")

SNAPSHOT = ExtractKind.SNAPSHOT_ONLY
COLUMNS = {
    "small": "smallint",
    "Small": "smallint",
    "number": "bigint",
    "real": "real",
    "double": "double precision",
    "yes": "boolean",
    "text": "text",
    "short": "varchar(9)",
    "bytes": "bytea",
    "day": "date",
    "local": "timestamp",
    "instant": "timestamptz",
    "price": "numeric(12, 2)",
    "long": "numeric(38, 37)",
    "tiny": "numeric(3, 5)",
    "coarse": "numeric(5, -3)",
    "free": "numeric",
    "id": "uuid",
    "json": "jsonb",
    "clock": "time",
    "span": "interval",
    "mood": "mood",
}
ROWS = [
    r"""(-7, 7, 9223372036854775807, 'NaN', '-Infinity', true, 'né "''\', 'abc', '\x00ff', '2024-02-29', '0001-01-01',
        '2024-02-29 01:00+02', -123.45, -1.0000000000000000000000000000000000001, -0.00999, -99999000, 'NaN',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": 1}', '24:00', '1 month -2 days 00:00:00.000006', 'happy')""",
    """(1, 2, -9223372036854775808, 0.1, 0.1, false, '', ' ', '', '9999-12-31', '9999-12-31 23:59:59.999999',
        '1970-01-01 00:00+00', 9999999999.99, 0, 0.00001, 1000, 1e-30, gen_random_uuid(), '[]',
        '01:02:03.000004', '0', 'happy')""",
    f"({', '.join(['NULL'] * len(COLUMNS))})",
]


@pytest.fixture
def database(postgres_database: str) -> PostgresDatabase:
    return PostgresDatabase(postgres_database)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every unit is read in bulk, however small; and the queries that went through DuckDB."""
    taken: list[str] = []

    class Listed(DuckResult):
        def __init__(self, uri: str, first: Any, query: str, *rest: Any) -> None:
            taken.append(query)
            super().__init__(uri, first, query, *rest)

    monkeypatch.setattr(reader, "BULK_BYTES", 0)
    monkeypatch.setattr(postgres, "DuckResult", Listed)
    return taken


def read(loads: Runs) -> pa.Table:
    return pa.concat_tables([one.table for one in loads.run()])


def test_every_type_is_what_it_is_through_adbc(
    database: PostgresDatabase, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    database.run(
        "CREATE TYPE mood AS ENUM ('happy')",
        f"CREATE TABLE t ({declared})",
        f"INSERT INTO t VALUES {', '.join(ROWS)}",
    )
    loads = runs(database, "t", SNAPSHOT, timezone="Europe/Berlin")
    through_duckdb = read(loads)
    assert len(taken) == 1
    monkeypatch.setattr(reader, "BULK_BYTES", 1 << 60)
    through_adbc = read(loads)
    assert len(taken) == 1
    assert through_duckdb.schema == through_adbc.schema
    assert str(through_duckdb.to_pylist()) == str(through_adbc.to_pylist())  # as text, for NaN isn't equal to itself


@pytest.mark.parametrize(
    ("precision", "scale"), [(1, 0), (4, 4), (9, 5), (18, 0), (19, 2), (38, 0), (38, 19), (38, 38)]
)
def test_decimals_are_exact(database: PostgresDatabase, taken: list[str], precision: int, scale: int) -> None:
    drawn = random.Random(precision)
    numbers = [drawn.randrange(10 ** drawn.randint(0, precision)) for _ in range(1000)] + [0, 1, 10**precision - 1]
    values = [Decimal(sign * number).scaleb(-scale, Context(prec=precision)) for number in numbers for sign in (1, -1)]
    database.run(
        f"CREATE TABLE t (id int, x numeric({precision}, {scale}))",
        f"INSERT INTO t VALUES {', '.join(f'({n}, {value:f})' for n, value in enumerate(values))}",
    )
    assert sorted(runs(database, "t", SNAPSHOT).rows()) == list(enumerate(values))
    assert taken


def test_a_domain_over_a_numeric_is_one(database: PostgresDatabase, taken: list[str]) -> None:
    database.run("CREATE DOMAIN money2 AS numeric(12, 2)", "CREATE TABLE t (x money2)", "INSERT INTO t VALUES (1.5)")
    assert runs(database, "t", SNAPSHOT).rows() == [(Decimal("1.50"),)]
    assert taken


@pytest.mark.parametrize(("declared", "literal", "value"), [("char(4)", "'ab'", "ab  "), ("int[]", "'{1}'", [1])])
def test_a_type_that_duckdb_changes_does_not_go_through_it(
    database: PostgresDatabase, taken: list[str], declared: str, literal: str, value: Any
) -> None:
    database.run(f"CREATE TABLE t (x {declared})", f"INSERT INTO t VALUES ({literal})")
    assert runs(database, "t", SNAPSHOT).rows() == [(value,)]
    assert taken == []


def test_long_rows_do_not_go_through_it(database: PostgresDatabase, taken: list[str]) -> None:
    database.run(
        "CREATE TABLE t (x text)", "INSERT INTO t SELECT string_agg(md5(n::text), '') FROM generate_series(1, 300) n"
    )
    assert len(runs(database, "t", SNAPSHOT).rows()) == 1
    assert taken == []


@pytest.mark.parametrize(
    ("declared", "literal", "value"),
    [
        ("numeric(5,2)", "NaN", r"'NaN': expected decimal128\(5, 2\)"),
        ("timestamptz", "-infinity", "a date or time: it is infinite"),
        ("date", "10000-01-01", "a date or time: it is infinite, or outside the years 1 to 9999"),
    ],
)
def test_a_value_that_arrow_can_not_hold_is_named(
    database: PostgresDatabase, taken: list[str], declared: str, literal: str, value: str
) -> None:
    database.run(
        f"CREATE TABLE t (id int PRIMARY KEY, x {declared})",
        f"INSERT INTO t SELECT n, CASE n WHEN 777 THEN CAST('{literal}' AS {declared}) END FROM generate_series(1, 100000) n",
    )
    with pytest.raises(SourceError, match=rf"column 'x', row 777 of the unit \(id=777\) has the value {value}"):
        runs(database, "t", SNAPSHOT, primary_keys=("id",)).run()
    assert taken


def test_values_are_bound_whatever_they_hold(database: PostgresDatabase, taken: list[str]) -> None:
    odd = r"""it's \ "$1" 'x'; --"""
    database.run("CREATE TABLE t (id int, x text)", f"INSERT INTO t VALUES (1, $odd${odd}$odd$), (2, 'other')")
    loads = runs(database, "t", delta="id", where=(Predicate("x", "=", odd),))
    assert loads.rows() == [(1, odd)]
    assert taken
    assert with_options(loads, where=(Predicate("x", "in", (odd, "other")),)).plan().units


def test_it_reads_what_the_held_snapshot_shows(database: PostgresDatabase, taken: list[str]) -> None:
    database.run("CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
    loads = runs(database, "t", SNAPSHOT)
    plan = loads.plan()
    with loads.source.snapshot(database) as held:
        database.run("INSERT INTO t VALUES (2)")
        with closing(loads.source.read(plan.units[0], plan.schema, ReadRequest(snapshot=held), database)) as unit:
            assert sum(batch.num_rows for batch in unit) == 1
            assert unit.expected_rows == 1
    assert taken


def _connected(database: PostgresDatabase) -> int:
    """How many others are connected to the database."""
    query = b"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(database.url) as connection:
        found = connection.execute(query).fetchone()
    assert found is not None
    return int(found[0])


def test_results_share_a_duckdb_and_leave_nothing_in_it(database: PostgresDatabase, taken: list[str]) -> None:
    database.run("CREATE TABLE t AS SELECT n AS id FROM generate_series(1, 1000) n")
    loads = runs(database, "t", SNAPSHOT)
    plan = loads.plan()

    def numbers(_: int) -> list[int]:
        with closing(loads.source.read(plan.units[0], plan.schema, ReadRequest(), database)) as unit:
            return sorted(number for batch in unit for number in batch.column(0).to_pylist())

    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(numbers, range(12))]
    assert found == [[*range(1, 1001)]] * 12
    assert len(taken) == 12
    (attached,) = (
        duck._duckdb(os.getpid()).execute("SELECT count(*) FROM duckdb_databases() WHERE type = 'postgres'").fetchone()
    )
    assert attached == 0
    until = time.monotonic() + 10
    while _connected(database) and time.monotonic() < until:  # a server process ends a moment after its connection
        time.sleep(0.05)
    assert _connected(database) == 0


@pytest.mark.parametrize(("relation", "setting"), [("t", "off"), ('It\'s "t"', "off"), ("v", "on")])
def test_a_table_is_read_page_by_page_and_a_view_as_the_server_plans_it(
    database: PostgresDatabase, taken: list[str], monkeypatch: pytest.MonkeyPatch, relation: str, setting: str
) -> None:
    found: list[Any] = []

    class Asked(DuckResult):
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            yield from super().__iter__()
            found.extend(self._query("SELECT current_setting('enable_indexscan')").fetchall())

    database.run(
        "CREATE TABLE t AS SELECT n AS id FROM generate_series(1, 10) n",
        "CREATE VIEW v AS SELECT * FROM t",
        'CREATE TABLE "It\'s ""t""" AS SELECT * FROM t',
    )
    monkeypatch.setattr(postgres, "DuckResult", Asked)
    assert len(runs(database, relation, SNAPSHOT).rows()) == 10
    assert found == [(setting,)]


def _counted_by(text: str) -> Callable[[Scan, Any, Any], int]:
    """A count of rows by another query."""

    def count(self: Scan, low: Any, high: Any) -> int:
        statement = self.session.statement()
        statement.text = text
        return int(self.session.row(statement)[0])

    return count


def test_the_count_fails_as_the_rows_would(
    database: PostgresDatabase, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE t AS SELECT n AS id FROM generate_series(1, 1000) n")
    monkeypatch.setattr(Scan, "count", _counted_by("SELECT 1 / 0"))
    with pytest.raises(SourceError, match="division by zero"):
        runs(database, "t", SNAPSHOT).run()
    assert taken


def test_a_slow_count_keeps_nobody_who_stops(
    database: PostgresDatabase, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE UNLOGGED TABLE t AS SELECT n AS id FROM generate_series(1, 1000000) n")
    monkeypatch.setattr(Scan, "count", _counted_by("SELECT count(pg_sleep(60))"))
    loads = runs(database, "t", SNAPSHOT)
    plan = loads.plan()
    started = time.monotonic()
    for close_batches_first in (True, False):
        unit = loads.source.read(plan.units[0], plan.schema, ReadRequest(), database)
        batches = iter(unit)
        next(batches)
        if close_batches_first:
            batches.close()  # type: ignore[attr-defined]
        unit.close()
    assert time.monotonic() - started < 10
    assert taken
    database.run("DROP TABLE t")


def test_an_error_in_the_middle_is_one(database: PostgresDatabase, taken: list[str]) -> None:
    database.run(
        "CREATE UNLOGGED TABLE t AS SELECT n AS id FROM generate_series(1, 200000) n",
        "CREATE VIEW v AS SELECT id, 1 / (id - 190000) AS x FROM t",
    )
    with pytest.raises(SourceError, match="division by zero"):
        runs(database, "v", SNAPSHOT).run()
    assert taken


@pytest.fixture
def half_read(database: PostgresDatabase, taken: list[str]) -> Any:
    """A unit of which one batch was read, and an iterator of the others."""
    database.run("CREATE UNLOGGED TABLE t AS SELECT n AS id, md5(n::text) AS text FROM generate_series(1, 1000000) n")
    loads = runs(database, "t", SNAPSHOT)
    plan = loads.plan()
    unit = loads.source.read(plan.units[0], plan.schema, ReadRequest(), database)
    batches = iter(unit)
    next(batches)
    assert taken
    return unit, batches


def test_a_server_process_that_dies_is_an_error_and_no_more(database: PostgresDatabase, half_read: Any) -> None:
    unit, batches = half_read
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'COPY%'")
    with closing(unit), pytest.raises(SourceError) as raised:
        list(batches)
    assert database.url.split(":")[2].split("@")[0] not in str(raised.value)


def test_an_early_stop_waits_for_nothing(database: PostgresDatabase, half_read: Any) -> None:
    unit, _ = half_read
    started = time.monotonic()
    unit.close()
    assert time.monotonic() - started < 1
    database.run("DROP TABLE t")
