"""Real processes that run the operators' code, and are killed or stopped in the middle of it.

A fork server, which has imported Airflow and the operators once, forks a process for a task. There the operators' own
`execute` runs, with a context that has what they ask it for. `extract` is the one that submits nothing: it runs the units of
its pack by the functions that Spark's tasks call, in its own process. (Real Airflow and real Spark have kills of their own, in
`tests/airflow`.)

A case: a task of a run is killed, or is stopped and taken for dead. The next try and the rest of the run follow, in another
process; a stopped one goes on beside it, after it, or when the next run is over. That run, undisturbed, must
publish everything missing; then every row of the source is published once, and all other promises hold.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import time
import traceback
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

from airflow.sdk import BaseOperator, CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowException

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.ingestion import open_job
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import connections_of
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model import wire
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind, UnitResult
from airflow_gobblin.operators import (
    CreateWorkUnitsOperator,
    ExecuteCommitStepsOperator,
    ExtractOperator,
    FinishOperator,
    VerifyRecoverOperator,
    WriteCommitStepsOperator,
    extract,
)
from airflow_gobblin.operators import tasks as stage_operators
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.spark import task as spark_task
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.probe import Needs
from airflow_gobblin.storage import stores
from airflow_gobblin.storage.files import local, open_files
from tests.faults import Faults, FaultyFiles, FaultyStore
from tests.proofs import sampled
from tests.protocol.processes import Child, Send, be_forked_often, die, in_fresh_process, share, share_clients, stop
from tests.protocol.rows import LineSink, RowSource, Table
from tests.protocol.world import Look
from tests.services import s3

URNS = ("orders", "countries")
STAGES = ("verify_recover", "create_work_units", "extract", "write_commit_steps", "execute_commit_steps", "finish")
WORKERS = 2
TRIES = 3
TRIES_TO_HIT = 8
CASES_A_PLACE = 6
DAILY = CronDataIntervalTimetable("@daily", "UTC")
PATIENCE = 120.0
"""The most seconds that a process may take: more than any does."""


@dataclass(frozen=True)
class Site:
    """A place for ingestions: a kind of store.

    :param environment: the Airflow connections that they need.
    :param journal: of an ingestion;
    :param target: of an ingestion, both with `{name}` in them for its name.
    :param urns: the datasets of an ingestion; a random one if none is named.
    """

    name: str
    journal: str
    target: str
    urns: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Attack:
    """An attack on a task.

    :param stage: which one it is.
    :param zombie: it is stopped, and goes on later; else it is killed.
    :param by_call: at one of its calls; else at some moment.
    """

    stage: str
    zombie: bool
    by_call: bool


# Tasks


class ExtractHere(ExtractOperator):
    """Extract its pack in its own process, with the functions that run in Spark's tasks."""

    def _prepare(self, opened: OpenJob) -> None:
        """Nothing is shipped."""

    def _run_driver(self, context: Any) -> None:
        opened = vars(extract)["open_job"](self.job)  # as it is now: it may be hooked
        units: dict[str, list[str]] = defaultdict(list)
        for token, unit in self._missing(opened):
            units[token].append(unit)
        order = spark_task.TaskSpec(
            code=self.job.work.code,
            workspace=self.job.work.workspace,
            staging=opened.staging.folder,
            attempt=uuid.uuid4().hex,
            run=self.pack["run"],
            units={token: tuple(ids) for token, ids in units.items()},
            snapshots={},
            connections=SparkConnections({c: AirflowConnections().uri(c) for c in connections_of(self.job.work)}),
            needs=Needs(()),
        )
        for token, result in spark_task.run_task(order):
            opened.staging.put_result(token, wire.loads(result, UnitResult, "a result"))


class XCom:
    """The values that tasks of a run hand over: a task instance, as far as the operators know it."""

    def __init__(self, pushed: dict[str, Any]) -> None:
        self.pushed = pushed

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self.pushed.get(key)


def make_task(stage: str, ingestion: Ingestion, pack: Any) -> BaseOperator:
    """The operator of a task."""
    match stage:
        case "verify_recover":
            return VerifyRecoverOperator(task_id=stage, job=ingestion)
        case "create_work_units":
            return CreateWorkUnitsOperator(task_id=stage, job=ingestion)
        case "extract":
            return ExtractHere(task_id=stage, job=ingestion, pack=pack)
        case "write_commit_steps":
            return WriteCommitStepsOperator(task_id=stage, job=ingestion, pack=pack)
        case "execute_commit_steps":
            return ExecuteCommitStepsOperator(task_id=stage, job=ingestion, pack=pack)
    return FinishOperator(task_id=stage, job=ingestion, plan=CreateWorkUnitsOperator(task_id="plan", job=ingestion))


