"""Trimming: old slots become one record, and nothing that follows from them changes, whatever breaks or comes late."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.admin.actions import Administration, Change
from airflow_gobblin.admin.views import list_slots
from airflow_gobblin.errors import LostRaceError, RecordError
from airflow_gobblin.journal import journal, trimming
from airflow_gobblin.journal.history import History, Slot, Snapshot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Note, NoteKind, Outcome, OutcomeState, now
from airflow_gobblin.model import wire
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.announce import note_announced, unannounced
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores.memory import MemoryStore
from tests.faults import Crash, Fault, Faults, FaultyStore, died
from tests.lab import Lab, stick
from tests.protocol.mutants import mutated
from tests.protocol.rows import Table

A = Table("a", ExtractKind.APPEND_ONLY, 0, kept_from=3)
S = Table("s", ExtractKind.SNAPSHOT_ONLY, 6)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_PAUSE", 0)
    monkeypatch.setattr(trimming, "KEPT", 2)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 3)


def at(rows: int) -> tuple[Table, Table]:
    return replace(A, rows=rows), replace(S, version=rows)


def ran(lab: Lab, rows: int, *, announced: bool = True) -> None:
    """A run, and what the operators note once Airflow has its events."""
    reports = lab.run(*at(rows), request=RunRequest(f"run {rows}"))
    assert {r.status for r in reports.values()} == {"committed"}
    if announced:
        announce(lab)


def announce(lab: Lab) -> None:
    opened = lab.opened()
    for slot, _ in [*unannounced(opened)]:
        note_announced(opened, slot, "run")


def keys(lab: Lab, urn: str, kind: str) -> list[str]:
    return [key.split("/", 2)[2] for key in lab.store.list(f"lab/{urn}/{kind}/")]


def story(lab: Lab) -> None:
    """Commits, an abandoned slot, a rewind, and replaced snapshots: seven slots of a, five of s."""
    ran(lab, 3)
    ran(lab, 5)
    lab.decide(*at(7))
    lab.admin.abandon("a", "wrong rows")
    lab.admin.abandon("s", "wrong rows")
    lab.admin.rewind("a", LongWatermark(4), "wrong, too")
    for rows in (8, 9, 10):
        ran(lab, rows)


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The story, untrimmed, but due to be."""
    with monkeypatch.context() as patch:
        patch.setattr(trimming, "TRIMMED_TOGETHER", 1000)
        lab = Lab(tmp_path, A, S)
        story(lab)
    assert not keys(lab, "a", "snap")
    return lab


def trimmed(lab: Lab) -> None:
    for urn in ("a", "s"):
        history = lab.reopened().history(urn)
        assert trimming.trim(lab.journal, history)


def derived(history: History) -> dict[str, object]:
    """Everything that follows from a chain."""
    numbers = range(1, history.state.head + 1)
    slots = [history.slot(n) for n in numbers]
    return {
        "state": history.state,
        "digest": history.last_digest,
        "slots": [(s.decision.slot, s.decision.action, s.done, s.finished, s.abandoned) for s in slots],
        "published": [(s.files, s.rows, s.holds) for s in slots],
        "generations": [s.decision.generation for s in slots],
        "tokens": [(t := s.decision.token, found(history.by_token(t))) for s in slots],
        "answers": [(k := s.decision.run_key, found(history.answer(k))) for s in slots],
        "kept_from": [s.decision.kept_from for s in slots],
        "nobody": (history.by_token("nobody"), history.answer("nobody")),
    }


def found(slot: Slot | None) -> int:
    return slot.decision.slot if slot is not None else 0


def test_nothing_that_follows_from_a_chain_changes(whole: Lab) -> None:
    before = {urn: derived(whole.journal.history(urn)) for urn in ("a", "s")}
    rows = {urn: whole.rows(urn) for urn in ("a", "s")}
    published = {urn: whole.journal.read_dataset(urn) for urn in ("a", "s")}
    trimmed(whole)
    whole.reopened()
    assert {urn: derived(whole.journal.history(urn)) for urn in ("a", "s")} == before
    assert {urn: whole.rows(urn) for urn in ("a", "s")} == rows
    assert {urn: whole.journal.read_dataset(urn) for urn in ("a", "s")} == published
    assert whole.journal.datasets() == ("a", "s")


