"""Stores that the journal can't rest on are refused when they are opened, by name and with the finding."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_gobblin.errors import ConfigurationError, StoreError, UnknownOutcomeError, UnreliableStoreError
from airflow_gobblin.storage.stores import open_store
from airflow_gobblin.storage.stores.base import probe, put_or_read
from airflow_gobblin.storage.stores.memory import MemoryStore


class Overwriting(MemoryStore):
    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._records[key] = data
        return True


class OverwritingSilently(MemoryStore):
    def put_if_absent(self, key: str, data: bytes) -> bool:
        created = key not in self._records
        self._records[key] = data
        return created


class LosingEmpty(MemoryStore):
    def put_if_absent(self, key: str, data: bytes) -> bool:
        return super().put_if_absent(key, data) if data else True


class ListingLate(MemoryStore):
    def list(self, prefix: str) -> Iterator[str]:
        return iter(list(super().list(prefix))[:-1])


class NotDeleting(MemoryStore):
    def delete(self, key: str) -> None:
        pass


class LettingTwoWin(MemoryStore):
    """The first few creates of a key at the same time all win, as fsspec's exclusive create on a local disk lets them."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if not key.endswith("-race"):
            return super().put_if_absent(key, data)
        self._records[key] = data
        return True


class Forgetting(MemoryStore):
    def get(self, key: str) -> bytes | None:
        return None


@pytest.mark.parametrize(
    ("degraded", "finding"),
    [
        (Overwriting, "second create was answered with 'created'"),
        (OverwritingSilently, "changed the record"),
        (LosingEmpty, "empty record"),
        (ListingLate, "listing"),
        (NotDeleting, "deleted record is still listed"),
        (LettingTwoWin, "racing creates 4 won"),
        (Forgetting, "changed the record"),
    ],
)
def test_a_degraded_store_is_refused(degraded: type[MemoryStore], finding: str) -> None:
    with pytest.raises(UnreliableStoreError, match=finding) as caught:
        probe(degraded(f"{degraded.__name__}://"))
    assert caught.value.subject == f"{degraded.__name__}://"
    assert "postgresql://" in str(caught.value)


class Failing(MemoryStore):
    """Lose the answers to the first puts, before or after they are done."""

    def __init__(self, failures: int, *, done: bool) -> None:
        super().__init__()
        self._failures = failures
        self._done = done

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self._failures:
            self._failures -= 1
            if self._done:
                super().put_if_absent(key, data)
            raise UnknownOutcomeError(operation="write", subject=key, cause="no answer")
        return super().put_if_absent(key, data)


@pytest.mark.slow
@pytest.mark.parametrize("done", [False, True])
def test_settling_puts_the_same_bytes_again_until_something_is_there(done: bool) -> None:
    store = Failing(3, done=done)
    assert put_or_read(store, "k", b"mine")[0] == b"mine"
    assert store.get("k") == b"mine"
    with pytest.raises(UnknownOutcomeError):
        put_or_read(Failing(100, done=False), "k", b"mine")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("journal/here", "not an absolute path"),
        ("file:journal", "not an absolute path"),
        ("file://lake/journal", r"'lake' in it is a host.*three slashes, 'file:///lake/journal'"),
        ("ftp://host/journal", "no backend"),
        ("s3://key:s3cret@bucket/journal", "not the id of a connection.*keys belong in the Airflow connection"),
        ("s3://bucket//journal", "a bucket and a plain prefix"),
        ("gs://bucket/../journal", "a bucket and a plain prefix"),
        ("abfs://", "a bucket and a plain prefix"),
        ("mysql://host/journal", "no backend"),
        ("postgresql://user:s3cret@host:po/db", "the port is a number"),
        ("postgresql://user:p@rt:s3cret@host/db", "written %3A"),
        ("sqlite://", "process of its own"),
        ("sqlite:///journal.db", r"'sqlite:///journal\.db': its path is relative.*four slashes"),
        ("sqlite://host/journal.db", "its path is relative"),
    ],
)
def test_what_is_no_store_is_refused_with_the_way_out(url: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as caught:
        open_store(url)
    assert caught.value.hint
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@127.0.0.1:1/journal",
        "postgresql://ann@127.0.0.1:1/journal?password=s3cret",
        "postgresql://ann@127.0.0.1:1/journal?sslpassword=s3cret",
    ],
)
def test_an_unreachable_database_is_named_without_its_password(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert "127.0.0.1:1/journal" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_folder_that_cant_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="file/journal") as caught:
        open_store(str(tmp_path / "file" / "journal"))
    assert caught.value.retryable


def test_the_folder_of_a_database_is_made(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/lake/state/journal.db")) as store:
        assert store.put_if_absent("a/b", b"1")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=rf"See that the folder {tmp_path}/file/state can be made and written"):
        open_store(f"sqlite:///{tmp_path}/file/state/journal.db")
