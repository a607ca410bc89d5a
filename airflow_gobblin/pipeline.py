"""The stages of a run, without Airflow and without Spark: what the operators call, what the tests kill.

    verify_recover → create_work_units → (extract → write_commit_steps → execute_commit_steps) per pack → finish

Each stage may be killed, run again, or run twice at once; nothing passes between them but the journal, staging, and a small
reference.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice

from airflow_gobblin import reporting, schema, wire
from airflow_gobblin.backfill import Backfill, plan_backfill
from airflow_gobblin.claims import Claims, check_folder
from airflow_gobblin.commit import Committer, Proposal, can_win, check_goes_on, check_holds, stood_for
from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.errors import (
    AlreadyCoveredError,
    ClaimError,
    ConfigurationError,
    GobblinError,
    LostRaceError,
    NoSuchRangeError,
    OverlapError,
    PausedError,
    QuarantinedError,
    RecordError,
    SourceError,
    StepError,
    StepLostError,
    StoreError,
)
from airflow_gobblin.extraction import converted_schema
from airflow_gobblin.files import Files, at_a_glance, open_files
from airflow_gobblin.guarded import GuardedConnections
from airflow_gobblin.home import Tenant
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal import History, Journal, Note, NoteKind, OutcomeState, Slot, now
from airflow_gobblin.manifest import Ages, check_no_slot_is_lost, put_manifests
from airflow_gobblin.naming import dataset_key, many, near
from airflow_gobblin.packing import pack_datasets, pack_up_to
from airflow_gobblin.plan import (
    DatasetNote,
    DatasetProspect,
    FinishedRun,
    Plan,
    Prospect,
    RunPlan,
    is_met,
    known_ranges,
)
from airflow_gobblin.policy import CommitPolicy, publishable, reconciled
from airflow_gobblin.reporting import DatasetReport
from airflow_gobblin.source_plans import JudgedPlan, judge_plan, judge_snapshot
from airflow_gobblin.sources.base import (
    Bound,
    Connections,
    Consistency,
    DatasetPlan,
    PlanRequest,
    RangeRequest,
    RangeSource,
)
from airflow_gobblin.sources.snapshots import check_shares_snapshots
from airflow_gobblin.staging import PlanResults, Staging, batched, check_no_link, staging_folder
from airflow_gobblin.state import DatasetState
from airflow_gobblin.sweeping import Sweeper
from airflow_gobblin.trimming import trim, worth_trimming
from airflow_gobblin.watermark import Json, Watermark, highest, lowest, split
from airflow_gobblin.work import (
    Dataset,
    DatasetRef,
    ExtractKind,
    Limits,
    Pack,
    UnitResult,
    UnitSummary,
    WorkUnit,
    summarize,
)

log = logging.getLogger(__name__)

_STATES_KEPT = 1000
_NAMED = 20
_TO_EXTRACT = "See the log of its extract; once that is mended, clear it with its downstream tasks"
_SOUGHT = 3


@dataclass(frozen=True)
class RunRequest:
    """What a run asks for.

    Without a start it plans whatever is not covered up to its end: so a scheduled run fills what earlier ones left, too. With
    one it is a backfill: it plans its range, [start, end), and nothing else.

    :param dag_run: what names the run, for its run key: the DAG's id and the run's.
    :param end: the end of its data interval, or of its range; `None`: up to now.
    :param datasets: only these URNs; empty for all.
    :param start: where its range begins. :param replace: whether what is published of its range is replaced; else it is refused
        where a part of it is covered.
    :param request: any text, which tells it from a request of the same DAG run for the same: so that it is carried out again.
    :raises ConfigurationError: the range is empty or none, or there is nothing to replace.
    """

    dag_run: str
    end: Bound | None = None
    datasets: tuple[str, ...] = ()
    start: Bound | None = None
    replace: bool = False
    request: str = ""

    def __post_init__(self) -> None:
        start, end = self.start, self.end
        if start is None and (self.replace or isinstance(end, int)):
            raise self._refused("there is no start", "Give the range that is meant, from start to end.")
        if start is not None and end is not None:
            if isinstance(start, int) is not isinstance(end, int):
                raise self._refused(
                    f"its start {start} and its end {end} can't be compared",
                    "Give both as points in time, or both as integers.",
                )
            if not start < end:  # type: ignore[operator]
                raise self._refused(
                    f"its start {start} is not before its end {end}", "Give the earlier one as the start."
                )

    @property
    def dag(self) -> str:
        """The DAG's id, if it says one."""
        return self.dag_run.rpartition("/")[0]

    @property
    def backfill(self) -> bool:
        """Whether it is for a range."""
        return self.start is not None

    def run_key(self, ingestion: str) -> str:
        """What makes a request the same request when it is retried."""
        asked: dict[str, Json] = {"end": _json(self.end), "datasets": [*sorted(self.datasets)]}
        if self.backfill:
            asked |= {"start": _json(self.start), "replace": self.replace}
        if self.request:
            asked["request"] = self.request
        return wire.digest(wire.canonical({"ingestion": ingestion, "dag_run": self.dag_run, "asked": asked}))[:32]

    def _refused(self, cause: str, hint: str) -> ConfigurationError:
        return ConfigurationError(operation="use", subject=f"the range of run {self.dag_run!r}", cause=cause, hint=hint)


