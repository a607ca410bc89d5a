"""The input and output of a contender's program."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["DATABASE", "FEW_ROWS", "FORMER", "TARGET", "Laps", "arguments", "begin", "cpu_seconds", "print_figures"]

DATABASE = "BENCHMARK_DATABASE"
"""The variable that holds the database's URL."""
TARGET = "BENCHMARK_TARGET"
"""The same, of the database that rows are loaded into."""
FEW_ROWS = 1_000
"""The number of rows that a contender loads elsewhere before the clock runs, if it does so."""
FORMER = "former"
"""The files that the contender before has made, in a contender's folder."""
_BLOCK = 8 << 20


def arguments(**defaults: str) -> argparse.Namespace:
    """Its command-line arguments, by name; an empty default must be given."""
    parser = argparse.ArgumentParser()
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", default=default, required=not default)
    asked = parser.parse_args()
    asked.url = os.environ.get(DATABASE, "")
    return asked


def begin(folder: Path, source: str = "") -> None:
    """Remove what the contender before has made, and have everything on the disk, just before the clock runs.

    The source is in the page cache then: rclone drops most of what it has read from there, and the contender after it would have
    to read that from the disk.

    The host of a virtual machine takes back memory that has been free for a few seconds, and then gives it again page by page,
    which doubles the CPU time of a copy of large files. A program that takes seconds to start would find such memory, and one
    that starts at once, memory that was freed just now.

    :param folder: the contender's own.
    :param source: the folder of the files to copy, if it is on this machine.
    """
    for path in Path(source).rglob("*") if os.path.isdir(source) else ():
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(_BLOCK):
                    pass
    shutil.rmtree(folder / FORMER, ignore_errors=True)
    os.sync()


class Laps:
    """A stopwatch."""

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> float:
        """End a phase, and report its seconds."""
        now = time.perf_counter()
        self.phases[name], self._last = now - self._last, now
        return self.phases[name]


def cpu_seconds() -> float:
    """The CPU time so far of this process and of all below it, those that have ended included."""
    import psutil  # the peers' Pythons don't have it

    own = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (own, *own.children(recursive=True)))


def print_figures(seconds: float, phases: Mapping[str, float], cpu: float | None = None, **facts: int) -> None:
    """End with the figures.

    :param cpu: the CPU time of the compared part, if measured.
    """
    print(json.dumps({"seconds": seconds, "phases": dict(phases), "facts": facts, "cpu": cpu}), flush=True)
