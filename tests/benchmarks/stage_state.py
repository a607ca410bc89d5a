"""State of a stage: a version that touches one key in a hundred, against Spark's own stateful aggregation of the same rows.

    python -m tests.benchmarks.stage_state --rounds 3

Both keep totals by key, and start a Spark for each version. Before the rounds, a first version has given every key a total. The
size of the state that each keeps is told at the end: ours is that of two versions, each written whole.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.benchmarks.measure import Contender, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import JSON, Limit, Row, Target, keep, rows_of
from tests.services.environment import use_environment

OURS = "airflow_gobblin, a stage with state"
SPARK = "Spark's stateful aggregation, RocksDB with changelog checkpoints"
MOST_MB = 2048


def measure(rounds: int, keys: int) -> list[Row]:
    """The rows of this work."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        contenders = [
            Contender(who, _versions(name, Path(folder, name), keys))
            for who, name in ((OURS, "stage_state"), (SPARK, "spark_state"))
        ]
        figures = alternately(contenders, rounds, Path(folder) / "rounds")
        for who, place in ((OURS, "stage_state/lake/totals/_state"), (SPARK, "spark_state/checkpoint/state")):
            size = sum(path.stat().st_size for path in Path(folder, place).rglob("*") if path.is_file())
            print(f"  {size / 1e6:,.1f} MB of state: {who}", flush=True)
    return rows_of(
        f"A version of a stage with state: {keys:,} keys, 1 % of them touched, from a cold start",
        figures,
        f"python -m tests.benchmarks.stage_state --rounds {rounds} --keys {keys}",
        ours=OURS,
        targets=[Target(SPARK, 0.5)],
        limits=[Limit(OURS, "peak_mb", MOST_MB)],
    )


def _versions(name: str, folder: Path, keys: int) -> Callable[[Path], Once]:
    """Make the version with all keys. :return: makes the next version, with that folder, whichever it is given."""
    folder.mkdir()
    numbers = count()

    def run(_: Path) -> Once:
        arguments = {"folder": folder, "version": next(numbers), "keys": keys}
        return run_program(Path(sys.executable), name, arguments, secrets={})

    run(folder)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args()
    use_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    keep(measure(asked.rounds, asked.keys), asked.results)


if __name__ == "__main__":
    main()
