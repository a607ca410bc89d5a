"""A paused dataset is left alone, by name, and goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin.admin.views import list_datasets, list_pending, list_slots
from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError, NeverPublishedError, RecordError
from airflow_gobblin.journal import trimming
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Decision
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.announce import note_announced
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.reports import incomplete
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.lab import Lab
from tests.protocol.rows import Table

A, B = Table("a", ExtractKind.APPEND_ONLY, 10), Table("b", ExtractKind.APPEND_ONLY, 10)
GROWN = (replace(A, rows=12), replace(B, rows=12))


def test_a_paused_dataset_is_skipped_by_name_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    lab.run()
    lab.admin.pause("a", "its source is being moved.")
    reports = lab.run(*GROWN)
    assert (reports["a"].status, reports["b"].status) == ("paused", "committed")
    assert "it is paused by ann: its source is being moved. Its watermark stays" in reports["a"].detail
    assert reports["a"].watermark == LongWatermark(10)
    assert incomplete(lab.ingestion, reports.values()) is None
    lab.admin.resume("a", "it is moved")
    assert lab.run(*GROWN)["a"].rows == 2
    assert lab.rows("a") == GROWN[0].all_rows()
    slots = lab.journal.history("a").slots
    assert [(slot.decision.action, slot.decision.actor, slot.decision.reason) for slot in slots[1:3]] == [
        (Action.PAUSE, "ann", "its source is being moved."),
        (Action.RESUME, "ann", "it is moved"),
    ]
    assert [slot.decision.generation for slot in slots] == [0, 0, 0, 0]


def test_why_it_was_never_published_is_known_after_a_pause(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.run(A, B, unplannable=("a",))
    before = list_pending(lab.journal, datetime.now(UTC))
    lab.admin.pause("a", "its source is being moved")
    lab.admin.resume("a", "it is moved")
    assert actions(lab) == [Action.PAUSE, Action.RESUME]
    (after,) = list_pending(lab.journal, datetime.now(UTC))
    assert [after.failure] == [one.failure for one in before] == ["can't plan table 'a': it is gone"]
    lab.run(A, B, unplannable=("a",))
    assert len([key for key in lab.records() if key.endswith("-unpublished")]) == 1
    lab.run(A, B)
    assert list_pending(lab.journal, datetime.now(UTC)) == ()


def test_a_pending_slot_is_still_finished(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    lab.admin.pause("a", "to look at it")
    assert [one.status for one in list_pending(lab.journal, datetime.now(UTC))] == ["pending"]
    assert lab.run(GROWN[0])["a"].status == "paused"
    assert lab.journal.history("a").slots[0].done
    assert list_pending(lab.journal, datetime.now(UTC)) == ()
    (view,) = list_datasets(lab.journal, datetime.now(UTC)).views
    assert (view.status, str(view.paused)) == ("paused", "paused by ann: to look at it")
    assert [(slot.action, slot.state) for slot in list_slots(lab.journal.history("a"))] == [
        (Action.PAUSE, "done"),
        (Action.COMMIT, "done"),
    ]


def test_a_pause_may_come_and_go_before_a_pending_slot_is_finished(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    lab.admin.pause("a", "to look at it")
    with pytest.raises(ConfigurationError, match="slot 1 is pending"):
        lab.admin.set_watermark("a", LongWatermark(20), "skipped")
    lab.admin.resume("a", "seen")
    lab.admin.pause("a", "to look again")
    history = lab.reopened().history("a")
    assert (history.state.head, history.pending) == (4, history.slot(1))
    with pytest.raises(NeverPublishedError, match="its first slot, 1, is decided and not finished"):
        lab.journal.read_dataset("a")
    assert [r.status for r in execute_commit_steps(opened, plan, plan.packs[0])] == ["committed"]
    assert lab.journal.read_dataset("a").slot == 4
    lab.admin.resume("a", "seen again")
    assert lab.run(GROWN[0])["a"].rows == 2
    assert lab.rows("a") == GROWN[0].all_rows()
    assert lab.reopened().history("a").slot(6).done


def test_a_pending_slot_can_be_abandoned_in_a_pause(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    lab.admin.pause("a", "to look at it")
    (slot,) = lab.admin.abandon("a", "it is wrong")
    assert (slot.decision.slot, slot.abandoned) == (1, True)
    assert lab.run()["a"].status == "paused"
    lab.admin.resume("a", "seen")
    assert lab.run()["a"].rows == 10


def test_a_rewind_that_is_pending_in_a_pause_still_makes_older_plans_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    opened, plan = lab.extracted(GROWN[0])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(Committer, "execute", die)
        with pytest.raises(KeyboardInterrupt):
            lab.admin.rewind("a", LongWatermark(0), "read again")
    lab.admin.pause("a", "to look at it")
    lab.admin.resume("a", "seen")
    assert [r.status for r in write_commit_steps(opened, plan, plan.packs[0])] == ["lost"]
    assert lab.reopened().state("a").generation == 1
    assert lab.run(GROWN[0])["a"].rows == 12


def test_a_dropped_dataset_stays_paused(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.admin.pause("a", "to look at it")
    lab.admin.drop("a", "begin anew", delete_files=True)
    assert lab.run()["a"].status == "paused"
    lab.admin.resume("a", "seen")
    assert lab.run()["a"].rows == 10


def test_cleared_tasks_of_a_paused_dataset_commit_nothing_new(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    request = RunRequest("monday")
    lab.run(request=request)
    opened, plan = lab.extracted(GROWN[0])
    lab.admin.pause("a", "to look at it")
    assert [r.status for r in write_commit_steps(opened, plan, plan.packs[0])] == ["paused"]
    assert [r.status for r in execute_commit_steps(opened, plan, plan.packs[0])] == ["skipped"]
    assert [r.status for r in finish(opened, plan)] == ["paused"]
    assert lab.run(request=request)["a"].status == "committed"  # it was before
    assert [slot.publishes for slot in lab.journal.history("a").slots] == [True, False]
    lab.admin.resume("a", "seen")
    assert [r.status for r in write_commit_steps(opened, plan, plan.packs[0])] == ["pending"]
    inprocess.go_on(opened, plan, NoConnections())
    assert lab.rows("a") == GROWN[0].all_rows()


@pytest.mark.parametrize("decided", [False, True], ids=["not yet decided", "just decided"])
def test_what_is_being_decided_when_a_dataset_is_paused_is_before_the_pause_or_not_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    """A deciding task has checked whether it is paused some calls before."""
    lab = Lab(tmp_path, A)
    lab.run()
    opened, plan = lab.extracted(GROWN[0])
    put = Journal.put_decision

    def put_while_it_is_paused(journal: Journal, decision: Decision) -> Decision | None:
        monkeypatch.undo()
        if decided:
            put(journal, decision)
        lab.admin.pause("a", "to look at it")
        return put(journal, decision)

    monkeypatch.setattr(Journal, "put_decision", put_while_it_is_paused)
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert report.status == ("pending" if decided else "paused")
    slot = lab.reopened().history("a").by_token(plan.packs[0].datasets[0].token)
    assert (slot is not None) is decided
    assert lab.run(replace(A, rows=14))["a"].status == "paused"
    lab.admin.resume("a", "seen")
    inprocess.go_on(opened, plan, NoConnections())
    assert lab.rows("a") == GROWN[0].all_rows(), "the plan holds as it did before"


def test_who_pauses_while_others_decide_takes_the_next_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before_it_is_put(monkeypatch, lambda: lab.run(GROWN[0]))
    lab.admin.pause("a", "to look at it")
    assert actions(lab) == [Action.COMMIT, Action.COMMIT, Action.PAUSE]
    assert lab.run(replace(A, rows=14))["a"].status == "paused"


def test_of_two_who_pause_at_once_the_first_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before_it_is_put(monkeypatch, lambda: lab.admin.pause("a", "first"))
    with pytest.raises(ConfigurationError, match="it is paused by ann: first"):
        lab.admin.pause("a", "second")
    assert actions(lab) == [Action.COMMIT, Action.PAUSE]


def test_who_pauses_while_another_one_resumes_pauses_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before_it_is_put(monkeypatch, lambda: (lab.admin.pause("a", "first"), lab.admin.resume("a", "too soon")))
    lab.admin.pause("a", "after all")
    assert actions(lab) == [Action.COMMIT, Action.PAUSE, Action.RESUME, Action.PAUSE]
    assert str(lab.reopened().state("a").paused) == "paused by ann: after all"


def test_a_pause_that_is_killed_is_there_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, A)
    lab.run()

    def die() -> None:
        raise KeyboardInterrupt

    before = lab.records()
    before_it_is_put(monkeypatch, die)
    with pytest.raises(KeyboardInterrupt):
        lab.admin.pause("a", "to look at it")
    assert lab.records() == before
    lab.admin.pause("a", "to look at it")
    assert lab.run(GROWN[0])["a"].status == "paused"


def before_it_is_put(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen right before the next decision is put."""
    put = Journal.put_decision

    def put_after_it(journal: Journal, decision: Decision) -> Decision | None:
        monkeypatch.undo()
        act()
        return put(journal, decision)

    monkeypatch.setattr(Journal, "put_decision", put_after_it)


