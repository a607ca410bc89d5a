"""The library's rules in the place of the model's, so that the same histories judge them, and catch the same faults in them.

The model's values are put into the library's words, without anything of its own: a fold is what the library folds, a snapshot is
a record that was written and read, a unit is one of its slot. Only the store, the processes and the functions are the model's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from airflow_gobblin.errors import StateGivenUpError
from airflow_gobblin.journal import history as library
from airflow_gobblin.journal import records, seals
from airflow_gobblin.journal.history import History, Slot, Snapshot, TrimmedSlot
from airflow_gobblin.journal.seals import SealedDataset
from airflow_gobblin.model import wire
from airflow_gobblin.model.channels import ROWS, unit_of
from airflow_gobblin.model.checkpoint import Checkpoint, ConsumedSlot, Slots
from airflow_gobblin.model.coverage import Coverage
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.model.work import UnitState, UnitSummary
from airflow_gobblin.stages import barrier, lineage, restore, versions
from airflow_gobblin.stages.barrier import Upstream
from airflow_gobblin.stages.versions import Available, AvailableSlot
from tests.protocol.mutants import Patch
from tests.protocol.pipelines import chains, histories, mutants, sources, stages
from tests.protocol.pipelines.chains import Chain, Decision, Fold, Process, Unit
from tests.protocol.pipelines.histories import BrokenError, Tally, play
from tests.protocol.pipelines.mutants import MUTANTS, first_broken, patched
from tests.protocol.pipelines.sources import Seal
from tests.protocol.pipelines.stages import DatasetOf, Reading, Stage, Version

AT = datetime(2026, 1, 1, tzinfo=UTC)
MARKS = "marks"


def at(version: int) -> datetime:
    return datetime.fromtimestamp(version, UTC)


def _at(version: int) -> datetime | None:
    return at(version) if version else None


def number(version: datetime | None) -> int | None:
    return None if version is None else int(version.timestamp())


def dataset_of(unit: str) -> str:
    return unit.split("#", maxsplit=1)[0]


class Translation:
    """A history's units, as slots. A unit has one name in the model, and belongs to the slot that published it."""

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._decisions: dict[int, tuple[Decision[Any], records.Decision]] = {}
        """By the identity of the model's."""

    def consumed(self, units: Iterable[str]) -> tuple[ConsumedSlot, ...]:
        found = Counter(self.slots[unit] for unit in units)
        return tuple(ConsumedSlot(slot, f"token {slot}", count) for slot, count in sorted(found.items()))

    def by_dataset(self, roots: Iterable[str]) -> Slots:
        found: dict[str, set[str]] = {}
        for root in roots:
            found.setdefault(dataset_of(root), set()).add(root)
        return {dataset: self.consumed(found[dataset]) for dataset in sorted(found)}

    def checkpoint(self, version: Version) -> Checkpoint:
        if version.name not in self._checkpoints:
            self._checkpoints[version.name] = Checkpoint(
                at(version.version),
                {upstream: self.consumed(parents) for upstream, parents in version.parents.items()},
                self.by_dataset(version.roots),
                {name: _at(upto) for name, upto in version.reached.items() if upto != version.version},
            )
        return self._checkpoints[version.name]

    # Chains

    def snapshot(self, fold: Fold[Any], slots: tuple[TrimmedSlot, ...] = (), urn: str = "d") -> Snapshot:
        origins = {fold.slots[name]: origin for name, origin in fold.origins.items()}
        return Snapshot(
            slot=fold.slot,
            urn=urn,
            digest="",
            at=AT,
            coverage=Coverage(),
            generation=fold.generation,
            schema=None,
            previous_units=(),
            slots=slots,
            unit_slots=tuple(fold.slots[unit.name] for unit in fold.live.values() for _ in channels(unit)),
            units=tuple(_summary(name) for unit in fold.live.values() for name in channels(unit)),
            origins=tuple((slot, origin) for slot, origin in origins.items() if slot != origin),
            spoiled=fold.spoiled,
            checkpoints=tuple(
                (fold.slots[unit.name], self.checkpoint(unit))
                for unit in fold.live.values()
                if isinstance(unit, Version)
            ),
            looked=fold.looked,
            floor=fold.floor,
        )

    def state(self, fold: Fold[Any], urn: str = "d") -> DatasetState:
        return library.fold(urn, (), (), self.snapshot(fold, urn=urn), ()).state

    def history(self, chain: Chain[Any], fold: Fold[Any]) -> History:
        """A chain whose slots are trimmed as the model's are, with a state that the model may have spoilt."""
        trimmed = tuple(
            _trimmed(self.slot(chain.ledger[slot], slot, ended=True)) for slot in range(1, chain.trimmed + 1)
        )
        slots = tuple(
            self.slot(chain.ledger[slot], slot, ended=slot in chain.ended_at)
            for slot in range(chain.trimmed + 1, chain.head + 1)
        )
        snapshot = self.snapshot(fold, trimmed, chain.name)
        return History(
            chain.name, slots, snapshot=snapshot, state=replace(self.state(fold, chain.name), head=chain.head)
        )

    def slot(self, decision: Decision[Any], slot: int, *, ended: bool) -> Slot:
        if id(decision) not in self._decisions:
            self._decisions[id(decision)] = decision, self._decision(decision, slot)
        outcome = records.Outcome(slot, records.OutcomeState.DONE, "", "", AT) if ended else None
        return Slot(self._decisions[id(decision)][1], outcome, "")

    def _decision(self, decision: Decision[Any], slot: int) -> records.Decision:
        version = next((unit for unit in decision.units if isinstance(unit, Version)), None)
        return records.Decision(
            slot=slot,
            action=records.Action(decision.action.value),
            urn="d",
            token=f"token {slot}",
            run_key="",
            generation=decision.generation,
            previous="",
            at=AT,
            holds=Holds.RANGES if version is None else Holds.VERSIONS,
            replaces=tuple(
                UnitRef(self.slots[name], channel)
                for name in sorted(decision.retires)
                for channel in (name, *([unit_of(name, MARKS)] if name in self._checkpoints else []))
            ),
            units=tuple(_summary(name) for unit in decision.units for name in channels(unit)),
            checkpoint=None if version is None else self.checkpoint(version),
            looked=decision.looked,
            floor=decision.floor,
        )

    def folded(self, state: DatasetState, units: Mapping[str, Unit]) -> Fold[Any]:
        """The fold of the library, in the model's words."""
        live = {ref.unit: ref.slot for ref in state.units_of(ROWS)}
        assert all(ref.slot in {*live.values()} for ref in state.units_of(MARKS)), "each channel has its rows"
        return Fold(
            slot=state.head,
            generation=state.generation,
            live={name: units[name] for name in live},
            slots=live,
            origins={name: state.origin(slot) for name, slot in live.items()},
            spoiled=state.spoiled,
            looked=state.looked,
            floor=state.floor,
        )

    def followed(self, before: Fold[Any], slot: int, decision: Decision[Any]) -> Fold[Any]:
        self.slots.update(dict.fromkeys((unit.name for unit in decision.units), slot))
        after = library.fold("d", (self.slot(decision, slot, ended=True),), (), self.snapshot(before), ())
        return self.folded(after.state, {**before.live, **{unit.name: unit for unit in decision.units}})

    def kept(self, fold: Fold[Any]) -> Fold[Any]:
        if not fold.slot:
            return fold
        folded = library.fold("d", (), (), self.snapshot(fold), ())
        data = wire.dumps(library.take_snapshot(folded, fold.slot, AT))
        read = library.fold("d", (), (), wire.loads(data, Snapshot, "snapshot"), ())
        return self.folded(read.state, fold.live)

    # Seals

    def seals(self, made: Sequence[Seal]) -> Sequence[seals.Seal]:
        """The newest first."""
        found = [
            seals.Seal(
                place,
                at(seal.version),
                at(max(one.version for one in made[:place])),
                {name: SealedDataset(head, -1) for name, head in seal.heads.items()},
                "",
                AT,
            )
            for place, seal in enumerate(made, 1)
        ]
        return found[::-1]

    def states(self, folds: Mapping[str, Fold[Any]]) -> Mapping[str, DatasetState]:
        return {name: self.state(fold, name) for name, fold in folds.items()}

    def valid_seals(self, made: Sequence[Seal], folds: Mapping[str, Fold[Any]]) -> Sequence[Seal]:
        states = self.states(folds)
        found = [seals.is_valid(seal, states) for seal in self.seals(made)]
        return [seal for seal, is_valid in zip(made, reversed(found), strict=True) if is_valid]

    def newest_up_to(self, version: int, made: Sequence[Seal], folds: Mapping[str, Fold[Any]]) -> Seal | None:
        found = seals.newest_up_to(at(version), self.seals(made), self.states(folds))
        return None if found is None else made[found.number - 1]

    def head_for(self, version: int, dataset: str, fold: Fold[Any], made: Sequence[Seal]) -> int:
        newest = SealedDataset(fold.slot, fold.generation)
        return seals.head_of(dataset, at(version), newest, self.seals(made), self.state(fold, dataset)).head

    # Stages

    def of_dataset(self, dataset: DatasetOf) -> Process[Reading]:
        yield
        made = tuple(dataset.source.seals)
        folds = yield from dataset.source.folds()
        fold = folds[dataset.name]
        history = self.history(dataset.chain, fold)
        found = versions.of_dataset(dataset.name, history, self.seals(made)[::-1], self.states(folds))
        return self.reading(found, fold)

    def of_stage(self, stage: Stage) -> Process[Reading]:
        yield
        fold = stage.chain.fold()
        return self.reading(versions.of_stage(self.history(stage.chain, fold)), fold)

    def reading(self, has: Available, fold: Fold[Any]) -> Reading:
        by_slot: dict[int, set[str]] = {}
        for name, slot in fold.slots.items():
            by_slot.setdefault(slot, set()).add(name)
        return Reading(
            {
                int(version.timestamp()): frozenset().union(
                    *(by_slot[slot.consumed.slot] for slot in has.up_to(version))
                )
                for version in has.sealed
            },
            fold.live,
        )

    def available(self, reading: Reading) -> Available:
        """The reading of a stage, by whichever rules: a unit belongs to the lowest version that has it."""
        sealed = {version: place for place, version in enumerate(sorted(reading.sealed), 1)}
        places: dict[int, int] = {}
        names: dict[int, set[str]] = {}
        for version, place in sealed.items():
            for name in reading.sealed[version]:
                places.setdefault(self.slots[name], place)
        for name in frozenset().union(*reading.sealed.values()):
            names.setdefault(self.slots[name], set()).add(name)
        slots = (
            AvailableSlot(
                self.consumed(units)[0],
                places[slot],
                self.by_dataset(root for name in units for root in reading.units[name].roots),
            )
            for slot, units in names.items()
        )
        return Available({at(version): place for version, place in sealed.items()}, tuple(slots))

    def everything(self, readings: Mapping[str, Reading]) -> Mapping[str, Available]:
        return {upstream: self.available(reading) for upstream, reading in readings.items()}

    def next_ready(self, stage: Stage, own: Fold[Version], readings: Mapping[str, Reading]) -> int | None:
        bound = None if stage.at_most is None else timedelta(seconds=stage.at_most)
        upstreams = [Upstream(one.name, one.reach, one.name not in stage.optional, bound) for one in stage.upstreams]
        return number(barrier.next_ready(upstreams, self.everything(readings), self.state(own)))

    def taken(
        self, version: int, own: Fold[Version], readings: Mapping[str, Reading]
    ) -> tuple[Mapping[str, int], Mapping[str, frozenset[str]]]:
        made = versions.checkpoint(at(version), self.everything(readings), self.state(own), {})
        parents = {
            name: frozenset(unit for unit in reading.units if self.slots[unit] in {p.slot for p in made.parents[name]})
            for name, reading in readings.items()
        }
        units = [readings[name].units[unit] for name, some in parents.items() for unit in some]
        assert made.roots == self.by_dataset(frozenset().union(*(unit.roots for unit in units)))
        return {name: number(made.late.get(name, made.version)) or 0 for name in readings}, parents

    def to_read(
        self,
        stage: Stage,
        upstream: str,
        version: int,
        parents: frozenset[str],
        own: Fold[Version],
        reading: Reading,
    ) -> frozenset[str]:
        made = Checkpoint(at(version), {upstream: self.consumed(parents)}, {})
        slots = versions.slots_to_read(upstream, made, self.state(own), whole=upstream in stage.whole)
        return frozenset(unit for unit in reading.units if self.slots[unit] in slots)

    def retired_of(self, parents: frozenset[str], chain: Chain[Any], fold: Fold[Any], since: int) -> frozenset[str]:
        gone = {one.slot for one in lineage.retired(self.consumed(parents), self.history(chain, fold), since)}
        return frozenset(parent for parent in parents if self.slots[parent] in gone)

    def looked_upto(self, chain: Chain[Any]) -> int:
        return lineage.looked_up_to(self.history(chain, chain.fold()))

    def oldest_to_restore(self, live: Sequence[Version], retired: frozenset[str]) -> int | None:
        own = DatasetState("", checkpoints={place: self.checkpoint(version) for place, version in enumerate(live, 1)})
        slots = {(dataset_of(unit), self.slots[unit]) for unit in retired}
        gone: dict[str, set[ConsumedSlot]] = {}
        for version in live:
            for upstream, parents in version.parents.items():
                found = (one for one in self.consumed(parents) if (upstream, one.slot) in slots)
                gone.setdefault(upstream, set()).update(found)
        return number(restore.oldest_to_restore(own, gone))

    def floor_of(self, own: Fold[Version], keep: int) -> int:
        return restore.floor_of(self.state(own), keep)

    def to_take_back(self, stage: Stage, own: Fold[Version], version: int) -> frozenset[str]:
        try:
            refs = restore.from_version(self.state(own, stage.name), at(version), stateful=stage.stateful)
        except StateGivenUpError as error:
            raise stages.state_given_up(stage, version) from error
        gone = {channel: {ref.unit for ref in refs if ref.channel == channel} for channel in (ROWS, MARKS)}
        assert gone[MARKS] == {unit_of(name, MARKS) for name in gone[ROWS]}, "a version goes with all its channels"
        return frozenset(gone[ROWS])


