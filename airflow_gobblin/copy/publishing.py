"""The commit steps of a file set: folders are made, files placed, replaced and deleted, and then folders are set or removed."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby

from airflow_gobblin.copy.bundles import Bundle, FolderEntry
from airflow_gobblin.copy.entries import NO_ATTRIBUTES, Entry
from airflow_gobblin.copy.options import KEEPS_NOTHING, Keep
from airflow_gobblin.copy.owners import in_form, settable, to_keep
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.copy.whole_folders import Copied, WholeFolders
from airflow_gobblin.copy.work import CopyBinding
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import UnitResult
from airflow_gobblin.steps.attributes import ExpectedFile, FileAttributesStep
from airflow_gobblin.steps.base import CommitStep, TargetFile
from airflow_gobblin.steps.deleting import delete_files
from airflow_gobblin.steps.folders import FolderAttributesStep, MakeFolderStep, remove_folders
from airflow_gobblin.steps.placing import ForgetStep, place_file
from airflow_gobblin.steps.trash import make_trashes
from airflow_gobblin.storage.files.base import Attributes, Files

_MADE = 10_000
"""How many folders are remembered as made; naming one again does no harm."""
_AT_ONCE = 20_000
"""The maximum number of files placed by one rename: its step names them all."""


def copy_steps(
    plan: Plan,
    published: Iterable[Copied],
    files: Files,
    staging: str,
    backup: Callable[[str], str] = lambda path: "",
    *,
    keep: Keep = KEEPS_NOTHING,
) -> Iterator[CommitStep]:
    """Yield the steps of a file set, bundle by bundle, and at the end those that remove folders, which depend on one another.

    A new folder, such as that of a new file set, is placed by one rename if one run of a driver wrote all of it.

    :param published: each bundle with the result of its unit, whose files are in the bundle's order.
    :param staging: the folder of the plan's token, in which each file to be deleted gets a trash of its own.
    :param backup: returns where a replaced or deleted file is kept; empty if it isn't.
    :param keep: what copies keep or get.
    :raises StepLostError: staged files are gone.
    """
    steps = _Steps(plan.folder, files, staging, backup, keep)
    yield from _above(CopyBinding.of(plan).above, keep, files)
    for some in _in_groups(published) if files.moves_folders else ([one] for one in published):
        whole = WholeFolders.of(some, plan.folder, files)
        for bundle, result in some:
            yield from steps.of(bundle, result, whole)
    yield from steps.at_the_end()


def _above(folders: Iterable[str], keep: Keep, files: Files) -> Iterator[CommitStep]:
    """Yield the steps that give attributes to new folders above a file set's."""
    wanted = settable(in_form(keep.of(NO_ATTRIBUTES, folder=True), files.keeps), None, files.keeps, folder=True)
    if wanted != NO_ATTRIBUTES:
        yield from (FolderAttributesStep(path, wanted, keep.strict) for path in folders)


def _in_groups(published: Iterable[Copied]) -> Iterator[list[Copied]]:
    """Yield bundles in groups, each with as many files as one rename may place."""
    some: list[Copied] = []
    count = 0
    for copied in published:
        count += len(copied[1].files)
        if some and count > _AT_ONCE:
            yield some
            some, count = [], len(copied[1].files)
        some.append(copied)
    if some:
        yield some


