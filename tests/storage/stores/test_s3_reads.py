"""Many records are read, and keys listed, by obstore; anything that it can't do goes by s3fs, as if it weren't there."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator

import pytest

from airflow_gobblin.errors import StoreError
from airflow_gobblin.storage.stores.objects import ObjectStore
from tests.services.s3 import S3Server
from tests.services.s3_proxy import Fault, Proxy
from tests.storage.stores.conftest import unproved_store

KEYS = [f"flights/main.trips/d/{number:010d}" for number in range(100)]
ALWAYS = float("inf")


@pytest.fixture
def store(versitygw: S3Server, s3_proxy: Proxy, bucket: str) -> Iterator[ObjectStore]:
    """A store with a hundred records, behind a proxy that has seen nothing yet."""
    access = versitygw.access
    whole = unproved_store(access.url(f"{bucket}/lake/journal"), access)
    for key in KEYS:
        assert whole.put_if_absent(key, key.encode())
    whole.close()
    store = unproved_store(access.url(f"{bucket}/lake/journal"), access.through(s3_proxy.endpoint))
    yield store
    store.close()


def by_obstore(proxy: Proxy) -> set[bool]:
    """How many of the requests came from obstore: none, some, or all."""
    return {request.client.startswith("object_store") for request in proxy.seen}


def test_many_records_are_read_and_listed_without_s3fs(store: ObjectStore, s3_proxy: Proxy) -> None:
    asked = [*KEYS, "flights/absent"]
    assert [*store.get_many(asked)] == [*((key, key.encode()) for key in KEYS), ("flights/absent", None)]
    assert [*store.list("")] == KEYS
    assert [*store.list("flights/main.trips/d/000000000")] == KEYS[:10]
    assert [*store.list("nothing")] == []
    assert by_obstore(s3_proxy) == {True}


def test_a_key_that_it_would_write_otherwise_goes_by_s3fs(store: ObjectStore, s3_proxy: Proxy) -> None:
    odd = "flights/ä~%20 b"
    assert store.put_if_absent(odd, b"odd")
    assert [*store.get_many([*KEYS, odd])][-1] == (odd, b"odd")
    assert [*store.list("flights/ä")] == [odd]
    assert by_obstore(s3_proxy) == {True, False}


@pytest.mark.parametrize("fault", [Fault.INTERNAL_ERROR, Fault.DROP_REQUEST, Fault.DROP_ANSWER, Fault.EXPIRED])
def test_what_it_is_refused_once_is_asked_by_s3fs(store: ObjectStore, s3_proxy: Proxy, fault: Fault) -> None:
    s3_proxy.harm(fault, "GET", times=1)
    assert [*store.list("")] == KEYS
    assert by_obstore(s3_proxy) == {True, False}
    assert [*store.get_many(KEYS)] == [(key, key.encode()) for key in KEYS]
    assert not s3_proxy.seen[-1].client.startswith("object_store")


def test_of_many_records_one_that_cant_be_read_is_named_as_s3fs_reports_it(store: ObjectStore, s3_proxy: Proxy) -> None:
    s3_proxy.harm(Fault.DENIED, "GET", path=f"/{KEYS[70]}$", times=ALWAYS)
    with pytest.raises(StoreError, match=rf"{KEYS[70]}.*403 AccessDenied.*permission to read"):
        [*store.get_many(KEYS)]


def test_no_bucket_is_not_taken_for_no_record(versitygw: S3Server) -> None:
    store = unproved_store(versitygw.access.url("no-such-bucket/journal"), versitygw.access)
    with pytest.raises(StoreError, match="Make bucket 'no-such-bucket'"):
        [*store.get_many(KEYS)]
    with pytest.raises(StoreError, match="Make bucket 'no-such-bucket'"):
        [*store.list("")]


def test_without_it_s3fs_does_all(store: ObjectStore, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    assert [*store.get_many(KEYS)] == [(key, key.encode()) for key in KEYS]
    assert [*store.list("")] == KEYS
    assert by_obstore(s3_proxy) == {False}


def _read(store: ObjectStore) -> None:
    assert [*store.get_many(KEYS)] == [(key, key.encode()) for key in KEYS]
    assert [*store.list("")] == KEYS


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_without_it(store: ObjectStore, s3_proxy: Proxy) -> None:
    _read(store)
    assert by_obstore(s3_proxy) == {True}
    child = multiprocessing.get_context("fork").Process(target=_read, args=(store,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert by_obstore(s3_proxy) == {True, False}
