"""What keeps a table from being read as it is described: all of it, where planning stops at the first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.sources.sql.dialects import Declared, Session, quoted
from airflow_gobblin.sources.sql.positions import axis_of
from airflow_gobblin.sources.sql.scan import positions, unknown
from airflow_gobblin.sources.sql.tables import SqlTable
from airflow_gobblin.sources.sql.types import DECIMAL_DIGITS

__all__ = ["check_table"]

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


def check_table(session: Session, table: SqlTable) -> Iterator[ConfigurationError]:
    """Everything that is wrong with a table, its columns, their types and its delta column, each with a proposal."""
    dialect = session.dialect
    namespace = table.namespace or dialect.default_namespace
    declared = {row[0]: Declared(*row) for row in session.rows(dialect.catalog(namespace, table.table))}
    if not declared:
        tables = [name for (name,) in session.rows(dialect.tables(namespace))]
        yield unknown(session, f"table {table.table!r} in {namespace!r}", table.table, tables)
        return
    for name in dict.fromkeys(table.named_columns):
        if name not in declared:
            yield unknown(session, f"column {name!r} in table {table.table!r}", name, [*declared])
    for name in table.columns or declared:
        one = declared.get(name)
        if one is not None and dialect.column(one, table.casts.get(name), table.timezone) is None:
            yield _no_type(session, one, _samples(session, table, one))
    if set(filter(None, (table.delta, *table.primary_keys))) <= declared.keys():
        try:
            positions(session, table, declared)
        except ConfigurationError as error:
            yield _no_positions(session, table, declared, error)


def _no_type(session: Session, column: Declared, samples: Sequence[str]) -> ConfigurationError:
    cast = _proposal(samples)
    say = f"casts={{{column.name!r}: {cast!r}}}"
    takes_all = (
        "which takes every value"
        if cast == "string"
        else (f"which fits its first {len(samples):,} values; or 'string', which takes every value")
    )
    return ConfigurationError(
        operation=session.operation,
        subject=session.subject,
        cause=f"there is no type for column {column.name!r} ({column.type or 'without a type'})",
        hint=f"Say {say}, {takes_all}; or leave it out of `columns`.",
    )


def _no_positions(
    session: Session, table: SqlTable, declared: Mapping[str, Declared], error: ConfigurationError
) -> ConfigurationError:
    """The error of a delta column that has no positions, with a cast that gives it some, or with columns that have."""
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
    """The first values of a column, as texts."""
    relation = session.dialect.relation(table.namespace or session.dialect.default_namespace, table.table)
    statement = session.statement()
    name = quoted(column.name)
    statement.text = f"SELECT CAST({name} AS text) FROM {relation} WHERE {name} IS NOT NULL LIMIT {_SAMPLE}"
    return [str(value) for (value,) in session.rows(statement)]


def _proposal(samples: Sequence[str]) -> str:
    """The type that all samples are spelled as, and that loses nothing of them."""
    for name, spelling in _SPELLED:
        if samples and all(spelling.fullmatch(value) for value in samples):
            return name
    numbers = [found for value in samples if (found := _NUMBER.fullmatch(value))]
    if samples and len(numbers) == len(samples):
        scale = max(len(found[2] or "") for found in numbers)
        if max(len(found[1]) for found in numbers) + scale <= DECIMAL_DIGITS:
            return f"decimal({DECIMAL_DIGITS},{scale})"
    return "string"
