"""Staging: where a run keeps what isn't published yet, under the target and ignored by its readers.

    _gobblin/<ingestion>-<journal>/
        r/<run>/…                 output of `create_work_units` for a whole run: job, packs, run plan; and drivers' reports
        r/<run>/again/<dataset>/… the plans that took the place of a dataset's first one, in order; the newest is valid
        h/<number>                what waits for datasets that are held; the newest is valid
        p/<token>                 a dataset's plan, written once, before anything is staged under its token
        s/<token>/units/…         the units that a large plan has no room for
        s/<token>/results/…       valid unit results: the first whose files keep their identity; those of a plan that is
                                  read in one snapshot below a folder for each
        s/<token>/parts/<unit>/…  results of the parts of a unit that is run in parts
        s/<token>/unwritten/…     why its commit steps could not be written
        s/<token>/<attempt>/…     staged files and failed results of one run of a Spark driver; in `whole` a new file set

On a file system only users who may write to the target can read it. It shares the target's file system, so that publishing is a
link, and is visible to workers, driver and executors. In an object store that keeps uploads open (S3), staged files are uploads
to their published names, and only the records are here.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby, islice
from typing import TypeVar

from airflow_gobblin.errors import (
    ConfigurationError,
    GobblinError,
    LostRaceError,
    RecordError,
    Remedy,
    StepLostError,
    StoreError,
    TargetError,
)
from airflow_gobblin.job import ReusingWork, Work
from airflow_gobblin.model import plan as plans
from airflow_gobblin.model import wire
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.plan import (
    FinishedRun,
    HeldDatasets,
    Plan,
    PlannedAgain,
    PlanPiece,
    RunPlan,
    UnwrittenSteps,
)
from airflow_gobblin.model.progress import Progress
from airflow_gobblin.model.work import BegunUnit, DatasetRef, Pack, StagedFile, UnitResult, UnitState, WorkUnit
from airflow_gobblin.steps.publishing import staged_identity
from airflow_gobblin.storage.files.base import OWN_FOLDER, Files, each
from airflow_gobblin.storage.stores.base import put_or_read

ROOT = OWN_FOLDER
MARKS = "marks/"
"""The prefix of the records in an ingestion's staging folder that identify its target: see `homes.py`."""
KEPT = 10_000
"""How many results, with their files, are kept in memory so as to be read only once: some MB."""
_FILES_TOGETHER = 2_000
"""The number of files from which on no more results are held in memory to be looked at."""
T = TypeVar("T")


def ingestion_folder(ingestion: str, journal_id: str) -> str:
    """Return the name of an ingestion's folders, which differs from journal to journal."""
    return f"{ingestion}-{journal_id[:12]}"


def check_no_link(files: Files, folder: str, urn: str) -> None:
    """Make sure that neither a dataset's folder nor the target's own folder is a link to elsewhere, or on another disk.

    :raises ConfigurationError: one of them is: files would be published elsewhere, perhaps into another dataset's folder, or
        couldn't be, once they are decided.
    """
    for path in (ROOT, folder):
        where = files.leads_to(path)
        if where is not None:
            raise ConfigurationError(
                operation="publish",
                subject=f"dataset {urn!r} to {files.root}/{folder}",
                cause=f"{files.root}/{path} is a link or another disk, or is in one, and leads to {where}",
                hint="Put a folder in its place, or make the place that it leads to the target.",
            )


def staging_folder(ingestion: str, journal_id: str) -> str:
    """Return an ingestion's staging folder, below the workspace root."""
    return f"{ROOT}/{ingestion_folder(ingestion, journal_id)}"


