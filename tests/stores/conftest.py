"""Every store that there is, opened by a URL or made here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_gobblin.files import LocalFiles
from airflow_gobblin.stores.base import Store
from airflow_gobblin.stores.local import LocalStore
from airflow_gobblin.stores.memory import MemoryStore
from airflow_gobblin.stores.sql import SqlStore

Open = Callable[[], Store]


@pytest.fixture(params=["memory", "local", "sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store again and again, as another process would."""
    opened: list[Store] = []
    memory = MemoryStore()
    url = request.getfixturevalue("postgres_database") if request.param == "postgresql" else ""

    def open_again() -> Store:
        if request.param == "memory":
            return memory
        if request.param == "local":
            store: Store = LocalStore(LocalFiles(tmp_path / "journal"))
        else:
            store = SqlStore(url or f"sqlite:///{tmp_path}/journal.db")
        opened.append(store)
        return store

    yield open_again
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> Store:
    """One of them, open."""
    return open_store()
