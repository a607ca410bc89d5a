"""`create_work_units`: planning every dataset from its watermark, and packing the plans."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from airflow_gobblin.commit.homes import Tenant
from airflow_gobblin.commit.preconditions import check_goes_on, stood_for
from airflow_gobblin.errors import (
    ConfigurationError,
    GobblinError,
    NoSuchRangeError,
    OverlapError,
    PausedError,
    QuarantinedError,
    RecordError,
    SourceError,
    StoreError,
)
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import now
from airflow_gobblin.model import schema
from airflow_gobblin.model.coverage import Coverage
from airflow_gobblin.model.naming import dataset_key, many, meant
from airflow_gobblin.model.packing import pack_datasets, pack_up_to
from airflow_gobblin.model.plan import DatasetNote, DatasetProspect, Plan, Prospect, RunPlan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.state import DatasetState, Provenance
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.watermark import split
from airflow_gobblin.model.work import Dataset, DatasetRef, ExtractKind, Limits, Pack, WorkUnit
from airflow_gobblin.rows.extraction import converted_schema
from airflow_gobblin.rows.source_plans import JudgedPlan, judge_plan, judge_snapshot
from airflow_gobblin.rows.sources.base import Consistency, DatasetPlan, PlanRequest, RangeRequest, RangeSource
from airflow_gobblin.rows.sources.snapshots import check_shares_snapshots
from airflow_gobblin.rows.work import RowsWork
from airflow_gobblin.run import reports
from airflow_gobblin.run.backfill import Backfill, plan_backfill
from airflow_gobblin.run.notes import keep_failure
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.recover import finish_left
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.workspace.claims import check_folder
from airflow_gobblin.workspace.manifests import check_no_slot_is_lost
from airflow_gobblin.workspace.staging import check_no_link

log = logging.getLogger(__name__)

_STATES_KEPT = 1000
_NAMED = 20
_SOUGHT = 3
_TO_CORRECT = "Correct the run's configuration or its partition key, or add them to the source. Nothing was changed."


class States(Mapping[str, DatasetState]):
    """The state of every dataset of an ingestion, by URN. Each is read on first use, and a bounded number is kept."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, DatasetState] = {}

    def add(self, urn: str, history: History | GobblinError) -> None:
        """Keep the state of a dataset that was already read; a dataset that can't be read has no state."""
        self._known.pop(urn, None)
        if isinstance(history, History):
            while len(self._known) >= _STATES_KEPT:
                del self._known[next(iter(self._known))]
            self._known[urn] = history.state

    def __getitem__(self, urn: str) -> DatasetState:
        if urn not in self._known:
            try:
                self.add(urn, self._journal.history(urn))
            except RecordError as error:
                raise KeyError(urn) from error
        return self._known[urn]

    def __iter__(self) -> Iterator[str]:
        return iter(self._journal.datasets())

    def __len__(self) -> int:
        return len(self._journal.datasets())


@dataclass(frozen=True)
class _Planning:
    """The inputs of a run's plan, or of the plan that it would have now.

    :param provenance: that of everything the run's DAG plans, except for where each dataset is read from.
    :param every: all datasets of the source.
    :param datasets: the datasets that are asked for.
    :param states: the states of the datasets read so far.
    :param tried: when a run last tried to publish something of each dataset read so far.
    """

    request: RunRequest
    run_key: str
    tenant: Tenant
    provenance: Provenance
    every: tuple[Dataset, ...]
    datasets: tuple[Dataset, ...]
    states: States
    tried: dict[str, datetime | None] = field(default_factory=dict)

    def provenance_of(self, dataset: Dataset) -> Provenance:
        """Return the provenance that a dataset would have."""
        return replace(self.provenance, read_from=dataset.origin)


def _unknown(urns: Sequence[str], known: Sequence[str]) -> ConfigurationError:
    """Make the error for datasets that were asked for and don't exist."""
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    return ConfigurationError(
        operation="plan",
        subject=f"datasets {[*urns[:_NAMED]]}",
        cause=f"the source has no such: it has {[*known[:_NAMED]]}{more}",
        hint=f"{meant(known, *urns[:_SOUGHT])} {_TO_CORRECT}".lstrip(),
    )


