"""The stages of the model: versions with parents, roots and state; barrier, lineage and restore."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Protocol

from tests.protocol.pipelines.chains import (
    Action,
    Chain,
    Decision,
    Fold,
    Process,
    Row,
    StoppedError,
    Store,
    Unit,
    ended,
)
from tests.protocol.pipelines.sources import Source, content, valid_seals

TOGETHER = 8
"""The most versions that one run of a stage takes."""


@dataclass(frozen=True)
class Version:
    """A version of a stage as published: the unit of its slot.

    :param version: the version.
    :param parents: the units that it consumed, of each upstream.
    :param reached: the version of each upstream up to which it has what that published: its own, but of an optional one that is
        late; 0 if there is none.
    :param marks: a second channel, with a row for each of the first one's.
    :param state: the name of its state's file.
    """

    name: str
    version: int
    parents: Mapping[str, frozenset[str]]
    roots: frozenset[str]
    reached: Mapping[str, int]
    rows: Mapping[str, Row]
    marks: Mapping[str, Row]
    state: str


@dataclass(frozen=True)
class State:
    """The state that a stage keeps: by key, the values of all rows so far.

    :param of: the evaluation that made it.
    """

    of: str
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    made: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reading:
    """The content of an upstream.

    :param sealed: the versions that it sealed, with the units of everything up to each.
    :param units: its live units.
    """

    sealed: Mapping[int, frozenset[str]]
    units: Mapping[str, Unit]

    def roots(self, version: int, datasets: frozenset[str]) -> frozenset[str]:
        """Return the units of some sources that everything up to a version was made from."""
        roots = frozenset().union(*(self.units[name].roots for name in self.sealed[version]))
        return frozenset(root for root in roots if root.split("#")[0] in datasets)


class Upstream(Protocol):
    """An input of a stage: a dataset of a source, or a stage."""

    @property
    def name(self) -> str: ...

    @property
    def chain(self) -> Chain[Any]: ...

    @property
    def reach(self) -> frozenset[str]:
        """The datasets of sources that it is made from, but for those that only an optional upstream brings."""

    def read(self) -> Process[Reading]:
        """Return what it has."""


@dataclass(frozen=True)
class DatasetOf:
    """A dataset of a source, as a stage reads it."""

    source: Source
    number: int

    @property
    def name(self) -> str:
        return self.source.datasets[self.number].name

    @property
    def chain(self) -> Chain[Any]:
        return self.source.datasets[self.number].chain

    @property
    def reach(self) -> frozenset[str]:
        return frozenset({self.name})

    def read(self) -> Process[Reading]:
        """The seals are read before the chains, which then have all that the seals name."""
        yield
        seals = tuple(self.source.seals)
        folds = yield from self.source.folds()
        fold = folds[self.name]
        valid = valid_seals(seals, folds)
        return Reading({seal.version: content(seal.heads[self.name], fold) for seal in valid}, fold.live)


@dataclass(frozen=True)
class Plan:
    """A version that a stage is about to make: bound to the head of its chain.

    :param inputs: the rows that it takes, of each upstream.
    :param retires: the version that it replaces.
    :param began: the moment when it began to read what they have, for the checks; 0 if it takes nothing that is new.
    """

    head: int
    generation: int
    version: int
    parents: Mapping[str, frozenset[str]]
    roots: frozenset[str]
    reached: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, Row]]
    state: State | None
    retires: frozenset[str] = frozenset()
    began: int = 0


@dataclass(frozen=True)
class Look:
    """The findings of a look at lineage.

    :param retired: parents.
    :param upto: how far it looked, per upstream.
    """

    retired: frozenset[str]
    upto: Mapping[str, int]


class Stage:
    """A stage.

    :param optional: the names of the upstreams that it doesn't wait for.
    :param stateful: whether it has state.
    :param whole: the names of the upstreams of which it reads everything up to a version, and not what is new in it.
    :param at_most: how far its optional upstreams may be behind a version; `None`: any far.
    :param channels: the channels that it reads of an upstream, by its name: "" is the rows, which it reads of the others.
    """

    def __init__(
        self,
        name: str,
        upstreams: Sequence[Upstream],
        store: Store,
        optional: Iterable[str] = (),
        stateful: bool = False,
        whole: Iterable[str] = (),
        at_most: int | None = None,
        channels: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.name = name
        self.upstreams = upstreams
        self.optional = frozenset(optional)
        self.stateful = stateful
        self.whole = frozenset(whole)
        self.at_most = at_most
        self.channels = channels or {}
        self.chain: Chain[Version] = Chain(name, store)
        self.states: dict[str, State] = {}
        self.written: dict[str, State] = {}
        """Every state ever, for the checks."""
        self.apart: dict[tuple[int, int], Mapping[str, Row]] = {}
        """For a fault: channels that are kept apart."""

    @property
    def required(self) -> Sequence[Upstream]:
        """The upstreams that it waits for."""
        return [upstream for upstream in self.upstreams if upstream.name not in self.optional]

    @property
    def reach(self) -> frozenset[str]:
        return frozenset().union(*(upstream.reach for upstream in self.required))

    def read(self) -> Process[Reading]:
        """A stage seals a version by publishing it."""
        yield
        versions = in_order(self.chain.fold())
        names = [version.name for version in versions]
        sealed = {version.version: frozenset(names[: number + 1]) for number, version in enumerate(versions)}
        return Reading(sealed, {version.name: version for version in versions})

    def run(self) -> Process[None]:
        """Make every version that is ready, in order, a slot each; before that, restore what lost a parent."""
        for _ in range(TOGETHER):
            plan = yield from self.plan()
            if plan is None:
                return
            yield
            version = self.evaluate(plan)
            yield
            yield from self.decide(plan, version)

    def plan(self) -> Process[Plan | None]:
        """Return the next version to make, if one is ready."""
        while True:
            own = yield from ended(self.chain)
            look = yield from self.look(own, in_order(own))
            oldest = oldest_to_restore(in_order(own), look.retired)
            if oldest is None:
                break
            yield from self.restore(own, oldest, look.upto)
        began = self.chain.store.moment
        readings: dict[str, Reading] = {}
        for upstream in self.upstreams:
            readings[upstream.name] = yield from upstream.read()
        version = next_ready(self, own, readings)
        return None if version is None else self._plan(own, version, readings, began)

    def _plan(self, own: Fold[Version], version: int, readings: Mapping[str, Reading], began: int) -> Plan:
        reached, parents = taken(version, own, readings)
        units = {name: [readings[name].units[unit] for unit in sorted(parents[name])] for name in parents}
        read = {name: to_read(self, name, version, some, own, readings[name]) for name, some in parents.items()}
        return Plan(
            head=own.slot,
            generation=own.generation,
            version=version,
            parents=parents,
            roots=frozenset().union(*(unit.roots for some in units.values() for unit in some)),
            reached=reached,
            inputs=rows_of(self, read, readings),
            state=state_before(self, own),
            began=began,
        )

    def evaluate(self, plan: Plan) -> Version:
        """Evaluate the function once: all channels and the state come from this, and nothing comes out twice in the same way."""
        name = f"{self.name}#{self.chain.store.token()}"
        if plan.state is None:
            rows, file = _together(self.name, name, plan), ""
        else:
            state, rows = _grouped(self.name, name, plan, plan.state)
            file = keep_state(self, name, plan, state)
        marks = keep_channel(self, name, plan, _marked(rows))
        return Version(name, plan.version, plan.parents, plan.roots, plan.reached, rows, marks, file)

    def decide(self, plan: Plan, version: Version) -> Process[None]:
        """Publish a version, unless another one was decided since, or a parent was retired."""
        considered = self.chain.store.moment
        own = yield from ended(self.chain)
        if not still_holds(plan, own):
            return
        look = yield from look_to_decide(self, own, version)
        if look.retired:
            return  # the next plan restores
        yield
        decision = Decision(
            Action.COMMIT, plan.generation, (version,), plan.retires, look.upto, own.floor, considered, plan.began
        )
        if self.chain.take(own.slot + 1, decision):
            yield
            self.chain.end(own.slot + 1)

    def look(self, own: Fold[Version], versions: Sequence[Version]) -> Process[Look]:
        """Look up the parents of versions in the slots since the last look that the stage's own chain has on record."""
        retired: set[str] = set()
        upto = {}
        for upstream in self.upstreams:
            yield
            since, fold = own.looked.get(upstream.name, 0), upstream.chain.fold()
            parents = frozenset().union(*(version.parents[upstream.name] for version in versions))
            retired |= retired_of(parents, upstream.chain, fold, since)
            upto[upstream.name] = looked_upto(upstream.chain)
        return Look(frozenset(retired), upto)

    def restore(self, own: Fold[Version], version: int, looked: Mapping[str, int]) -> Process[None]:
        """Take back a version and all after it.

        :raises StoppedError: the state before that was given up.
        """
        retires = to_take_back(self, own, version)
        yield
        decision = Decision[Version](Action.REWIND, own.generation + 1, (), retires, looked, own.floor)
        if self.chain.take(own.slot + 1, decision):
            yield
            self.chain.end(own.slot + 1)

    def rewind(self, version: int) -> Process[None]:
        """Restore to before a version, because a person asks for it."""
        own = yield from ended(self.chain)
        if any(v.version >= version for v in own.live.values()):
            yield from self.restore(own, version, own.looked)

    def replace(self, number: int) -> Process[None]:
        """Make one of the live versions again, from the same parents."""
        own = yield from ended(self.chain)
        versions = in_order(own)
        if self.stateful or not versions:
            return
        old = versions[number % len(versions)]
        readings: dict[str, Reading] = {}
        for upstream in self.upstreams:
            readings[upstream.name] = yield from upstream.read()
        if not all(names <= readings[upstream].units.keys() for upstream, names in old.parents.items()):
            return  # a run restores
        read = {name: to_read(self, name, old.version, some, own, readings[name]) for name, some in old.parents.items()}
        # Without what earlier versions read and was taken back since: `decide` looks for it.
        inputs = rows_of(self, read, readings)
        retires = frozenset({old.name})
        plan = Plan(own.slot, own.generation, old.version, old.parents, old.roots, old.reached, inputs, None, retires)
        version = self.evaluate(plan)
        yield
        yield from self.decide(plan, version)

    def clean(self, keep: int) -> Process[None]:
        """Give up all state but that of the newest versions."""
        own = yield from ended(self.chain)
        versions = in_order(own)
        if not self.stateful or len(versions) <= keep:
            return
        floor = floor_of(own, keep)
        if not (yield from give_up_state(self, own, floor)):
            return
        gone = [v.state for v in versions if own.slots[v.name] < floor]
        for file in gone:
            yield
            self.states.pop(file, None)


