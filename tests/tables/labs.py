"""Ingestions into tables of each format, for what holds for all of them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.model.table import Owner
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.tables.port import OpenTable
from airflow_gobblin.tables.port import Table as TableRecord
from airflow_gobblin.testing import inprocess
from airflow_gobblin.testing.memory_table import MemoryTableSink
from tests.lab import Lab
from tests.protocol.rows import Table

FORMATS = ("memory", "files in memory", "delta", "postgres")


class TableLab(Lab):
    """An ingestion into tables.

    :param sink: makes its sink, with a workspace.
    :param url: of the database that connection `warehouse` leads to.
    """

    def __init__(
        self, folder: Path, sink: Callable[..., Any], url: str, tables: tuple[Table, ...], **options: Any
    ) -> None:
        super().__init__(folder, *tables, **options)
        self._url, self._sink, self._tables = url, sink, tables
        self.ingestion = replace(self.ingestion, sink=sink(workspace=str(folder)))

    def uri(self, conn_id: str) -> str:
        assert conn_id == "warehouse"
        return self._url

    def other(self, name: str) -> TableLab:
        """Return an ingestion of the same tables, with a journal and a workspace of its own."""
        return TableLab(self.folder.parent / name, self._sink, self._url, self._tables)

    def opened(self, *tables: Table, **broken: tuple[str, ...]) -> OpenJob:
        return OpenJob(super().opened(*tables, **broken).job, self.journal, self)

    def run(
        self, *tables: Table, request: RunRequest | None = None, **broken: tuple[str, ...]
    ) -> dict[str, DatasetReport]:
        return inprocess.run(self.opened(*tables, **broken), self, request)

    def table(self, urn: str) -> TableRecord:
        """Return the table of a dataset."""
        found: TableRecord = self.ingestion.sink.table_of(  # type: ignore[attr-defined]
            Dataset(urn, Extract(ExtractKind.APPEND_ONLY, "", urn))
        )
        return found

    def open(self, urn: str) -> OpenTable:
        """Open the table of a dataset."""
        return self.table(urn).open(self, self.opened().files)

    def owner(self, urn: str) -> Owner:
        """Return a dataset as its table knows it."""
        return Owner(self.journal.id, self.journal.ingestion, urn)

    def table_rows(self, urn: str, version: str = "") -> Counter[str]:
        """Return the rows of a dataset's table, or of a version of it."""
        rows = self.open(urn).read(version).to_table().to_pylist()
        return Counter(row["row"].rstrip(" ") for row in rows)

    def sql(self, statement: str) -> None:
        """Carry out a statement in the database."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement)

    @property
    def keeper(self) -> Administration:
        """The actions of a person, with connections."""
        return Administration(self.journal, str(self.folder), "ann", self)

    @property
    def has_versions(self) -> bool:
        """Whether its tables keep versions."""
        return not isinstance(self.ingestion.sink, PostgresSink)

    @property
    def has_files(self) -> bool:
        """Whether data files stay where they are written."""
        sink = self.ingestion.sink
        return isinstance(sink, DeltaSink) or (isinstance(sink, MemoryTableSink) and bool(sink.location))


def lab_of(form: str, folder: Path, url: str, *tables: Table, **options: Any) -> TableLab:
    """Return an ingestion into tables of a format.

    :param url: of an empty database, for PostgreSQL.
    """
    place, name = str(folder / "tables" / "{dataset}"), f"{uuid.uuid4().hex}.{{dataset}}"

    def sink(workspace: str) -> Any:
        match form:
            case "memory":
                return MemoryTableSink(workspace, name)
            case "files in memory":
                return MemoryTableSink(workspace, name, place)
            case "delta":
                return DeltaSink(place, workspace)
            case _:
                return PostgresSink("warehouse", "raw.{dataset}", workspace)

    lab = TableLab(folder / "work", sink, url, tables, **options)
    if form == "postgres":
        lab.sql("CREATE SCHEMA IF NOT EXISTS raw")
    return lab


def up_to(end: int) -> RunRequest:
    """Return the request of a run up to a position."""
    return RunRequest(f"up to {end}", datetime.fromtimestamp(end, UTC))
