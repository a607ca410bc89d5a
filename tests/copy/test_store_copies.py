"""Mirrors within one S3: the store copies, and no byte of a file moves through us."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.copy.options import Existing
from airflow_gobblin.job import Job
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import s3_uploads
from airflow_gobblin.testing import inprocess
from tests.copy.mirrors import copied, statuses
from tests.services.s3 import S3Access, S3Server
from tests.services.s3_proxy import Fault, Proxy

LARGE = os.urandom(12_000_005)
CONTENT = {"a": b"a", "b/empty": b"", "b/large": LARGE, "c/ä ~%20+": b"odd"}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_uploads, "COPIED_AT_ONCE", 5 << 20)


@pytest.fixture
def access(versitygw: S3Server, s3_proxy: Proxy) -> S3Access:
    return versitygw.access.through(s3_proxy.endpoint)


@pytest.fixture
def store(versitygw: S3Server, bucket: str) -> Any:
    """Somebody else's access to the store, with a tree in it."""
    store = versitygw.access.filesystem()
    for path, data in CONTENT.items():
        store.pipe_file(f"{bucket}/from/{path}", data)
    return store


@pytest.fixture
def job(access: S3Access, bucket: str) -> Job:
    return Mirror("m", access.url(f"{bucket}/from"), access.url(f"{bucket}/to"), "unused", existing=Existing.UPDATE)


@pytest.fixture
def opened(job: Job, access: S3Access) -> OpenJob:
    return inprocess.open_job(job, access)


def test_no_byte_of_a_file_moves_through_us(opened: OpenJob, store: Any, bucket: str, s3_proxy: Proxy) -> None:
    s3_proxy.seen.clear()
    before = s3_proxy.moved
    assert statuses(inprocess.run(opened)) == {"m#files": "committed"}
    assert copied(store, bucket) == CONTENT
    assert not [request for request in s3_proxy.seen if request.method == "GET" and "/from/" in request.path]
    assert s3_proxy.moved - before < 1_000_000 < len(LARGE)
    assert statuses(inprocess.run(opened)) == {"m#files": "idle"}


def test_a_copy_by_the_store_replaces_what_is_expected(opened: OpenJob, store: Any, bucket: str) -> None:
    assert statuses(inprocess.run(opened)) == {"m#files": "committed"}
    store.pipe_file(f"{bucket}/from/b/large", LARGE[1:])
    assert statuses(inprocess.run(opened)) == {"m#files": "committed"}
    assert copied(store, bucket) == CONTENT | {"b/large": LARGE[1:]}


@pytest.mark.parametrize("data", [LARGE[::-1], LARGE[1:], b"", None], ids=["other", "shorter", "empty", "gone"])
def test_a_source_that_changed_fails_its_file_set(
    opened: OpenJob, store: Any, bucket: str, access: S3Access, data: bytes | None
) -> None:
    plan = create_work_units(opened, RunRequest("first"))
    if data is None:
        store.rm_file(f"{bucket}/from/b/large")
    else:
        store.pipe_file(f"{bucket}/from/b/large", data)
    results = [result for _, result in inprocess.run_units(opened, plan, access)]
    (failure,) = (result.failure for result in results if result.failure is not None)
    assert "b/large" in str(failure)
    assert "is gone" in str(failure) or "changed since it was planned" in str(failure)
    assert [*opened.staging.open_uploads()] == []


def test_a_store_that_refuses_leaves_no_upload(opened: OpenJob, store: Any, access: S3Access, s3_proxy: Proxy) -> None:
    plan = create_work_units(opened, RunRequest("first"))
    s3_proxy.harm(Fault.DENIED, "PUT", query="partNumber=2", times=float("inf"))
    results = [result for _, result in inprocess.run_units(opened, plan, access)]
    (failure,) = (result.failure for result in results if result.failure is not None)
    assert "b/large" in str(failure)
    assert [*opened.staging.open_uploads()] == []


def test_between_two_connections_the_bytes_go_through_us(
    versitygw: S3Server, store: Any, bucket: str, tmp_path: Path
) -> None:
    class Two:
        def uri(self, conn_id: str) -> str:
            return versitygw.access.connection

    job = Mirror("m", f"s3://one@{bucket}/from", f"s3://two@{bucket}/to", "unused")
    assert statuses(inprocess.run(inprocess.open_job(job, Two()))) == {"m#files": "committed"}
    assert copied(store, bucket) == CONTENT
