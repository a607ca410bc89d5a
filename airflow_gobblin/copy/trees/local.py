"""Trees on a local or mounted file system."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.options import KEEPS_NOTHING, Keep, Links
from airflow_gobblin.copy.trees.base import always, joined
from airflow_gobblin.storage.files.base import CALLS_TO_JUDGE, OWN_FOLDER, Attributes, are_short, contained
from airflow_gobblin.storage.files.disk_attributes import all_attributes

T = TypeVar("T")
R = TypeVar("R", bound=Sized)
V = TypeVar("V")
_AT_A_TIME = 256
"""The number of files looked at by one thread before the next results are wanted."""
_AHEAD = 4
"""The number of folders, and of groups of that many files, that are read ahead in a folder."""
_THREADS = 16
_SLASH = b"/"
_OWN = (OWN_FOLDER.encode(), OWN_FOLDER.encode() + _SLASH)


class LocalTree:
    """A folder on a local or mounted file system. A `Tree`.

    :param links: the treatment of symbolic links. The root itself may be one.
    :param keep: what is kept: attributes that take calls of their own are looked at only if they are kept.
    """

    def __init__(self, root: str | Path, links: Links = Links.SKIP, keep: Keep = KEEPS_NOTHING) -> None:
        self._keep = keep
        self._root = str(Path(root).absolute())
        self._links = links
        self._real_root = os.path.realpath(os.fsencode(self._root))

    @property
    def root(self) -> str:
        return self._root

    def _at(self, path: str) -> str:
        return self._root if path == "." else f"{self._root}/{contained(path)}"

    def entry(self, path: str) -> Entry | None:
        at = os.fsencode(self._at(path))
        try:
            return self._entry(path, at, os.stat(at) if path == "." else os.lstat(at))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def folders(self, folder: str = ".") -> Iterator[str]:
        names = self._names(_Folder(folder, os.fsencode(self._at(folder))))
        return iter([os.fsdecode(name[:-1]) for name in names if name.endswith(_SLASH)])

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        start = _Folder(folder, os.fsencode(self._at(folder)))
        reader = _Reader()
        try:
            yield from self._below(start, enter, reader)
        finally:
            reader.close()

    def _below(self, start: _Folder, enter: Callable[[str], bool], reader: _Reader) -> Iterator[Entry]:
        stack = [self._children(start, self._names(start), enter, reader)]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
                continue
            entry, below = found
            yield entry
            if below is not None:
                folder, names = below
                stack.append(self._children(folder, names(), enter, reader))

    def _children(
        self, folder: _Folder, names: Sequence[bytes], enter: Callable[[str], bool], reader: _Reader
    ) -> Iterator[tuple[Entry, tuple[_Folder, _Names] | None]]:
        """Yield the entries of a folder in order, each folder to enter with the names in it, which may still be on their way."""
        inner = (folder.child(name) for name in names if name.endswith(_SLASH))
        listings = _ahead(inner, lambda f: reader.later(self._names, f) if enter(f.path) else None, reader)
        groups = (names[start : start + _AT_A_TIME] for start in range(0, len(names), _AT_A_TIME))
        looked = _ahead(groups, lambda group: reader.later(partial(self._look, folder), group), reader)
        for _, entries in looked:
            for entry in entries():
                if entry.kind is not EntryKind.FOLDER:
                    yield entry, None
                    continue
                child, listing = next(listings)
                yield entry, None if listing is None else (child, listing)

    def _names(self, folder: _Folder) -> list[bytes]:
        """Return the names in a folder, in order, with a slash after those of folders."""
        with os.scandir(folder.at) as found:
            names = [e.name + _SLASH if self._is_folder(e, folder) else e.name for e in found]
        names.sort()
        return [name for name in names if name not in _OWN] if folder.outermost else names

    def _is_folder(self, found: os.DirEntry[bytes], folder: _Folder) -> bool:
        if self._links is Links.FOLLOW and found.is_symlink():
            real = self._followed(found.path)
            return real is not None and os.path.isdir(real) and not folder.is_in(real)
        return found.is_dir(follow_symlinks=False)

    def _followed(self, at: bytes) -> bytes | None:
        """Return where a link leads; `None` if nothing is there, or it is outside the root."""
        real = os.path.realpath(at)
        return real if _is_below(real, self._real_root) and os.path.exists(real) else None

    def _look(self, folder: _Folder, names: Sequence[bytes]) -> list[Entry]:
        """Return the entries of some names in a folder, without files that are gone by now.

        :raises OSError: a folder is gone, or something is no longer what it was when it was listed.
        """
        entries = []
        for name in names:
            is_folder = name.endswith(_SLASH)
            plain = name[:-1] if is_folder else name
            at = b"%s/%s" % (folder.at, plain)
            try:
                entry = self._entry(joined(folder.path, os.fsdecode(plain)), at, os.lstat(at))
            except FileNotFoundError:
                if is_folder:
                    raise
                continue
            if (entry.kind is EntryKind.FOLDER) is not is_folder:
                if is_folder or self._links is not Links.FOLLOW:
                    raise OSError(errno.ESTALE, "it changed into something else while it was listed", os.fsdecode(at))
                entry = Entry(
                    entry.path, EntryKind.LINK, link=os.fsdecode(os.readlink(at))
                )  # to a folder that it is in
            entries.append(entry)
        return entries

    def _entry(self, path: str, at: bytes, found: os.stat_result) -> Entry:
        text = ""
        if stat.S_ISLNK(found.st_mode) and self._links is not Links.SKIP:
            if self._links is Links.FOLLOW and self._followed(at) is not None:
                found = os.stat(at)
            else:
                text = os.fsdecode(os.readlink(at))
        mode, modified = found.st_mode, found.st_mtime_ns
        attributes = _attributes(stat.S_IMODE(mode), found.st_uid, found.st_gid)
        if self._keep.acl or self._keep.extended:
            more = all_attributes(at, found, acl=self._keep.acl, extended=self._keep.extended)
            attributes = replace(more, modified=None)
        return Entry(path, _kind(mode), found.st_size, modified, str(modified), found.st_ino, attributes, text)

    def open(self, path: str) -> BinaryIO:
        return open(self._at(path), "rb", buffering=0, opener=self._opened)

    def read(self, path: str, start: int, length: int) -> bytes:
        with self.open(path) as file:
            file.seek(start)
            return file.read(length)

    def _opened(self, at: str, flags: int) -> int:
        if self._links is Links.FOLLOW:
            real = self._followed(os.fsencode(at))
            if real is None:
                raise FileNotFoundError(errno.ENOENT, "nothing below the tree's root is there", at)
            return os.open(real, flags | os.O_NOFOLLOW)
        return os.open(at, flags | os.O_NOFOLLOW)


@lru_cache
def _attributes(mode: int, owner: int, group: int) -> Attributes:
    """Return what very many files have in common."""
    return Attributes(mode, owner, group)


_Names = Callable[[], Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder of a walk.

    :param path: relative to the root.
    :param at: its path on disk.
    :param above: the one that the walk came from.
    """

    path: str
    at: bytes
    above: _Folder | None = None

    @property
    def outermost(self) -> bool:
        """Whether the walk began with it."""
        return self.above is None

    def child(self, name: bytes) -> _Folder:
        """Return a folder in it.

        :param name: with a slash after it.
        """
        plain = name[:-1]
        return _Folder(joined(self.path, os.fsdecode(plain)), b"%s/%s" % (self.at, plain), self)

    def is_in(self, real: bytes) -> bool:
        """Return whether the walk came through a folder."""
        one: _Folder | None = self
        while one is not None:
            if _is_below(os.path.realpath(one.at), real):
                return True
            one = one.above
        return False


