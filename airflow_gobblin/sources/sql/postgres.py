"""PostgreSQL, through ADBC.

The driver streams a result by binary COPY only if the query has no bound parameters; with them it holds the whole result
in memory (2 million rows: 1,061 MB instead of 162 MB, and twice the time). So values are bound to `set_config`, for the
transaction only, and queries read them by `current_setting`: typed, never part of the text, and with index scans as with
literals.
"""

from __future__ import annotations

import importlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.sources.sql.dialects import (
    BadValue,
    Column,
    Declared,
    Scalar,
    Session,
    SnapshotGoneError,
    Statement,
    cast_or_refuse,
    plain,
    quoted,
)
from airflow_gobblin.sources.sql.positions import Axis, AxisKind, Value, axis_of
from airflow_gobblin.sources.sql.types import decimal_type, parse_type, rounds
from airflow_gobblin.wire import digest

_TYPES = {
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_FLOATS, _TEXTS = ("float4", "float8"), ("text", "varchar", "bpchar")
_CASTS = {
    "int64": "int8",
    "float64": "float8",
    "string": "text",
    "bool": "bool",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp[UTC]": "timestamptz",
    "binary": "bytea",
}
_BOUNDS = {
    AxisKind.INTEGER: "int8",
    AxisKind.DATE: "date",
    AxisKind.LOCAL: "timestamp",
    AxisKind.INSTANT: "timestamptz",
}
_LIBPQ = (
    *("user", "password", "passfile", "host", "port", "dbname", "options", "application_name", "connect_timeout"),
    *(
        "ssl",
        "gss",
        "krb",
        "keepalives",
        "tcp_user_timeout",
        "channel_binding",
        "require",
        "target_session",
        "load_balance",
    ),
)
"""How the parameters begin that libpq takes in a URI; Airflow keeps others there too."""
_CONNECT_SECONDS = 10
_SNAPSHOT = re.compile(r"[0-9A-F-]+")
_SEEN = "txid_current_snapshot()::text"
"""Which transactions a snapshot sees: of two that see the same, the state is the same."""
_IDLE_LIMITS = ("idle_in_transaction_session_timeout", "transaction_timeout")
"""What would end the transaction that holds a snapshot, which does nothing else."""
_YEARS = {  # the first and last value that Python, Spark and Parquet's readers agree on
    "date": (-719162, 2932896),
    "timestamp": (-62135596800_000_000, 253402300799_999_999),
}


@dataclass(frozen=True)
class Postgres:
    """PostgreSQL 12 and newer."""

    name: ClassVar[str] = "PostgreSQL"
    driver: ClassVar[str] = "adbc_driver_postgresql.dbapi"
    default_namespace: ClassVar[str] = "public"
    shares_snapshots: ClassVar[bool] = True
    clock: ClassVar[str] = """to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')"""

    def connect(self, uri: str, zone: str, snapshot: str = "") -> Any:
        """A connection in a repeatable-read, read-only transaction."""
        dbapi = importlib.import_module(self.driver)
        connection = dbapi.connect(libpq_uri(uri), autocommit=False)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                if snapshot:
                    _see(cursor, snapshot)
                self._set(
                    cursor,
                    {"TimeZone": zone, "DateStyle": "ISO", "IntervalStyle": "iso_8601", "client_encoding": "UTF8"},
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def snapshot(self, session: Session) -> str:
        """An exported snapshot: as PostgreSQL calls it, which transactions it sees, and a random part, for after a restart
        PostgreSQL may give a name again."""
        statement = session.statement()
        limits = ", ".join(f"'{name}'" for name in _IDLE_LIMITS)
        statement.text = f"""
            SELECT pg_export_snapshot(), {_SEEN},
                   (SELECT count(set_config(name, '0', true)) FROM pg_settings WHERE name IN ({limits}))"""
        name, seen, _ = session.row(statement)
        return f"{name}/{digest(seen.encode())[:16]}/{secrets.token_hex(8)}"

    def rewritten(self, namespace: str, table: str) -> Statement:
        """By the files of tables, their partitions and what views are made of: TRUNCATE and some forms of ALTER TABLE give them
        new ones. Rows of the catalog are as the snapshot shows them, and `pg_relation_filenode` gives the present ones."""
        statement = Statement(self.placeholder)
        relation = statement.bind(self.relation(namespace, table))
        statement.text = f"""
            WITH RECURSIVE made_of (relation, part) AS (
                SELECT inhparent, inhrelid FROM pg_catalog.pg_inherits
                UNION ALL
                SELECT r.ev_class, d.refobjid FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d ON d.objid = r.oid
                WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
            ), parts (part) AS (
                SELECT CAST({relation} AS regclass)::oid
                UNION
                SELECT m.part FROM parts p JOIN made_of m ON m.relation = p.part
            )
            SELECT c.relname::text FROM pg_catalog.pg_class c JOIN parts p ON p.part = c.oid
            WHERE c.relfilenode <> 0 AND pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode ORDER BY 1"""
        return statement

    def execute(self, cursor: Any, statement: Statement) -> None:
        """Bind the values as settings of the transaction, then run the text by COPY."""
        self._set(cursor, {_setting(n): _text(v) for n, v in enumerate(statement.values, 1)})
        cursor.execute(statement.text)

    def _set(self, cursor: Any, settings: dict[str, str]) -> None:
        if settings:
            numbers = range(1, 2 * len(settings), 2)
            calls = ", ".join(f"set_config(${n}, ${n + 1}, true)" for n in numbers)
            cursor.execute(f"SELECT {calls}", [part for pair in settings.items() for part in pair])
            cursor.fetchall()

    def placeholder(self, number: int, base: str) -> str:
        """The value's setting, cast to its type; in a subquery, so that it is parsed once and not once a row."""
        return f"(SELECT CAST(current_setting('{_setting(number)}') AS {base or 'text'}))"

    def relation(self, namespace: str, table: str) -> str:
        """Schema and table."""
        return f"{quoted(namespace)}.{quoted(table)}"

    def catalog(self, namespace: str, table: str) -> Statement:
        """From pg_catalog; a domain has the type that it is made of."""
        statement = Statement(self.placeholder)
        statement.text = f"""
            SELECT a.attname::text, format_type(a.atttypid, a.atttypmod),
                   CASE WHEN b.typnamespace = 'pg_catalog'::regnamespace AND b.typname <> 'char'
                        THEN b.typname::text ELSE format_type(b.oid, -1) END,
                   CASE WHEN b.oid = t.oid THEN a.atttypmod ELSE t.typtypmod END, NOT (a.attnotnull OR t.typnotnull),
                   CASE WHEN e.oid IS NULL THEN '' WHEN e.typnamespace = 'pg_catalog'::regnamespace
                        THEN e.typname::text ELSE format_type(e.oid, -1) END
            FROM pg_catalog.pg_attribute a
            JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
            JOIN pg_catalog.pg_type b ON b.oid = COALESCE(NULLIF(t.typbasetype, 0), t.oid)
            LEFT JOIN pg_catalog.pg_type e ON e.typarray = b.oid
            WHERE n.nspname = {statement.bind(namespace)} AND c.relname = {statement.bind(table)}
              AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY a.attnum"""
        return statement

    def tables(self, namespace: str) -> Statement:
        """From pg_catalog."""
        statement = Statement(self.placeholder)
        statement.text = f"""
            SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = {statement.bind(namespace)} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1"""
        return statement

    def column(self, declared: Declared, cast: str | None, zone: str) -> Column | None:
        """Casts are PostgreSQL's own, but that they don't round unless they say so. What has no type here is the text that
        PostgreSQL writes, which loses nothing: numeric without a scale or of over 38 digits, enums, times, intervals, ranges.
        """
        name = quoted(declared.name)
        if cast is not None:
            kind = parse_type(cast)
            assert kind is not None  # SqlTable checked it
            return Column(declared, kind, _rounded(name, cast, kind) if rounds(cast) else _cast(declared, cast, kind))
        if declared.element:
            return _array(declared)
        kind, expression = _type_of(declared.base, declared.modifier, name)
        return Column(declared, kind, expression)

    def delta(self, declared: Declared, cast: str | None, zone: str) -> Column | None:
        """By its declared type, so that its index can be used; by its cast if that is no type of positions."""
        column = self.column(declared, None, zone)
        return self.column(declared, cast, zone) if column is None or axis_of(column.type, zone) is None else column

    def key(self, column: Column, axis: Axis) -> str:
        """The column itself, or its cast."""
        return column.expression

    def misplaced(self, column: Column, axis: Axis) -> str:
        """Only NULL can be."""
        return f"{quoted(column.name)} IS NULL" if column.declared.nullable else ""

    def number(self, column: Column, axis: Axis) -> str:
        """Seconds since 1970, or the integer."""
        key = self.key(column, axis)
        return f"CAST({key} AS float8)" if axis.kind is AxisKind.INTEGER else f"date_part('epoch', {key})"

    def bucket(self, number: str, ends: tuple[str, str], count: int) -> str:
        """By width_bucket."""
        return f"width_bucket({number}, {ends[0]}, {ends[1]}, {count})"

    def multiple(self, number: str, width: str) -> str:
        """By floor."""
        return f"floor({number} / {width})"

    def within(self, statement: Statement, column: Column, axis: Axis, low: Value | None, high: Value | None) -> str:
        """Two comparisons of the column, which an index can answer."""
        key, base = self.key(column, axis), _BOUNDS[axis.kind]
        parts = [f"{key} >= {statement.bind(str(low), base)}"] if low is not None else []
        parts += [f"{key} < {statement.bind(str(high), base)}"] if high is not None else []
        return " AND ".join(parts)

    def value(self, raw: Any, axis: Axis) -> Value:
        """As the driver gave it."""
        value: Value = raw
        return value

    def row_bytes(self, columns: Sequence[Column]) -> str:
        """The stored sizes, and two bytes a column."""
        return " + ".join(f"COALESCE(pg_column_size({quoted(c.name)}), 0) + 2" for c in columns)

    def select(self, columns: Sequence[Column], key: str, source: str, order: str) -> str:
        """A plain SELECT."""
        listed = ", ".join([f"{c.expression} AS {quoted(c.name)}" for c in columns] + ([key] if key else []))
        return f"SELECT {listed} FROM {source}" + (f" ORDER BY {order}" if order else "")

    def strip(self, batch: pa.RecordBatch, columns: Sequence[Column], first: bool) -> pa.RecordBatch:
        """Without extension types."""
        names = [c.name for c in columns] + ["key"] * (batch.num_columns - len(columns))
        return pa.RecordBatch.from_arrays([plain(array) for array in batch.columns], names=names)

    def finish(self, array: pa.Array, column: Column) -> pa.Array:
        """Numeric is selected as text and becomes decimal; infinite and far-off times are refused."""
        kind, listed = column.type, pa.types.is_list(column.type)
        plain_kind = kind.value_type if listed else kind
        if pa.types.is_decimal(plain_kind) and array.type in (pa.string(), pa.list_(pa.string())):
            return cast_or_refuse(array, column, kind)
        if array.type != kind:
            raise BadValue(column.name, cause=f"the database gives {array.type}, and {kind} was planned")
        if pa.types.is_date(plain_kind) or pa.types.is_timestamp(plain_kind):
            _check_years(array, column)
        return array

    def diagnose(self, columns: Sequence[Column], source: str, keys: Sequence[str]) -> str:
        """The server's types are strict."""
        return ""


def _see(cursor: Any, snapshot: str) -> None:
    """Let a transaction see a snapshot, before its first query. :raises SnapshotGoneError: it isn't held any more."""
    name, seen, _ = snapshot.split("/")
    if not _SNAPSHOT.fullmatch(name):
        raise SnapshotGoneError(f"{name!r} is no name of a snapshot")
    try:
        cursor.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
    except Exception as error:
        raise SnapshotGoneError(str(error)) from error
    cursor.execute(f"SELECT {_SEEN}")
    ((sees,),) = cursor.fetchall()
    if digest(sees.encode())[:16] != seen:
        raise SnapshotGoneError(f"{name!r} is another one by now")


def _as_text(expression: str) -> str:
    """A value as the server writes it. The driver makes a text of each numeric too, at ten times the cost of reading one."""
    return f"CAST({expression} AS text)"


def _type_of(base: str, modifier: int, name: str) -> tuple[pa.DataType, str]:
    """The type of a column that is no array, and the SQL that selects it."""
    kind = _numeric(modifier) if base == "numeric" else _TYPES.get(base)
    if kind is None:
        return pa.string(), _as_text(name)
    return kind, _as_text(name) if base == "numeric" else name


def _array(declared: Declared) -> Column:
    """An array as a list. One of several dimensions, or that doesn't begin at 1, is none: the driver would make it one."""
    name = quoted(declared.name)
    kind, element = _type_of(declared.element, declared.modifier, "element")
    is_list = f"array_ndims({name}) = 1 AND array_lower({name}, 1) = 1 OR {name} = '{{}}'"
    why = "is no list, by its dimensions or where it begins; read it by the cast 'string'"
    items = name if element == "element" else f"CAST({name} AS text[])"
    refused = f"CAST({_refusal(declared.name, name, why)} AS {declared.base})"
    expression = (
        f"CASE WHEN {is_list} THEN {items} ELSE {refused if items == name else f'CAST({refused} AS text[])'} END"
    )
    return Column(declared, pa.list_(kind), expression)


def _cast(declared: Declared, cast: str, kind: pa.DataType) -> str:
    """A cast that refuses numbers which it would change."""
    name, base = quoted(declared.name), declared.base
    number = f"CAST({_as_text(name)} AS numeric)" if base in _FLOATS else f"CAST({name} AS numeric)"
    if pa.types.is_decimal(kind):  # Arrow makes it of the text, and refuses what doesn't fit
        return _as_text(name if base == "numeric" else number)
    plain_cast, same = f"CAST({name} AS {_CASTS[cast]})", ""
    if cast == "int64" and base in ("numeric", *_FLOATS):
        same = f"{name} = trunc({name})"
    elif cast == "float64" and base in ("numeric", "int8", *_TEXTS):
        same = f"CAST({_as_text(plain_cast)} AS numeric) = {number}"
    if not same:
        return plain_cast
    refusal = _refusal(declared.name, name, f"would be rounded by its cast; give 'rounded {cast}' if it may be")
    return f"CASE WHEN {same} THEN {plain_cast} ELSE CAST({refusal} AS {_CASTS[cast]}) END"


def _rounded(name: str, cast: str, kind: pa.DataType) -> str:
    """A cast that rounds."""
    if pa.types.is_decimal(kind):
        return _as_text(f"CAST({name} AS numeric({kind.precision},{kind.scale}))")
    return f"CAST({name} AS {_CASTS[cast.removeprefix('rounded ')]})"


def _refusal(column: str, expression: str, why: str) -> str:
    """A text that no other type can be made of: PostgreSQL shows it in its error. NULL, where the value is."""
    before, after = (text.replace("'", "''") for text in (f"column {column}: ", f" {why}"))
    return f"('{before}' || {_as_text(expression)} || '{after}')"


def libpq_uri(uri: str) -> str:
    """A URI as libpq takes it: without a Python driver's name, and without the extras that Airflow keeps in the query."""
    parts = urlsplit(uri)
    query = {k: v for k, v in parse_qsl(parts.query) if k.startswith(_LIBPQ)}
    query.setdefault("connect_timeout", str(_CONNECT_SECONDS))
    return urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(query), ""))


def _setting(number: int) -> str:
    return f"gobblin.p{number}"


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numeric(modifier: int) -> pa.DataType | None:
    if modifier < 0:
        return None
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    return decimal_type(max(precision, scale, precision - scale), max(scale, 0))


def _check_years(array: pa.Array, column: Column) -> None:
    values = array.flatten() if pa.types.is_list(array.type) else array
    bits, years = (pa.int32(), _YEARS["date"]) if pa.types.is_date(values.type) else (pa.int64(), _YEARS["timestamp"])
    numbers = values.view(bits)
    found = pc.min_max(numbers)
    if found["min"].is_valid and not years[0] <= found["min"].as_py() <= found["max"].as_py() <= years[1]:
        outside = pc.or_(pc.less(numbers, years[0]), pc.greater(numbers, years[1]))
        row = pc.index(pc.fill_null(outside, False), True).as_py() if values is array else None
        raise BadValue(column.name, row, "a date or time", "it is infinite, or outside the years 1 to 9999")
