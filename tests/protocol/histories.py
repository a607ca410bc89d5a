"""Random histories: several runs at once, zombies, clears, lost answers, crashes, rewinds and abandons, on a store in memory.

Every attempt of a task is a thread, and only one of them runs at a time: at each call of a store or of the file system it
may have to hand over to another one, so that a seed says everything that happens. A history ends in peace: what still runs
comes to its end, and a last run without fault must then find and publish all that is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import random
import secrets
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from typing import Any, TypeVar
from unittest import mock

from airflow_gobblin import administration, claims, commit, extraction, journal, pipeline
from airflow_gobblin.administration import Administration
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal import Action, Journal, OutcomeState
from airflow_gobblin.pipeline import DatasetReport, Pipeline, RunRequest
from airflow_gobblin.plan import Plan, RunPlan
from airflow_gobblin.policy import CommitPolicy
from airflow_gobblin.steps import MoveStep
from airflow_gobblin.stores import base
from airflow_gobblin.stores.memory import MemoryStore
from airflow_gobblin.watermark import LongWatermark
from airflow_gobblin.work import ExtractKind, Limits, Pack, UnitResult, UnitState, WorkUnit
from tests.faults import Call, Crash, Effect, Fault, FaultyFiles, FaultyStore, injected
from tests.memory_files import MemoryFiles
from tests.protocol.mutants import mutated
from tests.protocol.rows import NoConnections, RowSource, Table
from tests.protocol.world import NAME, Look, Process

T = TypeVar("T")
STAGES = ("verify_recover", "create_work_units", "extract", "write_commit_steps", "execute_commit_steps", "finish")
STRANGE = b"somebody else's\n"
WORKERS = 2


@dataclass(frozen=True)
class Mix:
    """How much of what happens in a history.

    :param events: how many things happen before the peace. :param fault: the chance of a fault at a call.
    :param patience: how many calls one attempt makes, on the average, before another one comes on.
    :param runs: how many there are at once, at the most.
    """

    events: int = 100
    fault: float = 0.006
    patience: float = 12.0
    runs: int = 4


class Attempt(threading.Thread):
    """One attempt of one task, or a person at work: what it does, and who it hands over to."""

    def __init__(self, history: History, name: str, work: Callable[[Attempt], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.work = work
        self.turn = threading.Semaphore(0)
        self.left = 0
        self.frozen = 0
        self.hold = 0
        self.doomed = False
        self.dead = False
        self.ended = False
        self.error: BaseException | None = None

    def run(self) -> None:
        self.turn.acquire()
        try:
            if not self.doomed:
                self.work(self)
        except (GobblinError, OSError, Crash) as error:
            self.error = error
        except BaseException as error:  # a bug, here or there
            self.error = error
            self.history.broken = self.history.broken or error
        self.ended = True
        self.history.turn.release()

    def call(self, call: Call, do: Callable[[], T], tear: Callable[[], object] | None = None) -> T:
        """As `Faults.call`: hand over, and then make the call, or let it go wrong."""
        history = self.history
        self.left -= 1
        if self.hold and call.effect is not Effect.READ:
            self.frozen, self.hold, self.left = self.hold, 0, -1
        while self.left < 0 and not self.doomed:
            history.turn.release()
            self.turn.acquire()
        if self.doomed or self.dead:
            self.dead = True
            raise Crash
        history.trace(self, call)
        fault = history.choose_fault(call)
        if fault is None:
            return history.observe(call, do)
        if fault in (Fault.CRASH_AFTER, Fault.ANSWER_LOST):
            history.observe(call, do)
        elif fault is Fault.TORN and tear is not None:
            tear()
        if fault in (Fault.ERROR, Fault.ANSWER_LOST, Fault.NO_SPACE):
            raise injected(call, fault)
        self.dead = True
        raise Crash


@dataclass
class DagRun:
    """A DAG run as its scheduler sees it. :param next: which of its tasks comes next; :param plan: what is in XCom."""

    name: str
    source: RowSource
    end: datetime | None
    plan: RunPlan | None = None
    plans: dict[str, Plan] = field(default_factory=dict)
    next: int = 0
    tries: int = 0
    attempt: Attempt | None = None
    zombies: list[Attempt] = field(default_factory=list)

    @property
    def request(self) -> RunRequest:
        return RunRequest(self.name, self.end)

    @property
    def tasks(self) -> list[tuple[str, Pack | None]]:
        packs = self.plan.packs if self.plan is not None else ()
        mapped = [(stage, pack) for pack in packs for stage in STAGES[2:5]]
        return [("verify_recover", None), ("create_work_units", None), *mapped, ("finish", None)]

    @property
    def over(self) -> bool:
        return self.next >= len(self.tasks) or (self.next > 1 and self.plan is None)


class History:
    """One history. Everything that happens follows from its seed."""

    def __init__(self, seed: int, mix: Mix | None = None) -> None:
        self.seed = seed
        self.mix = mix or Mix()
        self.chance = random.Random(seed)
        self.turn = threading.Semaphore(0)
        self.calls = 0
        self.log: list[str] = []
        self.digest = hashlib.sha256()
        self.broken: BaseException | None = None
        self.peace = False
        self.policy = self.chance.choice([CommitPolicy.FULL, CommitPolicy.SUCCESSFUL])
        self.at_once = self.chance.choice([1, 1, 2, self.mix.runs])
        self.sources = [self.source(2, 0)]
        self.store = MemoryStore()
        self.store.put_if_absent(journal._ID, f"{seed:032x}".encode())
        self.files = MemoryFiles()
        self.look = Look(Journal.open(self.store, NAME), self.files)
        self.records: dict[str, bytes] = {}
        self.coverage: dict[str, Any] = {}
        self.runs: list[DagRun] = []
        self.attempts: list[Attempt] = []
        self.strange: set[str] = set()
        self.clock = datetime(2026, 1, 1, tzinfo=UTC)
        self.look.plant(self.urns)

    def source(self, rows: int, version: int) -> RowSource:
        appended = Table("flights", ExtractKind.APPEND_ONLY, rows, unit_rows=2)
        if self.policy is CommitPolicy.SUCCESSFUL:  # which snapshots refuse
            return RowSource((appended,))
        return RowSource((appended, Table("planes", ExtractKind.SNAPSHOT_ONLY, 2, version, unit_rows=1)))

    @property
    def urns(self) -> list[str]:
        return [t.urn for t in self.sources[-1].tables]

    # What happens

    def play(self) -> None:
        """The whole history. :raises AssertionError: a promise is broken."""
        with deterministic(self):
            try:
                for _ in range(self.mix.events):
                    self.something()
                    self.expect_whole()
                self.make_peace()
            finally:
                self.halt()

    def something(self) -> None:
        event = self.chance.choices(
            [self.grow, self.start_run, self.clear, self.freeze, self.kill, self.act, self.interfere, self.go_on],
            [2, 3, 2, 6, 1, 2, 0.5, 26],
        )[0]
        event()

    def grow(self) -> None:
        last = self.sources[-1]
        grown = self.source(last.tables[0].rows + self.chance.randint(1, 4), len(self.sources))
        self.sources.append(grown)
        self.note(f"the source grows to {grown.tables[0].rows}")

    def start_run(self) -> None:
        if sum(not r.over for r in self.runs) >= self.at_once:
            return
        source = self.sources[-1]
        end = datetime.fromtimestamp(source.tables[0].rows, UTC) if self.chance.random() < 0.5 else None
        self.runs.append(DagRun(f"run {len(self.runs)}", source, end))
        self.note(f"{self.runs[-1].name} starts")

    def clear(self) -> None:
        """Clear a task of a run, with what is downstream of it; an attempt that is at it goes on as a zombie."""
        if not self.runs:
            return
        run = self.chance.choice(self.runs)
        run.next = self.chance.randrange(min(run.next, len(run.tasks) - 1) + 1)
        run.tries = 0
        run.attempt = None
        self.note(f"{run.name} is cleared from {run.tasks[run.next][0]} on")

    def freeze(self) -> None:
        """An attempt will be held up before it next changes anything. Its scheduler takes it for dead: it makes another try, or
        that was the last one, and the next task is started."""
        awake = self.awake()
        attempt = self.pick([a for a in awake if " extract " in a.name] or awake)
        if attempt is None:
            return
        attempt.hold = self.chance.choice([self.chance.randint(1, 60), self.mix.events])
        self.note(f"{attempt.name} is held up")
        for run in self.runs:
            if run.attempt is attempt:
                run.attempt = None
                run.zombies.append(attempt)
                if run.next > 1 and self.chance.random() < 0.5:
                    run.next += 1
                    run.tries = 0

    def kill(self) -> None:
        attempt = self.pick(self.awake())
        if attempt is not None:
            attempt.doomed = True
            self.note(f"{attempt.name} is killed")
            self.let_go_on(attempt, 1)

    def act(self) -> None:
        """A person does something to a dataset."""
        urn = self.chance.choice(self.urns)
        what = self.chance.choice(["release", "abandon", "rewind", "drop", "rewind", "abandon"])
        if self.look.journal.history(urn).pending is not None and self.chance.random() < 0.5:
            what = "abandon"
        to = LongWatermark(self.chance.randint(0, self.sources[-1].tables[0].rows))
        self.start(f"{what} {urn}", lambda attempt: self.administer(attempt, what, urn, to))

    def administer(self, attempt: Attempt, what: str, urn: str, to: LongWatermark) -> None:
        journal_ = Journal.open(FaultyStore(self.store, attempt), NAME)
        person = Administration(journal_, FaultyFiles(self.files, attempt), "somebody")
        match what:
            case "release":
                person.release(urn, "for the test")
            case "abandon":
                person.abandon(urn, "for the test")
            case "rewind":
                person.rewind(urn, to, "for the test")
            case "drop":
                person.drop(urn, "for the test", delete_files=True)

    def interfere(self) -> None:
        """Somebody puts a file where one is about to be published."""
        for urn in self.urns:
            pending = self.look.journal.history(urn).pending
            steps = [] if pending is None else [*self.look.journal.steps(pending.decision)]
            free = [s.target for s in steps if isinstance(s, MoveStep) and self.files.identity(s.target) is None]
            if free:
                path = self.chance.choice(free)
                with self.files.create(path) as out:
                    out.write(STRANGE)
                self.strange.add(path)
                self.note(f"somebody puts a file at {path}")
                return

    def remove_strange(self) -> None:
        for path in sorted(self.strange):
            assert self.files.identity(path) is not None, f"somebody else's file {path} was removed"  # I10
            assert self.files.read(path) == STRANGE, f"somebody else's file {path} was changed"
            self.files.unlink(path)
        self.strange.clear()

    def go_on(self) -> None:
        """Some attempt goes on for some calls; or a task is started."""
        for attempt in self.attempts:
            attempt.frozen = max(0, attempt.frozen - 1)
        if self.strange and self.chance.random() < 0.2:
            self.remove_strange()
        waiting = [r for r in self.runs if not r.over and r.attempt is None]
        awake = self.awake()
        if waiting and (not awake or self.chance.random() < 0.5):
            self.start_task(self.chance.choice(waiting))
            awake = self.awake()
        picked = self.pick(awake)
        if picked is not None:
            self.let_go_on(picked, 1 + int(self.chance.expovariate(1 / self.mix.patience) ** 1.5))

    # Tasks

    def start_task(self, run: DagRun) -> None:
        stage, pack = run.tasks[run.next]
        plan = run.plan
        for zombie in run.zombies if stage == "execute_commit_steps" else ():  # then they do most harm
            if self.chance.random() < 0.7:
                zombie.frozen = 0
        attempt = self.start(
            f"{run.name} {stage} {'' if pack is None else pack.index} try {run.tries} at {len(self.attempts)}",
            lambda attempt: self.carry_out(attempt, run, plan, stage, pack),
        )
        run.attempt = attempt
        run.tries += 1

    def start(self, name: str, work: Callable[[Attempt], None]) -> Attempt:
        attempt = Attempt(self, name, work)
        self.attempts.append(attempt)
        self.note(f"{name} starts")
        attempt.start()
        return attempt

    def carry_out(self, attempt: Attempt, run: DagRun, plan: RunPlan | None, stage: str, pack: Pack | None) -> None:
        """A task, as its operator does it. :param plan: what it got from `create_work_units`."""
        process = Process(
            FaultyStore(self.store, attempt),
            FaultyFiles(self.files, attempt),
            run.source,
            policy=self.policy,
            attempts=2,
        )
        pipe = process.pipeline
        if stage == "verify_recover":
            pipe.verify_recover(run.request)
            return
        if stage == "create_work_units":
            self.create(pipe, attempt, run)
            return
        assert plan is not None
        if stage == "finish":
            for report in pipe.finish(plan):
                self.check_report(run, plan, report)
            for slot, _ in pipe.unannounced(self.urns):
                pipe.announced(slot, plan.run_key)
            return
        assert pack is not None
        if stage == "extract":
            self.extract(process, plan, pack, f"attempt{self.attempts.index(attempt)}")
        elif stage == "write_commit_steps":
            self.expect(pipe.write_commit_steps(plan, pack))
        else:
            reports = pipe.execute_commit_steps(plan, pack)
            for report in reports:
                self.check_report(run, plan, report)
            self.expect(reports)

    def create(self, pipe: Pipeline, attempt: Attempt, run: DagRun) -> None:
        made = pipe.create_work_units(run.request)
        for ref in (d for p in made.packs for d in p.datasets):
            found = pipe.staging.plan(ref.token)
            if found is not None:
                run.plans[ref.token] = found
        if run.attempt is attempt:  # what a zombie hands over is not taken
            run.plan = made

    def expect(self, reports: Iterable[DatasetReport]) -> None:
        if any(r.retryable for r in reports):
            raise OSError("a task with retryable failures fails, and is tried again")

    def extract(self, process: Process, plan: RunPlan, pack: Pack, attempt: str) -> None:
        """What Spark does, with units that fail or stop early."""
        pipe = process.pipeline
        job = pipe.staging.job(plan.run)
        failed = False
        trouble = self.trouble(0.3 if self.policy is CommitPolicy.SUCCESSFUL else 0.1)
        for dataset, unit in pipe.missing_units(pack):
            result = self.failed(unit, attempt) if self.chance.random() < trouble else None
            if result is None:
                short = unit.urn == "flights" and self.chance.random() < self.trouble(0.15)
                cut = replace(job, limits=Limits(rows=1)) if short else job
                folder = pipe.staging.token_folder(dataset.token)
                result = extraction.extract_unit(cut, dataset, unit, attempt, pipe.files, folder, NoConnections())
            pipe.staging.put_result(dataset.token, result)
            failed = failed or result.state is UnitState.FAILED
        if failed:
            raise OSError("an extract with failed units fails, and is tried again")

    def failed(self, unit: WorkUnit, attempt: str) -> UnitResult:
        return UnitResult(unit.id, attempt, UnitState.FAILED, error="for the test")

    def trouble(self, chance: float) -> float:
        return 0.0 if self.peace else chance

    # The baton

    def awake(self) -> list[Attempt]:
        self.attempts_ended()
        return [a for a in self.attempts if not a.ended and not a.frozen]

    def pick(self, some: list[Attempt]) -> Attempt | None:
        return self.chance.choice(some) if some else None

    def let_go_on(self, attempt: Attempt, calls: int) -> None:
        """Let an attempt make some calls."""
        attempt.left = calls
        attempt.turn.release()
        self.turn.acquire()
        self.attempts_ended()

    def attempts_ended(self) -> None:
        """What the schedulers make of attempts that ended."""
        for run in self.runs:
            attempt = run.attempt
            if attempt is None or not attempt.ended:
                continue
            run.attempt = None
            self.note(f"{attempt.name} ended{'' if attempt.error is None else f' with {attempt.error!r}'}")
            stage = run.tasks[run.next][0]
            tried = run.tries > (1 if stage == "extract" else 2)
            if attempt.error is None or (tried and stage != "create_work_units"):
                run.next += 1
                run.tries = 0
            elif tried:
                run.next = len(run.tasks)

    def choose_fault(self, call: Call) -> Fault | None:
        often = 4 if call.effect is Effect.PUT else 1  # where answers matter most
        if self.peace or self.chance.random() >= often * self.mix.fault:
            return None
        some = [f for f in call.faults if f not in (Fault.POWER_LOSS, Fault.PARTIAL_POWER_LOSS)]
        fault = self.chance.choice(some)
        self.note(f"  {fault}: {call.place} {call.operation} {call.subject}")
        return fault

    # The peace

    def make_peace(self) -> None:
        """No more faults. Zombies and runs come to their end, and one more run publishes what is missing."""
        self.peace = True
        self.note("peace")
        self.remove_strange()
        self.grow()
        for attempt in self.attempts:
            attempt.frozen = attempt.hold = 0
        self.finish_all()
        for urn in self.urns:
            if self.look.journal.history(urn).state.quarantined:
                self.start(f"release {urn}", lambda a, urn=urn: self.administer(a, "release", urn, LongWatermark(0)))  # type: ignore[misc]
        self.finish_all()
        last = DagRun("last run", self.sources[-1], None)
        self.runs.append(last)
        self.finish_all()
        self.expect_whole()
        self.look.check_complete(self.sources)
        left = self.look.leftovers()
        assert not left, f"staging is left over: {left}"
        self.check_clean()

    def finish_all(self) -> None:
        for _ in range(10_000):
            self.attempts_ended()
            waiting = [r for r in self.runs if not r.over and r.attempt is None]
            if waiting:
                self.start_task(self.chance.choice(waiting))
            attempt = self.pick(self.awake())
            if attempt is None and not waiting:
                return
            if attempt is not None:
                self.let_go_on(attempt, 1 + int(self.chance.expovariate(1 / 40)))
        raise AssertionError("it comes to no end")

    def halt(self) -> None:
        for attempt in self.attempts:
            if not attempt.ended:
                attempt.doomed = True
                attempt.turn.release()
                self.turn.acquire()
            attempt.join(10)

    # What must hold

    def observe(self, call: Call, do: Callable[[], T]) -> T:
        """A call, and a look at the world after every record of the journal that was written."""
        result = do()
        if call.place == "store" and call.effect is Effect.PUT and result is True:
            try:
                assert call.operation == "put", f"record {call.subject} of the journal was deleted"
                if "/d/" in call.subject or "/o/" in call.subject:
                    self.check()
            except BaseException as error:
                self.broken = self.broken or error
        return result

    def check(self) -> None:
        self.look.check(self.sources, strange=self.strange)
        for urn in self.urns:
            history = self.look.journal.history(urn)
            before = self.coverage.get(urn)
            now = history.state.coverage
            shrinking = {Action.REWIND, Action.DROP, Action.SET, Action.IMPORT}
            if before is not None and history.slots and not all(now.covers(r) for r in before.ranges()):
                last = history.slots[-1] if history.slots[-1].done else history.slots[-2]
                assert last.decision.action in shrinking, (
                    f"{urn}: its coverage shrank in slot {last.decision.slot}"
                )  # I4
            self.coverage[urn] = now
        now_there = self.look.records()
        changed = [key for key, data in self.records.items() if now_there.get(key) != data]
        assert not changed, f"records changed: {changed}"  # I5
        self.records = now_there

    def check_report(self, run: DagRun, ran: RunPlan, report: DatasetReport) -> None:
        """What a run says of a dataset is true: what its own token published is never called lost (I7, I12)."""
        for ref in (d for p in ran.packs for d in p.datasets if d.urn == report.urn):
            history = self.look.journal.history(ref.urn)
            slot = history.by_token(ref.token)
            plan = run.plans.get(ref.token)  # none, if it was swept at once
            told = f"{run.name} says {report}, and its slot is {slot and (slot.decision.slot, slot.outcome)}"
            if slot is not None and slot.done:
                assert report.status in ("committed", "partial", "failed"), told
            if report.status in ("committed", "partial"):
                key = ran.run_key
                mine = [s for s in history.slots if s is slot or (s.decision.run_key == key and s.decision.complete)]
                assert any(s.done for s in mine), told
            if report.status == "covered" and plan is not None and plan.planned is not None:
                taken_back = plan.generation != history.state.generation
                assert taken_back or history.state.coverage.covers(plan.planned), f"{told}; {plan.planned} is open"

    def check_clean(self) -> None:
        """After the peace nothing of an abandoned slot stands."""
        for urn in self.urns:
            for slot in self.look.journal.history(urn).slots:
                if slot.outcome is not None and slot.outcome.state is OutcomeState.ABANDONED:
                    for step in self.look.journal.steps(slot.decision):
                        if isinstance(step, MoveStep):
                            assert self.files.identity(step.target) is None, (
                                f"{step.target} of an abandoned slot stands"
                            )

    def expect_whole(self) -> None:
        if self.broken is not None:
            raise self.broken

    # What is told of it

    def note(self, line: str) -> None:
        self.log.append(f"{self.calls:6} {line}")
        self.digest.update(line.encode())

    def trace(self, attempt: Attempt, call: Call) -> None:
        self.calls += 1
        self.digest.update(f"{attempt.name} {call.place} {call.operation} {call.subject}".encode())

    def now(self) -> datetime:
        """A clock that nobody can rely on (I13)."""
        self.clock += timedelta(seconds=self.chance.choice([-3600, -1, 0, 1, 1, 60]))
        return self.clock


class _Inline:
    """In place of a pool of threads: the calls are made here, one after the other."""

    def __init__(self, threads: int) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def map(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        return map(function, items)


@contextmanager
def deterministic(history: History) -> Iterator[None]:
    """No threads but the attempts, no waiting, and ids, names and times that follow from the seed."""
    ids = random.Random(history.seed)
    with ExitStack() as stack:
        for target, name, value in (
            (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128))),
            (secrets, "token_hex", lambda n: f"{ids.getrandbits(8 * n):0{2 * n}x}"),
            (commit, "ThreadPoolExecutor", _Inline),
            (base, "_PAUSE", 0.0),
            (journal, "_PAUSE", 0.0),
            *((module, "now", history.now) for module in (administration, claims, commit, journal, pipeline)),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        yield


def play(seed: int, mix: Mix | None = None) -> History:
    """A history by its seed. :raises AssertionError: with the seed and what happened."""
    history = History(seed, mix)
    try:
        history.play()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        story = "\n".join(history.log[-60:])
        why = str(error) or f"an assertion of {traceback.extract_tb(error.__traceback__)[-1].name}"
        raise BrokenHistory(seed, f"{type(error).__name__}: {why}", story) from error
    return history


class BrokenHistory(AssertionError):
    """A history broke a promise. :param why: which one; :param story: what happened before."""

    def __init__(self, seed: int, why: str, story: str) -> None:
        super().__init__(f"history {seed}: {why}\n{story}\nto play it again: python -m tests.protocol.histories {seed}")
        self.why = why


@dataclass
class Tally:
    """What became of some histories. :param broken: those that broke a promise, as text."""

    histories: int = 0
    calls: int = 0
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.calls += other.calls
        self.broken += other.broken


def play_all(seeds: Iterable[int], until: float | None = None) -> Tally:
    """Many histories. :param until: no more of them after this time (of `time.time()`)."""
    tally = Tally()
    for seed in seeds:
        if until is not None and time.time() > until:
            break
        tally.histories += 1
        try:
            tally.calls += play(seed).calls
        except BrokenHistory as error:
            tally.broken.append(str(error))
    return tally


def play_together(seeds: range, until: float | None = None) -> Tally:
    """Many histories, spread over some processes. :param until: as `play_all`."""
    tally = Tally()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for part in [pool.submit(play_all, seeds[n::WORKERS], until) for n in range(WORKERS)]:
            tally.add(part.result())
    return tally


def first_broken(mutant: str, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The seed of the first history that breaks a promise when the product has a deliberate fault, and what it breaks.

    :raises BrokenHistory: it does so without the fault, too.
    """
    for seed in seeds:
        try:
            with mutated(mutant):
                play(seed)
        except BrokenHistory as error:
            play(seed)
            return seed, error.why
    return None


def main() -> None:
    """Play one history again, and tell it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--mutant", help="a deliberate fault in the product, one of mutants.py")
    arguments = parser.parse_args()
    with nullcontext() if arguments.mutant is None else mutated(arguments.mutant):
        history = play(arguments.seed)
    print(*history.log, sep="\n")
    print(f"history {history.seed}: {history.calls} calls, digest {history.digest.hexdigest()}")


if __name__ == "__main__":
    main()
