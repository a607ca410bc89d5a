"""Trees on an HTTP server: folders are its index pages, and files are what these link to.

A server decides what it reports about a file. It must report the size; by the ETag or the time of the last change, a copy notices
that the file changed. Without an index, a manifest names the files.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote, unquote, urljoin, urlsplit

from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.trees.base import always, joined
from airflow_gobblin.copy.trees.listed_walk import folders_listed, walk_listed
from airflow_gobblin.storage.files.base import contained
from airflow_gobblin.storage.filesystems import as_os_error
from airflow_gobblin.storage.http_body import AnswerBody
from airflow_gobblin.storage.locations import ServerLocation
from airflow_gobblin.storage.servers import SECONDS_TO_ANSWER, SECONDS_TO_CONNECT

if TYPE_CHECKING:
    import requests

_AT_ONCE = 8
_BLOCK = 1 << 20
_NS = 1_000_000_000
_MOST_OF_A_PAGE = 64 << 20
_ERRORS = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 410: errno.ENOENT}
_NO_HEAD = (405, 501)
_PLAIN = "identity"


class HttpTree:
    """A folder of an HTTP server. A `Tree`.

    :param session: a session with the server, with its credentials.
    """

    def __init__(self, location: ServerLocation, session: requests.Session) -> None:
        self._location = location
        self._session = session

    @property
    def root(self) -> str:
        return self._location.url

    def _url(self, path: str, *, folder: bool = False) -> str:
        """Return the URL of a path, which names a file as it is, without escapes."""
        url = (
            self._location.url
            if path == "."
            else f"{self._location.url}/{quote(contained(path), errors='surrogateescape')}"
        )
        return f"{url}/" if folder else url

    def entry(self, path: str) -> Entry | None:
        if path == ".":
            return Entry(path, EntryKind.FOLDER)  # a server needn't have a page there
        try:
            return self._file(path)
        except FileNotFoundError:
            pass
        try:
            with self._asked("HEAD", path, folder=True):
                return Entry(path, EntryKind.FOLDER)
        except FileNotFoundError:
            return None

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        return walk_listed(self._listing, folder, enter, _AT_ONCE)

    def folders(self, folder: str = ".") -> Iterator[str]:
        return folders_listed(self._listing, folder)

    def _listing(self, folder: str) -> Sequence[Entry]:
        """Return what an index page links to.

        :raises OSError: it isn't an index page, or a file that it links to isn't there.
        """
        with self._asked("GET", folder, folder=True) as answer:
            if "html" not in answer.headers.get("Content-Type", ""):
                raise NotADirectoryError(errno.ENOTDIR, "the server has no index page there", folder)
            if answer.headers.get("Content-Encoding", _PLAIN) != _PLAIN:  # it would seem to link to nothing
                raise OSError(errno.EIO, "its index page is compressed, though it was asked not to be", folder)
            page = answer.raw.read(_MOST_OF_A_PAGE + 1)
            if len(page) > _MOST_OF_A_PAGE:
                raise OSError(errno.EFBIG, f"its index page has more than {_MOST_OF_A_PAGE} bytes", folder)
            names = _linked(answer.url, page.decode(answer.encoding or "utf-8", errors="replace"))
        inner = [Entry(joined(folder, name[:-1]), EntryKind.FOLDER) for name in names if name.endswith("/")]
        files = [joined(folder, name) for name in names if not name.endswith("/")]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [*inner, *pool.map(self._file, files)]

    def _file(self, path: str) -> Entry:
        """Return the entry of a file, or of a folder that the server leads to.

        :raises FileNotFoundError: there is none.
        """
        with self._asked("HEAD", path) as answer:
            if urlsplit(answer.url).path.endswith("/"):
                return Entry(path, EntryKind.FOLDER)
            length, etag = answer.headers.get("Content-Length"), answer.headers.get("ETag", "")
            written = answer.headers.get("Last-Modified", "")
        if length is None or not length.isdecimal():
            raise OSError(errno.EIO, "the server doesn't report its size", path)
        return Entry(path, EntryKind.FILE, int(length), _ns(written), etag or written)

    @contextmanager
    def _asked(self, method: str, path: str, *, folder: bool = False, **headers: str) -> Iterator[requests.Response]:
        """Ask the server, and close the answer.

        :raises OSError: it is an error.
        """
        with as_os_error("read", path):
            answer = self._ask(method, self._url(path, folder=folder), headers)
            if answer.status_code in _NO_HEAD and method == "HEAD":
                answer.close()
                answer = self._ask("GET", self._url(path, folder=folder), headers)
            with answer:
                if answer.status_code >= 400:
                    number = _ERRORS.get(answer.status_code, errno.EIO)
                    raise OSError(number, f"the server answered {answer.status_code} {answer.reason}", path)
                yield answer

    def _ask(self, method: str, url: str, headers: dict[str, str]) -> requests.Response:
        return self._session.request(
            method,
            url,
            headers=headers,
            stream=True,
            allow_redirects=True,
            timeout=(SECONDS_TO_CONNECT, SECONDS_TO_ANSWER),
        )

    def open(self, path: str) -> BinaryIO:
        return io.BufferedReader(AnswerBody(path, self._asked("GET", path)), _BLOCK)

    def read(self, path: str, start: int, length: int) -> bytes:
        if not length:
            return b""
        with self._asked("GET", path, Range=f"bytes={start}-{start + length - 1}") as answer:
            skipped = 0 if answer.status_code == 206 else start  # the server may send all of it
            while skipped > 0 and (block := answer.raw.read(min(skipped, _BLOCK))):
                skipped -= len(block)
            found: bytes = answer.raw.read(length)
            return found


def _linked(page: str, text: str) -> list[str]:
    """Return the names directly below itself that an index page links to, each once, with a slash after those of folders."""
    parser = _Links()
    parser.feed(text)
    parser.close()
    base = urlsplit(page)
    names: dict[str, None] = {}
    for link in parser.found:
        there = urlsplit(urljoin(page, link))
        if (there.scheme, there.netloc) != (base.scheme, base.netloc) or there.query:
            continue
        name = unquote(there.path.removeprefix(base.path), errors="surrogateescape")
        plain = name.removesuffix("/")
        if there.path.startswith(base.path) and plain and "/" not in plain and plain not in (".", ".."):
            names[name] = None
    return [*names]


class _Links(HTMLParser):
    """The links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _ns(written: str) -> int:
    """Return a time in ns since 1970; 0 if the server gives none."""
    try:
        return int(parsedate_to_datetime(written).timestamp()) * _NS
    except (TypeError, ValueError):
        return 0
