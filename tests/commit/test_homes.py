"""The home of an ingestion: a target that is gone, or another one, stops it by name, and a second DAG doesn't slip in."""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.admin.views import AuditLevel, FileState, audit, verify
from airflow_gobblin.commit.homes import TargetMark, Tenant
from airflow_gobblin.commit.remote import StepAnswers
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import ConfigurationError, LostRaceError, TargetError
from airflow_gobblin.hooks.wording import worded, worded_error
from airflow_gobblin.journal.history import take_snapshot
from airflow_gobblin.journal.records import Home, NoteKind, now
from airflow_gobblin.model import wire
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, ExtractKind
from airflow_gobblin.run import plan as planning
from airflow_gobblin.run.dataset_plan import plan_dataset
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units, would_plan
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.pack import run_pack
from airflow_gobblin.spark.probe import Needs
from airflow_gobblin.spark.steps import StepOrder, StepVerb, run_steps
from airflow_gobblin.spark.steps import _work_on as work_on
from airflow_gobblin.spark.task import TaskSpec, run_task
from airflow_gobblin.steps.base import StepContext
from airflow_gobblin.steps.execution import carry_out
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace.manifests import put_manifests
from airflow_gobblin.workspace.staging import staging_folder
from tests.lab import Lab
from tests.protocol.rows import LineSink, RowSource, Table

A = Table("a", ExtractKind.APPEND_ONLY, 10)
MORE = replace(A, rows=14)
B = Table("b", ExtractKind.APPEND_ONLY, 6)
SNAPSHOT = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """An ingestion that has published."""
    lab = Lab(tmp_path / "lake", A)
    assert lab.run()["a"].status == "committed"
    return lab


def unmount(lab: Lab) -> Path:
    """Replace the target by an empty folder.

    :return: where the target is now.
    """
    away = lab.folder.with_name("away")
    lab.folder.rename(away)
    lab.folder.mkdir()
    return away


def mount(lab: Lab) -> None:
    shutil.rmtree(lab.folder)
    lab.folder.with_name("away").rename(lab.folder)


def below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def marks(folder: Path) -> list[Path]:
    return [path for path in below(folder) if path.parent.name == "marks"]


def test_a_target_that_is_not_mounted_stops_planning_by_name_and_nothing_is_written_there(lab: Lab) -> None:
    unmount(lab)
    before = lab.records()
    for folder in ("there", "missing"):
        if folder == "missing":
            lab.folder.rmdir()
        with pytest.raises(TargetError) as caught:
            lab.run(MORE)
        message = str(caught.value)
        assert f"can't use target {lab.folder} of ingestion 'lab'" in message
        assert "it is empty, not mounted, not shared, or another target" in message
        assert "Mount or restore it" in message
        assert "Once that is fixed, clear the task." in str(worded_error(caught.value))
        with pytest.raises(TargetError):
            verify_recover(lab.opened(), RunRequest("dag/run"))
    assert lab.records() == before
    lab.folder.mkdir()
    mount(lab)
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_a_target_with_another_mark_is_another_one(lab: Lab, tmp_path: Path) -> None:
    """The same path on another disk, on which an ingestion of the same journal once began."""
    other = Lab(tmp_path / "lake", A, store=lab.store)
    unmount(lab)
    (mark,) = marks(tmp_path / "away")
    made = (lab.folder / mark.relative_to(tmp_path / "away")).with_name("0" * 32)
    made.parent.mkdir(parents=True)
    made.write_bytes(wire.dumps(TargetMark("0" * 32, "lab", lab.journal.id)))
    with pytest.raises(TargetError, match="has the mark of another one"):
        other.run(MORE)


@pytest.mark.parametrize(("table", "later"), [(A, MORE), (SNAPSHOT, replace(SNAPSHOT, version=1))])
def test_a_datasets_folder_that_is_gone_while_the_mark_is_there_stops_that_dataset_by_name(
    tmp_path: Path, table: Table, later: Table
) -> None:
    """Its folder is a mount of its own, or was removed, or the target was restored from an old copy."""
    lab = Lab(tmp_path / "lake", table, B)
    lab.run()
    folder = lab.folder / table.urn
    away = folder.rename(tmp_path / "away")
    more = (later, replace(B, rows=9))
    for empty in (False, True):
        if empty:
            folder.mkdir()
        reports = lab.run(*more)
        assert reports[table.urn].status == "failed"
        assert f"which slot 1 published, is not there below {lab.folder}" in reports[table.urn].detail
        assert "Mount or restore it" in reports[table.urn].detail
        assert ("rewind" in reports[table.urn].detail) is (table.urn != "s"), "a snapshot can't be rewound"
        assert "Clear create_work_units" in worded(reports[table.urn]).detail
    assert lab.rows("b") == more[1].all_rows(), "the other goes on"
    assert [*folder.iterdir()] == []
    folder.rmdir()
    away.rename(folder)
    assert lab.run(*more)[table.urn].status == "committed"
    assert lab.rows(table.urn) == more[0].all_rows()


