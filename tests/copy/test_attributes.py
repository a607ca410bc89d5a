"""Attributes that change while the content stays: they are set in place, and no byte is copied."""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.options import Keep
from airflow_gobblin.copy.owners import in_form
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.errors import ConfigurationError, StepError
from airflow_gobblin.model.plan import ActKind
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.attributes import FileAttributesStep
from airflow_gobblin.steps.base import StepContext, StepStatus
from airflow_gobblin.steps.execution import carry_out
from airflow_gobblin.storage.files import Attributes, FileIdentity, Keeps, LocalFiles, acls
from tests.copy.made_trees import NOBODY, as_nobody, open_folder
from tests.copy.mirrors import Trees, statuses

A = "a#files"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """A file set that was mirrored, with permissions."""
    trees = Trees(tmp_path, {"keep": Keep("p"), "links": "copy"})
    trees.write("a/file").chmod(0o640)
    trees.write("a/deep/other").chmod(0o604)
    assert statuses(trees.run()) == {A: "committed"}
    return trees


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_permission_is_set_in_place(trees: Trees) -> None:
    before = (trees.target / "a/file").stat()
    (trees.source / "a/file").chmod(0o400)
    (prospect,) = would_plan(trees.opened(), RunRequest("r")).datasets
    assert prospect.outline is not None
    assert prospect.outline.counts == {ActKind.ATTRIBUTES: 1}
    assert statuses(trees.run()) == {A: "committed"}
    after = (trees.target / "a/file").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert mode(trees.target / "a/file") == 0o400
    assert statuses(trees.run()) == {A: "idle"}


def test_what_somebody_else_set_in_the_target_is_set_back(trees: Trees) -> None:
    (trees.target / "a/deep/other").chmod(0o666)
    assert statuses(trees.run()) == {A: "committed"}
    assert mode(trees.target / "a/deep/other") == 0o604
    assert statuses(trees.using(keep=Keep("t")).run()) == {A: "committed"}, "times weren't kept before"
    (trees.target / "a/deep/other").chmod(0o666)
    assert statuses(trees.using(keep=Keep("t")).run()) == {A: "idle"}, "permissions aren't kept"


def test_such_a_file_differs_as_one_with_another_content_does(trees: Trees) -> None:
    (trees.source / "a/file").chmod(0o400)
    assert statuses(trees.using(existing="skip").run()) == {A: "idle"}
    report = trees.using(existing="fail").run()[A]
    assert report.status == "failed"
    assert "1 file of the target differ from the source's: 'file'" in report.text
    assert mode(trees.target / "a/file") == 0o640


@root_only
def test_owners_of_files_and_of_links_are_set_in_place(trees: Trees) -> None:
    (trees.source / "a/link").symlink_to("file")
    trees = trees.using(keep=Keep("ugp"))
    trees.run()
    paths = [trees.target / path for path in ("a/file", "a/link")]
    before = [path.lstat().st_ino for path in paths]
    for path in ("a/file", "a/link"):
        os.chown(trees.source / path, 1234, 4321, follow_symlinks=False)
    (trees.source / "a/file").chmod(0o6750)
    assert statuses(trees.run()) == {A: "committed"}
    assert [path.lstat().st_ino for path in paths] == before
    assert [(path.lstat().st_uid, path.lstat().st_gid) for path in paths] == [(1234, 4321)] * 2
    assert mode(paths[0]) == 0o6750
    assert statuses(trees.run()) == {A: "idle"}


@root_only
def test_a_user_without_rights_sets_what_it_can_and_plans_nothing_else() -> None:
    with open_folder() as folder:
        trees = Trees(folder, {"keep": Keep("ugp")})
        trees.write("a/file")
        trees.write("a/roots", at=trees.target)
        for path in (trees.target, trees.target / "a"):
            path.chmod(0o777)
        os.utime(trees.write("a/roots"), ns=(1, 1))

        with as_nobody():
            trees.run()
            assert statuses(trees.run()) == {A: "idle"}
        os.chown(trees.source / "a/file", 1234, 4321)
        (trees.source / "a/file").chmod(0o6711)
        (trees.source / "a/roots").chmod(0o600)
        with as_nobody():
            assert statuses(trees.run()) == {A: "committed"}
            assert statuses(trees.run()) == {A: "idle"}
        assert mode(trees.target / "a/file") == 0o711, "special bits mean something else for another owner"
        assert mode(trees.target / "a/roots") == 0o644


# The step


def placed(root: Path) -> tuple[StepContext, FileIdentity]:
    files = LocalFiles(root)
    files.create("file").close()
    (root / "file").chmod(0o644)
    found = files.identity("file")
    assert found is not None
    return StepContext(files), found


def test_a_file_that_took_its_place_since_is_left(tmp_path: Path) -> None:
    context, identity = placed(tmp_path)
    step = FileAttributesStep("file", identity, Attributes(mode=0o600))
    (tmp_path / "file").rename(tmp_path / "before")
    assert step.verify(context) is StepStatus.DONE, "it is gone"
    step.execute(context)
    (tmp_path / "file").write_bytes(b"theirs")
    (tmp_path / "file").chmod(0o644)
    assert step.verify(context) is StepStatus.DONE
    step.execute(context)
    assert mode(tmp_path / "file") == 0o644
    (tmp_path / "before").rename(tmp_path / "file")
    assert [carry_out(step, context, A, 1) for _ in range(2)] == [True, False]
    assert mode(tmp_path / "file") == 0o600


