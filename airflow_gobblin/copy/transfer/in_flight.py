"""Several files of a bundle, or parts of a file, in flight at once: with small ones, waiting for a store would take longest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from airflow_gobblin.copy.entries import Entry

T = TypeVar("T")
MOST_HELD = 64 << 20
"""The total size of files in flight at once; a larger one is alone, and has several parts in flight."""


def in_flight(stage: Callable[[Entry], T], entries: Iterable[Entry], most: int) -> Iterator[T]:
    """Stage files, and yield what comes of each, in order. After an error no more are begun; it is raised once all threads end.

    :param most: the number of files at once.
    """
    if most == 1:
        yield from map(stage, entries)
        return
    waiting: deque[tuple[int, Future[T]]] = deque()
    held = 0
    pool = ThreadPoolExecutor(most, "copy")
    try:
        for entry in entries:
            while waiting and (len(waiting) == most or held + entry.size > MOST_HELD):
                size, first = waiting.popleft()
                yield first.result()
                held -= size
            waiting.append((entry.size, pool.submit(stage, entry)))
            held += entry.size
        for _, staged in waiting:
            yield staged.result()
    finally:
        pool.shutdown(cancel_futures=True)


def all_of(pool: ThreadPoolExecutor, do: Callable[[T], object], items: Iterable[T]) -> None:
    """Do something with all items. After an error no more is begun, and it is raised once all that was begun has ended."""
    futures = [pool.submit(do, item) for item in items]
    try:
        for done in wait(futures, return_when=FIRST_EXCEPTION).done:
            done.result()
    finally:
        for future in futures:
            future.cancel()
        wait(futures)
