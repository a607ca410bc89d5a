"""Deciding slots and carrying them out: the protocol of the journal.

Deciding. A plan binds generation, ranges and the units it replaces, but no slot. The slot after the newest is taken when the plan
is decided, if all of that still holds; otherwise the plan loses, with an error. A writer that finds another token in the slot
folds the chain again and looks for its own token there.

Carrying out. From the decision on, only the *stored* record is used. Files are linked to their published names, the folders are
synced, and then the outcome is written: that one record publishes. The staged names are removed with the token's staging, once
the outcome exists; until then a file that a crash unlinked can be linked again. A renamed folder has one name at any time. Any
process may repeat all of this at any time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial

from airflow_gobblin.commit.cleanup import Cleanup
from airflow_gobblin.commit.homes import Homes
from airflow_gobblin.commit.preconditions import can_win, check_goes_on, check_preconditions, check_whole
from airflow_gobblin.commit.remote import StepRunner
from airflow_gobblin.commit.taking_out import DatasetTables
from airflow_gobblin.connections import GuardedConnections, NoConnections
from airflow_gobblin.errors import (
    ClaimError,
    GobblinError,
    LostRaceError,
    QuarantinedError,
    RecordError,
    Remedy,
    StepConflictError,
    StepError,
    StepFencedError,
    StepLostError,
    TargetError,
)
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Decision, Note, NoteKind, Outcome, OutcomeState, ShardRef, now
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.policy import DEFAULT_ATTEMPTS, DEFAULT_RETENTION
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.work import UnitResult, UnitState, UnitSummary, WorkUnit
from airflow_gobblin.steps.base import CommitStep, FenceResult, HighWatermarkStep, Phase, StepContext, batches
from airflow_gobblin.steps.execution import carry_out, carry_out_all, fence, sync
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.commit import version_left
from airflow_gobblin.workspace.claims import Claims

log = logging.getLogger(__name__)

STEPS_PER_BATCH = 1000
_FENCED = (StepFencedError, StepLostError, StepConflictError)
"""The errors that may reveal another process's fence."""


