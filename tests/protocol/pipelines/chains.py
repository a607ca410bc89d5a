"""The store of the model: chains of decisions and outcomes, which are written once.

A process of the model is a generator. It yields wherever other processes may do anything before it goes on, and it may be dropped
there, or go on long afterwards: each read of a chain and each write is one step.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeAlias, TypeVar

Result = TypeVar("Result")
Process: TypeAlias = Generator[None, None, Result]


class StoppedError(Exception):
    """A job stops by name: a person has to do something."""


@dataclass(frozen=True)
class Row:
    """A row.

    :param origins: the rows of sources that it was made from, each with the unit that published it.
    :param made: the versions of stages that it went through, by name: each evaluation of a function leaves its mark.
    """

    value: str
    origins: frozenset[tuple[str, str]]
    made: frozenset[str] = frozenset()


class Unit(Protocol):
    """The content that a slot publishes: a range of a source's dataset, or a version of a stage."""

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> Mapping[str, Row]: ...

    @property
    def roots(self) -> frozenset[str]:
        """The units of sources that it was made from."""


U = TypeVar("U", bound=Unit)
U_co = TypeVar("U_co", bound=Unit, covariant=True)


class Action(StrEnum):
    """The effect of a decision."""

    COMMIT = "commit"
    REWIND = "rewind"
    FLOOR = "floor"


@dataclass(frozen=True)
class Decision(Generic[U_co]):
    """A slot's decision.

    :param retires: the units that it retires, by name.
    :param looked: how far a stage looked for retired parents, per upstream.
    :param floor: the state of versions in slots below is given up.
    :param considered: the moment when its process began to decide, for the checks.
    :param began: the moment when it began to read what it was planned from, for the checks.
    """

    action: Action
    generation: int
    units: tuple[U_co, ...] = ()
    retires: frozenset[str] = frozenset()
    looked: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0
    considered: int = 0
    began: int = 0


@dataclass(frozen=True)
class Fold(Generic[U_co]):
    """The state that follows from a chain up to its newest slot with an outcome.

    :param slots: the slot of each live unit.
    :param origins: the slot whose version a live unit has: its own, or the oldest among those of the units that it replaced.
    :param spoiled: the heads [low, high) up to which something was taken back: of each rewind, from the lowest origin that it
        retired to its slot. A snapshot keeps them, and the origins, or a trim would make void seals valid again.
    """

    slot: int = 0
    generation: int = 0
    live: Mapping[str, U_co] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, int] = field(default_factory=dict)
    spoiled: tuple[tuple[int, int], ...] = ()
    looked: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0


def followed(before: Fold[U], slot: int, decision: Decision[U]) -> Fold[U]:
    """Return a fold with one more slot, which has its outcome."""
    lowest = min((before.origins[name] for name in decision.retires if name in before.live), default=slot)
    origin = lowest if decision.action is Action.COMMIT else slot
    live = {name: unit for name, unit in before.live.items() if name not in decision.retires}
    added = {unit.name: unit for unit in decision.units}
    spoiled = before.spoiled
    if decision.action is Action.REWIND:
        spoiled = (*((low, high) for low, high in spoiled if low < lowest), (lowest, slot))
    return Fold(
        slot=slot,
        generation=decision.generation,
        live={**live, **added},
        slots={**{name: before.slots[name] for name in live}, **dict.fromkeys(added, slot)},
        origins={**{name: before.origins[name] for name in live}, **dict.fromkeys(added, origin)},
        spoiled=spoiled,
        looked=decision.looked,
        floor=max(before.floor, decision.floor),
    )


@dataclass
class Store:
    """The store of all chains.

    :param moment: the number of writes so far.
    """

    moment: int = 0
    made: int = 0

    def token(self) -> str:
        """Return a name that nothing else has."""
        self.made += 1
        return str(self.made)


class Chain(Generic[U]):
    """The chain of a dataset, or of a stage.

    :param store: counts its writes.
    """

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self.store = store
        self.ledger: dict[int, Decision[U]] = {}
        """Every decision ever, for the checks."""
        self.ended_at: dict[int, int] = {}
        """The moment of every outcome ever, for the checks."""
        self._snapshot: Fold[U] = Fold()
        self._decisions: dict[int, Decision[U]] = {}
        self._known: Fold[U] = self._snapshot

    @property
    def head(self) -> int:
        """The newest slot, with or without outcome."""
        return self._snapshot.slot + len(self._decisions)

    @property
    def pending(self) -> bool:
        """Whether the newest slot has no outcome."""
        return self.head > 0 and self.head not in self.ended_at

    @property
    def trimmed(self) -> int:
        """The newest slot that was trimmed."""
        return self._snapshot.slot

    def fold(self) -> Fold[U]:
        """Return what follows from all slots with an outcome."""
        fold = self._known
        while fold.slot < self.head and fold.slot + 1 in self.ended_at:
            fold = followed(fold, fold.slot + 1, self._decisions[fold.slot + 1])
        self._known = fold
        return fold

    def take(self, slot: int, decision: Decision[U]) -> bool:
        """Put a decision in a slot; return whether it was put there."""
        if slot != self.head + 1 or self.pending:
            return False
        self.store.moment += 1
        self._decisions[slot] = self.ledger[slot] = decision
        return True

    def end(self, slot: int) -> None:
        """Put the outcome of a slot, unless it has one."""
        if slot not in self.ended_at:
            self.store.moment += 1
            self.ended_at[slot] = self.store.moment

    def retired_since(self, slot: int, upto: int) -> frozenset[str]:
        """Return the units that were retired in the slots after one, up to another."""
        return frozenset(name for n in range(slot + 1, upto + 1) for name in self._decisions[n].retires)

    def trim(self, upto: int) -> None:
        """Fold all slots up to one into a snapshot, which doesn't keep the names of what was retired."""
        fold = self._snapshot
        for slot in range(fold.slot + 1, upto + 1):
            if slot not in self.ended_at:
                break
            fold = followed(fold, slot, self._decisions.pop(slot))
        self._snapshot = self._known = kept(fold)


def kept(fold: Fold[U]) -> Fold[U]:
    """Return what a snapshot keeps."""
    return fold


def ended(chain: Chain[U]) -> Process[Fold[U]]:
    """Return what follows from a chain, after a pending slot was finished."""
    yield
    while chain.pending:
        slot = chain.head
        yield
        chain.end(slot)
    return chain.fold()
