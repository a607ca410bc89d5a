"""The mirror steps that give files their places: new files, files that replace what is expected there, and whole new folders.

Each is an act that is possible only once (rule 14): it consumes the staged name, or the upload, which only its slot has. On disk
that is a rename; a store that can't rename without overwriting has links or copies instead, and the staged names go before the
outcome. The fence consumes the same. There is no undo: placed files stay, and the next plan looks at them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Segment, StagedFile, Upload
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.steps.deleting import CloseTrashStep
from airflow_gobblin.steps.publishing import OfOneObject, copies_of, identity_to_publish, staged_identity, uploads_of
from airflow_gobblin.steps.trash import CLOSING, FENCED, close_trash, discard, put_back, put_new, take_away
from airflow_gobblin.storage.files.base import FileIdentity, Files

__all__ = [
    "ForgetStep",
    "PlaceCopyStep",
    "PlaceFolderStep",
    "PlaceStep",
    "PlaceUploadStep",
    "PlacedFile",
    "PutStep",
    "place_file",
    "place_folder",
]


def place_file(
    staged: StagedFile,
    target: str,
    unit: str,
    files: Files,
    replaces: FileIdentity | None = None,
    *,
    trash: str = "",
    backup: str = "",
) -> tuple[CommitStep, ...]:
    """Return the steps that give a staged file its place. An earlier phase makes its folder.

    :param target: its path below the target root.
    :param unit: the work unit that it belongs to.
    :param replaces: the file that is expected there, to be replaced; `None`: nothing is replaced.
    :param trash: a trash of its own, if the file that it replaces is kept.
    :param backup: where that file is kept.
    :raises StepLostError: it is gone, or was changed since it was written.
    """
    found = identity_to_publish(staged, unit, files)
    if staged.segment is not None:
        return (PutStep(staged.segment, target, unit, found, staged.checksum),)
    if staged.upload is not None:
        return (PlaceUploadStep(target, unit, staged.upload, found, staged.checksum, replaces),)
    if files.copies is not None:
        place = PlaceCopyStep(staged.path, target, unit, found, staged.checksum, replaces, staged.mark)
        return (place, ForgetStep(staged.path))
    linked = (replaces is None or bool(trash)) and not files.renames_new(posixpath.dirname(staged.path))
    steps: list[CommitStep] = [
        PlaceStep(staged.path, target, unit, found, staged.checksum, replaces, linked, trash, backup)
    ]
    if linked:
        steps.append(ForgetStep(staged.path))
    if trash:
        assert replaces is not None
        steps.append(CloseTrashStep(target, replaces, trash, backup))
    return tuple(steps)


@record("place_step")
@dataclass(frozen=True, slots=True)
class PlaceStep:
    """The step that gives a staged file its place: where nothing exists, without ever overwriting, or in place of another file if
    that is the one that the plan saw there, or is gone.

    Data that somebody else writes to a file between the look at it and the rename over it is lost.

    :param source: the staged file, relative to the target root.
    :param target: its place, relative to the target root.
    :param unit: the work unit it belongs to.
    :param identity: the identity of the staged file when the slot was decided.
    :param checksum: as in a `TargetFile`.
    :param replaces: the identity of the file that it replaces, if it replaces one.
    :param linked: whether the file gets a second name, because the storage can't rename without overwriting. A `ForgetStep` takes
        the staged name away; until then a file that somebody removes may be placed again.
    :param trash: a folder that was made for it alone before the decision. The file that it replaces is taken there, and nothing
        is overwritten; a `CloseTrashStep` keeps it. Empty: the file is replaced at once.
    :param backup: where the file that it replaces is kept, relative to the target root, if there is a trash.
    """

    source: str
    target: str
    unit: str
    identity: FileIdentity
    checksum: str = ""
    replaces: FileIdentity | None = None
    linked: bool = False
    trash: str = ""
    backup: str = ""
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
            if _is_staged(self.source, self.identity, context.files) or self._taken_by_mistake(context.files):
                return StepStatus.TODO
        return StepStatus.LOST

    def _taken_by_mistake(self, files: Files) -> str:
        """Return where the file itself is in the trash: somebody was about to take the former one away when it was placed."""
        for folder in (self.trash, self.trash + CLOSING, self.trash + FENCED) if self.trash else ():
            for name, found in files.identities(folder).items():
                if found == self.identity:
                    return f"{folder}/{name}"
        return ""

    def execute(self, context: StepContext) -> None:
        """Give the file its place.

        :raises FileExistsError: something exists there that isn't to be replaced.
        :raises FileNotFoundError: its source is gone or changed, or the folder of its place or its trash is gone.
        """
        files = context.files
        if mistaken := self._taken_by_mistake(files):
            put_back(files, mistaken, self.target)
        if not _is_staged(self.source, self.identity, files):
            raise FileNotFoundError(errno.ENOENT, "it is not there as it was written", self.source)
        if self.replaces is not None:
            found = files.identity(self.target)  # last: nothing more is looked at before it is replaced
            if found is not None and found != self.replaces:
                raise FileExistsError(errno.EEXIST, "it is not the file that is to be replaced", self.target)
            if not self.trash:
                files.replace(self.source, self.target)
                return
            if found is not None:
                take_away(files, self.target, self.trash, self.replaces)
        (files.link if self.linked else files.rename_new)(self.source, self.target)

    def fence(self, context: StepContext) -> FenceResult:
        """Take the staged name away: renaming its folder wouldn't shut out a process that has the folder open."""
        files = context.files
        with suppress(FileNotFoundError):
            files.unlink(self.source)
        if self.trash:
            assert self.replaces is not None
            close_trash(
                files, self.trash, self.trash + FENCED, self.target, self.replaces, partial(self._give_up, files)
            )
        found = files.identity(self.target)
        return FenceResult.DONE if found is not None and self.file.is_same(found, files) else FenceResult.HOLDS

    def _give_up(self, files: Files, taken: str) -> None:
        """Put the former file back, or keep it where another one has its place."""
        if not put_new(files, taken, self.target):
            discard(files, taken, self.backup)

    def undo(self, context: StepContext) -> None:
        """Leave it where it was placed: the next plan finds it there."""

    def files(self) -> tuple[TargetFile, ...]:
        return (self.file,)

    def folders(self) -> tuple[str, ...]:
        kept = (posixpath.dirname(self.trash), posixpath.dirname(self.backup)) if self.trash else ()
        return (posixpath.dirname(self.target) or ".", posixpath.dirname(self.source), *kept)

    @property
    def subject(self) -> str:
        return f"file {self.target!r}"

    @property
    def conflict(self) -> str:
        return "another file is there" + (" than the one that is to be replaced" if self.replaces else "")

    @property
    def lost(self) -> str:
        return f"neither it nor its staged file {self.source!r} is there as it was written"


