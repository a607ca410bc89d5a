"""The content of an upstream for the stages that read it: its sealed versions, and the slots that belong to each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice

from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.seals import Seal, content, is_valid
from airflow_gobblin.model.channels import ROWS
from airflow_gobblin.model.checkpoint import Checkpoint, ConsumedSlot, Reads, Slots
from airflow_gobblin.model.state import DatasetState

__all__ = [
    "Available",
    "AvailableSlot",
    "checkpoint",
    "of_dataset",
    "of_stage",
    "reached",
    "reaches",
    "slots_to_read",
    "united",
]


@dataclass(frozen=True)
class AvailableSlot:
    """A slot with live units.

    :param place: it belongs to the versions whose boundary is here or above.
    :param roots: the slots of sources that it was made from; in a source, the slot itself.
    """

    consumed: ConsumedSlot
    place: int
    roots: Slots


@dataclass(frozen=True)
class Available:
    """The sealed versions and the slots of an upstream.

    :param sealed: the versions that it sealed itself, each with its boundary.
    :param slots: its slots with live units that belong to these versions, or to one before them.
    :param more: whether it may have sealed later versions, which weren't read.
    """

    sealed: Mapping[datetime, int]
    slots: tuple[AvailableSlot, ...]
    more: bool = False

    def knows(self, version: datetime) -> bool:
        """Return whether enough was read to know if it has sealed a version."""
        return not self.more or any(one >= version for one in self.sealed)

    def up_to(self, version: datetime) -> tuple[AvailableSlot, ...]:
        """Return the slots of a sealed version and of those before it."""
        boundary = self.sealed[version]
        return tuple(slot for slot in self.slots if slot.place <= boundary)


def of_dataset(
    dataset: str,
    history: History,
    seals: Iterable[Seal],
    states: Mapping[str, DatasetState],
    most: int | None = None,
) -> Available:
    """Return what a dataset of a source has. A version ends at the head that its seal names, and has what replaced its units.

    :param dataset: its id.
    :param seals: the seals of its job, the oldest first, up to one whose number was read before any state. The versions of those
        that aren't void rise.
    :param states: the states of all datasets of the job, by URN: a seal is void for each that lost something.
    :param most: the most seals that are read.
    """
    rest = iter(seals)
    found = islice(rest, most)
    valid = (seal for seal in found if history.urn in seal.datasets and is_valid(seal, states))
    sealed = {seal.upto: seal.datasets[history.urn].head for seal in valid}
    state = history.state
    slots = (
        AvailableSlot(slot, state.origin(slot.slot), {dataset: (slot,)})
        for slot in _with_units(history, content(max(sealed.values(), default=0), state))
    )
    return Available(sealed, tuple(slots), more=next(rest, None) is not None)


def of_stage(history: History) -> Available:
    """Return what a stage has. It seals a version by publishing it."""
    checkpoints = history.state.checkpoints
    places = {slot: place for place, slot in enumerate(history.state.versions, 1)}
    sealed = {checkpoints[slot].version: place for slot, place in places.items()}
    slots = (
        AvailableSlot(slot, places[slot.slot], checkpoints[slot.slot].roots) for slot in _with_units(history, places)
    )
    return Available(sealed, tuple(slots))


def reached(upstream: str, state: DatasetState) -> datetime | None:
    """Return the version of an upstream up to which a stage's versions have what it published; `None` if there is none.

    :param state: the stage's own.
    """
    if not state.versions:
        return None
    newest = state.checkpoints[state.versions[-1]]
    return newest.late.get(upstream, newest.version)


def reaches(upstream: str, version: datetime, available: Available, state: DatasetState) -> datetime | None:
    """Return the version of an upstream up to which a stage's next version has what it published: the newest one up to `version`.

    It never falls: a seal may be void by now, though nothing of this upstream was taken back.

    :param available: what the upstream has.
    :param state: the stage's own.
    """
    before = reached(upstream, state)
    later = (one for one in available.sealed if one <= version and (before is None or one > before))
    return max(later, default=before)


def checkpoint(
    version: datetime, available: Mapping[str, Available], state: DatasetState, reads: Mapping[str, Reads]
) -> Checkpoint:
    """Return what a stage makes a version from: for each upstream, what came after the slots that its live versions consumed.

    :param available: what each upstream has, by its id. One that hasn't sealed the version is late: it gives what belongs to the
        versions that it has sealed before.
    :param state: the stage's own.
    :param reads: what the stage reads of each upstream.
    """
    upto = {upstream: reaches(upstream, version, has, state) for upstream, has in available.items()}
    taken = {upstream: _unconsumed(upstream, upto[upstream], has, state) for upstream, has in available.items()}
    return Checkpoint(
        version=version,
        parents={upstream: tuple(sorted(slot.consumed for slot in slots)) for upstream, slots in taken.items()},
        roots=united(slot.roots for slots in taken.values() for slot in slots),
        late={upstream: upto[upstream] for upstream in sorted(upto) if upto[upstream] != version},
        reads=reads,
    )


def slots_to_read(upstream: str, made: Checkpoint, state: DatasetState, *, whole: bool) -> frozenset[int]:
    """Return the slots of an upstream that a version reads.

    These are the ones that it consumes or, for all up to it, also those that the live versions before it consumed. If any of them
    is retired, the stage goes back to before the version that consumed it, and so to before this one.

    :param state: the stage's own.
    """
    before = (one for one in state.checkpoints.values() if whole and one.version < made.version)
    return frozenset(slot.slot for one in (*before, made) for slot in one.parents.get(upstream, ()))


def united(slots: Iterable[Slots]) -> Slots:
    """Return all slots together, by dataset, in order and each once."""
    found: dict[str, set[ConsumedSlot]] = {}
    for dataset, some in chain.from_iterable(one.items() for one in slots):
        found.setdefault(dataset, set()).update(some)
    return {dataset: tuple(sorted(found[dataset])) for dataset in sorted(found)}


def _unconsumed(
    upstream: str, upto: datetime | None, available: Available, state: DatasetState
) -> tuple[AvailableSlot, ...]:
    if upto is None or upto == reached(upstream, state):
        return ()
    before = {slot.slot for one in state.checkpoints.values() for slot in one.parents.get(upstream, ())}
    return tuple(slot for slot in available.up_to(upto) if slot.consumed.slot not in before)


def _with_units(history: History, slots: Iterable[int]) -> tuple[ConsumedSlot, ...]:
    """Return slots in their order, each with its token and the number of its live units."""
    units = Counter(ref.slot for ref in history.state.units_of(ROWS))
    return tuple(ConsumedSlot(slot, history.token(slot), units[slot]) for slot in sorted(slots))
