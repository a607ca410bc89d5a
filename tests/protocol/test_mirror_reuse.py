"""A run that takes over what an earlier one finished: a fault at each of its calls, and an earlier task before each of them.

An earlier run copied files and was never decided, or one of its files could not be read. Then a file changes, and one more comes.
So the next run gives the earlier plan up, stores its own, and takes the finished files. Whatever happens, and whichever task is
late: no slot waits for a copy that another one took, and at rest the target is the source.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest

from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy import bundles
from airflow_gobblin.copy.finders import WholeTree
from airflow_gobblin.copy.options import Delete, Existing
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.job import Attempt
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.work import WorkUnit
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps import execution
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.copy.mirrors import content
from tests.faults import APPLICABLE, POWER, Call, Crash, Fault, Faults, FaultyFiles, FaultyStore
from tests.proofs import Proved, chosen_by, fresh_seed, sampled, shares
from tests.protocol.mutants import Patch

URN = "photos#files"
NAMES = ("a", "b", "c", "d/e", "d/f", "g")
CHANGED, NEW = "c", "d/new"
AT_A_TIME = 2
"""How many files are in a bundle."""

# A process that dies closes none of its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Broken(AssertionError):
    """A promise is broken."""


@dataclass
class Place:
    """Source, target and journal.

    :param earlier: the run that wasn't decided.
    :param missing: the units that its Spark application was given.
    """

    folder: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    written: int = 0
    earlier: RunPlan | None = None
    missing: tuple[tuple[Plan, WorkUnit], ...] = ()

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def target(self) -> Path:
        return self.folder / "target"

    def write(self, name: str) -> None:
        """Write a file of the source, always of one size. The kernel's own times are rounded down, so that two may be one."""
        self.written += 1
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{self.written:9}")
        os.utime(path, ns=(0, time.time_ns()))

    def opened(self, faults: Faults | None = None) -> OpenJob:
        """The job, in a fresh process."""
        mirror = Mirror(
            "photos",
            str(self.source),
            str(self.target),
            "unused",
            datasets=WholeTree(),
            existing=Existing.UPDATE,
            delete=Delete(1),
        )
        faults = faults or Faults()
        files = FaultyFiles(LocalFiles(self.target), faults)
        return OpenJob(mirror, Journal.create(FaultyStore(self.store, faults), "photos"), NoConnections(), files)

    def begin(self, *, decidable: bool) -> None:
        """Let a run copy what there is.

        :param decidable: whether all of it; otherwise a file changes before it is copied.
        """
        for name in NAMES:
            self.write(name)
        self.target.mkdir()
        opened = self.opened()
        self.earlier = create_work_units(opened, RunRequest("earlier"))
        self.missing = tuple(one for pack in self.earlier.packs for one in missing_units(opened, pack))
        if not decidable:
            self.write(CHANGED)
        inprocess.extract(opened, self.earlier, NoConnections())
        if decidable:
            self.write(CHANGED)
        self.write(NEW)

    def go_on(self, faults: Faults) -> None:
        """The next run, as a process that may die."""
        with suppress(Crash, GobblinError, OSError):
            opened, request = self.opened(faults), RunRequest("next")
            verify_recover(opened, request)
            inprocess.go_on(opened, create_work_units(opened, request), NoConnections())

    def decide_late(self) -> None:
        """The earlier run decides, if it still can."""
        assert self.earlier is not None
        opened = self.opened()
        for pack in self.earlier.packs:
            write_commit_steps(opened, self.earlier, pack)

    def copy_late(self) -> None:
        """Spark tasks of the earlier run copy what they were given, though others did that."""
        opened = self.opened()
        for plan, unit in self.missing:
            folder = opened.staging.token_folder(plan.token)
            result = opened.job.work.run(unit, plan, Attempt("late", opened.files, folder, NoConnections()))
            opened.staging.put_result(plan.token, result)

    def finish_late(self) -> None:
        """The earlier run ends, and sweeps."""
        assert self.earlier is not None
        opened = self.opened()
        for pack in self.earlier.packs:
            execute_commit_steps(opened, self.earlier, pack)
        finish(opened, self.earlier)

    def check_at_rest(self, case: object) -> None:
        """After two runs without faults the target is the source, and nothing is left over."""
        runs = [inprocess.run(self.opened(), request=RunRequest(f"rest {number}")) for number in range(3)]
        statuses = [report.status.value for report in runs[-1].values()]
        opened = self.opened()
        slots = opened.journal.history(URN).slots
        staged = [*opened.staging.tokens()]
        if statuses != ["idle"] or content(self.source) != content(self.target) or staged:
            raise Broken(f"{case}: {statuses}, staged {staged}, {[slot.named for slot in slots]}")
        done = [slot for slot in slots if slot.decision.action is Action.COMMIT]
        if not all(slot.done for slot in done):
            raise Broken(f"{case}: not every slot is done: {[slot.named for slot in done]}")


