"""Files that a mirror replaces or deletes are kept in a backup folder, none in place of another."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy.finders import WholeTree
from airflow_gobblin.copy.options import Delete
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import ShardRef
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps import execution
from airflow_gobblin.steps.base import CommitStep, Phase
from airflow_gobblin.steps.trash import discard
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.testing import inprocess
from tests import faults
from tests.copy.mirrors import Trees, statuses

A = "a#files"


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """A file set of which one file is to be replaced and one to be deleted, with a backup folder beside the target."""
    trees = Trees(tmp_path, {"delete": Delete(1), "workspace": str(tmp_path), "backup": str(tmp_path / "kept")})
    for path in ("same", "deep/changes", "deep/goes"):
        trees.write(f"a/{path}", f"former {path}")
    assert statuses(trees.run()) == {A: "committed"}
    trees.write("a/deep/changes", "has changed")
    (trees.source / "a/deep/goes").unlink()
    return trees


def kept(trees: Trees) -> dict[str, str]:
    """The content of the backup folder, by its path without the token."""
    folder = trees.folder / "kept"
    return {
        path.relative_to(folder).as_posix().partition("/")[2]: path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


FORMER = {"a/deep/changes": "former deep/changes", "a/deep/goes": "former deep/goes"}


def test_what_is_replaced_or_deleted_is_kept(trees: Trees) -> None:
    inodes = {(trees.target / path).stat().st_ino for path in FORMER}
    assert statuses(trees.run()) == {A: "committed"}
    assert (trees.equal(), kept(trees)) == (True, FORMER)
    found = [path for path in (trees.folder / "kept").rglob("*") if path.is_file()]
    assert {path.stat().st_ino for path in found} == inodes, "they are renamed, not copied"
    token = trees.journal.history(A).slots[-1].decision.token
    assert os.listdir(trees.folder / "kept") == [token]
    assert statuses(trees.run()) == {A: "idle"}


def test_each_run_keeps_what_it_replaces(trees: Trees) -> None:
    trees.run()
    for text in ("once more", "and again"):
        trees.write("a/deep/changes", text)
        trees.run()
    assert len(os.listdir(trees.folder / "kept")) == 3
    found = (path.read_text() for path in (trees.folder / "kept").rglob("changes"))
    assert sorted(found) == ["former deep/changes", "has changed", "once more"]


def test_in_our_own_folder_no_listing_has_it(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": WholeTree(), "delete": Delete(1)})
    trees = trees.using(backup=str(trees.target / "_gobblin/backup"))
    trees.write("file", "former")
    trees.run()
    trees.write("file", "has changed")
    for expected in ("committed", "idle"):
        assert statuses(trees.run()) == {"photos#files": expected}
    (found,) = (path for path in (trees.target / "_gobblin/backup").rglob("*") if path.is_file())
    assert (found.name, found.read_text()) == ("file", "former")


def test_a_file_that_somebody_changed_meanwhile_is_neither_replaced_nor_kept(trees: Trees) -> None:
    trees.decided()
    trees.write("a/deep/changes", "theirs", at=trees.target)
    reports = trees.run()
    assert statuses(reports) == {A: "failed"}
    assert "another file is there than the one that is to be replaced" in reports[A].text
    assert (trees.target / "a/deep/changes").read_text() == "theirs"


def test_a_slot_that_dies_between_the_two_renames_is_finished(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.decided()

    def dies(self: LocalFiles, source: str, target: str) -> None:
        raise OSError("it dies")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "rename_new", dies)
        with pytest.raises(GobblinError, match="it dies"):
            trees.run()
    assert not (trees.target / "a/deep/changes").exists()
    assert statuses(trees.run()) == {A: "idle"}
    assert (trees.equal(), kept(trees)) == (True, FORMER)


def test_one_that_is_abandoned_between_the_two_renames_puts_the_former_file_back(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, _ = trees.decided()
    decision = opened.journal.history(A).slots[-1].decision
    (step,) = (step for step in opened.journal.steps(decision, decision.of(Phase.PUBLISH)) if step.files())

    def dies(self: LocalFiles, source: str, target: str) -> None:
        raise OSError("it dies")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "rename_new", dies)
        with pytest.raises(OSError, match="it dies"):
            step.execute(opened.committer._context)
    assert not (trees.target / "a/deep/changes").exists()
    assert trees.admin.abandon(A, "it was a mistake")[0].abandoned
    assert (trees.target / "a/deep/changes").read_text() == "former deep/changes"
    assert statuses(trees.run()) == {A: "committed"}
    assert (trees.equal(), kept(trees)) == (True, FORMER)


@pytest.mark.slow
def test_a_power_failure_between_two_syncs_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is durable in its new folder only where that folder is."""
    monkeypatch.setattr(execution, "THREADS", 1)
    monkeypatch.setattr("os.fsync", faults.fsync)
    calls = carried_out(tmp_path / "first", monkeypatch)
    syncs = [number for number, call in enumerate(calls) if call.operation == "sync_folder"]
    assert len(syncs) > 5
    for number in syncs:
        carried_out(tmp_path / str(number), monkeypatch, fails_at=number)


