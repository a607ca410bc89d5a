"""Random histories on the memory store. A history that breaks a promise is told with the command that plays it again."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.protocol.histories import play, play_together

SEEDS = range(400)


@pytest.mark.timeout(1200)
def test_random_histories_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    tally = play_together(SEEDS)
    with capsys.disabled():
        seconds = time.monotonic() - started
        print(f"\nhistories: {tally.histories} played, {tally.calls} calls of stores and files, in {seconds:.0f} s")
    assert not tally.broken, "\n\n".join(tally.broken[:3])
    assert tally.histories == len(SEEDS)
    assert tally.calls > 1000 * len(SEEDS)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_says_everything(seed: int) -> None:
    first = play(seed)
    assert play(seed).digest.hexdigest() == first.digest.hexdigest()
    again = subprocess.run(
        [sys.executable, "-m", "tests.protocol.histories", str(seed)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert again.stdout.endswith(f"history {seed}: {first.calls} calls, digest {first.digest.hexdigest()}\n")


def test_seeds_differ() -> None:
    assert len({play(seed).digest.hexdigest() for seed in range(5)}) == 5
