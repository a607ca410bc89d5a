"""Sources with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from airflow_gobblin.errors import NoSuchRangeError
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, ReadRequest, Source
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.testing import (
    RangeSourceContract,
)
from tests.rows.sources.databases import SqliteDatabase


class BrokenSource(RangeSourceContract):
    """Thirty events in an SQLite table, in four units by their key."""

    broken: ClassVar[type[SqlSource]]
    kind: ClassVar[ExtractKind] = ExtractKind.APPEND_ONLY

    @pytest.fixture
    def connections(self, tmp_path: Path) -> SqliteDatabase:
        database = SqliteDatabase(tmp_path / "shop.db")
        database.run("CREATE TABLE events (id INTEGER PRIMARY KEY)", "CREATE TABLE none (id INTEGER PRIMARY KEY)")
        database.insert("events", [(n,) for n in range(30)])
        return database

    @pytest.fixture
    def grow(self, connections: SqliteDatabase) -> Callable[[], None]:
        rows = iter(range(30, 60))
        return lambda: connections.insert("events", [(next(rows),)])

    @pytest.fixture
    def source(self) -> Source:
        return self.broken("db", (SqlTable("events", self.kind, delta="id", unit_bytes=20, max_units=4),))

    @pytest.fixture
    def empty_source(self) -> Source:
        return self.broken("db", (SqlTable("none", self.kind, delta="id"),))


def planning(change: Callable[[DatasetPlan, tuple[WorkUnit, ...]], DatasetPlan]) -> Any:
    """A `plan` that gives something else in the end."""

    def plan(self: SqlSource, dataset: Any, states: Any, request: Any, connections: Any) -> DatasetPlan:
        found = SqlSource.plan(self, dataset, states, request, connections)
        units = tuple(found.units)
        return change(replace(found, units=units), units)

    return plan


def reading(change: Callable[[Any, WorkUnit], Any]) -> Any:
    """A `read` whose reader is another one."""

    def read(self: SqlSource, unit: Any, schema: Any, request: Any, connections: Any) -> Any:
        return change(SqlSource.read(self, unit, schema, request, connections), unit)

    return read


def reading_in_order(change: Callable[[Any, WorkUnit], Any]) -> Any:
    """A method `read` that changes its reader where rows are read in order."""

    def read(self: SqlSource, unit: Any, schema: Any, request: Any, connections: Any) -> Any:
        reader = SqlSource.read(self, unit, schema, request, connections)
        return change(reader, unit) if request.in_order else reader

    return read


class Reader:
    """A reader that passes everything on."""

    properties: ClassVar[dict[str, Any]] = {}

    def __init__(self, reader: Any, unit: WorkUnit) -> None:
        self.reader = reader
        self.unit = unit

    def __iter__(self) -> Any:
        return iter(self.reader)

    @property
    def actual_high(self) -> Any:
        return self.reader.actual_high

    @property
    def expected_rows(self) -> Any:
        return None

    def close(self) -> None:
        self.reader.close()


class Ending(Reader):
    @property
    def actual_high(self) -> Any:
        return self.unit.expected_high


class Moody(Reader):
    times = 0

    def __iter__(self) -> Any:
        Moody.times += 1
        for batch in self.reader:
            yield batch.slice(Moody.times % 3)


class Stopping(Ending):
    def __iter__(self) -> Any:
        for batch in self.reader:
            yield batch.slice(0, 3)
            return


class Cutting(Reader):
    """Cuts before a row, and names the position beyond it."""

    @property
    def position(self) -> Any:
        return self.reader.position

    def cut(self, rows: int) -> Any:
        at, position = self.reader.cut(rows)
        return at, moved(position, 1)


class Forgetting(Reader):
    """Cuts the first batch rightly, and any later one as if it were the first."""

    position: Any = None

    def __iter__(self) -> Any:
        for batch in self.reader:
            for start in range(0, batch.num_rows, 3):
                part = batch.slice(start, 3)
                self.position = moved(self.unit.low, start + part.num_rows)
                yield part

    def cut(self, rows: int) -> Any:
        return rows, moved(self.unit.low, rows)


class Uncut(Reader):
    """Never finds a place between two positions."""

    position: Any = None

    def cut(self, rows: int) -> Any:
        return 0, self.unit.low


class OneByOne(Forgetting):
    """Yields one row at a time, so that nothing tries its `cut`."""

    def __iter__(self) -> Any:
        for batch in self.reader:
            for row in range(batch.num_rows):
                self.position = moved(self.unit.low, row + 1)
                yield batch.slice(row, 1)


class Elsewhere(Reader):
    @property
    def actual_high(self) -> Any:
        return self.unit.low


class Retyped(Reader):
    def __iter__(self) -> Any:
        return (pa.record_batch([batch.column(0).cast(pa.string())], ["id"]) for batch in self.reader)


def moved(position: Any, by: int) -> LongWatermark:
    assert isinstance(position, LongWatermark)
    return LongWatermark(position.value + by)


class TestASourceWhoseUnitsOverlap(BrokenSource):
    caught_by = "test_units_are_disjoint_and_cover_what_is_planned"

    @record("test.overlapping")
    @dataclass(frozen=True)
    class broken(SqlSource):
        plan = planning(
            lambda plan, units: replace(
                plan, units=(*units[:1], *(replace(unit, low=moved(unit.low, -1)) for unit in units[1:]))
            )
        )


class TestASourceWhoseUnitsLeaveAHole(BrokenSource):
    caught_by = "test_units_are_disjoint_and_cover_what_is_planned"

    @record("test.holey")
    @dataclass(frozen=True)
    class broken(SqlSource):
        plan = planning(lambda plan, units: replace(plan, units=(*units[:1], *units[2:])))


class TestASourceWithAUnitOutsideOfItsPlan(BrokenSource):
    caught_by = "test_a_plan_can_be_carried_out"

    @record("test.outside")
    @dataclass(frozen=True)
    class broken(SqlSource):
        plan = planning(
            lambda plan, units: replace(
                plan, units=(*units[:-1], *(replace(u, expected_high=moved(u.expected_high, 5)) for u in units[-1:]))
            )
        )


class TestASourceWhoseUnitsHaveOneName(BrokenSource):
    caught_by = "test_units_are_named_once_and_belong_to_their_dataset"

    @record("test.same_names")
    @dataclass(frozen=True)
    class broken(SqlSource):
        plan = planning(lambda plan, units: replace(plan, units=tuple(replace(unit, id="u") for unit in units)))


class TestASourceThatForgetsWhatIsCovered(BrokenSource):
    caught_by = "test_a_hole_is_planned_again_and_nothing_that_is_covered"

    @record("test.forgetful")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def plan(self, dataset: Any, states: Any, request: Any, connections: Any) -> DatasetPlan:
            return super().plan(dataset, {}, request, connections)


class TestASourceThatReadsFromTheWatermarkOn(BrokenSource):
    """Above the highest position that is covered, as if there were no holes."""

    caught_by = "test_a_hole_is_planned_again_and_nothing_that_is_covered"

    @record("test.holes_ignored")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def plan(self, dataset: Any, states: Any, request: Any, connections: Any) -> DatasetPlan:
            end = states[dataset.urn].coverage.end
            found = super().plan(dataset, states, request, connections)
            units = tuple(u for u in found.units if end is None or not moved(u.low, 0) < end)
            return replace(found, units=units, planned=found.planned if units else None)


class TestASourceThatReadsBeyondItsUnit(BrokenSource):
    caught_by = "test_rows_that_come_after_the_plan_are_left_to_the_next"

    @record("test.beyond")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def read(self, unit: Any, schema: Any, request: Any, connections: Any) -> Any:
            high = moved(unit.expected_high, 1000 if moved(unit.expected_high, 0).value >= 30 else 0)
            read = super().read(replace(unit, expected_high=high), schema, request, connections)
            return Ending(read, unit)


class TestASourceThatNeverReadsTheSameTwice(BrokenSource):
    caught_by = "test_reading_again_gives_the_same_rows"

    @record("test.moody")
    @dataclass(frozen=True)
    class broken(SqlSource):
        read = reading(Moody)


class TestASourceThatStopsEarlyAndDoesNotSaySo(BrokenSource):
    caught_by = "test_limited_runs_publish_each_row_once"

    @record("test.stopping")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def read(self, unit: Any, schema: Any, request: Any, connections: Any) -> Any:
            reader = super().read(unit, schema, request, connections)
            return reader if request.limits.rows is None else Stopping(reader, unit)


class TestASourceThatKeepsToNoLimit(BrokenSource):
    caught_by = "test_limited_runs_publish_each_row_once"

    @record("test.unlimited")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def read(self, unit: Any, schema: Any, request: Any, connections: Any) -> Any:
            return Reader(super().read(unit, schema, ReadRequest(), connections), unit)


class TestASourceThatEndsSomewhereElse(BrokenSource):
    caught_by = "test_a_unit_ends_where_it_should_with_the_rows_that_it_should_have"

    @record("test.elsewhere")
    @dataclass(frozen=True)
    class broken(SqlSource):
        read = reading(Elsewhere)


class TestASourceOfOtherTypesThanPlanned(BrokenSource):
    caught_by = "test_batches_are_of_the_planned_schema"

    @record("test.retyped")
    @dataclass(frozen=True)
    class broken(SqlSource):
        read = reading(Retyped)


class TestASourceThatIgnoresTheRangeOfABackfill(BrokenSource):
    caught_by = "test_a_backfill_reads_the_range_that_it_is_given"

    @record("test.range_ignored")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def plan(self, dataset: Any, states: Any, request: Any, connections: Any) -> DatasetPlan:
            return super().plan(dataset, states, replace(request, ranges=()), connections)


class TestASourceThatRefusesAnEndBeyondItsData(BrokenSource):
    caught_by = "test_an_end_beyond_the_data_is_moved_back_and_a_range_beyond_it_refused"

    @record("test.end_refused")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def resolve(self, dataset: Any, request: Any, connections: Any) -> Any:
            found = super().resolve(dataset, request, connections)
            if request.end not in (None, moved(found.high, 0).value):
                raise NoSuchRangeError(operation="backfill", subject="events", cause="its end is beyond the data")
            return found


class TestASourceThatResolvesAnyRange(BrokenSource):
    caught_by = "test_an_end_beyond_the_data_is_moved_back_and_a_range_beyond_it_refused"

    @record("test.any_range")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def resolve(self, dataset: Any, request: Any, connections: Any) -> Any:
            start = min(request.start, 29) if isinstance(request.start, int) else request.start
            return super().resolve(dataset, replace(request, start=start), connections)


class TestASourceThatKnowsNumbersOnly(BrokenSource):
    caught_by = "test_a_bound_of_another_kind_is_resolved_or_refused"

    @record("test.numbers_only")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def resolve(self, dataset: Any, request: Any, connections: Any) -> Any:
            return super().resolve(dataset, replace(request, start=request.start + 0), connections)


class TestASourceThatCutsWithinAPosition(BrokenSource):
    caught_by = "test_rows_in_order_can_be_cut_between_two_positions"

    @record("test.cut_within")
    @dataclass(frozen=True)
    class broken(SqlSource):
        read = reading_in_order(Cutting)


class TestASourceThatCutsLaterBatchesAsTheFirst(BrokenSource):
    caught_by = "test_rows_in_order_can_be_cut_between_two_positions"

    @record("test.cut_as_the_first")
    @dataclass(frozen=True)
    class broken(SqlSource):
        read = reading_in_order(Forgetting)


class TestASourceThatFindsNoPlaceToCut(BrokenSource):
    caught_by = "test_rows_in_order_can_be_cut_between_two_positions"

    @record("test.uncut")
    @dataclass(frozen=True)
    class broken(SqlSource):
        read = reading_in_order(Uncut)


class TestASourceWhoseCutIsNeverTried(BrokenSource):
    caught_by = "test_rows_in_order_can_be_cut_between_two_positions"

    @record("test.one_by_one")
    @dataclass(frozen=True)
    class broken(SqlSource):
        read = reading_in_order(OneByOne)


class TestASourceOfNoDatasets(BrokenSource):
    caught_by = "test_a_dataset_without_rows_has_none"

    @record("test.none")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def datasets(self, connections: Any) -> tuple[Any, ...]:
            return ()


class TestASourceThatKeepsItsPassword(BrokenSource):
    caught_by = "test_it_crosses_processes_without_a_secret"

    @record("test.telling")
    @dataclass(frozen=True)
    class broken(SqlSource):
        uri: str = ""

    @pytest.fixture
    def source(self, connections: SqliteDatabase) -> Source:
        return self.broken("db", (SqlTable("events", self.kind, delta="id"),), uri=connections.uri("db"))


class TestASourceThatTakesATableWholeInManyUnits(BrokenSource):
    caught_by = "test_units_of_a_whole_load_show_one_state"
    kind = ExtractKind.SNAPSHOT_APPEND

    @record("test.torn")
    @dataclass(frozen=True)
    class broken(SqlSource):
        plan = planning(
            lambda plan, units: replace(
                plan,
                units=[
                    unit
                    for whole in units
                    for unit in (
                        replace(whole, id="a", expected_high=LongWatermark(9)),
                        replace(whole, id="b", low=LongWatermark(9)),
                    )
                ],
            )
        )


class TestASourceThatHidesItsConnection(BrokenSource):
    caught_by = "test_batches_are_of_the_planned_schema"

    @record("test.hiding")
    @dataclass(frozen=True)
    class broken(SqlSource):
        @property
        def connection_ids(self) -> tuple[str, ...]:
            return ()


class TestASourceThatLacksAMethod(BrokenSource):
    caught_by = "test_it_has_each_member_of_a_source"

    @record("test.lacking")
    @dataclass(frozen=True)
    class broken(SqlSource):
        @property
        def modules(self) -> Any:
            raise AttributeError


class TestASourceThatPlansBeyondTheInterval(BrokenSource):
    caught_by = "test_a_plan_ends_with_the_data_interval"

    @record("test.endless")
    @dataclass(frozen=True)
    class broken(SqlSource):
        def plan(self, dataset: Any, states: Any, request: Any, connections: Any) -> DatasetPlan:
            return super().plan(dataset, states, replace(request, end=None), connections)

    @pytest.fixture
    def connections(self, tmp_path: Path) -> SqliteDatabase:
        database = SqliteDatabase(tmp_path / "shop.db")
        database.run("CREATE TABLE events (at TIMESTAMP)")
        database.insert("events", [(f"2026-01-{day:02} 00:00:00",) for day in range(1, 31)])
        return database

    @pytest.fixture
    def source(self) -> Source:
        return self.broken("db", (SqlTable("events", self.kind, delta="at"),))
