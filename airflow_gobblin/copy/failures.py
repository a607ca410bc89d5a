"""Errors of a copy, each of which names the file, what was expected, and what to do."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_gobblin.copy.entries import Entry, shown
from airflow_gobblin.errors import GobblinError, Remedy, SourceChangedError, SourceDataError, SourceError, StoreError

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_SOMETHING_ELSE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
_NEXT_RUN = "The next run plans anew, and copies it as it is then."


@contextmanager
def reading(root: str, path: str) -> Iterator[None]:
    """Convert errors of reading a file of the source.

    :param root: the root of the source's tree.
    :param path: the file, relative to it.
    :raises SourceChangedError: it is gone.
    :raises SourceError: it can't be read.
    """
    try:
        yield
    except GobblinError:
        raise
    except OSError as error:
        if error.errno in _GONE or isinstance(error, FileNotFoundError):
            raise gone(root, path) from error
        if error.errno in _SOMETHING_ELSE:
            raise changed(root, path, "a file", "something else in its place") from error
        hint = "See whether its storage answers."
        if error.errno in _NOT_ALLOWED:
            hint = "Let the user that Spark's tasks run as read it, or exclude it."
        raise SourceError(
            operation="read", subject=_named(root, path), cause=_why(error), hint=hint, remedy=Remedy.EXTRACT
        ) from error


@contextmanager
def writing(root: str, path: str) -> Iterator[None]:
    """Convert errors of writing a copy.

    :param root: the root of the target.
    :param path: the file, relative to its file set.
    :raises StoreError: it can't be written.
    """
    try:
        yield
    except GobblinError:
        raise
    except OSError as error:
        hint = "See whether the target's storage answers."
        if error.errno in _NO_ROOM:
            hint = "Make room there, or copy less: nothing of this file set is published before all of it is copied."
        elif error.errno in _NOT_ALLOWED:
            hint = "Let the user that Spark's tasks run as write there."
        elif error.errno in _NO_NAME:
            hint = "If the target can't hold a file of this name, rename or exclude it."
        raise StoreError(
            operation="write",
            subject=f"the copy of {shown(path)!r} in {root}",
            cause=_why(error),
            hint=hint,
            remedy=Remedy.EXTRACT,
        ) from error


def is_of_target(error: OSError) -> bool:
    """Return whether an error of a call that both reads and writes is certainly about writing."""
    return error.errno in _NO_ROOM or error.errno == errno.EROFS


def changed(root: str, path: str, expected: str, found: str) -> SourceChangedError:
    """Return the error that a file isn't as it was planned."""
    return SourceChangedError(
        operation="copy",
        subject=_named(root, path),
        cause=f"it changed since it was planned, perhaps while it was copied: planned was {expected}; found was {found}",
        hint=_NEXT_RUN,
        remedy=Remedy.PLAN,
    )


def gone(root: str, path: str) -> SourceChangedError:
    """Return the error that a file isn't there any more."""
    return SourceChangedError(
        operation="copy",
        subject=_named(root, path),
        cause="it was there when it was planned, and is gone",
        hint="The next run plans anew, without it.",
        remedy=Remedy.PLAN,
    )


def unconvertible(operation: str, root: str, path: str, error: Exception) -> SourceDataError:
    """Return the error that a file can't be converted or unpacked."""
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
