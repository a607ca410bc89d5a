"""The crash matrix: every call of every stage of a run, with every fault that can happen to it, and then recovery.

    first run, whole  →  second run, with a fault at call k  →  look  →  recovery  →  third run, whole  →  look

The points are found by recording the calls of a second run without fault. A crash after a call and a crash before the next
one leave the same disk, and a read changes none, so of such twins one is run.

One process dies, by SIGKILL; others look and recover. All of them are forked from a process that has imported
all they need and holds nothing of the place they work on. The tasks of a run share a process until it dies, unlike Airflow's;
but a task that is tried again starts with nothing of the try before.

A power failure drops what was not synced of the target and of a local journal, by whichever process: in the recovery the disk
knows what a killed one left. A SQL store's own durability is not tested here, so its records survive; its
calls have all the other faults.
"""

from __future__ import annotations

import copy
import importlib
import logging
import os
import random
import secrets
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.journal import journal
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.coverage import Coverage
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps import execution
from airflow_gobblin.storage.stores import base, sql
from tests.faults import POWER, Call, Disk, Effect, Fault, Faults, fsync
from tests.protocol.acts import Fences
from tests.protocol.attempts import TELLING_TIME, OneThread
from tests.protocol.mutants import mutated
from tests.protocol.processes import Send, be_forked_often, die, in_fresh_process, share_clients
from tests.protocol.rows import EvenRows, RefusedRow, RowSource, Table
from tests.protocol.world import Bucket, Look, Place, Run, World
from tests.services import s3

S_contra = TypeVar("S_contra", contravariant=True)
S = TypeVar("S")
T = TypeVar("T")
WORKERS = 2
AT_A_TIME = 4 * WORKERS


def source(run: int) -> RowSource:
    """The source at the time of the n-th run: two datasets, which go in one pack."""
    return RowSource(
        (
            Table("ünusual/../URN", ExtractKind.APPEND_ONLY, 6 * run),
            Table("planes", ExtractKind.SNAPSHOT_ONLY, 2, run),
        )
    )


def topics(run: int) -> RowSource:
    """As `source`, of two topics. From the second run on, the logs lack some offsets that the first one didn't read."""
    kept_from = 7 if run > 1 else None
    return RowSource(
        (
            Table(URNS[0], ExtractKind.APPEND_ONLY, 6 * run, kept_from=kept_from, partitions=2),
            Table(URNS[1], ExtractKind.APPEND_ONLY, 2 * run, partitions=1),
        )
    )


SOURCES = [source(n) for n in (1, 2, 3)]
URNS = [t.urn for t in SOURCES[0].tables]
TOPICS = [topics(n) for n in (1, 2, 3)]
REFUSED = f"{URNS[0]}/1/8"
"""The row of a topic where a unit of its second run fails."""


def sources(place: Place) -> list[RowSource]:
    """The source at the time of each run."""
    return TOPICS if place.topics else SOURCES


def options(place: Place, number: int) -> dict[str, object]:
    """How the n-th run is configured. Of topics, every second row is a dead letter from the second run on, in which a unit
    fails in the middle."""
    if not place.topics:
        return {}
    refused = (RefusedRow(REFUSED),) if number == 2 else ()
    letters = (EvenRows(),) if number > 1 else ()
    return {"batch": Batch(rows=2), "policy": CommitPolicy.PARTIAL, "checks": (*letters, *refused)}


@dataclass(frozen=True)
class Point:
    """A fault at a call.

    :param at: its number, from 0, counted from the start of the run, or of the recovery.
    """

    at: int
    fault: Fault
    call: Call

    def __str__(self) -> str:
        return f"{self.fault} at call {self.at}: {self.call.place} {self.call.operation} {self.call.subject}"


@dataclass(frozen=True)
class Trial:
    """One case of the matrix.

    :param again: a second fault, in the recovery from the first.
    """

    point: Point
    again: Point | None = None

    def __str__(self) -> str:
        return f"{self.point}" + ("" if self.again is None else f"; and in its recovery {self.again}")

    def run(self, start: Start, folder: Path) -> bool:
        """As a `Case`."""
        return run_trial(start, folder, self)


