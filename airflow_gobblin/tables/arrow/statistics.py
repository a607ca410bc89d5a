"""Known facts about the columns of a data file, from what Parquet's writer gathered; and the form of single values in records.

A value in a record is JSON by its type: booleans, integers and texts as they are; floating-point numbers too, or as `NaN`,
`Infinity` and `-Infinity`; decimals as text; dates, times, timestamps and durations as integers in the unit of their type; binary
in base64. Null is null.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gobblin.model.table import ColumnStatistics
from airflow_gobblin.model.watermark import Json

MOST_CHARACTERS = 64
"""The most characters, or bytes, of a bound; a longer one is cut, and then raised if it is an upper one."""
_EXACT = Context(prec=76)
_DAY_MS = 86_400_000


def to_json(value: pa.Scalar) -> Json:
    """Return a value as records keep it."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_temporal(kind):
        return _json(value.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).as_py(), kind)
    return _json(value.as_py(), kind)


def from_json(value: Json, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a type that a record keeps.

    :raises ValueError: it isn't a value of this type.
    """
    made: Any = value
    try:
        if value is None:
            return pa.scalar(None, kind)
        if pa.types.is_temporal(kind):
            return pa.scalar(made, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
        if pa.types.is_decimal(kind):
            made = Decimal(made)
        elif pa.types.is_floating(kind):
            made = float(made)
        elif _is_binary(kind):
            made = base64.b64decode(made, validate=True)
        return pa.scalar(made, kind)
    except (TypeError, ArithmeticError, pa.ArrowException) as error:
        raise ValueError(f"{value!r} is no {kind}") from error


def column_statistics(
    metadata: pq.FileMetaData, schema: pa.Schema, nans: Mapping[str, int]
) -> dict[str, ColumnStatistics]:
    """Return the statistics of a file's columns, by their paths in Parquet. Nothing is known of two columns with one path.

    :param nans: how many NaNs the columns have, if any are floating-point numbers.
    """
    paths = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    times = Counter(paths)
    return {
        path: _statistics(metadata, number, kind, nans.get(path))
        for number, (path, kind) in enumerate(zip(paths, _leaves(schema), strict=True))
        if times[path] == 1
    }


def _leaves(schema: pa.Schema) -> Iterator[pa.DataType | None]:
    """Yield the type of each of Parquet's columns; `None` for those of lists and maps, whose bounds show nothing about a row."""
    for field in schema:
        yield from _leaves_of(field.type, in_list=False)


def _leaves_of(kind: pa.DataType, *, in_list: bool) -> Iterator[pa.DataType | None]:
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _leaves_of(kind.field(number).type, in_list=in_list)
    elif pa.types.is_map(kind):
        yield from _leaves_of(kind.key_type, in_list=True)
        yield from _leaves_of(kind.item_type, in_list=True)
    elif pa.types.is_nested(kind):
        yield from _leaves_of(kind.value_type, in_list=True)
    else:
        yield None if in_list else kind


def _statistics(metadata: pq.FileMetaData, number: int, kind: pa.DataType | None, nans: int | None) -> ColumnStatistics:
    size = values = nulls = 0
    counted = bounded = True
    lows, highs = [], []
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(number)
        found = column.statistics
        size += column.total_compressed_size
        values += column.num_values
        if found is None or not found.has_null_count:
            counted = bounded = False
            continue
        nulls += found.null_count
        if found.has_min_max and kind is not None:
            lows.append(_value(found.min_raw, kind))
            highs.append(_value(found.max_raw, kind))
        elif found.null_count < column.num_values:
            bounded = False
    known = bounded and bool(lows) and kind is not None and None not in lows and None not in highs
    low, high = (_cut(min(lows), kind), _raised(max(highs), kind)) if known else (None, None)
    return ColumnStatistics(size, values, nulls if counted else None, nans, low, high)


def _value(raw: Any, kind: pa.DataType) -> Any:
    """Return a bound from the form that Parquet holds it in: a number, a decimal, or bytes; `None` if it isn't known."""
    is_ = pa.types
    if is_.is_boolean(kind) or is_.is_float32(kind) or is_.is_float64(kind):
        return raw
    if is_.is_decimal(kind):
        unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
        return Decimal(unscaled).scaleb(-kind.scale, _EXACT)
    if is_.is_unsigned_integer(kind):
        return raw % (1 << (64 if kind.bit_width == 64 else 32))
    if is_.is_date64(kind):
        return raw * _DAY_MS
    if (is_.is_timestamp(kind) or is_.is_time(kind)) and kind.unit == "s":  # Parquet has no seconds
        return raw // 1000
    if is_.is_integer(kind) or is_.is_temporal(kind):
        return raw
    return raw if _is_text(kind) or _is_binary(kind) else None


def _json(value: Any, kind: pa.DataType) -> Json:
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.decode() if _is_text(kind) else base64.b64encode(value).decode()
    made: Json = value
    return made


def _cut(low: Any, kind: pa.DataType | None) -> Json:
    assert kind is not None
    if isinstance(low, bytes):
        low = low.decode()[:MOST_CHARACTERS].encode() if _is_text(kind) else low[:MOST_CHARACTERS]
    return _json(low, kind)


def _raised(high: Any, kind: pa.DataType | None) -> Json:
    """Return an upper bound; a long one is cut, and the last character that can be raised is raised by one."""
    assert kind is not None
    if not isinstance(high, bytes):
        return _json(high, kind)
    if _is_text(kind):
        text = high.decode()
        return text if len(text) <= MOST_CHARACTERS else _next_text(text[:MOST_CHARACTERS])
    if len(high) <= MOST_CHARACTERS:
        return _json(high, kind)
    raised = high[:MOST_CHARACTERS].rstrip(b"\xff")
    return _json(raised[:-1] + bytes([raised[-1] + 1]), kind) if raised else None


def _next_text(text: str) -> str | None:
    while text:
        last = ord(text[-1]) + 1
        if last == 0xD800:  # the code points of surrogates aren't characters
            last = 0xE000
        if last <= 0x10FFFF:
            return text[:-1] + chr(last)
        text = text[:-1]
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
