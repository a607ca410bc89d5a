"""Files in YAML that describe jobs. Keys have the names of the arguments in Python.

Files are checked against the JSON schema `YAML_SCHEMA` (draft 2020-12), which editors use too, then by the constructors. No name
in a file is ever imported, except the author's own modules, `code`.
"""

from __future__ import annotations

import importlib
import json
import re
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from airflow_gobblin.copy.checks import FileSetCheck
from airflow_gobblin.copy.conversion.converters import AnyConverter
from airflow_gobblin.copy.finders import (
    DatasetFinder,
    DatePartitions,
    EachFolder,
    Glob,
    Manifest,
    NewestVersions,
    Ready,
    WholeTree,
)
from airflow_gobblin.copy.registering import HiveTable, Registration
from airflow_gobblin.errors import ConfigurationError, GobblinError, RecordError
from airflow_gobblin.model import wire
from airflow_gobblin.model.naming import meant
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.operators import located_yaml
from airflow_gobblin.operators.located_yaml import Document, Place, Problem, Unreadable, ValuePath
from airflow_gobblin.operators.spark_options import SECRET_SETTING, SECRET_SETTING_HINT
from airflow_gobblin.redaction import setting_shows_secret, shows_password
from airflow_gobblin.rows.converters.base import Converter, RowCheck
from airflow_gobblin.rows.sinks.base import Sink, TableSink
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.rows.sinks.iceberg import IcebergSink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.rows.sources.base import Source
from airflow_gobblin.rows.sources.kafka import KafkaSource
from airflow_gobblin.rows.sources.kafka.values import AvroValues, BytesValues, JsonValues, TextValues, ValueFormat
from airflow_gobblin.rows.sources.sql import SqlSource
from airflow_gobblin.stages.functions import Frame, Sql, StageFunction
from airflow_gobblin.stages.outputs import OptionalInput, Output, Readable, Whole

__all__ = ["FAILED", "YAML_SCHEMA", "Builder", "folder_of", "load_files", "root_key"]

YAML_SCHEMA = Path(__file__).with_name("ingestions.schema.json")
"""The JSON schema of a file."""

MOST_NAMED = 10
"""The number of problems that one error reports."""


T = TypeVar("T")


def load_files(
    what: str,
    pattern: str,
    folder: Path,
    build: Callable[[Document, Path], T],
    names: Callable[[T], Iterable[tuple[str, str, ValuePath]]],
) -> tuple[T, ...]:
    """Read all files that match a pattern, in the order of their paths.

    :param what: names what they describe, for errors.
    :param build: builds what one describes.
    :param names: returns the names that it takes, each with what it names and where it is in the file. No two may be equal.
    :raises ConfigurationError: a file is not YAML, doesn't fit the schema or can't work, two share a name, or there is none. It
        names file, line and column of each problem, up to the first ten.
    """
    loaded: list[T] = []
    problems: list[tuple[Path, Problem]] = []
    seen: dict[tuple[str, str], str] = {}
    for path in _files(what, pattern, folder):
        try:
            document = _read(path)
            loaded.append(build(document, path))
            problems += ((path, problem) for problem in _taken(names(loaded[-1]), path, document, seen))
        except Unreadable as error:
            problems += ((path, problem) for problem in sorted(error.problems, key=lambda p: p.place))
    if problems:
        raise _refused(what, problems)
    return tuple(loaded)


def folder_of(where: str | Path | None, what: str) -> Path:
    """Return the folder that a pattern is relative to: the given one, or that of a file.

    :raises ConfigurationError: there is none.
    """
    if where is None:
        raise ConfigurationError(
            operation="load",
            subject=what,
            cause="there is no file that the pattern could be relative to",
            hint=f"Name a folder: load_{what}('*.yaml', relative_to='/path').",
        )
    path = Path(where).absolute()
    return path if path.is_dir() else path.parent


def _files(what: str, pattern: str, folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.glob(pattern) if path.is_file() and not path.name.startswith("."))
    except (NotImplementedError, ValueError) as error:
        raise ConfigurationError(
            operation="load",
            subject=f"{what} from {pattern!r}",
            cause=error,
            hint="Give a pattern of relative paths, such as '*.yaml', and another folder as `relative_to`.",
        ) from error
    if not found:
        raise ConfigurationError(
            operation="load",
            subject=f"{what} from {pattern!r}",
            cause=f"no file in {str(folder)!r} matches",
            hint="Patterns are relative to the DAG file's folder; give another one as `relative_to`.",
        )
    return found