def place_folder(source: str, target: str, staged: Mapping[str, StagedFile], files: Files) -> PlaceFolderStep | None:
    """Return the step that gives a staged folder its place; `None` if one rename can't do that: the folder doesn't hold exactly
    these files, something is in its place, or the storage can't rename without overwriting.

    :param source: the staged folder.
    :param target: its path below the target root. An earlier phase makes the folder above it.
    :param staged: its files, by their paths in it.
    """
    if not staged or files.identity(target) is not None or not files.renames_new(posixpath.dirname(source)):
        return None
    content = []
    for path, file in staged.items():
        found = None if file.path != f"{source}/{path}" else staged_identity(file, files)
        if found is None:
            return None
        content.append(PlacedFile(path, found, file.checksum))
    step = PlaceFolderStep(source, target, tuple(content))
    return step if step.is_staged(files) else None


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file of a `PlaceFolderStep`.

    :param path: relative to the folder.
    :param identity: the identity of the staged file when the slot was decided.
    :param checksum: as in a `TargetFile`.
    """

    path: str
    identity: FileIdentity
    checksum: str = ""


@record("place_folder_step")
@dataclass(frozen=True, slots=True)
class PlaceFolderStep:
    """The step that gives a staged folder its place, with all files in it, by one rename that never overwrites.

    The folder was written by one run of a Spark driver, each file by one try, which is over: nobody writes there any more.

    Empty folders in its place give way if it has each of them itself: a process of an earlier slot may make them late. None with
    something in it is removed, and each that it places has something in it.

    :param source: the staged folder, relative to the target root.
    :param target: its place, relative to the target root.
    :param content: the files in it; it holds nothing else.
    """

    source: str
    target: str
    content: tuple[PlacedFile, ...]
    phase = Phase.PUBLISH
    publishes = True

    def verify(self, context: StepContext) -> StepStatus:
        files = context.files
        for _ in range(2):  # somebody may place it between the two looks
            if files.identity(self.target) is not None and not self._gives_way(files):
                return StepStatus.DONE if self._is_placed(files) else StepStatus.CONFLICT
            if self.is_staged(files):
                return StepStatus.TODO
        return StepStatus.LOST if files.identity(self._fenced) is None else StepStatus.FENCED

    @property
    def _fenced(self) -> str:
        """The name that a fence gives to the staged folder: no file set has it, and it is short, however long the folder's is."""
        return posixpath.join(
            posixpath.dirname(self.source), f"{FENCED}-{hashlib.sha256(os.fsencode(self.source)).hexdigest()[:16]}"
        )

    def is_staged(self, files: Files) -> bool:
        """Return whether the staged folder holds its files, as they were written, and nothing else."""
        for folder, expected in self._folders().items():
            found = files.identities(folder)
            if found.keys() != expected.keys() or any(one not in (None, found[name]) for name, one in expected.items()):
                return False
        return True

    def _folders(self) -> Mapping[str, Mapping[str, FileIdentity | None]]:
        """Return what is in each staged folder, by name; `None` for a folder."""
        inside: dict[str, dict[str, FileIdentity | None]] = {self.source: {}}
        for file in self.content:
            path = f"{self.source}/{file.path}"
            what: FileIdentity | None = file.identity
            while True:
                folder, _, name = path.rpartition("/")
                known = folder in inside
                inside.setdefault(folder, {})[name] = what
                if known:
                    break
                path, what = folder, None
        return inside

    def _is_placed(self, files: Files) -> bool:
        """Return whether the folder in its place is the staged one: none of its files gets there any other way. Others may have
        changed, added and removed some since.
        """
        return any(files.identity(f"{self.target}/{file.path}") == file.identity for file in self.content)

    def _targets(self) -> Mapping[str, Mapping[str, FileIdentity | None]]:
        """Return what is in each folder once it is placed, the outermost first."""
        return {self.target + path[len(self.source) :]: inside for path, inside in sorted(self._folders().items())}

    def _gives_way(self, files: Files) -> bool:
        """Return whether its place holds nothing but empty folders that are among those placed."""
        for path, inside in self._targets().items():
            found = files.identities(path)
            if any(inside.get(name, self) is not None for name in found):
                return False
            if not found and files.folder(path) is None and files.identity(path) is not None:
                return False  # it isn't a folder
        return True

    def execute(self, context: StepContext) -> None:
        """Give the folder its place.

        :raises FileExistsError: something exists there that doesn't give way.
        :raises FileNotFoundError: its source is gone or changed, or the folder above its place is gone.
        """
        files = context.files
        if not self.is_staged(files):
            raise FileNotFoundError(errno.ENOENT, "it is not there as it was written", self.source)
        try:
            files.rename_new(self.source, self.target)
        except FileExistsError:
            if not self._gives_way(files):
                raise
            for path in reversed([*self._targets()]):
                files.remove_folder(path)
            files.rename_new(self.source, self.target)

    def fence(self, context: StepContext) -> FenceResult:
        """Take the staged name away by one rename: if the folder were removed file by file, the rest could still be placed."""
        files = context.files
        with suppress(FileNotFoundError, FileExistsError):
            files.move_folder(self.source, self._fenced)
        return FenceResult.DONE if self._is_placed(files) else FenceResult.HOLDS

    def undo(self, context: StepContext) -> None:
        """Leave it where it was placed: the next plan finds it there."""

    @property
    def entries(self) -> int:
        """The number of its files."""
        return len(self.content)

    def files(self) -> tuple[TargetFile, ...]:
        return tuple(TargetFile(f"{self.target}/{of.path}", "", of.identity, of.checksum, 0) for of in self.content)

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.target) or ".", posixpath.dirname(self.source))

    @property
    def subject(self) -> str:
        return f"folder {self.target!r}"

    conflict = "something else is there"

    @property
    def lost(self) -> str:
        return f"neither it nor its staged folder {self.source!r} is there as it was written"


