"""Commit steps: idempotent publishing actions, each with `verify()` and `execute()`.

`verify` decides by identity and never by mere existence: Gobblin counted a half-copied directory as done. A user's own step is a
frozen dataclass registered with `wire.record`.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from airflow_gobblin.errors import ConfigurationError, StepConflictError, StepLostError
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import StagedFile, Upload
from airflow_gobblin.storage.files.base import FileIdentity, Files, Uploads

_TRIES = 5

AnyStep = TypeVar("AnyStep", bound="CommitStep | HighWatermarkStep")


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
    """The resources available to a step: the file system under the target root."""

    files: Files


class CommitStep(Protocol):
    """One publishing action. Any process may verify, execute and undo it, any number of times, also concurrently.

    The steps of a sequence are carried out in parallel and in no order, except the last one, which hands over the watermark: no
    step depends on another.
    """

    def verify(self, context: StepContext) -> StepStatus:
        """Return whether it is done. Changes nothing."""

    def execute(self, context: StepContext) -> None:
        """Carry out the step. An error doesn't determine the outcome: the caller verifies again."""

    def undo(self, context: StepContext) -> None:
        """Undo what it did, and nothing else; harmless if it did nothing. For abandoned sequences."""

    def folders(self) -> tuple[str, ...]:
        """Return the folders whose names must be durable before the outcome is written."""


@record("move_step")
@dataclass(frozen=True, slots=True)
class MoveStep:
    """The step that gives a staged file its published name, within one file system, without ever overwriting.

    The staged name is removed with its token's staging once the outcome exists, so that a crash between two names can't lose the
    file.

    :param source: the staged file, relative to the target root.
    :param target: the published file, relative to the target root.
    :param unit: the work unit it belongs to.
    :param identity: the identity of the staged file when the slot was decided.
    """

    source: str
    target: str
    unit: str
    identity: FileIdentity
    checksum: str
    rows: int

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.identity.size

    def verify(self, context: StepContext) -> StepStatus:
        published = context.files.identity(self.target)
        if published is not None:
            return StepStatus.DONE if self.is_ours(published, context.files) else StepStatus.CONFLICT
        staged = context.files.identity(self.source)
        ours = staged is not None and _same(self, self.source, staged, context.files)
        return StepStatus.TODO if ours else StepStatus.LOST

    def is_ours(self, found: FileIdentity, files: Files) -> bool:
        """Return whether the file found at the target is the one that this step publishes."""
        return _same(self, self.target, found, files)

    def execute(self, context: StepContext) -> None:
        """Give the file its published name.

        :raises FileExistsError: something exists at its target.
        :raises FileNotFoundError: its source is gone or changed.
        """
        files = context.files
        staged = files.identity(self.source)
        if staged is None or not _same(self, self.source, staged, files):
            raise FileNotFoundError(errno.ENOENT, "it is not there as it was written", self.source)
        _give_name(files, files.link, self.source, self.target)

    def undo(self, context: StepContext) -> None:
        _remove(self, context.files)

    def folders(self) -> tuple[str, ...]:
        return (self.target.rpartition("/")[0],)

    conflict = "another file stands there, of other content"
    """Error text for a conflict."""

    @property
    def lost(self) -> str:
        """Error text for a missing source and result."""
        return f"neither it nor its staged file {self.source!r} is there as it was written"


@record("upload_step")
@dataclass(frozen=True, slots=True)
class UploadStep:
    """The step that completes an upload, which makes it the published object without moving a byte or ever overwriting.

    :param target: the published object, relative to the target root.
    :param unit: the work unit it belongs to.
    :param upload: the upload with its parts.
    :param identity: the future identity of the object.
    """

    target: str
    unit: str
    upload: Upload
    identity: FileIdentity
    checksum: str
    rows: int

    @property
    def size(self) -> int:
        """The size of the object in bytes."""
        return self.identity.size

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may complete it between the two checks
            published = context.files.identity(self.target)
            if published is not None:
                return StepStatus.DONE if self.is_ours(published, context.files) else StepStatus.CONFLICT
            if _uploads(context.files).stands(self.target, self.upload):
                return StepStatus.TODO
        return StepStatus.LOST

    def is_ours(self, found: FileIdentity, files: Files) -> bool:
        """Return whether the object found at the target is the one that this step publishes."""
        return _same(self, self.target, found, files)

    def execute(self, context: StepContext) -> None:
        """Complete the upload.

        :raises FileExistsError: something exists at its target.
        :raises FileNotFoundError: its upload is gone.
        """
        _uploads(context.files).complete(self.target, self.upload)

    def undo(self, context: StepContext) -> None:
        _uploads(context.files).abort(self.target, self.upload.id)  # first, so that nobody completes it later
        _remove(self, context.files)

    def folders(self) -> tuple[str, ...]:
        return ()

    conflict = "another object stands there, of other content"
    """Error text for a conflict."""

    @property
    def lost(self) -> str:
        """Error text for a missing upload and object."""
        return "the store has no such object, and has expired or aborted its upload"


