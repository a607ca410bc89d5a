"""A check of a table for everything that keeps it from being read as described; planning stops at the first fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.rows.sources.sql.database import Database
from airflow_gobblin.rows.sources.sql.dialects import Declared, Session, quoted
from airflow_gobblin.rows.sources.sql.positions import axis_of
from airflow_gobblin.rows.sources.sql.scan import Scan, positions, unknown
from airflow_gobblin.rows.sources.sql.tables import SqlTable
from airflow_gobblin.rows.sources.sql.types import DECIMAL_DIGITS, that_rounds

__all__ = ["check_table"]

_OPERATION = "check"
_SAMPLE = 1000
_NAMED = 10
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(\d+)(?:\.(\d+))?")
_TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?"
_SPELLED = (
    ("int64", _INTEGER),
    ("date", re.compile(r"\d{4}-\d\d-\d\d")),
    ("timestamp", re.compile(_TIME)),
    ("timestamp[UTC]", re.compile(rf"{_TIME}(Z|[+-]\d\d(:?\d\d)?)")),
)
_POSITIONS = frozenset(name for name, _ in _SPELLED)


def check_table(database: Database, table: SqlTable) -> Iterator[ConfigurationError]:
    """Yield every fault of a table, its columns, their types and first values, and its delta column, each with a proposal."""
    with database.open(_OPERATION, table) as session:
        dialect = session.dialect
        namespace = table.namespace or dialect.default_namespace
        declared = {row[0]: Declared(*row) for row in session.rows(dialect.catalog(namespace, table.table))}
        if not declared:
            tables = [name for (name,) in session.rows(dialect.tables(namespace))]
            yield unknown(session, f"table {table.table!r} in {namespace!r}", table.table, tables)
            return
        absent = [name for name in dict.fromkeys(table.named_columns) if name not in declared]
        for name in absent:
            yield unknown(session, f"column {name!r} in table {table.table!r}", name, [*declared])
        checked = _Checked(database, table, {} if absent else declared)
        for name in table.columns or declared:
            cause = checked.misfit(declared[name], table.casts.get(name)) if name in declared else None
            if cause is not None:
                yield _no_fit(session, checked, declared[name], cause)
        if set(filter(None, (table.delta, *table.primary_keys))) <= declared.keys():
            try:
                positions(session, table, declared)
            except ConfigurationError as error:
                yield _no_positions(session, table, declared, error)


@dataclass(frozen=True)
class _Checked:
    """A table whose columns are tried one by one.

    :param declared: its columns; empty if its conditions or keys name missing ones, as values can't be read then.
    """

    database: Database
    table: SqlTable
    declared: dict[str, Declared]

    def misfit(self, one: Declared, cast: str | None) -> str | None:
        """Return why a column's first values can't be read by a cast, or by its type; `None` if they can. Each try has a session
        of its own: after a failure, PostgreSQL accepts nothing more in one.
        """
        with self.database.open(_OPERATION, self.table) as session:
            column = session.dialect.column(one, cast, self.table.timezone)
            if column is None:
                return f"there is no type for column {one.name!r} ({one.type or 'without a type'})"
            if not self.declared or not (cast or column.fits):
                return None
            scan = Scan(session, self.table, self.declared, (column,), None, None, first=_SAMPLE)
            try:
                for _ in scan.batches(None, None):
                    pass
            except SourceError as error:
                by = f"cast {cast!r}" if cast else f"type {one.type!r}"
                return f"column {one.name!r} can't be read by its {by}: {error.cause}"
        return None


def _no_fit(session: Session, checked: _Checked, column: Declared, cause: str) -> ConfigurationError:
    """Return the error of an unreadable column, with a cast that fits its first values, and one that rounds them, if any."""
    samples = _samples(session, checked.table, column)
    proposal = _proposal(samples)
    cast = proposal if checked.misfit(column, proposal) is None else "string"
    rounded = that_rounds(checked.table.casts.get(column.name, ""))
    ways = [f"{cast!r}}}, which takes every value"]
    if cast != "string":
        ways = [f"{cast!r}}}, which fits its first {len(samples):,} values", "'string', which takes every value"]
    if rounded is not None and checked.misfit(column, rounded) is None:
        ways.append(f"{rounded!r}, if it may be rounded")
    return ConfigurationError(
        operation=session.operation,
        subject=session.subject,
        cause=cause,
        hint=f"Say casts={{{column.name!r}: {'; or '.join(ways)}; or leave it out of `columns`.",
    )


def _no_positions(
    session: Session, table: SqlTable, declared: Mapping[str, Declared], error: ConfigurationError
) -> ConfigurationError:
    """Return the error of a delta column without positions, with a cast that gives it some, or with columns that have them."""
    assert table.delta is not None
    cast = _proposal(_samples(session, table, declared[table.delta]))
    if cast in _POSITIONS:
        hint = f"Say casts={{{table.delta!r}: {cast!r}}}, which fits its first values."
    else:
        fit = [name for name, one in declared.items() if _has_positions(session, table, one)]
        hint = f"Choose another delta column: {', '.join(map(repr, fit[:_NAMED]))}." if fit else str(error.hint)
    return ConfigurationError(operation=error.operation, subject=error.subject, cause=error.cause, hint=hint)


def _has_positions(session: Session, table: SqlTable, one: Declared) -> bool:
    column = session.dialect.delta(one, table.casts.get(one.name), table.timezone)
    return column is not None and axis_of(column.type, table.timezone) is not None


def _samples(session: Session, table: SqlTable, column: Declared) -> list[str]:
    """Return the first values of a column, as texts."""
    relation = session.dialect.relation(table.namespace or session.dialect.default_namespace, table.table)
    statement = session.statement()
    name = quoted(column.name)
    statement.text = f"SELECT CAST({name} AS text) FROM {relation} WHERE {name} IS NOT NULL LIMIT {_SAMPLE}"
    return [str(value) for (value,) in session.rows(statement)]


def _proposal(samples: Sequence[str]) -> str:
    """Return the type that all samples are spelled as, and that is lossless for them."""
    for name, spelling in _SPELLED:
        if samples and all(spelling.fullmatch(value) for value in samples):
            return name
    numbers = [found for value in samples if (found := _NUMBER.fullmatch(value))]
    if samples and len(numbers) == len(samples):
        scale = max(len(found[2] or "") for found in numbers)
        if max(len(found[1]) for found in numbers) + scale <= DECIMAL_DIGITS:
            return f"decimal({DECIMAL_DIGITS},{scale})"
    return "string"
