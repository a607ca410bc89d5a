"""Iceberg tables through pyiceberg, with its catalogs and files but a commit of our own, since its `Transaction` repeats commits.

A commit is one call of `Catalog.commit_table`. It requires the table's uuid, the head of `main`, the schema and the partition
that were looked at. Marks are properties of the table, set by the same call; each is also in the summary of its snapshot.
Sources: the format's specification, https://iceberg.apache.org/spec/ (snapshots, manifests, single-value serialization).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import (
    ConfigurationError,
    GobblinError,
    MissingExtraError,
    NotFoundError,
    TableError,
    TableMovedError,
)
from airflow_gobblin.model.table import DataFile, Mark, Owner
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.parsed_connection import ParsedConnection
from airflow_gobblin.tables.iceberg_merge import Merged
from airflow_gobblin.tables.layout import unit_of
from airflow_gobblin.tables.port import Change, Count, Look, PartitionField, SparkSource

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

MAIN = "main"
OWNER = "gobblin.owner"
"""The property that records whose the table is."""
MERGED_BYTES = 256 << 20
"""The most bytes of staged files that one commit merges, on a worker."""
FILES_PER_MANIFEST = 5_000
"""The limit that bounds the memory of a commit: a manifest's entries are held while it is written or read."""
_MARK = "gobblin.mark."
_NAME_MAPPING = "schema.name-mapping.default"
_TRANSFORM = re.compile(r"(?P<name>\w+)(?:\[(?P<width>\d+)\])?")
_SQL_TYPES = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
_HIVE_TYPES = ("hive_metastore", "hive_cli", "hiveserver2")
_ONLY = "Use a REST catalog, or pyiceberg's SQL catalog."
_REACH = "See that the catalog and the store of its tables can be reached, and that their connections may do this."