def _json(bound: Bound | None) -> Json:
    return bound.isoformat() if isinstance(bound, datetime) else bound


class States(Mapping[str, DatasetState]):
    """The state of every dataset of an ingestion, by URN: each is read when it is looked at, and a bounded number kept."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, DatasetState] = {}

    def add(self, urn: str, history: History | GobblinError) -> None:
        """What is known already of a dataset; one that can't be read has no state."""
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


class Pipeline:
    """The stages of an ingestion's runs.

    :param connections: where the source's secrets come from.
    :param files: the file system under the target root, if it isn't the one the sink names.
    """

    def __init__(
        self, ingestion: Ingestion, journal: Journal, connections: Connections, files: Files | None = None
    ) -> None:
        self.ingestion = ingestion
        self.journal = journal
        self._connections = GuardedConnections(connections)
        self.files = files if files is not None else open_files(ingestion.sink.target, self._connections)
        self.staging = Staging(self.files, staging_folder(journal.ingestion, journal.id))
        self.committer = Committer(
            journal,
            self.files,
            attempts=ingestion.attempts,
            retention=ingestion.retention,
            age=Ages(self.files, journal),
            redactor=self._connections.redactor,
        )
        self._claims = Claims(self.files)
        self.recovered: list[DatasetReport] = []
        """What earlier runs left and was finished here."""

    def check_target(self) -> None:
        """Make sure that the target is the one that the journal's slots are published to, before anything rests on it.

        :raises TargetError: it is empty, not mounted, not shared, or another one. :raises ConfigurationError: the slots are
            published to another root.
        """
        self.committer.homes.check()

    # verify_recover

    def verify_recover(self, request: RunRequest) -> tuple[DatasetReport, ...]:
        """Finish what earlier runs decided and left, of all datasets of the journal.

        A dataset that can't be recovered stands still, and the others go on. Only what may be unfinished is read.

        :raises TargetError: and ConfigurationError: as `check_target`.
        """
        self.check_target()
        run_key = request.run_key(self.ingestion.name)
        reports = []
        for dataset, history in self.journal.histories(worth=lambda keys: keys.may_be_pending):
            if isinstance(history, GobblinError):
                reports.append(DatasetReport(dataset, "failed", str(history)))
            elif history.pending is not None:
                reports.append(self._recover(history.urn, run_key))
        return tuple(reports)

    def _recover(self, urn: str, run_key: str) -> DatasetReport:
        try:
            return self._finish_left(urn, run_key) or DatasetReport(urn, "idle", "nothing was pending")
        except QuarantinedError as error:
            return DatasetReport(urn, "quarantined", str(error))
        except Exception as error:
            return self._failed("recover", urn, error)

    def _finish_left(self, urn: str, run_key: str) -> DatasetReport | None:
        slot = self.committer.recover(urn, run_key)
        if slot is None:
            return None
        detail = f"slot {slot.decision.slot}, which an earlier run left, is done"
        self.recovered.append(reporting.published(slot, "recovered", detail, self.journal.state(urn)))
        return self.recovered[-1]

    # create_work_units

    def create_work_units(self, request: RunRequest) -> RunPlan:
        """Plan every dataset from its watermark, and pack the plans.

        A dataset that can't be planned leaves a note, and the others go on.

        :raises SourceError: the source can't be reached. :raises ConfigurationError: a dataset was asked for that isn't there.
        :raises GobblinError: what keeps every single dataset from being planned, if a retry may heal it.
        :raises TargetError: and ConfigurationError: as `check_target`, or another DAG has the ingestion's name.
        """
        self.committer.homes.check(self._tenant(request))
        run_key = request.run_key(self.ingestion.name)
        every = self._datasets(request)
        datasets = [d for d in every if not request.datasets or d.urn in request.datasets]
        found: dict[str, DatasetRef | DatasetNote | GobblinError] = {}
        left: list[DatasetNote] = []
        states, tried = States(self.journal), dict[str, datetime | None]()
        for dataset, history in self._with_histories(datasets, every, left):
            states.add(dataset.urn, history)
            tried[dataset.urn] = history.tried if isinstance(history, History) else None
            plan = found[dataset.urn] = self._plan(dataset, history, states, request, run_key)
            if isinstance(plan, GobblinError) and not isinstance(plan, NoSuchRangeError | OverlapError):
                self._keep_failure(dataset.urn, run_key, str(plan))
        found = _without_left_out(found, request)
        errors = [plan for plan in found.values() if isinstance(plan, GobblinError)]
        if errors and len(errors) == len(datasets) and all(error.retryable for error in errors):
            raise errors[0]  # no database, no disk: nothing was planned, and the whole stage is worth a retry
        notes = [] if request.datasets else left
        planned: list[DatasetRef] = []
        for dataset in datasets:
            answer = found[dataset.urn]
            if isinstance(answer, DatasetRef):
                planned.append(answer)
            else:
                notes.append(_unplanned(dataset.urn, answer) if isinstance(answer, GobblinError) else answer)
        packs, waiting = self._packed(planned, tried)
        for ref in waiting:
            self.staging.remove_token(ref.token)
            notes.append(self._waiting(ref, request))
        run = RunPlan(uuid.uuid4().hex, run_key, packs, tuple(notes), request.backfill)
        self.staging.put_run(run, replace(self.ingestion.job, limits=self._limits(request)))
        self.staging.finish_earlier_tries(run)
        return run

    def _tenant(self, request: RunRequest) -> Tenant:
        return Tenant(request.dag, self.ingestion.source_identity)

    def _limits(self, request: RunRequest) -> Limits:
        """What is replaced is replaced whole: without limits."""
        return Limits() if request.replace else self.ingestion.limits

    def _with_histories(
        self, datasets: Iterable[Dataset], every: Iterable[Dataset], left: list[DatasetNote]
    ) -> Iterator[tuple[Dataset, History | GobblinError]]:
        """Each dataset with its history, by one listing, few of them in memory at once.

        :param every: all that the source has. :param left: gets a note for each other one that an earlier run left unfinished.
        """
        wanted = {dataset_key(d.urn): d for d in datasets}
        of_source = {dataset_key(d.urn) for d in every}
        names = {key: dataset.urn for key, dataset in wanted.items()}
        for key, history in self.journal.histories(
            names, lambda keys: keys.dataset in names or (keys.may_be_pending and keys.dataset not in of_source)
        ):
            if key in wanted:
                yield wanted.pop(key), history
            elif key not in of_source and isinstance(history, History) and history.pending is not None:
                left.append(reporting.left_behind(history, history.pending))
        for dataset in wanted.values():
            yield dataset, History(dataset.urn)

    def _datasets(self, request: RunRequest) -> tuple[Dataset, ...]:
        """All datasets of the source, which has those that are asked for, each under a key of its own."""
        with self._connections.scrubbing("plan", f"ingestion {self.ingestion.name!r}"):
            datasets = tuple(self.ingestion.source.datasets(self._connections))
        keys: dict[str, str] = {}
        for dataset in datasets:
            key = dataset_key(dataset.urn)
            if key in keys:
                raise ConfigurationError(
                    operation="plan",
                    subject=f"dataset {dataset.urn!r}",
                    cause="the source names it twice"
                    if keys[key] == dataset.urn
                    else f"its key is {keys[key]!r}'s, too",
                    hint="Give each dataset of the source a URN of its own.",
                )
            keys[key] = dataset.urn
        unknown = sorted(set(request.datasets) - {d.urn for d in datasets})
        if unknown:
            raise _unknown(unknown, sorted(d.urn for d in datasets))
        return datasets

    def _plan(
        self,
        dataset: Dataset,
        history: History | GobblinError,
        states: States,
        request: RunRequest,
        run_key: str,
    ) -> DatasetRef | DatasetNote | GobblinError:
        """Where the plan of a dataset is; or why there is none."""
        urn = dataset.urn
        try:
            if isinstance(history, GobblinError):
                raise history
            if history.pending is not None:
                self._finish_left(urn, run_key)
                history = self.journal.history(urn)
                states.add(urn, history)
            proposed = self._proposed(dataset, history, states, request, run_key)
            if isinstance(proposed, DatasetNote):
                return proposed
            plan, units = proposed
            self._claims.check(self.journal, urn, plan.folder, history.state)
            self.committer.homes.settle(self._tenant(request))
            weight = self.staging.put_plan(plan, units)
            # That a range is covered says nothing of whether it was replaced.
            planned = None if request.replace else plan.planned
            return DatasetRef(plan.urn, plan.token, weight, planned, plan.open_end)
        except QuarantinedError as error:
            return DatasetNote(urn, "quarantined", str(error))
        except PausedError as error:  # who asks for a range of it waits in vain
            return DatasetNote(urn, "failed" if request.backfill else "paused", str(error), asked=request.backfill)
        except Exception as error:  # a user's sink or converter may raise anything; the other datasets go on
            shown = self._shown("plan", urn, error)
            if isinstance(shown, GobblinError):
                log.warning("dataset %r can't be planned: %s", urn, shown)
                return shown
            log.error("dataset %r can't be planned", urn, exc_info=shown)
            return GobblinError(operation="plan", subject=f"dataset {urn!r}", cause=shown, hint="See the log.")

    def _failed(self, operation: str, urn: str, error: Exception) -> DatasetReport:
        """What a stage says of a dataset that it can't go on with; nothing of it is secret."""
        return reporting.failed(operation, urn, self._shown(operation, urn, error))

    def _shown(self, operation: str, urn: str, error: Exception) -> Exception:
        """An error as it may be shown. One of somebody else's code is worth a retry."""
        return self._connections.redactor.without_secrets(error, operation, f"dataset {urn!r}", StepError)

    def would_plan(self, request: RunRequest) -> Prospect:
        """Say what `create_work_units` would plan now. Nothing is written, claimed or finished: a journal to be read is enough.

        :raises SourceError: the source can't be reached. :raises ConfigurationError: a dataset was asked for that isn't there.
        :raises TargetError: and ConfigurationError: as `create_work_units`.
        """
        self.committer.homes.check(self._tenant(request))
        run_key = request.run_key(self.ingestion.name)
        every = self._datasets(request)
        datasets = [d for d in every if not request.datasets or d.urn in request.datasets]
        states, found = States(self.journal), dict[str, DatasetProspect]()
        tried: dict[str, datetime | None] = {}
        for dataset, history in self._with_histories(datasets, every, []):
            states.add(dataset.urn, history)
            tried[dataset.urn] = history.tried if isinstance(history, History) else None
            found[dataset.urn] = self._would_plan(dataset, history, states, request, run_key)
        refs = [one.ref for one in found.values() if one.ref is not None]
        packs, waiting = self._packed(refs, tried)
        for ref in waiting:
            note = self._waiting(ref, request)
            found[ref.urn] = replace(found[ref.urn], status=note.status, detail=note.detail)
        return Prospect(tuple(found[d.urn] for d in datasets), packs)

    def _would_plan(
        self, dataset: Dataset, history: History | GobblinError, states: States, request: RunRequest, run_key: str
    ) -> DatasetProspect:
        urn = dataset.urn
        try:
            if isinstance(history, GobblinError):
                raise history
            if history.pending is not None:
                slot = history.pending.decision.slot
                return DatasetProspect(urn, "pending", f"slot {slot} is finished first, and then it is planned")
            proposed = self._proposed(dataset, history, states, request, run_key)
            if isinstance(proposed, DatasetNote):
                return DatasetProspect(urn, proposed.status, proposed.detail)
            plan, units = proposed
            self._claims.check_free(self.journal, urn, plan.folder)
            return DatasetProspect(urn, "planned", plan=plan, units=tuple(units))
        except PausedError as error:
            return DatasetProspect(urn, "paused", str(error))
        except Exception as error:  # a user's sink or converter may raise anything
            told = self._shown("plan", urn, error)
            if not isinstance(told, GobblinError):
                hint = "Mend it in its code."
                told = GobblinError(operation="plan", subject=f"dataset {urn!r}", cause=told, hint=hint)
            return DatasetProspect(urn, "failed", str(told), error=told)

    def _packed(
        self, planned: list[DatasetRef], tried: Mapping[str, datetime | None]
    ) -> tuple[tuple[Pack, ...], tuple[DatasetRef, ...]]:
        """Plans in packs, and those that have no room.

        :param tried: when a run last tried to publish something of each: the one that waits longest has room first.
        """
        most = self.ingestion.max_pack_weight
        if most is None:
            return pack_datasets(planned, self.ingestion.max_packs), ()
        never = datetime.min.replace(tzinfo=UTC)
        ordered = sorted(planned, key=lambda ref: (tried.get(ref.urn) or never, -ref.weight, ref.urn))
        return pack_up_to(ordered, self.ingestion.max_packs, most)

    def _waiting(self, ref: DatasetRef, request: RunRequest) -> DatasetNote:
        """What is said of a dataset that has no room in a run. A range of it is no other run's."""
        packs = many(self.ingestion.max_packs, "pack")
        why = f"its weight of {ref.weight:,} has no room in {packs} of at most {self.ingestion.max_pack_weight:,}"
        if request.backfill:
            return DatasetNote(ref.urn, "failed", f"{why}: it waits for those of this run")
        return DatasetNote(ref.urn, "waiting", f"{why}: the next run takes it before those that had room")

    def _proposed(
        self, dataset: Dataset, history: History, states: States, request: RunRequest, run_key: str
    ) -> tuple[Plan, Iterable[WorkUnit]] | DatasetNote:
        """The plan of a dataset that has nothing pending, with its units, or why there is none. Nothing is written."""
        urn = dataset.urn
        answer = history.answer(run_key)
        if answer is not None:
            return DatasetNote(urn, "committed", f"already committed in {reporting.said(answer)}")
        check_goes_on(history)
        self._check_extract(dataset, history.state)
        _check_kind(dataset, history)
        backfill = self._backfill(dataset, history, request, run_key) if request.backfill else None
        if backfill is not None and not backfill.ranges:
            return DatasetNote(urn, "idle", f"this run covered range {backfill.asked} already")
        with self._connections.scrubbing("plan", f"dataset {urn!r}"):
            asked = self._plan_request(request, backfill)
            found = self.ingestion.source.plan(dataset, states, asked, self._connections)
        left = history.state.coverage
        for gone in () if backfill is None else stood_for(backfill, history):
            left = left.remove(gone)
        judged = self._judged(dataset, found, history.state, left)
        if judged is None:
            return DatasetNote(urn, "idle", "there is nothing new")
        return self._bound(dataset, history, found, request, backfill, judged), judged.units

    def _backfill(self, dataset: Dataset, history: History, request: RunRequest, run_key: str) -> Backfill:
        """What a backfill comes to for a dataset. :raises ConfigurationError: it has no such range, or that is covered."""
        urn, source, start = dataset.urn, self.ingestion.source, request.start
        if dataset.extract.kind is ExtractKind.SNAPSHOT_ONLY:
            cause = "it is a snapshot, which shows its table as it is now and has no ranges"
            raise _no_ranges(urn, cause, "Run it without a range: each run publishes it anew.")
        if not isinstance(source, RangeSource):
            cause = f"its source, a {type(source).__name__}, can't say a range in its positions"
            raise _no_ranges(urn, cause, "Give the source a method `resolve`; or rewind the dataset to a position.")
        assert start is not None
        with self._connections.scrubbing("backfill", f"dataset {urn!r}"):
            asked = source.resolve(dataset, RangeRequest(now(), start, request.end), self._connections)
        if len(split(asked.low)) > 1:
            cause = f"its positions are lists, as in {asked}, and ranges of these aren't filled one by one"
            raise _no_ranges(urn, cause, "Leave it out of the backfill; a rewind takes it back to a position.")
        backfill = plan_backfill(history, asked, run_key, replace=request.replace)
        log.info("dataset %r: a backfill of %s", urn, backfill)
        return backfill

    def _plan_request(self, request: RunRequest, backfill: Backfill | None) -> PlanRequest:
        end = request.end if isinstance(request.end, datetime) else None
        ranges = () if backfill is None else backfill.ranges
        return PlanRequest(now(), end, self._limits(request), self.ingestion.options, ranges)

    def _check_extract(self, dataset: Dataset, state: DatasetState) -> None:
        kind = dataset.extract.kind
        if _takes_all(dataset, state) and (self.ingestion.policy is not CommitPolicy.FULL or self.ingestion.limits.any):
            raise ConfigurationError(
                operation="plan",
                subject=f"dataset {dataset.urn!r} of kind {kind.value}",
                cause="a snapshot is published whole or not at all",
                hint="Use the commit policy 'full' and no limits for it, in an ingestion of its own if need be.",
            )

    def _units(self, dataset: Dataset, found: DatasetPlan, state: DatasetState) -> Iterator[WorkUnit]:
        """The units that a source plans, as they come.

        :raises SourceError: two share an id, or one is of another dataset; or they may show several states of what is one load.
        """
        urn, ids, units = dataset.urn, set[str](), iter(found.units)
        alone = found.consistency is Consistency.ONE_UNIT and _takes_all(dataset, state)
        while True:
            with self._connections.scrubbing("plan", f"dataset {urn!r}"):
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
        self, dataset: Dataset, found: DatasetPlan, state: DatasetState, coverage: Coverage
    ) -> JudgedPlan | None:
        """What a source plans, judged; `None` where there is nothing to do. :raises SourceError: it can't be carried out."""
        units = self._units(dataset, found, state)
        if dataset.extract.kind is not ExtractKind.SNAPSHOT_ONLY:
            return judge_plan(dataset.urn, units, found.planned, coverage)
        units = judge_snapshot(dataset.urn, units)
        first = next(units, None)
        return None if first is None else JudgedPlan(chain([first], units))

    def _bound(
        self,
        dataset: Dataset,
        history: History,
        found: DatasetPlan,
        request: RunRequest,
        backfill: Backfill | None,
        judged: JudgedPlan,
    ) -> Plan:
        """A plan, but for its units, from what the source plans and what stands."""
        urn, state = dataset.urn, history.state
        outgoing = converted_schema(self.ingestion.converters, self.ingestion.checks, found.schema)
        published = schema.decode(state.schema) if state.schema else None
        outgoing = self.ingestion.sink.schema(outgoing, published, urn)
        folder = check_folder(self.ingestion.sink.folder(dataset), urn)
        check_no_link(self.files, folder, urn)
        check_no_slot_is_lost(self.files, self.journal, history)
        snapshot = dataset.extract.kind is ExtractKind.SNAPSHOT_ONLY
        replaced = () if backfill is None else backfill.replaces
        return Plan(
            token=uuid.uuid4().hex,
            ingestion=self.ingestion.name,
            run_key=request.run_key(self.ingestion.name),
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
            run=request.dag_run,
            kept_from=found.kept_from,
            one_snapshot=self._one_snapshot(urn, found),
        )

    def _one_snapshot(self, urn: str, found: DatasetPlan) -> bool:
        """Whether the units of a plan are read in one snapshot. :raises ConfigurationError: the source has none."""
        if found.consistency is not Consistency.ONE_SNAPSHOT:
            return False
        check_shares_snapshots(self.ingestion.source, urn)
        return True

    # extract

    def missing_units(self, pack: Pack) -> Iterator[tuple[Plan, WorkUnit]]:
        """The units of a pack that have no result and are still wanted: their plan is undecided and can win."""
        for ref in pack.datasets:
            try:
                plan = self.staging.plan(ref.token)
                if plan is not None and can_win(plan, self.journal.history(ref.urn)):
                    yield from ((plan, unit) for unit, done in self.staging.units_done(plan) if not done)
            except (RecordError, LostRaceError) as error:  # as write_commit_steps will say; and the others go on
                log.warning("dataset %r is not extracted: %s", ref.urn, error)

    def decided(self, pack: Pack, most: int) -> Iterator[DatasetReport]:
        """What the journal says of the datasets of a pack that have a slot; only of so many, the first."""
        for ref in islice(pack.datasets, most):
            try:
                history = self.journal.history(ref.urn)
            except GobblinError as error:
                yield reporting.failed("look up", ref.urn, error)
                continue
            slot = history.by_token(ref.token)
            if slot is not None:
                pending = f"{reporting.said(slot)} is decided, and not finished"
                yield reporting.already(slot, history) if slot.finished else DatasetReport(ref.urn, "pending", pending)

    # write_commit_steps

    def write_commit_steps(self, run: RunPlan, pack: Pack) -> tuple[DatasetReport, ...]:
        """Apply the commit policy to the results of each dataset that stand, and decide its slot.

        From here on the run is bound to publish exactly this.

        :raises TargetError: and ConfigurationError: as `check_target`.
        """
        self.check_target()
        return tuple(self._write(ref, run.run_key) for ref in pack.datasets)

    def _write(self, ref: DatasetRef, run_key: str) -> DatasetReport:
        try:
            plan = self.staging.plan(ref.token)
            if plan is None:
                return self._swept(ref, run_key, self.journal.history(ref.urn))
            history = self.journal.history(ref.urn)
            slot = history.by_token(ref.token)
            if slot is None:
                check_goes_on(history)
                check_holds(plan, known_ranges(plan, self.staging.units(plan)), history)
                check_no_link(self.files, plan.folder, plan.urn)
                # A drop may have come to its end since.
                if self._claims.check(self.journal, plan.urn, plan.folder, history.state):
                    log.warning(
                        "dataset %r: the claim on its folder was released since it was planned; it is claimed anew",
                        ref.urn,
                    )
                decided = self._decide(plan)
                if isinstance(decided, DatasetReport):
                    return decided
                slot = self._with_claim(decided, plan)
            if slot.finished and not slot.done:
                return reporting.given_up(slot, self.journal.history(ref.urn))
            status = "committed" if slot.done else "pending"
            return reporting.published(
                slot, status, f"slot {slot.decision.slot} is decided", self.journal.state(ref.urn)
            )
        except Exception as error:
            report = self._failed("write the commit steps of", ref.urn, error)
            if not isinstance(error, LostRaceError | PausedError):
                self._keep_failure(ref.urn, run_key, report.detail)
            return report

    def _with_claim(self, slot: Slot, plan: Plan) -> Slot:
        """A slot that was just decided, if its folder is still the dataset's: somebody may have released the claim meanwhile.

        :raises ClaimError: the folder is another's by now; the slot was abandoned.
        """
        if slot.finished or slot.decision.token != plan.token:
            return slot
        try:
            self._claims.check(self.journal, plan.urn, plan.folder, self.journal.state(plan.urn))
        except ClaimError as error:
            self.journal.put_outcome(slot, OutcomeState.ABANDONED, plan.run_key, reason=str(error))
            self.committer.clean(self.journal.history(plan.urn), plan.run_key)
            raise
        return slot

    def _decide(self, plan: Plan) -> Slot | DatasetReport:
        try:
            return self._decide_from(plan, PlanResults(self.staging, plan, checked=False))
        except StepLostError:  # files of a result are gone: another result may stand, or the unit has none
            return self._decide_from(plan, PlanResults(self.staging, plan, checked=True))

    def _decide_from(self, plan: Plan, results: PlanResults) -> Slot | DatasetReport:
        policy = CommitPolicy.FULL if plan.replaces or plan.reopens else self.ingestion.policy
        units = publishable(policy, tuple(self._summaries(plan, results)))
        proposal = Proposal(plan, units, self.staging.token_folder(plan.token))
        if proposal.published:
            return self.committer.decide(
                proposal,
                lambda: results.of(proposal.published),
                lambda chosen: self.ingestion.sink.publish(plan, chosen, at_a_glance(self.files, plan.folder)),
            )
        history = self.journal.history(plan.urn)
        if (slot := history.by_token(plan.token)) is not None:
            return slot
        known = known_ranges(plan, self.staging.units(plan))
        check_holds(plan, known, history)  # results may be gone because staging that can win no more was swept
        self._keep_unpublished(plan, units)
        return reporting.unpublished(plan.urn, units)

    def _summaries(self, plan: Plan, results: PlanResults) -> Iterator[UnitSummary]:
        """A summary of every unit; a result is not kept for it."""
        failed: dict[str, UnitResult] | None = None
        for some in batched(self.staging.units(plan)):
            units = {unit.id: unit for unit in some}
            found = {r.unit: summarize(units[r.unit], reconciled(r)) for r in results.read(units)}
            if len(found) < len(some) and failed is None:
                failed = self.staging.failed_results(plan.token)
            yield from (found.get(unit.id) or summarize(unit, (failed or {}).get(unit.id)) for unit in some)

    def _keep_unpublished(self, plan: Plan, units: tuple[UnitSummary, ...]) -> None:
        history = self.journal.history(plan.urn)
        slot = history.slots[-1] if history.slots else None
        notes = slot.notes if slot else history.early_notes
        note = Note(NoteKind.UNPUBLISHED, plan.run_key, now(), token=plan.token, units=units)
        last = next((n for n in reversed(notes) if n.says is NoteKind.UNPUBLISHED), None)
        if last is None or (last.token, last.units) != (note.token, note.units):
            self.journal.put_note(plan.urn, slot.decision.slot if slot else 0, note)

    def _keep_failure(self, urn: str, run_key: str, why: str) -> None:
        """Note why a dataset failed that was never published: no slot tells of it. The same failure again is not noted."""
        try:
            history = self.journal.history(urn)
            if history.published or history.pending is not None or history.failure == why:
                return
            self.journal.put_note(urn, history.state.head, Note(NoteKind.UNPUBLISHED, run_key, now(), why))
        except GobblinError:  # what keeps it from being noted may be what failed
            log.warning("that dataset %r failed can't be noted in its journal", urn, exc_info=True)

    def _swept(self, ref: DatasetRef, run_key: str, history: History) -> DatasetReport:
        """What to say of a plan whose staging is gone: it was done, or could win no more."""
        slot = history.by_token(ref.token) or history.answer(run_key)
        if slot is None and ref.planned is not None and is_met(ref.planned, ref.open_end, history.state.coverage):
            return reporting.covered(ref.urn, ref.planned, history, ref.open_end)
        if slot is None:
            head = history.state.head
            newest = f": the newest slot is {history.slot(head).named}" if head else ""
            return DatasetReport(
                ref.urn,
                "lost",
                f"its plan could win no more and was swept{newest}; nothing was published by it. "
                "Clear create_work_units to plan anew.",
            )
        return reporting.already(slot, history)

    # execute_commit_steps

    def execute_commit_steps(self, run: RunPlan, pack: Pack) -> tuple[DatasetReport, ...]:
        """Carry out what is decided for the datasets of a pack. Always safe to do again.

        :raises TargetError: and ConfigurationError: as `check_target`.
        """
        self.check_target()
        return tuple(self._execute(ref, run.run_key) for ref in pack.datasets)

    def _execute(self, ref: DatasetRef, run_key: str) -> DatasetReport:
        try:
            history = self.journal.history(ref.urn)
            slot = history.by_token(ref.token) or history.answer(run_key)
            if slot is None:
                return DatasetReport(ref.urn, "skipped", "nothing is decided for it in this run")
            if slot.finished:
                return reporting.already(slot, history)
            done = self.committer.execute(slot, run_key)
            history = self.journal.history(ref.urn)
            put_manifests(self.files, self.journal, history)
            return reporting.published(done, "committed", f"committed in slot {slot.decision.slot}", history.state)
        except Exception as error:
            if isinstance(error, GobblinError) and not isinstance(error, LostRaceError):
                self.committer.count_failure(ref.urn, run_key, error)
            return self._failed("execute the commit steps of", ref.urn, error)

    # finish

    def finish(self, run: RunPlan) -> tuple[DatasetReport, ...]:
        """Sweep staging that can no longer win, clean up, and report every dataset of the run.

        :return: a report per dataset; raise `incomplete(…)` for what isn't as the policy wants it.
        :raises TargetError: and ConfigurationError: as `check_target`.
        """
        self.check_target()
        refs = {dataset_key(ref.urn): ref for pack in run.packs for ref in pack.datasets}
        final: dict[str, DatasetReport] = {}
        watermarks: dict[str, Watermark | None] = {}
        pending: set[str] = set()
        names = {key: ref.urn for key, ref in refs.items()}
        before = self.staging.finished_run(run.run) or FinishedRun()
        for key, found in self.journal.histories(names):  # those that the source has no more, too
            if key in refs:
                report = self._final(refs[key], run.run_key, found, before)
                # Of a backfill nothing waits for the next run: it has failed.
                late = run.backfill and report.status == "paused"
                final[key] = replace(report, status="failed") if late else report
            if isinstance(found, History):
                watermarks[key] = found.state.watermark
                if found.pending is not None:
                    pending.add(key)
                self._tidy(found, run.run_key)
            else:
                log.warning("dataset %r can't be cleaned up: %s", key, found)
        notes = (reporting.noted(note, unfinished=dataset_key(note.urn) in pending) for note in run.notes)
        reports = (
            final.get(key) or self._final(ref, run.run_key, History(ref.urn), before) for key, ref in refs.items()
        )
        told = tuple(
            report
            if report.watermark is not None
            else replace(report, watermark=watermarks.get(dataset_key(report.urn)))
            for report in chain(notes, reports)
        )
        done = (ref.token for key, ref in refs.items() if key in final and final[key].status == "committed")
        self.staging.finish_run(run.run, done)
        self.sweep(keep=run.run)
        return told

    def _final(
        self, ref: DatasetRef, run_key: str, history: History | GobblinError, before: FinishedRun
    ) -> DatasetReport:
        """What became of a dataset. :param before: what was done already when the run was reported first."""
        try:
            if isinstance(history, GobblinError):
                raise history
            slot = history.by_token(ref.token) or history.answer(run_key)
            if slot is not None:
                report = reporting.final(slot, history)
                return reporting.already(slot, history) if slot.done and ref.token in before.done else report
            plan = self.staging.plan(ref.token)
            if plan is None:
                return self._swept(ref, run_key, history)
            check_goes_on(history)
            try:
                check_holds(plan, known_ranges(plan, self.staging.units(plan)), history)
            except AlreadyCoveredError:
                assert plan.planned is not None
                return reporting.covered(ref.urn, plan.planned, history, plan.open_end, besides=plan.replaces)
            units = [*_unpublished(history, ref.token)]
            return reporting.unpublished(ref.urn, units, _TO_EXTRACT, reporting.no_progress(history))
        except Exception as error:
            return self._failed("finish", ref.urn, error)

    def answered(self, request: RunRequest, keys: Collection[str] = ()) -> tuple[DatasetReport, ...]:
        """What the journal says of a request whose plan was swept: the datasets that were committed for it.

        One whose records can't be read may have nothing to do with the request: where it is torn, it fails only if it is named.

        :param keys: only the datasets of these keys; by default those that the request names, or all.
        """
        run_key = request.run_key(self.ingestion.name)
        named = {*keys} or {dataset_key(urn) for urn in request.datasets}
        reports = []
        for key, history in self.journal.histories(worth=lambda found: not named or found.dataset in named):
            if named and key not in named:
                continue
            if isinstance(history, History):
                if (slot := history.answer(run_key)) is not None:
                    reports.append(reporting.already(slot, history))
            elif named or history.retryable:
                reports.append(DatasetReport(key, "failed", str(history), retryable=history.retryable))
            else:
                log.warning("dataset %r can't be read, and is left out: %s", key, history)
        return tuple(reports)

    def answered_range(self, urn: str, request: RunRequest) -> tuple[int, Range | None] | None:
        """The dataset's newest slot, and the range that was published for a request and still is; a snapshot has no range."""
        history = self.journal.history(urn)
        slot = history.answer(request.run_key(self.ingestion.name))
        if slot is None:
            return None
        if not slot.positions:
            return history.state.head, None
        number, live = slot.decision.slot, history.state.live
        parts = [unit.range for ref, unit in live.items() if ref.slot == number and unit.range is not None]
        if not parts:
            return None
        return history.state.head, Range(lowest([part.low for part in parts]), highest([part.high for part in parts]))

    def _tidy(self, history: History, run_key: str) -> None:
        """What may be done for a dataset by any run at its end; what can't be done is tried again by the next one."""
        try:
            for left in self.committer.clean(history, run_key):
                log.warning("dataset %r: %s", history.urn, left)
        except Exception as error:  # a user's step may raise anything
            log.warning(
                "dataset %r can't be cleaned up now",
                history.urn,
                exc_info=self._shown("clean up", history.urn, error),
            )
        try:
            if worth_trimming(history) or any(not slot.noted(NoteKind.ANNOUNCED) for slot in history.slots):
                put_manifests(self.files, self.journal, history)  # before it is trimmed: they are made from what is
                self.committer.homes.check_mark()
                trim(self.journal, history)
        except (GobblinError, OSError):
            log.warning("dataset %r: its manifests or its journal can't be seen to now", history.urn, exc_info=True)

    def unannounced(self, urns: Iterable[str] | None = None) -> Iterator[tuple[Slot, DatasetReport]]:
        """The slots that published files and that no run has announced, whoever finished them.

        :param urns: only those of some datasets; `None` for all.
        """
        wanted = None if urns is None else {dataset_key(urn) for urn in urns}
        for _, history in self.journal.histories(
            worth=lambda keys: keys.may_be_unannounced and (wanted is None or keys.dataset in wanted)
        ):
            if isinstance(history, GobblinError):
                continue
            for slot in history.slots:
                if slot.publishes and not slot.noted(NoteKind.ANNOUNCED):
                    yield slot, reporting.published(slot, "committed", "", history.state)

    def announced(self, slot: Slot, run_key: str) -> None:
        """Note that a slot was announced."""
        self.journal.put_note(slot.decision.urn, slot.decision.slot, Note(NoteKind.ANNOUNCED, run_key, now()))

    def sweep(self, keep: str = "") -> tuple[str, ...]:
        """Delete the staging of every token whose outcome stands or that can win no more; never by age (I11).

        :param keep: a run whose plan is kept, though its tokens are gone. :return: the tokens that were swept.
        """
        return Sweeper(self.journal, self.staging, self._claims).sweep(keep)


