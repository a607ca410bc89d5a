"""The files below a prefix of a bucket, on real servers; and uploads, which publish without moving a byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from airflow_gobblin.errors import StepLostError
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.steps.base import StepContext, StepStatus
from airflow_gobblin.steps.execution import carry_out
from airflow_gobblin.steps.publishing import MoveStep, UploadStep, copies_of, publish_file
from airflow_gobblin.storage.files import Files, object_copies, open_files, with_listing_cache
from airflow_gobblin.storage.files import s3_uploads as module
from airflow_gobblin.storage.files.base import FileIdentity
from airflow_gobblin.testing.files import write
from tests.proofs import one_in
from tests.services.emulators import Emulator, keep_conditions
from tests.services.s3 import S3Server
from tests.services.s3_proxy import Fault, Proxy, running_proxy

pytestmark = [one_in(2, "server"), one_in(2, "emulator")]

TARGET = "trips/0123-u0-0.parquet"


@pytest.fixture(params=["versitygw", "moto"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def files(server: S3Server) -> Files:
    return open_files(server.access.url(f"{server.create_bucket()}/lake"), server.access)


def stage(files: Files, content: bytes = b"rows", target: str = TARGET) -> StagedFile:
    out = files.stage("_gobblin/s/0123/a0/u0/u0-0.parquet", target)
    out.write(content)
    return out.finish(1)


def step_of(files: Files, staged: StagedFile) -> UploadStep:
    step = publish_file(staged, staged.path, "u0", files)
    assert isinstance(step, UploadStep)
    return step


def test_a_staged_file_is_seen_by_nobody_until_it_is_published(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)  # the least that S3 takes
    content = os.urandom(12 << 20)
    staged = stage(files, content)
    assert staged.upload is not None
    assert (staged.path, staged.size, len(staged.upload.etags)) == (TARGET, len(content), 3)
    assert [*files.walk(".")] == []
    assert files.uploads is not None
    assert [*files.uploads.open_below("trips")] == [(TARGET, staged.upload.id)]

    step = step_of(files, staged)
    assert step.verify(StepContext(files)) is StepStatus.TODO
    step.execute(StepContext(files))
    assert step.verify(StepContext(files)) is StepStatus.DONE
    assert files.read(TARGET) == content
    assert files.checksum(TARGET) == staged.checksum
    assert files.identity(TARGET) == step.identity
    assert [*files.uploads.open_below(".")] == []


def test_an_upload_that_is_gone_is_lost(files: Files) -> None:
    staged = stage(files)
    step = step_of(files, staged)
    assert files.uploads is not None
    assert staged.upload is not None
    files.uploads.abort(TARGET, staged.upload.id)
    files.uploads.abort(TARGET, staged.upload.id)
    assert step.verify(StepContext(files)) is StepStatus.LOST
    with pytest.raises(OSError, match=r"upload|Internal Server Error"):
        step.execute(StepContext(files))
    assert step.verify(StepContext(files)) is StepStatus.LOST


def test_undoing_takes_the_upload_first_so_that_no_late_executor_publishes(files: Files) -> None:
    step = step_of(files, stage(files))
    step.undo(StepContext(files))
    with pytest.raises(OSError, match=r"upload|Internal Server Error"):
        step.execute(StepContext(files))
    assert files.identity(TARGET) is None
    done = step_of(files, stage(files))
    done.execute(StepContext(files))
    done.undo(StepContext(files))
    assert files.identity(TARGET) is None


def test_a_store_without_a_copy_that_never_overwrites_is_refused(files: Files) -> None:
    """On S3 files are published by completing uploads; its servers were seen to ignore the condition of a copy."""
    with files.create("a") as out:
        out.write(b"1")
    with pytest.raises(OSError, match="no copy that never overwrites"):
        files.link("a", "b")
    assert [*files.walk(".")] == ["a"]


def new_files(server: Emulator) -> Files:
    return open_files(server.url(f"{server.create_bucket()}/lake"), server)


@pytest.fixture(params=["gcs", "azurite"])
def emulator(request: pytest.FixtureRequest) -> Emulator:
    found: Emulator = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(emulator: Emulator) -> Iterator[Proxy]:
    """A proxy in front of one of the two, that does no harm yet."""
    with running_proxy(emulator.endpoint) as proxy:
        yield proxy


COPY = r"rewriteTo|/lake/trips/"
"""The path of a request that copies, on either."""


def test_where_uploads_are_not_kept_files_are_copied_under_a_condition(emulator: Emulator, proxy: Proxy) -> None:
    """fake-gcs-server ignores the condition of a rewrite: the test sees that it is sent, and the proxy answers as GCS does."""
    through = emulator.through(proxy.endpoint)
    files = open_files(through.url(f"{emulator.create_bucket()}/lake"), through)
    step = publish_file(stage(files), TARGET, "u0", files)
    assert isinstance(step, MoveStep)
    assert step.verify(StepContext(files)) is StepStatus.TODO
    proxy.seen.clear()
    step.execute(StepContext(files))
    copies = [r for r in proxy.seen if r.method in ("PUT", "POST")]
    if emulator.scheme == "gs":
        assert ["ifGenerationMatch=0" in r.query for r in copies] == [True]
    else:
        assert [r.condition for r in copies] == ["*"]
    assert step.verify(StepContext(files)) is StepStatus.DONE
    assert files.read(TARGET) == b"rows"
    with pytest.raises(FileNotFoundError):
        files.link("_gobblin/nothing", "trips/nothing")
    assert files.identity("trips/nothing") is None


@pytest.mark.parametrize("name", ["versitygw", "moto", "gcs", "azurite"])
def test_the_clock_of_a_place_is_known_by_what_is_written_there(name: str, request: pytest.FixtureRequest) -> None:
    server: S3Server | Emulator = request.getfixturevalue(name)
    access = server if isinstance(server, Emulator) else server.access
    files = open_files(access.url(f"{server.create_bucket()}/lake"), access)
    before = now()
    files.create("a").close()
    found = files.modified("a")
    assert found is not None
    assert before - timedelta(seconds=2) < found < now() + timedelta(seconds=2)
    assert files.modified("nothing") is None


def test_a_copy_goes_over_nothing(emulator: Emulator, proxy: Proxy) -> None:
    through = emulator.through(proxy.endpoint)
    files = open_files(through.url(f"{emulator.create_bucket()}/lake"), through)
    step = publish_file(stage(files), TARGET, "u0", files)
    with files.create(TARGET) as out:
        out.write(b"theirs")
    if emulator.scheme == "gs":
        proxy.harm(Fault.PRECONDITION, "POST", "rewriteTo", "ifGenerationMatch=0")  # as GCS answers
    with pytest.raises(FileExistsError):
        step.execute(StepContext(files))
    assert step.verify(StepContext(files)) is StepStatus.CONFLICT
    assert files.read(TARGET) == b"theirs"


@pytest.mark.parametrize("fault", [Fault.DROP_ANSWER, Fault.DROP_REQUEST])
def test_a_copy_whose_answer_is_lost_is_read_back(emulator: Emulator, proxy: Proxy, fault: Fault) -> None:
    through = emulator.through(proxy.endpoint)
    files = open_files(through.url(f"{emulator.create_bucket()}/lake"), through)
    step = publish_file(stage(files), TARGET, "u0", files)
    proxy.harm(fault, "POST" if emulator.scheme == "gs" else "PUT", COPY)
    if emulator.scheme == "gs" and fault is not Fault.DROP_REQUEST:
        proxy.harm(Fault.PRECONDITION, "POST", COPY, nth=2)  # as GCS answers to the client's second try
    carry_out(step, StepContext(files), "main.trips", 1)
    assert len([r for r in proxy.seen if r.fault is fault]) == 1
    assert step.verify(StepContext(files)) is StepStatus.DONE
    assert files.read(TARGET) == b"rows"
    assert not carry_out(step, StepContext(files), "main.trips", 1) or emulator.scheme == "gs"


def test_a_blob_whose_copy_is_under_way_is_waited_for(azurite: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within an account Azure copies at once, but doesn't promise to. An object that is being copied is empty."""
    monkeypatch.setattr(object_copies, "_SECONDS_BETWEEN", 0)
    files = new_files(azurite)
    step = publish_file(stage(files), TARGET, "u0", files)
    looks, real = ["pending", "pending", "success"], object_copies._blob

    class Slow:
        """A blob that reports for a while that it is being copied."""

        def __init__(self, blob: Any) -> None:
            self._blob = blob

        def __getattr__(self, name: str) -> Any:
            return getattr(self._blob, name)

        async def start_copy_from_url(self, *arguments: Any, **options: Any) -> Any:
            return await self._blob.start_copy_from_url(*arguments, **options) | {"copy_status": "pending"}

        async def get_blob_properties(self) -> Any:
            found = await self._blob.get_blob_properties()
            found.copy.status = looks.pop(0)
            return found

    monkeypatch.setattr(object_copies, "_blob", lambda filesystem, path: Slow(real(filesystem, path)))
    step.execute(StepContext(files))
    assert looks == []
    looks += ["pending", "success"]
    with pytest.raises(FileExistsError):
        step.execute(StepContext(files))
    assert looks == []
    looks += ["failed"]
    with pytest.raises(OSError, match="the store's copy is failed"):
        files.link("_gobblin/s/0123/a0/u0/u0-0.parquet", "trips/other")