@root_only
def test_what_cant_be_set_is_an_error_only_if_it_is_asked_for() -> None:
    with open_folder() as folder:
        context, identity = placed(folder)
        with as_nobody():
            carry_out(FileAttributesStep("file", identity, Attributes(mode=0o666)), context, A, 1)
            strict = FileAttributesStep("file", identity, Attributes(mode=0o666), strict=True)
            with pytest.raises(StepError, match=r"attributes of file 'file'.*Operation not permitted"):
                carry_out(strict, context, A, 1)
        assert mode(folder / "file") == 0o644


def test_an_error_of_the_disk_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, identity = placed(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "chmod", fail)
    with pytest.raises(StepError, match="Input/output error"):
        carry_out(FileAttributesStep("file", identity, Attributes(mode=0o600)), context, A, 1)


@root_only
def test_a_file_that_its_owner_may_not_read_is_set_too() -> None:
    with open_folder() as folder:
        context, identity = placed(folder)
        os.chown(folder / "file", NOBODY, NOBODY)
        (folder / "file").chmod(0)
        with as_nobody():
            carry_out(FileAttributesStep("file", identity, Attributes(mode=0o640)), context, A, 1)
        assert mode(folder / "file") == 0o640


# Access control lists, extended attributes


NO_ID = 0xFFFFFFFF


def with_list(path: Path, mode: int = 0o660) -> Path:
    """Give a file a list and an extended attribute, as nothing of ours does."""
    os.chmod(path, mode)
    entries = [
        (0x01, mode >> 6, NO_ID),
        (0x02, 6, 1234),
        (0x04, 4, NO_ID),
        (0x10, mode >> 3 & 7, NO_ID),
        (0x20, 0, NO_ID),
    ]
    stored = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bits, who) for tag, bits, who in entries)
    os.setxattr(path, "system.posix_acl_access", stored)
    os.setxattr(path, "user.origin", b"here")
    return path


def test_lists_and_extended_attributes_are_copied_and_then_set_in_place(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"keep": Keep("ax")})
    with_list(trees.write("a/file"))
    trees.write("a/plain")
    assert statuses(trees.run()) == {A: "committed"}
    source, target = trees.source / "a/file", trees.target / "a/file"
    assert named(target) == named(source)
    assert named(trees.target / "a/plain") == {}
    assert statuses(trees.run()) == {A: "idle"}
    inode = target.stat().st_ino
    os.removexattr(source, "system.posix_acl_access")
    os.setxattr(source, "user.origin", b"there")
    os.setxattr(target, "user.more", b"theirs")
    assert statuses(trees.run()) == {A: "committed"}
    assert named(target) == named(source) == {"user.origin": b"there"}
    assert (mode(target), target.stat().st_ino) == (mode(source), inode)
    with_list(trees.target / "a/plain")
    assert statuses(trees.run()) == {A: "committed"}
    assert named(trees.target / "a/plain") == {}
    assert statuses(trees.run()) == {A: "idle"}


def named(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def test_a_list_that_a_folder_hands_down_is_taken_from_what_has_none(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"keep": Keep("a")})
    trees.target.mkdir()
    of_new = (
        "default:group::r-x",
        "default:mask::rwx",
        "default:other::---",
        "default:user:1234:rwx",
        "default:user::rwx",
    )
    os.setxattr(trees.target, acls.DEFAULT, acls.encoded(of_new, 0o755)[1])
    trees.write("a/file").chmod(0o640)
    assert statuses(trees.run()) == {A: "committed"}
    assert named(trees.target / "a/file") == named(trees.target / "a") == {}
    assert mode(trees.target / "a/file") == 0o640
    assert statuses(trees.run()) == {A: "idle"}


def test_where_a_list_cant_be_kept_nobody_may_do_more_than_with_it() -> None:
    asked = Attributes(mode=0o660, acl=("group::r--", "user:1234:rw-"))
    assert in_form(asked, Keeps()) == Attributes(mode=0o640)
    assert in_form(asked, Keeps(acl=True)) == asked
    unknown = Attributes(mode=0o660, acl=("group::---", "user:54321:rw-"))
    assert in_form(unknown, Keeps(acl=True, names=True)) == Attributes(mode=0o600)
    known = Attributes(mode=0o660, acl=("group::r--", "user:0:rw-"))
    assert in_form(known, Keeps(acl=True, names=True)).acl == ("group::r--", "user:root:rw-")
    assert in_form(in_form(known, Keeps(acl=True, names=True)), Keeps(acl=True)) == known


@pytest.mark.parametrize(("letters", "lost"), [("a", "pa"), ("x", "x"), ("rb", "rb")])
def test_what_a_store_of_objects_keeps_none_of_is_reported_once(tmp_path: Path, letters: str, lost: str) -> None:
    (tmp_path / "file").touch()
    with_list(tmp_path / "file")
    tree = LocalTree(tmp_path, keep=Keep(letters))
    (entry,) = tree.walk()
    kept = KeptAttributes(Keep(letters))
    assert kept.letters(entry) == lost.strip("rb"), "a disk has no blocks of its own"
    from_hdfs = replace(entry, attributes=replace(entry.attributes, replication=3, block_size=1 << 20))
    assert kept.letters(from_hdfs) == lost


def test_what_a_disk_cant_keep_is_named_by_its_letter(tmp_path: Path) -> None:
    entry = Entry("file", EntryKind.FILE, attributes=Attributes(replication=3, block_size=1 << 20))
    path = tmp_path / "file"
    path.touch()
    kept = KeptAttributes(Keep("rb"))
    kept.give(entry, str(path))
    assert kept.metrics == {"not_kept_replication": 1, "not_kept_block_size": 1}
    with pytest.raises(
        ConfigurationError, match="can't keep the replication of file 'file': it has none there, in place of 3"
    ):
        KeptAttributes(Keep("r", strict=True)).give(entry, str(path))