class Case(Protocol[S_contra]):
    """Something that happens to the second run of a place, and all that follows."""

    def run(self, start: S_contra, folder: Path) -> bool:
        """Play it.

        :param folder: where.
        :return: whether all of it happened.
        :raises AssertionError: a promise is broken.
        """


@dataclass(frozen=True)
class Broken:
    """The state after a fault.

    :param run: as far as its scheduler knows.
    :param disk: what is not synced, if that is known.
    """

    run: Run
    disk: Disk | None


@dataclass(frozen=True)
class Start:
    """A place after a whole first run, the calls that the second one makes there, and what must never change again."""

    place: Place
    calls: list[Call]
    records: dict[str, bytes]
    coverage: dict[str, Coverage]

    def check(self, look: Look) -> None:
        look.check_records(self.records)
        for urn, covered in self.coverage.items():
            now = look.journal.state(urn).coverage
            assert all(now.covers(part) for part in covered.ranges()), f"{urn}: its coverage shrank"  # I4


# A process


def start_worker(folder: Path) -> None:
    """Prepare a process that forks those of the matrix."""
    make_deterministic()
    share_clients()
    warm_up(folder)
    be_forked_often()


def with_mutant(mutant: str | None, work: Callable[..., T], *arguments: object) -> T:
    """Do some work of such a process.

    :param mutant: a deliberate fault for those that it forks to have.
    """
    with nullcontext() if mutant is None else mutated(mutant):
        return work(*arguments)


def make_deterministic() -> None:
    """One thread, no waiting, no real sync (the `Disk` hears of each), ids in the order in which they are made, so that
    listings by them are, too; and a clock that nothing can rely on (I13)."""
    setattr(uuid, "uuid4", _next_id)  # noqa: B010
    setattr(execution, "ThreadPoolExecutor", OneThread)  # noqa: B010
    os.fsync = fsync
    base._PAUSE = 0.0
    journal._PAUSE = 0.0
    sql._make_durable = _make_fast
    for module in TELLING_TIME:
        setattr(module, "now", _now)  # noqa: B010
    logging.disable(logging.CRITICAL)


def _make_fast(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def _next_id() -> uuid.UUID:
    return uuid.UUID(int=time.time_ns() << 64 | secrets.randbits(64))


_chance = random.Random(1)


def _now() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=_chance.randint(-3600, 3600))


# One case


def first_run(place: Place) -> None:
    """A whole first run, with a file of the user's in each dataset's folder."""
    world = World(place)
    world.look().plant(URNS)
    carry_out(world, 1, Faults())
    world.look().check_complete(sources(place)[:1])
    world.close()


def warm_up(folder: Path) -> None:
    """Import everything that a process needs, so that those forked from this one needn't."""
    for store in ("local", "sqlite"):
        with TemporaryDirectory(dir=folder) as inner:
            first_run(Place(Path(inner), store))
    importlib.import_module("s3fs")
    s3.warm_up()


def carry_out(world: World, number: int, faults: Faults, run: Run | None = None, send: Send | None = None) -> Run:
    """The n-th run, or the rest of it.

    :param send: gets its progress after each of its stages.
    """
    run = run or (second_run(world.place) if number == 2 else Run(f"run {number}"))
    source, settings = sources(world.place)[number - 1], options(world.place, number)
    run.carry_out(lambda: world.process(source, faults, max_packs=1, **settings), send or (lambda _: None))
    return run


def second_run(place: Place) -> Run:
    """The run that a fault happens to."""
    return Run("run 2", asked=place.backfill)


def start(
    folder: Path,
    store: str | Bucket,
    layout: Layout = Layout.FLAT,
    backfill: RunRequest | None = None,
    *,
    acts: Fences | None = None,
    letters: bool = False,
    topics: bool = False,
) -> Start:
    """The state that all cases start from."""
    place = Place(folder / "first", store, layout, backfill, acts, letters=letters, topics=topics)

    def work(send: Send) -> None:
        first_run(place)
        seen = World(place).look()
        send((seen.records(), {urn: seen.journal.state(urn).coverage for urn in URNS}))

    ((records, coverage),) = in_fresh_process(work)
    return Start(place, record_calls(place, folder / "recorded"), records, coverage)


