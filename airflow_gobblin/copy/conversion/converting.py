"""Files that are converted or unpacked on the way: their entries as the target will have them, and their bytes from an origin."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, TYPE_CHECKING, Protocol, cast, runtime_checkable

from airflow_gobblin.copy.blocks import Block, Checksum, Destination, Origin, write_blocks
from airflow_gobblin.copy.bundles import CopyFile
from airflow_gobblin.copy.conversion.archives import (
    EXTENSIONS,
    ZIP,
    Content,
    Member,
    Unpack,
    folder_of,
    list_zip,
    read_members,
)
from airflow_gobblin.copy.conversion.converters import (
    AnyConverter,
    Chain,
    CompanionConverter,
    ConnectedConverter,
    FileConverter,
    companions_of,
)
from airflow_gobblin.copy.conversion.limits import Bounded, within
from airflow_gobblin.copy.entries import Entry, EntryKind, SourceFile, key_of, shown
from airflow_gobblin.copy.failures import changed, described, reading, unconvertible
from airflow_gobblin.copy.trees import Tree, joined
from airflow_gobblin.errors import DifferenceError, GobblinError
from airflow_gobblin.model import wire
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import Attributes

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections

IN_MEMORY = 100_000
"""How many entries are sorted in memory; if there are more, they are in temporary files."""
_MOST_COMPANION = 32 << 10
"""The maximum size of a file's companion, in bytes: a pipe holds it."""


@dataclass(frozen=True)
class Naming:
    """The names that files of the source have in the target, once they are converted and the archives among them unpacked."""

    chain: Chain
    unpacks: bool

    @classmethod
    def of(cls, convert: tuple[AnyConverter, ...], unpack: Unpack | None) -> Naming:
        """Return the naming of a mirror."""
        return cls(Chain(convert), unpack is not None)

    @property
    def changes_nothing(self) -> bool:
        """Whether all names stay as they are."""
        return not self.chain.converters and not self.unpacks

    def target(self, path: str) -> str:
        """Return the path of a file, or of the folder that it is unpacked to."""
        return self.folder(path) or self.chain.target(path)

    def folder(self, path: str) -> str | None:
        """Return the path of the folder that a file is unpacked to; `None` if it isn't."""
        return folder_of(self.chain.target(path)) if self.unpacks else None

    def sources(self, path: str) -> Iterator[str]:
        """Yield the paths of the files that may become a file in the target, or hold it."""
        yield from (source for source in self.chain.sources(path) if not self.folder(source))
        yield from self.archives_above(path)

    def archives_above(self, path: str) -> Iterator[str]:
        """Yield the paths of the archives that may become a folder that a path is in."""
        while self.unpacks and "/" in path:
            path = path.rpartition("/")[0]
            for extension in EXTENSIONS:
                yield from self.chain.sources(f"{path}{extension}")


@dataclass
class Converted:
    """The entries of a file set in the source, as the target will have them, in the order of the target.

    :param tree: the source.
    :param folder: the file set's folder in it.
    :param by_content: whether members of archives are compared by their content.
    :param origin: reads files as they are converted.
    :param left_alone: folders of archives that the filter excludes, known at the end of the listing.
    """

    naming: Naming
    unpack: Unpack | None
    tree: Tree
    folder: str
    by_content: bool
    origin: ConvertingOrigin
    left_alone: set[str] = field(default_factory=set)

    def entries(self, listed: Iterable[Entry], includes: Callable[[Entry], bool]) -> Iterator[Entry]:
        """Yield entries, ordered anew. A name may occur several times.

        :raises SourceError: an archive can't be read, or is refused.
        """
        return in_order(made for entry in listed for made in self._of(entry, included=includes(entry)))

    def _of(self, entry: Entry, *, included: bool) -> Iterator[Entry]:
        if entry.kind is not EntryKind.FILE:
            if included or entry.kind is not EntryKind.FOLDER:
                yield entry if included else _excluded(entry, entry.path)
            return
        folder = self.naming.folder(entry.path)
        if folder is not None and included:
            yield from self._unpacked(entry, folder)
        elif folder is not None:
            self.left_alone.add(folder)
        elif not included:
            yield _excluded(entry, self.naming.target(entry.path))
        elif self.naming.chain.applied(entry.path):
            yield replace(entry, path=self.naming.target(entry.path), made_from=_source(entry))
        else:
            yield entry

    def _unpacked(self, entry: Entry, folder: str) -> Iterator[Entry]:
        """Yield the folder that an archive becomes, and everything in it."""
        made, source = {folder}, _source(entry)
        yield Entry(folder, EntryKind.FOLDER, made_from=source)
        for member, checksum in self._members(entry):
            path = f"{folder}/{member.path}"
            for at in (at for at, char in enumerate(f"{path}/") if char == "/" and at > len(folder)):
                above = path[:at]
                if above not in made and (at < len(path) or member.folder):
                    made.add(above)
                    yield Entry(above, EntryKind.FOLDER, made_from=source)
            if not member.folder:
                of = replace(source, member=member.path, checksum=checksum)
                attributes = Attributes(member.mode)
                yield replace(entry, path=path, size=member.size, inode=0, attributes=attributes, made_from=of)

    def _members(self, entry: Entry) -> Iterator[tuple[Member, str]]:
        """Yield the members of an archive, and the checksums of those that are compared by it."""
        assert self.unpack is not None
        at, path = joined(self.folder, entry.path), self.naming.chain.target(entry.path)
        by_directory = path.endswith(ZIP) and path == entry.path and not self.by_content
        with unpacking(self.tree.root, at):
            if by_directory:
                with reading(self.tree.root, at), self.tree.open(at) as file:
                    yield from ((member, "") for member in list_zip(file, entry.size, self.unpack))
                return
            blocks = self.origin.read(_source(entry))
            for member, content in read_members(path, blocks, entry.size, self.unpack):
                yield member, _sha256(content) if self.by_content else ""
            for _ in blocks:
                pass


