"""The crash matrix of a target that is gone: between any two calls of a run something else takes the target's place.

    first run, whole  →  second run, the target goes before call k  →  a run while it is gone  →  it is back  →  recovery

Nothing dies of it: the second run goes on with what it finds, tries its tasks again, and publishes nothing. The run after it must
stop by name, and leave the journal and whatever took the target's place as they are. Once the target is back, nothing is lost,
and everything missing is published.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from airflow_gobblin.workspace.staging import MARKS, ROOT
from tests.faults import Call, Faults
from tests.protocol.matrix import SOURCES, Start, carry_out, look, recover, second_run
from tests.protocol.processes import Send, in_fresh_process
from tests.protocol.world import Place, Run, World


class Instead(StrEnum):
    """The replacement of a target."""

    EMPTY = "an empty folder"
    """It was emptied, or isn't mounted, or isn't shared with this host."""
    ANOTHER = "another target"
    """As it was after the first run, and with a mark of its own."""


@dataclass(frozen=True)
class Absence:
    """A target that goes, for the rest of a run and the next one.

    :param at: the call before which it does; or after all.
    """

    at: int
    call: Call | None
    instead: Instead

    def __str__(self) -> str:
        when = "after the last call" if self.call is None else f"before call {self.at}: {self.call}"
        return f"the target goes, {self.instead} is there, {when}"

    def run(self, start: Start, folder: Path) -> bool:
        """Play it.

        :return: whether it happened.
        :raises AssertionError: a promise is broken.
        """
        place = start.place.copy(folder)
        target = _Target(place, start.place.folder / "target", self.instead)
        try:
            (run,) = in_fresh_process(lambda send: self._go(place, target, send))
            in_fresh_process(lambda _: _run_without(place, target))
            target.come_back()
            retried = run if self.at % 2 == 0 else None

            def work(send: Send) -> None:
                look(World(place), start, SOURCES[:2])
                recover(World(place), start, retried, self.at)

            in_fresh_process(work)
        finally:
            place.remove()
        return True

    def _go(self, place: Place, target: _Target, send: Send) -> None:
        """The second run, during which the target goes."""
        seen: list[Call] = []

        def leave(call: Call) -> None:
            if len(seen) == self.at:
                assert self.call is not None
                assert (call.place, call.operation) == (self.call.place, self.call.operation), f"there is now {call}"
                target.go()
            seen.append(call)

        run = carry_out(World(place), 2, Faults(hook=leave), second_run(place))
        if self.call is None:
            target.go()
        assert target.gone, f"there was no call {self.at}"
        send(run)


class _Target:
    """The target of a place, and what replaces it while it is gone.

    :param older: the target as it was.
    """

    def __init__(self, place: Place, older: Path, instead: Instead) -> None:
        self._there = place.folder / "target"
        self._kept = place.folder / "kept"
        self._older = older
        self._instead = instead

    @property
    def gone(self) -> bool:
        """Whether something else is there."""
        return self._kept.exists()

    def go(self) -> None:
        """Put something else there."""
        self._there.rename(self._kept)
        if self._instead is Instead.EMPTY:
            self._there.mkdir()
            return
        shutil.copytree(self._older, self._there)
        for mark in self._there.glob(f"{ROOT}/*/{MARKS}*"):
            mark.rename(mark.with_name(uuid.uuid4().hex))

    def come_back(self) -> None:
        """Put the target back."""
        shutil.rmtree(self._there)
        self._kept.rename(self._there)

    def check_untouched(self) -> None:
        """Nothing was published to the replacement, and nothing removed from it."""
        before = _published(self._older) if self._instead is Instead.ANOTHER else {}
        now = _published(self._there)
        assert now == before, f"the replacement of the target has changed: {sorted(before.items() ^ now.items())}"


def _published(target: Path) -> dict[str, bytes]:
    """The content of a target, except staging."""
    files = (path for path in target.rglob("*") if path.is_file() and ROOT not in path.parts)
    return {str(path.relative_to(target)): path.read_bytes() for path in files}


def _run_without(place: Place, target: _Target) -> None:
    """A run while the target is gone stops by name, at its first task, and changes nothing."""
    world = World(place)
    records = world.look().records()
    run = carry_out(world, 3, Faults(), Run("run without a target"))
    assert run.errors, f"it went on without its target: {run.done}"
    assert not run.done, f"it went on without its target: {run.done}, and then {run.errors[0]}"
    assert all(": TargetError(" in error for error in run.errors), f"it doesn't name its target: {run.errors}"
    assert world.look().records() == records, "a run without its target wrote into the journal"
    target.check_untouched()


def absences(calls: Sequence[Call]) -> Iterator[Absence]:
    """Before every call of the target, and after all: before another call it would be as before the next of these."""
    times = [*((at, call) for at, call in enumerate(calls) if call.place == "target"), (len(calls), None)]
    return (Absence(at, call, instead) for at, call in times for instead in Instead)
