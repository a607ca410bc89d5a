"""Copies within GCS and ADLS, made by the store where nothing exists or over the expected object, and removals of that object: on
the store's own condition, not after a prior check.

A copy has the metadata of its source, unless it is given other metadata. So an object that the store itself has staged, whose
content nobody has read, is given a mark there, which identifies its published copy.

If the answer to a copy is lost, the client sends it again, and it is refused because of its own result. So "exists" means only
that something exists there, and the caller checks its identity.
Sources: https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite (`ifGenerationMatch`),
https://learn.microsoft.com/rest/api/storageservices/copy-blob and …/delete-blob (`If-None-Match: *`, `If-Match`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import posixpath
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_gobblin.storage.files.base import contained
from airflow_gobblin.storage.filesystems import as_os_error

MARK = "gobblin_copy"
"""The key of the mark in the metadata of an object. ADLS takes no hyphens there, and its clients may write it in capitals."""
_EXISTS = ("BlobAlreadyExists", "ConditionNotMet", "PendingCopyOperation", "TargetConditionNotMet")
"""The codes with which ADLS refuses a copy because something is there. A conflict may have other reasons."""
_LOOKS_AT_A_COPY = 240
_SECONDS_BETWEEN = 2.5
_KEPT_BY_GS = (
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
)
"""The other properties that GCS replaces together with the metadata of a copy."""


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
    copy(filesystem, source, target, None, None)


class ConditionalCopies:
    """Acts on objects of GCS or ADLS that take something over or away, each on the condition that it is the expected object. A
    store gives each object that is written another ETag, so that none is mistaken for one with the same content.

    :param filesystem: the fsspec file system.
    :param root: bucket and prefix.
    """

    def __init__(self, filesystem: Any, scheme: str, root: str) -> None:
        self._fs = filesystem
        self._scheme = scheme
        self._root = root

    def stage(self, source: str, expected: str, staged: str, mark: str) -> None:
        with as_os_error("copy", source):
            _COPIES[self._scheme](self._fs, source, self._at(staged), None, _Marked(expected, mark))

    def mark(self, path: str) -> str:
        with as_os_error("look at", path):
            found = _METADATA[self._scheme](self._fs, self._at(path))
        return next((value for key, value in found.items() if key.lower() == MARK), "")

    def replace(self, source: str, target: str, expected: str) -> None:
        with as_os_error("copy", source):
            _COPIES[self._scheme](self._fs, self._at(source), self._at(target), expected, None)

    def remove(self, target: str, expected: str) -> None:
        with as_os_error("remove", target), contextlib.suppress(FileNotFoundError):
            _REMOVALS[self._scheme](self._fs, self._at(target), expected)

    def _at(self, path: str) -> str:
        return posixpath.join(self._root, contained(path))


@dataclass(frozen=True)
class _Marked:
    """The requirements of a copy that stages an object.

    :param source: the ETag of the object to copy.
    :param mark: the mark that the copy gets, besides the metadata of that object.
    """

    source: str
    mark: str

    def metadata(self, found: Mapping[str, str]) -> dict[str, str]:
        """Return the metadata of the copy of an object."""
        return {**{key: value for key, value in found.items() if key.lower() != MARK}, MARK: self.mark}


def _generation(filesystem: Any, path: str, expected: str | None) -> str:
    """Return the generation of the expected object, 0 for none. An object gets another one as soon as it is written again.

    :param expected: its ETag.
    :raises FileExistsError: another object exists there.
    """
    if expected is None:
        return "0"
    found = filesystem.info(path)
    if str(found["etag"]).strip('"') != expected:
        raise FileExistsError(errno.EEXIST, "another object exists there", path)
    return str(found["generation"])


def _copy_gs(filesystem: Any, source: str, target: str, expected: str | None, marked: _Marked | None) -> None:
    (from_bucket, from_name, _), (bucket, name, _) = filesystem.split_path(source), filesystem.split_path(target)
    asked: dict[str, Any] = {"ifGenerationMatch": _generation(filesystem, target, expected)}
    if marked is not None:
        found = filesystem.info(source)
        if str(found["etag"]).strip('"') != marked.source:
            raise OSError(errno.ESTALE, "it is another object by now", source)
        asked["ifSourceGenerationMatch"] = str(found["generation"])
        kept = {key: found[key] for key in _KEPT_BY_GS if found.get(key)}
        asked["json"] = {**kept, "metadata": marked.metadata(found.get("metadata") or {})}
    arguments = ("POST", "b/{}/o/{}/rewriteTo/b/{}/o/{}", from_bucket, from_name, bucket, name)
    headers = {"Content-Type": "application/json"}
    token: dict[str, str] = {}
    done = False
    while not done:  # copying a large object between storage classes or regions takes several requests
        answer = filesystem.call(*arguments, headers=headers, json_out=True, **asked, **token)
        done, token = answer["done"], {"rewriteToken": answer.get("rewriteToken", "")}


def _metadata_gs(filesystem: Any, path: str) -> Mapping[str, str]:
    return filesystem.info(path).get("metadata") or {}


def _remove_gs(filesystem: Any, path: str, expected: str) -> None:
    bucket, name, _ = filesystem.split_path(path)
    generation = _generation(filesystem, path, expected)
    filesystem.call("DELETE", "b/{}/o/{}", bucket, name, ifGenerationMatch=generation)


async def _remove_blob(filesystem: Any, path: str, expected: str) -> None:
    from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError

    blob = _blob(filesystem, path)
    try:
        await blob.delete_blob(**_condition(expected))
    except ResourceNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", path) from error
    except ResourceModifiedError as error:
        if not await blob.exists():  # Azurite answers this if nothing is there
            return
        raise FileExistsError(errno.EEXIST, "another object exists there", path) from error


def _condition(expected: str | None) -> dict[str, Any]:
    """Return the condition that an object is the expected one, or that none exists."""
    from azure.core import MatchConditions

    if expected is None:
        return {"match_condition": MatchConditions.IfMissing}
    return {"etag": f'"{expected}"', "match_condition": MatchConditions.IfNotModified}


async def _properties(filesystem: Any, path: str) -> Any:
    from azure.core.exceptions import ResourceNotFoundError

    try:
        return await _blob(filesystem, path).get_blob_properties()
    except ResourceNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", path) from error


async def _metadata_of_blob(filesystem: Any, path: str) -> Mapping[str, str]:
    """Return the metadata of an object; none if the object is what a failed copy left.

    :raises OSError: it is still being copied: it may have its full size by then, and hold zeros.
    """
    found = await _properties(filesystem, path)
    if found.copy.status == "pending":
        raise OSError(errno.EBUSY, "it is still being copied", path)
    return (found.metadata or {}) if found.copy.status in (None, "success") else {}


async def _marks(filesystem: Any, source: str, marked: _Marked) -> dict[str, Any]:
    """Return the parameters of a request to copy one object and mark the copy.

    :raises OSError: it isn't a block blob. A copy has its source's type, and can't replace an object of another one.
    """
    from azure.core import MatchConditions
    from azure.storage.blob import BlobType

    found = await _properties(filesystem, source)
    if found.blob_type != BlobType.BLOCKBLOB:
        raise OSError(errno.ENOTSUP, f"it is not a block blob but {found.blob_type}", source)
    return {
        "metadata": marked.metadata(found.metadata or {}),
        "source_etag": f'"{marked.source}"',
        "source_match_condition": MatchConditions.IfNotModified,
    }


async def _copy_blob(filesystem: Any, source: str, target: str, expected: str | None, marked: _Marked | None) -> None:
    from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

    blob = _blob(filesystem, target)
    asked = _condition(expected) | ({} if marked is None else await _marks(filesystem, source, marked))
    try:
        started = await blob.start_copy_from_url(_blob(filesystem, source).url, **asked)
    except ResourceNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", source) from error
    except (ResourceExistsError, ResourceModifiedError) as error:
        if marked is not None and isinstance(error, ResourceModifiedError) and not await blob.exists():
            raise OSError(errno.ESTALE, "it is another object by now", source) from error
        if isinstance(error, ResourceExistsError) and getattr(error, "error_code", "") not in _EXISTS:
            raise
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


def _awaited(work: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Return a function that does some work in the loop of a file system, and waits for it."""

    def do(filesystem: Any, *arguments: Any) -> Any:
        from fsspec.asyn import sync

        return sync(filesystem.loop, work, filesystem, *arguments)

    return do


_COPIES: Mapping[str, Callable[[Any, str, str, str | None, _Marked | None], None]] = {
    "gs": _copy_gs,
    "abfs": _awaited(_copy_blob),
}
_METADATA: Mapping[str, Callable[[Any, str], Mapping[str, str]]] = {
    "gs": _metadata_gs,
    "abfs": _awaited(_metadata_of_blob),
}
_REMOVALS: Mapping[str, Callable[[Any, str, str], None]] = {"gs": _remove_gs, "abfs": _awaited(_remove_blob)}
