"""A store on a local disk, or one that is mounted and knows hard links: a file a record.

A record is written to a temporary file, synced, and linked to its name: `link` fails where the name exists, atomically, and
a reader sees a whole record or none. (fsspec's `pipe_file(mode="create")` was measured to let several writers win.)
Model: litestream's file replica, for the order temporary file, sync, name, sync of the folder.

Temporary files are in a folder of their own, `.tmp`, and whoever writes first after an opening removes those that killed writers
left. It may remove any of them: a writer whose file is gone has no record yet, and writes it again.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import uuid
from collections.abc import Iterator, Mapping, Sequence

from airflow_gobblin.errors import StoreError, UnknownOutcomeError
from airflow_gobblin.files.base import FileIdentity, Files

TEMPORARIES = ".tmp"
_LEFT_AFTER_NS = 3600 * 10**9
"""Temporary files older than this are removed: a guess that saves live writers work, and no more."""
_TRIES = 5
_HINTS = {
    errno.ENOSPC: "The disk is full: make room and clear the task.",
    errno.EDQUOT: "The quota is used up: make room and clear the task.",
    errno.EACCES: "The Airflow worker's user must be able to write there.",
    errno.EPERM: "The Airflow worker's user must be able to write there.",
    errno.EROFS: "The file system is mounted read-only: mount it for writing, or name another folder.",
    errno.ENOTDIR: "A file stands where a folder is needed: move it away, or name another folder.",
}


class LocalStore:
    """Records as files under a root. :param files: the file system under that root."""

    def __init__(self, files: Files, folder: str = "") -> None:
        self._files = files
        self._folder = folder
        self._temporaries = posixpath.join(folder, TEMPORARIES)
        self._looked = False
        self.name = f"file://{posixpath.join(files.root, folder).rstrip('/')}"

    def _path(self, key: str) -> str:
        return posixpath.join(self._folder, key)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        folder = posixpath.dirname(path) or "."
        created = False
        try:
            if self._files.identity(path) is None:
                created = self._put(key, data)
            self._files.sync_folder(folder)  # also where it exists: whoever made it may not have come so far
        except OSError as error:
            raise self._error("write", key, error, UnknownOutcomeError if created else StoreError) from error
        return created

    def _put(self, key: str, data: bytes) -> bool:
        """:return: whether the record was created; `False` for exists."""
        path = self._path(key)
        temporary = self._write(data)
        try:
            for _ in range(_TRIES):
                try:
                    self._files.link(temporary, path)
                    return True
                except FileExistsError:
                    return False
                except FileNotFoundError:
                    # It is the first in its folder, or its temporary file was taken for one that is left.
                    self._files.make_folder(posixpath.dirname(path) or ".")
                    if self._files.identity(temporary) is None:
                        temporary = self._write(data)
                except OSError as error:
                    raise self._error("write", key, error, UnknownOutcomeError) from error
        finally:
            self._discard(temporary)
        raise OSError(errno.EAGAIN, "its temporary file was removed again and again", temporary)

    def _write(self, data: bytes) -> str:
        """Write a temporary file, and wait until its content is durable. :return: its path."""
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
        """Remove the temporary files of killed writers, once: those that are much older than one just made, by one clock."""
        if self._looked:
            return
        self._looked = True
        found: Mapping[str, FileIdentity] = {}
        with contextlib.suppress(OSError):  # they do no harm
            found = self._files.identities(self._temporaries)
        made = found.get(posixpath.basename(mine))
        for name, left in found.items():
            if made is not None and int(made.stamp) - int(left.stamp) > _LEFT_AFTER_NS:
                self._discard(posixpath.join(self._temporaries, name))

    def _discard(self, temporary: str) -> None:
        with contextlib.suppress(OSError):  # a left-over temporary file is never listed and never read
            self._files.unlink(temporary)

    def get(self, key: str) -> bytes | None:
        try:
            return self._files.read(self._path(key))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise self._error("read", key, error) from error

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((key, self.get(key)) for key in keys)

    def list(self, prefix: str) -> Iterator[str]:
        folder = self._path(prefix) if prefix.endswith("/") or not prefix else posixpath.dirname(self._path(prefix))
        skip = len(self._folder) + 1 if self._folder else 0
        try:
            found = [path[skip:] for path in self._files.walk(folder.rstrip("/") or ".")]
        except OSError as error:
            raise self._error("list", prefix, error) from error
        # A name with a dot before it is no record's: a temporary file's, or one that the file system itself makes (NFS).
        return iter(sorted(k for k in found if k.startswith(prefix) and "/." not in f"/{k}"))

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
            # One named by a number was for these records alone. To others more is written, and their names are taken for durable.
            if posixpath.basename(folder).isdecimal():
                with contextlib.suppress(OSError):  # an empty folder is no record
                    self._files.remove_folder(folder)

    def close(self) -> None:
        """Nothing to let go of."""

    def _error(self, operation: str, key: str, error: OSError, kind: type[StoreError] = StoreError) -> StoreError:
        hint = _HINTS.get(error.errno or 0, "Check the disk: it must be mounted, healthy and writable for this user.")
        return kind(operation=operation, subject=f"record {key!r} in {self.name}", cause=error, hint=hint)