FileStep = MoveStep | UploadStep
"""A step that publishes a file."""


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file of a `FolderStep`.

    :param name: its name within the folder.
    :param identity: its identity when the slot was decided.
    """

    name: str
    identity: FileIdentity
    checksum: str
    rows: int


@record("folder_step")
@dataclass(frozen=True, slots=True)
class FolderStep:
    """The step that gives the folder of a unit's staged files its published name by one rename: a listing shows all of them, or
    none.

    Unlike a link, a rename leaves nothing in staging. So the folder must have had a single writer, which finished before its
    result was accepted, and it must contain the unit's files and nothing else: everything in it is published. File systems rename
    in one transaction, so after a crash it has one name or the other.

    :param source: the staged folder, relative to the target root.
    :param target: the published folder, relative to the target root. Nobody else creates a folder of that name, which contains
        the token.
    :param unit: the work unit it belongs to.
    """

    source: str
    target: str
    unit: str
    files: tuple[FolderFile, ...]

    @property
    def moves(self) -> tuple[MoveStep, ...]:
        """Its files, each as a step of its own."""
        return tuple(
            MoveStep(f"{self.source}/{f.name}", f"{self.target}/{f.name}", self.unit, f.identity, f.checksum, f.rows)
            for f in self.files
        )

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may move it between the two checks
            if context.files.identity(self.target) is not None:
                return self._published(context)
            status = self._staged(context.files)
            if status is not StepStatus.LOST:
                return status
        return StepStatus.LOST

    def _published(self, context: StepContext) -> StepStatus:
        """Return the status of the folder at the target, from each of its files."""
        found = {move.verify(context) for move in self.moves}
        if found == {StepStatus.DONE}:
            return StepStatus.DONE
        part = StepStatus.DONE in found and StepStatus.CONFLICT not in found
        return StepStatus.LOST if part else StepStatus.CONFLICT

    def _staged(self, files: Files) -> StepStatus:
        """Return whether the staged folder contains the unchanged files and nothing else."""
        found = files.identities(self.source)
        if found == {file.name: file.identity for file in self.files}:
            return StepStatus.TODO
        for move, file in zip(self.moves, self.files, strict=True):
            staged = found.get(file.name)
            if staged is None or not _same(move, move.source, staged, files):
                return StepStatus.LOST
        return StepStatus.TODO if len(found) == len(self.files) else StepStatus.CONFLICT

    def execute(self, context: StepContext) -> None:
        """Rename the folder.

        :raises FileExistsError: something exists at its target, or more than its files would be moved.
        :raises FileNotFoundError: its source is gone or changed.
        """
        files = context.files
        staged = self._staged(files)
        if staged is StepStatus.LOST:
            raise FileNotFoundError(errno.ENOENT, "its files are not there as they were written", self.source)
        if staged is StepStatus.CONFLICT:
            raise FileExistsError(errno.EEXIST, "other files are in it, which would be published, too", self.source)
        _give_name(files, files.move_folder, self.source, self.target)

    def undo(self, context: StepContext) -> None:
        # Staging is removed first. A late mover may have renamed the remaining part of the folder, but not once staging is gone:
        # so nothing more can appear at the target.
        for move in self.moves:
            move.undo(context)
        context.files.remove_folder(self.target)

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.target),)

    @property
    def conflict(self) -> str:
        """Error text for a conflict."""
        return f"something else stands there, or is among its files in its staged folder {self.source!r}"

    @property
    def lost(self) -> str:
        """Error text for a missing source and result."""
        return f"its files are as they were written neither there nor in its staged folder {self.source!r}"


PublishStep = FileStep | FolderStep
"""A step that publishes files. It checks its source and never overwrites, so it may be executed without verifying first."""


def files_of(step: Step) -> tuple[FileStep, ...]:
    """Return the files that a step publishes, each as a step of its own; none if it publishes no files."""
    if isinstance(step, FolderStep):
        return step.moves
    return (step,) if isinstance(step, FileStep) else ()


def batches(steps: Iterable[AnyStep], files: int) -> Iterator[tuple[AnyStep, ...]]:
    """Yield steps in batches that publish about this many files, which bounds their size in memory and in a record."""
    some: list[AnyStep] = []
    count = 0
    for step in steps:
        some.append(step)
        count += len(step.files) if isinstance(step, FolderStep) else 1
        if count >= files:
            yield tuple(some)
            some, count = [], 0
    if some:
        yield tuple(some)


def publish_folder(staged: Sequence[StagedFile], target: str, unit: str, files: Files) -> tuple[PublishStep, ...]:
    """Return the step that publishes a unit's staged files with their folder; or one step per file, with the same published
    names, if the folder contains anything else.

    :param target: the folder that they were staged for.
    :raises StepLostError: as `publish_file`.
    """
    source = posixpath.dirname(staged[0].path)
    found = files.identities(source)
    named = {f.path.rpartition("/")[2]: f for f in staged if posixpath.dirname(f.path) == source}
    whole = len(named) == len(staged) and {n: (i.size, i.stamp) for n, i in found.items()} == {
        n: (f.size, f.stamp) for n, f in named.items()
    }
    if whole:
        inside = tuple(FolderFile(n, found[n], f.checksum, f.rows) for n, f in named.items())
        return (FolderStep(source, target, unit, inside),)
    return tuple(publish_file(f, f"{target}/{posixpath.basename(f.path)}", unit, files) for f in staged)


def publish_file(staged: StagedFile, target: str, unit: str, files: Files) -> FileStep:
    """Return the step that publishes a staged file.

    :param target: the path that it was staged for.
    :param unit: the work unit that it belongs to.
    :raises StepLostError: it is gone, or was changed since it was written.
    """
    found = staged_identity(staged, files)
    if found is None:
        raise StepLostError(
            operation="publish",
            subject=f"staged file {staged.path!r} of unit {unit!r}",
            cause=f"it is gone, or was changed since it was written as {staged}",
            hint="Clear the extract task: it reads the unit again.",
        )
    if staged.upload is None:
        return MoveStep(staged.path, target, unit, found, staged.checksum, staged.rows)
    return UploadStep(target, unit, staged.upload, found, staged.checksum, staged.rows)


def staged_identity(staged: StagedFile, files: Files) -> FileIdentity | None:
    """Return the identity of a staged file, if it exists as it was written, or was published since."""
    if staged.upload is not None and _uploads(files).stands(staged.path, staged.upload):
        return FileIdentity(0, staged.size, staged.stamp)
    found = files.identity(staged.path)
    if found is None or found.size != staged.size or found.stamp != staged.stamp:
        return None
    return found


def file_error(step: PublishStep, status: StepStatus, urn: str) -> StepConflictError | StepLostError:
    """Return the error for a file, or a folder of files, that can't be published."""
    subject = f"{'folder' if isinstance(step, FolderStep) else 'file'} {step.target!r} of dataset {urn!r}"
    if status is StepStatus.CONFLICT:
        return StepConflictError(
            operation="publish",
            subject=subject,
            cause=step.conflict,
            hint="Move it away and clear execute_commit_steps, or abandon the slot.",
        )
    return StepLostError(
        operation="publish",
        subject=subject,
        cause=step.lost,
        hint="Restore one of them, or abandon the slot: its range is then extracted anew.",
    )


