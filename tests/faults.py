"""Crash points: every call that the product makes of a store or a file system can be recorded, and made to go wrong.

`Faults` is one process as its stores and disks see it. It counts their calls; at one of them it lets a `Fault` happen. A
crash is a `Crash`, which nothing catches, and after which every further call of that process raises it too. The disk keeps
what the process left; a `Disk` knows which of it was not synced, and can drop that, as a power failure does.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar, cast

from airflow_gobblin.errors import StoreError, UnknownOutcomeError
from airflow_gobblin.model.work import Upload
from airflow_gobblin.storage.files import Attributes, FileIdentity, Files, Keeps, StagedOutput, Uploads
from airflow_gobblin.storage.files.local import stage_file
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.local import LocalStore

T = TypeVar("T")


class Crash(BaseException):
    """The process died here."""


def died(*_: object, **__: object) -> None:
    """Take the place of a call at which the process dies."""
    raise Crash


class Fault(StrEnum):
    """A fault that can happen to a call."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    ANSWER_LOST = "answer lost"
    """It is done, and an error comes back."""
    ERROR = "error"
    """It is not done, and an error comes back."""
    TORN = "torn write"
    """A part of it is done, then the process dies."""
    NO_SPACE = "no space"
    POWER_LOSS = "power loss"
    """The process dies before it, and everything that was not synced is dropped."""
    PARTIAL_POWER_LOSS = "partial power loss"
    """The same, but a part of what was not synced has reached the disk by chance."""


class Effect(StrEnum):
    """The effect of a call, which determines what can happen to it."""

    READ = "read"
    CHANGE = "change"
    GROW = "grow"
    """It needs space."""
    SYNC = "sync"
    PUT = "put"
    """A store's write, or its delete."""


_CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
POWER = (Fault.POWER_LOSS, Fault.PARTIAL_POWER_LOSS)
APPLICABLE: dict[Effect, tuple[Fault, ...]] = {
    Effect.READ: (*_CRASHES, Fault.ERROR),
    Effect.CHANGE: (*_CRASHES, *POWER, Fault.ANSWER_LOST, Fault.ERROR),
    Effect.GROW: (*_CRASHES, *POWER, Fault.ANSWER_LOST, Fault.ERROR, Fault.NO_SPACE),
    Effect.SYNC: (*_CRASHES, *POWER, Fault.ANSWER_LOST, Fault.ERROR),
    Effect.PUT: (*_CRASHES, Fault.ANSWER_LOST, Fault.ERROR),
}
"""Faults by effect. Calls that can be torn declare it themselves."""


