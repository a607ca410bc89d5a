"""A schema registry with the API of Confluent's, Karapace and Apicurio: the newest schema of a subject, and a schema by its id.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html. Only three questions are asked, so this
isn't their client, which would bring five more packages to each Spark task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import MissingExtraError, SourceError
from airflow_gobblin.storage.parsed_connection import ParsedConnection

try:
    import requests

    from airflow_gobblin.storage.http_session import HttpSession
except ImportError as error:
    raise MissingExtraError(
        operation="use",
        subject="a schema registry",
        cause=error,
        hint="Install the extra: pip install 'airflow-gobblin[avro]'.",
    ) from error

_TIMEOUT = (10.0, 30.0)
"""The seconds to connect, and to answer."""
_UNKNOWN = 404


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as a registry keeps it. The schema that an id names never changes.

    :param kind: `AVRO`, `JSON` or `PROTOBUF`.
    :param references: the schemas of other subjects that it names, as the registry lists them.
    """

    id: int
    text: str
    kind: str
    references: tuple[Mapping[str, Any], ...] = ()


class Registry:
    """A registry behind a connection of type HTTP.

    :raises ConfigurationError: there is no such connection, or it names no server.
    """

    def __init__(self, conn_id: str, connections: Connections) -> None:
        uri = _of_its_protocol(connections.uri(conn_id))
        connection = ParsedConnection(conn_id, uri)
        connection.expect("http", "https")
        extra = {name: str(value) for name, value in connection.extra.items()}
        if not connection.host and "url" not in extra:
            raise connection.unfit("it names no server", 'Give it a host, or its extra a "url".')
        schema = urlsplit(uri).path.strip("/")  # where Airflow has the protocol of a connection to HTTP
        protocol = schema if schema in ("http", "https") else connection.type
        address = f"{protocol}://{connection.host}" + (f":{connection.port}" if connection.port else "")
        self._conn_id = conn_id
        self._url = extra.pop("url", address).rstrip("/")
        self._headers = extra
        self._user = (connection.login, connection.password)

    def newest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject.

        :raises SourceError: the registry can't be asked, or has no such subject.
        """
        found = self._asked(f"subjects/{quote(subject, safe='')}/versions/latest", f"subject {subject!r}")
        if found is None:
            raise self._failed(
                f"subject {subject!r}",
                "the registry has no such subject",
                "Name the topic's in AvroValues(subject=…), or register its schema.",
            )
        return _schema(found, int(found["id"]))

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject, to which a schema refers.

        :raises SourceError: the registry can't be asked, or has none.
        """
        what = f"version {version} of subject {subject!r}"
        found = self._asked(f"subjects/{quote(subject, safe='')}/versions/{version}", what)
        if found is None:
            raise self._failed(what, "the registry doesn't have it, and a schema refers to it")
        return _schema(found, int(found["id"]))

    def schema(self, number: int) -> RegisteredSchema | None:
        """Return a schema by its id; `None` if there is none.

        :raises SourceError: the registry can't be asked.
        """
        found = self._asked(f"schemas/ids/{number}", f"schema {number}")
        return None if found is None else _schema(found, number)

    def _asked(self, path: str, what: str) -> Mapping[str, Any] | None:
        try:
            with self._session() as session, session.get(f"{self._url}/{path}", timeout=_TIMEOUT) as answer:
                if answer.status_code == _UNKNOWN and "error_code" in answer.json():
                    return None
                answer.raise_for_status()
                found = answer.json()
                if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
                    raise ValueError("its answer is not a schema")
                return found
        except (requests.RequestException, ValueError) as error:
            raise self._failed(
                what, error, "Nothing was read or changed. If the registry is back, a retry succeeds."
            ) from error

    def _session(self) -> HttpSession:
        """Open a session: questions are too rare for one that stays open."""
        session = HttpSession(self._headers)
        session.trust_env = False  # no other credentials, from ~/.netrc
        if any(self._user):
            session.auth = self._user
        return session

    def _failed(self, what: str, cause: object, hint: str = "") -> SourceError:
        return SourceError(
            operation="read",
            subject=f"{what} of the schema registry by connection {self._conn_id!r}",
            cause=f"{cause}",
            hint=hint,
        )


def _of_its_protocol(uri: str) -> str:
    """Return a connection's URI without its type, if its host names a protocol, as Airflow allows."""
    head, mark, rest = uri.partition("?")
    inner = head.partition("://")[2]
    return (inner if "://" in inner else head) + mark + rest


def _schema(found: Mapping[str, Any], number: int) -> RegisteredSchema:
    references = tuple(found.get("references") or ())
    return RegisteredSchema(number, found["schema"], found.get("schemaType") or "AVRO", references)
