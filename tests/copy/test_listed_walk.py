"""The walk of a tree that is listed folder by folder, as those of servers are."""

from __future__ import annotations

from threading import Barrier

from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.trees.base import always
from airflow_gobblin.copy.trees.listed_walk import walk_listed


def test_several_folders_are_listed_at_once() -> None:
    both = Barrier(2, timeout=30)

    def listing(folder: str) -> list[Entry]:
        if folder == ".":
            return [Entry(name, EntryKind.FOLDER) for name in "ba"]
        both.wait()  # each waits for the other
        return [Entry(f"{folder}/x", EntryKind.FILE)]

    assert [entry.path for entry in walk_listed(listing, ".", always, 4)] == ["a", "a/x", "b", "b/x"]
