"""The writer of a unit's rows into files that each hold one partition.

Memory depends neither on the unit's size nor on the number of its partitions: of all that is gathered, the largest part is
written first, and only a few files are open at once. A unit whose rows are sorted by partition has the fewest files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.rows.sinks.parquet_files import ROW_GROUP_BYTES, ParquetFiles
from airflow_gobblin.storage.files.base import Files

GATHERED_BYTES = 2 * ROW_GROUP_BYTES
"""The most Arrow bytes that all partitions of a unit gather together."""
OPEN_FILES = 64
"""The most files open at once."""
OPEN_UPLOADS = 8
"""The same in an object store, where each holds the parts of it that are filled or on their way."""
MOST_PARTITIONS = 10_000
"""The most partitions of a unit."""
_BYTES_OF_A_COLUMN = 256
"""The memory that an array takes besides its bytes, so that many tiny pieces count, too."""

Values = tuple[pa.Scalar, ...]


class PartitionedFiles:
    """The files of one unit being written, one partition each: a `Writer`.

    :param values: returns the partition values of each row of a batch, an array per partition field.
    :param key: returns what distinguishes partitions, from the values of one.
    :param start: starts the files of a partition, given its key, its values and the numbers of files, which all share.
    :param files: where they are.
    """

    def __init__(
        self,
        values: Callable[[pa.RecordBatch], Sequence[pa.Array]],
        key: Callable[[Values], str],
        start: Callable[[str, Values, Iterator[int]], ParquetFiles],
        files: Files,
    ) -> None:
        self._values = values
        self._key = key
        self._start = start
        self._most_open = OPEN_FILES if files.moves_folders else OPEN_UPLOADS
        self._numbers = count()
        self._of: dict[str, ParquetFiles] = {}
        self._open: dict[str, None] = {}  # the one that was written last comes last
        self._gathered: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch in the published schema."""
        for values, rows in split(batch, self._values(batch)):
            key = self._key(values)
            if key not in self._of:
                self._of[key] = self._start(key, values, self._numbers)
                self._check_number()
            self._of[key].write(rows)
            overhead = _BYTES_OF_A_COLUMN * rows.num_columns
            self._gathered[key] = self._of[key].gathered_bytes + overhead
            self._note(key)
        while sum(self._gathered.values()) > GATHERED_BYTES:
            largest = max(self._gathered, key=self._gathered.__getitem__)
            self._of[largest].flush()
            self._gathered[largest] = 0
            self._note(largest)

    def close(self) -> tuple[StagedFile, ...]:
        """Finish every file: whole, synced to disk, with its checksum. Without rows there is no file."""
        return tuple(file for files in self._of.values() for file in files.close())

    @property
    def properties(self) -> Mapping[str, Json]:
        """Empty: the files contain everything."""
        return {}

    def abort(self) -> None:
        """Close and remove the written files; safe to repeat."""
        for files in self._of.values():
            files.abort()
        self._gathered.clear()

    def _note(self, key: str) -> None:
        """Note which files are open, and finish the one that was written longest ago if there are too many."""
        self._open.pop(key, None)
        if self._of[key].is_open:
            self._open[key] = None
        while len(self._open) > self._most_open:
            oldest = next(iter(self._open))
            self._of[oldest].finish_file()
            del self._open[oldest]

    def _check_number(self) -> None:
        if len(self._of) > MOST_PARTITIONS:
            raise ConfigurationError(
                operation="write",
                subject="a unit's partitions",
                cause=f"it has rows of more than {many(MOST_PARTITIONS, 'partition')}, each of which takes a file",
                hint="Partition by a column of fewer values, or make units smaller.",
            )


def split(batch: pa.RecordBatch, fields: Sequence[pa.Array]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the rows of each partition, in their order, with its values.

    Rows of several partitions are copied, so that one partition's don't keep the whole batch in memory.

    :param fields: the partition values of each row, an array per field.
    """
    if batch.num_rows == 0:
        return
    codes = pa.repeat(pa.scalar(0), batch.num_rows)
    for field in fields:
        encoded = pc.dictionary_encode(field, null_encoding="encode")
        codes = pc.add(pc.multiply(codes, max(1, len(encoded.dictionary))), encoded.indices.cast(pa.int64()))
        codes = pc.dictionary_encode(codes).indices.cast(pa.int64())
    order = pc.array_sort_indices(codes)  # a stable sort
    ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
    if len(ends) == 1:
        yield tuple(field[0] for field in fields), batch
        return
    for start, end in pairwise([0, *ends]):
        rows = order.slice(start, end - start)
        yield tuple(field[rows[0].as_py()] for field in fields), batch.take(rows)
