"""The wire format: everything that crosses a process or outlives a run is JSON with a `kind` and a `version`.

A record type is a frozen dataclass marked with `record`; encoding and decoding follow its type hints. The registry is closed: a
kind is looked up only among the classes registered by imported code, never imported by a name found in data, and pickle is never
used. A stored record carries its own digest, so that a torn one is recognized (I14)::

    {"digest": "…", "record": {"kind": "decision", "version": 1, "slot": 4, …}}

Many values of one class are stored as a table, one list per field, which takes a third of the space and is several times faster.
Values that are the same in all rows are stored once::

    {"kind": "move_step", "version": 1, "all": {"unit": "…", …}, "columns": {"source": ["…", …], "identity": {"columns": {…}}, …}}
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from airflow_gobblin.errors import ConfigurationError, GobblinError, RecordError, UnknownKindError
from airflow_gobblin.model import watermark
from airflow_gobblin.model.registry import look_up
from airflow_gobblin.model.watermark import Json, Watermark

T = TypeVar("T")


@dataclass(frozen=True)
class _Kind:
    name: str
    version: int


_by_kind: dict[str, type[Any]] = {}
_by_type: dict[type[Any], _Kind] = {}


def record(kind: str, version: int = 1) -> Callable[[type[T]], type[T]]:
    """Register a frozen dataclass as a record type under a permanent `kind`.

    Users register their own sources, sinks, converters, checks and steps the same way, each with its own kind.

    :raises ConfigurationError: the kind belongs to another class, the class is not a frozen dataclass, or a field has the name of
        an envelope field.
    """

    def register(cls: type[T]) -> type[T]:
        made_as = getattr(cls, "__dataclass_params__", None)
        if made_as is None or not made_as.frozen:
            raise ConfigurationError(
                operation="register",
                subject=f"{cls.__module__}.{cls.__qualname__}",
                cause="it is not a frozen dataclass",
                hint="Write @dataclass(frozen=True) below @record(…).",
            )
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
                hint="Give the field another name.",
            )
        _by_kind[kind] = cls
        _by_type[cls] = _Kind(kind, version)
        for found_out in (
            _encoders.clear,
            _columns_of.cache_clear,
            _decoder.cache_clear,
            _is_plain_part.cache_clear,
            _shape.cache_clear,
        ):
            found_out()  # perhaps cached before the class was a record
        return cls

    return register


def kind_of(value: object) -> str:
    """Return the kind of a record.

    :raises ConfigurationError: its class is not registered.
    """
    known = _by_type.get(type(value))
    if known is None:
        raise ConfigurationError(
            operation="encode",
            subject=f"{type(value).__module__}.{type(value).__qualname__}",
            cause="the class is not registered",
            hint="Mark it with @record('your.kind') and @dataclass(frozen=True), if it is yours; of a value such as a path make "
            "a text, numbers or a tuple.",
        )
    return known.name


def newest_version(kind: str) -> int:
    """Return the version in which a kind is written today, for example by a person; 1 if the kind isn't registered."""
    cls = _by_kind.get(kind)
    return 1 if cls is None else _by_type[cls].version


def to_json(value: Any) -> Json:
    """Encode a value of a record as JSON."""
    encode = _encoders.get(type(value))
    if encode is None:
        encode = _encoders[type(value)] = _encoder(value)
    return encode(value)


_encoders: dict[type[Any], Callable[[Any], Json]] = {}
"""The encoder of each class, determined once."""


