"""A run seals its version once everything up to it is in; a rewind voids seals without any record."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import RecordError
from airflow_gobblin.journal import trimming
from airflow_gobblin.journal.records import Action, Note, NoteKind, now
from airflow_gobblin.journal.seals import Seal, Seals, content, is_valid
from airflow_gobblin.journal.trimming import trim
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind, Limits
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.faults import Fault, Faults, FaultyStore
from tests.lab import Lab
from tests.protocol.rows import Table

A, B = (Table(urn, ExtractKind.APPEND_ONLY, 100) for urn in "ab")
S = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)


def at(position: int) -> datetime:
    """A version: the end of a data interval. The seconds of a time are a position of the tables here."""
    return datetime.fromtimestamp(position, UTC)


def upto(position: int) -> RunRequest:
    """A scheduled run."""
    return RunRequest(f"flights/{position}", at(position), version=at(position))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, A, B, seals=True)


def seals(lab: Lab) -> list[Seal]:
    """All seals, the oldest first."""
    chain = Seals(lab.reopened())
    return [*reversed([*chain.before(chain.newest())])]


def valid(lab: Lab) -> list[int]:
    """The versions of the seals that aren't void."""
    states = {urn: lab.journal.state(urn) for urn in lab.journal.datasets()}
    return [int(seal.upto.timestamp()) for seal in seals(lab) if is_valid(seal, states)]


def heads(lab: Lab, number: int) -> dict[str, int]:
    return {urn: sealed.head for urn, sealed in seals(lab)[number - 1].datasets.items()}


def test_a_scheduled_run_seals_the_end_of_its_interval_with_each_head(lab: Lab) -> None:
    lab.run(request=upto(8))
    lab.run(request=upto(12))
    assert valid(lab) == [8, 12]
    assert [heads(lab, number) for number in (1, 2)] == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    assert [seal.run for seal in seals(lab)] == ["flights/8", "flights/12"]


def test_a_run_without_an_end_seals_the_version_that_it_names_however_often_it_is_cleared(lab: Lab) -> None:
    for _ in range(2):
        lab.run(request=RunRequest("flights/manual", version=at(8)))
    assert valid(lab) == [8]


def test_a_version_in_the_future_is_not_sealed(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.run(request=RunRequest("flights/early", version=now() + timedelta(minutes=10)))
    assert seals(lab) == []
    assert "in the future by this worker's clock" in caplog.text


def test_an_ingestion_seals_only_where_that_is_asked_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run(request=upto(8))
    assert seals(lab) == []


@pytest.mark.parametrize(
    "request_",
    [
        RunRequest("flights/manual"),
        RunRequest("flights/by_hand", at(8)),
        RunRequest("flights/some", at(8), ("a",), version=at(8)),
        RunRequest("flights/backfill", at(8), start=at(4)),
    ],
    ids=["without an interval", "by hand, up to a time", "of some datasets", "a backfill"],
)
def test_other_runs_seal_nothing(lab: Lab, request_: RunRequest) -> None:
    lab.run(request=request_)
    assert seals(lab) == []


def test_an_idle_version_is_sealed_with_the_same_heads(lab: Lab) -> None:
    lab.run(replace(A, rows=8), replace(B, rows=8), request=upto(8))
    lab.run(request=upto(12))
    assert heads(lab, 2) == heads(lab, 1)
    assert valid(lab) == [8, 12]


@pytest.mark.parametrize("broken", [{"unplannable": ("b",)}, {"units": ("b:u1",)}], ids=["no plan", "a failed unit"])
def test_a_dataset_that_fails_keeps_the_version_unsealed_until_it_is_mended(
    lab: Lab, broken: dict[str, tuple[str, ...]]
) -> None:
    lab.run(A, B, request=upto(8), **broken)
    assert seals(lab) == []
    lab.run(A, B, request=upto(12))
    assert valid(lab) == [12]


def test_a_quarantined_dataset_keeps_the_version_unsealed_until_it_is_released(lab: Lab, tmp_path: Path) -> None:
    lab.decide(A, B)
    step = next(iter(lab.journal.steps(lab.journal.history("a").slots[0].decision)))
    blocker = tmp_path / step.target  # type: ignore[attr-defined]
    blocker.parent.mkdir(parents=True)
    blocker.write_text("somebody else's\n")
    for number in range(3):
        lab.run(request=upto(100 + number))
    reports = lab.run(request=upto(103))
    assert (reports["a"].status, reports["b"].status) == ("quarantined", "idle")
    assert seals(lab) == []
    blocker.unlink()
    lab.admin.release("a", "the file is moved away")
    lab.run(request=upto(104))
    assert valid(lab) == [104]


def test_a_run_that_limits_stopped_seals_nothing_however_often_it_is_cleared(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, seals=True, limits=Limits(rows=2))
    for _ in range(2):
        assert lab.run(request=upto(8))["a"].status == "committed"
        assert seals(lab) == []


def trim_the_first_slot(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "KEPT", 1)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 1)
    lab.journal.put_note("a", 1, announced())
    for _ in range(2):
        lab.admin.pause("a", "to wait")
        lab.admin.resume("a", "to go on")
    assert trim(lab.journal, lab.reopened().history("a"))
    assert [slot.slot for slot in lab.journal.history("a").trimmed if slot.action is Action.COMMIT] == [1]


