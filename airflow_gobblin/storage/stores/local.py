"""A store on a local disk, or a mounted one that supports hard links: one file per record.

A record is written to a temporary file, synced, and linked to its name: `link` fails atomically if the name exists, and a reader
sees a whole record or none. (Measurements showed that fsspec's `pipe_file(mode="create")` lets several writers win.)
Model: litestream's file replica, for the order temporary file, sync, name, sync of the folder.

Others can see a name before it is durable, and its writer may die in between. If they acted on it, a power failure could remove
the record but not its consequences. So a record is returned, listed or reported as existing only when its name is durable, which
the file itself shows: the temporary name is removed last, after the folder and those above it are synced. A record with one name
is durable; if it has more, its folder is synced first. Reading costs a look at a file's attributes, and no sync unless a writer
is at work there, or died there. A file system that doesn't count the names of a file is rejected. (A copy of a journal by hard
links is safe, but slower to read.)

A durable record shows nothing about the folders above the root as the reader names them: the journal or target may have been
copied or moved here since, or its writer saw it through another mount or link. So each process that writes syncs these once.

Temporary files are in a separate folder, `.tmp`, and the first writer after opening removes those left by killed writers. It may
remove any of them: a writer whose file is gone has no record yet, and writes it again. But one that is a record's second name is
removed only after that record is durable. So that none becomes one meanwhile, the folder is moved away first, and removed by a
process that opens the store an hour later: the kernel may still be linking a file that was found before the move.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import re
import uuid
from collections.abc import Iterator, Sequence

from airflow_gobblin.errors import Remedy, StoreError, UnknownOutcomeError, UnreliableStoreError
from airflow_gobblin.storage.files.base import Files

TEMPORARIES = ".tmp"
_LEFT_AFTER_NS = 3600 * 10**9
"""The age after which temporary files are removed: an estimate that only spares live writers extra work."""
_MOVED = re.compile(rf"{re.escape(TEMPORARIES)}-([0-9]+)-[0-9a-f]+")
"""The name of a folder of temporary files that was moved away, with the time."""
_TRIES = 5
_HINTS = {
    errno.ENOSPC: "The disk is full: make room.",
    errno.EDQUOT: "The quota is used up: make room.",
    errno.EACCES: "The Airflow worker's user must be able to write there.",
    errno.EPERM: "The Airflow worker's user must be able to write there.",
    errno.EROFS: "The file system is mounted read-only: mount it for writing, or name another folder.",
    errno.ENOTDIR: "A file is in the place of a folder: move it away, or name another folder.",
}


class LocalStore:
    """Records as files under a root.

    :param files: the file system under that root.
    :param removes_left: whether its first write removes what killed writers left: not unless `files` sync their records first.
    """

    def __init__(self, files: Files, folder: str = "", *, removes_left: bool = True) -> None:
        self._files = files
        self._folder = folder
        self._temporaries = posixpath.join(folder, TEMPORARIES)
        self._removes_left = removes_left
        self._names_are_counted = False
        self.name = f"file://{posixpath.join(files.root, folder).rstrip('/')}"

    def _path(self, key: str) -> str:
        return posixpath.join(self._folder, key)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        try:
            if self._make_durable([self._path(key)]):
                return False
            return self._put(key, data)
        except OSError as error:
            raise self._error("write", key, error) from error

    def _put(self, key: str, data: bytes) -> bool:
        """Write a record.

        :return: whether it was created; `False` if it exists.
        """
        path = self._path(key)
        temporary = self._write(data)
        try:
            for _ in range(_TRIES):
                try:
                    return self._name(temporary, path, key)
                except FileNotFoundError:
                    # It is the first in its folder, or its temporary file was removed as left over.
                    self._files.make_folder(posixpath.dirname(path) or ".")
                    if self._files.identity(temporary) is None:
                        temporary = self._write(data)
        except OSError:
            self._discard(temporary)
            raise
        self._discard(temporary)
        raise OSError(errno.EAGAIN, "its temporary file was removed again and again", temporary)

    def _name(self, temporary: str, path: str, key: str) -> bool:
        """Give a record its name, durably; only then is the temporary name removed, even after an error.

        :return: whether the name was free.
        :raises FileNotFoundError: the temporary file, or the folder, doesn't exist.
        """
        try:
            self._files.link(temporary, path)
            created = True
        except FileExistsError:
            created = False
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._error("write", key, error, UnknownOutcomeError) from error
        try:
            if created and not self._names_are_counted:
                self._check_names_are_counted(temporary)
            self._files.sync_folder(posixpath.dirname(path) or ".")
        except OSError as error:
            raise self._error("write", key, error, UnknownOutcomeError) from error
        self._discard(temporary)
        return created

    def _check_names_are_counted(self, temporary: str) -> None:
        if self._files.names([temporary]) == [1]:
            raise UnreliableStoreError(
                operation="rely on",
                subject=self.name,
                cause="its file system doesn't count the names of a file, by which durable records are known",
                hint="Keep the journal in a SQL database instead: 'postgresql://…', or 'sqlite:////…' for one host.",
            )
        self._names_are_counted = True

    def _make_durable(self, paths: Sequence[str]) -> int:
        """Wait until the names of those records that exist are durable.

        :return: the number of existing records.
        """
        names = self._files.names(paths) if paths else []
        for folder in sorted({posixpath.dirname(path) or "." for path, n in zip(paths, names, strict=True) if n > 1}):
            with contextlib.suppress(FileNotFoundError):  # it was removed with its contents
                self._files.sync_folder(folder)
        return sum(1 for n in names if n)

    def _write(self, data: bytes) -> str:
        """Write a temporary file, and wait until its content is durable.

        :return: its path.
        """
        temporary = posixpath.join(self._temporaries, uuid.uuid4().hex)
        try:
            with self._files.create(temporary) as file:
                file.write(data)
            self._files.sync_file(temporary)
            self._remove_left(temporary)
        except OSError:
            self._discard(temporary)
            raise
        return temporary

    def _remove_left(self, mine: str) -> None:
        """Remove, once, the temporary files of killed writers: those much older than a new one, by the same clock."""
        if not self._removes_left:
            return
        self._removes_left = False
        with contextlib.suppress(OSError, StoreError):  # they are harmless
            found = self._files.identities(self._temporaries)
            made = found.get(posixpath.basename(mine))
            if made is None:
                return
            if any(int(made.stamp) - int(left.stamp) > _LEFT_AFTER_NS for left in found.values()):
                self._files.move_folder(self._temporaries, f"{self._temporaries}-{made.stamp}-{uuid.uuid4().hex}")
            for name in self._files.folders(self._folder or "."):
                moved = _MOVED.fullmatch(name)
                if moved and int(made.stamp) - int(moved[1]) > _LEFT_AFTER_NS:
                    self._remove_moved(posixpath.join(self._folder, name))

    def _remove_moved(self, moved: str) -> None:
        if any(n > 1 for n in self._files.names([*self._files.walk(moved)])):
            self.list("")  # makes all records durable
        self._files.remove_tree(moved)

    def _discard(self, temporary: str) -> None:
        with contextlib.suppress(OSError):  # a left-over temporary file is never listed or read
            self._files.unlink(temporary)

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            data = self._files.read(path)
            self._make_durable([path])
            return data
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise self._error("read", key, error) from error

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((key, self.get(key)) for key in keys)

    def list(self, prefix: str) -> Iterator[str]:
        folder = self._path(prefix) if prefix.endswith("/") or not prefix else posixpath.dirname(self._path(prefix))
        begin, skip = self._path(prefix), len(self._folder) + 1 if self._folder else 0
        try:
            walked = (path for path in self._files.walk(folder.rstrip("/") or ".") if path.startswith(begin))
            # A name that begins with a dot isn't a record: it is a temporary file, or created by the file system itself (NFS).
            found = [path for path in walked if "/." not in f"/{path[skip:]}"]
            self._make_durable(found)
        except OSError as error:
            raise self._error("list", prefix, error) from error
        return iter(sorted(path[skip:] for path in found))

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            self._files.unlink(path)
            self._files.sync_folder(posixpath.dirname(path) or ".")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error("delete", key, error) from error

    def delete_many(self, keys: Sequence[str]) -> None:
        folders: set[str] = set()
        for key in keys:
            path = self._path(key)
            folders.add(posixpath.dirname(path))
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._error("delete", key, error) from error
        for folder in folders:
            # A folder named by a number contains only these records. Others get more records, and their names are assumed to be
            # durable.
            if posixpath.basename(folder).isdecimal():
                with contextlib.suppress(OSError):  # an empty folder isn't a record
                    self._files.remove_folder(folder)

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _error(self, operation: str, key: str, error: OSError, kind: type[StoreError] = StoreError) -> StoreError:
        hint = _HINTS.get(error.errno or 0, "Check the disk: it must be mounted, healthy and writable for this user.")
        subject = f"record {key!r} in {self.name}"
        return kind(operation=operation, subject=subject, cause=error, hint=hint, remedy=Remedy.REPEAT)
