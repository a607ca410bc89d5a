"""The walk of a tree on disk: everything, in the order of S3's keys, or an error."""

from __future__ import annotations

import os
import socket
import threading
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gobblin.copy.entries import EntryKind, key_of
from airflow_gobblin.copy.options import Links
from airflow_gobblin.copy.trees import local, open_tree
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.storage.files import base
from tests.copy.trees import Folder, folders, keys, on_disk


@pytest.mark.slow
@given(folders, st.booleans())
def test_a_walk_has_everything_in_the_order_of_s3(folder: Folder, in_threads: bool) -> None:
    with on_disk(tree=folder) as root, pytest.MonkeyPatch.context() as patch:
        if in_threads:
            patch.setattr(base, "_SECONDS_OF_A_CALL", 0.0)
            patch.setattr(local, "CALLS_TO_JUDGE", 0)
            patch.setattr(local, "_AT_A_TIME", 2)
            patch.setattr(local, "_AHEAD", 2)
        found = [*LocalTree(root / "tree").walk()]
    assert [key_of(entry) for entry in found] == sorted(keys(folder))


def test_an_entry_is_as_the_disk_has_it(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"abc")
    os.utime(tmp_path / "one", ns=(1, 1_600_000_000_123_456_789))
    (tmp_path / "one").chmod(0o640)
    (one,) = LocalTree(tmp_path).walk()
    found = os.lstat(tmp_path / "one")
    assert (one.path, one.kind, one.size, one.modified) == ("one", EntryKind.FILE, 3, 1_600_000_000_123_456_789)
    assert (one.identity.inode, one.identity.stamp) == (found.st_ino, "1600000000123456789")
    assert (one.attributes.mode, one.attributes.owner, one.attributes.group) == (0o640, found.st_uid, found.st_gid)
    assert LocalTree(tmp_path).entry("one") == one
    assert LocalTree(tmp_path).entry("one/two") is None
    assert LocalTree(tmp_path).entry("two") is None


def test_a_walk_of_a_folder_has_paths_from_the_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    assert [e.path for e in LocalTree(tmp_path).walk("a")] == ["a/b", "a/b/c"]
    assert [*LocalTree(tmp_path).folders()] == ["a"]
    assert [*LocalTree(tmp_path).folders("a")] == ["b"]


