"""The port of tables: what a format must do for `TableCommitStep`, which does the rest.

Rules for implementations, all of which `airflow_gobblin.testing.tables.TableContract` checks:

* The library's own retries are off: one call of `commit` is one attempt. A retry that rebuilds a commit publishes twice.
* `look` and `commit` use one handle, or `commit` requires of the table what `look` saw: the head, the mark, the form.
* An error is never taken for "nothing happened". Only `TableMovedError` means that, for this call and for good.
* Every commit of ours, including a fence, is a new version of the table. We never set the table back.
* Somebody else's commit isn't in the way: `commit` either merges with it, or raises `TableMovedError` and succeeds on a new look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.table import (
    ColumnStatistics,
    DataFile,
    Mark,
    Owner,
    SlotOfStep,
    TableRecord,
    TableTarget,
    TableUnit,
)
from airflow_gobblin.storage.files.base import Files

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

__all__ = [
    "Change",
    "ChangesColumnsApart",
    "ColumnStatistics",
    "Count",
    "DataFile",
    "Look",
    "Mark",
    "Merge",
    "OpenTable",
    "Owner",
    "PartitionField",
    "ReadBySpark",
    "SchemaRule",
    "SlotOfStep",
    "SparkSource",
    "Table",
    "TableRecord",
    "TableTarget",
    "TableUnit",
    "table_of",
]


@dataclass(frozen=True)
class PartitionField:
    """A field of a table's partition.

    :param transform: `identity`, `year`, `month`, `day`, `hour`, `bucket`, `truncate`.
    :param width: the number of buckets, or the width to truncate to.
    """

    column: str
    transform: str = "identity"
    width: int = 0

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"


class SchemaRule(StrEnum):
    """How the columns of a table may change; `tables/arrow/schema_rules.py` applies it."""

    REFUSE = "refuse"
    """Nothing but a new column that can be null."""
    ADD = "add"
    """Also a new column that the source declares never null: it is added as one that can be null, since older rows have none."""
    WIDEN = "widen"
    """All that `ADD` allows; a column also takes a wider type of its kind, and nulls, where the format can do that to a table."""


@dataclass(frozen=True)
class Merge:
    """How rows replace those with their key: of each key, the newest version stays.

    :param keys: the columns of the key; none of them is null.
    :param delta: the column by which versions are compared; `None`: by positions alone.
    :param positions: the columns, kept in the table, that decide ties: the higher one is newer; two equal ones are one version.
    """

    keys: tuple[str, ...]
    delta: str | None = None
    positions: tuple[str, ...] = ()

    @property
    def versions(self) -> tuple[str, ...]:
        """The columns by which two rows of a key are compared, in order, each once."""
        return tuple(dict.fromkeys((*(() if self.delta is None else (self.delta,)), *self.positions)))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns to merge by."""
        return tuple(dict.fromkeys((*self.keys, *self.versions)))


@dataclass(frozen=True)
class Look:
    """One consistent look at a table.

    :param id: the table's id: it changes if a table of its name is made again. Empty: the catalog answers that there is none.
    :param owner: whose table it is, as the table itself records; `None`: nobody's yet.
    :param mark: the mark of the owner that looks; `None`: it never left one here.
    :param in_history: whether the commit of that mark is still in the table's history: nobody set the table back to before it.
        One that merely expired counts as in it; so does everything before the first mark.
    :param form: a value for comparing: it changes if and only if somebody changes the table's columns or its partition.
    :param location: the root for data files, as in `TableTarget`.
    :param schema: its columns, as Arrow.
    :param partition: its partition.
    :param version: people's name for this version of it, such as a snapshot's id or a number.
    :param left: people's name for the version that the mark's commit left; empty: there is none, or the format has no versions.
    :param at: the state that `commit` must find unchanged: only the implementation reads it.
    """

    id: str
    owner: Owner | None = None
    mark: Mark | None = None
    in_history: bool = True
    form: str = ""
    location: str = ""
    schema: pa.Schema | None = None
    partition: tuple[PartitionField, ...] = ()
    version: str = ""
    left: str = ""
    at: object = None

    @property
    def target_at(self) -> tuple[str, str, str]:
        """The table's id, location and form, as a `TableTarget` keeps them."""
        return self.id, self.location, self.form


