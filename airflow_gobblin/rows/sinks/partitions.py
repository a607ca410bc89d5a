"""Partition folders in Hive's style, `country=DE/`, for values of every kind, even those that can't name a folder.

Files keep their partition columns, so a name needn't carry its value: it distinguishes values, and a value that fits can be
read from it by everybody who reads Hive's style (Spark, Arrow, DuckDB, Trino).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for null. Its readers take an empty text for null, too, so an empty one isn't written that way."""
_MOST_BYTES = 200
"""The longest name of a value; file systems take 255 bytes, and the column's name is in front."""
_HASH_DIGITS = 20
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")
"""The characters that Hive and Spark escape in names; all are ASCII, since Spark reads each escape as one character."""


def folder_of(columns: Sequence[str], values: Sequence[pa.Scalar]) -> str:
    """Return the path of the folder for a partition: `country=DE/day=2024-02-29`."""
    return "/".join(f"{escaped(column)}={_name(value)}" for column, value in zip(columns, values, strict=True))


def escaped(text: str) -> str:
    """Return a text with Hive's escapes."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def can_be_partition(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be a partition column: its values are single ones, with a text."""
    import pyarrow as pa

    tests = (
        *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_string),
        *(pa.types.is_large_string, pa.types.is_string_view, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp),
    )
    return any(test(kind) for test in tests)


def partition_folder_of(path: str, depth: int) -> str:
    """Return the partition folder that a file at a path lies in, with `/` at its end; empty if there are no partition columns.

    :param depth: the number of partition columns.
    """
    return "".join(f"{part}/" for part in path.split("/")[-1 - depth : -1])


def _name(value: pa.Scalar) -> str:
    text = _text(value)
    if text is None:
        return NULL
    name = escaped(text)
    if name and name != NULL and len(name.encode()) <= _MOST_BYTES:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    start = name.encode()[: _MOST_BYTES // 2].decode(errors="ignore").rstrip("%0123456789ABCDEF")
    return f"{start}__sha256_{digest}"


def _text(value: pa.Scalar) -> str | None:
    """Return the value in the form that Spark and Hive give it; `None` for null."""
    import pyarrow as pa

    if not value.is_valid:
        return None
    if pa.types.is_floating(value.type):
        number = float(value.as_py())
        if math.isnan(number):
            return "NaN"
        return repr(number) if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")
    text = str(value.cast(pa.string()).as_py())
    if pa.types.is_timestamp(value.type) or pa.types.is_time(value.type):
        return re.sub(r"\.?0+(Z?)$", r"\1", text) if "." in text else text
    return text
