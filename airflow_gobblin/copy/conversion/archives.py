"""Archives: their members are read one after another, within limits, and refused as soon as one of them can't be trusted.

Archives may come from anybody. So a member must be a plain file or folder below the archive's own, links and devices are refused
and not skipped, and nothing of an archive counts before it has been read to its end.
"""

from __future__ import annotations

import os
import stat
import struct
import tarfile
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from tempfile import TemporaryFile
from typing import IO, BinaryIO, cast

from airflow_gobblin.copy.conversion.converters import BlocksReader, decompressed
from airflow_gobblin.copy.conversion.limits import MOST_BYTES, MOST_RATIO, check_limits, check_size
from airflow_gobblin.copy.entries import shown
from airflow_gobblin.model.wire import record

ZIP = ".zip"
_CODECS = {
    ".tar": "",
    ".tar.gz": "gzip",
    ".tgz": "gzip",
    ".tar.bz2": "bz2",
    ".tbz2": "bz2",
    ".tar.zst": "zstd",
    ".tzst": "zstd",
}
EXTENSIONS = (*_CODECS, ZIP)
_BLOCK = 1 << 20
_TAR_BLOCK = 512
_MOST_HEADER = 1 << 20
"""The maximum size of a tar member's description, in bytes: a long name, or extended attributes."""
_MOST_NAME = 255
_MOST_PATH = 1000
_KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_LOCAL = struct.Struct("<4s5H3L2H")
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_LENGTHS = struct.Struct("<3H")
_ENTRY = 46
"""The size of a member's entry in a directory, before its name."""
_MOST_COMMENT = 1 << 16


