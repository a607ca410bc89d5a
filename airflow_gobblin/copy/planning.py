"""The plan of a file set: the difference of source and target, judged and cut into bundles.

It is made in one pass over both listings, in bounded memory. Whatever forbids it is known at their ends at the latest: then the
last unit raises, and nothing of the plan is carried out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from airflow_gobblin.copy.bundles import Act, CopyFile, Doomed, FolderEntry, bundled, units_of
from airflow_gobblin.copy.comparing import Comparison
from airflow_gobblin.copy.diff import Change, Difference, differences, without_clashes
from airflow_gobblin.copy.entries import Attributes, Entry, EntryKind, shown
from airflow_gobblin.copy.filters import Filter
from airflow_gobblin.copy.finders import FileSet, file_sets_of
from airflow_gobblin.copy.options import Existing, Links
from airflow_gobblin.copy.trees import Tree, joined, open_tree
from airflow_gobblin.copy.work import CopyBinding, CopyWork
from airflow_gobblin.errors import ConfigurationError, DifferenceError, SourceError, TargetError
from airflow_gobblin.job import WorkPlan, WorkRequest
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.storage.files.base import contained, each
from airflow_gobblin.storage.locations import local_path, object_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections, GuardedConnections
    from airflow_gobblin.storage.files.base import Files

_NAMED = 20
"""How many files an error names."""


def find_file_sets(work: CopyWork, connections: Connections) -> tuple[FileSet, ...]:
    """Return the file sets of a mirror. See `Work.datasets`.

    :raises SourceError: the source can't be listed, or nothing is found in it.
    :raises ConfigurationError: the filter is malformed, or two file sets are in one another's way.
    """
    tree = open_tree(work.source, connections, work.links)
    return file_sets_of(work.finder, tree, work.mirror, filter_of(work))


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


def plan_copy(
    work: CopyWork,
    dataset: FileSet,
    states: Mapping[str, DatasetState],
    request: WorkRequest,
    files: Files,
    connections: GuardedConnections,
) -> WorkPlan | None:
    """Plan a file set; `None` if its target is like its source. See `Work.plan`."""
    units = units_of(bundled(_Survey.of(work, dataset, files, connections).acts()), dataset.urn)
    first = next(units, None)
    if first is None:
        return None
    return WorkPlan(chain((first,), units), dataset.folder, CopyBinding(dataset.source_folder))


@dataclass
class _Open:
    """A folder that the pass is in.

    :param used: whether the target needs it, for what is copied into it.
    :param touched: whether something in it, not in its folders, is made, replaced or deleted.
    :param left: whether the target has something in it that stays.
    """

    source: Entry | None
    target: Entry | None
    path: str
    used: bool = False
    touched: bool = False
    left: bool = False


@dataclass
class _Names:
    """Some paths, of which only the first are kept."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        """Add a path."""
        self.count += 1
        if len(self.first) < _NAMED:
            self.first.append(shown(path))

    def __str__(self) -> str:
        more = f" and {self.count - len(self.first):,} more" if self.count > len(self.first) else ""
        return ", ".join(map(repr, self.first)) + more


@dataclass
class _Survey:
    """The pass over one file set's listings.

    :param wanted: the mirror's filter.
    :param files: the target's files, which know how many calls are worth making at once.
    :param on_disk: whether the target has folders.
    """

    work: CopyWork
    dataset: FileSet
    source: Tree
    target: Tree
    wanted: Filter
    files: Files
    on_disk: bool
    sources: int = 0
    targets: int = 0
    in_the_way: _Names = field(default_factory=_Names)
    doomed: _Names = field(default_factory=_Names)

    @classmethod
    def of(cls, work: CopyWork, dataset: FileSet, files: Files, connections: Connections) -> _Survey:
        """Open a file set's trees."""
        return cls(
            work,
            dataset,
            open_tree(work.source, connections, work.links),
            open_tree(work.target, connections, Links.COPY),
            filter_of(work),
            files,
            object_location(work.target) is None,
        )

    def acts(self) -> Iterator[Act]:
        """Yield what has to be done, as it is found.

        :raises SourceError: the source is missing or can't be listed.
        :raises TargetError: the target can't be listed.
        :raises DifferenceError: something is in the way, or too much would be deleted.
        """
        root, target_root = self._roots()
        theirs = self._of_target() if target_root else ()
        comparison = self._comparison
        several = partial(each, self.files) if comparison.takes_calls else map
        found = differences(self._of_source(), theirs, comparison.same, several)
        stack = [_Open(root, target_root, ".")]
        for one in without_clashes(found) if self.on_disk else found:
            while not _is_in(one.path, stack[-1].path):
                yield from self._leave(stack)
            if one.entry.kind is EntryKind.FOLDER:
                stack.append(_Open(one.source, one.target, one.path, left=self._is_left(one)))
            else:
                yield from self._file(one, stack[-1])
        while stack:
            yield from self._leave(stack)
        self._judge()

    @property
    def _comparison(self) -> Comparison:
        mine, theirs = self.dataset.source_folder, self.dataset.folder
        kept_apart = self.work.keep.times and not self.on_disk
        return Comparison(self.work.compare, self.work.keep.times, kept_apart, self.source, self.target, mine, theirs)

    def _roots(self) -> tuple[Entry, Entry | None]:
        """Return the file set's folders in the source and in the target."""
        with self._listing(self.source, SourceError):
            root = self.source.entry(self.dataset.source_folder)
            if root is None or root.kind is not EntryKind.FOLDER:
                raise FileNotFoundError(f"there is no folder {shown(self.dataset.source_folder)!r}")
        with self._listing(self.target, TargetError):
            target_root = self.target.entry(self.dataset.folder)
            if target_root is not None and target_root.kind is not EntryKind.FOLDER:
                raise NotADirectoryError(f"{shown(self.dataset.folder)!r} is a {target_root.kind.value}, not a folder")
        return root, target_root

    def _of_source(self) -> Iterator[Entry]:
        """Yield the source's entries that the filter includes."""
        listed = self._named() if self.dataset.manifest else self._listed_source()
        for entry in filter(self._includes, listed):
            if entry.kind is not EntryKind.FOLDER and not self._is_skipped(entry):
                self.sources += 1
                self._check(entry)
            yield entry

    def _listed_source(self) -> Iterator[Entry]:
        return self._listed(self.source, self.dataset.source_folder, SourceError)

    def _named(self) -> Iterator[Entry]:
        """Yield the files that the manifest names, and the folders that they are in.

        :raises SourceError: a named file is missing.
        """
        open_folders: list[str] = []
        with self._listing(self.source, SourceError):
            for path, entry in each(self.files, self._look_up, self._named_paths()):
                if entry is None or entry.kind is EntryKind.FOLDER:
                    raise FileNotFoundError(
                        f"the manifest {self.dataset.manifest!r} names {shown(path)!r}: no file is there"
                    )
                while open_folders and not path.startswith(f"{open_folders[-1]}/"):
                    open_folders.pop()
                for folder in _folders_of(path)[len(open_folders) :]:
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

    def _of_target(self) -> Iterator[Entry]:
        for entry in self._listed(self.target, self.dataset.folder, TargetError):
            self.targets += entry.kind is not EntryKind.FOLDER and self._includes(entry)
            yield entry

    def _listed(self, tree: Tree, folder: str, error: type[SourceError | TargetError]) -> Iterator[Entry]:
        """Yield the entries below a folder, with paths that are relative to it."""
        skip = 0 if folder == "." else len(folder) + 1
        walk = tree.walk(folder, lambda path: self.wanted.enters(self._from_root(path[skip:])))
        with self._listing(tree, error):
            for entry in walk:
                yield _relative(entry, skip) if skip else entry

    @contextmanager
    def _listing(self, tree: Tree, error: type[SourceError | TargetError]) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            if isinstance(cause.filename, bytes):
                cause.filename = shown(os.fsdecode(cause.filename))
            raise error(
                operation="list",
                subject=f"{tree.root} for file set {self.dataset.urn!r}",
                cause=cause,
                hint="Nothing is copied or deleted by a part of a listing. Mend it and run again.",
            ) from cause

    def _from_root(self, path: str) -> str:
        """Return a path of the file set from the root of the source, as filters see it."""
        return joined(self.dataset.source_folder, path)

    def _includes(self, entry: Entry) -> bool:
        if not self.wanted.rules:
            return True
        path = self._from_root(entry.path)
        return self.wanted.enters(path) if entry.kind is EntryKind.FOLDER else self.wanted.includes(path)

    def _is_skipped(self, entry: Entry) -> bool:
        """Return whether something in the source is not copied because of what it is."""
        is_link = entry.kind is EntryKind.LINK
        return entry.kind is EntryKind.OTHER or (is_link and (self.work.links is Links.SKIP or not self.on_disk))

    def _check(self, entry: Entry) -> None:
        """Make sure that something can be copied.

        :raises DifferenceError: it is a link that can't be followed, or has a name that the target can't have.
        """
        if entry.kind is EntryKind.LINK and self.work.links is Links.FOLLOW:
            cause = (
                f"it is a link to {shown(entry.link)!r}, which is missing, out of the source's root or above the link"
            )
            raise self._error(entry.path, cause, "Remove it, exclude it by the filter, or copy links as links.")
        if not _is_plain(entry.path) or not (self.on_disk or _is_text(entry.path)):
            raise self._error(entry.path, "the target can't have this name", "Rename it, or exclude it by the filter.")

    def _file(self, one: Difference, folder: _Open) -> Iterator[Act]:
        """Yield what has to be done about a file or link."""
        if one.target is not None and self._is_left(one):
            folder.left = True
        elif one.source is None:
            assert one.target is not None
            self.doomed.add(one.path)
            folder.touched = True
            yield Doomed(one.path, one.target.identity)
        elif not self._is_skipped(one.source):
            folder.touched = folder.used = True
            yield CopyFile(one.source, None if one.target is None else one.target.identity)

    def _is_left(self, one: Difference) -> bool:
        """Return whether the target's entry stays as it is."""
        if one.change is Change.NEW:
            return False
        if one.change is Change.SAME or (one.source is not None and self._is_skipped(one.source)):
            return True
        assert one.target is not None
        if one.change is Change.GONE:
            link = one.target.kind is EntryKind.LINK and self.work.links is not Links.COPY
            odd = link or one.target.kind is EntryKind.OTHER or not _is_plain(one.path)
            return self.work.delete is None or odd or not self._includes(one.target)
        if self.work.existing is Existing.SKIP:
            return True
        if self.work.existing is Existing.FAIL or one.target.kind is EntryKind.OTHER:
            self.in_the_way.add(one.path)
        return False

    def _leave(self, stack: list[_Open]) -> Iterator[Act]:
        """Leave a folder, and yield what has to be done about it."""
        folder = stack.pop()
        above = stack[-1] if stack else folder
        if folder.source is None:
            if folder.left:
                above.left = True
            elif self.on_disk:
                above.touched = True
                yield folder.path
            return
        above.left = True
        new = folder.target is None and (folder.used or (self.work.empty_folders and folder is not above))
        if new:
            above.used = above.touched = True
        if self.on_disk and (new or (folder.target is not None and self._has_other_attributes(folder))):
            yield self._folder_entry(folder)

    def _has_other_attributes(self, folder: _Open) -> bool:
        assert folder.source is not None
        assert folder.target is not None
        kept = _settable(folder.source.attributes.kept(self.work.keep))
        return kept.differ_from(folder.target.attributes) or (
            self._keeps_time(folder) and (folder.touched or folder.source.modified != folder.target.modified)
        )

    def _keeps_time(self, folder: _Open) -> bool:
        """Return whether a folder's time is kept: not the target root's, in which we work ourselves."""
        at_root = folder.path == "." and self.dataset.folder == "."
        return self.work.keep.times and not at_root and folder.source is not None and folder.source.modified > 0

    def _folder_entry(self, folder: _Open) -> FolderEntry:
        assert folder.source is not None
        modified = folder.source.modified if self._keeps_time(folder) else 0
        return FolderEntry(folder.path, folder.source.attributes.kept(self.work.keep), modified)

    def _judge(self) -> None:
        """Judge the whole difference, at its end.

        :raises DifferenceError: it must not be carried out.
        """
        if self.in_the_way.count:
            raise self._error(
                None,
                f"{many(self.in_the_way.count, 'file')} of the target differ from the source's: {self.in_the_way}",
                "Mirror(…, existing=Existing.UPDATE) replaces such files, and Existing.SKIP leaves them.",
            )
        if not self.doomed.count or self.work.delete is None:
            return
        gone = f"{many(self.doomed.count, 'file')} of the target's {self.targets:,} would be deleted: {self.doomed}"
        if not self.sources:
            raise self._error(
                None, f"the source has no files, and {gone}", "If that is right, empty the target yourself."
            )
        if self.doomed.count > self.work.delete.at_most * self.targets:
            share = f"{self.work.delete.at_most:.4g}"
            raise self._error(
                None, f"{gone}. That is more than the share of {share}", "If that is right, raise Delete(at_most=…)."
            )

    def _error(self, path: str | None, cause: str, hint: str) -> DifferenceError:
        subject = f"file set {self.dataset.urn!r}"
        return DifferenceError(
            operation="mirror",
            subject=subject if path is None else f"{shown(path)!r} of {subject}",
            cause=cause,
            hint=f"{hint} Nothing was changed.",
        )


def _is_in(path: str, folder: str) -> bool:
    return folder == "." or path.startswith(f"{folder}/")


def _is_plain(path: str) -> bool:
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


def _folders_of(path: str) -> list[str]:
    """Return the folders that a path is in, the outermost first."""
    return [path[:at] for at, char in enumerate(path) if char == "/"]


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


def _settable(attributes: Attributes) -> Attributes:
    """Return the attributes that this process could change: owners and groups are the superuser's."""
    return attributes if os.geteuid() == 0 else Attributes(attributes.mode)