@dataclass
class DagRun:
    """A DAG run: what its scheduler and its XCom know.

    :param done: how many of its tasks are.
    """

    run_id: str
    pushed: dict[str, Any] = field(default_factory=dict)
    done: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def tasks(self) -> list[tuple[str, Any]]:
        """Its tasks, with the pack of each that has one."""
        mapped = [(stage, pack) for pack in self.pushed.get("packs", ()) for stage in STAGES[2:5]]
        return [("verify_recover", None), ("create_work_units", None), *mapped, ("finish", None)]

    def position(self, stage: str) -> int | None:
        """The index of a task, if the run has it."""
        return next((n for n, (name, _) in enumerate(self.tasks) if name == stage), None)

    def carry_out(self, ingestion: Ingestion, until: str | None = None) -> None:
        """Its tasks that are not done, each tried again when it fails, up to one of them."""
        while self.done < len(self.tasks):
            stage, pack = self.tasks[self.done]
            if stage == until:
                break
            for _ in range(TRIES):
                try:
                    self.execute(ingestion, stage, pack)
                    break
                except (AirflowException, GobblinError, OSError) as error:
                    self.errors.append(f"{stage}: {error!r}")
            self.done += 1

    def execute(self, ingestion: Ingestion, stage: str, pack: Any) -> None:
        """One try of a task, and what Airflow calls when it has succeeded."""
        task = make_task(stage, ingestion, pack)
        context: Any = {
            "dag": SimpleNamespace(params={}, timetable=DAILY),
            "dag_run": SimpleNamespace(
                dag_id="dag",
                run_id=self.run_id,
                run_type="manual",
                data_interval_start=None,
                data_interval_end=None,
                partition_key=None,
                conf={},
            ),
            "ti": XCom(self.pushed),
            "outlet_events": defaultdict(mock.MagicMock),
            "task": task,
        }
        given = task.execute(context)
        if stage == "create_work_units":
            self.pushed["packs"] = given
        for callback in task.on_success_callback:
            callback(context)


@contextmanager
def hooked(faults: Faults | None) -> Iterator[None]:
    """The operators of this process call their stores and files through `faults`."""
    if faults is None:
        yield
        return

    def opened(ingestion: Ingestion) -> OpenJob:
        real = open_job(ingestion)
        journal = Journal(FaultyStore(real.journal.store, faults), real.journal.ingestion, real.journal.id)
        return OpenJob(ingestion, journal, AirflowConnections(), FaultyFiles(real.files, faults, place="target"))

    def files(target: str, connections: Any = None) -> FaultyFiles:
        return FaultyFiles(open_files(target, connections), faults, place="target")

    with (
        mock.patch.object(stage_operators, "open_job", opened),
        mock.patch.object(extract, "open_job", opened),
        mock.patch.object(spark_task, "open_files", files),
    ):
        yield


# A place


