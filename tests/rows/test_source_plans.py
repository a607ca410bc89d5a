"""The plans that an author's own source may make, and those that are refused: by sources that plan exactly what a test gives."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import SourceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind, Limits, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, ReadRequest
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.lab import Lab
from tests.protocol.rows import SCHEMA, LineSink, Table

Bounds = tuple[int, int | None]


@record("test.given")
@dataclass(frozen=True)
class Given:
    """A log of so many lines, of which a run plans the given units.

    :param planned: as of a `DatasetPlan`.
    """

    lines: int
    units: tuple[Bounds, ...] = ()
    planned: tuple[int, int] | None = None
    deaf: bool = False
    placed: bool = False
    connection_ids: ClassVar[tuple[str, ...]] = ()

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return ()

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        return (Dataset("log", Extract(ExtractKind.APPEND_ONLY, "test", "log")),)

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        units = tuple(
            WorkUnit(f"u{n}", "log", LongWatermark(low), None if high is None else LongWatermark(high))
            for n, (low, high) in enumerate(self.units)
        )
        planned = None if self.planned is None else Range(*map(LongWatermark, self.planned))
        return DatasetPlan(units, SCHEMA, planned)

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Any:
        limits = Limits() if self.deaf else request.limits
        return (PlacedReader if self.placed else GivenReader)(self.lines, unit, limits)


class GivenReader:
    """Lines of a unit in batches of three, to its end or to that of the log."""

    expected_rows: int | None = None
    properties: ClassVar[dict[str, Any]] = {}

    def __init__(self, lines: int, unit: WorkUnit, limits: Limits) -> None:
        assert isinstance(unit.low, LongWatermark)
        high = unit.expected_high
        self._low = self._next = unit.low.value
        self._high = min(lines, high.value) if isinstance(high, LongWatermark) else lines
        self._high = max(self._low, self._high if limits.rows is None else min(self._high, self._low + limits.rows))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for low in range(self._low, self._high, 3):
            self._next = min(low + 3, self._high)
            yield pa.record_batch([pa.array([f"log/{n}" for n in range(low, self._next)], pa.string())], SCHEMA)
        self._next = self._high

    @property
    def actual_high(self) -> Watermark:
        return LongWatermark(self._next)

    def close(self) -> None:
        pass


class PlacedReader(GivenReader):
    """A reader that reports its position between batches."""

    @property
    def position(self) -> Watermark:
        return LongWatermark(self._next)


class Bench:
    """An ingestion of a log, run after run with other plans."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.store = MemoryStore()
        self.journal = Journal.create(self.store, "bench")
        self.ingestion = Ingestion("bench", Given(0), LineSink(str(folder)), "unused", **options)

    def opened(self, source: Given) -> OpenJob:
        return OpenJob(replace(self.ingestion, source=source), self.journal, NoConnections())

    def run(self, source: Given, request: RunRequest | None = None) -> DatasetReport:
        return inprocess.run(self.opened(source), NoConnections(), request)["log"]

    @property
    def state(self) -> DatasetState:
        return self.journal.state("log")

    def lines(self) -> list[int]:
        found: list[int] = []
        for path in self.journal.read_dataset("log").paths:
            found += [int(line.strip().removeprefix("log/")) for line in Path(path).read_text().splitlines()]
        return sorted(found)


def long(value: int) -> LongWatermark:
    return LongWatermark(value)


# Plans that work


@pytest.mark.parametrize("planned", [None, (5, 5)])
def test_a_first_watermark_without_rows_is_kept(tmp_path: Path, planned: tuple[int, int] | None) -> None:
    """A source that begins at the end of its log, as with the newest offsets of a topic."""
    bench = Bench(tmp_path)
    assert bench.run(Given(5, ((5, 5),), planned)).status == "committed"
    assert bench.state.watermark == long(5)
    assert bench.run(Given(8, ((5, 8),), (5, 8))).rows == 3
    assert bench.lines() == [5, 6, 7]


@pytest.mark.parametrize("planned", [None, (5, 5), (5, 9)])
def test_a_plan_of_empty_units_only_is_idle(tmp_path: Path, planned: tuple[int, int] | None) -> None:
    bench = Bench(tmp_path)
    bench.run(Given(5, ((0, 5),), (0, 5)))
    before = [*bench.store.list("")]
    assert bench.run(Given(5, ((5, 5), (5, 5)), planned)).status == "idle"
    assert [*bench.store.list("")] == before
    assert bench.run(Given(9, ((5, 5), (5, 9)), (5, 9))).rows == 4


