"""An open Delta table, read by deltalake. A commit of ours is one entry of its log, put under the next number if that is free.

deltalake's own write transaction was measured to accept neither owner nor columns in the commit that adds files, and to go on to
a later version than the one that was looked at. So the entry is written by the storage's create-once put, which the journal
relies on, too: it takes hold only directly after the version that was looked at, whatever happened since. Only a merge is
committed by deltalake, with the mark in the same commit; its conflict check then compares the mark with the handle that read it.

The mark is kept in application transactions, since they outlive all else in a Delta table and are in no other writer's way:

* `gobblin-<key>` has slot * 2**32 + 2 * (31 bits of the token's digest) + (1 if abandoned);
* `gobblin-<key>-0`, `-1`, … have the token itself, seven bytes each;
* `gobblin-<key>-at` has the number of the version that the slot was committed on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import posixpath
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain, groupby
from typing import Any, cast
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import Transaction

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import NotFoundError, SchemaConflictError, TableError, TableMovedError
from airflow_gobblin.model.table import DataFile, Mark, Owner, TableUnit
from airflow_gobblin.storage.files import FileIdentity, open_files
from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.storage.quick_s3 import credentials_of
from airflow_gobblin.tables.arrow.merging import COMPARED_ROWS, newest
from airflow_gobblin.tables.arrow.reading import read_columns
from airflow_gobblin.tables.delta import MERGED_BYTES, DeltaLakeTable
from airflow_gobblin.tables.delta.statistics import partition_value, statistics_of
from airflow_gobblin.tables.delta.types import check_added, delta_schema, has_plain_timestamps
from airflow_gobblin.tables.layout import unit_of
from airflow_gobblin.tables.port import Change, Count, Look, Merge, PartitionField, SparkSource

__all__ = ["OpenDeltaTable", "check_partition"]

log = logging.getLogger(__name__)

_OWNER = "gobblin.owner"
"""The property that records whose table it is."""
_FEATURES = frozenset(
    {"appendOnly", "timestampNtz", "invariants", "checkConstraints", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""The features of tables that we write to; a constraint in use is refused where it is found."""
_FORGETS = "delta.setTransactionRetentionDuration"
_CHECKPOINT_EVERY = 100
_TOKEN_BYTES = 7
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class _At:
    """A version of the table, as it was looked at.

    :param entry: the identity of its log entry, which no other entry of that number has; `None`: it has expired, or isn't known.
    """

    table: DeltaTable
    configuration: Mapping[str, str]
    entry: FileIdentity | None = None

    @property
    def version(self) -> int:
        return int(self.table.version())


