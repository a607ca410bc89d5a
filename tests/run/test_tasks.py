"""Runs with datasets that fail, are late, are replaced, or are asked for again.

No crashes here: see tests/protocol.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.admin.views import AuditLevel, audit
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ClaimError, ConfigurationError, NeverPublishedError, NotFoundError, Remedy
from airflow_gobblin.hooks.wording import worded
from airflow_gobblin.job import Attempt
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Decision, now
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind, Limits, UnitResult, UnitState
from airflow_gobblin.rows.work import RowsBinding
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units, would_plan
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport, incomplete
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files import Files, LocalFiles
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace import staging
from tests.lab import Lab
from tests.protocol.rows import LineSink, RowSource, Table

APPEND = ExtractKind.APPEND_ONLY
SNAPSHOT = ExtractKind.SNAPSHOT_ONLY

A, B = Table("a", APPEND, 10), Table("b", APPEND, 10)


class Killed(BaseException):
    """The process was killed here."""


def test_runs_go_on_where_the_last_one_ended(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    report = lab.run()["a"]
    history = lab.journal.history("a")
    assert report.bytes == sum(file.size for _, file in lab.journal.files(history, history.state.live)) > 0
    assert replace(report, bytes=0) == DatasetReport(
        "a", Status.COMMITTED, "slot 1", 1, files=3, rows=10, watermark=LongWatermark(10), holds=Holds.RANGES
    )
    assert lab.run()["a"].status == "idle"
    grown = replace(A, rows=13)
    assert lab.run(grown)["a"].slot == 2
    assert lab.rows("a") == grown.all_rows()
    assert lab.journal.state("a").watermark == LongWatermark(13)


def test_an_idle_dataset_writes_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before = list(lab.journal.store.list(""))
    lab.run()
    assert [k for k in lab.journal.store.list("") if k not in before] == []


def test_full_publishes_nothing_of_a_dataset_with_a_failed_unit_and_the_others_go_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    reports = lab.run(units=("a:u1",))
    assert (reports["a"].status, reports["b"].status) == ("failed", "committed")
    assert "the line is dead" in reports["a"].detail
    assert lab.rows("a") == Counter()
    kept = lab.journal.state("a").previous_units
    assert [u.state for u in kept] == [UnitState.SKIPPED, UnitState.FAILED, UnitState.SKIPPED]
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == A.all_rows()


def test_successful_publishes_good_units_and_plans_the_hole_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, policy=CommitPolicy.SUCCESSFUL)
    report = lab.run(units=("a:u0",))["a"]
    assert report.status == "partial"
    assert incomplete(lab.ingestion, [report]) is not None
    assert incomplete(replace(lab.ingestion, partial_ok=True), [report]) is None
    assert lab.journal.state("a").watermark == LongWatermark(0)
    plan = create_work_units(lab.opened(replace(A, rows=12)), RunRequest("next"))
    units = lab.opened().staging.plan(plan.packs[0].datasets[0].token)
    assert units is not None
    assert [u.low for u in units.units] == [LongWatermark(0), LongWatermark(10)]
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == replace(A, rows=12).all_rows()


def test_the_same_run_again_is_once_and_a_partial_one_is_completed(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B, policy=CommitPolicy.SUCCESSFUL)
    same = RunRequest("monday")
    lab.run(request=same, units=("a:u1",))
    reports = lab.run(replace(A, rows=20), replace(B, rows=20), request=same)
    assert reports["b"].status == "committed"
    assert lab.rows("b") == B.all_rows()  # anything later is another run's
    assert reports["a"].status == "committed"
    assert lab.journal.state("a").coverage.covers(lab.journal.history("a").slots[0].decision.planned)  # type: ignore[arg-type]


def test_limits_cut_and_the_next_run_goes_on_exactly_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, limits=Limits(rows=3))
    assert lab.run()["a"].watermark == LongWatermark(3)
    for _ in range(5):
        lab.run()
    assert lab.rows("a") == A.all_rows()
    assert lab.journal.state("a").watermark == LongWatermark(10)


def test_counts_that_differ_from_the_sources_publish_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    report = lab.run(miscounted=("a",))["a"]
    assert report.status == "failed"
    assert "5" in report.detail
    assert lab.rows("a") == Counter()


def test_a_dataset_that_cant_be_planned_keeps_its_state_for_any_number_of_runs(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    lab.run()
    before = lab.journal.state("a")
    for rows in (11, 12, 13):
        reports = lab.run(replace(A, rows=rows), replace(B, rows=rows), unplannable=("a",))
        assert (reports["a"].status, reports["b"].status) == ("failed", "committed")
        assert reports["a"].text.endswith("it is gone. Plan it anew.")
        assert "it is gone. Clear create_work_units with its downstream tasks" in worded(reports["a"]).detail
        assert reports["a"].watermark == LongWatermark(10)
    assert lab.journal.state("a") == before
    lab.run()
    assert lab.rows("a") == replace(A, rows=13).all_rows()


def test_only_the_datasets_that_were_asked_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    assert set(lab.run(request=RunRequest("x", datasets=("b",)))) == {"b"}
    with pytest.raises(ConfigurationError, match=r"\['c'\].*has \['a', 'b'\]"):
        lab.run(request=RunRequest("y", datasets=("c",)))


def test_an_old_run_after_newer_ones_fills_its_own_gap_or_commits_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    old = RunRequest("old", end=datetime.fromtimestamp(5, UTC))
    assert lab.run(request=RunRequest("new", end=datetime.fromtimestamp(10, UTC)))["a"].rows == 10
    assert lab.run(request=old)["a"].status == "idle"
    lab.admin.rewind("a", LongWatermark(0), "amounts were wrong")
    assert lab.run(request=old)["a"].rows == 5
    assert lab.run()["a"].rows == 5
    assert lab.rows("a") == A.all_rows()


def test_two_runs_at_once_and_the_later_one_is_green(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    first, second = lab.opened(), lab.opened()
    plans = [create_work_units(p, RunRequest(name)) for p, name in ((first, "x"), (second, "y"))]
    for opened, plan in zip((first, second), plans, strict=True):
        inprocess.extract(opened, plan, NoConnections())
    statuses = [
        write_commit_steps(p, plan, plan.packs[0])[0].status for p, plan in zip((first, second), plans, strict=True)
    ]
    assert statuses == ["pending", "covered"]
    for opened, plan in zip((first, second), plans, strict=True):
        execute_commit_steps(opened, plan, plan.packs[0])
    finished = [finish(p, plan)[0] for p, plan in zip((first, second), plans, strict=True)]
    assert [report.status for report in finished] == ["committed", "covered"]
    assert finished[1].detail == "range [0, 10) was committed by another run: [0, 10) in slot 1 by run 'x'"
    assert lab.rows("a") == A.all_rows()
    assert first.staging.tokens() == ()


def test_a_snapshot_replaces_files_and_leaves_those_that_somebody_changed(tmp_path: Path) -> None:
    table = Table("s", SNAPSHOT, 8)
    lab = Lab(tmp_path, table)
    lab.run()
    old = lab.files("s")
    old[0].write_text("mine now\n")
    newer = replace(table, version=1)
    lab.run(newer)
    assert lab.rows("s") == newer.all_rows()
    assert old[1] in lab.files("s")  # until the next slot
    lab.run(replace(table, version=2))
    assert old[0] in lab.files("s")
    assert old[1] not in lab.files("s")
    slots = range(1, lab.journal.state("s").head + 1)
    notes = [n.detail for slot in slots for n in lab.journal.notes("s", slot) if "was changed" in n.detail]
    assert len(notes) == 1
    assert old[0].name in notes[0]


def test_a_snapshot_without_units_is_published_as_an_empty_dataset(tmp_path: Path) -> None:
    """An author's own source plans an empty table like this: its readers must not go on with the old rows."""
    table = Table("s", SNAPSHOT, 8)
    lab = Lab(tmp_path, table)
    lab.run()
    empty = replace(table, rows=0)
    report = lab.run(empty)["s"]
    assert (report.status, report.slot, report.files, report.rows) == ("committed", 2, 0, 0)
    assert lab.rows("s") == Counter()
    assert {found.level for found in audit(lab.journal, LocalFiles(lab.folder))} == {AuditLevel.NOTE}
    before = lab.records()
    assert lab.run(empty)["s"].status == "idle", "it is published as empty already"
    assert lab.records() == before
    again = replace(table, version=1)
    assert lab.run(again)["s"].slot == 3
    assert lab.rows("s") == again.all_rows()
    lab.run(replace(table, version=2))
    assert len(lab.files("s")) == 4, "retired files are removed"


