"""Errors of a copy, each of which names the file, what was expected, and what to do."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable
from contextlib import AbstractContextManager

from airflow_gobblin.copy.entries import Entry, shown
from airflow_gobblin.errors import GobblinError, Remedy, SourceChangedError, SourceDataError, SourceError, StoreError

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_SOMETHING_ELSE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
_NEXT_RUN = "The next run plans anew, and copies it as it is then."


class _Converting:
    """The conversion of one file's errors. A context manager of its own: each file takes several, and generators are slow.

    :param error_of: returns the error to raise, given `root`, `path` and the storage's error.
    """

    __slots__ = ("_error_of", "_path", "_root")

    def __init__(self, error_of: Callable[[str, str, OSError], GobblinError], root: str, path: str) -> None:
        self._error_of, self._root, self._path = error_of, root, path

    def __enter__(self) -> None:
        """Begin to use the file."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, GobblinError):
            raise self._error_of(self._root, self._path, error) from error


def reading(root: str, path: str) -> AbstractContextManager[None]:
    """Convert errors of reading a file of the source.

    :param root: the root of the source's tree.
    :param path: the file, relative to it.
    :raises SourceChangedError: it is gone.
    :raises SourceError: it can't be read.
    """
    return _Converting(_unreadable, root, path)


def _unreadable(root: str, path: str, error: OSError) -> GobblinError:
    if error.errno in _GONE or isinstance(error, FileNotFoundError):
        return gone(root, path)
    if error.errno in _SOMETHING_ELSE:
        return changed(root, path, "a file", "something else in its place")
    hint = "See whether its storage answers."
    if error.errno in _NOT_ALLOWED:
        hint = "Let the user that Spark's tasks run as read it, or exclude it."
    return SourceError(
        operation="read", subject=_named(root, path), cause=_why(error), hint=hint, remedy=Remedy.EXTRACT
    )


def writing(root: str, path: str) -> AbstractContextManager[None]:
    """Convert errors of writing a copy.

    :param root: the root of the target.
    :param path: the file, relative to its file set.
    :raises StoreError: it can't be written.
    """
    return _Converting(_unwritable, root, path)


def _unwritable(root: str, path: str, error: OSError) -> GobblinError:
    hint = "See whether the target's storage answers."
    if error.errno in _NO_ROOM:
        hint = "Make room there, or copy less: nothing of this file set is published before all of it is copied."
    elif error.errno in _NOT_ALLOWED:
        hint = "Let the user that Spark's tasks run as write there."
    elif error.errno in _NO_NAME:
        hint = "If the target can't hold a file of this name, rename or exclude it."
    return StoreError(
        operation="write",
        subject=f"the copy of {shown(path)!r} in {root}",
        cause=_why(error),
        hint=hint,
        remedy=Remedy.EXTRACT,
    )


def is_of_target(error: OSError) -> bool:
    """Return whether an error of a call that both reads and writes is certainly about writing."""
    return error.errno in _NO_ROOM or error.errno == errno.EROFS


def changed(root: str, path: str, expected: str, found: str) -> SourceChangedError:
    """Return the error for a file that isn't as it was planned."""
    return SourceChangedError(
        operation="copy",
        subject=_named(root, path),
        cause=f"it changed since it was planned, perhaps while it was copied: planned was {expected}; found was {found}",
        hint=_NEXT_RUN,
        remedy=Remedy.PLAN,
    )


def gone(root: str, path: str) -> SourceChangedError:
    """Return the error for a file that isn't there any more."""
    return SourceChangedError(
        operation="copy",
        subject=_named(root, path),
        cause="it was there when it was planned, and is gone",
        hint="The next run plans anew, without it.",
        remedy=Remedy.PLAN,
    )


def unconvertible(operation: str, root: str, path: str, error: Exception) -> SourceDataError:
    """Return the error for a file that can't be converted or unpacked."""
    return SourceDataError(
        operation=operation,
        subject=_named(root, path),
        cause=error,
        hint="Correct the file, or exclude it. Nothing of its file set was published.",
        remedy=Remedy.PLAN,
    )


def described(entry: Entry) -> str:
    """Describe an entry by what it is recognized by."""
    return f"{entry.kind.value} of {entry.size} bytes, {entry.stamp}"


def _named(root: str, path: str) -> str:
    return f"file {shown(posixpath.join(root, path))!r}"


def _why(error: OSError) -> str:
    return f"{type(error).__name__}: {error.strerror or error}"
