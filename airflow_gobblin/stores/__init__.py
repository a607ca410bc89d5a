"""Where the journal is kept: the port (`base`), and one file a backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.files import LocalFiles
from airflow_gobblin.places import ObjectPlace, local_path, object_place
from airflow_gobblin.stores.base import Store, probe

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from airflow_gobblin.sources.base import Connections

__all__ = ["Store", "missing_store", "open_store", "probe", "store_place"]


def open_store(url: str, connections: Connections | None = None) -> Store:
    """Open a journal store, and make sure that it can be relied on.

    :param url: `file:///path` or an absolute path, `sqlite:////path/journal.db`, `postgresql://user@host/database`,
        `s3://connection@bucket/prefix` (also `gs://`, `abfs://`).
    :param connections: where the connection is that the URL names.
    :raises ConfigurationError: it can be no store's URL. :raises StoreError: it can't be reached.
    :raises UnreliableStoreError: it can't do what the journal rests on.
    """
    store = _backend(url, connections)
    probe(store, race=store.get(_PROBED) is None)
    store.put_if_absent(_PROBED, b"1")
    return store


_PROBED = "_probe_passed/1"


def store_place(url: str) -> Path | URL | ObjectPlace:
    """Where a store is, by its URL and without going there.

    :raises ConfigurationError: no backend has this scheme, or the URL can't be read, is relative, or is on another host.
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme in ("", "file"):
        return local_path(url, operation="open", subject=f"journal store {url!r}")
    if scheme.split("+")[0] in ("sqlite", "postgresql", "postgres"):
        from airflow_gobblin.stores.sql import database_url

        return database_url(url)
    if place := object_place(url):
        return place
    raise ConfigurationError(
        operation="open",
        subject=f"journal store of scheme {scheme!r}",
        cause="no backend has it",
        hint="Use 'file:///…', 'sqlite:////…', 'postgresql://…', or 's3://connection@bucket/prefix' (also 'gs://', 'abfs://').",
    )


def missing_store(url: str) -> Path | None:
    """Where a store on a disk should be and isn't; `None` if it is there, or is no store on a disk.

    To open a store makes it, and to look for one must not, where a disk isn't mounted, say.
    """
    place = store_place(url)
    if isinstance(place, ObjectPlace):
        return None
    if not isinstance(place, Path):
        if place.get_backend_name() != "sqlite":
            return None
        place = Path(place.database or "")
    return None if place.exists() else place


def _backend(url: str, connections: Connections | None) -> Store:
    place = store_place(url)
    if isinstance(place, ObjectPlace):
        from airflow_gobblin.stores.objects import open_object_store

        return open_object_store(place, connections)
    if isinstance(place, Path):
        from airflow_gobblin.stores.local import LocalStore

        return LocalStore(LocalFiles(place))
    from airflow_gobblin.stores.sql import SqlStore

    return SqlStore(url)
