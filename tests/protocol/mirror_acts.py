"""The acts of mirrors, in every order of the calls that several processes make: executors, late ones, an abandon, and outsiders.

A slot with one act or two is carried out by some executors at once, while a person abandons it and somebody else writes to the
same place. They take turns at each call, and in the middle of each rename: once the kernel has found the folders, another process
goes on. Every order is tried, without a bound: an order isn't followed any further where it leads to a state that was seen. A
process that dies, or is very late, is one that gets no more turns, so that every state is looked at as if everybody else had died
there: the promises hold in it, and a new executor brings the slot to its end from there.

The promises: nothing of an outsider's is lost (but for the stated window of a replacement); nothing is done after an outcome;
DONE means done; and each act is done once at the most.
"""

from __future__ import annotations

import errno
import os
import random
import uuid
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from airflow_gobblin.connections import GuardedConnections, NoConnections
from airflow_gobblin.errors import StepConflictError, StepError, StepFencedError, StepLostError
from airflow_gobblin.steps import deleting, placing, trash
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus
from airflow_gobblin.steps.deleting import CloseTrashStep, DeleteStep
from airflow_gobblin.steps.execution import _carry_out, fence
from airflow_gobblin.steps.placing import ForgetStep, PlaceFolderStep, PlaceStep, place_folder
from airflow_gobblin.steps.trash import CLOSING, FENCED
from airflow_gobblin.storage.files import FileIdentity, Files, LocalFiles
from airflow_gobblin.testing.memory_files import MemoryFiles
from tests.protocol.orders import (
    Answer,
    BrokenPromise,
    Call,
    Explorer,
    Process,
    Tally,
    Work,
    alive,
    forgetting,
    make_call,
    named_in_turn,
)

STAGING = "_gobblin/s/token"
STAGED, TRASH = f"{STAGING}/a0/u0/x", f"{STAGING}/trash/0"
FOLDER, TARGET = "photos", "photos/x"
STAGED_FOLDER = f"{STAGING}/a0/whole"
BACKUP = "backup/token/x"
NEW, OLD = b"new", b"old"
DONE, ABANDONED = "DONE", "ABANDONED"
_FENCED = (StepFencedError, StepLostError, StepConflictError)
_STEPS = (PlaceStep, PlaceFolderStep, ForgetStep, DeleteStep, CloseTrashStep)
_NO_CONNECTIONS = GuardedConnections(NoConnections())
_CHANGES = ("link", "rename_new", "replace", "unlink", "move_folder", "remove_folder", "make_folder")
_LOOKS = frozenset(
    ["outcome", "is_abandoning", "open", "identity", "identities", "read", "folder", "renames_new", "sync_folder"]
)
"""The calls that change nothing."""
_IN_TWO_TURNS = ("link", "rename_new", "replace", "unlink")
"""The calls in which another process goes on once the kernel has found their folders."""


# Files


class OpenedFolders(MemoryFiles):
    """Files in memory whose folders can be held open: a folder is still found after it was renamed.

    A file is known by its content, and a folder by the path at which it was made, and how many times one was. So the same files
    have the same identities, in whatever order they came about.

    :param renames: whether they can be renamed without overwriting.
    """

    def __init__(self, root: str = "memory://target", *, renames: bool = True) -> None:
        super().__init__(root)
        self._renames = renames
        self._made: dict[str, int] = {}
        """How many folders were made at a path."""
        self._ids: dict[str, int] = {}

    def copy(self) -> OpenedFolders:
        other = super().copy()
        other._renames, other._made, other._ids = self._renames, {**self._made}, {**self._ids}
        return other

    def state(self) -> Hashable:
        """Return everything that decides what can happen next."""
        return (self.content(), frozenset(self._ids.items()), frozenset(self._made.items()))

    def identity(self, path: str) -> FileIdentity | None:
        file = self._files.get(path)
        return super().identity(path) if file is None else FileIdentity(zlib.crc32(file.data), len(file.data), "")

    def make_folder(self, path: str) -> None:
        before = {*self._folders}
        super().make_folder(path)
        for made in self._folders - before:
            self._made[made] = self._made.get(made, 0) + 1
            self._ids[made] = hash((made, self._made[made]))

    def open_folder(self, path: str) -> int:
        """Open a folder.

        :raises FileNotFoundError: it doesn't exist.
        """
        if path == ".":
            return 0
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", path)
        return self._ids[path]

    def path_of(self, opened: int) -> str | None:
        """Where an open folder is by now; `None` if it was removed."""
        return next((path for path, number in self._ids.items() if number == opened), "." if opened == 0 else None)

    def renames_new(self, folder: str) -> bool:
        return self._renames and super().renames_new(folder)

    def rename_new(self, source: str, target: str) -> None:
        if not self._renames:
            raise OSError(errno.ENOTSUP, "as on NFS", target)
        super().rename_new(source, target)

    def move_folder(self, source: str, target: str) -> None:
        super().move_folder(source, target)
        moved = {old: f"{target}{old[len(source) :]}" for old in self._ids if f"{old}/".startswith(f"{source}/")}
        self._ids = {moved.get(old, old): number for old, number in self._ids.items()}

    def remove_folder(self, path: str) -> None:
        super().remove_folder(path)
        if path not in self._folders:
            self._ids.pop(path, None)

    def remove_tree(self, path: str) -> None:
        super().remove_tree(path)
        self._ids = {at: number for at, number in self._ids.items() if at in self._folders}


