"""The sink of Delta tables as authors declare it. It loads Arrow only where rows are planned or written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import MIB, Dataset
from airflow_gobblin.rows.sinks.base import TableWriter
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
from airflow_gobblin.tables.delta import MERGED_BYTES, DeltaLakeTable
from airflow_gobblin.tables.port import Merge, PartitionField, SchemaRule

if TYPE_CHECKING:
    import pyarrow as pa


@record("delta_sink")
@dataclass(frozen=True)
class DeltaSink(SinkOfTables):
    """A writer of Delta tables, one per dataset. A table is made where there is none; each slot is one commit to it.

    :param location: the folder of the table: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`, in which
        `{dataset}` represents the dataset's key. An ingestion of several datasets needs it.
    :param workspace: where plans, claims and lists of staged files are, apart from the table: a location of the same kinds.
    :param partition: the columns that a new table is partitioned by.
    :param merge: whether rows are merged, so that only the newest version of each primary key stays. `True`: by the keys that the
        source knows; or the columns to merge by. It is for datasets that are loaded by snapshot-append.
    :param schema_rule: what may change in a table's columns: they can be added, but not widened.
    :param file_bytes: the file size to aim at.
    :param compression_level: of zstd, 1 (fast) to 22 (small).
    :param sort: the columns that the rows of each file are sorted by; such a file takes at most 64 MiB of rows, as in memory.
    """

    location: str
    workspace: str
    partition: tuple[str, ...] = ()
    merge: Merge | bool = False
    schema_rule: SchemaRules = SchemaRule.REFUSE
    file_bytes: int = 128 * MIB
    compression_level: int = 1
    sort: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_tuples(self)
        for name in ("partition", "sort"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "schema_rule", rules_of(self.schema_rule))
        DeltaLakeTable(named(self.location, "dataset"))
        subject = f"DeltaSink({self.location!r})"
        check_lake(self, subject)
        if len(set(self.partition)) < len(self.partition):
            raise ConfigurationError(operation="use", subject=subject, cause="it names a partition column twice")

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection to the tables' object store, if the location names one."""
        return DeltaLakeTable(named(self.location, "dataset")).connection_ids

    @property
    def merged_bytes(self) -> int:
        """The most bytes that a worker merges in memory."""
        return MERGED_BYTES

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the columns as Delta holds them.

        :raises SchemaConflictError: it can't hold one, or be partitioned by it; or one that it is to be sorted by is missing.
        """
        from airflow_gobblin.tables.delta.table import check_partition
        from airflow_gobblin.tables.delta.types import delta_schema

        name = f"dataset {urn!r}"
        held = delta_schema(planned, name)
        check_partition(held, self._fields, name)
        check_there(self.sort, "sorted", held, name)
        return held

    def table_of(self, dataset: Dataset) -> DeltaLakeTable:
        """Return the dataset's table."""
        return DeltaLakeTable(named(self.location, dataset.urn))

    def partition_of(self, dataset: Dataset) -> tuple[PartitionField, ...]:
        """Return the columns that a new table is partitioned by."""
        return self._fields

    def widens(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return false: deltalake doesn't write to tables with the feature that widens types."""
        return False

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> TableWriter:
        """Start the data files of a unit, where they stay."""
        from airflow_gobblin.tables.delta.types import check_partitions

        return open_data_files(
            self, self._fields, schema, files, staged, published, partial(check_partitions, self.partition)
        )

    @property
    def _fields(self) -> tuple[PartitionField, ...]:
        return tuple(map(PartitionField, self.partition))