def test_a_plan_that_doesnt_name_its_range_has_that_of_its_units(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.run(Given(9, ((0, 4), (4, 6)))).rows == 6
    assert bench.state.watermark == long(6)
    assert bench.run(Given(9, ((6, 9),))).watermark == long(9)
    assert bench.lines() == [*range(9)]


def test_a_unit_whose_expected_high_is_unknown_ends_where_the_source_reports(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.run(Given(7, ((0, 2), (2, None)))).watermark == long(7)
    assert bench.run(Given(7, ((7, None),))).watermark == long(7)
    assert bench.run(Given(9, ((7, None),))).watermark == long(9)
    assert bench.lines() == [*range(9)]


def test_within_a_planned_range_an_unknown_high_reaches_to_its_end_at_the_most(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    report = bench.run(Given(9, ((0, None),), (0, 5)))
    assert report.status == "failed"
    assert "it ended at 9, outside of its range [0, 5)" in report.detail
    assert bench.run(Given(4, ((0, None),), (0, 5))).watermark == long(4)


def test_of_two_runs_with_an_unknown_high_one_publishes_and_the_other_is_green(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    slow, quick = bench.opened(Given(7, ((0, None),))), bench.opened(Given(5, ((0, None),)))
    plan = create_work_units(slow, RunRequest("slow"))
    assert inprocess.run(quick, NoConnections(), RunRequest("quick"))["log"].watermark == long(5)
    assert inprocess.go_on(slow, plan, NoConnections())["log"].status == "covered"
    assert bench.lines() == [*range(5)]
    assert bench.run(Given(7, ((5, None),))).rows == 2


def test_a_decided_plan_with_an_unknown_high_that_came_late_loses(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    slow = bench.opened(Given(7, ((0, None),)))
    plan = create_work_units(slow, RunRequest("slow"))
    inprocess.extract(slow, plan, NoConnections())
    quick = bench.opened(Given(5, ((0, None),)))
    inprocess.publish(quick, create_work_units(quick, RunRequest("quick")), NoConnections())
    reports = write_commit_steps(slow, plan, plan.packs[0])
    assert [report.status for report in reports] == ["covered"]
    assert "[0, …) was committed by another run" in reports[0].detail
    assert bench.lines() == [*range(5)]


# Refused plans


@pytest.mark.parametrize(
    ("units", "planned", "why"),
    [
        (((0, 4), (4, 9)), (0, 8), "unit 'u1' is of [4, 9), outside of the planned range [0, 8)"),
        (((2, 4),), (3, 8), "unit 'u0' is of [2, 4), outside of the planned range [3, 8)"),
        (((9, None),), (0, 8), "unit 'u0' is of [9, …), outside of the planned range [0, 8)"),
        (((0, 2), (7, 4)), (0, 8), "unit 'u1' is of [7, 4): its low is above its high"),
        (((0, 2), (7, 4)), None, "unit 'u1' is of [7, 4): its low is above its high"),
        (((0, 2),), (5, 4), "the planned range is [5, 4): its low is above its high"),
        (((0, None), (4, 6)), None, "where unit 'u0' ends is not known, so no other unit may lie above 0"),
        (((4, 6), (0, None)), None, "where unit 'u1' ends is not known, so no other unit may lie above 0"),
        (((0, None), (0, None)), None, "unit 'u1' is of [0, …), and where 'u0' ends is not known, either"),
    ],
)
def test_what_a_source_may_not_plan_is_refused_at_planning(
    tmp_path: Path, units: tuple[Bounds, ...], planned: tuple[int, int] | None, why: str
) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(SourceError, match=r"can't plan dataset 'log'.*This is a fault of the source's code") as refused:
        create_work_units(bench.opened(Given(9, units, planned)), RunRequest("odd"))
    assert why in str(refused.value)
    assert bench.journal.history("log").state.head == 0, "no slot is taken"


@pytest.mark.parametrize("unit", [(0, 4), (3, 8), (4, None)])
def test_a_source_that_plans_what_is_covered_is_refused(tmp_path: Path, unit: Bounds) -> None:
    """It would be green for ever: its plan was committed, by itself."""
    bench = Bench(tmp_path)
    bench.run(Given(5, ((0, 5),), (0, 5)))
    with pytest.raises(SourceError, match="covered already"):
        create_work_units(bench.opened(Given(9, (unit,))), RunRequest("again"))


def test_a_unit_of_a_dataset_with_positions_has_a_low(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    plan = DatasetPlan((WorkUnit("u0", "log"),), SCHEMA)
    monkeypatch.setattr(Given, "plan", lambda *_: plan)
    with pytest.raises(SourceError, match="unit 'u0' has no low position"):
        create_work_units(bench.opened(Given(9)), RunRequest("odd"))


def test_a_new_position_without_rows_is_one_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)

    def plan(low: tuple[int, ...], high: tuple[int, ...]) -> None:
        unit = WorkUnit("u0", "log", MultiLongWatermark(low), MultiLongWatermark(high))
        monkeypatch.setattr(Given, "plan", lambda *_: DatasetPlan((unit,), SCHEMA))

    class Nothing(GivenReader):
        def __init__(self, lines: int, unit: WorkUnit, limits: Limits) -> None:
            self.unit = unit

        def __iter__(self) -> Iterator[pa.RecordBatch]:
            return iter(())

        @property
        def actual_high(self) -> Any:
            return self.unit.expected_high

    monkeypatch.setattr(Given, "read", lambda self, unit, *_: Nothing(0, unit, Limits()))
    plan((3,), (5,))
    assert bench.run(Given(0)).status == "committed"
    plan((5, 7), (5, 7))
    assert bench.run(Given(0)).watermark == MultiLongWatermark((5, 7))
    plan((5, 7), (5, 7))
    assert bench.run(Given(0)).status == "idle"


# Limits


@pytest.mark.parametrize("limits", [Limits(rows=4), Limits(bytes=30), Limits(seconds=1e-9)])
def test_a_reader_that_reports_its_position_is_stopped_at_a_limit(tmp_path: Path, limits: Limits) -> None:
    """Between distinct positions, after the batch with which the limit is met; the next run goes on exactly there."""
    bench = Bench(tmp_path, limits=limits)
    first = bench.run(Given(20, ((0, 20),), (0, 20), deaf=True, placed=True))
    assert first.watermark == long(3 if limits.seconds else 6)
    low = first.rows
    while low < 20:
        low += bench.run(Given(20, ((low, 20),), (low, 20), deaf=True, placed=True)).rows
    assert bench.lines() == [*range(20)]


@pytest.mark.parametrize("limits", [Limits(rows=4), Limits(bytes=30), Limits(seconds=1e-9)])
def test_a_reader_that_ignores_a_limit_fails_its_unit(tmp_path: Path, limits: Limits) -> None:
    bench = Bench(tmp_path, limits=limits)
    report = bench.run(Given(20, ((0, 20),), (0, 20), deaf=True))
    assert report.status == "failed"
    assert "its reader goes on after the limit of" in report.detail
    assert bench.state.head == 0


@pytest.mark.parametrize("placed", [False, True])
def test_a_reader_that_keeps_to_its_limit_is_left_alone(tmp_path: Path, placed: bool) -> None:
    bench = Bench(tmp_path, limits=Limits(rows=4))
    assert bench.run(Given(20, ((0, 20),), (0, 20), placed=placed)).watermark == long(4)


@pytest.mark.slow
def test_a_reader_that_looks_at_the_time_before_each_batch_keeps_to_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch that it waits for when the time is over comes after it."""

    class Timely(GivenReader):
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            started = time.monotonic()
            for batch in super().__iter__():
                time.sleep(0.2)
                yield batch
                if time.monotonic() - started >= 0.3:
                    return

    bench = Bench(tmp_path, limits=Limits(seconds=0.3))
    monkeypatch.setattr(Given, "read", lambda self, unit, *_: Timely(self.lines, unit, Limits()))
    report = bench.run(Given(20, ((0, 20),), (0, 20)))
    assert (report.status, report.detail) == ("committed", "slot 1")


# No progress


def test_rows_of_a_unit_that_ended_where_it_began_are_not_published_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(GivenReader):
        @property
        def actual_high(self) -> Watermark:
            return LongWatermark(self._low)

    bench = Bench(tmp_path)
    monkeypatch.setattr(Given, "read", lambda self, unit, *_: Forgetful(self.lines, unit, Limits()))
    report = bench.run(Given(5, ((0, 5),), (0, 5)))
    assert report.status == "failed"
    assert "it gave 5 rows, and ended where it began, at 0" in report.detail
    assert bench.state.head == 0


def test_a_unit_that_makes_no_progress_run_after_run_is_reported(tmp_path: Path) -> None:
    """Its reader reports that it read nothing, and the run would be green for ever."""
    bench = Bench(tmp_path)
    bench.run(Given(5, ((0, 5),), (0, 5)))
    reports = [bench.run(Given(5, ((5, 9),), (5, 9))) for _ in range(4)]
    assert [report.status for report in reports] == ["committed", "committed", "partial", "partial"]
    assert (
        "unit 'u0' of [5, 9) has made no progress in 3 runs or more: it was read, and ended where it began"
        in reports[2].detail
    )
    assert "in 4 runs" in reports[3].detail
    assert bench.run(Given(7, ((5, 9),), (5, 9))).status == "committed"
    assert bench.run(Given(7, ((7, 9),), (7, 9))).status == "committed"


def test_a_unit_that_makes_no_progress_is_reported_though_its_dataset_was_paused_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(Given(5, ((0, 5),), (0, 5)))
    for _ in range(2):
        bench.run(Given(5, ((5, 9),), (5, 9)))
    opened = bench.opened(Given(5, ((5, 9),), (5, 9)))
    plan = create_work_units(opened, RunRequest("monday"))
    inprocess.publish(opened, plan, NoConnections())
    Administration(bench.journal, str(tmp_path), "ann").pause("log", "to look at it")
    assert [report.status for report in finish(opened, plan)] == ["partial"]


def test_a_unit_that_fails_run_after_run_is_reported_with_its_cause(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, 10), policy=CommitPolicy.FULL)
    details = [lab.run(units=("a:u1",))["a"].detail for _ in range(3)]
    assert "no progress" not in details[1]
    assert "unit 'u1' of [4, 8) has made no progress in 3 runs" in details[2]
    assert "the line is dead" in details[2]


def test_an_open_unit_that_finds_nothing_is_not_stuck(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert {bench.run(Given(5, ((5, None),))).status for _ in range(5)} == {"committed"}
