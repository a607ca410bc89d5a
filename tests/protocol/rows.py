"""A source and a sink that are as small as possible: rows made from their position, and text files of one row a line."""

from __future__ import annotations

import posixpath
import secrets
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import NoSuchRangeError
from airflow_gobblin.model.batch import Backlog
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.request import Bound, RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Json, LongWatermark, Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import (
    Dataset,
    Extract,
    ExtractKind,
    Limits,
    StagedFile,
    UnitResult,
    UnitState,
    WorkUnit,
)
from airflow_gobblin.rows.sinks.base import Layout, publish_units
from airflow_gobblin.rows.sources.base import (
    Consistency,
    DatasetPlan,
    PlanRequest,
    Reader,
    ReadRequest,
)
from airflow_gobblin.rows.work import RowsBinding, RowsWork
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files import Files, StagedOutput
from tests.protocol.acts import Fences, stage_ticket, with_acts

if TYPE_CHECKING:
    from airflow_gobblin.model.plan import Plan

SCHEMA = pa.schema([pa.field("row", pa.string(), nullable=False)])


@dataclass(frozen=True)
class Table:
    """A dataset whose rows follow from their positions, 0 to `rows`.

    :param version: what it shows; the rows of a snapshot name it, and others' from the second on.
    :param unit_rows: how many rows a work unit has. :param kept_from: where its rows begin, if it reports that.
    :param waited: the seconds that its oldest uncovered row waits. :param used: the share of what it keeps that has gone by.
    """

    urn: str
    extract: ExtractKind
    rows: int
    version: int = 0
    unit_rows: int = 4
    kept_from: int | None = None
    waited: float | None = None
    used: float = 0.0

    @property
    def snapshot(self) -> bool:
        return self.extract is ExtractKind.SNAPSHOT_ONLY

    def row(self, position: int) -> str:
        at = f"v{self.version}/" if self.snapshot or self.version else ""
        return f"{self.urn}/{at}{position}"

    def backlog(self, rows: int, at: datetime) -> Backlog:
        """What waits, if it is a number of rows. A row is one byte for each letter that it has."""
        size = rows * len(f"{self.row(0)}\n")
        return Backlog(
            at, rows, size, None if self.waited is None else at - timedelta(seconds=self.waited), None, self.used
        )

    def all_rows(self) -> Counter[str]:
        return Counter(self.row(n) for n in range(self.rows))


@record("test.rows")
@dataclass(frozen=True)
class RowSource:
    """Tables as they are at one moment; later states of them are another `RowSource`."""

    tables: tuple[Table, ...]
    connection_ids: ClassVar[tuple[str, ...]] = ()

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return ()

    def table(self, urn: str) -> Table:
        return next(t for t in self.tables if t.urn == urn)

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        return tuple(Dataset(t.urn, Extract(t.extract, "test", t.urn)) for t in self.tables)

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        """Everything uncovered up to the end of the request (its seconds are a position), in units of `unit_rows`."""
        table = self.table(dataset.urn)
        end = table.rows if request.end is None else min(table.rows, int(request.end.timestamp()))
        origin = states[dataset.urn].coverage.origin if dataset.urn in states else None
        wanted = Range(origin or LongWatermark(0), LongWatermark(end))
        open_ranges = (wanted,) if table.snapshot else states[dataset.urn].coverage.uncovered(wanted)
        open_ranges = request.ranges or open_ranges
        pieces = [
            (low, min(low + table.unit_rows, r.high.value))
            for r in open_ranges
            if isinstance(r.low, LongWatermark) and isinstance(r.high, LongWatermark)
            for low in range(r.low.value, r.high.value, table.unit_rows)
        ]
        units = tuple(
            WorkUnit(f"u{n}", dataset.urn, LongWatermark(low), LongWatermark(high), weight=high - low)
            for n, (low, high) in enumerate(pieces)
        )
        low = 0 if request.ranges and origin is None else pieces[0][0] if pieces else 0
        planned = Range(LongWatermark(low), LongWatermark(pieces[-1][1])) if pieces else None
        kept_from = None if table.kept_from is None else LongWatermark(table.kept_from)
        backlog = table.backlog(sum(high - low for low, high in pieces), request.now)
        return DatasetPlan(units, SCHEMA, planned, kept_from, Consistency.UNCHANGING, backlog)

    def resolve(self, dataset: Dataset, request: RangeRequest, connections: Connections) -> Range:
        """Its bounds are positions, or seconds that are."""
        rows = self.table(dataset.urn).rows
        low, high = _position(request.start), rows if request.end is None else min(rows, _position(request.end))
        if low >= high:
            raise NoSuchRangeError(operation="backfill", subject=f"table {dataset.urn!r}", cause=f"it ends at {rows}")
        return Range(LongWatermark(low), LongWatermark(high))

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        return RowReader(self.table(unit.urn), unit, request.limits)