class _Reader:
    """The calls of a walk, made when their result is wanted or, as soon as they turn out to be slow, ahead by threads."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    @property
    def ahead(self) -> int:
        """The number of results to ask for before they are wanted."""
        return 0 if self._pool is None else _AHEAD

    def later(self, function: Callable[[T], R], argument: T) -> Callable[[], R]:
        """Return a callable that gives the result of a function, which makes about one call for each of its results."""
        if self._pool is not None:
            return self._pool.submit(function, argument).result
        return partial(self._now, function, argument)

    def _now(self, function: Callable[[T], R], argument: T) -> R:
        started = time.perf_counter()
        found = function(argument)
        seconds = time.perf_counter() - started
        if self._pool is None and len(found) >= CALLS_TO_JUDGE and not are_short(len(found), seconds):
            self._pool = ThreadPoolExecutor(_THREADS, "listing")
        return found

    def close(self) -> None:
        """Wait for the calls that have begun, and make no more."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _ahead(items: Iterator[T], begin: Callable[[T], V], reader: _Reader) -> Iterator[tuple[T, V]]:
    """Yield items with what was begun for each, a few ahead."""
    begun: deque[tuple[T, V]] = deque()
    for item in items:
        begun.append((item, begin(item)))
        while len(begun) > reader.ahead:
            yield begun.popleft()
    yield from begun


def _is_below(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(_SLASH) + _SLASH)


def _kind(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISDIR(mode):
        return EntryKind.FOLDER
    return EntryKind.LINK if stat.S_ISLNK(mode) else EntryKind.OTHER