def content(files: Files, path: str) -> bytes | None:
    """The content of a file; `None` if there is none, or a folder."""
    try:
        return files.read(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


# The slot


@dataclass
class Slot:
    """A slot as its journal has it, and the files of its target.

    :param owed: what outsiders wrote, and did not take away themselves.
    """

    files: Files
    steps: tuple[CommitStep, ...] = ()
    outcome: str | None = None
    abandoning: bool = False
    owed: set[bytes] = field(default_factory=set)
    acts: int = 0
    names: int = 0
    opened: Any = None

    def copy(self) -> Slot:
        assert isinstance(self.files, OpenedFolders)
        return Slot(self.files.copy(), self.steps, self.outcome, self.abandoning, {*self.owed}, self.acts, self.names)

    def digest(self) -> Hashable:
        files = self.files
        assert isinstance(files, OpenedFolders)
        return (files.state(), self.outcome, self.abandoning, self.acts, self.names, frozenset(self.owed))

    def holds(self, held: tuple[int, ...]) -> Hashable:
        assert isinstance(self.files, OpenedFolders)
        return tuple(map(self.files.path_of, held))

    def changes(self, call: Call) -> bool:
        return call.name not in _LOOKS

    def answer(self, call: Call, notes: Mapping[str, Any], held: tuple[int, ...]) -> Answer:
        match call.name, *call.arguments:
            case ("outcome",):
                return Answer(self.outcome, self.outcome)
            case ("is_abandoning",):
                return Answer(self.abandoning, self.abandoning)
            case ("start_abandoning",):
                self.abandoning = True
            case "end", outcome:
                if self.outcome is None:
                    self.outcome = outcome
                    check_ended(self)
            case ("new_name",):
                self.names += 1
                return Answer(self.names, self.names)
            case "change", change:
                change(self)
            case _:
                return answer_of_files(self, call, notes, held)
        return Answer()


def place(files: Files, *, linked: bool = False) -> Slot:
    """A slot that is to place a new file."""
    write(files, STAGED, NEW)
    files.make_folder("photos")
    step = PlaceStep(STAGED, TARGET, "u0", known(files, STAGED), linked=linked)
    return Slot(files, (step, ForgetStep(STAGED)) if linked else (step,))


def replace(files: Files) -> Slot:
    """A slot that is to replace a file."""
    write(files, STAGED, NEW)
    write(files, TARGET, OLD)
    return Slot(files, (PlaceStep(STAGED, TARGET, "u0", known(files, STAGED), replaces=known(files, TARGET)),))


def replace_and_keep(files: Files, *, linked: bool = False) -> Slot:
    """A slot that is to replace a file, which is kept."""
    write(files, STAGED, NEW)
    write(files, TARGET, OLD)
    files.make_folder(TRASH)
    old = known(files, TARGET)
    place = PlaceStep(STAGED, TARGET, "u0", known(files, STAGED), "", old, linked, TRASH, BACKUP)
    close = CloseTrashStep(TARGET, old, TRASH, BACKUP)
    return Slot(files, (place, ForgetStep(STAGED), close) if linked else (place, close), owed={OLD})


def place_at_once(files: Files) -> Slot:
    """A slot that is to place a new folder of files."""
    staged = {}
    for path in ("deep/y", "x"):
        out = files.stage(f"{STAGED_FOLDER}/{path}", f"{FOLDER}/{path}")
        out.write(NEW)
        staged[path] = out.finish(0)
    step = place_folder(STAGED_FOLDER, FOLDER, staged, files)
    assert step is not None
    return Slot(files, (step,))


def delete(files: Files, *, backup: str = "") -> Slot:
    """A slot that is to delete a file.

    :param backup: where it is kept.
    """
    write(files, TARGET, OLD)
    files.make_folder(TRASH)
    old = known(files, TARGET)
    slot = Slot(files, (DeleteStep(TARGET, old, TRASH, backup), CloseTrashStep(TARGET, old, TRASH, backup)))
    if backup:
        slot.owed.add(OLD)
    if not isinstance(files, MemoryFiles):
        slot.opened = open(f"{files.root}/{TARGET}", "ab", buffering=0)  # noqa: SIM115 - somebody has it open
    return slot


def write(files: Files, path: str, data: bytes) -> None:
    with files.create(path) as out:
        out.write(data)


def known(files: Files, path: str) -> FileIdentity:
    found = files.identity(path)
    assert found is not None
    return found


# Calls of files


def answer_of_files(slot: Slot, call: Call, notes: Mapping[str, Any], held: tuple[int, ...]) -> Answer:
    """Carry out a call of `CalledFiles`. A process notes the contents that it last saw at the places of files."""
    name, paths = call.name, call.arguments
    try:
        if name == "open":
            return Answer(held=_opened(slot.files, paths))
        found = _carried_out(slot, name, _where(slot.files, held, paths) if held else paths, notes)
    except OSError as error:
        return Answer(error=error, digest=("error", error.errno))
    seen, looks = found, {}
    if name == "identity":
        there = content(slot.files, paths[0])
        seen = (found is not None, there)
        if there is not None or paths[0] == TARGET:
            looks[paths[0]] = there
    if name == "identities":
        looks = {f"{paths[0]}/{inside}": content(slot.files, f"{paths[0]}/{inside}") for inside in sorted(found)}
        seen = tuple(looks.items())
    return Answer(found, seen, looks)


def _opened(files: Files, paths: tuple[str, ...]) -> tuple[int, ...]:
    """Find the folders of paths, as the kernel does before it changes them."""
    if not isinstance(files, OpenedFolders):
        return ()
    return tuple(files.open_folder(os.path.dirname(path) or ".") for path in paths)


def _where(files: Files, held: tuple[int, ...], paths: tuple[str, ...]) -> tuple[str, ...]:
    """Where the names of paths are by now, in their folders that are held open."""
    assert isinstance(files, OpenedFolders)
    folders = [files.path_of(opened) for opened in held]
    if None in folders:
        raise FileNotFoundError(errno.ENOENT, "its folder is gone", *paths)
    return tuple(
        os.path.normpath(f"{folder}/{os.path.basename(path)}") for folder, path in zip(folders, paths, strict=True)
    )


def _carried_out(slot: Slot, name: str, paths: tuple[Any, ...], notes: Mapping[str, Any]) -> Any:
    files = slot.files
    if name not in _CHANGES:
        return getattr(files, name)(*paths)
    before, inode = content(files, TARGET), files.identity(paths[-1])
    over, source = content(files, paths[-1]), content(files, paths[0])
    result = getattr(files, name)(*paths)
    _judge(slot, name, paths, before, over, source, inode, written_since=notes.get(paths[-1]) != over)
    return result


def _judge(
    slot: Slot,
    name: str,
    paths: tuple[str, ...],
    before: bytes | None,
    over: bytes | None,
    source: bytes | None,
    inode: FileIdentity | None,
    *,
    written_since: bool,
) -> None:
    """Look at what a change did."""
    after = content(slot.files, TARGET)
    if after != before and slot.outcome is not None:
        raise BrokenPromise(f"{name} {paths} changed {before!r} to {after!r} after {slot.outcome}")
    at_once = name == "rename_new" and paths[-1] == FOLDER and after == NEW
    placed = paths[-1] == TARGET and source == NEW and not paths[0].startswith(TRASH)  # else it is put back
    deleted = paths[0] == TARGET and source == OLD and isinstance(slot.steps[0], DeleteStep)
    if at_once or placed or deleted:
        slot.acts += 1
        if slot.acts > 1 and name != "link":  # by a link it can be done again until the outcome: stated
            raise BrokenPromise(f"{name} {paths} did the act again")
    if over in slot.owed and name == "replace" and _replaces(slot.steps[0]) and written_since:
        slot.owed.discard(over)  # the stated window
    if over in slot.owed and name == "unlink" and inode is not None and paths[0] != TARGET and written_since:
        slot.owed.discard(over)  # somebody wrote to the deleted file itself, which is open
    check_owed(slot)


def _replaces(step: CommitStep) -> bool:
    return isinstance(step, PlaceStep) and step.replaces is not None and not step.trash


# The processes

Steps = tuple[CommitStep, ...]


class CalledFiles:
    """The files of a slot as a process of ours calls them."""

    parallel = 1
    uploads = copies = None
    moves_folders = True

    def __init__(self, process: Process) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name)

    def _call(self, name: str, *paths: Any) -> Any:
        if name in _IN_TWO_TURNS:
            self._process.ask("open", *paths)
        return self._process.ask(name, *paths)