def test_what_goes_and_what_stays(whole: Lab) -> None:
    live = {ref.slot for ref in whole.journal.state("a").live}
    needed = {shard.digest for n in live for shard in whole.journal.history("a").slot(n).decision.shards}
    trimmed(whole)
    assert keys(whole, "a", "snap") == ["snap/0000000005"]
    assert keys(whole, "a", "d") == ["d/0000000006", "d/0000000007"]
    assert keys(whole, "a", "o") == ["o/0000000006", "o/0000000007"]
    assert {key.split("/")[1] for key in keys(whole, "a", "n")} == {"0000000006", "0000000007"}
    stays = needed | {shard.digest for s in whole.journal.history("a").slots for shard in s.decision.shards}
    assert {key.split("/")[1] for key in keys(whole, "a", "c")} == stays
    history = whole.journal.history("s")
    assert [s.decision.slot for s in history.slots] == [5, 6]
    assert len(keys(whole, "s", "c")) == 3, "of slots 5 and 6, and of 4, which was live; those before it are gone"
    assert not trimming.trim(whole.journal, history), "there is nothing left to do"


def test_who_released_a_slot_and_why_stays(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    stick(lab, replace(A, rows=3))
    lab.admin.release("a", "the disk is back")
    lab.admin.abandon("a", "it is not")
    lab.admin.release_claim("a", "it moves")
    for to in range(20):  # so that what remains of them is a table
        lab.admin.set_watermark("a", LongWatermark(to), "never mind")
    before = lab.journal.history("a").slot(1).releases
    assert trimming.trim(lab.journal, lab.journal.history("a"))
    slot = lab.reopened().history("a").slot(1)
    assert slot.trimmed is not None
    found = [(note.event, note.actor, note.detail) for note in slot.releases]
    assert found == [("released", "ann", "the disk is back"), ("claim-released", "ann", "it moves")]
    assert slot.releases == before
    assert not keys(lab, "a", "n/0000000001")


def test_a_claim_that_was_released_before_the_first_slot_stays_recorded(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(A, rows=3))
    lab.extracted()
    lab.admin.release_claim("a", "it moves")
    for to in range(20):
        lab.admin.set_watermark("a", LongWatermark(to), "never mind")
    before = lab.reopened().history("a").slot(1).releases
    assert trimming.trim(lab.journal, lab.journal.history("a"))
    slot = lab.reopened().history("a").slot(1)
    assert slot.trimmed is not None
    assert [note.detail for note in slot.releases] == ["it moves"]
    assert slot.releases == before
    assert not keys(lab, "a", "n/0000000000")


def test_a_snapshot_from_before_releases_were_kept_is_read(whole: Lab) -> None:
    trimmed(whole)
    history = whole.reopened().history("a")
    assert history.snapshot is not None
    old: Any = wire.to_json(history.snapshot)
    for slot in old["slots"]:
        del slot["releases"]
    assert wire.from_json(Snapshot, old, "a snapshot") == history.snapshot


@pytest.mark.slow
def test_runs_trim_at_their_end_and_go_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, S)
    for rows in range(1, 16):
        ran(lab, rows)
        assert lab.rows("a") == replace(A, rows=rows).all_rows()
        assert lab.rows("s") == replace(S, version=rows).all_rows()
        assert len(lab.reopened().history("a").slots) <= 7
    state = lab.journal.state("a")
    assert (state.head, state.watermark, len(state.live)) == (15, LongWatermark(15), 15)
    assert len(keys(lab, "a", "snap")) == 1
    assert len(keys(lab, "s", "c")) <= 7
    lab.admin.rewind("a", LongWatermark(2), "far back")
    ran(lab, 16)
    assert lab.rows("a") == replace(A, rows=16).all_rows()
    ran(lab, 17)
    assert len(lab.files("a")) == len({f.path for f in lab.journal.read_dataset("a").files}), "retired files are gone"


