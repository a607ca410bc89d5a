"""The run of a pack on Spark: every unit without a result becomes part of a Spark task, and each result is kept at once.

A Spark job is one task of one group of units, so that a result is written as soon as the driver accepts it, and a killed driver
leaves all its results. Only results that Spark returned count: files of a speculative or dead attempt are not looked for.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import EnvironmentMismatchError, GobblinError, LostRaceError, Remedy, StoreError
from airflow_gobblin.job import Attempt, Held, LightWork, SplitWork, UnitPart, Work
from airflow_gobblin.model import wire
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.packing import worst_fit_decreasing, worthwhile_bins
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.progress import ProgressCount
from airflow_gobblin.model.registry import built_in_modules, import_kinds
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.work import BegunUnit, Pack, UnitResult, UnitState, WorkUnit
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.failures import cause_of
from airflow_gobblin.spark.jobs import TaskRow, collect
from airflow_gobblin.spark.probe import Needs, count_cores, mismatch_in, probe_executors
from airflow_gobblin.spark.report import GroupReport, PackReport
from airflow_gobblin.spark.task import TaskSpec, run_task
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.locations import client_of, remote_location
from airflow_gobblin.workspace.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_pack"]

log = logging.getLogger(__name__)

GROUPS_PER_CORE = 4
"""Few enough that a task is worth its start, many enough that load evens out and a killed driver has most results."""
_LOGGED_EVERY = 5.0
"""The seconds between two records of the progress."""
_KEPT_AT_ONCE = 16
"""How many results are written at once: each waits for the disk, which makes all that wait durable together, or for the store."""
MIN_JOBS = 32
"""The least number of Spark jobs at once, so that executors that come late find work waiting."""


@dataclass(frozen=True)
class _MissingUnit:
    """A unit to run, in brief, as a pack may have very many. Its Spark task reads the rest.

    :param token: its plan's token.
    :param snapshot: the snapshot that it is read in, if its plan needs one.
    """

    urn: str
    token: str
    unit: str
    weight: int
    snapshot: str = ""
    files: int = 0
    bytes: int = 0
    split: _Split | None = None

    @property
    def name(self) -> str:
        return f"{self.urn}\0{self.unit}"


class _Split:
    """A unit that is run in parts, and what becomes of them.

    :param count: the number of parts.
    :param known: the results that earlier drivers got, by the numbers of the parts.
    """

    def __init__(
        self,
        work: SplitWork,
        plan: Plan,
        unit: WorkUnit,
        attempt: Attempt,
        count: int,
        known: Mapping[int, Sequence[UnitResult]],
    ) -> None:
        self._work, self._of, self.count = work, (unit, plan, attempt), count
        self._place, done = work.finished_parts(unit, plan, attempt, known)
        self._results = {**done}
        self.missing = [number for number in range(count) if number not in done]
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """The place of its parts, which is opened when the first one needs it."""
        with self._lock:
            self._place = self._place or self._work.open_parts(*self._of)
            return self._place

    def add(self, number: int, result: UnitResult) -> bool:
        """Add the result of a part; return whether all have one."""
        with self._lock:
            self._results[number] = result
            return len(self._results) == self.count

    @property
    def results(self) -> list[UnitResult]:
        """The results of all parts, in order."""
        return [self._results[number] for number in range(self.count)]

    def close(self, result: UnitResult) -> None:
        """Remove what its parts left and the unit's result doesn't need."""
        self._work.close_parts(*self._of, self._place, self.results, result)


_Group = tuple[_MissingUnit, ...]
_SparkTask = Callable[[float], GroupReport]
"""The function that runs a Spark task and keeps its results, called with the task's share of the run."""


def run_pack(
    spark: SparkSession,
    workspace: str,
    staging: str,
    run: str,
    index: int,
    code: Iterable[str],
    connections: SparkConnections,
    attempt: str | None = None,
) -> PackReport:
    """Run the units of a pack that have no result.

    A failed unit is a result, and a dataset whose plan can't be read is an error of the report; the others go on.

    :param workspace: the workspace root.
    :param staging: the ingestion's staging folder below it.
    :param index: the pack's number in its run.
    :param code: the author's modules, which the Spark application was given.
    :param attempt: the id of this run of a driver, by default a new one; behind Spark Connect its operations are tagged with it.
    :raises StoreError: the pack is not in staging.
    :raises EnvironmentMismatchError: the executors lack something.
    """
    return _PackRun(spark, workspace, staging, tuple(code), connections, attempt or uuid.uuid4().hex).run(run, index)


