"""The work on files: how the trees of a mirror are compared, copied and published. Light to import, as a mirror is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_gobblin.copy.bundles import Bundle
from airflow_gobblin.copy.finders import DatasetFinder, FileSet
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.errors import NoSuchRangeError
from airflow_gobblin.job import Attempt, DatasetLike, Held, Site
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitState
from airflow_gobblin.storage.locations import object_location, path_below

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections, GuardedConnections
    from airflow_gobblin.errors import GobblinError
    from airflow_gobblin.job import WorkPlan, WorkRequest
    from airflow_gobblin.model.coverage import Range
    from airflow_gobblin.model.plan import Plan, PlannedAct
    from airflow_gobblin.model.request import RangeRequest
    from airflow_gobblin.model.state import DatasetState
    from airflow_gobblin.model.work import UnitResult, WorkUnit
    from airflow_gobblin.steps.base import CommitStep
    from airflow_gobblin.storage.files.base import Files


@record("copy_binding")
@dataclass(frozen=True)
class CopyBinding:
    """What a plan of a file set binds besides what all plans do. See `model.plan.Binding`.

    :param source_folder: the file set's folder in the source tree; `.` for the root.
    """

    source_folder: str

    @staticmethod
    def of(plan: Plan) -> CopyBinding:
        """Return the binding of a plan of a file set."""
        assert isinstance(plan.binding, CopyBinding)
        return plan.binding


@record("copy_work")
@dataclass(frozen=True)
class CopyWork:
    """The work on files: a unit is a bundle of files, as bytes, or of deletions, or of folders. See `job.Work`.

    :param mirror: the mirror's name; the other fields are those of a `Mirror`.
    :param checksums: whether the SHA-256 of each file is taken when it is copied.
    """

    mirror: str
    source: str
    target: str
    workspace: str
    finder: DatasetFinder
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    filter_file: str = ""
    compare: Compare = Compare.SIZE_AND_TIME
    existing: Existing = Existing.FAIL
    delete: Delete | None = None
    keep: Keep = field(default_factory=Keep)
    links: Links = Links.SKIP
    empty_folders: bool = False
    checksums: bool = False
    code: tuple[str, ...] = ()

    @property
    def site(self) -> Site:
        """The site of the work: Spark tasks."""
        return Site.TASK

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The source's connection, if it has one."""
        location = object_location(self.source)
        return () if location is None or location.conn_id is None else (location.conn_id,)

    @property
    def source_identity(self) -> str:
        """The source's location."""
        return f"files {self.source}"

    def datasets(self, connections: Connections) -> tuple[FileSet, ...]:
        """Return the file sets of the datasets that the finder finds."""
        from airflow_gobblin.copy.planning import find_file_sets

        return find_file_sets(self, connections)

    def resolve(self, dataset: DatasetLike, request: RangeRequest, connections: Connections) -> Range:
        """Refuse a range: files have no positions."""
        raise NoSuchRangeError(
            operation="backfill",
            subject=f"dataset {dataset.urn!r}",
            cause="a mirror has no ranges: each run makes the target equal to the source as it is now",
            hint="Run it without a range.",
        )

    def check(self, dataset: DatasetLike, connections: Connections) -> Iterator[GobblinError]:
        """Yield nothing: what keeps a file set from being planned is seen by planning it."""
        return iter(())

    def plan(
        self,
        dataset: DatasetLike,
        states: Mapping[str, DatasetState],
        request: WorkRequest,
        files: Files,
        connections: GuardedConnections,
    ) -> WorkPlan | None:
        """Plan the difference of source and target."""
        from airflow_gobblin.copy.planning import plan_copy

        assert isinstance(dataset, FileSet)
        found = plan_copy(self, dataset, states, request, files, connections)
        return None if found is None else replace(found, folder=self._in_workspace(found.folder))

    def _in_workspace(self, folder: str) -> str:
        """Return the path below the workspace of a folder below the target."""
        target = path_below(self.workspace, self.target)
        assert target is not None, "checked when the job is opened"
        return target if folder == "." else joined(target, folder)

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return nothing: what copies need is on Spark already."""
        return ()

    def hold(self, connections: Connections) -> AbstractContextManager[Held]:
        """Hold nothing: bundles share no resources."""
        return nullcontext(_NothingHeld())

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        """Copy the files of a bundle into staging."""
        from airflow_gobblin.copy.copying import copy_bundle

        result = copy_bundle(self, unit, plan, attempt)
        if result.state is not UnitState.SUCCESSFUL:
            return result
        bundle = Bundle.of(unit)
        return replace(result, replaced=bundle.replaced, deleted=len(bundle.deletes))

    def acts(self, unit: WorkUnit) -> Iterator[PlannedAct]:
        """Yield what a bundle would do, for people."""
        return Bundle.of(unit).planned()

    def publish(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], files: Files, staging: str
    ) -> Iterator[CommitStep]:
        """Return the steps that place, replace and delete files, and those about folders."""
        from airflow_gobblin.copy.publishing import copy_steps

        return copy_steps(plan, ((Bundle.of(unit), result) for unit, result in published), files, staging)


class _NothingHeld:
    def of(self, plan: Plan) -> str:
        return ""