class Call(NamedTuple):
    """A call that was made.

    :param place: a store, whose place has this end, or a disk or bucket.
    """

    place: str
    operation: str
    subject: str
    effect: Effect
    tearable: bool = False

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that can happen to it."""
        return (*APPLICABLE[self.effect], *((Fault.TORN,) if self.tearable else ()))


class Caller(Protocol):
    """How calls are made."""

    def call(self, call: Call, do: Callable[[], T], tear: Callable[[], object] | None = None) -> T:
        """Make a call, or let it go wrong."""


class Faults:
    """A process, seen from its stores and disks.

    :param at: the number of the call, from 0, at which `fault` happens; `None`: they are only recorded.
    :param die: how the process dies; the default raises `Crash`.
    :param hook: called before every call.
    """

    def __init__(
        self,
        at: int | None = None,
        fault: Fault | None = None,
        *,
        die: Callable[[], None] | None = None,
        hook: Callable[[Call], None] | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self.dead = False
        self.happened = False
        self._at = at
        self._fault = fault
        self._die = die
        self._hook = hook

    def call(self, call: Call, do: Callable[[], T], tear: Callable[[], object] | None = None) -> T:
        """Make a call, or let it go wrong."""
        if self.dead:
            raise Crash
        if self._hook is not None:
            self._hook(call)
        number = len(self.calls)
        self.calls.append(call)
        if number != self._at:
            return do()
        self.happened = True
        match self._fault:
            case Fault.CRASH_AFTER:
                do()
            case Fault.TORN if tear is not None:
                tear()
            case Fault.ERROR | Fault.NO_SPACE:
                raise injected(call, self._fault)
            case Fault.ANSWER_LOST:
                do()
                raise injected(call, Fault.ANSWER_LOST)
        raise self.crash()

    def crash(self) -> Crash:
        """Die.

        :return: what to raise if the process goes on after its death.
        """
        self.dead = True
        if self._die is not None:
            self._die()
        return Crash()


def injected(call: Call, fault: Fault) -> Exception:
    if call.place.endswith("store"):
        lost = fault is Fault.ANSWER_LOST
        return (UnknownOutcomeError if lost else StoreError)(
            operation=call.operation, subject=call.subject, cause=f"injected: {fault}"
        )
    number = errno.ENOSPC if fault is Fault.NO_SPACE else errno.EIO
    return OSError(number, f"injected: {fault}: {os.strerror(number)}", call.subject)


class FaultyStore:
    """A store whose calls go through `Faults`.

    :param in_order: many records are deleted in the order of their keys, as on a disk, and not in any.
    """

    def __init__(self, store: Store, faults: Caller, place: str = "store", *, in_order: bool = False) -> None:
        self._store = store
        self._in_order = in_order
        self._faults = faults
        self._place = place
        self.name = store.name

    def _call(
        self,
        operation: str,
        key: str,
        effect: Effect,
        do: Callable[[], T],
        tear: Callable[[], object] | None = None,
    ) -> T:
        return self._faults.call(Call(self._place, operation, key, effect, tear is not None), do, tear)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._call("put", key, Effect.PUT, lambda: self._store.put_if_absent(key, data))

    def get(self, key: str) -> bytes | None:
        return self._call("get", key, Effect.READ, lambda: self._store.get(key))

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return self._call("get many", " ".join(keys[:1]), Effect.READ, lambda: iter([*self._store.get_many(keys)]))

    def list(self, prefix: str) -> Iterator[str]:
        return self._call("list", prefix, Effect.READ, lambda: iter([*self._store.list(prefix)]))

    def delete(self, key: str) -> None:
        self._call("delete", key, Effect.PUT, lambda: self._store.delete(key))

    def delete_many(self, keys: Sequence[str]) -> None:
        def tear() -> None:
            self._store.delete_many(keys[: len(keys) // 2] if self._in_order else keys[::2])

        self._call("delete many", " ".join(keys[:1]), Effect.PUT, lambda: self._store.delete_many(keys), tear)

    def close(self) -> None:
        self._store.close()


class StaleStore:
    """A store of a mounted file system that caches: a folder is listed as it was some time ago, even for its writer, and
    with `absent` a record that didn't exist stays absent for some time. Existing records are read as they are.

    :param lag: for how long a listing is kept, each time one is made anew;
    :param clock: in which time.
    """

    def __init__(
        self, store: Store, lag: Callable[[], float], clock: Callable[[], float], *, absent: bool = False
    ) -> None:
        self._store = store
        self._lag = lag
        self._clock = clock
        self._absent = absent
        self._listed: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._missed: dict[str, float] = {}
        self.name = store.name

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._store.put_if_absent(key, data)

    def get(self, key: str) -> bytes | None:
        if self._missed.get(key, 0) > self._clock():
            return None
        data = self._store.get(key)
        if data is None and self._absent:
            self._missed[key] = self._clock() + self._lag()
        return data

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((key, self.get(key)) for key in keys)

    def list(self, prefix: str) -> Iterator[str]:
        found: dict[str, list[str]] = {folder: [] for folder in self._listed if folder.startswith(prefix)}
        for key in self._store.list(prefix):
            found.setdefault(f"{os.path.dirname(key)}/", []).append(key)
        for folder, keys in found.items():
            if self._listed.get(folder, (0, ()))[0] <= self._clock():
                self._listed[folder] = self._clock() + self._lag(), tuple(keys)
        return iter(sorted(key for folder in found for key in self._listed[folder][1]))

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        self._store.delete_many(keys)

    def close(self) -> None:
        self._store.close()


class Medium(Protocol):
    """Where names are, by absolute paths, as a `Disk` takes them back."""

    def exists(self, path: str) -> bool: ...

    def content(self, path: str) -> int:
        """The identity of a file's content, whatever names it has."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all its content; harmless if it doesn't exist."""

    def keep(self, path: str) -> Any:
        """The things to put back if a removed name comes back."""

    def kept(self, path: str) -> int:
        """How many names a file has only because it is kept."""

    def put_back(self, kept: Any, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None:
        """Rename a folder; harmless if it doesn't exist, or if something else has the name."""

    def cut(self, contents: Collection[int], size: Callable[[int], int]) -> None:
        """Shorten the files with some contents.

        :param size: gives the new one for the old.
        """

    def forget(self) -> None:
        """Kept files are no longer needed."""


