"""Deliberate faults in the protocol, each a small patch of the product, to check that the tests notice them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pyarrow.compute as pc

from airflow_gobblin.admin import actions
from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.commit import cleanup, committer, preconditions
from airflow_gobblin.commit.cleanup import Cleanup
from airflow_gobblin.commit.committer import Committer, Proposal
from airflow_gobblin.commit.homes import Homes
from airflow_gobblin.commit.preconditions import check_preconditions, without
from airflow_gobblin.commit.sweeping import Sweeper
from airflow_gobblin.errors import GobblinError, LostRaceError, StepFencedError, StoreError
from airflow_gobblin.journal import history as folding
from airflow_gobblin.journal import journal
from airflow_gobblin.journal.history import History, Slot, Snapshot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Decision, Outcome, OutcomeState, ShardRef
from airflow_gobblin.journal.seals import SealedDataset
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import DatasetRef, UnitResult, UnitState, UnitSummary, Upload
from airflow_gobblin.rows import extraction, work
from airflow_gobblin.rows.sources.kafka.reader import KafkaReader
from airflow_gobblin.run import dataset_plan, decide, execute, finish, replan, sealing
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.steps.base import HighWatermarkStep, Phase, StepContext, StepStatus
from airflow_gobblin.steps.publishing import FolderStep, MoveStep, UploadStep
from airflow_gobblin.storage.files import Files, LocalFiles, local
from airflow_gobblin.storage.stores import base
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.testing.memory_files import MemoryFiles, MemoryUploads
from airflow_gobblin.workspace.staging import Staging
from tests.faults import FaultyFiles


@dataclass(frozen=True)
class Patch:
    """An attribute of the product, and its replacement."""

    owner: Any
    name: str
    value: Any


def no_read_back() -> Iterable[Patch]:
    """A put decision or outcome is taken to exist, whatever the store answered."""

    def put_or_read(store: Store, key: str, data: bytes) -> tuple[bytes, bool]:
        if "/o/" not in key and "/d/" not in key:
            return base.put_or_read(store, key, data)
        try:
            return data, store.put_if_absent(key, data)
        except StoreError:
            return data, False

    return (Patch(journal, "put_or_read", put_or_read),)


def no_plan_precondition() -> Iterable[Patch]:
    """A plan is decided whatever was committed since it was made, in the same generation."""

    def holds(plan: Plan, ranges: object, history: History) -> None:
        if plan.generation != history.state.generation:
            raise LostRaceError(operation="commit", subject=plan.urn, cause="its generation")

    return tuple(Patch(module, "check_preconditions", holds) for module in (committer, decide, finish, preconditions))


def no_generation() -> Iterable[Patch]:
    """A plan from before a rewind is as good as one from after it."""

    def holds(plan: Plan, ranges: tuple[Range, ...], history: History) -> None:
        check_preconditions(plan, ranges, replace(history, state=replace(history.state, generation=plan.generation)))

    return tuple(Patch(module, "check_preconditions", holds) for module in (committer, decide, finish, preconditions))


def replaced_units_are_not_compared() -> Iterable[Patch]:
    """A plan replaces what is published of its range, though that is no longer what the plan found there."""

    def gone(plan: Plan, history: History) -> bool:
        return plan.planned is not None and not set(plan.replaces) <= set(history.state.live)

    def holds(plan: Plan, ranges: tuple[Range, ...], history: History) -> None:
        if gone(plan, history):
            plan, ranges = replace(plan, replaces=()), ()
        check_preconditions(plan, ranges, history)

    def left(history: History, plan: Plan) -> Coverage:
        if not gone(plan, history):
            return without(history, plan)
        assert plan.planned is not None
        return history.state.coverage.remove(plan.planned)

    def whole(plan: Plan, history: History, coverage: Coverage) -> None:
        if not gone(plan, history):
            check_whole(plan, history, coverage)

    check_whole = preconditions.check_whole
    coverage_after = Decision.coverage_after

    def over(self: Decision, before: Coverage, live: Mapping[UnitRef, UnitSummary]) -> Coverage:
        if self.planned is not None and not set(self.replaces) <= set(live):
            before = before.remove(self.planned)
        return coverage_after(self, before, live)

    return (
        *(Patch(module, "check_preconditions", holds) for module in (committer, decide, finish, preconditions)),
        Patch(preconditions, "without", left),
        Patch(committer, "check_whole", whole),
        Patch(Decision, "coverage_after", over),
    )


def dead_letters_are_not_published() -> Iterable[Patch]:
    """Refused rows are counted, and their files are left in staging."""
    return (Patch(work, "_dead_letter_steps", lambda *_: ()),)


def dead_letters_alone_are_nothing_to_publish() -> Iterable[Patch]:
    """Units that have dead letters only are taken for units without rows."""

    def publishes(self: Proposal) -> bool:
        rows = sum(unit.rows_written for unit in self.units if unit.state is UnitState.SUCCESSFUL)
        return bool(rows or self.plan.replaces) or not self.plan.holds.keeps_units

    return (Patch(Proposal, "publishes", property(publishes)),)


def an_overtaken_snapshot_wins() -> Iterable[Patch]:
    """A snapshot is published beside another one that came after its plan was made."""

    def holds(plan: Plan, ranges: tuple[Range, ...], history: History) -> None:
        check_preconditions(replace(plan, head=history.state.head), ranges, history)

    return tuple(Patch(module, "check_preconditions", holds) for module in (committer, decide, finish, preconditions))


def a_decision_overlooks_holes() -> Iterable[Patch]:
    """The watermark that a slot hands over isn't the one that the fold of its chain has: it lies after a hole."""
    put_decision = Journal.put_decision

    def put(self: Journal, decision: Decision) -> Decision | None:
        if decision.hand_over is not None and decision.planned is not None:
            decision = replace(decision, hand_over=HighWatermarkStep(decision.planned.high))
        return put_decision(self, decision)

    return (Patch(Journal, "put_decision", put),)


