"""The two sides of a file set: the parts of its source and target that a mirror deals with, in the order of listings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.copy.conversion.converting import (
    Converted,
    ConvertingOrigin,
    Naming,
    is_excluded,
    without_doubles,
)
from airflow_gobblin.copy.entries import Entry, EntryKind, readable, shown
from airflow_gobblin.copy.filters import Filter
from airflow_gobblin.copy.finders import FileSet
from airflow_gobblin.copy.options import Compare, Links
from airflow_gobblin.copy.transfer.bandwidth import Pace, PacedOrigin
from airflow_gobblin.copy.transfer.streams import TreeOrigin
from airflow_gobblin.copy.trees import OWN_FOLDER, Tree, folders_of, joined, open_tree
from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.errors import ConfigurationError, DifferenceError, SourceError, TargetError
from airflow_gobblin.storage.files.base import contained, each
from airflow_gobblin.storage.locations import local_path, object_location, server_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections
    from airflow_gobblin.storage.files.base import Files

_LONGEST_KEY = 1024
"""The maximum length of an object's key, in bytes."""


def filter_of(work: CopyWork) -> Filter:
    """Return a mirror's filter, whose patterns match paths from the root of its source.

    :raises ConfigurationError: it is malformed, or its file can't be read.
    """
    if not work.filter_file:
        return Filter.of(work.include, work.exclude)
    try:
        path = local_path(work.filter_file, operation="read", subject=f"filter file {work.filter_file!r}")
        with open(path, encoding="utf-8", errors="surrogateescape") as lines:
            return Filter.of(work.include, work.exclude, lines)
    except OSError as error:
        raise ConfigurationError(
            operation="read",
            subject=f"filter file {work.filter_file!r}",
            cause=error,
            hint="It has to be on the worker that plans.",
        ) from error


