"""SqlSource on real databases: what holds for PostgreSQL and SQLite alike."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind, Limits, WorkUnit
from airflow_gobblin.rows.sources.base import ReadRequest
from airflow_gobblin.rows.sources.sql import Predicate, SqlSource, SqlTable
from airflow_gobblin.rows.sources.sql.database import Database as source_database
from airflow_gobblin.rows.sources.sql.dialects import Session, Statement
from airflow_gobblin.rows.sources.sql.scan import open_scan
from tests.rows.sources.databases import (
    DATABASES,
    NOW,
    Database,
    FixedUri,
    PostgresDatabase,
    SqliteDatabase,
    column,
    empty_database,
    runs,
    with_options,
)

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
CLOCKS = {"sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')", "postgres": "clock_timestamp() AT TIME ZONE 'UTC'"}


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return empty_database(request, tmp_path, "it's 100% a database?.db")


@pytest.fixture
def events(database: Database) -> Database:
    """A table of 100 events, ten at a time, five minutes between."""
    database.run("CREATE TABLE events (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL, name TEXT)")
    database.insert("events", [(n, _event_time(n), f"event {n}") for n in range(100)])
    return database


def _event_time(n: int) -> str:
    return str(datetime(2026, 3, 1, 8, tzinfo=UTC) + n // 10 * 5 * MINUTE)[:19]


def at(text: str) -> TimestampWatermark:
    return TimestampWatermark(datetime.fromisoformat(text).replace(tzinfo=UTC))


# ranges


def test_a_first_load_starts_at_the_least_value_and_ends_the_lag_before_now(events: Database) -> None:
    loads = runs(events, "events", delta="at")
    plan = loads.plan()
    assert plan.planned == Range(at("2026-03-01 08:00"), at("2026-03-01 11:55"))
    assert plan.schema == pa.schema(
        [("id", plan.schema.field("id").type), ("at", pa.timestamp("us")), ("name", pa.string())]
    )
    (one,) = loads.run()
    assert one.unit.id == "u0000"
    assert one.table.num_rows == one.expected_rows == 100
    assert one.actual_high == at("2026-03-01 11:55")
    assert one.unit.weight >= 100 * 10


def test_a_first_load_looks_at_the_least_value_once(events: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index, each look reads the whole table."""
    looked: list[str] = []
    rows = Session.rows

    def logged(session: Session, statement: Statement) -> list[tuple[Any, ...]]:
        looked.append(statement.text)
        return rows(session, statement)

    monkeypatch.setattr(Session, "rows", logged)
    assert runs(events, "events", delta="at").plan().planned is not None
    assert any(text.startswith("SELECT count(*), min(") for text in looked), looked
    assert not any(text.startswith("SELECT min(") for text in looked), looked


def test_the_next_run_takes_what_is_new_and_nothing_twice(events: Database) -> None:
    loads = runs(events, "events", delta="at")
    loads.run(now=datetime(2026, 3, 1, 8, 20, tzinfo=UTC))  # up to 8:15, where ten rows lie, which are not taken
    assert loads.coverage.edge == at("2026-03-01 08:15")
    assert sorted(column(loads.run(), "id")) == list(range(30, 100))
    assert loads.run() == []


def test_a_scheduled_run_is_bounded_by_its_interval(events: Database) -> None:
    loads = runs(events, "events", delta="at")
    end = datetime(2026, 3, 1, 8, 10, tzinfo=UTC)
    assert sorted(column(loads.run(end=end), "id")) == list(range(20))
    assert loads.coverage.edge == TimestampWatermark(end)


def test_an_idle_dataset_gives_no_units(events: Database) -> None:
    loads = runs(events, "events", delta="at")
    loads.run()
    assert loads.plan(now=NOW + DAY).units == ()
    events.insert("events", [(100, "2026-03-02 00:00:00", None)])
    assert column(loads.run(now=NOW + DAY), "id") == [100]


def test_an_empty_table_gives_no_units(database: Database) -> None:
    database.run("CREATE TABLE events (id INTEGER, at TIMESTAMP)")
    assert runs(database, "events", delta="at").plan().units == ()
    assert runs(database, "events", delta="id").plan().units == ()
    assert runs(database, "events", delta="id", start=5).plan().units == ()