def channels(unit: Unit) -> tuple[str, ...]:
    """The units that a unit of the model is: a version has its second channel beside its rows."""
    return (unit.name, unit_of(unit.name, MARKS)) if isinstance(unit, Version) else (unit.name,)


@lru_cache(10_000)
def _summary(name: str) -> UnitSummary:
    return UnitSummary(name, UnitState.SUCCESSFUL, None, None, None, 0, 0, 0, 0, 0, 0, 0.0)


def _trimmed(slot: Slot) -> TrimmedSlot:
    found: TrimmedSlot = library._trimmed(slot)
    return found


def _method(rule: Callable[[Any], Process[Reading]]) -> Callable[[Any], Process[Reading]]:
    """A rule as a function that a class takes for its method: of a bound one it wouldn't."""

    def method(self: Any) -> Process[Reading]:
        return rule(self)

    return method


def patches(rules: Translation) -> Sequence[Patch]:
    """The library's rules in the place of the model's, wherever these are known by name."""
    return (
        Patch(chains, "followed", rules.followed),
        Patch(chains, "kept", rules.kept),
        *(Patch(module, "valid_seals", rules.valid_seals) for module in (sources, stages, histories, mutants)),
        Patch(sources, "head_for", rules.head_for),
        Patch(sources, "newest_up_to", rules.newest_up_to),
        Patch(DatasetOf, "read", _method(rules.of_dataset)),
        Patch(Stage, "read", _method(rules.of_stage)),
        *(
            Patch(stages, name, getattr(rules, name))
            for name in (
                "next_ready",
                "taken",
                "to_read",
                "retired_of",
                "looked_upto",
                "oldest_to_restore",
                "to_take_back",
                "floor_of",
            )
        ),
    )


