"""A whole ingestion on an object store: journal, staging and target."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import GobblinError, StoreError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import NoteKind, now
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind, Upload
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish, sweep
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import Files, open_files
from airflow_gobblin.storage.files.objects import ObjectFiles
from airflow_gobblin.storage.files.s3_uploads import S3Uploads
from airflow_gobblin.storage.stores.objects import ObjectStore
from airflow_gobblin.testing import inprocess
from tests.protocol.rows import LineSink, RowSource, Table
from tests.services.s3 import CONNECTION, S3Access, S3Server
from tests.services.s3_proxy import Fault, Proxy

URN = "trips"
ROWS = Table(URN, ExtractKind.APPEND_ONLY, 6)
ALL_DAY = float("inf")


class Lake:
    """An ingestion in a bucket. Its properties give what a fresh process has."""

    def __init__(self, access: S3Access, bucket: str) -> None:
        self.access = access
        self.bucket = bucket
        sink = LineSink(access.url(f"{bucket}/lake"))
        self.ingestion = Ingestion(
            "lake", RowSource((ROWS,)), sink, access.url(f"{bucket}/journal"), retention=timedelta(0)
        )

    @property
    def files(self) -> Files:
        return open_files(self.ingestion.sink.target, self.access)

    @property
    def journal(self) -> Journal:
        return Journal.create(self.ingestion.journal, self.ingestion.name, self.access)

    def opened(self, *tables: Table) -> OpenJob:
        if tables:
            self.ingestion = replace(self.ingestion, source=RowSource(tables))
        return OpenJob(self.ingestion, self.journal, self.access)

    def run(self, *tables: Table) -> dict[str, DatasetReport]:
        return inprocess.run(self.opened(*tables), self.access)

    def decide(self) -> tuple[OpenJob, RunPlan]:
        """A run up to its decisions: nothing is published."""
        opened = self.opened()
        plan = create_work_units(opened, RunRequest(uuid.uuid4().hex))
        inprocess.extract(opened, plan, self.access)
        for pack in plan.packs:
            write_commit_steps(opened, plan, pack)
        return opened, plan

    def rows(self) -> Counter[str]:
        files = self.files
        below = [path.removeprefix(f"{files.root}/") for path in self.journal.read_dataset(URN).paths]
        return Counter(line.rstrip(" ") for path in below for line in files.read(path).decode().splitlines())

    def uploads(self) -> list[tuple[str, str]]:
        uploads = self.files.uploads
        assert uploads is not None
        return list(uploads.open_below("."))

    @property
    def admin(self) -> Administration:
        return Administration(self.journal, self.ingestion.sink.target, "ann", self.access)


@pytest.fixture(params=["versitygw", pytest.param("moto", marks=pytest.mark.soak)])
def lake(request: pytest.FixtureRequest) -> Lake:
    server: S3Server = request.getfixturevalue(request.param)
    return Lake(server.access, server.create_bucket())


@pytest.fixture
def real(versitygw: S3Server) -> Lake:
    return Lake(versitygw.access, versitygw.create_bucket())


def test_runs_publish_what_is_new_and_leave_nothing_behind(lake: Lake) -> None:
    assert lake.run()[URN].status == "committed"
    assert lake.rows() == ROWS.all_rows()
    more = replace(ROWS, rows=9)
    assert lake.run(more)[URN].status == "committed"
    assert lake.rows() == more.all_rows()
    assert lake.run(more)[URN].status == "idle"
    assert lake.uploads() == []
    assert [path for path in lake.files.walk("_gobblin") if "/s/" in path] == []


def test_nothing_is_seen_before_it_is_published_and_recovery_needs_no_byte(lake: Lake) -> None:
    lake.decide()
    assert [*lake.files.walk(URN)] == []
    assert len(lake.uploads()) == len({target for target, _ in lake.uploads()}) > 0
    (recovered,) = verify_recover(lake.opened(), RunRequest("next"))
    assert (recovered.status, lake.rows()) == ("recovered", ROWS.all_rows())


def test_a_completion_that_was_under_way_when_its_slot_was_abandoned_is_taken_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 aborts that met a completion under way, versitygw let 4 become an object after it had answered the abort."""
    lake.decide()
    under_way: dict[str, bytes] = {}

    def abort(self: S3Uploads, target: str, upload: str) -> None:
        if target not in under_way:
            parts = self._call("list_parts", target, UploadId=upload)["Parts"]
            self.complete(target, Upload(upload, tuple(str(part["ETag"]).strip('"') for part in parts)))
            under_way[target] = lake.files.read(target)
            lake.files.unlink(target)

    with monkeypatch.context() as slow:
        slow.setattr(S3Uploads, "abort", abort)
        lake.admin.abandon(URN, "it takes too long")
    assert [*lake.files.walk(URN)] == []
    for target, rows in under_way.items():
        with lake.files.create(target) as landed:
            landed.write(rows)

    assert lake.run()[URN].status == "committed"
    assert lake.rows() == ROWS.all_rows()
    assert not {*lake.files.walk(URN)} & {*under_way}
    assert not lake.journal.history(URN).slots[0].noted(NoteKind.CLEANED), "more may come"
    with monkeypatch.context() as ahead:
        ahead.setattr("airflow_gobblin.commit.committer.now", lambda: now() + timedelta(days=1))
        lake.run()
    assert not lake.journal.history(URN).slots[0].noted(NoteKind.CLEANED), "whatever the worker's clock shows"
    monkeypatch.setattr("airflow_gobblin.storage.files.objects.SETTLES_AFTER", timedelta(microseconds=1))
    lake.run()
    assert lake.journal.history(URN).slots[0].noted(NoteKind.CLEANED)
    assert [path for path in lake.files.walk("_gobblin") if "/abandoned/" in path or "/clock/" in path] == []


