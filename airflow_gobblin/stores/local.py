"""A store on a local disk, or one that is mounted and knows hard links: a file a record.

A record is written to a temporary file, synced, and linked to its name: `link` fails where the name exists, atomically, and
a reader sees a whole record or none. (fsspec's `pipe_file(mode="create")` was measured to let several writers win.)
Model: litestream's file replica, for the order temporary file, sync, name, sync of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import uuid
from collections.abc import Iterator, Sequence

from airflow_gobblin.errors import StoreError, UnknownOutcomeError
from airflow_gobblin.files.base import Files

TEMPORARY = ".tmp-"
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
        self.name = f"file://{posixpath.join(files.root, folder).rstrip('/')}"

    def _path(self, key: str) -> str:
        return posixpath.join(self._folder, key)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        folder = posixpath.dirname(path) or "."
        temporary = posixpath.normpath(posixpath.join(folder, TEMPORARY + uuid.uuid4().hex))
        try:
            if self._files.identity(path) is not None:
                self._files.sync_folder(folder)  # whoever made it may not have come so far
                return False
            with self._files.create(temporary) as file:
                file.write(data)
            self._files.sync_file(temporary)
        except OSError as error:
            self._discard(temporary)
            raise self._error("write", key, error) from error
        try:
            self._files.link(temporary, path)
            created = True
        except FileExistsError:
            created = False
        except OSError as error:
            self._discard(temporary)
            raise UnknownOutcomeError(
                operation="write", subject=f"record {key!r} in {self.name}", cause=error
            ) from error
        self._discard(temporary)
        try:
            self._files.sync_folder(folder)
        except OSError as error:
            raise UnknownOutcomeError(
                operation="write", subject=f"record {key!r} in {self.name}", cause=error
            ) from error
        return created

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
        return iter(
            sorted(k for k in found if k.startswith(prefix) and not posixpath.basename(k).startswith(TEMPORARY))
        )

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
        for key in keys:
            try:
                self._files.unlink(self._path(key))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._error("delete", key, error) from error

    def close(self) -> None:
        """Nothing to let go of."""

    def _error(self, operation: str, key: str, error: OSError) -> StoreError:
        hint = _HINTS.get(error.errno or 0, "Check the disk: it must be mounted, healthy and writable for this user.")
        return StoreError(operation=operation, subject=f"record {key!r} in {self.name}", cause=error, hint=hint)
