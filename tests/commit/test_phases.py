"""Phases, and acts that can be done once only: an abandoned slot is shut out first (rules 13 to 15)."""

from __future__ import annotations

import errno
import posixpath
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import LostRaceError, StepError, StepFencedError, TargetError
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.records import Decision, NoteKind, Outcome, OutcomeState
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind, UnitResult
from airflow_gobblin.rows.sinks.base import publish_units
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.steps.publishing import MoveStep
from airflow_gobblin.storage.files import Files, LocalFiles
from tests.faults import Crash
from tests.lab import Lab, published_paths
from tests.protocol.acts import Fences, ForgetStep, PrepareStep, TakeStep, with_acts
from tests.protocol.rows import LineSink, Table
from tests.syscalls import traced

A = Table("a", ExtractKind.APPEND_ONLY, 10)
URN = "a"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Slot 1 of dataset `a` has steps in all phases, and three units."""
    lab = Lab(tmp_path, A)
    lab.ingestion = replace(lab.ingestion, sink=LineSink(str(tmp_path), acts=Fences.MARK))
    return lab


def decided(lab: Lab) -> tuple[OpenJob, Slot]:
    opened, _ = lab.decide()
    (slot,) = lab.journal.history(URN).slots
    return opened, slot


def acts(lab: Lab, decision: Decision) -> list[TakeStep]:
    return [step for step in lab.journal.steps(decision) if isinstance(step, TakeStep)]


def block(lab: Lab, slot: Slot) -> Path:
    """Put a file where the slot is to publish one."""
    move = next(step for step in lab.journal.steps(slot.decision) if isinstance(step, MoveStep))
    blocker = lab.folder / move.target
    blocker.parent.mkdir()
    blocker.write_text("somebody else's\n")
    return blocker


def ended(lab: Lab) -> tuple[OutcomeState, str, str]:
    """How slot 1 ended, and who and what for."""
    outcome = lab.reopened().history(URN).slots[0].outcome
    assert outcome is not None
    return outcome.state, outcome.actor, outcome.reason


# Phases


def test_a_shard_holds_steps_of_one_phase_and_a_decision_has_them_in_order(lab: Lab) -> None:
    """In whatever order the sink yields them."""
    _, slot = decided(lab)
    shards = slot.decision.shards
    assert [(shard.phase, shard.steps, shard.fenced) for shard in shards] == [
        (Phase.PREPARE, 1, False),
        (Phase.PUBLISH, 4, True),
        (Phase.SETTLE, 3, False),
    ]
    found = [{type(step) for step in lab.journal.steps(slot.decision, [shard])} for shard in shards]
    assert found == [{PrepareStep}, {MoveStep, TakeStep}, {ForgetStep}]
    assert slot.decision.steps == 1 + 4 + 3 + 1


def test_a_phase_is_durable_before_the_next_begins(lab: Lab) -> None:
    opened, slot = decided(lab)
    (act,) = acts(lab, slot.decision)
    with traced() as trace:
        opened.committer.execute(slot, "run")
    names = [lab.folder / file.path for step in lab.journal.steps(slot.decision) for file in step.files()]
    made = trace.at("mkdir", lab.folder / posixpath.dirname(act.taken))
    prepared = trace.calls.index(("fsync", str(lab.folder / "acts")), made)
    linked = [trace.at("link", name) for name in names]
    published = trace.calls.index(("fsync", str(names[0].parent)), max(linked))
    forgotten = [n for n, (call, path) in enumerate(trace.calls) if call == "unlink" and path.endswith("-0.txt")]
    assert made < prepared < min(linked)
    assert max(linked) < published < min(forgotten)
    assert len(forgotten) == 3
    assert lab.rows(URN) == A.all_rows()


@pytest.mark.parametrize("done", range(1, 9))
def test_a_run_that_was_killed_between_two_steps_is_finished_by_the_next(lab: Lab, done: int) -> None:
    opened, slot = decided(lab)

    def kill(decision: Decision, number: int, steps: int) -> None:
        if number == done:
            raise Crash

    opened.committer.after_step = kill
    with pytest.raises(Crash):
        opened.committer.execute(slot, "run")
    assert published_paths(lab.reopened(), URN) == []
    assert lab.run()["a"].status == "idle"
    assert ended(lab)[0] is OutcomeState.DONE
    assert lab.rows(URN) == A.all_rows()


def test_a_phase_does_not_begin_before_the_one_before_it_is_done(lab: Lab) -> None:
    opened, slot = decided(lab)
    moves = [step for step in lab.journal.steps(slot.decision) if isinstance(step, MoveStep)]
    blocker = block(lab, slot)
    with pytest.raises(StepError, match="another file is there"):
        opened.committer.execute(slot, "run")
    assert all((lab.folder / move.source).exists() for move in moves), "the last phase would have removed them"
    blocker.unlink()
    assert opened.committer.execute(slot, "run").done


def test_what_is_abandoned_is_taken_back_the_last_phase_first(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    decided(lab)
    undone: list[Phase] = []
    for cls in (PrepareStep, MoveStep, TakeStep, ForgetStep):
        monkeypatch.setattr(cls, "undo", lambda step, context: undone.append(step.phase))
    lab.admin.abandon(URN, "not wanted")
    assert undone == [*[Phase.SETTLE] * 3, *[Phase.PUBLISH] * 4, Phase.PREPARE]


# Fences


def test_what_is_abandoned_was_not_done_and_cannot_be_done_any_more(lab: Lab) -> None:
    opened, slot = decided(lab)
    (act,) = acts(lab, slot.decision)
    lab.admin.abandon(URN, "not wanted")
    assert ended(lab) == (OutcomeState.ABANDONED, "ann", "not wanted")
    context = StepContext(opened.files)
    for step in lab.journal.steps(slot.decision):
        if not isinstance(step, PrepareStep):
            with pytest.raises(FileNotFoundError):
                step.execute(context)
    with pytest.raises(LostRaceError, match="slot 1 was abandoned by ann: not wanted"):
        opened.committer.execute(slot, "late")
    assert lab.published() == {}
    assert not (lab.folder / act.taken).exists()
    assert lab.run()["a"].status == "committed"
    assert lab.rows(URN) == A.all_rows()


def test_a_fence_is_set_and_durable_before_the_outcome(lab: Lab) -> None:
    _, slot = decided(lab)
    (act,) = acts(lab, slot.decision)
    with traced() as trace:
        put = lab.journal.store.put_if_absent

        def noted(key: str, data: bytes) -> bool:
            trace.calls.append(("put", key.split("/")[2]))
            return put(key, data)

        lab.journal.store.put_if_absent = noted  # type: ignore[method-assign]
        lab.admin.abandon(URN, "not wanted")
    fenced = next(n for n, (_, path) in enumerate(trace.calls) if path == str(lab.folder / act.fenced))
    synced = trace.calls.index(("fsync", str(lab.folder / posixpath.dirname(act.fenced))), fenced)
    assert fenced < synced < trace.at("put", "o")


def test_a_slot_whose_act_is_done_is_finished_and_not_abandoned(lab: Lab) -> None:
    opened, slot = decided(lab)
    (act,) = acts(lab, slot.decision)
    opened.files.make_folder(posixpath.dirname(act.taken))
    act.execute(StepContext(opened.files))
    with pytest.raises(LostRaceError, match=r"can't abandon slot 1.*a rewind takes back what is done"):
        lab.admin.abandon(URN, "not wanted")
    assert ended(lab)[0] is OutcomeState.DONE
    assert lab.rows(URN) == A.all_rows(), "the rest of the slot is done, too"


@pytest.mark.parametrize("noted", [True, False])
def test_the_finder_of_a_fence_without_an_outcome_completes_the_abandon(lab: Lab, noted: bool) -> None:
    """The person's process died after it had set the fence; the person and the reason are known from a note."""
    opened, slot = decided(lab)
    if noted:
        dies_before_the_outcome(lab, "not wanted")
    else:
        opened.committer._shut_out(slot.decision)
    assert lab.reopened().history(URN).pending is not None
    with pytest.raises(LostRaceError, match="slot 1 was abandoned"):
        opened.committer.execute(slot, "next")
    state, actor, reason = ended(lab)
    assert state is OutcomeState.ABANDONED
    assert (actor, reason) == ("ann", "not wanted") if noted else "it is shut out" in reason
    assert lab.run()["a"].status == "committed"


