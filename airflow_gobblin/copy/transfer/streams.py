"""The origin of files in any tree, and their destination in any storage, block by block."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import repeat, takewhile
from threading import Lock
from typing import BinaryIO, Protocol

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.blocks import BLOCK, Block, Checksum, Origin, write_blocks
from airflow_gobblin.copy.entries import Entry, EntryKind, shown
from airflow_gobblin.copy.failures import changed, described, gone, reading, writing
from airflow_gobblin.copy.trees import Tree, joined
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.work import Segment, StagedFile
from airflow_gobblin.steps.publishing import staged_identity
from airflow_gobblin.storage.ahead import read_ahead
from airflow_gobblin.storage.files.base import Files, StagedOutput, contained


class TreeOrigin:
    """Files of any tree. An `Origin`.

    :param folder: the file set's folder in the tree.
    """

    parallel = 1

    def __init__(self, tree: Tree, folder: str) -> None:
        self.tree = tree
        self._folder = folder

    def blocks(self, entry: Entry) -> Iterator[Block]:
        path = self.path(entry)
        self.expect(entry)
        left = entry.size
        with (
            reading(self.tree.root, path),
            self.tree.open(path) as file,
            closing(_blocks_of(file, entry.size)) as blocks,
        ):
            for block in blocks:
                left -= len(block)
                yield block
        if left != 0:
            raise changed(self.tree.root, path, described(entry), f"{entry.size - left} bytes")
        self.expect(entry)

    def part(self, entry: Entry, start: int, end: int) -> Block:
        path = self.path(entry)
        with reading(self.tree.root, path):
            block = self.tree.read(path, start, end - start)
        self.expect(entry)
        if len(block) != end - start:
            raise changed(self.tree.root, path, described(entry), f"{start + len(block)} bytes")
        return block

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        write_blocks(self, entry, file, checksum)

    def link(self, entry: Entry) -> str:
        self.expect(entry)
        return entry.link

    def path(self, entry: Entry) -> str:
        """Return the path of a file in the tree."""
        return joined(self._folder, contained(entry.path))

    def expect(self, entry: Entry) -> None:
        """Make sure that a file is as it was planned.

        :raises SourceChangedError: it isn't, or is gone.
        """
        path = self.path(entry)
        with reading(self.tree.root, path):
            found = self.tree.entry(path)
        if found is None:
            raise gone(self.tree.root, path)
        if (found.kind, found.size, found.stamp) != (entry.kind, entry.size, entry.stamp):
            raise changed(self.tree.root, path, described(entry), described(found))

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _blocks_of(file: BinaryIO, size: int) -> Generator[bytes, None, None]:
    """Yield the blocks of an open file, each of which is read while the one before it is used.

    :param size: the file's, as it was planned.
    """
    blocks = iter(partial(file.read, BLOCK), b"")  # which doesn't read on once it has found the end
    if size <= BLOCK:
        yield from blocks
        return
    with (
        ThreadPoolExecutor(1, "read") as pool,
        closing(read_ahead(pool, lambda end: next(blocks, end), repeat(b""), 1)) as ahead,
    ):
        yield from takewhile(len, ahead)


def taken_over(files: Files, finished: StagedFile, path: str) -> StagedFile | None:
    """Take over a finished file by a rename, which only one process can do.

    :param path: its new path, in a folder that nobody else writes to.
    :return: the file, under that path; `None` if it wasn't there as it was.
    """
    taken = replace(finished, path=path)
    try:
        files.make_folder(posixpath.dirname(path))
        files.replace(finished.path, path)
    except OSError:
        return None
    if staged_identity(taken, files) is not None:
        return taken
    with suppress(FileNotFoundError):
        files.unlink(path)
    return None


class Copies(Protocol):
    """A shorter way than block by block. Errors are `GobblinError`, and name the file."""

    def takes(self, entry: Entry) -> bool:
        """Return whether a file can go this way."""

    def stage(self, entry: Entry, path: str, target: str) -> StagedFile | None:
        """Stage a copy.

        :param path: its staged name, where staged files are files of their own.
        :param target: the path that it will have.
        :return: `None` if it can't go this way after all.
        """


SMALL = 64 << 10
"""A new object up to this size is staged together with others. Its bytes go through the process that publishes it."""


class FilesDestination:
    """Staged files behind the port of all kinds of storage. A `Destination`, which keeps no attributes by itself.

    Where staged files are uploads, each takes three requests; small ones are staged in a single object, and put by their steps.

    :param files: the files below the target's root.
    :param folder: the folder of the unit's staged files.
    :param target: the file set's folder.
    :param replacing: the paths of files that are to replace others, which takes an upload.
    :param copies: shorter ways; each file goes the first one that takes it.
    :param checksums: whether staged files have a checksum.
    :param shared: whether the staged files of other units are in the folder, too.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        target: str,
        kept: KeptAttributes,
        replacing: Collection[str] = (),
        copies: Sequence[Copies] = (),
        *,
        checksums: bool,
        shared: bool = False,
    ) -> None:
        self._files = files
        self._folder = folder
        self._target = target
        self._kept = kept
        self._checksums = checksums
        self._shared = shared
        self._replacing = frozenset(replacing)
        self._copies = copies
        self._staged: list[StagedFile] = []
        self._small = bytearray()
        self._lock = Lock()

    @property
    def parallel(self) -> int:
        return self._files.parallel

    @property
    def renames(self) -> bool:
        return self._files.moves_folders

    def take(self, entry: Entry, finished: StagedFile) -> StagedFile | None:
        with writing(self._files.root, entry.path):
            taken = taken_over(self._files, finished, joined(self._folder, contained(entry.path)))
        if taken is not None:
            self._staged.append(taken)
        return taken

    def stage(self, entry: Entry, origin: Origin) -> StagedFile:
        path = contained(entry.path)
        check_no_link(entry, self._files.root)
        staged = self._new(path, entry, origin)
        self._staged.append(staged)
        with writing(self._files.root, path):
            return self._keep(entry, staged)

    def _new(self, path: str, entry: Entry, origin: Origin) -> StagedFile:
        copies = next((copies for copies in self._copies if copies.takes(entry)), None)
        staged = None if copies is None else copies.stage(entry, joined(self._folder, path), joined(self._target, path))
        if staged is not None:
            return staged
        return self._small_file(path, entry, origin) if self._is_small(entry) else self._file(path, entry, origin)

    def _is_small(self, entry: Entry) -> bool:
        if self._files.uploads is None or entry.path in self._replacing:
            return False
        return entry.known_size is not None and entry.size <= SMALL

    @property
    def _small_files(self) -> str:
        """The object with the contents of small files."""
        return joined(self._folder, "small_files")

    def _small_file(self, path: str, entry: Entry, origin: Origin) -> StagedFile:
        data = b"".join(origin.blocks(entry))
        if len(data) != entry.size:
            raise changed("the source", path, described(entry), f"given {len(data)} bytes")
        with self._lock:
            segment = Segment(self._small_files, len(self._small), self._time(entry))
            self._small += data
        etag, checksum = hashlib.md5(data, usedforsecurity=False).hexdigest(), hashlib.sha256(data).hexdigest()
        return StagedFile(joined(self._target, path), len(data), checksum, 0, etag, segment=segment)

    def _file(self, path: str, entry: Entry, origin: Origin) -> StagedFile:
        with writing(self._files.root, path):
            out = self._begin(entry, joined(self._folder, path), joined(self._target, path))
        try:
            if not self._checksums:
                out.skip_checksum()
            for block in origin.blocks(entry):
                with writing(self._files.root, path):
                    out.write(block)
            with writing(self._files.root, path):
                return out.finish(0)
        except BaseException:
            out.abort()
            raise

    def _begin(self, entry: Entry, path: str, target: str) -> StagedOutput:
        """Open a new staged file."""
        return self._files.stage(path, target)

    def _time(self, entry: Entry) -> int | None:
        """Return the time that a file keeps in its metadata, if it does."""
        return None

    def _keep(self, entry: Entry, staged: StagedFile) -> StagedFile:
        """Give a staged file what it keeps of its source's attributes."""
        for letter in self._kept.letters(entry):
            if letter != "t" or self._time(entry) is None:
                self._kept.miss(letter, entry, "this storage keeps none")
        return staged

    def finish(self) -> None:
        if self._files.uploads is not None and any(file.segment is not None for file in self._staged):
            with writing(self._files.root, self._small_files):
                self._files.uploads.put(self._small_files, bytes(self._small))
        folders = {f.path.rpartition("/")[0] for f in self._staged if f.upload is None and f.segment is None}
        for folder in sorted(folders):
            with writing(self._files.root, folder):
                self._files.sync_folder(folder)

    def abort(self) -> None:
        for file in self._staged:
            with suppress(OSError):
                if file.upload is not None and self._files.uploads is not None:
                    self._files.uploads.abort(file.path, file.upload.id)
                elif self._shared and file.segment is None:
                    self._files.unlink(file.path)
        with suppress(OSError):
            if not self._shared:
                self._files.remove_tree(self._folder)

    def close(self) -> None:
        """Do nothing: nothing is open."""


def check_no_link(entry: Entry, root: str) -> None:
    """Make sure that an entry is a file.

    :raises ConfigurationError: it is a link, and this storage has none.
    """
    if entry.kind is not EntryKind.FILE:
        raise ConfigurationError(
            operation="copy",
            subject=f"{entry.kind.value} {shown(entry.path)!r}",
            cause=f"{root} holds files only",
            hint="Skip links, or follow them: links=Links.SKIP, links=Links.FOLLOW.",
        )
