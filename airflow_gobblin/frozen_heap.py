"""The garbage collector, while a stage makes many objects that don't live long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the collector from what was there before, for as long as this lasts; what comes is collected as ever.

    The steps of 10,000 files make CPython go through everything in memory once. In a task that is Airflow's modules above all,
    0.2 s for nothing, where linking the files takes 0.1 s. Airflow does the same before it forks
    (https://docs.python.org/3/library/gc.html#gc.freeze).

    Only for a process that does little else, as a task's: what is garbage already when this begins may stay for long, for the
    collector counts anew.
    """
    if gc.get_freeze_count():  # somebody else's, to thaw or not
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
