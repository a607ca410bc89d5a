"""What a Spark task does for the Python worker that it runs in, so that the worker's next task starts at once.

Only the standard library is imported here, for a worker may have nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar
from zipimport import zipimporter

__all__ = ["forget_zips", "reading_last"]

Row = TypeVar("Row")


def reading_last(rows: Iterable[Row], batches: Iterable[object]) -> Iterator[Row]:
    """The rows that a task gives, and then its input, which nobody needs, but Spark wants read.

    Whoever reads it first waits 40 ms for it, for the JVM sends it in small pieces over TCP (Nagle's algorithm).
    """
    yield from rows
    for _ in batches:
        pass
    forget_zips()


def forget_zips() -> None:
    """Drop what finds modules in zips; it is made again, from what is kept of each zip, when something is imported.

    Before each task Spark has all finders look anew at what they know. Each that is for a zip then reads the zip's directory
    (before Python 3.13), and there is one for each package in Spark's own zip: 0.1 s a task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
