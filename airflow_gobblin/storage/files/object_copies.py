"""Copies within GCS and ADLS, made by the store without ever overwriting: by the store's own condition, not a prior check.

If the answer to a copy is lost, the client sends it again, and it is refused because of its own result: so "exists" means only
that something exists there, and the caller checks its identity.
Sources: https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite (`ifGenerationMatch=0`) and
https://learn.microsoft.com/rest/api/storageservices/copy-blob (`If-None-Match: *`).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import Any

_LOOKS_AT_A_COPY = 240
_SECONDS_BETWEEN = 2.5


def copy_if_absent(filesystem: Any, scheme: str, source: str, target: str) -> None:
    """Copy an object, unless one exists at the target.

    :param filesystem: the fsspec file system of both.
    :param source: the path of the source, with its bucket.
    :param target: the path of the target, with its bucket.
    :raises FileExistsError: an object exists at the target.
    :raises FileNotFoundError: there is no source.
    :raises OSError: the store has no conditional copy (S3 publishes files by completing uploads).
    """
    copy = _COPIES.get(scheme)
    if copy is None:
        raise OSError(errno.ENOTSUP, "this store has no copy that never overwrites", target)
    copy(filesystem, source, target)


def _copy_gs(filesystem: Any, source: str, target: str) -> None:
    (from_bucket, from_name, _), (bucket, name, _) = filesystem.split_path(source), filesystem.split_path(target)
    arguments = ("POST", "b/{}/o/{}/rewriteTo/b/{}/o/{}", from_bucket, from_name, bucket, name)
    headers = {"Content-Type": "application/json"}
    token: dict[str, str] = {}
    done = False
    while not done:  # copying a large object between storage classes or regions takes several requests
        answer = filesystem.call(*arguments, headers=headers, json_out=True, ifGenerationMatch=0, **token)
        done, token = answer["done"], {"rewriteToken": answer.get("rewriteToken", "")}


def _copy_abfs(filesystem: Any, source: str, target: str) -> None:
    from fsspec.asyn import sync

    sync(filesystem.loop, _copy_blob, filesystem, source, target)


async def _copy_blob(filesystem: Any, source: str, target: str) -> None:
    from azure.core import MatchConditions
    from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

    blob = _blob(filesystem, target)
    try:
        started = await blob.start_copy_from_url(
            _blob(filesystem, source).url, match_condition=MatchConditions.IfMissing
        )
    except ResourceNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", source) from error
    except (ResourceExistsError, ResourceModifiedError) as error:
        await _copied(blob)  # perhaps another process is still copying it
        raise FileExistsError(errno.EEXIST, "an object exists there", target) from error
    status = started["copy_status"] if started["copy_status"] != "pending" else await _copied(blob)
    if status != "success":
        raise OSError(errno.EIO, f"the store's copy is {status}", target)


async def _copied(blob: Any) -> str:
    """Wait for a copy in progress, during which the object is empty.

    :return: its final status.
    """
    status = "pending"
    for _ in range(_LOOKS_AT_A_COPY):
        status = str((await blob.get_blob_properties()).copy.status or "success")
        if status != "pending":
            break
        await asyncio.sleep(_SECONDS_BETWEEN)
    return status


def _blob(filesystem: Any, path: str) -> Any:
    container, name, _ = filesystem.split_path(path)
    return filesystem.service_client.get_container_client(container).get_blob_client(name)


_COPIES: Mapping[str, Callable[[Any, str, str], None]] = {"gs": _copy_gs, "abfs": _copy_abfs}
