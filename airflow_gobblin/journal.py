"""The journal: the append-only, write-once record of a dataset. It is both commit step store and state store.

A dataset's records are a chain of slots, each with one decision and one outcome::

    <ingestion>/<dataset>/d/<slot>      decision: what is bound to happen
    <ingestion>/<dataset>/o/<slot>      outcome: DONE or ABANDONED. Writing DONE is what publishes, and hands over the watermark
    <ingestion>/<dataset>/n/<slot>/<i>  notes: an attempt failed, quarantined, released, announced, cleaned, …
    <ingestion>/<dataset>/c/<digest>    shards of steps, by content, put before the decision that names them

Everything else is derived: the state of a dataset is the fold of its chain. A decision names the digest of the slot before it,
so a chain that lost or changed a record is found out. The rules by which decisions are made and carried out are in `commit.py`.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice, pairwise
from typing import Any, TypeVar

from airflow_gobblin import wire
from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.errors import GobblinError, RecordError
from airflow_gobblin.naming import check_ingestion_name, dataset_key
from airflow_gobblin.reading import PublishedDataset, PublishedFile
from airflow_gobblin.state import DatasetState, UnitRef
from airflow_gobblin.steps import MoveStep, Step
from airflow_gobblin.stores.base import Store, settle
from airflow_gobblin.wire import record
from airflow_gobblin.work import UnitState, UnitSummary

STEPS_PER_SHARD = 1000
_ID = "_journal"
"""The record that makes a store a journal: a random id, which claims name."""
_RECORDS_KEPT = 10_000
_TRIES = 5
_PAUSE = 0.05

R = TypeVar("R")


class Action(StrEnum):
    """What a decision does. COMMIT, REWIND, IMPORT and DROP need an outcome; the others are finished by their decision."""

    COMMIT = "commit"
    NOOP = "noop"
    """A commit without files: its ranges hold no rows."""
    ABORT = "abort"
    """Its token can win no slot any more."""
    REWIND = "rewind"
    SET = "set"
    IMPORT = "import"
    DROP = "drop"

    @property
    def needs_outcome(self) -> bool:
        """Whether the slot is unfinished until an outcome stands."""
        return self in (Action.COMMIT, Action.REWIND, Action.IMPORT, Action.DROP)


class OutcomeState(StrEnum):
    """How a slot ended."""

    DONE = "done"
    ABANDONED = "abandoned"


@record("decision")
@dataclass(frozen=True)
class Decision:
    """What a slot is bound to.

    :param generation: the dataset's generation once the slot is done.
    :param previous: the digest of the slot before, its outcome included; empty for the first.
    :param ranges: the ranges that it covers; :param removed: the ranges that it uncovers again.
    :param coverage: the whole new coverage (SET, IMPORT, DROP), in place of those two.
    :param planned: the range that was asked for; the first one gives the dataset its origin.
    :param replaces: the units that it retires.
    :param units: a summary of every unit of the plan, published or not.
    :param complete: whether everything that was asked for is in it; only then is its run key answered.
    :param staging: the folder of its token below `target`, the target root; :param shards: digests of its step shards, in order.
    :param actor: who asked; :param reason: why, for the audited actions.
    """

    slot: int
    action: Action
    urn: str
    token: str
    run_key: str
    generation: int
    previous: str
    at: datetime
    ranges: tuple[Range, ...] = ()
    removed: tuple[Range, ...] = ()
    coverage: Coverage | None = None
    planned: Range | None = None
    replaces: tuple[UnitRef, ...] = ()
    schema: str | None = None
    units: tuple[UnitSummary, ...] = ()
    complete: bool = True
    staging: str | None = None
    target: str = ""
    shards: tuple[str, ...] = ()
    steps: int = 0
    actor: str = ""
    reason: str = ""


@record("outcome")
@dataclass(frozen=True)
class Outcome:
    """How a slot ended. :param decision: the digest of the decision that it is the outcome of."""

    slot: int
    state: OutcomeState
    decision: str
    run_key: str
    at: datetime
    actor: str = ""
    reason: str = ""


@record("shard")
@dataclass(frozen=True)
class Shard:
    """Steps of a sequence, in order."""

    steps: tuple[Step, ...]


class NoteKind(StrEnum):
    """What a note says."""

    FAILED = "failed"
    """A run failed to finish the slot."""
    QUARANTINED = "quarantined"
    RELEASED = "released"
    ANNOUNCED = "announced"
    CLEANED = "cleaned"
    """What the slot retired, or staged and abandoned, is removed."""
    UNPUBLISHED = "unpublished"
    """A run that came after the slot published nothing; its units are kept for the next plan."""


@record("note")
@dataclass(frozen=True)
class Note:
    """A remark on a slot."""

    says: NoteKind
    run_key: str
    at: datetime
    detail: str = ""
    token: str = ""
    units: tuple[UnitSummary, ...] = ()
    actor: str = ""


@dataclass(frozen=True)
class Slot:
    """A slot as it stands, with the digests of its decision and its outcome as they are stored."""

    decision: Decision
    outcome: Outcome | None
    decision_digest: str
    outcome_digest: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def digest(self) -> str:
        """What the next decision names as the slot before it."""
        return wire.digest((self.decision_digest + self.outcome_digest).encode())

    @property
    def finished(self) -> bool:
        """Whether nothing remains to be done to end it."""
        return self.outcome is not None or not self.decision.action.needs_outcome

    @property
    def done(self) -> bool:
        """Whether it counts."""
        if not self.decision.action.needs_outcome:
            return self.decision.action is not Action.ABORT
        return self.outcome is not None and self.outcome.state is OutcomeState.DONE

    def noted(self, kind: NoteKind) -> bool:
        """Whether a note of this kind stands."""
        return any(note.says is kind for note in self.notes)


@dataclass(frozen=True)
class History:
    """A dataset's chain, folded: its slots, and the state that follows from them."""

    urn: str
    slots: tuple[Slot, ...] = ()
    early_notes: tuple[Note, ...] = ()
    state: DatasetState = field(default_factory=lambda: DatasetState(""))

    @property
    def pending(self) -> Slot | None:
        """The newest slot, if its outcome is missing."""
        return self.slots[-1] if self.slots and not self.slots[-1].finished else None

    @property
    def last_digest(self) -> str:
        """What the next decision names as the slot before it."""
        return self.slots[-1].digest if self.slots else ""

    def by_token(self, token: str) -> Slot | None:
        """The slot that a token took, if it did."""
        return next((s for s in self.slots if s.decision.token == token), None)

    def answer(self, run_key: str) -> Slot | None:
        """The slot that answers a run key: finished, done, with everything that was asked for, and not taken back since."""
        return next((s for s in reversed(self.slots) if s.decision.run_key == run_key and self._answers(s)), None)

    def until(self, slot: int) -> History:
        """The chain up to a slot, with the state that it had then."""
        return _folded(replace(self, slots=self.slots[:slot]))

    def _answers(self, slot: Slot) -> bool:
        return slot.done and slot.decision.complete and slot.decision.generation == self.state.generation


