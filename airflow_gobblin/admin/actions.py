"""Actions of people on a dataset: release, abandon, pause, rewind, set its watermark, drop, import, take its table over. Each is
a record of its journal.

Every action needs an actor and a reason. An action that doesn't fit the dataset's state is refused, and changes nothing. Those
that take a slot can be previewed: `would_rewind` returns a `Change`, and `carry_out` makes it unless the dataset changed since.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_gobblin.admin.export import NO_UNITS, ExportedDataset, has_state
from airflow_gobblin.admin.rewind_extent import not_kept, widened
from airflow_gobblin.admin.views import parse_position
from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.commit.homes import Tenant
from airflow_gobblin.commit.preconditions import can_win
from airflow_gobblin.commit.sweeping import Sweeper
from airflow_gobblin.commit.taking_out import DatasetTables
from airflow_gobblin.connections import Connections, GuardedConnections, NoConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError, RecordError, TargetError
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import unknown_dataset
from airflow_gobblin.journal.records import Action, Decision, Home, Note, NoteKind, OutcomeState, now
from airflow_gobblin.journal.seals import content
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import dataset_key, many
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.table import TableRecord, TableTarget
from airflow_gobblin.model.watermark import Watermark, highest, lowest
from airflow_gobblin.model.work import UnitSummary
from airflow_gobblin.steps.base import HighWatermarkStep
from airflow_gobblin.storage.files import Files, open_files
from airflow_gobblin.tables.take_over import TableTakeOverStep
from airflow_gobblin.workspace.claims import Claim
from airflow_gobblin.workspace.manifests import put_manifests
from airflow_gobblin.workspace.staging import Staging, staging_folder

_NAMED = 10
"""The most datasets that a sentence names."""

__all__ = ["Administration", "Change", "ReleasedClaim"]


@dataclass(frozen=True)
class Change:
    """The effect that an action would have on a dataset in its present state: to be shown, then made.

    It can be made once, and only while the dataset is unchanged.

    :param history: the dataset as it is.
    :param removed: ranges that become open again.
    :param replaces: units that are retired.
    :param coverage: the whole new coverage, if it isn't simply the old one without `removed`.
    :param takes: the step that takes a table over.
    """

    action: Action
    history: History
    removed: tuple[Range, ...] = ()
    replaces: tuple[UnitRef, ...] = ()
    coverage: Coverage | None = None
    takes: TableTakeOverStep | None = None

    @property
    def urn(self) -> str:
        """The dataset."""
        return self.history.urn

    @property
    def before(self) -> Watermark | None:
        """The watermark before the change."""
        return self.history.state.watermark

    @property
    def after(self) -> Watermark | None:
        """The watermark after the change."""
        state = self.history.state
        return self.decision().coverage_after(state.coverage, state.live).edge

    def decision(self, token: str = "", target: str = "", actor: str = "", reason: str = "") -> Decision:
        """Return the decision that makes the change, in the next slot, still without steps."""
        history, action = self.history, self.action
        return Decision(
            slot=history.state.head + 1,
            action=action,
            urn=history.urn,
            token=token,
            run_key="",
            generation=history.state.generation + action.counts,
            previous=history.named_by(action),
            at=now(),
            removed=self.removed,
            replaces=self.replaces,
            coverage=self.coverage,
            target=target,
            actor=actor,
            reason=reason,
        )

    @property
    def retired(self) -> tuple[UnitSummary, ...]:
        """The units that are retired: their files are removed, their rows are read again or are gone."""
        return tuple(self.history.state.live[ref] for ref in self.replaces)

    @property
    def versions(self) -> tuple[datetime, ...]:
        """The versions of a stage that are taken back."""
        checkpoints, slots = self.history.state.checkpoints, {ref.slot for ref in self.replaces}
        return tuple(sorted(checkpoints[slot].version for slot in slots if slot in checkpoints))

    @property
    def left(self) -> tuple[UnitSummary, ...]:
        """The units whose files stay in place and no longer belong to any dataset."""
        live = self.history.state.live if self.action is Action.DROP else {}
        return tuple(unit for ref, unit in live.items() if ref not in self.replaces)


@dataclass(frozen=True)
class ReleasedClaim:
    """A claim that was released.

    :param slot: the slot whose notes record it in the journal, 0 if the dataset had none yet; `None` if only the chain of claims
        records it: the claim was of another journal, or the dataset can't be read in this one.
    """

    claim: Claim
    slot: int | None


class Administration:
    """Audited actions on the datasets of a journal.

    :param target: the target root, as the sink has it or as files.
    :param actor: the person who acts.
    :param connections: the source of secrets: of an object store, if the target names a connection, and of the steps to be
        abandoned or cleaned up.
    :raises ConfigurationError: the target isn't valid.
    """

    def __init__(
        self, journal: Journal, target: str | Files, actor: str, connections: Connections | None = None
    ) -> None:
        self.journal = journal
        self._files: Files = open_files(target, connections) if isinstance(target, str) else target
        self._actor = actor
        self._connections = None if connections is None else GuardedConnections(connections)
        # The ingestion decides how long replaced files stay.
        self._committer = Committer(journal, self._files, retention=None, connections=self._connections)
        self._tables = DatasetTables(journal, self._files, self._connections or GuardedConnections(NoConnections()))
        self._homes = self._committer.homes
        self._claims = self._committer.claims

    @property
    def root(self) -> str:
        """The target root, without the connection."""
        return self._files.root

    @property
    def lost(self) -> str:
        """The reason why the target counts as having lost what was published there; empty if it hasn't."""
        try:
            self._homes.check_mark()
        except TargetError as error:
            return error.why or str(error)
        return ""

    def quarantined(self, urn: str) -> Slot:
        """Return the slot for which a dataset is quarantined.

        :raises ConfigurationError: it isn't quarantined.
        """
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

        :param slot: the slot that is meant; `None` for any.
        :raises ConfigurationError: it isn't quarantined.
        :raises LostRaceError: the slot was ended or released just now.
        """
        self._check_reason(urn, reason)
        if slot is None:
            slot = self.quarantined(urn).decision.slot
        elif (stuck := self._stuck(urn)) is None or stuck.decision.slot != slot:
            raise self._not_released(urn, slot, "it is not quarantined any more")
        self.journal.put_note(urn, slot, Note(NoteKind.RELEASED, "", now(), reason, actor=self._actor))
        outcome = self.journal.outcome(urn, slot)
        if outcome is not None and outcome.state is OutcomeState.ABANDONED:
            by = f" by {outcome.actor}" if outcome.actor else ""
            raise self._not_released(urn, slot, f"it was abandoned{by} just now")

    def _not_released(self, urn: str, slot: int, why: str) -> LostRaceError:
        return LostRaceError(
            operation="release",
            subject=f"slot {slot} of dataset {urn!r}",
            cause=why,
            hint="Look at it again; the next run plans anew what an abandoned slot covered.",
        )

    def pause(self, urn: str, reason: str) -> Slot:
        """Pause a dataset: nothing new is planned or decided until it is resumed. A pending slot is still finished.

        The pause takes the next slot, even after a pending one: a run that is deciding just then finds its slot taken.

        :return: that slot.
        :raises ConfigurationError: it is paused already.
        """
        return self._pause_or_resume(Action.PAUSE, urn, reason)

    def resume(self, urn: str, reason: str) -> Slot:
        """Let a paused dataset go on where it stopped.

        :return: the slot that ends the pause.
        :raises ConfigurationError: it isn't paused.
        """
        return self._pause_or_resume(Action.RESUME, urn, reason)

    def would_pause(self, urn: str) -> Change:
        """Preview a pause.

        :raises ConfigurationError: it is paused already.
        """
        history = self._known(urn, newest=True)
        if history.state.paused is not None:
            raise self._refused("pause", urn, f"it is {history.state.paused}", "It stays so until it is resumed.")
        return Change(Action.PAUSE, history)

    def would_resume(self, urn: str) -> Change:
        """Preview the end of a pause.

        :raises ConfigurationError: it isn't paused.
        """
        history = self._known(urn, newest=True)
        if history.state.paused is None:
            raise self._refused("resume", urn, "it is not paused", "Its next run goes on.")
        return Change(Action.RESUME, history)

    def _pause_or_resume(self, action: Action, urn: str, reason: str) -> Slot:
        """Take the next slot that is free, whatever others decide meanwhile, unless they did the same."""
        self._check_reason(urn, reason)
        while True:
            change = self.would_pause(urn) if action is Action.PAUSE else self.would_resume(urn)
            with suppress(LostRaceError):
                return self._decide(change, reason)

    def would_abandon(self, urn: str) -> Slot | tuple[str, ...]:
        """Return what could be abandoned: the pending slot, or the tokens of the plans that could still be decided.

        :raises ConfigurationError: there is nothing to abandon.
        """
        history = self._known(urn, new=True, lost=True)
        if history.pending is not None:
            return history.pending
        staging = Staging(self._files, staging_folder(self.journal.ingestion, self.journal.id))
        plans = ((token, plan) for token, plan in staging.plans() if isinstance(plan, Plan) and plan.urn == urn)
        tokens = tuple(token for token, plan in plans if can_win(plan, history))
        if not tokens:
            if not history.known:
                raise unknown_dataset(self.journal, urn)
            raise self._refused(
                "abandon",
                urn,
                "no slot is pending, and no plan is open",
                "`airflow gobblin pending` shows what is unfinished; a rewind takes back what is done.",
            )
        return tokens

    def abandon(self, urn: str, reason: str, slot: int | None = None) -> tuple[Slot, ...]:
        """Abandon the pending slot: everything that it published is taken back, and its range is open again.

        If nothing is pending, plans that could still be decided are aborted instead.

        :param slot: the slot that is meant, 0 for the plans; `None` for whichever there is.
        :return: the slot as it ended, or for each plan the slot that aborts it.
        :raises ConfigurationError: there is nothing to abandon.
        :raises LostRaceError: it was finished or decided just now.
        """
        self._check_reason(urn, reason)
        pending = self._known(urn, new=True, lost=True).pending
        if slot is not None and slot != (0 if pending is None else pending.decision.slot):
            raise self._not_abandoned(urn, slot)
        if pending is None:
            return self._abort_plans(urn, reason)
        ended = self._committer.abandon(pending, "", self._actor, reason)
        if not ended.abandoned:
            raise self._not_abandoned(urn, pending.decision.slot)
        # Lost files need no cleaning; files that come back, or are reachable by another path, are cleaned by the next run.
        with suppress(TargetError, ConfigurationError):
            self._committer.cleanup.clean(self.journal.history(urn), "")
        return (ended,)

    def _not_abandoned(self, urn: str, slot: int) -> LostRaceError:
        return LostRaceError(
            operation="abandon",
            subject=f"slot {slot} of dataset {urn!r}" if slot else f"the open plans of dataset {urn!r}",
            cause="it was finished just now" if slot else "one of them was decided just now",
            hint="Look at it again; a rewind takes back what is done.",
        )

    def _abort_plans(self, urn: str, reason: str) -> tuple[Slot, ...]:
        tokens = self.would_abandon(urn)
        if isinstance(tokens, Slot):
            raise self._not_abandoned(urn, tokens.decision.slot)
        slots: list[Slot] = []
        for token in tokens:
            try:
                slots.append(self._decide(Change(Action.ABORT, self.finished(urn, new=True, lost=True)), reason, token))
            except GobblinError as error:
                if slots:
                    were = "was" if len(slots) == 1 else "were"
                    error.add_note(f"Before that, {len(slots)} of {many(len(tokens), 'plan')} {were} aborted.")
                raise
        return tuple(slots)

    def position(self, urn: str, text: str) -> Watermark:
        """Parse a position to rewind to, as people write it; among several, `null` is one that stays as it is.

        :raises ConfigurationError: it can't be read, or the dataset has no positions.
        """
        return parse_position(text, self._covered(self._known(urn)).high)

    def _covered(self, history: History) -> Range:
        """Return the range from a dataset's start to its highest covered position."""
        coverage = history.state.coverage
        if not history.keeps_units:
            raise self._refused(
                "rewind", history.urn, NO_UNITS, "Fix the source: the next run makes the target equal to it."
            )
        if history.holds is Holds.VERSIONS:
            hint = "Give the version to go back to: `airflow gobblin pipeline rewind`."
            raise self._refused("rewind", history.urn, "it is a stage, and has versions instead of positions", hint)
        if coverage.origin is None or coverage.end is None:
            raise self._refused(
                "rewind",
                history.urn,
                "it has no positions: nothing is covered yet, or it is a snapshot",
                "There is nothing to move back: its next run reads all of it.",
            )
        return Range(coverage.origin, coverage.end)

    def would_rewind(self, urn: str, to: Watermark, *, lossy: bool = False) -> Change:
        """Preview a rewind: everything from a position on is taken back, then extracted and published anew.

        The position is widened to the bounds of units, which are retired whole; the slot names them. Earlier plans lose.

        :param lossy: also take back rows that the source no longer has: they are lost.
        :raises ConfigurationError: the dataset has no positions, `to` is outside its coverage, or rows would be lost.
        """
        history = self.finished(urn)
        state, covered = history.state, self._covered(history)
        self._check_kind("rewind", urn, to, covered.high)
        low = lowest([Range(to, covered.high).low, covered.high])
        if Range(low, covered.high).empty or not Range(low, covered.low).empty:
            raise self._refused(
                "rewind", urn, f"{_shown(to)} is not within what is covered, {covered}", _way_back(covered)
            )
        low, retired = widened(low, {ref: unit.range for ref, unit in state.live.items() if unit.range is not None})
        if not lossy:
            self._check_kept(history, retired, covered)
        return Change(Action.REWIND, history, removed=(Range(low, covered.high),), replaces=retired)

    def would_take_back(self, urn: str, head: int, *, lossy: bool = False) -> Change | None:
        """Preview a rewind of all units but those that belong to versions up to a slot, as `journal.seals` has it.

        :param lossy: as for `would_rewind`.
        :return: `None` if there are no such units.
        :raises ConfigurationError: something is pending, or rows would be lost.
        """
        history = self.finished(urn, new=True)
        kept = content(head, history.state)
        retired = tuple(sorted(ref for ref in history.state.live if ref.slot not in kept))
        if not retired:
            return None
        if not lossy:
            self._check_kept(history, retired, self._covered(history))
        return Change(Action.REWIND, history, replaces=retired)

    def _check_kept(self, history: History, retired: Iterable[UnitRef], covered: Range) -> None:
        """Refuse to retire rows that the source has removed since they were published: they can't be extracted anew."""
        removed = not_kept(history, retired)
        if removed:
            high = highest([part.high for part in removed])
            back = (
                f"Give a position from {_shown(high)} on"
                if not Range(high, covered.high).empty
                else "There is no position that it could go back to"
            )
            raise self._refused(
                "rewind",
                history.urn,
                f"it would retire {many(len(removed), 'unit')} before {_shown(high)} of which the source has removed or changed "
                f"rows since: it had those from {_shown(history.state.kept_from)} on when it was last planned",
                f"Nothing was changed. {back}; or take back all the same what can't be published anew: "
                "`airflow gobblin rewind … --lossy`.",
            )

    def rewind(self, urn: str, to: Watermark, reason: str, *, lossy: bool = False) -> Slot:
        """Make the change that `would_rewind` returns."""
        return self.carry_out(self.would_rewind(urn, to, lossy=lossy), reason)

    def would_set_watermark(self, urn: str, to: Watermark) -> Change:
        """Preview moving the watermark forward without ingesting: the ranges between count as covered, and are never read.

        For a dataset without history, it is the start of the first load. Earlier plans lose.

        :raises ConfigurationError: it would move back (use a rewind), or is of another kind.
        """
        history = self.finished(urn, new=True)
        state = history.state
        edge = state.watermark
        if not history.keeps_units:
            raise self._refused(
                "set the watermark of", urn, NO_UNITS, "There is nothing to skip: each run compares all of it."
            )
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
                f"{_shown(to)} is not ahead of its watermark {_shown(edge)}",
                f"It only moves on: give a position after that. A rewind can take back what is covered. "
                f"{_way_back(Range(state.coverage.origin, state.coverage.end or edge))}",
            )
        return Change(Action.SET, history, coverage=state.coverage.filled(Range(edge, to)))

    def set_watermark(self, urn: str, to: Watermark, reason: str) -> Slot:
        """Make the change that `would_set_watermark` returns."""
        return self.carry_out(self.would_set_watermark(urn, to), reason)

    def would_drop(self, urn: str, *, delete_files: bool = False) -> Change:
        """Preview dropping a dataset: its coverage becomes empty, no file is live, and its target is free for others.

        :param delete_files: retire its published files, so that clean-up removes them; otherwise they stay in place.
        :raises ConfigurationError: files are to be deleted, and the journal doesn't know which.
        """
        history = self.finished(urn, lost=not delete_files)
        if delete_files and not history.keeps_units:
            hint = "Drop it without its files, and then delete those that aren't wanted by hand."
            raise self._refused("delete the files of", urn, NO_UNITS, hint)
        retired = tuple(sorted(history.state.live)) if delete_files else ()
        return Change(Action.DROP, history, coverage=Coverage(), replaces=retired)

    def would_drop_all(self, *, delete_files: bool = False) -> tuple[Change, ...]:
        """Preview dropping all datasets of the ingestion, each by a slot of its own.

        Datasets dropped before are left out, and so are unreadable ones, which `after_drop_all` reports; an interrupted drop is
        completed.

        :raises ConfigurationError: datasets have another pending slot; or, if files are to be deleted, the target isn't the one
            that they are published to.
        """
        if delete_files:  # no later run will do it at the target itself
            self._homes.check_here()
        read = dict(self.journal.histories())
        histories = {found.urn: found for found in read.values() if isinstance(found, History)}
        ours = {claim.urn for claim in self._claims.valid().values() if self._is_ours(claim)}
        claimed = {urn for urn in ours if isinstance(read.get(dataset_key(urn), History(urn)), History)}
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
        """Do the work of a run's end, as there may be no more runs: remove the files that the drops retired, and staging.

        :return: a sentence for every file that was left because somebody changed it, and for every dataset that can't be read.
        """
        committer = Committer(self.journal, self._files, retention=timedelta(0), connections=self._connections)
        left: list[str] = []
        for key, found in self.journal.histories():
            if isinstance(found, GobblinError):
                left.append(f"dataset {key!r} can't be read, and is left as it is: {found}")
            elif not self._give_up_what_is_lost(found):
                left += committer.cleanup.clean(found, "")
        staging = Staging(self._files, staging_folder(self.journal.ingestion, self.journal.id))
        Sweeper(self.journal, staging, self._claims, connections=self._connections).sweep()
        return tuple(left)

    def _is_ours(self, claim: Claim) -> bool:
        return claim.owner[:2] == (self.journal.id, self.journal.ingestion)

    def drop(self, urn: str, reason: str, *, delete_files: bool = False) -> Slot:
        """Make the change that `would_drop` returns."""
        return self.carry_out(self.would_drop(urn, delete_files=delete_files), reason)

    def would_import(self, state: ExportedDataset) -> Change:
        """Preview taking over the state of a dataset from another journal or tool: its coverage is covered here, and never read.

        Published files stay with the other journal: a file belongs to one slot of one journal, or clean-up might remove files
        that are live elsewhere. Earlier plans lose.

        :raises ConfigurationError: the dataset has published files or covered ranges, which the state would contradict; or the
            state names published files.
        """
        history = self.finished(state.urn, new=True)
        if not history.keeps_units:
            hint = (
                "Nothing needs to be imported: a mirror's next run compares source and target, wherever its journal is."
            )
            raise self._refused("import", state.urn, NO_UNITS, hint)
        if has_state(history):
            raise self._refused(
                "import",
                state.urn,
                f"it has a history of {many(history.state.head, 'slot')}, and its watermark is {_shown(history.state.watermark)}",
                "Drop the dataset first, if the import is to replace it; "
                "set-watermark and rewind change one that goes on.",
            )
        if any(unit.files for unit in state.units):
            raise self._refused(
                "import",
                state.urn,
                "its state names published files, and these can't be taken over",
                "Import it without them (--without-files): their ranges aren't read again, and readers of this journal don't "
                "see them.",
            )
        return Change(Action.IMPORT, history, coverage=state.covered)

    def has_imported(self, state: ExportedDataset) -> bool:
        """Return whether a dataset is exactly in a given state, so that importing it again would change nothing."""
        history = self.journal.history(state.urn)
        ended = history.pending is None and has_state(history) and not history.state.live
        return ended and history.state.coverage == state.covered

    def import_state(self, state: ExportedDataset, reason: str) -> Slot:
        """Make the change that `would_import` returns."""
        return self.carry_out(self.would_import(state), reason)

    def carry_out(self, change: Change, reason: str) -> Slot:
        """Make a change: it takes the dataset's next slot.

        :return: the slot, done.
        :raises LostRaceError: the dataset changed since; nothing was done.
        :raises ConfigurationError: there is no reason.
        """
        self._check_reason(change.urn, reason)
        if change.history.pending is None:
            slot = self._decide(change, reason)
        else:  # an interrupted drop
            slot = self._committer.execute(change.history.pending, "")
        if change.action is Action.DROP:
            for folder in self._claimed(change.urn):
                self._claims.release(folder, self._actor, reason, generation=slot.decision.generation)
            self._give_up_what_is_lost(self.journal.history(change.urn))
        return slot

    def _give_up_what_is_lost(self, history: History) -> bool:
        """Note, for a target that has lost its files, that nothing is left to clean up; clean-up would wait for them forever.

        :return: whether it is lost.
        """
        why = self.lost
        for slot in history.slots if why else ():
            if slot.finished and slot.leaves_files and not slot.noted(NoteKind.CLEANED):
                note = Note(NoteKind.CLEANED, "", now(), f"left, for {why}", actor=self._actor)
                self.journal.put_note(history.urn, slot.decision.slot, note)
        return bool(why)

    def would_take_over(self, urn: str, table: TableRecord) -> Change:
        """Preview making a table this dataset's own: no commit of its present owner takes hold any more. Its rows stay.

        :param table: the one that the dataset is to be published to.
        :raises ConfigurationError: there is no such table, it is nobody's or this dataset's, or the dataset has rows in another.
        :raises TableError: it can't be looked at.
        """
        history = self.finished(urn, new=True)
        look = self._tables.look("take over", urn, table)
        if not look.id:
            raise self._not_taken(urn, f"{table.name} isn't there", "The next run makes it, as this dataset's.")
        if look.owner is None:
            raise self._not_taken(urn, f"{table.name} is nobody's", "The next run makes it this dataset's.")
        if look.owner == self._tables.owner(urn):
            raise self._not_taken(urn, f"{table.name} is this dataset's already", "There is nothing to take over.")
        if (
            history.table is not None
            and history.table.id != look.id
            and any(u.files for u in history.state.live.values())
        ):
            hint = "Drop the dataset first, without its files: its rows stay where they are."
            raise self._not_taken(urn, f"its rows are in {history.table.table.name}", hint)
        step = TableTakeOverStep(TableTarget(table, *look.target_at), look.owner)
        return Change(Action.TAKE_OVER, history, takes=step)

    def take_over(self, urn: str, table: TableRecord, reason: str) -> Slot:
        """Make the change that `would_take_over` returns."""
        return self.carry_out(self.would_take_over(urn, table), reason)

    def _not_taken(self, urn: str, why: str, hint: str) -> ConfigurationError:
        return self._refused("take over the table of", urn, why, hint)

    def claim(self, folder: str) -> Claim:
        """Return the claim on a folder below the target root.

        :raises ClaimError: nobody claims it.
        """
        return self._claims.on(folder)

    def release_claim(self, folder: str, reason: str, claim: Claim | None = None) -> ReleasedClaim:
        """Free a folder below the target root that a lost journal or a dropped ingestion claims.

        The chain of claims records the actor and the reason, and so does the journal, if the claim is its own.

        :param claim: the claim that is meant; `None` for any.
        :raises ClaimError: nobody claims it, or somebody else.
        :raises ConfigurationError: a slot of the dataset is pending, and would be published to a folder that is another's.
        :raises LostRaceError: a slot was decided just now; the folder is claimed again.
        """
        claim = claim or self.claim(folder)
        self._check_reason(claim.urn, reason)
        self._claims.check_valid(claim)
        if (pending := self._pending_below(claim)) is not None:
            raise self._refused(
                "release the claim of",
                claim.urn,
                f"slot {pending.decision.slot} is pending, and is to be published to {folder!r}",
                "Let the next run finish it, or abandon it; then release the claim.",
            )
        # The note first: after a crash in between, it is noted once too often, and the release can be repeated. A claim that is
        # gone can't be released again, and the journal would never record it.
        slot = self._note_release(claim, reason)
        released = ReleasedClaim(self._claims.release(folder, self._actor, reason, claim), slot)
        # A decision checks the claim after it is made, and a release checks the slots, so one of them sees the other.
        if (pending := self._pending_below(claim)) is not None:
            journal = Journal(self.journal.store, claim.ingestion, claim.journal)
            self._claims.check(journal, claim.urn, folder, journal.history(claim.urn))
            raise LostRaceError(
                operation="release",
                subject=f"the claim on {folder!r} below {self._files.root}",
                cause=f"slot {pending.decision.slot} of dataset {claim.urn!r} was decided just now; it is claimed again",
                hint="Let the next run finish the slot, or abandon it; then release the claim.",
            )
        return released

    def _pending_below(self, claim: Claim) -> Slot | None:
        """Return the slot that is to be published to a claimed folder, as far as this journal knows."""
        if claim.journal != self.journal.id:
            return None
        try:
            return Journal(self.journal.store, claim.ingestion, claim.journal).history(claim.urn).pending
        except RecordError:  # though lost here, it may go on elsewhere
            return None

    def _note_release(self, claim: Claim, reason: str) -> int | None:
        if claim.owner != (self.journal.id, self.journal.ingestion, claim.urn):
            return None
        try:
            slot = self.journal.history(claim.urn).state.head
        except RecordError:  # though lost here, it may go on elsewhere
            return None
        note = Note(NoteKind.CLAIM_RELEASED, "", now(), reason, actor=self._actor)
        self.journal.put_note(claim.urn, slot, note)
        return slot

    def would_move(self) -> Home:
        """Return the ingestion's present home, if the target holds everything published there, as after a copy with `_gobblin`.

        :raises ConfigurationError: nothing was planned yet, a slot is pending, or files are missing.
        :raises TargetError: the target lacks the mark of the home.
        """
        return self._homes.would_move()

    def move(self, home: Home, reason: str, tenant: Tenant | None = None) -> Home:
        """Let the ingestion go on at the target, for the given tenant, with everything that was published.

        :param home: the home that `would_move` returned.
        :param tenant: the DAG and its source from now on; unchanged by default.
        :raises LostRaceError: somebody else moved it meanwhile.
        :raises ConfigurationError: there is no reason.
        """
        if not reason.strip() or not self._actor:
            raise ConfigurationError(
                operation="move",
                subject=f"ingestion {self.journal.ingestion!r}",
                cause="an actor and a reason are needed",
                hint="Say who does it, and why.",
            )
        return self._homes.move(home, tenant or Tenant(), self._actor, reason)

    def _check_reason(self, urn: str, reason: str) -> None:
        if not reason.strip() or not self._actor:
            raise self._refused("change", urn, "an actor and a reason are needed", "Say who does it, and why.")

    def _known(self, urn: str, *, new: bool = False, lost: bool = False, newest: bool = False) -> History:
        """Return a dataset's history.

        :param new: it may have none.
        :param lost: its target may have lost its files.
        :param newest: read it to its very end, even if its listing lags behind.
        """
        self._homes.check_mark(lost=lost)
        history = self.journal.newest_history(urn) if newest else self.journal.history(urn)
        if not history.known and not new:
            raise unknown_dataset(self.journal, urn)
        return history

    def _claimed(self, urn: str) -> tuple[str, ...]:
        owner = (self.journal.id, self.journal.ingestion, urn)
        return tuple(folder for folder, claim in self._claims.valid().items() if claim.owner == owner)

    def finished(self, urn: str, *, new: bool = False, lost: bool = False) -> History:
        """Return the history of a dataset that has nothing pending.

        :param new: it may have none.
        :param lost: its target may have lost its files.
        :raises ConfigurationError: something is pending.
        """
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
        urn, action = change.urn, change.action
        hand_over = HighWatermarkStep(change.after) if action.needs_outcome else None
        draft = change.decision(token or uuid.uuid4().hex, self._files.root, self._actor, reason)
        mine = replace(draft, hand_over=hand_over)
        if change.takes is not None:
            mine = self._tables.with_step(mine, change.takes, change.takes.target)
        else:
            mine = self._tables.without_retired(mine, change.history)
        self.journal.put_decision(mine)
        history = self.journal.history(urn)
        slot = history.by_token(mine.token)
        if slot is None or slot.decision.action is not action:
            other = history.slot(mine.slot).decision
            raise LostRaceError(
                operation=action.value,
                subject=f"dataset {urn!r}",
                cause=f"slot {other.slot} was taken by a {other.action.value} just now; nothing was changed",
                hint="Look at the dataset again, and repeat it if it is still what you want.",
            )
        if action.pauses:
            return slot
        done = self._committer.execute(slot, "")
        put_manifests(self._files, self.journal, self.journal.history(urn))
        return done

    def _check_kind(self, operation: str, urn: str, to: Watermark, known: Watermark) -> None:
        if to.kind != known.kind:
            raise self._refused(
                operation,
                urn,
                f"its watermark is of kind {known.kind!r} and not {to.kind!r}",
                f"Give a position of that kind: its watermark is {_shown(known)}.",
            )

    def _refused(self, operation: str, urn: str, why: str, hint: str) -> ConfigurationError:
        return ConfigurationError(
            operation=operation,
            subject=f"dataset {urn!r} of ingestion {self.journal.ingestion!r}",
            cause=why,
            hint=hint,
        )


def _is_drop(history: History) -> bool:
    """Return whether the pending slot of a dataset drops it."""
    return history.pending is not None and history.pending.decision.action is Action.DROP


def _way_back(covered: Range) -> str:
    """Return a hint: the positions to rewind to, and how to handle what lies before them."""
    back = (
        f"Nothing can be taken back: it starts at {_shown(covered.low)}, and nothing from there on is covered"
        if covered.empty
        else f"Give a position from {_shown(covered.low)} to before {_shown(covered.high)}"
    )
    return (
        f"{back}; a backfill fills the range before the start. To start elsewhere, drop the dataset and "
        "set its watermark anew."
    )


def _shown(watermark: Watermark | None) -> str:
    return "none" if watermark is None else json.dumps(watermark.to_json())
