"""The port of commit steps: idempotent publishing actions, each with `verify()` and `execute()`.

`verify` decides by identity and never by mere existence: Gobblin counted a half-copied directory as done. A step is a frozen
dataclass registered with `wire.record`, without secrets; `steps/publishing.py` has those of the built-in sinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from airflow_gobblin.connections import GuardedConnections, NoConnections
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.files.base import FileIdentity, Files


class StepStatus(StrEnum):
    """The result of `verify`."""

    TODO = "todo"
    DONE = "done"
    CONFLICT = "conflict"
    """Something else exists where the step publishes, or among the files it would publish."""
    LOST = "lost"
    """Neither source nor result exists."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """The resources available to a step, on a worker and in a Spark task alike.

    :param files: the file system under the target root.
    :param connections: access to secrets: of the connections that the ingestion names.
    """

    files: Files
    connections: GuardedConnections = field(default_factory=lambda: GuardedConnections(NoConnections()))


@dataclass(frozen=True, slots=True)
class TargetFile:
    """A file as a step publishes it.

    :param path: relative to the target root.
    :param unit: the work unit that it belongs to.
    :param identity: its identity when the slot was decided.
    :param checksum: the SHA-256 of its content, in hex.
    """

    path: str
    unit: str
    identity: FileIdentity
    checksum: str
    rows: int

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.identity.size

    def is_same(self, found: FileIdentity, files: Files, path: str | None = None) -> bool:
        """Return whether a file found there is this file: by its identity, else by its checksum.

        :param path: where it was found, if not at its own path.
        """
        if found == self.identity:
            return True
        return found.size == self.size and files.checksum(path or self.path) == self.checksum


class CommitStep(Protocol):
    """One publishing action. Any process may verify, execute and undo it, any number of times, also concurrently.

    The steps of a sequence are carried out in parallel and in no order, except the last one, which hands over the watermark: no
    step depends on another.
    """

    @property
    def subject(self) -> str:
        """What it publishes, in the words of its errors, such as `file 'flights/0.parquet'`."""

    @property
    def conflict(self) -> str:
        """The cause of its error if it is in CONFLICT."""

    @property
    def lost(self) -> str:
        """The cause of its error if it is LOST."""

    def verify(self, context: StepContext) -> StepStatus:
        """Return whether it is done. Changes nothing."""

    def execute(self, context: StepContext) -> None:
        """Carry out the step. An error doesn't determine the outcome: the caller verifies again."""

    def undo(self, context: StepContext) -> None:
        """Undo what it did, and nothing else; harmless if it did nothing. For abandoned sequences."""

    def files(self) -> tuple[TargetFile, ...]:
        """Return the files that it publishes.

        A step that publishes files looks at their source itself and never overwrites anything: it is executed without being
        verified first.
        """

    def folders(self) -> tuple[str, ...]:
        """Return the folders whose names must be durable before the outcome is written."""


@record("high_watermark_step")
@dataclass(frozen=True)
class HighWatermarkStep:
    """The last step of a sequence: hands over the watermark. Writing the outcome DONE *is* executing it, in one atomic record
    with the ranges that the decision covers, so it needs no code of its own.

    :param watermark: the dataset's watermark once the slot is done; `None` for a dataset without positions.
    """

    watermark: Watermark | None


def batches(steps: Iterable[CommitStep], files: int) -> Iterator[tuple[CommitStep, ...]]:
    """Yield steps in batches that publish about this many files, which bounds their size in memory and in a record."""
    some: list[CommitStep] = []
    count = 0
    for step in steps:
        some.append(step)
        count += max(1, len(step.files()))
        if count >= files:
            yield tuple(some)
            some, count = [], 0
    if some:
        yield tuple(some)