def execute(process: Process, steps: Steps) -> None:
    """As the committer does it."""
    context = StepContext(CalledFiles(process), _NO_CONNECTIONS)
    try:
        for phase in Phase:
            of_phase = [step for step in steps if step.phase is phase]
            if of_phase and process.ask("outcome") is not None:
                return
            for step in of_phase:
                process.begin("execute", step)
                _carry_out(step, context, "photos", 1)
    except StepError as error:
        if process.ask("outcome") is not None:
            return
        if not (process.ask("is_abandoning") and isinstance(error, _FENCED)):
            raise
        fence_and_end(process, steps)
        return
    process.ask("end", DONE)


def abandon(process: Process, steps: Steps) -> None:
    """As the committer does it."""
    if process.ask("outcome") is None:
        process.ask("start_abandoning")
        fence_and_end(process, steps)


def fence_and_end(process: Process, steps: Steps) -> None:
    context = StepContext(CalledFiles(process), _NO_CONNECTIONS)
    for step in steps:
        process.begin("fence", step)
        fence(step, context, "photos", 1)
    process.ask("end", ABANDONED)


Act = Callable[[Process, Steps], None]
"""The work of a process: on the steps of a slot, or on whatever an outsider does."""
Outside = Callable[[Slot], None]


def saves(data: bytes) -> Outside:
    """Somebody saves a file in the same place, as an editor does: a new one is renamed over the old one."""

    def save(slot: Slot) -> None:
        before = content(slot.files, TARGET)
        with suppress(FileNotFoundError):
            slot.files.unlink(TARGET)
        write(slot.files, TARGET, data)
        slot.owed.discard(before or b"")
        slot.owed.add(data)

    return save


