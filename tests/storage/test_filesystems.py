"""Times in the answers of S3, and what its clients share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from ssl import SSLContext
from typing import Any

import certifi
import pytest
from botocore.utils import parse_timestamp

from airflow_gobblin.storage.filesystems import open_filesystem, parse_time
from airflow_gobblin.storage.locations import object_location
from tests.services.s3 import S3Server

TIMES = [
    "2026-11-23T12:38:50.123Z",
    "2026-11-23T12:38:50Z",
    "2026-11-23T12:38:50+02:00",
    "20261123T123850Z",
    "Mon, 23 Nov 2026 12:38:50 GMT",
    "1795437530",
    1795437530,
    1795437530.5,
]


@pytest.mark.parametrize("text", TIMES, ids=str)
def test_a_time_is_the_one_that_botocore_finds(text: str | float) -> None:
    assert parse_time(text) == parse_timestamp(text)
    assert parse_time(text).tzinfo is not None


@pytest.mark.parametrize("text", ["never", "2026-13-23T12:38:50Z"], ids=str)
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_time(text)


def test_a_listing_has_the_times_of_its_objects(versitygw: S3Server) -> None:
    bucket = versitygw.create_bucket()
    place = object_location(versitygw.access.url(bucket))
    assert place is not None
    filesystem = open_filesystem(place, versitygw.access)
    filesystem.pipe_file(f"{bucket}/a", b"x")
    (listed,) = filesystem.call_s3("list_objects_v2", Bucket=bucket)["Contents"]
    head = filesystem.call_s3("head_object", Bucket=bucket, Key="a")
    assert listed["LastModified"].replace(microsecond=0) == head["LastModified"].replace(microsecond=0)
    assert listed["LastModified"].utcoffset().total_seconds() == 0


def test_the_certificates_of_authorities_are_loaded_once(
    versitygw: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[object] = []
    own = SSLContext.load_verify_locations

    def load(context: SSLContext, *arguments: Any) -> None:
        loaded.append(arguments[0])
        own(context, *arguments)

    authorities = tmp_path / "authorities.pem"
    shutil.copy(certifi.where(), authorities)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authorities))
    monkeypatch.setattr(SSLContext, "load_verify_locations", load)
    bucket = versitygw.create_bucket()
    place = object_location(versitygw.access.url(bucket))
    assert place is not None
    loaded.clear()
    for times in (1, 1, 2):
        if times == 2:  # others from now on
            os.utime(authorities, (1, 1))
        open_filesystem(place, versitygw.access).pipe_file(f"{bucket}/a", b"x")
        assert loaded == [str(authorities)] * times
