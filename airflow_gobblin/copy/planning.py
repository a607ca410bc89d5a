"""The plan of a file set: the difference of source and target, judged and cut into bundles.

It is made in one pass over both listings, in bounded memory. Whatever forbids it is known at their ends at the latest: then the
last unit raises, and nothing of the plan is carried out.
"""

from __future__ import annotations

import logging
import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING

from airflow_gobblin.copy.bundles import (
    Act,
    CopyFile,
    Doomed,
    FolderEntry,
    NewAttributes,
    SourceTotals,
    bundled,
    units_of,
)
from airflow_gobblin.copy.comparing import Comparison
from airflow_gobblin.copy.conversion.converting import Converted, ConvertingOrigin, Naming, is_excluded, without_doubles
from airflow_gobblin.copy.diff import Change, Difference, differences, without_clashes
from airflow_gobblin.copy.entries import Entry, EntryKind, readable, shown
from airflow_gobblin.copy.filters import Filter
from airflow_gobblin.copy.finders import FileSet, Place, file_sets_of
from airflow_gobblin.copy.options import Compare, Existing, Links
from airflow_gobblin.copy.owners import in_form, may_be_set, settable
from airflow_gobblin.copy.transfer.streams import TreeOrigin
from airflow_gobblin.copy.trees import OWN_FOLDER, Tree, folders_of, joined, open_tree
from airflow_gobblin.copy.work import CopyBinding, CopyWork
from airflow_gobblin.errors import ConfigurationError, DifferenceError, SourceError, TargetError
from airflow_gobblin.job import WorkPlan, WorkRequest
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.storage.files.base import Attributes, contained, each
from airflow_gobblin.storage.locations import local_path, object_location, path_below, remote_location, server_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections, GuardedConnections
    from airflow_gobblin.storage.files.base import Files, Keeps

log = logging.getLogger(__name__)

_LONGEST_KEY = 1024
"""The maximum length of an object's key, in bytes."""
_NAMED = 20
"""How many files an error names."""


def find_file_sets(work: CopyWork, connections: Connections) -> tuple[FileSet, ...]:
    """Return the file sets of a mirror. See `Work.datasets`.

    :raises SourceError: the source can't be listed, or nothing is found in it.
    :raises ConfigurationError: the filter is malformed, two file sets are in one another's way, or one tree lies in the other.
    """
    _check_trees(work)
    tree = open_tree(work.source, connections, work.links)
    place = Place(work.place) if work.place else None
    return file_sets_of(work.finder, tree, work.mirror, filter_of(work), place, work.first)


