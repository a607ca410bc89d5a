"""How secrets reach Spark: in the environment of the driver's process, then in the closure of each Spark task. Nowhere else.

An argument of a command line is seen by everyone on the host, a Spark setting in Spark's UI and event log, a file by whoever
finds it. The driver takes the variable out of its environment as soon as it starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_gobblin.sources.base import Connections

__all__ = ["VARIABLE", "SparkConnections", "give_connections", "take_connections"]

VARIABLE = "AIRFLOW_GOBBLIN_CONNECTIONS"
"""The environment variable: a JSON object of connection id → URI."""


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


def give_connections(connections: Connections, conn_ids: Iterable[str]) -> dict[str, str]:
    """The environment variable for a driver's process. :raises ConfigurationError: there is no such connection."""
    return {VARIABLE: json.dumps({conn_id: connections.uri(conn_id) for conn_id in sorted(set(conn_ids))})}


def take_connections(environment: MutableMapping[str, str] | None = None) -> SparkConnections:
    """The connections given to this process, which are then no longer in its environment.

    :raises ConfigurationError: none were given, not even an empty list: the driver doesn't run where it was started.
    """
    given = (os.environ if environment is None else environment).pop(VARIABLE, None)
    if given is None:
        raise ConfigurationError(
            operation="start",
            subject="the Spark driver",
            cause=f"{VARIABLE} is not in its environment",
            hint="Submit it by ExtractOperator, in local or client mode: only there a driver has its submitter's environment.",
        )
    return SparkConnections(json.loads(given))
