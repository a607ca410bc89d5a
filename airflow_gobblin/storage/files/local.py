"""Files on a local or mounted file system.

Publishing is a `link`: unlike a plain rename it never overwrites, and a file keeps its inode, which is part of its identity. A
rename that never overwrites exists on Linux, where the file system supports it; NFS doesn't.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from airflow_gobblin.model.work import Upload
from airflow_gobblin.storage.files.base import (
    OWN_FOLDER,
    Attributes,
    FileIdentity,
    Files,
    Keeps,
    StagedOutput,
    contained,
    each,
)
from airflow_gobblin.storage.files.disk_attributes import (
    all_attributes,
    attributes_of,
    give_attributes,
    held,
    raise_first,
    supported,
    tried,
)
from airflow_gobblin.storage.files.writeback import begin_to_write

if TYPE_CHECKING:
    from airflow_gobblin.storage.stores.base import Store


_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
_NO_SUCH_RENAME = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of a kernel or a file system that has no `RENAME_NOREPLACE`."""
_BEGIN_BYTES = 4 << 20
"""The number of bytes of a staged file that the disk begins to write together."""
BeginToWrite = Callable[[int, int, int], None]
"""A function like `begin_to_write`."""


class LocalFiles:
    """Files on a local file system, or a mounted one that supports hard links (NFS, CephFS …)."""

    def __init__(self, root: str | Path) -> None:
        self._root = str(Path(root).absolute())  # a string, since every call joins paths, and `Path` is slow
        # Folders whose own names, and those above, are known to be on disk, and what each is recognized by: see `_known_by`.
        self._durable: dict[str, tuple[int, int]] = {}
        self._renames_new: bool | None = None
        self._keeps: dict[Keeps, Keeps] = {}

    @property
    def root(self) -> str:
        return self._root

    @property
    def parallel(self) -> int:
        return min(4, os.cpu_count() or 1)  # a link takes microseconds, most of them in the kernel

    copies = None

    @property
    def uploads(self) -> None:
        return None

    @property
    def moves_folders(self) -> bool:
        return True

    @property
    def keeps(self) -> Keeps:
        user, groups = os.geteuid(), (os.getegid(), *os.getgroups())
        acl, extended = supported(self._root)
        expected = Keeps(sets_owners=user == 0, user=user, groups=groups, acl=acl, extended=extended)
        found = self._keeps.get(expected)
        if found is None:
            found = tried(f"{self._root}/{OWN_FOLDER}", expected)
            if found is not expected:
                self._keeps[expected] = found
        return found

    @property
    def settles_after(self) -> timedelta:
        return timedelta()

    def other(self, root: str) -> LocalFiles:
        return LocalFiles(root)

    def records(self, folder: str) -> Store:
        from airflow_gobblin.storage.stores.local import LocalStore

        return LocalStore(self, folder)

    def _at(self, path: str) -> str:
        return f"{self._root}/{contained(path)}" if path != "." else self._root

    def identity(self, path: str) -> FileIdentity | None:
        try:
            found = os.lstat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _identity(found)

    def identities(self, path: str) -> dict[str, FileIdentity]:
        try:
            folder = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = {}
        try:
            for name in os.listdir(folder):
                try:
                    found[name] = _identity(os.stat(name, dir_fd=folder, follow_symlinks=False))
                except FileNotFoundError:
                    continue  # it is gone by now
        finally:
            os.close(folder)
        return found

    def modified(self, path: str) -> datetime | None:
        found = self.identity(path)
        return None if found is None else datetime.fromtimestamp(int(found.stamp) / 1e9, UTC)

    def names(self, paths: Sequence[str]) -> list[int]:
        return [_names(self._at(path)) for path in paths]

    def read(self, path: str) -> bytes:
        with open(self._at(path), "rb", buffering=0) as file:
            return file.readall()

    def read_part(self, path: str, start: int, size: int) -> bytes:
        with open(self._at(path), "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, start)

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
            self._make(os.path.dirname(at))
            return open(at, "xb")

    def stage(self, path: str, target: str) -> StagedOutput:
        return stage_file(self, path, begin_to_write)

    def link(self, source: str, target: str) -> None:
        os.link(self._at(source), self._at(target), follow_symlinks=False)

    def renames_new(self, folder: str) -> bool:
        if self._renames_new is None:
            one, other = (f"{folder}/{uuid.uuid4().hex}" for _ in range(2))
            self.create(one).close()
            try:
                self.rename_new(one, other)
            except OSError as error:
                self.unlink(one)
                if error.errno != errno.ENOTSUP:
                    raise
                self._renames_new = False
            else:
                self.unlink(other)
                self._renames_new = True
        return self._renames_new

    def rename_new(self, source: str, target: str) -> None:
        rename, old, new = _renameat2(), self._at(source), self._at(target)
        if rename is not None and not rename(
            _AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), _RENAME_NOREPLACE
        ):
            return
        number = errno.ENOSYS if rename is None else ctypes.get_errno()
        if number in _NO_SUCH_RENAME:
            number = errno.ENOTSUP
        raise OSError(number, os.strerror(number), old, None, new)

    def replace(self, source: str, target: str) -> None:
        os.rename(self._at(source), self._at(target))

    def unlink(self, path: str) -> None:
        os.unlink(self._at(path))

    def make_folder(self, path: str) -> None:
        self._make(self._at(path))

    def _make(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        if folder == self._root:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._durable.clear()  # folders above it may be new, too
            return
        self._make(os.path.dirname(folder))
        Path(folder).mkdir(exist_ok=True)
        self._durable.pop(folder, None)

    def make_private(self, path: str) -> None:
        at = self._at(path)
        above, name = os.path.split(at)
        while not os.path.isdir(at):
            self._make(above)
            for left in os.listdir(above):
                if left.startswith(f".{name}-"):  # its creator was killed; one still at work creates another
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{above}/{left}")
            made = f"{above}/.{name}-{uuid.uuid4().hex}"
            os.mkdir(made, stat.S_IRWXU)
            self._durable.pop(at, None)
            try:
                self._open_to_writers(made)
                _rename(made, at)
            except FileExistsError:
                os.rmdir(made)
                return
            except FileNotFoundError:  # another process removed it as left over
                continue

    def _open_to_writers(self, folder: str) -> None:
        """Give access to a private folder to everybody with write access to the root."""
        root, made = os.stat(self._root), os.stat(folder)
        mode = made.st_mode & stat.S_ISGID | root.st_mode & stat.S_ISVTX | stat.S_IRWXU
        if root.st_mode & stat.S_IWGRP and root.st_gid == made.st_gid:
            mode |= stat.S_IRWXG
        if root.st_mode & stat.S_IWOTH:
            mode |= stat.S_IRWXO
        with contextlib.suppress(PermissionError):  # some disks have no permissions
            os.chmod(folder, mode)

    def leads_to(self, path: str) -> str | None:
        real, root = os.path.realpath(self._at(path)), os.path.realpath(self._root)
        here = real == (root if path == "." else f"{root.rstrip('/')}/{path}") and _disk(real) == _disk(root)
        return None if here else real

    def move_folder(self, source: str, target: str) -> None:
        _rename(self._at(source), self._at(target))

    def remove_folder(self, path: str) -> None:
        try:
            os.rmdir(self._at(path))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise
        else:
            self._durable.pop(self._at(path), None)

    def folder(self, path: str) -> Attributes | None:
        try:
            found = os.lstat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return attributes_of(found) if stat.S_ISDIR(found.st_mode) else None

    def set_folder(self, path: str, attributes: Attributes) -> None:
        with held(self._at(path), folder=True) as (_, at):
            raise_first(give_attributes(at, attributes))

    def has(self, path: str, attributes: Attributes) -> bool:
        found = self._look(path, attributes)
        return found is not None and not attributes.differing(found[1])

    def lacks(self, path: str, expected: FileIdentity, attributes: Attributes) -> bool:
        found = self._look(path, attributes)
        return found is not None and found[0] == expected and bool(attributes.differing(found[1]))

    def _look(self, path: str, asked: Attributes) -> tuple[FileIdentity, Attributes] | None:
        """Return the identity and the attributes of a file or folder; those that take calls of their own only if asked for."""
        acl, extended, at = asked.acl is not None, asked.extended is not None, self._at(path)
        try:
            if not (acl or extended):
                found = os.lstat(at)
                return _identity(found), attributes_of(found)
            with held(at) as (found, held_at):
                return _identity(found), all_attributes(held_at, found, acl=acl, extended=extended)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def set_file(self, path: str, expected: FileIdentity, attributes: Attributes) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), held(self._at(path)) as (found, at):
            if _identity(found) == expected:
                raise_first(give_attributes(at, attributes))

    def may_change(self, folder: str) -> bool:
        return os.access(self._at(folder), os.W_OK | os.X_OK, effective_ids=True)

    def walk(self, path: str) -> Iterator[str]:
        for folder, folders, names in os.walk(self._at(path), onerror=_raise_unless_gone):
            folders.sort()
            for name in sorted(names):
                yield f"{folder}/{name}"[len(self._root) + 1 :]

    def folders(self, path: str) -> tuple[str, ...]:
        try:
            with os.scandir(self._at(path)) as entries:
                return tuple(sorted(e.name for e in entries if e.is_dir(follow_symlinks=False)))
        except FileNotFoundError:
            return ()

    def filled(self, folders: Sequence[str]) -> list[bool | OSError]:
        return [*each(self, self._is_filled, folders)]

    def _is_filled(self, folder: str) -> bool | OSError:
        try:
            with os.scandir(self._at(folder)) as entries:
                return next(entries, None) is not None
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            return True
        except OSError as error:
            return error

    def remove_tree(self, path: str) -> None:
        at = self._at(path)
        while os.path.lexists(at):  # somebody else may be removing it too
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(at)

    def sync_file(self, path: str) -> None:
        _fsync(self._at(path), os.O_RDONLY)

    def sync_folder(self, path: str) -> None:
        at = self._at(path)
        _fsync(at, os.O_RDONLY | os.O_DIRECTORY)
        self._sync_name(at)

    def _sync_name(self, folder: str) -> None:
        """Sync the name of a folder, and of those above it. It counts as durable once all of them are, and not before: an error
        may come in between, and another thread relies on it at once.
        """
        if os.path.ismount(folder):
            return
        above, known_by = os.path.dirname(folder), self._known_by(folder)
        if self._durable.get(folder) == known_by:
            return
        try:
            _fsync(above, os.O_RDONLY | os.O_DIRECTORY)
        except PermissionError:
            if folder.startswith(f"{self._root}/"):
                raise
            return  # folders above the root that can't be opened were created by others, long ago
        self._sync_name(above)
        self._durable[folder] = known_by

    def _known_by(self, folder: str) -> tuple[int, int]:
        """Return what changes when anybody removes a folder and makes it again: the time of the folder above, its own inode.

        Above the root other programs make folders all the time, and the root is recognized by its mark.
        """
        if not folder.startswith(f"{self._root}/"):
            return (0, 0)
        return os.stat(os.path.dirname(folder)).st_mtime_ns, os.stat(folder).st_ino


