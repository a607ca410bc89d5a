"""Runs to extract, planned by a real `OpenJob`, and their submission by hand: what the operator does, without Airflow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import Attempt
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.work import UnitResult
from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import Source
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark import fork_server
from airflow_gobblin.spark.connections import SparkConnections, give_connections
from airflow_gobblin.spark.pack import run_pack
from airflow_gobblin.spark.report import PackReport
from tests.services.environment import ROOT, TEMPORARY
from tests.services.processes import children, stop_process
from tests.spark.acme_rows import Squares

CODE = ("tests.spark.acme_rows",)


@dataclass(frozen=True)
class PlannedRun:
    """One planned run, with its `OpenJob`, of one pack; `plan` and results are those of the first dataset."""

    folder: Path
    opened: OpenJob
    run: RunPlan

    @property
    def plan(self) -> Plan:
        (pack,) = self.run.packs
        plan = self.opened.staging.plan(min(pack.datasets, key=lambda dataset: dataset.urn).token)
        assert plan is not None
        return plan

    @property
    def results(self) -> dict[str, UnitResult]:
        """The valid results, by unit."""
        found = {unit.id: self.opened.staging.result(self.plan.token, unit.id) for unit in self.plan.units}
        return {unit: result for unit, result in found.items() if result is not None}

    @property
    def failures(self) -> dict[str, UnitResult]:
        """The failed results, by unit."""
        return self.opened.staging.failed_results(self.plan.token)

    @property
    def reports(self) -> list[PackReport]:
        """The reports of the pack's drivers, in the order in which they started."""
        return sorted(self.opened.staging.reports(self.run.run, PackReport), key=lambda report: report.started)


def planned_run(
    folder: Path,
    source: Source,
    *,
    squares: bool = False,
    code: Sequence[str] = CODE,
    place: str | None = None,
    uris: Mapping[str, str] | None = None,
    sink: Sink | None = None,
    request: RunRequest | None = None,
    policy: CommitPolicy = CommitPolicy.FULL,
) -> PlannedRun:
    """Plan a run of a source, the rows source perhaps.

    :param request: by default that of an unscheduled run.
    :param place: where target and journal are; by default below `folder`.
    :param uris: the connections.
    :param sink: by default, Parquet files there.
    """
    place = place or str(folder)
    ingestion = Ingestion(
        "acme",
        source,
        sink or ParquetSink(f"{place}/target"),
        journal=f"{place}/journal",
        converters=(Squares("id"),) if squares else (),
        max_packs=1,
        code=tuple(code),
        policy=policy,
    )
    connections = SparkConnections(uris or {})
    opened = OpenJob(ingestion, Journal.create(ingestion.journal, ingestion.name, connections), connections)
    return PlannedRun(folder, opened, create_work_units(opened, request or RunRequest("test")))


def extract_operator(planned: PlannedRun, **options: Any) -> ExtractOperator:
    """The operator that extracts the run's pack."""
    (pack,) = planned.run.packs
    reference = {"run": planned.run.run, "pack": pack.index, "label": pack.label}
    return ExtractOperator(task_id="extract", job=planned.opened.job, pack=reference, **options)


def extract_here(planned: PlannedRun) -> None:
    """Extract the run's pack in this process: the same units with the same results, without Spark."""
    opened, attempt = planned.opened, uuid.uuid4().hex
    work, files = opened.job.work, opened.files
    for plan, unit in list(missing_units(opened, planned.run.packs[0])):
        folder = opened.staging.token_folder(plan.token)
        result = work.run(unit, plan, Attempt(attempt, files, folder, opened.connections))
        opened.staging.put_result(plan.token, result)


def run_on(spark: SparkSession, planned: PlannedRun, connections: SparkConnections) -> PackReport:
    """Extract the run's pack on a Spark that has `CODE`, without a driver of its own."""
    staging = planned.opened.staging
    root = planned.opened.job.work.target
    return run_pack(spark, root, staging.folder, planned.run.run, 0, CODE, connections)


