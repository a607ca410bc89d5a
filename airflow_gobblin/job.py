"""A job, and the port between it and the work on its units: nothing above it knows about rows, files or frames.

A job is a name, a journal, policies and one `Work`. The tasks of the graph, the workspace and the Spark side plan, store, run and
publish units of any kind through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.model.batch import Batch, HeldBatch
from airflow_gobblin.model.checkpoint import Checkpoint
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.limits import RunLimits
from airflow_gobblin.model.plan import Binding, Plan, PlannedAct
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.model.table import Owner, TableRecord, TableTarget
from airflow_gobblin.model.verification import Deviation
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.work import StagedFile, UnitResult, WorkUnit
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.locations import path_below, remote_location
from airflow_gobblin.storage.stores.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Attempt",
    "BatchedJob",
    "DatasetLike",
    "DerivedWork",
    "DriverWork",
    "FileEvents",
    "GivenUpState",
    "Held",
    "InformingWork",
    "Job",
    "JudgedWork",
    "LimitedJob",
    "NothingHeld",
    "OutlinedWork",
    "RankedDataset",
    "Restore",
    "ReusingWork",
    "SealingJob",
    "SplitWork",
    "StatefulWork",
    "TabledWork",
    "UnitPart",
    "UploadingWork",
    "VerifiedWork",
    "Work",
    "WorkPlan",
    "WorkRequest",
    "check_numbers",
    "check_roots",
    "connections_of",
]


class DatasetLike(Protocol):
    """A dataset as every job has it. Its work knows more about it."""

    @property
    def urn(self) -> str:
        """Its URN."""

    @property
    def origin(self) -> str:
        """A description, without secrets, of what it is read from."""

    @property
    def holds(self) -> Holds:
        """The kind of content that its slots hold."""


@dataclass(frozen=True)
class WorkRequest:
    """The request of a run, for one dataset.

    :param now: the time of planning, in UTC, by the worker's clock.
    :param end: the end of the run's data interval, exclusive; `None`: up to now.
    :param policy: the job's policy. Content that is published whole or not at all can only be planned under `full`.
    :param covered: the committed coverage that stays: no unit may cover a part of it.
    :param ranges: for a backfill: these ranges, in order, instead of the uncovered ones, whether they hold anything or not.
    :param whole: whether each unit must reach its end, because it replaces what is published of its range.
    :param batch: the bounds below which waiting content isn't read yet; `None`: it is read, however little there is.
    :param owner: the dataset as a table knows it.
    :param table: the table that the live part of it is in; `None` if nothing is.
    :param preview: whether the plan is only shown: not even a table is made.
    """

    now: datetime
    end: datetime | None = None
    policy: CommitPolicy = CommitPolicy.FULL
    covered: Coverage = field(default_factory=Coverage)
    ranges: tuple[Range, ...] = ()
    whole: bool = False
    batch: Batch | None = None
    owner: Owner | None = None
    table: TableTarget | None = None
    preview: bool = False


@dataclass(frozen=True)
class WorkPlan:
    """A work's plan of one dataset. The run adds to it what all plans have: token, run key, generation, what it replaces.

    :param units: iterated once, so there may be more than fit in memory; an error that they raise fails the dataset.
    :param folder: the dataset's folder below the target root.
    :param binding: what only the work itself reads, when it runs and publishes the units.
    :param schema: the schema to publish, encoded; `None` if the published content has none.
    :param planned: the whole range to cover; `None` where slots cover no ranges.
    :param open_end: whether the last unit continues beyond that range to an unknown end.
    :param kept_from: the first position that the source still has.
    :param one_snapshot: whether the units must run in one snapshot, which `Work.hold` provides.
    :param metadata: what is added to the events of its slot; no secrets.
    :param checkpoint: what the version of a stage is made from.
    :param table: the table to publish to, as it was found.
    """

    units: Iterator[WorkUnit]
    folder: str
    binding: Binding
    schema: str | None = None
    planned: Range | None = None
    open_end: bool = False
    kept_from: Watermark | None = None
    one_snapshot: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    table: TableTarget | None = None


class Held(Protocol):
    """Resources held open while the units of a pack run: a snapshot of the source, where a plan requires one."""

    def of(self, plan: Plan) -> str:
        """Return the name of the snapshot in which a plan's units run; empty if it requires none.

        :raises GobblinError: the snapshot can't be provided.
        """


class NothingHeld:
    """The resources held open by a work whose plans require no snapshot: a `Held` with nothing in it."""

    def of(self, plan: Plan) -> str:
        """Return the empty name."""
        return ""


@dataclass(frozen=True)
class UnitPart:
    """A part of a unit.

    :param number: counted from 0.
    :param place: what `SplitWork.open_parts` returned to this driver, or to an earlier one whose parts are valid.
    """

    number: int
    place: str


@dataclass(frozen=True)
class Attempt:
    """One run of a driver, as a unit sees it.

    :param id: its id, which is also the name of a folder.
    :param files: the file system under the workspace root.
    :param folder: the folder of the plan's staged files, below that root.
    :param connections: access to secrets.
    :param snapshot: the name of the snapshot held for the unit's plan, from `Held.of`.
    :param part: the part of the unit to run, for a work that runs it in parts.
    :param share: the unit's share of what the whole run may take at once: one in the number of units that may run side by side.
    :param spark: the session, for a work whose units run on the driver.
    :param count_cores: returns the number of Spark tasks that its cluster runs at once, which may take a small Spark job.
    :param turn: held while a unit is read and written, but no longer while that is made durable: units of one task take turns.
    """

    id: str
    files: Files
    folder: str
    connections: Connections
    snapshot: str = ""
    share: float = 1.0
    part: UnitPart | None = None
    spark: SparkSession | None = None
    count_cores: Callable[[], int] = lambda: 1
    turn: AbstractContextManager[object, None] = field(default_factory=nullcontext)


class Work(Protocol):
    """The work of a job: frozen, registered with `wire.record`, without secrets. It is sent to Spark whole.

    `datasets`, `resolve`, `check` and `plan` run on an Airflow worker, `hold` on Spark's driver, `run` at the work's site, and
    `publish` on a worker or, for very many files, in Spark tasks.
    """

    @property
    def site(self) -> Site:
        """Where its units run."""

    @property
    def target(self) -> str:
        """The target that it publishes to: for files, the root above the datasets' folders."""

    @property
    def workspace(self) -> str:
        """The root below which plans, staged files, claims and marks lie, in `_gobblin/`. Workers and Spark see it.

        An absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`.
        """

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections that its units need, besides those of its target and workspace: only these are given to Spark."""

    @property
    def source_identity(self) -> str:
        """The identity of what it reads, without a secret: its kind and its connections."""

    @property
    def code(self) -> tuple[str, ...]:
        """Modules with the author's own classes, which are also sent to Spark."""

    def datasets(self, connections: Connections) -> Sequence[DatasetLike]:
        """Return the job's datasets, in a stable order.

        :raises SourceError: the source can't be reached.
        """

    def resolve(self, dataset: DatasetLike, request: RangeRequest, connections: Connections) -> Range:
        """Return the positions of a backfill's range.

        :raises NoSuchRangeError: the dataset has no such range, or none at all.
        :raises SourceError: the source can't be reached.
        """

    def check(self, dataset: DatasetLike, connections: Connections) -> Iterator[GobblinError]:
        """Yield the faults that keep a dataset from being planned, as far as they are known without planning it.

        :raises SourceError: the source can't be reached.
        """

    def plan(
        self,
        dataset: DatasetLike,
        states: Mapping[str, DatasetState],
        request: WorkRequest,
        files: Files,
        connections: GuardedConnections,
    ) -> WorkPlan | HeldBatch | None:
        """Plan the units of a dataset; `None` if there is nothing to do. Nothing is changed, except that a missing
        table is made, unless the plan is only shown.

        Content that waits below the bounds of a batch isn't planned.

        :param states: the state of every dataset of the job, by URN.
        :param files: the file system below the root that it publishes to.
        :param connections: access to secrets. No error of the author's source, or of its units, shows one.
        :raises GobblinError: this dataset can't be planned; the others go on.
        """

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return the modules that `run` needs and that can't be shipped: executors must have them installed."""

    def hold(self, connections: Connections) -> AbstractContextManager[Held]:
        """Hold open the resources that the units of a pack share, from the first unit that needs them to the end of the block."""

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        """Run a unit into staged files of its own folder.

        :return: a SUCCESSFUL result, or a FAILED one with the first error. No `Exception` is raised, nor any other exception that
            shows a secret.
        """

    def publish(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], files: Files, staging: str
    ) -> Iterable[CommitStep]:
        """Return the steps that publish the results of units. Nothing that is published is changed.

        :param published: the units, each with its result, in the order of the plan; or some of them, if they are very many.
        :param staging: the folder of the plan's token, for what must be there before the decision. Each call makes its own.
        :raises StepLostError: staged files are gone.
        """