def removes(slot: Slot) -> None:
    """Somebody removes whatever file is there."""
    before = content(slot.files, TARGET)
    with suppress(FileNotFoundError):
        slot.files.unlink(TARGET)
        slot.owed.discard(before or b"")


def appends(slot: Slot) -> None:
    """Somebody writes to the file that was there at first, and that he has open."""
    there = [path for path in slot.files.walk(".") if content(slot.files, path) == OLD]
    if there:
        opened = slot.files._files[there[0]].append if isinstance(slot.files, MemoryFiles) else slot.opened.write
        opened(b" and more")
        slot.owed.add(OLD + b" and more")


def outsider(*changes: Outside) -> Act:
    """Somebody who changes files in the place, one change a turn."""

    def work(process: Process, steps: Steps) -> None:
        for change in changes:
            process.ask("change", change)

    return work


def makes_folders(process: Process, steps: Steps) -> None:
    """A process of an earlier slot that makes folders late, one a turn."""
    for path in (FOLDER, f"{FOLDER}/deep"):
        process.ask("make_folder", path)


# The promises


def check_owed(slot: Slot) -> None:
    there = {content(slot.files, path) for path in slot.files.walk(".")}
    lost = slot.owed - there
    if lost:
        raise BrokenPromise(f"{sorted(lost)} of an outsider's is lost")


