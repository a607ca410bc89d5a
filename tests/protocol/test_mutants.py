"""Deliberate faults in the protocol: each must be caught, or the histories and the crash matrix prove nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import pytest

from tests.faults import POWER
from tests.proofs import Proved, chosen_by, fresh_seed, one_in, sampled, shares
from tests.protocol import interleavings, matrix
from tests.protocol.absences import absences
from tests.protocol.acts import Fences
from tests.protocol.histories import WORKERS, first_broken
from tests.protocol.matrix import Pool, Trial
from tests.protocol.mutants import (
    ABSENCES_CATCH,
    HISTORIES_CATCH,
    INTERLEAVINGS_CATCH,
    MATRIX_CATCHES,
    MATRIX_CATCHES_BY_TWO_FAULTS,
    MATRIX_CATCHES_WITH_ACTS,
    mutated,
)

T = TypeVar("T")
SEEDS = range(1000)
POINTS = 60


@pytest.mark.timeout(1200)
@shares(20)
def test_histories_catch_every_mutant(share: int, proved: Proved) -> None:
    """And the unchanged product passes the same history."""
    seed = fresh_seed()
    names = [make.__name__ for make in sampled(HISTORIES_CATCH, share, seed)]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        found = dict(zip(names, pool.map(first_broken, names, [SEEDS] * len(names)), strict=True))
    caught = {name: broken for name, broken in found.items() if broken is not None}
    proved(
        "mutants of the protocol, by random histories",
        f"{len(caught)} of {len(found)} caught, the rarest by history {max(seed for seed, _ in caught.values())}",
        f"mutants: {chosen_by(share, seed)}; histories: seeds {SEEDS.start} to {SEEDS.stop - 1}",
        details=[
            f"{name}: {'NOT CAUGHT' if broken is None else f'history {broken[0]}: {broken[1][:110]!r}'}"
            for name, broken in found.items()
        ],
    )
    missed = [name for name, broken in found.items() if broken is None]
    assert not missed, f"no history of {SEEDS} catches {missed}"


@pytest.mark.parametrize(("make", "scenarios"), INTERLEAVINGS_CATCH)
def test_the_scenarios_of_the_interleavings_begin_with_each_fault(make: Callable[[], object], scenarios: str) -> None:
    """The scenarios that `make proofs` plays with the fault don't end before they begin."""
    begun: list[interleavings.Scenario] = []

    def none_of(found: list[interleavings.Scenario]) -> list[interleavings.Scenario]:
        begun.extend(found)
        return []

    with mutated(make.__name__):
        interleavings.explore_part(0, scenarios, choose=none_of)
    assert begun


@pytest.mark.soak
@pytest.mark.parametrize(("make", "scenarios"), INTERLEAVINGS_CATCH)
def test_the_interleavings_catch(make: Callable[[], object], scenarios: str, proved: Proved) -> None:
    """And the unchanged product passes the same scenarios."""
    found = interleavings.first_broken(make.__name__, scenarios)
    proved(
        f"mutant {make.__name__}, by interleavings",
        "NOT CAUGHT" if found is None else "caught",
        f"all of {scenarios}",
        details=[str(found)[:200]],
    )
    assert found is not None


@one_in(4)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("mutant", "finds"), [(make.__name__, finds) for make, finds in MATRIX_CATCHES])
def test_the_crash_matrix_catches(mutant: str, finds: str, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    """By power failures, which take what isn't durable."""
    pool = pool.with_mutant(mutant)
    start = pool.start(tmp_path, "local")
    trials = [Trial(point) for point in matrix.points(start.calls) if point.fault in POWER]
    tally = pool.run_until(finds, start, tmp_path, mixed(trials[:: len(trials) // POINTS]))
    expect_caught(mutant, finds, tally, proved)


@one_in(4)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("mutant", "finds"), [(make.__name__, finds) for make, finds in MATRIX_CATCHES_WITH_ACTS])
def test_the_crash_matrix_of_all_phases_catches(
    mutant: str, finds: str, pool: Pool, tmp_path: Path, proved: Proved
) -> None:
    """By power failures, too."""
    pool = pool.with_mutant(mutant)
    start = pool.start(tmp_path, "local", acts=Fences.MARK)
    trials = [Trial(point) for point in matrix.from_decision_to_outcome(start.calls) if point.fault in POWER]
    tally = pool.run_until(finds, start, tmp_path, mixed(trials))
    expect_caught(mutant, finds, tally, proved)


@one_in(4)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("mutant", "finds"), [(make.__name__, finds) for make, finds in MATRIX_CATCHES_BY_TWO_FAULTS])
def test_the_crash_matrix_catches_by_two_faults(
    mutant: str, finds: str, pool: Pool, tmp_path: Path, proved: Proved
) -> None:
    pool = pool.with_mutant(mutant)
    start = pool.start(tmp_path, "local")
    trials = matrix.dying_and_then_losing_power(pool, start, tmp_path)
    expect_caught(mutant, finds, pool.run_until(finds, start, tmp_path, mixed(trials)), proved)


@one_in(4)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("mutant", "finds"), [(make.__name__, finds) for make, finds in ABSENCES_CATCH])
def test_a_target_that_is_gone_catches(mutant: str, finds: str, pool: Pool, tmp_path: Path, proved: Proved) -> None:
    pool = pool.with_mutant(mutant)
    start = pool.start(tmp_path, "local")
    expect_caught(mutant, finds, pool.run_until(finds, start, tmp_path, mixed([*absences(start.calls)])), proved)


def mixed(cases: Sequence[T]) -> list[T]:
    """Some cases in an order in which the first few are from everywhere, always the same."""
    return random.Random(1).sample(cases, len(cases))


def expect_caught(mutant: str, finds: str, tally: matrix.Tally, proved: Proved) -> None:
    proved(
        f"mutant {mutant}, by the crash matrix",
        f"{len(tally.broken)} of the first {tally.trials} cases catch it",
        "evenly spread, in an order that is always the same",
    )
    assert tally.broken
    assert any(finds in broken for broken in tally.broken), tally.broken[0]
    assert not [broken for broken in tally.broken if " was recorded, there was now " in broken]
