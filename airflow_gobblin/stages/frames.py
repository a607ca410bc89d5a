"""The work of a stage: a unit is a version, made from DataFrames on Spark's driver. Light to import, as Spark tasks import it."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from airflow_gobblin.errors import GobblinError, NoSuchRangeError, NotFoundError
from airflow_gobblin.job import GivenUpState, NothingHeld, WorkPlan
from airflow_gobblin.model.channels import ROWS, STATE, unit_of
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.table import Owner
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind, StagedFile, WorkUnit
from airflow_gobblin.rows.sinks.base import Sink, TableSink
from airflow_gobblin.rows.sinks.partitions import partition_folder_of
from airflow_gobblin.stages.ddl import check_declared
from airflow_gobblin.stages.functions import StageFunction
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.stages.restore import floor_of, state_below
from airflow_gobblin.stages.state import State, checked_channels, checked_form, state_before
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.publishing import publish_file

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_gobblin.connections import Connections, GuardedConnections
    from airflow_gobblin.job import Attempt, DatasetLike, Restore, WorkRequest
    from airflow_gobblin.model.checkpoint import StateForm
    from airflow_gobblin.model.coverage import Range
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.request import RangeRequest
    from airflow_gobblin.model.state import DatasetState
    from airflow_gobblin.model.table import TableRecord, TableTarget
    from airflow_gobblin.model.work import UnitResult
    from airflow_gobblin.storage.files.base import Files
    from airflow_gobblin.storage.stores.base import Store

__all__ = ["ConsumedInput", "FrameBinding", "FrameWork", "StageDataset", "as_dataset"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageDataset:
    """The only dataset of a stage, which has its name."""

    urn: str
    origin: str
    holds: ClassVar[Holds] = Holds.VERSIONS


def as_dataset(stage: str) -> Dataset:
    """Return a stage as a sink of tables knows it: a dataset that grows."""
    return Dataset(stage, Extract(ExtractKind.APPEND_ONLY, "", stage))


@dataclass(frozen=True)
class ConsumedInput:
    """The part of an input that a version consumes.

    :param schema: the schema of its files, encoded.
    :param paths: the files, absolute or as URLs; there may be none.
    """

    schema: str
    paths: tuple[str, ...]
    rows: int


@record("frame_binding")
@dataclass(frozen=True)
class FrameBinding:
    """The binding of the plan of a version. See `model.plan.Binding`.

    :param inputs: by the names that the function knows.
    :param state: the state of the version before, if the stage has state and this version isn't its first.
    :param owner: the stage as its table knows it, if its rows go to one.
    """

    inputs: Mapping[str, tuple[ConsumedInput, ...]]
    state: ConsumedInput | None = None
    owner: Owner | None = None

    @staticmethod
    def of(plan: Plan) -> FrameBinding:
        """Return the binding of a version's plan."""
        assert isinstance(plan.binding, FrameBinding)
        return plan.binding

    @property
    def rows(self) -> int:
        """The number of rows of all inputs."""
        return sum(one.rows for some in self.inputs.values() for one in some)