@record("iceberg_table")
@dataclass(frozen=True)
class IcebergTable:
    """A table of an Iceberg catalog.

    :param catalog: the catalog's connection: of type `iceberg` for a REST catalog (host, port, login and password as the client's
        id and secret), of type `postgres` or `sqlite` for pyiceberg's SQL catalog there. Its extra may have `warehouse`,
        `catalog_name`, and further pyiceberg properties.
    :param table: its name with its namespace: `raw.flights`.
    :param storage: the connection for its files, where the environment doesn't have the credentials.
    """

    catalog: str
    table: str
    storage: str | None = None

    @property
    def name(self) -> str:
        """The table as errors name it."""
        return f"table {self.table!r} of catalog {self.catalog!r}"

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections needed to open it."""
        return (self.catalog,) if self.storage is None else (self.catalog, self.storage)

    def open(self, connections: Connections, files: Files) -> OpenIcebergTable:
        """Open the table.

        :raises MissingExtraError: pyiceberg isn't installed.
        :raises ConfigurationError: the connection doesn't lead to a catalog that can be used.
        :raises TableError: the catalog can't be reached.
        """
        if "." not in self.table:
            raise ConfigurationError(
                operation="use", subject=self.name, cause="it has no namespace", hint="Write it as 'namespace.table'."
            )
        properties = _catalog_properties(self.catalog, connections.uri(self.catalog))
        if self.storage is not None:
            properties |= _storage_properties(ParsedConnection(self.storage, connections.uri(self.storage)))
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise MissingExtraError(
                operation="open",
                subject=self.name,
                cause=error,
                hint="Install the extra: pip install 'airflow-gobblin[iceberg]'.",
            ) from error
        with _as_table_error("open", self.name):
            catalog = load_catalog(properties.pop("catalog_name", self.catalog), **properties)
            _keep_no_connections(catalog)
        return OpenIcebergTable(self, catalog)


def _keep_no_connections(catalog: Catalog) -> None:
    """Let a SQL catalog close its connection to the database after each use, since an open table is never closed."""
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    if isinstance(catalog, SqlCatalog):
        catalog.engine.dispose()
        catalog.engine = create_engine(catalog.engine.url, poolclass=NullPool)


def _catalog_properties(conn_id: str, uri: str) -> dict[str, str]:
    """Return pyiceberg's properties for a catalog.

    :raises ConfigurationError: the connection yields none.
    """
    connection, path = ParsedConnection(conn_id, uri), unquote(urlsplit(uri).path)
    extra = {name: value if isinstance(value, str) else json.dumps(value) for name, value in connection.extra.items()}
    _check_kind(connection, extra)
    if connection.type == "iceberg":
        scheme = extra.pop("scheme", "http" if connection.host in ("localhost", "127.0.0.1") else "https")
        port = f":{connection.port}" if connection.port else ""
        given = {"type": "rest", "uri": extra.pop("uri", f"{scheme}://{connection.host}{port}{path}")}
        if connection.login:
            given["credential"] = f"{connection.login}:{connection.password}"
        return extra | given
    from sqlalchemy import URL

    if connection.type == "sqlite":  # an absolute path, in any of the spellings that Airflow and SQLAlchemy have
        url = URL.create("sqlite", database="/" + unquote(urlsplit(uri).netloc + path).strip("/"))
    else:
        url = URL.create(
            _SQL_TYPES[connection.type],
            connection.login or None,
            connection.password or None,
            connection.host or None,
            connection.port,
            path.strip("/"),
        )
    return extra | {"type": "sql", "uri": url.render_as_string(hide_password=False)}


def _check_kind(connection: ParsedConnection, extra: Mapping[str, str]) -> None:
    """Check that a connection is to a catalog that shuts late commits out.

    :raises ConfigurationError: it isn't, or that was never shown.
    """
    kind = "rest" if connection.type == "iceberg" else "sql" if connection.type in _SQL_TYPES else connection.type
    asked = extra.get("py-catalog-impl") or extra.get("type", kind)
    if connection.type in _HIVE_TYPES or asked == "hive":
        raise connection.unfit(
            "a table is changed there under a lock that can be lost, with no word of what it was before: it shuts nobody out",
            _ONLY,
        )
    if kind not in ("rest", "sql") or asked != kind:
        raise connection.unfit(
            f"it is for a catalog of type {asked!r}, of which nobody has shown that it refuses a late commit", _ONLY
        )


def _storage_properties(connection: ParsedConnection) -> dict[str, str]:
    """Return pyiceberg's properties for the files of tables.

    :raises ConfigurationError: the connection yields none.
    """
    connection.expect("aws", "s3")
    extra = connection.extra
    given = {
        # Arrow's own client sends multipart uploads of small files, which some servers sometimes can't parse.
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "s3.endpoint": extra.get("endpoint_url"),
        "s3.region": extra.get("region_name"),
        "s3.access-key-id": connection.login or extra.get("aws_access_key_id"),
        "s3.secret-access-key": connection.password or extra.get("aws_secret_access_key"),
        "s3.session-token": extra.get("aws_session_token"),
    }
    return {name: value for name, value in given.items() if value}


@contextmanager
def _as_table_error(operation: str, subject: str) -> Iterator[None]:
    """Raise whatever the library raises as a `TableError`."""
    try:
        yield
    except GobblinError:
        raise
    except Exception as error:  # of a catalog, a driver, a file system
        raise TableError(operation=operation, subject=subject, cause=error, hint=_REACH) from error


class OpenIcebergTable:
    """An Iceberg table, open."""

    def __init__(self, table: IcebergTable, catalog: Catalog) -> None:
        self._table = table
        self._catalog = catalog

    def look(self, owner: Owner) -> Look:
        from airflow_gobblin.tables.arrow.iceberg_types import held

        table = self._load()
        if table is None:
            return Look(id="")
        metadata = table.metadata
        if metadata.format_version != 2:
            raise self._error(
                "look at",
                f"it has version {metadata.format_version} of the format",
                "Only version 2 can be written here; that of a table of version 1 can be raised.",
            )
        found = _found_mark(metadata.properties, owner)
        head = metadata.snapshot_by_name(MAIN)
        return Look(
            id=str(metadata.table_uuid),
            owner=_found_owner(metadata.properties),
            mark=None if found is None else found.mark,
            in_history=found is None or _in_history(found, metadata),
            form=f"{metadata.current_schema_id}/{metadata.default_spec_id}",
            location=self._location(metadata.location),
            schema=held(metadata.schema().as_arrow(), self._table.name),
            partition=_partition_of(metadata.spec(), metadata.schema()),
            version="" if head is None else str(head.snapshot_id),
            left="" if found is None else str(found.snapshot),
            at=table,
        )

    def create(self, owner: Owner, schema: pa.Schema, partition: tuple[PartitionField, ...]) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
        from pyiceberg.schema import assign_fresh_schema_ids

        from airflow_gobblin.tables.arrow.iceberg_types import held

        with _as_table_error("create", self._table.name):
            columns = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(held(schema, self._table.name)))
            spec = _spec(partition, columns)
            namespace = self._table.table.rpartition(".")[0]
            self._catalog.create_namespace_if_not_exists(namespace)
            try:
                self._catalog.create_table(
                    self._table.table,
                    columns,
                    partition_spec=spec,
                    properties={"format-version": "2", OWNER: _owner_text(owner)},
                )
            except TableAlreadyExistsError:
                return

    def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        if change.merge is not None and change.removes:
            raise self._error("merge into", "units can't be replaced there: merged rows have lost their unit")
        if change.merge is not None:
            from airflow_gobblin.tables.arrow.merging import COMPARED_ROWS

            if change.rows > COMPARED_ROWS:
                raise self._error(
                    "merge into",
                    f"{change.rows:,} rows are more than the {COMPARED_ROWS:,} that one commit can merge on a worker",
                    "Let a run have less, or add rows and let readers merge them.",
                )
        whose = look.owner if change.empty and look.owner is not None else owner
        with _as_table_error("commit to", self._table.name):
            self._commit(look, change, owner, mark, whose)

    def take_over(self, look: Look, owner: Owner, mark: Mark | None = None) -> None:
        with _as_table_error("take over", self._table.name):
            self._commit(look, Change(), owner, mark, owner)

    def count(self, units: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Count]:
        table, asked = self._existing("count"), set(units)
        files: Counter[tuple[str, str]] = Counter()
        rows: Counter[tuple[str, str]] = Counter()
        if asked:
            for manifest in _manifests(table):
                for entry in _entries(table, manifest):
                    unit = _unit_of(entry.data_file.file_path, table.metadata.location)
                    if unit is not None and unit in asked:
                        files[unit] += 1
                        rows[unit] += entry.data_file.record_count
        return {unit: Count(files[unit], rows[unit]) for unit in files}

    def total(self) -> Count:
        table = self._existing("count")
        files = rows = 0
        whole = True
        for manifest in _manifests(table, deletes=True):
            if manifest.content == 0:
                files += (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
                rows += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
            elif manifest.has_added_files() or manifest.has_existing_files():
                whole = False
        with _as_table_error("count", self._table.name):  # only reading shows what others' delete files leave
            return Count(files, rows if whole else table.scan().count())

    def read(self, version: str = "") -> ds.Dataset:
        import pyarrow.dataset as ds

        table = self._of_version(version)
        with _as_table_error("read", self._table.name):
            return ds.dataset(table.scan(snapshot_id=int(version) if version else None).to_arrow())

    def in_spark(self, version: str = "") -> SparkSource:
        table = self._of_version(version)
        return SparkSource("iceberg", "org.apache.iceberg:iceberg-spark-runtime", table.metadata_location, version)

    def _of_version(self, version: str) -> Table:
        """Return the table, if it has a version; empty: any. The errors are those of `read`."""
        table = self._existing("read")
        if version and table.snapshot_by_id(int(version)) is None:
            raise NotFoundError(
                operation="read",
                subject=f"snapshot {version} of {self._table.name}",
                cause="it has expired",
                hint="Read a newer one; the table's maintenance decides how long old ones stay.",
            )
        return table

    def files(self) -> Iterator[str]:
        table = self._existing("list the files of")
        root = table.metadata.location.rstrip("/") + "/"
        for manifest in _manifests(table):
            for entry in _entries(table, manifest):
                yield entry.data_file.file_path.removeprefix(root)

    def _commit(self, look: Look, change: Change, owner: Owner, mark: Mark | None, whose: Owner) -> None:
        """Commit a change as a new snapshot, by one call of the catalog.

        :param mark: `None` leaves the owner's as it is: the table is taken over.
        :param whose: whose the table is from then on.
        """
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
        from pyiceberg.table import update

        made_of: Any = update  # its models take their fields by names that type checkers don't know
        table: Table = _at(look)
        metadata, head = table.metadata, table.metadata.snapshot_by_name(MAIN)
        schema, evolving = self._evolved(table, change.schema)
        made = _Snapshot(table, schema, evolving, self._table.name).made(change, _summary(owner, mark))
        properties = {OWNER: _owner_text(whose)}
        if mark is not None:
            properties[_MARK + owner.key] = _Found(mark, made.snapshot_id, made.sequence_number or 0).text
        if change.count and _NAME_MAPPING not in metadata.properties:
            properties[_NAME_MAPPING] = schema.name_mapping.model_dump_json()
        parent = None if head is None else head.snapshot_id
        requirements = (
            made_of.AssertTableUUID(uuid=metadata.table_uuid),
            made_of.AssertRefSnapshotId(ref=MAIN, snapshot_id=parent),
            made_of.AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            made_of.AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
            *self._asserted_here(metadata.properties),
        )
        updates = (
            *evolving,
            made_of.AddSnapshotUpdate(snapshot=made),
            made_of.SetSnapshotRefUpdate(
                ref_name=MAIN, type="branch", snapshot_id=made.snapshot_id, parent_snapshot_id=parent
            ),
            made_of.SetPropertiesUpdate(updates=properties),
        )
        try:
            self._catalog.commit_table(table, requirements, updates)
        except (CommitFailedException, NoSuchTableError) as error:
            raise TableMovedError(
                operation="commit to", subject=self._table.name, cause=error, hint="It is looked at again."
            ) from error

    def _evolved(self, table: Table, wanted: pa.Schema | None) -> tuple[Schema, tuple[Any, ...]]:
        """Return the schema that the table is to have, and the updates that lead to it."""
        from pyiceberg.table.update.schema import UpdateSchema

        from airflow_gobblin.tables.arrow.iceberg_types import held

        current = table.metadata.schema()
        if wanted is None:
            return current, ()
        update = UpdateSchema(table.transaction(), name_mapping=table.metadata.name_mapping())
        update.union_by_name(held(wanted, self._table.name))
        updates, _ = update._commit()
        evolved: Schema = update._apply()
        if not updates:
            return current, ()
        ids = [known.schema_id for known in table.metadata.schemas]
        known = next((known.schema_id for known in table.metadata.schemas if known == evolved), max(ids) + 1)
        return evolved.model_copy(update={"schema_id": known}), updates

    def _asserted_here(self, properties: Mapping[str, str]) -> tuple[Any, ...]:
        """Return the requirement that only a catalog that compares in this process can check: that no mark or owner has changed.

        The snapshots show that, too, except for a table that was set back to none.
        """
        from pyiceberg.catalog.sql import SqlCatalog

        if not isinstance(self._catalog, SqlCatalog):
            return ()
        return (_AssertOurProperties(_our_properties(properties)),)

    def _load(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with _as_table_error("look at", self._table.name):
            try:
                return self._catalog.load_table(self._table.table)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def _existing(self, operation: str) -> Table:
        table = self._load()
        if table is None:
            raise self._error(operation, "there is no such table")
        return table

    def _location(self, location: str) -> str:
        """Return a table's location with the connection for it."""
        scheme, found, rest = location.partition("://")
        if scheme in ("s3", "s3a", "s3n"):
            return f"s3://{self._table.storage + '@' if self._table.storage else ''}{rest}".rstrip("/")
        return location.rstrip("/") if found else location.removeprefix("file:").rstrip("/")

    def _error(self, operation: str, cause: str, hint: str | None = None) -> TableError:
        return TableError(operation=operation, subject=self._table.name, cause=cause, hint=hint)