def _read(path: Path) -> Document:
    """Read a file and check that it fits the schema.

    :raises Unreadable: it can't be read or doesn't fit.
    """
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


def _taken(
    names: Iterable[tuple[str, str, ValuePath]], path: Path, document: Document, seen: dict[tuple[str, str], str]
) -> Iterator[Problem]:
    """Yield a problem for each name that another file has taken."""
    for what, name, where in names:
        place = document.values.get(where) or document.values["name",]
        first = seen.setdefault((what, name), f"{path}:{place.line}")
        if first != f"{path}:{place.line}":
            yield Problem(place, where, f"the {what} {name!r} is in {first} already; give one of them another name")


def _refused(what: str, problems: list[tuple[Path, Problem]]) -> ConfigurationError:
    bad = Counter(path for path, _ in problems)
    lines = [f"\n  {path}:{problem}" for path, problem in problems[:MOST_NAMED]]
    if len(problems) > MOST_NAMED:
        lines.append(f"\n  and {len(problems) - MOST_NAMED} more")
    return ConfigurationError(
        operation="load",
        subject=f"{what} from {str(next(iter(bad)))!r}" if len(bad) == 1 else f"{what} from {len(bad)} files",
        cause="".join(lines) + "\n",
        hint=f"The JSON schema {str(YAML_SCHEMA)!r} describes what a file may hold; editors show it while you type.",
    )


# --- Whether a file fits the schema -------------------------------------------------------------------------------------------


def _secrets(document: Document, value: Json, path: ValuePath) -> Iterator[Problem]:
    """Yield a problem for each URL with a password and each setting with a secret; no problem shows them."""
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
    """Yield a problem for each part of a document that doesn't fit the schema."""
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

    # JSON Schema takes 1.0 for an integer; the constructors don't.
    integers = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return extend(Draft202012Validator, type_checker=integers)(json.loads(YAML_SCHEMA.read_text()))


def _is_known(key: str, schema: Mapping[str, Any]) -> bool:
    patterns = schema.get("patternProperties", ())
    return key in schema["properties"] or any(re.search(pattern, key) for pattern in patterns)


def _unknown(key: str, known: Mapping[str, Any]) -> str:
    hint = meant([*known], key, most=1, otherwise=f"Known: {', '.join(sorted(known))}")
    return f"there is no such key. {hint}"


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
    """Return a value as an error shows it; a URL or a long text isn't shown."""
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
"""The message for a value that doesn't fit, by the schema's keyword."""


def root_key(sink: Sink) -> str:
    """Return the key under which a sink has its root."""
    return "workspace" if isinstance(sink, TableSink) else "target"


# --- From a valid file to its objects ------------------------------------------------------------------------------------------

_BUILT_IN: dict[Any, Mapping[str, type[Any]]] = {
    Source: {"sql": SqlSource, "kafka": KafkaSource},
    ValueFormat: {"bytes": BytesValues, "text": TextValues, "json": JsonValues, "avro": AvroValues},
    Sink: {"parquet": ParquetSink, "delta": DeltaSink, "iceberg": IcebergSink, "postgres": PostgresSink},
    DatasetFinder: {
        "whole_tree": WholeTree,
        "each_folder": EachFolder,
        "glob": Glob,
        "manifest": Manifest,
        "date_partitions": DatePartitions,
        "newest_versions": NewestVersions,
        "ready": Ready,
    },
    Registration: {"hive_table": HiveTable},
    StageFunction: {"frame": Frame, "sql": Sql},
    Readable: {"whole": Whole, "optional": OptionalInput},
}
_MODULES = {
    Converter: "airflow_gobblin.rows.converters.columns",
    RowCheck: "airflow_gobblin.rows.converters.checks",
    AnyConverter: "airflow_gobblin.copy.conversion.converters",
    FileSetCheck: "airflow_gobblin.copy.checks",
}
"""The modules of the built-in ones. They load Arrow, so they are imported only when a file names one."""

FAILED: Any = object()
"""In place of what couldn't be built; its problem is noted."""


