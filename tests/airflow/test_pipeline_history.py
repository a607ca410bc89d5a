"""Random histories of a pipeline in a real Airflow on real Spark, against one pass in plain Python.

Its DAGs run every few seconds, while rows come, are taken back and are replaced, runs are cleared, and tasks and Spark's drivers
are killed at any moment. In every second history no asset event wakes a stage. A seed determines what happens, but not when.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.watermark import LongWatermark
from tests.proofs import Proved, chosen_by, fresh_seed, shares
from tests.services.airflow import Airflow
from tests.services.environment import ROOT
from tests.services.processes import command_line
from tests.services.spark_connect import SparkConnect
from tests.spark.pipeline_checks import DATASETS, check_at_rest
from tests.spark.test_kafka_history import Deck

HISTORIES = 10
READS = {"two": ("a", "b"), "last": ("two", "two.marks", "a")}
"""The stages; the first has a channel, which the second reads beside its rows."""
ROWS = 6
"""How many rows come at once."""
DAGS = """
from datetime import UTC, datetime, timedelta

from airflow.sdk import DeltaDataIntervalTimetable

from airflow_gobblin import ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, SparkOptions, SqlSource, SqlTable, Stage
from airflow_gobblin.operators import pipelines

if not {events}:
    pipelines._woken = lambda stage, timetable: timetable
tables = tuple(SqlTable(name, ExtractKind.APPEND_ONLY, delta="id") for name in ("a", "b"))
raw = Ingestion("raw", SqlSource("{name}_db", tables), ParquetSink("{lake}/raw"), "{lake}/journal", max_packs=1)
two = Stage(
    "two", Frame("chained.two_marked"), {{"a": raw["a"], "b": raw["b"]}}, ParquetSink("{lake}/two"), channels=("marks",)
)
last = Stage(
    "last", Frame("chained.last"), {{"two": two, "two_marks": two["marks"], "a": raw["a"]}}, ParquetSink("{lake}/last")
)
pipeline = Pipeline("{name}", (raw, two, last), "{lake}/journal", code=("chained_stages",))
for dag in pipeline.dags(
    schedule=DeltaDataIntervalTimetable(timedelta(seconds=10)),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    spark=SparkOptions("spark_warm", {{"spark.sql.shuffle.partitions": "2"}}),
    default_args={{"retries": 2, "retry_delay": timedelta(seconds=1)}},
):
    globals()[dag.dag_id] = dag