class _AssertOurProperties:
    """The requirement that our properties are as they were, checked by a catalog in this process."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        self._expected = expected

    def validate(self, base_metadata: Any) -> None:
        from pyiceberg.exceptions import CommitFailedException

        if base_metadata is None or _our_properties(base_metadata.properties) != self._expected:
            raise CommitFailedException("the marks in its properties have changed")


def _our_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name == OWNER or name.startswith(_MARK)}


class _Snapshot:
    """The manifests of a new snapshot, written in bounded memory: one manifest's entries at a time.

    :param table: the table, as it was looked at.
    :param schema: the schema that it has from this snapshot on, and `evolving` the updates that lead to it.
    :param name: the table, as errors name it.
    """

    def __init__(self, table: Table, schema: Schema, evolving: tuple[Any, ...], name: str) -> None:
        import uuid

        self._table = table
        self._schema = schema
        self._evolving = evolving
        self._name = name
        self._id = table.metadata.new_snapshot_id()
        self._uuid = uuid.uuid4()
        self._written = 0
        self._counts: Counter[str] = Counter()

    def made(self, change: Change, summary: Mapping[str, str]) -> Any:
        """Write the manifests and their list, and return the snapshot.

        :raises TableError: the number of files that are to leave isn't the recorded one.
        """
        from pyiceberg.manifest import write_manifest_list
        from pyiceberg.table import snapshots
        from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries

        metadata = self._table.metadata
        head = metadata.snapshot_by_name(MAIN)
        adding, merged = self._listed(change), None
        if change.merge is not None:
            merged = self._merged(change, list(adding))
            adding = iter(merged.adding)
        # Before the additions: if files that leave aren't found, less has been written for nothing.
        manifests = list(self._kept(change, frozenset() if merged is None else merged.leaving))
        manifests += self._added(adding)
        sequence = metadata.next_sequence_number()
        place = self._place(f"snap-{self._id}-0-{self._uuid}.avro")
        with write_manifest_list(
            format_version=2,
            output_file=self._table.io.new_output(place),
            snapshot_id=self._id,
            parent_snapshot_id=None if head is None else head.snapshot_id,
            sequence_number=sequence,
            avro_compression=self._compression,
        ) as writer:
            writer.add_manifests(manifests)
        removing = bool(change.removes or change.removes_all or self._counts["deleted-data-files"])
        operation = Operation.APPEND if not removing else Operation.OVERWRITE if change.count else Operation.DELETE
        counted = {name: str(number) for name, number in self._counts.items() if number}
        snapshot: Any = snapshots.Snapshot
        return snapshot(
            snapshot_id=self._id,
            parent_snapshot_id=None if head is None else head.snapshot_id,
            manifest_list=place,
            sequence_number=sequence,
            summary=update_snapshot_summaries(
                Summary(operation, **counted, **summary), None if head is None else head.summary
            ),
            schema_id=self._schema.schema_id,
        )

    def _listed(self, change: Change) -> Iterator[Any]:
        """Yield the files to add, as the format has them.

        :raises TableError: their number isn't the one that the change states.
        """
        entry_of = _EntryOf(self._schema, self._table.metadata.spec(), self._table.metadata.location)
        files = rows = 0
        for file in change.files():
            yield entry_of(file)
            files, rows = files + 1, rows + file.rows
        if (files, rows) != (change.count, change.rows):
            raise TableError(
                operation="commit to",
                subject=self._name,
                cause=f"{files} files with {rows} rows are listed, but {change.count} with {change.rows} were decided",
            )

    def _merged(self, change: Change, added: list[Any]) -> Merged:
        """Merge the files to add with what the table has."""
        from pyiceberg.table.update import update_table_metadata

        from airflow_gobblin.tables.iceberg_merge import Merging

        assert change.merge is not None
        metadata = self._table.metadata
        evolved = update_table_metadata(metadata, self._evolving) if self._evolving else metadata
        if _NAME_MAPPING not in evolved.properties:  # this commit gives it one: staged files may have no column ids
            named = {**evolved.properties, _NAME_MAPPING: self._schema.name_mapping.model_dump_json()}
            evolved = evolved.model_copy(update={"properties": named})
        merging = Merging(evolved, self._table.io, change.merge, self._name)
        known = all(key in metadata.schema().column_names for key in change.merge.keys)
        empty = change.removes_all or not known or not added
        old = () if empty else self._table.scan(row_filter=merging.bounds(added)).plan_files()
        return merging.merged(old, added)

    def _added(self, entries: Iterator[Any]) -> Iterator[ManifestFile]:
        """Write the manifests of the files to add."""
        from itertools import islice

        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus

        while some := list(islice(entries, FILES_PER_MANIFEST)):
            with self._writer(self._table.metadata.spec()) as writer:
                for entry in some:
                    writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=entry))
                    self._counts["added-data-files"] += 1
                    self._counts["added-records"] += entry.record_count
                    self._counts["added-files-size"] += entry.file_size_in_bytes
            yield writer.to_manifest_file()

    def _kept(self, change: Change, leaving_too: frozenset[str]) -> Iterator[ManifestFile]:
        """Yield the manifests of the head; those that something leaves are rewritten.

        :param leaving_too: the paths of further files that leave.
        :raises TableError: the number of files or rows that leave isn't the recorded one.
        """
        expected = {(unit.token, unit.unit): Count(unit.files, unit.rows) for unit in change.removes}
        left: dict[tuple[str, str], Count] = {}
        leaves = self._leaves(change, leaving_too, expected, left)
        for manifest in _manifests(self._table, deletes=True):
            if manifest.content != 0:
                if not change.removes_all:
                    yield manifest
                continue
            if leaves is None:
                yield manifest
                continue
            entries = _entries(self._table, manifest)
            leaving = [leaves(entry) for entry in entries]
            yield from self._rewritten(manifest, entries, leaving) if any(leaving) else (manifest,)
        for unit, count in expected.items():
            if left.get(unit, Count()) != count:
                found = left.get(unit, Count())
                raise TableError(
                    operation="replace units of",
                    subject=self._name,
                    cause=f"unit {unit[1]!r} of {unit[0]} has {found.files} files with {found.rows} rows there, "
                    f"but {count.files} with {count.rows} were committed: somebody compacted or deleted some",
                    hint="Nothing was changed. Ingest the range anew by a snapshot of the whole table, or rewrite it by hand.",
                )

    def _leaves(
        self,
        change: Change,
        leaving_too: frozenset[str],
        expected: Mapping[tuple[str, str], Count],
        left: dict[tuple[str, str], Count],
    ) -> Callable[[ManifestEntry], bool] | None:
        """Return the test for entries that leave, which counts them by unit; `None` if none does."""
        if change.removes_all:
            return lambda entry: True
        if not expected and not leaving_too:
            return None
        location = self._table.metadata.location

        def leaves(entry: ManifestEntry) -> bool:
            if entry.data_file.file_path in leaving_too:
                return True
            unit = _unit_of(entry.data_file.file_path, location)
            if unit is None or unit not in expected:
                return False
            before = left.get(unit, Count())
            left[unit] = Count(before.files + 1, before.rows + entry.data_file.record_count)
            return True

        return leaves

    def _rewritten(
        self, manifest: ManifestFile, entries: list[ManifestEntry], leaving: list[bool]
    ) -> Iterator[ManifestFile]:
        with self._writer(self._table.metadata.specs()[manifest.partition_spec_id]) as writer:
            for entry, out in zip(entries, leaving, strict=True):
                if out:
                    writer.delete(entry)
                    self._counts["deleted-data-files"] += 1
                    self._counts["deleted-records"] += entry.data_file.record_count
                    self._counts["removed-files-size"] += entry.data_file.file_size_in_bytes
                else:
                    writer.existing(entry)
        yield writer.to_manifest_file()

    @property
    def _compression(self) -> Any:
        return self._table.metadata.properties.get("write.avro.compression-codec", "gzip")

    def _writer(self, spec: PartitionSpec) -> Any:
        from pyiceberg.manifest import write_manifest

        place = self._place(f"{self._uuid}-m{self._written}.avro")
        self._written += 1
        return write_manifest(
            format_version=2,
            spec=spec,
            schema=self._schema,
            output_file=self._table.io.new_output(place),
            snapshot_id=self._id,
            avro_compression=self._compression,
        )

    def _place(self, name: str) -> str:
        return str(self._table.location_provider().new_metadata_location(name))


class _EntryOf:
    """The function that turns our data files into the format's, with a schema and a partition looked up once."""

    def __init__(self, schema: Schema, spec: PartitionSpec, location: str) -> None:
        from pyiceberg.types import PrimitiveType

        self._location = location.rstrip("/")
        self._spec_id = spec.spec_id
        self._partition = [
            _native_of(field.transform.result_type(schema.find_type(field.source_id))) for field in spec.fields
        ]
        self._columns = {
            name: (number, kind, _native_of(kind))
            for number, name in _single_columns(schema)
            if isinstance(kind := schema.find_type(number), PrimitiveType)
        }

    def __call__(self, file: DataFile) -> Any:
        from pyiceberg.manifest import DataFile as Entry
        from pyiceberg.manifest import DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        values = zip(self._partition, file.partition, strict=True)
        entry = Entry.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(native(value) for native, value in values)),
            record_count=file.rows,
            file_size_in_bytes=file.size,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **self._metrics(file),
        )
        entry.spec_id = self._spec_id
        return entry

    def _metrics(self, file: DataFile) -> dict[str, Any]:
        from pyiceberg.conversions import to_bytes

        metrics: dict[str, dict[int, Any]] = {name: {} for name in _METRICS.values()}
        low: dict[int, bytes] = {}
        high: dict[int, bytes] = {}
        for name, column in (file.columns or {}).items():
            if name not in self._columns:
                continue
            column_id, kind, native = self._columns[name]
            for ours, theirs in _METRICS.items():
                if (number := getattr(column, ours)) is not None:
                    metrics[theirs][column_id] = number
            for bounds, value in ((low, column.low), (high, column.high)):
                if value is not None and (known := native(value)) == known:
                    bounds[column_id] = to_bytes(kind, known)
        return {**metrics, "lower_bounds": low, "upper_bounds": high}