def a_part_is_replaced() -> Iterable[Patch]:
    """Units are retired although the new ones don't reach to their ends."""
    return (Patch(committer, "check_whole", lambda *_: None),)


def outcome_before_the_moves() -> Iterable[Patch]:
    """The slot is called done, and then its files are moved."""
    execute = Committer.execute

    def early(self: Committer, slot: Slot, run_key: str) -> Slot:
        if not slot.finished:
            self.journal.put_outcome(slot, OutcomeState.DONE, run_key)
        return execute(self, slot, run_key)

    def no_outcome(self: Journal, urn: str, slot: int) -> None:
        return None

    return (Patch(Committer, "execute", early), Patch(Journal, "outcome", no_outcome))


def executors_do_not_look_at_the_outcome() -> Iterable[Patch]:
    """Steps are carried out to the last one, though their slot was abandoned long ago."""
    carry_out_all = Committer._carry_out_all

    class Unseen:
        def __init__(self, seen: Journal) -> None:
            self._seen = seen

        def outcome(self, urn: str, slot: int) -> None:
            return None

        def __getattr__(self, name: str) -> Any:
            return getattr(self._seen, name)

    def blind(self: Committer, decision: Decision) -> Outcome | None:
        seeing = self.journal
        self.journal = cast(Journal, Unseen(seeing))
        try:
            return carry_out_all(self, decision)
        finally:
            self.journal = seeing

    return (Patch(Committer, "_carry_out_all", blind),)


def a_rewind_keeps_the_generation() -> Iterable[Patch]:
    """A plan from before a rewind may be decided after it."""

    def kept(**fields: Any) -> Decision:
        rewinds = fields["action"] is Action.REWIND
        return Decision(**{**fields, "generation": fields["generation"] - rewinds})

    return (Patch(actions, "Decision", kept),)


def ones_own_list() -> Iterable[Patch]:
    """The steps that are carried out are those that would be decided now, and not the stored ones."""
    executed, carry_out_all = execute._execute, Committer._carry_out_all
    own: dict[Committer, tuple[OpenJob, Plan]] = {}

    def remember(self: OpenJob, ref: DatasetRef, run_key: str) -> DatasetReport:
        plan = self.staging.plan(ref.token)
        if plan is not None:
            own[self.committer] = (self, plan)
        return executed(self, ref, run_key)

    def carried_out(self: Committer, decision: Decision) -> Outcome | None:
        pipe, plan = own.get(self, (None, None))
        if pipe is None or plan is None or plan.token != decision.token:
            return carry_out_all(self, decision)
        found = ((u, pipe.staging.result(plan.token, u.id)) for u in pipe.staging.units(plan))
        published = [(unit, result) for unit, result in found if result is not None]
        for step in pipe.job.work.publish(plan, published, self.files, pipe.staging.token_folder(plan.token)):
            self._carry_out(decision, step)
        return None

    return (Patch(execute, "_execute", remember), Patch(Committer, "_carry_out_all", carried_out))


