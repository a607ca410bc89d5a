"""The work on rows passes the contract of works."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.connections import Connections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import Job
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind, UnitResult
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.steps.publishing import publish_file
from airflow_gobblin.storage.files import Files
from airflow_gobblin.testing import WorkContract, inprocess
from tests.rows.sources.databases import SqliteDatabase
from tests.testing.broken_sinks import CountingSink


class TestRowsWork(WorkContract):
    """A table that grows, in four units, and one that is taken whole."""

    @pytest.fixture
    def database(self, tmp_path: Path) -> SqliteDatabase:
        database = SqliteDatabase(tmp_path / "shop.db")
        database.run("CREATE TABLE events (id INTEGER PRIMARY KEY)", "CREATE TABLE prices (cents INTEGER)")
        database.insert("events", [(n,) for n in range(30)])
        database.insert("prices", [(n,) for n in range(5)])
        return database

    @pytest.fixture
    def connections(self, database: SqliteDatabase) -> Connections:
        return database

    @pytest.fixture(params=Layout)
    def make_job(self, request: pytest.FixtureRequest) -> Callable[[str], Job]:
        events = SqlTable("events", ExtractKind.APPEND_ONLY, delta="id", unit_bytes=20, max_units=4)
        source = SqlSource("db", (events, SqlTable("prices", ExtractKind.SNAPSHOT_ONLY)))
        return lambda target: Ingestion("shop", source, ParquetSink(target, layout=request.param), "unused")

    @pytest.fixture
    def grow(self, database: SqliteDatabase) -> Callable[[], None]:
        new = iter(range(30, 100))

        def grow() -> None:
            database.insert("events", [(next(new),) for _ in range(9)])
            database.run("UPDATE prices SET cents = cents + 1")

        return grow

    @pytest.fixture
    def read(self) -> Callable[[bytes], Sequence[object]]:
        return lambda content: pq.read_table(pa.BufferReader(content)).to_pylist()


@record("test.idle_sink")
@dataclass(frozen=True)
class IdleSink(ParquetSink):
    """Looks at no result."""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[Any]:
        return iter(())


@record("test.doubling_sink")
@dataclass(frozen=True)
class DoublingSink(ParquetSink):
    """Publishes each file under two names."""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[Any]:
        for result in results:
            for file in result.files:
                for name in ("one", "other"):
                    yield publish_file(file, f"{plan.folder}/{plan.token}-{name}.parquet", result.unit, files)


@record("test.sink_of_one")
@dataclass(frozen=True)
class SinkOfOne(ParquetSink):
    """Publishes the first of its results, and closes the iterator that it was given."""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[Any]:
        def some() -> Iterator[UnitResult]:
            yield from results

        return super().publish(plan, islice(some(), 1), files)


@record("test.twin_sink")
@dataclass(frozen=True)
class TwinSink(ParquetSink):
    """Publishes each file under a hidden name, too."""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[Any]:
        for result in results:
            yield from super().publish(plan, [result], files)
            for file in result.files:
                yield publish_file(file, f"{plan.folder}/_twins/{result.unit}.parquet", result.unit, files)


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        (CountingSink, "the steps of the sink CountingSink leave out 2 files, such as one of unit 'u0000'"),
        (IdleSink, "the steps of the sink IdleSink leave out 2 files, such as one of unit 'u0000'"),
        (SinkOfOne, "leave out 1 file, such as one of unit 'u0001'"),
        (DoublingSink, "-other.parquet', and unit 'u0000' has no file of its checksum that isn't published yet"),
        (TwinSink, "publish rows as 'events/_twins/u0000.parquet', which readers of its folder ignore"),
    ],
)
def test_a_sink_publishes_each_file_once_or_nothing_is_decided(
    tmp_path: Path, sink: type[ParquetSink], problem: str
) -> None:
    database = SqliteDatabase(tmp_path / "shop.db")
    database.run("CREATE TABLE events (id INTEGER PRIMARY KEY)")
    database.insert("events", [(n,) for n in range(30)])
    events = SqlTable("events", ExtractKind.APPEND_ONLY, delta="id", unit_bytes=120, max_units=2)
    job = Ingestion("shop", SqlSource("db", (events,)), sink(str(tmp_path / "lake")), "unused")
    opened = inprocess.open_job(job, database)
    report = inprocess.run(opened, database)["events"]
    assert report.status == "failed"
    assert problem in report.detail
    assert "`publish` yield a step for each file of each result" in report.detail
    assert opened.journal.history("events").slots == ()
    assert not [*tmp_path.glob("lake/events/**/*.parquet")]
