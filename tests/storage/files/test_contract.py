"""The contract of files, on every kind of storage."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_gobblin.storage.files import Files, LocalFiles, open_files
from airflow_gobblin.testing import FilesContract, FoldersContract, MemoryFiles, MemoryObjects, UploadsContract
from airflow_gobblin.testing.files import TARGET
from airflow_gobblin.testing.threads import together
from tests.proofs import one_in
from tests.services.emulators import Emulator, with_conditions
from tests.services.hdfs import Hdfs
from tests.services.s3 import S3Server


class TestLocalFiles(FoldersContract):
    @pytest.fixture
    def files(self, tmp_path: Path) -> Files:
        return LocalFiles(tmp_path / "root")


class TestMemoryFiles(FoldersContract):
    @pytest.fixture
    def files(self) -> Files:
        return MemoryFiles()


class TestMemoryObjects(UploadsContract):
    @pytest.fixture
    def files(self) -> Files:
        return MemoryObjects()


class TestHdfsFiles(FoldersContract):
    links = False

    @pytest.fixture
    def files(self, hdfs: Hdfs) -> Files:
        return open_files(hdfs.url(f"{hdfs.create_folder()}/lake"), hdfs)

    @pytest.mark.slow
    def test_an_output_that_is_aborted_at_once_is_not_made_later(self, files: Files) -> None:
        def abort(number: int) -> None:
            files.stage(f"staged/{number}/{uuid.uuid4().hex}", TARGET).abort()

        for _ in range(10):
            together(abort, 16)
        time.sleep(1)
        assert [*files.walk(".")] == []


@one_in(2, "files")
class TestS3Files(UploadsContract):
    @pytest.fixture(params=["versitygw", "moto"])
    def files(self, request: pytest.FixtureRequest) -> Files:
        server: S3Server = request.getfixturevalue(request.param)
        if server.name == "moto" and request.function.__name__ == "test_an_upload_replaces_no_other_object":
            reason = "moto ignores If-Match when it completes an upload"
            request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
        return open_files(server.access.url(f"{server.create_bucket()}/lake"), server.access)


@one_in(2)
class TestAzureFiles(FilesContract):
    @pytest.fixture
    def files(self, azurite: Emulator) -> Files:
        return open_files(azurite.url(f"{azurite.create_bucket()}/lake"), azurite)


@one_in(2)
class TestGcsFiles(FilesContract):
    """fake-gcs-server ignores the condition of a rewrite, which a proxy keeps in its place."""

    @pytest.fixture
    def files(self, gcs: Emulator) -> Iterator[Files]:
        with with_conditions(gcs) as emulator:
            yield open_files(emulator.url(f"{emulator.create_bucket()}/lake"), emulator)