def _check_trees(work: CopyWork) -> None:
    """Make sure that no tree lies in the other through symbolic links, which their locations don't show.

    :raises ConfigurationError: one does.
    """
    if remote_location(work.source) is not None or remote_location(work.target) is not None:
        return
    paths = (local_path(at, operation="use", subject=f"tree {at!r}") for at in (work.source, work.target))
    source, target = map(os.path.realpath, paths)
    if path_below(source, target) is not None or path_below(target, source) is not None:
        raise ConfigurationError(
            operation="mirror",
            subject=f"{work.source!r} to {work.target!r}",
            cause=f"one lies in the other: they are {shown(source)!r} and {shown(target)!r}, without links",
            hint="Give trees that are apart: a copy would be copied again and again. Nothing was changed.",
        )


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
    survey = Survey.of(work, dataset, files, connections)
    units = units_of(bundled(survey.acts(), work.split_above), dataset.urn)
    first = next(units, None)
    if first is None:
        return None
    new_folder = survey.on_disk and survey.target_root is None
    binding = CopyBinding(dataset.source_folder, dataset.keep, dataset.compare, new_folder)
    return WorkPlan(chain((first,), units), dataset.folder, binding, metadata=dataset.metadata)


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
class Survey:
    """The pass over one file set's listings.

    :param wanted: the mirror's filter.
    :param files: the target's files, which know how many calls are worth making at once.
    :param on_disk: whether the target has folders.
    :param on_server: whether it is an HDFS.
    :param key_prefix: the start of the target's keys; `.` for none.
    :param target_root: the file set's folder in the target, once the pass has begun.
    :param origin: reads the source's files as they are converted.
    :param converted: the source's entries as the target will have them, if some have another name there.
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
    target_root: Entry | None = None
    sources: int = 0
    source_bytes: int = 0
    targets: int = 0
    in_the_way: _Names = field(default_factory=_Names)
    doomed: _Names = field(default_factory=_Names)
    not_kept: _Names = field(default_factory=_Names)
    not_writable: _Names = field(default_factory=_Names)

    @classmethod
    def of(cls, work: CopyWork, dataset: FileSet, files: Files, connections: Connections) -> Survey:
        """Open a file set's trees."""
        place = object_location(work.target)
        source = open_tree(work.source, connections, work.links, work.keep)
        naming, by_content = Naming.of(work.convert, work.unpack), work.compare is Compare.CHECKSUM
        mine = dataset.source_folder
        origin = ConvertingOrigin(TreeOrigin(source, mine), naming.chain, source, mine, connections)
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
        )

    @cached_property
    def keeps(self) -> Keeps:
        """What the target keeps of attributes."""
        return self.files.keeps

    def acts(self) -> Iterator[Act | SourceTotals]:
        """Yield what has to be done, as it is found; if there are checks, and something to do, what the source has at the end.

        :raises SourceError: the source is missing or can't be listed.
        :raises TargetError: the target can't be listed.
        :raises DifferenceError: something is in the way, or too much would be deleted.
        """
        comparison = self.comparison
        idle = True
        for act in self.found(comparison.same, takes_calls=comparison.takes_calls):
            idle = False
            yield act
        self._judge()
        if self.work.checks and not idle:
            yield SourceTotals(self.sources, self.source_bytes)

    def found(self, same: Callable[[Entry, Entry], bool], *, takes_calls: bool) -> Iterator[Act]:
        """Yield what would have to be done, whether it may be or not. Errors are those of `acts`.

        :param same: whether the target's file is like the source's.
        :param takes_calls: whether that takes calls of the trees.
        """
        root, self.target_root = self._roots()
        theirs = self._of_target() if self.target_root else ()
        several = partial(each, self.files) if takes_calls else map
        found = differences(self._of_source(), theirs, same, several)
        if self.converted is not None:
            found = (one for one in found if one.target is not None or not is_excluded(one.source))
        stack = [_Open(root, self.target_root, ".")]
        for one in without_clashes(found) if self.on_disk else found:
            while not _is_in(one.path, stack[-1].path):
                yield from self._leave(stack)
            if one.entry.kind is EntryKind.FOLDER:
                stack.append(_Open(one.source, one.target, one.path, left=self._is_left(one)))
            else:
                yield from self._file(one, stack[-1])
        while stack:
            yield from self._leave(stack)

    @property
    def comparison(self) -> Comparison:
        """The comparison of its files, as the mirror has it."""
        mine, theirs = self.dataset.source_folder, self.dataset.folder
        kept_apart = self.work.keep.times and not self.on_disk
        return Comparison(
            self.work.compare,
            self.work.keep.times,
            kept_apart,
            self.source,
            self.target,
            self.origin.blocks,
            mine,
            theirs,
        )

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
        for entry in filter(self._includes, listed) if self.converted is None else self._as_in_target(listed):
            if entry.kind is not EntryKind.FOLDER and not self._is_skipped(entry):
                self.sources += 1
                self.source_bytes += entry.size
                self._check(entry)
            yield entry

    def _as_in_target(self, listed: Iterator[Entry]) -> Iterator[Entry]:
        """Yield entries under their names in the target, which may have another order.

        :raises DifferenceError: two files would have one name.
        """
        assert self.converted is not None
        return without_doubles(self.converted.entries(listed, self._includes), self._is_skipped, self._error)

    def _listed_source(self) -> Iterator[Entry]:
        return self._listed(self.source, self.dataset.source_folder, SourceError, self._may_include)

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

    def _of_target(self) -> Iterator[Entry]:
        for entry in self._listed(self.target, self.dataset.folder, TargetError, self._enters):
            self.targets += entry.kind is not EntryKind.FOLDER and self._could_come(entry)
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
            raise error(
                operation="list",
                subject=f"{tree.root} for file set {self.dataset.urn!r}",
                cause=readable(cause),
                hint="Nothing is copied or deleted by a part of a listing. Mend it and run again.",
            ) from cause

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

    def _could_come(self, entry: Entry) -> bool:
        """Return whether something in the target has a name that something would get that the filter includes."""
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

    def _is_skipped(self, entry: Entry) -> bool:
        """Return whether something in the source is not copied because of what it is."""
        has_links = self.on_disk and not self.on_server
        is_link = entry.kind is EntryKind.LINK
        return entry.kind is EntryKind.OTHER or (is_link and (self.work.links is Links.SKIP or not has_links))

    def _check(self, entry: Entry) -> None:
        """Make sure that something can be copied.

        :raises DifferenceError: it is a link that can't be followed, or has a name that the target can't have.
        """
        if entry.kind is EntryKind.LINK and self.work.links is Links.FOLLOW:
            cause = (
                f"it is a link to {shown(entry.link)!r}, which is missing, out of the source's root or above the link"
            )
            raise self._error(entry.path, cause, "Remove it, exclude it by the filter, or copy links as links.")
        if cause := self._unfit(entry.path):
            raise self._error(entry.path, cause, "Rename it, or exclude it by the filter.")

    def _unfit(self, path: str) -> str:
        """Return why the target can't have a name; nothing if it can."""
        if path.partition("/")[0] == OWN_FOLDER or not _is_plain(path) or not self._can_be(path):
            return "the target can't have this name"
        if self.on_disk:
            return ""
        size = len(joined(self.key_prefix, joined(self.dataset.folder, path)).encode())
        return f"its key would have {size:,} bytes, and may have {_LONGEST_KEY:,}" if size > _LONGEST_KEY else ""

    def _can_be(self, path: str) -> bool:
        """Return whether the target can have a name: on a disk it is any, elsewhere text, and in HDFS without colons."""
        if self.on_disk and not self.on_server:
            return True
        return _is_text(path) and not (self.on_server and ":" in path)

    def _file(self, one: Difference, folder: _Open) -> Iterator[Act]:
        """Yield what has to be done about a file or link."""
        if one.target is not None and self._is_left(one):
            folder.left = True
            yield from self._new_attributes(one)
            return
        if one.target is not None and self._is_protected(one.target, folder):
            self.not_writable.add(one.path)
        if one.source is None:
            assert one.target is not None
            self.doomed.add(one.path)
            folder.touched = True
            yield Doomed(one.path, one.target.identity)
        elif not self._is_skipped(one.source):
            folder.touched = folder.used = True
            yield CopyFile(one.source, None if one.target is None else one.target.identity)

    def _new_attributes(self, one: Difference) -> Iterator[Act]:
        """Yield what has to be done about the attributes of a file or link whose content is right."""
        if one.change is not Change.SAME or not self.work.keep.in_place or self.work.existing is Existing.SKIP:
            return
        assert one.source is not None
        assert one.target is not None
        wanted = settable(self.wanted_attributes(one.source), one.target.attributes, self.keeps)
        if self._is_skipped(one.source) or not wanted.differing(one.target.attributes):
            return
        if self.work.existing is Existing.FAIL:
            self.in_the_way.add(one.path)
        yield NewAttributes(one.path, one.target.identity, wanted)

    def wanted_attributes(self, source: Entry) -> Attributes:
        """Return the attributes of a source's entry that are to be kept, as the target has them."""
        wanted = in_form(self.work.keep.of(source.attributes), self.keeps)
        # The size of blocks is that of the first copy: it can't be set.
        return replace(wanted, mode=None if source.kind is EntryKind.LINK else wanted.mode, block_size=None)

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
            return self.work.delete is None or odd or not self._could_come(one.target)
        if self.work.existing is Existing.SKIP:
            return True
        if self.work.existing is Existing.FAIL or one.target.kind is EntryKind.OTHER:
            self.in_the_way.add(one.path)
        return False

    def _leave(self, stack: list[_Open]) -> Iterator[Act]:
        """Leave a folder, and yield what has to be done about it."""
        folder = stack.pop()
        above = stack[-1] if stack else folder
        if folder.touched and self.on_disk and not self._may_change(folder):
            self.not_writable.add(folder.path)
        if folder.source is None:
            if folder.left:
                above.left = True
            elif self.on_disk:
                above.touched = True
                yield folder.path
            return
        above.left = True
        new = folder.target is None and (folder.used or (self.work.empty_folders and not self._is_target_root(folder)))
        if new:
            above.used = above.touched = True
        if not self.on_disk or not (new or folder.target):
            return
        if not self._keeps_all(folder):
            self.not_kept.add(folder.path)
        if new or self._has_other_attributes(folder):
            yield self._folder_entry(folder)

    def _may_change(self, folder: _Open) -> bool:
        """Return whether this process may make and remove names in a folder of the target; `True` if it will make it itself."""
        if folder.target is not None:
            return self.files.may_change(self._in_files(self._in_target(folder.path)))
        if folder.path != ".":
            return True
        at = self.dataset.folder
        while at != "." and self.target.entry(at) is None:
            at = posixpath.dirname(at) or "."
        return self.target.entry(at) is None or self.files.may_change(self._in_files(at))

    def _in_target(self, path: str) -> str:
        """Return the path in the target of a path of the file set."""
        return self.dataset.folder if path == "." else joined(self.dataset.folder, path)

    def _in_files(self, path: str) -> str:
        """Return the path below the workspace, the root of its files, of a path in the target."""
        target = path_below(self.work.workspace, self.work.target)
        return "/".join(part for part in (target or ".", path) if part != ".") or "."

    def _is_protected(self, entry: Entry, folder: _Open) -> bool:
        """Return whether a folder of the target, such as `/tmp`, lets only the owners of its files remove them."""
        of, others = _has(folder), (None, self.keeps.user)
        sticky = of is not None and of.mode is not None and bool(of.mode & stat.S_ISVTX) and of.owner not in others
        return sticky and not self.keeps.sets_owners and entry.attributes.owner not in others

    def _has_other_attributes(self, folder: _Open) -> bool:
        assert folder.source is not None
        assert folder.target is not None
        return bool(self._kept(folder).differing(folder.target.attributes)) or (
            self._keeps_time(folder) and (folder.touched or self._time(folder.source) != folder.target.modified)
        )

    def _wants_time(self, folder: _Open) -> bool:
        """Return whether a folder's time is to be kept: not the target root's, in which we work ourselves."""
        wanted = self.work.keep.times and not self._is_target_root(folder)
        return wanted and folder.source is not None and folder.source.modified > 0

    def _is_target_root(self, folder: _Open) -> bool:
        return folder.path == "." and self.dataset.folder == "."

    def _keeps_time(self, folder: _Open) -> bool:
        return self._wants_time(folder) and may_be_set(_has(folder), self.keeps)

    def _kept(self, folder: _Open) -> Attributes:
        """Return the attributes of a folder that are to be kept, and can be."""
        assert folder.source is not None
        return settable(self.wanted_attributes(folder.source), _has(folder), self.keeps, folder=True)

    def _keeps_all(self, folder: _Open) -> bool:
        """Return whether everything that is to be kept of a folder can be."""
        assert folder.source is not None
        wanted, asked = self.wanted_attributes(folder.source), self.work.keep.of(folder.source.attributes)
        all_kept = self._kept(folder) == wanted and not (
            (asked.acl and wanted.acl is None) or (asked.extended and wanted.extended != asked.extended)
        )
        return all_kept and self._keeps_time(folder) == self._wants_time(folder)

    def _folder_entry(self, folder: _Open) -> FolderEntry:
        assert folder.source is not None
        modified = self._time(folder.source) if self._keeps_time(folder) else 0
        return FolderEntry(folder.path, self._kept(folder), modified)

    def _time(self, entry: Entry) -> int:
        """Return the time of an entry as the target keeps it."""
        return entry.modified - entry.modified % self.keeps.time

    def _judge(self) -> None:
        """Judge the whole difference, at its end.

        :raises DifferenceError: it must not be carried out.
        """
        if self.not_kept.count:
            self._report_not_kept()
        if self.not_writable.count:
            raise self._error(
                None,
                f"user {os.geteuid()} may not change {self.not_writable} in the target",
                "Let that user write to these folders, and remove these files from theirs; is it mounted to be written to?",
            )
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

    def _report_not_kept(self) -> None:
        """Report the folders whose attributes this process can't keep.

        :raises DifferenceError: it has to.
        """
        told = f"not everything is kept of {many(self.not_kept.count, 'folder')}: {self.not_kept}"
        if self.work.keep.strict:
            hint = "Let it run as the superuser, or as the owner of these folders; or take letters out of `keep`, or `strict`."
            raise self._error(None, f"{told}, as user {os.geteuid()} can't set it, or the target can't keep it", hint)
        log.warning("File set %r: %s", self.dataset.urn, told)

    def _error(self, path: str | None, cause: str, hint: str) -> DifferenceError:
        subject = f"file set {self.dataset.urn!r}"
        return DifferenceError(
            operation="mirror",
            subject=subject if path is None else f"{shown(path)!r} of {subject}",
            cause=cause,
            hint=f"{hint} Nothing was changed.",
        )


def _has(folder: _Open) -> Attributes | None:
    """Return the attributes that a folder has in the target; `None` if it isn't there."""
    return None if folder.target is None else folder.target.attributes


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
