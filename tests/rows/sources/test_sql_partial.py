"""The policy `partial` on real databases: a unit that fails is cut between two values of its delta column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind, Limits
from airflow_gobblin.rows.converters.checks import NotNull
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.rows.sources.sql import reader as sql_reader
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.testing import inprocess
from tests.rows.sources.databases import DATABASES, Database, SqliteDatabase, empty_database

ROWS = 5000
TIES = 7
BAD = 3700
"""The row that is bad: the fifth of its position."""
INDEX = "CREATE INDEX events_by_batch ON events (batch)"


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A table whose delta column has seven rows of each value."""
    made = empty_database(request, tmp_path)
    made.run("CREATE TABLE events (id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, name TEXT)", INDEX)
    made.insert("events", [(n, n // TIES, None if n == BAD else f"event {n}") for n in range(ROWS)])
    return made


EVENTS = SqlTable("events", ExtractKind.APPEND_ONLY, delta="batch")


def opened(database: Database, folder: Path, tables: tuple[SqlTable, ...] = (EVENTS,), **options: Any) -> OpenJob:
    source = SqlSource("db", tables)
    options = {"policy": CommitPolicy.PARTIAL, **options}
    job = Ingestion("shop", source, ParquetSink(f"{folder}/lake"), "unused", **options)
    return inprocess.open_job(job, database)


def ids(job: OpenJob) -> list[int]:
    rows = job.journal.read_dataset("events").to_arrow().to_table(["id"]).to_pylist()
    return sorted(row["id"] for row in rows)


def test_a_bad_row_cuts_its_unit_before_its_position(database: Database, tmp_path: Path) -> None:
    job = opened(database, tmp_path, checks=(NotNull(("name",)),))
    report = inprocess.run(job, database)["events"]
    assert report.status == "partial"
    assert "fail the check NotNull" in report.detail
    whole = BAD // TIES
    assert report.watermark is not None
    assert report.watermark.to_json() == whole
    assert ids(job) == [*range(whole * TIES)]
    database.run(f"UPDATE events SET name = 'mended' WHERE id = {BAD}")
    assert inprocess.run(job, database)["events"].status == "committed"
    assert ids(job) == [*range(ROWS)]


@pytest.mark.parametrize("at", [-1, ROWS // TIES + 1], ids=["before it", "after it"])
def test_a_cut_outside_of_its_batch_is_refused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The next run would read rows of it again, or leave some out."""
    whole = SqlTable("events", ExtractKind.APPEND_ONLY, delta="batch", max_units=1)
    monkeypatch.setattr(sql_reader.SqlReader, "cut", lambda self, rows: (rows, LongWatermark(at)))
    job = opened(database, tmp_path, (whole,), checks=(NotNull(("name",)),))
    report = inprocess.run(job, database)["events"]
    assert report.status == "failed"
    assert "its reader is to cut a batch, which begins at " in report.detail
    assert f"at {at}; the row after those is bad: " in report.detail
    assert "fail the check NotNull" in report.detail
    assert job.journal.history("events").slots == ()


def test_a_position_larger_than_what_is_kept_of_one_is_not_cut(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_reader, "MOST_OF_ONE", 100)
    database.run(f"UPDATE events SET batch = 50 WHERE id >= {50 * TIES}")
    job = opened(database, tmp_path, checks=(NotNull(("name",)),))
    inprocess.run(job, database)
    expected = [*range(50 * TIES)]
    assert (ids(job) if job.journal.state("events").live else []) in (expected, [])
    database.run(f"UPDATE events SET name = 'mended' WHERE id = {BAD}")
    assert inprocess.run(job, database)["events"].status == "committed"
    assert ids(job) == [*range(ROWS)]


@pytest.mark.slow
def test_whole_runs_in_order_with_limits_publish_each_row_once(database: Database, tmp_path: Path) -> None:
    database.run(f"UPDATE events SET name = 'mended' WHERE id = {BAD}")
    for limits in (Limits(rows=900), Limits(bytes=20_000)):
        job = opened(database, tmp_path / str(limits.rows), limits=limits)
        runs = 0
        while inprocess.run(job, database)["events"].status == "committed":
            runs += 1
        assert runs >= 2
        assert ids(job) == [*range(ROWS)]


def test_a_value_that_cant_be_read_cuts_its_unit(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "b.db")
    database.run("CREATE TABLE events (id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, cents INTEGER)", INDEX)
    database.insert("events", [(n, n // TIES, "much" if n == BAD else n) for n in range(ROWS)])
    job = opened(database, tmp_path)
    report = inprocess.run(job, database)["events"]
    assert report.status == "partial"
    assert "'much'" in report.detail
    found = ids(job)
    assert len(found) % TIES == 0
    assert 0 < len(found) <= BAD
    assert found == [*range(len(found))]
    database.run(f"UPDATE events SET cents = 1 WHERE id = {BAD}")
    inprocess.run(job, database)
    assert ids(job) == [*range(ROWS)]


def test_a_delta_column_that_no_index_begins_with_is_refused(database: Database, tmp_path: Path) -> None:
    database.run("DROP INDEX events_by_batch", "CREATE INDEX other ON events (id, batch)")
    database.run("CREATE INDEX few ON events (batch) WHERE batch > 5")
    job = opened(database, tmp_path)
    report = inprocess.run(job, database)["events"]
    assert report.status == "failed"
    assert "the order of its delta column 'batch', and no index begins with that" in report.detail
    assert 'begins with "batch"' in report.detail
    other = opened(database, tmp_path / "other", policy=CommitPolicy.SUCCESSFUL)
    assert inprocess.run(other, database)["events"].status == "committed"
    database.run("CREATE INDEX several ON events (batch, id)")
    assert inprocess.run(job, database)["events"].status == "committed"


def test_a_primary_key_is_an_index(database: Database, tmp_path: Path) -> None:
    database.run("DROP INDEX events_by_batch", "CREATE TABLE pairs (id INTEGER, day DATE, PRIMARY KEY (day, id))")
    database.insert("pairs", [(n, f"2026-01-{n:02}") for n in range(1, 10)])
    tables = (
        SqlTable("events", ExtractKind.APPEND_ONLY, delta="id"),
        SqlTable("pairs", ExtractKind.APPEND_ONLY, delta="day"),
    )
    reports = inprocess.run(opened(database, tmp_path, tables=tables), database)
    assert {urn: report.status for urn, report in reports.items()} == {"events": "committed", "pairs": "committed"}
