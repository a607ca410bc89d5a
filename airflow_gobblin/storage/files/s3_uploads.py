"""Uploads to S3 that are kept open until the commit step completes them.

The parts of a multipart upload are stored, and paid for, but no object exists or is visible; completing it is one small request,
which with `If-None-Match: *` never overwrites. The future ETag of the object follows from its parts' ETags (unless the bucket
encrypts with a KMS key; then a file is identified by its checksum).
Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from airflow_gobblin.model.work import Upload
from airflow_gobblin.storage.files.base import FileIdentity, contained
from airflow_gobblin.storage.filesystems import as_os_error
from airflow_gobblin.storage.quick_s3 import QuickS3, RecentObjects, open_quick_s3
from airflow_gobblin.storage.s3_sender import PartSender, open_part_sender
from airflow_gobblin.storage.servers import SECONDS_TO_ANSWER

log = logging.getLogger(__name__)

PART_BYTES = 16 << 20
"""S3 accepts parts of at least 5 MiB, and 10,000 of them: files up to 160 GB."""
COPIED_AT_ONCE = 128 << 20
"""The size of a part that the store copies. S3 accepts 5 GiB, and copies several parts at once sooner than one."""
PARTS_ON_THEIR_WAY = 2
_READ_AT_ONCE = 4
"""The number of parts of a file that are read and sent at once."""
_MAX_PARTS = 10_000
_CONFLICTS = ("ConditionalRequestConflict", "OperationAborted")
"""S3's answers (409) while another request for the same key is in progress; botocore doesn't retry them."""
_PAUSES = (0.1, 0.5, 2.0)
"""Seconds between retries."""


TIME_KEY = "gobblin-mtime"
"""The metadata in which an object keeps the time of the file that it copies, in ns since 1970."""


class S3Uploads:
    """The uploads below a root.

    :param filesystem: an `s3fs.S3FileSystem`.
    :param root: bucket and prefix.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._fs = filesystem
        self._bucket, _, prefix = root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""

    @cached_property
    def quick(self) -> QuickS3 | None:
        """Fast access to the whole bucket, where it is possible."""
        return open_quick_s3(self._fs, self._bucket, SECONDS_TO_ANSWER)

    @cached_property
    def recent(self) -> RecentObjects | None:
        """The objects read last, by `quick`."""
        return None if self.quick is None else RecentObjects(self.quick)

    @cached_property
    def _sender(self) -> PartSender | None:
        """A fast way to send parts, where it is possible."""
        try:
            return open_part_sender(self._fs)
        except Exception as error:
            log.debug("parts are sent by s3fs: %s", error)
            return None

    def put(self, target: str, data: bytes, modified: int | None = None) -> None:
        key = self._prefix + contained(target)
        if self.quick is not None and self.quick.knows(key):
            try:
                self.quick.put_new(key, data, metadata_of(modified))
                return
            except FileExistsError:
                raise
            except Exception as error:  # it may exist by now
                log.debug("%s is put again by s3fs: %s", key, error)
        with as_os_error("put", target):
            self._call("put_object", target, Body=data, IfNoneMatch="*", Metadata=metadata_of(modified))

    def begin(self, target: str, modified: int | None = None) -> str:
        """Open an upload.

        :param modified: the time that the object keeps in its metadata, in ns since 1970.
        :return: its id.
        """
        with as_os_error("begin an upload to", target):
            return str(self._call("create_multipart_upload", target, Metadata=metadata_of(modified))["UploadId"])

    def send(self, target: str, upload: str, number: int, data: bytes | memoryview) -> str:
        """Send a part, counted from 1. Any number of threads may call it.

        :return: its ETag.
        """
        body = bytes(data)  # as clients take it; bytes aren't copied
        if self._sender is not None and self._sender.usable:
            try:
                return self._sender.send(self._bucket, self._prefix + contained(target), upload, number, body)
            except Exception as error:  # sending a part again does no harm
                log.debug("part %d of %s is sent again by s3fs: %s", number, target, error)
        with as_os_error("send a part of", target):
            answer = self._call("upload_part", target, UploadId=upload, PartNumber=number, Body=body)
            return str(answer["ETag"]).strip('"')

    def copy(self, source: str, etag: str, size: int, target: str, modified: int | None = None) -> Upload:
        """Open an upload whose parts the store copies from another object, some at once.

        :param source: bucket and key.
        :param etag: the ETag of that object.
        :param size: its size, above 0.
        :param modified: as for `begin`.
        :raises OSError: it is no longer that object, or can't be copied. The upload is aborted.
        """
        bucket, _, key = source.partition("/")

        starts = range(0, size, COPIED_AT_ONCE)
        with self._begun(target, modified) as upload, as_os_error("copy a part to", target):

            def copied(number: int, start: int) -> str:
                answer = self._call(
                    "upload_part_copy",
                    target,
                    UploadId=upload,
                    PartNumber=number,
                    CopySource={"Bucket": bucket, "Key": key},
                    CopySourceIfMatch=f'"{etag}"',
                    CopySourceRange=f"bytes={start}-{min(start + COPIED_AT_ONCE, size) - 1}",
                )
                return str(answer["CopyPartResult"]["ETag"]).strip('"')

            return Upload(upload, _several(target, starts, 1, PARTS_ON_THEIR_WAY, copied))

    def fill(
        self, target: str, size: int, read: Callable[[int, int], bytes | memoryview], modified: int | None = None
    ) -> Upload:
        """Open an upload whose parts are read and sent several at once.

        :param size: their total size, above 0.
        :param read: returns a part, given its start and end.
        :param modified: as for `begin`.
        :raises OSError: it can't be written. Like any other error of reading or writing, it aborts the upload.
        """

        with self._begun(target, modified) as upload:
            return Upload(upload, self.send_range(target, upload, 0, size, read))

    def send_range(
        self, target: str, upload: str, start: int, end: int, read: Callable[[int, int], bytes | memoryview]
    ) -> tuple[str, ...]:
        """Read and send the parts of a range of a file, several at once. Sending one again changes nothing.

        :param start: a multiple of `PART_BYTES`.
        :param read: returns a part, given its start and end.
        :return: their ETags.
        """

        def sent(number: int, at: int) -> str:
            return self.send(target, upload, number, read(at, min(at + PART_BYTES, end)))

        return _several(target, range(start, end, PART_BYTES), number_at(start), _READ_AT_ONCE, sent)

    @contextlib.contextmanager
    def _begun(self, target: str, modified: int | None) -> Iterator[str]:
        """Open an upload that is aborted on an error."""
        upload = self.begin(target, modified)
        try:
            yield upload
        except BaseException:
            with contextlib.suppress(OSError):  # clean-up aborts it once its token can't win
                self.abort(target, upload)
            raise

    def can_complete(self, target: str, upload: Upload) -> bool:
        found = self.sent(target, upload.id)
        return found is not None and tuple(found.values()) == upload.etags

    def sent(self, target: str, upload: str) -> dict[int, str] | None:
        """Return the ETags of the parts that an upload has, by number, in order; `None` if it isn't open."""
        found: dict[int, str] = {}
        marker = 0
        with as_os_error("look at the upload to", target):
            while True:
                try:
                    answer = self._call("list_parts", target, UploadId=upload, PartNumberMarker=marker)
                except FileNotFoundError:
                    return None
                found |= {int(part["PartNumber"]): str(part["ETag"]).strip('"') for part in answer.get("Parts", ())}
                if not answer.get("IsTruncated"):
                    return found
                marker = int(answer["NextPartNumberMarker"])

    def complete(self, target: str, upload: Upload) -> None:
        self._complete(target, upload, IfNoneMatch="*")

    def replace(self, target: str, upload: Upload, expected: str) -> None:
        self._complete(target, upload, IfMatch=f'"{expected}"')

    def remove(self, target: str, expected: str) -> None:
        with as_os_error("remove", target), contextlib.suppress(FileNotFoundError):
            self._call("delete_object", target, IfMatch=f'"{expected}"')

    def _complete(self, target: str, upload: Upload, **condition: str) -> None:
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(upload.etags, start=1)]
        arguments = {"UploadId": upload.id, "MultipartUpload": {"Parts": parts}, **condition}
        with as_os_error("complete the upload to", target):
            for pause in (*_PAUSES, None):
                try:
                    self._call("complete_multipart_upload", target, **arguments)
                    return
                except OSError as error:
                    # It doesn't determine whether the object exists. If the store dropped the upload with it, the next try
                    # reports that.
                    if pause is None or _code(error) not in _CONFLICTS:
                        raise
                    time.sleep(pause)

    def abort(self, target: str, upload: str) -> None:
        with as_os_error("abort the upload to", target), contextlib.suppress(FileNotFoundError):
            self._call("abort_multipart_upload", target, UploadId=upload)

    def open_below(self, folder: str) -> Iterator[tuple[str, str]]:
        prefix = self._prefix if folder == "." else f"{self._prefix}{contained(folder)}/"
        markers: dict[str, str] = {}
        while True:
            with as_os_error("list the uploads below", folder):
                answer = self._fs.call_s3("list_multipart_uploads", Bucket=self._bucket, Prefix=prefix, **markers)
            for found in answer.get("Uploads", ()):
                yield str(found["Key"])[len(self._prefix) :], str(found["UploadId"])
            if not answer.get("IsTruncated"):
                return
            markers = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def _call(self, method: str, target: str, **arguments: Any) -> Any:
        try:
            return self._fs.call_s3(method, Bucket=self._bucket, Key=self._prefix + contained(target), **arguments)
        except Exception as error:
            code = _code(error)
            if code == "NoSuchUpload":
                raise FileNotFoundError(errno.ENOENT, "there is no such upload", target) from error
            if code in ("PreconditionFailed", "412"):
                raise FileExistsError(errno.EEXIST, "an object, or another one, exists there", target) from error
            raise


