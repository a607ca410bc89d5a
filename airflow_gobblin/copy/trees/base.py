"""The port of trees: places that files are read from or compared with.

A walk is lazy, and in every tree in the order of S3's keys, so that two walks can be compared side by side, however many files
there are. Only the names of the folders on the way, and of a few folders ahead, are in memory. No walk shows `OWN_FOLDER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from airflow_gobblin.copy.entries import Entry


def always(folder: str) -> bool:
    """Enter every folder."""
    return True


class Tree(Protocol):
    """A place that files are read from. Errors are `OSError`.

    Anything that can't be listed or read is an error: a listing that failed is never a shorter one.
    """

    @property
    def root(self) -> str:
        """Its path or URL, without secrets."""

    def entry(self, path: str) -> Entry | None:
        """Return what is at a path; `None` if nothing is. In a store a folder is there if anything is below it."""

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        """Yield everything below a folder, each folder right before what is in it, in the order of `key_of`.

        Paths are relative to the root. `_gobblin` in the folder itself is left out. The folders of an object store are those that
        its keys name.

        :param enter: whether to go into a folder. On a disk, one that isn't entered is still yielded.
        :raises FileNotFoundError: there is no such folder.
        """

    def folders(self, folder: str = ".") -> Iterator[str]:
        """Yield the names of the folders in a folder, in order.

        :raises FileNotFoundError: there is no such folder.
        """

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it whole."""

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read a part of a file."""


def joined(folder: str, name: str) -> str:
    """Return the path of a name in a folder."""
    return name if folder == "." else f"{folder}/{name}"


def folders_of(path: str) -> list[str]:
    """Return the folders that a path is in, the outermost first."""
    return [path[:at] for at, char in enumerate(path) if char == "/"]
