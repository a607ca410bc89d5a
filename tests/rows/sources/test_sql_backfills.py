"""The range of a backfill, in positions of a delta column, on real databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from airflow_gobblin.errors import ConfigurationError, NoSuchRangeError
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.request import Bound, RangeRequest
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind, UnitState, UnitSummary
from airflow_gobblin.rows.sources.base import PlanRequest
from tests.rows.sources.databases import (
    DATABASES,
    NOW,
    Database,
    Runs,
    clock_at,
    empty_database,
    runs,
    with_options,
)


@pytest.fixture(autouse=True)
def clock() -> Iterator[None]:
    """The databases' clocks show `NOW`."""
    with clock_at(NOW):
        yield


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A table of ten rows, one an hour and one a day."""
    found = empty_database(request, tmp_path)
    found.run("CREATE TABLE visits (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL, day DATE NOT NULL)")
    found.insert("visits", [(n, f"2026-02-01 {n:02}:30:00", f"2026-02-{n + 1:02}") for n in range(10)])
    found.run("CREATE TABLE empty (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL)")
    return found


def resolved(loads: Runs, start: Bound, end: Bound | None = None) -> Range:
    (dataset,) = loads.source.datasets(loads.database)
    return loads.source.resolve(dataset, RangeRequest(NOW, start, end), loads.database)


def utc(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 2, day, hour, minute, tzinfo=UTC)


def at(*when: int) -> TimestampWatermark:
    return TimestampWatermark(utc(*when))


def days(low: int, high: int) -> Range:
    return Range(at(low), at(high))


def test_points_in_time_are_positions_of_timestamps(database: Database) -> None:
    loads = runs(database, "visits", delta="at")
    assert resolved(loads, utc(1, 2), utc(1, 4)) == Range(at(1, 2), at(1, 4))
    assert resolved(loads, datetime(2026, 2, 1, 2, tzinfo=ZoneInfo("Europe/Paris")), utc(1, 4)).low == at(1, 1)


def test_days_are_those_of_the_tables_zone(database: Database) -> None:
    loads = runs(database, "visits", delta="day")
    assert resolved(loads, utc(2), utc(4)) == days(2, 4)
    assert resolved(loads, utc(2, 12), utc(4, 23)) == days(2, 4), "a day is of the interval in which it ends"
    new_york = ZoneInfo("America/New_York")
    loads = with_options(loads, timezone="America/New_York")
    assert resolved(loads, datetime(2026, 2, 2, tzinfo=new_york), datetime(2026, 2, 4, tzinfo=new_york)) == days(2, 4)
    assert resolved(loads, utc(2), utc(4)) == days(2, 4), "as dates, and as an answer's command gives its range"
    with pytest.raises(NoSuchRangeError, match="no whole day"):
        resolved(loads, utc(2, 12), utc(2, 13))


def test_integers_are_positions_and_no_interval_is(database: Database) -> None:
    loads = runs(database, "visits", delta="id")
    assert resolved(loads, 2, 4) == Range(LongWatermark(2), LongWatermark(4))
    assert resolved(loads, 2, 400) == Range(LongWatermark(2), LongWatermark(10)), "it ends where the keys do"
    assert resolved(loads, 2).high == LongWatermark(10)
    with pytest.raises(
        NoSuchRangeError, match=r"delta column 'id' is of kind integer.*Give start and end as its values"
    ):
        resolved(loads, utc(1), utc(2))
    with pytest.raises(NoSuchRangeError, match="Give start and end as points in time"):
        resolved(runs(database, "visits", delta="at"), 2, 4)


@pytest.mark.parametrize(
    ("table", "delta", "start", "end", "expected"),
    [
        ("visits", "id", 10, 20, "outside its data, which is read up to 10 now"),
        ("visits", "id", -9, 0, "outside its data, which begins at 0"),
        ("visits", "at", NOW, None, "outside its data, which is read up to"),
        ("visits", "at", datetime(2026, 1, 1, tzinfo=UTC), utc(1), "outside its data, which begins at"),
        ("empty", "id", 0, 9, "holds no rows"),
        ("empty", "at", utc(1), utc(2), "holds no rows"),
    ],
)
def test_a_range_outside_the_data_is_refused(
    database: Database, table: str, delta: str, start: Bound, end: Bound | None, expected: str
) -> None:
    with pytest.raises(NoSuchRangeError, match=expected):
        resolved(runs(database, table, delta=delta), start, end)


def planned(loads: Runs, *ranges: Range) -> tuple[Range | None, list[int]]:
    """The range of a backfill's plan, and the ids of the rows in its units."""
    (dataset,) = loads.source.datasets(loads.database)
    state = {dataset.urn: DatasetState(dataset.urn, loads.coverage)}
    plan = loads.source.plan(dataset, state, PlanRequest(NOW, ranges=ranges), loads.database)
    rows = [row for unit in plan.units for row in loads.read(unit, plan.schema).table.column("id").to_pylist()]
    return plan.planned, sorted(rows)