def _unknown(urns: Sequence[str], known: Sequence[str]) -> ConfigurationError:
    """What to say of datasets that were asked for and aren't there."""
    alike = [*dict.fromkeys(one for urn in urns[:_SOUGHT] for one in near(urn, known))]
    meant = f"Did you mean {' or '.join(map(repr, alike[:_NAMED]))}? " if alike else ""
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    return ConfigurationError(
        operation="plan",
        subject=f"datasets {[*urns[:_NAMED]]}",
        cause=f"the source has no such: it has {[*known[:_NAMED]]}{more}",
        hint=f"{meant}Correct the run's configuration or its partition key, or add them to the source. Nothing was changed.",
    )


def _unplanned(urn: str, error: GobblinError) -> DatasetNote:
    """That a dataset can't be planned. Of storage more than this dataset waits, and it may be there by the next try."""
    of_storage = isinstance(error, StoreError) or isinstance(error.cause, OSError)
    asked = isinstance(error, NoSuchRangeError | OverlapError)
    return DatasetNote(urn, "failed", str(error), of_storage, asked)


def _no_ranges(urn: str, cause: str, hint: str) -> NoSuchRangeError:
    return NoSuchRangeError(operation="backfill", subject=f"dataset {urn!r}", cause=cause, hint=hint)