@pytest.mark.parametrize("empty", [False, True], ids=["gone", "empty"])
def test_a_folder_that_is_gone_stops_its_dataset_by_name_with_nothing_new_to_plan_too(
    tmp_path: Path, empty: bool
) -> None:
    lab = Lab(tmp_path / "lake", A, B, SNAPSHOT)
    lab.run()
    lab.run(A, B, replace(SNAPSHOT, rows=0))
    folders = [lab.folder / table.urn for table in (A, SNAPSHOT)]
    for folder in folders:
        folder.rename(tmp_path / f"away {folder.name}")
        if empty:
            folder.mkdir()
    before, published = lab.records(), below(lab.folder)
    for prospect in would_plan(lab.opened(), RunRequest("dag/look")).datasets:
        assert (prospect.status, prospect.error is None) == (
            ("failed", False) if prospect.urn == "a" else ("idle", True)
        )
    assert (lab.records(), below(lab.folder)) == (before, published)
    reports = lab.run()
    assert {urn: report.status for urn, report in reports.items()} == {"a": "failed", "b": "idle", "s": "idle"}
    message = reports["a"].detail
    assert f"its folder a, to which slot 1 published, is empty or not there below {lab.folder}" in message
    assert "not mounted or not shared, or somebody removed what was in it" in message
    assert "Mount or restore it. If it is lost for good, drop the dataset" in message
    if empty:
        folders[0].rmdir()
    (tmp_path / "away a").rename(folders[0])
    assert {report.status for report in lab.run().values()} == {"idle"}


