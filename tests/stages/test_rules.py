"""The rules of stages where the histories of the model don't reach: journals that were put back, drops, and what is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_gobblin.errors import RecordError, StateGivenUpError
from airflow_gobblin.journal.records import Action
from airflow_gobblin.journal.seals import Seal, SealedDataset, Seals
from airflow_gobblin.model.checkpoint import Checkpoint
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.stages.lineage import look, looked_up_to, retired
from airflow_gobblin.stages.restore import from_version
from airflow_gobblin.stages.versions import checkpoint, of_dataset, of_stage
from tests.faults import Faults, FaultyStore
from tests.stages.chains import SOURCE, Chain, at, consumed, version


def upstream(slots: int) -> Chain:
    """A source's dataset with slots of two units."""
    chain = Chain("flights")
    for _ in range(slots):
        chain.take(Action.COMMIT, "u1", "u2")
    return chain


def seals(chain: Chain, **heads: int) -> Iterator[Seal]:
    """The oldest first.

    :param heads: by version.
    """
    hours = [(at(int(hour[1:])), head) for hour, head in heads.items()]
    for number, (upto, head) in enumerate(hours, 1):
        highest = max(one for one, _ in hours[:number])
        yield Seal(number, upto, highest, {chain.urn: SealedDataset(head, 0)}, "", at(0))


def test_a_parent_is_gone_once_any_of_its_units_is() -> None:
    chain = upstream(3)
    parents = consumed(1, 2, units=2)
    assert retired(parents, chain.history, 3) == frozenset()
    chain.take(Action.COMMIT, "u1", replaces=[UnitRef(2, "u2")])
    assert retired(parents, chain.history, 3) == {parents[1]}
    assert retired(parents, chain.history, 4) == frozenset(), "it was found before"


def test_a_unit_that_was_gone_before_is_not_missed() -> None:
    """Though the slot that retired it comes after the last look."""
    chain = upstream(2)
    chain.take(Action.COMMIT, "u1", replaces=[UnitRef(1, "u2")])
    assert retired(consumed(1), chain.history, 2) == frozenset()


def test_a_journal_that_was_put_back_and_has_grown_since_has_other_slots() -> None:
    """Also if nothing of what it has now was ever retired, and it is longer than the last look went."""
    chain = upstream(3)
    parents = consumed(1, 2, 3, units=2)
    other = upstream(1)
    for number in (2, 3, 4):
        other.take(Action.COMMIT, "u1", "u2", token=f"another {number}")
    assert retired(parents, chain.history, 3) == frozenset()
    assert retired(parents, other.history, 3) == {*parents[1:]}


def test_a_drop_retires_everything() -> None:
    chain = upstream(2)
    chain.take(Action.DROP)
    assert retired(consumed(1, 2, units=2), chain.history, 2) == {*consumed(1, 2, units=2)}


def test_a_look_ends_before_a_slot_without_an_outcome() -> None:
    chain = upstream(2)
    assert looked_up_to(chain.history) == 2
    chain.take(Action.REWIND, replaces=[UnitRef(2, "u1")], ends=False)
    chain.take(Action.PAUSE)
    found = look([version(1, 1, 2)], {SOURCE: chain.history}, {SOURCE: 1})
    assert (found.retired, found.looked) == ({}, {SOURCE: 2})


def test_a_journal_that_was_put_back_stops_its_readers_by_name() -> None:
    with pytest.raises(RecordError, match="its slots end at 2, and a stage that reads it has seen slot 3"):
        retired(consumed(1), upstream(2).history, 3)


def test_another_slot_of_the_same_number_is_another_parent() -> None:
    chain = upstream(1)
    other = replace(consumed(1)[0], token="another")
    chain.take(Action.COMMIT, "u1", replaces=[UnitRef(1, "u2")])
    assert retired([other, *consumed(1)], chain.history, 1) == {other}


