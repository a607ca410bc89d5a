"""Files in an HDFS, through WebHDFS.

It has folders, renames and no links: anything published gets its name by one rename, so mirrors can publish there, and sinks of
rows can't. A file's identity is the number that the namenode gives it, its size and its time, which no rename changes. Anything
that the namenode has acknowledged is durable: there is nothing to sync.
"""

from __future__ import annotations

import errno
import hashlib
import io
import posixpath
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from airflow_gobblin.model.work import Upload
from airflow_gobblin.storage.files.acls import Acl, permission_without, whole
from airflow_gobblin.storage.files.base import Attributes, FileIdentity, Keeps, StagedOutput, contained, each
from airflow_gobblin.storage.files.disk_attributes import Refused, noting, raise_first
from airflow_gobblin.storage.locations import ServerLocation
from airflow_gobblin.storage.stores.hdfs import HdfsStore

if TYPE_CHECKING:
    from airflow_gobblin.storage.stores.base import Store
    from airflow_gobblin.storage.webhdfs import WebHdfs, WebHdfsOutput

PARALLEL = 16
_MS = 1_000_000
_NAMES = ("user.", "trusted.")
"""The prefixes of the names of extended attributes that users may set, and that the superuser may set."""
_READ_BYTES = 4 << 20
_SETTLES_AFTER = timedelta(minutes=2)
"""A client waits for a minute; a request that is on its way for longer than two is dropped by the network."""


