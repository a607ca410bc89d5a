"""The work on rows, as an ingestion declares it: light to import. `extraction` reads, converts, checks and writes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_gobblin.errors import GobblinError, NoSuchRangeError
from airflow_gobblin.job import Attempt, DatasetLike
from airflow_gobblin.model import dead_letters
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.wire import kind_of, record
from airflow_gobblin.model.work import Dataset, Limits
from airflow_gobblin.rows.converters.base import Converter, RowCheck
from airflow_gobblin.rows.sinks.base import Layout, Sink, TableSink, checked_steps
from airflow_gobblin.rows.sources.base import CheckableSource, InformedSource, RangeSource, Source
from airflow_gobblin.steps.publishing import publish_file
from airflow_gobblin.tables.port import Merge

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections, GuardedConnections
    from airflow_gobblin.job import WorkPlan, WorkRequest
    from airflow_gobblin.model.batch import HeldBatch
    from airflow_gobblin.model.coverage import Range
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.request import RangeRequest
    from airflow_gobblin.model.state import DatasetState
    from airflow_gobblin.model.table import TableRecord
    from airflow_gobblin.model.watermark import Watermark
    from airflow_gobblin.model.work import UnitResult, WorkUnit
    from airflow_gobblin.rows.sources.snapshots import PackSnapshot
    from airflow_gobblin.steps.base import CommitStep
    from airflow_gobblin.storage.files.base import Files


@record("rows_binding")
@dataclass(frozen=True)
class RowsBinding:
    """The values that a plan of rows binds besides those that all plans do. See `model.plan.Binding`.

    :param source_schema: the schema that every unit is read with, encoded.
    :param limits: the limits of each unit.
    :param in_order: whether units are read in the order of their positions, so that one that fails can be published in part.
    :param merge: how the rows take the place of others in a table.
    :param table_schema: the columns that the commit gives the table, encoded; `None`: it keeps its own.
    :param merged_bytes: the most bytes that may be merged; `None`: there is no bound.
    """

    source_schema: str
    limits: Limits = field(default_factory=Limits)
    in_order: bool = False
    merge: Merge | None = None
    table_schema: str | None = None
    merged_bytes: int | None = None

    @staticmethod
    def of(plan: Plan) -> RowsBinding:
        """Return the binding of a plan of rows."""
        assert isinstance(plan.binding, RowsBinding)
        return plan.binding


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
    def workspace(self) -> str:
        """The sink's target root, too: staged files move within one file system."""
        return self.sink.target

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The source's connections, and those of the sink's tables."""
        of_tables = self.sink.connection_ids if isinstance(self.sink, TableSink) else ()
        return tuple(dict.fromkeys((*self.source.connection_ids, *of_tables)))

    @property
    def source_identity(self) -> str:
        """The source's kind and its connections."""
        return " ".join((kind_of(self.source), *self.source.connection_ids))

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        """Return the source's datasets."""
        return tuple(self.source.datasets(connections))

    def resolve(self, dataset: DatasetLike, request: RangeRequest, connections: Connections) -> Range:
        """Resolve a range to positions of the source."""
        if not dataset.holds.covers_ranges:
            cause = "it is a snapshot, which shows its table as it is now and has no ranges"
            raise _no_ranges(dataset.urn, cause, "Run it without a range: each run publishes it anew.")
        if not isinstance(self.source, RangeSource):
            cause = f"its source, a {type(self.source).__name__}, can't express a range in its positions"
            hint = "Give the source a method `resolve`; or rewind the dataset to a position."
            raise _no_ranges(dataset.urn, cause, hint)
        return self.source.resolve(_of_rows(dataset), request, connections)

    def check(self, dataset: DatasetLike, connections: Connections) -> Iterator[GobblinError]:
        """Yield the faults that the source can name ahead of planning."""
        if isinstance(self.source, CheckableSource):
            yield from self.source.check(_of_rows(dataset), connections)

    def plan(
        self,
        dataset: DatasetLike,
        states: Mapping[str, DatasetState],
        request: WorkRequest,
        files: Files,
        connections: GuardedConnections,
    ) -> WorkPlan | HeldBatch | None:
        """Plan ranges of the source, or all of it."""
        from airflow_gobblin.rows.planning import plan_rows

        return plan_rows(self, _of_rows(dataset), states, request, files, connections)

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

    def judge(
        self,
        plan: Plan,
        published: Callable[[], Iterable[tuple[WorkUnit, UnitResult]]],
        files: Files,
        connections: GuardedConnections,
    ) -> None:
        """Judge whether rows that are to be merged can be."""
        if RowsBinding.of(plan).merge is not None:
            from airflow_gobblin.rows.tables import judge_merge

            assert isinstance(self.sink, TableSink)
            named = (file for _, result in published() for file in result.data_files)
            judge_merge(self.sink, plan, named, files, connections)

    def publish(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], files: Files, staging: str
    ) -> Iterable[CommitStep]:
        """Yield the steps that publish the sink's files, and those of dead letters.

        :raises ConfigurationError: as `checked_steps`.
        """
        waiting: deque[UnitResult] = deque()

        def of_the_sink() -> Iterator[UnitResult]:
            for _, result in published:
                if result.dead_letter_files:
                    waiting.append(result)
                    result = replace(result, files=result.files_of_rows, dead_letter_files=0)  # noqa: PLW2901
                yield result

        for step in self._steps_of_rows(plan, of_the_sink(), files, staging):
            yield step
            while waiting:
                yield from _dead_letter_steps(plan, waiting.popleft(), files)
        for result in waiting:
            yield from _dead_letter_steps(plan, result, files)

    def _steps_of_rows(
        self, plan: Plan, results: Iterator[UnitResult], files: Files, staging: str
    ) -> Iterable[CommitStep]:
        if plan.table is None:
            return checked_steps(self.sink, plan, results, files)
        from airflow_gobblin.rows.tables import commit_step

        binding = RowsBinding.of(plan)
        return (commit_step(plan, results, files, staging, binding.merge, binding.table_schema),)

    def table_of(self, dataset: DatasetLike) -> TableRecord | None:
        """Return the table of a dataset, if the sink has tables."""
        return self.sink.table_of(_of_rows(dataset)) if isinstance(self.sink, TableSink) else None

    def inform(self, urn: str, watermark: Watermark, connections: Connections) -> None:
        """Inform the source how far a dataset is published, if it wants to know."""
        if isinstance(self.source, InformedSource):
            self.source.inform(urn, watermark, connections)


def _dead_letter_steps(plan: Plan, result: UnitResult, files: Files) -> Iterator[CommitStep]:
    stem = f"{plan.folder}/{dead_letters.FOLDER}/{plan.token}-{result.unit}"
    for index, file in enumerate(result.files_of_dead_letters):
        yield publish_file(file, Layout.FLAT.path(stem, index, "parquet"), result.unit, files)


def _of_rows(dataset: DatasetLike) -> Dataset:
    assert isinstance(dataset, Dataset)
    return dataset


def _no_ranges(urn: str, cause: str, hint: str) -> NoSuchRangeError:
    return NoSuchRangeError(operation="backfill", subject=f"dataset {urn!r}", cause=cause, hint=hint)
