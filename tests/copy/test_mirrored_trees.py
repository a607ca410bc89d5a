"""Mirrors of trees as they come, which change between runs: after each run the target is what `cp -a` makes of the source."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gobblin.copy import bundles, publishing
from airflow_gobblin.copy.finders import DatasetFinder, EachFolder, WholeTree
from airflow_gobblin.copy.options import Delete, Keep
from tests.copy.made_trees import Folder, Seen, histories, make_tree, open_folder, process_of_nobody, seen_whole
from tests.copy.mirrors import Trees, statuses

OPTIONS: dict[str, Any] = {
    "datasets": WholeTree(),
    "delete": Delete(1),
    "keep": Keep("tpugax"),
    "links": "copy",
    "empty_folders": True,
}


FOLDER = stat.S_IFDIR
SET = "set"
"""The one folder of the source, which may be a file set of its own."""


def make_sources(root: Path, history: list[Folder]) -> None:
    """The source at each time, readable for everybody."""
    for number, tree in enumerate(history):
        source = root / f"source{number}"
        (source / SET).mkdir(parents=True)
        make_tree(source / SET, tree)
        subprocess.run(["chmod", "-R", "a+rX", source], check=True)


def mirror_in_pieces(root: Path, count: int, options: Mapping[str, Any], most: int, at_once: int) -> None:
    """Mirror them with so many files in a bundle, and in a folder that is placed whole, at the most."""
    with patch.object(bundles, "MOST_FILES", most), patch.object(publishing, "_AT_ONCE", at_once):
        mirror_them(root, count, options)


def mirror_them(root: Path, count: int, options: Mapping[str, Any]) -> None:
    """Mirror the source of each time in turn, and compare."""
    trees = Trees(root, {**OPTIONS, **options})
    for number in range(count):
        source, peer = root / f"source{number}", root / f"peer{number}"
        trees.source.unlink(missing_ok=True)
        trees.source.symlink_to(source)
        subprocess.run(["cp", "-a", source, peer], check=True)
        before = seen_whole(trees.target) if trees.target.exists() else {}
        (report,) = trees.run().values()
        if why := refused(before, seen_whole(peer)):
            assert report.status == "failed", (why, report)
            assert seen_whole(trees.target) == before
            empty(trees.target)
            (report,) = trees.run().values()
        assert report.status in ("committed", "idle"), report.text
        assert seen_whole(trees.target) == expected(peer)
        assert {*statuses(trees.run()).values()} == {"idle"}


def empty(target: Path) -> None:
    """Remove everything but our own: what a person does about something in the way."""
    subprocess.run(["chmod", "-R", "u+rwX", target], check=True)
    for child in target.iterdir():
        if child.name != "_gobblin":
            shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()


def expected(peer: Path) -> dict[bytes, Seen]:
    """The expected target: for users without rights, folders are always theirs to write to."""
    found = seen_whole(peer)
    if os.geteuid() == 0:
        return found
    return {at: one._replace(mode=one.mode | 0o700) if one.kind == FOLDER else one for at, one in found.items()}


def refused(target: dict[bytes, Seen], source: dict[bytes, Seen]) -> str:
    """Why a difference isn't carried out; nothing if it is."""
    for path, one in source.items():
        other = target.get(path)
        if other is not None and (one.kind == FOLDER) is not (other.kind == FOLDER):
            return f"{path!r} is a folder on one side only"
    gone = [path for path, one in target.items() if path not in source and one.kind != FOLDER]
    if gone and all(one.kind == FOLDER for one in source.values()):
        return "the source has no files"
    return ""


def as_is(work: Callable[[], None]) -> None:
    """Do some work as the user that we are."""
    work()


@pytest.mark.slow
@pytest.mark.parametrize("finder", [WholeTree(), EachFolder()], ids=str)
@pytest.mark.parametrize("user", [as_is, process_of_nobody], ids=["root", "another user"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=histories(), backup=st.booleans(), most=st.integers(1, 6), at_once=st.integers(1, 12))
def test_the_target_is_what_cp_makes_of_the_source(
    user: Callable[[Callable[[], None]], None],
    finder: DatasetFinder,
    history: list[Folder],
    backup: bool,
    most: int,
    at_once: int,
) -> None:
    with open_folder() as root:
        make_sources(root, history)
        options = {"datasets": finder, "backup": f"{root}/target/_gobblin/backup" if backup else None}
        user(lambda: mirror_in_pieces(root, len(history), options, most, at_once))


def test_the_source_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "release-7").mkdir()
    (tmp_path / "release-7/file").write_text("x")
    trees = Trees(tmp_path, OPTIONS)
    trees.source.symlink_to("release-7")
    assert statuses(trees.run()) == {"photos#files": "committed"}
    assert trees.equal()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to other users")
@pytest.mark.parametrize("letters", ["u", "g", "p", "t"])
def test_what_cant_be_kept_of_a_folder_fails_the_file_set_only_if_it_is_asked_for(letters: str) -> None:
    """The target's folder belongs to root, and everybody may write to it; the mirror runs as another user."""
    with open_folder() as root:
        for path in ("source/folder", "target/folder"):
            (root / path).mkdir(parents=True)
        for path in ("target", "target/folder"):
            (root / path).chmod(0o777)
        (root / "source/folder/file").write_text("x")

        def mirror() -> None:
            trees = Trees(root, {**OPTIONS, "keep": Keep(letters, strict=True)})
            (report,) = trees.run().values()
            assert report.status == "failed"
            subject = "of 1 folder: 'folder'" if letters == "t" else "of 2 folders: 'folder', '.'"
            assert f"not everything is kept {subject}, as user 65534 can't set it" in report.text
            lenient = trees.using(keep=Keep(letters))
            assert statuses(lenient.run()) == {"photos#files": "committed"}
            assert statuses(lenient.run()) == {"photos#files": "idle"}
            assert (trees.target / "folder/file").read_text() == "x"

        process_of_nobody(mirror)
