"""SqlSource on PostgreSQL: its types, its casts, its catalog, and how it streams."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import ReadRequest
from airflow_gobblin.rows.sources.sql import Predicate
from airflow_gobblin.rows.sources.sql.dialects import Statement
from airflow_gobblin.rows.sources.sql.postgres import Postgres
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.storage.adbc_postgres import libpq_uri
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.rows.sources.databases import PostgresDatabase, runs, with_options

SNAPSHOT = ExtractKind.SNAPSHOT_ONLY


@pytest.fixture
def database(postgres_database: str) -> PostgresDatabase:
    return PostgresDatabase(postgres_database)


@pytest.mark.parametrize(
    ("declared", "literal", "kind", "value"),
    [
        ("smallint", "-7", pa.int16(), -7),
        ("integer", "7", pa.int32(), 7),
        ("bigint", "9223372036854775807", pa.int64(), 2**63 - 1),
        ("real", "0.5", pa.float32(), 0.5),
        ("double precision", "0.1", pa.float64(), 0.1),
        ("boolean", "true", pa.bool_(), True),
        ("text", "'né'", pa.string(), "né"),
        ("varchar(3)", "'abc'", pa.string(), "abc"),
        ("char(4)", "'ab'", pa.string(), "ab  "),
        ("bytea", r"'\x00ff'", pa.binary(), b"\x00\xff"),
        ("date", "'2024-02-29'", pa.date32(), date(2024, 2, 29)),
        ("timestamp", "'2024-02-29 01:02:03.000004'", pa.timestamp("us"), datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001
        (
            "timestamptz",
            "'2024-02-29 01:00:00+02'",
            pa.timestamp("us", "UTC"),
            datetime(2024, 2, 28, 23, tzinfo=UTC),
        ),
        ("numeric(5,2)", "-123.45", pa.decimal128(5, 2), Decimal("-123.45")),
        ("numeric(38,37)", "1." + "9" * 37, pa.decimal128(38, 37), Decimal("1." + "9" * 37)),
        ("numeric(4)", "1234", pa.decimal128(4, 0), Decimal(1234)),
        ("numeric(2,4)", "0.0012", pa.decimal128(4, 4), Decimal("0.0012")),
        ("numeric(3,-2)", "12345", pa.decimal128(5, 0), Decimal(12300)),
        ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", pa.string(), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("json", """'{"a": 1}'""", pa.string(), '{"a": 1}'),
        ("jsonb", """'{"a":1}'""", pa.string(), '{"a": 1}'),
        ("price", "9.99", pa.decimal128(8, 2), Decimal("9.99")),
    ],
)
def test_types(database: PostgresDatabase, declared: str, literal: str, kind: pa.DataType, value: Any) -> None:
    database.run(
        "CREATE DOMAIN price AS numeric(8,2)",
        f"CREATE TABLE t (id int, x {declared})",
        f"INSERT INTO t VALUES (1, NULL), (2, {literal})",
    )
    loads = runs(database, "t", SNAPSHOT, columns=("x",))
    assert loads.plan().schema == pa.schema([("x", kind)])
    (one,) = loads.run()
    assert one.table["x"].to_pylist() == [None, value]


@pytest.mark.parametrize(
    ("declared", "literal", "kind", "value"),
    [
        ("numeric", "1e-30", pa.string(), f"0.{'0' * 29}1"),
        ("numeric", "'NaN'", pa.string(), "NaN"),
        ("numeric(50,2)", "9" * 48, pa.string(), f"{'9' * 48}.00"),
        ("mood", "'happy'", pa.string(), "happy"),
        ("time", "'24:00'", pa.string(), "24:00:00"),
        ("time", "'01:02:03.000004'", pa.string(), "01:02:03.000004"),
        ("timetz", "'01:02+03:30'", pa.string(), "01:02:00+03:30"),
        ("interval", "'1 month -2 days 03:04:05.000006'", pa.string(), "P1M-2DT3H4M5.000006S"),
        ("money", "12.34", pa.string(), "$12.34"),
        ('"char"', "'a'", pa.string(), "a"),
        ("inet", "'10.0.0.0/8'", pa.string(), "10.0.0.0/8"),
        ("int4range", "'[1,5)'", pa.string(), "[1,5)"),
        ("bit(3)", "B'101'", pa.string(), "101"),
        ("pair", "(1, 'x y')", pa.string(), '(1,"x y")'),
        ("int2vector", "'1 2'", pa.string(), "1 2"),
        ("int[]", "ARRAY[1, NULL, 3]", pa.list_(pa.int32()), [1, None, 3]),
        ("int[]", "'{}'", pa.list_(pa.int32()), []),
        ("text[]", """ARRAY['a,b', '"', NULL, 'NULL']""", pa.list_(pa.string()), ["a,b", '"', None, "NULL"]),
        ("bytea[]", r"ARRAY['\x00ff'::bytea]", pa.list_(pa.binary()), [b"\x00\xff"]),
        ("date[]", "ARRAY['2024-02-29'::date]", pa.list_(pa.date32()), [date(2024, 2, 29)]),
        (
            "timestamptz[]",
            "ARRAY['2024-02-29 01:00+02'::timestamptz]",
            pa.list_(pa.timestamp("us", "UTC")),
            [datetime(2024, 2, 28, 23, tzinfo=UTC)],
        ),
        ("numeric(5,2)[]", "ARRAY[1.5, NULL]", pa.list_(pa.decimal128(5, 2)), [Decimal("1.50"), None]),
        ("numeric[]", "ARRAY[1e-10]", pa.list_(pa.string()), ["0.0000000001"]),
        ("mood[]", "ARRAY['happy'::mood]", pa.list_(pa.string()), ["happy"]),
        (
            "uuid[]",
            "ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid]",
            pa.list_(pa.string()),
            ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
        ),
        ("tags", "ARRAY['a']", pa.list_(pa.string()), ["a"]),
    ],
)
def test_every_other_type_comes_without_a_loss_and_goes_to_parquet(
    database: PostgresDatabase, tmp_path: Path, declared: str, literal: str, kind: pa.DataType, value: Any
) -> None:
    database.run(
        "CREATE TYPE mood AS ENUM ('happy')",
        "CREATE TYPE pair AS (n int, t text)",
        "CREATE DOMAIN tags AS text[]",
        f"CREATE TABLE t (id int, x {declared})",
        f"INSERT INTO t VALUES (1, NULL), (2, {literal})",
    )
    loads = runs(database, "t", SNAPSHOT, columns=("x",))
    assert loads.plan().schema == pa.schema([("x", kind)])
    ingestion = Ingestion("types", loads.source, ParquetSink(str(tmp_path)), "unused")
    journal = Journal.create(MemoryStore(), "types")
    reports = inprocess.run(OpenJob(ingestion, journal, database), database)
    assert reports["t"].status == "committed", reports["t"].detail
    (path,) = journal.read_dataset("t").paths
    read = pq.read_table(str(path))
    assert (read.schema.field("x").type, read["x"].to_pylist()) == (kind, [None, value])
    # PostgreSQL reads the text as the value that it had.
    if kind == pa.string():
        with psycopg.connect(database.url) as connection:
            connection.execute("SET IntervalStyle = iso_8601")
            same = connection.execute(
                f"SELECT CAST(%s AS {declared})::text = x::text FROM t WHERE id = 2".encode(), [value]
            )
            assert same.fetchone() == (True,)


@pytest.mark.parametrize("literal", ["'{{1,2},{3,4}}'", "'[0:1]={1,2}'"])
@pytest.mark.parametrize("declared", ["int[]", "numeric(5,2)[]"])
def test_an_array_that_is_no_list_is_named_and_can_be_cast(
    database: PostgresDatabase, declared: str, literal: str
) -> None:
    database.run(f"CREATE TABLE t (id int, x {declared})", f"INSERT INTO t VALUES (1, {literal})")
    loads = runs(database, "t", SNAPSHOT, columns=("x",))
    with pytest.raises(
        SourceError,
        match=r"column x: .* is not a list, by its dimensions or where it begins; read it by the cast 'string'",
    ):
        loads.run()
    assert len(with_options(loads, casts={"x": "string"}).rows()) == 1


@pytest.mark.parametrize(
    ("literal", "cast", "rounded"),
    [
        ("1.005::numeric", "decimal(10,2)", Decimal("1.01")),
        ("1.005::numeric(10,3)", "decimal(10,2)", Decimal("1.01")),
        ("0.125::float8", "decimal(10,2)", Decimal("0.13")),
        ("'1.005'::text", "decimal(10,2)", Decimal("1.01")),
        ("1.5::numeric", "int64", 2),
        ("2.5::float8", "int64", 2),
        ("0.12345678901234567891::numeric", "float64", 0.12345678901234568),
        ("9007199254740993::int8", "float64", 9007199254740992.0),
        ("'0.12345678901234567891'::text", "float64", 0.12345678901234568),
    ],
)
def test_a_cast_rounds_only_if_declared_so(database: PostgresDatabase, literal: str, cast: str, rounded: Any) -> None:
    database.run(f"CREATE TABLE t AS SELECT {literal} AS amount")
    loads = runs(database, "t", SNAPSHOT, casts={"amount": cast})
    with pytest.raises(SourceError, match=r"amount.*rounded "):
        loads.run()
    assert with_options(loads, casts={"amount": f"rounded {cast}"}).rows() == [(rounded,)]


@pytest.mark.parametrize(
    ("literal", "cast", "value"),
    [
        ("1.50000::numeric", "decimal(10,2)", Decimal("1.50")),
        ("0.1::float8", "decimal(10,2)", Decimal("0.10")),
        ("0.1::float4", "decimal(10,2)", Decimal("0.10")),
        ("' 1.5 '::text", "decimal(10,2)", Decimal("1.50")),
        ("12.50::money", "decimal(10,2)", Decimal("12.50")),
        ("7::int", "decimal(10,2)", Decimal("7.00")),
        ("2.0::numeric", "int64", 2),
        ("2.0::float8", "int64", 2),
        ("0.1::numeric", "float64", 0.1),
        ("9007199254740992::int8", "float64", 9007199254740992.0),
        ("'NaN'::numeric", "float64", float("nan")),
        ("NULL::numeric", "float64", None),
        ("NULL::numeric", "int64", None),
        ("NULL::float8", "decimal(5,2)", None),
    ],
)
def test_a_cast_that_changes_nothing_needs_no_word(
    database: PostgresDatabase, literal: str, cast: str, value: Any
) -> None:
    database.run(f"CREATE TABLE t AS SELECT {literal} AS x")
    ((read,),) = runs(database, "t", SNAPSHOT, casts={"x": cast}).rows()
    assert str(read) == str(value)


@pytest.mark.parametrize(
    ("literal", "cast", "value"),
    [
        ("1.25::numeric", "decimal(10,2)", Decimal("1.25")),
        ("'12'::text", "int64", 12),
        ("12::int", "float64", 12.0),
        ("'yes'::text", "bool", True),
        ("'t'::text", "bool", True),
        ("1::int", "bool", True),
        ("'2024-02-29 00:00'::timestamp", "date", date(2024, 2, 29)),
        ("'2024-02-28 23:00+00'::timestamptz", "date", date(2024, 2, 29)),
        ("' 29 Feb 2024 '::text", "date", date(2024, 2, 29)),
        ("'2024-02-29T01:02:03.1234560'::text", "timestamp", datetime(2024, 2, 29, 1, 2, 3, 123456)),  # noqa: DTZ001
        ("'2024-02-29 10:00+01'::text", "timestamp", datetime(2024, 2, 29, 10)),  # noqa: DTZ001
        ("'2024-02-29 10:00+02'::text", "timestamp[UTC]", datetime(2024, 2, 29, 8, tzinfo=UTC)),
        ("'2024-03-31 02:30'::text", "timestamp", datetime(2024, 3, 31, 2, 30)),  # noqa: DTZ001
        ("NULL::text", "timestamp", None),
        ("NULL::int", "bool", None),
        ("'7'::jsonb", "int64", 7),
        ("0.1::float4", "string", "0.1"),
        ("'2024-06-01 12:00'::timestamp", "timestamp[UTC]", datetime(2024, 6, 1, 10, tzinfo=UTC)),
        ("'2024-06-01 10:00+00'::timestamptz", "timestamp", datetime(2024, 6, 1, 12)),  # noqa: DTZ001
        ("'2024-06-01 10:00+00'::timestamptz", "string", "2024-06-01 12:00:00+02"),
        ("ARRAY[1,2]", "string", "{1,2}"),
        ("interval '1 day'", "string", "P1D"),
        ("'ab'::text", "binary", b"ab"),
    ],
)
def test_casts_are_of_the_database(database: PostgresDatabase, literal: str, cast: str, value: Any) -> None:
    database.run(f"CREATE TABLE t AS SELECT {literal} AS x")
    loads = runs(database, "t", SNAPSHOT, casts={"x": cast}, timezone="Europe/Berlin")
    assert loads.rows() == [(value,)]


@pytest.mark.parametrize(
    ("literal", "cast"),
    [
        ("7::int", "bool"),
        ("'2024-02-29 10:00'::timestamp", "date"),
        ("'2024-02-29 10:00+00'::timestamptz", "date"),
        ("'2024-02-29 10:00'::text", "date"),
        ("'2024-02-29 00:00+05'::text", "date"),
        ("'2024-02-29 10:00+05'::text", "timestamp"),
        ("'2024-02-29 10:00 America/New_York'::text", "timestamp"),
        ("'2024-02-29 10:00:00.12345678'::text", "timestamp"),
        ("'2024-02-29 10:00:00.12345678Z'::text", "timestamp[UTC]"),
        ("'2024-02-29 00:00:00.00000001'::text", "date"),
        ("'7.5'::jsonb", "int64"),
        ("'9007199254740993'::jsonb", "float64"),
    ],
)
def test_a_cast_that_would_lose_something_is_refused(database: PostgresDatabase, literal: str, cast: str) -> None:
    database.run(f"CREATE TABLE t AS SELECT {literal} AS x")
    with pytest.raises(SourceError, match=r"column x: .* would (lose|be changed|be rounded)"):
        runs(database, "t", SNAPSHOT, casts={"x": cast}, timezone="Europe/Berlin").run()


@pytest.mark.parametrize(
    ("literal", "casts", "value"),
    [
        ("point(0.30000000000000004, 1)", {}, "(0.30000000000000004,1)"),
        ("0.30000000000000004::float8", {"x": "string"}, "0.30000000000000004"),
        ("0.30000000000000004::float8", {"x": "decimal(38,20)"}, Decimal("0.30000000000000004")),
    ],
)
def test_all_digits_of_a_number_come_whatever_the_role_is_set_to(
    database: PostgresDatabase, literal: str, casts: dict[str, str], value: Any
) -> None:
    name = database.url.rpartition("/")[2].partition("?")[0]
    database.run(
        f'ALTER DATABASE "{name}" SET extra_float_digits = 0',
        f"CREATE TABLE t AS SELECT {literal} AS x",
    )
    assert runs(database, "t", SNAPSHOT, casts=casts).rows() == [(value,)]


def test_a_number_of_too_many_digits_is_refused(database: PostgresDatabase) -> None:
    database.run(f"CREATE TABLE t AS SELECT {2**128 + 1}::numeric AS x")
    with pytest.raises(SourceError, match=f"column 'x', row 1 of the unit has the value '{2**128 + 1}'"):
        runs(database, "t", SNAPSHOT, casts={"x": "decimal(20,2)"}).run()


def test_a_cast_that_fails_is_an_error(database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t AS SELECT 'many' AS x")
    with pytest.raises(SourceError, match=r"invalid input syntax for type bigint: \"many\""):
        runs(database, "t", SNAPSHOT, casts={"x": "int64"}).run()


@pytest.mark.parametrize(
    ("declared", "literal", "value"),
    [
        ("timestamp", "infinity", "a date or time: it is infinite"),
        ("timestamptz", "-infinity", "a date or time: it is infinite"),
        ("date", "infinity", "a date or time: it is infinite"),
        ("date", "10000-01-01", "a date or time: it is infinite, or outside the years 1 to 9999"),
        ("timestamp", "0044-03-15 BC", "a date or time: it is infinite, or outside"),
        ("numeric(5,2)", "NaN", r"'NaN': expected decimal128\(5, 2\)"),
    ],
)
def test_a_value_that_arrow_can_not_hold_is_named(
    database: PostgresDatabase, declared: str, literal: str, value: str
) -> None:
    database.run(
        f"CREATE TABLE t (id int PRIMARY KEY, x {declared})",
        f"INSERT INTO t SELECT n, CASE n WHEN 777 THEN CAST('{literal}' AS {declared}) END FROM generate_series(1, 1000) n",
    )
    loads = runs(database, "t", SNAPSHOT, primary_keys=("id",))
    with pytest.raises(SourceError, match=rf"column 'x', row 777 of the unit \(id=777\) has the value {value}"):
        loads.run()
    assert len(with_options(loads, where=(Predicate("id", "!=", 777),)).rows()) == 999


def test_an_infinite_date_in_an_array_is_an_error(database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t (x date[])", "INSERT INTO t VALUES ('{2024-01-01,infinity}')")
    with pytest.raises(SourceError, match=r"column 'x': it is infinite, or outside the years 1 to 9999"):
        runs(database, "t", SNAPSHOT).run()


def test_an_infinite_delta_value_is_an_error(database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t (at timestamptz)", "INSERT INTO t VALUES ('-infinity'), ('2026-01-01')")
    with pytest.raises(SourceError, match="a date or time is infinite"):
        runs(database, "t", delta="at").plan()


@pytest.mark.parametrize("declared", ["smallint", "integer", "bigint", "date", "timestamp", "timestamptz"])
def test_delta_columns(database: PostgresDatabase, declared: str) -> None:
    values = {"smallint": "32767", "integer": "2147483647"}
    literal = values.get(declared, "9000000000" if declared == "bigint" else "'2026-01-01'")
    database.run(f"CREATE TABLE t (x {declared} NOT NULL)", f"INSERT INTO t VALUES ({literal})")
    assert len(runs(database, "t", delta="x").rows()) == 1


def test_a_delta_column_may_be_one_by_its_cast(database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t (x text)", "INSERT INTO t VALUES ('2026-01-01 10:00'), ('2026-01-02 10:00')")
    loads = runs(database, "t", delta="x", casts={"x": "timestamp"})
    assert len(loads.rows(end=datetime(2026, 1, 2, tzinfo=UTC))) == 1
    assert len(loads.rows()) == 1


def test_an_index_serves_a_delta_column_that_is_cast(database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t (x int)", "INSERT INTO t VALUES (1)")
    assert runs(database, "t", delta="x", casts={"x": "string"}).rows() == [("1",)]


def test_instants_with_zones_of_the_session_and_the_server(database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t (at timestamptz)", "INSERT INTO t VALUES ('2026-03-01 00:30+01')")
    loads = runs(database, "t", delta="at", timezone="America/New_York")
    assert loads.plan().planned is not None
    assert str(loads.plan().units[0].low) == str(loads.plan().planned.low)  # type: ignore[union-attr]
    assert loads.rows() == [(datetime(2026, 2, 28, 23, 30, tzinfo=UTC),)]


def test_views_partitions_and_schemas(database: PostgresDatabase) -> None:
    database.run(
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.orders (id bigint, day date) PARTITION BY RANGE (id)",
        "CREATE TABLE sales.low PARTITION OF sales.orders FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE sales.high PARTITION OF sales.orders FOR VALUES FROM (10) TO (20)",
        "INSERT INTO sales.orders SELECT n, '2026-01-01' FROM generate_series(0, 19) n",
        "CREATE VIEW sales.ids AS SELECT id FROM sales.orders",
        "CREATE MATERIALIZED VIEW sales.copy AS SELECT id FROM sales.orders",
    )
    for table in ("orders", "ids", "copy"):
        loads = runs(database, table, namespace="sales", delta="id")
        assert loads.table.urn == f"sales.{table}"
        assert len(loads.rows()) == 20
    with pytest.raises(ConfigurationError, match="no table 'orders' in 'public'"):
        runs(database, "orders", delta="id").plan()


def test_a_table_that_may_not_be_read_is_named(database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t (id int)", "CREATE ROLE stranger LOGIN PASSWORD 'x'")
    stranger = PostgresDatabase(database.url.replace(database.url.split("@")[0], "postgresql://stranger:x"))
    try:
        with pytest.raises(SourceError, match="permission denied for table t"):
            runs(stranger, "t", SNAPSHOT).plan()
    finally:
        database.run("DROP ROLE stranger")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_uris_of_airflow(database: PostgresDatabase, scheme: str) -> None:
    database.run("CREATE TABLE t (id int)")
    uri = database.url.replace("postgresql", scheme, 1) + "?sslmode=prefer&__extra__=%7B%7D&cursor=dictcursor"
    assert runs(PostgresDatabase(uri), "t", SNAPSHOT).rows() == []
    assert libpq_uri(uri) == database.url + "?sslmode=prefer&connect_timeout=10"


def test_the_source_is_not_written_to(database: PostgresDatabase) -> None:
    """A function that writes can't be smuggled in by a view."""
    database.run(
        "CREATE TABLE log (n int)",
        "CREATE FUNCTION note() RETURNS int LANGUAGE sql AS 'INSERT INTO log VALUES (1) RETURNING n'",
        "CREATE VIEW v AS SELECT note() AS n",
    )
    with pytest.raises(SourceError, match="read-only transaction"):
        runs(database, "v", SNAPSHOT).run()


