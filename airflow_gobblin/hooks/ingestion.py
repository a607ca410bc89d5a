"""How an Airflow task opens a job: its secrets are Airflow connections, resolved only when the task runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError, NotFoundError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.job import check_roots
from airflow_gobblin.storage.files import check_target
from airflow_gobblin.storage.locations import ObjectLocation, is_place

if TYPE_CHECKING:
    from airflow_gobblin.job import Job
    from airflow_gobblin.journal.journal import Journal
    from airflow_gobblin.run.open_job import OpenJob

__all__ = ["check_job", "check_journal", "journal_to_look_at", "open_job"]


def check_job(job: Job) -> None:
    """Check, as far as is possible when a DAG is parsed, that a job can work, without contacting anything.

    :raises ConfigurationError: its journal or its target is not valid.
    """
    check_journal(job.journal)
    check_target(job.work.workspace)
    check_roots(job.work)


def check_journal(journal: str) -> None:
    """Check the name of a journal when a DAG is parsed, without contacting it.

    :raises ConfigurationError: it is empty, relative, a URL that can't be read, or one with a password in it.
    """
    from airflow_gobblin.storage.stores import store_location
    from airflow_gobblin.storage.stores.sql import holds_secret

    if is_place(journal):
        location = store_location(journal)
        if not isinstance(location, Path | ObjectLocation) and holds_secret(location):
            raise ConfigurationError(
                operation="use",
                subject=f"the journal at {location.get_backend_name()}://{location.host or ''}",
                cause="its URL holds a password, which everyone who reads the DAG would see",
                hint="Make it an Airflow connection, and give that connection's id.",
            )
    elif not journal or "/" in journal:
        raise ConfigurationError(
            operation="use",
            subject=f"journal {journal!r}",
            cause="it is neither a URL, an absolute path, nor the id of a connection",
            hint="Give 'file:///…', 'sqlite:////path/journal.db', 's3://connection@bucket/prefix', or the id of an Airflow "
            "connection to PostgreSQL, or of type 'gobblin_journal'.",
        )


def open_job(job: Job) -> OpenJob:
    """Open a job on its journal, with Airflow's connections. For a running task, not for a DAG file.

    :raises ConfigurationError: the journal or a connection doesn't exist.
    :raises StoreError: the journal's store can't be reached.
    """
    from airflow_gobblin.journal.journal import Journal
    from airflow_gobblin.model.registry import await_kinds, import_kinds
    from airflow_gobblin.run.open_job import OpenJob

    import_kinds()
    await_kinds(job.work.code)
    connections = AirflowConnections()
    location = _url(job, connections)
    return OpenJob(job, Journal.create(location, job.name, connections), connections)


def journal_to_look_at(job: Job) -> Journal:
    """Return the journal of a job for reading; an empty one in memory if its first run has yet to create it.

    :raises ConfigurationError: the journal, a connection or a module of `code` doesn't exist.
    :raises StoreError: the journal's store can't be reached, or can't be created.
    """
    from airflow_gobblin.journal.journal import Journal
    from airflow_gobblin.model.registry import import_kinds
    from airflow_gobblin.run.checking import check_writable
    from airflow_gobblin.storage.stores import path_of_store
    from airflow_gobblin.storage.stores.memory import MemoryStore

    import_kinds(job.work.code)
    connections = AirflowConnections()
    url = _url(job, connections)
    try:
        return Journal.open(url, job.name, connections)
    except NotFoundError:
        path = path_of_store(url)
        if path is not None:
            check_writable(path)
        return Journal.create(MemoryStore(), job.name)


def _url(job: Job, connections: AirflowConnections) -> str:
    return job.journal if is_place(job.journal) else connections.uri(job.journal)
