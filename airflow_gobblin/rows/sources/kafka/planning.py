"""Planning of a topic: the offsets to read, what waits, and the cut into work units of about one file each."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import NoSuchRangeError, SourceError, without_stop
from airflow_gobblin.model.batch import Backlog, Batch
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.request import Bound, RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Json, LongWatermark, MultiLongWatermark, Watermark, lowest, split
from airflow_gobblin.model.work import UnitState, WorkUnit
from airflow_gobblin.rows.sources.base import Consistency, DatasetPlan, PlanRequest
from airflow_gobblin.rows.sources.kafka import KafkaSource, OutOfRange, Start
from airflow_gobblin.rows.sources.kafka.cluster import Topic, errors_of, offsets_of, unusable
from airflow_gobblin.rows.sources.kafka.records import RECORD, with_values

log = logging.getLogger(__name__)

TOPIC_ID = "topic_id"
"""The property of a unit that names its topic's id."""
LOST = "lost"
"""The property of a unit whose offsets the log no longer has; it reads nothing."""
_RECORD_BYTES = 100.0
"""The size of a record in files, before any is known."""
_UNIT_BYTES = 128 << 20
_STEPS = 3
"""The number of halvings that find the age of the oldest record, to within an eighth."""

Offsets = dict[int, int]
"""An offset of each partition."""


@dataclass(frozen=True, order=True)
class Piece:
    """Offsets of one partition, [low, high)."""

    partition: int
    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low

    def __str__(self) -> str:
        return f"[{self.low}, {self.high}) of partition {self.partition}"


def plan_topic(
    source: KafkaSource, topic: Topic, state: DatasetState, request: PlanRequest, connections: Connections
) -> DatasetPlan:
    """Plan the uncovered offsets of a topic.

    :raises ConfigurationError: it was made anew, offsets are out of range, or its values can't be columns.
    :raises SourceError: a partition can't be asked where its first load would begin; or the values' schema can't be had.
    """
    _check_same(topic, state)
    log_of = _Log.of(topic)
    _check_not_shorter(topic, state, log_of.ends)
    low = _lows(source, topic, state, log_of)
    for error in log_of.unanswered.values():
        log.warning("%s. Its watermark stays, and the other partitions go on.", without_stop(str(error)))
    width = len(low)
    if request.ranges:
        pieces = sorted(_of_ranges(request.ranges))
    else:
        high = [max(low[p], log_of.ends.get(p, low[p])) for p in range(width)]
        gaps = state.coverage.gaps(Range(_offsets(low), _offsets(high)))
        pieces = [Piece(p, a.value, b.value) for p, gap in enumerate(gaps) for a, b in gap]  # type: ignore[attr-defined]
    lost, pieces = _split_lost(source, topic, pieces, log_of, asked=bool(request.ranges))
    row_bytes = state.published_row_bytes or _RECORD_BYTES
    backlog = None
    if request.batch is not None:
        backlog = _backlog(topic, pieces, lost, row_bytes, request.batch, request.now)
        if request.batch.holds(backlog):
            return DatasetPlan((), RECORD, backlog=backlog)
    planned = _planned(_resting(low, state, request), [*lost, *pieces])
    if request.ranges and state.coverage.origin is None:  # a later first load is to begin where it would have begun
        planned = Range(lowest([planned.low, _offsets(low)]), planned.high)
    if not pieces and not lost and not _begins_later(source, state):
        return DatasetPlan((), RECORD, backlog=backlog)
    values = source.values.plan(topic.name, connections)
    schema = with_values(values.columns, topic.name)
    kept: Mapping[str, Json] = {TOPIC_ID: topic.id, **values.properties}
    if not pieces and not lost:
        unit = WorkUnit("start", topic.name, planned.low, planned.high, 0, kept)
        return DatasetPlan((unit,), schema, planned, backlog=backlog)
    units = (
        *_lost_units(topic, lost, planned, kept),
        *_units(source, topic, pieces, planned, state, request, row_bytes, kept),
    )
    kept_from = _offsets(log_of.starts.get(p, low[p]) for p in range(width))
    return DatasetPlan(units, schema, planned, kept_from, Consistency.UNCHANGING, backlog)


