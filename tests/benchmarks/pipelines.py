"""Pipelines of stages: the cost of the guarantees beside the work, a small version through a real Airflow, and a long backlog.

    python -m tests.benchmarks.pipelines --rounds 3

The work is four stages over one large version, against the same functions in one Spark script with plain files; the figure to
reach is the share of CPU time that isn't Spark's. The small version goes through a warm Spark, from the source's run being due to
the end of the last stage's; it is compared with as many DAGs of six tasks, woken by each other, that open a session and do
nothing. The backlog is made by a stage without Spark, so that all of its time is the protocol's, and the disk's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow_gobblin.errors import NotFoundError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.benchmarks.contenders.flights import CHAIN
from tests.benchmarks.contenders.pipeline import PROTOCOL
from tests.benchmarks.measure import Contender, Figures, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import JSON, Limit, Row, Target, keep, rows_of
from tests.benchmarks.whole_run import DAG_FILE
from tests.services.airflow import Airflow, running_airflow
from tests.services.environment import ROOT, use_environment
from tests.services.postgres import running_postgres
from tests.services.spark_connect import running_spark_connect
from tests.stages.chains import backlog
from tests.stages.lines import LineStage

OURS = "airflow_gobblin, a pipeline"
SCRIPT = "the same functions in one Spark script, with plain files"
SHARE = "airflow_gobblin, the process that carries the tasks out"
WHOLE = "airflow_gobblin, all processes"
CHAINED = "DAGs of five empty tasks and one that opens a Spark Connect session, chained by assets"
JOBS = ("raw", *CHAIN)
SMALL = 1_000
PARTS = ("backlog", "work", "small")
MOST_SECONDS = 0.1
"""A stage's version, without Spark."""


# One large version


def measure_work(rounds: int, rows: int, command: str) -> list[Row]:
    """The rows of these works: the seconds of the second one are CPU time."""

    def contender(who: str, name: str) -> Contender:
        return Contender(who, lambda folder: _run(name, folder, rows))

    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        contenders = [contender(OURS, "pipeline"), contender(SCRIPT, "stage_script")]
        figures = alternately(contenders, rounds, Path(folder) / "work")
    ours, script = figures
    shares = [
        Figures(SHARE, tuple(Once(once.phases[PROTOCOL]) for once in ours.rounds)),
        *(
            Figures(who, tuple(Once(once.cpu or 0) for once in of.rounds))
            for who, of in ((WHOLE, ours), (SCRIPT, script))
        ),
    ]
    work = f"Four stages of a pipeline, a version of {rows:,} rows"
    return [
        *rows_of(work, [_without(ours, PROTOCOL), script], command, ours=OURS),
        *rows_of(f"{work}, CPU time", shares, command, ours=SHARE, targets=[Target(WHOLE, 20)]),
    ]


def _run(name: str, folder: Path, rows: int) -> Once:
    return run_program(Path(sys.executable), name, {"folder": folder, "rows": rows}, secrets={})


def _without(figures: Figures, phase: str) -> Figures:
    rounds = (
        replace(once, phases={name: seconds for name, seconds in once.phases.items() if name != phase})
        for once in figures.rounds
    )
    return Figures(figures.who, tuple(rounds))


# A small version, through Airflow


