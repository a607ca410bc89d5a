"""A stage with state that runs in this process: totals of a source's rows by key, with everything of the library but Spark."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gobblin import ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, Stage, State, frame
from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.job import Attempt, connections_of
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model import schema as schemas
from airflow_gobblin.model.channels import ROWS, STATE
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import MadeChannel, UnitResult, UnitState, WorkUnit
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.stage import StageJob
from airflow_gobblin.stages.evaluation import WriteOrder, write_partition
from airflow_gobblin.stages.frames import FrameBinding, FrameWork, published_stem
from airflow_gobblin.stages.functions import StageFunction
from airflow_gobblin.testing import inprocess
from tests.protocol.rows import RowSource, Table

SCHEMA = pa.schema([("key", pa.int64()), ("total", pa.int64()), ("by", pa.string())])
KEYS = 3


@frame("test.totals")
def totals(rows: Iterable[str], state: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The keys that are touched, and all, each with the evaluations that its total went through, which differ each time."""
    name, before = uuid.uuid4().hex[:8], {row["key"]: row for row in state}
    counts = Counter(int(row.rpartition("/")[2]) % KEYS for row in rows)
    nothing = {"total": 0, "by": ""}
    touched = {
        key: {"key": key, "total": old["total"] + count, "by": f"{old['by']}{name} "}
        for key, count in counts.items()
        for old in [before.get(key, nothing)]
    }
    return [*touched.values()], [*{**before, **touched}.values()]


@record("test.totals_work")
class TotalsWork(FrameWork):
    """The work of a stage, whose function has lists for DataFrames."""

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        binding = FrameBinding.of(plan)
        rows = [row["row"] for some in binding.inputs.values() for one in some for row in rows_of(one.paths)]
        before = [] if binding.state is None else rows_of(binding.state.paths)
        assert self.state is not None
        made = dict(zip((ROWS, STATE), totals(rows, before), strict=True))
        parts = {channel: self._written(channel, found, unit, plan, attempt) for channel, found in made.items()}
        encoded = schemas.encode(SCHEMA)
        return UnitResult(
            unit.id,
            attempt.id,
            UnitState.SUCCESSFUL,
            files=tuple(file for some in parts.values() for part in some for file in part.files),
            rows_read=len(rows),
            rows_written=len(made[ROWS]),
            schema=encoded,
            channels=(MadeChannel(STATE, encoded, sum(len(part.files) for part in parts[STATE])),),
        )

    def _written(
        self, channel: str, rows: list[dict[str, Any]], unit: WorkUnit, plan: Plan, attempt: Attempt
    ) -> list[UnitResult]:
        assert self.state is not None
        key, buckets = (self.state.key, self.state.buckets) if channel == STATE else ((), 1)
        folder, stem = f"{attempt.folder}/{attempt.id}", published_stem(plan, channel)
        given = SparkConnections({name: attempt.connections.uri(name) for name in connections_of(self)})
        order = WriteOrder(self.workspace, self.sink, SCHEMA, unit.id, attempt.id, folder, stem, given, channel, key)
        some = ([row for row in rows if row["key"] % buckets == bucket] for bucket in range(buckets))
        tables = (pa.Table.from_pylist(part, SCHEMA) for part in some)
        return [write_partition(order, number, table.to_batches()) for number, table in enumerate(tables)]