@record("forget_step")
@dataclass(frozen=True, slots=True)
class ForgetStep:
    """The step that takes away the staged name of a linked file, so that nobody links it again once its slot is done.

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
        """Do nothing: it goes with its staging."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.source),)


@record("put_step")
@dataclass(frozen=True, slots=True)
class PutStep(OfOneObject):
    """The step that puts a small new object, whose bytes are staged together with those of others.

    A `ForgetStep` takes these away in a later phase; until then an object that somebody removes may be put again. A process that
    read them before a fence took them away may still put the object afterwards, if none exists.

    :param segment: the staged bytes.
    :param target: the object's path, relative to the target root.
    :param unit: the work unit it belongs to.
    :param identity: the future identity of the object.
    :param checksum: its SHA-256, which identifies it where the store's ETag is another one.
    """

    segment: Segment
    target: str
    unit: str
    identity: FileIdentity
    checksum: str
    phase = Phase.PUBLISH
    rows = 0

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may put it between the two looks
            found = context.files.identity(self.target)
            if found is not None:
                return StepStatus.DONE if self.file.is_same(found, context.files) else StepStatus.CONFLICT
            if context.files.identity(self.segment.path) is not None:
                return StepStatus.TODO
        return StepStatus.LOST

    def execute(self, context: StepContext) -> None:
        """Put the object.

        :raises FileExistsError: something exists there.
        :raises FileNotFoundError: its bytes are gone.
        """
        size = self.identity.size
        data = context.files.read_part(self.segment.path, self.segment.start, size) if size else b""
        if hashlib.sha256(data).hexdigest() != self.checksum:
            raise OSError(errno.EIO, f"its bytes in {self.segment.path!r} aren't those that were staged", self.target)
        uploads_of(context.files).put(self.target, data, self.segment.modified)

    def fence(self, context: StepContext) -> FenceResult:
        """Take its bytes away, and with them those of the others, which belong to the same slot."""
        with suppress(FileNotFoundError):
            context.files.unlink(self.segment.path)
        found = context.files.identity(self.target)
        return FenceResult.DONE if found is not None and self.file.is_same(found, context.files) else FenceResult.HOLDS

    def undo(self, context: StepContext) -> None:
        """Leave it where it was put: the next plan finds it there."""

    conflict = "another object is there"

    @property
    def lost(self) -> str:
        return f"neither it nor the staged object {self.segment.path!r} with its bytes is there"


