"""A dataset's chain, folded: its slots, and the state that follows from them.

What the slots up to some number came to may be kept as one record, a snapshot. It stands for all their records, which are then
void, whatever they are: they are removed, and one that a late attempt writes there counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

from airflow_gobblin import wire
from airflow_gobblin.coverage import Coverage
from airflow_gobblin.errors import without_stop
from airflow_gobblin.records import Action, Decision, Note, NoteKind, Outcome, OutcomeState
from airflow_gobblin.state import DatasetState, Pause, UnitRef
from airflow_gobblin.watermark import Watermark, highest
from airflow_gobblin.wire import record
from airflow_gobblin.work import UnitState, UnitSummary, first_cause

_PUBLISHING = frozenset({Action.COMMIT, Action.NOOP})
_BY_PEOPLE = frozenset({NoteKind.RELEASED, NoteKind.CLAIM_RELEASED, NoteKind.PAUSED, NoteKind.RESUMED})


@dataclass(frozen=True)
class Slot:
    """A slot as it stands, with the digests of its decision and its outcome as they are stored.

    :param notes: those that the fold needs, in order; :param kinds: what all its notes say.
    :param trimmed: what stays of it, if its records were trimmed; the others are then filled in from it, as far as they can be.
    """

    decision: Decision
    outcome: Outcome | None
    decision_digest: str
    outcome_digest: str = ""
    notes: tuple[Note, ...] = ()
    kinds: frozenset[NoteKind] = frozenset()
    trimmed: TrimmedSlot | None = None

    @property
    def digest(self) -> str:
        """What the next decision names as the slot before it."""
        return wire.digest((self.decision_digest + self.outcome_digest).encode())

    @property
    def files(self) -> int:
        """How many files it published, or is to publish."""
        return self.trimmed.files if self.trimmed is not None else sum(u.files for u in _good(self.decision))

    @property
    def rows(self) -> int:
        """How many rows are in them."""
        return self.trimmed.rows if self.trimmed is not None else sum(u.rows_written for u in _good(self.decision))

    @property
    def positions(self) -> bool:
        """Whether its units have positions; a snapshot's have none."""
        return self.trimmed.positions if self.trimmed is not None else self.decision.planned is not None

    @property
    def releases(self) -> tuple[Note, ...]:
        """What was noted of those who released it, or the claim on its dataset's folder, or paused or resumed the dataset."""
        return tuple(note for note in self.notes if note.says in _BY_PEOPLE)

    @property
    def abandoned_by(self) -> str:
        """Who gave it up."""
        return "" if self.outcome is None else self.outcome.actor

    @property
    def abandon_reason(self) -> str:
        """Why it was given up."""
        return "" if self.outcome is None else self.outcome.reason

    @property
    def named(self) -> str:
        """It, what it does, and whose it is, as far as its record says."""
        decision = self.decision
        by = f" by {decision.actor}: {without_stop(decision.reason)}" if decision.actor else decision.by_run
        return f"slot {decision.slot} ({decision.action.value}{by})"

    @property
    def given_up(self) -> str:
        """Of one that was abandoned, or that aborts a plan: who gave it up, and why."""
        by = self.outcome if self.outcome is not None else self.decision
        who = f" by {by.actor}" if by.actor else ""
        return f"slot {self.decision.slot} was abandoned{who}: {without_stop(by.reason)}"

    @property
    def failures(self) -> tuple[str, ...]:
        """What was noted of runs that failed to finish it."""
        return tuple(note.detail for note in self.notes if note.says is NoteKind.FAILED)

    @property
    def last_failure(self) -> str:
        """What was noted of the last of them."""
        return next(reversed(self.failures), "")

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

    @property
    def abandoned(self) -> bool:
        """Whether it was given up."""
        return self.outcome is not None and self.outcome.state is OutcomeState.ABANDONED

    @property
    def publishes(self) -> bool:
        """Whether it published files, which is to be announced."""
        return self.done and self.decision.action is Action.COMMIT

    @property
    def leaves_files(self) -> bool:
        """Whether there is something to clean up once it has ended: what it retired, or what it staged in vain."""
        return self.abandoned or bool(self.decision.replaces)

    @property
    def settled(self) -> bool:
        """Whether nothing remains to be done at all."""
        announced = self.noted(NoteKind.ANNOUNCED) or not self.publishes
        cleaned = self.noted(NoteKind.CLEANED) or not self.leaves_files
        return self.finished and announced and cleaned

    def noted(self, kind: NoteKind) -> bool:
        """Whether a note of this kind stands."""
        return kind in self.kinds


