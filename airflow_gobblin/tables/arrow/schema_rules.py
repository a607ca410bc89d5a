"""How the columns of a table may change, by the rule of its dataset.

Under every rule, new columns that can be null are added, columns that the source no longer has stay and are null from then on,
and the table keeps the order of its columns. `SchemaRule` describes what a rule allows beyond that; all else is refused, by
column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from airflow_gobblin.errors import SchemaConflictError
from airflow_gobblin.model.schema import is_wider
from airflow_gobblin.tables.port import SchemaRule

__all__ = ["SchemaDecision", "SchemaRule", "decide", "holds", "is_wider"]


@dataclass(frozen=True)
class SchemaDecision:
    """The result of a rule for a table's columns and those that are to be written.

    :param schema: the columns that the table is to have.
    :param did: the changes, in sentences for the log; none: the table's columns stay.
    """

    schema: pa.Schema
    did: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether the table's columns change."""
        return bool(self.did)


def decide(
    table: pa.Schema,
    planned: pa.Schema,
    rule: SchemaRule,
    urn: str,
    widens: Callable[[pa.Field, pa.Field], bool] = lambda present, wanted: True,
) -> SchemaDecision:
    """Decide which columns a table is to have.

    :param table: the columns that it has. Their metadata, such as ids, are kept.
    :param planned: the columns to write, as the format holds them.
    :param widens: whether the format can give a table's column a wider type, or let it take nulls.
    :raises SchemaConflictError: the rule doesn't allow it, for reasons that it names by column.
    """
    problems = [f"two columns are named {name!r}" for name, times in Counter(planned.names).items() if times > 1]
    if problems:
        raise _refused(problems, rule, urn)
    columns, did = list(table), []
    at = {field.name: number for number, field in enumerate(table)}
    for field in planned:
        try:
            if field.name in at:
                columns[at[field.name]], done = _changed(table.field(at[field.name]), field, rule, widens)
            else:
                made, done = _added(field, table, rule)
                columns.append(made)
            did += done
        except _Problem as problem:
            problems.append(str(problem))
    problems += _gone(table, planned)
    if problems:
        raise _refused(problems, rule, urn)
    return SchemaDecision(pa.schema(columns, table.metadata), tuple(did))


class _Problem(Exception):
    """Why a column isn't allowed."""


def _added(field: pa.Field, table: pa.Schema, rule: SchemaRule) -> tuple[pa.Field, list[str]]:
    alike = [name for name in table.names if name.casefold() == field.name.casefold()]
    if alike:
        raise _Problem(f"new column {field.name!r} differs from {alike[0]!r} in case only")
    if field.nullable:
        return field, [f"column {field.name!r} ({field.type}) is added"]
    if rule is SchemaRule.REFUSE:
        raise _Problem(f"new column {field.name!r} ({field.type}) is not nullable")
    return field.with_nullable(True), [f"column {field.name!r} ({field.type}) is added, and can be null"]


def _changed(
    had: pa.Field, now: pa.Field, rule: SchemaRule, widens: Callable[[pa.Field, pa.Field], bool]
) -> tuple[pa.Field, list[str]]:
    """Return what becomes of a column that the table has, and what was done to it."""
    made, did = had, []
    if now.type != had.type and not _holds(had.type, now.type):
        may = rule is SchemaRule.WIDEN and is_wider(had.type, now.type) and widens(had, had.with_type(now.type))
        if not may:
            raise _Problem(f"column {had.name!r} is {had.type} and would be {now.type}")
        made, did = made.with_type(now.type), [f"column {had.name!r} goes from {had.type} to {now.type}"]
    if now.nullable and not had.nullable:
        if rule is not SchemaRule.WIDEN or not widens(had, had.with_nullable(True)):
            raise _Problem(f"column {had.name!r} is not null and may now be null")
        made = made.with_nullable(True)
        did.append(f"column {had.name!r} can be null")
    return made, did


def _holds(had: pa.DataType, now: pa.DataType) -> bool:
    """Return whether a column that is already wider can take the narrower values; the two may also differ in metadata alone."""
    return bool(had.equals(now)) or is_wider(now, had)


def holds(table: pa.Schema, rows: pa.Schema) -> bool:
    """Return whether a table's columns hold those of rows: each is there, with a type that is equal or wider."""
    return all(field.name in table.names and _holds(table.field(field.name).type, field.type) for field in rows)


def _gone(table: pa.Schema, planned: pa.Schema) -> Iterator[str]:
    for field in table:
        if field.name not in planned.names and not field.nullable:
            yield f"column {field.name!r} ({field.type}, not null) is gone"


def _refused(problems: list[str], rule: SchemaRule, urn: str) -> SchemaConflictError:
    other = "" if rule is SchemaRule.WIDEN else ", give its dataset a rule that allows it"
    return SchemaConflictError(
        operation="plan",
        subject=f"dataset {urn!r}",
        cause=f"{'; '.join(problems)} (the rule for its table is {rule.value!r})",
        hint=f"Cast the columns back in the source's `casts`{other}, or publish to another table.",
    )