def record_calls(base_place: Place, folder: Path, point: Point | None = None) -> list[Call]:
    """The calls of a second run without fault; with a `point`, those of the recovery from it."""
    place = base_place.copy(folder)

    def work(send: Send, run: Run | None = None) -> None:
        faults = Faults()
        world = World(place)
        run_or_recover(world, faults, run)
        send(faults.calls)

    try:
        run = None if point is None else fail(place, point, second_run(place)).run
        (calls,) = in_fresh_process(partial(work, run=run))
    finally:
        place.remove()
    assert isinstance(calls, list)
    return calls


def run_or_recover(world: World, faults: Faults, broken: Run | None) -> None:
    """The second run; or, from a broken one, what Airflow does next: the rest of it, and the third run."""
    carry_out(world, 2, faults, broken)
    if broken is not None:
        carry_out(world, 3, faults)


def run_trial(start: Start, folder: Path, trial: Trial) -> bool:
    """One case of the matrix.

    :return: whether all its faults happened.
    :raises AssertionError: a promise is broken.
    """
    place = start.place.copy(folder)
    happened = True
    try:
        later = trial.again is not None and trial.again.fault in POWER
        broken = fail(place, trial.point, second_run(place), disk=place.disk() if later else None)
        run = broken.run
        if trial.again is not None:
            happened = fail_again(place, start, trial.again, broken)
        seen = sources(place)[: 2 if trial.again is None else 3]
        # Ranges that a run was to replace stay to be replaced: they are no next run's.
        retried = run if trial.again is None and (trial.point.at % 2 == 0 or place.backfill is not None) else None

        def work(send: Send) -> None:
            look(World(place), start, seen)
            recover(World(place), start, retried, trial.point.at)

        in_fresh_process(work)
    finally:
        place.remove()
    return happened


def fail(place: Place, point: Point, run: Run, disk: Disk | None = None) -> Broken:
    """Carry out a run with a fault.

    :param disk: records what is not synced of it.
    """

    def work(send: Send) -> None:
        world, faults = faulty(place, point, send, disk)
        carry_out(world, 2, faults, run, send)
        send((faults.calls[point.at] if faults.happened else None, world.disk))

    *sent, (happened, left) = in_fresh_process(work)
    expect_recorded(point, happened)
    return Broken(sent[-1] if sent else run, left)


def expect_recorded(point: Point, happened: Call | None) -> None:
    """:param happened: the call that the fault happened to; `None`: there was none."""
    assert happened is not None, f"there was no {point}"
    same = (happened.place, happened.operation) == (point.call.place, point.call.operation)
    assert same, f"where {point} was recorded, there was now {happened}"


def fail_again(place: Place, start: Start, point: Point, broken: Broken) -> bool:
    """Carry out the recovery of a run with a fault, which may also lose what the process before didn't sync. Its calls follow
    the order of random tokens, so the call at the point's number may be a neighbour of the recorded one.
    :return: whether there was one."""

    def work(send: Send) -> None:
        look(World(place), start, sources(place)[:2])
        world, faults = faulty(place, point, send, broken.disk)
        run_or_recover(world, faults, broken.run)
        send((faults.calls[point.at] if faults.happened else None, world.disk))

    return in_fresh_process(work)[-1][0] is not None


def faulty(place: Place, point: Point, send: Send, disk: Disk | None) -> tuple[World, Faults]:
    """A process's view of the world, in which a fault will happen, and perhaps end it, or its host's power."""
    world = World(place, disk or (place.disk() if point.fault in POWER else None))
    faults = Faults(point.at, point.fault, die=lambda: end(world, point, faults, send))
    return world, faults


