"""The crash matrix of a mirror: every call of a run, with every fault that can happen to it, and each way to go on from there;
and a pause before every call, in which others do something.

    first run, whole  →  second run, with a fault at call k  →  look  →  one of the ways to go on  →  third run, whole  →  look

Between the runs files of the source come, change and go, and so do permissions and folders: a run places new files, a new folder
whole and a new file set whole, replaces and deletes files, empties its trash, sets attributes, and removes folders.

As in `matrix`, processes die by SIGKILL, and a disk drops what was not synced. The bytes of copies are written by the kernel:
here each copy is a call, too, of which the disk knows. A target is known by its path, so that each worker plays its cases at one.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy.blocks import Origin
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.finders import EachFolder
from airflow_gobblin.copy.options import Delete, Existing, Keep
from airflow_gobblin.copy.transfer import copying
from airflow_gobblin.copy.transfer.durability import FolderSync
from airflow_gobblin.copy.transfer.local import DiskDestination
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.job import Attempt
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import NoteKind
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.model.work import Pack, StagedFile, UnitState
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.steps.base import Phase, StepContext, StepStatus
from airflow_gobblin.steps.trash import KEPT
from airflow_gobblin.storage.files import Files, LocalFiles
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.workspace.staging import ROOT
from tests.faults import POWER, Call, Disk, Effect, Faults, FaultyFiles, FaultyStore, RealMedium, plugged_in
from tests.protocol.matrix import Point, carrying_out, end, expect_recorded, points
from tests.protocol.mirror_acts import on_disk_without_renames
from tests.protocol.processes import Send, in_fresh_process
from tests.protocol.world import Look, Run

NAME = "photos"
MINE = "a/mine.txt"
"""A file of the user's own in the target, which the mirror's filter excludes."""
VERSIONS = {
    "a/same": "111",
    "a/replaced": "123",
    "a/deleted": "1--",
    "a/came": "-22",
    "a/mode": "111",
    "a/kept/x": "113",
    "a/gone/x": "1--",
    "a/whole/x": "-22",
    "a/whole/deep/y": "-23",
    "b/same": "111",
    "b/later": "11-",
    "new/x": "-22",
    "new/deep/y": "-2-",
    "new/deep/z": "-22",
}
"""The files of the source: the version of each in the first, second and third run; `-` where there is none."""
MODES = {"a/mode": (0o640, 0o604, 0o600), "a/kept": (0o755, 0o705, 0o750)}
"""The permissions of files and folders in these runs, where they change."""
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
_TIME = 1_700_000_000_123_456_789
_DAY = 86_400_000_000_000
_LATE = ("airflow_gobblin.copy.backups", "airflow_gobblin.copy.planning", "airflow_gobblin.copy.transfer.splitting")
"""The modules that a mirror imports late: here, before a process is forked."""


@dataclass(frozen=True)
class Kind:
    """A kind of target of a mirror.

    :param backup: whether replaced and deleted files are kept.
    :param linked: whether it has no rename without overwriting.
    """

    name: str
    backup: bool = False
    linked: bool = False


KINDS = (Kind("a disk"), Kind("with a backup", backup=True), Kind("by links, with a backup", backup=True, linked=True))


@dataclass(frozen=True)
class Place:
    """Source, target and journal, in a folder.

    :param records: those of the first run.
    """

    folder: Path
    kind: Kind
    records: Mapping[str, bytes] = field(default_factory=dict)

    def disk(self) -> Disk:
        """A disk under it, on which everything is durable."""
        return Disk(RealMedium(str(self.folder), f"{self.folder}/attic"))

    def files(self, name: str) -> Files:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return on_disk_without_renames(folder) if self.kind.linked else LocalFiles(folder)

    def opened(self, faults: Faults, disk: Disk | None = None) -> OpenJob:
        """The job, in a fresh process."""
        target = FaultyFiles(self.files("target"), faults, disk, "target")
        records = FaultyFiles(self.files("journal"), faults, disk, "journal")
        mirror = Mirror(
            NAME,
            str(self.folder / "source"),
            str(self.folder / "target"),
            "unused",
            datasets=EachFolder(),
            exclude=(f"/{MINE}",),
            existing=Existing.UPDATE,
            delete=Delete(1),
            keep=Keep("tp"),
            backup=f"{self.folder}/target/{ROOT}/backup" if self.kind.backup else None,
            max_packs=1,
            attempts=100,
        )
        journal = Journal.create(FaultyStore(LocalStore(records), faults), NAME)
        return OpenJob(mirror, journal, NoConnections(), target)

    def look(self) -> MirrorLook:
        """The place, seen without any fault."""
        return MirrorLook(self, Journal.create(LocalStore(self.files("journal")), NAME))


@dataclass(frozen=True)
class MirrorWorld:
    """A place, as one process sees it.

    :param disk: the disk under it, if syncs are to be tracked.
    """

    place: Place
    disk: Disk | None = None

    def __post_init__(self) -> None:
        count_copies()
        if self.disk is not None:
            plugged_in.append(self.disk)

    def process(self, faults: Faults) -> MirrorProcess:
        return MirrorProcess(self.place.opened(faults, self.disk))

    def carry_out(self, run: Run, faults: Faults, send: Send = lambda _: None) -> Run:
        """A run, or the rest of it."""
        run.carry_out(lambda: self.process(faults), send)
        return run


@dataclass(frozen=True)
class MirrorProcess:
    """The product in one process."""

    opened: OpenJob

    def extract(self, run: RunPlan, pack: Pack, attempt: str) -> None:
        """The work of Spark, without Spark."""
        staging, failed = self.opened.staging, []
        for plan, unit in missing_units(self.opened, pack):
            folder = staging.token_folder(plan.token)
            result = self.opened.job.work.run(unit, plan, Attempt(attempt, self.opened.files, folder, NoConnections()))
            staging.put_result(plan.token, result)
            if result.state is not UnitState.SUCCESSFUL:
                failed.append(result.failure)
        if failed:
            raise OSError(f"the task fails, and is tried again: {failed[0]}")


# The copies


class CountedCopies(DiskDestination):
    """Copies to a disk, each of which is a call, that a disk hears of."""

    def stage(self, entry: Entry, origin: Origin) -> StagedFile:
        files = cast(FaultyFiles, self._files)
        path = f"{self._folder}/{entry.path}"
        at, disk = f"{files.root}/{path}", files._disk

        def do() -> StagedFile:
            missing = [] if disk is None else disk.missing_folders(os.path.dirname(at))
            staged = super(CountedCopies, self).stage(entry, origin)
            if disk is not None:
                disk.made_folders(missing)
                disk.named(at, content=True)
            return staged

        def tear() -> None:
            do()
            os.truncate(at, entry.size // 2)

        return files._call("copy", path, Effect.GROW, do, tear)


def count_copies() -> None:
    """Let this process count its copies, and a disk hear of the system call that makes many of them durable."""
    setattr(copying, "LocalFiles", FaultyFiles)  # noqa: B010
    setattr(copying, "DiskDestination", CountedCopies)  # noqa: B010
    setattr(FolderSync, "sync", _sync)  # noqa: B010


def _sync(self: FolderSync) -> None:
    """As `syncfs`, of what is in the folder, and of the names of the folders that it is in."""
    top = os.readlink(f"/proc/self/fd/{self._folder}")
    for disk in plugged_in:
        for folder, _, names in os.walk(top):
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                disk.fsync(path)
        for above in Path(top).parents:
            disk.fsync(str(above))


# The source


def write_source(folder: Path, number: int) -> None:
    """Make the source what it is in the n-th run."""
    for path, versions in VERSIONS.items():
        at, version = folder / path, versions[number - 1]
        if version == "-":
            at.unlink(missing_ok=True)
            with suppress(OSError):
                at.parent.rmdir()
            continue
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(_content(path, version))
        at.chmod(_mode(path, number))
        os.utime(at, ns=(_time(version), _time(version)))
    for above, _, _ in os.walk(folder, topdown=False):
        os.chmod(above, _mode(os.path.relpath(above, folder), number, _FOLDER_MODE))
        os.utime(above, ns=(_TIME, _TIME))


def _content(path: str, version: str) -> str:
    return f"version {version} of {path}"


def _mode(path: str, number: int, default: int = _FILE_MODE) -> int:
    return MODES[path][number - 1] if path in MODES else default


def _time(version: str) -> int:
    return _TIME + int(version) * _DAY


# Checks


Tree = dict[str, tuple[str, int, int]]
"""The files of a tree, each with its content, its permission and its time, and the folders."""


def tree(folder: Path, *, without: tuple[str, ...] = (ROOT,)) -> Tree:
    found: Tree = {}
    for above, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in without]
        for name in (*folders, *names):
            path = Path(above, name)
            at, is_file = path.stat(), name in names
            found[str(path.relative_to(folder))] = (
                path.read_text() if is_file else "a folder",
                at.st_mode & 0o7777,
                at.st_mtime_ns,
            )
    return found


@dataclass
class MirrorLook:
    """The content of a place, and whether it is as promised."""

    place: Place
    journal: Journal

    @property
    def protocol(self) -> Look:
        return Look(self.journal, self.place.files("target"))

    def target(self) -> Tree:
        """The target's files and folders, but for the user's own."""
        return {path: one for path, one in tree(self.place.folder / "target").items() if path != MINE}

    def check(self) -> None:
        """Check what holds at any moment."""
        protocol = self.protocol
        protocol.check_records(self.place.records)
        for path, (content, _, _) in self.target().items():
            allowed = {_content(path, version) for version in VERSIONS.get(path, "")} or {"a folder"}
            assert content in allowed, f"{path} is no version of the source, but {content!r}"
        mine = self.place.folder / "target" / MINE
        assert mine.read_text() == "the user's", "the user's own file was changed"  # I10
        for urn in self.journal.datasets():
            history = self.journal.history(urn)
            protocol._check_chain(history)
            assert history.state.live == {}, f"{urn} has live units"
            self._check_pending(urn)
        if self.place.kind.backup:
            self._check_kept()

    def _check_pending(self, urn: str) -> None:
        """All that an unfinished decision is to place or delete is still there, or done (I11), unless it is being abandoned."""
        pending = self.journal.history(urn).pending
        if pending is None or pending.noted(NoteKind.ABANDONING):
            return
        context = StepContext(self.place.files("target"))
        for step in self.journal.steps(pending.decision, pending.decision.of(Phase.PUBLISH)):
            found = step.verify(context)
            assert found in (StepStatus.TODO, StepStatus.DONE), f"{step.subject} of {pending.named} is {found}"

    def _check_kept(self) -> None:
        """Everything that the first run published is in the target, or kept, or on the way there."""
        found = {content for content, _, _ in tree(self.place.folder / "target", without=()).values()}
        first = {_content(path, versions[0]) for path, versions in VERSIONS.items() if versions[0] != "-"}
        assert first <= found, f"{sorted(first - found)} is neither in the target nor kept"

    def files(self) -> dict[str, str]:
        """The contents of the target's files."""
        return {path: content for path, (content, _, _) in self.target().items() if content != "a folder"}

    def check_unchanged(
        self, ended: Mapping[str, int], before: Mapping[str, object], now: Mapping[str, object] | None = None
    ) -> None:
        """A late task has changed nothing of slots that had ended.

        :param ended: as `ended` was before.
        :param before: what the target had.
        :param now: by default all that it has.
        """
        now = self.target() if now is None else now
        later = self.ended()
        for urn in (urn for urn, head in ended.items() if later.get(urn) == head):
            of_it = f"{urn.partition('#')[0]}/"
            one, other = ({path: at for path, at in some.items() if path.startswith(of_it)} for some in (before, now))
            assert one == other, f"{urn} had {one} when its slots had ended, and later {other}"

    def check_rest(self) -> None:
        """After a run without faults: the target is the source, and nothing is left over."""
        self.check()
        source, target = tree(self.place.folder / "source"), self.target()
        differ = {path: (source.get(path), target.get(path)) for path in {*source, *target}}
        differ = {path: both for path, both in differ.items() if both[0] != both[1]}
        assert not differ, f"source and target differ in {differ}"
        files = self.place.files("target")
        left = [path for path in files.walk(ROOT) if "/s/" in path or path.startswith(KEPT)]
        assert not left, f"something is left over: {left}"
        trashes = [folder for folder, _, _ in os.walk(self.place.folder / "target" / ROOT) if "/trash-" in folder]
        assert not trashes, f"a trash is left over: {trashes}"
        for urn in self.journal.datasets():
            assert self.journal.history(urn).pending is None, f"{urn} has a pending slot"

    def ended(self) -> dict[str, int]:
        """The file sets without a pending slot, each with the number of its newest slot."""
        histories = [self.journal.history(urn) for urn in self.journal.datasets()]
        return {one.urn: one.state.head for one in histories if one.pending is None}