def in_order(own: Fold[Version]) -> Sequence[Version]:
    """Return the live versions of a stage, the oldest first."""
    return sorted(own.live.values(), key=lambda version: version.version)


def consumed(upstream: str, own: Fold[Version]) -> frozenset[str]:
    """Return what live versions consumed of an upstream."""
    return frozenset().union(*(version.parents[upstream] for version in own.live.values()))


def reached_before(upstream: str, own: Fold[Version]) -> int:
    """Return the version of an upstream up to which the live versions have what that published; 0 if there is none."""
    return max((version.reached[upstream] for version in own.live.values()), default=0)


def to_reach(version: int, upstream: str, own: Fold[Version], reading: Reading) -> int:
    """Return the newest version up to a stage's version that an upstream has sealed; but none before what was reached: a seal may
    be void by now, though nothing of this upstream was taken back.
    """
    return max([reached_before(upstream, own), *(one for one in reading.sealed if one <= version)])


def taken(
    version: int, own: Fold[Version], readings: Mapping[str, Reading]
) -> tuple[Mapping[str, int], Mapping[str, frozenset[str]]]:
    """Return how far a version goes in each upstream, and its parents: what live versions haven't consumed."""
    reached = {name: to_reach(version, name, own, reading) for name, reading in readings.items()}
    return reached, {
        name: readings[name].sealed[upto] - consumed(name, own)
        if upto > reached_before(name, own)
        else frozenset[str]()
        for name, upto in reached.items()
    }


