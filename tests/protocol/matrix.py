"""The crash matrix: every call of every stage of a run, with every fault that can happen to it, and then recovery.

    first run, whole  →  second run, with a fault at call k  →  look  →  recovery by fresh processes  →  third run, whole  →  look

The points are found by recording the calls of a second run without fault. A crash after a call and a crash before the next
one leave the same disk, and a read changes none, so of such twins one is run.
"""

from __future__ import annotations

import logging
import random
import shutil
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from airflow_gobblin import commit, files, journal
from airflow_gobblin.stores import base, sql
from airflow_gobblin.work import ExtractKind
from tests.faults import POWER, Call, Crash, Effect, Fault, Faults
from tests.protocol.rows import RowSource, Table
from tests.protocol.world import Place, Run, World

WORKERS = 2


def source(run: int) -> RowSource:
    """What the source has at the time of the n-th run."""
    return RowSource(
        (
            Table("main.flights", ExtractKind.APPEND_ONLY, 6 * run),
            Table("ünusual/../URN", ExtractKind.SNAPSHOT_APPEND, 2 * run),
            Table("planes", ExtractKind.SNAPSHOT_ONLY, 2, run),
        )
    )


SOURCES = [source(n) for n in (1, 2, 3)]


@dataclass(frozen=True)
class Point:
    """A fault at a call. :param again: a second one, in the recovery: the number of its call, counted from there."""

    at: int
    fault: Fault
    call: Call
    again: int | None = None

    def __str__(self) -> str:
        again = "" if self.again is None else f", and then again at call {self.again} of the recovery"
        return f"{self.fault} at call {self.at}: {self.call.place} {self.call.operation} {self.call.subject}{again}"


def make_deterministic() -> None:
    """One thread, no waiting, and no real sync: what is synced is known to the `Disk`."""
    commit.THREADS = 1
    files._fsync = lambda path, flags: None
    base._PAUSE = 0.0
    journal._PAUSE = 0.0
    sql._make_durable = _make_fast
    logging.disable(logging.CRITICAL)


def _make_fast(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def first_run(folder: Path, store: str) -> Place:
    """A place after a whole first run, with a file of the user's in each dataset's folder."""
    world = World(Place(folder, store))
    world.look().plant([t.urn for t in SOURCES[0].tables])
    carry_out(world, 1, Faults())
    world.look().check_complete(SOURCES[:1])
    world.close()
    return world.place


def carry_out(world: World, number: int, faults: Faults, run: Run | None = None) -> Run:
    """The n-th run, or what it has left to do."""
    run = run or Run(f"run {number}")
    run.carry_out(lambda: world.process(SOURCES[number - 1], faults))
    return run


def record_calls(base_place: Place, folder: Path) -> list[Call]:
    """The calls of a second run without fault."""
    faults = Faults()
    world = World(base_place.copy(folder))
    carry_out(world, 2, faults)
    world.close()
    shutil.rmtree(folder)
    return faults.calls


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


def run_point(base_place: Place, folder: Path, point: Point) -> None:
    """One case of the matrix. :raises AssertionError: a promise is broken."""
    world = World(base_place.copy(folder), disks=point.fault in POWER)
    try:
        check_point(world, point)
    finally:
        world.close()


def check_point(world: World, point: Point) -> None:
    records = world.look().records()
    run = Run("run 2")
    faults = Faults(point.at, point.fault)
    with suppress(Crash):
        carry_out(world, 2, faults, run)
    assert faults.happened, "the run made fewer calls than when it was recorded"
    same = faults.calls[point.at]
    assert (same.place, same.operation) == (point.call.place, point.call.operation), f"{same} is not {point.call}"
    lose_power(world, point)
    world.look().check(SOURCES[:2], records=records)
    if point.again is not None:
        recover_with_fault(world, point, run)
    recover(world, run, retry=point.at % 2 == 0)
    world.look().check_records(records)


def lose_power(world: World, point: Point) -> None:
    if point.fault in POWER:
        chance = random.Random(point.at) if point.fault is Fault.PARTIAL_POWER_LOSS else None
        for disk in world.disks.values():
            disk.lose_power(chance)


def recover_with_fault(world: World, point: Point, run: Run) -> None:
    """A recovery that dies too, at call `again` of it, and loses power if the first did."""
    faults = Faults(point.again, point.fault)
    with suppress(Crash):
        carry_out(world, 2, faults, run)
        carry_out(world, 3, faults)
    lose_power(world, point)
    world.look().check(SOURCES)


def recover(world: World, run: Run, *, retry: bool) -> None:
    """What Airflow does next: the run's tasks are retried, or not; then comes the next run, and all must be well."""
    if retry and "finish" not in run.done:
        carry_out(world, 2, Faults(), run)
        world.look().check(SOURCES[:2])
    third = carry_out(world, 3, Faults())
    assert not third.errors, f"the next run raised {third.errors}"
    assert third.final, "the next run did not come to its end"
    bad = [r for r in third.final if not r.ok]
    assert not bad, f"the next run is not green: {bad}"
    world.look().check_complete(SOURCES)
    left = world.look().leftovers()
    assert not left, f"staging is left over: {left}"


def run_points(base_place: Place, folder: Path, some: Iterable[Point]) -> list[str]:
    """Cases one after the other, in this process. :return: what broke."""
    broken = []
    for n, point in enumerate(some):
        here = folder / str(n)
        try:
            run_point(base_place, here, point)
        except Exception:
            broken.append(f"{base_place.store}: {point}\n{traceback.format_exc(limit=-6)}")
        finally:
            shutil.rmtree(here, ignore_errors=True)
    return broken


def run_matrix(base_place: Place, folder: Path, some: Sequence[Point]) -> list[str]:
    """Cases, spread over some processes. :return: what broke."""
    parts = [some[n::WORKERS] for n in range(WORKERS)]
    context = get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context, initializer=make_deterministic) as pool:
        work = [pool.submit(run_points, base_place, folder / f"w{n}", part) for n, part in enumerate(parts)]
        return [line for future in work for line in future.result()]