@dataclass(frozen=True)
class _Log:
    """The first offset of each partition's log, and the one after its last, for the partitions that can be asked.

    :param unanswered: the error of each other partition.
    """

    starts: Offsets
    ends: Offsets
    unanswered: Mapping[int, SourceError]

    @classmethod
    def of(cls, topic: Topic) -> _Log:
        found = topic.starts(range(topic.partitions))
        starts = offsets_of(found)
        found = {**found, **topic.ends(starts)}
        ends = offsets_of({p: found[p] for p in starts})
        return cls({p: starts[p] for p in ends}, ends, errors_of(found))


def _check_same(topic: Topic, state: DatasetState) -> None:
    """Check that a topic is the one that was read before, by its id."""
    former = {str(unit.properties.get(TOPIC_ID, "")) for unit in (*state.live.values(), *state.previous_units)}
    if topic.id and (others := former - {topic.id, ""}):
        raise unusable(
            topic.name,
            f"it was deleted and made anew: its id was {sorted(others)[0]} and is {topic.id}",
            "Its offsets begin again, and are not those of what is published. Drop the dataset to read the new topic from its "
            "beginning, or publish it under another ingestion.",
        )
    if state.coverage.origin is not None and topic.partitions < len(split(state.coverage.origin)):
        raise unusable(
            topic.name,
            f"it has {many(topic.partitions, 'partition')}, and had {len(split(state.coverage.origin))}: it was made anew",
            "Drop the dataset to read the new topic from its beginning.",
        )


def _check_not_shorter(topic: Topic, state: DatasetState, ends: Offsets) -> None:
    """Check that no log ends before what was read of it."""
    covered = () if state.coverage.end is None else split(state.coverage.end)
    for p, position in enumerate(covered):
        assert isinstance(position, LongWatermark)
        if p in ends and ends[p] < position.value:
            raise unusable(
                topic.name,
                f"partition {p} ends at offset {ends[p]}, and was read up to {position.value}: its end was lost, or the topic "
                "was made anew",
                f"New records at these offsets would never be read. Rewind the dataset to {ends[p]} in that partition, or "
                "drop it if the topic is another one.",
            )


def _lows(source: KafkaSource, topic: Topic, state: DatasetState, log_of: _Log) -> list[int]:
    """Return where each partition begins: its origin, or where the first load does. A new partition that can't be asked, and
    those after it, wait for the next run.
    """
    known = [p.value for p in split(state.coverage.origin)] if state.coverage.origin is not None else []  # type: ignore[attr-defined]
    if not known:
        return _first_lows(source, topic, log_of)
    for p in range(len(known), topic.partitions):
        if p not in log_of.starts:
            break
        known.append(log_of.starts[p])
    return known


def _first_lows(source: KafkaSource, topic: Topic, log_of: _Log) -> list[int]:
    _check_can_begin(topic, log_of.unanswered)
    partitions = range(topic.partitions)
    starts, ends = log_of.starts, log_of.ends
    if isinstance(source.start, datetime):
        answers = topic.at(source.start, partitions)
        _check_can_begin(topic, errors_of(answers))
        found = offsets_of(answers)
        return [max(starts[p], ends[p] if found[p] < 0 else min(found[p], ends[p])) for p in partitions]
    if isinstance(source.start, Mapping):
        given = source.start.get(topic.name, ())
        if len(given) > topic.partitions:
            raise unusable(
                topic.name,
                f"`start` has offsets for {len(given)} partitions, and it has {topic.partitions}",
                "Give one for each.",
            )
        lows = [given[p] if p < len(given) else starts[p] for p in partitions]
        if bad := [p for p in partitions if not starts[p] <= lows[p] <= ends[p]]:
            p = bad[0]
            raise unusable(
                topic.name,
                f"`start` gives offset {lows[p]} for partition {p}, whose log is [{starts[p]}, {ends[p]})",
                "Give an offset inside.",
            )
        return lows
    return [(starts if source.start is Start.EARLIEST else ends)[p] for p in partitions]


