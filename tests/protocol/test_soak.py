"""The long run of the histories and of the crash matrix, for as many minutes as GOBBLIN_SOAK_MINUTES sets (10)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs import Proved, expect_none_broken
from tests.protocol import matrix
from tests.protocol.histories import FULL, SHORT, play_together
from tests.protocol.matrix import Point, Pool, Start, Tally, Trial
from tests.protocol.world import Bucket
from tests.services.s3 import S3Server

SEEDS = range(100_000, 1_000_000_000)
"""Those that `make test` doesn't play."""
FIRST_FAULTS = 40
"""How many recoveries are recorded at a time; a crash is tried at every call of each."""


@pytest.mark.soak
def test_histories_for_a_long_time(proved: Proved) -> None:
    """Half of the time; a million short ones take less than an hour on two free cores."""
    started = time.time()
    short = play_together(SEEDS, SHORT, until=started + seconds() * 0.4)
    full = play_together(SEEDS, FULL, until=started + seconds() * 0.5)
    proved("random histories for a long time", f"short: {short}; full: {full}", f"seeds from {SEEDS.start} on")
    expect_none_broken(short.broken + full.broken)


@pytest.mark.soak
def test_crashes_for_a_long_time(tmp_path: Path, versitygw: S3Server, bucket: str, proved: Proved) -> None:
    """The other half."""
    started = time.time()
    single, double = Tally(), Tally()
    stores: tuple[str | Bucket, ...] = ("sqlite", "local", Bucket(versitygw.access, bucket))
    for number, store in enumerate(stores):
        until = started + seconds() * 0.5 * (1 + number) / len(stores)
        crash(tmp_path / str(number), store, until, single, double)
    broken = single.broken + double.broken
    proved(
        "crashes for a long time",
        f"{single.trials} crash points and {double.trials - double.missed} crashes during recoveries, on SQLite, local disk "
        f"and S3; {len(broken)} broke a promise",
        "those of the stores' numbers",
    )
    expect_none_broken(broken)


def seconds() -> float:
    return 60 * float(os.environ.get("GOBBLIN_SOAK_MINUTES", "10"))


def crash(folder: Path, store: str | Bucket, until: float, single: Tally, double: Tally) -> None:
    """All points, and then, in a random order, second faults at all calls of the recoveries from them."""
    folder.mkdir()
    chance = random.Random(folder.name)
    with Pool(folder) as pool:
        start = pool.start(folder, store)
        points = [*matrix.points(start.calls)]
        chance.shuffle(points)
        half = time.time() + (until - time.time()) / 2
        single.add(pool.run(start, folder, [Trial(p) for p in points], half))
        for trials in _second_faults(pool, start, folder, points, chance):
            if time.time() > until:
                break
            double.add(pool.run(start, folder, trials, until))


def _second_faults(
    pool: Pool, start: Start, folder: Path, points: list[Point], chance: random.Random
) -> Iterator[list[Trial]]:
    for at in range(0, len(points), FIRST_FAULTS):
        found = pool.recoveries(start, folder, points[at : at + FIRST_FAULTS])
        trials = [Trial(first, again) for first, made in found for again in matrix.points(made)]
        chance.shuffle(trials)
        yield trials
