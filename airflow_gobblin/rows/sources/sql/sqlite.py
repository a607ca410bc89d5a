"""SQLite, through ADBC.

SQLite keeps any value in any column, and the driver guesses a column's type from the first rows. So the type is taken from
the declaration, by SQLite's own affinity rules, and enforced in three ways: a sentinel row before the first one sets the
driver's types, a flag column marks each row in which a value isn't of the declared storage class, and texts that represent
other types (dates, timestamps, decimals) are parsed strictly.

Timestamps are texts, `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]]`, with a space or a `T`; with a final `Z` or `+HH:MM` if the type has a
zone. As delta columns they are compared in one spelling, whatever the table's, and an index on the plain column still
helps, because a comparison of the days comes first.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.rows.sources.sql.dialects import (
    BadValue,
    Column,
    Declared,
    Session,
    SnapshotGoneError,
    Statement,
    cast_or_refuse,
    quoted,
)
from airflow_gobblin.rows.sources.sql.positions import Axis, AxisKind, Value, axis_of
from airflow_gobblin.rows.sources.sql.types import decimal_type, parse_type, rounds

_BUSY_MILLISECONDS = 30_000
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_INTEGER, _REAL, _TEXT, _BLOB = "0", "0.5", "''", "x'00'"
_SENTINELS: dict[str, Any] = {_INTEGER: 0, _REAL: 0.5, _TEXT: "", _BLOB: b"\0"}
_PHYSICAL = {_INTEGER: pa.int64(), _REAL: pa.float64(), _TEXT: pa.string(), _BLOB: pa.binary()}
_INT64_DIGITS = 19
_JULIAN_1970 = 2440587.5
_ZONE = r"(?:Z|[+-]\d\d:\d\d)$"


@dataclass(frozen=True)
class Sqlite:
    """SQLite 3, in a file of this machine."""

    name: ClassVar[str] = "SQLite"
    driver: ClassVar[str] = "adbc_driver_sqlite.dbapi"
    default_namespace: ClassVar[str] = "main"
    shares_snapshots: ClassVar[bool] = False
    clock: ClassVar[str] = "strftime('%Y-%m-%dT%H:%M:%f', 'now')"

    def connect(self, uri: str, zone: str, snapshot: str = "") -> Any:
        """Return a read-only connection in a transaction, which sees the state at its first read of a table."""
        if snapshot:
            raise SnapshotGoneError("SQLite has none that connections could share")
        dbapi = importlib.import_module(self.driver)
        path = sqlite_path(uri)
        os.stat(path)  # if a file can't be reached, the driver reports that there is no memory
        connection = dbapi.connect(f"file:{quote(path)}?mode=ro", autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
                cursor.fetchall()
            connection.adbc_connection.set_autocommit(False)
        except BaseException:
            connection.close()
            raise
        return connection

    def snapshot(self, session: Session) -> str:
        """Raise `NotImplementedError`: each connection sees a state of its own."""
        raise NotImplementedError

    def rewritten(self, namespace: str, table: str) -> Statement:
        """Return nothing: a transaction sees all of one state."""
        return Statement(self.placeholder)

    def pages(self, namespace: str, table: str) -> Statement:
        """Return nothing: pages can't be read separately."""
        return Statement(self.placeholder)

    def sampled(self, relation: str, pages: int, sample: int, numbered: bool) -> str:
        """Return the whole relation."""
        return relation

    def execute(self, cursor: Any, statement: Statement) -> None:
        """Run it with bound parameters."""
        cursor.execute(statement.text, statement.values or None)

    def placeholder(self, number: int, base: str) -> str:
        """Return the number's placeholder."""
        return f"?{number}"

    def relation(self, namespace: str, table: str) -> str:
        """Return the database and table, quoted."""
        return f"{quoted(namespace)}.{quoted(table)}"

    def catalog(self, namespace: str, table: str) -> Statement:
        """Select from table_xinfo, with generated columns."""
        statement = Statement(self.placeholder)
        statement.text = f"""
            SELECT name, type, type, -1, "notnull" = 0
            FROM pragma_table_xinfo({statement.bind(table)}, {statement.bind(namespace)})
            WHERE hidden <> 1 ORDER BY cid"""
        return statement

    def indexes(self, namespace: str, table: str, column: str) -> Statement:
        """Select the indexes over all rows, and the column itself if it is the number of the row."""
        statement = Statement(self.placeholder)
        at, name, key = statement.bind(namespace), statement.bind(table), statement.bind(column)
        keys = f"SELECT count(*) FROM pragma_table_xinfo({name}, {at}) WHERE pk > 0"
        statement.text = f"""
            SELECT i.name FROM pragma_index_list({name}, {at}) i JOIN pragma_index_info(i.name, {at}) c
            WHERE c.seqno = 0 AND c.name = {key} AND NOT i.partial
            UNION ALL
            SELECT name FROM pragma_table_xinfo({name}, {at})
            WHERE name = {key} AND pk = 1 AND upper(type) = 'INTEGER' AND ({keys}) = 1"""
        return statement

    def primary_keys(self, namespace: str, table: str) -> Statement:
        """Select from table_xinfo."""
        statement = Statement(self.placeholder)
        name, at = statement.bind(table), statement.bind(namespace)
        statement.text = f"SELECT name FROM pragma_table_xinfo({name}, {at}) WHERE pk > 0 ORDER BY pk"
        return statement

    def tables(self, namespace: str) -> Statement:
        """Select from the schema table."""
        statement = Statement(self.placeholder)
        schema = f"{quoted(namespace)}.sqlite_master"
        statement.text = f"SELECT name FROM {schema} WHERE type IN ('table', 'view') AND name NOT GLOB 'sqlite_*'"
        return statement

    def column(self, declared: Declared, cast: str | None, zone: str) -> Column | None:
        """Apply declared types strictly; let casts accept every lossless spelling of the type, and refuse the rest."""
        kind = parse_type(cast) if cast is not None else declared_type(declared.type)
        if kind is None:
            return None
        way = _strict if cast is None else _rounded if rounds(cast) else _lenient
        expression, fits, sentinel = way(kind, quoted(declared.name))
        return Column(declared, kind, expression, fits, sentinel, zone, cast is not None and rounds(cast))

    def delta(self, declared: Declared, cast: str | None, zone: str) -> Column | None:
        """Use its cast, which defines how its texts are read; its declared type if that has no positions."""
        column = self.column(declared, cast, zone)
        return self.column(declared, None, zone) if column is None or axis_of(column.type, zone) is None else column

    def key(self, column: Column, axis: Axis) -> str:
        """Return integers and dates as they are; timestamps as `YYYY-MM-DD HH:MM:SS.ffffff`, in UTC if they have a zone."""
        name = quoted(column.name)
        if axis.kind is AxisKind.LOCAL:
            return _spelled(name)
        if axis.kind is AxisKind.INSTANT:
            spelled = _spelled(_without_zone(name))
            return f"strftime('%Y-%m-%d %H:%M:%S', substr({spelled}, 1, 19) || {_zone(name)}) || substr({spelled}, 20)"
        return name

    def misplaced(self, column: Column, axis: Axis) -> str:
        """Return the condition for NULL, another storage class, or a text in another spelling."""
        name = quoted(column.name)
        if axis.kind is AxisKind.INTEGER:
            return f"typeof({name}) <> 'integer'"
        if axis.kind is AxisKind.DATE:
            return f"typeof({name}) <> 'text' OR date({name}) IS NOT {name}"
        local = _without_zone(name) if axis.kind is AxisKind.INSTANT else name
        zoneless = f" OR {_zone(name)} = ''" if axis.kind is AxisKind.INSTANT and column.zone != "UTC" else ""
        return f"typeof({name}) <> 'text' OR NOT ({_well_spelled(local)}){zoneless}"

    def number(self, column: Column, axis: Axis) -> str:
        """Return seconds since 1970, or the integer."""
        key = self.key(column, axis)
        if axis.kind is AxisKind.INTEGER:
            return f"CAST({key} AS REAL)"
        return f"((julianday({quoted(column.name)}) - {_JULIAN_1970}) * 86400)"

    def bucket(self, number: str, ends: tuple[str, str], count: int) -> str:
        """Compute it by proportion."""
        return f"CAST(({number} - {ends[0]}) / ({ends[1]} - {ends[0]}) * {count} AS INTEGER)"

    def multiple(self, number: str, width: str) -> str:
        """Truncate, which merges the two around 0: SQLite may be built without floor."""
        return f"CAST({number} / {width} AS INTEGER)"

    def within(self, statement: Statement, column: Column, axis: Axis, low: Value | None, high: Value | None) -> str:
        """Return comparisons; of a timestamp, by its day, which can use an index, and by the key on the days of the two ends."""
        name, key = quoted(column.name), self.key(column, axis)
        slack = timedelta(days=1 if axis.kind is AxisKind.INSTANT else 0)
        parts = []
        if isinstance(low, datetime):
            first, later = low.date() - slack, low.date() + slack + timedelta(days=1)
            parts.append(f"{name} >= {statement.bind(str(first))}")
            parts.append(f"(+{name} >= {statement.bind(str(later))} OR {key} >= {statement.bind(_as_key(low))})")
        elif low is not None:
            parts.append(f"{name} >= {statement.bind(_as_key(low))}")
        if isinstance(high, datetime):
            sooner, last = high.date() - slack, high.date() + slack + timedelta(days=1)
            parts.append(f"{name} < {statement.bind(str(last))}")
            parts.append(f"(+{name} < {statement.bind(str(sooner))} OR {key} < {statement.bind(_as_key(high))})")
        elif high is not None:
            parts.append(f"{name} < {statement.bind(_as_key(high))}")
        return " AND ".join(parts)

    def value(self, raw: Any, axis: Axis) -> Value:
        """Parse the spelling of `key`."""
        if axis.kind is AxisKind.INTEGER:
            return int(raw)
        if axis.kind is AxisKind.DATE:
            return date.fromisoformat(raw)
        value = datetime.fromisoformat(raw)
        return value.replace(tzinfo=UTC) if axis.kind is AxisKind.INSTANT else value

    def row_bytes(self, columns: Sequence[Column]) -> str:
        """Return the lengths as texts, or eight."""
        return " + ".join(f"max(8, COALESCE(length(CAST({quoted(c.name)} AS BLOB)), 0))" for c in columns)

    def select(self, columns: Sequence[Column], key: str, source: str, order: str) -> str:
        """Select the sentinel row, then the rows, each with its flag. `LIMIT -1` keeps SQLite from dropping the inner order."""
        sentinels = [_INTEGER, *(c.sentinel for c in columns)] + ([_TEXT] if key else [])
        first = ", ".join(f"{s} AS c{n}" for n, s in enumerate(sentinels))
        listed = ", ".join([_flag(columns), *(c.expression for c in columns)] + ([key] if key else []))
        rows = f"SELECT {listed} FROM {source}"
        if order:
            rows = f"SELECT * FROM ({rows} ORDER BY {order} LIMIT -1)"
        return f"SELECT {first} UNION ALL {rows}"

    def strip(self, batch: pa.RecordBatch, columns: Sequence[Column], first: bool) -> pa.RecordBatch:
        """Remove sentinel and flags."""
        flags, *arrays = batch.columns
        if any(a.type != _PHYSICAL[c.sentinel] for a, c in zip(arrays, columns, strict=False)):
            raise BadValue
        if first:
            if any(a[0].as_py() != _SENTINELS[c.sentinel] for a, c in zip(arrays, columns, strict=False)):
                raise BadValue(cause="the first row is not the one that was asked for")
            flags, *arrays = batch.slice(1).columns
        if pc.max(flags).as_py():
            raise BadValue
        names = [c.name for c in columns] + ["key"] * (len(arrays) - len(columns))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def finish(self, array: pa.Array, column: Column) -> pa.Array:
        """Parse texts strictly."""
        return _finished(array, column)

    def bulk(self, columns: Sequence[Column], relation: str) -> None:
        """Return `None`: there is no other way."""

    def diagnose(self, columns: Sequence[Column], source: str, keys: Sequence[str]) -> str:
        """Select by the flags."""
        values = (f"WHEN {n} THEN substr(quote({quoted(c.name)}), 1, 60)" for n, c in enumerate(columns, 1))
        listed = [f"{_flag(columns)} AS flag", f"CASE {_flag(columns)} {' '.join(values)} END", "row_number() OVER ()"]
        listed += [f"quote({quoted(key)})" for key in keys]
        return f"SELECT * FROM (SELECT {', '.join(listed)} FROM {source}) WHERE flag > 0 LIMIT 1"


