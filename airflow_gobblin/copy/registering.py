"""Registrations, which make a published file set known elsewhere, such as to a catalog of tables, once its files are placed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, Protocol, runtime_checkable

from airflow_gobblin.copy.bundles import Bundle
from airflow_gobblin.copy.finders import parts_of
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitResult
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.hive import HiveTableStep, key_of
from airflow_gobblin.storage.locations import HDFS_SCHEMES, local_path, path_below, remote_location
from airflow_gobblin.storage.parsed_connection import ParsedConnection

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections

_NAME = re.compile(r"\w+", re.ASCII)
_COLUMN = re.compile(r"\w+\s+[\w<>(),:\s]+", re.ASCII)
_PARTS = ("dataset", "set")
_FORMATS = ("parquet", "orc", "avro", "textfile", "sequencefile", "rcfile")
_HIDDEN = ("_", ".")

_Copied = tuple[Bundle, UnitResult]


@dataclass(frozen=True)
class PlacedFileSet:
    """A file set whose files are placed.

    :param dataset: the URN of its dataset.
    :param name: its name in the dataset.
    :param target: the mirror's target.
    :param workspace: the mirror's workspace, below which the files of steps lie.
    :param folder: its folder below the target; `.` for the root.
    :param changed: the folders in it, `.` for itself, in which files were placed or deleted. Files don't count if their name, or
        that of a folder on the way, begins with `_` or `.`: engines that read tables leave them out.
    """

    dataset: str
    name: str
    target: str
    workspace: str
    folder: str
    changed: frozenset[str] = field(default_factory=frozenset)

    def below_workspace(self, folder: str) -> str:
        """Return a folder of the target as steps name it: below the workspace."""
        above = path_below(self.workspace, self.target) or "."
        return above if folder == "." else joined(above, folder)


@runtime_checkable
class Registration(Protocol):
    """A way to make published file sets known elsewhere: a frozen dataclass, registered with `record`, without secrets."""

    @property
    def site(self) -> Site:
        """Where its steps are carried out: on the driver if they need Spark."""

    def steps(self, placed: PlacedFileSet) -> Iterable[CommitStep]:
        """Return the steps, of the phase `settle`, that register a file set. Also called at planning, with nothing changed.

        They may be repeated at any time, even by a late process after newer slots. So each makes the registration agree with the
        files as they are by then.

        :raises ConfigurationError: it can't be registered under its names.
        """


@runtime_checkable
class ConnectedRegistration(Registration, Protocol):
    """A registration whose steps need a Spark with settings of its own, which come from a connection."""

    def settings(self, connections: Connections) -> Mapping[str, str]:
        """Return the settings that Spark must start with, without secrets, as they are on its command line.

        :raises ConfigurationError: the connection is missing, or isn't fit for it.
        """


@record("hive_table")
@dataclass(frozen=True)
class HiveTable:
    """Register file sets as external tables, or as partitions of one, in the Hive metastore of Spark's driver.

    The folders of partitions are named as in Hive, `dt=2026-01-01/hour=3`. The table's folder is the file set's without them, so
    the file set may be a whole table, or one partition of it.

    :param database: it must exist.
    :param table: a name, in which `{dataset}` and `{set}` represent the URN of the dataset and the name of the file set in it.
    :param columns: the columns in the files: `("id bigint", "name string")`. Without them, the table must exist.
    :param partitions: the columns that folders are named for: `("dt date",)`.
    :param format: as Hive's `STORED AS`: parquet, orc, avro, textfile, sequencefile, rcfile.
    :param location: the mirror's target as Spark and the metastore name it, such as `hdfs://namenode:8020/lake`. By default a
        disk's `file:/…`, or `s3a://…`.
    :param drop: whether partitions without files are dropped.
    :param conn_id: the connection of the metastore, of type `hive_metastore`: its host and port are given to Spark. Without it,
        the metastore is the one that Spark knows.
    :raises ConfigurationError: a name, a column or the format is invalid.
    """

    database: str
    table: str
    columns: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    format: str = "parquet"
    location: str = ""
    drop: bool = False
    conn_id: str = ""

    def __post_init__(self) -> None:
        try:
            parts_of(self.table, _PARTS)
        except ValueError as error:
            self._refuse(f"table={self.table!r}", error, "Write a name, or one with {dataset} or {set}.")
        if not _NAME.fullmatch(self.database):
            self._refuse(f"database={self.database!r}", "it can't name a database")
        if self.format not in _FORMATS:
            self._refuse(
                f"format={self.format!r}", f"it is none of {', '.join(_FORMATS)}", "Create other tables yourself."
            )
        for name, columns in (("columns", self.columns), ("partitions", self.partitions)):
            if not all(_COLUMN.fullmatch(column) for column in columns):
                self._refuse(f"{name}={columns!r}", "it is not a tuple of columns", f"Write {name}=('dt date',).")

    @property
    def site(self) -> Site:
        """The driver, whose Spark knows the metastore."""
        return Site.DRIVER

    def settings(self, connections: Connections) -> dict[str, str]:
        """Return Spark's settings for the metastore of the connection; none without one.

        :raises ConfigurationError: it is missing, or of another type, or has no host.
        """
        if not self.conn_id:
            return {}
        found = ParsedConnection(self.conn_id, connections.uri(self.conn_id))
        found.expect("hive_metastore")
        if not found.host:
            raise found.unfit("it names no host", f"Give the metastore's host, and its port if it isn't {_PORT}.")
        uris = ",".join(f"thrift://{host}:{found.port or _PORT}" for host in found.host.split(","))
        return {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": uris}

    def steps(self, placed: PlacedFileSet) -> Iterator[CommitStep]:
        """Yield the step that makes the table agree with the file set's folder."""
        name = self.table.format_map({"dataset": placed.dataset, "set": placed.name})
        if not _NAME.fullmatch(name):
            self._refuse(f"table {name!r}", "it can't name a table", "It has letters, digits and '_' only.")
        folder, within = self._split(placed.folder)
        location = self._location(placed.target)
        changed = {
            self._partition(one if within == "." else posixpath.normpath(f"{within}/{one}")) for one in placed.changed
        }
        yield HiveTableStep(
            self.database,
            name.lower(),
            self.columns,
            self.partitions,
            self.format,
            placed.below_workspace(folder),
            location if folder == "." else f"{location}/{folder}",
            within,
            tuple(sorted(changed - {"."})),
            self.drop,
        )

    @property
    def _keys(self) -> list[str]:
        return [*map(key_of, self.partitions)]

    def _split(self, folder: str) -> tuple[str, str]:
        """Return a table's folder, and the file set's folder relative to it; `.` for the table's own."""
        parts = [] if folder == "." else folder.split("/")
        named = [part.partition("=")[0].lower() for part in parts]
        for count in range(min(len(self._keys), len(parts)), 0, -1):
            if named[-count:] == self._keys[:count]:
                return "/".join(parts[:-count]) or ".", "/".join(parts[-count:])
        return folder, "."

    def _partition(self, folder: str) -> str:
        """Return the partition that a folder of the table is in; `.` for a folder above all partitions."""
        keys = self._keys
        parts = [] if folder == "." else folder.split("/")[: len(keys)]
        if [part.partition("=")[0].lower() for part in parts] != keys[: len(parts)]:
            expected = "/".join(f"{key}=…" for key in keys)
            self._refuse(
                f"folder {folder!r} of a table", f"it is not a partition {expected}", "Exclude it, or rename it."
            )
        return "/".join(parts) if len(parts) == len(keys) and parts else "."

    def _location(self, target: str) -> str:
        """Return the target as Spark and the metastore name it, without a slash at its end."""
        if self.location:
            return self.location.rstrip("/")
        place = remote_location(target)
        if place is None:
            path = local_path(target, operation="use", subject=f"target {target!r}")
            return f"file:{posixpath.normpath(path)}"
        if place.scheme in HDFS_SCHEMES:
            self._refuse(
                f"target {target!r}", "Spark knows it by another name", "Give location='hdfs://namenode:8020/…'."
            )
        return f"{_SCHEMES.get(place.scheme, place.scheme)}{place.url.removeprefix(place.scheme)}"

    def _refuse(self, subject: str, cause: str | Exception, hint: str = "Correct it.") -> NoReturn:
        raise ConfigurationError(operation="register", subject=f"{subject} by HiveTable", cause=cause, hint=hint)


_SCHEMES = {"s3": "s3a"}
_PORT = 9083
"""The usual port of a metastore."""


def registered(
    copied: Iterable[_Copied],
    steps_of: Callable[[Iterable[_Copied]], Iterable[CommitStep]],
    registration: Registration | None,
    placed: PlacedFileSet,
) -> Iterator[CommitStep]:
    """Yield the steps of a file set, and then those that register it, if it is to be registered.

    :param copied: each bundle, with the result of its unit; read once.
    :param steps_of: returns the steps that place and delete files.
    """
    if registration is None:
        yield from steps_of(copied)
        return
    changed: set[str] = set()
    yield from steps_of(_noting(copied, changed))
    yield from registration.steps(replace(placed, changed=frozenset(changed)))


def _noting(copied: Iterable[_Copied], changed: set[str]) -> Iterator[_Copied]:
    """Yield bundles, and note the folders in which they place and delete files."""
    for bundle, result in copied:
        paths = (*(file.entry.path for file in bundle.files), *(one.path for one in bundle.deletes))
        changed.update(posixpath.dirname(path) or "." for path in paths if not _is_hidden(path))
        yield bundle, result


def _is_hidden(path: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.split("/"))
