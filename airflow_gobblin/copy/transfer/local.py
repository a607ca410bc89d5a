"""Copies onto a disk: the kernel copies files that are on a disk, and any others are copied block by block.

The kernel copies without the bytes passing through this process, and where a file system can share blocks or copy on its server,
`copy_file_range` does that. No path is followed: each folder of the staged files is opened from the one above it, so that a link
among them leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.blocks import BLOCK, Block, Checksum, Origin, write_all
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.failures import changed, described, is_of_target, reading, writing
from airflow_gobblin.copy.options import Links
from airflow_gobblin.copy.transfer.durability import FolderSync, sync_files
from airflow_gobblin.copy.transfer.streams import taken_over
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import contained
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.storage.files.writeback import begin_to_write

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
"""The flags to read with: those that don't wait for the writer of a pipe that has taken the place of a file."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_AT_ONCE = 32 << 20
"""The bytes that the kernel copies before the disk begins to write them, so that the disk is as busy as the copying."""
NOT_BY_KERNEL = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EBADF)
_FEW = 2
"""The most files that are synced one by one, without waiting for all else that is being written to the same disk."""
_SECTOR = 512
_LONGEST_PATH = 4096
"""Linux's `PATH_MAX`, with the byte that ends a path."""


class OpenFolder:
    """Folders below a root, of which the last one used stays open.

    :param root: its path.
    :param make: whether folders are created.
    """

    def __init__(self, root: str, *, make: bool) -> None:
        self.root = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
        self._make = make
        self._path, self._folder = "", self.root

    def of(self, path: str) -> tuple[int, str]:
        """Return the descriptor of a path's folder, and the last part of the path.

        :raises OSError: a folder on the way is missing, or a link.
        """
        folder, _, name = path.rpartition("/")
        if folder != self._path:
            self._enter(folder)
        return self._folder, name

    def _enter(self, path: str) -> None:
        if self._path and not path.startswith(f"{self._path}/"):
            self._leave()
        below = path[len(self._path) :].lstrip("/")
        for part in below.split("/") if below else ():
            inner, path_there = self._open(part), f"{self._path}/{part}".lstrip("/")
            self._leave()
            self._path, self._folder = path_there, inner

    def _open(self, name: str) -> int:
        if self._make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._folder)
        return os.open(name, _FOLDER, dir_fd=self._folder)

    def _leave(self) -> None:
        if self._folder != self.root:
            os.close(self._folder)
        self._path, self._folder = "", self.root

    def close(self) -> None:
        """Close what is open."""
        self._leave()
        os.close(self.root)