"""


class World:
    """A pipeline in Airflow, and what happens to it."""

    def __init__(self, airflow: Airflow, folder: Path, name: str, chance: random.Random, *, events: bool) -> None:
        self.airflow, self.folder, self.name, self.chance = airflow, folder, name, chance
        self.events = events
        self.rows, self.revision = 0, 0
        self.counts = Counter[str]()
        folder.mkdir()
        self.change(*(f"CREATE TABLE {urn} (id INTEGER PRIMARY KEY, row TEXT)" for urn in DATASETS))
        self.grow()
        airflow.put_connection(connection_id=f"{name}_db", conn_type="sqlite", host=f"{folder}/rows.db")

    @property
    def dags(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{job}" for job in ("raw", *READS))

    @property
    def journal(self) -> str:
        return f"{self.folder}/journal"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let its DAGs run."""
        text = DAGS.format(lake=self.folder, name=self.name, events=self.events)
        self.airflow.add_dag(f"{self.name}.py", text, *self.dags)
        try:
            yield
        finally:
            for dag in self.dags:
                self.airflow.request("PATCH", f"dags/{dag}", json={"is_paused": True})
            self.airflow.wait_for("the end of its runs", lambda: None if self.tasks() else True, seconds=120)

    # Events

    def play(self, acts: int) -> None:
        happening = (self.rewind, self.replace, self.clear, self.kill_a_task, self.kill_a_task, self.kill_a_driver)
        deck = Deck[Callable[[], bool]](happening, self.chance)
        self.airflow.wait_for("the first version", lambda: self.is_at_rest() or None, seconds=240)
        for _ in range(acts):
            self.grow()
            act = deck.draw()
            self.airflow.wait_for(act.__name__, lambda act=act: act() or None, seconds=120)  # type: ignore[misc]
            self.counts[act.__name__.replace("_", " ")] += 1
        self.airflow.wait_for("a rest", lambda: self.is_at_rest() or None, seconds=400)

    def is_at_rest(self) -> bool:
        try:
            check_at_rest(self.journal, READS, self.rows, Counter())
        except (AssertionError, GobblinError, OSError):  # files go as versions are taken back
            return False
        return True

    def check(self) -> None:
        check_at_rest(self.journal, READS, self.rows, self.counts)

    def change(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.folder / "rows.db", timeout=60)) as database, database:
            for statement in statements:
                database.execute(statement)

    def grow(self) -> None:
        self.rows += ROWS
        numbers = range(self.rows - ROWS, self.rows)
        for urn in DATASETS:
            rows = ", ".join(f"({number + 1}, '{urn}/{number}')" for number in numbers)
            self.change(f"INSERT INTO {urn} VALUES {rows}")

    def revise(self, urn: str, low: int, high: int) -> None:
        """The rows of a dataset are other ones now."""
        self.revision += 1
        text = f"'{urn}/v{self.revision}/' || (id - 1)"
        self.change(f"UPDATE {urn} SET row = {text} WHERE id BETWEEN {low} AND {high - 1}")

    def rewind(self) -> bool:
        urn, low = self.chance.choice(DATASETS), self.chance.randint(1, self.rows)
        self.revise(urn, low, self.rows + 1)
        admin = Administration(Journal.create(self.journal, "raw"), f"{self.folder}/raw", "ann")
        with suppress(GobblinError):  # a run is in the middle of it
            admin.rewind(urn, LongWatermark(low), "the rows were wrong")
            return True
        return False

    def replace(self) -> bool:
        low = self.chance.randint(1, self.rows)
        high = min(self.rows + 1, low + 2 * ROWS)
        urn = self.chance.choice(DATASETS)
        self.revise(urn, low, high)
        conf = {"datasets": [urn], "start": low, "end": high, "replace": True}
        self.airflow.trigger(self.dags[0], conf=conf)
        return True

    def clear(self) -> bool:
        """A run that has ended, of any of the DAGs."""
        dag = self.chance.choice(self.dags)
        found = self.airflow.request("GET", f"dags/{dag}/dagRuns", params={"state": "success", "limit": 100})
        if not found["dag_runs"]:
            return False
        run = self.chance.choice(found["dag_runs"])["dag_run_id"]
        body = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
        self.airflow.request("POST", f"dags/{dag}/clearTaskInstances", json=body)
        return True

    def tasks(self) -> list[Mapping[str, Any]]:
        """Those that run now, of all of its DAGs."""
        asked = {"state": "running", "limit": 100}
        found = (
            self.airflow.request("GET", f"dags/{quote(dag)}/dagRuns/~/taskInstances", params=asked) for dag in self.dags
        )
        return [task for some in found for task in some["task_instances"]]

    def kill_a_task(self) -> bool:
        running = [task["pid"] for task in self.tasks() if task["pid"]]
        return bool(running) and self.killed(self.chance.choice(running))

    def kill_a_driver(self) -> bool:
        """Of Spark, below a task; its work goes on, on the server."""
        drivers = [one.pid for one in self.airflow.processes() if "extract_pack.py" in command_line(one)]
        return bool(drivers) and self.killed(self.chance.choice(drivers))

    @staticmethod
    def killed(pid: int) -> bool:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()
            return True
        return False


@shares(10)
@pytest.mark.timeout(7200)
def test_a_pipeline_in_airflow_is_at_rest_what_one_pass_gives_whatever_is_killed(
    airflow: Airflow, spark_connect: SparkConnect, tmp_path: Path, share: int, proved: Proved
) -> None:
    seed, histories = fresh_seed(), HISTORIES // share
    chance, counts = random.Random(seed), Counter[str]()
    airflow.put_connection(
        connection_id="spark_warm", conn_type="spark_connect", host="127.0.0.1", port=spark_connect.port
    )
    airflow.put_dag_file("chained_stages.py", (ROOT / "tests" / "spark" / "chained_stages.py").read_text())
    for number in range(histories):
        name = f"chained{seed}-{number}"
        events = number % 2 == 1  # test_pipeline.py has them, too
        world = World(airflow, tmp_path / name, name, chance, events=events)
        with world.running():
            world.play(acts=12 // min(share, 4))
            world.check()
        kinds = {
            run["run_type"]
            for dag in world.dags[1:]
            for run in airflow.request("GET", f"dags/{dag}/dagRuns")["dag_runs"]
        }
        assert ("asset_triggered" in kinds) == events
        counts += world.counts + Counter({"histories without asset events": int(not events)})
    figures = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    proved(
        "random histories of pipelines in a real Airflow",
        f"{histories} histories: {figures}; none broke a promise",
        f"seed {seed}; {chosen_by(share, seed)}",
    )
