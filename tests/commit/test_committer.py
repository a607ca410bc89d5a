"""How a slot is decided and carried out: read-back, races, and how a plan loses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.commit.committer import Committer, Proposal
from airflow_gobblin.commit.preconditions import can_win, check_preconditions
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import LostRaceError, Remedy, StepConflictError, StepError, UnknownOutcomeError
from airflow_gobblin.hooks.wording import worded_error
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model import schema
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, ExtractKind, UnitResult, UnitState, WorkUnit, summarize
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import CommitStep, HighWatermarkStep, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.steps.publishing import MoveStep
from airflow_gobblin.storage.files import Files, LocalFiles
from airflow_gobblin.storage.stores import base
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.lab import Lab, published_paths
from tests.protocol.rows import SCHEMA, LineSink, LineWriter, RowSource, Table
from tests.syscalls import traced

A, B = (Table(urn, ExtractKind.APPEND_ONLY, 10) for urn in "ab")
SNAPSHOT = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_PAUSE", 0)


class Interrupted(MemoryStore):
    """Something happens before the first put of a key that ends so."""

    ending = ""
    before: Callable[[], object] | None = None

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.before is not None and key.endswith(self.ending):
            before, self.before = self.before, None
            before()
        return super().put_if_absent(key, data)


class Losing(MemoryStore):
    """Lose answers of puts whose key holds `what`.

    :param done: whether they were done.
    """

    what, left, done = "nothing", 0, True

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.left and self.what in key:
            self.left -= 1
            if self.done:
                super().put_if_absent(key, data)
            raise UnknownOutcomeError(operation="write", subject=key, cause="no answer came")
        return super().put_if_absent(key, data)


def planned(lab: Lab, run: str = "run", *tables: Table) -> tuple[OpenJob, RunPlan]:
    return lab.extracted(*tables, request=RunRequest(run))


def write(opened: OpenJob, plan: RunPlan) -> dict[str, DatasetReport]:
    return {r.urn: r for pack in plan.packs for r in write_commit_steps(opened, plan, pack)}


def execute(opened: OpenJob, plan: RunPlan) -> dict[str, DatasetReport]:
    return {r.urn: r for pack in plan.packs for r in execute_commit_steps(opened, plan, pack)}


def token(plan: RunPlan) -> str:
    return plan.packs[0].datasets[0].token


def only_slot(lab: Lab) -> Slot:
    (slot,) = lab.reopened().history("a").slots
    return slot


# Read-back


@pytest.mark.parametrize("what", ["/d/", "/o/", "/c/"])
@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_was_lost_is_read_back(tmp_path: Path, what: str, done: bool) -> None:
    store = Losing()
    store.what, store.left, store.done = what, 2, done
    lab = Lab(tmp_path, A, store=store)
    assert lab.run()["a"].status == "committed"
    assert store.left == 0
    assert only_slot(lab).done
    assert lab.rows("a") == A.all_rows()


@pytest.mark.parametrize("done", [True, False])
def test_where_no_answer_comes_at_all_the_next_try_finds_out(tmp_path: Path, done: bool) -> None:
    store = Losing()
    lab = Lab(tmp_path, A, store=store)
    opened, plan = planned(lab)
    store.what, store.left, store.done = "/d/", 100, done
    report = write(opened, plan)["a"]
    assert (report.status, report.retryable) == ("failed", True)
    assert "no answer came" in report.detail
    store.left = 0
    assert write(opened, plan)["a"].status == "pending"
    assert only_slot(lab).decision.token == token(plan)


# Races for a slot


def test_who_finds_another_in_the_slot_takes_the_next_if_it_still_holds(tmp_path: Path) -> None:
    store = Interrupted()
    lab = Lab(tmp_path, A, store=store)
    lab.run(replace(A, rows=4))
    lab.admin.rewind("a", LongWatermark(0), "anew")
    old, old_plan = planned(lab, "old", replace(A, rows=4))
    new = OpenJob(replace(lab.ingestion, source=RowsFrom((A,), 4)), Journal.create(store, "lab"), NoConnections())
    new_plan = create_work_units(new, RunRequest("new"))
    inprocess.extract(new, new_plan, NoConnections())
    store.ending, store.before = "d/0000000003", lambda: write(old, old_plan)
    assert write(new, new_plan)["a"].slot == 4
    assert execute(new, new_plan)["a"].status == "committed"
    slots = lab.reopened().history("a").slots
    assert [s.decision.token for s in slots[2:]] == [token(old_plan), token(new_plan)]
    assert all(s.done for s in slots), "the one that was in the way is finished first"
    last = slots[3].decision.hand_over
    assert last == HighWatermarkStep(lab.journal.state("a").watermark), "it is worked out anew in the slot that it gets"
    assert lab.rows("a") == A.all_rows()


@record("test.rows_from")
@dataclass(frozen=True)
class RowsFrom(RowSource):
    """Dataset `a` from a position on, whatever came before it."""

    start: int = 0

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        part = Range(LongWatermark(self.start), LongWatermark(self.table("a").rows))
        return DatasetPlan((WorkUnit("u0", "a", part.low, part.high),), SCHEMA, part)


def test_two_attempts_of_one_task_decide_one_slot(tmp_path: Path) -> None:
    store = Interrupted()
    lab = Lab(tmp_path, A, store=store)
    opened, plan = planned(lab)
    twin = OpenJob(lab.ingestion, Journal.create(store, "lab"), NoConnections())
    store.ending, store.before = "d/0000000001", lambda: write(twin, plan)
    assert write(opened, plan)["a"].slot == 1
    assert only_slot(lab).decision.token == token(plan)


def test_an_equal_token_means_that_ours_is_valid_and_not_what_we_built(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, policy=CommitPolicy.SUCCESSFUL)
    broken = lab.opened(units=("a:u1",))
    plan = create_work_units(broken, RunRequest("run"))
    inprocess.extract(broken, plan, NoConnections())
    assert write(broken, plan)["a"].rows == 6
    opened = lab.opened()
    (pack,) = plan.packs
    unit_plan = opened.staging.plan(token(plan))
    assert unit_plan is not None
    late = UnitResult("u1", "late", UnitState.SUCCESSFUL, LongWatermark(8))
    opened.staging.put_result(unit_plan.token, late)
    assert write(opened, plan)["a"].rows == 6, "a result that came late changes nothing"
    execute_commit_steps(opened, plan, pack)
    assert sum(lab.rows("a").values()) == 6
    assert not only_slot(lab).decision.complete


def test_an_abort_that_meets_the_plans_own_decision_is_reported(tmp_path: Path) -> None:
    store = Interrupted()
    lab = Lab(tmp_path, A, store=store)
    opened, plan = planned(lab)
    store.ending, store.before = "d/0000000001", lambda: write(opened, plan)
    with pytest.raises(LostRaceError, match=r"slot 1 was taken by a commit just now"):
        lab.admin.abandon("a", "it read the wrong database")
    slot = only_slot(lab)
    assert (slot.decision.action, slot.finished) == (Action.COMMIT, False), (
        "nor is it carried out by who wanted it away"
    )
    assert lab.published() == {}
    lab.admin.abandon("a", "it read the wrong database")
    assert execute(opened, plan)["a"].status == "lost"
    assert lab.published() == {}


def test_a_decision_that_meets_an_abort_is_lost(tmp_path: Path) -> None:
    store = Interrupted()
    lab = Lab(tmp_path, A, store=store)
    opened, plan = planned(lab)
    admin = Administration(Journal.create(store, "lab"), str(tmp_path), "ann")
    store.ending, store.before = "d/0000000001", lambda: admin.abandon("a", "the wrong database")
    report = write(opened, plan)["a"]
    assert report.status == "lost"
    assert report.remedy is Remedy.PLAN
    assert execute(opened, plan)["a"].status == "skipped" or lab.published() == {}
    assert lab.run()["a"].status == "committed"


# How a plan loses


def test_a_plan_of_an_older_generation_loses(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = planned(lab)
    lab.admin.set_watermark("a", LongWatermark(4), "moved from another tool")
    report = write(opened, plan)["a"]
    assert report.status == "lost"
    assert (
        "slot 1 (set by ann: moved from another tool) raised the generation to 1, and this plan is of 0"
        in report.detail
    )
    assert "Nothing of this plan was published. Plan it anew." in report.text
    assert lab.published() == {}


def test_a_plan_whose_range_is_covered_is_covered_and_one_of_a_part_is_lost(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    whole, whole_plan = planned(lab, "whole")
    longer, longer_plan = planned(lab, "longer", replace(A, rows=12))
    other, other_plan = planned(lab, "other", A)
    write(other, other_plan)
    assert execute(other, other_plan)["a"].status == "committed"
    report = write(whole, whole_plan)["a"]
    assert report.status == "covered"
    assert "range [0, 10) was committed by another run, up to slot 1 (commit by run 'other')" in report.detail
    report = write(longer, longer_plan)["a"]
    assert report.status == "lost"
    assert "slot 1 (commit by run 'other') covers a part of range [0, 12)" in report.detail


def test_a_plan_that_was_swept_is_covered_or_lost_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, SNAPSHOT)
    plans = [planned(lab, name) for name in ("x", "y")]
    lab.admin.set_watermark("a", LongWatermark(4), "moved from another tool")
    assert lab.run()["a"].status == "committed"
    for opened, plan in plans:
        (ref,) = (d for p in plan.packs for d in p.datasets if d.urn == "a")
        assert opened.staging.plan(ref.token) is None
        assert {urn: r.status for urn, r in write(opened, plan).items()} == {"a": "lost", "s": "lost"}
        final = {r.urn: r for r in finish(opened, plan)}
        assert final["a"].remedy is Remedy.PLAN
    whole, whole_plan = planned(lab, "z", replace(A, rows=12))
    assert lab.run(replace(A, rows=12))["a"].status == "committed"
    assert write(whole, whole_plan)["a"].status == "covered"


def test_of_two_snapshots_at_once_one_loses(tmp_path: Path) -> None:
    lab = Lab(tmp_path, SNAPSHOT)
    lab.run()
    first, first_plan = planned(lab, "first", replace(SNAPSHOT, version=1))
    second, second_plan = planned(lab, "second", replace(SNAPSHOT, version=2))
    assert write(first, first_plan)["s"].status == "pending"
    report = write(second, second_plan)["s"]
    assert report.status == "lost"
    assert "retired a unit that this plan replaces" in report.detail
    execute(first, first_plan)
    assert lab.rows("s") == replace(SNAPSHOT, version=1).all_rows()


def test_of_two_first_snapshots_at_once_one_loses(tmp_path: Path) -> None:
    lab = Lab(tmp_path, SNAPSHOT)
    first, first_plan = planned(lab, "first")
    second, second_plan = planned(lab, "second")
    write(first, first_plan)
    report = write(second, second_plan)["s"]
    assert report.status == "lost"
    assert "published a snapshot after this plan was made" in report.detail


@pytest.mark.parametrize("between", [(), (1,)], ids=["first", "emptied"])
def test_a_late_first_snapshot_loses_to_one_that_is_empty(tmp_path: Path, between: tuple[int, ...]) -> None:
    """No unit is live then, as when it was planned; and a plan that can't win once never can again."""
    lab = Lab(tmp_path, SNAPSHOT)
    late, late_plan = planned(lab, "late")
    for version in between:
        newer, newer_plan = planned(lab, "newer", replace(SNAPSHOT, version=version))
        write(newer, newer_plan)
        execute(newer, newer_plan)
    empty, empty_plan = planned(lab, "empty", replace(SNAPSHOT, rows=0))
    write(empty, empty_plan)
    execute(empty, empty_plan)
    plan = late.staging.plan(token(late_plan))
    assert plan is not None
    assert not can_win(plan, lab.journal.history("s"))
    report = write(late, late_plan)["s"]
    assert report.status == "lost"
    assert "published a snapshot after this plan was made" in report.detail
    assert lab.rows("s") == Counter()


