"""Access to connections and their secrets, which are kept out of errors, logs, notes and results (I16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from airflow_gobblin.errors import ConfigurationError, GobblinError, SourceError
from airflow_gobblin.redaction import Redactor

T = TypeVar("T")


class Connections(Protocol):
    """The source of secrets: Airflow's connections on a worker, the driver's environment in Spark."""

    def uri(self, conn_id: str) -> str:
        """Return a connection as a URI, with its password. Never put it in a record, a log or an error.

        :raises ConfigurationError: there is no such connection.
        """


class NoConnections:
    """The connections of a process that was given none.

    :param hint: how to give them.
    """

    def __init__(
        self, hint: str = "Pass `connections=` where the journal is administered, or act by `airflow gobblin`."
    ) -> None:
        self._hint = hint

    def uri(self, conn_id: str) -> str:
        """Refuse.

        :raises ConfigurationError: always.
        """
        raise ConfigurationError(
            operation="use",
            subject=f"connection {conn_id!r}",
            cause="no connections were given here",
            hint=self._hint,
        )


class GuardedConnections:
    """Connections that remember the secrets they returned, so that none appears in an error's text.

    :param connections: the underlying connections.
    :param redactor: the redactor that these secrets are added to; a new one by default.
    """

    def __init__(self, connections: Connections, redactor: Redactor | None = None) -> None:
        self._connections = connections
        self.redactor = redactor if redactor is not None else Redactor()
        self._kept: dict[tuple[str, str], Any] = {}

    def kept(self, name: tuple[str, str], make: Callable[[], T]) -> T:
        """Return what was opened with these connections, and is kept as long as they are; it is made when first asked for.

        :param name: what it is, and where: there is one of each.
        """
        if name not in self._kept:
            self._kept[name] = make()
        found: T = self._kept[name]
        return found

    def uri(self, conn_id: str) -> str:
        """Return the URI of a connection, and add its secrets to the redactor."""
        uri = self._connections.uri(conn_id)
        self.redactor.learn_uri(uri)
        return uri

    @contextmanager
    def redacting(self, operation: str, subject: str) -> Iterator[None]:
        """Remove secrets from the errors of a user's source.

        :raises GobblinError: as raised; anything else becomes a `SourceError` about `subject`, even an interrupt that shows a
            secret. Other interrupts pass: they belong to Airflow.
        """
        with self.redactor.guarding(operation, subject, SourceError):
            try:
                yield
            except GobblinError:
                raise
            except Exception as error:  # a user's source may raise anything
                raise self.redactor.described(error, operation, subject, SourceError) from None
