"""Finders: which datasets a tree holds, and which file sets each of them is.

A file set is what is published at once: a folder of the source with a folder of the target, and a chain of its own in the
journal. Which set a file belongs to follows from its path alone, so no two of a mirror share a folder or lie in one another.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from airflow_gobblin.copy.entries import shown
from airflow_gobblin.copy.filters import Filter, Rule
from airflow_gobblin.copy.trees import Tree, joined
from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.files.base import contained

DEFAULT_SET = "files"
"""The name of the file set of a dataset that is one."""


@dataclass(frozen=True)
class FileSet:
    """A part of a dataset that is published at once: the dataset of the core that a mirror's slots belong to.

    :param dataset: the URN of the dataset.
    :param name: its name in the dataset.
    :param source_folder: its folder in the source tree; `.` for the root.
    :param folder: its folder below the target root; `.` for the root.
    :param read_from: a description, without secrets, of what it is read from.
    """

    dataset: str
    name: str
    source_folder: str
    folder: str
    read_from: str = ""

    @property
    def urn(self) -> str:
        """The URN: the dataset's and the set's name, always both."""
        return f"{self.dataset}#{self.name}"

    @property
    def origin(self) -> str:
        """A description of what it is read from."""
        return self.read_from or self.source_folder

    @property
    def holds(self) -> Holds:
        """What its slots hold: differences of files."""
        return Holds.DIFFERENCE


class CopyableDataset(Protocol):
    """What a finder finds: a dataset that knows its file sets."""

    @property
    def urn(self) -> str:
        """Its URN."""

    def file_sets(self, tree: Tree) -> Iterable[FileSet]:
        """Return its file sets, in a stable order.

        :raises OSError: the tree can't be listed.
        """


@runtime_checkable
class DatasetFinder(Protocol):
    """Finds the datasets of a tree: frozen, registered with `wire.record`, without secrets."""

    def find(self, tree: Tree, mirror: str) -> Iterable[CopyableDataset]:
        """Return the datasets, in a stable order. Nothing is changed.

        :param mirror: the name of the mirror.
        :raises OSError: the tree can't be listed.
        """


@dataclass(frozen=True)
class FolderDataset:
    """A dataset that is one folder and one file set, with the same path on both sides."""

    urn: str
    folder: str

    def file_sets(self, tree: Tree) -> tuple[FileSet, ...]:
        """Return the one file set."""
        return (FileSet(self.urn, DEFAULT_SET, self.folder, self.folder),)


@record("whole_tree")
@dataclass(frozen=True)
class WholeTree:
    """The whole tree is one dataset, named as the mirror."""

    def find(self, tree: Tree, mirror: str) -> tuple[CopyableDataset, ...]:
        """Return the one dataset."""
        return (FolderDataset(mirror, "."),)


@record("each_folder")
@dataclass(frozen=True)
class EachFolder:
    """Each folder in a folder is a dataset, named by its path.

    :param folder: that folder; the tree's root by default. Files that lie in it directly are in no dataset.
    """

    folder: str = "."

    def __post_init__(self) -> None:
        contained(self.folder)

    def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
        """Yield a dataset for each folder."""
        for name in tree.folders(self.folder):
            path = joined(self.folder, name)
            yield FolderDataset(shown(path), path)


@record("glob")
@dataclass(frozen=True)
class Glob:
    """Each folder that matches a pattern is a dataset, named by its path.

    :param pattern: as in filters, matched from the root on, such as `*/daily` or `2026-*`.
    """

    pattern: str

    def __post_init__(self) -> None:
        self._rule  # noqa: B018  # a malformed one is refused here

    @property
    def _rule(self) -> Rule:
        return Rule(True, f"/{self.pattern.strip('/')}")

    def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
        """Yield a dataset for each folder that matches; folders in one are not looked at."""
        return self._below(tree, ".", self._rule)

    def _below(self, tree: Tree, folder: str, rule: Rule) -> Iterator[CopyableDataset]:
        for name in tree.folders(folder):
            path = joined(folder, name)
            if rule.matches(path):
                yield FolderDataset(shown(path), path)
            elif rule.may_match_in(path):
                yield from self._below(tree, path, rule)


def file_sets_of(finder: DatasetFinder, tree: Tree, mirror: str, wanted: Filter) -> tuple[FileSet, ...]:
    """Return all file sets of a mirror, in the finder's order, without those in folders that the filter excludes.

    :raises SourceError: the tree can't be listed, or nothing is found in it.
    :raises ConfigurationError: two file sets have one name, or one folder lies in another's.
    """
    try:
        found = tuple(
            one
            for dataset in finder.find(tree, mirror)
            for one in dataset.file_sets(tree)
            if wanted.enters(one.source_folder)
        )
    except OSError as error:
        raise SourceError(
            operation="find",
            subject=f"the datasets of mirror {mirror!r} in {tree.root}",
            cause=error,
            hint="Is it mounted, and may it be read? Nothing was changed.",
        ) from error
    if not found:
        raise SourceError(
            operation="find",
            subject=f"the datasets of mirror {mirror!r} in {tree.root}",
            cause=f"{finder} finds none there that its filter includes",
            hint="Correct the source, the finder or the filter. Nothing was changed.",
        )
    _check_apart(found, mirror)
    return tuple(FileSet(f.dataset, f.name, f.source_folder, f.folder, f.read_from or _origin(tree, f)) for f in found)


def _origin(tree: Tree, found: FileSet) -> str:
    return tree.root if found.source_folder == "." else f"{tree.root.rstrip('/')}/{shown(found.source_folder)}"


def _check_apart(found: tuple[FileSet, ...], mirror: str) -> None:
    """Make sure that each file set has a URN and, on both sides, a folder of its own."""
    urns: dict[str, FileSet] = {}
    for one in found:
        contained(one.source_folder), contained(one.folder)
        if urns.setdefault(one.urn, one) is not one:
            raise _clash(mirror, one, urns[one.urn], "have one URN")
    _check_folders([(one.source_folder, one) for one in found], mirror)
    _check_folders([(one.folder, one) for one in found], mirror)


def _check_folders(found: list[tuple[str, FileSet]], mirror: str) -> None:
    """Make sure that no two folders of one side are the same, or lie in one another."""
    known: dict[str, FileSet] = {}
    for folder, one in found:
        if known.setdefault(folder, one) is not one:
            raise _clash(mirror, one, known[folder], "have one folder")
    for folder, one in found:
        for above in filter(known.__contains__, _above(folder)):
            raise _clash(mirror, one, known[above], "lie in one another")


def _above(folder: str) -> Iterator[str]:
    while folder != ".":
        folder = posixpath.dirname(folder) or "."
        yield folder


def _clash(mirror: str, one: FileSet, other: FileSet, how: str) -> ConfigurationError:
    return ConfigurationError(
        operation="find",
        subject=f"file set {one.urn!r} of mirror {mirror!r}",
        cause=f"it and {other.urn!r} {how}: {shown(one.source_folder)!r} and {shown(other.source_folder)!r} in the source",
        hint="Each file belongs to one file set: change the finder's pattern, or make two mirrors with targets of their own.",
    )
