"""Bundles: what a work unit of a mirror holds, and how a difference is cut into them.

All bundles are about the same amount of work: at most `MOST_FILES` files of at most `MOST_BYTES`; a larger file is alone. The
members of an archive are in one bundle, whatever their number, since it is read from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from airflow_gobblin.copy.entries import NO_ATTRIBUTES, Entry, SourceFile, shown
from airflow_gobblin.model import wire
from airflow_gobblin.model.plan import ActKind, PlannedAct
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import WorkUnit
from airflow_gobblin.storage.files.base import Attributes, FileIdentity

MOST_FILES = 500
"""The maximum number of files in a bundle: a piece of a plan has 1,000 units."""
MOST_BYTES = 256 << 20
"""The maximum size of a bundle of several files; a file of this size is alone."""
WEIGHT_OF_A_FILE = 64 << 10
"""The cost of a file besides its bytes, in bytes."""
LEAST_PART = 16 << 20
"""Parts of a file begin at multiples of it."""
_PROPERTY = "bundle"
T = TypeVar("T")


class BundleKind(StrEnum):
    """The acts that a bundle describes."""

    COPY = "copy"
    """Files to copy, new or in place of others."""
    DELETE = "delete"
    """Files to delete from the target."""
    FOLDERS = "folders"
    """Folders to make or to give attributes, and folders to remove if they are empty by then."""
    ATTRIBUTES = "attributes"
    """Files of the target that get other attributes."""
    TOTALS = "totals"
    """Nothing to do: only what the source has, for checks."""


@dataclass(frozen=True, slots=True)
class CopyFile:
    """A file, or a link, to copy.

    :param entry: the source's; its path is relative to the file set's folder, and the same on both sides.
    :param replaces: the identity that the target's file had at planning, if it is to be replaced.
    """

    entry: Entry
    replaces: FileIdentity | None = None


@dataclass(frozen=True, slots=True)
class Doomed:
    """A file to delete from the target, if it is still the one that was seen at planning."""

    path: str
    identity: FileIdentity


@dataclass(frozen=True, slots=True)
class NewAttributes:
    """A file or link of the target whose content is right, but whose attributes aren't.

    :param identity: the identity that it had at planning.
    :param attributes: the attributes to give it; one that is `None` is left as it is.
    """

    path: str
    identity: FileIdentity
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A folder that the target must have.

    :param attributes: the attributes to give it; one that is `None` is left as it is.
    :param modified: the time to give it, in ns since 1970; 0 for none.
    :param files: the number of files below it, if it is new and everything in it is copied, so that it may be placed whole.
    :param folders: the number of folders below it, if it may be placed whole.
    """

    path: str
    attributes: Attributes = NO_ATTRIBUTES
    modified: int = 0
    files: int = 0
    folders: int = 0


@dataclass(frozen=True, slots=True)
class SourceTotals:
    """The numbers of files, and of their bytes, that the source has of a file set."""

    files: int
    bytes: int


@record("copy_bundle")
@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a work unit, which keeps it in its properties.

    :param acts: the kind of acts that it holds.
    :param gone_folders: folders to remove if they are empty, each after those in it.
    :param changed: files that get other attributes.
    """

    acts: BundleKind
    files: tuple[CopyFile, ...] = ()
    deletes: tuple[Doomed, ...] = ()
    folders: tuple[FolderEntry, ...] = ()
    gone_folders: tuple[str, ...] = ()
    totals: SourceTotals | None = None
    changed: tuple[NewAttributes, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the files to copy."""
        return sum(file.entry.size for file in self.files)

    @property
    def weight(self) -> int:
        """The estimated cost, in bytes."""
        count = len(self.files) + len(self.deletes) + len(self.folders) + len(self.gone_folders) + len(self.changed)
        return self.bytes + WEIGHT_OF_A_FILE * count

    @property
    def archive(self) -> SourceFile | None:
        """The archive that its files are members of, if they are."""
        source = self.files[0].entry.made_from if self.files else None
        return source if source is not None and source.member else None

    @property
    def replaced(self) -> int:
        """The number of its files that replace others."""
        return sum(file.replaces is not None for file in self.files)

    def planned(self) -> Iterator[PlannedAct]:
        """Yield what it would do, for people."""
        for file in self.files:
            kind = ActKind.COPY if file.replaces is None else ActKind.REPLACE
            yield PlannedAct(kind, shown(file.entry.path), file.entry.size)
        yield from (PlannedAct(ActKind.DELETE, shown(one.path), one.identity.size) for one in self.deletes)
        yield from (PlannedAct(ActKind.ATTRIBUTES, shown(one.path)) for one in self.changed)
        yield from (PlannedAct(ActKind.FOLDER, shown(one.path)) for one in self.folders)
        yield from (PlannedAct(ActKind.REMOVE_FOLDER, shown(path)) for path in self.gone_folders)

    @staticmethod
    def of(unit: WorkUnit) -> Bundle:
        """Return the bundle of a unit.

        :raises RecordError: the unit holds none, or one that this version doesn't know.
        """
        found: Bundle = wire.from_json(Bundle, unit.properties.get(_PROPERTY), f"unit {unit.id!r} of {unit.urn!r}")
        return found

    def unit(self, unit_id: str, urn: str) -> WorkUnit:
        """Return a unit that holds it."""
        properties = {_PROPERTY: wire.to_json(self)}
        return WorkUnit(unit_id, urn, None, None, self.weight, properties, len(self.files), self.bytes)


