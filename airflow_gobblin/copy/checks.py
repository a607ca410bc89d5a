"""Checks of a file set, after its files are copied and before it is decided. If one fails, it isn't published."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from airflow_gobblin.copy.bundles import Bundle, SourceTotals
from airflow_gobblin.copy.entries import shown
from airflow_gobblin.copy.failures import reading
from airflow_gobblin.copy.trees import Tree, joined
from airflow_gobblin.errors import CheckFailedError, ConfigurationError
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitResult, WorkUnit
from airflow_gobblin.storage.files.base import Files, contained

_LINE = re.compile(rb"(\\?)([0-9a-fA-F]{64}) [ *](.+)")
_ESCAPE = re.compile(rb"\\(.)")
_NAMED = 20

Published = Iterable[tuple[WorkUnit, UnitResult]]


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file as it will be published.

    :param path: relative to the file set's folder.
    :param checksum: its SHA-256 in hex; empty for a link.
    """

    path: str
    size: int
    checksum: str


@dataclass(frozen=True)
class CopiedFileSet:
    """A file set whose files are copied.

    :param urn: its URN.
    :param files: the number of its files in the source, including those that didn't change.
    :param size: their bytes there.
    :param source: the source's tree.
    :param source_folder: its folder there.
    :param target: the files below the workspace's root.
    :param folder: its folder there.
    :param published: gives the units with their results, anew on each call.
    """

    urn: str
    files: int
    size: int
    source: Tree
    source_folder: str
    target: Files
    folder: str
    published: Callable[[], Published]

    @property
    def copied(self) -> Iterator[CopiedFile]:
        """The files that were copied by this run."""
        for unit, result in self.published():
            for file, staged in zip(Bundle.of(unit).files, result.files, strict=True):
                yield CopiedFile(file.entry.path, staged.size, staged.checksum)

    @property
    def deleted(self) -> Iterator[str]:
        """The paths of the files that are to be deleted from the target."""
        for unit, _ in self.published():
            yield from (one.path for one in Bundle.of(unit).deletes)

    def exists(self, path: str) -> bool:
        """Return whether the target has a file already."""
        return self.target.identity(joined(self.folder, contained(path))) is not None

    def read(self, path: str) -> bytes:
        """Read a file of the source.

        :raises CheckFailedError: there is none.
        :raises SourceError: it can't be read.
        """
        at = joined(self.source_folder, contained(path))
        if self.source.entry(at) is None:
            raise CheckFailedError(
                operation="check",
                subject=f"file set {self.urn!r}",
                cause=f"there is no file {shown(at)!r} in {self.source.root}",
                hint="Put it there, or correct the check. Nothing of the file set was published.",
            )
        with reading(self.source.root, at), self.source.open(at) as file:
            return file.read()


@runtime_checkable
class FileSetCheck(Protocol):
    """A check of file sets: frozen, registered with `wire.record`, without secrets. It runs on an Airflow worker."""

    def judge(self, file_set: CopiedFileSet) -> str | None:
        """Return what is wrong with a file set; `None` if nothing is."""


@record("at_least_files")
@dataclass(frozen=True)
class AtLeastFiles:
    """The source has at least this many files in a file set."""

    count: int

    def __post_init__(self) -> None:
        _check_bound(self, self.count)

    def __str__(self) -> str:
        return f"at least {many(self.count, 'file')}"

    def judge(self, file_set: CopiedFileSet) -> str | None:
        """Return how many there are, if they are too few."""
        too_few = file_set.files < self.count
        return f"it has {many(file_set.files, 'file')}" if too_few else None


@record("at_least_bytes")
@dataclass(frozen=True)
class AtLeastBytes:
    """The source's files in a file set have at least this many bytes together."""

    count: int

    def __post_init__(self) -> None:
        _check_bound(self, self.count)

    def __str__(self) -> str:
        return f"at least {many(self.count, 'byte')}"

    def judge(self, file_set: CopiedFileSet) -> str | None:
        """Return how many they have, if it is too few."""
        too_few = file_set.size < self.count
        return f"it has {many(file_set.size, 'byte')}" if too_few else None


@record("checksums")
@dataclass(frozen=True)
class Checksums:
    """Every file that is named in a list of SHA-256 checksums exists, and is copied with the content recorded there.

    :param path: the list's path in the file set's folder, in the form of `sha256sum`; names are those in the target.
    """

    path: str = "SHA256SUMS"

    def __post_init__(self) -> None:
        contained(self.path)

    def __str__(self) -> str:
        return f"checksums in {self.path!r}"

    def judge(self, file_set: CopiedFileSet) -> str | None:
        """Return the files that are missing or have another content."""
        missing = _listed(file_set.read(self.path), self.path)
        other = (file for file in file_set.copied if missing.pop(file.path, file.checksum) != file.checksum)
        wrong = [f"{shown(file.path)!r} has another content" for file in other]
        deleted = missing.keys() & {*file_set.deleted}
        lost = sorted(path for path in missing if path in deleted or not file_set.exists(path))
        wrong += [f"{shown(path)!r} is missing" for path in lost]
        more = [f"and {len(wrong) - _NAMED:,} more"] if len(wrong) > _NAMED else []
        return "; ".join(wrong[:_NAMED] + more) or None


def _listed(content: bytes, path: str) -> dict[str, str]:
    """Return the checksums of a list, by path.

    :raises CheckFailedError: a line is none.
    """
    listed = {}
    for number, line in enumerate(content.splitlines(), 1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise CheckFailedError(
                operation="read",
                subject=f"line {number} of {shown(path)!r}",
                cause="it is not a SHA-256 in hex, followed by a name",
                hint="Write the list by `sha256sum`.",
            )
        name = _ESCAPE.sub(_unescaped, found[3]) if found[1] else found[3]
        listed[os.fsdecode(name.removeprefix(b"./"))] = found[2].decode().lower()
    return listed


def _unescaped(found: re.Match[bytes]) -> bytes:
    return {b"n": b"\n", b"r": b"\r"}.get(found[1], found[1])


def _check_bound(check: object, count: int) -> None:
    if isinstance(count, bool) or count < 1:
        raise ConfigurationError(
            operation="use", subject=f"{check}", cause="it checks nothing", hint="Give at least 1."
        )


def judge(checks: tuple[FileSetCheck, ...], file_set: CopiedFileSet) -> None:
    """Judge a file set by each check.

    :raises CheckFailedError: something is wrong with it.
    """
    wrong = [f"{check}: {found}" for check in checks if (found := check.judge(file_set)) is not None]
    if wrong:
        raise CheckFailedError(
            operation="publish",
            subject=f"file set {file_set.urn!r}",
            cause=". ".join(wrong),
            hint="Correct the source, or the check. Nothing of it was published; the next run copies it anew.",
        )


def totals_of(published: Published) -> SourceTotals:
    """Return what the source has of a file set, according to its plan."""
    return next((found for unit, _ in published if (found := Bundle.of(unit).totals) is not None), SourceTotals(0, 0))
