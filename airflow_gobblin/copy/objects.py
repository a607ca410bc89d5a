"""Copies from and to S3: concurrent parts both ways, and none through this process where one store has both sides.

A staged file is an upload to its published key, which is left open. Each part is read on condition of the planned ETag, so what
comes is of that object, whatever happens to its key meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_gobblin.copy.attributes import KeptAttributes, known_time
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.failures import changed, described, reading, writing
from airflow_gobblin.copy.object_tree import TIME_KEY
from airflow_gobblin.copy.streams import Checksum, Origin, check_no_link, write_blocks
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.model.work import StagedFile, Upload
from airflow_gobblin.storage.files.base import contained
from airflow_gobblin.storage.files.s3_uploads import PART_BYTES, S3Part, S3Uploads, error_code, expected_etag
from airflow_gobblin.storage.filesystems import as_os_error
from airflow_gobblin.storage.stores.s3_reads import open_s3_reads

if TYPE_CHECKING:
    from airflow_gobblin.storage.files.base import Files
    from airflow_gobblin.storage.locations import ObjectLocation

MOST_PARTS = 10_000
COPY_BYTES = 64 << 20
"""The size of a part that the store copies; it takes up to 5 GiB."""
_PARALLEL = 8
_SECONDS = 60
_OTHER_ETAG = ("PreconditionFailed", "412")
T = TypeVar("T")


class S3Origin:
    """Objects of a bucket. An `Origin`.

    :param filesystem: an `s3fs.S3FileSystem`.
    :param location: the root of the tree.
    :param folder: the file set's folder below it.
    """

    def __init__(self, filesystem: Any, location: ObjectLocation, folder: str) -> None:
        self._fs = filesystem
        self.location = location
        self._root = location.url
        self._folder = folder
        self._bucket, _, self._prefix = location.path.partition("/")
        self._pool = ThreadPoolExecutor(_PARALLEL, "read")
        self._quick: Any = None
        with suppress(Exception):  # s3fs reports more
            self._quick = open_s3_reads(filesystem, self._bucket, _SECONDS)

    def blocks(self, entry: Entry, size: int) -> Iterator[bytes]:
        if entry.size <= size:
            yield self._part(entry, 0, entry.size)
            return
        starts = range(0, entry.size, size)
        yield from ahead(
            self._pool, (partial(self._part, entry, start, min(start + size, entry.size)) for start in starts)
        )

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        write_blocks(self, entry, file, checksum)

    def part(self, entry: Entry, start: int, end: int) -> S3Part:
        """Return a part of an object, for the store to copy."""
        return S3Part(self._bucket, self._key(entry), entry.stamp, start, end)

    def link(self, entry: Entry) -> str:
        check_no_link(entry, self._root)
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def path(self, entry: Entry) -> str:
        """Return the path of an object below the tree's root."""
        return joined(self._folder, contained(entry.path))

    def _key(self, entry: Entry) -> str:
        return f"{self._prefix}/{self.path(entry)}".lstrip("/")

    def _part(self, entry: Entry, start: int, end: int) -> bytes:
        path = self.path(entry)
        with reading(self._root, path):
            data, etag = self._read(entry, start, end)
        if etag != entry.stamp or len(data) != end - start:
            raise changed(self._root, path, described(entry), f"{start + len(data)} bytes or more, {etag}")
        return data

    def _read(self, entry: Entry, start: int, end: int) -> tuple[bytes, str]:
        """Read a part of an object that should have an ETag.

        :return: the bytes and the ETag that it has; without bytes, if that is another one.
        """
        key = self._key(entry)
        if self._quick is not None:
            with suppress(Exception):  # s3fs reports more
                found: tuple[bytes, str] = self._quick.part(key, start, end, entry.stamp)
                return found
        from fsspec.asyn import sync

        where = {"Range": f"bytes={start}-{end - 1}"} if end > start else {}
        with as_os_error("read", key):
            try:
                answer = self._fs.call_s3(
                    "get_object", Bucket=self._bucket, Key=key, IfMatch=f'"{entry.stamp}"', **where
                )
            except Exception as error:
                if error_code(error) in _OTHER_ETAG:
                    return b"", "another ETag"
                raise
            data: bytes = sync(self._fs.loop, answer["Body"].read)
        return data, str(answer["ETag"]).strip('"')


