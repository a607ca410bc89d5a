"""Locations named by a DAG author: a path on a disk or a mounted one, a bucket of an object store, or a folder of a server."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from airflow_gobblin.errors import ConfigurationError

OBJECT_SCHEMES = {"s3": "s3", "gs": "gcs", "abfs": "azure"}
"""The schemes of object stores, each with the extra that installs its client."""
SERVER_SCHEMES = {"sftp": "sftp", "http": "http", "https": "http", "webhdfs": "hdfs", "swebhdfs": "hdfs"}
"""The schemes of servers, each with the extra that installs its client."""
_CLIENTS = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs", "sftp": "asyncssh"}
HDFS_SCHEMES = ("webhdfs", "swebhdfs")
_CONNECTION_ID = re.compile(r"[\w.-]+")
_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?")


@dataclass(frozen=True)
class ObjectLocation:
    """A location in an object store.

    :param conn_id: the Airflow connection with its credentials; `None` to take them from the environment.
    :param path: the bucket and the prefix in it, without a slash at either end.
    """

    scheme: str
    conn_id: str | None
    path: str

    @property
    def url(self) -> str:
        """The location as a URL, without the connection."""
        return f"{self.scheme}://{self.path}"


@dataclass(frozen=True)
class ServerLocation:
    """A folder of a server.

    :param conn_id: the Airflow connection with its credentials; `None` if it asks for none.
    :param host: its name or address, with its port if that isn't the usual one.
    :param path: the folder, without a slash at either end; empty for the topmost one.
    """

    scheme: str
    conn_id: str | None
    host: str
    path: str

    @property
    def url(self) -> str:
        """The location as a URL, without the connection."""
        return f"{self.scheme}://{self.host}/{self.path}".rstrip("/")


def remote_location(location: str) -> ObjectLocation | ServerLocation | None:
    """Parse a location in an object store or on a server.

    :return: `None` if it is in neither.
    :raises ConfigurationError: as `object_location` and `server_location`.
    """
    return object_location(location) or server_location(location)


def client_of(location: ObjectLocation | ServerLocation) -> str:
    """Return the module that a location is accessed by."""
    return _CLIENTS.get(location.scheme, "requests")


def object_location(location: str) -> ObjectLocation | None:
    """Parse a location in an object store, written like Airflow's `ObjectStoragePath`: `s3://[connection@]bucket/prefix`.

    :return: `None` if it isn't in an object store.
    :raises ConfigurationError: it names no bucket, contains a password, or leaves its prefix.
    """
    parts = _parts(location, OBJECT_SCHEMES, "bucket/prefix")
    if parts is None:
        return None
    scheme, conn_id, path = parts
    path = path.rstrip("/")
    if not path or not _is_plain(path):
        raise ConfigurationError(
            operation="use",
            subject=f"location {scheme}://{path}",
            cause="it must name a bucket and a plain prefix",
            hint=f"Write it as '{scheme}://connection@bucket/prefix', without '..', '//', '?', '#', '*' and brackets.",
        )
    return ObjectLocation(scheme, conn_id, path)


def server_location(location: str) -> ServerLocation | None:
    """Parse a folder of a server: `sftp://[connection@]host[:port]/folder`.

    :return: `None` if it is of another kind.
    :raises ConfigurationError: it names no host, contains a password, or isn't a plain path.
    """
    parts = _parts(location, SERVER_SCHEMES, "host/folder")
    if parts is None:
        return None
    scheme, conn_id, rest = parts
    host, _, path = rest.partition("/")
    path = path.rstrip("/")
    if not _HOST.fullmatch(host) or (path and not _is_plain(path)):
        raise ConfigurationError(
            operation="use",
            subject=f"location {scheme}://{rest}",
            cause="it must name a host and a plain path",
            hint=f"Write it as '{scheme}://connection@host/folder', without '..', '//', '?', '#', '*' and brackets.",
        )
    return ServerLocation(scheme, conn_id, host.lower(), path)


def _parts(location: str, schemes: Mapping[str, str], form: str) -> tuple[str, str | None, str] | None:
    """Return scheme, connection and the rest of a location; `None` if it is of another scheme.

    :param form: the form of the rest, for people.
    :raises ConfigurationError: it contains a password.
    """
    scheme, found, rest = location.partition("://")
    scheme = scheme.lower()
    if not found or scheme not in schemes:
        return None
    before, at, path = rest.rpartition("@") if "@" in rest.partition("/")[0] else ("", "", rest)
    if at and not _CONNECTION_ID.fullmatch(before):
        raise ConfigurationError(
            operation="use",
            subject=f"a location of scheme {scheme!r}",
            cause="the part before its '@' is not the id of a connection",
            hint=f"Write it as '{scheme}://connection@{form}': keys belong in the Airflow connection.",
        )
    return scheme, before or None, path


def _is_plain(path: str) -> bool:
    return not (any(part in ("", ".", "..") for part in path.split("/")) or set(path) & set("?#*[]\0"))


def path_below(root: str, location: str) -> str | None:
    """Return the path of a location below a root, `.` for the root itself; `None` if it isn't below it.

    :raises ConfigurationError: one of them is no location.
    """
    if root == location:
        return "."
    above, here = remote_location(root), remote_location(location)
    if above is None and here is None:
        paths = (local_path(one, operation="use", subject=f"location {one!r}") for one in (root, location))
        upper, lower = (posixpath.normpath(path) for path in paths)
    elif above is None or here is None or (above.scheme, above.conn_id) != (here.scheme, here.conn_id):
        return None
    else:
        upper, lower = above.url, here.url
    if upper == lower:
        return "."
    start = upper.rstrip("/") + "/"
    return lower.removeprefix(start) if lower.startswith(start) else None


def local_path(location: str, *, operation: str, subject: str) -> Path:
    """Return a location as a path.

    :raises ConfigurationError: it is relative, on another host, or on no file system.
    """
    parts = urlsplit(location) if "://" in location or location.startswith("file:") else None
    if parts is not None and parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise ConfigurationError(
            operation=operation,
            subject=subject,
            cause=f"{parts.netloc!r} in it is a host, not a folder",
            hint=f"Give three slashes, 'file:///{parts.netloc}{parts.path}', or an absolute path.",
        )
    path = Path(unquote(parts.path)) if parts is not None else Path(location)
    if (parts is not None and parts.scheme != "file") or not path.is_absolute():
        raise ConfigurationError(
            operation=operation,
            subject=subject,
            cause="it is not an absolute path on a local or mounted file system, nor in an object store",
            hint="Give 'file:///…' or an absolute path that workers, driver and executors all see, or "
            "'s3://connection@bucket/prefix'.",
        )
    return path


def is_place(journal: str) -> bool:
    """Return whether a journal is named by its location, rather than by the id of a connection."""
    return "://" in journal or journal.startswith("/")
