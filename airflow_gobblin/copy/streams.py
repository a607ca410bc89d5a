"""Files on their way from an origin to a destination, and the two ports between them.

An origin reads files of the source, and makes sure that they are still as they were planned, after the last byte too. A
destination stages them. Either may know a shorter way than block by block.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.entries import Entry, EntryKind, shown
from airflow_gobblin.copy.failures import changed, described, gone, reading, writing
from airflow_gobblin.copy.trees import Tree, joined
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import Files, contained

BLOCK = 4 << 20
_SMALL = 256 << 10
"""A block up to this size is hashed by the thread that copies it."""


class Checksum:
    """The SHA-256 of a file, computed while the next block is copied.

    :param wanted: otherwise it is empty, and costs nothing.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self._hash = hashlib.sha256()
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def add(self, block: bytes) -> None:
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
    """The source of a unit's files.

    Each is as it was planned, or there is a `SourceChangedError`. Other errors are `GobblinError`, too, and name the file.
    """

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        """Yield the bytes of a file, in order; some may be read ahead."""

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

    def stage(self, entry: Entry, origin: Origin) -> StagedFile:
        """Copy a file, or make a link."""

    def finish(self) -> None:
        """Make everything durable, names included."""

    def abort(self) -> None:
        """Remove everything as far as possible; what can't be removed never counts."""

    def close(self) -> None:
        """Let go of what is open."""


class TreeOrigin:
    """Files of any tree. An `Origin`.

    :param folder: the file set's folder in the tree.
    """

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self._folder = folder

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        path = joined(self._folder, contained(entry.path))
        self._expect(entry, path)
        left = entry.size
        with reading(self._tree.root, path), self._tree.open(path) as file:
            while block := file.read(BLOCK):
                left -= len(block)
                yield block
        if left != 0:
            raise changed(self._tree.root, path, described(entry), f"{entry.size - left} bytes")
        self._expect(entry, path)

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        write_blocks(self, entry, file, checksum)

    def link(self, entry: Entry) -> str:
        self._expect(entry, joined(self._folder, contained(entry.path)))
        return entry.link

    def _expect(self, entry: Entry, path: str) -> None:
        with reading(self._tree.root, path):
            found = self._tree.entry(path)
        if found is None:
            raise gone(self._tree.root, path)
        if (found.kind, found.size, found.stamp) != (entry.kind, entry.size, entry.stamp):
            raise changed(self._tree.root, path, described(entry), described(found))

    def close(self) -> None:
        """Nothing is open."""


def write_blocks(origin: Origin, entry: Entry, file: int, checksum: Checksum) -> None:
    """Write the blocks of a file to an open one."""
    at = 0
    for block in origin.blocks(entry):
        checksum.add(block)
        write_all(file, block, at)
        at += len(block)


def write_all(file: int, block: bytes, at: int) -> None:
    """Write a block to a place in an open file."""
    rest = memoryview(block)
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written


class FilesDestination:
    """Staged files behind the port of all kinds of storage. A `Destination`. It keeps no attributes.

    :param files: the files below the target's root.
    :param folder: the folder of the unit's staged files.
    :param target: the file set's folder.
    :param checksums: whether staged files have a checksum.
    """

    def __init__(self, files: Files, folder: str, target: str, kept: KeptAttributes, *, checksums: bool) -> None:
        self._files = files
        self._folder = folder
        self._target = target
        self._kept = kept
        self._checksums = checksums
        self._staged: list[StagedFile] = []

    def stage(self, entry: Entry, origin: Origin) -> StagedFile:
        path = contained(entry.path)
        check_no_link(entry, self._files.root)
        with writing(self._files.root, path):
            out = self._files.stage(joined(self._folder, path), joined(self._target, path))
        try:
            if not self._checksums:
                out.skip_checksum()
            for block in origin.blocks(entry):
                with writing(self._files.root, path):
                    out.write(block)
            with writing(self._files.root, path):
                staged = out.finish(0)
        except BaseException:
            out.abort()
            raise
        self._staged.append(staged)
        for letter in self._kept.letters(entry):
            self._kept.miss(letter, entry, "this storage keeps none")
        return staged

    def finish(self) -> None:
        folders = {file.path.rpartition("/")[0] for file in self._staged if file.upload is None}
        for folder in sorted(folders):
            with writing(self._files.root, folder):
                self._files.sync_folder(folder)

    def abort(self) -> None:
        for file in self._staged:
            if file.upload is not None and self._files.uploads is not None:
                with suppress(OSError):
                    self._files.uploads.abort(file.path, file.upload.id)
        with suppress(OSError):
            self._files.remove_tree(self._folder)

    def close(self) -> None:
        """Nothing is open."""


def check_no_link(entry: Entry, root: str) -> None:
    """Make sure that an entry is a file.

    :raises ConfigurationError: it is a link, and there are none in this storage.
    """
    if entry.kind is not EntryKind.FILE:
        raise ConfigurationError(
            operation="copy",
            subject=f"{entry.kind.value} {shown(entry.path)!r}",
            cause=f"{root} holds files only",
            hint="Skip links, or follow them: links=Links.SKIP, links=Links.FOLLOW.",
        )
