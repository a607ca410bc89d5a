"""The work on rows: how the units of a run are read, converted, checked and written. Light to import, as an ingestion is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_gobblin.job import Attempt, Site
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.wire import kind_of, record
from airflow_gobblin.model.work import Limits
from airflow_gobblin.rows.converters.base import Converter, RowCheck
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.rows.sources.base import Source

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.work import UnitResult, WorkUnit
    from airflow_gobblin.rows.sources.snapshots import PackSnapshot
    from airflow_gobblin.steps.base import CommitStep
    from airflow_gobblin.storage.files.base import Files


@record("rows_work")
@dataclass(frozen=True)
class RowsWork:
    """The work on rows: a unit is a range of a source, read as Arrow batches and written by a sink. See `job.Work`."""

    ingestion: str
    source: Source
    sink: Sink
    converters: tuple[Converter, ...] = ()
    checks: tuple[RowCheck, ...] = ()
    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, Json] = field(default_factory=dict)
    code: tuple[str, ...] = ()

    @property
    def site(self) -> Site:
        """The site of the work: Spark tasks."""
        return Site.TASK

    @property
    def target(self) -> str:
        """The sink's target root."""
        return self.sink.target

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The source's connections."""
        return self.source.connection_ids

    @property
    def source_identity(self) -> str:
        """The source's kind and its connections."""
        return " ".join((kind_of(self.source), *self.source.connection_ids))

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return the source's drivers."""
        return self.source.modules(connections)

    def hold(self, connections: Connections) -> PackSnapshot:
        """Hold a snapshot of the source, for the plans that need one."""
        from airflow_gobblin.rows.sources.snapshots import PackSnapshot

        return PackSnapshot(self.source, connections)

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        """Read a unit into staged files."""
        from airflow_gobblin.rows.extraction import extract_unit

        return extract_unit(
            self, plan, unit, attempt.id, attempt.files, attempt.folder, attempt.connections, attempt.snapshot
        )

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterable[CommitStep]:
        """Return the steps that publish the sink's files."""
        return self.sink.publish(plan, results, files)
