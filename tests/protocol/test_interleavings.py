"""Every interleaving of two attempts within a bound. `interleavings` describes what is tried."""

from __future__ import annotations

import pytest

from tests.proofs import SHARES, Proved, chosen_by, fresh_seed
from tests.protocol.interleavings import BOUNDS, explore

FLOOR = 30_000


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("share", SHARES)
def test_every_interleaving_of_two_attempts(share: int, proved: Proved) -> None:
    seed = fresh_seed()
    tally = explore(share, seed)
    bounds = " and ".join(f"at most {b.switches} changes{', one crash' if b.crash else ''}" for b in BOUNDS)
    proved(
        "interleavings of two attempts",
        f"{tally.played:,}, with {tally.calls:,} calls and {tally.crashes:,} crashes; {tally.states:,} end states "
        f"recovered; {len(tally.broken)} broke a promise",
        f"{chosen_by(share, seed)}, with {bounds}",
        details=[f"{name}: {number:,}" for name, number in tally.cases.items()],
    )
    assert not tally.broken, f"{len(tally.broken)} are broken:\n" + "\n\n".join(tally.broken[:3])
    assert tally.played >= FLOOR // share
    assert min(tally.cases.values()) >= (250 if share == 1 else 10)