def carried_out(folder: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int | None = None) -> list[faults.Call]:
    """Replace a file and delete one, and go on after a power failure at some call.

    :return: the calls.
    """
    trees = Trees(folder, {"delete": Delete(1), "workspace": str(folder), "backup": str(folder / "kept")})
    trees.write("a/deep/changes", "has changed")
    for path, text in FORMER.items():
        trees.write(path, text, at=trees.target)
    _, plan = trees.decided()
    disk = faults.Disk(faults.RealMedium(str(folder), f"{folder}-attic"))
    monkeypatch.setattr(faults, "plugged_in", [disk])
    fails = faults.Faults(fails_at, faults.Fault.POWER_LOSS, die=disk.lose_power)
    files = faults.FaultyFiles(LocalFiles(folder), fails, disk)
    with suppress(faults.Crash):
        execute_commit_steps(OpenJob(trees.mirror, trees.journal, NoConnections(), files), plan, plan.packs[0])
    assert fails.dead is (fails_at is not None)
    assert statuses(trees.run()) == {A: "idle"}
    assert (trees.equal(), kept(trees)) == (True, FORMER), fails_at
    return fails.calls


def test_without_a_rename_that_never_overwrites_it_is_done_by_links(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS."""
    monkeypatch.setattr("airflow_gobblin.storage.files.local._renameat2", lambda: None)
    assert statuses(trees.run()) == {A: "committed"}
    assert (trees.equal(), kept(trees)) == (True, FORMER)
    assert {path.stat().st_nlink for path in trees.folder.rglob("changes")} == {1}


def test_nothing_in_the_backup_folder_is_overwritten(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    for path, text in (("taken", "former"), ("kept/x", "another")):
        with files.create(path) as out:
            out.write(text.encode())
    discard(files, "taken", "kept/x")
    discard(files, "taken", "kept/x")  # another process does it, too
    assert sorted(files.read(path) for path in files.walk("kept")) == [b"another", b"former"]


def test_a_file_that_cant_be_kept_is_not_removed(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    for path in ("taken", "kept"):
        files.create(path).close()
    with pytest.raises(NotADirectoryError, match="not a folder is in its way"):
        discard(files, "taken", "kept/x")
    assert (tmp_path / "taken").exists()


@pytest.mark.parametrize(
    "backup", ["/elsewhere", "{}/target", "{}/target/in", "{}", "{}/_gobblin/claims", "{}/source/in"]
)
def test_a_backup_folder_in_another_place_is_refused(trees: Trees, backup: str) -> None:
    with pytest.raises(ConfigurationError, match="backup"):
        _ = trees.using(backup=backup.format(trees.folder)).mirror


@pytest.mark.parametrize("backup", ["{}/beside/_gobblin/claims", "{}/_gobblin/backup/claims"])
def test_what_is_our_own_is_no_backup_folder(trees: Trees, backup: str) -> None:
    with pytest.raises(ConfigurationError, match="not a folder of yours"):
        _ = trees.using(backup=backup.format(trees.folder)).mirror


@pytest.mark.parametrize("place", ["source/a", "target/a", "elsewhere"])
def test_a_backup_folder_that_is_a_link_is_refused_when_it_is_planned(trees: Trees, place: str) -> None:
    """Kept files would be mirrored themselves, or could not be renamed there."""
    (trees.folder / place).mkdir(exist_ok=True)
    (trees.folder / "kept").symlink_to(trees.folder / place)
    reports = trees.run()
    assert statuses(reports) == {A: "failed"}
    assert f"it is a link or another disk, or is in one, and leads to {trees.folder / place}" in reports[A].text
    (trees.folder / "kept").unlink()
    assert statuses(trees.run()) == {A: "committed"}
    assert (trees.equal(), kept(trees)) == (True, FORMER)


def test_a_backup_folder_on_another_disk_is_noticed_before_anything_is_replaced(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a folder of the same disk is mounted there. Later, the slot could neither be finished nor abandoned."""

    def refuses(self: LocalFiles, source: str, target: str) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "move_folder", refuses)
        reports = trees.run()
    assert statuses(reports) == {A: "failed"}
    assert "Invalid cross-device link" in reports[A].text
    assert len(trees.journal.history(A).slots) == 1
    assert (trees.target / "a/deep/changes").read_text() == "former deep/changes"
    assert statuses(trees.run()) == {A: "committed"}
    assert (trees.equal(), kept(trees)) == (True, FORMER)


