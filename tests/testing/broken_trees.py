"""Trees with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, ClassVar

import pytest

from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.trees import Tree, always
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.testing import TreeContract


class BrokenTree(TreeContract):
    broken: ClassVar[type[LocalTree]]

    @pytest.fixture
    def write(self, tmp_path: Path) -> Callable[[str, bytes], object]:
        def write(path: str, content: bytes) -> None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)

        return write

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Tree:
        return self.broken(tmp_path)


class TestATreeInTheOrderOfNames(BrokenTree):
    caught_by = "test_a_walk_shows_everything_in_order"

    class broken(LocalTree):
        def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
            return iter(sorted(super().walk(folder, enter), key=lambda entry: entry.path))


class TestATreeThatUnquotesNames(BrokenTree):
    caught_by = "test_any_name_is_found_and_read_again"

    class broken(LocalTree):
        def open(self, path: str) -> BinaryIO:
            return super().open(path.replace("%41", "A"))


class TestATreeThatEntersEveryFolder(BrokenTree):
    caught_by = "test_a_folder_is_entered_only_if_that_is_wanted"

    class broken(LocalTree):
        def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
            return super().walk(folder)


class TestATreeThatNamesFoldersByTheirNames(BrokenTree):
    caught_by = "test_folders_are_named_in_order"

    class broken(LocalTree):
        def folders(self, folder: str = ".") -> Iterator[str]:
            return iter(sorted(super().folders(folder)))


class TestATreeWhoseListingTellsOtherStamps(BrokenTree):
    caught_by = "test_an_entry_is_as_it_was_listed"

    class broken(LocalTree):
        def entry(self, path: str) -> Entry | None:
            found = super().entry(path)
            return found and replace(found, stamp="")


class TestATreeThatTakesAMissingFolderForEmpty(BrokenTree):
    caught_by = "test_what_is_missing_is_none_and_a_missing_folder_is_an_error"

    class broken(LocalTree):
        def folders(self, folder: str = ".") -> Iterator[str]:
            return super().folders(folder) if self.entry(folder) else iter(())


class TestATreeThatReadsAByteTooMuch(BrokenTree):
    caught_by = "test_a_file_is_read_whole_and_in_parts"

    class broken(LocalTree):
        def read(self, path: str, start: int, length: int) -> bytes:
            return super().read(path, start, length + 1)


class TestATreeThatKnowsSizesOnly(BrokenTree):
    caught_by = "test_other_content_is_another_file"

    class broken(LocalTree):
        def entry(self, path: str) -> Entry | None:
            found = super().entry(path)
            return found and replace(found, size=0, stamp="")


class TestATreeThatShowsWhatIsOurs(BrokenTree):
    caught_by = "test_our_own_folder_is_left_out_at_the_top_only"

    class broken(LocalTree):
        def folders(self, folder: str = ".") -> Iterator[str]:
            return iter(("_gobblin", *super().folders(folder)))


class TestATreeThatLeavesItsRoot(BrokenTree):
    caught_by = "test_no_path_leaves_the_root"

    class broken(LocalTree):
        def open(self, path: str) -> BinaryIO:
            return io.BytesIO(Path(self.root, path).read_bytes() if ".." in path else b"")


class TestATreeThatNamesItsConnection(BrokenTree):
    caught_by = "test_its_root_is_named_without_a_connection"

    class broken(LocalTree):
        @property
        def root(self) -> str:
            return f"file://ann@{super().root}"
