"""Files of an object store on their way: each in as few requests as it takes, many of them at once.

Every answer has the ETag of the object that it is a part of. If all are the planned one, the file is as it was planned, and needs
no second look.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from airflow_gobblin.copy.blocks import Block, Checksum, write_all, write_blocks
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.failures import changed, described, gone, reading
from airflow_gobblin.copy.transfer.in_flight import all_of
from airflow_gobblin.copy.transfer.streams import FilesDestination
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.copy.trees.objects import ObjectTree
from airflow_gobblin.storage.ahead import read_ahead
from airflow_gobblin.storage.files.base import StagedOutput, contained
from airflow_gobblin.storage.files.objects import ObjectFiles
from airflow_gobblin.storage.files.writeback import begin_to_write

PART = 4 << 20
"""The size of a part that is asked for at once: memory for larger ones is new each time, which takes longer than reading them."""
_AHEAD = 7
"""The number of parts of a file that are asked for ahead."""
_STREAMED = 64 << 20
"""The least size of a part that is written to a disk block by block, while others are being written."""
_STREAMS = 3
"""The maximum number of these parts of a file: threads that write into one file wait for each other."""
IN_FLIGHT = 32


class ObjectOrigin:
    """Files of a tree in an object store. An `Origin`.

    :param tree: the tree that they are in.
    :param folder: the file set's folder in it.
    """

    parallel = IN_FLIGHT

    def __init__(self, tree: ObjectTree, folder: str) -> None:
        self.tree = tree
        self._folder = folder
        self._pool = ThreadPoolExecutor(1 + _AHEAD, "read")

    def path(self, entry: Entry) -> str:
        """Return the path of a file in the tree."""
        return joined(self._folder, contained(entry.path))

    def blocks(self, entry: Entry) -> Iterator[Block]:
        if not entry.size:
            self.expect(entry)
        elif entry.size <= PART:
            yield self.part(entry, 0, entry.size)
        else:
            yield from self._parts(entry)

    def _parts(self, entry: Entry) -> Iterator[Block]:
        def read(start: int) -> Block:
            return self.part(entry, start, min(start + PART, entry.size))

        return read_ahead(self._pool, read, range(0, entry.size, PART), _AHEAD)

    def part(self, entry: Entry, start: int, end: int) -> Block:
        path = self.path(entry)
        try:
            with reading(self.tree.root, path):
                block, etag = self.tree.read_part(path, start, end)
        except Exception:
            self.expect(entry)  # a shorter object may have no such part
            raise
        if etag != entry.stamp:
            raise changed(self.tree.root, path, described(entry), f"an object with ETag {etag}")
        if len(block) != end - start:
            raise changed(self.tree.root, path, described(entry), f"{start + len(block)} bytes")
        return block

    def expect(self, entry: Entry) -> None:
        """Make sure that a file is as it was planned.

        :raises SourceChangedError: it isn't, or is gone.
        """
        path = self.path(entry)
        with reading(self.tree.root, path):
            found = self.tree.entry(path)
        if found is None or found.kind is not EntryKind.FILE:
            raise gone(self.tree.root, path)
        if (found.size, found.stamp) != (entry.size, entry.stamp):
            raise changed(self.tree.root, path, described(entry), described(found))

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        if checksum.wanted or entry.size <= PART:
            write_blocks(self, entry, file, checksum)
        else:
            size = max(_STREAMED, -(-entry.size // _STREAMS))
            all_of(self._pool, partial(self._write_part, entry, file, size), range(0, entry.size, size))

    def _write_part(self, entry: Entry, file: int, size: int, start: int) -> None:
        at = start
        for block in self._streamed(entry, start, min(start + size, entry.size)):
            write_all(file, block, at)
            at += len(block)
        begin_to_write(file, start, at - start)

    def _streamed(self, entry: Entry, start: int, end: int) -> Iterator[Block]:
        """Yield a part of a file block by block, and the rest, if it doesn't arrive that way, in parts requested one by one."""
        at = start
        with suppress(Exception):
            blocks, etag = self.tree.stream_part(self.path(entry), start, end)
            for block in blocks if etag == entry.stamp else ():
                if at + len(block) > end:
                    break  # more than was asked for would be written over the next part
                yield block
                at += len(block)
        for rest in range(at, end, PART):
            yield self.part(entry, rest, min(rest + PART, end))

    def link(self, entry: Entry) -> str:
        raise NotImplementedError("there are no links in an object store")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class ObjectDestination(FilesDestination):
    """Staged uploads and small objects in a store that keeps uploads open. A `Destination`, which keeps times in metadata."""

    _files: ObjectFiles

    def _begin(self, entry: Entry, path: str, target: str) -> StagedOutput:
        return self._files.stage_with(path, target, self._time(entry))

    def _time(self, entry: Entry) -> int | None:
        return self._kept.time_in_metadata(entry)
