"""The steps that move files and folders: what they find, what they do, and what they never do."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.errors import StepConflictError, StepLostError
from airflow_gobblin.journal.records import Shard
from airflow_gobblin.model import wire
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.steps.base import CommitStep, StepContext, StepStatus, batches
from airflow_gobblin.steps.execution import carry_out, step_error
from airflow_gobblin.steps.publishing import FolderStep, MoveStep, publish_folder
from airflow_gobblin.storage.files import FileIdentity, LocalFiles

CONTENT = b"".join(b"row %d\n" % n for n in range(100))
SOURCE, TARGET = "staging/u0-0.txt", "flights/token-u0-0.txt"


class Bench:
    """A staged file, and the step that publishes it."""

    def __init__(self, root: Path) -> None:
        self.files = LocalFiles(root)
        self.context = StepContext(self.files)
        self.source, self.target = root / SOURCE, root / TARGET
        self.source.parent.mkdir(parents=True)
        self.target.parent.mkdir()
        self.source.write_bytes(CONTENT)
        identity = self.files.identity(SOURCE)
        assert identity is not None
        self.step = MoveStep(SOURCE, TARGET, "u0", identity, hashlib.sha256(CONTENT).hexdigest(), 100)

    def verify(self) -> StepStatus:
        return self.step.verify(self.context)

    def execute(self) -> None:
        self.step.execute(self.context)

    def undo(self) -> None:
        self.step.undo(self.context)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "root")


def test_todo_then_done_and_the_staged_name_stays(bench: Bench) -> None:
    shutil.rmtree(bench.target.parent)
    assert bench.verify() is StepStatus.TODO
    assert not bench.target.exists(), "to verify changes nothing"
    bench.execute()
    assert bench.verify() is StepStatus.DONE
    assert bench.target.read_bytes() == CONTENT
    assert bench.target.stat().st_ino == bench.source.stat().st_ino == bench.step.identity.inode
    bench.source.unlink()
    assert bench.verify() is StepStatus.DONE, "after its staging is swept"


def test_a_move_never_overwrites(bench: Bench) -> None:
    bench.target.write_bytes(b"somebody else's")
    with pytest.raises(FileExistsError):
        bench.execute()
    assert bench.target.read_bytes() == b"somebody else's"
    assert bench.verify() is StepStatus.CONFLICT
    bench.undo()
    assert bench.target.read_bytes() == b"somebody else's"


@pytest.mark.parametrize("content", [b"", CONTENT[:350], CONTENT[:-1] + b"\0", CONTENT + b"more"])
def test_what_is_there_in_part_or_changed_is_not_done(bench: Bench, content: bytes) -> None:
    """Gobblin counted a half-copied directory as done."""
    bench.target.write_bytes(content)
    assert bench.verify() is StepStatus.CONFLICT
    bench.undo()
    assert bench.target.read_bytes() == content


def test_a_copy_is_known_by_its_checksum(bench: Bench) -> None:
    """A target that was restored from a copy has another inode and another time."""
    shutil.copy(bench.source, bench.target)
    bench.source.unlink()
    assert bench.verify() is StepStatus.DONE
    bench.undo()
    assert not bench.target.exists()


def test_a_staged_file_that_is_touched_and_not_changed_is_still_it(bench: Bench) -> None:
    os.utime(bench.source, ns=(0, 0))
    assert bench.verify() is StepStatus.TODO
    bench.source.write_bytes(CONTENT[::-1])
    assert bench.verify() is StepStatus.LOST


def test_neither_source_nor_result_is_lost(bench: Bench) -> None:
    bench.source.unlink()
    assert bench.verify() is StepStatus.LOST
    bench.undo()


@pytest.mark.parametrize("at", ["link", "make_folder"])
def test_a_late_task_makes_no_folder_again_whose_unit_was_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Its staging goes after the check: before the link, or, worse, between a link that failed and the next one."""
    real = getattr(LocalFiles, at)

    def late(files: LocalFiles, *paths: str) -> None:
        bench.source.unlink(missing_ok=True)
        real(files, *paths)

    bench.target.parent.rmdir()
    monkeypatch.setattr(LocalFiles, at, late)
    with pytest.raises(FileNotFoundError):
        bench.execute()
    assert not bench.target.parent.exists()
    with pytest.raises(StepLostError):
        carry_out(bench.step, bench.context, "a", 1)
    assert not bench.target.parent.exists()


