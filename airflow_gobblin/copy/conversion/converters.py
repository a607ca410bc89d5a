"""Converters change a file's bytes, and its extension, on the way to the target.

A mirror's converters are a chain: each one converts the files that have its extension, as the one before it left them, and leaves
the others as they are. So a file's name in the target follows from its name in the source alone.
"""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from airflow_gobblin.copy.conversion.limits import MOST_BYTES, MOST_RATIO, check_limits
from airflow_gobblin.errors import ConfigurationError, MissingExtraError
from airflow_gobblin.model.wire import record

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections

_BLOCK = 1 << 20
_AT_ONCE = 8 << 10
"""The number of bytes of gzip that are decompressed at once: they may become a thousand times as many."""
_GZIP = 16 + zlib.MAX_WBITS
"""The window bits for gzip alone; zlib writes no time into it, so that the same content always becomes the same bytes."""


@runtime_checkable
class FileConverter(Protocol):
    """A converter of files' bytes: frozen, registered with `wire.record`, without secrets."""

    @property
    def takes(self) -> str:
        """The extension of the files that it converts, such as `.gz`. Empty: all files but those that have `gives`."""

    @property
    def gives(self) -> str:
        """The extension that they have afterwards in place of it; may be empty."""

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the converted bytes of a file, block by block, as its bytes come.

        Any exception fails the file set. It describes what is wrong with the bytes; the file's name is added to it.
        """


@runtime_checkable
class ConnectedConverter(Protocol):
    """A converter that needs secrets: frozen, registered with `wire.record`, without the secrets themselves."""

    @property
    def takes(self) -> str:
        """The extension of the files that it converts, as in `FileConverter`."""

    @property
    def gives(self) -> str:
        """The extension that they have afterwards, as in `FileConverter`."""

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections that have the secrets; Spark is given these."""

    def connected(self, connections: Connections) -> FileConverter:
        """Return the converter, with its secrets. If it has a `close`, that is called at the end.

        :raises GobblinError: a connection is missing, or isn't fit for it.
        """


AnyConverter = FileConverter | ConnectedConverter
"""A converter that a mirror accepts."""


class CompanionConverter(FileConverter, Protocol):
    """A converter, with its secrets, that needs a second file beside each one, such as its signature.

    The `ConnectedConverter` that it comes from has `companions`, the extensions of second files, one of which follows the whole
    name of the first. Second files aren't converted.
    """

    def beside(self, companion: bytes) -> FileConverter:
        """Return the converter of one file, given the content of its second one."""


def companions_of(converter: AnyConverter) -> tuple[str, ...]:
    """Return the extensions of the second files that a converter needs; none if it needs none."""
    found: tuple[str, ...] = getattr(converter, "companions", ())  # checking the protocol takes as long as all else
    return found


def converted(converter: AnyConverter, path: str) -> str | None:
    """Return the path of a file after its conversion; `None` if it isn't converted."""
    if path.endswith(companions_of(converter)):
        return None
    takes, gives = converter.takes, converter.gives
    stem = path.removesuffix(takes)
    if not path.endswith(takes) or not stem or stem.endswith("/"):
        return None
    return None if gives and not takes and path.endswith(gives) else stem + gives


@dataclass(frozen=True)
class Chain:
    """The converters of a mirror, in their order."""

    converters: tuple[AnyConverter, ...] = ()

    def applied(self, path: str) -> tuple[tuple[AnyConverter, str], ...]:
        """Return those that convert a file, given its path in the source, each with the path that the file has by then."""
        return tuple((converter, before) for converter, before, _ in self._steps(path))

    def target(self, path: str) -> str:
        """Return the path of a file in the target, given its path in the source."""
        return ([path] + [after for _, _, after in self._steps(path)])[-1]

    def _steps(self, path: str) -> Iterator[tuple[AnyConverter, str, str]]:
        for converter in self.converters:
            found = converted(converter, path)
            if found is not None:
                yield converter, path, found
                path = found

    def sources(self, path: str) -> set[str]:
        """Return the paths of the files that would have this path in the target."""
        found = {path}
        for converter in reversed(self.converters):
            found = {before for after in found for before in _before(converter, after)}
        return found


def _before(converter: AnyConverter, path: str) -> Iterator[str]:
    if converted(converter, path) is None:
        yield path
    if path.endswith(converter.gives):
        other = path.removesuffix(converter.gives) + converter.takes
        if converted(converter, other) == path:
            yield other