def check_ended(slot: Slot) -> None:
    """Check what holds at the moment of an outcome."""
    if slot.outcome == DONE:
        if isinstance(slot.steps[0], DeleteStep):
            if slot.files.identity(TARGET) == slot.steps[0].identity:
                raise BrokenPromise("DONE, and it isn't deleted")
        elif not slot.acts:
            raise BrokenPromise("DONE, and it isn't placed")
        elif isinstance(slot.steps[0], PlaceFolderStep) and content(slot.files, f"{FOLDER}/deep/y") != NEW:
            raise BrokenPromise("DONE, and a part of it isn't placed")


def check_end(slot: Slot, error: BaseException | None) -> None:
    """Check what holds once an executor came to its end alone, and the slot's staging was swept."""
    check_owed(slot)
    if slot.outcome is None:
        foreign = content(slot.files, TARGET) not in (NEW, OLD, None) or bool(slot.owed)
        if isinstance(slot.steps[0], PlaceFolderStep):
            foreign = foreign or any(slot.files.walk(FOLDER))
        if not isinstance(error, _FENCED) or not (foreign or slot.acts):
            raise BrokenPromise(f"it isn't finished: {error!r}")
        if any(path.startswith(TRASH) and content(slot.files, path) == NEW for path in slot.files.walk(STAGING)):
            raise BrokenPromise("it isn't finished, and the placed file is in the trash")
        return
    slot.files.remove_tree(STAGING)
    check_owed(slot)
    kept = {
        content(slot.files, path)
        for path in slot.files.walk(".")
        if path == TARGET or path.startswith(("_gobblin/kept/", "backup/"))
    }
    if slot.owed - kept:
        raise BrokenPromise(f"{sorted(slot.owed - kept)} of an outsider's is nowhere that he would look")


# One order, and all of them


@dataclass(frozen=True)
class Scenario:
    """Acts that are done at once.

    :param start: makes the slot.
    :param acts: what each process does.
    :param renames: whether the files can be renamed without overwriting.
    """

    name: str
    start: Callable[[Files], Slot]
    acts: tuple[Act, ...]
    renames: bool = True

    def works(self, slot: Slot) -> list[Work]:
        """Return the works of its processes on a slot: the same one for the same act."""
        of_acts = {act: _on(slot, act) for act in self.acts}
        return [of_acts[act] for act in self.acts]


def _on(slot: Slot, act: Act) -> Work:
    return lambda process: act(process, slot.steps)


_EXPECTED = (StepError, OSError)
"""The errors by which a process may end."""


def explore(scenario: Scenario, changes: int | None = None) -> Tally:
    """Try all orders of a scenario, or until a promise is broken.

    :param changes: how many times at the most another process goes on although the former one could; `None`: any number.
    """
    slot = scenario.start(OpenedFolders(renames=scenario.renames))
    with _in_turn():
        return _explorer(scenario, scenario.works(slot), changes).explore(slot)


def _explorer(scenario: Scenario, works: Sequence[Work], changes: int | None = None) -> Explorer[Slot]:
    return Explorer[Slot](works, works[scenario.acts.index(execute)], check_end, _EXPECTED, changes)


def missed(scenario: Scenario, orders: int, chance: random.Random) -> str:
    """Explore a scenario, and then play some orders by chance, call by call.

    :return: an order that leads to a state that wasn't found.
    """
    slot = scenario.start(OpenedFolders(renames=scenario.renames))
    works = scenario.works(slot)
    with _in_turn():
        explorer = _explorer(scenario, works)
        explorer.explore(slot.copy())
        for _ in range(orders):
            with ExitStack() as ended:
                order: list[int] = []
                own = slot.copy()
                processes = [ended.enter_context(alive(Process(work, _EXPECTED))) for work in works]
                while able := [number for number, process in enumerate(processes) if process.call is not None]:
                    number = chance.choice(able)
                    order.append(number)
                    make_call(processes[number], own)
                    if not explorer.found(own, processes):
                        return f"{scenario.name}: {order}"
    return ""


