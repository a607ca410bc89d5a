"""Parts of an object that are asked for many at a time: it is read once, and looked at again each time."""

from __future__ import annotations

import pytest

from airflow_gobblin.storage import quick_s3
from airflow_gobblin.storage.files import Files, open_files
from airflow_gobblin.testing.files import write
from tests.services.s3 import S3Server
from tests.services.s3_proxy import Proxy


@pytest.fixture
def files(versitygw: S3Server, s3_proxy: Proxy, bucket: str) -> Files:
    access = versitygw.access.through(s3_proxy.endpoint)
    return open_files(access.url(f"{bucket}/lake"), access)


def gets(proxy: Proxy) -> int:
    return sum(request.method == "GET" for request in proxy.seen)


def test_an_object_is_read_once_for_its_parts(files: Files, s3_proxy: Proxy) -> None:
    write(files, "many", bytes(range(100)))
    before = gets(s3_proxy)
    assert [files.read_part("many", at, 2) for at in range(0, 100, 2)] == [
        bytes((at, at + 1)) for at in range(0, 100, 2)
    ]
    assert gets(s3_proxy) == before + 1


def test_an_object_that_changed_is_read_again(files: Files) -> None:
    write(files, "many", b"0123")
    assert files.read_part("many", 1, 2) == b"12"
    files.unlink("many")
    with pytest.raises(FileNotFoundError):
        files.read_part("many", 1, 2)
    write(files, "many", b"4567")
    assert files.read_part("many", 1, 2) == b"56"


def test_only_a_few_are_kept_and_large_ones_are_not(
    files: Files, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        write(files, name, name.encode() * 9)
    before = gets(s3_proxy)
    assert [files.read_part(name, 0, 1) for name in "abcabc"] == [name.encode() for name in "abcabc"]
    assert gets(s3_proxy) == before + 6
    monkeypatch.setattr(quick_s3, "_MOST_KEPT", 8)
    write(files, "d", b"0123456789")
    assert files.read_part("d", 7, 9) == b"789"