def test_a_folder_that_goes_while_a_file_is_published_is_made_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.target.parent.rmdir()
    real = LocalFiles.make_folder
    gone: list[str] = []

    def make(files: LocalFiles, path: str) -> None:
        real(files, path)
        if len(gone) < 2:
            gone.append(path)
            (Path(files.root) / path).rmdir()

    monkeypatch.setattr(LocalFiles, "make_folder", make)
    bench.execute()
    assert (bench.verify(), len(gone)) == (StepStatus.DONE, 2)


def test_a_folder_at_the_target_is_a_conflict(bench: Bench) -> None:
    """Also one of the same size, which can't be read as a file."""
    bench.target.mkdir()
    size = bench.target.stat().st_size
    bench.source.write_bytes(b"x" * size)
    identity = bench.files.identity(SOURCE)
    assert identity is not None
    bench.step = MoveStep(SOURCE, TARGET, "u0", identity, hashlib.sha256(b"x" * size).hexdigest(), 1)
    assert bench.verify() is StepStatus.CONFLICT
    bench.undo()
    assert bench.target.is_dir()


def test_a_link_at_the_target_is_a_conflict_whatever_it_leads_to(bench: Bench) -> None:
    name = "x" * len(CONTENT[:200])  # a link is as big as the name it holds
    bench.source.write_bytes(CONTENT[:200])
    identity = bench.files.identity(SOURCE)
    assert identity is not None
    bench.step = MoveStep(SOURCE, TARGET, "u0", identity, hashlib.sha256(CONTENT[:200]).hexdigest(), 1)
    (bench.target.parent / name).write_bytes(CONTENT[:200])
    bench.target.symlink_to(name)
    assert bench.verify() is StepStatus.CONFLICT
    bench.undo()
    assert bench.target.is_symlink()


def test_undo_takes_back_only_what_is_its_own(bench: Bench) -> None:
    bench.undo()
    bench.execute()
    bench.undo()
    bench.undo()
    assert not bench.target.exists()
    assert bench.source.read_bytes() == CONTENT
    assert bench.verify() is StepStatus.TODO


def test_a_checksum_is_taken_in_bounded_memory(tmp_path: Path) -> None:
    import tracemalloc

    files = LocalFiles(tmp_path)
    with files.create("big") as out:
        for _ in range(64):
            out.write(b"x" * (1 << 20))
    tracemalloc.start()
    found = files.checksum("big")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == hashlib.sha256(b"x" * (64 << 20)).hexdigest()
    assert peak < 4 << 20


