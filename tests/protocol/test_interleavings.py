"""Every interleaving of two attempts within a bound. `interleavings` describes what is tried."""

from __future__ import annotations

import pytest

from tests.proofs import Proved, chosen_by, expect_none_broken, fresh_seed, some_and_whole
from tests.protocol.interleavings import BOUNDS, explore, explore_part
from tests.tables.test_mutants import (
    Mutate,
    commit_on_another_handle,
    fence_without_a_new_head,
    retry_of_the_library,
    undo_of_a_standing_commit,
)

FLOOR = 30_000
TABLES_CATCH: tuple[tuple[Mutate, str], ...] = (
    (retry_of_the_library, "table: one plan, twice"),
    (commit_on_another_handle, "table: one plan, twice"),
    (fence_without_a_new_head, "table: executed and abandoned"),
    (undo_of_a_standing_commit, "table: executed and abandoned"),
)
"""Faults of a format or of the step that commits to it, and the scenarios that catch them."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("share", "of_scenarios"), some_and_whole((30, 3), (1, 1)))
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
    expect_none_broken(tally.broken)
    assert tally.played >= FLOOR // (share * of_scenarios)
    assert min(tally.cases.values()) >= (250 if share == 1 else 100 // share)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("mutate", "scenarios"), TABLES_CATCH, ids=lambda one: getattr(one, "__name__", ""))
def test_a_fault_of_a_table_is_caught(mutate: Mutate, scenarios: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the unchanged product passes the same scenarios."""
    assert not explore_part(0, scenarios).broken
    mutate(monkeypatch)
    assert explore_part(0, scenarios).broken