def _unplanned(urn: str, error: GobblinError) -> DatasetNote:
    """Note that a dataset can't be planned. A storage error affects more datasets, and may be gone by the next try."""
    of_storage = isinstance(error, StoreError) or isinstance(error.cause, OSError)
    asked = isinstance(error, NoSuchRangeError | OverlapError)
    return DatasetNote(urn, Status.FAILED, str(error), of_storage, asked)


def _no_ranges(urn: str, cause: str, hint: str) -> NoSuchRangeError:
    return NoSuchRangeError(operation="backfill", subject=f"dataset {urn!r}", cause=cause, hint=hint)


def _without_left_out(
    found: dict[str, DatasetRef | DatasetNote | GobblinError], request: RunRequest
) -> dict[str, DatasetRef | DatasetNote | GobblinError]:
    """Leave out of a backfill of all datasets those that have no such range, unless that is all of them."""
    out = {urn: plan for urn, plan in found.items() if isinstance(plan, NoSuchRangeError)}
    if request.datasets or len(out) == len(found):
        return found
    return found | {urn: DatasetNote(urn, Status.IDLE, f"it is left out: {error}") for urn, error in out.items()}


def _takes_all(dataset: Dataset, state: DatasetState) -> bool:
    """Return whether a load takes the whole dataset: each load of a snapshot, and the first of a snapshot-append."""
    kind = dataset.extract.kind
    return kind is ExtractKind.SNAPSHOT_ONLY or (kind is ExtractKind.SNAPSHOT_APPEND and state.coverage.origin is None)


def _check_kind(dataset: Dataset, history: History) -> None:
    """Check that the published units of a dataset and the planned ones either all have positions or none have."""
    snapshot = dataset.extract.kind is ExtractKind.SNAPSHOT_ONLY
    slots = {ref.slot for ref, unit in history.state.live.items() if unit.files}
    published = {not history.slot(number).positions for number in slots}
    if (not snapshot) in published:
        was = "has positions, and a snapshot none" if snapshot else "is a snapshot, whose rows would come again"
        raise ConfigurationError(
            operation="plan",
            subject=f"dataset {dataset.urn!r} of kind {dataset.extract.kind.value}",
            cause=f"what is published of it {was}",
            hint="Go back to the former kind; or publish it under another URN; or drop the dataset, with its files.",
        )


def _check_provenance(dataset: Dataset, state: DatasetState, planning: _Planning) -> None:
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


def create_work_units(opened: OpenJob, request: RunRequest) -> RunPlan:
    """Plan every dataset from its watermark, and pack the plans.

    A dataset that can't be planned leaves a note, and the others go on.

    :raises SourceError: the source can't be reached.
    :raises ConfigurationError: a requested dataset doesn't exist; as `check_target`; or another DAG has the ingestion's name.
    :raises TargetError: as `check_target`.
    :raises GobblinError: no dataset can be planned, and a retry may succeed.
    """
    planning = _begin(opened, request)
    found: dict[str, DatasetRef | DatasetNote | GobblinError] = {}
    left: list[DatasetNote] = []
    for dataset, history in _with_histories(opened, planning, left):
        plan = found[dataset.urn] = _plan(opened, dataset, history, planning)
        if isinstance(plan, GobblinError) and not isinstance(plan, NoSuchRangeError | OverlapError):
            keep_failure(opened, dataset.urn, planning.run_key, str(plan))
    found = _without_left_out(found, request)
    errors = [plan for plan in found.values() if isinstance(plan, GobblinError)]
    if errors and len(errors) == len(planning.datasets) and all(error.retryable for error in errors):
        raise errors[0]  # no database, no disk: nothing was planned, and the whole task is worth a retry
    notes = [] if request.datasets else left
    planned: list[DatasetRef] = []
    for dataset in planning.datasets:
        answer = found[dataset.urn]
        if isinstance(answer, DatasetRef):
            planned.append(answer)
        else:
            notes.append(_unplanned(dataset.urn, answer) if isinstance(answer, GobblinError) else answer)
    packs, waiting = _packed(opened, planned, planning.tried)
    for ref in waiting:
        opened.staging.remove_token(ref.token)
        notes.append(_waiting(opened, ref, request))
    run = RunPlan(uuid.uuid4().hex, planning.run_key, packs, tuple(notes), request.backfill, now())
    opened.staging.put_run(run, replace(_work(opened), limits=_limits(opened, request)))
    opened.staging.finish_earlier_tries(run)
    return run


