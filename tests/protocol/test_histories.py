"""Random histories on stores in memory. A history that breaks a promise is reported with the command that plays it again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.proofs import Proved, fresh_seed
from tests.protocol.histories import FULL, SHORT, Mix, play, play_together

FULL_ONES = range(200)
MORE_FULL_ONES = range(400)
SHORT_ONES = range(2_500)
MORE_SHORT_ONES = range(20_000)
MANY_SHORT_ONES = range(100_000)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("seeds", "fresh", "mix", "calls"),
    [
        pytest.param(FULL_ONES, False, FULL, 800, id="full"),
        pytest.param(FULL_ONES, True, FULL, 800, id="full and fresh"),
        pytest.param(SHORT_ONES, False, SHORT, 100, id="short"),
        pytest.param(SHORT_ONES, True, SHORT, 100, id="short and fresh"),
        pytest.param(MORE_FULL_ONES, False, FULL, 800, id="more full", marks=pytest.mark.soak),
        pytest.param(MORE_SHORT_ONES, True, SHORT, 100, id="more fresh", marks=pytest.mark.soak),
        pytest.param(MANY_SHORT_ONES, False, SHORT, 100, id="many", marks=pytest.mark.soak),
    ],
)
def test_random_histories_keep_every_promise(seeds: range, fresh: bool, mix: Mix, calls: int, proved: Proved) -> None:
    """:param fresh: others instead, as many. :param calls: how many a history makes, at the least, on the average."""
    if fresh:
        first = fresh_seed()
        seeds = range(first, first + len(seeds))
    tally = play_together(seeds, mix)
    proved(
        f"random histories, {'short' if mix.small else 'full'}",
        f"{tally}; {len(tally.broken)} broke a promise",
        f"seeds {seeds.start} to {seeds.stop - 1}",
    )
    assert not tally.broken, f"{len(tally.broken)} are broken:\n" + "\n\n".join(tally.broken[:3])
    assert tally.histories == len(seeds)
    assert tally.calls > calls * len(seeds)
    assert tally.crashes > len(seeds) // 4


@pytest.mark.parametrize(("seed", "options"), [(1, ()), (2, ()), (3, ("--short",)), (4, ("--short",))])
def test_a_seed_says_everything(seed: int, options: tuple[str, ...]) -> None:
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
