"""What a listing of a tree shows: files, links and folders, with what they are recognized and compared by.

Paths are relative to the tree's root, with `/`. A name on disk that isn't UTF-8 is as `os.fsdecode` gives it, with a lone
surrogate for each odd byte. Entries are ordered by `sort_key`, which is the order of keys in S3.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum

from airflow_gobblin.copy.options import Keep
from airflow_gobblin.storage.files.base import FileIdentity


class EntryKind(StrEnum):
    """The kind of an entry."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    OTHER = "other"
    """Neither of these, such as a device, a socket or a pipe."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The owner, group and permission of an entry, as numbers; `None` where the tree has none, or they aren't kept."""

    mode: int | None = None
    owner: int | None = None
    group: int | None = None

    def kept(self, keep: Keep) -> Attributes:
        """Return those that are to be kept."""
        return Attributes(
            self.mode if keep.permission else None,
            self.owner if keep.user else None,
            self.group if keep.group else None,
        )

    def differ_from(self, other: Attributes) -> bool:
        """Return whether any of those that are known on both sides differ."""
        pairs = ((self.mode, other.mode), (self.owner, other.owner), (self.group, other.group))
        return any(one != two for one, two in pairs if one is not None and two is not None)


NO_ATTRIBUTES = Attributes()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, link or folder in a listing.

    :param path: relative to the tree's root.
    :param size: bytes.
    :param modified: the time of its last change in ns since 1970; 0 where it is unknown.
    :param stamp: as `FileIdentity.stamp`: on disk the time of its last change in ns, in an object store the ETag.
    :param inode: 0 where there is none.
    :param link: the text of a link, where links are copied.
    """

    path: str
    kind: EntryKind
    size: int = 0
    modified: int = 0
    stamp: str = ""
    inode: int = 0
    attributes: Attributes = NO_ATTRIBUTES
    link: str = ""

    @property
    def identity(self) -> FileIdentity:
        """The identity that it has as a file."""
        return FileIdentity(self.inode, self.size, self.stamp)


def sort_key(path: str, *, folder: bool = False) -> bytes:
    """Return the key by which entries are ordered: the bytes of the path, with a `/` after a folder's."""
    return os.fsencode(f"{path}/" if folder else path)


def key_of(entry: Entry) -> bytes:
    """Return the key by which an entry is ordered."""
    return sort_key(entry.path, folder=entry.kind is EntryKind.FOLDER)


def shown(path: str) -> str:
    """Return a path as text for people: bytes that aren't UTF-8 are written as escapes."""
    return os.fsencode(path).decode(errors="backslashreplace")
