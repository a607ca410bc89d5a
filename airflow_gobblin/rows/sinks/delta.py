"""The sink of Delta tables as authors declare it. It loads Arrow only where rows are planned or written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import MIB, Dataset, UnitResult
from airflow_gobblin.rows.sinks.base import TableWriter
from airflow_gobblin.rows.sinks.tables import SchemaRules, named, rule_of, rules_of
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.delta import MERGED_BYTES, DeltaLakeTable
from airflow_gobblin.tables.port import Merge, PartitionField, SchemaRule

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.model.plan import Plan


@record("delta_sink")
@dataclass(frozen=True)
class DeltaSink:
    """A writer of Delta tables, one a dataset. A table is made where there is none; each slot is one commit to it.

    :param location: the folder of the table: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`, in which
        `{dataset}` stands for the dataset's key. An ingestion of several datasets needs it.
    :param workspace: where plans, claims and lists of staged files are, apart from the table: a location of the same kinds.
    :param partition: the columns that a new table is partitioned by.
    :param merge: whether rows are merged: of each primary key the newest version stays. `True`: by the keys that the source
        knows; or the columns to merge by. It is for datasets that are loaded by snapshot-append.
    :param schema_rule: what may change of a table's columns: they can be added, and not be widened.
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
        for name in ("partition", "sort"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "schema_rule", rules_of(self.schema_rule))
        DeltaLakeTable(named(self.location, "dataset"))
        if self.file_bytes <= 0 or not 1 <= self.compression_level <= 22:
            cause = "file_bytes or compression_level is out of its range"
        elif len(set(self.partition)) < len(self.partition):
            cause = "it names a partition column twice"
        else:
            return
        raise ConfigurationError(operation="use", subject=f"DeltaSink({self.location!r})", cause=cause)

    @property
    def target(self) -> str:
        """The workspace."""
        return self.workspace

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The one to the tables' object store, if it names one."""
        return DeltaLakeTable(named(self.location, "dataset")).connection_ids

    @property
    def merged_bytes(self) -> int:
        """What a worker merges in memory."""
        return MERGED_BYTES

    def folder(self, dataset: Dataset) -> str:
        """Return the dataset's folder in the workspace: of its dead letters."""
        return dataset_key(dataset.urn)

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the columns as Delta holds them.

        :raises SchemaConflictError: it can't hold one, or not be partitioned by it.
        """
        from airflow_gobblin.tables.delta.table import check_partition
        from airflow_gobblin.tables.delta.types import delta_schema

        name = f"dataset {urn!r}"
        held = delta_schema(planned, name)
        check_partition(held, self._fields, name)
        return held

    def table_of(self, dataset: Dataset) -> DeltaLakeTable:
        """Return the dataset's table."""
        return DeltaLakeTable(named(self.location, dataset.urn))

    def partition_of(self, dataset: Dataset) -> tuple[PartitionField, ...]:
        """Return the columns that a new table is partitioned by."""
        return self._fields

    def rule_of(self, dataset: Dataset) -> SchemaRule:
        """Return what may change of its table's columns."""
        return rule_of(self.schema_rule, dataset.urn)

    def widens(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return that it can't: deltalake writes to no table with the feature that widens types."""
        return False

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> TableWriter:
        """Start the data files of a unit, where they stay."""
        from airflow_gobblin.rows.sinks.table_files import TableFiles

        return TableFiles(
            schema,
            files,
            staged,
            published,
            partition=self._fields,
            file_bytes=self.file_bytes,
            compression_level=self.compression_level,
            sort=[(column, True) for column in self.sort],
        )

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        """Yield nothing: the table's own step publishes."""
        return iter(())

    @property
    def _fields(self) -> tuple[PartitionField, ...]:
        return tuple(map(PartitionField, self.partition))