def sqlite_path(uri: str) -> str:
    """Return the absolute path in a URI of any usual spelling: `sqlite:////abs/path`, `sqlite:///abs/path`,
    `sqlite://%2Fabs%2Fpath`.
    """
    return "/" + unquote(uri.partition("://")[2].partition("?")[0]).lstrip("/")


def declared_type(declared: str) -> pa.DataType | None:
    """Return the type of a declaration: by the well-known names, then SQLite's rules of affinity; `None` if it has none."""
    name = declared.upper().strip()
    if name.startswith("BOOL"):
        return pa.bool_()
    if name == "DATE":
        return pa.date32()
    if name.startswith(("DATETIME", "TIMESTAMP")):
        return pa.timestamp("us", "UTC" if "TZ" in name or "WITH TIME ZONE" in name else None)
    if found := _DECIMAL.fullmatch(name):
        return decimal_type(int(found[1]), int(found[2] or 0))
    if "INT" in name:
        return pa.int64()
    if any(part in name for part in ("CHAR", "CLOB", "TEXT", "UUID", "JSON")):
        return pa.string()
    if "BLOB" in name:
        return pa.binary()
    if any(part in name for part in ("REAL", "FLOA", "DOUB")):
        return pa.float64()
    return None


def _strict(kind: pa.DataType, name: str) -> tuple[str, str, str]:
    """Return the expression, condition and sentinel of a declared type."""
    if pa.types.is_boolean(kind):
        return name, f"typeof({name}) = 'integer' AND {name} IN (0, 1)", _INTEGER
    if pa.types.is_integer(kind):
        return name, f"typeof({name}) = 'integer'", _INTEGER
    if pa.types.is_floating(kind):
        return name, f"typeof({name}) = 'real' OR typeof({name}) = 'integer' AND CAST({name} AS REAL) = {name}", _REAL
    if pa.types.is_binary(kind):
        return name, f"typeof({name}) = 'blob'", _BLOB
    if pa.types.is_decimal(kind):  # SQLite converted it to a real, which is exact to 15 digits
        text = f"CASE typeof({name}) WHEN 'real' THEN printf('%.{kind.scale}f', {name}) ELSE CAST({name} AS TEXT) END"
        kept = f"printf('%!.15g', CAST({text} AS REAL)) = printf('%!.15g', {name})"
        return text, f"CASE typeof({name}) WHEN 'real' THEN {kept} ELSE typeof({name}) <> 'blob' END", _TEXT
    return name, f"typeof({name}) = 'text'", _TEXT


