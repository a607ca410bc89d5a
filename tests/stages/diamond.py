"""A source of two datasets, and stages of them, on the tasks of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import NeverPublishedError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Decision
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.testing import inprocess
from tests.faults import Call, Crash, Faults, FaultyStore
from tests.protocol.rows import LineSink, RowSource, Table
from tests.stages.lines import LineStage, joined, lines

REACH = {"one": "a", "two": "ab"}


class Diamond:
    """Two datasets; a stage of one and a stage of both; and one of these two."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = f"file://{folder}/journal"
        self.rows, self.late_rows, self.revision, self.runs = 0, 0, 0, 0
        self.kind = ExtractKind.APPEND_ONLY
        a, b = (Input(self.journal, "raw", urn) for urn in "ab")
        one, two = (Input(self.journal, n, n, frozenset(f"raw/{urn}" for urn in REACH[n])) for n in REACH)
        self.stages = {
            "one": self.stage("one", a),
            "two": self.stage("two", a, b),
            "both": self.stage("both", one, two),
        }

    def rewinds(self, name: str) -> list[Decision]:
        slots = Journal.open(self.journal, name).history(name).slots
        return [slot.decision for slot in slots if slot.decision.action is Action.REWIND]

    def stage(self, name: str, *inputs: Input) -> LineStage:
        return LineStage(name, self.journal, str(self.folder / "lake"), inputs)

    @property
    def raw(self) -> Ingestion:
        tables = tuple(Table(urn, self.kind, self.rows, self.revision) for urn in "ab")
        source, sink = RowSource(tables), LineSink(str(self.folder / "raw"))
        return Ingestion("raw", source, sink, self.journal, seals=True, retention=timedelta(0))

    @property
    def late(self) -> Ingestion:
        source, sink = RowSource((Table("c", self.kind, self.late_rows),)), LineSink(str(self.folder / "late"))
        return Ingestion("late", source, sink, self.journal, seals=True, retention=timedelta(0))

    def grow(self, rows: int) -> None:
        """A scheduled run of the source, which seals the position that it comes to."""
        self.rows += rows
        self._seal(self.raw, self.rows)

    def idle(self, positions: int) -> None:
        """A scheduled run of the source that finds nothing new, and seals a later position."""
        self._seal(self.raw, self.rows + positions)

    def grow_late(self, rows: int) -> None:
        """The same of another source."""
        self.late_rows += rows
        self._seal(self.late, self.late_rows)

    def _seal(self, job: Ingestion, position: int) -> None:
        end = datetime.fromtimestamp(position, UTC)
        inprocess.run(self.opened(job), request=RunRequest(f"{job.name}/{position}", end, version=end))

    def opened(self, job: Ingestion | LineStage) -> OpenJob:
        return inprocess.open_job(job, journal=Journal.create(self.journal, job.name))

    def run(self, name: str) -> DatasetReport:
        self.runs += 1
        return inprocess.run(self.opened(self.stages[name]), request=RunRequest(f"{name}/{self.runs}"))[name]

    def rest(self) -> None:
        """Run every stage until none has anything to do."""
        for _ in range(20):
            found = [self.run(name).status for name in self.stages]
            if found == ["idle"] * len(found):
                return
        raise AssertionError("they don't come to rest")

    def rewind(self, urn: str, to: int) -> None:
        """The source has other rows from now on, and those from a position on are taken back."""
        self.revision += 1
        admin = Administration(Journal.open(self.journal, "raw", write=True), str(self.folder / "raw"), "ann")
        admin.rewind(urn, LongWatermark(to), "the rows were wrong")

    def admin(self, stage: str) -> Administration:
        return Administration(Journal.open(self.journal, stage, write=True), str(self.folder / "lake"), "ann")

    def paths(self, name: str) -> list[str]:
        job, urn = {"a": "raw", "b": "raw", "c": "late"}.get(name, name), name
        try:
            return Journal.open(self.journal, job).read_dataset(urn).paths
        except NeverPublishedError:
            return []

    def slots(self, name: str) -> Mapping[int, tuple[Action, bool]]:
        history = Journal.open(self.journal, name).history(name)
        return {slot.decision.slot: (slot.decision.action, slot.done) for slot in history.slots}

    def versions(self, name: str) -> list[int]:
        state = Journal.open(self.journal, name).state(name)
        return [int(state.checkpoints[slot].version.timestamp()) for slot in state.versions]

    def check(self) -> None:
        """One pass in plain Python over what the source published gives the same."""
        source = {urn: lines(self.paths(urn)) for urn in "ab"}
        one, two = joined("one", [source["a"]]), joined("two", [source["a"], source["b"]])
        assert lines(self.paths("one")) == one
        assert lines(self.paths("two")) == two
        assert lines(self.paths("both")) == joined("both", [one, two])


def dying(opened: OpenJob, key: str) -> OpenJob:
    """The job, whose process dies before it puts a record."""

    def hook(call: Call) -> None:
        if call.operation == "put" and call.subject == key:
            raise Crash

    return hooked(opened, hook)


def hooked(opened: OpenJob, hook: Callable[[Call], None]) -> OpenJob:
    opened.journal.store = FaultyStore(opened.journal.store, Faults(hook=hook))
    return opened