class Journal:
    """The journal of an ingestion in a store.

    Open it with `Journal.open`; reading needs nothing else, writing is done by `commit.Committer` and `administration`.
    """

    def __init__(self, store: Store, ingestion: str, journal_id: str) -> None:
        self.store = store
        self.ingestion = ingestion
        self.id = journal_id
        self._read_before: dict[str, tuple[Any, str]] = {}

    @classmethod
    def open(cls, store: Store | str, ingestion: str) -> Journal:
        """Open the journal of an ingestion; it is made where there is none.

        :param store: a store, or the URL of one, as for `stores.open_store`.
        :raises ConfigurationError: the name can't be one. :raises StoreError: the store can't be reached.
        :raises RecordError: the record of its id is torn or changed.
        """
        from airflow_gobblin.stores import open_store

        check_ingestion_name(ingestion)
        if isinstance(store, str):
            store = open_store(store)
        stored, _ = settle(store, _ID, uuid.uuid4().hex.encode())
        if not re.fullmatch(rb"[0-9a-f]{32}", stored):
            raise RecordError(
                operation="read",
                subject=f"record {_ID!r} in {store.name}",
                cause=f"it is torn or was changed: {stored[:40]!r} is no journal's id",
                hint="Restore it from a copy of the journal: targets are claimed by this id.",
            )
        return cls(store, ingestion, stored.decode())

    def key(self, urn: str, *parts: str) -> str:
        """The key of a dataset's record."""
        return "/".join((self.ingestion, dataset_key(urn), *parts))

    def datasets(self) -> tuple[str, ...]:
        """The URNs of all datasets that have a slot, sorted; one whose first record can't be read is left out."""
        return tuple(sorted(urn for _, urn in self.named_datasets() if isinstance(urn, str)))

    def named_datasets(self) -> Iterator[tuple[str, str | GobblinError]]:
        """The key and the URN of every dataset that has a slot, or the error of its first record.

        One listing, and one read a dataset.
        """
        first = f"/d/{slot_name(1)}"
        for key in self.store.list(f"{self.ingestion}/"):
            if key.endswith(first):
                try:
                    yield key.split("/")[1], self._read(key, Decision)[0].urn
                except GobblinError as error:
                    yield key.split("/")[1], error

    def history(self, urn: str) -> History:
        """Fold a dataset's chain.

        :raises RecordError: a record is unreadable, torn, newer, or doesn't fit the chain: this dataset stands still (I14).
        """
        prefix = self.key(urn) + "/"
        for left in reversed(range(_TRIES)):
            try:
                return self._fold(urn, [k[len(prefix) :] for k in self.store.list(prefix)])
            except RecordError:  # a listing isn't atomic: a writer at work can make it look broken, for a moment
                if left == 0:
                    raise
                time.sleep(_PAUSE)
        raise AssertionError("unreachable")

    def histories(self, urns: Iterable[str]) -> Iterator[tuple[str, History | GobblinError]]:
        """The histories of many datasets, by one listing; one that can't be read gives its error instead."""
        keys: dict[str, list[str]] = {}
        for key in self.store.list(f"{self.ingestion}/"):
            _, dataset, rest = (*key.split("/", 2), "")[:3]
            keys.setdefault(dataset, []).append(rest)
        for urn in urns:
            try:
                yield urn, self._fold(urn, keys.get(dataset_key(urn), []))
            except RecordError:
                try:
                    yield urn, self.history(urn)
                except GobblinError as error:
                    yield urn, error
            except GobblinError as error:
                yield urn, error

    def state(self, urn: str) -> DatasetState:
        """The state of a dataset. :raises RecordError: as `history`."""
        return self.history(urn).state

    def read_dataset(self, urn: str, root: str | None = None) -> PublishedDataset:
        """The published files of a dataset, exactly once: as a list, an Arrow dataset or a Spark DataFrame.

        :param root: the target root, if it moved since the files were published. :raises RecordError: as `history`.
        """
        history = self.history(urn)
        files = tuple(
            PublishedFile(
                f"{(root or decision.target).rstrip('/')}/{step.target}",
                decision.slot,
                step.unit,
                step.rows,
                step.identity.size,
                step.checksum,
            )
            for decision, step in self.moves(history, history.state.live)
        )
        shown = max((s.decision.slot for s in history.slots if s.finished), default=0)
        return PublishedDataset(urn, shown, history.state.watermark, history.state.schema, files)

    def steps(self, decision: Decision) -> Iterator[Step]:
        """The steps of a decision as stored, in order, a shard at a time in memory.

        :raises RecordError: a shard is missing or isn't what the decision named.
        """
        for name in decision.shards:
            key = self.key(decision.urn, "c", name)
            data = self.store.get(key)
            if data is None or wire.digest(data) != name:
                raise RecordError(
                    operation="read",
                    subject=f"steps {key!r} of dataset {decision.urn!r}",
                    cause="they are missing" if data is None else "their digest doesn't fit",
                    hint="Restore them from a copy of the journal, or abandon the slot.",
                )
            yield from wire.loads(data, Shard, key).steps

    def moves(self, history: History, units: Iterable[UnitRef]) -> Iterator[tuple[Decision, MoveStep]]:
        """The steps that published the files of some units, slot by slot. :raises RecordError: as `steps`."""
        by_slot: dict[int, set[str]] = {}
        for ref in units:
            by_slot.setdefault(ref.slot, set()).add(ref.unit)
        for number, names in sorted(by_slot.items()):
            decision = history.slots[number - 1].decision
            for step in self.steps(decision):
                if isinstance(step, MoveStep) and step.unit in names:
                    yield decision, step

    def outcome(self, urn: str, slot: int) -> Outcome | None:
        """The outcome of a slot, read now."""
        key = self.key(urn, "o", slot_name(slot))
        data = self.store.get(key)
        return None if data is None else wire.loads(data, Outcome, key)

    def put_shards(self, urn: str, steps: Iterable[Step]) -> tuple[tuple[str, ...], int]:
        """Store the steps of a sequence before its decision.

        :return: the digests of its shards, and how many steps. :raises ConfigurationError: a step is of no registered class.
        """
        digests, count = [], 0
        rest = (step for step in steps if wire.kind_of(step))
        while some := tuple(islice(rest, STEPS_PER_SHARD)):
            data = wire.dumps(Shard(some))
            name = wire.digest(data)
            settle(self.store, self.key(urn, "c", name), data)
            digests.append(name)
            count += len(some)
        return tuple(digests), count

    def put_decision(self, decision: Decision) -> Decision:
        """Try to take a slot. :return: the decision that stands there, which may be another one (rules 4 and 5)."""
        key = self.key(decision.urn, "d", slot_name(decision.slot))
        stored, _ = settle(self.store, key, wire.dumps(decision))
        return wire.loads(stored, Decision, key)

    def put_outcome(self, slot: Slot, state: OutcomeState, run_key: str, actor: str = "", reason: str = "") -> Outcome:
        """End a slot. :return: the outcome that stands, which may be another one."""
        decision = slot.decision
        mine = Outcome(decision.slot, state, slot.decision_digest, run_key, now(), actor, reason)
        key = self.key(decision.urn, "o", slot_name(decision.slot))
        stored, _ = settle(self.store, key, wire.dumps(mine))
        return wire.loads(stored, Outcome, key)

    def put_note(self, urn: str, slot: int, note: Note) -> None:
        """Add a remark to a slot (slot 0 is before the first)."""
        data = wire.dumps(note)
        taken = sum(1 for _ in self.store.list(self.key(urn, "n", slot_name(slot)) + "/"))
        while True:
            stored, _ = settle(self.store, self.key(urn, "n", slot_name(slot), f"{taken:06d}"), data)
            if stored == data:
                return
            taken += 1

    def _read(self, key: str, expected: type[R]) -> tuple[R, str]:
        """A record and its digest. Records never change (I5), so each is read once."""
        known = self._read_before.get(key)
        if known is not None:
            return known
        data = self.store.get(key)
        if data is None:
            raise RecordError(
                operation="read",
                subject=f"record {key!r} in {self.store.name}",
                cause="it was listed and is missing",
                hint="Nobody but the journal may delete its records; restore it from a copy.",
            )
        found = wire.loads(data, expected, key), wire.digest(data)
        if len(self._read_before) >= _RECORDS_KEPT:
            self._read_before.clear()
        self._read_before[key] = found
        return found

    def _fold(self, urn: str, keys: list[str]) -> History:
        numbers = sorted(self._number(urn, k) for k in keys if k.startswith("d/"))
        if numbers and (numbers[0] != 1 or any(b != a + 1 for a, b in pairwise(numbers))):
            raise self._broken(urn, f"slots {numbers[0]} to {numbers[-1]} are not without a gap, from 1 on")
        notes: dict[int, list[Note]] = {}
        for key in sorted(k for k in keys if k.startswith("n/")):
            notes.setdefault(self._number(urn, key), []).append(self._read(self.key(urn, key), Note)[0])
        outcomes = {self._number(urn, k) for k in keys if k.startswith("o/")}
        slots: list[Slot] = []
        for number in numbers:
            slots.append(self._slot(urn, number, number in outcomes, tuple(notes.get(number, ())), slots))
        undecided = (outcomes | set(notes) - {0}) - set(numbers)
        if undecided:
            raise self._broken(urn, f"slots {sorted(undecided)} have an outcome or notes, and no decision")
        return _folded(History(urn, tuple(slots), tuple(notes.get(0, ()))))

    def _slot(self, urn: str, number: int, ended: bool, notes: tuple[Note, ...], before: list[Slot]) -> Slot:
        decision, name = self._read(self.key(urn, "d", slot_name(number)), Decision)
        outcome, outcome_name = self._read(self.key(urn, "o", slot_name(number)), Outcome) if ended else (None, "")
        if decision.urn != urn or decision.slot != number:
            raise self._broken(urn, f"slot {number} holds a decision of dataset {decision.urn!r}, slot {decision.slot}")
        if decision.previous != (before[-1].digest if before else ""):
            raise self._broken(urn, f"the decision of slot {number} doesn't follow from slot {number - 1} as it stands")
        if before and not before[-1].finished:
            raise self._broken(urn, f"slot {number} was decided before slot {number - 1} was finished")
        if outcome is not None and outcome.decision != name:
            raise self._broken(urn, f"the outcome of slot {number} belongs to another decision")
        return Slot(decision, outcome, name, outcome_name, notes)

    def _number(self, urn: str, key: str) -> int:
        digits = key.split("/")[1]
        if slot_name(int(digits) if digits.isdecimal() else 0) != digits:
            raise self._broken(urn, f"{key!r} is no record of it")
        return int(digits)

    def _broken(self, urn: str, finding: str) -> RecordError:
        return RecordError(
            operation="read",
            subject=f"the journal of dataset {urn!r} in {self.store.name}",
            cause=finding,
            hint="A record was lost or changed. Restore the journal from a copy; the dataset stands still until then.",
        )


