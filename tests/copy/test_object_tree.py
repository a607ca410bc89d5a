"""The walk of a tree in a bucket: the same entries in the same order as on a disk, from real servers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from airflow_gobblin.copy.entries import EntryKind, key_of
from airflow_gobblin.copy.trees import always, open_tree
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.copy.trees.objects import ObjectTree
from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.storage.locations import object_location
from airflow_gobblin.testing.trees import NAMES, ODD_NAMES
from tests.proofs import one_in
from tests.services.s3 import S3Server

pytestmark = one_in(2, "server")

PATHS = ["a", *NAMES, *ODD_NAMES]


@pytest.fixture(params=["versitygw", "moto"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def put(server: S3Server) -> Callable[..., ObjectTree]:
    """Put objects below a prefix, and open the tree there."""
    bucket = server.create_bucket()

    def put(*paths: str, content: bytes = b"x") -> ObjectTree:
        place = object_location(server.access.url(f"{bucket}/lake/raw"))
        assert place is not None
        filesystem = open_filesystem(place, server.access)

        def one(path: str) -> None:
            filesystem.call_s3("put_object", Bucket=bucket, Key=f"lake/{path}", Body=content)

        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(one, ("beside", "rawer/x", *(f"raw/{path}" for path in paths)))]
        tree = open_tree(server.access.url(f"{bucket}/lake/raw"), server.access)
        assert isinstance(tree, ObjectTree)
        return tree

    return put


def in_pages_of(tree: ObjectTree, count: int, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let a tree be listed in small pages.

    :return: the arguments of each request.
    """
    asked: list[dict[str, Any]] = []
    page = tree._page

    def small(prefix: str, **arguments: Any) -> Any:
        asked.append({"Prefix": prefix, **arguments})
        return page(prefix, **{"MaxKeys": count, **arguments})

    monkeypatch.setattr(tree, "_page", small)
    return asked