class _PackRun:
    """One run of a driver."""

    def __init__(
        self,
        spark: SparkSession,
        workspace: str,
        staging: str,
        code: tuple[str, ...],
        connections: SparkConnections,
        attempt: str,
    ) -> None:
        self._spark = spark
        self._workspace = workspace
        self._staging = Staging(open_files(workspace, connections), staging)
        self._code = code
        self._connections = connections
        self._attempt = attempt
        self._failures: list[Failure] = []
        self._finished = 0
        self._empty = 0
        self._tasks_run = False
        self._probing = threading.Lock()
        self._probed = False
        self._mismatch: EnvironmentMismatchError | None = None

    def run(self, run: str, index: int) -> PackReport:
        started, clock = datetime.now(UTC), time.monotonic()
        import_kinds(self._code)
        pack, work = self._pack(run, index), self._staging.work(run)
        with work.hold(self._connections) as held:
            missing = list(self._missing(pack, work, held))
            self._progress = _ProgressLog(self._staging, run, pack, self._attempt, missing)
            cores, groups = self._run_missing(work, missing, run) if missing else (0, [])
        report = PackReport(
            run=run,
            pack=index,
            label=pack.label,
            attempt=self._attempt,
            started=started,
            seconds=time.monotonic() - clock,
            cores=cores,
            finished=self._finished,
            empty=self._empty,
            groups=tuple(groups),
            failures=tuple(self._failures),
            application=(self._spark.conf.get("spark.app.id", "") or "") if missing else "",
        )
        self._staging.put_report(run, index, self._attempt, report)
        log.info("%s", report)
        log.info("pack report: %s", wire.canonical(wire.to_json(report)).decode())
        return report

    def _pack(self, run: str, index: int) -> Pack:
        pack = self._staging.pack(run, index)
        if pack is None:
            self._staging.check_shared()
            raise StoreError(
                operation="read",
                subject=f"pack {index} of run {run!r} in staging {self._staging.folder!r}",
                cause="it is not there",
                hint="The run was swept after its ranges were taken.",
                remedy=Remedy.PLAN,
            )
        return pack

    def _missing(self, pack: Pack, work: Work, held: Held) -> Iterator[_MissingUnit]:
        """Yield the units without a result. Empty ones get theirs here."""
        for ref in pack.datasets:
            try:
                plan = self._staging.plan(ref.token)
                if plan is None:
                    log.warning("dataset %r: its plan is swept, so it can win no more and is not extracted", ref.urn)
                    continue
                yield from self._missing_of(plan, work, held)
            except LostRaceError as error:
                log.warning("dataset %r is not extracted: %s", ref.urn, error)
            except GobblinError as error:
                self._note(Failure.of(error))

    def _missing_of(self, plan: Plan, work: Work, held: Held) -> Iterator[_MissingUnit]:
        for unit, done in self._staging.units_done(plan):
            if done:
                self._finished += 1
                continue
            one = _MissingUnit(plan.urn, plan.token, unit.id, unit.weight, "", unit.files, unit.bytes)
            try:
                one = replace(one, snapshot=held.of(plan))
            except GobblinError as error:  # none of its units can be read, and the first one's result has the reason
                self._keep(one, None, Failure.of(error))
                return
            if unit.empty:
                self._keep_empty(work, plan, unit, one.snapshot)
            else:
                yield replace(one, split=self._split(work, plan, unit, one.snapshot))

    def _keep_empty(self, work: Work, plan: Plan, unit: WorkUnit, snapshot: str) -> None:
        result = work.run(unit, plan, self._attempt_at(plan, snapshot))
        self._staging.put_result(plan.token, result)
        self._empty += 1

    def _attempt_at(self, plan: Plan, snapshot: str) -> Attempt:
        folder = self._staging.token_folder(plan.token)
        return Attempt(self._attempt, self._staging.files, folder, self._connections, snapshot)

    def _split(self, work: Work, plan: Plan, unit: WorkUnit, snapshot: str) -> _Split | None:
        count = work.parts(unit, plan) if isinstance(work, SplitWork) else 1
        if count == 1:
            return None
        assert isinstance(work, SplitWork)
        known = self._staging.part_results((BegunUnit(plan.token, unit.id), *unit.begun), count)
        split = _Split(work, plan, unit, self._attempt_at(plan, snapshot), count, known)
        if known:
            arguments = plan.urn, unit.id, many(count, "part"), count - len(split.missing)
            log.info("dataset %r: unit %r has %s, of which %d are there", *arguments)
        return split

    def _run_missing(self, work: Work, missing: list[_MissingUnit], run: str) -> tuple[int, list[GroupReport]]:
        """Run units.

        :return: the number of Spark tasks at once, 0 if nothing depended on it, and what became of each group.
        """
        self._needs = self._needs_of(work)
        self._spark.addTag(self._attempt)
        if work.site is Site.DRIVER:
            counted = cache(partial(count_cores, self._spark))
            here = [self._run_here(work, one, counted) for one in missing]
            return (counted() if counted.cache_info().currsize else 0), here
        alone = len(missing) == 1 and missing[0].split is None
        cores = 1 if alone else count_cores(self._spark)
        tasks = self._tasks(work, missing, run, cores)
        log.info("attempt %s: %s in %s", self._attempt, many(len(missing), "unit"), many(len(tasks), "Spark task"))
        return (0 if alone else cores), self._run_tasks(run, tasks, cores)

    def _needs_of(self, work: Work) -> Needs:
        location = remote_location(self._workspace)
        client = (client_of(location),) if location else ()
        mine, drivers = (run_task.__module__, *built_in_modules()), work.modules(self._connections)
        folder = None if location else f"{self._staging.files.root}/{self._staging.folder}"
        return Needs(("pyarrow", *mine, *client, *self._code, *drivers), folder)

    def _tasks(self, work: Work, missing: list[_MissingUnit], run: str, cores: int) -> list[_SparkTask]:
        """Return what to run, each in a Spark task of its own: the parts of units, and groups of whole ones."""
        worth = work.task_weight if isinstance(work, LightWork) else 0
        groups = _groups([one for one in missing if one.split is None], cores, worth)
        tasks: list[_SparkTask] = [
            partial(self._run_part, run, one, one.split, part)
            for one in missing
            if one.split
            for part in one.split.missing or (None,)
        ]
        tasks += [partial(self._run_group, run, group) for group in groups]
        return tasks

    def _run_tasks(self, run: str, tasks: list[_SparkTask], cores: int) -> list[GroupReport]:
        threads, tag = min(len(tasks), max(cores, MIN_JOBS)), (self._attempt,)
        with ThreadPoolExecutor(threads, "spark-job", self._spark.addTag, tag) as pool:
            share = self._share(run, min(len(tasks), cores))
            running = [pool.submit(task, share) for task in tasks]
            try:
                return [done.result() for done in as_completed(running)]
            except EnvironmentMismatchError as error:  # what waits would find the same; what runs may give results
                log.error("%s", error)
                pool.shutdown(cancel_futures=True)
                raise

    def _share(self, run: str, at_once: int) -> float:
        """Return the share of a run that each task has; the run's packs may run side by side, each in its own application."""
        plan = self._staging.run(run)
        packs = 1 if plan is None else len(plan.packs)
        return 1 / (max(1, packs) * at_once)

    def _run_here(self, work: Work, one: _MissingUnit, cores: Callable[[], int]) -> GroupReport:
        """Run a unit on this driver, with its session, and keep its result."""
        plan = self._staging.plan(one.token)
        unit = None if plan is None else next(unit for unit in self._staging.units(plan) if unit.id == one.unit)
        if plan is None or unit is None:
            return _reported((one,), [self._keep(one, None, "its plan was swept")])
        attempt = replace(self._attempt_at(plan, one.snapshot), spark=self._spark, count_cores=cores)
        result = work.run(unit, plan, attempt)
        if result.state is UnitState.FAILED:
            try:
                self._check_executors()
            except EnvironmentMismatchError:
                log.error("%s", result.failure)  # else it is logged as it is kept
                raise
        return _reported((one,), [self._keep(one, result, "")])

    def _run_group(self, run: str, group: _Group, share: float) -> GroupReport:
        results, cause = self._results(self._spec(run, group, share))

        def keep(one: _MissingUnit) -> UnitResult:
            return self._keep(one, results.get((one.token, one.unit)), cause)

        with ThreadPoolExecutor(min(_KEPT_AT_ONCE, len(group)), "keep") as pool:
            kept = [*pool.map(keep, group)]
        self._progress.add(one for one, of in zip(group, kept, strict=True) if of.state is UnitState.SUCCESSFUL)
        return _reported(group, kept)

    def _run_part(self, run: str, one: _MissingUnit, split: _Split, number: int | None, share: float) -> GroupReport:
        """Run a part of a unit; after the last one, have all of them joined.

        :param number: the part's; `None` if all are there.
        """
        weight, seconds = one.weight // split.count, 0.0
        if number is not None:
            result = self._part(run, one, split, number, share)
            seconds, failed = result.seconds, result.state is not UnitState.SUCCESSFUL
            if not split.add(number, result):
                return GroupReport(units=0, failed=int(failed), weight=weight, bytes=0, rows=0, seconds=seconds)
        kept = self._join(run, one, split, share)
        if kept.state is UnitState.SUCCESSFUL:
            self._progress.add([one])
        return GroupReport(
            units=1,
            failed=int(kept.state is not UnitState.SUCCESSFUL),
            weight=weight,
            bytes=kept.bytes_written,
            rows=0,
            seconds=seconds + kept.seconds,
        )

    def _part(self, run: str, one: _MissingUnit, split: _Split, number: int, share: float) -> UnitResult:
        try:
            spec = self._spec(run, (one,), share, part=UnitPart(number, split.place))
        except GobblinError as error:
            return UnitResult(one.unit, self._attempt, UnitState.FAILED, failure=Failure.of(error))
        results, cause = self._results(spec)
        result = results.get((one.token, one.unit))
        if result is None:
            return UnitResult(one.unit, self._attempt, UnitState.FAILED, failure=_without_result(one, cause))
        if result.state is UnitState.SUCCESSFUL:
            self._keep_part(one, split, number, result)
        return result

    def _keep_part(self, one: _MissingUnit, split: _Split, number: int, result: UnitResult) -> None:
        try:
            self._staging.put_part(one.token, split.count, number, result)
        except GobblinError as error:  # if its unit fails, it is run again
            log.warning("the result of a part of unit %r can't be kept: %s", one.unit, error)

    def _join(self, run: str, one: _MissingUnit, split: _Split, share: float) -> UnitResult:
        """Have the parts of a unit joined, if none failed, and keep its result."""
        failure = next((part.failure for part in split.results if part.failure is not None), None)
        if failure is not None:
            kept = self._keep(one, None, failure)
        else:
            joined = tuple(map(wire.dumps, split.results))
            results, cause = self._results(self._spec(run, (one,), share, part=UnitPart(0, split.place), joined=joined))
            kept = self._keep(one, results.get((one.token, one.unit)), cause)
        split.close(kept)
        return kept

    def _spec(self, run: str, group: _Group, share: float, **parts: Any) -> TaskSpec:
        """Return the specification of a Spark task.

        :param parts: what the task of a part has in addition.
        """
        return TaskSpec(
            code=self._code,
            workspace=self._workspace,
            staging=self._staging.folder,
            attempt=self._attempt,
            run=run,
            units=_by_token(group),
            snapshots={one.token: one.snapshot for one in group if one.snapshot},
            connections=self._connections,
            needs=self._needs,
            share=share,
            **parts,
        )

    def _results(self, spec: TaskSpec) -> tuple[dict[tuple[str, str], UnitResult], str]:
        """Run a Spark task.

        :return: its results, by token and unit, and why others have none.
        :raises EnvironmentMismatchError: executors lack something, and no task has run units yet. Later on, a retry may help.
        """
        try:
            rows = collect(self._spark, lambda _: run_task(spec), range(1))
            mismatch = mismatch_in(rows)
            results = dict(map(_decoded, rows)) if mismatch is None else {}
        except Exception as error:  # whatever Spark raises, these units have failed and the others go on
            self._check_executors()
            log.exception("a Spark job failed")
            return {}, self._brief(cause_of(error))
        if mismatch is None:
            self._tasks_run = True
            return results, "its Spark task gave no result"
        if not self._tasks_run:
            raise mismatch
        return {}, self._brief(str(mismatch))

    def _brief(self, cause: str) -> str:
        """Return a text from an executor without secrets, short enough for a record."""
        return self._connections.guarded().redactor.brief(cause)

    def _check_executors(self) -> None:
        """Check, after the first failure, whether it is that executors lack something; not once they have run a task.

        :raises EnvironmentMismatchError: they do.
        """
        with self._probing:
            if not self._probed and not self._tasks_run:
                self._probed, self._mismatch = True, probe_executors(self._spark, self._needs)
        if self._mismatch is not None:
            raise self._mismatch

    def _keep(self, one: _MissingUnit, result: UnitResult | None, cause: str | Failure) -> UnitResult:
        """Write a unit's result, or why it has none. A result whose files the driver can't see counts as none."""
        if result is not None and not self._staging.visible(result):
            result, cause = None, f"its staged files are not visible to the driver below {self._staging.files.root!r}"
        if result is None:
            failure = cause if isinstance(cause, Failure) else _without_result(one, cause)
            result = UnitResult(one.unit, self._attempt, UnitState.FAILED, failure=failure, ended=time.time())
        try:
            kept = self._staging.put_result(one.token, result)
        except GobblinError as error:
            kept = replace(result, state=UnitState.FAILED, failure=Failure.of(error))
        if kept.state is not UnitState.SUCCESSFUL:
            self._note(kept.failure or _without_result(one, f"it is {kept.state.value}"))
        return kept

    def _note(self, failure: Failure) -> None:
        log.error("%s", failure)
        self._failures.append(failure)


