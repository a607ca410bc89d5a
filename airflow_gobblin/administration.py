"""What a person does to a dataset: release, abandon, rewind, set its watermark, drop it. Each is a record in its journal.

Every action needs an actor and a reason, and is refused, with nothing changed, where it can't mean what it says.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from airflow_gobblin.claims import Claim, Claims
from airflow_gobblin.commit import Committer, can_win
from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.errors import ConfigurationError, LostRaceError
from airflow_gobblin.files import Files, open_files
from airflow_gobblin.journal import Action, Decision, History, Journal, Note, NoteKind, OutcomeState, Slot, now
from airflow_gobblin.manifest import put_manifests
from airflow_gobblin.plan import Plan
from airflow_gobblin.sources.base import Connections
from airflow_gobblin.staging import Staging, staging_folder
from airflow_gobblin.state import UnitRef
from airflow_gobblin.steps import HighWatermarkStep
from airflow_gobblin.watermark import Watermark, join, split


class Administration:
    """Audited actions on the datasets of a journal.

    :param target: the target root, as the sink has it or as files. :param actor: who acts.
    :param connections: where an object store's secrets come from, if the target names a connection.
    :raises ConfigurationError: the target can't be one.
    """

    def __init__(
        self, journal: Journal, target: str | Files, actor: str, connections: Connections | None = None
    ) -> None:
        self._journal = journal
        self._files: Files = open_files(target, connections) if isinstance(target, str) else target
        self._actor = actor
        self._claims = Claims(self._files)
        # How long replaced files stay is the ingestion's affair.
        self._committer = Committer(journal, self._files, retention=None)

    def release(self, urn: str, reason: str) -> None:
        """Let a quarantined dataset be recovered again. :raises ConfigurationError: it isn't quarantined."""
        state = self._known(urn, reason).state
        if not state.quarantined:
            raise self._refused("release", urn, "it is not quarantined")
        note = Note(NoteKind.RELEASED, "", now(), reason, actor=self._actor)
        self._journal.put_note(urn, state.head, note)

    def abandon(self, urn: str, reason: str) -> Slot:
        """Give up the pending slot: what it published is taken back, and its range is open again.

        Where nothing is pending, plans that could still be decided are aborted instead.

        :raises ConfigurationError: there is nothing to abandon. :raises LostRaceError: it was done just now.
        """
        pending = self._known(urn, reason, new=True).pending
        if pending is None:
            return self._abort_plans(urn, reason)
        outcome = self._journal.put_outcome(pending, OutcomeState.ABANDONED, "", self._actor, reason)
        if outcome.state is not OutcomeState.ABANDONED:
            raise LostRaceError(
                operation="abandon",
                subject=f"slot {pending.decision.slot} of dataset {urn!r}",
                cause="it was finished in this moment",
                hint="Rewind the dataset to take it back.",
            )
        self._committer.clean(self._journal.history(urn), "")
        return replace(pending, outcome=outcome)

    def _abort_plans(self, urn: str, reason: str) -> Slot:
        staging = Staging(self._files, staging_folder(self._journal.ingestion, self._journal.id))
        slot: Slot | None = None
        for token, plan in staging.plans():
            history = self._finished(urn, reason, new=True)
            if isinstance(plan, Plan) and plan.urn == urn and can_win(plan, history):
                slot = self._decide(history, reason, Action.ABORT, token=token)
        if slot is None:
            raise self._refused("abandon", urn, "no slot is pending, and no plan is open")
        return slot

    def rewind(self, urn: str, to: Watermark, reason: str) -> Slot:
        """Take back everything from a position on: it is extracted and published anew.

        The position is widened to the bounds of units, which are retired whole; the slot names them. Plans made before lose.

        :raises ConfigurationError: the dataset has no positions, or `to` is outside what is covered.
        """
        history = self._finished(urn, reason)
        state = history.state
        end = state.coverage.end
        if end is None or state.coverage.origin is None:
            raise self._refused("rewind", urn, "it has no positions: a snapshot is replaced by its next run")
        if to.kind != end.kind:
            raise self._refused("rewind", urn, f"its watermark is of kind {end.kind!r} and not {to.kind!r}")
        asked = Range(to, end)
        if asked.empty or not Range(to, state.coverage.origin).empty:
            raise self._refused(
                "rewind", urn, f"{asked} is not within what is covered, {state.coverage.origin} to {end}"
            )
        low, retired = _widened(to, {ref: unit.range for ref, unit in state.live.items() if unit.range is not None})
        return self._decide(history, reason, Action.REWIND, removed=(Range(low, end),), replaces=retired)

    def set_watermark(self, urn: str, to: Watermark, reason: str) -> Slot:
        """Move the watermark forward without ingesting: what lies between counts as covered, and is never read.

        For a dataset without history it is where the first load starts. Plans made before lose.

        :raises ConfigurationError: it would move back (rewind does that), or is of another kind.
        """
        history = self._finished(urn, reason, new=True)
        state = history.state
        edge = state.watermark
        if edge is None:
            return self._decide(history, reason, Action.SET, coverage=Coverage().starting_at(to))
        if edge.kind != to.kind or not edge < to:
            raise self._refused(
                "set the watermark of", urn, f"{to} is not ahead of its watermark {edge}; rewind moves back"
            )
        return self._decide(history, reason, Action.SET, coverage=state.coverage.filled(Range(edge, to)))

    def drop(self, urn: str, reason: str, *, delete_files: bool = False) -> Slot:
        """Forget a dataset: its coverage is empty, no file is live, and its target is free for others.

        :param delete_files: its published files are retired and removed by clean-up; otherwise they stay where they are.
        """
        history = self._finished(urn, reason)
        retired = tuple(sorted(history.state.live)) if delete_files else ()
        slot = self._decide(history, reason, Action.DROP, coverage=Coverage(), replaces=retired)
        for folder in self._claimed(urn):
            self._claims.release(folder, self._actor, reason)
        return slot

    def release_claim(self, folder: str, reason: str) -> Claim:
        """Free a folder below the target root that a lost journal or a dropped ingestion claims.

        :raises ClaimError: nobody claims it.
        """
        if not reason:
            raise self._refused("release the claim on", folder, "a reason is needed")
        return self._claims.release(folder, self._actor, reason)

    def _known(self, urn: str, reason: str, *, new: bool = False) -> History:
        if not reason or not self._actor:
            raise self._refused("change", urn, "an actor and a reason are needed")
        history = self._journal.history(urn)
        if not history.state.head and not new:
            raise self._refused("change", urn, f"the journal has only {list(self._journal.datasets())[:20]}")
        published = {target for s in history.slots if (target := s.decision.target)}
        published |= {s.target for s in history.trimmed if s.target}
        if published and self._files.root not in published and not self._claimed(urn):
            raise self._refused("change", urn, f"it is published to {sorted(published)}, not to {self._files.root}")
        return history

    def _claimed(self, urn: str) -> tuple[str, ...]:
        owner = (self._journal.id, self._journal.ingestion, urn)
        return tuple(folder for folder, claim in self._claims.standing().items() if claim.owner == owner)

    def _finished(self, urn: str, reason: str, *, new: bool = False) -> History:
        history = self._known(urn, reason, new=new)
        if history.pending is not None:
            raise self._refused(
                "change",
                urn,
                f"slot {history.pending.decision.slot} is pending: finish it (the next run does) or abandon it",
            )
        return history

    def _decide(
        self,
        history: History,
        reason: str,
        action: Action,
        *,
        token: str | None = None,
        removed: tuple[Range, ...] = (),
        replaces: tuple[UnitRef, ...] = (),
        coverage: Coverage | None = None,
    ) -> Slot:
        urn = history.urn
        steps: tuple[HighWatermarkStep, ...] = ()
        if action.needs_outcome:
            left = history.state.coverage
            for gone in removed:
                left = left.remove(gone)
            steps = (HighWatermarkStep(left.edge if removed else None),)
        token = token or uuid.uuid4().hex
        shards, count = self._journal.put_shards(urn, token, steps)
        mine = Decision(
            slot=history.state.head + 1,
            action=action,
            urn=urn,
            token=token,
            run_key="",
            generation=history.state.generation + (action is not Action.ABORT),
            previous=history.last_digest,
            at=now(),
            removed=removed,
            replaces=replaces,
            coverage=coverage,
            shards=shards,
            steps=count,
            target=self._files.root,
            actor=self._actor,
            reason=reason,
        )
        self._journal.put_decision(mine)
        history = self._journal.history(urn)
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
        put_manifests(self._files, self._journal, self._journal.history(urn))
        return done

    def _refused(self, operation: str, urn: str, why: str) -> ConfigurationError:
        return ConfigurationError(
            operation=operation, subject=f"dataset {urn!r} of ingestion {self._journal.ingestion!r}", cause=why
        )


def _widened(to: Watermark, units: dict[UnitRef, Range]) -> tuple[Watermark, tuple[UnitRef, ...]]:
    """A position moved back to the bounds of the units that reach past it, with these units."""
    lows = list(split(to))
    retired: set[UnitRef] = set()
    while True:
        reached = {
            ref
            for ref, part in units.items()
            if any(low < high for low, high in zip(lows, split(part.high), strict=False)) and not part.empty
        }
        if reached == retired:
            return join(tuple(lows), to.kind), tuple(sorted(retired))
        retired = reached
        for ref in reached:
            lows = [min(a, b) for a, b in zip(lows, split(units[ref].low), strict=True)]
