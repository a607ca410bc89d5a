"""The path of a row through a Spark task: read → convert → check → write, a batch at a time.

Counts, the actual high, sizes and checksums are taken on the way, never by a second pass. Any error of a unit makes its result
FAILED, with the first error and without a secret; its staged files are removed.
"""

from __future__ import annotations

import contextlib
import copy
import posixpath
import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import (
    ConfigurationError,
    GobblinError,
    Remedy,
    SchemaConflictError,
    SourceError,
)
from airflow_gobblin.model import dead_letters, wire
from airflow_gobblin.model import schema as schemas
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.table import DataFile
from airflow_gobblin.model.watermark import Json, Watermark, encode
from airflow_gobblin.model.work import StagedFile, UnitResult, UnitState, WorkUnit
from airflow_gobblin.rows.converters.base import Converter, Refuser, RefusingConverter, RowCheck, check_refuser
from airflow_gobblin.rows.refusals import Refusals, good_rows
from airflow_gobblin.rows.sinks.base import TableWriter, Writer
from airflow_gobblin.rows.sinks.parquet_files import dead_letter_files
from airflow_gobblin.rows.sources.base import OrderedReader, Reader, ReadRequest, RefusedRows
from airflow_gobblin.rows.tables import place_of
from airflow_gobblin.rows.work import RowsBinding, RowsWork
from airflow_gobblin.storage.files.base import Files


def converted_schema(converters: Sequence[Converter], checks: Sequence[RowCheck], source: pa.Schema) -> pa.Schema:
    """Return the schema that the converters produce, for planning. They and the checks are tried on a batch without rows, so that
    unsuitable ones are found before anything is read.

    :raises ConfigurationError: a converter or check doesn't work on these columns, or produces another schema than it declares.
    """
    empty = [pa.nulls(0, field.type) for field in source]  # a call that takes Python's objects would load pandas
    batch = pa.RecordBatch.from_arrays(empty, schema=source)
    for converter in converters:
        if isinstance(converter, RefusingConverter):
            _check_refuser(converter)
        promised = converter.schema(batch.schema)
        batch = converter.convert(batch)
        if not batch.schema.equals(promised, check_metadata=False):
            raise ConfigurationError(
                operation="use",
                subject=f"converter {converter!r}",
                cause=f"it promised {_columns(promised)} and gives {_columns(batch.schema)}",
            )
    for check in checks:
        _check_refuser(check)
        good_rows(check, batch)
    return batch.schema


def _check_refuser(refuser: Refuser) -> None:
    check_refuser(refuser, refuser.on_bad, getattr(refuser, "at_most", None))


def extract_unit(
    job: RowsWork,
    plan: Plan,
    unit: WorkUnit,
    attempt: str,
    files: Files,
    staging_folder: str,
    connections: Connections,
    snapshot: str = "",
) -> UnitResult:
    """Read one work unit into staged files in its own folder, `<staging_folder>/<attempt>/<unit>-<random>/`.

    Every Spark task attempt has a folder of its own, with nothing else in it; only the attempt whose result the driver accepts
    counts. So a step may publish the folder of a unit's files by a rename: nobody still writes to it.

    :param staging_folder: the folder of the plan's staged files, relative to the root of `files`.
    :param snapshot: the snapshot to read in, as `PackSnapshot.of` returns it for the plan.
    :return: a SUCCESSFUL result, or a FAILED one with the first error. If the plan is read in order, a FAILED one has the files
        that hold what came before the error, up to a position.
    :raises BaseException: only one that isn't an `Exception` and shows no secret.
    """
    started = time.monotonic()
    if unit.empty:
        high = unit.expected_high
        return UnitResult(unit.id, attempt, UnitState.SUCCESSFUL, actual_high=high, expected_rows=0, snapshot=snapshot)
    folder = posixpath.join(staging_folder, attempt, f"{unit.id}-{secrets.token_hex(8)}")
    guarded = connections if isinstance(connections, GuardedConnections) else GuardedConnections(connections)
    way = _UnitRun(job, plan, unit, snapshot)
    try:
        staged = way.run(files, folder, guarded, attempt)
    except BaseException as error:
        with contextlib.suppress(OSError):
            files.remove_tree(folder)
        if not isinstance(error, Exception) and not guarded.redactor.shows_secret(error):
            raise
        failure = Failure.of(_described(way.stopped or error, plan, unit), guarded.redactor.brief)
        return way.result(attempt, UnitState.FAILED, started, failure=failure)
    if way.stopped is not None:
        failure = Failure.of(_described(way.stopped, plan, unit), guarded.redactor.brief)
        return way.result(attempt, UnitState.FAILED, started, staged, failure, cut=True)
    return way.result(attempt, UnitState.SUCCESSFUL, started, staged)