@dataclass(frozen=True)
class RealMedium:
    """Folders of a real file system, in one of which nobody works.

    :param attic: keeps removed names that may come back. It is on the same file system.
    """

    root: str
    attic: str
    names: Counter[int] = field(default_factory=Counter)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def content(self, path: str) -> int:
        return os.lstat(path).st_ino

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def keep(self, path: str) -> str:
        kept = f"{self.attic}/{uuid.uuid4().hex}"
        os.makedirs(self.attic, exist_ok=True)
        _link_tree(path, kept)
        for folder, _, names in os.walk(kept) if os.path.isdir(kept) else [(self.attic, (), [os.path.basename(kept)])]:
            self.names.update(self.content(f"{folder}/{name}") for name in names)
        return kept

    def kept(self, path: str) -> int:
        return self.names[self.content(path)] if self.exists(path) else 0

    def put_back(self, kept: str, path: str) -> None:
        with suppress(FileNotFoundError, FileExistsError):
            _link_tree(kept, path)

    def rename(self, old: str, new: str) -> None:
        if not os.path.lexists(new):
            with suppress(FileNotFoundError):
                os.rename(old, new)

    def cut(self, contents: Collection[int], size: Callable[[int], int]) -> None:
        for folder, _, names in os.walk(self.root):
            for path in (f"{folder}/{name}" for name in names):
                if self.content(path) in contents and not path.startswith(f"{self.attic}/"):
                    os.truncate(path, size(os.path.getsize(path)))

    def forget(self) -> None:
        shutil.rmtree(self.attic, ignore_errors=True)
        self.names.clear()


def _link_tree(source: str, target: str) -> None:
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
    else:
        os.link(source, target, follow_symlinks=False)


class Disk:
    """The recent changes that would not survive a power failure. It outlives the processes that made them.

    A new name, or the lack of one, is durable once its folder was synced, and a file's content once the file was:
    neither syncs anything else. Paths are absolute.
    """

    def __init__(self, medium: Medium) -> None:
        self.medium = medium
        self._made = 0
        self._unsynced_content: set[int] = set()
        self._changes: dict[str, list[_Change]] = {}
        """By the folder that they change."""

    def unsynced(self) -> bool:
        """Whether a power failure would change anything."""
        return bool(self._changes or self._unsynced_content)

    def _changed(self, how: _How, name: str, before: Any = None) -> None:
        self._made += 1
        self._keep_change(_Change(self._made, how, name, before))

    def named(self, path: str, *, content: bool = False) -> None:
        """A name was made; with `content`, for a new file."""
        if content:
            self._unsynced_content.add(self.medium.content(path))
        self._changed(_How.MADE, path)

    def made_folders(self, folders: Sequence[str]) -> None:
        """Folders were made, the outer first."""
        for folder in folders:
            self._changed(_How.MADE, folder)

    def missing_folders(self, path: str) -> list[str]:
        """The missing folders on the way to and including `path`, the outer first."""
        missing: list[str] = []
        while not self.medium.exists(path):
            missing.insert(0, path)
            path = os.path.dirname(path)
        return missing

    def moved(self, old: str, new: str) -> None:
        """A folder was renamed: in one transaction of the file system, so that it has its old name or its new one, and never
        none or both."""
        self._rename(old, new)
        self._changed(_How.MOVED, new, old)

    def _rename(self, old: str, new: str) -> None:
        """A folder's unsynced content isn't durable by its other name either."""

        def renamed(path: str) -> str:
            return f"{new}{path[len(old) :]}" if path.startswith(f"{old}/") else path

        changes = [c for some in self._changes.values() for c in some]
        self._changes = {}
        for c in changes:
            before = renamed(c.before) if c.how is _How.MOVED else c.before
            self._keep_change(replace(c, name=renamed(c.name), before=before))

    def _keep_change(self, change: _Change) -> None:
        self._changes.setdefault(os.path.dirname(change.name), []).append(change)

    def keep(self, path: str) -> Callable[[], None]:
        """Keep a name that is about to be removed.

        :return: to be called once it is.
        """
        if not self.medium.exists(path):
            return lambda: None
        kept = self.medium.keep(path)
        return lambda: self._changed(_How.REMOVED, path, kept)

    def fsync(self, path: str) -> None:
        """A file, or a folder, was synced."""
        unsynced = [c for some in self._changes.values() for c in some if not c.is_synced_by(path)]
        self._changes = {}
        for c in unsynced:
            self._keep_change(c)
        if self.medium.exists(path):
            self._unsynced_content.discard(self.medium.content(path))

    def lose_power(self, chance: random.Random | None = None) -> None:
        """Drop what was not synced; with `chance`, a part of it."""
        while self._changes:
            folder, last = max(((f, some[-1]) for f, some in self._changes.items()), key=lambda one: one[1].number)
            self._changes[folder].pop()
            if not self._changes[folder]:
                del self._changes[folder]
            if chance is None or chance.random() < 0.5:
                self._undo(last)
        self.medium.cut(self._unsynced_content, lambda size: 0 if chance is None else chance.randint(0, size))
        self.forget()

    def _undo(self, change: _Change) -> None:
        match change.how:
            case _How.MADE:
                self.medium.remove(change.name)
            case _How.REMOVED:
                self.medium.put_back(change.before, change.name)
            case _How.MOVED:
                self.medium.rename(change.name, change.before)
                self._rename(change.name, change.before)

    def forget(self) -> None:
        """Everything is durable as it is: after long enough, everything gets to the disk by itself."""
        self._changes.clear()
        self._unsynced_content.clear()
        self.medium.forget()


