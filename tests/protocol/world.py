"""A small world for the protocol: a target, a journal, processes that run the stages, and a check of the result."""

from __future__ import annotations

import posixpath
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, cast

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import GobblinError, RecordError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Decision, NoteKind, ShardRef
from airflow_gobblin.journal.seals import Seals, content, is_valid
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark
from airflow_gobblin.model.work import Pack
from airflow_gobblin.rows import extraction
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.rows.work import RowsWork
from airflow_gobblin.run.announce import note_announced, unannounced
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files import Files, LocalFiles, open_files
from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.storage.locations import object_location
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.storage.stores.objects import open_object_store
from airflow_gobblin.storage.stores.sql import SqlStore
from airflow_gobblin.workspace.staging import ROOT
from tests.faults import Disk, Faults, FaultyFiles, FaultyStore, RealMedium, plugged_in
from tests.protocol.acts import ACTS, Fences, TakeStep, is_ticket
from tests.protocol.processes import Send, in_fresh_process
from tests.protocol.rows import EvenRows, LineSink, RowSource, Table, dead_row, is_even
from tests.protocol.topics import is_lost
from tests.services.s3 import S3Access

NAME = "flights"
MINE = "mine.txt"
"""A file of the user's own, in the folder of each dataset."""
UNREAD = (NoteKind.ANNOUNCED.value, NoteKind.CLEANED.value)
"""The ends of the keys of notes whose content no rule rests on: their existence is enough."""
RAISING = frozenset((Action.REWIND, Action.SET, Action.IMPORT, Action.DROP))
"""The actions that make plans from before them lose (rule 10)."""
PAUSING = frozenset((Action.PAUSE, Action.RESUME))
"""The actions that may follow a slot that is unfinished."""
PUBLISHING = frozenset((Action.COMMIT, Action.NOOP))
"""The actions that runs decide."""
TRIES = 3
"""How often a task that raises is tried."""


@dataclass(frozen=True)
class Place:
    """The place of a world.

    :param store: `local`, `sqlite`, the URL of a PostgreSQL database, which this place has for itself, or a bucket, in which it
        has the prefix of its folder: then the target is there, too.
    :param acts: as of a `LineSink`.
    :param layout: how the files of a dataset lie in its folder.
    :param backfill: what a run there asks for, if not everything open.
    :param letters: whether every second row is a dead letter.
    :param topics: whether the datasets are topics.
    :param origin: the folder whose copy this is; its processes see it at that path, as if mounted there.
    """

    folder: Path
    store: str | Bucket
    layout: Layout = Layout.FLAT
    backfill: RunRequest | None = None
    acts: Fences | None = None
    origin: Path | None = None
    letters: bool = False
    topics: bool = False

    def copy(self, to: Path) -> Place:
        return replace(self._copied(to), origin=self.origin or self.folder)

    def _copied(self, to: Path) -> Place:
        shutil.copytree(self.folder, to, ignore=lambda _, names: [n for n in names if n.startswith("attic-")])
        if isinstance(self.store, Bucket):
            self.store.copy(self.folder, to)
            return replace(self, folder=to)
        return replace(self, folder=to, store=_copy_database(self.store) if "://" in self.store else self.store)

    def disk(self) -> Disk:
        """A disk under it, on which everything is durable."""
        return Disk(RealMedium(str(self.folder), f"{self.folder}/attic-0"))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if isinstance(self.store, str) and "://" in self.store:
            with _admin(self.store) as connection:
                connection.execute(f'DROP DATABASE "{self.store.rpartition("/")[2]}" WITH (FORCE)')


@dataclass(frozen=True)
class Bucket:
    """A bucket of an S3 server. Nothing of it is open in a process that forks others."""

    access: S3Access
    name: str

    def url(self, folder: Path, name: str) -> str:
        """The URL of something that belongs to a place, by its name there."""
        return self.access.url(f"{self.name}{folder.as_posix()}/{name}")

    def copy(self, folder: Path, to: Path) -> None:
        """Copy what belongs to a place."""

        def work(send: Send) -> None:
            before = f"{self.name}{folder.as_posix()}"
            there = object_location(self.access.url(before))
            assert there is not None
            fs = open_filesystem(there, self.access)
            names = fs.find(before)
            fs.copy(names, [f"{self.name}{to.as_posix()}{name.removeprefix(before)}" for name in names])

        in_fresh_process(work)