def clean_up_by_age() -> Iterable[Patch]:
    """Staging is also swept when it is old: here, when three newer plans were made since."""
    real = Sweeper._needed

    def needed(self: Sweeper, plan: Plan | GobblinError | None) -> bool:
        if not isinstance(plan, Plan) or not real(self, plan):
            return False
        newer = iter(plan.token != token for token in _by_age(self._staging))
        return sum(takewhile(bool, newer)) < 3

    return (Patch(Sweeper, "_needed", needed),)


def _by_age(staging: Staging) -> list[str]:
    """The tokens that have a plan, the newest first."""
    files = staging.files
    assert isinstance(files, FaultyFiles)
    memory = files._files
    assert isinstance(memory, MemoryFiles)
    made = {token: memory._files.get(f"{staging.folder}/p/{token}") for token in staging.tokens()}
    return sorted(made, key=lambda token: -getattr(made[token], "inode", 0))


def shared_staging() -> Iterable[Patch]:
    """All attempts at a unit write to one folder, which each of them empties first."""
    extract_unit = extraction.extract_unit

    def shared(job: Any, plan: Plan, unit: Any, attempt: str, files: Any, folder: str, connections: Any) -> UnitResult:
        files.remove_tree(f"{folder}/shared/{unit.id}-one")
        return extract_unit(job, plan, unit, "shared", files, folder, connections)

    one_name = SimpleNamespace(token_hex=lambda n: "one")
    return (Patch(extraction, "extract_unit", shared), Patch(extraction, "secrets", one_name))


def existence_is_proof() -> Iterable[Patch]:
    """A step whose target exists counts as done, as in Gobblin."""
    return (_existing(MoveStep),)


def an_upload_exists_and_is_proof() -> Iterable[Patch]:
    """The same, for an upload."""
    return (_existing(UploadStep),)


def a_folder_exists_and_is_proof() -> Iterable[Patch]:
    """The same, for a folder, whatever is in it."""
    return (_existing(FolderStep),)


def a_folder_is_moved_with_all_that_is_in_it() -> Iterable[Patch]:
    """A staged folder is renamed without a check for foreign files in it."""
    staged = FolderStep._staged

    def unlooked(self: FolderStep, files: Files) -> StepStatus:
        found = staged(self, files)
        return StepStatus.TODO if found is StepStatus.CONFLICT else found

    return (Patch(FolderStep, "_staged", unlooked),)


def _existing(cls: type[Any]) -> Patch:
    verify = cls.verify

    def exists(self: Any, context: StepContext) -> StepStatus:
        there = context.files.identity(self.target) is not None
        found: StepStatus = StepStatus.DONE if there else verify(self, context)
        return found

    return Patch(cls, "verify", exists)


def moves_overwrite() -> Iterable[Patch]:
    """A foreign file that has a name to be published is removed."""
    execute, verify = MoveStep.execute, MoveStep.verify

    def overwrite(self: MoveStep, context: StepContext) -> None:
        if context.files.identity(self.target) is not None:
            context.files.unlink(self.target)
        execute(self, context)

    def todo(self: MoveStep, context: StepContext) -> StepStatus:
        found = verify(self, context)
        return StepStatus.TODO if found is StepStatus.CONFLICT else found

    return (Patch(MoveStep, "execute", overwrite), Patch(MoveStep, "verify", todo))


def sweep_ignores_decisions() -> Iterable[Patch]:
    """Staging of a plan that can win no slot any more is swept, although a pending slot needs it."""

    def needed(self: Sweeper, plan: Plan | GobblinError | None) -> bool:
        return isinstance(plan, Plan) and preconditions.can_win(plan, self._journal.history(plan.urn))

    return (Patch(Sweeper, "_needed", needed),)


def an_upload_is_completed_without_condition() -> Iterable[Patch]:
    """A foreign object that has an upload's name is overwritten, as by a store that ignores `If-None-Match`."""
    complete = MemoryUploads.complete

    def overwrite(self: MemoryUploads, target: str, upload: Upload) -> None:
        if self.can_complete(target, upload):
            self._objects.remove(target)
        complete(self, target, upload)

    return (Patch(MemoryUploads, "complete", overwrite),)


