"""Schemas of Avro, and the Arrow columns of their fields.

Source: https://avro.apache.org/docs/1.12.0/specification/.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa


def parse_json(text: str, subject: str) -> Any:
    """Return a schema's JSON. A logical type `uuid` is left out: its values stay the text, or bytes, that they are.

    :raises ConfigurationError: it isn't JSON.
    """
    try:
        return json.loads(text, object_hook=_without_uuid)
    except ValueError as error:
        raise ConfigurationError(
            operation="use", subject=subject, cause=f"it is not JSON: {error}", hint="Give Avro's schema as JSON text."
        ) from error


def _without_uuid(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("logicalType") == "uuid":
        del part["logicalType"]
    return part


def arrow_columns(schema: Any, subject: str) -> pa.Schema:
    """Return the fields of a record as Arrow columns, each of which may be null.

    :param schema: with every named type in place of its name, as `fastavro.schema.expand_schema` returns it.
    :param subject: the schema's name in errors.
    :raises ConfigurationError: it isn't a record, or a field can't be a column.
    """
    import pyarrow as pa

    if not isinstance(schema, Mapping) or schema.get("type") != "record" or not schema.get("fields"):
        raise _refused(subject, "it is not a record with fields", "Read other values as BytesValues().")
    return pa.schema(
        [pa.field(one["name"], _arrow_type(one["type"], one["name"], subject)) for one in schema["fields"]]
    )


def _arrow_type(avro: Any, path: str, subject: str) -> pa.DataType:
    import pyarrow as pa

    if isinstance(avro, list):
        return _of_union(avro, path, subject)
    if isinstance(avro, str):
        avro = {"type": avro}
    kind, logical = avro["type"], str(avro.get("logicalType", ""))
    if not isinstance(kind, str):
        return _arrow_type(kind, path, subject)
    if kind in ("bytes", "fixed"):
        if logical == "decimal":
            return _decimal(avro, path, subject)
        return pa.binary() if kind == "bytes" else pa.binary(avro["size"])
    match kind:
        case "array":
            return pa.list_(_arrow_type(avro["items"], f"{path}[]", subject))
        case "map":
            return pa.map_(pa.string(), _arrow_type(avro["values"], f"{path}{{}}", subject))
        case "record":
            parts = [
                (one["name"], _arrow_type(one["type"], f"{path}.{one['name']}", subject)) for one in avro["fields"]
            ]
            if parts:
                return pa.struct([pa.field(name, part) for name, part in parts])
    found = _logical(logical, kind) or _plain(kind)
    if found is None:
        cause = f"field {path!r} is of type {kind!r}, which no column can be"
        raise _refused(subject, cause, "A type that contains itself, or is always null, is none of a table's.")
    return found


def _of_union(options: list[Any], path: str, subject: str) -> pa.DataType:
    some = [one for one in options if one not in ("null", {"type": "null"})]
    if len(some) == 1:
        return _arrow_type(some[0], path, subject)
    names = ", ".join(one if isinstance(one, str) else str(one.get("name") or one["type"]) for one in some)
    cause = f"field {path!r} is a union of {names or 'null alone'}"
    raise _refused(subject, cause, "A column has one type: give a schema without that field, AvroValues(schema=…).")


def _decimal(avro: Mapping[str, Any], path: str, subject: str) -> pa.DataType:
    from airflow_gobblin.rows.sources.sql.types import DECIMAL_DIGITS, decimal_type

    found = decimal_type(int(avro["precision"]), int(avro.get("scale", 0)))
    if found is None:
        cause = f"field {path!r} is a decimal of {avro['precision']} digits, and a column has {DECIMAL_DIGITS} at most"
        raise _refused(subject, cause, "Give a schema without that field, AvroValues(schema=…).")
    return found


def _plain(kind: str) -> pa.DataType | None:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "enum": pa.string(),
    }.get(kind)


def _logical(logical: str, kind: str) -> pa.DataType | None:
    """Return the type of a logical type; one that is unknown, or on another type than in Avro, is ignored, as Avro requires."""
    import pyarrow as pa

    return {
        ("date", "int"): pa.date32(),
        ("time-millis", "int"): pa.time32("ms"),
        ("time-micros", "long"): pa.time64("us"),
        ("timestamp-millis", "long"): pa.timestamp("ms", "UTC"),
        ("timestamp-micros", "long"): pa.timestamp("us", "UTC"),
        ("local-timestamp-millis", "long"): pa.timestamp("ms"),
        ("local-timestamp-micros", "long"): pa.timestamp("us"),
    }.get((logical, kind))


def _refused(subject: str, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="use", subject=subject, cause=cause, hint=hint)
