"""Where the journal is kept: the port (`base`), and one file a backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.files import LocalFiles
from airflow_gobblin.naming import near
from airflow_gobblin.places import ObjectPlace, local_path, object_place
from airflow_gobblin.stores.base import ReadOnlyStore, Store, no_journal, probe

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from airflow_gobblin.sources.base import Connections

__all__ = [
    "ReadOnlyStore",
    "Store",
    "no_journal",
    "open_store",
    "open_store_to_read",
    "path_of_store",
    "probe",
    "store_place",
]


def open_store(url: str, connections: Connections | None = None) -> Store:
    """Open a journal store to write, make it where there is none, and make sure that it can be relied on.

    :param url: `file:///path` or an absolute path, `sqlite:////path/journal.db`, `postgresql://user@host/database`,
        `s3://connection@bucket/prefix` (also `gs://`, `abfs://`).
    :param connections: where the connection is that the URL names.
    :raises ConfigurationError: it can be no store's URL. :raises StoreError: it can't be reached.
    :raises UnreliableStoreError: it can't do what the journal rests on.
    """
    store = _backend(url, connections, to_read=False)
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


def open_store_to_read(url: str, connections: Connections | None = None) -> Store:
    """Open a journal store to be read. Nothing is made or written, by this and by whatever is done with it.

    :param url: and :param connections: are as for `open_store`.
    :raises ConfigurationError: it can be no store's URL. :raises NotFoundError: nothing is there.
    :raises StoreError: it can't be reached.
    """
    path = path_of_store(url)
    if path is not None and not path.exists():
        alike = _alike(path)
        meant = f"Did you mean {' or '.join(alike)}? " if alike else ""
        raise no_journal(str(path), f"{meant}If there was one: is its disk mounted here?")
    return ReadOnlyStore(_backend(url, connections, to_read=True))


def path_of_store(url: str) -> Path | None:
    """The folder or file of a store on a disk; `None` for another one. :raises ConfigurationError: as `store_place`."""
    place = store_place(url)
    if isinstance(place, Path):
        return place
    if isinstance(place, ObjectPlace) or place.get_backend_name() != "sqlite":
        return None
    return Path(place.database or "")


def _alike(path: Path) -> list[str]:
    """What stands beside a path that isn't there, and is named like it."""
    try:
        return [str(path.parent / name) for name in near(path.name, sorted(one.name for one in path.parent.iterdir()))]
    except OSError:
        return []


def _backend(url: str, connections: Connections | None, *, to_read: bool) -> Store:
    place = store_place(url)
    if isinstance(place, ObjectPlace):
        from airflow_gobblin.stores.objects import open_object_store

        return open_object_store(place, connections)
    if isinstance(place, Path):
        from airflow_gobblin.stores.local import LocalStore

        return LocalStore(LocalFiles(place))
    from airflow_gobblin.stores.sql import SqlStore

    return SqlStore(url, to_read=to_read)
