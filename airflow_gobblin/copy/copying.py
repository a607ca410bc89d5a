"""The copy of a bundle: its files are staged, in a folder of this try's own, and made durable once for all of them.

Nothing is looked at twice: the origin makes sure that each file is as it was planned when its last byte is read, and the
destination gives it the attributes to keep before it is durable. So its identity is final when the slot is decided.
"""

from __future__ import annotations

import posixpath
import secrets
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.bundles import Bundle
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.local import DiskDestination, DiskOrigin
from airflow_gobblin.copy.local_tree import LocalTree
from airflow_gobblin.copy.options import Compare
from airflow_gobblin.copy.streams import Destination, FilesDestination, Origin, TreeOrigin
from airflow_gobblin.copy.trees import open_tree
from airflow_gobblin.copy.work import CopyBinding
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.work import StagedFile, UnitResult, UnitState
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.storage.files.s3_uploads import S3Uploads
from airflow_gobblin.storage.locations import object_location

if TYPE_CHECKING:
    from airflow_gobblin.copy.work import CopyWork
    from airflow_gobblin.job import Attempt
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.work import WorkUnit

_SMALL = 8 << 20
_SMALL_FILES_AT_ONCE = 16


def copy_bundle(work: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
    """Copy the files of a unit into its own folder, `<attempt's folder>/<attempt>/<unit>-<random>/`, under their own paths.

    Where staged files are uploads, each is one to its published name.

    :return: a SUCCESSFUL result, with the files in the bundle's order, or a FAILED one with the first error, whose files are
        removed.
    :raises BaseException: only if it is no `Exception` and shows no secret.
    """
    started = time.monotonic()
    given = attempt.connections
    connections = given if isinstance(given, GuardedConnections) else GuardedConnections(given)
    kept = KeptAttributes(work.keep)
    staged: tuple[StagedFile, ...] = ()
    failure = None
    try:
        staged = _staged(work, unit, plan, attempt, connections, kept)
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
    folder = posixpath.join(attempt.folder, attempt.id, f"{unit.id}-{secrets.token_hex(8)}")
    with (
        closing(_origin(work, plan, connections)) as origin,
        closing(_destination(work, plan, attempt.files, folder, kept, origin)) as destination,
    ):
        try:
            staged = _all_staged([file.entry for file in bundle.files], origin, destination)
            destination.finish()
        except BaseException:
            destination.abort()
            raise
        return staged


def _all_staged(entries: Sequence[Entry], origin: Origin, destination: Destination) -> tuple[StagedFile, ...]:
    """Stage files one after the other on a disk, and elsewhere many small ones at once, besides a large one."""
    if isinstance(origin, DiskOrigin) and isinstance(destination, DiskDestination):
        return tuple(destination.stage(entry, origin) for entry in entries)
    pool = ThreadPoolExecutor(_SMALL_FILES_AT_ONCE, "copy")
    try:
        small = {e: pool.submit(destination.stage, e, origin) for e in entries if e.size <= _SMALL}
        large = {e: destination.stage(e, origin) for e in entries if e.size > _SMALL}
        return tuple(small[entry].result() if entry in small else large[entry] for entry in entries)
    finally:
        pool.shutdown(cancel_futures=True)


def _origin(work: CopyWork, plan: Plan, connections: GuardedConnections) -> Origin:
    folder, location = CopyBinding.of(plan).source_folder, object_location(work.source)
    if location is not None and location.scheme == "s3":
        from airflow_gobblin.copy.objects import S3Origin
        from airflow_gobblin.storage.filesystems import open_filesystem

        return S3Origin(open_filesystem(location, connections), location, folder)
    tree = open_tree(work.source, connections, work.links)
    if isinstance(tree, LocalTree):
        return DiskOrigin(tree, folder, work.links)
    return TreeOrigin(tree, folder)


def _destination(
    work: CopyWork, plan: Plan, files: Files, folder: str, kept: KeptAttributes, origin: Origin
) -> Destination:
    checksums = work.checksums or work.compare is Compare.CHECKSUM
    if isinstance(files, LocalFiles):
        return DiskDestination(files, folder, kept, checksums=checksums)
    target = object_location(work.target)
    if target is None or target.scheme != "s3" or not isinstance(files.uploads, S3Uploads):
        return FilesDestination(files, folder, plan.folder, kept, checksums=checksums)
    from airflow_gobblin.copy.objects import S3Origin, UploadDestination

    same = isinstance(origin, S3Origin) and origin.location.conn_id == target.conn_id
    within = origin if isinstance(origin, S3Origin) and same else None
    return UploadDestination(files, plan.folder, kept, checksums=checksums, within=within)


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