def _same(step: FileStep, path: str, found: FileIdentity, files: Files) -> bool:
    """Return whether the file found at a path is the one that a step publishes: by its identity, else by its checksum."""
    if found == step.identity:
        return True
    return found.size == step.size and files.checksum(path) == step.checksum


def _give_name(files: Files, give: Callable[[str, str], None], source: str, target: str) -> None:
    """Give a staged file or folder its published name.

    :param give: the call that does it.
    """
    folder = posixpath.dirname(target)
    for left in reversed(range(_TRIES)):
        try:
            give(source, target)
            return
        except FileNotFoundError:  # it is the first in its folder, or its slot has ended and staging was removed
            staged = files.identity(source) is not None
            if not staged and left < _TRIES - 1:
                files.remove_folder(folder)  # created here, perhaps again after its unit was removed
            if not staged or left == 0:
                raise
            files.make_folder(folder)


def _remove(step: FileStep, files: Files) -> None:
    found = files.identity(step.target)
    if found is not None and step.is_ours(found, files):
        files.unlink(step.target)


def _uploads(files: Files) -> Uploads:
    if files.uploads is None:
        raise ConfigurationError(
            operation="publish",
            subject=f"an upload below {files.root}",
            cause="this place keeps no uploads",
            hint="The target was moved from an object store to a file system with a slot unfinished: abandon the slot.",
        )
    return files.uploads


@record("high_watermark_step")
@dataclass(frozen=True)
class HighWatermarkStep:
    """The last step of a sequence: hands over the watermark. Writing the outcome DONE *is* executing it, in one atomic record
    with the ranges that the decision covers, so it needs no code of its own.

    :param watermark: the dataset's watermark once the slot is done; `None` for a dataset without positions.
    """

    watermark: Watermark | None


Step = CommitStep | HighWatermarkStep
"""A step of a commit sequence: a publishing action, or the final hand-over of the watermark."""