@record("frame_work")
@dataclass(frozen=True)
class FrameWork:
    """The work of a stage: a unit is a version, which a function makes from DataFrames. See `job.Work`.

    :param stage: the stage's name.
    :param inputs: by the names that the function knows; several under one name are one input together.
    :param state: the state that the function keeps, if it does.
    :param journal: the location of the stage's own journal, where its state is found, or the id of its connection.
    :param channels: what its function gives alongside its rows, by name.
    """

    stage: str
    function: StageFunction
    inputs: Mapping[str, tuple[Input, ...]]
    sink: Sink
    code: tuple[str, ...] = ()
    state: State | None = None
    journal: str = ""
    channels: tuple[str, ...] = ()

    @property
    def site(self) -> Site:
        """The site of the work: Spark's driver. Spark tasks write what it makes."""
        return Site.DRIVER

    @property
    def upstreams(self) -> tuple[Input, ...]:
        """All that it reads."""
        return tuple(chain.from_iterable(self.inputs.values()))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The arguments that its function is called with, by name."""
        return (*self.inputs,) if self.state is None else (*self.inputs, STATE)

    @property
    def target(self) -> str:
        """The sink's target root."""
        return self.sink.target

    @property
    def workspace(self) -> str:
        """The sink's target root, too: staged files move within one file system. For a sink of tables it is the workspace."""
        return self.sink.target

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections of its table, if it has one: Spark itself reads the inputs."""
        return () if self.table is None else self.table.connection_ids

    @property
    def table(self) -> TableRecord | None:
        """The table that its rows go to; `None`: they go to files."""
        return self.sink.table_of(as_dataset(self.stage)) if isinstance(self.sink, TableSink) else None

    def table_of(self, dataset: DatasetLike) -> TableRecord | None:
        """Return its table, if it has one."""
        return self.table

    @property
    def source_identity(self) -> str:
        """The ids of its inputs, with the journal of those that have another one."""
        elsewhere = {one.journal: f" in {one.journal}" for one in self.upstreams if one.journal != self.journal}
        return " ".join(sorted(one.label + elsewhere.get(one.journal, "") for one in self.upstreams))

    def datasets(self, connections: Connections) -> tuple[StageDataset, ...]:
        """Return the only dataset, which has the stage's name."""
        return (StageDataset(self.stage, self.source_identity),)

    def resolve(self, dataset: DatasetLike, request: RangeRequest, connections: Connections) -> Range:
        """Refuse a range: a stage has versions.

        :raises NoSuchRangeError: always.
        """
        raise NoSuchRangeError(
            operation="backfill",
            subject=f"stage {self.stage!r}",
            cause="it has versions, which follow from what its inputs publish",
            hint="Backfill or rewind the ingestion that it reads: the stage follows.",
        )

    def check(self, dataset: DatasetLike, connections: Connections) -> Iterator[GobblinError]:
        """Yield the fault of its function, if the function can't be called."""
        try:
            self.function.check_code(self.parameters)
        except GobblinError as error:
            yield error

    def plan(
        self,
        dataset: DatasetLike,
        states: Mapping[str, DatasetState],
        request: WorkRequest,
        files: Files,
        connections: GuardedConnections,
    ) -> WorkPlan | None:
        """Plan the next version, once every input has one, and has published anything at all."""
        from airflow_gobblin.stages.inputs import next_version, published

        state = states[self.stage]
        form = checked_form(self.stage, self.state, state)
        channels = checked_channels(self.stage, self.channels, state)
        if self.state is not None and form is not None and form.schema is not None:
            check_declared(self.stage, self.state.schema, form.schema)
        try:
            made = next_version(self.upstreams, state, connections)
        except NotFoundError as error:
            if state.checkpoints:
                raise
            log.info("stage %r waits for the first run of what it reads: %s", self.stage, error)
            return None
        if made is None:
            if request.table is not None:
                self._planned_table(request, files, connections)  # it must still be there
            return None
        consumed: dict[str, tuple[ConsumedInput, ...]] = {}
        for name, some in self.inputs.items():
            for one in some:
                found = published(one, made, state, connections)
                if found.schema is None:
                    log.info("stage %r waits: input %r, %s, has published nothing yet", self.stage, name, one.label)
                    return None
                part = ConsumedInput(found.schema, tuple(found.paths), found.rows)
                consumed[name] = (*consumed.get(name, ()), part)
        before = self._state_before(state, form, connections)
        binding = FrameBinding(consumed, before, None if self.table is None else request.owner)
        unit = WorkUnit("version", self.stage, weight=binding.rows)
        folder = dataset_key(self.stage)
        made = replace(made, state=form, channels=channels)
        table = self._planned_table(request, files, connections)
        return WorkPlan(iter([unit]), folder, binding, schema=state.schema, checkpoint=made, table=table)

    def _planned_table(self, request: WorkRequest, files: Files, connections: Connections) -> TableTarget | None:
        if self.table is None:
            return None
        from airflow_gobblin.stages.tables import planned_table

        assert request.owner is not None, "the run names the owner of the table"
        return planned_table(self.table, request.owner, request.table, files, connections)

    def _state_before(
        self, own: DatasetState, form: StateForm | None, connections: Connections
    ) -> ConsumedInput | None:
        """Return the state that the next version goes on with, if there is any.

        :raises StateGivenUpError: it is given up.
        """
        unit = None if form is None else state_before(own)
        if form is None or unit is None:
            return None
        from airflow_gobblin.stages.inputs import published_state

        found = published_state(Input(self.journal, self.stage, self.stage), unit, form, connections)
        assert found.schema is not None
        return ConsumedInput(found.schema, tuple(found.paths), found.rows)

    def to_give_up(self, state: DatasetState) -> GivenUpState | None:
        """Return the state below the floor that its newest versions leave, if there is any."""
        if self.state is None:
            return None
        floor = floor_of(state, self.state.keep)
        units = state_below(state, floor)
        if not units:
            return None
        oldest = state.checkpoints[floor].version.isoformat()
        return GivenUpState(units, floor, f"the newest {self.state.keep} versions keep their state, from {oldest} on")

    def to_restore(self, state: DatasetState, connections: GuardedConnections) -> Restore | None:
        """Return the versions with a parent that is gone, and those after them."""
        if not state.checkpoints:
            return None
        from airflow_gobblin.stages.inputs import to_restore

        return to_restore(self.upstreams, state, connections, stateful=self.state is not None)

    def look(self, plan: Plan, state: DatasetState, connections: GuardedConnections) -> Mapping[str, int]:
        """Look for retired parents."""
        from airflow_gobblin.stages.inputs import check_parents

        assert plan.checkpoint is not None
        return check_parents(self.upstreams, plan.checkpoint, state, connections)

    def keep_inputs(self, store: Store, at: datetime, run: str) -> None:
        """Keep its inputs on record, unless they are unchanged."""
        from airflow_gobblin.stages.record import keep_inputs

        keep_inputs(store, self.stage, self.upstreams, at, run)

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return none: the modules that functions need are shipped with them, or installed by their authors."""
        return ()

    def hold(self, connections: Connections) -> AbstractContextManager[NothingHeld]:
        """Hold nothing."""
        return nullcontext(NothingHeld())

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        """Evaluate the function, once, into staged files."""
        from airflow_gobblin.stages.evaluation import evaluate

        return evaluate(self, unit, plan, attempt)

    def publish(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], files: Files, staging: str
    ) -> Iterator[CommitStep]:
        """Yield a step for each file, and one for the table, if its rows go to one."""
        results: list[UnitResult] = []
        for unit, result in published:
            results.append(result)
            for channel in (ROWS, *(made.name for made in result.channels)):
                name = unit_of(unit.id, channel)
                for file in result.files_of(channel):
                    depth = self._partition_depth if channel == ROWS else 0
                    yield publish_file(file, published_path(plan, channel, file, depth), name, files)
        if plan.table is not None:
            from airflow_gobblin.rows.tables import commit_step

            yield commit_step(plan, results, files, staging)

    @property
    def _partition_depth(self) -> int:
        """How many partition columns its rows have."""
        return len(getattr(self.sink, "partition", ()))


def published_stem(plan: Plan, channel: str) -> str:
    """Return the beginning of the paths of a channel's published files. Only rows lie where a reader of the folder looks."""
    folder = plan.folder if channel == ROWS else f"{plan.folder}/_{channel}"
    return f"{folder}/{plan.token}-"


def published_path(plan: Plan, channel: str, file: StagedFile, depth: int) -> str:
    """Return the published path of a staged file: an upload already has it, any other file has its last part and the folder of
    its partition.

    :param depth: the number of partition columns.
    """
    if file.upload is not None:
        return file.path
    folder, _, token = published_stem(plan, channel).rpartition("/")
    return f"{folder}/{partition_folder_of(file.path, depth)}{token}{posixpath.basename(file.path)}"
