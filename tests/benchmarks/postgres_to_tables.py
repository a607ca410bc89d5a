"""PostgreSQL to tables, planning to commit: against our own run to Parquet, dlt's destinations, and Spark's JDBC and writers.

Spark is started before, and modules of ours are loaded, pyiceberg and deltalake too. All have their rows in the table at the
end, and their files on the disk.

python -m tests.benchmarks.postgres_to_tables --rounds 3
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.measure import Contender, Once, alternately, program, reported
from tests.benchmarks.peers import FOLDER, VERSIONS, jars, peers_python
from tests.benchmarks.results import Row, Target, measure_kinds_and_keep, rows_of
from tests.benchmarks.workload import COLUMNS, TABLE, orders_database
from tests.services.postgres import Postgres

OURS = "airflow_gobblin, Spark tasks in local[2]"
PARQUET = "airflow_gobblin to Parquet, Spark tasks in local[2]"
DLT = "dlt with connectorx, 2 partitions"
SPARK = "Spark JDBC read and the format's writer, 4 partitions"
JDBC = "org.postgresql:postgresql:42.7.8"
WRITERS = {
    "delta": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
NAMES = {"delta": "a Delta table", "iceberg": "an Iceberg table", "postgres": "a table of PostgreSQL"}


def contenders(kind: str, url: str, rows: int, server: Postgres) -> list[Contender]:
    """All contenders for a kind of table."""
    mine, peers = Path(sys.executable), peers_python()
    ours = partial(program, python=mine, name="gobblin", url=url, table=TABLE, key="updated_at")
    dlt = partial(program, python=peers, name="dlt_tables", url=url, table=TABLE, kind=kind)
    if kind == "postgres":
        return [
            _into_a_new_database(server, partial(ours, OURS, sink=kind)),
            _into_a_new_database(server, partial(dlt, DLT)),
        ]
    both = ",".join(map(str, jars(JDBC, WRITERS[kind])))
    spark = partial(program, python=mine, name="spark_tables", url=url, table=TABLE, key="id", last=rows, jars=both)
    return [
        ours(OURS, sink=kind),
        ours(PARQUET),
        reported(dlt(DLT)),
        reported(spark(SPARK, kind=kind)),
    ]


def _into_a_new_database(server: Postgres, make: partial[Contender]) -> Contender:
    """A contender that loads into a database of its own in each round."""

    def run(folder: Path) -> Once:
        return make(target=server.create_database(f"target_{secrets.token_hex(8)}")).run(folder)

    return Contender(make.args[0], run)


def measure(kind: str, rounds: int, rows: int) -> list[Row]:
    """The rows of a kind of table."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        orders_database(Path(folder) / "postgres", rows) as (server, url),
    ):
        figures = alternately(contenders(kind, url, rows, server), rounds, Path(folder) / "rounds")
    whose = {one.who for one in figures}
    return rows_of(
        f"PostgreSQL to {NAMES[kind]}, {rows:,} rows of {COLUMNS} columns, planning to commit",
        figures,
        f"python -m tests.benchmarks.postgres_to_tables --rounds {rounds} --rows {rows} --kinds {kind}",
        ours=OURS,
        targets=[Target(who, least) for who, least in ((PARQUET, 1 / 1.15), (DLT, 1), (SPARK, 1)) if who in whose],
        versions={**VERSIONS, **({kind: WRITERS[kind].rpartition(":")[2]} if kind in WRITERS else {})},
    )


def main(words: Sequence[str] | None = None) -> None:
    measure_kinds_and_keep(__doc__, measure, tuple(NAMES), words)


if __name__ == "__main__":
    main()
