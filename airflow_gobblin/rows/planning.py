"""The plan of a dataset of rows: what its source plans, judged, with the schema that converters and sink make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.job import WorkPlan, WorkRequest
from airflow_gobblin.model import schema
from airflow_gobblin.model.batch import Batch, HeldBatch
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.work import Dataset, ExtractKind, Limits, WorkUnit
from airflow_gobblin.rows.extraction import converted_schema
from airflow_gobblin.rows.sinks.base import SizedSink, TableSink
from airflow_gobblin.rows.source_plans import JudgedPlan, judge_plan, judge_snapshot
from airflow_gobblin.rows.sources.base import Consistency, DatasetPlan, PlanRequest
from airflow_gobblin.rows.sources.snapshots import check_shares_snapshots
from airflow_gobblin.rows.tables import bounded, check_table, plan_table
from airflow_gobblin.rows.work import RowsBinding, RowsWork
from airflow_gobblin.storage.files.base import Files


def plan_rows(
    work: RowsWork,
    dataset: Dataset,
    states: Mapping[str, DatasetState],
    request: WorkRequest,
    files: Files,
    connections: GuardedConnections,
) -> WorkPlan | HeldBatch | None:
    """Plan the units of a dataset; `None` if there is nothing to do. See `Work.plan`."""
    urn, state = dataset.urn, states[dataset.urn]
    _check_whole(work, dataset, state, request.policy)
    limits = Limits() if request.whole else work.limits
    batch = request.batch if dataset.holds.covers_ranges else None
    size = work.sink.file_bytes if isinstance(work.sink, SizedSink) else None
    in_order = request.policy is CommitPolicy.PARTIAL and not request.whole
    asked = PlanRequest(request.now, request.end, limits, work.options, request.ranges, batch, size, in_order)
    with connections.redacting("plan", f"dataset {urn!r}"):
        found = work.source.plan(dataset, states, asked, connections)
    held = _held(work, urn, batch, found)
    judged = None if held is not None else _judged(dataset, found, state, request, connections)
    if judged is None:
        if isinstance(work.sink, TableSink) and request.table is not None:
            check_table(work.sink, dataset, request, files, connections)
        return held
    outgoing = converted_schema(work.converters, work.checks, found.schema)
    table, merged_bytes, units = None, None, judged.units
    if isinstance(work.sink, TableSink):
        loaded = state.coverage.origin is not None
        table = plan_table(work.sink, dataset, outgoing, found.merge, request, files, connections, loaded=loaded)
        outgoing, merged_bytes = table.schema, table.merged_bytes
        if merged_bytes is not None:
            units = bounded(units, merged_bytes, limits, table.target.table.name)
    else:
        published = schema.decode(state.schema) if state.schema else None
        outgoing = work.sink.schema(outgoing, published, urn)
    return WorkPlan(
        units,
        work.sink.folder(dataset),
        RowsBinding(
            schema.encode(found.schema),
            limits,
            in_order,
            None if table is None else table.merge,
            None if table is None else table.change,
            merged_bytes,
        ),
        schema.encode(outgoing),
        judged.planned,
        judged.open_end,
        found.kept_from,
        _one_snapshot(work, urn, found),
        table=None if table is None else table.target,
    )


def _held(work: RowsWork, urn: str, batch: Batch | None, found: DatasetPlan) -> HeldBatch | None:
    """Return what waits, if that is too little for a batch.

    :raises ConfigurationError: the source can't report what waits, or when it is due.
    """
    if batch is None:
        return None
    if found.backlog is None:
        raise ConfigurationError(
            operation="plan",
            subject=f"dataset {urn!r}",
            cause=f"its source, a {type(work.source).__name__}, doesn't report what waits, so it can't be read in batches",
            hint="Leave `batch` out; or let the source's plans have a `backlog`.",
        )
    batch.check(found.backlog, urn)
    return HeldBatch(batch, found.backlog) if batch.holds(found.backlog) else None


def _takes_all(dataset: Dataset, state: DatasetState) -> bool:
    """Return whether a load takes the whole dataset: each load of a snapshot, and the first of a snapshot-append."""
    kind = dataset.extract.kind
    return kind is ExtractKind.SNAPSHOT_ONLY or (kind is ExtractKind.SNAPSHOT_APPEND and state.coverage.origin is None)


def _check_whole(work: RowsWork, dataset: Dataset, state: DatasetState, policy: CommitPolicy) -> None:
    if _takes_all(dataset, state) and (policy is not CommitPolicy.FULL or work.limits.any):
        raise ConfigurationError(
            operation="plan",
            subject=f"dataset {dataset.urn!r} of kind {dataset.extract.kind.value}",
            cause="a snapshot is published whole or not at all",
            hint="Use the commit policy 'full' and no limits for it, in an ingestion of its own if need be.",
        )


def _judged(
    dataset: Dataset, found: DatasetPlan, state: DatasetState, request: WorkRequest, connections: GuardedConnections
) -> JudgedPlan | None:
    """Judge a source's plan; `None` if there is nothing to do.

    :raises SourceError: the plan can't be carried out.
    """
    units = _units(dataset, found, state, connections)
    if dataset.holds.covers_ranges:
        return judge_plan(dataset.urn, units, found.planned, request.covered)
    return judge_snapshot(dataset.urn, units, state)


def _units(
    dataset: Dataset, found: DatasetPlan, state: DatasetState, connections: GuardedConnections
) -> Iterator[WorkUnit]:
    """Yield the units that a source plans, as they come.

    :raises SourceError: two share an id, one is of another dataset, or several may show different states within one load.
    """
    urn, ids, units = dataset.urn, set[str](), iter(found.units)
    alone = found.consistency is Consistency.ONE_UNIT and _takes_all(dataset, state)
    while True:
        with connections.redacting("plan", f"dataset {urn!r}"):
            unit = next(units, None)
        if unit is None:
            return
        if unit.id in ids or unit.urn != urn:
            raise SourceError(
                operation="plan",
                subject=f"dataset {urn!r}",
                cause=f"two units share the id {unit.id!r}"
                if unit.id in ids
                else f"unit {unit.id!r} is of another dataset",
                hint="This is a fault of the source's code.",
            )
        ids.add(unit.id)
        if alone and len(ids) > 1:
            raise SourceError(
                operation="plan",
                subject=f"dataset {urn!r} of kind {dataset.extract.kind.value}",
                cause="it is taken whole, by several units, and its source doesn't declare that these show one state of it",
                hint="The source plans one unit; or its plan gives the reason: DatasetPlan(…, consistency=Consistency.…).",
            )
        yield unit


def _one_snapshot(work: RowsWork, urn: str, found: DatasetPlan) -> bool:
    """Return whether the units of a plan are read in one snapshot.

    :raises ConfigurationError: the source has no snapshots.
    """
    if found.consistency is not Consistency.ONE_SNAPSHOT:
        return False
    check_shares_snapshots(work.source, urn)
    return True