def test_a_disk_error_while_looking_is_no_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither DONE nor CONFLICT: nothing is known."""

    def broken(path: str) -> str | None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    bench.target.write_bytes(CONTENT[::-1])
    monkeypatch.setattr(bench.files, "checksum", broken)
    with pytest.raises(OSError, match="Input/output"):
        bench.verify()


def test_its_errors_name_file_dataset_and_the_way_out(bench: Bench) -> None:
    conflict = step_error(bench.step, StepStatus.CONFLICT, "flights", 1)
    assert isinstance(conflict, StepConflictError)
    assert f"file '{TARGET}' of dataset 'flights': another file is there" in str(conflict)
    lost = step_error(bench.step, StepStatus.LOST, "flights", 1)
    assert isinstance(lost, StepLostError)
    assert f"neither it nor its staged file '{SOURCE}'" in str(lost)
    assert all("abandon the slot" in str(error) for error in (conflict, lost))


def test_its_folder_is_the_one_that_must_be_durable(bench: Bench) -> None:
    assert bench.step.folders() == ("flights",)


def test_steps_cross_processes(bench: Bench) -> None:
    shard = Shard((bench.step, bench.step))
    assert wire.loads(wire.dumps(shard), Shard, "steps") == shard


# Folders

FOLDER, PUBLISHED = "staging/a/u0", "flights/token-u0"


class FolderBench:
    """A folder of three staged files, and the step that publishes it."""

    def __init__(self, root: Path) -> None:
        self.files = LocalFiles(root)
        self.context = StepContext(self.files)
        self.source, self.target = root / FOLDER, root / PUBLISHED
        staged = [self.stage(f"{number}.txt", b"row %d\n" % number) for number in range(3)]
        (step,) = publish_folder(staged, PUBLISHED, "u0", self.files)
        assert isinstance(step, FolderStep)
        self.step = step

    def stage(self, name: str, content: bytes) -> StagedFile:
        out = self.files.stage(f"{FOLDER}/{name}", f"{PUBLISHED}/{name}")
        out.write(content)
        return out.finish(1)

    def published(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.target.iterdir()}

    def verify(self) -> StepStatus:
        return self.step.verify(self.context)

    def execute(self) -> None:
        self.step.execute(self.context)

    def undo(self) -> None:
        self.step.undo(self.context)


ROWS = {f"{number}.txt": b"row %d\n" % number for number in range(3)}


@pytest.fixture
def folder(tmp_path: Path) -> FolderBench:
    return FolderBench(tmp_path / "folders")


def test_a_folder_is_todo_then_done(folder: FolderBench) -> None:
    assert folder.verify() is StepStatus.TODO
    assert not folder.target.parent.exists(), "to verify changes nothing"
    folder.execute()
    assert folder.verify() is StepStatus.DONE
    assert folder.published() == ROWS
    assert not folder.source.exists()
    with pytest.raises(FileNotFoundError):
        folder.execute()
    assert folder.verify() is StepStatus.DONE
    assert folder.step.folders() == ("flights",)


@pytest.mark.parametrize("what", ["empty folder", "folder", "file", "part"])
def test_a_folder_is_done_by_its_files_and_not_as_it_exists(folder: FolderBench, what: str) -> None:
    folder.target.parent.mkdir()
    if what == "file":
        folder.target.write_bytes(b"theirs")
    else:
        folder.target.mkdir()
    if what == "folder":
        (folder.target / "0.txt").write_bytes(b"theirs")
    if what == "part":
        shutil.copy(folder.source / "0.txt", folder.target)
    assert folder.verify() is (StepStatus.LOST if what == "part" else StepStatus.CONFLICT)
    with pytest.raises(FileExistsError):
        folder.execute()
    assert {path.name for path in folder.source.iterdir()} == ROWS.keys()
    assert folder.target.exists()


def test_undo_of_a_conflict_leaves_what_is_somebody_elses(folder: FolderBench) -> None:
    folder.target.mkdir(parents=True)
    (folder.target / "0.txt").write_bytes(b"theirs")
    folder.undo()
    assert folder.published() == {"0.txt": b"theirs"}


@pytest.mark.parametrize("extra", ["9.txt", "below/9.txt", "link"])
def test_a_folder_with_more_in_it_is_not_moved(folder: FolderBench, extra: str) -> None:
    """It would be published, too."""
    path = folder.source / extra
    path.parent.mkdir(exist_ok=True)
    if extra == "link":
        path.symlink_to("/")
    else:
        path.write_bytes(b"theirs")
    assert folder.verify() is StepStatus.CONFLICT
    with pytest.raises(FileExistsError, match="other files are in it, which would be published"):
        folder.execute()
    assert not folder.target.exists()
    with pytest.raises(StepConflictError, match=f"is among its files in its staged folder '{FOLDER}'"):
        carry_out(folder.step, folder.context, "flights", 1)


@pytest.mark.parametrize("how", ["gone", "changed", "all gone"])
def test_a_folder_whose_files_are_not_as_they_were_is_lost(folder: FolderBench, how: str) -> None:
    match how:
        case "gone":
            (folder.source / "1.txt").unlink()
        case "changed":
            (folder.source / "1.txt").write_bytes(b"row x\n")
        case _:
            shutil.rmtree(folder.source)
    assert folder.verify() is StepStatus.LOST
    with pytest.raises(FileNotFoundError):
        folder.execute()
    assert not folder.target.exists()
    folder.undo()
    with pytest.raises(StepLostError, match=f"neither there nor in its staged folder '{FOLDER}'"):
        carry_out(folder.step, folder.context, "flights", 1)


def test_a_file_lost_after_the_move_is_lost_and_a_changed_one_is_a_conflict(folder: FolderBench) -> None:
    folder.execute()
    content = (folder.target / "1.txt").read_bytes()
    (folder.target / "1.txt").unlink()
    assert folder.verify() is StepStatus.LOST
    (folder.target / "1.txt").write_bytes(content)
    assert folder.verify() is StepStatus.DONE, "it was restored"
    (folder.target / "1.txt").write_bytes(b"row x\n")
    assert folder.verify() is StepStatus.CONFLICT


def test_a_touched_or_copied_folder_is_known_by_its_content(folder: FolderBench) -> None:
    os.utime(folder.source / "1.txt", ns=(0, 0))
    assert folder.verify() is StepStatus.TODO
    shutil.copytree(folder.source, folder.target)
    shutil.rmtree(folder.source)
    assert folder.verify() is StepStatus.DONE
    folder.undo()
    assert not folder.target.exists()


def test_undo_of_a_folder_takes_back_only_what_is_its_own(folder: FolderBench) -> None:
    folder.undo()
    assert folder.verify() is StepStatus.TODO, "nothing was done"
    folder.execute()
    (folder.target / "mine.txt").write_bytes(b"theirs")
    folder.undo()
    folder.undo()
    assert folder.published() == {"mine.txt": b"theirs"}
    assert folder.target.parent.exists()


@pytest.mark.parametrize("removed", range(5))
def test_a_late_move_of_a_folder_that_is_being_removed_leaves_nothing(
    folder: FolderBench, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clean-up of an abandoned slot removes staging, and then undoes. A mover has checked the folder before, and renames it
    after some of its files are gone: before the first, between two, after the last, or when the folder is gone, too."""
    folder.files.make_folder("flights")
    unlink, gone = os.unlink, 0

    def late() -> None:
        with contextlib.suppress(FileNotFoundError):
            folder.files.move_folder(FOLDER, PUBLISHED)

    def counted(*arguments: Any, **named: Any) -> None:
        nonlocal gone
        if gone == removed:
            late()
        gone += 1
        unlink(*arguments, **named)
        if gone == removed == len(ROWS):
            late()

    monkeypatch.setattr(os, "unlink", counted)
    folder.files.remove_tree("staging")
    monkeypatch.undo()
    if removed > len(ROWS):
        late()
    assert folder.target.exists() == (removed <= len(ROWS)), "it was moved in that moment"
    folder.undo()
    assert [*folder.files.walk(".")] == []
    assert not folder.target.exists()
    late()
    assert not folder.target.exists(), "there is nothing left to move"


