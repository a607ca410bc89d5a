"""Attributes that change while the content stays: they are set in place, and no byte is copied."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gobblin.copy import bundles
from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.conversion.converters import Gzip
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.options import Keep
from airflow_gobblin.copy.owners import in_form
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.errors import ConfigurationError, StepError
from airflow_gobblin.model.plan import ActKind
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.attributes import ExpectedFile, FileAttributesStep
from airflow_gobblin.steps.base import StepContext, StepStatus, batches
from airflow_gobblin.steps.execution import carry_out
from airflow_gobblin.storage.files import Attributes, FileIdentity, Keeps, LocalFiles, acls
from tests.copy.made_trees import NOBODY, as_nobody, open_folder
from tests.copy.mirrors import Trees, statuses
from tests.services.environment import ROOT
from tests.services.mounts import HAS_BINDFS, MAY_MOUNT, mounted_through, mounted_with_whole_seconds

A = "a#files"
UNSHARE = ["unshare", "--user", "--map-root-user"]
"""Be root in a container that knows no other user."""
MAY_UNSHARE = (
    shutil.which("unshare") is not None
    and not subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode
)
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


# The look after publishing


def test_what_somebody_sets_while_a_file_is_published_is_set_back_by_the_same_run(tmp_path: Path) -> None:
    for new in (True, False):  # placed by one rename, and one by one
        trees = Trees(tmp_path / str(new), {"keep": Keep("p", permission=None), "existing": "update"})
        if not new:
            trees.write("a/before")
            assert statuses(trees.run()) == {A: "committed"}
        trees.write("a/file").chmod(0o640)
        trees.write("a/other").chmod(0o604)

        def open_to_all(trees: Trees) -> None:
            for name in trees.staged():
                if name.endswith(("/file", "/other")):
                    (trees.target / trees.opened().staging.folder / "s" / name).chmod(0o666)

        assert statuses(trees.run(between={"execute": open_to_all})) == {A: "committed"}
        assert [mode(trees.target / path) for path in ("a/file", "a/other")] == [0o640, 0o604]
        assert statuses(trees.run()) == {A: "idle"}


def test_files_are_looked_at_once_for_all_that_keep_the_same(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"keep": Keep("tp", group=os.getegid())})
    for number in range(30):
        trees.write(f"a/{number}").chmod(0o640 if number % 3 else 0o604)
    opened, _ = trees.decided()
    (slot,) = opened.journal.history(A).slots
    steps = [step for step in opened.journal.steps(slot.decision) if isinstance(step, FileAttributesStep)]
    assert sorted((step.attributes.mode, step.attributes.group, step.entries) for step in steps) == [
        (0o604, os.getegid(), 10),
        (0o640, os.getegid(), 20),
    ]
    trees = Trees(tmp_path / "times", {"keep": Keep("t")})
    trees.write("a/file")
    opened, _ = trees.decided()
    (slot,) = opened.journal.history(A).slots
    kinds = {type(step) for step in opened.journal.steps(slot.decision)}
    assert FileAttributesStep not in kinds, "its time is a part of a file's identity"


def test_steps_about_many_files_count_as_many(tmp_path: Path) -> None:
    some = tuple(ExpectedFile(f"{number}", FileIdentity(1, 2, "3")) for number in range(400))
    steps = [FileAttributesStep(some, Attributes(mode=number)) for number in range(5)]
    assert [len(batch) for batch in batches(steps, 1000)] == [3, 2]


# The step


def placed(root: Path) -> tuple[StepContext, FileIdentity]:
    files = LocalFiles(root)
    files.create("file").close()
    (root / "file").chmod(0o644)
    found = files.identity("file")
    assert found is not None
    return StepContext(files), found


def step_of(identity: FileIdentity, mode: int, *, strict: bool = False) -> FileAttributesStep:
    return FileAttributesStep((ExpectedFile("file", identity),), Attributes(mode=mode), strict)


def test_a_file_that_took_its_place_since_is_left(tmp_path: Path) -> None:
    context, identity = placed(tmp_path)
    step = step_of(identity, 0o600)
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
            carry_out(step_of(identity, 0o666), context, A, 1)
            strict = step_of(identity, 0o666, strict=True)
            with pytest.raises(StepError, match=r"attributes of file 'file'.*Operation not permitted"):
                carry_out(strict, context, A, 1)
        assert mode(folder / "file") == 0o644


def test_an_error_of_the_disk_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, identity = placed(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "chmod", fail)
    with pytest.raises(StepError, match="Input/output error"):
        carry_out(step_of(identity, 0o600), context, A, 1)


@root_only
def test_a_file_that_its_owner_may_not_read_is_set_too() -> None:
    with open_folder() as folder:
        context, identity = placed(folder)
        os.chown(folder / "file", NOBODY, NOBODY)
        (folder / "file").chmod(0)
        with as_nobody():
            carry_out(step_of(identity, 0o640), context, A, 1)
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


def test_the_type_of_checksums_is_reported_for_files_that_have_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").touch()
    of_disk = Entry("file", EntryKind.FILE, attributes=Attributes(mode=0o644))
    of_hdfs = Entry("other", EntryKind.FILE, attributes=Attributes(mode=0o644, replication=3))
    kept = KeptAttributes(Keep("c"))
    for entry in (of_disk, of_hdfs):
        kept.give(entry, str(tmp_path / entry.path))
    assert kept.metrics == {"not_kept_checksum_type": 1}
    assert [kept.letters(entry) for entry in (of_disk, of_hdfs)] == ["", "c"], "so in object stores"
    with pytest.raises(ConfigurationError, match="can't keep the checksum type of file 'other'"):
        KeptAttributes(Keep("c", strict=True)).give(of_hdfs, str(tmp_path / "other"))


# Attributes that a target can't keep


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BINDFS, reason="this needs root and bindfs (Debian: apt-get install bindfs)")
@pytest.mark.parametrize("policy", ["ignore", "deny"])
def test_a_target_that_keeps_no_permission_and_no_owner_is_reported_once(tmp_path: Path, policy: str) -> None:
    options = tuple(f"--{call}-{policy}" for call in ("chmod", "chown", "chgrp"))
    trees = Trees(tmp_path, {"keep": Keep("tpug"), "existing": "fail"})
    trees.write("a/file").chmod(0o604)
    os.chown(trees.source / "a/file", 1234, 4321)
    trees.write("a/folder/x").parent.chmod(0o750)
    with mounted_through(tmp_path / "disk", trees.target, options):
        for letters in (
            {"user", "group", "permission"},
            {"permission"},
        ):  # into a new target, and into one that is there
            assert statuses(trees.run()) == {A: "committed"}
            (unit,) = (one for one in trees.journal.history(A).slots[-1].decision.units if one.files)
            not_kept = unit.properties["not_kept"]
            assert isinstance(not_kept, dict)
            assert {*not_kept} == letters
            assert statuses(trees.run()) == {A: "idle"}
            (trees.source / "a/file").chmod(0o640)
            os.chown(trees.source / "a/file", 4321, 1234)
            assert statuses(trees.run()) == {A: "idle"}, "it can't be set, so it isn't what differs"
            trees.write("a/more").chmod(0o620)
        strict = trees.using(keep=Keep("tp", strict=True)).run()[A]
        assert strict.status == "failed"
        assert "the target keeps no permissions" in strict.text
        assert statuses(trees.using(keep=Keep("t", strict=True), existing="update").run()) == {A: "committed"}


@pytest.mark.skipif(not MAY_MOUNT, reason="this needs root, loop devices and mke2fs")
def test_a_target_that_keeps_times_in_seconds_is_like_its_source_then(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"keep": Keep("tp"), "existing": "fail"})
    for number, path in enumerate(("a/file", "a/folder/x")):
        os.utime(trees.write(path), ns=(1, 10**18 + number * 10**9 + 123_456_789))
    os.utime(trees.source / "a/folder", ns=(1, 10**18 + 987_654_321))
    with mounted_with_whole_seconds(tmp_path / "image", trees.target):
        assert statuses(trees.run()) == {A: "committed"}
        assert (trees.target / "a/folder").stat().st_mtime_ns == 10**18
        assert LocalFiles(trees.target).keeps.time == 10**9
        assert statuses(trees.run()) == {A: "idle"}


def test_what_isnt_kept_is_reported_once_for_all_bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = Trees(tmp_path, {"keep": Keep("t")})
    for number in range(3):
        trees.write(f"a/{number}")
    monkeypatch.setattr(bundles, "MOST_FILES", 1)
    monkeypatch.setattr(os, "utime", lambda *_, **__: None)
    report = trees.run()[A]
    assert report.status == "committed"
    assert report.detail.count("not kept: times of 3 files, the first is '0' (it has ") == 1
    assert report.detail.count("not kept") == 1
    assert "not kept" not in trees.run()[A].detail, "there is nothing to do"


def test_a_target_that_keeps_no_times_is_not_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = Trees(tmp_path, {"keep": Keep("t"), "existing": "update", "convert": (Gzip(),), "links": "copy"})
    trees.write("a/folder/x")
    (trees.source / "a/link").symlink_to("folder/x")
    monkeypatch.setattr(os, "utime", lambda *_, **__: None)
    assert statuses(trees.run()) == {A: "committed"}
    (unit,) = (one for one in trees.journal.history(A).slots[-1].decision.units if one.files)
    assert unit.properties["not_kept"]
    assert LocalFiles(trees.target).keeps.time == 0
    assert statuses(trees.run()) == {A: "idle"}
    trees.write("a/folder/x", "it has changed")
    assert statuses(trees.run()) == {A: "committed"}
    assert statuses(trees.using(keep=Keep("t", strict=True)).run()) == {A: "failed"}
    assert (trees.target / "a/folder/x.gz").exists()


def test_a_disk_of_ones_own_keeps_all(trees: Trees) -> None:
    found = LocalFiles(trees.target).keeps
    assert (found.time, found.permission, found.user) == (1, 0o7777, os.geteuid())
    assert found.sets_owners is (os.geteuid() == 0)
    assert not [path for path in (trees.target / "_gobblin").iterdir() if "tried" in path.name]


IN_CONTAINER = """
import sys
from pathlib import Path
from airflow_gobblin.copy.options import Keep
from airflow_gobblin.storage.files import LocalFiles
from tests.copy.mirrors import Trees, statuses

trees = Trees(Path(sys.argv[1]), {"keep": Keep("pug", owner=7), "existing": "fail"})
print([*statuses(trees.run()).values(), *statuses(trees.run()).values()])
(trees.source / "a/file").chmod(0o600)
print(statuses(trees.using(existing="update").run()), LocalFiles(trees.target).keeps.sets_owners)
"""


@pytest.mark.slow
@pytest.mark.skipif(not MAY_UNSHARE, reason="this kernel gives no user namespaces to this user")
def test_root_who_may_give_files_to_nobody_keeps_what_it_can(tmp_path: Path) -> None:
    Trees(tmp_path).write("a/file")
    command = [*UNSHARE, sys.executable, "-c", IN_CONTAINER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['committed', 'idle']", "{'a#files': 'committed'} False"]
    assert mode(tmp_path / "target/a/file") == 0o600
