"""Everything published, exactly once: the files of finished slots, and only these, as returned by `Journal.read_dataset`.

Unlike a listing of the folder, this never shows part of a publish, a file that a paused process moved late, or a file that a
later slot replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import ConfigurationError, NeverPublishedError, NotFoundError
from airflow_gobblin.model.naming import many, meant
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.storage.locations import object_location

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from airflow_gobblin.connections import Connections
    from airflow_gobblin.journal.history import History
    from airflow_gobblin.journal.journal import Journal
    from airflow_gobblin.model.table import TableRecord
    from airflow_gobblin.tables.port import OpenTable

_NAMED = 5
"""The most items that a sentence lists."""
_GLOB = re.compile(r"[\\*?\[\]{}]")
"""Characters of a path that Spark reads as a pattern unless escaped by a backslash."""


@dataclass(frozen=True)
class PublishedFile:
    """A file that a finished slot published.

    :param path: absolute, or a URL.
    """

    path: str
    slot: int
    unit: str
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True)
class PublishedDataset:
    """A dataset as recorded in the journal: a consistent view, even while it is being published.

    :param slot: the newest slot included.
    :param watermark: `None` for an old version, too.
    :param schema: the published schema, as written by `schema.encode`.
    :param table: the table that its rows are in, which has no files for the journal to name.
    :param table_version: what people call the version of that table; empty: as it is now.
    :param workspace: the root of the ingestion's own files, where its rows are in a table.
    """

    urn: str
    slot: int
    watermark: Watermark | None
    schema: str | None
    files: tuple[PublishedFile, ...]
    table: TableRecord | None = None
    table_version: str = ""
    workspace: str = ""

    @property
    def paths(self) -> list[str]:
        """The absolute paths of its files.

        :raises ConfigurationError: its rows are in a table.
        """
        self._check_files()
        return [f.path for f in self.files]

    @property
    def rows(self) -> int:
        """The number of its rows.

        :raises ConfigurationError: its rows are in a table.
        """
        self._check_files()
        return sum(f.rows for f in self.files)

    def to_arrow(self, connections: Connections | None = None, conn_id: str | None = None) -> ds.Dataset:
        """Open it as an Arrow dataset.

        :param connections: where to find the secrets of an object store, or of a table's catalog or database; without them the
            environment is used.
        :param conn_id: the id of the object store's connection.
        :raises ConfigurationError: its files aren't Parquet, as those of an author's own sink may be.
        :raises NotFoundError: the table no longer has the version, or its format keeps none.
        :raises TableError: the table can't be read.
        """
        if self.table is not None:
            return _read_table(self.table, self.table_version, self.workspace, connections)
        self._check_parquet()
        import pyarrow.dataset as ds

        from airflow_gobblin.model import schema

        arrow_schema = schema.decode(self.schema) if self.schema else None
        location = object_location(self.paths[0]) if self.paths else None
        if location is None:
            return ds.dataset(self.paths, schema=arrow_schema, format="parquet")
        from airflow_gobblin.storage.filesystems import open_filesystem

        filesystem = open_filesystem(replace(location, conn_id=conn_id), connections)
        names = [path.partition("://")[2] for path in self.paths]
        return ds.dataset(names, schema=arrow_schema, format="parquet", filesystem=filesystem)

    def to_spark(self, spark: Any, connections: Connections | None = None) -> Any:
        """Read it as a DataFrame. A timestamp without a zone stays one (`timestamp_ntz`), whatever the session's zone.

        Spark reads S3 by its own client (`s3a`), with the session's settings, and a Delta or an Iceberg table by its own
        reader, for which the session needs the format's jar.

        :param spark: a `SparkSession`, classic or Connect.
        :param connections: where to find the secrets of a table's catalog, as for `to_arrow`.
        :raises ConfigurationError: Spark can't read that table, or the session can't; or its files aren't Parquet.
        :raises NotFoundError: as `to_arrow`.
        :raises TableError: as `to_arrow`.
        """
        if self.table is not None:
            return _table_in_spark(spark, self.table, self.table_version, self.workspace, connections)
        if self.schema is None:
            return spark.createDataFrame([], "struct<>")
        self._check_parquet()
        return read_parquet(spark, self.schema, self.paths)

    def _check_parquet(self) -> None:
        other = next((path for path in self.paths if not path.endswith(".parquet")), None)
        if other is not None:
            raise ConfigurationError(
                operation="read",
                subject=f"dataset {self.urn!r}",
                cause=f"only Parquet is read here, and it has the file {other!r}",
                hint="Read the files of `paths` with a library for their format.",
            )

    def _check_files(self) -> None:
        if self.table is not None:
            raise ConfigurationError(
                operation="read",
                subject=f"dataset {self.urn!r} by its files",
                cause=f"its rows are in {self.table.name}",
                hint=f"Read that table{f', version {self.table_version}' if self.table_version else ''}: `to_arrow` does.",
            )


def _read_table(table: TableRecord, version: str, workspace: str, connections: Connections | None) -> ds.Dataset:
    with _opened(table, workspace, connections) as opened:
        return opened.read(version)


@contextmanager
def _opened(table: TableRecord, workspace: str, connections: Connections | None) -> Iterator[OpenTable]:
    """Open a table, and let no error show a secret."""
    from airflow_gobblin.connections import GuardedConnections, NoConnections
    from airflow_gobblin.errors import TableError
    from airflow_gobblin.storage.files import open_files
    from airflow_gobblin.tables.port import table_of

    guarded = GuardedConnections(connections or NoConnections())
    with guarded.redactor.guarding("read", table.name, TableError):
        yield table_of(table).open(guarded, open_files(workspace, guarded))


def _table_in_spark(
    spark: Any, table: TableRecord, version: str, workspace: str, connections: Connections | None
) -> Any:
    from airflow_gobblin.tables.port import ReadBySpark

    subject, otherwise = f"{table.name} by Spark", "spark.createDataFrame(dataset.to_arrow(connections).to_table())"
    with _opened(table, workspace, connections) as opened:
        if not isinstance(opened, ReadBySpark):
            raise ConfigurationError(
                operation="read",
                subject=subject,
                cause="Spark has no reader of its own for it",
                hint=f"Take the rows to Spark: {otherwise}.",
            )
        source = opened.in_spark(version)
    try:
        reader = spark.read.format(source.format)
        found = (reader.option("versionAsOf", source.version) if source.version else reader).load(source.path)
        found.schema  # noqa: B018 - by Spark Connect, nothing is looked at before
    except Exception as error:  # from PySpark, its bridge to Java, or Spark Connect
        raise ConfigurationError(
            operation="read",
            subject=subject,
            cause=" ".join(str(error).partition("\n\tat ")[0].split()),
            hint=f"Give the session the jar {source.jar}, of its Spark's version, and access to the files (spark.jars.packages, "
            f"spark.hadoop.fs.s3a.…); or take the rows to Spark: {otherwise}.",
        ) from error
    return found


def read_parquet(spark: Any, schema: str, paths: Sequence[str]) -> Any:
    """Read published files as a DataFrame; without any, it has no rows. See `PublishedDataset.to_spark`.

    :param schema: their schema, encoded.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    from airflow_gobblin.model.schema import decode

    as_spark = from_arrow_schema(decode(schema), prefer_timestamp_ntz=True)
    if not paths:
        return spark.createDataFrame([], as_spark)
    return spark.read.schema(as_spark).parquet(*map(_for_spark, paths))


