"""The merge of 1 % into a large table, compared with the library's own merge or upsert of the same files from a script.

Delta's is deltalake's MERGE in both cases, and PostgreSQL's `INSERT … ON CONFLICT`: ours also looks for rows that nothing
distinguishes, and takes and leaves the marks. Iceberg's is pyiceberg's upsert, and copy on write of our own.

python -m tests.benchmarks.table_merges --rounds 3
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.measure import alternately, program, reported
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import Row, Target, measure_kinds_and_keep, rows_of
from tests.services.postgres import running_postgres

OURS = "airflow_gobblin's merge"
LIBRARIES = {
    "delta": ("deltalake's MERGE", {"deltalake": version("deltalake")}),
    "iceberg": ("pyiceberg's upsert", {"pyiceberg": version("pyiceberg")}),
    "postgres": ("COPY into a temporary table, and INSERT … ON CONFLICT", {}),
}
NAMES = {"delta": "a Delta table", "iceberg": "an Iceberg table", "postgres": "a table of PostgreSQL"}
SHARE = 100
"""Every so many-th row has a new version."""


def measure(kind: str, rounds: int, rows: int) -> list[Row]:
    """The rows of a kind of table."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    library, versions = LIBRARIES[kind]
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, running_postgres(Path(folder)) as server:
        url = server.create_database(f"{kind}_merges")
        ours, peer = (
            program(who, Path(sys.executable), "table_merge", url, kind=kind, way=way, rows=rows, share=SHARE)
            for who, way in ((OURS, "ours"), (library, "library"))
        )
        figures = alternately([ours, reported(peer)], rounds, Path(folder) / "rounds")
    return rows_of(
        f"Merge {-(-rows // SHARE):,} rows into {NAMES[kind]} of {rows:,}",
        figures,
        f"python -m tests.benchmarks.table_merges --rounds {rounds} --rows {rows} --kinds {kind}",
        ours=OURS,
        targets=[Target(library, 1)],
        versions=versions,
    )


def main(words: Sequence[str] | None = None) -> None:
    measure_kinds_and_keep(__doc__, measure, tuple(NAMES), words, rows=10_000_000)


if __name__ == "__main__":
    main()
