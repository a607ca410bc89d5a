"""The file system under a root: the few calls that publishing rests on, and their order of durability.

Paths are relative to the root, with `/`; none leaves it. `LocalFiles` is the real one; the tests wrap it to crash at every call.
Publishing is a `link`: unlike a rename it never overwrites, and a file keeps its inode, by which it is known again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from airflow_gobblin.errors import ConfigurationError


@dataclass(frozen=True)
class FileIdentity:
    """What a file is known by: after a move within a file system all three stay."""

    inode: int
    size: int
    mtime_ns: int


class Files(Protocol):
    """A file system under a root. Errors are `OSError`, with its errno."""

    @property
    def root(self) -> str:
        """The absolute path of the root."""

    def identity(self, path: str) -> FileIdentity | None:
        """The identity of a file, or of whatever else stands at its path; `None` if nothing does. Links aren't followed."""

    def read(self, path: str) -> bytes:
        """A whole file, into memory: a record."""

    def checksum(self, path: str) -> str | None:
        """The SHA-256 of a file in hex, read piece by piece; `None` if what stands there is no plain file."""

    def create(self, path: str) -> BinaryIO:
        """A new file, open for writing; its folders are made. :raises FileExistsError: it exists."""

    def link(self, source: str, target: str) -> None:
        """A second name for a file. :raises FileExistsError: the target exists."""

    def unlink(self, path: str) -> None:
        """Remove a name. :raises FileNotFoundError: there is none."""

    def make_folder(self, path: str) -> None:
        """A folder, with those above it; harmless if it exists."""

    def walk(self, path: str) -> Iterator[str]:
        """All files below a folder, none if it doesn't exist."""

    def folders(self, path: str) -> tuple[str, ...]:
        """The names of the folders in a folder, sorted; none if it doesn't exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all below it; harmless if it doesn't exist."""

    def sync_file(self, path: str) -> None:
        """Wait until a file's content is durable."""

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are durable, and the folder's own name in the one above, up to the root."""


def contained(path: str) -> str:
    """A relative path, if it stays below its root. :raises ConfigurationError: absolute, empty, or with `..`."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\0" in path or str(pure) != path:
        raise ConfigurationError(
            operation="use",
            subject=f"path {path!r}",
            cause="it must be a plain relative path below the target root",
            hint="Give it as 'folder/file': no '/' at its start, no '..', '.' or empty part.",
        )
    return path


class LocalFiles:
    """The local file system, or one that is mounted and knows hard links (NFS, CephFS …)."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()
        self._durable: set[Path] = set()  # folders whose own name is known to be on disk

    @property
    def root(self) -> str:
        return str(self._root)

    def _at(self, path: str) -> Path:
        return self._root / contained(path)

    def identity(self, path: str) -> FileIdentity | None:
        try:
            found = os.stat(self._at(path), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileIdentity(found.st_ino, found.st_size, found.st_mtime_ns)

    def read(self, path: str) -> bytes:
        return self._at(path).read_bytes()

    def checksum(self, path: str) -> str | None:
        at = self._at(path)
        if not stat.S_ISREG(os.lstat(at).st_mode):
            return None
        with open(at, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def create(self, path: str) -> BinaryIO:
        at = self._at(path)
        try:
            return open(at, "xb")
        except FileNotFoundError:
            self._make(at.parent)
            return open(at, "xb")

    def link(self, source: str, target: str) -> None:
        os.link(self._at(source), self._at(target), follow_symlinks=False)

    def unlink(self, path: str) -> None:
        os.unlink(self._at(path))

    def make_folder(self, path: str) -> None:
        self._make(self._at(path))

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder != self._root:
            self._make(folder.parent)
        folder.mkdir(parents=folder == self._root, exist_ok=True)
        self._durable.discard(folder)

    def walk(self, path: str) -> Iterator[str]:
        for folder, folders, names in os.walk(self._at(path), onerror=_raise_unless_gone):
            folders.sort()
            for name in sorted(names):
                yield (Path(folder) / name).relative_to(self._root).as_posix()

    def folders(self, path: str) -> tuple[str, ...]:
        try:
            with os.scandir(self._at(path)) as entries:
                return tuple(sorted(e.name for e in entries if e.is_dir(follow_symlinks=False)))
        except FileNotFoundError:
            return ()

    def remove_tree(self, path: str) -> None:
        at = self._at(path)
        while os.path.lexists(at):  # somebody else may be removing it too
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(at)

    def sync_file(self, path: str) -> None:
        _fsync(self._at(path), os.O_RDONLY)

    def sync_folder(self, path: str) -> None:
        at, above = self._at(path), set[Path]()
        while True:
            _fsync(at, os.O_RDONLY | os.O_DIRECTORY)
            self._durable |= above
            if at == self._root or at in self._durable:
                return
            above, at = {at}, at.parent


def _raise_unless_gone(error: OSError) -> None:
    """What can't be listed is not the same as empty."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _fsync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
