"""`write_commit_steps`: applying the commit policy to the valid results. `Committer.decide`, in `commit/`, takes the slot."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from airflow_gobblin.commit.committer import Proposal
from airflow_gobblin.commit.preconditions import check_goes_on, check_preconditions
from airflow_gobblin.errors import ClaimError, GobblinError, StepLostError, TargetError
from airflow_gobblin.job import JudgedWork
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.channels import STATE
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.plan import Plan, RunPlan, known_ranges
from airflow_gobblin.model.policy import CommitPolicy, publishable, reconciled
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import DatasetRef, Pack, UnitResult, UnitState, UnitSummary, summaries
from airflow_gobblin.run import reports
from airflow_gobblin.run.answers import covered_since, swept
from airflow_gobblin.run.derived import left_to_next, looked
from airflow_gobblin.run.notes import keep_failure, keep_unpublished
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.storage.files import with_listing_cache
from airflow_gobblin.workspace.staging import PlanResults, batched, check_no_link

log = logging.getLogger(__name__)


def write_commit_steps(opened: OpenJob, run: RunPlan, pack: Pack) -> tuple[DatasetReport, ...]:
    """Apply the commit policy to the valid results of each dataset, and decide its slot.

    From here on the run is bound to publish exactly this.

    :raises TargetError: as `check_target`.
    :raises ConfigurationError: as `check_target`.
    """
    opened.check_target()
    return tuple(left_to_next(opened, ref, _write(opened, ref, run)) for ref in pack.datasets)


def _write(opened: OpenJob, ref: DatasetRef, run: RunPlan) -> DatasetReport:
    try:
        plan = opened.staging.plan(ref.token)
        if plan is None:
            return swept(opened, ref, run.run_key, opened.journal.history(ref.urn))
        plan = plan.answering(run)
        history = opened.journal.history(ref.urn)
        slot = history.by_token(ref.token)
        if slot is None:
            check_goes_on(history)
            check_preconditions(plan, known_ranges(plan, opened.staging.units(plan)), history)
            check_no_link(opened.files, plan.folder, plan.urn)
            # A drop may have been completed since.
            if opened.claims.check(opened.journal, plan.urn, plan.folder, history):
                log.warning(
                    "dataset %r: the claim on its folder was released since it was planned; it is claimed anew",
                    ref.urn,
                )
            decided = _decide(opened, plan)
            if isinstance(decided, DatasetReport):
                return decided
            slot = _recheck_claim(opened, decided, plan)
        if slot.finished and not slot.done:
            return reports.given_up(slot, opened.journal.history(ref.urn))
        status = Status.COMMITTED if slot.done else Status.PENDING
        return reports.published(slot, status, f"slot {slot.decision.slot} is decided", opened.journal.state(ref.urn))
    except Exception as error:
        report = opened.failed("write the commit steps of", ref.urn, error)
        if report.status is Status.LOST:
            return covered_since(ref, opened.journal.history(ref.urn)) or report
        if report.failure is not None and not isinstance(error, TargetError):
            _keep_unwritten(opened, ref, report.failure)
        if report.failure is not None:
            keep_failure(opened, ref.urn, run.run_key, report.failure)
        return report


def _keep_unwritten(opened: OpenJob, ref: DatasetRef, failure: Failure) -> None:
    """Write to staging why the commit steps of a plan can't be written, for the end of its run."""
    try:
        opened.staging.put_unwritten(ref.token, failure, now())
    except (GobblinError, OSError):  # the same fault may keep it from being written
        log.warning("that dataset %r failed can't be written to staging", ref.urn, exc_info=True)


def _recheck_claim(opened: OpenJob, slot: Slot, plan: Plan) -> Slot:
    """Return a slot that was just decided, after checking its folder's claim again, which may have been released meanwhile.

    :raises ClaimError: another dataset claimed the folder; the slot was abandoned, unless it was done.
    """
    if slot.finished or slot.decision.token != plan.token:
        return slot
    try:
        opened.claims.check(opened.journal, plan.urn, plan.folder, opened.journal.history(plan.urn))
    except ClaimError as error:
        ended = opened.committer.abandon(slot, plan.run_key, reason=error.text)
        if ended.done:
            return ended
        opened.committer.cleanup.clean(opened.journal.history(plan.urn), plan.run_key)
        raise
    return slot


