"""What a person does to a dataset: release, abandon, pause, rewind, set its watermark, drop, import. Each is a record of its
journal.

Every action needs an actor and a reason, and is refused, with nothing changed, where it can't mean what it says. What takes a
slot can be looked at before: `would_rewind` gives a `Change`, and `carry_out` makes it, unless the dataset changed in between.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from airflow_gobblin.claims import Claim, Claims
from airflow_gobblin.commit import Committer, can_win
from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError, RecordError, TargetError
from airflow_gobblin.exported import ExportedDataset, has_state
from airflow_gobblin.files import Files, open_files
from airflow_gobblin.home import Tenant
from airflow_gobblin.inspection import parse_position
from airflow_gobblin.journal import Action, Decision, History, Home, Journal, Note, NoteKind, OutcomeState, Slot, now
from airflow_gobblin.manifest import put_manifests
from airflow_gobblin.naming import many
from airflow_gobblin.plan import Plan
from airflow_gobblin.reading import unknown_dataset
from airflow_gobblin.rewinding import not_kept, widened
from airflow_gobblin.sources.base import Connections
from airflow_gobblin.staging import Staging, staging_folder
from airflow_gobblin.state import UnitRef
from airflow_gobblin.steps import HighWatermarkStep
from airflow_gobblin.sweeping import Sweeper
from airflow_gobblin.trimming import KEPT
from airflow_gobblin.watermark import Watermark, highest, lowest
from airflow_gobblin.work import UnitSummary

_NAMED = 10
"""How many datasets a sentence names."""

__all__ = ["Administration", "Change", "ReleasedClaim"]


@dataclass(frozen=True)
class Change:
    """What an action would do to a dataset, as its journal stands: to be shown, and then to be made.

    It can be made once, and only while the dataset is as it was.

    :param history: the dataset as it is. :param removed: ranges that are open again; :param replaces: units that are retired.
    :param coverage: the whole new coverage, where it isn't what is left without these.
    """

    action: Action
    history: History
    removed: tuple[Range, ...] = ()
    replaces: tuple[UnitRef, ...] = ()
    coverage: Coverage | None = None

    @property
    def urn(self) -> str:
        """The dataset."""
        return self.history.urn

    @property
    def before(self) -> Watermark | None:
        """The watermark as it is."""
        return self.history.state.watermark

    @property
    def after(self) -> Watermark | None:
        """The watermark as it will be."""
        if self.coverage is not None:
            return self.coverage.edge
        left = self.history.state.coverage
        for gone in self.removed:
            left = left.remove(gone)
        return left.edge

    @property
    def retired(self) -> tuple[UnitSummary, ...]:
        """The units that are retired: their files go, their rows are read again or are gone."""
        return tuple(self.history.state.live[ref] for ref in self.replaces)

    @property
    def left(self) -> tuple[UnitSummary, ...]:
        """The units whose files stay where they are, and are nobody's any more."""
        live = self.history.state.live if self.action is Action.DROP else {}
        return tuple(unit for ref, unit in live.items() if ref not in self.replaces)


@dataclass(frozen=True)
class ReleasedClaim:
    """A claim that was released.

    :param slot: the one that notes it in the journal, 0 if the dataset had none yet; `None` if only the chain of claims keeps it:
        the claim was of another journal, or the dataset can't be read in this one.
    """

    claim: Claim
    slot: int | None


