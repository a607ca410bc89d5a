"""The plan of one dataset: its work's own, bound to the history that the dataset has now."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from airflow_gobblin.commit.preconditions import check_goes_on, stood_for
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.job import BatchedJob, DatasetLike, TabledWork, Work, WorkPlan, WorkRequest
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.batch import HeldBatch
from airflow_gobblin.model.channels import ROWS
from airflow_gobblin.model.plan import DatasetNote, Plan
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.table import Owner, TableRecord
from airflow_gobblin.model.work import WorkUnit
from airflow_gobblin.run import reports
from airflow_gobblin.run.backfill import Backfill, plan_backfill
from airflow_gobblin.run.inputs import Planning
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.workspace.claims import check_folder
from airflow_gobblin.workspace.manifests import check_no_slot_is_lost
from airflow_gobblin.workspace.staging import check_no_link

log = logging.getLogger(__name__)


def plan_dataset(
    opened: OpenJob, dataset: DatasetLike, history: History, planning: Planning, *, preview: bool = False
) -> tuple[Plan, Iterable[WorkUnit]] | DatasetNote:
    """Plan a dataset that has nothing pending, with its units, or note why there is no plan. Nothing is written, except that
    a missing table is made.

    :param preview: don't even make that: the plan is only shown.
    """
    urn, request, run_key = dataset.urn, planning.request, planning.run_key
    answer = history.answer(run_key)
    if answer is not None:
        return DatasetNote(urn, Status.COMMITTED, f"already committed in {reports.described(answer)}")
    check_goes_on(history)
    _check_holds(dataset, history)
    _check_place(opened.job.work, dataset, history)
    _check_provenance(dataset, history.state, planning)
    backfill = _backfill(opened, dataset, history, planning) if request.backfill else None
    if backfill is not None and not backfill.ranges:
        return DatasetNote(urn, Status.IDLE, f"this run covered range {backfill.asked} already")
    asked = replace(_work_request(opened, request, history, backfill), preview=preview)
    found = opened.job.work.plan(dataset, planning.states, asked, opened.files, opened.connections)
    if found is None:
        return DatasetNote(urn, Status.IDLE, "there is nothing new")
    if isinstance(found, HeldBatch):
        return DatasetNote(urn, Status.HELD, str(found))
    return _bound(opened, dataset, history, found, planning, backfill), found.units


def _check_holds(dataset: DatasetLike, history: History) -> None:
    """Check that the published and the planned content of a dataset are of the same kind."""
    slots = {ref.slot for ref, unit in history.state.live.items() if unit.files}
    published = {history.slot(number).holds for number in slots}
    if not history.keeps_units:
        published.add(history.holds)
    other = next((holds for holds in sorted(filter(None, published)) if holds is not dataset.holds), None)
    if other is not None:
        raise ConfigurationError(
            operation="plan",
            subject=f"dataset {dataset.urn!r}",
            cause=f"its published content holds {other.what}, and this run would publish {dataset.holds.what}",
            hint="Go back to the former kind; or publish it under another URN; or drop the dataset, with its files.",
        )


def _check_place(work: Work, dataset: DatasetLike, history: History) -> None:
    """Check that the published and the planned content of a dataset are both files, or both in a table."""
    table = work.table_of(dataset) if isinstance(work, TabledWork) else None
    slots = {ref.slot for ref, unit in history.state.live.items() if unit.files and ref.channel == ROWS}
    elsewhere = (slot for slot in slots if (history.table_of(slot) is None) is not (table is None))
    slot = next(elsewhere, None)
    if slot is None:
        return
    before = history.table_of(slot)
    former, planned = _name_of(None if before is None else before.table), _name_of(table)
    raise ConfigurationError(
        operation="plan",
        subject=f"dataset {dataset.urn!r}",
        cause=f"its rows are in {former}, and those of this run would be in {planned}",
        hint="Go back to the former sink; or publish it under another name; or drop the dataset, with its files.",
    )


def _name_of(table: TableRecord | None) -> str:
    return "files" if table is None else table.name


def _check_provenance(dataset: DatasetLike, state: DatasetState, planning: Planning) -> None:
    """Refuse a dataset that another DAG reads from elsewhere, since its rows would be mixed with others."""
    mine = planning.provenance_of(dataset)
    if state.provenance is not None and state.provenance.bars(mine):
        raise ConfigurationError(
            operation="plan",
            subject=f"dataset {dataset.urn!r} of DAG {mine.dag!r}",
            cause=state.provenance.against(mine),
            hint="Give the dataset another URN in one of them, or their ingestions two names. If this DAG is to go on with "
            f"what the other one published: `airflow gobblin move --dag-id {mine.dag}`.",
        )


def _backfill(opened: OpenJob, dataset: DatasetLike, history: History, planning: Planning) -> Backfill:
    """Return the backfill of a dataset.

    :raises ConfigurationError: it has no such range, or the range is covered.
    """
    urn, request = dataset.urn, planning.request
    assert request.start is not None
    with opened.connections.redacting("backfill", f"dataset {urn!r}"):
        asked = opened.job.work.resolve(dataset, RangeRequest(now(), request.start, request.end), opened.connections)
    backfill = plan_backfill(history, asked, planning.run_key, replace=request.replace)
    log.info("dataset %r: a backfill of %s", urn, backfill)
    return backfill


def _work_request(opened: OpenJob, request: RunRequest, history: History, backfill: Backfill | None) -> WorkRequest:
    job, end = opened.job, request.end if isinstance(request.end, datetime) else None
    owner = Owner(opened.journal.id, opened.journal.ingestion, history.urn)
    policy, coverage = job.policy, history.state.coverage
    table = (
        history.table if any(u.files and history.is_in_table(ref) for ref, u in history.state.live.items()) else None
    )
    if backfill is None:
        batch = job.batch if isinstance(job, BatchedJob) and not request.flush else None
        return WorkRequest(now(), end, policy, coverage, batch=batch, owner=owner, table=table)
    stays = coverage.without(stood_for(backfill, history))
    return WorkRequest(now(), end, policy, stays, backfill.ranges, whole=request.replace, owner=owner, table=table)


def _bound(
    opened: OpenJob,
    dataset: DatasetLike,
    history: History,
    found: WorkPlan,
    planning: Planning,
    backfill: Backfill | None,
) -> Plan:
    """Make a plan, without its units, from the work's plan and the dataset's history."""
    urn, state = dataset.urn, history.state
    if (found.planned is not None) is not dataset.holds.covers_ranges:
        raise GobblinError(
            operation="plan",
            subject=f"dataset {urn!r}",
            cause=f"its slots hold {dataset.holds.what}, and the range of its plan is {found.planned}",
            hint="This is a fault of the code of its work.",
        )
    folder = check_folder(found.folder, urn, dataset.holds)
    check_no_link(opened.files, folder, urn)
    check_no_slot_is_lost(opened.files, opened.journal, history)
    replaced = () if backfill is None else backfill.replaces
    opened.committer.homes.check_newest(history, replaced)
    replaces = tuple(sorted(state.live)) if dataset.holds.replaces_all else replaced
    return Plan(
        token=uuid.uuid4().hex,
        ingestion=opened.job.name,
        run_key=planning.run_key,
        generation=state.generation,
        urn=urn,
        holds=dataset.holds,
        folder=folder,
        units=(),
        binding=found.binding,
        schema=found.schema,
        planned=found.planned,
        open_end=found.open_end,
        replaces=replaces,
        reopens=() if backfill is None else backfill.reopens,
        run=planning.request.dag_run,
        kept_from=found.kept_from,
        one_snapshot=found.one_snapshot,
        provenance=planning.provenance_of(dataset),
        head=state.head,
        metadata=found.metadata,
        checkpoint=found.checkpoint,
        table=found.table,
        leaves=() if found.table is None or dataset.holds.replaces_all else history.table_units(replaces),
    )
