"""New folders of the target that are placed by one rename, with all files in them, instead of file by file."""

from __future__ import annotations

import posixpath
import stat
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property

from airflow_gobblin.copy.bundles import Bundle, FolderEntry
from airflow_gobblin.copy.trees import folders_of, joined
from airflow_gobblin.model.work import StagedFile, UnitResult
from airflow_gobblin.steps.base import TargetFile
from airflow_gobblin.steps.placing import PlaceFolderStep, place_folder
from airflow_gobblin.storage.files.base import Attributes, Files

Copied = tuple[Bundle, UnitResult]
"""A bundle with the result of its unit, whose files are in the bundle's order."""


class WholeFolders:
    """The new folders of a group of bundles that are placed whole: the outermost that can be.

    Each is new, and everything in it is among these bundles and was staged in one folder, where nobody writes any more, since
    each try that wrote there is over. Anything else is placed file by file.

    :param steps: the steps that place them, by their paths in the file set.
    """

    def __init__(self, steps: Mapping[str, PlaceFolderStep]) -> None:
        self.steps = steps

    @classmethod
    def of(cls, some: Sequence[Copied], folder: str, files: Files) -> WholeFolders:
        """Find them.

        :param folder: the file set's folder, below the root of the files.
        """
        found = cls(steps := {})
        if not files.moves_folders:
            return found
        staged = _Staged(some)
        entries = {entry.path: entry for bundle, _ in some for entry in bundle.folders}
        paths = sorted(path for path in entries if path != ".")
        for path in (*(["."] if "." in entries and folder != "." else []), *paths):
            if found.above(path) is None:
                step = _placing(entries[path], len(_below(path, paths)), staged, folder, files)
                if step is not None:
                    steps[path] = step
        return found

    def above(self, path: str) -> PlaceFolderStep | None:
        """Return the step that places a path of the file set as part of a whole folder, if one does."""
        if not self.steps:
            return None
        return next((self.steps[at] for at in (".", *folders_of(path), path) if at in self.steps), None)

    @cached_property
    def files(self) -> Mapping[str, TargetFile]:
        """The files that they place, by their paths below the root of the files."""
        return {file.path: file for step in self.steps.values() for file in step.files()}


class _Staged:
    """The staged files of some bundles, by their paths in the file set."""

    def __init__(self, some: Sequence[Copied]) -> None:
        pairs = (zip(bundle.files, result.files, strict=True) for bundle, result in some)
        self._files = {file.entry.path: copy for pair in pairs for file, copy in pair}
        self._paths = sorted(self._files)

    def below(self, folder: str) -> Mapping[str, StagedFile]:
        """Return the files below a folder, by their paths in it."""
        skip = 0 if folder == "." else len(folder) + 1
        return {path[skip:]: self._files[path] for path in _below(folder, self._paths)}


def _below(folder: str, paths: Sequence[str]) -> Sequence[str]:
    """Return those of sorted paths that are below a folder."""
    if folder == ".":
        return paths
    return paths[bisect_left(paths, f"{folder}/") : bisect_left(paths, f"{folder}0")]  # "0" comes after "/"


def _placing(entry: FolderEntry, folders: int, staged: _Staged, folder: str, files: Files) -> PlaceFolderStep | None:
    """Return the step that places a folder; `None` if one rename can't do that.

    :param folders: the number of folders in it that these bundles name.
    """
    if not entry.files or folders != entry.folders:
        return None
    inside = staged.below(entry.path)
    if len(inside) != entry.files:
        return None
    path, first = next(iter(inside.items()))
    source = first.path.removesuffix(f"/{path}")
    target = folder if entry.path == "." else joined(folder, entry.path)
    if not posixpath.basename(source) or not (_gives_all(entry) or _is_given_alike(source, target, files)):
        return None
    return place_folder(source, target, inside, files)


def _gives_all(entry: FolderEntry) -> bool:
    """Return whether a folder's own attributes include all that the folder above would give one that is made there."""
    return entry.attributes.group is not None and entry.attributes.mode is not None


def _is_given_alike(source: str, target: str, files: Files) -> bool:
    """Return whether a folder made in the target would get the same group, by a setgid bit, as the staged one got."""
    there = next((found for path in reversed(folders_of(target)) if (found := files.folder(path))), files.folder("."))
    return _passed_on(there) == _passed_on(files.folder(posixpath.dirname(source)))


def _passed_on(of: Attributes | None) -> object:
    return of.group if of is not None and of.mode is not None and of.mode & stat.S_ISGID else None