@dataclass(frozen=True)
class TrimmedSlot:
    """What stays of a slot whose records were trimmed: how it ended, and for whom; if units of it are live, where these are.

    :param actor: who asked for it, and :param reason: why; :param abandoned_by: who gave it up, and :param abandon_reason: why.
    :param releases: as of a `Slot`.
    """

    slot: int
    action: Action
    token: str
    run_key: str
    generation: int
    complete: bool
    at: datetime
    outcome: OutcomeState | None
    actor: str
    reason: str
    positions: bool
    files: int
    rows: int
    shards: tuple[str, ...]
    staging: str | None
    target: str
    run: str = ""
    releases: tuple[Note, ...] = ()
    kept_from: Watermark | None = None
    abandoned_by: str = ""
    abandon_reason: str = ""

    def as_slot(self, urn: str) -> Slot:
        """It as a slot that has ended. What was trimmed is empty in it."""
        decision = Decision(
            slot=self.slot,
            action=self.action,
            urn=urn,
            token=self.token,
            run_key=self.run_key,
            generation=self.generation,
            previous="",
            at=self.at,
            complete=self.complete,
            staging=self.staging,
            target=self.target,
            shards=self.shards,
            actor=self.actor,
            reason=self.reason,
            run=self.run,
            kept_from=self.kept_from,
        )
        outcome = None
        if self.outcome is not None:
            by, why = self.abandoned_by, self.abandon_reason
            outcome = Outcome(self.slot, self.outcome, "", self.run_key, self.at, by, why)
        return Slot(decision, outcome, "", notes=self.releases, trimmed=self)


@record("snapshot")
@dataclass(frozen=True)
class Snapshot:
    """The fold of a dataset's chain up to a slot.

    :param digest: of that slot, as the next decision names it. :param slots: what stays of each slot, from 1 on.
    :param units: those that were live then, and :param unit_slots: the slot of each.
    """

    slot: int
    urn: str
    digest: str
    at: datetime
    coverage: Coverage
    generation: int
    schema: str | None
    previous_units: tuple[UnitSummary, ...]
    slots: tuple[TrimmedSlot, ...]
    unit_slots: tuple[int, ...]
    units: tuple[UnitSummary, ...]
    kept_from: Watermark | None = None
    paused: Pause | None = None

    @property
    def live(self) -> dict[UnitRef, UnitSummary]:
        """The units that were live then."""
        return {UnitRef(slot, unit.unit): unit for slot, unit in zip(self.unit_slots, self.units, strict=True)}

    @property
    def shards(self) -> set[str]:
        """The step shards that are still needed to find these units' files."""
        return {name for s in self.slots for name in s.shards}


