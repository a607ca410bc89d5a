"""Checks ahead of a run that find everything it would fail on, without changing or creating anything.

Checks that need Airflow, such as those of connections to Spark, are in the command `airflow gobblin check`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import GobblinError, SourceError, StoreError
from airflow_gobblin.job import Job, connections_of
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.plan import DatasetProspect
from airflow_gobblin.redaction import Redactor
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import Files, open_files
from airflow_gobblin.storage.locations import remote_location
from airflow_gobblin.workspace.claims import Claims

__all__ = ["Check", "check_writable", "checked", "checks"]


@dataclass(frozen=True)
class Check:
    """The result of one check.

    :param what: its kind: `connection`, `journal`, `target`, `dataset`, `spark` or `java`.
    :param detail: what was found.
    :param error: what a run would fail with; `None` if nothing is wrong.
    """

    what: str
    subject: str
    detail: str = ""
    error: GobblinError | None = None


def checked(what: str, subject: str, look: Callable[[], str], redactor: Redactor) -> Check:
    """Run one check.

    :param look: returns what it found, or raises what is wrong, which is shown without secrets.
    """
    try:
        return Check(what, subject, look())
    except GobblinError as error:
        return _redacted(Check(what, subject, error=error), redactor)
    except Exception as error:  # an author's code, and the layers underneath, may raise anything
        wrapped = GobblinError(
            operation="check", subject=f"{what} {subject!r}", cause=error, hint="See its own message."
        )
        return _redacted(Check(what, subject, error=wrapped), redactor)


def _redacted(found: Check, redactor: Redactor) -> Check:
    if found.error is None:
        return found
    return replace(found, error=redactor.without_secrets(found.error, "check", found.subject))


def checks(job: Job, dag_id: str, journal: Journal | None, connections: Connections) -> Iterator[Check]:
    """Check the connections, the target and each dataset of a job.

    :param dag_id: the DAG that has it.
    :param journal: its journal, to be read, or an empty one; `None` if it can't be opened: datasets are then not planned.
    """
    guarded = GuardedConnections(connections)
    found = [
        checked("connection", conn_id, _known(guarded, conn_id), guarded.redactor)
        for conn_id in connections_of(job.work)
    ]
    yield from found
    several = list[OpenJob]()

    def look_at_target() -> str:
        files = open_files(job.work.workspace, guarded)
        if journal is not None:
            opened = OpenJob(job, journal, connections, files)
            opened.check_target()
            several.append(opened)
        return _reachable(files)

    target = checked("target", job.work.target, look_at_target, guarded.redactor)
    yield target
    unknown = {one.subject for one in found if one.error is not None}
    if not unknown & {*job.work.connection_ids}:
        request = RunRequest(f"{dag_id}/check")
        opened = several[0] if several and target.error is None else None
        yield from (_redacted(one, guarded.redactor) for one in _datasets(job, request, guarded, opened))


def _known(connections: Connections, conn_id: str) -> Callable[[], str]:
    return lambda: f"of type {connections.uri(conn_id).partition(':')[0]!r}"


def _reachable(files: Files) -> str:
    """Describe the target.

    :raises GobblinError: it can't be read, or a run couldn't write there.
    """
    on_disk = remote_location(files.root) is None
    if on_disk and not check_writable(Path(files.root)):
        return "there is none yet: the first run makes it"
    claimed = f"{many(len(Claims(files).valid()), 'folder')} claimed"
    return claimed if on_disk else f"{claimed}; whether files can be written there is seen by a run only"


def check_writable(path: Path) -> bool:
    """Check that a folder or file can be written to, or created; return whether it exists.

    :raises StoreError: it can neither be written to nor created.
    """
    there = next(one for one in (path, *path.parents) if one.exists())
    may = there.is_dir() or there == path
    if may and os.access(there, os.W_OK | (os.X_OK if there.is_dir() else 0)):
        return there == path
    raise StoreError(
        operation="write to",
        subject=str(path),
        cause=f"the user of this command may not write in {there}" if may else f"{there} is not a folder",
        hint="Give one that the workers may write to. (They may be other users, on other hosts.)",
    )


def _datasets(
    job: Job, request: RunRequest, connections: GuardedConnections, opened: OpenJob | None
) -> Iterator[Check]:
    """Yield everything that is wrong with each dataset; those that look fine are planned, as in a run, but not staged."""
    work, well = job.work, list[str]()
    try:
        with connections.redacting("check", f"ingestion {job.name!r}"):
            datasets = tuple(work.datasets(connections))
    except GobblinError as error:
        yield Check("source", job.name, error=error)
        return
    for dataset in datasets:
        errors = list[GobblinError]()
        try:
            with connections.redacting("check", f"dataset {dataset.urn!r}"):
                errors += work.check(dataset, connections)
        except SourceError as error:  # the same holds for all datasets
            yield Check("source", job.name, error=error)
            return
        except GobblinError as error:
            errors.append(error)
        yield from (Check("dataset", dataset.urn, error=error) for error in errors)
        if not errors:
            well.append(dataset.urn)
    if opened is None:
        yield from (
            Check("dataset", urn, "its columns can be read; it is not planned while the rest is wrong") for urn in well
        )
    elif well:
        try:
            prospect = would_plan(opened, replace(request, datasets=tuple(well)))
        except GobblinError as error:  # concerns all datasets: for example, another DAG has the ingestion
            yield Check("ingestion", job.name, error=error)
            return
        yield from map(_of_dataset, prospect.datasets)


def _of_dataset(found: DatasetProspect) -> Check:
    if found.error is not None:
        return Check("dataset", found.urn, error=found.error)
    would = f"a run would plan {many(len(found.units), 'unit')}" if found.plan is not None else found.detail
    return Check("dataset", found.urn, would)
