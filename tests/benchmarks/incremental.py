"""One per cent of new rows from PostgreSQL to Parquet: planning, data and commit, with Spark started before.

python -m tests.benchmarks.incremental --rounds 3
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.benchmarks.measure import Contender, alternately, program
from tests.benchmarks.peers import FOLDER, VERSIONS, jars, peers_python
from tests.benchmarks.postgres_to_parquet import JDBC
from tests.benchmarks.results import Row, Target, measure_and_keep, rows_of
from tests.benchmarks.workload import TABLE, orders_database
from tests.services.spark_connect import running_spark_connect

OURS = "airflow_gobblin, Spark tasks in local[2]"
WARM = "airflow_gobblin, a warm session of Spark Connect"
DLT = "dlt with connectorx, 1 partition"
SPARK = "Spark JDBC read and Parquet write, 1 partition"
WARM_SPARK = f"{SPARK}, in a warm session of Spark Connect"
KEY = "updated_at"


def contenders(url: str, since: str, remote: str) -> list[Contender]:
    """All contenders.

    :param since: the greatest value of the key that was loaded before.
    :param remote: the URL of a Spark Connect server.
    """
    mine = Path(sys.executable)
    jdbc = ",".join(map(str, jars(JDBC)))
    what = {"url": url, "table": TABLE, "key": KEY, "since": since}
    return [
        program(OURS, mine, "gobblin", **what),
        program(WARM, mine, "gobblin", remote=remote, **what),
        program("the same tasks in two processes, without Spark", mine, "gobblin", spark="no", **what),
        program(DLT, peers_python(), "dlt_connectorx", **what),
        program(SPARK, mine, "spark_jdbc", jars=jdbc, **what),
        program(WARM_SPARK, mine, "spark_jdbc", remote=remote, **what),
    ]


def measure(rounds: int, rows: int) -> list[Row]:
    """The rows of this work.

    :param rows: of the table; the last hundredth of them is new.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        orders_database(Path(folder) / "postgres", rows) as (_, url),
        _warm_spark(Path(folder) / "connect") as remote,
    ):
        with psycopg.connect(url) as connection:
            query = f"SELECT {KEY}::text FROM {TABLE} WHERE id = %s"
            (since,) = connection.execute(query.encode(), [rows - rows // 100]).fetchone() or ("",)
        figures = alternately(contenders(url, since, remote), rounds, Path(folder) / "rounds")
    return rows_of(
        f"PostgreSQL to Parquet, the newest 1 % of {rows:,} rows",
        figures,
        f"python -m tests.benchmarks.incremental --rounds {rounds} --rows {rows}",
        ours=OURS,
        targets=[Target(DLT, 1), Target(SPARK, 1)],
        versions={**VERSIONS, "PostgreSQL JDBC": JDBC.rpartition(":")[2]},
    )


@contextmanager
def _warm_spark(folder: Path) -> Iterator[str]:
    folder.mkdir()
    with running_spark_connect(folder, {"spark.jars": ",".join(map(str, jars(JDBC)))}) as server:
        yield server.url


def main(words: Sequence[str] | None = None) -> None:
    measure_and_keep(__doc__, measure, words)


if __name__ == "__main__":
    main()
