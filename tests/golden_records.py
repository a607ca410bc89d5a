"""Golden records: one encoded record of each kind and version, as that version first wrote it.

    $ .venv/bin/python -m tests.golden_records

writes those that are missing. A record is made from the type hints of its class, each field filled; one that its class refuses
has a sample of its own below. While nothing is released, a changed encoding needs no new version: name the kinds to write them
again.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import airflow_gobblin
from airflow_gobblin.copy.checks import AtLeastFiles, FileSetCheck
from airflow_gobblin.copy.conversion.converters import FileConverter, Gunzip
from airflow_gobblin.copy.conversion.openpgp import CheckDetachedSignature, CheckSignature, Decrypt, Encrypt
from airflow_gobblin.copy.finders import DatasetFinder, DatePartitions, NewestVersions, WholeTree
from airflow_gobblin.copy.options import Keep
from airflow_gobblin.copy.registering import HiveTable, Registration
from airflow_gobblin.job import Work
from airflow_gobblin.model import wire
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.plan import Binding
from airflow_gobblin.model.table import TableRecord
from airflow_gobblin.model.watermark import Json, LongWatermark, MultiLongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.converters.base import Converter, RowCheck
from airflow_gobblin.rows.converters.checks import NotNull
from airflow_gobblin.rows.converters.columns import AddColumn
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.rows.sinks.iceberg import IcebergSink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.rows.sources.base import Source
from airflow_gobblin.rows.sources.kafka.values import AvroValues, JsonValues, ValueFormat
from airflow_gobblin.rows.sources.sql import Predicate, SqlSource, SqlTable
from airflow_gobblin.rows.work import RowsBinding, RowsWork
from airflow_gobblin.stages.functions import Frame, StageFunction
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.publishing import MoveStep
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.port import Merge
from airflow_gobblin.testing.memory_table import MemoryTable
from tests.services.environment import ROOT
from tests.test_import_direction import AIRFLOW_SIDE

FOLDER = ROOT / "tests" / "golden"
AT = datetime(2026, 3, 1, 12, 30, 0, 250_000, UTC)
WATERMARKS = (LongWatermark(7), MultiLongWatermark((1, 2)), TimestampWatermark(AT))
ORDERS = SqlTable(
    "orders",
    ExtractKind.APPEND_ONLY,
    delta="id",
    primary_keys=("id",),
    columns=("id", "amount"),
    casts={"amount": "decimal(10,2)"},
    where=(Predicate("state", "in", ("paid", "sent")), Predicate("amount", ">", 0), Predicate("note", "is null")),
    start=5,
    lag=1,
    unit_width=100,
)
_FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"
STANDS_FOR: dict[Any, type[Any]] = {
    Binding: RowsBinding,
    CommitStep: MoveStep,
    DatasetFinder: WholeTree,
    Converter: AddColumn,
    FileConverter: Gunzip,
    FileSetCheck: AtLeastFiles,
    Registration: HiveTable,
    RowCheck: NotNull,
    Sink: ParquetSink,
    Source: SqlSource,
    StageFunction: Frame,
    TableRecord: MemoryTable,
    ValueFormat: JsonValues,
    Work: RowsWork,
}
"""The record that a field of each port holds."""
SAMPLES: dict[Any, Any] = {
    AvroValues: AvroValues('{"type": "record"}', "registry", "{topic}", "value_"),
    Coverage: Coverage().add(Range(LongWatermark(3), LongWatermark(7))).add(Range(LongWatermark(9), LongWatermark(10))),
    CheckDetachedSignature: CheckDetachedSignature("keys", (_FINGERPRINT,), ".rpm", (".pgp",)),
    CheckSignature: CheckSignature("keys", (_FINGERPRINT,), ".sig", 3, 3),
    Decrypt: Decrypt("keys", (_FINGERPRINT,), ".pgp", 3, 3),
    Encrypt: Encrypt("keys", (_FINGERPRINT,), _FINGERPRINT, ".pgp"),
    DatePartitions: DatePartitions("clicks", "%Y-%m-%d", 7, "Europe/Zurich"),
    HiveTable: HiveTable("lake", "{dataset}", ("id bigint",), ("dt date",), "orc", "s3a://lake", drop=True),
    JsonValues: JsonValues({"id": "int64", "address": {"city": "string"}, "tags": ["string"]}, "value_"),
    DeltaLakeTable: DeltaLakeTable("/lake/orders"),
    DeltaSink: DeltaSink("/lake/{dataset}", "/work"),
    IcebergSink: IcebergSink("lake_catalog", "raw.{dataset}", "/work", ("day(updated_at)",), storage="lake_s3"),
    Json: {"offsets": [1, 2.5, None, True]},
    Keep: Keep("pt", owner="ann", group=100, permission=0o640, folder_permission=0o750),
    NewestVersions: NewestVersions("datasets", "%Y-%m-%d", 3),
    ParquetSink: ParquetSink("/lake"),
    PostgresSink: PostgresSink("warehouse", "raw.{dataset}", "/work", Merge(("id",), "changed_at")),
    Range: Range(LongWatermark(3), LongWatermark(7)),
    SqlSource: SqlSource("shop_db", (ORDERS, SqlTable("customers", ExtractKind.SNAPSHOT_ONLY))),
}
"""Values that can't be made of type hints alone."""