@dataclass
class _Tally:
    """The counts of a unit. After each batch, read + added = written + refused."""

    read: int = 0
    added: int = 0
    converted: int = 0
    written: int = 0
    batches: int = 0
    arrow_bytes: int = 0
    read_seconds: float = 0.0
    write_seconds: float = 0.0

    def metrics(self) -> dict[str, float]:
        return {
            "batches": self.batches,
            "arrow_bytes": self.arrow_bytes,
            "rows_added": self.added,
            "read_seconds": self.read_seconds,
            "write_seconds": self.write_seconds,
        }


@dataclass(frozen=True)
class _End:
    """A reader's report after its last batch, and in the end also the properties that the writer left."""

    actual_high: Watermark | None = None
    expected_rows: int | None = None
    properties: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class _Staged:
    """The staged files of a unit."""

    rows: tuple[StagedFile, ...] = ()
    dead_letters: tuple[StagedFile, ...] = ()
    data_files: tuple[DataFile, ...] = ()


_NOTHING = _Staged()


class _UnitRun:
    """The extraction of one unit."""

    def __init__(self, job: RowsWork, plan: Plan, unit: WorkUnit, snapshot: str) -> None:
        self._job = job
        self._plan = plan
        self._binding = RowsBinding.of(plan)
        self._unit = unit
        self._snapshot = snapshot
        self._tally = _Tally()
        self._refusals: Refusals | None = None
        self._end = _End()
        self.stopped: Exception | None = None
        """The error that it was cut at."""
        self._started = time.monotonic()
        self._late = False

    def run(self, files: Files, folder: str, connections: Connections, attempt: str) -> _Staged:
        self._check_snapshot()
        assert self._plan.schema is not None
        incoming = schemas.decode(self._binding.source_schema)
        published = schemas.decode(self._plan.schema)
        request = ReadRequest(self._binding.limits, self._job.options, self._snapshot, self._binding.in_order)
        reader = self._job.source.read(self._unit, incoming, request, connections)
        try:
            stem = f"{self._plan.folder}/{self._plan.token}-{self._unit.id}"
            writer = self._open(published, files, folder, stem, attempt, connections)
            self._refusals = refusals = self._refusing(files, folder)
            try:
                pass_all = self._pass_in_order if self._binding.in_order else self._pass_all
                end = pass_all(cast(OrderedReader, reader), incoming, published, writer, refusals)
                wire.canonical(wire.to_json(end.properties))  # properties that can't be stored fail this unit only
                self._end = end
                self._reconcile(end)
                refusals.check_bounds()
                staged = self._finish(writer)
                letters = refusals.close()
                self._end = replace(end, properties=self._left(end, writer))
                if self._plan.table is not None:
                    return _Staged((), letters, cast("TableWriter", writer).data_files)
                return _Staged(staged, letters)
            except BaseException:
                for opened in (writer, refusals):
                    with contextlib.suppress(Exception):  # the first error is the one to report
                        opened.abort()
                raise
        finally:
            with contextlib.suppress(Exception):  # nothing more is needed from it
                reader.close()

    def _refusing(self, files: Files, folder: str) -> Refusals:
        """Return what judges the unit's rows, and keeps dead letters beside the dataset's files."""
        published = f"{self._plan.folder}/{dead_letters.FOLDER}/{self._plan.token}-{self._unit.id}"
        return Refusals(
            self._unit.id, self._subject, lambda: dead_letter_files(files, f"{folder}/dead_letters", published)
        )

    def result(
        self,
        attempt: str,
        state: UnitState,
        started: float,
        staged: _Staged = _NOTHING,
        failure: Failure | None = None,
        *,
        cut: bool = False,
    ) -> UnitResult:
        """Return the unit's result. Properties that a reader leaves for the next run are kept for a failed unit too, if it was
        read to its end; those of a writer only for a successful one.

        :param cut: whether it failed, and its files hold all before its end.
        """
        tally, end, refusals = self._tally, self._end, self._refusals
        return UnitResult(
            unit=self._unit.id,
            attempt=attempt,
            state=state,
            actual_high=end.actual_high if state is UnitState.SUCCESSFUL or cut else None,
            files=(*staged.rows, *staged.dead_letters),
            rows_read=tally.read,
            rows_written=tally.written,
            rows_dropped=0 if refusals is None else refusals.dropped,
            dead_letters=0 if refusals is None else refusals.dead,
            dead_letter_files=len(staged.dead_letters),
            expected_rows=end.expected_rows,
            seconds=time.monotonic() - started,
            metrics=tally.metrics() | ({} if refusals is None else refusals.metrics),
            properties=end.properties,
            failure=failure,
            ended=time.time(),
            snapshot=self._snapshot,
            data_files=staged.data_files,
        )

    def _open(
        self, schema: pa.Schema, files: Files, folder: str, stem: str, attempt: str, connections: Connections
    ) -> Writer:
        """Start the staged files of the unit."""
        if self._plan.table is None:
            return self._job.sink.open(schema, files, f"{folder}/{self._unit.id}", stem)
        table, token, unit = self._plan.table, self._plan.token, self._unit.id
        files, folder = place_of(table, token, unit, attempt, folder, files, connections)
        return self._job.sink.open(schema, files, folder, self._unit.id)

    def _check_snapshot(self) -> None:
        """Check that the code that runs a one-snapshot plan's units holds the snapshot."""
        if self._plan.one_snapshot and not self._snapshot:
            raise GobblinError(
                operation="extract",
                subject=self._subject,
                cause="its plan is to be read in one snapshot, and none is held",
                hint="This is a fault of the code that runs its units: it gives each the snapshot of its pack.",
            )

    def _pass_all(
        self, reader: Reader, incoming: pa.Schema, published: pa.Schema, writer: Writer, refusals: Refusals
    ) -> _End:
        """Pass on a reader's batches, up to a limit: a reader that doesn't keep to it is stopped between two positions.

        :raises SourceError: it goes on after a limit, and can't be stopped.
        """
        placed = hasattr(reader, "position")
        for batch in self._timed(reader):
            if not placed:
                self._check_limits(batch)
            self._refuse(reader, batch, refusals)
            self._pass(batch, incoming, published, writer, refusals)
            at: Watermark | None = getattr(reader, "position", None) if self._met is not None else None
            if at is not None and self._unit.low is not None and not Range(self._unit.low, at).empty:
                return _End(at, None, reader.properties)
        return _End(reader.actual_high, reader.expected_rows, reader.properties)

    def _pass_in_order(
        self, reader: OrderedReader, incoming: pa.Schema, published: pa.Schema, writer: Writer, refusals: Refusals
    ) -> _End:
        """Pass on the batches of a reader in order, up to a limit; or up to an error of the reader, a converter or a check, which
        is kept in `stopped`.

        :raises Exception: that error, if nothing before it can be published: nothing was read, or a part of a position is
            written already.
        """
        low, batches = self._unit.low, self._timed(reader)
        assert low is not None
        cut: Watermark | None = low
        known = low
        while True:
            batch, rows, go_back = None, 0, self._remember(refusals)
            try:
                batch = next(batches, None)
                if batch is None:
                    return _End(reader.actual_high, reader.expected_rows, reader.properties)
                rows = 0 if self._refuse(reader, batch, refusals) else batch.num_rows
                good = self._ready(batch, incoming, published, refusals)
            except Exception as error:
                go_back()
                if batch is not None and rows:
                    good_rows = self._good_rows(batch, incoming, published, refusals)
                    rows, at = self._cut(reader, good_rows, cut, known, error)
                    if rows:
                        self._write(self._ready(batch.slice(0, rows), incoming, published, refusals), writer, refusals)
                        cut = at
                if cut is None or Range(low, cut).empty:
                    raise
                self.stopped = error
                return _End(cut, None, reader.properties)
            self._write(good, writer, refusals)
            cut = reader.position
            known = known if cut is None else cut
            if cut is not None and self._met is not None and not Range(low, cut).empty:
                return _End(cut, None, reader.properties)

    def _good_rows(self, batch: pa.RecordBatch, incoming: pa.Schema, published: pa.Schema, refusals: Refusals) -> int:
        """Return how many rows of a batch come before its first bad one."""
        good, bad = 0, batch.num_rows
        while bad - good > 1:
            middle, go_back = (good + bad) // 2, self._remember(refusals)
            try:
                self._ready(batch.slice(0, middle), incoming, published, refusals)
                good = middle
            except Exception:  # the first error is the one to report
                bad = middle
            go_back()
        return good

    def _cut(
        self, reader: OrderedReader, good: int, cut: Watermark | None, known: Watermark, error: Exception
    ) -> tuple[int, Watermark]:
        """Return the place at which the reader cuts its last batch.

        :param good: how many rows come before the bad one.
        :param cut: where the batches before it end; `None` within a position.
        :param known: the last place between two positions before it.
        :param error: the one of the bad row.
        :raises SourceError: it isn't in the batch.
        """
        rows, at = reader.cut(good)
        if rows == 0:
            return rows, at
        end = reader.position
        early = not Range(at, known).empty or (cut is None and Range(known, at).empty)
        late = end is not None and Range(at, end).empty
        if early or late or not 0 < rows <= good:
            until = "" if end is None else f" and ends before {encode(end)['value']}"
            raise SourceError(
                operation="extract",
                subject=self._subject,
                cause=f"its reader is to cut a batch, which begins at {encode(known)['value']}{until}, within its first {good} "
                f"rows, and cuts it after {rows}, at {encode(at)['value']}; the row after those is bad: {error}",
                hint="This is a fault of the source's code: `cut` counts rows of the last batch, and its position is that of the "
                "row after them.",
            ) from error
        return rows, at

    def _remember(self, refusals: Refusals) -> Callable[[], None]:
        """Return a function that takes back all counts from now on."""
        tally, take_back = copy.copy(self._tally), refusals.remember()

        def go_back() -> None:
            self._tally = copy.copy(tally)
            take_back()

        return go_back

    @property
    def _met(self) -> str | None:
        """The first limit that has been reached by now."""
        limits, tally = self._binding.limits, self._tally
        reached = {"rows": tally.read, "bytes": tally.arrow_bytes, "seconds": time.monotonic() - self._started}
        of = ((name, getattr(limits, name), value) for name, value in reached.items())
        return next((f"{limit} {name}" for name, limit, value in of if limit is not None and value >= limit), None)

    def _check_limits(self, batch: pa.RecordBatch) -> None:
        """Refuse rows after a limit, except one batch for which a reader that checks the time beforehand may have waited.

        :param batch: the next batch.
        """
        most = self._binding.limits.rows
        over = f"{most} rows" if most is not None and self._tally.read + batch.num_rows > most else None
        met = over or (self._met if self._tally.read and batch.num_rows else None)
        waited = met is not None and met.endswith(" seconds") and not self._late
        if waited:
            self._late = True
        elif met is not None:
            raise SourceError(
                operation="extract",
                subject=self._subject,
                cause=f"its reader goes on after the limit of {met}, and doesn't report where it could be stopped",
                hint="This is a fault of the source's code: let the reader keep to the limits of its request, or give it a "
                "`position`. Or take the limits off.",
            )

    def _timed(self, reader: Reader) -> Iterator[pa.RecordBatch]:
        batches = iter(reader)
        while True:
            started = time.monotonic()
            batch = next(batches, None)
            self._tally.read_seconds += time.monotonic() - started
            if batch is None:
                return
            yield batch

    def _refuse(self, reader: Reader, batch: pa.RecordBatch, refusals: Refusals) -> bool:
        """Put away what the reader refused besides a batch; return whether there was anything."""
        refused: RefusedRows | None = getattr(reader, "refused", lambda: None)()
        if refused is not None:
            refusals.refuse(refused, batch.num_rows)
            self._tally.read += refused.rows.num_rows
            self._tally.arrow_bytes += refused.rows.nbytes + sum(len(one or b"") for one in refused.raw or ())
        return refused is not None and bool(refused.reasons)

    def _pass(
        self, batch: pa.RecordBatch, incoming: pa.Schema, published: pa.Schema, writer: Writer, refusals: Refusals
    ) -> None:
        self._write(self._ready(batch, incoming, published, refusals), writer, refusals)

    def _ready(
        self, batch: pa.RecordBatch, incoming: pa.Schema, published: pa.Schema, refusals: Refusals
    ) -> pa.RecordBatch:
        """Return the rows of a batch to write: converted, checked, and in the published schema."""
        tally = self._tally
        _expect_columns(batch, incoming, self._subject)
        before = tally.read
        tally.batches += 1
        tally.read += batch.num_rows
        tally.arrow_bytes += batch.nbytes
        for converter in self._job.converters:
            if isinstance(converter, RefusingConverter):
                batch = refusals.judge((converter,), batch, before)
            rows, batch = batch.num_rows, converter.convert(batch)
            tally.added += max(0, batch.num_rows - rows)
            if batch.num_rows < rows:
                refusals.converted(converter, rows - batch.num_rows)
        good = refusals.judge(self._job.checks, batch, tally.converted)
        tally.converted += batch.num_rows
        return conform(good, published, self._subject, cast=self._plan.table is not None)

    def _write(self, rows: pa.RecordBatch, writer: Writer, refusals: Refusals) -> None:
        started = time.monotonic()
        writer.write(rows)
        refusals.keep()
        self._tally.write_seconds += time.monotonic() - started
        self._tally.written += rows.num_rows

    def _reconcile(self, end: _End) -> None:
        """Check that rows and position are what the source reports and the plan allows."""
        expected = end.expected_rows
        if expected is not None and expected != self._tally.read:
            raise SourceError(
                operation="extract",
                subject=self._subject,
                cause=f"{self._tally.read} rows were read, and the source expects {expected}",
                hint="Rows came late or went. If it happens again, give the source a longer lag.",
                remedy=Remedy.EXTRACT,
            )
        if self._unit.low is not None:
            self._check_high(self._unit.low, end.actual_high)

    def _check_high(self, low: Watermark, actual: Watermark | None) -> None:
        planned = self._unit.expected_high
        if planned is None and self._plan.planned is not None and not self._plan.open_end:
            planned = self._plan.planned.high
        if actual is None:
            cause = "its reader doesn't report where it ended (actual_high)"
        elif not Range(actual, low).empty or (planned is not None and not Range(planned, actual).empty):
            cause = f"it ended at {actual.to_json()}, outside of its range {_range(low, planned)}"
        elif self._tally.read and Range(low, actual).empty:  # no run would cover them, and each would publish them
            cause = f"it gave {many(self._tally.read, 'row')}, and ended where it began, at {actual.to_json()}"
        else:
            return
        raise SourceError(
            operation="extract", subject=self._subject, cause=cause, hint="This is a fault of the source's code."
        )

    def _finish(self, writer: Writer) -> tuple[StagedFile, ...]:
        started = time.monotonic()
        staged = writer.close()
        self._tally.write_seconds += time.monotonic() - started
        rows = sum(file.rows for file in staged)
        if rows != self._tally.written:
            raise GobblinError(
                operation="extract",
                subject=self._subject,
                cause=f"the sink was given {self._tally.written} rows, and its files hold {rows}",
                hint="This is a fault of the sink's code.",
            )
        return staged

    def _left(self, end: _End, writer: Writer) -> dict[str, Json]:
        """Return the properties that reader and writer leave for the next run, together."""
        left = dict(writer.properties)
        if both := sorted(left.keys() & end.properties.keys()):
            raise GobblinError(
                operation="extract",
                subject=self._subject,
                cause=f"its reader and its writer both leave the property {both[0]!r} for the next run",
                hint="This is a fault of the source's or the sink's code: give it another name in one of them.",
            )
        wire.canonical(wire.to_json(left))
        return {**end.properties, **left}

    @property
    def _subject(self) -> str:
        return f"unit {self._unit.id!r} of dataset {self._plan.urn!r}"


