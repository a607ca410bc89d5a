"""Merging by key into an Iceberg table on a worker: data files that hold older versions are written anew without them.

Copy on write, so every reader of the format sees the rows. The keys and positions of all new rows are held in memory at once, and
besides one data file: `MERGE_ROWS` bounds the first, the table's target file size the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import TableError
from airflow_gobblin.tables.port import Merge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

MERGE_ROWS = 2_000_000
"""The most rows that one commit merges. More of them are merged by several slots, or appended."""
_FILE = "gobblin.file"
_ROW = "gobblin.row"
_NEW = "gobblin.new"
_LOOSELY_BOUNDED = frozenset(["string", "binary", "float", "double"])
"""The types whose bounds may be cut, or leave out NaN."""


@dataclass(frozen=True)
class Merged:
    """What a merge does to the files of a table.

    :param leaving: the paths of the data files that leave.
    :param adding: the data files that are added, as the format has them.
    """

    leaving: frozenset[str]
    adding: tuple[Any, ...]


class Merging:
    """Merging new data files into a table.

    :param metadata: of the table, with the columns that it has from this commit on.
    :param name: the table, in the words of errors.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, merge: Merge, name: str) -> None:
        self._metadata = metadata
        self._io = io
        self._merge = merge
        self._name = name
        versions = ([merge.delta] if merge.delta else []) + list(merge.positions)
        self._versions = [column for column in versions if column not in merge.keys]
        self._columns = [*merge.keys, *self._versions]

    def merged(self, old: Iterable[FileScanTask], new: list[Any]) -> Merged:
        """Find which rows stay, and write files without the others.

        :param old: the table's data files that may have rows with these keys.
        :param new: the data files to add, as the format has them.
        :raises TableError: a key is null.
        """
        from pyiceberg.table import FileScanTask

        added = [FileScanTask(entry) for entry in new]
        fresh = self._gathered(added, new=True)
        if any(fresh[key].null_count for key in self._merge.keys):
            raise self._error(f"a column of the key ({', '.join(self._merge.keys)}) is null in some of the rows")
        if not fresh.num_rows:
            return Merged(frozenset(), tuple(new))
        there = list(old)
        losing = self._losing(fresh, self._touched(there, fresh))
        leaving, adding = set[str](), list[Any]()
        for number, task in enumerate(there):
            if gone := losing.get((False, number)):
                leaving.add(task.file.file_path)
                adding += self._without(task, gone)
        for number, task in enumerate(added):
            gone = losing.get((True, number))
            adding += self._without(task, gone) if gone else [task.file]
        return Merged(frozenset(leaving), tuple(adding))

    def bounds(self, new: list[Any]) -> Any:
        """Return the condition that files with keys of the new ones meet: what lies between their statistics."""
        from pyiceberg.conversions import from_bytes
        from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual

        at_least: Any = GreaterThanOrEqual  # whose types are those that pydantic knows, and not of what it takes
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
        """Return the same of those rows of the table that have one of the new rows' keys."""
        import pyarrow as pa

        keys = list(self._merge.keys)
        asked = fresh.select(keys).group_by(keys).aggregate([])
        found = (
            self._placed(task, number, new=False).join(asked, keys, join_type="left semi")
            for number, task in enumerate(tasks)
        )
        tables = [table.select(fresh.column_names) for table in found if table.num_rows]
        return pa.concat_tables(tables) if tables else self._empty()

    def _losing(self, fresh: pa.Table, there: pa.Table) -> dict[tuple[bool, int], set[int]]:
        """Return the rows that go, of each file: of every key all but the newest; of equal ones, one that is there stays."""
        import pyarrow as pa

        keys = list(self._merge.keys)
        order = [(key, "ascending") for key in keys]
        order += [(column, "descending") for column in self._versions]
        order += [(_NEW, "ascending"), (_FILE, "ascending"), (_ROW, "ascending")]
        rows = pa.concat_tables([fresh, there]).sort_by(order)  # nulls are last: a row without a version is the oldest
        rows = rows.append_column("gobblin.order", pa.array(range(rows.num_rows), pa.int64()))
        first = rows.group_by(keys).aggregate([("gobblin.order", "min")])["gobblin.order_min"]
        winners = set(first.to_pylist())
        losing: dict[tuple[bool, int], set[int]] = {}
        places = zip(*(rows[name].to_pylist() for name in (_NEW, _FILE, _ROW)), strict=True)
        for number, (new, file, row) in enumerate(places):
            if number not in winners:
                losing.setdefault((new, file), set()).add(row)
        return losing

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

    def _without(self, task: FileScanTask, rows: set[int]) -> Iterator[Any]:
        """Write a file anew without some of its rows; nothing if no row is left."""
        import pyarrow as pa
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        table = self._read(task, self._metadata.schema().as_arrow().names)
        kept = table.filter(pa.array([row not in rows for row in range(table.num_rows)], pa.bool_()))
        if kept.num_rows:
            yield from _dataframe_to_data_files(self._metadata, kept, self._io)

    def _error(self, cause: str) -> TableError:
        return TableError(operation="merge into", subject=self._name, cause=cause, hint="Nothing was changed.")


def _are_bounds_tight(field: Any, files: list[Any]) -> bool:
    """Return whether the statistics of all files bound the values of a column."""
    if not files or str(field.field_type) in _LOOSELY_BOUNDED:
        return False
    return all(field.field_id in entry.lower_bounds and field.field_id in entry.upper_bounds for entry in files)
