"""The copy of a bundle: its files are staged, in a folder of this try's own, and made durable once for all of them.

Nothing is looked at twice: the origin makes sure that each file is as it was planned when its last byte is read, and the
destination gives it the attributes to keep before it is durable. So its identity is final when the slot is decided.
"""

from __future__ import annotations

import posixpath
import secrets
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.bundles import Bundle
from airflow_gobblin.copy.conversion.converters import Chain
from airflow_gobblin.copy.conversion.converting import ConvertingOrigin
from airflow_gobblin.copy.options import Compare
from airflow_gobblin.copy.transfer.bandwidth import Pace, PacedOrigin
from airflow_gobblin.copy.transfer.hdfs import HdfsDestination
from airflow_gobblin.copy.transfer.in_flight import in_flight
from airflow_gobblin.copy.transfer.local import DiskDestination, DiskOrigin
from airflow_gobblin.copy.transfer.objects import ObjectOrigin
from airflow_gobblin.copy.transfer.store_copies import PartUploads, StoreCopies
from airflow_gobblin.copy.transfer.streams import Copies, Destination, FilesDestination, Origin, TreeOrigin
from airflow_gobblin.copy.trees import Tree, open_tree
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.copy.trees.objects import ObjectTree
from airflow_gobblin.copy.work import CopyBinding
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.work import StagedFile, UnitResult, UnitState
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.files.hdfs import HdfsFiles
from airflow_gobblin.storage.files.local import LocalFiles

if TYPE_CHECKING:
    from airflow_gobblin.copy.work import CopyWork
    from airflow_gobblin.job import Attempt
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.work import WorkUnit


_WHOLE = "whole"


@dataclass(frozen=True)
class StagedFolder:
    """The folder that a try to copy a bundle stages its files in.

    :param path: below the root of the files.
    :param shared: whether other bundles stage their files there, too.
    """

    path: str
    shared: bool

    @staticmethod
    def of(unit: WorkUnit, plan: Plan, attempt: Attempt) -> StagedFolder:
        """Return the folder for a new try.

        A file set that is new may be placed by one rename of a folder that one run of a driver wrote. Of all tries of a unit in
        that run only the first one, which makes a file that says so, ever opens it: once the unit's result is of this try,
        nobody writes the unit's files there any more, however late.
        """
        folder = posixpath.join(attempt.folder, attempt.id)
        if CopyBinding.of(plan).new_folder:
            try:
                attempt.files.create(f"{folder}/{_WHOLE}-{unit.id}").close()
            except FileExistsError:
                pass
            else:
                return StagedFolder(whole_folder(attempt.folder, attempt.id), shared=True)
        return StagedFolder.apart(unit, attempt)

    @staticmethod
    def apart(unit: WorkUnit, attempt: Attempt) -> StagedFolder:
        """Return a folder of this try's own."""
        return StagedFolder(
            posixpath.join(attempt.folder, attempt.id, f"{unit.id}-{secrets.token_hex(8)}"), shared=False
        )


def whole_folder(staging: str, attempt: str) -> str:
    """Return the folder of a new file set that one run of a driver wrote, as far as the first try of each unit succeeded.

    :param staging: the folder of the plan's token.
    """
    return posixpath.join(staging, attempt, _WHOLE)


def copy_bundle(work: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
    """Copy the files of a unit into staging, under their own paths: in `<attempt's folder>/<attempt>/<unit>-<random>/`, or in the
    folder of a new file set, `<attempt's folder>/<attempt>/whole/`.

    Where staged files are uploads, each is one to its published name.

    :return: a SUCCESSFUL result, with the files in the bundle's order, or a FAILED one with the first error, whose files are
        removed.
    :raises BaseException: only if it is no `Exception` and shows no secret.
    """
    return unit_result(work, unit, plan, attempt, partial(_staged, work, unit, plan, attempt))


def unit_result(
    work: CopyWork,
    unit: WorkUnit,
    plan: Plan,
    attempt: Attempt,
    stage: Callable[[GuardedConnections, KeptAttributes], tuple[StagedFile, ...]],
) -> UnitResult:
    """Stage files and return the result, which is FAILED if that raises an error. See `copy_bundle`."""
    started = time.monotonic()
    given = attempt.connections
    connections = given if isinstance(given, GuardedConnections) else GuardedConnections(given)
    kept = KeptAttributes(work.keep)
    staged: tuple[StagedFile, ...] = ()
    failure = None
    try:
        staged = stage(connections, kept)
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
) -> tuple[StagedFile, ...]:
    bundle = Bundle.of(unit)
    if not bundle.files:
        return ()
    folder = StagedFolder.of(unit, plan, attempt)
    tree, source_folder = open_tree(work.source, connections, work.links), _source_folder(plan)
    plain = _plain_origin(tree, source_folder, work)
    paced = _paced(plain, work, attempt)
    with (
        closing(ConvertingOrigin(paced, Chain(work.convert), tree, source_folder, connections)) as origin,
        closing(_destination(work, plan, bundle, plain, paced, attempt.files, folder, kept)) as destination,
    ):
        try:
            staged = _copied(work, bundle, origin, destination)
            destination.finish()
        except BaseException:
            destination.abort()
            raise
        return staged


def _copied(
    work: CopyWork, bundle: Bundle, origin: ConvertingOrigin, destination: Destination
) -> tuple[StagedFile, ...]:
    if bundle.archive is None:
        most = max(origin.parallel, destination.parallel)
        return tuple(in_flight(partial(destination.stage, origin=origin), (f.entry for f in bundle.files), most))
    assert work.unpack is not None
    return origin.unpack(bundle.archive, bundle.files, work.unpack, destination)


def open_origin(work: CopyWork, plan: Plan, attempt: Attempt, connections: GuardedConnections) -> Origin:
    """Open the origin of a file set's files, as they are in the source."""
    return _paced(
        _plain_origin(open_tree(work.source, connections, work.links), _source_folder(plan), work), work, attempt
    )


def _paced(plain: Origin, work: CopyWork, attempt: Attempt) -> Origin:
    return plain if work.bandwidth is None else PacedOrigin(plain, Pace(work.bandwidth * attempt.share))


def takes_checksums(work: CopyWork) -> bool:
    """Return whether the SHA-256 of each file is taken."""
    return bool(work.checksums or work.checks or work.compare is Compare.CHECKSUM)


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
    checksums = takes_checksums(work)
    if isinstance(files, LocalFiles):
        return DiskDestination(files, folder.path, kept, checksums=checksums, shared=folder.shared)
    if isinstance(files, HdfsFiles):
        return HdfsDestination(files, folder.path, plan.folder, kept, checksums=checksums, shared=folder.shared)
    ways: tuple[Copies | None, ...] = (StoreCopies.between(plain, files), PartUploads.between(paced, files))
    replacing = [file.entry.path for file in bundle.files if file.replaces is not None]
    return FilesDestination(
        files,
        folder.path,
        plan.folder,
        kept,
        replacing,
        () if checksums else [way for way in ways if way is not None],
        checksums=checksums,
        shared=folder.shared,
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
