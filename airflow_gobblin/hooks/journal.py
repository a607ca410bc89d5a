"""The connection type `gobblin_journal`: the location of a journal, kept in Airflow rather than in a DAG file.

An ingestion names it by its id, `Ingestion(journal="shop_journal", …)`. Its form has the journal's URL and, for PostgreSQL,
a login and a password. Its test button opens an existing journal as a run does, and lists its ingestions; it creates none.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_gobblin.errors import GobblinError, NotFoundError
from airflow_gobblin.hooks.connections import JOURNAL_CONNECTION, SECRETS, AirflowConnections

if TYPE_CHECKING:
    from airflow_gobblin.storage.stores import Store

__all__ = ["GobblinJournalHook"]

_NAMED = 10


class GobblinJournalHook(BaseHook):
    """A hook that opens the store of a journal that a connection names.

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
        """Open and probe the store.

        :raises ConfigurationError: the connection can't be a journal's.
        :raises StoreError: the store can't be reached, or can't be relied on.
        """
        from airflow_gobblin.storage.stores import open_store

        connections = AirflowConnections()
        return open_store(connections.uri(self.gobblin_journal_conn_id), connections)

    def test_connection(self) -> tuple[bool, str]:
        """Check that a journal exists and is as reliable as a run needs, and describe its content.

        A missing journal isn't created: its first run does that.
        """
        from airflow_gobblin.journal.journal import read_id
        from airflow_gobblin.storage.stores import open_store_to_read

        connections = AirflowConnections()
        try:
            with closing(open_store_to_read(connections.uri(self.gobblin_journal_conn_id), connections)) as found:
                read_id(found)
            with closing(self.get_conn()) as store:
                return True, _description(store)
        except NotFoundError as error:
            return True, f"There is no journal at {error.subject.removeprefix('the journal at ')} yet. {error.hint}"
        except GobblinError as error:
            return False, SECRETS.redact(str(error))


def _description(store: Store) -> str:
    """Describe the content of a store in a sentence."""
    from airflow_gobblin.journal.journal import ingestions

    names = ingestions(store)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    held = f"It holds the ingestions {', '.join(names[:_NAMED])}{more}." if names else "It holds no ingestion yet."
    return f"{store.name} can be relied on. {held}"
