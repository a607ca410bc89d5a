"""The steps of mirrors that delete files, if they are the ones that the plan saw.

On disk a file is not deleted where it is: between a look and an `unlink` somebody may have replaced it. It is renamed into a
trash of its own, looked at there, and put back if it is another one. The trash is what makes this possible once only (rule 14):
it is made before the decision, and no step makes it again. A later phase closes it, and so does a fence: only once it is removed
nothing can come into it any more, even from a process that has it open.
"""

from __future__ import annotations

import errno
import logging
import posixpath
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.steps.publishing import uploads_of
from airflow_gobblin.storage.files.base import FileIdentity, Files

__all__ = ["KEPT", "CloseTrashStep", "DeleteObjectStep", "DeleteStep", "delete_files"]

log = logging.getLogger(__name__)

KEPT = "_gobblin/kept"
"""The folder, below the target root, of files that could not be put back."""
_CLOSING, _FENCED = ".closing", ".fenced"
"""The ends of the names of a trash that is being closed."""
_ROUNDS = 1000


def delete_files(doomed: Iterable[tuple[str, FileIdentity]], staging: str, files: Files) -> Iterator[CommitStep]:
    """Yield the steps that delete files. On disk, make a trash for each of them first, durably.

    :param doomed: the path of each below the target root, and its identity as the plan saw it.
    :param staging: the folder of the plan's token.
    """
    if files.uploads is not None:
        yield from (DeleteObjectStep(path, identity) for path, identity in doomed)
        return
    folder, some = f"{staging}/trash-{uuid.uuid4().hex}", [*doomed]
    trashes = [f"{folder}/{number}" for number in range(len(some))]
    for trash in trashes:
        files.make_folder(trash)
    if some:
        files.sync_folder(folder)
    for (path, identity), trash in zip(some, trashes, strict=True):
        yield DeleteStep(path, identity, trash)
        yield CloseTrashStep(path, identity, trash)


@record("delete_step")
@dataclass(frozen=True, slots=True)
class DeleteStep:
    """The step that takes a file away, into its trash.

    A file of somebody else's that has come to its place is away for a moment, and is put back.

    :param path: the file, relative to the target root.
    :param identity: its identity when it was planned to be deleted. Another file is left.
    :param trash: a folder that was made for it alone before the decision.
    """

    path: str
    identity: FileIdentity
    trash: str
    phase = Phase.PUBLISH
    conflict = "it can't be deleted"

    @property
    def subject(self) -> str:
        return f"deletion of file {self.path!r}"

    @property
    def lost(self) -> str:
        return f"the file is there, and the folder {self.trash!r} that it was to be moved to is gone"

    def verify(self, context: StepContext) -> StepStatus:
        files = context.files
        if files.identity(self.path) != self.identity:
            return StepStatus.DONE
        if files.identity(self.trash) is not None:
            return StepStatus.TODO
        return StepStatus.LOST if files.identity(self.trash + _FENCED) is None else StepStatus.FENCED

    def execute(self, context: StepContext) -> None:
        """Take the file away.

        :raises FileNotFoundError: it is gone, or its trash is.
        """
        files = context.files
        if files.identity(self.path) != self.identity:
            return
        taken = f"{self.trash}/{uuid.uuid4().hex}"  # no other process uses this name
        files.replace(self.path, taken)
        if files.identity(taken) not in (self.identity, None):
            _put_back(files, taken, self.path)

    def fence(self, context: StepContext) -> FenceResult:
        _close(context.files, self.trash, self.trash + _FENCED, self.path, self.identity)
        gone = context.files.identity(self.path) != self.identity
        return FenceResult.DONE if gone else FenceResult.HOLDS

    def undo(self, context: StepContext) -> None:
        """What was deleted stays deleted: the next plan finds it missing."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.path) or ".", posixpath.dirname(self.trash))


@record("close_trash_step")
@dataclass(frozen=True, slots=True)
class CloseTrashStep:
    """The step that empties the trash of a `DeleteStep` and removes it, so that its slot deletes nothing any more.

    It needs no fence: that of the `DeleteStep` leaves nothing to it.

    :param path: the file that was deleted, relative to the target root.
    :param identity: its identity. Anything else in the trash is put back.
    :param trash: the folder that it was taken to.
    """

    path: str
    identity: FileIdentity
    trash: str
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "it can't be emptied"

    @property
    def subject(self) -> str:
        return f"trash of file {self.path!r}"

    def verify(self, context: StepContext) -> StepStatus:
        names = (self.trash, self.trash + _CLOSING, self.trash + _FENCED)
        found = any(context.files.identity(name) is not None for name in names)
        return StepStatus.TODO if found else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        """Empty the trash and remove it."""
        _close(context.files, self.trash, self.trash + _CLOSING, self.path, self.identity)

    def undo(self, context: StepContext) -> None:
        """It did nothing of its own."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.path) or ".", posixpath.dirname(self.trash))


