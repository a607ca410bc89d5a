"""Files under a target root: the few operations that publishing relies on, and their order of durability.

Paths are relative to the root, with `/`; none leaves it. `LocalFiles` and `ObjectFiles` are the real implementations; the tests
wrap them to crash at every call. Rows are published without overwriting: a file by a `link`, a folder of files by `move_folder`,
and an upload made during extraction by completing it. Mirrors also take over and away, by acts that are possible only once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar, cast

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.work import StagedFile, Upload

if TYPE_CHECKING:
    from airflow_gobblin.storage.stores.base import Store

OWN_FOLDER = "_gobblin"
"""The folder of everything of ours in a target, and in a source that is another job's target."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of a file: a move within a file system changes none of its three parts.

    :param inode: 0 if there is none.
    :param size: bytes.
    :param stamp: changes whenever the content does: the time of its last change in ns, or an object's ETag.
    """

    inode: int
    size: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a file or folder; `None` for one that isn't known, or isn't to be changed.

    :param mode: its permission.
    :param owner: a number on a disk, a name in HDFS.
    :param group: likewise.
    :param modified: when its content, or the names in it, were last changed, in ns since 1970.
    :param acl: the entries of its access control list, besides those that are in its permission; see `acls`.
    :param extended: names and values, in hex, of its extended attributes, sorted.
    :param replication: the number of copies that HDFS keeps of its blocks.
    :param block_size: the size of these, in bytes.
    """

    mode: int | None = None
    owner: int | str | None = None
    group: int | str | None = None
    modified: int | None = None
    acl: tuple[str, ...] | None = None
    extended: tuple[tuple[str, str], ...] | None = None
    replication: int | None = None
    block_size: int | None = None

    def differing(self, other: Attributes) -> tuple[str, ...]:
        """Return the names of those that are known on both sides and differ."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in self.__slots__)
        return tuple(name for name, one, two in pairs if one is not None and two is not None and one != two)


@dataclass(frozen=True, slots=True)
class Keeps:
    """The extent to which a storage keeps the attributes of files and folders.

    :param time: the steps of times, in ns; 0: no time that is given is kept.
    :param permission: the bits of permissions; 0: none are kept.
    :param names: whether owners and groups are names; otherwise they are numbers.
    :param sets_owners: whether this process may set any owner and group.
    :param user: its own user.
    :param groups: its own groups, where they are numbers.
    :param acl: whether it keeps access control lists.
    :param extended: the prefixes of the names of extended attributes that this process may set.
    """

    time: int = 1
    permission: int = 0o7777
    names: bool = False
    sets_owners: bool = False
    user: int | str | None = None
    groups: tuple[int, ...] = ()
    acl: bool = False
    extended: tuple[str, ...] = ()


class Uploads(Protocol):
    """Uploads of an object store whose parts are stored, but which are not yet objects. Errors are `OSError`."""

    def put(self, target: str, data: bytes, modified: int | None = None) -> None:
        """Create a small object at once, whole or not at all.

        :param modified: the time that it keeps in its metadata, in ns since 1970.
        :raises FileExistsError: an object exists there.
        """

    def can_complete(self, target: str, upload: Upload) -> bool:
        """Return whether an upload can still be completed: it is open, with all of its parts as they were sent."""

    def complete(self, target: str, upload: Upload) -> None:
        """Turn an upload into the object at its target, without moving a byte or ever overwriting.

        :raises FileExistsError: an object exists there.
        :raises FileNotFoundError: the upload is gone.
        """

    def replace(self, target: str, upload: Upload, expected: str) -> None:
        """Turn an upload into the object at its target, in place of the one that is expected there.

        :param expected: the ETag of that object.
        :raises FileExistsError: another object exists there.
        :raises FileNotFoundError: the upload is gone; or no object exists there, which some stores take for the expected one.
        """

    def remove(self, target: str, expected: str) -> None:
        """Remove the object that is expected at a target; harmless if none exists.

        :param expected: its ETag. A store that ignores it removes whichever object is there.
        :raises FileExistsError: another object exists there.
        """

    def abort(self, target: str, upload: str) -> None:
        """Discard the parts of an upload; harmless if it was completed, or is gone.

        :param upload: its id.
        """

    def open_below(self, folder: str) -> Iterator[tuple[str, str]]:
        """Yield the target and the id of every upload below a folder that was neither completed nor aborted."""


class Copies(Protocol):
    """Copies in an object store that keeps no uploads: each takes over, or away, the object that is expected. Errors are
    `OSError`.

    A copy has the metadata of its source, and with it the mark that a staged object was given.
    """

    def stage(self, source: str, expected: str, staged: str, mark: str) -> None:
        """Copy an object from anywhere in the store to where none exists, with a mark in its metadata.

        :param source: its bucket and key.
        :param expected: its ETag.
        :param staged: the path of the copy, below the root.
        :raises FileExistsError: an object exists there.
        :raises FileNotFoundError: there is no source.
        :raises OSError: the source is another object; or it is of a kind that the store would not copy to a place.
        """

    def mark(self, path: str) -> str:
        """Return the mark of an object; empty if it has none.

        :raises FileNotFoundError: there is no object.
        :raises OSError: it is still being copied.
        """

    def replace(self, source: str, target: str, expected: str) -> None:
        """Copy an object over another one.

        :param expected: the ETag of that one.
        :raises FileExistsError: another object exists there.
        :raises FileNotFoundError: there is no source, or nothing to be replaced.
        """

    def remove(self, target: str, expected: str) -> None:
        """Remove the object that is expected at a target; harmless if none exists.

        :param expected: its ETag.
        :raises FileExistsError: another object exists there.
        """


class Files(Protocol):
    """Files under a root. Errors are `OSError`, with its errno."""

    @property
    def root(self) -> str:
        """The absolute path or the URL of the root, without secrets."""

    @property
    def parallel(self) -> int:
        """The number of calls worth making at once."""

    @property
    def uploads(self) -> Uploads | None:
        """Its uploads, where staged files are uploads; `None` where they are files."""

    @property
    def copies(self) -> Copies | None:
        """Its copies, where a staged object is copied to its place by the store; otherwise `None`."""

    @property
    def moves_folders(self) -> bool:
        """Whether it has folders, and can move one by a single rename."""

    @property
    def settles_after(self) -> timedelta:
        """How long a request may still take effect after its sender is gone or has given up on it; zero on a disk."""

    @property
    def keeps(self) -> Keeps:
        """The extent to which it keeps the attributes of files and folders."""

    def other(self, root: str) -> Files:
        """Return the files under another root in the same storage."""

    def records(self, folder: str) -> Store:
        """Return a store of write-once records in a folder.

        On a disk, records are written in its folder `.tmp` first. That stays there, empty, and readers ignore it.
        """

    def identity(self, path: str) -> FileIdentity | None:
        """Return the identity of a file or anything else at a path; `None` if nothing exists there. Links aren't followed."""

    def identities(self, path: str) -> Mapping[str, FileIdentity]:
        """Return the identities of everything in a folder, by name; empty if it isn't a folder, or doesn't exist."""

    def modified(self, path: str) -> datetime | None:
        """Return when a file was last written, by the clock of the storage; `None` if nothing exists there."""

    def names(self, paths: Sequence[str]) -> list[int]:
        """Return the number of names of each file; 0 for one that doesn't exist."""

    def read(self, path: str) -> bytes:
        """Read a whole file into memory, such as a record."""

    def read_part(self, path: str, start: int, size: int) -> bytes:
        """Read a part of a file, or what there is of it."""

    def checksum(self, path: str) -> str | None:
        """Return the SHA-256 of a file in hex, read piece by piece; `None` if it isn't a regular file."""

    def create(self, path: str) -> BinaryIO:
        """Open a new file for writing, creating its folders.

        :raises FileExistsError: it exists.
        """

    def stage(self, path: str, target: str) -> StagedOutput:
        """Open a new staged file for writing, which a commit step may publish only at `target`.

        :raises FileExistsError: it exists.
        """

    def link(self, source: str, target: str) -> None:
        """Give a file a second name.

        :raises FileExistsError: the target exists.
        """

    def renames_new(self, folder: str) -> bool:
        """Return whether `rename_new` works in this storage; it is tried out once, in a folder of our own that exists."""

    def rename_new(self, source: str, target: str) -> None:
        """Give a file or a folder another name, atomically and never over anything.

        :raises FileExistsError: the target exists.
        :raises FileNotFoundError: there is no source, or the folder of its target doesn't exist.
        :raises OSError: `ENOTSUP`: this storage can't.
        """

    def replace(self, source: str, target: str) -> None:
        """Give a file another name, atomically and over whichever file has it.

        :raises FileNotFoundError: there is no source, or the folder of its target doesn't exist.
        :raises OSError: as `rename_new`.
        """

    def unlink(self, path: str) -> None:
        """Remove a name.

        :raises FileNotFoundError: it doesn't exist, if the storage can determine this.
        """

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents; harmless if it exists."""

    def make_private(self, path: str) -> None:
        """Create a folder that only users with write access to the root can look into; harmless if it exists, and then unchanged.

        Files published from it have other names, and the usual permissions of their writer's files.
        """

    def leads_to(self, path: str) -> str | None:
        """Return the real path of a folder if it, or a folder between it and the root, is a link, or another disk is mounted
        there: no file of the root's can be renamed or linked there. `None` if none is.
        """

    def move_folder(self, source: str, target: str) -> None:
        """Rename a folder with its contents, atomically.

        :raises FileExistsError: something exists at the target, even an empty folder.
        :raises FileNotFoundError: the folder, or the parent of its new name, doesn't exist.
        """

    def remove_folder(self, path: str) -> None:
        """Remove a folder if it is empty; harmless if it isn't, or doesn't exist."""

    def folder(self, path: str) -> Attributes | None:
        """Return the attributes of a folder; `None` if none exists there. Links aren't followed."""

    def set_folder(self, path: str, attributes: Attributes) -> None:
        """Set the attributes of a folder that aren't `None`."""

    def has(self, path: str, attributes: Attributes) -> bool:
        """Return whether a file or folder has those attributes that aren't `None`; none if nothing exists there."""

    def lacks(self, path: str, expected: FileIdentity, attributes: Attributes) -> bool:
        """Return whether a file is the expected one, and doesn't have those attributes that aren't `None`."""

    def set_file(self, path: str, expected: FileIdentity, attributes: Attributes) -> None:
        """Set the attributes of a file that aren't `None`; harmless if it isn't the expected one, or doesn't exist.

        :raises OSError: one of them can't be set; the others are.
        """

    def may_change(self, folder: str) -> bool:
        """Return whether this process may make and remove names in a folder, which exists, as far as the storage knows."""

    def walk(self, path: str) -> Iterator[str]:
        """Yield all files below a folder; none if it doesn't exist."""

    def folders(self, path: str) -> tuple[str, ...]:
        """Return the names of the folders in a folder, sorted; none if it doesn't exist."""

    def filled(self, folders: Sequence[str]) -> list[bool | OSError]:
        """Return for each folder whether anything is in it, or the error of looking; `False` if it doesn't exist.

        A folder that exists and may not be listed counts as filled.
        """

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything below it; harmless if it doesn't exist."""

    def sync_file(self, path: str) -> None:
        """Wait until a file's content is durable."""

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are durable, and the folder's own name in its parent, up to the root and on to the
        mount point of its file system.

        A durable name of a folder is not synced again: a removed folder is never created again under its name, except by late
        attempts that no longer count.
        """


class RawOutput(Protocol):
    """The destination of a staged file's bytes."""

    def write(self, data: memoryview) -> object:
        """Append bytes; the buffer may be changed afterwards."""

    def finish(self) -> tuple[str, FileIdentity, Upload | None]:
        """Make its content complete and durable.

        :return: its path, its identity, and the upload behind it, if there is one.
        """

    def abort(self) -> None:
        """Remove everything written; harmless twice."""


