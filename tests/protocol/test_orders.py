"""The explorer of orders finds what depends on the order of calls, and keeps apart what differs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.protocol.orders import Answer, BrokenPromise, Call, Explorer, Process, Tally, Work, named_in_turn


@dataclass
class Counter:
    """A number that processes read and write. It must never be written twice."""

    number: int = 0
    names: tuple[uuid.UUID, ...] = ()

    def copy(self) -> Counter:
        return replace(self)

    def digest(self) -> Hashable:
        return (self.number, self.names)

    def holds(self, held: tuple[int, ...]) -> Hashable:
        return held

    def changes(self, call: Call) -> bool:
        return call.name != "read"

    def answer(self, call: Call, notes: Mapping[str, Any], held: tuple[int, ...]) -> Answer:
        match call.name:
            case "read":
                return Answer(self.number, self.number)
            case "new_name":
                return Answer(len(self.names) + 1, len(self.names) + 1)
            case "note":
                self.names += call.arguments
            case "write" if call.arguments == (self.number,):
                raise BrokenPromise(f"{self.number} is written twice")
            case "write":
                (self.number,) = call.arguments
        return Answer()


def _adds(process: Process) -> None:
    process.ask("write", process.ask("read") + 1)


def _adds_too(process: Process) -> None:
    _adds(process)


def _nothing(process: Process) -> None:
    """It has nothing to recover."""


def _explored(
    *works: Work,
    changes: int | None = None,
    check: Callable[[Counter, BaseException | None], None] = lambda counter, error: None,
) -> Tally:
    with named_in_turn():
        return Explorer[Counter](works, _nothing, check, (), changes).explore(Counter())


def test_an_update_is_lost_by_a_change() -> None:
    assert not _explored(_adds, _adds, changes=0).broken
    assert _explored(_adds, _adds, changes=1).broken == "1 is written twice, in the order [0, 1, 1, 0]"
    assert _explored(_adds, _adds).broken.startswith("1 is written twice")


def test_it_is_looked_at_as_if_all_had_died_everywhere() -> None:
    def check(counter: Counter, error: BaseException | None) -> None:
        if counter.number == 1:
            raise BrokenPromise("it is 1")

    assert _explored(_adds, _adds, check=check).broken == "it is 1, alone after the order [0, 0]"


def test_processes_that_do_the_same_are_alike() -> None:
    alike, others = _explored(_adds, _adds, changes=0), _explored(_adds, _adds_too, changes=0)
    assert (alike.states, alike.orders) == (5, 2)
    assert others.states > alike.states


@dataclass(frozen=True)
class _Place:
    number: int


@dataclass(frozen=True)
class _Delete:
    number: int


def test_steps_with_the_same_values_differ() -> None:
    def carries_out(process: Process) -> None:
        for step in (_Place(1), _Delete(1)):
            assert hash(step) == hash(_Place(1))
            process.begin("execute", step)
            process.ask("read")

    assert _explored(carries_out).states == 3


def test_a_new_name_is_taken_at_once() -> None:
    def names(process: Process) -> None:
        process.ask("read")
        process.ask("note", uuid.uuid4())

    assert _explored(names).states == 3
    assert not _explored(names, names).broken


def test_a_step_that_goes_by_what_was_before_it_is_noticed() -> None:
    def remembers(process: Process) -> None:
        before = process.ask("read")
        process.begin("execute", _Place(1))
        process.ask("write", 7 if before else 5)

    with pytest.raises(AssertionError, match="doesn't decide"):
        _explored(remembers, _adds)
