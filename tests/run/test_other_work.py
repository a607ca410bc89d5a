"""A job of another work than rows: the tasks of the graph plan, run, publish and recover it by the port alone."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_gobblin.connections import Connections, GuardedConnections, NoConnections
from airflow_gobblin.errors import GobblinError, NoSuchRangeError
from airflow_gobblin.job import Attempt, DatasetLike, Held, Job, NothingHeld, Work, WorkPlan, WorkRequest
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import StagedFile, UnitResult, UnitState, WorkUnit
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.publishing import publish_file
from airflow_gobblin.storage.files import Files
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import WorkContract, inprocess
from tests.lab import published_paths


@dataclass(frozen=True)
class Copied:
    """A file to copy: `log` grows, and its bytes are positions; any other file is taken whole."""

    urn: str
    origin: str

    @property
    def holds(self) -> Holds:
        return Holds.RANGES if self.urn == "log" else Holds.SNAPSHOT


@record("test.copy_binding")
@dataclass(frozen=True)
class CopyBinding:
    """The part of its plan that only the copy reads."""

    source: str


@record("test.copy")
@dataclass(frozen=True)
class WholeFilesWork:
    """The files of a folder, as bytes. No rows, no schema, no source and no sink."""

    folder: str
    target: str
    code: tuple[str, ...] = ()
    connection_ids: tuple[str, ...] = ()
    site: Site = Site.TASK

    @property
    def workspace(self) -> str:
        return self.target

    @property
    def source_identity(self) -> str:
        return f"copy {self.folder}"

    def datasets(self, connections: Connections) -> tuple[Copied, ...]:
        return tuple(Copied(path.name, str(path)) for path in sorted(Path(self.folder).iterdir()))

    def resolve(self, dataset: DatasetLike, request: RangeRequest, connections: Connections) -> Range:
        if not dataset.holds.covers_ranges:
            raise NoSuchRangeError(operation="backfill", subject=dataset.urn, cause="a file that is taken whole")
        assert isinstance(request.start, int)
        assert isinstance(request.end, int)
        return Range(LongWatermark(request.start), LongWatermark(request.end))

    def check(self, dataset: DatasetLike, connections: Connections) -> Iterator[GobblinError]:
        return iter(())

    def plan(
        self,
        dataset: DatasetLike,
        states: Mapping[str, DatasetState],
        request: WorkRequest,
        files: Files,
        connections: GuardedConnections,
    ) -> WorkPlan | None:
        urn, size, binding = dataset.urn, os.path.getsize(dataset.origin), CopyBinding(dataset.origin)
        if not dataset.holds.covers_ranges:
            return WorkPlan(iter([WorkUnit("u0", urn)]), urn, binding)
        whole = Range(LongWatermark(0), LongWatermark(size))
        parts = request.ranges or request.covered.uncovered(whole)
        units = [WorkUnit(f"u{i}", urn, part.low, part.high) for i, part in enumerate(parts)]
        return WorkPlan(iter(units), urn, binding, planned=Range(parts[0].low, parts[-1].high)) if parts else None

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return ()

    def hold(self, connections: Connections) -> AbstractContextManager[Held]:
        return nullcontext(NothingHeld())

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        assert isinstance(plan.binding, CopyBinding)
        data, low, high = Path(plan.binding.source).read_bytes(), unit.low, unit.expected_high
        if isinstance(low, LongWatermark) and isinstance(high, LongWatermark):
            data = data[low.value : high.value]
        folder = f"{attempt.folder}/{attempt.id}/{unit.id}-{secrets.token_hex(8)}"
        try:
            staged = self._write(attempt.files, f"{folder}/{unit.id}", self._name(plan, unit.id), data)
        except OSError as error:
            failure = Failure.of(GobblinError(operation="copy", subject=f"unit {unit.id!r}", cause=error))
            return UnitResult(unit.id, attempt.id, UnitState.FAILED, failure=failure)
        return UnitResult(unit.id, attempt.id, UnitState.SUCCESSFUL, high, (staged,))

    def _write(self, files: Files, staged: str, target: str, data: bytes) -> StagedFile:
        out = files.stage(staged, target)
        try:
            out.write(data)
            written = out.finish(0)
            files.sync_folder(str(Path(staged).parent))
            return written
        except OSError:
            out.abort()
            raise

    def publish(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], files: Files, staging: str
    ) -> Iterator[CommitStep]:
        for _, result in published:
            yield from (publish_file(file, self._name(plan, result.unit), result.unit, files) for file in result.files)

    def _name(self, plan: Plan, unit: str) -> str:
        return f"{plan.folder}/{plan.token}-{unit}"


@dataclass(frozen=True)
class Copying:
    """A job that is no ingestion."""

    work: WholeFilesWork
    name: str = "copying"
    journal: str = "unused"
    policy: CommitPolicy = CommitPolicy.FULL
    partial_ok: bool = False
    max_packs: int = 2
    max_pack_weight: int | None = None
    attempts: int = 3
    retention: timedelta = timedelta(0)


class TestWholeFilesWork(WorkContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "from"
        folder.mkdir()
        (folder / "log").write_bytes(b"one two ")
        (folder / "page").write_bytes(b"first")
        return folder

    @pytest.fixture
    def make_job(self, folder: Path) -> Callable[[str], Job]:
        return lambda target: Copying(WholeFilesWork(str(folder), target))

    @pytest.fixture
    def grow(self, folder: Path) -> Callable[[], None]:
        def grow() -> None:
            (folder / "log").write_bytes(b"one two three ")
            (folder / "page").write_bytes(b"second")

        return grow


class Place:
    """A folder to copy, and where to.

    :param opened: the job, with a journal in memory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, target = folder / "from", folder / "to"
        self.folder.mkdir()
        work: Work = WholeFilesWork(str(self.folder), str(target))
        assert isinstance(work, WholeFilesWork)
        job: Job = Copying(work)
        self.opened = OpenJob(job, Journal.create(MemoryStore(), "copying"), NoConnections())

    def run(self, request: RunRequest | None = None) -> dict[str, str]:
        reports = inprocess.run(self.opened, NoConnections(), request)
        return {urn: report.status.value for urn, report in reports.items()}

    def read(self, urn: str) -> list[bytes]:
        return sorted(Path(path).read_bytes() for path in published_paths(self.opened.journal, urn))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    (made.folder / "log").write_bytes(b"one two ")
    (made.folder / "page").write_bytes(b"first")
    return made


