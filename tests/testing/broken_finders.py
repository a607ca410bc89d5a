"""Finders with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_gobblin.copy.finders import CopyableDataset, DatasetFinder, EachFolder, FolderDataset
from airflow_gobblin.copy.trees import Tree
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.model.wire import record
from airflow_gobblin.testing import FinderContract


class BrokenFinder(FinderContract):
    broken: ClassVar[type[Any]]

    @pytest.fixture
    def finder(self) -> DatasetFinder:
        made: DatasetFinder = self.broken()
        return made

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Tree:
        root = tmp_path / "tree"
        for path in ("a", "b", "_gobblin"):
            (root / path).mkdir(parents=True)
            (root / path / "x").touch()
        return LocalTree(root)


class TestAFinderThatIsNotRegistered(BrokenFinder):
    caught_by = "test_it_crosses_processes"

    @dataclass(frozen=True)
    class broken(EachFolder):
        pass


class TestAFinderOfFoldersThatAreNotThere(BrokenFinder):
    caught_by = "test_it_finds_file_sets_in_folders_that_are_there"

    @record("test.absent_finder")
    @dataclass(frozen=True)
    class broken(EachFolder):
        def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
            yield from super().find(tree, mirror)
            yield FolderDataset("c", "c")


class TestAFinderOfWhatIsOurs(BrokenFinder):
    caught_by = "test_each_file_set_has_a_name_and_a_folder_of_its_own"

    @record("test.own_finder")
    @dataclass(frozen=True)
    class broken(EachFolder):
        def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
            yield FolderDataset("_gobblin", "_gobblin")


class TestAFinderWithoutAnOrder(BrokenFinder):
    caught_by = "test_datasets_and_file_sets_come_in_a_stable_order"

    @record("test.random_finder")
    @dataclass(frozen=True)
    class broken(EachFolder):
        def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
            for one in super().find(tree, mirror):
                assert isinstance(one, FolderDataset)
                yield replace(one, urn=f"{one.urn}-{secrets.token_hex(4)}")


class TestAFinderThatMarksWhatItFound(BrokenFinder):
    caught_by = "test_nothing_is_changed"

    @record("test.marking_finder")
    @dataclass(frozen=True)
    class broken(EachFolder):
        def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
            Path(tree.root, "found").touch()
            return super().find(tree, mirror)


class TestAFinderThatTakesAMissingTreeForAnEmptyOne(BrokenFinder):
    caught_by = "test_a_tree_that_is_not_there_is_an_error_and_not_an_empty_one"

    @record("test.lenient_finder")
    @dataclass(frozen=True)
    class broken(EachFolder):
        def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
            yield FolderDataset("a", "a")
            if tree.entry("b") is not None:
                yield FolderDataset("b", "b")


class TestAFinderThatGoesOnAfterAnError(BrokenFinder):
    caught_by = "test_a_listing_that_fails_is_an_error_and_not_a_shorter_one"

    @record("test.careless_finder")
    @dataclass(frozen=True)
    class broken(EachFolder):
        def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
            try:
                names = [*tree.folders()]
            except OSError:
                names = ["a"]
            return iter([FolderDataset(name, name) for name in names])
