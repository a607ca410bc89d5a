"""Plans from and to a bucket, where files have no folders, links or times of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.bundles import Bundle
from airflow_gobblin.copy.finders import WholeTree
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
from airflow_gobblin.copy.planning import find_file_sets, plan_copy
from airflow_gobblin.copy.trees.objects import ObjectTree
from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.errors import DifferenceError
from airflow_gobblin.job import WorkRequest
from airflow_gobblin.storage.files import open_files
from tests.services.s3 import S3Server

THEN = 1_600_000_000_123_456_789
NOW: Any = None


class Bucket:
    """A new bucket of a server, and mirrors to and from it."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.access = server.access
        self.name = server.create_bucket()
        self.url = server.access.url(f"{self.name}/lake")
        self.folder = folder
        self._client = server.access.filesystem()

    def put(self, content: Mapping[str, str], **metadata: str) -> None:
        for key, text in content.items():
            self._client.call_s3(
                "put_object", Bucket=self.name, Key=f"lake/{key}", Body=text.encode(), Metadata=metadata
            )

    def write(self, content: Mapping[str, str]) -> None:
        for path, text in content.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
            os.utime(self.folder / path, ns=(THEN, THEN))

    def up(self, **options: Any) -> list[Bundle]:
        return self._planned(CopyWork("m", str(self.folder), self.url, self.url, WholeTree(), **options))

    def down(self, **options: Any) -> list[Bundle]:
        target = str(self.folder)
        return self._planned(CopyWork("m", self.url, target, target, WholeTree(), **options))

    def _planned(self, work: CopyWork) -> list[Bundle]:
        connections = GuardedConnections(self.access)
        (dataset,) = find_file_sets(work, connections)
        found = plan_copy(work, dataset, {}, WorkRequest(NOW), open_files(work.target, self.access), connections)
        return [] if found is None else [Bundle.of(unit) for unit in found.units]


@pytest.fixture
def bucket(moto: S3Server, tmp_path: Path) -> Bucket:
    (tmp_path / "disk").mkdir()
    return Bucket(moto, tmp_path / "disk")


def copied(found: list[Bundle]) -> list[str]:
    return [file.entry.path for bundle in found for file in bundle.files]


def test_files_of_a_disk_are_compared_with_objects(bucket: Bucket) -> None:
    bucket.write({"a/new": "x", "a/same": "x", "longer": "xx"})
    bucket.put({"a/same": "x", "longer": "x", "gone/x": "x"})
    found = bucket.up(existing=Existing.UPDATE, delete=Delete(1))
    assert copied(found) == ["a/new", "longer"]
    (replaced,) = [file.replaces for bundle in found for file in bundle.files if file.replaces]
    assert replaced.inode == 0
    assert len(replaced.stamp) == 32
    assert [gone.path for bundle in found for gone in bundle.deletes] == ["gone/x"]
    assert not [bundle for bundle in found if bundle.folders or bundle.gone_folders], "a bucket has no folders"


def test_an_object_has_its_sources_time_in_its_metadata(bucket: Bucket) -> None:
    bucket.write(dict.fromkeys(("kept", "other", "without"), "x"))
    bucket.put({"kept": "x"}, **{"gobblin-mtime": str(THEN)})
    bucket.put({"other": "x"}, **{"gobblin-mtime": str(THEN + 1)})
    bucket.put({"without": "x"})
    assert bucket.up(existing=Existing.UPDATE) == [], "objects are newer"
    assert copied(bucket.up(existing=Existing.UPDATE, keep=Keep("t"))) == ["other", "without"]


def test_objects_are_compared_with_files_of_a_disk(bucket: Bucket) -> None:
    bucket.put({"a/b/c": "x", "d": "x", "e": "y"})
    found = bucket.down()
    assert copied(found) == ["a/b/c", "d", "e"]
    assert [folder.path for bundle in found for folder in bundle.folders] == ["a/b", "a"]
    bucket.write({"a/b/c": "x", "d": "x", "e": "x"})
    assert copied(bucket.down(existing=Existing.UPDATE)) == ["a/b/c", "d", "e"], "they are older"
    assert copied(bucket.down(existing=Existing.UPDATE, compare=Compare.CHECKSUM)) == ["e"]


def test_links_and_names_that_a_bucket_cannot_have_are_left_out_or_named(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.write({"a": "x"})
    (bucket.folder / "link").symlink_to("a")
    assert copied(bucket.up()) == ["a"]
    assert caplog.messages == [], "that is what was asked for"
    os.mkfifo(bucket.folder / "pipe")
    assert copied(bucket.up(links=Links.COPY)) == ["a"]
    (message,) = caplog.messages
    assert message.startswith("File set 'm#files': not copied, as they are links")
    assert message.endswith(": 'link', 'pipe'")
    assert copied(bucket.up(links=Links.FOLLOW)) == ["a", "link"]
    (bucket.folder / "out").symlink_to("/etc/passwd")
    with pytest.raises(
        DifferenceError, match=r"'out' of file set .* a link to '/etc/passwd', which is missing, out of"
    ):
        bucket.up(links=Links.FOLLOW)
    (bucket.folder / "out").unlink()
    bucket.write({"\udcff": "x"})
    with pytest.raises(DifferenceError, match=r"'\\\\xff' of file set 'm#files': the target can't have this name"):
        bucket.up()


@pytest.mark.parametrize("key", ["a//b", "/a", "a/../b", "./a"])
def test_keys_that_no_file_can_have_are_named_and_never_deleted(bucket: Bucket, key: str) -> None:
    bucket.put({key: "x", "plain": "x"})
    with pytest.raises(DifferenceError, match="the target can't have this name"):
        bucket.down()
    assert copied(bucket.down(exclude=(key[-1],))) == ["plain"]
    bucket.write({"plain": "x"})
    assert bucket.up(delete=Delete(1)) == []


def test_a_key_that_is_also_a_folder_is_named_for_a_disk_only(bucket: Bucket) -> None:
    bucket.put({"a": "x", "a/b": "x", "a.b": "x"})
    with pytest.raises(DifferenceError, match="'a': it is a file in the source and a folder in the source"):
        bucket.down()
    bucket.write({"a.b": "x"})
    gone = [gone.path for bundle in bucket.up(delete=Delete(1)) for gone in bundle.deletes]
    assert gone == ["a", "a/b"]


def test_between_two_stores_one_etag_is_one_content_and_nothing_is_read(
    moto: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another ETag both are read: the same content may have two, by how it was sent."""
    source, target = Bucket(moto, tmp_path), Bucket(moto, tmp_path)
    target.put({"same": "abc", "other": "abc"})
    source.put({"same": "abc", "other": "abd"})
    work = CopyWork("m", source.url, target.url, target.url, WholeTree(), existing=Existing.UPDATE)
    opened: list[str] = []
    real = ObjectTree.open

    def opening(tree: ObjectTree, path: str) -> BinaryIO:
        opened.append(path)
        return real(tree, path)

    monkeypatch.setattr(ObjectTree, "open", opening)
    assert copied(source._planned(replace(work, compare=Compare.CHECKSUM))) == ["other"]
    assert opened == ["other", "other"]
