"""Batches of SqlSource on real databases: what waits in a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.batch import Backlog, Batch
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import TimestampWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.rows.sources.sql.dialects import Session, Statement
from airflow_gobblin.testing import inprocess
from tests.rows.sources.databases import DATABASES, NOW, Database, clock_at, empty_database

ALL = Batch(rows=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A table of ten events, five minutes between."""
    made = empty_database(request, tmp_path)
    made.run("CREATE TABLE events (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL, day DATE, name TEXT)")
    insert(made, range(10))
    return made


def insert(database: Database, numbers: range) -> None:
    database.insert("events", [(n, str(_time(n))[:19], str(_time(n).date()), f"event {n}") for n in numbers])


def _time(n: int) -> datetime:
    return datetime(2026, 3, 1, 8, tzinfo=UTC) + n * 5 * MINUTE


def planned(
    database: Database, batch: Batch, coverage: Coverage | None = None, now: datetime = NOW, **options: Any
) -> DatasetPlan:
    source = SqlSource("db", (SqlTable("events", ExtractKind.APPEND_ONLY, **options),))
    (dataset,) = source.datasets(database)
    state = DatasetState(dataset.urn, coverage or Coverage())
    with clock_at(now):
        return source.plan(dataset, {dataset.urn: state}, PlanRequest(now, batch=batch), database)


def test_all_rows_up_to_the_lag_wait_first(database: Database) -> None:
    found = planned(database, ALL, delta="at").backlog
    assert isinstance(found, Backlog)
    assert (found.now, found.rows, found.oldest, found.keeps, found.used) == (NOW, 10, _time(0), None, 0.0)
    assert found.bytes is not None
    assert 10 * 10 <= found.bytes <= 10 * 200
    late = planned(database, ALL, delta="at", lag=NOW - _time(7)).backlog
    assert late is not None
    assert late.rows == 7


def test_holes_wait_too(database: Database) -> None:
    covered = Coverage().starting_at(TimestampWatermark(_time(0)))
    for low, high in ((0, 2), (4, 8)):
        covered = covered.add(Range(TimestampWatermark(_time(low)), TimestampWatermark(_time(high))))
    found = planned(database, ALL, covered, delta="at").backlog
    assert found is not None
    assert (found.rows, found.oldest) == (4, _time(2))


def test_a_held_table_has_no_units(database: Database) -> None:
    assert [*planned(database, Batch(rows=11), delta="at").units] == []
    assert [*planned(database, Batch(rows=10), delta="at").units] != []


def test_dates_wait_from_their_midnight_and_integers_have_no_times(database: Database) -> None:
    of_days = planned(database, ALL, now=NOW + timedelta(days=1), delta="day").backlog
    assert of_days is not None
    assert (of_days.rows, of_days.oldest) == (10, datetime(2026, 3, 1, tzinfo=UTC))
    of_keys = planned(database, ALL, delta="id").backlog
    assert of_keys is not None
    assert (of_keys.rows, of_keys.oldest) == (10, None)


def test_the_size_of_rows_is_learned_from_the_files_of_the_last_slot(database: Database, tmp_path: Path) -> None:
    source = SqlSource("db", (SqlTable("events", ExtractKind.APPEND_ONLY, delta="at"),))
    job = Ingestion("events", source, ParquetSink(str(tmp_path / "lake")), "unused", batch=Batch(bytes=1))
    opened = inprocess.open_job(job, database)
    with clock_at(NOW):
        (report,) = inprocess.run(opened).values()
    assert report.status == "committed"
    size = sum(path.stat().st_size for path in (tmp_path / "lake").rglob("*.parquet"))
    insert(database, range(60, 64))
    state = opened.journal.state(report.urn)
    (dataset,), later = source.datasets(database), NOW + timedelta(days=1)
    with clock_at(later):
        found = source.plan(dataset, {dataset.urn: state}, PlanRequest(later, batch=ALL), database).backlog
    assert found is not None
    assert (found.rows, found.bytes) == (4, round(4 * size / 10))


def test_a_batch_that_is_due_asks_the_clock_and_the_size_of_rows_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    row = Session.row

    def logged(self: Session, statement: Statement) -> tuple[Any, ...]:
        asked.append(statement.text)
        return row(self, statement)

    monkeypatch.setattr(Session, "row", logged)
    assert [*planned(database, ALL, delta="at").units]
    assert sum("avg(size)" in text for text in asked) == 1
    assert sum(str(NOW.replace(tzinfo=None).isoformat()) in text for text in asked) == 1
