"""Ingestions written in YAML, for teams with hundreds of datasets: a file each, named as the arguments in Python are.

    for one in load_ingestions("ingestions/*.yaml"):
        with DAG(**one.dag.arguments()):
            GobblinIngestion(one.ingestion, spark=one.spark)

Files are checked by the JSON schema `SCHEMA` (draft 2020-12), which editors use too, and then by the constructors. No name in
a file is ever imported, but for the author's own modules, `code`.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints
from zoneinfo import ZoneInfo

from airflow_gobblin import located_yaml, wire
from airflow_gobblin.converters.base import Converter, RowCheck
from airflow_gobblin.errors import ConfigurationError, GobblinError, RecordError
from airflow_gobblin.files import check_target
from airflow_gobblin.hooks.ingestion import check_journal
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.kinds import import_kinds
from airflow_gobblin.located_yaml import Document, Place, Problem, Unreadable, ValuePath
from airflow_gobblin.naming import near
from airflow_gobblin.operators.run_requests import ingestion_params
from airflow_gobblin.operators.spark_options import SECRET_SETTING, SECRET_SETTING_HINT, SparkOptions
from airflow_gobblin.redaction import setting_shows_secret, shows_password
from airflow_gobblin.sinks.base import Sink
from airflow_gobblin.sinks.parquet import ParquetSink
from airflow_gobblin.sources.base import Source
from airflow_gobblin.sources.sql import SqlSource
from airflow_gobblin.watermark import Json

__all__ = ["SCHEMA", "CronSchedule", "DagOptions", "YamlIngestion", "load_ingestions"]

SCHEMA = Path(__file__).with_name("ingestions.schema.json")
"""The JSON schema of a file."""

MOST_TOLD = 10
"""How many problems an error tells at once."""


@dataclass(frozen=True)
class CronSchedule:
    """A schedule with data intervals, which backfills need, and runs of one dataset by partition key.

    :param cron: an expression or a preset. :param timezone: in which it is meant.
    """

    cron: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.timezone)
        except (KeyError, OSError, ValueError) as error:
            raise ValueError(f"there is no time zone {self.timezone!r}") from error

    def timetable(self) -> Any:
        """It as Airflow has it."""
        from airflow_gobblin.plugins.timetables import DatasetCronTimetable

        return DatasetCronTimetable(self.cron, self.timezone)


@dataclass(frozen=True)
class DagOptions:
    """The DAG that an ingestion is in, by the names that Airflow's `DAG` gives its arguments.

    :param schedule: a cron expression or a preset, as Airflow is configured to take it; or one with data intervals; `None`: it
        runs when it is triggered.
    :param start_date: without an offset it is in Airflow's default time zone; `end_date` too.
    :param max_active_runs: more do no harm, but of two runs that take a snapshot at once one loses and is red.
    :param datasets: URNs that its form offers. They are in no file: they are those of the tables that its source names.
    """

    dag_id: str | None = None
    description: str | None = None
    schedule: str | CronSchedule | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    catchup: bool | None = None
    max_active_runs: int = 1
    tags: tuple[str, ...] = ()
    default_args: Mapping[str, Json] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """The arguments for `DAG`, with a form to trigger it; what is left `None` is as Airflow has it."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        given |= {"tags": [*self.tags], "default_args": dict(self.default_args)}
        given["params"] = ingestion_params(given.pop("datasets"))
        if isinstance(self.schedule, CronSchedule):
            given["schedule"] = self.schedule.timetable()
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class YamlIngestion:
    """What a file says.

    :param dag: with its `dag_id`, by default the ingestion's name, and the datasets that the file names.
    """

    path: Path
    ingestion: Ingestion
    spark: SparkOptions
    dag: DagOptions