def test_a_snapshot_without_units_that_was_never_published_is_published_as_empty(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("s", SNAPSHOT, 0))
    with pytest.raises(NotFoundError):
        lab.journal.read_dataset("s")
    assert lab.run()["s"].status == "committed"
    assert lab.journal.read_dataset("s").paths == []
    before = lab.records()
    assert lab.run()["s"].status == "idle"
    assert lab.records() == before


def test_a_decided_empty_snapshot_is_finished_by_the_next_run_and_the_same_request_is_once(tmp_path: Path) -> None:
    table = Table("s", SNAPSHOT, 8)
    lab = Lab(tmp_path, table)
    lab.run()
    request = RunRequest("dag/run")
    lab.decide(replace(table, rows=0), request=request)
    assert lab.rows("s") == table.all_rows()
    assert [report.status for report in verify_recover(lab.opened(), request)] == ["recovered"]
    assert lab.rows("s") == Counter()
    assert lab.run(request=request)["s"].already


def test_a_late_empty_snapshot_retires_nothing_that_came_after_it(tmp_path: Path) -> None:
    table = Table("s", SNAPSHOT, 8)
    lab = Lab(tmp_path, table)
    lab.run()
    late, plan = lab.extracted(replace(table, rows=0))
    newer = replace(table, version=1)
    lab.run(newer)
    (report,) = write_commit_steps(late, plan, plan.packs[0])
    assert report.status == "lost"
    assert lab.rows("s") == newer.all_rows()