def an_upload_is_aborted_that_can_win() -> Iterable[Patch]:
    """Uploads that no slot names are aborted, whatever may become of their plans."""

    def abandoned(self: Sweeper, target: str, tokens: set[str]) -> bool:
        claim = self._claims.valid().get(posixpath.dirname(target))
        if claim is None:
            return False
        slot = self._journal.history(claim.urn).by_token(posixpath.basename(target).partition("-")[0])
        return slot is None or slot.finished

    return (Patch(Sweeper, "_abandoned", abandoned),)


def folders_are_not_synced() -> Iterable[Patch]:
    """The outcome is written although the names that it confirms may not be on disk."""

    def no_sync(self: Committer, folders: object) -> None:
        pass

    return (Patch(Committer, "_sync", no_sync),)


def folders_are_synced_after_the_last_phase() -> Iterable[Patch]:
    """A phase begins although the names of the one before may not be on disk."""
    sync, carry_out_all = Committer._sync, Committer._carry_out_all
    waiting: dict[Committer, set[str]] = {}

    def later(self: Committer, folders: Iterable[str]) -> None:
        waiting.setdefault(self, set()).update(folders)

    def carried_out(self: Committer, decision: Decision) -> Outcome | None:
        outcome = carry_out_all(self, decision)
        sync(self, waiting.pop(self, ()))
        return outcome

    return (Patch(Committer, "_sync", later), Patch(Committer, "_carry_out_all", carried_out))


def phases_do_not_wait() -> Iterable[Patch]:
    """A phase begins before the one before it is done: the last one first, but in the slot that scenarios begin with."""
    of, instead = Decision.of, {Phase.PREPARE: Phase.SETTLE, Phase.PUBLISH: Phase.PUBLISH, Phase.SETTLE: Phase.PREPARE}

    def impatient(self: Decision, phase: Phase, *sites: Site) -> tuple[ShardRef, ...]:
        return of(self, phase if self.slot == 1 else instead[phase], *sites)

    return (Patch(Decision, "of", impatient),)


def outcome_before_the_fence() -> Iterable[Patch]:
    """A slot is called abandoned, and then its acts are shut out."""
    shut_out = Committer._shut_out

    def abandon(self: Committer, slot: Slot, run_key: str, actor: str = "", reason: str = "") -> Slot:
        outcome = self.journal.put_outcome(slot, OutcomeState.ABANDONED, run_key, actor, reason)
        shut_out(self, slot.decision)
        return replace(slot, outcome=outcome)

    return (Patch(Committer, "abandon", abandon),)


def a_fence_that_comes_too_late_abandons() -> Iterable[Patch]:
    """A slot is abandoned, although its act is found done."""
    shut_out = Committer._shut_out

    def anyhow(self: Committer, decision: Decision, *, asked: bool = False) -> bool:
        shut_out(self, decision, asked=asked)
        return True

    return (Patch(Committer, "_shut_out", anyhow),)


def a_fence_is_known_by_its_mark_only() -> Iterable[Patch]:
    """A slot that somebody began to abandon stays pending, where the fence shows only in that something is missing."""
    return (Patch(committer, "_FENCED", (StepFencedError,)),)


def nothing_is_synced() -> Iterable[Patch]:
    """No file and no folder is synced."""
    return (Patch(local, "_fsync", lambda path, flags: None),)


def folders_above_are_not_synced() -> Iterable[Patch]:
    """A folder is synced, and the name of it isn't."""

    def shallow(self: LocalFiles, path: str) -> None:
        local._fsync(self._at(path), os.O_RDONLY | os.O_DIRECTORY)

    return (Patch(LocalFiles, "sync_folder", shallow),)


def records_are_read_before_they_are_durable() -> Iterable[Patch]:
    """A record is given out as soon as it has its name."""

    def seen(self: LocalStore, paths: list[str]) -> int:
        return sum(1 for n in self._files.names(paths) if n)

    return (Patch(LocalStore, "_make_durable", seen),)


def a_retention_is_measured_by_the_executors_clock() -> Iterable[Patch]:
    """Retired files stay until their time is over by the worker's own clock."""

    def over(self: Cleanup, slot: Slot, retention: timedelta) -> bool:
        assert slot.outcome is not None
        return bool(cast(Any, cleanup).now() - slot.outcome.at >= retention)

    return (Patch(Cleanup, "_retained", over),)


