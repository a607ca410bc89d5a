"""Planning of a table: the ranges to read, and their split into work units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from airflow_gobblin.errors import ConfigurationError, NoSuchRangeError, SourceDataError
from airflow_gobblin.model.batch import Backlog
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.request import Bound, RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import LONGS, LongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind, WorkUnit
from airflow_gobblin.rows.sources.base import Consistency, DatasetPlan, PlanRequest
from airflow_gobblin.rows.sources.sql.dialects import Session, quoted
from airflow_gobblin.rows.sources.sql.positions import AxisKind, DateAxis, LocalAxis, number_of
from airflow_gobblin.rows.sources.sql.scan import EVERY_INTEGER, Extent, Piece, Scan, open_scan
from airflow_gobblin.rows.sources.sql.tables import DEFAULT_LAG, SqlTable
from airflow_gobblin.rows.sources.sql.widths import split_by_width
from airflow_gobblin.tables.port import Merge

_BUCKETS_PER_UNIT = 64
_MAX_BUCKETS = 1000
_DEPTH = 3
"""The most levels at which a bucket with too many rows is split again."""

DELTA = "delta"
"""The property of a unit that names its delta column."""


def plan_table(session: Session, table: SqlTable, state: DatasetState, request: PlanRequest) -> DatasetPlan:
    """Plan the units of a table: all of it for a snapshot, otherwise its uncovered ranges."""
    scan = open_scan(session, table)
    if table.kind is ExtractKind.SNAPSHOT_ONLY:
        return plan_snapshot(scan, request)
    keys = scan.primary_keys
    return replace(plan_ranges(scan, state, request), merge=Merge(keys, table.delta) if keys else None)


def plan_snapshot(scan: Scan, request: PlanRequest) -> DatasetPlan:
    """Plan the whole table as one unit, or as several if it is big and has an integer to split it by.

    It is also one unit if units can't be read in one snapshot of the database. Rows that come before the snapshot is taken
    may have any integer, so the first and last units are open.
    """
    if request.limits.any:
        raise _refused(scan, "a snapshot is read whole or not at all", "Take the limits off, or make it append-only.")
    extent = scan.estimate()
    row_bytes = scan.row_bytes
    count = _unit_count(scan, extent.rows * row_bytes, extent.rows * row_bytes)
    if scan.table.unit_width is not None:
        _check_can_split(scan)
        units = _units(scan, split_by_width(scan, EVERY_INTEGER, extent), row_bytes)
    elif (
        count > 1
        and scan.dialect.shares_snapshots
        and scan.axis is not None
        and extent.least is not None
        and not scan.misplaced()[0]
    ):
        units = _units(scan, _split(scan, EVERY_INTEGER, extent, count), row_bytes)
    else:
        units = (WorkUnit("u0000", scan.table.urn, weight=round(extent.rows * row_bytes)),)
    return DatasetPlan(units, scan.schema, consistency=_consistency(units))


def _consistency(units: Sequence[WorkUnit]) -> Consistency:
    """Return why the units of a load that takes everything show one state of the table."""
    return Consistency.ONE_SNAPSHOT if len(units) > 1 else Consistency.ONE_UNIT


def plan_ranges(scan: Scan, state: DatasetState, request: PlanRequest) -> DatasetPlan:
    """Plan the uncovered ranges up to the request's end, holes first; no units if they have no rows. Or a backfill's ranges.

    :raises SourceError: rows without a position.
    :raises ConfigurationError: the delta column isn't the same as before; or it has no index, and units are read in its order.
    """
    first = state.coverage.origin is None
    takes_all = first and scan.table.kind is ExtractKind.SNAPSHOT_APPEND
    if takes_all and (request.limits.any or request.ranges):
        way_out = "Run it without a range before." if request.ranges else "Take the limits off for it."
        raise _refused(scan, "its first load takes everything", way_out)
    if request.in_order:
        _check_indexed(scan)
    _check_placed(scan)
    wanted = _wanted(scan, state, request)
    backlog = None if request.batch is None else _backlog(scan, state, [extent for _, extent in wanted])
    held = backlog is not None and request.batch is not None and request.batch.holds(backlog)
    if held or (not request.ranges and not any(extent.rows for _, extent in wanted)):
        return DatasetPlan((), scan.schema, backlog=backlog)
    # Without an index, each look at the least value reads the whole table.
    begins_at_least = first and not request.ranges and _start(scan) is None
    least = wanted[0][0].low if begins_at_least else _least(scan)
    _check_kept(scan, state, request.ranges, least)
    row_bytes = scan.row_bytes
    total = sum(extent.rows for _, extent in wanted) * row_bytes
    pieces: list[Piece] = []
    for part, extent in wanted:
        if scan.table.unit_width is not None:
            _check_can_split(scan, takes_all=takes_all)
            pieces += split_by_width(scan, part, extent)
            continue
        whole = request.limits.any or (takes_all and not scan.dialect.shares_snapshots)
        count = 1 if whole else _unit_count(scan, extent.rows * row_bytes, total)
        pieces += _split(scan, part, extent, count)
    low = wanted[0][0].low
    if first and request.ranges:  # a later first load is to begin where it would have begun
        origin = _start(scan) or least
        low = low if origin is None else min(low, origin)
    planned = Range(low, wanted[-1][0].high)
    units = _units(scan, pieces, row_bytes)
    consistency = _consistency(units) if takes_all else Consistency.ONE_UNIT
    return DatasetPlan(units, scan.schema, planned, _kept_from(scan, state, least), consistency, backlog)


def _backlog(scan: Scan, state: DatasetState, extents: Sequence[Extent]) -> Backlog:
    """Return what waits in a table. Its rows are taken to be as large, once published, as those of the last run."""
    _, axis = scan.positions()
    rows = sum(extent.rows for extent in extents)
    learned = state.published_row_bytes
    row_bytes = scan.row_bytes if learned is None else learned
    least = min((axis.position(e.least) for e in extents if e.least is not None), default=None)
    oldest = least.value if isinstance(least, TimestampWatermark) else None
    return Backlog(scan.now, rows, round(rows * row_bytes), oldest)


def _wanted(scan: Scan, state: DatasetState, request: PlanRequest) -> list[tuple[Range, Extent]]:
    """Return the ranges to read, in order, each with its extent."""
    _, axis = scan.positions()
    origin = state.coverage.origin or _start(scan)
    if request.ranges:
        _check_axis(scan, origin or request.ranges[0].low, state)
        return [(part, scan.extent(part.low, part.high)) for part in request.ranges]
    end = end_position(scan, request.end)
    if end is None:
        return []
    if origin is None:  # a first load begins at the least value
        extent = scan.estimate(end)
        return [] if extent.least is None else [(Range(axis.position(extent.least), end), extent)]
    _check_axis(scan, origin, state)
    parts = state.coverage.uncovered(Range(origin, end))
    return [(part, scan.extent(part.low, part.high)) for part in parts]


def resolve_range(session: Session, table: SqlTable, request: RangeRequest) -> Range:
    """Resolve a backfill's range to positions of the delta column, up to where a run may read it now.

    :raises NoSuchRangeError: it is outside the data, or doesn't suit the column.
    """
    scan = open_scan(session, table)
    end, least = end_position(scan), _least(scan)
    if end is None or least is None:
        raise _no_such_range(scan, "it holds no rows", "Backfill it once it has some.")
    low = _asked(scan, request.start)
    high = end if request.end is None else _asked(scan, request.end)
    described = f"from {request.start} to {'its end' if request.end is None else request.end}"
    if not low < end:
        cause = f"{described} is outside its data, which is read up to {end.to_json()} now"
        raise _no_such_range(scan, cause, "Give an earlier range, or the table a shorter lag.")
    if not least < high:
        cause = f"{described} is outside its data, which begins at {least.to_json()}"
        raise _no_such_range(scan, cause, "Give a later range.")
    if not low < high:
        raise _no_such_range(scan, f"no whole day of its dates is {described}", "Give a range of whole days.")
    return Range(low, min(high, end))


def _asked(scan: Scan, bound: Bound) -> Watermark:
    """Return the position of a bound from a person. In a date column, a date (a time of midnight UTC) is that day."""
    _, axis = scan.positions()
    if axis.kind is AxisKind.DATE and isinstance(bound, datetime) and bound.astimezone(UTC).time() == time():
        return TimestampWatermark(bound)
    return _position(scan, bound)


def _position(scan: Scan, bound: Bound) -> Watermark:
    """Return the position of a bound. In a column of dates it is that of its day, in the table's zone."""
    delta, axis = scan.positions()
    integers = axis.kind is AxisKind.INTEGER
    if isinstance(bound, Mapping) or isinstance(bound, int) is not integers:
        what = "a time" if isinstance(bound, datetime) else "a position"
        give = "its values, as integers" if integers else "points in time"
        raise _no_such_range(
            scan,
            f"{bound} is {what}, and its delta column {delta.name!r} is of kind {axis.kind.value}",
            f"Give start and end as {give}; or leave this dataset out of the backfill.",
        )
    if isinstance(bound, int):
        return LongWatermark(bound)
    if axis.kind is AxisKind.DATE:
        return DateAxis().position(bound.astimezone(ZoneInfo(scan.table.timezone)).date())
    return TimestampWatermark(bound)