class _How(StrEnum):
    MADE = "made"
    REMOVED = "removed"
    MOVED = "moved"


@dataclass(frozen=True)
class _Change:
    """A change of a folder.

    :param number: its place among all.
    :param before: what was removed; or a folder's old name.
    """

    number: int
    how: _How
    name: str
    before: Any

    def is_synced_by(self, folder: str) -> bool:
        """Whether it is durable once a folder is synced. A move is one transaction: with either of its two folders."""
        folders = {os.path.dirname(self.name)}
        if self.how is _How.MOVED:
            folders.add(os.path.dirname(self.before))
        return folder in folders


plugged_in: list[Disk] = []
"""The disks under this process, to which `fsync` goes."""


def fsync(fd: Any) -> None:
    """The system call, as disks see it: replaces `os.fsync`."""
    path = os.readlink(f"/proc/self/fd/{fd}")
    for disk in plugged_in:
        disk.fsync(path)


class FaultyFiles:
    """Files whose calls go through `Faults`, and which report their changes to a `Disk`, if any. The disk hears of syncs
    from below: of the real `os.fsync`, or of files in memory.

    :param seen_at: the root that they seem to have, if it isn't where they are.
    """

    def __init__(
        self, files: Files, faults: Caller, disk: Disk | None = None, place: str = "files", *, seen_at: str = ""
    ) -> None:
        self._files = files
        self._seen_at = seen_at
        self._faults = faults
        self._disk = disk
        self._place = place

    @property
    def root(self) -> str:
        return self._seen_at or self._files.root

    def _at(self, path: str) -> str:
        return f"{self._files.root}/{path}"

    def _call(
        self,
        operation: str,
        subject: str,
        effect: Effect,
        do: Callable[[], T],
        tear: Callable[[], object] | None = None,
    ) -> T:
        if self._files.uploads is not None:
            if effect is Effect.SYNC or operation in ("make_folder", "remove_folder"):
                return do()  # there is nothing to do
            effect = Effect.READ if effect is Effect.READ else Effect.PUT
        return self._faults.call(Call(self._place, operation, subject, effect, tear is not None), do, tear)

    @property
    def parallel(self) -> int:
        return 1

    @property
    def uploads(self) -> Uploads | None:
        return None if self._files.uploads is None else FaultyUploads(self._files.uploads, self._call)

    @property
    def copies(self) -> None:
        return None

    @property
    def moves_folders(self) -> bool:
        return self._files.moves_folders

    @property
    def keeps(self) -> Keeps:
        return self._files.keeps

    @property
    def settles_after(self) -> timedelta:
        return timedelta()  # no request is under way that isn't one of these calls

    def other(self, root: str) -> Files:
        return FaultyFiles(self._files.other(root), self._faults, None, self._place)

    def records(self, folder: str) -> Store:
        if self._files.uploads is None:
            return LocalStore(self, folder)
        return FaultyStore(self._files.records(folder), self._faults, f"{self._place} store")

    def stage(self, path: str, target: str) -> StagedOutput:
        if self._files.uploads is None:
            return stage_file(self, path)
        return StagedOutput(_FaultyUpload(lambda: self._files.stage(path, target), target, self._call))

    def identity(self, path: str) -> FileIdentity | None:
        return self._call("identity", path, Effect.READ, lambda: self._files.identity(path))

    def identities(self, path: str) -> Mapping[str, FileIdentity]:
        return self._call("identities", path, Effect.READ, lambda: self._files.identities(path))

    def modified(self, path: str) -> datetime | None:
        return self._call("modified", path, Effect.READ, lambda: self._files.modified(path))

    def names(self, paths: Sequence[str]) -> list[int]:
        def do() -> list[int]:
            found = self._files.names(paths)
            if self._disk is None:
                return found
            return [n - self._disk.medium.kept(self._at(path)) for path, n in zip(paths, found, strict=True)]

        return self._call("names", " ".join(paths[:1]), Effect.READ, do)

    def read(self, path: str) -> bytes:
        return self._call("read", path, Effect.READ, lambda: self._files.read(path))

    def read_part(self, path: str, start: int, size: int) -> bytes:
        return self._call("read_part", path, Effect.READ, lambda: self._files.read_part(path, start, size))

    def checksum(self, path: str) -> str | None:
        return self._call("checksum", path, Effect.READ, lambda: self._files.checksum(path))

    def create(self, path: str) -> BinaryIO:
        def do() -> BinaryIO:
            missing = [] if self._disk is None else self._disk.missing_folders(os.path.dirname(self._at(path)))
            out = self._files.create(path)
            if self._disk is not None:
                self._disk.made_folders(missing)
                self._disk.named(self._at(path), content=True)
            return out

        return cast(BinaryIO, _FaultyOutput(self._call("create", path, Effect.GROW, do), path, self._call))

    def link(self, source: str, target: str) -> None:
        def do() -> None:
            self._files.link(source, target)
            if self._disk is not None:
                self._disk.named(self._at(target))

        self._call("link", target, Effect.GROW, do)

    def renames_new(self, folder: str) -> bool:
        return self._files.renames_new(folder)

    def rename_new(self, source: str, target: str) -> None:
        def do() -> None:
            self._files.rename_new(source, target)
            if self._disk is not None:
                self._disk.moved(self._at(source), self._at(target))

        self._call("rename_new", target, Effect.GROW, do)

    def replace(self, source: str, target: str) -> None:
        def do() -> None:
            gone = None if self._disk is None else self._disk.keep(self._at(target))
            self._files.replace(source, target)
            if self._disk is not None and gone is not None:
                gone()
                self._disk.moved(self._at(source), self._at(target))

        self._call("replace", target, Effect.GROW, do)

    def folder(self, path: str) -> Attributes | None:
        return self._call("folder", path, Effect.READ, lambda: self._files.folder(path))

    def set_folder(self, path: str, attributes: Attributes) -> None:
        self._call("set_folder", path, Effect.CHANGE, lambda: self._files.set_folder(path, attributes))

    def may_change(self, folder: str) -> bool:
        return self._call("may_change", folder, Effect.READ, lambda: self._files.may_change(folder))

    def has(self, path: str, attributes: Attributes) -> bool:
        return self._call("has", path, Effect.READ, lambda: self._files.has(path, attributes))

    def lacks(self, path: str, expected: FileIdentity, attributes: Attributes) -> bool:
        return self._call("lacks", path, Effect.READ, lambda: self._files.lacks(path, expected, attributes))

    def set_file(self, path: str, expected: FileIdentity, attributes: Attributes) -> None:
        self._call("set_file", path, Effect.CHANGE, lambda: self._files.set_file(path, expected, attributes))

    def unlink(self, path: str) -> None:
        def do() -> None:
            gone = None if self._disk is None else self._disk.keep(self._at(path))
            self._files.unlink(path)
            if gone is not None:
                gone()

        self._call("unlink", path, Effect.CHANGE, do)

    def make_folder(self, path: str) -> None:
        def do() -> None:
            missing = [] if self._disk is None else self._disk.missing_folders(self._at(path))
            self._files.make_folder(path)
            if self._disk is not None:
                self._disk.made_folders(missing)

        self._call("make_folder", path, Effect.GROW, do)

    def make_private(self, path: str) -> None:
        def do() -> None:
            missing = [] if self._disk is None else self._disk.missing_folders(self._at(path))
            self._files.make_private(path)
            if self._disk is not None:
                self._disk.made_folders(missing)

        self._call("make_folder", path, Effect.GROW, do)

    def leads_to(self, path: str) -> str | None:
        return self._files.leads_to(path)

    def move_folder(self, source: str, target: str) -> None:
        def do() -> None:
            self._files.move_folder(source, target)
            if self._disk is not None:
                self._disk.moved(self._at(source), self._at(target))

        self._call("move_folder", target, Effect.GROW, do)

    def remove_folder(self, path: str) -> None:
        def do() -> None:
            gone = None if self._disk is None or self._files.identities(path) else self._disk.keep(self._at(path))
            self._files.remove_folder(path)
            if gone is not None:
                gone()

        self._call("remove_folder", path, Effect.CHANGE, do)

    def walk(self, path: str) -> Iterator[str]:
        return self._call("walk", path, Effect.READ, lambda: iter([*self._files.walk(path)]))

    def filled(self, folders: Sequence[str]) -> list[bool | OSError]:
        return self._call("filled", " ".join(folders[:1]), Effect.READ, lambda: self._files.filled(folders))

    def folders(self, path: str) -> tuple[str, ...]:
        return self._call("folders", path, Effect.READ, lambda: self._files.folders(path))

    def remove_tree(self, path: str) -> None:
        def do() -> None:
            gone = None if self._disk is None else self._disk.keep(self._at(path))
            self._files.remove_tree(path)
            if gone is not None:
                gone()

        def tear() -> None:
            for inner in [*self._files.walk(path)][::2]:
                self._files.unlink(inner)

        self._call("remove_tree", path, Effect.CHANGE, do, tear)

    def sync_file(self, path: str) -> None:
        self._call("sync_file", path, Effect.SYNC, lambda: self._files.sync_file(path))

    def sync_folder(self, path: str) -> None:
        self._call("sync_folder", path, Effect.SYNC, lambda: self._files.sync_folder(path))


