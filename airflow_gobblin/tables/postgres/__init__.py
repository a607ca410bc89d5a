"""A PostgreSQL table, as plans and decisions name it. `table.py` opens it and loads Arrow; this module doesn't."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.wire import record

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections
    from airflow_gobblin.storage.files.base import Files
    from airflow_gobblin.tables.port import OpenTable

LONGEST_NAME = 63
"""The most bytes of a name: PostgreSQL truncates longer ones, so two could become one."""
OWN_SCHEMA = "_gobblin"
"""The schema for our marks, in the table's database."""
DEFAULT_SCHEMA = "public"


@record("postgres_table")
@dataclass(frozen=True)
class PostgresTable:
    """A table of a PostgreSQL database.

    :param conn_id: the connection to the database.
    :param namespace: the table's schema, which must exist.
    :param table: its name in that schema.
    :param lock_seconds: how long a commit waits for a lock that another transaction holds.
    :param statement_seconds: how long one of its statements may take, so that a stalled process doesn't hold the table forever.
    """

    conn_id: str
    namespace: str
    table: str
    lock_seconds: int = 60
    statement_seconds: int = 21_600

    def __post_init__(self) -> None:
        for name in (self.namespace, self.table):
            why = why_no_name(name)
            if why:
                raise ConfigurationError(operation="use", subject=self.name, cause=f"{name!r} {why}")
        if self.namespace == OWN_SCHEMA:
            raise ConfigurationError(
                operation="use",
                subject=self.name,
                cause=f"the schema {OWN_SCHEMA!r} is where the marks of tables are kept",
                hint="Give the table another schema.",
            )
        if self.lock_seconds <= 0 or self.statement_seconds <= 0:
            raise ConfigurationError(
                operation="use",
                subject=self.name,
                cause=f"it has lock_seconds={self.lock_seconds} and statement_seconds={self.statement_seconds}",
                hint="Give numbers above zero.",
            )

    @property
    def name(self) -> str:
        """The table and its connection, quoted so that no two tables share a name."""
        return f"table {self.quoted} of connection {self.conn_id!r}"

    @property
    def quoted(self) -> str:
        """The table in SQL."""
        return f"{quoted(self.namespace)}.{quoted(self.table)}"

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection to the database."""
        return (self.conn_id,)

    def open(self, connections: Connections, files: Files) -> OpenTable:
        """Open the table. The database is first queried by a look.

        :raises MissingExtraError: the extra `sql` isn't installed.
        """
        from airflow_gobblin.tables.postgres.table import OpenPostgresTable

        return OpenPostgresTable(self, connections.uri(self.conn_id), files)


def quoted(name: str) -> str:
    """Quote a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def why_no_name(name: str) -> str:
    """Return why PostgreSQL can't use a name as it is; empty if it can."""
    if not name or "\0" in name:
        return "is not a name"
    if len(name.encode(errors="surrogatepass")) > LONGEST_NAME:
        return f"is longer than the {LONGEST_NAME} bytes of a name in PostgreSQL"
    return ""
