"""The time that a warm Spark saves, and the cost of long commit sequences there.

    python -m tests.benchmarks.on_spark --rounds 3

The real operator extracts a pack of one small unit, by `spark-submit` in local mode and by Spark Connect, each from
`execute` to its end, with the driver's start. The steps are those of `scale`, written and carried out by the same warm Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.benchmarks.contenders.many_steps_on_spark import REMOTE
from tests.benchmarks.measure import Contender, Figures, Memory, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.publish import on_disk, staged
from tests.benchmarks.results import JSON, Limit, Row, keep, rows_of
from tests.services.environment import use_environment
from tests.services.spark_connect import SparkConnect, running_spark_connect
from tests.spark.acme_rows import RowsSource

UNITS = 100
SUBMIT = "airflow_gobblin: extract by spark-submit, local[2]"
WARM = "airflow_gobblin: extract by Spark Connect, local[2] that is warm"


def extract(conn_id: str, folder: Path) -> Once:
    """One small pack. Its phases: the driver's work, and everything else: starting it."""
    from tests.spark.runs import extract_operator, planned_run

    planned = planned_run(folder, RowsSource(1))
    task = extract_operator(planned, conn_id=conn_id)
    started = time.perf_counter()
    task.execute({})
    seconds = time.perf_counter() - started
    (report,) = planned.reports
    phases = {"start of the driver": seconds - report.seconds, "units": report.seconds}
    return Once(seconds, phases, {"results": len(planned.results)})


def measure_extract(server: SparkConnect, rounds: int) -> list[Row]:
    os.environ["AIRFLOW_CONN_SPARK_HERE"] = '{"conn_type": "spark", "host": "local[2]"}'
    os.environ["AIRFLOW_CONN_SPARK_WARM"] = server.connection
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        extract("spark_warm", Path(folder) / "first")  # the session's Python workers start
        contenders = [
            Contender(WARM, partial(extract, "spark_warm")),
            Contender(SUBMIT, partial(extract, "spark_here")),
        ]
        figures = alternately(contenders, rounds, Path(folder) / "rounds")
    command = f"python -m tests.benchmarks.on_spark --rounds {rounds}"
    return rows_of("A pack of one small unit", figures, command, ours=WARM)


def measure_steps(server: SparkConnect, rounds: int, steps: int) -> list[Row]:
    """The rows of a long sequence; the memory is that of the Airflow side and its driver, and of a Python worker of Spark."""
    stages = {"write_commit_steps": "deciding and writing", "execute_commit_steps": "carrying out"}
    taken: dict[str, list[Once]] = {stage: [] for stage in stages}
    for number in range(1, rounds + 1):
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            run = staged(on_disk(Path(folder)), UNITS, steps)
            asked = {"folder": folder, "run": run.run, "units": UNITS}
            for stage, found in taken.items():
                with Memory(server.process.pid) as memory:
                    once = run_program(
                        Path(sys.executable),
                        "many_steps_on_spark",
                        {**asked, "stage": stage},
                        secrets={REMOTE: server.url},
                    )
                found.append(replace(once, task_mb=memory.task_mb))
                print(f"  round {number} of {rounds}: {once.seconds:8.2f} s  {stage}", flush=True)
    who = f"airflow_gobblin, {steps:,} steps on Spark"
    rows: list[Row] = []
    for stage, words in stages.items():
        rows += rows_of(
            f"{steps:,} commit steps on Spark, {words}",
            [Figures(who, tuple(taken[stage]))],
            f"python -m tests.benchmarks.on_spark --rounds {rounds} --steps {steps}",
            ours=who,
            limits=[Limit(who, "peak_mb", 512), Limit(who, "task_mb", 512)],
        )
    return rows


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, running_spark_connect(Path(folder)) as server:
        # Airflow makes its home when it is imported.
        os.environ.update(AIRFLOW_HOME=f"{folder}/airflow", AIRFLOW__LOGGING__LOGGING_LEVEL="ERROR")
        keep(measure_extract(server, asked.rounds), asked.results)
        keep(measure_steps(server, 1, asked.steps), asked.results)


if __name__ == "__main__":
    main()