def kinds() -> dict[str, type[Any]]:
    """The class of each kind of record that the package registers, outside of Airflow's edge, where there are none."""
    for module in pkgutil.walk_packages(airflow_gobblin.__path__, f"{airflow_gobblin.__name__}."):
        if module.name.split(".")[1] not in AIRFLOW_SIDE:
            importlib.import_module(module.name)
    return {k: c for k, c in sorted(wire._by_kind.items()) if c.__module__.startswith(f"{airflow_gobblin.__name__}.")}


def path_of(kind: str) -> Path:
    return FOLDER / f"{kind}.{wire.newest_version(kind)}.json"


def sample(expected: Any, name: str) -> Any:
    """A value of a type, with every field filled.

    :param name: of the field that it is for.
    """
    if expected in SAMPLES:
        return SAMPLES[expected]
    if expected in STANDS_FOR:
        return sample(STANDS_FOR[expected], name)
    if expected is Watermark:
        return WATERMARKS[len(name) % len(WATERMARKS)]
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        return sample(next(one for one in arguments if one is not type(None)), name)
    if origin is tuple:
        same = len(arguments) == 2 and arguments[1] is Ellipsis
        many = wire.TABLE_FROM if arguments[0] is CommitStep else 2  # as many are written as a table
        return tuple(sample(one, name) for one in ([arguments[0]] * many if same else arguments))
    if origin is frozenset:
        return frozenset({sample(arguments[0], name)})
    if origin is not None and issubclass(origin, Mapping):
        return {name: sample(arguments[1], name)}
    if isinstance(expected, type) and issubclass(expected, Enum):
        return [*expected][-1]
    if is_dataclass(expected) and isinstance(expected, type):
        hints = get_type_hints(expected)
        return expected(**{field.name: sample(hints[field.name], field.name) for field in fields(expected)})
    return {str: name, int: 3, float: 0.5, bool: True, datetime: AT, timedelta: timedelta(minutes=90)}[expected]


def write(again: set[str]) -> None:
    """Write the missing records.

    :param again: kinds that are written even if they exist.
    """
    FOLDER.mkdir(exist_ok=True)
    for kind, cls in kinds().items():
        if kind in again or not path_of(kind).exists():
            path_of(kind).write_bytes(wire.dumps(sample(cls, kind)) + b"\n")
            print(path_of(kind).relative_to(ROOT))


if __name__ == "__main__":
    write({*sys.argv[1:]})
