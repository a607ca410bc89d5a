"""A small shop: its database, an ingestion of it under a DAG in a real Airflow, and a check that compares the two."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from sqlalchemy import URL, NullPool, create_engine, text

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import NoteKind
from airflow_gobblin.storage.stores import Store, open_store
from tests.airflow import gated  # noqa: F401 - so that its step can be read
from tests.lab import published_paths
from tests.services.airflow import Airflow, TaskInstance

STAGES = (
    "verify_recover",
    "create_work_units",
    "extract",
    "write_commit_steps",
    "execute_commit_steps",
    "finish",
)

DATASETS = ("orders", "countries")

DAG_FILE = """
from airflow.sdk import DAG
from shop_dag import shop

shop({shops!r}, {name!r}, **{options!r})
"""


class Shop:
    """One shop with its DAG, its ingestion and its journal, all of one name."""

    def __init__(
        self, airflow: Airflow, folder: Path, name: str, url: str | None = None, journal: str | None = None
    ) -> None:
        self.airflow = airflow
        self.name = name
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self._journal = journal or str(self.folder / "journal")
        self._store: Store | None = None
        self.database = create_engine(url or f"sqlite:///{self.folder}/shop.db", poolclass=NullPool)
        self.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY NOT NULL, item TEXT, price DOUBLE PRECISION)")
        self.execute("CREATE TABLE countries (code TEXT, name TEXT)")
        self.execute("INSERT INTO countries VALUES ('de', 'Germany'), ('fr', 'France')")
        self.execute("CREATE TABLE visits (at TIMESTAMP NOT NULL, day INTEGER, page TEXT)")
        visits = ", ".join(f"('2026-01-{n:02} {h:02}:30:00', {n}, 'page {h}')" for n in range(1, 11) for h in range(5))
        self.execute(f"INSERT INTO visits VALUES {visits}")
        self.sell(500)
        airflow.request("POST", "connections", json=connection_to(f"shop_{name}", self.database.url))

    def execute(self, statement: str) -> None:
        """Change the database."""
        with self.database.begin() as connection:
            connection.execute(text(statement))

    def sell(self, orders: int) -> None:
        """Add rows to the table of orders."""
        with self.database.begin() as connection:
            last = connection.execute(text("SELECT coalesce(max(id), 0) FROM orders")).scalar_one()
            rows = [{"id": last + n, "item": f"item {n % 7}", "price": n / 8} for n in range(1, orders + 1)]
            connection.execute(text("INSERT INTO orders VALUES (:id, :item, :price)"), rows)

    # Gates and faults for tasks of this shop

    def close(self, gate: str) -> None:
        """Hold the next process that reaches a gate."""
        (self.folder / f"{gate}.closed").touch()

    def held(self, gate: str) -> bool:
        """Whether a process waits at a gate."""
        return (self.folder / f"{gate}.waiting").exists()

    def wait_held(self, gate: str) -> None:
        """Wait until a process waits at a gate."""
        self.airflow.wait_for(f"{self.name} at {gate}", lambda: self.held(gate) or None)

    def open(self, gate: str) -> None:
        """Let the waiting process go."""
        (self.folder / f"{gate}.waiting").unlink(missing_ok=True)

    def passed(self, gate: str) -> bool:
        """Whether a process that waited at a gate has gone on."""
        return (self.folder / f"{gate}.passed").exists()

    def break_(self, what: str) -> None:
        """Let something fail until it is repaired."""
        (self.folder / f"{what}.broken").touch()

    def mend(self, what: str) -> None:
        """The opposite of `break_`."""
        (self.folder / f"{what}.broken").unlink()

    def leak(self, what: str) -> None:
        """Let something fail once, with the URI of the connection in its error."""
        (self.folder / f"{what}.leaking").touch()

    # Acts of a user

    def trigger(self, *datasets: str) -> str:
        """Start a run, of all datasets or of some."""
        return self.airflow.trigger(self.name, conf={"datasets": datasets} if datasets else None)

    def wait(self, run_id: str, *, seconds: float = 240) -> str:
        """Wait for a run's end.

        :return: its state.
        """
        return self.airflow.wait_for_run(self.name, run_id, seconds=seconds)

    def run(self, *datasets: str) -> tuple[str, str]:
        """A run, from its start to its end.

        :return: its id and its state.
        """
        run_id = self.trigger(*datasets)
        return run_id, self.wait(run_id)

    def clear(self, run_id: str, *names: str, downstream: bool = False, index: int | None = None) -> None:
        """Clear tasks of a run.

        :param index: that of one mapped instance; by default all are cleared.
        """
        self.airflow.clear(self.name, run_id, names, downstream=downstream, index=index)

    def tasks(self, run_id: str, name: str) -> list[TaskInstance]:
        """The instances of a task."""
        return [t for t in self.airflow.task_instances(self.name, run_id) if t.name == name]

    def log(self, run_id: str, name: str) -> str:
        """The logs of the last tries of a task's instances."""
        return "\n".join(self.log_entries(run_id, name))

    def log_entries(self, run_id: str, name: str) -> list[str]:
        """The entries of these logs, one by one."""
        return [entry for task in self.tasks(run_id, name) for entry in self._entries(run_id, task)]

    def end_of_log(self, run_id: str, name: str) -> str:
        """The last entry of a task's log, as a reader sees it, without the marks that fold entries in the UI."""
        (task,) = self.tasks(run_id, name)
        return [entry for entry in self._entries(run_id, task) if not entry.startswith("::")][-1]

    def _entries(self, run_id: str, task: TaskInstance) -> list[str]:
        return self.airflow.log(self.name, run_id, task)

    def tries(self, run_id: str) -> dict[str, int]:
        """How often each task was tried, counting all its mapped instances."""
        tries: Counter[str] = Counter()
        for task in self.airflow.task_instances(self.name, run_id):
            tries[task.name] += task.try_number
        return dict(tries)

    def states(self, run_id: str) -> dict[str, list[str | None]]:
        """The states of a run's tasks."""
        return self.airflow.states(self.name, run_id)

    # The results

    @property
    def journal(self) -> Journal:
        """The journal of the ingestion."""
        if self._store is None:
            self._store = open_store(self._journal)
        return Journal.create(self._store, self.name)

    def close_journal(self) -> None:
        """Close the connections to it that this process has."""
        if self._store is not None:
            self._store.close()

    def slots(self, urn: str = "orders") -> int:
        """How many slots a dataset has."""
        return self.journal.state(urn).head

    def source_rows(self, table: str) -> Counter[str]:
        """The rows of a table, as a multiset."""
        with self.database.connect() as connection:
            rows = connection.execute(text(f"SELECT * FROM {table}")).mappings().all()
        return Counter(json.dumps(dict(row), sort_keys=True, default=str) for row in rows)

    def published_rows(self, urn: str) -> Counter[str]:
        """The published rows, read only through the journal's reader."""
        paths = published_paths(self.journal, urn)
        rows = self.journal.read_dataset(urn).to_arrow().to_table().to_pylist() if paths else []
        return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)

    def check(self) -> None:
        """Every row is published once, the folder holds the journal's files, and no record is out of order.

        :raises AssertionError: something differs.
        """
        for urn in DATASETS:
            source, published = self.source_rows(urn), self.published_rows(urn)
            assert published - source == Counter(), f"{urn}: published and not at the source, or twice"
            assert source - published == Counter(), f"{urn}: not published"
        self.check_folder()

    def check_folder(self) -> None:
        """The folder of the append-only dataset holds exactly the files of its finished slots."""
        listed = {str(path) for path in (self.folder / "lake" / "orders").glob("*.parquet")}
        assert listed == set(self.journal.read_dataset("orders").paths)
        assert not self.journal.state("orders").pending

    def events(self) -> Counter[str]:
        """The asset events of this shop: their contents as JSON, and how often each came."""
        answer = self.airflow.request("GET", "assets/events", params={"source_dag_id": self.name, "limit": 100})
        return Counter(json.dumps(e["extra"], sort_keys=True) for e in answer["asset_events"])

    def announced(self) -> int:
        """How many slots of the append-only dataset are noted as announced."""
        return sum(slot.noted(NoteKind.ANNOUNCED) for slot in self.journal.history("orders").slots)


def connection_to(conn_id: str, url: URL) -> dict[str, Any]:
    """An Airflow connection to a database, for the API."""
    if url.drivername == "sqlite":
        return {"connection_id": conn_id, "conn_type": "sqlite", "host": url.database}
    return {
        "connection_id": conn_id,
        "conn_type": "postgres",
        "host": url.host,
        "port": url.port,
        "login": url.username,
        "password": url.password,
        "schema": url.database,
    }
