"""A limit on the bytes per second that the tasks of a run read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Lock

from airflow_gobblin.copy.blocks import Block, Checksum, Origin, write_blocks
from airflow_gobblin.copy.entries import Entry


class Pace:
    """A pace of bytes, kept by all threads of a task together. On average it is never exceeded.

    :param bytes_a_second: above 0.
    """

    def __init__(self, bytes_a_second: float) -> None:
        self._bytes_a_second = bytes_a_second
        self._lock = Lock()
        self._until = time.monotonic()

    def wait(self, count: int) -> None:
        """Wait for as long as this many bytes take."""
        with self._lock:
            now = time.monotonic()
            self._until = max(now, self._until) + count / self._bytes_a_second
            seconds = self._until - now
        time.sleep(seconds)


class PacedOrigin:
    """The files of another origin, read at a pace. An `Origin`.

    Their bytes go through this process, in blocks, even if the origin could do without it; holes are filled.
    """

    def __init__(self, origin: Origin, pace: Pace) -> None:
        self._origin = origin
        self._pace = pace

    @property
    def parallel(self) -> int:
        return self._origin.parallel

    def blocks(self, entry: Entry) -> Iterator[Block]:
        for block in self._origin.blocks(entry):
            self._pace.wait(len(block))
            yield block

    def part(self, entry: Entry, start: int, end: int) -> Block:
        self._pace.wait(end - start)
        return self._origin.part(entry, start, end)

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        write_blocks(self, entry, file, checksum)

    def link(self, entry: Entry) -> str:
        return self._origin.link(entry)

    def close(self) -> None:
        self._origin.close()
