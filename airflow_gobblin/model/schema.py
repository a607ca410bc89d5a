"""Arrow schemas on the wire, and how a published schema may change: a new nullable column is accepted, nothing else."""

from __future__ import annotations

import base64
from collections import Counter

import pyarrow as pa

from airflow_gobblin.errors import RecordError, SchemaConflictError


def encode(schema: pa.Schema) -> str:
    """Encode a schema as text: Arrow's own IPC form in base64, without metadata."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def decode(text: str) -> pa.Schema:
    """Decode a schema encoded by `encode`.

    :raises RecordError: the text isn't a schema.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (ValueError, OSError, pa.ArrowException) as error:
        raise RecordError(operation="decode", subject="an Arrow schema", cause=error) from error


def includes(text: str, other: str) -> bool:
    """Return whether an encoded schema has all columns of another one, with the same types or wider ones."""
    if text == other:
        return True
    mine = {field.name: field.type for field in decode(text)}
    return all(
        field.name in mine and (mine[field.name] == field.type or is_wider(field.type, mine[field.name]))
        for field in decode(other)
    )


def is_wider(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether every value of one type is a value of another one of its kind: integers, floating-point numbers, decimals of
    one scale, and texts and bytes of Arrow's two sizes.
    """
    is_ = pa.types
    if is_.is_integer(narrow) and is_.is_integer(wide):
        if is_.is_signed_integer(narrow):
            return bool(is_.is_signed_integer(wide) and wide.bit_width > narrow.bit_width)
        return bool(wide.bit_width > narrow.bit_width)
    if is_.is_floating(narrow) and is_.is_floating(wide):
        return bool(wide.bit_width > narrow.bit_width)
    if is_.is_decimal(narrow) and is_.is_decimal(wide):
        return bool(wide.scale == narrow.scale and wide.precision > narrow.precision)
    return (narrow, wide) in ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary()))


def evolve(published: pa.Schema | None, planned: pa.Schema, urn: str) -> pa.Schema:
    """Combine the published schema and the planned one into the schema to publish.

    Columns keep their published order; new ones come last. A column that the source no longer has is kept, and null from now on.

    :raises SchemaConflictError: a column changed its type, a new one isn't nullable, or one that isn't nullable is gone; or two
        columns have the same name.
    """
    problems = [f"two columns are named {name!r}" for name, count in Counter(planned.names).items() if count > 1]
    new = {field.name: field for field in planned}
    published = planned if published is None else published
    for field in published:
        now = new.pop(field.name, None)
        if now is None:
            if not field.nullable:
                problems.append(f"column {field.name!r} ({field.type}, not null) is gone")
        elif now.type != field.type:
            problems.append(f"column {field.name!r} was {field.type} and is now {now.type}")
        elif now.nullable and not field.nullable:
            problems.append(f"column {field.name!r} was not null and may now be null")
    problems += [
        f"new column {name!r} ({field.type}) is not nullable" for name, field in new.items() if not field.nullable
    ]
    if problems:
        raise SchemaConflictError(
            operation="plan",
            subject=f"dataset {urn!r}",
            cause="; ".join(problems),
            hint="Cast the columns back in the source's `casts`, or publish under another URN.",
        )
    return pa.schema([*published, *new.values()])