def _begin(opened: OpenJob, request: RunRequest) -> _Planning:
    """Collect the inputs of a run's plan, writing nothing. Errors are those of `create_work_units`."""
    tenant = Tenant(request.dag, opened.job.work.source_identity)
    opened.committer.homes.check(tenant)
    every = _datasets(opened, request)
    return _Planning(
        request,
        request.run_key(opened.job.name),
        tenant,
        opened.committer.homes.provenance(request.dag),
        every,
        tuple(d for d in every if not request.datasets or d.urn in request.datasets),
        States(opened.journal),
    )


def _work(opened: OpenJob) -> RowsWork:
    """Return the work of a job: rows are the only one that is planned here."""
    work = opened.job.work
    assert isinstance(work, RowsWork)
    return work


def _limits(opened: OpenJob, request: RunRequest) -> Limits:
    """Return the limits of a run: none for a replacement, since a range is replaced whole."""
    return Limits() if request.replace else _work(opened).limits


def _with_histories(
    opened: OpenJob, planning: _Planning, left: list[DatasetNote]
) -> Iterator[tuple[Dataset, History | GobblinError]]:
    """Yield each dataset with its history, by one listing, with few of them in memory at once.

    :param left: gets a note for each dataset that the source no longer has and that an earlier run left unfinished.
    """
    for dataset, history in _listed(opened, planning, left):
        planning.states.add(dataset.urn, history)
        planning.tried[dataset.urn] = history.tried if isinstance(history, History) else None
        yield dataset, history


def _listed(
    opened: OpenJob, planning: _Planning, left: list[DatasetNote]
) -> Iterator[tuple[Dataset, History | GobblinError]]:
    wanted = {dataset_key(d.urn): d for d in planning.datasets}
    of_source = {dataset_key(d.urn) for d in planning.every}
    names = {key: dataset.urn for key, dataset in wanted.items()}
    for key, history in opened.journal.histories(
        names, lambda keys: keys.dataset in names or (keys.may_be_pending and keys.dataset not in of_source)
    ):
        if key in wanted:
            yield wanted.pop(key), history
        elif key not in of_source and isinstance(history, History) and history.pending is not None:
            left.append(reports.left_behind(history, history.pending))
    for dataset in wanted.values():
        yield dataset, History(dataset.urn)


def _datasets(opened: OpenJob, request: RunRequest) -> tuple[Dataset, ...]:
    """Return all datasets of the source, checking that their keys differ and that the requested ones exist."""
    with opened.connections.redacting("plan", f"ingestion {opened.job.name!r}"):
        datasets = tuple(_work(opened).source.datasets(opened.connections))
    keys: dict[str, str] = {}
    for dataset in datasets:
        key = dataset_key(dataset.urn)
        if key in keys:
            raise ConfigurationError(
                operation="plan",
                subject=f"dataset {dataset.urn!r}",
                cause="the source names it twice" if keys[key] == dataset.urn else f"its key is {keys[key]!r}'s, too",
                hint="Give each dataset of the source a URN of its own.",
            )
        keys[key] = dataset.urn
    unknown = sorted(set(request.datasets) - {d.urn for d in datasets})
    if unknown:
        raise _unknown(unknown, sorted(d.urn for d in datasets))
    return datasets