def test_holes_are_planned_first_and_covered_even_where_they_are_empty(events: Database) -> None:
    loads = runs(events, "events", delta="id")
    loads.coverage = (
        Coverage(LongWatermark(-10))
        .add(Range(LongWatermark(0), LongWatermark(40)))
        .add(Range(LongWatermark(50), LongWatermark(90)))
    )
    given = loads.run()
    assert [(one.unit.id, one.unit.low, one.table.num_rows) for one in given] == [
        ("u0000", LongWatermark(-10), 0),
        ("u0001", LongWatermark(40), 10),
        ("u0002", LongWatermark(90), 10),
    ]
    assert loads.coverage.edge == LongWatermark(100)


def test_integer_keys_take_their_lag_in_key_units(events: Database) -> None:
    loads = runs(events, "events", delta="id", lag=15)
    assert sorted(column(loads.run(), "id")) == list(range(85))
    assert loads.coverage.edge == LongWatermark(85)
    events.insert("events", [(100, _event_time(0), None)])
    assert column(loads.run(), "id") == [85]


def test_the_greatest_integer_is_read(database: Database) -> None:
    database.run("CREATE TABLE t (id BIGINT)")
    database.insert("t", [(2**63 - 1,), (-(2**63),)])
    assert sorted(runs(database, "t", delta="id").rows()) == [(-(2**63),), (2**63 - 1,)]


@pytest.mark.parametrize(
    ("delta", "start", "first"),
    [
        ("id", 30, 30),
        ("id", LongWatermark(30), 30),
        ("at", datetime(2026, 3, 1, 8, 10), 20),  # noqa: DTZ001 - wall time, in the table's zone
        ("at", datetime(2026, 3, 1, 8, 10, tzinfo=UTC), 20),
        ("at", date(2026, 3, 1), 0),
    ],
)
def test_a_first_load_starts_at_the_start_value(events: Database, delta: str, start: Any, first: int) -> None:
    loads = runs(events, "events", delta=delta, start=start)
    assert min(column(loads.run(), "id")) == first
    assert loads.run() == []


def test_a_day_is_read_when_it_is_over(database: Database) -> None:
    database.run("CREATE TABLE sales (day DATE, amount INTEGER)")
    database.insert("sales", [(f"2026-02-{day}", day) for day in (26, 27, 28)] + [("2026-03-01", 1)])
    loads = runs(database, "sales", delta="day")
    assert sorted(column(loads.run(now=NOW), "amount")) == [26, 27, 28]
    assert loads.coverage.edge == at("2026-03-01")
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    assert loads.run(now=midnight + MINUTE) == []
    assert column(loads.run(now=midnight + 6 * MINUTE), "day") == [date(2026, 3, 1)]


def test_a_day_is_over_in_the_zone_of_the_table(database: Database) -> None:
    database.run("CREATE TABLE sales (day DATE)")
    database.insert("sales", [("2026-02-28",), ("2026-03-01",)])
    tokyo, honolulu = (runs(database, "sales", delta="day", timezone=z) for z in ("Asia/Tokyo", "Pacific/Honolulu"))
    late, early = datetime(2026, 3, 1, 15, 6, tzinfo=UTC), datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert len(tokyo.rows(now=late)) == 2
    assert honolulu.rows(now=early) == []


def test_wall_time_is_read_in_the_zone_of_the_table(database: Database) -> None:
    """In Berlin, 2:30 of 2025-10-26 comes twice: nothing of that hour is read before it is over for good."""
    database.run("CREATE TABLE t (at TIMESTAMP)")
    times = ["2025-10-26 01:59:59", "2025-10-26 02:30:00", "2025-10-26 03:00:00", "2025-03-30 02:30:00"]
    database.insert("t", [(text,) for text in times])
    loads = runs(database, "t", delta="at", timezone="Europe/Berlin", lag=timedelta(0))

    def texts(utc: str) -> list[str]:
        return sorted(str(row[0]) for row in loads.rows(now=datetime.fromisoformat(utc).replace(tzinfo=UTC)))

    assert texts("2025-10-26 00:45") == [times[3], times[0]]
    assert texts("2025-10-26 01:15") == []
    database.insert("t", [("2025-10-26 02:20:00",)])
    assert texts("2025-10-26 01:45") == ["2025-10-26 02:20:00", times[1]]
    assert texts("2025-10-26 02:00:01") == [times[2]]


