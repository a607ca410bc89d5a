"""A paused dataset is left alone, by name, and goes on where it stopped."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin.admin.views import list_datasets, list_pending, list_slots
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.journal import trimming
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Decision, NoteKind
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.announce import announced
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
    assert [slot.decision.action for slot in slots] == [Action.COMMIT, Action.ABORT, Action.COMMIT]
    releases = [(note.says, note.actor, note.detail) for slot in slots for note in slot.releases]
    assert releases == [
        (NoteKind.PAUSED, "ann", "its source is being moved."),
        (NoteKind.RESUMED, "ann", "it is moved"),
    ]


def test_why_it_was_never_published_is_known_after_a_pause(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.run(A, B, unplannable=("a",))
    before = list_pending(lab.journal, datetime.now(UTC))
    lab.admin.pause("a", "its source is being moved")
    lab.admin.resume("a", "it is moved")
    assert lab.journal.history("a").slots[-1].decision.action is Action.ABORT
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
def test_what_is_being_decided_when_a_dataset_is_paused_is_before_the_pause_or_does_not_stand(
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


def test_who_pauses_while_others_decide_tries_the_next_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    put = Journal.put_decision

    def run_before(journal: Journal, decision: Decision) -> Decision | None:
        monkeypatch.undo()
        lab.admin.resume("a", "too soon")
        lab.run(GROWN[0])
        lab.admin.pause("a", "after all")
        return put(journal, decision)

    monkeypatch.setattr(Journal, "put_decision", run_before)
    lab.admin.pause("a", "to look at it")
    assert str(lab.reopened().state("a").paused) == "paused by ann: after all"
    assert lab.run(replace(A, rows=14))["a"].status == "paused"


def test_a_pause_that_was_killed_before_it_took_a_slot_is_completed_when_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    opened, plan = lab.extracted(GROWN[0])
    put = Journal.put_decision

    def killed(journal: Journal, decision: Decision) -> Decision | None:
        raise KeyboardInterrupt

    def put_while_it_is_paused(journal: Journal, decision: Decision) -> Decision | None:
        monkeypatch.setattr(Journal, "put_decision", killed)
        with pytest.raises(KeyboardInterrupt):
            lab.admin.pause("a", "to look at it")
        monkeypatch.undo()
        lab.admin.pause("a", "to look at it")
        with pytest.raises(ConfigurationError, match="it is paused"):
            lab.admin.pause("a", "once more")
        return put(journal, decision)

    monkeypatch.setattr(Journal, "put_decision", put_while_it_is_paused)
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "paused"


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
    announced(lab.opened(), lab.journal.history("a").slot(1), "")
    assert trimming.trim(lab.journal, lab.journal.history("a"))
    history = lab.reopened().history("a")
    assert history.snapshot is not None
    assert str(history.state.paused) == "paused by ann: three"
    told = reversed([*list_slots(history)])
    assert [n.detail for s in told for n in s.releases] == ["one", "two", "three"]
    assert lab.run(replace(A, rows=40))["a"].status == "paused"


def test_a_pause_that_is_overtaken_by_trimming_is_noted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    put_note = Journal.put_note
    slots: list[int] = []

    def late(self: Journal, urn: str, slot: int, note: object) -> None:
        if not slots:
            monkeypatch.setattr(Journal, "put_note", put_note)
            for number in range(trimming.KEPT):
                lab.admin.set_watermark("a", LongWatermark(20 + number), "skipped")
            monkeypatch.setattr(Journal, "put_note", late)
        slots.append(slot)
        put_note(self, urn, slot, note)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "put_note", late)
    lab.admin.pause("a", "late")
    assert slots == [1, 1 + trimming.KEPT]


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