@contextmanager
def _in_turn() -> Iterator[None]:
    with named_in_turn(), forgetting(trash, deleting, placing, *_STEPS), mock.patch.object(trash, "log"):
        yield


def at_random(scenario: Scenario, files: Files, chance: random.Random) -> str:
    """Play one order by chance, with some processes dying in it, on any files, and then recover.

    :return: what was broken.
    """
    slot = scenario.start(files)
    order: list[int] = []
    with _in_turn(), ExitStack() as ended:
        if slot.opened is not None:
            ended.callback(slot.opened.close)
        processes = [ended.enter_context(alive(Process(work, _EXPECTED))) for work in scenario.works(slot)]
        try:
            while able := [number for number, process in enumerate(processes) if process.call is not None]:
                number = chance.choice(able)
                for _ in range(chance.choice((1, 1, 2, 5))):
                    if processes[number].call is not None:
                        order.append(number)
                        make_call(processes[number], slot)
                if chance.random() < 0.02:
                    break
            last = ended.enter_context(alive(Process(_on(slot, execute), _EXPECTED)))
            while last.call is not None:
                make_call(last, slot)
            check_end(slot, last.error)
        except BrokenPromise as broken:
            return f"{broken}, in the order {order}"
    return ""


_SAVES = outsider(saves(b"theirs"))
_SAVES_TWICE = outsider(saves(b"theirs"), saves(b"theirs too"))
_SAVES_AND_REMOVES = outsider(saves(b"theirs"), removes)
_LINKED = partial(place, linked=True)
_KEPT_BY_LINK = partial(replace_and_keep, linked=True)
_DELETE_AND_KEEP = partial(delete, backup=BACKUP)


def scenarios() -> Iterator[Scenario]:
    """All scenarios."""
    for name, start in (("new", place), ("new by a link", _LINKED), ("replace", replace), ("at once", place_at_once)):
        yield Scenario(f"{name}: executors, abandon, outsider", start, (execute, execute, abandon, _SAVES_AND_REMOVES))
        yield Scenario(f"{name}: abandoned twice, outsider", start, (execute, abandon, abandon, _SAVES))
    for works in ((execute, execute, abandon, makes_folders), (execute, execute, makes_folders, makes_folders)):
        yield Scenario(f"at once: late folders, {len({*works})} kinds", place_at_once, works)
    for kind, start, renames in (
        ("replace, kept", replace_and_keep, True),
        ("replace by a link, kept", _KEPT_BY_LINK, False),
    ):
        yield Scenario(f"{kind}: executors, outsider", start, (execute, execute, _SAVES), renames)
        yield Scenario(f"{kind}: executors, abandon", start, (execute, execute, abandon), renames)
        yield Scenario(f"{kind}: executor, abandon, outsider", start, (execute, abandon, _SAVES_AND_REMOVES), renames)
        yield Scenario(f"{kind}: executor, two abandons", start, (execute, abandon, abandon), renames)
    yield Scenario("delete, kept: executors, outsider", _DELETE_AND_KEEP, (execute, execute, _SAVES_TWICE))
    yield Scenario("delete, kept: executors, abandon", _DELETE_AND_KEEP, (execute, execute, abandon))
    for kind, renames in (("delete", True), ("delete by links", False)):
        yield Scenario(f"{kind}: executors, outsider", delete, (execute, execute, _SAVES_TWICE), renames)
        yield Scenario(f"{kind}: executor, abandon, outsider", delete, (execute, abandon, _SAVES_TWICE), renames)
        yield Scenario(f"{kind}: executors, abandon", delete, (execute, execute, abandon), renames)
        yield Scenario(f"{kind}: executor, two abandons", delete, (execute, abandon, abandon), renames)
        yield Scenario(f"{kind}: written to", delete, (execute, abandon, outsider(appends, saves(b"theirs"))), renames)


# Mutants


def _makes_its_trash(step: DeleteStep, context: StepContext) -> None:
    context.files.make_folder(step.trash)
    _execute_deletion(step, context)


_execute_deletion = DeleteStep.execute


def _unlinks_in_place(step: DeleteStep, context: StepContext) -> None:
    if context.files.identity(step.path) == step.identity:
        context.files.unlink(step.path)


