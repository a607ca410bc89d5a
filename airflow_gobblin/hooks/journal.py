"""The connection type `gobblin_journal`: where a journal is, kept in Airflow rather than in a DAG file.

An ingestion names it by its id, `Ingestion(journal="shop_journal", …)`. Its form has the journal's URL and, for PostgreSQL,
a login and a password. Its test button opens the journal as a run does, and says which ingestions are in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_gobblin.errors import ConfigurationError, GobblinError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_gobblin.stores import Store

__all__ = ["CONNECTION_TYPE", "GobblinJournalHook", "journal_url"]

CONNECTION_TYPE = "gobblin_journal"
_NAMED = 10


class GobblinJournalHook(BaseHook):
    """Opens the store of a journal that a connection names.

    :param gobblin_journal_conn_id: the id of a connection of type `gobblin_journal`.
    """

    conn_name_attr = "gobblin_journal_conn_id"
    default_conn_name = "gobblin_journal_default"
    conn_type = CONNECTION_TYPE
    hook_name = "Gobblin journal"

    def __init__(self, gobblin_journal_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gobblin_journal_conn_id = gobblin_journal_conn_id

    def get_conn(self) -> Store:
        """The store, probed.

        :raises ConfigurationError: the connection can be no journal's. :raises StoreError: the store can't be reached, or
            can't be relied on.
        """
        from airflow_gobblin.hooks.ingestion import AirflowConnections
        from airflow_gobblin.stores import open_store

        connections = AirflowConnections()
        return open_store(connections.uri(self.gobblin_journal_conn_id), connections)

    def test_connection(self) -> tuple[bool, str]:
        """Open the store, and see what is in it.

        What isn't there is not made: a folder or a SQLite file, which may be on a disk that isn't mounted.
        """
        from airflow_gobblin.hooks.ingestion import AirflowConnections
        from airflow_gobblin.stores import missing_store

        try:
            missing = missing_store(AirflowConnections().uri(self.gobblin_journal_conn_id))
            if missing is not None:
                return True, f"There is nothing at {missing} yet: the first run makes it, if its disk is mounted."
            store = self.get_conn()
            try:
                return True, _told(store)
            finally:
                store.close()
        except GobblinError as error:
            return False, str(error)


def journal_url(connection: Connection) -> str:
    """The URL of the journal that a connection names, with its login and password.

    :raises ConfigurationError: it names none, or one with a password in it.
    """
    from airflow_gobblin.places import ObjectPlace
    from airflow_gobblin.stores import store_place
    from airflow_gobblin.stores.sql import holds_secret

    url = connection.extra_dejson.get("url")
    if not isinstance(url, str) or not url:
        raise _refused(
            connection, "it has no URL", "Fill in the field 'Journal URL': 'sqlite:////path/journal.db', say."
        )
    place = store_place(url)
    if isinstance(place, Path | ObjectPlace):
        return url
    if holds_secret(place):
        raise _refused(
            connection, "its URL holds a password, which isn't hidden there", "Put it into the field 'Password'."
        )
    if connection.login or connection.password:
        place = place.set(username=connection.login or place.username, password=connection.password)
    return place.render_as_string(hide_password=False)


def _told(store: Store) -> str:
    """What a store holds, in a sentence."""
    # Keys are <ingestion>/<dataset>/…; ours of no ingestion begin with an underscore.
    names = sorted({key.partition("/")[0] for key in store.list("") if not key.startswith("_")})
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    held = f"It holds the ingestions {', '.join(names[:_NAMED])}{more}." if names else "It holds no ingestion yet."
    return f"{store.name} can be relied on. {held}"


def _refused(connection: Connection, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="use", subject=f"connection {connection.conn_id!r}", cause=cause, hint=hint)
