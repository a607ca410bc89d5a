"""The interface of the SQL source's databases, and an open read transaction on one.

A `Dialect` is pure: it turns types, values and ranges into SQL text. A `Session` runs it. Values never become part of the
text: a `Statement` keeps them beside it, and identifiers come from the catalog, quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.errors import (
    ConfigurationError,
    GobblinError,
    MissingExtraError,
    Remedy,
    SourceDataError,
    SourceError,
)
from airflow_gobblin.redaction import Redactor
from airflow_gobblin.rows.sources.sql.positions import Axis, Value
from airflow_gobblin.rows.sources.sql.types import DECIMAL_DIGITS

Scalar = bool | int | float | str

SAMPLE_ROWS = 1000
"""The number of rows by which a row's size is estimated."""


@dataclass(frozen=True)
class Declared:
    """A column as the catalog declares it.

    :param type: its type as the database writes it.
    :param base: the type's plain name, for looking up and for casting to.
    :param modifier: the type's modifier, in PostgreSQL.
    :param nullable: whether it may hold NULL.
    :param element: the plain name of an array's elements; empty if it isn't an array.
    """

    name: str
    type: str
    base: str
    modifier: int = -1
    nullable: bool = True
    element: str = ""


@dataclass(frozen=True)
class Column:
    """A column as it is read.

    :param type: the resulting Arrow type.
    :param expression: the SQL that selects it.
    :param fits: SQL that is true if a value other than NULL can be read as the type; empty if the database ensures it.
    :param sentinel: a literal of the storage class that the driver is to expect; empty if the driver knows.
    :param zone: the zone of times without one.
    :param rounds: whether its cast is declared to round.
    """

    declared: Declared
    type: pa.DataType
    expression: str
    fits: str = ""
    sentinel: str = ""
    zone: str = "UTC"
    rounds: bool = False

    @property
    def name(self) -> str:
        """The column's name."""
        return self.declared.name


@dataclass
class Statement:
    """SQL text being put together, with the values that are bound to it."""

    placeholder: Callable[[int, str], str]
    values: list[Scalar] = field(default_factory=list)
    text: str = ""

    def bind(self, value: Scalar, base: str = "") -> str:
        """Bind a value, of a type of the catalog (`Declared.base`), and return its placeholder."""
        self.values.append(value)
        return self.placeholder(len(self.values), base)


