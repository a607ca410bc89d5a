"""The contract of trees, on every kind of storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_gobblin.copy.trees import Tree, open_tree
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.storage.locations import object_location
from airflow_gobblin.testing import TreeContract
from tests.proofs import one_in
from tests.services.emulators import Emulator
from tests.services.hdfs import Hdfs
from tests.services.http_files import running_http
from tests.services.s3 import S3Server
from tests.services.sftp import running_sftp

Write = Callable[[str, bytes], object]


def writer(folder: Path) -> Write:
    """A writer of files below a folder on disk."""
    folder.mkdir(parents=True)

    def write(path: str, content: bytes) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)

    return write


class TestLocalTree(TreeContract):
    @pytest.fixture
    def write(self, tmp_path: Path) -> Write:
        return writer(tmp_path / "tree")

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Tree:
        return LocalTree(tmp_path / "tree")


class TestSftpTree(TreeContract):
    @pytest.fixture
    def write(self, tmp_path: Path) -> Write:
        return writer(tmp_path / "home/my tree")

    @pytest.fixture
    def tree(self, tmp_path: Path, write: Write) -> Iterator[Tree]:
        with running_sftp(tmp_path / "home") as server:
            yield open_tree(server.url("my tree"), server)


class TestHttpTree(TreeContract):
    @pytest.fixture
    def write(self, tmp_path: Path) -> Write:
        return writer(tmp_path / "home/my tree")

    @pytest.fixture
    def tree(self, tmp_path: Path, write: Write) -> Iterator[Tree]:
        with running_http(tmp_path / "home") as server:
            yield open_tree(server.url("my tree"), server)


class TestHdfsTree(TreeContract):
    """HDFS has no colons in names, and no others that WebHDFS could misread."""

    @pytest.fixture
    def folder(self, hdfs: Hdfs) -> str:
        return f"{hdfs.create_folder()}/my tree"

    @pytest.fixture
    def write(self, hdfs: Hdfs, folder: str) -> Write:
        client = hdfs.client()

        def write(path: str, content: bytes) -> None:
            client.delete(f"/{folder}/{path}")
            out = client.create(f"/{folder}/{path}")
            out.write(content)
            out.close()

        return write

    @pytest.fixture
    def tree(self, hdfs: Hdfs, folder: str) -> Tree:
        return open_tree(hdfs.url(folder), hdfs)


@one_in(2, "place")
class TestS3Tree(TreeContract):
    @pytest.fixture(params=["versitygw", "moto"])
    def place(self, request: pytest.FixtureRequest) -> tuple[S3Server, str]:
        server: S3Server = request.getfixturevalue(request.param)
        return server, server.access.url(f"{server.create_bucket()}/lake")

    @pytest.fixture
    def write(self, place: tuple[S3Server, str]) -> Write:
        server, url = place
        location = object_location(url)
        assert location is not None
        filesystem = open_filesystem(location, server.access)
        bucket, _, prefix = location.path.partition("/")

        def write(path: str, content: bytes) -> None:
            filesystem.call_s3("put_object", Bucket=bucket, Key=f"{prefix}/{path}", Body=content)

        return write

    @pytest.fixture
    def tree(self, place: tuple[S3Server, str]) -> Tree:
        server, url = place
        return open_tree(url, server.access)


class Emulated(TreeContract):
    @pytest.fixture
    def write(self, place: tuple[Emulator, str]) -> Write:
        emulator, url = place
        location = object_location(url)
        assert location is not None
        filesystem = open_filesystem(location, emulator)

        def write(path: str, content: bytes) -> None:
            filesystem.pipe_file(f"{location.path}/{path}", content)

        return write

    @pytest.fixture
    def tree(self, place: tuple[Emulator, str]) -> Tree:
        emulator, url = place
        return open_tree(url, emulator)


class TestGcsTree(Emulated):
    @pytest.fixture
    def place(self, gcs: Emulator) -> tuple[Emulator, str]:
        return gcs, gcs.url(f"{gcs.create_bucket()}/lake")


class TestAzureTree(Emulated):
    """Azure's clients turn a backslash into a slash, and take a name of blanks for none."""

    odd_names = tuple(name for name in TreeContract.odd_names if name not in (" ", "\\n"))

    @pytest.fixture
    def place(self, azurite: Emulator) -> tuple[Emulator, str]:
        return azurite, azurite.url(f"{azurite.create_bucket()}/lake")
