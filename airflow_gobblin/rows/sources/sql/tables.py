"""A DAG author's description of a table: its rows, its columns, its delta column, and its split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.naming import check_urn
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark
from airflow_gobblin.model.wire import digest
from airflow_gobblin.model.work import MIB, Extract, ExtractKind
from airflow_gobblin.rows.sources.sql.types import TYPE_NAMES, is_type_name

DEFAULT_LAG = timedelta(minutes=5)

_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_OPERATORS = (*_COMPARISONS, "in", "is null", "is not null")
_TAKES = {
    "=": "Give it one value.",
    "in": "Give it a tuple of values, at least one.",
    "is null": "Leave the value out.",
    "is not null": "Leave the value out.",
}
_MOST_WORDS = 400
_INT64 = range(-(1 << 63), 1 << 63)

PredicateValue = bool | int | float | str


@dataclass(frozen=True)
class Predicate:
    """A condition that rows must meet: `column op value`, with the value bound and never part of the SQL text.

    :param op: `=`, `!=`, `<`, `<=`, `>`, `>=`, `in` (with a tuple of values), `is null` or `is not null` (without a value).
    :param value: dates, timestamps and decimals become text. PostgreSQL reads a text as the column's type. SQLite
        compares the values as stored: texts with texts.
    """

    column: str
    op: str
    value: PredicateValue | tuple[PredicateValue, ...] | date | Decimal | None = None

    def __post_init__(self) -> None:
        if isinstance(self.value, tuple | list):
            object.__setattr__(self, "value", tuple(self._scalar(v) for v in self.value))
        elif self.value is not None:
            object.__setattr__(self, "value", self._scalar(self.value))
        if self.op not in _OPERATORS:
            raise self._refused("there is no such operator", f"Use one of {', '.join(_OPERATORS)}.")
        expected = tuple if self.op == "in" else type(None) if self.op.startswith("is ") else PredicateValue
        if not isinstance(self.value, expected) or self.value == ():
            raise self._refused(f"operator {self.op!r} doesn't take this value", _TAKES.get(self.op, _TAKES["="]))

    @property
    def values(self) -> tuple[PredicateValue, ...]:
        """Its values: none, one, or those of `in`."""
        if self.value is None:
            return ()
        return self.value if isinstance(self.value, tuple) else (self.value,)  # type: ignore[return-value]

    def _scalar(self, value: object) -> PredicateValue:
        if isinstance(value, datetime):
            return value.isoformat(" ")
        if isinstance(value, date | Decimal):
            return str(value)
        fits = value in _INT64 if isinstance(value, int) else not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, PredicateValue) or not fits or (isinstance(value, str) and "\0" in value):
            raise self._refused(
                f"{value!r} is not a value that can be bound",
                "Give a boolean, an integer of 64 bits, a finite float, a text without NUL, a date, a datetime or a Decimal.",
            )
        return value

    def _refused(self, cause: str, hint: str) -> ConfigurationError:
        return ConfigurationError(operation="use", subject=str(self), cause=cause, hint=hint)


@dataclass(frozen=True)
class SqlTable:
    """A table or view, as one dataset.

    :param namespace: the schema of the table; by default `public` in PostgreSQL and `main` in SQLite.
    :param urn: the dataset's URN; by default `namespace.table`, or the table's name alone.
    :param delta: the column whose value identifies new rows: an integer, a date or a timestamp, without NULLs. A snapshot
        needs none; a big one is split by it, or by its only primary key, if that is an integer.
    :param primary_keys: the columns of its primary key, by which sinks merge; by default those that the catalog knows.
    :param columns: the columns to read, in this order; all by default.
    :param casts: columns to read as another type: `int64`, `float64`, `string`, `bool`, `date`, `timestamp`,
        `timestamp[UTC]`, `decimal(precision,scale)` or `binary`. PostgreSQL casts by its own rules; SQLite accepts every
        spelling of the type. A value that would lose something, such as a time by `date`, is refused, except numbers with a
        cast that is declared to round: `rounded decimal(10,2)`, `rounded int64`, `rounded float64`.
    :param where: conditions, all of which a row must meet.
    :param start: the start of an append-only table's first load: an integer or a datetime, by default the least value.
    :param lag: the distance at which a run ends before now, by the database's clock (a timedelta, for dates and timestamps: 5
        minutes by default), or before the greatest key (an integer, in key units: 0 by default), so that rows that are
        committed late are not missed.
    :param timezone: the zone of timestamps without one. A day of a date column is over when it is over in this zone; the
        position of a date is its midnight in UTC.
    :param unit_bytes: the maximum estimated size of a work unit; a larger range is split.
    :param max_units: the most work units that a range is split into, whatever their size.
    :param unit_width: the width of work units, whatever their content: a timedelta (whole days for dates), or an integer of
        keys. They begin and end at its multiples, counted from 1970-01-01 00:00 UTC or from 0, except at the ends of the
        planned range; adjacent empty widths are one unit. `unit_bytes` and `max_units` then have no effect; limits are per
        unit.
    """

    table: str
    kind: ExtractKind
    namespace: str | None = None
    urn: str = ""
    delta: str | None = None
    primary_keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    casts: Mapping[str, str] = field(default_factory=dict)
    where: tuple[Predicate, ...] = ()
    start: LongWatermark | TimestampWatermark | int | datetime | None = None
    lag: int | float | timedelta | None = None
    timezone: str = "UTC"
    unit_bytes: int = 128 * MIB
    max_units: int = 16
    unit_width: int | float | timedelta | None = None

    def __post_init__(self) -> None:
        check_tuples(self)
        if not self.urn:
            object.__setattr__(self, "urn", f"{self.namespace}.{self.table}" if self.namespace else self.table)
        for name in ("lag", "unit_width"):  # stored as seconds, a float; key units are an int
            if isinstance(time_given := getattr(self, name), timedelta):
                object.__setattr__(self, name, time_given.total_seconds())
        if isinstance(self.start, date) and not isinstance(self.start, datetime):
            object.__setattr__(self, "start", datetime.combine(self.start, time()))
        if self.kind not in [*ExtractKind]:
            kinds = ", ".join(f"ExtractKind.{kind.name}" for kind in ExtractKind)
            raise self._refused(f"{self.kind!r} is not a kind of table", f"Give one of {kinds}.")
        object.__setattr__(self, "kind", ExtractKind(self.kind))
        problem = self._problem()
        if problem is not None:
            raise self._refused(*problem)
        check_urn(self.urn)

    def _refused(self, cause: str, hint: str) -> ConfigurationError:
        return ConfigurationError(operation="use", subject=f"table {self.urn!r}", cause=cause, hint=hint)

    def _problem(self) -> tuple[str, str] | None:
        """Return the first fault, and the way out; `None` if there is none."""
        names = [self.table, *self.named_columns] + ([self.namespace] if self.namespace is not None else [])
        if any(not n or "\0" in n for n in names):
            return "a name is empty, or holds a NUL", "Name tables and columns as the database does."
        if len(set(self.columns)) != len(self.columns):
            return "a column is named twice in `columns`", "Name each column once."
        if unread := [c for c in self.casts if self.columns and c not in (*self.columns, self.delta)]:
            return f"`casts` names {unread}, which `columns` doesn't", "Add them to `columns`, or take the casts out."
        for column, name in self.casts.items():
            if not is_type_name(name):
                return f"column {column!r} is cast to {name!r}", f"Cast it to one of {', '.join(TYPE_NAMES)}."
        if self.kind is not ExtractKind.SNAPSHOT_ONLY and self.delta is None:
            return f"kind {self.kind.value} needs a delta column", "Name it in `delta`, or make it a snapshot_only."
        if self.start is not None and self.kind is not ExtractKind.APPEND_ONLY:
            cause = f"`start` is for append-only tables; the first load of a {self.kind.value} takes everything"
            return cause, "Take `start` out, or make it append_only."
        if isinstance(self.start, int) and self.start not in _INT64:
            return "`start` is beyond the integers of 64 bits", "Give a value that the delta column can have."
        if self.lag is not None and self.lag < 0:  # type: ignore[operator]
            return "the lag is negative", "Give how far before now, or before the greatest key, a run is to end."
        if min(self.unit_bytes, self.max_units) <= 0:
            return "`unit_bytes` or `max_units` is not above zero", "Give both above zero, or leave them out."
        if self.unit_width is not None and (isinstance(self.unit_width, bool) or self.unit_width <= 0):  # type: ignore[operator]
            return "`unit_width` is not above zero", "Give a time, or how many keys, that a work unit is wide."
        try:
            ZoneInfo(self.timezone)
        except (ValueError, OSError, LookupError):
            return f"{self.timezone!r} is not a time zone", "Give a name of the IANA database, such as 'Europe/Paris'."
        return None

    @property
    def named_columns(self) -> tuple[str, ...]:
        """Every column that is named anywhere here."""
        delta = (self.delta,) if self.delta is not None else ()
        return (*self.columns, *self.casts, *delta, *self.primary_keys, *(p.column for p in self.where))

    @property
    def read_from(self) -> str:
        """The table and its conditions, in words; empty without conditions. A long text ends in a digest."""
        if not self.where:
            return ""
        name = f"{self.namespace}.{self.table}" if self.namespace else self.table
        conditions = sorted(f"{p.column} {p.op}" + ("" if p.value is None else f" {p.value!r}") for p in self.where)
        text = f"{name} where {' and '.join(conditions)}"
        return text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}… ({digest(text.encode())[:16]})"

    @property
    def extract(self) -> Extract:
        """The description of its rows."""
        return Extract(self.kind, self.namespace or "", self.table)
