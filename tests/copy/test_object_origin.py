"""Files of S3 on their way: in parts, each of which is of the object that was planned, with few requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from airflow_gobblin.copy.blocks import Checksum
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.transfer import objects
from airflow_gobblin.copy.transfer.objects import PART, ObjectOrigin
from airflow_gobblin.copy.trees import open_tree
from airflow_gobblin.copy.trees.objects import ObjectTree
from airflow_gobblin.errors import SourceChangedError, SourceError
from tests.copy.copies import Copying
from tests.services.s3 import S3Access, S3Server
from tests.services.s3_proxy import Fault, Proxy

LARGE = os.urandom(3 * PART + 5)
CONTENT = {"a": b"a", "b/empty": b"", "b/exact": LARGE[:PART], "b/large": LARGE, "c/ä ~%20+": b"odd"}


@pytest.fixture(scope="module")
def store(versitygw: S3Server) -> Any:
    """Somebody else's access to the source."""
    return versitygw.access.filesystem()


@pytest.fixture
def access(versitygw: S3Server, s3_proxy: Proxy) -> S3Access:
    return versitygw.access.through(s3_proxy.endpoint)


@pytest.fixture
def origin(store: Any, access: S3Access, bucket: str) -> Iterator[ObjectOrigin]:
    for path, data in CONTENT.items():
        store.pipe_file(f"{bucket}/tree/{path}", data)
    tree = open_tree(access.url(f"{bucket}/tree"), access)
    assert isinstance(tree, ObjectTree)
    origin = ObjectOrigin(tree, ".")
    yield origin
    origin.close()


def entry_of(origin: ObjectOrigin, path: str) -> Entry:
    found = origin.tree.entry(path)
    assert found is not None
    return found


def read(origin: ObjectOrigin, path: str) -> bytes:
    return b"".join(origin.blocks(entry_of(origin, path)))


@pytest.mark.parametrize("path", CONTENT)
def test_each_file_arrives_whole(origin: ObjectOrigin, path: str, tmp_path: Path) -> None:
    assert read(origin, path) == CONTENT[path]
    checksum = Checksum(False)
    with (tmp_path / "copy").open("wb") as file:
        origin.copy_to_disk(entry_of(origin, path), file.fileno(), checksum)
    assert (tmp_path / "copy").read_bytes() == CONTENT[path]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[int]:
    """An open file."""
    with (tmp_path / "copy").open("wb") as file:
        yield file.fileno()