def slot_name(slot: int) -> str:
    """A slot in a key: its digits sort as the number does."""
    return f"{slot:010d}"


def now() -> datetime:
    """The time, for people to read; no rule rests on it (I13)."""
    return datetime.now(UTC)


def _folded(history: History) -> History:
    return replace(history, state=_state(history))


def _state(history: History) -> DatasetState:
    state = DatasetState(history.urn, previous_units=_unpublished(history.early_notes))
    units = _Units()
    for slot in history.slots:
        state = _after(state, slot, units)
    pending = history.pending
    return replace(
        state,
        live=units.live,
        retired=units.retired,
        pending=pending is not None,
        failures=() if pending is None else _failures(pending.notes),
        quarantined=pending is not None and _quarantined(pending.notes),
    )


@dataclass
class _Units:
    """Published units, as they change from slot to slot: in place, for there may be many slots and many units."""

    live: dict[UnitRef, UnitSummary] = field(default_factory=dict)
    retired: dict[UnitRef, int] = field(default_factory=dict)

    def publish(self, slot: Slot) -> None:
        """What a done slot retires, and what it publishes."""
        decision = slot.decision
        for ref in decision.replaces:
            self.live.pop(ref, None)
            if not slot.noted(NoteKind.CLEANED):
                self.retired[ref] = decision.slot
        if decision.action is Action.DROP:
            self.live.clear()
        if decision.action in (Action.COMMIT, Action.NOOP, Action.IMPORT):
            for unit in decision.units:
                if unit.state is UnitState.SUCCESSFUL:
                    self.live[UnitRef(decision.slot, unit.unit)] = unit