class OpenDeltaTable:
    """A Delta table, open.

    :param record: the table, as plans name it.
    :param connections: access to the secrets of its store.
    """

    def __init__(self, record: DeltaLakeTable, connections: Connections) -> None:
        self._record = record
        self._files = open_files(record.location, connections)
        self._store = self._files.records("")
        self._options = _storage_options(record, connections)

    def look(self, owner: Owner) -> Look:
        table = self._read()
        if table is None:
            return Look(id="")
        configuration = {name: str(value) for name, value in table.metadata().configuration.items()}
        self._check_features(table, configuration)
        mark, since = self._mark(table, owner)
        return Look(
            id=str(table.metadata().id),
            owner=self._owner(configuration),
            mark=mark,
            in_history=not self._restored_since(table, since),
            form=_form(table),
            location=self._record.location,
            schema=_arrow(table),
            partition=tuple(PartitionField(column) for column in table.metadata().partition_columns),
            version=str(table.version()),
            left="" if since is None else str(since + 1),
            at=_At(table, configuration),
        )

    def create(self, owner: Owner, schema: pa.Schema, partition: tuple[PartitionField, ...]) -> None:
        schema = delta_schema(schema, self._record.name)
        check_partition(schema, partition, self._record.name)
        plain = has_plain_timestamps(schema)
        features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]} if plain else {}
        protocol = {"minReaderVersion": 3 if plain else 1, "minWriterVersion": 7 if plain else 2, **features}
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": Schema.from_arrow(schema).to_json(),
            "partitionColumns": [field.column for field in partition],
            "configuration": {_OWNER: _owner_text(owner)},
            "createdTime": _now(),
        }
        if self._read() is None:
            self._put(0, _commit_info("CREATE TABLE"), ({"protocol": protocol}, {"metaData": metadata}))

    def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        at = self._unmoved(look)
        if change.merge is not None and change.count:
            self._merge(look, at, change, owner, mark)
            return
        self._put_marked(look, at, self._actions(look, at, change, owner), owner, mark)
        self._checkpoint(at)

    def _put_marked(self, look: Look, at: _At, actions: Iterable[dict[str, Any]], owner: Owner, mark: Mark) -> None:
        """Put an entry with a mark directly after the version that was looked at."""
        info = _commit_info("WRITE", {"mode": "Append"}, owner, mark)
        if not self._put(at.version + 1, info, chain(_marking(owner, mark, at.version), actions)):
            raise self._moved("somebody else committed to it")
        self._confirm(look, at, owner, mark)

    def take_over(self, look: Look, owner: Owner, mark: Mark | None = None) -> None:
        at = self._unmoved(look)
        marks = () if mark is None else _marking(owner, mark, at.version)
        info = _commit_info("SET TBLPROPERTIES", None, owner, mark)
        if not self._put(at.version + 1, info, chain(marks, (self._metadata(at, owner=owner),))):
            raise self._moved("somebody else committed to it")
        if mark is not None:
            self._confirm(look, at, owner, mark)

    def change_columns(self, look: Look, owner: Owner, schema: pa.Schema) -> None:
        at = self._unmoved(look)
        metadata = self._metadata(at, owner=owner, added=self._added(look, schema))
        if not self._put(at.version + 1, _commit_info("ADD COLUMNS"), (metadata,)):
            raise self._moved("somebody else committed to it")

    def _added(self, look: Look, schema: pa.Schema) -> tuple[pa.Field, ...]:
        """Return the columns that are added to a table.

        :raises SchemaConflictError: as `check_added`.
        """
        assert look.schema is not None
        return check_added(look.schema, delta_schema(schema, self._record.name), self._record.name)

    def count(self, units: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Count]:
        wanted, found = set(units), Counter[tuple[str, str]]()
        rows = Counter[tuple[str, str]]()
        table = self._read()
        for path, number in () if table is None else _files_in(table):
            unit = unit_of(unquote(path))
            if unit in wanted:
                found[unit] += 1
                rows[unit] += self._rows(path, number)
        return {unit: Count(files, rows[unit]) for unit, files in found.items()}

    def total(self) -> Count:
        table = self._read()
        numbers = [] if table is None else [self._rows(path, number) for path, number in _files_in(table)]
        return Count(len(numbers), sum(numbers))

    def read(self, version: str = "") -> ds.Dataset:
        return cast("ds.Dataset", self._of_version(version).to_pyarrow_dataset())

    def in_spark(self, version: str = "") -> SparkSource:
        found = str(self._of_version(version).version())
        url = (
            f"file://{self._record.url}"
            if self._record.place is None
            else self._record.url.replace("s3://", "s3a://", 1)
        )
        return SparkSource("delta", "io.delta:delta-spark", url, found)

    def _of_version(self, version: str) -> DeltaTable:
        """Return the table as it was at a version; empty: as it is now. The errors are those of `read`."""
        table = self._read()
        if table is None:
            raise TableError(operation="read", subject=self._record.name, cause="there is no such table")
        if version:
            try:
                table.load_as_version(int(version))
            except DeltaError as error:
                raise self._expired(version, error) from error
            self._check_files(table, version)
        return table

    def _check_files(self, table: DeltaTable, version: str) -> None:
        """Check that the files of an old version are there.

        :raises NotFoundError: VACUUM removed some.
        """
        paths = sorted(unquote(path) for path, _ in _files_in(table) if "://" not in path)
        for folder, some in groupby(paths, posixpath.dirname):
            there = self._files.identities(folder or ".")
            gone = next((path for path in some if posixpath.basename(path) not in there), None)
            if gone is not None:
                raise self._expired(version, f"its file {gone!r} is gone: VACUUM removes what only old versions have")

    def _expired(self, version: str, cause: str | Exception) -> NotFoundError:
        return NotFoundError(
            operation="read",
            subject=f"version {version} of {self._record.name}",
            cause=cause,
            hint="Read a newer version; the table's retention decides how long old ones stay.",
        )

    def files(self) -> Iterator[str]:
        table = self._read()
        return (unquote(path) for path, _ in (() if table is None else _files_in(table)))

    def _read(self) -> DeltaTable | None:
        """Read the table's newest version; `None`: there is no such table.

        :raises TableError: it can't be read.
        """
        location = self._record.url if self._record.place else f"file://{quote(self._record.url)}"
        try:
            return DeltaTable(location, storage_options=self._options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as error:
            raise TableError(operation="read", subject=self._record.name, cause=error) from error

    def _check_features(self, table: DeltaTable, configuration: Mapping[str, str]) -> None:
        """Check that our commits leave out nothing that the table asks of its writers.

        :raises TableError: it asks for something that isn't done here.
        """
        protocol, schema = table.protocol(), table.schema().to_json()
        found = [*(set(protocol.writer_features or ()) - _FEATURES)]
        found += [name for name in configuration if name.startswith("delta.constraints.")]
        found += [
            name
            for name in ("delta.invariants", "delta.generationExpression", "delta.identity")
            if f'"{name}' in schema
        ]
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            found.append("delta.columnMapping.mode")
        found += [name for name in (_FORGETS,) if name in configuration]
        if found:
            raise TableError(
                operation="publish to",
                subject=self._record.name,
                cause=f"it asks its writers for what isn't done here: {', '.join(sorted(found))}",
                hint="Publish to another table, or take this off: its marks must stay, and its rows be right.",
            )

    def _owner(self, configuration: Mapping[str, str]) -> Owner | None:
        text = configuration.get(_OWNER)
        if text is None:
            return None
        try:
            journal, ingestion, urn = json.loads(text)
            return Owner(str(journal), str(ingestion), str(urn))
        except (ValueError, TypeError) as error:
            raise self._unreadable(f"its property {_OWNER!r} isn't as we write it") from error

    def _mark(self, table: DeltaTable, owner: Owner) -> tuple[Mark | None, int | None]:
        """Return an owner's mark, and the version that it was put on.

        :raises TableError: its parts don't match.
        """
        name = _app(owner)
        value = table.transaction_version(name)
        if value is None:
            return None, None
        token, number = b"", 0
        while (part := table.transaction_version(f"{name}-{number}")) is not None:
            some = part.to_bytes(_TOKEN_BYTES + 1, "big").lstrip(b"\0")[1:]
            token, number = token + some, number + 1
            if len(some) < _TOKEN_BYTES:
                break
        mark = Mark(value >> 32, token.decode(errors="replace"), done=not value & 1)
        since = table.transaction_version(f"{name}-at")
        if value != _value(mark) or since is None:
            raise self._unreadable(f"its application transactions {name!r} aren't as we write them")
        return mark, since

    def _restored_since(self, table: DeltaTable, version: int | None) -> bool:
        """Return whether the table was set back after a version; a restore whose log entry is gone isn't known."""
        if version is None or (newer := table.version() - version - 1) <= 0:
            return False
        return any(
            entry.get("operation") == "RESTORE" and entry["version"] > version + 1 for entry in table.history(newer)
        )

    def _unmoved(self, look: Look) -> _At:
        """Return what was looked at, if it is still the newest version of the same table.

        It is looked at once more because log entries expire: a late process could put its own under the number of an expired one.
        """
        at = look.at
        if not isinstance(at, _At):
            raise TableError(operation="commit to", subject=self._record.name, cause="there was no such table")
        entry, table = self._files.identity(_entry(at.version)), self._read()
        if table is None or str(table.metadata().id) != look.id:
            raise self._moved("it is gone, or was made anew")
        if table.version() != at.version:
            raise self._moved("somebody else committed to it")
        return replace(at, entry=entry)

    def _confirm(self, look: Look, at: _At, owner: Owner, mark: Mark) -> None:
        """Check that our entry is part of the table: one that was put under an expired entry's number isn't.

        If the log doesn't show it, the table is read again. Asking for a part of a mark takes a look through the whole log, so
        only one is asked for: the slot's number, a digest of its token, and whether it is done. If another process of this slot
        put that, it is done as well.

        :raises TableError: it isn't, or a later one has been put since.
        """
        if self._log_ends_after(at):
            return
        table = self._read()
        if (
            table is None
            or str(table.metadata().id) != look.id
            or table.transaction_version(_app(owner)) != _value(mark)
        ):
            raise TableError(
                operation="commit to", subject=self._record.name, cause="the mark isn't there directly after it was put"
            )

    def _log_ends_after(self, at: _At) -> bool:
        """Return whether the log ends with the entry put after a version, and that version's entry is the one that was looked at.

        If so, it doesn't have an expired entry's number: entries expire only below a checkpoint, which has their number or a
        higher one.
        """
        if at.entry is None or self._files.identity(_entry(at.version)) != at.entry:
            return False
        ours = _entry(at.version + 1)
        log_folder, end = posixpath.split(ours)
        numbered = (
            name for path in self._files.walk(log_folder) if (name := path[len(log_folder) + 1 :])[:20].isdecimal()
        )
        return all(name == end or name[:20] < end[:20] for name in numbered)

    def _actions(self, look: Look, at: _At, change: Change, owner: Owner) -> Iterator[dict[str, Any]]:
        """Yield what a change does to the table, besides the mark.

        :raises TableError: files that are to leave aren't there as they were recorded.
        """
        schema = look.schema
        assert schema is not None
        added: tuple[pa.Field, ...] = ()
        if change.schema is not None:
            added = self._added(look, change.schema)
        if added or look.owner is None:
            yield self._metadata(at, owner=owner, added=added)
        for path in self._leaving(at, change):
            yield {"remove": {"path": path, "deletionTimestamp": _now(), "dataChange": True}}
        add_of = _add_of(pa.schema([*schema, *added]), look.partition)
        for file in change.files():
            yield {"add": add_of(file)}

    def _leaving(self, at: _At, change: Change) -> list[str]:
        """Return the paths of what is to leave.

        :raises TableError: it isn't there as it was recorded, or nothing may leave this table.
        """
        if not (change.removes or change.removes_all):
            return []
        if at.configuration.get("delta.appendOnly", "false").lower() == "true":
            raise TableError(
                operation="replace in",
                subject=self._record.name,
                cause="it has the property delta.appendOnly",
                hint="Set it to false, or publish to another table.",
            )
        present = list(_files_in(at.table))
        if change.removes_all:
            return [path for path, _ in present]
        wanted = {(unit.token, unit.unit) for unit in change.removes}
        leaving = [(path, number) for path, number in present if unit_of(unquote(path)) in wanted]
        self._check_leaving(leaving, change.removes)
        return [path for path, _ in leaving]

    def _check_leaving(self, leaving: list[tuple[str, int | None]], removes: tuple[TableUnit, ...]) -> None:
        files: Counter[tuple[str, str] | None] = Counter(unit_of(unquote(path)) for path, _ in leaving)
        for unit in removes:
            found = files[unit.token, unit.unit]
            if found != unit.files:
                raise TableError(
                    operation="replace in",
                    subject=self._record.name,
                    cause=f"of unit {unit.unit!r} of {unit.token} it has {found} files, and {unit.files} were published: "
                    "somebody compacted or deleted them",
                    hint="Compacted units can't be distinguished any more: plan the whole table anew.",
                )

    def _metadata(self, at: _At, *, owner: Owner, added: tuple[pa.Field, ...] = ()) -> dict[str, Any]:
        """Return the action that gives the table its owner and added columns; the rest stays."""
        metadata, schema = at.table.metadata(), json.loads(at.table.schema().to_json())
        if added:
            schema["fields"] += json.loads(Schema.from_arrow(pa.schema(added)).to_json())["fields"]
        kept: dict[str, str | None] = {"name": metadata.name, "description": metadata.description}
        return {
            "metaData": {
                "id": str(metadata.id),
                **{name: value for name, value in kept.items() if value is not None},
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": metadata.partition_columns,
                "configuration": {**at.configuration, _OWNER: _owner_text(owner)},
                "createdTime": metadata.created_time,
            }
        }

    def _merge(self, look: Look, at: _At, change: Change, owner: Owner, mark: Mark) -> None:
        """Merge by deltalake, with the mark in its commit."""
        merge = change.merge
        assert merge is not None
        if change.removes or change.removes_all:
            raise TableError(
                operation="merge into", subject=self._record.name, cause="a change that merges replaces nothing else"
            )
        if (
            look.owner != owner
        ):  # deltalake can't set it in the commit of a merge: it is claimed first, which is harmless
            self.take_over(look, owner)
            raise self._moved("it was made its owner's first")
        if not at.table.file_uris() and self._has_each_key_once(change, merge):
            self._put_marked(look, at, self._actions(look, at, change, owner), owner, mark)
            return
        if change.schema is not None and self._added(look, change.schema):
            raise TableError(
                operation="merge into",
                subject=self._record.name,
                cause="deltalake gives a table another id when it merges and adds columns at once",
                hint="Add the columns before, by `change_columns`.",
            )
        rows = self._newest(change, merge)
        properties = CommitProperties(
            max_commit_retries=0,
            app_transactions=[Transaction(name, value) for name, value in _transactions(owner, mark, at.version)],
            custom_metadata={"gobblin": _shown_mark(owner, mark)},
        )
        # On a handle of its own: the one that was looked at isn't changed by it.
        table = DeltaTable(at.table.table_uri, version=at.version, storage_options=self._options)
        same = " AND ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in merge.keys)
        merger = table.merge(
            rows,
            predicate=same,
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        )
        try:
            merger.when_matched_update_all(predicate=_is_newer(merge)).when_not_matched_insert_all().execute()
        except CommitFailedError as error:
            now = self._read()
            if now is not None and str(now.metadata().id) == look.id and self._mark(now, owner)[0] == mark:
                return  # the answer was lost, and its own client took its commit for somebody else's
            if now is not None and now.version() > at.version:
                raise self._moved("somebody else committed to it") from error
            raise
        if table.version() == at.version:  # deltalake commits nothing if no row is newer
            self._put_marked(look, at, (), owner, mark)
        else:
            self._confirm(look, at, owner, mark)

    def _has_each_key_once(self, change: Change, merge: Merge) -> bool:
        """Return whether merging the staged rows into a table without rows would change nothing about them: then files are added
        as they are.

        :raises TableError: as `newest`; or there are too many to compare on a worker.
        """
        if change.rows > COMPARED_ROWS:
            raise TableError(
                operation="merge into",
                subject=self._record.name,
                cause=f"there are {change.rows:,} rows, and the keys of at most {COMPARED_ROWS:,} are compared on a worker",
                hint="Load it without `merge` first, or in parts.",
            )
        rows = read_columns(self._files, change.files(), self._record.name, merge.columns)
        return bool(newest(rows, merge, self._record.name).num_rows == rows.num_rows)

    def _newest(self, change: Change, merge: Merge) -> pa.Table:
        """Read the newest version of each key from the staged rows.

        :raises TableError: there are too many to merge on a worker; or as `newest`.
        """
        named = list(change.files())
        size = sum(file.size for file in named)
        if size > MERGED_BYTES:
            raise TableError(
                operation="merge into",
                subject=self._record.name,
                cause=f"the staged files have {size} bytes, and at most {MERGED_BYTES} are merged on a worker",
                hint="Abandon the slot, and let the next one have less: `limits=Limits(bytes=…)`, or runs more often.",
            )
        return newest(read_columns(self._files, named, self._record.name), merge, self._record.name)

    def _rows(self, path: str, number: int | None) -> int:
        """Return the number of rows of a file, from its own footer if the log doesn't have it."""
        if number is not None:
            return number
        try:
            return int(pq.read_metadata(BytesIO(self._files.read(unquote(path)))).num_rows)
        except OSError as error:
            raise TableError(operation="count", subject=self._record.name, cause=error) from error

    def _put(self, version: int, info: dict[str, Any], actions: Iterable[dict[str, Any]]) -> bool:
        """Put a log entry.

        :return: whether it was put: no entry had this number.
        """
        entry = BytesIO()
        for action in ({"commitInfo": info}, *actions):
            entry.write(_JSON.encode(action).encode() + b"\n")
        key, data = _entry(version), entry.getvalue()
        # A store may send it again after a lost answer, and then get the answer that it exists.
        return self._store.put_if_absent(key, data) or self._store.get(key) == data

    def _checkpoint(self, at: _At) -> None:
        """Make a checkpoint if one is due: without it, readers read every entry. It changes nothing, and may fail."""
        every = int(at.configuration.get("delta.checkpointInterval", _CHECKPOINT_EVERY))
        if every <= 0 or (at.version + 1) % every:
            return
        try:
            table = self._read()
            if table is not None:
                table.create_checkpoint()
                table.cleanup_metadata()
        except Exception as error:  # the commit is done
            log.warning("%s: no checkpoint of version %d: %s", self._record.name, at.version + 1, error)

    def _moved(self, cause: str) -> TableMovedError:
        return TableMovedError(operation="commit to", subject=self._record.name, cause=cause)

    def _unreadable(self, cause: str) -> TableError:
        return TableError(operation="read", subject=self._record.name, cause=cause)


def check_partition(schema: pa.Schema, partition: tuple[PartitionField, ...], name: str) -> None:
    """Check that Delta can partition by these fields.

    :raises SchemaConflictError: it can't.
    """
    types = {column.name: column.type for column in schema}
    for field in partition:
        kind = types.get(field.column)
        if kind is None:
            cause = "there is no such column"
        elif field.transform != "identity":
            cause = f"Delta has no partition by {field}, only by columns"
        elif pa.types.is_nested(kind) or pa.types.is_binary(kind):
            cause = f"Delta can't be partitioned by a column of type {kind}"
        elif pa.types.is_decimal(kind):
            cause = "deltalake misreads decimals in a partition: it takes -0.04 for 0.-4"
        elif len(partition) == len(schema):
            cause = "no column is left that isn't one of the partition's"
        else:
            continue
        raise SchemaConflictError(
            operation="publish to",
            subject=f"column {field.column!r} of {name}",
            cause=cause,
            hint="Partition it otherwise.",
        )


def _is_newer(merge: Merge) -> str | None:
    """Return the condition in SQL that a row `s` is newer than the row `t` of its key; null is the oldest."""
    if not merge.versions:
        return None
    ways, equal = [], ""
    for column in merge.versions:
        old, new = f"t.{_quoted(column)}", f"s.{_quoted(column)}"
        ways.append(f"({equal}({new} > {old} OR ({old} IS NULL AND {new} IS NOT NULL)))")
        equal += f"({new} = {old} OR ({old} IS NULL AND {new} IS NULL)) AND "
    return " OR ".join(ways)


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _add_of(schema: pa.Schema, partition: tuple[PartitionField, ...]) -> Callable[[DataFile], dict[str, Any]]:
    """Return the function that gives the action that adds a file with these columns."""
    kinds, stats, now = [(f.column, schema.field(f.column).type) for f in partition], statistics_of(schema), _now()

    def of(file: DataFile) -> dict[str, Any]:
        values = zip(kinds, file.partition, strict=True)
        return {
            "path": quote(file.path, safe="/=-_.~"),
            "partitionValues": {column: partition_value(value, kind) for (column, kind), value in values},
            "size": file.size,
            "modificationTime": now,
            "dataChange": True,
            "stats": _JSON.encode(stats(file)),
        }

    return of


def _files_in(table: DeltaTable) -> Iterator[tuple[str, int | None]]:
    """Yield each file of a version: its path as the log has it, and how many rows it has, if the log records that."""
    found = pa.table(cast("Any", table.get_add_actions(flatten=True)))
    if "num_records" not in found.column_names:
        found = found.append_column("num_records", pa.nulls(len(found), pa.int64()))
    for batch in found.select(["path", "num_records"]).to_batches():
        yield from zip(batch["path"].to_pylist(), batch["num_records"].to_pylist(), strict=True)


def _entry(version: int) -> str:
    """Return the path of a version's log entry."""
    return f"_delta_log/{version:020}.json"


def _form(table: DeltaTable) -> str:
    schema = json.dumps(json.loads(table.schema().to_json()), sort_keys=True)
    return hashlib.sha256(json.dumps([schema, table.metadata().partition_columns]).encode()).hexdigest()[:32]


def _arrow(table: DeltaTable) -> pa.Schema:
    return pa.schema(cast("Any", table.schema().to_arrow()))


def _app(owner: Owner) -> str:
    return f"gobblin-{owner.key}"


def _value(mark: Mark) -> int:
    digest = int.from_bytes(hashlib.sha256(mark.token.encode()).digest()[:4], "big") >> 1
    return (mark.slot << 32) + 2 * digest + (not mark.done)


def _transactions(owner: Owner, mark: Mark, version: int) -> Iterator[tuple[str, int]]:
    """Yield the application transactions that make up a mark.

    :param version: the version that it is put on.
    """
    name, token = _app(owner), mark.token.encode()
    yield name, _value(mark)
    for number, start in enumerate(range(0, len(token) + 1, _TOKEN_BYTES)):
        yield f"{name}-{number}", int.from_bytes(b"\1" + token[start : start + _TOKEN_BYTES], "big")
    yield f"{name}-at", version


def _marking(owner: Owner, mark: Mark, version: int) -> Iterator[dict[str, Any]]:
    """Yield the actions that put a mark. The parameters are those of `_transactions`."""
    return ({"txn": {"appId": name, "version": value}} for name, value in _transactions(owner, mark, version))


def _owner_text(owner: Owner) -> str:
    return json.dumps([owner.journal, owner.ingestion, owner.urn])


def _shown_mark(owner: Owner, mark: Mark) -> dict[str, Any]:
    """Return what the table's history shows people about a commit."""
    return {"ingestion": owner.ingestion, "urn": owner.urn, "slot": mark.slot, "token": mark.token, "done": mark.done}


def _commit_info(
    operation: str, parameters: Mapping[str, Any] | None = None, owner: Owner | None = None, mark: Mark | None = None
) -> dict[str, Any]:
    shown = {"gobblin": _shown_mark(owner, mark)} if owner is not None and mark is not None else {}
    # The id distinguishes this call's entry from another call's with the same content.
    info = {"timestamp": _now(), "operation": operation, "operationParameters": dict(parameters or {})}
    return {**info, "engineInfo": "airflow-gobblin", "txnId": str(uuid.uuid4()), **shown}


def _now() -> int:
    return int(time.time() * 1000)


def _storage_options(record: DeltaLakeTable, connections: Connections) -> dict[str, str] | None:
    """Return how deltalake reaches the table's store, with the same credentials as everything else of ours."""
    place = record.place
    if place is None:
        return None
    filesystem = open_filesystem(place, connections)
    client = filesystem.connect()
    found = credentials_of(filesystem)()
    endpoint = str(client.meta.endpoint_url)
    options = {
        "aws_access_key_id": found["access_key_id"],
        "aws_secret_access_key": found["secret_access_key"],
        "aws_session_token": found.get("token"),
        "aws_region": client.meta.region_name,
        "aws_endpoint": endpoint,
        "aws_virtual_hosted_style_request": "false",
        "aws_conditional_put": "etag",
        "allow_http": str(endpoint.startswith("http:")).lower(),
    }
    return {name: str(value) for name, value in options.items() if value}
