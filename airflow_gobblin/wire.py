"""The wire format: everything that crosses a process or outlives a run is JSON with a `kind` and a `version`.

A record type is a frozen dataclass marked with `record`; encoding and decoding follow its type hints. The registry is closed:
a kind is only ever looked up among the classes that imported code has registered, never imported by a name found in data, and
there is no pickle. A stored record carries a digest of itself, so that a torn one is told from a whole one (I14)::

    {"digest": "…", "record": {"kind": "decision", "version": 1, "slot": 4, …}}
"""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from airflow_gobblin import watermark
from airflow_gobblin.errors import ConfigurationError, GobblinError, RecordError, UnknownKindError
from airflow_gobblin.watermark import Json, Watermark

T = TypeVar("T")


@dataclass(frozen=True)
class _Kind:
    name: str
    version: int


_by_kind: dict[str, type[Any]] = {}
_by_type: dict[type[Any], _Kind] = {}


def record(kind: str, version: int = 1) -> Callable[[type[T]], type[T]]:
    """Register a frozen dataclass as a record type, under a `kind` that is its name for ever.

    A user's own source, sink, converter, check or step is registered the same way, with a kind of its own.

    :raises ConfigurationError: the kind belongs to another class, or a field is named as the envelope's are.
    """

    def register(cls: type[T]) -> type[T]:
        known = _by_kind.get(kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigurationError(
                operation="register",
                subject=f"record kind {kind!r}",
                cause=f"it belongs to {known.__module__}.{known.__qualname__}",
                hint="Choose another kind, for example with your organisation's name before it.",
            )
        taken = {"kind", "version"} & {f.name for f in fields(cls)}  # type: ignore[arg-type]
        if taken:
            raise ConfigurationError(
                operation="register",
                subject=f"{cls.__module__}.{cls.__qualname__}",
                cause=f"a record has a {' and a '.join(sorted(taken))} already",
                hint="Call the field otherwise.",
            )
        _by_kind[kind] = cls
        _by_type[cls] = _Kind(kind, version)
        return cls

    return register


def kind_of(value: object) -> str:
    """The kind of a record. :raises ConfigurationError: its class is not registered."""
    known = _by_type.get(type(value))
    if known is None:
        raise ConfigurationError(
            operation="encode",
            subject=f"{type(value).__module__}.{type(value).__qualname__}",
            cause="the class is not registered",
            hint="Mark it with @wire.record('your.kind') and @dataclass(frozen=True).",
        )
    return known.name


def to_json(value: Any) -> Json:
    """A value of a record as JSON."""
    if isinstance(value, Enum):
        return to_json(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list | frozenset):
        return [to_json(v) for v in (sorted(value) if isinstance(value, frozenset) else value)]
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if type(value) in _by_type:
        known = _by_type[type(value)]
        return {"kind": known.name, "version": known.version, **_fields(value)}
    if isinstance(value, Watermark):
        return {**watermark.encode(value)}
    if is_dataclass(value):
        return _fields(value)
    kind_of(value)
    raise AssertionError("unreachable")


def _fields(value: Any) -> dict[str, Json]:
    return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}


