"""Every interleaving of two attempts within a bound. What is tried is told in `interleavings`."""

from __future__ import annotations

import time

import pytest

from tests.protocol.interleavings import BOUNDS, explore

FLOOR = 20_000


@pytest.mark.timeout(1200)
def test_every_interleaving_of_two_attempts(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    tally = explore()
    with capsys.disabled():
        bounds = " and ".join(f"at most {b.switches} changes{', one crash' if b.crash else ''}" for b in BOUNDS)
        print(
            f"\ninterleavings of two attempts, all with {bounds}: {tally.played:,}, with {tally.calls:,} calls and "
            f"{tally.crashes:,} crashes; {tally.states:,} end states recovered; in {time.monotonic() - started:.0f} s"
        )
        for name, number in tally.cases.items():
            print(f"  {name}: {number:,}")
    assert not tally.broken, f"{len(tally.broken)} are broken:\n" + "\n\n".join(tally.broken[:3])
    assert tally.played >= FLOOR
    assert min(tally.cases.values()) >= 250