@pytest.mark.parametrize("kind", [ExtractKind.APPEND_ONLY, SNAPSHOT])
@pytest.mark.parametrize(("numbered", "most"), [(True, 1.05), (False, 2)])
def test_a_big_table_is_split_by_a_sample_of_its_pages(
    database: PostgresDatabase, kind: ExtractKind, numbered: bool, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, units = 40_000, 8
    database.run(
        "CREATE UNLOGGED TABLE t (id int NOT NULL, text text) WITH (fillfactor = 10)",
        f"INSERT INTO t SELECT n * n / 100, repeat('x', 90) FROM generate_series(1, {rows}) n",
        "CREATE INDEX ON t (id)",
    )
    if not numbered:  # pages of the same number are in several tables then
        database.run("CREATE TABLE below () INHERITS (t)")
    asked: list[str] = []
    execute = Postgres.execute

    def listed(self: Postgres, cursor: Any, statement: Statement) -> None:
        asked.append(statement.text)
        execute(self, cursor, statement)

    monkeypatch.setattr(Postgres, "execute", listed)
    loads = runs(database, "t", kind, delta="id", unit_bytes=1, max_units=units)
    plan = loads.plan()
    assert not [text for text in asked if "count(*)" in text]
    assert ["TABLESAMPLE" in text for text in asked if "generate_series" in text or "TABLESAMPLE" in text] == [
        not numbered
    ]
    assert len(plan.units) == units
    parts = loads.run()
    assert sum(part.table.num_rows for part in parts) == rows
    assert max(part.table.num_rows for part in parts) < most * rows / units


def test_pages_are_read_by_their_numbers_without_reading_the_others(database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t (id int)", "INSERT INTO t SELECT generate_series(1, 10000)")
    with psycopg.connect(database.url) as connection:
        (pages,) = connection.execute("SELECT pg_relation_size('t') / 8192").fetchone() or (0,)
        sampled = Postgres().sampled('"public"."t"', pages, pages, True)
        assert connection.execute(f"SELECT count(*) FROM {sampled}".encode()).fetchall() == [(10000,)]
        planned = connection.execute(f"EXPLAIN SELECT count(*) FROM {sampled}".encode()).fetchall()
    assert "Tid Range Scan on t" in str(planned)
    assert "Seq Scan" not in str(planned)


def test_a_big_table_of_which_only_columns_may_be_read_is_split_too(database: PostgresDatabase) -> None:
    database.run(
        "CREATE UNLOGGED TABLE t (id int NOT NULL, text text, secret text) WITH (fillfactor = 10)",
        "INSERT INTO t SELECT n, repeat('x', 90) FROM generate_series(1, 40000) n",
        "DROP ROLE IF EXISTS reader_of_columns",
        "CREATE ROLE reader_of_columns LOGIN PASSWORD 'columns'",
        "GRANT SELECT (id, text) ON t TO reader_of_columns",
    )
    parts = urlsplit(database.url)
    theirs = parts._replace(netloc=f"reader_of_columns:columns@{parts.netloc.rpartition('@')[2]}").geturl()
    try:
        loads = runs(PostgresDatabase(theirs), "t", delta="id", columns=("id", "text"), unit_bytes=1, max_units=4)
        assert [part.table.num_rows > 5000 for part in loads.run()] == [True] * 4
    finally:
        database.run("DROP TABLE t", "DROP ROLE reader_of_columns")


def test_a_big_table_of_which_few_rows_are_wanted_is_split_by_all_of_them(database: PostgresDatabase) -> None:
    database.run(
        "CREATE UNLOGGED TABLE t (id int NOT NULL, text text) WITH (fillfactor = 10)",
        "INSERT INTO t SELECT n, repeat('x', 90) FROM generate_series(1, 40000) n",
    )
    loads = runs(database, "t", delta="id", where=(Predicate("id", "<=", 12),), unit_bytes=1, max_units=4)
    assert [part.table.num_rows for part in loads.run()] == [3, 3, 3, 3]


READ = """
import sys
import time
from airflow_gobblin.rows.sources.base import PlanRequest, ReadRequest
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.testing import inprocess
from tests.peak_memory import peak_bytes
from tests.rows.sources.databases import FixedUri, NOW
table = SqlTable("t", ExtractKind.APPEND_ONLY, delta="id", unit_bytes=1 << 40)
source, connections = SqlSource("db", (table,)), FixedUri(sys.stdin.read())
plan = source.plan(source.datasets(connections)[0], {}, PlanRequest(NOW), connections)
(unit,) = plan.units
reader = source.read(unit, plan.schema, ReadRequest(), connections)
rows = largest = size = 0
for batch in reader:
    rows, largest, size = rows + batch.num_rows, max(largest, batch.nbytes), size + batch.nbytes
reader.close()
print(rows, reader.expected_rows, largest, size, peak_bytes())
"""


def test_a_large_range_is_streamed_in_bounded_memory(database: PostgresDatabase) -> None:
    database.run(
        "CREATE UNLOGGED TABLE t AS SELECT n AS id, repeat(md5(n::text), 12) AS text, n * 0.01::numeric(9,2) AS price_raw, "
        "(n * 0.01)::numeric(9,2) AS price FROM generate_series(1, 1000000) n",
        "ALTER TABLE t DROP COLUMN price_raw",
    )
    done = subprocess.run(
        [sys.executable, "-c", READ], input=database.url, capture_output=True, text=True, check=True, timeout=300
    )
    rows, expected, largest, size, memory = map(int, done.stdout.split())
    assert (rows, expected) == (1_000_000, 1_000_000)
    assert size > 390e6
    assert largest < 32e6
    assert memory < 300e6


def test_an_early_stop_waits_for_nothing(database: PostgresDatabase) -> None:
    database.run("CREATE UNLOGGED TABLE t AS SELECT n AS id, md5(n::text) AS text FROM generate_series(1, 500000) n")
    loads = runs(database, "t", SNAPSHOT)
    plan = loads.plan()
    reader = loads.source.read(plan.units[0], plan.schema, ReadRequest(), database)
    next(iter(reader))
    started = datetime.now(UTC)
    reader.close()
    assert datetime.now(UTC) - started < timedelta(seconds=1)
    database.run("DROP TABLE t")


def test_further_connections_of_a_process_are_one_session_each(database: PostgresDatabase) -> None:
    """For its first one the driver has another session, in which it reads all types that the server has."""
    uri = database.uri("db")
    with psycopg.connect(uri, dbname="postgres", autocommit=True) as watch:
        name = psycopg.conninfo.conninfo_to_dict(uri)["dbname"]

        def sessions() -> int:
            busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            deadline = time.monotonic() + 30
            while watch.execute(busy, [name]).fetchone() != (0,):
                assert time.monotonic() < deadline
            (count,) = watch.execute("SELECT sessions FROM pg_stat_database WHERE datname = %s", [name]).fetchone() or (
                0,
            )
            return int(count)

        Postgres().connect(uri, "UTC").close()
        before = sessions()
        for _ in range(3):
            Postgres().connect(uri, "UTC").close()

        assert sessions() == before + 3


def test_a_type_made_after_the_first_connection_is_read_like_any_other(database: PostgresDatabase) -> None:
    Postgres().connect(database.uri("db"), "UTC").close()
    database.run(
        "CREATE TYPE mood AS ENUM ('fine', 'bad')",
        "CREATE DOMAIN percent AS int CHECK (VALUE <= 100)",
        "CREATE TABLE t (id int, m mood, d percent, ms mood[], ds percent[])",
        "INSERT INTO t VALUES (1, 'fine', 7, '{bad,fine}', '{1,2}')",
    )

    (row,) = runs(database, "t", SNAPSHOT).rows()

    assert row == (1, "fine", 7, ["bad", "fine"], ["1", "2"])
