"""The writer of a unit's Parquet files, a row group at a time; `parquet.py` declares the sink."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_gobblin.model.dead_letters import dead_letter_schema
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.work import MIB, StagedFile
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.storage.files.base import Files, StagedOutput

ROW_GROUP_BYTES = 16 * MIB
"""The most Arrow bytes of a row group: a writer holds that much in memory, and one column of it encoded."""
DICTIONARY_BYTES = 256 << 10
"""The size of a dictionary; a column of more distinct values is written plainly, in half the time and smaller than by default."""
FIRST_ROWS, SAMPLE_ROWS = 1 << 16, 1 << 12
"""The number of rows at a file's start by which its columns' encodings are chosen, and about how many of these are looked at."""
WORTHWHILE = 0.9
"""The most that compressing a column may leave of it to be worth its time, a tenth of that of writing."""
_INT64_DIGITS = 18
DEAD_LETTER_BYTES = 128 * MIB
"""The size to aim at for a file of dead letters."""


def fits_parquet(field: pa.Field) -> bool:
    """Return whether Parquet can hold a column of this type."""
    try:
        pq.write_table(pa.schema([field]).empty_table(), pa.BufferOutputStream())
    except pa.ArrowException:
        return False
    return True


def dead_letter_files(files: Files, staged: str, published: str) -> ParquetFiles:
    """Start the files of a unit's dead letters.

    :param staged: the stem of their paths, in a folder of this task attempt alone.
    :param published: the stem of the paths that they are published at.
    """
    return ParquetFiles(
        dead_letter_schema(), files, staged, published, file_bytes=DEAD_LETTER_BYTES, compression_level=1
    )


class ParquetFiles:
    """The Parquet files of one unit being written: a `Writer`.

    Batches are gathered up to a row group's size, so that memory use depends neither on the unit's nor on the file's size.

    :param file_bytes: the file size to aim at. The rest of a unit that is less than a row group goes into the file before.
    :param compression_level: of zstd.
    :param layout: the layout of their names.
    :param numbers: the numbers in their names, where they share them with others.
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
        numbers: Iterator[int] | None = None,
    ) -> None:
        self._schema = schema
        self._files = files
        self._stem = staged
        self._published = published
        self._layout = layout
        self._file_bytes = file_bytes
        self._compression_level = compression_level
        self._numbers = count() if numbers is None else numbers
        self._group_bytes = min(ROW_GROUP_BYTES, max(1, file_bytes // 2))
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._current: _OpenFile | None = None
        self._full = False
        self._opened: list[StagedOutput] = []
        self._staged: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch in the published schema."""
        for piece in _pieces(batch, self._group_bytes):
            if self._gathered_bytes + piece.nbytes > self._group_bytes:
                self._write_row_group()
            self._gathered.append(piece)
            self._gathered_bytes += piece.nbytes

    def close(self) -> tuple[StagedFile, ...]:
        """Finish every file: whole, synced to disk, with its checksum. Without rows there is no file."""
        self._write_row_group(last=True)
        self.finish_file()
        if self._staged:
            self._files.sync_folder(posixpath.dirname(self._name(self._stem, 0)))
        return tuple(self._staged)

    @property
    def gathered_bytes(self) -> int:
        """The Arrow bytes of the rows that are gathered and not yet written."""
        return self._gathered_bytes

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._current is not None

    def flush(self) -> None:
        """Write what is gathered, as a row group."""
        self._write_row_group()

    @property
    def properties(self) -> Mapping[str, Json]:
        """Empty: the files contain everything."""
        return {}

    def abort(self) -> None:
        """Close and remove the written files; safe to repeat. Files that can't be removed stay, and don't count."""
        self._gathered.clear()
        if self._current is not None:
            self._current.discard()
            self._current = None
        for output in self._opened:
            output.abort()
        self._opened.clear()
        self._staged.clear()

    def _write_row_group(self, *, last: bool = False) -> None:
        """Write what is gathered.

        :param last: whether it is the rest of the unit, which goes into the last file instead of a small one of its own.
        """
        if not self._gathered:
            return
        if self._full and not last:
            self.finish_file()
        rows = self._prepared(pa.Table.from_batches(self._gathered, self._schema))
        if self._current is None:
            self._opened.append(self._stage(next(self._numbers)))
            self._current = _OpenFile(self._opened[-1], rows, self._compression_level)
        before = self._current.size
        self._current.write(rows, self._rows_a_group(rows))
        del rows  # hold one row group at a time
        self._gathered.clear()
        self._gathered_bytes = 0
        # Stop if one more row group like this one would end farther above the target than the file is now below it.
        self._full = self._current.size + (self._current.size - before) / 2 >= self._file_bytes

    def _stage(self, number: int) -> StagedOutput:
        return self._files.stage(self._name(self._stem, number), self._name(self._published, number))

    def _prepared(self, rows: pa.Table) -> pa.Table:
        """Return gathered rows as they are to be written."""
        return rows

    def _rows_a_group(self, rows: pa.Table) -> int:
        """Return how many of some rows a row group takes: all, since as many are gathered as it holds."""
        return int(rows.num_rows)

    def _finished(self, staged: StagedFile, metadata: pq.FileMetaData) -> StagedFile:
        """Return the result for a file that is written."""
        return staged

    def _name(self, stem: str, number: int) -> str:
        return self._layout.path(stem, number, "parquet")

    def finish_file(self) -> None:
        """Finish the open file, if there is one: further rows go into another."""
        if self._current is None:
            return
        self._staged.append(self._finished(*self._current.finish()))
        self._current, self._full = None, False


def _pieces(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch, cut where it is much larger than `limit` bytes, assuming rows of equal size."""
    if batch.num_rows == 0:
        return
    step = max(1, batch.num_rows * limit // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _encodings(rows: pa.Table, paths: Sequence[str]) -> dict[str, str]:
    """Return the columns that, by some of a file's first rows, are better written without a dictionary, with their encodings.

    Values that hardly repeat gain nothing from one: integers, dates, times and short decimals take less room and less time
    as differences from the value before, and so do texts with their lengths stored apart.
    """
    first = rows.slice(0, FIRST_ROWS)
    step = max(1, first.num_rows // SAMPLE_ROWS)
    looked_at = pa.array(range(0, first.num_rows, step))
    return {
        field.name: encoding
        for field, column in zip(first.schema, first.columns, strict=True)
        if (encoding := _without_dictionary(field.type))
        and _hardly_repeats(column.take(looked_at), 1 / step)
        and paths.count(field.name) == 1
    }


def _without_dictionary(kind: pa.DataType) -> str:
    """Return the encoding for values of a type that hardly repeat; empty if that remains a dictionary."""
    if pa.types.is_floating(kind):
        return "" if pa.types.is_float16(kind) else "PLAIN"
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_decimal(kind):
        return "DELTA_BINARY_PACKED" if kind.precision <= _INT64_DIGITS else ""
    return "DELTA_LENGTH_BYTE_ARRAY" if pa.types.is_string(kind) or pa.types.is_binary(kind) else ""


def _hardly_repeats(sample: pa.ChunkedArray, share: float) -> bool:
    """Return whether fewer than two rows have the same value, on average.

    :param share: the sample's share of the rows. If each value has two rows, that is also the share of the sample's rows whose
        twin is in the sample, too.
    """
    return bool(pc.count_distinct(sample).as_py() > (1 - share / 2) * (len(sample) - sample.null_count))


def _hardly_compressed(rows: pa.Table, encodings: Mapping[str, str], level: int) -> set[str]:
    """Return the columns, of those with these encodings, that aren't worth compressing, by a file's first rows.

    :param level: of zstd.
    """
    if not encodings or rows.num_rows < SAMPLE_ROWS:  # of few rows the pages' headers are as large as the values
        return set()
    tried = pa.BufferOutputStream()
    pq.write_table(
        rows.select(list(encodings)).slice(0, SAMPLE_ROWS),
        tried,
        compression="zstd",
        compression_level=level,
        use_dictionary=False,
        column_encoding=dict(encodings),
        store_decimal_as_integer=True,
    )
    group = pq.read_metadata(pa.BufferReader(tried.getvalue())).row_group(0)
    columns = (group.column(n) for n in range(group.num_columns))
    return {c.path_in_schema for c in columns if c.total_compressed_size > WORTHWHILE * c.total_uncompressed_size}


def _paths(schema: pa.Schema) -> list[str]:
    """Return the paths of a schema's columns in Parquet; a nested column has several paths, or a longer one."""
    empty = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), empty)
    columns = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    return [columns.column(n).path for n in range(len(columns))]


class _OpenFile:
    """A Parquet file being written.

    :param first: its first row group, by which its encodings are chosen, and what is compressed.
    """

    def __init__(self, output: StagedOutput, first: pa.Table, compression_level: int) -> None:
        self._output = output
        self._rows = 0
        self._sink = _ParquetOutput(output)
        paths = _paths(first.schema)
        encodings = _encodings(first, paths)
        plain = _hardly_compressed(first, encodings, compression_level)
        try:
            self._parquet = pq.ParquetWriter(
                self._sink,
                first.schema,
                compression={path: "none" if path in plain else "zstd" for path in paths},
                compression_level={path: compression_level for path in paths if path not in plain} or None,
                use_dictionary=[path for path in paths if path not in encodings],
                column_encoding=encodings or None,
                store_decimal_as_integer=True,
                dictionary_pagesize_limit=DICTIONARY_BYTES,
                write_page_index=True,
            )
        except BaseException:  # it writes its first bytes at once
            self._sink.swallow()
            raise

    @property
    def size(self) -> int:
        return self._output.size

    def write(self, table: pa.Table, rows_a_group: int) -> None:
        self._parquet.write_table(table, row_group_size=rows_a_group)
        self._rows += table.num_rows

    def finish(self) -> tuple[StagedFile, pq.FileMetaData]:
        self._parquet.close()
        return self._output.finish(self._rows), self._parquet.writer.metadata

    def discard(self) -> None:
        """Release the file after an error: the Parquet writer would write its footer, which is not wanted."""
        self._sink.swallow()
        with contextlib.suppress(pa.ArrowException, OSError, ValueError):
            self._parquet.close()


class _ParquetOutput:
    """A staged file with the interface that the Parquet writer needs."""

    def __init__(self, output: StagedOutput) -> None:
        self._output = output
        self._swallowing = False
        self.closed = False

    def write(self, data: bytes | pa.Buffer) -> int:
        with memoryview(data) as view:
            return view.nbytes if self._swallowing else self._output.write(view)

    def flush(self) -> None:
        """Do nothing: the bytes are made durable when the file is finished."""

    def close(self) -> None:
        self.closed = True

    def swallow(self) -> None:
        """Discard all further bytes."""
        self._swallowing = True
