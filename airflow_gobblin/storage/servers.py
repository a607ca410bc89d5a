"""Access to file servers, with credentials from an Airflow connection: SFTP through asyncssh, HTTP and WebHDFS through requests.

Credentials go to no host but the one that the connection names.
Sources: https://airflow.apache.org/docs/apache-airflow-providers-ssh/stable/connections/ssh.html and
https://airflow.apache.org/docs/apache-airflow-providers-http/stable/connections/http.html (fields of a connection).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import ConfigurationError, MissingExtraError
from airflow_gobblin.storage.locations import SERVER_SCHEMES, ServerLocation
from airflow_gobblin.storage.parsed_connection import ParsedConnection

if TYPE_CHECKING:
    import requests

    from airflow_gobblin.connections import Connections
    from airflow_gobblin.storage.webhdfs import WebHdfs

SECONDS_TO_CONNECT = 10
SECONDS_TO_ANSWER = 60
_NO_HEADERS = frozenset(
    (
        "timeout",
        "allow_redirects",
        "proxies",
        "stream",
        "verify",
        "cert",
        "max_redirects",
        "trust_env",
        "check_response",
    )
)
"""Settings in the extra of a connection to HTTP that aren't headers."""


@contextmanager
def with_extra(location: ServerLocation) -> Iterator[None]:
    """Name the extra that installs a client.

    :raises MissingExtraError: the client isn't installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            operation="open",
            subject=location.url,
            cause=error,
            hint=f"Install the extra: pip install 'airflow-gobblin[{SERVER_SCHEMES[location.scheme]}]'.",
        ) from error


def sftp_options(location: ServerLocation, connections: Connections | None) -> dict[str, Any]:
    """Return what `asyncssh.connect` needs. The server's key must be known, from the connection or `~/.ssh/known_hosts`.

    :raises MissingExtraError: asyncssh isn't installed.
    :raises ConfigurationError: the connection can't be used for it.
    """
    with with_extra(location):
        import asyncssh
    host, port = _host_and_port(location)
    options: dict[str, Any] = {
        "host": host,
        "config": None,
        "connect_timeout": SECONDS_TO_CONNECT,
        "login_timeout": SECONDS_TO_ANSWER,
        "keepalive_interval": 15,
    }
    connection = _connection(location, connections, "sftp", "ssh")
    if connection is None:
        return options | ({"port": port} if port else {})
    extra = connection.extra
    options |= {"username": connection.login} if connection.login else {}
    options |= {"password": connection.password} if connection.password else {}
    port = port or connection.port
    options |= {"port": port} if port else {}
    try:
        if extra.get("private_key"):
            options["client_keys"] = [
                asyncssh.import_private_key(extra["private_key"], extra.get("private_key_passphrase"))
            ]
        elif extra.get("key_file"):
            options["client_keys"] = [asyncssh.read_private_key(extra["key_file"], extra.get("private_key_passphrase"))]
        if extra.get("host_key"):
            key = extra["host_key"] if " " in extra["host_key"] else f"ssh-rsa {extra['host_key']}"
            options["known_hosts"] = ([asyncssh.import_public_key(key)], [], [])
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError) as error:
        raise connection.unfit(f"its key can't be read: {error}", "Put keys there as OpenSSH writes them.") from error
    if str(extra.get("no_host_key_check")).lower() == "true":
        options["known_hosts"] = None
    return options


def http_session(location: ServerLocation, connections: Connections | None) -> requests.Session:
    """Open a session with an HTTP server, which retries what the server refuses for the moment.

    :raises MissingExtraError: requests isn't installed.
    :raises ConfigurationError: the connection can't be used for it.
    """
    with with_extra(location):
        from airflow_gobblin.storage.http_session import HttpSession
    connection = _connection(location, connections, "http", "https")
    if connection is None:
        return HttpSession({})
    headers = {name: str(value) for name, value in connection.extra.items() if name not in _NO_HEADERS}
    session = HttpSession(headers)
    session.trust_env = False  # no other credentials, from ~/.netrc
    if connection.login or connection.password:
        session.auth = (connection.login, connection.password)
    return session


def webhdfs_client(location: ServerLocation, connections: Connections | None) -> WebHdfs:
    """Return the client of a namenode. Without a connection the user is `HADOOP_USER_NAME`, or that of this process.

    :raises MissingExtraError: requests isn't installed.
    :raises ConfigurationError: the connection can't be used for it.
    """
    with with_extra(location):
        from airflow_gobblin.storage.webhdfs import WebHdfs
    url = f"{'https' if location.scheme == 'swebhdfs' else 'http'}://{location.host}"
    connection = _connection(location, connections, "webhdfs", "hdfs")
    if connection is None:
        return WebHdfs(url, os.environ.get("HADOOP_USER_NAME") or _own_name())
    return WebHdfs(url, connection.login, connection.password)


def _own_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def _connection(location: ServerLocation, connections: Connections | None, *types: str) -> ParsedConnection | None:
    """Return the connection of a location, if it names one.

    :raises ConfigurationError: it isn't for this server.
    """
    if location.conn_id is None:
        return None
    if connections is None:
        raise ConfigurationError(
            operation="open",
            subject=location.url,
            cause=f"connection {location.conn_id!r} can't be looked up here",
            hint="Leave the connection out where the server asks for no credentials.",
        )
    found = ParsedConnection(location.conn_id, connections.uri(location.conn_id))
    found.expect(*types)
    host, _ = _host_and_port(location)
    if found.host and found.host.lower() != host:
        raise found.unfit(
            f"it is of host {found.host!r}, and the location names {host!r}",
            "Name the same host in both: credentials go to no other one.",
        )
    return found


def _host_and_port(location: ServerLocation) -> tuple[str, int | None]:
    if location.host.endswith("]") or ":" not in location.host:
        return location.host.strip("[]"), None
    host, _, port = location.host.rpartition(":")
    return host.strip("[]"), int(port)
