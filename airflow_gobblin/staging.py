"""Staging: where a run keeps what isn't published yet, under the target and ignored by its readers.

    _gobblin/<ingestion>-<journal>/
        r/<run>/…                 what `create_work_units` gave for a whole run: job, packs, run plan; and what drivers report
        p/<token>                 a dataset's plan, written once, before anything is staged under its token
        s/<token>/results/…       unit results that stand: the first whose files keep their identity
        s/<token>/<attempt>/…     staged files and failed results of one run of a Spark driver

It is in one place with the target, so that publishing is a link, and visible to workers, driver and executors. In an object
store that keeps uploads open (S3) staged files are uploads to their published names, and only the records are here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import TypeVar

from airflow_gobblin import wire
from airflow_gobblin.errors import GobblinError, StoreError
from airflow_gobblin.files.base import Files, each
from airflow_gobblin.job import ExtractJob
from airflow_gobblin.plan import Plan, RunPlan
from airflow_gobblin.steps import staged_identity
from airflow_gobblin.stores.base import settle
from airflow_gobblin.work import Pack, UnitResult, UnitState

ROOT = "_gobblin"
T = TypeVar("T")


def ingestion_folder(ingestion: str, journal_id: str) -> str:
    """The name of the folders of an ingestion in a journal; another journal has others."""
    return f"{ingestion}-{journal_id[:12]}"


def staging_folder(ingestion: str, journal_id: str) -> str:
    """An ingestion's staging folder below a target root."""
    return f"{ROOT}/{ingestion_folder(ingestion, journal_id)}"


