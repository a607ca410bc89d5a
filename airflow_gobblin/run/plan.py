"""`create_work_units`: planning every dataset from its watermark, and packing the plans."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from airflow_gobblin.errors import (
    ConfigurationError,
    GobblinError,
    NoSuchRangeError,
    OverlapError,
    PausedError,
    QuarantinedError,
    RecordError,
    StoreError,
    TargetError,
)
from airflow_gobblin.job import (
    BatchedJob,
    DatasetLike,
    DerivedWork,
    DriverWork,
    LimitedJob,
    OutlinedWork,
    RankedDataset,
    SealingJob,
)
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.limits import Load, RunLimits
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.packing import pack_datasets, pack_up_to
from airflow_gobblin.model.plan import (
    DatasetNote,
    DatasetProspect,
    HeldDatasets,
    Outline,
    PlannedAct,
    Prospect,
    RunPlan,
    Sealing,
)
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import DatasetRef, Pack, WorkUnit
from airflow_gobblin.run.dataset_plan import plan_dataset
from airflow_gobblin.run.derived import keep_inputs, restore, would_take_back
from airflow_gobblin.run.inputs import Planning, begin, with_histories
from airflow_gobblin.run.notes import keep_failure
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.recover import with_left_finished
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.run.reuse import earlier_plans, with_earlier

log = logging.getLogger(__name__)

_UNREAD = (Status.IDLE, Status.HELD)
"""The statuses in notes on datasets that no other task of the run looks at."""


def create_work_units(opened: OpenJob, request: RunRequest) -> RunPlan:
    """Plan every dataset from its watermark, and pack the plans.

    A dataset that can't be planned leaves a note, and the others go on.

    :raises SourceError: the source can't be reached.
    :raises ConfigurationError: a requested dataset doesn't exist; as `check_target`; another DAG has its name; or steps
        of it need Spark, and there is none.
    :raises TargetError: as `check_target`.
    :raises GobblinError: no dataset can be planned, and a retry may succeed.
    """
    _check_driver(opened)
    planning = begin(opened, request)
    keep_inputs(opened, request.dag_run)
    found: dict[str, DatasetRef | DatasetNote | GobblinError] = {}
    counted: dict[str, _Counted] = {}
    left: list[DatasetNote] = []
    generations: dict[str, int] = {}
    earlier = earlier_plans(opened)
    for dataset, history in with_histories(opened, planning, left):
        urn = dataset.urn
        counted[urn] = _Counted()
        if isinstance(history, History) and history.state.generation:
            generations[urn] = history.state.generation
        found[urn] = _plan(opened, dataset, history, planning, counted[urn], earlier.get(urn, ()))
    unread = [urn for urn, plan in found.items() if isinstance(plan, DatasetNote) and plan.status in _UNREAD]
    found |= _without_folders(opened, unread, planning)
    for urn, plan in found.items():
        if isinstance(plan, GobblinError) and not isinstance(plan, NoSuchRangeError | OverlapError):
            keep_failure(opened, urn, planning.run_key, Failure.of(plan))
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
    packs, waiting = _packed(opened, planned, planning, counted)
    for ref, why in waiting.items():
        if not counted[ref.urn].reuses:
            opened.staging.remove_token(ref.token)
        notes.append(_waiting(ref, why, request))
    run = RunPlan(
        uuid.uuid4().hex,
        planning.run_key,
        packs,
        tuple(notes),
        request.backfill,
        now(),
        planning.request.dag_run,
        request.flush,
        _sealing(opened, request, generations),
        versions=isinstance(opened.job.work, DerivedWork),
    )
    opened.staging.put_run(run, opened.job.work)
    opened.staging.finish_earlier_tries(run)
    _keep_held(opened, planning, notes)
    return run


def _sealing(opened: OpenJob, request: RunRequest, generations: Mapping[str, int]) -> Sealing | None:
    """Return the version that a run is to seal, if it plans everything up to it."""
    job, version = opened.job, request.version
    if not (isinstance(job, SealingJob) and job.seals) or version is None or request.backfill or request.datasets:
        return None
    if version > (clock := now()):
        log.warning(
            "version %s isn't sealed: it is in the future by this worker's clock, %s",
            version.isoformat(),
            clock.isoformat(),
        )
        return None
    return Sealing(version, generations)


def plan_again(
    opened: OpenJob, dataset: DatasetLike, history: History, planning: Planning
) -> DatasetRef | DatasetNote | GobblinError:
    """Plan a dataset again in the same run, and return where its new plan is, or why there is none."""
    planning.add(dataset.urn, history)
    return _plan(opened, dataset, history, planning, _Counted(), ())


def _keep_held(opened: OpenJob, planning: Planning, notes: Iterable[DatasetNote]) -> None:
    """Keep, for people to see, what waits for held datasets, beside what is known of those that weren't asked for.

    Forget what waited for a dataset that the source no longer has.
    """
    if not isinstance(opened.job, BatchedJob):
        return
    unreadable, known = False, dict[str, str]()
    try:
        before = opened.staging.held()
        known = {} if before is None else dict(before.details)
    except RecordError as error:  # only people read it
        log.warning("the datasets held before aren't known, and are written anew: %s", error)
        unreadable = True
    left = {dataset.urn for dataset in planning.every} - {dataset.urn for dataset in planning.datasets}
    held = {urn: known[urn] for urn in known.keys() & left}
    held |= {note.urn: note.detail for note in notes if note.status is Status.HELD}
    if held or known or unreadable:
        opened.staging.put_held(HeldDatasets(held, now()))


def _check_driver(opened: OpenJob) -> None:
    """Check that there is Spark, if steps need its driver: slots decided without it would stay pending.

    :raises ConfigurationError: there is none.
    """
    work = opened.job.work
    if isinstance(work, DriverWork) and work.needs_driver and opened.committer.runner is None:
        raise ConfigurationError(
            operation="plan",
            subject=f"a run of {opened.job.name!r}",
            cause="Spark's driver registers what it publishes, and no Spark is known here",
            hint="Run it where there is a Spark, or leave `register` out.",
        )


@dataclass
class _Counted:
    """The amount that the units of a dataset would copy.

    :param reuses: whether its plan has files that earlier runs finished.
    """

    files: int = 0
    bytes: int = 0
    weight: int = 0
    reuses: bool = False

    @classmethod
    def of(cls, units: Iterable[WorkUnit]) -> _Counted:
        counted = cls()
        for _ in counted.through(units):
            pass
        return counted

    def through(self, units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
        """Yield units, and count what they copy."""
        for unit in units:
            self.files += unit.files
            self.bytes += unit.bytes
            self.weight += unit.weight
            yield unit


def _plan(
    opened: OpenJob,
    dataset: DatasetLike,
    history: History | GobblinError,
    planning: Planning,
    counted: _Counted,
    earlier: Sequence[str],
) -> DatasetRef | DatasetNote | GobblinError:
    """Plan a dataset and return where its plan is, or why there is none.

    :param earlier: the tokens of earlier plans of it.
    """
    urn, request = dataset.urn, planning.request
    try:
        if isinstance(history, GobblinError):
            raise history
        history = restore(opened, with_left_finished(opened, history, planning), planning)
        proposed = plan_dataset(opened, dataset, history, planning)
        if isinstance(proposed, DatasetNote):
            return proposed
        plan, units = proposed
        opened.claims.check(opened.journal, urn, plan.folder, history)
        opened.committer.homes.settle(planning.tenant)
        plan, new_units = with_earlier(opened, plan, counted.through(units), earlier)
        if new_units is not None:
            opened.staging.put_plan(plan, new_units)
        counted.reuses = new_units is None or bool(plan.takes_from)
        # A covered range isn't necessarily a replaced one.
        planned = None if request.replace else plan.planned
        return DatasetRef(plan.urn, plan.token, counted.weight, planned, plan.open_end)
    except QuarantinedError as error:
        return DatasetNote(urn, Status.QUARANTINED, error.text)
    except PausedError as error:  # a backfill or a flush of a paused dataset would wait in vain
        asked = request.backfill or (request.flush and urn in request.datasets)
        return DatasetNote(urn, Status.FAILED if asked else Status.PAUSED, error.text, asked=asked)
    except Exception as error:  # a user's sink or converter may raise anything; the other datasets go on
        shown = opened.shown("plan", urn, error)
        if isinstance(shown, GobblinError):
            log.warning("dataset %r can't be planned: %s", urn, shown)
            return shown
        log.error("dataset %r can't be planned", urn, exc_info=shown)
        return GobblinError(operation="plan", subject=f"dataset {urn!r}", cause=shown, hint="See the log.")


def _without_folders(opened: OpenJob, unread: Iterable[str], planning: Planning) -> dict[str, TargetError]:
    """Return errors for datasets of which nothing is read, and whose published files are gone with their folder: no other task
    looks there.
    """
    return opened.committer.homes.without_folders(
        {urn: planning.folders[urn] for urn in unread if urn in planning.folders}
    )


def _unplanned(urn: str, error: GobblinError) -> DatasetNote:
    """Note that a dataset can't be planned. A storage error affects more datasets, and may be gone by the next try."""
    of_storage = isinstance(error, StoreError) or isinstance(error.cause, OSError)
    asked = isinstance(error, NoSuchRangeError | OverlapError)
    return DatasetNote(urn, Status.FAILED, error.text, of_storage, asked, error.remedy)


