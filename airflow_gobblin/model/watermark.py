"""Watermarks: typed positions in a dataset, the next position to read.

A watermark knows its order, its JSON form and the progress between two of its values. A `MultiLongWatermark` is a list of
positions compared position by position; everything else is one position. A user's own type is a frozen dataclass with an
order, registered by its `kind`::

    @register_watermark
    @dataclass(frozen=True, order=True)
    class LogFileWatermark:
        kind: ClassVar[str] = "acme.log_file"
        ...

Source: Gobblin's ``Watermark`` interface (state and watermarks design page).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

from airflow_gobblin.errors import ConfigurationError, RecordError, UnknownKindError
from airflow_gobblin.model.registry import look_up

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@runtime_checkable
class Watermark(Protocol):
    """A position in a dataset. Instances are immutable, hashable and totally ordered within one kind
    (but for `MultiLongWatermark`, which is split into its positions before anything is compared)."""

    kind: ClassVar[str]

    def __lt__(self, other: Any, /) -> bool: ...

    def to_json(self) -> Json:
        """Return the value, without its kind, as JSON."""

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Create a watermark from the result of `to_json`."""

    def progress(self, low: Self, high: Self) -> float:
        """Return how far this value is from `low` to `high`, in percent, between 0 and 100."""


_kinds: dict[str, type[Watermark]] = {}
W = TypeVar("W", bound=type[Watermark])


def register_watermark(watermark_type: W) -> W:
    """Register a watermark type by its `kind`, for decoding. Registering the same class twice is harmless.

    :raises ConfigurationError: another class already has this kind.
    """
    known = _kinds.get(watermark_type.kind)
    if known is not None and (known.__module__, known.__qualname__) != (
        watermark_type.__module__,
        watermark_type.__qualname__,
    ):
        raise ConfigurationError(
            operation="register",
            subject=f"watermark kind {watermark_type.kind!r}",
            cause=f"it belongs to {known.__module__}.{known.__qualname__}",
            hint="Choose another kind, for example with your organisation's name before it.",
        )
    _kinds[watermark_type.kind] = watermark_type
    return watermark_type


def encode(watermark: Watermark) -> dict[str, Json]:
    """Encode a watermark as JSON with its kind."""
    return {"kind": watermark.kind, "value": watermark.to_json()}


def decode(document: Any) -> Watermark:
    """Decode a watermark encoded by `encode`.

    :raises UnknownKindError: its kind is not registered.
    :raises RecordError: the document isn't a watermark.
    """
    if not isinstance(document, dict) or set(document) != {"kind", "value"}:
        raise RecordError(
            operation="decode", subject=f"watermark {document!r}", cause="expected an object with 'kind' and 'value'"
        )
    kind = document["kind"]
    known = look_up(_kinds, kind) if isinstance(kind, str) else None
    if known is None:
        raise UnknownKindError(
            operation="decode",
            subject=f"watermark of kind {kind!r}",
            cause=f"registered are {', '.join(map(repr, sorted(_kinds)))}",
            hint='Mark its class with @register_watermark, and name its module in the ingestion\'s `code=("acme_log",)`.',
        )
    try:
        return known.from_json(document["value"])
    except ConfigurationError as error:  # of the type itself, which code that makes one sees
        raise RecordError(operation="decode", subject=error.subject, cause=error.why) from error


def percent(done: float, total: float) -> float:
    """Return `done` of `total` in percent, between 0 and 100; 100 if there is nothing to do."""
    return 100.0 if total <= 0 or done >= total else min(100.0, max(0.0, 100.0 * done / total))


LONGS = (-(1 << 63), 1 << 63)
"""The first and the last integer position: the least integer of 64 bits, and the one after the greatest."""


@register_watermark
@dataclass(frozen=True, order=True, slots=True)
class LongWatermark:
    """An integer position of 64 bits, such as a key or an offset.

    :raises ConfigurationError: it is beyond 64 bits.
    """

    kind: ClassVar[str] = "long"
    value: int

    def __post_init__(self) -> None:
        if not LONGS[0] <= self.value <= LONGS[1]:
            raise ConfigurationError(
                operation="make",
                subject="a long watermark",
                cause="its value is beyond the integers of 64 bits",
            )

    def to_json(self) -> Json:
        return self.value

    @classmethod
    def from_json(cls, value: Any) -> LongWatermark:
        if not isinstance(value, int) or isinstance(value, bool):
            raise RecordError(operation="decode", subject=f"long watermark {value!r}", cause="expected an integer")
        return cls(value)

    def progress(self, low: LongWatermark, high: LongWatermark) -> float:
        return percent(self.value - low.value, high.value - low.value)