def _copy_database(url: str) -> str:
    name = f"copy_{uuid.uuid4().hex}"
    with _admin(url) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{url.rpartition("/")[2]}"')
    return f"{url.rpartition('/')[0]}/{name}"


def _admin(url: str) -> psycopg.Connection:
    return psycopg.connect(f"{url.rpartition('/')[0]}/postgres", autocommit=True)


class _Mounted:
    """Files that are seen where others were: a copied target is refused, unless it was moved explicitly."""

    def __init__(self, files: Files, there: Files) -> None:
        self._files = files
        self.root = there.root

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class World:
    """A place, as one process sees it.

    :param disk: the disk under it, which outlives processes, if syncs are to be tracked.
    """

    def __init__(self, place: Place, disk: Disk | None = None) -> None:
        self.place = place
        self.disk = disk
        if disk is not None:
            plugged_in.append(disk)
        self._stores: list[Store] = []
        self._own: Store | None = None
        for name in ("target", "journal"):
            folder = place.folder / name
            folder.mkdir(parents=True, exist_ok=True)

    def open_store(self, faults: Faults) -> Store:
        match self.place.store:
            case Bucket() as bucket:
                found = object_location(bucket.url(self.place.folder, "journal"))
                assert found is not None
                self._stores.append(open_object_store(found, bucket.access))
            case "local":
                self._stores.append(LocalStore(self.files("journal", faults)))
            case "sqlite":
                self._stores.append(SqlStore(f"sqlite:///{self.place.folder}/journal/journal.db"))
            case url:
                self._stores.append(SqlStore(url))
        return self._stores[-1]

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def files(self, name: str, faults: Faults) -> Files:
        found = self._files_in(self.place.folder, name)
        return FaultyFiles(found, faults, self.disk, name, seen_at=self.real_files(name).root)

    def real_files(self, name: str) -> Files:
        found = self._files_in(self.place.folder, name)
        return (
            found
            if self.place.origin is None
            else cast(Files, _Mounted(found, self._files_in(self.place.origin, name)))
        )

    def _files_in(self, folder: Path, name: str) -> Files:
        if isinstance(self.place.store, Bucket):
            return open_files(self.place.store.url(folder, name), self.place.store.access)
        return LocalFiles(folder / name)

    def process(self, source: RowSource, faults: Faults | None = None, **options: object) -> Process:
        """A fresh process."""
        faults = faults or Faults()
        store = FaultyStore(self.open_store(faults), faults)
        if self.place.letters:
            options["checks"] = (EvenRows(),)
        return Process(store, self.files("target", faults), source, self.place.layout, acts=self.place.acts, **options)

    def look(self) -> Look:
        """The world, seen without any fault."""
        if self._own is None:
            self._own = self.open_store(Faults())
        return Look(Journal.create(self._own, NAME), self.real_files("target"))


@lru_cache(maxsize=100)
def _ingestion(source: RowSource, sink: LineSink, options: tuple[tuple[str, object], ...]) -> Ingestion:
    settings = {"max_packs": 2, "retention": timedelta(0), **dict(options)}
    return Ingestion(NAME, source, sink, "unused", **settings)  # type: ignore[arg-type]


class TaskProcess(Protocol):
    """The product in one process."""

    @property
    def opened(self) -> OpenJob: ...

    def extract(self, run: RunPlan, pack: Pack, attempt: str) -> None:
        """The work of Spark, without Spark."""


class Process:
    """A `TaskProcess` of an ingestion."""

    def __init__(
        self,
        store: Store,
        files: Files,
        source: RowSource,
        layout: Layout = Layout.FLAT,
        *,
        acts: Fences | None = None,
        **options: object,
    ) -> None:
        sink = LineSink(files.root, layout=layout, acts=acts)
        self.ingestion = _ingestion(source, sink, tuple(options.items()))
        self.opened = OpenJob(self.ingestion, Journal.create(store, NAME), NoConnections(), files)

    def extract(self, run: RunPlan, pack: Pack, attempt: str) -> None:
        """The work of Spark, without Spark."""
        staging = self.opened.staging
        job = staging.work(run.run)
        assert isinstance(job, RowsWork)
        for plan, unit in missing_units(self.opened, pack):
            folder = staging.token_folder(plan.token)
            result = extraction.extract_unit(job, plan, unit, attempt, self.opened.files, folder, NoConnections())
            staging.put_result(plan.token, result)