def _without_left_out(
    found: dict[str, DatasetRef | DatasetNote | GobblinError], request: RunRequest
) -> dict[str, DatasetRef | DatasetNote | GobblinError]:
    """Leave datasets that have no such range out of a backfill of all datasets, unless that is all of them."""
    out = {urn: plan for urn, plan in found.items() if isinstance(plan, NoSuchRangeError)}
    if request.datasets or len(out) == len(found):
        return found
    return found | {urn: DatasetNote(urn, Status.IDLE, f"it is left out: {error}") for urn, error in out.items()}


ReportAct = Callable[[str, PlannedAct], None]
"""A function that takes the URN of a dataset, and an act that a unit of it would do."""


def would_plan(opened: OpenJob, request: RunRequest, report: ReportAct | None = None) -> Prospect:
    """Return what `create_work_units` would plan now. Nothing is written, claimed or finished: a read-only journal is enough.

    :param report: takes each act of a mirror, as it is found: a dataset that isn't planned in the end may have some, too.
    :raises SourceError: the source can't be reached.
    :raises ConfigurationError: a requested dataset doesn't exist, or as `create_work_units`.
    :raises TargetError: as `create_work_units`.
    """
    planning = begin(opened, request)
    found = {
        dataset.urn: _would_plan(opened, dataset, history, planning, report)
        for dataset, history in with_histories(opened, planning, [])
    }
    unread = [one.urn for one in found.values() if one.status in _UNREAD]
    for urn, error in _without_folders(opened, unread, planning).items():
        found[urn] = DatasetProspect(urn, Status.FAILED, str(error), error=error)
    refs = [one.ref for one in found.values() if one.ref is not None]
    counted = {one.urn: _Counted.of(one.units) for one in found.values()}
    packs, waiting = _packed(opened, refs, planning, counted)
    for ref, why in waiting.items():
        note = _waiting(ref, why, request)
        found[ref.urn] = replace(found[ref.urn], status=note.status, detail=note.detail)
    return Prospect(tuple(found[d.urn] for d in planning.datasets), packs)


