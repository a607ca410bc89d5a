"""A table as the sink of a stage: the one that a version is planned for, and the one that its evaluation finds or makes.

The columns of a stage's rows are known only once its function was called, so its first version makes the table on Spark's driver.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import GobblinError, SchemaConflictError
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.table import Owner, TableRecord, TableTarget
from airflow_gobblin.model.work import Dataset
from airflow_gobblin.rows.sinks.base import Sink, TableSink
from airflow_gobblin.rows.tables import check_look
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.arrow.schema_rules import decide
from airflow_gobblin.tables.port import SchemaRule, table_of

__all__ = ["FoundTable", "found_table", "planned_table"]


def planned_table(
    table: TableRecord, owner: Owner, before: TableTarget | None, files: Files, connections: Connections
) -> TableTarget:
    """Look at the table that a version is to be published to; one that isn't there yet has no id.

    :param before: the table that live versions are in.
    :raises ClaimError: it belongs to another dataset.
    :raises TableError: it can't be looked at, or isn't the one that live versions are in.
    """
    look = table_of(table).open(connections, files).look(owner)
    check_look(look, owner, table, before)
    return TableTarget(table, *look.target_at)


@dataclass(frozen=True)
class FoundTable:
    """The table of a version.

    :param schema: its columns, by which files are written.
    """

    target: TableTarget
    schema: pa.Schema


def found_table(
    sink: TableSink, dataset: Dataset, plan: Plan, owner: Owner, made: pa.Schema, files: Files, connections: Connections
) -> FoundTable:
    """Return the table of a version; make it if there is none.

    :param made: the columns of its rows, as the sink holds them.
    :raises SchemaConflictError: the table has other columns.
    :raises ClaimError: it belongs to another dataset.
    :raises TableError: it isn't the one that the version was planned for.
    """
    assert isinstance(sink, Sink)
    assert plan.table is not None
    opened = table_of(plan.table.table).open(connections, files)
    look = opened.look(owner)
    if not look.id and not plan.table.id:
        opened.create(owner, made, sink.partition_of(dataset))
        look = opened.look(owner)
    before = plan.table if plan.table.id else None
    check_look(look, owner, plan.table.table, before, made=True)
    assert look.schema is not None
    schema = decide(look.schema, made, SchemaRule.REFUSE, dataset.urn).schema
    if {*schema.names} != {*look.schema.names}:
        more = ", ".join(name for name in schema.names if name not in look.schema.names)
        raise SchemaConflictError(
            operation="evaluate",
            subject=f"stage {dataset.urn!r}",
            cause=f"its function gives column {more}, which {plan.table.table.name} doesn't have",
            hint="Give the table that column, or leave it out; or give a stage with other columns another name and table.",
        )
    target = TableTarget(plan.table.table, *look.target_at)
    if before is not None and target != before:
        raise GobblinError(
            operation="evaluate",
            subject=f"stage {dataset.urn!r}",
            cause=f"the columns or the partition of {plan.table.table.name} were changed since it was planned",
            hint="Its next run plans it again.",
        )
    return FoundTable(target, schema)
