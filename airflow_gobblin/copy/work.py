"""The work on files: how the trees of a mirror are compared, copied and published. Light to import, as a mirror is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_gobblin.copy.bundles import MOST_BYTES, Bundle
from airflow_gobblin.copy.checks import CopiedFileSet, FileSetCheck, judge, totals_of
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.conversion.converters import UNCHANGING, AnyConverter, ConnectedConverter
from airflow_gobblin.copy.entries import guid_of
from airflow_gobblin.copy.finders import DatasetFinder, FileSet
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
from airflow_gobblin.copy.registering import ConnectedRegistration, PlacedFileSet, Registration, registered
from airflow_gobblin.copy.trees import joined, open_tree
from airflow_gobblin.errors import NoSuchRangeError
from airflow_gobblin.job import Attempt, DatasetLike, Held, NothingHeld
from airflow_gobblin.model import wire
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitState
from airflow_gobblin.storage.locations import client_of, object_location, path_below, remote_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections, GuardedConnections
    from airflow_gobblin.errors import GobblinError
    from airflow_gobblin.job import WorkPlan, WorkRequest
    from airflow_gobblin.model.coverage import Range
    from airflow_gobblin.model.plan import Plan, PlannedAct
    from airflow_gobblin.model.request import RangeRequest
    from airflow_gobblin.model.state import DatasetState
    from airflow_gobblin.model.verification import Deviation
    from airflow_gobblin.model.work import StagedFile, UnitResult, WorkUnit
    from airflow_gobblin.steps.base import CommitStep
    from airflow_gobblin.storage.files.base import Files

_WORTH_OF_DISKS = 4 * MOST_BYTES
_UNITS_AT_ONCE = 4
"""One is being copied; the others are copied already, and wait until the disk has written them."""


@record("copy_binding")
@dataclass(frozen=True)
class CopyBinding:
    """The values that a plan of a file set binds besides those of all plans. See `model.plan.Binding`.

    :param source_folder: the file set's folder in the source tree; `.` for the root.
    :param keep: what its copies keep, in place of what the mirror's do.
    :param compare: how its files are compared, in place of how the mirror's are.
    :param name: the file set's name in its dataset.
    :param above: the folders above it that the target didn't have, if they get attributes.
    :param recipe: a digest of what decides how its files are copied; empty: finished copies are not used again.
    """

    source_folder: str
    keep: Keep | None = None
    compare: Compare | None = None
    name: str = ""
    above: tuple[str, ...] = ()
    recipe: str = ""

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
    :param bandwidth: the bytes per second that all tasks of a run read together.
    :param split_above: the size above which a file is copied in parts; `None`: no file is.
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
    bandwidth: int | None = None
    split_above: int | None = None
    convert: tuple[AnyConverter, ...] = ()
    unpack: Unpack | None = None
    checks: tuple[FileSetCheck, ...] = ()
    place: str = ""
    first: tuple[str, ...] = ()
    backup: str = ""
    register: Registration | None = None
    code: tuple[str, ...] = ()

    @property
    def site(self) -> Site:
        """The site of the work: Spark tasks."""
        return Site.TASK

    @property
    def task_weight(self) -> int:
        """The weight of a few thousand small files; between disks, the weight of a gigabyte, which takes as long there."""
        on_disks = remote_location(self.source) is None and remote_location(self.workspace) is None
        return _WORTH_OF_DISKS if on_disks else MOST_BYTES

    @property
    def units_at_once(self) -> int:
        """The number of bundles that a task has begun: one is being copied, and the others are being made durable."""
        return _UNITS_AT_ONCE

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The source's connection, if it has one, and those of converters."""
        location = remote_location(self.source)
        source = () if location is None or location.conn_id is None else (location.conn_id,)
        connected = (one for one in self.convert if isinstance(one, ConnectedConverter))
        return tuple(dict.fromkeys((*source, *(conn_id for one in connected for conn_id in one.connection_ids))))

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
        """Yield nothing: planning a file set shows anything that keeps it from being planned."""
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
        from airflow_gobblin.copy.backups import check_backup
        from airflow_gobblin.copy.planning import plan_copy

        assert isinstance(dataset, FileSet)
        if (backup := self._backup) is not None:
            check_backup(files, backup)
        if self.register is not None:  # if it can't be registered, that is known before anything is copied
            tuple(self.register.steps(self._placed(dataset.dataset, dataset.name, dataset.folder)))
            self.driver_settings(connections)
        found = plan_copy(self.of(dataset), dataset, states, request, files, connections)
        return None if found is None else self._in_workspace(found)

    def of(self, one: FileSet | CopyBinding) -> CopyWork:
        """Return the work on one file set, which may have options of its own."""
        return replace(
            self,
            keep=self.keep if one.keep is None else one.keep,
            compare=self.compare if one.compare is None else one.compare,
            existing=self.existing if isinstance(one, CopyBinding) or one.existing is None else one.existing,
        )

    @property
    def wants_checksums(self) -> bool:
        """Whether the SHA-256 of each file is asked for."""
        return bool(self.checksums or self.checks or self.compare is Compare.CHECKSUM)

    @property
    def takes_checksums(self) -> bool:
        """Whether the SHA-256 is taken of files that are copied through us. In GCS and ADLS, a placed copy is known by it."""
        target = remote_location(self.workspace)
        by_content = target is not None and target.scheme in ("gs", "abfs")
        return self.wants_checksums or by_content

    @property
    def recipe(self) -> str:
        """A digest of what decides how a file is copied; empty if a finished copy can't be used again.

        A converter that needs keys, or is the author's own, may give another result in the next run. And where checksums are
        compared because times aren't trusted, the time of a file doesn't show that its copy is still right.
        """
        may_differ = any(type(converter) not in UNCHANGING for converter in self.convert)
        by_time_only = self.compare is Compare.CHECKSUM and object_location(self.source) is None
        if may_differ or by_time_only:
            return ""
        how = (self.source, self.links, self.keep, self.convert, self.unpack, self.takes_checksums)
        return wire.digest(wire.canonical(wire.to_json(how)))

    def reuses(self, plan: Plan, earlier: Plan) -> bool:
        """Return whether copies that were finished for an earlier plan may be used. See `ReusingWork`."""
        mine, theirs = CopyBinding.of(plan), CopyBinding.of(earlier)
        return bool(mine.recipe) and (mine.recipe, mine.source_folder) == (theirs.recipe, theirs.source_folder)

    def finished(self, unit: WorkUnit, result: UnitResult, staging: str) -> Mapping[str, StagedFile]:
        """Return the staged files of a result, in the folders of its try; an upload belongs to its plan for good."""
        files = (file for file in result.files if file.upload is None and file.segment is None)
        return {file.path.removeprefix(f"{staging}/").split("/", 2)[2]: file for file in files}

    def guids(self, plan: Plan, unit: WorkUnit) -> Mapping[str, bytes]:
        """Return the GUIDs of a bundle's files, but none for members of an archive, which is read to its end."""
        bundle, keep = Bundle.of(unit), self.of(CopyBinding.of(plan)).keep
        entries = () if bundle.archive else (file.entry for file in bundle.files)
        return {entry.path: guid_of(entry, keep.of(entry.attributes)) for entry in entries}

    def _in_workspace(self, plan: WorkPlan) -> WorkPlan:
        """Return a plan with its folder given below the workspace instead of below the target."""
        target = path_below(self.workspace, self.target)
        assert target is not None, "checked when the job is opened"
        folder, binding = target if plan.folder == "." else joined(target, plan.folder), plan.binding
        if isinstance(binding, CopyBinding) and target != ".":
            binding = replace(binding, above=tuple(joined(target, path) for path in binding.above))
        return replace(plan, folder=folder, binding=binding)

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return the client that reads the source."""
        location = remote_location(self.source)
        return () if location is None else (client_of(location),)

    def hold(self, connections: Connections) -> AbstractContextManager[Held]:
        """Hold nothing: bundles share no resources."""
        return nullcontext(NothingHeld())

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        """Copy the files of a bundle into staging, or a part of a large one."""
        from airflow_gobblin.copy.transfer.copying import copy_bundle
        from airflow_gobblin.copy.transfer.splitting import copy_part

        work = self.of(CopyBinding.of(plan))
        if attempt.part is not None:
            return copy_part(work, unit, plan, attempt)
        return self._counted(unit, copy_bundle(work, unit, plan, attempt))

    def _counted(self, unit: WorkUnit, result: UnitResult) -> UnitResult:
        """Return a result with what publishing it does besides copying."""
        if result.state is not UnitState.SUCCESSFUL:
            return result
        bundle = Bundle.of(unit)
        return replace(result, replaced=bundle.replaced, deleted=len(bundle.deletes))

    def parts(self, unit: WorkUnit, plan: Plan) -> int:
        """Return how many parts a unit is copied in."""
        from airflow_gobblin.copy.transfer import splitting

        return splitting.parts(self.of(CopyBinding.of(plan)), unit)

    def finished_parts(
        self, unit: WorkUnit, plan: Plan, attempt: Attempt, results: Mapping[int, Sequence[UnitResult]]
    ) -> tuple[str, Mapping[int, UnitResult]]:
        """Return the parts of a file that needn't be copied again, and the upload that they belong to."""
        from airflow_gobblin.copy.transfer import splitting

        return splitting.finished_parts(self, unit, plan, attempt, results)

    def open_parts(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> str:
        """Open a place for the parts of a file."""
        from airflow_gobblin.copy.transfer import splitting

        return splitting.open_parts(self.of(CopyBinding.of(plan)), unit, plan, attempt)

    def join(self, unit: WorkUnit, plan: Plan, attempt: Attempt, place: str, parts: Sequence[UnitResult]) -> UnitResult:
        """Join the parts of a file."""
        from airflow_gobblin.copy.transfer import splitting

        work = self.of(CopyBinding.of(plan))
        return self._counted(unit, splitting.join_parts(work, unit, plan, attempt, parts))

    def close_parts(
        self,
        unit: WorkUnit,
        plan: Plan,
        attempt: Attempt,
        place: str,
        parts: Sequence[UnitResult],
        result: UnitResult,
    ) -> None:
        """Remove what the parts of a file left."""
        from airflow_gobblin.copy.transfer import splitting

        splitting.close_parts(unit, plan, attempt, place, parts, result)

    def acts(self, unit: WorkUnit) -> Iterator[PlannedAct]:
        """Yield what a bundle would do, for people."""
        return Bundle.of(unit).planned()

    def uploads_to(self, plan: Plan, unit: WorkUnit) -> Iterator[str]:
        """Yield the names of the files of a bundle, below the workspace."""
        return (joined(plan.folder, file.entry.path) for file in Bundle.of(unit).files)

    def verify(
        self, dataset: DatasetLike, files: Files, connections: GuardedConnections, *, content: bool
    ) -> Iterator[Deviation]:
        """Yield everything in the target that differs from the source."""
        from airflow_gobblin.copy.verifying import verify_copy

        assert isinstance(dataset, FileSet)
        return verify_copy(self.of(dataset), dataset, files, connections, content=content)

    def judge(
        self,
        plan: Plan,
        published: Callable[[], Iterable[tuple[WorkUnit, UnitResult]]],
        files: Files,
        connections: GuardedConnections,
    ) -> None:
        """Judge a file set by the mirror's checks."""
        if not self.checks:
            return
        totals, source = totals_of(published()), open_tree(self.source, connections, self.links)
        folder = CopyBinding.of(plan).source_folder
        judge(
            self.checks,
            CopiedFileSet(plan.urn, totals.files, totals.bytes, source, folder, files, plan.folder, published),
        )

    def publish(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], files: Files, staging: str
    ) -> Iterator[CommitStep]:
        """Return the steps that place, replace and delete files, those about folders, and those that register what is placed."""
        copied = ((Bundle.of(unit), result) for unit, result in published)
        name = CopyBinding.of(plan).name
        placed = self._placed(plan.urn.removesuffix(f"#{name}"), name, self._below_target(plan.folder))
        return registered(copied, lambda some: self._steps(plan, some, files, staging), self.register, placed)

    def _steps(
        self, plan: Plan, copied: Iterable[tuple[Bundle, UnitResult]], files: Files, staging: str
    ) -> Iterator[CommitStep]:
        from airflow_gobblin.copy.backups import Backup
        from airflow_gobblin.copy.publishing import copy_steps

        keep = self.of(CopyBinding.of(plan)).keep
        if (folder := self._backup) is None:
            return copy_steps(plan, copied, files, staging, keep=keep)
        target = path_below(self.workspace, self.target)
        assert target is not None, "checked when the job is opened"
        backup = Backup(folder, plan.token, target, files, staging).of
        return copy_steps(plan, copied, files, staging, backup, keep=keep)

    @property
    def _backup(self) -> str | None:
        """The backup folder below the workspace, if there is one."""
        return path_below(self.workspace, self.backup) if self.backup else None

    @property
    def needs_driver(self) -> bool:
        """Whether some of its steps are carried out on Spark's driver, as registrations may be."""
        return self.register is not None and self.register.site is Site.DRIVER

    def driver_settings(self, connections: Connections) -> Mapping[str, str]:
        """Return the settings that Spark needs for registrations."""
        return self.register.settings(connections) if isinstance(self.register, ConnectedRegistration) else {}

    def _placed(self, dataset: str, name: str, folder: str) -> PlacedFileSet:
        return PlacedFileSet(dataset, name, self.target, self.workspace, folder)

    def _below_target(self, folder: str) -> str:
        """Return a file set's folder below the target, given its folder below the workspace."""
        target = path_below(self.workspace, self.target)
        return "." if folder == target else folder if target == "." else folder.removeprefix(f"{target}/")
