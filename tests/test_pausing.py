"""A paused dataset stands still, by name, and goes on where it stopped."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin import trimming
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.inspection import list_datasets, list_pending, list_slots
from airflow_gobblin.journal import Journal
from airflow_gobblin.pipeline import RunRequest
from airflow_gobblin.records import NoteKind
from airflow_gobblin.reporting import incomplete
from airflow_gobblin.watermark import LongWatermark
from airflow_gobblin.work import ExtractKind
from tests import inprocess
from tests.lab import Lab
from tests.protocol.rows import NoConnections, Table

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
    releases = [(note.says, note.actor, note.detail) for note in lab.journal.history("a").slot(1).releases]
    assert releases == [
        (NoteKind.PAUSED, "ann", "its source is being moved."),
        (NoteKind.RESUMED, "ann", "it is moved"),
    ]


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
    pipeline, plan = lab.extracted(GROWN[0])
    lab.admin.pause("a", "to look at it")
    assert [r.status for r in pipeline.write_commit_steps(plan, plan.packs[0])] == ["paused"]
    assert [r.status for r in pipeline.execute_commit_steps(plan, plan.packs[0])] == ["skipped"]
    assert [r.status for r in pipeline.finish(plan)] == ["paused"]
    assert lab.run(request=request)["a"].status == "committed"  # it was before
    assert lab.journal.state("a").head == 1
    lab.admin.resume("a", "seen")
    assert [r.status for r in pipeline.write_commit_steps(plan, plan.packs[0])] == ["pending"]
    inprocess.go_on(pipeline, plan, NoConnections())
    assert lab.rows("a") == GROWN[0].all_rows()


def test_a_backfill_of_a_paused_dataset_is_not_green(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.admin.pause("a", "to look at it")
    assert lab.run(request=RunRequest("again", 5, ("a",), 0, replace=True))["a"].status == "failed"


def test_a_backfill_of_a_dataset_that_is_paused_after_planning_is_not_green(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    pipeline, plan = lab.extracted(A, request=RunRequest("again", 5, ("a",), 0, replace=True))
    lab.admin.pause("a", "to look at it")
    reports = inprocess.go_on(pipeline, plan, NoConnections())
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
    lab.pipeline().announced(lab.journal.history("a").slot(1), "")
    assert trimming.trim(lab.journal, lab.journal.history("a"))
    history = lab.reopened().history("a")
    assert history.snapshot is not None
    assert str(history.state.paused) == "paused by ann: three"
    assert [n.detail for s in list_slots(history) for n in s.releases] == ["one", "two", "three"]
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