@dataclass
class Sides:
    """The trees of a file set, and what was found in them.

    :param wanted: the mirror's filter.
    :param files: the target's files, which know how many calls are worth making at once.
    :param on_disk: whether the target has folders.
    :param on_server: whether it is an HDFS.
    :param key_prefix: the start of the target's keys; `.` for none.
    :param origin: reads the source's files as they are converted.
    :param converted: the source's entries as the target will have them, if some have another name there.
    :param pace: the pace at which contents are read, if the mirror has a bandwidth.
    :param sources: how many of the source's files have been listed so far, with their bytes.
    :param targets: how many of the target's files that could come from the source have been listed.
    """

    work: CopyWork
    dataset: FileSet
    source: Tree
    target: Tree
    wanted: Filter
    files: Files
    on_disk: bool
    on_server: bool
    key_prefix: str
    origin: ConvertingOrigin
    converted: Converted | None
    pace: Pace | None = None
    sources: int = 0
    source_bytes: int = 0
    targets: int = 0

    @classmethod
    def of(cls, work: CopyWork, dataset: FileSet, files: Files, connections: Connections) -> Sides:
        """Open a file set's trees."""
        place = object_location(work.target)
        source = open_tree(work.source, connections, work.links, work.keep)
        naming, by_content = Naming.of(work.convert, work.unpack), work.compare is Compare.CHECKSUM
        mine = dataset.source_folder
        plain, pace = TreeOrigin(source, mine), None if work.bandwidth is None else Pace(work.bandwidth)
        paced = plain if pace is None else PacedOrigin(plain, pace)
        origin = ConvertingOrigin(paced, naming.chain, source, mine, connections)
        converted = Converted(naming, work.unpack, source, mine, by_content, origin)
        return cls(
            work,
            dataset,
            source,
            open_tree(work.target, connections, Links.COPY, work.keep),
            filter_of(work),
            files,
            place is None,
            server_location(work.target) is not None,
            (place and place.path.partition("/")[2]) or ".",
            origin,
            None if naming.changes_nothing else converted,
            pace,
        )

    def roots(self) -> tuple[Entry, Entry | None]:
        """Return the file set's folders in the source and in the target."""
        root = source_root(self.source, self.dataset)
        with self._listing(self.target, TargetError):
            target_root = self.target.entry(self.dataset.folder)
            if target_root is not None and target_root.kind is not EntryKind.FOLDER:
                raise NotADirectoryError(f"{shown(self.dataset.folder)!r} is a {target_root.kind.value}, not a folder")
        return root, target_root

    def of_source(self) -> Iterator[Entry]:
        """Yield the source's entries that the filter includes."""
        listed = self._named() if self.dataset.manifest else self._listed_source()
        if self.converted is not None:
            listed = self._as_in_target(listed)
        elif self.wanted.rules:
            listed = filter(self._includes, listed)
        for entry in listed:
            if entry.kind is not EntryKind.FOLDER and not self.is_skipped(entry):
                self.sources += 1
                self.source_bytes += entry.size
                self._check(entry)
            yield entry

    def _as_in_target(self, listed: Iterator[Entry]) -> Iterator[Entry]:
        """Yield entries under their names in the target, which may have another order.

        :raises DifferenceError: two files would have one name.
        """
        assert self.converted is not None
        return without_doubles(self.converted.entries(listed, self._includes), self.is_skipped, self.error)

    def _listed_source(self) -> Iterator[Entry]:
        return self._listed(self.source, self.dataset.source_folder, SourceError, self._may_include)

    def _named(self) -> Iterator[Entry]:
        """Yield the files that the manifest names, and the folders that they are in.

        :raises SourceError: a named file is missing, or a link where links are skipped.
        """
        open_folders: list[str] = []
        with self._listing(self.source, SourceError):
            for path, entry in each(self.files, self._look_up, self._named_paths()):
                if entry is None or entry.kind is EntryKind.FOLDER:
                    raise FileNotFoundError(
                        f"the manifest {self.dataset.manifest!r} names {shown(path)!r}: no file is there"
                    )
                if entry.kind is EntryKind.LINK and self.work.links is Links.SKIP:
                    raise OSError(
                        f"the manifest {self.dataset.manifest!r} names {shown(path)!r}: a link, and `links` has these skipped"
                    )
                while open_folders and not path.startswith(f"{open_folders[-1]}/"):
                    open_folders.pop()
                for folder in folders_of(path)[len(open_folders) :]:
                    open_folders.append(folder)
                    yield self.source.entry(folder) or Entry(folder, EntryKind.FOLDER)
                yield entry

    def _look_up(self, path: str) -> tuple[str, Entry | None]:
        return path, self.source.entry(path)

    def _named_paths(self) -> list[str]:
        """Return the paths that the manifest names, in the order of listings."""
        with self.source.open(self.dataset.manifest) as file:
            lines = {line for line in file.read().split(b"\n") if line}
        return [contained(os.fsdecode(line)) for line in sorted(lines)]

    def of_target(self) -> Iterator[Entry]:
        """Yield the target's entries."""
        for entry in self._listed(self.target, self.dataset.folder, TargetError, self._enters):
            self.targets += entry.kind is not EntryKind.FOLDER and self.could_come(entry)
            yield entry

    def _listed(
        self, tree: Tree, folder: str, error: type[SourceError | TargetError], enters: Callable[[str], bool]
    ) -> Iterator[Entry]:
        """Yield the entries below a folder, with paths that are relative to it."""
        skip = 0 if folder == "." else len(folder) + 1
        walk = tree.walk(folder, lambda path: enters(path[skip:]))
        with self._listing(tree, error):
            for entry in walk:
                yield _relative(entry, skip) if skip else entry

    @contextmanager
    def _listing(self, tree: Tree, error: type[SourceError | TargetError]) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            raise _unlisted(tree, self.dataset, readable(cause), error) from cause

    def _from_root(self, path: str) -> str:
        """Return a path of the file set from the root of the source, as filters see it."""
        return joined(self.dataset.source_folder, path)

    def _includes(self, entry: Entry) -> bool:
        if not self.wanted.rules:
            return True
        if entry.kind is EntryKind.FOLDER:
            return self._may_include(entry.path)
        return self.wanted.includes(self._from_root(entry.path))

    def _may_include(self, folder: str) -> bool:
        """Return whether the filter may include something in a folder of the source."""
        return self.wanted.enters(self._from_root(folder))

    def could_come(self, entry: Entry) -> bool:
        """Return whether something in the target has a name that something included by the filter would get."""
        if self.converted is None:
            return self._includes(entry)
        if self.converted.left_alone.intersection((*folders_of(entry.path), entry.path)):
            return False
        if entry.kind is EntryKind.FOLDER:
            return self._enters(entry.path)
        sources = self.converted.naming.sources(entry.path)
        return not self.wanted.rules or any(self.wanted.includes(self._from_root(path)) for path in sources)

    def _enters(self, folder: str) -> bool:
        """Return whether something in a folder of the target may come from something that the filter includes."""
        if self._may_include(folder):
            return True
        archives = () if self.converted is None else self.converted.naming.archives_above(f"{folder}/")
        return any(self.wanted.includes(self._from_root(path)) for path in archives)

    def is_skipped(self, entry: Entry) -> bool:
        """Return whether something in the source is not copied because of what it is."""
        if entry.kind is not EntryKind.LINK:
            return entry.kind is EntryKind.OTHER
        has_links = self.on_disk and not self.on_server
        return self.work.links is Links.SKIP or (self.work.links is Links.COPY and not has_links)

    def cant_be_copied(self, entry: Entry) -> bool:
        """Return whether something in the source is skipped although nobody asked for that."""
        asked_for = is_excluded(entry) or (entry.kind is EntryKind.LINK and self.work.links is Links.SKIP)
        return self.is_skipped(entry) and not asked_for

    def _check(self, entry: Entry) -> None:
        """Make sure that something can be copied.

        :raises DifferenceError: it is a link that can't be followed, or has a name that the target can't have.
        """
        if entry.kind is EntryKind.LINK and self.work.links is Links.FOLLOW:
            cause = (
                f"it is a link to {shown(entry.link)!r}, which is missing, out of the source's root or above the link"
            )
            raise self.error(entry.path, cause, "Remove it, exclude it by the filter, or copy links as links.")
        if cause := self._unfit(entry.path):
            raise self.error(entry.path, cause, "Rename it, or exclude it by the filter.")

    def _unfit(self, path: str) -> str:
        """Return why the target can't have a name; empty if it can."""
        if path.partition("/")[0] == OWN_FOLDER or not is_plain(path) or not self._can_be(path):
            return "the target can't have this name"
        if self.on_disk:
            return ""
        size = len(joined(self.key_prefix, joined(self.dataset.folder, path)).encode())
        return f"its key would have {size:,} bytes, and may have {_LONGEST_KEY:,}" if size > _LONGEST_KEY else ""

    def _can_be(self, path: str) -> bool:
        """Return whether the target can have a name: on a disk any, elsewhere only text, and in HDFS only text without colons."""
        if self.on_disk and not self.on_server:
            return True
        return _is_text(path) and not (self.on_server and ":" in path)

    def error(self, path: str | None, cause: str, hint: str) -> DifferenceError:
        """Return the error for the file set, or one of its paths, that can't be mirrored."""
        subject = f"file set {self.dataset.urn!r}"
        return DifferenceError(
            operation="mirror",
            subject=subject if path is None else f"{shown(path)!r} of {subject}",
            cause=cause,
            hint=f"{hint} Nothing was changed.",
        )


