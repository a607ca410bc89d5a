"""Reading and other work ahead of its results, in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def read_ahead(pool: Executor, do: Callable[[S], T], items: Iterable[S], most: int) -> Generator[T, None, None]:
    """Do something with each item, such as read it, and yield the results in order.

    :param most: the number of items begun before their results are wanted.
    """
    begun: deque[Future[T]] = deque()
    try:
        for item in items:
            begun.append(pool.submit(do, item))
            if len(begun) > most:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for one in begun:
            one.cancel()
