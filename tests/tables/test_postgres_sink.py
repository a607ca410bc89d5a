"""Ingestions whose sink is a real table in PostgreSQL: whole runs, killed ones, rewinds, replaced ranges, and merges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import ConfigurationError, SchemaConflictError, TableError, TableMovedError
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.lab import Lab
from tests.protocol.rows import Table

A = Table("main.a", ExtractKind.APPEND_ONLY, 12)
S = Table("main.s", ExtractKind.SNAPSHOT_ONLY, 4)


class Warehouse(Lab):
    """An ingestion into tables of a database."""

    def __init__(self, url: str, folder: Path, *tables: Table, **options: Any) -> None:
        super().__init__(folder, *tables)
        self._url = url
        sink = PostgresSink("warehouse", "raw.{dataset}", str(folder), **options)
        self.ingestion = replace(self.ingestion, sink=sink)
        self.sql("CREATE SCHEMA IF NOT EXISTS raw")

    def uri(self, conn_id: str) -> str:
        assert conn_id == "warehouse"
        return self._url

    def sql(self, statement: str) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute(statement)

    def opened(self, *tables: Table, **broken: tuple[str, ...]) -> OpenJob:
        return OpenJob(super().opened(*tables, **broken).job, self.journal, self)

    def run(
        self, *tables: Table, request: RunRequest | None = None, **broken: tuple[str, ...]
    ) -> dict[str, DatasetReport]:
        return inprocess.run(self.opened(*tables, **broken), self, request)

    def table_rows(self, table: Table) -> Counter[str]:
        sink, (dataset,) = self.ingestion.sink, [d for d in self.ingestion.source.datasets(self) if d.urn == table.urn]
        assert isinstance(sink, PostgresSink)
        with psycopg.connect(self._url) as connection:
            found = connection.execute(f"SELECT row FROM {sink.table_of(dataset).quoted}").fetchall()
        return Counter(row[0].rstrip(" ") for row in found)

    @property
    def keeper(self) -> Administration:
        return Administration(self.journal, str(self.folder), "ann", self)


@pytest.fixture
def new_lab(postgres_database: str, tmp_path: Path) -> Callable[..., Warehouse]:
    """Return a function that makes an ingestion into tables of an empty database."""
    return lambda *tables, **options: Warehouse(postgres_database, tmp_path / "work", *tables, **options)


def up_to(end: int) -> RunRequest:
    return RunRequest(f"up to {end}", datetime.fromtimestamp(end, UTC))


def test_runs_append_to_a_table_once_each(new_lab: Callable[..., Warehouse]) -> None:
    lab = new_lab(A)
    assert lab.run(request=up_to(5))[A.urn].rows == 5
    assert lab.run()[A.urn].rows == 7
    assert lab.run()[A.urn].status == "idle"
    assert lab.table_rows(A) == A.all_rows()


def test_a_snapshot_takes_the_place_of_all(new_lab: Callable[..., Warehouse]) -> None:
    lab = new_lab(S)
    lab.run()
    newer = replace(S, version=1, rows=3)
    lab.run(newer)
    assert lab.table_rows(S) == newer.all_rows()


def test_a_backfill_that_replaces_takes_units_out_in_its_commit(new_lab: Callable[..., Warehouse]) -> None:
    lab = new_lab(A)
    lab.run()
    amended = replace(A, version=1)
    lab.run(amended, request=RunRequest("again", 8, (A.urn,), 4, True))
    expected = A.all_rows() - Counter(A.row(n) for n in range(4, 8))
    assert lab.table_rows(A) == expected + Counter(amended.row(n) for n in range(4, 8))


def test_a_rewind_takes_units_out_by_a_commit(new_lab: Callable[..., Warehouse]) -> None:
    lab = new_lab(A)
    lab.run()
    lab.keeper.rewind(A.urn, LongWatermark(4), "read it again")
    assert lab.table_rows(A) == Counter(A.row(n) for n in range(4))
    lab.run()
    assert lab.table_rows(A) == A.all_rows()


@pytest.mark.parametrize("committed", [False, True])
def test_a_run_that_died_before_or_after_its_commit_is_finished_by_the_next(
    new_lab: Callable[..., Warehouse], committed: bool
) -> None:
    lab = new_lab(A)
    lab.run(request=up_to(4))
    opened, plan = lab.decide()
    slot = lab.journal.history(A.urn).pending
    assert slot is not None
    if committed:
        for step in lab.journal.steps(slot.decision):
            step.execute(opened.committer._context_of(slot.decision))
    lab.run()
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    assert lab.table_rows(A) == A.all_rows()


def test_rows_are_merged_by_their_key(new_lab: Callable[..., Warehouse]) -> None:
    table = replace(A, extract=ExtractKind.SNAPSHOT_APPEND)
    lab = new_lab(table, merge=True)
    lab.run(request=up_to(5))
    lab.run()
    assert lab.table_rows(table) == table.all_rows()
    with pytest.raises(ConfigurationError, match="merged"):
        lab.keeper.rewind(A.urn, LongWatermark(4), "read it again")


def test_a_schema_that_is_not_there_is_told_by_name(new_lab: Callable[..., Warehouse]) -> None:
    lab = new_lab(A)
    lab.sql("DROP SCHEMA raw")
    with pytest.raises(TableError, match='schema "raw" does not exist') as told:
        lab.run()
    assert not isinstance(told.value, TableMovedError)


def test_what_it_cannot_be_is_refused() -> None:
    for bad in (
        {"table": "raw.{datset}"},
        {"schema_rule": "widen everything"},
        {"file_bytes": 0},
        {"table": "_gobblin.{dataset}"},
        {"table": "raw." + "x" * 64},
    ):
        with pytest.raises(ConfigurationError):
            PostgresSink(**{"conn_id": "w", "table": "raw.{dataset}", "workspace": "/work"} | bad)


def test_a_column_that_it_cannot_hold_is_refused() -> None:
    sink = PostgresSink("w", "raw.{dataset}", "/work")
    with pytest.raises(SchemaConflictError, match="column 'at'"):
        sink.schema(pa.schema([("at", pa.timestamp("ns"))]), None, "a")
    assert sink.schema(pa.schema([("id", pa.uint32())]), None, "a") == pa.schema([("id", pa.int64())])
