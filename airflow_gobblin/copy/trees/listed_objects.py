"""Trees below a prefix of a bucket of GCS or a container of ADLS, listed folder by folder through their fsspec file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, cast

from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.trees.base import always
from airflow_gobblin.copy.trees.listed_walk import folders_listed, walk_listed
from airflow_gobblin.storage.files.base import contained
from airflow_gobblin.storage.filesystems import as_os_error
from airflow_gobblin.storage.locations import ObjectLocation

_AT_ONCE = 16
_BLOCK = 8 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ListedObjects:
    """A prefix of a bucket. A `Tree`.

    :param filesystem: its fsspec file system, without a listing cache.
    """

    def __init__(self, filesystem: Any, location: ObjectLocation) -> None:
        self._fs = filesystem
        self._location = location

    @property
    def root(self) -> str:
        return self._location.url

    @property
    def location(self) -> ObjectLocation:
        """Its root."""
        return self._location

    def _at(self, path: str) -> str:
        return self._location.path if path == "." else f"{self._location.path}/{contained(path)}"

    def entry(self, path: str) -> Entry | None:
        try:
            with as_os_error("look at", path):
                found = self._fs.info(self._at(path))
        except FileNotFoundError:
            return None
        return Entry(path, EntryKind.FOLDER) if found["type"] == "directory" else _file(path, found)

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        return walk_listed(self._listing, folder, enter, _AT_ONCE)

    def folders(self, folder: str = ".") -> Iterator[str]:
        return folders_listed(self._listing, folder)

    def _listing(self, folder: str) -> Sequence[Entry]:
        inside = f"{self._at(folder)}/"
        with as_os_error("list", folder):
            listed = self._fs.ls(inside.rstrip("/"), detail=True)
        found = [one for one in listed if one["name"].startswith(inside)]
        if not found:
            raise FileNotFoundError(f"no object's key begins with {inside!r}")
        skip = len(self._location.path) + 1
        entries = (self._entry(one["name"][skip:], one) for one in found if one["name"] != inside)
        return [*{(entry.path, entry.kind): entry for entry in entries}.values()]

    def _entry(self, path: str, found: Mapping[str, Any]) -> Entry:
        """Return the entry of an object or a folder.

        :raises OSError: it has content and the name of a folder.
        """
        if found["type"] == "directory":
            return Entry(path.rstrip("/"), EntryKind.FOLDER)
        if path.endswith("/"):
            if int(found["size"]):
                raise OSError(f"object {path!r} has content, and no file can have a name that ends with a slash")
            return Entry(path.rstrip("/"), EntryKind.FOLDER)
        return _file(path, found)

    def open(self, path: str) -> BinaryIO:
        with as_os_error("open", path):
            return cast("BinaryIO", self._fs.open(self._at(path), "rb", block_size=_BLOCK, cache_type="readahead"))

    def read(self, path: str, start: int, length: int) -> bytes:
        with as_os_error("read", path):
            data: bytes = self._fs.cat_file(self._at(path), start=start, end=start + length)
            return data


def _file(path: str, found: Mapping[str, Any]) -> Entry:
    written = found.get("updated") or found["last_modified"]
    at = datetime.fromisoformat(written) if isinstance(written, str) else written
    modified = (at - _EPOCH) // timedelta(microseconds=1) * 1000
    return Entry(path, EntryKind.FILE, int(found["size"]), modified, str(found["etag"]).strip('"'))
