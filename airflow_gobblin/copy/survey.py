"""The survey of a file set: what must be done to make its target like its source, and whether that is allowed.

It is made in one pass over both listings, in bounded memory. Anything that forbids it is known by their ends at the latest; the
survey then raises an error, and none of it is carried out.
"""

from __future__ import annotations

import logging
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from airflow_gobblin.copy.bundles import Act, CopyFile, Doomed, FolderEntry, NewAttributes, SourceTotals
from airflow_gobblin.copy.comparing import Comparison
from airflow_gobblin.copy.conversion.converting import is_excluded
from airflow_gobblin.copy.diff import Change, Difference, differences, without_clashes
from airflow_gobblin.copy.entries import Entry, EntryKind, shown
from airflow_gobblin.copy.finders import FileSet
from airflow_gobblin.copy.options import Existing, Links
from airflow_gobblin.copy.owners import in_form, may_be_set, settable, to_keep
from airflow_gobblin.copy.sides import Sides, is_plain
from airflow_gobblin.copy.trees import folders_of, joined
from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import many
from airflow_gobblin.storage.files.base import Attributes, each
from airflow_gobblin.storage.locations import path_below

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections
    from airflow_gobblin.storage.files.base import Files, Keeps

log = logging.getLogger(__name__)

_NAMED = 20
"""How many files an error names."""