@dataclass
class Run:
    """A DAG run: its stages one by one, as its scheduler knows them. It outlives the processes that carry it out.

    :param plan: what `create_work_units` handed over.
    :param done: the stages that ended.
    :param errors: those of the tries that failed.
    :param asked: what it asks for, if not everything open.
    """

    name: str
    plan: RunPlan | None = None
    final: tuple[DatasetReport, ...] = ()
    done: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    asked: RunRequest | None = None

    @property
    def request(self) -> RunRequest:
        return self.asked or RunRequest(self.name)

    def carry_out(
        self, open_process: Callable[[], TaskProcess], send: Callable[[Run], None] = lambda run: None
    ) -> None:
        """All stages that are not done, each tried again, with nothing kept in memory, when it raises an error.

        :param send: called after each stage with the scheduler's knowledge then.
        """
        process: TaskProcess | None = None
        for name, stage in self.stages():
            for attempt in range(TRIES):
                if name in self.done:
                    break
                try:
                    process = process or open_process()
                    stage(process, f"a{attempt}-{len(self.errors)}-{name.replace(' ', '-')}")
                    self.done.append(name)
                except (GobblinError, OSError) as error:
                    self.errors.append(f"{name}: {error!r}")
                    process = None
            send(self)

    def stages(self) -> Iterator[tuple[str, Callable[[TaskProcess, str], None]]]:
        yield "verify_recover", lambda p, a: self._expect(verify_recover(p.opened, self.request))
        yield "create_work_units", self._create
        for pack in self.plan.packs if self.plan else ():
            yield f"extract {pack.index}", partial(self._extract, pack)
            yield f"write_commit_steps {pack.index}", partial(self._write, pack)
            yield f"execute_commit_steps {pack.index}", partial(self._execute, pack)
        if self.plan:
            yield "finish", self._finish

    @property
    def _planned(self) -> RunPlan:
        assert self.plan is not None
        return self.plan

    def _expect(self, reports: tuple[DatasetReport, ...]) -> None:
        failed = [r for r in reports if r.status == "failed" and r.retryable]
        if failed:
            raise OSError(f"a task with {failed} fails, and is tried again")

    def _create(self, process: TaskProcess, attempt: str) -> None:
        self.plan = create_work_units(process.opened, self.request)

    def _extract(self, pack: Pack, process: TaskProcess, attempt: str) -> None:
        process.extract(self._planned, pack, attempt)

    def _write(self, pack: Pack, process: TaskProcess, attempt: str) -> None:
        self._expect(write_commit_steps(process.opened, self._planned, pack))

    def _execute(self, pack: Pack, process: TaskProcess, attempt: str) -> None:
        self._expect(execute_commit_steps(process.opened, self._planned, pack))

    def _finish(self, process: TaskProcess, attempt: str) -> None:
        opened = process.opened
        self.final = finish(opened, self._planned)
        for slot, _ in unannounced(opened, (r.urn for r in self.final)):
            note_announced(opened, slot, self._planned.run_key)