@dataclass
class _Steps:
    """The steps of one call.

    :param folder: the file set's folder, below the root of the files.
    :param times: the times that folders get, for folders whose time a removal changes again.
    """

    folder: str
    files: Files
    staging: str
    backup: Callable[[str], str]
    keep: Keep
    made: set[str] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)

    def of(self, bundle: Bundle, result: UnitResult, whole: WholeFolders) -> Iterator[CommitStep]:
        """Yield the steps of a bundle, except for removals of folders, which are kept for the end.

        :param whole: the folders that are placed whole.
        """
        for entry in bundle.folders:
            yield from self._folder(entry, whole)
        yield from self._files(bundle, result, whole)
        for path in sorted({staged.segment.path for staged in result.files if staged.segment is not None}):
            yield ForgetStep(path)
        yield from delete_files(
            ((self._at(one.path), one.identity) for one in bundle.deletes), self.staging, self.files, self.backup
        )
        yield from self._set((ExpectedFile(self._at(one.path), one.identity), one.attributes) for one in bundle.changed)
        self.gone += map(self._at, bundle.gone_folders)

    def _files(self, bundle: Bundle, result: UnitResult, whole: WholeFolders) -> Iterator[CommitStep]:
        """Yield the steps that place files, and that look at them again."""
        placed: list[tuple[Entry, TargetFile]] = []
        trashes = self._trashes(bundle)
        pairs = zip(bundle.files, result.files, strict=True)
        for folder, some in groupby(pairs, lambda pair: pair[0].entry.path.rpartition("/")[0] or "."):
            if whole.above(folder) is not None:
                if self.keep.in_place:
                    placed += ((file.entry, whole.files[self._at(file.entry.path)]) for file, _ in some)
                continue
            yield from self._made(self._at(folder))
            for file, staged in some:
                target = self._at(file.entry.path)
                trash = trashes.get(target, "")
                backup = self.backup(target) if trash else ""
                steps = place_file(staged, target, result.unit, self.files, file.replaces, trash=trash, backup=backup)
                if self.keep.in_place:
                    placed += ((file.entry, one) for one in steps[0].files())
                yield from steps
        yield from self._look_again(placed)

    def _trashes(self, bundle: Bundle) -> dict[str, str]:
        """Make trashes for the files that are replaced and kept, and return them by the paths of the files."""
        kept = [self._at(file.entry.path) for file in bundle.files if file.replaces is not None]
        kept = [path for path in kept if self.backup(path)]
        return dict(zip(kept, make_trashes(len(kept), self.staging, self.files), strict=True))

    def _look_again(self, placed: Sequence[tuple[Entry, TargetFile]]) -> Iterator[CommitStep]:
        """Yield the steps that check, once files are placed, whether they have the attributes that they keep."""
        if placed:
            keeps = self.files.keeps
            yield from self._set(
                (ExpectedFile(file.path, file.identity), settable(to_keep(entry, self.keep, keeps), None, keeps))
                for entry, file in placed
            )

    def _set(self, wanted: Iterable[tuple[ExpectedFile, Attributes]]) -> Iterator[CommitStep]:
        """Yield the steps that give files attributes: one step for all files that get the same."""
        alike: dict[Attributes, list[ExpectedFile]] = {}
        for file, attributes in wanted:
            if attributes != NO_ATTRIBUTES:
                alike.setdefault(attributes, []).append(file)
        for attributes, files in alike.items():
            yield FileAttributesStep(tuple(files), attributes, self.keep.strict)

    def at_the_end(self) -> Iterator[CommitStep]:
        """Yield the steps that remove folders."""
        yield from remove_folders(sorted(self.gone), self.times)

    def _at(self, path: str) -> str:
        """Return a path of the file set as a path below the root of the files."""
        return self.folder if path == "." else joined(self.folder, path)

    def _folder(self, entry: FolderEntry, whole: WholeFolders) -> Iterator[CommitStep]:
        """Yield the steps that make a folder, or place it with what is in it, and give it its attributes."""
        path, above = self._at(entry.path), whole.above(entry.path)
        if above is None:
            yield from self._made(path)
        else:
            self._prepare(entry, above.source + path[len(above.target) :])
            if path == above.target:
                yield from self._made(posixpath.dirname(path))
                yield above
        yield from self._attributes(entry)

    def _prepare(self, entry: FolderEntry, staged: str) -> None:
        """Give a staged folder its attributes, so that it has them from its first moment in place.

        Attributes that would keep us from moving or removing it are left to the steps, and so are those that can't be set here.
        """
        wanted = self._wanted(entry)
        if wanted != Attributes():
            with suppress(OSError):
                mode = None if wanted.mode is None else wanted.mode | stat.S_IRWXU
                self.files.set_folder(staged, replace(wanted, mode=mode))

    def _attributes(self, entry: FolderEntry) -> Iterator[CommitStep]:
        """Yield the step that gives a folder its attributes, if it is to have any."""
        path, wanted = self._at(entry.path), self._wanted(entry)
        if wanted != Attributes():
            yield FolderAttributesStep(path, wanted, self.keep.strict)
        if entry.modified:
            self.times[path] = entry.modified

    def _wanted(self, entry: FolderEntry) -> Attributes:
        return replace(entry.attributes, modified=entry.modified or None)

    def _made(self, path: str) -> Iterator[CommitStep]:
        """Yield the step that makes a folder, where the storage has folders, unless that is done."""
        if not self.files.moves_folders or path in ("", "."):
            return
        if len(self.made) >= _MADE:
            self.made.clear()
        if path not in self.made:
            self.made.add(path)
            yield MakeFolderStep(path)
