"""The journal of a dataset: what follows from its records, and that a bad one stops this dataset and no other (I14, I9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Barrier

import pytest

from airflow_gobblin.errors import ConfigurationError, GobblinError, NotFoundError, RecordError
from airflow_gobblin.journal import journal
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Home, Note, NoteKind, OutcomeState, now
from airflow_gobblin.model import wire
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import HighWatermarkStep
from airflow_gobblin.steps.publishing import MoveStep
from airflow_gobblin.storage.files import FileIdentity
from airflow_gobblin.storage.stores.memory import MemoryStore
from tests.lab import Lab
from tests.protocol.rows import Table

A, B = (Table(urn, ExtractKind.APPEND_ONLY, 10) for urn in "ab")
SLOTS = 3


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_PAUSE", 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Two datasets of three slots each."""
    lab = Lab(tmp_path_factory.mktemp("made"), A, B)
    for rows in range(10, 10 + SLOTS):
        lab.run(replace(A, rows=rows), replace(B, rows=rows))
    lab.journal.put_note("a", 2, Note(NoteKind.FAILED, "run", now()))
    return lab


@pytest.fixture
def lab(made: Lab, tmp_path: Path) -> Lab:
    """A copy of it."""
    shutil.copytree(made.folder, tmp_path, dirs_exist_ok=True)
    lab = Lab(tmp_path, A, B, store=MemoryStore())
    for name, data in made.records().items():
        lab.store.delete(name)
        lab.store.put_if_absent(name, data)
    lab.reopened()
    lab.admin.move(lab.admin.would_move(), "it is a copy")
    return lab


def key(urn: str, record: str) -> str:
    return f"lab/{urn}/{record}"


def d(slot: int) -> str:
    return f"d/{slot:010d}"


def o(slot: int) -> str:
    return f"o/{slot:010d}"


Spoil = Callable[[Lab], None]


def put(lab: Lab, record: str, data: bytes | None) -> None:
    """Change a record of dataset a, or delete it, which nothing may do."""
    lab.store.delete(key("a", record))
    if data is not None:
        lab.store.put_if_absent(key("a", record), data)


def stored(lab: Lab, record: str, urn: str = "a") -> bytes:
    data = lab.store.get(key(urn, record))
    assert data is not None
    return data


def signed(body: object) -> bytes:
    """A record with a digest that fits, whatever it holds."""
    return wire.canonical({"digest": wire.digest(wire.canonical(body)), "record": body})  # type: ignore[arg-type,dict-item]


def torn(record: str) -> Spoil:
    return lambda lab: put(lab, record, stored(lab, record)[:-20])


def emptied(record: str) -> Spoil:
    return lambda lab: put(lab, record, b"")


def corrupt(record: str) -> Spoil:
    return lambda lab: put(lab, record, stored(lab, record).replace(b'"lab', b'"bal').replace(b"20", b"30"))


def newer(record: str) -> Spoil:
    return lambda lab: put(lab, record, signed(json.loads(stored(lab, record))["record"] | {"version": 2}))


def gone(*records: str) -> Spoil:
    def spoil(lab: Lab) -> None:
        for record in records:
            put(lab, record, None)

    return spoil


def resigned(record: str, **change: object) -> Spoil:
    return lambda lab: put(lab, record, signed(json.loads(stored(lab, record))["record"] | change))


def copied(urn: str, record: str, to: str) -> Spoil:
    return lambda lab: put(lab, to, stored(lab, record, urn))


