"""An example of an author's module for Spark: a source of integers, and a converter. It imports no Airflow."""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import SourceError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Json, LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind, UnitResult, WorkUnit
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, ReadRequest
from airflow_gobblin.steps.base import CommitStep, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.stores.base import Store

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
PATIENCE = 300.0


@record("acme.rows_source")
@dataclass(frozen=True)
class RowsSource:
    """Datasets `acme.rows0`, `acme.rows1` …: the integers from 0 on, in units `u0`, `u1` … of one size.

    :param rows: how many a unit has; none, and all units are empty.
    :param pause: seconds that each unit takes.
    :param gate: a file that the units of `waiting` wait for; each adds a line to `<gate>.<unit>` when it reaches it.
    :param failing: a file with the ids of units that fail.
    :param crashing: units whose process ends.
    :param conn_id: a connection that each unit asks for.
    :param note: is put into the job and each unit.
    """

    units: int
    rows: int = 100
    tables: int = 1
    pause: float = 0.0
    waiting: tuple[str, ...] = ()
    gate: str = ""
    failing: str = ""
    crashing: tuple[str, ...] = ()
    conn_id: str | None = None
    needs: tuple[str, ...] = ()
    note: str = ""

    @property
    def connection_ids(self) -> tuple[str, ...]:
        return (self.conn_id,) if self.conn_id else ()

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return self.needs

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        names = [f"rows{n}" for n in range(self.tables)]
        return tuple(Dataset(f"acme.{name}", Extract(ExtractKind.APPEND_ONLY, "acme", name)) for name in names)

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        if states[dataset.urn].watermark is not None:
            return DatasetPlan((), SCHEMA)
        edges = [LongWatermark(n * self.rows) for n in range(self.units + 1)]
        units = tuple(
            WorkUnit(f"u{n}", dataset.urn, edges[n], edges[n + 1], self.rows * 8, {"note": self.note})
            for n in range(self.units)
        )
        return DatasetPlan(units, SCHEMA, Range(edges[0], edges[-1]))

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> RowsReader:
        if self.conn_id:
            connections.uri(self.conn_id)
        return RowsReader(self, unit)


class RowsReader:
    def __init__(self, source: RowsSource, unit: WorkUnit) -> None:
        self._source = source
        self._unit = unit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        source, unit = self._source, self._unit
        if source.failing and unit.id in Path(source.failing).read_text().split():
            raise SourceError(operation="read", subject=f"unit {unit.id}", cause="it is made to fail")
        if unit.id in source.crashing:
            os._exit(7)
        if unit.id in source.waiting:
            self._wait(Path(source.gate))
        time.sleep(source.pause)
        assert isinstance(unit.low, LongWatermark)
        assert isinstance(unit.expected_high, LongWatermark)
        ids = pa.array(range(unit.low.value, unit.expected_high.value), pa.int64())
        yield pa.RecordBatch.from_arrays([ids], schema=SCHEMA)

    def _wait(self, gate: Path) -> None:
        with Path(f"{gate}.{self._unit.id}").open("a") as arrivals:
            arrivals.write(f"{os.getpid()}\n")
        deadline = time.monotonic() + PATIENCE
        while not gate.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody opened {gate}")
            time.sleep(0.05)

    @property
    def actual_high(self) -> LongWatermark:
        assert isinstance(self._unit.expected_high, LongWatermark)
        return self._unit.expected_high

    @property
    def expected_rows(self) -> int | None:
        return self._source.rows

    @property
    def properties(self) -> Mapping[str, Json]:
        return {}

    def close(self) -> None:
        pass


@record("acme.squares")
@dataclass(frozen=True)
class Squares:
    """Add the square of a column."""

    column: str

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        return incoming.append(pa.field("square", pa.int64()))

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column(batch.schema.get_field_index(self.column))
        return batch.append_column(pa.field("square", pa.int64()), pc.multiply(values, values))


@record("acme.sealed_parquet")
@dataclass(frozen=True)
class SealedParquet(ParquetSink):
    """Seals each file, once all of them are published.

    :param files: how many there are.
    :param conn_id: of the seals' step.
    """

    expected: int = 0
    conn_id: str = ""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        steps = [*super().publish(plan, results, files)]
        for step in steps:
            (file,) = step.files()
            yield SealStep(plan.folder, f"_{posixpath.basename(file.path)}.seal", self.expected, self.conn_id)
        yield from steps


@record("acme.seal_step")
@dataclass(frozen=True)
class SealStep:
    """Writes a seal with the host of a connection, if all files are there.

    :param expected: how many there must be.
    """

    folder: str
    name: str
    expected: int
    conn_id: str
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "its file is not there"

    @property
    def subject(self) -> str:
        return f"seal {self.name!r}"

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.TODO if self.seals(context).get(self.name) is None else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        found = sum(name.endswith(".parquet") for name in context.files.identities(self.folder))
        if found < self.expected:
            raise ValueError(f"only {found} of {self.expected} files are published")
        host = context.connections.uri(self.conn_id).rpartition("@")[2]
        self.seals(context).put_if_absent(self.name, host.encode())

    def undo(self, context: StepContext) -> None:
        self.seals(context).delete(self.name)

    def seals(self, context: StepContext) -> Store:
        return context.files.records(self.folder)

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (self.folder,)