def canonical(document: Json) -> bytes:
    """JSON with one spelling: sorted keys, no spaces, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(data: bytes) -> str:
    """The digest by which records name each other."""
    return hashlib.sha256(data).hexdigest()


def dumps(value: Any) -> bytes:
    """A record as bytes to store. :raises ConfigurationError: its class is not registered."""
    kind_of(value)
    document = to_json(value)
    return canonical({"digest": digest(canonical(document)), "record": document})


def loads(data: bytes, expected: type[T], subject: str) -> T:
    """The inverse of `dumps`.

    :param subject: what the record is, for the error: its key, say.
    :raises RecordError: torn, unreadable, of another type, or newer than this version knows.
    :raises UnknownKindError: it holds a kind that nobody registered.
    """
    try:
        document = json.loads(data)
        body = document["record"]
        whole = document["digest"] == digest(canonical(body))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RecordError(
            operation="read",
            subject=subject,
            cause=f"it is torn or no record ({len(data)} bytes): {error}",
            hint="Restore it from a copy of the journal; the dataset stands still until then.",
        ) from error
    if not whole:
        raise RecordError(
            operation="read",
            subject=subject,
            cause="its digest doesn't fit its content",
            hint="It was changed or torn. Restore it from a copy of the journal; the dataset stands still until then.",
        )
    found: T = from_json(expected, body, subject)
    return found


def from_json(expected: Any, value: Json, subject: str) -> Any:
    """A JSON value as the expected type: a record, a tuple of records, a plain value …"""
    try:
        return _decode(expected, value)
    except GobblinError as error:
        if isinstance(error, UnknownKindError):
            raise
        raise RecordError(operation="read", subject=subject, cause=error, hint=error.hint) from error
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(
            operation="read",
            subject=subject,
            cause=error,
            hint="It was written by other code. Upgrade airflow-gobblin or the author's module here, or restore it from a copy.",
        ) from error


def _decode(expected: Any, value: Any) -> Any:  # one branch a shape
    origin = get_origin(expected)
    if expected is Any or expected is Json or expected is object:
        return value
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(expected), value)
    if origin is tuple:
        arguments = get_args(expected)
        _expect(isinstance(value, list), "a list", value)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(arguments[0], v) for v in value)
        return tuple(_decode(a, v) for a, v in zip(arguments, value, strict=True))
    if origin is frozenset:
        return frozenset(_decode(get_args(expected)[0], v) for v in value)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(value, dict), "an object", value)
        return {k: _decode(get_args(expected)[1], v) for k, v in value.items()}
    if expected in (str, bool, type(None)):
        _expect(isinstance(value, expected), expected.__name__, value)
        return value
    if expected is int:
        _expect(isinstance(value, int) and not isinstance(value, bool), "an integer", value)
        return value
    if expected is float:
        _expect(isinstance(value, int | float) and not isinstance(value, bool), "a number", value)
        return float(value)
    if expected is datetime:
        return datetime.fromisoformat(value)
    if isinstance(expected, type) and issubclass(expected, Enum):
        return expected(value)
    return _decode_object(expected, value)


def _decode_union(options: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in options:
        return None
    if {list, dict} <= {get_origin(option) for option in options}:  # Json, as get_type_hints resolves it
        return value
    rest = [o for o in options if o is not type(None)]
    if len(rest) == 1:
        return _decode(rest[0], value)
    for option in rest:  # a union of plain types and records: the first that fits
        try:
            return _decode(option, value)
        except (TypeError, ValueError, KeyError):
            continue
    names = " or ".join(getattr(option, "__name__", str(option)) for option in rest)
    raise ValueError(f"expected {names}, not {str(value)[:200]}")


def _decode_object(expected: Any, value: Any) -> Any:
    _expect(isinstance(value, dict), "an object", value)
    if is_dataclass(expected) and expected not in _by_type and not hasattr(expected, "from_json"):
        return _build(expected, value)  # a plain part of a record, which may have a field named `kind`; no watermark
    if set(value) == {"kind", "value"}:
        position = watermark.decode(value)
        _expect_fit(type(position), expected, value)
        return position
    _expect("kind" in value, f"a {expected.__name__}", value)
    cls = _by_kind.get(value["kind"])
    if cls is None:
        raise UnknownKindError(
            operation="decode",
            subject=f"record of kind {value['kind']!r}",
            cause="no imported module registers it",
            hint="Name the module that does in the ingestion's `code=[...]`.",
        )
    known = _by_type[cls]
    if value.get("version", 0) > known.version:
        raise RecordError(
            operation="decode",
            subject=f"record of kind {known.name!r}",
            cause=f"it is of version {value['version']}, and this release knows {known.version}",
            hint="Upgrade airflow-gobblin here to at least the release that wrote it.",
        )
    _expect_fit(cls, expected, value)
    return _build(cls, {k: v for k, v in value.items() if k not in ("kind", "version")})


def _expect_fit(cls: type[Any], expected: Any, value: dict[str, Any]) -> None:
    """Whether a class may stand for the expected one: is it, or has all that the protocol asks for."""
    if getattr(expected, "_is_protocol", False):
        has = {*dir(cls), *(f.name for f in (fields(cls) if is_dataclass(cls) else ()))}
        missing = [name for name in _asked(expected) if name not in has]
        _expect(not missing, f"a {expected.__name__}", f"a {value['kind']!r}, which has no {missing}")
    else:
        _expect(cls is expected, f"a {expected.__name__}", f"a {value['kind']!r}")


@cache
def _asked(protocol: type[Any]) -> tuple[str, ...]:
    """The public names of a protocol."""
    names = {name for part in protocol.__mro__ for name in (*vars(part), *vars(part).get("__annotations__", ()))}
    return tuple(sorted(name for name in names if not name.startswith("_")))


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)


def _build(cls: Any, value: dict[str, Any]) -> Any:
    hints = _hints(cls)
    known = {f.name: f for f in fields(cls)}
    unknown = set(value) - set(known)
    _expect(not unknown, f"fields of {cls.__name__} and not {sorted(unknown)}", value)
    missing = [n for n, f in known.items() if n not in value and f.default is MISSING and f.default_factory is MISSING]
    _expect(not missing, f"a {cls.__name__} with {missing}", value)
    return cls(**{name: _field(cls, name, hints[name], v) for name, v in value.items()})


def _field(cls: Any, name: str, expected: Any, value: Any) -> Any:
    try:
        return _decode(expected, value)
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"field {name!r} of {cls.__name__}: {error}") from error


def _expect(holds: bool, what: str, value: Any) -> None:
    if not holds:
        raise ValueError(f"expected {what}, not {str(value)[:200]}")
