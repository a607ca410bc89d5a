"""The names of types that `casts` may use, and the Arrow types that they stand for."""

from __future__ import annotations

import re

import pyarrow as pa

DECIMAL_DIGITS = 38
"""The most digits of a decimal, here and in Spark."""

_NAMED = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp[UTC]": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")

TYPE_NAMES = (*_NAMED, "decimal(precision,scale)")
"""What `casts` may name."""


def decimal_type(precision: int, scale: int) -> pa.DataType | None:
    """A decimal type, or `None` if it has too many digits."""
    return pa.decimal128(precision, scale) if 0 <= scale <= precision and 0 < precision <= DECIMAL_DIGITS else None


def parse_type(name: str) -> pa.DataType | None:
    """The Arrow type of a name, or `None` if it is none."""
    found = _DECIMAL.fullmatch(name)
    return decimal_type(int(found[1]), int(found[2])) if found else _NAMED.get(name)
