"""A journal in a bucket, on real servers: lost answers, servers that hang or die, and the errors then."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from gcsfs.retry import HttpError

from airflow_gobblin.errors import ConfigurationError, StoreError, UnknownOutcomeError, UnreliableStoreError
from airflow_gobblin.storage.stores import objects, open_store
from airflow_gobblin.storage.stores.base import put_or_read
from airflow_gobblin.storage.stores.objects import ObjectStore
from tests.services import s3
from tests.services.emulators import Emulator
from tests.services.s3 import CONNECTION, S3Access, S3Server
from tests.services.s3_proxy import Fault, Proxy, running_proxy
from tests.storage.stores.conftest import unproved_store

ALWAYS = float("inf")


@pytest.fixture
def proxy(s3_proxy: Proxy) -> Proxy:
    return s3_proxy


@pytest.fixture
def url(versitygw: S3Server, bucket: str) -> str:
    return versitygw.access.url(f"{bucket}/lake/journal")


@pytest.fixture
def store(versitygw: S3Server, proxy: Proxy, url: str) -> Iterator[ObjectStore]:
    """A store behind the proxy, with its connections open."""
    store = unproved_store(url, versitygw.access.through(proxy.endpoint))
    assert store.get("absent") is None
    yield store
    store.close()


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tries, short pauses."""
    monkeypatch.setattr(objects, "_PAUSES", (0.02, 0.05))


def put_requests(proxy: Proxy) -> int:
    return sum(request.method == "PUT" for request in proxy.seen)


@pytest.mark.parametrize("fault", [Fault.DROP_REQUEST, Fault.INTERNAL_ERROR, Fault.SLOW_DOWN, Fault.CONFLICT])
def test_a_create_that_never_arrived_is_sent_again(store: ObjectStore, proxy: Proxy, fault: Fault) -> None:
    proxy.harm(fault, "PUT")
    assert store.put_if_absent("k", b"mine")
    assert store.get("k") == b"mine"
    assert put_requests(proxy) == 2


@pytest.mark.parametrize("fault", [Fault.DROP_ANSWER, Fault.INTERNAL_ERROR_AFTER])
def test_a_create_whose_answer_was_lost_is_valid_and_is_read_back(
    store: ObjectStore, proxy: Proxy, fault: Fault
) -> None:
    proxy.harm(fault, "PUT")
    assert not store.put_if_absent("k", b"mine")  # "exists", and it is ours
    assert store.get("k") == b"mine"
    proxy.harm(fault, "PUT", times=2)
    assert put_or_read(store, "other", b"mine") == (b"mine", False)


@pytest.mark.parametrize("fault", [Fault.DROP_ANSWER, Fault.DROP_REQUEST, Fault.INTERNAL_ERROR, Fault.SLOW_DOWN])
def test_what_may_be_done_twice_is_done_until_it_is_answered(store: ObjectStore, proxy: Proxy, fault: Fault) -> None:
    store.put_if_absent("k/1", b"one")
    proxy.harm(fault, "GET", times=2)
    assert store.get("k/1") == b"one"
    proxy.harm(fault, "GET", query="list-type")
    assert list(store.list("k/")) == ["k/1"]
    proxy.harm(fault, "DELETE")
    store.delete("k/1")
    assert store.get("k/1") is None


def test_another_record_is_recognized_as_minio_reports_it(store: ObjectStore, proxy: Proxy) -> None:
    proxy.harm(Fault.PRECONDITION, "PUT")
    assert not store.put_if_absent("k", b"mine")
    assert put_requests(proxy) == 1


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("fault", [Fault.INTERNAL_ERROR, Fault.SLOW_DOWN, Fault.CONFLICT, Fault.DROP_REQUEST])
def test_a_store_that_stays_ill_is_given_up_and_named(store: ObjectStore, proxy: Proxy, fault: Fault) -> None:
    proxy.harm(fault, times=ALWAYS)
    with pytest.raises(UnknownOutcomeError, match=r"record 'k' in s3://bucket-\w+/lake/journal") as caught:
        store.put_if_absent("k", b"mine")
    expected = "No answer came" if fault is Fault.DROP_REQUEST else f"kept answering {fault.value[:3]}"
    assert expected in str(caught.value)
    assert caught.value.retryable
    for do in (lambda: store.get("k"), lambda: list(store.list("")), lambda: store.delete("k")):
        with pytest.raises(StoreError, match=expected):
            do()
    proxy.heal()
    assert store.get("k") is None
    assert store.put_if_absent("k", b"mine")


@pytest.mark.usefixtures("hurry")
def test_a_record_that_exists_though_no_answer_ever_came_is_of_unknown_outcome(
    store: ObjectStore, proxy: Proxy
) -> None:
    proxy.harm(Fault.DROP_ANSWER, times=ALWAYS)
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("k", b"mine")
    proxy.heal()
    assert store.get("k") == b"mine"


