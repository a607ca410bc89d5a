"""The sink of Iceberg tables as authors declare it. It loads Arrow and pyiceberg only where rows are planned or written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import MIB, Dataset
from airflow_gobblin.rows.sinks.tables import (
    SchemaRules,
    SinkOfTables,
    check_lake,
    check_there,
    named,
    open_data_files,
    rules_of,
)
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.locations import object_location
from airflow_gobblin.tables.iceberg import MERGED_BYTES, IcebergTable
from airflow_gobblin.tables.partition import parse_partition
from airflow_gobblin.tables.port import Merge, PartitionField, SchemaRule

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.rows.sinks.table_files import TableFiles


@record("iceberg_sink")
@dataclass(frozen=True)
class IcebergSink(SinkOfTables):
    """A writer of tables of an Iceberg catalog, one per dataset. A table is made where there is none; each slot is one snapshot.

    :param catalog: an Airflow connection to the catalog: of type `iceberg` for a REST catalog, of type `postgres` or `sqlite` for
        pyiceberg's SQL catalog there.
    :param table: the table of each dataset with its namespace, `raw.{dataset}`: `{dataset}` represents the dataset's key. An
        ingestion of several datasets needs it.
    :param workspace: where plans, claims and lists of staged files are, apart from the table: an absolute path, a `file://` URL
        or `s3://[connection@]bucket/prefix`.
    :param partition: what a new table is partitioned by: columns, and `year`, `month`, `day`, `hour`, `bucket` and `truncate` of
        one, such as `day(updated_at)` and `bucket(16, id)`.
    :param storage: the connection to the object store that the catalog puts tables into; by default the workspace's.
    :param file_bytes: the file size to aim at.
    :param compression_level: of zstd, 1 (fast) to 22 (small).
    :param sort: the columns that the rows of each file are sorted by; such a file takes at most 64 MiB of rows, as in memory.
    :param merge: whether rows are merged, so that only the newest version of each primary key stays. `True`: by the keys that the
        source knows; or the columns to merge by. It is for datasets that are loaded by snapshot-append.
    :param schema_rule: what may change in a table's columns.
    """

    catalog: str
    table: str
    workspace: str
    partition: tuple[str, ...] = ()
    merge: Merge | bool = False
    schema_rule: SchemaRules = SchemaRule.REFUSE
    storage: str | None = None
    file_bytes: int = 128 * MIB
    compression_level: int = 1
    sort: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_tuples(self)
        for name in ("partition", "sort"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "schema_rule", rules_of(self.schema_rule))
        parse_partition(self.partition)
        subject = f"IcebergSink(table={self.table!r})"
        check_lake(self, subject)
        if "." not in self.table or not all(named(self.table, "x").split(".")):
            raise ConfigurationError(
                operation="use",
                subject=subject,
                cause="its table has no namespace, or an empty name: write it as 'namespace.{dataset}'",
            )

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections to the catalog and, if there is one, to the tables' object store."""
        return (self.catalog,) if self._storage is None else (self.catalog, self._storage)

    @property
    def merged_bytes(self) -> int:
        """The most bytes that a worker merges in memory."""
        return MERGED_BYTES

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the columns as Iceberg holds them.

        :raises SchemaConflictError: it can't hold one, or one that it is to be partitioned or sorted by is missing.
        :raises ConfigurationError: there is no such transform of a column.
        """
        from airflow_gobblin.tables.arrow.iceberg_types import held

        schema = held(planned, f"dataset {urn!r}")
        self._check_columns(schema, f"dataset {urn!r}")
        return schema

    def _check_columns(self, schema: pa.Schema, name: str) -> None:
        from airflow_gobblin.tables.arrow.transforms import result_type

        fields = parse_partition(self.partition)
        check_there((field.column for field in fields), "partitioned", schema, name)
        check_there(self.sort, "sorted", schema, name)
        for field in fields:
            result_type(field, schema.field(field.column).type)

    def table_of(self, dataset: Dataset) -> IcebergTable:
        """Return the dataset's table."""
        return IcebergTable(self.catalog, named(self.table, dataset.urn), self._storage)

    def partition_of(self, dataset: Dataset) -> tuple[PartitionField, ...]:
        """Return what its table is partitioned by."""
        return parse_partition(self.partition)

    def widens(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return true: each wider type of one kind is also wider in the format, and any column may take nulls."""
        return True

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> TableFiles:
        """Start the data files of a unit, where they stay.

        :param staged: their folder.
        :param published: the unit's id.
        """
        from airflow_gobblin.tables.arrow.iceberg_types import bare, has_ids

        columns = schema if has_ids(schema) else bare(schema)  # a reader goes by the ids, if there are any
        return open_data_files(self, parse_partition(self.partition), columns, files, staged, published)

    @property
    def _storage(self) -> str | None:
        if self.storage is not None:
            return self.storage
        place = object_location(self.workspace)
        return None if place is None else place.conn_id