def load_ingestions(pattern: str, *, relative_to: str | Path | None = None) -> tuple[YamlIngestion, ...]:
    """Read the ingestions of all YAML files that match, in the order of their paths. For a DAG file: it goes nowhere else.

    :param pattern: of paths below the DAG file's folder, as `Path.glob` takes it: `*.yaml`, `ingestions/**/*.yaml`.
    :param relative_to: another folder, or a file in it.
    :raises ConfigurationError: a file is no YAML, doesn't fit the schema or can't work, two have one name, or there is none. It
        names file, line and column of each thing that is wrong, the first ten of them.
    """
    folder = _folder(relative_to or sys._getframe(1).f_globals.get("__file__"))
    loaded: list[YamlIngestion] = []
    problems: list[tuple[Path, Problem]] = []
    seen: dict[tuple[str, str], str] = {}
    for path in _files(pattern, folder):
        try:
            document = _read(path)
            loaded.append(_Loading(document).ingestion(path))
            problems += ((path, problem) for problem in _taken(loaded[-1], document, seen))
        except Unreadable as error:
            problems += ((path, problem) for problem in sorted(error.problems, key=lambda p: p.place))
    if problems:
        raise _refused(problems)
    return tuple(loaded)


def _folder(where: str | Path | None) -> Path:
    if where is None:
        raise ConfigurationError(
            operation="load",
            subject="ingestions",
            cause="there is no file that the pattern could be relative to",
            hint="Name a folder: load_ingestions('*.yaml', relative_to='/path').",
        )
    path = Path(where).absolute()
    return path if path.is_dir() else path.parent


def _files(pattern: str, folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.glob(pattern) if path.is_file() and not path.name.startswith("."))
    except (NotImplementedError, ValueError) as error:
        raise ConfigurationError(
            operation="load",
            subject=f"ingestions from {pattern!r}",
            cause=error,
            hint="Give a pattern of relative paths, such as '*.yaml', and another folder as `relative_to`.",
        ) from error
    if not found:
        raise ConfigurationError(
            operation="load",
            subject=f"ingestions from {pattern!r}",
            cause=f"no file in {str(folder)!r} matches",
            hint="Patterns are relative to the DAG file's folder; give another one as `relative_to`.",
        )
    return found