@dataclass(frozen=True)
class Proposal:
    """The results of a plan, proposed for a slot.

    :param units: a summary of every unit: the successful ones are published.
    :param staging: the folder of the plan's token.
    :param looked: how far a stage has looked for retired parents, by upstream.
    """

    plan: Plan
    units: tuple[UnitSummary, ...]
    staging: str
    looked: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def published(self) -> frozenset[str]:
        """The ids of the units that are published."""
        return frozenset(u.unit for u in self.units if u.state is UnitState.SUCCESSFUL)

    @property
    def decidable(self) -> bool:
        """Whether it can take a slot: a unit is published, or there are no units at all, as in an empty snapshot."""
        return bool(self.published) or not self.units

    @property
    def publishes(self) -> bool:
        """Whether there is anything to publish or to retire; otherwise its decision alone finishes it."""
        return bool(self.files or self.plan.replaces) or not self.plan.holds.keeps_units

    @property
    def files(self) -> int:
        """The number of files that it publishes."""
        return sum(u.files for u in self.units if u.state is UnitState.SUCCESSFUL)

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges that publishing it covers."""
        if not self.plan.holds.covers_ranges:
            return ()
        published = (u.range for u in self.units if u.state is UnitState.SUCCESSFUL)
        return tuple(r for r in published if r is not None and not r.empty)

    @property
    def complete(self) -> bool:
        """Whether it contains all that was planned. A unit that stopped early counts as complete: the next run reads the rest.
        One that was cut where it failed doesn't.
        """
        return all(u.state is UnitState.SUCCESSFUL and not u.cut for u in self.units)


Published = Iterator[tuple[WorkUnit, UnitResult]]
"""The units to publish, each with its result, in the order of the plan."""
Results = Callable[[], Published]
"""The function that reads them, each with its result, on demand, since there may be too many to keep."""
Publish = Callable[[Published], Iterable[CommitStep]]
"""The steps that publish them."""

AfterStep = Callable[[Decision, int, int], None]
"""The function to call with a decision, k and n, once k of its n steps are done."""


class Committer:
    """The committer of an ingestion: it makes the decisions and carries them out.

    :param files: the file system under the target root.
    :param attempts: the number of runs that fail to finish a slot before its dataset is quarantined.
    :param retention: how long replaced files stay after the slot that retired them is done; `None` leaves them to others.
    :param connections: access to the secrets that steps may need, and that no note may show.
    """

    def __init__(
        self,
        journal: Journal,
        files: Files,
        *,
        attempts: int = DEFAULT_ATTEMPTS,
        retention: timedelta | None = DEFAULT_RETENTION,
        connections: GuardedConnections | None = None,
    ) -> None:
        self.journal = journal
        self.files = files
        self.homes = Homes(journal, files)
        """The check that this file system is the one that the journal's slots are published to."""
        self.claims = Claims(files)
        self._attempts = attempts
        self._context = StepContext(files, connections or GuardedConnections(NoConnections()))
        self.cleanup = Cleanup(journal, self._context, self.homes, retention)
        """The clean-up of the files that its slots leave."""
        self.runner: StepRunner | None = None
        """The runner, if any, which writes and carries out long sequences elsewhere, and steps that need Spark's driver."""
        self.after_step: AfterStep | None = None
        """The function to call after each step that was done here, whichever run decided it."""

    # Deciding

    def decide(self, proposal: Proposal, results: Results, publish: Publish) -> Slot:
        """Bind a plan to a slot, or find the slot that already answers it. Results and steps are streamed, a shard at a time.

        :raises LostRaceError: the plan no longer holds; shows why.
        :raises StepError: an older slot can't be finished.
        :raises PausedError: the dataset is paused.
        :raises TargetError: the target isn't the one that the plan was made for.
        """
        plan = proposal.plan
        shards: tuple[ShardRef, ...] | None = None
        while True:
            history = self.journal.history(plan.urn)
            answering = history.by_token(plan.token) or history.answer(plan.run_key)
            if answering is not None:
                return self._not_given_up(answering, plan)
            if self._finish_pending(history, plan.run_key):
                continue
            check_goes_on(history)
            check_preconditions(plan, proposal.ranges, history)
            draft = self._draft(proposal, history)
            coverage = draft.coverage_after(history.state.coverage, history.state.live)
            check_whole(plan, history, coverage)
            if shards is None:
                try:
                    shards = self._put_steps(proposal, results, publish)
                except StepLostError:
                    if self.journal.history(plan.urn).state.head == history.state.head:
                        raise
                    continue  # another run decided meanwhile, and this plan was swept: report that instead
            self.homes.check_here()
            self.journal.put_decision(_decided(draft, shards, HighWatermarkStep(coverage.edge)))

    def give_up(self, plan: Plan, run: str, reason: str) -> bool:
        """Make sure that a plan is never decided from now on, by an ABORT of its token if it could still win.

        :param run: the DAG run that does it.
        :return: whether that is so; otherwise it was decided before.
        :raises PausedError: the dataset is paused.
        :raises StepError: an older slot can't be finished.
        """
        while True:
            history = self.journal.history(plan.urn)
            slot = history.by_token(plan.token)
            if slot is not None:
                return slot.decision.action is Action.ABORT
            if not can_win(plan, history):
                return True
            if self._finish_pending(history, plan.run_key):
                continue
            check_goes_on(history)
            self.journal.put_decision(
                Decision(
                    slot=history.state.head + 1,
                    action=Action.ABORT,
                    urn=plan.urn,
                    token=plan.token,
                    run_key="",  # it answers no run
                    generation=history.state.generation,
                    previous=history.last_digest,
                    at=now(),
                    reason=reason,
                    run=run,
                )
            )

    def _finish_pending(self, history: History, run_key: str) -> bool:
        """Finish the pending slot of a dataset, since the next decision depends on how it ended; return whether there was one."""
        if history.pending is None:
            return False
        with suppress(LostRaceError):  # it was abandoned just now: it is no longer in the way
            self.execute(history.pending, run_key)
        return True

    def _not_given_up(self, slot: Slot, plan: Plan) -> Slot:
        if slot.decision.action is Action.ABORT or slot.abandoned:
            raise LostRaceError(
                operation="commit",
                subject=f"dataset {plan.urn!r}",
                cause=f"this run's {slot.given_up}",
                remedy=Remedy.PLAN,
            )
        return slot

    def _put_steps(self, proposal: Proposal, results: Results, publish: Publish) -> tuple[ShardRef, ...]:
        """Put all steps but the last into the journal."""
        plan = proposal.plan
        if not proposal.publishes:
            return ()
        runner = self._runner_for(proposal.files)
        if runner is not None and plan.table is None:  # one commit publishes all files to a table
            return self.journal.put_shards(plan.urn, runner.write(plan, results(), proposal.staging))
        return self.journal.put_steps(plan.urn, plan.token, publish(results()))

    def _draft(self, proposal: Proposal, history: History) -> Decision:
        """Return the decision of a proposal in the next slot, still without steps."""
        plan = proposal.plan
        return Decision(
            slot=history.state.head + 1,
            action=Action.COMMIT if proposal.publishes else Action.NOOP,
            urn=plan.urn,
            token=plan.token,
            run_key=plan.run_key,
            generation=plan.generation,
            previous=history.last_digest,
            at=now(),
            ranges=proposal.ranges,
            removed=plan.reopens,
            holds=plan.holds,
            planned=plan.planned,
            replaces=plan.replaces,
            schema=plan.schema,
            units=proposal.units,
            complete=proposal.complete,
            staging=proposal.staging,
            target=self.files.root,
            run=plan.run,
            kept_from=plan.kept_from,
            provenance=plan.provenance,
            folder=plan.folder,
            metadata=plan.metadata,
            checkpoint=plan.checkpoint,
            looked=proposal.looked,
            table=plan.table if proposal.publishes else None,
        )

    def take_back(
        self, history: History, units: tuple[UnitRef, ...], looked: Mapping[str, int], run: str, reason: str
    ) -> None:
        """Take back units of a stage by a REWIND, unless another slot was decided since its history was read.

        :param history: one with nothing pending.
        :param looked: how far retired parents were looked for, by upstream.
        :param run: the DAG run that does it.
        """
        draft = self._retiring(Action.REWIND, history, units, run, reason)
        mine = replace(draft, generation=draft.generation + 1, looked=looked)
        self._take(DatasetTables(self.journal, self.files, self._context.connections).without_retired(mine, history))

    def give_up_state(self, history: History, units: tuple[UnitRef, ...], floor: int, run: str, reason: str) -> None:
        """Give up the state of a stage's oldest versions by a FLOOR, unless another slot was decided since its history was read.

        Only then may any of it be removed: nothing is restored to below the floor, which never falls.

        :param history: one with nothing pending.
        :param floor: the slot of the oldest version whose state is kept.
        :param run: the DAG run that does it.
        """
        self._take(replace(self._retiring(Action.FLOOR, history, units, run, reason), floor=floor))

    def _retiring(
        self, action: Action, history: History, units: tuple[UnitRef, ...], run: str, reason: str
    ) -> Decision:
        """Return the decision that retires units of a stage in its next slot."""
        return Decision(
            slot=history.state.head + 1,
            action=action,
            urn=history.urn,
            token=uuid.uuid4().hex,
            run_key="",  # it answers no run
            generation=history.state.generation,
            previous=history.last_digest,
            at=now(),
            replaces=units,
            target=self.files.root,
            hand_over=HighWatermarkStep(None),
            reason=reason,
            run=run,
        )

    def _take(self, decision: Decision) -> None:
        """Take the slot of a decision and end it; if another one has it, do nothing."""
        self.homes.check_here()
        self.journal.put_decision(decision)
        slot = self.journal.history(decision.urn).by_token(decision.token)
        if slot is not None:
            self.execute(slot, "")

    # Carrying out

    def execute(self, slot: Slot, run_key: str) -> Slot:
        """Carry out a decided slot, up to its outcome. Safe at any time, from any process, even concurrently.

        :return: the slot with its outcome.
        :raises LostRaceError: the slot was abandoned.
        :raises StepError: a step can't be done; the slot stays pending.
        :raises TargetError: the target isn't the one that it is to be published to; the slot stays pending.
        :raises ConfigurationError: as `TargetError`.
        :raises ClaimError: another dataset claimed its folder; the slot stays pending.
        """
        if slot.finished:
            return self._ended(slot)
        decision = slot.decision
        if decision.staging is not None:  # else it has no file to publish
            self.homes.check_here()  # the ingestion may have moved just before it was decided
            self._check_claim(decision)
        try:
            outcome = self._carry_out_all(decision)
            if outcome is None and _has_fences(decision):
                self.homes.check_here()  # a missing file counts as taken away only if the target is there, before and after
            if outcome is None and decision.staging is not None:
                self._check_claim(decision)  # nothing locked it: no outcome publishes what is in another one's folder
        except (StepError, RecordError, ClaimError, LostRaceError, OSError) as error:
            outcome = self.journal.outcome(decision.urn, decision.slot)
            if outcome is None and isinstance(error, _FENCED):
                outcome = self._complete_abandon(slot, run_key, error)
            if outcome is None:  # otherwise another process ended it, and may have cleaned up or trimmed since
                if isinstance(error, GobblinError):
                    raise
                raise _disk_error(decision, error) from error
        if outcome is None:
            version = version_left(decision.table, self._context_of(decision)) if decision.table is not None else ""
            outcome = self.journal.put_outcome(slot, OutcomeState.DONE, run_key, version=version)
        return self._ended(replace(slot, outcome=outcome))

    def _check_claim(self, decision: Decision) -> None:
        """Check that a slot's folder is still its dataset's: the claim may have been released from another journal."""
        urn, folder = decision.urn, decision.folder
        if not self.claims.has(self.journal, urn, folder):
            log.warning(
                "dataset %r: the claim on its folder was released while a slot is pending; it is claimed anew", urn
            )
            self.claims.check(self.journal, urn, folder, self.journal.history(urn))

    def _carry_out_all(self, decision: Decision) -> Outcome | None:
        """Carry out the stored steps phase by phase, and make the results of each durable before the next (rule 13); an existing
        outcome ends this at once.
        """
        if self._runner_for(decision.steps) is not None and decision.staging is not None and decision.table is None:
            return self._carry_out_elsewhere(decision, [*Phase], [*Site])
        seen = done = 0
        context = self._context_of(decision)
        for phase in Phase:
            folders: set[str] = set()
            for batch in batches(self.journal.steps(decision, decision.of(phase, Site.TASK)), STEPS_PER_BATCH):
                outcome = self.journal.outcome(decision.urn, decision.slot)
                if outcome is not None:
                    return outcome
                for done_here in carry_out_all(batch, self.files, partial(self._carry_out, decision, context=context)):
                    seen += 1
                    done += done_here
                    if done_here and self.after_step is not None:
                        self.after_step(decision, seen, decision.steps)
                folders.update(folder for step in batch for folder in step.folders())
            self._sync(folders)
            outcome = self._carry_out_elsewhere(decision, [phase], [Site.DRIVER])
            if outcome is not None:
                return outcome
        if seen:
            _log_done(decision, seen, done, "here")
        return None

    def _runner_for(self, steps: int) -> StepRunner | None:
        """Return the runner for a whole sequence, if it is long enough to be handed over."""
        long = self.runner is not None and self.runner.above is not None and steps > self.runner.above
        return self.runner if long else None

    def _carry_out_elsewhere(
        self, decision: Decision, phases: Iterable[Phase], sites: Collection[Site]
    ) -> Outcome | None:
        """Let the runner carry out the steps of some phases and sites; an existing outcome ends this at once."""
        groups = [(site, decision.of(phase, site)) for phase in phases for site in sites]
        steps = sum(shard.steps for _, shards in groups for shard in shards)
        if not steps:
            return None
        outcome = self.journal.outcome(decision.urn, decision.slot)
        if outcome is not None:
            return outcome
        if self.runner is None:
            raise _no_driver(decision)
        read = ((site, self.journal.shards(decision, shards)) for site, shards in groups if shards)
        done = self.runner.carry_out(decision.urn, decision.slot, decision.staging or "", read)
        _log_done(decision, steps, done, "on Spark")
        return None

    def _carry_out(self, decision: Decision, step: CommitStep, *, context: StepContext | None = None) -> bool:
        return carry_out(step, context or self._context_of(decision), decision.urn, decision.slot)

    def _context_of(self, decision: Decision, *, asked: bool = False) -> StepContext:
        """Return the context of a slot's steps. A slot that commits to a table knows the mark that the table must have before.

        :param asked: whether a person asked to abandon it.
        """
        if decision.table is None:
            return self._context
        history = self.journal.history(decision.urn)
        slot = history.slot_of_step(decision, self.journal.id, self.journal.ingestion, asked=asked)
        return replace(self._context, slot=slot)

    def _sync(self, folders: Iterable[str]) -> None:
        sync(self.files, folders)

    def _ended(self, slot: Slot) -> Slot:
        if slot.abandoned:
            raise LostRaceError(
                operation="publish",
                subject=f"slot {slot.decision.slot} of dataset {slot.decision.urn!r}",
                cause=slot.given_up,
                remedy=Remedy.PLAN,
            )
        return slot

    # Abandoning

    def abandon(self, slot: Slot, run_key: str, actor: str = "", reason: str = "") -> Slot:
        """End a pending slot without publishing it: shut out its steps that have a fence, then put the outcome (rule 15).

        Its leftovers are cleaned up later. If the whole slot is one act, and that is found done, the slot is finished instead.

        :return: the slot with its outcome.
        :raises StepError: a fence can't be set; the slot stays pending.
        :raises TargetError: the target isn't the one that it is published to, and a step has a fence; the slot stays pending.
        :raises ConfigurationError: as `TargetError`.
        """
        decision = slot.decision
        outcome = self.journal.outcome(decision.urn, decision.slot)
        if outcome is not None:
            return replace(slot, outcome=outcome)
        if _has_fences(decision):
            self.homes.check_here()  # otherwise it isn't begun
            note = Note(NoteKind.ABANDONING, run_key, now(), reason, actor=actor)
            self.journal.put_note(decision.urn, decision.slot, note)
        outcome = self._fence_and_end(slot, run_key, actor, reason)
        return self.execute(slot, run_key) if outcome is None else replace(slot, outcome=outcome)

    def _complete_abandon(self, slot: Slot, run_key: str, error: StepError) -> Outcome | None:
        """Finish abandoning a slot, if that was begun: a step of it is FENCED, or there is a note of it and a step can't be done.

        A fence's only trace may be that something is missing, so that its step is LOST, and a step in CONFLICT may hide it. A
        release since that note means that the slot is to be finished, if it can be.

        :return: how the slot ended; `None` if nobody began to abandon it, or a step that is the whole slot is done.
        """
        decision = slot.decision
        if not _has_fences(decision):
            return None
        notes = self.journal.notes(decision.urn, decision.slot)
        relevant = [note for note in notes if note.event in (NoteKind.ABANDONING, NoteKind.RELEASED)]
        begun = next((note for note in reversed(relevant) if note.event is NoteKind.ABANDONING), None)
        if not isinstance(error, StepFencedError) and (begun is None or begun is not relevant[-1]):
            return None
        actor, reason = ("", error.text) if begun is None else (begun.actor, begun.detail)
        return self._fence_and_end(slot, run_key, actor, reason)

    def _fence_and_end(self, slot: Slot, run_key: str, actor: str, reason: str) -> Outcome | None:
        """Set the fences of a slot, then put the outcome ABANDONED.

        :return: how the slot ended, whoever ended it; `None` if it can only be finished.
        :raises StepError: a fence can't be set, and the slot is pending.
        """
        decision = slot.decision
        try:
            if not self._shut_out(decision, asked=bool(actor)):
                return None
        except (StepError, RecordError, OSError) as error:
            outcome = self.journal.outcome(decision.urn, decision.slot)
            if outcome is not None:  # another process ended it, and may have cleaned up or trimmed since
                return outcome
            if isinstance(error, GobblinError):
                raise
            raise _disk_error(decision, error) from error
        return self.journal.put_outcome(slot, OutcomeState.ABANDONED, run_key, actor, reason)

    def _shut_out(self, decision: Decision, *, asked: bool = False) -> bool:
        """Set the fences of a slot, phase by phase, and make them durable.

        :param asked: whether a person asked to abandon it.
        :return: whether the slot can be abandoned; otherwise it can only be finished.
        """
        if not _has_fences(decision):
            return True
        self.homes.check_here()  # a missing file counts as consumed only if the target is there, before and after
        context = self._context_of(decision, asked=asked)
        for phase in Phase:
            folders: set[str] = set()
            shards = [shard for shard in decision.of(phase) if shard.fenced]
            for step in self.journal.steps(decision, shards):
                if fence(step, context, decision.urn, decision.slot) is FenceResult.WHOLE:
                    return False
                folders.update(step.folders())
            self._sync(folder for folder in folders if self.files.identity(folder) is not None)
        self.homes.check_here()
        return True

    # Recovering

    def recover(self, urn: str, run_key: str) -> Slot | None:
        """Finish what an earlier run decided and left, or count the failure.

        :return: the slot that was finished, `None` if nothing was pending.
        :raises QuarantinedError: it failed in too many runs.
        :raises GobblinError: it failed this time.
        """
        history = self.journal.history(urn)
        slot = history.pending
        if slot is None:
            return None
        if history.state.quarantined:
            raise QuarantinedError(
                operation="recover",
                subject=f"dataset {urn!r}",
                cause=f"slot {slot.decision.slot} could not be finished in "
                f"{many(len(history.state.failures), 'run')}: {slot.last_failure}",
                hint="Fix the cause and release the dataset, or abandon the slot.",
            )
        log.info(
            "dataset %r: slot %d%s was left unfinished; finishing it",
            urn,
            slot.decision.slot,
            slot.decision.by_run,
        )
        try:
            return self.execute(slot, run_key)
        except LostRaceError:
            return None  # it was abandoned just now: nothing is pending
        except GobblinError as error:
            self.count_failure(urn, run_key, error)
            raise

    def count_failure(self, urn: str, run_key: str, error: GobblinError) -> None:
        """Note that a run failed to finish the pending slot, once a run; quarantine the dataset after too many.

        A missing target isn't the dataset's fault and isn't counted. Raises nothing: the first error is the one to report.
        """
        if isinstance(error, TargetError):
            return
        try:
            self._count_failure(urn, run_key, error)
        except GobblinError:
            log.warning("dataset %r: its failure could not be noted", urn, exc_info=True)

    def _count_failure(self, urn: str, run_key: str, error: GobblinError) -> None:
        history = self.journal.history(urn)
        slot = history.pending
        if slot is None or history.state.quarantined:
            return
        failures, text = history.state.failures, self._context.connections.redactor.brief(error.text)
        if run_key not in failures:
            self.journal.put_note(urn, slot.decision.slot, Note(NoteKind.FAILED, run_key, now(), text))
            failures = (*failures, run_key)
        if len(failures) >= self._attempts:
            self.journal.put_note(urn, slot.decision.slot, Note(NoteKind.QUARANTINED, run_key, now(), text))