# A start


@dataclass(frozen=True)
class MirrorStart:
    """The state that all cases start from.

    :param calls: those of a second run without fault.
    """

    kind: Kind
    calls: list[Call]


def start(folder: Path, kind: Kind) -> MirrorStart:
    """The state that all cases start from, and the calls that a second run makes there."""
    recorded = folder / "recorded"  # as deep as the folders of the cases: claims of the folders above are looked for
    recorded.mkdir()
    with played(recorded, kind) as place:

        def work(send: Send) -> None:
            faults = Faults()
            run = MirrorWorld(place).carry_out(Run("run 2"), faults)
            assert not run.errors, run.errors
            place.look().check_rest()
            send(faults.calls)

        (calls,) = in_fresh_process(work)
    return MirrorStart(kind, calls)


@contextmanager
def played(folder: Path, kind: Kind) -> Iterator[Place]:
    """A place after a whole first run, with the source of the second one. It is always at the same path in this folder."""
    place, first = Place(folder / "place", kind), folder / "first"
    if not first.exists():
        import_kinds()
        for module in _LATE:
            import_module(module)
        in_fresh_process(lambda _: _first_run(place))
        place.folder.rename(first)
    shutil.copytree(first, place.folder)
    write_source(place.folder / "source", 2)
    try:
        yield replace(place, records=place.look().protocol.records())
    finally:
        shutil.rmtree(place.folder)


