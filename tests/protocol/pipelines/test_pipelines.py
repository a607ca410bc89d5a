"""Pipelines of stages on a model: random histories, and the faults that they catch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.proofs import Proved, chosen_by, expect_none_broken, fresh_seed, sampled, shares, some_and_whole
from tests.protocol.pipelines import reference
from tests.protocol.pipelines.histories import WORKERS, play, play_all, play_together
from tests.protocol.pipelines.library import first_broken_in_both, play_both
from tests.protocol.pipelines.mutants import MUTANTS

SEEDS = range(1_000)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("known", "fresh"), some_and_whole((4_000, 1_000), (80_000, 20_000)))
def test_random_histories_of_pipelines_keep_every_promise(known: int, fresh: int, proved: Proved) -> None:
    """:param known: how many have seeds that are always the same.
    :param fresh: the rest, whose seeds hardly ever were used.
    """
    first = fresh_seed()
    seeds = [*range(known), *range(first, first + fresh)]
    tally = play_together(play_all, seeds)
    proved(
        "random histories of pipelines, on a model",
        f"{tally}; {len(tally.broken)} broke a promise",
        f"seeds 0 to {known - 1}, and {first} to {seeds[-1]}",
    )
    expect_none_broken(tally.broken)
    assert tally.histories == len(seeds)
    assert tally.versions > 10 * len(seeds)
    assert tally.restores > len(seeds)
    assert tally.crashes > len(seeds)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("known", "fresh"),
    some_and_whole((60, 40), (8_000, 2_000)),
)
def test_the_librarys_rules_keep_them_too_and_do_the_same(known: int, fresh: int, proved: Proved) -> None:
    first = fresh_seed()
    seeds = [*range(known), *range(first, first + fresh)]
    tally = play_together(play_both, seeds)
    proved(
        "random histories of pipelines, by the library's rules",
        f"{tally}; {len(tally.broken)} broke a promise, or went otherwise than by the model's",
        f"seeds 0 to {known - 1}, and {first} to {seeds[-1]}",
    )
    expect_none_broken(tally.broken)
    assert tally.restores > len(seeds)


@pytest.mark.timeout(1200)
@shares(10)
def test_histories_of_pipelines_catch_every_mutant(share: int, proved: Proved) -> None:
    """In the model's rules and in the library's; unchanged, both pass the same history."""
    seed = fresh_seed()
    names = sampled([*MUTANTS], share, seed)
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        found = dict(zip(names, pool.map(first_broken_in_both, names, [SEEDS] * len(names)), strict=True))
    caught = {name: broken for name, broken in found.items() if broken is not None}
    proved(
        "mutants of the rules of pipelines, the model's and the library's, by random histories",
        f"{len(caught)} of {len(found)} caught in both, the rarest by history {max(seed for seed, *_ in caught.values())}",
        f"mutants: {chosen_by(share, seed)}; histories: seeds {SEEDS.start} to {SEEDS.stop - 1}",
        details=[
            f"{name}: {'NOT CAUGHT' if broken is None else f'history {broken[0]}: {broken[1][:110]!r}'}"
            for name, broken in found.items()
        ],
    )
    missed = [name for name, broken in found.items() if broken is None]
    assert not missed, f"no history of {SEEDS} catches {missed}"


def test_a_seed_determines_everything() -> None:
    again = subprocess.run(
        [sys.executable, "-m", "tests.protocol.pipelines.histories", "3"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    history = play(3)
    assert again.stdout.splitlines()[:-1] == history.log
    assert len({tuple(play(seed).log) for seed in range(20)}) == 20


def test_the_reference_imports_nothing_of_the_package_or_the_model() -> None:
    assert reference.__file__ is not None
    imports = [
        node for node in ast.walk(ast.parse(Path(reference.__file__).read_text())) if isinstance(node, ast.ImportFrom)
    ]
    assert {node.module for node in imports} == {"__future__", "collections.abc", "dataclasses"}