BAD: dict[str, tuple[Spoil, str]] = {
    "torn decision": (torn(d(2)), "torn or no record"),
    "empty decision": (emptied(d(2)), "torn or no record"),
    "corrupt decision": (corrupt(d(2)), "digest doesn't fit"),
    "newer decision": (newer(d(2)), "version 2, and the airflow-gobblin installed here knows 1"),
    "torn first decision": (torn(d(1)), "torn or no record"),
    "torn outcome": (torn(o(3)), "torn or no record"),
    "newer outcome": (newer(o(2)), "version 2, and the airflow-gobblin installed here knows 1"),
    "torn note": (torn("n/0000000002/000000-failed"), "torn or no record"),
    "first slot missing": (gone(d(1), o(1)), "slots 2 to 3 have a gap"),
    "middle slot missing": (gone(d(2), o(2)), "slots 1 to 3 have a gap"),
    "decision missing below its outcome": (gone(d(3)), r"slots \[3\] have an outcome or notes, and no decision"),
    "decision missing below its note": (gone(d(2), o(2), d(3), o(3)), r"slots \[2\] have an outcome or notes"),
    "outcome missing below a decision": (gone(o(2)), "slot 3 doesn't follow from slot 2"),
    "decision of another dataset": (copied("b", d(2), d(2)), "slot 2 holds a decision of dataset 'b'"),
    "decision of another slot": (copied("a", d(1), d(2)), "slot 2 holds a decision of dataset 'a', slot 1"),
    "outcome of another decision": (copied("a", o(1), o(2)), "outcome of slot 2 belongs to another decision"),
    "decision changed with its digest": (resigned(d(2), reason="forged"), "outcome of slot 2 belongs to another decision"),
    "outcome changed with its digest": (resigned(o(2), reason="forged"), "slot 3 doesn't follow from slot 2"),
    "a record of another kind": (copied("a", o(2), d(2)), "expected a Decision"),
    "a key that is none": (lambda lab: put(lab, "d/2", b"x"), "'d/2' is not a record of it"),
    "a key of an unknown kind": (lambda lab: put(lab, "e/0000000001", b"x"), "'e/0000000001' is not a record of it"),
    "a key of an unknown kind by itself": (lambda lab: put(lab, "lease", b"x"), "'lease' is not a record of it"),
    "a key that goes on": (lambda lab: put(lab, "snap/0000000009/x", b"x"), "'snap/0000000009/x' is not a record of it"),
    "a key in other digits": (lambda lab: put(lab, "d/000000000\u0664", b"x"), "is not a record of it"),
    "a note without a number": (lambda lab: put(lab, "n/0000000002/failed", b"x"), "'n/0000000002/failed' is not a record of it"),
    "a shard that is none": (lambda lab: put(lab, "c/0123", b"x"), "'c/0123' is not a record of it"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_stops_its_dataset_by_name_and_no_other(lab: Lab, name: str) -> None:
    spoil, finding = BAD[name]
    spoil(lab)
    lab.reopened()
    before, published = lab.records(), lab.published()

    with pytest.raises(RecordError, match=finding) as caught:
        lab.journal.history("a")
    text = str(caught.value)
    assert "'a'" in text or "lab/a/" in text
    assert caught.value.hint
    assert text.count(caught.value.hint) == 1
    assert not caught.value.retryable

    reports = lab.run(replace(A, rows=20), replace(B, rows=20))
    assert (reports["a"].status, reports["b"].status) == ("failed", "committed")
    assert finding.replace("\\", "")[:20] in reports["a"].detail.replace("\\", "")
    assert lab.rows("b") == replace(B, rows=20).all_rows()
    after = lab.records()
    assert {k: v for k, v in after.items() if "/b/" not in k} == {k: v for k, v in before.items() if "/b/" not in k}
    assert {k: v for k, v in lab.published().items() if k.startswith("a/")} == {
        k: v for k, v in published.items() if k.startswith("a/")
    }


@pytest.mark.parametrize("data", [None, b"", b"changed"])
def test_lost_steps_stop_their_slot_and_abandoning_it_is_a_way_out(tmp_path: Path, data: bytes | None) -> None:
    lab = Lab(tmp_path, A, B)
    opened, plan = lab.decide()
    (shard,) = lab.journal.history("a").slots[0].decision.shards
    put(lab, f"c/{shard.digest}", data)
    reports = {r.urn: r for pack in plan.packs for r in execute_commit_steps(opened, plan, pack)}
    assert reports["b"].status == "committed"
    assert reports["a"].status == "failed"
    assert f"lab/a/c/{shard.digest}" in reports["a"].detail
    assert "abandon the slot" in reports["a"].detail
    assert finish(opened, plan)[0].status == "failed"

    lab.admin.abandon("a", "its steps are lost")
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == A.all_rows()
    lost = lab.journal.history("a").slots[0]
    assert lost.noted(NoteKind.CLEANED)
    assert "are left" in lab.journal.notes("a", 1)[-1].detail


def test_lost_steps_of_a_done_slot_are_reported_to_its_readers_and_stop_no_run(lab: Lab) -> None:
    (shard,) = lab.journal.history("a").slots[0].decision.shards
    put(lab, f"c/{shard.digest}", None)
    lab.reopened()
    with pytest.raises(RecordError, match=f"lab/a/c/{shard.digest}.*they are missing.*Restore them"):
        lab.journal.read_dataset("a")
    reports = lab.run(replace(A, rows=20), replace(B, rows=20))
    assert {r.status for r in reports.values()} == {"committed"}


def test_a_chain_is_bound_by_digests(lab: Lab) -> None:
    slots = lab.journal.history("a").slots
    assert [s.decision.slot for s in slots] == [1, 2, 3]
    assert slots[0].decision.previous == ""
    for before, slot in pairwise(slots):
        assert slot.decision.previous == before.digest
    for number, slot in enumerate(slots, start=1):
        assert slot.decision_digest == wire.digest(stored(lab, d(number)))
        assert slot.outcome is not None
        assert slot.outcome.decision == slot.decision_digest


def test_the_state_is_the_fold_of_the_records(lab: Lab) -> None:
    state = lab.journal.state("a")
    assert (state.head, state.pending, state.generation) == (3, False, 0)
    assert state.watermark == state.coverage.edge == LongWatermark(12)
    assert set(state.live) == {UnitRef(1, "u0"), UnitRef(1, "u1"), UnitRef(1, "u2"), UnitRef(2, "u0"), UnitRef(3, "u0")}
    assert [u.unit for u in state.previous_units] == ["u0"]
    assert lab.reopened().state("a") == state


def test_a_history_has_each_state_that_it_had(lab: Lab) -> None:
    history = lab.journal.history("a")
    assert [history.until(n).state.watermark for n in range(4)] == [None, *map(LongWatermark, (10, 11, 12))]
    assert history.until(3).state == history.state


def test_a_rewind_takes_units_and_ranges_back_and_raises_the_generation(lab: Lab) -> None:
    lab.admin.rewind("a", LongWatermark(11), "the last row was wrong")
    state = lab.journal.state("a")
    assert (state.watermark, state.generation) == (LongWatermark(11), 1)
    assert UnitRef(3, "u0") not in state.live
    assert state.retired == {UnitRef(3, "u0"): 4}


def test_a_watermark_of_several_positions_is_moved_forward_only(lab: Lab) -> None:
    for values in ((1, 2), (1, 5), (4, 5)):
        lab.admin.set_watermark("topic", MultiLongWatermark(values), "moved")
        assert lab.journal.state("topic").watermark == MultiLongWatermark(values)
    before = lab.records()
    back, other_kind = "is not ahead of its watermark", "is of kind 'multi_long' and not 'long'"
    for wrong, why in (
        (MultiLongWatermark((5, 4)), back),
        (MultiLongWatermark((4, 5)), back),
        (LongWatermark(9), other_kind),
    ):
        with pytest.raises(ConfigurationError, match=why):
            lab.admin.set_watermark("topic", wrong, "moved")
    assert lab.records() == before


def test_a_slot_that_was_taken_back_answers_its_run_no_more(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    request = RunRequest("monday")
    assert lab.run(request=request)["a"].slot == 1
    assert lab.run(replace(A, rows=12), request=request)["a"].detail == "already committed in slot 1 by run 'monday'"
    lab.admin.rewind("a", LongWatermark(4), "amounts were wrong")
    assert lab.run(request=request)["a"].slot == 3, "the run that is cleared ingests its range anew"
    assert lab.rows("a") == replace(A, rows=12).all_rows()


def test_notes_are_in_the_order_they_came(lab: Lab) -> None:
    for number in range(12):
        lab.journal.put_note("b", 3, Note(NoteKind.CLEANED, f"run {number}", now()))
    assert [n.run_key for n in lab.journal.notes("b", 3)] == [f"run {n}" for n in range(12)]


class Overtaken(MemoryStore):
    """Whenever a note is about to be written, another writer was faster, a few times."""

    left = 0

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.left and "/n/" in key:
            self.left -= 1
            super().put_if_absent(key, wire.dumps(Note(NoteKind.ANNOUNCED, f"other {self.left}", now())))
        return super().put_if_absent(key, data)


def test_no_note_is_lost_to_another_that_came_at_once(tmp_path: Path) -> None:
    store = Overtaken()
    lab = Lab(tmp_path, A, store=store)
    lab.run()
    store.left = 2
    lab.journal.put_note("a", 1, Note(NoteKind.ANNOUNCED, "mine", now()))
    assert [n.run_key for n in lab.journal.notes("a", 1)] == ["other 1", "other 0", "mine"]


def test_failures_count_since_the_last_release_and_once_a_run(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    for kind, run in (
        (NoteKind.FAILED, "x"),
        (NoteKind.FAILED, "x"),
        (NoteKind.FAILED, "y"),
        (NoteKind.QUARANTINED, "y"),
    ):
        lab.journal.put_note("a", 1, Note(kind, run, now()))
    state = lab.journal.state("a")
    assert (state.failures, state.quarantined) == (("x", "y"), True)
    lab.journal.put_note("a", 1, Note(NoteKind.RELEASED, "", now()))
    lab.journal.put_note("a", 1, Note(NoteKind.FAILED, "z", now()))
    state = lab.journal.state("a")
    assert (state.failures, state.quarantined) == (("z",), False)


def test_a_slot_needs_an_outcome_where_files_are_moved_or_retired_or_a_table_changes() -> None:
    assert {a for a in Action if a.needs_outcome} == {
        Action.COMMIT,
        Action.REWIND,
        Action.IMPORT,
        Action.DROP,
        Action.FLOOR,
        Action.TAKE_OVER,
    }


def test_the_last_step_hands_over_the_watermark(lab: Lab) -> None:
    decision = lab.journal.history("a").slots[0].decision
    assert [type(step) for step in lab.journal.steps(decision)] == [MoveStep, MoveStep, MoveStep]
    assert decision.hand_over == HighWatermarkStep(LongWatermark(10))
    assert decision.steps == 4


def test_steps_are_stored_in_shards_by_their_content(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_PER_SHARD", 2)
    steps = [MoveStep(f"from {n}", f"to {n}", "u", FileIdentity(n, 2, "3"), "c", n) for n in range(5)]
    shards = lab.journal.put_steps("a", "t", steps)
    assert [shard.steps for shard in shards] == [2, 2, 1]
    assert lab.journal.put_steps("a", "t", iter(steps)) == shards, "the same steps are the same shards"
    others = lab.journal.put_steps("a", "other", steps)
    assert not {*others} & {*shards}, "and those of another token are its own"
    decision = replace(lab.journal.history("a").slots[0].decision, shards=shards)
    assert list(lab.journal.steps(decision)) == steps
    assert lab.journal.put_steps("a", "t", ()) == ()


def test_what_is_stored_counts_and_not_what_was_meant(lab: Lab) -> None:
    slot = lab.journal.history("a").slots[2]
    other = replace(slot.decision, token="other", reason="mine")
    assert lab.journal.put_decision(other) == slot.decision
    outcome = lab.journal.put_outcome(slot, OutcomeState.ABANDONED, "mine")
    assert outcome == slot.outcome
    assert outcome.state is OutcomeState.DONE


def test_datasets_are_named_by_their_records(lab: Lab) -> None:
    assert lab.journal.datasets() == ("a", "b")
    put(lab, d(1), b"")
    found = dict(lab.reopened().histories())
    assert isinstance(found["b"], History)
    assert isinstance(found["a"], GobblinError)
    assert lab.journal.datasets() == ("b",)


def test_a_dataset_that_nobody_knows_has_an_empty_history(lab: Lab) -> None:
    assert lab.journal.history("c").slots == ()
    assert lab.journal.state("c").watermark is None
    with pytest.raises(NotFoundError, match="and not this one"):
        lab.journal.read_dataset("c")


def test_a_journal_keeps_its_id_and_each_store_has_its_own() -> None:
    store = MemoryStore()
    assert Journal.create(store, "x").id == Journal.create(store, "y").id
    assert Journal.create(MemoryStore(), "x").id != Journal.create(store, "x").id


@pytest.mark.parametrize("data", [b"", b"\xff", b"0123"])
def test_a_journal_whose_id_is_bad_is_not_opened(data: bytes) -> None:
    store = MemoryStore("memory://here")
    store.put_if_absent("_journal", data)
    with pytest.raises(RecordError, match=r"'_journal' in memory://here.*not a journal's id.*Restore it"):
        Journal.create(store, "flights")


def test_an_ingestion_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="ingestion name ''"):
        Journal.create(MemoryStore(), "")


def test_threads_that_share_a_journal_miss_no_home() -> None:
    """The page's threads do. Both read the first home before either goes on."""
    together = Barrier(2)

    class Slow(MemoryStore):
        def get(self, key: str) -> bytes | None:
            data = super().get(key)
            if key.endswith("1"):
                together.wait(5)
            return data

    store = Slow()
    shared = Journal.create(store, "lab")
    homes = tuple(Home(target, target, "", "", now()) for target in ("lake", "sea"))
    for number, home in enumerate(homes, 1):
        shared.put_home(home, number)
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(lambda _: shared.homes(), range(2))]
    assert found == [homes, homes]
    assert shared.homes() == homes
