"""The findings of a comparison of published files with what they should be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FileState(StrEnum):
    """The state of a published file."""

    OK = "ok"
    CHANGED = "changed"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    EXTRA = "extra"
    """The source of a mirror that deletes doesn't have it."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A file or folder of a mirror's target that isn't as in the source.

    :param path: below the target root, as text.
    :param bytes: the size of the source's file; of the target's, if the source has none.
    """

    path: str
    state: FileState
    bytes: int
    detail: str