def _read(path: Path) -> Document:
    """A file that fits the schema. :raises Unreadable: it doesn't."""
    try:
        with path.open("rb") as file:
            data = file.read(located_yaml.MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(Problem(Place(1, 1), (), f"it can't be read: {error.strerror}")) from error
    document = located_yaml.parse(data)
    problems = [*_secrets(document, document.value, ())] or [*_misfits(document)]
    if problems:
        raise Unreadable(*problems)
    return document


def _taken(loaded: YamlIngestion, document: Document, seen: dict[tuple[str, str], str]) -> Iterator[Problem]:
    """Names that another file has taken."""
    for what, name, path in (
        ("ingestion", loaded.ingestion.name, ("name",)),
        ("DAG", str(loaded.dag.dag_id), ("dag", "dag_id")),
    ):
        place = document.values.get(path) or document.values["name",]
        first = seen.setdefault((what, name), f"{loaded.path}:{place.line}")
        if first != f"{loaded.path}:{place.line}":
            yield Problem(place, path, f"the {what} {name!r} is in {first} already; give one of them another name")


def _refused(problems: list[tuple[Path, Problem]]) -> ConfigurationError:
    bad = Counter(path for path, _ in problems)
    lines = [f"\n  {path}:{problem}" for path, problem in problems[:MOST_TOLD]]
    if len(problems) > MOST_TOLD:
        lines.append(f"\n  and {len(problems) - MOST_TOLD} more")
    return ConfigurationError(
        operation="load",
        subject=f"ingestions from {str(next(iter(bad)))!r}" if len(bad) == 1 else f"ingestions from {len(bad)} files",
        cause="".join(lines) + "\n",
        hint=f"What a file may hold is said by the JSON schema {str(SCHEMA)!r}; editors show it while you type.",
    )


# --- Whether a file fits the schema -------------------------------------------------------------------------------------------


def _secrets(document: Document, value: Json, path: ValuePath) -> Iterator[Problem]:
    """URLs with a password, wherever they are, and settings with a secret; nothing that is said of them shows it."""
    if isinstance(value, str) and shows_password(value):
        cause = (
            "it holds a URL with a password, which everyone who reads the file would see; make it an Airflow connection"
        )
        yield document.problem(path, cause)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets(document, item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            if shows_password(key):
                yield document.problem(
                    (*path, key), "the key holds a password; make it an Airflow connection", at_key=True
                )
            elif path in _SETTINGS and setting_shows_secret(key, item):
                yield document.problem((*path, key), f"{SECRET_SETTING}. {SECRET_SETTING_HINT}")
            else:
                yield from _secrets(document, item, (*path, key))


_SETTINGS: tuple[ValuePath, ...] = (("spark", "conf"), ("dag", "default_args"))


def _misfits(document: Document) -> Iterator[Problem]:
    """Where a document doesn't fit the schema."""
    for error in _validator().iter_errors(document.value):
        path = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            for key in error.instance:
                if isinstance(key, str) and not _is_known(key, error.schema):
                    yield document.problem((*path, key), _unknown(key, error.schema["properties"]), at_key=True)
        else:
            yield document.problem(path, _EXPLAINED[error.validator](error.validator_value, error.instance))


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # To JSON Schema 1.0 is an integer; to the constructors it is none.
    integers = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return extend(Draft202012Validator, type_checker=integers)(json.loads(SCHEMA.read_text()))


def _is_known(key: str, schema: Mapping[str, Any]) -> bool:
    patterns = schema.get("patternProperties", ())
    return key in schema["properties"] or any(re.search(pattern, key) for pattern in patterns)


def _unknown(key: str, known: Mapping[str, Any]) -> str:
    alike = near(key, [*known])
    hint = f"did you mean {alike[0]!r}?" if alike else f"known are {', '.join(sorted(known))}"
    return f"there is no such key; {hint}"


_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def _shown(value: Json) -> str:
    """A value in an error. Of a URL or a long text nothing is shown."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return repr(value) if len(value) <= 60 and "://" not in value else "another text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return str(value)


def _expected_type(types: str | list[str], found: Json) -> str:
    names = [types] if isinstance(types, str) else types
    hint = "; quote it" if "string" in names and isinstance(found, bool | int | float) else ""
    return f"expected {_one_of([_TYPES[name] for name in names])}, found {_shown(found)}{hint}"


def _one_of(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


_EXPLAINED: dict[str, Callable[[Any, Any], str]] = {
    "type": _expected_type,
    "enum": lambda known, found: f"expected {_one_of([*map(repr, known)])}, found {_shown(found)}",
    "pattern": lambda pattern, found: f"expected a text that matches {pattern}, found {_shown(found)}",
    "required": lambda names, found: f"there is no {', '.join(repr(n) for n in names if n not in found)}",
    "minimum": lambda least, found: f"expected at least {least}, found {found}",
    "exclusiveMinimum": lambda least, found: f"expected more than {least}, found {found}",
    "maximum": lambda most, found: f"expected at most {most}, found {found}",
    "minLength": lambda least, found: "expected a text, found an empty one",
    "maxLength": lambda most, found: f"expected at most {most} characters, found {len(found)}",
    "minItems": lambda least, found: f"expected a list of at least {least}, found an empty one",
    "minProperties": lambda least, found: "expected one key, found none",
    "maxProperties": lambda most, found: f"expected one key, found {', '.join(map(repr, found))}",
}
"""What is said of a value that doesn't fit, by the schema's keyword."""


# --- From a file that fits to an ingestion ------------------------------------------------------------------------------------

_BUILT_IN: dict[Any, Mapping[str, type[Any]]] = {Source: {"sql": SqlSource}, Sink: {"parquet": ParquetSink}}
_MODULES = {Converter: "airflow_gobblin.converters.columns", RowCheck: "airflow_gobblin.converters.checks"}
"""Where the built-in ones are, which load Arrow: they are imported when a file names one."""

_FAILED: Any = object()


class _Loading:
    """One file, becoming an ingestion. Its problems are gathered, so that all are told."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._root: dict[str, Any] = document.value  # type: ignore[assignment] # the schema has seen to it
        self._problems: list[Problem] = []

    def ingestion(self, path: Path) -> YamlIngestion:
        """:raises Unreadable: a constructor refused something, or the ingestion can't work."""
        root = self._root
        own = {
            name: value for name, value in root.items() if name not in ("dag", "spark") and not name.startswith("x-")
        }
        dag = self._built(DagOptions, root.get("dag", {}), ("dag",))
        spark = self._built(SparkOptions, root.get("spark", {}), ("spark",))
        ingestion = self._built(Ingestion, own, ())
        if ingestion is not _FAILED:
            self._tried(("journal",), lambda: check_journal(ingestion.journal))
            self._tried(("sink", *own["sink"], "target"), lambda: check_target(ingestion.sink.target))
        if self._problems:
            raise Unreadable(*self._problems)
        dag = replace(dag, dag_id=dag.dag_id or ingestion.name, datasets=_named(ingestion.source))
        return YamlIngestion(path, ingestion, spark, dag)

    def _built(self, cls: Any, given: Mapping[str, Any], path: ValuePath) -> Any:
        """A dataclass from a mapping of its fields."""
        hints = _hints(cls)
        arguments = {name: self._fitted(hints[name], value, (*path, name)) for name, value in given.items()}
        if any(value is _FAILED for value in arguments.values()):
            return _FAILED
        return self._tried(path, lambda: cls(**arguments))

    def _fitted(self, hint: Any, value: Any, path: ValuePath) -> Any:
        """A value as a field wants it; the schema has seen to its shape."""
        if hint in _BUILT_IN or hint in _MODULES:
            return self._part(hint, value, path)
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if isinstance(value, list):
            element = next(get_args(option)[0] for option in options if get_origin(option) is tuple)
            items = tuple(self._fitted(element, item, (*path, index)) for index, item in enumerate(value))
            return _FAILED if any(item is _FAILED for item in items) else items
        if isinstance(value, dict) and timedelta in options:
            return self._tried(path, lambda: timedelta(**value))
        if isinstance(value, dict) and (cls := next(filter(is_dataclass, options), None)):
            return self._built(cls, value, path)
        if isinstance(value, str) and datetime in options and str not in options:
            return self._tried(path, lambda: datetime.fromisoformat(value))
        return value

    def _part(self, port: Any, value: Mapping[str, Any], path: ValuePath) -> Any:
        """A source, sink, converter or check: `{its kind: its arguments}`."""
        ((kind, given),) = value.items()
        inner = (*path, kind)
        if built_in := _BUILT_IN.get(port, {}).get(kind):
            return self._built(built_in, given, inner)
        if "." in kind:  # the schema has seen to it that all others are built in
            if self._tried(("code",), lambda: import_kinds(self._root.get("code", ()))) is _FAILED:
                return _FAILED
        else:
            importlib.import_module(_MODULES[port])
        written = {**(given or {}), "kind": kind, "version": wire.newest_version(kind)}
        return self._tried(inner, lambda: wire.from_json(port, written, f"a {port.__name__}"))

    def _tried(self, path: ValuePath, make: Callable[[], Any]) -> Any:
        """What is made, or a problem."""
        try:
            return make()
        except (GobblinError, TypeError, ValueError, OverflowError) as error:
            cause = error.cause if isinstance(error, RecordError) else error  # it was no record that somebody wrote
            told = str(cause) if isinstance(cause, GobblinError) else f"it can't be used: {cause}"
            self._problems.append(self._document.problem(path, told))
        return _FAILED


def _named(source: Source) -> tuple[str, ...]:
    """The URNs that are known without asking the source: an author's own one may have to look at what there is."""
    return tuple(table.urn for table in source.tables) if isinstance(source, SqlSource) else ()


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)