@dataclass(frozen=True)
class _Decompressor:
    """The common part of the converters that decompress.

    :param most_bytes: the maximum size of a file's content.
    :param most_ratio: how many times the size of the source's file its content may have, if it is above 10 MiB.
    """

    most_bytes: int = MOST_BYTES
    most_ratio: int = MOST_RATIO
    takes: ClassVar[str]
    gives: ClassVar[str] = ""
    codec: ClassVar[str]

    def __post_init__(self) -> None:
        check_limits(self, "most_bytes", "most_ratio")

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the decompressed bytes."""
        return decompressed(blocks, self.codec)


@record("gunzip")
@dataclass(frozen=True)
class Gunzip(_Decompressor):
    """Decompress `*.gz`, of one or several members, to content of at most `most_bytes` and, if it is above 10 MiB, at most
    `most_ratio` times the size of the source's file.
    """

    takes, codec = ".gz", "gzip"


@record("bunzip2")
@dataclass(frozen=True)
class Bunzip2(_Decompressor):
    """Decompress `*.bz2`, of one or several streams, with the limits of `Gunzip`."""

    takes, codec = ".bz2", "bz2"


@record("unzstd")
@dataclass(frozen=True)
class Unzstd(_Decompressor):
    """Decompress `*.zst`, of one or several frames, with the limits of `Gunzip`."""

    takes, codec = ".zst", "zstd"


@record("gzip")
@dataclass(frozen=True)
class Gzip:
    """Compress all files but `*.gz`, to `*.gz`.

    :param level: from 1, fast, to 9, small.
    """

    level: int = 6
    takes, gives = "", ".gz"

    def __post_init__(self) -> None:
        _check_level(self, self.level, 9)

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the compressed bytes."""
        return _compressed(blocks, zlib.compressobj(self.level, wbits=_GZIP))


@record("bzip2")
@dataclass(frozen=True)
class Bzip2:
    """Compress all files but `*.bz2`, to `*.bz2`.

    :param level: from 1 to 9: the size of a block in 100 kB.
    """

    level: int = 9
    takes, gives = "", ".bz2"

    def __post_init__(self) -> None:
        _check_level(self, self.level, 9)

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the compressed bytes."""
        return _compressed(blocks, bz2.BZ2Compressor(self.level))


@record("zstd")
@dataclass(frozen=True)
class Zstd:
    """Compress all files but `*.zst`, to `*.zst` with a checksum. Needs the extra `zstd`.

    :param level: from 1, fast, to 22, small.
    """

    level: int = 3
    takes, gives = "", ".zst"

    def __post_init__(self) -> None:
        _check_level(self, self.level, 22)

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the compressed bytes.

        :raises MissingExtraError: the extra isn't installed.
        """
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError(
                operation="compress",
                subject="files with zstd",
                cause=error,
                hint="Install airflow-gobblin[zstd] where Spark's tasks run.",
            ) from error
        return _compressed(blocks, zstandard.ZstdCompressor(level=self.level, write_checksum=True).compressobj())


def _check_level(converter: object, level: int, most: int) -> None:
    if isinstance(level, bool) or not 1 <= level <= most:
        raise ConfigurationError(
            operation="use", subject=f"{converter}", cause="there is no such level", hint=f"Give one from 1 to {most}."
        )


UNCHANGING = (Gunzip, Bunzip2, Unzstd, Gzip, Bzip2, Zstd)
"""The converters that always turn the same bytes into the same result."""


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _compressed(blocks: Iterable[bytes], compressor: _Compressor) -> Iterator[bytes]:
    for block in blocks:
        if some := compressor.compress(block):
            yield some
    yield compressor.flush()


def decompressed(blocks: Iterator[bytes], codec: str) -> Iterator[bytes]:
    """Yield decompressed bytes.

    :raises Exception: they are cut off, or followed by anything else, or there are none.
    """
    return _gunzipped(blocks) if codec == "gzip" else _decompressed_by_arrow(blocks, codec)


def _decompressed_by_arrow(blocks: Iterator[bytes], codec: str) -> Iterator[bytes]:
    import pyarrow as pa

    read = BlocksReader(blocks)
    with pa.CompressedInputStream(pa.PythonFile(read, mode="r"), codec) as stream:
        while some := stream.read(_BLOCK):
            yield some
    if not read.size:
        raise ValueError(f"it is empty, which no {codec} file is")


def _gunzipped(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the contents of a gzip file's members. Arrow isn't used, since it takes zlib's streams for members, too."""
    member = None
    for block in blocks:
        for start in range(0, len(block), _AT_ONCE):
            rest = block[start : start + _AT_ONCE]
            while rest:
                if member is None or member.eof:
                    member = zlib.decompressobj(wbits=_GZIP)
                if some := member.decompress(rest):
                    yield some
                rest = member.unused_data
    if member is None:
        raise ValueError("it is empty, which no gzip file is")
    if not member.eof:
        raise ValueError("it is truncated")


class BlocksReader(io.RawIOBase):
    """The bytes of some blocks as a file to read. `size` is the number of bytes that were read."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")
        self.size = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK), b""))
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return b""
            self._rest = memoryview(block)
        some, self._rest = bytes(self._rest[:size]), self._rest[size:]
        self.size += len(some)
        return some