def dies_before_the_outcome(lab: Lab, reason: str) -> None:
    """A person's process dies once it has set the fences of slot 1."""
    put = lab.store.put_if_absent

    def dying(key: str, data: bytes) -> bool:
        if "/o/" in key:
            raise Crash
        return put(key, data)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lab.store, "put_if_absent", dying)
        with pytest.raises(Crash):
            lab.admin.abandon(URN, reason)
    assert lab.reopened().history(URN).pending is not None


def test_an_abandon_is_completed_where_its_fence_leaves_no_mark(lab: Lab) -> None:
    """The ticket is only missing, as if it were lost."""
    lab.ingestion = replace(lab.ingestion, sink=LineSink(str(lab.folder), acts=Fences.REMOVAL))
    opened, slot = decided(lab)
    (act,) = acts(lab, slot.decision)
    dies_before_the_outcome(lab, "not wanted")
    assert act.verify(StepContext(opened.files)) is StepStatus.LOST
    assert lab.run()["a"].status == "committed"
    assert ended(lab) == (OutcomeState.ABANDONED, "ann", "not wanted")
    assert lab.rows(URN) == A.all_rows()


def test_an_abandon_is_completed_where_another_step_hides_the_fence(lab: Lab) -> None:
    """Its conflict may be what the slot was to be abandoned for."""
    blocker = block(lab, decided(lab)[1])
    dies_before_the_outcome(lab, "another file is there")
    assert lab.run()["a"].status == "committed"
    assert ended(lab) == (OutcomeState.ABANDONED, "ann", "another file is there")
    assert blocker.read_text() == "somebody else's\n"


