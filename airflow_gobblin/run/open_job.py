"""An open job: its journal, files, staging and committer, which the tasks of a run share."""

from __future__ import annotations

from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import StepError
from airflow_gobblin.job import Job, check_roots
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.run import reports
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.storage.files import Files, open_files
from airflow_gobblin.workspace.staging import Staging, staging_folder


class OpenJob:
    """A job with its journal, files, staging, claims and committer, which the tasks of its runs share.

    :param connections: where the source's secrets come from.
    :param files: the file system under the workspace root, where files are published, too; by default the one its work names.
    :raises ConfigurationError: its work stages files elsewhere than it publishes them.
    """

    def __init__(self, job: Job, journal: Journal, connections: Connections, files: Files | None = None) -> None:
        check_roots(job.work)
        self.job = job
        self.journal = journal
        self.connections = GuardedConnections(connections)
        self.files = files if files is not None else open_files(job.work.workspace, self.connections)
        self.staging = Staging(self.files, staging_folder(journal.ingestion, journal.id))
        self.committer = Committer(
            journal,
            self.files,
            attempts=job.attempts,
            retention=job.retention,
            connections=self.connections,
        )
        self.claims = self.committer.claims
        self.recovered: list[DatasetReport] = []
        """Reports of slots that earlier runs left and that were finished here."""

    def check_target(self) -> None:
        """Check that the target is the one that the journal's slots are published to, before anything relies on it.

        :raises TargetError: it is empty, not mounted, not shared, or another one.
        :raises ConfigurationError: the slots are published to another root.
        """
        self.committer.homes.check()

    def failed(self, operation: str, urn: str, error: Exception) -> DatasetReport:
        """Report a dataset that a task can't go on with, without secrets."""
        return reports.failed(operation, urn, self.shown(operation, urn, error))

    def shown(self, operation: str, urn: str, error: Exception) -> Exception:
        """Return an error without secrets. An error of foreign code is worth a retry."""
        return self.connections.redactor.without_secrets(error, operation, f"dataset {urn!r}", StepError)
