"""PostgreSQL's column types, and the Arrow types that they hold without loss.

Types without a counterpart in PostgreSQL are refused: nanoseconds, nested types other than lists of plain values, durations. So
are columns that somebody gave a type that changes values: `char(n)` pads them, `timestamp(3)` rounds them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.errors import SchemaConflictError, TableError
from airflow_gobblin.tables.postgres import OWN_SCHEMA, quoted, why_no_name

_PLAIN = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
"""Types by their names in PostgreSQL; `varchar` is `text`, `numeric` has parameters, `json` is an extension in Arrow."""
_SQL = {kind: name for name, kind in _PLAIN.items()}
_HELD_BY = {
    pa.int8(): pa.int16(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}
_WIDER = {
    "int2": ("int4", "int8", "float4", "float8"),
    "int4": ("int8", "float8"),
    "float4": ("float8",),
}
_DAYS = (-2_440_588, 2_145_042_905)
"""The first and the last day that PostgreSQL has, counted from 1970; its infinities lie beyond them."""
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (1 << 63) - 1)
_NUL = re.compile(rb"\0")
_SYSTEM_COLUMNS = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
_DIGITS = 76
"""The most digits of a decimal in Arrow."""


def held_by(kind: pa.DataType) -> pa.DataType | None:
    """Return, as an Arrow type, the PostgreSQL column type that holds all values of a type; `None` if there is none."""
    if kind in _SQL:
        return kind
    if pa.types.is_dictionary(kind):
        return held_by(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return None if kind.unit == "ns" else pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_decimal(kind):
        return decimal(kind.precision, kind.scale)
    if is_json(kind):
        return kind
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = None if _is_nested(kind.value_type) or is_json(kind.value_type) else held_by(kind.value_type)
        return None if element is None else pa.list_(element)
    return _HELD_BY.get(kind)


def sql_type(kind: pa.DataType) -> str:
    """Return the SQL of a type that `held_by` returned."""
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return "json" if is_json(kind) else _SQL[kind]


def arrow_type(base: str, modifier: int, element: str = "") -> pa.DataType:
    """Return the type of a table's column, whoever made it. A type that our rows can't be written to is opaque.

    :param base: its name in PostgreSQL; for an array, anything.
    :param modifier: its parameters, as the catalog keeps them; -1: none.
    :param element: the name of an array's elements.
    """
    if element:
        kind = arrow_type(element, modifier)
        return (
            pa.opaque(pa.string(), f"{element}[]", "PostgreSQL") if isinstance(kind, pa.OpaqueType) else pa.list_(kind)
        )
    if base == "numeric" and modifier >= 4:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 1024) - 1024
        kind = decimal(precision, scale)
        if kind is not None:
            return kind
    if base == "json":
        return pa.json_()
    if base == "varchar" or (base in _PLAIN and modifier < 0):
        return _PLAIN["text" if base == "varchar" else base]
    return pa.opaque(pa.string(), base, "PostgreSQL")


def decimal(precision: int, scale: int) -> pa.DataType | None:
    """Return the narrowest decimal of Arrow, or `None` if there is none."""
    if not 0 <= scale <= precision <= _DIGITS:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def is_json(kind: pa.DataType) -> bool:
    """Return whether a type is Arrow's JSON type."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"