def test_an_abandon_that_came_to_nothing_is_not_completed_after_a_release(lab: Lab) -> None:
    """Its fence couldn't be set, as the ticket was lost; then somebody brought it back and released the dataset."""
    lab.ingestion = replace(lab.ingestion, attempts=1)
    blocker = block(lab, decided(lab)[1])
    (act,) = acts(lab, lab.journal.history(URN).slots[0].decision)
    lab.run()
    shutil.move(lab.folder / act.ticket, lab.folder / "kept")
    with pytest.raises(StepError, match="is lost"):
        lab.admin.abandon(URN, "not wanted")
    shutil.move(lab.folder / "kept", lab.folder / act.ticket)
    lab.admin.release(URN, "the ticket is back")
    lab.run()
    assert lab.reopened().history(URN).pending is not None, "there is a conflict"
    blocker.unlink()
    lab.admin.release(URN, "the other file is away")
    lab.run()
    assert ended(lab)[0] is OutcomeState.DONE


def test_a_lost_step_abandons_nothing_that_nobody_began_to_abandon(lab: Lab) -> None:
    _, slot = decided(lab)
    (act,) = acts(lab, slot.decision)
    shutil.rmtree(lab.folder / act.ticket)
    assert lab.run()["a"].status == "failed"
    assert lab.reopened().history(URN).pending is not None