@dataclass(frozen=True)
class Change:
    """The effect of a commit on a table, besides moving the mark. By default it has none: it is a fence, or a slot without rows.

    :param files: yields the data files to add, streamed from where they are listed; each call starts over.
    :param count: how many files that are, and `rows` how many rows.
    :param removes: the units that leave: all files whose path has their token and unit, or all rows that have it. If their number
        isn't the one recorded there, the commit raises a `TableError` and does nothing.
    :param removes_all: whether everything in the table leaves, including what others put there.
    :param merge: how the rows replace others; `None`: they are added.
    :param schema: the columns that the table is to have from this commit on; `None`: it keeps those it has. Files are written by
        it.
    :param form: the form that the table must have before; the step compares `look.form` with it.
    """

    files: Callable[[], Iterator[DataFile]] = lambda: iter(())
    count: int = 0
    rows: int = 0
    removes: tuple[TableUnit, ...] = ()
    removes_all: bool = False
    merge: Merge | None = None
    schema: pa.Schema | None = None
    form: str = ""

    @property
    def empty(self) -> bool:
        """Whether it does nothing but move the mark."""
        return not (self.count or self.removes or self.removes_all) and self.schema is None


@dataclass(frozen=True)
class Count:
    """How much of something a table has."""

    files: int = 0
    rows: int = 0


class OpenTable(Protocol):
    """An open table, used in one thread. Its errors are shown with the table's name before them."""

    def look(self, owner: Owner) -> Look:
        """Look at the table, always afresh and never from a cache.

        :param owner: the dataset that looks, whose mark is read.
        :raises TableError: it can't be looked at: the catalog doesn't answer, or refuses. "There is no such table" is an answer.
        """

    def create(self, owner: Owner, schema: pa.Schema, partition: tuple[PartitionField, ...]) -> None:
        """Create the table for its owner, empty, unless one exists by then. The caller looks afterwards.

        :raises TableError: it can't be created, or it isn't known whether it was.
        """

    def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        """Carry out a change and put a mark in place of `look.mark`, all in ONE atomic act, once.

        The act takes hold only if the table's id, its owner, `owner`'s mark and the form are still as in `look`. It makes the
        table `owner`'s if it was nobody's, and leaves it another dataset's if the change is empty: then it only moves the mark.
        The caller has compared `look` with what it expects.

        :raises TableMovedError: certainly nothing happened, nor will it: something is no longer as in `look`. Look again.
        :raises Exception: any other error leaves open what happened, except as described at `Change.removes`: look.
        """

    def take_over(self, look: Look, owner: Owner, mark: Mark | None = None) -> None:
        """Give the table to another dataset, `owner`, in one atomic act. After it, no commit of the former owner (`look.owner`)
        takes hold, however late.

        :param mark: put in place of `owner`'s mark in the same act; `None` leaves it.

        :raises TableMovedError: as `commit`.
        """

    def count(self, units: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Count]:
        """Count what the table has of some units, each a token and a unit's id, in one consistent look. A unit without anything
        there has no entry; nor does one that can't be distinguished, since somebody compacted or merged it.
        """

    def total(self) -> Count:
        """Count all that the table has."""

    def read(self, version: str = "") -> ds.Dataset:
        """Return the table's rows as an Arrow dataset, with the columns that are published.

        :param version: as `Look.left` names it; empty: as it is now.
        :raises NotFoundError: the version no longer exists, or the format has none.
        :raises TableError: it can't be read.
        """

    def files(self) -> Iterator[str]:
        """Yield the data files that the table has now: those at its location by their paths below it, others by absolute paths or
        URLs. It yields none where a commit takes the rows.
        """


@runtime_checkable
class ChangesColumnsApart(Protocol):
    """An open table whose columns can't be changed by the commit that merges rows: they are changed before, at planning."""

    def change_columns(self, look: Look, owner: Owner, schema: pa.Schema) -> None:
        """Give the table the columns of a schema, in one atomic act that changes nothing else.

        :raises TableMovedError: as `OpenTable.commit`.
        """


@dataclass(frozen=True)
class SparkSource:
    """The source through which Spark reads a table.

    :param format: the name of Spark's data source.
    :param jar: the Maven artifact that brings it, without its version.
    :param path: the path that it loads.
    :param version: which version of it, as Spark's option `versionAsOf`; empty: as it is now.
    """

    format: str
    jar: str
    path: str
    version: str = ""


@runtime_checkable
class ReadBySpark(Protocol):
    """An open table that Spark can read itself, given a jar."""

    def in_spark(self, version: str = "") -> SparkSource:
        """Return the source through which Spark reads it. The parameter and the errors are those of `OpenTable.read`."""


class Table(TableRecord, Protocol):
    """A table as its format names it: an `IcebergTable`, for example. `TableRecord` describes what holds for its record."""

    def open(self, connections: Connections, files: Files) -> OpenTable:
        """Open the table. Libraries are imported here.

        :param files: the file system of the workspace.
        :raises MissingExtraError: a library isn't installed.
        :raises TableError: the catalog or the server can't be reached.
        """


def table_of(record: TableRecord) -> Table:
    """Return the table that a record names.

    :raises ConfigurationError: it can't be opened.
    """
    if not callable(getattr(record, "open", None)):
        raise ConfigurationError(operation="open", subject=record.name, cause="its record has no method `open`")
    return cast("Table", record)
