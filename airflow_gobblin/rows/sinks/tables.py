"""The common parts of the sinks of tables: workspaces, tables' names, rules of columns, and, in a lake, data files that stay.

Light to import, as sinks are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError
from airflow_gobblin.model.naming import dataset_key, table_key
from airflow_gobblin.model.work import Dataset, UnitResult
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.port import PartitionField, SchemaRule

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.rows.sinks.delta import DeltaSink
    from airflow_gobblin.rows.sinks.iceberg import IcebergSink
    from airflow_gobblin.rows.sinks.table_files import TableFiles

__all__ = ["SchemaRules", "SinkOfTables", "check_lake", "check_there", "named", "open_data_files", "rules_of"]

SchemaRules = SchemaRule | Mapping[str, SchemaRule]
"""One rule for the tables of all datasets; or one by a dataset's URN, where others have `SchemaRule.REFUSE`."""

_DATASET = "{dataset}"
_PLACE = re.compile(r"\{[^{}]*\}")


def named(template: str, urn: str) -> str:
    """Return the name of a dataset's table.

    :param template: a name in which `{dataset}` represents the dataset's key.
    :raises ConfigurationError: something else is in braces.
    """
    for found in _PLACE.findall(template):
        if found != _DATASET:
            raise ConfigurationError(
                operation="name",
                subject=f"the tables {template!r}",
                cause=f"{found} is not a placeholder",
                hint=f"Write {_DATASET} where the dataset's key is to be.",
            )
    return template.replace(_DATASET, table_key(urn))


def rules_of(given: SchemaRules | str | Mapping[str, str]) -> SchemaRules:
    """Return rules that may be given by their names.

    :raises ConfigurationError: there is no such rule.
    """
    try:
        if isinstance(given, Mapping):
            return {urn: SchemaRule(rule) for urn, rule in given.items()}
        return SchemaRule(given)
    except ValueError as error:
        raise ConfigurationError(
            operation="use",
            subject=f"schema_rule={given!r}",
            cause=error,
            hint=f"Give one of {', '.join(repr(rule.value) for rule in SchemaRule)}, or a mapping of URNs to these.",
        ) from error


class SinkOfTables:
    """The part of a `TableSink` that is the same for every format.

    :ivar workspace: the target root: where plans, claims and dead letters are.
    :ivar schema_rule: what may change in the tables' columns.
    """

    workspace: str
    schema_rule: SchemaRules

    @property
    def target(self) -> str:
        """The workspace."""
        return self.workspace

    def folder(self, dataset: Dataset) -> str:
        """Return the dataset's folder in the workspace, for its dead letters."""
        return dataset_key(dataset.urn)

    def rule_of(self, dataset: Dataset) -> SchemaRule:
        """Return what may change in its table's columns."""
        rules = self.schema_rule
        return rules if isinstance(rules, SchemaRule) else rules.get(dataset.urn, SchemaRule.REFUSE)

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        """Yield nothing: the table's own step publishes."""
        return iter(())


def check_lake(sink: IcebergSink | DeltaSink, subject: str) -> None:
    """Check a sink's settings for its data files.

    :param subject: the sink, in the words of errors.
    :raises ConfigurationError: a number is out of its range.
    """
    if sink.file_bytes <= 0 or not 1 <= sink.compression_level <= 22:
        raise ConfigurationError(
            operation="use", subject=subject, cause="file_bytes or compression_level is out of its range"
        )


def check_there(columns: Iterable[str], use: str, schema: pa.Schema, name: str) -> None:
    """Check that the columns that a table is to be partitioned or sorted by are there.

    :param use: what is done by them.
    :param name: the dataset, in the words of errors.
    :raises SchemaConflictError: one isn't.
    """
    for column in columns:
        if column not in schema.names:
            raise SchemaConflictError(
                operation="plan",
                subject=f"column {column!r} of {name}",
                cause=f"its table is to be {use} by it, and it isn't there",
                hint="Keep that column, or use others.",
            )


def open_data_files(
    sink: IcebergSink | DeltaSink,
    partition: Sequence[PartitionField],
    schema: pa.Schema,
    files: Files,
    folder: str,
    unit: str,
    check: Callable[[pa.RecordBatch, str], None] | None = None,
) -> TableFiles:
    """Start the data files of a unit, where they stay.

    :param folder: their folder.
    :param check: as in `TableFiles`.
    """
    from airflow_gobblin.rows.sinks.table_files import TableFiles

    return TableFiles(
        schema,
        files,
        folder,
        unit,
        partition=partition,
        file_bytes=sink.file_bytes,
        compression_level=sink.compression_level,
        sort=[(column, True) for column in sink.sort],
        check=check,
    )