class StagedOutput:
    """A staged file being written; its size and SHA-256 are computed along the way.

    :param raw: the destination of its bytes.
    """

    def __init__(self, raw: RawOutput) -> None:
        self._raw = raw
        self._hash: hashlib._Hash | None = hashlib.sha256()
        self.size = 0

    def skip_checksum(self) -> None:
        """Leave the checksum empty; called before anything is written."""
        self._hash = None

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes.

        :return: their number.
        """
        with memoryview(data) as view:
            self._raw.write(view)
            if self._hash is not None:
                self._hash.update(view)
            self.size += view.nbytes
            return view.nbytes

    def finish(self, rows: int) -> StagedFile:
        """Make its content complete and durable; its name becomes durable when its folder is synced.

        :param rows: the number of rows in it.
        :raises OSError: it doesn't exist as it was written.
        """
        path, found, upload = self._raw.finish()
        if found.size != self.size:
            raise OSError(f"staged file {path!r} has {found.size} bytes after writing {self.size}")
        checksum = "" if self._hash is None else self._hash.hexdigest()
        return StagedFile(path, self.size, checksum, rows, found.stamp, upload)

    def abort(self) -> None:
        """Remove everything written; harmless twice."""
        self._raw.abort()


_NO_NAMES = frozenset(("", ".", ".."))
_ODD_ENDS = frozenset(("", ".", "/"))
_AT_A_TIME = 1024
_SECONDS_OF_A_CALL = 1e-4
"""A shorter call isn't worth a thread: a link on a local disk takes a tenth of it, and one on a mounted disk several times it."""
CALLS_TO_JUDGE = 16
"""The number of calls that together show how long one takes."""


