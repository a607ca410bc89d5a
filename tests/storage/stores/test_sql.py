"""A record in a database is durable when the store reports it, whatever the database's defaults are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from airflow_gobblin.storage.stores.sql import SqlStore
from tests.services.postgres import running_postgres
from tests.syscalls import traced

EXTRA = 3
"""SQLite's number for it; 2 is FULL, 1 NORMAL and 0 OFF."""


def test_sqlite_waits_for_the_disk(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/journal.db")
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == EXTRA
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    store.close()


def test_the_folders_that_are_made_for_it_are_durable_before_it_is(tmp_path: Path) -> None:
    with traced() as trace:
        store = SqlStore(f"sqlite:///{tmp_path}/data/journals/journal.db")
    assert trace.of("mkdir")[-1] == f"{tmp_path}/data/journals"
    trace.check_made_folders_are_synced(len(trace.calls))
    with traced() as again:
        SqlStore(f"sqlite:///{tmp_path}/data/journals/journal.db").close()
    assert again.calls == []
    store.close()


DEFAULTS = ("off", "local", "remote_write", "on", "remote_apply")


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize("of", ["ROLE tester", "DATABASE"])
def test_postgresql_waits_for_the_disk_whatever_the_default_is(postgres_database: str, of: str, default: str) -> None:
    """And never for less than that default."""
    name = postgres_database.rpartition("/")[2]
    whose = f"{of} IN DATABASE {name}" if of.startswith("ROLE") else f"DATABASE {name}"
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        admin.execute(f"ALTER {whose} SET synchronous_commit = {default}".encode())
    store = SqlStore(postgres_database)
    seen: set[str] = set()

    def look(connection: sa.Connection) -> None:
        seen.add(str(connection.exec_driver_sql("SHOW synchronous_commit").scalar()))

    sa.event.listen(store._engine, "commit", look)
    writes: list[Callable[[], object]] = [
        lambda: store.put_if_absent("k", b""),
        lambda: store.put_if_absent("k", b""),
        lambda: store.delete("k"),
        lambda: store.delete_many(["k", "l"]),
    ]
    for write in writes:
        seen.clear()
        write()
        assert seen == {"remote_apply" if default == "remote_apply" else "on"}
    store.close()


@pytest.mark.slow
def test_a_record_outlives_a_crash_of_a_server_whose_commits_do_not_wait(tmp_path: Path) -> None:
    with running_postgres(tmp_path) as server:
        url = server.create_database("journal")
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("ALTER DATABASE journal SET synchronous_commit = off")
        store = SqlStore(url)
        assert store.put_if_absent("a", b"decided")
        server.kill()
        server.start()
        assert store.get("a") == b"decided"
        store.close()