class Dialect(Protocol):
    """A kind of database."""

    name: ClassVar[str]
    driver: ClassVar[str]
    """The module that connects; it is native."""
    default_namespace: ClassVar[str]
    shares_snapshots: ClassVar[bool]
    """Whether several connections can read one state of the data."""
    clock: ClassVar[str]
    """SQL for the start of the transaction, by the database's clock: the ISO 8601 text of a time in UTC, without zone."""

    def connect(self, uri: str, zone: str, snapshot: str = "") -> Any:
        """Open an ADBC connection in a read transaction that sees one state of the data, with `zone` for times without one.

        :param snapshot: the state to see, as `Session.snapshot` names it; by default the present one.
        :raises SnapshotGoneError: it can no longer be seen.
        """

    def snapshot(self, session: Session) -> str:
        """Name the state that a session sees, for as long as it is open. Only where snapshots are shared."""

    def rewritten(self, namespace: str, table: str) -> Statement:
        """Select the names of the table's parts that were rewritten since the transaction's snapshot, which therefore shows
        none of their rows. Empty if that can't happen.
        """

    def pages(self, namespace: str, table: str) -> Statement:
        """Select the number of a table's pages, if some can be read without the others, and whether by their numbers.

        Empty if none can.
        """

    def sampled(self, relation: str, pages: int, sample: int, numbered: bool) -> str:
        """Return the rows of some of a relation's pages, the same each time.

        :param pages: how many it has, as of `pages`.
        :param sample: about how many to take.
        :param numbered: whether they can be read by their numbers.
        """

    def execute(self, cursor: Any, statement: Statement) -> None:
        """Run a statement with its values bound."""

    def placeholder(self, number: int, base: str) -> str:
        """Return the text of the value with this number, from 1."""

    def relation(self, namespace: str, table: str) -> str:
        """Return a table's quoted name."""

    def catalog(self, namespace: str, table: str) -> Statement:
        """Select the table's columns as the fields of `Declared`, in order; none if there is no such table."""

    def indexes(self, namespace: str, table: str, column: str) -> Statement:
        """Select the names of what gives the rows of a table in the order of a column: the indexes that begin with the column."""

    def primary_keys(self, namespace: str, table: str) -> Statement:
        """Select the columns of the table's primary key, in order; none if it has none."""

    def tables(self, namespace: str) -> Statement:
        """Select the names of the tables and views of a namespace."""

    def column(self, declared: Declared, cast: str | None, zone: str) -> Column | None:
        """Return how a column is read, or `None` if its type can't be."""

    def delta(self, declared: Declared, cast: str | None, zone: str) -> Column | None:
        """Return how a column is read as a delta column: by its declared type or by its cast."""

    def key(self, column: Column, axis: Axis) -> str:
        """Return an expression of a delta column that sorts like its positions."""

    def misplaced(self, column: Column, axis: Axis) -> str:
        """Return a condition for rows without a position on the axis: NULL, or no value of the column's type; empty if none."""

    def number(self, column: Column, axis: Axis) -> str:
        """Return a delta column as a number that grows with its position, as `number_of` does for its values."""

    def bucket(self, number: str, ends: tuple[str, str], count: int) -> str:
        """Return which of `count` buckets of equal width between two ends a number lies in."""

    def multiple(self, number: str, width: str) -> str:
        """Return which multiple of a width a number lies at or after."""

    def within(self, statement: Statement, column: Column, axis: Axis, low: Value | None, high: Value | None) -> str:
        """Return a condition for the rows of [low, high)."""

    def value(self, raw: Any, axis: Axis) -> Value:
        """Convert a key from the driver to a value."""

    def row_bytes(self, columns: Sequence[Column]) -> str:
        """Return an expression for the estimated size of a row."""

    def select(self, columns: Sequence[Column], key: str, source: str, order: str) -> str:
        """Select the columns from `source`, then `key` unless it is empty, in an order unless that is empty."""

    def strip(self, batch: pa.RecordBatch, columns: Sequence[Column], first: bool) -> pa.RecordBatch:
        """Strip a batch of `select` to the table's own: the columns under their names, as the driver has them, and the key.

        :param first: whether it is the first batch.
        :raises BadValue: a value is of another storage class than its column's.
        """

    def finish(self, array: pa.Array, column: Column) -> pa.Array:
        """Convert a column of `strip` to its type.

        :raises BadValue: a value doesn't fit.
        """

    def bulk(self, columns: Sequence[Column], relation: str) -> BulkWay | None:
        """Return another way than ADBC's driver to read a large result of these columns, if one is cheaper and as exact.

        :param relation: the table, as of `relation`.
        """

    def diagnose(self, columns: Sequence[Column], source: str, keys: Sequence[str]) -> str:
        """Select, for the first row that doesn't fit, the number of the column, its value, the row's number, and the key columns.

        Empty if the database ensures that values fit.
        """


class Bulk(Protocol):
    """A large result in transfer."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield its batches, with the columns in order, whatever their names.

        :raises MisreadError: after the last one: a value was read as another one, and the result is void.
        """

    @property
    def visited(self) -> int:
        """The database's own count of the rows that it found for the result's range by an index, once there is no further batch:
        in one scan of the table, in the session's snapshot. 0 if it doesn't know.
        """

    def close(self) -> None:
        """End it without waiting for data in transfer; safe to repeat."""


@dataclass(frozen=True)
class BulkWay:
    """A way to read large results.

    :param columns: the columns, with the SQL that selects them for it.
    :param open: prepares the result of a statement, in batches of a number of rows; takes the session and its URI before them.
        The result starts when it is iterated, and doesn't need the session's connection any more.
    """

    columns: tuple[Column, ...]
    open: Callable[[Session, str, Statement, int], Bulk]