def _plan(
    opened: OpenJob, dataset: Dataset, history: History | GobblinError, planning: _Planning
) -> DatasetRef | DatasetNote | GobblinError:
    """Plan a dataset and return where its plan is, or why there is none."""
    urn, request = dataset.urn, planning.request
    try:
        if isinstance(history, GobblinError):
            raise history
        if history.pending is not None:
            finish_left(opened, urn, planning.run_key)
            history = opened.journal.history(urn)
            planning.states.add(urn, history)
        proposed = _proposed(opened, dataset, history, planning)
        if isinstance(proposed, DatasetNote):
            return proposed
        plan, units = proposed
        opened.claims.check(opened.journal, urn, plan.folder, history)
        opened.committer.homes.settle(planning.tenant)
        weight = opened.staging.put_plan(plan, units)
        # A covered range isn't necessarily a replaced one.
        planned = None if request.replace else plan.planned
        return DatasetRef(plan.urn, plan.token, weight, planned, plan.open_end)
    except QuarantinedError as error:
        return DatasetNote(urn, Status.QUARANTINED, str(error))
    except PausedError as error:  # a backfill of a paused dataset would wait in vain
        return DatasetNote(
            urn, Status.FAILED if request.backfill else Status.PAUSED, str(error), asked=request.backfill
        )
    except Exception as error:  # a user's sink or converter may raise anything; the other datasets go on
        shown = opened.shown("plan", urn, error)
        if isinstance(shown, GobblinError):
            log.warning("dataset %r can't be planned: %s", urn, shown)
            return shown
        log.error("dataset %r can't be planned", urn, exc_info=shown)
        return GobblinError(operation="plan", subject=f"dataset {urn!r}", cause=shown, hint="See the log.")


def would_plan(opened: OpenJob, request: RunRequest) -> Prospect:
    """Return what `create_work_units` would plan now. Nothing is written, claimed or finished: a read-only journal is enough.

    :raises SourceError: the source can't be reached.
    :raises ConfigurationError: a requested dataset doesn't exist, or as `create_work_units`.
    :raises TargetError: as `create_work_units`.
    """
    planning = _begin(opened, request)
    found = {
        dataset.urn: _would_plan(opened, dataset, history, planning)
        for dataset, history in _with_histories(opened, planning, [])
    }
    refs = [one.ref for one in found.values() if one.ref is not None]
    packs, waiting = _packed(opened, refs, planning.tried)
    for ref in waiting:
        note = _waiting(opened, ref, request)
        found[ref.urn] = replace(found[ref.urn], status=note.status, detail=note.detail)
    return Prospect(tuple(found[d.urn] for d in planning.datasets), packs)


def _would_plan(
    opened: OpenJob, dataset: Dataset, history: History | GobblinError, planning: _Planning
) -> DatasetProspect:
    urn = dataset.urn
    try:
        if isinstance(history, GobblinError):
            raise history
        if history.pending is not None:
            slot = history.pending.decision.slot
            return DatasetProspect(urn, Status.PENDING, f"slot {slot} is finished first, and then it is planned")
        proposed = _proposed(opened, dataset, history, planning)
        if isinstance(proposed, DatasetNote):
            return DatasetProspect(urn, proposed.status, proposed.detail)
        plan, units = proposed
        opened.claims.check_free(opened.journal, urn, plan.folder)
        return DatasetProspect(urn, Status.PLANNED, plan=plan, units=tuple(units))
    except PausedError as error:
        return DatasetProspect(urn, Status.PAUSED, str(error))
    except Exception as error:  # a user's sink or converter may raise anything
        told = opened.shown("plan", urn, error)
        if not isinstance(told, GobblinError):
            hint = "Mend it in its code."
            told = GobblinError(operation="plan", subject=f"dataset {urn!r}", cause=told, hint=hint)
        return DatasetProspect(urn, Status.FAILED, str(told), error=told)


