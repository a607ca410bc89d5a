"""Deciding slots and carrying them out: the protocol of the journal.

Deciding. A plan binds generation, ranges and the units it replaces, but no slot. The slot after the newest is taken when the plan
is decided, if all of that still holds; otherwise the plan loses, by name. Whoever sees another token in the slot folds the
chain again and looks whether its own stands somewhere.

Carrying out. From the decision on only the *stored* record is used. Files are linked to their published names, the folders
synced, and then the outcome is written: that one record is the publish. The staged names go with the token's staging, once the
outcome stands; until then a file that a crash un-linked can be linked again. A folder that is renamed has one name at any time.
Anyone may do any of this again, at any time.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from itertools import chain

from airflow_gobblin import schema
from airflow_gobblin.backfill import Backfill
from airflow_gobblin.carry_out import carry_out, carry_out_all, sync
from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.errors import (
    AlreadyCoveredError,
    GobblinError,
    LostRaceError,
    PausedError,
    QuarantinedError,
    RecordError,
    SourceDataError,
    StepError,
    StepLostError,
    TargetError,
)
from airflow_gobblin.files.base import Files, each
from airflow_gobblin.home import Homes
from airflow_gobblin.ingestion import DEFAULT_ATTEMPTS, DEFAULT_RETENTION
from airflow_gobblin.journal import (
    Action,
    Decision,
    History,
    Journal,
    Note,
    NoteKind,
    Outcome,
    OutcomeState,
    Slot,
    now,
)
from airflow_gobblin.naming import many
from airflow_gobblin.plan import Plan, is_met
from airflow_gobblin.redaction import Redactor
from airflow_gobblin.state import UnitRef
from airflow_gobblin.step_work import StepRunner
from airflow_gobblin.steps import CommitStep, FileStep, HighWatermarkStep, Step, StepContext, batches
from airflow_gobblin.work import UnitResult, UnitState, UnitSummary

log = logging.getLogger(__name__)

STEPS_PER_BATCH = 1000


@dataclass(frozen=True)
class Proposal:
    """What a plan came to.

    :param units: a summary of every unit: the successful ones are published. :param staging: the folder of the plan's token.
    """

    plan: Plan
    units: tuple[UnitSummary, ...]
    staging: str

    @cached_property
    def published(self) -> frozenset[str]:
        """The ids of the units that are published."""
        return frozenset(u.unit for u in self.units if u.state is UnitState.SUCCESSFUL)

    @property
    def files(self) -> int:
        """How many files that publishes."""
        return sum(u.files for u in self.units if u.state is UnitState.SUCCESSFUL)

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges that publishing it covers."""
        if self.plan.planned is None:
            return ()
        published = (u.range for u in self.units if u.state is UnitState.SUCCESSFUL)
        return tuple(r for r in published if r is not None and not r.empty)

    @property
    def complete(self) -> bool:
        """Whether all that was planned is in it. A unit that stopped early is: its rest is the next run's."""
        return all(u.state is UnitState.SUCCESSFUL for u in self.units)


Results = Callable[[], Iterator[UnitResult]]
"""The results to publish, in the order of the units, read whenever they are wanted: they may be too many to be kept."""
Publish = Callable[[Iterable[UnitResult]], Iterable[CommitStep]]
"""The steps that publish results."""

AfterStep = Callable[[Decision, int, int], None]
"""Is told that of a decision's steps k of n are done."""


