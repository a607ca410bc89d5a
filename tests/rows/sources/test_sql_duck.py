"""SqlSource on PostgreSQL through DuckDB: the same rows as through ADBC, and the same errors."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Context, Decimal
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

from airflow_gobblin.errors import SourceError
from airflow_gobblin.model.watermark import Watermark
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


def _with(setting: str) -> str:
    """A statement that gives later connections to the database a setting."""
    quoted = setting.replace("'", "''")
    return f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {quoted}', current_database()); END $$"


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The results of the queries that count a range's rows."""
    found: list[int] = []
    count = Scan.count

    def listed(self: Scan, low: Watermark | None, high: Watermark | None) -> int:
        found.append(count(self, low, high))
        return found[-1]

    monkeypatch.setattr(Scan, "count", listed)
    return found


def _of_1000(database: PostgresDatabase) -> None:
    database.run(
        "CREATE TABLE t (id int, parity text)",
        "CREATE INDEX ON t (id)",
        "INSERT INTO t SELECT n, CASE n % 2 WHEN 0 THEN 'even' ELSE 'odd' END FROM generate_series(1, 1000) n",
    )


def test_rows_that_the_server_counted_are_not_counted_again(
    database: PostgresDatabase, taken: list[str], counts: list[int]
) -> None:
    """Of a range, which is read through a bitmap of its index."""
    _of_1000(database)
    loads = runs(database, "t", delta="id")
    (first,) = loads.run()
    assert (first.table.num_rows, first.expected_rows) == (1000, 1000)
    database.run(
        "INSERT INTO t SELECT n, 'more' FROM generate_series(1001, 1010) n",
        "DELETE FROM t WHERE id = 1005",
        "ANALYZE t",
    )
    (more,) = loads.run()
    assert (more.table.num_rows, more.expected_rows) == (9, 9)
    assert len(taken) == 2
    assert counts == []


def test_a_bitmap_has_memory_for_all_rows(database: PostgresDatabase, taken: list[str], counts: list[int]) -> None:
    """With as little as the server allows, it would remember pages only, and visit the rows beside those of the range."""
    database.run(
        _with("work_mem = '64kB'"),
        "CREATE UNLOGGED TABLE t (id int, pad text)",
        "INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 60000) n ORDER BY hashint4(n)",
        "CREATE INDEX ON t (id)",
        "ANALYZE t",
    )
    (unit,) = runs(database, "t", delta="id", start=50_001).run()
    assert (unit.table.num_rows, unit.expected_rows) == (10_000, 10_000)
    assert counts == []


@pytest.mark.parametrize(
    ("relation", "statements", "options", "rows"),
    [
        ("t", (), {"where": (Predicate("parity", "=", "even"),)}, 500),
        ("v", ("CREATE VIEW v AS SELECT * FROM t",), {}, 1000),
        ("t", (_with("track_counts = off"),), {}, 1000),
        ("bare", ("CREATE TABLE bare AS SELECT * FROM t",), {}, 1000),
        ("t", ("ALTER TABLE t ENABLE ROW LEVEL SECURITY",), {}, 1000),
        ("t", ("CREATE TABLE below () INHERITS (t)", "INSERT INTO below VALUES (1, 'odd')"), {}, 1001),
        (
            "p",
            (
                "CREATE TABLE p (id int) PARTITION BY RANGE (id)",
                "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (2000)",
                "INSERT INTO p SELECT id FROM t",
            ),
            {},
            1000,
        ),
    ],
    ids=["a condition", "a view", "no counts", "no index", "row security", "a table below it", "partitions"],
)
def test_rows_that_it_did_not_count_are_counted_by_a_query(
    database: PostgresDatabase,
    taken: list[str],
    counts: list[int],
    relation: str,
    statements: Sequence[str],
    options: Any,
    rows: int,
) -> None:
    _of_1000(database)
    database.run(*statements)
    (unit,) = runs(database, relation, delta="id", **options).run()
    assert (unit.table.num_rows, unit.expected_rows) == (rows, rows)
    assert counts == [rows]
    assert taken


def test_a_user_who_may_not_see_the_counters_has_a_query(
    database: PostgresDatabase, taken: list[str], counts: list[int]
) -> None:
    _of_1000(database)
    role = f"reader_{uuid4().hex}"
    database.run(
        f"CREATE ROLE {role} LOGIN PASSWORD 'r'",
        f"GRANT SELECT ON t TO {role}",
        "REVOKE EXECUTE ON FUNCTION pg_stat_get_xact_numscans(oid) FROM public",
    )
    at = urlsplit(database.url)
    as_reader = PostgresDatabase(at._replace(netloc=f"{role}:r@{at.hostname}:{at.port}").geturl())
    try:
        (unit,) = runs(as_reader, "t", delta="id").run()
    finally:
        database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    assert (unit.table.num_rows, unit.expected_rows) == (1000, 1000)
    assert counts == [1000]