def conform(batch: pa.RecordBatch, published: pa.Schema, subject: str, *, cast: bool = False) -> pa.RecordBatch:
    """Return the batch in the published schema: columns in the published order, and nulls for those that the source has lost.

    :param cast: whether columns are cast to the published types: those of a table, which hold the planned ones.
    :raises SchemaConflictError: a column is of another type, is not published, or has nulls and must not; or a value can't be
        cast.
    """
    problems = [
        f"column {name!r} is not in the published schema" for name in batch.schema.names if name not in published.names
    ]
    columns = []
    for wanted in published:
        if wanted.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, wanted.type))
        else:
            columns.append(_cast(batch.column(wanted.name), wanted, subject) if cast else batch.column(wanted.name))
        if columns[-1].type != wanted.type:
            problems.append(f"column {wanted.name!r} is {columns[-1].type} and is published as {wanted.type}")
        elif columns[-1].null_count and not wanted.nullable:
            problems.append(f"column {wanted.name!r} is published as not null, and a row has no value there")
    if problems:
        raise SchemaConflictError(
            operation="extract",
            subject=subject,
            cause="; ".join(problems),
            hint="The plan may be of before the change; else cast the columns back, or publish under another URN.",
            remedy=Remedy.PLAN,
        )
    return pa.RecordBatch.from_arrays(columns, schema=published)