def actions(lab: Lab) -> list[Action]:
    return [slot.decision.action for slot in lab.reopened().history("a").slots]


def test_a_backfill_of_a_paused_dataset_is_not_green(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.admin.pause("a", "to look at it")
    assert lab.run(request=RunRequest("again", 5, ("a",), 0, replace=True))["a"].status == "failed"


def test_a_backfill_of_a_dataset_that_is_paused_after_planning_is_not_green(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    opened, plan = lab.extracted(A, request=RunRequest("again", 5, ("a",), 0, replace=True))
    lab.admin.pause("a", "to look at it")
    reports = inprocess.go_on(opened, plan, NoConnections())
    assert reports["a"].status == "failed"
    assert "to look at it" in reports["a"].detail


def test_a_dataset_whose_first_run_failed_can_be_paused(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run(units=("a:u1",))
    lab.admin.pause("a", "its line is dead")
    assert lab.run()["a"].status == "paused"
    assert lab.reopened().state("a").paused is not None
    lab.admin.resume("a", "it is mended")
    assert lab.run()["a"].status == "committed"


def test_a_pause_outlives_trimming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "KEPT", 1)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 1)
    lab = Lab(tmp_path, A)
    lab.run()
    lab.admin.pause("a", "one")
    lab.admin.resume("a", "two")
    lab.admin.pause("a", "three")
    for number in range(3):
        lab.admin.set_watermark("a", LongWatermark(20 + number), "skipped")
    note_announced(lab.opened(), lab.journal.history("a").slot(1), "")
    assert trimming.trim(lab.journal, lab.journal.history("a"))
    history = lab.reopened().history("a")
    assert history.snapshot is not None
    assert str(history.state.paused) == "paused by ann: three"
    listed = [slot for slot in reversed(list_slots(history)) if slot.action.pauses]
    assert [(slot.action, slot.actor, slot.reason, slot.state) for slot in listed] == [
        (Action.PAUSE, "ann", "one", "done"),
        (Action.RESUME, "ann", "two", "done"),
        (Action.PAUSE, "ann", "three", "done"),
    ]
    assert lab.run(replace(A, rows=40))["a"].status == "paused"


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_pause_follows_from_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """Its decision names no outcome of the slot before, of which the snapshot is all that remains."""
    monkeypatch.setattr(trimming, "KEPT", kept)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 1)
    lab = Lab(tmp_path, A)
    for number in range(10, 16):
        lab.run(replace(A, rows=number))
        note_announced(lab.opened(), lab.journal.history("a").slots[-1], "")
    lab.admin.pause("a", "to look at it")
    lab.admin.resume("a", "seen")
    assert trimming.trim(lab.journal, lab.reopened().history("a"))
    history = lab.reopened().history("a")
    assert [slot.decision.slot for slot in history.slots] == [*range(9 - kept, 9)]
    assert lab.run(replace(A, rows=20))["a"].rows == 5
    assert lab.rows("a") == replace(A, rows=20).all_rows()


