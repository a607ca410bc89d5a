"""Reports to people about files that could not be put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gobblin.admin import kept
from airflow_gobblin.admin.kept import KeptFile, list_kept
from airflow_gobblin.copy.options import Delete
from tests.copy.mirrors import Trees


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """Two file sets that are mirrored, and some files that are kept of them."""
    trees = Trees(tmp_path, {"delete": Delete(1)})
    for path in ("a/one", "ab/one"):
        trees.write(path)
    trees.run()
    for number in range(3):
        trees.write(f"_gobblin/kept/{number}/a/deep/{number}", "12", at=trees.target)
    return trees


def test_those_of_a_dataset_are_counted_and_named(trees: Trees) -> None:
    opened = trees.opened()
    found = list_kept(opened.files, opened.journal.history("a#files"))
    assert (found.files, found.bytes, found.whole) == (3, 6, True)
    assert found.folder == f"{trees.target}/_gobblin/kept"
    assert KeptFile("_gobblin/kept/0/a/deep/0", "a/deep/0", 2) in found.first
    assert list_kept(opened.files, opened.journal.history("ab#files")).files == 0


def test_a_look_is_bounded(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST", 2)
    monkeypatch.setattr(kept, "_SHOWN", 1)
    opened = trees.opened()
    found = list_kept(opened.files, opened.journal.history("a#files"))
    assert (found.files, len(found.first), found.whole) == (2, 1, False)
