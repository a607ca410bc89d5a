"""The contract of sources: what planning and extraction rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import NoSuchRangeError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model import schema as schemas
from airflow_gobblin.model import wire
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.request import Bound, RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark, Watermark, split
from airflow_gobblin.model.work import Dataset, ExtractKind, Limits, WorkUnit
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.source_plans import judge_plan, judge_snapshot
from airflow_gobblin.rows.sources.base import (
    Consistency,
    DatasetPlan,
    OrderedSource,
    PlanRequest,
    RangeSource,
    ReadRequest,
    SnapshotSource,
    Source,
)
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.testing import inprocess

__all__ = ["PositionedSourceContract", "RangeSourceContract", "SourceContract"]

Rows = Counter[str]
"""Rows as text, in no order, with the number of times that each came."""
LIMIT = 3
"""The most rows of a unit, where a limit is tried."""
MOST_RUNS = 100
MOST_CUTS = 10
FAR = 10_000
"""The number of positions, or of days, that lead beyond the data of a test."""


class SourceContract:
    """The suite of sources whose datasets are snapshots. Override the fixtures `source`, `grow` and `empty_source`, and
    `connections` if it needs any.
    """

    @pytest.fixture
    def source(self) -> Source:
        """Return the source, with at least eight rows in each dataset. If it plans up to now, its clock is stopped."""
        raise NotImplementedError("override the fixture `source`")

    @pytest.fixture
    def grow(self) -> Callable[[], None]:
        """Return a function that, each time it is called, adds rows to every dataset of `source`, at positions beyond all of its
        own.
        """
        raise NotImplementedError("override the fixture `grow`")

    @pytest.fixture
    def empty_source(self) -> Source:
        """Return a source with datasets that have no rows yet."""
        raise NotImplementedError("override the fixture `empty_source`")

    @pytest.fixture
    def connections(self) -> Connections:
        """Return the connections of the sources."""
        return NoConnections("Override the fixture `connections`.")

    @pytest.fixture
    def datasets(self, source: Source, connections: Connections) -> list[Reading]:
        """Return the datasets of the source, none of which has been read yet."""
        return readings(source, connections)

    def test_the_suite_is_that_of_its_kind(self, datasets: list[Reading]) -> None:
        positioned = any(reading.has_positions for reading in datasets)
        ranged = positioned and hasattr(datasets[0].source, "resolve")
        wanted = RangeSourceContract if ranged else PositionedSourceContract if positioned else SourceContract
        is_range, is_positioned = isinstance(self, RangeSourceContract), isinstance(self, PositionedSourceContract)
        mine = RangeSourceContract if is_range else PositionedSourceContract if is_positioned else SourceContract
        assert mine is wanted, (
            f"derive from {wanted.__name__} instead of {mine.__name__}: the source has "
            f"{'positions' if positioned else 'no positions'} and {'a' if ranged else 'no'} method `resolve`"
        )

    # its record and datasets

    def test_it_has_each_member_of_a_source(self, source: object) -> None:
        members = ("connection_ids", "modules", "datasets", "plan", "read")
        assert [name for name in members if not hasattr(source, name)] == [], "it lacks these"

    def test_it_crosses_processes_without_a_secret(self, source: Source, connections: Connections) -> None:
        record = wire.dumps(source)
        assert wire.loads(record, type(source), "the source") == source
        for conn_id in source.connection_ids:
            assert connections.uri(conn_id).encode() not in record, "a source holds the ids of connections only"

    def test_datasets_are_named_once_and_in_a_stable_order(self, source: Source, connections: Connections) -> None:
        datasets = source.datasets(connections)
        assert datasets, "the fixture `source` should have datasets"
        assert len({dataset.urn for dataset in datasets}) == len(datasets)
        assert source.datasets(connections) == datasets

    # plans

    def test_a_plan_can_be_carried_out(self, datasets: list[Reading]) -> None:
        for reading in datasets:
            plan = reading.plan()
            if reading.has_positions:
                judged = judge_plan(reading.urn, plan.units, plan.planned, reading.coverage)
            else:
                judged = judge_snapshot(reading.urn, plan.units, DatasetState(reading.urn))
            assert judged is not None, "the fixture `source` should have rows to plan"
            assert [*judged.units] == [*plan.units]

    def test_planning_again_gives_the_same_units(self, datasets: list[Reading]) -> None:
        for reading in datasets:
            one, other = reading.plan(), reading.plan()
            assert (one.units, one.planned) == (other.units, other.planned)
            assert one.schema.equals(other.schema), f"first {one.schema}, then {other.schema}"

    def test_units_are_named_once_and_belong_to_their_dataset(self, datasets: list[Reading]) -> None:
        for reading in datasets:
            units = reading.plan().units
            assert len({unit.id for unit in units}) == len(units)
            assert {unit.urn for unit in units} == {reading.urn}
            assert all(unit.weight >= 0 for unit in units)

    def test_units_of_a_whole_load_show_one_state(self, datasets: list[Reading]) -> None:
        for reading in datasets:
            plan = reading.plan()
            if reading.takes_all and len(plan.units) > 1:
                assert plan.consistency is not Consistency.ONE_UNIT, "it has several units"
            if plan.consistency is Consistency.ONE_SNAPSHOT:
                assert isinstance(reading.source, SnapshotSource), "ONE_SNAPSHOT needs the method `snapshot`"

    # reading

    def test_batches_are_of_the_planned_schema(self, datasets: list[Reading]) -> None:
        for reading in datasets:
            plan = reading.plan()
            assert schemas.decode(schemas.encode(plan.schema)).equals(plan.schema), "it can't be kept in a plan"
            with reading.snapshot(plan) as name:
                for unit in plan.units:
                    for batch in reading.read(unit, plan, name).batches:
                        assert batch.schema.equals(plan.schema), f"planned {plan.schema}, read {batch.schema}"
                        batch.validate(full=True)

    def test_a_unit_ends_where_it_should_with_the_rows_that_it_should_have(self, datasets: list[Reading]) -> None:
        for reading in datasets:
            for unit, done in reading.all_units():
                assert done.expected_rows in (None, done.rows.total()), "`expected_rows` differs from the rows read"
                if unit.low is None:
                    continue
                assert done.actual_high is not None, "a reader of a unit with positions knows its `actual_high`"
                assert not below(done.actual_high, unit.low), "`actual_high` is below the unit"
                assert unit.expected_high in (None, done.actual_high), "without limits it ends at its `expected_high`"
                outside = [at for at in done.positions if below(at, unit.low) or below(done.actual_high, at)]
                assert outside == [], "`position` is outside the unit"
                assert done.positions == sorted(done.positions, key=split), "a reader goes on"

    def test_reading_again_gives_the_same_rows(self, datasets: list[Reading]) -> None:
        for reading in datasets:
            assert reading.rows() == reading.rows()
            assert reading.rows().total() >= 8, "the fixture `source` should have more rows"

    def test_a_reader_can_be_closed_at_any_time(self, datasets: list[Reading]) -> None:
        for reading in datasets:
            plan = reading.plan()
            with reading.snapshot(plan) as name:
                for batches in (0, 1):
                    reader = reading.open(plan.units[0], plan, name)
                    for _, _batch in zip(range(batches), reader, strict=False):
                        pass
                    reader.close()
                    reader.close()

    def test_rows_that_come_after_the_plan_are_left_to_the_next(
        self, datasets: list[Reading], grow: Callable[[], None]
    ) -> None:
        plans = [(reading, reading.plan(), reading.rows()) for reading in datasets]
        for reading, plan, rows in plans:
            with reading.snapshot(plan) as name:
                grow()
                read = sum((reading.read(unit, plan, name).rows for unit in plan.units), Rows())
            one_state = not reading.takes_all or plan.consistency is not Consistency.ONE_UNIT
            if one_state and all(unit.low is None or unit.expected_high is not None for unit in plan.units):
                assert read == rows

    # runs

    def test_a_dataset_without_rows_has_none(self, empty_source: Source, connections: Connections) -> None:
        empty = readings(empty_source, connections)
        assert empty, "the fixture `empty_source` should have a dataset, without rows"
        for reading in empty:
            assert not reading.rows()

    def test_runs_publish_each_row_once(
        self,
        source: Source,
        connections: Connections,
        datasets: list[Reading],
        grow: Callable[[], None],
        tmp_path: Path,
    ) -> None:
        opened = open_job(source, connections, tmp_path)
        for _ in range(2):
            check_all_ok(inprocess.run(opened, connections))
            for reading in datasets:
                assert published(opened, reading.urn) == reading.fresh().rows()
            grow()


class PositionedSourceContract(SourceContract):
    """The suite of sources with positions. Override the same fixtures."""

    @pytest.fixture
    def positioned(self, datasets: list[Reading]) -> list[Reading]:
        """Return the datasets with positions."""
        return [reading for reading in datasets if reading.has_positions]

    def test_units_are_disjoint_and_cover_what_is_planned(self, positioned: list[Reading]) -> None:
        for reading in positioned:
            plan, covered = reading.plan(), Coverage()
            for one, other in combinations(closed(plan.units), 2):
                assert not one.overlaps(other), f"{one} and {other}"
            for part in closed(plan.units):
                covered = covered.add(part)
            if plan.planned is not None and all(unit.expected_high is not None for unit in plan.units):
                assert covered.covers(plan.planned), f"{covered} is less than {plan.planned}"

    def test_nothing_new_plans_nothing(self, positioned: list[Reading]) -> None:
        for reading in positioned:
            reading.run()
            assert [unit for unit in reading.plan().units if not unit.empty] == []

    def test_the_next_run_reads_what_is_new(self, positioned: list[Reading], grow: Callable[[], None]) -> None:
        before = [(reading, reading.run()) for reading in positioned]
        grow()
        for reading, rows in before:
            new = reading.run()
            assert new, "the fixture `grow` should add rows"
            assert new + rows == reading.fresh().rows()

    def test_a_plan_ends_with_the_data_interval(self, positioned: list[Reading]) -> None:
        """See that a run plans up to the end of its data interval, where positions are times."""
        for reading in positioned:
            highs = [unit.expected_high for unit in reading.plan().units]
            first, last = reading.first(), max((high for high in highs if high is not None), key=split, default=None)
            if isinstance(first, TimestampWatermark) and isinstance(last, TimestampWatermark):
                end = first.value + (last.value - first.value) / 2
                late = [unit for unit in reading.plan(end=end).units if not ends_by(unit, TimestampWatermark(end))]
                assert late == [], f"units reach beyond `request.end`, {end}"

    def test_a_hole_is_planned_again_and_nothing_that_is_covered(self, positioned: list[Reading]) -> None:
        for reading in positioned:
            first, *others = reading.all_units()
            assert first[0].low is not None, "a unit of a dataset with positions has a `low`"
            reading.coverage = Coverage().starting_at(first[0].low)
            for unit, done in others:
                reading.cover(unit, done)
            plan = reading.plan()
            again = [part for part in closed(plan.units) if not part.empty and reading.coverage.overlaps(part)]
            assert again == [], f"it is covered already: {reading.coverage}"
            assert sum((done.rows for _, done in reading.all_units()), Rows()) == first[1].rows

    def test_limited_runs_publish_each_row_once(
        self, source: Source, connections: Connections, positioned: list[Reading], tmp_path: Path
    ) -> None:
        """A unit stops after a limit, between two positions, and the next run goes on there."""
        wanted = {reading.urn: reading.rows() for reading in positioned if not reading.takes_all}
        opened = open_job(source, connections, tmp_path, Limits(rows=LIMIT))
        heads: dict[str, int] = {}
        for _ in range(MOST_RUNS):
            reports = inprocess.run(opened, connections)
            check_all_ok({urn: reports[urn] for urn in wanted if urn in reports})
            before, heads = heads, {urn: opened.journal.history(urn).state.head for urn in wanted}
            if heads == before:
                break
        assert {urn: published(opened, urn) for urn in wanted} == wanted

    def test_rows_in_order_can_be_cut_between_two_positions(self, positioned: list[Reading]) -> None:
        """The rows before a cut are all that the positions before it have, so they can be published without the others."""
        for reading in positioned:
            if not isinstance(reading.source, OrderedSource) or not reading.source.reads_in_order:
                continue
            plan, cuts = reading.plan(), 0
            with reading.snapshot(plan) as name:
                for unit in plan.units:
                    if unit.empty or cuts >= MOST_CUTS:
                        continue
                    for at, rows, inside in reading.cuts(unit, plan, name):
                        before = reading.read(replace(unit, expected_high=at), plan, name).rows
                        assert rows == before, f"what comes before {at} isn't what has a position below it"
                        cuts += inside
            assert cuts, (
                "no batch was cut between two of its positions: let the fixture `source` have some in one batch, and `cut` find "
                "the place between them"
            )


class RangeSourceContract(PositionedSourceContract):
    """The suite of sources with positions that can be backfilled. Override the same fixtures, and `bound_of` if its positions
    are of a kind of their own.
    """

    @pytest.fixture
    def bound_of(self) -> Callable[[Watermark], datetime | int]:
        """Return a function that returns the bound by which a person names a position: a time, or a number."""
        return least_bound

    def test_a_backfill_reads_the_range_that_it_is_given(self, positioned: list[Reading]) -> None:
        for reading in positioned:
            (unit, done), *_ = [(unit, done) for unit, done in reading.all_units() if unit.low is not None]
            assert unit.low is not None
            assert done.actual_high is not None
            part = Range(unit.low, done.actual_high)
            reading.run()
            plan = reading.plan((part,))
            with reading.snapshot(plan) as name:
                assert sum((reading.read(one, plan, name).rows for one in plan.units), Rows()) == done.rows
            outside = [one for one in closed(plan.units) if below(one.low, part.low) or below(part.high, one.high)]
            assert outside == [], f"the request's range is {part}"

    def test_a_range_is_resolved_to_positions(
        self, positioned: list[Reading], bound_of: Callable[[Watermark], datetime | int]
    ) -> None:
        for reading in positioned:
            first = reading.first()
            found = reading.resolve(bound_of(first))
            assert found.low == first
            assert not found.empty

    def test_an_end_beyond_the_data_is_moved_back_and_a_range_beyond_it_refused(
        self, positioned: list[Reading], bound_of: Callable[[Watermark], datetime | int]
    ) -> None:
        for reading in positioned:
            start = bound_of(reading.first())
            whole = reading.resolve(start)
            beyond = start + FAR if isinstance(start, int) else start + timedelta(FAR)
            assert reading.resolve(start, beyond) == whole
            with pytest.raises(NoSuchRangeError):
                reading.resolve(beyond)

    def test_a_bound_of_another_kind_is_resolved_or_refused(self, positioned: list[Reading]) -> None:
        """A person may give a time, a number, or a number for each partition, whatever the positions are."""
        for reading in positioned:
            for bound in (datetime(2026, 1, 1, tzinfo=UTC), 1, {0: 1}):
                with suppress(NoSuchRangeError):
                    assert isinstance(reading.resolve(bound), Range)


@dataclass(frozen=True)
class Done:
    """The result of reading a unit."""

    batches: tuple[pa.RecordBatch, ...]
    actual_high: Watermark | None
    expected_rows: int | None
    positions: list[Watermark]

    @property
    def rows(self) -> Rows:
        """Its rows."""
        return rows_of(row for batch in self.batches for row in batch.to_pylist())


@dataclass(frozen=True)
class PlannedUnits(DatasetPlan):
    """A plan with all of its units in memory."""

    units: tuple[WorkUnit, ...]


@dataclass
class Reading:
    """A dataset that is planned and read, whose coverage is kept between runs as the journal would."""

    source: Source
    dataset: Dataset
    connections: Connections
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def urn(self) -> str:
        """The dataset's URN."""
        return self.dataset.urn

    @property
    def has_positions(self) -> bool:
        """Whether it has positions: a snapshot has none."""
        return self.dataset.extract.kind is not ExtractKind.SNAPSHOT_ONLY

    @property
    def takes_all(self) -> bool:
        """Whether its next load takes it whole."""
        first = self.dataset.extract.kind is ExtractKind.SNAPSHOT_APPEND and self.coverage.origin is None
        return first or not self.has_positions

    def fresh(self) -> Reading:
        """Return the same dataset as if nothing of it had been read."""
        return Reading(self.source, self.dataset, self.connections)

    def plan(self, ranges: tuple[Range, ...] = (), end: datetime | None = None) -> PlannedUnits:
        """Plan it from its coverage.

        :param ranges: for a backfill.
        :param end: the end of the run's data interval.
        """
        request = PlanRequest(datetime.now(UTC), end, ranges=ranges)
        state = DatasetState(self.urn, self.coverage)
        found = self.source.plan(self.dataset, {self.urn: state}, request, self.connections)
        return PlannedUnits(tuple(found.units), found.schema, found.planned, found.kept_from, found.consistency)

    def first(self) -> Watermark:
        """Plan it, and return its first position."""
        low = next(unit.low for unit in self.plan().units)
        assert low is not None
        return low

    def resolve(self, start: Bound, end: Bound | None = None) -> Range:
        """Resolve the range of a backfill."""
        assert isinstance(self.source, RangeSource)
        return self.source.resolve(self.dataset, RangeRequest(datetime.now(UTC), start, end), self.connections)

    @contextmanager
    def snapshot(self, plan: DatasetPlan) -> Iterator[str]:
        """Hold the snapshot that a plan's units are read in; its name is empty if there is none."""
        if plan.consistency is Consistency.ONE_SNAPSHOT and isinstance(self.source, SnapshotSource):
            with self.source.snapshot(self.connections) as name:
                yield name
        else:
            yield ""

    def open(self, unit: WorkUnit, plan: DatasetPlan, snapshot: str = "") -> Any:
        """Start to read a unit."""
        return self.source.read(unit, plan.schema, ReadRequest(snapshot=snapshot), self._on_spark)

    def read(self, unit: WorkUnit, plan: DatasetPlan, snapshot: str = "") -> Done:
        """Read a unit to its end. An empty unit isn't read."""
        if unit.empty:
            return Done((), unit.expected_high, None, [])
        reader = self.open(unit, plan, snapshot)
        try:
            batches, positions = [], []
            for batch in reader:
                batches.append(batch)
                positions.append(getattr(reader, "position", None))
            known = [position for position in positions if position is not None]
            return Done(tuple(batches), reader.actual_high, reader.expected_rows, known)
        finally:
            reader.close()

    def cuts(self, unit: WorkUnit, plan: DatasetPlan, snapshot: str = "") -> list[tuple[Watermark, Rows, bool]]:
        """Read a unit in order, and return places to cut its first batches, and their ends; each with the rows before it, and
        whether it is inside a batch.
        """
        request = ReadRequest(snapshot=snapshot, in_order=True)
        reader: Any = self.source.read(unit, plan.schema, request, self._on_spark)
        found: list[tuple[Watermark, Rows, bool]] = []
        before = Rows()
        try:
            for batch in reader:
                places = [reader.cut(rows) for rows in range(1, min(batch.num_rows, MOST_CUTS))]
                places = [(rows, at) for rows, at in places if rows]
                whole = [] if reader.position is None else [(batch.num_rows, reader.position)]
                found += [
                    (at, before + rows_of(batch.slice(0, rows).to_pylist()), rows < batch.num_rows)
                    for rows, at in (*places, *whole)
                ]
                before += rows_of(batch.to_pylist())
                if len(found) >= 2 * MOST_CUTS:
                    break
            return found
        finally:
            reader.close()

    @property
    def _on_spark(self) -> Connections:
        return SparkConnections({conn_id: self.connections.uri(conn_id) for conn_id in self.source.connection_ids})

    def all_units(self) -> list[tuple[WorkUnit, Done]]:
        """Plan it, and read all units."""
        plan = self.plan()
        with self.snapshot(plan) as name:
            return [(unit, self.read(unit, plan, name)) for unit in plan.units]

    def rows(self) -> Rows:
        """Plan it, and return the rows of all units."""
        return sum((done.rows for _, done in self.all_units()), Rows())

    def run(self) -> Rows:
        """Plan it, read all units, and cover what was read; return the rows."""
        done = self.all_units()
        for unit, result in done:
            self.cover(unit, result)
        return sum((result.rows for _, result in done), Rows())

    def cover(self, unit: WorkUnit, done: Done) -> None:
        """Cover the range of a unit that was read."""
        if unit.low is not None and done.actual_high is not None:
            part = Range(unit.low, done.actual_high)
            self.coverage = self.coverage.starting_at(part.low) if part.empty else self.coverage.add(part)


