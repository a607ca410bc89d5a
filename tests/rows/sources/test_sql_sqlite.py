"""SqlSource on SQLite, which keeps any value in any column: the types come from the declarations, and are enforced."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.model.watermark import TimestampWatermark
from airflow_gobblin.model.work import ExtractKind, Limits
from airflow_gobblin.rows.sources.sql import Predicate
from airflow_gobblin.rows.sources.sql.sqlite import declared_type, sqlite_path
from tests.rows.sources.databases import FixedUri, SqliteDatabase, column, runs, with_options

SNAPSHOT = ExtractKind.SNAPSHOT_ONLY
NULLS = 2000
"""More leading NULLs than the driver looks at before it guesses."""


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "some.db")


def _table(database: SqliteDatabase, declared: str, *values: Any, nulls: int = NULLS) -> None:
    database.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INTEGER PRIMARY KEY, x {declared})")
    database.insert("t", [(n, None) for n in range(nulls)] + [(nulls + n, v) for n, v in enumerate(values)])


VALUES = [
    ("INTEGER", pa.int64(), [0, 2**63 - 1, -(2**63)], [0, 2**63 - 1, -(2**63)]),
    ("VARCHAR(20)", pa.string(), ["", "né", "0"], ["", "né", "0"]),
    ("REAL", pa.float64(), [1, 0.5, 2**60], [1.0, 0.5, float(2**60)]),
    ("BLOB", pa.binary(), [b"", b"\x00\xff"], [b"", b"\x00\xff"]),
    ("BOOLEAN", pa.bool_(), [True, False], [True, False]),
    ("DATE", pa.date32(), ["2024-02-29"], [date(2024, 2, 29)]),
    (
        "DATETIME",
        pa.timestamp("us"),
        ["2024-02-29", "2024-02-29T01:02", "2024-02-29 01:02:03", "2024-02-29 01:02:03.000004"],
        [datetime(2024, 2, 29, *rest) for rest in ((), (1, 2), (1, 2, 3), (1, 2, 3, 4))],  # noqa: DTZ001
    ),
    (
        "TIMESTAMPTZ",
        pa.timestamp("us", "UTC"),
        ["2024-02-29 01:00:00+02:00", "2024-02-29T01:00:00Z", "2024-02-29 01:00:00"],
        [datetime(2024, 2, d, h, tzinfo=UTC) for d, h in ((28, 23), (29, 1), (29, 1))],
    ),
    (
        "DECIMAL(20, 2)",
        pa.decimal128(20, 2),
        [1, 0.1 + 0.2, -12345678.91, 10**15],
        [Decimal(d) for d in ("1", "0.30", "-12345678.91", "1000000000000000")],
    ),
]


@pytest.mark.parametrize(("declared", "kind", "stored", "read"), VALUES)
@pytest.mark.parametrize("nulls", [0, NULLS])
def test_the_declared_type_holds_however_many_nulls_come_first(
    database: SqliteDatabase, declared: str, kind: pa.DataType, stored: list[Any], read: list[Any], nulls: int
) -> None:
    _table(database, declared, *stored, nulls=nulls)
    loads = runs(database, "t", SNAPSHOT, columns=("x",))
    assert loads.plan().schema == pa.schema([("x", kind)])
    (one,) = loads.run()
    assert one.table["x"].to_pylist() == [None] * nulls + read


@pytest.mark.parametrize(
    ("declared", "bad", "shown"),
    [
        ("INTEGER", "many", "'many'"),
        ("INTEGER", 1.5, "1.5"),
        ("INTEGER", b"\x01", "X'01'"),
        ("TEXT", b"\x01", "X'01'"),
        ("REAL", "many", "'many'"),
        ("BLOB", "text", "'text'"),
        ("BLOB", 5, "5"),
        ("BOOLEAN", 2, "2"),
        ("BOOLEAN", "yes", "'yes'"),
        ("DATE", 20240229, "20240229"),
        ("DATE", "2024-02-30", "'2024-02-30'"),
        ("DATETIME", 1709168523, "1709168523"),
        ("DATETIME", "2024-02-29 01:00:00Z", "'2024-02-29 01:00:00Z'"),
        ("DATETIME", "2024-02-29 01:00:00.1234567", "'2024-02-29 01:00:00.1234567'"),
        ("TIMESTAMPTZ", "NA", "'NA'"),
        ("DECIMAL(5,2)", "many", "'many'"),
        ("DECIMAL(5,2)", 12345, "'12345'"),
        ("DECIMAL(5,2)", b"\x01", "X'01'"),
        ("DECIMAL(5,2)", 1.239, "1.239"),
        ("DECIMAL(20,2)", 1e300, "'1000000"),
    ],
)
@pytest.mark.parametrize("nulls", [0, NULLS])
def test_a_value_of_another_type_is_named_with_its_row(
    database: SqliteDatabase, declared: str, bad: Any, shown: str, nulls: int
) -> None:
    _table(database, declared, None, bad, nulls=nulls)
    loads = runs(database, "t", SNAPSHOT, primary_keys=("id",))
    with pytest.raises(SourceError) as raised:
        loads.run()
    message = str(raised.value)
    assert f"column 'x', row {nulls + 2} of the unit (id={nulls + 1}) has the value {shown}" in message
    assert "`casts`" in message
    assert len(with_options(loads, where=(Predicate("id", "<", nulls + 1),)).rows()) == nulls + 1


@pytest.mark.parametrize(
    ("cast", "stored", "read"),
    [
        ("int64", [5, "5", 5.0, "-7"], [5, 5, 5, -7]),
        ("float64", [1, 0.1, "2.5", "1e3"], [1.0, 0.1, 2.5, 1000.0]),
        ("float64", [2**53, "0.30000000000000004", " 1.50E-3 ", "-0.0"], [2.0**53, 0.1 + 0.2, 0.0015, 0.0]),
        ("string", [5, "x", 0.5, 0.1 + 0.2], ["5", "x", "0.5", "0.30000000000000004"]),
        ("bool", [1, 0, "true", "False", "1"], [True, False, True, False, True]),
        ("date", ["2024-02-29"], [date(2024, 2, 29)]),
        ("timestamp", ["2024-02-29 01:00"], [datetime(2024, 2, 29, 1)]),  # noqa: DTZ001
        ("decimal(6,3)", [1, "1.125", 0.5], [Decimal("1.000"), Decimal("1.125"), Decimal("0.500")]),
        ("decimal(20,2)", ["123456789012345678.12", "1e3"], [Decimal("123456789012345678.12"), Decimal("1000.00")]),
        ("decimal(38,2)", [f"-{'9' * 36}.{'9' * 2}", f"{'0' * 40}1"], [Decimal(f"-{'9' * 36}.99"), Decimal("1.00")]),
        ("binary", ["ab", b"\x00"], [b"ab", b"\x00"]),
        ("decimal(10,2)", [0.1, 7, "1.500"], [Decimal("0.10"), Decimal("7.00"), Decimal("1.50")]),
        ("rounded decimal(10,2)", [1.236, 7, "1.236"], [Decimal("1.24"), Decimal("7.00"), Decimal("1.24")]),
        (
            "rounded decimal(20,2)",
            ["123456789012345678.126", 2**53 + 1],
            [Decimal("123456789012345678.13"), Decimal(2**53 + 1)],
        ),
        ("rounded decimal(10,2)", [1.005, "-1.005", "1e-30"], [Decimal("1.01"), Decimal("-1.01"), Decimal("0.00")]),
        ("rounded int64", [1.6, 7, "1.6"], [2, 7, 2]),
        ("rounded int64", [2**53 + 1, "9007199254740992.5", -2.5], [2**53 + 1, 2**53 + 1, -3]),
        ("rounded float64", [1.5, 7, "1.5"], [1.5, 7.0, 1.5]),
    ],
)
@pytest.mark.parametrize("nulls", [0, NULLS])
def test_casts_take_every_spelling_that_loses_nothing(
    database: SqliteDatabase, cast: str, stored: list[Any], read: list[Any], nulls: int
) -> None:
    _table(database, "", *stored, nulls=nulls)
    loads = runs(database, "t", SNAPSHOT, columns=("x",), casts={"x": cast})
    assert [row[0] for row in loads.rows()] == [None] * nulls + read


@pytest.mark.parametrize(
    ("cast", "bad"),
    [
        ("int64", "5.5"),
        ("int64", 5.5),
        ("int64", "NA"),
        ("int64", "99999999999999999999"),
        ("int64", b"5"),
        ("float64", "NA"),
        ("float64", "0x10"),
        ("float64", 2**53 + 1),
        ("float64", "9007199254740993"),
        ("float64", "0.12345678901234567891"),
        ("float64", "1e400"),
        ("float64", "1e-400"),
        ("string", b"x"),
        ("bool", 7),
        ("date", 5),
        ("decimal(6,3)", "1.0001"),
        ("decimal(6,3)", 1.0001),
        ("decimal(20,2)", "340282366920938463463374607431768211457"),  # 2 ** 128 + 1
        ("decimal(20,2)", "1e-41"),
        ("rounded decimal(6,3)", "NA"),
        ("rounded decimal(6,3)", 1e300),
        ("rounded int64", "NA"),
        ("rounded int64", 1e19),
        ("rounded float64", b"1"),
        ("binary", 5),
    ],
)
def test_casts_refuse_the_rest(database: SqliteDatabase, cast: str, bad: Any) -> None:
    _table(database, "", bad, nulls=0)
    with pytest.raises(SourceError, match="column 'x', row 1 of the unit"):
        runs(database, "t", SNAPSHOT, casts={"x": cast}).run()


@pytest.mark.parametrize("declared", ["", "NUMERIC", "DECIMAL", "DECIMAL(50,2)", "GEOMETRY"])
def test_a_declaration_that_names_no_type_is_refused_by_name(database: SqliteDatabase, declared: str) -> None:
    _table(database, declared, 1, nulls=0)
    loads = runs(database, "t", SNAPSHOT)
    with pytest.raises(ConfigurationError, match=r"no type for column 'x' .*casts=\{'x': 'string'\}"):
        loads.plan()
    assert with_options(loads, casts={"x": "int64"}).rows() == [(0, 1)]


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("int", pa.int64()),
        ("UNSIGNED BIG INT", pa.int64()),
        ("NATIVE CHARACTER(70)", pa.string()),
        ("clob", pa.string()),
        ("Double Precision", pa.float64()),
        ("float", pa.float64()),
        ("bool", pa.bool_()),
        ("timestamp with time zone", pa.timestamp("us", "UTC")),
        ("timestamp(6)", pa.timestamp("us")),
        ("numeric(9)", pa.decimal128(9, 0)),
        ("Decimal( 9 , 3 )", pa.decimal128(9, 3)),
        ("json", pa.string()),
        ("uuid", pa.string()),
    ],
)
def test_declared_types(declared: str, kind: pa.DataType) -> None:
    assert declared_type(declared) == kind


SPELLINGS = [
    "2026-01-02",
    "2026-01-02T00:00:01",
    "2026-01-02 00:00:02.5",
    "2026-01-02T00:00:02.500001",
    "2026-01-02 10:00",
]


def test_timestamps_of_every_spelling_are_in_one_order(database: SqliteDatabase) -> None:
    _table(database, "DATETIME", *SPELLINGS, nulls=0)
    loads = runs(database, "t", delta="x", unit_bytes=10)
    assert len(loads.plan().units) >= 4  # they are split by milliseconds
    for ids in ([0, 1], [2], [3], [4]):
        rows = 2 if len(ids) == 2 else 1
        (one,) = loads.run(limits=Limits(rows=rows))
        assert sorted(one.table["id"].to_pylist()) == ids
        assert one.expected_rows == rows


def test_timestamps_with_their_zone_are_in_one_order(database: SqliteDatabase) -> None:
    stored = ["2026-01-02 01:30:00+02:00", "2026-01-01T23:45:00Z", "2026-01-01 15:50:00.5-08:00", "2026-01-02 00:00:00"]
    _table(database, "TIMESTAMPTZ", *stored, nulls=0)
    loads = runs(database, "t", delta="x")
    highs = []
    for expected in range(4):
        (one,) = loads.run(limits=Limits(rows=1))
        assert one.table["id"].to_pylist() == [expected]
        highs.append(one.actual_high)
    assert highs[1] == TimestampWatermark(datetime(2026, 1, 1, 23, 50, 0, 500_000, tzinfo=UTC))


def test_a_zoned_delta_needs_its_zone_where_the_table_is_not_in_utc(database: SqliteDatabase) -> None:
    _table(database, "TIMESTAMPTZ", "2026-01-02 01:30:00+02:00", "2026-01-02 01:30:00", nulls=0)
    loads = runs(database, "t", delta="x", timezone="Europe/Berlin")
    with pytest.raises(SourceError, match="0 rows are NULL, 1 hold something else, such as '2026-01-02 01:30:00'"):
        loads.plan()
    assert len(runs(database, "t", SNAPSHOT, timezone="Europe/Berlin").rows()) == 2


def test_wall_times_become_instants_in_the_zone_of_the_table(database: SqliteDatabase) -> None:
    _table(database, "DATETIME", "2026-06-01 12:00:00", nulls=0)
    loads = runs(database, "t", SNAPSHOT, columns=("x",), casts={"x": "timestamp[UTC]"}, timezone="Europe/Berlin")
    assert loads.rows() == [(datetime(2026, 6, 1, 10, tzinfo=UTC),)]


@pytest.mark.parametrize(
    ("declared", "bad"),
    [
        ("DATETIME", "yesterday"),
        ("DATETIME", "2026-01-02 25"),
        ("DATETIME", "2026-01-02 10:00:00Z"),
        ("DATETIME", 1767312000),
        ("DATE", "2026-02-30"),
        ("DATE", "2026-1-2"),
        ("INTEGER", "many"),
        ("INTEGER", 1.5),
    ],
)
def test_a_delta_value_without_a_position_is_an_error(database: SqliteDatabase, declared: str, bad: Any) -> None:
    _table(database, declared, bad, nulls=0)
    with pytest.raises(SourceError, match=r"delta column 'x', expected as .*, 0 rows are NULL, 1 hold something else"):
        runs(database, "t", delta="x").plan()


def test_a_delta_day_that_never_was_is_an_error(database: SqliteDatabase) -> None:
    _table(database, "DATETIME", "2026-02-30 10:00:00", nulls=0)
    with pytest.raises(SourceError, match="'2026-02-30 10:00:00"):
        runs(database, "t", delta="x").run()


def test_an_index_answers_a_range_of_timestamps(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    _table(database, "DATETIME", *SPELLINGS, nulls=0)
    database.run("CREATE INDEX by_x ON t (x)")
    loads = runs(database, "t", delta="x")
    plan = loads.plan()
    texts: list[tuple[str, list[Any]]] = []
    from airflow_gobblin.rows.sources.sql import sqlite

    plain = sqlite.Sqlite.execute

    def noted(self: sqlite.Sqlite, cursor: Any, statement: Any) -> None:
        texts.append((statement.text, list(statement.values)))
        plain(self, cursor, statement)

    monkeypatch.setattr(sqlite.Sqlite, "execute", noted)
    loads.read(plan.units[0], plan.schema)
    text, values = next((t, v) for t, v in texts if "UNION ALL" in t)
    with closing(sqlite3.connect(sqlite_path(database.uri("db")))) as connection:
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    assert any("INDEX by_x (x>? AND x<?)" in step for step in steps), steps


def test_text_that_is_no_utf8_is_named(database: SqliteDatabase) -> None:
    _table(database, "TEXT", nulls=1)
    database.run("UPDATE t SET x = CAST(X'ff' AS TEXT)")
    with pytest.raises(SourceError, match="column 'x'"):
        runs(database, "t", SNAPSHOT).run()


def test_a_row_like_the_sentinel_is_read(database: SqliteDatabase) -> None:
    _table(database, "TEXT", "", "", nulls=0)
    assert sorted(runs(database, "t", SNAPSHOT).rows()) == [(0, ""), (1, "")]


def test_views_generated_columns_and_tables_without_rowid(database: SqliteDatabase) -> None:
    database.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, twice INTEGER GENERATED ALWAYS AS (id * 2)) WITHOUT ROWID",
        "INSERT INTO t VALUES (1), (2)",
        "CREATE VIEW v AS SELECT id, twice FROM t",
    )
    for table in ("t", "v"):
        assert sorted(runs(database, table, delta="id").rows()) == [(1, 2), (2, 4)]


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database, but a text that is long enough to be looked at as one" * 20)
    with pytest.raises(SourceError, match="not a database"):
        runs(SqliteDatabase(path), "t", SNAPSHOT).plan()


@pytest.mark.parametrize(
    ("path", "why"), [("none.db", "No such file or directory"), ("text/none.db", "Not a directory")]
)
def test_a_file_that_is_not_there_is_named_and_not_created(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "text").write_text("no folder")
    expected = rf"connection 'db' can't be opened: .*{why}.*none\.db.*Check the path in connection 'db'"
    with pytest.raises(SourceError, match=expected):
        runs(SqliteDatabase(tmp_path / path), "t", SNAPSHOT).plan()
    assert [one.name for one in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite:////{}", "sqlite://{quoted}", "sqlite:///{}?mode=rw"])
def test_uris_of_every_spelling(database: SqliteDatabase, form: str) -> None:
    _table(database, "TEXT", "a", nulls=0)
    path = sqlite_path(database.uri("db"))
    uri = form.format(path.lstrip("/"), quoted=path.replace("/", "%2F"))
    assert column(runs(FixedUri(uri), "t", SNAPSHOT).run(), "x") == ["a"]
