"""The connection type `gobblin_journal`: where a journal is, kept in Airflow rather than in a DAG file.

An ingestion names it by its id, `Ingestion(journal="shop_journal", …)`. Its form has the journal's URL and, for PostgreSQL,
a login and a password. Its test button opens the journal as a run does, and says which ingestions are in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.hooks.connections import JOURNAL_CONNECTION, AirflowConnections

if TYPE_CHECKING:
    from airflow_gobblin.stores import Store

__all__ = ["GobblinJournalHook"]

_NAMED = 10


class GobblinJournalHook(BaseHook):
    """Opens the store of a journal that a connection names.

    :param gobblin_journal_conn_id: the id of a connection of type `gobblin_journal`.
    """

    conn_name_attr = "gobblin_journal_conn_id"
    default_conn_name = "gobblin_journal_default"
    conn_type = JOURNAL_CONNECTION
    hook_name = "Gobblin journal"

    def __init__(self, gobblin_journal_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gobblin_journal_conn_id = gobblin_journal_conn_id

    def get_conn(self) -> Store:
        """The store, probed.

        :raises ConfigurationError: the connection can be no journal's. :raises StoreError: the store can't be reached, or
            can't be relied on.
        """
        from airflow_gobblin.stores import open_store

        connections = AirflowConnections()
        return open_store(connections.uri(self.gobblin_journal_conn_id), connections)

    def test_connection(self) -> tuple[bool, str]:
        """Open the store, and see what is in it.

        What isn't there is not made: a folder or a SQLite file, which may be on a disk that isn't mounted.
        """
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


def _told(store: Store) -> str:
    """What a store holds, in a sentence."""
    # Keys are <ingestion>/<dataset>/…; ours of no ingestion begin with an underscore.
    names = sorted({key.partition("/")[0] for key in store.list("") if not key.startswith("_")})
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    held = f"It holds the ingestions {', '.join(names[:_NAMED])}{more}." if names else "It holds no ingestion yet."
    return f"{store.name} can be relied on. {held}"