def _lenient(kind: pa.DataType, name: str) -> tuple[str, str, str]:
    """Return the expression, condition and sentinel of a cast."""
    kept = f"typeof({name}) <> 'blob'"
    if pa.types.is_boolean(kind):
        text = f"lower(CAST({name} AS TEXT))"
        return f"{text} IN ('1', 'true')", f"{kept} AND {text} IN ('0', '1', 'false', 'true')", _INTEGER
    if pa.types.is_integer(kind):
        number = f"CAST({name} AS INTEGER)"
        same = f"CASE typeof({name}) WHEN 'text' THEN CAST({number} AS TEXT) = {name} ELSE {number} = {name} END"
        return number, f"{kept} AND {same}", _INTEGER
    if pa.types.is_floating(kind):
        number = f"CAST({name} AS REAL)"
        same = f"CASE typeof({name}) WHEN 'text' THEN {_digits(name)} = {_digits(_text(number))} ELSE {number} = {name} END"
        return number, f"({_is_number(name)}) AND {same}", _REAL
    if pa.types.is_string(kind):
        return _text(name), kept, _TEXT
    if pa.types.is_binary(kind):
        return f"CAST({name} AS BLOB)", f"typeof({name}) IN ('blob', 'text')", _BLOB
    expression, fits, sentinel = _strict(kind, name)
    if pa.types.is_decimal(kind):
        fits = f"CASE typeof({name}) WHEN 'real' THEN CAST({expression} AS REAL) = {name} ELSE {kept} END"
    return expression, fits, sentinel


