"""The sources of the model: jobs whose datasets publish ranges of positions, and seal versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.protocol.pipelines.chains import Action, Chain, Decision, Fold, Process, Row, Store, ended

UNIT = 3
"""The most positions that a unit has."""


@dataclass(frozen=True)
class RangeUnit:
    """A range of positions as published: [low, high)."""

    name: str
    low: int
    high: int
    rows: Mapping[str, Row]

    @property
    def roots(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True)
class Seal:
    """A job's word that everything up to a version is in.

    :param heads: the newest slot of each dataset then.
    :param waiting: the datasets that were held or paused.
    :param made: the moment after it was made, for the checks.
    """

    version: int
    heads: Mapping[str, int]
    waiting: frozenset[str]
    made: int


@dataclass
class Dataset:
    """A dataset of a source.

    :param revisions: of its rows, by position: a row that was corrected has a higher one.
    """

    name: str
    chain: Chain[RangeUnit]
    revisions: dict[int, int] = field(default_factory=dict)
    waits: bool = False
    """Whether it is held or paused."""

    def unit(self, low: int, high: int) -> RangeUnit:
        """Read a range as the source has it now."""
        name = f"{self.name}#{self.chain.store.token()}"
        keys = [(f"{self.name}:{position}", position) for position in range(low, high)]
        rows = {key: Row(f"{key}@{self.revisions[at]}", frozenset({(key, name)})) for key, at in keys}
        return RangeUnit(name, low, high, rows)

    def ingest(self, upto: int, fails: int | None = None) -> Process[None]:
        """Publish what isn't covered yet.

        :param fails: the number of the unit that fails.
        """
        plan = yield from ended(self.chain)
        units = [self.unit(low, high) for low, high in _gaps(plan, upto)]
        wanted = tuple(unit for number, unit in enumerate(units) if number != fails)
        if self.waits or not wanted:
            return
        while True:
            fold = yield from ended(self.chain)
            positions = {at for unit in wanted for at in range(unit.low, unit.high)}
            if fold.generation != plan.generation or positions & covered(fold):
                return
            yield
            if self.chain.take(fold.slot + 1, Decision(Action.COMMIT, plan.generation, wanted)):
                yield
                self.chain.end(fold.slot + 1)
                return

    def replace(self, low: int, high: int) -> Process[None]:
        """Ingest all units anew that have any of these positions."""
        plan = yield from ended(self.chain)
        old = [unit for unit in plan.live.values() if unit.low < high and unit.high > low]
        new = tuple(self.unit(unit.low, unit.high) for unit in old)
        retires = frozenset(unit.name for unit in old)
        fold = yield from ended(self.chain)
        if not old or fold.generation != plan.generation or not retires <= fold.live.keys():
            return
        yield
        if self.chain.take(fold.slot + 1, Decision(Action.COMMIT, plan.generation, new, retires)):
            yield
            self.chain.end(fold.slot + 1)

    def rewind(self, position: int) -> Process[None]:
        """Take back all units that end after a position."""
        fold = yield from ended(self.chain)
        yield from self._take_back(fold, frozenset(unit.name for unit in fold.live.values() if unit.high > position))

    def rewind_after(self, head: int) -> Process[None]:
        """Take back all units that belong to versions which end after a slot."""
        fold = yield from ended(self.chain)
        yield from self._take_back(fold, frozenset(fold.live) - content(head, fold))

    def _take_back(self, fold: Fold[RangeUnit], retires: frozenset[str]) -> Process[None]:
        yield
        taken = Decision[RangeUnit](Action.REWIND, fold.generation + 1, retires=retires)
        if retires and self.chain.take(fold.slot + 1, taken):
            yield
            self.chain.end(fold.slot + 1)


@dataclass
class Source:
    """A source job.

    :param clock: the next position that any of its datasets gets.
    :param apart: whether its schedule isn't that of the others: its versions lie anywhere.
    """

    name: str
    datasets: Sequence[Dataset]
    clock: int = 0
    seals: list[Seal] = field(default_factory=list)
    apart: bool = False

    def grow(self, positions: int) -> None:
        """Let time pass: each dataset has a row at each position."""
        for dataset in self.datasets:
            dataset.revisions.update(dict.fromkeys(range(self.clock, self.clock + positions), 0))
        self.clock += positions

    def run(self, version: int, fails: Mapping[str, int | None], seals: bool = True) -> Process[None]:
        """Publish what every dataset has up to a version, and seal it."""
        for dataset in self.datasets:
            yield from dataset.ingest(version, fails.get(dataset.name))
        if seals:
            yield from self.seal(version)

    def seal(self, version: int) -> Process[None]:
        """Seal a version, if everything up to it is in, and none as high is sealed."""
        while True:
            seals = tuple(self.seals)  # before the chains
            folds = yield from self.folds()
            if version > self.clock or any(version <= seal.version for seal in valid_seals(seals, folds)):
                return
            heads = {name: head_for(version, name, fold, seals) for name, fold in folds.items()}
            waiting = frozenset(
                dataset.name
                for dataset in self.datasets
                if dataset.waits or _waited(version, dataset.name, heads[dataset.name], seals)
            )
            if not all_in(version, folds, heads, waiting):
                return
            yield
            if len(self.seals) == len(seals):
                store = self.datasets[0].chain.store
                store.moment += 1
                self.seals.append(Seal(version, heads, waiting, store.moment))
                return

    def rewind(self, version: int) -> Process[None]:
        """Take back what each dataset has published after a version."""
        seals = tuple(self.seals)  # before the chains
        folds = yield from self.folds()
        newest = newest_up_to(version, seals, folds)
        for dataset in self.datasets:
            yield from dataset.rewind_after(0 if newest is None else newest.heads[dataset.name])

    def folds(self) -> Process[Mapping[str, Fold[RangeUnit]]]:
        """Return what follows from the chain of each dataset."""
        folds = {}
        for dataset in self.datasets:
            yield
            folds[dataset.name] = dataset.chain.fold()
        return folds


def newest_up_to(version: int, seals: Sequence[Seal], folds: Mapping[str, Fold[RangeUnit]]) -> Seal | None:
    """Return the newest seal up to a version that isn't void."""
    found = (seal for seal in valid_seals(seals, folds) if seal.version <= version)
    return max(found, key=lambda seal: seal.version, default=None)