@dataclass
class _Open:
    """A folder that the pass is in.

    :param used: whether the target needs it, for what is copied into it.
    :param touched: whether something directly in it, not in its folders, is made, replaced or deleted.
    :param left: whether the target has something in it that stays.
    :param files: how many files are copied into it and its folders.
    :param folders: how many new folders are below it.
    :param bare: whether one of these gets no file.
    """

    source: Entry | None
    target: Entry | None
    path: str
    used: bool = False
    touched: bool = False
    left: bool = False
    files: int = 0
    folders: int = 0
    bare: bool = False


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
    """The pass over a file set's two sides.

    :param target_root: the file set's folder in the target, once the pass has begun.
    """

    sides: Sides
    target_root: Entry | None = None
    in_the_way: _Names = field(default_factory=_Names)
    doomed: _Names = field(default_factory=_Names)
    not_kept: _Names = field(default_factory=_Names)
    not_writable: _Names = field(default_factory=_Names)
    left_out: _Names = field(default_factory=_Names)

    @classmethod
    def of(cls, work: CopyWork, dataset: FileSet, files: Files, connections: Connections) -> Survey:
        """Open a file set's trees."""
        return cls(Sides.of(work, dataset, files, connections))

    @property
    def work(self) -> CopyWork:
        """The work on the file set."""
        return self.sides.work

    @property
    def dataset(self) -> FileSet:
        """The file set."""
        return self.sides.dataset

    @cached_property
    def keeps(self) -> Keeps:
        """The attributes that the target keeps."""
        return self.sides.files.keeps

    def acts(self) -> Iterator[Act | SourceTotals]:
        """Yield what must be done, as it is found, and at the end the source's totals, if there are checks and something to do.

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
            yield SourceTotals(self.sides.sources, self.sides.source_bytes)

    def found(self, same: Callable[[Entry, Entry], bool], *, takes_calls: bool) -> Iterator[Act]:
        """Yield what would have to be done, whether it is allowed or not. Errors are those of `acts`.

        :param same: whether the target's file is like the source's.
        :param takes_calls: whether that takes calls of the trees.
        """
        root, self.target_root = self.sides.roots()
        theirs = self.sides.of_target() if self.target_root else ()
        several = partial(each, self.sides.files) if takes_calls else map
        found = differences(self.sides.of_source(), theirs, same, several)
        if self.sides.converted is not None:
            found = (one for one in found if one.target is not None or not is_excluded(one.source))
        stack = [_Open(root, self.target_root, ".")]
        for one in without_clashes(found) if self.sides.on_disk else found:
            entry = one.entry
            while not _is_in(entry.path, stack[-1].path):
                yield from self._leave(stack)
            if entry.kind is EntryKind.FOLDER:
                stack.append(_Open(one.source, one.target, entry.path, left=self._is_left(one)))
            else:
                yield from self._file(one, stack[-1])
        while stack:
            yield from self._leave(stack)

    @property
    def comparison(self) -> Comparison:
        """The comparison of its files, as the mirror has it."""
        mine, theirs = self.dataset.source_folder, self.dataset.folder
        in_metadata = self.work.keep.times and self.sides.files.uploads is not None
        return Comparison(
            self.work.compare,
            in_metadata or (self.work.keep.times and self.sides.on_disk),
            in_metadata,
            self.sides.source,
            self.sides.target,
            self.sides.origin.blocks,
            mine,
            theirs,
            self.keeps.time,
            self.sides.pace,
        )

    def _file(self, one: Difference, folder: _Open) -> Iterator[Act]:
        """Yield what has to be done about a file or link."""
        source = one.source
        if source is not None and source.kind is not EntryKind.FILE and self.sides.cant_be_copied(source):
            self.left_out.add(one.path)
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
        elif not self.sides.is_skipped(one.source):
            folder.touched = folder.used = True
            folder.files += 1
            yield CopyFile(one.source, None if one.target is None else one.target.identity)

    def _new_attributes(self, one: Difference) -> Iterator[Act]:
        """Yield what has to be done about the attributes of a file or link whose content is right."""
        if one.change is not Change.SAME or not self.work.keep.in_place or self.work.existing is Existing.SKIP:
            return
        assert one.source is not None
        assert one.target is not None
        wanted = settable(self.wanted_attributes(one.source), one.target.attributes, self.keeps)
        if self.sides.is_skipped(one.source) or not wanted.differing(one.target.attributes):
            return
        if self.work.existing is Existing.FAIL:
            self.in_the_way.add(one.path)
        yield NewAttributes(one.path, one.target.identity, wanted)

    def wanted_attributes(self, source: Entry) -> Attributes:
        """Return the attributes of a source's entry that are to be kept, as the target has them."""
        return to_keep(source, self.work.keep, self.keeps)

    def _is_left(self, one: Difference) -> bool:
        """Return whether the target's entry stays as it is."""
        if one.change is Change.NEW:
            return False
        if one.change is Change.SAME or (one.source is not None and self.sides.is_skipped(one.source)):
            return True
        assert one.target is not None
        if one.change is Change.GONE:
            link = one.target.kind is EntryKind.LINK and self.work.links is not Links.COPY
            odd = link or one.target.kind is EntryKind.OTHER or not is_plain(one.path)
            return self.work.delete is None or odd or not self.sides.could_come(one.target)
        if self.work.existing is Existing.SKIP:
            return True
        if self.work.existing is Existing.FAIL or one.target.kind is EntryKind.OTHER:
            self.in_the_way.add(one.path)
        return False

    def _leave(self, stack: list[_Open]) -> Iterator[Act]:
        """Leave a folder, and yield what has to be done about it."""
        folder = stack.pop()
        above = stack[-1] if stack else folder
        if folder.touched and self.sides.on_disk and not self._may_change(folder):
            self.not_writable.add(folder.path)
        if folder.source is None:
            if folder.left:
                above.left = True
            elif self.sides.on_disk:
                above.touched = True
                yield folder.path
            return
        above.left = True
        new = folder.target is None and (folder.used or (self.work.empty_folders and not self._is_target_root(folder)))
        if new:
            above.used = above.touched = True
        if new and stack:
            above.files += folder.files
            above.folders += folder.folders + 1
            above.bare |= folder.bare or not folder.files
        if not self.sides.on_disk or not (new or folder.target):
            return
        changes = new or self._has_other_attributes(folder)
        if (changes or self.work.keep.strict) and not self._keeps_all(folder):
            self.not_kept.add(folder.path)
        if changes:
            yield self._folder_entry(folder, whole=new and not folder.bare)

    def _may_change(self, folder: _Open) -> bool:
        """Return whether this process may make and remove names in a folder of the target; `True` if it will make the folder."""
        if folder.target is not None:
            return self.sides.files.may_change(self._in_files(self._in_target(folder.path)))
        if folder.path != ".":
            return True
        missing = (*self.missing_above(), self.dataset.folder)
        at = posixpath.dirname(missing[0]) or "."
        return self.sides.target.entry(at) is None or self.sides.files.may_change(self._in_files(at))

    def missing_above(self) -> tuple[str, ...]:
        """Return the folders above the file set's folder that the target doesn't have, the outermost first."""
        return tuple(path for path in folders_of(self.dataset.folder) if self.sides.target.entry(path) is None)

    def check_keep(self) -> None:
        """Make sure that the owner and the group to be given are known, and that the target keeps permissions where it has to.

        :raises ConfigurationError: one isn't, or it doesn't.
        """
        keep = self.work.keep
        if keep.strict and keep.narrows and not self.keeps.permission:
            raise ConfigurationError(
                operation="mirror",
                subject=f"file set {self.dataset.urn!r}",
                cause="the target keeps no permissions: those that a new file is given have no effect",
                hint="Take 'p' and 'a', permission=… or strict=True out of `keep`. Nothing was changed.",
            )
        known = in_form(Attributes(owner=keep.owner, group=keep.group), self.keeps)
        for what, given, found in (("user", keep.owner, known.owner), ("group", keep.group, known.group)):
            if given is not None and found is None:
                raise ConfigurationError(
                    operation="mirror",
                    subject=f"file set {self.dataset.urn!r}",
                    cause=f"this host knows no {what} {given!r}, to whom its copies are to belong",
                    hint="Correct Keep(…), or make it known on the hosts of all tasks. Nothing was changed.",
                )

    def _in_target(self, path: str) -> str:
        """Return a path of the file set as a path in the target."""
        return self.dataset.folder if path == "." else joined(self.dataset.folder, path)

    def _in_files(self, path: str) -> str:
        """Return a path in the target as a path below the workspace, the root of its files."""
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
        """Return whether a folder's time is to be kept. The target root's isn't, since we work in it ourselves."""
        wanted = self.work.keep.times and not self._is_target_root(folder)
        return wanted and folder.source is not None and folder.source.modified > 0

    def _is_target_root(self, folder: _Open) -> bool:
        return folder.path == "." and self.dataset.folder == "."

    def _keeps_time(self, folder: _Open) -> bool:
        return self._wants_time(folder) and self.keeps.time > 0 and may_be_set(_has(folder), self.keeps)

    def _kept(self, folder: _Open) -> Attributes:
        """Return the attributes of a folder that are to be kept, and can be."""
        assert folder.source is not None
        return settable(self.wanted_attributes(folder.source), _has(folder), self.keeps, folder=True)

    def _keeps_all(self, folder: _Open) -> bool:
        """Return whether everything that is to be kept of a folder can be."""
        assert folder.source is not None
        wanted, asked = self.wanted_attributes(folder.source), self.work.keep.of(folder.source.attributes, folder=True)
        all_kept = self._kept(folder) == wanted and not (
            (asked.mode is not None and wanted.mode is None)
            or (asked.acl and wanted.acl is None)
            or (asked.extended and wanted.extended != asked.extended)
        )
        return all_kept and self._keeps_time(folder) == self._wants_time(folder)

    def _folder_entry(self, folder: _Open, *, whole: bool) -> FolderEntry:
        """Return what the target must have.

        :param whole: whether it is new, and something is copied into each of its folders.
        """
        assert folder.source is not None
        modified = self._time(folder.source) if self._keeps_time(folder) else 0
        inside = (folder.files, folder.folders) if whole else ()
        return FolderEntry(folder.path, self._kept(folder), modified, *inside)

    def _time(self, entry: Entry) -> int:
        """Return the time of an entry as the target keeps it."""
        return entry.modified - entry.modified % self.keeps.time

    def _judge(self) -> None:
        """Judge the whole difference, at its end.

        :raises DifferenceError: it must not be carried out.
        """
        if self.left_out.count:
            what = "not copied, as they are links, which the target can't have, or neither files nor folders"
            log.warning("File set %r: %s: %s", self.dataset.urn, what, self.left_out)
        if self.not_kept.count:
            self._report_not_kept()
        if self.not_writable.count:
            raise self.sides.error(
                None,
                f"user {os.geteuid()} may not change {self.not_writable} in the target",
                "Let that user write to these folders, and remove these files from theirs; is it mounted to be written to?",
            )
        if self.in_the_way.count:
            raise self.sides.error(
                None,
                f"{many(self.in_the_way.count, 'file')} of the target differ from the source's: {self.in_the_way}",
                "`existing`, UPDATE, has such files replaced, and SKIP has them left.",
            )
        if not self.doomed.count or self.work.delete is None:
            return
        gone = (
            f"{many(self.doomed.count, 'file')} of the target's {self.sides.targets:,} would be deleted: {self.doomed}"
        )
        if not self.sides.sources:
            raise self.sides.error(
                None, f"the source has no files, and {gone}", "If that is right, empty the target yourself."
            )
        if self.doomed.count > self.work.delete.at_most * self.sides.targets:
            share = f"{self.work.delete.at_most:.4g}"
            raise self.sides.error(
                None, f"{gone}. That is more than the share of {share}", "If that is right, raise Delete(at_most=…)."
            )

    def _report_not_kept(self) -> None:
        """Report the folders whose attributes this process can't keep.

        :raises DifferenceError: it has to.
        """
        text = f"not everything is kept of {many(self.not_kept.count, 'folder')}: {self.not_kept}"
        if self.work.keep.strict:
            hint = "Let it run as the superuser, or as the owner of these folders; or take letters out of `keep`, or `strict`."
            raise self.sides.error(
                None, f"{text}, as user {os.geteuid()} can't set it, or the target can't keep it", hint
            )
        log.warning("File set %r: %s", self.dataset.urn, text)


def _has(folder: _Open) -> Attributes | None:
    """Return the attributes that a folder has in the target; `None` if it isn't there."""
    return None if folder.target is None else folder.target.attributes


def _is_in(path: str, folder: str) -> bool:
    return folder == "." or path.startswith(f"{folder}/")
