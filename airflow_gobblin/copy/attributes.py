"""Giving copies on a disk the attributes that are to be kept, and counting those that can't be."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from airflow_gobblin.copy.entries import Entry, EntryKind, shown
from airflow_gobblin.copy.options import LETTERS, Keep
from airflow_gobblin.copy.owners import in_form
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model import lost
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.storage.files.base import Attributes, Keeps
from airflow_gobblin.storage.files.disk_attributes import Refused, all_attributes, give_attributes

_DISK = Keeps(acl=True, extended=("",))
_LETTERS = {
    "owner": "u",
    "group": "g",
    "mode": "p",
    "modified": "t",
    "acl": "a",
    "extended": "x",
    "replication": "r",
    "block_size": "b",
}


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
        """The permission to create files with, so that nobody can read a file early that is to have a narrower one."""
        return 0o600 if self.keep.narrows else 0o666

    def give(self, entry: Entry, target: int | str, **place: Any) -> os.stat_result:
        """Give a link, or a file after its last byte, its attributes.

        :param target: its descriptor; or its name in the folder that `place` passes to the functions of `os`.
        :return: the file as it is then.
        :raises ConfigurationError: it can't keep one of them, but must.
        """
        if not self.keep.letters and entry.made_from is None:
            return os.stat(target, **place)
        asked, wanted = self.wanted(entry, _DISK)
        refused = give_attributes(target, wanted, **place)
        made = os.stat(target, **place)
        acl, extended = asked.acl is not None, asked.extended is not None
        self.compare(entry, asked, all_attributes(target, made, acl=acl, extended=extended), refused)
        return made

    def wanted(self, entry: Entry, keeps: Keeps) -> tuple[Attributes, Attributes]:
        """Return the attributes that a file is to keep: as they are asked for, and as they can be given in a storage."""
        asked = replace(self.keep.of(entry.attributes), modified=self.time(entry))
        if entry.kind is EntryKind.LINK:
            asked = replace(asked, mode=None)
        wanted = in_form(asked, keeps)
        known = {
            name: getattr(asked if getattr(wanted, name) is None else wanted, name)
            for name in ("owner", "group", "acl", "modified")
        }
        return replace(asked, **known), wanted

    def compare(self, entry: Entry, asked: Attributes, found: Attributes, refused: Refused) -> None:
        """Count what a file was to keep and doesn't.

        :raises ConfigurationError: it has to keep it.
        """
        if self._asks_for_checksum_type(entry):
            self.miss("c", entry, "only HDFS's own client sets it")
        for name, letter in _LETTERS.items():
            has, wanted = getattr(found, name), getattr(asked, name)
            if wanted is not None and wanted != (() if wanted == () and has is None else has):
                why = refused[name].strerror if name in refused else None
                self.miss(letter, entry, why or f"it has {_shown(name, has)} there, in place of {_shown(name, wanted)}")

    def time(self, entry: Entry) -> int | None:
        """Return the time to give a file, in ns since 1970. Converted and unpacked files are recognized by it."""
        return _time(entry) if self.keep.times or entry.made_from is not None else None

    def time_in_metadata(self, entry: Entry) -> int | None:
        """Return the time that a copy keeps in its metadata, in ns since 1970, if times are kept."""
        return _time(entry) if self.keep.times else None

    def letters(self, entry: Entry) -> str:
        """Return the letters of the attributes to keep of a file."""
        asked = replace(self.keep.of(entry.attributes), modified=_time(entry) if self.keep.times else None)
        found = "".join(letter for name, letter in _LETTERS.items() if getattr(asked, name) not in (None, ()))
        return found + ("c" if self._asks_for_checksum_type(entry) else "")

    def _asks_for_checksum_type(self, entry: Entry) -> bool:
        """Return whether the type of a file's checksums is to be kept: only a file of an HDFS has one."""
        return "c" in self.keep.letters and entry.attributes.replication is not None

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
        return {f"not_kept_{LETTERS[letter].replace(' ', '_')}": float(count) for letter, count in self.lost.items()}

    @property
    def properties(self) -> dict[str, Json]:
        """The attributes that some files didn't keep, as `model.lost` has them; empty if all were kept."""
        return lost.to_properties({LETTERS[letter]: (count, self.first[letter]) for letter, count in self.lost.items()})


def _time(entry: Entry) -> int | None:
    """Return when an entry was last changed; `None` if that is unknown."""
    return entry.modified if entry.modified or entry.stamp == "0" else None


def _shown(name: str, value: Any) -> str:
    """Describe the value of an attribute, without the values of extended ones, which are nobody's business."""
    if name == "extended" and value is not None:
        return f"({', '.join(key for key, _ in value)})"
    if name == "mode" and value is not None:
        return f"{value:o}"
    return "none" if value is None else str(value)