def _disk(folder: str) -> int:
    """Return the device that a folder is on, or will be on once it is made."""
    while True:
        try:
            return os.stat(folder).st_dev
        except OSError:
            if folder == "/":
                raise
            folder = os.path.dirname(folder)


def _rename(source: str, target: str) -> None:
    """Rename a folder.

    :raises FileExistsError: something exists at the target.
    """
    # After this check, POSIX's rename can replace only an empty folder created meanwhile. Python has no RENAME_NOREPLACE, and
    # needs none: nobody else creates a folder of that name, and one with contents is never replaced.
    if not os.path.lexists(target):
        try:
            os.rename(source, target)
        except OSError:
            if not os.path.lexists(target):
                raise
        else:
            return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    """Return the C library's `renameat2`, which Python has no function for; `None` if the library has none."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return found


def _names(at: str) -> int:
    try:
        return os.lstat(at).st_nlink
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _identity(found: os.stat_result) -> FileIdentity:
    return FileIdentity(found.st_ino, found.st_size, str(found.st_mtime_ns))


class UnsyncedFiles(LocalFiles):
    """Files that needn't outlive a crash of their machine: nobody waits until they are durable."""

    def sync_file(self, path: str) -> None:
        """Do nothing."""

    def sync_folder(self, path: str) -> None:
        """Do nothing."""


