"""Reading the data files of a slot in parts, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gobblin.errors import TableError
from airflow_gobblin.model.table import DataFile
from airflow_gobblin.storage.files.base import Files

__all__ = ["opened", "read_columns"]


@contextmanager
def opened(files: Files, file: DataFile, subject: str) -> Iterator[pq.ParquetFile]:
    """Open a data file.

    :param subject: the table that it is for, for the error.
    :raises TableError: it is missing, or isn't whole.
    """
    try:
        with pq.ParquetFile(pa.PythonFile(_Reading(files, file), mode="r")) as parquet:
            yield parquet
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(operation="read", subject=f"staged file {file.path!r} of {subject}", cause=error) from error


def read_columns(
    files: Files, named: Iterable[DataFile], subject: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return some or all columns of data files as one table; a column that a file lacks is null in its rows.

    :param named: at least one.
    :param subject: as for `opened`.
    :raises TableError: as `opened`.
    """
    tables = []
    for file in named:
        with opened(files, file, subject) as parquet:
            tables.append(parquet.read(None if columns is None else [*columns]))
    return pa.concat_tables(tables, promote_options="permissive")


class _Reading:
    """A data file, for Arrow to read in."""

    def __init__(self, files: Files, file: DataFile) -> None:
        self._files, self._path, self._size = files, file.path, file.size
        self._at = 0
        self.closed = False

    def size(self) -> int:
        """Return its size."""
        return self._size

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position of the next read."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        wanted = self._size - self._at if size < 0 else min(size, self._size - self._at)
        data = self._files.read_part(self._path, self._at, wanted) if wanted > 0 else b""
        self._at += len(data)
        return data

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def seekable(self) -> bool:
        """Return that it is."""
        return True

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""
        self.closed = True
