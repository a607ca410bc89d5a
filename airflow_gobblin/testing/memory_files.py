"""A file system and an object store in memory, for tests that need thousands of them. Both pass the suites of `Files`."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from dataclasses import replace as with_changes
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Any, BinaryIO, Self, cast

from airflow_gobblin.model.work import Upload
from airflow_gobblin.storage.files import Attributes, FileIdentity, Files, Keeps, StagedOutput, Uploads, contained
from airflow_gobblin.storage.files.local import stage_file
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.local import LocalStore


class MemoryFiles:
    """A file system: names and folders. Its clock counts changes.

    :param root: its URL.
    """

    def __init__(self, root: str = "memory://target") -> None:
        self._root = root
        self.synced: Callable[[str], None] = lambda path: None
        """The function to call with the absolute path of each file and each folder that is synced."""
        self._files: dict[str, _File] = {}
        self._folders: set[str] = {"."}
        self._attributes: dict[str, Attributes] = {}
        self._clock = 0
        self._lock = RLock()

    def copy(self) -> Self:
        """Return another one with the same contents."""
        other = type(self)(self._root)
        copies = {id(file): file.copy(other) for file in self._files.values()}  # a file may have two names
        other._files = {name: copies[id(file)] for name, file in self._files.items()}
        other._folders = {*self._folders}
        other._attributes = {**self._attributes}
        other._clock = self._clock
        return other

    @property
    def root(self) -> str:
        return self._root

    @property
    def parallel(self) -> int:
        return 1

    copies = None

    @property
    def uploads(self) -> Uploads | None:
        return None

    @property
    def moves_folders(self) -> bool:
        return True

    @property
    def keeps(self) -> Keeps:
        user, groups = os.geteuid(), (os.getegid(), *os.getgroups())
        return Keeps(sets_owners=user == 0, user=user, groups=groups)

    @property
    def settles_after(self) -> timedelta:
        return timedelta()

    def modified(self, path: str) -> datetime | None:
        file = self._files.get(contained(path))
        return None if file is None else datetime.fromtimestamp(file.mtime_ns / 1e9, UTC)

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

    def identities(self, path: str) -> dict[str, FileIdentity]:
        before = _inside(path)
        inside = sorted({*_within(before, self._files), *_within(before, self._folders)})
        found = ((name, self.identity(f"{before}{name}")) for name in inside)
        return {name: identity for name, identity in found if identity is not None}

    def names(self, paths: Sequence[str]) -> list[int]:
        found = (self._files.get(contained(path)) for path in paths)
        return [
            int(path in self._folders) if file is None else file.names for path, file in zip(paths, found, strict=True)
        ]

    def read(self, path: str) -> bytes:
        return bytes(self._at(path).data)

    def read_part(self, path: str, start: int, size: int) -> bytes:
        return self.read(path)[start : start + size]

    def checksum(self, path: str) -> str | None:
        return None if path in self._folders else hashlib.sha256(self._at(path).data).hexdigest()

    def create(self, path: str) -> BinaryIO:
        with self._lock:
            self._expect_free(path)
            self.make_folder(_parent(path))
            self._files[path] = file = _File(self.tick(), self)
        return cast(BinaryIO, _Output(file))

    def link(self, source: str, target: str) -> None:
        with self._lock:
            file = self._at(source)
            if _parent(target) not in self._folders:
                raise _error(FileNotFoundError, errno.ENOENT, target)
            self._expect_free(target)
            self._files[target] = file
            file.names += 1

    def renames_new(self, folder: str) -> bool:
        contained(folder)
        return True

    def rename_new(self, source: str, target: str) -> None:
        with self._lock:
            self._rename(source, target)

    def replace(self, source: str, target: str) -> None:
        with self._lock:
            file, replaced = self._files.get(contained(source)), self._files.get(contained(target))
            if file is not None and file is replaced:
                return  # two names of one file stay
            if file is not None and replaced is not None:
                self.remove(target)
            self._rename(source, target)

    def _rename(self, source: str, target: str) -> None:
        if contained(source) in self._folders:
            self.move_folder(source, target)
            return
        file = self._at(source)
        if _parent(target) not in self._folders:
            raise _error(FileNotFoundError, errno.ENOENT, target)
        self._expect_free(target)
        self._files[target] = file
        del self._files[source]

    def unlink(self, path: str) -> None:
        self._at(path)
        self.remove(path)

    def make_folder(self, path: str) -> None:
        contained(path)
        while path not in self._folders:
            if path in self._files:
                raise _error(NotADirectoryError, errno.ENOTDIR, path)
            self._folders.add(path)
            path = _parent(path)

    def make_private(self, path: str) -> None:
        self.make_folder(path)

    def leads_to(self, path: str) -> None:
        contained(path)

    def move_folder(self, source: str, target: str) -> None:
        inside = _inside(source)
        with self._lock:
            if source not in self._folders or _parent(target) not in self._folders:
                raise _error(FileNotFoundError, errno.ENOENT, source)
            self._expect_free(target)
            moved = {n: f"{target}{n[len(source) :]}" for n in (*self._files, *self._folders) if n.startswith(inside)}
            moved[source] = target
            self._folders = {moved.get(name, name) for name in self._folders}
            self._attributes = {moved.get(name, name): of for name, of in self._attributes.items()}
            self._files = {moved.get(name, name): file for name, file in self._files.items()}

    def remove_folder(self, path: str) -> None:
        if not self.identities(path):
            self._folders.discard(path)
            self._attributes.pop(path, None)

    def folder(self, path: str) -> Attributes | None:
        return self._attributes.get(path, Attributes(0o755, 0, 0, 0)) if contained(path) in self._folders else None

    def set_folder(self, path: str, attributes: Attributes) -> None:
        found = self.folder(path)
        if found is None:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        self._attributes[path] = _changed(found, attributes)

    def may_change(self, folder: str) -> bool:
        contained(folder)
        return True

    def has(self, path: str, attributes: Attributes) -> bool:
        file = self._files.get(path)
        found = self.folder(path) if file is None else file.attributes
        return found is not None and not attributes.differing(found)

    def lacks(self, path: str, expected: FileIdentity, attributes: Attributes) -> bool:
        with self._lock:
            return self.identity(path) == expected and not self.has(path, attributes)

    def set_file(self, path: str, expected: FileIdentity, attributes: Attributes) -> None:
        with self._lock:
            if self.identity(path) == expected:
                self._files[path].attributes = _changed(self._files[path].attributes, attributes)

    def content(self) -> tuple[tuple[str, bytes], ...]:
        """Return all files with their contents."""
        return tuple((name, bytes(self._files[name].data)) for name in sorted(self._files))

    def all_names(self) -> Iterator[str]:
        """Return the names of all files."""
        return iter([*self._files])

    def remove(self, path: str) -> None:
        """Remove a file; harmless if there is none."""
        file = self._files.pop(contained(path), None)
        if file is not None:
            file.names -= 1

    def walk(self, path: str) -> Iterator[str]:
        inside = _inside(path)
        if path in self._files:
            raise _error(NotADirectoryError, errno.ENOTDIR, path)
        return iter(sorted(name for name in [*self._files] if name.startswith(inside)))

    def folders(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(_within(_inside(path), self._folders)))

    def filled(self, folders: Sequence[str]) -> list[bool | OSError]:
        names = [*self._files, *self._folders]
        return [any(name.startswith(inside) for name in names) for inside in map(_inside, folders)]

    def remove_tree(self, path: str) -> None:
        inside = _inside(path)
        with self._lock:
            self._folders = {f for f in self._folders if f != path and not f.startswith(inside)}
            self._attributes = {f: of for f, of in self._attributes.items() if f in self._folders}
            for name in [name for name in self._files if name.startswith(inside)]:
                self.remove(name)

    def sync_file(self, path: str) -> None:
        self._at(path)
        self.synced(f"{self._root}/{path}")

    def sync_folder(self, path: str) -> None:
        if contained(path) not in self._folders:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        while path != ".":
            self.synced(f"{self._root}/{path}")
            path = _parent(path)
        self.synced(self._root)

    def _at(self, path: str) -> _File:
        file = self._files.get(contained(path))
        if file is None:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        return file

    def _expect_free(self, path: str) -> None:
        if contained(path) in self._files or path in self._folders:
            raise _error(FileExistsError, errno.EEXIST, path)


class MemoryObjects(MemoryFiles):
    """An object store in memory: records are objects, and staged files are uploads, as in S3."""

    def __init__(self, root: str = "s3://bucket/memory") -> None:
        super().__init__(root)
        self._uploads = MemoryUploads(self)

    def copy(self) -> Self:
        other = super().copy()
        other._uploads._open = {upload: (target, [*parts]) for upload, (target, parts) in self._uploads._open.items()}
        return other

    @property
    def uploads(self) -> MemoryUploads:
        return self._uploads

    @property
    def moves_folders(self) -> bool:
        return False

    def other(self, root: str) -> Files:
        return MemoryObjects(root)

    def records(self, folder: str) -> Store:
        return _ObjectRecords(self, folder)

    def create(self, path: str) -> BinaryIO:
        return _NewObject(self, path)

    def stage(self, path: str, target: str) -> StagedOutput:
        return StagedOutput(_UploadOutput(self._uploads, target))

    def identity(self, path: str) -> FileIdentity | None:
        file = self._files.get(contained(path))
        return None if file is None else FileIdentity(0, len(file.data), file.etag)

    def content(self) -> tuple[tuple[str, bytes], ...]:
        return (*super().content(), *((upload, target.encode()) for upload, target in self._uploads.open_below(".")))

    def put(self, path: str, data: bytes, etag: str = "") -> bool:
        """Create an object unless one exists.

        :param etag: its ETag; by default that of its content.
        :return: whether it was created.
        """
        with self._lock:
            if contained(path) in self._files:
                return False
            self._files[path] = file = _File(self.tick(), self)
            file.data += data
            file.etag = etag or _etag(data)
            return True

    def link(self, source: str, target: str) -> None:
        raise _error(OSError, errno.ENOTSUP, target)

    def renames_new(self, folder: str) -> bool:
        contained(folder)
        return False

    def rename_new(self, source: str, target: str) -> None:
        raise _error(OSError, errno.ENOTSUP, target)

    def replace(self, source: str, target: str) -> None:
        raise _error(OSError, errno.ENOTSUP, target)

    def folder(self, path: str) -> Attributes | None:
        contained(path)
        return None

    def set_folder(self, path: str, attributes: Attributes) -> None:
        raise _error(OSError, errno.ENOTSUP, path)

    def has(self, path: str, attributes: Attributes) -> bool:
        return attributes == Attributes()

    def lacks(self, path: str, expected: FileIdentity, attributes: Attributes) -> bool:
        return attributes != Attributes() and self.identity(path) == expected

    def set_file(self, path: str, expected: FileIdentity, attributes: Attributes) -> None:
        raise _error(OSError, errno.ENOTSUP, path)

    def make_folder(self, path: str) -> None:
        contained(path)

    def move_folder(self, source: str, target: str) -> None:
        raise _error(OSError, errno.ENOTSUP, target)

    def remove_folder(self, path: str) -> None:
        contained(path)

    def folders(self, path: str) -> tuple[str, ...]:
        inside = _inside(path)
        below = (name.removeprefix(inside) for name in self._files if name.startswith(inside))
        return tuple(sorted({name.partition("/")[0] for name in below if "/" in name}))

    def walk(self, path: str) -> Iterator[str]:
        inside = _inside(path)
        return iter(sorted(name for name in [*self._files] if name.startswith(inside)))

    def sync_folder(self, path: str) -> None:
        contained(path)


class _NewObject(io.BytesIO):
    """An object being written; it exists once it is closed."""

    def __init__(self, objects: MemoryObjects, path: str) -> None:
        super().__init__()
        self._objects = objects
        self._path = path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            if not self._objects.put(self._path, data):
                raise _error(FileExistsError, errno.EEXIST, self._path)


class MemoryUploads:
    """The uploads of a `MemoryObjects`, each of one part."""

    def __init__(self, objects: MemoryObjects) -> None:
        self._objects = objects
        self._open: dict[str, tuple[str, list[bytes]]] = {}

    def put(self, target: str, data: bytes, modified: int | None = None) -> None:
        if not self._objects.put(contained(target), data):
            raise _error(FileExistsError, errno.EEXIST, target)

    def begin(self, target: str) -> str:
        upload = f"upload-{self._objects.tick()}"
        self._open[upload] = (contained(target), [])
        return upload

    def send(self, upload: str, data: bytes) -> str:
        """Send a part and return its ETag."""
        if upload not in self._open:
            raise _error(FileNotFoundError, errno.ENOENT, upload)
        self._open[upload][1].append(data)
        return _etag(data)

    def can_complete(self, target: str, upload: Upload) -> bool:
        found = self._open.get(upload.id)
        return found is not None and tuple(_etag(part) for part in found[1]) == upload.etags

    def complete(self, target: str, upload: Upload) -> None:
        if not self.can_complete(target, upload):
            raise _error(FileNotFoundError, errno.ENOENT, target)
        if not self._objects.put(target, b"".join(self._open[upload.id][1]), object_etag(upload.etags)):
            raise _error(FileExistsError, errno.EEXIST, target)
        del self._open[upload.id]

    def replace(self, target: str, upload: Upload, expected: str) -> None:
        if not self.can_complete(target, upload):
            raise _error(FileNotFoundError, errno.ENOENT, target)
        with self._objects._lock:
            self._expect(target, expected)
            self._objects.remove(target)
            self.complete(target, upload)

    def remove(self, target: str, expected: str) -> None:
        with suppress(FileNotFoundError), self._objects._lock:
            self._expect(target, expected)
            self._objects.remove(target)

    def _expect(self, target: str, etag: str) -> None:
        found = self._objects.identity(target)
        if found is None:
            raise _error(FileNotFoundError, errno.ENOENT, target)
        if found.stamp != etag:
            raise _error(FileExistsError, errno.EEXIST, target)

    def abort(self, target: str, upload: str) -> None:
        self._open.pop(upload, None)

    def open_below(self, folder: str) -> Iterator[tuple[str, str]]:
        inside = _inside(folder)
        return iter(sorted((target, upload) for upload, (target, _) in self._open.items() if target.startswith(inside)))


def object_etag(etags: tuple[str, ...]) -> str:
    """Return the ETag of the object that an upload of these parts becomes."""
    return f"{_etag(''.join(etags).encode())}-{len(etags)}"


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class _UploadOutput:
    """A staged file that is an upload."""

    def __init__(self, uploads: MemoryUploads, target: str) -> None:
        self._uploads = uploads
        self._target = target
        self._id = uploads.begin(target)
        self._data = bytearray()

    def write(self, data: memoryview) -> object:
        self._data += data
        return data.nbytes

    def finish(self) -> tuple[str, FileIdentity, Upload | None]:
        etags = (self._uploads.send(self._id, bytes(self._data)),)
        return self._target, FileIdentity(0, len(self._data), object_etag(etags)), Upload(self._id, etags)

    def abort(self) -> None:
        self._uploads.abort(self._target, self._id)


class _ObjectRecords:
    """Records that are objects of a folder."""

    def __init__(self, objects: MemoryObjects, folder: str) -> None:
        self._objects = objects
        self._inside = f"{folder}/" if folder else ""
        self.name = f"{objects.root}/{folder}"

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._objects.put(self._inside + key, data)

    def get(self, key: str) -> bytes | None:
        try:
            return self._objects.read(self._inside + key)
        except FileNotFoundError:
            return None

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((key, self.get(key)) for key in keys)

    def list(self, prefix: str) -> Iterator[str]:
        inside = self._inside + prefix
        found = (name[len(self._inside) :] for name in self._objects.all_names() if name.startswith(inside))
        return iter(sorted(found))

    def delete(self, key: str) -> None:
        self._objects.remove(self._inside + key)

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def close(self) -> None:
        """Do nothing: there are no connections."""


def _changed(found: Attributes, attributes: Attributes) -> Attributes:
    changes = {of.name: getattr(attributes, of.name) for of in fields(attributes)}
    return with_changes(found, **{name: value for name, value in changes.items() if value is not None})


class _File:
    etag = ""
    names = 1
    attributes = Attributes()

    def __init__(self, inode: int, files: MemoryFiles) -> None:
        self.inode = inode
        self.mtime_ns = inode
        self.data = bytearray()
        self._files = files

    def copy(self, files: MemoryFiles) -> _File:
        other = _File(self.inode, files)
        other.mtime_ns, other.data, other.etag = self.mtime_ns, bytearray(self.data), self.etag
        other.names, other.attributes = self.names, self.attributes
        return other

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


def _within(before: str, names: Iterable[str]) -> list[str]:
    """Return the last parts of the names in a folder.

    :param before: the folder with its slash; empty for the root.
    """
    start = len(before)
    below = [name for name in names if name.startswith(before)]
    return [name[start:] for name in below if "/" not in name[start:] and name != "."]


def _inside(path: str) -> str:
    """Return the prefix of the names of everything in a folder."""
    return "" if contained(path) == "." else f"{path}/"


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)