def _check_kept(scan: Scan, state: DatasetState, ranges: Sequence[Range], least: Watermark | None) -> None:
    """Refuse to replace rows that the table has removed since they were published: they can't be published anew."""
    for unit in state.live.values():
        part = unit.range
        if part is None or least is None or not part.low < least or not any(part.overlaps(asked) for asked in ranges):
            continue
        left = scan.extent(part.low, part.high).rows
        if left < unit.rows_read:
            raise _no_such_range(
                scan,
                f"{many(unit.rows_read, 'row')} of range {part} were published, and it has {left} of them left: it begins at "
                f"{least.to_json()} now, so the rows published before would be lost",
                f"Nothing was changed. Give a range from {part.high.to_json()} on.",
            )


def _kept_from(scan: Scan, state: DatasetState, least: Watermark | None) -> Watermark | None:
    """Return the position from which the table still has its published rows, judged by its least value and the unit there."""
    known = state.kept_from
    if least is None or (known is not None and not known < least):
        return known
    for unit in state.live.values():
        part = unit.range
        if part is None or not part.low < least or not least < part.high:
            continue
        return part.low if scan.extent(part.low, part.high).rows >= unit.rows_read else least
    return least


def _least(scan: Scan) -> Watermark | None:
    """Return the position of the least value, if there is one."""
    _, axis = scan.positions()
    least = scan.least()
    return None if least is None else axis.position(least)


