"""The steps of mirrors that give files their places: new ones, and ones that replace what is expected there.

Each is an act that is possible once only (rule 14): it consumes the staged name, or the upload, which only its slot has. On disk
that is a rename; a store that can't rename without overwriting has links instead, and the staged names go before the outcome. The
fence consumes the same. There is no undo: what was placed stays, and the next plan looks at it.
"""

from __future__ import annotations

import errno
import posixpath
from contextlib import suppress
from dataclasses import dataclass

from airflow_gobblin.errors import Remedy, StepLostError
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import StagedFile, Upload
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.steps.publishing import staged_identity, uploads_of
from airflow_gobblin.storage.files.base import FileIdentity, Files

__all__ = ["ForgetStep", "PlaceStep", "PlaceUploadStep", "ReplaceStep", "place_file"]


def place_file(
    staged: StagedFile, target: str, unit: str, files: Files, replaces: FileIdentity | None = None
) -> tuple[CommitStep, ...]:
    """Return the steps that give a staged file its place. The folder that it is in is made by an earlier phase.

    :param target: its path below the target root.
    :param unit: the work unit that it belongs to.
    :param replaces: the file that is expected there, to be replaced; `None`: nothing is replaced.
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
    if staged.upload is not None:
        return (PlaceUploadStep(target, unit, staged.upload, found, staged.checksum, replaces),)
    if replaces is not None:
        return (ReplaceStep(staged.path, target, unit, found, staged.checksum, replaces),)
    if files.renames_new(posixpath.dirname(staged.path)):
        return (PlaceStep(staged.path, target, unit, found, staged.checksum),)
    return (PlaceStep(staged.path, target, unit, found, staged.checksum, linked=True), ForgetStep(staged.path))


@record("place_step")
@dataclass(frozen=True, slots=True)
class PlaceStep:
    """The step that gives a staged file its place, where nothing is, and never overwrites.

    :param source: the staged file, relative to the target root.
    :param target: its place, relative to the target root.
    :param unit: the work unit it belongs to.
    :param identity: the identity of the staged file when the slot was decided.
    :param checksum: as of a `TargetFile`.
    :param linked: whether it gets a second name, as the storage can't rename without overwriting. A `ForgetStep` takes the
        staged name away; until then a file that somebody removes may be placed again.
    """

    source: str
    target: str
    unit: str
    identity: FileIdentity
    checksum: str = ""
    linked: bool = False
    phase = Phase.PUBLISH

    @property
    def file(self) -> TargetFile:
        """The file that it places."""
        return TargetFile(self.target, self.unit, self.identity, self.checksum, 0)

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may place it between the two looks
            found = context.files.identity(self.target)
            if found is not None:
                return StepStatus.DONE if self.file.is_same(found, context.files) else StepStatus.CONFLICT
            if _is_staged(self.source, self.identity, context.files):
                return StepStatus.TODO
        return StepStatus.LOST

    def execute(self, context: StepContext) -> None:
        """Give the file its place.

        :raises FileExistsError: something exists there.
        :raises FileNotFoundError: its source is gone or changed, or the folder of its place is gone.
        """
        files = context.files
        _expect_staged(self.source, self.identity, files)
        (files.link if self.linked else files.rename_new)(self.source, self.target)

    def fence(self, context: StepContext) -> FenceResult:
        return _fence(self.source, self.file, context.files)

    def undo(self, context: StepContext) -> None:
        """It stays where it was placed: the next plan finds it there."""

    def files(self) -> tuple[TargetFile, ...]:
        return (self.file,)

    def folders(self) -> tuple[str, ...]:
        return _both(self.source, self.target)

    @property
    def subject(self) -> str:
        return f"file {self.target!r}"

    conflict = "another file stands there"

    @property
    def lost(self) -> str:
        return f"neither it nor its staged file {self.source!r} is there as it was written"


@record("replace_step")
@dataclass(frozen=True, slots=True)
class ReplaceStep:
    """The step that gives a staged file the place of another file, if that is the one that the plan saw there, or is gone.

    What somebody else writes there between the look and the rename is lost.

    :param source: the staged file, relative to the target root.
    :param target: its place, relative to the target root.
    :param unit: the work unit it belongs to.
    :param identity: the identity of the staged file when the slot was decided.
    :param checksum: as of a `TargetFile`.
    :param replaces: the identity of the file that it replaces.
    """

    source: str
    target: str
    unit: str
    identity: FileIdentity
    checksum: str
    replaces: FileIdentity
    phase = Phase.PUBLISH

    @property
    def file(self) -> TargetFile:
        """The file that it places."""
        return TargetFile(self.target, self.unit, self.identity, self.checksum, 0)

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may place it between the two looks
            found = context.files.identity(self.target)
            if found is not None and found != self.replaces:
                return StepStatus.DONE if self.file.is_same(found, context.files) else StepStatus.CONFLICT
            if _is_staged(self.source, self.identity, context.files):
                return StepStatus.TODO
        return StepStatus.LOST

    def execute(self, context: StepContext) -> None:
        """Give the file its place.

        :raises FileExistsError: another file exists there than the one to be replaced.
        :raises FileNotFoundError: its source is gone or changed, or the folder of its place is gone.
        """
        files = context.files
        _expect_staged(self.source, self.identity, files)
        found = files.identity(self.target)  # last, as nothing is looked at any more before it is replaced
        if found is not None and found != self.replaces:
            raise FileExistsError(errno.EEXIST, "it is not the file that is to be replaced", self.target)
        files.replace(self.source, self.target)

    def fence(self, context: StepContext) -> FenceResult:
        return _fence(self.source, self.file, context.files)

    def undo(self, context: StepContext) -> None:
        """It stays where it was placed: the next plan finds it there."""

    def files(self) -> tuple[TargetFile, ...]:
        return (self.file,)

    def folders(self) -> tuple[str, ...]:
        return _both(self.source, self.target)

    @property
    def subject(self) -> str:
        return f"file {self.target!r}"

    conflict = "another file stands there than the one that is to be replaced"

    @property
    def lost(self) -> str:
        return f"neither it nor its staged file {self.source!r} is there as it was written"


@record("forget_step")
@dataclass(frozen=True, slots=True)
class ForgetStep:
    """The step that takes the staged name of a linked file away, so that nobody links it again once its slot is done.

    :param source: the staged name, relative to the target root.
    """

    source: str
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "it can't be removed"

    @property
    def subject(self) -> str:
        return f"staged name {self.source!r}"

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.DONE if context.files.identity(self.source) is None else StepStatus.TODO

    def execute(self, context: StepContext) -> None:
        context.files.unlink(self.source)

    def undo(self, context: StepContext) -> None:
        """It goes with its staging."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.source),)