def _check_can_begin(topic: Topic, unanswered: Mapping[int, SourceError]) -> None:
    """Check that each partition was asked where it begins: one that isn't known can't be left out of a first load."""
    for error in unanswered.values():
        raise SourceError(
            operation="begin",
            subject=f"the first load of topic {topic.name!r}",
            cause=error,
            hint="It begins in all partitions at once; nothing was read yet, and a later run tries it again.",
        )


def _of_ranges(ranges: Iterable[Range]) -> Iterator[Piece]:
    for part in ranges:
        for p, (low, high) in enumerate(zip(split(part.low), split(part.high), strict=True)):
            assert isinstance(low, LongWatermark)
            assert isinstance(high, LongWatermark)
            if low < high:
                yield Piece(p, low.value, high.value)


def _split_lost(
    source: KafkaSource, topic: Topic, pieces: Sequence[Piece], log_of: _Log, *, asked: bool
) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces that the log no longer has, and those to read.

    :param asked: whether they are a backfill's, of which nothing is given up.
    :raises ConfigurationError: pieces are lost, and `out_of_range` doesn't allow it.
    :raises NoSuchRangeError: likewise, in a backfill.
    """
    lost: list[Piece] = []
    left: list[Piece] = []
    for piece in pieces:
        start = log_of.starts.get(piece.partition, piece.low)
        if start <= piece.low:
            left.append(piece)
            continue
        if source.out_of_range is OutOfRange.LATEST:
            lost.append(piece)
            continue
        lost.append(Piece(piece.partition, piece.low, min(start, piece.high)))
        if start < piece.high:
            left.append(Piece(piece.partition, start, piece.high))
    if lost and asked:
        raise _no_such_range(
            topic,
            f"its log doesn't have offsets {', '.join(map(str, lost[:5]))} any more: units are replaced whole, and the "
            "records published of these would be lost",
            "Nothing was changed. Give a range that begins after the units that hold them.",
        )
    if lost and source.out_of_range is OutOfRange.FAIL:
        raise unusable(
            topic.name,
            f"its log doesn't have offsets {', '.join(map(str, lost[:5]))} any more, which were not read",
            "They are lost, if there is no copy of the topic. To go on after them: out_of_range=OutOfRange.EARLIEST, which names "
            "them in the journal; or `airflow gobblin set-watermark`.",
        )
    for piece in lost:
        log.warning("topic %r: offsets %s are lost: the log doesn't have them any more", topic.name, piece)
    return lost, left


def _backlog(
    topic: Topic, pieces: Sequence[Piece], lost: Sequence[Piece], row_bytes: float, batch: Batch, now: datetime
) -> Backlog:
    """Return what waits. Its age is known to within an eighth of the longest that it may wait."""
    rows = sum(map(len, pieces))
    if not rows:
        return Backlog(now, 0, 0)
    settings = topic.settings
    keeps = _keeps(settings)
    longest = min(filter(None, (batch.age, None if keeps is None else keeps * batch.kept)), default=None)
    oldest = None if longest is None else _oldest(topic, pieces, now, longest)
    used = 0.0 if keeps is None or oldest is None else (now - oldest) / keeps
    most = int(settings.get("retention.bytes") or -1)
    if most > 0:
        of_each: Offsets = {}
        for piece in pieces:
            of_each[piece.partition] = of_each.get(piece.partition, 0) + len(piece)
        used = max(used, max(of_each.values()) * row_bytes / most)
    return Backlog(now, rows, round(rows * row_bytes), oldest, keeps, 1.0 if lost else used)


def _keeps(settings: Mapping[str, str]) -> timedelta | None:
    """Return how long a topic keeps records; in a compacted one, the marks that a key was deleted."""
    policies, times = settings.get("cleanup.policy") or "delete", []
    if "delete" in policies:
        times.append(int(settings.get("retention.ms") or -1))
    if "compact" in policies:
        times.append(int(settings.get("delete.retention.ms") or -1))
    return min((timedelta(milliseconds=ms) for ms in times if ms >= 0), default=None)


def _oldest(topic: Topic, pieces: Sequence[Piece], now: datetime, longest: timedelta) -> datetime:
    """Return about when the oldest record of the pieces came: at that time, or after it by less than an eighth of `longest`, the
    time that it may wait. If it has waited for longer, return when it should have been read.
    """
    first: Offsets = {}
    for piece in pieces:
        first[piece.partition] = min(piece.low, first.get(piece.partition, piece.low))

    def waits_since(time: datetime) -> bool:
        """Return whether a piece begins before the first record that is not older than a time."""
        found = offsets_of(topic.at(time, first))
        return any(p in found and (found[p] < 0 or first[p] < found[p]) for p in first)

    if waits_since(now - longest):
        return now - longest
    young, old = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (young + old) / 2
        young, old = (middle, old) if waits_since(now - middle * longest) else (young, middle)
    return now - young * longest


def _resting(low: Sequence[int], state: DatasetState, request: PlanRequest) -> list[int]:
    """Return a position of each partition at which it reads nothing: where its coverage ends, or a backfill's range begins; or
    where the first load will.
    """
    known_origin = state.coverage.origin is not None
    edge = lowest([part.low for part in request.ranges]) if request.ranges and known_origin else state.coverage.end
    known = () if edge is None else split(edge)
    return [*(position.value for position in known), *low[len(known) :]]  # type: ignore[attr-defined]


def _planned(resting: Sequence[int], pieces: Sequence[Piece]) -> Range:
    """Return the range from the lowest piece of each partition to its highest; an empty one where it has none."""
    lows, highs = [*resting], [*resting]
    for piece in sorted(pieces, reverse=True):
        lows[piece.partition] = piece.low
    for piece in sorted(pieces):
        highs[piece.partition] = piece.high
    return Range(_offsets(lows), _offsets(highs))


def _units(
    source: KafkaSource,
    topic: Topic,
    pieces: Sequence[Piece],
    planned: Range,
    state: DatasetState,
    request: PlanRequest,
    row_bytes: float,
    kept: Mapping[str, Json],
) -> Iterator[WorkUnit]:
    """Yield units that read about one file each: several partitions, or a part of one. Those that failed get their own."""
    size = source.unit_bytes or request.file_bytes or _UNIT_BYTES
    total = sum(map(len, pieces))
    count = min(source.max_units, max(1, round(total * row_bytes / size)))
    failed = {
        p for unit in state.previous_units if unit.state is UnitState.FAILED or unit.cut for p in _partitions(unit)
    }
    alone = [piece for piece in pieces if piece.partition in failed]
    others = [piece for piece in pieces if piece.partition not in failed]
    groups = [[piece] for piece in alone] + cut(others, math.ceil(total / count))
    for number, group in enumerate(groups):
        part = _vector(planned, group)
        weight = round(sum(map(len, group)) * row_bytes)
        yield WorkUnit(f"u{number:04}", topic.name, part.low, part.high, weight, kept)


def cut(pieces: Iterable[Piece], most: int) -> list[list[Piece]]:
    """Cut pieces into groups of at most `most` offsets, in order. A partition is in a group only once."""
    groups: list[list[Piece]] = []
    left = 0
    for piece in pieces:
        low = piece.low
        while low < piece.high:
            if not left or (groups and groups[-1][-1].partition == piece.partition):
                groups.append([])
                left = most
            taken = min(left, piece.high - low)
            groups[-1].append(Piece(piece.partition, low, low + taken))
            low, left = low + taken, left - taken
    return groups


def _begins_later(source: KafkaSource, state: DatasetState) -> bool:
    """Return whether a first load that begins where there is nothing to read yet gives the dataset its first watermark."""
    return state.coverage.origin is None and source.start is not Start.EARLIEST


def _lost_units(topic: Topic, lost: Iterable[Piece], planned: Range, kept: Mapping[str, Json]) -> Iterator[WorkUnit]:
    for number, piece in enumerate(lost):
        part = _vector(planned, [piece])
        yield WorkUnit(f"lost{number:04}", topic.name, part.low, part.high, 0, {**kept, LOST: str(piece)})


def _vector(planned: Range, group: Iterable[Piece]) -> Range:
    """Return the range of a group: it is empty, at the low of the plan, in the partitions that it doesn't have."""
    assert isinstance(planned.low, MultiLongWatermark)
    lows, highs = [*planned.low.values], [*planned.low.values]
    for piece in group:
        lows[piece.partition], highs[piece.partition] = piece.low, piece.high
    return Range(_offsets(lows), _offsets(highs))