@register_watermark
@dataclass(frozen=True, slots=True)
class MultiLongWatermark:
    """A list of integer positions, compared position by position (for example the partitions of a topic).

    :raises ConfigurationError: there is none, or one is beyond 64 bits.
    """

    kind: ClassVar[str] = "multi_long"
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigurationError(operation="make", subject="multi-long watermark []", cause="it has no position")
        split(self)

    def __lt__(self, other: MultiLongWatermark) -> bool:
        """Return whether it is behind in at least one position and ahead in none: a partial order."""
        return self.values != other.values and all(a <= b for a, b in zip(self.values, other.values, strict=True))

    def to_json(self) -> Json:
        return list(self.values)

    @classmethod
    def from_json(cls, value: Any) -> MultiLongWatermark:
        if not isinstance(value, list):
            raise RecordError(
                operation="decode", subject=f"multi-long watermark {value!r}", cause="expected a list of integers"
            )
        return cls(tuple(LongWatermark.from_json(v).value for v in value))

    def progress(self, low: MultiLongWatermark, high: MultiLongWatermark) -> float:
        return percent(sum(self.values) - sum(low.values), sum(high.values) - sum(low.values))


@register_watermark
@dataclass(frozen=True, order=True, slots=True)
class TimestampWatermark:
    """A point in time with a time zone, to the microsecond; stored in UTC."""

    kind: ClassVar[str] = "timestamp"
    value: datetime

    def __post_init__(self) -> None:
        if self.value.tzinfo is None:
            raise ConfigurationError(
                operation="make",
                subject=f"timestamp watermark {self.value.isoformat()}",
                cause="it has no time zone",
                hint="Give the datetime a tzinfo, for example datetime.UTC.",
            )
        object.__setattr__(self, "value", self.value.astimezone(UTC))

    def to_json(self) -> Json:
        return self.value.isoformat(timespec="microseconds")

    @classmethod
    def from_json(cls, value: Any) -> TimestampWatermark:
        try:
            return cls(datetime.fromisoformat(value))
        except OverflowError:
            cause = "in UTC it is before the year 1, or after 9999"
        except (TypeError, ValueError):
            cause = "expected a time in ISO 8601, with its zone"
        raise RecordError(operation="decode", subject=f"timestamp watermark {value!r}", cause=cause)

    def progress(self, low: TimestampWatermark, high: TimestampWatermark) -> float:
        return percent((self.value - low.value).total_seconds(), (high.value - low.value).total_seconds())


def split(watermark: Watermark) -> tuple[Watermark, ...]:
    """Return the positions of a watermark: one, except for a `MultiLongWatermark`, which has one per value."""
    if isinstance(watermark, MultiLongWatermark):
        return tuple(LongWatermark(value) for value in watermark.values)
    return (watermark,)


def join(positions: tuple[Watermark, ...], like: str) -> Watermark:
    """Create a watermark of kind `like` from its positions: the inverse of `split`."""
    if like == MultiLongWatermark.kind:
        return MultiLongWatermark(tuple(p.value for p in positions if isinstance(p, LongWatermark)))
    (position,) = positions
    return position


def lowest(watermarks: Sequence[Watermark]) -> Watermark:
    """Return the minimum of some watermarks, position by position; their numbers of positions may differ."""
    return join(tuple(min(column) for column in _columns(watermarks)), watermarks[0].kind)


def highest(watermarks: Sequence[Watermark]) -> Watermark:
    """Return the maximum of some watermarks, position by position; their numbers of positions may differ."""
    return join(tuple(max(column) for column in _columns(watermarks)), watermarks[0].kind)


def _columns(watermarks: Sequence[Watermark]) -> Iterator[list[Watermark]]:
    """Yield the first positions of all, then the second ones, …"""
    for column in zip_longest(*map(split, watermarks)):
        yield [position for position in column if position is not None]