class MisreadError(Exception):
    """A bulk result has a value that its way can't read; ADBC's driver can, or names it."""


class SnapshotGoneError(Exception):
    """A snapshot can no longer be read: its holder is gone."""


class BadValue(Exception):
    """A value that doesn't fit its column: its column and row in the batch, and the cause."""

    def __init__(self, column: str = "", row: int | None = None, value: str = "", cause: str = "") -> None:
        self.column, self.row, self.value, self.cause = column, row, value, cause
        super().__init__(column, row, value, cause)


class Session:
    """An open read transaction. It raises the driver's errors as `SourceError`, without anything secret.

    :param subject: the subject of its errors.
    """

    def __init__(
        self, dialect: Dialect, conn_id: str, uri: str, zone: str, operation: str, subject: str, snapshot: str = ""
    ) -> None:
        self.dialect = dialect
        self.operation, self.subject = operation, subject
        self._uri = uri
        self._redactor = Redactor([uri])
        self._cursor: Any = None
        self._bulk: Bulk | None = None
        check_uri(uri, conn_id)
        try:
            self._connection = dialect.connect(uri, zone, snapshot)
        except ImportError as error:
            raise MissingExtraError(
                operation=operation,
                subject=subject,
                cause=f"the driver for {dialect.name} is not installed: {self._clean(error)}",
                hint="Install it where planning and where Spark's tasks run: pip install 'airflow-gobblin[sql]'",
            ) from None
        except GobblinError:
            raise
        except SnapshotGoneError as error:
            raise SourceError(
                operation=operation,
                subject=subject,
                cause=f"the snapshot that its units are read in can't be read any more: {self._clean(error)}",
                hint="The driver that held it ended, or lost its connection; all units are to be read anew.",
                remedy=Remedy.EXTRACT,
            ) from None
        except Exception as error:  # any error of a driver may contain the password
            to_check = f"that it runs, and host, port, database, user and password of connection {conn_id!r}"
            if isinstance(error, OSError) and error.filename is not None:
                to_check = (
                    f"the path in connection {conn_id!r}: Airflow's workers and Spark's tasks read the file there"
                )
            raise SourceError(
                operation=operation,
                subject=subject,
                cause=f"the database of connection {conn_id!r} can't be opened: {self._clean(error)}",
                hint=f"Check {to_check}.",
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def statement(self) -> Statement:
        """Return a new statement."""
        return Statement(self.dialect.placeholder)

    def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        return list(zip(*(self.values(column) for column in self._table(statement).columns), strict=True))

    def column(self, statement: Statement) -> pa.ChunkedArray:
        """Return the only column of a small result, as the driver has it."""
        (column,) = self._table(statement).columns
        return column

    def values(self, column: Any) -> list[Any]:
        """Return the values of a column of a result.

        :raises SourceDataError: Python has none for a date or time.
        """
        try:
            values: list[Any] = plain(column).to_pylist()
        except (OverflowError, ValueError):
            raise self.bad_data(
                "a date or time is infinite, or outside the years 1 to 9999",
                "Leave such rows out by the table's `where`, or correct them at the source.",
            ) from None
        return values

    def row(self, statement: Statement) -> tuple[Any, ...]:
        """Return the only row of a result."""
        (row,) = self.rows(statement)
        return row

    def stream(self, statement: Statement) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a large result, one at a time."""
        try:
            self._open(statement)
            yield from self._cursor.fetch_record_batch()
        except GeneratorExit:
            raise
        except Exception as error:
            raise self.error(error) from None

    def bulk(self, way: BulkWay, statement: Statement, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a result that is large enough to be worth some setup, one at a time.

        :raises MisreadError: they are void, as one has a value that was misread.
        """
        try:
            self._bulk = way.open(self, self._uri, statement, batch_rows)
            yield from self._bulk
            self._bulk.close()
        except (GeneratorExit, GobblinError, MisreadError):
            raise
        except Exception as error:
            raise self.error(error) from None

    @property
    def visited(self) -> int:
        """The rows that the database visited for a result in bulk, as of `Bulk.visited`."""
        return 0 if self._bulk is None else self._bulk.visited

    def error(self, cause: BaseException) -> SourceError:
        """Return an error about this session's subject, from one of the driver's."""
        return SourceError(operation=self.operation, subject=self.subject, cause=self._clean(cause))

    def bad_data(self, cause: str, hint: str | None = None) -> SourceDataError:
        """Return an error about a value of this session's subject."""
        return SourceDataError(operation=self.operation, subject=self.subject, cause=cause, hint=hint)

    def close(self) -> None:
        """End the transaction and close the connection, without waiting for data in transfer; safe to repeat."""
        if self._bulk is not None:
            self._bulk.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._close_cursor()
            connection.close()

    def _table(self, statement: Statement) -> pa.Table:
        try:
            self._open(statement)
            return self._cursor.fetch_arrow_table()
        except Exception as error:
            raise self.error(error) from None

    def _open(self, statement: Statement) -> None:
        self._close_cursor()
        self._cursor = self._connection.cursor()
        self.dialect.execute(self._cursor, statement)

    def _close_cursor(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _clean(self, error: BaseException) -> str:
        return f"{type(error).__name__}: {self._redactor.redact(' '.join(str(error).split()))}"


def plain(array: Any) -> Any:
    """Return an array without an extension type around it."""
    return array.cast(array.type.storage_type) if isinstance(array.type, pa.BaseExtensionType) else array


def check_uri(uri: str, conn_id: str) -> None:
    """Refuse a malformed URI, before a driver puts parts of it, perhaps of the password, into an error.

    :raises ConfigurationError: it is malformed; the URI isn't shown.
    """
    try:
        parts = urlsplit(uri)
        whole = parts.port is None or parts.port > 0
        whole = whole and parts.netloc.count("@") <= 1 and all(len(p) >= 2 and _hex(p[:2]) for p in uri.split("%")[1:])
    except ValueError:
        whole = False
    if not whole:
        raise ConfigurationError(
            operation="use",
            subject=f"connection {conn_id!r}",
            cause="its URI is not well formed",
            hint="Percent-encode special characters in user and password (`@` is %40, `/` is %2F, `%` is %25).",
        )


def quoted(name: str) -> str:
    """Quote a name as an identifier, for both dialects."""
    return '"' + name.replace('"', '""') + '"'


def _failing_row(array: pa.Array, kind: pa.DataType) -> tuple[int, str]:
    """Return the first row of an array that can't be cast to a type, and its value."""
    for row in range(len(array)):
        try:
            array.slice(row, 1).cast(kind)
        except pa.ArrowException:
            return row, repr(array[row].as_py())
    raise AssertionError("every row can be cast")


def cast_or_refuse(array: pa.Array, column: Column, kind: pa.DataType) -> pa.Array:
    """Cast a column's array to a type.

    :raises BadValue: a value doesn't fit.
    """
    try:
        cast = array.cast(kind)
    except pa.ArrowException:
        row, value = _failing_row(array, kind)
        raise BadValue(column.name, row, value, f"expected {column.type}") from None
    if pa.types.is_decimal(kind) and array.type == pa.string():
        _check_decimals(array, cast, column)
    return cast


def _check_decimals(texts: pa.Array, cast: pa.Array, column: Column) -> None:
    """Check texts that Arrow may misread: it drops bits above 128, and makes 0 of some small numbers with an exponent.

    :raises BadValue: it misread one.
    """
    exponent = pc.or_(pc.match_substring(texts, "e"), pc.match_substring(texts, "E"))
    doubtful = pc.or_(pc.greater(pc.binary_length(texts), DECIMAL_DIGITS), exponent)
    for row in pc.indices_nonzero(doubtful).to_pylist():
        if cast[row].as_py() != Decimal(texts[row].as_py()):
            raise BadValue(column.name, row, repr(texts[row].as_py()), f"expected {column.type}")


def _hex(text: str) -> bool:
    return all(c in "0123456789abcdefABCDEF" for c in text)
