"""What was published, exactly once: the files of finished slots, and only these. `Journal.read_dataset` gives it.

Unlike a listing of the folder, this never sees a part of a publish, a file that a paused process moved late, or a file that a
later slot replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_gobblin.places import object_place
from airflow_gobblin.watermark import Watermark

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from airflow_gobblin.sources.base import Connections

_GLOB = re.compile(r"[\\*?\[\]{}]")
"""What Spark takes for a pattern in a path, unless a backslash stands before it."""


@dataclass(frozen=True)
class PublishedFile:
    """A file that a finished slot published. :param path: absolute, or a URL."""

    path: str
    slot: int
    unit: str
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True)
class PublishedDataset:
    """A dataset as the journal has it: a consistent view, also while it is being published.

    :param slot: the newest slot that it shows. :param schema: the published schema, as `schema.encode` writes it.
    """

    urn: str
    slot: int
    watermark: Watermark | None
    schema: str | None
    files: tuple[PublishedFile, ...]

    @property
    def paths(self) -> list[str]:
        """The absolute paths of its files."""
        return [f.path for f in self.files]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(f.rows for f in self.files)

    def to_arrow(self, connections: Connections | None = None, conn_id: str | None = None) -> ds.Dataset:
        """It as an Arrow dataset.

        :param connections: where the secrets of an object store come from, and :param conn_id: under which id; without them the
            environment has them.
        """
        import pyarrow.dataset as ds

        from airflow_gobblin import schema

        arrow_schema = schema.decode(self.schema) if self.schema else None
        place = object_place(self.paths[0]) if self.paths else None
        if place is None:
            return ds.dataset(self.paths, schema=arrow_schema, format="parquet")
        from airflow_gobblin.object_storage import open_filesystem

        filesystem = open_filesystem(replace(place, conn_id=conn_id), connections)
        names = [path.partition("://")[2] for path in self.paths]
        return ds.dataset(names, schema=arrow_schema, format="parquet", filesystem=filesystem)

    def to_spark(self, spark: Any) -> Any:
        """It as a DataFrame. A timestamp without a zone stays one (`timestamp_ntz`), whatever the session's zone.

        Spark reads S3 by its own client (`s3a`), with the session's settings.

        :param spark: a `SparkSession`, classic or Connect.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        from airflow_gobblin import schema

        if self.schema is None:
            return spark.createDataFrame([], "struct<>")
        as_spark = from_arrow_schema(schema.decode(self.schema), prefer_timestamp_ntz=True)
        if not self.files:
            return spark.createDataFrame([], as_spark)
        return spark.read.schema(as_spark).parquet(*map(_for_spark, self.paths))


def _for_spark(path: str) -> str:
    return re.sub("^s3://", "s3a://", _GLOB.sub(r"\\\g<0>", path))
