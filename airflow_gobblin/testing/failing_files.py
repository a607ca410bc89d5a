"""A disk that fails: each call that writing makes, and each write of a file that was created, can be made to fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from airflow_gobblin.storage.files import FileIdentity, LocalFiles


def no_space() -> OSError:
    """Return the error of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FailingFiles(LocalFiles):
    """The local file system with an error at one of the calls that writing makes. A failing write first writes half of its bytes.

    :param at: the number of the call that fails, from 0; -1 for none, to see `calls`.
    :param error: makes the error.
    :param forever: whether all calls after it fail, too, except removals.
    """

    def __init__(
        self, root: Any, at: int, error: Callable[[], BaseException] = no_space, *, forever: bool = False
    ) -> None:
        super().__init__(root)
        self.calls: list[str] = []
        self.at = at
        self.error = error
        self.forever = forever

    @property
    def parallel(self) -> int:
        return 1  # or it would be unknown which call is the third

    def count(self, what: str) -> bool:
        """Note a call and return whether it fails."""
        self.calls.append(what)
        done = len(self.calls) - 1
        return done == self.at or (self.forever and done > self.at >= 0)

    def _call(self, what: str) -> None:
        if self.count(what):
            raise self.error()

    def create(self, path: str) -> BinaryIO:
        self._call(f"create {path}")
        return cast(BinaryIO, _FailingFile(super().create(path), self))

    def identity(self, path: str) -> FileIdentity | None:
        self._call(f"identity {path}")
        return super().identity(path)

    def sync_file(self, path: str) -> None:
        self._call(f"sync_file {path}")
        super().sync_file(path)

    def sync_folder(self, path: str) -> None:
        self._call(f"sync_folder {path}")
        super().sync_folder(path)


class _FailingFile:
    def __init__(self, raw: BinaryIO, files: FailingFiles) -> None:
        self._raw = raw
        self._files = files

    @property
    def closed(self) -> bool:
        return self._raw.closed

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._files.count("write"):
            self._raw.write(view[: len(view) // 2])
            raise self._files.error()
        return self._raw.write(view)

    def flush(self) -> None:
        if self._files.count("flush"):
            raise self._files.error()
        self._raw.flush()

    def close(self) -> None:
        fails = self._files.count("close")
        self._raw.close()
        if fails:
            raise self._files.error()
