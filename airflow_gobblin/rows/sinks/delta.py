"""The sink of Delta tables as authors declare it. It loads Arrow only where rows are planned or written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, UnitResult
from airflow_gobblin.rows.sinks.base import TableWriter
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.port import Merge, PartitionField

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.model.plan import Plan

MIB = 1 << 20


@record("delta_sink")
@dataclass(frozen=True)
class DeltaSink:
    """A writer of Delta tables, one a dataset. A table is made where there is none; each slot is one commit to it.

    :param location: the folder of the table: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`, in which
        `{dataset}` stands for the dataset's key. An ingestion of several datasets needs it.
    :param workspace: where plans, claims and lists of staged files are, apart from the table: a location of the same kinds.
    :param partition: the columns that a new table is partitioned by.
    :param keys: the columns of a key: of each the newest version stays. Empty: rows are added.
    :param delta: the column by which versions of a key are compared; two equal ones in one slot are refused.
    :param file_bytes: the file size to aim at.
    :param compression_level: of zstd, 1 (fast) to 22 (small).
    :param sort: the columns that rows are sorted by within the row groups of a file.
    """

    location: str
    workspace: str
    partition: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    delta: str | None = None
    file_bytes: int = 128 * MIB
    compression_level: int = 1
    sort: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("partition", "keys", "sort"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._table("x")
        if self.file_bytes <= 0 or not 1 <= self.compression_level <= 22:
            cause = "file_bytes or compression_level is out of its range"
        elif self.delta is not None and not self.keys:
            cause = "it has a delta column, and no keys to merge by"
        elif len(set(self.partition)) < len(self.partition):
            cause = "it names a partition column twice"
        else:
            return
        raise ConfigurationError(operation="use", subject=f"DeltaSink({self.location!r})", cause=cause)

    @property
    def target(self) -> str:
        """The workspace."""
        return self.workspace

    def folder(self, dataset: Dataset) -> str:
        """Return the dataset's folder in the workspace: of its dead letters."""
        return dataset_key(dataset.urn)

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the columns to publish: new nullable ones are added.

        :raises SchemaConflictError: they don't fit the table's, or Delta can't hold one as it is.
        """
        from airflow_gobblin.model import schema as schemas
        from airflow_gobblin.tables.delta.table import check_partition
        from airflow_gobblin.tables.delta.types import delta_schema

        name = f"dataset {urn!r}"
        evolved = schemas.evolve(published, planned, urn)
        for given, held in zip(evolved, delta_schema(evolved, name), strict=True):
            if not given.type.equals(held.type):
                raise SchemaConflictError(
                    operation="plan",
                    subject=f"column {given.name!r} of {name}",
                    cause=f"it is {given.type}, and Delta has {held.type} for it",
                    hint=f"Cast it to {held.type} in the source's `casts`.",
                )
        check_partition(evolved, self._fields, name)
        missing = [
            column for column in (*self.keys, *((self.delta,) if self.delta else ())) if column not in evolved.names
        ]
        if missing:
            raise SchemaConflictError(
                operation="plan",
                subject=f"column {missing[0]!r} of {name}",
                cause="it is to be merged by, and isn't there",
                hint="Keep that column, or merge by others.",
            )
        return evolved

    def table(self, dataset: Dataset) -> DeltaLakeTable:
        """Return the dataset's table."""
        return self._table(dataset_key(dataset.urn))

    def partition_of(self, dataset: Dataset) -> tuple[PartitionField, ...]:
        """Return the columns that a new table is partitioned by."""
        return self._fields

    def merge_of(self, dataset: Dataset) -> Merge | None:
        """Return how its rows are merged."""
        return Merge(self.keys, self.delta) if self.keys else None

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

    def _table(self, key: str) -> DeltaLakeTable:
        return DeltaLakeTable(self.location.replace("{dataset}", key))
