"""A dataset's chain, folded: its slots, and the state that follows from them.

The fold up to some slot may be kept as one record, a snapshot. It replaces all records of those slots, which are then void,
whatever they contain: they are removed, and a record that a late attempt writes there doesn't count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

from airflow_gobblin.errors import without_stop
from airflow_gobblin.journal.records import Action, Decision, Note, NoteKind, Outcome, OutcomeState, ShardRef
from airflow_gobblin.model import wire
from airflow_gobblin.model.channels import ROWS
from airflow_gobblin.model.checkpoint import Checkpoint
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.state import DatasetState, Pause, Provenance, UnitRef
from airflow_gobblin.model.table import Mark, Owner, SlotOfStep, TableTarget, TableUnit
from airflow_gobblin.model.watermark import Watermark, highest
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitState, UnitSummary, first_cause

_PUBLISHING = frozenset({Action.COMMIT, Action.NOOP})
_TAKING_BACK = frozenset({Action.REWIND, Action.DROP})
_BY_PEOPLE = frozenset({NoteKind.RELEASED, NoteKind.CLAIM_RELEASED})


@dataclass(frozen=True)
class Slot:
    """A slot with its decision and outcome, and the digests of both as they are stored.

    :param notes: the notes that the fold needs, in order.
    :param kinds: the kinds of all its notes.
    :param trimmed: what remains of the slot if its records were trimmed; the other fields are then filled from it where possible.
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
        """The digest of its decision and its outcome, by which the next decision names it."""
        return wire.digest((self.decision_digest + self.outcome_digest).encode())

    def named_by(self, action: Action) -> str:
        """Return the digest by which the next decision names this slot: a pause or its end leaves out the outcome, as it may be
        decided before that.
        """
        return wire.digest(self.decision_digest.encode()) if action.pauses else self.digest

    @property
    def files(self) -> int:
        """The number of files that it published, or is to publish."""
        return self.trimmed.files if self.trimmed is not None else sum(u.files for u in _good(self.decision))

    @property
    def rows(self) -> int:
        """The number of rows in these files."""
        if self.trimmed is not None:
            return self.trimmed.rows
        return sum(u.rows_written for u in _good(self.decision) if u.channel == ROWS)

    @property
    def dead_letters(self) -> int:
        """The number of refused rows in its files, which `rows` doesn't count."""
        return (
            self.trimmed.dead_letters if self.trimmed is not None else sum(u.dead_letters for u in _good(self.decision))
        )

    @property
    def keeps_units(self) -> bool:
        """Whether its units are live until they are retired. Those of a difference of files aren't: see `Holds.keeps_units`."""
        return self.holds is None or self.holds.keeps_units

    @property
    def replaced(self) -> int:
        """The number of its files that took the place of others, in a mirror."""
        return self.trimmed.replaced if self.trimmed is not None else sum(u.replaced for u in _good(self.decision))

    @property
    def deleted(self) -> int:
        """The number of files that it deleted, in a mirror."""
        return self.trimmed.deleted if self.trimmed is not None else sum(u.deleted for u in _good(self.decision))

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return self.trimmed.bytes if self.trimmed is not None else sum(u.bytes for u in _good(self.decision))

    @property
    def unit_states(self) -> Counter[UnitState]:
        """How many units of its plan are in each state; for a trimmed slot, none are known."""
        states = Counter(unit.state for unit in self.decision.units)
        if self.done and UnitState.SUCCESSFUL in states:
            states[UnitState.COMMITTED] = states.pop(UnitState.SUCCESSFUL)
        return states

    @property
    def holds(self) -> Holds | None:
        """The kind of content that it holds, if a run made it."""
        return self.decision.holds

    @property
    def releases(self) -> tuple[Note, ...]:
        """Notes on its release, and on the release of its folder's claim."""
        return tuple(note for note in self.notes if note.event in _BY_PEOPLE)

    @property
    def abandoned_by(self) -> str:
        """The person who abandoned it."""
        return "" if self.outcome is None else self.outcome.actor

    @property
    def abandon_reason(self) -> str:
        """The reason it was abandoned."""
        return "" if self.outcome is None else self.outcome.reason

    @property
    def named(self) -> str:
        """The slot with its action and its run or actor, as far as its record names them."""
        decision = self.decision
        by = f" by {decision.actor}: {without_stop(decision.reason)}" if decision.actor else decision.by_run
        return f"slot {decision.slot} ({decision.action.value}{by})"

    @property
    def given_up(self) -> str:
        """For an abandoned slot, or one that aborts a plan: by whom it was abandoned, and why."""
        by = self.outcome if self.outcome is not None else self.decision
        who = f" by {by.actor}" if by.actor else ""
        return f"slot {self.decision.slot} was abandoned{who}: {without_stop(by.reason)}"

    @property
    def failures(self) -> tuple[str, ...]:
        """The noted errors of runs that failed to finish it."""
        return tuple(note.detail for note in self.notes if note.event is NoteKind.FAILED)

    @property
    def last_failure(self) -> str:
        """The last of these errors."""
        return next(reversed(self.failures), "")

    @property
    def finished(self) -> bool:
        """Whether nothing remains to be done to end it."""
        return self.outcome is not None or not self.decision.action.needs_outcome

    @property
    def done(self) -> bool:
        """Whether it counts."""
        if not self.decision.action.needs_outcome:
            return self.decision.action.counts
        return self.outcome is not None and self.outcome.state is OutcomeState.DONE

    @property
    def abandoned(self) -> bool:
        """Whether it was abandoned."""
        return self.outcome is not None and self.outcome.state is OutcomeState.ABANDONED

    @property
    def publishes(self) -> bool:
        """Whether it published files."""
        return self.done and self.decision.action is Action.COMMIT

    @property
    def is_news(self) -> bool:
        """Whether it must be announced: it published files, or it is a stage's version, even one without files."""
        return self.publishes or (self.done and self.decision.checkpoint is not None)

    @property
    def leaves_files(self) -> bool:
        """Whether there are files to clean up once it has ended: those it retired, or staged in vain."""
        return self.abandoned or bool(self.decision.replaces)

    @property
    def table_version(self) -> str:
        """The version of the table that its commit made, as people call it; empty if it isn't known."""
        return "" if self.outcome is None else self.outcome.table_version

    @property
    def settled(self) -> bool:
        """Whether nothing remains to be done at all."""
        announced = self.noted(NoteKind.ANNOUNCED) or not self.is_news
        cleaned = self.noted(NoteKind.CLEANED) or not self.leaves_files
        return self.finished and announced and cleaned

    def noted(self, kind: NoteKind) -> bool:
        """Return whether it has a note of this kind."""
        return kind in self.kinds


