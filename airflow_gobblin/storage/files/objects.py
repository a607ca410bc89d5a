"""Files in an object store, through its fsspec file system.

It has no folders, no links and nothing to sync: an object exists whole and durable, or not at all. If the store can keep uploads
open (S3), a staged file *is* an upload to its published name, and publishing completes it without moving a byte. Elsewhere a
staged file is an object that is copied by the store itself, and removed with its staging.
"""

from __future__ import annotations

import errno
import hashlib
import io
import posixpath
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_gobblin.model.work import StagedFile, Upload
from airflow_gobblin.storage.files.base import (
    Attributes,
    Copies,
    FileIdentity,
    Keeps,
    StagedOutput,
    Uploads,
    contained,
    each,
)
from airflow_gobblin.storage.files.object_copies import ConditionalCopies, copy_if_absent
from airflow_gobblin.storage.files.s3_uploads import S3Uploads, UploadOutput, expected_etag
from airflow_gobblin.storage.filesystems import as_os_error
from airflow_gobblin.storage.locations import ObjectLocation

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from airflow_gobblin.storage.stores.base import Store

PARALLEL = 32
SETTLES_AFTER = timedelta(minutes=15)
"""S3 may take minutes to complete an upload, and a client waits a minute for each of its five tries."""
_READ_BYTES = 8 << 20


