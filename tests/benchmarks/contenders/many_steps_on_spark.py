"""One commit task over many staged files, whose steps it has written or carried out on a warm Spark."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.hooks.steps import StepsOnSpark
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.operators import SparkOptions
from airflow_gobblin.run.open_job import OpenJob
from tests.benchmarks.contenders.many_steps import TASKS
from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures
from tests.benchmarks.publish import URN, on_disk

REMOTE = "BENCHMARK_SPARK"
"""The variable that holds the URL of the Spark Connect server."""
CODE = ("tests.protocol.rows", "tests.protocol.acts", "tests.protocol.topics")


def main() -> None:
    asked = arguments(folder="", run="", units="", stage="")
    server = urlsplit(os.environ[REMOTE])
    connection = {"conn_type": "spark_connect", "host": server.hostname, "port": server.port}
    os.environ["AIRFLOW_CONN_SPARK_WARM"] = json.dumps(connection)
    opened = on_disk(Path(asked.folder)).open(int(asked.units))
    assert isinstance(opened.job, Ingestion)
    opened = OpenJob(replace(opened.job, code=CODE), opened.journal, NoConnections())
    options = SparkOptions(conn_id="spark_warm").submit_arguments()
    opened.committer.runner = StepsOnSpark(opened, options, above=0)
    run = opened.staging.run(asked.run)
    assert run is not None
    clock = Laps()
    (report,) = TASKS[asked.stage](opened, run, run.packs[0])
    seconds = clock.lap(asked.stage)
    assert report.status in ("pending", "committed"), report
    slot: Slot = opened.journal.history(URN).slots[-1]
    print_figures(seconds, clock.phases, steps=slot.decision.steps, done=int(slot.done))


if __name__ == "__main__":
    main()