def trimming_before_the_snapshot() -> Iterable[Patch]:
    """The records of old slots are removed before the snapshot that replaces them is written."""
    put_snapshot = Journal.put_snapshot

    def late(self: Journal, snapshot: Snapshot) -> None:
        for key in [*self.store.list(self.key(snapshot.urn, ""))]:
            kind, slot = key.split("/")[2:4]
            if kind in ("d", "n", "o") and int(slot) <= snapshot.slot:
                self.store.delete(key)
        put_snapshot(self, snapshot)

    return (Patch(Journal, "put_snapshot", late),)


def late_winners_count() -> Iterable[Patch]:
    """A record created in a slot counts, although a snapshot shows that the slot was taken and trimmed long ago."""

    def none(self: Journal, urn: str) -> int:
        return 0

    return (Patch(Journal, "_newest_snapshot", none),)


def a_pause_is_not_seen() -> Iterable[Patch]:
    """A paused dataset is planned and decided all the same."""
    return tuple(
        Patch(module, "check_goes_on", lambda history: None) for module in (committer, decide, finish, dataset_plan)
    )


def a_pause_takes_no_slot() -> Iterable[Patch]:
    """A pause that finds its slot taken counts as done, and later decisions don't see it."""

    def give_way(self: Administration, action: Action, urn: str, reason: str) -> None:
        with suppress(LostRaceError):
            self._decide(self.would_pause(urn) if action is Action.PAUSE else self.would_resume(urn), reason)

    return (Patch(Administration, "_pause_or_resume", give_way),)


def a_pause_waits_for_an_outcome() -> Iterable[Patch]:
    """A pause names the outcome of the slot before, which it may not have seen."""
    return (Patch(Slot, "named_by", lambda self, action: self.digest),)


def a_pause_hides_what_is_pending() -> Iterable[Patch]:
    """Only the newest slot is looked at for whether it is finished."""

    def newest(slots: Sequence[Slot]) -> Slot | None:
        return slots[-1] if slots and not slots[-1].finished else None

    return tuple(Patch(module, "unfinished", newest) for module in (folding, journal))


def a_position_is_a_count() -> Iterable[Patch]:
    """A topic's position is moved by the number of its records, though offsets have gaps."""
    taken = KafkaReader._taken

    def counted(self: KafkaReader, messages: Any, left: set[int]) -> Any:
        before = [*self._position]
        batch = taken(self, messages, left)
        for partition, low in enumerate(before):
            self._position[partition] = low + pc.sum(pc.equal(batch["partition"], partition), min_count=0).as_py()
        return batch

    return (Patch(KafkaReader, "_taken", counted),)


def a_loss_is_not_named() -> Iterable[Patch]:
    """Offsets that the log has lost are covered like others."""
    return (Patch(KafkaReader, "properties", property(lambda _: {})),)


def a_range_is_of_the_first_position() -> Iterable[Patch]:
    """A backfill retires units that overlap it in their first position only, and covers again what it was asked for."""

    def overlaps(self: Range, other: Range) -> bool:
        (low, high), (lo, h) = (next(iter(part._positions())) for part in (self, other))
        return bool(low < h and lo < high and low < high and lo < h)

    return (Patch(Range, "overlaps", overlaps),)


def a_unit_is_cut_inside_a_tie() -> Iterable[Patch]:
    """A unit that fails is cut before its bad row, though other rows of the same position come before that one."""
    cut = extraction._UnitRun._cut

    class Careless:
        def __init__(self, reader: Any) -> None:
            self._reader = reader

        @property
        def position(self) -> Any:
            return self._reader.position

        def cut(self, rows: int) -> tuple[int, Any]:
            return rows, self._reader.cut(rows)[1]

    def careless(self: Any, reader: Any, *rest: Any) -> Any:
        return cut(self, cast(Any, Careless(reader)), *rest)

    return (Patch(extraction._UnitRun, "_cut", careless),)


def a_flush_gives_up() -> Iterable[Patch]:
    """A flush whose plan lost isn't planned again."""
    return (Patch(replan, "_plan_again", lambda *_: False),)


def a_target_is_known_by_its_path() -> Iterable[Patch]:
    """The target is not checked to be the one that the journal published to."""
    return (Patch(Homes, "_has", lambda self, mark: True),)


def a_seal_follows_every_run() -> Iterable[Patch]:
    """A run seals its version, whatever became of its datasets."""
    return (
        Patch(sealing, "_IN", frozenset(Status)),
        Patch(sealing, "_all_there", lambda state, planned: True),
    )


