"""Archives that must be refused, of many kinds, each with what is reported of it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import zstandard

Part = tuple[str, bytes]


def tar(*parts: Part | tarfile.TarInfo, form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar of files, each a name and its content, and of other members."""
    out = io.BytesIO()
    with tarfile.TarFile(fileobj=out, mode="w", format=form, errors="surrogateescape") as made:
        for part in parts:
            if isinstance(part, tarfile.TarInfo):
                made.addfile(part)
            else:
                made.addfile(info(part[0], size=len(part[1])), io.BytesIO(part[1]))
    return out.getvalue()


def info(name: str, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def pax(name: str, **headers: str) -> bytes:
    """A tar of a file with an extended header."""
    return tar(info(name, size=0, pax_headers=headers), form=tarfile.PAX_FORMAT)


def header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    """A header of a tar with a right checksum, whatever it holds."""
    head = name.encode().ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size.ljust(12, b"\0")
    head += b"00000000000\0" + b" " * 8 + kind + bytes(100) + b"ustar\00000" + bytes(512 - 265)
    head = head[:512].ljust(512, b"\0")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def zipped(*parts: Part | tuple[zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, content in parts:
            made.writestr(name, content)
    return out.getvalue()


def member(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo("x")
    made.filename = name
    made.external_attr = mode << 16
    return made


def directory(data: bytes) -> int:
    """Where the directory of a zip begins."""
    return int(struct.unpack_from("<L", data, data.rfind(b"PK\5\6") + 16)[0])


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def in_directory(data: bytes, at: int, new: bytes) -> bytes:
    """A zip whose first entry of the directory holds something else."""
    return patched(data, directory(data) + at, new)


def overlapping() -> bytes:
    """A zip of two members with one content, as in the zip bombs that don't nest."""
    data = zipped(("a", b"x" * 1000), ("b", b"x" * 1000))
    second = directory(data) + 46 + 1
    return patched(data, second + 42, struct.pack("<L", 0))


def zip64(count: int, size: int | None = None) -> bytes:
    """A zip with a second end, for large ones."""
    data = zipped(("a", b"x"))
    end, start = data.rfind(b"PK\5\6"), directory(data)
    large = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size or end - start, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    return data[:end] + large + locator + patched(data[end:], 8, b"\xff" * 12)


def large_member() -> bytes:
    """A zip whose directory has a member of a terabyte."""
    data = zipped(("a", b"x"))
    start, end = directory(data), data.rfind(b"PK\5\6")
    entry = patched(data[start:end], 24, b"\xff" * 4)
    entry = patched(entry, 30, struct.pack("<H", 12)) + struct.pack("<2HQ", 1, 8, 1 << 40)
    return data[:start] + entry + patched(data[end:], 12, struct.pack("<L", len(entry)))


def long_directory() -> bytes:
    """A zip whose end counts fewer members than its directory has."""
    data = zipped(("a", b"x"), ("b", b"y"))
    return patched(data, data.rfind(b"PK\5\6") + 8, struct.pack("<2H", 1, 1))


def changed_content(data: bytes) -> bytes:
    """A zip, of one stored member, with another content."""
    return patched(data, 30 + 1, b"?")


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


A: Part = ("a", b"some content")
GOOD = tar(A, ("b", b"more"))
TWICE = "is in it twice"
SAME = "the same name on some systems"

HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "tar: empty": ("tar", lambda: b"", "empty"),
    "tar: text": ("tar", lambda: b"this is no archive" * 100, ""),
    "tar: zeros in place of content, and one byte more": (
        "tar",
        lambda: bytes(1024) + b"x",
        "more bytes follow its end",
    ),
    "tar: cut off within a header": ("tar", lambda: GOOD[:1200], "it ends without a mark"),
    "tar: cut off within a content": ("tar", lambda: tar(("a", bytes(5000)))[:3000], ""),
    "tar: cut off between members": ("tar", lambda: GOOD[:1024], "it ends without a mark"),
    "tar: garbage behind the end": ("tar", lambda: GOOD + b"garbage", "more bytes follow its end"),
    "tar: another archive behind the end": ("tar", lambda: GOOD + GOOD, "more bytes follow its end"),
    "tar: a header with a wrong checksum": ("tar", lambda: patched(GOOD, 0, b"z"), "bad checksum"),
    "tar: a later header with a wrong checksum": ("tar", lambda: patched(GOOD, 1024, b"z"), "has a bad header"),
    "tar: a parent's path": ("tar", lambda: tar(A, ("../out", b"x")), "leads out of the archive"),
    "tar: a parent's path further down": ("tar", lambda: tar(("a/../../out", b"x")), "leads out of the archive"),
    "tar: an absolute path": ("tar", lambda: tar(A, ("/tmp/out", b"x")), "is absolute"),
    "tar: dots within a path": ("tar", lambda: tar(("a/./b", b"x")), "is not a plain path"),
    "tar: two slashes": ("tar", lambda: tar(("a//b", b"x")), "is not a plain path"),
    "tar: a symbolic link": (
        "tar",
        lambda: tar(A, info("l", type=tarfile.SYMTYPE, linkname="a")),
        "'l' is a symbolic link",
    ),
    "tar: a file through a symbolic link": (
        "tar",
        lambda: tar(info("l", type=tarfile.SYMTYPE, linkname="/tmp"), ("l/out", b"x")),
        "'l' is a symbolic link",
    ),
    "tar: a hard link": ("tar", lambda: tar(A, info("l", type=tarfile.LNKTYPE, linkname="/etc/passwd")), "a hard link"),
    "tar: a character device": ("tar", lambda: tar(info("d", type=tarfile.CHRTYPE, devmajor=1)), "a device"),
    "tar: a block device": ("tar", lambda: tar(info("d", type=tarfile.BLKTYPE, devmajor=8)), "a device"),
    "tar: a pipe": ("tar", lambda: tar(info("p", type=tarfile.FIFOTYPE)), "a pipe"),
    "tar: the next volume": ("tar", lambda: tar(info("m", type=b"M")), "of the unknown type b'M'"),
    "tar: one name twice": ("tar", lambda: tar(A, A), TWICE),
    "tar: one name twice, by another spelling": ("tar", lambda: tar(A, ("./a", b"x")), TWICE),
    "tar: names that differ in case": ("tar", lambda: tar(("b/Aß", b"x"), ("b/aSS", b"x")), SAME),
    "tar: names that differ in their Unicode form": ("tar", lambda: tar(("é", b"x"), ("e\u0301", b"x")), SAME),
    "tar: folders that differ in case": ("tar", lambda: tar(("a/one", b"x"), ("A/two", b"x")), SAME),
    "tar: a file as a folder": ("tar", lambda: tar(A, ("a/b", b"x")), TWICE),
    "tar: a folder as a file": ("tar", lambda: tar(("a/b", b"x"), A), TWICE),
    "tar: a newline in a name": ("tar", lambda: tar(("a\nb", b"x")), "control character"),
    "tar: a NUL in a name": ("tar", lambda: pax("a", path="a\0b"), "control character"),
    "tar: a backslash in a name": ("tar", lambda: tar(("..\\out", b"x")), "a backslash"),
    "tar: a name that isn't UTF-8": ("tar", lambda: tar((os.fsdecode(b"a\xff"), b"x")), "isn't UTF-8"),
    "tar: a name that is too long": ("tar", lambda: tar(("ä" * 128, b"x")), "is too long"),
    "tar: a path that is too long": ("tar", lambda: tar(("/".join(["a" * 100] * 11), b"x")), "is too long"),
    "tar: a path that is too deep": ("tar", lambda: tar(("a/" * 40 + "b", b"x")), "is deeper than most_depth=32"),
    "tar: an empty name": ("tar", lambda: header("", b"0") + bytes(1024), "is not a plain path"),
    "tar: a sparse file": ("tar", lambda: header("s", b"0", b"S") + bytes(1024), "a sparse file"),
    "tar: a sparse file by an extended header": (
        "tar",
        lambda: pax("s", **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s"}),
        "",
    ),
    "tar: a sparse file of a terabyte by an extended header": (
        "tar",
        lambda: pax("s", **{"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,0"}),
        "a sparse file",
    ),
    "tar: a size beyond the end": ("tar", lambda: header("a", b"77777777777") + b"x" * 2048, ""),
    "tar: a negative size": ("tar", lambda: header("a", b"\xff" * 12) + GOOD, "can't have -1 bytes"),
    "tar: a size that is no number": ("tar", lambda: header("a", b"many") + GOOD, ""),
    "tar: an extended header with another size": ("tar", lambda: pax("a", size="40000"), ""),
    "tar: an extended header with a negative size": ("tar", lambda: pax("a", size="-1024"), ""),
    "tar: an extended header of 8 GB": ("tar", lambda: header("x", b"77777777777", b"x") + bytes(4096), "bytes"),
    "tar: a long name of 8 GB": ("tar", lambda: header("x", b"77777777777", b"L") + bytes(4096), "bytes"),
    "tar: an extended header without a member": (
        "tar",
        lambda: header("x", b"0", b"x") + bytes(1024),
        "",
    ),
    "tar: a folder with a content": ("tar", lambda: header("d/", b"00000000005", b"5") + b"12345" + bytes(1531), ""),
    "tar: too many members": ("tar", lambda: tar(*((str(n), b"") for n in range(51))), "most_files=50"),
    "tar: too many folders": ("tar", lambda: tar(*((f"{n}/x", b"") for n in range(26))), "most_files=50"),
    "tar: too many bytes": ("tar", lambda: tar(("a", bytes(31 << 20))), "most_bytes"),
    "gzip: a bomb by its ratio": ("tar.gz", lambda: gzip.compress(tar(("a", bytes(20 << 20)))), "most_ratio=20"),
    "gzip: a bomb behind the end": ("tar.gz", lambda: gzip.compress(GOOD + bytes(20 << 20)), "most_ratio=20"),
    "gzip: a bomb of headers": (
        "tar.gz",
        lambda: gzip.compress(tar(*((str(n), b"") for n in range(10_000)))),
        "most_files=50",
    ),
    "gzip: cut off": ("tar.gz", lambda: gzip.compress(GOOD)[:-30], "truncated"),
    "gzip: cut off in its last bytes": ("tar.gz", lambda: gzip.compress(GOOD)[:-4], "truncated"),
    "gzip: a wrong checksum": (
        "tar.gz",
        lambda: gzip.compress(GOOD)[:-8] + b"????" + gzip.compress(GOOD)[-4:],
        "data check",
    ),
    "gzip: garbage behind the end": ("tar.gz", lambda: gzip.compress(GOOD) + b"garbage", "incorrect header"),
    "gzip: another member, which is no end of the tar": (
        "tar.gz",
        lambda: gzip.compress(GOOD) + gzip.compress(b"x"),
        "more bytes follow its end",
    ),
    "gzip: compressed twice": ("tar.gz", lambda: gzip.compress(gzip.compress(GOOD)), ""),
    "gzip: not compressed": ("tgz", lambda: GOOD, "incorrect header"),
    "bzip2: a bomb by its ratio": ("tar.bz2", lambda: bz2.compress(tar(("a", bytes(20 << 20)))), "most_ratio=20"),
    "zstd: a bomb by its ratio": ("tar.zst", lambda: zstd(tar(("a", bytes(20 << 20)))), "most_ratio=20"),
    "bzip2: not compressed": ("tar.bz2", lambda: GOOD, "bz2"),
    "zstd: not compressed": ("tar.zst", lambda: GOOD, "ZSTD"),
    "zip: empty": ("zip", lambda: b"", "it has no end of a zip"),
    "zip: cut off": ("zip", lambda: zipped(A)[:-10], "it has no end of a zip"),
    "zip: its beginning is gone": ("zip", lambda: zipped(A, ("b", os.urandom(500)))[60:], ""),
    "zip: a wrong checksum": ("zip", lambda: changed_content(zipped(A, method=zipfile.ZIP_STORED)), "CRC"),
    "zip: another name in the directory": ("zip", lambda: in_directory(zipped(A), 46, b"b"), "differ"),
    "zip: another size in the directory": (
        "zip",
        lambda: in_directory(zipped(A), 24, struct.pack("<L", 5)),
        "another method, size or checksum",
    ),
    "zip: a size that is less than the content, twice": (
        "zip",
        lambda: patched(in_directory(zipped(A), 24, struct.pack("<L", 5)), 22, struct.pack("<L", 5)),
        "CRC",
    ),
    "zip: a size that is more than the content, twice": (
        "zip",
        lambda: patched(in_directory(zipped(A), 24, struct.pack("<L", 50)), 22, struct.pack("<L", 50)),
        "its directory gives 50",
    ),
    "zip: another method in the directory": (
        "zip",
        lambda: in_directory(zipped(A), 10, struct.pack("<H", 0)),
        "another method, size or checksum",
    ),
    "zip: members that overlap": ("zip", overlapping, "overlaps"),
    "zip: a directory that overlaps": ("zip", lambda: in_directory(zipped(A), 20, struct.pack("<L", 500)), "overlaps"),
    "zip: a directory larger than the file": (
        "zip",
        lambda: patched(zipped(A), zipped(A).rfind(b"PK\5\6") + 12, struct.pack("<L", 1 << 30)),
        "larger than the file",
    ),
    "zip: more members than its end counts": ("zip", long_directory, "another number of members"),
    "zip: 64 bit, another number of members": ("zip", lambda: zip64(1 << 40), "another number of members"),
    "zip: 64 bit, a directory of a terabyte": ("zip", lambda: zip64(1, 1 << 40), "larger than the file"),
    "zip: 64 bit, a member of a terabyte": ("zip", large_member, "most_bytes"),
    "zip: encrypted": ("zip", lambda: in_directory(zipped(A), 8, struct.pack("<H", 1)), "is encrypted"),
    "zip: an unknown method": ("zip", lambda: in_directory(zipped(A), 10, struct.pack("<H", 99)), "unknown method 99"),
    "zip: a symbolic link": ("zip", lambda: zipped((member("l", stat.S_IFLNK | 0o777), b"/etc")), "a symbolic link"),
    "zip: a device": ("zip", lambda: zipped((member("d", stat.S_IFBLK | 0o777), b"")), "no plain file"),
    "zip: a folder with a content": ("zip", lambda: zipped((member("d/", stat.S_IFDIR), b"x")), "with content"),
    "zip: a parent's path": ("zip", lambda: zipped((member("../out"), b"x")), "leads out of the archive"),
    "zip: an absolute path": ("zip", lambda: zipped((member("/tmp/out"), b"x")), "is absolute"),
    "zip: a path of another system": ("zip", lambda: zipped((member("C:\\out"), b"x")), "a backslash"),
    "zip: a NUL in a name": ("zip", lambda: zipped(("a?b", b"x")).replace(b"a?b", b"a\0b"), "control character"),
    "zip: a name that isn't UTF-8": ("zip", lambda: zipped(("ä", b"x")).replace("ä".encode(), b"\xff\xfe"), ""),
    "zip: names that differ in case": ("zip", lambda: zipped(("a", b"x"), ("A", b"x")), SAME),
    "zip: one name twice": ("zip", lambda: zipped(A, ("?", b"x")).replace(b"?", b"a"), TWICE),
    "zip: text": ("zip", lambda: b"this is no archive" * 100, "it has no end of a zip"),
    "zip: a pipe": ("zip", lambda: zipped((member("p", stat.S_IFIFO), b"")), "no plain file"),
    "zip: a socket": ("zip", lambda: zipped((member("s", stat.S_IFSOCK), b"")), "no plain file"),
    "zip: a character device": ("zip", lambda: zipped((member("d", stat.S_IFCHR), b"")), "no plain file"),
    "zip: a parent's path further down": ("zip", lambda: zipped(("a/../../out", b"x")), "leads out of the archive"),
    "zip: dots within a path": ("zip", lambda: zipped(("a/./b", b"x")), "is not a plain path"),
    "zip: two slashes": ("zip", lambda: zipped(("a//b", b"x")), "is not a plain path"),
    "zip: a newline in a name": ("zip", lambda: zipped(("a\nb", b"x")), "control character"),
    "zip: a name that is too long": ("zip", lambda: zipped(("ä" * 128, b"x")), "is too long"),
    "zip: a path that is too deep": ("zip", lambda: zipped(("a/" * 40 + "b", b"x")), "is deeper than most_depth=32"),
    "zip: names that differ in their Unicode form": ("zip", lambda: zipped(("é", b"x"), ("e\u0301", b"x")), SAME),
    "zip: a file as a folder": ("zip", lambda: zipped(A, ("a/b", b"x")), TWICE),
    "zip: a folder as a file": ("zip", lambda: zipped(("a/b", b"x"), A), TWICE),
    "zip: too many members": ("zip", lambda: zipped(*((str(n), b"") for n in range(51))), "most_files=50"),
    "zip: a bomb by its ratio": ("zip", lambda: zipped(("a", bytes(20 << 20))), "most_ratio=20"),
}

BOMB = bytes(20 << 20)
BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "gzip": ("gz", lambda: gzip.compress(BOMB)),
    "gzip: of many members": ("gz", lambda: gzip.compress(bytes(1 << 20)) * 20),
    "gzip: behind something that isn't one": ("gz", lambda: gzip.compress(os.urandom(1000)) + gzip.compress(BOMB)),
    "bzip2": ("bz2", lambda: bz2.compress(BOMB)),
    "bzip2: of many streams": ("bz2", lambda: bz2.compress(bytes(1 << 20)) * 20),
    "zstd": ("zst", lambda: zstd(BOMB)),
    "zstd: of many frames": ("zst", lambda: zstd(bytes(1 << 20)) * 20),
}
"""Files that are no archives, each of which becomes 20 MiB: an extension, and how it is made."""


def gzipped(
    stream: bytes | None = None,
    *,
    magic: bytes = b"\x1f\x8b",
    method: int = 8,
    flags: int = 0,
    fields: bytes = b"",
    ends: bytes | None = None,
) -> bytes:
    """One member of a gzip file.

    :param stream: its content, as deflate has it.
    :param fields: what the flags announce.
    :param ends: checksum and size.
    """
    packer = zlib.compressobj(wbits=-15)
    stream = packer.compress(TEXT) + packer.flush() if stream is None else stream
    ends = struct.pack("<LL", zlib.crc32(TEXT), len(TEXT)) if ends is None else ends
    return magic + bytes([method, flags, 0, 0, 0, 0, 0, 255]) + fields + stream + ends


def bits(*groups: str) -> bytes:
    """A stream of deflate, whose last block these bits are."""
    text = "".join(("1", *groups))
    return bytes(int(text[at : at + 8].ljust(8, "0")[::-1], 2) for at in range(0, len(text), 8)) + bytes(16)


TEXT = b"the content of a file, with some of it twice, with some of it twice\n" * 40
WELL = gzipped()

GZIPS: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "one byte": lambda: WELL[:1],
    "its magic only": lambda: WELL[:2],
    "cut off in its header": lambda: WELL[:7],
    "its header only": lambda: WELL[:10],
    "cut off in its content": lambda: WELL[:40],
    "without checksum and size": lambda: WELL[:-8],
    "without its size": lambda: WELL[:-4],
    "without its last byte": lambda: WELL[:-1],
    "another magic": lambda: gzipped(magic=b"\x1f\x9d"),
    "its magic swapped": lambda: gzipped(magic=b"\x8b\x1f"),
    "its first byte lost": lambda: WELL[1:],
    "a byte before it": lambda: b"\0" + WELL,
    "an unknown method": lambda: gzipped(method=9),
    "no method": lambda: gzipped(method=0),
    "a reserved flag": lambda: gzipped(flags=0x20),
    "another reserved flag": lambda: gzipped(flags=0x40),
    "the last reserved flag": lambda: gzipped(flags=0x80),
    "an extra field beyond the end": lambda: gzipped(flags=4, fields=b"\xff\xff"),
    "an extra field that isn't there": lambda: gzipped(flags=4, stream=b"", ends=b""),
    "a name without an end": lambda: gzipped(flags=8, fields=b"name", stream=b"", ends=b""),
    "a comment without an end": lambda: gzipped(flags=16, fields=b"comment", stream=b"", ends=b""),
    "a header with a wrong checksum": lambda: gzipped(flags=2, fields=b"\0\0"),
    "a block of a reserved kind": lambda: gzipped(bits("11")),
    "a stored block with a wrong length": lambda: gzipped(b"\x01\x05\x00\x00\x00hello"),
    "a stored block beyond the end": lambda: gzipped(b"\x01\xff\xff\x00\x00abc"),
    "a copy from before the beginning": lambda: gzipped(bits("10", "0000001", "00000")),
    "a length that isn't there": lambda: gzipped(bits("10", "11000110", "00000")),
    "a distance that isn't there": lambda: gzipped(bits("10", "01110001", "0000001", "11110")),
    "too many lengths": lambda: gzipped(bits("01", "01111", "00000", "0000")),
    "too many distances": lambda: gzipped(bits("01", "00000", "11111", "0000")),
    "a code without symbols": lambda: gzipped(bits("01", "00000", "00000", "0000", "000" * 4)),
    "a code with too many symbols": lambda: gzipped(bits("01", "00000", "00000", "0000", "100" * 4)),
    "a repetition of nothing": lambda: gzipped(
        bits("01", "00000", "00000", "0000", "100", "000", "000", "100", "1", "00")
    ),
    "no last block": lambda: gzipped(b"\x00\x05\x00\xfa\xffhello"),
    "a wrong checksum": lambda: gzipped(ends=struct.pack("<LL", 1, len(TEXT))),
    "a wrong size": lambda: gzipped(ends=struct.pack("<LL", zlib.crc32(TEXT), len(TEXT) + 1)),
    "a byte behind it": lambda: WELL + b"x",
    "zeros behind it": lambda: WELL + bytes(100),
    "text between two members": lambda: WELL + b"between" + WELL,
    "a second member cut off in its header": lambda: WELL + WELL[:5],
    "a second member cut off": lambda: WELL + WELL[:-20],
    "a second member with a wrong checksum": lambda: WELL + gzipped(ends=bytes(8)),
    "a second member with a reserved flag": lambda: WELL + gzipped(flags=0x20),
    "a second member of another kind": lambda: WELL + bz2.compress(TEXT),
    "a second member that is zlib's": lambda: WELL + zlib.compress(TEXT),
    "zlib": lambda: zlib.compress(TEXT),
    "deflate without a header": lambda: WELL[10:-8],
    "bzip2": lambda: bz2.compress(TEXT),
    "xz": lambda: lzma.compress(TEXT),
    "zip": lambda: zipped(("a", TEXT)),
    "tar": lambda: tar(("a", TEXT)),
    "an error of a server": lambda: b"<html><title>404 Not Found</title></html>",
    "sent as text": lambda: WELL.replace(b"\n", b"\r\n") + b"\r\n",
    "sent by seven bits": lambda: bytes(byte & 0x7F for byte in WELL),
    "sent as Latin-1, and taken for UTF-8": lambda: WELL.decode("latin-1").encode(),
}
"""Files that are no gzip, or a broken one."""
