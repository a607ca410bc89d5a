"""Airflow's connections in the form that the rest of the package takes, resolved only when a task runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.redaction import Redactor
from airflow_gobblin.storage.locations import ObjectLocation

if TYPE_CHECKING:
    from airflow.sdk import Connection

__all__ = ["JOURNAL_CONNECTION", "SECRETS", "AirflowConnections"]

SECRETS = Redactor()
"""The secrets that this process has learned: nothing that a task, a command or one of their drivers outputs shows one."""

JOURNAL_CONNECTION = "gobblin_journal"
"""The type of connections that hold the URL of a journal."""

# Other extras of a connection are settings of Airflow's hooks, which PostgreSQL doesn't know.
_POSTGRES_SETTINGS = (
    "application_name",
    "connect_timeout",
    "gssencmode",
    "keepalives",
    "options",
    "require_auth",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
)

_CATALOG_SETTINGS = ("catalog_name", "warehouse")
"""The extras of a database that holds a catalog of Iceberg tables."""
_AS_THEY_ARE = (
    *("aws", "google_cloud_platform", "wasb", "adls"),
    *("sftp", "ssh", "http", "https", "hdfs", "webhdfs"),
    "hive_metastore",
    "iceberg",
    "kafka",
)
"""The types whose URIs are read as Airflow writes them."""


class AirflowConnections:
    """Airflow's connections as URIs: `postgresql://…`, `sqlite:////path`, `aws://key:secret@/?region_name=…`, `kafka://…`.

    A connection of type `gobblin_journal` is the URL of a journal.
    """

    def uri(self, conn_id: str) -> str:
        """Return a connection as a URI, with its password, which `SECRETS` learns.

        :raises ConfigurationError: there is no such connection, or its type isn't known here.
        """
        uri = self._uri(conn_id)
        SECRETS.learn_uri(uri)
        return uri

    def _uri(self, conn_id: str) -> str:
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                operation="use",
                subject=f"connection {conn_id!r}",
                cause="Airflow has no connection of this id",
                hint=f"Add it: airflow connections add {conn_id} --conn-uri …",
            ) from error
        if connection.conn_type in ("postgres", "postgresql"):
            return _postgres_uri(connection)
        if connection.conn_type == "sqlite":
            return _sqlite_uri(connection)
        if connection.conn_type in _AS_THEY_ARE:
            return str(connection.get_uri())
        if connection.conn_type == JOURNAL_CONNECTION:
            return _journal_url(connection)
        if connection.conn_type == "generic" and "keys" in connection.extra_dejson:  # of OpenPGP
            return str(connection.get_uri())
        if connection.conn_type == "generic":
            raise _refused(
                connection,
                "it is of type 'generic', as one whose provider isn't installed",
                "Delete it, and add it again by `airflow connections add … --conn-uri`, which needs no provider.",
            )
        raise _refused(
            connection,
            f"it is of type {connection.conn_type!r}",
            f"Known: connections of type 'postgres', 'sqlite', {', '.join(map(repr, _AS_THEY_ARE))}, and for journals "
            f"{JOURNAL_CONNECTION!r}.",
        )


def _postgres_uri(connection: Connection) -> str:
    from sqlalchemy.engine import URL

    extra = connection.extra_dejson
    url = URL.create(
        "postgresql",
        username=connection.login,
        password=connection.password,
        host=connection.host,
        port=connection.port,
        database=connection.schema,
        query={name: str(extra[name]) for name in (*_POSTGRES_SETTINGS, *_CATALOG_SETTINGS) if name in extra},
    )
    return url.render_as_string(hide_password=False)


def _sqlite_uri(connection: Connection) -> str:
    path = connection.host or connection.schema or ""
    if not path.startswith("/"):
        raise _refused(
            connection,
            f"its path {path!r} is not absolute",
            "Give the database's file as an absolute path, in the field 'host' or as 'sqlite:////path/to.db'.",
        )
    settings = {name: str(value) for name, value in connection.extra_dejson.items() if name in _CATALOG_SETTINGS}
    return f"sqlite:///{path}{'?' if settings else ''}{urlencode(settings)}"


def _journal_url(connection: Connection) -> str:
    """Return the URL of the journal that a connection names, with its login and password.

    :raises ConfigurationError: it names none, or one with a password in it.
    """
    from airflow_gobblin.storage.stores import store_location
    from airflow_gobblin.storage.stores.sql import holds_secret

    url = connection.extra_dejson.get("url")
    if not isinstance(url, str) or not url:
        raise _refused(
            connection, "it has no URL", "Fill in the field 'Journal URL': for example 'sqlite:////path/journal.db'."
        )
    location = store_location(url)
    if isinstance(location, Path | ObjectLocation):
        return url
    if holds_secret(location):
        raise _refused(
            connection, "its URL holds a password, which isn't hidden there", "Put it into the field 'Password'."
        )
    if connection.login or connection.password:
        location = location.set(username=connection.login or location.username, password=connection.password)
    return location.render_as_string(hide_password=False)


def _refused(connection: Connection, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="use", subject=f"connection {connection.conn_id!r}", cause=cause, hint=hint)