class DiskOrigin:
    """Files of a tree on a disk. An `Origin`.

    :param folder: the file set's folder in the tree.
    """

    parallel = 1

    def __init__(self, tree: LocalTree, folder: str, links: Links) -> None:
        self._tree = tree
        self._folder = folder
        self._links = links
        self._by_kernel = True
        self._lock = Lock()  # the open folder is one for all threads
        with reading(tree.root, "."):
            self._folders = OpenFolder(tree.root, make=False)

    def blocks(self, entry: Entry) -> Iterator[Block]:
        source, path, _ = self._open(entry)
        try:
            with reading(self._tree.root, path):
                while block := os.read(source, BLOCK):
                    yield block
            self._expect(entry, source, path)
        finally:
            os.close(source)

    def part(self, entry: Entry, start: int, end: int) -> Block:
        source, path, _ = self._open(entry)
        try:
            with reading(self._tree.root, path):
                block = os.pread(source, end - start, start)
            self._expect(entry, source, path)
        finally:
            os.close(source)
        if len(block) != end - start:
            raise changed(self._tree.root, path, described(entry), f"{start + len(block)} bytes")
        return block

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        source, path, opened = self._open(entry)
        try:
            at = 0
            for start, end in self._parts(entry, source, path, opened):
                checksum.add_zeros(start - at)
                at = self._copy_part(path, source, file, start, end, checksum)
                if at < end:
                    break  # it has become shorter
            else:
                checksum.add_zeros(entry.size - at)
                if at < entry.size:
                    os.ftruncate(file, entry.size)
            self._expect(entry, source, path)
        finally:
            os.close(source)

    def link(self, entry: Entry) -> str:
        path = joined(self._folder, contained(entry.path))
        with reading(self._tree.root, path), self._lock:
            folder, name = self._folders.of(path)
            text = os.readlink(name, dir_fd=folder)
        if text != entry.link:
            raise changed(self._tree.root, path, f"a link to {entry.link!r}", f"a link to {text!r}")
        return text

    def close(self) -> None:
        self._folders.close()

    def _open(self, entry: Entry) -> tuple[int, str, os.stat_result]:
        """Open a file, and make sure that it is as it was planned.

        :return: its descriptor, its path in the tree, and what it is.
        """
        path = joined(self._folder, contained(entry.path))
        with reading(self._tree.root, path):
            if self._links is Links.FOLLOW:
                with self._tree.open(path) as followed:
                    source = os.dup(followed.fileno())
            else:
                with self._lock:
                    folder, name = self._folders.of(path)
                    source = os.open(name, _READ, dir_fd=folder)
        try:
            return source, path, self._expect(entry, source, path)
        except BaseException:
            os.close(source)
            raise

    def _expect(self, entry: Entry, source: int, path: str) -> os.stat_result:
        found = os.fstat(source)
        if (found.st_size, str(found.st_mtime_ns)) != (entry.size, entry.stamp) or not stat.S_ISREG(found.st_mode):
            now = f"{found.st_size} bytes, {found.st_mtime_ns}" if stat.S_ISREG(found.st_mode) else "no file"
            raise changed(self._tree.root, path, described(entry), now)
        return found

    def _parts(self, entry: Entry, source: int, path: str, found: os.stat_result) -> Iterator[tuple[int, int]]:
        """Return the starts and ends of the parts of a file that aren't holes."""
        if found.st_blocks * _SECTOR < entry.size:
            with reading(self._tree.root, path):
                return iter([*_written_parts(source, entry.size)])
        return iter([(0, entry.size)] if entry.size else [])

    def _copy_part(self, path: str, source: int, file: int, start: int, end: int, checksum: Checksum) -> int:
        """Copy a part of a file to the same place in another.

        :return: its end, or the end of the source if that comes first.
        """
        at = start
        while at < end and self._by_kernel and not checksum.wanted:
            copied = self._copy_range(path, source, file, at, end)
            if copied == 0:
                break  # the source ends here, or is on a file system that can't report it
            at += copied
        while at < end:
            with reading(self._tree.root, path):
                block = os.pread(source, min(end - at, BLOCK), at)
            if not block:
                break
            checksum.add(block)
            write_all(file, block, at)
            at += len(block)
        return at

    def _copy_range(self, path: str, source: int, file: int, at: int, end: int) -> int:
        """Let the kernel copy as much as it does at once; nothing, if it can't copy between these file systems."""
        try:
            return copy_range(source, file, at, end)
        except OSError as error:
            if error.errno in NOT_BY_KERNEL:
                self._by_kernel = False
                return 0
            if is_of_target(error):
                raise
            with reading(self._tree.root, path):
                raise


def copy_range(source: int, file: int, at: int, end: int) -> int:
    """Let the kernel copy the beginning of a range to the same place in another file, and the disk begin to write it.

    :return: the number of bytes.
    """
    copied = os.copy_file_range(source, file, min(end - at, _AT_ONCE), at, at)
    if copied == _AT_ONCE:
        begin_to_write(file, at, copied)
    return copied


