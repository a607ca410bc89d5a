"""A source and a sink that are as small as possible: rows made from their position, and text files of one row a line."""

from __future__ import annotations

import base64
import json
import posixpath
import secrets
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import NoSuchRangeError, SourceError
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
from airflow_gobblin.rows.converters.base import OnBadRow
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
from airflow_gobblin.tables.port import Merge
from tests.protocol.acts import Fences, stage_ticket, with_acts
from tests.protocol.topics import Log, plan_log, read_log, resolve_log

if TYPE_CHECKING:
    from airflow_gobblin.model.plan import Plan

SCHEMA = pa.schema([pa.field("row", pa.string(), nullable=False)])


@dataclass(frozen=True)
class Table:
    """A dataset whose rows follow from their positions, 0 to `rows`.

    :param version: what it shows; the rows of a snapshot name it, and others' from the second on.
    :param unit_rows: how many rows a work unit has.
    :param kept_from: where its rows begin, if it reports that.
    :param ties: how many rows each position has.
    :param partitions: if it has any, it is a topic of so many, whose logs begin at `kept_from`.
    :param waited: the seconds that its oldest uncovered row waits.
    :param used: the share of what it keeps that has gone by.
    """

    urn: str
    extract: ExtractKind
    rows: int
    version: int = 0
    unit_rows: int = 4
    kept_from: int | None = None
    waited: float | None = None
    used: float = 0.0
    partitions: int = 0
    ties: int = 1

    @property
    def log(self) -> Log:
        """A topic's logs."""
        return Log(self.urn, self.partitions, self.rows, self.kept_from or 0)

    def rows_in(self, parts: Iterable[Range]) -> Counter[str]:
        """The rows of ranges, as a topic also if it has lost them since."""
        if self.partitions:
            return Counter(row for part in parts for row in self.log.rows(part))
        bounds = ((part.low, part.high) for part in parts)
        return Counter(row for low, high in bounds for row in self.rows_from(low.value, high.value))  # type: ignore[attr-defined]

    def rows_from(self, low: int, high: int) -> list[str]:
        """The rows of some positions, in order."""
        return [self.row(n) + "'" * tie for n in range(low, high) for tie in range(self.ties)]

    @property
    def snapshot(self) -> bool:
        return self.extract is ExtractKind.SNAPSHOT_ONLY

    def row(self, position: int) -> str:
        at = f"v{self.version}/" if self.snapshot or self.version else ""
        return f"{self.urn}/{at}{position}"

    def backlog(self, rows: int, at: datetime) -> Backlog:
        """The backlog of a number of rows. A row is one byte for each letter that it has."""
        size = rows * len(f"{self.row(0)}\n")
        return Backlog(
            at, rows, size, None if self.waited is None else at - timedelta(seconds=self.waited), None, self.used
        )

    def all_rows(self) -> Counter[str]:
        return Counter(self.rows_from(0, self.rows))


@record("test.rows")
@dataclass(frozen=True)
class RowSource:
    """Tables as they are at one moment; later states of them are another `RowSource`."""

    tables: tuple[Table, ...]
    connection_ids: ClassVar[tuple[str, ...]] = ()
    reads_in_order: ClassVar[bool] = True

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
        if table.partitions:
            return plan_log(table.log, states[dataset.urn], request)
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
        return DatasetPlan(units, SCHEMA, planned, kept_from, Consistency.UNCHANGING, backlog, Merge(("row",)))

    def resolve(self, dataset: Dataset, request: RangeRequest, connections: Connections) -> Range:
        """Its bounds are positions, or seconds that are."""
        rows = self.table(dataset.urn).rows
        if self.table(dataset.urn).partitions:
            return resolve_log(self.table(dataset.urn).log, request)
        low, high = _position(request.start), rows if request.end is None else min(rows, _position(request.end))
        if low >= high:
            raise NoSuchRangeError(operation="backfill", subject=f"table {dataset.urn!r}", cause=f"it ends at {rows}")
        return Range(LongWatermark(low), LongWatermark(high))

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        table = self.table(unit.urn)
        return read_log(table.log, unit, schema) if table.partitions else RowReader(table, unit, request.limits)