def _cast(column: pa.Array, wanted: pa.Field, subject: str) -> pa.Array:
    if column.type == wanted.type:
        return column
    try:
        return column.cast(wanted.type)
    except pa.ArrowException as error:
        raise SchemaConflictError(
            operation="extract",
            subject=f"column {wanted.name!r} of {subject}",
            cause=f"a value can't be kept as {wanted.type}: {error}",
            hint="Cast the column in the source's `casts`, or leave such rows out.",
        ) from error


def _expect_columns(batch: pa.RecordBatch, planned: pa.Schema, subject: str) -> None:
    if batch.schema.names != planned.names or batch.schema.types != planned.types:
        raise SchemaConflictError(
            operation="read",
            subject=subject,
            cause=f"planned was {_columns(planned)}, and the source gives {_columns(batch.schema)}",
            hint="The source changed since the plan was made.",
            remedy=Remedy.PLAN,
        )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "no columns"


def _range(low: Watermark, high: Watermark | None) -> str:
    return f"[{low.to_json()}, {'…' if high is None else high.to_json()})"


def _described(error: BaseException, plan: Plan, unit: WorkUnit) -> GobblinError:
    """Return an error as one of ours; an unforeseen one names where it was raised."""
    if isinstance(error, GobblinError):
        return error
    at = traceback.extract_tb(error.__traceback__)[-1]
    raised = f"Raised by {at.name} in {at.filename}, line {at.lineno}"
    return GobblinError(
        operation="extract",
        subject=f"unit {unit.id!r} of dataset {plan.urn!r}",
        cause=error,
        hint=f"{_needed(plan)} {raised}" if isinstance(error, PermissionError) else raised,
    )


def _needed(plan: Plan) -> str:
    """Name the permission that its units need: a store may answer that it is lacking, but not for what."""
    target = (
        "the target" if plan.table is None else f"{plan.table.location or 'the workspace'}, for {plan.table.table.name}"
    )
    return f"Spark's tasks need permission to read the source, and to write to {target}."
