"""Trees on an SFTP server. Times are in seconds there: a file that changes within one second, but not in size, looks the same."""

from __future__ import annotations

import errno
import io
import posixpath
import stat
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, BinaryIO, TypeVar, cast

from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.options import Links
from airflow_gobblin.copy.trees.base import always, joined
from airflow_gobblin.copy.trees.listed_walk import folders_listed, walk_listed
from airflow_gobblin.storage.files.base import Attributes, contained
from airflow_gobblin.storage.filesystems import as_os_error
from airflow_gobblin.storage.locations import ServerLocation

T = TypeVar("T")
_AT_ONCE = 8
_BLOCK = 1 << 20
_NS = 1_000_000_000
_ERRORS = {
    "SFTPNoSuchFile": errno.ENOENT,
    "SFTPNoSuchPath": errno.ENOENT,
    "SFTPPermissionDenied": errno.EACCES,
    "SFTPNotADirectory": errno.ENOTDIR,
    "SFTPFileIsADirectory": errno.EISDIR,
}


class SftpTree:
    """A folder of an SFTP server. A `Tree`.

    It connects when it is first asked for something, and closes its connection once nothing refers to it any more.

    :param options: the options of `asyncssh.connect`.
    :param links: the treatment of symbolic links, which aren't followed.
    """

    def __init__(self, location: ServerLocation, options: Mapping[str, Any], links: Links) -> None:
        self._location = location
        self._session = _Session(options)
        self._links = links

    @property
    def root(self) -> str:
        return self._location.url

    def _at(self, path: str) -> str:
        root = f"/{self._location.path}"
        return root if path == "." else posixpath.join(root, contained(path))

    def entry(self, path: str) -> Entry | None:
        at = self._at(path)
        try:
            with _as_os_error("look at", path):
                found = self._session.call(lambda sftp: sftp.lstat(at))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return self._entry(path, found)

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        return walk_listed(self._listing, folder, enter, _AT_ONCE)

    def folders(self, folder: str = ".") -> Iterator[str]:
        return folders_listed(self._listing, folder)

    def _listing(self, folder: str) -> Sequence[Entry]:
        with _as_os_error("list", folder):
            found = self._session.call(lambda sftp: sftp.readdir(self._at(folder)))
        inside = (one for one in found if one.filename not in (".", ".."))
        return [self._entry(joined(folder, cast("str", one.filename)), one.attrs) for one in inside]

    def _entry(self, path: str, found: Any) -> Entry:
        """Return an entry.

        :raises OSError: the server doesn't report what it is.
        """
        mode, modified = found.permissions, (found.mtime or 0) * _NS + (found.mtime_ns or 0)
        if mode is None or found.mtime is None:
            raise OSError(errno.EIO, "the server reports neither what it is nor its time", path)
        kind = _kind(mode)
        text = self._text(path) if kind is EntryKind.LINK and self._links is Links.COPY else ""
        attributes = Attributes(stat.S_IMODE(mode), found.uid, found.gid)
        return Entry(path, kind, int(found.size or 0), modified, str(modified), 0, attributes, text)

    def _text(self, path: str) -> str:
        with _as_os_error("read", path):
            return cast("str", self._session.call(lambda sftp: sftp.readlink(self._at(path))))

    def open(self, path: str) -> BinaryIO:
        return io.BufferedReader(_RemoteFile(self._session, self._at(path)), _BLOCK)

    def read(self, path: str, start: int, length: int) -> bytes:
        with self.open(path) as file:
            file.seek(start)
            return file.read(length)


class _Session:
    """A connection to a server, made on first use."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._lock = Lock()
        self._sftp: Any = None

    def call(self, function: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a call of the client."""
        from fsspec.asyn import get_loop, sync

        loop = get_loop()
        with self._lock:
            if self._sftp is None:
                connection, self._sftp = sync(loop, _connected, self._options)
                weakref.finalize(self, _close, loop, connection)
        result: T = sync(loop, function, self._sftp)
        return result


async def _connected(options: Mapping[str, Any]) -> tuple[Any, Any]:
    import asyncssh

    connection = await asyncssh.connect(**options)
    # Names are bytes, which need not be UTF-8.
    return connection, await connection.start_sftp_client(path_encoding="utf-8", path_errors="surrogateescape")


def _close(loop: Any, connection: Any) -> None:
    """Close a connection without waiting for it to close, since this may be any thread."""
    with suppress(RuntimeError):  # there is no loop any more, and so no connection
        loop.call_soon_threadsafe(connection.close)


class _RemoteFile(io.RawIOBase):
    """A file of a server, open for reading; asyncssh has several requests for a block in flight."""

    def __init__(self, session: _Session, at: str) -> None:
        self._session = session
        self._at = at
        self._position = 0
        with _as_os_error("open", at):
            self._file: Any = session.call(lambda sftp: sftp.open(at, "rb"))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only from the start")
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        with _as_os_error("read", self._at):
            data: bytes = self._session.call(lambda _: self._file.read(len(buffer), self._position))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _as_os_error("close", self._at):
                self._session.call(lambda _: self._file.close())


@contextmanager
def _as_os_error(operation: str, path: str) -> Iterator[None]:
    """Convert asyncssh's own errors, which aren't `OSError`."""
    with as_os_error(operation, path):
        try:
            yield
        except Exception as error:
            number = _ERRORS.get(type(error).__name__)
            if number is None:
                raise
            raise OSError(number, str(error), path) from error


def _kind(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISDIR(mode):
        return EntryKind.FOLDER
    return EntryKind.LINK if stat.S_ISLNK(mode) else EntryKind.OTHER
