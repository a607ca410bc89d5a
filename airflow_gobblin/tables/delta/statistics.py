"""The description of a data file in Delta's log: its partition, and its statistics, each value in Delta's form.

Values come in the form of records: dates and times as integers in the units of Delta's types, decimals as text.
Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md (Partition Value Serialization, Per-file Statistics).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types

from airflow_gobblin.model.table import ColumnStatistics, DataFile
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.tables.delta.types import empty_partition

__all__ = ["partition_value", "statistics_of"]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (Delta's texts of times without a zone, and of those in UTC)
_MS = timedelta(milliseconds=1)
_US_IN_MS = 1000
_IN_MS = pa.timestamp("ms")


def partition_value(value: Json, kind: pa.DataType) -> str | None:
    """Return the value of a partition column. Instants are marked as UTC, since readers would otherwise take them for times in
    their own zone.

    :raises TableError: it is an empty text, which Delta takes for null.
    """
    if value is None:
        return None
    if value == "":
        raise empty_partition("a partition")
    if isinstance(value, bool):
        return str(value).lower()
    if types.is_date32(kind):
        return _text(value, pa.int32(), kind)
    if types.is_timestamp(kind):
        text = _text(value, pa.int64(), pa.timestamp("us"))
        return f"{text.replace(' ', 'T')}Z" if kind.tz else text
    return str(value)


def statistics_of(schema: pa.Schema) -> Callable[[DataFile], dict[str, Any]]:
    """Return the function that gives the statistics of a file with these columns: bounds and null counts of all columns that
    readers compare, or of none.

    If only some columns have bounds, deltalake's `to_pyarrow_dataset` was measured to leave out rows when another is compared.
    """
    compared = [(column.name, _bounds_of(column.type)) for column in schema if not _is_never_compared(column.type)]

    def of(file: DataFile) -> dict[str, Any]:
        lows, highs, nulls, columns = {}, {}, {}, file.columns or {}
        for name, bounds_of in compared:
            known = columns.get(name)
            if known is None or known.low is None or known.high is None or known.nulls is None:
                return {"numRecords": file.rows}
            low, high = bounds_of(known)
            if low is None or high is None:
                return {"numRecords": file.rows}
            lows[name], highs[name], nulls[name] = low, high, known.nulls
        return {"numRecords": file.rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}

    return of


def _is_never_compared(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_list(kind) or types.is_map(kind))


def _bounds_of(kind: pa.DataType) -> Callable[[ColumnStatistics], tuple[Json, Json]]:
    """Return the function that gives the lowest and the highest value of a column of this type, given that both are known; `None`
    where Delta has no form that is certain to bound.
    """
    if types.is_struct(kind):
        return lambda known: (None, None)
    if types.is_date32(kind):
        return lambda known: (_text(known.low, pa.int32(), kind), _text(known.high, pa.int32(), kind))
    if types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return lambda known: (_time(known.low, 0, zone), _time(known.high, 1, zone))
    if types.is_decimal(kind):
        return lambda known: (_exact(known.low), _exact(known.high))
    return _finite if types.is_floating(kind) else lambda known: (known.low, known.high)


def _finite(known: ColumnStatistics) -> tuple[Json, Json]:
    low, high = known.low, known.high
    certain = known.nans == 0 and all(isinstance(one, float | int) and math.isfinite(one) for one in (low, high))
    return (low, high) if certain else (None, None)


def _time(value: Any, more: int, zone: str) -> str:
    """Return a time in Delta's milliseconds.

    :param more: the milliseconds added to it: an upper bound is raised.
    :param zone: the suffix that follows it.
    """
    ms = int(value) // _US_IN_MS + more
    try:  # a commit has one of these for each file and bound, and Arrow takes forty times as long
        text = (_EPOCH + ms * _MS).isoformat("T", "milliseconds")
    except OverflowError:  # beyond the year 9999, or before the year 1
        text = _text(ms, pa.int64(), _IN_MS).replace(" ", "T")
    return text + zone


def _exact(value: Any) -> float | None:
    """Return a decimal as a JSON number, if readers get the same decimal back from it."""
    number = float(value)
    return number if Decimal(repr(number)) == Decimal(value) else None


def _text(value: Any, whole: pa.DataType, kind: pa.DataType) -> str:
    return str(pa.scalar(value, whole).cast(kind).cast(pa.string()).as_py())
