"""Merging by key into an Iceberg table on a worker: data files that hold older versions are rewritten without them.

Copy on write, so every reader of the format sees the rows. The keys and versions of all new rows, and of those with the same
keys, are held in memory at once, along with one data file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_gobblin.tables.port import Merge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

_FILE = "gobblin.file"
_ROW = "gobblin.row"
_NEW = "gobblin.new"
_LOOSELY_BOUNDED = frozenset(["string", "binary", "float", "double"])
"""The types whose bounds may be cut, or leave out NaN."""


@dataclass(frozen=True)
class Merged:
    """The effect of a merge on the files of a table.

    :param leaving: the paths of the data files that leave.
    :param adding: the data files that are added, as the format has them.
    """

    leaving: frozenset[str]
    adding: tuple[Any, ...]


class Merging:
    """Merging new data files into a table.

    :param metadata: the table's metadata, with the columns that it has from this commit on.
    :param name: the table, as errors name it.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, merge: Merge, name: str) -> None:
        self._metadata = metadata
        self._io = io
        self._merge = merge
        self._name = name
        self._columns = [*merge.columns]

    def merged(self, old: Iterable[FileScanTask], new: list[Any]) -> Merged:
        """Find which rows stay, and write files without the others.

        :param old: the table's data files that may have rows with these keys.
        :param new: the data files to add, as the format has them.
        :raises TableError: a key is null, or two new rows are the newest version of a key.
        """
        from pyiceberg.table import FileScanTask

        added = [FileScanTask(entry) for entry in new]
        fresh = self._gathered(added, new=True)
        if not fresh.num_rows:
            return Merged(frozenset(), tuple(new))
        there = list(old)
        losing = self._losing(fresh, self._touched(there, fresh))
        leaving, adding = set[str](), list[Any]()
        for number, task in enumerate(there):
            if (gone := losing.get((False, number))) is not None:
                leaving.add(task.file.file_path)
                adding += self._without(task, gone)
        for number, task in enumerate(added):
            gone = losing.get((True, number))
            adding += [task.file] if gone is None else self._without(task, gone)
        return Merged(frozenset(leaving), tuple(adding))

    def bounds(self, new: list[Any]) -> Any:
        """Return the condition that files with keys of the new ones meet: values within the new ones' statistics."""
        from pyiceberg.conversions import from_bytes
        from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual

        at_least: Any = GreaterThanOrEqual  # its declared types are those that pydantic knows, not those that it takes
        at_most: Any = LessThanOrEqual
        found: Any = AlwaysTrue()
        for key in self._merge.keys:
            field: Any = self._metadata.schema().find_field(key)
            if not _are_bounds_tight(field, new):
                continue
            low = min(from_bytes(field.field_type, entry.lower_bounds[field.field_id]) for entry in new)
            high = max(from_bytes(field.field_type, entry.upper_bounds[field.field_id]) for entry in new)
            found = And(found, And(at_least(key, low), at_most(key, high)))
        return found

    def _gathered(self, tasks: list[FileScanTask], *, new: bool) -> pa.Table:
        """Return keys, versions and places of the rows of some files."""
        import pyarrow as pa

        tables = [self._placed(task, number, new=new) for number, task in enumerate(tasks)]
        return pa.concat_tables(tables) if tables else self._empty()

    def _touched(self, tasks: list[FileScanTask], fresh: pa.Table) -> pa.Table:
        """Return the same for those rows of the table that share a key with a new row."""
        import pyarrow as pa

        keys = list(self._merge.keys)
        asked = fresh.select(keys).group_by(keys).aggregate([])
        found = (
            self._placed(task, number, new=False).join(asked, keys, join_type="left semi")
            for number, task in enumerate(tasks)
        )
        tables = [table.select(fresh.column_names) for table in found if table.num_rows]
        return pa.concat_tables(tables) if tables else self._empty()

    def _losing(self, fresh: pa.Table, there: pa.Table) -> dict[tuple[bool, int], pa.Array]:
        """Return the rows that go, by file: all but the newest of each key. Of equal ones, one that is already there stays."""
        import pyarrow as pa

        from airflow_gobblin.tables.arrow.merging import merged

        place = [_NEW, _FILE, _ROW]
        kept = merged(there, fresh, self._merge, self._name).select(place)
        rows = pa.concat_tables([there.select(place), fresh.select(place)])
        gone = rows.join(kept, place, join_type="left anti").sort_by([(name, "ascending") for name in place])
        files = gone.group_by([_NEW, _FILE], use_threads=False).aggregate([(_ROW, "list")])
        which = zip(files[_NEW].to_pylist(), files[_FILE].to_pylist(), strict=True)
        return {key: some.values for key, some in zip(which, files[f"{_ROW}_list"], strict=True)}

    def _placed(self, task: FileScanTask, number: int, *, new: bool) -> pa.Table:
        import pyarrow as pa

        table = self._read(task, self._columns)
        rows = table.num_rows
        places = (
            (_NEW, pa.array([new] * rows, pa.bool_())),
            (_FILE, pa.array([number] * rows, pa.int32())),
            (_ROW, pa.array(range(rows), pa.int64())),
        )
        for name, values in places:
            table = table.append_column(name, values)
        return table

    def _empty(self) -> pa.Table:
        import pyarrow as pa

        fields = [*self._schema(self._columns), (_NEW, pa.bool_()), (_FILE, pa.int32()), (_ROW, pa.int64())]
        return pa.schema(fields).empty_table()

    def _schema(self, columns: list[str]) -> pa.Schema:
        import pyarrow as pa
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        found: pa.Schema = schema_to_pyarrow(self._metadata.schema().select(*columns), include_field_ids=False)
        return pa.schema([found.field(column) for column in columns])

    def _read(self, task: FileScanTask, columns: list[str]) -> pa.Table:
        """Return columns of a file as the table has them now, in the order of its rows, without those deleted."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        schema = self._metadata.schema().select(*columns)
        scan = ArrowScan(self._metadata, self._io, schema, AlwaysTrue())
        table = scan.to_table([FileScanTask(task.file, task.delete_files)])
        return table.select(columns).cast(self._schema(columns))

    def _without(self, task: FileScanTask, rows: pa.Array) -> Iterator[Any]:
        """Rewrite a file without some of its rows; write nothing if no row is left."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        table = self._read(task, self._metadata.schema().as_arrow().names)
        numbers = pa.array(range(table.num_rows), pa.int64())
        kept = table.filter(pc.invert(pc.is_in(numbers, rows)))
        if kept.num_rows:
            yield from _dataframe_to_data_files(self._metadata, kept, self._io)


def _are_bounds_tight(field: Any, files: list[Any]) -> bool:
    """Return whether the statistics of all files bound the values of a column."""
    if not files or str(field.field_type) in _LOOSELY_BOUNDED:
        return False
    return all(field.field_id in entry.lower_bounds and field.field_id in entry.upper_bounds for entry in files)