def _first_run(place: Place) -> None:
    write_source(place.folder / "source", 1)
    mine = place.folder / "target" / MINE
    mine.parent.mkdir(parents=True)
    mine.write_text("the user's")
    run = MirrorWorld(place).carry_out(Run("run 1"), Faults())
    assert not run.errors, run.errors
    place.look().check_rest()


# Events


class After(StrEnum):
    """How it goes on after a fault."""

    RETRIED = "the run is retried"
    NEXT = "the next run comes"
    ABANDONED = "somebody abandons the run, of which a late task goes on"
    LATE = "the next run comes, and then a late task goes on"


@dataclass(frozen=True)
class MirrorTrial:
    """A fault, and how it goes on after it."""

    point: Point
    after: After

    def __str__(self) -> str:
        return f"{self.point}; {self.after}"

    def run(self, start: MirrorStart, folder: Path) -> bool:
        """Play it.

        :return: whether it happened.
        :raises AssertionError: a promise is broken.
        """
        with played(folder.parent, start.kind) as place:
            run = fail(place, self.point)

            def work(send: Send) -> None:
                place.look().check()
                self._go_on(MirrorWorld(place), run)
                come_to_rest(MirrorWorld(place))
                if self.after is After.RETRIED:
                    stay_at_rest(MirrorWorld(place))

            in_fresh_process(work)
        return True

    def _go_on(self, world: MirrorWorld, run: Run) -> None:
        look = world.place.look()
        match self.after:
            case After.RETRIED:
                world.carry_out(run, Faults())
                look.check()
            case After.ABANDONED:
                abandon(world.place)
                look.check()
                ended, before = look.ended(), look.target()
                world.carry_out(run, Faults())
                look.check_unchanged(ended, before)
            case After.LATE:
                come_to_rest(world)
                ended, before = look.ended(), look.target()
                world.carry_out(run, Faults())
                look.check_unchanged(ended, before)


