"""From trigger to the end of the run, through a real Airflow: our DAG, one with a plain Spark submit, one without a journal.

    python -m tests.benchmarks.whole_run --rounds 3

Each round is a DAG of its own with a journal and a target of its own. The time between tasks is Airflow's, and the same for all;
the plain DAG has as many tasks as ours, five of which do nothing. Both load an increment in a warm Spark and in one that is
started for it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from airflow_gobblin.model import wire
from airflow_gobblin.spark.report import PackReport
from tests.benchmarks.contenders.gobblin import ingestion, load_from
from tests.benchmarks.contenders.parquet_rows import parquet_rows
from tests.benchmarks.contenders.reporting import DATABASE
from tests.benchmarks.measure import Contender, Once, alternately
from tests.benchmarks.peers import FOLDER, jars
from tests.benchmarks.postgres_to_parquet import JDBC
from tests.benchmarks.results import Row, Target, measure_and_keep, rows_of
from tests.benchmarks.workload import TABLE, orders_database
from tests.services.airflow import Airflow, running_airflow
from tests.services.environment import ROOT
from tests.services.spark_connect import running_spark_connect

OURS = "airflow_gobblin, spark-submit"
WARM = "airflow_gobblin, Spark Connect"
PLAIN = "a DAG of one plain Spark JDBC submit and five empty tasks"
PLAIN_WARM = "a DAG of one plain Spark JDBC job by Spark Connect and five empty tasks"
PARTITIONS = (2, 4)
"""Of the plain job over all rows; the better counts."""
NAIVE = "our DAG with plain files, and a watermark saved afterwards"
KEY = "updated_at"
DAG_FILE = """from airflow.sdk import DAG  # so that Airflow looks into this file
from tests.benchmarks.contenders import dags