@record("place_upload_step")
@dataclass(frozen=True, slots=True)
class PlaceUploadStep(OfOneObject):
    """The step that completes an upload, where no object exists, or in place of the one that the plan saw there.

    :param target: the object's path, relative to the target root.
    :param unit: the work unit it belongs to.
    :param upload: the upload with its parts.
    :param identity: the future identity of the object.
    :param checksum: as in a `TargetFile`.
    :param replaces: the identity of the object that it replaces, if it replaces one.
    """

    target: str
    unit: str
    upload: Upload
    identity: FileIdentity
    checksum: str = ""
    replaces: FileIdentity | None = None
    phase = Phase.PUBLISH
    rows = 0

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may complete it between the two looks
            found = context.files.identity(self.target)
            if found is not None and self._is_there(found, context.files):
                return StepStatus.DONE
            if found is not None and found != self.replaces:
                return StepStatus.CONFLICT
            if uploads_of(context.files).can_complete(self.target, self.upload):
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
                # versitygw answers this if the upload is gone
                raise FileNotFoundError(
                    errno.ENOENT, "the store reported that it was replaced, and it wasn't", self.target
                )
        else:  # a store may ignore the condition
            raise FileExistsError(errno.EEXIST, "it is not the object that is to be replaced", self.target)

    def fence(self, context: StepContext) -> FenceResult:
        uploads = uploads_of(context.files)
        uploads.abort(self.target, self.upload.id)
        if uploads.can_complete(self.target, self.upload):
            raise OSError(errno.EBUSY, "its upload is still open after it was aborted", self.target)
        found = context.files.identity(self.target)
        return FenceResult.DONE if found is not None and self._is_there(found, context.files) else FenceResult.HOLDS

    def undo(self, context: StepContext) -> None:
        """Leave it where it was placed: the next plan finds it there."""

    @property
    def conflict(self) -> str:
        return "another object is there" + (" than the one that is to be replaced" if self.replaces else "")

    lost = "the store has no such object, and has expired or aborted its upload"