@record("place_upload_step")
@dataclass(frozen=True, slots=True)
class PlaceUploadStep:
    """The step that completes an upload, where no object is, or in place of the one that the plan saw there.

    :param target: the object's path, relative to the target root.
    :param unit: the work unit it belongs to.
    :param upload: the upload with its parts.
    :param identity: the future identity of the object.
    :param checksum: as of a `TargetFile`.
    :param replaces: the identity of the object that it replaces, if it replaces one.
    """

    target: str
    unit: str
    upload: Upload
    identity: FileIdentity
    checksum: str = ""
    replaces: FileIdentity | None = None
    phase = Phase.PUBLISH

    @property
    def file(self) -> TargetFile:
        """The object that it publishes."""
        return TargetFile(self.target, self.unit, self.identity, self.checksum, 0)

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may complete it between the two looks
            found = context.files.identity(self.target)
            if found is not None and self._is_there(found, context.files):
                return StepStatus.DONE
            if found is not None and found != self.replaces:
                return StepStatus.CONFLICT
            if uploads_of(context.files).stands(self.target, self.upload):
                return StepStatus.TODO
        return StepStatus.LOST

    def _is_there(self, found: FileIdentity, files: Files) -> bool:
        """Return whether an object is the published one; the one to be replaced isn't read to find out."""
        return found == self.identity or (found != self.replaces and self.file.is_same(found, files))

    def execute(self, context: StepContext) -> None:
        """Complete the upload.

        :raises FileExistsError: another object exists at its target.
        :raises FileNotFoundError: its upload is gone.
        """
        uploads = uploads_of(context.files)
        found = None if self.replaces is None else context.files.identity(self.target)
        if self.replaces is None or found is None:
            uploads.complete(self.target, self.upload)
        elif found == self.replaces:
            uploads.replace(self.target, self.upload, self.replaces.stamp)
            if context.files.identity(self.target) == self.replaces != self.identity:
                # versitygw answers so where the upload is gone
                raise FileNotFoundError(errno.ENOENT, "the store said that it was replaced, and it wasn't", self.target)
        else:  # a store may ignore the condition
            raise FileExistsError(errno.EEXIST, "it is not the object that is to be replaced", self.target)

    def fence(self, context: StepContext) -> FenceResult:
        uploads = uploads_of(context.files)
        uploads.abort(self.target, self.upload.id)
        if uploads.stands(self.target, self.upload):
            raise OSError(errno.EBUSY, "its upload is still open after it was aborted", self.target)
        found = context.files.identity(self.target)
        return FenceResult.DONE if found is not None and self._is_there(found, context.files) else FenceResult.HOLDS

    def undo(self, context: StepContext) -> None:
        """It stays where it was placed: the next plan finds it there."""

    def files(self) -> tuple[TargetFile, ...]:
        return (self.file,)

    def folders(self) -> tuple[str, ...]:
        return ()

    @property
    def subject(self) -> str:
        return f"file {self.target!r}"

    @property
    def conflict(self) -> str:
        return "another object stands there" + (" than the one that is to be replaced" if self.replaces else "")

    lost = "the store has no such object, and has expired or aborted its upload"


def _is_staged(source: str, identity: FileIdentity, files: Files) -> bool:
    return files.identity(source) == identity


def _expect_staged(source: str, identity: FileIdentity, files: Files) -> None:
    if not _is_staged(source, identity, files):
        raise FileNotFoundError(errno.ENOENT, "it is not there as it was written", source)


def _fence(source: str, file: TargetFile, files: Files) -> FenceResult:
    """Take the staged name away: to rename its folder would not shut out a process that has the folder open."""
    with suppress(FileNotFoundError):
        files.unlink(source)
    found = files.identity(file.path)
    return FenceResult.DONE if found is not None and file.is_same(found, files) else FenceResult.HOLDS


def _both(source: str, target: str) -> tuple[str, ...]:
    """Return the folders that a rename, or a fence, changes."""
    return (posixpath.dirname(target) or ".", posixpath.dirname(source))
