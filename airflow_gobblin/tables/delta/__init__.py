"""A Delta table, as plans and decisions name it. `table.py` opens it and loads Arrow and deltalake; this module doesn't."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError, MissingExtraError
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.locations import OBJECT_SCHEMES, ObjectLocation, local_path, object_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections
    from airflow_gobblin.storage.files.base import Files
    from airflow_gobblin.tables.port import OpenTable

__all__ = ["MERGED_BYTES", "DeltaLakeTable"]

MERGED_BYTES = 256 << 20
"""The most bytes that one slot merges into a table that has rows: they are merged on the worker, in memory."""


@record("delta_table")
@dataclass(frozen=True)
class DeltaLakeTable:
    """A Delta table, by its folder.

    :param location: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`.
    """

    location: str

    def __post_init__(self) -> None:
        place = object_location(self.location)
        if place is None:
            local_path(self.location, operation="use", subject=f"Delta table {self.location!r}")
        elif place.scheme != "s3":
            raise ConfigurationError(
                operation="use",
                subject=f"Delta table {place.url!r}",
                cause=f"Delta tables aren't written to {place.scheme}://, where that was never tested",
                hint="Give a path on a disk, or 's3://connection@bucket/prefix'.",
            )

    @property
    def place(self) -> ObjectLocation | None:
        """Its location in an object store; `None` if it is on a disk."""
        return object_location(self.location)

    @property
    def url(self) -> str:
        """Its folder, without the connection; on a disk, as a path."""
        place = self.place
        if place is not None:
            return place.url
        return str(local_path(self.location, operation="use", subject="a Delta table"))

    @property
    def name(self) -> str:
        """The table, named by its folder."""
        return f"Delta table {self.url!r}"

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection to the object store, if it names one."""
        place = self.place
        return () if place is None or place.conn_id is None else (place.conn_id,)

    def open(self, connections: Connections, files: Files) -> OpenTable:
        """Open the table. It is first read by a look.

        :raises MissingExtraError: the extra `delta`, or that of its store, isn't installed.
        """
        try:
            from airflow_gobblin.tables.delta.table import OpenDeltaTable
        except ImportError as error:
            place = self.place
            extras = "delta" if place is None else f"delta,{OBJECT_SCHEMES[place.scheme]}"
            raise MissingExtraError(
                operation="open",
                subject=self.name,
                cause=error,
                hint=f"Install the extra: pip install 'airflow-gobblin[{extras}]'.",
            ) from error
        return OpenDeltaTable(self, connections)