def test_an_empty_range_is_counted_by_a_query(database: PostgresDatabase, taken: list[str], counts: list[int]) -> None:
    database.run("CREATE TABLE t (id int)")
    (unit,) = runs(database, "t", SNAPSHOT).run()
    assert (unit.table.num_rows, unit.expected_rows) == (0, 0)
    assert counts == [0]


def _altered(alter: Callable[[pa.RecordBatch], list[pa.RecordBatch]]) -> type[DuckResult]:
    """Results whose batches get lost or come twice."""

    class Altered(DuckResult):
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            for batch in super().__iter__():
                yield from alter(batch)

    return Altered


def _lost(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch.slice(1)]


def _twice(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch, batch]


@pytest.mark.parametrize("relation", ["t", "v"])
@pytest.mark.parametrize(
    ("alter", "rows"),
    [
        (lambda batch: [], 0),
        (_lost, 999),
        (lambda batch: [batch, batch.slice(0, 1)], 1001),
    ],
    ids=["all lost", "one lost", "one twice"],
)
def test_rows_that_get_lost_or_come_twice_are_missed(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, taken: list[str], relation: str, alter: Any, rows: int
) -> None:
    _of_1000(database)
    database.run("CREATE VIEW v AS SELECT * FROM t")
    monkeypatch.setattr(postgres, "DuckResult", _altered(alter))
    (unit,) = runs(database, relation, delta="id").run()
    assert (unit.table.num_rows, unit.expected_rows) == (rows, 1000)


@pytest.mark.parametrize(
    ("statements", "options", "alter", "rows", "expected"),
    [
        ((), {"where": (Predicate("parity", "=", "even"),), "start": 1}, _twice, 1000, 500),
        (("CREATE TABLE below () INHERITS (t)", "INSERT INTO below VALUES (1, 'odd')"), {}, _lost, 1000, 1001),
    ],
    ids=["a condition", "a table below it"],
)
def test_rows_that_are_as_many_as_were_visited_by_chance_are_missed(
    database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
    taken: list[str],
    statements: Sequence[str],
    options: Any,
    alter: Any,
    rows: int,
    expected: int,
) -> None:
    _of_1000(database)
    database.run(*statements)
    monkeypatch.setattr(postgres, "DuckResult", _altered(alter))
    (unit,) = runs(database, "t", delta="id", **options).run()
    assert (unit.table.num_rows, unit.expected_rows) == (rows, expected)


def test_a_table_that_is_scanned_twice_is_counted_by_a_query(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, taken: list[str]
) -> None:
    class Twice(DuckResult):
        def __init__(self, uri: str, first: Any, query: str, *rest: Any) -> None:
            super().__init__(uri, first, f"{query} UNION ALL {query}", *rest)

    _of_1000(database)
    monkeypatch.setattr(postgres, "DuckResult", Twice)
    (unit,) = runs(database, "t", delta="id").run()
    assert (unit.table.num_rows, unit.expected_rows) == (2000, 1000)


def test_rows_of_another_snapshot_are_missed(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, taken: list[str]
) -> None:
    class OfNow(DuckResult):
        def __init__(self, uri: str, first: Sequence[str], *rest: Any) -> None:
            database.run("DELETE FROM t WHERE id <= 50")
            super().__init__(uri, [one for one in first if "SNAPSHOT" not in one], *rest)

    _of_1000(database)
    monkeypatch.setattr(postgres, "DuckResult", OfNow)
    (unit,) = runs(database, "t", delta="id").run()
    assert (unit.table.num_rows, unit.expected_rows) == (950, 1000)


def test_the_count_fails_as_the_rows_would(
    database: PostgresDatabase, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(self: Scan, low: Watermark | None, high: Watermark | None) -> int:
        statement = self.session.statement()
        statement.text = "SELECT 1 / 0"
        return int(self.session.row(statement)[0])

    _of_1000(database)
    database.run("CREATE VIEW v AS SELECT * FROM t")
    monkeypatch.setattr(Scan, "count", count)
    with pytest.raises(SourceError, match="division by zero"):
        runs(database, "v", SNAPSHOT).run()
    assert taken


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
