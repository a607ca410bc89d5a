"""Bad input: it is named, its file set is left unpublished, the others are published, and the run is red."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin.copy import finders
from airflow_gobblin.copy.finders import CopyableDataset, DatePartitions, EachFolder, FileSet, Glob, WholeTree
from airflow_gobblin.copy.options import Delete, Keep, Links
from airflow_gobblin.copy.trees import Tree
from airflow_gobblin.errors import ConfigurationError, GobblinError, SourceError
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.wire import record
from airflow_gobblin.testing import inprocess
from tests.copy.made_trees import NOBODY, open_folder, process_of_nobody
from tests.copy.mirrors import Trees, content, statuses
from tests.copy.test_mirror_s3 import OneConnection
from tests.services.s3 import S3Server

A, B = "a#files", "b#files"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make it")


@pytest.fixture
def trees() -> Iterator[Trees]:
    """Two file sets, in a folder that everybody may write to."""
    with open_folder() as folder:
        trees = Trees(folder)
        for name in "ab":
            for path in ("deep/file", "other"):
                trees.write(f"{name}/{path}")
        trees.target.mkdir()
        trees.target.chmod(0o777)
        yield trees


def fails(trees: Trees, *expected: str) -> None:
    """A run publishes `a`, names what is bad about `b`, and publishes nothing of it."""
    reports = trees.run()
    assert statuses(reports) == {A: "committed", B: "failed"}, reports[B].text
    assert [part for part in expected if part not in reports[B].text] == [], reports[B].text
    assert not reports[B].ok, "the run is red"
    assert trees.equal("a")
    assert not (trees.target / "b/other").exists()


def heals(trees: Trees) -> None:
    """The next run publishes `b`, and the one after it finds nothing to do."""
    assert trees.run()[B].status in ("committed", "recovered", "idle")
    assert statuses(trees.run()) == {A: "idle", B: "idle"}
    assert trees.equal("b")


# The source


def test_a_missing_source_is_named_and_nothing_is_deleted(trees: Trees) -> None:
    """Such as one that isn't mounted."""
    trees = trees.using(delete=Delete(1))
    trees.run()
    before = content(trees.target)
    trees.source.rename(trees.folder / "elsewhere")
    with pytest.raises(SourceError, match=f"No such file or directory: '{trees.source}'. Is it mounted"):
        trees.run()
    trees.source.mkdir()
    with pytest.raises(SourceError, match="finds none there"):
        trees.run()
    assert content(trees.target) == before


def test_a_missing_source_that_is_one_dataset_is_named(trees: Trees) -> None:
    trees = trees.using(datasets=WholeTree())
    trees.source.rename(trees.folder / "elsewhere")
    with pytest.raises(SourceError, match=f"can't list {trees.source} .* Nothing is copied or deleted by a part of"):
        trees.run()


def test_a_pattern_that_matches_nothing_is_named(trees: Trees) -> None:
    with pytest.raises(SourceError, match=r"Glob\(pattern='c\*'\) finds none there. Correct the source, the finder or"):
        trees.using(datasets=Glob("c*")).run()
    assert content(trees.target) == {}


def test_a_file_that_may_not_be_read(trees: Trees) -> None:
    (trees.source / "b/deep/file").chmod(0)

    expected = (f"can't read file '{trees.source}/b/deep/file'", "Permission denied", "exclude it")
    process_of_nobody(lambda: fails(trees, *expected))


def test_a_folder_that_may_not_be_listed(trees: Trees) -> None:
    (trees.source / "b/deep").chmod(0)
    process_of_nobody(lambda: fails(trees, "can't list", f"{trees.source}/b/deep", "Permission denied"))


def test_a_link_that_leads_nowhere_or_out_of_the_source(trees: Trees) -> None:
    trees = trees.using(links=Links.FOLLOW)
    (trees.source / "b/link").symlink_to("/etc/passwd")
    fails(trees, "'link' of file set 'b#files'", "a link to '/etc/passwd'")
    (trees.source / "b/link").unlink()
    heals(trees)


