"""What the long proofs tried, reported as they run, and kept on a page: `make proofs` writes `tests/benchmarks/proofs.md`."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.benchmarks.results import lines, machine

T = TypeVar("T")

PAGE = "GOBBLIN_PROOFS"
"""The environment variable that names the page's JSON file; without it nothing is kept."""
_FRESH = range(1_000_000, 1_000_000_000)
"""The range of fresh seeds: beyond those that are played each time."""


def fresh_seed() -> int:
    """A seed that was hardly ever used before; print it, so that its results can be reproduced."""
    return random.SystemRandom().choice(_FRESH)


def sampled(cases: Sequence[T], share: int, seed: int) -> list[T]:
    """One case in `share`, in their order: all of them for a share of one."""
    if share == 1:
        return [*cases]
    chosen = random.Random(seed).sample(range(len(cases)), -(-len(cases) // share))
    return [cases[n] for n in sorted(chosen)]


def shares(share: int) -> pytest.MarkDecorator:
    """Give a test its `share` for `sampled`: `make test` tries one case in so many, `make proofs` all of them."""
    shares = [pytest.param(share, id="some"), pytest.param(1, id="whole", marks=pytest.mark.soak)]
    return pytest.mark.parametrize("share", shares)


def chosen_by(share: int, seed: int) -> str:
    """How `sampled` chose, for the page."""
    return "all" if share == 1 else f"one in {share}, seed {seed}"


class Proved(Protocol):
    """Report what a proof tried."""

    def __call__(self, what: str, figures: str, seeds: str, *, details: Sequence[str] = ()) -> None:
        """:param figures: how much was tried, and how much of it broke a promise. :param details: for the reader of the log."""


@dataclass(frozen=True)
class Proof:
    """A line of the page. :param seeds: of chance, or how the cases are chosen without any."""

    what: str
    figures: str
    seeds: str
    seconds: float
    command: str
    date: str
    machine: str


def proof_of(what: str, figures: str, seeds: str, seconds: float, test: str) -> Proof:
    """:param test: pytest's id of it."""
    soak = (
        ""
        if os.environ.get("GOBBLIN_SOAK_MINUTES") is None
        else "GOBBLIN_SOAK_MINUTES=" + os.environ["GOBBLIN_SOAK_MINUTES"] + " "
    )
    command = f"{soak}.venv/bin/python -m pytest -m 'soak or not soak' --timeout=0 '{test}'"
    return Proof(what, figures, seeds, round(seconds, 1), command, datetime.now(UTC).date().isoformat(), machine())


def keep(proof: Proof, path: Path) -> None:
    """Replace a proof of the same command, and write the page beside the file."""
    known = [Proof(**found) for found in json.loads(path.read_text())] if path.exists() else []
    proofs = sorted([*(p for p in known if p.command != proof.command), proof], key=lambda p: p.command)
    path.write_text(json.dumps([asdict(p) for p in proofs], indent=1) + "\n")
    path.with_suffix(".md").write_text(_page(proofs))


def _page(proofs: Sequence[Proof]) -> str:
    table = [("what was tried", "figures", "seeds", "seconds", "date", "command")]
    table += [(p.what, p.figures, p.seeds, f"{p.seconds:g}", p.date, f"`{p.command}`") for p in proofs]
    head = (
        "# Proofs\n\nWhat the proofs of exactly-once tried, and what became of it: written by `make proofs`. The promises\n"
        f"that are checked after each case are in the README. Machine: {', '.join(sorted({p.machine for p in proofs}))}.\n"
    )
    return f"{head}\n{lines(table)}"
