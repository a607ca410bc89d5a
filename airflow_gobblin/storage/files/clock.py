"""The clock of the storage, derived from files written there: the clocks of workers may differ by days."""

from __future__ import annotations

import errno
import time
import uuid
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property

from airflow_gobblin.storage.files.base import Files

_LEFT_AFTER = timedelta(hours=1)


class PlaceClock:
    """The clock of a storage. It is read once, and continues with this process's own.

    :param files: the storage.
    :param folder: a folder for nothing but the files written to read the clock.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def age(self, path: str) -> timedelta | None:
        """Return how long ago a file was last written; `None` if nothing exists there."""
        written = self._files.modified(path)
        if written is None:
            return None
        read, at = self._now
        return read - written + timedelta(seconds=time.monotonic() - at)

    @cached_property
    def _now(self) -> tuple[datetime, float]:
        """Return the time in the storage, and the time of reading it by this process's own clock."""
        path = f"{self._folder}/{uuid.uuid4().hex}"
        at = time.monotonic()
        self._files.create(path).close()
        try:
            found = self._files.modified(path)
        finally:
            self._files.unlink(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "a file is gone that was just written", path)
        self._remove_left(found)
        return found, at

    def _remove_left(self, now: datetime) -> None:
        """Remove the files of processes killed while reading the clock, which never takes so long."""
        for name in self._files.identities(self._folder):
            path = f"{self._folder}/{name}"
            with suppress(OSError):  # another process removes it too, or it can't be removed: harmless
                written = self._files.modified(path)
                if written is not None and now - written > _LEFT_AFTER:
                    self._files.unlink(path)