_METRICS = {
    "bytes": "column_sizes",
    "values": "value_counts",
    "nulls": "null_value_counts",
    "nans": "nan_value_counts",
}


def _single_columns(schema: Schema) -> Iterator[tuple[int, str]]:
    """Yield the ids and names of the columns that have at most one value per row; the names of those in structs have dots."""
    from pyiceberg.types import StructType

    def below(fields: Iterable[Any], prefix: str) -> Iterator[tuple[int, str]]:
        for field in fields:
            name = f"{prefix}{field.name}"
            yield field.field_id, name
            if isinstance(field.field_type, StructType):
                yield from below(field.field_type.fields, f"{name}.")

    return below(schema.fields, "")


def _native_of(kind: Any) -> Callable[[Json], Any]:
    """Return the function that turns a value of an Iceberg type from its form in records into the form that the library takes.
    Dates and times stay numbers, of days and microseconds.
    """
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    from airflow_gobblin.tables.arrow.statistics import from_json

    arrow, is_ = schema_to_pyarrow(kind), pa.types
    if any(one(arrow) for one in (is_.is_temporal, is_.is_integer, is_.is_boolean, is_.is_string, is_.is_large_string)):
        return lambda value: value
    return lambda value: None if value is None else from_json(value, arrow).as_py()


