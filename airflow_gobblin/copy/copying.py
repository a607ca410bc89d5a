"""The copy of a bundle: its files are staged, in a folder of this try's own, and made durable once for all of them.

Nothing is looked at twice: the origin makes sure that each file is as it was planned when its last byte is read, and the
destination gives it the attributes to keep before it is durable. So its identity is final when the slot is decided.
"""

from __future__ import annotations

import posixpath
import secrets
import time
import traceback
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.bundles import Bundle
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

if TYPE_CHECKING:
    from airflow_gobblin.copy.work import CopyWork
    from airflow_gobblin.job import Attempt
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.work import WorkUnit


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
        closing(_destination(work, plan, attempt.files, folder, kept)) as destination,
    ):
        try:
            staged = tuple(destination.stage(file.entry, origin) for file in bundle.files)
            destination.finish()
        except BaseException:
            destination.abort()
            raise
        return staged


def _origin(work: CopyWork, plan: Plan, connections: GuardedConnections) -> Origin:
    tree, folder = open_tree(work.source, connections, work.links), CopyBinding.of(plan).source_folder
    if isinstance(tree, LocalTree):
        return DiskOrigin(tree, folder, work.links)
    return TreeOrigin(tree, folder)


def _destination(work: CopyWork, plan: Plan, files: Files, folder: str, kept: KeptAttributes) -> Destination:
    checksums = work.checksums or work.compare is Compare.CHECKSUM
    if isinstance(files, LocalFiles):
        return DiskDestination(files, folder, kept, checksums=checksums)
    return FilesDestination(files, folder, plan.folder, kept, checksums=checksums)


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