@pytest.mark.slow
def test_a_run_that_was_answered_long_ago_gets_that_answer(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, S)
    for rows in range(1, 10):
        ran(lab, rows)
    assert not keys(lab, "a", "d")[0].endswith("2")
    reports = lab.run(*at(12), request=RunRequest("run 2"))
    assert {r.detail for r in reports.values()} == {"already committed in slot 2 by run 'run 2'"}


@pytest.mark.slow
def test_a_slot_that_is_yet_to_be_cleaned_keeps_its_record(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, S, retention=timedelta(days=1))
    for rows in range(1, 9):
        ran(lab, rows)
    assert len(lab.journal.history("s").slots) == 8, "files that slot 2 replaced are kept for a day"
    assert len(lab.journal.history("a").slots) < 8


def test_a_pending_slot_keeps_its_record(whole: Lab) -> None:
    whole.decide(*at(20))
    history = whole.reopened().history("a")
    assert history.pending is not None
    assert history.settled(1) == history.state.head - 1


@pytest.mark.slow
def test_an_unannounced_slot_keeps_its_record(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, S)
    ran(lab, 1)
    for rows in range(2, 9):
        ran(lab, rows, announced=False)
    assert [s.decision.slot for s in lab.journal.history("a").slots] == [*range(1, 9)]
    announce(lab)
    ran(lab, 9)
    assert lab.journal.history("a").trimmed


def test_a_trim_may_die_anywhere_and_the_next_one_ends_it(whole: Lab) -> None:
    """At every call that it makes of the store, before and after it."""
    records = whole.records()
    before = derived(whole.journal.history("a"))
    rows = whole.rows("a")
    calls = Faults()
    store = FaultyStore(copied(records), calls)
    trimming.trim(Journal(store, "lab", "id"), Journal(store, "lab", "id").history("a"))
    assert len(calls.calls) > 6
    for number in range(len(calls.calls)):
        for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            disk = copied(records)
            dying = FaultyStore(disk, Faults(number, fault))
            with pytest.raises(Crash):
                trimming.trim(Journal(dying, "lab", "id"), Journal(dying, "lab", "id").history("a"))
            left = Journal(disk, "lab", "id")
            assert derived(left.history("a")) == before, (number, fault)
            trimming.trim(left, left.history("a"))
            again = Journal(disk, "lab", "id")
            assert derived(again.history("a")) == before, (number, fault)
            assert not again.history("a").void
            whole.store = disk
            whole.reopened()
            assert whole.rows("a") == rows, (number, fault)


