"""The vocabulary of tables as targets: the owner of a table, the marks of slots in it, and the data files staged for it.

The port itself, and the step that commits, are in the package `tables`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.wire import record


@dataclass(frozen=True)
class Owner:
    """The dataset that a table belongs to.

    :param journal: the id of its journal, which no other journal ever has.
    """

    journal: str
    ingestion: str
    urn: str

    @cached_property
    def key(self) -> str:
        """A digest of the three fields, each preceded by its length: 32 hexadecimal digits, for names of properties and of
        application transactions, and for rows.
        """
        parts = (part.encode() for part in (self.journal, self.ingestion, self.urn))
        return hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()[:32]

    def __str__(self) -> str:
        return f"dataset {self.urn!r} of ingestion {self.ingestion!r}, journal {self.journal}"


@dataclass(frozen=True)
class Mark:
    """The mark that the newest slot left in its dataset's table: it committed (done), or was shut out there (not done).

    Slots of one dataset mark its table in order. A mark is never removed, neither by dropping the dataset nor by trimming.
    """

    slot: int
    token: str
    done: bool

    def __str__(self) -> str:
        return f"slot {self.slot} ({self.token}, {'committed' if self.done else 'abandoned'})"


@dataclass(frozen=True)
class SlotOfStep:
    """The slot that a step is carried out for. Steps receive it; none has it on record.

    :param previous: the mark that the dataset's table must have until then: the one from the newest earlier slot of the chain
        that committed to the table, or was shut out there; `None` if there was none.
    :param asked: whether a person asked to abandon it.
    """

    owner: Owner
    slot: int
    token: str
    previous: Mark | None = None
    asked: bool = False

    @property
    def done(self) -> Mark:
        """The mark that it leaves by committing."""
        return Mark(self.slot, self.token, done=True)

    @property
    def abandoned(self) -> Mark:
        """The mark that shuts it out."""
        return Mark(self.slot, self.token, done=False)


class TableRecord(Protocol):
    """A record that names a table, as plans and decisions keep it: frozen, registered with `wire.record`, without secrets.

    The module that registers it loads neither Arrow nor the format's library: every reader of a journal imports it.
    """

    @property
    def name(self) -> str:
        """Its name in errors, such as `table 'raw.flights' of catalog 'lake_catalog'`; no two tables share one."""

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections needed to open it."""


@dataclass(frozen=True)
class TableTarget:
    """The table that a plan or a decision is for, as it was found when it was planned.

    :param id: its id then. A table of that name with another id is another table.
    :param location: the root that its data files are staged below, in the form of an ingestion's target: an absolute path, a
        `file://` URL or `s3://[connection@]bucket/prefix`. Empty: they are staged in the workspace, below the token's folder.
    :param form: its form then, see `Look.form`.
    """

    table: TableRecord
    id: str
    location: str = ""
    form: str = ""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The known facts about the values of a column of a data file. Unknown ones are `None`.

    :param bytes: its size in the file.
    :param values: how many values it has, nulls and NaNs included.
    :param low: the lowest value, in the form that `tables/arrow/statistics.py` gives its type; the bound needn't be tight.
    """

    bytes: int | None = None
    values: int | None = None
    nulls: int | None = None
    nans: int | None = None
    low: Json = None
    high: Json = None


@record("data_file")
@dataclass(frozen=True, slots=True)
class DataFile:
    """A file staged for a table, with all that its format needs for the commit, collected while it was written.

    No table refers to it before the commit, and it keeps its name for good.

    :param path: below `TableTarget.location`: `data/gobblin/<token>/<attempt>/<unit>-<random>/<n>.parquet`; where that is empty,
        below the root of the workspace.
    :param unit: the work unit whose rows, and only those, it has.
    :param partition: one value per field of the table's partition, already transformed, in the form that
        `tables/arrow/statistics.py` gives its type; null is `None`.
    :param columns: by the name of the column; for a nested one, by its path with dots.
    """

    path: str
    size: int
    rows: int
    unit: str
    partition: tuple[Json, ...] = ()
    columns: Mapping[str, ColumnStatistics] | None = None


@dataclass(frozen=True, slots=True)
class TableUnit:
    """A unit in a table, as its slot published it: exactly that must leave the table with it.

    :param token: the token of the slot that published it. With the unit it shows which files, or rows, belong to it.
    """

    token: str
    unit: str
    files: int
    rows: int
