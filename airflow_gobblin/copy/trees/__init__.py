"""Trees: places that files are read from or compared with: the port (`base`), and one module per kind of store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_gobblin.copy.options import KEEPS_NOTHING, Keep, Links
from airflow_gobblin.copy.trees.base import Tree, always, folders_of, joined
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.storage.files.base import OWN_FOLDER
from airflow_gobblin.storage.locations import HDFS_SCHEMES, ServerLocation, local_path, remote_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections

__all__ = ["OWN_FOLDER", "Tree", "always", "folders_of", "joined", "open_tree"]


def open_tree(
    location: str, connections: Connections | None = None, links: Links = Links.SKIP, keep: Keep = KEEPS_NOTHING
) -> Tree:
    """Open the tree at a location: an absolute path, `file:///…`, a prefix of a bucket, or a folder of a server.

    :param connections: access to secrets, if the location names a connection.
    :param links: the treatment of symbolic links.
    :param keep: what is kept of files: entries have attributes that take calls of their own only if these are kept.
    :raises ConfigurationError: the location is invalid, or there is no such connection.
    """
    place = remote_location(location)
    if place is None:
        from airflow_gobblin.copy.trees.local import LocalTree

        return LocalTree(local_path(location, operation="read", subject=f"tree {location!r}"), links, keep)
    if isinstance(place, ServerLocation):
        return _tree_of_server(place, connections, links, keep)
    from airflow_gobblin.storage.filesystems import open_filesystem

    if place.scheme == "s3":
        from airflow_gobblin.copy.trees.objects import ObjectTree

        return ObjectTree(open_filesystem(place, connections), place)
    from airflow_gobblin.copy.trees.listed_objects import ListedObjects

    return ListedObjects(open_filesystem(place, connections), place)


def _tree_of_server(place: ServerLocation, connections: Connections | None, links: Links, keep: Keep) -> Tree:
    if place.scheme in HDFS_SCHEMES:
        from airflow_gobblin.storage.servers import webhdfs_client

        client = webhdfs_client(place, connections)
        from airflow_gobblin.copy.trees.hdfs import HdfsTree

        return HdfsTree(client, place, keep)
    if place.scheme == "sftp":
        from airflow_gobblin.copy.trees.sftp import SftpTree
        from airflow_gobblin.storage.servers import sftp_options

        if links is Links.FOLLOW:
            raise ConfigurationError(
                operation="open",
                subject=f"tree {place.url}",
                cause="links of a server of SFTP are not followed, as they may lead out of its folder",
                hint="Skip them, or copy them as links: links=Links.SKIP, links=Links.COPY.",
            )
        return SftpTree(place, sftp_options(place, connections), links)
    from airflow_gobblin.copy.trees.http import HttpTree
    from airflow_gobblin.storage.servers import http_session

    return HttpTree(place, http_session(place, connections))