def _encoder(value: Any) -> Callable[[Any], Json]:  # one branch per shape
    if isinstance(value, Enum):
        return lambda value: to_json(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return _same
    if isinstance(value, datetime):
        return datetime.isoformat
    if isinstance(value, timedelta):
        return timedelta.total_seconds
    if isinstance(value, tuple | list):
        return _encode_items
    if isinstance(value, frozenset):
        return lambda value: [to_json(v) for v in sorted(value)]
    if type(value) in _by_type:
        return _field_encoder(type(value), _envelope(type(value)))
    if isinstance(value, Watermark):
        return lambda value: {**watermark.encode(value)}
    if is_dataclass(value):
        return _field_encoder(type(value), {})
    if isinstance(value, Mapping):  # asked last: of a class that isn't one it asks all that are
        return lambda value: {str(k): to_json(v) for k, v in value.items()}
    kind_of(value)
    raise AssertionError("unreachable")


TABLE_FROM = 16
"""The minimum number of values of one class that are stored as a table."""
_PLAIN = frozenset({str, int, float, bool, type(None)})
_COMPARED = _PLAIN - {float}
"""The plain types whose equal values are encoded alike: 0.0 and -0.0 aren't."""


def _encode_items(values: Sequence[Any]) -> Json:
    classes = {*map(type, values)} if len(values) >= TABLE_FROM else ()
    cls = next(iter(classes), None)
    names = _columns_of(cls) if len(classes) == 1 else ()
    if not names:
        return [*values] if cls in _PLAIN and len(classes) == 1 else [to_json(v) for v in values]
    columns = {name: [*map(attrgetter(name), values)] for name in names}
    alike = [name for name, column in columns.items() if _are_alike(column)]
    same = {
        name: to_json(columns.pop(name)[0]) for name in alike[len(alike) == len(names) :]
    }  # one column is kept, to show how many rows there are
    table = {**_envelope(cls), "columns": {name: _encode_items(column) for name, column in columns.items()}}
    return {**table, "all": same} if same else table


def _are_alike(column: Sequence[Any]) -> bool:
    """Return whether values are certain to be encoded alike: those that are merely equal, such as `1` and `True`, aren't."""
    classes = {*map(type, column)}
    cls: Any = classes.pop()
    if classes:
        return False
    if cls in _COMPARED or issubclass(cls, Enum):
        return column.count(column[0]) == len(column)
    names = _columns_of(cls)
    if len({*map(id, column)}) == 1:
        column = column[:1]  # one object, as the attributes of files often are: what goes for one goes for all
    return bool(names) and all(_are_alike([*map(attrgetter(name), column)]) for name in names)


@cache
def _columns_of(cls: Any) -> tuple[str, ...]:
    """Return the fields of a class whose values may be stored as a table; none if they may not."""
    return tuple(f.name for f in fields(cls)) if cls in _by_type or _is_plain_part(cls) else ()


def _envelope(cls: Any) -> dict[str, Json]:
    known = _by_type.get(cls)
    return {"kind": known.name, "version": known.version} if known is not None else {}


def _field_encoder(cls: Any, envelope: dict[str, Json]) -> Callable[[Any], Json]:
    names = tuple(f.name for f in fields(cls))
    return lambda value: {**envelope, **{name: to_json(getattr(value, name)) for name in names}}


def _same(value: Any) -> Any:
    return value


def canonical(document: Json) -> bytes:
    """Encode JSON in its canonical form: sorted keys, no spaces, UTF-8.

    The bytes of a file's name that aren't UTF-8 are lone surrogates in Python; they become JSON's escapes (`\\udc80`).
    """
    return _CANONICAL.encode(document).encode(errors="backslashreplace")


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: bytes) -> str:
    """Return the digest by which records refer to each other."""
    return hashlib.sha256(data).hexdigest()


def dumps(value: Any) -> bytes:
    """Encode a record as bytes for storage.

    :raises ConfigurationError: its class is not registered.
    """
    kind_of(value)
    body = canonical(to_json(value))
    return _HEAD + digest(body).encode() + _MIDDLE + body + b"}"


_HEAD, _MIDDLE = b'{"digest":"', b'","record":'
_BODY = len(_HEAD) + 64 + len(_MIDDLE)
"""The offset of the record in the output of `dumps`."""


def _digest_fits(document: dict[str, Any], data: bytes) -> bool:
    """Return whether a record is whole: byte for byte, or as equivalent JSON formatted by somebody else."""
    named = document["digest"]
    if data[_BODY - len(_MIDDLE) : _BODY] == _MIDDLE and digest(data[_BODY:-1]) == named:
        return True
    return bool(named == digest(canonical(document["record"])))


