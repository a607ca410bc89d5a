"""Stages of text lines, which run in this process: the six tasks of the graph, real journals and files, and no Spark."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import GobblinError, NoSuchRangeError
from airflow_gobblin.job import Attempt, DatasetLike, NothingHeld, Restore, WorkPlan, WorkRequest
from airflow_gobblin.model import schema as schemas
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitResult, UnitState, WorkUnit
from airflow_gobblin.stages.inputs import check_parents, next_version, published, to_restore
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.stages.record import keep_inputs
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files import Files
from airflow_gobblin.storage.stores.base import Store
from tests.protocol.rows import SCHEMA, LineSink

COLUMNS = schemas.encode(SCHEMA)


@dataclass(frozen=True)
class StageDataset:
    urn: str
    origin: str
    holds: ClassVar[Holds] = Holds.VERSIONS


@record("test.lines_of")
@dataclass(frozen=True)
class LinesOf:
    """The binding of a plan.

    :param files: of each input, the paths that its version consumes.
    """

    files: Mapping[str, tuple[str, ...]]


@record("test.joined_lines")
@dataclass(frozen=True)
class JoinedLines:
    """A stage that joins the lines of its inputs by what follows their last `/`, and names the evaluation in each."""

    name: str
    sink: LineSink
    inputs: tuple[Input, ...]
    site: ClassVar[Site] = Site.TASK
    connection_ids: ClassVar[tuple[str, ...]] = ()
    code: ClassVar[tuple[str, ...]] = ()

    @property
    def target(self) -> str:
        return self.sink.target

    @property
    def workspace(self) -> str:
        return self.sink.target

    @property
    def source_identity(self) -> str:
        return " ".join(one.id for one in self.inputs)

    def datasets(self, connections: Connections) -> tuple[StageDataset, ...]:
        return (StageDataset(self.name, self.source_identity),)

    def resolve(self, dataset: DatasetLike, request: RangeRequest, connections: Connections) -> Range:
        raise NoSuchRangeError(operation="backfill", subject=f"stage {self.name!r}", cause="it has versions")

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
        made = next_version(self.inputs, states[self.name], connections)
        if made is None:
            return None
        found = {one.urn: tuple(published(one, made, states[self.name], connections).paths) for one in self.inputs}
        return WorkPlan(
            iter([WorkUnit("version", self.name)]), self.name, LinesOf(found), schema=COLUMNS, checkpoint=made
        )

    def to_restore(self, state: DatasetState, connections: GuardedConnections) -> Restore | None:
        return to_restore(self.inputs, state, connections, stateful=False)

    def look(self, plan: Plan, state: DatasetState, connections: GuardedConnections) -> Mapping[str, int]:
        assert plan.checkpoint is not None
        return check_parents(self.inputs, plan.checkpoint, state, connections)

    def keep_inputs(self, store: Store, at: datetime, run: str) -> None:
        keep_inputs(store, self.name, self.inputs, at, run)

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return ()

    def hold(self, connections: Connections) -> AbstractContextManager[NothingHeld]:
        return nullcontext(NothingHeld())

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        binding = plan.binding
        assert isinstance(binding, LinesOf)
        try:
            inputs = [lines(paths) for paths in binding.files.values()]
        except OSError:
            return UnitResult(unit.id, attempt.id, UnitState.FAILED)
        found = joined(self.name, inputs)
        staged = f"{attempt.folder}/{attempt.id}/{unit.id}-{secrets.token_hex(8)}/{unit.id}"
        writer = self.sink.open(None, attempt.files, staged, f"{plan.folder}/{plan.token}-{unit.id}")
        rows = [f"{row} @{attempt.id[:8]}" for row in found]
        if rows:
            writer.write_rows(rows)
        return UnitResult(
            unit.id, attempt.id, UnitState.SUCCESSFUL, files=writer.close(), rows_read=len(rows), rows_written=len(rows)
        )

    def publish(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], files: Files, staging: str
    ) -> Iterable[CommitStep]:
        return self.sink.publish(plan, (result for _, result in published), files)


@dataclass(frozen=True)
class LineStage:
    """The noun of such a stage."""

    name: str
    journal: str
    target: str
    inputs: tuple[Input, ...]
    policy: ClassVar[CommitPolicy] = CommitPolicy.FULL
    partial_ok: ClassVar[bool] = False
    max_packs: ClassVar[int] = 1
    max_pack_weight: ClassVar[int | None] = None
    attempts: ClassVar[int] = 3
    retention: timedelta = field(default_factory=timedelta)

    @property
    def work(self) -> JoinedLines:
        return JoinedLines(self.name, LineSink(self.target), self.inputs)


def lines(paths: Iterable[str]) -> list[str]:
    """The rows in files, without the evaluations that made them."""
    texts = (Path(path).read_text() for path in paths)
    return sorted(line.partition("@")[0].strip() for text in texts for line in text.splitlines())


def evaluations(paths: Iterable[str]) -> set[str]:
    return {line.rpartition("@")[2].strip() for path in paths for line in Path(path).read_text().splitlines()}


def joined(name: str, inputs: Iterable[Iterable[str]]) -> list[str]:
    """The rows that a stage makes of those of its inputs."""
    by_key: dict[str, list[str]] = {}
    for rows in inputs:
        for row in rows:
            by_key.setdefault(row.rstrip(")").rpartition("/")[2], []).append(row)
    return sorted(f"{name}({'+'.join(rows)})" for rows in by_key.values())
