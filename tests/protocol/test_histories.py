"""Random histories on stores in memory. A history that breaks a promise is reported with the command that plays it again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.proofs import Proved, expect_none_broken, fresh_seed, some_and_whole
from tests.protocol.histories import FULL, SHORT, Mix, play, play_together


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("known", "fresh", "mix", "calls"),
    [
        *some_and_whole((20, 20, FULL, 800), (1_000, 1_000, FULL, 800), "full"),
        *some_and_whole((150, 350, SHORT, 100), (10_000, 10_000, SHORT, 100), "short"),
    ],
)
def test_random_histories_keep_every_promise(known: int, fresh: int, mix: Mix, calls: int, proved: Proved) -> None:
    """:param known: how many have seeds that are always the same.
    :param fresh: how many have seeds that hardly ever were used.
    :param calls: how many a history makes, at the least, on average.
    """
    first = fresh_seed()
    seeds = [*range(known), *range(first, first + fresh)]
    tally = play_together(seeds, mix)
    proved(
        f"random histories, {'short' if mix.small else 'full'}",
        f"{tally}; {len(tally.broken)} broke a promise",
        f"seeds 0 to {known - 1}, and {first} to {seeds[-1]}",
    )
    expect_none_broken(tally.broken)
    assert tally.histories == len(seeds)
    assert tally.calls > calls * len(seeds)
    assert tally.crashes > len(seeds) // 4


@pytest.mark.parametrize(("seed", "options"), [(1, ()), (2, ()), (3, ("--short",)), (4, ("--short",))])
def test_a_seed_determines_everything(seed: int, options: tuple[str, ...]) -> None:
    mix = SHORT if options else FULL
    first = play(seed, mix)
    assert play(seed, mix).digest.hexdigest() == first.digest.hexdigest()
    again = subprocess.run(
        [sys.executable, "-m", "tests.protocol.histories", str(seed), *options],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert again.stdout.endswith(f"history {seed}: {first.calls} calls, digest {first.digest.hexdigest()}\n")


@pytest.mark.parametrize("mix", [FULL, SHORT], ids=["full", "short"])
def test_seeds_differ(mix: Mix) -> None:
    """Also those that begin in the same way."""
    seeds = range(0, 2000, 400)
    assert len({play(seed, mix).digest.hexdigest() for seed in seeds}) == len(seeds)