def test_credentials_that_expire_leave_the_outcome_unknown_and_are_to_be_renewed(
    store: ObjectStore, proxy: Proxy
) -> None:
    store.put_if_absent("k/1", b"one")
    proxy.harm(Fault.EXPIRED, times=ALWAYS)
    with pytest.raises(UnknownOutcomeError, match="expired: renew them in the Airflow connection"):
        store.put_if_absent("k/2", b"two")
    for do in (lambda: store.get("k/1"), lambda: list(store.list("k")), lambda: store.delete("k/1")):
        with pytest.raises(StoreError, match="expired: renew them"):
            do()
    proxy.heal()
    assert store.get("k/1") == b"one"


def test_of_many_records_one_that_cant_be_read_is_named(store: ObjectStore, proxy: Proxy) -> None:
    keys = [f"k/{number}" for number in range(10)]
    proxy.harm(Fault.DENIED, "GET", path="/k/7$", times=ALWAYS)
    with pytest.raises(StoreError, match=r"record 'k/7'.*to read"):
        list(store.get_many(keys))
    some = store.get_many(keys)
    assert next(some) == ("k/0", None)
    some.close()  # type: ignore[attr-defined]
    proxy.harm(Fault.DENIED, "DELETE", path="/k/7$", times=ALWAYS)
    with pytest.raises(StoreError, match=r"record 'k/7'.*to delete"):
        store.delete_many(keys)


@pytest.mark.usefixtures("hurry")
def test_what_is_left_of_many_is_not_begun_when_the_store_is_ill(store: ObjectStore, proxy: Proxy) -> None:
    proxy.harm(Fault.INTERNAL_ERROR, times=ALWAYS)
    before = len(proxy.seen)
    keys = [f"k/{number}" for number in range(2000)]
    for do in (lambda: store.delete_many(keys), lambda: list(store.get_many(keys))):
        with pytest.raises(StoreError, match="kept answering 500"):
            do()
    assert len(proxy.seen) - before < len(keys)


def test_a_store_asked_again_after_it_was_closed_opens_connections(store: ObjectStore) -> None:
    store.put_if_absent("k", b"one")
    store.close()
    assert store.get("k") == b"one"


def _put_in_fork(store: ObjectStore, key: str) -> None:
    assert not store.put_if_absent("mine", b"other")
    assert store.put_if_absent(key, b"of the child")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_uses_a_store_that_was_open(versitygw: S3Server, url: str) -> None:
    store = unproved_store(url, versitygw.access)
    assert store.put_if_absent("mine", b"1")
    children = [
        multiprocessing.get_context("fork").Process(target=_put_in_fork, args=(store, f"k{n}")) for n in range(2)
    ]
    began = time.monotonic()
    for child in children:
        child.start()
    while any(child.is_alive() for child in children):
        assert store.get("mine") == b"1"
    assert time.monotonic() - began < objects._SECONDS_TO_ANSWER  # no answer of the parent's went to a child
    assert [child.exitcode for child in children] == [0, 0]
    assert list(store.list("k")) == ["k0", "k1"]
    store.close()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[S3Server]:
    """A versitygw of the test's own, to be killed."""
    with s3.running(s3.versitygw(tmp_path)) as server:
        yield server


@pytest.mark.usefixtures("hurry")
def test_a_server_that_hangs_or_dies_is_named_and_what_it_took_stays(
    mortal: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_SECONDS_TO_ANSWER", 1.0)
    url = mortal.access.url(f"{mortal.create_bucket()}/journal")
    store = open_store(url, mortal.access)
    assert store.put_if_absent("k", b"one")
    mortal.pause()
    began = time.monotonic()
    with pytest.raises(UnknownOutcomeError, match="No answer came"):
        store.put_if_absent("paused", b"two")
    assert time.monotonic() - began < 10
    mortal.resume()
    mortal.kill()
    with pytest.raises(StoreError, match="No answer came"):
        store.get("k")
    mortal.start()
    assert store.get("k") == b"one"
    assert not store.put_if_absent("k", b"three")
    again = open_store(url, mortal.access)
    assert again.get("k") == b"one"
    again.close()
    store.close()


ALL = ("s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject")


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("s3:GetObject", "permission to read"),
        ("s3:PutObject", "permission to write"),
        ("s3:ListBucket", "permission to list"),
        ("s3:DeleteObject", "permission to delete"),
    ],
)
def test_a_bucket_that_lacks_a_permission_is_refused_by_its_name(
    versitygw: S3Server, bucket: str, missing: str, expected: str
) -> None:
    clerk = versitygw.clerk(bucket, *(action for action in ALL if action != missing))
    with pytest.raises(StoreError, match=rf"s3://{bucket}/journal.*{expected} \(on S3 {missing}\)") as caught:
        open_store(clerk.url(f"{bucket}/journal"), clerk)
    assert clerk.secret not in str(caught.value)


def test_a_bucket_with_just_these_permissions_will_do(versitygw: S3Server, bucket: str) -> None:
    clerk = versitygw.clerk(bucket, *ALL)
    open_store(clerk.url(f"{bucket}/journal"), clerk).close()