class HasDisk(Protocol):
    """A process's view of the world. `disk` is what lies under it, if syncs are tracked."""

    @property
    def disk(self) -> Disk | None: ...


def end(world: HasDisk, point: Point, faults: Faults, send: Send) -> None:
    if point.fault in POWER:
        chance = random.Random(point.at) if point.fault is Fault.PARTIAL_POWER_LOSS else None
        assert world.disk is not None
        world.disk.lose_power(chance)
    send((faults.calls[point.at], world.disk))
    die()


def look(world: World, start: Start, sources: list[RowSource]) -> None:
    seen = world.look()
    seen.check(sources)
    start.check(seen)


def recover(world: World, start: Start, run: Run | None, number: int) -> None:
    """Do as Airflow does next: the run's tasks are retried, or not; then comes the next run, and everything must be right."""
    if run is not None:
        carry_out(world, 2, Faults(), run)
        world.look().check(sources(world.place)[:2])
    third = carry_out(world, 3, Faults())
    assert not third.errors, f"the next run raised {third.errors}"
    assert third.final, "the next run did not come to its end"
    bad = [r for r in third.final if not r.ok]
    assert not bad, f"the next run is not green: {bad}"
    seen = world.look()
    seen.check_complete(sources(world.place))
    if world.place.backfill is not None:
        give_up(world, world.place.backfill)
    seen.check_torn(number)
    start.check(seen)
    left = seen.leftovers()
    assert not left, f"staging is left over: {left}"


def give_up(world: World, backfill: RunRequest) -> None:
    """If a unit of it failed, the range that it was to replace stays replaceable for ever, unless its plan is given up."""
    seen = world.look()
    for urn in backfill.datasets:
        with suppress(ConfigurationError):  # there is nothing to give up
            Administration(seen.journal, seen.files, "somebody").abandon(urn, "it is not wanted any more")
    carry_out(world, 3, Faults(), Run("run 4"))


# All cases


def points(calls: Sequence[Call]) -> Iterator[Point]:
    """Every call with every fault that can happen to it, without twins."""
    for at, call in enumerate(calls):
        last = at == len(calls) - 1
        for fault in call.faults:
            if fault is Fault.CRASH_AFTER and not last:
                continue  # as before the next
            if fault is Fault.CRASH_BEFORE and at and calls[at - 1].effect is Effect.READ:
                continue  # as before that one, or the one before it
            yield Point(at, fault, call)


def dying_before_a_sync(calls: Sequence[Call]) -> list[Point]:
    """The points where a process dies, its host doesn't, and the name of a record of the journal is not durable yet."""
    syncs = ((at, call) for at, call in enumerate(calls) if call.operation == "sync_folder" and call.place == "journal")
    return [Point(at, Fault.CRASH_BEFORE, call) for at, call in syncs]


def losing_power_after_an_outcome(calls: Sequence[Call]) -> list[Point]:
    """The points where the power fails, and the last durable change is the outcome of a slot."""
    found = []
    for number, call in enumerate(calls):
        if call.operation == "put" and "/o/" in call.subject:
            put = next(at for at in range(number, len(calls)) if calls[at].operation == "unlink")
            found.append(next(p for p in points(calls) if p.at > put and p.fault is Fault.POWER_LOSS))
    return found


def carrying_out(calls: Sequence[Call]) -> tuple[int, int]:
    """The first call at which a slot is decided, and the last one at which one is done."""
    puts = [(at, call.subject) for at, call in enumerate(calls) if call.operation == "put"]
    return min(at for at, subject in puts if "/d/" in subject), max(at for at, subject in puts if "/o/" in subject)


def from_decision_to_outcome(calls: Sequence[Call]) -> list[Point]:
    """The points at calls that change something, from the first decision to the last outcome."""
    first, last = carrying_out(calls)
    return [p for p in points(calls) if first <= p.at <= last + 1 and p.call.effect is not Effect.READ]


def twins(calls: Sequence[Call]) -> int:
    """How many cases `points` leaves out, because another one leaves the same disk."""
    return sum(len(call.faults) for call in calls) - sum(1 for _ in points(calls))