def _manifests(table: Table, *, deletes: bool = False) -> Iterator[ManifestFile]:
    """Yield the manifests of the head; those of delete files only if asked for."""
    head = table.metadata.snapshot_by_name(MAIN)
    if head is not None:
        for manifest in head.manifests(table.io):
            if deletes or manifest.content == 0:
                yield manifest


def _entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the live entries of a manifest."""
    return manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def _unit_of(path: str, location: str) -> tuple[str, str] | None:
    """Return token and unit of a file; `None` for one that isn't ours."""
    root = location.rstrip("/") + "/"
    return unit_of(path[len(root) :]) if path.startswith(root) else None


@dataclass(frozen=True)
class _Found:
    """A mark as a property keeps it.

    :param snapshot: the snapshot that left it.
    :param sequence: its sequence number: later ones of the table are higher.
    """

    mark: Mark
    snapshot: int
    sequence: int

    @property
    def text(self) -> str:
        mark = self.mark
        return json.dumps(
            {
                "slot": mark.slot,
                "token": mark.token,
                "done": mark.done,
                "snapshot": self.snapshot,
                "sequence": self.sequence,
            }
        )


def _found_mark(properties: Mapping[str, str], owner: Owner) -> _Found | None:
    text = properties.get(_MARK + owner.key)
    if text is None:
        return None
    try:
        fields = json.loads(text)
        mark = Mark(int(fields["slot"]), str(fields["token"]), bool(fields["done"]))
        return _Found(mark, int(fields["snapshot"]), int(fields["sequence"]))
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(
            operation="look at",
            subject=f"the mark of {owner}",
            cause=error,
            hint="Somebody changed a property of the table whose name begins with 'gobblin.'.",
        ) from error


