"""A file system in memory, for tests that need thousands of them: `Files`, without a disk under it."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from airflow_gobblin.files import FileIdentity, Files, StagedOutput, contained
from airflow_gobblin.files.local import stage_file
from airflow_gobblin.stores.base import Store
from airflow_gobblin.stores.local import LocalStore


class MemoryFiles:
    """Names and what they stand for. Made for one thread at a time; every change of a file is at a later time."""

    def __init__(self, root: str = "/memory") -> None:
        self._root = root
        self._files: dict[str, _File] = {}
        self._folders: set[str] = {"."}
        self._clock = 0

    @property
    def root(self) -> str:
        return self._root

    @property
    def parallel(self) -> int:
        return 1

    @property
    def uploads(self) -> None:
        return None

    def other(self, root: str) -> Files:
        return MemoryFiles(root)

    def records(self, folder: str) -> Store:
        return LocalStore(self, folder)

    def stage(self, path: str, target: str) -> StagedOutput:
        return stage_file(self, path)

    def tick(self) -> int:
        self._clock += 1
        return self._clock

    def identity(self, path: str) -> FileIdentity | None:
        file = self._files.get(contained(path))
        if file is not None:
            return FileIdentity(file.inode, len(file.data), str(file.mtime_ns))
        return FileIdentity(0, 0, "") if path in self._folders else None

    def read(self, path: str) -> bytes:
        return bytes(self._at(path).data)

    def checksum(self, path: str) -> str | None:
        return None if path in self._folders else hashlib.sha256(self._at(path).data).hexdigest()

    def create(self, path: str) -> BinaryIO:
        self._expect_free(path)
        self.make_folder(_parent(path))
        self._files[path] = file = _File(self.tick(), self)
        return cast(BinaryIO, _Output(file))

    def link(self, source: str, target: str) -> None:
        file = self._at(source)
        if _parent(target) not in self._folders:
            raise _error(FileNotFoundError, errno.ENOENT, target)
        self._expect_free(target)
        self._files[target] = file

    def unlink(self, path: str) -> None:
        self._at(path)
        del self._files[path]

    def make_folder(self, path: str) -> None:
        contained(path)
        while path not in self._folders:
            if path in self._files:
                raise _error(NotADirectoryError, errno.ENOTDIR, path)
            self._folders.add(path)
            path = _parent(path)

    def walk(self, path: str) -> Iterator[str]:
        inside = "" if path == "." else f"{contained(path)}/"
        return iter(sorted(name for name in self._files if name.startswith(inside)))

    def folders(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(f.rpartition("/")[2] for f in self._folders if f != "." and _parent(f) == contained(path)))

    def remove_tree(self, path: str) -> None:
        inside = f"{contained(path)}/"
        self._folders = {f for f in self._folders if f != path and not f.startswith(inside)}
        self._files = {name: file for name, file in self._files.items() if not name.startswith(inside)}

    def sync_file(self, path: str) -> None:
        self._at(path)

    def sync_folder(self, path: str) -> None:
        if contained(path) not in self._folders:
            raise _error(FileNotFoundError, errno.ENOENT, path)

    def _at(self, path: str) -> _File:
        file = self._files.get(contained(path))
        if file is None:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        return file

    def _expect_free(self, path: str) -> None:
        if contained(path) in self._files or path in self._folders:
            raise _error(FileExistsError, errno.EEXIST, path)


class _File:
    def __init__(self, inode: int, files: MemoryFiles) -> None:
        self.inode = inode
        self.mtime_ns = inode
        self.data = bytearray()
        self._files = files

    def append(self, data: bytes) -> None:
        self.data += data
        self.mtime_ns = self._files.tick()


class _Output:
    """A file open for writing."""

    closed = False

    def __init__(self, file: _File) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        view = bytes(data)
        self._file.append(view)
        return len(view)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)
