"""The transport of secrets to Spark: in the environment of the driver's process, then in the closure of each Spark task.

Nothing else carries them: everyone on the host sees a command line's arguments, Spark's UI and event log show its settings,
and anyone may find a file. The driver removes the variable from its environment as soon as it starts.

A durable driver runs on a worker of the cluster, and nobody can pass it a secret in private. So it must find them there:
in the same variable of the worker's environment, or in a file that another variable names and only Spark's user may read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.redaction import Redactor

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections

__all__ = ["FILE_VARIABLE", "VARIABLE", "SparkConnections", "give_connections", "take_connections"]

VARIABLE = "AIRFLOW_GOBBLIN_CONNECTIONS"
"""The environment variable: a JSON object of connection id → URI."""
FILE_VARIABLE = "AIRFLOW_GOBBLIN_CONNECTIONS_FILE"
"""The environment variable, on the workers of a cluster, with the path of a file of the same content."""


@dataclass(frozen=True)
class SparkConnections:
    """The connections that were given to this Spark application. Its `repr` shows no value."""

    uris: Mapping[str, str] = field(repr=False)

    def uri(self, conn_id: str) -> str:
        try:
            return self.uris[conn_id]
        except KeyError:
            raise ConfigurationError(
                operation="use",
                subject=f"connection {conn_id!r} in Spark",
                cause=f"the Spark application was given {sorted(self.uris)}",
                hint="A source names the connections that it reads by in its `connection_ids`.",
            ) from None

    def guarded(self) -> GuardedConnections:
        """Return the connections for a process in which no error may show a secret of theirs."""
        return GuardedConnections(self, Redactor(self.uris.values()))


def give_connections(connections: Connections, conn_ids: Iterable[str]) -> dict[str, str]:
    """Return the environment variable for a driver's process.

    :raises ConfigurationError: there is no such connection.
    """
    return {VARIABLE: json.dumps({conn_id: connections.uri(conn_id) for conn_id in sorted(set(conn_ids))})}


def take_connections(
    environment: MutableMapping[str, str] | None = None, conn_ids: Iterable[str] | None = None
) -> SparkConnections:
    """Take the connections given to this process out of its environment.

    :param conn_ids: return only these; all by default.
    :raises ConfigurationError: none were given, not even an empty list; or the file with them can't be read, or others can
        read or write it.
    """
    environment = os.environ if environment is None else environment
    given, file = environment.pop(VARIABLE, None), environment.get(FILE_VARIABLE)
    if given is None and file:
        given = _read_private(Path(file))
    if given is None:
        raise ConfigurationError(
            operation="start",
            subject="the Spark driver",
            cause=f"neither {VARIABLE} nor {FILE_VARIABLE} is in its environment",
            hint="ExtractOperator sets the first where the driver runs beside it. A durable driver runs on a worker: set one of "
            "them in the environment of each, to the JSON object of connection ids and URIs, or to the path of a file with it.",
        )
    wanted = None if conn_ids is None else frozenset(conn_ids)
    uris = _parsed(given, VARIABLE if file is None else f"{VARIABLE} or {file}")
    return SparkConnections({name: uri for name, uri in uris.items() if wanted is None or name in wanted})


def _read_private(file: Path) -> str:
    subject = f"the connections in {file}, named by {FILE_VARIABLE}"
    try:
        mode = file.stat().st_mode
        if mode & 0o077:
            cause, hint = f"others than its owner may read or write it (mode {mode & 0o777:o})", f"chmod 600 {file}"
            raise ConfigurationError(operation="use", subject=subject, cause=cause, hint=hint)
        return file.read_text()
    except OSError as error:
        raise ConfigurationError(operation="read", subject=subject, cause=error) from error


def _parsed(given: str, where: str) -> dict[str, str]:
    try:
        uris = json.loads(given)
    except ValueError:
        uris = None
    if not isinstance(uris, dict) or not all(isinstance(uri, str) for uri in uris.values()):
        cause = 'it is not a JSON object of strings, {"connection id": "URI"}'
        raise ConfigurationError(operation="read", subject=f"the connections in {where}", cause=cause) from None
    return uris
