"""The contract of commit steps, on the steps of the package."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from airflow_gobblin.model.work import Segment, StagedFile
from airflow_gobblin.steps.base import CommitStep, FenceResult
from airflow_gobblin.steps.deleting import DeleteStep, delete_files
from airflow_gobblin.steps.placing import place_file, place_folder
from airflow_gobblin.steps.publishing import publish_file, publish_folder
from airflow_gobblin.storage import filesystems
from airflow_gobblin.storage.files import Files, open_files
from airflow_gobblin.storage.files.objects import ObjectFiles
from airflow_gobblin.testing import FencedStepContract, MemoryFiles, MemoryObjects, StepContract
from airflow_gobblin.testing.files import write
from airflow_gobblin.testing.steps import EXECUTORS, Bench, late, shut_out, visible
from airflow_gobblin.testing.threads import together
from tests.proofs import one_in
from tests.protocol.processes import opening_once
from tests.services.emulators import Emulator, with_conditions
from tests.services.hdfs import Hdfs
from tests.services.s3 import S3Server

TARGET, NEXT = "flights/0123-u0", "flights/4567-u0"


@pytest.fixture
def one_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test open one client of a store: that takes most of the time that it would need otherwise."""
    if request.function.__name__ == "test_of_executors_and_fences_at_once_all_agree":
        return  # with connections that are open already, versitygw once in 150 times both aborts and completes an upload
    once = opening_once(filesystems.open_filesystem, lambda place: place.conn_id)
    monkeypatch.setattr(filesystems, "open_filesystem", once)


def stage(files: Files, staged: str, target: str, content: bytes = b"row 1\nrow 2\n") -> CommitStep:
    out = files.stage(staged, target)
    out.write(content)
    return publish_file(out.finish(2), target, "u0", files)


def stage_folder(files: Files, folder: str, target: str) -> CommitStep:
    staged = []
    for number in range(3):
        out = files.stage(f"{folder}/{number}.txt", f"{target}/{number}.txt")
        out.write(b"row %d\n" % number)
        staged.append(out.finish(1))
    (step,) = publish_folder(staged, target, "u0", files)
    return step