def test_a_look_while_the_folder_is_moved_is_never_lost(folder: FolderBench, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = folder.files.identity

    def moved_after_the_look(path: str) -> FileIdentity | None:
        found = identity(path)
        if path == PUBLISHED and found is None:
            folder.execute()
        return found

    monkeypatch.setattr(folder.files, "identity", moved_after_the_look)
    assert folder.verify() is StepStatus.DONE


def test_many_carry_out_a_folder_at_once(tmp_path: Path) -> None:
    for number in range(20):
        folder = FolderBench(tmp_path / str(number))
        with ThreadPoolExecutor(4) as pool:
            done = [*pool.map(partial(carry_out, folder.step, folder.context, "flights"), range(4))]
        assert any(done)
        assert folder.published() == ROWS


def test_a_folder_with_more_in_it_is_published_file_by_file(folder: FolderBench) -> None:
    """If that is known when the slot is decided."""
    (folder.source / "left over").write_bytes(b"")
    inside = [(f"{FOLDER}/{c.name}", f) for c, f in zip(folder.step.content, folder.step.files(), strict=True)]
    staged = [StagedFile(path, f.size, f.checksum, f.rows, f.identity.stamp) for path, f in inside]
    moves = tuple(MoveStep(path, f.path, "u0", f.identity, f.checksum, f.rows) for path, f in inside)
    assert publish_folder(staged, PUBLISHED, "u0", folder.files) == moves
    (folder.source / "left over").unlink()
    (folder.source / "1.txt").unlink()
    with pytest.raises(StepLostError, match=r"1\.txt' of unit 'u0': it is gone"):
        publish_folder(staged, PUBLISHED, "u0", folder.files)


def test_a_step_knows_the_files_that_it_publishes(folder: FolderBench, bench: Bench) -> None:
    assert [(file.path, file.size, file.rows) for file in folder.step.files()] == [
        (f"{PUBLISHED}/{name}", len(content), 1) for name, content in ROWS.items()
    ]
    assert bench.step.files() == (bench.step.file,)
    folder.execute()
    for file in folder.step.files():
        found = folder.files.identity(file.path)
        assert found is not None
        assert file.is_same(found, folder.files)


def test_steps_go_in_batches_of_about_as_many_files(folder: FolderBench, bench: Bench) -> None:
    steps: list[CommitStep] = [bench.step, folder.step, bench.step, bench.step, folder.step]
    assert [*batches(steps, 4)] == [(bench.step, folder.step), (bench.step, bench.step, folder.step)]
    assert [*batches(steps, 1)] == [(step,) for step in steps]
    assert [*batches(steps, 100)] == [tuple(steps)]
    assert [*batches([], 1)] == []


def test_folder_steps_cross_processes(folder: FolderBench) -> None:
    large = replace(folder.step, content=folder.step.content * 10)
    for steps in ((folder.step,), (large,) * 20):
        shard = Shard(steps)
        assert wire.loads(wire.dumps(shard), Shard, "steps") == shard