def test_what_cant_be_paused_or_resumed_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    with pytest.raises(ConfigurationError, match="it has no dataset yet"):
        lab.admin.pause("a", "why not")
    lab.run()
    before = lab.records()
    with pytest.raises(ConfigurationError, match="it is not paused"):
        lab.admin.resume("a", "why not")
    with pytest.raises(ConfigurationError, match="an actor and a reason are needed"):
        lab.admin.pause("a", " ")
    assert lab.records() == before
    lab.admin.pause("a", "first")
    with pytest.raises(ConfigurationError, match="it is paused by ann: first"):
        lab.admin.pause("a", "second")


@pytest.mark.slow
def test_an_outcome_that_was_lost_below_a_pause_stops_its_dataset_by_name(tmp_path: Path) -> None:
    """No digest in the chain names it, as the pause may come before it."""
    lab = Lab(tmp_path, A)
    lab.run()
    lab.admin.pause("a", "to look at it")
    lab.admin.resume("a", "seen")
    lab.run(GROWN[0])
    lab.store.delete("lab/a/o/0000000001")
    with pytest.raises(RecordError, match="slot 4 was decided before slot 1 was finished"):
        lab.reopened().history("a")


def test_a_pending_slot_that_cant_be_finished_in_a_pause_is_quarantined(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, attempts=2)
    opened, _ = lab.decide()
    for step in lab.journal.steps(lab.journal.history("a").slot(1).decision):
        opened.files.unlink(step.source)  # type: ignore[attr-defined]
    lab.admin.pause("a", "to look at it")
    assert [lab.run()["a"].status for _ in range(3)] == ["failed", "quarantined", "quarantined"]
    lab.admin.release("a", "once more")
    assert lab.run()["a"].status == "failed"
    assert lab.admin.abandon("a", "it is lost")[0].decision.slot == 1
    lab.admin.resume("a", "seen")
    assert lab.run()["a"].rows == 10