class Look:
    """The content of a world, and whether it is as promised. `I` numbers are those of `docs/design.md`."""

    def __init__(self, journal: Journal, files: Files) -> None:
        self.journal = journal
        self.files = files
        self._context = StepContext(files)
        self._known: dict[tuple[ShardRef, ...], tuple[TargetFile, ...]] = {}

    def check(
        self, sources: list[RowSource], *, records: dict[str, bytes] | None = None, strange: Collection[str] = ()
    ) -> dict[str, Counter[str]]:
        """At any moment: exactly the covered rows are published, and everything else is accounted for.

        :param sources: what the source was, from the first run to the last; snapshots may show any of them.
        :param records: the journal's at an earlier moment.
        :param strange: foreign files in the target.
        :return: the published rows of each dataset.
        """
        self._known.clear()  # steps must be readable each time
        rows = {}
        for table in sources[-1].tables:
            history = self.journal.history(table.urn)
            self._check_chain(history)
            self._check_handed_over(history)
            rows[table.urn] = self._check_rows(history, sources, table)
            self._check_folder(history, table, strange)
            self._check_pending(history, strange)
            self._check_acts(history)
        if records is not None:
            self.check_records(records)
        return rows

    def check_complete(self, sources: list[RowSource]) -> None:
        """After a run without faults: everything that the source has is published, and nothing is left over."""
        for urn, published in self.check(sources).items():
            table, history = sources[-1].table(urn), self.journal.history(urn)
            if table.partitions:  # covered offsets are published, or named as lost
                ends = tuple(table.log.end(p) for p in range(table.partitions))
                if history.state.watermark is None and not published and table.kept_from == table.rows:
                    continue  # nothing was ever published, and the log is empty by now
                assert history.state.watermark == MultiLongWatermark(ends), (
                    f"{urn}: {history.state.watermark}, not {ends}"
                )
            else:
                assert published == table.all_rows(), f"{table.urn}: {published} is not {table.all_rows()}"
            assert history.pending is None

    def check_seals(self, tables: Iterable[Table]) -> int:
        """Expect a valid seal to have all that it names: every row up to its version, which is a position here.

        :return: the number of seals.
        """
        chain = Seals(self.journal)
        seals = [*chain.before(chain.newest())]
        states = {urn: self.journal.state(urn) for urn in self.journal.datasets()} if seals else {}
        plain = {table.urn for table in tables if not table.snapshot and not table.partitions}
        for seal in (seal for seal in seals if is_valid(seal, states)):
            for urn, sealed in seal.datasets.items():
                if urn in plain and not sealed.waits:
                    state = states.get(urn, DatasetState(urn))
                    lacks = _positions_below(int(seal.upto.timestamp())) - _positions_of(
                        state, content(sealed.head, state)
                    )
                    assert not lacks, (
                        f"{urn}: version {seal.upto} is sealed as number {seal.number} without {sorted(lacks)}"
                    )
        return len(seals)

    def _check_chain(self, history: History) -> None:
        generation, pending, paused = 0, 0, False
        answered: set[str] = set()
        for slot in every_slot(history):
            number, decision = slot.decision.slot, slot.decision
            if decision.action in PAUSING:
                assert paused is not (decision.action is Action.PAUSE), f"{history.urn}: slot {number} pauses it again"
                paused = not paused
            else:
                assert not pending, f"{history.urn}: slot {number} was decided while slot {pending} is unfinished"  # I8
            assert not (paused and decision.action in PUBLISHING), (
                f"{history.urn}: slot {number} was decided in a pause"
            )
            pending = pending if slot.finished else number
            if not slot.done:
                continue
            assert decision.generation >= generation, f"{history.urn}: slot {number} is of an older generation"
            if decision.action in RAISING:
                assert decision.generation > generation, (
                    f"{history.urn}: slot {number}, a {decision.action.value}, keeps the generation"
                )
            if decision.generation > generation:
                answered.clear()  # committed ranges may have been taken back, to be asked for anew
            generation = decision.generation
            if decision.run_key and decision.complete:
                assert decision.run_key not in answered, f"{history.urn}: slot {number} answers its run again"  # I7
                answered.add(decision.run_key)

    def _check_handed_over(self, history: History) -> None:
        """The newest slot with steps hands over the watermark that the fold has after it: deciding and folding agree."""
        decisions = (slot.decision for slot in reversed(history.slots) if slot.done)
        decision = next((decision for decision in decisions if decision.hand_over is not None), None)
        if decision is None or decision.hand_over is None:
            return
        given, folded = decision.hand_over.watermark, history.until(decision.slot).state.watermark
        assert given == folded, f"{history.urn}: slot {decision.slot} hands over {given}, not {folded}"

    def _check_rows(self, history: History, sources: list[RowSource], table: Table) -> Counter[str]:
        published = self.published(history)
        if table.snapshot:
            allowed = [Counter[str](), *(s.table(table.urn).all_rows() for s in sources)]
            assert published in allowed, f"{table.urn}: {published} is no version of the source"  # I1, I2
            return published
        units = history.state.live.values()
        lost = (unit.range for unit in units if unit.range is not None and is_lost(unit.properties))
        covered = table.rows_in(history.state.coverage.ranges()) - table.rows_in(lost)
        assert published == covered, (  # I1, I2, I3
            f"{table.urn}: lost {covered - published}, too many {published - covered}"
        )
        return published

    def published(self, history: History) -> Counter[str]:
        """The rows of the files that the journal lists as published, and that are."""
        rows: Counter[str] = Counter()
        for file in self.files_of(history, history.state.live):
            found = self.files.identity(file.path)
            same = found is not None and file.is_same(found, self.files)
            assert same, f"{file.path} of {history.urn} is not as published"
            rows.update(self._rows_of(file))
        return rows

    def _rows_of(self, file: TargetFile) -> Iterator[str]:
        """The rows of a file; those of dead letters are covered as the others are (I1), and in no file of rows."""
        if file.holds_dead_letters:
            # Without Arrow's threads: one that lets go of Python's buffer as the process ends would abort it.
            content = pa.BufferReader(self.files.read(file.path))
            for row in pq.read_table(content, use_threads=False)["row"].to_pylist():
                text = dead_row(row)
                assert not is_even(text), f"{text} is a dead letter, and good"
                yield text
            return
        for line in self.files.read(file.path).decode().splitlines():
            yield line.rstrip(" ")

    def files_of(self, history: History, units: Collection[UnitRef]) -> Iterator[TargetFile]:
        for number in sorted({ref.slot for ref in units}):
            for file in self._files(history.slot(number).decision):
                if UnitRef(number, file.unit) in units:
                    yield file

    def _files(self, decision: Decision) -> tuple[TargetFile, ...]:
        """The files of a decision, read once for all checks."""
        found = self._known.get(decision.shards)
        if found is None:
            found = tuple(file for step in self.journal.steps(decision) for file in step.files())
            self._known[decision.shards] = found
        return found

    def _check_folder(self, history: History, table: Table, strange: Collection[str]) -> None:
        """A dataset's folder holds only what the journal accounts for, and what the user put there (I3, I6, I10)."""
        folder = dataset_key(table.urn)
        accounted = {f.path for f in self.files_of(history, history.state.live)}
        accounted |= {f.path for f in self.files_of(history, history.state.retired)}
        unsettled = [s for s in history.slots if not s.done and not s.noted(NoteKind.CLEANED)]
        for slot in unsettled:
            accounted |= {f.path for f in self._files(slot.decision)}
        found = set(self.files.walk(folder)) - set(strange)
        mine = f"{folder}/{MINE}"
        assert mine in found, f"{table.urn}: the user's file was removed"
        assert self.files.read(mine) == b"the user's\n"
        assert found - {mine} <= accounted, f"{table.urn}: nobody accounts for {found - accounted - {mine}}"

    def _check_pending(self, history: History, strange: Collection[str]) -> None:
        """Everything that an unfinished decision still needs exists (I11), unless it is fenced without a mark (rule 15)."""
        if history.pending is None:
            return
        decision, well = history.pending.decision, {StepStatus.TODO, StepStatus.DONE, StepStatus.FENCED}
        if any(path.startswith(f"{decision.staging}/") for path in strange):
            well.add(
                StepStatus.CONFLICT
            )  # a folder that holds more than its files isn't moved, and nothing is lost by that
        for step in self.journal.steps(decision):
            names = {step.taken} if isinstance(step, TakeStep) else {file.path for file in step.files()}
            names |= {posixpath.dirname(name) for name in names}  # a folder that is published has a name, too
            if names.isdisjoint(strange):
                fenced = step.fence is not None and history.pending.noted(NoteKind.ABANDONING)
                assert step.verify(self._context) in well or fenced, (
                    f"step for {step.subject} of pending slot {decision.slot} of {history.urn} is lost"
                )

    def _check_acts(self, history: History) -> None:
        """An act that is the whole slot is done exactly where the slot is, or may still be (rule 15)."""
        folder = f"{ACTS}/{dataset_key(history.urn)}"
        names = (name for name in self.files.identities(folder) if not name.endswith(".fenced"))
        taken = {name for name in names if is_ticket(self.files, f"{folder}/{name}")}
        for slot in history.slots:
            acts = [step for step in self.journal.steps(slot.decision) if isinstance(step, TakeStep)] if taken else []
            for act in acts:
                done = posixpath.basename(act.taken) in taken
                assert slot.outcome is None or done == slot.done, (
                    f"{act.subject} of {history.urn} is {'' if done else 'not '}taken, and {slot.named} is {slot.outcome}"
                )
        known = {slot.decision.token for slot in every_slot(history)}
        assert taken <= known, f"{history.urn}: no slot took {taken - known}"

    def records(self) -> dict[str, bytes]:
        """All records of the journal."""
        return {key: self.journal.store.get(key) or b"" for key in self.journal.store.list("")}

    def check_records(self, before: Mapping[str, bytes]) -> dict[str, bytes]:
        """Records never change (I5), and go only where a snapshot replaces them.

        :return: those that exist now.
        """
        now = self.records()
        changed = [key for key, data in before.items() if now.get(key) != data and not _trimmed(key, now)]
        assert not changed, f"records changed or are gone: {changed}"
        return now

    def check_torn(self, number: int) -> None:
        """A torn record stops its dataset by name, and no other one (I9, I14).

        :param number: which record is torn.
        """
        listed = (k for k in self.journal.store.list(f"{NAME}/") if k.split("/")[2] in ("d", "o", "n"))
        keys = [k for k in listed if not k.endswith(UNREAD)]
        torn = keys[number % len(keys)]
        seen = Journal(_Torn(self.journal.store, torn), NAME, self.journal.id)
        for urn in self.journal.datasets():
            if torn.startswith(self.journal.key(urn) + "/"):
                with pytest.raises(RecordError, match=re.escape(torn)):
                    seen.history(urn)
            else:
                assert seen.history(urn) == self.journal.history(urn)

    def leftovers(self) -> list[str]:
        """Staged files, records of the target and uploads that sweeping should have removed."""
        uploads = () if self.files.uploads is None else self.files.uploads.open_below(".")
        return [*(p for p in self.files.walk(ROOT) if "/s/" in p), *(f"upload to {target}" for target, _ in uploads)]

    def plant(self, urns: list[str]) -> None:
        """Put a file of the user's into the folder of each dataset."""
        for urn in urns:
            path = f"{dataset_key(urn)}/{MINE}"
            if self.files.identity(path) is None:
                with self.files.create(path) as out:
                    out.write(b"the user's\n")