def can_widen(present: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether each value of a column's type is also one of another type, so that PostgreSQL may convert it."""
    if pa.types.is_decimal(present) and pa.types.is_decimal(wanted):
        more = wanted.scale - present.scale
        return bool(more >= 0 and wanted.precision - present.precision >= more)
    if pa.types.is_integer(present) and pa.types.is_decimal(wanted):
        return bool(wanted.precision - wanted.scale >= {16: 5, 32: 10, 64: 19}[present.bit_width])
    return _SQL.get(wanted, "") in _WIDER.get(_SQL.get(present, ""), ())


def fitted(schema: pa.Schema, subject: str) -> pa.Schema:
    """Return a schema as a table has it, without metadata.

    :param subject: whose schema it is, as errors name it.
    :raises SchemaConflictError: PostgreSQL can't hold a column, because of its type or its name.
    """
    unfit = [f"column {field.name!r} ({why})" for field in schema if (why := _why_unfit(field))]
    unfit += [
        f"column {name!r} (is listed twice)" for name in sorted({n for n in schema.names if schema.names.count(n) > 1})
    ]
    if unfit:
        raise SchemaConflictError(
            operation="plan",
            subject=subject,
            cause=f"PostgreSQL can't hold {', '.join(unfit)}",
            hint="Cast or rename these columns, or leave them out.",
        )
    return pa.schema([pa.field(field.name, held_by(field.type), field.nullable) for field in schema])


def _why_unfit(field: pa.Field) -> str:
    if field.name.startswith(OWN_SCHEMA) or field.name in _SYSTEM_COLUMNS:
        return "the name is reserved"
    return why_no_name(field.name) or ("" if held_by(field.type) is not None else f"there is no type for {field.type}")


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def converted(batch: pa.RecordBatch, schema: pa.Schema, subject: str) -> list[pa.Array]:
    """Return the columns of a batch exactly as the driver sends them, with nulls for a column that it lacks.

    :param schema: the table's, as `fitted` returns it.
    :raises TableError: a value can't be held; the error names the column.
    """
    arrays = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        kind = pa.string() if is_json(field.type) else field.type
        if place < 0:
            arrays.append(pa.nulls(batch.num_rows, kind))
            continue
        array = batch.column(place)
        try:
            array = array.storage if is_json(array.type) else array
            arrays.append(array if array.type == kind else array.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TableError(operation="write", subject=f"column {field.name!r} of {subject}", cause=error) from error
        _check_times(arrays[-1], field.name, subject)
    return arrays


def check_values(rows: pa.RecordBatch, subject: str) -> None:
    """Refuse rows with a value that PostgreSQL can't hold, though it can hold its type.

    :param rows: with the columns of a schema that `fitted` returns.
    :param subject: whose rows they are, as errors name it.
    :raises TableError: there is one; the error names the column.
    """
    for field, array in zip(rows.schema, rows.columns, strict=True):
        _check_times(array, field.name, subject)
        _check_texts(array, field.name, subject)


def _check_texts(array: pa.Array, name: str, subject: str) -> None:
    values = _values(array)
    if not pa.types.is_string(values.type) or not len(values):
        return
    _, offsets, data = values.buffers()
    bounds = memoryview(offsets).cast("i")
    start, end = bounds[values.offset], bounds[values.offset + len(values)]
    if data is None or _NUL.search(data, start, end) is None:
        return  # searching all bytes takes a tenth of the time, but sees those of nulls too
    if pc.any(pc.match_substring(values, "\0")).as_py():
        raise TableError(
            operation="write",
            subject=f"column {name!r} of {subject}",
            cause="it has a text with the character NUL, which PostgreSQL can't hold",
            hint="Replace the character in the source's query or by a converter, or leave such rows out by a check.",
        )


def _check_times(array: pa.Array, name: str, subject: str) -> None:
    """Refuse dates and times that PostgreSQL would take for its infinities, or for different ones."""
    values = _values(array)
    if pa.types.is_date32(values.type):
        bits, (low, high) = pa.int32(), _DAYS
    elif pa.types.is_timestamp(values.type):
        bits, (low, high) = pa.int64(), _MICROSECONDS
    else:
        return
    found = pc.min_max(values.view(bits))
    if found["min"].is_valid and not low <= found["min"].as_py() <= found["max"].as_py() <= high:
        raise TableError(
            operation="write",
            subject=f"column {name!r} of {subject}",
            cause="it has a date or time that PostgreSQL doesn't: they begin in the year 4714 B.C., and dates end in 5874897",
            hint="Convert it, or leave such rows out by a check.",
        )


def _values(array: pa.Array) -> pa.Array:
    """Return the values of a column: the texts of JSON, and the items of lists."""
    if is_json(array.type):
        return array.storage
    return array.flatten() if pa.types.is_list(array.type) else array


@dataclass(frozen=True)
class PresentColumn:
    """A column that a table has.

    :param computed: whether PostgreSQL computes its values, so that none can be written.
    """

    name: str
    type: pa.DataType
    nullable: bool
    computed: bool = False


def changes(present: Sequence[PresentColumn], wanted: pa.Schema, subject: str) -> list[str]:
    """Return the actions of ALTER TABLE that give a table the columns of a schema.

    :param wanted: as `fitted` returns it. A column of the table that it lacks stays.
    :raises SchemaConflictError: a column can't be changed without loss.
    """
    known = {column.name: column for column in present}
    actions = []
    for field in wanted:
        name = quoted(field.name)
        column = known.get(field.name)
        if column is None:
            actions.append(f"ADD COLUMN {name} {sql_type(field.type)}")
            continue
        if column.type != field.type:
            if not can_widen(column.type, field.type):
                raise SchemaConflictError(
                    operation="change the columns of",
                    subject=subject,
                    cause=f"column {field.name!r} has {column.type}, which isn't widened to {field.type}",
                )
            actions.append(f"ALTER COLUMN {name} TYPE {sql_type(field.type)}")
        if field.nullable and not column.nullable:
            actions.append(f"ALTER COLUMN {name} DROP NOT NULL")
    return actions
