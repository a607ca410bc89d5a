"""Stores for the journal: the port (`base`), and one module per backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import meant
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.locations import ObjectLocation, local_path, object_location
from airflow_gobblin.storage.stores.base import ReadOnlyStore, Store, no_journal, probe

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from airflow_gobblin.connections import Connections

__all__ = [
    "ReadOnlyStore",
    "Store",
    "no_journal",
    "open_store",
    "open_store_to_read",
    "path_of_store",
    "probe",
    "store_location",
]


def open_store(url: str, connections: Connections | None = None) -> Store:
    """Open a journal store for writing, create it if it doesn't exist, and check that it is reliable.

    :param url: `file:///path` or an absolute path, `sqlite:////path/journal.db`, `postgresql://user@host/database`,
        `s3://connection@bucket/prefix` (also `gs://`, `abfs://`).
    :param connections: access to the connection named by the URL.
    :raises ConfigurationError: the URL is invalid.
    :raises StoreError: the store can't be reached.
    :raises UnreliableStoreError: it lacks a guarantee that the journal relies on.
    """
    store = _backend(url, connections, to_read=False)
    if store.get(_PROBED) is None:
        probe(store)
    else:
        probe(_without_waiting(url, store), race=False)
    store.put_if_absent(_PROBED, b"1")
    return store


_PROBED = "_probe_passed/1"


def _without_waiting(url: str, store: Store) -> Store:
    """Return a store for records that needn't last: on a local disk, writing them waits for nothing."""
    location = store_location(url)
    if not isinstance(location, Path):
        return store
    from airflow_gobblin.storage.files.local import UnsyncedFiles
    from airflow_gobblin.storage.stores.local import LocalStore

    return LocalStore(UnsyncedFiles(location), removes_left=False)


def store_location(url: str) -> Path | URL | ObjectLocation:
    """Return the location of a store from its URL, without accessing it.

    :raises ConfigurationError: no backend supports its scheme, or the URL is malformed, relative, or on another host.
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme in ("", "file"):
        return local_path(url, operation="open", subject=f"journal store {url!r}")
    if scheme.split("+")[0] in ("sqlite", "postgresql", "postgres"):
        from airflow_gobblin.storage.stores.sql import database_url

        return database_url(url)
    if location := object_location(url):
        return location
    raise ConfigurationError(
        operation="open",
        subject=f"journal store of scheme {scheme!r}",
        cause="no backend has it",
        hint="Use 'file:///…', 'sqlite:////…', 'postgresql://…', or 's3://connection@bucket/prefix' (also 'gs://', 'abfs://').",
    )


def open_store_to_read(url: str, connections: Connections | None = None) -> Store:
    """Open a journal store for reading. Nothing is created or written, now or by later use.

    :param url: as for `open_store`.
    :param connections: as for `open_store`.
    :raises ConfigurationError: the URL is invalid.
    :raises NotFoundError: there is no such store.
    :raises StoreError: it can't be reached.
    """
    path = path_of_store(url)
    if path is not None and not path.exists():
        raise no_journal(str(path), f"{_meant(path)} If there was one: is its disk mounted here?".strip())
    return ReadOnlyStore(_backend(url, connections, to_read=True))


def path_of_store(url: str) -> Path | None:
    """Return the folder or file of a store on a disk; `None` for another one.

    :raises ConfigurationError: as `store_location`.
    """
    location = store_location(url)
    if isinstance(location, Path):
        return location
    if isinstance(location, ObjectLocation) or location.get_backend_name() != "sqlite":
        return None
    return Path(location.database or "")


def _meant(path: Path) -> str:
    """Return a hint for a missing path: its siblings with similar names."""
    try:
        beside = sorted(one.name for one in path.parent.iterdir())
    except OSError:
        return ""
    return meant(beside, path.name, show=lambda name: str(path.parent / name))


def _backend(url: str, connections: Connections | None, *, to_read: bool) -> Store:
    location = store_location(url)
    if isinstance(location, ObjectLocation):
        from airflow_gobblin.storage.stores.objects import open_object_store

        return open_object_store(location, connections)
    if isinstance(location, Path):
        from airflow_gobblin.storage.stores.local import LocalStore

        return LocalStore(LocalFiles(location))
    from airflow_gobblin.storage.stores.sql import SqlStore

    return SqlStore(url, to_read=to_read)
