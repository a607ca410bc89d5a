"""Rows for a table: the table as it is found when a dataset is planned, and the one step that commits the staged data files."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import CheckFailedError, ClaimError, ConfigurationError, SchemaConflictError, TableError
from airflow_gobblin.job import WorkRequest
from airflow_gobblin.model import schema
from airflow_gobblin.model.naming import size
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.table import DataFile, Owner, TableRecord, TableTarget
from airflow_gobblin.model.work import Dataset, ExtractKind, Limits, UnitResult, WorkUnit
from airflow_gobblin.rows.sinks.base import Sink, TableSink
from airflow_gobblin.rows.work import RowsBinding
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.arrow.merging import COMPARED_ROWS, newest
from airflow_gobblin.tables.arrow.reading import read_columns
from airflow_gobblin.tables.arrow.schema_rules import SchemaDecision, decide
from airflow_gobblin.tables.commit import TableCommitStep
from airflow_gobblin.tables.layout import unit_folder
from airflow_gobblin.tables.lists import write_lists
from airflow_gobblin.tables.port import ChangesColumnsApart, Count, Look, Merge, PartitionField, table_of

__all__ = [
    "PlannedTable",
    "bounded",
    "check_look",
    "check_table",
    "commit_step",
    "judge_merge",
    "merge_of",
    "place_of",
    "plan_table",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedTable:
    """A table to publish to.

    :param schema: the columns that its files are written with: those that it has once the slot is done. The columns of a key are
        never null.
    :param change: the columns that the commit gives it, encoded; `None`: it keeps those that it has.
    :param merged_bytes: the most bytes that may be merged into it; `None`: there is no bound, as for a table without rows, which
        takes files as they are.
    """

    target: TableTarget
    schema: pa.Schema
    merge: Merge | None
    change: str | None
    merged_bytes: int | None = None


def plan_table(
    sink: TableSink,
    dataset: Dataset,
    outgoing: pa.Schema,
    keys: Merge | None,
    request: WorkRequest,
    files: Files,
    connections: Connections,
    *,
    loaded: bool,
) -> PlannedTable:
    """Look at a dataset's table; create it if there is none, unless the plan is only shown.

    :param outgoing: the columns of the rows to come.
    :param keys: the keys that the source knows.
    :param loaded: whether rows of the dataset are published already. If not, somebody else may have filled the table.
    :raises ClaimError: it belongs to another dataset.
    :raises SchemaConflictError: its columns don't fit these rows, or the format can't hold them.
    :raises ConfigurationError: its rows can't be merged.
    :raises TableError: it can't be looked at.
    """
    assert isinstance(sink, Sink)
    assert request.owner is not None, "the run names the owner of its table"
    table, merge = sink.table_of(dataset), merge_of(sink.merge, dataset, keys)
    if merge is not None and request.whole:
        raise ConfigurationError(
            operation="replace a range of",
            subject=f"dataset {dataset.urn!r}",
            cause=f"its rows are merged into {table.name}: the rows that they replaced are gone",
            hint="Backfill without replacing: newer rows are merged, too.",
        )
    held = sink.schema(outgoing, None, dataset.urn)
    _check_castable(outgoing, held, dataset.urn)
    if merge is not None:
        held = _with_keys(held, merge, dataset.urn)
    opened = table_of(table).open(connections, files)
    look = opened.look(request.owner)
    check_look(look, request.owner, table, request.table)
    if not look.id:
        if request.preview:
            return PlannedTable(TableTarget(table, *look.target_at), held, merge, None)
        opened.create(request.owner, held, sink.partition_of(dataset))
        look = opened.look(request.owner)
    check_look(look, request.owner, table, request.table, made=True)
    _check_partition(look, sink.partition_of(dataset), table.name)
    assert look.schema is not None
    decision = decide(look.schema, held, sink.rule_of(dataset), dataset.urn, sink.widens)
    for did in decision.did:
        log.info("%s: %s", table.name, did)
    if merge is not None and decision.changes and isinstance(opened, ChangesColumnsApart) and not request.preview:
        opened.change_columns(look, request.owner, decision.schema)
        look = opened.look(request.owner)
        assert look.schema is not None
        decision = SchemaDecision(look.schema)
    written = decision.schema if merge is None else _with_keys(decision.schema, merge, dataset.urn)
    change = schema.encode(decision.schema) if decision.changes else None
    most = None if merge is None else sink.merged_bytes
    if most is not None and not loaded and opened.total() == Count():
        most = None
    return PlannedTable(TableTarget(table, *look.target_at), written, merge, change, most)


def check_table(
    sink: TableSink, dataset: Dataset, request: WorkRequest, files: Files, connections: Connections
) -> None:
    """Check that the table with a dataset's rows is still there, if there is nothing to add to it.

    :raises ClaimError: it belongs to another dataset.
    :raises ConfigurationError: the rows are in another one.
    :raises TableError: it is gone, was made anew or set back, or can't be looked at.
    """
    assert request.owner is not None, "the run names the owner of its table"
    table = sink.table_of(dataset)
    check_look(table_of(table).open(connections, files).look(request.owner), request.owner, table, request.table)


def merge_of(merge: Merge | bool, dataset: Dataset, keys: Merge | None) -> Merge | None:
    """Return how the rows of a dataset are merged; `None`: they are added, or take the place of all.

    :param merge: the sink's setting.
    :param keys: the keys that the source knows.
    :raises ConfigurationError: they can't be merged.
    """
    if not merge or dataset.extract.kind is not ExtractKind.SNAPSHOT_APPEND:
        return None
    found = merge if isinstance(merge, Merge) else keys
    if found is None or not found.keys:
        raise ConfigurationError(
            operation="merge",
            subject=f"dataset {dataset.urn!r}",
            cause="its source knows of no primary keys",
            hint="Give its table a primary key, or name one: primary_keys=('id',) in a SqlTable, DatasetPlan(…, merge=Merge(…)) "
            "in a source of your own, or merge=Merge(('id',), 'updated_at') in the sink.",
        )
    return found


def _with_keys(columns: pa.Schema, merge: Merge, urn: str) -> pa.Schema:
    """Return columns with those of the key never null: a row without a key fails its unit.

    :raises SchemaConflictError: a column to merge by isn't there.
    """
    for name in merge.columns:
        if name not in columns.names:
            raise SchemaConflictError(
                operation="merge",
                subject=f"column {name!r} of dataset {urn!r}",
                cause="it is to be merged by, and isn't there",
                hint="Keep that column; or name others in the sink: merge=Merge(keys=(…), delta=…).",
            )
    for name in merge.keys:
        number = columns.get_field_index(name)
        columns = columns.set(number, columns.field(number).with_nullable(False))
    return columns


def _check_castable(outgoing: pa.Schema, held: pa.Schema, urn: str) -> None:
    """Check that rows can be cast to the types that a format holds them as.

    :raises SchemaConflictError: those of a column can't.
    """
    for field in outgoing:
        wanted = held.field(field.name).type
        try:
            pa.nulls(0, field.type).cast(wanted)
        except pa.ArrowException as error:
            raise SchemaConflictError(
                operation="plan",
                subject=f"column {field.name!r} of dataset {urn!r}",
                cause=f"it is {field.type}, which can't be cast to {wanted}, as the table holds it: {error}",
                hint="Cast it in the source's `casts`, or leave it out.",
            ) from error


def bounded(units: Iterable[WorkUnit], most: int, limits: Limits, name: str) -> Iterator[WorkUnit]:
    """Yield units that are to be merged, as long as their rows are estimated to be few enough.

    :param most: the most bytes.
    :param limits: of each unit.
    :param name: the table.
    :raises ConfigurationError: they are too many.
    """
    total = 0
    for unit in units:
        total += unit.weight if limits.bytes is None else min(unit.weight, limits.bytes)
        if total > most:
            raise ConfigurationError(
                operation="plan",
                subject=f"dataset {unit.urn!r}",
                cause=f"its new rows are estimated at {size(total)} or more, and at most {size(most)} are merged into {name} at "
                "once",
                hint="Let a run have less: `limits=Limits(bytes=…)`, a backfill of a shorter range, or runs more often.",
            )
        yield unit


def judge_merge(
    sink: TableSink, plan: Plan, data_files: Iterable[DataFile], files: Files, connections: Connections
) -> None:
    """Judge whether the rows of a slot can be merged, before it is decided: a commit that can't be made would stay pending.

    Only the columns to merge by are read. If there are more rows than are compared in memory, a server judges them at the commit.

    :raises CheckFailedError: two rows are the newest of a key, or they are too many.
    """
    binding, named = RowsBinding.of(plan), list(data_files)
    assert binding.merge is not None
    assert plan.table is not None
    subject, total = f"dataset {plan.urn!r}", sum(file.size for file in named)
    if binding.merged_bytes is not None and total > binding.merged_bytes:
        raise CheckFailedError(
            operation="merge",
            subject=subject,
            cause=f"its staged files have {size(total)}, and at most {size(binding.merged_bytes)} are merged at once",
            hint="Let a run have less: `limits=Limits(bytes=…)`, a backfill of a shorter range, or runs more often.",
        )
    rows = sum(file.rows for file in named)
    if rows > COMPARED_ROWS and sink.merged_bytes is not None:
        raise CheckFailedError(
            operation="merge",
            subject=subject,
            cause=f"it has {rows:,} rows, and the keys of at most {COMPARED_ROWS:,} are compared on a worker",
            hint="Load it without `merge` first; or let a run have less.",
        )
    if not 0 < rows <= COMPARED_ROWS:
        return
    where = open_files(plan.table.location, connections) if plan.table.location else files
    try:
        newest(read_columns(where, named, plan.table.table.name, binding.merge.columns), binding.merge, subject)
    except TableError as error:
        raise CheckFailedError(operation="merge", subject=subject, cause=error.cause, hint=error.hint) from error


def check_look(look: Look, owner: Owner, table: TableRecord, before: TableTarget | None, *, made: bool = False) -> None:
    """Check that a dataset may be published to a table.

    :param before: the table that its live rows are in.
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
            cause=f"the published rows of {owner.urn!r} are in {before.table.name}",
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
    if not look.in_history:
        raise TableError(
            operation="plan for",
            subject=name,
            cause=f"it was set back to before {look.mark}, which is committed",
            hint="Restore it; or rewind the dataset.",
        )


def _check_partition(look: Look, partition: tuple[PartitionField, ...], name: str) -> None:
    """Check that a table is partitioned as its sink writes files."""
    if look.partition != partition:
        there, asked = (", ".join(map(str, fields)) or "nothing" for fields in (look.partition, partition))
        raise TableError(
            operation="plan for",
            subject=name,
            cause=f"it is partitioned by {there}, and its sink by {asked}",
            hint="Give the sink the table's partition, or publish to another table.",
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
    return open_files(table.location, connections), unit_folder(token, attempt, name)


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
