"""What the long proofs tried, told to who runs them, and kept on a page: `make proofs` writes `tests/benchmarks/proofs.md`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from tests.benchmarks.results import lines, machine

PAGE = "GOBBLIN_PROOFS"
"""The environment variable that names the page's JSON file; without it nothing is kept."""


class Proved(Protocol):
    """Tells what a proof tried."""

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
    """Put a proof in the place of the one of the same command, and write the page beside the file."""
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