def _after(state: DatasetState, slot: Slot, units: _Units) -> DatasetState:
    decision = slot.decision
    state = replace(state, head=decision.slot)
    if not slot.done:
        return replace(state, previous_units=_unpublished(slot.notes) or state.previous_units)
    dropped = decision.action is Action.DROP
    coverage = _coverage(state.coverage, decision, units.live)
    units.publish(slot)
    return replace(
        state,
        coverage=coverage,
        generation=decision.generation,
        schema=None if dropped else decision.schema or state.schema,
        previous_units=_unpublished(slot.notes) or decision.units or (() if dropped else state.previous_units),
    )


def _coverage(before: Coverage, decision: Decision, live: Mapping[UnitRef, UnitSummary]) -> Coverage:
    if decision.coverage is not None:
        return decision.coverage
    coverage = before
    for gone in (*(live[r].range for r in decision.replaces if r in live), *decision.removed):
        if gone is not None and coverage.origin is not None:
            coverage = coverage.remove(gone)
    if decision.planned is not None:
        coverage = coverage.starting_at(decision.planned.low)
    for added in decision.ranges:
        coverage = coverage.add(added)
    return coverage


def _unpublished(notes: tuple[Note, ...]) -> tuple[UnitSummary, ...]:
    return next((n.units for n in reversed(notes) if n.says is NoteKind.UNPUBLISHED), ())


def _since_release(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    released = [i for i, n in enumerate(notes) if n.says is NoteKind.RELEASED]
    return notes[released[-1] + 1 :] if released else notes


def _failures(notes: tuple[Note, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.run_key for n in _since_release(notes) if n.says is NoteKind.FAILED))


def _quarantined(notes: tuple[Note, ...]) -> bool:
    return any(n.says is NoteKind.QUARANTINED for n in _since_release(notes))