def _looks_no_more(step: DeleteStep, context: StepContext) -> None:
    """Nor does the step that closes the trash."""
    context.files.replace(step.path, f"{step.trash}/{uuid.uuid4().hex}")


def _keeps_a_link(step: PlaceStep, context: StepContext) -> None:
    files = context.files
    if files.identity(step.source) != step.identity or files.identity(step.target) not in (step.replaces, None):
        raise FileExistsError
    other = f"{step.source}.{uuid.uuid4().hex}"
    files.link(step.source, other)
    files.replace(other, step.target)


def _closes_nothing(step: CloseTrashStep, context: StepContext) -> StepStatus:
    return StepStatus.DONE


def _renames_the_folder(step: PlaceStep, context: StepContext) -> FenceResult:
    folder = os.path.dirname(step.source)
    with suppress(FileNotFoundError, FileExistsError):
        context.files.move_folder(folder, f"{folder}.fenced")
    return FenceResult.HOLDS


def _leaves_what_is_staged(step: PlaceStep | PlaceFolderStep, context: StepContext) -> FenceResult:
    return FenceResult.HOLDS


def _fences_file_by_file(step: PlaceFolderStep, context: StepContext) -> FenceResult:
    for file in step.content:
        with suppress(FileNotFoundError):
            context.files.unlink(f"{step.source}/{file.path}")
    return FenceResult.DONE if step._is_placed(context.files) else FenceResult.HOLDS


def _renames_the_folder_above(step: PlaceFolderStep, context: StepContext) -> FenceResult:
    folder = os.path.dirname(step.source)
    with suppress(FileNotFoundError, FileExistsError):
        context.files.move_folder(folder, folder + FENCED)
    return FenceResult.DONE if step._is_placed(context.files) else FenceResult.HOLDS


def _places_what_is_left(step: PlaceFolderStep, context: StepContext) -> None:
    context.files.rename_new(step.source, step.target)


def _nothing_gives_way(step: PlaceFolderStep, files: Files) -> bool:
    return False


def _removes_the_folder(step: PlaceFolderStep, context: StepContext) -> None:
    if not step.is_staged(context.files):
        raise FileNotFoundError
    if step._gives_way(context.files):
        context.files.remove_tree(step.target)
    context.files.rename_new(step.source, step.target)


def _removes_the_trash_at_once(
    files: Files, rubbish: str, closing: str, path: str, identity: FileIdentity, end: object
) -> None:
    with suppress(FileNotFoundError, FileExistsError):
        files.move_folder(rubbish, closing)
    for folder in (rubbish + CLOSING, rubbish + FENCED):
        for name, found in files.identities(folder).items():
            if found != identity:
                trash.put_back(files, f"{folder}/{name}", path)
        files.remove_tree(folder)


def _closes_in_place(
    files: Files, rubbish: str, closing: str, path: str, identity: FileIdentity, end: Callable[[str], object]
) -> None:
    for name, found in files.identities(rubbish).items():
        if found != identity:
            trash.put_back(files, f"{rubbish}/{name}", path)
        else:
            end(f"{rubbish}/{name}")


def _puts_back_over_anything(files: Files, taken: str, path: str) -> None:
    with suppress(FileNotFoundError):
        files.replace(taken, path)


def _replaces_whatever_is_there(step: PlaceStep, context: StepContext) -> None:
    context.files.identity(step.target)
    context.files.replace(step.source, step.target)


def _takes_whatever_is_there(files: Files, path: str, rubbish: str, identity: FileIdentity) -> None:
    files.replace(path, f"{rubbish}/{uuid.uuid4().hex}")


def _leaves_it_open(*of: object) -> None:
    """As if to take the staged name away were enough."""


def _never_by_mistake(step: PlaceStep, files: Files) -> str:
    return ""


def _forgets_the_backup(files: Files, taken: str, backup: str) -> None:
    files.unlink(taken)


def _fences_nothing(step: DeleteStep, context: StepContext) -> FenceResult:
    return FenceResult.HOLDS


