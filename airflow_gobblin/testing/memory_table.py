"""A table in memory, the model of all others: real ones are checked against it by the same suite.

It is as strict as the port allows: any commit since the look, whoever made it, is a `TableMovedError`. Marks are properties of
the table, as in Iceberg: setting the table back to an earlier version leaves them.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import NotFoundError, TableError, TableMovedError
from airflow_gobblin.model.table import DataFile, Mark, Owner
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.wire import digest, record
from airflow_gobblin.model.work import Dataset, StagedFile
from airflow_gobblin.rows.sinks.tables import SchemaRules, SinkOfTables, named, rules_of
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.port import Change, Count, Look, Merge, PartitionField, SchemaRule

__all__ = ["MemoryTable", "MemoryTableSink"]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Entry:
    """A file of the table.

    :param token: the token of the slot that published it; empty if somebody else did, or rewrote it. So is `unit`.
    :param rows: its rows, as long as it isn't read at its place.
    :param path: where it is read; empty: its rows are kept.
    """

    token: str
    unit: str
    rows: tuple[Row, ...]
    path: str = ""


@dataclass(frozen=True)
class _Version:
    """A version of the table: its entries, and the versions that it was made from."""

    entries: tuple[_Entry, ...] = ()
    ancestors: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _State:
    """The whole state of the table.

    :param head: the version that readers get.
    :param newest: the number of the newest version ever made.
    :param marks: the mark of each owner, by its key, and the version that it was made in.
    """

    id: str
    owner: Owner | None
    schema: pa.Schema
    partition: tuple[PartitionField, ...]
    head: int = 0
    newest: int = 0
    versions: Mapping[int, _Version] = field(default_factory=lambda: {0: _Version()})
    marks: Mapping[str, tuple[Mark, int]] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """See `Look.form`."""
        return digest(f"{self.schema}\n{[*map(str, self.partition)]}".encode())

    def with_entries(self, entries: Iterable[_Entry]) -> _State:
        """Return it with a new version."""
        number = self.newest + 1
        ancestors = self.versions[self.head].ancestors | {self.head}
        versions = {**self.versions, number: _Version(tuple(entries), ancestors)}
        return replace(self, head=number, newest=number, versions=versions)


_tables: dict[str, _State] = {}
"""The tables of this process, by name."""
_lock = RLock()


@record("memory_table")
@dataclass(frozen=True)
class MemoryTable:
    """A table in the memory of this process, whose data files are Parquet.

    :param table: its name in this process.
    :param location: where its data files stay; empty: its rows are taken from the workspace at the commit.
    """

    table: str
    location: str = ""

    @property
    def name(self) -> str:
        """See `TableRecord`."""
        return f"table {self.table!r} in memory"

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections needed to open it: there are none."""
        return ()

    def open(self, connections: Connections, files: Files) -> _OpenMemoryTable:
        """Open it."""
        return _OpenMemoryTable(self, open_files(self.location) if self.location else files)

    # Acts of others on it

    def make(self, schema: pa.Schema) -> None:
        """Make it, empty and nobody's."""
        with _lock:
            _tables[self.table] = _State(uuid.uuid4().hex, None, schema, ())

    def rows(self) -> list[Row]:
        """Return its rows, as a reader gets them."""
        with _lock:
            state = _tables[self.table]
            entries = state.versions[state.head].entries
        return [row for entry in entries for row in self._rows_of(entry)]

    def _rows_of(self, entry: _Entry) -> tuple[Row, ...]:
        return _rows(open_files(self.location), entry.path) if entry.path else entry.rows

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows, as somebody else would."""
        self._change(lambda entries: (*entries, _Entry("", "", tuple(rows))))

    def delete(self, doomed: Callable[[Row], bool]) -> None:
        """Delete rows, as somebody else would."""
        self._change(
            lambda entries: (
                replace(entry, rows=tuple(row for row in self._rows_of(entry) if not doomed(row)), path="")
                for entry in entries
            )
        )

    def compact(self) -> None:
        """Rewrite all rows into one file, as somebody else would."""
        self._change(lambda entries: (_Entry("", "", tuple(row for one in entries for row in self._rows_of(one))),))

    def expire(self) -> None:
        """Forget all versions but the one that readers get."""
        with _lock:
            state = _tables[self.table]
            _tables[self.table] = replace(state, versions={state.head: state.versions[state.head]})

    def roll_back(self) -> None:
        """Set it back to the version before the one that readers get."""
        with _lock:
            state = _tables[self.table]
            _tables[self.table] = replace(state, head=max(state.versions[state.head].ancestors & {*state.versions}))

    def drop(self) -> None:
        """Drop it."""
        with _lock:
            _tables.pop(self.table, None)

    def add_column(self, name: str) -> None:
        """Add a nullable column of text."""
        with _lock:
            state = _tables[self.table]
            _tables[self.table] = replace(state, schema=state.schema.append(pa.field(name, pa.string())))

    def copy(self) -> Callable[[], None]:
        """Return a function that restores it as it is now, its marks too."""
        state = _tables[self.table]

        def restore() -> None:
            with _lock:
                _tables[self.table] = state

        return restore

    def _change(self, change: Callable[[tuple[_Entry, ...]], Iterable[_Entry]]) -> None:
        with _lock:
            state = _tables[self.table]
            _tables[self.table] = state.with_entries(change(state.versions[state.head].entries))


class _OpenMemoryTable:
    """A table in memory, open.

    :param files: the file system of its data files.
    """

    def __init__(self, table: MemoryTable, files: Files) -> None:
        self._table = table
        self._files = files

    def look(self, owner: Owner) -> Look:
        """See `OpenTable`."""
        with _lock:
            state = _tables.get(self._table.table)
        if state is None:
            return Look("")
        mark, marked = state.marks.get(owner.key, (None, 0))
        return Look(
            id=state.id,
            owner=state.owner,
            mark=mark,
            in_history=mark is None or marked in state.versions[state.head].ancestors | {state.head},
            form=state.form,
            location=self._table.location,
            schema=state.schema,
            partition=state.partition,
            version=str(state.head),
            left="" if mark is None else str(marked),
            at=state,
        )

    def create(self, owner: Owner, schema: pa.Schema, partition: tuple[PartitionField, ...]) -> None:
        """See `OpenTable`."""
        with _lock:
            _tables.setdefault(self._table.table, _State(uuid.uuid4().hex, owner, schema, partition))

    def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        """See `OpenTable`."""
        state = look.at
        assert isinstance(state, _State)
        entries = [] if change.removes_all else [*state.versions[state.head].entries]
        for unit in change.removes:
            found = [entry for entry in entries if (entry.token, entry.unit) == (unit.token, unit.unit)]
            if (len(found), sum(len(self._table._rows_of(entry)) for entry in found)) != (unit.files, unit.rows):
                raise TableError(
                    operation="commit to",
                    subject=self._table.name,
                    cause=f"unit {unit.unit!r} isn't in it as it was published: somebody changed its files",
                )
            entries = [entry for entry in entries if entry not in found]
        added = [self._entry(file, mark.token) for file in change.files()]
        entries = [*entries, *added] if change.merge is None else _merged(entries, added, change.merge)
        new = state.with_entries(entries)
        marks = {**state.marks, owner.key: (mark, new.head)}
        whose = state.owner if change.empty and state.owner is not None else owner
        new = replace(new, marks=marks, owner=whose, schema=state.schema if change.schema is None else change.schema)
        with _lock:
            if _tables.get(self._table.table) is not state:
                raise TableMovedError(
                    operation="commit to", subject=self._table.name, cause="it isn't as it was looked at any more"
                )
            _tables[self._table.table] = new

    def take_over(self, look: Look, owner: Owner, mark: Mark | None = None) -> None:
        """See `OpenTable`."""
        state = look.at
        assert isinstance(state, _State)
        new = replace(state.with_entries(state.versions[state.head].entries), owner=owner)
        if mark is not None:
            new = replace(new, marks={**state.marks, owner.key: (mark, new.head)})
        with _lock:
            if _tables.get(self._table.table) is not state:
                raise TableMovedError(
                    operation="take over", subject=self._table.name, cause="it isn't as it was looked at any more"
                )
            _tables[self._table.table] = new

    def count(self, units: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Count]:
        """See `OpenTable`."""
        counts: dict[tuple[str, str], Count] = {}
        wanted = {*units}
        for entry in self._entries():
            name = entry.token, entry.unit
            if name in wanted:
                so_far = counts.get(name, Count())
                counts[name] = Count(so_far.files + 1, so_far.rows + len(self._table._rows_of(entry)))
        return counts

    def total(self) -> Count:
        """See `OpenTable`."""
        entries = self._entries()
        return Count(len(entries), sum(len(self._table._rows_of(entry)) for entry in entries))

    def read(self, version: str = "") -> ds.Dataset:
        """See `OpenTable`."""
        with _lock:
            state = _tables[self._table.table]
        found = state.versions.get(int(version) if version else state.head)
        if found is None:
            raise NotFoundError(
                operation="read", subject=f"version {version} of {self._table.name}", cause="it is forgotten"
            )
        rows = [row for entry in found.entries for row in self._table._rows_of(entry)]
        return ds.dataset(pa.Table.from_pylist([*map(dict, rows)], state.schema))

    def files(self) -> Iterator[str]:
        """See `OpenTable`."""
        return (entry.path for entry in self._entries() if entry.path)

    def _entries(self) -> tuple[_Entry, ...]:
        with _lock:
            state = _tables[self._table.table]
        return state.versions[state.head].entries

    def _entry(self, file: DataFile, token: str) -> _Entry:
        rows = _rows(self._files, file.path)
        return _Entry(token, file.unit, () if self._table.location else rows, file.path if self._table.location else "")


def _rows(files: Files, path: str) -> tuple[Row, ...]:
    return tuple(pq.ParquetFile(io.BytesIO(files.read(path))).read().to_pylist())


def _merged(entries: list[_Entry], added: list[_Entry], merge: Merge) -> list[_Entry]:
    """Return the entries after a merge: of each key, the newest version stays, in the entry that it is in."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in merge.keys)

    def version(row: Row) -> tuple[Any, ...]:
        delta = () if merge.delta is None else ((row[merge.delta] is not None, row[merge.delta]),)
        return (*delta, *(row[name] for name in merge.positions))

    newest: dict[tuple[Any, ...], Row] = {}
    for row in (row for entry in (*entries, *added) for row in entry.rows):
        old = newest.get(key(row))
        if old is None or version(row) > version(old):
            newest[key(row)] = row
    kept = {id(row) for row in newest.values()}
    return [replace(entry, rows=tuple(row for row in entry.rows if id(row) in kept)) for entry in (*entries, *added)]