def _packed(
    opened: OpenJob, planned: list[DatasetRef], tried: Mapping[str, datetime | None]
) -> tuple[tuple[Pack, ...], tuple[DatasetRef, ...]]:
    """Pack plans, and return the packs and the plans that have no room.

    :param tried: when a run last tried to publish something of each dataset: the one that waits longest has room first. A run
        that didn't end, or couldn't publish, is known by its plan as long as that could still be decided.
    """
    most = opened.job.max_pack_weight
    if most is None:
        return pack_datasets(planned, opened.job.max_packs), ()
    never, had_room = datetime.min.replace(tzinfo=UTC), opened.staging.had_room()
    last = {ref.urn: max(tried.get(ref.urn) or never, had_room.get(ref.urn, never)) for ref in planned}
    ordered = sorted(planned, key=lambda ref: (last[ref.urn], -ref.weight, ref.urn))
    return pack_up_to(ordered, opened.job.max_packs, most)


def _waiting(opened: OpenJob, ref: DatasetRef, request: RunRequest) -> DatasetNote:
    """Note that a dataset has no room in a run. A range of a backfill isn't left to another run."""
    packs = many(opened.job.max_packs, "pack")
    why = f"its weight of {ref.weight:,} has no room in {packs} of at most {opened.job.max_pack_weight:,}"
    if request.backfill:
        return DatasetNote(ref.urn, Status.FAILED, f"{why}: it waits for those of this run")
    return DatasetNote(ref.urn, Status.WAITING, f"{why}: the next run takes it before those that had room")


def _proposed(
    opened: OpenJob, dataset: Dataset, history: History, planning: _Planning
) -> tuple[Plan, Iterable[WorkUnit]] | DatasetNote:
    """Plan a dataset that has nothing pending, with its units, or note why there is no plan. Nothing is written."""
    urn, request, run_key = dataset.urn, planning.request, planning.run_key
    answer = history.answer(run_key)
    if answer is not None:
        return DatasetNote(urn, Status.COMMITTED, f"already committed in {reports.said(answer)}")
    check_goes_on(history)
    _check_extract(opened, dataset, history.state)
    _check_kind(dataset, history)
    _check_provenance(dataset, history.state, planning)
    backfill = _backfill(opened, dataset, history, request, run_key) if request.backfill else None
    if backfill is not None and not backfill.ranges:
        return DatasetNote(urn, Status.IDLE, f"this run covered range {backfill.asked} already")
    with opened.connections.redacting("plan", f"dataset {urn!r}"):
        asked = _plan_request(opened, request, backfill)
        found = _work(opened).source.plan(dataset, planning.states, asked, opened.connections)
    left = history.state.coverage.without(() if backfill is None else stood_for(backfill, history))
    judged = _judged(opened, dataset, found, history.state, left)
    if judged is None:
        return DatasetNote(urn, Status.IDLE, "there is nothing new")
    return _bound(opened, dataset, history, found, planning, backfill, judged), judged.units


def _backfill(opened: OpenJob, dataset: Dataset, history: History, request: RunRequest, run_key: str) -> Backfill:
    """Return the backfill of a dataset.

    :raises ConfigurationError: it has no such range, or the range is covered.
    """
    urn, source, start = dataset.urn, _work(opened).source, request.start
    if dataset.extract.kind is ExtractKind.SNAPSHOT_ONLY:
        cause = "it is a snapshot, which shows its table as it is now and has no ranges"
        raise _no_ranges(urn, cause, "Run it without a range: each run publishes it anew.")
    if not isinstance(source, RangeSource):
        cause = f"its source, a {type(source).__name__}, can't say a range in its positions"
        raise _no_ranges(urn, cause, "Give the source a method `resolve`; or rewind the dataset to a position.")
    assert start is not None
    with opened.connections.redacting("backfill", f"dataset {urn!r}"):
        asked = source.resolve(dataset, RangeRequest(now(), start, request.end), opened.connections)
    if len(split(asked.low)) > 1:
        cause = f"its positions are lists, as in {asked}, and ranges of these aren't filled one by one"
        raise _no_ranges(urn, cause, "Leave it out of the backfill; a rewind takes it back to a position.")
    backfill = plan_backfill(history, asked, run_key, replace=request.replace)
    log.info("dataset %r: a backfill of %s", urn, backfill)
    return backfill