class ObjectFiles:
    """Files below a prefix of a bucket.

    :param filesystem: its fsspec file system, without listing cache.
    :param location: bucket and prefix.
    """

    def __init__(self, filesystem: AbstractFileSystem, location: ObjectLocation) -> None:
        self._fs: Any = filesystem
        self._location = location
        self._uploads = S3Uploads(filesystem, location.path) if location.scheme == "s3" else None

    @property
    def root(self) -> str:
        return self._location.url

    @property
    def parallel(self) -> int:
        return PARALLEL

    @property
    def uploads(self) -> Uploads | None:
        return self._uploads

    @property
    def copies(self) -> Copies | None:
        if self._uploads is not None:
            return None
        return ConditionalCopies(self._fs, self._location.scheme, self._location.path)

    @property
    def moves_folders(self) -> bool:
        return False

    @property
    def keeps(self) -> Keeps:
        return Keeps()

    @property
    def settles_after(self) -> timedelta:
        return SETTLES_AFTER

    def other(self, root: str) -> ObjectFiles:
        scheme, _, path = root.partition("://")
        return ObjectFiles(self._fs, ObjectLocation(scheme, self._location.conn_id, path))

    def records(self, folder: str) -> Store:
        from airflow_gobblin.storage.stores.objects import ObjectStore

        return ObjectStore(self._fs, posixpath.join(self._location.path, folder).rstrip("/"))

    def _at(self, path: str) -> str:
        return self._location.path if path == "." else posixpath.join(self._location.path, contained(path))

    def identity(self, path: str) -> FileIdentity | None:
        try:
            with as_os_error("look at", path):
                found = self._fs.info(self._at(path))
        except FileNotFoundError:
            return None
        if found["type"] != "file":
            return None
        return FileIdentity(0, int(found["size"]), _stamp(found))

    def modified(self, path: str) -> datetime | None:
        try:
            with as_os_error("look at", path):
                found: datetime = self._fs.modified(self._at(path))
        except FileNotFoundError:
            return None
        return found.astimezone(UTC)

    def names(self, paths: Sequence[str]) -> list[int]:
        return [int(self.identity(path) is not None) for path in paths]  # an object has one name

    def read(self, path: str) -> bytes:
        with as_os_error("read", path):
            data: bytes = self._fs.cat_file(self._at(path))
            return data

    def read_part(self, path: str, start: int, size: int) -> bytes:
        key = self._at(path).partition("/")[2]
        recent = None if self._uploads is None else self._uploads.recent
        if recent is not None and recent.knows(key):
            with suppress(Exception):
                return recent.part(key, start, size)
        with as_os_error("read", path):
            data: bytes = self._fs.cat_file(self._at(path), start=start, end=start + size)
            return data

    def checksum(self, path: str) -> str | None:
        with as_os_error("read", path), self._fs.open(self._at(path), "rb", block_size=_READ_BYTES) as file:
            found = hashlib.sha256()
            while piece := file.read(_READ_BYTES):
                found.update(piece)
            return found.hexdigest()

    def create(self, path: str) -> BinaryIO:
        return _NewObject(self, path)

    def put(self, path: str, data: bytes) -> None:
        """Create an object.

        :raises FileExistsError: it exists.
        """
        with as_os_error("write", path):
            self._fs.pipe_file(self._at(path), data, mode="create")

    def stage(self, path: str, target: str) -> StagedOutput:
        return self.stage_with(path, target, None)

    def stage_with(self, path: str, target: str, modified: int | None) -> StagedOutput:
        """Open a new staged file for writing, as `stage` does.

        :param modified: the time that it keeps in its metadata, where staged files are uploads, in ns since 1970.
        """
        if self._uploads is not None:
            return StagedOutput(UploadOutput(self._uploads, target, modified))
        return StagedOutput(_ObjectOutput(self, path))

    def shares_store(self, other: ObjectLocation) -> bool:
        """Return whether this store can copy from there by itself: it is the same kind, with the same credentials."""
        here = self._location
        return (here.scheme, here.conn_id) == (other.scheme, other.conn_id)

    def stage_copy(
        self, source: str, etag: str, size: int, path: str, target: str, modified: int | None = None
    ) -> StagedFile:
        """Have the store stage a copy of an object that isn't empty.

        :param source: its bucket and key.
        :param etag: its ETag.
        :param path: its staged name, where staged files are objects. A mark identifies it, as nobody has seen its bytes.
        :param target: its future path, where they are uploads.
        :param modified: as for `stage_with`.
        :raises OSError: it is no longer that object, or can't be copied.
        """
        if self._uploads is not None:
            upload = self._uploads.copy(source, etag, size, target, modified)
            return StagedFile(target, size, "", 0, expected_etag(upload.etags), upload)
        mark, copies = secrets.token_hex(16), self.copies
        assert copies is not None
        try:
            copies.stage(source, etag, path, mark)
        except FileExistsError:  # perhaps the answer was lost, and the client has sent it again
            if copies.mark(path) != mark:
                raise
        found = self.identity(path)
        if found is None or found.size != size:
            raise OSError(errno.EIO, "the staged copy isn't what was copied", path)
        return StagedFile(path, size, "", 0, found.stamp, mark=mark)

    def stage_parts(
        self, size: int, target: str, read: Callable[[int, int], bytes | memoryview], modified: int | None = None
    ) -> StagedFile:
        """Stage a file by reading and sending several parts at once, in a store that keeps uploads open.

        :param size: above 0.
        :param read: returns a part, given its start and end.
        :param modified: as for `stage_with`.
        """
        assert self._uploads is not None
        upload = self._uploads.fill(target, size, read, modified)
        return StagedFile(target, size, "", 0, expected_etag(upload.etags), upload)

    def begin_parts(self, target: str, modified: int | None = None) -> str:
        """Open an upload for parts that several tasks stage; return its id.

        :param modified: as for `stage_with`.
        """
        assert self._uploads is not None
        return self._uploads.begin(target, modified)

    def stage_part(
        self, upload: str, target: str, start: int, end: int, read: Callable[[int, int], bytes | memoryview]
    ) -> StagedFile:
        """Stage a part of a file in an open upload, any number of times.

        :param read: as for `stage_parts`.
        """
        assert self._uploads is not None
        etags = self._uploads.send_range(target, upload, start, end, read)
        return StagedFile(target, end - start, "", 0, "", Upload(upload, etags))

    def sent_parts(self, target: str, upload: str) -> Mapping[int, str]:
        """Return the ETags of the parts that an upload has, by their numbers; none if there is no such upload."""
        assert self._uploads is not None
        return self._uploads.sent(target, upload) or {}

    def end_parts(self, target: str, upload: str) -> None:
        """Discard an upload for parts."""
        assert self._uploads is not None
        self._uploads.abort(target, upload)

    def join_parts(self, parts: Sequence[StagedFile]) -> StagedFile:
        """Return the staged file that the parts of an upload make up."""
        uploads = [part.upload for part in parts if part.upload is not None]
        whole = Upload(uploads[0].id, tuple(etag for upload in uploads for etag in upload.etags))
        return StagedFile(parts[0].path, sum(part.size for part in parts), "", 0, expected_etag(whole.etags), whole)

    def link(self, source: str, target: str) -> None:
        with as_os_error("copy", source):
            copy_if_absent(self._fs, self._location.scheme, self._at(source), self._at(target))

    def renames_new(self, folder: str) -> bool:
        contained(folder)
        return False

    def rename_new(self, source: str, target: str) -> None:
        raise OSError(errno.ENOTSUP, "an object store renames nothing", target)

    def replace(self, source: str, target: str) -> None:
        raise OSError(errno.ENOTSUP, "an object store renames nothing", target)

    def unlink(self, path: str) -> None:
        with as_os_error("remove", path):
            self._fs.rm_file(self._at(path))

    def make_folder(self, path: str) -> None:
        contained(path)

    def make_private(self, path: str) -> None:
        contained(path)  # read access is controlled by the bucket

    def leads_to(self, path: str) -> None:
        contained(path)

    def move_folder(self, source: str, target: str) -> None:
        raise OSError(errno.ENOTSUP, "an object store has no folders to move", target)

    def remove_folder(self, path: str) -> None:
        contained(path)

    def folder(self, path: str) -> Attributes | None:
        contained(path)
        return None

    def set_folder(self, path: str, attributes: Attributes) -> None:
        raise OSError(errno.ENOTSUP, "an object store has no folders with attributes", path)

    def may_change(self, folder: str) -> bool:
        contained(folder)  # the rights of the credentials are known only when they are tried
        return True

    def has(self, path: str, attributes: Attributes) -> bool:
        contained(path)
        return attributes == Attributes()

    def lacks(self, path: str, expected: FileIdentity, attributes: Attributes) -> bool:
        return attributes != Attributes() and self.identity(path) == expected

    def set_file(self, path: str, expected: FileIdentity, attributes: Attributes) -> None:
        raise OSError(errno.ENOTSUP, "an object store has no files with attributes", path)

    def identities(self, path: str) -> dict[str, FileIdentity]:
        below = self._at(path)
        try:
            with as_os_error("list", path):
                listed = self._fs.ls(below, detail=True)
        except FileNotFoundError:
            return {}
        inside = f"{below}/"  # for an object that isn't a folder, the listing has the object itself
        found = (e for e in listed if e["type"] == "file" and e["name"].startswith(inside))
        return {e["name"].removeprefix(inside): FileIdentity(0, int(e["size"]), _stamp(e)) for e in found}

    def walk(self, path: str) -> Iterator[str]:
        below = self._at(path)
        with as_os_error("list", path):
            found = sorted(self._fs.find(below))
        skip = len(self._location.path) + 1
        return iter([name[skip:] for name in found if name.startswith(f"{below}/")])

    def folders(self, path: str) -> tuple[str, ...]:
        try:
            with as_os_error("list", path):
                found = self._fs.ls(self._at(path), detail=True)
        except FileNotFoundError:
            return ()
        return tuple(sorted(posixpath.basename(e["name"].rstrip("/")) for e in found if e["type"] == "directory"))

    def filled(self, folders: Sequence[str]) -> list[bool | OSError]:
        """List the folders above them, each once: those of many datasets lie side by side."""
        above = [*dict.fromkeys(map(_above, folders))]
        listed = dict(zip(above, each(self, self._folders, above), strict=True))
        found = ((folder, listed[_above(folder)]) for folder in folders)
        return [some if isinstance(some, OSError) else posixpath.basename(folder) in some for folder, some in found]

    def _folders(self, path: str) -> Collection[str] | OSError:
        try:
            return frozenset(self.folders(path))
        except OSError as error:
            return error

    def remove_tree(self, path: str) -> None:
        names = [*self.walk(path)]
        if not names:
            return
        with suppress(FileNotFoundError), as_os_error("remove", path):  # another process may be removing them, too
            self._fs.rm([self._at(name) for name in names])
        left = {*names} & {*self.walk(path)}  # s3fs silently skips objects whose removal was refused
        for name in sorted(left):
            with suppress(FileNotFoundError):
                self.unlink(name)

    def sync_file(self, path: str) -> None:
        contained(path)

    def sync_folder(self, path: str) -> None:
        contained(path)


def _above(path: str) -> str:
    return posixpath.dirname(path) or "."


def _stamp(found: dict[str, Any]) -> str:
    for name in ("ETag", "etag", "generation", "md5Hash"):
        if found.get(name):
            return str(found[name]).strip('"')
    return ""


class _NewObject(io.BytesIO):
    """A small object being written; it exists once it is closed."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        super().__init__()
        self._files = files
        self._path = path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._files.put(self._path, data)


class _ObjectOutput:
    """A staged file in a store without open uploads: a `RawOutput`."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files = files
        self._path = path
        with as_os_error("write", path):
            self._out: Any = files._fs.open(files._at(path), "wb", block_size=_READ_BYTES)

    def write(self, data: memoryview) -> object:
        with as_os_error("write", self._path):
            return self._out.write(bytes(data))

    def finish(self) -> tuple[str, FileIdentity, Upload | None]:
        with as_os_error("write", self._path):
            self._out.close()
        found = self._files.identity(self._path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the staged object is gone", self._path)
        return self._path, found, None

    def abort(self) -> None:
        with as_os_error("abandon", self._path):
            self._out.discard()
