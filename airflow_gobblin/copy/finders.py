"""Finders: which datasets a tree holds, and which file sets make up each of them.

A file set is published as a whole: it is a folder of the source with a folder of the target, and has its own chain in the
journal. A file's path alone decides which set it belongs to, so no two of a mirror share a folder or lie in one another.
"""

from __future__ import annotations

import posixpath
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, runtime_checkable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_gobblin.copy.entries import EntryKind, readable, shown
from airflow_gobblin.copy.filters import Filter, Rule
from airflow_gobblin.copy.options import Compare, Existing, Keep
from airflow_gobblin.copy.trees import Tree, joined
from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.wire import kind_of, record
from airflow_gobblin.storage.files.base import contained

DEFAULT_SET = "files"
"""The name of the file set of a dataset that has only one."""


@dataclass(frozen=True)
class FileSet:
    """A part of a dataset that is published as a whole. In the core, it is the dataset that a mirror's slots belong to.

    :param dataset: the URN of the dataset.
    :param name: its name in the dataset.
    :param source_folder: its folder in the source tree; `.` for the root.
    :param folder: its folder below the target root; `.` for the root.
    :param read_from: a description, without secrets, of what it is read from.
    :param manifest: the path, in the source tree, of a file that lists its files; empty if it is everything in its folder.
    :param metadata: what its events have in addition, as names and values; no secrets.
    :param keep: in place of the mirror's; `None`: the mirror's, and likewise for the next two.
    :param compare: in place of the mirror's.
    :param existing: in place of the mirror's.
    :param rank: file sets with a higher one get room first in a run with limits; `None`: according to `Mirror(first=…)`.
    """

    dataset: str
    name: str
    source_folder: str
    folder: str
    read_from: str = ""
    manifest: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    keep: Keep | None = None
    compare: Compare | None = None
    existing: Existing | None = None
    rank: int | None = None

    @property
    def priority(self) -> int:
        """The rank, or 0: file sets with a higher one get room first."""
        return self.rank or 0

    @property
    def urn(self) -> str:
        """The URN: the dataset's and the set's name, always both."""
        return f"{self.dataset}#{self.name}"

    @property
    def origin(self) -> str:
        """A description of what it is read from."""
        return self.read_from or self.source_folder

    @property
    def holds(self) -> Holds:
        """The kind of content that its slots hold: differences of files."""
        return Holds.DIFFERENCE


@dataclass(frozen=True)
class Place:
    """Where file sets lie in the target: a template with `{folder}`, `{dataset}`, `{set}` and `{name}`.

    These are the folder that the finder gives a file set, the URN of its dataset, its name in the dataset, and the last part of
    its folder in the source.
    """

    template: str

    def __post_init__(self) -> None:
        try:
            named = parts_of(self.template, _PARTS)
        except ValueError as error:
            raise self._refused(error) from error
        if not named:
            raise self._refused("all file sets would have one folder")

    def of(self, one: FileSet) -> str:
        """Return the folder of a file set.

        :raises ConfigurationError: it isn't a plain path below the target.
        """
        given = {
            "folder": one.folder,
            "dataset": one.dataset,
            "set": one.name,
            "name": posixpath.basename(one.source_folder),
        }
        return contained(posixpath.normpath(self.template.format_map(given)))

    def _refused(self, cause: str | Exception) -> ConfigurationError:
        return ConfigurationError(
            operation="use",
            subject=f"place={self.template!r}",
            cause=cause,
            hint=f"Write a path with {', '.join(f'{{{name}}}' for name in _PARTS)}, such as 'archive/{{folder}}'.",
        )


_PARTS = ("folder", "dataset", "set", "name")


def parts_of(template: str, known: Collection[str]) -> set[str]:
    """Return the parts that a template names, such as `{dataset}`.

    :raises ValueError: it names a part that isn't known, or is malformed.
    """
    named: set[str] = set()
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is not None and (name not in known or spec or conversion):
            raise ValueError(f"{name!r} is none of its parts")
        named.update(() if name is None else (name,))
    return named


class CopyableDataset(Protocol):
    """A dataset that a finder finds, and that knows its file sets."""

    @property
    def urn(self) -> str:
        """Its URN."""

    def file_sets(self, tree: Tree) -> Iterable[FileSet]:
        """Return its file sets, in a stable order; none if there is nothing to publish of it yet.

        :raises OSError: the tree can't be listed.
        """


