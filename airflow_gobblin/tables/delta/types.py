"""Columns of Delta tables: what each type of Arrow becomes there, and what Delta can't hold, by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from airflow_gobblin.errors import SchemaConflictError, TableError

__all__ = ["check_added", "check_partitions", "delta_schema", "empty_partition", "has_plain_timestamps"]

_NAMES_CANT_HAVE = frozenset(" ,;{}()\n\t=")
"""Characters that Spark refuses in column names unless a table maps its columns, which deltalake doesn't."""
_SAME = (
    *(
        types.is_boolean,
        types.is_int8,
        types.is_int16,
        types.is_int32,
        types.is_int64,
        types.is_float32,
        types.is_float64,
    ),
    *(types.is_string, types.is_binary, types.is_date32),
)
_AS_STRING = (types.is_large_string, types.is_string_view)
_AS_BINARY = (types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
_LISTS = (types.is_list, types.is_large_list, types.is_fixed_size_list)


def delta_schema(schema: pa.Schema, name: str) -> pa.Schema:
    """Return a schema as a Delta table gives it back: times in microseconds and, if they have a zone, in UTC.

    :param name: the table, for the error.
    :raises SchemaConflictError: Delta can't hold a column, or can't under its name.
    """
    counted = Counter(column.name.lower() for column in schema)
    for column in schema:
        if counted[column.name.lower()] > 1:
            raise _refused(name, column.name, "its name differs from that of another column at most by case")
    return pa.schema([_column(column, name, column.name) for column in schema])


def has_plain_timestamps(kind: pa.DataType | pa.Schema) -> bool:
    """Return whether it has times without a zone, which need a feature of the protocol."""
    if isinstance(kind, pa.DataType) and types.is_timestamp(kind):
        return kind.tz is None
    if isinstance(kind, pa.Schema) or types.is_struct(kind):
        return any(has_plain_timestamps(field.type) for field in kind)
    if types.is_map(kind):
        return has_plain_timestamps(kind.key_type) or has_plain_timestamps(kind.item_type)
    return types.is_list(kind) and has_plain_timestamps(kind.value_type)


def check_added(old: pa.Schema, new: pa.Schema, name: str) -> tuple[pa.Field, ...]:
    """Return the columns that are added to a table.

    :raises SchemaConflictError: one isn't nullable, or a column is gone or has another type: deltalake doesn't write tables with
        the feature that widens types.
    """
    before, after = ({column.name: column for column in schema} for schema in (old, new))
    for column in old:
        if column.name not in after:
            raise _refused(name, column.name, "it is to be removed")
        if not after[column.name].type.equals(column.type):
            raise _refused(name, column.name, f"it is to become {after[column.name].type}, and types of Delta are kept")
    added = tuple(column for column in new if column.name not in before)
    for column in added:
        if not column.nullable:
            raise _refused(name, column.name, "it is new, and must be nullable then")
    return added


def check_partitions(columns: Iterable[str], rows: pa.RecordBatch, subject: str) -> None:
    """Refuse rows with a value that Delta can't partition by.

    :param columns: those of the partition.
    :param subject: whose rows they are, as errors name it.
    :raises TableError: one has an empty text.
    """
    for name in columns:
        values = rows.column(name)
        if types.is_string(values.type) and pc.any(pc.equal(values, "")).as_py():
            raise empty_partition(f"column {name!r} of {subject}")


def empty_partition(subject: str) -> TableError:
    """Return the error for an empty text in a partition column."""
    return TableError(
        operation="publish to",
        subject=subject,
        cause="Delta takes an empty text in a partition column for null",
        hint="Convert it, leave such rows out by a check, or partition otherwise.",
    )


def _column(column: pa.Field, name: str, path: str) -> pa.Field:
    if not column.name or set(column.name) & _NAMES_CANT_HAVE:
        raise _refused(name, path, "its name is empty, or has one of ' ,;{}()=', a tab or a new line")
    return pa.field(column.name, _type(column.type, name, path), column.nullable)


def _type(kind: pa.DataType, name: str, path: str) -> pa.DataType:
    if any(test(kind) for test in _SAME):
        return kind
    if any(test(kind) for test in _AS_STRING):
        return pa.string()
    if any(test(kind) for test in _AS_BINARY):
        return pa.binary()
    if types.is_date64(kind):
        return pa.date32()
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_dictionary(kind):
        return _type(kind.value_type, name, path)
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct([_column(field, name, f"{path}.{field.name}") for field in kind])
    if types.is_map(kind):
        item = pa.field("value", _type(kind.item_type, name, f"{path}.value"), kind.item_field.nullable)
        return pa.map_(_type(kind.key_type, name, f"{path}.key"), item)
    if any(test(kind) for test in _LISTS):
        return pa.list_(pa.field("element", _type(kind.value_type, name, f"{path}.element"), kind.value_field.nullable))
    raise _refused(name, path, f"Delta has no type for {kind}")


def _refused(name: str, column: str, cause: str) -> SchemaConflictError:
    return SchemaConflictError(
        operation="publish to",
        subject=f"column {column!r} of {name}",
        cause=cause,
        hint="Convert, rename or leave out the column.",
    )