def _without_left_out(
    found: dict[str, DatasetRef | DatasetNote | GobblinError], request: RunRequest
) -> dict[str, DatasetRef | DatasetNote | GobblinError]:
    """A backfill of all datasets leaves out those that have no such range, unless all of them are left out."""
    out = {urn: plan for urn, plan in found.items() if isinstance(plan, NoSuchRangeError)}
    if request.datasets or len(out) == len(found):
        return found
    return found | {urn: DatasetNote(urn, "idle", f"it is left out: {error}") for urn, error in out.items()}


def _takes_all(dataset: Dataset, state: DatasetState) -> bool:
    """Whether a load takes the dataset whole: each of a snapshot, and the first of a snapshot-append."""
    kind = dataset.extract.kind
    return kind is ExtractKind.SNAPSHOT_ONLY or (kind is ExtractKind.SNAPSHOT_APPEND and state.coverage.origin is None)


def _check_kind(dataset: Dataset, history: History) -> None:
    """What is published of a dataset, and what is planned, must both have positions, or both none."""
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


def _unpublished(history: History, token: str) -> Iterator[UnitSummary]:
    """What was noted of the units of a plan of which nothing was published."""
    for notes in (history.early_notes, *(slot.notes for slot in history.slots)):
        for note in notes:
            if note.says is NoteKind.UNPUBLISHED and note.token == token:
                yield from note.units