@record("delete_object_step")
@dataclass(frozen=True, slots=True)
class DeleteObjectStep:
    """The step that removes an object, if it is the one that the plan saw.

    It consumes nothing: until clean-up, a late process may remove an object of the same content that came to its place.

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

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.TODO if context.files.identity(self.path) == self.identity else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        """Remove the object.

        :raises FileExistsError: another one is there by now.
        """
        if self.verify(context) is StepStatus.TODO:  # a store may ignore the condition
            uploads_of(context.files).remove(self.path, self.identity.stamp)

    def undo(self, context: StepContext) -> None:
        """What was deleted stays deleted: the next plan finds it missing."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return ()


def _close(files: Files, trash: str, closing: str, path: str, identity: FileIdentity) -> None:
    """Rename a trash, so that nobody finds it any more, and empty it until it can be removed.

    :param closing: its new name. Another process may have given it the other one.
    """
    with suppress(FileNotFoundError, FileExistsError):
        files.move_folder(trash, closing)
    for folder in (trash + _CLOSING, trash + _FENCED):
        for _ in range(_ROUNDS):
            if files.identity(folder) is None:
                break
            for name, found in files.identities(folder).items():
                if found != identity:
                    _put_back(files, f"{folder}/{name}", path)
                    continue
                with suppress(FileNotFoundError):  # another process is at it, too
                    files.unlink(f"{folder}/{name}")
            files.remove_folder(folder)
        else:
            raise OSError(errno.ENOTEMPTY, "something comes into it again and again", folder)


def _put_back(files: Files, taken: str, path: str) -> None:
    """Put a file, or whatever it is, back to its place, or keep it elsewhere if its place is taken. Harmless if it is gone."""
    while (found := files.identity(taken)) is not None:  # else another process did it
        try:
            _rename_back(files, taken, path)
        except FileNotFoundError:
            with suppress(FileExistsError, NotADirectoryError):  # the next try finds the same
                files.make_folder(posixpath.dirname(path) or ".")
        except (FileExistsError, NotADirectoryError):
            with suppress(FileNotFoundError):
                if files.identity(path) == found:  # it was given back by a link, and has two names
                    files.unlink(taken)
                else:
                    _keep(files, taken, path)


def _keep(files: Files, taken: str, path: str) -> None:
    kept = f"{KEPT}/{uuid.uuid4().hex}/{path}"
    files.make_folder(posixpath.dirname(kept))
    files.replace(taken, kept)
    log.warning("%r was replaced twice while it was to be deleted: one of the two files is kept as %r", path, kept)


def _rename_back(files: Files, taken: str, path: str) -> None:
    """Rename a file without overwriting; by a link, durable before its other name goes, where the storage has no such rename."""
    try:
        files.rename_new(taken, path)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        if files.folder(taken) is not None:
            files.move_folder(taken, path)
            return
        files.link(taken, path)
        files.sync_folder(posixpath.dirname(path) or ".")
        files.unlink(taken)