@record("memory_table_sink")
@dataclass(frozen=True)
class MemoryTableSink(SinkOfTables):
    """The sink of a table in memory, whose data files are Parquet.

    :param workspace: the target root of the ingestion.
    :param name: the name of each dataset's table: `{dataset}` represents its key.
    :param location: where data files stay, see `MemoryTable`; `{dataset}` as in the name.
    :param merge: whether rows are merged, and by which columns; `True`: by those that the source knows.
    :param schema_rule: what may change in a table's columns.
    :param merged_bytes: see `TableSink`.
    """

    workspace: str
    name: str
    location: str = ""
    merge: Merge | bool = False
    schema_rule: SchemaRules = SchemaRule.REFUSE
    merged_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema_rule", rules_of(self.schema_rule))

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections needed to open its tables: there are none."""
        return ()

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the columns as they are: it holds all of them."""
        return planned

    def table_of(self, dataset: Dataset) -> MemoryTable:
        """Return its table."""
        return MemoryTable(named(self.name, dataset.urn), named(self.location, dataset.urn))

    def partition_of(self, dataset: Dataset) -> tuple[PartitionField, ...]:
        """Return none."""
        return ()

    def widens(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return that it does: rows have no types here."""
        return True

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> _MemoryTableWriter:
        """Start a unit's data file."""
        return _MemoryTableWriter(schema, files, staged, published)


class _MemoryTableWriter:
    """The one data file of a unit. See `TableSink` for the parameters."""

    properties: Mapping[str, Json] = {}

    def __init__(self, schema: pa.Schema, files: Files, folder: str, unit: str) -> None:
        self._schema, self._files, self._folder, self._unit = schema, files, folder, unit
        self._batches: list[pa.RecordBatch] = []
        self.data_files: tuple[DataFile, ...] = ()

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep a batch."""
        self._batches.append(batch)

    def close(self) -> tuple[StagedFile, ...]:
        """Write the file."""
        table, data = pa.Table.from_batches(self._batches, self._schema), io.BytesIO()
        if not table.num_rows:
            return ()
        pq.write_table(table, data)
        path = f"{self._folder}/0.parquet"
        out = self._files.stage(path, path)
        out.write(data.getvalue())
        staged = out.finish(table.num_rows)
        self.data_files = (DataFile(path, staged.size, table.num_rows, self._unit),)
        return (staged,)

    def abort(self) -> None:
        """Forget it."""
        self._batches.clear()
