"""Registration of the records that can be decoded: the kinds of this package, and those of modules named by the DAG author.

A kind is looked up only among the classes registered by imported code. A driver and a Spark task import these modules before they
decode anything; an Airflow task imports the author's modules once something isn't registered without them. Their names come from
the DAG's code, never from a record.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TypeVar

from airflow_gobblin.errors import ConfigurationError

__all__ = ["await_kinds", "built_in_modules", "import_kinds", "import_named", "import_steps", "look_up"]

T = TypeVar("T")

_STEPS = ("airflow_gobblin.steps", "airflow_gobblin.tables")
_BUILT_IN = (
    "airflow_gobblin.rows.sources",
    "airflow_gobblin.rows.sinks",
    "airflow_gobblin.rows.converters",
    "airflow_gobblin.copy.conversion",
)
_WORKS = (
    "airflow_gobblin.rows.work",
    "airflow_gobblin.copy.work",
    "airflow_gobblin.stages.frames",
)


def built_in_modules() -> Iterator[str]:
    """Yield the modules of the built-in works, sources, sinks, converters (those of mirrors, too), steps and tables."""
    yield from _WORKS
    for folder in (*_BUILT_IN, *_STEPS):
        yield from _modules_in(folder)


@cache
def _modules_in(folder: str) -> tuple[str, ...]:
    """List the modules of a folder, once: looking for them takes a millisecond, and each Spark task has them all imported."""
    return tuple(found.name for found in pkgutil.iter_modules(importlib.import_module(folder).__path__, f"{folder}."))


def import_kinds(code: Iterable[str] = ()) -> None:
    """Import the built-in works, sources, sinks, converters and steps, and the author's modules. Safe to repeat.

    :raises ConfigurationError: an author's module can't be imported.
    """
    for module in built_in_modules():
        importlib.import_module(module)
    for name in code:
        _import_code(name)


def await_kinds(code: Iterable[str]) -> None:
    """Have the author's modules imported once something isn't registered without them: those with the functions of stages take a
    second to load Spark, and most tasks call none.
    """
    _awaited.update(dict.fromkeys(code))


def look_up(known: Mapping[str, T], name: str) -> T | None:
    """Return what is registered under a name; if nothing is, import the awaited modules until something is.

    :raises ConfigurationError: one of them can't be imported.
    """
    for module in [*_awaited]:
        if name in known:
            break
        _import_code(module)
        _awaited.pop(module, None)
    return known.get(name)


_awaited: dict[str, None] = {}


def _import_code(name: str) -> None:
    import_named(
        name,
        f"module {name!r} of `code=[...]`",
        "It goes to Spark: it may import nothing of Airflow, and only what is installed there or shipped with it.",
    )


@cache
def import_steps() -> None:
    """Import the built-in steps and tables, which is all that a reader of a journal needs: neither sources nor Arrow."""
    for folder in _STEPS:
        for module in _modules_in(folder):
            importlib.import_module(module)


def import_named(name: str, subject: str, hint: str) -> None:
    """Import a module named by a user.

    :param subject: its name in errors.
    :param hint: the hint of the error.
    :raises ConfigurationError: it can't be imported.
    """
    if not all(name.split(".")):
        raise ConfigurationError(operation="import", subject=subject, cause="it is not a module's name", hint=hint)
    try:
        importlib.import_module(name)
    except Exception as error:  # a module may raise anything on import
        raise ConfigurationError(operation="import", subject=subject, cause=error, hint=hint) from error
