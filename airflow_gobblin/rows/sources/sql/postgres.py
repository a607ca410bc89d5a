"""PostgreSQL, through ADBC.

The driver streams a result by binary COPY only if the query has no bound parameters; with them it holds the whole result
in memory (2 million rows: 1,061 MB instead of 162 MB, and twice the time). So values are bound to `set_config`, for the
transaction only, and queries read them by `current_setting`: typed, never part of the text, and with index scans as with
literals.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.model.wire import digest
from airflow_gobblin.rows.sources.sql.dialects import (
    BadValue,
    BulkWay,
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
from airflow_gobblin.rows.sources.sql.duck import DuckResult, duckdb_is_installed
from airflow_gobblin.rows.sources.sql.positions import Axis, AxisKind, Value, axis_of
from airflow_gobblin.rows.sources.sql.types import decimal_type, parse_type, rounds
from airflow_gobblin.storage.adbc_postgres import DRIVER, connected, libpq_uri

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
_FLOATS, _TIMES = ("float4", "float8"), ("date", "timestamp", "timestamp[UTC]")
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
_BEGIN = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_SETTINGS = {"DateStyle": "ISO", "IntervalStyle": "iso_8601", "client_encoding": "UTF8", "extra_float_digits": "1"}
"""Formats of texts: floating point numbers with all digits."""
_JIT = "off"
"""The setting that keeps the server from compiling the query of a sample, which would take longer than to run it: the server
expects many rows of each page."""
_SNAPSHOT = re.compile(r"[0-9A-F-]+")
_SEEN = "txid_current_snapshot()::text"
"""The transactions that a snapshot sees: snapshots that see the same ones show the same state."""
_IDLE_LIMITS = ("idle_in_transaction_session_timeout", "transaction_timeout")
"""Timeouts that would end an idle transaction that holds a snapshot."""
_MAY_COUNT = " AND ".join(
    f"has_function_privilege('pg_stat_get_xact_{of}(oid)', 'EXECUTE')" for of in ("numscans", "tuples_fetched")
)
_COUNTERS = """
    SELECT CAST(COALESCE(sum(pg_stat_get_xact_numscans(part.oid)), 0) AS bigint) AS scans,
           COALESCE(max(pg_stat_get_xact_tuples_fetched(c.oid)), 0) AS visited
    FROM pg_catalog.pg_class c,
         LATERAL (SELECT c.oid UNION ALL SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = c.oid) AS part (oid)
    WHERE c.oid = CAST({table} AS regclass) AND c.relkind IN ('r', 'm') AND NOT c.relhassubclass AND NOT c.relrowsecurity
      AND {seen_now} = {seen}"""
"""A transaction's scans of a table and its indexes, and the rows that it visited through bitmaps. Those of other scans aren't
among them, and without `track_counts` none is (https://www.postgresql.org/docs/current/monitoring-stats.html). 0 where it may see
other tables' rows or another snapshot."""
_WORK_MEM = f"GREATEST(pg_size_bytes(current_setting('work_mem')), {64 << 20}) / 1024 || 'kB'"
"""Enough for the bitmap of a unit of 8 GB. With less, the server would remember some pages only, and visit all of their rows."""
_NO_COUNTERS = "SELECT 0 AS scans, 0 AS visited"
_YEARS = {  # the first and last value that Python, Spark and Parquet's readers agree on
    "date": (-719162, 2932896),
    "timestamp": (-62135596800_000_000, 253402300799_999_999),
}


@dataclass(frozen=True)
class Postgres:
    """PostgreSQL 12 and newer."""

    name: ClassVar[str] = "PostgreSQL"
    driver: ClassVar[str] = f"{DRIVER}.dbapi"
    default_namespace: ClassVar[str] = "public"
    shares_snapshots: ClassVar[bool] = True
    clock: ClassVar[str] = """to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')"""

    def connect(self, uri: str, zone: str, snapshot: str = "") -> Any:
        """Return a connection in a repeatable-read, read-only transaction."""
        connection = connected(uri)
        try:
            with connection.cursor() as cursor:
                cursor.execute(_BEGIN)
                if snapshot:
                    _see(cursor, snapshot)
                self._set(cursor, {"TimeZone": zone, "jit": _JIT} | _SETTINGS)
        except BaseException:
            connection.close()
            raise
        return connection

    def snapshot(self, session: Session) -> str:
        """Return an exported snapshot: PostgreSQL's name for it, the transactions that it sees, and a random part, as PostgreSQL
        may reuse a name after a restart.
        """
        statement = session.statement()
        limits = ", ".join(f"'{name}'" for name in _IDLE_LIMITS)
        statement.text = f"""
            SELECT pg_export_snapshot(), {_SEEN},
                   (SELECT count(set_config(name, '0', true)) FROM pg_settings WHERE name IN ({limits}))"""
        name, seen, _ = session.row(statement)
        return f"{name}/{digest(seen.encode())[:16]}/{secrets.token_hex(8)}"

    def rewritten(self, namespace: str, table: str) -> Statement:
        """Compare the files of the table, its partitions and the tables of its views: TRUNCATE and some forms of ALTER TABLE
        replace them. The catalog's rows are as of the snapshot; `pg_relation_filenode` returns the present ones.
        """
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

    def pages(self, namespace: str, table: str) -> Statement:
        """Select the pages of tables and materialized views on disk; views and partitioned tables have none.

        Those of a heap can be read by their numbers since PostgreSQL 14, with permission to read the whole table.
        """
        statement = Statement(self.placeholder)
        relation = statement.bind(self.relation(namespace, table))
        statement.text = f"""
            SELECT pg_relation_size(c.oid) / current_setting('block_size')::int,
                   current_setting('server_version_num')::int >= 140000 AND m.amname = 'heap' AND NOT c.relhassubclass
                   AND has_table_privilege(c.oid, 'SELECT')
            FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am m ON m.oid = c.relam
            WHERE c.oid = CAST({relation} AS regclass) AND c.relkind IN ('r', 'm')"""
        return statement

    def sampled(self, relation: str, pages: int, sample: int, numbered: bool) -> str:
        """Take pages at equal distances; or draw them by TABLESAMPLE, less exact for keys that grow with the table."""
        if not numbered:
            return f"{relation} TABLESAMPLE SYSTEM ({100 * sample / pages:f}) REPEATABLE (1)"
        page = f"n * CAST({pages} AS bigint) / {sample}"
        first, end = (f"CAST(format('(%s,0)', {number}) AS tid)" for number in (page, f"{page} + 1"))
        rows = f"SELECT * FROM {relation} WHERE ctid >= {first} AND ctid < {end} OFFSET 0"  # else it would be a join's condition
        return f"(SELECT found.* FROM generate_series(0, {sample - 1}) AS n, LATERAL ({rows}) AS found) AS sample"

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
        """Return the value's setting, cast to its type; in a subquery, so that it is parsed once and not for every row."""
        return f"(SELECT CAST(current_setting('{_setting(number)}') AS {base or 'text'}))"

    def relation(self, namespace: str, table: str) -> str:
        """Return the schema and table, quoted."""
        return f"{quoted(namespace)}.{quoted(table)}"

    def catalog(self, namespace: str, table: str) -> Statement:
        """Select from pg_catalog; a domain has its base type."""
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

    def indexes(self, namespace: str, table: str, column: str) -> Statement:
        """Select the valid B-trees over all rows, from pg_catalog."""
        statement = Statement(self.placeholder)
        statement.text = f"""
            SELECT o.relname::text
            FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_class o ON o.oid = i.indexrelid
            JOIN pg_catalog.pg_am m ON m.oid = o.relam
            JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
            WHERE n.nspname = {statement.bind(namespace)} AND c.relname = {statement.bind(table)}
              AND a.attname = {statement.bind(column)} AND m.amname = 'btree' AND i.indisvalid AND i.indpred IS NULL"""
        return statement

    def primary_keys(self, namespace: str, table: str) -> Statement:
        """Select from pg_catalog."""
        statement = Statement(self.placeholder)
        statement.text = f"""
            SELECT a.attname::text
            FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            CROSS JOIN unnest(i.indkey) WITH ORDINALITY k (number, place)
            JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
            WHERE n.nspname = {statement.bind(namespace)} AND c.relname = {statement.bind(table)}
              AND i.indisprimary AND k.place <= i.indnkeyatts
            ORDER BY k.place"""
        return statement

    def tables(self, namespace: str) -> Statement:
        """Select from pg_catalog."""
        statement = Statement(self.placeholder)
        statement.text = f"""
            SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = {statement.bind(namespace)} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1"""
        return statement

    def column(self, declared: Declared, cast: str | None, zone: str) -> Column | None:
        """Use PostgreSQL's own casts, except that they lose nothing, and round only if declared to. A column without a
        type here is read as PostgreSQL's text, which loses nothing: numeric without a scale or with over 38 digits, enums,
        times, intervals, ranges.
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
        """Use its declared type, so that its index can be used; its cast if that has no positions."""
        column = self.column(declared, None, zone)
        return self.column(declared, cast, zone) if column is None or axis_of(column.type, zone) is None else column

    def key(self, column: Column, axis: Axis) -> str:
        """Return the column itself, or its cast."""
        return column.expression

    def misplaced(self, column: Column, axis: Axis) -> str:
        """Return the condition for NULL, the only case."""
        return f"{quoted(column.name)} IS NULL" if column.declared.nullable else ""

    def number(self, column: Column, axis: Axis) -> str:
        """Return seconds since 1970, or the integer."""
        key = self.key(column, axis)
        return f"CAST({key} AS float8)" if axis.kind is AxisKind.INTEGER else f"date_part('epoch', {key})"

    def bucket(self, number: str, ends: tuple[str, str], count: int) -> str:
        """Use width_bucket."""
        return f"width_bucket({number}, {ends[0]}, {ends[1]}, {count})"

    def multiple(self, number: str, width: str) -> str:
        """Use floor."""
        return f"floor({number} / {width})"

    def within(self, statement: Statement, column: Column, axis: Axis, low: Value | None, high: Value | None) -> str:
        """Return two comparisons of the column, which can use an index."""
        key, base = self.key(column, axis), _BOUNDS[axis.kind]
        parts = [f"{key} >= {statement.bind(str(low), base)}"] if low is not None else []
        parts += [f"{key} < {statement.bind(str(high), base)}"] if high is not None else []
        return " AND ".join(parts)

    def value(self, raw: Any, axis: Axis) -> Value:
        """Return the driver's value unchanged."""
        value: Value = raw
        return value

    def row_bytes(self, columns: Sequence[Column]) -> str:
        """Return the stored sizes, plus two bytes per column."""
        return " + ".join(f"COALESCE(pg_column_size({quoted(c.name)}), 0) + 2" for c in columns)

    def select(self, columns: Sequence[Column], key: str, source: str, order: str) -> str:
        """Return a plain SELECT."""
        listed = ", ".join([f"{c.expression} AS {quoted(c.name)}" for c in columns] + ([key] if key else []))
        return f"SELECT {listed} FROM {source}" + (f" ORDER BY {order}" if order else "")

    def strip(self, batch: pa.RecordBatch, columns: Sequence[Column], first: bool) -> pa.RecordBatch:
        """Remove extension types, and convert instants to UTC."""
        names = [c.name for c in columns] + ["key"] * (batch.num_columns - len(columns))
        return pa.RecordBatch.from_arrays([_in_utc(plain(array)) for array in batch.columns], names=names)

    def finish(self, array: pa.Array, column: Column) -> pa.Array:
        """Convert numeric from text to decimal; refuse infinite and out-of-range times."""
        kind, listed = column.type, pa.types.is_list(column.type)
        plain_kind = kind.value_type if listed else kind
        if pa.types.is_decimal(plain_kind) and array.type in (pa.string(), pa.list_(pa.string())):
            return cast_or_refuse(array, column, kind)
        if array.type != kind:
            raise BadValue(column.name, cause=f"the database gives {array.type}, and {kind} was planned")
        if pa.types.is_date(plain_kind) or pa.types.is_timestamp(plain_kind):
            _check_years(array, column)
        return array

    def bulk(self, columns: Sequence[Column], relation: str) -> BulkWay | None:
        """Read through DuckDB, if it is installed, which decodes a numeric itself."""
        if not duckdb_is_installed() or not all(_exact_in_duckdb(column) for column in columns):
            return None
        numeric = [_is_declared_numeric(column) for column in columns]
        found = (_as_numeric(column) if it_is else column for column, it_is in zip(columns, numeric, strict=True))
        return BulkWay(tuple(found), partial(self._through_duckdb, relation, numeric))

    def _through_duckdb(
        self,
        relation: str,
        numeric: Sequence[bool],
        session: Session,
        uri: str,
        statement: Statement,
        batch_rows: int,
    ) -> DuckResult:
        """Read in a transaction with the session's snapshot.

        :param relation: the table that it reads.
        :param numeric: whether each column is one.
        """
        names = [f"c{n}" for n in range(len(numeric))]
        query = f"SELECT * FROM ({statement.text}) AS found ({', '.join(names)})"
        is_nan = " OR ".join(f"{name} = 'NaN'" for name, it_is in zip(names, numeric, strict=True) if it_is)
        counters, like = self._like(session, statement, relation)
        return DuckResult(
            libpq_uri(uri),
            like,
            query,
            f"{query} WHERE {is_nan or 'false'} LIMIT 1",
            counters,
            batch_rows,
            partial(_cancel, uri),
        )

    def _like(self, session: Session, statement: Statement, relation: str) -> tuple[str, list[str]]:
        """Return the query for the counters of a transaction like the session's, and the statements that begin one, with a
        statement's values bound.

        A large range of a table is read page by page, through a bitmap of its index, and not row by row along it: a tenth less of
        the server's time, and far fewer reads where keys aren't in the order of the table. By itself the server would expect few
        rows, as it plans without the values. It plans the joins of a view itself. A bitmap has memory for the places of all rows.
        """
        name = self.snapshot(session).partition("/")[0]
        values = {_setting(n): _text(v) for n, v in enumerate(statement.values, 1)}
        own = session.statement()
        literals = [f"quote_literal(current_setting('{setting}'))" for setting in ("TimeZone", *_SETTINGS)]
        literals += [f"quote_literal({own.bind(value)})" for value in values.values()]
        own.text = (
            f"SELECT {_MAY_COUNT}, quote_literal({_SEEN}), quote_literal({own.bind(relation)}), {', '.join(literals)}"
        )
        may_count, seen, table, *found = session.row(own)
        settings = zip(("TimeZone", *_SETTINGS, *values), found, strict=True)
        calls = ", ".join(f"set_config('{setting}', {literal}, true)" for setting, literal in settings)
        by_pages = f"""
            SELECT set_config('enable_indexscan', 'off', true), set_config('work_mem', {_WORK_MEM}, true) FROM pg_catalog.pg_class
            WHERE oid = CAST({table} AS regclass) AND relkind IN ('r', 'p', 'm')"""
        counters = _COUNTERS.format(table=table, seen_now=_SEEN, seen=seen) if may_count else _NO_COUNTERS
        return counters, [_BEGIN, f"SET TRANSACTION SNAPSHOT '{name}'", by_pages, f"SELECT {calls}"]

    def diagnose(self, columns: Sequence[Column], source: str, keys: Sequence[str]) -> str:
        """Return nothing: the server's types are strict."""
        return ""


def _see(cursor: Any, snapshot: str) -> None:
    """Let a transaction see a snapshot, before its first query.

    :raises SnapshotGoneError: it is no longer held.
    """
    name, seen, _ = snapshot.split("/")
    if not _SNAPSHOT.fullmatch(name):
        raise SnapshotGoneError(f"{name!r} is not the name of a snapshot")
    try:
        cursor.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
    except Exception as error:
        raise SnapshotGoneError(str(error)) from error
    cursor.execute(f"SELECT {_SEEN}")
    ((sees,),) = cursor.fetchall()
    if digest(sees.encode())[:16] != seen:
        raise SnapshotGoneError(f"{name!r} is another one by now")


def _exact_in_duckdb(column: Column) -> bool:
    """Return whether DuckDB reads a column unchanged: it would strip the spaces of `char(n)`."""
    return not pa.types.is_list(column.type) and column.declared.base != "bpchar"


def _is_declared_numeric(column: Column) -> bool:
    """Return whether a column is read as the numeric that it is declared to be, so that no value can be too long for it."""
    declared = column.declared
    return declared.base == "numeric" and column.type == _numeric(declared.modifier)


def _as_numeric(column: Column) -> Column:
    """Select a numeric as one: by its type in Arrow, as DuckDB knows neither a negative scale nor one above the precision."""
    kind = column.type
    return replace(column, expression=f"CAST({quoted(column.name)} AS numeric({kind.precision},{kind.scale}))")


def _cancel(uri: str, pid: int) -> None:
    """Cancel the query of a server process, over a connection of its own."""
    with connected(uri) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_cancel_backend({int(pid)})")
        cursor.fetchall()


def _in_utc(array: pa.Array) -> pa.Array:
    """Convert instants to the zone UTC, whatever the driver calls it; leave other values as they are."""
    instants = pa.types.is_timestamp(array.type) and array.type.tz is not None
    return array.cast(pa.timestamp(array.type.unit, "UTC")) if instants else array


def _as_text(expression: str) -> str:
    """Return a value as the server's text. The driver also makes a text of each numeric, ten times slower than reading one."""
    return f"CAST({expression} AS text)"


def _type_of(base: str, modifier: int, name: str) -> tuple[pa.DataType, str]:
    """Return the type of a column that isn't an array, and the SQL that selects it."""
    kind = _numeric(modifier) if base == "numeric" else _TYPES.get(base)
    if kind is None:
        return pa.string(), _as_text(name)
    return kind, _as_text(name) if base == "numeric" else name


def _array(declared: Declared) -> Column:
    """Return an array as a list column. Arrays of several dimensions, or not beginning at 1, are refused: the driver would
    return a plain list.
    """
    name = quoted(declared.name)
    kind, element = _type_of(declared.element, declared.modifier, "element")
    is_list = f"array_ndims({name}) = 1 AND array_lower({name}, 1) = 1 OR {name} = '{{}}'"
    why = "is not a list, by its dimensions or where it begins; read it by the cast 'string'"
    items = name if element == "element" else f"CAST({name} AS text[])"
    refused = f"CAST({_refusal(declared.name, name, why)} AS {declared.base})"
    expression = (
        f"CASE WHEN {is_list} THEN {items} ELSE {refused if items == name else f'CAST({refused} AS text[])'} END"
    )
    return Column(declared, pa.list_(kind), expression)


def _cast(declared: Declared, cast: str, kind: pa.DataType) -> str:
    """Return a cast that refuses values that it can't keep whole."""
    name, base = quoted(declared.name), declared.base
    if pa.types.is_decimal(kind):  # Arrow parses the text, and refuses values that don't fit
        return _as_text(name if base == "numeric" else _number(base, name))
    plain_cast = f"CAST({name} AS {_CASTS[cast]})"
    kept, why = _kept(base, cast, name, plain_cast)
    if not kept:
        return plain_cast
    return f"CASE WHEN {kept} THEN {plain_cast} ELSE CAST({_refusal(declared.name, name, why)} AS {_CASTS[cast]}) END"


def _kept(base: str, cast: str, name: str, result: str) -> tuple[str, str]:
    """Return the condition under which a cast is lossless, empty if it always is, and the reason given for other values."""
    rounded = f"would be rounded by its cast; give 'rounded {cast}' if it may be"
    if cast == "int64" and base in ("numeric", "jsonb", *_FLOATS):
        number = name if base in _FLOATS else _number(base, name)
        return f"{number} = trunc({number})", rounded
    if cast == "float64" and base not in ("int2", "int4", *_FLOATS):
        return f"CAST({_as_text(result)} AS numeric) = {_number(base, name)}", rounded
    if cast == "bool" and base == "int4":
        return f"{name} IN (0, 1)", "would be changed by its cast, which takes 0 and 1"
    if cast in _TIMES and base not in ("date", _CASTS[cast]):
        lost = "would lose its time, its zone or digits of its second by its cast; cast it to what has them, or to 'string'"
        return " AND ".join(_whole(base, cast, name, result)), lost
    return "", ""


def _whole(base: str, cast: str, name: str, result: str) -> Iterator[str]:
    """Yield the conditions under which a cast keeps a time: a text may have a zone, and more digits than PostgreSQL keeps."""
    if cast != "timestamp[UTC]":
        through = "timestamp" if base == "timestamp" else "timestamptz"
        yield f"CAST({result} AS {through}) = CAST({name} AS {through})"
    if base not in ("timestamp", "timestamptz"):
        yield f"{_as_text(name)} !~ '[.][0-9]{{6}}[0-9]*[1-9]'"


def _number(base: str, name: str) -> str:
    """Return a value as numeric; a floating point number has the digits of its text."""
    return f"CAST({_as_text(name) if base in _FLOATS else name} AS numeric)"


def _rounded(name: str, cast: str, kind: pa.DataType) -> str:
    """Return a cast that rounds."""
    if pa.types.is_decimal(kind):
        return _as_text(f"CAST({name} AS numeric({kind.precision},{kind.scale}))")
    return f"CAST({name} AS {_CASTS[cast.removeprefix('rounded ')]})"


def _refusal(column: str, expression: str, why: str) -> str:
    """Return a text that can't be cast to any other type, so that PostgreSQL shows it in its error; NULL for a NULL value."""
    before, after = (text.replace("'", "''") for text in (f"column {column}: ", f" {why}"))
    return f"('{before}' || {_as_text(expression)} || '{after}')"


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
