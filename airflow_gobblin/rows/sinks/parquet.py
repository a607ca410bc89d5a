"""The sink of Parquet files as authors declare it. `parquet_files.py` writes them, and loads Arrow, which this module doesn't."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, UnitResult
from airflow_gobblin.rows.sinks.base import Layout, publish_units
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files.base import Files

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.rows.sinks.parquet_files import ParquetFiles

MIB = 1 << 20


@record("parquet_sink")
@dataclass(frozen=True)
class ParquetSink:
    """A writer of Parquet below a target root, one folder a dataset.

    :param target: the target root: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`.
    :param file_bytes: the file size to aim at; the only file of a unit may be smaller, and its last one half as large again.
    :param compression_level: of zstd, 1 (fast) to 22 (small).
    :param layout: the layout of the files in the dataset's folder, as a `Layout` or its name. With `folder_per_unit`, the
        files of a work unit appear at the same moment, also in a listing of the folder; every reader finds a flat layout's.
    """

    target: str
    file_bytes: int = 128 * MIB
    compression_level: int = 1
    layout: Layout = Layout.FLAT

    def __post_init__(self) -> None:
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

    def folder(self, dataset: Dataset) -> str:
        """Return a dataset's folder below the target root: the key of its URN."""
        return dataset_key(dataset.urn)

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the schema to publish by.

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
        return evolved

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> ParquetFiles:
        """Start the staged files of a unit: `<staged>-<index>.parquet`, for `<published>-<index>.parquet`; in folders by the
        other layout.
        """
        from airflow_gobblin.rows.sinks.parquet_files import ParquetFiles

        return ParquetFiles(
            schema,
            files,
            staged,
            published,
            file_bytes=self.file_bytes,
            compression_level=self.compression_level,
            layout=self.layout,
        )

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        """Yield one step a staged file, to `<plan.folder>/<token>-<unit>-<index>.parquet`; or one for a unit's folder.

        :raises StepLostError: a staged file is gone, or no longer matches its result.
        """
        return publish_units(plan, results, files, self.layout, "parquet")
