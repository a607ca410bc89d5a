"""The port between a job and the work on its units: nothing above it knows about rows, files or frames.

A job is a name, a journal, policies and one `Work`. The tasks of the graph, the workspace and the Spark side plan, store, run and
publish units of any kind through it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from airflow_gobblin.connections import Connections
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import UnitResult, WorkUnit
from airflow_gobblin.steps.publishing import CommitStep
from airflow_gobblin.storage.files.base import Files

__all__ = ["Attempt", "Held", "Site", "Work"]


class Site(StrEnum):
    """Where the units of a work run."""

    TASK = "task"
    """Each in a Spark task."""
    DRIVER = "driver"
    """On the driver, as DataFrames."""


class Held(Protocol):
    """Resources held open while the units of a pack run: a snapshot of the source, where a plan requires one."""

    def of(self, plan: Plan) -> str:
        """Return the name of the snapshot in which a plan's units run; empty if it requires none.

        :raises GobblinError: the snapshot can't be provided.
        """


@dataclass(frozen=True)
class Attempt:
    """One run of a driver, as a unit sees it.

    :param id: its id, which is also the name of a folder.
    :param files: the file system under the target root.
    :param folder: the folder of the plan's staged files, below that root.
    :param connections: access to secrets.
    :param snapshot: the name of the snapshot held for the unit's plan, from `Held.of`.
    """

    id: str
    files: Files
    folder: str
    connections: Connections
    snapshot: str = ""


class Work(Protocol):
    """The work of a job on a unit: frozen, registered with `wire.record`, without secrets. It is sent to Spark whole."""

    @property
    def site(self) -> Site:
        """Where its units run."""

    @property
    def code(self) -> tuple[str, ...]:
        """Modules with the author's own classes, which are also sent to Spark."""

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return the modules that `run` needs and that can't be shipped: executors must have them installed."""

    def hold(self, connections: Connections) -> AbstractContextManager[Held]:
        """Hold open the resources that the units of a pack share, from the first unit that needs them to the end of the block."""

    def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        """Run a unit into staged files of its own folder.

        :return: a SUCCESSFUL result, or a FAILED one with the first error. No `Exception` is raised, nor any other exception that
            shows a secret.
        """

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterable[CommitStep]:
        """Return the steps that publish results. Nothing is changed.

        :raises StepLostError: staged files are gone.
        """
