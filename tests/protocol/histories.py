"""Random histories: several runs at once, zombies, clears, lost answers, crashes, rewinds and abandons, on a store in memory.

Every attempt of a task is a greenlet: at each call of a store or of the file system it may have to hand over to another one,
so that a seed determines everything that happens. A history ends in peace: everything that still runs
ends, and a last run without fault must then find and publish everything missing.

The short histories are many: each goes on from one of a few hundred beginnings, where a small history broke off as if its host
had died, with one run or two.
"""

from __future__ import annotations

import argparse
import copy
import gc
import hashlib
import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from multiprocessing import get_context
from typing import Any, TypeVar, cast
from unittest import mock

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.commit import committer
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import SourceError
from airflow_gobblin.journal import journal
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, NoteKind, OutcomeState
from airflow_gobblin.model import plan as plans
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind, Limits, Pack, UnitResult, UnitState, WorkUnit
from airflow_gobblin.rows import extraction
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.rows.work import RowsBinding, RowsWork
from airflow_gobblin.run import replan
from airflow_gobblin.run.announce import note_announced, unannounced
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.publishing import FolderStep
from airflow_gobblin.storage.files import Files
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing.memory_files import MemoryFiles, MemoryObjects
from airflow_gobblin.workspace.staging import ROOT
from tests.faults import Call, Disk, Effect, Fault, FaultyFiles, FaultyStore, StaleStore
from tests.memory_disk import MemoryMedium, Onlooker
from tests.protocol.acts import Fences
from tests.protocol.attempts import Attempt, deterministic
from tests.protocol.mutants import active, mutated
from tests.protocol.rows import EvenRows, FailingRows, RefusedRow, RowSource, Table, stage_rows
from tests.protocol.world import NAME, Look, Process, every_slot

T = TypeVar("T")
STAGES = ("verify_recover", "create_work_units", "extract", "write_commit_steps", "execute_commit_steps", "finish")
CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN)
PUBLISHING = ("link", "move_folder", "complete upload")
TOKEN = re.compile("[0-9a-f]{32}")
STRANGE = b"somebody else's\n"
WORKERS = 2
BEGINNING_OF_ALL = LongWatermark(0)
HALF_A_DAY = timedelta(hours=12)
"""Longer than a history, by the clock of its target; by those of its processes it may be over at once."""
FAILURE = Failure.of(SourceError(operation="read", subject="a unit", cause="for the test"))


@dataclass(frozen=True)
class Mix:
    """How much of each thing happens in a history.

    :param events: how many things happen before the peace, at the most.
    :param fault: the chance of a fault at a call.
    :param patience: how many calls one attempt makes, on average, before another one goes on.
    :param runs: how many run at once, at the most.
    :param weights: how often which thing happens, in the order of `History.something`.
    :param stale: in how many of the others listings lag behind.
    :param on_disk: how many of the histories have their journal on a disk, as files, and not in a store without losses.
    :param growth: the chance that the source has grown when the peace comes.
    :param backfills: how many of the runs are backfills.
    :param small: of one dataset, mostly, whose rows are staged as they are, without Arrow.
    :param places: what the target may be.
    :param patient: the chance that runs are finished when the peace comes; else they are forgotten, as they are.
    """

    events: int = 100
    fault: float = 0.006
    patience: float = 12.0
    runs: int = 4
    weights: tuple[float, ...] = (2, 3, 2, 6, 1, 2, 0.25, 26, 0.5, 1)
    on_disk: float = 0.25
    stale: float = 0.2
    growth: float = 1.0
    backfills: float = 0.5
    small: bool = False
    places: tuple[type[MemoryFiles], ...] = (MemoryFiles, MemoryFiles, MemoryObjects)
    patient: float = 1.0


FULL = Mix()
BEGINNING = Mix(
    events=40,
    patience=18.0,
    runs=2,
    weights=(2, 2, 1, 1.5, 0.4, 1, 0.3, 26, 0.1, 0.3),
    backfills=0.3,
    small=True,
    places=(MemoryFiles, MemoryObjects, MemoryObjects, MemoryObjects),
)
BEGINNINGS = 400
SHORT = replace(
    BEGINNING,
    events=7,
    fault=0.009,
    patience=25.0,
    weights=(0.3, 0.7, 0.5, 4, 0.5, 0.8, 0.4, 18, 0.3, 1.2),
    growth=0.1,
    patient=0.2,
)


class Scheduled(Attempt):
    """An attempt, and how long until it hands over.

    :param about: the call that it is about to make.
    :param left: how many calls it may make yet.
    :param frozen: for how many events it is held up;
    :param hold: for how many it will be, when it next changes anything.
    """

    about: Call | None = None
    left = 0
    frozen = 0
    hold = 0
    targets: tuple[FaultyFiles, ...] = ()
    """The target, as it has it opened."""
    unmounted = False
    """Whether it sees an empty folder there, until it ends."""


