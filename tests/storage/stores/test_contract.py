"""The basis of the journal: every store passes the suite that is shipped."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.storage.files import Files, LocalFiles
from airflow_gobblin.storage.stores import open_store as open_by_url
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.testing import MemoryFiles, MemoryObjects, StoreContract
from airflow_gobblin.testing.stores import RECORDS, WRITERS, one_winner_each
from tests.proofs import one_in
from tests.services.s3 import S3Access, S3Server
from tests.storage.stores.conftest import Open


@one_in(2, "open_any")
class TestStores(StoreContract):
    @pytest.fixture
    def open_store(self, open_any: Open) -> Open:
        return open_any


class TestRecordsOfFiles(StoreContract):
    """Those that lie below a target: claims, marks, plans and results."""

    @pytest.fixture(params=["local", "memory", "memory objects"])
    def open_store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
        files: dict[str, Files] = {
            "local": LocalFiles(tmp_path),
            "memory": MemoryFiles(),
            "memory objects": MemoryObjects(),
        }
        return lambda: files[request.param].records("_gobblin/records")


def _write_in_process(url: str, access: S3Access | None, writer: int, start: Any, results: Any) -> None:
    """:param results: gets the records that this writer won, or why it could not go on."""
    try:
        store = open_by_url(url, access)
        start.wait()
        keys = [f"race/{number}" for number in range(RECORDS)]
        results.put([(key, writer) for key in keys if store.put_if_absent(key, b"%d" % writer)])
        store.close()
    except threading.BrokenBarrierError:
        return  # another writer reports why
    except BaseException:
        results.put(traceback.format_exc())
        start.abort()  # or the others would wait for it


@pytest.fixture(params=["local", "sqlite", "postgresql", "versitygw", "moto"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, S3Access | None]:
    """The URL of a store that every process can open, and the connection that it needs."""
    if request.param in ("versitygw", "moto"):
        server: S3Server = request.getfixturevalue(request.param)
        return server.access.url(f"{server.create_bucket()}/journal"), server.access
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_database"), None
    return f"file://{tmp_path}/journal" if request.param == "local" else f"sqlite:///{tmp_path}/journal.db", None


def _race_of_processes(url: str, access: S3Access | None) -> list[tuple[str, int]]:
    """Which writer won which record.

    :raises AssertionError: with the traceback of a writer that could not go on.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "airflow_gobblin.storage.stores.sql", "psycopg", "s3fs"])
    start, results = context.Barrier(WRITERS), context.Queue()
    writers = [
        context.Process(target=_write_in_process, args=(url, access, n, start, results), daemon=True)
        for n in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    won: list[tuple[str, int]] = []
    for _ in writers:
        result = results.get(timeout=120)
        assert isinstance(result, list), result
        won += result
    for writer in writers:
        writer.join()
    return won


@pytest.mark.slow
def test_eight_processes_open_it_at_once_and_race(place: tuple[str, S3Access | None]) -> None:
    won = _race_of_processes(*place)
    store = open_by_url(*place)
    one_winner_each(won, store)
    store.close()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_process_that_cannot_open_it_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AssertionError, match="Not a directory"):
        _race_of_processes(f"file://{tmp_path}/file/journal", None)
