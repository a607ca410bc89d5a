"""The stages of a run, without Airflow and without Spark: what the operators call, what the tests kill.

    verify_recover → create_work_units → (extract → write_commit_steps → execute_commit_steps) per pack → finish

Each stage may be killed, run again, or run twice at once; nothing passes between them but the journal, staging, and a small
reference.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_gobblin import schema, wire
from airflow_gobblin.claims import Claims
from airflow_gobblin.commit import Committer, can_win, check_holds, propose
from airflow_gobblin.errors import (
    AlreadyCoveredError,
    ConfigurationError,
    GobblinError,
    IncompleteRunError,
    LostRaceError,
    QuarantinedError,
    RecordError,
    SourceError,
)
from airflow_gobblin.extraction import converted_schema
from airflow_gobblin.files import Files, LocalFiles
from airflow_gobblin.guarded import GuardedConnections
from airflow_gobblin.ingestion import Ingestion, target_root
from airflow_gobblin.journal import Action, History, Journal, Note, NoteKind, Slot, now
from airflow_gobblin.manifest import check_no_slot_is_lost, put_manifests
from airflow_gobblin.naming import dataset_key, shown
from airflow_gobblin.packing import pack_datasets
from airflow_gobblin.plan import DatasetNote, Plan, RunPlan
from airflow_gobblin.policy import CommitPolicy, publishable, reconciled
from airflow_gobblin.sources.base import Connections, DatasetPlan, PlanRequest
from airflow_gobblin.staging import Staging, staging_folder
from airflow_gobblin.state import DatasetState
from airflow_gobblin.watermark import Json, Watermark
from airflow_gobblin.work import (
    Dataset,
    DatasetRef,
    ExtractKind,
    Pack,
    UnitResult,
    UnitState,
    UnitSummary,
    WorkUnit,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunRequest:
    """What a run asks for.

    :param dag_run: what names the run, for its run key: the DAG's id and the run's.
    :param end: the end of its data interval; `None`: up to now.
    :param datasets: only these URNs; empty for all.
    """

    dag_run: str
    end: datetime | None = None
    datasets: tuple[str, ...] = ()

    def run_key(self, ingestion: str) -> str:
        """What makes a request the same request when it is retried."""
        asked: Json = {"end": self.end.isoformat() if self.end else None, "datasets": [*sorted(self.datasets)]}
        return wire.digest(wire.canonical({"ingestion": ingestion, "dag_run": self.dag_run, "asked": asked}))[:32]


@dataclass(frozen=True)
class DatasetReport:
    """What a stage did with a dataset.

    :param status: one word of: committed, noop, idle, partial, failed, skipped, lost, covered, quarantined, recovered, pending.
    :param retryable: it failed, and the same stage may succeed if it is tried again.
    """

    urn: str
    status: str
    detail: str = ""
    slot: int | None = None
    files: int = 0
    rows: int = 0
    watermark: Watermark | None = None
    retryable: bool = False

    @property
    def ok(self) -> bool:
        """Whether a run that ends so is green (partial is, where the ingestion says so)."""
        return self.status in ("committed", "noop", "idle", "covered", "recovered")


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
        self.files = files if files is not None else LocalFiles(target_root(ingestion.sink.target))
        self.staging = Staging(self.files, staging_folder(journal.ingestion, journal.id))
        self.committer = Committer(journal, self.files, attempts=ingestion.attempts, retention=ingestion.retention)
        self._claims = Claims(self.files)
        self._connections = GuardedConnections(connections)

    # verify_recover

    def verify_recover(self, request: RunRequest) -> tuple[DatasetReport, ...]:
        """Finish what earlier runs decided and left, of all datasets of the journal.

        A dataset that can't be recovered stands still, and the others go on.
        """
        run_key = request.run_key(self.ingestion.name)
        named = dict(self.journal.named_datasets())
        reports = [DatasetReport(key, "failed", str(e)) for key, e in named.items() if not isinstance(e, str)]
        for urn, history in self.journal.histories(urn for urn in named.values() if isinstance(urn, str)):
            if isinstance(history, GobblinError):
                reports.append(DatasetReport(urn, "failed", str(history)))
            elif history.pending is not None:
                reports.append(self._recover(urn, run_key))
        return tuple(reports)

    def _recover(self, urn: str, run_key: str) -> DatasetReport:
        try:
            slot = self.committer.recover(urn, run_key)
        except QuarantinedError as error:
            return DatasetReport(urn, "quarantined", str(error))
        except Exception as error:
            return _failed("recover", urn, error)
        if slot is None:
            return DatasetReport(urn, "idle", "nothing was pending")
        return self._published(slot, "recovered", f"slot {slot.decision.slot}, which an earlier run left, is done")

    # create_work_units

    def create_work_units(self, request: RunRequest) -> RunPlan:
        """Plan every dataset from its watermark, and pack the plans.

        A dataset that can't be planned leaves a note, and the others go on.

        :raises SourceError: the source can't be reached. :raises ConfigurationError: a dataset was asked for that isn't there.
        :raises GobblinError: what keeps every single dataset from being planned, if a retry may heal it.
        """
        run_key = request.run_key(self.ingestion.name)
        every = self._datasets(request)
        datasets = [d for d in every if not request.datasets or d.urn in request.datasets]
        histories = dict(self.journal.histories(sorted({*self.journal.datasets(), *(d.urn for d in every)})))
        states = {urn: h.state for urn, h in histories.items() if isinstance(h, History)}
        planned: list[DatasetRef] = []
        notes = [] if request.datasets else [*_left_behind(histories, {d.urn for d in every})]
        errors: list[GobblinError] = []
        for dataset in datasets:
            plan = self._plan(dataset, histories[dataset.urn], states, request, run_key)
            if isinstance(plan, Plan):
                planned.append(DatasetRef(plan.urn, plan.token, plan.weight, plan.planned))
            elif isinstance(plan, GobblinError):
                errors.append(plan)
                notes.append(DatasetNote(dataset.urn, "failed", str(plan)))
            else:
                notes.append(plan)
        if errors and len(errors) == len(datasets) and all(error.retryable for error in errors):
            raise errors[0]  # no database, no disk: nothing was planned, and the whole stage is worth a retry
        run = RunPlan(uuid.uuid4().hex, run_key, pack_datasets(planned, self.ingestion.max_packs), tuple(notes))
        self.staging.put_run(run, self.ingestion.job)
        return run

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
        unknown = set(request.datasets) - {d.urn for d in datasets}
        if unknown:
            raise ConfigurationError(
                operation="plan",
                subject=f"datasets {sorted(unknown)}",
                cause=f"the source has {sorted(d.urn for d in datasets)[:20]}",
                hint="Correct the run's configuration, or add them to the source.",
            )
        return datasets

    def _plan(
        self,
        dataset: Dataset,
        history: History | GobblinError,
        states: Mapping[str, DatasetState],
        request: RunRequest,
        run_key: str,
    ) -> Plan | DatasetNote | GobblinError:
        """The plan of a dataset, written to staging; or why there is none."""
        urn = dataset.urn
        try:
            if isinstance(history, GobblinError):
                raise history
            if history.pending is not None:
                self.committer.recover(urn, run_key)
                history = self.journal.history(urn)
                states = {**states, urn: history.state}
            answer = history.answer(run_key)
            if answer is not None:
                return DatasetNote(urn, "committed", f"this run committed it already, in slot {answer.decision.slot}")
            asked = PlanRequest(now(), request.end, self.ingestion.limits, self.ingestion.options)
            self._check_extract(dataset, history.state)
            _check_kind(dataset, history)
            with self._connections.scrubbing("plan", f"dataset {urn!r}"):
                found = self.ingestion.source.plan(dataset, states, asked, self._connections)
            if not found.units:
                return DatasetNote(urn, "idle", "there is nothing new")
            plan = self._bound(dataset, history, found, run_key)
            self.staging.put_plan(plan)
            return plan
        except QuarantinedError as error:
            return DatasetNote(urn, "quarantined", str(error))
        except GobblinError as error:
            log.warning("dataset %r can't be planned: %s", urn, error)
            return error
        except Exception as error:  # a user's sink or converter may raise anything; the other datasets go on
            log.exception("dataset %r can't be planned", urn)
            return GobblinError(operation="plan", subject=f"dataset {urn!r}", cause=error, hint="See the log.")

    def _check_extract(self, dataset: Dataset, state: DatasetState) -> None:
        kind = dataset.extract.kind
        whole = kind is ExtractKind.SNAPSHOT_ONLY or (
            kind is ExtractKind.SNAPSHOT_APPEND and state.coverage.origin is None
        )
        if whole and (self.ingestion.policy is not CommitPolicy.FULL or self.ingestion.limits.any):
            raise ConfigurationError(
                operation="plan",
                subject=f"dataset {dataset.urn!r} of kind {kind.value}",
                cause="a snapshot is published whole or not at all",
                hint="Use the commit policy 'full' and no limits for it, in an ingestion of its own if need be.",
            )

    def _bound(self, dataset: Dataset, history: History, found: DatasetPlan, run_key: str) -> Plan:
        urn, state = dataset.urn, history.state
        ids = [u.id for u in found.units]
        if len(set(ids)) != len(ids) or any(u.urn != urn for u in found.units):
            raise SourceError(
                operation="plan",
                subject=f"dataset {urn!r}",
                cause="two units share an id, or one is of another dataset",
                hint="This is a fault of the source's code.",
            )
        outgoing = converted_schema(self.ingestion.converters, self.ingestion.checks, found.schema)
        published = schema.decode(state.schema) if state.schema else None
        outgoing = self.ingestion.sink.schema(outgoing, published, urn)
        folder = self.ingestion.sink.folder(dataset)
        self._claims.check(self.journal, urn, folder)
        check_no_slot_is_lost(self.files, self.journal, history)
        snapshot = dataset.extract.kind is ExtractKind.SNAPSHOT_ONLY
        return Plan(
            token=uuid.uuid4().hex,
            ingestion=self.ingestion.name,
            run_key=run_key,
            generation=state.generation,
            dataset=dataset,
            folder=folder,
            units=found.units,
            source_schema=schema.encode(found.schema),
            schema=schema.encode(outgoing),
            planned=None if snapshot else found.planned,
            replaces=tuple(sorted(state.live)) if snapshot else (),
        )

    # extract

    def missing_units(self, pack: Pack) -> Iterator[tuple[Plan, WorkUnit]]:
        """The units of a pack that have no result and are still wanted: their plan is undecided and can win."""
        for ref in pack.datasets:
            try:
                plan = self.staging.plan(ref.token)
                if plan is None or not can_win(plan, self.journal.history(ref.urn)):
                    continue
            except RecordError as error:  # it stands still, as write_commit_steps will say, and the others go on
                log.warning("dataset %r is not extracted: %s", ref.urn, error)
                continue
            for unit in plan.units:
                if self.staging.result(ref.token, unit.id) is None:
                    yield plan, unit

    # write_commit_steps

    def write_commit_steps(self, run: RunPlan, pack: Pack) -> tuple[DatasetReport, ...]:
        """Apply the commit policy to the results of each dataset that stand, and decide its slot.

        From here on the run is bound to publish exactly this.
        """
        return tuple(self._write(ref, run.run_key) for ref in pack.datasets)

    def _write(self, ref: DatasetRef, run_key: str) -> DatasetReport:
        try:
            plan = self.staging.plan(ref.token)
            if plan is None:
                return self._swept(ref, run_key)
            history = self.journal.history(ref.urn)
            slot = history.by_token(ref.token)
            if slot is None:
                check_holds(plan, plan.ranges, history)
                decided = self._decide(plan)
                if isinstance(decided, DatasetReport):
                    return decided
                slot = decided
            status = "pending" if not slot.finished else "committed" if slot.done else "lost"
            return self._published(slot, status, f"slot {slot.decision.slot} is decided")
        except Exception as error:
            return _failed("write the commit steps of", ref.urn, error)

    def _decide(self, plan: Plan) -> Slot | DatasetReport:
        results = tuple(self._results(plan))
        chosen = publishable(self.ingestion.policy, results)
        proposal = propose(plan, results, (r.unit for r in chosen), self.staging.token_folder(plan.token))
        if not chosen:
            history = self.journal.history(plan.urn)
            if (slot := history.by_token(plan.token)) is not None:
                return slot
            check_holds(
                plan, plan.ranges, history
            )  # results may be gone because staging that can win no more was swept
            failed = [u for u in proposal.units if u.state is not UnitState.SUCCESSFUL]
            self._keep_unpublished(plan, proposal.units)
            first = next((u.error for u in failed if u.error), "")
            return DatasetReport(
                plan.urn, "failed", f"{len(failed)} of {len(plan.units)} units are not published; the first: {first}"
            )
        return self.committer.decide(proposal, lambda: self.ingestion.sink.publish(plan, proposal.results, self.files))

    def _results(self, plan: Plan) -> Iterator[UnitResult]:
        failed = self.staging.failed_results(plan.token)
        missing = "it has no result: its extract did not finish"
        for unit in plan.units:
            result = self.staging.result(plan.token, unit.id) or failed.get(unit.id)
            yield reconciled(result or UnitResult(unit.id, "", UnitState.FAILED, error=missing))

    def _keep_unpublished(self, plan: Plan, units: tuple[UnitSummary, ...]) -> None:
        history = self.journal.history(plan.urn)
        slot = history.slots[-1] if history.slots else None
        notes = slot.notes if slot else history.early_notes
        note = Note(NoteKind.UNPUBLISHED, plan.run_key, now(), token=plan.token, units=units)
        last = next((n for n in reversed(notes) if n.says is NoteKind.UNPUBLISHED), None)
        if last is None or (last.token, last.units) != (note.token, note.units):
            self.journal.put_note(plan.urn, slot.decision.slot if slot else 0, note)

    def _swept(self, ref: DatasetRef, run_key: str) -> DatasetReport:
        """What to say of a plan whose staging is gone: it was done, or could win no more."""
        history = self.journal.history(ref.urn)
        slot = history.by_token(ref.token) or history.answer(run_key)
        if slot is None and ref.planned is not None and history.state.coverage.covers(ref.planned):
            return DatasetReport(ref.urn, "covered", f"range {ref.planned} was committed by another run")
        if slot is None:
            return DatasetReport(
                ref.urn,
                "lost",
                "its plan could win no more and was swept; nothing was published by it. "
                "Clear create_work_units to plan anew.",
            )
        return self._published(
            slot, "committed" if slot.done else "lost", f"already committed in slot {slot.decision.slot}"
        )

    # execute_commit_steps

    def execute_commit_steps(
        self, run: RunPlan, pack: Pack, after_step: Callable[[str, int, int, int], None] | None = None
    ) -> tuple[DatasetReport, ...]:
        """Carry out what is decided for the datasets of a pack. Always safe to do again.

        :param after_step: called with URN, slot, k and n after each step that was done here.
        """
        return tuple(self._execute(ref, run.run_key, after_step) for ref in pack.datasets)

    def _execute(
        self, ref: DatasetRef, run_key: str, after_step: Callable[[str, int, int, int], None] | None
    ) -> DatasetReport:
        try:
            history = self.journal.history(ref.urn)
            slot = history.by_token(ref.token) or history.answer(run_key)
            if slot is None:
                return DatasetReport(ref.urn, "skipped", "nothing is decided for it in this run")
            if slot.finished:
                status = "committed" if slot.done else "lost"
                return self._published(slot, status, f"already committed in slot {slot.decision.slot}")
            number = slot.decision.slot
            done = self.committer.execute(
                slot, run_key, None if after_step is None else lambda k, n: after_step(ref.urn, number, k, n)
            )
            put_manifests(self.files, self.journal, self.journal.history(ref.urn))
            return self._published(done, "committed", f"committed in slot {number}")
        except Exception as error:
            if isinstance(error, GobblinError) and not isinstance(error, LostRaceError):
                self.committer.count_failure(ref.urn, run_key, error)
            return _failed("execute the commit steps of", ref.urn, error)

    # finish

    def finish(self, run: RunPlan) -> tuple[DatasetReport, ...]:
        """Sweep staging that can no longer win, clean up, and report every dataset of the run.

        :return: a report per dataset; raise `incomplete(…)` for what isn't as the policy wants it.
        """
        reports = [DatasetReport(n.urn, n.status, n.detail) for n in run.notes]
        for pack in run.packs:
            reports += [self._final(ref, run.run_key) for ref in pack.datasets]
        for urn, found in self.journal.histories(self.journal.datasets()):  # those that the source has no more, too
            if isinstance(found, History):
                self._put_manifests(found)
                self._clean(found, run.run_key)
            else:
                log.warning("dataset %r can't be cleaned up: %s", urn, found)
        self.staging.finish_run(run.run)
        self.sweep(keep=run.run)
        return tuple(reports)

    def _final(self, ref: DatasetRef, run_key: str) -> DatasetReport:
        try:
            history = self.journal.history(ref.urn)
            slot = history.by_token(ref.token) or history.answer(run_key)
            if slot is not None:
                return self._final_slot(slot, history)
            plan = self.staging.plan(ref.token)
            if plan is None:
                return self._swept(ref, run_key)
            check_holds(plan, (), history)
            if plan.planned is not None and history.state.coverage.covers(plan.planned):
                return DatasetReport(ref.urn, "covered", f"range {plan.planned} was committed by another run")
            failed = next((u.error for u in _unpublished(history, ref.token) if u.error), None)
            return DatasetReport(
                ref.urn, "failed", f"nothing of it was published: {failed or 'its extract did not finish'}"
            )
        except Exception as error:
            return _failed("finish", ref.urn, error)

    def _final_slot(self, slot: Slot, history: History) -> DatasetReport:
        number = slot.decision.slot
        if not slot.finished:
            status = "quarantined" if history.state.quarantined else "failed"
            return self._published(
                slot, status, f"slot {number} is decided and not finished: clear execute_commit_steps"
            )
        if not slot.done:
            return self._published(slot, "lost", f"slot {number} was abandoned")
        if not slot.decision.complete:
            failed = [u for u in slot.decision.units if u.state is not UnitState.SUCCESSFUL]
            first = next((u.error for u in failed if u.error), "they are left to the next run")
            why = f"{len(failed)} of {len(slot.decision.units)} units are not published: {first}"
            return self._published(slot, "partial", f"slot {number} holds a part; {why}")
        return self._published(slot, "committed", f"slot {number}")

    def answered(self, request: RunRequest) -> tuple[DatasetReport, ...]:
        """What the journal says of a request whose plan was swept: the datasets that were committed for it."""
        run_key = request.run_key(self.ingestion.name)
        reports = []
        for urn, history in self.journal.histories(self.journal.datasets()):
            if isinstance(history, GobblinError):
                reports.append(DatasetReport(urn, "failed", str(history), retryable=history.retryable))
            elif (slot := history.answer(run_key)) is not None:
                reports.append(self._published(slot, "committed", f"already committed in slot {slot.decision.slot}"))
        return tuple(reports)

    def _put_manifests(self, history: History) -> None:
        try:
            put_manifests(self.files, self.journal, history)
        except (GobblinError, OSError):  # the next run writes it
            log.warning("dataset %r: a manifest can't be written", history.urn, exc_info=True)

    def _clean(self, history: History, run_key: str) -> None:
        try:
            for left in self.committer.clean(history, run_key):
                log.warning("dataset %r: %s", history.urn, left)
        except Exception:  # a user's step may raise anything; it is tried again by the next run
            log.warning("dataset %r can't be cleaned up now", history.urn, exc_info=True)

    def unannounced(self, urns: Iterable[str]) -> Iterator[tuple[Slot, DatasetReport]]:
        """The slots of some datasets that published files and that no run has announced, whoever finished them."""
        for _, history in self.journal.histories(urns):
            if isinstance(history, GobblinError):
                continue
            for slot in history.slots:
                publishes = slot.decision.action in (Action.COMMIT, Action.IMPORT)
                if publishes and slot.done and not slot.noted(NoteKind.ANNOUNCED):
                    yield slot, self._published(slot, "committed", "")

    def announced(self, slot: Slot, run_key: str) -> None:
        """Note that a slot was announced."""
        self.journal.put_note(slot.decision.urn, slot.decision.slot, Note(NoteKind.ANNOUNCED, run_key, now()))

    def sweep(self, keep: str = "") -> tuple[str, ...]:
        """Delete the staging of every token whose outcome stands or that can win no more; never by age (I11).

        :param keep: a run whose plan is kept, though its tokens are gone. :return: the tokens that were swept.
        """
        swept = []
        runs = self.staging.runs()  # before the tokens: a run is written after its plans
        for token, plan in self.staging.plans():
            try:
                if self._needed(plan):
                    continue
                self.staging.remove_token(token)
            except (GobblinError, OSError):  # what can't be read might need it
                log.warning("staging of token %s can't be judged or removed, and is kept", token, exc_info=True)
                continue
            swept.append(token)
        tokens = set(self.staging.tokens())
        for run in runs:
            try:
                if run != keep and self._over(run, tokens):
                    self.staging.remove_run(run)
            except (GobblinError, OSError):
                log.warning("run %s in staging can't be judged or removed, and is kept", run, exc_info=True)
        return tuple(swept)

    def _over(self, run: str, tokens: set[str]) -> bool:
        """Whether a run was reported to its end, and none of its tokens is left."""
        if not self.staging.run_finished(run):
            return False
        found = self.staging.run(run)
        return found is None or not tokens & {d.token for p in found.packs for d in p.datasets}

    def _needed(self, plan: Plan | GobblinError | None) -> bool:
        if plan is None:
            return False
        if isinstance(plan, GobblinError):
            raise plan
        history = self.journal.history(plan.urn)
        slot = history.by_token(plan.token)
        return can_win(plan, history) if slot is None else not slot.finished

    def _published(self, slot: Slot, status: str, detail: str) -> DatasetReport:
        decision = slot.decision
        good = [u for u in decision.units if u.state is UnitState.SUCCESSFUL]
        return DatasetReport(
            decision.urn,
            status,
            detail,
            decision.slot,
            files=sum(u.files for u in good),
            rows=sum(u.rows_written for u in good),
            watermark=self.journal.state(decision.urn).watermark,
        )


def _check_kind(dataset: Dataset, history: History) -> None:
    """What is published of a dataset, and what is planned, must both have positions, or both none."""
    snapshot = dataset.extract.kind is ExtractKind.SNAPSHOT_ONLY
    published = {history.slots[r.slot - 1].decision.planned is None for r, u in history.state.live.items() if u.files}
    if (not snapshot) in published:
        was = "has positions, and a snapshot none" if snapshot else "is a snapshot, whose rows would come again"
        raise ConfigurationError(
            operation="plan",
            subject=f"dataset {dataset.urn!r} of kind {dataset.extract.kind.value}",
            cause=f"what is published of it {was}",
            hint="Go back to the former kind; or publish it under another URN; or drop the dataset, with its files.",
        )


def _left_behind(histories: Mapping[str, History | GobblinError], of_source: set[str]) -> Iterator[DatasetNote]:
    """The datasets that an earlier run left unfinished and that the source has no more: while there are any, no run is green."""
    for urn, history in histories.items():
        if isinstance(history, History) and history.pending is not None and urn not in of_source:
            status = "quarantined" if history.state.quarantined else "failed"
            why = f"slot {history.pending.decision.slot} is not finished, and the source has no such dataset any more"
            yield DatasetNote(urn, status, f"{why}: mend what keeps it from being finished, or abandon it")


def _unpublished(history: History, token: str) -> Iterator[UnitSummary]:
    """What was noted of the units of a plan of which nothing was published."""
    for notes in (history.early_notes, *(slot.notes for slot in history.slots)):
        for note in notes:
            if note.says is NoteKind.UNPUBLISHED and note.token == token:
                yield from note.units


def _failed(operation: str, urn: str, error: Exception) -> DatasetReport:
    """What a stage says of a dataset that it can't go on with, for the other datasets to go on.

    A user's sink or step may raise anything, and so may a disk.
    """
    if isinstance(error, AlreadyCoveredError):
        return DatasetReport(urn, "covered", str(error))
    if isinstance(error, LostRaceError):
        return DatasetReport(urn, "lost", str(error))
    if not isinstance(error, GobblinError):
        log.error("can't %s dataset %r", operation, urn, exc_info=error)
        hint = "See the log. Nothing is lost: clear the task once the cause is mended."
        told = GobblinError(operation=operation, subject=f"dataset {urn!r}", cause=error, hint=hint)
        return DatasetReport(urn, "failed", str(told), retryable=True)
    return DatasetReport(urn, "failed", str(error), retryable=error.retryable)


def incomplete(ingestion: Ingestion, reports: Iterable[DatasetReport]) -> IncompleteRunError | None:
    """The error of a run whose datasets are not all as the policy wants them, or `None`."""
    bad = [r for r in reports if not r.ok and not (r.status == "partial" and ingestion.partial_ok)]
    if not bad:
        return None
    lines = "; ".join(f"{shown(r.urn)}: {r.status} ({r.detail})" for r in bad[:10])
    more = f"; and {len(bad) - 10} more" if len(bad) > 10 else ""
    return IncompleteRunError(
        operation="finish",
        subject=f"the run of ingestion {ingestion.name!r}",
        cause=f"{len(bad)} datasets are not as the policy wants them: {lines}{more}",
        hint="What was published stands. Each line names what to clear or mend.",
    )
