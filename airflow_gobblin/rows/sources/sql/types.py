"""The names of types that `casts` may use, and their Arrow types.

Arrow is loaded when a type is needed, as the names are checked when a DAG file is parsed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

DECIMAL_DIGITS = 38
"""The most digits of a decimal, here and in Spark."""

_NAMED = ("int64", "float64", "string", "bool", "date", "timestamp", "timestamp[UTC]", "binary")
_ROUNDED = "rounded "
_ROUNDABLE = ("int64", "float64", "decimal(precision,scale)")
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")

TYPE_NAMES = (*_NAMED, "decimal(precision,scale)", *(f"{_ROUNDED}{name}" for name in _ROUNDABLE))
"""The names that `casts` may use. A cast refuses a number that it would change, unless it is declared to round."""


def is_type_name(name: str) -> bool:
    """Return whether `casts` may name this type."""
    if rounds(name):
        name = name.removeprefix(_ROUNDED)
        return (name in _ROUNDABLE or name.startswith("decimal")) and is_type_name(name)
    found = _DECIMAL.fullmatch(name)
    return _fits(int(found[1]), int(found[2])) if found else name in _NAMED


def rounds(name: str) -> bool:
    """Return whether a cast is declared to round."""
    return name.startswith(_ROUNDED)


def that_rounds(name: str) -> str | None:
    """Return the rounding cast to the same type, or `None` if there is none, or it already is one."""
    rounded = f"{_ROUNDED}{name}"
    return rounded if not rounds(name) and is_type_name(rounded) else None


def decimal_type(precision: int, scale: int) -> pa.DataType | None:
    """Return a decimal type, or `None` if it has too many digits."""
    import pyarrow as pa

    return pa.decimal128(precision, scale) if _fits(precision, scale) else None


def parse_type(name: str) -> pa.DataType | None:
    """Return the Arrow type of a name, or `None` if there is none."""
    import pyarrow as pa

    name = name.removeprefix(_ROUNDED)
    if found := _DECIMAL.fullmatch(name):
        return decimal_type(int(found[1]), int(found[2]))
    special = {"date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamp[UTC]": pa.timestamp("us", "UTC")}
    return special.get(name) or (pa.type_for_alias(name) if name in _NAMED else None)


def _fits(precision: int, scale: int) -> bool:
    return 0 <= scale <= precision and 0 < precision <= DECIMAL_DIGITS