def _rounded(kind: pa.DataType, name: str) -> tuple[str, str, str]:
    """Return the expression, condition and sentinel of a cast that rounds: from text, since a REAL would have rounded already."""
    if pa.types.is_floating(kind):
        return f"CAST({name} AS REAL)", _is_number(name), _REAL
    return _text(name), _is_number(name), _TEXT


def _text(name: str) -> str:
    """Return a value as a text, a real with enough digits to be read back as the same one."""
    short, long = (f"printf('%!.{digits}g', {name})" for digits in (15, 17))
    real = f"CASE WHEN CAST({short} AS REAL) = {name} THEN {short} ELSE {long} END"
    return f"CASE typeof({name}) WHEN 'real' THEN {real} ELSE CAST({name} AS TEXT) END"


def _digits(text: str) -> str:
    """Return the significant digits of a number's text, without sign, point, exponent and the zeros around them."""
    mantissa = f"substr({text}, 1, instr(lower({text}) || 'e', 'e') - 1)"
    return f"trim(replace({mantissa}, '.', ''), '-0 ' || char(9, 10, 13))"


def _is_number(name: str) -> str:
    """Return whether a value is a number, or the text of one."""
    spelled = f"CASE WHEN json_valid({name}) THEN json_type({name}) IN ('integer', 'real') ELSE 0 END"
    return f"CASE typeof({name}) WHEN 'text' THEN {spelled} ELSE typeof({name}) <> 'blob' END"