class Chains:
    """Chains of DAGs that are made for one run each."""

    def __init__(self, airflow: Airflow) -> None:
        self._airflow = airflow
        self._numbers = count()

    def run(self, kind: str, done: Callable[[Path], bool], folder: Path, **arguments: object) -> Once:
        """Make the DAGs, whose first run is due at once.

        :param done: whether the last one has done what it is for.
        :return: the seconds from then to the end of the last one's run that followed.
        """
        name = f"{kind}_{next(self._numbers)}"
        due = f"{datetime.now(UTC):%M %H} * * *"  # daily, and just now: stages run by time half a day later
        given = {"name": name, "folder": str(folder), "schedule": due, **arguments}
        text = ", ".join(f"{key}={value!r}" for key, value in given.items())
        dags = [f"{name}.{job}" for job in JOBS]
        self._airflow.add_dag(f"{name}.py", DAG_FILE.format(kind=kind, arguments=text), *dags)
        (first, *_), last = dags, dags[-1]
        self._airflow.wait_for(f"{last}", lambda: done(folder) or None, seconds=600, every=0.5)
        ended = self._airflow.wait_for(f"the end of {last}", partial(self._ended, last), seconds=120)
        started = min(_moment(run["queued_at"]) for run in self._runs(first))
        for dag in dags:
            self._airflow.request("PATCH", f"dags/{dag}", json={"is_paused": True})
        return Once(ended - started, facts={"DAGs": len(dags)})

    def succeeded(self, dag: str) -> bool:
        """Whether a run of a DAG has ended well."""
        return any(run["state"] == "success" for run in self._runs(dag))

    def _ended(self, dag: str) -> float | None:
        """When the run ended that did something: its tasks in the middle weren't skipped."""
        for run in self._runs(dag):
            path = f"dags/{dag}/dagRuns/{quote(run['dag_run_id'])}/taskInstances"
            tasks = self._airflow.request("GET", path, params={"limit": 100})["task_instances"]
            if run["state"] == "failed":
                raise RuntimeError(
                    f"{dag}: {[(task['task_id'], task['state']) for task in tasks]}\n{self._airflow.tails()}"
                )
            if run["state"] == "success" and all(task["state"] == "success" for task in tasks):
                return max(_moment(task["end_date"]) for task in tasks)
        return None

    def _runs(self, dag: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self._airflow.request("GET", f"dags/{dag}/dagRuns")["dag_runs"]
        return found


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _is_published(folder: Path) -> bool:
    with suppress(NotFoundError):
        return bool(Journal.open(f"{folder}/journal", CHAIN[-1]).state(CHAIN[-1]).versions)
    return False


@contextmanager
def _services(folder: Path) -> Iterator[tuple[Chains, str]]:
    """A warm Spark, and an Airflow.

    :return: chains, and the URL of the warm Spark.
    """
    with ExitStack() as stack:
        for name in ("connect", "airflow", "postgres"):
            (folder / name).mkdir()
        warm = stack.enter_context(running_spark_connect(folder / "connect"))
        server = stack.enter_context(running_postgres(folder / "postgres"))
        metadata = server.create_database("airflow").replace("postgresql://", "postgresql+psycopg://")
        environment = {
            "AIRFLOW_CONN_SPARK_WARM": warm.connection,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        }
        yield Chains(stack.enter_context(running_airflow(folder / "airflow", environment))), warm.url


def measure_small(rounds: int, command: str) -> list[Row]:
    """The rows of this work."""
    with tempfile.TemporaryDirectory(dir=FOLDER, ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        chains, remote = stack.enter_context(_services(folder))

        def ours(place: Path) -> Once:
            return chains.run("pipeline", _is_published, place, rows=SMALL)

        def chained(place: Path) -> Once:
            return chains.run("chained", lambda _: True, place, jobs=[*JOBS], remote=remote)

        for number, first in enumerate((ours, chained)):  # the server is warm, and Airflow's workers have run tasks
            (folder / f"first-{number}").mkdir()
            first(folder / f"first-{number}")
        figures = alternately([Contender(OURS, ours), Contender(CHAINED, chained)], rounds, folder / "small")
    work = f"A version of {SMALL:,} rows through Airflow, a source and three stages on a warm Spark"
    return rows_of(work, figures, command, ours=OURS, targets=[Target(CHAINED, round(1 / 1.3, 2))])


# A long backlog


def measure_backlog(rounds: int, versions: int, command: str) -> list[Row]:
    """The rows of this work, whose seconds are those of one version: as many in a long backlog as in a short one."""
    short, long = (
        Figures(f"{OURS}, {number:,} versions", tuple(_backlog(number) for _ in range(rounds)))
        for number in (max(versions // 10, 1), versions)
    )
    return rows_of(
        "A version of a backlog, one stage without Spark",
        [long, short],
        command,
        ours=long.who,
        targets=[Target(short.who, round(1 / 1.5, 2))],
        limits=[Limit(long.who, "seconds", MOST_SECONDS)],
    )


def _backlog(versions: int) -> Once:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        journal = f"file://{folder}/journal"
        read = backlog(journal, versions)
        stage = LineStage("clean", journal, f"{folder}/lake", (read,))
        opened = inprocess.open_job(stage, journal=Journal.create(journal, "clean"))
        started, cpu, made = time.perf_counter(), time.process_time(), 0
        for number in count():
            inprocess.run(opened, request=RunRequest(f"run {number}"))
            before, made = made, len(opened.journal.state("clean").versions)
            if made == before:
                break
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        assert made == versions
    return Once(seconds / versions, cpu=cpu / versions)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--versions", type=int, default=1_000)
    parser.add_argument("--only", choices=PARTS, help="a part of it")
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = f"python -m tests.benchmarks.pipelines --rounds {asked.rounds}"
    sizes = f"{command} --rows {asked.rows} --versions {asked.versions}"
    for part in [asked.only] if asked.only else PARTS:
        if part == "backlog":
            rows = measure_backlog(asked.rounds, asked.versions, sizes)
        elif part == "work":
            rows = measure_work(asked.rounds, asked.rows, sizes)
        else:
            rows = measure_small(asked.rounds, f"{command} --only small")
        keep(rows, asked.results)


if __name__ == "__main__":
    main()