def _would_plan(
    opened: OpenJob,
    dataset: DatasetLike,
    history: History | GobblinError,
    planning: Planning,
    report: ReportAct | None,
) -> DatasetProspect:
    urn = dataset.urn
    try:
        if isinstance(history, GobblinError):
            raise history
        if history.pending is not None:
            slot = history.pending.decision.slot
            return DatasetProspect(urn, Status.PENDING, f"slot {slot} is finished first, and then it is planned")
        if taken_back := would_take_back(opened, history):
            return DatasetProspect(urn, Status.PENDING, f"{taken_back}; then it is planned")
        proposed = plan_dataset(opened, dataset, history, planning, preview=True)
        if isinstance(proposed, DatasetNote):
            return DatasetProspect(urn, proposed.status, proposed.detail)
        plan, units = proposed
        opened.claims.check_free(opened.journal, urn, plan.folder)
        outline = Outline() if isinstance(opened.job.work, OutlinedWork) else None
        slim = tuple(_outlined(opened, units, outline, None if report is None else partial(report, urn)))
        return DatasetProspect(urn, Status.PLANNED, plan=plan, units=slim, outline=outline)
    except PausedError as error:
        return DatasetProspect(urn, Status.PAUSED, str(error))
    except Exception as error:  # a user's sink or converter may raise anything
        shown = opened.shown("plan", urn, error)
        if not isinstance(shown, GobblinError):
            hint = "Fix it in its code."
            shown = GobblinError(operation="plan", subject=f"dataset {urn!r}", cause=shown, hint=hint)
        return DatasetProspect(urn, Status.FAILED, str(shown), error=shown)


