"""The writer of a unit's data files for a table: Parquet, one partition each, with all that the commit needs of them.

The files lie where they stay: no table refers to them before the commit, and then it refers to them by this name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_gobblin.model import wire
from airflow_gobblin.model.table import DataFile
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.work import MIB, StagedFile
from airflow_gobblin.rows.sinks.parquet_files import ROW_GROUP_BYTES, ParquetFiles
from airflow_gobblin.rows.sinks.partitioned_files import PartitionedFiles, Values
from airflow_gobblin.storage.files.base import Files, StagedOutput
from airflow_gobblin.tables.arrow.statistics import column_statistics, to_json
from airflow_gobblin.tables.arrow.transforms import transform
from airflow_gobblin.tables.port import PartitionField

SORTED_BYTES = 64 * MIB
"""The most Arrow bytes that are sorted at once, and so the most that a sorted file takes."""
_GUESSED_SHARE = 0.5
"""The size of a file, as a share of the Arrow bytes of its rows, until one is written."""


class TableFiles:
    """The data files of one unit being written: a `Writer`.

    :param schema: that of the table; its fields' metadata, such as ids, are kept in the files.
    :param files: those of the table's location.
    :param folder: the folder of this unit's files alone, `data/gobblin/<token>/<attempt>/<unit>-<random>`.
    :param partition: the table's; each file holds one partition.
    :param file_bytes: the file size to aim at.
    :param compression_level: of zstd.
    :param sort: columns that the rows of each file are sorted by, and whether ascending. Rows are sorted in memory, so a
        file takes at most `SORTED_BYTES` of them.
    :param check: raises an error for rows with a value that the table can't hold, since after the decision there is no way
        back. It is also given the unit, in the words of errors.
    """

    def __init__(
        self,
        schema: pa.Schema,
        files: Files,
        folder: str,
        unit: str,
        *,
        partition: Sequence[PartitionField] = (),
        file_bytes: int = 128 * MIB,
        compression_level: int = 1,
        sort: Sequence[tuple[str, bool]] = (),
        check: Callable[[pa.RecordBatch, str], None] | None = None,
    ) -> None:
        self._check, self._subject = check, f"unit {unit!r}"
        self._partition = tuple(partition)
        self._data_files: list[DataFile] = []

        def start(_: str, values: Values, numbers: Iterator[int]) -> ParquetFiles:
            of = tuple(to_json(value) for value in values)
            return _DataFiles(
                schema,
                files,
                folder,
                numbers,
                file_bytes=file_bytes,
                compression_level=compression_level,
                sort=sort,
                made=self._data_files,
                data_file=DataFile("", 0, 0, unit, of),
            )

        self._writer = PartitionedFiles(self._values, _key, start, files) if self._partition else start("", (), count())

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch in the table's schema."""
        if self._check is not None:
            self._check(batch, self._subject)
        self._writer.write(batch)

    def close(self) -> tuple[StagedFile, ...]:
        """Finish every file: whole, durable and under its name for good. Without rows there is no file."""
        return self._writer.close()

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """After `close`: its files, with their partitions and the statistics of their columns."""
        return tuple(self._data_files)

    @property
    def properties(self) -> Mapping[str, Json]:
        """Empty: the data files contain everything."""
        return {}

    def abort(self) -> None:
        """Close and remove the written files; safe to repeat. Files that can't be removed stay, and don't count."""
        self._writer.abort()
        self._data_files.clear()

    def _values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [transform(batch.column(field.column), field) for field in self._partition]


def _key(values: Values) -> str:
    return wire.canonical([to_json(value) for value in values]).decode()


class _DataFiles(ParquetFiles):
    """The data files of one partition of a unit.

    :param made: takes the data files that are finished.
    :param data_file: what is known of them beforehand.
    """

    def __init__(
        self,
        schema: pa.Schema,
        files: Files,
        folder: str,
        numbers: Iterator[int],
        *,
        file_bytes: int,
        compression_level: int,
        sort: Sequence[tuple[str, bool]],
        made: list[DataFile],
        data_file: DataFile,
    ) -> None:
        super().__init__(
            schema,
            files,
            folder,
            folder,
            file_bytes=file_bytes,
            compression_level=compression_level,
            numbers=numbers,
        )
        self._folder = folder
        self._sort = [(column, "ascending" if ascending else "descending") for column, ascending in sort]
        self._sorted_bytes = 0
        if self._sort:
            self._gather_for(_GUESSED_SHARE)
        self._floats = [field.name for field in schema if pa.types.is_floating(field.type)]
        self._nans = dict.fromkeys(self._floats, 0)
        self._made = made
        self._data_file = data_file
        self._completed: list[str] = []

    def _name(self, stem: str, number: int) -> str:
        return f"{self._folder}/{number}.parquet"

    def _stage(self, number: int) -> StagedOutput:
        output = super()._stage(number)
        output.skip_checksum()
        return output

    def _prepared(self, rows: pa.Table) -> pa.Table:
        for name in self._floats:
            self._nans[name] += pc.sum(pc.is_nan(rows[name])).as_py() or 0
        self._sorted_bytes = rows.nbytes
        return rows.sort_by(self._sort) if self._sort else rows

    def _rows_a_group(self, rows: pa.Table) -> int:
        return int(max(1, min(rows.num_rows, rows.num_rows * ROW_GROUP_BYTES // max(1, rows.nbytes))))

    def _write_row_group(self, *, last: bool = False) -> None:
        super()._write_row_group(last=last)
        if self._sort:  # the next rows would be sorted apart
            self.finish_file()

    def _gather_for(self, share: float) -> None:
        """Gather as many rows as make a file of the size to aim at.

        :param share: the size of a file, as a share of the Arrow bytes of its rows.
        """
        self._group_bytes = max(1, min(SORTED_BYTES, round(self._file_bytes / share)))

    def _finished(self, staged: StagedFile, metadata: pq.FileMetaData) -> StagedFile:
        """Complete a file that is an upload, since its name is the one it keeps; note it as a data file."""
        if staged.upload is not None:
            assert self._files.uploads is not None
            self._completed.append(staged.path)
            self._files.uploads.complete(staged.path, staged.upload)
        if self._sort:
            self._gather_for(staged.size / max(1, self._sorted_bytes))
        columns = column_statistics(metadata, self._schema, self._nans)
        self._nans = dict.fromkeys(self._floats, 0)
        before = self._data_file
        self._made.append(DataFile(staged.path, staged.size, staged.rows, before.unit, before.partition, columns))
        return StagedFile(staged.path, staged.size, "", staged.rows, staged.stamp)

    def abort(self) -> None:
        super().abort()
        for path in self._completed:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
        self._completed.clear()
