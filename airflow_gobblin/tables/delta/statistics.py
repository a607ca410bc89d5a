"""What Delta's log says of a data file: its partition, and its statistics, each value in Delta's form.

Values come in the form that records have: dates and times as integers, in the units that Delta's types have; decimals as text.
Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md (Partition Value Serialization, Per-file Statistics).
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types

from airflow_gobblin.errors import TableError
from airflow_gobblin.model.table import ColumnStatistics, DataFile
from airflow_gobblin.model.watermark import Json

__all__ = ["partition_value", "statistics"]

_MS = 1000
_IN_MS = pa.timestamp("ms")


def partition_value(value: Json, kind: pa.DataType) -> str | None:
    """Return the value of a partition column.

    :raises TableError: it is an empty text, which Delta takes for null.
    """
    if value is None:
        return None
    if value == "":
        raise TableError(
            operation="publish to",
            subject="a partition",
            cause="Delta takes an empty text in a partition column for null",
            hint="Convert it, or partition otherwise.",
        )
    if isinstance(value, bool):
        return str(value).lower()
    if types.is_date32(kind):
        return _text(value, pa.int32(), kind)
    if types.is_timestamp(kind):
        return _text(value, pa.int64(), pa.timestamp("us"))
    return str(value)


def statistics(file: DataFile, schema: pa.Schema) -> dict[str, Any]:
    """Return the statistics of a file: bounds and counts of nulls of all columns that readers compare, or of none.

    Where only some columns have bounds, deltalake's `to_pyarrow_dataset` was measured to leave out rows when another is compared.
    """
    lows, highs, nulls = {}, {}, {}
    for column in schema:
        if _is_never_compared(column.type):
            continue
        known = (file.columns or {}).get(column.name)
        low, high = (None, None) if known is None else _bounds(known, column.type)
        if known is None or low is None or high is None or known.nulls is None:
            return {"numRecords": file.rows}
        lows[column.name], highs[column.name], nulls[column.name] = low, high, known.nulls
    return {"numRecords": file.rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _is_never_compared(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_list(kind) or types.is_map(kind))


def _bounds(known: ColumnStatistics, kind: pa.DataType) -> tuple[Json, Json]:
    """Return the lowest and the highest value; `None` where Delta has no form for them that is certain to bound."""
    low, high = known.low, known.high
    if low is None or high is None or types.is_struct(kind):
        return None, None
    if types.is_date32(kind):
        return _text(low, pa.int32(), kind), _text(high, pa.int32(), kind)
    if types.is_timestamp(kind):
        return _time(low, kind, 0), _time(high, kind, 1)
    if types.is_decimal(kind):
        return _exact(low), _exact(high)
    if types.is_floating(kind):
        certain = known.nans == 0 and all(isinstance(one, float | int) and math.isfinite(one) for one in (low, high))
        return (low, high) if certain else (None, None)
    return low, high


def _time(value: Any, kind: pa.DataType, more: int) -> str:
    """Return a time in Delta's milliseconds.

    :param more: what is added to it: an upper bound is raised.
    """
    text = _text(value // _MS + more, pa.int64(), _IN_MS).replace(" ", "T")
    return f"{text}Z" if kind.tz else text


def _exact(value: Any) -> float | None:
    """Return a decimal as a number of JSON, if readers get the same one from it."""
    number = float(value)
    return number if Decimal(repr(number)) == Decimal(value) else None


def _text(value: Any, whole: pa.DataType, kind: pa.DataType) -> str:
    return str(pa.scalar(value, whole).cast(kind).cast(pa.string()).as_py())
