"""The copy of a bundle: its files are staged in a folder of this try's own, and made durable all at once.

Nothing is looked at twice: the origin makes sure that each file is as it was planned when its last byte is read, and the
destination gives it the attributes to keep before it is durable. So its identity is final when the slot is decided.
"""

from __future__ import annotations

import posixpath
import secrets
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.blocks import Destination, Origin
from airflow_gobblin.copy.bundles import Bundle
from airflow_gobblin.copy.conversion.converters import Chain
from airflow_gobblin.copy.conversion.converting import ConvertingOrigin
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.failures import writing
from airflow_gobblin.copy.transfer.bandwidth import Pace, PacedOrigin
from airflow_gobblin.copy.transfer.hdfs import HdfsDestination
from airflow_gobblin.copy.transfer.in_flight import in_flight
from airflow_gobblin.copy.transfer.local import DiskDestination, DiskOrigin
from airflow_gobblin.copy.transfer.objects import ObjectDestination, ObjectOrigin
from airflow_gobblin.copy.transfer.store_copies import PartUploads, StoreCopies
from airflow_gobblin.copy.transfer.streams import Copies, FilesDestination, TreeOrigin
from airflow_gobblin.copy.trees import Tree, open_tree
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.copy.trees.objects import ObjectTree
from airflow_gobblin.copy.work import CopyBinding
from airflow_gobblin.errors import GobblinError, SourceError
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.work import StagedFile, UnitResult, UnitState
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.files.hdfs import HdfsFiles
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.storage.files.objects import ObjectFiles

if TYPE_CHECKING:
    from airflow_gobblin.copy.work import CopyWork
    from airflow_gobblin.job import Attempt
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.work import WorkUnit


Staged = tuple[tuple[StagedFile, ...], SourceError | None]
"""The files that a try staged, and the first error of one that it couldn't stage, if it went on after that."""
_WHOLE = "whole"
_MOST_ERRORS = 10
"""After this many files that can't be copied, the others of a bundle aren't tried: its source may be gone."""


@dataclass(frozen=True)
class StagedFolder:
    """The folder that a try to copy a bundle stages its files in.

    :param path: below the root of the files.
    :param shared: whether other bundles stage their files there, too.
    """

    path: str
    shared: bool

    @staticmethod
    def of(unit: WorkUnit, attempt: Attempt) -> StagedFolder:
        """Return the folder for a new try.

        A new folder of the target may be placed by one rename of a folder that one run of a driver wrote. Of all tries of a unit
        in that run, only the first one ever opens it, and makes a file to record that. So once the unit's result is that try's,
        nobody writes the unit's files there any more, however late.
        """
        folder = posixpath.join(attempt.folder, attempt.id)
        if attempt.files.moves_folders:
            with writing(attempt.files.root, "."), suppress(FileExistsError):
                attempt.files.create(f"{folder}/{_WHOLE}-{unit.id}").close()
                return StagedFolder(whole_folder(attempt.folder, attempt.id), shared=True)
        return StagedFolder.apart(unit, attempt)

    @staticmethod
    def apart(unit: WorkUnit, attempt: Attempt) -> StagedFolder:
        """Return a folder of this try's own."""
        return StagedFolder(
            posixpath.join(attempt.folder, attempt.id, f"{unit.id}-{secrets.token_hex(8)}"), shared=False
        )


def whole_folder(staging: str, attempt: str) -> str:
    """Return the folder of a file set that one run of a driver wrote, as far as the first try of each unit succeeded.

    :param staging: the folder of the plan's token.
    """
    return posixpath.join(staging, attempt, _WHOLE)


