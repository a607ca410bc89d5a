"""The Parquet files of a unit, as they are written."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gobblin.files.base import Files, StagedOutput
from airflow_gobblin.sinks.base import Layout
from airflow_gobblin.watermark import Json
from airflow_gobblin.work import StagedFile

MIB = 1 << 20
ROW_GROUP_BYTES = 32 * MIB
"""Arrow bytes of a row group at the most: it is what a writer holds in memory, beside one column of it encoded."""
DICTIONARY_BYTES = 256 << 10
"""A column of more distinct values than fit is written plainly: half the time, and smaller files, than by Arrow's default."""


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

    :param file_bytes: the size of a file to aim at. :param compression_level: of zstd. :param layout: how they are called.
    """

    def __init__(
        self,
        schema: pa.Schema,
        files: Files,
        staged: str,
        published: str,
        *,
        file_bytes: int,
        compression_level: int,
        layout: Layout = Layout.FLAT,
    ) -> None:
        self._schema = schema
        self._files = files
        self._stem = staged
        self._published = published
        self._layout = layout
        self._file_bytes = file_bytes
        self._compression_level = compression_level
        self._group_bytes = min(ROW_GROUP_BYTES, max(1, file_bytes // 2))
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._current: _OpenFile | None = None
        self._opened: list[StagedOutput] = []
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
            self._files.sync_folder(posixpath.dirname(self._name(self._stem)))
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
        for output in self._opened:
            output.abort()
        self._opened.clear()
        self._staged.clear()

    def _write_row_group(self) -> None:
        if not self._gathered:
            return
        if self._current is None:
            self._opened.append(self._files.stage(self._name(self._stem), self._name(self._published)))
            self._current = _OpenFile(self._opened[-1], self._schema, self._compression_level)
        before = self._current.size
        self._current.write(pa.Table.from_batches(self._gathered, self._schema))
        self._gathered.clear()
        self._gathered_bytes = 0
        # Stop where one more row group like this one would end farther above the target than the file is now below it.
        if self._current.size + (self._current.size - before) / 2 >= self._file_bytes:
            self._finish_file()

    def _name(self, stem: str) -> str:
        return self._layout.path(stem, len(self._staged), "parquet")

    def _finish_file(self) -> None:
        if self._current is None:
            return
        self._staged.append(self._current.finish())
        self._current = None


def _pieces(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """The batch, cut where it is much larger than `limit` bytes; its rows taken as of one size."""
    if batch.num_rows == 0:
        return
    step = max(1, batch.num_rows * limit // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


class _OpenFile:
    """One Parquet file being written."""

    def __init__(self, output: StagedOutput, schema: pa.Schema, compression_level: int) -> None:
        self._output = output
        self._rows = 0
        self._sink = _ParquetOutput(output)
        try:
            self._parquet = pq.ParquetWriter(
                self._sink,
                schema,
                compression="zstd",
                compression_level=compression_level,
                dictionary_pagesize_limit=DICTIONARY_BYTES,
                write_page_index=True,
            )
        except BaseException:  # it writes its first bytes at once
            self._sink.swallow()
            raise

    @property
    def size(self) -> int:
        return self._output.size

    def write(self, table: pa.Table) -> None:
        self._parquet.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows

    def finish(self) -> StagedFile:
        self._parquet.close()
        return self._output.finish(self._rows)

    def discard(self) -> None:
        """Let go of the file after an error: the Parquet writer would write its footer, whose bytes are not wanted."""
        self._sink.swallow()
        with contextlib.suppress(pa.ArrowException, OSError, ValueError):
            self._parquet.close()


class _ParquetOutput:
    """A staged file as the Parquet writer wants it."""

    def __init__(self, output: StagedOutput) -> None:
        self._output = output
        self._swallowing = False
        self.closed = False

    def write(self, data: bytes | pa.Buffer) -> int:
        with memoryview(data) as view:
            return view.nbytes if self._swallowing else self._output.write(view)

    def flush(self) -> None:
        """Its bytes are made durable when it is finished."""

    def close(self) -> None:
        self.closed = True

    def swallow(self) -> None:
        """Let what still comes vanish."""
        self._swallowing = True
