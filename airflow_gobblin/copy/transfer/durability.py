"""Making many new files durable at once: one `syncfs` takes milliseconds where an `fsync` of each would take seconds."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

_SAFE = frozenset(
    (
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # Btrfs
        0xF2F52010,  # F2FS
        0xCA451A4E,  # bcachefs
        0x2FC12FC1,  # ZFS
        0x01021994,  # tmpfs
    )
)
"""File systems that write everything on `syncfs`, and report by it what couldn't be written.

Others, such as FUSE's and mounted ones, may keep some of it on a server. Overlay reports nothing: the error is known to the file
system of its upper layer, and `syncfs` asks the overlay's.
"""
_REPORTING = (5, 8)
"""Older kernels don't report to `syncfs` that a file couldn't be written."""
_AT_ONCE = 16
_LARGE = 16 << 20
"""The size from which a file isn't kept in memory once it is on the disk."""


class FolderSync:
    """The durability of files made in an open folder.

    It is created before the first of them, because the kernel reports the errors since the folder was opened.

    :param folder: a descriptor of the folder, which stays open.
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self.at_once = _has_syncfs() and _kind(folder) in _SAFE

    def sync(self) -> None:
        """Wait until everything on its file system is durable, names included.

        :raises OSError: something could not be written.
        """
        if _libc().syncfs(self._folder) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def sync_files(paths: list[str]) -> None:
    """Wait until the contents of files, or the names in folders, are durable, many at once.

    Large files then leave the system's cache: copies of terabytes would push out what other programs read.
    """
    with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(paths)))) as pool:
        for _ in pool.map(_sync, paths):
            pass


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
        if os.fstat(handle).st_size >= _LARGE and hasattr(os, "posix_fadvise"):
            with suppress(OSError):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _has_syncfs() -> bool:
    kernel = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    return platform.system() == "Linux" and kernel >= _REPORTING and hasattr(_libc(), "syncfs")


def _kind(folder: int) -> int:
    """Return the number by which the kernel names the kind of a file system; 0 if it is unknown."""
    found = (ctypes.c_long * 32)()  # `struct statfs`, which begins with it
    return 0 if _libc().fstatfs(folder, ctypes.byref(found)) != 0 else int(found[0]) & 0xFFFFFFFF
