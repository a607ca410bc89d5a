"""The sink of tables in PostgreSQL as authors declare it. Its rows are staged as Parquet, and copied at the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import MIB, Dataset
from airflow_gobblin.rows.sinks.tables import SchemaRules, SinkOfTables, named, rules_of
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.port import Merge, PartitionField, SchemaRule
from airflow_gobblin.tables.postgres import DEFAULT_SCHEMA, PostgresTable

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.rows.sinks.table_files import TableFiles


@record("postgres_sink")
@dataclass(frozen=True)
class PostgresSink(SinkOfTables):
    """A writer of tables in a PostgreSQL database.

    :param conn_id: an Airflow connection to the database.
    :param table: the table of each dataset, preceded by its schema, which exists; `{dataset}` represents the dataset's key.
    :param workspace: where rows are staged: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`.
    :param merge: whether rows are merged, so that only the newest version of each primary key stays. `True`: by the keys that the
        source knows; or the columns to merge by. It is for datasets that are loaded by snapshot-append.
    :param schema_rule: what may change in a table's columns.
    :param file_bytes: the size to aim at for staged files.
    """

    conn_id: str
    table: str
    workspace: str
    merge: Merge | bool = False
    schema_rule: SchemaRules = SchemaRule.REFUSE
    file_bytes: int = 128 * MIB

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema_rule", rules_of(self.schema_rule))
        self._named("dataset")
        if self.file_bytes <= 0:
            raise ConfigurationError(
                operation="use",
                subject=f"PostgresSink(table={self.table!r})",
                cause=f"its file_bytes are {self.file_bytes}, and must be above zero",
            )

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection to the database."""
        return (self.conn_id,)

    @property
    def merged_bytes(self) -> None:
        """The most bytes that one slot merges, which is always `None`: there is no bound, since the server merges."""

    def table_of(self, dataset: Dataset) -> PostgresTable:
        """Return a dataset's table."""
        return self._named(dataset.urn)

    def _named(self, urn: str) -> PostgresTable:
        namespace, _, name = named(self.table, urn).rpartition(".")
        return PostgresTable(self.conn_id, namespace or DEFAULT_SCHEMA, name)

    def partition_of(self, dataset: Dataset) -> tuple[PartitionField, ...]:
        """Return none: a table is partitioned by whoever creates it."""
        return ()

    def widens(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return whether PostgreSQL can: it takes nulls, and converts a column to a type that loses nothing."""
        from airflow_gobblin.tables.postgres.types import can_widen

        return present.type == wanted.type or can_widen(present.type, wanted.type)

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the columns as PostgreSQL holds them.

        :raises SchemaConflictError: it can't hold one.
        """
        from airflow_gobblin.tables.postgres.types import fitted

        return fitted(planned, f"dataset {urn!r}")

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> TableFiles:
        """Start the staged files of a unit.

        :param staged: their folder.
        :param published: the unit's id.
        """
        from airflow_gobblin.rows.sinks.table_files import TableFiles
        from airflow_gobblin.tables.postgres.types import check_values

        return TableFiles(schema, files, staged, published, file_bytes=self.file_bytes, check=check_values)
