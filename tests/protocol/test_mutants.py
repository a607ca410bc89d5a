"""Deliberate faults in the protocol: each must be caught, or the histories and the crash matrix prove nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.protocol import interleavings, matrix
from tests.protocol.histories import WORKERS, first_broken
from tests.protocol.matrix import Pool, Trial
from tests.protocol.mutants import HISTORIES_CATCH, INTERLEAVINGS_CATCH, MATRIX_CATCHES

SEEDS = range(1000)
POINTS = 60


@pytest.mark.timeout(1200)
def test_histories_catch_every_mutant(capsys: pytest.CaptureFixture[str]) -> None:
    """And the unchanged product passes the same history."""
    names = [make.__name__ for make in HISTORIES_CATCH]
    started = time.monotonic()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        found = dict(zip(names, pool.map(first_broken, names, [SEEDS] * len(names)), strict=True))
    with capsys.disabled():
        print(f"\nmutants: {len(names)} sought by histories, in {time.monotonic() - started:.0f} s")
        for name, broken in found.items():
            print(f"  {name}: {'NOT CAUGHT' if broken is None else f'history {broken[0]}: {broken[1][:110]!r}'}")
    missed = [name for name, broken in found.items() if broken is None]
    assert not missed, f"no history of {SEEDS} catches {missed}"


@pytest.mark.parametrize(("make", "scenarios"), INTERLEAVINGS_CATCH)
def test_the_interleavings_catch(
    make: Callable[[], object], scenarios: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the unchanged product passes the same scenarios."""
    found = interleavings.first_broken(make.__name__, scenarios)
    with capsys.disabled():
        print(f"\nmutant {make.__name__}: {'NOT CAUGHT' if found is None else found[:200]!r}")
    assert found is not None


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mutant", [make.__name__ for make in MATRIX_CATCHES])
def test_the_crash_matrix_catches(mutant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Pool(tmp_path, mutant) as pool:
        start = pool.start(tmp_path, "local")
        trials = [Trial(point) for point in matrix.points(start.calls)]
        tally = pool.run(start, tmp_path, trials[:: len(trials) // POINTS])
    with capsys.disabled():
        print(f"\nmutant {mutant}: {len(tally.broken)} of {tally.trials} points of the crash matrix catch it")
    assert tally.broken
    assert any(" is not as published" in broken for broken in tally.broken)
    assert not any(" was recorded, there was now " in broken for broken in tally.broken)