def copied(records: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, data in records.items():
        store.put_if_absent(key, data)
    return store


def test_trimming_before_the_snapshot_exists_would_be_noticed(whole: Lab) -> None:
    with mutated("trimming_before_the_snapshot"), pytest.raises((AssertionError, RecordError)):
        test_a_trim_may_die_anywhere_and_the_next_one_ends_it(whole)


# Late records


class Woken(MemoryStore):
    """Something happens before the next put of a key that holds `what`: its writer was asleep for that long."""

    what = ""
    before: Callable[[], object] | None = None

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.before is not None and self.what in key:
            before, self.before = self.before, None
            before()
        return super().put_if_absent(key, data)


@pytest.fixture
def woken(tmp_path: Path) -> tuple[Lab, Woken]:
    store = Woken()
    return Lab(tmp_path, A, store=store), store


def only_a(rows: int) -> Table:
    return replace(A, rows=rows)


def go_on(lab: Lab, start: int) -> None:
    """Run often enough that the present slots are trimmed."""
    other = Lab(lab.folder, A, store=lab.store)
    for rows in range(start, start + 8):
        other.run(only_a(rows), request=RunRequest(f"later {rows}"))
        announce(other)


def asleep(lab: Lab, rows: int) -> tuple[OpenJob, RunPlan]:
    return lab.extracted(only_a(rows), request=RunRequest(f"asleep {rows}"))


@pytest.mark.slow
def test_a_slot_that_was_trimmed_never_opens_again(woken: tuple[Lab, Woken]) -> None:
    lab, store = woken
    opened, plan = asleep(lab, 4)
    store.what, store.before = "/d/", lambda: go_on(lab, 4)
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "covered", "its decision was created in slot 1, and counts for nothing"
    assert "d/0000000001" in keys(lab, "a", "d")
    history = lab.reopened().history("a")
    assert history.by_token(plan.packs[0].datasets[0].token) is None
    assert "d/0000000001" in history.void
    assert lab.rows("a") == only_a(11).all_rows()
    go_on(lab, 12)
    assert "d/0000000001" not in keys(lab, "a", "d")
    assert lab.rows("a") == only_a(19).all_rows()


def test_a_decision_that_came_too_late_is_made_in_another_slot_with_its_steps(woken: tuple[Lab, Woken]) -> None:
    """The steps of a void decision are not removed with it: they are those of the one that counts."""
    lab, store = woken
    opened, plan = asleep(lab, 4)
    store.what, store.before = "/d/", lambda: aborted(Lab(lab.folder, A, store=lab.store), 8)
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert (report.status, report.slot) == ("pending", 9)
    history = lab.reopened().history("a")
    assert history.void
    assert trimming.trim(lab.journal, history)
    (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "committed"
    assert lab.rows("a") == only_a(4).all_rows()


def aborted(lab: Lab, slots: int) -> None:
    """Slots that change nothing: plans that were aborted."""
    for _ in range(slots):
        history = lab.journal.history("a")
        lab.admin._decide(Change(Action.ABORT, history), "nothing", uuid.uuid4().hex)
    assert trimming.trim(lab.journal, lab.journal.history("a"))


@pytest.mark.parametrize("end", [OutcomeState.DONE, OutcomeState.ABANDONED])
def test_an_outcome_that_comes_too_late_is_the_one_that_was_valid(woken: tuple[Lab, Woken], end: OutcomeState) -> None:
    lab, store = woken
    opened, plan = asleep(lab, 4)
    write_commit_steps(opened, plan, plan.packs[0])

    def meanwhile() -> None:
        other = Lab(lab.folder, A, store=lab.store)
        if end is OutcomeState.ABANDONED:
            other.admin.abandon("a", "wrong rows")
        go_on(lab, 4)

    store.what, store.before = "/o/", meanwhile
    (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    assert report.status == ("committed" if end is OutcomeState.DONE else "lost")
    assert "o/0000000001" in keys(lab, "a", "o"), "it was created, and counts for nothing"
    assert lab.reopened().history("a").slot(1).done == (end is OutcomeState.DONE)
    assert lab.rows("a") == only_a(11).all_rows()


def test_a_late_winner_that_counts_would_be_noticed(woken: tuple[Lab, Woken]) -> None:
    with mutated("late_winners_count"), pytest.raises((AssertionError, RecordError)):
        test_an_outcome_that_comes_too_late_is_the_one_that_was_valid(woken, OutcomeState.ABANDONED)


def test_who_abandoned_what_somebody_else_asked_for_stays_with_both_reasons(woken: tuple[Lab, Woken]) -> None:
    lab, store = woken
    lab.run(only_a(3))
    announce(lab)
    store.what, store.before = "/o/", died
    with pytest.raises(Crash):
        lab.admin.rewind("a", LongWatermark(1), "wrong rows")
    Administration(lab.reopened(), str(lab.folder), "bob").abandon("a", "they are right")
    for to in range(20, 40):
        lab.admin.set_watermark("a", LongWatermark(to), "never mind")
    (before,) = (s for s in list_slots(lab.journal.history("a")) if s.slot == 2)
    assert (before.state, before.actor, before.reason) == ("abandoned", "ann", "wrong rows")
    assert (before.abandoned_by, before.abandon_reason) == ("bob", "they are right")
    assert trimming.trim(lab.journal, lab.journal.history("a"))
    (after,) = (s for s in list_slots(lab.reopened().history("a")) if s.slot == 2)
    assert (after.trimmed, after.state, after.actor, after.reason) == (True, "abandoned", "ann", "wrong rows")
    assert (after.abandoned_by, after.abandon_reason) == ("bob", "they are right")


def test_steps_that_were_trimmed_under_a_late_executor_are_no_error(woken: tuple[Lab, Woken]) -> None:
    lab, _ = woken
    opened, plan = asleep(lab, 4)
    write_commit_steps(opened, plan, plan.packs[0])
    slot = lab.reopened().history("a").slot(1)
    other = Lab(lab.folder, A, store=lab.store)
    other.admin.abandon("a", "wrong rows")
    go_on(lab, 4)
    assert not [key for key in lab.store.list("lab/a/c/") if key.endswith(slot.decision.shards[0].digest)]
    with pytest.raises(LostRaceError, match=r"was abandoned by .*: wrong rows"):
        opened.committer.execute(slot, "late")


def test_an_abandoning_that_comes_too_late_is_reported(woken: tuple[Lab, Woken]) -> None:
    lab, store = woken
    opened, plan = asleep(lab, 4)
    write_commit_steps(opened, plan, plan.packs[0])
    store.what, store.before = "/o/", lambda: go_on(lab, 4)
    with pytest.raises(LostRaceError, match="was finished just now"):
        lab.admin.abandon("a", "too late")
    assert lab.rows("a") == only_a(11).all_rows()


def test_an_action_that_comes_too_late_is_reported(woken: tuple[Lab, Woken]) -> None:
    lab, store = woken
    lab.run(only_a(2))
    announce(lab)
    store.what, store.before = "/d/", lambda: go_on(lab, 3)
    with pytest.raises(LostRaceError, match="slot 2 was taken by a commit just now"):
        lab.admin.rewind("a", LongWatermark(0), "too late")
    assert lab.rows("a") == only_a(10).all_rows()


def test_a_note_that_comes_too_late_changes_nothing(woken: tuple[Lab, Woken]) -> None:
    lab, _ = woken
    lab.run(only_a(2))
    announce(lab)
    go_on(lab, 3)
    before = derived(lab.reopened().history("a"))
    for kind in (NoteKind.FAILED, NoteKind.UNPUBLISHED):
        lab.journal.put_note("a", 1, Note(kind, "late", now()))
    assert derived(lab.reopened().history("a")) == before
    assert len(lab.journal.history("a").void) == 2


class Trimming(MemoryStore):
    """After a listing, and before anything is read, somebody trims."""

    soon: Callable[[], object] | None = None

    def list(self, prefix: str) -> Iterator[str]:
        found = super().list(prefix)
        if self.soon is not None:
            soon, self.soon = self.soon, None
            soon()
        return found


@pytest.mark.parametrize("read", ["history", "histories", "read_dataset"])
def test_who_reads_while_it_is_trimmed_reads_again(tmp_path: Path, read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Trimming()
    lab = Lab(tmp_path, A, store=store)
    lab.run(only_a(1))
    announce(lab)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 100)
    go_on(lab, 2)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 3)
    other = Lab(lab.folder, A, store=store)
    store.soon = lambda: trimming.trim(other.journal, other.journal.history("a"))
    lab.reopened()
    if read == "histories":
        ((_, history),) = lab.journal.histories()
        assert isinstance(history, History)
        assert history.trimmed
        assert history.state.head == 9
    elif read == "history":
        assert lab.journal.history("a").trimmed
    else:
        assert lab.rows("a") == only_a(9).all_rows()


def test_trims_at_the_same_time_are_one(whole: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower one's snapshot is of fewer slots, comes later, and is void."""
    before = derived(whole.journal.history("a"))
    slow = Woken()
    for key, data in whole.records().items():
        slow.put_if_absent(key, data)
    other = Journal(slow, "lab", "id")

    def faster() -> None:
        fresh = Journal(slow, "lab", "id")
        with monkeypatch.context() as patch:
            patch.setattr(trimming, "KEPT", 1)
            assert trimming.trim(fresh, fresh.history("a"))

    slow.what, slow.before = "/snap/", faster
    trimming.trim(other, other.history("a"))
    left = Journal(slow, "lab", "id")
    assert derived(left.history("a")) == before
    assert [key.split("/")[3] for key in slow.list("lab/a/snap/")] == ["0000000006"]


def test_the_outcome_of_a_slot_is_known_after_it_was_trimmed(whole: Lab) -> None:
    before = [whole.journal.outcome("a", n) for n in range(1, 8)]
    trimmed(whole)
    after = [whole.reopened().outcome("a", n) for n in range(1, 8)]
    assert [state(o) for o in after] == [state(o) for o in before]


def state(outcome: Outcome | None) -> OutcomeState | None:
    return None if outcome is None else outcome.state
