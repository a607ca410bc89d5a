"""The home of an ingestion: a target that is gone, or another one, is stopped by name, and a second DAG doesn't slip in."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_gobblin import wire
from airflow_gobblin.administration import Administration
from airflow_gobblin.errors import ConfigurationError, LostRaceError, TargetError
from airflow_gobblin.files import LocalFiles
from airflow_gobblin.home import TargetMark
from airflow_gobblin.inspection import AuditLevel, FileState, audit, verify
from airflow_gobblin.journal import Home, NoteKind
from airflow_gobblin.pipeline import Pipeline, RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.pack import run_pack
from airflow_gobblin.spark.task import Order, run_order
from airflow_gobblin.staging import staging_folder
from airflow_gobblin.wire import record
from airflow_gobblin.work import ExtractKind
from tests import inprocess
from tests.lab import Lab
from tests.protocol.rows import LineSink, NoConnections, RowSource, Table

A = Table("a", ExtractKind.APPEND_ONLY, 10)
MORE = replace(A, rows=14)
SNAPSHOT = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """An ingestion that has published."""
    lab = Lab(tmp_path / "lake", A)
    assert lab.run()["a"].status == "committed"
    return lab


def unmount(lab: Lab) -> Path:
    """Let the target be an empty folder. :return: where it is now."""
    away = lab.folder.with_name("away")
    lab.folder.rename(away)
    lab.folder.mkdir()
    return away


def mount(lab: Lab) -> None:
    shutil.rmtree(lab.folder)
    lab.folder.with_name("away").rename(lab.folder)


def below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_target_that_is_not_mounted_stops_planning_by_name_and_nothing_is_written_there(lab: Lab) -> None:
    unmount(lab)
    before = lab.records()
    for folder in ("there", "missing"):
        if folder == "missing":
            lab.folder.rmdir()
        with pytest.raises(TargetError) as caught:
            lab.run(MORE)
        told = str(caught.value)
        assert f"can't use target {lab.folder} of ingestion 'lab'" in told
        assert "it is empty, not mounted, not shared, or another target" in told
        assert "Mount or restore it, and clear the task" in told
        with pytest.raises(TargetError):
            lab.pipeline().verify_recover(RunRequest("dag/run"))
    assert lab.records() == before
    lab.folder.mkdir()
    mount(lab)
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_a_target_with_another_mark_is_another_one(lab: Lab, tmp_path: Path) -> None:
    """The same path, and another disk, on which an ingestion of the same journal once began."""
    other = Lab(tmp_path / "lake", A, store=lab.store)
    unmount(lab)
    mark = next(path for path in below(tmp_path / "away") if path.name == "mark")
    made = lab.folder / mark.relative_to(tmp_path / "away")
    made.parent.mkdir(parents=True)
    made.write_bytes(wire.dumps(TargetMark("0" * 32, "lab", lab.journal.id)))
    with pytest.raises(TargetError, match="has the mark of another one"):
        other.run(MORE)


def test_a_target_that_goes_while_it_is_planned_is_not_taken_for_a_new_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = lab.pipeline(MORE)
    proposed = pipeline._proposed

    def propose_then_unmount(*args: Any) -> Any:
        found = proposed(*args)
        unmount(lab)
        return found

    monkeypatch.setattr(pipeline, "_proposed", propose_then_unmount)
    before = lab.records()
    with pytest.raises(TargetError, match="lacks the mark"):
        pipeline.create_work_units(RunRequest("dag/run"))
    assert lab.records() == before
    assert [path.name for path in below(lab.folder)] == ["0000000001"], "no mark is put there, and no plan"
    mount(lab)
    assert lab.run()["a"].status == "committed"


def test_a_target_that_goes_before_the_decision_lets_nothing_be_decided(lab: Lab) -> None:
    pipeline, plan = lab.extracted(MORE)
    before = lab.records()
    unmount(lab)
    late = lab.pipeline()
    with pytest.raises(TargetError):
        late.write_commit_steps(plan, plan.packs[0])
    assert lab.records() == before
    assert below(lab.folder) == []
    mount(lab)
    reports = inprocess.go_on(pipeline, plan, NoConnections())
    assert reports["a"].status == "committed"


def test_a_target_that_goes_in_the_moment_before_the_decision_lets_nothing_be_decided(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, plan = lab.extracted(MORE)
    put_steps = pipeline.committer._put_steps

    def put_then_unmount(*args: object) -> object:
        found = put_steps(*args)  # type: ignore[arg-type]
        unmount(lab)
        return found

    monkeypatch.setattr(pipeline.committer, "_put_steps", put_then_unmount)
    (report,) = pipeline.write_commit_steps(plan, plan.packs[0])
    assert (report.status, report.retryable) == ("failed", True)
    assert "not mounted" in report.detail
    assert lab.journal.state("a").head == 1


def test_a_pending_slot_waits_for_its_target_and_is_not_quarantined_for_it(lab: Lab) -> None:
    lab.ingestion = replace(lab.ingestion, attempts=1)
    _, plan = lab.decide(MORE)
    unmount(lab)
    with pytest.raises(TargetError):
        lab.pipeline().execute_commit_steps(plan, plan.packs[0])
    with pytest.raises(TargetError):
        lab.pipeline().verify_recover(RunRequest("dag/next"))
    with pytest.raises(TargetError):
        lab.pipeline().finish(plan)
    slot = lab.journal.history("a").slots[-1]
    with pytest.raises(TargetError):
        lab.pipeline().committer.recover("a", "key")
    assert (slot.finished, slot.failures) == (False, ())
    assert below(lab.folder) == []
    mount(lab)
    (report,) = lab.pipeline().execute_commit_steps(plan, plan.packs[0])
    assert report.status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_retired_files_of_a_target_that_is_gone_are_not_noted_as_removed(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", SNAPSHOT)
    lab.run()
    lab.run(replace(SNAPSHOT, version=1))
    pipeline, plan = lab.extracted(replace(SNAPSHOT, version=2))
    inprocess.publish(pipeline, plan, NoConnections())
    unmount(lab)
    with pytest.raises(TargetError):
        lab.pipeline().committer.clean(lab.journal.history("s"), "key")
    assert not lab.journal.history("s").slots[1].noted(NoteKind.CLEANED)
    mount(lab)
    assert len(lab.files("s")) == 3
    assert lab.pipeline().committer.clean(lab.journal.history("s"), "key") == ()
    assert len(lab.files("s")) == 2, "what the newest slot retired stays until the next one"


def test_audit_and_verify_say_that_the_target_is_gone_and_not_that_each_file_is(lab: Lab) -> None:
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


def test_a_driver_or_an_executor_that_does_not_see_the_target_says_so(lab: Lab) -> None:
    _, plan = lab.extracted(MORE)
    unmount(lab)
    staging = staging_folder("lab", lab.journal.id)
    nothing = SparkConnections({})
    with pytest.raises(TargetError, match="workers, driver and executors share"):
        run_pack(cast(Any, None), str(lab.folder), staging, plan.run, 0, (), nothing)
    order = Order((), str(lab.folder), staging, "attempt", plan.run, {}, {}, nothing)
    with pytest.raises(TargetError, match=f"on host '.*' it lacks {staging}/mark"):
        [*run_order(order)]
    assert below(lab.folder) == []


def test_the_mark_leaves_staging_private(lab: Lab) -> None:
    (mark,) = (path for path in below(lab.folder) if path.name == "mark")
    assert mark.parent.stat().st_mode & 0o077 == 0


# A changed target


def changed(lab: Lab, name: str = "sea") -> Lab:
    """The same ingestion, to another target."""
    return Lab(lab.folder.with_name(name), *lab.ingestion.source.tables, store=lab.store)  # type: ignore[attr-defined]


def test_a_changed_target_is_refused_and_the_way_to_move_is_told(lab: Lab) -> None:
    other = changed(lab)
    before = lab.records()
    with pytest.raises(ConfigurationError) as caught:
        other.run(MORE, request=RunRequest("dag/run"))
    told = str(caught.value)
    assert f"its datasets are published to {lab.folder}" in told
    assert "Go back to that target. To move: let its runs end, copy all that is below it" in told
    assert "airflow gobblin move" in told
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
    assert len(other.files("s")) == 2, "what was retired at the former target is removed here"
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


def test_of_two_who_move_at_once_one_is_told(lab: Lab) -> None:
    other = changed(lab)
    shutil.copytree(lab.folder, other.folder)
    home = other.admin.would_move()
    other.admin.move(home, "first")
    with pytest.raises(LostRaceError, match="changed in this moment"):
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
    pipeline, plan = lab.extracted(MORE)
    home, journal = other.admin.would_move(), other.reopened()
    put_home = journal.put_home

    def put_late(*args: Any) -> Any:
        monkeypatch.undo()
        pipeline.write_commit_steps(plan, plan.packs[0])
        if stage == "done":
            pipeline.execute_commit_steps(plan, plan.packs[0])
        return put_home(*args)

    monkeypatch.setattr(journal, "put_home", put_late)
    with pytest.raises(LostRaceError, match=f"a run went on at {lab.folder} in this moment"):
        other.admin.move(home, "a larger disk")
    assert lab.reopened().homes()[-1].target == str(lab.folder)
    assert inprocess.go_on(pipeline, plan, NoConnections())["a"].status == "committed"
    assert lab.rows("a") == MORE.all_rows()


def test_a_task_that_decided_at_the_former_target_publishes_nothing_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = changed(lab)
    shutil.copytree(lab.folder, other.folder)
    pipeline, plan = lab.extracted(MORE)
    before = lab.published()
    put_decision = pipeline.journal.put_decision

    def put_late(decision: Any) -> Any:
        other.admin.move(other.admin.would_move(), "a larger disk")
        return put_decision(decision)

    monkeypatch.setattr(pipeline.journal, "put_decision", put_late)
    pipeline.write_commit_steps(plan, plan.packs[0])
    history = lab.reopened().history("a")
    assert history.pending is not None
    with pytest.raises(ConfigurationError, match=f"published to {other.folder}"):
        pipeline.committer.execute(history.pending, "late")
    assert lab.published() == before


def test_where_two_begin_at_once_at_two_targets_the_one_that_published_keeps_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "lake", A)
    late = changed(lab).pipeline()
    put_home = late.journal.put_home

    def put_late(*args: Any) -> Any:
        monkeypatch.undo()
        assert lab.run()["a"].status == "committed"
        return put_home(*args)

    monkeypatch.setattr(late.journal, "put_home", put_late)
    (note,) = late.create_work_units(RunRequest("dag/late")).notes
    assert f"published to {lab.folder}" in note.detail
    assert [home.target for home in lab.reopened().homes()] == [str(lab.folder)]
    assert lab.run(MORE)["a"].status == "committed"


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


def of_dag(lab: Lab, dag: str, source: RowSource, folder: Path | None = None) -> tuple[Pipeline, RunRequest]:
    sink = LineSink(str(folder or lab.folder))
    ingestion = replace(lab.ingestion, source=source, sink=sink)
    return Pipeline(ingestion, lab.reopened(), NoConnections()), RunRequest(f"{dag}/{source}")


def test_a_second_dag_with_another_source_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run(request=RunRequest("shop/run"))
    before = lab.records()
    pipeline, request = of_dag(lab, "crm", OtherSource((MORE,)))
    with pytest.raises(ConfigurationError) as caught:
        pipeline.create_work_units(request)
    told = str(caught.value)
    assert "can't plan ingestion 'lab' of DAG 'crm': DAG 'shop' has an ingestion of this name" in told
    assert "reads from test.rows and not from test.other_rows" in told
    assert "Give one of them a name of its own" in told
    assert lab.records() == before


def test_a_second_dag_with_another_target_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run(request=RunRequest("shop/run"))
    pipeline, request = of_dag(lab, "crm", RowSource((MORE,)), tmp_path / "sea")
    with pytest.raises(ConfigurationError, match=f"published to {lab.folder}, by DAG 'shop'"):
        pipeline.create_work_units(request)


def test_of_two_dags_that_begin_at_once_with_other_sources_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "lake", A)
    late, request = of_dag(lab, "crm", OtherSource((MORE,)))
    put_home = late.journal.put_home

    def put_second(home: Home, number: int) -> Home:
        monkeypatch.undo()
        lab.pipeline().create_work_units(RunRequest("shop/run"))
        return put_home(home, number)

    monkeypatch.setattr(late.journal, "put_home", put_second)
    plan = late.create_work_units(request)
    assert plan.packs == ()
    assert "DAG 'shop' has an ingestion of this name" in plan.notes[0].detail
    assert [home.dag for home in lab.reopened().homes()] == ["shop"]


def test_two_dags_may_share_an_ingestion_and_one_may_change_its_source(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run(request=RunRequest("shop/run"))
    rows = Counter[str]()
    for dag, source in (("fill", RowSource((replace(A, rows=12),))), ("shop", OtherSource((MORE,)))):
        pipeline, request = of_dag(lab, dag, source)
        reports = inprocess.run(pipeline, NoConnections(), request)
        assert reports["a"].status == "committed"
        rows = lab.rows("a")
    assert rows == MORE.all_rows()
    assert [(home.dag, home.source) for home in lab.reopened().homes()] == [
        ("shop", "test.rows"),
        ("shop", "test.other_rows"),
    ]
