"""Connections to PostgreSQL through ADBC, which reads and writes Arrow by binary COPY."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

DRIVER = "adbc_driver_postgresql"
_MANAGER = "adbc_driver_manager"
_CONNECT_SECONDS = 10
_OPTIONS = {"adbc.postgresql.type_resolver_mode": "builtin"}
_LIBPQ = (
    *("user", "password", "passfile", "host", "port", "dbname", "options", "application_name", "connect_timeout"),
    *(
        "ssl",
        "gss",
        "krb",
        "keepalives",
        "tcp_user_timeout",
        "channel_binding",
        "require",
        "target_session",
        "load_balance",
    ),
)
"""Prefixes of the parameters that libpq accepts in a URI; Airflow keeps others there too."""


def connected(uri: str) -> Any:
    """Return a connection, with a transaction begun.

    :param uri: the URI of a connection, as Airflow has it.
    :raises ModuleNotFoundError: the driver isn't installed.
    """
    dbapi = importlib.import_module(f"{DRIVER}.dbapi")
    database = _database(libpq_uri(uri))
    return dbapi.Connection(_Kept(), importlib.import_module(_MANAGER).AdbcConnection(database))


@lru_cache(maxsize=32)
def _database(uri: str) -> Any:
    """Return the driver's database, which holds no connection. It is opened once per process, over a connection of its own.

    It knows the types that are built in, by a list of the driver's: to read the server's would take as long as several
    connections, and minutes where there are very many columns. Columns of other types are read as text.
    """
    return importlib.import_module(DRIVER).connect(uri, db_kwargs=_OPTIONS)


class _Kept:
    """A stand-in for the database, which a connection would close as its own."""

    def close(self) -> None:
        """Do nothing."""


def libpq_uri(uri: str) -> str:
    """Return a URI for libpq: without a Python driver's name, and without the extras that Airflow keeps in the query."""
    parts = urlsplit(uri)
    query = {k: v for k, v in parse_qsl(parts.query) if k.startswith(_LIBPQ)}
    query.setdefault("connect_timeout", str(_CONNECT_SECONDS))
    return urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(query), ""))