class _ProgressLog:
    """An account of how far the copies of a pack have come: in the log, and by records in staging, which the page reads."""

    def __init__(self, staging: Staging, run: str, pack: Pack, attempt: str, missing: Iterable[_MissingUnit]) -> None:
        self._staging, self._run, self._pack, self._attempt = staging, run, pack, attempt
        self._count = ProgressCount((one.files, one.bytes) for one in missing)
        self._lock = threading.Lock()
        self._next = 0.0
        self._number = 0

    def add(self, copied: Iterable[_MissingUnit]) -> None:
        """Count units that are copied, and report, not more often than every few seconds."""
        if not self._count.all_files:
            return
        with self._lock:
            units = list(copied)
            progress = self._count.add(sum(one.files for one in units), sum(one.bytes for one in units))
            if time.monotonic() < self._next and progress.files < progress.all_files:
                return
            log.info("%s: %s", self._pack.label, progress)
            self._next = time.monotonic() + _LOGGED_EVERY
            self._number += 1
            try:
                self._staging.put_progress(self._run, self._pack.index, self._attempt, self._number, progress)
            except GobblinError as error:  # only people miss it
                log.warning("the progress can't be written: %s", error)


def _decoded(row: TaskRow) -> tuple[tuple[str, str], UnitResult]:
    token, record = row
    result = wire.loads(record, UnitResult, "a result from a Spark task")
    return (token, result.unit), result


