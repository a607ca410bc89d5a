"""Letting the disk begin early with what is written, so that there is little left to do when it is synced."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

__all__ = ["begin_to_write"]

_BEGIN = 2
"""`SYNC_FILE_RANGE_WRITE`: begin to write what is changed and isn't being written yet, without waiting for the end."""


def begin_to_write(file: int, at: int, length: int) -> None:
    """Let the disk begin to write a part of a file, if the system can.

    It neither waits for the disk nor hides its errors from those who sync.
    """
    begin = _sync_file_range()
    if begin is not None:
        begin(file, at, length, _BEGIN)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the C library's `sync_file_range`, which Python has no function for; `None` if the library has none."""
    found = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return found