@pytest.mark.parametrize("begun", [True, False])
def test_a_fence_that_comes_after_the_slot_was_abandoned_finds_that_out(
    lab: Lab, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clean-up may have taken away what it looks at: that is no error, and the slot isn't pending."""
    opened, slot = decided(lab)
    if begun:
        opened.committer._shut_out(slot.decision)
    fence = TakeStep.fence

    def late(step: TakeStep, context: StepContext) -> FenceResult:
        monkeypatch.setattr(TakeStep, "fence", fence)
        lab.admin.abandon(URN, "the first")
        return fence(step, context)

    monkeypatch.setattr(TakeStep, "fence", late)
    if begun:
        with pytest.raises(LostRaceError, match="slot 1 was abandoned by ann: the first"):
            opened.committer.execute(slot, "late")
    else:
        assert opened.committer.abandon(slot, "late", "bob", "the second").abandoned
    assert ended(lab) == (OutcomeState.ABANDONED, "ann", "the first")


def test_a_fence_that_cannot_be_made_durable_leaves_the_slot_pending_by_name(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, slot = decided(lab)

    def broken(files: LocalFiles, path: str) -> None:
        raise OSError(errno.EIO, "the disk is broken", path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "sync_folder", broken)
        with pytest.raises(StepError, match=r"slot 1 of dataset 'a': .*the disk is broken"):
            opened.committer.abandon(slot, "run")
    assert lab.reopened().history(URN).pending is not None


def test_a_fence_that_cannot_be_set_leaves_the_slot_pending_by_name(lab: Lab) -> None:
    _, slot = decided(lab)
    (act,) = acts(lab, slot.decision)
    shutil.move(lab.folder / act.ticket, lab.folder / "kept")
    with pytest.raises(StepError, match=rf"can't shut out ticket '{act.taken}' in slot 1 of dataset 'a'.*is lost"):
        lab.admin.abandon(URN, "not wanted")
    assert lab.reopened().history(URN).pending is not None
    shutil.move(lab.folder / "kept", lab.folder / act.ticket)
    lab.admin.abandon(URN, "not wanted")
    assert ended(lab)[0] is OutcomeState.ABANDONED


def test_a_target_that_is_not_there_proves_no_fence(lab: Lab) -> None:
    """A ticket that can't be seen may be taken as soon as the target is back."""
    decided(lab)
    away = lab.folder.with_name("away")
    lab.folder.rename(away)
    lab.folder.mkdir()
    with pytest.raises(TargetError):
        lab.admin.abandon(URN, "not wanted")
    assert lab.reopened().history(URN).pending is not None
    assert lab.journal.notes(URN, 1) == (), "it isn't begun"
    lab.folder.rmdir()
    away.rename(lab.folder)
    lab.admin.abandon(URN, "not wanted")
    assert ended(lab)[0] is OutcomeState.ABANDONED


def test_a_target_that_goes_while_acts_are_carried_out_has_no_outcome(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An act that takes something away would be found done."""
    opened, slot = decided(lab)
    away, carry_out = lab.folder.with_name("away"), Committer._carry_out_all

    def goes(committer: Committer, decision: Decision) -> Outcome | None:
        found = carry_out(committer, decision)
        lab.folder.rename(away)
        lab.folder.mkdir()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_carry_out_all", goes)
        with pytest.raises(TargetError):
            opened.committer.execute(slot, "run")
    assert lab.reopened().history(URN).pending is not None
    lab.folder.rmdir()
    away.rename(lab.folder)
    assert opened.committer.execute(slot, "run").done


def test_steps_without_a_fence_are_abandoned_without_a_look_at_them(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    (slot,) = lab.journal.history(URN).slots
    for shard in slot.decision.shards:
        lab.store.delete(lab.journal.key(URN, "c", shard.digest))
    lab.admin.abandon(URN, "its steps are lost")
    assert ended(lab)[0] is OutcomeState.ABANDONED
    assert all(note.event is not NoteKind.ABANDONING for note in lab.journal.notes(URN, 1))


@record("test.many_acts")
@dataclass(frozen=True)
class ManyActs(LineSink):
    """An act for each unit.

    :param whole: as of a `TakeStep`.
    """

    acts: Fences | None = Fences.MARK
    whole: bool = False

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        for result in results:
            for step in with_acts(plan, publish_units(plan, [result], files, self.layout, self.suffix)):
                if isinstance(step, TakeStep):
                    yield replace(step, taken=f"{step.taken}-{result.unit}", whole=self.whole)
                elif not isinstance(step, ForgetStep):
                    yield step


def with_many_acts(tmp_path: Path, *, whole: bool = False) -> tuple[Lab, OpenJob, Slot, list[TakeStep]]:
    """Slot 1 has three acts, of which the first is done."""
    lab = Lab(tmp_path, A)
    lab.ingestion = replace(lab.ingestion, sink=ManyActs(str(tmp_path), whole=whole))
    opened, slot = decided(lab)
    some = acts(lab, slot.decision)
    opened.files.make_folder(posixpath.dirname(some[0].taken))
    some[0].execute(StepContext(opened.files))
    return lab, opened, slot, some


def test_a_slot_of_many_acts_is_abandoned_with_some_of_them_done(tmp_path: Path) -> None:
    lab, opened, _, (first, *others) = with_many_acts(tmp_path)
    lab.admin.abandon(URN, "not wanted")
    assert ended(lab)[0] is OutcomeState.ABANDONED
    context = StepContext(opened.files)
    assert first.verify(context) is StepStatus.DONE, "an act isn't taken back"
    for other in others:
        with pytest.raises(FileNotFoundError):
            other.execute(context)


def test_a_slot_that_can_be_neither_finished_nor_abandoned_stays_pending_by_name(tmp_path: Path) -> None:
    """Its steps break the rule that an act which is the whole slot is the only one."""
    lab, opened, slot, (_, *others) = with_many_acts(tmp_path, whole=True)
    others[-1].fence(StepContext(opened.files))
    with pytest.raises(StepFencedError, match=f"ticket '{others[-1].taken}' of dataset 'a': it is shut out"):
        opened.committer.execute(slot, "run")
    assert lab.reopened().history(URN).pending is not None


# Connections


class Shop:
    def uri(self, conn_id: str) -> str:
        return f"postgres://ann:hunter2@shop/{conn_id}"


@record("test.dial_step")
@dataclass(frozen=True)
class DialStep:
    """Leaves a mark with what it found behind a connection.

    :param broken: it fails, and its error shows the password.
    """

    mark: str
    broken: bool
    phase = Phase.SETTLE
    fence = None
    subject = "a dial"
    conflict = lost = "it is dead"

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.TODO if context.files.identity(self.mark) is None else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        uri = context.connections.uri("shop_db")
        if self.broken:
            raise ValueError(f"no answer from {uri}")
        with context.files.create(self.mark) as out:
            out.write(uri.rpartition("@")[2].encode())

    def undo(self, context: StepContext) -> None:
        """It stays."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return ()


@record("test.dialling_sink")
@dataclass(frozen=True)
class DiallingSink(LineSink):
    broken: bool = False

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        yield from super().publish(plan, results, files)
        yield DialStep("dialled", self.broken)


def dialling(tmp_path: Path, *, broken: bool) -> tuple[Lab, OpenJob, Slot]:
    lab = Lab(tmp_path, A)
    lab.ingestion = replace(lab.ingestion, sink=DiallingSink(str(tmp_path), broken=broken))
    _, slot = decided(lab)
    return lab, OpenJob(lab.ingestion, lab.journal, Shop()), slot


def test_a_step_opens_a_connection_by_its_id(tmp_path: Path) -> None:
    _, opened, slot = dialling(tmp_path, broken=False)
    assert opened.committer.execute(slot, "run").done
    assert (tmp_path / "dialled").read_text() == "shop/shop_db"


def test_an_error_of_a_step_shows_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab, opened, slot = dialling(tmp_path, broken=True)
    with pytest.raises(StepError, match="no answer from") as caught:
        opened.committer.recover(URN, "run")
    chain: list[BaseException | None] = [caught.value]
    while chain[-1] is not None:
        assert "hunter2" not in f"{chain[-1]!r} {chain[-1]}"
        chain.append(None if chain[-1].__suppress_context__ and not chain[-1].__cause__ else chain[-1].__cause__)
    assert "hunter2" not in caplog.text
    (note,) = lab.journal.notes(URN, slot.decision.slot)
    assert note.event is NoteKind.FAILED
    assert "no answer from" in note.detail
    assert not [key for key, data in lab.records().items() if b"hunter2" in data]


@pytest.mark.parametrize("phase", ["later", None])
def test_a_step_without_a_known_phase_is_refused_before_the_decision(
    tmp_path: Path, phase: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A)
    lab.ingestion = replace(lab.ingestion, sink=DiallingSink(str(tmp_path)))
    if phase is None:
        monkeypatch.delattr(DialStep, "phase")
    else:
        monkeypatch.setattr(DialStep, "phase", phase)
    report = lab.run()[URN]
    assert report.status == "failed"
    assert ("'later' is not a valid Phase" if phase else "'DialStep' object has no attribute 'phase'") in report.detail
    assert lab.journal.history(URN).slots == ()


def test_a_step_that_was_given_no_connections_reports_it(tmp_path: Path) -> None:
    lab, _, _ = dialling(tmp_path, broken=False)
    (pending,) = lab.journal.history(URN).slots
    context = StepContext(LocalFiles(tmp_path))
    (dial,) = (step for step in lab.journal.steps(pending.decision) if isinstance(step, DialStep))
    with pytest.raises(Exception, match="no connections were given here"):
        dial.execute(context)
    dial.execute(replace(context, connections=GuardedConnections(Shop())))
    assert dial.verify(context) is StepStatus.DONE
