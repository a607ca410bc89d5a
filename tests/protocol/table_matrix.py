"""The crash matrix of tables: every call of a run, with every fault that can happen to it, and each way to go on from there; and
a pause before every call, in which others do something.

    first run, whole  →  second run, with a fault at call k  →  look  →  one of the ways to go on  →  third run, whole  →  look

The second run adds rows, swaps a snapshot and merges; or it takes the place of a range; or it is a rewind. All of it is in
memory, but for data files that stay at the location of their table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from airflow_gobblin.testing.memory_table import MemoryTable
from tests.faults import POWER, Call, Crash, Effect, Fault, Faults
from tests.protocol.attempts import deterministic
from tests.protocol.table_world import FLIGHTS, TableWorld, source
from tests.protocol.watched_tables import watching

SOURCES = ((4, 0), (7, 1), (9, 2))
"""How many rows the source has at each run, and its version."""


class Way(StrEnum):
    """How it goes on after the second run."""

    NEXT = "the next run"
    RETRY = "the run is tried again"
    ABANDON = "what is pending is abandoned"


@dataclass(frozen=True)
class Kind:
    """A kind of second run.

    :param request: of the run; `None`: it is a rewind.
    :param location: whether data files stay where they are staged.
    """

    name: str
    request: RunRequest | None
    location: bool = False


_RUN, _RANGE = RunRequest("run 2"), RunRequest("run 2", 3, (FLIGHTS,), 1, True)
KINDS = (
    Kind("runs", _RUN),
    Kind("a range is replaced", _RANGE),
    Kind("a rewind", None),
    Kind("runs, data files stay", _RUN, location=True),
    Kind("a range is replaced, data files stay", _RANGE, location=True),
)


@dataclass(frozen=True)
class Start:
    """A world after a whole first run, and the calls that the second one makes.

    :param put_back: puts its tables back as they are then.
    """

    kind: Kind
    world: TableWorld
    put_back: Callable[[], None]
    calls: Sequence[Call]

    def new(self) -> TableWorld:
        """Return a copy of the world to play in."""
        self.put_back()
        return self.world.copied()


@dataclass(frozen=True)
class Trial:
    """A fault at a call of the second run, and how it goes on."""

    at: int
    fault: Fault
    way: Way

    def play(self, start: Start) -> None:
        """:raises AssertionError: a promise is broken."""
        world, faults = start.new(), Faults(self.at, self.fault)
        with suppress(Crash, GobblinError, OSError):
            second(world, start.kind, faults)
        assert faults.happened, "the call was not reached"
        world.check()
        if self.way is Way.RETRY:
            with suppress(GobblinError):  # its act is refused a second time
                second(world, start.kind)
            world.check()
        elif self.way is Way.ABANDON:
            abandon(world)
        rest(world, start.kind)


@dataclass(frozen=True)
class Pause:
    """The second run is held up before a call, and others do something: then it goes on."""

    at: int
    way: Way

    def play(self, start: Start) -> None:
        """:raises AssertionError: a promise is broken."""
        world = start.new()
        faults = Faults(hook=lambda call: self._others(world, start.kind) if len(faults.calls) == self.at else None)
        with suppress(GobblinError, OSError):
            second(world, start.kind, faults)
        assert len(faults.calls) > self.at, "the call was not reached"
        world.check()
        rest(world, start.kind)

    def _others(self, world: TableWorld, kind: Kind) -> None:
        opened, request = world.opened(source(world.urns, *SOURCES[1])), RunRequest("in between")
        if self.way is Way.RETRY:  # its staging stays, as that of what is abandoned and not cleaned up
            verify_recover(opened, request)
        elif self.way is Way.ABANDON:
            for urn in world.urns:
                if (pending := opened.journal.history(urn).pending) is not None:
                    with suppress(GobblinError):
                        opened.committer.abandon(pending, "", "ann", "for the test")
        else:
            run(world, 2, request)
        world.check()


Case = Trial | Pause


def run(world: TableWorld, number: int, request: RunRequest, faults: Faults | None = None) -> dict[str, str]:
    """Carry out a run of the n-th source.

    :return: the status of each dataset.
    """
    opened = world.opened(source(world.urns, *SOURCES[number - 1]), faults)
    return {urn: report.status.value for urn, report in inprocess.run(opened, NoConnections(), request).items()}


def second(world: TableWorld, kind: Kind, faults: Faults | None = None) -> None:
    """Carry out the second run."""
    if kind.request is None:
        world.person(faults).rewind(FLIGHTS, LongWatermark(1), "for the test")
    else:
        run(world, 2, kind.request, faults)


def abandon(world: TableWorld) -> None:
    """Abandon what is pending."""
    for urn in world.urns:
        if world.journal().history(urn).pending is not None:
            with suppress(GobblinError):  # it was done already, and is finished
                world.person().abandon(urn, "for the test")
    world.check()


def rest(world: TableWorld, kind: Kind) -> None:
    """Carry out runs without a fault: then everything is right."""
    for number in range(3):
        found = run(world, 3, RunRequest(f"rest {number}"))
        world.check()
        if {*found.values()} <= {"idle"}:
            break
    for urn in world.urns if kind.request is _RANGE else ():
        with suppress(GobblinError):  # a plan to take the place of a range stays good for ever
            world.person().abandon(urn, "for the test")
    run(world, 3, RunRequest("the last"))
    world.check_complete(source(world.urns, *SOURCES[2]))


def begun(kind: Kind, name: str, location: str = "") -> Start:
    """Return the start of all cases of a kind.

    :param location: a folder for data files.
    """
    with deterministic() as determined, watching(MemoryTable):
        determined.begin(0)
        world = TableWorld(name, location)
        run(world, 1, RunRequest("run 1"))
        world.check_complete(source(world.urns, *SOURCES[0]))
        put_back, faults = world.tables_as_they_are(), Faults()
        second(world.copied(), kind, faults)
        return Start(kind, world, put_back, faults.calls)


def cases(calls: Sequence[Call]) -> Iterator[Case]:
    """Yield every fault and every pause. Of two that leave the same, one is enough: a crash after a call is one before the
    next.
    """
    for at, call in enumerate(calls):
        changed = at > 0 and calls[at - 1].effect is not Effect.READ
        for fault in call.faults:
            if fault in POWER or fault is Fault.CRASH_AFTER or (fault is Fault.CRASH_BEFORE and not changed):
                continue
            yield from (Trial(at, fault, way) for way in Way)
        if changed or call.place == "table":
            yield from (Pause(at, way) for way in Way)


def play_all(start: Start, some: Sequence[Case]) -> list[str]:
    """Play cases.

    :return: those that broke a promise, as text.
    """
    broken = []
    with deterministic() as determined, watching(MemoryTable):
        for case in some:
            determined.begin(1)
            try:
                case.play(start)
            except Exception as error:
                broken.append(f"{case}: {start.calls[case.at]}: {type(error).__name__}: {error}")
    return broken