@dataclass
class _BundleBuilder(Generic[T]):
    """A bundle being filled."""

    make: Callable[[tuple[T, ...]], Bundle]
    alone: int = MOST_BYTES
    items: list[T] = field(default_factory=list)
    bytes: int = 0

    def add(self, item: T, size: int = 0) -> Iterator[Bundle]:
        """Add an item, and yield the bundle that has no more room, if there is one."""
        if size >= self.alone:
            yield self.make((item,))
            return
        if self.bytes + size > MOST_BYTES or len(self.items) == MOST_FILES:
            yield from self.rest()
        self.items.append(item)
        self.bytes += size

    def rest(self) -> Iterator[Bundle]:
        """Yield what is left, if there is any."""
        if self.items:
            yield self.make(tuple(self.items))
        self.items, self.bytes = [], 0


@dataclass
class _Unpacked:
    """The members of one archive, which come one after another."""

    archive: str = ""
    files: list[CopyFile] = field(default_factory=list)

    def add(self, file: CopyFile, archive: str) -> Iterator[Bundle]:
        """Add a member, and yield the bundle of the archive before, if there is one."""
        if archive != self.archive:
            yield from self.rest()
        self.archive = archive
        self.files.append(file)

    def rest(self) -> Iterator[Bundle]:
        """Yield what is left, if there is any."""
        if self.files:
            yield Bundle(BundleKind.COPY, files=tuple(self.files))
        self.files = []


Act = CopyFile | Doomed | NewAttributes | FolderEntry | str
"""An item that a bundle is filled with; a string is a folder to remove."""


def bundled(acts: Iterator[Act | SourceTotals], split_above: int | None = None) -> Iterator[Bundle]:
    """Cut acts into bundles, as they come. Those of one kind keep their order.

    :param split_above: as in `Mirror`: a file that is split is alone.
    """
    files = _BundleBuilder[CopyFile](
        lambda some: Bundle(BundleKind.COPY, files=some), min(split_above or MOST_BYTES, MOST_BYTES)
    )
    deletes = _BundleBuilder[Doomed](lambda some: Bundle(BundleKind.DELETE, deletes=some))
    changed = _BundleBuilder[NewAttributes](lambda some: Bundle(BundleKind.ATTRIBUTES, changed=some))
    folders = _BundleBuilder[FolderEntry](lambda some: Bundle(BundleKind.FOLDERS, folders=some))
    gone = _BundleBuilder[str](lambda some: Bundle(BundleKind.FOLDERS, gone_folders=some))
    unpacked = _Unpacked()
    for act in acts:
        if isinstance(act, CopyFile) and act.entry.made_from is not None and act.entry.made_from.member:
            yield from unpacked.add(act, act.entry.made_from.path)
        elif isinstance(act, CopyFile):
            yield from files.add(act, act.entry.size)
        elif isinstance(act, Doomed):
            yield from deletes.add(act)
        elif isinstance(act, NewAttributes):
            yield from changed.add(act)
        elif isinstance(act, FolderEntry):
            yield from folders.add(act)
        elif isinstance(act, SourceTotals):
            yield Bundle(BundleKind.TOTALS, totals=act)
        else:
            yield from gone.add(act)
    for growing in (folders, files, unpacked, deletes, changed, gone):
        yield from growing.rest()


def parts_of(size: int, above: int) -> range:
    """Return where the parts of a file begin: they are equally large but for the last one, which isn't empty.

    :param above: the size that no part exceeds, at least `LEAST_PART`.
    """
    if size <= above:
        return range(0, size, max(1, size))
    count = -(-size // (above // LEAST_PART * LEAST_PART))
    length = -(-size // count)
    return range(0, size, -(-length // LEAST_PART) * LEAST_PART)


def units_of(bundles: Iterator[Bundle], urn: str) -> Iterator[WorkUnit]:
    """Yield the units of a file set's bundles."""
    for number, bundle in enumerate(bundles, 1):
        yield bundle.unit(f"{bundle.acts.value}_{number:06d}", urn)