def _has_fences(decision: Decision) -> bool:
    return any(shard.fenced for shard in decision.shards)


def _decided(draft: Decision, shards: tuple[ShardRef, ...], last: HighWatermarkStep) -> Decision:
    """Return a decision with its steps, if it has any."""
    return draft if draft.action is Action.NOOP else replace(draft, shards=shards, hand_over=last)


def _no_driver(decision: Decision) -> StepError:
    return StepError(
        operation="publish",
        subject=f"slot {decision.slot} of dataset {decision.urn!r}",
        cause="some of its steps need Spark's driver, and no Spark is known here",
        hint="Nothing is lost: they can be carried out wherever there is a Spark.",
        remedy=Remedy.CARRY_OUT,
    )


def _log_done(decision: Decision, seen: int, done: int, where: str) -> None:
    log.info(
        "dataset %r, slot %d, %s: %d done before, %d done %s; the last %s",
        decision.urn,
        decision.slot,
        many(decision.steps, "step"),
        seen - done,
        done,
        where,
        "writes the outcome" if decision.holds is Holds.DIFFERENCE else "hands over the watermark",
    )


def _disk_error(decision: Decision, error: OSError) -> StepError:
    return StepError(
        operation="publish",
        subject=f"slot {decision.slot} of dataset {decision.urn!r}",
        cause=error,
        hint="Nothing is lost: fix the cause, or abandon the slot.",
        remedy=Remedy.CARRY_OUT,
    )