def _partitions(unit: object) -> Iterator[int]:
    """Yield the partitions from which a unit was to read something."""
    low, high = getattr(unit, "low", None), getattr(unit, "expected_high", None)
    if isinstance(low, MultiLongWatermark) and isinstance(high, MultiLongWatermark):
        yield from (p for p, (a, b) in enumerate(zip(low.values, high.values, strict=True)) if a < b)


def resolve_range(topic: Topic, request: RangeRequest) -> Range:
    """Resolve a backfill's range to offsets. It is empty in partitions that it doesn't have.

    :raises NoSuchRangeError: no partition has records in it; or there is no such partition.
    :raises SourceError: a partition can't be asked.
    """
    start, end = request.start, request.end
    asked = {*start} if isinstance(start, Mapping) else {*range(topic.partitions)}
    if unknown := sorted(asked - {*range(topic.partitions)}):
        raise _no_such_range(
            topic, f"it has no partition {unknown[0]}", f"Its partitions are 0 to {topic.partitions - 1}."
        )
    log_of = _Log.of(topic)
    for error in log_of.unanswered.values():
        raise error
    lows = [log_of.starts[p] for p in range(topic.partitions)]
    highs = [*lows]
    ends = _at(topic, log_of, {} if end is None else end)
    for p, low in _at(topic, log_of, start).items():
        if p in asked:
            lows[p] = max(low, log_of.starts[p])
            highs[p] = max(lows[p], min(ends[p], log_of.ends[p]))
    part = Range(_offsets(lows), _offsets(highs))
    if part.empty:
        cause = f"its log has no records from {start} to {'its end' if end is None else end}"
        raise _no_such_range(
            topic, cause, "Give a range that it has; a range of integers means the same offsets in each partition."
        )
    return part


def _at(topic: Topic, log_of: _Log, bound: Bound) -> Offsets:
    """Return the offset of a bound in each partition; in those that it doesn't name, the end of the log.

    :raises SourceError: a partition can't be asked.
    """
    partitions = range(topic.partitions)
    if isinstance(bound, Mapping):
        return {p: bound.get(p, log_of.ends[p]) for p in partitions}
    if isinstance(bound, int):
        return dict.fromkeys(partitions, bound)
    found = topic.at(bound, partitions)
    for error in errors_of(found).values():
        raise error
    offsets = offsets_of(found)
    return {p: log_of.ends[p] if offsets[p] < 0 else offsets[p] for p in partitions}


def _no_such_range(topic: Topic, cause: str, hint: str) -> NoSuchRangeError:
    return NoSuchRangeError(operation="backfill", subject=f"topic {topic.name!r}", cause=cause, hint=hint)


def _offsets(values: Iterable[int]) -> Watermark:
    return MultiLongWatermark(tuple(values))
