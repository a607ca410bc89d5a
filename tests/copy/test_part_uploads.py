"""Large files on their way into S3: several parts of each are read and sent at once, and all are of the planned file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.copy.blocks import Block
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.transfer.local import DiskOrigin
from airflow_gobblin.copy.transfer.streams import SMALL
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import s3_uploads
from airflow_gobblin.testing import inprocess
from tests.copy.mirrors import statuses
from tests.services.s3 import S3Access, S3Server
from tests.services.s3_proxy import Fault, Proxy

PART = 5 << 20
CONTENT = {"large": os.urandom(2 * PART + 5), "exact": os.urandom(PART), "above": os.urandom(SMALL + 1), "small": b"x"}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_uploads, "PART_BYTES", PART)


@pytest.fixture
def access(versitygw: S3Server, s3_proxy: Proxy) -> S3Access:
    return versitygw.access.through(s3_proxy.endpoint)


@pytest.fixture
def opened(access: S3Access, bucket: str, tmp_path: Path) -> OpenJob:
    source = tmp_path / "source"
    source.mkdir()
    for name, data in CONTENT.items():
        (source / name).write_bytes(data)
    return inprocess.open_job(Mirror("m", str(source), access.url(f"{bucket}/to"), "unused"), access)


def copied(versitygw: S3Server, bucket: str) -> dict[str, bytes]:
    store: Any = versitygw.access.filesystem()
    return {name: store.cat_file(f"{bucket}/to/{name}") for name in CONTENT}


def parts_sent(s3_proxy: Proxy) -> list[str]:
    """The client of each part that was sent."""
    return [request.client for request in s3_proxy.seen if "partNumber=" in request.query]


def test_parts_are_sent_by_botocore_and_no_part_is_empty(
    opened: OpenJob, versitygw: S3Server, bucket: str, s3_proxy: Proxy
) -> None:
    assert statuses(inprocess.run(opened)) == {"m#files": "committed"}
    assert copied(versitygw, bucket) == CONTENT
    sent = parts_sent(s3_proxy)
    assert len(sent) == 3 + 1 + 1
    assert not [client for client in sent if "aiobotocore" in client]


@pytest.mark.parametrize("fault", [Fault.INTERNAL_ERROR, Fault.DROP_ANSWER, Fault.SLOW_DOWN])
def test_a_part_that_is_refused_is_sent_again(
    opened: OpenJob, versitygw: S3Server, bucket: str, s3_proxy: Proxy, fault: Fault
) -> None:
    s3_proxy.harm(fault, "PUT", query="partNumber=2", times=1)
    assert statuses(inprocess.run(opened)) == {"m#files": "committed"}
    assert copied(versitygw, bucket) == CONTENT
    assert len(parts_sent(s3_proxy)) == 6


def test_a_store_that_refuses_leaves_no_upload(opened: OpenJob, access: S3Access, s3_proxy: Proxy) -> None:
    plan = create_work_units(opened, RunRequest("first"))
    s3_proxy.harm(Fault.DENIED, "PUT", query="partNumber=3", times=float("inf"))
    ((_, result),) = inprocess.run_units(opened, plan, access)
    assert "large" in result.why
    assert [*opened.staging.open_uploads()] == []


def test_a_source_that_changes_between_two_parts_fails_its_file_set(
    opened: OpenJob, access: S3Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DiskOrigin.part

    def part(self: DiskOrigin, entry: Entry, start: int, end: int) -> Block:
        if start == PART:
            with (tmp_path / "source" / "large").open("r+b") as file:
                file.write(b"changed")
        return real(self, entry, start, end)

    plan = create_work_units(opened, RunRequest("first"))
    monkeypatch.setattr(DiskOrigin, "part", part)
    ((_, result),) = inprocess.run_units(opened, plan, access)
    assert "large" in result.why
    assert "changed since it was planned" in result.why
    assert [*opened.staging.open_uploads()] == []
