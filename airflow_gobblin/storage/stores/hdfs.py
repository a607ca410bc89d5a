"""Write-once records in a folder of an HDFS: a record is written under another name, and gets its own by a rename that never
overwrites. Targets keep their claims and marks this way; a journal has better places.
"""

from __future__ import annotations

import errno
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from airflow_gobblin.errors import StoreError, UnknownOutcomeError
from airflow_gobblin.storage.files.base import Files, each

_TEMPORARIES = ".tmp"
_NEVER_SENT = (errno.EACCES, errno.EDQUOT, errno.EINVAL, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOTSUP)


class HdfsStore:
    """Records below a folder.

    :param files: the files of the HDFS.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self.name = posixpath.join(files.root, folder)

    def _path(self, key: str) -> str:
        return posixpath.join(self._folder, key)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        temporary = self._path(f"{_TEMPORARIES}/{uuid.uuid4().hex}")
        with self._errors("write", key), self._files.create(temporary) as out:
            out.write(data)
        try:
            with self._errors("write", key, UnknownOutcomeError):
                self._name(temporary, self._path(key))
            return True
        except BaseException as error:
            with suppress(OSError):
                self._files.unlink(temporary)
            if isinstance(error, FileExistsError):
                return False
            raise

    def _name(self, temporary: str, path: str) -> None:
        """Give a record its name.

        :raises FileExistsError: one exists.
        """
        try:
            self._files.rename_new(temporary, path)
        except FileNotFoundError:  # the first in its folder
            self._files.make_folder(posixpath.dirname(path))
            self._files.rename_new(temporary, path)

    def get(self, key: str) -> bytes | None:
        with self._errors("read", key):
            try:
                return self._files.read(self._path(key))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return each(self._files, self._with_key, keys)

    def _with_key(self, key: str) -> tuple[str, bytes | None]:
        return key, self.get(key)

    def list(self, prefix: str) -> Iterator[str]:
        folder = posixpath.dirname(prefix)
        with self._errors("list", prefix):
            found = [*self._files.walk(self._path(folder).rstrip("/"))]
        skip = len(self._folder) + 1 if self._folder else 0
        keys = (path[skip:] for path in found)
        return iter(sorted(key for key in keys if key.startswith(prefix) and not key.startswith(f"{_TEMPORARIES}/")))

    def delete(self, key: str) -> None:
        with self._errors("delete", key), suppress(FileNotFoundError):
            self._files.unlink(self._path(key))

    def delete_many(self, keys: Sequence[str]) -> None:
        for _ in each(self._files, partial(self.delete), keys):
            pass
        for folder in {posixpath.dirname(key) for key in keys}:
            if posixpath.basename(folder).isdecimal():
                with self._errors("delete", folder):
                    self._files.remove_folder(self._path(folder))

    def close(self) -> None:
        """Do nothing: nothing is open."""

    @contextmanager
    def _errors(self, operation: str, key: str, unclear: type[StoreError] = StoreError) -> Iterator[None]:
        """Convert errors.

        :param unclear: the kind of error after which a record may exist.
        """
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            kind = StoreError if error.errno in _NEVER_SENT else unclear
            raise kind(
                operation=operation,
                subject=f"record {key!r} in {self.name}",
                cause=error,
                hint="See whether the namenode answers, and lets the worker's user write there.",
            ) from error
