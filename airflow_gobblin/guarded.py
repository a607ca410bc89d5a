"""Connections that keep their secrets out of what is written down: errors, logs, notes and results (I16)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_gobblin.errors import GobblinError, SourceError
from airflow_gobblin.redaction import Redactor

if TYPE_CHECKING:
    from airflow_gobblin.sources.base import Connections


class GuardedConnections:
    """Connections that remember which secrets they gave, so that none gets into an error's text.

    :param connections: where they come from. :param redactor: what knows secrets already, and learns more here.
    """

    def __init__(self, connections: Connections, redactor: Redactor | None = None) -> None:
        self._connections = connections
        self.redactor = redactor if redactor is not None else Redactor()

    def uri(self, conn_id: str) -> str:
        """The URI of a connection; its secrets are known from now on."""
        uri = self._connections.uri(conn_id)
        self.redactor.learn_uri(uri)
        return uri

    @contextmanager
    def scrubbing(self, operation: str, subject: str) -> Iterator[None]:
        """Let errors of a user's source out without secrets.

        :raises GobblinError: what was raised; anything else becomes a `SourceError` about `subject`, also an interrupt that
            shows a secret. Other interrupts pass: they are Airflow's.
        """
        with self.redactor.guarding(operation, subject, SourceError):
            try:
                yield
            except GobblinError:
                raise
            except Exception as error:  # a user's source may raise anything
                raise self.redactor.described(error, operation, subject, SourceError) from None
