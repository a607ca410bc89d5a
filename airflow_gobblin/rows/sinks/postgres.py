"""The sink of tables in PostgreSQL as authors declare it. Its rows are staged as Parquet, and copied at the commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, UnitResult
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.port import Merge, PartitionField
from airflow_gobblin.tables.postgres import DEFAULT_SCHEMA, PostgresTable

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.rows.sinks.table_files import TableFiles

MIB = 1 << 20
_RULES = ("refuse", "add")


@record("postgres_sink")
@dataclass(frozen=True)
class PostgresSink:
    """A writer of tables in a PostgreSQL database.

    :param conn_id: an Airflow connection to the database.
    :param table_name: the table of each dataset, with its schema before it, which exists; `{dataset}` stands for the
        dataset's key.
    :param workspace: where rows are staged: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`.
    :param keys: the columns of a key, of which the newest row stays; empty: rows are added.
    :param delta: the column by which rows of a key are compared: the highest is the newest.
    :param schema_rule: what may change of a table's columns: `refuse`, nothing but new columns that can be null; or `add`, any
        new ones.
    :param file_bytes: the size of staged files to aim at.
    """

    conn_id: str
    table_name: str
    workspace: str
    keys: tuple[str, ...] = ()
    delta: str | None = None
    schema_rule: str = "refuse"
    file_bytes: int = 128 * MIB

    def __post_init__(self) -> None:
        why = ""
        if self.delta is not None and not self.keys:
            why = "its delta compares the rows of a key, and it has no keys"
        elif self.schema_rule not in _RULES:
            why = f"its schema_rule is {self.schema_rule!r}, and must be one of {', '.join(map(repr, _RULES))}"
        elif self.file_bytes <= 0:
            why = f"its file_bytes are {self.file_bytes}, and must be above zero"
        if why:
            subject = f"PostgresSink(table_name={self.table_name!r})"
            raise ConfigurationError(operation="use", subject=subject, cause=why)
        self._table_of("dataset")

    @property
    def target(self) -> str:
        """The workspace."""
        return self.workspace

    def folder(self, dataset: Dataset) -> str:
        """Return the folder of a dataset's dead letters."""
        return dataset_key(dataset.urn)

    def table(self, dataset: Dataset) -> PostgresTable:
        """Return a dataset's table."""
        return self._table_of(dataset_key(dataset.urn))

    def _table_of(self, key: str) -> PostgresTable:
        namespace, _, name = self.table_name.replace("{dataset}", "\0").rpartition(".")
        namespace, name = (part.replace("\0", key) for part in (namespace or DEFAULT_SCHEMA, name))
        return PostgresTable(self.conn_id, namespace, name)

    def partition_of(self, dataset: Dataset) -> tuple[PartitionField, ...]:
        """Return none: a table is partitioned by who creates it."""
        return ()

    def merge_of(self, dataset: Dataset) -> Merge | None:
        """Return how its rows take the place of others."""
        return Merge(self.keys, self.delta) if self.keys else None

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the columns of a table, by the rule.

        :raises SchemaConflictError: PostgreSQL can't hold a column, or the rule doesn't allow a change.
        """
        from airflow_gobblin.tables.arrow.schema_rules import SchemaRule, decide
        from airflow_gobblin.tables.postgres.types import fitted

        held = fitted(planned, f"dataset {urn!r}")
        return held if published is None else decide(published, held, SchemaRule(self.schema_rule), urn).schema

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> TableFiles:
        """Start the staged files of a unit.

        :param staged: their folder.
        :param published: the unit's id.
        """
        from airflow_gobblin.rows.sinks.table_files import TableFiles

        return TableFiles(schema, files, staged, published, file_bytes=self.file_bytes)

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        """Yield nothing: the table's own step publishes."""
        return iter(())
