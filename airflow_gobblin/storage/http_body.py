"""The body of an HTTP answer, as a file."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow_gobblin.storage.filesystems import as_os_error

if TYPE_CHECKING:
    import requests


class AnswerBody(io.RawIOBase):
    """The body of an answer, read as it comes; a connection that ends too early is an error.

    :param path: the path of the file, for errors.
    :param asked: the answer, which is entered here, and left when this is closed.
    """

    def __init__(self, path: str, asked: AbstractContextManager[requests.Response]) -> None:
        self._path = path
        self._asked = asked
        self._answer = asked.__enter__()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with as_os_error("read", self._path):
            data: bytes = self._answer.raw.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._asked.__exit__(None, None, None)
