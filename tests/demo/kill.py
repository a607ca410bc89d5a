"""Catch a process between two publish steps, from outside: nothing in the product helps, and nothing knows.

Publishing a file is one call of the file system, so catching a process between two must be fast. The target folder is
watched as fast as this machine can, with the process at the lowest priority, and the process is stopped at the first new
file. Then there is time to look, and the caller finds out whether it was in time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

__all__ = ["file_names", "stop_at_new_file", "stop_when"]

LOWEST_PRIORITY = 19


def file_names(folder: Path) -> frozenset[str]:
    """The names of the Parquet files in a folder, as a listing shows them."""
    try:
        return frozenset(name for name in os.listdir(folder) if name.endswith(".parquet"))
    except FileNotFoundError:
        return frozenset()


def stop_at_new_file(process: psutil.Process, folder: Path, known: frozenset[str], *, seconds: float) -> bool:
    """Stop a process (SIGSTOP) as soon as `folder` has a file that isn't `known`. See `stop_when`."""
    return stop_when(process, lambda: not file_names(folder) <= known, seconds=seconds)


def stop_when(process: psutil.Process, happened: Callable[[], bool], *, seconds: float) -> bool:
    """Stop a process (SIGSTOP) as soon as something has happened.

    :return: whether it was stopped; if not, it ended before, or nothing happened in time.
    """
    deadline = time.monotonic() + seconds
    process.nice(LOWEST_PRIORITY)
    with _in_a_hurry():
        while not happened():
            if time.monotonic() > deadline or not process.is_running():
                return False
        try:
            process.suspend()
            while not all(state in "tTZX" for state in _thread_states(process.pid)):
                time.sleep(0)
            return process.status() == psutil.STATUS_STOPPED
        except (psutil.NoSuchProcess, ProcessLookupError):
            return False


@contextmanager
def _in_a_hurry() -> Iterator[None]:
    """Give this process a better priority for a while, where that is allowed."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _thread_states(pid: int) -> Iterator[str]:
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            yield stat.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
