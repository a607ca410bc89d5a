"""The blocks of a file on its way, from an origin to a destination, and its checksum.

An origin reads files of the source, and makes sure that they are still as they were planned, even after the last byte. A
destination stages them. Either may know a shorter way than block by block.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Protocol

from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.writeback import begin_to_write

Block = bytes | memoryview
BLOCK = 4 << 20
_SMALL = 256 << 10
"""A block up to this size is hashed by the thread that copies it."""


class Checksum:
    """The SHA-256 of a file, computed while the next block is copied.

    :param wanted: whether it is wanted; otherwise it is empty, and costs nothing.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    @cached_property
    def _hash(self) -> hashlib._Hash:
        return hashlib.sha256()

    def add(self, block: Block) -> None:
        """Add the next block."""
        if not self.wanted:
            return
        self._wait()
        if len(block) <= _SMALL:
            self._hash.update(block)
            return
        self._pool = self._pool or ThreadPoolExecutor(1, "checksum")
        self._under_way = self._pool.submit(self._hash.update, block)

    def add_zeros(self, count: int) -> None:
        """Add zeros in place of a hole."""
        for start in range(0, count if self.wanted else 0, BLOCK):
            self.add(bytes(min(BLOCK, count - start)))

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    def result(self) -> str:
        """Return it in hex, after the last block; empty if it isn't wanted."""
        self._wait()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        return self._hash.hexdigest() if self.wanted else ""


class Origin(Protocol):
    """The source of a unit's files. Any number of threads may use it, each for a file of its own.

    Each is as it was planned, or a `SourceChangedError` is raised. Other errors are `GobblinError`, too, and name the file.
    """

    @property
    def parallel(self) -> int:
        """The number of small files worth reading at once."""

    def blocks(self, entry: Entry) -> Iterator[Block]:
        """Yield the bytes of a file, in order; some may be read ahead."""

    def part(self, entry: Entry, start: int, end: int) -> Block:
        """Return a part of a file that is neither converted nor empty; any number of threads may read parts of one file.

        The file was as it was planned when the part was read.
        """

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        """Write a file to an open one, which is empty.

        :param checksum: takes all of its bytes.
        :raises OSError: it can't be written.
        """

    def link(self, entry: Entry) -> str:
        """Return the text of a link."""

    def close(self) -> None:
        """Let go of what is open."""


class Destination(Protocol):
    """The place that a unit's files are staged in. Errors are `GobblinError`, and name the file."""

    @property
    def parallel(self) -> int:
        """The number of small files worth staging at once."""

    @property
    def renames(self) -> bool:
        """Whether a finished file can be taken over by a rename."""

    def stage(self, entry: Entry, origin: Origin) -> StagedFile:
        """Copy a file, or make a link. Any number of threads may do so at once, until all have ended.

        After an error nothing of it is left.
        """

    def take(self, entry: Entry, finished: StagedFile) -> StagedFile | None:
        """Take over a finished file instead of copying; `None` if it isn't there as it was. Threads may do so as in `stage`."""

    def finish(self) -> None:
        """Make everything durable, names included."""

    def abort(self) -> None:
        """Remove everything as far as possible; anything that can't be removed never counts."""

    def close(self) -> None:
        """Let go of what is open."""


def write_blocks(origin: Origin, entry: Entry, file: int, checksum: Checksum) -> None:
    """Write the blocks of a file to an open one."""
    at = 0
    for block in origin.blocks(entry):
        checksum.add(block)
        write_all(file, block, at)
        at += len(block)


def write_all(file: int, block: Block, at: int) -> None:
    """Write a block to a place in an open file. The disk begins to write a large one at once."""
    rest, start = memoryview(block), at
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written
    if at - start >= BLOCK:
        begin_to_write(file, start, at - start)