def test_nor_does_it_once_its_slot_is_trimmed_until_the_rest_is_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A, seals=True, limits=Limits(rows=2))
    lab.run(request=upto(8))
    trim_the_first_slot(lab, monkeypatch)
    assert lab.run(request=upto(8))["a"].status == "committed"
    assert seals(lab) == []
    while lab.run()["a"].status != "idle":
        pass
    lab.run(request=upto(8))
    assert valid(lab) == [8]


def test_a_run_that_is_cleared_seals_what_a_trimmed_slot_of_it_covered(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run(A, B, request=upto(8), unplannable=("b",))
    assert seals(lab) == []
    trim_the_first_slot(lab, monkeypatch)
    lab.run(A, B, request=upto(8))
    assert valid(lab) == [8]


def test_a_run_that_is_cleared_after_a_later_one_seals_nothing(lab: Lab) -> None:
    lab.run(request=upto(12))
    lab.run(request=upto(8))
    assert valid(lab) == [12]


def test_a_finish_that_is_repeated_seals_once(lab: Lab) -> None:
    opened, plan = lab.decide(request=upto(8))
    for _ in range(2):
        inprocess.run(opened, NoConnections(), upto(8))
        finish(opened, plan)
    assert valid(lab) == [8]


def test_a_held_or_paused_dataset_is_sealed_as_such(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B, seals=True, batch=Batch(rows=10))
    lab.run(request=upto(12))
    lab.run(request=upto(16))
    assert [{sealed.waits for sealed in seal.datasets.values()} for seal in seals(lab)] == [{""}, {"held"}]
    lab.admin.pause("b", "later")
    lab.run(request=upto(24))
    assert {urn: sealed.waits for urn, sealed in seals(lab)[2].datasets.items()} == {"a": "", "b": "paused"}


def test_a_dataset_that_is_no_longer_listed_keeps_versions_unsealed_until_it_is_dropped(lab: Lab) -> None:
    lab.run(request=upto(8))
    lab.run(A, request=upto(12))
    assert valid(lab) == [8]
    lab.admin.drop("b", "gone for good")
    lab.run(A, request=upto(16))
    assert heads(lab, 2) == {"a": 3}


def test_a_rewind_voids_the_seals_from_the_oldest_version_on_that_it_takes_something_of(lab: Lab) -> None:
    for position in (8, 12, 16):
        lab.run(request=upto(position))
    lab.admin.rewind("a", LongWatermark(8), "read it again")
    assert valid(lab) == [8]
    lab.run(request=upto(16))
    assert valid(lab) == [8, 16]


def test_a_seal_of_a_run_that_was_planned_before_a_rewind_is_void(lab: Lab) -> None:
    lab.run(request=upto(8))
    opened, plan = lab.decide(request=upto(12))
    inprocess.publish(opened, plan, NoConnections())
    lab.admin.rewind("a", LongWatermark(8), "read it again")
    finish(opened, plan)
    assert valid(lab) == [8]


def test_idle_datasets_that_are_rewound_after_the_plan_are_not_sealed(lab: Lab) -> None:
    """Their heads would have the rewind, and their rows would be missing."""
    lab.run(replace(A, rows=8), replace(B, rows=8), request=upto(8))
    opened, plan = lab.decide(replace(A, rows=8), B, request=upto(12))
    inprocess.publish(opened, plan, NoConnections())
    lab.admin.rewind("a", LongWatermark(4), "read it again")
    finish(opened, plan)
    assert valid(lab) == []
    assert len(seals(lab)) == 1


def test_a_version_that_is_sealed_again_ends_where_it_did_for_a_dataset_that_lost_nothing(lab: Lab) -> None:
    lab.run(request=upto(8))
    lab.run(replace(A, rows=8), B, request=upto(12))  # a is idle
    lab.run(A, B, request=upto(16))
    lab.admin.rewind("a", LongWatermark(4), "read it again")
    assert valid(lab) == []
    lab.run(request=upto(12))
    assert heads(lab, 4)["b"] == heads(lab, 2)["b"] < heads(lab, 3)["b"]
    assert valid(lab) == [12]
    lab.run(request=upto(16))
    assert heads(lab, 5)["b"] == heads(lab, 3)["b"]


def test_a_slot_that_replaces_others_belongs_to_the_oldest_of_their_versions(lab: Lab) -> None:
    for position in (8, 12, 16):
        lab.run(request=upto(position))
    lab.run(request=RunRequest("flights/again", at(10), start=at(6), replace=True))
    state = lab.journal.state("a")
    assert state.origins == {4: 1}
    assert [content(head, state) for head in (1, 2, 3)] == [{1, 4}, {1, 4}, {1, 3, 4}]
    assert valid(lab) == [8, 12, 16]


def test_a_snapshot_has_a_version_of_its_own_though_it_replaces_the_one_before(tmp_path: Path) -> None:
    lab = Lab(tmp_path, S, seals=True)
    lab.run(S, request=upto(8))
    lab.run(replace(S, version=1), request=upto(12))
    state = lab.journal.state("s")
    assert [content(head, state) for head in (1, 2)] == [frozenset(), {2}]
    assert valid(lab) == [8, 12]


def test_a_trim_keeps_what_is_void_and_whose_versions_units_have(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "KEPT", 1)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 1)
    for position in (8, 12, 16):
        lab.run(request=upto(position))
    lab.admin.rewind("a", LongWatermark(12), "read it again")
    lab.run(request=RunRequest("flights/again", at(6), start=at(2), replace=True))
    for position in (20, 24, 28):
        lab.run(request=upto(position))
    before, state = valid(lab), lab.journal.state("a")
    assert before == [8, 12, 20, 24, 28]
    for slot in lab.journal.history("a").slots:
        if slot.publishes:
            lab.journal.put_note("a", slot.decision.slot, announced())
    assert trim(lab.journal, lab.reopened().history("a"))
    after = lab.reopened().state("a")
    assert lab.journal.history("a").snapshot is not None
    assert (after.origins, after.spoiled) == (state.origins, state.spoiled) == ({5: 1}, ((3, 4),))
    assert valid(lab) == before