def test_a_folder_that_is_not_entered_is_still_there(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").touch()
    (tmp_path / "b").chmod(0)
    found = [e.path for e in LocalTree(tmp_path).walk(enter=lambda folder: folder != "b")]
    assert found == ["a", "a/file", "b", "c", "c/file"]


def test_what_is_ours_is_left_out(tmp_path: Path) -> None:
    for path in ("_gobblin/s/staged", "a/_gobblin/staged", "a/b/_gobblin/theirs"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    assert [*LocalTree(tmp_path).folders()] == ["a"]
    assert not [e.path for e in LocalTree(tmp_path).walk() if e.path.startswith("_gobblin")]
    assert [e.path for e in LocalTree(tmp_path).walk("a")] == ["a/b", "a/b/_gobblin", "a/b/_gobblin/theirs"]


@pytest.mark.parametrize("in_threads", [False, True])
def test_a_folder_that_goes_while_it_is_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_threads: bool
) -> None:
    if in_threads:
        monkeypatch.setattr(base, "_SECONDS_OF_A_CALL", 0.0)
        monkeypatch.setattr(local, "CALLS_TO_JUDGE", 0)
    for number in range(20):
        (tmp_path / f"{number:02}").mkdir()
    walk = LocalTree(tmp_path).walk()
    next(walk)
    (tmp_path / "19").rmdir()
    with pytest.raises(FileNotFoundError, match="19"):
        assert [*walk]


def test_a_tree_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        assert [*LocalTree(tmp_path / "none").walk()]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        assert [*LocalTree(tmp_path / "file").walk()]


def test_a_file_that_goes_while_it_is_listed_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_AT_A_TIME", 1)
    for name in "abcdefghij":
        (tmp_path / name).touch()
    walk = LocalTree(tmp_path).walk()
    next(walk)
    (tmp_path / "j").unlink()
    assert [entry.path for entry in walk] == [*"bcdefghi"]


def test_what_becomes_a_folder_while_it_is_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_AT_A_TIME", 1)
    for name in "abcdefghij":
        (tmp_path / name).touch()
    walk = LocalTree(tmp_path).walk()
    next(walk)
    (tmp_path / "j").unlink()
    (tmp_path / "j").mkdir()
    with pytest.raises(OSError, match="changed into something else"):
        assert [*walk]


def test_links_and_sockets_are_named_as_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        found = {e.path: (e.kind, e.link) for e in LocalTree(tmp_path).walk()}
    kinds = [
        ("folder", EntryKind.FOLDER),
        ("link", EntryKind.LINK),
        ("pipe", EntryKind.OTHER),
        ("socket", EntryKind.OTHER),
    ]
    assert found == {name: (kind, "") for name, kind in kinds}
    found = {e.path: (e.kind, e.link) for e in LocalTree(tmp_path, Links.COPY).walk()}
    assert found["link"] == (EntryKind.LINK, "folder")


def test_links_are_followed_inside_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "file").write_bytes(b"abc")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").touch()
    links = {
        "b": "a",
        "c": "a/file",
        "d": "../outside",
        "e": "../outside/secret",
        "f": "nothing",
        "a/up": "..",
        "a/in": ".",
    }
    for name, to in links.items():
        (root / name).symlink_to(to)
    tree = LocalTree(root, Links.FOLLOW)
    found = {e.path: e.kind for e in tree.walk()}
    assert found == {
        "a": EntryKind.FOLDER,
        "a/file": EntryKind.FILE,
        "b": EntryKind.FOLDER,
        "b/file": EntryKind.FILE,
        "c": EntryKind.FILE,
        **dict.fromkeys(("a/up", "a/in", "b/up", "b/in", "d", "e", "f"), EntryKind.LINK),
    }
    assert tree.read("b/file", 1, 5) == b"bc"
    with pytest.raises(FileNotFoundError):
        tree.open("e")


def test_a_link_is_not_opened_unless_it_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        LocalTree(tmp_path).open("link")
    assert LocalTree(tmp_path, Links.FOLLOW).read("link", 0, 9) == b"abc"


def test_a_location_is_a_path_or_a_url(tmp_path: Path) -> None:
    assert open_tree(tmp_path.as_uri()).root == open_tree(str(tmp_path)).root == str(tmp_path)


def test_a_slow_disk_is_read_by_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in range(20):
        (tmp_path / f"{folder:02}").mkdir()
        for number in range(50):
            (tmp_path / f"{folder:02}" / f"{number}").touch()
    lstat, threads = os.lstat, Counter[str]()

    def slow(path: bytes) -> os.stat_result:
        time.sleep(0.0005)
        threads[threading.current_thread().name.partition("_")[0]] += 1
        return lstat(path)

    monkeypatch.setattr(os, "lstat", slow)
    monkeypatch.setattr(local, "_AT_A_TIME", 16)
    assert len([*LocalTree(tmp_path).walk()]) == 20 + 20 * 50
    assert threads["listing"] > 900, threads


@pytest.mark.slow
def test_a_walk_is_in_little_memory(tmp_path: Path) -> None:
    for folder in range(20):
        (tmp_path / f"{folder}").mkdir()
        for number in range(500):
            os.link(tmp_path / "one", tmp_path / f"{folder}" / f"{number}") if number or folder else (
                tmp_path / "one"
            ).touch()
    tracemalloc.start()
    assert sum(1 for _ in LocalTree(tmp_path).walk()) == 20 + 20 * 500
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000, "10,000 entries would take 5 MB"
