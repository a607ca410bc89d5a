"""Ingestions into tables of any format, for what holds for all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_gobblin.model.naming import table_key
from airflow_gobblin.model.table import Owner
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.files import Files, open_files
from airflow_gobblin.tables.layout import DATA_FOLDER
from airflow_gobblin.tables.port import OpenTable
from airflow_gobblin.tables.port import Table as TableRecord
from airflow_gobblin.testing.files import write
from airflow_gobblin.workspace.staging import ROOT
from tests.lab import Lab
from tests.protocol.rows import Table
from tests.tables.formats import Format


class TableLab(Lab):
    """An ingestion into tables.

    :param form: their format, and their place.
    """

    def __init__(self, folder: Path, form: Format, *tables: Table, **options: Any) -> None:
        super().__init__(folder, *tables, connections=SparkConnections(form.uris), **options)
        self.format, self._tables = form, tables
        self.ingestion = replace(self.ingestion, sink=form.sink(str(folder)))

    def other(self, name: str) -> TableLab:
        """Return an ingestion of the same tables, with a journal and a workspace of its own."""
        return TableLab(self.folder.parent / name, self.format, *self._tables)

    def declare(self, **options: Any) -> None:
        """Give the sink other options."""
        sink: Any = self.ingestion.sink
        self.ingestion = replace(self.ingestion, sink=replace(sink, **options))

    def rename(self, dataset: str) -> None:
        """Give the tables another name.

        :param dataset: the text in the place of `{dataset}` there.
        """
        names = {name: getattr(self.ingestion.sink, name, None) for name in ("name", "location", "table")}
        self.declare(**{name: old.replace("{dataset}", dataset) for name, old in names.items() if isinstance(old, str)})

    def table(self, urn: str) -> TableRecord:
        """Return the table of a dataset."""
        found: TableRecord = self.ingestion.sink.table_of(  # type: ignore[attr-defined]
            Dataset(urn, Extract(ExtractKind.APPEND_ONLY, "", urn))
        )
        return found

    def open(self, urn: str) -> OpenTable:
        """Open the table of a dataset."""
        return self.table(urn).open(self.connections, self.opened().files)

    def owner(self, urn: str) -> Owner:
        """Return a dataset as its table knows it."""
        return Owner(self.journal.id, self.journal.ingestion, urn)

    def table_rows(self, urn: str) -> Counter[str]:
        """Return the rows of a dataset's table: a reader outside gets the same as ours."""
        rows = Counter(row.rstrip(" ") for row in self.format.rows(table_key(urn)))
        ours = self.open(urn).read().to_table().to_pylist()
        assert Counter(row["row"].rstrip(" ") for row in ours) == rows
        return rows

    def lake(self, urn: str) -> Files:
        """Return the files at the location of a dataset's table; those of the workspace, if its rows are taken from there."""
        place = self.open(urn).look(self.owner(urn)).location
        return open_files(place or str(self.folder), self.connections)

    def staged(self, urn: str, token: str) -> set[str]:
        """Return the data files in the lake that were staged for a token."""
        found = (path for folder in (DATA_FOLDER, ROOT) for path in self.lake(urn).walk(folder))
        return {path for path in found if token in path.split("/") and path.endswith(".parquet")}

    def stage_late(self, urn: str, token: str) -> None:
        """Leave a data file of an attempt that nobody accepts any more."""
        write(self.lake(urn), f"{DATA_FOLDER}/{token}/late/0-x/0.parquet", b"of a late attempt")


def up_to(end: int) -> RunRequest:
    """Return the request of a run up to a position."""
    return RunRequest(f"up to {end}", datetime.fromtimestamp(end, UTC))
