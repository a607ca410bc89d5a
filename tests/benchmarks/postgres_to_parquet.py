"""PostgreSQL to Parquet, planning to commit: our two Spark tasks against a bare loop, DuckDB, dlt with connectorx, Spark's JDBC.

Spark is started before, and a few rows were loaded in its session (see `contenders/gobblin`); so they were in DuckDB's, and all
native libraries of ADBC and DuckDB are loaded before. Our figures include planning and commit. All have their files on disk at
the end: ours are when they are published, and those of the others are synced, which is reported as a phase of its own. Each
removes the former's files just before it reads rows, so that all find memory that was freed just now (`contenders/reporting`).

python -m tests.benchmarks.postgres_to_parquet --rounds 3
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.measure import Contender, alternately, program
from tests.benchmarks.peers import FOLDER, VERSIONS, jars, peers_python
from tests.benchmarks.results import Limit, Row, Target, measure_and_keep, rows_of
from tests.benchmarks.workload import COLUMNS, TABLE, add_orders, orders_database

OURS = "airflow_gobblin, Spark tasks in local[2]"
BARE = "bare ADBC loop, one stream, snappy"
DUCKDB = "DuckDB's scanner, 2 threads, zstd at our level"
DLT = "dlt with connectorx, 1 partition"
DLT_SPLIT = "dlt with connectorx, 2 partitions"
"""As many as we have tasks."""
JDBC = "org.postgresql:postgresql:42.7.8"
PARTITIONS = (2, 4)
LARGER = 2
"""How many times as many rows a second table has, to show that memory doesn't grow, and what a row costs apart from a run."""
TASK_MB = 300


def contenders(url: str, rows: int) -> list[Contender]:
    """All contenders."""
    mine, peers = Path(sys.executable), peers_python()
    jdbc = ",".join(map(str, jars(JDBC)))

    dlt = partial(program, python=peers, name="dlt_connectorx", url=url, table=TABLE, key="id")
    spark = partial(program, python=mine, name="spark_jdbc", url=url, table=TABLE, key="id", last=rows, jars=jdbc)
    ours = partial(program, python=mine, name="gobblin", url=url, table=TABLE, key="updated_at")
    bare = partial(program, python=mine, name="adbc_loop", url=url, query=f"SELECT * FROM {TABLE}")
    return [
        ours(OURS),
        ours("the same tasks in two processes, without Spark", spark="no"),
        bare(BARE),
        bare("bare ADBC loop, one stream, zstd", compression="zstd"),
        program(DUCKDB, python=peers, name="duckdb_copy", url=url, table=TABLE),
        dlt(DLT),
        dlt(DLT_SPLIT, partitions=2),
        *(spark(_spark_name(n), partitions=n) for n in PARTITIONS),
    ]


def measure(rounds: int, rows: int) -> list[Row]:
    """The rows of this work."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        orders_database(Path(folder) / "postgres", rows) as (_, url),
    ):
        figures = alternately(contenders(url, rows), rounds, Path(folder) / "rounds", former=True)
        add_orders(url, rows + 1, LARGER * rows)
        ours = program(_larger(rows), Path(sys.executable), "gobblin", url, table=TABLE, key="updated_at")
        peer = program(DUCKDB, python=peers_python(), name="duckdb_copy", url=url, table=TABLE)
        larger = alternately([ours, peer], rounds, Path(folder) / "larger", former=True)
    command = f"python -m tests.benchmarks.postgres_to_parquet --rounds {rounds} --rows {rows}"
    best = min((f for f in figures if f.who in map(_spark_name, PARTITIONS)), key=lambda f: f.median).who
    return [
        *rows_of(
            f"PostgreSQL to Parquet, {rows:,} rows of {COLUMNS} columns, planning to commit",
            figures,
            command,
            ours=OURS,
            targets=[Target(BARE, round(1 / 1.3, 2)), Target(DUCKDB, 1), Target(DLT_SPLIT, 1.3), Target(best, 2)],
            limits=[Limit(OURS, "task_mb", TASK_MB)],
            versions={**VERSIONS, "PostgreSQL JDBC": JDBC.rpartition(":")[2]},
        ),
        *rows_of(
            f"PostgreSQL to Parquet, {LARGER * rows:,} rows of {COLUMNS} columns, planning to commit",
            larger,
            command,
            ours=_larger(rows),
            limits=[Limit(_larger(rows), "task_mb", TASK_MB)],
        ),
    ]


def _larger(rows: int) -> str:
    return f"{OURS}, {LARGER * rows:,} rows"


def _spark_name(partitions: int) -> str:
    return f"Spark JDBC read and Parquet write, {partitions} partition{'s' * (partitions > 1)}"


def main(words: Sequence[str] | None = None) -> None:
    measure_and_keep(__doc__, measure, words)


if __name__ == "__main__":
    main()
