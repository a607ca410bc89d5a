"""The Parquet files of a unit, as they are written."""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gobblin.files import Files
from airflow_gobblin.watermark import Json
from airflow_gobblin.work import StagedFile

MIB = 1 << 20
ROW_GROUP_BYTES = 64 * MIB
"""Arrow bytes of a row group at the most: it is what a writer holds in memory, beside one column of it encoded."""


def fits_parquet(field: pa.Field) -> bool:
    """Whether Parquet can hold a column of this type."""
    try:
        pq.write_table(pa.schema([field]).empty_table(), pa.BufferOutputStream())
    except pa.ArrowException:
        return False
    return True


class ParquetFiles:
    """The Parquet files of one unit being written: a `Writer`.

    Batches are gathered up to a row group's size, so that what is held in memory depends neither on the unit's nor on the
    file's size.

    :param file_bytes: the size of a file to aim at. :param compression_level: of zstd.
    """

    def __init__(
        self, schema: pa.Schema, files: Files, folder: str, stem: str, *, file_bytes: int, compression_level: int
    ) -> None:
        self._schema = schema
        self._files = files
        self._folder = folder
        self._stem = stem
        self._file_bytes = file_bytes
        self._compression_level = compression_level
        self._group_bytes = min(ROW_GROUP_BYTES, max(1, file_bytes // 2))
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._current: _OpenFile | None = None
        self._created: list[str] = []
        self._staged: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of the published schema."""
        for piece in _pieces(batch, self._group_bytes):
            if self._gathered_bytes + piece.nbytes > self._group_bytes:
                self._write_row_group()
            self._gathered.append(piece)
            self._gathered_bytes += piece.nbytes

    def close(self) -> tuple[StagedFile, ...]:
        """Finish: every file whole, synced to disk, with its checksum. No rows, no file."""
        self._write_row_group()
        self._finish_file()
        if self._staged:
            self._files.sync_folder(self._folder)
        return tuple(self._staged)

    @property
    def properties(self) -> Mapping[str, Json]:
        """Nothing: the files say all."""
        return {}

    def abort(self) -> None:
        """Close and remove what was written; harmless twice. What can't be removed stays, and nobody counts it."""
        self._gathered.clear()
        if self._current is not None:
            self._current.discard()
            self._current = None
        for path in self._created:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
        self._created.clear()
        self._staged.clear()

    def _write_row_group(self) -> None:
        if not self._gathered:
            return
        if self._current is None:
            path = posixpath.join(self._folder, f"{self._stem}-{len(self._staged)}.parquet")
            raw = self._files.create(path)
            self._created.append(path)
            self._current = _OpenFile(path, raw, self._schema, self._compression_level)
        before = self._current.size
        self._current.write(pa.Table.from_batches(self._gathered, self._schema))
        self._gathered.clear()
        self._gathered_bytes = 0
        # Stop where one more row group like this one would end farther above the target than the file is now below it.
        if self._current.size + (self._current.size - before) / 2 >= self._file_bytes:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._current is None:
            return
        path, rows = self._current.path, self._current.rows
        size, checksum = self._current.finish()
        self._current = None
        self._files.sync_file(path)
        found = self._files.identity(path)
        if found is None or found.size != size:
            raise OSError(f"staged file {path!r} has {found.size if found else 'no'} bytes after writing {size}")
        self._staged.append(StagedFile(path, size, checksum, rows, found.mtime_ns))


def _pieces(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """The batch, cut where it is much larger than `limit` bytes; its rows taken as of one size."""
    if batch.num_rows == 0:
        return
    step = max(1, batch.num_rows * limit // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


class _OpenFile:
    """One Parquet file being written; size and SHA-256 are taken as its bytes pass by."""

    def __init__(self, path: str, raw: BinaryIO, schema: pa.Schema, compression_level: int) -> None:
        self.path = path
        self.rows = 0
        self._out = _HashingOutput(raw)
        try:
            self._parquet = pq.ParquetWriter(
                self._out, schema, compression="zstd", compression_level=compression_level, write_page_index=True
            )
        except BaseException:  # it writes its first bytes at once
            self._out.swallow()
            raise

    @property
    def size(self) -> int:
        return self._out.size

    def write(self, table: pa.Table) -> None:
        self._parquet.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows

    def finish(self) -> tuple[int, str]:
        self._parquet.close()
        self._out.flush()
        self._out.close()
        return self._out.size, self._out.hexdigest()

    def discard(self) -> None:
        """Let go of the file after an error: the Parquet writer would write its footer, whose bytes are not wanted."""
        self._out.swallow()
        with contextlib.suppress(pa.ArrowException, OSError, ValueError):
            self._parquet.close()


class _HashingOutput:
    """A file object that counts and hashes what it passes on."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._hash = hashlib.sha256()
        self._swallowing = False
        self.size = 0

    @property
    def closed(self) -> bool:
        return self._raw.closed and not self._swallowing

    def write(self, data: bytes | pa.Buffer) -> int:
        with memoryview(data) as view:
            if not self._swallowing:
                self._raw.write(view)
                self._hash.update(view)
            self.size += view.nbytes
            return view.nbytes

    def flush(self) -> None:
        if not self._swallowing:
            self._raw.flush()

    def close(self) -> None:
        self._raw.close()

    def swallow(self) -> None:
        """Close the file, and let what still comes vanish."""
        self._swallowing = True
        with contextlib.suppress(OSError):
            self._raw.close()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