class Totals:
    """A source of rows, and the stage."""

    function: StageFunction = Frame("test.totals")
    code: tuple[str, ...] = ()

    def __init__(self, folder: Path, state: State | None = None) -> None:
        self.folder, self.rows, self.revision, self.runs = folder, 0, 0, 0
        self.journal = f"file://{folder}/journal"
        self.state = state or State(key=("key",), buckets=2, keep=3)
        self.connections: Connections = NoConnections()

    @property
    def pipeline(self) -> Pipeline:
        table = Table("rows", ExtractKind.APPEND_ONLY, self.rows, self.revision)
        raw = Ingestion("raw", RowSource((table,)), self.sink("raw"), self.journal, retention=timedelta(0))
        stage = Stage(
            "totals",
            self.function,
            {"rows": raw["rows"]},
            self.sink("lake"),
            self.state,
            retention=timedelta(0),
        )
        return Pipeline("totals", (raw, stage), self.journal, self.code)

    def sink(self, name: str) -> ParquetSink:
        return ParquetSink(f"{self.folder}/{name}")

    def opened(self, name: str = "totals") -> OpenJob:
        job = self.pipeline[name]
        if isinstance(job, StageJob):
            job = self.bound(job)
        return inprocess.open_job(job, self.connections, Journal.create(self.journal, name))

    def bound(self, job: StageJob) -> StageJob:
        return StageJob(job.name, job.journal, TotalsWork(**vars(job.work)), job.attempts, job.retention)

    def grow(self, rows: int) -> None:
        """A scheduled run of the source, which seals the position that it comes to."""
        self.rows += rows
        end = datetime.fromtimestamp(self.rows, UTC)
        inprocess.run(self.opened("raw"), request=RunRequest(f"raw/{self.rows}", end, version=end))

    def run(self) -> DatasetReport:
        self.runs += 1
        return inprocess.run(self.opened(), request=RunRequest(f"totals/{self.runs}"))["totals"]

    def rewind(self, to: int) -> None:
        """The source has other rows from now on, and those from a position on are taken back."""
        self.revision += 1
        admin = Administration(Journal.open(self.journal, "raw", write=True), f"{self.folder}/raw", "ann")
        admin.rewind("rows", LongWatermark(to), "the rows were wrong")

    @property
    def admin(self) -> Administration:
        return Administration(Journal.open(self.journal, "totals", write=True), f"{self.folder}/lake", "ann")

    @property
    def read(self) -> Journal:
        return Journal.open(self.journal, "totals")

    @property
    def actions(self) -> list[Action]:
        return [slot.decision.action for slot in self.read.history("totals").slots]

    def states(self) -> dict[int, dict[int, dict[str, Any]]]:
        """The state of each live version that has its files, by version and key."""
        history = self.read.history("totals")
        found = {}
        for ref in history.state.units_of(STATE):
            rows = rows_of(file.path for file in self.read.published_files(history, [ref]))
            found[int(history.state.checkpoints[ref.slot].version.timestamp())] = {row["key"]: row for row in rows}
        return found

    def published(self, version: int) -> dict[int, dict[str, Any]]:
        """The rows of a version, by key."""
        history = self.read.history("totals")
        slot = next(s for s, one in history.state.checkpoints.items() if int(one.version.timestamp()) == version)
        refs = [ref for ref in history.state.units_of(ROWS) if ref.slot == slot]
        return {row["key"]: row for row in rows_of(f.path for f in self.read.published_files(history, refs))}

    def check(self) -> None:
        """Rows and state of each version are of one evaluation, made from the state before; and what one pass gives."""
        state = self.read.state("totals")
        versions = [int(state.checkpoints[slot].version.timestamp()) for slot in state.versions]
        latest: dict[int, dict[str, Any]] = {}
        states, low = self.states(), 0
        for version in versions:
            rows = self.published(version)
            assert {row["by"].split()[-1] for row in rows.values()} == {next(iter(rows.values()))["by"].split()[-1]}
            for key, row in rows.items():
                old = latest.get(key, {"total": 0, "by": ""})
                assert row["by"].startswith(old["by"])
                assert len(row["by"].split()) == len(old["by"].split()) + 1
            latest = {**latest, **rows}
            low = version
            assert {k: row["total"] for k, row in latest.items()} == dict(Counter(n % KEYS for n in range(low)))
            if version in states:
                assert states[version] == latest


def rows_of(paths: Iterable[str]) -> list[dict[str, Any]]:
    return [row for path in paths for row in pq.read_table(path).to_pylist()]