@runtime_checkable
class OutlinedWork(Protocol):
    """A work that can describe what its units would do to the target."""

    def acts(self, unit: WorkUnit) -> Iterator[PlannedAct]:
        """Yield what a unit would do."""


@runtime_checkable
class UploadingWork(Protocol):
    """A work whose uploads have no name of their own: they go to the names that their files will have."""

    def uploads_to(self, plan: Plan, unit: WorkUnit) -> Iterator[str]:
        """Yield the names, below the workspace root, that the files of a unit may be uploaded to."""


@runtime_checkable
class LightWork(Protocol):
    """A work whose units may be too light for Spark tasks of their own."""

    @property
    def task_weight(self) -> int:
        """The weight of units, above 0, that is worth a further Spark task once each core has one."""

    @property
    def units_at_once(self) -> int:
        """The number of units that a Spark task begins before the first one of them has ended, each in a thread."""


@runtime_checkable
class JudgedWork(Protocol):
    """A work that judges a dataset once its units are done, before it is decided."""

    def judge(
        self,
        plan: Plan,
        published: Callable[[], Iterable[tuple[WorkUnit, UnitResult]]],
        files: Files,
        connections: GuardedConnections,
    ) -> None:
        """Judge what would be published. Nothing is changed.

        :param published: returns the units, each with its result, anew on each call.
        :param files: the file system below the workspace root.
        :raises CheckFailedError: it must not be published.
        """


