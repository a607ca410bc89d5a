"""What was published, exactly once: the files of finished slots, and only these. `Journal.read_dataset` gives it.

Unlike a listing of the folder, this never sees a part of a publish, a file that a paused process moved late, or a file that a
later slot replaced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import NeverPublishedError, NotFoundError
from airflow_gobblin.naming import many, near
from airflow_gobblin.places import object_place
from airflow_gobblin.watermark import Watermark

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from airflow_gobblin.history import History
    from airflow_gobblin.journal import Journal
    from airflow_gobblin.sources.base import Connections

_NAMED = 5
"""How many of many things a sentence names."""
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


def unknown_dataset(journal: Journal, urn: str) -> NotFoundError:
    """Name a dataset that the journal doesn't have, and what may be meant instead."""
    known = journal.datasets()
    if not known:
        return unknown_ingestion(journal)
    return NotFoundError(
        operation="find",
        subject=f"dataset {urn!r} of ingestion {journal.ingestion!r}",
        cause=f"its journal has {many(len(known), 'dataset')}, and not this one",
        hint=_meant(urn, known),
    )


def unknown_ingestion(journal: Journal) -> NotFoundError:
    """Name an ingestion of which the journal has no dataset, and what may be meant instead."""
    known = [name for name in journal.ingestions() if name != journal.ingestion]
    there = f"it has {many(len(known), 'other')}" if known else "it has none yet"
    return NotFoundError(
        operation="find",
        subject=f"ingestion {journal.ingestion!r} in the journal at {journal.store.name}",
        cause=f"no dataset of it is there; {there}" if known else "it has no dataset yet",
        hint=f"{_meant(journal.ingestion, known)} A dataset is there from its first run on.".strip(),
    )


def never_published(history: History) -> NeverPublishedError:
    """Say of a dataset that no run has published it yet, and why, as far as that is known."""
    pending = history.pending
    if pending is not None:
        cause = f"its first slot, {pending.decision.slot}, is decided and not finished"
        hint = "The run that decided it finishes it, or the next one does: `airflow gobblin pending` shows it."
    elif history.failure:
        cause = f"no run has published it; the last failure: {history.failure}"
        hint = "Once that is mended, the next run publishes it."
    else:
        cause = "no run has published it; what stands of it was set, imported or given up"
        hint = "The next run publishes it."
    return NeverPublishedError(operation="read", subject=f"dataset {history.urn!r}", cause=cause, hint=hint)


def _meant(name: str, known: Sequence[str]) -> str:
    alike = near(name, known)
    some = ", ".join(map(repr, alike or known[:_NAMED]))
    return f"Did you mean {some}?" if alike else f"It has {some}." if some else ""


def _for_spark(path: str) -> str:
    return re.sub("^s3://", "s3a://", _GLOB.sub(r"\\\g<0>", path))
