"""A source, a sink and a step of a DAG author's own, which can be made to wait and to fail from outside.

It is put into the DAG folder and shipped to Spark, so it imports nothing of Airflow, and nothing of the other tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from airflow_gobblin.files import Files
from airflow_gobblin.plan import Plan
from airflow_gobblin.sinks.base import Writer
from airflow_gobblin.sinks.parquet import ParquetSink
from airflow_gobblin.sources.base import Connections, DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.sources.sql import SqlSource
from airflow_gobblin.state import DatasetState
from airflow_gobblin.steps import CommitStep, StepContext, StepStatus
from airflow_gobblin.wire import record
from airflow_gobblin.work import Dataset, UnitResult, WorkUnit


@dataclass(frozen=True)
class Gates:
    """Places in the code where a process can be held: the first that comes to a closed gate waits, later ones pass it."""

    folder: str

    def pass_through(self, name: str) -> None:
        """Go on, unless the gate is closed and nobody waits at it: then wait until it is opened."""
        at = Path(self.folder)
        try:
            os.rename(at / f"{name}.closed", at / f"{name}.waiting")
        except FileNotFoundError:
            return
        while (at / f"{name}.waiting").exists():
            time.sleep(0.05)

    def fail_if_broken(self, name: str) -> None:
        """Raise while something is broken."""
        if (Path(self.folder) / f"{name}.broken").exists():
            raise RuntimeError(f"{name} is broken")


@record("test.gated_source")
@dataclass(frozen=True)
class GatedSource:
    """A `SqlSource` that can be held at `plan` and at `read`, and be broken there."""

    inner: SqlSource
    gates: Gates

    @property
    def connection_ids(self) -> tuple[str, ...]:
        return self.inner.connection_ids

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return self.inner.modules(connections)

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        self.gates.fail_if_broken("datasets")
        return self.inner.datasets(connections)

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        self.gates.pass_through("plan")
        return self.inner.plan(dataset, states, request, connections)

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        self.gates.fail_if_broken("read")
        self.gates.fail_if_broken(f"read-{unit.urn}")
        self.gates.pass_through("read")
        return self.inner.read(unit, schema, request, connections)


@record("test.gated_sink")
@dataclass(frozen=True)
class GatedSink:
    """A `ParquetSink` whose sequences begin with a step that can be held and broken."""

    inner: ParquetSink
    gates: Gates

    @property
    def target(self) -> str:
        return self.inner.target

    def folder(self, dataset: Dataset) -> str:
        return self.inner.folder(dataset)

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        return self.inner.schema(planned, published, urn)

    def open(self, schema: pa.Schema, files: Files, folder: str, stem: str) -> Writer:
        return self.inner.open(schema, files, folder, stem)

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        self.gates.pass_through("publish")
        yield MarkStep(f"{plan.folder}/_mark-{plan.token}", self.gates)
        yield from self.inner.publish(plan, results, files)


@record("test.mark_step")
@dataclass(frozen=True)
class MarkStep:
    """Puts an empty file beside the published ones."""

    path: str
    gates: Gates

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.TODO if context.files.identity(self.path) is None else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        self.gates.fail_if_broken("step")
        self.gates.pass_through("step")
        context.files.make_folder(os.path.dirname(self.path))
        context.files.create(self.path).close()

    def undo(self, context: StepContext) -> None:
        if context.files.identity(self.path) is not None:
            context.files.unlink(self.path)

    def folders(self) -> tuple[str, ...]:
        return (os.path.dirname(self.path),)