def _positions_below(end: int) -> set[int]:
    return {*range(end)}


def _positions_of(state: DatasetState, slots: Collection[int]) -> set[int]:
    """The positions of live units that some slots published."""
    ranges = (unit.range for ref, unit in state.live.items() if ref.slot in slots)
    bounds = ((r.low, r.high) for r in ranges if r is not None)
    return {
        at
        for low, high in bounds
        if isinstance(low, LongWatermark) and isinstance(high, LongWatermark)
        for at in range(low.value, high.value)
    }


def every_slot(history: History) -> Iterator[Slot]:
    """All slots of a chain, with what remains of those that were trimmed."""
    yield from (slot.as_slot(history.urn) for slot in history.trimmed)
    yield from history.slots


def _trimmed(key: str, records: Collection[str]) -> bool:
    """Whether a snapshot replaces a record. (Reading the steps that it needs shows that they exist.)"""
    dataset, kind, name = key.rsplit("/", 3 if "/n/" in key else 2)[:3]
    snapshots = [k.rpartition("/")[2] for k in records if k.startswith(f"{dataset}/snap/")]
    return bool(snapshots) and (kind == "c" or name <= max(snapshots))


class _Torn:
    """A store with one torn record."""

    def __init__(self, store: Store, torn: str) -> None:
        self._store = store
        self._torn = torn
        self.name = store.name

    def put_if_absent(self, key: str, data: bytes) -> bool:
        raise AssertionError("reading writes nothing")

    def get(self, key: str) -> bytes | None:
        data = self._store.get(key)
        return data if data is None or key != self._torn else data[: len(data) // 2]

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((key, self.get(key)) for key in keys)

    def list(self, prefix: str) -> Iterator[str]:
        return self._store.list(prefix)

    def delete(self, key: str) -> None:
        raise AssertionError("reading deletes nothing")

    def delete_many(self, keys: Sequence[str]) -> None:
        raise AssertionError("reading deletes nothing")

    def close(self) -> None:
        pass