class UploadDestination:
    """Staged files as uploads to S3. A `Destination`.

    :param files: the files below the target's root, whose staged files are uploads.
    :param target: the file set's folder.
    :param within: the origin, if the store itself can copy from there.
    """

    def __init__(
        self, files: Files, target: str, kept: KeptAttributes, *, checksums: bool, within: S3Origin | None = None
    ) -> None:
        assert isinstance(files.uploads, S3Uploads)
        self._files = files
        self._uploads = files.uploads
        self._target = target
        self._kept = kept
        self._checksums = checksums
        self._within = None if checksums else within
        self._pool = ThreadPoolExecutor(_PARALLEL, "send")
        self._begun: list[tuple[str, str]] = []

    def stage(self, entry: Entry, origin: Origin) -> StagedFile:
        path = contained(entry.path)
        check_no_link(entry, self._files.root)
        checksum = Checksum(self._checksums)
        with writing(self._files.root, path):
            target = _key_of(joined(self._target, path))
            upload = self._uploads.begin(target, self._metadata(entry))
            self._begun.append((target, upload))
            parts: Iterable[Callable[[], str]] = self._sent(entry, origin, target, upload, checksum)
            if self._within is not None and entry.size:
                parts = self._copied(entry, self._within, target, upload)
            one_only = entry.size <= (COPY_BYTES if self._within is not None else PART_BYTES)
            etags = tuple(part() for part in parts) if one_only else tuple(ahead(self._pool, parts))
        self._kept.miss_all(entry, except_times=True)
        stamp = expected_etag(etags)
        return StagedFile(target, entry.size, checksum.result(), 0, stamp, Upload(upload, etags))

    def _metadata(self, entry: Entry) -> dict[str, str]:
        modified = known_time(entry) if self._kept.keep.times else None
        return {} if modified is None else {TIME_KEY: str(modified)}

    def _sent(
        self, entry: Entry, origin: Origin, target: str, upload: str, checksum: Checksum
    ) -> Iterator[Callable[[], str]]:
        """Yield calls that send the parts of a file."""
        number = 0
        for number, block in enumerate(origin.blocks(entry, part_size(entry.size, PART_BYTES)), 1):
            checksum.add(block)
            yield partial(self._uploads.send, target, upload, number, block)
        if number == 0:
            yield partial(self._uploads.send, target, upload, 1, b"")

    def _copied(self, entry: Entry, origin: S3Origin, target: str, upload: str) -> Iterator[Callable[[], str]]:
        """Yield calls that let the store copy the parts of an object."""
        size = part_size(entry.size, COPY_BYTES)
        for number, start in enumerate(range(0, entry.size, size), 1):
            part = origin.part(entry, start, min(start + size, entry.size))
            yield partial(self._copy_part, entry, origin, target, upload, number, part)

    def _copy_part(self, entry: Entry, origin: S3Origin, target: str, upload: str, number: int, part: S3Part) -> str:
        try:
            return self._uploads.copy_part(target, upload, number, part)
        except FileExistsError:
            found = "another ETag"
        except FileNotFoundError:
            found = "no such object"
        raise changed(origin.location.url, origin.path(entry), described(entry), found)

    def finish(self) -> None:
        """Do nothing: a part that is sent is durable."""

    def abort(self) -> None:
        def one(begun: tuple[str, str]) -> None:
            with suppress(OSError):  # clean-up aborts it once its token can't win
                self._uploads.abort(*begun)

        with ThreadPoolExecutor(_PARALLEL) as pool:
            for _ in pool.map(one, self._begun):
                pass

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def ahead(pool: ThreadPoolExecutor, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Make calls in threads, a few at once, and yield their results in order."""
    under_way: deque[Future[T]] = deque()
    try:
        for call in calls:
            under_way.append(pool.submit(call))
            if len(under_way) >= _PARALLEL // 2:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for left in under_way:
            left.cancel()
        for left in under_way:
            if not left.cancelled():
                left.exception()


def part_size(size: int, usual: int) -> int:
    """Return the size of the parts of a file: the usual one, unless there would be more than S3 takes."""
    return max(usual, -(-size // MOST_PARTS))


def _key_of(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, "names of objects are in UTF-8, and this one isn't", os.fsencode(path)) from error
    return path