class Staging:
    """An ingestion's staging folder.

    :param files: the file system under the target root. :param folder: as `staging_folder` says.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder
        self._store = files.records(folder)

    def token_folder(self, token: str) -> str:
        """Where a token's files are, below the target root."""
        return f"{self.folder}/s/{token}"

    def put_plan(self, plan: Plan) -> None:
        """Write a plan, before anything is read."""
        settle(self._store, f"p/{plan.token}", wire.dumps(plan))

    def plan(self, token: str) -> Plan | None:
        """A plan; `None` if its token was swept."""
        key = f"p/{token}"
        data = self._store.get(key)
        return None if data is None else wire.loads(data, Plan, key)

    def put_run(self, plan: RunPlan, job: ExtractJob) -> None:
        """Write what a run is to do; its packs can be read one by one."""
        settle(self._store, f"r/{plan.run}/job", wire.dumps(job))
        for pack in plan.packs:
            settle(self._store, f"r/{plan.run}/packs/{pack.index}", wire.dumps(pack))
        settle(self._store, f"r/{plan.run}/run", wire.dumps(plan))

    def run(self, run: str) -> RunPlan | None:
        """What a run is to do; `None` if it was swept."""
        key = f"r/{run}/run"
        data = self._store.get(key)
        return None if data is None else wire.loads(data, RunPlan, key)

    def finish_run(self, run: str) -> None:
        """Mark a run as reported to its end: what it was to do is needed no longer than its tokens."""
        settle(self._store, f"r/{run}/finished", wire.canonical({"run": run}))

    def run_finished(self, run: str) -> bool:
        """Whether `finish_run` was said of it."""
        return self._store.get(f"r/{run}/finished") is not None

    def job(self, run: str) -> ExtractJob:
        """How a run's units are read and written."""
        return self._stands(f"r/{run}/job", ExtractJob)

    def pack(self, run: str, index: int) -> Pack | None:
        """One pack of a run; `None` if it was swept."""
        key = f"r/{run}/packs/{index}"
        data = self._store.get(key)
        return None if data is None else wire.loads(data, Pack, key)

    def put_report(self, run: str, pack: int, attempt: str, report: object) -> None:
        """Write what one run of a Spark driver says of a pack: a record."""
        settle(self._store, f"r/{run}/reports/{pack}.{attempt}", wire.dumps(report))

    def reports(self, run: str, expected: type[T]) -> Iterator[T]:
        """What the runs of Spark drivers said of a run's packs."""
        for key in self._store.list(f"r/{run}/reports/"):
            data = self._store.get(key)
            if data is not None:
                yield wire.loads(data, expected, key)

    def put_result(self, token: str, result: UnitResult) -> UnitResult:
        """Write what running a unit gave, when it is accepted from Spark.

        A successful result is write-once for the unit, and the first whose files are intact stands; any other belongs
        to its attempt.

        :return: the result that stands.
        """
        data = wire.dumps(result)
        if result.state is not UnitState.SUCCESSFUL:
            key = f"s/{token}/{result.attempt}/failed/{result.unit}.{uuid.uuid4().hex}"
            settle(self._store, key, data)
            return result
        for number in range(1000):
            key = f"s/{token}/results/{result.unit}.{number}"
            stored, _ = settle(self._store, key, data)
            standing = wire.loads(stored, UnitResult, key)
            if stored == data or self.intact(standing):
                return standing
        raise StoreError(
            operation="keep",
            subject=f"the result of unit {result.unit!r}",
            cause="1,000 results before it have lost their files",
            hint="Something removes staged files; clear create_work_units once it is found.",
        )

    def result(self, token: str, unit: str) -> UnitResult | None:
        """The successful result of a unit that stands, or `None`."""
        for number in range(1000):
            key = f"s/{token}/results/{unit}.{number}"
            data = self._store.get(key)
            if data is None:
                return None
            result = wire.loads(data, UnitResult, key)
            if self.intact(result):
                return result
        return None

    def results(self, token: str, units: Iterable[str], *, checked: bool = True) -> dict[str, UnitResult]:
        """The successful results that stand, by unit; of many units at once.

        :param checked: look at their files. What publishes them looks, too, so it may begin with the first of each unit.
        """
        keys = {f"s/{token}/results/{unit}.0": unit for unit in units}
        found = self._store.get_many([*keys])
        first = [wire.loads(data, UnitResult, key) for key, data in found if data is not None]
        intact = each(self.files, self.intact, first) if checked else (True for _ in first)
        standing = (r if whole else self.result(token, r.unit) for r, whole in zip(first, intact, strict=True))
        return {result.unit: result for result in standing if result is not None}

    def failed_results(self, token: str) -> dict[str, UnitResult]:
        """The newest failed result of each unit that has one, by when it ended: attempts have no order of their own."""
        results = []
        for attempt in self.files.folders(self.token_folder(token)):
            for key in self._store.list(f"s/{token}/{attempt}/failed/"):
                data = self._store.get(key)
                if data is not None:
                    results.append(wire.loads(data, UnitResult, key))
        return {result.unit: result for result in sorted(results, key=lambda result: result.ended)}

    def intact(self, result: UnitResult) -> bool:
        """Whether a result's files keep their identity."""
        return all(staged_identity(file, self.files) is not None for file in result.files)

    def tokens(self) -> tuple[str, ...]:
        """The tokens that have a plan or a folder."""
        planned = (key.removeprefix("p/") for key in self._store.list("p/"))
        return tuple(sorted({*self.files.folders(f"{self.folder}/s"), *planned}))

    def runs(self) -> tuple[str, ...]:
        """The runs that have a folder."""
        return self.files.folders(f"{self.folder}/r")

    def open_uploads(self) -> tuple[tuple[str, str], ...]:
        """The target and the id of every upload below the target root that isn't completed."""
        return () if self.files.uploads is None else tuple(self.files.uploads.open_below("."))

    def abort_upload(self, target: str, upload: str) -> None:
        """Throw the parts of an upload away. :param upload: its id."""
        if self.files.uploads is not None:
            self.files.uploads.abort(target, upload)

    def remove_token(self, token: str) -> None:
        """Remove a token's folder, and then its plan: what has a plan can be swept again."""
        self.files.remove_tree(self.token_folder(token))
        self._store.delete(f"p/{token}")

    def remove_run(self, run: str) -> None:
        """Remove what a run was to do."""
        self.files.remove_tree(f"{self.folder}/r/{run}")

    def _stands(self, key: str, expected: type[ExtractJob]) -> ExtractJob:
        data = self._store.get(key)
        if data is None:
            raise StoreError(
                operation="read",
                subject=f"{key!r} in {self._store.name}",
                cause="it is not there",
                hint="The run was swept after a newer one took its ranges. Clear create_work_units to plan anew.",
            )
        return wire.loads(data, expected, key)

    def plans(self) -> Iterator[tuple[str, Plan | GobblinError | None]]:
        """Every token with its plan, or the error of reading it; `None` where it was swept and a late attempt wrote on."""
        for token in self.tokens():
            try:
                yield token, self.plan(token)
            except GobblinError as error:
                yield token, error