MUTANTS: dict[str, tuple[str, tuple[tuple[Any, str, Any], ...]]] = {
    "a step makes its trash": ("delete", ((DeleteStep, "execute", _makes_its_trash),)),
    "verified, then unlinked": ("delete", ((DeleteStep, "execute", _unlinks_in_place),)),
    "what was taken away isn't looked at": (
        "delete",
        (
            (DeleteStep, "execute", _looks_no_more),
            (trash, "put_back", lambda files, taken, path: files.unlink(taken)),
        ),
    ),
    "a link is kept of a file that replaces another": ("replace", ((PlaceStep, "execute", _keeps_a_link),)),
    "outcome before the trash is closed": ("delete", ((CloseTrashStep, "verify", _closes_nothing),)),
    "a fence renames the folder of a new file": ("new", ((PlaceStep, "fence", _renames_the_folder),)),
    "a fence renames the folder of a file that replaces": ("replace", ((PlaceStep, "fence", _renames_the_folder),)),
    "a fence leaves a new file": ("new", ((PlaceStep, "fence", _leaves_what_is_staged),)),
    "a fence leaves a file that replaces": ("replace", ((PlaceStep, "fence", _leaves_what_is_staged),)),
    "a fence leaves a folder": ("at once", ((PlaceFolderStep, "fence", _leaves_what_is_staged),)),
    "a fence removes a folder file by file": ("at once", ((PlaceFolderStep, "fence", _fences_file_by_file),)),
    "a fence renames what a folder is in": ("at once", ((PlaceFolderStep, "fence", _renames_the_folder_above),)),
    "an empty folder is in the way of another": ("at once", ((PlaceFolderStep, "_gives_way", _nothing_gives_way),)),
    "what gives way is removed with what is in it": ("at once", ((PlaceFolderStep, "execute", _removes_the_folder),)),
    "a folder is placed with what is left": (
        "at once",
        ((PlaceFolderStep, "fence", _fences_file_by_file), (PlaceFolderStep, "execute", _places_what_is_left)),
    ),
    "the trash is removed with what is in it": ("delete", ((deleting, "close_trash", _removes_the_trash_at_once),)),
    "the trash is emptied and stays": ("delete", ((deleting, "close_trash", _closes_in_place),)),
    "put back over anything": ("delete", ((trash, "put_back", _puts_back_over_anything),)),
    "whatever is there is replaced": ("replace", ((PlaceStep, "execute", _replaces_whatever_is_there),)),
    "a deletion has no fence": ("delete", ((DeleteStep, "fence", _fences_nothing),)),
    "a file that is kept is overwritten": ("replace, kept", ((PlaceStep, "execute", _replaces_whatever_is_there),)),
    "a file that is kept is taken without a look": (
        "replace, kept",
        (
            (placing, "take_away", _takes_whatever_is_there),
            (trash, "put_back", lambda files, taken, path: files.unlink(taken)),
        ),
    ),
    "a fence leaves a trash open": ("replace, kept", ((placing, "close_trash", _leaves_it_open),)),
    "what replaces isn't found in the trash": ("replace, kept", ((PlaceStep, "_taken_by_mistake", _never_by_mistake),)),
    "a kept file is removed": ("replace, kept", ((deleting, "discard", _forgets_the_backup),)),
    "a linked name isn't forgotten": ("new by a link", ((ForgetStep, "verify", _closes_nothing),)),
}
"""Deliberate faults: the scenarios that notice each, and what it patches."""


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Play with a mutant."""
    with ExitStack() as patched:
        for target, attribute, value in MUTANTS[name][1]:
            patched.enter_context(mock.patch.object(target, attribute, value))
        yield


def first_broken(scenarios_of: str, changes: int | None = None) -> str:
    """The promise that breaks first in the scenarios whose names begin so; empty if nothing does.

    :param changes: as of `explore`.
    """
    for scenario in scenarios():
        if scenario.name.startswith(f"{scenarios_of}:"):
            broken = explore(scenario, changes).broken
            if broken:
                return broken
    return ""


def on_disk(scenario: Scenario, folder: Path) -> Files:
    """A real disk for a scenario, which has a rename that never overwrites if it wants one."""
    return LocalFiles(folder) if scenario.renames else on_disk_without_renames(folder)


def on_disk_without_renames(folder: Path) -> Files:
    """A real disk without a rename that never overwrites."""
    files = LocalFiles(folder)
    files.rename_new = _refused  # type: ignore[method-assign]
    return files


def _refused(source: str, target: str) -> None:
    raise OSError(errno.ENOTSUP, "as on NFS", target)
