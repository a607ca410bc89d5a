"""The options of a mirror: how files are compared, replaced, deleted, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_gobblin.storage.files.base import Attributes

LETTERS = {
    "t": "times",
    "p": "permission",
    "u": "user",
    "g": "group",
    "a": "ACL",
    "x": "extended attributes",
    "r": "replication",
    "b": "block size",
    "c": "checksum type",
}
"""The attributes that `Keep` keeps, by DistCp's letters; the last one is only reported, as WebHDFS can't set it."""


_NOBODY = 0xFFFFFFFF
"""The number that makes the kernel leave an owner as it is."""


class Compare(StrEnum):
    """When a file of the target counts as unchanged."""

    SIZE_AND_TIME = "size_and_time"
    """The sizes are equal, and the target's file is not older; where times are kept, the times are equal."""
    CHECKSUM = "checksum"
    """The contents are equal, by checksum or ETag. Where a store keeps neither, both sides are read."""


class Existing(StrEnum):
    """The treatment of a file of the target that differs from the source's."""

    FAIL = "fail"
    """The file set fails, and names it."""
    UPDATE = "update"
    """It is replaced, if it is still the file that was seen at planning."""
    SKIP = "skip"
    """It is left as it is."""


class Links(StrEnum):
    """The treatment of symbolic links in the source."""

    SKIP = "skip"
    """They are neither copied nor followed, and their names in the target are left alone."""
    COPY = "copy"
    """They are copied as links, with the same text."""
    FOLLOW = "follow"
    """The files and folders that they lead to are copied. A link that leads out of the source's root fails the file set."""


@dataclass(frozen=True)
class Delete:
    """Delete from the target what the source no longer has, and the folders that are then empty.

    If any part of a listing failed, or the source is empty or missing, nothing is deleted and the file set fails.

    :param at_most: the share of the target's files that may go in one run, from 0 to 1. If more would go, nothing does, and the
        file set fails.
    """

    at_most: float = 0.1

    def __post_init__(self) -> None:
        if isinstance(self.at_most, bool) or not 0 <= self.at_most <= 1:
            raise ConfigurationError(
                operation="use",
                subject=f"Delete(at_most={self.at_most!r})",
                cause="it is a share of the target's files, from 0 to 1",
                hint="Write 0.05 for five percent, or 1 for no bound.",
            )


@dataclass(frozen=True)
class Keep:
    """The attributes of its file that a copy keeps, and those that it gets in place of these.

    The letters are DistCp's: `t` times, `p` permission, `u` user, `g` group, `a` access control list and permission, `x` extended
    attributes; and in HDFS `r` replication, `b` block size, and `c`, the type of checksums, which is reported as not kept.

    :param letters: for example "t" or "pug".
    :param strict: whether it is an error if the target can't keep them; otherwise it is reported once.
    :param owner: the user that files and folders belong to, in place of the source's: a name, or on a disk a number.
    :param group: likewise.
    :param permission: the permission of files, in place of the source's: `0o640`.
    :param folder_permission: the permission of folders, including those that are made above a new file set.
    """

    letters: str = ""
    strict: bool = False
    owner: str | int | None = None
    group: str | int | None = None
    permission: int | None = None
    folder_permission: int | None = None

    def __post_init__(self) -> None:
        for name in ("permission", "folder_permission"):
            bits = getattr(self, name)
            if bits is not None and not (isinstance(bits, int) and 0 <= bits <= 0o7777):
                raise ConfigurationError(
                    operation="use",
                    subject=f"Keep({name}={bits!r})",
                    cause="it is not a permission",
                    hint="Write it in octal digits, such as 0o640.",
                )
        for name in ("owner", "group"):
            one = getattr(self, name)
            if one == "" or isinstance(one, bool) or (isinstance(one, int) and not 0 <= one < _NOBODY):
                raise ConfigurationError(
                    operation="use",
                    subject=f"Keep({name}={one!r})",
                    cause=f"no {'user' if name == 'owner' else name} has it",
                    hint="Give a name, or on a disk a number.",
                )
        wrong = next((letter for letter in self.letters if letter not in LETTERS), None)
        if wrong is not None or len({*self.letters}) != len(self.letters):
            cause = f"{wrong!r} is none of its letters"
            raise ConfigurationError(
                operation="use",
                subject=f"Keep({self.letters!r})",
                cause="a letter is repeated" if wrong is None else cause,
                hint=f"Give each once, of {', '.join(f'{letter} ({what})' for letter, what in LETTERS.items())}.",
            )

    @property
    def times(self) -> bool:
        """Whether times are kept."""
        return "t" in self.letters

    @property
    def narrows(self) -> bool:
        """Whether a file may have a permission that is narrower than usual."""
        return self._keeps_mode or self.permission is not None

    @property
    def _keeps_mode(self) -> bool:
        return "p" in self.letters or self.acl

    @property
    def acl(self) -> bool:
        """Whether access control lists are kept. Permissions are a part of them."""
        return "a" in self.letters

    @property
    def extended(self) -> bool:
        """Whether extended attributes are kept."""
        return "x" in self.letters

    @property
    def in_place(self) -> bool:
        """Whether anything is kept that can be set without a copy. Times don't count: they are compared with the content."""
        return not {*self.letters} <= {"t", "b", "c"} or self.gives

    @property
    def gives(self) -> bool:
        """Whether copies get something in place of what the source has."""
        return any(one is not None for one in (self.owner, self.group, self.permission, self.folder_permission))

    def of(self, attributes: Attributes, *, folder: bool = False) -> Attributes:
        """Return those of a source's attributes that are kept, and what is given in place of others, without times."""
        kept, permission = self.letters, self.folder_permission if folder else self.permission
        mode = attributes.mode if self._keeps_mode else None
        owner, group = attributes.owner if "u" in kept else None, attributes.group if "g" in kept else None
        return replace(
            attributes,
            mode=mode if permission is None else permission,
            owner=owner if self.owner is None else self.owner,
            group=group if self.group is None else self.group,
            modified=None,
            acl=attributes.acl if self.acl else None,
            extended=attributes.extended if self.extended else None,
            replication=attributes.replication if "r" in kept else None,
            block_size=attributes.block_size if "b" in kept else None,
        )


KEEPS_NOTHING = Keep()
