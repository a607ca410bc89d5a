"""A source, a sink and a step of an author's own, which can be made to wait and to fail from outside: see `Gates`.

It is put into the DAG folder and shipped to Spark, so it imports nothing of Airflow, and nothing of the other tests.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa

from airflow_gobblin.connections import Connections
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Json, Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, UnitResult, WorkUnit
from airflow_gobblin.rows.sinks.base import Writer
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.rows.sources.sql import SqlSource
from airflow_gobblin.steps.base import CommitStep, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files import Files


class Leak(BaseException):
    """An end that is no `Exception`."""


@dataclass(frozen=True)
class Gates:
    """Places in the code where a process can be held: the first to reach a closed gate waits, later ones pass it."""

    folder: str

    def pass_through(self, name: str) -> None:
        """Go on, unless the gate is closed and no process waits at it: then wait until it is opened."""
        at = Path(self.folder)
        try:
            os.rename(at / f"{name}.closed", at / f"{name}.waiting")
        except FileNotFoundError:
            return
        while (at / f"{name}.waiting").exists():
            time.sleep(0.05)
        (at / f"{name}.passed").touch()

    def fail_if_broken(self, name: str) -> None:
        """Raise while something is broken."""
        if (Path(self.folder) / f"{name}.broken").exists():
            raise RuntimeError(f"{name} is broken")

    def leak_once(self, name: str, secret: str) -> None:
        """Raise an error that shows a URI and its password in several spellings, if something was set to."""
        try:
            (Path(self.folder) / f"{name}.leaking").unlink()
        except FileNotFoundError:
            return
        password = unquote(secret.partition("://")[2].rpartition("@")[0].partition(":")[2])
        texts = [
            secret,
            password,
            repr(password),
            json.dumps({"password": password}),
            quote(password),
            password.encode().hex(),
        ]
        print(*texts, file=sys.stderr)
        raise Leak(f"{name} failed at {' '.join(texts)}") from OSError(
            base64.b64encode(f":{password}".encode()).decode()
        )


@record("test.gated_source")
@dataclass(frozen=True)
class GatedSource:
    """A `SqlSource` that can be held and broken while it plans a dataset, and in the middle of reading one."""

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
        self.gates.pass_through(f"plan-{dataset_key(dataset.urn)}")
        return self.inner.plan(dataset, states, request, connections)

    def resolve(self, dataset: Dataset, request: RangeRequest, connections: Connections) -> Range:
        return self.inner.resolve(dataset, request, connections)

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        gate = f"read-{dataset_key(unit.urn)}"
        self.gates.fail_if_broken(gate)
        self.gates.leak_once(gate, connections.uri(self.inner.conn_id))
        return GatedReader(self.inner.read(unit, schema, request, connections), self.gates, gate)


class GatedReader:
    """A reader that can be held when its first batch is written."""

    def __init__(self, inner: Reader, gates: Gates, gate: str) -> None:
        self._inner = inner
        self._gates = gates
        self._gate = gate
        self.close = inner.close

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._inner:
            yield batch
            self._gates.pass_through(self._gate)

    @property
    def actual_high(self) -> Watermark | None:
        return self._inner.actual_high

    @property
    def expected_rows(self) -> int | None:
        return self._inner.expected_rows

    @property
    def properties(self) -> Mapping[str, Json]:
        return self._inner.properties


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

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Writer:
        return self.inner.open(schema, files, staged, published)

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        self.gates.pass_through(f"publish-{dataset_key(plan.urn)}")
        yield MarkStep(f"{plan.folder}/_mark-{plan.token}", plan.urn, self.gates)
        yield from self.inner.publish(plan, results, files)


@record("test.mark_step")
@dataclass(frozen=True)
class MarkStep:
    """Put an empty file beside the published ones."""

    path: str
    urn: str
    gates: Gates

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.TODO if context.files.identity(self.path) is None else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        self.gates.fail_if_broken(f"step-{dataset_key(self.urn)}")
        self.gates.pass_through(f"step-{dataset_key(self.urn)}")
        context.files.make_folder(os.path.dirname(self.path))
        context.files.create(self.path).close()

    def undo(self, context: StepContext) -> None:
        self.gates.fail_if_broken(f"undo-{dataset_key(self.urn)}")
        self.gates.pass_through(f"undo-{dataset_key(self.urn)}")
        if context.files.identity(self.path) is not None:
            context.files.unlink(self.path)

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (os.path.dirname(self.path),)

    @property
    def subject(self) -> str:
        return f"mark {self.path!r}"

    phase = Phase.PUBLISH
    fence = None
    conflict = lost = "it is not there"