@runtime_checkable
class DatasetFinder(Protocol):
    """A finder of the datasets of a tree: frozen, registered with `wire.record`, without secrets."""

    def find(self, tree: Tree, mirror: str) -> Iterable[CopyableDataset]:
        """Return the datasets, in a stable order. Nothing is changed.

        :param mirror: the name of the mirror.
        :raises OSError: the tree can't be listed.
        """


@dataclass(frozen=True)
class FolderDataset:
    """A dataset that is one folder and one file set, with the same path on both sides."""

    urn: str
    folder: str

    def file_sets(self, tree: Tree) -> tuple[FileSet, ...]:
        """Return the one file set."""
        return (FileSet(self.urn, DEFAULT_SET, self.folder, self.folder),)


@record("whole_tree")
@dataclass(frozen=True)
class WholeTree:
    """The whole tree is one dataset, named like the mirror."""

    def find(self, tree: Tree, mirror: str) -> tuple[CopyableDataset, ...]:
        """Return the one dataset."""
        return (FolderDataset(mirror, "."),)


@record("each_folder")
@dataclass(frozen=True)
class EachFolder:
    """Each folder in a folder is a dataset, named by its path.

    :param folder: that folder; the tree's root by default. Files directly in it are in no dataset.
    """

    folder: str = "."

    def __post_init__(self) -> None:
        contained(self.folder)

    def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
        """Yield a dataset for each folder."""
        for name in tree.folders(self.folder):
            path = joined(self.folder, name)
            yield FolderDataset(shown(path), path)


@record("glob")
@dataclass(frozen=True)
class Glob:
    """Each folder that matches a pattern is a dataset, named by its path.

    :param pattern: as in filters, matched from the root on, such as `*/daily` or `2026-*`.
    """

    pattern: str

    def __post_init__(self) -> None:
        Rule(True, self.pattern)  # a malformed one is refused here

    def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
        """Yield a dataset for each folder that matches, without looking at the folders in it."""
        for path in _matching(tree, self.pattern):
            yield FolderDataset(shown(path), path)


@record("manifest")
@dataclass(frozen=True)
class Manifest:
    """The files that a file names are one dataset, named like the mirror. A named file that is missing fails it.

    :param path: that file, in the source tree: one path from the tree's root per line, in UTF-8. Lines are taken as they are.
    """

    path: str

    def __post_init__(self) -> None:
        contained(self.path)

    def find(self, tree: Tree, mirror: str) -> tuple[CopyableDataset, ...]:
        """Return the one dataset."""
        return (_Grouped(mirror, (FileSet(mirror, DEFAULT_SET, ".", ".", manifest=self.path),)),)


@record("date_partitions")
@dataclass(frozen=True)
class DatePartitions:
    """Each folder that matches a pattern is a dataset, a stream, and each of its newest partitions by date is a file set.

    An older partition stays in the target as it is.

    :param streams: the streams' folders, as in `Glob`; `.` for the root alone.
    :param partition: the path of a partition in a stream, in the codes of `strftime`, down to hours; `%Y/%m/%d`.
    :param days: how many days back from now partitions are looked at.
    :param zone: the time zone of the partitions, such as `Europe/Zurich`.
    """

    streams: str = "*"
    partition: str = "%Y/%m/%d"
    days: int = 3
    zone: str = "UTC"

    def __post_init__(self) -> None:
        contained(self.partition)
        _zone(self.zone)
        if self.days < 0:
            raise _useless(
                f"DatePartitions(days={self.days})", "it looks at no day", "Give 0 for today alone, or more."
            )
        hint = "Write a date, and perhaps the hour, in the codes of strftime: '%Y/%m/%d'."
        if not _distinguishes(self.partition, _EARLY, _LATER):
            raise _useless(f"DatePartitions(partition={self.partition!r})", "it names no date", hint)
        if _distinguishes(self.partition, _EARLY, _MINUTES_LATER):
            cause = "it names more than the hour, and only hours are looked back to"
            raise _useless(f"DatePartitions(partition={self.partition!r})", cause, hint)

    def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
        """Yield a dataset for each stream."""
        names = self.names(_now(_zone(self.zone)))
        for folder in _matching(tree, self.streams):
            urn = _urn(folder, mirror)
            yield _Grouped(urn, tuple(self._sets(tree, folder, urn, names)))

    def _sets(self, tree: Tree, folder: str, urn: str, names: Sequence[str]) -> Iterator[FileSet]:
        for name in names:
            path = joined(folder, name)
            found = tree.entry(path)
            if found is not None and found.kind is EntryKind.FOLDER:
                yield FileSet(urn, name, path, path)

    def names(self, now: datetime) -> list[str]:
        """Return the paths of the partitions that are looked at, sorted."""
        hours = range(24 * self.days + 1)
        return sorted({(now - timedelta(hours=back)).strftime(self.partition) for back in hours})