@dataclass(frozen=True)
class TrimmedSlot:
    """The remainder of a slot whose records were trimmed: how it ended, for which run, and where any of its live units are.

    :param actor: the person who asked for it.
    :param reason: why they asked.
    :param abandoned_by: the person who abandoned it.
    :param abandon_reason: why they abandoned it.
    :param releases: as in a `Slot`.
    :param planned: the range that was asked for, if a part of it isn't covered.
    :param table: as in its decision.
    :param table_version: as in its outcome.
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
    holds: Holds | None
    files: int
    rows: int
    shards: tuple[ShardRef, ...]
    staging: str | None
    target: str
    run: str = ""
    releases: tuple[Note, ...] = ()
    kept_from: Watermark | None = None
    abandoned_by: str = ""
    abandon_reason: str = ""
    folder: str = ""
    replaced: int = 0
    deleted: int = 0
    bytes: int = 0
    dead_letters: int = 0
    planned: Range | None = None
    table: TableTarget | None = None
    table_version: str = ""

    def as_slot(self, urn: str) -> Slot:
        """Return it as a slot that has ended. Trimmed fields are empty."""
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
            holds=self.holds,
            folder=self.folder,
            planned=self.planned,
            table=self.table,
        )
        outcome = None
        if self.outcome is not None:
            by, why = self.abandoned_by, self.abandon_reason
            outcome = Outcome(self.slot, self.outcome, "", self.run_key, self.at, by, why, self.table_version)
        return Slot(decision, outcome, "", notes=self.releases, trimmed=self)


@record("snapshot")
@dataclass(frozen=True)
class Snapshot:
    """The fold of a dataset's chain up to a slot.

    :param digest: the digest of that slot, as the next decision names it.
    :param slots: what remains of each slot, from 1 on.
    :param units: the units that were live then.
    :param unit_slots: the slot of each of these units.
    :param origins: as in a `DatasetState`, but as pairs, of slots with live units.
    :param spoiled: as in a `DatasetState`: without it, void seals would be valid again.
    :param checkpoints: as in a `DatasetState`, but as pairs.
    :param looked: as in a `DatasetState`, and so is `floor`.
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
    provenance: Provenance | None = None
    origins: tuple[tuple[int, int], ...] = ()
    spoiled: tuple[tuple[int, int], ...] = ()
    checkpoints: tuple[tuple[int, Checkpoint], ...] = ()
    looked: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0

    @property
    def live(self) -> dict[UnitRef, UnitSummary]:
        """The units that were live then."""
        return {UnitRef(slot, unit.unit): unit for slot, unit in zip(self.unit_slots, self.units, strict=True)}

    @property
    def shards(self) -> set[str]:
        """The step shards that are still needed to find these units' files."""
        return {shard.digest for s in self.slots for shard in s.shards}