def test_no_seal_is_read_below_what_the_reader_has_nor_more_above_than_it_wants() -> None:
    chain = upstream(16)
    for seal in seals(chain, **{f"v{hour}": hour for hour in range(1, 17)}):
        previous = Seals(chain.journal).digest(seal.number - 1)
        assert Seals(chain.journal).put(replace(seal, previous=previous))
    read: list[str] = []
    chain.journal.store = FaultyStore(chain.journal.store, Faults(hook=lambda call: read.append(call.subject)))
    states = {chain.urn: chain.history.state}
    read.clear()
    found = of_dataset(SOURCE, chain.history, Seals(chain.journal).after(at(9), 16), states, 2)
    assert found.sealed == {at(10): 10, at(11): 11}
    assert found.more
    assert (found.knows(at(11)), found.knows(at(12))) == (True, False)
    of_seals = [subject for subject in read if "_seals" in subject]
    assert len(of_seals) <= 5 + 3, "a search for the first, and those that are taken"
    assert [slot.consumed for slot in found.up_to(at(10))] == [*consumed(*range(1, 11), units=2)]
    assert [seal.upto for seal in Seals(chain.journal).after(at(16), 16)] == []


def test_a_seal_without_the_dataset_seals_nothing_of_it() -> None:
    chain = upstream(1)
    other = [replace(seal, datasets={"planes": SealedDataset(1, 0)}) for seal in seals(chain, v1=1)]
    assert of_dataset(SOURCE, chain.history, other, {}).sealed == {}


def test_a_version_consumes_what_came_after_the_one_before_and_inherits_its_roots() -> None:
    source, stage = upstream(3), Chain("clean")
    states = {source.urn: source.history.state}
    stage.publish(version(1, 1))
    has = {SOURCE: of_dataset(SOURCE, source.history, seals(source, v1=1, v3=3), states)}
    made = checkpoint(at(3), has, stage.history.state, {})
    assert made.parents == made.roots == {SOURCE: consumed(2, 3, units=2)}
    stage.publish(made)
    below = checkpoint(at(3), {"clean/clean": of_stage(stage.history)}, Chain("report").history.state, {})
    assert below.parents == {"clean/clean": consumed(1, 2)}
    assert below.roots == {SOURCE: (*consumed(1), *consumed(2, 3, units=2))}


def test_an_upstream_that_is_late_gives_what_it_has_sealed_before_and_what_it_seals_later_belongs_to_the_next() -> None:
    source, stage = upstream(4), Chain("clean")
    states = {source.urn: source.history.state}

    def made(hour: int, **heads: int) -> Checkpoint:
        has = {SOURCE: of_dataset(SOURCE, source.history, seals(source, **heads), states)}
        return checkpoint(at(hour), has, stage.history.state, {})

    first = made(4, v5=1)
    assert (first.parents, first.roots, first.late) == ({SOURCE: ()}, {}, {SOURCE: None})
    second = made(4, v1=1, v3=2, v5=3)
    assert (second.parents[SOURCE], second.late) == (consumed(1, 2, units=2), {SOURCE: at(3)})
    stage.publish(second)
    third = made(6, v1=1)
    assert (third.parents[SOURCE], third.late) == ((), {SOURCE: at(3)}), "its content doesn't become less"
    stage.publish(third)
    fourth = made(8, v1=1, v3=2, v5=3, v8=4)
    assert (fourth.parents[SOURCE], fourth.late) == (consumed(3, 4, units=2), {})


def test_a_stage_with_state_goes_back_no_further_than_its_floor_or_to_its_start() -> None:
    stage = Chain("delays")
    for hour in (1, 2, 3):
        stage.publish(version(hour, hour))
    stage.take(Action.FLOOR, floor=3)
    state = stage.history.state
    with pytest.raises(StateGivenUpError, match=r"to before version .*03:00.*Rewind it to its start"):
        from_version(state, at(3), stateful=True)
    assert from_version(state, at(3), stateful=False) == (UnitRef(3, "version"),)
    assert from_version(state, at(4), stateful=True) == ()
    assert len(from_version(state, at(1), stateful=True)) == 3
