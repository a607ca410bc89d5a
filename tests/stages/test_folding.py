"""A stage's chain: what it keeps of its versions, also behind a trim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_gobblin.commit.preconditions import can_win, check_preconditions
from airflow_gobblin.errors import LostRaceError
from airflow_gobblin.journal import trimming
from airflow_gobblin.journal.records import Action
from airflow_gobblin.journal.trimming import trim
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.rows.work import RowsBinding
from tests.stages.chains import SOURCE, Chain, at, version


def plan(chain: Chain) -> Plan:
    state = chain.history.state
    made = Plan("mine", "job", "run", state.generation, "d", Holds.VERSIONS, "d", (), RowsBinding(""), head=state.head)
    return replace(made, checkpoint=version(9, 9))


def test_a_version_lives_until_its_unit_is_retired_and_has_its_place_by_its_version() -> None:
    chain = Chain()
    for hour in (1, 2, 3):
        chain.publish(version(hour, hour), looked={SOURCE: hour})
    chain.publish(version(1, 1), replaces=[UnitRef(1, "version")])
    assert chain.history.state.versions == (4, 2, 3)
    chain.take(Action.REWIND, replaces=[UnitRef(2, "version"), UnitRef(3, "version")], looked={SOURCE: 7})
    state = chain.history.state
    assert state.checkpoints == {4: version(1, 1)}
    assert (state.versions, state.looked, state.generation) == ((4,), {SOURCE: 7}, 1)
    chain.take(Action.DROP)
    assert not chain.history.state.versions


def test_a_floor_never_falls() -> None:
    chain = Chain()
    chain.publish(version(1, 1))
    for floor in (5, 3):
        chain.take(Action.FLOOR, floor=floor)
    state = chain.history.state
    assert (state.floor, state.versions, state.pending) == (5, (1,), False)


def test_a_slot_without_an_outcome_has_no_version_and_no_look() -> None:
    chain = Chain()
    chain.take(Action.COMMIT, "version", made=version(1, 1), looked={SOURCE: 1}, floor=1, ends=False)
    state = chain.history.state
    assert (state.versions, state.looked, state.floor) == ((), {}, 0)


def test_a_trim_keeps_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "KEPT", 1)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 1)
    chain = Chain()
    for hour in (1, 2, 3):
        chain.publish(version(hour, hour), looked={SOURCE: hour})
    chain.take(Action.REWIND, replaces=[UnitRef(3, "version")])
    chain.take(Action.FLOOR, floor=2)
    chain.publish(version(4, 4))
    before = chain.history.state
    assert trim(chain.journal, chain.history)
    after = chain.history
    assert len(after.trimmed) == 5
    names = ("versions", "checkpoints", "looked", "floor", "spoiled")
    assert [getattr(after.state, name) for name in names] == [getattr(before, name) for name in names]
    assert [after.state.checkpoints[slot].version for slot in after.state.versions] == [at(1), at(2), at(4)]


@pytest.mark.parametrize("action", [Action.COMMIT, Action.NOOP, Action.REWIND, Action.FLOOR])
def test_a_version_loses_to_anything_that_was_decided_since_its_plan(action: Action) -> None:
    chain = Chain()
    chain.publish(version(1, 1))
    mine = plan(chain)
    assert can_win(mine, chain.history)
    chain.take(action)
    with pytest.raises(LostRaceError):
        check_preconditions(mine, (), chain.history)
    assert not can_win(mine, chain.history)


@pytest.mark.parametrize("action", [Action.ABORT, Action.PAUSE])
def test_but_not_to_what_changes_nothing(action: Action) -> None:
    chain = Chain()
    chain.publish(version(1, 1))
    mine = plan(chain)
    chain.take(action)
    check_preconditions(mine, (), chain.history)