def _in_history(found: _Found, metadata: Any) -> bool:
    """Return whether `main` descends from a mark's snapshot, or did before that expired.

    Sequence numbers rise along it: another ancestor whose number is no higher than that of the mark's snapshot shows that `main`
    was set back. When pyiceberg expires a snapshot, it takes that one's id from its child.
    """
    snapshot = metadata.snapshot_by_name(MAIN)
    if snapshot is None:
        return False
    while True:
        if snapshot.snapshot_id == found.snapshot:
            return True
        if (snapshot.sequence_number or 0) <= found.sequence:
            return False
        parent = snapshot.parent_snapshot_id
        before = None if parent is None else metadata.snapshot_by_id(parent)
        if before is None:
            return parent == found.snapshot or metadata.snapshot_by_id(found.snapshot) is None
        snapshot = before


def _owner_text(owner: Owner) -> str:
    return json.dumps({"journal": owner.journal, "ingestion": owner.ingestion, "urn": owner.urn})


def _found_owner(properties: Mapping[str, str]) -> Owner | None:
    text = properties.get(OWNER)
    if text is None:
        return None
    try:
        return Owner(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise TableError(
            operation="look at",
            subject="the owner of a table",
            cause=error,
            hint=f"Somebody changed its property {OWNER!r}.",
        ) from error


def _summary(owner: Owner, mark: Mark | None) -> dict[str, str]:
    """Return what the summary of a snapshot records about its commit."""
    if mark is None:
        return {OWNER: _owner_text(owner)}
    return {
        "gobblin.dataset": owner.urn,
        "gobblin.ingestion": owner.ingestion,
        "gobblin.slot": str(mark.slot),
        "gobblin.token": mark.token,
        "gobblin.done": "true" if mark.done else "false",
    }


def _at(look: Look) -> Any:
    if look.at is None:
        raise TableMovedError(operation="commit to", subject="a table", cause="there was none when it was looked at")
    return look.at


def _spec(partition: tuple[PartitionField, ...], schema: Schema) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField as Field
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.transforms import parse_transform

    fields, taken = [], {*schema.column_names}
    for number, field in enumerate(partition):
        transform = parse_transform(f"{field.transform}[{field.width}]" if field.width else field.transform)
        source = schema.find_field(field.column)
        if not transform.can_transform(source.field_type):
            raise ConfigurationError(
                operation="partition by",
                subject=str(field),
                cause=f"column {field.column!r} is of type {source.field_type}",
            )
        name = field.column
        if field.transform != "identity":
            name = f"{field.column}_{field.transform}"
            while name in taken:  # readers refuse two of one name, even a column and a field
                name += "_"
            taken.add(name)
        fields.append(Field(source_id=source.field_id, field_id=1000 + number, transform=transform, name=name))
    return PartitionSpec(*fields)


def _partition_of(spec: PartitionSpec, schema: Schema) -> tuple[PartitionField, ...]:
    def one(field: Any) -> PartitionField:
        found = _TRANSFORM.fullmatch(str(field.transform))
        name, width = (found["name"], found["width"]) if found else (str(field.transform), None)
        column = schema.find_column_name(field.source_id)
        return PartitionField(column or "", "void" if name == "void" else name, int(width or 0))

    return tuple(one(field) for field in spec.fields)