def _decide(opened: OpenJob, plan: Plan) -> Slot | DatasetReport:
    try:
        return _decide_from(opened, plan, results_of(opened, plan, checked=False))
    except StepLostError:  # files of a result are gone: another result may be valid, or the unit has none
        return _decide_from(opened, plan, results_of(opened, plan, checked=True))


def results_of(opened: OpenJob, plan: Plan, *, checked: bool) -> PlanResults:
    """Return the results of a plan that its policy may publish."""
    return PlanResults(opened.staging, plan, checked=checked, cut=_policy(opened, plan) is CommitPolicy.PARTIAL)


def _policy(opened: OpenJob, plan: Plan) -> CommitPolicy:
    """Return the policy of a plan: one that replaces something is published whole or not at all."""
    return CommitPolicy.FULL if plan.replaces or plan.reopens else opened.job.policy


def _decide_from(opened: OpenJob, plan: Plan, results: PlanResults) -> Slot | DatasetReport:
    proposal = propose(opened, plan, results)
    work = opened.job.work
    if proposal.decidable:
        if isinstance(work, JudgedWork):
            work.judge(plan, lambda: results.with_units(proposal.published), opened.files, opened.connections)
        return opened.committer.decide(
            replace(proposal, looked=looked(opened, plan)),
            lambda: results.with_units(proposal.published),
            lambda chosen: work.publish(
                proposal.plan, chosen, with_listing_cache(opened.files, plan.folder), proposal.staging
            ),
        )
    history = opened.journal.history(plan.urn)
    if (slot := history.by_token(plan.token)) is not None:
        return slot
    known = known_ranges(plan, opened.staging.units(plan))
    check_preconditions(plan, known, history)  # results may be gone because staging that can no longer win was swept
    looked(opened, plan)  # a unit may have failed because files of what was taken back are gone
    keep_unpublished(opened, plan, proposal.units)
    return reports.unpublished(plan.urn, proposal.units)


def propose(opened: OpenJob, plan: Plan, results: PlanResults) -> Proposal:
    """Return the part of a plan that would be published, by the commit policy and its results."""
    units = publishable(_policy(opened, plan), tuple(_summaries(opened, plan, results)))
    return Proposal(_with_made(plan, units, results), units, opened.staging.token_folder(plan.token))


def _with_made(plan: Plan, units: Iterable[UnitSummary], results: PlanResults) -> Plan:
    """Return a plan with the schemas of what it made, and its table, where only that shows them: in a stage's first version."""
    made, known = plan.checkpoint, plan.table is None or bool(plan.table.id)
    if made is None or (plan.schema is not None and made.knows_schemas and known):
        return plan
    published = [unit.unit for unit in units if unit.state is UnitState.SUCCESSFUL]
    result = next((result for _, result in results.with_units(published)), None)
    if result is None:
        return plan
    found = {channel.name: channel.schema for channel in result.channels}
    table = plan.table if known else result.table
    checkpoint = made.knowing(found.get(STATE), found)
    return replace(plan, schema=plan.schema or result.schema, checkpoint=checkpoint, table=table)


def _summaries(opened: OpenJob, plan: Plan, results: PlanResults) -> Iterator[UnitSummary]:
    """Yield the summaries of every unit, without keeping its result."""
    failed: dict[str, UnitResult] | None = None
    for some in batched(opened.staging.units(plan)):
        units = {unit.id: unit for unit in some}
        found = {r.unit: (*summaries(units[r.unit], reconciled(r)),) for r in results.read(units)}
        if len(found) < len(some) and failed is None:
            failed = opened.staging.failed_results(plan.token)
        for unit in some:
            yield from found.get(unit.id) or summaries(unit, (failed or {}).get(unit.id))
