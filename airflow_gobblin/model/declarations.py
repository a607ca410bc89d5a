"""Checks that all declarations of authors share: the dataclasses of a job and of its parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any

from airflow_gobblin.errors import ConfigurationError

__all__ = ["check_tuples"]


def check_tuples(given: object) -> None:
    """Check that no field of several values was given a single one: a text would be taken for its letters.

    :param given: a dataclass.
    :raises ConfigurationError: one was.
    """
    declared: Any = type(given)
    for name in _tuples(declared):
        value = getattr(given, name)
        if value is not None and (isinstance(value, str) or not isinstance(value, Iterable)):
            shown = repr(value) if isinstance(value, str) else "…"
            raise ConfigurationError(
                operation="use",
                subject=f"{name}={shown} of {type(given).__name__}",
                cause="it is not a tuple" if isinstance(value, str) else f"a {type(value).__name__} is not a tuple",
                hint=f"Write {name}=({shown},).",
            )


@cache
def _tuples(cls: Any) -> tuple[str, ...]:
    """The fields of a dataclass whose type is a tuple; its module has postponed annotations, which are texts."""
    return tuple(f.name for f in fields(cls) if str(f.type).startswith("tuple["))
