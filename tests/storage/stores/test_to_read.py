"""Reading makes nothing and writes nothing, whatever is read and however it is misspelt; anything missing is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from airflow_gobblin.admin.views import dataset_detail, list_datasets, list_pending
from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, NotFoundError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.storage.stores import open_store, open_store_to_read
from airflow_gobblin.storage.stores.base import ReadOnlyStore, Store
from airflow_gobblin.storage.stores.memory import MemoryStore
from tests.lab import Lab
from tests.protocol.rows import Table
from tests.services.s3 import S3Server

A = Table("a", ExtractKind.APPEND_ONLY, 10)


@dataclass(frozen=True)
class Place:
    """A place for a journal.

    :param seen: everything there, read past our own code.
    """

    url: str
    seen: Callable[[], object]
    connections: Connections | None = None
    to_read: Connections | None = None
    """The credentials of a user who may only read, if the store has such."""


@pytest.fixture(params=["file", "sqlite", "postgresql", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "file":
        yield Place(str(tmp_path / "place" / "journal"), lambda: on_disk(tmp_path / "place"))
    elif request.param == "sqlite":
        yield Place(f"sqlite:///{tmp_path}/place/journal.db", lambda: on_disk(tmp_path / "place"))
    elif request.param == "postgresql":
        url = request.getfixturevalue("postgres_database")
        yield Place(url, lambda: in_database(url))
    else:
        server: S3Server = request.getfixturevalue("versitygw")
        bucket = server.create_bucket()
        reader = server.clerk(bucket, "s3:GetObject", "s3:ListBucket")
        fs = server.access.filesystem()
        yield Place(
            server.access.url(f"{bucket}/journal"),
            lambda: {path: fs.cat_file(path) for path in fs.find(bucket)},
            server.access,
            reader,
        )


def on_disk(folder: Path) -> object:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def in_database(url: str) -> object:
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for (name,) in tables}


@pytest.mark.slow
def test_what_is_not_there_is_an_error_and_is_not_made(place: Place) -> None:
    before = place.seen()
    with pytest.raises(
        NotFoundError, match=r"can't open the journal at .*: there is none\. It is made by the first run"
    ):
        Journal.open(place.url, "lab", place.connections).read_dataset("a")
    assert place.seen() == before


@pytest.mark.slow
def test_nothing_is_written_by_whoever_reads(place: Place, tmp_path: Path) -> None:
    with closing(open_store(place.url, place.connections)) as store:
        lab = Lab(tmp_path / "lake", A, store=store)
        lab.run()
        lab.decide(Table("b", ExtractKind.APPEND_ONLY, 5))
    before = place.seen()
    journal = Journal.open(place.url, "lab", place.to_read or place.connections)
    assert journal.read_dataset("a").rows == 10
    assert journal.id == lab.journal.id
    assert [one.urn for one in list_datasets(journal, now()).views] == ["a", "b"]
    assert [one.urn for one in list_pending(journal, now())] == ["b"]
    assert dataset_detail(journal, lab.opened().files, "b", now()).view.status == "pending"
    for name, urn in (("lab", "A1"), ("laboratory", "a")):
        with pytest.raises(NotFoundError):
            Journal.open(journal.store, name).read_dataset(urn)
    journal.store.close()
    assert place.seen() == before


def test_a_role_that_may_only_select_reads_a_journal(postgres_database: str, tmp_path: Path) -> None:
    with closing(open_store(postgres_database)) as store:
        Lab(tmp_path, A, store=store).run()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'reader'")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    _, _, there = postgres_database.rpartition("@")
    with closing(open_store_to_read(f"postgresql://reader:reader@{there}")) as store:
        assert Journal.open(store, "lab").read_dataset("a").rows == 10


def test_a_store_that_was_opened_to_be_read_refuses_to_be_written() -> None:
    store = MemoryStore()
    store.put_if_absent("a", b"1")
    to_read: Store = ReadOnlyStore(store)
    for write in (
        lambda: to_read.put_if_absent("b", b"2"),
        lambda: to_read.delete("a"),
        lambda: to_read.delete_many(["a"]),
    ):
        with pytest.raises(ConfigurationError, match="the store was opened to be read"):
            write()
    assert [*store.list("")] == ["a"]


def test_a_store_of_the_callers_stays_open_where_there_is_no_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    store, closed = MemoryStore(), list[str]()
    monkeypatch.setattr(store, "close", lambda: closed.append("closed"))
    with pytest.raises(NotFoundError):
        Journal.open(store, "lab")
    assert closed == []


@pytest.mark.parametrize("url", ["{}/jornal", "sqlite:///{}/jornal.db"])
def test_a_misspelt_place_is_reported_with_what_is_beside_it(tmp_path: Path, url: str) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal.db").touch()
    (tmp_path / "other").mkdir()
    with pytest.raises(NotFoundError, match=rf"Did you mean {tmp_path}/journal.*is its disk mounted here"):
        Journal.open(url.format(tmp_path), "lab")
    assert len([*tmp_path.iterdir()]) == 3


def test_a_database_of_something_else_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "shop.db").touch()
    with pytest.raises(NotFoundError):
        Journal.open(f"sqlite:///{tmp_path}/shop.db", "lab")
    assert (tmp_path / "shop.db").stat().st_size == 0