@record("newest_versions")
@dataclass(frozen=True)
class NewestVersions:
    """Each folder that matches a pattern is a dataset, and its newest versions, folders named by time, are file sets.

    An older version stays in the target as it is.

    :param datasets: the datasets' folders, as in `Glob`; `.` for the root alone.
    :param name: the name of a version, in the codes of `strptime`; folders with other names are left out.
    :param count: the number of versions.
    """

    datasets: str = "*"
    name: str = "%Y-%m-%d"
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            subject = f"NewestVersions(count={self.count})"
            raise _useless(subject, "it leaves no version", "Give 1 for the newest alone, or more.")
        is_read = self._time(_EARLY.strftime(self.name)) is not None
        if "/" in self.name or not is_read or not _distinguishes(self.name, _EARLY, _LATER):
            hint = "Write one name, without a slash, in the codes of strptime: '%Y-%m-%d'."
            raise _useless(f"NewestVersions(name={self.name!r})", "the name of no folder shows a time by it", hint)

    def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
        """Yield a dataset for each folder that matches."""
        for folder in _matching(tree, self.datasets):
            urn = _urn(folder, mirror)
            timed = sorted((time, name) for name in tree.folders(folder) if (time := self._time(name)) is not None)
            paths = [(name, joined(folder, name)) for _, name in timed[-self.count :]]
            yield _Grouped(urn, tuple(FileSet(urn, shown(name), path, path) for name, path in paths))

    def _time(self, name: str) -> datetime | None:
        try:
            return datetime.strptime(name, self.name).replace(tzinfo=UTC)
        except (ValueError, re.error):  # the latter if a code is in it twice
            return None


@record("ready")
@dataclass(frozen=True)
class Ready:
    """The file sets of another finder that hold a marker: a file that their writer puts there last.

    :param finder: the other finder.
    :param marker: the marker's path in the file set's folder.
    """

    finder: DatasetFinder
    marker: str = "_SUCCESS"

    def __post_init__(self) -> None:
        contained(self.marker)
        kind_of(self.finder)

    def find(self, tree: Tree, mirror: str) -> Iterator[CopyableDataset]:
        """Yield every dataset of the other finder, with those of its file sets that are ready."""
        for dataset in self.finder.find(tree, mirror):
            yield _Grouped(dataset.urn, tuple(one for one in dataset.file_sets(tree) if self._is_ready(tree, one)))

    def _is_ready(self, tree: Tree, one: FileSet) -> bool:
        found = tree.entry(joined(one.source_folder, self.marker))
        return found is not None and found.kind is EntryKind.FILE


@dataclass(frozen=True)
class _Grouped:
    """A dataset whose file sets are known."""

    urn: str
    sets: tuple[FileSet, ...]

    def file_sets(self, tree: Tree) -> tuple[FileSet, ...]:
        return self.sets


def _matching(tree: Tree, pattern: str) -> Iterator[str]:
    """Yield the folders that match a pattern from the root on, without those inside another match."""
    if pattern == ".":
        yield "."
        return
    rule = Rule(True, f"/{pattern.strip('/')}")
    waiting = [iter([*tree.folders()])]
    above = ["."]
    while waiting:
        name = next(waiting[-1], None)
        if name is None:
            waiting.pop()
            above.pop()
            continue
        path = joined(above[-1], name)
        if rule.matches(path):
            yield path
        elif rule.may_match_in(path):
            waiting.append(iter([*tree.folders(path)]))
            above.append(path)


_EARLY, _LATER = datetime(2001, 2, 3, 4, 5, tzinfo=UTC), datetime(2012, 11, 26, 19, 38, tzinfo=UTC)
_MINUTES_LATER = _EARLY.replace(minute=38, second=7, microsecond=9)
"""Times for trying out what names show of a time; the first two have nothing in common."""


def _distinguishes(name: str, one: datetime, other: datetime) -> bool:
    """Return whether a name, in the codes of `strftime`, distinguishes two times."""
    return one.strftime(name) != other.strftime(name)


def _useless(subject: str, cause: str, hint: str) -> ConfigurationError:
    """Return the error for a finder that would never find anything."""
    return ConfigurationError(operation="use", subject=subject, cause=cause, hint=hint)