def _position(bound: Bound) -> int:
    assert not isinstance(bound, Mapping)
    return bound if isinstance(bound, int) else int(bound.timestamp())


@record("test.even_rows")
@dataclass(frozen=True)
class EvenRows:
    """A check that makes every second row a dead letter."""

    on_bad: ClassVar[OnBadRow] = OnBadRow.DEAD_LETTER

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([is_even(row) for row in texts(batch)], pa.bool_())


def texts(batch: pa.RecordBatch) -> list[str]:
    """The rows of a table, or of a topic, as a sink writes them."""
    if batch.schema.names == SCHEMA.names:
        rows: list[str] = batch["row"].to_pylist()
        return rows
    return [value.decode() for value in batch["value"].to_pylist()]


def dead_row(letter: str) -> str:
    """The row in a dead letter."""
    row = json.loads(letter)
    return str(row["row"]) if "row" in row else base64.b64decode(row["value"]).decode()


def is_even(row: str) -> bool:
    """Whether `EvenRows` takes a row of a `Table`."""
    return row[-1] in "02468"


class RowReader:
    """One unit, in batches of two rows; or of three, which may end within a position."""

    expected_rows: int | None = None

    def __init__(self, table: Table, unit: WorkUnit, limits: Limits) -> None:
        assert isinstance(unit.low, LongWatermark)
        assert isinstance(unit.expected_high, LongWatermark)
        self._ties = table.ties
        self._low = unit.low.value
        self._high = unit.expected_high.value
        if limits.rows is not None:
            self._high = min(self._high, self._low + limits.rows)
        self._rows = table.rows_from(self._low, self._high)
        self._begin = self._end = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        size = 2 if self._ties == 1 else 3
        for begin in range(0, len(self._rows), size):
            self._begin, self._end = begin, min(begin + size, len(self._rows))
            yield pa.record_batch([pa.array(self._rows[begin : self._end], pa.string())], SCHEMA)
        self.expected_rows = len(self._rows)

    @property
    def actual_high(self) -> Watermark | None:
        return LongWatermark(self._high)

    @property
    def position(self) -> Watermark | None:
        """`None` within a position."""
        return None if self._end % self._ties else LongWatermark(self._low + self._end // self._ties)

    def cut(self, rows: int) -> tuple[int, Watermark]:
        at = (self._begin + rows) // self._ties
        return max(0, at * self._ties - self._begin), LongWatermark(self._low + at)

    @property
    def properties(self) -> Mapping[str, Json]:
        return {}

    def close(self) -> None:
        pass


@record("test.failing_rows")
@dataclass(frozen=True)
class FailingRows(RowSource):
    """The same, each of whose readers fails after some batches."""

    after: int = 0

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        return cast(Reader, FailingReader(super().read(unit, schema, request, connections), self.after))


class FailingReader:
    """A reader that fails after some batches."""

    def __init__(self, reader: Reader, after: int) -> None:
        self._reader, self._after = reader, after

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(self._reader):
            if number == self._after:
                raise SourceError(operation="read", subject="a unit", cause="the line is dead")
            yield batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


@record("test.refused_row")
@dataclass(frozen=True)
class RefusedRow:
    """A check that one row fails, and with it its unit."""

    row: str
    on_bad: OnBadRow = OnBadRow.FAIL

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([row != self.row for row in texts(batch)], pa.bool_())


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
        self.write_rows(texts(batch))

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
    rows = table.rows_from(low.value, high.value)
    writer.write_rows(rows)
    result = UnitResult(unit.id, attempt, UnitState.SUCCESSFUL, high, writer.close())
    return replace(result, rows_read=len(rows), rows_written=len(rows), expected_rows=len(rows))
