"""Rows for a table: the table as it is found when a dataset is planned, and the one step that commits the staged data files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ClaimError, ConfigurationError, TableError
from airflow_gobblin.job import WorkRequest
from airflow_gobblin.model import schema
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.table import Owner, TableRecord, TableTarget
from airflow_gobblin.model.work import Dataset, ExtractKind, UnitResult
from airflow_gobblin.rows.sinks.base import Sink, TableSink
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.commit import DATA_FOLDER, TableCommitStep
from airflow_gobblin.tables.lists import write_lists
from airflow_gobblin.tables.port import Look, Merge, table_of

__all__ = ["PlannedTable", "check_look", "commit_step", "place_of", "plan_table"]


@dataclass(frozen=True)
class PlannedTable:
    """A table to publish to.

    :param schema: the columns that it has once the slot is done, and that files are written by.
    :param change: these columns, encoded, if the commit has to change the table's.
    """

    target: TableTarget
    schema: pa.Schema
    merge: Merge | None
    change: str | None


def plan_table(
    sink: TableSink, dataset: Dataset, outgoing: pa.Schema, request: WorkRequest, files: Files, connections: Connections
) -> PlannedTable:
    """Look at a dataset's table, which is created where there is none, unless the plan is only shown.

    :param outgoing: the columns of the rows to come.
    :raises ClaimError: it belongs to another dataset.
    :raises SchemaConflictError: its columns don't fit these rows.
    :raises TableError: it can't be looked at.
    """
    assert isinstance(sink, Sink)
    assert request.owner is not None, "the run tells whose table it is"
    table, merge = sink.table(dataset), _merge_of(sink, dataset)
    if merge is not None and request.whole:
        raise ConfigurationError(
            operation="replace a range of",
            subject=f"dataset {dataset.urn!r}",
            cause=f"its rows are merged into {table.name}: what they took the place of is gone",
            hint="Backfill without replacing: newer rows are merged, too.",
        )
    opened = table_of(table).open(connections, files)
    look = opened.look(request.owner)
    check_look(look, request.owner, table, request.table)
    if not look.id:
        columns = sink.schema(outgoing, None, dataset.urn)
        if request.preview:
            return PlannedTable(TableTarget(table, *look.target_at), columns, merge, None)
        opened.create(request.owner, columns, sink.partition_of(dataset))
        look = opened.look(request.owner)
    check_look(look, request.owner, table, request.table, made=True)
    published = sink.schema(outgoing, look.schema, dataset.urn)
    widened = look.schema is None or {*published.names} > {*look.schema.names}
    change = schema.encode(published) if widened else None
    return PlannedTable(TableTarget(table, *look.target_at), published, merge, change)


def _merge_of(sink: TableSink, dataset: Dataset) -> Merge | None:
    merge = sink.merge_of(dataset)
    if merge is not None and dataset.extract.kind is not ExtractKind.SNAPSHOT_APPEND:
        raise ConfigurationError(
            operation="plan",
            subject=f"dataset {dataset.urn!r} of kind {dataset.extract.kind.value}",
            cause="only a dataset of kind snapshot_append is merged by its keys",
            hint="Leave `merge` out.",
        )
    return merge


def check_look(look: Look, owner: Owner, table: TableRecord, before: TableTarget | None, *, made: bool = False) -> None:
    """Check that a table is one that a dataset may be published to.

    :param before: the table that what is live of it is in.
    :param made: whether the table must be there by now.
    :raises ClaimError: it belongs to another dataset.
    :raises ConfigurationError: it isn't the one that live rows are in.
    :raises TableError: it was made anew since they were published; it is gone; or it was set back.
    """
    name = table.name
    if before is not None and before.table.name != name:
        raise ConfigurationError(
            operation="plan for",
            subject=name,
            cause=f"what is published of {owner.urn!r} is in {before.table.name}",
            hint="Name that table; or publish under another URN; or drop the dataset, whose rows then stay there.",
        )
    if before is not None and look.id != before.id:
        raise TableError(
            operation="plan for",
            subject=name,
            cause=f"it {'was made anew' if look.id else 'is gone'} since rows of {owner.urn!r} were published to it",
            hint="Restore it; or drop the dataset, which is then published anew.",
        )
    if made and not look.id:
        raise TableError(operation="plan for", subject=name, cause="it was created, and isn't there")
    if look.owner not in (None, owner):
        raise ClaimError(
            operation="plan for",
            subject=name,
            cause=f"it belongs to {look.owner}",
            hint="Publish to another table; or take this one over: `airflow gobblin take-over`.",
        )
    if not look.stands:
        raise TableError(
            operation="plan for",
            subject=name,
            cause=f"it was set back to before {look.mark}, which is committed",
            hint="Restore it; or rewind the dataset.",
        )


def place_of(
    table: TableTarget, token: str, unit: str, attempt: str, folder: str, files: Files, connections: Connections
) -> tuple[Files, str]:
    """Return where a unit's data files are staged: the files of the table's location, or of the workspace, and a folder there
    that no other try uses.

    :param folder: the attempt's folder in the workspace.
    """
    name = f"{unit}-{uuid.uuid4().hex[:12]}"
    if not table.location:
        return files, f"{folder}/{name}"
    return open_files(table.location, connections), f"{DATA_FOLDER}/{token}/{attempt}/{name}"


def commit_step(
    plan: Plan,
    results: Iterable[UnitResult],
    files: Files,
    staging: str,
    merge: Merge | None = None,
    schema: str | None = None,
) -> TableCommitStep:
    """Write the lists of the results' data files, one at a time in memory, and return the step that commits them.

    :param schema: the columns that the table gets by it, encoded; `None`: it keeps its own.
    """
    assert plan.table is not None
    folder = f"{staging}/lists"
    lists = tuple(write_lists(files, folder, (file for result in results for file in result.data_files)))
    return TableCommitStep(
        target=plan.table,
        folder=folder,
        lists=lists,
        removes=plan.leaves,
        removes_all=plan.holds.replaces_all,
        merge=merge,
        schema=schema,
    )