def _one(item: object) -> int:
    return 1


def each(files: Files, function: Callable[[T], R], items: Iterable[T], calls: Callable[[T], int] = _one) -> Iterator[R]:
    """Apply a function that calls `files` to each item, as many at once as is worthwhile; results are in order.

    Only a bounded number of items is in memory. Calls that turn out to take microseconds go on in this thread: Python's threads
    would wait for each other longer than for the disk.

    :param calls: returns about how many calls an item takes.
    """
    rest, by_threads = iter(items), files.parallel > 1
    first = [*islice(rest, 1)] if by_threads else []
    if (count := sum(map(calls, first))) >= CALLS_TO_JUDGE:
        results, seconds = _timed(function, first)
        yield from results
        by_threads = not are_short(count, seconds)
    else:
        rest = chain(first, rest)
    if by_threads:
        size = 4 * files.parallel
        with ThreadPoolExecutor(files.parallel) as pool:
            while some := list(islice(rest, size)):
                share = max(
                    1, len(some) // (files.parallel * 4)
                )  # submitting each item alone would cost more than a link
                shares = (some[start : start + share] for start in range(0, len(some), share))
                seconds = 0.0
                for results, taken in pool.map(partial(_timed, function), shares):
                    seconds += taken
                    yield from results
                if are_short(sum(map(calls, some)), seconds):
                    break
                size = _AT_A_TIME
    yield from map(function, rest)