class FaultyUploads:
    """Uploads whose calls go through `Faults`."""

    def __init__(self, uploads: Uploads, call: Callable[..., Any]) -> None:
        self._uploads = uploads
        self._call = call

    def put(self, target: str, data: bytes, modified: int | None = None) -> None:
        self._call("put object", target, Effect.PUT, lambda: self._uploads.put(target, data, modified))

    def can_complete(self, target: str, upload: Upload) -> bool:
        return bool(
            self._call("look at upload", target, Effect.READ, lambda: self._uploads.can_complete(target, upload))
        )

    def complete(self, target: str, upload: Upload) -> None:
        self._call("complete upload", target, Effect.PUT, lambda: self._uploads.complete(target, upload))

    def replace(self, target: str, upload: Upload, expected: str) -> None:
        self._call("replace object", target, Effect.PUT, lambda: self._uploads.replace(target, upload, expected))

    def remove(self, target: str, expected: str) -> None:
        self._call("remove object", target, Effect.PUT, lambda: self._uploads.remove(target, expected))

    def abort(self, target: str, upload: str) -> None:
        self._call("abort upload", target, Effect.PUT, lambda: self._uploads.abort(target, upload))

    def open_below(self, folder: str) -> Iterator[tuple[str, str]]:
        found = self._call("list uploads", folder, Effect.READ, lambda: [*self._uploads.open_below(folder)])
        return iter(found)