def test_a_folder_is_looked_for_by_its_newest_slot_with_files_once_that_is_trimmed_too(lab: Lab) -> None:
    lab.run(MORE)
    lab.admin.set_watermark("a", LongWatermark(20), "the rest is elsewhere")
    lab.journal.put_snapshot(take_snapshot(lab.journal.history("a"), 2, now()))
    lab.reopened()
    assert lab.run()["a"].status == "idle"
    shutil.rmtree(lab.folder / "a")
    with pytest.raises(TargetError, match="its folder a, to which slot 2 published, is empty or not there"):
        lab.run()
    lab.admin.drop("a", "the disk is lost")
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_a_folder_that_can_not_be_looked_into_stops_its_dataset_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "lake", A, B)
    lab.run()
    scandir = os.scandir

    def broken(path: str) -> Any:
        if path.endswith("/a"):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN), path)
        if path.endswith("/b"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", broken)
        prospects = would_plan(lab.opened(), RunRequest("dag/look")).datasets
    assert [prospect.status for prospect in prospects] == ["failed", "idle"], "one that may not be listed is there"
    assert "Transport endpoint is not connected" in prospects[0].detail


def test_a_file_that_is_lost_for_good_is_published_anew_after_a_rewind(lab: Lab) -> None:
    lab.run(MORE)
    (lost,) = (path for path in lab.files("a") if "a/13" in path.read_text())
    lost.unlink()
    with pytest.raises(TargetError, match=f"a/{lost.name}, which slot 2 published, is not there"):
        lab.run(replace(MORE, rows=16))
    lab.admin.rewind("a", LongWatermark(10), "a file was removed")
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == replace(MORE, rows=16).all_rows()


def test_what_replaces_a_part_of_a_lost_folder_hides_the_rest_of_it_from_no_run(lab: Lab) -> None:
    for path in lab.files("a"):
        path.unlink()
    again = RunRequest("again", datasets=("a",), start=0, end=4, replace=True)
    with pytest.raises(TargetError, match="which slot 1 published, is not there"):
        lab.run(request=again)
    assert lab.files("a") == []
    whole = replace(again, dag_run="whole", end=A.rows)
    assert lab.run(request=whole)["a"].status == "committed"
    assert lab.rows("a") == A.all_rows()


def test_a_journal_that_names_no_home_yet_takes_no_target_that_knows_nothing_of_it(lab: Lab) -> None:
    def forget() -> None:
        for key in [*lab.store.list("_homes")]:
            lab.store.delete(key)
        lab.reopened()

    forget()
    unmount(lab)
    for table in (MORE, B):
        with pytest.raises(
            TargetError, match="no dataset of the journal claims a folder there, though it has published"
        ):
            lab.run(table)
    assert next(audit(lab.journal, LocalFiles(lab.folder))).check == "target"
    assert below(lab.folder) == []
    mount(lab)
    assert lab.run(MORE)["a"].status == "committed"
    assert lab.rows("a") == MORE.all_rows()
    assert len(lab.reopened().homes()) == 1


def test_a_target_that_goes_while_it_is_planned_is_not_taken_for_a_new_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lab.opened(MORE)
    proposed = plan_dataset

    def propose_then_unmount(*args: Any) -> Any:
        found = proposed(*args)
        monkeypatch.undo()
        unmount(lab)
        return found

    monkeypatch.setattr(planning, "plan_dataset", propose_then_unmount)
    before = lab.records()
    with pytest.raises(TargetError, match="lacks the mark"):
        create_work_units(opened, RunRequest("dag/run"))
    assert lab.records() == before
    assert [path.name for path in below(lab.folder)] == ["0000000001"], "no mark is put there, and no plan"
    mount(lab)
    assert lab.run()["a"].status == "committed"


def test_a_target_that_goes_before_the_decision_lets_nothing_be_decided(lab: Lab) -> None:
    opened, plan = lab.extracted(MORE)
    before = lab.records()
    unmount(lab)
    late = lab.opened()
    with pytest.raises(TargetError):
        write_commit_steps(late, plan, plan.packs[0])
    assert lab.records() == before
    assert below(lab.folder) == []
    mount(lab)
    reports = inprocess.go_on(opened, plan, NoConnections())
    assert reports["a"].status == "committed"


def test_a_target_that_goes_in_the_moment_before_the_decision_lets_nothing_be_decided(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, plan = lab.extracted(MORE)
    put_steps = opened.committer._put_steps

    def put_then_unmount(*args: object) -> object:
        found = put_steps(*args)  # type: ignore[arg-type]
        unmount(lab)
        return found

    monkeypatch.setattr(opened.committer, "_put_steps", put_then_unmount)
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert (report.status, report.retryable) == ("failed", True)
    assert "not mounted" in report.detail
    assert lab.journal.state("a").head == 1


def test_a_pending_slot_waits_for_its_target_and_is_not_quarantined_for_it(lab: Lab) -> None:
    lab.ingestion = replace(lab.ingestion, attempts=1)
    _, plan = lab.decide(MORE)
    unmount(lab)
    with pytest.raises(TargetError):
        execute_commit_steps(lab.opened(), plan, plan.packs[0])
    with pytest.raises(TargetError):
        verify_recover(lab.opened(), RunRequest("dag/next"))
    with pytest.raises(TargetError):
        finish(lab.opened(), plan)
    slot = lab.journal.history("a").slots[-1]
    with pytest.raises(TargetError):
        lab.opened().committer.recover("a", "key")
    assert (slot.finished, slot.failures) == (False, ())
    assert below(lab.folder) == []
    mount(lab)
    (report,) = execute_commit_steps(lab.opened(), plan, plan.packs[0])
    assert report.status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_retired_files_of_a_target_that_is_gone_are_not_noted_as_removed(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", SNAPSHOT)
    lab.run()
    lab.run(replace(SNAPSHOT, version=1))
    opened, plan = lab.extracted(replace(SNAPSHOT, version=2))
    inprocess.publish(opened, plan, NoConnections())
    unmount(lab)
    with pytest.raises(TargetError):
        lab.opened().committer.cleanup.clean(lab.journal.history("s"), "key")
    assert not lab.journal.history("s").slots[1].noted(NoteKind.CLEANED)
    mount(lab)
    assert len(lab.files("s")) == 3
    assert lab.opened().committer.cleanup.clean(lab.journal.history("s"), "key") == ()
    assert len(lab.files("s")) == 2, "files that the newest slot retired stay until the next one"


def test_audit_and_verify_report_that_the_target_is_gone_and_not_that_each_file_is(lab: Lab) -> None:
    unmount(lab)
    files = LocalFiles(lab.folder)
    (finding,) = audit(lab.journal, files)
    assert (finding.level, finding.check) == (AuditLevel.PROBLEM, "target")
    assert "it is empty, not mounted, not shared, or another target" in finding.detail
    with pytest.raises(TargetError, match="not mounted"):
        [*verify(lab.journal, files, "a")]


def test_a_target_that_is_lost_for_good_is_begun_anew_after_a_drop(lab: Lab) -> None:
    shutil.rmtree(lab.folder)
    with pytest.raises(TargetError, match="drop its datasets"):
        lab.run()
    lab.admin.drop("a", "the disk is lost")
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == A.all_rows()


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_lost_target_had_yet_to_be_cleaned_of_is_not_waited_for(tmp_path: Path, whole: bool) -> None:
    lab = Lab(tmp_path / "lake", SNAPSHOT, retention=timedelta(days=1))
    for version in range(3):
        lab.run(replace(SNAPSHOT, version=version))
    assert lab.journal.state("s").retired
    shutil.rmtree(lab.folder)
    for change in lab.admin.would_drop_all() if whole else [lab.admin.would_drop("s")]:
        lab.admin.carry_out(change, "the disk is lost")
    if whole:
        assert lab.admin.after_drop_all() == ()
    assert lab.run()["s"].status == "committed"
    assert lab.rows("s") == replace(SNAPSHOT, version=2).all_rows()


def test_a_pending_slot_of_a_target_that_is_lost_for_good_can_be_abandoned(lab: Lab) -> None:
    lab.decide(MORE)
    shutil.rmtree(lab.folder)
    lab.admin.abandon("a", "the disk is lost")
    lab.admin.drop("a", "the disk is lost")
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_a_first_run_that_published_nothing_may_be_followed_by_one_to_another_target(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.extracted()
    other = Lab(tmp_path / "other", A, store=lab.store)
    assert other.run()["a"].status == "committed"
    assert [home.target for home in other.reopened().homes()] == [str(lab.folder), str(other.folder)]


def test_a_driver_or_an_executor_that_does_not_see_the_target_reports_it(lab: Lab) -> None:
    _, plan = lab.extracted(MORE)
    unmount(lab)
    staging = staging_folder("lab", lab.journal.id)
    nothing = SparkConnections({})
    with pytest.raises(TargetError, match="workers, driver and executors share"):
        run_pack(cast(Any, None), str(lab.folder), staging, plan.run, 0, (), nothing)
    order = TaskSpec((), str(lab.folder), staging, "attempt", plan.run, {}, {}, nothing, Needs(()))
    with pytest.raises(TargetError, match=f"on host '.*' it lacks the mark in {staging}/marks/"):
        [*run_task(order)]
    assert below(lab.folder) == []


@pytest.mark.parametrize("verb", StepVerb)
def test_a_driver_or_an_executor_of_long_sequences_that_does_not_see_the_target_reports_it(
    lab: Lab, verb: StepVerb
) -> None:
    """And not that the work itself was lost."""
    _, plan = lab.extracted(MORE)
    unmount(lab)
    staging, nothing = staging_folder("lab", lab.journal.id), SparkConnections({})
    token = plan.packs[0].datasets[0].token
    order = StepOrder(
        verb, (), str(lab.folder), staging, f"{staging}/s/{token}/work", "a", token, 2, connections=nothing
    )
    with pytest.raises(TargetError, match="workers, driver and executors share"):
        run_steps(cast(Any, None), order, [(Site.TASK, 1)])
    answers = StepAnswers((work_on(order, 0, nothing.guarded()),))
    failure = wire.loads(wire.dumps(answers), StepAnswers, "answers").failure
    assert failure is not None
    error = failure.error()
    assert isinstance(error, TargetError)
    assert "on host " in str(error)
    assert [*lab.folder.iterdir()] == []


def test_the_mark_leaves_staging_private(lab: Lab) -> None:
    (mark,) = marks(lab.folder)
    assert mark.parents[1].stat().st_mode & 0o077 == 0


# A changed target


def changed(lab: Lab, name: str = "sea") -> Lab:
    """The same ingestion, to another target."""
    return Lab(lab.folder.with_name(name), *lab.ingestion.source.tables, store=lab.store)  # type: ignore[attr-defined]


def test_a_changed_target_is_refused_and_the_way_to_move_is_shown(lab: Lab) -> None:
    other = changed(lab)
    before = lab.records()
    with pytest.raises(ConfigurationError) as caught:
        other.run(MORE, request=RunRequest("dag/run"))
    message = str(caught.value)
    assert f"its datasets are published to {lab.folder}" in message
    assert "Go back to that target. To move: let its runs end, copy all that is below it" in message
    assert "airflow gobblin move" in message
    assert lab.records() == before
    assert not other.folder.exists()


def test_verify_and_audit_look_where_the_slots_are(lab: Lab) -> None:
    other = LocalFiles(lab.folder.with_name("sea"))
    assert [check.state for check in verify(lab.journal, other, "a")] == [FileState.OK] * len(lab.files("a"))
    (finding,) = audit(lab.journal, other)
    assert (finding.check, finding.level) == ("target", AuditLevel.PROBLEM)
    assert f"its datasets are published to {lab.folder}" in finding.detail
    assert [*audit(lab.journal, LocalFiles(lab.folder))] == []


def test_an_ingestion_moves_with_its_files(lab: Lab) -> None:
    snapshots = replace(SNAPSHOT, version=2)
    lab.run(MORE, SNAPSHOT)
    lab.run(MORE, replace(SNAPSHOT, version=1))
    assert len(lab.files("s")) == 2
    other = changed(lab)
    shutil.copytree(lab.folder, other.folder)
    shutil.rmtree(lab.folder)
    home = other.admin.would_move()
    assert home.target == str(lab.folder)
    other.admin.move(home, "a larger disk")
    moved = other.reopened().homes()[-1]
    assert (moved.target, moved.actor, moved.reason) == (str(other.folder), "ann", "a larger disk")
    assert other.rows("a") == MORE.all_rows()
    assert {check.state for check in verify(other.journal, LocalFiles(other.folder), "a")} == {FileState.OK}
    reports = other.run(replace(MORE, rows=20), snapshots)
    assert {report.status for report in reports.values()} == {"committed"}
    assert other.rows("a") == replace(MORE, rows=20).all_rows()
    assert other.rows("s") == snapshots.all_rows()
    assert len(other.files("s")) == 2, "files that were retired at the former target are removed here"
    found = [*audit(other.journal, LocalFiles(other.folder))]
    assert [one for one in found if one.level is AuditLevel.PROBLEM] == []
    with pytest.raises(ConfigurationError, match=f"published to {other.folder}"):
        lab.run(replace(MORE, rows=30))


def test_a_move_needs_the_mark_the_files_and_no_pending_slot(lab: Lab) -> None:
    other = changed(lab)
    other.folder.mkdir()
    with pytest.raises(TargetError, match="lacks the mark"):
        other.admin.would_move()
    shutil.copytree(lab.folder, other.folder, dirs_exist_ok=True)
    lost = other.files("a")[0]
    lost.unlink()
    with pytest.raises(ConfigurationError, match=f"1 file of dataset 'a' is not there as published: a/{lost.name}"):
        other.admin.would_move()
    shutil.copytree(lab.folder, other.folder, dirs_exist_ok=True)
    lab.decide(MORE)
    with pytest.raises(ConfigurationError, match="slot 2 of dataset 'a' is pending"):
        other.admin.would_move()
    assert len(lab.reopened().homes()) == 1


def test_of_two_who_move_at_once_one_is_refused(lab: Lab) -> None:
    other = changed(lab)
    shutil.copytree(lab.folder, other.folder)
    home = other.admin.would_move()
    other.admin.move(home, "first")
    with pytest.raises(LostRaceError, match="changed just now"):
        Administration(other.reopened(), str(other.folder), "bob").move(home, "second")


def test_a_run_that_goes_on_at_the_former_target_after_a_look_is_not_left_behind(lab: Lab) -> None:
    other = changed(lab)
    shutil.copytree(lab.folder, other.folder)
    home = other.admin.would_move()
    assert lab.run(MORE)["a"].status == "committed"
    with pytest.raises(ConfigurationError, match="1 file of dataset 'a' is not there as published"):
        other.admin.move(home, "a larger disk")
    assert len(lab.reopened().homes()) == 1
    assert lab.rows("a") == MORE.all_rows()


@pytest.mark.parametrize("stage", ["decided", "done"])
def test_a_run_that_goes_on_at_the_former_target_in_the_moment_of_a_move_takes_it_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    other = changed(lab)
    shutil.copytree(lab.folder, other.folder)
    opened, plan = lab.extracted(MORE)
    home, journal = other.admin.would_move(), other.reopened()
    put_home = journal.put_home

    def put_late(*args: Any) -> Any:
        monkeypatch.undo()
        write_commit_steps(opened, plan, plan.packs[0])
        if stage == "done":
            execute_commit_steps(opened, plan, plan.packs[0])
        return put_home(*args)

    monkeypatch.setattr(journal, "put_home", put_late)
    with pytest.raises(LostRaceError, match=f"a run went on at {lab.folder} just now"):
        other.admin.move(home, "a larger disk")
    assert lab.reopened().homes()[-1].target == str(lab.folder)
    assert inprocess.go_on(opened, plan, NoConnections())["a"].status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_a_task_that_decided_at_the_former_target_publishes_nothing_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = changed(lab)
    shutil.copytree(lab.folder, other.folder)
    opened, plan = lab.extracted(MORE)
    before = lab.published()
    put_decision = opened.journal.put_decision

    def put_late(decision: Any) -> Any:
        other.admin.move(other.admin.would_move(), "a larger disk")
        return put_decision(decision)

    monkeypatch.setattr(opened.journal, "put_decision", put_late)
    write_commit_steps(opened, plan, plan.packs[0])
    history = lab.reopened().history("a")
    assert history.pending is not None
    with pytest.raises(ConfigurationError, match=f"published to {other.folder}"):
        opened.committer.execute(history.pending, "late")
    assert lab.published() == before


def test_where_two_begin_at_once_at_two_targets_the_one_that_published_keeps_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "lake", A)
    late = changed(lab).opened()
    put_home = late.journal.put_home

    def put_late(*args: Any) -> Any:
        monkeypatch.undo()
        assert lab.run()["a"].status == "committed"
        return put_home(*args)

    monkeypatch.setattr(late.journal, "put_home", put_late)
    (note,) = create_work_units(late, RunRequest("dag/late")).notes
    assert f"published to {lab.folder}" in note.detail
    assert [home.target for home in lab.reopened().homes()] == [str(lab.folder)]
    assert lab.run(MORE)["a"].status == "committed"


def moved(lab: Lab) -> Lab:
    """The ingestion at another target, to which it was copied; the former one is left as it was."""
    other = changed(lab)
    shutil.copytree(lab.folder, other.folder, copy_function=shutil.copy2)
    other.admin.move(other.admin.would_move(), "a larger disk")
    return other


def test_after_a_move_the_former_target_is_no_more_looked_at_and_nothing_is_done_by_it(lab: Lab) -> None:
    other = moved(lab)
    assert other.run(MORE)["a"].status == "committed"
    former = LocalFiles(lab.folder)
    assert [check.state for check in verify(other.journal, former, "a")] == [FileState.OK] * len(other.files("a"))
    assert [finding.check for finding in audit(other.journal, former)] == ["target"]
    before = other.records()
    admin = Administration(other.journal, str(lab.folder), "ann")
    with pytest.raises(ConfigurationError, match=f"published to {other.folder}"):
        admin.rewind("a", LongWatermark(4), "again")
    with pytest.raises(ConfigurationError, match=f"published to {other.folder}"):
        admin.drop("a", "over", delete_files=True)
    assert other.records() == before


def test_after_a_move_a_slot_is_not_abandoned_over_the_former_target(lab: Lab) -> None:
    other = moved(lab)
    published = other.files("a")
    opened, _ = other.decide(MORE)
    pending = other.journal.history("a").pending
    assert pending is not None
    for step in other.journal.steps(pending.decision):
        carry_out(step, StepContext(opened.files), "a", pending.decision.slot)
    before = other.files("a")
    with pytest.raises(ConfigurationError, match=f"published to {other.folder}"):
        Administration(other.journal, str(lab.folder), "ann").abandon("a", "wrong")
    assert other.reopened().history("a").pending is not None
    assert other.files("a") == before
    other.admin.abandon("a", "wrong")
    assert other.files("a") == published


def test_a_backup_copy_of_the_target_is_not_the_target(lab: Lab) -> None:
    backup = lab.folder.with_name("backup")
    shutil.copytree(lab.folder, backup, copy_function=shutil.copy2)
    admin = Administration(lab.journal, str(backup), "ann")
    before, copied = lab.records(), below(backup)
    for delete_files in (False, True):
        with pytest.raises(ConfigurationError, match=f"published to {lab.folder}"):
            admin.would_drop_all(delete_files=delete_files)
    lab.folder.rename(lab.folder.with_name("away"))
    with pytest.raises(ConfigurationError, match=f"published to {lab.folder}"):
        admin.would_drop_all(delete_files=True)
    assert (lab.records(), below(backup)) == (before, copied)


def test_an_ingestion_may_move_there_and_back(lab: Lab) -> None:
    other = moved(lab)
    assert other.run(MORE)["a"].status == "committed"
    with pytest.raises(TargetError, match="has the mark of another one"):
        lab.admin.would_move()
    shutil.copytree(other.folder, lab.folder, copy_function=shutil.copy2, dirs_exist_ok=True)
    lab.admin.move(lab.admin.would_move(), "back")
    assert lab.run(replace(MORE, rows=20))["a"].status == "committed"
    assert lab.rows("a") == replace(MORE, rows=20).all_rows()
    with pytest.raises(ConfigurationError, match=f"published to {lab.folder}"):
        other.run(replace(MORE, rows=20))


def test_a_torn_mark_counts_as_lost(lab: Lab) -> None:
    (mark,) = marks(lab.folder)
    mark.write_bytes(b"")
    with pytest.raises(TargetError, match="has a mark that can't be read"):
        lab.run(MORE)
    lab.admin.drop("a", "the disk is damaged")
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_a_reader_finds_what_was_published_by_another_path_of_the_target_before_it_moved(lab: Lab) -> None:
    link = lab.folder.with_name("link")
    link.symlink_to(lab.folder)
    assert Lab(link, MORE, store=lab.store).run()["a"].status == "committed"
    other = changed(lab)
    shutil.move(lab.folder, other.folder)
    other.admin.move(other.admin.would_move(), "a larger disk")
    assert other.rows("a") == MORE.all_rows()


# Two DAGs


@record("test.other_rows")
@dataclass(frozen=True)
class OtherSource(RowSource):
    """A source of another kind."""


def of_dag(lab: Lab, dag: str, source: RowSource, folder: Path | None = None) -> tuple[OpenJob, RunRequest]:
    sink = LineSink(str(folder or lab.folder))
    ingestion = replace(lab.ingestion, source=source, sink=sink)
    return OpenJob(ingestion, lab.reopened(), NoConnections()), RunRequest(f"{dag}/{source}")


def test_a_second_dag_with_another_source_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run(request=RunRequest("shop/run"))
    before = lab.records()
    opened, request = of_dag(lab, "crm", OtherSource((MORE,)))
    with pytest.raises(ConfigurationError) as caught:
        create_work_units(opened, request)
    message = str(caught.value)
    assert "can't plan ingestion 'lab' of DAG 'crm': DAG 'shop' has an ingestion of this name" in message
    assert "reads from test.rows and not from test.other_rows" in message
    assert "Give one of them a name of its own" in message
    assert lab.records() == before


def test_a_second_dag_with_another_target_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run(request=RunRequest("shop/run"))
    opened, request = of_dag(lab, "crm", RowSource((MORE,)), tmp_path / "sea")
    with pytest.raises(ConfigurationError, match=f"published to {lab.folder}, by DAG 'shop'"):
        create_work_units(opened, request)


def test_of_two_dags_that_begin_at_once_with_other_sources_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "lake", A)
    late, request = of_dag(lab, "crm", OtherSource((MORE,)))
    put_home = late.journal.put_home

    def put_second(home: Home, number: int) -> Home:
        monkeypatch.undo()
        create_work_units(lab.opened(), RunRequest("shop/run"))
        return put_home(home, number)

    monkeypatch.setattr(late.journal, "put_home", put_second)
    plan = create_work_units(late, request)
    assert plan.packs == ()
    assert "DAG 'shop' has an ingestion of this name" in plan.notes[0].detail
    assert [home.dag for home in lab.reopened().homes()] == ["shop"]


def test_two_dags_may_share_an_ingestion_and_one_may_change_its_source(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run(request=RunRequest("shop/run"))
    rows = Counter[str]()
    for dag, source in (("fill", RowSource((replace(A, rows=12),))), ("shop", OtherSource((MORE,)))):
        opened, request = of_dag(lab, dag, source)
        reports = inprocess.run(opened, NoConnections(), request)
        assert reports["a"].status == "committed"
        rows = lab.rows("a")
    assert rows == MORE.all_rows()
    assert [(home.dag, home.source) for home in lab.reopened().homes()] == [
        ("shop", "test.rows"),
        ("shop", "test.other_rows"),
    ]


# The source of a dataset


@record("test.queried_rows")
@dataclass(frozen=True)
class QueriedSource(RowSource):
    """Rows of a connection, where a URN may be read by another query, or by an unnamed one."""

    query: str = ""

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        of_rows = super().datasets(connections)
        if self.query:
            return tuple(replace(one, read_from=self.query) for one in of_rows)
        return tuple(replace(one, extract=replace(one.extract, namespace="", table="")) for one in of_rows)


def test_a_second_dag_that_reads_a_urn_by_another_query_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    shop, request = of_dag(lab, "shop", QueriedSource((A,), "orders where paid"))
    assert inprocess.run(shop, NoConnections(), request)["a"].status == "committed"
    before, published = lab.records(), lab.published()
    crm, request = of_dag(lab, "crm", QueriedSource((MORE, B), "orders"))
    (prospect, free) = would_plan(crm, request).datasets
    plan = create_work_units(crm, request)
    assert [ref.urn for pack in plan.packs for ref in pack.datasets] == ["b"], "the other goes on"
    assert free.status == "planned"
    for message in (prospect.detail, plan.notes[0].detail):
        assert "can't plan dataset 'a' of DAG 'crm'" in message
        assert "DAG 'shop' reads it from 'orders where paid', and this one from 'orders'" in message
        assert "Give the dataset another URN in one of them, or their ingestions two names" in message
        assert "airflow gobblin move --dag-id crm" in message
    assert [key for key in lab.records() if key not in before and "/a/" in key] == []
    assert lab.published() == published


def test_tables_of_an_ingestion_come_and_go(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    for tables in ((A,), (A, B), (B,), (MORE, replace(B, rows=9))):
        opened, request = of_dag(lab, "shop", RowSource(tables))
        reports = inprocess.run(opened, NoConnections(), request)
        assert {report.status for report in reports.values()} <= {"committed", "idle"}
    assert lab.rows("a") == MORE.all_rows()
    assert lab.rows("b") == replace(B, rows=9).all_rows()


def test_a_dag_may_change_its_own_query_and_its_guests_follow(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    for dag, query, rows in (("shop", "v1", 5), ("fill", "v1", 7), ("shop", "v2", 9), ("fill", "v2", 11)):
        opened, request = of_dag(lab, dag, QueriedSource((replace(A, rows=rows),), query))
        assert inprocess.run(opened, NoConnections(), request)["a"].status == "committed"
    guest, request = of_dag(lab, "fill", QueriedSource((replace(A, rows=13),), "v3"))
    (note,) = create_work_units(guest, request).notes
    assert "DAG 'shop' reads it from 'v2', and this one from 'v3'" in note.detail
    assert lab.rows("a") == replace(A, rows=11).all_rows()


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_person_may_let_the_other_dag_go_on_and_then_the_first_is_refused(tmp_path: Path, trimmed: bool) -> None:
    lab = Lab(tmp_path / "lake", A)
    shop, request = of_dag(lab, "shop", QueriedSource((A,), "v1"))
    inprocess.run(shop, NoConnections(), request)
    lab.admin.move(lab.admin.would_move(), "crm takes over", Tenant("crm"))
    crm, request = of_dag(lab, "crm", QueriedSource((MORE,), "v2"))
    assert inprocess.run(crm, NoConnections(), request)["a"].status == "committed"
    if trimmed:
        put_manifests(crm.files, lab.journal, lab.journal.history("a"))
        lab.journal.put_snapshot(take_snapshot(lab.journal.history("a"), 1, now()))
    shop, request = of_dag(lab, "shop", QueriedSource((replace(A, rows=20),), "v1"))
    (note,) = create_work_units(shop, request).notes
    assert "DAG 'crm' reads it from 'v2', and this one from 'v1'" in note.detail


def test_a_dag_that_doesnt_state_what_it_reads_hides_from_no_other_what_was_read(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    for dag, source in (("shop", QueriedSource((A,), "v1")), ("guest", QueriedSource((replace(A, rows=12),), ""))):
        opened, request = of_dag(lab, dag, source)
        assert inprocess.run(opened, NoConnections(), request)["a"].status == "committed"
    crm, request = of_dag(lab, "crm", QueriedSource((replace(A, rows=20),), "v2"))
    (note,) = create_work_units(crm, request).notes
    assert "DAG 'shop' reads it from 'v1', and this one from 'v2'" in note.detail


def test_of_two_dags_that_begin_a_urn_at_once_by_two_queries_one_publishes(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    crm, request = of_dag(lab, "crm", QueriedSource((MORE,), "v2"))
    late = create_work_units(crm, request)
    inprocess.extract(crm, late, NoConnections())
    shop, request = of_dag(lab, "shop", QueriedSource((replace(A, rows=4),), "v1"))
    inprocess.publish(shop, create_work_units(shop, request), NoConnections())
    (report,) = write_commit_steps(crm, late, late.packs[0])
    assert report.status == "lost"
    assert "DAG 'shop' reads it from 'v1', and this one from 'v2'" in report.detail
    assert lab.rows("a") == replace(A, rows=4).all_rows()


def test_a_dataset_that_was_dropped_is_anybodys(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    shop, request = of_dag(lab, "shop", QueriedSource((A,), "v1"))
    inprocess.run(shop, NoConnections(), request)
    lab.admin.drop("a", "crm does it now")
    crm, request = of_dag(lab, "crm", QueriedSource((MORE,), "v2"))
    assert inprocess.run(crm, NoConnections(), request)["a"].status == "committed"