def readings(source: Source, connections: Connections) -> list[Reading]:
    """Return the datasets of a source."""
    return [Reading(source, dataset, connections) for dataset in source.datasets(connections)]


def open_job(source: Source, connections: Connections, folder: Path, limits: Limits | None = None) -> OpenJob:
    """Return an ingestion of a source into Parquet files below a folder; its journal is in memory."""
    ingestion = Ingestion(
        "suite", source, ParquetSink(f"{folder}/lake"), "unused", limits=limits or Limits(), retention=timedelta(0)
    )
    return inprocess.open_job(ingestion, connections)


def published(opened: OpenJob, urn: str) -> Rows:
    """Return the rows of a dataset as a reader of the journal sees them."""
    return rows_of(opened.journal.read_dataset(urn).to_arrow().to_table().to_pylist())


def check_all_ok(reports: Mapping[str, DatasetReport]) -> None:
    """Check that a run has published what it was to publish, and show the reasons if it hasn't."""
    failed = [f"{urn}: {report.detail}" for urn, report in reports.items() if not report.ok]
    assert not failed, "\n".join(failed)


def rows_of(rows: Any) -> Rows:
    """Return rows as texts that are counted: equal values of other types, or times of another zone, aren't the same."""
    return Counter(repr(sorted(row.items())) for row in rows)


def closed(units: tuple[WorkUnit, ...]) -> list[Range]:
    """Return the ranges of the units whose end is known."""
    return [Range(u.low, u.expected_high) for u in units if u.low is not None and u.expected_high is not None]


def ends_by(unit: WorkUnit, end: TimestampWatermark) -> bool:
    """Return whether a unit ends where it is known to, and not beyond a time."""
    return unit.expected_high is not None and not below(end, unit.expected_high)


def least_bound(position: Watermark) -> datetime | int:
    """Return the bound by which a person names a position; the least of several positions."""
    first = min(split(position))
    assert isinstance(first, LongWatermark | TimestampWatermark), (
        "override the fixture `bound_of` for positions of this kind"
    )
    return first.value


def below(one: Watermark, other: Watermark) -> bool:
    """Return whether a position lies below another one, in at least one of its positions."""
    return any(a < b for a, b in zip(split(one), split(other), strict=True))