def test_microseconds_count(database: Database) -> None:
    database.run("CREATE TABLE t (at TIMESTAMP)")
    database.insert("t", [(f"2026-03-01 08:00:00.{n:06}",) for n in (0, 1, 2, 999_999)])
    loads = runs(database, "t", delta="at")
    low, high = at("2026-03-01 08:00:00.000001"), at("2026-03-01 08:00:00.999999")
    given = loads.read(WorkUnit("u0", "t", low, high), loads.plan().schema)
    assert [t.microsecond for t in given.table["at"].to_pylist()] == [1, 2]


def test_a_delta_column_of_another_kind_than_before_is_refused(events: Database) -> None:
    loads = runs(events, "events", delta="at")
    loads.run()
    with pytest.raises(
        ConfigurationError, match="positions are of kind 'timestamp', and its delta column gives 'long'"
    ):
        with_options(loads, delta="id").plan()


@pytest.mark.parametrize("ahead", [timedelta(minutes=-10), timedelta(minutes=10)])
def test_a_run_ends_by_the_clock_of_the_database_and_not_of_the_worker(database: Database, ahead: timedelta) -> None:
    """The database gives rows their times: a clock that is ahead would miss those that are yet to come."""
    database.run(
        "CREATE TABLE visits (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL)",
        "INSERT INTO visits VALUES (1, '2026-01-01')",
    )
    loads = replace(runs(database, "visits", delta="at", lag=timedelta(0)), real_clock=True)
    given = loads.run(now=datetime.now(UTC) + ahead)
    database.run(f"INSERT INTO visits VALUES (2, {CLOCKS[database.kind]})")
    for _ in range(10):  # the clock goes on
        given += loads.run(now=datetime.now(UTC) + ahead)
    assert column(given, "id") == [1, 2]
    assert isinstance(loads.coverage.end, TimestampWatermark)
    assert abs(datetime.now(UTC) - loads.coverage.end.value) < MINUTE


def test_an_interval_that_ends_in_the_databases_future_ends_the_lag_before_its_now(database: Database) -> None:
    database.run(
        "CREATE TABLE visits (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL)",
        "INSERT INTO visits VALUES (1, '2026-01-01')",
    )
    loads = replace(runs(database, "visits", delta="at", lag=timedelta(minutes=3)), real_clock=True)
    tomorrow = datetime.now(UTC) + DAY
    planned = loads.plan(now=tomorrow, end=tomorrow).planned
    assert planned is not None
    assert isinstance(planned.high, TimestampWatermark)
    assert 3 * MINUTE <= datetime.now(UTC) - planned.high.value < 4 * MINUTE


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_the_clock_is_the_same_whatever_the_zone_of_the_table(events: Database, zone: str) -> None:
    table = SqlTable("events", ExtractKind.APPEND_ONLY, delta="at", timezone=zone)
    with source_database("db", events).open("plan", table) as session:
        assert abs(datetime.now(UTC) - open_scan(session, table).now) < MINUTE


def test_an_unknown_high_is_the_end_as_of_reading(events: Database) -> None:
    loads = runs(events, "events", delta="id")
    unit = WorkUnit("u0", "events", LongWatermark(95))
    given = loads.read(unit, loads.plan().schema)
    assert (given.table.num_rows, given.actual_high) == (5, LongWatermark(100))
    beyond = loads.read(WorkUnit("u0", "events", LongWatermark(200)), loads.plan().schema)
    assert (beyond.table.num_rows, beyond.actual_high) == (0, LongWatermark(200))


# splitting


