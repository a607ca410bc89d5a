"""The commit of many files to a table on a disk, compared with the library's own of the same files.

Delta's is deltalake's write transaction, which is given all that is known of the files, as ours is; Iceberg's is pyiceberg's
`add_files`, which takes only their paths, and reads their footers. Ours looks at the mark before, and Delta's makes sure after
that its entry is part of the log; the libraries do neither, and would add the files again.

python -m tests.benchmarks.table_commits --rounds 15
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.measure import alternately, program
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import JSON, Row, Target, keep, rows_of
from tests.services.environment import use_environment

OURS = {"delta": "airflow_gobblin's commit to a Delta table", "iceberg": "airflow_gobblin's commit to an Iceberg table"}
PEERS = {"delta": ("deltalake", "deltalake's write transaction"), "iceberg": ("pyiceberg", "pyiceberg's add_files")}


def measure(rounds: int, files: int) -> list[Row]:
    """The rows of this work.

    :param files: how many, of 100 rows each.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = f"python -m tests.benchmarks.table_commits --rounds {rounds} --files {files}"
    found: list[Row] = []
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        for kind, (library, peer) in PEERS.items():
            contenders = [
                program(who, Path(sys.executable), "table_commit", "", kind=kind, client=client, files=files)
                for who, client in ((OURS[kind], "ours"), (peer, "library"))
            ]
            figures = alternately(contenders, rounds, Path(folder) / "rounds" / kind)
            found += rows_of(
                f"{kind.title()} table: commit {files:,} files",
                figures,
                command,
                ours=OURS[kind],
                targets=[Target(peer, 1 / 1.2)],
                versions={library: version(library)},
            )
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    keep(measure(asked.rounds, asked.files), asked.results)


if __name__ == "__main__":
    main()
