"""Deletions through a trash: what is put back, what is kept, and that nothing comes into a trash that was closed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_gobblin.errors import StepLostError
from airflow_gobblin.steps.base import CommitStep, FenceResult, StepContext, StepStatus
from airflow_gobblin.steps.deleting import CloseTrashStep, DeleteObjectStep, DeleteStep, delete_files
from airflow_gobblin.steps.execution import carry_out
from airflow_gobblin.steps.trash import KEPT
from airflow_gobblin.storage.files import Files, LocalFiles, open_files
from airflow_gobblin.testing import MemoryObjects
from tests.services.emulators import with_conditions
from tests.syscalls import traced

PATH, STAGING = "photos/2026/a.jpg", "_gobblin/s/0123"


class Bench:
    """A file that is to be deleted, and the steps that do it."""

    def __init__(self, root: Path) -> None:
        self.files = LocalFiles(root)
        self.at = root / PATH
        self.at.parent.mkdir(parents=True)
        self.at.write_bytes(b"old")
        found = self.files.identity(PATH)
        assert found is not None
        delete, close = delete_files([(PATH, found)], STAGING, self.files)
        assert isinstance(delete, DeleteStep)
        assert isinstance(close, CloseTrashStep)
        self.delete, self.close = delete, close
        self.context = StepContext(self.files)

    @property
    def trash(self) -> Path:
        return Path(self.files.root) / self.delete.trash

    def statuses(self) -> tuple[StepStatus, StepStatus]:
        return self.delete.verify(self.context), self.close.verify(self.context)

    def saved_meanwhile(self, monkeypatch: pytest.MonkeyPatch, *contents: bytes) -> None:
        """Let somebody save a file in its place just before it is taken away; and another one just after that."""
        real, waiting = LocalFiles.replace, [*contents]

        def save() -> None:
            if waiting:
                self.at.with_name("new").write_bytes(waiting.pop(0))
                self.at.with_name("new").rename(self.at)

        def late(files: LocalFiles, source: str, target: str) -> None:
            mine = source == PATH
            if mine:
                save()
            real(files, source, target)
            if mine:
                save()

        monkeypatch.setattr(LocalFiles, "replace", late)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "root")


def test_a_file_is_deleted_and_its_trash_is_gone(bench: Bench) -> None:
    assert bench.statuses() == (StepStatus.TODO, StepStatus.TODO)
    bench.delete.execute(bench.context)
    assert bench.statuses() == (StepStatus.DONE, StepStatus.TODO)
    assert not bench.at.exists()
    bench.close.execute(bench.context)
    assert bench.statuses() == (StepStatus.DONE, StepStatus.DONE)
    assert [*bench.files.walk(".")] == []
    assert [*bench.trash.parent.iterdir()] == []


def test_a_trash_is_made_durably_before_the_decision(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    doomed = []
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
        found = files.identity(name)
        assert found is not None
        doomed.append((name, found))
    with traced() as trace:
        steps = [step for step in delete_files(doomed, STAGING, files) if isinstance(step, DeleteStep)]
    assert len({step.trash for step in steps}) == 2
    trace.check_made_folders_are_synced(len(trace.calls))


def test_a_file_that_was_saved_meanwhile_is_put_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.saved_meanwhile(monkeypatch, b"theirs")
    bench.delete.execute(bench.context)
    assert bench.at.read_bytes() == b"theirs"
    assert bench.delete.verify(bench.context) is StepStatus.DONE, "the file that was to be deleted isn't there"
    assert not [*bench.trash.iterdir()]


def test_what_cannot_be_put_back_is_kept_and_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.saved_meanwhile(monkeypatch, b"theirs", b"theirs too")
    with caplog.at_level(logging.WARNING):
        bench.delete.execute(bench.context)
    assert bench.at.read_bytes() == b"theirs too"
    (kept,) = bench.files.walk(KEPT)
    assert bench.files.read(kept) == b"theirs"
    assert kept.endswith(f"/{PATH}")
    assert f"{PATH!r} was replaced twice" in caplog.text
    assert kept in caplog.text
    own = kept.removesuffix(f"/{PATH}")
    assert ((Path(bench.files.root) / own).stat().st_mode & 0o777) == 0o700, (
        "it may come from a folder that others can't look into"
    )


@pytest.mark.parametrize("instead", ["nothing", "a file", "a link to nowhere"])
def test_a_file_is_put_back_where_its_folder_is_gone(bench: Bench, instead: str) -> None:
    """The process that took it away died before it looked at it."""
    (bench.trash / "left").write_bytes(b"theirs")
    bench.at.unlink()
    bench.at.parent.rmdir()
    if instead == "a file":
        bench.at.parent.write_bytes(b"no folder any more")
    if instead == "a link to nowhere":
        bench.at.parent.symlink_to("nowhere")
    bench.close.execute(bench.context)
    assert not bench.trash.exists()
    there = PATH if instead == "nothing" else next(iter(bench.files.walk(KEPT)))
    assert bench.files.read(there) == b"theirs"


def test_whatever_was_taken_away_is_put_back(bench: Bench) -> None:
    """Also a folder, and a link."""
    bench.at.unlink()
    (bench.trash / "left").mkdir()
    (bench.trash / "left" / "inside").write_bytes(b"theirs")
    bench.close.execute(bench.context)
    assert (bench.at / "inside").read_bytes() == b"theirs"


@pytest.mark.parametrize("shut", ["closed", "fenced"])
def test_a_process_that_has_a_trash_open_comes_too_late(
    bench: Bench, shut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once before the trash is removed: it lands there, is found, and is deleted or put back; and once after."""
    opened = os.open(bench.trash, os.O_RDONLY | os.O_DIRECTORY)
    real = LocalFiles.remove_folder
    landed: list[str] = []

    def late(files: LocalFiles, path: str) -> None:
        if not landed:
            bench.at.with_name("new").write_bytes(b"theirs")
            bench.at.with_name("new").rename(bench.at)
            os.rename(bench.at, "landed", dst_dir_fd=opened)
            landed.append(path)
        real(files, path)

    monkeypatch.setattr(LocalFiles, "remove_folder", late)
    try:
        if shut == "closed":
            bench.close.execute(bench.context)
        else:
            assert bench.delete.fence(bench.context) is FenceResult.DONE, "somebody saved another file"
        assert landed
        assert bench.at.read_bytes() == b"theirs"
        with pytest.raises(FileNotFoundError):
            os.rename(bench.at, "landed", dst_dir_fd=opened)
    finally:
        os.close(opened)
    assert bench.at.read_bytes() == b"theirs"