def test_the_same_run_planned_twice_is_decided_once(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    first, first_plan = planned(lab)
    second, second_plan = planned(lab)
    assert token(first_plan) != token(second_plan)
    write(first, first_plan)
    assert execute(first, first_plan)["a"].slot == 1
    assert execute(second, second_plan)["a"].detail == "already committed in slot 1 by run 'run'"
    assert finish(second, second_plan)[0].status == "committed"
    assert only_slot(lab).decision.token == token(first_plan)
    assert lab.rows("a") == A.all_rows()


def test_a_plan_can_win_until_something_that_lasts_is_in_its_way(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, run = planned(lab)
    plan = opened.staging.plan(token(run))
    assert plan is not None
    assert can_win(plan, lab.journal.history("a"))
    other, other_run = planned(lab, "other")
    write(other, other_run)
    assert can_win(plan, lab.journal.history("a")), "the slot may be abandoned yet"
    execute(other, other_run)
    assert not can_win(plan, lab.journal.history("a"))
    lab.admin.rewind("a", LongWatermark(0), "anew")
    assert not can_win(plan, lab.journal.history("a")), "a plan that can't once never can again"


# Proposals


def test_a_proposal_publishes_what_is_successful_and_reports_all(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, run = planned(lab)
    plan = opened.staging.plan(token(run))
    assert plan is not None
    good = tuple(summarize(unit, opened.staging.result(plan.token, unit.id)) for unit in plan.units)
    skipped, failed = replace(good[0], state=UnitState.SKIPPED), summarize(plan.units[1], None)
    proposal = Proposal(plan, (skipped, failed, good[2]), "staging")
    assert proposal.published == {"u2"}
    assert proposal.files == 1
    assert [str(part) for part in proposal.ranges] == ["[8, 10)"]
    assert not proposal.complete
    assert Proposal(plan, good, "staging").complete


# Carrying out


def test_carrying_out_is_done_once_whoever_does_it_and_however_often(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    slot = only_slot(lab)
    committers = [Committer(Journal.create(lab.store, "lab"), LocalFiles(tmp_path)) for _ in range(3)]
    ended = [committer.execute(slot, "run") for committer in committers]
    assert {e.outcome for e in ended} == {only_slot(lab).outcome}
    assert lab.rows("a") == A.all_rows()
    assert len(lab.published()) == 3


def test_a_step_in_conflict_keeps_the_slot_pending_and_what_is_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    moves = [step for step in lab.journal.steps(only_slot(lab).decision) if isinstance(step, MoveStep)]
    blocker = tmp_path / moves[1].target
    blocker.parent.mkdir()
    blocker.write_text("somebody else's\n")
    with pytest.raises(StepConflictError, match=f"file '{moves[1].target}' of dataset 'a'"):
        opened.committer.execute(only_slot(lab), "run")
    assert blocker.read_text() == "somebody else's\n"
    assert not only_slot(lab).finished
    assert published_paths(lab.journal, "a") == [], "a reader sees nothing of it"
    blocker.unlink()
    assert execute(opened, plan)["a"].status == "committed"


def test_that_staging_is_gone_is_durable_before_it_is_noted(tmp_path: Path) -> None:
    """Otherwise a power failure could bring it back, and nobody would look for what a late executor makes of it."""
    store = Interrupted()
    lab = Lab(tmp_path, A, store=store)
    lab.decide()
    staging = only_slot(lab).decision.staging
    assert staging is not None
    above = str((tmp_path / staging).parent)
    with traced() as trace:
        store.ending, store.before = "-cleaned", lambda: trace.calls.append(("noted", ""))
        lab.admin.abandon("a", "not wanted")
    removed = max(at for at, call in enumerate(trace.calls) if call == ("rmdir", str(tmp_path / staging)))
    assert ("fsync", above) in trace.calls[removed : trace.calls.index(("noted", ""))]


def test_after_an_abandon_a_late_executor_publishes_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, _ = lab.decide()
    slot = only_slot(lab)
    lab.admin.abandon("a", "not wanted")
    with pytest.raises(LostRaceError, match="slot 1 was abandoned by ann: not wanted"):
        opened.committer.execute(slot, "run")
    assert lab.published() == {}


# A user's own sink and steps may raise anything


@record("test.strange_step")
@dataclass(frozen=True)
class StrangeStep:
    """Raise where it is configured to.

    :param mark: a file that marks it as done.
    """

    mark: str
    raises: str

    def verify(self, context: StepContext) -> StepStatus:
        if self.raises == "verify":
            raise ValueError("I can't see")
        return StepStatus.DONE if context.files.identity(self.mark) is not None else StepStatus.TODO

    def execute(self, context: StepContext) -> None:
        if self.raises != "after":
            raise ValueError("I can't do it")
        context.files.create(self.mark).close()
        raise ValueError("I did it, but don't know")

    def undo(self, context: StepContext) -> None:
        raise ValueError("I can't take it back")

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return ()

    phase = Phase.PUBLISH
    fence = None
    subject = "strange thing"
    conflict = lost = "it is strange"


@record("test.strange_sink")
@dataclass(frozen=True)
class StrangeSink:
    """Publish dataset `a` by a strange step, or not at all."""

    target: str
    raises: str

    def folder(self, dataset: Dataset) -> str:
        return LineSink(self.target).folder(dataset)

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        return planned

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> LineWriter:
        return LineSink(self.target).open(schema, files, staged, published)

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        if plan.urn == "a":
            if self.raises == "publish":
                raise ValueError("I have no steps")
            yield StrangeStep(f"{plan.urn}.done", self.raises)
        yield from LineSink(self.target).publish(plan, results, files)


def strange(tmp_path: Path, raises: str) -> Lab:
    lab = Lab(tmp_path, A, B, max_packs=1)
    sink: Sink = StrangeSink(str(tmp_path), raises)
    lab.ingestion = replace(lab.ingestion, sink=sink)
    return lab


@pytest.mark.parametrize(
    ("raises", "expected"),
    [("publish", "I have no steps"), ("verify", "I can't see"), ("execute", "I can't do it")],
)
def test_what_a_users_code_raises_fails_its_dataset_and_no_other(tmp_path: Path, raises: str, expected: str) -> None:
    lab = strange(tmp_path, raises)
    reports = lab.run()
    assert (reports["a"].status, reports["b"].status) == ("failed", "committed")
    assert lab.rows("b") == B.all_rows()
    assert published_paths(lab.journal, "a") == []
    for run in range(3):
        opened = lab.opened()
        verify_recover(opened, RunRequest(f"run {run}"))
    if raises == "publish":
        assert lab.journal.history("a").slots == ()
        return
    assert only_slot(lab).notes[0].detail.count(expected) == 1
    assert lab.journal.state("a").quarantined
    with pytest.raises(StepError, match=r"take back strange thing in slot 1.*I can't take it back"):
        lab.admin.abandon("a", "its step is strange")
    lab.ingestion = replace(lab.ingestion, sink=LineSink(str(tmp_path)))
    assert lab.run()["a"].status == "committed", "the abandoned slot is in nobody's way"
    assert lab.rows("a") == A.all_rows()


def test_an_error_after_the_deed_is_done(tmp_path: Path) -> None:
    lab = strange(tmp_path, "after")
    assert {r.status for r in lab.run().values()} == {"committed"}
    assert (tmp_path / "a.done").exists()


def test_a_step_error_names_step_slot_dataset_cause_and_the_way_out(tmp_path: Path) -> None:
    lab = strange(tmp_path, "execute")
    opened, _ = lab.decide()
    with pytest.raises(StepError) as caught:
        opened.committer.execute(only_slot(lab), "run")
    text = str(caught.value)
    assert text.startswith("can't publish strange thing in slot 1 of dataset 'a': ValueError: I can't do it")
    assert text.endswith("fix the cause, or abandon the slot. Then carry out its commit steps again.")
    assert "Once that is fixed, clear execute_commit_steps." in str(worded_error(caught.value))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_plan_that_lacks_a_column_which_was_published_meanwhile_is_lost(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = planned(lab)
    made = opened.staging.plan(token(plan))
    assert made is not None
    wider = schema.encode(SCHEMA.append(pa.field("new", pa.int64())))
    meanwhile = lab.journal.history("a")
    check_preconditions(made, (), meanwhile)
    meanwhile = replace(meanwhile, state=replace(meanwhile.state, schema=wider))
    with pytest.raises(LostRaceError, match="published a column that this plan's schema lacks"):
        check_preconditions(made, (), meanwhile)
    check_preconditions(replace(made, schema=wider), (), meanwhile)
