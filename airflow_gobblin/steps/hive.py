"""The mirror step that makes a table of a Hive metastore agree with the files of a file set, through SQL on Spark's driver.

It can't be made safe from a late process: a metastore can't change a partition conditionally. So it doesn't list what to add or
drop. Each executor, however late, looks at the files as they are then, brings the table in line, and looks at both again: a late
executor of an older slot does what one of the newest slot would do.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import ConfigurationError, StepConflictError, StepError
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files.base import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HiveTableStep", "key_of"]

_AT_ONCE = 100
"""How many partitions one statement adds or drops."""
_LOOKS = 5
"""How often both are compared: the table is made, then its partitions, and others may be at work meanwhile."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_SLASHES = re.compile("^file:/+")

_Values = tuple[str, ...]


@record("hive_table_step")
@dataclass(frozen=True, slots=True)
class HiveTableStep:
    """The step that makes a table, or the part of it that is a file set's, agree with its folder.

    It makes the table if it is missing, and adds each missing partition that has files. It changes nothing else: a table or
    partition with another location is an error.

    :param columns: its columns without those of its partitions, such as `id bigint`; empty: it must exist.
    :param partitions: the columns of its partitions.
    :param format: the format of its files, as Hive names it.
    :param folder: its folder, relative to the root of the files.
    :param location: this folder, as Spark and the metastore name it.
    :param within: the folder in it whose partitions are the file set's; `.` for all.
    :param changed: the partitions in which files were placed or deleted, as folders in it; their locations are checked, too.
    :param drop: whether partitions without files are dropped.
    """

    database: str
    table: str
    columns: tuple[str, ...]
    partitions: tuple[str, ...]
    format: str
    folder: str
    location: str
    within: str = "."
    changed: tuple[str, ...] = ()
    drop: bool = False
    phase = Phase.SETTLE
    site = Site.DRIVER
    fence = None
    conflict = lost = "the metastore has something else"

    @property
    def subject(self) -> str:
        return f"Hive table '{self.database}.{self.table}'"

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.TODO if self._missing(context) else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        """Bring the table in line with its folder."""
        missing = self._missing(context)
        for _ in range(_LOOKS):
            for statement in missing:
                _hive(context).sql(statement)
            missing = self._missing(context)
            if not missing:
                return
        raise StepError(
            operation="register",
            subject=f"the partitions of {self.subject}",
            cause=f"this changes nothing, or others change it all the time: {missing[0]}",
            hint="Are the names of the folders the values, as the types of their columns write them?",
        )

    def undo(self, context: StepContext) -> None:
        """Leave it: the next slot compares table and folder."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return ()

    def _missing(self, context: StepContext) -> list[str]:
        """Return the statements that bring the table closer to its folder, as both are now; none if they agree.

        :raises StepConflictError: it is another table, or has another location.
        """
        spark = _hive(context)
        if not spark.catalog.tableExists(self._name):
            return [self._creation()]
        self._check(_described(spark, self._name))
        if not self.partitions:
            return []
        registered = self._registered(spark)
        present = self._present(context.files, registered)
        adding = [folder for values, folder in present.items() if values not in registered]
        gone = sorted(registered - present.keys()) if self.drop else []
        dropping = [values for values in gone if self._is_ours(spark, values)]
        if not adding and not dropping:
            self._check_changed(spark, registered & present.keys())
        return [*self._additions(adding), *self._removals(dropping)]

    @property
    def _name(self) -> str:
        return f"`{self.database}`.`{self.table}`"

    @property
    def _keys(self) -> tuple[str, ...]:
        return tuple(map(key_of, self.partitions))

    def _creation(self) -> str:
        if not self.columns:
            raise StepError(
                operation="register",
                subject=self.subject,
                cause="there is no such table, and its columns aren't known",
                hint="Create it as an external table, or give `columns`.",
            )
        partitioned = f" PARTITIONED BY ({_definitions(self.partitions)})" if self.partitions else ""
        return (
            f"CREATE EXTERNAL TABLE IF NOT EXISTS {self._name} ({_definitions(self.columns)}){partitioned} "
            f"STORED AS {self.format} LOCATION {_literal(self.location)}"
        )

    def _check(self, table: Mapping[str, Any]) -> None:
        """Make sure that a table is this one, and that nothing done to it deletes files."""
        keys, found = self._keys, tuple(table.get("partition_columns", ()))
        purge = str(table.get("table_properties", {}).get("external.table.purge", ""))
        if table.get("type") != "EXTERNAL" or purge.lower() == "true":
            cause = "it owns its files, and deletes them when it or a partition is dropped"
            raise self._conflict(cause, "Make it an external table, without the property external.table.purge.")
        if found != keys:
            has = ", ".join(found) or "none"
            raise self._conflict(f"the columns of its partitions are {has}, and not {', '.join(keys) or 'none'}")
        self._check_location("it", table["location"], self.location)

    def _check_changed(self, spark: SparkSession, registered: set[_Values]) -> None:
        """Make sure that the partitions in which files were placed have the location that the files were placed in.

        :param registered: the values of those that the table has.
        """
        for folder in self.changed:
            values = _values(folder)
            if values in registered:
                self._check_location(f"partition {folder!r}", self._found_at(spark, values), self._at(folder))

    def _check_location(self, what: str, found: str, expected: str) -> None:
        if _plain(found) != _plain(expected):
            raise self._conflict(f"{what} has the location {found!r}, and not {expected!r}")

    def _conflict(self, cause: str, hint: str = "Register another table, or correct that one.") -> StepConflictError:
        return StepConflictError(operation="register", subject=self.subject, cause=cause, hint=hint)

    def _registered(self, spark: SparkSession) -> set[_Values]:
        """Return the values of the file set's partitions that the table has."""
        scope = "" if self.within == "." else f" PARTITION ({self._spec(_values(self.within))})"
        return {_values(row[0]) for row in spark.sql(f"SHOW PARTITIONS {self._name}{scope}").collect()}

    def _present(self, files: Files, registered: set[_Values]) -> dict[_Values, str]:
        """Return the folders of the file set's partitions that have at least one file, by their values.

        :param registered: those that the table has; they aren't looked into unless others are to be dropped.
        """
        found: dict[_Values, str] = {}
        for folder in self._partition_folders(files):
            other = found.setdefault(_values(folder), folder)
            if other != folder:
                raise self._conflict(f"the folders {other!r} and {folder!r} are one partition", "Rename one of them.")
        doubtful = [folder for values, folder in found.items() if self.drop or values not in registered]
        for folder, filled in zip(doubtful, files.filled([_joined(self.folder, one) for one in doubtful]), strict=True):
            if isinstance(filled, OSError):
                raise filled
            if not filled:
                del found[_values(folder)]
        return found

    def _partition_folders(self, files: Files) -> list[str]:
        found = [self.within]
        for key in self._keys[len(_parts(self.within)) :]:
            below = ((above, name) for above in found for name in files.folders(_joined(self.folder, above)))
            found = [_joined(above, name) for above, name in below if name.partition("=")[0].lower() == key]
        return [folder for folder in found if folder != "."]

    def _is_ours(self, spark: SparkSession, values: _Values) -> bool:
        """Return whether a partition has a location in the table's folder: others are somebody else's."""
        return _plain(self._found_at(spark, values)).startswith(f"{_plain(self.location)}/")

    def _found_at(self, spark: SparkSession, values: _Values) -> str:
        return str(_described(spark, f"{self._name} PARTITION ({self._spec(values)})")["location"])

    def _additions(self, folders: Iterable[str]) -> Iterator[str]:
        parts = (f"PARTITION ({self._spec(_values(one))}) LOCATION {_literal(self._at(one))}" for one in folders)
        for some in _some_at_once(parts):
            yield f"ALTER TABLE {self._name} ADD IF NOT EXISTS {' '.join(some)}"

    def _removals(self, gone: Iterable[_Values]) -> Iterator[str]:
        for some in _some_at_once(f"PARTITION ({self._spec(values)})" for values in gone):
            yield f"ALTER TABLE {self._name} DROP IF EXISTS {', '.join(some)}"

    def _at(self, folder: str) -> str:
        return f"{self.location}/{folder}"

    def _spec(self, values: Sequence[str]) -> str:
        """Return values of the first partition columns in SQL."""
        pairs = zip(self._keys, values, strict=False)
        return ", ".join(f"`{key}` = {'null' if value == _NULL else _literal(value)}" for key, value in pairs)