def test_parts_that_a_disk_gets_at_once_are_each_asked_for_again(
    origin: ObjectOrigin, s3_proxy: Proxy, tmp_path: Path, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_STREAMED", PART)
    s3_proxy.harm(Fault.INTERNAL_ERROR, "GET", path="/tree/b/large$", times=3)
    origin.copy_to_disk(entry_of(origin, "b/large"), target, Checksum(False))
    assert (tmp_path / "copy").read_bytes() == LARGE


@pytest.mark.parametrize("change", [LARGE[::-1], LARGE[:-6], None], ids=["other", "shorter", "gone"])
def test_a_disk_gets_no_part_of_a_file_that_changed(
    origin: ObjectOrigin, store: Any, bucket: str, tmp_path: Path, target: int, change: bytes | None
) -> None:
    entry = entry_of(origin, "b/large")
    store.rm_file(f"{bucket}/tree/b/large")
    if change is not None:
        store.pipe_file(f"{bucket}/tree/b/large", change)
    with pytest.raises(SourceChangedError):
        origin.copy_to_disk(entry, target, Checksum(False))
    assert (tmp_path / "copy").read_bytes() == b""


def test_no_part_is_written_once_a_copy_has_failed(
    origin: ObjectOrigin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_STREAMED", 1 << 20)
    (tmp_path / "copy").touch()
    read_only = os.open(tmp_path / "copy", os.O_RDONLY)
    entry = entry_of(origin, "b/large")
    with pytest.raises(OSError, match="Bad file"):
        origin.copy_to_disk(entry, read_only, Checksum(False))
    os.close(read_only)
    assert origin._pool._work_queue.empty()


@pytest.mark.parametrize("path", ["b/large", "c/ä ~%20+"])
def test_a_part_arrives_block_by_block(origin: ObjectOrigin, path: str) -> None:
    content, tree = CONTENT[path], origin.tree
    for start, end in ((0, len(content)), (1, len(content) - 1)):
        blocks, etag = tree.stream_part(path, start, end)
        arrived = [*blocks]
        assert b"".join(arrived) == content[start:end]
        assert (max(map(len, arrived)) <= 1 << 18, etag) == (True, entry_of(origin, path).stamp)


def test_a_part_that_is_not_there_is_no_part(origin: ObjectOrigin) -> None:
    with pytest.raises(OSError, match="answered 4"):
        origin.tree.stream_part("b/none", 0, 1)
    with pytest.raises(OSError, match="answered 416"):
        origin.tree.stream_part("a", 5, 6)


def test_a_part_that_breaks_off_goes_on_where_it_did(
    origin: ObjectOrigin, tmp_path: Path, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ObjectTree.stream_part

    def breaking(tree: ObjectTree, path: str, start: int, end: int) -> tuple[Iterator[bytes], str]:
        blocks, etag = whole(tree, path, start, end)
        return islice(blocks, 5), etag

    monkeypatch.setattr(ObjectTree, "stream_part", breaking)
    origin.copy_to_disk(entry_of(origin, "b/large"), target, Checksum(False))
    assert (tmp_path / "copy").read_bytes() == LARGE


def test_a_part_that_is_longer_than_was_asked_for_is_not_written_over_the_next(
    origin: ObjectOrigin, tmp_path: Path, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_STREAMED", PART)
    whole = ObjectTree.stream_part

    def longer(tree: ObjectTree, path: str, start: int, end: int) -> tuple[Iterator[bytes], str]:
        blocks, etag = whole(tree, path, start, end)
        return chain(blocks, [b"surplus"]), etag

    monkeypatch.setattr(ObjectTree, "stream_part", longer)
    monkeypatch.setattr(objects, "all_of", lambda pool, do, items: [do(item) for item in reversed(items)])
    origin.copy_to_disk(entry_of(origin, "b/large"), target, Checksum(False))
    assert (tmp_path / "copy").read_bytes() == LARGE


def test_small_files_are_read_many_at_once(
    store: Any, access: S3Access, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        store.pipe_file(f"{bucket}/tree/{number}", b"x")
    (tmp_path / "target").mkdir()
    copying = Copying(access.url(f"{bucket}/tree"), str(tmp_path / "target"), connections=access)
    unit, all_of_them, read_part = copying.unit(), Barrier(8, timeout=30), ObjectTree.read_part

    def meeting(tree: ObjectTree, path: str, start: int, end: int) -> tuple[bytes | memoryview, str]:
        all_of_them.wait()  # each waits for the others
        return read_part(tree, path, start, end)

    monkeypatch.setattr(ObjectTree, "read_part", meeting)
    result = copying.run(unit)
    assert (result.why, len(result.files)) == ("", 8)


def test_a_small_file_is_one_request(origin: ObjectOrigin, s3_proxy: Proxy) -> None:
    entry = entry_of(origin, "a")
    before = len(s3_proxy.seen)
    assert b"".join(origin.blocks(entry)) == b"a"
    assert len(s3_proxy.seen) == before + 1


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("a", bytes.upper),
        ("a", lambda data: data + b"more"),
        ("a", lambda data: b""),
        ("b/empty", lambda data: b"more"),
        ("b/large", lambda data: data[::-1]),
        ("b/large", lambda data: data[:-6]),
        ("c/ä ~%20+", bytes.upper),
    ],
)
def test_a_file_that_changed_is_named(
    origin: ObjectOrigin, store: Any, bucket: str, path: str, change: Callable[[bytes], bytes]
) -> None:
    entry = entry_of(origin, path)
    store.pipe_file(f"{bucket}/tree/{path}", change(CONTENT[path]))
    with pytest.raises(SourceChangedError, match=r"changed since it was planned"):
        b"".join(origin.blocks(entry))


@pytest.mark.parametrize("path", ["a", "b/empty", "b/large"])
def test_a_file_that_is_gone_is_named(origin: ObjectOrigin, store: Any, bucket: str, path: str) -> None:
    entry = entry_of(origin, path)
    store.rm_file(f"{bucket}/tree/{path}")
    with pytest.raises(SourceChangedError, match="is gone"):
        b"".join(origin.blocks(entry))


def test_a_file_that_changes_between_two_parts_is_named(origin: ObjectOrigin, store: Any, bucket: str) -> None:
    blocks = origin.blocks(entry_of(origin, "b/large"))
    next(blocks)
    store.pipe_file(f"{bucket}/tree/b/large", LARGE[::-1])
    try:
        rest = b"".join(blocks)
    except SourceChangedError:
        return
    assert rest == LARGE[PART:], "the parts on their way were all of the planned object"


def test_what_is_refused_once_is_asked_again(origin: ObjectOrigin, s3_proxy: Proxy) -> None:
    entry = entry_of(origin, "a")
    s3_proxy.harm(Fault.INTERNAL_ERROR, "GET", times=1)
    assert b"".join(origin.blocks(entry)) == b"a"


def test_a_file_that_may_not_be_read_is_named(origin: ObjectOrigin, s3_proxy: Proxy) -> None:
    entry = entry_of(origin, "a")
    s3_proxy.harm(Fault.DENIED, "GET", path="/tree/a$", times=float("inf"))
    with pytest.raises(SourceError, match=r"tree/a"):
        b"".join(origin.blocks(entry))
