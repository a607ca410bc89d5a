"""What is under a target root: the few calls that publishing rests on, and their order of durability.

Paths are relative to the root, with `/`; none leaves it. `LocalFiles` and `ObjectFiles` are the real ones; the tests wrap them
to crash at every call. Nothing here overwrites: a file is published by a `link`, a folder of files by `move_folder`, and an
upload that was made while it was extracted by completing it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar, cast

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.work import StagedFile, Upload

if TYPE_CHECKING:
    from airflow_gobblin.stores.base import Store

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What a file is known by: after a move within a file system all three stay.

    :param inode: 0 where there is none. :param size: bytes.
    :param stamp: what changes whenever its content does: the time of its last change in ns, or an object's ETag.
    """

    inode: int
    size: int
    stamp: str


class Uploads(Protocol):
    """Uploads of an object store: their parts are there, and they are no objects yet. Errors are `OSError`."""

    def stands(self, target: str, upload: Upload) -> bool:
        """Whether an upload can still be completed: it is open, with all of its parts as they were sent."""

    def complete(self, target: str, upload: Upload) -> None:
        """Make an upload the object at its target, and never over anything. It doesn't move a byte.

        :raises FileExistsError: an object stands there. :raises FileNotFoundError: the upload is gone.
        """

    def abort(self, target: str, upload: str) -> None:
        """Throw the parts of an upload away; harmless if it was completed, or is gone. :param upload: its id."""

    def open_below(self, folder: str) -> Iterator[tuple[str, str]]:
        """The target and the id of every upload below a folder that was neither completed nor aborted."""


class Files(Protocol):
    """What is under a root. Errors are `OSError`, with its errno."""

    @property
    def root(self) -> str:
        """The absolute path or the URL of the root, without secrets."""

    @property
    def parallel(self) -> int:
        """How many of its calls are worth making at once."""

    @property
    def uploads(self) -> Uploads | None:
        """Its uploads, where staged files are uploads; `None` where they are files."""

    @property
    def moves_folders(self) -> bool:
        """Whether it has folders, and moves one by a single rename."""

    @property
    def settles_after(self) -> timedelta:
        """For how long a request may still take effect though whoever sent it is gone, or has given it up; on a disk it can't."""

    def other(self, root: str) -> Files:
        """What is under another root in the same place."""

    def records(self, folder: str) -> Store:
        """Write-once records in a folder."""

    def identity(self, path: str) -> FileIdentity | None:
        """The identity of a file, or of whatever else stands at its path; `None` if nothing does. Links aren't followed."""

    def identities(self, path: str) -> Mapping[str, FileIdentity]:
        """The identity of whatever stands in a folder, by name; nothing if it is none, or doesn't exist."""

    def modified(self, path: str) -> datetime | None:
        """When what stands at a path was last written, by the clock of the place; `None` if nothing does."""

    def names(self, paths: Sequence[str]) -> list[int]:
        """How many names each of some files has; 0 for one that doesn't exist."""

    def read(self, path: str) -> bytes:
        """A whole file, into memory: a record."""

    def checksum(self, path: str) -> str | None:
        """The SHA-256 of a file in hex, read piece by piece; `None` if what stands there is no plain file."""

    def create(self, path: str) -> BinaryIO:
        """A new file, open for writing; its folders are made. :raises FileExistsError: it exists."""

    def stage(self, path: str, target: str) -> StagedOutput:
        """A new staged file, open for writing, that a commit step may publish at `target`, and nowhere else.

        :raises FileExistsError: it exists.
        """

    def link(self, source: str, target: str) -> None:
        """A second name for a file. :raises FileExistsError: the target exists."""

    def unlink(self, path: str) -> None:
        """Remove a name. :raises FileNotFoundError: there is none, where the place can tell."""

    def make_folder(self, path: str) -> None:
        """A folder, with those above it; harmless if it exists."""

    def make_private(self, path: str) -> None:
        """A folder that only those can look into who may write to the root; harmless if it exists, and then left as it is.

        What is published from it has other names, and the rights that any file has that its writer makes.
        """

    def leads_to(self, path: str) -> str | None:
        """Where a folder really is, if it, or one above it and below the root, is a link; `None` if none is."""

    def move_folder(self, source: str, target: str) -> None:
        """Rename a folder, with all that is in it, in one moment.

        :raises FileExistsError: something stands at the target, be it an empty folder.
        :raises FileNotFoundError: there is no such folder, or none for its new name.
        """

    def remove_folder(self, path: str) -> None:
        """Remove a folder that is empty; harmless if it isn't, or doesn't exist."""

    def walk(self, path: str) -> Iterator[str]:
        """All files below a folder, none if it doesn't exist."""

    def folders(self, path: str) -> tuple[str, ...]:
        """The names of the folders in a folder, sorted; none if it doesn't exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all below it; harmless if it doesn't exist."""

    def sync_file(self, path: str) -> None:
        """Wait until a file's content is durable."""

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are durable, and the folder's own name in the one above, up to the root and on to
        where its file system is mounted. A folder's name that was durable once is not synced again: what is removed is never
        made again under its name, but by late attempts that count no more."""


class RawOutput(Protocol):
    """Where the bytes of a staged file go."""

    def write(self, data: memoryview) -> object:
        """Append bytes; they may be changed after it returns."""

    def finish(self) -> tuple[str, FileIdentity, Upload | None]:
        """Make its content whole and durable. :return: its path, its identity, and the upload that it is, if it is one."""

    def abort(self) -> None:
        """Remove what was written; harmless twice."""


class StagedOutput:
    """A staged file being written; size and SHA-256 are taken as its bytes pass by.

    :param raw: where they go.
    """

    def __init__(self, raw: RawOutput) -> None:
        self._raw = raw
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes. :return: how many."""
        with memoryview(data) as view:
            self._raw.write(view)
            self._hash.update(view)
            self.size += view.nbytes
            return view.nbytes

    def finish(self, rows: int) -> StagedFile:
        """Make its content whole and durable; its name is once its folder is synced.

        :param rows: how many are in it. :raises OSError: it isn't there as it was written.
        """
        path, found, upload = self._raw.finish()
        if found.size != self.size:
            raise OSError(f"staged file {path!r} has {found.size} bytes after writing {self.size}")
        return StagedFile(path, self.size, self._hash.hexdigest(), rows, found.stamp, upload)

    def abort(self) -> None:
        """Remove what was written; harmless twice."""
        self._raw.abort()