@dataclass(frozen=True)
class History:
    """A dataset's chain, folded: its slots, and the state that follows from them.

    :param slots: the slots after the snapshot.
    :param early_notes: notes from before the first slot.
    :param snapshot: what replaces the slots before them.
    :param void: keys of records that it replaces and that still exist.
    """

    urn: str
    slots: tuple[Slot, ...] = ()
    early_notes: tuple[Note, ...] = ()
    snapshot: Snapshot | None = None
    void: tuple[str, ...] = ()
    state: DatasetState = field(default_factory=lambda: DatasetState(""))

    @property
    def pending(self) -> Slot | None:
        """The slot whose outcome is missing, if any: the newest, apart from pauses and their ends."""
        return unfinished(self.slots)

    @property
    def known(self) -> bool:
        """Whether there is any record of the dataset."""
        return self.state.head > 0 or bool(self.early_notes)

    @property
    def published(self) -> bool:
        """Whether a run has published it, even without rows, since the last drop; else it may be pending, set or imported."""
        return self._begun is not None and self._begun.decision.action is not Action.DROP

    @property
    def holds(self) -> Holds | None:
        """The kind of content in the newest slot that published it; `None` if no run has published it since the last drop."""
        return self._begun.holds if self._begun is not None and self.published else None

    @property
    def keeps_units(self) -> bool:
        """Whether the journal knows the files that are published, by their units; otherwise the target itself is the truth."""
        return self.holds is None or self.holds.keeps_units

    @property
    def of_files(self) -> bool:
        """Whether the newest slot of a run, done or not, holds a difference of files."""
        newest = next((slot for slot in self.newest_first if slot.holds is not None), None)
        return newest is not None and not newest.keeps_units

    def has(self, path: str) -> bool:
        """Return whether a path below the target root is in a folder that one of its slots publishes to."""
        folders = {slot.decision.folder for slot in self.slots} - {""}
        return any(folder == "." or path.startswith(f"{folder}/") for folder in folders)

    @property
    def dropped(self) -> Slot | None:
        """The slot that dropped it, if no run has published it since."""
        return None if self.published else self._begun

    @property
    def _begun(self) -> Slot | None:
        """The newest slot that published or dropped it."""
        ends = {*_PUBLISHING, Action.DROP}
        return next((slot for slot in self.newest_first if slot.done and slot.decision.action in ends), None)

    @property
    def newest_first(self) -> Iterator[Slot]:
        """Its slots, the newest first; for trimmed slots, what remains of them."""
        yield from reversed(self.slots)
        yield from (trimmed.as_slot(self.urn) for trimmed in reversed(self.trimmed))

    @property
    def table(self) -> TableTarget | None:
        """The table that its newest slot with one committed to, or was shut out of."""
        return next((slot.decision.table for slot in self.newest_first if slot.decision.table is not None), None)

    @property
    def reads_table(self) -> bool:
        """Whether its rows are in a table. A dataset that was dropped may have been published anew as files."""
        if self.table is None:
            return False
        newest = max((ref.slot for ref in self.state.live if ref.channel == ROWS), default=None)
        return newest is None or self.table_of(newest) is not None

    def mark_before(self, number: int, table: str) -> Mark | None:
        """Return the mark that a table must have before a slot commits to it: that of the newest earlier slot that did so, or was
        shut out there.

        :param table: the table's id.
        """
        for slot in self.newest_first:
            of = slot.decision.table
            if slot.decision.slot < number and of is not None and of.id == table and slot.finished:
                return Mark(slot.decision.slot, slot.decision.token, slot.done)
        return None

    def slot_of_step(
        self, decision: Decision, journal: str, ingestion: str, *, asked: bool = False
    ) -> SlotOfStep | None:
        """Return a slot as the step that commits it to a table sees it; `None` if it commits to none.

        :param journal: the id of the journal.
        :param asked: whether a person asked to abandon it.
        """
        if decision.table is None:
            return None
        previous = self.mark_before(decision.slot, decision.table.id)
        return SlotOfStep(Owner(journal, ingestion, self.urn), decision.slot, decision.token, previous, asked)

    def is_in_table(self, ref: UnitRef) -> bool:
        """Return whether the rows of a live unit are in a table; those of other channels of a stage are files."""
        return ref.channel == ROWS and self.table_of(ref.slot) is not None

    def table_of(self, slot: int) -> TableTarget | None:
        """Return the table that the rows of a slot went to; `None` if they are in files."""
        trimmed = self.trimmed[slot - 1] if slot <= len(self.trimmed) else None
        return self.slot(slot).decision.table if trimmed is None else trimmed.table

    def table_units(self, units: Iterable[UnitRef]) -> tuple[TableUnit, ...]:
        """Return live units as their table has them; those without files aren't there."""
        found = ((self.token(ref.slot), self.state.live[ref]) for ref in units if self.is_in_table(ref))
        return tuple(TableUnit(token, unit.unit, unit.files, unit.rows_written) for token, unit in found if unit.files)

    def published_after(self, number: int) -> bool:
        """Return whether a run published it after a slot, even without rows."""
        trimmed = (slot.as_slot(self.urn) for slot in self.trimmed[number:])
        slots = chain(self.after(number), trimmed)
        return any(slot.done and slot.decision.action in _PUBLISHING for slot in slots)

    def changed_after(self, number: int) -> bool:
        """Return whether a slot after a number may have changed what is published: any decided one that counts.

        An abandoned slot may have done some of its acts, which can't be taken back.
        """
        return any(slot.decision.action.counts for slot in self.after(number)) or any(
            slot.action.counts for slot in self.trimmed[number:]
        )

    @property
    def unpublished(self) -> Note | None:
        """The newest note, since the newest slot that counts, that a run published nothing."""
        notes = [*self.early_notes]
        for slot in self.slots:
            notes = [*(() if slot.decision.action.counts else notes), *slot.notes]
        return next((note for note in reversed(notes) if note.event is NoteKind.UNPUBLISHED), None)

    @property
    def failure(self) -> str:
        """Why the run of that note published nothing; empty if there is none."""
        note = self.unpublished
        if note is None:
            return ""
        return note.detail or first_cause(note.units)

    @property
    def last_digest(self) -> str:
        """The digest by which the next decision names the last slot, unless that decision begins or ends a pause."""
        return self.named_by(Action.COMMIT)

    def named_by(self, action: Action) -> str:
        """Return the digest by which the next decision names the last slot; empty if there is none."""
        if self.slots:
            return self.slots[-1].named_by(action)
        return "" if self.snapshot is None else self.snapshot.digest

    @property
    def trimmed(self) -> tuple[TrimmedSlot, ...]:
        """The remainders of the trimmed slots, from 1 on."""
        return self.snapshot.slots if self.snapshot is not None else ()

    def slot(self, number: int) -> Slot:
        """Return a slot by its number.

        :raises IndexError: there is no such slot.
        """
        if 0 < number <= len(self.trimmed):
            return self.trimmed[number - 1].as_slot(self.urn)
        return self.slots[number - len(self.trimmed) - 1]

    def token(self, number: int) -> str:
        """Return the token of a slot.

        :raises IndexError: as `slot`.
        """
        trimmed = 0 < number <= len(self.trimmed)
        return self.trimmed[number - 1].token if trimmed else self.slot(number).decision.token

    def after(self, number: int) -> tuple[Slot, ...]:
        """Return the slots after a number, except trimmed ones."""
        return self.slots[max(0, number - len(self.trimmed)) :]

    def by_token(self, token: str) -> Slot | None:
        """Return the slot that a token took, if any."""
        slot = next((s for s in self.slots if s.decision.token == token), None)
        trimmed = None if slot is not None else next((s for s in self.trimmed if s.token == token), None)
        return slot if trimmed is None else trimmed.as_slot(self.urn)

    def answer(self, run_key: str) -> Slot | None:
        """Return the slot that answers a run key: finished, done, with everything asked for, and not taken back since."""
        mine = (s for s in reversed(self.slots) if s.decision.run_key == run_key)
        trimmed = (s.as_slot(self.urn) for s in reversed(self.trimmed) if s.run_key == run_key)
        return next((s for slots in (mine, trimmed) for s in slots if self._answers(s)), None)

    @property
    def tried(self) -> datetime | None:
        """When a run last decided one of its slots, or noted that it couldn't; used for fairness only."""
        decided = (slot.decision.at for slot in self.slots if slot.decision.run_key)
        notes = (*self.early_notes, *(note for slot in self.slots for note in slot.notes))
        return max((*decided, *(n.at for n in notes if n.event is NoteKind.UNPUBLISHED)), default=None)

    def runs(self) -> Iterator[tuple[UnitSummary, ...]]:
        """Yield the results of the units of each run, published or not, the newest first, as far as they are kept."""
        seen = set[str]()
        recorded = chain.from_iterable(
            (*((n.run_key, n.units) for n in reversed(slot.notes)), (slot.decision.run_key, slot.decision.units))
            for slot in reversed(self.slots)
        )
        for run_key, units in chain(recorded, ((n.run_key, n.units) for n in reversed(self.early_notes))):
            if units and run_key not in seen:
                seen.add(run_key)
                yield units

    def until(self, slot: int) -> History:
        """Return the chain up to a slot that was not trimmed, with the state that it had then."""
        slots = self.slots[: slot - len(self.trimmed)]
        return fold(self.urn, slots, self.early_notes, self.snapshot, self.void)

    def settled(self, kept: int) -> int:
        """Return the number up to which nothing remains to be done for any slot, leaving out the newest few; 0 if there is none.

        :param kept: how many to leave out, at least one.
        """
        number = len(self.trimmed)
        for slot in self.slots[:-kept]:
            if not slot.settled:
                break
            number = slot.decision.slot
        return number

    def _answers(self, slot: Slot) -> bool:
        complete = slot.done and slot.decision.complete and slot.decision.generation == self.state.generation
        return complete and (slot.holds is None or slot.holds.answers_runs)