def test_uploads_of_an_attempt_that_lost_are_aborted_once_it_can_win_no_more(lake: Lake) -> None:
    opened, plan = lake.decide()
    token = plan.packs[0].datasets[0].token
    names = (
        f"{token}-u0-0.txt",
        f"{token}-u0/0.txt",
        f"country=DE/day=1/{token}-u0-0.txt",
        f"_refused/{token}-u0-0.txt",
    )
    for name in names:
        stray = opened.files.stage("unused", f"{URN}/{name}")
        stray.write(b"a speculative attempt's")
        stray.finish(1)
    others = opened.files.stage("unused", "elsewhere/0123456789abcdef0123456789abcdef-u0-0.txt")
    others.write(b"somebody else's")
    kept = others.finish(1)
    before = len(lake.uploads())
    sweep(opened)
    assert len(lake.uploads()) == before, "its token is decided and unfinished"
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    finish(opened, plan)
    assert lake.rows() == ROWS.all_rows()
    assert [target for target, _ in lake.uploads()] == [kept.path]


def test_a_zombie_that_uploads_after_the_sweep_is_swept_too(lake: Lake) -> None:
    opened, plan = lake.decide()
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    finish(opened, plan)
    late = opened.files.stage("unused", f"{URN}/{plan.packs[0].datasets[0].token}-u0-0.txt")
    late.write(b"late")
    late.finish(1)
    assert len(lake.uploads()) == 1
    lake.run()
    assert lake.uploads() == []


def test_a_zombie_that_uploads_after_its_dataset_was_dropped_is_swept_too(lake: Lake) -> None:
    opened, plan = lake.decide()
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    finish(opened, plan)
    lake.admin.drop(URN, "on purpose")
    late = opened.files.stage("unused", f"{URN}/{plan.packs[0].datasets[0].token}-u0-0.txt")
    late.write(b"late")
    late.finish(1)
    assert len(lake.uploads()) == 1
    sweep(opened)
    assert lake.uploads() == []


def test_an_abandoned_slot_leaves_neither_uploads_nor_objects(lake: Lake) -> None:
    opened, plan = lake.decide()
    lake.admin.abandon(URN, "on purpose")
    finish(opened, plan)
    assert lake.uploads() == []
    assert [*lake.files.walk(URN)] == []
    assert lake.run()[URN].status == "committed"
    assert lake.rows() == ROWS.all_rows()


def test_a_rewind_removes_what_it_retired(lake: Lake) -> None:
    lake.run()
    lake.admin.rewind(URN, LongWatermark(0), "on purpose")
    assert lake.run()[URN].status == "committed"
    assert lake.rows() == ROWS.all_rows()
    lake.run()
    published = {path.removeprefix(f"{lake.files.root}/") for path in lake.journal.read_dataset(URN).paths}
    assert set(lake.files.walk(URN)) == published