def _position(bound: Bound) -> int:
    return bound if isinstance(bound, int) else int(bound.timestamp())


class RowReader:
    """One unit, in batches of two rows."""

    expected_rows: int | None = None

    def __init__(self, table: Table, unit: WorkUnit, limits: Limits) -> None:
        assert isinstance(unit.low, LongWatermark)
        assert isinstance(unit.expected_high, LongWatermark)
        self._table = table
        self._low = unit.low.value
        self._high = unit.expected_high.value
        if limits.rows is not None:
            self._high = min(self._high, self._low + limits.rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for low in range(self._low, self._high, 2):
            rows = [self._table.row(n) for n in range(low, min(low + 2, self._high))]
            yield pa.record_batch([pa.array(rows, pa.string())], SCHEMA)
        self.expected_rows = self._high - self._low

    @property
    def actual_high(self) -> Watermark | None:
        return LongWatermark(self._high)

    @property
    def properties(self) -> Mapping[str, Json]:
        return {}

    def close(self) -> None:
        pass


@record("test.lines")
@dataclass(frozen=True)
class LineSink:
    """Text files, one row a line; with a folder per unit, one file a row.

    :param acts: publish in all phases, with an act that is possible once only, and is fenced like this.
    """

    target: str
    suffix: str = "txt"
    layout: Layout = Layout.FLAT
    acts: Fences | None = None

    def folder(self, dataset: Dataset) -> str:
        return dataset_key(dataset.urn)

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        return planned

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> LineWriter:
        return LineWriter(self, files, staged, published)

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        moves = publish_units(plan, results, files, self.layout, self.suffix)
        return moves if self.acts is None else with_acts(plan, moves, self.acts)


class LineWriter:
    """The files of a unit. Two attempts write the same rows in other bytes, as writers of compressed files may."""

    def __init__(self, sink: LineSink, files: Files, staged: str, published: str) -> None:
        self._sink = sink
        self._files = files
        self._stems = (staged, published)
        self._end = " " * (uuid.uuid4().int % 8) + "\n"
        self._out: StagedOutput | None = None
        self._rows = 0
        self._done: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.write_rows(batch.column(0).to_pylist())

    def write_rows(self, rows: Sequence[str]) -> None:
        """As `write`, without Arrow."""
        in_folder = self._sink.layout is Layout.FOLDER_PER_UNIT
        for some in [[row] for row in rows] if in_folder else [rows]:
            if self._out is None:
                self._out = self._files.stage(*self._names())
            self._out.write("".join(f"{row}{self._end}" for row in some).encode())
            self._rows += len(some)
            if in_folder:
                self._finish(self._out)

    def _names(self) -> tuple[str, str]:
        staged, published = (self._sink.layout.path(stem, len(self._done), self._sink.suffix) for stem in self._stems)
        return staged, published

    def _finish(self, out: StagedOutput) -> None:
        self._done.append(out.finish(self._rows))
        self._out, self._rows = None, 0

    def close(self) -> tuple[StagedFile, ...]:
        if self._out is not None:
            self._finish(self._out)
        if self._done:
            folder = posixpath.dirname(self._names()[0])
            if self._sink.acts:
                stage_ticket(self._files, folder)
            self._files.sync_folder(folder)
        return tuple(self._done)

    @property
    def properties(self) -> Mapping[str, Json]:
        return {}

    def abort(self) -> None:
        if self._out is not None:
            self._out.abort()


def stage_rows(
    job: RowsWork,
    plan: Plan,
    unit: WorkUnit,
    attempt: str,
    files: Files,
    staging_folder: str,
    connections: Connections,
) -> UnitResult:
    """As `extraction.extract_unit` for a `RowSource` and a `LineSink`: the same staged files, without Arrow on the way."""
    source, sink = job.source, job.sink
    assert isinstance(source, RowSource)
    assert isinstance(sink, LineSink)
    limits = RowsBinding.of(plan).limits
    table, low, high = source.table(unit.urn), unit.low, unit.expected_high
    assert isinstance(low, LongWatermark)
    assert isinstance(high, LongWatermark)
    if limits.rows is not None:
        high = min(high, LongWatermark(low.value + limits.rows))
    staged = f"{staging_folder}/{attempt}/{unit.id}-{secrets.token_hex(8)}/{unit.id}"
    writer = sink.open(SCHEMA, files, staged, f"{plan.folder}/{plan.token}-{unit.id}")
    rows = [table.row(n) for n in range(low.value, high.value)]
    writer.write_rows(rows)
    result = UnitResult(unit.id, attempt, UnitState.SUCCESSFUL, high, writer.close())
    return replace(result, rows_read=len(rows), rows_written=len(rows), expected_rows=len(rows))
