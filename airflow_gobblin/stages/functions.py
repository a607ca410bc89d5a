"""The functions of stages: PySpark functions by their registered names, and SQL.

An author's function is found by its name among those that imported modules have registered, never by the name of a module or
class in data. Nothing here imports Spark: a DAG file names functions, and doesn't load them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.channels import ROWS, STATE
from airflow_gobblin.model.naming import meant
from airflow_gobblin.model.registry import look_up
from airflow_gobblin.model.wire import record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Frame", "Out", "Sql", "StageFunction", "frame"]

F = TypeVar("F", bound=Callable[..., Any])

_functions: dict[str, Callable[..., Any]] = {}


class Out:
    """The result that the function of a stage with state or channels returns, once for a version.

    :param rows: the rows that the version publishes.
    :param state: the whole state after the version, with a row for each key, in a stage with state.
    :param channels: the channels of the stage, by their names.
    """

    def __init__(self, rows: DataFrame, state: DataFrame | None = None, **channels: DataFrame) -> None:
        self.rows = rows
        self.state = state
        self.channels: Mapping[str, DataFrame] = channels

    @property
    def by_channel(self) -> Mapping[str, DataFrame]:
        """All of it, by channel."""
        kept = {} if self.state is None else {STATE: self.state}
        return {ROWS: self.rows, **self.channels, **kept}


def frame(name: str) -> Callable[[F], F]:
    """Register a PySpark function under a permanent name, by which `Frame` names it.

    The function takes a DataFrame for each input of its stage, by the input's name, and returns a DataFrame::

        @frame("acme.join")
        def join(flights, weather):
            return flights.join(weather, ["origin", "time_hour"], "left")

    In a stage with state, it also takes that, as `state`, and returns `Out(rows=…, state=…)`. In one with channels, it returns
    these, too: `Out(rows=…, refused=…)`.

    :raises ConfigurationError: the name belongs to another function.
    """

    def register(function: F) -> F:
        known = _functions.get(name)
        if known is not None and _place(known) != _place(function):
            raise ConfigurationError(
                operation="register",
                subject=f"function {name!r}",
                cause=f"the name belongs to {_place(known)}",
                hint="Choose another name, for example with your organisation's name before it.",
            )
        _functions[name] = function
        return function

    return register


class StageFunction(Protocol):
    """The function of a stage: registered with `wire.record`, and without secrets."""

    def check_inputs(self, names: Collection[str]) -> None:
        """Check that it fits the names of its inputs, as far as that is known in a DAG file.

        :raises ConfigurationError: it doesn't.
        """

    def check_code(self, names: Collection[str]) -> None:
        """Check that it can be called with its inputs, which imports the author's modules.

        :raises ConfigurationError: it can't.
        """

    def evaluate(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Any:
        """Return what it makes of its inputs: a DataFrame; or, with state or channels, `Out`.

        :raises Exception: whatever the author's code raises.
        """


@record("frame")
@dataclass(frozen=True)
class Frame:
    """A PySpark function of the author's.

    :param name: the name that `@frame` registers it under, in a module of the pipeline's `code`.
    """

    name: str

    def check_inputs(self, names: Collection[str]) -> None:
        """Do nothing: the function's module isn't imported in a DAG file."""

    def check_code(self, names: Collection[str]) -> None:
        """Check that the function is registered, and takes the inputs by name."""
        function = self._function()
        try:
            inspect.signature(function).bind(**dict.fromkeys(names))
        except TypeError as error:
            raise ConfigurationError(
                operation="use",
                subject=f"function {self.name!r} of {_place(function)}",
                cause=f"it can't be called with {', '.join(sorted(names))}: {error}",
                hint="Name its parameters as the stage's `reads` names them.",
            ) from error

    def evaluate(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Any:
        """Call the function."""
        return self._function()(**inputs)

    def _function(self) -> Callable[..., Any]:
        function = look_up(_functions, self.name)
        if function is not None:
            return function
        raise ConfigurationError(
            operation="find",
            subject=f"function {self.name!r}",
            cause="no imported module registers it",
            hint=meant([*_functions], self.name, otherwise="Name the module that does in the pipeline's `code=[...]`."),
        )


@record("sql")
@dataclass(frozen=True)
class Sql:
    """A query in Spark's SQL.

    :param query: the query, in which `{name}` is an input; a literal brace is doubled.
    :raises ConfigurationError: it has a field that can't be an input's name.
    """

    query: str

    def __post_init__(self) -> None:
        for name, spec, conversion in self._fields():
            if not name.isidentifier() or spec or conversion:
                raise self._refused(
                    f"{{{name}}} names no input", "Write {name}, and double a brace of the query's own."
                )

    def check_inputs(self, names: Collection[str]) -> None:
        """Check that it has each input, and no other."""
        found = {name for name, _, _ in self._fields()}
        for name in sorted(found & _TAKEN):
            raise self._refused(f"Spark has a use of its own for the name {name!r}", "Give the input another name.")
        for name in sorted(found - {*names}):
            raise self._refused(f"there is no input {name!r}", meant([*names], name, otherwise="Add it to `reads`."))
        for name in sorted({*names} - found):
            raise self._refused(f"it doesn't read {name!r}", "Leave it out of `reads`, or use it.")

    def check_code(self, names: Collection[str]) -> None:
        """Do nothing: everything is known in the DAG file."""

    def evaluate(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Run the query with its inputs as views of its own."""
        views: dict[str, Any] = dict(inputs)
        return spark.sql(self.query, **views)

    def _fields(self) -> list[tuple[str, str, str]]:
        try:
            parsed = [*Formatter().parse(self.query)]
        except ValueError as error:
            raise self._refused(
                f"it is not a template: {error}", "Double each brace that is the query's own."
            ) from error
        return [(name, spec or "", conversion or "") for _, name, spec, conversion in parsed if name is not None]

    def _refused(self, cause: str, hint: str) -> ConfigurationError:
        shown = self.query if len(self.query) <= _SHOWN else f"{self.query[:_SHOWN]}…"
        return ConfigurationError(operation="use", subject=f"Sql({shown!r})", cause=cause, hint=hint)


_SHOWN = 60
_TAKEN = frozenset({"sqlQuery", "args"})


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