def _outlined(
    opened: OpenJob, units: Iterable[WorkUnit], outline: Outline | None, report: Callable[[PlannedAct], None] | None
) -> Iterator[WorkUnit]:
    """Yield units, without the properties that an outline represents: there may be too many to keep."""
    work = opened.job.work
    if outline is None or not isinstance(work, OutlinedWork):
        yield from units
        return
    for unit in units:
        for act in work.acts(unit):
            outline.add(act)
            if report is not None:
                report(act)
        yield replace(unit, properties={})


def _packed(
    opened: OpenJob, planned: list[DatasetRef], planning: Planning, counted: Mapping[str, _Counted]
) -> tuple[tuple[Pack, ...], dict[DatasetRef, str]]:
    """Pack plans, and return the packs and the plans that have no room, each with the reason.

    Of datasets with the same priority, the one that has waited longest gets room first.
    """
    job = opened.job
    limits = job.run_limits if isinstance(job, LimitedJob) else RunLimits()
    if limits == RunLimits() and job.max_pack_weight is None:
        return pack_datasets(planned, job.max_packs), {}
    datasets = {one.urn: one for one in planning.datasets}
    ordered = _in_order(opened, planned, planning, datasets)
    out = limits.left_out(_load(datasets[ref.urn], counted[ref.urn]) for ref in ordered)
    waiting = {ref: out[ref.urn] for ref in ordered if ref.urn in out}
    inside = [ref for ref in ordered if ref.urn not in out]
    if job.max_pack_weight is None:
        return pack_datasets(inside, job.max_packs), waiting
    packs, heavy = pack_up_to(inside, job.max_packs, job.max_pack_weight)
    room = f"{many(job.max_packs, 'pack')} of at most {job.max_pack_weight:,}"
    return packs, waiting | {ref: f"its weight of {ref.weight:,} has no room in {room}" for ref in heavy}


def _in_order(
    opened: OpenJob, planned: Iterable[DatasetRef], planning: Planning, datasets: Mapping[str, DatasetLike]
) -> list[DatasetRef]:
    """Return plans in the order in which they get room.

    A run that didn't end, or couldn't publish, is known by its plan as long as that could still be decided.
    """
    never, had_room, tried = datetime.min.replace(tzinfo=UTC), opened.staging.had_room(), planning.tried

    def key(ref: DatasetRef) -> tuple[int, datetime, int, str]:
        dataset = datasets[ref.urn]
        priority = dataset.priority if isinstance(dataset, RankedDataset) else 0
        last = max(tried.get(ref.urn) or never, had_room.get(ref.urn, never))
        return -priority, last, -ref.weight, ref.urn

    return sorted(planned, key=key)


def _load(dataset: DatasetLike, counted: _Counted) -> Load:
    whole = dataset.dataset if isinstance(dataset, RankedDataset) else dataset.urn
    return Load(dataset.urn, whole, counted.files, counted.bytes)


def _waiting(ref: DatasetRef, why: str, request: RunRequest) -> DatasetNote:
    """Note that a dataset has no room in a run. A range of a backfill isn't left to another run."""
    if request.backfill:
        return DatasetNote(ref.urn, Status.FAILED, f"{why}: it waits for those of this run")
    return DatasetNote(ref.urn, Status.WAITING, f"{why}: the next run takes it before those that had room")