@pytest.mark.parametrize("page", [2, 5, 1000])
def test_a_walk_is_that_of_a_disk(
    put: Callable[..., ObjectTree], page: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = [path for path in PATHS if path != "a"]  # "a" is a folder, too, in no tree on a disk
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    tree = put(*paths)
    in_pages_of(tree, page, monkeypatch)
    for enter in (always, lambda folder: folder not in ("b/c", "ab")):
        mine, disk = (
            [(key_of(e), e.kind, e.size * (e.kind is EntryKind.FILE)) for e in t.walk(enter=enter)]
            for t in (tree, LocalTree(tmp_path))
        )
        closed = {b"b/c/", b"ab/"} if enter is not always else {b""}
        assert mine == [of for of in disk if of[0] not in closed]
    assert [e.path for e in tree.walk("b/c")] == [e.path for e in LocalTree(tmp_path).walk("b/c")]
    assert [*tree.folders("b")] == [*LocalTree(tmp_path).folders("b")] == ["c"]
    assert [*tree.folders()] == [*LocalTree(tmp_path).folders()]


def test_an_entry_is_as_the_store_has_it(put: Callable[..., ObjectTree], server: S3Server) -> None:
    tree = put("a/b", "c")
    listed = {entry.path: entry for entry in tree.walk()}
    assert tree.entry("c") == listed["c"]
    assert (listed["c"].size, listed["c"].inode, len(listed["c"].stamp)) == (1, 0, 32)
    assert listed["c"].modified % 1000 == 0
    assert listed["c"].modified > 1_700_000_000_000_000_000
    found = [tree.entry(path) for path in (".", "a", "none", "a/none")]
    assert [entry and (entry.path, entry.kind) for entry in found] == [
        (".", EntryKind.FOLDER),
        ("a", EntryKind.FOLDER),
        None,
        None,
    ]
    at = f"{tree.root.removeprefix('s3://')}/kept"
    server.access.filesystem().pipe_file(at, b"x", Metadata={"gobblin-mtime": "1234567890123456789"})
    kept = tree.entry("kept")
    assert kept is not None
    assert kept.modified == 1234567890123456789, "the time of its source, which a listing doesn't have"


def test_files_are_read_whole_and_in_parts(put: Callable[..., ObjectTree]) -> None:
    tree = put("a", content=b"0123456789")
    with tree.open("a") as file:
        assert file.read() == b"0123456789"
    assert tree.read("a", 3, 4) == b"3456"
    with pytest.raises(FileNotFoundError):
        tree.read("none", 0, 1)


def test_what_is_ours_and_objects_for_folders_are_no_files(put: Callable[..., ObjectTree]) -> None:
    put("a/", "b/", "", content=b"")
    tree = put("_gobblin/s/staged", "a/_gobblin/x", "c", "b/d")
    assert [(e.path, e.kind.value) for e in tree.walk()] == [
        ("a", "folder"),
        ("a/_gobblin", "folder"),
        ("a/_gobblin/x", "file"),
        ("b", "folder"),
        ("b/d", "file"),
        ("c", "file"),
    ]
    assert [e.path for e in tree.walk("a")] == []
    assert [*tree.folders()] == ["a", "b"]


def test_a_prefix_without_objects_is_an_error(put: Callable[..., ObjectTree]) -> None:
    tree = put("a/b")
    for listing in (tree.walk("none"), tree.folders("none"), tree.walk("a/b")):
        with pytest.raises(FileNotFoundError):
            assert [*listing]


def test_a_page_that_fails_is_an_error(put: Callable[..., ObjectTree], monkeypatch: pytest.MonkeyPatch) -> None:
    tree = put(*(f"{folder}/{number}" for folder in "abc" for number in range(5)), "d")
    asked = in_pages_of(tree, 2, monkeypatch)
    page, failing = tree._page, -1

    def refusing(prefix: str, **arguments: Any) -> Any:
        if len(asked) == failing:
            raise OSError("Please reduce your request rate")
        return page(prefix, **arguments)

    monkeypatch.setattr(tree, "_page", refusing)
    assert len([*tree.walk()]) == 3 + 3 * 5 + 1
    requests = len(asked)
    assert requests > 8
    for failing in range(requests):  # noqa: B007  # `refusing` reads it
        asked.clear()
        with pytest.raises(OSError, match="reduce your request rate"):
            assert [*tree.walk()]


def test_several_folders_are_listed_at_once(put: Callable[..., ObjectTree], monkeypatch: pytest.MonkeyPatch) -> None:
    tree = put(*(f"{folder}/{number}" for folder in "abc" for number in range(5)))
    in_pages_of(tree, 4, monkeypatch)
    page, both = tree._page, Barrier(2, timeout=30)

    def meeting(prefix: str, **arguments: Any) -> Any:
        if prefix.endswith(("/a/", "/b/")) and not arguments:
            both.wait()  # the first page of each waits for that of the other
        return page(prefix, **arguments)

    monkeypatch.setattr(tree, "_page", meeting)
    assert len([*tree.walk()]) == 3 + 3 * 5


def test_folders_that_are_not_entered_are_not_listed(
    put: Callable[..., ObjectTree], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = put(*(f"{folder}/{number:02}" for folder in "ab" for number in range(40)), "a/x/1", "b/1/2/3")
    asked = in_pages_of(tree, 4, monkeypatch)
    found = [e.path for e in tree.walk(enter=lambda folder: folder != "a")]
    assert found == ["b", *sorted([*(f"b/{number:02}" for number in range(40)), "b/1", "b/1/2", "b/1/2/3"])]
    assert not [one for one in asked[1:] if one["Prefix"].endswith("/a/")], "the first page of all is what showed it"
    asked.clear()
    assert [e.path for e in tree.walk("a", enter=lambda folder: False)] == [f"a/{number:02}" for number in range(40)]
    del asked[:]
    monkeypatch.setattr(tree, "_folder", lambda path: "lake/raw/")
    assert next(tree.walk()).path == "a"
    assert len(asked) < 12
