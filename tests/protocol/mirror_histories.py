"""Random histories of a mirror: runs, crashes and errors at any call of its stores and files, changes of the source and files
of it that can't be read, outsiders at the target, people who abandon or pause, late tasks.

At every moment no file is half there and nothing of an outsider's is lost; at rest the target is the source.

    $ .venv/bin/python -m tests.protocol.mirror_histories SEED

plays one again. A target with everything that lies in it is on a real disk, and the journal in memory.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from unittest import mock

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.commit.preconditions import can_win
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.finders import EachFolder
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep
from airflow_gobblin.copy.transfer.local import DiskOrigin
from airflow_gobblin.errors import GobblinError, SourceError
from airflow_gobblin.job import Attempt
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, NoteKind
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.holds import Holds
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
from airflow_gobblin.steps.base import Phase
from airflow_gobblin.steps.deleting import DeleteStep
from airflow_gobblin.steps.placing import PlaceFolderStep, PlaceStep
from airflow_gobblin.storage.files import FileIdentity, LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace.staging import ROOT
from tests.faults import Call, Crash, Fault, Faults, FaultyFiles, FaultyStore
from tests.proofs import fresh_seed
from tests.protocol.world import PAUSING

SETS = ("a", "b", "c")
NAMES = ("v", "w", "x", "d/x", "d/y", "d/e/z")
_FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_BEFORE, Fault.ANSWER_LOST, Fault.ERROR)
_EVENTS = {"run": 6, "change": 5, "outsider": 2, "abandon": 1, "pause": 1, "late": 4}


class Broken(AssertionError):
    """A promise is broken."""


@dataclass(frozen=True)
class Planned:
    """A run that a process planned and may still be at work on.

    :param missing: the units that its Spark application found without a result when it began.
    """

    opened: OpenJob
    plan: RunPlan
    missing: tuple[tuple[Plan, WorkUnit], ...]


@dataclass
class MirrorHistory:
    """One history.

    :param folder: holds source and target.
    :param log: what happened.
    """

    folder: Path
    seed: int
    log: list[str] = field(default_factory=list)
    crashes: int = 0
    calls: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.store = MemoryStore()
        self.source, self.target = self.folder / "source", self.folder / "target"
        self.backup = f"{self.target}/{ROOT}/backup" if self.random.random() < 0.5 else None
        self.compare = self.random.choice([Compare.CHECKSUM, Compare.SIZE_AND_TIME, Compare.SIZE_AND_TIME])
        self.modes = random.Random(f"modes {self.seed}")
        self.keep = Keep(self.modes.choice(["", "p"]))
        self.written = 0
        self.unreadable: set[str] = set()
        """The files of the source that can't be read for now, by their names."""
        self.taken = 0
        """How many finished copies were there to be used again."""
        self.touched: set[str] = set()
        """The files of the target that outsiders wrote or deleted."""
        self.late: list[Planned] = []
        self.heads: dict[str, int] = {}
        """The newest slot that each plan saw, by its token."""
        self.executing = False
        self.after_abandon: dict[str, dict[str, str]] = {}
        """The files that the folders of file sets held when their slot was abandoned, while it was being carried out."""
        self.theirs: dict[str, tuple[str, FileIdentity]] = {}
        """The files that outsiders wrote: by the content, the path and the identity of the file."""
        self.published: set[str] = set()
        """Every content that the target had, but for what outsiders took away: a backup folder keeps it."""
        self.known: set[str] = set()
        """Every content that was ever written whole."""
        for name in SETS[:2]:  # the last one comes later
            self._write(self.source / name / "first")

    # events

    def play(self, events: int = 12) -> None:
        """Play the history, and check it at every moment and at rest."""
        for _ in range(events):
            (event,) = self.random.choices([*_EVENTS], [*_EVENTS.values()])
            getattr(self, f"_{event}")()
            self.check(event)
        self._rest()

    def _run(self) -> None:
        """A run, in a process that may die, or get an error, at some call."""
        at = self.random.choice([None, self.random.randrange(400), self.random.randrange(60)])
        fault = self.random.choice(_FAULTS)
        outsider_at = self.random.choice([None, self.random.randrange(500)])
        abandon_at = self.random.choice([None, self.random.randrange(80), self.random.randrange(16)])
        self.unreadable = {*self.random.sample(NAMES, self.random.choice([0, 0, 1, 2]))}
        late_at = self.random.choice([None, None, self.random.randrange(100)])
        faults = f"{self.unreadable or 'nothing'} unreadable, {fault.value if at is not None else 'no fault'} at {at}"
        faults = f"{faults}, an outsider at {outsider_at}, a late decision at {late_at}"
        self.log.append(f"run, {faults}, somebody who abandons at {abandon_at}")
        with _Process(self, at, fault, outsider_at, abandon_at, late_at) as opened:
            self._carry_out(opened, RunRequest(f"run {len(self.log)}"))
        self.unreadable = set()
        self.executing = False
        for name, before in self.after_abandon.items():
            now = self._tree(self.target / name)
            self._expect(now == before, f"{name} was abandoned with {before}, and has {now} afterwards")
        self.after_abandon.clear()

    def _carry_out(self, opened: OpenJob, request: RunRequest) -> None:
        verify_recover(opened, request)
        plan = create_work_units(opened, request)
        missing = tuple(one for pack in plan.packs for one in missing_units(opened, pack))
        self.taken += sum(len(unit.finished) for _, unit in missing)
        self.late.append(Planned(opened, plan, missing))
        for _, planned in opened.staging.plans():
            if isinstance(planned, Plan):
                self.heads[planned.token] = planned.head
        if self.random.random() < 0.2:
            return
        inprocess.extract(opened, plan, NoConnections())
        if self.random.random() < 0.3:
            return
        for pack in plan.packs:
            write_commit_steps(opened, plan, pack)
        if self.random.random() < 0.3:
            return
        self.executing = True
        for pack in plan.packs:
            execute_commit_steps(opened, plan, pack)
        if self.random.random() < 0.8:
            finish(opened, plan)

    def abandon_now(self) -> None:
        """A person abandons what is being carried out just now."""
        for name in SETS:
            pending = self._history(f"{name}#files").pending
            if pending is None:
                continue
            dies = self.random.random() < 0.5
            self.log.append(f"meanwhile {name} is abandoned{', and not cleaned up' if dies else ''}")
            with suppress(GobblinError):
                if dies:
                    committer = Committer(self._journal(), LocalFiles(self.target))
                    abandoned = committer.abandon(pending, "ann's", "ann", "it is random").abandoned
                else:
                    admin = Administration(self._journal(), LocalFiles(self.target), "ann")
                    abandoned = admin.abandon(f"{name}#files", "it is random")[0].abandoned
                if abandoned:
                    self.after_abandon[name] = self._tree(self.target / name)

    def _late(self) -> None:
        """A task of an earlier run, whose process has not died, or which is cleared."""
        if not self.late:
            return
        one = self.random.choice(self.late[-4:])
        if self.random.random() < 0.4:
            self._copy_late(one)
            return
        task = self.random.choice([write_commit_steps, write_commit_steps, execute_commit_steps, None])
        self.log.append(f"late {'finish' if task is None else task.__name__}")
        with self._process(None, Fault.ERROR, None) as opened, suppress(GobblinError):
            if task is None:
                finish(opened, one.plan)
            for pack in one.plan.packs:
                if task is not None:
                    task(opened, one.plan, pack)

    def _copy_late(self, one: Planned) -> None:
        """Spark tasks of an earlier run, which look at nothing before they copy what they were given."""
        self.log.append("late copies")
        with self._process(None, Fault.ERROR, None) as opened, suppress(GobblinError):
            for plan, unit in one.missing:
                folder = opened.staging.token_folder(plan.token)
                result = opened.job.work.run(unit, plan, Attempt("late", opened.files, folder, NoConnections()))
                opened.staging.put_result(plan.token, result)

    def decide_late(self) -> None:
        """An earlier run decides what it has, while another one is at work."""
        if len(self.late) < 2:
            return
        one = self.random.choice(self.late[-3:-1])
        self.log.append("meanwhile an earlier run decides")
        with self._process(None, Fault.ERROR, None) as opened, suppress(GobblinError):
            for pack in one.plan.packs:
                write_commit_steps(opened, one.plan, pack)

    def _change(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            folder = self.source / self.random.choice(SETS)
            if not folder.exists():
                self._write(folder / "first")
            path = folder / self.random.choice(NAMES)
            if path.is_file() and self.random.random() < 0.6:
                path.unlink()
                self.log.append(f"source without {path.relative_to(self.source)}")
            else:
                self._write(path)
                self.log.append(f"source has {path.relative_to(self.source)}")

    def _outsider(self, path: Path | None = None) -> None:
        """An outsider writes to the target, or deletes from it, and gives a file of it, be it staged, another permission."""
        files = sorted(name for name, _ in _files(self.target))
        if files and self.modes.random() < 0.7:
            (self.target / self.modes.choice(files)).chmod(0o666)
        path = path or self.target / self._interesting()
        for name in self.after_abandon:
            if path.is_relative_to(self.target / name):
                return  # its content from now on is compared
        self.touched.add(str(path.relative_to(self.target)))
        if path.is_file() and self.random.random() < 0.3:
            content = path.read_text()
            path.unlink()
            self._taken_away(content)
            self.log.append(f"target without {path.relative_to(self.target)}")
            return
        try:
            if path.is_file():
                self._taken_away(path.read_text())
            content = self._write(path)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            return
        self.log.append(f"an outsider's {path.relative_to(self.target)}")
        identity = LocalFiles(self.target).identity(str(path.relative_to(self.target)))
        assert identity is not None
        self.theirs[content] = (str(path.relative_to(self.target)), identity)

    def _taken_away(self, content: str) -> None:
        self.theirs.pop(content, None)
        self.published.discard(content)

    def _interesting(self) -> str:
        """Choose a path: mostly one that a pending slot is about."""
        pending = (self._history(f"{name}#files").pending for name in SETS)
        steps = [step for slot in pending if slot for step in self._journal().steps(slot.decision)]
        paths = [path for step in steps if (path := _acts_on(step))]
        if paths and self.random.random() < 0.8:
            return self.random.choice(paths)
        return f"{self.random.choice(SETS)}/{self.random.choice(NAMES)}"

    def _abandon(self) -> None:
        """A person abandons what is pending; their process may die, too."""
        at = self.random.choice([None, self.random.randrange(40)])
        for urn in (f"{name}#files" for name in SETS):
            if self._history(urn).pending is None:
                continue
            self.log.append(f"abandon {urn}, crash at {at}")
            with self._process(at, self.random.choice(_FAULTS), None) as opened, suppress(GobblinError):
                admin = Administration(opened.journal, opened.files, "ann")
                admin.abandon(urn, "it is random")
        # late tasks change nothing of a slot that is abandoned
        before = self._contents()
        for one in self.late:
            if all(self._is_over(one.plan, urn) for urn in (f"{name}#files" for name in SETS)):
                for pack in one.plan.packs:
                    with self._process(None, Fault.ERROR, None) as opened, suppress(GobblinError):
                        execute_commit_steps(opened, one.plan, pack)
        self._expect(self._contents() == before, "a late task changed something after the slots had ended")

    def _pause(self) -> None:
        """A person pauses a set, or resumes it, whether or not a slot is pending."""
        urn = f"{self.random.choice(SETS)}#files"
        admin = Administration(self._journal(), LocalFiles(self.target), "ann")
        if self._history(urn).known:
            paused = self._history(urn).state.paused is not None
            self.log.append(f"{urn} is {'resumed' if paused else 'paused'}")
            (admin.resume if paused else admin.pause)(urn, "it is random")

    def _is_over(self, plan: RunPlan, urn: str) -> bool:
        tokens = {ref.token for pack in plan.packs for ref in pack.datasets}
        slots = [slot for slot in self._history(urn).slots if slot.decision.token in tokens]
        return all(slot.finished for slot in slots)

    def _rest(self) -> None:
        """Runs without faults: then source and target are equal, and nothing is left over."""
        for urn in (f"{name}#files" for name in SETS):
            if self._history(urn).state.paused is not None:
                Administration(self._journal(), LocalFiles(self.target), "ann").resume(urn, "it is over")
        for number in range(12):
            opened = self._opened(Faults())
            request = RunRequest(f"rest {number}")
            verify_recover(opened, request)
            plan = create_work_units(opened, request)
            reports = inprocess.go_on(opened, plan, NoConnections())
            self.log.append(f"rest: {', '.join(f'{u} {r.status.value} {r.detail}' for u, r in reports.items())}")
            self.check("rest")
            if {report.status.value for report in reports.values()} == {"idle"}:
                break
            for urn in reports:
                history = self._history(urn)
                if history.pending is not None:  # an outsider is in its way
                    with suppress(GobblinError):
                        Administration(self._journal(), opened.files, "ann").abandon(urn, "something is in its way")
        sets = [name for name in SETS if (self.source / name).exists()]
        mine = {name: self._tree(self.source / name) for name in sets}
        copy = {name: self._tree(self.target / name) for name in sets}
        self._expect(mine == copy, f"at rest the source is {mine}, and the target {copy}")
        if self.keep.letters:
            for name in sets:
                wanted, found = _modes(self.source / name), _modes(self.target / name)
                self._expect(
                    wanted == found, f"at rest the source has the permissions {wanted}, and the target {found}"
                )
        staged = {path.parent.name for path in self.target.glob(f"{ROOT}/photos-*/s/*/*")}
        plans = [plan for _, plan in self._opened(Faults()).staging.plans() if isinstance(plan, Plan)]
        needed = {plan.token for plan in plans if can_win(plan, self._history(plan.urn))}
        self._expect(staged <= needed, f"staging is left: {staged - needed}")

    @contextmanager
    def unreadable_files(self) -> Iterator[None]:
        """The files of the source can't be read while they are named in `unreadable`."""
        opens = DiskOrigin._open

        def checked(origin: DiskOrigin, entry: Entry) -> tuple[int, str, os.stat_result]:
            if entry.path in self.unreadable:
                raise SourceError(operation="read", subject=f"file {entry.path!r}", cause="injected")
            return opens(origin, entry)

        with mock.patch.object(DiskOrigin, "_open", checked):
            yield

    # checks

    def check(self, after: str) -> None:
        """Check what holds at every moment."""
        found = Counter(self._contents(everywhere=True).values())
        for path, content in self._contents().items():
            self._expect(content in self.known, f"after {after}, {path} is half there: {content!r}")
        for content, (path, identity) in [*self.theirs.items()]:
            if found[content]:
                continue
            expected = self.backup is None and self._expected(path, identity)
            self._expect(expected, f"after {after}, an outsider's {path} is lost, and no plan expected it there")
            del self.theirs[content]
        if self.backup is not None:
            lost = [content for content in self.published if not found[content]]
            self._expect(not lost, f"after {after}, {lost} were in the target, and are neither there nor kept")
            self.published.update(self._contents().values())
        for urn in (f"{name}#files" for name in SETS):
            history = self._history(urn)
            pending, paused = False, False
            for slot in history.slots:
                action = slot.decision.action
                self._expect(action in PAUSING or not pending, f"{urn}: {slot.named} follows an unfinished one")
                self._expect(action in {*PAUSING, Action.ABORT} or not paused, f"{urn}: {slot.named} is in a pause")
                pending = pending or not slot.finished
                paused = action is Action.PAUSE if action in PAUSING else paused
                between = history.slots[
                    self.heads.get(slot.decision.token, slot.decision.slot) : slot.decision.slot - 1
                ]
                actions = {one.decision.action for one in between}
                self._expect(
                    actions <= {*PAUSING, Action.ABORT},
                    f"{urn}: slot {slot.decision.slot} was planned before another one",
                )
            self._expect(history.state.live == {}, f"{urn} has live units")
            if history.pending is not None:
                self._check_staged(urn, history.pending)

    def _check_staged(self, urn: str, slot: Slot) -> None:
        """Every file that a slot is to place is staged or placed, as long as nobody shut it out, or touched its place."""
        notes = self._journal().notes(urn, slot.decision.slot)
        if any(note.event is NoteKind.ABANDONING for note in notes):
            return
        files = LocalFiles(self.target)
        for step in self._journal().steps(slot.decision, slot.decision.of(Phase.PUBLISH)):
            if isinstance(step, PlaceStep) and step.target not in self.touched:
                there = step.identity in (files.identity(step.source), files.identity(step.target))
                self._expect(there, f"{urn}: {slot.named} is to place {step.target}, and its copy is gone")

    def _expected(self, path: str, identity: FileIdentity) -> bool:
        """Whether a decided step was to replace or delete exactly this file."""
        for urn in (f"{name}#files" for name in SETS):
            for slot in self._history(urn).slots:
                if slot.holds is not Holds.DIFFERENCE:
                    continue
                for step in self._journal().steps(slot.decision, slot.decision.of(Phase.PUBLISH)):
                    if isinstance(step, PlaceStep) and (step.target, step.replaces) == (path, identity):
                        return True
                    if isinstance(step, DeleteStep) and (step.path, step.identity) == (path, identity):
                        return True
        return False

    def _expect(self, holds: bool, message: str) -> None:
        if not holds:
            raise Broken("\n".join((f"history {self.seed}: {message}", *self.log)))

    # how

    def _write(self, path: Path) -> str:
        self.written += 1
        # Where contents aren't compared, an outsider's newer file of the same size is taken for the source's.
        dots = self.random.randrange(30) if self.compare is Compare.CHECKSUM else self.written
        content = f"<{self.written}{'.' * dots}>"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{self.written}")
        new.write_text(content)
        new.chmod(self.modes.choice([0o640, 0o604]))
        new.rename(path)
        self.known.add(content)
        return content

    def _tree(self, folder: Path) -> dict[str, str]:
        return {path: content for path, content in _files(folder) if f"{ROOT}/" not in path}

    def _contents(self, *, everywhere: bool = False) -> dict[str, str]:
        """The files of the target, without our own.

        :param everywhere: with trashes and what is kept, but no staged files.
        """
        kept = ("trash-", f"{ROOT}/kept/", f"{ROOT}/backup/")
        return {
            path: content
            for path, content in _files(self.target)
            if not path.startswith(f"{ROOT}/") or (everywhere and any(part in path for part in kept))
        }

    def _journal(self) -> Journal:
        return Journal.create(self.store, "photos")

    def _history(self, urn: str) -> History:
        return self._journal().history(urn)

    def _opened(self, faults: Faults) -> OpenJob:
        mirror = Mirror(
            "photos",
            str(self.source),
            str(self.target),
            "unused",
            datasets=EachFolder(),
            existing=Existing.UPDATE,
            delete=Delete(1),
            compare=self.compare,
            keep=self.keep,
            backup=self.backup,
            max_packs=2,
            attempts=100,
        )
        files = FaultyFiles(LocalFiles(self.target), faults)
        return OpenJob(mirror, Journal.create(FaultyStore(self.store, faults), "photos"), NoConnections(), files)

    def _process(self, at: int | None, fault: Fault, outsider_at: int | None) -> _Process:
        return _Process(self, at, fault, outsider_at, None)


class _Process:
    """A process of the product; errors and its death end it.

    :param outsider_at: the call before which an outsider acts, where the process is at work.
    :param abandon_at: the call of carrying out slots before which somebody abandons them.
    :param late_at: the call of an earlier task before which a run from before decides.
    """

    def __init__(
        self,
        history: MirrorHistory,
        at: int | None,
        fault: Fault,
        outsider_at: int | None,
        abandon_at: int | None,
        late_at: int | None = None,
    ) -> None:
        self._history = history
        self._outsider_at = outsider_at
        self._abandon_at = abandon_at
        self._late_at = late_at
        self._before_take = history.random.random() < 0.7
        self._looked_at = ""
        self._in_trash = history.random.random() < 0.5
        self._after_looks = history.random.choice([None, history.random.randrange(24)])
        self._has_looked = False
        self._abandoned_placing = history.random.choice([None, history.random.randrange(4)])
        self._faults = Faults(at, fault, hook=self._hook)

    def _hook(self, call: Call) -> None:
        history = self._history
        into_trash = call.operation == "replace" and "/trash-" in call.subject
        takes = call.operation == "replace" and call.subject.startswith(ROOT) and not into_trash
        due = self._late_at is not None and len(self._faults.calls) >= self._late_at
        if not history.executing and (due or (takes and self._before_take)):
            self._late_at, self._before_take = None if due else self._late_at, False
            history.decide_late()
        has_looked, self._has_looked = self._has_looked, False
        if call.place == "files" and call.subject.partition("/")[2] in NAMES and call.subject.startswith(SETS):
            self._looked_at = call.subject
            self._has_looked = history.executing and call.operation == "identity"
        if history.executing and self._abandon_at is not None:
            self._abandon_at -= 1
            if self._abandon_at < 0:
                self._abandon_at = None
                history.abandon_now()
        places = call.operation in ("rename_new", "replace") and call.subject.startswith(SETS)
        if history.executing and places and self._abandoned_placing is not None:
            self._abandoned_placing -= 1
            if self._abandoned_placing < 0:
                self._abandoned_placing = None
                history.abandon_now()
        # Between the last look at a file that is replaced and its rename, an outsider's file is lost, as is stated.
        if call.operation == "replace" and not into_trash:
            return
        if has_looked and self._after_looks is not None:
            self._after_looks -= 1
            if self._after_looks < 0:
                self._after_looks = None
                history._outsider(history.target / self._looked_at)
                return
        due = self._outsider_at is not None and len(self._faults.calls) >= self._outsider_at
        if (into_trash and self._in_trash) or (due and history.random.random() < 0.2):
            self._outsider_at = None
            self._in_trash = self._in_trash and not into_trash
            history._outsider(history.target / self._looked_at if self._looked_at else None)
            if into_trash and history.random.random() < 0.5:
                self._faults._at, self._faults._fault = len(self._faults.calls) + 1, Fault.CRASH_BEFORE

    def __enter__(self) -> OpenJob:
        try:
            return self._history._opened(self._faults)
        except BaseException as error:
            if not self.__exit__(type(error), error, None):
                raise
            return self._history._opened(Faults())

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._history.calls += len(self._faults.calls)
        if isinstance(error, Crash):
            self._history.crashes += 1
            return True
        return isinstance(error, GobblinError | OSError)


def _acts_on(step: object) -> str:
    """A file that a step places, replaces or deletes."""
    if isinstance(step, PlaceFolderStep):
        return step.files()[-1].path
    if isinstance(step, PlaceStep):
        return step.target
    return step.path if isinstance(step, DeleteStep) else ""


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above, name)
            with suppress(FileNotFoundError):
                yield str(path.relative_to(folder)), path.read_bytes().decode(errors="replace")


