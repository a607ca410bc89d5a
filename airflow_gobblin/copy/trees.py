"""Trees: places that files are read from or compared with: on a disk, in an object store, or on a server.

A walk is lazy and in the order of S3's keys on both, so that two of them can be compared side by side, however many files there
are. Only the names of the folders on the way are in memory, and those of a few folders ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Protocol

from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.options import Links
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.storage.locations import HDFS_SCHEMES, ServerLocation, local_path, remote_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections

OWN_FOLDER = "_gobblin"
"""What is ours in a target, and in a source that is a target of another job: no walk shows it."""


def always(folder: str) -> bool:
    """Enter every folder."""
    return True


class Tree(Protocol):
    """A place that files are read from. Errors are `OSError`.

    Whatever can't be listed or read is an error: a listing that failed is never a shorter one.
    """

    @property
    def root(self) -> str:
        """Its path or URL, without secrets."""

    def entry(self, path: str) -> Entry | None:
        """Return what is at a path; `None` if nothing is. In a store a folder is there if anything is below it."""

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        """Yield everything below a folder, each folder right before what is in it, in the order of `key_of`.

        Paths are relative to the root. `_gobblin` in the folder itself is left out. The folders of an object store are those that
        its keys name.

        :param enter: whether to go into a folder. On a disk, one that isn't entered is still yielded.
        :raises FileNotFoundError: there is no such folder.
        """

    def folders(self, folder: str = ".") -> Iterator[str]:
        """Yield the names of the folders in a folder, in order.

        :raises FileNotFoundError: there is no such folder.
        """

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it whole."""

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read a part of a file."""


def open_tree(location: str, connections: Connections | None = None, links: Links = Links.SKIP) -> Tree:
    """Open the tree at a location: an absolute path, `file:///…`, a prefix of a bucket, or a folder of a server.

    :param connections: access to secrets, if the location names a connection.
    :param links: the treatment of symbolic links.
    :raises ConfigurationError: the location is invalid, or there is no such connection.
    """
    place = remote_location(location)
    if place is None:
        from airflow_gobblin.copy.local_tree import LocalTree

        return LocalTree(local_path(location, operation="read", subject=f"tree {location!r}"), links)
    if isinstance(place, ServerLocation):
        return _tree_of_server(place, connections, links)
    from airflow_gobblin.storage.filesystems import open_filesystem

    if place.scheme == "s3":
        from airflow_gobblin.copy.object_tree import ObjectTree

        return ObjectTree(open_filesystem(place, connections), place)
    from airflow_gobblin.copy.listed_objects import ListedObjects

    return ListedObjects(open_filesystem(place, connections), place)


def _tree_of_server(place: ServerLocation, connections: Connections | None, links: Links) -> Tree:
    if place.scheme in HDFS_SCHEMES:
        from airflow_gobblin.storage.servers import webhdfs_client

        client = webhdfs_client(place, connections)
        from airflow_gobblin.copy.hdfs_tree import HdfsTree

        return HdfsTree(client, place)
    if place.scheme == "sftp":
        from airflow_gobblin.copy.sftp_tree import SftpTree
        from airflow_gobblin.storage.servers import sftp_options

        if links is Links.FOLLOW:
            raise ConfigurationError(
                operation="open",
                subject=f"tree {place.url}",
                cause="links of a server of SFTP are not followed, as they may lead out of its folder",
                hint="Skip them, or copy them as links: links=Links.SKIP, links=Links.COPY.",
            )
        return SftpTree(place, sftp_options(place, connections), links)
    from airflow_gobblin.copy.http_tree import HttpTree
    from airflow_gobblin.storage.servers import http_session

    return HttpTree(place, http_session(place, connections))


def joined(folder: str, name: str) -> str:
    """Return the path of a name in a folder."""
    return name if folder == "." else f"{folder}/{name}"


def folders_of(path: str) -> list[str]:
    """Return the folders that a path is in, the outermost first."""
    return [path[:at] for at, char in enumerate(path) if char == "/"]
