"""An open table: its columns resolved against the catalog, and the queries that planning and reading need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_gobblin.errors import ConfigurationError, Remedy, SourceDataError, SourceError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import meant
from airflow_gobblin.model.watermark import LONGS, LongWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sources.sql.dialects import (
    SAMPLE_ROWS,
    BadValue,
    BulkWay,
    Column,
    Declared,
    Dialect,
    MisreadError,
    Session,
    Statement,
    plain,
    quoted,
)
from airflow_gobblin.rows.sources.sql.positions import Axis, IntegerAxis, Value, axis_of, number_of
from airflow_gobblin.rows.sources.sql.tables import SqlTable

_NAMED = 20
BATCH_BYTES = 4 << 20
LEAST_BATCH_ROWS = 1 << 10
"""The approximate size of a bulk batch, and its least number of rows."""
SAMPLE_PAGES = 400
SAMPLED_FROM_PAGES = 10 * SAMPLE_PAGES
"""The number of pages, 32 MB in PostgreSQL, from which a table is split by a sample of them; a smaller one by all its rows."""
EVERY_INTEGER = Range(*map(LongWatermark, LONGS))


@dataclass(frozen=True)
class Extent:
    """The number of rows in a range, with its least and greatest delta value if it has any.

    :param keys: the keys of some of its pages, if the rows were estimated by them.
    """

    rows: int
    least: Value | None = None
    greatest: Value | None = None
    keys: pa.Array | None = field(default=None, compare=False)


Piece = tuple[Range, int]
"""A range, and its number of rows."""


@dataclass(frozen=True)
class Scan:
    """An open table.

    :param columns: the columns to read, in order.
    :param delta: the column of positions, if there is one.
    :param axis: its axis, if there is one.
    :param first: the number of rows to limit it to; 0 for all.
    """

    session: Session
    table: SqlTable
    declared: dict[str, Declared]
    columns: tuple[Column, ...]
    delta: Column | None
    axis: Axis | None
    first: int = 0

    @property
    def dialect(self) -> Dialect:
        """The database's dialect."""
        return self.session.dialect

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows read. Every column may be null, so that the source may drop a NOT NULL later."""
        return pa.schema([pa.field(c.name, c.type) for c in self.columns])

    def positions(self) -> tuple[Column, Axis]:
        """Return the delta column and its axis.

        :raises ConfigurationError: the table has none.
        """
        if self.delta is None or self.axis is None:
            raise ConfigurationError(
                operation=self.session.operation,
                subject=self.session.subject,
                cause="it has no column of positions any more",
                remedy=Remedy.PLAN,
            )
        return self.delta, self.axis

    @cached_property
    def now(self) -> datetime:
        """The start of this transaction, by the database's clock, which also gives rows their times."""
        statement = self.session.statement()
        statement.text = f"SELECT {self.dialect.clock}"
        (text,) = self.session.row(statement)
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """The columns of its primary key: as its author names them, or else the catalog."""
        if self.table.primary_keys:
            return self.table.primary_keys
        statement = self.dialect.primary_keys(self._namespace, self.table.table)
        return tuple(name for (name,) in self.session.rows(statement))

    def check_not_rewritten(self) -> None:
        """Check, after reading, that the snapshot had the table's rows: a transaction that waited for one that truncates and
        refills the table sees neither its old rows nor the new ones.

        :raises SourceError: for example, it was truncated since.
        """
        statement = self.dialect.rewritten(self._namespace, self.table.table)
        rewritten = self.session.rows(statement) if statement.text else []
        if rewritten:
            raise SourceError(
                operation=self.session.operation,
                subject=self.session.subject,
                cause=f"table {rewritten[0][0]!r} was truncated or rewritten since the snapshot was taken in which it is read, "
                "and which shows none of its rows any more",
                remedy=Remedy.EXTRACT,
            )

    @property
    def _namespace(self) -> str:
        return self.table.namespace or self.dialect.default_namespace

    def misplaced(self) -> tuple[int, int, str | None]:
        """Return the number of rows without a position, how many of them are NULL, and a value of another one."""
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
        """Return the extent of [low, high), or of the whole table."""
        statement = self.session.statement()
        if self.delta is None or self.axis is None:
            statement.text = f"SELECT count(*) FROM {self._source(statement, low, high)}"
            return Extent(*self.session.row(statement))
        key = self.dialect.key(self.delta, self.axis)
        statement.text = f"SELECT count(*), min({key}), max({key}) FROM {self._source(statement, low, high)}"
        rows, least, greatest = self.session.row(statement)
        return Extent(rows, self._value(least), self._value(greatest)) if rows else Extent(0)

    def estimate(self, high: Watermark | None = None) -> Extent:
        """Return the extent of all rows, or of those below a position; a big table's rows are estimated by a sample of pages.

        Emptiness and the least value are exact.
        """
        statement = self.dialect.pages(self._namespace, self.table.table)
        found = self.session.rows(statement) if statement.text else []
        pages, numbered = found[0] if found else (0, False)
        if pages < SAMPLED_FROM_PAGES:
            return self.extent(None, high)
        key = "1" if self.delta is None or self.axis is None else self.dialect.key(self.delta, self.axis)
        statement = self.session.statement()
        relation = self.dialect.sampled(self._relation, pages, SAMPLE_PAGES, numbered)
        statement.text = f"SELECT {key} FROM {self._source(statement, None, high, relation)}"
        keys = self.session.column(statement)
        if len(keys) < SAMPLE_ROWS:  # few of its rows are to be read, or all sampled pages are empty
            return self.extent(None, high)
        rows = round(len(keys) * pages / SAMPLE_PAGES)
        if self.delta is None or self.axis is None:
            return Extent(rows)
        statement = self.session.statement()
        statement.text = f"SELECT min({key}), max({key}) FROM {self._source(statement, None, high)}"
        least, greatest = self.session.row(statement)
        return Extent(rows, self._value(least), self._value(greatest), plain(keys.combine_chunks()).drop_null())

    def cuts(self, extent: Extent, count: int) -> list[tuple[Value, int]]:
        """Return the keys that cut an estimated extent into about `count` parts of as many rows, each with the rows before it."""
        assert extent.keys is not None
        known = extent.keys.sort()
        keys = known.take([n * len(known) // count for n in range(1, count)]).unique()
        before = [round(known.index(key).as_py() * extent.rows / len(known)) for key in keys]
        return list(zip(map(self._value, self.session.values(keys)), before, strict=True))

    def greatest(self) -> int | None:
        """Return the greatest key of a table with an integer delta column, quick with an index; `None` if it is empty."""
        delta, axis = self.positions()
        statement = self.session.statement()
        statement.text = f"SELECT max({self.dialect.key(delta, axis)}) FROM {self._source(statement, None, None)}"
        (greatest,) = self.session.row(statement)
        return None if greatest is None else int(greatest)

    def least(self) -> Value | None:
        """Return the least delta value, quick with an index; `None` if the table is empty."""
        delta, axis = self.positions()
        statement = self.session.statement()
        statement.text = f"SELECT min({self.dialect.key(delta, axis)}) FROM {self._source(statement, None, None)}"
        (least,) = self.session.row(statement)
        return None if least is None else self._value(least)

    def count(self, low: Watermark | None, high: Watermark | None) -> int:
        """Return the number of rows in [low, high)."""
        statement = self.session.statement()
        statement.text = f"SELECT count(*) FROM {self._source(statement, low, high)}"
        (rows,) = self.session.row(statement)
        return int(rows)

    def buckets(self, low: Watermark, high: Watermark, extent: Extent, count: int) -> list[Extent]:
        """Return the rows of [low, high) in about `count` buckets of equal width, in order, without empty ones.

        :param extent: their extent.
        """
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
        """Return the rows of [low, high) in buckets of a width, in order, without empty ones; at most `at_most` buckets."""
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

    @cached_property
    def row_bytes(self) -> float:
        """An estimate of the bytes of a row, from the first rows returned."""
        statement = self.session.statement()
        size = self.dialect.row_bytes(self.columns)
        source = self._source(statement, None, None)
        sample = f"SELECT {size} AS size FROM {source} LIMIT {SAMPLE_ROWS}"
        statement.text = f"SELECT COALESCE(CAST(avg(size) AS float), 0) FROM ({sample}) AS sample"
        return float(self.session.row(statement)[0])

    def cut(self, low: Watermark, high: Watermark, rows: int) -> Watermark | None:
        """Return the end that limits [low, high) to the given number of rows, but at least to one whole position.

        :return: `None` if it has no more rows than that.
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

    def batches(
        self,
        low: Watermark | None,
        high: Watermark | None,
        *,
        ordered: bool = False,
        bulk: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of [low, high) in batches of the columns; rows ordered by delta value have that as one more column.

        :param bulk: whether there are enough rows to be worth another way than ADBC's driver, if there is one.
        :raises SourceError: a value doesn't fit its column; names the column and the row.
        """
        way = self.dialect.bulk(self.columns, self._relation) if bulk else None
        batch_rows = 0 if way is None else round(BATCH_BYTES / max(1, self.row_bytes))
        try:
            if way is None or batch_rows < LEAST_BATCH_ROWS:  # such long rows are few, and some may be far longer
                yield from self._all_finished(self._streamed(low, high, ordered))
            else:
                yield from self._all_finished(self._in_bulk(way, low, high, batch_rows))
        except MisreadError as misread:
            for _ in self._all_finished(self._streamed(low, high)):
                pass  # until the value is named
            raise self.session.bad_data(str(misread)) from None
        except BadValue as bad:
            raise self._diagnosed(low, high) or self.session.bad_data(bad.cause) from None
        except SourceError as error:
            raise self._diagnosed(low, high) or error from None

    def _streamed(
        self, low: Watermark | None, high: Watermark | None, ordered: bool = False
    ) -> Iterator[pa.RecordBatch]:
        statement = self.session.statement()
        key = self.dialect.key(*self.positions()) if ordered else ""
        statement.text = self.dialect.select(self.columns, key, self._source(statement, low, high), key)
        return self.session.stream(statement)

    def _in_bulk(
        self, way: BulkWay, low: Watermark | None, high: Watermark | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        statement = self.session.statement()
        statement.text = self.dialect.select(way.columns, "", self._source(statement, low, high), "")
        return self.session.bulk(way, statement, batch_rows)

    def _all_finished(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, first = 0, True
        for raw in batches:
            batch = self.dialect.strip(raw, self.columns, first)
            yield from self._finished(batch, rows)
            rows, first = rows + batch.num_rows, False

    def position(self, raw: Any) -> Watermark:
        """Return the position of a key from `batches`."""
        _, axis = self.positions()
        return axis.position(self._value(raw))

    def _value(self, raw: Any) -> Value:
        delta, axis = self.positions()
        try:
            return self.dialect.value(raw, axis)
        except ValueError as error:
            cause = f"its delta column {delta.name!r} has the value {raw!r}: {error}"
            raise self.session.bad_data(cause, _hint(delta.name)) from None

    @property
    def _relation(self) -> str:
        return self.dialect.relation(self._namespace, self.table.table)

    def _source(self, statement: Statement, low: Watermark | None, high: Watermark | None, relation: str = "") -> str:
        """Return the table with the conditions for its rows and for [low, high).

        :param relation: what to select from instead of all of the table.
        """
        conditions = []
        for predicate in self.table.where:
            column = self.declared[predicate.column]
            bound = ", ".join(statement.bind(v, column.base) for v in predicate.values)
            bound = f"({bound})" if predicate.op == "in" else bound
            conditions.append(f"{quoted(column.name)} {predicate.op.upper()} {bound}".rstrip())
        if low is not None or high is not None:
            delta, axis = self.positions()
            bounds = [None if w is None or w == EVERY_INTEGER.high else axis.bound(w) for w in (low, high)]
            within = self.dialect.within(statement, delta, axis, *bounds) or "1 = 1"
            if self.table.kind is ExtractKind.SNAPSHOT_ONLY and low == EVERY_INTEGER.low:
                within = f"({within} OR {self.dialect.key(delta, axis)} IS NULL)"  # a row that came after planning
            conditions.append(within)
        source = f"{relation or self._relation} WHERE {' AND '.join(conditions) or '1 = 1'}"
        return f"(SELECT * FROM {source} LIMIT {self.first}) AS firsts WHERE 1 = 1" if self.first else source

    def _finished(self, batch: pa.RecordBatch, before: int) -> Iterator[pa.RecordBatch]:
        """Yield a batch with its columns finished, unless it is empty; `before` is the number of rows before it."""
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

    :param names: the columns to read; by default those of the table's options.
    :param planned: whether they existed at planning.
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
    """Return the delta column and its axis; for a snapshot only an integer one, or its one primary key, by which it can be split.

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
            cause=f"its delta column {name!r} ({declared[name].type or 'without a type'}) is not an integer, date or timestamp",
            hint=f"Choose another delta column, or cast it to one of these types, for example casts={{{name!r}: 'timestamp'}}.",
        )
    return delta, axis


def _gone(session: Session, what: str, named: Sequence[str] = ()) -> ConfigurationError:
    """Return the error about something that disappeared between plan and read.

    :param named: columns that the author names.
    """
    return ConfigurationError(
        operation=session.operation,
        subject=session.subject,
        cause=f"since it was planned, {what}",
        hint=f"Take {_listed(named)} out of the table's options." if named else None,
        remedy=Remedy.PLAN,
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def unknown(session: Session, what: str, name: str, known: Sequence[str]) -> ConfigurationError:
    """Return the error about a missing table or column, with similar names."""
    some = ", ".join(map(repr, sorted(known)[:_NAMED])) or "none"
    return ConfigurationError(
        operation=session.operation,
        subject=session.subject,
        cause=f"there is no {what}",
        hint=meant(known, name, otherwise=f"There is {some}."),
    )


def _hint(column: str) -> str:
    return (
        f"Correct it at the source, leave such rows out by the table's `where`, "
        f"or read column {column!r} as another type by `casts`; a cast that may round is marked, as 'rounded decimal(10,2)'."
    )