class Builder:
    """The builder of the objects that a file, or a part of it, describes. Its problems are collected, so that all are reported.

    :param base: where the part is; its own `code` has the modules that are imported for the author's own kinds.
    """

    def __init__(self, document: Document, base: ValuePath = ()) -> None:
        self._document = document
        self._base = base
        self.given: dict[str, Any] = document.value  # type: ignore[assignment] # the schema has seen to it
        for key in base:
            self.given = self.given[key]  # type: ignore[index] # a list, by its places
        self.problems: list[Problem] = []

    @property
    def arguments(self) -> dict[str, Any]:
        """Its arguments, without those that define how it is loaded and run, and without anchors."""
        others = ("kind", "dag", "spark")
        return {name: value for name, value in self.given.items() if name not in others and not name.startswith("x-")}

    def refuse(self, path: ValuePath, cause: str) -> None:
        """Note a problem."""
        self.problems.append(self._document.problem(path, cause))

    def check(self) -> None:
        """Check that there was no problem.

        :raises Unreadable: a constructor refused something.
        """
        if self.problems:
            raise Unreadable(*self.problems)

    def built(self, cls: Any, given: Mapping[str, Any], path: ValuePath) -> Any:
        """Build a dataclass from a mapping of its fields."""
        hints = _hints(cls)
        arguments = {name: self._fitted(hints[name], value, (*path, name)) for name, value in given.items()}
        if any(value is FAILED for value in arguments.values()):
            return FAILED
        return self.tried(path, lambda: cls(**arguments))

    def _fitted(self, hint: Any, value: Any, path: ValuePath) -> Any:
        """Convert a value to the type of a field; the schema has checked its shape."""
        options = _options(hint)
        if isinstance(value, str) and Readable in options:
            return self.tried(path, lambda: _output(value))
        if hint in _BUILT_IN or hint in _MODULES:
            return self._part(hint, value, path)
        if isinstance(value, dict) and get_origin(hint) is Mapping and Readable in _options(get_args(hint)[1]):
            inner = {name: self._fitted(get_args(hint)[1], one, (*path, name)) for name, one in value.items()}
            return FAILED if any(one is FAILED for one in inner.values()) else inner
        if isinstance(value, dict) and (port := next((option for option in options if option in _BUILT_IN), None)):
            return self._part(port, value, path)
        if isinstance(value, list):
            element = next(get_args(option)[0] for option in options if get_origin(option) is tuple)
            items = tuple(self._fitted(element, item, (*path, index)) for index, item in enumerate(value))
            return FAILED if any(item is FAILED for item in items) else items
        if isinstance(value, dict) and timedelta in options:
            return self.tried(path, lambda: timedelta(**value))
        if isinstance(value, dict) and (cls := next(filter(is_dataclass, options), None)):
            return self.built(cls, value, path)
        if isinstance(value, str) and (member := _member(options, value)) is not None:
            return member
        if isinstance(value, str) and datetime in options and str not in options:
            return self.tried(path, lambda: datetime.fromisoformat(value))
        return value

    def _part(self, port: Any, value: Mapping[str, Any], path: ValuePath) -> Any:
        """Build a source, sink, converter or check from `{its kind: its arguments}`."""
        ((kind, given),) = value.items()
        inner = (*path, kind)
        if built_in := _BUILT_IN.get(port, {}).get(kind):
            return self.built(built_in, given, inner)
        if "." in kind:  # all others are built in
            if self.tried((*self._base, "code"), lambda: import_kinds(self.given.get("code", ()))) is FAILED:
                return FAILED
        else:
            importlib.import_module(_MODULES[port])
        written = {**(given or {}), "kind": kind, "version": wire.newest_version(kind)}
        return self.tried(inner, lambda: wire.from_json(port, written, kind))

    def tried(self, path: ValuePath, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, or record a problem and return `FAILED`."""
        try:
            return make()
        except (GobblinError, TypeError, ValueError, OverflowError) as error:
            cause = error.cause if isinstance(error, RecordError) else error  # no stored record is involved
            text = str(cause) if isinstance(cause, GobblinError) else f"it can't be used: {cause}"
            self.refuse(path, text)
        return FAILED


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the types that a field may have."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _output(text: str) -> Output:
    """Return the output that a text names: `raw/flights`, a dataset of an ingestion; `joined`, a stage; or `joined/refused`,
    a channel of it."""
    job, slash, urn = text.partition("/")
    return Output(job, urn if slash else job)


def _member(options: tuple[Any, ...], value: str) -> Enum | None:
    """Return the member of an enumeration that a text names, if the field may be one."""
    members = (one for kind in options if isinstance(kind, type) and issubclass(kind, Enum) for one in kind)
    return next((one for one in members if one.value == value), None)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)