@dataclass
class Tally:
    """The results of some cases.

    :param broken: what broke, as text;
    :param missed: how many had no second fault.
    """

    trials: int = 0
    missed: int = 0
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.trials += other.trials
        self.missed += other.missed
        self.broken += other.broken


def run_trials(start: S, folder: Path, some: Iterable[Case[S]], until: float | None = None) -> Tally:
    """Cases one after the other.

    :param until: no more of them after this time (of `time.time()`).
    """
    tally = Tally()
    for trial in some:
        if until is not None and time.time() > until:
            break
        tally.trials += 1
        try:
            tally.missed += not trial.run(start, folder / str(tally.trials))
        except Exception:
            tally.broken.append(f"{trial}\n{traceback.format_exc(limit=-6)}")
    return tally


def record_recoveries(place: Place, folder: Path, some: Sequence[Point]) -> list[tuple[Point, list[Call]]]:
    return [(point, record_calls(place, folder / str(n), point)) for n, point in enumerate(some)]


class Pool:
    """Some worker processes, warm, which fork the processes of the matrix.

    :param folder: where they warm up.
    """

    def __init__(self, folder: Path) -> None:
        self._mutant: str | None = None
        self._pool = ProcessPoolExecutor(
            WORKERS, mp_context=get_context("spawn"), initializer=start_worker, initargs=(folder,)
        )

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def with_mutant(self, mutant: str) -> Pool:
        """The same workers, whose processes have a deliberate fault."""
        other = copy.copy(self)
        other._mutant = mutant
        return other

    def call(self, work: Callable[..., T], *arguments: object) -> T:
        """Do some work in one of the workers."""
        return self._submit(work, *arguments).result()

    def _submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        return self._pool.submit(with_mutant, self._mutant, work, *arguments)

    def start(
        self,
        folder: Path,
        store: str | Bucket,
        layout: Layout = Layout.FLAT,
        backfill: RunRequest | None = None,
        *,
        acts: Fences | None = None,
        letters: bool = False,
        topics: bool = False,
    ) -> Start:
        """The state that all cases start from.

        :param backfill: what the run that the faults happen to asks for.
        :param acts: as of a `LineSink`.
        :param letters: as of a `Place`, as `topics`.
        """
        return self.call(partial(start, acts=acts, letters=letters, topics=topics), folder, store, layout, backfill)

    def recoveries(self, start: Start, folder: Path, some: Sequence[Point]) -> list[tuple[Point, list[Call]]]:
        """The calls of the recoveries from some points."""
        parts = [some[n::WORKERS] for n in range(WORKERS)]
        work = [self._submit(record_recoveries, start.place, folder / f"r{n}", part) for n, part in enumerate(parts)]
        return [found for future in work for found in future.result()]

    def run(self, start: S, folder: Path, some: Sequence[Case[S]], until: float | None = None) -> Tally:
        """Run cases, spread over the workers."""
        parts = [some[n::WORKERS] for n in range(WORKERS)]
        work = [self._submit(run_trials, start, folder / f"w{n}", part, until) for n, part in enumerate(parts)]
        tally = Tally()
        for future in work:
            tally.add(future.result())
        return tally

    def run_until(self, finds: str, start: S, folder: Path, some: Sequence[Case[S]]) -> Tally:
        """Run cases, a few at a time, until one of them breaks a promise.

        :param finds: a part of its text.
        """
        tally = Tally()
        for at in range(0, len(some), AT_A_TIME):
            tally.add(self.run(start, folder, some[at : at + AT_A_TIME]))
            if any(finds in broken for broken in tally.broken):
                break
        return tally


def dying_and_then_losing_power(pool: Pool, start: Start, folder: Path) -> list[Trial]:
    """A process dies before a record is durable; another one reads it, acts on it, and then the power fails."""
    found = pool.recoveries(start, folder, dying_before_a_sync(start.calls))
    return [Trial(first, again) for first, made in found for again in losing_power_after_an_outcome(made)]
