"""Mirrors from a disk to a real HDFS, from there to another folder of it, and back."""

from __future__ import annotations

import gzip
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.conversion.converters import Gunzip
from airflow_gobblin.copy.finders import EachFolder, WholeTree
from airflow_gobblin.copy.options import Delete, Existing, Keep, Links
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import acls, open_files
from airflow_gobblin.storage.files.hdfs import HdfsFiles
from airflow_gobblin.testing import inprocess
from tests.copy.copies import Copying
from tests.copy.hostile_archives import tar
from tests.copy.mirrors import content, statuses
from tests.copy.test_reuse import copying
from tests.services.hdfs import Hdfs

THEN = 1_600_000_000_123_456_789
OPTIONS: dict[str, Any] = {"existing": Existing.UPDATE, "delete": Delete(1)}


def write(file: Path, text: str) -> None:
    """Write a file of some time ago."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, ns=(THEN, THEN))


def files_of(found: dict[str, bytes | str]) -> dict[str, bytes | str]:
    return {path: data for path, data in found.items() if data != "/"}


def test_a_tree_goes_to_hdfs_and_comes_back_whole(hdfs: Hdfs, tmp_path: Path) -> None:
    folder, source, copy = hdfs.create_folder(), tmp_path / "source", tmp_path / "copy"
    options = {**OPTIONS, "keep": Keep("tpug")}
    there = Mirror("there", str(source), hdfs.url(f"{folder}/one"), "unused", EachFolder(), **options)
    across = Mirror("across", hdfs.url(f"{folder}/one"), hdfs.url(f"{folder}/two"), "unused", WholeTree(), **options)
    back = Mirror("back", hdfs.url(f"{folder}/two"), str(copy), "unused", WholeTree(), **options)
    jobs = [inprocess.open_job(mirror, hdfs) for mirror in (there, across, back)]
    write(source / "a/one", "one")
    write(source / "a/deep/two #1?%", "two")
    write(source / "b/three ü", "three")
    (source / "a/one").chmod(0o640)
    (source / "a/deep").chmod(0o750)
    for folders in ("a/deep", "a", "b"):
        os.utime(source / folders, ns=(THEN, THEN))

    def run() -> list[dict[str, str]]:
        return [statuses(inprocess.run(job)) for job in jobs]

    committed, idle = {"a#files": "committed", "b#files": "committed"}, {"a#files": "idle", "b#files": "idle"}
    assert run() == [committed, {"across#files": "committed"}, {"back#files": "committed"}]
    assert content(copy) == content(source)
    assert (copy / "a/one").stat().st_mode & 0o7777 == 0o640
    assert (copy / "a/deep").stat().st_mode & 0o7777 == 0o750
    assert (copy / "a/one").stat().st_mtime_ns == THEN // 1_000_000 * 1_000_000
    assert run() == [idle, {"across#files": "idle"}, {"back#files": "idle"}]

    write(source / "a/one", "one has changed")
    (source / "b/three ü").unlink()
    write(source / "b/four", "four")
    assert run() == [committed, {"across#files": "committed"}, {"back#files": "committed"}]
    assert files_of(content(copy)) == files_of(content(source))
    assert run() == [idle, {"across#files": "idle"}, {"back#files": "idle"}]
    files = open_files(hdfs.url(f"{folder}/one"), hdfs)
    assert not [path for path in files.walk("_gobblin") if "/s/" in path], "no staged file and no trash is left"


def test_lists_extended_attributes_and_blocks_go_to_hdfs_across_it_and_back(hdfs: Hdfs, tmp_path: Path) -> None:
    folder, source, copy = hdfs.create_folder(), tmp_path / "source", tmp_path / "copy"
    options: dict[str, Any] = {**OPTIONS, "keep": Keep("ax")}
    one, two = hdfs.url(f"{folder}/one"), hdfs.url(f"{folder}/two")
    across = {**options, "keep": Keep("axrb")}
    jobs = [
        inprocess.open_job(Mirror("there", str(source), one, "unused", **options), hdfs),
        inprocess.open_job(Mirror("across", one, two, "unused", **across), hdfs),
        inprocess.open_job(Mirror("back", two, str(copy), "unused", **options), hdfs),
    ]
    for name in ("file", "plain"):
        write(source / f"a/{name}", name)
    (source / "a/file").chmod(0o660)
    user = pwd.getpwnam("daemon").pw_uid
    os.setxattr(source / "a/file", acls.ACCESS, acls.encoded(("group::r--", f"user:{user}:rw-"), 0o660)[0])
    of_new = (
        "default:group::r-x",
        "default:mask::r-x",
        "default:other::---",
        f"default:user:{user}:r-x",
        "default:user::rwx",
    )
    os.setxattr(source / "a", acls.DEFAULT, acls.encoded(of_new, 0o755)[1])
    os.setxattr(source / "a/file", "user.origin", b"\0here")
    os.setxattr(source / "a/file", "user.empty", b"")

    def run() -> list[str]:
        return [status for job in jobs for status in statuses(inprocess.run(job)).values()]

    assert run() == ["committed"] * 3
    client = hdfs.client()
    listed = client.get("GETACLSTATUS", f"/{folder}/two/a/file")["AclStatus"]
    assert (listed["entries"], listed["permission"]) == (["user:daemon:rw-", "group::r--"], "660")
    for path in ("a", "a/file", "a/plain"):
        assert named(copy / path) == named(source / path), path
        assert (copy / path).stat().st_mode == (source / path).stat().st_mode
    assert run() == ["idle"] * 3

    ids = client.status(f"/{folder}/one/a/file"), client.status(f"/{folder}/two/a/file")
    client.set("SETREPLICATION", f"/{folder}/one/a/file", replication="2")
    os.removexattr(source / "a/file", "user.empty")
    os.setxattr(source / "a/file", "user.origin", b"there")
    os.removexattr(source / "a/file", acls.ACCESS)
    (source / "a/file").chmod(0o604)
    assert run() == ["committed"] * 3
    assert named(copy / "a/file") == {"user.origin": b"there"}
    assert (copy / "a/file").stat().st_mode & 0o7777 == 0o604
    for before, path in zip(ids, ("one", "two"), strict=True):
        after = client.status(f"/{folder}/{path}/a/file")
        assert before is not None
        assert after is not None
        assert (after["fileId"], after["replication"]) == (before["fileId"], 2), "it was set in place"
    assert run() == ["idle"] * 3


def named(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def test_the_size_of_blocks_is_that_of_the_source(hdfs: Hdfs) -> None:
    folder, client = hdfs.create_folder(), hdfs.client()
    out = client.create(f"/{folder}/one/file", blocksize=str(2 << 20), replication="2")
    out.write(b"x")
    out.close()
    mirror = Mirror("m", hdfs.url(f"{folder}/one"), hdfs.url(f"{folder}/two"), "unused", keep=Keep("rb"), **OPTIONS)
    job = inprocess.open_job(mirror, hdfs)
    assert statuses(inprocess.run(job)) == {"m#files": "committed"}
    copy = client.status(f"/{folder}/two/file")
    assert copy is not None
    assert (copy["blockSize"], copy["replication"]) == (2 << 20, 2)
    assert statuses(inprocess.run(job)) == {"m#files": "idle"}


def test_copies_and_new_folders_get_owner_and_permission(hdfs: Hdfs, tmp_path: Path) -> None:
    folder, client = hdfs.create_folder(), hdfs.client()
    write(tmp_path / "a/deep/file", "file")
    keep = Keep("t", owner="etl", group="lake", permission=0o640, folder_permission=0o750)
    mirror = Mirror(
        "m", str(tmp_path), hdfs.url(folder), "unused", EachFolder(), place="new/{folder}", keep=keep, **OPTIONS
    )
    job = inprocess.open_job(mirror, hdfs)
    assert statuses(inprocess.run(job)) == {"a#files": "committed"}
    for path, permission in (("", "750"), ("/a", "750"), ("/a/deep", "750"), ("/a/deep/file", "640")):
        found = client.status(f"/{folder}/new{path}")
        assert found is not None
        assert (found["owner"], found["group"], found["permission"]) == ("etl", "lake", permission), path
    assert statuses(inprocess.run(job)) == {"a#files": "idle"}
    client.set("SETOWNER", f"/{folder}/new/a/deep/file", owner="ann")
    assert statuses(inprocess.run(job)) == {"a#files": "committed"}
    assert statuses(inprocess.run(job)) == {"a#files": "idle"}


def test_files_are_converted_and_unpacked_on_their_way_to_hdfs(hdfs: Hdfs, tmp_path: Path) -> None:
    target = hdfs.url(hdfs.create_folder())
    options = {**OPTIONS, "convert": (Gunzip(),), "unpack": Unpack()}
    job = inprocess.open_job(Mirror("there", str(tmp_path), target, "unused", **options), hdfs)
    for text in ("one", "two"):
        (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode()))
        (tmp_path / "x.tar").write_bytes(tar(("deep/b", text.encode())))
        assert statuses(inprocess.run(job)) == {"there#files": "committed"}
        assert {path: job.files.read(path) for path in ("a", "x/deep/b")} == {
            "a": text.encode(),
            "x/deep/b": text.encode(),
        }
        assert statuses(inprocess.run(job)) == {"there#files": "idle"}


def test_owners_are_kept_by_their_names_and_what_is_not_is_reported(hdfs: Hdfs, tmp_path: Path) -> None:
    target = hdfs.url(hdfs.create_folder())
    for name in ("mine", "nobodys", "special"):
        write(tmp_path / f"source/{name}", name)
    os.chown(tmp_path / "source/nobodys", 54321, 54321)
    (tmp_path / "source/special").chmod(0o2755)
    copying = Copying(str(tmp_path / "source"), target, Keep("ugp"), connections=hdfs)
    result = copying.run()
    assert result.failure is None
    not_kept = result.properties["not_kept"]
    assert isinstance(not_kept, dict)
    found = {letter: (of["files"], str(of["first"]).partition(" (")[0]) for letter, of in not_kept.items()}  # type: ignore[index, call-overload]
    assert found == {"user": (1, "'nobodys'"), "group": (1, "'nobodys'"), "permission": (1, "'special'")}
    files = open_files(target, hdfs)
    assert isinstance(files, HdfsFiles)
    mine = files.client.status(files.at(result.files[0].path))
    assert mine is not None
    assert mine["owner"] == pwd.getpwuid(os.getuid()).pw_name
    copying.keep = Keep("u", strict=True)
    failed = copying.run(attempt="a1").failure
    assert "can't keep the user of file 'nobodys'" in str(failed)


def decide(opened: OpenJob, hdfs: Hdfs) -> RunPlan:
    """Carry out a run up to its decisions."""
    plan = create_work_units(opened, RunRequest("r"))
    inprocess.extract(opened, plan, hdfs)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
    return plan


def test_what_somebody_else_wrote_is_neither_replaced_nor_deleted(hdfs: Hdfs, tmp_path: Path) -> None:
    folder = hdfs.create_folder()
    mirror = Mirror("m", str(tmp_path / "source"), hdfs.url(folder), "unused", **OPTIONS)
    for name in ("replaced", "deleted", "kept"):
        write(tmp_path / f"source/{name}", name)
    opened = inprocess.open_job(mirror, hdfs)
    assert statuses(inprocess.run(opened)) == {"m#files": "committed"}
    write(tmp_path / "source/new", "new")
    write(tmp_path / "source/replaced", "replaced by another one")
    (tmp_path / "source/deleted").unlink()
    plan, client = decide(opened, hdfs), hdfs.client()
    for name in ("new", "replaced", "deleted"):
        client.delete(f"/{folder}/{name}")
        out = client.create(f"/{folder}/{name}")
        out.write(b"theirs")
        out.close()
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    for name in ("new", "replaced", "deleted"):
        assert opened.files.read(name) == b"theirs"
    assert opened.journal.history("m#files").state.pending is not None


def test_an_abandoned_slot_leaves_everything_and_the_next_plan_does_it(hdfs: Hdfs, tmp_path: Path) -> None:
    mirror = Mirror("m", str(tmp_path / "source"), hdfs.url(hdfs.create_folder()), "unused", **OPTIONS)
    for name in ("replaced", "deleted"):
        write(tmp_path / f"source/{name}", name)
    opened = inprocess.open_job(mirror, hdfs)
    assert statuses(inprocess.run(opened)) == {"m#files": "committed"}
    write(tmp_path / "source/new", "new")
    write(tmp_path / "source/replaced", "replaced by another one")
    (tmp_path / "source/deleted").unlink()
    decide(opened, hdfs)
    admin = Administration(opened.journal, mirror.target, "ann", hdfs)
    assert admin.abandon("m#files", "a mistake")[0].abandoned
    assert sorted(opened.files.identities(".")) == ["_gobblin", "deleted", "replaced"]
    assert opened.files.read("replaced") == b"replaced"
    assert statuses(inprocess.run(opened)) == {"m#files": "committed"}
    assert opened.files.read("new") == b"new"
    assert opened.files.identity("deleted") is None


def test_links_and_names_with_a_colon_stay_out_of_hdfs(hdfs: Hdfs, tmp_path: Path) -> None:
    write(tmp_path / "source/a/one", "one")
    (tmp_path / "source/a/link").symlink_to("one")
    write(tmp_path / "source/b/one:two", "no")
    target = hdfs.url(hdfs.create_folder())
    mirror = Mirror("m", str(tmp_path / "source"), target, "unused", EachFolder(), links=Links.COPY, **OPTIONS)
    opened = inprocess.open_job(mirror, hdfs)
    found = inprocess.run(opened)
    assert statuses(found) == {"a#files": "committed", "b#files": "failed"}
    assert [*opened.files.walk("a")] == ["a/one"]


def test_a_user_who_may_not_write_there_is_refused(hdfs: Hdfs, tmp_path: Path) -> None:
    write(tmp_path / "source/one", "one")

    class Nobody:
        def uri(self, conn_id: str) -> str:
            return hdfs.connection("nobody-special")

    mirror = Mirror("m", str(tmp_path / "source"), hdfs.url(hdfs.create_folder()), "unused", **OPTIONS)
    with pytest.raises(GobblinError, match="Permission denied"):
        inprocess.run(inprocess.open_job(mirror, Nobody()))


def test_finished_copies_are_taken_by_renames(hdfs: Hdfs, tmp_path: Path) -> None:
    """Of a plan that is given up, and of a try that failed."""
    folder, source = hdfs.create_folder(), tmp_path / "source"
    for number in range(6):
        write(source / f"deep/{number}", str(number))
    opened = inprocess.open_job(Mirror("there", str(source), hdfs.url(folder), "unused", **OPTIONS), hdfs)
    for bad, expected in (("deep/4", 5), ("deep/4", 0)):
        with copying(bad) as read:
            assert statuses(inprocess.run(opened)) == {"there#files": "failed"}
        assert len(read) == expected
    write(source / "deep/2", "changed")
    with copying() as read:
        assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    assert sorted(entry.path for entry in read) == ["deep/2", "deep/4"], "by threads, in any order"
    texts = ["0", "1", "changed", "3", "4", "5"]
    assert [opened.files.read(f"deep/{number}").decode() for number in range(6)] == texts
    assert statuses(inprocess.run(opened)) == {"there#files": "idle"}