def _written_parts(source: int, size: int) -> Iterator[tuple[int, int]]:
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            at = min(size, os.lseek(source, start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            start, at = at, size  # its file system can't report holes
        yield start, at


def _check_length(folder: bytes, path: str) -> None:
    """Make sure that commit steps can name a staged file: they have no open folder.

    :raises OSError: its path is too long for the kernel.
    """
    if len(folder) + 1 + 4 * len(path) < _LONGEST_PATH:
        return  # a character has at most four bytes
    if len(folder) + 1 + len(os.fsencode(path)) >= _LONGEST_PATH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


class DiskDestination:
    """Staged files on a disk. A `Destination`.

    :param files: the files below the target's root.
    :param folder: the folder of the unit's staged files, which is created.
    :param shared: whether those of other units are there, too.
    """

    parallel = 1
    renames = True

    def __init__(
        self, files: LocalFiles, folder: str, kept: KeptAttributes, *, checksums: bool, shared: bool = False
    ) -> None:
        self._files = files
        self._folder = folder
        self._above = os.fsencode(f"{files.root}/{folder}")
        self._kept, self._mode = kept, kept.mode
        self._checksums = checksums
        self._shared = shared
        with writing(files.root, "."):
            files.make_folder(folder)
            self._folders = OpenFolder(f"{files.root}/{folder}", make=True)
            self._sync = FolderSync(self._folders.root)
        self._made: dict[str, EntryKind] = {}
        self._lock = Lock()  # the open folder is one for all threads

    def stage(self, entry: Entry, origin: Origin) -> StagedFile:
        path = contained(entry.path)
        try:
            checksum, made = self._new(entry, origin)
        except BaseException:
            self._remove(path)
            raise
        return StagedFile(joined(self._folder, path), made.st_size, checksum, 0, str(made.st_mtime_ns))

    def take(self, entry: Entry, finished: StagedFile) -> StagedFile | None:
        path = contained(entry.path)
        with writing(self._files.root, path):
            taken = taken_over(self._files, finished, joined(self._folder, path))
        if taken is not None:
            self._made[path] = entry.kind
        return taken

    def _new(self, entry: Entry, origin: Origin) -> tuple[str, os.stat_result]:
        if entry.kind is EntryKind.LINK:
            return "", self._link(entry, origin.link(entry))
        checksum, made = self._copy(entry, origin)
        if entry.known_size not in (None, made.st_size):
            raise changed("the source", entry.path, described(entry), f"given {made.st_size} bytes")
        return checksum, made

    def _remove(self, path: str) -> None:
        """Remove a file that this destination has made, if it has."""
        if self._made.pop(path, None) is not None:
            with suppress(OSError):
                self._files.unlink(joined(self._folder, path))

    def _copy(self, entry: Entry, origin: Origin) -> tuple[str, os.stat_result]:
        with writing(self._files.root, entry.path):
            _check_length(self._above, entry.path)
            with self._lock:
                folder, name = self._folders.of(entry.path)
                file = os.open(name, _NEW, self._mode, dir_fd=folder)
            self._made[entry.path] = entry.kind
            try:
                checksum = Checksum(self._checksums)
                origin.copy_to_disk(entry, file, checksum)
                return checksum.result(), self._kept.give(entry, file)
            finally:
                os.close(file)

    def _link(self, entry: Entry, text: str) -> os.stat_result:
        with writing(self._files.root, entry.path), self._lock:
            _check_length(self._above, entry.path)
            folder, name = self._folders.of(entry.path)
            os.symlink(text, name, dir_fd=folder)
            self._made[entry.path] = entry.kind
            return self._kept.give(entry, name, dir_fd=folder, follow_symlinks=False)

    def finish(self) -> None:
        with writing(self._files.root, "."):
            if self._sync.at_once and len(self._made) > _FEW:
                self._sync.sync()
            else:
                written = (path for path, kind in self._made.items() if kind is EntryKind.FILE)
                sync_files([f"{self._files.root}/{self._folder}/{path}" for path in written])
                for folder in sorted({joined(self._folder, path).rpartition("/")[0] for path in self._made}):
                    self._files.sync_folder(folder)  # and those that it is in

    def abort(self) -> None:
        for path in [*self._made] if self._shared else ():
            self._remove(path)
        with suppress(OSError):
            if not self._shared:
                self._files.remove_tree(self._folder)

    def close(self) -> None:
        self._folders.close()