dags.{kind}({arguments})
"""
PLANNING = ("verify_recover", "create_work_units")
COMMIT = ("write_commit_steps", "execute_commit_steps")


@dataclass(frozen=True)
class _Task:
    """A task instance: its name, without groups, and how long it ran."""

    name: str
    seconds: float
    ended: float


class Runs:
    """Runs of DAGs that are made for them."""

    def __init__(self, airflow: Airflow) -> None:
        self._airflow = airflow
        self._numbers = count()

    def run(self, kind: str, folder: Path, **arguments: object) -> tuple[float, list[_Task]]:
        """Make a DAG, and run it.

        :return: the seconds from its trigger to the end of its last task, and the tasks.
        """
        name = f"{kind}_{next(self._numbers)}"
        given = {"name": name, "folder": str(folder), **arguments}
        text = ", ".join(f"{key}={value!r}" for key, value in given.items())
        self._airflow.add_dag(f"{name}.py", DAG_FILE.format(kind=kind, arguments=text), name)
        started = time.time()
        run_id = self._airflow.trigger(name)
        state = self._airflow.wait_for_run(name, run_id, seconds=600)
        path = f"dags/{name}/dagRuns/{quote(run_id)}/taskInstances"
        found = self._airflow.request("GET", path, params={"limit": 100})["task_instances"]
        if state != "success":
            states = [(t["task_id"], t["state"]) for t in found]
            raise RuntimeError(f"{name} ended as {state}: {states}\n{self._airflow.tails()}")
        tasks = [_task(t) for t in found if t["start_date"]]
        return max(task.ended for task in tasks) - started, tasks


def _task(found: Mapping[str, Any]) -> _Task:
    started, ended = (datetime.fromisoformat(found[name]).timestamp() for name in ("start_date", "end_date"))
    return _Task(found["task_id"].rsplit(".", 1)[-1], ended - started, ended)


def _phases(seconds: float, tasks: Sequence[_Task], data: float) -> dict[str, float]:
    """:param data: the seconds of `extract` that read and wrote; the rest started Spark."""
    took = {task.name: task.seconds for task in tasks}
    planning, commit = (sum(took.get(name, 0.0) for name in names) for names in (PLANNING, COMMIT))
    other = sum(took.values()) - planning - commit - took["extract"]
    return {
        "Airflow scheduling": seconds - sum(took.values()),
        "planning": planning,
        "Spark start and stop": took["extract"] - data,
        "data": data,
        "commit": commit,
        "other tasks": other,
    }


def _ours(runs: Runs, spark: str, since: str | None = None) -> Callable[[Path], Once]:
    def run(folder: Path) -> Once:
        if since is not None:
            load_from(ingestion(str(folder), TABLE, KEY), TABLE, since)
        seconds, tasks = runs.run("gobblin", folder, table=TABLE, key=KEY, spark=spark)
        (path,) = folder.glob("target/_gobblin/*/r/*/reports/*")
        report = wire.loads(path.read_bytes(), PackReport, str(path))
        phases = _phases(seconds, tasks, report.seconds)
        return Once(seconds, phases, {"rows": parquet_rows(f"{folder}/target")})

    return run


def _job(runs: Runs, kind: str, **arguments: object) -> Callable[[Path], Once]:
    def run(folder: Path) -> Once:
        seconds, tasks = runs.run(kind, folder, table=TABLE, **arguments)
        data = json.loads((folder / "times.json").read_text())["data"]
        return Once(seconds, _phases(seconds, tasks, data), {"rows": parquet_rows(f"{folder}/target")})

    return run


@contextmanager
def _services(folder: Path, rows: int) -> Iterator[tuple[Runs, str, str]]:
    """A shop's database, a warm Spark, and an Airflow.

    :return: runs, the greatest key before the last hundredth of rows, and the URL of the warm Spark.
    """
    with ExitStack() as stack:
        for name in ("connect", "airflow"):
            (folder / name).mkdir()
        server, shop = stack.enter_context(orders_database(folder / "postgres", rows))
        with psycopg.connect(shop) as connection:
            query = f"SELECT {KEY}::text FROM {TABLE} WHERE id = %s"
            (since,) = connection.execute(query.encode(), [rows - rows // 100]).fetchone() or ("",)
        brought = {"spark.jars": ",".join(map(str, jars(JDBC)))}
        warm = stack.enter_context(running_spark_connect(folder / "connect", brought))
        metadata = server.create_database("airflow").replace("postgresql://", "postgresql+psycopg://")
        environment = {
            "AIRFLOW_CONN_SPARK_HERE": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "AIRFLOW_CONN_SPARK_WARM": warm.connection,
            "AIRFLOW_CONN_SHOP": shop,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata,
            DATABASE: shop,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        }
        airflow = stack.enter_context(running_airflow(folder / "airflow", environment))
        yield Runs(airflow), since, warm.url


def measure(rounds: int, rows: int) -> list[Row]:
    """The rows of these works.

    :param rows: of the table; the last hundredth of them is new where an increment is loaded.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    jdbc = ",".join(map(str, jars(JDBC)))
    command = f"python -m tests.benchmarks.whole_run --rounds {rounds} --rows {rows}"
    versions = {"PostgreSQL JDBC": JDBC.rpartition(":")[2]}
    with (
        tempfile.TemporaryDirectory(dir=FOLDER, ignore_cleanup_errors=True) as folder,
        _services(Path(folder), rows) as (runs, since, remote),
    ):
        warm, few = _ours(runs, "spark_warm", since), [f"--since={since}", f"--key={KEY}"]
        plain_warm = _job(runs, "plain_warm", key=KEY, since=since, remote=remote)
        for number, first in enumerate((warm, plain_warm)):  # the server is warm, and Airflow's workers have run tasks
            (Path(folder) / f"first-{number}").mkdir()
            first(Path(folder) / f"first-{number}")
        whole = alternately(
            [
                Contender(OURS, _ours(runs, "spark_here")),
                *(
                    Contender(
                        _plain(n), _job(runs, "plain", jars=jdbc, arguments=[f"--partitions={n}", f"--last={rows}"])
                    )
                    for n in PARTITIONS
                ),
                Contender(NAIVE, _job(runs, "naive", key=KEY)),
            ],
            rounds,
            Path(folder) / "whole",
        )
        increment = alternately(
            [
                Contender(WARM, warm),
                Contender(PLAIN_WARM, plain_warm),
                Contender(OURS, _ours(runs, "spark_here", since)),
                Contender(PLAIN, _job(runs, "plain", jars=jdbc, arguments=few)),
            ],
            rounds,
            Path(folder) / "increment",
        )
    best = min((f for f in whole if f.who in map(_plain, PARTITIONS)), key=lambda f: f.median).who
    return [
        *rows_of(
            f"The whole run through Airflow, {rows:,} rows, from trigger to the end",
            whole,
            command,
            ours=OURS,
            targets=[Target(best, 1), Target(NAIVE, round(1 / 1.05, 2))],
            versions=versions,
        ),
        *rows_of(
            f"The whole run through Airflow, the newest 1 % of {rows:,} rows, from trigger to the end",
            increment,
            command,
            ours=WARM,
            targets=[Target(PLAIN, 3)],
            versions=versions,
        ),
    ]


def _plain(partitions: int) -> str:
    return f"{PLAIN}, {partitions} partitions"


def main(words: Sequence[str] | None = None) -> None:
    measure_and_keep(__doc__, measure, words)


if __name__ == "__main__":
    main()
