"""An HDFS client over WebHDFS, for the calls whose answers count: whether something was created, renamed or removed by this call.

Renames are those of `FileContext` (`renameoptions`), which the namenode makes in one step: never over anything, or over a file.
fsspec's client asks for the older rename, which answers `false` or moves into a folder if the target exists, and it always
overwrites what it creates. A gateway without `renameoptions` (HttpFS) makes the older one, which is noticed and refused.
Source: https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from airflow_gobblin.storage.filesystems import as_os_error

_PREFIX = "/webhdfs/v1"
_TRIES = 5
_CONCURRENT = 32
_SECONDS = (10, 60)
"""Seconds to connect, and to answer."""
_BLOCK = 1 << 20
_ERRORS = {
    "AccessControlException": errno.EACCES,
    "DSQuotaExceededException": errno.EDQUOT,
    "FileAlreadyExistsException": errno.EEXIST,
    "FileNotFoundException": errno.ENOENT,
    "InvalidPathException": errno.EINVAL,
    "NSQuotaExceededException": errno.EDQUOT,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "PathComponentTooLongException": errno.ENAMETOOLONG,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "SecurityException": errno.EACCES,
    "UnsupportedOperationException": errno.ENOTSUP,
}
_FILE_AND_FOLDER = "must both be directories"
"""The answer to a rename where one of the two is a folder, and the other one isn't."""
_NO_ATTRIBUTE = ("XAttr", "ACLs has been disabled")


