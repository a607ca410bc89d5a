"""A dataset with 10,000 slots: its chain folded before it is trimmed, trimmed, and folded after that; and at a quarter of that.

    python -m tests.benchmarks.long_journals --rounds 1

Every slot published a file that is still live, as in tables that only grow: the largest possible snapshot.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.trimming import KEPT, trim
from tests.benchmarks.contenders.reporting import Laps
from tests.benchmarks.journals import NAME, filled, urns
from tests.benchmarks.measure import Figures, Once
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import JSON, Limit, Row, keep, rows_of
from tests.services.environment import use_environment

STORES = ("local", "sqlite", "postgresql", "s3")
(URN,) = urns(1)


def once(kind: str, slots: int) -> Once:
    """The fold before, the trim and the fold after, each by a journal that was just opened."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, filled(kind, Path(folder) / kind, 1, slots) as (url, known):
        clock = Laps()
        history = Journal.create(url, NAME, known).history(URN)
        clock.lap("fold before trimming")
        assert trim(Journal.create(url, NAME, known), history)
        clock.lap("trim")
        journal = Journal.create(url, NAME, known)
        clock.lap("open")
        trimmed = journal.history(URN)
        after = clock.lap("fold after trimming")
        assert trimmed.state == history.state
        assert len(trimmed.slots) == KEPT
        return Once(after, clock.phases, {"slots": slots})


def measure(rounds: int, slots: int) -> list[Row]:
    """The rows of this work: the seconds are those of the fold after trimming, which should be few."""
    rows: list[Row] = []
    for kind in STORES:
        figures = [
            Figures(
                _who(number), tuple(once(kind, number) for _ in range(1 if kind == "s3" else rounds))
            )  # it takes minutes
            for number in (slots // 4, slots)
        ]
        rows += rows_of(
            f"The journal of a dataset with {slots:,} slots, {kind}",
            figures,
            f"python -m tests.benchmarks.long_journals --rounds {rounds} --slots {slots}",
            ours=_who(slots),
            limits=[Limit(_who(slots), "seconds", 1.0)],
        )
    return rows


def _who(slots: int) -> str:
    return f"airflow_gobblin, {slots:,} slots"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--slots", type=int, default=10_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    keep(measure(asked.rounds, asked.slots), asked.results)


if __name__ == "__main__":
    main()
