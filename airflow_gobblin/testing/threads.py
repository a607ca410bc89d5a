"""Threads that do the same thing at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

__all__ = ["together"]


def together(do: Callable[[int], None], threads: int) -> None:
    """Call a function in several threads at once, each with its number. The first error is raised."""
    start = Barrier(threads, timeout=60)

    def begin(number: int) -> None:
        start.wait()
        do(number)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(begin, number) for number in range(threads)]:
            done.result()
