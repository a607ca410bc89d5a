"""The commit steps of a file set: folders are made, files placed, replaced and deleted, and then folders are set or removed."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from airflow_gobblin.copy.bundles import Bundle, FolderEntry
from airflow_gobblin.copy.entries import NO_ATTRIBUTES
from airflow_gobblin.copy.options import KEEPS_NOTHING, Keep
from airflow_gobblin.copy.owners import in_form, settable
from airflow_gobblin.copy.transfer.copying import whole_folder
from airflow_gobblin.copy.trees import folders_of, joined
from airflow_gobblin.copy.work import CopyBinding
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import UnitResult
from airflow_gobblin.steps.attributes import FileAttributesStep
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.deleting import delete_files
from airflow_gobblin.steps.folders import FolderAttributesStep, MakeFolderStep, remove_folders
from airflow_gobblin.steps.placing import ForgetStep, PlaceFolderStep, place_file, place_folder
from airflow_gobblin.steps.trash import make_trashes
from airflow_gobblin.storage.files.base import Attributes, Files

_MADE = 10_000
"""How many folders are remembered as made: to name one again does no harm."""
_AT_ONCE = 20_000
"""The maximum number of files placed by one rename: its step names them all."""

_Copied = tuple[Bundle, UnitResult]


def copy_steps(
    plan: Plan,
    published: Iterable[_Copied],
    files: Files,
    staging: str,
    backup: Callable[[str], str] = lambda path: "",
    *,
    keep: Keep = KEEPS_NOTHING,
) -> Iterator[CommitStep]:
    """Yield the steps of a file set, bundle by bundle, and at the end those that remove folders: they depend on one another.

    A new file set is placed by one rename, if one run of a driver wrote all of it and its folder is still new.

    :param published: each bundle, with the result of its unit: its files are in the bundle's order.
    :param staging: the folder of the plan's token, in which each file to be deleted gets a trash of its own.
    :param backup: returns where a file that is replaced or deleted is kept; empty: it is not.
    :param keep: what copies keep or get.
    :raises StepLostError: staged files are gone.
    """
    steps = _Steps(plan.folder, files, staging, backup, keep.strict)
    yield from _above(CopyBinding.of(plan).above, keep, files)
    if CopyBinding.of(plan).new_folder:
        first, more, published = _first(published)
        whole = None if more else _whole(plan, first, files, staging)
        if whole is not None:
            yield from steps.at_once(whole, (bundle for bundle, _ in first))
            return
    for bundle, result in published:
        yield from steps.of(bundle, result)
    yield from steps.at_the_end()


def _above(folders: Iterable[str], keep: Keep, files: Files) -> Iterator[CommitStep]:
    """Yield the steps that give attributes to new folders above a file set's."""
    wanted = settable(in_form(keep.of(NO_ATTRIBUTES, folder=True), files.keeps), None, files.keeps, folder=True)
    if wanted != NO_ATTRIBUTES:
        yield from (FolderAttributesStep(path, wanted) for path in folders)


def _first(published: Iterable[_Copied]) -> tuple[list[_Copied], bool, Iterator[_Copied]]:
    """Return the first bundles, whether others follow, and then all of them."""
    some: list[_Copied] = []
    rest, count = iter(published), 0
    for copied in rest:
        some.append(copied)
        count += len(copied[1].files)
        if count > _AT_ONCE:
            return some, True, chain(some, rest)
    return some, False, iter(some)


def _whole(plan: Plan, published: list[_Copied], files: Files, staging: str) -> PlaceFolderStep | None:
    """Return the step that places all files at once; `None` if that can't be done by one rename."""
    attempt = next((result.attempt for _, result in published if result.files), "")
    source = whole_folder(staging, attempt)
    pairs = (zip(bundle.files, result.files, strict=True) for bundle, result in published)
    staged = {file.entry.path: copy for pair in pairs for file, copy in pair}
    filled = {"."}.union(*map(folders_of, staged))
    if any(folder.path not in filled for bundle, _ in published for folder in bundle.folders):
        return None
    return place_folder(source, plan.folder, staged, files)


