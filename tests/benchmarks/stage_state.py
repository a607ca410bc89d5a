"""State of a stage: a version that touches one key in a hundred, against Spark's own stateful aggregation of the same rows.

    python -m tests.benchmarks.stage_state --rounds 3

Both keep totals by key, and start a Spark for each version. Before the rounds, a first version has given every key a total.
Beside the times it reports how large the files of state are that a version writes, and those that are kept after it: ours are
two versions'.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
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
            Contender(who, _versions(name, Path(folder, name), state, keys))
            for who, name, state in (
                (OURS, "stage_state", "lake/totals/_state"),
                (SPARK, "spark_state", "checkpoint/state"),
            )
        ]
        figures = alternately(contenders, rounds, Path(folder) / "rounds")
    return rows_of(
        f"A version of a stage with state: {keys:,} keys, 1 % of them touched, from a cold start",
        figures,
        f"python -m tests.benchmarks.stage_state --rounds {rounds} --keys {keys}",
        ours=OURS,
        targets=[Target(SPARK, 0.5)],
        limits=[Limit(OURS, "peak_mb", MOST_MB)],
    )


def _versions(name: str, folder: Path, state: str, keys: int) -> Callable[[Path], Once]:
    """Make the version with all keys.

    :param state: the folder of its state in that folder.
    :return: makes the next version, with that folder, whichever it is given.
    """
    folder.mkdir()
    numbers = count()

    def run(_: Path) -> Once:
        arguments = {"folder": folder, "version": next(numbers), "keys": keys}
        before = _files(folder / state)
        once = run_program(Path(sys.executable), name, arguments, secrets={})
        kept = _files(folder / state)
        written = kept.items() - before.items()
        sizes = {"state written": _bytes(written), "state kept": _bytes(kept.items())}
        return replace(once, sizes=sizes)

    run(folder)
    return run


_File = tuple[Path, tuple[int, int, int]]


def _files(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """The files in a folder, each with its inode, its time and its size."""
    found = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return {path: (of.st_ino, of.st_mtime_ns, of.st_size) for path, of in found}


def _bytes(files: Iterable[_File]) -> int:
    return sum(size for _, (_, _, size) in files)


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
