"""The mirror steps that delete files if they are the ones that the plan saw. On a disk, they use a trash."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.steps.publishing import uploads_of
from airflow_gobblin.steps.trash import CLOSING, FENCED, close_trash, discard, make_trashes, take_away
from airflow_gobblin.storage.files.base import FileIdentity, Files

__all__ = ["CloseTrashStep", "DeleteObjectStep", "DeleteStep", "delete_files"]


def delete_files(
    doomed: Iterable[tuple[str, FileIdentity]],
    staging: str,
    files: Files,
    backup: Callable[[str], str] = lambda path: "",
) -> Iterator[CommitStep]:
    """Yield the steps that delete files. On disk, make a trash for each of them first, durably.

    :param doomed: the path of each below the target root, and its identity as the plan saw it.
    :param staging: the folder of the plan's token.
    :param backup: returns where each of them is kept, below the target root; empty: it is not.
    """
    if files.uploads is not None or files.copies is not None:
        yield from (DeleteObjectStep(path, identity) for path, identity in doomed)
        return
    some = [*doomed]
    for (path, identity), trash in zip(some, make_trashes(len(some), staging, files), strict=True):
        yield DeleteStep(path, identity, trash, backup(path))
        yield CloseTrashStep(path, identity, trash, backup(path))


@record("delete_step")
@dataclass(frozen=True, slots=True)
class DeleteStep:
    """The step that takes a file away, into its trash.

    Somebody else's file that has come to its place is away for a moment, and is then put back.

    :param path: the file, relative to the target root.
    :param identity: its identity when it was planned to be deleted. Another file is left.
    :param trash: a folder that was made for it alone before the decision.
    :param backup: where it is kept, relative to the target root; empty: it is not.
    """

    path: str
    identity: FileIdentity
    trash: str
    backup: str = ""
    phase = Phase.PUBLISH
    conflict = "it can't be deleted"

    @property
    def subject(self) -> str:
        return f"deletion of file {self.path!r}"

    @property
    def deleted_file(self) -> tuple[str, FileIdentity]:
        return self.path, self.identity

    @property
    def lost(self) -> str:
        return f"the file is there, and the folder {self.trash!r} that it was to be moved to is gone"

    def verify(self, context: StepContext) -> StepStatus:
        files = context.files
        if files.identity(self.path) != self.identity:
            return StepStatus.DONE
        if files.identity(self.trash) is not None:
            return StepStatus.TODO
        return StepStatus.LOST if files.identity(self.trash + FENCED) is None else StepStatus.FENCED

    def execute(self, context: StepContext) -> None:
        """Take the file away.

        :raises FileNotFoundError: it is gone, or its trash is.
        """
        files = context.files
        if files.identity(self.path) != self.identity:
            return
        take_away(files, self.path, self.trash, self.identity)

    def fence(self, context: StepContext) -> FenceResult:
        files = context.files
        end = partial(discard, files, backup=self.backup)
        close_trash(files, self.trash, self.trash + FENCED, self.path, self.identity, end)
        gone = files.identity(self.path) != self.identity
        return FenceResult.DONE if gone else FenceResult.HOLDS

    def undo(self, context: StepContext) -> None:
        """Leave it deleted: the next plan finds it missing."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return _folders(self.path, self.trash, self.backup)


@record("close_trash_step")
@dataclass(frozen=True, slots=True)
class CloseTrashStep:
    """The step that empties the trash of another step and removes it, so that its slot no longer takes anything away.

    It needs no fence: the other step's fence leaves it nothing to do.

    :param path: the file that was taken away, relative to the target root.
    :param identity: its identity. Anything else in the trash is put back.
    :param trash: the folder that it was taken to.
    :param backup: where it is kept, relative to the target root; empty: it is not.
    """

    path: str
    identity: FileIdentity
    trash: str
    backup: str = ""
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "it can't be emptied"

    @property
    def subject(self) -> str:
        return f"trash of file {self.path!r}"

    def verify(self, context: StepContext) -> StepStatus:
        names = (self.trash, self.trash + CLOSING, self.trash + FENCED)
        found = any(context.files.identity(name) is not None for name in names)
        return StepStatus.TODO if found else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        """Empty the trash and remove it."""
        files = context.files
        end = partial(discard, files, backup=self.backup)
        close_trash(files, self.trash, self.trash + CLOSING, self.path, self.identity, end)

    def undo(self, context: StepContext) -> None:
        """Do nothing: it did nothing of its own."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return _folders(self.path, self.trash, self.backup)


@record("delete_object_step")
@dataclass(frozen=True, slots=True)
class DeleteObjectStep:
    """The step that removes an object, if it is the one that the plan saw.

    It consumes nothing: in S3, until clean-up, a late process may remove an object with the same content that came to its place.

    :param path: the object, relative to the target root.
    :param identity: its identity when it was planned to be deleted. Another object is left.
    """

    path: str
    identity: FileIdentity
    phase = Phase.PUBLISH
    fence = None
    conflict = lost = "it can't be deleted"

    @property
    def subject(self) -> str:
        return f"deletion of object {self.path!r}"

    @property
    def deleted_file(self) -> tuple[str, FileIdentity]:
        return self.path, self.identity

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.TODO if context.files.identity(self.path) == self.identity else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        """Remove the object.

        :raises FileExistsError: another one is there by now.
        """
        if self.verify(context) is StepStatus.TODO:  # a store may ignore the condition
            objects = context.files.copies or uploads_of(context.files)
            objects.remove(self.path, self.identity.stamp)

    def undo(self, context: StepContext) -> None:
        """Leave it deleted: the next plan finds it missing."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return ()


def _folders(path: str, trash: str, backup: str) -> tuple[str, ...]:
    """Return the folders that change when a file is taken from its place into its trash, and then kept."""
    kept = (posixpath.dirname(backup),) if backup else ()
    return (posixpath.dirname(path) or ".", posixpath.dirname(trash), *kept)