def test_a_completion_that_met_another_request_is_sent_again(versitygw: S3Server, s3_proxy: Proxy) -> None:
    """S3 answers 409, which botocore takes for final."""
    access = versitygw.access.through(s3_proxy.endpoint)
    files = open_files(access.url(f"{versitygw.create_bucket()}/lake"), access)
    step = step_of(files, stage(files))
    s3_proxy.harm(Fault.CONFLICT, "POST", query="uploadId", times=2)
    step.execute(StepContext(files))
    assert [r.fault for r in s3_proxy.seen if r.method == "POST" and "uploadId" in r.query] == [Fault.CONFLICT] * 2 + [
        None
    ]
    assert step.verify(StepContext(files)) is StepStatus.DONE


def test_a_completion_whose_upload_went_with_the_conflict_is_lost_by_name(
    versitygw: S3Server, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 demands a new upload after a 409: this one can't be made again, because its rows are in no file."""
    access = versitygw.access.through(s3_proxy.endpoint)
    files = open_files(access.url(f"{versitygw.create_bucket()}/lake"), access)
    step = step_of(files, stage(files))
    s3_proxy.harm(Fault.CONFLICT, "POST", query="uploadId")
    uploads = open_files(versitygw.access.url(files.root.removeprefix("s3://")), versitygw.access).uploads
    assert uploads is not None
    drop = uploads.abort
    monkeypatch.setattr(
        "airflow_gobblin.storage.files.s3_uploads.time.sleep", lambda _seconds: drop(TARGET, step.upload.id)
    )
    with pytest.raises(StepLostError, match=r"expired or aborted its upload"):
        carry_out(step, StepContext(files), "main.trips", 1)


def test_a_refusal_in_a_bulk_deletion_is_seen(versitygw: S3Server, s3_proxy: Proxy) -> None:
    """S3 answers 200 to it, and s3fs takes that for done."""
    access = versitygw.access.through(s3_proxy.endpoint)
    files = open_files(access.url(f"{versitygw.create_bucket()}/lake"), access)
    for name in ("a/1", "a/2", "b"):
        with files.create(name) as out:
            out.write(b"x")
    s3_proxy.harm(Fault.DENIED_IN_BULK, "POST", query="delete", times=float("inf"))
    s3_proxy.harm(Fault.DENIED, "DELETE", times=float("inf"))
    with pytest.raises(PermissionError, match="403 AccessDenied, by rule"):
        files.remove_tree("a")
    s3_proxy.heal()
    s3_proxy.harm(Fault.DENIED_IN_BULK, "POST", query="delete", times=float("inf"))
    files.remove_tree("a")  # those that may be removed one by one are
    assert [*files.walk(".")] == ["b"]


@pytest.mark.parametrize("fault", [Fault.DROP_ANSWER, Fault.DROP_REQUEST, Fault.INTERNAL_ERROR_AFTER, Fault.SLOW_DOWN])
@pytest.mark.parametrize("query", ["uploads", "partNumber", "uploadId"])
def test_answers_that_are_lost(versitygw: S3Server, s3_proxy: Proxy, fault: Fault, query: str) -> None:
    access = versitygw.access.through(s3_proxy.endpoint)
    files = open_files(access.url(f"{versitygw.create_bucket()}/lake"), access)
    s3_proxy.harm(fault, query=query, times=1)
    step = step_of(files, stage(files))
    try:
        step.execute(StepContext(files))
    except OSError:
        assert step.verify(StepContext(files)) is not StepStatus.LOST
        if step.verify(StepContext(files)) is StepStatus.TODO:
            step.execute(StepContext(files))
    assert step.verify(StepContext(files)) is StepStatus.DONE
    assert files.read(TARGET) == b"rows"


def test_many_uploads_are_looked_at_by_one_listing(versitygw: S3Server, s3_proxy: Proxy) -> None:
    access = versitygw.access.through(s3_proxy.endpoint)
    files = open_files(access.url(f"{versitygw.create_bucket()}/lake"), access)
    assert files.uploads is not None
    staged = [stage(files, target=f"trips/0123-u{number}-0.parquet") for number in range(5)]
    gone = staged.pop()
    assert gone.upload is not None
    files.uploads.abort(gone.path, gone.upload.id)
    s3_proxy.seen.clear()
    seen = with_listing_cache(files, "trips")
    steps = [publish_file(file, file.path, "u0", seen) for file in staged]
    assert len(s3_proxy.seen) == 1
    with pytest.raises(StepLostError):
        publish_file(gone, gone.path, "u0", seen)
    for step in steps:
        step.execute(StepContext(seen))
    assert {step.verify(StepContext(seen)) for step in steps} == {StepStatus.DONE}


def test_where_uploads_are_not_listed_each_is_looked_at(versitygw: S3Server, s3_proxy: Proxy) -> None:
    access = versitygw.access.through(s3_proxy.endpoint)
    files = open_files(access.url(f"{versitygw.create_bucket()}/lake"), access)
    staged = stage(files)
    seen = with_listing_cache(files, "elsewhere")  # nothing is listed there, as by a store that lists none
    assert publish_file(staged, TARGET, "u0", seen) == publish_file(staged, TARGET, "u0", files)


@pytest.mark.parametrize("name", ["gcs", "azurite"])
def test_many_files_are_looked_at_by_one_listing(name: str, request: pytest.FixtureRequest) -> None:
    """A listing reports of an object what a look at it alone does."""
    server: Emulator = request.getfixturevalue(name)
    files = new_files(server)
    assert files.uploads is None
    first = stage(files)
    seen = with_listing_cache(files, "trips")
    assert publish_file(first, TARGET, "u0", seen) == publish_file(first, TARGET, "u0", files)
    out = files.stage("_gobblin/s/0123/a0/u0/u0-1.parquet", "trips/0123-u0-1.parquet")
    out.write(b"more")
    second = out.finish(1)  # after the listing
    assert publish_file(second, "trips/0123-u0-1.parquet", "u0", seen).files()[0].size == 4
    assert seen.identity("_gobblin/s/0123/a0/u0/nothing") is None


def stage_by_store(files: Files, source: str, expected: FileIdentity, name: str, mark: str) -> None:
    """Have a file below the root copied into staging."""
    copies_of(files).stage(f"{files.root.partition('://')[2]}/{source}", expected.stamp, f"_gobblin/s/{name}", mark)


def test_the_store_stages_a_copy_of_the_expected_object_only(emulator: Emulator, proxy: Proxy) -> None:
    keep_conditions(proxy)
    files = new_files(emulator.through(proxy.endpoint))
    copies, source = copies_of(files), write(files, "source", b"content")
    stage_by_store(files, "source", source, "one", "mark 1")
    assert files.read("_gobblin/s/one") == b"content"
    assert copies.mark("_gobblin/s/one") == "mark 1"
    assert copies.mark("source") == ""
    with pytest.raises(FileNotFoundError):
        copies.mark("nothing")
    files.link("_gobblin/s/one", "placed")
    assert copies.mark("placed") == "mark 1"
    with pytest.raises(FileExistsError):
        stage_by_store(files, "source", source, "one", "mark 2")
    with pytest.raises(FileNotFoundError):
        stage_by_store(files, "nothing", source, "two", "mark 2")
    files.unlink("source")
    write(files, "source", b"another")
    with pytest.raises(OSError, match=r"another object|condition"):
        stage_by_store(files, "source", source, "two", "mark 2")
    assert files.identity("_gobblin/s/two") is None


@pytest.mark.parametrize(("status", "mark"), [("success", "mark 1"), ("failed", ""), ("aborted", "")])
def test_the_mark_of_a_blob_counts_once_it_is_copied(
    azurite: Emulator, monkeypatch: pytest.MonkeyPatch, status: str, mark: str
) -> None:
    """Until then it may have its full size, and hold zeros."""
    files = new_files(azurite)
    copies = copies_of(files)
    stage_by_store(files, "source", write(files, "source"), "one", "mark 1")
    real = object_copies._properties

    async def properties(filesystem: Any, path: str) -> Any:
        found = await real(filesystem, path)
        found.copy.status = looks.pop(0)
        return found

    looks: list[str] = ["pending", status]
    monkeypatch.setattr(object_copies, "_properties", properties)
    with pytest.raises(OSError, match="still being copied"):
        copies.mark("_gobblin/s/one")
    assert copies.mark("_gobblin/s/one") == mark


def test_a_mark_is_known_however_its_name_is_written(azurite: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of headers have no case, and some clients write those of metadata in capitals."""
    files = new_files(azurite)
    copies, source = copies_of(files), write(files, "source")
    real = object_copies._properties

    async def in_capitals(filesystem: Any, path: str) -> Any:
        found = await real(filesystem, path)
        found.metadata = {name.title(): value for name, value in (found.metadata or {}).items()}
        return found

    monkeypatch.setattr(object_copies, "_properties", in_capitals)
    stage_by_store(files, "source", source, "one", "mark 1")
    one = files.identity("_gobblin/s/one")
    assert one is not None
    stage_by_store(files, "_gobblin/s/one", one, "two", "mark 2")
    assert [copies.mark(f"_gobblin/s/{name}") for name in ("one", "two")] == ["mark 1", "mark 2"]
