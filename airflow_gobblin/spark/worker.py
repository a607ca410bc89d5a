"""The care of a Spark task for its Python worker, so that the worker's next task starts at once.

Only the standard library is imported here, as a worker may have nothing else.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import TypeVar
from zipimport import zipimporter

__all__ = ["forget_zips", "freeze_heap", "freeze_heap_once", "reading_last", "schedule_as_batch", "use_small_pages"]

Row = TypeVar("Row")


_DISABLE_HUGE_PAGES = 41
"""`PR_SET_THP_DISABLE`."""
NEW_OBJECTS = 10_000
"""The number of new objects after which the garbage collector looks at them again, instead of 700."""


def freeze_heap() -> None:
    """Keep the garbage collector away from what is loaded, for this process's life, and have it look at new objects less often.

    For a worker, where Spark has it look through everything loaded after each task, in 0.07 s, and for a driver, which ends with
    its pack (https://docs.python.org/3/library/gc.html#gc.freeze).
    """
    if gc.get_freeze_count():
        return
    gc.freeze()
    thresholds = gc.get_threshold()
    if thresholds[0]:  # else the collector is off
        gc.set_threshold(max(NEW_OBJECTS, thresholds[0]), *thresholds[1:])


@cache
def freeze_heap_once() -> None:
    """Freeze the heap in a process's first task. To ask in later ones whether it is frozen would count its objects, in 9 ms."""
    freeze_heap()


def schedule_as_batch() -> None:
    """Let this thread, and those that it starts, wait their turn when something has come for them, for the thread's life.

    Otherwise each piece that a database on the same machine sends would interrupt it while it sends the next one. Linux only
    (`SCHED_BATCH`, https://man7.org/linux/man-pages/man7/sched.7.html). A policy that somebody chose stays.
    """
    if sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):  # a container may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def use_small_pages() -> None:
    """Have the system give this process memory in pages of the ordinary size only, for its life.

    Arrow's allocator asks for huge ones, of which the system clears 2 MB at the first use of a byte: of a worker that takes some
    tens of megabytes, that is a twelfth of the CPU time (`PR_SET_THP_DISABLE`,
    https://man7.org/linux/man-pages/man2/PR_SET_THP_DISABLE.2const.html). Linux only.
    """
    if sys.platform == "linux":
        control = getattr(ctypes.CDLL(None), "prctl", None)
        if control is not None:
            control(_DISABLE_HUGE_PAGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))


def reading_last(rows: Iterable[Row], batches: Iterable[object]) -> Iterator[Row]:
    """Yield a task's rows, and then read its input, which isn't needed, but which Spark wants read.

    Reading it first would wait 40 ms, as the JVM sends it in small pieces over TCP (Nagle's algorithm).
    """
    yield from rows
    for _ in batches:
        pass
    forget_zips()


def forget_zips() -> None:
    """Drop the finders of modules in zips; they are made again, from the cached directory of each zip, at the next import.

    Before each task Spark invalidates all finders. Each one for a zip then reads the zip's directory again (before Python
    3.13), and there is one for each package in Spark's own zip: 0.1 s a task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