def copy_bundle(work: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
    """Copy the files of a unit into staging, under their own paths: in `<attempt's folder>/<attempt>/<unit>-<random>/`, or in the
    folder of all units, `<attempt's folder>/<attempt>/whole/`.

    Where staged files are uploads, each is an upload to its published name.

    :return: a SUCCESSFUL result, with the files in the bundle's order; or a FAILED one with the first error. If the error is the
        source's, the result still has the files that are whole, for another try; otherwise they are removed.
    :raises BaseException: only if it is no `Exception` and shows no secret.
    """
    return unit_result(work, unit, plan, attempt, partial(_staged, work, unit, plan, attempt))


def unit_result(
    work: CopyWork,
    unit: WorkUnit,
    plan: Plan,
    attempt: Attempt,
    stage: Callable[[GuardedConnections, KeptAttributes], Staged],
) -> UnitResult:
    """Stage files and return the result, which is FAILED if that raises an error, or returns one. See `copy_bundle`."""
    started = time.monotonic()
    given = attempt.connections
    connections = given if isinstance(given, GuardedConnections) else GuardedConnections(given)
    kept = KeptAttributes(work.keep)
    staged: tuple[StagedFile, ...] = ()
    failure = None
    try:
        staged, failed = stage(connections, kept)
        if failed is not None:
            failure = Failure.of(failed, connections.redactor.brief)
    except BaseException as error:
        if not isinstance(error, Exception) and not connections.redactor.shows_secret(error):
            raise
        failure = Failure.of(_described(error, plan, unit), connections.redactor.brief)
    return UnitResult(
        unit=unit.id,
        attempt=attempt.id,
        state=UnitState.SUCCESSFUL if failure is None else UnitState.FAILED,
        files=staged,
        seconds=time.monotonic() - started,
        metrics=kept.metrics,
        properties=kept.properties,
        failure=failure,
        ended=time.time(),
    )


def _staged(
    work: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt, connections: GuardedConnections, kept: KeptAttributes
) -> Staged:
    """Stage a bundle's files. See `_copied`."""
    bundle = Bundle.of(unit)
    if not bundle.files:
        return (), None
    folder = StagedFolder.of(unit, attempt)
    tree, source_folder = open_tree(work.source, connections, work.links), _source_folder(plan)
    plain = _plain_origin(tree, source_folder, work)
    paced = _paced(plain, work, attempt)
    with (
        closing(ConvertingOrigin(paced, Chain(work.convert), tree, source_folder, connections)) as origin,
        closing(_destination(work, plan, bundle, plain, paced, attempt.files, folder, kept)) as destination,
    ):
        failed = None
        try:
            with attempt.turn:
                staged, failed = _copied(work, bundle, unit.finished, origin, destination)
            destination.finish()
        except BaseException as error:
            destination.abort()
            if failed is None or not isinstance(error, Exception):
                raise
            return (), failed  # the first error is the one to report
        return staged, failed


def _copied(
    work: CopyWork,
    bundle: Bundle,
    finished: Mapping[str, StagedFile],
    origin: ConvertingOrigin,
    destination: Destination,
) -> Staged:
    """Stage the files of a bundle.

    :return: those that are whole, in their order, and the first error of another one.
    """
    if bundle.archive is not None:
        assert work.unpack is not None
        return origin.unpack(bundle.archive, bundle.files, work.unpack, destination), None
    copier = _Copier(origin, destination, finished)
    most = max(origin.parallel, destination.parallel)
    tried = [*in_flight(copier.stage, (file.entry for file in bundle.files), most)]
    failed = next((one for one in tried if isinstance(one, SourceError)), None)
    return tuple(one for one in tried if isinstance(one, StagedFile)), failed


@dataclass
class _Copier:
    """The staging of files, each by taking a finished one if there is one. It goes on after errors of some files of the source.

    :param finished: by their paths in the file set.
    """

    origin: Origin
    destination: Destination
    finished: Mapping[str, StagedFile]
    errors: list[SourceError] = field(default_factory=list)

    def stage(self, entry: Entry) -> StagedFile | SourceError:
        if len(self.errors) >= _MOST_ERRORS:
            return self.errors[-1]
        finished = self.finished.get(entry.path) if self.destination.renames else None
        taken = None if finished is None else self.destination.take(entry, finished)
        if taken is not None:
            return taken
        try:
            return self.destination.stage(entry, self.origin)
        except SourceError as error:
            if not self.destination.renames:
                raise
            self.errors.append(error)
            return error


def open_origin(work: CopyWork, plan: Plan, attempt: Attempt, connections: GuardedConnections) -> Origin:
    """Open the origin of a file set's files, as they are in the source."""
    return _paced(
        _plain_origin(open_tree(work.source, connections, work.links), _source_folder(plan), work), work, attempt
    )


def _paced(plain: Origin, work: CopyWork, attempt: Attempt) -> Origin:
    return plain if work.bandwidth is None else PacedOrigin(plain, Pace(work.bandwidth * attempt.share))


def _source_folder(plan: Plan) -> str:
    return CopyBinding.of(plan).source_folder


def _plain_origin(tree: Tree, folder: str, work: CopyWork) -> Origin:
    if isinstance(tree, LocalTree):
        return DiskOrigin(tree, folder, work.links)
    return ObjectOrigin(tree, folder) if isinstance(tree, ObjectTree) else TreeOrigin(tree, folder)


def _destination(
    work: CopyWork,
    plan: Plan,
    bundle: Bundle,
    plain: Origin,
    paced: Origin,
    files: Files,
    folder: StagedFolder,
    kept: KeptAttributes,
) -> Destination:
    checksums = work.takes_checksums
    if isinstance(files, LocalFiles):
        return DiskDestination(files, folder.path, kept, checksums=checksums, shared=folder.shared)
    if isinstance(files, HdfsFiles):
        return HdfsDestination(files, folder.path, plan.folder, kept, checksums=checksums, shared=folder.shared)
    ways: tuple[Copies | None, ...] = (StoreCopies.between(plain, files, kept), PartUploads.between(paced, files, kept))
    replacing = [file.entry.path for file in bundle.files if file.replaces is not None]
    copies = () if work.wants_checksums else [way for way in ways if way is not None]
    if isinstance(files, ObjectFiles) and files.uploads is not None:
        return ObjectDestination(
            files, folder.path, plan.folder, kept, replacing, copies, checksums=checksums, shared=folder.shared
        )
    return FilesDestination(
        files, folder.path, plan.folder, kept, replacing, copies, checksums=checksums, shared=folder.shared
    )


def _described(error: BaseException, plan: Plan, unit: WorkUnit) -> GobblinError:
    """Return an error as one of ours; an unforeseen one names where it was raised."""
    if isinstance(error, GobblinError):
        return error
    at = traceback.extract_tb(error.__traceback__)[-1]
    return GobblinError(
        operation="copy",
        subject=f"unit {unit.id!r} of dataset {plan.urn!r}",
        cause=error,
        hint=f"Raised by {at.name} in {at.filename}, line {at.lineno}",
    )