def are_short(calls: int, seconds: float) -> bool:
    """Return whether calls took too little time to be worth threads.

    :param seconds: the time that all of them took together.
    """
    return seconds < _SECONDS_OF_A_CALL * calls


def _timed(function: Callable[[T], R], items: Iterable[T]) -> tuple[list[R], float]:
    started = time.perf_counter()
    return [*map(function, items)], time.perf_counter() - started


def with_listing_cache(files: Files, folder: str) -> Files:
    """Return the same files with cached listings, to check many that don't change: files in a listing aren't checked one by one.

    :param folder: the folder of their uploads.
    """
    if files.uploads is None:
        return cast("Files", _ListedFiles(files))
    return cast("Files", _WithUploads(files, _ListedUploads(files.uploads, folder)))


class _ListedFiles:
    """Files whose folders are listed, each when the first of its files is checked."""

    parallel = 1  # a lookup in a listing isn't a call

    def __init__(self, files: Files) -> None:
        self._files = files
        self._listed: dict[str, Mapping[str, FileIdentity]] = {}

    def identity(self, path: str) -> FileIdentity | None:
        folder, _, name = path.rpartition("/")
        return self.identities(folder or ".").get(name) or self._files.identity(path)

    def identities(self, path: str) -> Mapping[str, FileIdentity]:
        if path not in self._listed:
            self._listed[path] = self._files.identities(path)
        return self._listed[path]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class _WithUploads:
    """Files with listed uploads. The last object looked at is remembered: it may hold the contents of many files."""

    def __init__(self, files: Files, uploads: Uploads) -> None:
        self._files = files
        self.uploads = uploads
        self._last: tuple[str, FileIdentity | None] = ("", None)

    def identity(self, path: str) -> FileIdentity | None:
        last, found = self._last
        if path != last or found is None:
            found = self._files.identity(path)
            self._last = (path, found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class _ListedUploads:
    """Uploads with a listing of those below a folder: an open one has all its parts, since a store keeps or drops it whole.

    If a store lists none (MinIO), or not with these credentials, each one is checked individually.
    """

    def __init__(self, uploads: Uploads, folder: str) -> None:
        self._uploads = uploads
        self._open: set[tuple[str, str]] = set()
        with suppress(OSError):
            self._open = {*uploads.open_below(folder)}
        self.put, self.complete, self.replace, self.remove = (
            uploads.put,
            uploads.complete,
            uploads.replace,
            uploads.remove,
        )
        self.abort, self.open_below = uploads.abort, uploads.open_below

    def can_complete(self, target: str, upload: Upload) -> bool:
        return (target, upload.id) in self._open or self._uploads.can_complete(target, upload)


def contained(path: str) -> str:
    """Return a relative path if it stays below its root.

    :raises ConfigurationError: it is absolute, empty, or contains `..`.
    """
    odd = (
        "/." in path or "//" in path or path[:1] in _ODD_ENDS or path[-1:] == "/"
    )  # a quick check first, since there are many paths
    if (odd and path != "." and not _NO_NAMES.isdisjoint(path.split("/"))) or "\0" in path:
        raise ConfigurationError(
            operation="use",
            subject=f"path {path!r}",
            cause="it must be a plain relative path below the target root",
            hint="Give it as 'folder/file': no '/' at its start, no '..', '.' or empty part.",
        )
    return path