@dataclass
class DagRun:
    """A DAG run as its scheduler sees it.

    :param next: its next task;
    :param plan: what is in XCom.
    """

    name: str
    source: RowSource
    request: RunRequest
    plan: RunPlan | None = None
    plans: dict[str, Plan] = field(default_factory=dict)
    next: int = 0
    tries: int = 0
    attempt: Scheduled | None = None
    zombies: list[Scheduled] = field(default_factory=list)

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

    def __init__(self, seed: str, mix: Mix) -> None:
        self.seed = seed
        self.mix = mix
        self.chance = random.Random(seed)
        self.calls = 0
        self.happened: Counter[str] = Counter()
        self.log: list[str] = []
        self.digest = hashlib.sha256()
        self.broken: BaseException | None = None
        self.peace = False
        self.policy = self.chance.choice([*CommitPolicy, CommitPolicy.PARTIAL])
        self.at_once = self.chance.choice([1, 1, 2, self.mix.runs])
        self.kinds = self.choose_kinds()
        self.rows = 2
        self.partitions = random.Random(f"{seed} partitions").choice([0, 0, 2])
        """Whether flights are a topic, and of how many partitions."""
        self.ties = random.Random(f"{seed} ties").choice([1, 2, 2, 2])
        """How many rows a position of flights has, if they are no topic."""
        self.kept = 0
        """Where its logs begin."""
        self.sources: list[RowSource] = []
        self.sources.append(self.source())
        self.files = self.chance.choice(self.mix.places)()
        self.stale = self.chance.random() < self.mix.stale
        on_disk = type(self.files) is MemoryFiles and self.chance.random() < self.mix.on_disk
        self.place_records(MemoryFiles("memory://journal") if on_disk else MemoryStore())
        self.store.put_if_absent(journal._ID, f"{self.chance.getrandbits(128):032x}".encode())
        self.layout = self.chance.choice([Layout.FLAT, Layout.FOLDER_PER_UNIT])
        links = type(self.files) is MemoryFiles and self.layout is Layout.FLAT
        self.acts = random.Random(f"{seed} acts").choice([None, *Fences]) if links else None
        self.batch = random.Random(f"{seed} batches").choice([None, None, Batch(rows=3)])
        self.letters = random.Random(f"{seed} letters").choice([False, False, True])
        """Whether every second row is a dead letter."""
        self.retention = random.Random(f"{seed} retention").choice([timedelta(0)] * 4 + [HALF_A_DAY])
        self.units_together = self.chance.choice([1, 2, 1000])  # so that many plans are in pieces
        self.steps_per_batch = self.chance.choice([1, 2, 1000])  # and many sequences
        self.look = Look(Journal.create(self.store, NAME), self.files)
        self.begin_to_watch()
        self.runs: list[DagRun] = []
        self.attempts: list[Scheduled] = []
        self.strange: set[str] = set()
        self.bad: dict[tuple[str, str], str] = {}
        """A bad row of a plan's unit, by token and unit: each try fails at it."""
        self.meddling = False
        """Whether somebody is waiting for a moment to interfere."""
        self.barred: set[str] = set()
        self.empty = MemoryFiles()
        """The files that processes see if the target isn't mounted."""
        self.away = False
        """Whether it isn't mounted for any attempt that begins."""
        self.look.plant(self.urns)

    def begin_to_watch(self) -> None:
        """Know nothing yet of what must hold."""
        self.finished: set[str] = set()
        """The tokens whose slots have an outcome."""
        self.late: dict[tuple[Attempt, str], set[str]] = {}
        """The files of a token that an attempt was about to publish after that."""
        self.records: dict[str, bytes] = {}
        self.coverage: dict[str, Any] = {}

    def place_records(self, records: MemoryStore | MemoryFiles) -> None:
        """Have the journal there; on a disk, together with the target's, whose power may fail."""
        self.disks: tuple[Disk, ...] = ()
        self.given_out: set[str] = set()
        """The keys of the records on a disk whose creation was acknowledged."""
        self.deleted: set[str] = set()
        self.journal_files = records if isinstance(records, MemoryFiles) else None
        if isinstance(records, MemoryStore):
            self.store: Store = records
            return
        self.store = LocalStore(cast(Files, Onlooker(records)))
        self.disks = (Disk(MemoryMedium(records)), Disk(MemoryMedium(self.files)))
        for files, disk in zip((records, self.files), self.disks, strict=True):
            files.synced = disk.fsync

    def store_of(self, attempt: Attempt) -> Store:
        """The journal's store, as an attempt has it."""
        if self.journal_files is None and not self.stale:
            return FaultyStore(self.store, attempt)
        if self.journal_files is None:
            return FaultyStore(self.stale_store(), attempt, in_order=True)
        files = FaultyFiles(self.journal_files, attempt, self.disks[0], "journal")
        return FaultyStore(
            GivenOut(LocalStore(cast(Files, files)), self.given_out, self.deleted), attempt, in_order=True
        )

    def stale_store(self) -> Store:
        """The journal's store on a host that caches listings: a process sees a folder as it was up to some listings ago."""
        listings = count()
        return StaleStore(self.store, lambda: self.chance.choice([0, 0, 1, 3, 15]), lambda: next(listings))

    def files_of(self, attempt: Attempt) -> FaultyFiles:
        """The target, as an attempt has it."""
        assert isinstance(attempt, Scheduled)
        attempt.targets += (FaultyFiles(self.files, attempt, self.disks[1] if self.disks else None),)
        if self.away or attempt.unmounted:
            self.take_away(attempt)
        return attempt.targets[-1]

    def going_on(self, seed: str, mix: Mix) -> History:
        """Another history, which continues from this one's state. Everything that was running here is dead there."""
        other = copy.copy(self)
        other.seed, other.mix, other.chance = seed, mix, random.Random(seed)
        other.calls, other.happened = 0, Counter()
        other.log, other.digest = [*self.log], self.digest.copy()
        other.sources, other.coverage, other.records = [*self.sources], {**self.coverage}, {**self.records}
        other.files = self.files.copy()
        other.place_records(copied_store(self.store) if self.journal_files is None else self.journal_files.copy())
        other.finished, other.late = {*self.finished}, {}
        other.given_out |= self.given_out
        other.deleted |= self.deleted
        other.look = Look(Journal.create(other.store, NAME), other.files)
        other.runs = [replace(r, plans={**r.plans}, attempt=None, zombies=[]) for r in self.runs]
        other.attempts, other.strange, other.barred = [], {*self.strange}, {*self.barred}
        other.meddling, other.bad = False, {**self.bad}
        other.empty, other.away = MemoryFiles(), False
        return other

    def choose_kinds(self) -> tuple[ExtractKind, ...]:
        both = (ExtractKind.APPEND_ONLY, ExtractKind.SNAPSHOT_ONLY)
        if self.policy is not CommitPolicy.FULL:  # which snapshots refuse
            return both[:1]
        return self.chance.choice([both[:1], both[:1], both[1:], both]) if self.mix.small else both

    def source(self) -> RowSource:
        """The source as it is now."""
        kind, rows = ExtractKind.APPEND_ONLY, self.rows
        partial = self.policy is CommitPolicy.PARTIAL
        appended = Table("flights", kind, rows, unit_rows=6 if partial else 2, ties=self.ties)
        if self.partitions:
            appended = replace(appended, kept_from=self.kept or None, partitions=self.partitions)
        snapshot = Table("planes", ExtractKind.SNAPSHOT_ONLY, 2, len(self.sources), unit_rows=1)
        return RowSource(tuple(t for t in (appended, snapshot) if t.extract in self.kinds))

    @property
    def urns(self) -> list[str]:
        return [t.urn for t in self.sources[-1].tables]

    # Events

    def run_wild(self) -> None:
        """Until the peace."""
        if all(run.over for run in self.runs):
            self.start_run()
        for _ in range(self.mix.events):
            self.something()
            self.expect_whole()
            if self.mix.small and all(run.over for run in self.runs) and not self.awake():
                break

    def break_off(self) -> None:
        """Play a history up to some point in its middle, and then let everything die."""
        with deterministic() as determined, self.sized():
            determined.begin(self.seed)
            self.run_wild()
            self.lose_power()
            self.expect_whole()

    def play(self) -> None:
        """The whole history.

        :raises AssertionError: a promise is broken.
        """
        with deterministic() as determined, self.sized():
            determined.begin(self.seed)
            try:
                self.run_wild()
                self.make_peace()
            finally:
                self.halt()

    @contextmanager
    def sized(self) -> Iterator[None]:
        """With pieces and batches as large as in this history."""
        with (
            mock.patch.object(plans, "UNITS_TOGETHER", self.units_together),
            mock.patch.object(committer, "STEPS_PER_BATCH", self.steps_per_batch),
        ):
            yield

    def something(self) -> None:
        event = self.chance.choices(
            [
                self.grow,
                self.start_run,
                self.clear,
                self.freeze,
                self.kill,
                self.act,
                self.interfere,
                self.go_on,
                self.lose_power,
                self.unmount,
            ],
            self.mix.weights,
        )[0]
        event()

    def grow(self) -> None:
        self.rows += self.chance.randint(1, 4)
        if self.partitions and self.chance.random() < 0.2:
            self.kept = self.chance.randint(self.kept, self.rows)
            self.happened["retentions"] += 1
        self.sources.append(self.source())
        self.note(f"the source grows to {self.rows}")

    def start_run(self) -> None:
        if sum(not r.over for r in self.runs) >= self.at_once:
            return
        name = f"run {len(self.runs)}"
        request = self.backfill(name) if self.chance.random() < self.mix.backfills else None
        if request is None:
            end = datetime.fromtimestamp(self.rows, UTC) if self.chance.random() < 0.5 else None
            flush = self.batch is not None and self.chance.random() < 0.5
            request = RunRequest(name, end, flush=flush, version=end)
            self.happened["flushes"] += request.flush
        self.runs.append(DagRun(name, self.sources[-1], request))
        self.note(f"{request} starts")

    def backfill(self, name: str) -> RunRequest:
        """A backfill of any range, of any datasets, that replaces what is published or doesn't; or of an earlier one's."""
        replaces = self.chance.random() < 0.6
        self.happened["replacements" if replaces else "backfills"] += 1
        earlier = [run.request for run in self.runs if run.request.backfill]
        if earlier and self.chance.random() < 0.5:
            return replace(self.chance.choice(earlier), dag_run=name, replace=replaces)
        start = self.chance.randint(0, self.rows - 1)
        end = self.chance.choice([None, self.chance.randint(start + 1, self.rows + 1)])
        datasets = tuple(urn for urn in self.urns if self.chance.random() < 0.5)
        return RunRequest(name, end, datasets, start, replaces)

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
        """Hold an attempt up before it next changes anything. Its scheduler takes it for dead: it makes another try, or
        that was the last one, and the next task is started."""
        awake = self.awake()
        attempt = self.pick([a for a in awake if " extract " in a.name] or awake)
        if attempt is None:
            return
        self.happened["held up"] += 1
        attempt.hold = self.chance.choice([self.chance.randint(1, 60), self.mix.events])
        self.note(f"{attempt.name} is held up")
        for run in self.runs:
            if run.attempt is attempt:
                run.attempt = None
                run.zombies.append(attempt)
                if run.next > 1 and self.chance.random() < 0.5:
                    run.next += 1
                    run.tries = 0

    def unmount(self) -> None:
        """Take the target away, for one attempt until it ends or for all that begin; or bring it back."""
        if self.away:
            self.away = False
            self.note("the target is there again")
        elif self.may_go_away():
            attempt = self.pick(self.awake()) if self.chance.random() < 0.7 else None
            self.happened["targets gone"] += 1
            if attempt is not None:
                self.take_away(attempt)
            self.away = attempt is None
            self.note(f"the target is gone for {'all that begin' if attempt is None else attempt.name}")

    def may_go_away(self) -> bool:
        """Whether something depends on the target: else it could be begun anew elsewhere. An object store isn't mounted."""
        if type(self.files) is not MemoryFiles or any(a.name.startswith("drop") and not a.ended for a in self.attempts):
            return False
        histories = [self.look.journal.history(urn) for urn in self.urns]
        dropping = any(h.pending is not None and h.pending.decision.action is Action.DROP for h in histories)
        return not dropping and any(h.state.live or h.state.coverage.origin is not None for h in histories)

    def take_away(self, attempt: Scheduled) -> None:
        attempt.unmounted = True
        for files in attempt.targets:
            files._files, files._disk = self.empty, None

    def kill(self) -> None:
        attempt = self.pick(self.awake())
        if attempt is not None:
            self.note(f"{attempt.name} is killed")
            self.happened["killed"] += 1
            attempt.end()
            self.attempts_ended()

    def lose_power(self) -> None:
        """Let everything die. All that isn't durable goes, or a part of it, or nothing, if that was long ago."""
        self.note("everything dies")
        self.happened["power lost"] += 1
        for attempt in self.attempts:
            attempt.end()
        self.attempts_ended()
        for disk in self.disks:
            how = self.chance.choice(["nothing is lost", "all is lost", "a part is lost"])
            if how == "nothing is lost":
                disk.forget()
            else:
                disk.lose_power(None if how == "all is lost" else random.Random(self.chance.random()))
        # Records that an onlooker saw needn't be durable, and a journal expects that they still exist: no process outlives this.
        self.look = Look(Journal(self.store, NAME, self.look.journal.id), self.files)
        self.strange = {path for path in self.strange if self.files.identity(path) is not None}
        records = self.look.records()
        lost = self.given_out - records.keys() - self.deleted
        assert not lost, f"records were given out and not durable: {lost}"
        self.records = {key: data for key, data in self.records.items() if key in records}
        self.coverage = {urn: self.look.journal.history(urn).state.coverage for urn in self.urns}
        self.check()

    def act(self) -> None:
        """A person does something to a dataset."""
        urn = self.chance.choice(self.urns)
        what = self.chance.choice(["release", "abandon", "rewind", "drop", "rewind", "abandon", "pause", "pause"])
        if self.look.journal.state(urn).paused is not None and self.chance.random() < 0.5:
            what = "resume"
        if self.look.journal.history(urn).pending is not None and self.chance.random() < 0.5:
            what = "abandon"
        if what == "drop" and (self.away or any(a.unmounted and not a.ended for a in self.attempts)):
            return  # where nothing is published any more, an empty target is as good as any
        to: Watermark = LongWatermark(self.chance.randint(0, self.rows))
        if self.partitions:
            to = MultiLongWatermark(tuple(self.chance.randint(0, self.rows) for _ in range(self.partitions)))
        self.start(f"{what} {urn}", lambda attempt: self.administer(attempt, what, urn, to))

    def administer(self, attempt: Attempt, what: str, urn: str, to: Watermark = BEGINNING_OF_ALL) -> None:
        journal_ = Journal.create(self.store_of(attempt), NAME)
        person = Administration(journal_, self.files_of(attempt), "somebody")
        match what:
            case "release":
                person.release(urn, "for the test")
            case "abandon":
                person.abandon(urn, "for the test")
            case "rewind":
                person.rewind(urn, to, "for the test")
            case "pause":
                person.pause(urn, reason := f"for the test, at call {self.calls}")
                self.happened["pauses"] += 1
                self.expect_taken(urn, Action.PAUSE, reason)
            case "resume":
                person.resume(urn, reason := f"for the test, at call {self.calls}")
                self.expect_taken(urn, Action.RESUME, reason)
            case "drop":
                person.drop(urn, "for the test", delete_files=True)

    def expect_taken(self, urn: str, action: Action, reason: str) -> None:
        """An act that a person was told is done took a slot: so every later decision has read it."""
        slots = every_slot(self.look.journal.history(urn))
        taken = any((slot.decision.action, slot.decision.reason) == (action, reason) for slot in slots)
        assert taken, f"{urn}: a person was told of a {action}, and it took no slot"

    def interfere(self) -> None:
        """Put a foreign file where one is about to be published, at the last moment if possible; or when next one is."""
        calls = [a.about for a in self.attempts if a.about is not None and not a.ended]
        free = [
            c.subject for c in calls if c.operation in PUBLISHING and ROOT not in c.subject and c.place != "journal"
        ]
        for urn in self.urns if not free else ():
            pending = self.look.journal.history(urn).pending
            steps = [] if pending is None else [*self.look.journal.steps(pending.decision)]
            free += [file.path for step in steps for file in step.files()]
            free += [f"{step.source}/strange" for step in steps if isinstance(step, FolderStep)]
        free = [path for path in free if self.files.identity(path) is None and self.could_be(path)]
        self.meddling = not free
        if free:
            path = self.chance.choice(free)
            with self.files.create(path) as out:
                out.write(STRANGE)
            self.strange.add(path)
            self.note(f"somebody puts a file at {path}")

    def could_be(self, path: str) -> bool:
        """Whether a foreign file could be put there: in staging, only into an existing folder."""
        folder = path.rpartition("/")[0]
        return folder not in self.strange and (ROOT not in path or self.files.identity(folder) is not None)

    def remove_strange(self) -> None:
        for path in sorted(self.strange):
            if ROOT in path and self.files.identity(path) is None:
                continue  # it went with the staging that it was put into
            assert self.files.identity(path) is not None, f"somebody else's file {path} was removed"  # I10
            assert self.files.read(path) == STRANGE, f"somebody else's file {path} was changed"
            self.files.unlink(path)
            if ROOT not in path:  # and the folder that had to be made for it
                self.files.remove_folder(path.rpartition("/")[0])
        self.strange.clear()

    def go_on(self) -> None:
        """Let some attempt go on for some calls; or start a task."""
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

    def start(self, name: str, work: Callable[[Attempt], None]) -> Scheduled:
        attempt = Scheduled(name, self, work)
        self.attempts.append(attempt)
        self.note(f"{name} starts")
        return attempt

    def carry_out(self, attempt: Attempt, run: DagRun, plan: RunPlan | None, stage: str, pack: Pack | None) -> None:
        """A task, as its operator does it.

        :param plan: what it got from `create_work_units`.
        """
        process = Process(
            self.store_of(attempt),
            self.files_of(attempt),
            run.source,
            self.layout,
            acts=self.acts,
            policy=self.policy,
            attempts=2,
            batch=self.batch,
            retention=self.retention,
            checks=(EvenRows(),) if self.letters else (),
            seals=True,
        )
        pipe = process.opened
        if stage == "verify_recover":
            verify_recover(pipe, run.request)
            return
        if stage == "create_work_units":
            self.create(pipe, attempt, run)
            return
        assert plan is not None
        if plan.flush:  # then others may have taken the place of its plans
            plan = pipe.staging.run(plan.run) or plan
            pack = None if pack is None else next((p for p in plan.packs if p.index == pack.index), pack)
        if stage == "finish":
            for report in finish(pipe, plan):
                self.check_report(run, plan, report)
            for slot, _ in unannounced(pipe, self.urns):
                note_announced(pipe, slot, plan.run_key)
            return
        assert pack is not None
        if stage == "extract":
            self.extract(process, plan, pack, f"attempt{attempt.name.rpartition(' ')[2]}")
            while replan.decide_and_plan_again(pipe, run.request, plan, pack):
                self.happened["planned again"] += 1
                plan = pipe.staging.run(plan.run)
                if plan is None:  # swept: another try has brought the run to its end
                    return
                pack = plan.packs[pack.index]
                self.extract(process, plan, pack, f"attempt{attempt.name.rpartition(' ')[2]}")
        elif stage == "write_commit_steps":
            self.expect(write_commit_steps(pipe, plan, pack))
        else:
            reports = execute_commit_steps(pipe, plan, pack)
            for report in reports:
                self.check_report(run, plan, report)
            self.expect(reports)

    def create(self, pipe: OpenJob, attempt: Attempt, run: DagRun) -> None:
        paused = {urn: self.look.journal.state(urn).paused for urn in self.urns}
        made = create_work_units(pipe, run.request)
        for ref in (d for p in made.packs for d in p.datasets):
            found = pipe.staging.plan(ref.token)
            if found is not None:
                run.plans[ref.token] = found
        # Nothing that was paused all the while may be published by this plan.
        self.barred |= {
            ref.token
            for pack in made.packs
            for ref in pack.datasets
            if paused[ref.urn] is not None and self.look.journal.state(ref.urn).paused == paused[ref.urn]
        }
        if run.attempt is attempt:  # a zombie's result is ignored
            run.plan = made

    def expect(self, reports: Iterable[DatasetReport]) -> None:
        if any(r.retryable for r in reports):
            raise OSError("a task with retryable failures fails, and is tried again")

    def extract(self, process: Process, plan: RunPlan, pack: Pack, attempt: str) -> None:
        """The work of Spark, with units that fail or stop early."""
        pipe = process.opened
        job = pipe.staging.work(plan.run)
        assert isinstance(job, RowsWork)
        failed = False
        trouble = self.trouble({CommitPolicy.FULL: 0.1, CommitPolicy.SUCCESSFUL: 0.3}.get(self.policy, 0.5))
        for dataset, unit in missing_units(pipe, pack):
            fails = self.chance.random() < trouble or (dataset.token, unit.id) in self.bad
            result = self.failed(unit, attempt) if fails else None
            if result is not None and self.policy is CommitPolicy.PARTIAL:
                result = self.cut(process, job, dataset, unit, attempt)
            if result is None:
                short = unit.urn == "flights" and self.chance.random() < self.trouble(0.15)
                binding = RowsBinding.of(dataset)
                cut = replace(dataset, binding=replace(binding, limits=Limits(rows=1))) if short else dataset
                folder = pipe.staging.token_folder(dataset.token)
                plain = self.mix.small and not (self.letters or (self.partitions and unit.urn == "flights"))
                extract = stage_rows if plain else extraction.extract_unit
                result = extract(job, cut, unit, attempt, pipe.files, folder, NoConnections())
            pipe.staging.put_result(dataset.token, result)
            failed = failed or result.state is UnitState.FAILED
        if failed:
            raise OSError("an extract with failed units fails, and is tried again")

    def cut(self, process: Process, job: RowsWork, dataset: Plan, unit: WorkUnit, attempt: str) -> UnitResult:
        """A unit that fails in its middle: by its reader, or by a bad row."""
        pipe, source = process.opened, job.source
        assert isinstance(source, RowSource)
        assert unit.low is not None
        assert unit.expected_high is not None
        rows = sorted(source.table(unit.urn).rows_in([Range(unit.low, unit.expected_high)]))
        failing = replace(job, source=FailingRows(source.tables, self.chance.randint(0, 2)))
        if rows and not self.peace and self.chance.random() < 0.7:
            self.bad.setdefault((dataset.token, unit.id), self.chance.choice(rows))
        if (bad := self.bad.get((dataset.token, unit.id))) is not None:
            failing = replace(job, checks=(*job.checks, RefusedRow(bad)))
        folder = pipe.staging.token_folder(dataset.token)
        result = extraction.extract_unit(failing, dataset, unit, attempt, pipe.files, folder, NoConnections())
        self.happened["cut"] += result.cut is not None
        return result

    def failed(self, unit: WorkUnit, attempt: str) -> UnitResult:
        return UnitResult(unit.id, attempt, UnitState.FAILED, failure=FAILURE)

    def trouble(self, chance: float) -> float:
        return 0.0 if self.peace else chance

    # The baton

    def awake(self) -> list[Scheduled]:
        self.attempts_ended()
        return [a for a in self.attempts if not a.ended and not a.frozen]

    def pick(self, some: list[Scheduled]) -> Scheduled | None:
        return self.chance.choice(some) if some else None

    def let_go_on(self, attempt: Scheduled, calls: int) -> None:
        """Let an attempt make some calls."""
        attempt.left = calls
        attempt.go_on()
        self.attempts_ended()

    def before(self, attempt: Attempt, call: Call) -> Fault | None:
        """Hand over, if it is time; and return what goes wrong then."""
        assert isinstance(attempt, Scheduled)
        attempt.about = call
        attempt.left -= 1
        if attempt.hold and call.effect is not Effect.READ:
            attempt.frozen, attempt.hold, attempt.left = attempt.hold, 0, -1
        while attempt.left < 0 and not attempt.dead:
            attempt.pause()
        if attempt.dead:
            return None
        if self.meddling and call.operation in (*PUBLISHING, "identities"):  # the last look into a staged folder
            self.interfere()
        self.trace(attempt, call)
        self.note_late(attempt, call)
        return self.choose_fault(call)

    def attempts_ended(self) -> None:
        """Update the schedulers for attempts that ended."""
        for attempt in self.attempts:
            if attempt.failed:
                self.broken = self.broken or attempt.error
        for run in self.runs:
            ended = run.attempt
            if ended is None or not ended.ended:
                continue
            run.attempt = None
            self.note(f"{ended.name} ended{'' if ended.error is None else f' with {ended.error!r}'}")
            stage = run.tasks[run.next][0]
            tried = run.tries > (1 if stage == "extract" else 2)
            if ended.error is None or (tried and stage != "create_work_units"):
                run.next += 1
                run.tries = 0
            elif tried:
                run.next = len(run.tasks)

    def choose_fault(self, call: Call) -> Fault | None:
        often = 4 if call.effect is Effect.PUT else 1  # where answers matter most
        if call.place == "journal" and call.effect is Effect.SYNC:  # and deaths
            often = 10
        if self.peace or self.chance.random() >= often * self.mix.fault:
            return None
        some = [f for f in call.faults if f not in (Fault.POWER_LOSS, Fault.PARTIAL_POWER_LOSS)]
        fault = self.chance.choice(some)
        self.note(f"  {fault}: {call.place} {call.operation} {call.subject}")
        self.happened[fault] += 1
        return fault

    # The peace

    def make_peace(self) -> None:
        """No more faults. Zombies and runs end, and one more run publishes everything missing."""
        self.peace = True
        self.note("peace")
        self.away = self.meddling = False
        self.remove_strange()
        if self.chance.random() < self.mix.growth:
            self.grow()
        for attempt in self.attempts:
            attempt.frozen = attempt.hold = 0
        if self.chance.random() >= self.mix.patient:
            for run in self.runs:
                run.next, run.attempt = len(run.tasks), None
        if self.chance.random() < 0.2:
            self.replace_twice()
        self.finish_all()
        for urn in self.urns:
            if self.look.journal.state(urn).paused is not None:
                self.start(f"resume {urn}", lambda a, urn=urn: self.administer(a, "resume", urn))  # type: ignore[misc]
        self.finish_all()
        for urn in self.urns:
            if self.look.journal.history(urn).state.quarantined:
                self.start(f"release {urn}", lambda a, urn=urn: self.administer(a, "release", urn))  # type: ignore[misc]
        self.finish_all()
        if self.batch is not None and self.chance.random() < 0.5:
            self.flush_among_others()
        last = DagRun("last run", self.sources[-1], RunRequest("last run", flush=True))
        self.runs.append(last)
        self.finish_all()
        if self.kept or any(run.request.replace for run in self.runs):
            self.give_up()
        self.expect_whole()
        self.look.check_complete(self.sources)
        self.look.check_seals(self.sources[-1].tables)
        left = self.look.leftovers()
        assert not left, f"staging is left over: {left}"
        shadowed = [path for path in self.empty.walk(".") if not path.startswith(f"{ROOT}/")]
        assert not shadowed, f"where the target wasn't mounted there is {shadowed}"
        self.check_clean()

    def flush_among_others(self) -> None:
        """Without a fault a flush ends well, even if others publish meanwhile what it had planned."""
        self.happened["flushes among others"] += 1
        for _ in range(3):
            self.grow()
            name = f"run {len(self.runs)}"
            open_end = RunRequest(name, None, ("flights",), max(0, self.rows - self.chance.randint(1, 4)))
            request = self.chance.choice([RunRequest(name), RunRequest(name, flush=True), open_end])
            if "flights" not in self.urns:
                request = RunRequest(name, flush=True)
            self.runs.append(DagRun(name, self.sources[-1], request))
        self.grow()
        self.runs.append(DagRun("flush", self.sources[-1], RunRequest("flush", flush=True)))
        self.finish_all()

    def replace_twice(self) -> None:
        """Two people ask at the same time to replace everything that is published."""
        for name in (f"run {len(self.runs)}", f"run {len(self.runs) + 1}"):
            self.runs.append(DagRun(name, self.sources[-1], RunRequest(name, start=0, replace=True)))
            self.happened["replacements"] += 1

    def give_up(self) -> None:
        """Ranges that an unfinished run was to replace stay replaceable for ever, so its plan has to be given up. So do those of
        a first load that is begun anew, where the log begins by then.
        """
        for urn in self.urns:
            self.start(f"abandon {urn}", lambda a, urn=urn: self.administer(a, "abandon", urn))  # type: ignore[misc]
        self.finish_all()
        self.runs.append(DagRun("sweeping run", self.sources[-1], RunRequest("sweeping run")))
        self.finish_all()

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
            attempt.end()

    # Checks

    def observe(self, call: Call, do: Callable[[], T]) -> T:
        """A call, and a check of the world after every record of the journal that was written."""
        result = do()
        if call.place == "store" and call.effect is Effect.PUT and result is True:
            try:
                if "/d/" in call.subject or "/o/" in call.subject:
                    self.check()
                if call.subject.startswith("_seals/"):
                    self.happened["seals"] += 1
                    self.look.check_seals(self.sources[-1].tables)
            except BaseException as error:
                self.broken = self.broken or error
        return result

    def note_late(self, attempt: Attempt, call: Call) -> None:
        """Executors look at the outcome before each batch: once it exists, they publish the rest of a batch, and no more."""
        token = TOKEN.search(call.subject) if call.operation in PUBLISHING else None
        if token is None or token[0] not in self.finished or ROOT in call.subject:
            return
        late = self.late.setdefault((attempt, token[0]), set())
        late.add(call.subject)
        if len(late) > self.steps_per_batch:
            self.broken = self.broken or AssertionError(f"{attempt.name} goes on with {sorted(late)} after the outcome")

    def check(self) -> None:
        self.look.check(self.sources, strange=self.strange)
        for urn in self.urns:
            history = self.look.journal.history(urn)
            self.finished |= {slot.decision.token for slot in history.slots if slot.outcome is not None}
            before = self.coverage.get(urn)
            now = history.state.coverage
            shrinking = {Action.REWIND, Action.DROP, Action.SET, Action.IMPORT}
            assert history.slots or before is None or not before.ranges(), f"{urn}: its slots are gone"
            if before is not None and not all(now.covers(r) for r in before.ranges()):
                last = next(slot for slot in history.newest_first if slot.done)
                assert last.decision.action in shrinking, (
                    f"{urn}: its coverage shrank in slot {last.decision.slot}"
                )  # I4
            self.coverage[urn] = now
            gone = [s.decision.slot for s in history.slots if s.done and s.noted(NoteKind.CLEANED)]
            assert not (self.retention and gone), f"{urn}: files that slots {gone} retired went before their time"
            barred = [s.decision.slot for s in history.slots if s.decision.token in self.barred]
            # A process whose listing lags behind may plan in a pause, and can't decide before its end.
            assert self.stale or not barred, f"{urn}: slots {barred} were planned while it was paused"
        self.records = self.look.check_records(self.records)  # I5

    def check_report(self, run: DagRun, ran: RunPlan, report: DatasetReport) -> None:
        """A run's report of a dataset is true: nothing that its own token published is called lost (I7, I12)."""
        for ref in (d for p in ran.packs for d in p.datasets if d.urn == report.urn):
            history = self.look.journal.history(ref.urn)
            slot = history.by_token(ref.token)
            plan = run.plans.get(ref.token)  # none, if it was swept at once
            found = f"{run.name} reports {report}, and its slot is {slot and (slot.decision.slot, slot.outcome)}"
            assert run.name != "flush" or report.status in ("committed", "covered", "skipped"), found
            if slot is not None and slot.done:
                assert report.status in ("committed", "partial", "failed", "quarantined"), found
            if report.status in ("committed", "partial"):
                key = ran.run_key
                mine = (s for s in every_slot(history) if s.decision.run_key == key and s.decision.complete)
                assert any(s.done for s in (*mine, *([slot] if slot else []))), found
            if report.status == "covered" and plan is not None and plan.planned is not None:
                taken_back = plan.generation != history.state.generation
                assert taken_back or history.state.coverage.covers(plan.planned), f"{found}; {plan.planned} is open"

    def check_clean(self) -> None:
        """After the peace nothing of an abandoned slot exists."""
        for urn in self.urns:
            for slot in self.look.journal.history(urn).slots:
                if slot.outcome is not None and slot.outcome.state is OutcomeState.ABANDONED:
                    for step in self.look.journal.steps(slot.decision):
                        for file in step.files():
                            assert self.files.identity(file.path) is None, f"{file.path} of an abandoned slot exists"

    def expect_whole(self) -> None:
        if self.broken is not None:
            raise self.broken

    # How it is reported

    def note(self, line: str) -> None:
        self.log.append(f"{self.calls:6} {line}")
        self.digest.update(line.encode())

    def trace(self, attempt: Attempt, call: Call) -> None:
        self.calls += 1
        self.digest.update(f"{attempt.name} {call.place} {call.operation} {call.subject}".encode())