def test_an_upload_that_the_store_expired_is_named_with_the_way_out(lake: Lake) -> None:
    opened, plan = lake.decide()
    uploads = lake.files.uploads
    assert uploads is not None
    for target, upload in lake.uploads():
        uploads.abort(target, upload)
    (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "failed"
    assert not report.retryable
    assert re.search(r"dataset 'trips'.*expired or aborted its upload.*abandon the slot.*extracted anew", report.detail)
    lake.admin.abandon(URN, "its uploads are gone")
    assert lake.run()[URN].status == "committed"
    assert lake.rows() == ROWS.all_rows()


def test_a_journal_that_is_not_the_one_that_published_is_refused(lake: Lake) -> None:
    lake.run()
    other = replace(lake.ingestion, journal=lake.access.url(f"{lake.bucket}/other"))
    opened = OpenJob(other, Journal.create(other.journal, other.name, lake.access), lake.access)
    run = create_work_units(opened, RunRequest("x"))
    assert [note.status for note in run.notes] == ["failed"]
    assert "belongs to this ingestion and dataset in journal" in run.notes[0].detail


def test_folders_that_are_gone_are_noticed_by_one_listing_with_nothing_new_to_plan(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [replace(ROWS, urn=urn) for urn in ("a", "b", "c")]
    lake.run(*tables)
    lake.files.remove_tree("b")
    listed, folders = list[str](), ObjectFiles.folders

    def counted(self: ObjectFiles, path: str) -> tuple[str, ...]:
        listed.append(path)
        return folders(self, path)

    monkeypatch.setattr(ObjectFiles, "folders", counted)
    notes = create_work_units(lake.opened(), RunRequest("next")).notes
    assert [note.status for note in notes] == ["idle", "failed", "idle"]
    assert "its folder b, to which slot 1 published, is empty or not there" in notes[1].detail
    assert [path for path in listed if not path.startswith("_gobblin/")] == ["."]


def test_nested_roots_are_seen(lake: Lake) -> None:
    lake.run()
    inner = replace(lake.ingestion, sink=LineSink(lake.access.url(f"{lake.bucket}/lake/{URN}")), name="inner")
    opened = OpenJob(inner, Journal.create(inner.journal, inner.name, lake.access), lake.access)
    run = create_work_units(opened, RunRequest("x"))
    assert [note.status for note in run.notes] == ["failed"]
    assert "belongs to dataset 'trips' of ingestion 'lake'" in run.notes[0].detail


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_answers_lost_all_the_way_do_no_harm(real: Lake, s3_proxy: Proxy, seed: int) -> None:
    """Runs against a server whose answers get lost; then one without faults completes what they left."""
    harmed = Lake(real.access.through(s3_proxy.endpoint), real.bucket)
    real.journal.datasets()
    s3_proxy.harm_at_random(seed, 0.05, Fault.DROP_ANSWER, Fault.DROP_REQUEST, Fault.INTERNAL_ERROR_AFTER)
    for rows in (3, 6):
        with suppress(GobblinError, OSError):
            harmed.run(replace(ROWS, rows=rows))
    s3_proxy.heal()
    assert real.run(ROWS)[URN].ok
    assert real.rows() == ROWS.all_rows()
    real.run(ROWS)
    assert real.uploads() == []


def trouble(real: Lake, s3_proxy: Proxy, fault: Fault, stage: Callable[[OpenJob, RunPlan], Any]) -> str:
    """Decide a run, let a stage meet nothing but a fault, and heal.

    :return: its report.
    """
    harmed = Lake(real.access.through(s3_proxy.endpoint), real.bucket)
    opened, plan = harmed.decide()
    s3_proxy.harm(fault, times=ALL_DAY)
    try:
        found = stage(opened, plan)
    except StoreError as error:  # as anything that keeps a whole stage from its work
        found = error
    s3_proxy.heal()
    return str(found)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.INTERNAL_ERROR, "500|InternalError|Internal Error"),
        (Fault.EXPIRED, "ExpiredToken|expired"),
        (Fault.DENIED, "AccessDenied|Access Denied|permission|Permission"),
    ],
)
def test_a_store_that_fails_in_mid_commit_is_named_and_loses_nothing(
    real: Lake, s3_proxy: Proxy, fault: Fault, expected: str
) -> None:
    reported = trouble(real, s3_proxy, fault, lambda opened, plan: execute_commit_steps(opened, plan, plan.packs[0]))
    assert re.search(expected, reported), reported
    assert real.run()[URN].ok
    assert real.rows() == ROWS.all_rows()


def test_the_journal_may_be_elsewhere(real: Lake, tmp_path: object) -> None:
    real.ingestion = replace(real.ingestion, journal=f"sqlite:///{tmp_path}/journal.db")
    assert real.run()[URN].status == "committed"
    assert real.rows() == ROWS.all_rows()


def test_a_bare_bucket_is_a_root_too(real: Lake) -> None:
    sink = LineSink(real.access.url(real.bucket))
    real.ingestion = replace(real.ingestion, sink=sink, journal=real.access.url(f"{real.bucket}/_gobblin/journal"))
    assert real.run()[URN].status == "committed"
    assert real.rows() == ROWS.all_rows()


def test_records_below_a_target(real: Lake) -> None:
    assert isinstance(real.files.records("_gobblin"), ObjectStore)


def test_what_is_published_is_read_as_arrow(real: Lake) -> None:
    source, sink = RowSource((ROWS,)), ParquetSink(real.access.url(f"{real.bucket}/lake"))
    real.ingestion = replace(real.ingestion, source=source, sink=sink)
    assert real.run()[URN].status == "committed"
    table = real.journal.read_dataset(URN).to_arrow(real.access, CONNECTION).to_table()
    assert Counter(table.column("row").to_pylist()) == ROWS.all_rows()