def end_position(scan: Scan, end: datetime | None = None) -> Watermark | None:
    """Return where a run ends: the lag before now by the database's clock, or before the greatest key; `None` if there is no key.

    :param end: the end of the run's interval: a run ends there, if that is sooner. A date column is read up to the last
        complete day.
    """
    _, axis = scan.positions()
    lag = scan.table.lag
    if axis.kind is AxisKind.INTEGER:
        if isinstance(lag, float):
            raise _refused(
                scan, "its lag is a time, and its delta column an integer", "Give the lag in key units, as an int."
            )
        greatest = scan.greatest()
        if not isinstance(greatest, int):
            return None
        return LongWatermark(max(LONGS[0], greatest + 1 - (lag if isinstance(lag, int) else 0)))
    if isinstance(lag, int):
        raise _refused(scan, "its lag is an integer, and its delta column a time", "Give the lag as a timedelta.")
    at = scan.now - (DEFAULT_LAG if lag is None else timedelta(seconds=lag))  # type: ignore[arg-type]
    at = min(at, end) if end is not None else at
    return _position(scan, at)


def _start(scan: Scan) -> Watermark | None:
    """Return the start value as a position of the table, if one is given."""
    _, axis = scan.positions()
    start = scan.table.start
    if isinstance(start, datetime):
        if start.tzinfo is not None:
            return TimestampWatermark(start)
        zone = "UTC" if axis.kind is AxisKind.DATE else scan.table.timezone
        return LocalAxis(ZoneInfo(zone)).position(start)
    return LongWatermark(start) if isinstance(start, int) else start


def _check_indexed(scan: Scan) -> None:
    """Refuse to read in the order of a delta column without an index: each unit would sort the whole table."""
    (delta, _), table = scan.positions(), scan.table
    namespace = table.namespace or scan.dialect.default_namespace
    if not scan.session.rows(scan.dialect.indexes(namespace, table.table, delta.name)):
        raise _refused(
            scan,
            f"the policy 'partial' reads it in the order of its delta column {delta.name!r}, and no index begins with that",
            f"Create an index on {scan.dialect.relation(namespace, table.table)} that begins with {quoted(delta.name)} (instead "
            "of a view, read its table); or use the policy 'successful'.",
        )


def _check_placed(scan: Scan) -> None:
    rows, nulls, example = scan.misplaced()
    if rows:
        delta, axis = scan.positions()
        other = f", {rows - nulls} hold something else, such as {example!r}" if rows > nulls else ""
        raise SourceDataError(
            operation="plan",
            subject=scan.session.subject,
            cause=f"of its delta column {delta.name!r}, expected as {axis.kind.value}, {nulls} rows are NULL{other}",
            hint="Every row needs a position: correct the rows, or leave them out by the table's `where`.",
        )