def metadata_of(modified: int | None) -> dict[str, str]:
    """Return the metadata of an object that keeps a time; none if it keeps none."""
    return {} if modified is None else {TIME_KEY: str(modified)}


def _code(error: BaseException) -> str:
    """Return the code of S3's error, which s3fs translates into an `OSError`."""
    for found in (error, error.__cause__):
        response = getattr(found, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def expected_etag(etags: tuple[str, ...]) -> str:
    """Return the future ETag of the object from the ETags of its parts; empty if it can't be computed."""
    try:
        digests = b"".join(bytes.fromhex(etag) for etag in etags)
    except ValueError:
        return ""
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def number_at(start: int) -> int:
    """Return the number of the part that begins at a place in a file, a multiple of `PART_BYTES`."""
    return 1 + start // PART_BYTES


def _several(target: str, starts: range, first: int, at_once: int, part: Callable[[int, int], str]) -> tuple[str, ...]:
    """Store parts, several at once.

    :param starts: where they begin.
    :param first: the number of the first one.
    :param part: stores a part, given its number and start, and returns its ETag.
    """
    _check_count(first - 1 + len(starts), starts.step, target)
    with ThreadPoolExecutor(min(at_once, len(starts)), "upload") as pool:
        return tuple(pool.map(part, range(first, first + len(starts)), starts))


def _check_count(parts: int, size: int, target: str) -> None:
    if parts > _MAX_PARTS:
        raise OSError(errno.EFBIG, f"S3 takes {_MAX_PARTS} parts, here of {size} bytes; use smaller files", target)


class UploadOutput:
    """A staged file that is an upload: a `RawOutput`. Parts are sent while the next one is filled.

    It holds `PARTS_ON_THEIR_WAY` + 1 parts in memory, whatever the file's size.
    """

    def __init__(self, uploads: S3Uploads, target: str, modified: int | None = None) -> None:
        self._uploads = uploads
        self._target = contained(target)
        self._id: str | None = uploads.begin(target, modified)
        self._pool = ThreadPoolExecutor(PARTS_ON_THEIR_WAY, "upload")
        self._parts: list[Future[str]] = []
        self._blocks: list[bytes] = []
        self._held = 0
        self._size = 0

    def write(self, data: memoryview) -> object:
        rest = data.cast("B") if data.nbytes else data
        while rest.nbytes:
            block = bytes(rest[: PART_BYTES - self._held])
            rest = rest[len(block) :]
            self._blocks.append(block)
            self._held += len(block)
            if self._held == PART_BYTES:
                self._send()
        self._size += data.nbytes
        return data.nbytes

    def finish(self) -> tuple[str, FileIdentity, Upload | None]:
        if self._held or not self._parts:
            self._send()
        etags = tuple(part.result() for part in self._parts)
        self._pool.shutdown()
        assert self._id is not None, "it was aborted"
        return self._target, FileIdentity(0, self._size, expected_etag(etags)), Upload(self._id, etags)

    def abort(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._blocks.clear()
        if self._id is not None:
            with contextlib.suppress(OSError):  # clean-up aborts it once its token can't win
                self._uploads.abort(self._target, self._id)
            self._id = None

    def _send(self) -> None:
        _check_count(len(self._parts) + 1, PART_BYTES, self._target)
        if len(self._parts) >= PARTS_ON_THEIR_WAY:
            self._parts[-PARTS_ON_THEIR_WAY].result()  # no more than these are held in memory
        data = b"".join(self._blocks)
        self._blocks, self._held = [], 0
        number = len(self._parts) + 1
        assert self._id is not None, "it was aborted"
        self._parts.append(self._pool.submit(self._uploads.send, self._target, self._id, number, data))