def key_of(column: str) -> str:
    """Return the name of a column such as `id bigint`, as a metastore keeps it."""
    return column.split(maxsplit=1)[0].lower()


def _hive(context: StepContext) -> SparkSession:
    """Return the session, if its tables are those of a Hive metastore.

    :raises ConfigurationError: they aren't, or there is none.
    """
    catalog = "" if context.spark is None else context.spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    if context.spark is None or catalog != "hive":
        raise ConfigurationError(
            operation="reach",
            subject="the Hive metastore",
            cause="there is no Spark here"
            if context.spark is None
            else f"Spark's catalog is {catalog!r}, and not 'hive'",
            hint="Set spark.sql.catalogImplementation to hive and spark.hadoop.hive.metastore.uris to thrift://host:9083: in "
            "`SparkOptions(conf={…})`, or where Spark's own settings are.",
        )
    return context.spark


def _described(spark: SparkSession, what: str) -> dict[str, Any]:
    """Return the metastore's description of a table or a partition."""
    described: dict[str, Any] = json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {what} AS JSON").collect()[0][0])
    return described


def _definitions(columns: Iterable[str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in (column.split(maxsplit=1) for column in columns))


def _literal(text: str) -> str:
    """Return a text in SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _plain(location: str) -> str:
    """Return a location in a form in which all locations of one folder are equal."""
    return _SLASHES.sub("file:/", location).rstrip("/")


def _parts(folder: str) -> list[str]:
    return [] if folder == "." else folder.split("/")


def _joined(above: str, name: str) -> str:
    return posixpath.normpath(f"{above}/{name}")


def _values(folder: str) -> _Values:
    """Return the values of a partition's folder, such as `dt=2026-01-01/hour=3`, in which Hive escapes some characters."""
    named = (part.partition("=")[2] for part in _parts(folder))
    return tuple(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), value) for value in named)


def _some_at_once(parts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(parts)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