@contextmanager
def begun(*, decidable: bool) -> Iterator[Place]:
    """A place with what an earlier run left."""
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(dir=shm))
    no_wait: Callable[[int], None] = lambda fd: None  # noqa: E731
    no_threads, small = mock.patch.object(execution, "THREADS", 1), mock.patch.object(bundles, "MOST_FILES", AT_A_TIME)
    try:
        with mock.patch("os.fsync", no_wait), no_threads, small:
            place = Place(folder)
            place.begin(decidable=decidable)
            yield place
    finally:
        shutil.rmtree(folder)


def calls_of_the_next_run(*, decidable: bool) -> list[Call]:
    """The calls that it makes if nothing happens."""
    with begun(decidable=decidable) as place:
        faults = Faults()
        place.go_on(faults)
        return faults.calls


LATE = ("decide_late", "copy_late", "decide_late and copy_late", "finish_late")
"""The late acts while the next run is at work."""


def fault_at(number: int, fault: Fault, *, decidable: bool) -> None:
    """:raises Broken: a fault at a call of the next run breaks a promise."""
    with begun(decidable=decidable) as place:
        place.go_on(Faults(number, fault))
        place.check_at_rest((number, fault))


def late_at(number: int, late: str, *, dies: bool) -> None:
    """:raises Broken: earlier tasks, before a call of the next run, break a promise.
    :param dies: the next run dies then.
    """
    with begun(decidable=True) as place:
        calls = 0

        def hook(call: Call) -> None:
            nonlocal calls
            calls += 1
            if calls == number + 1:
                act()

        def act() -> None:
            for name in late.split(" and "):
                with suppress(GobblinError):
                    getattr(place, name)()

        place.go_on(Faults(number if dies else None, Fault.CRASH_BEFORE, hook=hook))
        act()  # and once more, later still
        place.check_at_rest((number, late))


@pytest.mark.timeout(1200)
@shares(150)
@pytest.mark.parametrize("decidable", [True, False], ids=["all was copied", "a file could not be"])
def test_a_fault_at_every_call_of_a_run_that_takes_over(decidable: bool, share: int, proved: Proved) -> None:
    seed = fresh_seed()
    calls = calls_of_the_next_run(decidable=decidable)
    cases = [(n, fault) for n, call in enumerate(calls) for fault in APPLICABLE[call.effect] if fault not in POWER]
    for number, fault in sampled(cases, share, seed):
        fault_at(number, fault, decidable=decidable)
    proved(
        "faults at the calls of a run that takes over finished copies",
        f"{len(calls)} calls, {len(cases)} cases; 0 broke a promise",
        chosen_by(share, seed),
    )
    assert len(cases) > 500


@pytest.mark.timeout(1200)
@shares(150)
def test_earlier_tasks_before_every_call_of_a_run_that_takes_over(share: int, proved: Proved) -> None:
    seed = fresh_seed()
    calls = calls_of_the_next_run(decidable=True)
    cases = [(n, late, dies) for n in range(len(calls)) for late in LATE for dies in (False, True)]
    for number, late, dies in sampled(cases, share, seed):
        late_at(number, late, dies=dies)
    proved(
        "earlier tasks before the calls of a run that takes over finished copies",
        f"{len(calls)} calls, {len(cases)} cases; 0 broke a promise",
        chosen_by(share, seed),
    )
    assert len(cases) > 500


def adopting_without_abort() -> Patch:
    """Copies are taken from a plan that can still be decided."""
    return Patch(Committer, "give_up", lambda self, plan, run, reason: True)


@pytest.mark.timeout(1200)
def test_adoption_without_an_abort_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier plan is decided before its copies are taken, and can't be carried out after that."""
    late_at(first_take(), "decide_late", dies=False)
    patch = adopting_without_abort()
    monkeypatch.setattr(patch.owner, patch.name, patch.value)
    with pytest.raises(Broken):
        late_at(first_take(), "decide_late", dies=False)


def first_take() -> int:
    """The call of the next run that takes the first copy."""
    calls = calls_of_the_next_run(decidable=True)
    return next(n for n, call in enumerate(calls) if call.operation == "replace")