def _flag(columns: Sequence[Column]) -> str:
    """Return the number of the first column, from 1, whose value doesn't fit; 0 if all do."""
    cases = " ".join(f"WHEN NOT ({c.fits}) AND {quoted(c.name)} IS NOT NULL THEN {n}" for n, c in enumerate(columns, 1))
    return f"CASE {cases} ELSE 0 END"


def _finished(array: pa.Array, column: Column) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadValue(column.name, cause=str(error)) from None
        return array
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        zoned = pc.match_substring_regex(array, _ZONE)
        local = cast_or_refuse(pc.if_else(zoned, None, array), column, pa.timestamp("us"))
        local = pc.assume_timezone(local, column.zone, ambiguous="latest", nonexistent="latest").cast(kind)
        return pc.coalesce(cast_or_refuse(pc.if_else(zoned, array, None), column, kind), local)
    if column.rounds and array.type == pa.string():
        return cast_or_refuse(_rounded_texts(array, column), column, kind)
    return cast_or_refuse(array, column, kind)


def _rounded_texts(array: pa.Array, column: Column) -> pa.Array:
    """Round the texts of numbers, halves away from zero.

    :raises BadValue: one has too many digits for the column.
    """
    integer = pa.types.is_integer(column.type)
    step = Decimal(1).scaleb(0 if integer else -column.type.scale)
    context = Context(prec=_INT64_DIGITS if integer else column.type.precision, rounding=ROUND_HALF_UP)
    rounded: list[str | None] = []
    for row, text in enumerate(array.to_pylist()):
        try:
            rounded.append(None if text is None else f"{Decimal(text.strip()).quantize(step, context=context):f}")
        except InvalidOperation:
            raise BadValue(column.name, row, repr(text), f"expected {column.type}") from None
    return pa.array(rounded, pa.string())


def _as_key(value: Value) -> int | str:
    """Return a value in the spelling of `Sqlite.key`."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", timespec="microseconds")
    return value.isoformat() if isinstance(value, date) else value


def _zone(name: str) -> str:
    offset = f"WHEN {name} GLOB '*[+-][0-9][0-9]:[0-9][0-9]' THEN substr({name}, -6)"
    return f"(CASE WHEN {name} GLOB '*Z' THEN 'Z' {offset} ELSE '' END)"


def _without_zone(name: str) -> str:
    return f"substr({name}, 1, length({name}) - length({_zone(name)}))"


def _spelled(text: str) -> str:
    """Return a text of any spelling as `YYYY-MM-DD HH:MM:SS.ffffff`."""
    time = f"substr({text}, 12, 8)"
    return (
        f"(substr({text}, 1, 10) || ' ' || {time} || substr('00:00:00', length({time}) + 1)"
        f" || '.' || substr(substr({text}, 21) || '000000', 1, 6))"
    )


def _well_spelled(text: str) -> str:
    """Return the condition under which `_spelled` understands a text."""
    day = "[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]"
    minute = f"{day}[ T][0-2][0-9]:[0-5][0-9]"
    cases = f"WHEN 10 THEN {text} GLOB '{day}' WHEN 16 THEN {text} GLOB '{minute}' WHEN 19 THEN {text} GLOB '{minute}:[0-5][0-9]'"
    fraction = f"{text} GLOB '{minute}:[0-5][0-9].*' AND substr({text}, 21) NOT GLOB '*[^0-9]*'"
    return f"CASE length({text}) {cases} ELSE length({text}) BETWEEN 21 AND 26 AND {fraction} END"