@dataclass
class _Steps:
    """The steps of one call.

    :param folder: the file set's folder, below the root of the files.
    :param times: the times that folders get, for those that a removal changes again.
    """

    folder: str
    files: Files
    staging: str
    backup: Callable[[str], str]
    strict: bool
    made: set[str] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)

    def of(self, bundle: Bundle, result: UnitResult) -> Iterator[CommitStep]:
        """Yield the steps of a bundle, except for removals of folders, which are kept for the end."""
        for entry in bundle.folders:
            yield from self._folder(entry)
        kept = [self._at(file.entry.path) for file in bundle.files if file.replaces is not None]
        kept = [path for path in kept if self.backup(path)]
        trashes = dict(zip(kept, make_trashes(len(kept), self.staging, self.files), strict=True))
        for file, staged in zip(bundle.files, result.files, strict=True):
            target = self._at(file.entry.path)
            yield from self._made(posixpath.dirname(target))
            trash = trashes.get(target, "")
            backup = self.backup(target) if trash else ""
            yield from place_file(staged, target, result.unit, self.files, file.replaces, trash=trash, backup=backup)
        for path in sorted({staged.segment.path for staged in result.files if staged.segment is not None}):
            yield ForgetStep(path)
        yield from delete_files(
            ((self._at(one.path), one.identity) for one in bundle.deletes), self.staging, self.files, self.backup
        )
        for one in bundle.changed:
            yield FileAttributesStep(self._at(one.path), one.identity, one.attributes, self.strict)
        self.gone += map(self._at, bundle.gone_folders)

    def at_once(self, whole: PlaceFolderStep, bundles: Iterable[Bundle]) -> Iterator[CommitStep]:
        """Yield the steps of a new file set whose files are placed by one rename.

        Its folders get their attributes before, so that they have them from the first moment on, but for what would keep us from
        moving or removing them. Where that can't be, the steps do it.
        """
        entries = [entry for bundle in bundles for entry in bundle.folders]
        for entry in entries:
            wanted = self._wanted(entry)
            with suppress(OSError):
                self.files.set_folder(
                    joined(whole.source, entry.path) if entry.path != "." else whole.source,
                    replace(wanted, mode=None if wanted.mode is None else wanted.mode | stat.S_IRWXU),
                )
        yield from self._made(posixpath.dirname(self.folder))
        yield whole
        for entry in entries:
            yield from self._attributes(entry)

    def at_the_end(self) -> Iterator[CommitStep]:
        """Yield the steps that remove folders."""
        yield from remove_folders(sorted(self.gone), self.times)

    def _at(self, path: str) -> str:
        """Return the path below the root of the files of a path in the file set."""
        return self.folder if path == "." else joined(self.folder, path)

    def _folder(self, entry: FolderEntry) -> Iterator[CommitStep]:
        yield from self._made(self._at(entry.path))
        yield from self._attributes(entry)

    def _attributes(self, entry: FolderEntry) -> Iterator[CommitStep]:
        """Yield the step that gives a folder its attributes, if it is to have any."""
        path, wanted = self._at(entry.path), self._wanted(entry)
        if wanted != Attributes():
            yield FolderAttributesStep(path, wanted)
        if entry.modified:
            self.times[path] = entry.modified

    def _wanted(self, entry: FolderEntry) -> Attributes:
        return replace(entry.attributes, modified=entry.modified or None)

    def _made(self, path: str) -> Iterator[CommitStep]:
        """Yield the step that makes a folder, where there are folders, unless that is done."""
        if not self.files.moves_folders or path in ("", "."):
            return
        if len(self.made) >= _MADE:
            self.made.clear()
        if path not in self.made:
            self.made.add(path)
            yield MakeFolderStep(path)
