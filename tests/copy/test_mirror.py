"""A mirror from its plan to its outcomes, on a disk: file sets are apart, nothing of others is lost, any task may be repeated."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.admin.views import view
from airflow_gobblin.cli.ahead import _plan_row
from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.finders import EachFolder, FileSet, WholeTree
from airflow_gobblin.copy.options import Delete, Keep
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.errors import ConfigurationError, GobblinError, NotFoundError, StoreError
from airflow_gobblin.events.publication import publication
from airflow_gobblin.journal.records import Action, now
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.operators.task_logs import copied_in_all, result_table
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units, would_plan
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.deleting import CloseTrashStep, DeleteStep
from airflow_gobblin.steps.folders import FolderAttributesStep, MakeFolderStep, RemoveFolderStep
from airflow_gobblin.steps.placing import PlaceFolderStep, PlaceStep
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace.claims import Claims
from airflow_gobblin.workspace.staging import Staging
from tests.copy.mirrors import Disturbance, Trees, content, statuses
from tests.test_import_direction import run_python

A, B = "a#files", "b#files"


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """Two file sets: each has a file that is new in the next run, one that changes, and one that goes."""
    trees = Trees(tmp_path, {"delete": Delete(at_most=0.7), "keep": Keep("t")})
    for name in "ab":
        for path in ("same", "changes", "goes", "deep/er/goes too"):
            trees.write(f"{name}/{path}")
    first = trees.run()
    assert statuses(first) == {A: "committed", B: "committed"}, first
    for name in "ab":
        change(trees, name)
    return trees


def change(trees: Trees, name: str) -> None:
    trees.write(f"{name}/new/file")
    trees.write(f"{name}/changes", "has changed")
    (trees.source / name / "goes").unlink()
    shutil.rmtree(trees.source / name / "deep")


# One file set fails


def by_file(trees: Trees) -> Trees:
    """The same trees with an empty folder in each new one, which is then not placed whole."""
    for name in "ab":
        (trees.source / name / "new/empty").mkdir()
    return trees.using(empty_folders=True)


def target(path: str, text: str = "an outsider's") -> Disturbance:
    """An outsider writes to the target."""

    def write(trees: Trees) -> None:
        trees.write(path, text, at=trees.target)

    return write


def without_staged(trees: Trees) -> None:
    """Staged files of `b` are lost."""
    for plan in staged_plans(trees):
        shutil.rmtree(plan)


def staged_plans(trees: Trees) -> Iterator[Path]:
    opened = trees.opened()
    for token, plan in opened.staging.plans():
        if not isinstance(plan, GobblinError | None) and plan.urn == B:
            folder = trees.target / opened.staging.token_folder(token)
            yield from (path for path in folder.iterdir() if path.name not in ("results", "unwritten", "units"))


def without_trash(trees: Trees) -> None:
    """The trash of `b` is lost."""
    for folder in staged_plans(trees):
        if folder.name.startswith("trash"):
            shutil.rmtree(folder)


def decided_by_another(trees: Trees) -> None:
    """Another run is quicker with `b`, and has something else to do."""
    trees.write("b/more")
    assert statuses(trees.run(RunRequest("quicker", datasets=(B,)))) == {B: "committed"}


class RefusingStore(MemoryStore):
    """A journal's store that refuses a record.

    :param part: of its key.
    """

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.part and self.part in key:
            raise StoreError(operation="write", subject=key, cause="the disk of the journal is full")
        return super().put_if_absent(key, data)


def vanish(path: str) -> Disturbance:
    return lambda trees: (trees.source / path).unlink()


def grow(path: str) -> Disturbance:
    return lambda trees: trees.write(path, "it changes again, while it is copied")


STAGES: dict[str, tuple[str, Disturbance, str, str]] = {
    "it is listed": (
        "plan",
        lambda trees: file_for_folder(trees.target / "b"),
        "failed",
        "'b' is a file, not a folder",
    ),
    "it is compared": ("plan", lambda trees: file_for_folder(trees.target / "b/deep", "b/new"), "failed", "'new'"),
    "a file has vanished": ("extract", vanish("b/new/file"), "failed", "new/file"),
    "a file has changed": ("extract", grow("b/changes"), "failed", "changes"),
    "staged files are lost": ("write", without_staged, "failed", "it was not extracted to its end"),
    "another run was quicker": ("write", decided_by_another, "lost", "a newer plan took its place"),
    "a folder is made": ("execute", target("b/new"), "failed", "folder 'b/new/empty'"),
    "a new file is placed": ("execute", target("b/new/file"), "failed", "file 'b/new/file'"),
    "a new folder is placed": ("execute", target("b/new/file"), "failed", "folder 'b/new'"),
    "a file is replaced": ("execute", target("b/changes"), "failed", "file 'b/changes'"),
    "a file is deleted": ("execute", without_trash, "failed", "is gone"),
}
"""The task before which something happens to `b`, what that is, how `b` ends, and what is reported of it."""


def file_for_folder(path: Path, other: str = "") -> None:
    """Put a file where a folder is.

    :param other: where instead, below the target.
    """
    shutil.rmtree(path)
    (path.parents[1] / other if other else path).write_text("no folder")


@pytest.mark.parametrize("stage", STAGES)
def test_a_file_set_that_fails_leaves_the_other_one_published(trees: Trees, stage: str) -> None:
    before, act, status, expected = STAGES[stage]
    if stage in ("a folder is made", "a new file is placed"):
        trees = by_file(trees)
    if before == "plan":
        act(trees)
        reports = trees.run()
    else:
        reports = trees.run(between={before: act})
    assert statuses(reports) == {A: "committed", B: status}
    assert expected in reports[B].text
    assert trees.equal("a")
    assert trees.journal.history(A).slots[-1].done


@pytest.mark.parametrize(
    "step",
    [
        MakeFolderStep,
        PlaceStep,
        PlaceFolderStep,
        DeleteStep,
        CloseTrashStep,
        FolderAttributesStep,
        RemoveFolderStep,
    ],
)
def test_a_step_of_any_kind_that_fails_leaves_the_other_one_published(
    trees: Trees, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if step is not PlaceFolderStep:
        trees = by_file(trees)
    with monkeypatch.context() as patched:
        fail_in_b(step, patched)
        reports = trees.run()
    assert statuses(reports) == {A: "committed", B: "failed"}
    assert "the disk is broken" in reports[B].text
    assert trees.equal("a")
    assert statuses(trees.run()) == {A: "idle", B: "idle"}
    assert trees.equal()


def fail_in_b(step: Any, patched: pytest.MonkeyPatch) -> None:
    real = step.execute

    def execute(self: Any, context: Any) -> None:
        if "'b" in self.subject:
            raise OSError("the disk is broken")
        real(self, context)

    patched.setattr(step, "execute", execute)


def test_a_new_folder_that_fails_leaves_the_other_one_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = Trees(tmp_path)
    for name in "ab":
        trees.write(f"{name}/file")
    with monkeypatch.context() as patched:
        fail_in_b(PlaceFolderStep, patched)
        assert statuses(trees.run()) == {A: "committed", B: "failed"}
    assert (trees.equal("a"), (trees.target / "b").exists()) == (True, False)
    assert statuses(trees.run()) == {A: "idle", B: "idle"}
    assert trees.equal()


@pytest.mark.parametrize("task", ["claims.check", "staging.put_plan", "committer.decide"])
def test_a_call_of_any_task_that_fails_leaves_the_other_one_published(
    trees: Trees, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"claims": Claims, "staging": Staging, "committer": Committer}[task.partition(".")[0]]
    name = task.partition(".")[2]
    real = getattr(owner, name)

    def call(self: Any, *of: Any, **more: Any) -> Any:
        plan = next((one for one in of if isinstance(one, Plan)), None) or getattr(of[0], "plan", None)
        if plan.urn == B if isinstance(plan, Plan) else B in of:
            raise OSError("the disk is broken")
        return real(self, *of, **more)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, call)
        reports = trees.run()
    assert statuses(reports)[A] == "committed"
    assert statuses(reports)[B] == "failed"
    assert trees.equal("a")
    trees.run()
    assert trees.equal()


# A listing that breaks off


def break_off(trees: Trees, patched: pytest.MonkeyPatch) -> None:
    """A folder of the source can't be listed."""
    real = LocalTree._names

    def names(self: LocalTree, folder: Any) -> Any:
        if self.root == str(trees.source) and folder.path == "a/new":
            raise PermissionError(13, "Permission denied", folder.path)
        return real(self, folder)

    patched.setattr(LocalTree, "_names", names)


