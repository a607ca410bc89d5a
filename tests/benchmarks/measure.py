"""Measuring contenders at the same work: alternately, each round in another order, medians of the rounds.

A contender is a program of its own, started anew for each round, so that none profits from another's memory. It
times the compared part itself, and reports it as one line of JSON on its standard output (see `contenders`).
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import statistics
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.benchmarks.contenders.reporting import DATABASE, FORMER, TARGET
from tests.peak_memory import peak_bytes

__all__ = [
    "FAILED",
    "SEED",
    "Contender",
    "Figures",
    "Memory",
    "Once",
    "alternately",
    "program",
    "reported",
    "run_program",
]

SEED = 20261121
"""Seed of the order of contenders in each round. Workloads follow from the numbers of their rows."""

_LONGEST = 600
"""Seconds that a contender's program may take, with its start."""
_BETWEEN_LOOKS = 0.5
"""Seconds between two looks at the memory of a program's processes, which take CPU time from it."""
FAILED = "it failed, or took longer"
"""The phase of a peer that has no other figure."""


@dataclass(frozen=True)
class Once:
    """The result of one round of one contender.

    :param phases: parts of `seconds`, or what came before them.
    :param facts: counts by which contenders' results are compared.
    :param peak_mb: the most memory that one of its processes had resident, in MB.
    :param task_mb: the same, of the Python workers of Spark's tasks only.
    :param cpu: the seconds of CPU time that all its processes took, if measured.
    :param sizes: bytes, by what they are.
    """

    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, int] = field(default_factory=dict)
    peak_mb: int | None = None
    task_mb: int | None = None
    cpu: float | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A contender.

    :param run: runs one round, in an empty folder of its own.
    :param most: the most rounds that it takes part in, if each takes minutes.
    """

    who: str
    run: Callable[[Path], Once]
    most: int | None = None


@dataclass(frozen=True)
class Figures:
    """All rounds of one contender."""

    who: str
    rounds: tuple[Once, ...]

    @property
    def median(self) -> float:
        return statistics.median(once.seconds for once in self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """The fastest and the slowest round."""
        return min(once.seconds for once in self.rounds), max(once.seconds for once in self.rounds)

    @property
    def phases(self) -> dict[str, float]:
        """The medians of the phases, in the order of the first round."""
        return {name: statistics.median(o.phases.get(name, 0) for o in self.rounds) for name in self.rounds[0].phases}

    @property
    def sizes(self) -> dict[str, float]:
        """The medians of the sizes."""
        return {name: statistics.median(o.sizes[name] for o in self.rounds) for name in self.rounds[0].sizes}

    @property
    def cpu(self) -> float | None:
        """The median of the CPU time."""
        found = [once.cpu for once in self.rounds if once.cpu is not None]
        return statistics.median(found) if found else None

    def peak(self, which: str) -> int | None:
        """The highest of all rounds.

        :param which: `peak_mb` or `task_mb`.
        """
        found = [getattr(once, which) for once in self.rounds]
        return max((mb for mb in found if mb is not None), default=None)


def alternately(
    contenders: Sequence[Contender], rounds: int, folder: Path, *, stays: bool = False, former: bool = False
) -> list[Figures]:
    """Measure so many rounds; in each every contender once, in an order drawn from the seed.

    :param stays: whether what a contender made is removed by the caller. For minutes ext4 uses no freed inode again, and
        looks at each of them for every new file: the contender after thousands of removed files would pay for them.
    :param former: whether a contender removes what the one before it made, by `reporting.begin`.
    :raises AssertionError: contenders' facts differ: they have not done the same work.
    """
    order, taken = random.Random(SEED), {c.who: list[Once]() for c in contenders}
    last: Path | None = None
    for number in range(1, rounds + 1):
        for contender in order.sample(contenders, len(contenders)):
            if contender.most is not None and number > contender.most:
                continue
            own = folder / f"{number}-{len(taken[contender.who])}-{abs(hash(contender.who)) % 10**6}"
            own.mkdir(parents=True)
            if last is not None:
                last.rename(own / FORMER)
            once = contender.run(own)
            if former:
                last = own
            elif not stays:
                shutil.rmtree(own)
            taken[contender.who].append(once)
            print(f"  round {number} of {rounds}: {once.seconds:8.2f} s  {contender.who}", flush=True)
    facts = {who: {tuple(sorted(once.facts.items())) for once in found if once.facts} for who, found in taken.items()}
    assert len(set().union(*facts.values())) <= 1, f"they have not done the same work: {facts}"
    return [Figures(c.who, tuple(taken[c.who])) for c in contenders]


def program(who: str, python: Path, name: str, url: str, *, target: str = "", **arguments: object) -> Contender:
    """A contender that is a program.

    :param name: its module, in `contenders`.
    :param url: of the database.
    :param target: the URL of the database that it loads into, if it does.
    """

    def run(folder: Path) -> Once:
        given = {"folder": folder, **arguments}
        return run_program(python, name, given, secrets={DATABASE: url, **({TARGET: target} if target else {})})

    return Contender(who, run)


def reported(peer: Contender) -> Contender:
    """A peer that may fail, or take longer than any program may: then that is its figure."""

    def run(folder: Path) -> Once:
        try:
            return peer.run(folder)
        except RuntimeError as error:
            print(f"  {peer.who}: {error}", flush=True)
            return Once(_LONGEST, {FAILED: _LONGEST})

    return replace(peer, run=run)


def run_program(python: Path, name: str, arguments: Mapping[str, object], *, secrets: Mapping[str, str]) -> Once:
    """Run a contender's program and take its figures.

    :param arguments: as `--name=value`.
    :param secrets: for its environment.
    :raises RuntimeError: it failed; its output is in the text.
    """
    module = f"tests.benchmarks.contenders.{name}"
    command = [str(python), "-m", module, *(f"--{key}={value}" for key, value in arguments.items())]
    environment = os.environ | dict(secrets)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else modules may be compiled each time, while the clock runs
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    with Memory(process.pid) as memory:
        try:
            out, err = process.communicate(timeout=_LONGEST)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise RuntimeError(f"{module} did not end in {_LONGEST} s") from error
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        raise RuntimeError(f"{module} ended with {process.returncode}:\n{out[-5000:]}\n{err[-5000:]}")
    result = json.loads(lines[-1])
    return Once(result["seconds"], result["phases"], result["facts"], memory.peak_mb, memory.task_mb, result.get("cpu"))


class Memory:
    """Watch the resident memory of a process and of all below it.

    The kernel keeps each process's peak, so sampling now and then finds nearly all of it.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[int, tuple[bool, int]] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def peak_mb(self) -> int | None:
        return max((mb for _, mb in self._peaks.values()), default=None)

    @property
    def task_mb(self) -> int | None:
        return max((mb for is_task, mb in self._peaks.values() if is_task), default=None)

    def _watch(self) -> None:
        gc.freeze()  # else a look has all that is loaded here looked through
        while not self._done.wait(_BETWEEN_LOOKS):
            for pid in _with_children(self._pid):
                try:
                    is_task = b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
                    peak = peak_bytes(pid) >> 20
                except OSError:
                    continue
                self._peaks[pid] = (is_task, max(peak, self._peaks.get(pid, (False, 0))[1]))


def _with_children(pid: int) -> Iterator[int]:
    """Yield a process and all below it: by proc_pid_task_children(5), which looks at no other process."""
    yield pid
    threads: list[Path] = []
    with suppress(OSError):  # threads and processes may end at any time
        threads = [*Path(f"/proc/{pid}/task").glob("*/children")]
    for thread in threads:
        with suppress(OSError):
            for child in thread.read_text().split():
                yield from _with_children(int(child))