def _check_axis(scan: Scan, origin: Watermark, state: DatasetState) -> None:
    """Refuse positions of another column: they don't apply to this one, and rows would be lost, or come twice."""
    delta, axis = scan.positions()
    former = {str(unit.properties.get(DELTA, delta.name)) for unit in (*state.live.values(), *state.previous_units)}
    if others := sorted(former - {delta.name}):
        raise _refused(
            scan,
            f"its positions are of column {others[0]!r}, and its delta column is now {delta.name!r}",
            "Go back to the former delta column, publish it under another URN, or drop the dataset to load it anew.",
        )
    if not isinstance(origin, axis.watermark):
        raise _refused(
            scan,
            f"its positions are of kind {origin.kind!r}, and its delta column gives {axis.watermark.kind!r}",
            "Go back to the delta column (or start value) of the former kind, or publish it under another URN.",
        )


def _check_can_split(scan: Scan, *, takes_all: bool = True) -> None:
    if takes_all and not scan.dialect.shares_snapshots:
        cause = f"it has a `unit_width`, and a load that takes a table whole is one unit in {scan.dialect.name}"
        raise _refused(scan, cause, "Take it out, or make the table append-only.")


def _unit_count(scan: Scan, size: float, total: float) -> int:
    """Return the number of units that a part is split into."""
    return max(1, math.ceil(size / max(scan.table.unit_bytes, total / scan.table.max_units)))


def _units(scan: Scan, pieces: list[Piece], row_bytes: float) -> tuple[WorkUnit, ...]:
    return tuple(
        WorkUnit(f"u{n:04}", scan.table.urn, part.low, part.high, weight=round(rows * row_bytes))
        for n, (part, rows) in enumerate(pieces)
    )


def _split(scan: Scan, part: Range, extent: Extent, count: int) -> list[Piece]:
    """Split a range into about `count` pieces with about as many rows each, cut between distinct positions."""
    if count == 1:
        return [(part, extent.rows)]
    _, axis = scan.positions()
    if extent.keys is not None:
        return _cut(part, extent.rows, [(axis.position(key), before) for key, before in scan.cuts(extent, count)])
    target = extent.rows / count
    pieces: list[Piece] = []
    low, rows, before = part.low, 0, 0
    for bucket in _buckets(scan, part, extent, count, target):
        position = axis.position(bucket.least)  # type: ignore[arg-type]
        due = before + rows + bucket.rows / 2 > target * (len(pieces) + 1)
        if rows and due and low < position and len(pieces) < count - 1:
            pieces.append((Range(low, position), rows))
            low, rows, before = position, 0, before + rows
        rows += bucket.rows
    return [*pieces, (Range(low, part.high), rows)]


def _cut(part: Range, rows: int, cuts: Sequence[tuple[Watermark, int]]) -> list[Piece]:
    """Cut a range at positions.

    :param cuts: in order, each with the number of rows before it.
    """
    pieces: list[Piece] = []
    low, taken = part.low, 0
    for position, before in cuts:
        if low < position:
            pieces.append((Range(low, position), before - taken))
            low, taken = position, before
    return [*pieces, (Range(low, part.high), rows - taken)]


def _buckets(
    scan: Scan, part: Range, extent: Extent, count: int, target: float, depth: int = _DEPTH
) -> Iterator[Extent]:
    """Yield the rows of a range in buckets, in order, each with few enough of them or of values too near to be distinguished."""
    if number_of(extent.least) == number_of(extent.greatest):  # type: ignore[arg-type]
        yield extent
        return
    _, axis = scan.positions()
    found = scan.buckets(part.low, part.high, extent, min(_MAX_BUCKETS, count * _BUCKETS_PER_UNIT))
    lows = [axis.position(bucket.least) for bucket in found]  # type: ignore[arg-type]
    for bucket, low, high in zip(found, lows, [*lows[1:], part.high], strict=True):
        if bucket.rows > target / 2 and depth > 1 and low < high:
            pieces = math.ceil(bucket.rows / target)
            yield from _buckets(scan, Range(low, high), bucket, max(2, pieces), target, depth - 1)
        else:
            yield bucket


def _refused(scan: Scan, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="plan", subject=scan.session.subject, cause=cause, hint=hint)


def _no_such_range(scan: Scan, cause: str, hint: str) -> NoSuchRangeError:
    return NoSuchRangeError(operation="backfill", subject=scan.session.subject, cause=cause, hint=hint)