@pytest.mark.parametrize("kind", [APPEND, ExtractKind.SNAPSHOT_APPEND])
def test_a_first_load_without_units_waits_for_the_first_rows(tmp_path: Path, kind: ExtractKind) -> None:
    """For a dataset with positions nothing is retired by that, and where it begins isn't known yet."""
    table = Table("a", kind, 0)
    lab = Lab(tmp_path, table)
    assert lab.run()["a"].status == "idle"
    assert lab.run(replace(table, rows=5))["a"].slot == 1
    assert lab.run(table)["a"].status == "idle", "published files stay, though the table is empty now"
    assert lab.rows("a") == replace(table, rows=5).all_rows()


def test_staged_rows_are_private_and_published_ones_are_as_any_file_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.extracted()
    folder = tmp_path / opened.staging.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)
    mine = tmp_path / "a" / "mine"
    mine.write_text("any file")
    published = [path for path in lab.files("a") if path != mine]
    assert {path.stat().st_mode for path in published} == {mine.stat().st_mode}
    manifests = [*(tmp_path / "_gobblin" / "manifests").rglob("*.json")]
    assert {path.stat().st_mode for path in manifests} == {mine.stat().st_mode}


@pytest.mark.parametrize("linked", ["a", "_gobblin"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_that_is_a_link_is_refused_by_name(tmp_path: Path, linked: str, inside: bool) -> None:
    elsewhere = tmp_path / "lake" / "kept" if inside else tmp_path / "elsewhere"
    elsewhere.mkdir(parents=True)
    (tmp_path / "lake").mkdir(exist_ok=True)
    (tmp_path / "lake" / linked).symlink_to(elsewhere)
    lab = Lab(tmp_path / "lake", A, B)
    reports = lab.run()
    assert reports["a"].status == "failed"
    assert f"{linked} is a link or another disk, or is in one, and leads to {elsewhere}" in reports["a"].detail
    assert reports["b"].status == ("committed" if linked == "a" else "failed")
    assert [*(tmp_path / "lake").rglob("*.txt")] == [] if linked == "_gobblin" else [*elsewhere.iterdir()] == []


def test_a_folder_that_became_a_link_after_planning_is_refused_before_anything_is_decided(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    opened, plan = lab.extracted()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "lake" / "a").symlink_to(tmp_path / "elsewhere")
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert (report.status, "a is a link" in report.detail) == ("failed", True)
    assert lab.journal.history("a").state.head == 0


def test_replaced_files_stay_for_their_retention(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("s", SNAPSHOT, 4), retention=timedelta(hours=1))
    for version in range(3):
        lab.run(Table("s", SNAPSHOT, 4, version))
    assert len(lab.files("s")) == 3
    assert len(lab.journal.read_dataset("s").paths) == 1


def test_a_retention_is_measured_by_the_targets_own_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers' clocks may be days apart, in either direction."""
    lab = Lab(tmp_path, Table("s", SNAPSHOT, 4), retention=timedelta(hours=12))
    lab.run()
    for version, days in ((1, -2), (2, 2)):
        with monkeypatch.context() as wrong:
            wrong.setattr("airflow_gobblin.journal.journal.now", lambda days=days: now() + timedelta(days=days))
            lab.run(Table("s", SNAPSHOT, 4, version))
    lab.run(Table("s", SNAPSHOT, 4, 3))
    assert len(lab.files("s")) == 4, "a day is not over, whatever the worker's clock showed"
    for manifest in tmp_path.glob("_gobblin/manifests/*/s/*.json"):
        long_ago = time.time() - 13 * 3600
        os.utime(manifest, (long_ago, long_ago))
    lab.run(Table("s", SNAPSHOT, 4, 4))
    assert len(lab.files("s")) == 2, "files that slots 2 to 4 retired are gone, and those of slot 5 are kept"
    assert [*(tmp_path / "_gobblin" / "clock").iterdir()] == []


def test_who_is_killed_while_it_asks_for_the_time_leaves_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, Table("s", SNAPSHOT, 4), retention=timedelta(hours=12))
    lab.run()
    lab.run(Table("s", SNAPSHOT, 4, 1))
    left: list[Path] = []
    unlink = LocalFiles.unlink

    def die(files: LocalFiles, path: str) -> None:
        if not (tmp_path / path).stat().st_size:
            left.append(tmp_path / path)
            raise Killed
        unlink(files, path)

    with monkeypatch.context() as killed:
        killed.setattr(LocalFiles, "unlink", die)
        with pytest.raises(Killed):
            lab.run(Table("s", SNAPSHOT, 4, 2))
    (clock,) = left
    lab.run(Table("s", SNAPSHOT, 4, 3))
    assert clock.exists(), "somebody may be at it just now"
    os.utime(clock, (time.time() - 2 * 3600,) * 2)
    lab.run(Table("s", SNAPSHOT, 4, 4))
    assert not clock.exists()


@pytest.mark.parametrize("options", [{"limits": Limits(rows=1)}, {"policy": CommitPolicy.SUCCESSFUL}])
def test_a_snapshot_is_whole_or_not_at_all(tmp_path: Path, options: dict[str, Any]) -> None:
    lab = Lab(tmp_path, Table("s", SNAPSHOT, 8), A, **options)
    reports = lab.run()
    assert "whole or not at all" in reports["s"].detail
    assert reports["a"].status == "committed"


def test_a_dataset_that_cant_be_finished_is_quarantined_after_three_runs_until_it_is_released(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    opened = lab.opened()
    plan = create_work_units(opened, RunRequest("first"))
    inprocess.extract(opened, plan, NoConnections())
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
    slot = lab.journal.history("a").slots[0]
    step = next(iter(lab.journal.steps(slot.decision)))
    blocker = tmp_path / step.target  # type: ignore[attr-defined]
    blocker.parent.mkdir(parents=True)
    blocker.write_text("somebody else's\n")
    for number, rows in enumerate((11, 12, 13, 14), start=1):
        for _ in range(2):  # another try of the same run doesn't count
            verify_recover(lab.opened(), RunRequest(f"run {number}"))
        reports = lab.run(A, replace(B, rows=rows), request=RunRequest(f"run {number}"))
        assert reports["a"].status == ("failed" if number < 3 else "quarantined")
        assert reports["b"].status == "committed"
    assert blocker.read_text() == "somebody else's\n"
    blocker.unlink()
    assert lab.run()["a"].status == "quarantined"
    lab.admin.release("a", "the file is moved away")
    assert lab.run()["a"].status == "idle"
    assert lab.rows("a") == A.all_rows()


def test_actions_need_a_reason_and_a_dataset(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before = list(lab.journal.store.list(""))
    for act in (
        lambda: lab.admin.rewind("a", LongWatermark(3), ""),
        lambda: lab.admin.rewind("nosuch", LongWatermark(3), "why"),
        lambda: lab.admin.rewind("a", LongWatermark(-1), "before the origin"),
        lambda: lab.admin.rewind("a", LongWatermark(10), "nothing is there"),
        lambda: lab.admin.set_watermark("a", LongWatermark(5), "moves back"),
        lambda: lab.admin.release("a", "not quarantined"),
        lambda: lab.admin.abandon("a", "nothing is pending"),
        lambda: lab.admin.drop("nosuch", "why"),
    ):
        with pytest.raises(ConfigurationError):
            act()
    assert list(lab.journal.store.list("")) == before


def test_rewind_is_widened_to_units_and_publishes_anew(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    old = lab.journal.read_dataset("a").paths
    slot = lab.admin.rewind("a", LongWatermark(6), "amounts were wrong")
    assert lab.journal.state("a").watermark == LongWatermark(4)
    assert [ref.unit for ref in slot.decision.replaces] == ["u1", "u2"]
    assert (slot.decision.actor, slot.decision.reason) == ("ann", "amounts were wrong")
    lab.run()
    assert lab.rows("a") == A.all_rows()
    lab.run(replace(A, rows=11))
    assert [Path(p).exists() for p in old] == [True, False, False]


def test_abandon_takes_back_what_was_published_and_its_range_is_open(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()

    def stop(decision: Decision, k: int, n: int) -> None:
        raise KeyboardInterrupt

    opened.committer.after_step = stop
    with pytest.raises(KeyboardInterrupt):
        execute_commit_steps(opened, plan, plan.packs[0])
    assert lab.files("a")
    lab.admin.abandon("a", "wrong source")
    assert lab.files("a") == []
    assert execute_commit_steps(opened, plan, plan.packs[0])[0].status == "lost"
    assert lab.run()["a"].slot == 2
    assert lab.rows("a") == A.all_rows()


def test_an_open_plan_can_be_aborted(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened = lab.opened()
    plan = create_work_units(opened, RunRequest("first"))
    inprocess.extract(opened, plan, NoConnections())
    lab.admin.abandon("a", "it read the wrong database")
    assert write_commit_steps(opened, plan, plan.packs[0])[0].status == "lost"
    assert lab.rows("a") == Counter()
    lab.run()
    assert lab.rows("a") == A.all_rows()


def test_set_watermark_skips_and_beats_older_plans(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.admin.set_watermark("a", LongWatermark(4), "moved from another tool")
    opened = lab.opened()
    plan = create_work_units(opened, RunRequest("first"))
    inprocess.extract(opened, plan, NoConnections())
    lab.admin.set_watermark("a", LongWatermark(8), "moved on")
    assert write_commit_steps(opened, plan, plan.packs[0])[0].status == "lost"
    lab.run()
    assert lab.rows("a") == Counter(A.row(n) for n in (8, 9))


@pytest.mark.parametrize("delete", [False, True])
def test_drop_forgets_a_dataset_and_frees_its_target(tmp_path: Path, delete: bool) -> None:
    lab = Lab(tmp_path, A, B)
    lab.run()
    lab.admin.drop("a", "moved elsewhere", delete_files=delete)
    with pytest.raises(NeverPublishedError, match="forgot it"):
        lab.journal.read_dataset("a")
    state = lab.journal.state("a")
    assert (state.coverage.origin, state.schema, state.live, state.previous_units) == (None, None, {}, ())
    assert lab.rows("b") == B.all_rows()
    lab.journal = Journal.create(lab.journal.store, "lab2")
    lab.ingestion = replace(lab.ingestion, name="lab2")
    reports = lab.run(A)
    assert reports["a"].status == "committed"
    assert lab.rows("a") == A.all_rows()


@pytest.mark.parametrize("first", [APPEND, SNAPSHOT])
def test_a_dataset_whose_rows_would_come_again_as_another_kind_is_refused(tmp_path: Path, first: ExtractKind) -> None:
    table = replace(A, extract=first)
    lab = Lab(tmp_path, table)
    lab.run()
    other = replace(table, extract=APPEND if first is SNAPSHOT else SNAPSHOT)
    report = lab.run(other, B)["a"]
    assert report.status == "failed"
    assert "its published content" in report.detail
    assert "Go back to the former kind" in report.detail
    assert lab.rows("a") == table.all_rows()
    assert lab.rows("b") == B.all_rows()
    lab.admin.drop("a", "it is a table of another kind now", delete_files=True)
    assert lab.run(other, B)["a"].status == "committed"
    assert lab.rows("a") == other.all_rows()


def test_what_is_unfinished_and_no_longer_in_the_source_keeps_runs_red(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    step = next(iter(lab.journal.steps(lab.journal.history("a").slots[0].decision)))
    blocker = tmp_path / step.target  # type: ignore[attr-defined]
    blocker.parent.mkdir(parents=True)
    blocker.write_text("somebody else's\n")
    for number in range(1, 5):
        reports = lab.run(B, request=RunRequest(f"run {number}"))
        assert reports["a"].status == ("failed" if number < 3 else "quarantined")
        assert "slot 1 is not finished, and the source has no such dataset any more" in reports["a"].detail
        assert incomplete(lab.ingestion, reports.values()) is not None
    assert set(lab.run(B, request=RunRequest("only b", datasets=("b",)))) == {"b"}
    lab.admin.abandon("a", "it left the source")
    assert set(lab.run(B)) == {"b"}


def test_planning_one_dataset_sees_the_states_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, A, B)
    lab.run()
    seen: list[set[str]] = []
    plan = RowSource.plan

    def look(self: RowSource, dataset: Any, states: Any, *rest: Any) -> Any:
        seen.append(set(states))
        return plan(self, dataset, states, *rest)

    monkeypatch.setattr(RowSource, "plan", look)
    lab.run(request=RunRequest("one", datasets=("a",)))
    assert seen == [{"a", "b"}]


def test_the_cause_that_is_reported_is_this_runs(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run(units=("a:u1",))
    opened = lab.opened()
    plan = create_work_units(opened, RunRequest("killed in extract"))
    (report,) = finish(opened, plan)
    assert report.detail == "nothing of its 3 units is published: it has no result: it was not extracted to its end"
    assert report.remedy is Remedy.EXTRACT


@pytest.mark.parametrize("kept", [10_000, 1, 0])
def test_of_two_results_of_a_unit_the_summary_and_the_steps_are_of_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The files of two first results are gone. One unit has a second result, which stopped earlier.

    :param kept: how many results are kept in memory; the others are read twice.
    """
    monkeypatch.setattr(staging, "KEPT", kept)
    lab = Lab(tmp_path, A, policy=CommitPolicy.SUCCESSFUL)
    opened = lab.opened()
    run = create_work_units(opened, RunRequest("run"))
    inprocess.extract(opened, run, NoConnections())
    plan = opened.staging.plan(run.packs[0].datasets[0].token)
    assert plan is not None
    for unit in plan.units[:2]:
        result = opened.staging.result(plan.token, unit.id)
        assert result is not None
        (tmp_path / result.files[0].path).unlink()
    work = opened.staging.work(run.run)
    cut = replace(plan, binding=replace(RowsBinding.of(plan), limits=Limits(rows=3)))
    attempt = Attempt("second", opened.files, opened.staging.token_folder(plan.token), NoConnections())
    second = work.run(plan.units[0], cut, attempt)
    opened.staging.put_result(plan.token, second)
    (report,) = write_commit_steps(opened, run, run.packs[0])
    assert (report.status, report.files, report.rows) == ("pending", 2, 3 + 2)
    execute_commit_steps(opened, run, run.packs[0])
    assert sum(lab.rows("a").values()) == 3 + 2
    assert [str(part) for part in lab.journal.state("a").coverage.ranges()] == ["[0, 3)", "[8, 10)"]


# Looks ahead of a run

C, S = Table("c", APPEND, 5), Table("s", SNAPSHOT, 4)


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("first", [True, False])
def test_what_would_be_planned_is_what_is_planned_and_nothing_is_written(tmp_path: Path, first: bool) -> None:
    lab = Lab(tmp_path, A, B, S, max_packs=2)
    if not first:
        lab.run()
        lab.opened(replace(A, rows=30), B, replace(S, rows=9))
    records, files = lab.records(), everything(tmp_path)
    prospect = would_plan(OpenJob(lab.ingestion, Journal.open(lab.store, "lab"), NoConnections()), RunRequest("run"))
    assert (lab.records(), everything(tmp_path)) == (records, files)
    opened = lab.opened()
    run = create_work_units(opened, RunRequest("run"))
    assert [[(r.urn, r.weight, r.planned) for r in pack.datasets] for pack in prospect.packs] == [
        [(r.urn, r.weight, r.planned) for r in pack.datasets] for pack in run.packs
    ]
    for ref in (ref for pack in run.packs for ref in pack.datasets):
        plan = opened.staging.plan(ref.token)
        (one,) = (found for found in prospect.datasets if found.urn == ref.urn)
        assert plan is not None
        assert one.units == tuple(opened.staging.units(plan))
    assert {one.urn: one.status for one in prospect.datasets if one.status != "planned"} == {
        note.urn: note.status for note in run.notes
    }


def test_what_could_not_be_planned_is_reported_and_claims_nothing(tmp_path: Path) -> None:
    Lab(tmp_path, A).run()
    lab = Lab(tmp_path, A, B, C)
    lab.decide(C)
    lab.admin.set_watermark("p", LongWatermark(0), "to begin there")
    lab.admin.pause("p", "not now")
    files = everything(tmp_path)
    found = would_plan(lab.opened(A, B, C, replace(A, urn="p"), unplannable=("b",)), RunRequest("run")).datasets
    assert {one.urn: one.status for one in found} == {"a": "failed", "b": "failed", "c": "pending", "p": "paused"}
    a, b, *_ = found
    assert isinstance(a.error, ClaimError)
    assert "it is gone" in b.detail
    assert everything(tmp_path) == files


def test_what_has_no_room_waits_and_goes_first_the_next_time(tmp_path: Path) -> None:
    tables = [replace(A, urn=urn, rows=rows) for urn, rows in (("a", 10), ("b", 3), ("c", 8), ("d", 4))]
    lab = Lab(tmp_path, *tables, max_packs=1, max_pack_weight=9)
    reports = lab.run()
    assert {urn: report.status for urn, report in reports.items()} == {
        "a": "committed",
        "b": "waiting",
        "c": "waiting",
        "d": "waiting",
    }
    assert "its weight of 8 has no room in 1 pack of at most 9" in reports["c"].detail
    assert incomplete(lab.ingestion, reports.values()) is None
    grown = [replace(table, rows=table.rows + 1) for table in tables]
    taken = [sorted(urn for urn, r in lab.run(*grown).items() if r.status == "committed") for _ in range(3)]
    assert taken == [["c"], ["b", "d"], ["a"]]
    assert all(lab.rows(table.urn) == table.all_rows() for table in grown)
    assert lab.opened().staging.tokens() == ()


@record("test.deaf_sink")
@dataclass(frozen=True)
class DeafSink(LineSink):
    """Can publish nothing of dataset `a`."""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        if plan.urn == "a":
            raise ValueError("I have no steps")
        return super().publish(plan, results, files)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True], ids=["it can't be published", "its run is stopped"])
def test_a_dataset_that_is_never_published_leaves_room_for_the_others(tmp_path: Path, stopped: bool) -> None:
    """And gets it itself in its turn, though the others always have something new."""
    tables = [replace(A, urn=urn) for urn in "abc"]
    lab = Lab(tmp_path, *tables, max_packs=1, max_pack_weight=9)
    lab.run()
    lab.run()
    lab.run()
    lab.ingestion = replace(lab.ingestion, sink=DeafSink(str(tmp_path)))
    turns = []
    for more in range(1, 8):
        grown = [replace(table, rows=table.rows + 10 * more) for table in tables]
        opened, plan = lab.extracted(*grown)
        (dataset,) = plan.packs[0].datasets
        turns.append(dataset.urn)
        if not stopped or dataset.urn != "a":
            inprocess.go_on(opened, plan, NoConnections())
    assert "".join(turns) in ("abcabca", "bcabcab", "cabcabc")


def test_a_backfill_that_has_no_room_is_not_green(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B, max_packs=1, max_pack_weight=9)
    request = RunRequest("range", 5, (), 0)
    assert [report.status for report in lab.run(request=request).values()].count(Status.FAILED) == 1
    assert {report.status for report in lab.run(request=request).values()} == {"committed"}