def covered(fold: Fold[RangeUnit]) -> set[int]:
    """Return the positions that live units have."""
    return {at for unit in fold.live.values() for at in range(unit.low, unit.high)}


def content(head: int, fold: Fold[RangeUnit]) -> frozenset[str]:
    """Return the live units that belong to the versions up to a head: slots up to it, and what replaced them later."""
    return frozenset(name for name, origin in fold.origins.items() if origin <= head)


def all_in(
    version: int, folds: Mapping[str, Fold[RangeUnit]], heads: Mapping[str, int], waiting: frozenset[str]
) -> bool:
    """Return whether each dataset is covered up to a version, or waits."""
    return all(name in waiting or not _missing(version, heads[name], fold) for name, fold in folds.items())


def _missing(version: int, head: int, fold: Fold[RangeUnit]) -> set[int]:
    units = (fold.live[name] for name in content(head, fold))
    return {*range(version)} - {at for unit in units for at in range(unit.low, unit.high)}


def intact(seal: Seal, dataset: str, fold: Fold[RangeUnit]) -> bool:
    """Return whether nothing of a dataset that a seal covers was taken back since."""
    return not any(low <= seal.heads[dataset] < high for low, high in fold.spoiled)


def valid_seals(seals: Sequence[Seal], folds: Mapping[str, Fold[RangeUnit]]) -> Sequence[Seal]:
    """Return the seals that aren't void, in their order: of their datasets nothing was taken back."""
    return [seal for seal in seals if all(intact(seal, name, fold) for name, fold in folds.items())]


def head_for(version: int, dataset: str, fold: Fold[RangeUnit], seals: Sequence[Seal]) -> int:
    """Return the head of a dataset in a new seal: its newest slot, but a boundary that is intact stays where it is.

    Another dataset may have made that seal void; a reader of this one alone has consumed up to there.
    """
    later = [seal.heads[dataset] for seal in seals if seal.version >= version and intact(seal, dataset, fold)]
    return min([fold.slot, *later])


def _waited(version: int, dataset: str, head: int, seals: Sequence[Seal]) -> bool:
    """Return whether a dataset waited when its boundary was drawn, by a seal that is void now."""
    drew = (seal for seal in seals if seal.version >= version and seal.heads[dataset] == head)
    return any(dataset in seal.waiting for seal in drew)


def _gaps(fold: Fold[RangeUnit], upto: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges that aren't covered, cut into units."""
    low = None
    taken = covered(fold)
    for at in range(upto + 1):
        free = at < upto and at not in taken
        if low is not None and (not free or at - low == UNIT):
            yield low, at
            low = None
        if free and low is None:
            low = at


def source(name: str, datasets: Sequence[str], store: Store, *, apart: bool = False) -> Source:
    """Make a source job."""
    return Source(name, [Dataset(dataset, Chain(dataset, store)) for dataset in datasets], apart=apart)