@dataclass(frozen=True)
class Restore:
    """The units that a stage must take back, because something it was made from was taken back.

    :param units: the units of its oldest version with a parent that is gone, and of all versions after it.
    :param looked: how far it looked, by upstream.
    :param why: a sentence.
    """

    units: tuple[UnitRef, ...]
    looked: Mapping[str, int]
    why: str

    @property
    def versions(self) -> int:
        """The number of versions that it takes back. A version has a slot, and in it a unit for each channel that has rows."""
        return len({unit.slot for unit in self.units})


@dataclass(frozen=True)
class GivenUpState:
    """State of a stage's oldest versions that nothing needs any more.

    :param units: the units that make it up.
    :param floor: the slot of the oldest version that keeps its state.
    :param why: a sentence.
    """

    units: tuple[UnitRef, ...]
    floor: int
    why: str


@runtime_checkable
class TabledWork(Protocol):
    """A work that may publish to tables."""

    def table_of(self, dataset: DatasetLike) -> TableRecord | None:
        """Return the table of a dataset; `None` if it is published as files."""


@runtime_checkable
class DerivedWork(Protocol):
    """A work that makes versions from what other jobs publish, which these may take back."""

    def to_restore(self, state: DatasetState, connections: GuardedConnections) -> Restore | None:
        """Return what must be taken back before anything is planned, if anything must.

        :raises StateGivenUpError: it can't go back that far.
        :raises GobblinError: an upstream can't be read.
        """

    def look(self, plan: Plan, state: DatasetState, connections: GuardedConnections) -> Mapping[str, int]:
        """Look for retired parents of a planned version, and of all live ones, just before it is decided.

        :return: how far it looked, by upstream.
        :raises LostRaceError: one is retired.
        :raises GobblinError: an upstream can't be read.
        """