def test_places_that_are_none_are_distinguished(versitygw: S3Server, bucket: str, hurry: None) -> None:
    access = versitygw.access
    wrong: dict[str, tuple[str, S3Access]] = {
        "Make bucket 'no-such-bucket', or correct its name": ("no-such-bucket/j", access),
        "credentials are wrong or missing": (f"{bucket}/j", replace(access, secret="wrong")),
        "credentials are wrong": (f"{bucket}/j", replace(access, key="nobody")),
        "No answer came: check the connection's endpoint_url": (f"{bucket}/j", access.through("http://127.0.0.1:9")),
        "InvalidBucketName": ("No/j", access),
        "Invalid bucket name.*Check the connection": ("no bucket/j", access),
        "Invalid endpoint.*Check the connection": (f"{bucket}/j", access.through("nowhere:x")),
    }
    for expected, (path, given) in wrong.items():
        with pytest.raises(StoreError, match=expected):
            open_store(given.url(path), given)


@pytest.mark.parametrize("name", ["gcs", "azurite"])
def test_other_clouds_are_opened_by_their_url_and_a_missing_bucket_is_named(
    request: pytest.FixtureRequest, name: str
) -> None:
    server: Emulator = request.getfixturevalue(name)
    store = open_store(server.url(f"{server.create_bucket()}/journal"), server)
    assert store.put_if_absent("k", b"one")
    assert store.name.startswith(f"{server.scheme}://bucket-")
    store.close()
    with pytest.raises(StoreError, match="Make bucket 'nowhere', or correct its name"):
        open_store(server.url("nowhere/journal"), server)


def test_wrong_keys_of_an_azure_account_are_named(azurite: Emulator) -> None:
    bucket, wrong = azurite.create_bucket(), replace(azurite, connection=azurite.connection.replace("Eby8", "AAAA"))
    with pytest.raises(StoreError, match=r"403 AuthorizationFailure.*credentials must have permission to read"):
        open_store(azurite.url(f"{bucket}/journal"), wrong)


class Answering(MemoryFileSystem):  # type: ignore[misc]
    """Raise what a client of Google's store raises."""

    error: Exception

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        raise self.error

    cat_file = find = rm_file = pipe_file


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (OSError("Forbidden: b/bucket/o\nno storage.objects.create"), StoreError, "permission to write"),
        (HttpError({"code": 401, "message": "Invalid Credentials"}), StoreError, "permission to write"),
        (HttpError({"code": 503, "message": "Backend Error"}), UnknownOutcomeError, "kept answering 503"),
        (HttpError({"code": 429, "message": "Too Many Requests"}), UnknownOutcomeError, "kept answering 429"),
    ],
)
def test_what_google_answers_is_understood(error: Exception, kind: type[StoreError], expected: str) -> None:
    files = Answering(skip_instance_cache=True)
    files.error = error
    with pytest.raises(StoreError, match=expected) as caught:
        ObjectStore(files, "bucket/journal").put_if_absent("k", b"")
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


def test_a_connection_that_cant_be_looked_up_is_refused(bucket: str) -> None:
    with pytest.raises(ConfigurationError, match=f"connection '{CONNECTION}' can't be looked up here"):
        open_store(f"s3://{CONNECTION}@{bucket}/journal")


def test_a_store_that_ignores_the_condition_is_refused(moto: S3Server) -> None:
    url = moto.access.url(f"{moto.create_bucket()}/journal")
    with running_proxy(moto.access.endpoint) as proxy:
        proxy.harm(Fault.UNCONDITIONAL, "PUT", times=ALWAYS)
        with pytest.raises(UnreliableStoreError, match=r"second create was answered with 'created'.*postgresql://"):
            open_store(url, moto.access.through(proxy.endpoint))


def test_a_store_that_loses_the_condition_after_a_restart_is_refused_when_it_is_opened_again(moto: S3Server) -> None:
    url = moto.access.url(f"{moto.create_bucket()}/journal")
    with running_proxy(moto.access.endpoint) as proxy:
        access = moto.access.through(proxy.endpoint)
        store = open_store(url, access)
        assert store.put_if_absent("k", b"one")
        store.close()
        proxy.harm(Fault.UNCONDITIONAL, "PUT", times=ALWAYS)
        with pytest.raises(UnreliableStoreError, match=r"second create was answered with 'created'.*postgresql://"):
            open_store(url, access)
        proxy.heal()
        store = open_store(url, access)
        assert store.get("k") == b"one"
        store.close()


@pytest.mark.parametrize("seed", [2, 3, 5, 7])
def test_a_good_store_is_not_refused_because_answers_get_lost(
    versitygw: S3Server, proxy: Proxy, url: str, seed: int
) -> None:
    proxy.harm_at_random(seed, 0.1, Fault.DROP_ANSWER, Fault.DROP_REQUEST)
    open_store(url, versitygw.access.through(proxy.endpoint)).close()
