"""Ten thousand datasets with nothing to do: the recovery check, the planning and the finish of a run.

    python -m tests.benchmarks.idle --datasets 10000 --store sqlite

Each dataset has one committed slot, and its source has nothing new. `--slots` gives each a longer history.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import psutil
import pyarrow as pa
import sqlalchemy as sa

from airflow_gobblin import wire
from airflow_gobblin.coverage import Range
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal import Action, Decision, Journal, Note, NoteKind, Outcome, OutcomeState, Slot, slot_name
from airflow_gobblin.naming import dataset_key
from airflow_gobblin.pipeline import Pipeline, RunRequest
from airflow_gobblin.sources.base import Connections, DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.state import DatasetState
from airflow_gobblin.watermark import LongWatermark
from airflow_gobblin.work import Dataset, Extract, ExtractKind, UnitState, UnitSummary, WorkUnit
from tests.benchmarks.peers import FOLDER
from tests.protocol.rows import SCHEMA, LineSink, NoConnections
from tests.services.environment import use_environment
from tests.services.postgres import running_postgres

NAME = "idle"
AT = datetime(2026, 11, 21, tzinfo=UTC)


@wire.record("benchmark.nothing_new")
@dataclass(frozen=True)
class NothingNew:
    """A source of many datasets whose rows are all committed."""

    count: int
    rows: int
    connection_ids: ClassVar[tuple[str, ...]] = ()

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return ()

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        return tuple(Dataset(urn, Extract(ExtractKind.APPEND_ONLY, "main", urn)) for urn in urns(self.count))

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        wanted = Range(LongWatermark(0), LongWatermark(self.rows))
        assert not states[dataset.urn].coverage.uncovered(wanted)
        return DatasetPlan((), SCHEMA, None)

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        raise AssertionError("there is nothing to read")


def urns(count: int) -> list[str]:
    return [f"main.table_{number:06d}" for number in range(count)]


def records(urn: str, slots: int) -> Iterator[tuple[str, bytes]]:
    """The records of a dataset whose slots published a file each, but for the steps."""
    folder, before = f"{NAME}/{dataset_key(urn)}", ""
    for number in range(1, slots + 1):
        part = Range(LongWatermark(number - 1), LongWatermark(number))
        unit = UnitSummary("u0", UnitState.SUCCESSFUL, part.low, part.high, part.high, 1, 1, 0, 1, 4096, 1, 0.1)
        decision = Decision(
            slot=number,
            action=Action.COMMIT,
            urn=urn,
            token=wire.digest(f"{urn} {number}".encode())[:32],
            run_key=wire.digest(f"run {number}".encode())[:32],
            generation=0,
            previous=before,
            at=AT,
            ranges=(part,),
            planned=part,
            units=(unit,),
            staging=f"_gobblin/idle/s/{number}",
            target="/lake",
            shards=(wire.digest(f"steps {number}".encode()),),
            steps=2,
        )
        data = wire.dumps(decision)
        outcome = Outcome(number, OutcomeState.DONE, wire.digest(data), decision.run_key, AT)
        ended = wire.dumps(outcome)
        before = Slot(decision, outcome, wire.digest(data), wire.digest(ended)).digest
        yield f"{folder}/d/{slot_name(number)}", data
        yield f"{folder}/o/{slot_name(number)}", ended
        note = wire.dumps(Note(NoteKind.ANNOUNCED, decision.run_key, AT))
        yield f"{folder}/n/{slot_name(number)}/000000-announced", note


@contextmanager
def filled(kind: str, folder: Path, datasets: int, slots: int) -> Iterator[str]:
    """The URL of a store with the journal in it, put there past the port: a million syncs are not what is measured."""
    if kind == "local":
        Journal.open(str(folder / "journal"), NAME).store.close()
        for urn in urns(datasets):
            for key, data in records(urn, slots):
                path = folder / "journal" / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        yield str(folder / "journal")
        return
    with _postgres(folder) if kind == "postgresql" else nullcontext(f"sqlite:///{folder}/journal.db") as url:
        Journal.open(url, NAME).store.close()
        engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            for urn in urns(datasets):
                rows = [{"key": key, "data": data} for key, data in records(urn, slots)]
                connection.execute(sa.text("INSERT INTO gobblin_journal (key, data) VALUES (:key, :data)"), rows)
        engine.dispose()
        yield url


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    (folder / "postgres").mkdir()
    with running_postgres(folder / "postgres") as server:
        yield server.create_database("journal")


def measure(kind: str, datasets: int, slots: int, folder: Path) -> dict[str, float]:
    """The seconds of each stage, every one of a process that has just opened the journal, and the memory at its peak."""
    ingestion = Ingestion(NAME, NothingNew(datasets, slots), LineSink(str(folder / "lake")), "unused")
    request, took = RunRequest("benchmark"), {}
    with filled(kind, folder, datasets, slots) as url:
        before = psutil.Process().memory_info().rss

        def opened() -> Pipeline:
            return Pipeline(ingestion, Journal.open(url, NAME), NoConnections())

        started = time.perf_counter()
        assert opened().verify_recover(request) == ()
        took["verify_recover"] = time.perf_counter() - started
        started = time.perf_counter()
        run = opened().create_work_units(request)
        took["create_work_units"] = time.perf_counter() - started
        assert not run.packs
        started = time.perf_counter()
        opened().finish(run)
        took["finish"] = time.perf_counter() - started
        started = time.perf_counter()
        assert not [*opened().unannounced()]
        took["announce"] = time.perf_counter() - started
        took["memory (MB)"] = (psutil.Process().memory_info().rss - before) / 1e6
    return took


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--store", choices=("local", "sqlite", "postgresql"), default="sqlite")
    asked = parser.parse_args(words)
    use_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        for name, seconds in measure(asked.store, asked.datasets, asked.slots, Path(folder)).items():
            print(f"{seconds:8.2f}  {name}")


if __name__ == "__main__":
    main()
