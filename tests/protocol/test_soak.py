"""The long run of the histories and of the crash matrix, for as many minutes as GOBBLIN_SOAK_MINUTES says (10)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protocol import matrix
from tests.protocol.histories import play_together
from tests.protocol.matrix import Point, Pool, Start, Tally, Trial

SEEDS = range(10_000, 10_000_000)
FIRST_FAULTS = 40
"""How many recoveries are recorded at a time; a crash is tried at every call of each."""


@pytest.mark.soak
def test_histories_and_crashes_for_a_long_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.time()
    seconds = 60 * float(os.environ.get("GOBBLIN_SOAK_MINUTES", "10"))
    played = play_together(SEEDS, until=started + seconds / 2)
    single, double = Tally(), Tally()
    for number, store in enumerate(("sqlite", "local")):
        crash(tmp_path / store, store, started + seconds * (3 + number) / 4, single, double)
    with capsys.disabled():
        print(
            f"\nsoak: {played.histories} random histories ({played.calls} calls), {single.trials} crash points and "
            f"{double.trials - double.missed} crashes during recoveries, in {time.time() - started:.0f} s: "
            f"{len(played.broken + single.broken + double.broken)} broke a promise"
        )
    broken = played.broken + single.broken + double.broken
    assert not broken, "\n\n".join(broken[:5])


def crash(folder: Path, store: str, until: float, single: Tally, double: Tally) -> None:
    """All points, and then, in a random order, second faults at all calls of the recoveries from them."""
    folder.mkdir()
    chance = random.Random(store)
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
