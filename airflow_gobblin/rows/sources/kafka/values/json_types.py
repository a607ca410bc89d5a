"""The declared types of JSON's fields, and their Arrow types. They are checked when a DAG file is parsed, without Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.rows.sources.sql.types import is_type_name, parse_type, rounds

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = "int64, float64, string, bool, date, timestamp, timestamp[UTC], decimal(precision,scale)"


def check_fields(declared: object, path: str = "") -> None:
    """Check the declared types of an object's fields.

    :param path: the field that the object is in, with a period at its end.
    :raises ConfigurationError: there is no field, or a type isn't known.
    """
    if not isinstance(declared, Mapping) or not declared:
        raise _refused(path.rstrip(".") or "schema", declared, "an object has at least one field")
    for name, kind in declared.items():
        _check_type(kind, f"{path}{name}")


def _check_type(kind: object, path: str) -> None:
    if isinstance(kind, Mapping):
        check_fields(kind, f"{path}.")
    elif isinstance(kind, list | tuple):
        if len(kind) != 1:
            raise _refused(path, kind, "a list has one type for all its elements")
        _check_type(kind[0], f"{path}[]")
    elif not isinstance(kind, str) or kind == "binary" or rounds(kind) or not is_type_name(kind):
        raise _refused(path, kind, "there is no such type")


def arrow_fields(declared: Mapping[str, Json]) -> pa.Schema:
    """Return declared fields as Arrow columns, each of which may be null."""
    import pyarrow as pa

    return pa.schema([pa.field(name, _arrow_type(kind)) for name, kind in declared.items()])


def _arrow_type(kind: Json) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, Mapping):
        return pa.struct([*arrow_fields(kind)])
    if isinstance(kind, list | tuple):
        return pa.list_(_arrow_type(kind[0]))
    return parse_type(str(kind))


def _refused(path: str, kind: object, cause: str) -> ConfigurationError:
    return ConfigurationError(
        operation="use",
        subject=f"type {kind!r} of {path!r} in JsonValues(…)",
        cause=cause,
        hint=f"Use one of {_TYPES}; a mapping of fields for an object; or a list of one type.",
    )