def test_a_range_is_split_into_units_of_about_one_size(database: Database) -> None:
    database.run("CREATE TABLE t (id INTEGER, text VARCHAR(100))")
    skewed = [(n if n < 1000 else 10**9 + n // 2, "x" * 50) for n in range(2000)]
    database.insert("t", skewed)
    loads = runs(database, "t", delta="id", unit_bytes=15_000, max_units=8)
    plan = loads.plan()
    assert 5 <= len(plan.units) <= 8
    assert all(unit.weight <= 1.6 * sum(u.weight for u in plan.units) / len(plan.units) for unit in plan.units)
    assert plan.planned == Range(LongWatermark(0), LongWatermark(10**9 + 1000))
    given = [loads.read(unit, plan.schema) for unit in plan.units]
    assert [one.expected_rows for one in given] == [one.table.num_rows for one in given]
    assert Counter(column(given, "id")) == Counter(row[0] for row in skewed)
    assert [u.low for u in plan.units[1:]] == [u.expected_high for u in plan.units[:-1]]


def test_there_are_at_the_most_as_many_units_as_distinct_values(database: Database) -> None:
    database.run("CREATE TABLE t (id INTEGER)")
    database.insert("t", [(n % 3,) for n in range(300)])
    assert len(runs(database, "t", delta="id", unit_bytes=1).plan().units) == 3


def test_limits_keep_a_range_whole(events: Database) -> None:
    loads = runs(events, "events", delta="id", unit_bytes=100)
    assert len(loads.plan().units) > 1
    assert len(loads.plan(limits=Limits(rows=7)).units) == 1


TIES = given(
    values=st.lists(st.integers(-30, 30) | st.integers(-(2**62), 2**62), min_size=1, max_size=40),
    later=st.lists(st.integers(1, 30), max_size=10),
    unit_bytes=st.integers(1, 400),
    limit=st.none() | st.integers(1, 15),
)


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@TIES
def test_every_row_is_read_once_whatever_the_ties_splits_and_limits(
    tmp_path: Path, values: list[int], later: list[int], unit_bytes: int, limit: int | None
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        _read_all(SqliteDatabase(Path(folder) / "db"), values, later, unit_bytes, limit)


@settings(max_examples=10)
@TIES
def test_every_row_of_postgres_is_read_once(
    postgres: str, values: list[int], later: list[int], unit_bytes: int, limit: int | None
) -> None:
    _read_all(PostgresDatabase(postgres), values, later, unit_bytes, limit)


def _read_all(database: Database, values: list[int], later: list[int], unit_bytes: int, limit: int | None) -> None:
    database.run("DROP TABLE IF EXISTS ties", "CREATE TABLE ties (k BIGINT, n INTEGER)")
    loads = runs(database, "ties", delta="k", unit_bytes=unit_bytes)
    rows, limits = [], Limits(rows=limit) if limit else None
    first = [(k, n) for n, k in enumerate(values)]
    second = [(max(values) + k, 1000 + n) for n, k in enumerate(later)]
    for new in (first, second):
        if new:
            database.insert("ties", new)
        rows += loads.all_rows(limits)
    assert sorted(rows) == sorted(first + second)


# limits


def test_a_limit_of_rows_cuts_between_distinct_positions(events: Database) -> None:
    loads = runs(events, "events", delta="at")
    seen = []
    for rows, high in ((25, "08:10"), (25, "08:20")):
        (one,) = loads.run(limits=Limits(rows=rows))
        assert one.table.num_rows == one.expected_rows == 20
        assert one.actual_high == at(f"2026-03-01 {high}")
        seen += one.table["id"].to_pylist()
    (one,) = loads.run(limits=Limits(rows=3))  # ten rows share the next position: it is read whole
    assert one.table.num_rows == 10
    seen += one.table["id"].to_pylist()
    assert sorted(seen) == list(range(50))
    (one,) = loads.run(limits=Limits(rows=50))
    assert one.actual_high == at("2026-03-01 11:55")


def test_a_limit_of_bytes_stops_in_order(database: Database) -> None:
    database.run("CREATE TABLE t (at TIMESTAMP, text VARCHAR(200))")
    times = [f"2026-03-01 0{n % 7}:{n % 50:02}:00" for n in range(4000)]
    database.insert("t", [(time, "x" * 100) for time in times])
    loads = runs(database, "t", delta="at")
    seen: list[datetime] = []
    while True:
        given = loads.run(limits=Limits(bytes=100_000))
        if not given:
            break
        (one,) = given
        rows = one.table["at"].to_pylist()
        assert rows == sorted(rows)
        assert not seen or seen[-1] < rows[0]
        seen += rows
        short = one.actual_high != one.unit.expected_high
        assert (one.expected_rows is None) is short
        assert one.table.nbytes <= 110_000
    assert [str(t) for t in seen] == sorted(times)


def test_a_limit_of_seconds_stops_after_whole_positions(database: Database) -> None:
    database.run("CREATE TABLE t (k INTEGER, text VARCHAR(200))")
    database.insert("t", [(n // 1500, "x") for n in range(6000)])
    loads = runs(database, "t", delta="k")
    (one,) = loads.run(limits=Limits(seconds=1e-9))
    assert (set(one.table["k"].to_pylist()), one.table.num_rows) == ({0}, 1500)
    assert one.actual_high == LongWatermark(1)
    assert sum(g.table.num_rows for g in loads.run(limits=Limits(seconds=1000))) == 4500


# extract kinds


def test_a_snapshot_takes_the_whole_table_each_time(events: Database) -> None:
    loads = runs(events, "events", ExtractKind.SNAPSHOT_ONLY)
    plan = loads.plan()
    (unit,) = plan.units
    assert (unit.low, unit.expected_high, plan.planned) == (None, None, None)
    for _ in range(2):
        (one,) = loads.run()
        assert (one.table.num_rows, one.expected_rows, one.actual_high) == (100, 100, None)
    events.run("DELETE FROM events")
    (one,) = loads.run()
    assert one.table.num_rows == 0


@pytest.mark.parametrize("options", [{"delta": "id"}, {"primary_keys": ("id",)}])
def test_a_big_snapshot_is_split_by_an_integer(events: Database, options: dict[str, Any]) -> None:
    loads = runs(events, "events", ExtractKind.SNAPSHOT_ONLY, unit_bytes=500, **options)
    plan = loads.plan()
    assert len(plan.units) > 3 if events.kind == "postgres" else len(plan.units) == 1  # SQLite has no snapshot to share
    assert plan.planned is None
    assert sorted(column(loads.run(), "id")) == list(range(100))


def test_a_snapshot_with_a_null_to_split_by_stays_whole(database: Database) -> None:
    database.run("CREATE TABLE t (id INTEGER)")
    database.insert("t", [(n,) for n in range(100)] + [(None,)])
    loads = runs(database, "t", ExtractKind.SNAPSHOT_ONLY, delta="id", unit_bytes=10)
    (one,) = loads.run()
    assert one.table.num_rows == 101


def test_a_snapshot_takes_no_limits(events: Database) -> None:
    with pytest.raises(ConfigurationError, match="whole or not at all"):
        runs(events, "events", ExtractKind.SNAPSHOT_ONLY).plan(limits=Limits(rows=1))


def test_snapshot_append_takes_everything_then_the_delta(events: Database) -> None:
    loads = runs(events, "events", ExtractKind.SNAPSHOT_APPEND, delta="id")
    with pytest.raises(ConfigurationError, match="first load takes everything"):
        loads.plan(limits=Limits(rows=1))
    assert len(loads.rows()) == 100
    events.insert("events", [(n, _event_time(0), None) for n in (100, 101)])
    assert column(loads.run(limits=Limits(rows=1)), "id") == [100]
    assert column(loads.run(), "id") == [101]


# columns, casts, predicates


def test_columns_are_chosen_ordered_and_cast(events: Database) -> None:
    loads = runs(events, "events", delta="at", columns=("name", "id"), casts={"id": "string"})
    (one,) = loads.run(limits=Limits(bytes=10**6))
    assert one.table.schema == pa.schema([("name", pa.string()), ("id", pa.string())])
    assert sorted(one.table["id"].to_pylist()) == sorted(str(n) for n in range(100))


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Predicate("id", "=", 7), {7}),
        (Predicate("id", "!=", 7), set(range(100)) - {7}),
        (Predicate("id", "<", 3), {0, 1, 2}),
        (Predicate("id", "<=", 1), {0, 1}),
        (Predicate("id", ">", 97), {98, 99}),
        (Predicate("id", ">=", 99), {99}),
        (Predicate("id", "in", (1, 2, 1000)), {1, 2}),
        (Predicate("name", "=", "event 5"), {5}),
        (Predicate("name", "in", ("event 5",)), {5}),
        (Predicate("name", "=", "'; DROP TABLE events; --"), set()),
        (Predicate("name", "is null"), set()),
        (Predicate("name", "is not null"), set(range(100))),
        (Predicate("at", "<", datetime(2026, 3, 1, 8, 5)), set(range(10))),  # noqa: DTZ001 - as it is stored
    ],
)
def test_predicates_leave_rows_out(events: Database, predicate: Predicate, expected: set[int]) -> None:
    loads = runs(events, "events", ExtractKind.SNAPSHOT_ONLY, where=(predicate,))
    (one,) = loads.run()
    assert set(one.table["id"].to_pylist()) == expected
    assert one.expected_rows == len(expected)


def test_predicates_hold_for_the_extent_too(events: Database) -> None:
    loads = runs(events, "events", delta="id", where=(Predicate("id", ">=", 20), Predicate("id", "<", 60)))
    assert loads.plan().planned == Range(LongWatermark(20), LongWatermark(60))
    assert sorted(column(loads.run(), "id")) == list(range(20, 60))


def test_a_predicate_that_the_column_can_not_take_is_an_error(events: Database) -> None:
    loads = runs(events, "events", ExtractKind.SNAPSHOT_ONLY, where=(Predicate("id", "=", "many"),))
    if isinstance(events, PostgresDatabase):
        with pytest.raises(SourceError, match="integer"):
            loads.plan()
    else:  # SQLite compares anything with anything
        assert loads.rows() == []


def test_names_of_any_spelling_are_quoted(database: Database) -> None:
    names = ['say "when"', "select", "a'b", "ünï", "with space", "x; DROP TABLE t; --", "%s", "?1", "$1"]
    quoted = [f'"{n.replace(chr(34), chr(34) * 2)}"' for n in names]
    database.run(f'CREATE TABLE "the ""table""" ({", ".join(f"{q} INTEGER" for q in quoted)})')
    database.insert('"the ""table"""', [tuple(range(len(names)))])
    for name in names:
        loads = runs(database, 'the "table"', delta=name, where=(Predicate(name, ">=", 0),))
        (one,) = loads.run(limits=Limits(bytes=1000))
        assert one.table.to_pylist() == [dict(zip(names, range(len(names)), strict=True))]


# bad input


def test_an_unknown_table_is_named_with_those_near_it(events: Database) -> None:
    with pytest.raises(ConfigurationError, match=r"no table 'Event' in .*Did you mean 'events'"):
        runs(events, "Event", delta="at").plan()
    with pytest.raises(ConfigurationError, match=r"no table 'zzz'.*There is 'events'"):
        runs(events, "zzz", delta="at").plan()


@pytest.mark.parametrize(
    "options",
    [
        {"delta": "naem"},
        {"delta": "id", "columns": ("naem",)},
        {"delta": "id", "casts": {"naem": "string"}},
        {"delta": "id", "where": (Predicate("naem", "=", 1),)},
        {"delta": "id", "primary_keys": ("naem",)},
    ],
)
def test_an_unknown_column_is_named_with_those_near_it(events: Database, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"no column 'naem' in table 'events'. Did you mean 'name'"):
        runs(events, "events", **options).plan()


def test_nulls_in_a_delta_column_are_an_error_until_they_are_left_out(database: Database) -> None:
    database.run("CREATE TABLE t (id INTEGER, at TIMESTAMP)")
    database.insert("t", [(1, "2026-03-01 08:00:00"), (2, None), (None, None)])
    for delta, nulls in (("at", 2), ("id", 1)):
        with pytest.raises(SourceError, match=f"delta column '{delta}', expected as .*, {nulls} rows are NULL"):
            runs(database, "t", delta=delta).plan()
    assert len(runs(database, "t", delta="at", where=(Predicate("at", "is not null"),)).rows()) == 1


def test_a_delta_column_must_have_an_order_of_positions(events: Database) -> None:
    with pytest.raises(ConfigurationError, match=r"delta column 'name' .* is not an integer, date or timestamp"):
        runs(events, "events", delta="name").plan()


def test_a_lag_of_the_other_kind_is_refused(events: Database) -> None:
    with pytest.raises(ConfigurationError, match="its lag is a time"):
        runs(events, "events", delta="id", lag=MINUTE).plan()
    with pytest.raises(ConfigurationError, match="its lag is an integer"):
        runs(events, "events", delta="at", lag=5).plan()


def test_a_table_that_changed_after_planning_is_not_read_as_planned(events: Database) -> None:
    loads = runs(events, "events", delta="id")
    plan = loads.plan()
    events.run("DROP TABLE events", "CREATE TABLE events (id INTEGER, at DATE, name TEXT)")
    with pytest.raises(ConfigurationError, match=r"'at' was timestamp\[us\] and is now date32"):
        loads.read(plan.units[0], plan.schema)


def test_a_column_that_went_after_planning_is_named_with_the_way_on(events: Database) -> None:
    loads = runs(events, "events", delta="id")
    plan = loads.plan()
    events.run("ALTER TABLE events DROP COLUMN name")
    with pytest.raises(ConfigurationError, match=r"since it was planned, 'name' went from the columns.*Plan it anew"):
        loads.read(plan.units[0], plan.schema)
    named = with_options(loads, columns=("id", "name"))
    with pytest.raises(
        ConfigurationError, match=r"went from the columns.*Take 'name' out of the table's options\. Plan it anew"
    ):
        named.read(plan.units[0], plan.schema)
    events.run("DROP TABLE events")
    with pytest.raises(ConfigurationError, match=r"since it was planned, table 'events' went.*Plan it anew"):
        loads.read(plan.units[0], plan.schema)


def test_a_source_that_reconciles_not_counts_not(events: Database) -> None:
    source = SqlSource("db", (SqlTable("events", ExtractKind.SNAPSHOT_ONLY),), reconcile=False)
    loads = runs(events, "events", ExtractKind.SNAPSHOT_ONLY)
    reader = source.read(loads.plan().units[0], loads.plan().schema, ReadRequest(), events)
    assert sum(batch.num_rows for batch in reader) == 100
    assert reader.expected_rows is None
    reader.close()
    reader.close()


def test_a_reader_may_be_closed_in_the_middle(events: Database) -> None:
    loads = runs(events, "events", ExtractKind.SNAPSHOT_ONLY)
    plan = loads.plan()
    reader = loads.source.read(plan.units[0], plan.schema, ReadRequest(), events)
    next(iter(reader))
    reader.close()
    events.run("DROP TABLE events")  # nothing holds it


def test_what_is_read_is_one_state_of_the_database(events: Database) -> None:
    """Rows that come while a unit is read are neither in it nor in its count."""
    if events.kind == "sqlite":
        events.run("PRAGMA journal_mode = WAL")
    loads = runs(events, "events", ExtractKind.SNAPSHOT_ONLY)
    plan = loads.plan()
    reader = loads.source.read(plan.units[0], plan.schema, ReadRequest(), events)
    batches = iter(reader)
    rows = next(batches).num_rows
    events.insert("events", [(100, _event_time(0), None)])
    rows += sum(batch.num_rows for batch in batches)
    assert (rows, reader.expected_rows) == (100, 100)
    reader.close()


@pytest.mark.parametrize(
    ("uri", "error", "message"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/db", SourceError, "connection 'db' can't be opened.*refused"),
        ("postgresql://me:s3cret@nowhere.invalid/db", SourceError, "connection 'db' can't be opened"),
        ("postgresql://me:s3cret%zz@127.0.0.1:1/db", ConfigurationError, "not well formed"),
        ("postgresql://me:s3/cret@127.0.0.1:1/db", ConfigurationError, "not well formed"),
        ("postgresql://me:s3cret@x@127.0.0.1:1/db", ConfigurationError, "not well formed"),
        ("sqlite:////nowhere/s3cret.db?password=s3cret", SourceError, "can't be opened"),
        ("mysql://me:s3cret@127.0.0.1/db", ConfigurationError, "no type that SqlSource knows"),
        ("s3cret", ConfigurationError, "no type that SqlSource knows"),
    ],
)
def test_a_database_out_of_reach_is_named_without_its_password(uri: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        runs(FixedUri(uri), "t", ExtractKind.SNAPSHOT_ONLY).plan()
    shown = str(raised.value).replace("/nowhere/s3cret.db", "")
    assert "cret" not in shown
    assert raised.value.__suppress_context__ or raised.value.__cause__ is None


def test_only_an_unreachable_database_is_worth_a_retry(events: Database) -> None:
    with pytest.raises(SourceError) as unreachable:
        runs(FixedUri("postgresql://127.0.0.1:1/x"), "t", ExtractKind.SNAPSHOT_ONLY).plan()
    assert unreachable.value.retryable
    with pytest.raises(ConfigurationError) as unknown:
        runs(events, "nothing", ExtractKind.SNAPSHOT_ONLY).plan()
    assert not unknown.value.retryable


def test_watermarks_of_a_plan_can_be_read_back(events: Database) -> None:
    watermarks: list[Watermark | None] = [u.low for u in runs(events, "events", delta="at").plan().units]
    assert watermarks == [at("2026-03-01 08:00")]