def _urn(folder: str, mirror: str) -> str:
    return mirror if folder == "." else shown(folder)


def _now(zone: ZoneInfo) -> datetime:
    return datetime.now(zone)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigurationError(
            operation="use", subject=f"time zone {name!r}", cause="it isn't known", hint="Give one such as 'UTC'."
        ) from error


def file_sets_of(
    finder: DatasetFinder,
    tree: Tree,
    mirror: str,
    wanted: Filter,
    place: Place | None = None,
    first: Sequence[str] = (),
) -> tuple[FileSet, ...]:
    """Return all file sets of a mirror, in the finder's order, without those in folders that the filter excludes.

    :param place: the template of their folders in the target; `None`: according to the finder.
    :param first: patterns of the folders of file sets that get room first in a run.
    :return: none if datasets exist, but nothing of them is ready to be published.
    :raises SourceError: the tree can't be listed, or nothing is found in it.
    :raises ConfigurationError: two file sets share a name, or one's folder lies in another's.
    """
    subject = f"the datasets of mirror {mirror!r} in {tree.root}"
    hint = "Is it mounted, and may it be read? Nothing was changed."
    try:
        datasets = [(dataset, tuple(dataset.file_sets(tree))) for dataset in finder.find(tree, mirror)]
        is_there = any(some for _, some in datasets) or tree.entry(".") is not None
    except OSError as error:
        raise SourceError(operation="find", subject=subject, cause=readable(error), hint=hint) from error
    if not is_there:
        raise SourceError(operation="find", subject=subject, cause="there is no such folder", hint=hint)
    every = [one for _, some in datasets for one in some]
    found = tuple(one for one in every if wanted.enters(one.source_folder))
    if place is not None:
        found = tuple(replace(one, folder=place.of(one)) for one in found)
    if not datasets or (every and not found):
        cause = f"{finder} finds none there" + (" that its filter includes" if every else "")
        hint = "Correct the source, the finder or the filter. Nothing was changed."
        raise SourceError(operation="find", subject=subject, cause=cause, hint=hint)
    _check_apart(found, mirror)
    ranks = [Rule(True, pattern) for pattern in reversed(first)]
    return tuple(replace(one, read_from=one.read_from or _origin(tree, one), rank=_rank(one, ranks)) for one in found)


def _rank(one: FileSet, ranks: Sequence[Rule]) -> int | None:
    """Return the rank of a file set: its own, or the place of the last rule that its folder matches, from 1 on."""
    if one.rank is not None:
        return one.rank
    return max((place for place, rule in enumerate(ranks, 1) if rule.matches(one.source_folder)), default=None)


def _origin(tree: Tree, found: FileSet) -> str:
    return tree.root if found.source_folder == "." else f"{tree.root.rstrip('/')}/{shown(found.source_folder)}"


def _check_apart(found: tuple[FileSet, ...], mirror: str) -> None:
    """Make sure that each file set has a URN and, on both sides, a folder of its own."""
    urns: dict[str, FileSet] = {}
    for one in found:
        contained(one.source_folder), contained(one.folder)
        if urns.setdefault(one.urn, one) is not one:
            raise _clash(mirror, one, urns[one.urn], "have one URN")
    _check_folders([(one.source_folder, one) for one in found], mirror)
    _check_folders([(one.folder, one) for one in found], mirror)


def _check_folders(found: list[tuple[str, FileSet]], mirror: str) -> None:
    """Make sure that no two folders of one side are the same, or lie in one another."""
    known: dict[str, FileSet] = {}
    for folder, one in found:
        if known.setdefault(folder, one) is not one:
            raise _clash(mirror, one, known[folder], "have one folder")
    for folder, one in found:
        for above in filter(known.__contains__, _above(folder)):
            raise _clash(mirror, one, known[above], "lie in one another")


def _above(folder: str) -> Iterator[str]:
    while folder != ".":
        folder = posixpath.dirname(folder) or "."
        yield folder


def _clash(mirror: str, one: FileSet, other: FileSet, how: str) -> ConfigurationError:
    return ConfigurationError(
        operation="find",
        subject=f"file set {one.urn!r} of mirror {mirror!r}",
        cause=f"it and {other.urn!r} {how}: {shown(one.source_folder)!r} and {shown(other.source_folder)!r} in the source",
        hint="Each file belongs to one file set: change the finder's pattern, or make two mirrors with targets of their own.",
    )