_NO_NAMES = frozenset(("", ".", ".."))
_ODD_ENDS = frozenset(("", ".", "/"))
_AT_A_TIME = 1024


def each(files: Files, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Apply a function that calls `files` to each of many items, as many at once as pays; the answers in order.

    A bounded number of items is in memory.
    """
    if files.parallel == 1:
        yield from map(function, items)
        return
    rest = iter(items)
    with ThreadPoolExecutor(files.parallel) as pool:
        while some := list(islice(rest, _AT_A_TIME)):
            share = max(1, len(some) // (files.parallel * 4))  # to hand over each of them would cost more than a link
            shares = (some[start : start + share] for start in range(0, len(some), share))
            for done in pool.map(lambda mine: [*map(function, mine)], shares):
                yield from done


def at_a_glance(files: Files, folder: str) -> Files:
    """The same files, for who looks at many that stay as they are: those that a listing shows are not looked at one by one.

    :param folder: below which their uploads are.
    """
    if files.uploads is None:
        return cast("Files", _ListedFiles(files))
    return cast("Files", _WithUploads(files, _ListedUploads(files.uploads, folder)))


class _ListedFiles:
    """Files whose folders are listed, each when the first of its files is looked at."""

    parallel = 1  # to look into a listing is no call

    def __init__(self, files: Files) -> None:
        self._files = files
        self._listed: dict[str, Mapping[str, FileIdentity]] = {}

    def identity(self, path: str) -> FileIdentity | None:
        folder, _, name = path.rpartition("/")
        if folder not in self._listed:
            self._listed[folder] = self._files.identities(folder or ".")
        return self._listed[folder].get(name) or self._files.identity(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class _WithUploads:
    """Files whose uploads were listed."""

    def __init__(self, files: Files, uploads: Uploads) -> None:
        self._files = files
        self.uploads = uploads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class _ListedUploads:
    """Uploads of which those below a folder were listed: what is open has its parts, for a store keeps or drops an upload whole.

    Where a store lists none (MinIO), or not for these credentials, each is looked at after all.
    """

    def __init__(self, uploads: Uploads, folder: str) -> None:
        self._uploads = uploads
        self._open: set[tuple[str, str]] = set()
        with suppress(OSError):
            self._open = {*uploads.open_below(folder)}
        self.complete, self.abort, self.open_below = uploads.complete, uploads.abort, uploads.open_below

    def stands(self, target: str, upload: Upload) -> bool:
        return (target, upload.id) in self._open or self._uploads.stands(target, upload)


def contained(path: str) -> str:
    """A relative path, if it stays below its root. :raises ConfigurationError: absolute, empty, or with `..`."""
    odd = (
        "/." in path or "//" in path or path[:1] in _ODD_ENDS or path[-1:] == "/"
    )  # the quick look, for there are many
    if (odd and path != "." and not _NO_NAMES.isdisjoint(path.split("/"))) or "\0" in path:
        raise ConfigurationError(
            operation="use",
            subject=f"path {path!r}",
            cause="it must be a plain relative path below the target root",
            hint="Give it as 'folder/file': no '/' at its start, no '..', '.' or empty part.",
        )
    return path