class WebHdfs:
    """The namenode of an HDFS, and its datanodes, to which it leads.

    :param url: its address, `http://namenode:9870`.
    :param user: the user to act as, where the namenode believes that; empty for the one that it assumes if none is named.
    :param password: the password for a gateway that asks for one; empty for none.
    """

    def __init__(self, url: str, user: str = "", password: str = "") -> None:
        self._url = url
        self.user = user
        self._session = requests.Session()
        # Only a request that changes nothing is sent again after it was sent.
        retries = Retry(_TRIES - 1, redirect=0, allowed_methods={"GET"}, backoff_factor=0.2, status=0)
        self._session.mount(f"{urlsplit(url).scheme}://", HTTPAdapter(pool_maxsize=_CONCURRENT, max_retries=retries))
        self._session.trust_env = False
        self._user: dict[str, str] = {}
        if password:
            self._session.auth = (user, password)
        elif user:
            self._user = {"user.name": user}

    def status(self, path: str) -> dict[str, Any] | None:
        """Return the status of a file or folder; `None` if nothing exists there."""
        try:
            found: dict[str, Any] = self._call("GET", "GETFILESTATUS", path)["FileStatus"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def listing(self, path: str) -> list[dict[str, Any]]:
        """Return the statuses of what is in a folder, with their names in `pathSuffix`.

        :raises FileNotFoundError: it doesn't exist.
        :raises NotADirectoryError: it is a file.
        """
        found: list[dict[str, Any]] = self._call("GET", "LISTSTATUS", path)["FileStatuses"]["FileStatus"]
        if [one["pathSuffix"] for one in found] == [""]:
            raise NotADirectoryError(errno.ENOTDIR, "it is a file", path)
        return found

    def rename(self, path: str, target: str, *, over: bool = False) -> None:
        """Rename a file or a folder, atomically.

        :param over: whether it may take the place of a file.
        :raises FileExistsError: something exists there, or, with `over`, a folder.
        :raises FileNotFoundError: it is missing, or the folder of its target is.
        """
        answer = self._call("PUT", "RENAME", path, destination=target, renameoptions="OVERWRITE" if over else "NONE")
        if answer:
            raise OSError(
                errno.ENOTSUP, "this gateway has no rename that never overwrites: name the namenode itself", target
            )

    def concat(self, path: str, others: Sequence[str]) -> None:
        """Append other files to a file of the same folder, by moving their blocks; they are gone afterwards. Atomic.

        :param others: without commas in their paths, and with blocks that aren't larger.
        :raises FileNotFoundError: one of them is missing.
        """
        self._call("POST", "CONCAT", path, sources=",".join(others))

    def make_folder(self, path: str, *, permission: str = "") -> None:
        """Make a folder and those above it; harmless if it exists.

        :raises FileExistsError: a file exists there.
        """
        self._call("PUT", "MKDIRS", path, **({"permission": permission} if permission else {}))

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a file or an empty folder, or a folder with all that is in it; nothing goes to a trash.

        :return: whether it existed.
        :raises OSError: `ENOTEMPTY`: something is in it.
        """
        return bool(self._call("DELETE", "DELETE", path, recursive=str(recursive).lower())["boolean"])

    def set(self, operation: str, path: str, **parameters: str) -> None:
        """Set attributes: `SETPERMISSION`, `SETOWNER`, `SETTIMES`, `SETREPLICATION`, `SETACL`, `REMOVEACL`, `SETXATTR` …"""
        self._call("PUT", operation, path, **parameters)

    def get(self, operation: str, path: str, **parameters: str) -> dict[str, Any]:
        """Ask for more about a file: `GETACLSTATUS`, `GETXATTRS`, `GETFILECHECKSUM`, `CHECKACCESS`."""
        answer = self._call("GET", operation, path, **parameters)
        if "Location" in answer:  # a datanode knows it
            with self._asked("GET", answer["Location"], path) as response:
                found: dict[str, Any] = response.json()
                return found
        return answer

    @contextmanager
    def read(self, path: str, start: int = 0, length: int | None = None) -> Iterator[requests.Response]:
        """Ask a datanode for the bytes of a file, and close the answer."""
        part = {"offset": str(start)} | ({} if length is None else {"length": str(length)})
        there = self._call("GET", "OPEN", path, noredirect="true", **part)["Location"]
        with self._asked("GET", there, path, stream=True) as response:
            yield response

    def create(self, path: str, **parameters: str) -> WebHdfsOutput:
        """Open a new file for writing, with the folders that it is in.

        :raises FileExistsError: it exists; perhaps only reported when it is closed.
        """
        there = self._call("PUT", "CREATE", path, overwrite="false", noredirect="true", **parameters)["Location"]
        with as_os_error("write", path):
            return WebHdfsOutput(there, path, self._session.auth)

    def _call(self, method: str, operation: str, path: str, **parameters: str) -> dict[str, Any]:
        """Return the namenode's answer; empty if it has none.

        :raises OSError: it is an error.
        """
        url = f"{self._url}{_PREFIX}{quote(path)}"
        with self._asked(method, url, path, params={"op": operation, **parameters, **self._user}) as response:
            found: dict[str, Any] = response.json() if response.content else {}
            return found

    @contextmanager
    def _asked(self, method: str, url: str, path: str, **options: Any) -> Iterator[requests.Response]:
        options |= {"timeout": _SECONDS, "allow_redirects": False}
        with as_os_error("ask for", path), self._session.request(method, url, **options) as response:
            if response.status_code >= 300:
                raise _error(response.status_code, response.text, path)
            yield response


class WebHdfsOutput:
    """A new file being written to a datanode: it exists, perhaps empty, from its first bytes on, and is complete once closed."""

    def __init__(self, url: str, path: str, auth: Any) -> None:
        request = requests.Request("PUT", url, auth=auth).prepare()
        parts = urlsplit(request.url or url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._path = path
        self._connection = kind(parts.hostname or "", parts.port, timeout=_SECONDS[1])
        self._connection.putrequest("PUT", f"{parts.path}?{parts.query}", skip_accept_encoding=True)
        if "Authorization" in request.headers:
            self._connection.putheader("Authorization", request.headers["Authorization"])
        self._connection.putheader("Content-Type", "application/octet-stream")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        with memoryview(data).cast("B") as view:
            for start in range(0, len(view), _BLOCK):
                block = view[start : start + _BLOCK]
                self._send(b"%x\r\n%b\r\n" % (len(block), bytes(block)))
            return len(view)

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except OSError:
            self._expect_created()  # it has answered before the end, with a better reason
            raise

    def close(self) -> None:
        """Complete the file; harmless twice.

        :raises FileExistsError: it exists.
        """
        if self._connection.sock is None:
            return
        try:
            self._send(b"0\r\n\r\n")
            self._expect_created()
        finally:
            self._connection.close()

    def _expect_created(self) -> None:
        with as_os_error("write", self._path):
            answer = self._connection.getresponse()
            if answer.status != http.client.CREATED:
                raise _error(answer.status, answer.read().decode(errors="replace"), self._path)

    def abort(self) -> None:
        """Stop. A part of the file exists by then; it isn't made later. Harmless twice.

        The datanode may be about to create the file: it closes the connection only after that.
        """
        with suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_WR)
                while self._connection.sock.recv(_BLOCK):
                    pass
        self._connection.close()


def _error(status: int, text: str, path: str) -> OSError:
    """Return the error of an answer. Its message is the namenode's, without the stack that may follow."""
    try:
        reported = json.loads(text)["RemoteException"]
    except (ValueError, KeyError, TypeError):
        number = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT}.get(status, errno.EIO)
        return OSError(number, f"the server answered {status}", path)
    message = str(reported.get("message", "")).partition("\n")[0]
    if _FILE_AND_FOLDER in message:
        return FileExistsError(errno.EEXIST, message, path)
    if any(word in message for word in _NO_ATTRIBUTE):
        return OSError(errno.ENOTSUP, message, path)
    return OSError(
        _ERRORS.get(reported.get("exception", ""), errno.EIO), f"{reported.get('exception')}: {message}", path
    )
