"""A new folder is placed by one rename, where one run of a driver wrote all of it; else its files are placed one by one."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy import bundles
from airflow_gobblin.copy.options import Keep
from airflow_gobblin.job import Attempt
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import UnitResult
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.folders import FolderAttributesStep, MakeFolderStep
from airflow_gobblin.steps.placing import PlaceFolderStep, PlaceStep
from tests.copy.mirrors import Trees, statuses

A = "a#files"


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trees:
    """One file set of several bundles, which the target lacks."""
    monkeypatch.setattr(bundles, "MOST_FILES", 3)
    trees = Trees(tmp_path)
    for path in ("top", "deep/one", "deep/two", "deep/er/one", "deep/er/two", "other/one", "other/two"):
        trees.write(f"a/{path}")
    return trees


class Run:
    """A run of a mirror, task by task."""

    def __init__(self, trees: Trees) -> None:
        self.opened: OpenJob = trees.opened()
        self.plan: RunPlan = create_work_units(self.opened, RunRequest(uuid.uuid4().hex))

    def copy(self, *, attempt: str = "a0", most: int = 1000, keep: bool = True) -> list[UnitResult]:
        """Copy some of the bundles that have no result yet."""
        (pack,) = self.plan.packs
        results = []
        for plan, unit in [*missing_units(self.opened, pack)][:most]:
            folder = self.opened.staging.token_folder(plan.token)
            result = self.opened.job.work.run(unit, plan, Attempt(attempt, self.opened.files, folder, NoConnections()))
            assert result.failure is None, result.failure
            results.append(self.opened.staging.put_result(plan.token, result) if keep else result)
        return results

    def decide(self) -> list[CommitStep]:
        """Decide, and return the steps."""
        (pack,) = self.plan.packs
        (report,) = write_commit_steps(self.opened, self.plan, pack)
        assert report.status is Status.PENDING, report
        return [*self.opened.journal.steps(self.opened.journal.history(A).slots[-1].decision)]

    def execute(self) -> str:
        (pack,) = self.plan.packs
        (report,) = execute_commit_steps(self.opened, self.plan, pack)
        return report.text


def test_all_bundles_of_one_run_of_a_driver_are_placed_by_one_rename(trees: Trees) -> None:
    run = Run(trees)
    assert len(run.copy()) > 2
    assert [type(step) for step in run.decide()] == [PlaceFolderStep]
    run.execute()
    assert trees.equal()
    assert statuses(trees.run()) == {A: "idle"}


def test_its_folder_is_placed_in_another_that_is_made(tmp_path: Path) -> None:
    from airflow_gobblin.copy.finders import Glob

    trees = Trees(tmp_path, {"datasets": Glob("*/daily")})
    trees.write("sales/daily/file")
    assert statuses(trees.run()) == {"sales/daily#files": "committed"}
    steps = [*trees.journal.steps(trees.journal.history("sales/daily#files").slots[-1].decision)]
    assert [type(step) for step in steps] == [MakeFolderStep, PlaceFolderStep]
    assert trees.equal()


def test_our_own_files_may_be_above_the_target(trees: Trees) -> None:
    from airflow_gobblin.copy.finders import WholeTree

    trees = trees.using(datasets=WholeTree(), workspace=str(trees.folder))
    assert statuses(trees.run()) == {"photos#files": "committed"}
    decision = trees.journal.history("photos#files").slots[-1].decision
    assert [step.target for step in trees.journal.steps(decision) if isinstance(step, PlaceFolderStep)] == ["target"]
    assert trees.equal()


def two_runs_of_a_driver(run: Run, trees: Trees) -> None:
    run.copy(most=1)
    run.copy(attempt="a1")


def a_second_try(run: Run, trees: Trees) -> None:
    """The first one has not ended where Spark tries again."""
    run.copy(most=1, keep=False)
    run.copy()


def something_else_staged(run: Run, trees: Trees) -> None:
    (one, *_) = run.copy()
    trees.write(os.path.dirname(one.files[0].path) + "/theirs", at=trees.target)


def a_folder_meanwhile(run: Run, trees: Trees) -> None:
    run.copy()
    (trees.target / "a").mkdir()


def no_rename(run: Run, trees: Trees) -> None:
    """As on NFS."""
    run.copy()
    run.opened.files._renames_new = False  # type: ignore[attr-defined]


def a_folder_in_it_meanwhile(run: Run, trees: Trees) -> None:
    run.copy()
    (trees.target / "a/deep").mkdir(parents=True)


@pytest.mark.parametrize(
    ("happens", "placed"),
    [
        (two_runs_of_a_driver, ["deep/er", "other"]),
        (a_second_try, ["deep/er", "other"]),
        (something_else_staged, ["other"]),
        (a_folder_meanwhile, ["deep", "other"]),
        (a_folder_in_it_meanwhile, ["deep/er", "other"]),
        (no_rename, []),
    ],
)
def test_files_are_placed_one_by_one_otherwise_and_the_folders_that_can_be_whole(
    trees: Trees, happens: Callable[[Run, Trees], None], placed: list[str]
) -> None:
    run = Run(trees)
    happens(run, trees)
    steps = run.decide()
    folders = [step for step in steps if isinstance(step, PlaceFolderStep)]
    assert sorted(step.target.removeprefix("a/") for step in folders) == placed
    assert sum(isinstance(step, PlaceStep) for step in steps) == 7 - sum(len(step.content) for step in folders)
    run.execute()
    assert trees.equal()


def test_a_new_folder_of_a_file_set_that_is_known_is_placed_by_one_rename(trees: Trees) -> None:
    assert statuses(trees.run()) == {A: "committed"}
    for path in ("newer/one", "newer/est/one", "newer/est/two", "deep/newest/one", "deep/three"):
        trees.write(f"a/{path}")
    run = Run(trees)
    run.copy()
    placed = [step.target for step in run.decide() if isinstance(step, PlaceFolderStep | PlaceStep)]
    assert sorted(placed) == ["a/deep/newest", "a/deep/three", "a/newer"]
    run.execute()
    assert trees.equal()


def test_the_root_of_the_target_is_never_moved_as_our_own_files_lie_in_it(trees: Trees) -> None:
    from airflow_gobblin.copy.finders import WholeTree

    trees = trees.using(datasets=WholeTree())
    trees.write("top")
    assert statuses(trees.run()) == {"photos#files": "committed"}
    decision = trees.journal.history("photos#files").slots[-1].decision
    assert [step.target for step in trees.journal.steps(decision) if isinstance(step, PlaceFolderStep)] == ["a"]
    assert trees.equal()


def test_a_folder_without_files_is_made_and_the_files_placed_one_by_one(trees: Trees) -> None:
    (trees.source / "a/empty").mkdir()
    run = Run(trees.using(empty_folders=True))
    run.copy()
    placed = [step.target for step in run.decide() if isinstance(step, PlaceFolderStep)]
    assert sorted(placed) == ["a/deep", "a/other"]
    run.execute()
    assert trees.equal()


def test_more_files_than_a_step_names_are_placed_one_by_one(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_gobblin.copy.publishing._AT_ONCE", 4)
    run = Run(trees)
    run.copy()
    steps = run.decide()
    assert all(len(step.content) <= 4 for step in steps if isinstance(step, PlaceFolderStep))
    assert any(isinstance(step, PlaceStep) for step in steps)
    run.execute()
    assert trees.equal()


@pytest.mark.parametrize("most", range(1, 8))
@pytest.mark.parametrize("at_once", range(1, 9))
def test_however_bundles_and_groups_are_cut_no_step_is_in_the_way_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, at_once: int
) -> None:
    monkeypatch.setattr(bundles, "MOST_FILES", most)
    monkeypatch.setattr("airflow_gobblin.copy.publishing._AT_ONCE", at_once)
    trees = Trees(tmp_path, {"empty_folders": True})
    for path in ("top", "b/c/d/one", "b/c/e/one", "b/c/f", "b/g/h/i", "b/g/h/j", "k/l/m", "k/n", "o/p"):
        trees.write(f"a/{path}")
    (trees.source / "a/k/empty/er").mkdir(parents=True)
    run = Run(trees)
    run.copy()
    run.decide()
    run.execute()
    assert trees.equal()


def test_only_the_first_try_of_a_unit_ever_writes_to_the_folder_of_all(trees: Trees) -> None:
    """A try that is late might write to what is published by then."""
    run = Run(trees)
    (first,) = run.copy(most=1, keep=False)
    (second,) = run.copy(most=1, keep=False)
    whole = {"/".join(file.path.split("/")[:6]) for file in first.files}
    assert whole == {f"{run.opened.staging.token_folder(run.plan.packs[0].datasets[0].token)}/a0/whole"}
    assert not any(file.path.startswith(f"{folder}/") for file in second.files for folder in whole)


def test_a_try_that_fails_leaves_what_others_staged(trees: Trees) -> None:
    run = Run(trees)
    (first,) = run.copy(most=1)
    (trees.source / "a/top").unlink()
    (pack,) = run.plan.packs
    plan, unit = [*missing_units(run.opened, pack)][-1]
    place = Attempt("a0", run.opened.files, run.opened.staging.token_folder(plan.token), NoConnections())
    assert run.opened.job.work.run(unit, plan, place).failure is not None
    assert run.opened.staging.intact(first)
    left = [*run.opened.files.walk(f"{run.opened.staging.token_folder(plan.token)}/a0/whole")]
    assert sorted(left) == sorted(file.path for file in first.files)


def test_a_folder_that_somebody_made_since_the_decision_is_a_conflict(trees: Trees) -> None:
    run = Run(trees)
    run.copy()
    run.decide()
    trees.write("a/theirs", at=trees.target)
    assert "folder 'a'" in run.execute()
    assert [path.name for path in (trees.target / "a").iterdir()] == ["theirs"]
    assert trees.admin.abandon(A, "there is one")[0].abandoned
    assert statuses(trees.run()) == {A: "committed"}
    (trees.target / "a/theirs").unlink()
    assert trees.equal()


def test_a_staged_folder_that_was_changed_since_the_decision_is_not_placed(trees: Trees) -> None:
    run = Run(trees)
    (one, *_) = run.copy()
    run.decide()
    theirs = trees.write(os.path.dirname(one.files[0].path) + "/theirs", at=trees.target)
    assert "neither it nor its staged folder" in run.execute()
    assert not (trees.target / "a").exists()
    theirs.unlink()
    run.execute()
    assert trees.equal()


def test_an_abandoned_folder_is_not_placed_by_whoever_is_late(trees: Trees) -> None:
    run = Run(trees)
    run.copy()
    run.decide()
    assert trees.admin.abandon(A, "it was a mistake")[0].abandoned
    run.execute()
    assert not (trees.target / "a").exists()
    assert statuses(trees.run()) == {A: "committed"}
    assert (trees.equal(), trees.staged()) == (True, [])


def test_what_others_changed_in_a_placed_folder_does_not_hide_that_it_is_placed(trees: Trees) -> None:
    run = Run(trees)
    run.copy()
    (step,) = run.decide()
    step.execute(run.opened.committer._context)
    (trees.target / "a/top").unlink()
    trees.write("a/theirs", at=trees.target)
    run.execute()
    assert run.opened.journal.history(A).slots[-1].done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_its_folders_have_their_attributes_from_the_first_moment_on(trees: Trees) -> None:
    os.chmod(trees.source / "a/deep", 0o500)
    os.chown(trees.source / "a/deep", 12, 34)
    for path in ("a/deep/er", "a/deep", "a/other", "a"):
        os.utime(trees.source / path, ns=(1, 1_234_567_890_123_456_789))
    run = Run(trees.using(keep=Keep("tpug")))
    run.copy()
    steps = run.decide()
    (place,) = (step for step in steps if isinstance(step, PlaceFolderStep))
    assert sum(isinstance(step, FolderAttributesStep) for step in steps) == 4
    place.execute(run.opened.committer._context)
    found = (trees.target / "a/deep").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o700, 12, 34)
    assert found.st_mtime_ns == 1_234_567_890_123_456_789
    run.execute()
    assert stat.S_IMODE((trees.target / "a/deep").stat().st_mode) == 0o500
    assert {(trees.target / path).stat().st_mtime_ns for path in ("a", "a/other", "a/deep/er")} == {
        1_234_567_890_123_456_789
    }


def test_without_syncfs_the_names_of_all_its_files_are_synced(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.syscalls import traced

    monkeypatch.setattr("airflow_gobblin.copy.transfer.durability._SAFE", frozenset())
    run = Run(trees)
    with traced() as trace:
        results = run.copy()
    for result in results:
        for file in result.files:
            assert trace.at("fsync", trees.target / os.path.dirname(file.path)), file.path


def test_a_fence_holds_whatever_the_folders_are_called(trees: Trees) -> None:
    """One may be called as another one that is fenced was, and have as long a name as there is."""
    assert statuses(trees.run()) == {A: "committed"}
    names = ("x", "x.fenced", "x.fenced.fenced", "y" * 255)
    for name in names:
        trees.write(f"a/{name}/file")
    run = Run(trees)
    run.copy()
    steps = run.decide()
    assert sorted(step.target for step in steps if isinstance(step, PlaceFolderStep)) == [f"a/{name}" for name in names]
    pending = run.opened.journal.history(A).pending
    assert pending is not None
    assert run.opened.committer.abandon(pending, "ann's", "ann", "it was a mistake").abandoned
    for step in steps:
        with suppress(FileNotFoundError):
            step.execute(run.opened.committer._context)  # of a process that looked at the outcome before
    assert not [name for name in names if (trees.target / "a" / name).exists()]
    assert statuses(trees.run()) == {A: "committed"}
    assert trees.equal()


def test_folders_that_an_earlier_slot_makes_late_are_in_no_ones_way(trees: Trees) -> None:
    run = Run(trees)
    run.copy()
    assert [type(step) for step in run.decide()] == [PlaceFolderStep]
    for path in ("a", "a/deep/er"):
        MakeFolderStep(path).execute(run.opened.committer._context)
    run.execute()
    assert run.opened.journal.history(A).slots[-1].done
    assert trees.equal()


@pytest.mark.parametrize("theirs", ["a/theirs/", "a/top/", "a/deep/er/theirs/", "a/deep/er", "a/deep/one"])
def test_whatever_else_is_in_its_place_stays(trees: Trees, theirs: str) -> None:
    run = Run(trees)
    run.copy()
    run.decide()
    path = trees.target / theirs
    (path if theirs.endswith("/") else path.parent).mkdir(parents=True)
    if not theirs.endswith("/"):
        path.write_text("theirs")
    assert "something else is there" in run.execute()
    assert [at for at in (trees.target / "a").rglob("*") if at.is_file() or at == path] == [path]


def test_a_link_in_its_place_stays(trees: Trees) -> None:
    run = Run(trees)
    run.copy()
    run.decide()
    (trees.folder / "empty").mkdir()
    (trees.target / "a").symlink_to(trees.folder / "empty")
    assert "something else is there" in run.execute()
    assert (trees.target / "a").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to other groups")
@pytest.mark.parametrize("root", [0o755, 0o2775])
def test_a_new_folder_has_the_group_that_the_one_above_it_gives(trees: Trees, root: int) -> None:
    trees.target.mkdir()
    os.chown(trees.target, 0, 34)
    trees.target.chmod(root)
    assert statuses(trees.run()) == {A: "committed"}
    os.chown(trees.target / "a/deep", 0, 56)
    (trees.target / "a/deep").chmod(0o2775)
    for path in ("deep/new/one", "deep/new/er/one", "new/one"):
        trees.write(f"a/{path}")
    run = Run(trees)
    run.copy()
    assert [step.target for step in run.decide() if isinstance(step, PlaceFolderStep)] == ["a/new"]
    run.execute()
    given = {path: (trees.target / "a" / path).stat() for path in ("deep/new", "deep/new/er", "new")}
    assert [one.st_gid for one in given.values()] == [56, 56, 34 if root & stat.S_ISGID else 0]
    assert all(given[path].st_mode & stat.S_ISGID for path in ("deep/new", "deep/new/er"))
