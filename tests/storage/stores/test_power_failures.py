"""Random schedules of processes that use a journal on a disk: their answers outlive a power failure.

The histories of `tests/protocol` have files in memory. These schedules go through the kernel's calls, at each of which a process
may die, get an error, or be overtaken by another process or thread; and a power failure takes folders above the root, too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from airflow_gobblin.errors import StoreError
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores import base, open_store
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.local import TEMPORARIES, LocalStore
from tests.proofs import fresh_seed
from tests.syscalls import Trace, traced

KEYS = [f"i/{dataset}/d/{slot}" for dataset in "abcdefgh" for slot in range(3)]
PROCESSES = 3
STEPS = 60
SCHEDULES = 20
UNTIL_CAUGHT = 500


class Died(BaseException):
    """The process died here."""


class Lost(AssertionError):
    """A power failure would take what a process has answered."""


class Schedule:
    """Some processes, and what a power failure would take: the names made since their folder was synced."""

    def __init__(self, folder: Path, seed: int, trace: Trace) -> None:
        self._chance = random.Random(seed)
        self._folder = folder
        self._root = folder / "lake" / "journals" / "mine"
        self._moved = False
        self._processes: list[Store] = []
        self._trace = trace
        self._heard = 0
        self._unsynced: set[str] = set()

    def play(self) -> None:
        for _ in range(STEPS):
            with self._something_at_a_call():
                self._act()
            self._chance.choices((lambda: None, self._end, self._move, self._let_hours_pass), (12, 6, 1, 6))[0]()

    def _act(self) -> None:
        """A process reads or writes a record."""
        process, key = None, self._chance.choice(KEYS)
        try:
            process = self._process()
            created = self._chance.random() < 0.7 and process.put_if_absent(key, b"data")
            exists = created or process.get(key) is not None
        except Died:
            self._processes = [one for one in self._processes if one is not process]
        except StoreError:
            pass
        else:
            if exists:
                self._check(key, created)

    def _process(self) -> Store:
        if len(self._processes) < self._chance.randint(1, PROCESSES):
            opened = open_store(str(self._root)) if self._chance.random() < 0.5 else LocalStore(LocalFiles(self._root))
            self._processes.append(opened)
        return self._chance.choice(self._processes)

    @contextmanager
    def _something_at_a_call(self) -> Iterator[None]:
        calls = self._chance.randrange(40)
        happen = self._chance.choice((self._die, self._fail, self._overtake))

        def before(call: str, path: str) -> None:
            nonlocal calls
            calls -= 1
            if calls == 0:
                happen(call, path)

        self._trace.before = before
        yield
        self._trace.before = lambda call, path: None

    def _die(self, call: str, path: str) -> None:
        self._trace.before = self._die
        raise Died

    def _fail(self, call: str, path: str) -> None:
        raise OSError(24, "Too many open files", path)

    def _overtake(self, call: str, path: str) -> None:
        self._act()

    def _end(self) -> None:
        del self._processes[:1]

    def _move(self) -> None:
        """All processes end, and somebody gives the root another name, in new folders."""
        self._processes.clear()
        if self._root.exists():
            self._hear()
            old, place = f"{self._root}/", self._folder / f"lake-{self._chance.random()}" / "journals"
            place.mkdir(parents=True)
            self._root = self._root.rename(place / "mine")
            self._unsynced = {name.replace(old, f"{self._root}/") for name in self._unsynced} | {str(self._root)}
            self._moved = True

    def _let_hours_pass(self) -> None:
        """Temporary files are old, and so is their move out of the way: by clocks, which may be wrong."""
        for path in self._root.glob(f"{TEMPORARIES}-*"):
            path.rename(self._root / f"{TEMPORARIES}-1-{self._chance.getrandbits(64):x}")
        for path in self._root.glob(f"{TEMPORARIES}/*"):
            os.utime(path, (1, 1))

    def _check(self, key: str, created: bool) -> None:
        """Check that a record is durable. Readers rely on the process that moved the root."""
        self._hear()
        lost = self._unsynced & {str(path) for path in (self._root / key, *(self._root / key).parents)}
        if self._moved and not created:
            lost = {path for path in lost if path.startswith(f"{self._root}/")}
        if lost:
            raise Lost(sorted(lost))

    def _hear(self) -> None:
        for call, path in self._trace.calls[self._heard :]:
            if call in ("mkdir", "link"):
                self._unsynced.add(path)
            elif call == "fsync":
                self._unsynced = {name for name in self._unsynced if os.path.dirname(name) != path}
        self._heard = len(self._trace.calls)


def nothing(*arguments: object) -> None:
    """Stands for the wait for a disk, and for the threads of a probe."""


def play(folder: Path, seeds: Sequence[int]) -> None:
    with mock.patch.object(os, "fsync", nothing), mock.patch.object(base, "_race", nothing):
        for seed in seeds:
            with traced() as trace:
                Schedule(folder / str(seed), seed, trace).play()


@pytest.mark.slow
def test_what_a_process_has_answered_outlives_a_power_failure(tmp_path: Path) -> None:
    seed = fresh_seed()
    print(f"seed {seed}")
    play(tmp_path, range(seed, seed + SCHEDULES))


def marks_at_once(self: LocalFiles, folder: str) -> None:
    """A folder counts as durable before those above it do."""
    while not os.path.ismount(folder) and self._durable.get(folder) != (known_by := self._known_by(folder)):
        sync_name_in(os.path.dirname(folder))
        self._durable[folder] = known_by
        folder = os.path.dirname(folder)


def syncs_no_name(self: LocalFiles, folder: str) -> None:
    """Names of folders are left to chance."""


def syncs_below_the_root(self: LocalFiles, folder: str) -> None:
    """Names of the root and of folders above it are left to chance."""
    while folder != self.root:
        folder = os.path.dirname(folder)
        sync_name_in(folder)


def sync_name_in(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


_names = LocalFiles.names


def believes_records(self: LocalFiles, paths: Sequence[str]) -> list[int]:
    """A durable record counts as a sign that the folders above the root are durable, too."""
    found = _names(self, paths)
    if 1 in found:
        self._durable |= {str(folder): (0, 0) for folder in (Path(self.root), *Path(self.root).parents)}
    return found


_init = LocalStore.__init__


def always_removes_left(self: LocalStore, *arguments: Any, **options: Any) -> None:
    """A store that doesn't sync removes what shows that records aren't durable."""
    _init(self, *arguments)


def reads_at_once(self: LocalStore, paths: Sequence[str]) -> int:
    """A record is given out as soon as it has its name."""
    return sum(1 for n in self._files.names(paths) if n)


MUTANTS: tuple[tuple[type, str, Callable[..., object]], ...] = (
    (LocalFiles, "_sync_name", marks_at_once),
    (LocalFiles, "_sync_name", syncs_no_name),
    (LocalFiles, "_sync_name", syncs_below_the_root),
    (LocalFiles, "names", believes_records),
    (LocalStore, "__init__", always_removes_left),
    (LocalStore, "_make_durable", reads_at_once),
)


@pytest.mark.slow
@pytest.mark.parametrize(("owner", "name", "mutant"), MUTANTS, ids=[mutant.__name__ for *_, mutant in MUTANTS])
def test_some_schedule_catches(owner: type, name: str, mutant: Callable[..., object], tmp_path: Path) -> None:
    with mock.patch.object(owner, name, mutant), pytest.raises(Lost):
        play(tmp_path, range(UNTIL_CAUGHT))