def loads(data: bytes, expected: type[T], subject: str) -> T:
    """Decode a record encoded by `dumps`.

    :param subject: the record's name in errors, for example its key.
    :raises RecordError: the record is torn, unreadable, of another type, or newer than this version supports.
    :raises UnknownKindError: it contains a kind that isn't registered.
    """
    try:
        document = _DECODER.decode(data.decode())  # only UTF-8: `json.loads` also accepts other encodings
        body = document["record"]
        whole = _digest_fits(document, data)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RecordError(
            operation="read",
            subject=subject,
            cause=f"it is torn or no record ({len(data)} bytes): {error}",
            hint="Restore it from a copy of the journal; the dataset stays as it is until then.",
        ) from error
    if not whole:
        raise RecordError(
            operation="read",
            subject=subject,
            cause="its digest doesn't fit its content",
            hint="It was changed or torn. Restore it from a copy of the journal; the dataset stays as it is until then.",
        )
    found: T = from_json(expected, body, subject)
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)


def parse_json(text: str | bytes) -> Json:
    """Parse JSON that a person or another tool wrote.

    :raises json.JSONDecodeError: it isn't JSON.
    :raises ValueError: an object has a key twice, of which the last would count; or a number isn't one in JSON, or is too long.
    :raises RecursionError: it is nested too deep.
    """
    found: Json = json.loads(
        text, parse_constant=_no_number, parse_float=_finite, parse_int=_short, object_pairs_hook=_each_once
    )
    return found


_DIGITS = 1000
"""The most digits of an integer. Python itself refuses some thousands, in its own words."""


def _short(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"an integer has {len(text)} digits")
    return int(text)


def _each_once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"an object has the key {twice!r} twice")
    return found


def from_json(expected: Any, value: Json, subject: str) -> Any:
    """Decode a JSON value as the expected type: a record, a tuple of records, a plain value …"""
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


def _decode(expected: Any, value: Any) -> Any:
    return _decoder(expected)(value)


@cache
def _decoder(expected: Any) -> Callable[[Any], Any]:  # one branch per shape
    """Return the decoder for a type, determined once."""
    origin = get_origin(expected)
    if expected is Any or expected is Json or expected is object:
        return _same
    if origin in (Union, types.UnionType):
        return _union_decoder(get_args(expected))
    if origin is tuple:
        return _tuple_decoder(get_args(expected))
    if origin is frozenset:
        element = _decoder(get_args(expected)[0])
        return lambda value: frozenset(map(element, value))
    if origin is not None and issubclass(origin, Mapping):
        return partial(_decode_mapping, _decoder(get_args(expected)[1]))
    if expected in (str, bool, type(None)):
        return partial(_decode_plain, expected, _IN_WORDS[expected])
    if expected is int:
        return partial(_decode_number, int, "an integer")
    if expected is float:
        return lambda value: float(_decode_number((int, float), "a number", value))
    if expected is datetime:
        return datetime.fromisoformat
    if expected is timedelta:
        return lambda value: timedelta(seconds=_decode_number((int, float), "a number of seconds", value))
    if isinstance(expected, type) and issubclass(expected, Enum):
        return expected
    return partial(_refuse if _is_foreign(expected) else _decode_object, expected)


def _is_foreign(expected: Any) -> bool:
    """Return whether a type is one of Python's own that a field can't have."""
    own = isinstance(expected, type) and expected.__module__ in sys.stdlib_module_names and expected not in _KNOWN
    return get_origin(expected) is list or own


_KNOWN = frozenset({str, int, float, bool, type(None), object, datetime, timedelta})


def _refuse(expected: Any, value: Any) -> Any:
    raise ConfigurationError(
        operation="decode",
        subject=f"a field of type {expected.__name__ if get_origin(expected) is None else expected}",
        cause="records have no fields of this type",
        hint="Use `str`, `int`, `float`, `bool`, `datetime`, `timedelta`, an enum, a record or another frozen dataclass, "
        "`tuple[X, ...]`, `frozenset[X]`, `Mapping[str, X]`, or several of these with `|`.",
    )


_IN_WORDS = {str: "a text", bool: "true or false", type(None): "null"}


def _decode_plain(expected: type[Any], name: str, value: Any) -> Any:
    _expect(isinstance(value, expected), name, value)
    return value


def _decode_number(expected: type[Any] | tuple[type[Any], ...], name: str, value: Any) -> Any:
    _expect(isinstance(value, expected) and not isinstance(value, bool), name, value)
    return value


