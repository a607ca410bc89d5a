"""Folders: made before anything is placed in them, then given their attributes, or removed if they are empty."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from airflow_gobblin.errors import StepConflictError
from airflow_gobblin.steps.base import CommitStep, StepContext, StepStatus
from airflow_gobblin.steps.execution import carry_out, sync
from airflow_gobblin.steps.folders import FolderAttributesStep, MakeFolderStep, RemoveFolderStep, remove_folders
from airflow_gobblin.storage.files import Attributes, LocalFiles

LONG_AGO = 1_000_000_000_000_000_007


@pytest.fixture
def context(tmp_path: Path) -> StepContext:
    return StepContext(LocalFiles(tmp_path / "root"))


def test_a_folder_is_made_once_with_those_above_it(context: StepContext) -> None:
    step = MakeFolderStep("photos/2026/may")
    assert step.verify(context) is StepStatus.TODO
    assert [carry_out(step, context, "photos", 1) for _ in range(2)] == [True, False]
    sync(context.files, step.folders())
    step.undo(context)
    assert step.verify(context) is StepStatus.DONE, "another slot may rely on it"


@pytest.mark.parametrize("kind", ["file", "link"])
def test_anything_else_where_a_folder_is_to_be_is_a_conflict(context: StepContext, kind: str) -> None:
    root = Path(context.files.root)
    root.mkdir()
    (root / "photos").symlink_to(root) if kind == "link" else (root / "photos").write_bytes(b"theirs")
    for step in (MakeFolderStep("photos"), FolderAttributesStep("photos", Attributes(0o700))):
        with pytest.raises(StepConflictError, match="something that is not a folder is there"):
            carry_out(step, context, "photos", 1)


def test_a_folder_gets_its_attributes(context: StepContext) -> None:
    context.files.make_folder("photos")
    step = FolderAttributesStep("photos", Attributes(mode=0o750, modified=LONG_AGO))
    assert step.verify(context) is StepStatus.TODO
    step.execute(context)
    assert step.verify(context) is StepStatus.DONE
    found = context.files.folder("photos")
    assert found is not None
    assert (found.mode, found.modified) == (0o750, LONG_AGO)
    assert FolderAttributesStep("photos", Attributes()).verify(context) is StepStatus.DONE
    assert FolderAttributesStep("none", Attributes()).verify(context) is StepStatus.LOST


def test_folders_in_one_another_are_removed_in_any_order(context: StepContext) -> None:
    """Steps of a phase run in no order. The folder that stays gets its time again, whichever is the last."""
    files = context.files
    steps = [*remove_folders(["a/b", "a/b/c", "a/b/c/d", "a/b/e"], {"a": LONG_AGO})]
    assert [step.above for step in steps] == [0, 1, 2, 1]
    both: list[CommitStep] = [*steps, FolderAttributesStep("a", Attributes(modified=LONG_AGO))]
    for order in permutations(both):
        for path in ("a/b/c/d", "a/b/e"):
            files.make_folder(path)
        for step in order:
            carry_out(step, context, "photos", 1)
        assert files.folders("a") == ()
        found = files.folder("a")
        assert found is not None
        assert found.modified == LONG_AGO
        assert {step.verify(context) for step in order} == {StepStatus.DONE}


def test_a_folder_with_something_in_it_stays(context: StepContext) -> None:
    files = context.files
    with files.create("a/b/theirs") as out:
        out.write(b"theirs")
    files.make_folder("a/b/c")
    for step in remove_folders(["a", "a/b", "a/b/c"]):
        carry_out(step, context, "photos", 1)
    assert [*files.walk(".")] == ["a/b/theirs"]
    assert files.folders("a/b") == ()
    link = Path(files.root) / "link"
    link.symlink_to("a")
    carry_out(RemoveFolderStep("link"), context, "photos", 1)
    assert link.is_symlink()


def test_the_root_is_not_removed(context: StepContext) -> None:
    context.files.make_folder("a")
    for step in remove_folders(["a"], {".": LONG_AGO}):
        carry_out(step, context, "photos", 1)
    assert Path(context.files.root).stat().st_mtime_ns == LONG_AGO


def test_a_folder_that_was_removed_since_is_durable_with_the_one_above_it(context: StepContext) -> None:
    context.files.make_folder("a")
    sync(context.files, ["a/b/c", "a/b"])
    with pytest.raises(FileNotFoundError):
        sync(LocalFiles(Path(context.files.root) / "none"), ["a"])
