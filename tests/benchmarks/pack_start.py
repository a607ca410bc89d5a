"""The cost of a pack apart from its rows: one small unit by spark-submit, against a bare spark-submit of one trivial Python task.

    python -m tests.benchmarks.pack_start --rounds 9

The real operator extracts the pack, from `execute` to its end. The bare job runs with Spark's defaults, and once more with
the archive of classes and the Java options that packs start with. CPU time is that of all processes, with Python's workers.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from airflow_gobblin.spark.session import submit_options
from tests.benchmarks.measure import Contender, Once, alternately
from tests.benchmarks.on_spark import extract
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import JSON, Row, Target, keep, rows_of
from tests.services.environment import TEMPORARY, use_environment

WORK = "Starting a pack: one small unit by spark-submit, local[2]"
OURS = "airflow_gobblin: extract of a pack, as it is"
ARCHIVE = "a bare spark-submit of one trivial Python task, from the same archive, with the same Java options"
BARE = "a bare spark-submit of one trivial Python task, Spark's defaults"
CONN_ID = "spark_here"
TASK = Path(__file__).with_name("contenders") / "trivial_task.py"
_PR_SET_CHILD_SUBREAPER = 36


def submit(options: str, folder: Path) -> Once:
    """The bare job.

    :param options: of the driver's JVM.
    """
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LAUNCHER_OPTS"}
    environment["SPARK_SUBMIT_OPTS"] = options
    command = [shutil.which("spark-submit") or "spark-submit", "--master=local[2]", str(TASK)]
    started = time.perf_counter()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout[-5000:]}")
    return Once(time.perf_counter() - started)


def with_cpu(run: Callable[[Path], Once], folder: Path) -> Once:
    """Take the CPU time of a round, too."""
    before = _cpu()
    once = run(folder)
    while True:  # workers whose parent has ended are this process's children now
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    return replace(once, facts={}, cpu=_cpu() - before)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _archive_made(folder: Path) -> str:
    """Run packs until the archive exists.

    :return: the options by which a JVM starts from it.
    """
    for number in range(4):
        extract(CONN_ID, folder / f"first-{number}")
        if found := [*TEMPORARY.glob(f"airflow-gobblin-{os.getuid()}/*.jsa")]:
            return f"{submit_options()} -XX:SharedArchiveFile={max(found, key=lambda path: path.stat().st_mtime)}"
    raise RuntimeError("no archive of classes was made")


def measure(rounds: int) -> list[Row]:
    """The rows of this work."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        archive = _archive_made(Path(folder))
        runs: Mapping[str, Callable[[Path], Once]] = {
            OURS: partial(extract, CONN_ID),
            ARCHIVE: partial(submit, archive),
            BARE: partial(submit, ""),
        }
        contenders = [Contender(who, partial(with_cpu, run)) for who, run in runs.items()]
        figures = alternately(contenders, rounds, Path(folder) / "rounds")
    return rows_of(
        WORK,
        figures,
        f"python -m tests.benchmarks.pack_start --rounds {rounds}",
        ours=OURS,
        targets=[Target(ARCHIVE, round(1 / 1.15, 2)), Target(BARE, round(1 / 0.6, 2))],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args()
    use_environment()
    tempfile.tempdir = str(TEMPORARY)  # another may have been chosen before
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        # Airflow makes its home when it is imported.
        os.environ.update(AIRFLOW_HOME=f"{folder}/airflow", AIRFLOW__LOGGING__LOGGING_LEVEL="ERROR")
        os.environ["AIRFLOW_CONN_SPARK_HERE"] = '{"conn_type": "spark", "host": "local[2]"}'
        keep(measure(asked.rounds), asked.results)


if __name__ == "__main__":
    main()