def test_a_file_in_place_of_the_backup_folder_is_noticed_before_anything_is_replaced(trees: Trees) -> None:
    (trees.folder / "kept").write_text("theirs")
    reports = trees.run()
    assert statuses(reports) == {A: "failed"}
    assert "FileExistsError" in reports[A].text
    assert len(trees.journal.history(A).slots) == 1


def test_a_file_whose_name_would_be_too_long_in_the_backup_folder_is_not_deleted(trees: Trees) -> None:
    """Later, the slot could neither be finished nor abandoned."""
    trees = trees.using(backup=f"{trees.folder}/{'/'.join(['kept' * 50] * 3)}")
    names = ["long" * 50] * ((4095 - len(f"{trees.target}/a/")) // 201)
    above = os.open(trees.target / "a", os.O_RDONLY)
    for name in names[:-1]:
        os.mkdir(name, dir_fd=above)
        inner = os.open(name, os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = inner
    os.close(os.open(names[-1], os.O_CREAT, dir_fd=above))
    os.close(above)
    reports = trees.run()
    assert statuses(reports) == {A: "failed"}
    assert "would have too long a name in it" in reports[A].text
    assert len(trees.journal.history(A).slots) == 1
    assert (trees.target / "a" / "/".join(names)).exists()


def test_others_cant_look_into_what_is_kept(trees: Trees) -> None:
    """The files come from folders that others may not look into."""
    assert statuses(trees.run()) == {A: "committed"}
    (folder,) = (trees.folder / "kept").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO) == 0


def test_a_second_try_to_decide_finds_the_folder_that_the_first_one_made(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = trees.opened()
    plan = create_work_units(opened, RunRequest("monday"))
    inprocess.extract(opened, plan, NoConnections())

    def dies(self: Journal, urn: str, token: str, steps: Iterable[CommitStep]) -> tuple[ShardRef, ...]:
        assert [*steps]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "put_steps", dies)
        with pytest.raises(KeyboardInterrupt):
            write_commit_steps(opened, plan, plan.packs[0])
    assert [report.status for report in write_commit_steps(opened, plan, plan.packs[0])] == ["pending"]
    assert [report.status for report in execute_commit_steps(opened, plan, plan.packs[0])] == ["committed"]
    assert kept(trees) == FORMER


def test_objects_have_versions_instead() -> None:
    with pytest.raises(ConfigurationError, match="versions of the bucket"):
        Mirror("photos", "/srv/photos", "s3://bucket/photos", "unused", backup="s3://bucket/kept")