class Place:
    """An ingestion at a site, whose source grows from run to run. Nothing of it is open here: other processes do all of it."""

    def __init__(self, site: Site, seed: str) -> None:
        self.site = site
        self.chance = random.Random(seed)
        self.name = f"i{uuid.uuid4().hex[:12]}"
        self.urns = site.urns or (self.chance.choice(URNS),)
        self.layout = self.chance.choice([*Layout])
        self.sources: list[RowSource] = []
        self.rows = 0
        self.runs = 0
        in_fresh_process(self._prepare)

    def grow(self) -> None:
        self.rows += self.chance.randint(3, 9)
        orders = Table("orders", ExtractKind.APPEND_ONLY, self.rows, unit_rows=6)
        countries = Table("countries", ExtractKind.SNAPSHOT_ONLY, 3, len(self.sources), unit_rows=2)
        self.sources.append(RowSource(tuple(t for t in (orders, countries) if t.urn in self.urns)))

    @property
    def ingestion(self) -> Ingestion:
        """Its current state."""
        target = self.site.target.format(name=self.name)
        return Ingestion(
            self.name,
            self.sources[-1] if self.sources else RowSource(()),
            LineSink(target, layout=self.layout),
            self.site.journal.format(name=self.name),
            retention=timedelta(0),
            max_packs=1,
            code=("tests.protocol.rows",),
        )

    def new_run(self) -> DagRun:
        self.grow()
        self.runs += 1
        return DagRun(f"run {self.runs}")

    def look(self) -> Look:
        opened = open_job(self.ingestion)
        return Look(opened.journal, opened.files)

    def _prepare(self, send: Send) -> None:
        self.look().plant([*self.urns])

    # Work of other processes

    def prelude(self, stage: str) -> DagRun:
        """A run up to a task, with something for it to do: what a former run left, or what a person took back."""
        rewinds = self.runs and "orders" in self.urns and self.chance.random() < 0.3
        taken_back = self.chance.randrange(self.rows) if rewinds else None
        former = self.new_run() if stage == "verify_recover" else None
        before = self.ingestion
        run = self.new_run()

        def work(send: Send) -> None:
            if taken_back is not None:
                opened = open_job(before)
                person = Administration(opened.journal, opened.files, "a tester")
                person.rewind("orders", LongWatermark(taken_back), "for the test")
            if former is not None:
                former.carry_out(before, until="execute_commit_steps")
            run.carry_out(self.ingestion, until=stage)
            send(run)

        (found,) = in_fresh_process(work)
        assert isinstance(found, DagRun)
        assert found.position(stage) == found.done, f"{stage} doesn't come next: {found}"
        return found

    def go_on(self, run: DagRun) -> Child:
        """The rest of a run."""
        return Child(lambda send: run.carry_out(self.ingestion))

    def carry_out_last(self, *unfinished: DagRun) -> None:
        """The rest of runs, and then an undisturbed one; then everything must be right.

        :raises AssertionError: it isn't.
        """
        before = self.ingestion
        last = self.new_run()

        def work(send: Send) -> None:
            for run in unfinished:
                run.carry_out(before)
            last.carry_out(self.ingestion)
            assert not last.errors, f"the last run raised {last.errors}"
            look = self.look()
            look.check_complete(self.sources)
            left = look.leftovers()
            assert not left, f"staging is left over: {left}"

        in_fresh_process(work)

    def check(self) -> None:
        """Check what holds at any moment.

        :raises AssertionError: it doesn't.
        """

        def work(send: Send) -> None:
            self.look().check(self.sources)

        in_fresh_process(work)

    def measured(self, run: DagRun) -> Child:
        """A process that carries out the next task of a run, and reports the run as it is then, with how many calls it made."""

        def work(send: Send) -> None:
            faults = Faults()
            with hooked(faults):
                run.execute(self.ingestion, *run.tasks[run.done])
            run.done += 1
            send((run, len(faults.calls)))

        return Child(work)

    def victim(self, run: DagRun, stage: str, faults: Faults | None) -> Child:
        """A process that tries a task once, and reports how many calls it made."""

        def work(send: Send) -> None:
            position = run.position(stage)
            assert position is not None
            try:
                with hooked(faults):
                    run.execute(self.ingestion, *run.tasks[position])
            except (AirflowException, GobblinError, OSError):
                pass  # as a zombie, say
            send(len(faults.calls) if faults is not None else 0)

        return Child(work)


# Cases


@dataclass(frozen=True)
class Usual:
    """The usual cost of a task.

    :param calls: of its stores and files.
    :param seconds: from its start to its end.
    """

    calls: int
    seconds: float


def measure(place: Place) -> dict[str, Usual]:
    """Measure what each task takes when nothing happens to it."""
    place.carry_out_last()
    run = place.prelude(STAGES[0])
    found = {}
    while run.done < len(run.tasks):
        stage, started = run.tasks[run.done][0], time.monotonic()
        run, calls = place.measured(run).result(PATIENCE)[-1]
        found[stage] = Usual(calls, time.monotonic() - started)
    return found


@dataclass
class Tally:
    """The results of some cases.

    :param cases: by site, stage and kind.
    :param missed: tasks that ended before their time.
    """

    cases: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    missed: int = 0
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.cases.update(other.cases)
        self.missed += other.missed
        self.broken += other.broken


def play(place: Place, attack: Attack, usual: Usual) -> int:
    """Play a case.

    :return: how often the task had ended before its time.
    :raises AssertionError: a promise is broken.
    """
    run = place.prelude(attack.stage)
    for missed in range(TRIES_TO_HIT):
        victim = attacked(place, run, attack, usual, 0.5**missed)
        if attack.zombie and victim.stopped(PATIENCE):
            go_on_beside(place, run, victim, usual)
            return missed
        victim.result(PATIENCE)
        if victim.killed:
            place.carry_out_last(run)
            return missed
    raise AssertionError(f"the task ended {TRIES_TO_HIT} times before anything befell it")


def go_on_beside(place: Place, run: DagRun, zombie: Child, usual: Usual) -> None:
    """Carry out the next try and the rest of a run, and let the task that was taken for dead go on, beside it or later."""
    when = place.chance.choice(["beside", "after", "at the end"])
    following = place.go_on(run)
    if when == "beside":
        time.sleep(place.chance.uniform(0, 4 * usual.seconds))
        zombie.send(signal.SIGCONT)
    following.result(PATIENCE)
    if when == "after":
        zombie.send(signal.SIGCONT)
    if when != "at the end":
        zombie.result(PATIENCE)
    place.carry_out_last()
    if when == "at the end":
        zombie.send(signal.SIGCONT)
        zombie.result(PATIENCE)
        place.check()


