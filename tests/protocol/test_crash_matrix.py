"""The crash matrix on the local store and on SQL stores. `matrix` describes it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from airflow_gobblin.model.dead_letters import FOLDER
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.run.request import RunRequest
from tests.faults import POWER, Call, Effect, Fault, Faults
from tests.proofs import Proved, chosen_by, expect_none_broken, fresh_seed, one_in, sampled, shares, some_and_whole
from tests.protocol import matrix
from tests.protocol.absences import absences
from tests.protocol.acts import Fences
from tests.protocol.matrix import Point, Pool, Tally, Trial
from tests.protocol.topics import is_lost
from tests.protocol.world import Bucket, World
from tests.services.s3 import S3Server

FLOOR = {
    "local": (250, 800),
    "sqlite": (170, 500),
    "postgres": (170, 500),
    "s3": (90, 150),
    "folders": (80, 100),
    "phases": (600, 300),
    "backfill": (150, 400),
    "letters": (150, 400),
    "topics": (150, 400),
}
"""How many calls a run makes, and how many cases follow from them, at the least."""
ABSENCES = 300
"""How often a target may go, at the least."""
CRASHES = (Fault.CRASH_BEFORE, Fault.TORN, Fault.POWER_LOSS)


@pytest.mark.timeout(1800)
@shares(360)
@pytest.mark.parametrize("store", ["local", "sqlite"])
def test_every_call_with_every_fault(store: str, share: int, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    seed = fresh_seed()
    start = pool.start(tmp_path, store)
    points = [*matrix.points(start.calls)]
    tally = pool.run(start, tmp_path, [Trial(point) for point in sampled(points, share, seed)])
    report(proved, store, start.calls, points, tally, chosen_by(share, seed))
    expect_floor(store, start.calls, points)
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@shares(360)
def test_every_call_of_publishing_folders(share: int, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    """With a folder per unit: all that changes something from the first look at a staged folder to the outcome, and all looks
    at folders; and in the recovery from some of them, the removal of retired folders."""
    seed = fresh_seed()
    start = pool.start(tmp_path, "local", Layout.FOLDER_PER_UNIT)
    first = next(n for n, call in enumerate(start.calls) if call.operation == "identities")
    last = max(n for n, call in enumerate(start.calls) if call.operation == "put" and "/o/" in call.subject)
    publish = (p for p in matrix.points(start.calls) if first <= p.at <= last + 1)
    points = [p for p in publish if p.call.effect is not Effect.READ or p.call.operation == "identities"]
    again = {
        (first, point)
        for first, made in pool.recoveries(start, tmp_path, spread(points, 5))
        for point in matrix.points(made)
        if point.call.operation == "remove_folder"
    }
    trials = [*(Trial(p) for p in points), *(Trial(*both) for both in sorted(again, key=str))]
    tally = pool.run(start, tmp_path, sampled(trials, share, seed))
    tried = [*points, *(point for _, point in again)]
    report(proved, "local, folders", start.calls, tried, tally, chosen_by(share, seed))
    assert last - first >= FLOOR["folders"][0]
    assert len(points) >= FLOOR["folders"][1]
    seen = {(p.call.operation, p.fault) for p in (*points, *(point for _, point in again))}
    assert {(name, fault) for name in ("move_folder", "remove_folder") for fault in POWER} <= seen
    assert ("move_folder", Fault.NO_SPACE) in seen
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@shares(240)
def test_every_change_of_steps_in_all_phases(share: int, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    """With an act that is possible once only: all that changes something from the first decision to the last outcome."""
    seed = fresh_seed()
    start = pool.start(tmp_path, "local", acts=Fences.MARK)
    points = matrix.from_decision_to_outcome(start.calls)
    tally = pool.run(start, tmp_path, [Trial(p) for p in sampled(points, share, seed)])
    report(proved, "local, all phases", start.calls, points, tally, chosen_by(share, seed))
    assert len(start.calls) >= FLOOR["phases"][0]
    assert len(points) >= FLOOR["phases"][1]
    assert {("move_folder", fault) for fault in POWER} <= {(p.call.operation, p.fault) for p in points}
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@shares(720)
@one_in(2, "backfill")
@pytest.mark.parametrize("backfill", [False, True])
def test_every_call_with_dead_letters(backfill: bool, share: int, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    """Every second row is one, so that each unit has files of both kinds; also where a backfill replaces them."""
    seed = fresh_seed()
    asked = RunRequest("run 2", 7, (matrix.URNS[0],), 1, replace=True) if backfill else None
    start = pool.start(tmp_path, "local", backfill=asked, letters=True)
    points = [*matrix.points(start.calls)]
    tally = pool.run(start, tmp_path, [Trial(p) for p in sampled(points, share, seed)])
    name = "local, dead letters" + (", a backfill" if backfill else "")
    report(proved, name, start.calls, points, tally, chosen_by(share, seed))
    assert any(FOLDER in call.subject for call in start.calls)
    assert len(points) >= FLOOR["letters"][1]
    assert len(start.calls) >= FLOOR["letters"][0]
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@shares(960)
def test_every_call_of_a_run_of_topics(share: int, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    """Two in a batch, with dead letters, with offsets that are lost, and with a unit that is published up to the middle."""
    seed = fresh_seed()
    start = pool.start(tmp_path, "local", topics=True)
    whole = World(start.place.copy(tmp_path / "whole"))
    first, _ = matrix.carry_out(whole, 2, Faults()).final
    assert "1 of them only from where it failed on" in first.detail
    assert any(is_lost(unit.properties) for unit in whole.look().journal.state(first.urn).live.values())
    points = [*matrix.points(start.calls)]
    tally = pool.run(start, tmp_path, [Trial(p) for p in sampled(points, share, seed)])
    report(proved, "local, topics", start.calls, points, tally, chosen_by(share, seed))
    assert any(FOLDER in call.subject for call in start.calls)
    assert len(points) >= FLOOR["topics"][1]
    assert len(start.calls) >= FLOOR["topics"][0]
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@shares(480)
@one_in(2, "layout")
@pytest.mark.parametrize("layout", Layout)
def test_every_call_of_a_backfill_that_replaces(
    layout: Layout, share: int, pool: Pool, tmp_path: Path, proved: Proved
) -> None:
    """It takes the units of the first run, and what came since."""
    seed = fresh_seed()
    asked = RunRequest("run 2", 7, (matrix.URNS[0],), 1, replace=True)
    start = pool.start(tmp_path, "local", layout, asked)
    points = [*matrix.points(start.calls)]
    tally = pool.run(start, tmp_path, [Trial(p) for p in sampled(points, share, seed)])
    report(proved, f"local, a backfill, {layout.value}", start.calls, points, tally, chosen_by(share, seed))
    assert len(points) >= FLOOR["backfill"][1]
    assert len(start.calls) >= FLOOR["backfill"][0]
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@shares(240)
def test_every_call_of_the_store_on_postgresql(
    share: int, pool: Pool, tmp_path: Path, postgres_database: str, proved: Proved
) -> None:
    seed = fresh_seed()
    start = pool.start(tmp_path, postgres_database)
    points = [*matrix.points(start.calls)]
    of_the_store = [Trial(p) for p in points if p.call.place == "store"]
    tally = pool.run(start, tmp_path, sampled(of_the_store, share, seed))
    report(proved, "postgres", start.calls, points, tally, f"of the store's {chosen_by(share, seed)}")
    expect_floor("postgres", start.calls, points)
    expect_none_broken(tally.broken)


@pytest.mark.timeout(2400)
@shares(360)
def test_every_call_on_s3(
    share: int, pool: Pool, tmp_path: Path, versitygw: S3Server, bucket: str, proved: Proved
) -> None:
    """The journal and the target are in one bucket."""
    seed = fresh_seed()
    start = pool.start(tmp_path, Bucket(versitygw.access, bucket))
    points = [*matrix.points(start.calls)]
    tally = pool.run(start, tmp_path, [Trial(p) for p in sampled(points, share, seed)])
    report(proved, "s3", start.calls, points, tally, chosen_by(share, seed))
    assert len(start.calls) >= FLOOR["s3"][0]
    assert len(points) >= FLOOR["s3"][1]
    seen = {(c.place, c.operation) for c in start.calls}
    assert {("store", "put"), ("target store", "put"), ("target", "send upload"), ("target", "complete upload")} <= seen
    assert {p.fault for p in points} >= {Fault.CRASH_BEFORE, Fault.ANSWER_LOST, Fault.ERROR}
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("number", "further"), some_and_whole((5, 8), (50, 20)))
def test_crashes_during_the_recovery(number: int, further: int, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    """A second fault at calls by chance in the recovery from first ones by chance.
    `make soak` tries all of them, in a random order, for as long as it is given.

    :param number: of the first faults.
    :param further: the number of second ones in each of the recoveries.
    """
    seed = fresh_seed()
    chance = random.Random(seed)
    start = pool.start(tmp_path, "local")
    firsts = chance.sample([p for p in matrix.points(start.calls) if p.fault in CRASHES], number)
    trials = [
        Trial(first, again)
        for first, made in pool.recoveries(start, tmp_path, firsts)
        for again in chance.sample([*matrix.points(made)], further)
    ]
    tally = pool.run(start, tmp_path, trials)
    proved(
        "crashes during the recovery",
        f"{tally.trials - tally.missed} in {len(firsts)} recoveries; {len(tally.broken)} broke a promise",
        f"seed {seed}",
    )
    assert tally.trials == number * further
    assert tally.missed <= tally.trials // 10
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@shares(480)
@one_in(2, "layout")
@pytest.mark.parametrize("layout", Layout)
def test_a_target_that_is_gone(layout: Layout, share: int, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    """The next run stops by name; when the target is back, nothing is lost, and everything missing is published."""
    seed = fresh_seed()
    start = pool.start(tmp_path, "local", layout)
    times = [*absences(start.calls)]
    tally = pool.run(start, tmp_path, sampled(times, share, seed))
    proved(
        f"a target that is gone between two calls of a run, {layout.value}",
        f"{len(times)} times, {tally.trials} tried; {len(tally.broken)} broke a promise",
        chosen_by(share, seed),
    )
    assert len(times) >= ABSENCES
    expect_none_broken(tally.broken)


@pytest.mark.timeout(1200)
@shares(10)
def test_a_process_dies_and_then_the_power_fails(share: int, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    """The name that it made is not durable when others find it: they must make it so before they go on."""
    seed = fresh_seed()
    start = pool.start(tmp_path, "local")
    trials = matrix.dying_and_then_losing_power(pool, start, tmp_path)
    tally = pool.run(start, tmp_path, sampled(trials, share, seed))
    proved(
        "a process dies before a name is durable, and then the power fails",
        f"{tally.trials - tally.missed} played; {len(tally.broken)} broke a promise",
        f"before a sync of the journal, and after each outcome of the recovery; {chosen_by(share, seed)}",
    )
    assert len(trials) >= 20
    expect_none_broken(tally.broken)


def spread(some: list[Point], number: int) -> list[Point]:
    """A number of points, evenly spread."""
    return [some[n * len(some) // number] for n in range(number)]


def report(proved: Proved, store: str, calls: list[Call], points: list[Point], tally: Tally, chosen: str) -> None:
    """:param chosen: how the points were."""
    by_fault = Counter(p.fault.value for p in points)
    proved(
        f"crash matrix on {store}",
        f"{len(calls)} calls, {len(points)} points (and {matrix.twins(calls)} that leave the same disk as one of them), "
        f"{tally.trials} tried; {len(tally.broken)} broke a promise",
        chosen,
        details=[f"points by fault: {', '.join(f'{name} {number}' for name, number in by_fault.items())}"],
    )


def expect_floor(store: str, calls: list[Call], points: list[Point]) -> None:
    """The recording saw everything."""
    assert len(calls) >= FLOOR[store][0]
    assert len(points) >= FLOOR[store][1]
    seen = {(c.place, c.operation) for c in calls}
    assert {("store", "put"), ("store", "get"), ("store", "list"), ("target", "link"), ("target", "write")} <= seen
    assert set(Fault) == {p.fault for p in points}