def to_read(
    stage: Stage, upstream: str, version: int, parents: frozenset[str], own: Fold[Version], reading: Reading
) -> frozenset[str]:
    """Return the units of an upstream that a version reads: its parents; or everything up to it, which live versions consumed."""
    if upstream not in stage.whole:
        return parents
    return parents.union(*(one.parents[upstream] for one in own.live.values() if one.version < version))


def rows_of(
    stage: Stage, read: Mapping[str, frozenset[str]], readings: Mapping[str, Reading]
) -> Mapping[str, Mapping[str, Row]]:
    """Return the rows of some units, by upstream and channel. One that was taken back since the look gives none."""
    return {
        input_name(name, channel): rows_of_channel(channel, some, readings[name])
        for name, some in read.items()
        for channel in stage.channels.get(name, ("",))
    }


def rows_of_channel(channel: str, units: frozenset[str], reading: Reading) -> Mapping[str, Row]:
    """Return the rows of a channel of some units."""
    found: dict[str, Row] = {}
    for name in sorted(units & reading.units.keys()):
        unit: Any = reading.units[name]
        found |= unit.marks if channel else unit.rows
    return found


def input_name(upstream: str, channel: str) -> str:
    """Return the name of what a stage reads."""
    return f"{upstream}.{channel}" if channel else upstream