def _reported(group: _Group, kept: list[UnitResult]) -> GroupReport:
    return GroupReport(
        units=len(group),
        failed=sum(result.state is not UnitState.SUCCESSFUL for result in kept),
        weight=sum(one.weight for one in group),
        bytes=sum(result.bytes_written for result in kept),
        rows=sum(result.rows_written for result in kept),
        seconds=_seconds(kept),
    )


def _seconds(results: list[UnitResult]) -> float:
    """Return how long units took together, some of which may have overlapped."""
    span = max(result.ended for result in results) - min(result.ended - result.seconds for result in results)
    return min(span, sum(result.seconds for result in results))


def _without_result(one: _MissingUnit, cause: str) -> Failure:
    subject = f"unit {one.unit!r} of dataset {one.urn!r}"
    return Failure.of(GobblinError(operation="extract", subject=subject, cause=cause))


def _groups(units: list[_MissingUnit], cores: int, worth: int) -> list[_Group]:
    """Return the units of each Spark task, the heaviest group first; if there are few units, each alone.

    :param worth: the weight that is worth a task; 0: any is.
    """
    tasks = worthwhile_bins(sum(one.weight for one in units), worth, cores, GROUPS_PER_CORE * cores)
    groups = worst_fit_decreasing(units, tasks, weight=lambda one: one.weight, name=lambda one: one.name)
    return sorted(groups, key=lambda group: -sum(one.weight for one in group))


def _by_token(group: _Group) -> dict[str, tuple[str, ...]]:
    """Return the units of a group, by their plan."""
    units: dict[str, list[str]] = {}
    for one in group:
        units.setdefault(one.token, []).append(one.unit)
    return {token: tuple(ids) for token, ids in units.items()}
