"""Files on which one call fails, before or after it took effect."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from airflow_gobblin.storage.files.base import Files

__all__ = ["InterruptedFiles"]

_LOOKS = ("root", "parallel", "moves_folders", "settles_after", "other", "stage")


class InterruptedFiles:
    """Any `Files`, with an error at one of the calls on them, on their uploads or records, or on a file that is written.

    :param at: the number of the call that fails, from 0; -1 for none, to see `calls`.
    :param answer_lost: whether the call takes effect before it fails.
    """

    def __init__(self, files: Files, at: int = -1, *, answer_lost: bool = False) -> None:
        self.calls: list[tuple[str, ...]] = []
        """The calls so far, each with its paths."""
        self._files = files
        self._at = at
        self._answer_lost = answer_lost

    @property
    def uploads(self) -> Any:
        """The uploads of the files, interrupted as they are."""
        return None if self._files.uploads is None else _Interrupted(self._files.uploads, self.call)

    @property
    def copies(self) -> Any:
        """The copies of the files, interrupted as they are."""
        return None if self._files.copies is None else _Interrupted(self._files.copies, self.call)

    def records(self, folder: str) -> Any:
        """Return the records in a folder, interrupted as the files are."""
        return _Interrupted(self._files.records(folder), self.call)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        return found if name in _LOOKS else self._interrupted(name, found)

    def _interrupted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            result = self.call(name, method, *arguments)
            return _Interrupted(result, self.call) if name == "create" else result

        return call

    def call(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method, or fail.

        :raises OSError: this is the call that fails.
        """
        fails = len(self.calls) == self._at
        self.calls.append((name, *(argument for argument in arguments if isinstance(argument, str))))
        if fails and not self._answer_lost:
            raise OSError(errno.EIO, f"{name} failed")
        result = method(*arguments)
        if fails:
            if name == "create":
                result.close()
            raise OSError(errno.EIO, f"the answer of {name} was lost")
        return result


class _Interrupted:
    """Uploads, records, or a file that is written."""

    def __init__(self, wrapped: Any, call: Callable[..., Any]) -> None:
        self._wrapped = wrapped
        self._call = call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        return (lambda *arguments: self._call(name, found, *arguments)) if callable(found) else found

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self._wrapped.close() if any(error) else self.close()
