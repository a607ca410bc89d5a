"""The entries of a tree's listing: files, links and folders, with what they are recognized and compared by.

Paths are relative to the tree's root, with `/`. A name on disk that isn't UTF-8 is as `os.fsdecode` gives it, with a lone
surrogate for each odd byte. Entries are ordered by `sort_key`, which is the order of keys in S3.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from enum import StrEnum

from airflow_gobblin.storage.files.base import Attributes, FileIdentity


class EntryKind(StrEnum):
    """The kind of an entry."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    OTHER = "other"
    """Neither of these, such as a device, a socket or a pipe."""


NO_ATTRIBUTES = Attributes()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The file of the source that a converted file, or a member of an archive, is made from.

    :param path: its path there.
    :param size: with the stamp, what it is recognized by.
    :param member: the name of the member, if it is an archive.
    :param checksum: the SHA-256 of the member, if it is compared by its content.
    """

    path: str
    size: int
    stamp: str
    member: str = ""
    checksum: str = ""

    @property
    def entry(self) -> Entry:
        """The entry by which it is read."""
        return Entry(self.path, EntryKind.FILE, self.size, stamp=self.stamp)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, link or folder in a listing.

    :param path: relative to the tree's root.
    :param size: bytes.
    :param modified: the time of its last change in ns since 1970; 0 where it is unknown.
    :param stamp: as `FileIdentity.stamp`: on disk the time of its last change in ns, in an object store the ETag.
    :param inode: 0 where there is none.
    :param link: the text of a link, where links are copied.
    :param made_from: the file that it is made from, if it is converted or unpacked on the way. The path is then the one in the
        target, and the time the source's. So is the size of a converted file, since its size in the target isn't known yet.
    """

    path: str
    kind: EntryKind
    size: int = 0
    modified: int = 0
    stamp: str = ""
    inode: int = 0
    attributes: Attributes = NO_ATTRIBUTES
    link: str = ""
    made_from: SourceFile | None = None

    @property
    def known_size(self) -> int | None:
        """The size that it has, or will have, in the target; `None` if that isn't known."""
        return self.size if self.made_from is None or self.made_from.member else None

    @property
    def in_source(self) -> str:
        """The path that it has in the source."""
        return self.path if self.made_from is None else self.made_from.path

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


def guid_of(entry: Entry, kept: Attributes) -> bytes:
    """Return what shows whether a finished copy is an entry's: path, length, time, stamp and all else that it is made by.

    Each part has its length before it, so that no two entries give the same bytes.

    :param kept: those of its attributes that the copy keeps.
    """
    source = entry.made_from
    made_from = () if source is None else (source.path, source.size, source.stamp, source.member, source.checksum)
    parts = (entry.path, entry.kind.value, entry.size, entry.modified, entry.stamp, entry.link, *made_from)
    digest = hashlib.sha256()
    for part in (*parts, kept):
        data = os.fsencode(str(part))
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def shown(path: str) -> str:
    """Return a path as text for people: bytes that aren't UTF-8 are written as escapes."""
    return os.fsencode(path).decode(errors="backslashreplace")


def readable(error: OSError) -> OSError:
    """Return an error with the name of its file as text for people, as names on disk are bytes here."""
    if isinstance(error.filename, bytes):
        error.filename = shown(os.fsdecode(error.filename))
    return error