def test_a_backfill_reads_its_ranges_and_a_first_load_still_begins_where_it_would_have(database: Database) -> None:
    loads = runs(database, "visits", delta="at")
    part = Range(at(1, 4), at(1, 6))
    assert planned(loads, part) == (Range(at(1, 0, 30), part.high), [4, 5])
    assert planned(with_options(loads, start=utc(1, 3)), part) == (Range(at(1, 3), part.high), [4, 5])
    loads.coverage = Coverage().starting_at(at(1, 2))
    assert planned(loads, part, Range(at(1, 8), at(1, 9))) == (Range(part.low, at(1, 9)), [4, 5, 8])


def test_a_range_without_rows_has_a_unit_too(database: Database) -> None:
    loads = replace(runs(database, "visits", delta="id"), coverage=Coverage().starting_at(LongWatermark(0)))
    database.run("DELETE FROM visits WHERE id = 4")
    part = Range(LongWatermark(4), LongWatermark(5))
    assert planned(loads, part) == (part, [])


def test_what_the_table_has_removed_is_not_published_anew(database: Database) -> None:
    """A unit is replaced whole, and the rows that its table no longer has would be lost."""
    loads = replace(runs(database, "visits", delta="id"), coverage=Coverage().starting_at(LongWatermark(0)))
    (dataset,) = loads.source.datasets(database)
    unit = summary(0, 6, rows=6)
    state = DatasetState(dataset.urn, loads.coverage, live={UnitRef(1, "u0"): unit})

    def plan(low: int, high: int) -> Range | None:
        asked = PlanRequest(NOW, ranges=(Range(LongWatermark(low), LongWatermark(high)),))
        return loads.source.plan(dataset, {dataset.urn: state}, asked, database).planned

    assert plan(0, 8) is not None
    database.run("DELETE FROM visits WHERE id = 3")
    assert plan(0, 8) is not None, "rows may be corrected away, and the table still begins where it did"
    database.run("DELETE FROM visits WHERE id < 3")
    with pytest.raises(NoSuchRangeError, match=r"6 rows of range \[0, 6\) were published.*Give a range from 6 on"):
        plan(0, 8)
    assert plan(6, 8) is not None
    state = replace(state, live={UnitRef(1, "u0"): summary(0, 6, rows=2)})
    assert plan(0, 8) is not None, "nothing was published of what is no longer there"


def test_a_plan_reports_where_the_tables_rows_begin(database: Database) -> None:
    loads = runs(database, "visits", delta="id")
    assert loads.plan().kept_from == LongWatermark(0)
    loads.run()
    database.run("DELETE FROM visits WHERE id < 3")
    database.insert("visits", [(10, "2026-02-01 10:30:00", "2026-02-11")])
    assert loads.plan().kept_from == LongWatermark(3)
    assert with_options(loads, kind=ExtractKind.SNAPSHOT_ONLY).plan().kept_from is None


def test_a_unit_that_the_table_still_has_whole_is_kept_whatever_went_before_it(database: Database) -> None:
    """Its bounds lie where no rows are."""
    loads = runs(database, "visits", delta="at")
    (dataset,) = loads.source.datasets(database)
    live = {UnitRef(1, "u0"): timed(0, 4, rows=4), UnitRef(1, "u1"): timed(4, 10, rows=6)}
    state = DatasetState(dataset.urn, Coverage().starting_at(at(1)).filled(Range(at(1), at(1, 10))), live=live)
    database.insert("visits", [(10, "2026-02-01 10:30:00", "2026-02-11")])

    def kept_from(known: TimestampWatermark | None = None) -> Watermark | None:
        now = {dataset.urn: replace(state, kept_from=known)}
        return loads.source.plan(dataset, now, PlanRequest(NOW), database).kept_from

    assert kept_from() == at(1), "its first row is at half past"
    database.run("DELETE FROM visits WHERE id < 4")
    assert kept_from(at(1)) == kept_from() == at(1, 4)
    database.run("DELETE FROM visits WHERE id < 6")
    assert kept_from(at(1, 4)) == at(1, 6, 30)
    assert kept_from(at(1, 8)) == at(1, 8), "a row that came back later is none of the table's own"


def timed(low: int, high: int, rows: int) -> UnitSummary:
    return replace(summary(0, 1, rows), low=at(1, low), expected_high=at(1, high), actual_high=at(1, high))


def summary(low: int, high: int, rows: int) -> UnitSummary:
    bounds = LongWatermark(low), LongWatermark(high), LongWatermark(high)
    return UnitSummary("u0", UnitState.SUCCESSFUL, *bounds, rows, rows, 0, 1, 100, 100, 0.1)


def test_a_first_load_that_takes_everything_is_none_of_a_backfill(database: Database) -> None:
    loads = runs(database, "visits", ExtractKind.SNAPSHOT_APPEND, delta="id")
    with pytest.raises(ConfigurationError, match=r"its first load takes everything\. Run it without a range before"):
        planned(loads, Range(LongWatermark(4), LongWatermark(5)))
