"""The steps that publish files: by a link, by completing an upload, or a whole folder by a rename. None ever overwrites."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_gobblin.errors import ConfigurationError, Remedy, StepLostError
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import StagedFile, Upload
from airflow_gobblin.steps.base import CommitStep, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files.base import Copies, FileIdentity, Files, Uploads

_TRIES = 5


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
    phase = Phase.PUBLISH
    fence = None

    @property
    def file(self) -> TargetFile:
        """The file that it publishes."""
        return TargetFile(self.target, self.unit, self.identity, self.checksum, self.rows)

    def verify(self, context: StepContext) -> StepStatus:
        return _found(self.file, context.files) or self._staged(context.files)

    def _staged(self, files: Files) -> StepStatus:
        staged = files.identity(self.source)
        ours = staged == self.identity or (staged is not None and self.file.is_same(staged, files, self.source))
        return StepStatus.TODO if ours else StepStatus.LOST

    def execute(self, context: StepContext) -> None:
        """Give the file its published name.

        :raises FileExistsError: something exists at its target.
        :raises FileNotFoundError: its source is gone or changed.
        """
        files = context.files
        if self._staged(files) is StepStatus.LOST:
            raise FileNotFoundError(errno.ENOENT, "it is not there as it was written", self.source)
        _give_name(files, files.link, self.source, self.target)

    def undo(self, context: StepContext) -> None:
        _remove(self.file, context.files)

    def files(self) -> tuple[TargetFile, ...]:
        return (self.file,)

    def folders(self) -> tuple[str, ...]:
        return (self.target.rpartition("/")[0],)

    @property
    def subject(self) -> str:
        return f"file {self.target!r}"

    conflict = "another file is there, of other content"

    @property
    def lost(self) -> str:
        return f"neither it nor its staged file {self.source!r} is there as it was written"


class OfOneObject:
    """The common part of steps that publish one object of a store: no folder needs to be made durable for that."""

    __slots__ = ()
    target: str
    unit: str
    identity: FileIdentity
    checksum: str
    rows: int

    @property
    def file(self) -> TargetFile:
        """The object that it publishes."""
        return TargetFile(self.target, self.unit, self.identity, self.checksum, self.rows)

    def files(self) -> tuple[TargetFile, ...]:
        return (self.file,)

    def folders(self) -> tuple[str, ...]:
        return ()

    @property
    def subject(self) -> str:
        return f"file {self.target!r}"


@record("upload_step")
@dataclass(frozen=True, slots=True)
class UploadStep(OfOneObject):
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
    phase = Phase.PUBLISH
    fence = None

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may complete it between the two checks
            published = _found(self.file, context.files)
            if published is not None:
                return published
            if uploads_of(context.files).can_complete(self.target, self.upload):
                return StepStatus.TODO
        return StepStatus.LOST

    def execute(self, context: StepContext) -> None:
        """Complete the upload.

        :raises FileExistsError: something exists at its target.
        :raises FileNotFoundError: its upload is gone.
        """
        uploads_of(context.files).complete(self.target, self.upload)

    def undo(self, context: StepContext) -> None:
        uploads_of(context.files).abort(self.target, self.upload.id)  # first, so that nobody completes it later
        _remove(self.file, context.files)

    conflict = "another object is there, of other content"
    lost = "the store has no such object, and has expired or aborted its upload"


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
    content: tuple[FolderFile, ...]
    phase = Phase.PUBLISH
    fence = None

    def files(self) -> tuple[TargetFile, ...]:
        return tuple(
            TargetFile(f"{self.target}/{f.name}", self.unit, f.identity, f.checksum, f.rows) for f in self.content
        )

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may move it between the two checks
            if context.files.identity(self.target) is not None:
                return self._published(context.files)
            status = self._staged(context.files)
            if status is not StepStatus.LOST:
                return status
        return StepStatus.LOST

    def _published(self, files: Files) -> StepStatus:
        """Return the status of the folder at the target, from each of its files."""
        found = {_found(file, files) for file in self.files()}
        if found == {StepStatus.DONE}:
            return StepStatus.DONE
        part = StepStatus.DONE in found and StepStatus.CONFLICT not in found
        return StepStatus.LOST if part else StepStatus.CONFLICT

    def _staged(self, files: Files) -> StepStatus:
        """Return whether the staged folder contains the unchanged files and nothing else."""
        found = files.identities(self.source)
        if found == {inside.name: inside.identity for inside in self.content}:
            return StepStatus.TODO
        for file, inside in zip(self.files(), self.content, strict=True):
            staged = found.get(inside.name)
            if staged is None or not file.is_same(staged, files, f"{self.source}/{inside.name}"):
                return StepStatus.LOST
        return StepStatus.TODO if len(found) == len(self.content) else StepStatus.CONFLICT

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
        for file in self.files():
            _remove(file, context.files)
        context.files.remove_folder(self.target)

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.target),)

    @property
    def subject(self) -> str:
        return f"folder {self.target!r}"

    @property
    def conflict(self) -> str:
        return f"something else is there, or is among its files in its staged folder {self.source!r}"

    @property
    def lost(self) -> str:
        return f"its files are as they were written neither there nor in its staged folder {self.source!r}"


def publish_folder(staged: Sequence[StagedFile], target: str, unit: str, files: Files) -> tuple[CommitStep, ...]:
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


def publish_file(staged: StagedFile, target: str, unit: str, files: Files) -> CommitStep:
    """Return the step that publishes a staged file.

    :param target: the path that it was staged for.
    :param unit: the work unit that it belongs to.
    :raises StepLostError: it is gone, or was changed since it was written.
    """
    found = identity_to_publish(staged, unit, files)
    if staged.upload is None:
        return MoveStep(staged.path, target, unit, found, staged.checksum, staged.rows)
    return UploadStep(target, unit, staged.upload, found, staged.checksum, staged.rows)


def identity_to_publish(staged: StagedFile, unit: str, files: Files) -> FileIdentity:
    """Return the identity of a staged file that is to be published.

    :raises StepLostError: it is gone, or was changed since it was written.
    """
    found = staged_identity(staged, files)
    if found is None:
        raise StepLostError(
            operation="publish",
            subject=f"staged file {staged.path!r} of unit {unit!r}",
            cause=f"it is gone, or was changed since it was written as {staged}",
            remedy=Remedy.EXTRACT,
        )
    return found


def staged_identity(staged: StagedFile, files: Files) -> FileIdentity | None:
    """Return the identity of a staged file, if it exists as it was written, or was published since."""
    if staged.segment is not None and files.identity(staged.segment.path) is not None:
        return FileIdentity(0, staged.size, staged.stamp)
    if staged.upload is not None and uploads_of(files).can_complete(staged.path, staged.upload):
        return FileIdentity(0, staged.size, staged.stamp)
    found = files.identity(staged.path)
    if found is None or found.size != staged.size or found.stamp != staged.stamp:
        return None
    return found


def _found(file: TargetFile, files: Files) -> StepStatus | None:
    """Return DONE or CONFLICT for whatever exists at a file's path; `None` if nothing does."""
    published = files.identity(file.path)
    if published is None:
        return None
    return StepStatus.DONE if file.is_same(published, files) else StepStatus.CONFLICT


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


def _remove(file: TargetFile, files: Files) -> None:
    if _found(file, files) is StepStatus.DONE:
        files.unlink(file.path)


def uploads_of(files: Files) -> Uploads:
    """Return the uploads of the target.

    :raises ConfigurationError: it keeps none.
    """
    if files.uploads is None:
        raise ConfigurationError(
            operation="publish",
            subject=f"an upload below {files.root}",
            cause="this place keeps no uploads",
            hint="The target was moved from an object store to a file system with a slot unfinished: abandon the slot.",
        )
    return files.uploads


def copies_of(files: Files) -> Copies:
    """Return the conditional copies of the target.

    :raises ConfigurationError: it has none.
    """
    if files.copies is None:
        raise ConfigurationError(
            operation="publish",
            subject=f"a copy of an object below {files.root}",
            cause="this place makes no copies under a condition",
            hint="The target was moved from an object store to another place with a slot unfinished: abandon the slot.",
        )
    return files.copies
