"""The database behind a connection: its dialect, and sessions on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.rows.sources.sql.dialects import Dialect, Session
from airflow_gobblin.rows.sources.sql.postgres import Postgres
from airflow_gobblin.rows.sources.sql.sqlite import Sqlite
from airflow_gobblin.rows.sources.sql.tables import SqlTable

_DIALECTS: Mapping[str, Dialect] = {"postgres": Postgres(), "postgresql": Postgres(), "sqlite": Sqlite()}


class Database:
    """The database of a connection.

    :raises ConfigurationError: there is no such connection, or it is of an unknown type.
    """

    def __init__(self, conn_id: str, connections: Connections) -> None:
        self._conn_id = conn_id
        self._uri = connections.uri(conn_id)
        scheme = self._uri.partition(":")[0].partition("+")[0].lower()
        if scheme not in _DIALECTS:
            raise ConfigurationError(
                operation="use",
                subject=f"connection {conn_id!r}",
                cause="it is of no type that SqlSource knows",
                hint=f"Its URI must begin with one of {', '.join(f'{known}://' for known in _DIALECTS)}.",
            )
        self.dialect = _DIALECTS[scheme]

    def open(self, operation: str, table: SqlTable, snapshot: str = "") -> Session:
        """Open a session to plan, resolve or read one table.

        :param operation: which of these, for errors.
        :param snapshot: the state that it sees, as `hold` names it.
        """
        subject = f"dataset {table.urn!r}"
        return Session(self.dialect, self._conn_id, self._uri, table.timezone, operation, subject, snapshot)

    @contextmanager
    def hold(self) -> Iterator[str]:
        """Hold a state of the database, and yield its name."""
        with Session(
            self.dialect, self._conn_id, self._uri, "UTC", "hold a snapshot of", f"connection {self._conn_id!r}"
        ) as session:
            yield self.dialect.snapshot(session)