def test_a_file_that_is_there_without_its_trash_is_lost_by_name(bench: Bench) -> None:
    bench.trash.rmdir()
    with pytest.raises(StepLostError, match=rf"deletion of file '{PATH}' of dataset 'photos'.*is gone"):
        carry_out(bench.delete, bench.context, "photos", 1)
    assert bench.at.read_bytes() == b"old"


def test_a_folder_into_which_things_come_for_ever_is_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an open file gets another name when it is removed (NFS)."""
    monkeypatch.setattr(LocalFiles, "remove_folder", lambda files, path: None)
    with pytest.raises(OSError, match="again and again"):
        bench.close.execute(bench.context)


@pytest.fixture(params=["memory", "gcs", "azurite"])
def objects(request: pytest.FixtureRequest) -> Iterator[Files]:
    if request.param == "memory":
        yield MemoryObjects()
        return
    with with_conditions(request.getfixturevalue(request.param)) as emulator:
        yield open_files(emulator.url(f"{emulator.create_bucket()}/lake"), emulator)


def test_an_object_is_deleted_if_it_is_the_expected_one(objects: Files) -> None:
    files = objects
    context = StepContext(files)
    steps: list[CommitStep] = []
    for name in ("a", "b"):
        with files.create(name) as out:
            out.write(b"old")
        found = files.identity(name)
        assert found is not None
        steps += delete_files([(name, found)], STAGING, files)
    one, other = steps
    assert isinstance(other, DeleteObjectStep)
    files.unlink("b")
    with files.create("b") as out:
        out.write(b"theirs")
    assert other.verify(context) is StepStatus.DONE
    for step in (one, other, one):
        carry_out(step, context, "photos", 1)
    assert [*files.walk(".")] == ["b"]
    conditional = files.copies or files.uploads
    assert conditional is not None
    with pytest.raises(FileExistsError):
        conditional.remove("b", other.identity.stamp)
    conditional.remove("a", other.identity.stamp)
    assert files.read("b") == b"theirs"
