"""Giving copies on a disk the attributes that are to be kept, and counting those that can't be."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from airflow_gobblin.copy.entries import Entry, EntryKind, shown
from airflow_gobblin.copy.options import LETTERS, Keep
from airflow_gobblin.copy.owners import in_form
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.storage.files.base import Keeps

_OF_THIS_OWNER = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
"""Bits of a permission that mean something else for a file of another owner."""


_DISK = Keeps()


@dataclass
class KeptAttributes:
    """The attributes to keep of a unit's files, and a count of those that the target can't keep.

    :param lost: the number of files, by letter.
    :param first: the first of these files, and the reason, by letter.
    """

    keep: Keep
    lost: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock, repr=False)  # several threads copy

    @property
    def mode(self) -> int:
        """The permission to create files with: nobody reads a file early that is to have a narrower one."""
        return 0o600 if self.keep.permission else 0o666

    def give(self, entry: Entry, target: int | str, **place: Any) -> os.stat_result:
        """Give a file, after its last byte, or a link its attributes.

        :param target: its descriptor; or its name in the folder that `place` tells to the functions of `os`.
        :return: the file as it is then.
        :raises ConfigurationError: it can't keep one of them, and has to.
        """
        asked_for = entry.attributes.kept(self.keep)
        wanted = in_form(asked_for, _DISK)
        why: dict[str, str] = {}
        if wanted.owner is not None or wanted.group is not None:
            why |= _own(target, wanted.owner, wanted.group, place)
        mode = None if wanted.mode is None or entry.kind is EntryKind.LINK else stat.S_IMODE(wanted.mode)
        if mode is not None:
            with noting("p", why):
                os.chmod(target, mode & ~_OF_THIS_OWNER if "u" in why or "g" in why else mode)
        modified = self.time(entry)
        if modified is not None:
            with noting("t", why):
                os.utime(target, ns=(time.time_ns(), modified), **place)
        made = os.stat(target, **place)
        found = {"u": made.st_uid, "g": made.st_gid, "p": stat.S_IMODE(made.st_mode), "t": made.st_mtime_ns}
        owner, group = _known(wanted.owner, asked_for.owner), _known(wanted.group, asked_for.group)
        for letter, asked in (("u", owner), ("g", group), ("p", mode), ("t", modified)):
            if asked is not None and asked != found[letter]:
                self.miss(letter, entry, why.get(letter, f"it has {found[letter]} there, in place of {asked}"))
        return made

    def time(self, entry: Entry) -> int | None:
        """Return the time to give a file, in ns since 1970. What is converted or unpacked is recognized by it."""
        return _time(entry) if self.keep.times or entry.made_from is not None else None

    def letters(self, entry: Entry) -> str:
        """Return the letters of what there is to keep of a file."""
        wanted = entry.attributes.kept(self.keep)
        asked = {"u": wanted.owner, "g": wanted.group, "p": wanted.mode, "t": _time(entry)}
        return "".join(letter for letter in self.keep.letters if asked[letter] is not None)

    def miss(self, letter: str, entry: Entry, why: str) -> None:
        """Count a file that can't keep an attribute.

        :raises ConfigurationError: it has to.
        """
        if self.keep.strict:
            raise ConfigurationError(
                operation="keep",
                subject=f"the {LETTERS[letter]} of file {shown(entry.path)!r}",
                cause=why,
                hint=f"Take {letter!r} out of `keep`, or `strict`; owners are kept only by tasks that run as root.",
            )
        with self._lock:
            self.lost[letter] = self.lost.get(letter, 0) + 1
            self.first.setdefault(letter, f"{shown(entry.path)!r} ({why})")

    @property
    def metrics(self) -> dict[str, float]:
        """The number of files that didn't keep an attribute, by its name."""
        return {f"not_kept_{LETTERS[letter]}": float(count) for letter, count in self.lost.items()}

    @property
    def properties(self) -> dict[str, Json]:
        """A sentence about each attribute that wasn't kept of all files; empty if all were."""
        told: dict[str, Json] = {
            LETTERS[letter]: f"not kept of {many(count, 'file')}, the first is {self.first[letter]}"
            for letter, count in self.lost.items()
        }
        return {"not_kept": told} if told else {}


def _time(entry: Entry) -> int | None:
    """Return when an entry was last changed; `None` if that is unknown."""
    return entry.modified if entry.modified or entry.stamp == "0" else None


@contextmanager
def noting(letter: str, why: dict[str, str]) -> Iterator[None]:
    """Note the reason why an attribute can't be given."""
    try:
        yield
    except OSError as error:
        why[letter] = error.strerror or str(error)


def _known(here: int | str | None, there: int | str | None) -> int | str | None:
    """Return an owner or group, as the source has it if this host doesn't know it."""
    return there if here is None else here


def _own(target: int | str, owner: Any, group: Any, place: dict[str, Any]) -> dict[str, str]:
    """Give a file to an owner and a group; to the group alone, if only the owner is refused.

    :return: the reasons why it isn't theirs, by letter.
    """
    why: dict[str, str] = {}
    with noting("u" if owner is not None else "g", why):
        os.chown(target, -1 if owner is None else owner, -1 if group is None else group, **place)
    if "u" in why and group is not None:
        with noting("g", why):
            os.chown(target, -1, group, **place)
    return why