def is_plain(path: str) -> bool:
    """Return whether a path is one that files can have: keys of objects may be others."""
    try:
        return contained(path) == path
    except ConfigurationError:
        return False


def _is_text(path: str) -> bool:
    """Return whether a path is UTF-8, as keys of objects are."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _relative(entry: Entry, skip: int) -> Entry:
    return Entry(
        entry.path[skip:],
        entry.kind,
        entry.size,
        entry.modified,
        entry.stamp,
        entry.inode,
        entry.attributes,
        entry.link,
    )


def source_root(source: Tree, dataset: FileSet) -> Entry:
    """Return the folder of a file set in the source.

    :raises SourceError: it isn't there, is reached by a link that isn't followed, or can't be looked at.
    """
    folder = dataset.source_folder
    try:
        root = source.entry(folder)
        above = folders_of(folder) if root is not None and root.inode else ()  # object stores have no links
        linked = next((path for path in above if _is_link(source.entry(path))), None)
    except OSError as error:
        raise _unlisted(source, dataset, readable(error), SourceError) from error
    if linked is not None:
        raise _unlisted(source, dataset, f"{shown(linked)!r} is a link, which isn't followed", SourceError)
    if root is None or root.kind is not EntryKind.FOLDER:
        cause = "no folder is there" if folder == "." else f"there is no folder {shown(folder)!r}"
        raise _unlisted(source, dataset, cause, SourceError)
    return root


def _is_link(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is EntryKind.LINK


def _unlisted(
    tree: Tree, dataset: FileSet, cause: str | Exception, error: type[SourceError | TargetError]
) -> SourceError | TargetError:
    """Make the error for a tree that can't be listed."""
    return error(
        operation="list",
        subject=f"{tree.root} for file set {dataset.urn!r}",
        cause=cause,
        hint="Nothing is copied or deleted by a part of a listing. Fix that and run again.",
    )
