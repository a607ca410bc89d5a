"""Commit steps: idempotent publishing actions, each with `verify()` and `execute()`.

`verify` answers by identity and never by mere existence: Gobblin counted a half-copied directory as done. A user's own step
is a frozen dataclass registered with `wire.record`.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from airflow_gobblin.errors import StepConflictError, StepLostError
from airflow_gobblin.files import FileIdentity, Files
from airflow_gobblin.watermark import Watermark
from airflow_gobblin.wire import record


class StepStatus(StrEnum):
    """What `verify` finds."""

    TODO = "todo"
    DONE = "done"
    CONFLICT = "conflict"
    """Something else stands where the step publishes."""
    LOST = "lost"
    """Neither source nor result."""


@dataclass(frozen=True)
class StepContext:
    """What a step may touch: the file system under the target root."""

    files: Files


class CommitStep(Protocol):
    """One publishing action. Any process may verify, execute and undo it, any number of times, also at the same time.

    The steps of a sequence are carried out in parallel and in no order, but for the last one, which hands over the watermark:
    a step relies on no other.
    """

    def verify(self, context: StepContext) -> StepStatus:
        """Whether it is done. Changes nothing."""

    def execute(self, context: StepContext) -> None:
        """Do it. An error says nothing about the outcome: the caller verifies again."""

    def undo(self, context: StepContext) -> None:
        """Take back what it did, and only that; harmless where it did nothing. For abandoned sequences."""

    def folders(self) -> tuple[str, ...]:
        """The folders whose names must be durable before the outcome is written."""


@record("move_step")
@dataclass(frozen=True)
class MoveStep:
    """Gives a staged file its published name, within one file system, and never over anything.

    The staged name goes with its token's staging once the outcome stands, so that a crash between two names can't lose the file.

    :param source: the staged file; :param target: the published one; both relative to the target root.
    :param unit: the work unit it belongs to. :param identity: what the staged file was when the slot was decided.
    """

    source: str
    target: str
    unit: str
    identity: FileIdentity
    checksum: str
    rows: int

    def verify(self, context: StepContext) -> StepStatus:
        published = context.files.identity(self.target)
        if published is not None:
            ours = self.is_ours(self.target, published, context.files)
            return StepStatus.DONE if ours else StepStatus.CONFLICT
        staged = context.files.identity(self.source)
        ours = staged is not None and self.is_ours(self.source, staged, context.files)
        return StepStatus.TODO if ours else StepStatus.LOST

    def is_ours(self, path: str, found: FileIdentity, files: Files) -> bool:
        """Whether what was found at a path is the file that this step publishes: by inode, size and time, else by checksum."""
        if found == self.identity:
            return True
        return found.size == self.identity.size and files.checksum(path) == self.checksum

    def execute(self, context: StepContext) -> None:
        context.files.make_folder(posixpath.dirname(self.target))
        context.files.link(self.source, self.target)

    def undo(self, context: StepContext) -> None:
        found = context.files.identity(self.target)
        if found is not None and self.is_ours(self.target, found, context.files):
            context.files.unlink(self.target)

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.target),)

    def error(self, status: StepStatus, urn: str) -> StepConflictError | StepLostError:
        """What to say of a step that can't be done."""
        if status is StepStatus.CONFLICT:
            return StepConflictError(
                operation="publish",
                subject=f"file {self.target!r} of dataset {urn!r}",
                cause="another file stands there, of other content",
                hint="Move it away and clear execute_commit_steps, or abandon the slot.",
            )
        return StepLostError(
            operation="publish",
            subject=f"file {self.target!r} of dataset {urn!r}",
            cause=f"neither it nor its staged file {self.source!r} is there as it was written",
            hint="Restore one of them, or abandon the slot: its range is then extracted anew.",
        )


@record("high_watermark_step")
@dataclass(frozen=True)
class HighWatermarkStep:
    """The last step of a sequence: hands over the watermark. Writing the outcome DONE *is* executing it, in one atomic record
    with the ranges that the decision covers, so it needs no code of its own.

    :param watermark: the dataset's watermark once the slot is done; `None` for a dataset without positions.
    """

    watermark: Watermark | None


Step = CommitStep | HighWatermarkStep
"""What a commit sequence holds: publishing actions, and last the hand-over of the watermark."""
