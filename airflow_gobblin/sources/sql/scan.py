"""A table, opened: its columns resolved against the catalog, and the queries that planning and reading ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from airflow_gobblin.coverage import Range
from airflow_gobblin.errors import ConfigurationError, SourceDataError, SourceError
from airflow_gobblin.naming import near
from airflow_gobblin.sources.sql.dialects import (
    SAMPLE_ROWS,
    BadValue,
    Column,
    Declared,
    Dialect,
    Session,
    Statement,
    quoted,
)
from airflow_gobblin.sources.sql.positions import Axis, IntegerAxis, Value, axis_of, number_of
from airflow_gobblin.sources.sql.tables import SqlTable
from airflow_gobblin.watermark import LongWatermark, Watermark
from airflow_gobblin.work import ExtractKind

_NAMED = 20
_INT64 = 1 << 63

PAST_INT64 = LongWatermark(_INT64)
"""The position after the greatest integer that a column holds."""
PLAN_AGAIN = "Plan it again: clear the task create_work_units."
EVERY_INTEGER = Range(LongWatermark(-_INT64), PAST_INT64)


@dataclass(frozen=True)
class Extent:
    """How many rows a range has, and its least and greatest delta value if it has any."""

    rows: int
    least: Value | None = None
    greatest: Value | None = None


Piece = tuple[Range, int]
"""A range, and how many rows it has."""


@dataclass(frozen=True)
class Scan:
    """An open table.

    :param columns: those to read, in order. :param delta: the column of positions, and :param axis: its axis, if there is one.
    """

    session: Session
    table: SqlTable
    declared: dict[str, Declared]
    columns: tuple[Column, ...]
    delta: Column | None
    axis: Axis | None

    @property
    def dialect(self) -> Dialect:
        """Of the database."""
        return self.session.dialect

    @property
    def schema(self) -> pa.Schema:
        """What reading gives. Every column may be null, so that the source may drop a NOT NULL later."""
        return pa.schema([pa.field(c.name, c.type) for c in self.columns])

    def positions(self) -> tuple[Column, Axis]:
        """The delta column and its axis. :raises ConfigurationError: the table has none."""
        if self.delta is None or self.axis is None:
            raise ConfigurationError(
                operation=self.session.operation,
                subject=self.session.subject,
                cause="it has no column of positions any more",
                hint=PLAN_AGAIN,
            )
        return self.delta, self.axis

    def now(self) -> datetime:
        """When this transaction began, by the database's clock: it is that which gives rows their times."""
        statement = self.session.statement()
        statement.text = f"SELECT {self.dialect.clock}"
        (text,) = self.session.row(statement)
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    def check_not_rewritten(self) -> None:
        """Check, once it was read, that the snapshot had its rows: a transaction that waited for one which truncates and fills
        the table anew sees neither its old rows nor the new ones. :raises SourceError: it was truncated since, say.
        """
        statement = self.dialect.rewritten(self._namespace, self.table.table)
        rewritten = self.session.rows(statement) if statement.text else []
        if rewritten:
            raise SourceError(
                operation=self.session.operation,
                subject=self.session.subject,
                cause=f"table {rewritten[0][0]!r} was truncated or rewritten since the snapshot was taken in which it is read, "
                "and which shows none of its rows any more",
                hint="Clear the extract task, which reads it anew.",
            )

    @property
    def _namespace(self) -> str:
        return self.table.namespace or self.dialect.default_namespace

    def misplaced(self) -> tuple[int, int, str | None]:
        """Rows without a position, how many of them are NULL, and a value of another one."""
        delta, axis = self.positions()
        condition = self.dialect.misplaced(delta, axis)
        if not condition:
            return 0, 0, None
        statement = self.session.statement()
        name = quoted(delta.name)
        statement.text = (
            f"SELECT count(*), count(*) - count({name}), min(CAST({name} AS text)) "
            f"FROM {self._source(statement, None, None)} AND ({condition})"
        )
        rows, nulls, example = self.session.row(statement)
        return rows, nulls, example

    def extent(self, low: Watermark | None = None, high: Watermark | None = None) -> Extent:
        """The extent of [low, high), or of the whole table."""
        statement = self.session.statement()
        if self.delta is None or self.axis is None:
            statement.text = f"SELECT count(*) FROM {self._source(statement, low, high)}"
            return Extent(*self.session.row(statement))
        key = self.dialect.key(self.delta, self.axis)
        statement.text = f"SELECT count(*), min({key}), max({key}) FROM {self._source(statement, low, high)}"
        rows, least, greatest = self.session.row(statement)
        return Extent(rows, self._value(least), self._value(greatest)) if rows else Extent(0)

    def greatest(self) -> int | None:
        """The greatest key of a table whose delta column is an integer, which an index gives at once; `None`: it is empty."""
        delta, axis = self.positions()
        statement = self.session.statement()
        statement.text = f"SELECT max({self.dialect.key(delta, axis)}) FROM {self._source(statement, None, None)}"
        (greatest,) = self.session.row(statement)
        return None if greatest is None else int(greatest)

    def least(self) -> Value | None:
        """The least delta value, which an index gives at once; `None`: the table is empty."""
        delta, axis = self.positions()
        statement = self.session.statement()
        statement.text = f"SELECT min({self.dialect.key(delta, axis)}) FROM {self._source(statement, None, None)}"
        (least,) = self.session.row(statement)
        return None if least is None else self._value(least)

    def count(self, low: Watermark | None, high: Watermark | None) -> int:
        """How many rows [low, high) has."""
        statement = self.session.statement()
        statement.text = f"SELECT count(*) FROM {self._source(statement, low, high)}"
        (rows,) = self.session.row(statement)
        return int(rows)

    def buckets(self, low: Watermark, high: Watermark, extent: Extent, count: int) -> list[Extent]:
        """The rows of [low, high) in about `count` buckets of equal width, in order, those that are empty left out."""
        delta, axis = self.positions()
        assert extent.least is not None
        assert extent.greatest is not None
        statement = self.session.statement()
        ends = statement.bind(number_of(extent.least), "float8"), statement.bind(number_of(extent.greatest), "float8")
        bucket = self.dialect.bucket(self.dialect.number(delta, axis), ends, count)
        statement.text = (
            f"SELECT count(*), min(k), max(k) FROM (SELECT {self.dialect.key(delta, axis)} AS k, {bucket} AS b "
            f"FROM {self._source(statement, low, high)}) AS keys GROUP BY b ORDER BY 2"
        )
        return [
            Extent(n, self._value(least), self._value(greatest)) for n, least, greatest in self.session.rows(statement)
        ]

    def of_width(self, low: Watermark, high: Watermark, width: float, at_most: int) -> list[Extent]:
        """The rows of [low, high) in buckets of a width, in order, those that are empty left out; so many of them at the most."""
        delta, axis = self.positions()
        statement = self.session.statement()
        bucket = self.dialect.multiple(self.dialect.number(delta, axis), statement.bind(width, "float8"))
        statement.text = (
            f"SELECT count(*), min(k), max(k) FROM (SELECT {self.dialect.key(delta, axis)} AS k, {bucket} AS b "
            f"FROM {self._source(statement, low, high)}) AS keys GROUP BY b ORDER BY 2 LIMIT {int(at_most)}"
        )
        return [
            Extent(n, self._value(least), self._value(greatest)) for n, least, greatest in self.session.rows(statement)
        ]

    def row_bytes(self) -> float:
        """The estimated bytes of a row, from the first rows that come."""
        statement = self.session.statement()
        size = self.dialect.row_bytes(self.columns)
        source = self._source(statement, None, None)
        sample = f"SELECT {size} AS size FROM {source} LIMIT {SAMPLE_ROWS}"
        statement.text = f"SELECT COALESCE(CAST(avg(size) AS float), 0) FROM ({sample}) AS sample"
        return float(self.session.row(statement)[0])

    def cut(self, low: Watermark, high: Watermark, rows: int) -> Watermark | None:
        """Where to end [low, high) so that it has so many rows at the most, but one whole position at least.

        `None`: it doesn't have more.
        """
        delta, axis = self.positions()
        key = self.dialect.key(delta, axis)
        statement = self.session.statement()
        source = self._source(statement, low, high)
        statement.text = (
            f"SELECT k, (SELECT min({key}) FROM {source}) FROM "
            f"(SELECT {key} AS k FROM {source} ORDER BY {key} LIMIT 1 OFFSET {int(rows)}) AS cut"
        )
        found = self.session.rows(statement)
        if not found:
            return None
        first_beyond, least = (self._value(v) for v in found[0])
        position = axis.position(first_beyond)
        return position if axis.position(least) < position else axis.after(first_beyond)

    def batches(self, low: Watermark | None, high: Watermark | None, ordered: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows of [low, high) in batches of the columns; ordered by delta value, they have that as one column more.

        :raises SourceError: a value doesn't fit its column, which it names, with the row.
        """
        statement = self.session.statement()
        key = self.dialect.key(*self.positions()) if ordered else ""
        source = self._source(statement, low, high)
        statement.text = self.dialect.select(self.columns, key, source, key)
        rows, first = 0, True
        try:
            for raw in self.session.stream(statement):
                batch = self.dialect.strip(raw, self.columns, first)
                yield from self._finished(batch, rows)
                rows, first = rows + batch.num_rows, False
        except BadValue as bad:
            raise self._diagnosed(low, high) or self.session.bad_data(bad.cause) from None
        except SourceError as error:
            raise self._diagnosed(low, high) or error from None

    def position(self, raw: Any) -> Watermark:
        """The position of a key that `batches` gave."""
        _, axis = self.positions()
        return axis.position(self._value(raw))

    def _value(self, raw: Any) -> Value:
        delta, axis = self.positions()
        try:
            return self.dialect.value(raw, axis)
        except ValueError as error:
            cause = f"its delta column {delta.name!r} has the value {raw!r}: {error}"
            raise self.session.bad_data(cause, _hint(delta.name)) from None

    def _source(self, statement: Statement, low: Watermark | None, high: Watermark | None) -> str:
        """The table with the conditions for its rows and for [low, high)."""
        conditions = []
        for predicate in self.table.where:
            column = self.declared[predicate.column]
            bound = ", ".join(statement.bind(v, column.base) for v in predicate.values)
            bound = f"({bound})" if predicate.op == "in" else bound
            conditions.append(f"{quoted(column.name)} {predicate.op.upper()} {bound}".rstrip())
        if low is not None or high is not None:
            delta, axis = self.positions()
            bounds = [None if w is None or w == PAST_INT64 else axis.bound(w) for w in (low, high)]
            within = self.dialect.within(statement, delta, axis, *bounds) or "1 = 1"
            if self.table.kind is ExtractKind.SNAPSHOT_ONLY and low == EVERY_INTEGER.low:
                within = f"({within} OR {self.dialect.key(delta, axis)} IS NULL)"  # a row that came after planning
            conditions.append(within)
        return f"{self.dialect.relation(self._namespace, self.table.table)} WHERE {' AND '.join(conditions) or '1 = 1'}"

    def _finished(self, batch: pa.RecordBatch, before: int) -> Iterator[pa.RecordBatch]:
        """A batch with its columns finished, unless it is empty; `before` it came so many rows."""
        if not batch.num_rows:
            return
        arrays = list(batch.columns)
        for n, column in enumerate(self.columns):
            try:
                arrays[n] = self.dialect.finish(arrays[n], column)
            except BadValue as bad:
                raise self.session.bad_data(
                    f"{self._place(bad, batch, before)}: {bad.cause}", _hint(bad.column)
                ) from None
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _place(self, bad: BadValue, batch: pa.RecordBatch, before: int) -> str:
        if bad.row is None:
            return f"column {bad.column!r}"
        keys = [f"{k}={batch.column(k)[bad.row]}" for k in self._keys() if k in batch.schema.names]
        at = f" ({', '.join(keys)})" if keys else ""
        return f"column {bad.column!r}, row {before + bad.row + 1} of the unit{at} has the value {bad.value[:80]}"

    def _diagnosed(self, low: Watermark | None, high: Watermark | None) -> SourceDataError | None:
        statement = self.session.statement()
        keys = self._keys()
        statement.text = self.dialect.diagnose(self.columns, self._source(statement, low, high), keys)
        found = self.session.rows(statement) if statement.text else []
        if not found:
            return None
        number, value, row, *named = found[0]
        column = self.columns[number - 1]
        at = f" ({', '.join(f'{k}={v}' for k, v in zip(keys, named, strict=True))})" if keys else ""
        return self.session.bad_data(
            f"column {column.name!r}, row {row} of the unit{at} has the value {value}: expected {column.type}, "
            f"by its declared type {column.declared.type!r}",
            _hint(column.name),
        )

    def _keys(self) -> tuple[str, ...]:
        return self.table.primary_keys or ((self.table.delta,) if self.table.delta else ())


def open_scan(session: Session, table: SqlTable, names: Sequence[str] = (), *, planned: bool = False) -> Scan:
    """Resolve a table against the catalog.

    :param names: the columns to read; by default those that the table says. :param planned: whether they were there at planning.
    :raises ConfigurationError: there is no such table or column, or a column's type can't be read without a cast.
    """
    dialect = session.dialect
    namespace = table.namespace or dialect.default_namespace
    declared = {row[0]: Declared(*row) for row in session.rows(dialect.catalog(namespace, table.table))}
    gone = [name for name in dict.fromkeys((*table.named_columns, *names)) if name not in declared]
    if planned and not declared:
        raise _gone(session, f"table {table.table!r} went")
    if planned and gone:
        named = [name for name in gone if name in table.named_columns]
        raise _gone(session, f"{_listed(gone)} went from the columns of table {table.table!r}", named)
    if not declared:
        tables = [name for (name,) in session.rows(dialect.tables(namespace))]
        raise unknown(session, f"table {table.table!r} in {namespace!r}", table.table, tables)
    if gone:
        raise unknown(session, f"column {gone[0]!r} in table {table.table!r}", gone[0], list(declared))
    wanted = [declared[name] for name in names or table.columns or declared]
    columns = [(d, dialect.column(d, table.casts.get(d.name), table.timezone)) for d in wanted]
    if unfit := [d for d, column in columns if column is None]:
        raise ConfigurationError(
            operation=session.operation,
            subject=session.subject,
            cause="there is no type for "
            + ", ".join(f"column {d.name!r} ({d.type or 'without a type'})" for d in unfit),
            hint=f"Cast it, for example casts={{{unfit[0].name!r}: 'string'}}, or leave it out of `columns`.",
        )
    delta, axis = positions(session, table, declared)
    return Scan(session, table, declared, tuple(c for _, c in columns if c is not None), delta, axis)


def positions(session: Session, table: SqlTable, declared: dict[str, Declared]) -> tuple[Column | None, Axis | None]:
    """The delta column and its axis; of a snapshot only an integer one, or its one primary key, by which it can be split.

    :raises ConfigurationError: the delta column has no positions.
    """
    snapshot = table.kind is ExtractKind.SNAPSHOT_ONLY
    single_key = table.primary_keys[0] if len(table.primary_keys) == 1 else None
    name = table.delta or (single_key if snapshot else None)
    if name is None:
        return None, None
    delta = session.dialect.delta(declared[name], table.casts.get(name), table.timezone)
    axis = axis_of(delta.type, table.timezone) if delta is not None else None
    if snapshot:
        return (delta, axis) if isinstance(axis, IntegerAxis) else (None, None)
    if axis is None:
        raise ConfigurationError(
            operation=session.operation,
            subject=session.subject,
            cause=f"its delta column {name!r} ({declared[name].type or 'without a type'}) is no integer, date or timestamp",
            hint=f"Choose another delta column, or cast it to one of these types, for example casts={{{name!r}: 'timestamp'}}.",
        )
    return delta, axis


def _gone(session: Session, what: str, named: Sequence[str] = ()) -> ConfigurationError:
    """What to say of something that went between plan and read. :param named: columns that the author names."""
    also = f" Take {_listed(named)} out of the table's options before." if named else ""
    return ConfigurationError(
        operation=session.operation,
        subject=session.subject,
        cause=f"since it was planned, {what}",
        hint=f"{PLAN_AGAIN}{also}",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def unknown(session: Session, what: str, name: str, known: Sequence[str]) -> ConfigurationError:
    """Name a table or column that isn't there, and what may be meant."""
    alike, some = near(name, known), ", ".join(map(repr, sorted(known)[:_NAMED])) or "none"
    return ConfigurationError(
        operation=session.operation,
        subject=session.subject,
        cause=f"there is no {what}",
        hint=f"Did you mean {' or '.join(map(repr, alike))}?" if alike else f"There is {some}.",
    )


def _hint(column: str) -> str:
    return (
        f"Correct it at the source, leave such rows out by the table's `where`, "
        f"or read column {column!r} as another type by `casts`; a cast that may round says so, as 'rounded decimal(10,2)'."
    )