class Committer:
    """Makes and carries out the decisions of an ingestion.

    :param files: the file system under the target root.
    :param attempts: after how many runs that failed to finish a slot its dataset is quarantined.
    :param retention: how long replaced files stay after the slot that retired them is done; `None`: they are left to others.
    :param age: how long ago a slot of a dataset was done, `None` if that isn't known yet. `manifest.Ages` goes by one clock; the
        default goes by two, that of the host that did it and this one's.
    :param redactor: knows the secrets that no note may show.
    """

    def __init__(
        self,
        journal: Journal,
        files: Files,
        *,
        attempts: int = DEFAULT_ATTEMPTS,
        retention: timedelta | None = DEFAULT_RETENTION,
        age: Callable[[str, int], timedelta | None] | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.journal = journal
        self.files = files
        self.homes = Homes(journal, files)
        """Whether that file system is the one that the journal's slots are published to."""
        self._attempts = attempts
        self._retention = retention
        self._age = age
        self._redactor = redactor if redactor is not None else Redactor()
        self.runner: StepRunner | None = None
        """Where long sequences are written and carried out, if not here."""
        self.after_step: AfterStep | None = None
        """Called after each step that was done here, whoever decided it."""

    # Deciding

    def decide(self, proposal: Proposal, results: Results, publish: Publish) -> Slot:
        """Bind a plan to a slot, or find the slot that is its answer already. Results and steps pass by, a shard at a time.

        :raises LostRaceError: the plan no longer holds, and why. :raises StepError: an older slot can't be finished.
        :raises PausedError: the dataset is paused.
        :raises TargetError: the target isn't the one that the plan was made for.
        """
        plan = proposal.plan
        shards: tuple[tuple[str, ...], int] | None = None
        while True:
            history = self.journal.history(plan.urn)
            standing = history.by_token(plan.token) or history.answer(plan.run_key)
            if standing is not None:
                return self._standing(standing, plan)
            if history.pending is not None:
                with suppress(LostRaceError):  # somebody abandoned it just now: it is no longer in the way
                    self.execute(history.pending, plan.run_key)
                continue
            check_goes_on(history)
            check_holds(plan, proposal.ranges, history)
            if shards is None:
                try:
                    shards = self._put_steps(proposal, history, results, publish)
                except StepLostError:
                    if self.journal.history(plan.urn).state.head == history.state.head:
                        raise
                    continue  # somebody decided meanwhile, and what could win no more was swept: that is what to tell
            self.homes.check_here()
            self.journal.put_decision(self._decision(proposal, history, shards))

    def _standing(self, slot: Slot, plan: Plan) -> Slot:
        if slot.decision.action is Action.ABORT or slot.abandoned:
            raise LostRaceError(
                operation="commit",
                subject=f"dataset {plan.urn!r}",
                cause=f"this run's {slot.given_up}",
                hint="Clear create_work_units to plan its range anew.",
            )
        return slot

    def _put_steps(
        self, proposal: Proposal, history: History, results: Results, publish: Publish
    ) -> tuple[tuple[str, ...], int]:
        coverage = without(history, proposal.plan)
        if proposal.plan.planned is not None:
            coverage = coverage.starting_at(proposal.plan.planned.low)
        for added in proposal.ranges:
            coverage = coverage.add(added)
        _check_whole(proposal.plan, history, coverage)
        if not proposal.files and not proposal.plan.replaces:
            return (), 0  # nothing to move and nothing to retire: its decision alone finishes it
        last = HighWatermarkStep(coverage.edge)
        if self.runner is not None and proposal.files > self.runner.above:
            return self._put_written(self.runner, proposal, results, last)
        return self.journal.put_shards(proposal.plan.urn, proposal.plan.token, chain[Step](publish(results()), [last]))

    def _put_written(
        self, runner: StepRunner, proposal: Proposal, results: Results, last: HighWatermarkStep
    ) -> tuple[tuple[str, ...], int]:
        """Put the shards that were written elsewhere, and the last step, into the journal."""
        plan, journal = proposal.plan, self.journal
        names, count = [], 0
        for data, steps in runner.write(plan, results(), proposal.staging):
            names.append(journal.put_shard(plan.urn, data))
            count += steps
        ending, one = journal.put_shards(plan.urn, plan.token, [last])
        return (*names, *ending), count + one

    def _decision(self, proposal: Proposal, history: History, shards: tuple[tuple[str, ...], int]) -> Decision:
        plan = proposal.plan
        return Decision(
            slot=history.state.head + 1,
            action=Action.COMMIT if shards[1] else Action.NOOP,
            urn=plan.urn,
            token=plan.token,
            run_key=plan.run_key,
            generation=plan.generation,
            previous=history.last_digest,
            at=now(),
            ranges=proposal.ranges,
            removed=plan.reopens,
            planned=plan.planned,
            replaces=plan.replaces,
            schema=plan.schema,
            units=proposal.units,
            complete=proposal.complete,
            staging=proposal.staging,
            target=self.files.root,
            shards=shards[0],
            steps=shards[1],
            run=plan.run,
            kept_from=plan.kept_from,
        )

    # Carrying out

    def execute(self, slot: Slot, run_key: str) -> Slot:
        """Carry out a decided slot, to its outcome. Safe at any time, by anyone, also at the same time.

        :return: the slot with its outcome. :raises LostRaceError: the slot was abandoned.
        :raises StepError: a step can't be done; the slot stays pending.
        :raises TargetError: and ConfigurationError: the target isn't the one that it is to be published to; the slot stays
            pending.
        """
        if slot.finished:
            return self._ended(slot)
        decision = slot.decision
        if decision.staging is not None:  # else it has no file to publish
            self.homes.check_here()  # somebody may have moved just before it was decided
        try:
            outcome = self._carry_out_all(decision)
        except (StepError, RecordError, OSError) as error:
            outcome = self.journal.outcome(decision.urn, decision.slot)
            if outcome is None:  # otherwise somebody else came to the end, and may have cleaned up or trimmed since
                if isinstance(error, GobblinError):
                    raise
                raise _disk_error(decision, error) from error
        if outcome is None:
            outcome = self.journal.put_outcome(slot, OutcomeState.DONE, run_key)
        return self._ended(replace(slot, outcome=outcome))

    def _carry_out_all(self, decision: Decision) -> Outcome | None:
        """Carry out the stored steps, to the durability of what they made; an outcome that stands already ends it."""
        if self.runner is not None and decision.steps > self.runner.above and decision.staging is not None:
            return self._carry_out_elsewhere(self.runner, decision, decision.staging)
        seen = done = 0
        folders: set[str] = set()
        steps = (step for step in self.journal.steps(decision) if not isinstance(step, HighWatermarkStep))
        for batch in batches(steps, STEPS_PER_BATCH):
            outcome = self.journal.outcome(decision.urn, decision.slot)
            if outcome is not None:
                return outcome
            for done_here in carry_out_all(batch, self.files, partial(self._carry_out, decision)):
                seen += 1
                done += done_here
                if done_here and self.after_step is not None:
                    self.after_step(decision, seen, decision.steps)
            folders.update(folder for step in batch for folder in step.folders())
        self._sync(folders)
        if seen:
            _log_done(decision, seen, done, "here")
        return None

    def _carry_out_elsewhere(self, runner: StepRunner, decision: Decision, staging: str) -> Outcome | None:
        outcome = self.journal.outcome(decision.urn, decision.slot)
        if outcome is not None:
            return outcome
        done = runner.carry_out(decision.urn, decision.slot, staging, self.journal.shards(decision))
        _log_done(decision, decision.steps - 1, done, "on Spark")
        return None

    def _carry_out(self, decision: Decision, step: CommitStep) -> bool:
        return carry_out(step, self.files, decision.urn, decision.slot)

    def _sync(self, folders: Iterable[str]) -> None:
        sync(self.files, folders)

    def _ended(self, slot: Slot) -> Slot:
        if slot.abandoned:
            raise LostRaceError(
                operation="publish",
                subject=f"slot {slot.decision.slot} of dataset {slot.decision.urn!r}",
                cause=slot.given_up,
                hint="Clear create_work_units to plan its range anew.",
            )
        return slot

    # Recovering

    def recover(self, urn: str, run_key: str) -> Slot | None:
        """Finish what an earlier run decided and left, or count the failure.

        :return: the slot that was finished, `None` if nothing was pending.
        :raises QuarantinedError: it failed in too many runs. :raises GobblinError: it failed this time.
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
                hint="Mend the cause and release the dataset, or abandon the slot.",
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
            return None  # somebody abandoned it just now: nothing is pending
        except GobblinError as error:
            self.count_failure(urn, run_key, error)
            raise

    def count_failure(self, urn: str, run_key: str, error: GobblinError) -> None:
        """Note that a run failed to finish the pending slot: once a run; quarantine after too many.

        That the target isn't there is no fault of a dataset's, and isn't counted. Raises nothing: the first error is the one to
        tell.
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
        failures, told = history.state.failures, self._redactor.brief(str(error))
        if run_key not in failures:
            self.journal.put_note(urn, slot.decision.slot, Note(NoteKind.FAILED, run_key, now(), told))
            failures = (*failures, run_key)
        if len(failures) >= self._attempts:
            self.journal.put_note(urn, slot.decision.slot, Note(NoteKind.QUARANTINED, run_key, now(), told))

    # Clean-up

    def clean(self, history: History, run_key: str) -> tuple[str, ...]:
        """Remove what abandoned slots left, and the files that done slots retired, after their retention.

        What an abandoned slot left is removed at once. Where a request that was under way then may still take effect, as the
        completion of an upload, it is removed again by later runs, and noted as clean when that is over.

        :return: a sentence for every file that was left because somebody changed it.
        :raises TargetError: the target isn't the one that they were published to.
        """
        left: list[str] = []
        for slot in history.slots:
            if slot.noted(NoteKind.CLEANED) or not self._due(slot, history):
                continue
            self.homes.check_mark()  # a file that isn't there is gone only if the target is there, before and after
            found = tuple(self._clean_slot(slot, history))
            self.homes.check_mark()
            left += found
            if not self._settled(slot):
                continue
            self.journal.put_note(
                history.urn, slot.decision.slot, Note(NoteKind.CLEANED, run_key, now(), "; ".join(found)[:10_000])
            )
        return tuple(left)

    def _due(self, slot: Slot, history: History) -> bool:
        if slot.outcome is None or not slot.leaves_files:
            return False
        if slot.abandoned:
            return True
        if slot.decision.action is not Action.DROP and not any(s.done for s in history.after(slot.decision.slot)):
            return False
        return self._retention is not None and self._retained(slot, slot.outcome, self._retention)

    def _retained(self, slot: Slot, outcome: Outcome, retention: timedelta) -> bool:
        """Whether what a slot retired has been kept for long enough."""
        if not retention:
            return True
        age = now() - outcome.at if self._age is None else self._age(slot.decision.urn, slot.decision.slot)
        return age is not None and age >= retention

    def _settled(self, slot: Slot) -> bool:
        """Whether no request of an abandoned slot can take effect any more."""
        return slot.outcome is None or slot.done or now() - slot.outcome.at >= self.files.settles_after

    def _clean_slot(self, slot: Slot, history: History) -> Iterator[str]:
        """Staging first, so that no late mover has a source; then names, by identity; and both durable before it is noted."""
        decision = slot.decision
        folders: set[str] = set()
        tokens = {decision.token}
        if slot.abandoned:
            folders.update(self._remove_staging(decision))
            steps = (step for step in self.journal.steps(decision) if not isinstance(step, HighWatermarkStep))
            try:
                for touched in each(self.files, partial(self._undo, decision), steps):
                    folders.update(touched)
            except RecordError as error:  # to abandon is the way out of lost steps, so it must come to its end
                yield f"files that slot {decision.slot} may have published are left, for {error}"
        else:
            for number in {ref.slot for ref in decision.replaces}:
                old = history.slot(number).decision
                tokens.add(old.token)
                folders.update(self._remove_staging(old))
            retired = (step for _, step in self.journal.moves(history, decision.replaces))
            for left, touched in each(self.files, self._remove, retired):
                folders.update(touched)
                if left:
                    yield f"{left} was changed after it was published and is left"
        folders |= {*self._remove_emptied(sorted(folders), tokens)}
        self._sync(f for f in sorted(folders) if self.files.identity(f) is not None)

    def _remove_emptied(self, folders: Iterable[str], tokens: Iterable[str]) -> Iterator[str]:
        """Remove those of some folders that are a unit's, by their names, and empty. :return: the folders that they were in."""
        for folder in folders:
            above, _, name = folder.rpartition("/")
            if name.startswith(tuple(f"{token}-" for token in tokens)):
                self.files.remove_folder(folder)
                yield above

    def _undo(self, decision: Decision, step: CommitStep) -> tuple[str, ...]:
        """:return: the folders that it may have changed."""
        try:
            step.undo(StepContext(self.files))
        except Exception as error:
            raise StepError(
                operation=f"take back a {type(step).__name__} of",
                subject=f"slot {decision.slot} of dataset {decision.urn!r}",
                cause=error,
                hint="The slot is abandoned, and readers of the journal don't see it. The next run cleans up.",
            ) from error
        return step.folders()

    def _remove(self, step: FileStep) -> tuple[str, tuple[str, ...]]:
        """Remove a retired file. :return: its name if it isn't what was published, and the folders that were changed."""
        found = self.files.identity(step.target)
        if found is None:
            return "", ()
        if not step.is_ours(found, self.files):
            return step.target, ()
        self.files.unlink(step.target)
        return "", step.folders()

    def _remove_staging(self, decision: Decision) -> tuple[str, ...]:
        """:return: the folder that it was in."""
        if decision.staging is None:
            return ()
        self.files.remove_tree(decision.staging)
        return (posixpath.dirname(decision.staging),)


def check_goes_on(history: History) -> None:
    """Whether anything new may be planned or decided for a dataset. :raises PausedError: somebody paused it."""
    if history.state.paused is not None:
        raise PausedError(
            operation="publish anything new of",
            subject=f"dataset {history.urn!r}",
            cause=f"it is {history.state.paused}",
            hint="Its watermark stays. To let it go on: `airflow gobblin resume`.",
        )


def check_holds(plan: Plan, ranges: tuple[Range, ...], history: History) -> None:
    """Whether a plan still holds against the chain: generation, replaced units, ranges (rule 3).

    :raises AlreadyCoveredError: what it wanted was committed by another run. :raises LostRaceError: it doesn't, and why.
    """
    state = history.state
    by = history.slot(state.head).named if state.head else "nobody"
    if state.generation != plan.generation:
        raised = _raised(history, plan.generation)
        raise _lost(
            plan, f"{raised} raised the generation to {state.generation}, and this plan is of {plan.generation}"
        )
    if state.schema is not None and not schema.includes(plan.schema, state.schema):
        raise _lost(plan, f"{by} published a column that this plan's schema lacks or has otherwise")
    if gone := set(plan.replaces) - set(state.live):
        raise _lost(plan, f"{_retired(history, gone) or by} retired a unit that this plan replaces")
    if plan.planned is None:
        if set(plan.replaces) != set(state.live):
            raise _lost(plan, f"{by} published a snapshot after this plan was made")
        return
    live = [unit.range for unit in state.live.values()] if plan.reopens else []
    if any(part is not None and part.overlaps(bare) for part in live for bare in plan.reopens):
        raise _lost(plan, f"{by} published units in a range that this plan found without any")
    coverage = without(history, plan)
    if is_met(plan.planned, plan.open_end, coverage):
        raise AlreadyCoveredError(
            operation="commit",
            subject=f"dataset {plan.urn!r}",
            cause=f"range {plan.asked} was committed by another run, up to {by}",
        )
    taken = [r for r in ranges if coverage.overlaps(r)]
    if taken or (plan.open_end and coverage.reaches_past(plan.planned.high)):
        by = _covering(history, taken) or by
        raise _lost(plan, f"{by} covers a part of range {taken[0] if taken else plan.asked}")


def _raised(history: History, generation: int) -> str:
    """The first slot that raised the generation beyond one."""
    slots = (history.slot(number) for number in range(1, history.state.head + 1))
    return next((s.named for s in slots if s.done and s.decision.generation > generation), "nobody")


def _retired(history: History, units: Collection[UnitRef]) -> str:
    """The slot that retired one of some units, if its records are still there."""
    return next((s.named for s in history.slots if s.done and not {*units}.isdisjoint(s.decision.replaces)), "")


def _covering(history: History, taken: Iterable[Range]) -> str:
    """The slot of a live unit that lies in one of some ranges, if there is one."""
    parts = [*taken]
    live = ((ref.slot, unit.range) for ref, unit in history.state.live.items())
    found = (slot for slot, part in live if part is not None and any(part.overlaps(one) for one in parts))
    number = next(found, None)
    return "" if number is None else history.slot(number).named


def can_win(plan: Plan, history: History) -> bool:
    """Whether a plan can still be decided.

    What can't once never can again: a range is uncovered only by raising the generation, and a retired unit stays retired.
    """
    if history.by_token(plan.token) is not None or history.answer(plan.run_key) is not None:
        return False
    try:
        check_holds(plan, (), history)
    except LostRaceError:
        return False
    return plan.planned is None or not is_met(plan.planned, plan.open_end, without(history, plan))


def without(history: History, plan: Plan) -> Coverage:
    """The coverage without what a plan that holds stands for anew."""
    coverage = history.state.coverage
    for gone in stood_for(plan, history):
        coverage = coverage.remove(gone)
    return coverage


def stood_for(plan: Plan | Backfill, history: History) -> Iterator[Range]:
    """The covered ranges that a plan's units, or those of a backfill, stand for anew."""
    replaced = (history.state.live[ref].range for ref in plan.replaces)
    yield from (part for part in replaced if part is not None)
    yield from plan.reopens


def _check_whole(plan: Plan, history: History, coverage: Coverage) -> None:
    """What is replaced is replaced whole: the coverage never shrinks by it. :raises SourceDataError: a unit ended too early."""
    left = [gone for gone in stood_for(plan, history) if plan.planned is not None and not coverage.covers(gone)]
    if left:
        raise SourceDataError(
            operation="replace",
            subject=f"range {left[0]} of dataset {plan.urn!r}",
            cause="the new units don't reach to its end",
            hint="What is published stands as it was. See why the source stopped there, then clear create_work_units.",
        )


def _lost(plan: Plan, why: str) -> LostRaceError:
    return LostRaceError(
        operation="commit",
        subject=f"dataset {plan.urn!r}",
        cause=why,
        hint="Nothing of this plan was published. Clear create_work_units to plan anew.",
    )


def _log_done(decision: Decision, seen: int, done: int, where: str) -> None:
    log.info(
        "dataset %r, slot %d, of %s: %d were found done, %d are done %s; the last hands over the watermark",
        decision.urn,
        decision.slot,
        many(decision.steps, "step"),
        seen - done,
        done,
        where,
    )


def _disk_error(decision: Decision, error: OSError) -> StepError:
    return StepError(
        operation="publish",
        subject=f"slot {decision.slot} of dataset {decision.urn!r}",
        cause=error,
        hint="Nothing is lost: clear execute_commit_steps once the cause is mended, or abandon the slot.",
    )