class _FaultyUpload:
    """A staged file that is an upload: its parts are small enough to be sent at its end."""

    def __init__(self, begin: Callable[[], StagedOutput], target: str, call: Callable[..., Any]) -> None:
        self._target = target
        self._call = call
        self._out: StagedOutput = call("begin upload", target, Effect.PUT, begin)

    def write(self, data: memoryview) -> object:
        return self._out.write(data)

    def finish(self) -> tuple[str, FileIdentity, Upload | None]:
        staged = self._call("send upload", self._target, Effect.PUT, lambda: self._out.finish(0))
        return staged.path, FileIdentity(0, staged.size, staged.stamp), staged.upload

    def abort(self) -> None:
        self._call("abort upload", self._target, Effect.PUT, self._out.abort)


class _FaultyOutput:
    """A file being written."""

    def __init__(self, out: BinaryIO, path: str, call: Callable[..., Any]) -> None:
        self._out = out
        self._path = path
        self._call = call

    @property
    def closed(self) -> bool:
        return self._out.closed

    def write(self, data: Any) -> int:
        view = bytes(data)

        def tear() -> None:
            self._out.write(view[: len(view) // 2])
            self._out.flush()

        def do() -> int:
            written = self._out.write(view)
            self._out.flush()
            return written

        written: int = self._call("write", self._path, Effect.GROW, do, tear)
        return written

    def flush(self) -> None:
        self._out.flush()

    def close(self) -> None:
        self._out.close()

    def __enter__(self) -> _FaultyOutput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
