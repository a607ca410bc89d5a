"""Seals: a job's word that everything up to a version is in, for the stages that read what it publishes.

    <journal>/_seals/<ingestion>/<number>                 the seals, from the first on: a chain, each naming the one before

A version is the end of a run's data interval. A seal names the newest slot of each dataset, its *head*: everything up to the
version is what the slots up to there published, and what replaced that later. Nothing marks a seal as void: a rewind or a drop
spoils all heads from the oldest slot onward that it takes something from (`DatasetState.spoiled`), whenever a seal with one of
them was written.

For a dataset that lost nothing, a void seal's boundary stays: a stage that reads only this dataset has consumed up to there. A
version that is sealed again ends at the same slot of it (`head_of`). `tests/protocol/pipelines` has the model of all this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_gobblin.errors import RecordError
from airflow_gobblin.journal.journal import Journal, slot_name
from airflow_gobblin.model import wire
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.stores.base import put_or_read

__all__ = ["Seal", "SealedDataset", "Seals", "content", "head_of", "is_valid", "newest_up_to", "up_to"]

_SEALS = "_seals"


@dataclass(frozen=True)
class SealedDataset:
    """A dataset as it was sealed.

    :param head: its newest slot that had ended; 0 if there was none.
    :param generation: its generation then.
    :param waits: why rows below the version may come later: it was held or paused; empty if all of them are in.
    """

    head: int
    generation: int
    waits: str = ""

    def intact(self, state: DatasetState) -> bool:
        """Return whether nothing of what it sealed was taken back since."""
        return self.generation == state.generation or state.intact(self.head)


@record("seal")
@dataclass(frozen=True)
class Seal:
    """A job's word that everything up to a version is in.

    :param number: its number in the chain, from 1 on.
    :param upto: its version: the end of the data interval.
    :param highest: the highest version that this seal or one before it has: those above its own are void.
    :param datasets: the job's datasets, by URN.
    :param previous: the digest of the seal before; empty for the first.
    :param run: the DAG run that sealed it, for people to read.
    """

    number: int
    upto: datetime
    highest: datetime
    datasets: Mapping[str, SealedDataset]
    previous: str
    at: datetime
    run: str = ""


class Seals:
    """The seals of a journal's ingestion."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def newest(self) -> int:
        """Return the number of the newest seal; 0 if there is none.

        Read it before the datasets whose heads it names: they then have all that it names.
        """
        names = (key.rpartition("/")[2] for key in self._journal.store.list(self._key("")))
        number = max((int(name) for name in names if name.isdecimal()), default=0)
        while self._journal.store.get(self._key(slot_name(number + 1))) is not None:  # a listing may lag behind
            number += 1
        return number

    def digest(self, number: int) -> str:
        """Return the digest of a seal, by which the next one names it; empty for none."""
        return wire.digest(self._read(number)) if number else ""

    def before(self, number: int) -> Iterator[Seal]:
        """Yield the seals up to a number, the newest first. Only those that are taken are read.

        :raises RecordError: a seal is lost, torn or newer, or isn't the one that the next one names.
        """
        named = None
        for place in range(number, 0, -1):
            seal, digest = self._load(place)
            if named not in (None, digest):
                raise self._broken(place, "it isn't the one that the next seal names")
            yield seal
            named = seal.previous

    def after(self, version: datetime, number: int) -> Iterator[Seal]:
        """Yield the seals from the first one above a version up to a number, the oldest first. Only those taken are read.

        :raises RecordError: a seal is lost, torn or newer, or isn't the one that the next one names.
        """
        first = bisect_right(range(1, number + 1), version, key=lambda place: self._load(place)[0].highest) + 1
        named = None
        for place in range(first, number + 1):
            seal, digest = self._load(place)
            if named not in (None, seal.previous):
                raise self._broken(place - 1, "it isn't the one that the next seal names")
            yield seal
            named = digest

    def put(self, seal: Seal) -> bool:
        """Put a seal after the newest one that was read; return whether it is the one there, and not another process's."""
        data = wire.dumps(seal)
        stored, _ = put_or_read(self._journal.store, self._key(slot_name(seal.number)), data)
        return stored == data

    def _key(self, name: str) -> str:
        return f"{_SEALS}/{self._journal.ingestion}/{name}"

    def _load(self, number: int) -> tuple[Seal, str]:
        """Return a seal and its digest."""
        data = self._read(number)
        seal = wire.loads(data, Seal, self._key(slot_name(number)))
        if seal.number != number:
            raise self._broken(number, "it isn't the one that the next seal names")
        return seal, wire.digest(data)

    def _read(self, number: int) -> bytes:
        data = self._journal.store.get(self._key(slot_name(number)))
        if data is None:
            raise self._broken(number, "it is lost")
        return data

    def _broken(self, number: int, cause: str) -> RecordError:
        return RecordError(
            operation="read",
            subject=f"seal {self._key(slot_name(number))!r} in {self._journal.store.name}",
            cause=cause,
            hint="A record was lost or changed. Restore the journal from a copy; nothing is sealed until then.",
        )


def is_valid(seal: Seal, states: Mapping[str, DatasetState]) -> bool:
    """Return whether a seal isn't void: nothing of any of its datasets was taken back.

    :param states: the states of its datasets, by URN, read after it; one without records lost nothing.
    """
    return all(sealed.intact(states.get(urn, DatasetState(urn))) for urn, sealed in seal.datasets.items())


def up_to(newest_first: Iterable[Seal], states: Mapping[str, DatasetState]) -> tuple[Seal | None, tuple[Seal, ...]]:
    """Return the newest valid seal, and the void ones above its version, whose boundaries may still count.

    :param newest_first: the seals; no more of them are taken than needed.
    """
    last: Seal | None = None
    above: list[Seal] = []
    for seal in newest_first:
        if last is None and is_valid(seal, states):
            last = seal
        elif last is None or seal.upto > last.upto:
            above.append(seal)
        if last is not None and seal.highest <= last.upto:
            break
    return last, tuple(seal for seal in above if last is None or seal.upto > last.upto)


def newest_up_to(version: datetime, newest_first: Iterable[Seal], states: Mapping[str, DatasetState]) -> Seal | None:
    """Return the newest valid seal up to a version."""
    return next((seal for seal in newest_first if seal.upto <= version and is_valid(seal, states)), None)


def head_of(
    urn: str, version: datetime, newest: SealedDataset, above: Iterable[Seal], state: DatasetState
) -> SealedDataset:
    """Return a dataset as a new seal has it: up to its newest slot, or to where a void seal drew the line, if it lost nothing.

    :param above: the void seals above the newest valid one.
    """
    drawn = [
        seal.datasets[urn]
        for seal in above
        if seal.upto >= version and urn in seal.datasets and seal.datasets[urn].intact(state)
    ]
    lowest = min(drawn, key=lambda sealed: sealed.head, default=newest)
    return lowest if lowest.head < newest.head else newest


def content(head: int, state: DatasetState) -> frozenset[int]:
    """Return the slots with live units that belong to the versions up to a head."""
    return frozenset(ref.slot for ref in state.live if state.origin(ref.slot) <= head)