def library_rules() -> AbstractContextManager[None]:
    """Put the library's rules in the place of the model's for a while."""
    return patched(patches(Translation()))


def no_roots() -> Sequence[Patch]:
    """The branches of a diamond are taken as they are."""
    return (Patch(barrier, "same_roots", lambda version, upstreams, available: True),)


def seals_that_stay_valid_for_ever() -> Sequence[Patch]:
    """A rewind voids no seal."""
    return (Patch(SealedDataset, "intact", lambda self, state: True),)


def late_without_bound() -> Sequence[Patch]:
    """An optional upstream may be behind as far as it likes."""
    return (Patch(barrier, "_close_enough", lambda upstream, version, available, state: True),)


def _reaches(rule: Callable[[str, datetime, Available, DatasetState], datetime | None]) -> Sequence[Patch]:
    return tuple(Patch(module, "reaches", rule) for module in (versions, barrier))


def optional_only_by_its_very_version() -> Sequence[Patch]:
    """An optional upstream that hasn't sealed a version itself gives it nothing."""

    def rule(upstream: str, version: datetime, available: Available, state: DatasetState) -> datetime | None:
        return version if version in available.sealed else versions.reached(upstream, state)

    return _reaches(rule)


def optional_since_the_newest_version() -> Sequence[Patch]:
    """Of an optional upstream only the versions after the stage's newest are looked at."""
    reaches = versions.reaches

    def rule(upstream: str, version: datetime, available: Available, state: DatasetState) -> datetime | None:
        newest = max((one.version for one in state.checkpoints.values()), default=AT.min.replace(tzinfo=UTC))
        later = {one: place for one, place in available.sealed.items() if one > newest}
        return reaches(upstream, version, replace(available, sealed=later), state)

    return _reaches(rule)