def _source(entry: Entry) -> SourceFile:
    return SourceFile(entry.path, entry.size, entry.stamp)


def _sha256(content: Content) -> str:
    found = hashlib.sha256()
    for block in content:
        found.update(block)
    return found.hexdigest()


def _excluded(entry: Entry, path: str) -> Entry:
    """Return an entry that the filter excludes as one that isn't copied, and whose name in the target is left alone."""
    return replace(entry, path=path, kind=EntryKind.OTHER, made_from=_source(entry))


def is_excluded(entry: Entry | None) -> bool:
    """Return whether it is one that the filter excludes."""
    return entry is not None and entry.kind is EntryKind.OTHER and entry.made_from is not None


@contextmanager
def unpacking(root: str, path: str) -> Iterator[None]:
    """Convert errors of reading an archive.

    :param path: its path below the root of the source.
    :raises SourceDataError: it is refused.
    """
    try:
        yield
    except GobblinError:
        raise
    except Exception as error:
        raise unconvertible("unpack", root, path, error) from error


def in_order(entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield entries in the order of `key_of`, in bounded memory. All are read before the first is yielded."""
    with ExitStack() as files:
        runs: list[Iterable[Entry]] = []
        while some := sorted(islice(entries, IN_MEMORY), key=key_of):
            if not runs and len(some) < IN_MEMORY:
                yield from some
                return
            runs.append(_kept(some, files.enter_context(TemporaryFile("w+"))))
        yield from merge(*runs, key=key_of)


def _kept(entries: list[Entry], file: IO[str]) -> Iterator[Entry]:
    """Write entries to a file.

    :return: an iterator that reads them.
    """
    for one in entries:
        of, source = one.attributes, one.made_from
        fields = (one.path, one.kind, one.size, one.modified, one.stamp, one.inode, one.link)
        made_from = source and (source.path, source.size, source.stamp, source.member, source.checksum)
        file.write(json.dumps((fields, wire.to_json(of), made_from)) + "\n")
    file.seek(0)
    return map(_entry, file)


def _entry(line: str) -> Entry:
    (path, kind, size, modified, stamp, inode, link), of, source = json.loads(line)
    made_from = source and SourceFile(*source)
    attributes = wire.from_json(Attributes, of, f"the attributes of {path!r}")
    return Entry(path, EntryKind(kind), size, modified, stamp, inode, attributes, link, made_from)


def without_doubles(
    entries: Iterable[Entry], skipped: Callable[[Entry], bool], refused: Callable[[str, str, str], DifferenceError]
) -> Iterator[Entry]:
    """Yield entries that are in order, each name once.

    :param skipped: whether one isn't copied. It gives way to one that is.
    :param refused: makes the error that two files of the source would have one name.
    :raises DifferenceError: they would.
    """
    before: Entry | None = None
    for entry in entries:
        if before is not None and key_of(before) == key_of(entry):
            if skipped(entry):
                continue
            if not skipped(before):
                one, other = shown(before.in_source), shown(entry.in_source)
                cause = f"{one!r} and {other!r} of the source would both have this name"
                raise refused(entry.path, cause, "Rename or exclude one of them.")
            before = entry
            continue
        if before is not None:
            yield before
        before = entry
    if before is not None:
        yield before


@runtime_checkable
class Closeable(Protocol):
    """Something that holds resources to be released."""

    def close(self) -> None:
        """Release them."""


class ConvertingOrigin:
    """The files of another origin, converted on their way. An `Origin`.

    :param tree: the source, in which companions of files are looked for.
    :param folder: the file set's folder in it.
    :param connections: access to the secrets of converters.
    """

    def __init__(self, origin: Origin, chain: Chain, tree: Tree, folder: str, connections: Connections) -> None:
        self._origin = origin
        self._chain = chain
        self._tree = tree
        self._root = tree.root
        self._folder = folder
        self._connections = connections
        self._lock = Lock()
        self._opened: dict[AnyConverter, FileConverter] = {}

    @property
    def parallel(self) -> int:
        return self._origin.parallel

    def blocks(self, entry: Entry) -> Iterator[Block]:
        return self._origin.blocks(entry) if entry.made_from is None else self.read(entry.made_from)

    def read(self, source: SourceFile) -> Iterator[bytes]:
        """Yield the converted bytes of a file. It is read to its end, and then looked at again."""
        read = self._origin.blocks(source.entry)
        blocks: Iterator[bytes] = map(bytes, read)  # as converters expect them
        try:
            for converter, path in self._chain.applied(source.path):
                blocks = self._converter(converter, path).convert(blocks)
                if isinstance(converter, Bounded):
                    blocks = within(converter, blocks, source.size)
            yield from blocks
        except GobblinError:
            raise
        except Exception as error:
            path = joined(self._folder, source.path)
            raise unconvertible("convert", self._root, path, error) from error
        for _ in read:
            pass

    def part(self, entry: Entry, start: int, end: int) -> Block:
        return self._origin.part(entry, start, end)

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        if entry.made_from is None:
            self._origin.copy_to_disk(entry, file, checksum)
        else:
            write_blocks(self, entry, file, checksum)

    def link(self, entry: Entry) -> str:
        return self._origin.link(entry)

    def unpack(
        self, source: SourceFile, files: tuple[CopyFile, ...], limits: Unpack, destination: Destination
    ) -> tuple[StagedFile, ...]:
        """Stage members of an archive, which is read once, to its end.

        :return: the staged members, in the order of the files.
        :raises SourceChangedError: its members aren't those that were planned.
        """
        wanted = {file.entry.made_from.member: file.entry for file in files if file.entry.made_from is not None}
        staged: dict[str, StagedFile] = {}
        at, blocks = joined(self._folder, source.path), self.read(source)
        with unpacking(self._root, at):
            for member, content in read_members(self._chain.target(source.path), blocks, source.size, limits):
                entry = wanted.get(member.path)
                if entry is not None and (member.folder, member.size) == (False, entry.size):
                    staged[member.path] = destination.stage(entry, _MemberOrigin(content, self._root, at))
            for _ in blocks:
                pass
        missing = next((name for name in wanted if name not in staged), None)
        if missing is not None:
            expected = f"{missing!r} in it, {described(wanted[missing])}"
            raise changed(self._root, at, expected, "no such member")
        return tuple(staged[member] for member in wanted)

    def _converter(self, converter: AnyConverter, path: str) -> FileConverter:
        """Return the converter of one file.

        :param path: the path that the file has by then.
        :raises ValueError: it needs a companion, which isn't there.
        """
        opened = self._open(converter)
        companions = companions_of(converter)
        if not companions:
            return opened
        return cast(CompanionConverter, opened).beside(self._companion(path, companions))

    def _companion(self, path: str, extensions: tuple[str, ...]) -> bytes:
        for extension in extensions:
            at = joined(self._folder, path + extension)
            with reading(self._root, at):
                entry = self._tree.entry(at)
                if entry is None or entry.kind is not EntryKind.FILE:
                    continue
                if entry.size > _MOST_COMPANION:
                    raise ValueError(f"{shown(path + extension)!r} has more than {_MOST_COMPANION:,} bytes")
                with self._tree.open(at) as file:
                    return file.read(_MOST_COMPANION)
        names = " or ".join(repr(shown(path + extension)) for extension in extensions)
        raise ValueError(f"there is no {names} in its file set")

    def _open(self, converter: AnyConverter) -> FileConverter:
        """Return a converter with its secrets, if it needs some: the same one for all files."""
        with self._lock:
            if converter not in self._opened:
                self._opened[converter] = (
                    converter.connected(self._connections) if isinstance(converter, ConnectedConverter) else converter
                )
            return self._opened[converter]

    def close(self) -> None:
        for opened in self._opened.values():
            if isinstance(opened, Closeable):
                opened.close()
        self._origin.close()


class _MemberOrigin:
    """The member of an archive that is being read. An `Origin` of one file.

    :param root: the root of the source.
    :param archive: the archive's path below it.
    """

    parallel = 1  # members come one after another

    def __init__(self, content: Content, root: str, archive: str) -> None:
        self._content = content
        self._root = root
        self._archive = archive

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        with unpacking(self._root, self._archive):
            yield from self._content

    def part(self, entry: Entry, start: int, end: int) -> Block:
        raise NotImplementedError("an archive is read from its beginning to its end")

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        write_blocks(self, entry, file, checksum)

    def link(self, entry: Entry) -> str:
        return entry.link

    def close(self) -> None:
        """Do nothing: nothing of its own is open."""