def unknown_dataset(journal: Journal, urn: str) -> NotFoundError:
    """Make the error for a dataset that the journal doesn't have, suggesting similar names."""
    known = journal.datasets()
    if not known:
        return unknown_ingestion(journal)
    return NotFoundError(
        operation="find",
        subject=f"dataset {urn!r} of ingestion {journal.ingestion!r}",
        cause=f"its journal has {many(len(known), 'dataset')}, and not this one",
        hint=_hint(urn, known),
    )


def unknown_ingestion(journal: Journal) -> NotFoundError:
    """Make the error for an ingestion that has no dataset in the journal, suggesting similar names."""
    known = [name for name in journal.ingestions() if name != journal.ingestion]
    there = f"it has {many(len(known), 'other')}" if known else "it has none yet"
    return NotFoundError(
        operation="find",
        subject=f"ingestion {journal.ingestion!r} in the journal at {journal.store.name}",
        cause=f"no dataset of it is there; {there}" if known else "it has no dataset yet",
        hint=f"{_hint(journal.ingestion, known)} A dataset is there from its first run on.".strip(),
    )


def never_published(history: History) -> NeverPublishedError:
    """Make the error for a dataset that no run has published yet, with the reason if it is known."""
    pending, dropped = history.pending, history.dropped
    if dropped is not None and pending is None:
        failure = f"; the last failure: {history.failure}" if history.failure else ""
        cause = f"{dropped.named} forgot it, and no run has published it since{failure}"
        hint = "If it is still wanted, let its source have it: the next run begins it anew."
    elif pending is not None:
        cause = f"its first slot, {pending.decision.slot}, is decided and not finished"
        hint = "The run that decided it finishes it, or the next one does: `airflow gobblin pending` shows it."
    elif history.failure:
        cause = f"no run has published it; the last failure: {history.failure}"
        hint = "Once that is fixed, the next run publishes it."
    elif history.state.paused is not None:
        cause = f"no run has published it; it is {history.state.paused}"
        hint = "The next run after `airflow gobblin resume` publishes it."
    else:
        cause = "no run has published it; everything recorded of it was set, imported or given up"
        hint = "The next run publishes it."
    return NeverPublishedError(operation="read", subject=f"dataset {history.urn!r}", cause=cause, hint=hint)


def _hint(name: str, known: Sequence[str]) -> str:
    some = ", ".join(map(repr, known[:_NAMED]))
    return meant(known, name, otherwise=f"It has {some}." if some else "")


def _for_spark(path: str) -> str:
    return re.sub("^s3://", "s3a://", _GLOB.sub(r"\\\g<0>", path))
