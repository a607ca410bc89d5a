"""Every interleaving of two attempts within a bound. `interleavings` describes what is tried."""

from __future__ import annotations

import pytest

from tests.proofs import Proved, chosen_by, fresh_seed, some_and_whole
from tests.protocol.interleavings import BOUNDS, explore

FLOOR = 30_000


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("share", "of_scenarios"), some_and_whole((10, 3), (1, 1)))
def test_every_interleaving_of_two_attempts(share: int, of_scenarios: int, proved: Proved) -> None:
    """:param of_scenarios: one in so many is played, with one in `share` of its cases."""
    seed = fresh_seed()
    tally = explore(share, of_scenarios, seed)
    bounds = " and ".join(f"at most {b.switches} changes{', one crash' if b.crash else ''}" for b in BOUNDS)
    proved(
        "interleavings of two attempts",
        f"{tally.played:,}, with {tally.calls:,} calls and {tally.crashes:,} crashes; {tally.states:,} end states "
        f"recovered; {len(tally.broken)} broke a promise",
        f"{chosen_by(share, seed)} ({len(tally.cases)} scenarios), with {bounds}",
        details=[f"{name}: {number:,}" for name, number in tally.cases.items()],
    )
    assert not tally.broken, f"{len(tally.broken)} are broken:\n" + "\n\n".join(tally.broken[:3])
    assert tally.played >= FLOOR // (share * of_scenarios)
    assert min(tally.cases.values()) >= (250 if share == 1 else 10)