class TestMoveStep(StepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: stage(files, "_gobblin/s/0123/a0/u0/u0-0.txt", f"{TARGET}-0.txt")

    @pytest.fixture
    def make_next_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: stage(files, "_gobblin/s/4567/a0/u0/u0-0.txt", f"{NEXT}-0.txt")


class TestMoveStepInMemory(TestMoveStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryFiles


class TestUploadStep(TestMoveStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryObjects


@one_in(3)
class TestStepsInObjectStores(TestMoveStep):
    """Uploads that are completed on S3, and copies within the store elsewhere."""

    @pytest.fixture(params=["versitygw", "azurite"])
    def new_files(self, request: pytest.FixtureRequest, one_client: None) -> Callable[[], Files]:
        server: S3Server | Emulator = request.getfixturevalue(request.param)
        access = server if isinstance(server, Emulator) else server.access
        bucket, numbers = server.create_bucket(), count()
        return lambda: open_files(access.url(f"{bucket}/lake-{next(numbers)}"), access)


class TestFolderStep(StepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: stage_folder(files, "_gobblin/s/0123/a0/u0/u0", TARGET)

    @pytest.fixture
    def make_next_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: stage_folder(files, "_gobblin/s/4567/a0/u0/u0", NEXT)


class TestFolderStepInMemory(TestFolderStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryFiles


# Acts that are possible once only

PLACE = "photos/a.jpg"


def place(files: Files, *, replaces: bool = False) -> CommitStep:
    files.make_folder("photos")
    old = write(files, PLACE, b"old") if replaces else None
    out = files.stage("_gobblin/s/0123/a0/u0-0123/a.jpg", PLACE)
    out.write(b"new")
    return place_file(out.finish(0), PLACE, "u0", files, old)[0]


class TestPlaceStep(FencedStepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return place


class TestPlaceStepInMemory(TestPlaceStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryFiles


class TestPlaceStepByALink(TestPlaceStep):
    """As where files can't be renamed without overwriting."""

    @pytest.fixture
    def make_step(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Files], CommitStep]:
        monkeypatch.setattr("airflow_gobblin.storage.files.local._renameat2", lambda: None)
        return place


class TestPlaceFolderStep(FencedStepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        def make(files: Files) -> CommitStep:
            staged = {}
            for path in ("a.jpg", "deep/er/b.jpg", "deep/c.jpg"):
                out = files.stage(f"_gobblin/s/0123/a0/whole/{path}", f"photos/{path}")
                out.write(path.encode())
                staged[path] = out.finish(0)
            step = place_folder("_gobblin/s/0123/a0/whole", "photos", staged, files)
            assert step is not None
            return step

        return make


class TestPlaceFolderStepInMemory(TestPlaceFolderStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryFiles


class TestPlaceUploadStep(TestPlaceStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryObjects


class TestReplaceStep(FencedStepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: place(files, replaces=True)


class TestReplaceStepInMemory(TestReplaceStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryFiles


class TestReplaceUploadStep(TestReplaceStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryObjects


class TestDeleteStep(FencedStepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        def make(files: Files) -> CommitStep:
            steps = [*delete_files([(PLACE, write(files, PLACE, b"old"))], "_gobblin/s/0123", files)]
            assert isinstance(steps[0], DeleteStep)
            return steps[0]

        return make


class TestDeleteStepInMemory(TestDeleteStep):
    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryFiles


class TestDeleteStepWithLinks(TestDeleteStep):
    """A thing that isn't to be deleted is put back by a link, where files can't be renamed without overwriting."""

    @pytest.fixture(autouse=True)
    def renames(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("airflow_gobblin.storage.files.local._renameat2", lambda: None)


class OnS3:
    @pytest.fixture
    def new_files(self, versitygw: S3Server, one_client: None) -> Callable[[], Files]:
        bucket, numbers = versitygw.create_bucket(), count()
        return lambda: open_files(versitygw.access.url(f"{bucket}/lake-{next(numbers)}"), versitygw.access)


@one_in(3)
class TestPlaceUploadStepOnS3(OnS3, TestPlaceStep):
    pass


def put(files: Files) -> CommitStep:
    """Stage two small objects together.

    :return: the step that puts the second one.
    """
    both, data = "_gobblin/s/0123/a0/u0-0123/small_files", b"new"
    write(files, both, b"another" + data)
    checksum, etag = hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest()
    staged = StagedFile(PLACE, len(data), checksum, 0, etag, segment=Segment(both, 7))
    (step,) = place_file(staged, PLACE, "u0", files)
    return step


class TestPutStep(FencedStepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return put

    @pytest.fixture
    def new_files(self) -> Callable[[], Files]:
        return MemoryObjects

    def test_of_executors_and_fences_at_once_all_agree(
        self, new_bench: Callable[[], Bench], before: dict[str, bytes], after: dict[str, bytes]
    ) -> None:
        """They need not: an executor that has read the bytes before the fence puts the object after it, which is stated. Once it
        is set, and these have ended, nobody else does.
        """
        for _ in range(2 * EXECUTORS):
            step, files = new_bench()

            def act(number: int, step: CommitStep = step, files: Files = files) -> None:
                if number % 2:
                    shut_out(step, files)
                else:
                    late(step, files)

            together(act, EXECUTORS)
            found = visible(files)
            assert found in (before, after)
            assert (shut_out(step, files) is FenceResult.DONE) is (found == after)
            late(step, files)
            assert visible(files) == found


@one_in(3)
class TestPutStepOnS3(OnS3, TestPutStep):
    pass


@one_in(3)
class TestReplaceUploadStepOnS3(OnS3, TestPlaceStep):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: place(files, replaces=True)


class OnHdfs:
    @pytest.fixture
    def new_files(self, hdfs: Hdfs) -> Callable[[], Files]:
        folder, numbers = hdfs.create_folder(), count()
        return lambda: open_files(hdfs.url(f"{folder}/lake-{next(numbers)}"), hdfs)


@one_in(3)
class TestPlaceStepOnHdfs(OnHdfs, TestPlaceStep):
    pass


@one_in(3)
class TestReplaceStepOnHdfs(OnHdfs, TestReplaceStep):
    pass


@one_in(3)
class TestDeleteStepOnHdfs(OnHdfs, TestDeleteStep):
    pass


class OnEmulators:
    @pytest.fixture(params=["gcs", "azurite"])
    def new_files(self, request: pytest.FixtureRequest, one_client: None) -> Iterator[Callable[[], Files]]:
        with with_conditions(request.getfixturevalue(request.param)) as emulator:
            bucket, numbers = emulator.create_bucket(), count()
            yield lambda: open_files(emulator.url(f"{bucket}/lake-{next(numbers)}"), emulator)


@one_in(3)
class TestPlaceCopyStep(OnEmulators, TestPlaceStep):
    pass


@one_in(3)
class TestReplaceCopyStep(OnEmulators, TestReplaceStep):
    pass


def place_by_store(files: Files, *, replaces: bool = False) -> CommitStep:
    """As `place`, of an object that the store itself has staged."""
    assert isinstance(files, ObjectFiles)
    old = write(files, PLACE, b"old") if replaces else None
    source, at = write(files, "elsewhere/a.jpg", b"new"), files.root.partition("://")[2]
    staged = files.stage_copy(f"{at}/elsewhere/a.jpg", source.stamp, 3, "_gobblin/s/0123/a0/u0-0123/a.jpg", PLACE)
    assert (staged.checksum, bool(staged.mark)) == ("", True)
    return place_file(staged, PLACE, "u0", files, old)[0]


@one_in(3)
class TestPlaceMarkedCopyStep(OnEmulators, FencedStepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return place_by_store


@one_in(3)
class TestReplaceMarkedCopyStep(OnEmulators, FencedStepContract):
    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: place_by_store(files, replaces=True)
