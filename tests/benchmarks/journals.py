"""Journals to measure, on every kind of store: of many datasets with a few slots, or of few datasets with many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import sqlalchemy as sa

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.journal import Journal, slot_name
from airflow_gobblin.journal.records import Action, Decision, Note, NoteKind, Outcome, OutcomeState, ShardRef
from airflow_gobblin.model import wire
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind, UnitState, UnitSummary, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.steps.base import HighWatermarkStep, Phase
from airflow_gobblin.storage.files import Files
from airflow_gobblin.storage.files.objects import PARALLEL
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.sql import TABLE, database_url
from tests.protocol.rows import SCHEMA
from tests.services import s3
from tests.services.postgres import running_postgres

NAME = "idle"
KINDS = {"local": "local disk", "sqlite": "SQLite", "postgresql": "PostgreSQL", "s3": "S3 (versitygw)"}
_ROWS_TOGETHER = 10_000
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
            shards=(ShardRef(wire.digest(f"steps {number}".encode()), Phase.PUBLISH, 1, fenced=False),),
            hand_over=HighWatermarkStep(part.high),
            folder=dataset_key(urn),
        )
        data = wire.dumps(decision)
        outcome = Outcome(number, OutcomeState.DONE, wire.digest(data), decision.run_key, AT)
        ended = wire.dumps(outcome)
        before = Slot(decision, outcome, wire.digest(data), wire.digest(ended)).digest
        yield f"{folder}/d/{slot_name(number)}", data
        yield f"{folder}/o/{slot_name(number)}", ended
        note = wire.dumps(Note(NoteKind.ANNOUNCED, decision.run_key, AT))
        yield f"{folder}/n/{slot_name(number)}/000000-announced", note


def publish(files: Files, datasets: int) -> None:
    """Put a file into the folder of each dataset, unless there is one."""

    def put(urn: str) -> None:
        with suppress(FileExistsError):
            files.create(f"{dataset_key(urn)}/published").close()

    with ThreadPoolExecutor(PARALLEL) as pool:
        [*pool.map(put, urns(datasets))]


@contextmanager
def filled(kind: str, folder: Path, datasets: int, slots: int) -> Iterator[tuple[str, Connections]]:
    """A store with the journal in it, written past the port so that it doesn't wait for the disk, which is not measured.

    :param kind: one of `KINDS`.
    :param folder: is made.
    :return: its URL, and the connection that the URL names.
    """
    folder.mkdir(parents=True)
    nobody: Connections = NoConnections()
    with ExitStack() as stack:
        if kind == "local":
            url = str(folder / "journal")
            Journal.create(url, NAME).store.close()
            _to_disk(folder / "journal", datasets, slots)
            yield url, nobody
        elif kind == "s3":
            server = stack.enter_context(s3.running(s3.versitygw(folder)))
            url = server.access.url(f"{server.create_bucket()}/journal")
            _to_objects(Journal.create(url, NAME, server.access).store, datasets, slots)
            yield url, server.access
        else:
            url = f"sqlite:///{folder}/journal.db"
            if kind == "postgresql":
                url = stack.enter_context(running_postgres(folder)).create_database("journal")
            Journal.create(url, NAME).store.close()
            _to_sql(url, datasets, slots)
            yield url, nobody


def _every(datasets: int, slots: int) -> Iterator[tuple[str, bytes]]:
    return (found for urn in urns(datasets) for found in records(urn, slots))


def _to_disk(root: Path, datasets: int, slots: int) -> None:
    for key, data in _every(datasets, slots):
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _to_objects(store: Store, datasets: int, slots: int) -> None:
    with ThreadPoolExecutor(PARALLEL) as pool:
        assert all(pool.map(lambda found: store.put_if_absent(*found), _every(datasets, slots)))


def _to_sql(url: str, datasets: int, slots: int) -> None:
    table = sa.table(TABLE, sa.column("key"), sa.column("data"))
    engine = sa.create_engine(database_url(url))
    with engine.begin() as connection:
        rows = ({"key": key, "data": data} for key, data in _every(datasets, slots))
        while some := list(islice(rows, _ROWS_TOGETHER)):
            connection.execute(sa.insert(table), some)
    engine.dispose()