def _modes(folder: Path) -> dict[str, str]:
    return {path: f"{(folder / path).stat().st_mode & 0o7777:o}" for path, _ in _files(folder)}


def play(seed: int) -> MirrorHistory:
    """Play one history.

    :raises Broken: a promise is broken.
    """
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(dir=shm))
    try:
        history = MirrorHistory(folder, seed)
        no_wait: Callable[[int], None] = lambda fd: None  # noqa: E731
        no_threads = mock.patch.object(execution, "THREADS", 1)
        with mock.patch("os.fsync", no_wait), no_threads, history.unreadable_files():
            history.play()
        return history
    finally:
        shutil.rmtree(folder)


class Played(Protocol):
    """A history that was played. `calls` and `crashes` are their numbers."""

    calls: int
    crashes: int


def play_all(
    play: Callable[[int], Played], known: int, fresh: int, what: str, proved: Callable[[str, str, str], None]
) -> tuple[int, int]:
    """Play histories of known and of fresh seeds, and report them as a proof.

    :param play: plays one, and raises if it breaks a promise.
    :return: the number of all calls, and of all crashes.
    """
    first = fresh_seed()
    seeds = [*range(known), *range(first, first + fresh)]
    histories = [(one.calls, one.crashes) for one in map(play, seeds)]
    calls, crashes = (sum(counts) for counts in zip(*histories, strict=True))
    proved(
        what,
        f"{len(seeds)} histories with {calls:,} calls and {crashes} crashes; 0 broke a promise",
        f"seeds 0 to {known - 1}, and {first} to {seeds[-1]}",
    )
    return calls, crashes


if __name__ == "__main__":
    for text in sys.argv[1:]:
        print("\n".join(play(int(text)).log))
