"""Units of a fixed width, in time or in keys, on real databases."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind, Limits
from airflow_gobblin.rows.sources.sql import widths
from tests.rows.sources.databases import DATABASES, NOW, Database, column, empty_database, runs

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
IDS = [-12, -10, -1, 0, 1, 9, 10, 45, 46, 50]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Events around 1970, then none for 55 years, and then some more."""
    found = empty_database(request, tmp_path)
    found.run("CREATE TABLE events (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL, day DATE NOT NULL)")
    times = ["1969-12-31 22:30", "1969-12-31 23:59", "1970-01-01 00:00", "1970-01-01 00:30", "1970-01-01 01:59"]
    times += ["2026-02-01 05:00", "2026-02-01 05:59", "2026-02-01 07:00", "2026-02-03 00:00", "2026-02-03 00:01"]
    found.insert("events", [(n, f"{at}:00", at[:10]) for n, at in zip(IDS, times, strict=True)])
    return found


def at(text: str) -> TimestampWatermark:
    return TimestampWatermark(datetime.fromisoformat(text).replace(tzinfo=UTC))


def ranges(loads: Any, **request: Any) -> list[tuple[Watermark | None, Watermark | None]]:
    return [(unit.low, unit.expected_high) for unit in loads.plan(**request).units]


def test_units_of_keys_begin_and_end_at_multiples_and_a_gap_is_one(database: Database) -> None:
    loads = runs(database, "events", delta="id", unit_width=10)
    edges = [-12, -10, 0, 10, 20, 40, 50, 51]
    keys = [LongWatermark(n) for n in edges]
    plan = loads.plan()
    assert [(unit.low, unit.expected_high) for unit in plan.units] == list(itertools.pairwise(keys))
    assert [bool(unit.weight) for unit in plan.units] == [True, True, True, True, False, True, True]
    given = loads.run()
    assert column(given, "id") == IDS
    assert loads.plan().units == ()
    database.run("INSERT INTO events VALUES (53, '2026-02-03 00:02:00', '2026-02-03')")
    assert ranges(loads) == [(LongWatermark(51), LongWatermark(54))]


def test_units_of_a_time_begin_and_end_at_multiples_and_a_gap_is_one(database: Database) -> None:
    loads = runs(database, "events", delta="at", unit_width=HOUR)
    edges = ["1969-12-31 22:30", "1969-12-31 23:00", "1970-01-01 00:00", "1970-01-01 01:00", "1970-01-01 02:00"]
    edges += ["2026-02-01 05:00", "2026-02-01 06:00", "2026-02-01 07:00", "2026-02-01 08:00", "2026-02-03 00:00"]
    edges += ["2026-02-03 01:00", "2026-03-01 11:55"]
    moments = [at(edge) for edge in edges]
    assert ranges(loads) == list(itertools.pairwise(moments))
    assert sorted(column(loads.run(), "id")) == IDS
    assert loads.plan(now=NOW).units == ()


def test_units_of_days(database: Database) -> None:
    loads = runs(database, "events", delta="day", unit_width=DAY)
    assert sorted(column(loads.run(), "id")) == IDS
    assert (at("2026-02-01"), at("2026-02-02")) in ranges(runs(database, "events", delta="day", unit_width=DAY))
    with pytest.raises(
        ConfigurationError, match=r"`unit_width` is 1:00:00, and its delta column holds dates. Give whole days"
    ):
        runs(database, "events", delta="day", unit_width=HOUR).plan()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "America/New_York"])
def test_every_row_comes_once_whatever_the_zone(database: Database, zone: str) -> None:
    loads = runs(database, "events", delta="at", unit_width=HOUR, timezone=zone)
    assert sorted(column(loads.run(), "id")) == IDS
    for low, high in ranges(runs(database, "events", delta="at", unit_width=HOUR, timezone=zone))[1:-1]:
        assert isinstance(low, TimestampWatermark)
        assert isinstance(high, TimestampWatermark)
        assert (low.value.minute, high.value.minute) == (0, 0)


def test_limits_are_each_units(database: Database) -> None:
    loads = runs(database, "events", delta="id", unit_width=10)
    first = column(loads.run(limits=Limits(rows=1)), "id")
    assert first == [-12, -10, 0, 10, 45, 50]
    assert sorted([*first, *(row[0] for row in loads.all_rows())]) == IDS


@pytest.mark.parametrize(
    ("delta", "width", "message"),
    [
        ("id", HOUR, "`unit_width` is a time, and its delta column 'id' of kind integer"),
        ("at", 10, "`unit_width` is a number, and its delta column 'at' of kind timestamp without time zone"),
        ("day", 10, "`unit_width` is a number, and its delta column 'day' of kind date"),
    ],
)
def test_a_width_of_another_kind_is_refused(database: Database, delta: str, width: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        runs(database, "events", delta=delta, unit_width=width).plan()


def test_too_many_units_are_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths, "MAX_UNITS", 3)
    with pytest.raises(ConfigurationError, match=r"its `unit_width` makes more than 3 units. Give a greater one"):
        runs(database, "events", delta="id", unit_width=1).plan()


def test_keys_near_the_end_of_64_bits(database: Database) -> None:
    ends = [-(1 << 63), -(1 << 62) - 1, (1 << 62) + 1, (1 << 63) - 1]
    database.run("CREATE TABLE far (id BIGINT PRIMARY KEY)")
    database.insert("far", [(n,) for n in ends])
    assert sorted(column(runs(database, "far", delta="id", unit_width=7).run(), "id")) == ends


@pytest.mark.parametrize("kind", [ExtractKind.SNAPSHOT_ONLY, ExtractKind.SNAPSHOT_APPEND])
def test_what_takes_a_table_whole_is_split_where_units_share_a_snapshot(database: Database, kind: ExtractKind) -> None:
    loads = runs(database, "events", kind, delta="id", unit_width=10)
    if database.kind == "sqlite":
        with pytest.raises(ConfigurationError, match="a load that takes a table whole is one unit in SQLite"):
            loads.plan()
        return
    assert len(loads.plan().units) == (9 if kind is ExtractKind.SNAPSHOT_ONLY else 7)
    assert sorted(column(loads.run(), "id")) == IDS


def test_a_snapshot_without_an_integer_has_no_width(database: Database) -> None:
    if database.kind == "postgres":
        with pytest.raises(ConfigurationError, match=r"it has a `unit_width`, and no integer to be split by"):
            runs(database, "events", ExtractKind.SNAPSHOT_ONLY, unit_width=10).plan()
