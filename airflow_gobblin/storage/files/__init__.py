"""Files under a target root: the port (`base`), and one module per kind of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.storage.files.base import (
    Attributes,
    FileIdentity,
    Files,
    Keeps,
    RawOutput,
    StagedOutput,
    Uploads,
    contained,
    each,
    with_listing_cache,
)
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.storage.locations import HDFS_SCHEMES, ServerLocation, local_path, object_location, remote_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections

__all__ = [
    "Attributes",
    "FileIdentity",
    "Files",
    "Keeps",
    "LocalFiles",
    "RawOutput",
    "StagedOutput",
    "Uploads",
    "check_target",
    "contained",
    "each",
    "open_files",
    "with_listing_cache",
]


def open_files(target: str, connections: Connections | None = None) -> Files:
    """Open the files under a target root.

    :param target: a location as for `check_target`, or for mirrors `webhdfs://[connection@]namenode:port/folder`.
    :param connections: access to an object store's secrets, if the target names a connection.
    :raises ConfigurationError: the target is invalid, or there is no such connection.
    """
    location = remote_location(target)
    if location is None:
        return LocalFiles(_local_root(target))
    if isinstance(location, ServerLocation):
        return _files_of_server(location, connections)
    from airflow_gobblin.storage.files.objects import ObjectFiles
    from airflow_gobblin.storage.filesystems import open_filesystem

    return ObjectFiles(open_filesystem(location, connections), location)


def _files_of_server(location: ServerLocation, connections: Connections | None) -> Files:
    if location.scheme not in HDFS_SCHEMES:
        raise ConfigurationError(
            operation="publish",
            subject=f"to target {location.url}",
            cause=f"nothing is written to {location.scheme}://",
            hint="Give a path on a disk, 's3://connection@bucket/prefix' or 'webhdfs://connection@namenode:9870/folder'.",
        )
    from airflow_gobblin.storage.servers import webhdfs_client

    client = webhdfs_client(location, connections)
    from airflow_gobblin.storage.files.hdfs import HdfsFiles

    return HdfsFiles(client, location)


def check_target(target: str) -> None:
    """Check that a target's location is valid, without accessing it.

    :param target: an absolute path, `file:///…`, or `s3://[connection@]bucket/prefix` (also `gs://`, `abfs://`).
    :raises ConfigurationError: it is relative, on another host, names no bucket, or contains a password.
    """
    if object_location(target) is None:
        _local_root(target)


def _local_root(target: str) -> str:
    return str(local_path(target, operation="publish", subject=f"to target {target!r}"))
