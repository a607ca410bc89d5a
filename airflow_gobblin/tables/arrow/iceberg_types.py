"""Columns of Iceberg tables: what each type of Arrow becomes there, and what Iceberg can't hold, by column."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types

from airflow_gobblin.errors import SchemaConflictError

__all__ = ["bare", "has_ids", "held"]

_FIELD_ID = b"PARQUET:field_id"


def held(schema: pa.Schema, subject: str) -> pa.Schema:
    """Return a schema as Iceberg holds it: times with a zone as instants in UTC, unsigned numbers in the next wider type.

    The metadata of its fields, such as ids, are kept.

    :raises SchemaConflictError: it has no type for some of the columns, which are all named.
    """
    kinds = [(field, _held(field.type)) for field in schema]
    unfit = [f"column {field.name!r} ({field.type})" for field, kind in kinds if kind is None]
    if unfit:
        raise SchemaConflictError(
            operation="hold a dataset in",
            subject=subject,
            cause=f"Iceberg has no type for {', '.join(unfit)}",
            hint="Cast the columns in the source's `casts`, or leave them out.",
        )
    return pa.schema([field.with_type(kind) for field, kind in kinds])


def has_ids(schema: pa.Schema) -> bool:
    """Return whether each column has its id in the table."""
    return all(field.metadata is not None and _FIELD_ID in field.metadata for field in schema)


def bare(schema: pa.Schema) -> pa.Schema:
    """Return a schema without ids: readers find the columns of its files by their names."""
    return pa.schema([_bare(field) for field in schema])


def _bare(field: pa.Field) -> pa.Field:
    kind = _with_fields(field.type, _bare) if types.is_nested(field.type) else field.type
    return pa.field(field.name, kind, field.nullable)


def _held(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of another one without loss; `None` if there is none."""
    if types.is_nested(kind):
        return _with_fields(kind, _held_field)
    if types.is_dictionary(kind):
        return _held(kind.value_type)
    if types.is_timestamp(kind):
        return None if kind.unit == "ns" else pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_time(kind):
        return None if kind.unit == "ns" else pa.time64("us")
    if types.is_integer(kind):
        bits = kind.bit_width + (1 if types.is_unsigned_integer(kind) else 0)
        return pa.int32() if bits <= 32 else pa.int64() if bits <= 64 else None
    if types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 and kind.scale >= 0 else None
    others = {pa.float16(): pa.float32(), pa.large_string(): pa.string(), pa.string_view(): pa.string()}
    others |= {pa.large_binary(): pa.binary(), pa.binary_view(): pa.binary()}
    tests = (
        *(types.is_boolean, types.is_floating, types.is_string, types.is_date32, types.is_binary),
        types.is_fixed_size_binary,
    )
    return others.get(kind, kind if any(test(kind) for test in tests) or isinstance(kind, pa.UuidType) else None)


def _held_field(field: pa.Field) -> pa.Field | None:
    kind = _held(field.type)
    return None if kind is None else field.with_type(kind)


def _with_fields(kind: pa.DataType, made: Callable[[pa.Field], pa.Field | None]) -> pa.DataType | None:
    """Return a list, struct or map type with its fields converted; `None` if one can't be."""
    if types.is_struct(kind):
        fields = [made(field) for field in kind]
        return pa.struct(fields) if fields and all(field is not None for field in fields) else None
    if types.is_map(kind):
        key, item = made(kind.key_field), made(kind.item_field)
        return None if key is None or item is None else pa.map_(key, item)
    value = made(kind.value_field) if hasattr(kind, "value_field") else None
    return None if value is None else pa.list_(value)
