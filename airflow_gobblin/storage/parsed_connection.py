"""Airflow's connections, as clients of stores and servers need them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_gobblin.errors import ConfigurationError


class ParsedConnection:
    """An Airflow connection, from its URI, with its secrets.

    :param uri: as `Connections.uri` returns it.
    """

    def __init__(self, conn_id: str, uri: str) -> None:
        parts = urlsplit(uri)
        self.conn_id = conn_id
        self.type = parts.scheme.replace("-", "_")
        self.login = unquote(parts.username or "")
        self.password = unquote(parts.password or "")
        self.host = unquote(parts.hostname or "")
        self.port = parts.port
        self.extra: dict[str, Any] = dict(parse_qsl(parts.query))
        if "__extra__" in self.extra:
            self.extra = json.loads(self.extra["__extra__"])

    def expect(self, *types: str) -> None:
        """Make sure that it has one of some types.

        :raises ConfigurationError: it doesn't.
        """
        if self.type not in types:
            raise self.unfit(
                f"it is of type {self.type!r}", f"Known for this store are connections of type {types[0]!r}."
            )

    def unfit(self, cause: str, hint: str) -> ConfigurationError:
        """Return the error for a connection that can't be used."""
        return ConfigurationError(operation="use", subject=f"connection {self.conn_id!r}", cause=cause, hint=hint)