class Administration:
    """Audited actions on the datasets of a journal.

    :param target: the target root, as the sink has it or as files. :param actor: who acts.
    :param connections: where an object store's secrets come from, if the target names a connection.
    :raises ConfigurationError: the target can't be one.
    """

    def __init__(
        self, journal: Journal, target: str | Files, actor: str, connections: Connections | None = None
    ) -> None:
        self.journal = journal
        self._files: Files = open_files(target, connections) if isinstance(target, str) else target
        self._actor = actor
        self._claims = Claims(self._files)
        # How long replaced files stay is the ingestion's affair.
        self._committer = Committer(journal, self._files, retention=None)
        self._homes = self._committer.homes

    @property
    def root(self) -> str:
        """The target root, without the connection."""
        return self._files.root

    @property
    def lost(self) -> str:
        """Why the target is taken to have lost what was published there, if it has; empty otherwise."""
        try:
            self._homes.check_mark()
        except TargetError as error:
            return error.why or str(error)
        return ""

    def quarantined(self, urn: str) -> Slot:
        """The slot for which a dataset is quarantined. :raises ConfigurationError: it isn't."""
        found = self._stuck(urn)
        if found is None:
            raise self._refused(
                "release",
                urn,
                "it is not quarantined",
                "There is nothing to release: its next run goes on. `airflow gobblin pending` shows what is unfinished.",
            )
        return found

    def _stuck(self, urn: str) -> Slot | None:
        history = self._known(urn)
        return history.pending if history.state.quarantined else None

    def release(self, urn: str, reason: str, slot: int | None = None) -> None:
        """Let a quarantined dataset be recovered again.

        :param slot: the slot that is meant; `None` for whichever it is.
        :raises ConfigurationError: it isn't quarantined. :raises LostRaceError: the slot was ended or released just now.
        """
        self._check_told(urn, reason)
        if slot is None:
            slot = self.quarantined(urn).decision.slot
        elif (stuck := self._stuck(urn)) is None or stuck.decision.slot != slot:
            raise self._not_released(urn, slot, "it is not quarantined any more")
        self.journal.put_note(urn, slot, Note(NoteKind.RELEASED, "", now(), reason, actor=self._actor))
        outcome = self.journal.outcome(urn, slot)
        if outcome is not None and outcome.state is OutcomeState.ABANDONED:
            by = f" by {outcome.actor}" if outcome.actor else ""
            raise self._not_released(urn, slot, f"it was abandoned{by} in this moment")

    def _not_released(self, urn: str, slot: int, why: str) -> LostRaceError:
        return LostRaceError(
            operation="release",
            subject=f"slot {slot} of dataset {urn!r}",
            cause=why,
            hint="Look at it again; what an abandoned slot covered is planned anew by the next run.",
        )

    def pause(self, urn: str, reason: str) -> None:
        """Let nothing new of a dataset be planned or decided, until it is resumed. What is decided is still finished.

        :raises ConfigurationError: it is paused already.
        """
        self._note_pause(urn, reason, NoteKind.PAUSED)

    def resume(self, urn: str, reason: str) -> None:
        """Let a paused dataset go on where it stopped. :raises ConfigurationError: it isn't paused."""
        self._note_pause(urn, reason, NoteKind.RESUMED)

    def would_pause(self, urn: str, says: NoteKind) -> History:
        """The dataset that would be paused or resumed. :raises ConfigurationError: it is already."""
        history = self._known(urn)
        paused = history.state.paused
        if says is NoteKind.PAUSED and paused is not None:
            raise self._refused("pause", urn, f"it is {paused}", "It stays so until it is resumed.")
        if says is NoteKind.RESUMED and paused is None:
            raise self._refused("resume", urn, "it is not paused", "Its next run goes on.")
        return history

    def _note_pause(self, urn: str, reason: str, says: NoteKind) -> None:
        """Note it on the newest slot; and once more if meanwhile others came that it could be trimmed with."""
        self._check_told(urn, reason)
        history = self.would_pause(urn, says)
        slot = history.state.head
        while True:
            self.journal.put_note(urn, slot, Note(says, "", now(), reason, actor=self._actor))
            state = self.journal.history(urn).state
            overtaken = state.head > slot and (state.paused is not None) is not (says is NoteKind.PAUSED)
            if not overtaken and state.head - slot < KEPT:
                return
            slot = state.head

    def would_abandon(self, urn: str) -> Slot | tuple[str, ...]:
        """What there is to give up: the pending slot, or the tokens of the plans that could still be decided.

        :raises ConfigurationError: there is nothing.
        """
        history = self._known(urn, new=True, lost=True)
        if history.pending is not None:
            return history.pending
        staging = Staging(self._files, staging_folder(self.journal.ingestion, self.journal.id))
        plans = ((token, plan) for token, plan in staging.plans() if isinstance(plan, Plan) and plan.urn == urn)
        tokens = tuple(token for token, plan in plans if can_win(plan, history))
        if not tokens:
            raise self._refused(
                "abandon",
                urn,
                "no slot is pending, and no plan is open",
                "`airflow gobblin pending` shows what is unfinished; what is done is taken back by a rewind.",
            )
        return tokens

    def abandon(self, urn: str, reason: str, slot: int | None = None) -> tuple[Slot, ...]:
        """Give up the pending slot: what it published is taken back, and its range is open again.

        Where nothing is pending, plans that could still be decided are aborted instead.

        :param slot: the slot that is meant, 0 for the plans; `None` for what there is, whichever it is.
        :return: the slot as it ended, or for each plan the slot that aborts it.
        :raises ConfigurationError: there is nothing to abandon. :raises LostRaceError: it was done just now.
        """
        self._check_told(urn, reason)
        pending = self._known(urn, new=True, lost=True).pending
        if slot is not None and slot != (0 if pending is None else pending.decision.slot):
            raise self._not_abandoned(urn, slot)
        if pending is None:
            return self._abort_plans(urn, reason)
        outcome = self.journal.put_outcome(pending, OutcomeState.ABANDONED, "", self._actor, reason)
        if outcome.state is not OutcomeState.ABANDONED:
            raise self._not_abandoned(urn, pending.decision.slot)
        with suppress(TargetError):  # what is lost needs no cleaning; what comes back is cleaned by the next run
            self._committer.clean(self.journal.history(urn), "")
        return (replace(pending, outcome=outcome),)

    def _not_abandoned(self, urn: str, slot: int) -> LostRaceError:
        return LostRaceError(
            operation="abandon",
            subject=f"slot {slot} of dataset {urn!r}" if slot else f"the open plans of dataset {urn!r}",
            cause="it was finished in this moment" if slot else "one of them was decided in this moment",
            hint="Look at it again; what is done is taken back by a rewind.",
        )

    def _abort_plans(self, urn: str, reason: str) -> tuple[Slot, ...]:
        tokens = self.would_abandon(urn)
        if isinstance(tokens, Slot):
            raise self._not_abandoned(urn, tokens.decision.slot)
        slots: list[Slot] = []
        for token in tokens:
            try:
                slots.append(
                    self._decide(Change(Action.ABORT, self._finished(urn, new=True, lost=True)), reason, token)
                )
            except GobblinError as error:
                if slots:
                    were = "was" if len(slots) == 1 else "were"
                    error.add_note(f"Before that, {len(slots)} of {many(len(tokens), 'plan')} {were} aborted.")
                raise
        return tuple(slots)

    def position(self, urn: str, text: str) -> Watermark:
        """A position to rewind to, as people write it; of several, `null` is one that stays where it is.

        :raises ConfigurationError: it can't be read, or the dataset has none.
        """
        return parse_position(text, self._covered(self._known(urn)).high)

    def _covered(self, history: History) -> Range:
        """From where a dataset starts to the highest position that is covered."""
        coverage = history.state.coverage
        if coverage.origin is None or coverage.end is None:
            raise self._refused(
                "rewind",
                history.urn,
                "it has no positions: nothing is covered yet, or it is a snapshot",
                "There is nothing to move back: its next run reads all of it.",
            )
        return Range(coverage.origin, coverage.end)

    def would_rewind(self, urn: str, to: Watermark, *, lossy: bool = False) -> Change:
        """Take back everything from a position on: it is extracted and published anew.

        The position is widened to the bounds of units, which are retired whole; the slot names them. Plans made before lose.

        :param lossy: also take back rows that the source doesn't have any more: they are lost.
        :raises ConfigurationError: the dataset has no positions, `to` is outside what is covered, or rows would be lost.
        """
        history = self._finished(urn)
        state, covered = history.state, self._covered(history)
        self._check_kind("rewind", urn, to, covered.high)
        to = lowest([Range(to, covered.high).low, covered.high])
        asked = Range(to, covered.high)
        if asked.empty or not Range(to, covered.low).empty:
            raise self._refused("rewind", urn, f"{asked} is not within what is covered, {covered}", _way_back(covered))
        low, retired = widened(to, {ref: unit.range for ref, unit in state.live.items() if unit.range is not None})
        if not lossy:
            self._check_kept(history, retired, covered)
        return Change(Action.REWIND, history, removed=(Range(low, covered.high),), replaces=retired)

    def _check_kept(self, history: History, retired: Iterable[UnitRef], covered: Range) -> None:
        """What the source has removed since it was published can't be extracted anew, so it is to stay published."""
        removed = not_kept(history, retired)
        if removed:
            high = highest([part.high for part in removed])
            back = (
                f"Give a position from {_said(high)} on"
                if not Range(high, covered.high).empty
                else "There is no position that it could go back to"
            )
            raise self._refused(
                "rewind",
                history.urn,
                f"it would retire {many(len(removed), 'unit')} before {_said(high)} of which the source has removed or changed "
                f"rows since: it had those from {_said(history.state.kept_from)} on when it was last planned",
                f"Nothing was changed. {back}; or take back all the same what can't be published anew: "
                "`airflow gobblin rewind … --lossy`.",
            )

    def rewind(self, urn: str, to: Watermark, reason: str, *, lossy: bool = False) -> Slot:
        """Do what `would_rewind` says."""
        return self.carry_out(self.would_rewind(urn, to, lossy=lossy), reason)

    def would_set_watermark(self, urn: str, to: Watermark) -> Change:
        """Move the watermark forward without ingesting: what lies between counts as covered, and is never read.

        For a dataset without history it is where the first load starts. Plans made before lose.

        :raises ConfigurationError: it would move back (rewind does that), or is of another kind.
        """
        history = self._finished(urn, new=True)
        state = history.state
        edge = state.watermark
        if edge is None and state.live:
            raise self._refused(
                "set the watermark of",
                urn,
                "it is a snapshot, and has no positions",
                "There is nothing to skip: each run reads all of it, and replaces what is published.",
            )
        if edge is None or state.coverage.origin is None:
            return Change(Action.SET, history, coverage=Coverage().starting_at(to))
        self._check_kind("set the watermark of", urn, to, edge)
        if not edge < to:
            raise self._refused(
                "set the watermark of",
                urn,
                f"{_said(to)} is not ahead of its watermark {_said(edge)}",
                f"It only moves on: give a position after that. What is covered can be taken back by a rewind. "
                f"{_way_back(Range(state.coverage.origin, state.coverage.end or edge))}",
            )
        return Change(Action.SET, history, coverage=state.coverage.filled(Range(edge, to)))

    def set_watermark(self, urn: str, to: Watermark, reason: str) -> Slot:
        """Do what `would_set_watermark` says."""
        return self.carry_out(self.would_set_watermark(urn, to), reason)

    def would_drop(self, urn: str, *, delete_files: bool = False) -> Change:
        """Forget a dataset: its coverage is empty, no file is live, and its target is free for others.

        :param delete_files: its published files are retired and removed by clean-up; otherwise they stay where they are.
        """
        history = self._finished(urn, lost=not delete_files)
        retired = tuple(sorted(history.state.live)) if delete_files else ()
        return Change(Action.DROP, history, coverage=Coverage(), replaces=retired)

    def would_drop_all(self, *, delete_files: bool = False) -> tuple[Change, ...]:
        """Forget all datasets of the ingestion, each by a slot of its own.

        What was dropped before is left out, and a drop that was stopped in its middle is ended.

        :raises ConfigurationError: datasets have another slot that is pending. :raises RecordError: one can't be read.
        """
        histories: dict[str, History] = {}
        for _, found in self.journal.histories():
            if isinstance(found, GobblinError):
                raise found
            histories[found.urn] = found
        claimed = {claim.urn for claim in self._claims.standing().values() if self._is_ours(claim)}
        stuck = sorted(urn for urn, found in histories.items() if found.pending is not None and not _is_drop(found))
        if stuck:
            more = f" and {len(stuck) - _NAMED} more" if len(stuck) > _NAMED else ""
            raise ConfigurationError(
                operation="drop",
                subject=f"all datasets of ingestion {self.journal.ingestion!r}",
                cause=f"a slot is pending of {', '.join(map(repr, stuck[:_NAMED]))}{more}",
                hint="Nothing was changed. Let the next run finish it, or abandon it.",
            )
        histories |= {urn: History(urn) for urn in claimed - histories.keys()}
        changes = (
            Change(Action.DROP, found, coverage=Coverage())
            if found.pending is not None or not found.state.head
            else self.would_drop(urn, delete_files=delete_files)
            for urn, found in sorted(histories.items())
            if urn in claimed or found.pending is not None or has_state(found)
        )
        return tuple(changes)

    def after_drop_all(self) -> tuple[str, ...]:
        """Do what a run would have done at its end, for there may be none any more: remove what the drops retired, and staging.

        :return: a sentence for every file that was left because somebody changed it.
        """
        committer = Committer(self.journal, self._files, retention=timedelta(0))
        left: list[str] = []
        for _, found in self.journal.histories():
            if isinstance(found, History) and not self._give_up_what_is_lost(found):
                left += committer.clean(found, "")
        staging = Staging(self._files, staging_folder(self.journal.ingestion, self.journal.id))
        Sweeper(self.journal, staging, self._claims).sweep()
        return tuple(left)

    def _is_ours(self, claim: Claim) -> bool:
        return claim.owner[:2] == (self.journal.id, self.journal.ingestion)

    def drop(self, urn: str, reason: str, *, delete_files: bool = False) -> Slot:
        """Do what `would_drop` says."""
        return self.carry_out(self.would_drop(urn, delete_files=delete_files), reason)

    def would_import(self, state: ExportedDataset) -> Change:
        """Take over what another journal or tool knows of a dataset: what it covered is covered here, and never read.

        Published files stay the other's: a file belongs to one slot of one journal, or clean-up might remove what is live
        elsewhere. Plans made before lose.

        :raises ConfigurationError: the dataset has published files or covered ranges, which the state would contradict; or the
            state names published files.
        """
        history = self._finished(state.urn, new=True)
        if has_state(history):
            raise self._refused(
                "import",
                state.urn,
                f"it has a history of {many(history.state.head, 'slot')}, and its watermark is {_said(history.state.watermark)}",
                "Drop the dataset first, if what is imported is to stand in its place; "
                "set-watermark and rewind change one that goes on.",
            )
        if any(unit.files for unit in state.units):
            raise self._refused(
                "import",
                state.urn,
                "its state names published files, and these can't be taken over",
                "Import it without them (--without-files): what they cover isn't read again, and readers of this journal don't "
                "see them.",
            )
        return Change(Action.IMPORT, history, coverage=state.covered)

    def has_imported(self, state: ExportedDataset) -> bool:
        """Whether a dataset has come to what a state says, and no farther: to import it again would change nothing."""
        history = self.journal.history(state.urn)
        ended = history.pending is None and has_state(history) and not history.state.live
        return ended and history.state.coverage == state.covered

    def import_state(self, state: ExportedDataset, reason: str) -> Slot:
        """Do what `would_import` says."""
        return self.carry_out(self.would_import(state), reason)

    def carry_out(self, change: Change, reason: str) -> Slot:
        """Make a change: it takes the dataset's next slot.

        :return: the slot, done. :raises LostRaceError: the dataset changed since; nothing was done.
        :raises ConfigurationError: there is no reason.
        """
        self._check_told(change.urn, reason)
        if change.history.pending is None:
            slot = self._decide(change, reason)
        else:  # a drop that was stopped in its middle
            slot = self._committer.execute(change.history.pending, "")
        if change.action is Action.DROP:
            for folder in self._claimed(change.urn):
                self._claims.release(folder, self._actor, reason, generation=slot.decision.generation)
            self._give_up_what_is_lost(self.journal.history(change.urn))
        return slot

    def _give_up_what_is_lost(self, history: History) -> bool:
        """Note, where a target has lost what was there, that nothing is left to be cleaned up: else it is waited for for ever.

        :return: whether it is lost.
        """
        why = self.lost
        for slot in history.slots if why else ():
            if slot.finished and slot.leaves_files and not slot.noted(NoteKind.CLEANED):
                note = Note(NoteKind.CLEANED, "", now(), f"left, for {why}", actor=self._actor)
                self.journal.put_note(history.urn, slot.decision.slot, note)
        return bool(why)

    def claim(self, folder: str) -> Claim:
        """The claim on a folder below the target root. :raises ClaimError: nobody claims it."""
        return self._claims.on(folder)

    def release_claim(self, folder: str, reason: str, claim: Claim | None = None) -> ReleasedClaim:
        """Free a folder below the target root that a lost journal or a dropped ingestion claims.

        The chain of claims keeps who did it and why, and so does the journal, if the claim is of it.

        :param claim: the one that is meant; `None` for whichever it is. :raises ClaimError: nobody claims it, or somebody else.
        :raises ConfigurationError: a slot of the dataset is pending, which would be published to a folder that is another's.
        :raises LostRaceError: one was decided in this moment; it is claimed again.
        """
        claim = claim or self.claim(folder)
        self._check_told(claim.urn, reason)
        self._claims.check_stands(claim)
        if (pending := self._pending_below(claim)) is not None:
            raise self._refused(
                "release the claim of",
                claim.urn,
                f"slot {pending.decision.slot} is pending, and is to be published to {folder!r}",
                "Let the next run finish it, or abandon it; then release the claim.",
            )
        # The note first: what dies in between is told once too often, and can be done again. A claim that is gone can't be
        # released again, and the journal would never tell of it.
        slot = self._note_release(claim, reason)
        released = ReleasedClaim(self._claims.release(folder, self._actor, reason, claim), slot)
        # Whoever decides looks at the claim after that, and whoever releases looks at the slots: so one sees the other.
        if (pending := self._pending_below(claim)) is not None:
            journal = Journal(self.journal.store, claim.ingestion, claim.journal)
            self._claims.check(journal, claim.urn, folder, journal.state(claim.urn))
            raise LostRaceError(
                operation="release",
                subject=f"the claim on {folder!r} below {self._files.root}",
                cause=f"slot {pending.decision.slot} of dataset {claim.urn!r} was decided in this moment; it is claimed again",
                hint="Let the next run finish the slot, or abandon it; then release the claim.",
            )
        return released

    def _pending_below(self, claim: Claim) -> Slot | None:
        """The slot that is to be published to a claimed folder, as far as this journal knows."""
        if claim.journal != self.journal.id:
            return None
        try:
            return Journal(self.journal.store, claim.ingestion, claim.journal).history(claim.urn).pending
        except RecordError:  # lost as it is here, it may be to go on elsewhere
            return None

    def _note_release(self, claim: Claim, reason: str) -> int | None:
        if claim.owner != (self.journal.id, self.journal.ingestion, claim.urn):
            return None
        try:
            slot = self.journal.history(claim.urn).state.head
        except RecordError:  # lost as it is here, it may be to go on elsewhere
            return None
        note = Note(NoteKind.CLAIM_RELEASED, "", now(), reason, actor=self._actor)
        self.journal.put_note(claim.urn, slot, note)
        return slot

    def would_move(self) -> Home:
        """The home of the ingestion as it is, if the target holds all that is published there: it was copied, with `_gobblin`.

        :raises ConfigurationError: nothing was planned yet, a slot is pending, or files are missing.
        :raises TargetError: the target lacks the mark of the home.
        """
        return self._homes.would_move()

    def move(self, home: Home, reason: str, tenant: Tenant | None = None) -> Home:
        """Let the ingestion go on at the target, and as whose it says, with all that was published.

        :param home: what `would_move` gave. :param tenant: the DAG and its source from now on; by default as they were.
        :raises LostRaceError: somebody else moved it meanwhile. :raises ConfigurationError: there is no reason.
        """
        if not reason.strip() or not self._actor:
            raise ConfigurationError(
                operation="move",
                subject=f"ingestion {self.journal.ingestion!r}",
                cause="an actor and a reason are needed",
                hint="Say who does it, and why.",
            )
        return self._homes.move(home, tenant or Tenant(), self._actor, reason)

    def _check_told(self, urn: str, reason: str) -> None:
        if not reason.strip() or not self._actor:
            raise self._refused("change", urn, "an actor and a reason are needed", "Say who does it, and why.")

    def _known(self, urn: str, *, new: bool = False, lost: bool = False) -> History:
        """A dataset's history. :param new: it may have none. :param lost: its target may have lost what was there."""
        self._homes.check_mark(lost=lost)
        history = self.journal.history(urn)
        if not history.known and not new:
            raise unknown_dataset(self.journal, urn)
        return history

    def _claimed(self, urn: str) -> tuple[str, ...]:
        owner = (self.journal.id, self.journal.ingestion, urn)
        return tuple(folder for folder, claim in self._claims.standing().items() if claim.owner == owner)

    def _finished(self, urn: str, *, new: bool = False, lost: bool = False) -> History:
        history = self._known(urn, new=new, lost=lost)
        if history.pending is not None:
            raise self._refused(
                "change",
                urn,
                f"slot {history.pending.decision.slot} is pending",
                "It is quarantined: release it, and the next run tries to finish it; or abandon it."
                if history.state.quarantined
                else "Let the next run finish it, or abandon it; `airflow gobblin pending` shows what is unfinished.",
            )
        return history

    def _decide(self, change: Change, reason: str, token: str | None = None) -> Slot:
        history, action = change.history, change.action
        urn = history.urn
        steps = (HighWatermarkStep(change.after),) if action.needs_outcome else ()
        token = token or uuid.uuid4().hex
        shards, count = self.journal.put_shards(urn, token, steps)
        mine = Decision(
            slot=history.state.head + 1,
            action=action,
            urn=urn,
            token=token,
            run_key="",
            generation=history.state.generation + (action is not Action.ABORT),
            previous=history.last_digest,
            at=now(),
            removed=change.removed,
            replaces=change.replaces,
            coverage=change.coverage,
            shards=shards,
            steps=count,
            target=self._files.root,
            actor=self._actor,
            reason=reason,
        )
        self.journal.put_decision(mine)
        history = self.journal.history(urn)
        slot = history.by_token(mine.token)
        if slot is None or slot.decision.action is not action:
            other = history.slot(mine.slot).decision
            raise LostRaceError(
                operation=action.value,
                subject=f"dataset {urn!r}",
                cause=f"slot {other.slot} was taken by a {other.action.value} in this moment; nothing was changed",
                hint="Look at the dataset again, and repeat it if it is still what you want.",
            )
        done = self._committer.execute(slot, "")
        put_manifests(self._files, self.journal, self.journal.history(urn))
        return done

    def _check_kind(self, operation: str, urn: str, to: Watermark, known: Watermark) -> None:
        if to.kind != known.kind:
            raise self._refused(
                operation,
                urn,
                f"its watermark is of kind {known.kind!r} and not {to.kind!r}",
                f"Give a position of that kind: its watermark is {_said(known)}.",
            )

    def _refused(self, operation: str, urn: str, why: str, hint: str) -> ConfigurationError:
        return ConfigurationError(
            operation=operation,
            subject=f"dataset {urn!r} of ingestion {self.journal.ingestion!r}",
            cause=why,
            hint=hint,
        )


def _is_drop(history: History) -> bool:
    """Whether the pending slot of a dataset drops it."""
    return history.pending is not None and history.pending.decision.action is Action.DROP


def _way_back(covered: Range) -> str:
    """To where one can rewind, and what to do about what lies before."""
    back = (
        f"Nothing can be taken back: it starts at {_said(covered.low)}, and nothing from there on is covered"
        if covered.empty
        else f"Give a position from {_said(covered.low)} to before {_said(covered.high)}"
    )
    return (
        f"{back}; what lies before the start is filled by a backfill of that range. To start elsewhere, drop the dataset and "
        "set its watermark anew."
    )


def _said(watermark: Watermark | None) -> str:
    return "none" if watermark is None else json.dumps(watermark.to_json())
