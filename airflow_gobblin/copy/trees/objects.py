"""Trees below a prefix of a bucket. Folders are those that keys name; an object that represents a folder is one, too."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, BinaryIO, cast

from airflow_gobblin.copy.entries import Entry, EntryKind, sort_key
from airflow_gobblin.copy.trees.base import always, joined
from airflow_gobblin.storage.files.base import OWN_FOLDER, contained
from airflow_gobblin.storage.files.s3_uploads import TIME_KEY
from airflow_gobblin.storage.filesystems import as_os_error
from airflow_gobblin.storage.locations import ObjectLocation
from airflow_gobblin.storage.quick_s3 import QuickS3, open_quick_s3
from airflow_gobblin.storage.s3_streams import S3Streams
from airflow_gobblin.storage.servers import SECONDS_TO_ANSWER

_THREADS = 16
_AHEAD = 8
"""The number of folders whose first page is requested ahead."""
_BLOCK = 8 << 20
_LAST_CHARACTER = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ObjectTree:
    """A prefix of a bucket of S3. A `Tree`.

    :param filesystem: its `s3fs.S3FileSystem`, without a listing cache.
    """

    def __init__(self, filesystem: Any, location: ObjectLocation) -> None:
        self._fs = filesystem
        self._location = location
        self._bucket, _, prefix = location.path.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""

    @property
    def root(self) -> str:
        return self._location.url

    @property
    def location(self) -> ObjectLocation:
        """Its root."""
        return self._location

    def _key(self, path: str) -> str:
        return self._prefix + path

    def _folder(self, path: str) -> str:
        """Return the prefix of the keys in a folder."""
        return self._prefix if path == "." else f"{self._prefix}{contained(path)}/"

    def entry(self, path: str) -> Entry | None:
        if path != ".":
            try:
                with as_os_error("look at", path):
                    found = self._fs.call_s3("head_object", Bucket=self._bucket, Key=self._key(contained(path)))
            except FileNotFoundError:
                pass
            else:
                kept = found.get("Metadata", {}).get(TIME_KEY, "")
                modified = int(kept) if kept.isdecimal() else _ns(found["LastModified"])
                return Entry(path, EntryKind.FILE, int(found["ContentLength"]), modified, found["ETag"].strip('"'))
        page = self._page(self._folder(path), MaxKeys=1)
        return Entry(path, EntryKind.FOLDER) if page.keys or page.folders else None

    def folders(self, folder: str = ".") -> Iterator[str]:
        prefix, page = self._folder(folder), self._page(self._folder(folder), Delimiter="/")
        self._expect_any(page, folder)
        while True:
            for key in page.folders:
                if key != f"{prefix}{OWN_FOLDER}/":
                    yield key[len(prefix) : -1]
            if not page.token:
                return
            page = self._page(prefix, Delimiter="/", ContinuationToken=page.token)

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        own = joined(folder, OWN_FOLDER)
        walk = _Walk(self, folder, lambda path: path != own and enter(path))
        pool = ThreadPoolExecutor(_THREADS, "listing")
        try:
            first = self._page(self._folder(folder))
            self._expect_any(first, folder)
            for entry in walk.with_folders(walk.below(self._folder(folder), first, pool)):
                if entry.path != own:
                    yield entry
        finally:
            pool.shutdown(cancel_futures=True)

    def _expect_any(self, page: _Page, folder: str) -> None:
        if not page.keys and not page.folders:
            raise FileNotFoundError(f"no object's key begins with {self._folder(folder)!r} in bucket {self._bucket!r}")

    def _page(self, prefix: str, **arguments: Any) -> _Page:
        """List keys that begin with a prefix, as many as the store returns at once."""
        with as_os_error("list", prefix):
            found = self._fs.call_s3("list_objects_v2", Bucket=self._bucket, Prefix=prefix, **arguments)
        folders = tuple(one["Prefix"] for one in found.get("CommonPrefixes", ()))
        return _Page(found.get("Contents", ()), folders, found.get("NextContinuationToken", ""))

    def open(self, path: str) -> BinaryIO:
        with as_os_error("open", path):
            at = f"{self._bucket}/{self._key(contained(path))}"
            return cast("BinaryIO", self._fs.open(at, "rb", block_size=_BLOCK, cache_type="readahead"))

    def read(self, path: str, start: int, length: int) -> bytes:
        with as_os_error("read", path):
            data: bytes = self._fs.cat_file(
                f"{self._bucket}/{self._key(contained(path))}", start=start, end=start + length
            )
            return data

    def read_part(self, path: str, start: int, end: int) -> tuple[bytes | memoryview, str]:
        """Return a part of an object that isn't empty, and the object's ETag. Any number of threads may call it."""
        key = self._key(path)
        if self._quick is not None and self._quick.knows(key):
            with suppress(Exception):
                return self._quick.get_part(key, start, end)
        with as_os_error("read", path):
            return self._by_s3fs(key, start, end)

    def stream_part(self, path: str, start: int, end: int) -> tuple[Iterator[bytes], str]:
        """Return a part like `read_part`, but block by block as it arrives. Any `Exception` may be raised."""
        return self._streams.part(self._key(path), start, end)

    def _by_s3fs(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        from fsspec.asyn import sync

        async def get() -> tuple[bytes, str]:
            asked = {"Bucket": self._bucket, "Key": key, "Range": f"bytes={start}-{end - 1}"}
            answer = await self._fs._call_s3("get_object", **asked)
            async with answer["Body"] as body:
                return await body.read(), str(answer["ETag"]).strip('"')

        found: tuple[bytes, str] = sync(self._fs.loop, get)
        return found

    @cached_property
    def _quick(self) -> QuickS3 | None:
        return open_quick_s3(self._fs, self._bucket, SECONDS_TO_ANSWER)

    @cached_property
    def _streams(self) -> S3Streams:
        return S3Streams(self._fs, self._bucket, SECONDS_TO_ANSWER)


@dataclass(frozen=True)
class _Page:
    """A part of a listing.

    :param keys: the store's descriptions of objects.
    :param folders: the prefixes that end with the delimiter.
    :param token: the token to request the next page with; empty after the last one.
    """

    keys: Sequence[dict[str, Any]]
    folders: tuple[str, ...]
    token: str


class _Walk:
    """A walk of a folder by pages of keys; where there are many keys, it lists several folders at once."""

    def __init__(self, tree: ObjectTree, folder: str, enter: Callable[[str], bool]) -> None:
        self._tree = tree
        self._skip = len(tree._prefix)
        self._enter = enter
        self._start = folder
        self._looked_at: tuple[str, str | None] = ("", None)

    def below(self, prefix: str, page: _Page, pool: ThreadPoolExecutor) -> Iterator[Entry]:
        """Yield the objects below a prefix.

        :param page: the first page of them.
        """
        if page.token:
            parts = self._tree._page(prefix, Delimiter="/")
            if not parts.token and len(parts.folders) > 1:
                yield from self._by_folders(parts, pool)
                return
        while True:
            following = pool.submit(self._tree._page, prefix, **self._after(page)) if page.token else None
            for found in page.keys:
                entry = self._entry(found)
                if entry is not None:
                    yield entry
            if following is None:
                return
            page = following.result()

    def _after(self, page: _Page) -> dict[str, str]:
        """Return the arguments that request the page after one, skipping the rest of a folder that isn't entered."""
        closed = self._closed(page.keys[-1]["Key"][self._skip :]) if page.keys else None
        if closed is not None:
            return {"StartAfter": f"{self._tree._key(closed)}/{_LAST_CHARACTER}"}
        return {"ContinuationToken": page.token}

    def _by_folders(self, parts: _Page, pool: ThreadPoolExecutor) -> Iterator[Entry]:
        """Yield the objects in a folder and below the folders in it, whose first pages are requested ahead."""
        inner = [*((found["Key"], found) for found in parts.keys), *((folder, None) for folder in parts.folders)]
        inner.sort(key=lambda part: sort_key(part[0]))
        begun: deque[tuple[str, dict[str, Any] | None, Future[_Page] | None]] = deque()
        for key, found in inner:
            if found is None and self._closed(key[self._skip :]) is not None:
                continue
            begun.append((key, found, None if found is not None else pool.submit(self._tree._page, key)))
            if len(begun) > _AHEAD:
                yield from self._one(*begun.popleft(), pool)
        while begun:
            yield from self._one(*begun.popleft(), pool)

    def _one(
        self, key: str, found: dict[str, Any] | None, page: Future[_Page] | None, pool: ThreadPoolExecutor
    ) -> Iterator[Entry]:
        if page is not None:
            yield from self.below(key, page.result(), pool)
        else:
            assert found is not None
            entry = self._entry(found)
            if entry is not None:
                yield entry

    def _closed(self, path: str) -> str | None:
        """Return the outermost folder that a path is in and that isn't entered; `None` if all are."""
        folder = path[: path.rfind("/") + 1]
        if folder != self._looked_at[0]:
            self._looked_at = folder, next((one for one in self._inside(folder) if not self._enter(one)), None)
        return self._looked_at[1]

    def _entry(self, found: dict[str, Any]) -> Entry | None:
        """Return the entry of an object; `None` if it is the walked folder's own, or in one that isn't entered.

        :raises OSError: it has content and the name of a folder.
        """
        path, size = found["Key"][self._skip :], int(found["Size"])
        if self._closed(path) is not None:
            return None
        if not path or path.endswith("/"):
            if size:
                raise OSError(f"object {path!r} has content, and no file can have a name that ends with a slash")
            return None if path[:-1] in ("", self._start) else Entry(path[:-1], EntryKind.FOLDER)
        return Entry(path, EntryKind.FILE, size, _ns(found["LastModified"]), str(found["ETag"]).strip('"'))

    def with_folders(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """Yield entries, each after the folders that it is in."""
        known: tuple[str, ...] = (self._start,)
        for entry in entries:
            is_folder = entry.kind is EntryKind.FOLDER
            folder = entry.path if is_folder else posixpath.dirname(entry.path) or "."
            if folder != known[-1]:
                inside = (self._start, *(() if folder == self._start else self._inside(f"{folder}/")))
                common = len(posixpath.commonprefix([known, inside]))
                yield from (Entry(path, EntryKind.FOLDER) for path in inside[common:])
                known = inside
            if not is_folder:
                yield entry

    def _inside(self, path: str) -> list[str]:
        """Return the folders that a path is in, below the walked one, the outermost first."""
        at = path.find("/", 0 if self._start == "." else len(self._start) + 1)
        found = []
        while at >= 0:
            found.append(path[:at])
            at = path.find("/", at + 1)
        return found


def _ns(modified: datetime) -> int:
    return (modified - _EPOCH) // timedelta(microseconds=1) * 1000
