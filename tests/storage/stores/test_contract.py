"""What the journal rests on. One suite, and every store passes it."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.storage.stores import open_store as open_by_url
from airflow_gobblin.storage.stores.base import Store, probe, put_or_read
from tests.services.s3 import S3Access, S3Server
from tests.storage.stores.conftest import Open

WRITERS = 8
ROUNDS = 25
MANY = 510
"""Records; more than a SQL store asks for at once."""


def test_it_passes_the_probe(store: Store) -> None:
    probe(store)
    assert list(store.list("_probe/")) == []


def test_a_record_is_created_once_and_never_changes(store: Store, open_store: Open) -> None:
    assert store.get("a/b") is None
    assert store.put_if_absent("a/b", b"one")
    assert not store.put_if_absent("a/b", b"two")
    assert open_store().get("a/b") == b"one"
    assert not open_store().put_if_absent("a/b", b"three")


# aiohttp would have a big body as a file, which the clients of GCS and ADLS don't give it.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
@pytest.mark.parametrize("data", [b"", b"\0\xff\n", b"x" * 3_000_000], ids=["empty", "binary", "3 MB"])
def test_any_bytes_are_kept(store: Store, open_store: Open, data: bytes) -> None:
    assert store.put_if_absent("k", data)
    assert open_store().get("k") == data
    assert not store.put_if_absent("k", b"other")


def test_many_records_come_in_the_order_of_their_keys(store: Store) -> None:
    keys = [f"m/{number:04d}" for number in range(MANY)]
    written = set(keys[::7])
    for key in written:
        store.put_if_absent(key, key.encode())
    asked = keys[::-1]
    assert list(store.get_many(asked)) == [(k, k.encode() if k in written else None) for k in asked]
    assert list(store.get_many([])) == []


def test_a_prefix_lists_sorted_and_only_what_begins_with_it(store: Store) -> None:
    keys = [
        "i/a/d/0000000002",
        "i/a/d/0000000010",
        "i/a-b/d/0000000001",
        "i/a.b/x",
        "i/B/x",
        "i2/a/x",
        "i/a/é",
        "i/a/o/1",
    ]
    for key in keys:
        store.put_if_absent(key, key.encode())
    for prefix in ("", "i/", "i/a/", "i/a/d/", "i/a", "i/a/d/00000000", "i/a/d/0000000010", "nothing/", "i/%", "i_a"):
        assert list(store.list(prefix)) == sorted(k for k in keys if k.startswith(prefix)), prefix


def test_what_was_put_is_listed_at_once_by_others(store: Store, open_store: Open) -> None:
    other = open_store()
    for number in range(20):
        store.put_if_absent(f"l/{number:02d}", b"")
        assert len(list(other.list("l/"))) == number + 1


def test_delete_is_harmless_twice_and_frees_the_key(store: Store) -> None:
    store.put_if_absent("k/1", b"a")
    store.delete("k/1")
    store.delete("k/1")
    assert store.get("k/1") is None
    assert list(store.list("k")) == []
    assert store.put_if_absent("k/1", b"b")


def test_many_records_are_deleted_whether_they_are_there_or_not(store: Store) -> None:
    keys = [f"m/{number % 7}/{number:04d}" for number in range(MANY)]
    for key in keys[::9]:
        store.put_if_absent(key, b"")
    store.put_if_absent("m/other", b"")
    store.delete_many(keys)
    store.delete_many([])
    assert list(store.list("m/")) == ["m/other"]


def test_a_key_beside_a_folder_of_its_name_is_its_own(store: Store) -> None:
    assert store.put_if_absent("a/b", b"1")
    assert store.put_if_absent("a/bc/d", b"2")
    assert store.get("a/bc") is None
    assert store.get("a/b/c") is None


def test_eight_threads_race_and_one_wins_each_record(open_store: Open) -> None:
    open_store()
    start = threading.Barrier(WRITERS, timeout=60)
    won: list[tuple[int, int]] = []

    def write(writer: int) -> None:
        mine = open_store()
        for number in range(ROUNDS):
            start.wait()
            if mine.put_if_absent(f"race/{number}", b"%d" % writer):
                won.append((number, writer))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _one_winner_each(won, open_store())


def _write_in_process(url: str, access: S3Access | None, writer: int, start: Any, results: Any) -> None:
    """:param results: gets the records that this writer won, or why it could not go on."""
    try:
        store = open_by_url(url, access)
        start.wait()
        results.put([(n, writer) for n in range(ROUNDS) if store.put_if_absent(f"race/{n}", b"%d" % writer)])
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


def _race_of_processes(url: str, access: S3Access | None) -> list[tuple[int, int]]:
    """Which writer won which record. :raises AssertionError: with the traceback of a writer that could not go on."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "airflow_gobblin.storage.stores.sql", "psycopg", "s3fs"])
    start, results = context.Barrier(WRITERS), context.Queue()
    writers = [
        context.Process(target=_write_in_process, args=(url, access, n, start, results), daemon=True)
        for n in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    won: list[tuple[int, int]] = []
    for _ in writers:
        result = results.get(timeout=120)
        assert isinstance(result, list), result
        won += result
    for writer in writers:
        writer.join()
    return won


def test_eight_processes_open_it_at_once_and_race(place: tuple[str, S3Access | None]) -> None:
    won = _race_of_processes(*place)
    store = open_by_url(*place)
    _one_winner_each(won, store)
    store.close()


@pytest.mark.timeout(60)
def test_a_process_that_cannot_open_it_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AssertionError, match="Not a directory"):
        _race_of_processes(f"file://{tmp_path}/file/journal", None)


def _one_winner_each(won: list[tuple[int, int]], store: Store) -> None:
    assert Counter(number for number, _ in won) == Counter(range(ROUNDS))
    for number, writer in won:
        assert store.get(f"race/{number}") == b"%d" % writer


def test_settling_gives_what_stands(store: Store) -> None:
    assert put_or_read(store, "s", b"mine") == (b"mine", True)
    assert put_or_read(store, "s", b"other") == (b"mine", False)