@record("unpack")
@dataclass(frozen=True)
class Unpack:
    """Unpack archives: `*.tar`, `*.tar.gz`, `*.tar.bz2`, `*.tar.zst` and `*.zip`, each into a folder with its name.

    :param most_files: the maximum number of files and folders in an archive.
    :param most_bytes: the maximum size of an archive's content.
    :param most_ratio: how many times the size of the archive its content may have, if it is above 10 MiB.
    :param most_depth: the maximum number of folders that one member is in.
    """

    most_files: int = 100_000
    most_bytes: int = MOST_BYTES
    most_ratio: int = MOST_RATIO
    most_depth: int = 32

    def __post_init__(self) -> None:
        check_limits(self, *(one.name for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Member:
    """A file or folder in an archive.

    :param path: its path in the archive.
    :param mode: its permission.
    """

    path: str
    folder: bool
    size: int = 0
    mode: int = 0o644


Content = Iterator[bytes]
"""The bytes of a member, block by block; those that aren't read are skipped."""


def folder_of(path: str) -> str | None:
    """Return the path of the folder that an archive becomes; `None` if a file isn't an archive by its name."""
    found = next((path.removesuffix(ext) for ext in EXTENSIONS if path.endswith(ext)), "")
    return found if found and not found.endswith("/") else None


def read_members(path: str, blocks: Iterator[bytes], size: int, limits: Unpack) -> Iterator[tuple[Member, Content]]:
    """Yield the members of an archive, in its order, each with its content, up to its end.

    :param path: its path, which shows its form.
    :param size: the size of the archive.
    :raises ValueError: it is malformed, ends too early, or is above a limit; or any other exception of the modules that read it.
    """
    if path.endswith(ZIP):
        return _read_zip(blocks, size, limits)
    codec = next(codec for extension, codec in _CODECS.items() if path.endswith(extension))
    return _read_tar(decompressed(blocks, codec) if codec else blocks, size, limits)


def list_zip(file: BinaryIO, size: int, limits: Unpack) -> Iterator[Member]:
    """Yield the members of a zip from its directory alone. Raises as `read_members`."""
    _check_directory(file, limits)
    with zipfile.ZipFile(file) as opened:
        for member, _ in _zip_members(opened, size, limits):
            yield member


@dataclass
class _Names:
    """The names of an archive's members, each of which is plain and occurs once."""

    limits: Unpack
    known: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def plain(self, name: str, *, folder: bool) -> str | None:
        """Return a member's name without the dots that it may begin with; `None` for the archive's own folder.

        :raises ValueError: a member may not have this name.
        """
        path = name.rstrip("/") if folder else name
        while path.startswith("./"):
            path = path[2:]
        if path in ("", ".") and folder:
            return None
        why = self._refused(path)
        if why:
            raise ValueError(f"the name of its member {shown(name)!r} {why}")
        for at, char in enumerate(path):
            if char == "/":
                self._take(path[:at], folder=True)
        self._take(path, folder=folder)
        return path

    def _refused(self, path: str) -> str:
        """Return why a path is refused; empty if it isn't."""
        parts = path.split("/")
        try:
            data = path.encode()
        except UnicodeEncodeError:
            return "isn't UTF-8"
        if path.startswith("/"):
            return "is absolute"
        if ".." in parts:
            return "leads out of the archive"
        if "" in parts or "." in parts:
            return "is not a plain path"
        if "\\" in path or any(unicodedata.category(char) == "Cc" for char in path):
            return "has a backslash or a control character"
        if len(data) > _MOST_PATH or max(len(part.encode()) for part in parts) > _MOST_NAME:
            return "is too long"
        return f"is deeper than most_depth={self.limits.most_depth}" if len(parts) > self.limits.most_depth + 1 else ""

    def _take(self, path: str, *, folder: bool) -> None:
        """Take a name that no other member has; a folder may be named again."""
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        before = self.known.get(key)
        if before is not None and (before != (path, folder) or not folder):
            other = (
                "twice" if before[0] == path else f"as {shown(before[0])!r} too, which is the same name on some systems"
            )
            raise ValueError(f"{shown(path)!r} is in it {other}")
        self.known[key] = (path, folder)
        if len(self.known) > self.limits.most_files:
            raise ValueError(f"it has more than most_files={self.limits.most_files:,}")


class _Forward:
    """The stream of a tar as a forward-only file that reads no more at once than a header may have."""

    def __init__(self, blocks: Iterator[bytes], size: int, limits: Unpack) -> None:
        self._reader = BlocksReader(blocks)
        self._size = size
        self._limits = limits
        self.last = b""

    def tell(self) -> int:
        return self._reader.size

    def seek(self, to: int) -> None:
        if to < self.tell():
            raise ValueError("a size in it is negative")
        while self.tell() < to and self._some(min(_BLOCK, to - self.tell())):
            pass

    def read(self, size: int) -> bytes:
        """Read for the parser: a header, or something like one."""
        if size > _MOST_HEADER:
            raise ValueError(f"the description of a member has {size:,} bytes")
        found = b""
        while len(found) < size and (some := self._some(size - len(found))):
            found += some
        self.last = found
        return found

    def content(self, name: str, end: int) -> Content:
        """Yield the bytes of a member, up to its end."""
        while self.tell() < end:
            some = self._some(min(_BLOCK, end - self.tell()))
            if not some:
                raise ValueError(f"it ends within {shown(name)!r}")
            yield some

    def check_end(self) -> None:
        """Make sure that the archive ended with its mark, and that nothing but zeros follows it."""
        if self.last != bytes(_TAR_BLOCK):
            raise ValueError(f"it ends without a mark, or has a bad header before byte {self.tell():,}")
        while some := self._some(_BLOCK):
            if some.count(0) != len(some):
                raise ValueError("more bytes follow its end")

    def _some(self, size: int) -> bytes:
        found = self._reader.read(size)
        check_size(self._limits, self.tell(), self._size)
        return found


def _read_tar(blocks: Iterator[bytes], size: int, limits: Unpack) -> Iterator[tuple[Member, Content]]:
    names, file = _Names(limits), _Forward(blocks, size, limits)
    tar = tarfile.TarFile(fileobj=cast("IO[bytes]", file), encoding="utf-8", errors="surrogateescape")
    while (found := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
        is_sparse = found.issparse() or any(key.startswith("GNU.sparse.") for key in found.pax_headers)
        if is_sparse or found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            kind = "a sparse file" if is_sparse else _KINDS.get(found.type, f"of the unknown type {found.type!r}")
            raise ValueError(f"its member {shown(found.name)!r} is {kind}")
        if found.size < 0 or (found.isdir() and found.size):
            raise ValueError(f"its member {shown(found.name)!r} can't have {found.size:,} bytes")
        name = names.plain(found.name, folder=found.isdir())
        if name is not None:
            content = file.content(name, found.offset_data + found.size)
            yield Member(name, found.isdir(), found.size, found.mode & 0o777), content
    file.check_end()


def _read_zip(blocks: Iterator[bytes], size: int, limits: Unpack) -> Iterator[tuple[Member, Content]]:
    with TemporaryFile() as file:
        for block in blocks:
            file.write(block)
        _check_directory(file, limits)
        with zipfile.ZipFile(file) as opened:
            for member, info in _zip_members(opened, size, limits):
                _check_local(file, info)
                yield member, _zip_content(opened, member, info)


def _zip_members(opened: zipfile.ZipFile, size: int, limits: Unpack) -> Iterator[tuple[Member, zipfile.ZipInfo]]:
    names, content = _Names(limits), 0
    infos = sorted(opened.infolist(), key=lambda info: info.header_offset)
    for info, after in zip(infos, [*(info.header_offset for info in infos[1:]), opened.start_dir], strict=True):
        end = info.header_offset + _LOCAL.size + info.compress_size
        if info.header_offset < 0 or end > after:
            raise ValueError(f"its member {shown(info.filename)!r} overlaps with what follows")
        content += info.file_size
        check_size(limits, content, size)
        name = names.plain(info.orig_filename, folder=info.is_dir())
        _check_kind(info)
        if name is not None:
            yield Member(name, info.is_dir(), info.file_size, (info.external_attr >> 16) & 0o777 or 0o644), info


def _check_kind(info: zipfile.ZipInfo) -> None:
    mode, name = info.external_attr >> 16, shown(info.filename)
    if stat.S_IFMT(mode) not in (0, stat.S_IFDIR if info.is_dir() else stat.S_IFREG):
        raise ValueError(
            f"its member {name!r} is {'a symbolic link' if stat.S_ISLNK(mode) else 'no plain file or folder'}"
        )
    if info.flag_bits & 0x1:
        raise ValueError(f"its member {name!r} is encrypted")
    if info.compress_type not in _METHODS:
        raise ValueError(f"its member {name!r} is compressed by the unknown method {info.compress_type}")
    if info.is_dir() and info.file_size:
        raise ValueError(f"its member {name!r} is a folder with content")


def _check_local(file: IO[bytes], info: zipfile.ZipInfo) -> None:
    """Make sure that a member's own header agrees with the directory."""
    file.seek(info.header_offset)
    head = file.read(_LOCAL.size)
    if len(head) != _LOCAL.size:
        raise ValueError(f"it ends before {shown(info.filename)!r}")
    _, _, flags, method, _, _, checksum, packed, size, _, _ = _LOCAL.unpack(head)
    pairs = [(method, info.compress_type), (flags & 0x1, info.flag_bits & 0x1)]
    if not flags & 0x8:  # otherwise they follow the content
        pairs += [(checksum, info.CRC), (packed, info.compress_size), (size, info.file_size)]
    if any(one != other for one, other in pairs if one != 0xFFFFFFFF):
        raise ValueError(
            f"the header of {shown(info.filename)!r} gives another method, size or checksum than the directory"
        )


def _zip_content(opened: zipfile.ZipFile, member: Member, info: zipfile.ZipInfo) -> Content:
    size = 0
    with opened.open(info) as file:
        while block := file.read(_BLOCK):
            size += len(block)
            yield block
    if size != member.size:
        raise ValueError(f"{shown(member.path)!r} has {size:,} bytes, and its directory gives {member.size:,}")


def _check_directory(file: IO[bytes], limits: Unpack) -> None:
    """Make sure, before a zip's directory is in memory, that it has as many members as its end gives, and no more than it may."""
    length = file.seek(0, os.SEEK_END)
    start = max(0, length - _END.size - _MOST_COMMENT)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) < at + _END.size:
        raise ValueError("it has no end of a zip")
    *_, count, size, _, _ = _END.unpack_from(tail, at)
    end = start + at
    if tail.startswith(b"PK\6\7", max(0, at - _LOCATOR_64.size)):
        end -= _LOCATOR_64.size + _END_64.size
        file.seek(max(0, end))
        *_, count, size, _ = _END_64.unpack(file.read(_END_64.size))
    if size > end:
        raise ValueError("its directory is larger than the file")
    at, found = end - size, 0
    while at < end:
        file.seek(at)
        head = file.read(_ENTRY)
        if len(head) != _ENTRY or not head.startswith(b"PK\1\2"):
            raise ValueError("its directory is malformed")
        at += _ENTRY + sum(_LENGTHS.unpack_from(head, 28))
        found += 1
        if found > limits.most_files:
            raise ValueError(f"it has more than most_files={limits.most_files:,}")
    if at != end or found != count:
        raise ValueError("its end gives another number of members than its directory has")
