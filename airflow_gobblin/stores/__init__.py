"""Where the journal is kept: the port (`base`), and one file a backend."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.files import LocalFiles
from airflow_gobblin.stores.base import Store, probe

__all__ = ["Store", "open_store", "probe"]


def open_store(url: str) -> Store:
    """Open a journal store, and make sure that it can be relied on.

    :param url: `file:///path` or an absolute path, `sqlite:////path/journal.db`, `postgresql://user@host/database`.
    :raises ConfigurationError: no backend has this scheme. :raises StoreError: it can't be reached.
    :raises UnreliableStoreError: it can't do what the journal rests on.
    """
    store = _backend(url)
    probe(store, race=store.get(_PROBED) is None)
    store.put_if_absent(_PROBED, b"1")
    return store


_PROBED = "_probe_passed/1"


def _backend(url: str) -> Store:
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("", "file"):
        path = unquote(urlsplit(url).path) if scheme else url
        if not Path(path).is_absolute():
            raise ConfigurationError(
                operation="open",
                subject=f"journal store {url!r}",
                cause="its path is relative",
                hint="Tasks run in different folders: give an absolute path.",
            )
        from airflow_gobblin.stores.local import LocalStore

        return LocalStore(LocalFiles(path))
    if scheme.split("+")[0] in ("sqlite", "postgresql", "postgres"):
        from airflow_gobblin.stores.sql import SqlStore

        return SqlStore(url)
    raise ConfigurationError(
        operation="open",
        subject=f"journal store of scheme {scheme!r}",
        cause="no backend has it",
        hint="Use 'file:///…', 'sqlite:///…' or 'postgresql://…'.",
    )
