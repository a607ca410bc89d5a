"""Copies from and to S3, on real servers: by parts, on condition of the planned ETag, and within a store by the store."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.copy import objects
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.options import Keep
from airflow_gobblin.model.work import UnitResult, UnitState
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.files.s3_uploads import PART_BYTES
from tests.copy.copies import STAGING, Copying
from tests.copy.made_trees import seen
from tests.services.s3 import S3Server
from tests.services.s3_proxy import Fault, Proxy

CONTENTS = {
    "a": b"one",
    "b/é x+%.jpg": b"two" * 1000,
    "b/empty": b"",
    "c": os.urandom(PART_BYTES + (1 << 20)),
    "d\te": b"a name that only one client takes",
}


@pytest.fixture(params=["versitygw", "moto"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


def put(server: S3Server, place: str, contents: dict[str, bytes]) -> None:
    bucket, _, prefix = place.partition("/")
    for key, content in contents.items():
        server.admin.call_s3("put_object", Bucket=bucket, Key=f"{prefix}/{key}", Body=content)


def at(server: S3Server, prefix: str) -> str:
    return f"{server.create_bucket()}/{prefix}"


def down(server: S3Server, tmp_path: Path, contents: dict[str, bytes] = CONTENTS) -> Copying:
    place = at(server, "photos/2026")
    put(server, place, contents)
    (tmp_path / "target").mkdir()
    return Copying(server.access.url(place), f"{tmp_path}/target", Keep("t"), connections=server.access)


def up(server: S3Server, tmp_path: Path, contents: dict[str, bytes] = CONTENTS) -> Copying:
    for path, content in contents.items():
        file = tmp_path / "source" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    target = server.access.url(at(server, "lake"))
    return Copying(f"{tmp_path}/source", target, Keep("t"), folder="photos", connections=server.access)


def copied(copying: Copying, **options: Any) -> UnitResult:
    result = copying.run(**options)
    assert result.state is UnitState.SUCCESSFUL, result.failure
    return result


def failed(copying: Copying, **options: Any) -> str:
    """The failure of a copy that leaves neither file nor upload."""
    result = copying.run(**options)
    assert (result.state, result.files) == (UnitState.FAILED, ())
    files = open_files(copying.target, copying.connections)
    if files.uploads is not None:
        assert [*files.uploads.open_below(".")] == []
    assert [*files.walk(STAGING)] == []
    return result.why


def published(copying: Copying, result: UnitResult) -> dict[str, bytes]:
    """The objects of a result, once its uploads are completed."""
    files = open_files(copying.target, copying.connections)
    assert [*files.walk(".")] == []
    for file in result.files:
        assert file.upload is not None
        assert files.uploads is not None
        assert files.uploads.stands(file.path, file.upload)
        files.uploads.complete(file.path, file.upload)
        found = files.identity(file.path)
        assert found is not None
        assert (found.size, found.stamp) == (file.size, file.stamp)
    return {file.path.removeprefix("photos/"): files.read(file.path) for file in result.files}


@pytest.mark.parametrize("checksums", [False, True])
def test_objects_come_to_a_disk(server: S3Server, tmp_path: Path, checksums: bool) -> None:
    copying = down(server, tmp_path)
    copying.checksums = checksums
    entries = copying.entries()
    result = copied(copying)
    found = seen(copying.staged(result))
    assert {os.fsdecode(path): file.content for path, file in found.items()} == CONTENTS
    assert {os.fsdecode(path): file.modified for path, file in found.items()} == {e.path: e.modified for e in entries}
    if checksums:
        assert [f.checksum for f in result.files] == [hashlib.sha256(CONTENTS[e.path]).hexdigest() for e in entries]


@pytest.mark.parametrize("checksums", [False, True])
def test_files_become_open_uploads(server: S3Server, tmp_path: Path, checksums: bool) -> None:
    copying = up(server, tmp_path)
    copying.checksums = checksums
    result = copied(copying)
    for file, entry in zip(result.files, copying.entries(), strict=True):
        assert file.path == f"photos/{entry.path}"
        assert file.checksum == (hashlib.sha256(CONTENTS[entry.path]).hexdigest() if checksums else "")
    assert published(copying, result) == CONTENTS
    target = Copying(f"{copying.target}/photos", "", connections=server.access)
    times = {entry.path: target.tree.entry(entry.path) for entry in copying.entries()}
    assert {path: found and found.modified for path, found in times.items()} == {
        entry.path: entry.modified for entry in copying.entries()
    }


@pytest.mark.parametrize("checksums", [False, True])
def test_a_store_copies_its_own_objects(
    versitygw: S3Server, s3_proxy: Proxy, tmp_path: Path, checksums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "COPY_BYTES", 5 << 20)  # the least that S3 takes
    place = at(versitygw, "photos/2026")
    put(versitygw, place, CONTENTS)
    access = versitygw.access.through(s3_proxy.endpoint)
    target = access.url(at(versitygw, "lake"))
    copying = Copying(access.url(place), target, Keep("t"), checksums=checksums, folder="photos", connections=access)
    unit = copying.unit()
    s3_proxy.seen.clear()
    result = copied(copying, unit=unit)
    read = {Path(r.path).name for r in s3_proxy.seen if r.method == "GET" and "/photos/2026/" in r.path}
    assert checksums or read <= {"empty"}, "no byte of an object comes to us"
    assert published(copying, result) == CONTENTS


def test_an_object_that_changed_fails_by_name(server: S3Server, tmp_path: Path) -> None:
    copying = down(server, tmp_path, {"a": b"one", "b": b"two"})
    unit = copying.unit()
    put(server, copying.source.partition("@")[2], {"b": b"2nd"})
    assert "SourceChangedError: can't copy file 's3://" in (why := failed(copying, unit=unit))
    assert "/photos/2026/b': it changed since it was planned" in why
    server.admin.call_s3("delete_object", **where(copying, "b"))
    assert "/photos/2026/b': it was there when it was planned, and is gone" in failed(copying, unit=unit)


def where(copying: Copying, key: str) -> dict[str, str]:
    bucket, _, prefix = copying.source.partition("@")[2].partition("/")
    return {"Bucket": bucket, "Key": f"{prefix}/{key}"}


@pytest.mark.parametrize("quick", [True, False])
def test_an_object_that_changes_between_two_parts_fails_by_name(
    versitygw: S3Server, tmp_path: Path, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = down(versitygw, tmp_path, {"a": os.urandom(40 << 20)})
    if not quick:
        monkeypatch.setattr(objects, "open_s3_reads", lambda *_: None)
    real = objects.S3Origin._read

    def read(origin: objects.S3Origin, entry: Entry, start: int, end: int) -> tuple[bytes, str]:
        if start == 20 << 20:
            put(versitygw, copying.source.partition("@")[2], {"a": os.urandom(40 << 20)})
        return real(origin, entry, start, end)

    monkeypatch.setattr(objects.S3Origin, "_read", read)
    assert "/photos/2026/a': it changed since it was planned" in failed(copying)


def test_an_object_of_the_same_store_that_changed_fails_by_name(versitygw: S3Server) -> None:
    place = at(versitygw, "photos")
    put(versitygw, place, {"a": b"one"})
    url = versitygw.access.url
    copying = Copying(url(place), url(at(versitygw, "lake")), connections=versitygw.access)
    unit = copying.unit()
    put(versitygw, place, {"a": b"two"})
    assert "it changed since it was planned" in failed(copying, unit=unit)


def test_a_name_that_isnt_utf8_is_refused_by_name(versitygw: S3Server, tmp_path: Path) -> None:
    copying = up(versitygw, tmp_path, {"a": b"one"})
    Path(os.fsdecode(os.fsencode(copying.source) + b"/\xff")).touch()
    assert r"can't write the copy of '\\xff'" in (why := failed(copying))
    assert "rename or exclude it" in why


def test_a_link_is_refused_by_name(versitygw: S3Server, tmp_path: Path) -> None:
    copying = up(versitygw, tmp_path, {"a": b"one"})
    Path(copying.source, "link").symlink_to("a")
    assert "can't copy link 'link'" in failed(copying)


@pytest.mark.parametrize("fault", [Fault.DENIED, Fault.INTERNAL_ERROR])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_upload_that_fails_leaves_nothing(
    versitygw: S3Server, s3_proxy: Proxy, tmp_path: Path, fault: Fault, method: str
) -> None:
    copying = up(versitygw, tmp_path, {"a": b"one", "b": b"two"})
    copying.connections = versitygw.access.through(s3_proxy.endpoint)
    s3_proxy.harm(fault, method, "/photos/b", times=float("inf"))
    assert "StoreError: can't write the copy of 'b'" in failed(copying)


def test_a_read_that_fails_once_is_repeated(versitygw: S3Server, s3_proxy: Proxy, tmp_path: Path) -> None:
    copying = down(versitygw, tmp_path, {"a": b"one"})
    unit = copying.unit()
    copying.connections = versitygw.access.through(s3_proxy.endpoint)
    s3_proxy.harm(Fault.DROP_ANSWER, "GET", "/a")
    assert [file.content for file in seen(copying.staged(copied(copying, unit=unit))).values()] == [b"one"]


def test_no_secret_is_shown(versitygw: S3Server, s3_proxy: Proxy, tmp_path: Path) -> None:
    copying = down(versitygw, tmp_path, {"a": b"one"})
    unit = copying.unit()
    s3_proxy.harm(Fault.DENIED, "GET", times=float("inf"))
    access = versitygw.access.through(s3_proxy.endpoint)
    copying.connections = access
    result = copying.run(unit)
    assert result.failure is not None
    assert "can't read file" in result.why
    assert access.secret not in repr(result)


def test_parts_of_a_huge_file_are_as_many_as_s3_takes() -> None:
    assert objects.part_size(1 << 20, PART_BYTES) == PART_BYTES
    size = 5 << 40
    assert -(-size // objects.part_size(size, PART_BYTES)) <= 10_000


def test_a_file_that_is_larger_than_its_window_is_read_in_order(versitygw: S3Server, tmp_path: Path) -> None:
    content = secrets.token_bytes(1000) * 60_000
    copying = down(versitygw, tmp_path, {"a": content})
    copying.checksums = True
    assert copied(copying).files[0].checksum == hashlib.sha256(content).hexdigest()


def test_an_entry_of_another_kind_is_refused(versitygw: S3Server, tmp_path: Path) -> None:
    copying = up(versitygw, tmp_path, {"a": b"one"})
    assert "can't copy other 'pipe'" in failed(copying, unit=copying.unit([Entry("pipe", EntryKind.OTHER)]))