def attacked(place: Place, run: DagRun, attack: Attack, usual: Usual, early: float) -> Child:
    """A process of a task that something happens to, if its time comes.

    :param early: in which part of the task it does.
    """
    if attack.by_call:
        at = place.chance.randrange(max(1, int(usual.calls * early)))
        faults = Halting(at) if attack.zombie else Faults(at, die=die)
        return place.victim(run, attack.stage, faults)
    victim = place.victim(run, attack.stage, None)
    victim.ended(place.chance.uniform(0.0, usual.seconds * early))
    victim.send(signal.SIGSTOP if attack.zombie else signal.SIGKILL)
    return victim


class Halting(Faults):
    """A process that is stopped at a call, and goes on with it when it is resumed."""

    def __init__(self, at: int) -> None:
        super().__init__(hook=lambda call: stop() if len(self.calls) == at else None)


def share_connections() -> None:
    """Let the tasks of one process share what each of them would open anew, because that takes most of their time."""
    share(stores, "open_store", lambda url: url)
    share_clients()


def warm_up(folder: str) -> None:
    """Import everything that a task needs, so that processes forked from this one needn't."""
    with TemporaryDirectory(dir=folder) as inner:
        place = Place(Site("here", f"{inner}/journal", f"{inner}/target", URNS), "warm")
        run = place.new_run()
        run.carry_out(place.ingestion)
        assert not run.errors, run.errors
        place.look().check_complete(place.sources)
    with mock.patch.dict(os.environ, AIRFLOW_CONN_WARM="sqlite:////nowhere"):
        AirflowConnections().uri("warm")
    for module in ("psycopg", "sqlalchemy.dialects.postgresql.psycopg", "s3fs"):
        importlib.import_module(module)
    s3.warm_up()


def play_all(site: Site, seed: str, attacks: list[Attack]) -> Tally:
    """Cases at a site, one after the other. In a fork server."""
    os.environ.update(site.environment)
    tally = Tally()
    usual = measure(Place(site, seed))
    place = Place(site, f"{seed} 0")
    for number, attack in enumerate(attacks):
        if number % CASES_A_PLACE == 0:
            place = Place(site, f"{seed} {number}")
        kind = "SIGSTOP" if attack.zombie else "SIGKILL"
        case = f"case {number} of {seed} at {site.name}: {kind} in {attack.stage}, by_call={attack.by_call}"
        try:
            tally.missed += play(place, attack, usual[attack.stage])
            tally.cases[site.name, attack.stage, kind] += 1
        except AssertionError as error:
            tally.broken.append(f"{case}: {error}")
            place = Place(site, f"{seed} {number} after")
    return tally


def attacks(kills: int, zombies: int) -> list[Attack]:
    """Attacks on each stage: so many kills and zombies of each, half of them at a call."""
    return [
        Attack(stage, zombie, by_call=n % 2 == 0)
        for zombie, number in ((False, kills), (True, zombies))
        for n in range(number)
        for stage in STAGES
    ]


def play_together(folder: Path, sites: list[Site], seed: int, kills: int, zombies: int, share: int = 1) -> Tally:
    """Attacks on each stage at each site, one kill and one zombie in `share`, spread over some fork servers.

    :param folder: for their temporary files.
    """
    every = [
        (site, attack)
        for number, site in enumerate(sites)
        for some in (attacks(kills, 0), attacks(0, zombies))
        for attack in sampled(some, share, seed + number)
    ]
    each = -(-len(every) // WORKERS)
    context = get_context("spawn")
    tally = Tally()
    pools = []
    for n in range(WORKERS):
        receiving, sending = context.Pipe(duplex=False)
        by_site: dict[str, tuple[Site, list[Attack]]] = {}
        for site, attack in every[n * each : (n + 1) * each]:  # few sites a server, for it measures at each
            by_site.setdefault(site.name, (site, []))[1].append(attack)
        server = context.Process(target=serve, args=(sending, str(folder), [*by_site.values()], f"{seed}.{n}"))
        server.start()
        sending.close()
        pools.append((server, receiving))
    for server, receiving in pools:
        found = receiving.recv()
        server.join()
        if isinstance(found, str):
            raise AssertionError(found)
        tally.add(found)
    return tally


def serve(sending: Any, folder: str, by_site: list[tuple[Site, list[Attack]]], seed: str) -> None:
    """A fork server. Tasks' logs are dropped; nor need anything be synced, because processes die, not their host."""
    setattr(local, "_fsync", lambda path, flags: None)  # noqa: B010
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    tally = Tally()
    share_connections()
    try:
        warm_up(folder)
        be_forked_often()
        for site, some in by_site:
            tally.add(play_all(site, seed, some))
    except BaseException:
        sending.send(traceback.format_exc())
    else:
        sending.send(tally)