def stage_file(files: Files, path: str, begin: BeginToWrite | None = None) -> StagedOutput:
    """Open a staged file on a file system.

    :param begin: lets the disk begin to write a part of an open file, where there is a disk.
    :raises FileExistsError: it exists.
    """
    return StagedOutput(_FileOutput(files, path, begin))


class _FileOutput:
    """A `RawOutput`. Its folder is synced by the writer, once for all of its files."""

    def __init__(self, files: Files, path: str, begin: BeginToWrite | None) -> None:
        self._files = files
        self._path = path
        self._begin = begin
        self._size = self._begun = 0
        self._out: BinaryIO | None = files.create(path)

    def write(self, data: memoryview) -> object:
        assert self._out is not None, "it is finished"
        self._size += data.nbytes
        written = self._out.write(data)
        if self._begin is not None and self._size - self._begun >= _BEGIN_BYTES:
            self._out.flush()
            self._begin(self._out.fileno(), self._begun, self._size - self._begun)
            self._begun = self._size
        return written

    def finish(self) -> tuple[str, FileIdentity, Upload | None]:
        assert self._out is not None, "it is finished"
        self._out.close()
        self._out = None
        self._files.sync_file(self._path)
        found = self._files.identity(self._path)
        if found is None:
            raise FileNotFoundError(f"staged file {self._path!r} is gone")
        return self._path, found, None

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            if self._out is not None:
                self._out.close()
        self._out = None
        with contextlib.suppress(OSError):  # if it can't be removed it stays, and never counts
            self._files.unlink(self._path)


def _raise_unless_gone(error: OSError) -> None:
    """Raise an error unless the folder is gone: a folder that can't be listed isn't empty."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _fsync(path: str, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
