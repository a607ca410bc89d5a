"""The sink of Parquet files as authors declare it. `parquet_files.py` writes them, and loads Arrow, which this module doesn't."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import MIB, Dataset, StagedFile, UnitResult
from airflow_gobblin.rows.sinks.base import Layout, Writer, publish_units
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.publishing import publish_file
from airflow_gobblin.storage.files.base import Files, each

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.rows.sinks.parquet_files import ParquetFiles


@record("parquet_sink")
@dataclass(frozen=True)
class ParquetSink:
    """A writer of Parquet below a target root, one folder per dataset.

    :param target: the target root: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`.
    :param file_bytes: the file size to aim at; the only file of a unit may be smaller, and its last one half as large again.
    :param compression_level: of zstd, 1 (fast) to 22 (small).
    :param layout: the layout of the files in the dataset's folder, as a `Layout` or its name. With `folder_per_unit`, the files
        of a work unit appear at the same moment, even in a listing of the folder; every reader finds those of a flat layout.
    :param partition: the partition columns: a file holds rows of one value of each, and lies in a folder that is named after
        them in Hive's style, `country=DE/day=2024-02-29/`. Files keep the columns. Only in a flat layout.
    """

    target: str
    file_bytes: int = 128 * MIB
    compression_level: int = 1
    layout: Layout = Layout.FLAT
    partition: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_tuples(self)
        try:
            object.__setattr__(self, "layout", Layout(self.layout))
        except ValueError:
            raise ConfigurationError(
                operation="use",
                subject=f"ParquetSink(layout={self.layout!r})",
                cause="there is no such layout",
                hint=f"Use one of {', '.join(repr(layout.value) for layout in Layout)}.",
            ) from None
        if self.file_bytes <= 0 or not 1 <= self.compression_level <= 22:
            raise ConfigurationError(
                operation="use",
                subject=f"ParquetSink(file_bytes={self.file_bytes}, compression_level={self.compression_level})",
                cause="one of them is out of its range",
                hint="Give file_bytes above zero, and a compression_level from 1 to 22.",
            )
        object.__setattr__(self, "partition", tuple(self.partition))
        self._check_partition()

    def _check_partition(self) -> None:
        hidden = [column for column in self.partition if not column or column.startswith(("_", "."))]
        if len(set(self.partition)) < len(self.partition):
            cause = "it names a column twice"
        elif hidden:
            cause = f"readers ignore folders that begin like {hidden[0]!r}"
        elif self.partition and self.layout is not Layout.FLAT:
            cause = f"the layout {self.layout.value!r} has no partition folders"
        else:
            return
        raise ConfigurationError(
            operation="use",
            subject=f"ParquetSink(partition={self.partition!r})",
            cause=cause,
            hint="Partition a flat layout by columns whose names begin with a letter.",
        )

    def folder(self, dataset: Dataset) -> str:
        """Return a dataset's folder below the target root: the key of its URN."""
        return dataset_key(dataset.urn)

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the schema to publish with.

        :raises SchemaConflictError: it doesn't fit the published one, or Parquet can't hold a column's type.
        """
        from airflow_gobblin.model import schema as schemas
        from airflow_gobblin.rows.sinks.parquet_files import fits_parquet

        evolved = schemas.evolve(published, planned, urn)
        unfit = [f"column {field.name!r} ({field.type})" for field in evolved if not fits_parquet(field)]
        if unfit:
            raise SchemaConflictError(
                operation="plan",
                subject=f"dataset {urn!r}",
                cause=f"Parquet has no type for {', '.join(unfit)}",
                hint="Cast the columns in the source's `casts`, or leave them out.",
            )
        self._check_columns(evolved, urn)
        return evolved

    def _check_columns(self, schema: pa.Schema, urn: str) -> None:
        from airflow_gobblin.rows.sinks.partitions import can_be_partition

        for column in self.partition:
            at = schema.get_field_index(column)
            if at < 0:
                cause = f"it has no column {column!r} to partition by"
            elif not can_be_partition(schema.field(at).type):
                cause = f"partition column {column!r} is {schema.field(at).type}, which can't name a folder"
            else:
                continue
            raise SchemaConflictError(
                operation="plan",
                subject=f"dataset {urn!r}",
                cause=cause,
                hint="Partition by other columns, or add one with a converter.",
            )

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Writer:
        """Start the staged files of a unit: `<staged>-<index>.parquet`, for `<published>-<index>.parquet`; in folders with the
        other layout, or below those of their partitions.
        """
        if not self.partition:
            return self._files(schema, files, staged, published)
        from airflow_gobblin.rows.sinks.partitioned_files import PartitionedFiles
        from airflow_gobblin.rows.sinks.partitions import folder_of

        def start(folder: str, _: object, numbers: Iterator[int]) -> ParquetFiles:
            return self._files(schema, files, _below(staged, folder), _below(published, folder), numbers)

        return PartitionedFiles(
            lambda batch: [batch.column(column) for column in self.partition],
            lambda values: folder_of(self.partition, values),
            start,
            files,
        )

    def _files(
        self, schema: pa.Schema, files: Files, staged: str, published: str, numbers: Iterator[int] | None = None
    ) -> ParquetFiles:
        from airflow_gobblin.rows.sinks.parquet_files import ParquetFiles

        return ParquetFiles(
            schema,
            files,
            staged,
            published,
            file_bytes=self.file_bytes,
            compression_level=self.compression_level,
            layout=self.layout,
            numbers=numbers,
        )

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        """Yield one step per staged file, to `<plan.folder>/<token>-<unit>-<index>.parquet`, below the folder of its partition;
        or one for a unit's folder.

        :raises StepLostError: a staged file is gone, or no longer matches its result.
        """
        if not self.partition:
            return publish_units(plan, results, files, self.layout, "parquet")
        pairs = ((result.unit, file) for result in results for file in result.files)
        return each(files, lambda pair: self._publish(plan, *pair, files), pairs)

    def _publish(self, plan: Plan, unit: str, file: StagedFile, files: Files) -> CommitStep:
        """Return the step for a file of a partition: its staged path shows the partition and its number."""
        from airflow_gobblin.rows.sinks.partitions import partition_folder_of

        number = file.path.removesuffix(".parquet").rpartition("-")[2]
        folder = partition_folder_of(file.path, len(self.partition))
        target = f"{plan.folder}/{folder}{plan.token}-{unit}-{number}.parquet"
        return publish_file(file, target, unit, files)


def _below(stem: str, folder: str) -> str:
    """Return the path of files that lie in a folder beside those of a stem."""
    above, _, name = stem.rpartition("/")
    return f"{above}/{folder}/{name}"
