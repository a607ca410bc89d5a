"""What is under a target root: the port (`base`), and one file a kind of place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_gobblin.files.base import (
    FileIdentity,
    Files,
    RawOutput,
    StagedOutput,
    Uploads,
    at_a_glance,
    contained,
    each,
)
from airflow_gobblin.files.local import LocalFiles
from airflow_gobblin.places import local_path, object_place

if TYPE_CHECKING:
    from airflow_gobblin.sources.base import Connections

__all__ = [
    "FileIdentity",
    "Files",
    "LocalFiles",
    "RawOutput",
    "StagedOutput",
    "Uploads",
    "at_a_glance",
    "check_target",
    "contained",
    "each",
    "open_files",
]


def open_files(target: str, connections: Connections | None = None) -> Files:
    """What is under a target root.

    :param target: as `check_target` takes it. :param connections: where an object store's secrets come from, if it names one.
    :raises ConfigurationError: it can be no target, or its connection isn't there.
    """
    place = object_place(target)
    if place is None:
        return LocalFiles(_local_root(target))
    from airflow_gobblin.files.objects import ObjectFiles
    from airflow_gobblin.object_storage import open_filesystem

    return ObjectFiles(open_filesystem(place, connections), place)


def check_target(target: str) -> None:
    """Look at where a target is said to be, without going there.

    :param target: an absolute path, `file:///…`, or `s3://[connection@]bucket/prefix` (also `gs://`, `abfs://`).
    :raises ConfigurationError: it is relative, on another host, names no bucket, or holds a password.
    """
    if object_place(target) is None:
        _local_root(target)


def _local_root(target: str) -> str:
    return str(local_path(target, operation="publish", subject=f"to target {target!r}"))
