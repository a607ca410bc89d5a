"""Converters of columns: rename, drop, add a constant.

DAG files import this module, so Arrow is loaded only when columns are converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.wire import record

if TYPE_CHECKING:
    import pyarrow as pa


def require(columns: Iterable[str], schema: pa.Schema, who: object) -> None:
    """Check that a schema has these columns, for a converter or row check named `who`.

    :raises ConfigurationError: it lacks one.
    """
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise ConfigurationError(
            operation="apply",
            subject=repr(who),
            cause=f"there is no column {', '.join(map(repr, missing))} among {schema.names}",
            hint="Correct its name, or the order of the converters.",
        )


@record("rename_columns")
@dataclass(frozen=True)
class RenameColumns:
    """A converter that renames columns: `names` maps the old name to the new one."""

    names: Mapping[str, str]

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        """Return the schema with the new names.

        :raises ConfigurationError: a column is missing, or two would have one name.
        """
        import pyarrow as pa

        require(self.names, incoming, self)
        renamed = self._renamed(incoming)
        twice = sorted({name for name in renamed if renamed.count(name) > 1})
        if twice:
            raise ConfigurationError(
                operation="apply",
                subject=repr(self),
                cause=f"two columns would be named {', '.join(map(repr, twice))}",
                hint="Choose a name that is free, or drop the other column before.",
            )
        return pa.schema([field.with_name(name) for field, name in zip(incoming, renamed, strict=True)])

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch under the new names."""
        return batch.rename_columns(self._renamed(batch.schema))

    def _renamed(self, incoming: pa.Schema) -> list[str]:
        return [self.names.get(name, name) for name in incoming.names]


@record("drop_columns")
@dataclass(frozen=True)
class DropColumns:
    """A converter that drops columns."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        check_tuples(self)

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        """Return the schema without the columns.

        :raises ConfigurationError: a column is missing.
        """
        import pyarrow as pa

        require(self.columns, incoming, self)
        return pa.schema([field for field in incoming if field.name not in self.columns])

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch without the columns."""
        return batch.drop_columns(list(self.columns))


@record("add_column")
@dataclass(frozen=True)
class AddColumn:
    """A converter that adds a last column with one value in every row; text, int64, double or boolean by the value's type."""

    name: str
    value: str | int | float | bool

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        """Return the schema with the column.

        :raises ConfigurationError: there is a column of this name.
        """
        import pyarrow as pa

        if self.name in incoming.names:
            raise ConfigurationError(
                operation="apply",
                subject=repr(self),
                cause=f"there is a column {self.name!r} already",
                hint="Choose a name that is free, or drop or rename the other column before.",
            )
        return incoming.append(pa.field(self.name, pa.scalar(self.value).type))

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the column."""
        import pyarrow as pa

        return batch.append_column(self.name, pa.repeat(self.value, batch.num_rows))
