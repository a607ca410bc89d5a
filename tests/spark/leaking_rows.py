"""An author's module that leaks its password whenever it can: in each spelling, in each way, in Spark tasks and in the driver.

It imports no Airflow and nothing of the other tests; the job has the spellings of the password.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import SourceError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Json, LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, ReadRequest

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
WAYS = ("Exception", "KeyboardInterrupt", "SystemExit", "BaseException", "cause", "note", "group", "ours")
DRIVER_WAYS = ("", *WAYS)


class Stop(BaseException):
    """An end that is no `Exception`."""


def raise_in(way: str, text: str) -> None:
    """Raise an error with a text, after having printed it in every way."""
    print(text)
    print(text, file=sys.stderr)
    logging.getLogger("acme").error("%s", text)
    warnings.warn(text, stacklevel=1)
    thread = threading.Thread(target=raise_error, args=("Exception", text))
    thread.start()
    thread.join()
    raise_error(way, text)


def raise_error(way: str, text: str) -> None:
    if way == "KeyboardInterrupt":
        raise KeyboardInterrupt(text)
    if way == "SystemExit":
        raise SystemExit(text)
    if way == "BaseException":
        raise Stop(text)
    if way == "cause":
        raise KeyError("caused") from OSError(text)
    if way == "note":
        error = KeyError("noted")
        error.add_note(text)
        raise error
    if way == "group":
        raise BaseExceptionGroup("many", [Stop(text)])
    if way == "ours":
        raise SourceError(operation="read", subject=text, cause=OSError(text))
    raise ValueError(text)


@record("acme.leaking_source")
@dataclass(frozen=True)
class LeakingSource:
    """One dataset of as many units as there are spellings.

    :param spelled: a file that only Spark's side may read: a JSON list of the password's spellings.
    :param in_driver: the way in which the driver ends, if it does.
    """

    spelled: str
    units: int
    in_driver: str = ""
    connection_ids: tuple[str, ...] = ("db",)

    def modules(self, connections: Connections) -> tuple[str, ...]:
        if self.in_driver:
            raise_in(self.in_driver, " ".join(json.loads(Path(self.spelled).read_text())))
        return ()

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        return (Dataset("acme.leaks", Extract(ExtractKind.APPEND_ONLY, "acme", "leaks")),)

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        units = tuple(
            WorkUnit(f"u{n}", dataset.urn, LongWatermark(n), LongWatermark(n + 1), 8) for n in range(self.units)
        )
        return DatasetPlan(units, SCHEMA, Range(LongWatermark(0), LongWatermark(self.units)))

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> LeakingReader:
        return LeakingReader(self, int(unit.id[1:]))


class LeakingReader:
    actual_high: LongWatermark | None = None
    expected_rows: int | None = None
    properties: Mapping[str, Json] = {}

    def __init__(self, source: LeakingSource, number: int) -> None:
        self._source = source
        self._number = number

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        text = json.loads(Path(self._source.spelled).read_text())[self._number]
        raise_in(WAYS[self._number % len(WAYS)], text)
        yield from ()

    def close(self) -> None:
        pass