def announced() -> Note:
    return Note(NoteKind.ANNOUNCED, "run", now())


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.ERROR])
def test_whatever_happens_to_the_seal_there_is_one_or_none(tmp_path: Path, fault: Fault) -> None:
    store = MemoryStore()
    lab = Lab(tmp_path, A, store=store, seals=True)
    opened, plan = lab.decide(request=upto(8))
    inprocess.publish(opened, plan, NoConnections())
    faults = Faults()
    lab.journal.store = FaultyStore(store, faults)
    finish(opened, plan)
    at_seal = next(n for n, call in enumerate(faults.calls) if call.operation == "put" and "_seals" in call.subject)
    for key in [*store.list("_seals/")]:
        store.delete(key)
    lab.journal.store = FaultyStore(store, Faults(at=at_seal, fault=fault))
    finish(opened, plan)
    lab.store = store
    assert len(seals(lab)) <= 1
    lab.run(request=upto(8))
    assert valid(lab) == [8]


def test_a_seal_that_is_lost_or_changed_is_noticed(lab: Lab) -> None:
    for position in (8, 12, 16):
        lab.run(request=upto(position))
    keys = sorted(lab.store.list("_seals/"))
    kept = {key: lab.store.get(key) for key in keys}
    lab.store.delete(keys[1])
    with pytest.raises(RecordError, match="lost"):
        seals(lab)
    lab.store.put_if_absent(keys[1], kept[keys[0]] or b"")
    with pytest.raises(RecordError, match="isn't the one"):
        seals(lab)
