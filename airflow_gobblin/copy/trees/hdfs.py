"""Trees in HDFS, through WebHDFS."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.options import KEEPS_NOTHING, Keep
from airflow_gobblin.copy.trees.base import always, joined
from airflow_gobblin.copy.trees.listed_walk import folders_listed, walk_listed
from airflow_gobblin.storage.files.base import contained
from airflow_gobblin.storage.files.hdfs import all_attributes
from airflow_gobblin.storage.filesystems import as_os_error
from airflow_gobblin.storage.http_body import AnswerBody
from airflow_gobblin.storage.locations import ServerLocation

if TYPE_CHECKING:
    from airflow_gobblin.storage.webhdfs import WebHdfs

_AT_ONCE = 8
_BLOCK = 1 << 20
_MS = 1_000_000
_KINDS = {"FILE": EntryKind.FILE, "DIRECTORY": EntryKind.FOLDER}


class HdfsTree:
    """A folder of an HDFS. A `Tree`. Its times are in ms."""

    def __init__(self, client: WebHdfs, location: ServerLocation, keep: Keep = KEEPS_NOTHING) -> None:
        self._keep = keep
        self.client = client
        self._location = location

    @property
    def root(self) -> str:
        return self._location.url

    def at(self, path: str) -> str:
        """Return the absolute path in the HDFS."""
        root = f"/{self._location.path}"
        return root if path == "." else posixpath.join(root, contained(path))

    def entry(self, path: str) -> Entry | None:
        found = self.client.status(self.at(path))
        return None if found is None else self._entry(path, found)

    def walk(self, folder: str = ".", enter: Callable[[str], bool] = always) -> Iterator[Entry]:
        return walk_listed(self._listing, folder, enter, _AT_ONCE)

    def folders(self, folder: str = ".") -> Iterator[str]:
        return folders_listed(self._listing, folder)

    def _listing(self, folder: str) -> Sequence[Entry]:
        return [self._entry(joined(folder, one["pathSuffix"]), one) for one in self.client.listing(self.at(folder))]

    def _entry(self, path: str, found: Mapping[str, Any]) -> Entry:
        kind = _KINDS.get(found["type"], EntryKind.OTHER)
        keep, modified = self._keep, found["modificationTime"] * _MS
        size = found["length"] if kind is EntryKind.FILE else 0
        attributes = all_attributes(self.client, self.at(path), found, acl=keep.acl, extended=keep.extended)
        attributes = replace(attributes, modified=None)
        return Entry(path, kind, size, modified, str(modified), found["fileId"], attributes)

    def open(self, path: str) -> BinaryIO:
        return io.BufferedReader(AnswerBody(path, self.client.read(self.at(path))), _BLOCK)

    def read(self, path: str, start: int, length: int) -> bytes:
        with self.client.read(self.at(path), start, length) as answer, as_os_error("read", path):
            found: bytes = answer.raw.read()
            return found
