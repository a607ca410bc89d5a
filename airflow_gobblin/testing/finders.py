"""The contract of finders: they find the same datasets and file sets in a tree each time, and never fewer by accident."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.filters import Filter
from airflow_gobblin.copy.finders import DatasetFinder, FileSet, file_sets_of
from airflow_gobblin.copy.trees import OWN_FOLDER, Tree, always
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.errors import SourceError
from airflow_gobblin.model import wire

__all__ = ["FinderContract"]

MIRROR = "a_mirror"


class FinderContract:
    """The suite of finders. Override the fixtures `finder` and `tree`."""

    @pytest.fixture
    def finder(self) -> DatasetFinder:
        """Return the finder."""
        raise NotImplementedError("override the fixture `finder`")

    @pytest.fixture
    def tree(self) -> Tree:
        """Return a tree in which the finder finds at least one file set, with something in its folder."""
        raise NotImplementedError("override the fixture `tree`")

    def test_it_crosses_processes(self, finder: DatasetFinder) -> None:
        assert wire.loads(wire.dumps(finder), type(finder), "the finder") == finder
        assert isinstance(hash(finder), int), "it is frozen"

    def test_it_finds_file_sets_in_folders_that_are_there(self, finder: DatasetFinder, tree: Tree) -> None:
        found = found_by(finder, tree)
        assert found, "the fixture `tree` should have a file set"
        for one in found:
            there = tree.entry(one.source_folder)
            assert there is not None, one
            assert there.kind is EntryKind.FOLDER, one
            assert not one.manifest or tree.entry(one.manifest) is not None, one

    def test_each_file_set_has_a_name_and_a_folder_of_its_own(self, finder: DatasetFinder, tree: Tree) -> None:
        found = found_by(finder, tree)
        assert len({one.urn for one in found}) == len(found)
        assert OWN_FOLDER not in {folder.split("/")[0] for one in found for folder in (one.source_folder, one.folder)}

    def test_datasets_and_file_sets_come_in_a_stable_order(self, finder: DatasetFinder, tree: Tree) -> None:
        once, again = ([(d.urn, [*d.file_sets(tree)]) for d in finder.find(tree, MIRROR)] for _ in range(2))
        assert once == again
        assert len({urn for urn, _ in once}) == len(once)
        assert {one.dataset for _, some in once for one in some} <= {urn for urn, _ in once}

    def test_nothing_is_changed(self, finder: DatasetFinder, tree: Tree) -> None:
        before = [*tree.walk()]
        found_by(finder, tree)
        assert [*tree.walk()] == before

    def test_a_tree_that_is_not_there_is_an_error_and_not_an_empty_one(
        self, finder: DatasetFinder, tree: Tree, tmp_path: Path
    ) -> None:
        """Allow for a finder that needs no look at it: then listing the file sets shows it."""
        expected = [one.urn for one in found_by(finder, tree)]
        missing = LocalTree(tmp_path / "not there")
        with suppress(SourceError):
            assert [one.urn for one in found_by(finder, missing)] == expected

    def test_a_listing_that_fails_is_an_error_and_not_a_shorter_one(self, finder: DatasetFinder, tree: Tree) -> None:
        healthy = FailingTree(tree, -1)
        expected = found_by(finder, healthy)
        for at in range(healthy.calls):
            with pytest.raises(SourceError, match="the disk has failed"):
                found_by(finder, FailingTree(tree, at))
        assert found_by(finder, tree) == expected


def found_by(finder: DatasetFinder, tree: Tree) -> tuple[FileSet, ...]:
    """Return what a finder finds in a tree."""
    return file_sets_of(finder, tree, MIRROR, Filter())


class FailingTree:
    """A tree of which one call, or the next item of a listing, is an error. A `Tree`.

    :param at: the number of the call; none if it is negative.
    :param calls: the number of calls so far.
    """

    def __init__(self, tree: Tree, at: int) -> None:
        self._tree = tree
        self._at = at
        self.calls = 0

    @property
    def root(self) -> str:
        return self._tree.root

    def _called(self) -> None:
        self.calls += 1
        if self.calls - 1 == self._at:
            raise OSError(errno.EIO, "the disk has failed")

    def entry(self, path: str) -> Entry | None:
        self._called()
        return self._tree.entry(path)

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        for entry in self._tree.walk(folder, enter):
            self._called()
            yield entry
        self._called()

    def folders(self, folder: str = ".") -> Iterator[str]:
        for name in self._tree.folders(folder):
            self._called()
            yield name
        self._called()

    def open(self, path: str) -> BinaryIO:
        self._called()
        return self._tree.open(path)

    def read(self, path: str, start: int, length: int) -> bytes:
        self._called()
        return self._tree.read(path, start, length)