def to_take_back(stage: Stage, own: Fold[Version], version: int) -> frozenset[str]:
    """Return a version and all after it.

    :raises StoppedError: the state before that was given up.
    """
    retires = frozenset(v.name for v in own.live.values() if v.version >= version)
    before = [v for v in in_order(own) if v.name not in retires]
    if stage.stateful and before and own.slots[before[-1].name] < own.floor:
        raise state_given_up(stage, version)
    return retires


def state_given_up(stage: Stage, version: int) -> StoppedError:
    """Return the error of a stage that can't be restored."""
    return StoppedError(f"{stage.name} can't be restored to before version {version}: its state is given up")


def oldest_to_restore(versions: Sequence[Version], retired: frozenset[str]) -> int | None:
    """Return the oldest version with a retired parent."""
    return next((version.version for version in versions if retired & _parents(version)), None)


def _parents(version: Version) -> frozenset[str]:
    return frozenset().union(*version.parents.values())


def retired_of(parents: frozenset[str], chain: Chain[Any], fold: Fold[Any], since: int) -> frozenset[str]:
    """Return the parents that an upstream retired after a slot. Where it was trimmed since, its live units decide."""
    if since < chain.trimmed:
        return parents - fold.live.keys()
    return parents & chain.retired_since(since, fold.slot)


def looked_upto(chain: Chain[Any]) -> int:
    """Return how far a look at an upstream goes: never past a slot without an outcome."""
    return chain.fold().slot


def next_ready(stage: Stage, own: Fold[Version], readings: Mapping[str, Reading]) -> int | None:
    """Return the oldest version that every required upstream has sealed, on the same roots: the barrier."""
    newest = max((version.version for version in own.live.values()), default=0)
    sealed = [readings[upstream.name].sealed.keys() for upstream in stage.required]
    versions = sorted(frozenset.intersection(*map(frozenset, sealed)))
    later = (v for v in versions if v > newest and close_enough(stage, v, own, readings))
    return next((v for v in later if same_roots(stage, v, readings)), None)


def close_enough(stage: Stage, version: int, own: Fold[Version], readings: Mapping[str, Reading]) -> bool:
    """Return whether each optional upstream, as far as a version would have it, is no further behind than it may be."""
    if stage.at_most is None:
        return True
    reached = [to_reach(version, name, own, readings[name]) for name in stage.optional]
    return all(one > 0 and version - one <= stage.at_most for one in reached)


