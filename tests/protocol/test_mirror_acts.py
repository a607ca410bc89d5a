"""The acts of mirrors in every order of their calls. `mirror_acts` describes what is tried."""

from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.proofs import Proved, fresh_seed, one_in, sampled
from tests.protocol.mirror_acts import (
    MUTANTS,
    Scenario,
    at_random,
    explore,
    first_broken,
    missed,
    mutated,
    on_disk,
    scenarios,
)
from tests.protocol.orders import Tally

WORKERS = 2
SCENARIOS = [*scenarios()]


def _explored(number: int, changes: int) -> Tally:
    return explore(SCENARIOS[number], changes)


@pytest.mark.other_size
def test_every_order_of_the_calls_of_some_processes(proved: Proved) -> None:
    """With one change everywhere, and with two in one scenario of six."""
    seed = fresh_seed()
    further = sampled(range(len(SCENARIOS)), 6, seed)
    changes = [2 if number in further else 1 for number in range(len(SCENARIOS))]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        tallies = [*pool.map(_explored, range(len(SCENARIOS)), changes)]
    broken = [tally.broken for tally in tallies if tally.broken]
    orders, states = sum(tally.orders for tally in tallies), sum(tally.states for tally in tallies)
    proved(
        "acts of mirrors: orders of the calls of executors, abandons and outsiders",
        f"{orders:,} orders through {states:,} states, each also with the death of all; {len(broken)} broke a promise",
        f"with one or two changes, seed {seed}",
        details=[f"{of.name}: {tally.states:,} states" for of, tally in zip(SCENARIOS, tallies, strict=True)],
    )
    assert not broken, "\n".join(broken)
    assert min(tally.states for tally in tallies) > 300


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_order_without_a_bound(scenario: Scenario, proved: Proved) -> None:
    tally = explore(scenario)
    proved(
        f"acts of mirrors, {scenario.name}",
        f"{tally.orders:,} orders of the calls through {tally.states:,} states, each also with the death of all; "
        f"{int(bool(tally.broken))} broke a promise",
        "all",
    )
    assert not tally.broken, tally.broken
    assert tally.states > 300


@one_in(4)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_orders_catch_every_mutant(mutant: str) -> None:
    scenarios_of, _ = MUTANTS[mutant]
    with mutated(mutant):
        assert first_broken(scenarios_of, 2)


@pytest.mark.parametrize(
    "name", ["replace, kept: executor, abandon, outsider", "delete by links: executor, abandon, outsider"]
)
def test_orders_that_are_played_lead_to_states_that_were_explored(name: str) -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    seed = fresh_seed()
    print(f"seed {seed}")
    assert not missed(scenario, 50, random.Random(seed))


@one_in(3)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_orders_by_chance_on_a_real_disk(scenario: Scenario, tmp_path: Path) -> None:
    seed = fresh_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    broken = [at_random(scenario, on_disk(scenario, tmp_path / str(number)), chance) for number in range(25)]
    assert not any(broken), "\n".join(filter(None, broken))