@cache
def beginning(number: int, mutants: tuple[str, ...]) -> History:
    """Where some of the short histories begin.

    :param mutants: the deliberate faults that the product has.
    """
    begun = History(f"beginning {number}", replace(BEGINNING, events=number % BEGINNING.events))
    begun.break_off()
    return begun


def begin(seed: int, mix: Mix) -> History:
    if not mix.small:
        return History(f"{seed}", mix)
    return beginning(seed % BEGINNINGS, tuple(active)).going_on(f"{seed}", mix)


def play(seed: int, mix: Mix = FULL) -> History:
    """A history by its seed.

    :raises BrokenHistory: with the seed and what happened.
    """
    history: History | None = None
    try:
        history = begin(seed, mix)
        history.play()
    except Exception as error:
        story = "" if history is None else "\n".join(history.log[-60:])
        why = str(error) or f"an assertion of {traceback.extract_tb(error.__traceback__)[-1].name}"
        raise BrokenHistory(seed, mix, f"{type(error).__name__}: {why}", story) from error
    return history


class BrokenHistory(AssertionError):
    """A history broke a promise.

    :param why: which one;
    :param story: what happened before.
    """

    def __init__(self, seed: int, mix: Mix, why: str, story: str) -> None:
        command = f"python -m tests.protocol.histories {seed}{' --short' if mix.small else ''}"
        super().__init__(f"history {seed}: {why}\n{story}\nto play it again: {command}")
        self.why = why
        self._of = seed, mix, why, story

    def __reduce__(self) -> tuple[type[BrokenHistory], tuple[int, Mix, str, str]]:
        return BrokenHistory, self._of  # other processes raise it