@dataclass(frozen=True)
class History:
    """A dataset's chain, folded: its slots, and the state that follows from them.

    :param slots: those after the snapshot. :param early_notes: notes from before the first slot.
    :param snapshot: what stands for the slots before them; :param void: keys of records that it stands for and that are
        still there.
    """

    urn: str
    slots: tuple[Slot, ...] = ()
    early_notes: tuple[Note, ...] = ()
    snapshot: Snapshot | None = None
    void: tuple[str, ...] = ()
    state: DatasetState = field(default_factory=lambda: DatasetState(""))

    @property
    def pending(self) -> Slot | None:
        """The newest slot, if its outcome is missing."""
        return self.slots[-1] if self.slots and not self.slots[-1].finished else None

    @property
    def known(self) -> bool:
        """Whether there is any record of the dataset."""
        return self.state.head > 0 or bool(self.early_notes)

    @property
    def published(self) -> bool:
        """Whether a run ever published it, be it without rows; it may be pending, set, imported or dropped otherwise."""
        trimmed = (slot.as_slot(self.urn) for slot in self.trimmed)
        return any(s.done and s.decision.action in _PUBLISHING for slots in (self.slots, trimmed) for s in slots)

    @property
    def failure(self) -> str:
        """Why the last run that published nothing, and noted it since the newest slot, did so; empty if none did."""
        notes = self.slots[-1].notes if self.slots else self.early_notes
        last = next((note for note in reversed(notes) if note.says is NoteKind.UNPUBLISHED), None)
        if last is None:
            return ""
        return last.detail or first_cause(last.units)

    @property
    def last_digest(self) -> str:
        """What the next decision names as the slot before it."""
        return _last_digest(self.snapshot, self.slots)

    @property
    def trimmed(self) -> tuple[TrimmedSlot, ...]:
        """What stays of the slots that were trimmed, from 1 on."""
        return self.snapshot.slots if self.snapshot is not None else ()

    def slot(self, number: int) -> Slot:
        """A slot by its number. :raises IndexError: there is none."""
        if 0 < number <= len(self.trimmed):
            return self.trimmed[number - 1].as_slot(self.urn)
        return self.slots[number - len(self.trimmed) - 1]

    def after(self, number: int) -> tuple[Slot, ...]:
        """The slots after a number, but for those that were trimmed."""
        return self.slots[max(0, number - len(self.trimmed)) :]

    def by_token(self, token: str) -> Slot | None:
        """The slot that a token took, if it did."""
        slot = next((s for s in self.slots if s.decision.token == token), None)
        trimmed = None if slot is not None else next((s for s in self.trimmed if s.token == token), None)
        return slot if trimmed is None else trimmed.as_slot(self.urn)

    def answer(self, run_key: str) -> Slot | None:
        """The slot that answers a run key: finished, done, with everything that was asked for, and not taken back since."""
        mine = (s for s in reversed(self.slots) if s.decision.run_key == run_key)
        trimmed = (s.as_slot(self.urn) for s in reversed(self.trimmed) if s.run_key == run_key)
        return next((s for slots in (mine, trimmed) for s in slots if self._answers(s)), None)

    @property
    def tried(self) -> datetime | None:
        """When a run last decided something of it, or noted that it couldn't; for fairness alone."""
        decided = (slot.decision.at for slot in self.slots if slot.decision.run_key)
        notes = (*self.early_notes, *(note for slot in self.slots for note in slot.notes))
        return max((*decided, *(n.at for n in notes if n.says is NoteKind.UNPUBLISHED)), default=None)

    def runs(self) -> Iterator[tuple[UnitSummary, ...]]:
        """What became of the units of each run, published or not, the newest first, as far as that is kept."""
        seen = set[str]()
        told = chain.from_iterable(
            (*((n.token, n.units) for n in reversed(slot.notes)), (slot.decision.token, slot.decision.units))
            for slot in reversed(self.slots)
        )
        for token, units in chain(told, ((n.token, n.units) for n in reversed(self.early_notes))):
            if units and token not in seen:
                seen.add(token)
                yield units

    def until(self, slot: int) -> History:
        """The chain up to a slot that was not trimmed, with the state that it had then."""
        return fold(replace(self, slots=self.slots[: slot - len(self.trimmed)]))

    def settled(self, kept: int) -> int:
        """The number up to which nothing remains to be done for any slot, the newest few left out; 0 if there is none.

        :param kept: how many are left out, at least one.
        """
        number = len(self.trimmed)
        for slot in self.slots[:-kept]:
            if not slot.settled:
                break
            number = slot.decision.slot
        return number

    def _answers(self, slot: Slot) -> bool:
        return slot.done and slot.decision.complete and slot.decision.generation == self.state.generation


def take_snapshot(history: History, slot: int, at: datetime) -> Snapshot:
    """What stands for a chain up to a slot, which isn't trimmed and has ended."""
    past = history.until(slot)
    state = past.state
    live = {ref.slot for ref in state.live}
    slots = (*past.trimmed, *(_trimmed(s) for s in past.slots))
    return Snapshot(
        slot=slot,
        urn=history.urn,
        digest=past.last_digest,
        at=at,
        coverage=state.coverage,
        generation=state.generation,
        schema=state.schema,
        previous_units=state.previous_units,
        slots=tuple(s if s.slot in live else replace(s, shards=(), staging=None, target="") for s in slots),
        unit_slots=tuple(ref.slot for ref in state.live),
        units=tuple(state.live.values()),
        kept_from=state.kept_from,
        paused=state.paused,
    )


def _trimmed(slot: Slot) -> TrimmedSlot:
    decision, outcome = slot.decision, slot.outcome
    return TrimmedSlot(
        slot=decision.slot,
        action=decision.action,
        token=decision.token,
        run_key=decision.run_key,
        generation=decision.generation,
        complete=decision.complete,
        at=decision.at,
        outcome=None if outcome is None else outcome.state,
        actor=decision.actor,
        reason=decision.reason,
        positions=slot.positions,
        files=slot.files,
        rows=slot.rows,
        shards=decision.shards,
        staging=decision.staging,
        target=decision.target,
        run=decision.run,
        releases=slot.releases,
        kept_from=decision.kept_from,
        abandoned_by=slot.abandoned_by,
        abandon_reason=slot.abandon_reason,
    )