def optional_that_falls_back() -> Sequence[Patch]:
    """How far an optional upstream was taken is forgotten where its seal is void."""

    def rule(upstream: str, version: datetime, available: Available, state: DatasetState) -> datetime | None:
        return max((one for one in available.sealed if one <= version), default=None)

    return _reaches(rule)


def behind_by_what_came_later() -> Sequence[Patch]:
    """How far an optional upstream is behind is measured by the newest version that it has, also one that comes later."""
    close_enough = barrier._close_enough

    def rule(upstream: Upstream, version: datetime, available: Available, state: DatasetState) -> bool:
        newest = max(available.sealed, default=version)
        return close_enough(upstream, max(version, newest), available, state)

    return (Patch(barrier, "_close_enough", rule),)


LIBRARY_MUTANTS: Mapping[str, Callable[[], Sequence[Patch]]] = {
    **MUTANTS,
    **{
        mutant.__name__: mutant
        for mutant in (
            late_without_bound,
            no_roots,
            seals_that_stay_valid_for_ever,
            optional_only_by_its_very_version,
            optional_since_the_newest_version,
            optional_that_falls_back,
            behind_by_what_came_later,
        )
    },
}
"""The faults, where the library's rules are in place: those of a rule that it has within another one are put in there."""


def play_both(seeds: Sequence[int]) -> Tally:
    """Play some histories by the library's rules, and compare what happens with the model's."""
    tally = Tally()
    for seed in seeds:
        expected = play(seed)
        tally.add(Tally(1, expected.versions, expected.restores, expected.crashes))
        try:
            with library_rules():
                happened = play(seed)
        except BrokenError as error:
            tally.broken.append(str(error))
        else:
            if happened.log != expected.log:
                tally.broken.append(f"history {seed} goes otherwise by the library's rules")
    return tally


def first_broken_in_both(name: str, seeds: Sequence[int]) -> tuple[int, str, str] | None:
    """Return the first history that notices a fault in the model, and what it breaks there, and in the library."""
    found = first_broken(name, seeds)
    if found is None:
        return None
    try:
        with library_rules(), patched(LIBRARY_MUTANTS[name]()):
            play(found[0])
    except BrokenError as error:
        return *found, error.why
    return None