@dataclass
class Tally:
    """The results of some histories.

    :param happened: faults, and what else happened to attempts, by name.
    :param broken: the histories that broke a promise, as text.
    """

    histories: int = 0
    calls: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.calls += other.calls
        self.happened.update(other.happened)
        self.broken += other.broken

    @property
    def crashes(self) -> int:
        """How many processes died."""
        return sum(self.happened[name] for name in (*CRASHES, "killed"))

    def __str__(self) -> str:
        happened = ", ".join(f"{name} {number:,}" for name, number in sorted(self.happened.items()))
        return f"{self.histories:,} played, {self.calls:,} calls of stores and files, {self.crashes:,} crashes ({happened})"


class GivenOut:
    """A store on a disk, and its acknowledged records, which must outlive a power failure.

    :param deleted: those whose deletion was requested, which therefore needn't.
    """

    def __init__(self, store: Store, keys: set[str], deleted: set[str]) -> None:
        self._store = store
        self._keys = keys
        self._deleted = deleted
        self.name = store.name

    def put_if_absent(self, key: str, data: bytes) -> bool:
        created = self._store.put_if_absent(key, data)
        self._keys.add(key)
        return created

    def get(self, key: str) -> bytes | None:
        data = self._store.get(key)
        if data is not None:
            self._keys.add(key)
        return data

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((key, self.get(key)) for key in keys)

    def list(self, prefix: str) -> Iterator[str]:
        found = [*self._store.list(prefix)]
        self._keys.update(found)
        return iter(found)

    def delete(self, key: str) -> None:
        self._deleted.add(key)
        self._store.delete(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        self._deleted.update(keys)
        self._store.delete_many(keys)

    def close(self) -> None:
        self._store.close()


def copied_store(store: Store) -> MemoryStore:
    other = MemoryStore()
    for key in store.list(""):
        other.put_if_absent(key, store.get(key) or b"")
    return other


def play_all(seeds: Iterable[int], mix: Mix = FULL, until: float | None = None) -> Tally:
    """Many histories.

    :param until: no more of them after this time (of `time.time()`).
    """
    tally = Tally()
    with deterministic():
        for seed in seeds:
            if until is not None and time.time() > until:
                break
            tally.histories += 1
            try:
                played = play(seed, mix)
            except BrokenHistory as error:
                tally.broken.append(str(error))
            else:
                tally.calls += played.calls
                tally.happened.update(played.happened)
    return tally


def play_together(seeds: Sequence[int], mix: Mix = FULL, until: float | None = None) -> Tally:
    """Many histories, spread over some processes.

    :param until: as `play_all`.
    """
    tally = Tally()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"), initializer=gc.freeze) as pool:
        for part in [pool.submit(play_all, seeds[n::WORKERS], mix, until) for n in range(WORKERS)]:
            tally.add(part.result())
    return tally


def first_broken(mutant: str, seeds: Iterable[int], mix: Mix = FULL) -> tuple[int, str] | None:
    """The seed of the first history that breaks a promise when the product has a deliberate fault, and what it breaks.

    :raises BrokenHistory: it does so without the fault, too.
    """
    for seed in seeds:
        try:
            with mutated(mutant):
                play(seed, mix)
        except BrokenHistory as error:
            play(seed, mix)
            return seed, error.why
    return None


def main() -> None:
    """Play one history again, and report it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--short", action="store_true", help="the history is one of the short ones")
    parser.add_argument("--mutant", help="a deliberate fault in the product, one of mutants.py")
    arguments = parser.parse_args()
    with nullcontext() if arguments.mutant is None else mutated(arguments.mutant):
        history = play(arguments.seed, SHORT if arguments.short else FULL)
    print(*history.log, sep="\n")
    print(f"history {history.seed}: {history.calls} calls, digest {history.digest.hexdigest()}")


if __name__ == "__main__":
    main()