@dataclass(frozen=True)
class Submit:
    """How a pack is submitted: by default from this checkout, to Spark in local mode with two cores.

    :param code: the author's modules, found by `python` in `search`.
    :param uris: the connections given to the driver.
    """

    master: str = "local[2]"
    conf: Mapping[str, str] = field(default_factory=dict)
    uris: Mapping[str, str] = field(default_factory=dict)
    code: Sequence[str] = CODE
    python: Path = Path(sys.executable)
    search: Path = ROOT

    def command(self, planned: PlannedRun) -> list[str]:
        """The command line that extracts the run's pack."""
        staging = planned.opened.staging
        shipped, script = self._shipped()
        settings = {"spark.ui.enabled": "false", "spark.pyspark.driver.python": str(self.python), **self.conf}
        return [
            "spark-submit",
            f"--master={self.master}",
            f"--py-files={shipped}",
            *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
            script,
            f"--root={planned.opened.job.work.target}",
            f"--staging={staging.folder}",
            f"--run={planned.run.run}",
            "--pack=0",
            *(f"--code={module}" for module in self.code),
            *(f"--connection={conn_id}" for conn_id in self.uris),
        ]

    def _shipped(self) -> list[str]:
        """The zip and the script, made and found by the package that `python` has; the same zip is made once."""
        folder = TEMPORARY / "shipped"
        program = (
            "import sys; from pathlib import Path; "
            "from airflow_gobblin.spark.ship import ship; from airflow_gobblin.hooks.spark_jobs import spark_job; "
            "print(ship(sys.argv[2:], Path(sys.argv[1])), spark_job('extract_pack.py'), sep='\\n')"
        )
        command = [str(self.python), "-c", program, str(folder), *self.code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=self.search)
        return done.stdout.splitlines()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of `spark-submit`, with the connections."""
        return os.environ | give_connections(SparkConnections(self.uris), self.uris)

    def run(self, planned: PlannedRun) -> subprocess.CompletedProcess[str]:
        """Submit and wait for the end."""
        command = self.command(planned)
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment)


@dataclass(frozen=True)
class Driver:
    """A driver that was submitted, and runs on while a test does something to it, with its output in `log`."""

    process: subprocess.Popen[bytes]
    log: Path
    suspended: list[psutil.Process] = field(default_factory=list)

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for something that it causes.

        :raises AssertionError: it ended, or minutes went by.
        """
        self._wait_until(holds, what, every=0.05)

    def suspend(self, what: str, chosen: Callable[[psutil.Process], bool]) -> psutil.Process:
        """Suspend a process below it, in the middle of something.

        :param chosen: whether a process is there; one that isn't any more once it is suspended goes on.
        """

        def is_suspended() -> bool:
            return any(self._suspended(process, chosen) for process in children(self.process))

        self._wait_until(is_suspended, what, every=0.03)
        return self.suspended[-1]

    def end(self) -> int:
        """Wait for its end.

        :return: its exit code.
        """
        return self.process.wait(240)

    def kill(self) -> None:
        """Kill it, without the processes of its tasks: those have a group of their own."""
        stop_process(self.process, first=signal.SIGKILL)

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def _suspended(self, process: psutil.Process, chosen: Callable[[psutil.Process], bool]) -> bool:
        with suppress(psutil.Error, OSError):
            if not chosen(process):
                return False
            process.suspend()
            self.suspended.append(process)
            while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                time.sleep(0.001)
            if chosen(process):
                return True
            process.resume()
        return False

    def _wait_until(self, holds: Callable[[], bool], what: str, every: float) -> None:
        deadline = time.monotonic() + 240
        while not holds():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.output[-5000:]}"
            assert time.monotonic() < deadline, f"still waiting for {what}:\n{self.output[-5000:]}"
            time.sleep(every)


StartDriver = Callable[..., Driver]
"""The fixture `start_driver`."""


def overlapping(results: Mapping[str, UnitResult]) -> Iterator[tuple[str, str]]:
    """The pairs of units that ran at the same time."""
    times = {unit: (r.metrics["started"], r.metrics["finished"]) for unit, r in results.items()}
    for one in times:
        for other in times:
            if one < other and times[one][0] < times[other][1] and times[other][0] < times[one][1]:
                yield one, other


def command_lines() -> dict[int, str]:
    """The command lines of this process's descendants, and of the drivers forked for it, as anybody on this host sees them."""
    found = {}
    for process in [*psutil.Process().children(recursive=True), *_forked()]:
        try:
            found[process.pid] = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def _forked() -> Iterator[psutil.Process]:
    """The processes that fork drivers for this checkout, and the drivers."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = process.cmdline()
            if fork_server.__name__ in command and command[0] == sys.executable:
                yield from (process, *process.children(recursive=True))


class Watch(threading.Thread):
    """Watch all command lines while something runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            self.seen |= set(command_lines().values())

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self.join()
