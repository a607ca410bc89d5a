"""The move step: what it finds, what it does, and what it never does."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from airflow_gobblin import wire
from airflow_gobblin.errors import StepConflictError, StepLostError
from airflow_gobblin.files import LocalFiles
from airflow_gobblin.journal import Shard
from airflow_gobblin.steps import HighWatermarkStep, MoveStep, StepContext, StepStatus, file_error
from airflow_gobblin.watermark import LongWatermark

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
    conflict = file_error(bench.step, StepStatus.CONFLICT, "flights")
    assert isinstance(conflict, StepConflictError)
    assert f"file '{TARGET}' of dataset 'flights': another file stands there" in str(conflict)
    lost = file_error(bench.step, StepStatus.LOST, "flights")
    assert isinstance(lost, StepLostError)
    assert f"neither it nor its staged file '{SOURCE}'" in str(lost)
    assert all("abandon the slot" in str(error) for error in (conflict, lost))


def test_its_folder_is_the_one_that_must_be_durable(bench: Bench) -> None:
    assert bench.step.folders() == ("flights",)


def test_steps_cross_processes(bench: Bench) -> None:
    shard = Shard((bench.step, HighWatermarkStep(LongWatermark(100)), HighWatermarkStep(None)))
    assert wire.loads(wire.dumps(shard), Shard, "steps") == shard