class Meanwhile(StrEnum):
    """An event while a run is paused before a call."""

    ABANDONED = "everything is abandoned"
    NEXT = "the next run comes"
    BOTH = "everything is abandoned, and the next run comes"


@dataclass(frozen=True)
class MirrorPause:
    """A run that is paused before a call, and goes on after something else has happened."""

    at: int
    call: Call
    meanwhile: Meanwhile

    def __str__(self) -> str:
        return f"{self.meanwhile} before call {self.at}: {self.call}"

    def run(self, start: MirrorStart, folder: Path) -> bool:
        """Play it.

        :return: whether it happened.
        :raises AssertionError: a promise is broken.
        """
        with played(folder.parent, start.kind) as place:
            in_fresh_process(lambda _: self._go(place))
        return True

    def _go(self, place: Place) -> None:
        look = place.look()
        seen: list[Any] = []

        def others(send: Send) -> None:
            world = MirrorWorld(place)
            if self.meanwhile is not Meanwhile.NEXT:
                abandon(place)
            if self.meanwhile is not Meanwhile.ABANDONED:
                next_run(world)
            look.check()
            send((look.ended(), look.files()))

        def pause(call: Call) -> None:
            if len(faults.calls) == self.at:
                same = (call.place, call.operation) == (self.call.place, self.call.operation)
                assert same, f"where {self.call} was recorded, there was now {call}"
                seen.extend(in_fresh_process(others))

        faults = Faults(hook=pause)
        MirrorWorld(place).carry_out(Run("run 2"), faults)
        ((ended, before),) = seen
        look.check()
        # Attributes and folders are no acts that are possible once only: each plan compares them again.
        look.check_unchanged(ended, before, look.files())
        come_to_rest(MirrorWorld(place))