@runtime_checkable
class StatefulWork(Protocol):
    """A work that keeps state from version to version, of the newest versions only."""

    def to_give_up(self, state: DatasetState) -> GivenUpState | None:
        """Return the state that nothing needs any more, if any."""


@runtime_checkable
class StageWork(Protocol):
    """A work of a stage, whose journal keeps for people what it reads."""

    def keep_inputs(self, store: Store, at: datetime, run: str) -> None:
        """Keep on record what it reads, unless that is unchanged.

        :param store: its journal's.
        :param run: the DAG run that plans it.
        :raises StoreError: the store can't be reached.
        """


@runtime_checkable
class SplitWork(Protocol):
    """A work that can run a large unit in parts, each in a Spark task of its own.

    A driver opens a place for the parts of a unit and has each part run. Once all are done, it has them joined, in a task too,
    and at the end it closes the place. The results of parts are kept: if the unit fails, the next driver runs only those that
    aren't valid. Late and repeated tasks may call all of these again: none of them changes what another one made, as the content
    of a part is the same each time, or has a name of its own.
    """

    def parts(self, unit: WorkUnit, plan: Plan) -> int:
        """Return the number of parts of a unit; 1 if it is run as a whole."""

    def finished_parts(
        self, unit: WorkUnit, plan: Plan, attempt: Attempt, results: Mapping[int, Sequence[UnitResult]]
    ) -> tuple[str, Mapping[int, UnitResult]]:
        """Return the parts that needn't be run again, on the driver.

        :param results: those that earlier drivers got, by the numbers of the parts.
        :return: the place to go on in, empty for a new one; and the result of each such part.
        """

    def open_parts(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> str:
        """Open a new place for the parts of a unit, on the driver.

        :return: its name for the tasks.
        """

    def join(self, unit: WorkUnit, plan: Plan, attempt: Attempt, place: str, parts: Sequence[UnitResult]) -> UnitResult:
        """Join the parts of a unit, in order.

        :return: the result of the unit, as `Work.run` does.
        """

    def close_parts(
        self,
        unit: WorkUnit,
        plan: Plan,
        attempt: Attempt,
        place: str,
        parts: Sequence[UnitResult],
        result: UnitResult,
    ) -> None:
        """Remove what isn't needed any more, on the driver.

        :param place: the place of the parts; empty if none was opened.
        :param parts: the results of the parts, including those that failed.
        :param result: the unit's, which counts. Files that it names stay; if it failed, so do the parts, for the next driver.
        """


@runtime_checkable
class ReusingWork(Protocol):
    """A work whose units can take files finished by a failed try of theirs, or by an earlier plan that is given up."""

    def reuses(self, plan: Plan, earlier: Plan) -> bool:
        """Return whether a plan may go on with an earlier one, or take its files: these were made in the same way."""

    def finished(self, unit: WorkUnit, result: UnitResult, staging: str) -> Mapping[str, StagedFile]:
        """Return the files of a result that can be taken, by their paths in the dataset.

        :param staging: the folder of the token that they are staged under.
        """

    def guids(self, plan: Plan, unit: WorkUnit) -> Mapping[str, bytes]:
        """Return, for each file that a unit may take, by its path in the dataset, what shows whether another file is the same."""


@runtime_checkable
class VerifiedWork(Protocol):
    """A work whose target can be compared with its source."""

    def verify(
        self, dataset: DatasetLike, files: Files, connections: GuardedConnections, *, content: bool
    ) -> Iterator[Deviation]:
        """Yield everything in the target that isn't as in the source. Nothing is changed.

        :param files: the file system below the workspace root.
        :param content: whether files of equal size and time are read and compared.
        :raises GobblinError: the source or the target can't be listed or read.
        """


@runtime_checkable
class InformingWork(Protocol):
    """A work whose source is informed of how far a dataset is published."""

    def inform(self, urn: str, watermark: Watermark, connections: Connections) -> None:
        """Inform it. Nothing rests on that.

        :raises GobblinError: it can't be informed.
        """


@runtime_checkable
class DriverWork(Protocol):
    """A work that may publish by steps which only Spark's driver can carry out."""

    @property
    def needs_driver(self) -> bool:
        """Whether it does."""

    def driver_settings(self, connections: Connections) -> Mapping[str, str]:
        """Return the settings that Spark must be started with for these steps, without secrets.

        :raises ConfigurationError: a connection is missing, or isn't fit for it.
        """


@runtime_checkable
class RankedDataset(Protocol):
    """A dataset that is a part of a larger one, and may come before others."""

    @property
    def dataset(self) -> str:
        """The URN of the larger one."""

    @property
    def priority(self) -> int:
        """Its priority: datasets with a higher one have room first."""


@runtime_checkable
class LimitedJob(Protocol):
    """A job whose runs take a limited part of what there is to do."""

    @property
    def run_limits(self) -> RunLimits:
        """The most that one run takes."""


@runtime_checkable
class BatchedJob(Protocol):
    """A job whose datasets are read in batches, across its runs."""

    @property
    def batch(self) -> Batch | None:
        """The least that must wait in the source before it is read; `None`: anything is enough."""


@runtime_checkable
class SealingJob(Protocol):
    """A job whose runs seal versions, for the stages that read what it publishes."""

    @property
    def seals(self) -> bool:
        """Whether they do."""


@runtime_checkable
class FileEvents(Protocol):
    """A job whose events report each file, too, if its author wants it."""

    @property
    def file_events(self) -> bool:
        """Whether they do."""


class Job(Protocol):
    """An author's noun, such as an ingestion: a name, a journal, policies, and one work.

    Tasks, operators, commands and the page know a job by this alone.
    """

    @property
    def name(self) -> str:
        """The name of its journal."""

    @property
    def journal(self) -> str:
        """The location of its journal: a URL, an absolute path, or the id of a connection."""

    @property
    def policy(self) -> CommitPolicy:
        """The effect of a failed unit on its dataset."""

    @property
    def partial_ok(self) -> bool:
        """Whether a run succeeds if it published only a part of a dataset."""

    @property
    def max_packs(self) -> int:
        """The maximum number of Spark applications in a run."""

    @property
    def max_pack_weight(self) -> int | None:
        """The maximum weight of a pack, in the weights of work units; `None` if everything planned fits."""

    @property
    def attempts(self) -> int:
        """The number of runs that fail to finish a slot before its dataset is quarantined."""

    @property
    def retention(self) -> timedelta:
        """How long replaced files are kept."""

    @property
    def work(self) -> Work:
        """The work on its units, with everything that Spark needs."""


def check_numbers(job: Job, subject: str) -> None:
    """Check the numbers of a job.

    :param subject: the job's name, for the error.
    :raises ConfigurationError: one of them is too small.
    """
    least = {"max_packs": job.max_packs, "attempts": job.attempts, "max_pack_weight": job.max_pack_weight}
    for name, value in least.items():
        if value is not None and value < 1:
            raise ConfigurationError(
                operation="use",
                subject=f"{name}={value} of {subject}",
                cause="it is too small",
                hint="Give at least 1.",
            )


def connections_of(work: Work) -> tuple[str, ...]:
    """Return the connections that a work needs in Spark: those of its units, and those of object stores that it publishes to."""
    locations = (remote_location(root) for root in (work.target, work.workspace))
    stores = (place.conn_id for place in locations if place is not None and place.conn_id is not None)
    return tuple(dict.fromkeys((*work.connection_ids, *stores)))


def check_roots(work: Work) -> None:
    """Check that a work stages files where it publishes them: a link, a rename or a completed upload gives them their names.

    :raises ConfigurationError: its target is neither its workspace nor below it.
    """
    if path_below(work.workspace, work.target) is None:
        raise ConfigurationError(
            operation="use",
            subject=f"workspace {work.workspace!r} for target {work.target!r}",
            cause="a file that is staged under one root can't be published under another one without copying it",
            hint="Give both the same root, or a workspace above the target, in the same file system or bucket.",
        )
