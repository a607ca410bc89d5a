"""SQLite, through ADBC.

SQLite keeps any value in any column, and the driver guesses a column's type from the first rows. So the type is taken from the
declaration, by SQLite's own affinity rules, and held in three ways: a sentinel row before the first one tells the
driver what to expect, a flag column says for each row whether every value is of the declared storage class, and texts that
stand for something else (dates, timestamps, decimals) are parsed strictly.

Timestamps are texts, `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]]`, with a space or a `T`; with `Z` or `+HH:MM` behind where the type has a
zone. As delta columns they are compared in one spelling, whatever the table's, and an index on the plain column still
helps, because a comparison of the days comes first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.sources.sql_dialects import (
    BadValue,
    Column,
    Declared,
    Statement,
    cast_or_refuse,
    quoted,
)
from airflow_gobblin.sources.sql_positions import Axis, AxisKind, Value
from airflow_gobblin.sources.sql_types import decimal_type, parse_type

_BUSY_MILLISECONDS = 30_000
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_INTEGER, _REAL, _TEXT, _BLOB = "0", "0.5", "''", "x'00'"
_SENTINELS: dict[str, Any] = {_INTEGER: 0, _REAL: 0.5, _TEXT: "", _BLOB: b"\0"}
_PHYSICAL = {_INTEGER: pa.int64(), _REAL: pa.float64(), _TEXT: pa.string(), _BLOB: pa.binary()}
_ZONE = r"(?:Z|[+-]\d\d:\d\d)$"


@dataclass(frozen=True)
class Sqlite:
    """SQLite 3, in a file of this machine."""

    name: ClassVar[str] = "SQLite"
    default_namespace: ClassVar[str] = "main"

    def connect(self, uri: str, zone: str) -> Any:
        """A read-only connection in a transaction, which sees the state at its first read."""
        from adbc_driver_sqlite import dbapi  # noqa: PLC0415 - an optional dependency

        connection = dbapi.connect(f"file:{quote(sqlite_path(uri))}?mode=ro", autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
                cursor.fetchall()
            connection.adbc_connection.set_autocommit(False)
        except BaseException:
            connection.close()
            raise
        return connection

    def execute(self, cursor: Any, statement: Statement) -> None:
        """With bound parameters."""
        cursor.execute(statement.text, statement.values or None)

    def placeholder(self, number: int, base: str) -> str:
        """By number."""
        return f"?{number}"

    def relation(self, namespace: str, table: str) -> str:
        """Database and table."""
        return f"{quoted(namespace)}.{quoted(table)}"

    def catalog(self, namespace: str, table: str) -> Statement:
        """From table_xinfo, with generated columns."""
        statement = Statement(self.placeholder)
        statement.text = f"""
            SELECT name, type, type, -1, "notnull" = 0 FROM pragma_table_xinfo({statement.bind(table)}, {statement.bind(namespace)})
            WHERE hidden <> 1 ORDER BY cid"""
        return statement

    def tables(self, namespace: str) -> Statement:
        """From the schema table."""
        statement = Statement(self.placeholder)
        statement.text = (
            f"SELECT name FROM {quoted(namespace)}.sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        )
        return statement

    def column(self, declared: Declared, cast: str | None, zone: str) -> Column | None:
        """Declared types are strict. Casts take every spelling of the type that loses nothing, and refuse the rest."""
        kind = parse_type(cast) if cast is not None else declared_type(declared.type)
        if kind is None:
            return None
        expression, fits, sentinel = (_lenient if cast is not None else _strict)(kind, quoted(declared.name))
        return Column(declared, kind, expression, fits, sentinel)

    def key(self, column: Column, axis: Axis) -> str:
        """Integers and dates as they are, timestamps in one spelling: `YYYY-MM-DD HH:MM:SS.ffffff`, in UTC if they have a zone."""
        name = quoted(column.name)
        if axis.kind is AxisKind.LOCAL:
            return _spelled(name)
        if axis.kind is AxisKind.INSTANT:
            spelled = _spelled(_without_zone(name))
            return f"strftime('%Y-%m-%d %H:%M:%S', substr({spelled}, 1, 19) || {_zone(name)}) || substr({spelled}, 20)"
        return name

    def misplaced(self, column: Column, axis: Axis) -> str:
        """NULL, another storage class, or a text in another spelling."""
        name = quoted(column.name)
        if axis.kind is AxisKind.INTEGER:
            return f"typeof({name}) <> 'integer'"
        if axis.kind is AxisKind.DATE:
            return f"typeof({name}) <> 'text' OR date({name}) IS NOT {name}"
        local = _without_zone(name) if axis.kind is AxisKind.INSTANT else name
        return f"typeof({name}) <> 'text' OR NOT ({_well_spelled(local)})"

    def number(self, column: Column, axis: Axis) -> str:
        """Microseconds or seconds since 1970, or the integer."""
        key = self.key(column, axis)
        if axis.kind is AxisKind.INTEGER:
            return key
        seconds = f"CAST(strftime('%s', substr({key}, 1, 19)) AS INTEGER)"
        return seconds if axis.kind is AxisKind.DATE else f"{seconds} * 1000000 + CAST(substr({key}, 21) AS INTEGER)"

    def bucket(self, number: str, low: str, high: str, count: int) -> str:
        """By proportion."""
        return f"CASE WHEN {low} < {high} THEN CAST(({number} - {low}) * 1.0 / ({high} - {low}) * {count} AS INTEGER) ELSE 0 END"

    def within(self, statement: Statement, column: Column, axis: Axis, low: Value | None, high: Value | None) -> str:
        """Comparisons of the spelled key, and for timestamps of the days before, which an index can answer."""
        name, key, parts = quoted(column.name), self.key(column, axis), []
        slack = timedelta(days=1 if axis.kind is AxisKind.INSTANT else 0)
        if low is not None:
            parts.append(f"{key} >= {statement.bind(_as_key(low))}")
            if isinstance(low, datetime):
                parts.append(f"{name} >= {statement.bind(str(low.date() - slack))}")
        if high is not None:
            parts.append(f"{key} < {statement.bind(_as_key(high))}")
            if isinstance(high, datetime):
                parts.append(f"{name} < {statement.bind(str(high.date() + slack + timedelta(days=1)))}")
        return " AND ".join(parts)

    def value(self, raw: Any, axis: Axis) -> Value:
        """Parsed from the spelling of `key`."""
        if axis.kind is AxisKind.INTEGER:
            return int(raw)
        if axis.kind is AxisKind.DATE:
            return date.fromisoformat(raw)
        value = datetime.fromisoformat(raw)
        return value.replace(tzinfo=UTC) if axis.kind is AxisKind.INSTANT else value

    def row_bytes(self, columns: Sequence[Column]) -> str:
        """The lengths as texts, or eight."""
        return " + ".join(f"max(8, COALESCE(length(CAST({quoted(c.name)} AS BLOB)), 0))" for c in columns)

    def select(self, columns: Sequence[Column], key: str, source: str, order: str) -> str:
        """The sentinel row, then the rows, each with its flag. `LIMIT -1` keeps SQLite from dropping the inner order."""
        sentinels = [_INTEGER, *(c.sentinel for c in columns)] + ([_TEXT] if key else [])
        first = ", ".join(f"{s} AS c{n}" for n, s in enumerate(sentinels))
        listed = ", ".join([_flag(columns), *(c.expression for c in columns)] + ([key] if key else []))
        rows = f"SELECT {listed} FROM {source}"
        if order:
            rows = f"SELECT * FROM ({rows} ORDER BY {order} LIMIT -1)"
        return f"SELECT {first} UNION ALL {rows}"

    def finish(self, batch: pa.RecordBatch, columns: Sequence[Column], first: bool) -> pa.RecordBatch:
        """Without sentinel and flags."""
        expected = [_PHYSICAL[c.sentinel] for c in columns]
        if batch.schema.types[1 : 1 + len(columns)] != expected:
            raise BadValue
        if first:
            assert [c[0].as_py() for c in batch.columns[1 : 1 + len(columns)]] == [_SENTINELS[c.sentinel] for c in columns]
            batch = batch.slice(1)
        if pc.max(batch.column(0)).as_py():
            raise BadValue
        arrays = [_finished(a, c) for a, c in zip(batch.columns[1:], columns, strict=False)]
        keys = batch.columns[1 + len(columns) :]
        return pa.RecordBatch.from_arrays([*arrays, *keys], names=[c.name for c in columns] + ["key"] * len(keys))

    def diagnose(self, columns: Sequence[Column], source: str, keys: Sequence[str]) -> str:
        """The first row with a flag."""
        flag = _flag(columns)
        values = " ".join(f"WHEN {n} THEN typeof({quoted(c.name)}) || ' ' || substr(quote({quoted(c.name)}), 1, 60)" for n, c in enumerate(columns, 1))
        listed = ", ".join([f"{flag} AS flag", f"CASE {flag} {values} END"] + [f"quote({quoted(k)})" for k in keys])
        return f"SELECT {listed} FROM {source} AND {flag} > 0 LIMIT 1"
