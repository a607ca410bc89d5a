"""The commit of many files to a Delta table on a disk, compared with deltalake's own write transaction of the same files.

Ours looks at the mark before, and reads it back after; the library's does neither, and would add the files again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.measure import Contender, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import JSON, Row, keep, rows_of
from tests.services.environment import use_environment

OURS = "airflow_gobblin's commit to a Delta table"
CLIENTS = {OURS: "ours", "deltalake's write transaction": "deltalake"}


def measure(rounds: int, files: int) -> list[Row]:
    """The rows of this work. :param files: how many, of 100 rows each."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:

        def contender(who: str, client: str) -> Contender:
            def run(own: Path) -> Once:
                return run_program(
                    Path(sys.executable), "delta_commit", {"folder": own, "client": client, "files": files}, secrets={}
                )

            return Contender(who, run)

        contenders = [contender(who, client) for who, client in CLIENTS.items()]
        figures = alternately(contenders, rounds, Path(folder) / "rounds")
    return rows_of(
        f"Delta table: commit {files:,} files",
        figures,
        f"python -m tests.benchmarks.delta_commit --rounds {rounds} --files {files}",
        ours=OURS,
        versions={"deltalake": version("deltalake")},
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    keep(measure(asked.rounds, asked.files), asked.results)


if __name__ == "__main__":
    main()
