"""An ingestion of a few rows, of which each part can be looked at and made to fail."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import NeverPublishedError, SourceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace.staging import ROOT
from tests.protocol.rows import LineSink, RowSource, Table


@record("test.broken_rows")
@dataclass(frozen=True)
class BrokenSource(RowSource):
    """Rows, some of which can't be planned or read.

    :param units: as `urn:unit`.
    :param miscounted: URNs whose count is wrong.
    """

    unplannable: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    miscounted: tuple[str, ...] = ()

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        if dataset.urn in self.unplannable:
            raise SourceError(operation="plan", subject=f"table {dataset.urn!r}", cause="it is gone")
        return super().plan(dataset, states, request, connections)

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        if f"{unit.urn}:{unit.id}" in self.units:
            raise SourceError(operation="read", subject=f"unit {unit.id!r} of {unit.urn!r}", cause="the line is dead")
        reader = super().read(unit, schema, request, connections)
        return Miscounting(reader) if unit.urn in self.miscounted else reader


class Miscounting:
    """A reader whose source counts one row too many."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.properties: dict[str, Any] = {}

    def __iter__(self) -> Any:
        return iter(self._reader)

    @property
    def expected_rows(self) -> int:
        return int(self._reader.expected_rows) + 1

    @property
    def actual_high(self) -> Any:
        return self._reader.actual_high

    def close(self) -> None:
        self._reader.close()


class Lab:
    """An ingestion whose journal is in memory, or in a given store, and whose target is a folder.

    :param connections: where its secrets come from; by default it has none.
    :param options: of the `Ingestion`.
    """

    def __init__(
        self,
        folder: Path,
        *tables: Table,
        store: Store | None = None,
        connections: Connections | None = None,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.connections = connections or NoConnections()
        self.store: Store = store or MemoryStore()
        self.ingestion = Ingestion(
            "lab", RowSource(tables), LineSink(str(folder)), "unused", **{"retention": timedelta(0), **options}
        )
        self.journal = self.reopened()

    def reopened(self) -> Journal:
        """The journal as a fresh process sees it: nothing of it is in memory."""
        self.journal = Journal.create(self.store, self.ingestion.name)
        return self.journal

    def opened(self, *tables: Table, **broken: tuple[str, ...]) -> OpenJob:
        source = RowSource(tables) if tables else self.ingestion.source
        assert isinstance(source, RowSource)
        self.ingestion = replace(self.ingestion, source=source)
        used = replace(self.ingestion, source=BrokenSource(source.tables, **broken)) if broken else self.ingestion
        return OpenJob(used, self.journal, self.connections)

    def run(
        self, *tables: Table, request: RunRequest | None = None, **broken: tuple[str, ...]
    ) -> dict[str, DatasetReport]:
        return inprocess.run(self.opened(*tables, **broken), self.connections, request)

    def extracted(self, *tables: Table, request: RunRequest | None = None) -> tuple[OpenJob, RunPlan]:
        """A run up to the results of its extract: its plan could be decided."""
        opened = self.opened(*tables)
        plan = create_work_units(opened, request or RunRequest(uuid.uuid4().hex))
        inprocess.extract(opened, plan, self.connections)
        return opened, plan

    def decide(self, *tables: Table, request: RunRequest | None = None) -> tuple[OpenJob, RunPlan]:
        """A run up to its decisions: nothing of it is published."""
        opened, plan = self.extracted(*tables, request=request)
        for pack in plan.packs:
            write_commit_steps(opened, plan, pack)
        return opened, plan

    def rows(self, urn: str) -> Counter[str]:
        paths = published_paths(self.journal, urn)
        return Counter(line.rstrip(" ") for path in paths for line in Path(path).read_text().splitlines())

    def files(self, urn: str) -> list[Path]:
        return sorted((self.folder / dataset_key(urn)).glob("*.txt"))

    def records(self) -> dict[str, bytes]:
        """The journal, whole."""
        return {key: self.store.get(key) or b"" for key in self.store.list("")}

    def published(self) -> dict[str, bytes]:
        """The files that readers of the target see: all except our own."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and ROOT not in path.parts
        }

    @property
    def admin(self) -> Administration:
        return Administration(self.journal, str(self.folder), "ann", self.connections)


def published_paths(journal: Journal, urn: str) -> list[str]:
    """The files that a reader of the journal sees; none of a dataset that was never published."""
    try:
        return journal.read_dataset(urn).paths
    except NeverPublishedError:
        return []


def stick(lab: Lab, *tables: Table) -> None:
    """Quarantine datasets: their staged files are gone."""
    lab.ingestion = replace(lab.ingestion, attempts=1)
    opened, plan = lab.decide(*tables)
    for table in tables:
        pending = lab.journal.history(table.urn).slots[-1]
        for step in lab.journal.steps(pending.decision):
            opened.files.unlink(step.source)  # type: ignore[attr-defined]
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