class Staging:
    """An ingestion's staging folder.

    :param files: the file system under the workspace root.
    :param folder: as returned by `staging_folder`.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder
        self._store = files.records(folder)

    def token_folder(self, token: str) -> str:
        """Return the folder of a token's files, below the workspace root."""
        return f"{self.folder}/s/{token}"

    def put_plan(self, plan: Plan, units: Iterable[WorkUnit] = ()) -> None:
        """Write a plan, before anything is read, and then the units that it has no room for, as they come.

        :param plan: the plan without its units.
        """
        self.files.make_private(self.folder)
        pieces = _pieces(units)
        first, more = next(pieces, ((), False))
        put_or_read(self._store, f"p/{plan.token}", wire.dumps(replace(plan, units=first, more=more)))
        for number, (some, more) in enumerate(pieces):
            put_or_read(self._store, _piece(plan.token, number), wire.dumps(PlanPiece(some, more)))

    def plan(self, token: str) -> Plan | None:
        """Return a plan; `None` if its token was swept."""
        key = f"p/{token}"
        data = self._store.get(key)
        return None if data is None else wire.loads(data, Plan, key)

    def units(self, plan: Plan) -> Iterator[WorkUnit]:
        """Yield the units of a plan, a piece at a time in memory.

        :raises LostRaceError: its token was swept meanwhile.
        """
        yield from plan.units
        more, number = plan.more, 0
        while more:
            key = _piece(plan.token, number)
            data = self._store.get(key)
            if data is None:
                raise LostRaceError(
                    operation="read",
                    subject=f"the work units of dataset {plan.urn!r}",
                    cause="its plan could win no more and was swept",
                    hint="Nothing of this plan was published.",
                    remedy=Remedy.PLAN,
                )
            piece = wire.loads(data, PlanPiece, key)
            yield from piece.units
            more, number = piece.more, number + 1

    def units_done(self, plan: Plan) -> Iterator[tuple[WorkUnit, bool]]:
        """Yield the units of a plan, each with whether it has a valid result.

        :raises LostRaceError: as `units`.
        """
        snapshot = self.snapshot(plan)
        if plan.one_snapshot and not self._all_read_in(plan, snapshot):
            yield from ((unit, False) for unit in self.units(plan))  # the next driver has another one
            return
        for some in batched(self.units(plan)):
            done = self.done_units(plan.token, (unit.id for unit in some), snapshot)
            yield from ((unit, unit.id in done) for unit in some)

    def snapshot(self, plan: Plan) -> str:
        """Return the folder of the snapshot in which drivers read the most valid results of a plan's units.

        :return: the folder; empty if the plan wants no snapshot, or none has results.
        :raises LostRaceError: as `units`.
        """
        folders = self.files.folders(f"{self.token_folder(plan.token)}/results") if plan.one_snapshot else ()
        return max(folders, key=lambda folder: self._read_in(plan, folder), default="")

    def _read_in(self, plan: Plan, snapshot: str) -> int:
        """Count the units that have a valid result in one snapshot."""
        some = batched(self.units(plan))
        return sum(len(self.done_units(plan.token, (unit.id for unit in units), snapshot)) for units in some)

    def _all_read_in(self, plan: Plan, snapshot: str) -> bool:
        return bool(snapshot) and self._read_in(plan, snapshot) == sum(1 for _ in self.units(plan))

    def put_run(self, plan: RunPlan, work: Work) -> None:
        """Write the plan of a run; its packs can be read one by one.

        The run plan is written before anything else in its folder, so that the run can be judged however far it came.
        """
        put_or_read(self._store, f"r/{plan.run}/run", wire.dumps(plan))

        def put(record: tuple[str, Work | Pack]) -> None:
            put_or_read(self._store, f"r/{plan.run}/{record[0]}", wire.dumps(record[1]))

        packs: Iterable[tuple[str, Work | Pack]] = ((f"packs/{pack.index}", pack) for pack in plan.packs)
        for _ in each(self.files, put, chain([("work", work)], packs)):  # each waits for the disk or the store
            pass

    def run(self, run: str) -> RunPlan | None:
        """Return the plan of a run, with the newest plan of each dataset where the run goes on; `None` if it was swept."""
        key = f"r/{run}/run"
        data = self._store.get(key)
        if data is None:
            return None
        found = wire.loads(data, RunPlan, key)
        return (
            found if not found.goes_on else replace(found, packs=tuple(self._newest(run, pack) for pack in found.packs))
        )

    def put_again(self, run: str, before: DatasetRef, ref: DatasetRef) -> None:
        """Write the plan that replaces another, unless that was replaced meanwhile; of two at once, one counts."""
        prefix = f"r/{run}/again/{dataset_key(ref.urn)}/"
        names = sorted(self._store.list(prefix))
        newest = self._again(names[-1]) if names else before
        if newest is not None and newest.token == before.token:
            put_or_read(self._store, f"{prefix}{len(names) + 1:06d}", wire.dumps(PlannedAgain(ref)))

    def plans_again(self, run: str, urn: str) -> int:
        """Return how many plans have replaced a dataset's first one."""
        return len([*self._store.list(f"r/{run}/again/{dataset_key(urn)}/")])

    def _newest(self, run: str, pack: Pack) -> Pack:
        """Return a pack with the plans that replaced others."""
        prefix = f"r/{run}/again/"
        newest = {key.removeprefix(prefix).split("/")[0]: key for key in sorted(self._store.list(prefix))}
        again = {name: self._again(key) for name, key in newest.items()}
        return replace(pack, datasets=tuple(again.get(dataset_key(ref.urn)) or ref for ref in pack.datasets))

    def _again(self, key: str) -> DatasetRef | None:
        """Return a plan that replaced another; `None` if it was swept."""
        data = self._store.get(key)
        return None if data is None else wire.loads(data, PlannedAgain, key).ref

    def finish_run(self, run: str, done: Iterable[str] = ()) -> None:
        """Mark a run as fully reported: its plan is needed no longer than its tokens.

        :param done: its tokens whose slots were done; only the first call counts.
        """
        put_or_read(self._store, f"r/{run}/finished", wire.dumps(FinishedRun(tuple(done))))

    def finish_earlier_tries(self, plan: RunPlan) -> None:
        """Mark the other runs with the same run key as over: the plans of earlier tries are no longer wanted."""
        for run in self.runs():
            with suppress(RecordError):  # the sweep logs it, and keeps the run
                found = self.run(run)
                if found is not None and run != plan.run and found.run_key == plan.run_key:
                    self.finish_run(run)

    def finished_run(self, run: str) -> FinishedRun | None:
        """Return what `finish_run` first wrote for a run."""
        key = f"r/{run}/finished"
        data = self._store.get(key)
        return None if data is None else wire.loads(data, FinishedRun, key)

    def work(self, run: str) -> Work:
        """Return how a run's units are run and published."""
        key = f"r/{run}/work"
        data = self._store.get(key)
        if data is None:
            self.check_shared()
            raise StoreError(
                operation="read",
                subject=f"{key!r} in {self._store.name}",
                cause="it is not there",
                hint="The run was swept after a newer one took its ranges.",
                remedy=Remedy.PLAN,
            )
        return wire.loads(data, Work, key)  # type: ignore[type-abstract]

    def pack(self, run: str, index: int) -> Pack | None:
        """Return one pack of a run, with the newest plan of each dataset; `None` if it was swept."""
        key = f"r/{run}/packs/{index}"
        data = self._store.get(key)
        return None if data is None else self._newest(run, wire.loads(data, Pack, key))

    def held(self) -> HeldDatasets | None:
        """Return the datasets that are held, as the newest run that planned them found them."""
        for key in sorted(self._store.list("h/"), reverse=True):
            data = self._store.get(key)
            if data is not None:
                return wire.loads(data, HeldDatasets, key)
        return None

    def put_held(self, held: HeldDatasets) -> None:
        """Write the datasets that are held, replacing those before."""
        before = sorted(self._store.list("h/"))
        number = int(before[-1].removeprefix("h/")) + 1 if before else 0
        put_or_read(self._store, f"h/{number:012d}", wire.dumps(held))
        for key in before:
            self._store.delete(key)

    def put_report(self, run: str, pack: int, attempt: str, report: object) -> None:
        """Write the report of one run of a Spark driver on a pack, as a record."""
        put_or_read(self._store, f"r/{run}/reports/{pack}.{attempt}", wire.dumps(report))

    def reports(self, run: str, expected: type[T]) -> Iterator[T]:
        """Yield the reports of Spark drivers on a run's packs."""
        for key in self._store.list(f"r/{run}/reports/"):
            data = self._store.get(key)
            if data is not None:
                yield wire.loads(data, expected, key)

    def put_progress(self, run: str, pack: int, attempt: str, number: int, progress: Progress) -> None:
        """Write how far a run of a Spark driver has come with a pack.

        :param number: rises with each of that run.
        """
        put_or_read(self._store, f"r/{run}/progress/{pack}.{attempt}.{number:06d}", wire.dumps(progress))

    def progress(self, run: str, pack: int) -> Progress | None:
        """Return the latest progress of a pack's drivers."""
        newest: dict[str, str] = {}
        for key in self._store.list(f"r/{run}/progress/{pack}."):
            driver = key.rpartition(".")[0]
            newest[driver] = max(key, newest.get(driver, ""))
        read = ((key, self._store.get(key)) for key in newest.values())
        found = (wire.loads(data, Progress, key) for key, data in read if data is not None)
        return max(found, key=lambda one: one.at, default=None)

    def put_result(self, token: str, result: UnitResult) -> UnitResult:
        """Write the result of a unit when it is accepted from Spark.

        A successful result is write-once for the unit: the first whose files are intact is the valid one, of those read in its
        snapshot. Any other result belongs to its attempt.

        :return: the valid result.
        """
        data = wire.dumps(result)
        if result.state is not UnitState.SUCCESSFUL:
            key = f"s/{token}/{result.attempt}/failed/{result.unit}.{uuid.uuid4().hex}"
            put_or_read(self._store, key, data)
            return result
        for number in range(1000):
            key = _result(token, result.unit, number, _snapshot_folder(result.snapshot))
            stored, _ = put_or_read(self._store, key, data)
            if stored == data:
                return result
            earlier = wire.loads(stored, UnitResult, key)
            if self.intact(earlier):
                return earlier
        raise StoreError(
            operation="keep",
            subject=f"the result of unit {result.unit!r}",
            cause="1,000 results before it have lost their files",
            hint="Something removes staged files: find out what.",
            remedy=Remedy.PLAN,
        )

    def result(self, token: str, unit: str, snapshot: str = "") -> UnitResult | None:
        """Return the valid, successful result of a unit, or `None`.

        :param snapshot: the folder of its snapshot, if it has one.
        """
        found = self._valid_result(token, unit, snapshot)
        return None if found is None else found[1]

    def _valid_result(self, token: str, unit: str, snapshot: str) -> tuple[int, UnitResult] | None:
        for number in range(1000):
            key = _result(token, unit, number, snapshot)
            data = self._store.get(key)
            if data is None:
                return None
            result = wire.loads(data, UnitResult, key)
            if self.intact(result):
                return number, result
        return None

    def results(
        self, token: str, units: Iterable[str], snapshot: str = "", *, checked: bool = True
    ) -> Iterator[tuple[int, UnitResult]]:
        """Yield the valid, successful results, in the order of the units, each with its number; few of them in memory at once.

        :param snapshot: the folder of the snapshot that they were read in, if any.
        :param checked: check their files. Publishing checks them, too, so it may begin with the first result of each unit.
        """
        first = self._read_results(token, [(unit, 0) for unit in units], snapshot)
        for result, whole in self._looked_at(first) if checked else ((result, True) for result in first):
            valid = (0, result) if whole else self._valid_result(token, result.unit, snapshot)
            if valid is not None:
                yield valid

    def done_units(self, token: str, units: Iterable[str], snapshot: str = "") -> frozenset[str]:
        """Return those of some units that have a valid result.

        :param snapshot: as in `results`.
        """
        return frozenset(result.unit for _, result in self.results(token, units, snapshot))

    def count_results(self, token: str) -> int:
        """Return how many valid results a plan's units once had."""
        return sum(1 for _ in self._store.list(f"s/{token}/results/"))

    def has_results(self, token: str) -> bool:
        """Return whether a try of any of a plan's units has ended."""
        return self.count_results(token) > 0 or bool(self._readable_failed_results(token))

    def same_results(self, token: str, numbers: Mapping[str, int], snapshot: str = "") -> Iterator[UnitResult]:
        """Yield the same results as read before, in the order of the units.

        :param numbers: the number of each unit's result.
        :param snapshot: as in `results`.
        :raises StepLostError: one is gone because its token was swept.
        """
        read = self._read_results(token, [*numbers.items()], snapshot)
        for unit in numbers:
            result = next(read, None)
            if result is None or result.unit != unit:
                raise StepLostError(
                    operation="publish",
                    subject=f"the result of unit {unit!r}",
                    cause="it is gone from staging",
                    remedy=Remedy.EXTRACT,
                )
            yield result

    def _read_results(self, token: str, wanted: Sequence[tuple[str, int]], snapshot: str) -> Iterator[UnitResult]:
        """Read the results that exist, valid or not.

        :param wanted: units, and the numbers of their results.
        """
        found = self._store.get_many([_result(token, *of, snapshot) for of in wanted])
        return (wire.loads(data, UnitResult, key) for key, data in found if data is not None)

    def _looked_at(self, results: Iterable[UnitResult]) -> Iterator[tuple[UnitResult, bool]]:
        """Yield each result, and whether its files keep their identity, checking as many files at once as is worthwhile."""
        for together in _of_some_files(results):
            files = ((result, file) for result in together for file in _one_of_each_segment(result) or (None,))
            looked = each(self.files, lambda of: (of[0], of[1] is None or self._is_there(of[1])), files)
            for _, found in groupby(looked, key=lambda of: of[0].unit):
                some = [*found]
                yield some[0][0], all(there for _, there in some)

    def failed_results(self, token: str) -> dict[str, UnitResult]:
        """Return the newest failed result of each unit that has one."""
        return {unit: results[-1] for unit, results in self.all_failed_results(token).items()}

    def cut_results(self, token: str) -> dict[str, UnitResult]:
        """Return what can be published of each unit that failed: from the try that came furthest, if its files are intact."""
        found: dict[str, UnitResult] = {}
        for unit, results in self.all_failed_results(token).items():
            cuts = (result.cut for result in sorted(results, key=lambda result: -result.rows_read))
            best = next((cut for cut in cuts if cut is not None and self.intact(cut)), None)
            if best is not None:
                found[unit] = best
        return found

    def all_failed_results(self, token: str) -> dict[str, list[UnitResult]]:
        """Return the failed results of each unit that has some, sorted by their end: attempts have no order of their own."""
        found: dict[str, list[UnitResult]] = {}
        for attempt in self.files.folders(self.token_folder(token)):
            for key, data in self._store.get_many([*self._store.list(f"s/{token}/{attempt}/failed/")]):
                if data is not None:
                    result = wire.loads(data, UnitResult, key)
                    found.setdefault(result.unit, []).append(result)
        return {unit: sorted(results, key=lambda result: result.ended) for unit, results in found.items()}

    def with_finished(self, work: Work, token: str, units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
        """Yield units of a plan, each with the files that failed tries of it finished, if its work can take them."""
        if not isinstance(work, ReusingWork):
            yield from units
            return
        failed: dict[str, list[UnitResult]] | None = None
        for unit in units:
            if failed is None:
                failed = self._readable_failed_results(token)
            finished = dict(unit.finished)
            for result in failed.get(unit.id, ()):
                finished |= work.finished(unit, result, self.token_folder(token))
            yield replace(unit, finished=finished)

    def _readable_failed_results(self, token: str) -> dict[str, list[UnitResult]]:
        try:
            return self.all_failed_results(token)
        except RecordError:
            return {}  # everything that they finished is made again

    def put_part(self, token: str, parts: int, number: int, result: UnitResult) -> None:
        """Write the result of a unit's part that succeeded, for the next driver if the unit fails.

        :param parts: the number of parts; with another number, none is the same.
        """
        key = f"{_parts(token, result.unit, parts)}{number:06d}.{uuid.uuid4().hex}"
        put_or_read(self._store, key, wire.dumps(result))

    def part_results(self, begun: Iterable[BegunUnit], parts: int) -> dict[int, list[UnitResult]]:
        """Return the results of parts by their numbers.

        :param begun: the units that they belong to.
        :param parts: the number of parts of each.
        """
        found: dict[int, list[UnitResult]] = {}
        for prefix in (_parts(one.token, one.unit, parts) for one in begun):
            for key, data in self._store.get_many([*self._store.list(prefix)]):
                number = int(key.removeprefix(prefix).partition(".")[0])
                with suppress(RecordError):  # it is run again
                    if data is not None:
                        found.setdefault(number, []).append(wire.loads(data, UnitResult, key))
        return found

    def units_begun(self, token: str) -> frozenset[str]:
        """Return the units of a plan that have parts that are done."""
        return frozenset(self.files.folders(f"{self.token_folder(token)}/parts"))

    def put_unwritten(self, token: str, failure: Failure, at: datetime) -> None:
        """Write why a plan's commit steps could not be written, unless that is the newest reason. Of two at once, one counts."""
        if self.unwritten(token) != failure:
            number = sum(1 for _ in self._store.list(f"s/{token}/unwritten/"))
            put_or_read(self._store, f"s/{token}/unwritten/{number:06d}", wire.dumps(UnwrittenSteps(failure, at)))

    def unwritten(self, token: str) -> Failure | None:
        """Return why the commit steps of a plan could not be written the last time; `None` if that never failed."""
        last = max(self._store.list(f"s/{token}/unwritten/"), default=None)
        data = None if last is None else self._store.get(last)
        return None if data is None else wire.loads(data, UnwrittenSteps, last or "").failure

    def intact(self, result: UnitResult) -> bool:
        """Return whether a result's files keep their identity."""
        return all(self._is_there(file) for file in _one_of_each_segment(result))

    def visible(self, result: UnitResult) -> bool:
        """Return whether this process sees the files of a result, as the last one shows; publishing checks each."""
        return all(map(self._is_there, result.files[-1:]))

    def _is_there(self, file: StagedFile) -> bool:
        return staged_identity(file, self.files) is not None

    def tokens(self) -> tuple[str, ...]:
        """List the tokens that have a plan or a folder."""
        planned = (key.removeprefix("p/") for key in self._store.list("p/"))
        return tuple(sorted({*self.files.folders(f"{self.folder}/s"), *planned}))

    def runs(self) -> tuple[str, ...]:
        """List the runs that have a folder."""
        return self.files.folders(f"{self.folder}/r")

    def had_room(self) -> dict[str, datetime]:
        """Return when a run, whose plan is still here, last had room for each dataset that it hasn't published."""
        last: dict[str, datetime] = {}
        for run in self.runs():
            with suppress(RecordError):  # the sweep logs it, and keeps the run
                found = self.run(run)
                if found is not None and found.at is not None:
                    urns = (ref.urn for pack in found.packs for ref in pack.datasets)
                    last |= {urn: max(found.at, last.get(urn, found.at)) for urn in urns}
        return last

    def was_removed(self, run: str) -> bool:
        """Return whether a run was removed, and a late driver wrote to it again."""
        names = {*self._store.list(f"r/{run}/")}
        return bool(names) and f"r/{run}/run" not in names

    def open_uploads(self) -> tuple[tuple[str, str], ...]:
        """List the target and the id of every incomplete upload below the target root."""
        return () if self.files.uploads is None else tuple(self.files.uploads.open_below("."))

    def abort_upload(self, target: str, upload: str) -> None:
        """Discard the parts of an upload.

        :param upload: its id.
        """
        if self.files.uploads is not None:
            self.files.uploads.abort(target, upload)

    def remove_token(self, token: str) -> None:
        """Remove a token's folder, and then its plan: a token with a plan can be swept again.

        Uploads that its results name are aborted first: in a mirror, an upload's name doesn't show whose it is.
        """
        for file in self._uploads_of_a_mirror(token):
            if file.upload is not None:
                self.abort_upload(file.path, file.upload.id)
        self.files.remove_tree(self.token_folder(token))
        self._store.delete(f"p/{token}")

    def _uploads_of_a_mirror(self, token: str) -> Iterator[StagedFile]:
        """Yield the staged files of a mirror's plan; none for rows, whose uploads are found by the token in their names."""
        if self.files.uploads is None:
            return
        with suppress(RecordError):  # a plan that can't be read names no upload
            plan = self.plan(token)
            if plan is None or plan.holds.keeps_units:
                return
            for kind in ("results", "parts"):
                for _, data in self._store.get_many([*self._store.list(f"s/{token}/{kind}/")]):
                    if data is not None:
                        yield from wire.loads(data, UnitResult, token).files

    def remove_empty_run(self, run: str) -> None:
        """Remove the folder of a run if it is empty; a writer that is about to use it creates it again."""
        self.files.remove_folder(f"{self.folder}/r/{run}")

    def remove_run(self, run: str) -> None:
        """Remove a run's folder, with its plan and reports."""
        self.files.remove_tree(f"{self.folder}/r/{run}")

    def check_shared(self) -> None:
        """Make sure that this host sees the target that a run was planned for.

        :raises TargetError: the target has no mark here.
        """
        if next(iter(self._store.list(MARKS)), None) is None:
            raise TargetError(
                operation="use",
                subject=f"target {self.files.root}",
                cause=f"on host {socket.gethostname()!r} it lacks the mark in {self.folder}/{MARKS} that was put there when the "
                "run was planned",
                hint="It must be on a file system that workers, driver and executors share: mount it here.",
                remedy=Remedy.REPEAT,
            )

    def plans(self) -> Iterator[tuple[str, Plan | GobblinError | None]]:
        """Yield every token with its plan, or the error of reading it; `None` if it was swept and a late attempt kept writing."""
        for token in self.tokens():
            try:
                yield token, self.plan(token)
            except GobblinError as error:
                yield token, error


class PlanResults:
    """The valid results of a plan, read on demand: first those of all units, and then again those to publish.

    They are kept while they are few; of the others only the numbers are kept, to read the same ones again. If the plan wants one
    snapshot, all are from the snapshot with the most results.

    :param checked: as in `Staging.results`.
    :param cut: whether the result of a unit that failed is what it read before.
    """

    def __init__(self, staging: Staging, plan: Plan, *, checked: bool, cut: bool = False) -> None:
        self._staging = staging
        self._cut = cut
        self._cuts: Mapping[str, UnitResult] | None = None
        self._plan = plan
        self._snapshot = staging.snapshot(plan)
        self._checked = checked
        self._count = 0
        self._kept: dict[str, UnitResult] = {}
        self._numbers: dict[str, int] = {}

    def read(self, units: Iterable[str]) -> Iterator[UnitResult]:
        """Yield the results of some units; ask for each unit once."""
        left = dict.fromkeys(units)
        for number, result in self._staging.results(self._plan.token, [*left], self._snapshot, checked=self._checked):
            del left[result.unit]
            if self._count < KEPT:
                self._kept[result.unit] = result
            else:
                self._numbers[result.unit] = number
            self._count += 1 + len(result.files)
            yield result

        if left and self._cut:
            yield from self._cut_of(left)

    def _cut_of(self, units: Iterable[str]) -> Iterator[UnitResult]:
        """Yield what can be published of units that failed: these results are kept, however many there are."""
        if self._cuts is None:
            self._cuts = self._staging.cut_results(self._plan.token)
        for unit in units:
            if unit in self._cuts:
                self._kept[unit] = self._cuts[unit]
                yield self._cuts[unit]

    def with_units(self, units: Collection[str]) -> Iterator[tuple[WorkUnit, UnitResult]]:
        """Yield some units of the plan, each with its result as it was read; this may be repeated.

        :raises StepLostError: a result is gone.
        :raises LostRaceError: as `Staging.units`.
        """
        numbers = {unit: number for unit, number in self._numbers.items() if unit in units}
        again = self._staging.same_results(self._plan.token, numbers, self._snapshot)
        for unit in self._staging.units(self._plan):
            if unit.id in units:
                yield unit, self._kept[unit.id] if unit.id in self._kept else next(again)


def batched(units: Iterable[WorkUnit]) -> Iterator[tuple[WorkUnit, ...]]:
    """Split units into batches as large as a piece of a plan."""
    rest = iter(units)
    while some := tuple(islice(rest, plans.UNITS_TOGETHER)):
        yield some


def _pieces(units: Iterable[WorkUnit]) -> Iterator[tuple[tuple[WorkUnit, ...], bool]]:
    """Split units into pieces of a plan, each with whether another follows."""
    before: tuple[WorkUnit, ...] | None = None
    for some in batched(units):
        if before is not None:
            yield before, True
        before = some
    if before is not None:
        yield before, False


def _piece(token: str, number: int) -> str:
    return f"s/{token}/units/{number:06d}"


def _result(token: str, unit: str, number: int, snapshot: str) -> str:
    return f"s/{token}/results/{snapshot and snapshot + '/'}{unit}.{number}"


def _parts(token: str, unit: str, parts: int) -> str:
    return f"s/{token}/parts/{unit}/{parts}/"


def _snapshot_folder(snapshot: str) -> str:
    """Return the folder of the results read in a snapshot; a custom source may give the snapshot any name."""
    return snapshot and wire.digest(snapshot.encode())[:16]


def _of_some_files(results: Iterable[UnitResult]) -> Iterator[list[UnitResult]]:
    """Yield results in groups with a bounded number of files, few of which may need to be looked at: one of each segment."""
    together: list[UnitResult] = []
    count = 0
    for result in results:
        together.append(result)
        count += 1 + len(result.files)
        if count >= _FILES_TOGETHER:
            yield together
            together, count = [], 0
    if together:
        yield together


def _one_of_each_segment(result: UnitResult) -> tuple[StagedFile, ...]:
    """Return the files of a result; only the last of those that lie in one staged object."""
    return (*{file.path if file.segment is None else file.segment.path: file for file in result.files}.values(),)