def _good(decision: Decision) -> Iterator[UnitSummary]:
    return (unit for unit in decision.units if unit.state is UnitState.SUCCESSFUL)


def fold(history: History) -> History:
    """A chain with the state that follows from it."""
    return replace(history, state=_state(history))


def _last_digest(snapshot: Snapshot | None, slots: tuple[Slot, ...]) -> str:
    if slots:
        return slots[-1].digest
    return snapshot.digest if snapshot is not None else ""


def _state(history: History) -> DatasetState:
    early = history.early_notes
    growing = _Growing(previous_units=_unpublished(early), paused=_paused(early, None))
    if history.snapshot is not None:
        growing.begin(history.snapshot)
    for slot in history.slots:
        growing.take(slot)
    pending = history.pending
    return DatasetState(
        history.urn,
        **vars(growing),
        pending=pending is not None,
        failures=() if pending is None else _failures(pending.notes),
        quarantined=pending is not None and _quarantined(pending.notes),
    )


@dataclass
class _Growing:
    """A state as it grows from slot to slot: in place, for there may be many slots and many units."""

    coverage: Coverage = field(default_factory=Coverage)
    generation: int = 0
    head: int = 0
    schema: str | None = None
    live: dict[UnitRef, UnitSummary] = field(default_factory=dict)
    retired: dict[UnitRef, int] = field(default_factory=dict)
    previous_units: tuple[UnitSummary, ...] = ()
    kept_from: Watermark | None = None
    paused: Pause | None = None

    def begin(self, snapshot: Snapshot) -> None:
        """Begin with what stands for the slots before."""
        self.coverage = snapshot.coverage
        self.generation = snapshot.generation
        self.head = snapshot.slot
        self.schema = snapshot.schema
        self.live = snapshot.live
        self.previous_units = snapshot.previous_units
        self.kept_from = snapshot.kept_from
        self.paused = snapshot.paused

    def take(self, slot: Slot) -> None:
        """One slot more."""
        decision = slot.decision
        self.head = decision.slot
        if decision.kept_from is not None:  # it may have been planned long before
            self.kept_from = highest([decision.kept_from, self.kept_from or decision.kept_from])
        if slot.done:
            self._cover(decision)
            self._publish(slot)
            self.generation = decision.generation
            self.schema = decision.schema or self.schema
            self.previous_units = decision.units or self.previous_units
            if decision.action is Action.DROP:
                self.schema, self.previous_units, self.kept_from = None, (), None
        self.previous_units = _unpublished(slot.notes) or self.previous_units
        self.paused = _paused(slot.notes, self.paused)

    def _publish(self, slot: Slot) -> None:
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

    def _cover(self, decision: Decision) -> None:
        if decision.coverage is not None:
            self.coverage = decision.coverage
            return
        for gone in (*(self.live[r].range for r in decision.replaces if r in self.live), *decision.removed):
            if gone is not None and self.coverage.origin is not None:
                self.coverage = self.coverage.remove(gone)
        if decision.planned is not None:
            self.coverage = self.coverage.starting_at(decision.planned.low)
        for added in decision.ranges:
            self.coverage = self.coverage.add(added)


def _unpublished(notes: tuple[Note, ...]) -> tuple[UnitSummary, ...]:
    return next((n.units for n in reversed(notes) if n.says is NoteKind.UNPUBLISHED and n.units), ())


def _paused(notes: tuple[Note, ...], before: Pause | None) -> Pause | None:
    """Whether a dataset is paused after some notes. :param before: whether it was before them."""
    last = next((n for n in reversed(notes) if n.says in (NoteKind.PAUSED, NoteKind.RESUMED)), None)
    if last is None:
        return before
    return Pause(last.actor, last.detail, last.at) if last.says is NoteKind.PAUSED else None


def _since_release(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    released = [i for i, n in enumerate(notes) if n.says is NoteKind.RELEASED]
    return notes[released[-1] + 1 :] if released else notes


def _failures(notes: tuple[Note, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.run_key for n in _since_release(notes) if n.says is NoteKind.FAILED))


def _quarantined(notes: tuple[Note, ...]) -> bool:
    return any(n.says is NoteKind.QUARANTINED for n in _since_release(notes))