@record("place_copy_step")
@dataclass(frozen=True, slots=True)
class PlaceCopyStep(OfOneObject):
    """The step that has the store copy a staged object to its place, where no object exists, or in place of the one that the plan
    saw there.

    A `ForgetStep` takes the staged object away in a later phase; until then an object that somebody removes may be placed again.

    :param source: the staged object, relative to the target root.
    :param target: its place, relative to the target root.
    :param unit: the work unit it belongs to.
    :param identity: the identity of the staged object when the slot was decided. Its copy has another one.
    :param checksum: its SHA-256, which identifies its copy; empty if it has a mark.
    :param replaces: the identity of the object that it replaces, if it replaces one.
    :param mark: the mark in its metadata, which its copy has, too.
    """

    source: str
    target: str
    unit: str
    identity: FileIdentity
    checksum: str
    replaces: FileIdentity | None = None
    mark: str = ""
    phase = Phase.PUBLISH
    rows = 0

    @property
    def file(self) -> TargetFile:
        """The object that it places."""
        return TargetFile(self.target, self.unit, self.identity, self.checksum, 0, self.mark)

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # somebody may place it between the two looks
            found = context.files.identity(self.target)
            if found is not None and found != self.replaces:
                return StepStatus.DONE if self.file.is_same(found, context.files) else StepStatus.CONFLICT
            if _is_staged(self.source, self.identity, context.files):
                return StepStatus.TODO
        return StepStatus.LOST

    def execute(self, context: StepContext) -> None:
        """Have the object copied.

        :raises FileExistsError: something exists there that isn't to be replaced.
        :raises FileNotFoundError: its source is gone or changed.
        """
        files = context.files
        if not _is_staged(self.source, self.identity, files):
            raise FileNotFoundError(errno.ENOENT, "it is not there as it was written", self.source)
        found = None if self.replaces is None else files.identity(self.target)
        if self.replaces is None or found is None:
            files.link(self.source, self.target)
        elif found == self.replaces:
            copies_of(files).replace(self.source, self.target, self.replaces.stamp)
        else:
            raise FileExistsError(errno.EEXIST, "it is not the object that is to be replaced", self.target)

    def fence(self, context: StepContext) -> FenceResult:
        """Take the staged object away."""
        with suppress(FileNotFoundError):
            context.files.unlink(self.source)
        found = context.files.identity(self.target)
        placed = found is not None and found != self.replaces and self.file.is_same(found, context.files)
        return FenceResult.DONE if placed else FenceResult.HOLDS

    def undo(self, context: StepContext) -> None:
        """Leave it where it was placed: the next plan finds it there."""

    @property
    def conflict(self) -> str:
        return "another object is there" + (" than the one that is to be replaced" if self.replaces else "")

    @property
    def lost(self) -> str:
        return f"neither it nor its staged object {self.source!r} is there as it was written"


def _is_staged(source: str, identity: FileIdentity, files: Files) -> bool:
    return files.identity(source) == identity