def _plan_request(opened: OpenJob, request: RunRequest, backfill: Backfill | None) -> PlanRequest:
    end = request.end if isinstance(request.end, datetime) else None
    ranges = () if backfill is None else backfill.ranges
    return PlanRequest(now(), end, _limits(opened, request), _work(opened).options, ranges)


def _check_extract(opened: OpenJob, dataset: Dataset, state: DatasetState) -> None:
    kind = dataset.extract.kind
    if _takes_all(dataset, state) and (opened.job.policy is not CommitPolicy.FULL or _work(opened).limits.any):
        raise ConfigurationError(
            operation="plan",
            subject=f"dataset {dataset.urn!r} of kind {kind.value}",
            cause="a snapshot is published whole or not at all",
            hint="Use the commit policy 'full' and no limits for it, in an ingestion of its own if need be.",
        )


def _units(opened: OpenJob, dataset: Dataset, found: DatasetPlan, state: DatasetState) -> Iterator[WorkUnit]:
    """Yield the units that a source plans, as they come.

    :raises SourceError: two share an id, one is of another dataset, or several may show different states within one load.
    """
    urn, ids, units = dataset.urn, set[str](), iter(found.units)
    alone = found.consistency is Consistency.ONE_UNIT and _takes_all(dataset, state)
    while True:
        with opened.connections.redacting("plan", f"dataset {urn!r}"):
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
                cause="it is taken whole, by several units, and its source doesn't say that these show one state of it",
                hint="The source plans one unit; or its plan says why they do: DatasetPlan(…, consistency=Consistency.…).",
            )
        yield unit


def _judged(
    opened: OpenJob, dataset: Dataset, found: DatasetPlan, state: DatasetState, coverage: Coverage
) -> JudgedPlan | None:
    """Judge a source's plan; `None` if there is nothing to do.

    :raises SourceError: the plan can't be carried out.
    """
    units = _units(opened, dataset, found, state)
    if dataset.extract.kind is not ExtractKind.SNAPSHOT_ONLY:
        return judge_plan(dataset.urn, units, found.planned, coverage)
    return judge_snapshot(dataset.urn, units, state)


def _bound(
    opened: OpenJob,
    dataset: Dataset,
    history: History,
    found: DatasetPlan,
    planning: _Planning,
    backfill: Backfill | None,
    judged: JudgedPlan,
) -> Plan:
    """Make a plan, without its units, from the source's plan and the dataset's history."""
    urn, state = dataset.urn, history.state
    outgoing = converted_schema(_work(opened).converters, _work(opened).checks, found.schema)
    published = schema.decode(state.schema) if state.schema else None
    outgoing = _work(opened).sink.schema(outgoing, published, urn)
    folder = check_folder(_work(opened).sink.folder(dataset), urn)
    check_no_link(opened.files, folder, urn)
    check_no_slot_is_lost(opened.files, opened.journal, history)
    replaced = () if backfill is None else backfill.replaces
    opened.committer.homes.check_newest(history, replaced)
    snapshot = dataset.extract.kind is ExtractKind.SNAPSHOT_ONLY
    return Plan(
        token=uuid.uuid4().hex,
        ingestion=opened.job.name,
        run_key=planning.run_key,
        generation=state.generation,
        dataset=dataset,
        folder=folder,
        units=(),
        source_schema=schema.encode(found.schema),
        schema=schema.encode(outgoing),
        planned=judged.planned,
        open_end=judged.open_end,
        replaces=tuple(sorted(state.live)) if snapshot else replaced,
        reopens=() if backfill is None else backfill.reopens,
        run=planning.request.dag_run,
        kept_from=found.kept_from,
        one_snapshot=_one_snapshot(opened, urn, found),
        provenance=planning.provenance_of(dataset),
        head=state.head,
    )


def _one_snapshot(opened: OpenJob, urn: str, found: DatasetPlan) -> bool:
    """Return whether the units of a plan are read in one snapshot.

    :raises ConfigurationError: the source has no snapshots.
    """
    if found.consistency is not Consistency.ONE_SNAPSHOT:
        return False
    check_shares_snapshots(_work(opened).source, urn)
    return True
