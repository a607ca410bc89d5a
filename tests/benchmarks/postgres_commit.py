"""The commit of staged Parquet files to a table of PostgreSQL, and a plain COPY of the same files.

    python -m tests.benchmarks.postgres_commit --rows 2000000 --rounds 3

Both read the files by Arrow and send them by binary COPY through the same driver, in one transaction each; ours also numbers the
units of the rows, and takes and leaves the marks. The server waits for no disk, so that only the work is compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from adbc_driver_postgresql import dbapi

from airflow_gobblin.model.table import DataFile
from tests.benchmarks.contenders.reporting import DATABASE
from tests.benchmarks.measure import Contender, Once, alternately, run_program
from tests.benchmarks.results import JSON, Target, keep, rows_of
from tests.benchmarks.workload import TABLE, orders_database
from tests.services.environment import use_environment

OURS = "airflow_gobblin: the commit to a table of PostgreSQL"
COPY = "COPY of the same files by ADBC"
_FILES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args()
    use_environment()
    with tempfile.TemporaryDirectory() as folder, orders_database(Path(folder) / "server", asked.rows) as (_, url):
        staged = Path(folder) / "staged"
        staged.mkdir()
        _stage(url, staged, asked.rows)
        numbers = itertools.count()

        def contender(who: str, way: str) -> Contender:
            def run(own: Path) -> Once:
                named = {"folder": own, "staged": staged, "way": way, "table": f"target_{next(numbers)}"}
                return run_program(Path(sys.executable), "postgres_commit", named, secrets={DATABASE: url})

            return Contender(who, run)

        figures = alternately([contender(OURS, "ours"), contender(COPY, "copy")], asked.rounds, Path(folder) / "rounds")
    command = f"python -m tests.benchmarks.postgres_commit --rows {asked.rows} --rounds {asked.rounds}"
    work = f"Commit {asked.rows:,} staged rows of 12 columns, in {_FILES} files, to a table of PostgreSQL"
    keep(rows_of(work, figures, command, ours=OURS, targets=[Target(COPY, 1 / 1.3)]), asked.results)


def _stage(url: str, staged: Path, rows: int) -> None:
    """Write the orders as a unit's data files each, with their prices as decimals."""
    files = []
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        for number in range(_FILES):
            low, high = number * rows // _FILES, (number + 1) * rows // _FILES
            cursor.execute(f"SELECT * FROM {TABLE} WHERE id > {low} AND id <= {high} ORDER BY id")
            table = cursor.fetch_arrow_table()
            price = table.schema.get_field_index("price")
            texts = pa.chunked_array([chunk.storage for chunk in table.column(price).chunks], pa.string())
            table = table.set_column(price, "price", texts.cast(pa.decimal128(12, 2)))
            path = staged / f"{number}.parquet"
            pq.write_table(table, path, compression="zstd")
            files.append(DataFile(path.name, path.stat().st_size, table.num_rows, f"u{number}"))
    (staged / "files.json").write_text(json.dumps([asdict(file) for file in files]))


if __name__ == "__main__":
    main()