def take_snapshot(history: History, slot: int, at: datetime) -> Snapshot:
    """Make the snapshot that replaces a chain up to a slot, which isn't trimmed and has ended."""
    past = history.until(slot)
    state = past.state
    following = history.after(slot)
    live = {ref.slot for ref in state.live}
    slots = (replace(s, planned=_missed(s, state)) for s in (*past.trimmed, *map(_trimmed, past.slots)))
    return Snapshot(
        slot=slot,
        urn=history.urn,
        digest=following[0].decision.previous if following else past.last_digest,
        at=at,
        coverage=state.coverage,
        generation=state.generation,
        schema=state.schema,
        previous_units=state.previous_units,
        slots=tuple(s if s.slot in live else replace(s, shards=(), staging=None, target="", folder="") for s in slots),
        unit_slots=tuple(ref.slot for ref in state.live),
        units=tuple(state.live.values()),
        kept_from=state.kept_from,
        paused=state.paused,
        provenance=state.provenance,
        origins=tuple((slot, origin) for slot, origin in state.origins.items() if slot in live),
        spoiled=state.spoiled,
        checkpoints=tuple(state.checkpoints.items()),
        looked=state.looked,
        floor=state.floor,
    )


def _missed(slot: TrimmedSlot, state: DatasetState) -> Range | None:
    """Return what a slot had planned, if a run that it answers may still be missing a part of that."""
    planned = slot.planned
    done = planned is None or state.coverage.covers(planned) or slot.generation != state.generation
    return None if done else planned


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
        holds=slot.holds,
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
        folder=decision.folder,
        replaced=slot.replaced,
        deleted=slot.deleted,
        bytes=slot.bytes,
        planned=decision.planned,
        dead_letters=slot.dead_letters,
        table=decision.table,
        table_version=slot.table_version,
    )