def same_roots(stage: Stage, version: int, readings: Mapping[str, Reading]) -> bool:
    """Return whether the content of the required upstreams up to a version was made from the same units of sources."""
    for one, other in combinations(stage.required, 2):
        common = one.reach & other.reach
        if readings[one.name].roots(version, common) != readings[other.name].roots(version, common):
            return False
    return True


def still_holds(plan: Plan, own: Fold[Version]) -> bool:
    """Return whether nothing was decided since a plan was made."""
    return own.slot == plan.head


def look_to_decide(stage: Stage, own: Fold[Version], version: Version) -> Process[Look]:
    """Look up the parents of a version that is about to be published, and of all live ones."""
    return stage.look(own, [*own.live.values(), version])


def state_before(stage: Stage, own: Fold[Version]) -> State | None:
    """Return the state of the newest version; empty for the first, and none for a stage without state.

    :raises KeyError: it is gone.
    """
    versions = in_order(own)
    if not stage.stateful:
        return None
    return stage.states[versions[-1].state] if versions else State("")


def keep_state(stage: Stage, name: str, plan: Plan, state: State) -> str:
    """Write the state of a version to a file that only this evaluation has; return its name."""
    stage.states[name] = stage.written[name] = state
    return name


def keep_channel(stage: Stage, name: str, plan: Plan, marks: Mapping[str, Row]) -> Mapping[str, Row]:
    """Return the second channel of a version, which is in the version's own record."""
    return marks


def floor_of(own: Fold[Version], keep: int) -> int:
    """Return the slot of the oldest version whose state is kept, if that of any before it isn't; it never falls."""
    versions = in_order(own)
    return max(own.floor, own.slots[versions[-keep].name]) if len(versions) > keep else own.floor


def give_up_state(stage: Stage, own: Fold[Version], floor: int) -> Process[bool]:
    """Decide that the state of slots below a floor is given up, before any of it is removed; return whether it is decided."""
    if floor > own.floor:
        yield
        if not stage.chain.take(own.slot + 1, Decision(Action.FLOOR, own.generation, looked=own.looked, floor=floor)):
            return False
        yield
        stage.chain.end(own.slot + 1)
    return True


def _together(stage: str, name: str, plan: Plan) -> Mapping[str, Row]:
    """A function without state: a row for each key, from the rows that any upstream has for it."""
    keys = sorted({key for rows in plan.inputs.values() for key in rows})
    found = {key: [rows[key] for rows in plan.inputs.values() if key in rows] for key in keys}
    return {key: _made(f"{stage}({'+'.join(row.value for row in rows)})", rows, name) for key, rows in found.items()}


def _grouped(stage: str, name: str, plan: Plan, before: State) -> tuple[State, Mapping[str, Row]]:
    """A function with state: a row for each group that the version touches, with everything that the group ever had."""
    groups: dict[str, list[Row]] = {}
    for rows in plan.inputs.values():
        for key, row in rows.items():
            groups.setdefault("even" if int(key[-1], 36) % 2 == 0 else "odd", []).append(row)
    values = {**before.values}
    for group, found in groups.items():
        values[group] = values.get(group, frozenset()) | {row.value for row in found}
    made = before.made.union({name}, *(row.made for some in groups.values() for row in some))
    out = {
        f"{stage}:{plan.version}:{group}": _made(f"{stage}[{digest(values[group])}]", found, name, before.made)
        for group, found in groups.items()
    }
    return State(name, values, made), out


def _made(value: str, rows: Sequence[Row], name: str, before: frozenset[str] = frozenset()) -> Row:
    origins: frozenset[tuple[str, str]] = frozenset().union(*(row.origins for row in rows))
    return Row(value, origins, before.union({name}, *(row.made for row in rows)))


def _marked(rows: Mapping[str, Row]) -> Mapping[str, Row]:
    return {key: replace(row, value=f"mark({row.value})") for key, row in rows.items()}


def digest(values: Iterable[str]) -> str:
    """Return a short digest of values in any order."""
    return hashlib.sha256("\n".join(sorted(values)).encode()).hexdigest()[:12]