def test_a_listing_that_breaks_off_deletes_nothing(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(trees.target / "a")
    break_off(trees, monkeypatch)
    assert statuses(trees.using(delete=Delete(1)).run()) == {A: "failed", B: "committed"}
    assert content(trees.target / "a") == before


def test_that_a_part_of_a_listing_deletes_something_would_be_noticed(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_off(trees, monkeypatch)
    real = LocalTree.walk

    def walk(self: LocalTree, *of: Any) -> Iterator[Entry]:
        with suppress(OSError):
            yield from real(self, *of)

    monkeypatch.setattr(LocalTree, "walk", walk)
    trees.using(delete=Delete(1)).run()
    assert not (trees.target / "a/same").exists()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["d/0000000002", "o/0000000002"])
def test_a_journal_that_refuses_a_record_stops_one_file_set(tmp_path: Path, part: str) -> None:
    store = RefusingStore("")
    trees = Trees(tmp_path, {"delete": Delete(1)}, store)
    for name in "ab":
        trees.write(f"{name}/file")
    trees.run()
    key = next(key for key in store.list("") if key.endswith("d/0000000001") and "/b-" in key).partition("/d/")[0]
    for name in "ab":
        trees.write(f"{name}/file", "changed")
    store.part = f"{key}/{part}"
    assert statuses(trees.run()) == {A: "committed", B: "failed"}
    assert trees.equal("a")
    store.part = ""
    statuses(trees.run())
    assert trees.equal()


def test_file_sets_that_shared_an_identity_would_be_noticed(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSet, "urn", property(lambda self: "one for all"))
    with pytest.raises(ConfigurationError, match="have one URN"):
        trees.run()


# Runs


def test_a_run_makes_the_target_equal_to_the_source_and_the_next_one_finds_nothing(trees: Trees) -> None:
    reports = trees.run()
    assert statuses(reports) == {A: "committed", B: "committed"}
    assert (reports[A].files, trees.equal(), trees.staged()) == (2, True, [])
    assert statuses(trees.run()) == {A: "idle", B: "idle"}
    slot = trees.journal.history(A).slots[-1]
    assert (slot.decision.slot, slot.decision.action, slot.holds) == (2, Action.COMMIT, Holds.DIFFERENCE)
    assert trees.journal.state(A).live == {}, "the target is its own truth"


def test_times_are_kept(trees: Trees) -> None:
    os.utime(trees.source / "a/same", ns=(1, 1_234_567_890_123_456_789))
    trees.run()
    for path in ("a/same", "a/new/file", "a/new", "a"):
        assert (trees.target / path).stat().st_mtime_ns == (trees.source / path).stat().st_mtime_ns, path


def test_a_slot_may_delete_and_nothing_else(trees: Trees) -> None:
    trees.run()
    (trees.source / "a/same").unlink()
    reports = trees.run()
    assert statuses(reports) == {A: "committed", B: "idle"}
    assert trees.equal()
    assert not (trees.target / "a/same").exists()


def test_a_file_that_could_not_be_put_back_is_named_until_it_is_taken_away(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two people save a file that is just being deleted."""
    real, waiting = LocalFiles.replace, ["theirs", "theirs too"]

    def saved_meanwhile(files: LocalFiles, source: str, target: str) -> None:
        mine = source == "a/goes"
        if mine and waiting:
            trees.write(source, waiting.pop(0), at=trees.target)
        real(files, source, target)
        if mine and waiting:
            trees.write(source, waiting.pop(0), at=trees.target)

    monkeypatch.setattr(LocalFiles, "replace", saved_meanwhile)
    reports = trees.run()
    (kept,) = (path for path in (trees.target / "_gobblin/kept").rglob("*") if path.is_file())
    assert kept.read_text() == "theirs"
    expected = f"kept until you take it away: {kept.relative_to(trees.target)}, which somebody put in place"
    assert (expected in reports[A].detail, expected in reports[B].detail) == (True, False)
    trees.write("a/more")
    assert expected in trees.run()[A].detail
    trees.write("a/yet more")
    assert expected in trees.run(between={"finish": lambda trees: trees.admin.pause(A, "to look at it")})[A].detail
    trees.admin.resume(A, "seen")
    kept.unlink()
    trees.write("a/even more")
    assert "kept" not in trees.run()[A].detail


def test_nothing_is_deleted_if_too_much_would_be(trees: Trees) -> None:
    trees.run()
    before = content(trees.target)
    for path in ("same", "changes", "new/file"):
        (trees.source / "a" / path).unlink()
    trees.write("a/one more")
    reports = trees.using(delete=Delete(0.5)).run()
    assert statuses(reports) == {A: "failed", B: "idle"}
    for part in ("3 files", "would be deleted", "changes", "share of 0.5", "Delete(at_most"):
        assert part in reports[A].text
    assert content(trees.target) == before


def test_without_delete_nothing_is_deleted(trees: Trees) -> None:
    assert statuses(trees.using(delete=None).run()) == {A: "committed", B: "committed"}
    assert (trees.target / "a/goes").exists()
    assert (trees.target / "a/changes").read_text() == "has changed"


def test_a_file_that_differs_fails_its_file_set_by_default(trees: Trees) -> None:
    before = content(trees.target)
    reports = trees.using(existing="fail").run()
    assert statuses(reports) == {A: "failed", B: "failed"}
    assert "1 file of the target differ" in reports[A].text
    assert "changes" in reports[A].text
    assert content(trees.target) == before


def test_a_file_that_differs_may_be_left(trees: Trees) -> None:
    assert statuses(trees.using(existing="skip").run()) == {A: "committed", B: "committed"}
    assert (trees.target / "a/changes").read_text() == "a/changes"
    assert (trees.target / "a/new/file").exists()


def test_a_source_that_is_gone_deletes_nothing(trees: Trees) -> None:
    before = content(trees.target)
    shutil.rmtree(trees.source)
    with pytest.raises(GobblinError, match="can't find the datasets of mirror 'photos'"):
        trees.run()
    trees.source.mkdir()
    with pytest.raises(GobblinError, match="finds none there"):
        trees.run()
    assert content(trees.target) == before


def test_a_whole_tree_is_mirrored_into_the_target_itself(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": WholeTree(), "delete": Delete(1)})
    trees.write("top")
    trees.write("deep/est/file")
    trees.write("_gobblin/not ours", "of another job")
    assert statuses(trees.run()) == {"photos#files": "committed"}
    assert trees.equal()
    assert not (trees.target / "_gobblin/not ours").exists()
    (trees.source / "top").unlink()
    assert statuses(trees.run()) == {"photos#files": "committed"}
    assert trees.equal()
    assert statuses(trees.run()) == {"photos#files": "idle"}


def test_our_own_files_may_be_outside_of_the_target(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": WholeTree(), "workspace": str(tmp_path), "delete": Delete(1)})
    trees.write("deep/file")
    trees.write("other")
    for expected in ("committed", "idle"):
        assert statuses(trees.run()) == {"photos#files": expected}
        assert trees.equal()
    assert not (trees.target / "_gobblin").exists()
    assert (tmp_path / "_gobblin").is_dir()


def test_a_mirror_into_a_place_of_another_one_is_refused(trees: Trees) -> None:
    other = Trees(trees.folder, {"datasets": WholeTree(), "delete": Delete(1), "existing": "update"})
    reports = other.run()
    assert statuses(reports) == {"photos#files": "failed"}
    assert "belongs to dataset" in reports["photos#files"].text


# Repeating


@pytest.mark.parametrize("again", ["plan", "extract", "write", "execute", "finish"])
def test_a_task_may_be_cleared_after_the_run(trees: Trees, again: str) -> None:
    """With all tasks after it, as Airflow clears them; or alone, by a person."""
    request = RunRequest("one")
    opened = trees.opened()
    plan = create_work_units(opened, request)
    first = inprocess.go_on(opened, plan, NoConnections())
    assert statuses(first) == {A: "committed", B: "committed"}
    heads = {urn: trees.journal.state(urn).head for urn in (A, B)}
    for alone in (True, False):
        opened = trees.opened()
        verify_recover(opened, request)
        at = ["plan", "extract", "write", "execute", "finish"].index(again)
        replanned = create_work_units(opened, request) if at == 0 else plan
        if at <= 1 and not (alone and at < 1):
            inprocess.extract(opened, replanned, NoConnections())
        for task, number in ((write_commit_steps, 2), (execute_commit_steps, 3)):
            for pack in replanned.packs if at == number or (not alone and at < number) else ():
                assert all(report.ok for report in task(opened, replanned, pack))
        if at == 4 or not alone:
            assert {report.status.value for report in finish(opened, replanned)} <= {"committed"}
    assert {urn: trees.journal.state(urn).head for urn in (A, B)} == heads
    assert trees.equal()


def test_each_task_may_run_twice(trees: Trees) -> None:
    opened, request = trees.opened(), RunRequest("one")
    for _ in range(2):
        verify_recover(opened, request)
    late, plan = create_work_units(opened, request), create_work_units(opened, request)
    for one in (plan, late, plan):
        inprocess.extract(opened, one, NoConnections())
    for pack in plan.packs:
        for task in (write_commit_steps, write_commit_steps, execute_commit_steps, execute_commit_steps):
            assert {report.status.value for report in task(opened, plan, pack)} <= {"pending", "committed"}
    for pack in late.packs:
        write_commit_steps(opened, late, pack)
        execute_commit_steps(opened, late, pack)
    assert {report.status.value for report in finish(opened, plan)} == {"committed"}
    assert trees.journal.state(A).head == 2
    assert trees.equal()


def test_what_a_run_has_decided_the_next_one_finishes(trees: Trees) -> None:
    trees.decided()
    opened = trees.opened()
    assert {report.status.value for report in verify_recover(opened, RunRequest("next"))} == {"recovered"}
    assert trees.equal()
    assert statuses(trees.run()) == {A: "idle", B: "idle"}


def test_of_two_plans_one_loses_and_publishes_nothing(trees: Trees) -> None:
    late = trees.opened()
    plan = create_work_units(late, RunRequest("late"))
    inprocess.extract(late, plan, NoConnections())
    for path in ("a/changes", "b/changes"):
        trees.write(path, "changed once more")
    trees.run()
    before = content(trees.target)
    reports = {report.urn: report for pack in plan.packs for report in write_commit_steps(late, plan, pack)}
    assert statuses(reports) == {A: "lost", B: "lost"}
    assert content(trees.target) == before


def test_an_abandoned_slot_does_nothing_any_more_and_the_next_plan_does_it(trees: Trees) -> None:
    late, plan = trees.decided()
    before = content(trees.target)
    for urn in (A, B):
        assert trees.admin.abandon(urn, "it was a mistake")[0].abandoned
    for pack in plan.packs:
        assert {report.status.value for report in execute_commit_steps(late, plan, pack)} == {"lost"}
    assert content(trees.target) == before
    assert statuses(trees.run()) == {A: "committed", B: "committed"}
    assert (trees.equal(), trees.staged()) == (True, [])


def test_a_slot_that_is_abandoned_half_way_stays_half_done_until_the_next_plan(trees: Trees) -> None:
    opened, plan = trees.decided()
    slot = opened.journal.history(A).slots[-1]
    for step in [*opened.journal.steps(slot.decision)][:2]:
        step.execute(opened.committer._context)
    plan_of_before = trees.opened()
    assert trees.admin.abandon(A, "it was a mistake")[0].abandoned
    reports = {report.urn: report for pack in plan.packs for report in execute_commit_steps(plan_of_before, plan, pack)}
    assert statuses(reports) == {A: "lost", B: "committed"}
    assert statuses(trees.run()) == {A: "committed", B: "idle"}
    assert trees.equal()


# Actions of people


def test_a_mirror_has_no_positions_to_rewind_set_or_export(trees: Trees) -> None:
    from airflow_gobblin.admin.export import export
    from airflow_gobblin.admin.views import audit
    from airflow_gobblin.model.watermark import LongWatermark

    message = "its slots hold differences of files"
    for act in (
        lambda: trees.admin.would_rewind(A, LongWatermark(1)),
        lambda: trees.admin.position(A, "1"),
        lambda: trees.admin.would_set_watermark(A, LongWatermark(1)),
        lambda: trees.admin.would_drop(A, delete_files=True),
        lambda: export(trees.journal, trees.journal.history(A)),
    ):
        with pytest.raises(ConfigurationError, match=message):
            act()
    assert [found.detail for found in audit(trees.journal, trees.opened().files, A)] == [
        f"{message}: a plan compares what is there with the source"
    ]


def test_a_reader_of_a_mirror_is_sent_to_its_target_instead_of_finding_it_empty(trees: Trees) -> None:
    trees.run()
    for read in (trees.journal.read_dataset, trees.journal.read_dead_letters):
        with pytest.raises(ConfigurationError, match="Read the folder itself"):
            read(A)
    with pytest.raises(NotFoundError, match="Did you mean"):
        trees.journal.read_dataset(f"{A}s")


def test_a_dropped_file_set_is_mirrored_anew(trees: Trees) -> None:
    trees.run()
    trees.admin.drop(A, "the journal is to forget it")
    assert statuses(trees.run()) == {A: "idle", B: "idle"}
    trees.write("a/more")
    assert statuses(trees.run()) == {A: "committed", B: "idle"}
    assert trees.equal()


def test_a_mirror_is_dropped_whole_and_its_files_stay(trees: Trees) -> None:
    trees.run()
    before = content(trees.target)
    with pytest.raises(ConfigurationError, match="its slots hold differences of files"):
        trees.admin.would_drop_all(delete_files=True)
    for change in trees.admin.would_drop_all():
        trees.admin.carry_out(change, "it has ended")
    assert trees.admin.after_drop_all() == ()
    assert content(trees.target) == before
    assert not trees.opened().claims.valid()
    assert trees.admin.would_drop_all() == ()


def test_a_backfill_of_a_mirror_is_refused(trees: Trees) -> None:
    with pytest.raises(AssertionError):
        assert statuses(trees.run(RunRequest("range", start=1, end=2))) == {}
    assert statuses(trees.run(RunRequest("range", start=1, end=2))) == {A: "failed", B: "failed"}


def test_rows_are_not_ingested_where_a_mirror_published(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.run()
    trees.write("a/more")
    monkeypatch.setattr(FileSet, "holds", Holds.SNAPSHOT)
    reports = trees.run()
    assert "its published content holds a difference of files, and this run would publish a snapshot" in reports[A].text


def test_a_target_that_is_not_mounted_is_noticed(trees: Trees) -> None:
    """An empty folder is there in its place."""
    trees.run()
    trees.target.rename(trees.folder / "elsewhere")
    trees.target.mkdir()
    with pytest.raises(GobblinError, match="lacks the mark"):
        trees.run()
    assert content(trees.target) == {}


def test_a_dry_run_shows_what_would_be_done_and_changes_nothing(trees: Trees) -> None:
    before, records = content(trees.folder), trees.records()
    prospect = would_plan(trees.opened(), RunRequest("dry"))
    assert [one.urn for one in prospect.datasets] == [A, B]
    outline = prospect.datasets[0].outline
    assert outline is not None
    assert [(act.kind.value, act.path) for act in outline.first if "folder" not in act.kind.value] == [
        ("replace", "changes"),
        ("copy", "new/file"),
        ("delete", "deep/er/goes too"),
        ("delete", "goes"),
    ]
    assert outline.bytes == len("has changed") + len("a/new/file")
    assert all(not unit.properties for unit in prospect.datasets[0].units), "bundles may be too many to keep"
    row = _plan_row(trees.mirror, prospect, prospect.datasets[0], of_files=True, acts=True)
    assert {name: row[name] for name in ("copy", "replace", "delete", "bytes")} == {
        "copy": 1,
        "replace": 1,
        "delete": 2,
        "bytes": outline.bytes,
    }
    assert content(trees.folder) == before
    assert trees.records() == records


def test_a_run_is_reported_in_files_and_bytes(trees: Trees) -> None:
    report = trees.run()[A]
    assert report.detail == "slot 2: 2 files of 21 bytes copied (1 in place of others), 2 deleted"
    slot = trees.journal.history(A).slots[-1]
    assert publication("photos", slot, None).event == {
        "urn": A,
        "slot": 2,
        "files": 2,
        "replaced": 1,
        "deleted": 2,
        "bytes": 21,
    }
    seen = view(trees.journal.history(A), now())
    assert seen.of_files
    assert seen.last_commit is not None
    assert (seen.last_commit.files, seen.last_commit.replaced, seen.last_commit.deleted) == (2, 1, 2)
    assert copied_in_all([report, report]) == (
        "in 2 file sets: 4 files of 42 B copied, 2 of them in place of others, and 4 deleted"
    )
    heading, row, _ = result_table([report], [report, report])
    assert heading == ["dataset", "status", "slot", "files", "replaced", "deleted", "bytes"]
    assert row == [A, "committed", "2", "2", "1", "2", "21"]


@pytest.mark.slow
def test_every_kind_of_record_is_known_once_the_kinds_are_imported() -> None:
    """As on Spark, and on the page, which have imported nothing else."""
    program = "from airflow_gobblin.model import registry, wire; registry.import_kinds(); print(*sorted(wire._by_kind))"
    known = {*run_python(program).split()}
    assert {"copy_work", "copy_bundle", "copy_binding", "whole_tree", "each_folder", "glob"} <= known
    assert {
        "place_step",
        "place_copy_step",
        "place_upload_step",
        "put_step",
        "delete_step",
        "close_trash_step",
        "make_folder_step",
    } <= known


def test_folders_of_the_source_that_are_new_become_datasets(trees: Trees) -> None:
    trees.run()
    trees.write("c/file")
    assert statuses(trees.run()) == {A: "idle", B: "idle", "c#files": "committed"}
    assert EachFolder() == trees.mirror.datasets