def a_rewind_after_the_plan_is_sealed() -> Iterable[Patch]:
    """A seal isn't compared with what its run planned: a rewind may have come in between."""
    return (
        Patch(sealing, "_same_generation", lambda state, sealing: True),
        Patch(sealing, "_all_there", lambda state, planned: True),
    )


def a_rewind_voids_no_seal() -> Iterable[Patch]:
    """The units that a rewind takes back don't count for seals."""
    return (Patch(SealedDataset, "intact", lambda self, state: True),)


HISTORIES_CATCH: tuple[Callable[[], Iterable[Patch]], ...] = (
    no_read_back,
    no_plan_precondition,
    outcome_before_the_moves,
    ones_own_list,
    clean_up_by_age,
    shared_staging,
    no_generation,
    replaced_units_are_not_compared,
    a_part_is_replaced,
    an_overtaken_snapshot_wins,
    a_decision_overlooks_holes,
    existence_is_proof,
    moves_overwrite,
    sweep_ignores_decisions,
    a_folder_exists_and_is_proof,
    a_folder_is_moved_with_all_that_is_in_it,
    an_upload_exists_and_is_proof,
    an_upload_is_completed_without_condition,
    an_upload_is_aborted_that_can_win,
    trimming_before_the_snapshot,
    a_target_is_known_by_its_path,
    a_seal_follows_every_run,
    a_rewind_after_the_plan_is_sealed,
    a_rewind_voids_no_seal,
    a_pause_is_not_seen,
    a_pause_waits_for_an_outcome,
    a_pause_hides_what_is_pending,
    executors_do_not_look_at_the_outcome,
    a_rewind_keeps_the_generation,
    records_are_read_before_they_are_durable,
    a_flush_gives_up,
    dead_letters_are_not_published,
    dead_letters_alone_are_nothing_to_publish,
    a_unit_is_cut_inside_a_tie,
    a_position_is_a_count,
    a_loss_is_not_named,
    a_range_is_of_the_first_position,
    a_retention_is_measured_by_the_executors_clock,
)
INTERLEAVINGS_CATCH = (
    (late_winners_count, "execute against abandon, runs"),
    (a_pause_takes_no_slot, "commit against pause"),
    (a_pause_waits_for_an_outcome, "execute against pause"),
    (phases_do_not_wait, "acts of one plan"),
    (outcome_before_the_fence, "acts against abandon"),
    (a_fence_that_comes_too_late_abandons, "acts against abandon"),
    (a_fence_is_known_by_its_mark_only, "acts against abandon, by a removal"),
)
"""The beginnings of the names of the scenarios that catch it."""
MATRIX_CATCHES = (
    (outcome_before_the_moves, " is not as published"),
    (folders_are_not_synced, " is not as published"),
    (nothing_is_synced, "it is torn or no record"),
    (folders_above_are_not_synced, "is lost"),
)
"""Some of the points catch it."""
MATRIX_CATCHES_WITH_ACTS = ((folders_are_synced_after_the_last_phase, "is lost"),)
"""Some of the points catch it, with steps in all phases."""
MATRIX_CATCHES_BY_TWO_FAULTS = (
    (records_are_read_before_they_are_durable, "have an outcome or notes, and no decision"),
)
"""A process dies, and then the power fails."""
ABSENCES_CATCH = ((a_target_is_known_by_its_path, "it went on without its target"),)
"""The target is gone for some time."""
TRIMMING_CATCHES = (trimming_before_the_snapshot, late_winners_count)
"""The faults of trimming: `tests/journal/test_trimming.py` catches them, where slots are trimmed soon."""
_MATRIX = (make for make, _ in (*MATRIX_CATCHES, *MATRIX_CATCHES_WITH_ACTS, *MATRIX_CATCHES_BY_TWO_FAULTS))
_INTERLEAVINGS = (make for make, _ in INTERLEAVINGS_CATCH)
_ALL = {make.__name__: make for make in (*HISTORIES_CATCH, *_INTERLEAVINGS, *_MATRIX, *TRIMMING_CATCHES)}


active: list[str] = []
"""The deliberate faults that the product has now."""


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with a deliberate fault."""
    with ExitStack() as stack:
        for patch in _ALL[name]():
            stack.enter_context(mock.patch.object(patch.owner, patch.name, patch.value))
        active.append(name)
        stack.callback(active.remove, name)
        yield