def _good(decision: Decision) -> Iterator[UnitSummary]:
    return (unit for unit in decision.units if unit.state is UnitState.SUCCESSFUL)


def fold(
    urn: str,
    slots: tuple[Slot, ...],
    early_notes: tuple[Note, ...],
    snapshot: Snapshot | None,
    void: tuple[str, ...],
) -> History:
    """Fold a chain into its state. The parameters are those of a `History`."""
    growing = _StateBuilder(previous_units=_unpublished(early_notes))
    if snapshot is not None:
        growing.begin(snapshot)
    for slot in slots:
        growing.take(slot)
    pending = unfinished(slots)
    state = DatasetState(
        urn,
        **vars(growing),
        pending=pending is not None,
        failures=() if pending is None else _failures(pending.notes),
        quarantined=pending is not None and _quarantined(pending.notes),
    )
    return History(urn, slots, early_notes, snapshot, void, state)


def unfinished(slots: Sequence[Slot]) -> Slot | None:
    """Return the slot of a chain whose outcome is missing; only pauses and their ends may follow it."""
    newest = next((slot for slot in reversed(slots) if not slot.decision.action.pauses), None)
    return None if newest is None or newest.finished else newest


@dataclass
class _StateBuilder:
    """A state that is built slot by slot, in place, since there may be many slots and many units."""

    coverage: Coverage = field(default_factory=Coverage)
    generation: int = 0
    head: int = 0
    schema: str | None = None
    live: dict[UnitRef, UnitSummary] = field(default_factory=dict)
    retired: dict[UnitRef, int] = field(default_factory=dict)
    previous_units: tuple[UnitSummary, ...] = ()
    kept_from: Watermark | None = None
    paused: Pause | None = None
    provenance: Provenance | None = None
    origins: dict[int, int] = field(default_factory=dict)
    spoiled: tuple[tuple[int, int], ...] = ()
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    looked: dict[str, int] = field(default_factory=dict)
    floor: int = 0

    def begin(self, snapshot: Snapshot) -> None:
        """Begin with the snapshot that replaces the earlier slots."""
        self.coverage = snapshot.coverage
        self.generation = snapshot.generation
        self.head = snapshot.slot
        self.schema = snapshot.schema
        self.live = snapshot.live
        self.previous_units = snapshot.previous_units
        self.kept_from = snapshot.kept_from
        self.paused = snapshot.paused
        self.provenance = snapshot.provenance
        self.origins = dict(snapshot.origins)
        self.spoiled = snapshot.spoiled
        self.checkpoints = dict(snapshot.checkpoints)
        self.looked = dict(snapshot.looked)
        self.floor = snapshot.floor

    def take(self, slot: Slot) -> None:
        """Add one slot."""
        decision = slot.decision
        self.head = decision.slot
        if decision.kept_from is not None:  # it may have been planned long before
            self.kept_from = highest([decision.kept_from, self.kept_from or decision.kept_from])
        if slot.done:
            self.coverage = decision.coverage_after(self.coverage, self.live)
            self._publish(slot)
            self.generation = decision.generation
            self.looked.update(decision.looked)
            self.floor = max(self.floor, decision.floor)
            self.schema = decision.schema or self.schema
            self.previous_units = decision.units or self.previous_units
            if decision.provenance is not None:
                before = self.provenance or decision.provenance
                self.provenance = before.followed_by(decision.provenance)
            if decision.action is Action.DROP:
                self.schema, self.previous_units, self.kept_from, self.provenance = None, (), None, None
        self.previous_units = _unpublished(slot.notes) or self.previous_units
        if decision.action.pauses:
            begins = decision.action is Action.PAUSE
            self.paused = Pause(decision.actor, decision.reason, decision.at) if begins else None

    def _publish(self, slot: Slot) -> None:
        """Retire the units that a done slot replaces, and add those it publishes."""
        decision = slot.decision
        self._inherit(slot)
        for ref in decision.replaces:
            self.live.pop(ref, None)
            if not slot.noted(NoteKind.CLEANED):
                self.retired[ref] = decision.slot
        if decision.action is Action.DROP:
            self.live.clear()
        if decision.action in (Action.COMMIT, Action.NOOP, Action.IMPORT) and slot.keeps_units:
            for unit in decision.units:
                if unit.state is UnitState.SUCCESSFUL:
                    self.live[UnitRef(decision.slot, unit.unit)] = unit
        if self.checkpoints and (decision.replaces or not self.live):
            live = {ref.slot for ref in self.live}
            self.checkpoints = {number: found for number, found in self.checkpoints.items() if number in live}
        if decision.checkpoint is not None:
            self.checkpoints[decision.slot] = decision.checkpoint

    def _inherit(self, slot: Slot) -> None:
        """Keep whose version a slot's units have, if it replaces others; or else, what it takes something back from.

        A snapshot isn't made in place of the one before, but from what the source has by now: it has a version of its own.
        """
        decision = slot.decision
        retired = (
            self.live if decision.action is Action.DROP else [ref for ref in decision.replaces if ref in self.live]
        )
        oldest = min((self.origins.get(ref.slot, ref.slot) for ref in retired), default=None)
        if oldest is None:
            return
        if decision.action in _TAKING_BACK:
            longer = ((low, high) for low, high in self.spoiled if low < oldest)
            self.spoiled = (*longer, (oldest, decision.slot))
        elif decision.action is not Action.FLOOR and (slot.holds is None or not slot.holds.replaces_all):
            self.origins[decision.slot] = oldest


def _unpublished(notes: tuple[Note, ...]) -> tuple[UnitSummary, ...]:
    return next((n.units for n in reversed(notes) if n.event is NoteKind.UNPUBLISHED and n.units), ())


def _since_release(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    released = [i for i, n in enumerate(notes) if n.event is NoteKind.RELEASED]
    return notes[released[-1] + 1 :] if released else notes


def _failures(notes: tuple[Note, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.run_key for n in _since_release(notes) if n.event is NoteKind.FAILED))


def _quarantined(notes: tuple[Note, ...]) -> bool:
    return any(n.event is NoteKind.QUARANTINED for n in _since_release(notes))