def fail(place: Place, point: Point) -> Run:
    """Carry out the second run with a fault.

    :return: it, as far as its scheduler knows.
    """

    def work(send: Send) -> None:
        world = MirrorWorld(place, place.disk() if point.fault in POWER else None)
        faults = Faults(point.at, point.fault, die=lambda: end(world, point, faults, send))
        world.carry_out(Run("run 2"), faults, send)
        send((faults.calls[point.at] if faults.happened else None, None))

    *sent, (happened, _) = in_fresh_process(work)
    expect_recorded(point, happened)
    return sent[-1] if sent else Run("run 2")


def abandon(place: Place) -> None:
    """A person abandons all that is pending, or planned."""
    opened = place.opened(Faults())
    for urn in opened.journal.datasets():
        with suppress(GobblinError):  # there is nothing to abandon
            Administration(opened.journal, opened.files, "ann").abandon(urn, "it is not wanted any more")


def next_run(world: MirrorWorld) -> Run:
    """A run of another name than all before it, whose source is that of the third one."""
    write_source(world.place.folder / "source", 3)
    return world.carry_out(Run(f"run {uuid.uuid4().hex}"), Faults())


def come_to_rest(world: MirrorWorld) -> None:
    """The next run is green, and everything is right."""
    run = next_run(world)
    assert not run.errors, f"the next run raised {run.errors}"
    bad = [report for report in run.final if not report.ok]
    assert run.final, "the next run did not come to its end"
    assert not bad, f"the next run is not green: {bad}"
    world.place.look().check_rest()


def stay_at_rest(world: MirrorWorld) -> None:
    """A run without any change decides nothing."""
    look = world.place.look()
    before = look.ended()
    come_to_rest(world)
    assert look.ended() == before, "a run decided something though nothing had changed"


def trials(calls: Sequence[Call]) -> Iterator[MirrorTrial]:
    """Every call with every fault that can happen to it, without twins: while slots are carried out with every way to go on, and
    before and after that with one.
    """
    first, last = carrying_out(calls)
    for number, point in enumerate(points(calls)):
        ways = [*After]
        for after in ways if first <= point.at <= last + 1 else (ways[number % len(ways)],):
            yield MirrorTrial(point, after)


def pauses(calls: Sequence[Call]) -> Iterator[MirrorPause]:
    """A pause before every call, with everything that can happen meanwhile, or one of it, in the same way."""
    first, last = carrying_out(calls)
    for at, call in enumerate(calls):
        what = [*Meanwhile]
        for meanwhile in what if first <= at <= last + 1 else (what[at % len(what)],):
            yield MirrorPause(at, call, meanwhile)