def test_what_it_plans_is_run_and_published(place: Place) -> None:
    assert place.run() == {"log": "committed", "page": "committed"}
    assert (place.read("log"), place.read("page")) == ([b"one two "], [b"first"])
    state = place.opened.journal.state("log")
    assert (state.watermark, state.schema) == (LongWatermark(8), None)
    assert [place.opened.journal.history(urn).slots[-1].holds for urn in ("log", "page")] == [
        Holds.RANGES,
        Holds.SNAPSHOT,
    ]


def test_ranges_are_added_and_a_snapshot_is_replaced(place: Place) -> None:
    place.run()
    (place.folder / "log").write_bytes(b"one two three ")
    (place.folder / "page").write_bytes(b"second")
    assert place.run() == {"log": "committed", "page": "committed"}
    assert (place.read("log"), place.read("page")) == ([b"one two ", b"three "], [b"second"])
    assert place.run() == {"log": "idle", "page": "committed"}


def test_a_range_is_published_anew_and_what_has_none_is_left_out(place: Place) -> None:
    place.run()
    (place.folder / "log").write_bytes(b"ONE two ")
    assert place.run(RunRequest("again", start=0, end=4, replace=True)) == {"log": "committed", "page": "idle"}
    assert place.read("log") == [b"ONE two "]


def test_of_two_snapshots_that_were_planned_at_once_one_loses(place: Place) -> None:
    late = create_work_units(place.opened, RunRequest("late"))
    place.run()
    reports = inprocess.go_on(place.opened, late, NoConnections())
    assert {urn: report.status.value for urn, report in reports.items()} == {"log": "covered", "page": "lost"}


def test_it_is_refused_to_go_on_as_something_else(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.run()
    monkeypatch.setattr(Copied, "holds", Holds.SNAPSHOT)
    reports = inprocess.run(place.opened, NoConnections())
    assert "holds ranges of positions, and this run would publish a snapshot" in reports["log"].detail


def test_a_plan_without_the_range_that_its_slots_would_cover_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        WholeFilesWork, "plan", lambda self, dataset, *_: WorkPlan(iter(()), dataset.urn, CopyBinding(""))
    )
    reports = inprocess.run(place.opened, NoConnections())
    assert "its slots hold ranges of positions, and the range of its plan is None" in reports["log"].detail