@pytest.mark.parametrize("links", [Links.SKIP, Links.FOLLOW])
def test_a_file_set_behind_a_link_that_is_not_followed(
    trees: Trees, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a year of partitions that lies on another disk."""
    outside, day = trees.folder / "another", "2026/03/01"
    monkeypatch.setattr(finders, "_now", datetime(2026, 3, 1, tzinfo=UTC).astimezone)
    trees.write(f"a/{day}/other")
    trees.write(f"{day[5:]}/other", at=outside)
    (trees.source / "b" / day[:4]).symlink_to(outside)
    reports = trees.using(datasets=DatePartitions(days=0), links=links).run()
    assert statuses(reports) == {f"a#{day}": "committed", f"b#{day}": "failed"}
    assert f"'b/{day[:4]}' is a link, which isn't followed" in reports[f"b#{day}"].text
    (trees.source / "b" / day[:4]).unlink()
    outside.rename(trees.source / "years")
    (trees.source / "b" / day[:4]).symlink_to("../years")
    reports = trees.using(datasets=DatePartitions(days=0), links=Links.FOLLOW).run()
    assert statuses(reports) == {f"a#{day}": "idle", f"b#{day}": "committed"}


# The target


@pytest.mark.parametrize("way", ["link", "link above"])
def test_a_target_that_lies_in_the_source_through_a_link_is_refused(trees: Trees, way: str) -> None:
    (trees.folder / "link").symlink_to(trees.source)
    inside = trees.folder / "link" / ("" if way == "link" else "a/copy")
    mirror = Mirror("photos", str(trees.source), str(inside), "unused")
    before = content(trees.source)
    with pytest.raises(ConfigurationError, match="one lies in the other"):
        inprocess.run(inprocess.open_job(mirror))
    assert {path for path in content(trees.source) if "_gobblin" not in path} == {*before}


def test_two_mirrors_into_one_place(trees: Trees) -> None:
    first = trees.using(datasets=Glob("b"))
    assert statuses(first.run()) == {B: "committed"}
    trees.write("b/more")
    reports = Trees(trees.folder).run()
    assert statuses(reports) == {A: "committed", B: "failed"}
    assert "belongs to this ingestion and dataset in journal" in reports[B].text


@root_only
def test_a_folder_of_the_target_that_may_not_be_written_to(trees: Trees) -> None:
    (trees.target / "b").mkdir()

    def mirror() -> None:
        fails(trees, "user 65534 may not change '.' in the target", "Nothing was changed")
        assert trees.journal.history(B).slots == (), "nothing is decided"
        fails_again = trees.run()
        assert statuses(fails_again) == {A: "idle", B: "failed"}

    process_of_nobody(mirror)


@pytest.mark.slow
@root_only
def test_only_folders_that_something_changes_in_have_to_be_writable(trees: Trees) -> None:
    trees = trees.using(delete=Delete(1))
    (trees.target / "b/deep").mkdir(parents=True)
    shutil.copy2(trees.source / "b/deep/file", trees.target / "b/deep/file")
    (trees.target / "b").chmod(0o777)

    def mirror() -> None:
        assert statuses(trees.run()) == {A: "committed", B: "committed"}
        assert trees.equal("b")

    process_of_nobody(mirror)
    trees = Trees(trees.folder, trees.options)
    shutil.rmtree(trees.target / "_gobblin")
    (trees.source / "b/deep/file").unlink()

    def delete() -> None:
        reports = trees.run()
        assert statuses(reports) == {A: "idle", B: "failed"}
        assert "user 65534 may not change 'deep' in the target" in reports[B].text

    process_of_nobody(delete)


@root_only
def test_a_file_that_only_its_owner_may_remove(trees: Trees) -> None:
    trees.write("b/other", "an older one", at=trees.target)
    os.utime(trees.target / "b/other", ns=(1, 1))
    (trees.target / "b").chmod(0o1777)

    def mirror() -> None:
        reports = trees.run()
        assert statuses(reports) == {A: "committed", B: "failed"}
        assert "user 65534 may not change 'other' in the target" in reports[B].text
        assert trees.journal.history(B).slots == ()

    process_of_nobody(mirror)


@root_only
def test_a_folder_of_the_target_that_is_mounted_to_be_read_only(trees: Trees) -> None:
    (trees.target / "b").mkdir()
    with small_disk(trees.target / "b", "2m"):
        subprocess.run(["mount", "-o", "remount,ro", str(trees.target / "b")], check=True)
        fails(trees, "user 0 may not change '.' in the target", "is it mounted")
        assert trees.journal.history(B).slots == ()


@pytest.mark.slow
@root_only
def test_a_target_that_may_not_be_written_to(trees: Trees) -> None:
    trees.target.chmod(0o755)

    def mirror() -> None:
        with pytest.raises(GobblinError, match=f"{trees.target}.*Permission denied"):
            trees.run()

    process_of_nobody(mirror)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a small file system."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting isn't allowed here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@root_only
def test_a_target_without_room(trees: Trees) -> None:
    (trees.source / "b/large").write_bytes(os.urandom(3 << 20))
    with small_disk(trees.target, "2m"):
        fails(trees, "'large'", "No space left on device", "Make room")
        assert not [path for path in trees.staged() if "/large" in path], "the written part of it is removed"
        subprocess.run(["mount", "-o", "remount,size=64m", str(trees.target)], check=True)
        heals(trees)


@root_only
def test_a_target_without_room_for_one_more_name(trees: Trees) -> None:
    for number in range(200):
        trees.write(f"b/{number}")
    with small_disk(trees.target, "8m,nr_inodes=120"):
        fails(trees, "No space left on device")
        subprocess.run(["mount", "-o", "remount,nr_inodes=4000", str(trees.target)], check=True)
        heals(trees)


@root_only
def test_an_owner_without_a_name_is_kept_by_number(trees: Trees) -> None:
    os.chown(trees.source / "b/other", 54321, 54322)
    trees = trees.using(keep=Keep("ug"))
    assert statuses(trees.run()) == {A: "committed", B: "committed"}
    copy = (trees.target / "b/other").stat()
    assert (copy.st_uid, copy.st_gid) == (54321, 54322)


@root_only
def test_an_owner_that_cant_be_kept_and_has_to(trees: Trees) -> None:
    for path in (trees.source, *trees.source.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.chown(trees.source / "b/other", 54321, NOBODY)
    strict = trees.using(keep=Keep("u", strict=True))
    process_of_nobody(lambda: fails(strict, "the user of file 'other'", "Operation not permitted"))


@record("tests.owned")
@dataclass(frozen=True)
class Owned:
    """Each folder is a dataset. The copies of `b` are to belong to somebody whom no host knows."""

    def find(self, tree: Tree, mirror: str) -> Iterable[CopyableDataset]:
        return map(_Owned, tree.folders())


@dataclass(frozen=True)
class _Owned:
    urn: str

    def file_sets(self, tree: Tree) -> list[FileSet]:
        keep = Keep(owner="no-such-user") if self.urn == "b" else None
        return [FileSet(self.urn, "files", self.urn, self.urn, keep=keep)]


def test_an_owner_that_nobody_knows(trees: Trees) -> None:
    fails(trees.using(datasets=Owned()), "this host knows no user 'no-such-user'", "Nothing was changed")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_something_else_where_a_file_should_be(trees: Trees, kind: str) -> None:
    there = trees.target / "b/deep/file"
    there.parent.mkdir(parents=True)
    there.mkdir() if kind == "folder" else os.mkfifo(there)
    fails(trees, "deep/file")
    there.rmdir() if kind == "folder" else there.unlink()
    heals(trees)


def test_a_path_that_is_too_long_for_the_target(trees: Trees) -> None:
    """The source can just hold it."""
    room = 4090 - len(f"{trees.source}/b/")
    names = ["x" * 200] * (room // 201)
    at = os.open(trees.source / "b", os.O_RDONLY)
    for name in names[:-1]:
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open(names[-1], os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)
    target = trees.folder / ("t" * 100) / ("t" * 200)
    target.mkdir(parents=True)

    class Longer(Trees):
        @property
        def target(self) -> Path:
            return target

    longer = Longer(trees.folder)
    fails(longer, "File name too long", "rename or exclude")
    shutil.rmtree(trees.source / "b" / names[0])
    heals(longer)


def test_a_key_that_is_too_long_for_s3(trees: Trees, moto: S3Server) -> None:
    bucket, connections = moto.create_bucket(), OneConnection(moto.access.connection)
    long = "/".join(["ü" * 100] * 5 + ["x" * 19])
    trees.write(f"b/{long}")
    for file in trees.source.rglob("*"):
        os.utime(file, (1, 1))  # the store keeps its times in seconds: a file written in this one would look newer
    mirror = Mirror("photos", str(trees.source), f"s3://store@{bucket}/p", "unused", EachFolder())
    assert len(f"p/b/{long}".encode()) == 1028
    opened = inprocess.open_job(mirror, connections)
    reports = inprocess.run(opened, connections)
    assert statuses(reports) == {A: "committed", B: "failed"}
    assert "1,028 bytes" in reports[B].text
    assert opened.files.identity("b/other") is None
    (trees.source / "b" / long).rename(trees.source / "b" / long[:-4])
    reports = inprocess.run(opened, connections)
    assert statuses(reports) == {A: "idle", B: "committed"}