def _decode_mapping(element: Callable[[Any], Any], value: Any) -> Any:
    _expect(isinstance(value, dict), "an object", value)
    return {k: element(v) for k, v in value.items()}


def _tuple_decoder(arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    elements = [_decoder(a) for a in arguments if a is not Ellipsis]

    def decode(value: Any) -> Any:
        if arguments[-1] is Ellipsis and isinstance(value, dict):
            return tuple(_decode_table(arguments[0], value))
        _expect(isinstance(value, list), "a list", value)
        if arguments[-1] is Ellipsis:
            return tuple(map(elements[0], value))
        return tuple(element(v) for element, v in zip(elements, value, strict=True))

    return decode


def _decode_table(expected: Any, table: dict[str, Any]) -> Iterable[Any]:
    """Decode the rows of a table, whose class must be compatible with the expected one."""
    columns, same = _parts_of(table)
    cls = _class_of_rows(expected, table)
    shape = _shape(cls)
    shape.expect_fit(cls, columns | same)
    found = {name: _field(cls, name, partial(_decode_column, shape, name), column) for name, column in columns.items()}
    _expect(len({*map(len, found.values())}) == 1, "columns of one length", [*map(len, found.values())])
    rows = len(next(iter(found.values())))
    found |= {name: [_field(cls, name, shape.fields[name], value)] * rows for name, value in same.items()}
    if found.keys() == shape.fields.keys():
        return map(cls, *(found[name] for name in shape.fields))
    return (cls(**dict(zip(found, row, strict=True))) for row in zip(*found.values(), strict=True))


def _parts_of(table: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of a table, and what is the same in all rows."""
    columns, same = table.get("columns"), table.get("all", {})
    whole = isinstance(columns, dict) and bool(columns) and isinstance(same, dict) and columns.keys().isdisjoint(same)
    _expect(whole and table.keys() <= _ENVELOPE, "a list", table)
    return cast(dict[str, Any], columns), same


_ENVELOPE = frozenset({"kind", "version", "columns", "all"})


def _class_of_rows(expected: Any, table: dict[str, Any]) -> Any:
    if get_origin(expected) in (Union, types.UnionType):
        for option in get_args(expected):
            with suppress(ValueError):
                return _class_of_rows(option, table)
    _expect(isinstance(expected, type), "a list", table)
    if _is_plain_part(expected):
        return expected
    return _class_of(expected, table)


def _decode_column(shape: _Shape, name: str, column: Any) -> Sequence[Any]:
    if isinstance(column, dict):
        return tuple(_decode_table(shape.hints[name], column))
    _expect(isinstance(column, list), "a list", column)
    if {*map(type, column)} <= _plain_types(shape.hints[name]):
        return cast(list[Any], column)
    return [*map(shape.fields[name], column)]


@cache
def _plain_types(expected: Any) -> frozenset[Any]:
    """Return the types whose values are decoded unchanged, where a plain value, or one of several, is expected."""
    return _PLAIN & {*(get_args(expected) if get_origin(expected) in (Union, types.UnionType) else (expected,))}


def _union_decoder(options: tuple[Any, ...]) -> Callable[[Any], Any]:
    if {list, dict} <= {get_origin(option) for option in options}:  # `Json`, as get_type_hints resolves it
        return _same
    optional = type(None) in options
    rest = [o for o in options if o is not type(None)]
    rest = [o for o in rest if not _is_foreign(o)] or rest  # an author's `date` may be kept as a `datetime`
    decoders = [_decoder(option) for option in rest]

    def decode(value: Any) -> Any:
        if value is None and optional:
            return None
        if len(decoders) == 1:
            return decoders[0](value)
        for option in decoders:  # a union of plain types and records: the first match
            try:
                return option(value)
            except (TypeError, ValueError, KeyError):
                continue
        names = " or ".join(getattr(option, "__name__", str(option)) for option in rest)
        raise ValueError(f"expected {names}, not {str(value)[:200]}")

    return decode


def _decode_object(expected: Any, value: Any) -> Any:
    _expect(isinstance(value, dict), "an object", value)
    if _is_plain_part(expected):
        return _build(expected, value)
    if value.keys() == {"kind", "value"} or (expected is Watermark and "version" not in value):
        position = watermark.decode(value)
        _expect_fit(type(position), expected, value)
        return position
    cls = _class_of(expected, value)
    return _build(cls, {k: v for k, v in value.items() if k not in ("kind", "version")})


def _class_of(expected: Any, value: dict[str, Any]) -> Any:
    """Return the class that a record names, if it is compatible with the expected one."""
    _expect("kind" in value, f"a {expected.__name__}", value)
    cls = look_up(_by_kind, value["kind"])
    if cls is None:
        raise UnknownKindError(
            operation="decode",
            subject=f"record of kind {value['kind']!r}",
            cause="no imported module registers it",
            hint='Name the module that does in the ingestion\'s `code=("acme_log",)`.',
        )
    known = _by_type[cls]
    version: Any = value.get("version")
    _expect(type(version) is int and version > 0, f"a {known.name!r} with a version from 1 on", f"version {version!r}")
    if version > known.version:
        raise RecordError(
            operation="decode",
            subject=f"record of kind {known.name!r}",
            cause=f"it is of version {version}, and the airflow-gobblin installed here knows {known.version}",
            hint="Upgrade airflow-gobblin here to at least the version that wrote it.",
        )
    _expect_fit(cls, expected, value)
    return cls


@cache
def _is_plain_part(expected: Any) -> bool:
    """Return whether a class is a plain part of a record: neither a record nor a watermark. It may have a field named `kind`."""
    return is_dataclass(expected) and expected not in _by_type and not hasattr(expected, "from_json")


def _expect_fit(cls: Any, expected: Any, value: dict[str, Any]) -> None:
    """Check that a class is compatible with the expected one: it is that class, or has every member of the protocol."""
    if cls is expected:
        return
    protocol = getattr(expected, "_is_protocol", False)
    missing = _lacking(cls, expected) if protocol else ()
    found = f"a {value['kind']!r}" + (f", which has no {' and no '.join(map(repr, missing))}" if missing else "")
    _expect(protocol and not missing, f"a {expected.__name__}", found)


@cache
def _lacking(cls: Any, protocol: Any) -> tuple[str, ...]:
    """Return the members of a protocol that a class lacks."""
    has = {*dir(cls), *(f.name for f in (fields(cls) if is_dataclass(cls) else ()))}
    return tuple(name for name in _asked(protocol) if name not in has)


def _asked(protocol: type[Any]) -> tuple[str, ...]:
    """Return the public names of a protocol."""
    names = {name for part in protocol.__mro__ for name in (*vars(part), *vars(part).get("__annotations__", ()))}
    return tuple(sorted(name for name in names if not name.startswith("_")))


@dataclass(frozen=True)
class _Shape:
    """The decoders of a class's fields, their types, and the fields without a default."""

    fields: Mapping[str, Callable[[Any], Any]]
    hints: Mapping[str, Any]
    required: frozenset[str]

    def expect_fit(self, cls: Any, names: Mapping[str, Any]) -> None:
        """Check that no field is missing and none is unknown."""
        if names.keys() == self.fields.keys():
            return
        unknown, missing = names.keys() - self.fields.keys(), self.required - names.keys()
        _expect(not unknown, f"fields of {cls.__name__} and not {sorted(unknown)}", names)
        _expect(not missing, f"a {cls.__name__} with {sorted(missing)}", names)


@cache
def _shape(cls: Any) -> _Shape:
    hints = get_type_hints(cls)
    required = (f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING)
    names = [f.name for f in fields(cls)]
    return _Shape({n: _decoder(hints[n]) for n in names}, {n: hints[n] for n in names}, frozenset(required))


def _build(cls: Any, value: dict[str, Any]) -> Any:
    shape = _shape(cls)
    shape.expect_fit(cls, value)
    hints, decoders = shape.hints, shape.fields
    return cls(
        **{
            name: v if type(v) is hints[name] and type(v) in _PLAIN else _field(cls, name, decoders[name], v)
            for name, v in value.items()
        }
    )


def _field(cls: Any, name: str, decode: Callable[[Any], Any], value: Any) -> Any:
    try:
        return decode(value)
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"field {name!r} of {cls.__name__}: {error}") from error


def _expect(holds: bool, what: str, value: Any) -> None:
    if not holds:
        raise ValueError(f"expected {what}, not {str(value)[:200]}")