class HdfsFiles:
    """Files below a folder of an HDFS.

    :param client: the client of its namenode.
    :param location: the folder.
    """

    uploads = None
    copies = None
    parallel = PARALLEL
    moves_folders = True
    settles_after = _SETTLES_AFTER

    def __init__(self, client: WebHdfs, location: ServerLocation) -> None:
        self.client = client
        self._location = location
        self._renames: bool | None = None

    @property
    def root(self) -> str:
        return self._location.url

    @cached_property
    def keeps(self) -> Keeps:
        """How far it keeps attributes; the namenode's own user, which may set owners, is that of the topmost folder."""
        top = self.client.status("/")
        user = self.client.user
        superuser = top is not None and top["owner"] == user
        return Keeps(
            _MS,
            0o1777,
            names=True,
            sets_owners=superuser,
            user=user,
            acl=acl_of(self.client, "/") is not None,
            extended=() if extended_of(self.client, "/") is None else _NAMES[: 2 if superuser else 1],
        )

    def other(self, root: str) -> HdfsFiles:
        scheme, _, rest = root.partition("://")
        host, _, path = rest.partition("/")
        return HdfsFiles(self.client, ServerLocation(scheme, self._location.conn_id, host, path))

    def records(self, folder: str) -> Store:
        return HdfsStore(self, folder)

    def at(self, path: str) -> str:
        """Return the absolute path in the HDFS."""
        root = f"/{self._location.path}"
        return root if path == "." else posixpath.join(root, contained(path))

    def identity(self, path: str) -> FileIdentity | None:
        found = self.client.status(self.at(path))
        return None if found is None else _identity(found)

    def identities(self, path: str) -> dict[str, FileIdentity]:
        return {one["pathSuffix"]: _identity(one) for one in self._listing(path)}

    def _listing(self, path: str) -> list[dict[str, Any]]:
        """Return what is in a folder; nothing if it isn't one, or doesn't exist."""
        try:
            return self.client.listing(self.at(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def modified(self, path: str) -> datetime | None:
        found = self.client.status(self.at(path))
        return None if found is None else datetime.fromtimestamp(found["modificationTime"] / 1000, UTC)

    def names(self, paths: Sequence[str]) -> list[int]:
        return [*each(self, lambda path: int(self.identity(path) is not None), paths)]  # a file has one name

    def read(self, path: str) -> bytes:
        with self.client.read(self.at(path)) as answer:
            data: bytes = answer.raw.read()
            return data

    def read_part(self, path: str, start: int, size: int) -> bytes:
        try:
            with self.client.read(self.at(path), start, size) as answer:
                data: bytes = answer.raw.read()
                return data
        except OSError:
            found = self.identity(path)
            if found is None or start < found.size:
                raise
            return b""  # HDFS refuses to read past the end

    def checksum(self, path: str) -> str | None:
        found = self.client.status(self.at(path))
        if found is None or found["type"] != "FILE":
            return None
        digest = hashlib.sha256()
        with self.client.read(self.at(path)) as answer:
            while piece := answer.raw.read(_READ_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def create(self, path: str) -> BinaryIO:
        return cast("BinaryIO", io.BufferedWriter(_NewFile(self.client.create(self.at(path))), _READ_BYTES))

    def stage(self, path: str, target: str) -> StagedOutput:
        return self.stage_with(path)

    def stage_with(self, path: str, **parameters: str) -> StagedOutput:
        """Open a new staged file for writing.

        :param parameters: of WebHDFS's `CREATE`.
        """
        return StagedOutput(_StagedFile(self, path, self.client.create(self.at(path), **parameters)))

    def link(self, source: str, target: str) -> None:
        raise OSError(errno.ENOTSUP, "HDFS has no links: mirrors publish there, and sinks of rows can't", target)

    def renames_new(self, folder: str) -> bool:
        contained(folder)
        if self._renames is None:
            self._renames = self._try_renames(folder)
        return self._renames

    def _try_renames(self, folder: str) -> bool:
        one, other = (self.at(posixpath.join(folder, f".{uuid.uuid4().hex}")) for _ in range(2))
        try:
            for path in (one, other):
                self.client.create(path).close()
            self.client.rename(one, other)
        except FileExistsError:
            return True
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
        finally:
            for path in (one, other):
                self.client.delete(path)
        return False

    def rename_new(self, source: str, target: str) -> None:
        self.client.rename(self.at(source), self.at(target))

    def replace(self, source: str, target: str) -> None:
        self.client.rename(self.at(source), self.at(target), over=True)

    def unlink(self, path: str) -> None:
        at = self.at(path)
        found = self.client.status(at)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "it doesn't exist", path)
        if found["type"] == "DIRECTORY":
            raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
        if not self.client.delete(at):
            raise FileNotFoundError(errno.ENOENT, "it doesn't exist", path)

    def make_folder(self, path: str) -> None:
        self.client.make_folder(self.at(path))

    def make_private(self, path: str) -> None:
        at = self.at(path)
        if self.client.status(at) is None:
            root = self.client.status(self.at("."))
            mode = 0o755 if root is None else int(root["permission"], 8)
            others = sum(
                7 * bit // 2 for bit in (mode & 0o020, mode & 0o002)
            )  # all who may write to the root may do everything here
            self.client.make_folder(at, permission=f"{0o700 | others:o}")

    def leads_to(self, path: str) -> None:
        contained(path)  # it has no links

    def move_folder(self, source: str, target: str) -> None:
        self.client.rename(self.at(source), self.at(target))

    def remove_folder(self, path: str) -> None:
        if self.folder(path) is None:
            return
        try:
            self.client.delete(self.at(path))
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise

    def folder(self, path: str) -> Attributes | None:
        found = self.client.status(self.at(path))
        if found is None or found["type"] != "DIRECTORY":
            return None
        return attributes_of(found)

    def set_folder(self, path: str, attributes: Attributes) -> None:
        if self.folder(path) is None:
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", path)
        raise_first(give_attributes(self.client, self.at(path), attributes))

    def has(self, path: str, attributes: Attributes) -> bool:
        found = self.client.status(self.at(path))
        return found is not None and not self._differing(path, found, attributes)

    def lacks(self, path: str, expected: FileIdentity, attributes: Attributes) -> bool:
        found = self.client.status(self.at(path))
        return found is not None and _identity(found) == expected and self._differing(path, found, attributes)

    def _differing(self, path: str, status: dict[str, Any], asked: Attributes) -> bool:
        acl, extended = asked.acl is not None, asked.extended is not None
        return bool(asked.differing(all_attributes(self.client, self.at(path), status, acl=acl, extended=extended)))

    def set_file(self, path: str, expected: FileIdentity, attributes: Attributes) -> None:
        if self.identity(path) == expected:
            raise_first(give_attributes(self.client, self.at(path), attributes))

    def may_change(self, folder: str) -> bool:
        try:
            self.client.get("CHECKACCESS", self.at(folder), fsaction="-wx")
        except PermissionError:
            return False
        return True

    def walk(self, path: str) -> Iterator[str]:
        try:
            found = self.client.listing(self.at(path))
        except FileNotFoundError:
            return iter(())
        return self._below(path, found)

    def _below(self, path: str, found: list[dict[str, Any]]) -> Iterator[str]:
        for name in _names(found, "FILE"):
            yield posixpath.normpath(posixpath.join(path, name))
        for name in _names(found, "DIRECTORY"):
            yield from self.walk(posixpath.normpath(posixpath.join(path, name)))

    def folders(self, path: str) -> tuple[str, ...]:
        return tuple(_names(self._listing(path), "DIRECTORY"))

    def filled(self, folders: Sequence[str]) -> list[bool | OSError]:
        return [*each(self, self._is_filled, folders)]

    def _is_filled(self, folder: str) -> bool | OSError:
        try:
            found = self.client.status(self.at(folder))
        except OSError as error:
            return error
        return found is not None and found["type"] == "DIRECTORY" and found["childrenNum"] > 0

    def remove_tree(self, path: str) -> None:
        self.client.delete(self.at(path), recursive=True)

    def sync_file(self, path: str) -> None:
        self._expect(path)

    def sync_folder(self, path: str) -> None:
        self._expect(path)

    def _expect(self, path: str) -> None:
        if self.identity(path) is None:
            raise FileNotFoundError(errno.ENOENT, "it doesn't exist", path)


def attributes_of(status: Mapping[str, Any]) -> Attributes:
    """Return the attributes that a status shows."""
    return Attributes(
        int(status["permission"], 8),
        status["owner"],
        status["group"],
        status["modificationTime"] * _MS,
        replication=status["replication"] or None,
        block_size=status["blockSize"] or None,
    )


def all_attributes(client: WebHdfs, at: str, status: Mapping[str, Any], *, acl: bool, extended: bool) -> Attributes:
    """Return the attributes that a status shows, and others that are asked for."""
    entries: Acl | None = None
    if acl:
        entries = acl_of(client, at) if status.get("aclBit") else ()
    return replace(attributes_of(status), acl=entries, extended=extended_of(client, at) if extended else None)


def acl_of(client: WebHdfs, at: str) -> Acl | None:
    """Return the access control list of a file or folder; `None` if the namenode has switched them off."""
    try:
        return tuple(sorted(client.get("GETACLSTATUS", at)["AclStatus"]["entries"]))
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return None
        raise


def extended_of(client: WebHdfs, at: str) -> tuple[tuple[str, str], ...] | None:
    """Return the extended attributes of a file or folder; `None` if the namenode has switched them off, or doesn't show them."""
    try:
        found = client.get("GETXATTRS", at, encoding="hex")["XAttrs"]
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EACCES):
            return None
        raise
    pairs = ((one["name"], (one["value"] or "").removeprefix("0x")) for one in found)
    return tuple(sorted(pair for pair in pairs if pair[0].startswith(_NAMES)))


def give_attributes(client: WebHdfs, at: str, wanted: Attributes) -> Refused:
    """Give a file or folder those attributes that aren't `None`.

    :return: the reasons why it doesn't get some.
    """
    refused: Refused = {}
    for name, given in (("owner", wanted.owner), ("group", wanted.group)):
        if given is not None:
            with noting(name, refused):
                client.set("SETOWNER", at, **{name: str(given)})
    mode = wanted.mode
    if wanted.acl is not None:
        with noting("acl", refused):
            _give_acl(client, at, wanted.acl, mode)
        if "acl" in refused and mode is not None:
            mode = permission_without(wanted.acl, mode)
    if mode is not None:
        with noting("mode", refused):
            client.set("SETPERMISSION", at, permission=f"{stat.S_IMODE(mode) & 0o1777:o}")
    if wanted.extended is not None:
        with noting("extended", refused):
            _give_extended(client, at, dict(wanted.extended))
    if wanted.replication is not None:
        with noting("replication", refused):
            client.set("SETREPLICATION", at, replication=str(wanted.replication))
    if wanted.modified is not None:
        with noting("modified", refused):
            client.set("SETTIMES", at, modificationtime=str(wanted.modified // _MS))
    return refused


def _give_acl(client: WebHdfs, at: str, acl: Acl, mode: int | None) -> None:
    status = client.status(at)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, "it doesn't exist", at)
    if acl:
        client.set("SETACL", at, aclspec=",".join(whole(acl, int(status["permission"], 8) if mode is None else mode)))
    elif status.get("aclBit"):
        client.set("REMOVEACL", at)


def _give_extended(client: WebHdfs, at: str, wanted: dict[str, str]) -> None:
    has = dict(extended_of(client, at) or ())
    for name in has.keys() - wanted.keys():
        client.set("REMOVEXATTR", at, **{"xattr.name": name})
    for name, value in wanted.items():
        if has.get(name) != value:
            flag = "REPLACE" if name in has else "CREATE"
            client.set("SETXATTR", at, **{"xattr.name": name, "xattr.value": f"0x{value}", "flag": flag})


def _names(statuses: Sequence[dict[str, Any]], kind: str) -> list[str]:
    """Return the names of the files (`FILE`) or folders (`DIRECTORY`) in a listing, sorted."""
    return sorted(one["pathSuffix"] for one in statuses if one["type"] == kind)


def _identity(found: dict[str, Any]) -> FileIdentity:
    return FileIdentity(found["fileId"], found["length"], str(found["modificationTime"] * _MS))


class _NewFile(io.RawIOBase):
    """A new file, as Python's writers want it."""

    def __init__(self, out: WebHdfsOutput) -> None:
        self._out = out

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._out.write(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._out.close()


class _StagedFile:
    """A staged file: a `RawOutput`."""

    def __init__(self, files: HdfsFiles, path: str, out: WebHdfsOutput) -> None:
        self._files = files
        self._path = path
        self._out = out

    def write(self, data: memoryview) -> object:
        return self._out.write(data)

    def finish(self) -> tuple[str, FileIdentity, Upload | None]:
        self._out.close()
        found = self._files.identity(self._path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the staged file is gone", self._path)
        return self._path, found, None

    def abort(self) -> None:
        self._out.abort()
        with suppress(FileNotFoundError):
            self._files.unlink(self._path)
