"""How an Airflow task reaches an ingestion: its secrets are Airflow connections, resolved when the task runs and not before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.files import check_target
from airflow_gobblin.hooks.journal import CONNECTION_TYPE, journal_url
from airflow_gobblin.places import ObjectPlace

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_gobblin.ingestion import Ingestion
    from airflow_gobblin.pipeline import Pipeline

__all__ = ["AirflowConnections", "check_ingestion", "check_journal", "is_place", "open_pipeline"]

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

_OBJECT_STORES = ("aws", "google_cloud_platform", "wasb", "adls")


class AirflowConnections:
    """Airflow's connections as URIs: `postgresql://…`, `sqlite:////path`, `aws://key:secret@/?region_name=…`.

    One of type `gobblin_journal` is the URL of a journal.
    """

    def uri(self, conn_id: str) -> str:
        """A connection as a URI, with its password.

        :raises ConfigurationError: there is no such connection, or it is of a type that isn't known here.
        """
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
        if connection.conn_type in _OBJECT_STORES:
            return str(connection.get_uri())
        if connection.conn_type == CONNECTION_TYPE:
            return journal_url(connection)
        generic = connection.conn_type == "generic"
        raise ConfigurationError(
            operation="use",
            subject=f"connection {conn_id!r}",
            cause=f"it is of type {connection.conn_type!r}"
            + (", as one whose provider isn't installed" if generic else ""),
            hint="Delete it, and add it again by `airflow connections add … --conn-uri`, which needs no provider."
            if generic
            else f"Known are connections of type 'postgres', 'sqlite', {', '.join(map(repr, _OBJECT_STORES))}, and for journals "
            f"{CONNECTION_TYPE!r}.",
        )


def check_ingestion(ingestion: Ingestion) -> None:
    """See that an ingestion can work, as far as that is known when a DAG is parsed, without going anywhere.

    :raises ConfigurationError: its journal or its target can't be one.
    """
    check_journal(ingestion.journal)
    check_target(ingestion.sink.target)


def check_journal(journal: str) -> None:
    """Look at where a journal is said to be, without going there: when a DAG is parsed.

    :raises ConfigurationError: it is empty, relative, a URL that can't be read, or one with a password in it.
    """
    from airflow_gobblin.stores import store_place
    from airflow_gobblin.stores.sql import holds_secret

    if is_place(journal):
        place = store_place(journal)
        if not isinstance(place, Path | ObjectPlace) and holds_secret(place):
            raise ConfigurationError(
                operation="use",
                subject=f"the journal at {place.get_backend_name()}://{place.host or ''}",
                cause="its URL holds a password, which everyone who reads the DAG would see",
                hint="Make it an Airflow connection, and give that connection's id.",
            )
    elif not journal or "/" in journal:
        raise ConfigurationError(
            operation="use",
            subject=f"journal {journal!r}",
            cause="it is neither a URL, an absolute path, nor the id of a connection",
            hint="Give 'file:///…', 'sqlite:////path/journal.db', 's3://connection@bucket/prefix', or the id of an Airflow "
            "connection to PostgreSQL, or of type 'gobblin_journal'.",
        )


def is_place(journal: str) -> bool:
    """Whether a journal is named by its place; else it is by the id of a connection."""
    return "://" in journal or journal.startswith("/")


def open_pipeline(ingestion: Ingestion) -> Pipeline:
    """The stages of an ingestion's runs, on its journal, with Airflow's connections. For a task that runs, not for a DAG file.

    :raises ConfigurationError: the journal, a connection or a module of `code` isn't there. :raises StoreError: the journal's
        store can't be reached.
    """
    from airflow_gobblin.journal import Journal
    from airflow_gobblin.kinds import import_kinds
    from airflow_gobblin.pipeline import Pipeline

    import_kinds(ingestion.code)
    connections = AirflowConnections()
    place = ingestion.journal
    if not is_place(place):
        place = connections.uri(place)
    return Pipeline(ingestion, Journal.open(place, ingestion.name, connections), connections)


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
        query={name: str(extra[name]) for name in _POSTGRES_SETTINGS if name in extra},
    )
    return url.render_as_string(hide_password=False)


def _sqlite_uri(connection: Connection) -> str:
    path = connection.host or connection.schema or ""
    if not path.startswith("/"):
        raise ConfigurationError(
            operation="use",
            subject=f"connection {connection.conn_id!r}",
            cause=f"its path {path!r} is not absolute",
            hint="Give the database's file as an absolute path, in the field 'host' or as 'sqlite:////path/to.db'.",
        )
    return f"sqlite:///{path}"
