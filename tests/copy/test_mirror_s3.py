"""A mirror from a disk to S3 and back, against real servers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.copy import bundles
from airflow_gobblin.copy.finders import EachFolder, WholeTree
from airflow_gobblin.copy.options import Delete, Existing, Keep
from airflow_gobblin.copy.transfer.streams import SMALL
from airflow_gobblin.copy.trees import open_tree
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish, sweep
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files.s3_uploads import S3Uploads
from airflow_gobblin.testing import inprocess
from tests.copy.mirrors import content, statuses
from tests.copy.test_reuse import copying
from tests.proofs import one_in
from tests.services.s3 import S3Server
from tests.services.s3_proxy import Proxy

pytestmark = one_in(2, "server")

OPTIONS: dict[str, Any] = {"existing": Existing.UPDATE, "delete": Delete(1)}


class OneConnection:
    """The connection `store`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def uri(self, conn_id: str) -> str:
        assert conn_id == "store"
        return self._uri


def write(file: Path, text: str) -> None:
    """Write a file that is some time old: stores keep times in seconds, and a younger one would be copied once more."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (time.time() - 60,) * 2)


@pytest.fixture(params=["versitygw", "moto"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, S3Server)
    return found


def test_a_tree_goes_to_s3_and_comes_back_whole(server: S3Server, tmp_path: Path) -> None:
    bucket, connections = server.create_bucket(), OneConnection(server.access.connection)
    source, copy = tmp_path / "source", tmp_path / "copy"
    there = Mirror("there", str(source), f"s3://store@{bucket}/tree", "unused", EachFolder(), **OPTIONS)
    back = Mirror("back", f"s3://store@{bucket}/tree", str(copy), "unused", WholeTree(), **OPTIONS)
    up, down = inprocess.open_job(there, connections), inprocess.open_job(back, connections)

    write(source / "a/one", "one")
    write(source / "a/deep/two", "two")
    write(source / "b/three ü", "three")
    assert statuses(inprocess.run(up)) == {"a#files": "committed", "b#files": "committed"}
    assert statuses(inprocess.run(down)) == {"back#files": "committed"}
    assert content(copy) == content(source)
    assert statuses(inprocess.run(up)) == {"a#files": "idle", "b#files": "idle"}
    assert statuses(inprocess.run(down)) == {"back#files": "idle"}

    write(source / "a/one", "one has changed")
    (source / "b/three ü").unlink()
    write(source / "b/four", "four")
    assert statuses(inprocess.run(up)) == {"a#files": "committed", "b#files": "committed"}
    assert statuses(inprocess.run(down)) == {"back#files": "committed"}
    assert {path: data for path, data in content(copy).items() if data != "/"} == {
        path: data for path, data in content(source).items() if data != "/"
    }
    assert statuses(inprocess.run(up)) == {"a#files": "idle", "b#files": "idle"}
    assert statuses(inprocess.run(down)) == {"back#files": "idle"}


def test_a_small_file_takes_two_requests(versitygw: S3Server, s3_proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    """The one that reads its bytes from staging, and the one that puts it. There are some more for all of them together."""
    for number in range(50):
        write(tmp_path / f"source/{number}", str(number))
    connections = OneConnection(versitygw.access.through(s3_proxy.endpoint).connection)
    opened = inprocess.open_job(
        Mirror("there", str(tmp_path / "source"), f"s3://store@{bucket}", "unused"), connections
    )
    request = RunRequest("first")
    plan = create_work_units(opened, request)
    before = len(s3_proxy.seen)
    inprocess.extract(opened, plan, connections)
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert len(s3_proxy.seen) - before < 50
    before = len(s3_proxy.seen)
    (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "committed"
    assert len(s3_proxy.seen) - before < 3 * 50
    assert {path: opened.files.read(path) for path in map(str, range(50))} == {str(n): b"%d" % n for n in range(50)}


def test_an_abandoned_slot_leaves_nothing_in_s3_and_the_next_plan_does_it(server: S3Server, tmp_path: Path) -> None:
    bucket, connections = server.create_bucket(), OneConnection(server.access.connection)
    write(tmp_path / "source/one", "one")
    mirror = Mirror("there", str(tmp_path / "source"), f"s3://store@{bucket}", "unused")
    opened = inprocess.open_job(mirror, connections)
    plan = create_work_units(opened, RunRequest("first"))
    inprocess.extract(opened, plan, connections)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
    admin = Administration(opened.journal, mirror.target, "ann", connections)
    assert admin.abandon("there#files", "a mistake")[0].abandoned
    assert opened.files.identity("one") is None
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    assert opened.files.read("one") == b"one"
    assert [*opened.staging.open_uploads()] == []


def begun(opened: OpenJob, target: str) -> tuple[str, str]:
    """Begin an upload, as a driver does that is killed before it ends, or somebody else.

    :return: as a listing has it.
    """
    uploads = opened.files.uploads
    assert isinstance(uploads, S3Uploads)
    upload = uploads.begin(target)
    uploads.send(target, upload, 1, b"a part")
    return target, upload


def test_uploads_of_a_driver_that_was_killed_are_aborted_once_nobody_needs_their_names(
    versitygw: S3Server, tmp_path: Path
) -> None:
    bucket, connections = versitygw.create_bucket(), OneConnection(versitygw.access.connection)
    for path in ("a/one", "a/deep/two", "b/three"):
        write(tmp_path / "source" / path, path)
    mirror = Mirror("there", str(tmp_path / "source"), f"s3://store@{bucket}/tree", "unused", EachFolder())
    opened = inprocess.open_job(mirror, connections)
    late = create_work_units(opened, RunRequest("late"))
    left = {begun(opened, path) for path in ("a/one", "a/deep/two", "a/deep/two", "b/three")}
    others = {begun(opened, path) for path in ("a/nobody's", "elsewhere/one")}
    sweep(opened)
    assert {*opened.staging.open_uploads()} == left | others, "its plan may still be decided, and other drivers may try"
    (tmp_path / "source/b/three").unlink()
    inprocess.extract(opened, late, connections)
    reports: dict[str, str] = {}
    for pack in late.packs:
        write_commit_steps(opened, late, pack)
        reports |= {report.urn: report.status.value for report in execute_commit_steps(opened, late, pack)}
    assert reports["a#files"] == "committed"
    finish(opened, late)
    kept = {one for one in left if one[0] == "b/three"}
    assert {*opened.staging.open_uploads()} == kept | others, "the plan of b can still be decided"
    (tmp_path / "source/b").rmdir()
    write(tmp_path / "source/b/three", "once more")
    assert statuses(inprocess.run(opened))["b#files"] == "committed"
    assert {*opened.staging.open_uploads()} == others
    assert opened.files.read("a/deep/two") == b"a/deep/two"
    assert opened.files.read("b/three") == b"once more"


def test_an_upload_is_kept_while_another_plan_of_its_file_set_is_needed(versitygw: S3Server, tmp_path: Path) -> None:
    bucket, connections = versitygw.create_bucket(), OneConnection(versitygw.access.connection)
    write(tmp_path / "source/one", "one")
    mirror = Mirror("there", str(tmp_path / "source"), f"s3://store@{bucket}", "unused", existing=Existing.UPDATE)
    opened = inprocess.open_job(mirror, connections)
    create_work_units(opened, RunRequest("lost"))
    inprocess.publish(opened, create_work_units(opened, RunRequest("first")), connections)
    write(tmp_path / "source/one", "one has changed")
    create_work_units(opened, RunRequest("at work"))
    upload = begun(opened, "one")
    assert sweep(opened)
    assert [*opened.staging.open_uploads()] == [upload]


def test_a_plan_that_loses_leaves_no_upload(server: S3Server, tmp_path: Path) -> None:
    bucket, connections = server.create_bucket(), OneConnection(server.access.connection)
    write(tmp_path / "source/one", "one")
    mirror = Mirror("there", str(tmp_path / "source"), f"s3://store@{bucket}", "unused")
    opened = inprocess.open_job(mirror, connections)
    late = create_work_units(opened, RunRequest("late"))
    inprocess.extract(opened, late, connections)
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    assert opened.files.read("one") == b"one"
    assert [*opened.staging.open_uploads()] == []


def test_bundles_that_a_failed_run_finished_are_used_as_long_as_its_plan_is_right(
    moto: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads belong to their plan for good."""
    monkeypatch.setattr(bundles, "MOST_FILES", 2)
    bucket, connections = moto.create_bucket(), OneConnection(moto.access.connection)
    for number in range(6):
        write(tmp_path / f"source/{number}", "." * (1 if number < 3 else 100_000))
    mirror = Mirror("there", str(tmp_path / "source"), f"s3://store@{bucket}", "unused", **OPTIONS)
    opened = inprocess.open_job(mirror, connections)

    def run_reads(status: str, *unreadable: str) -> str:
        """The names of the files that a run reads, without those of the last bundle, which fails at one of its files."""
        with copying(*unreadable) as read:
            assert statuses(inprocess.run(opened)) == {"there#files": status}
        return "".join(sorted(entry.path for entry in read if entry.path < "4"))

    assert run_reads("failed", "4") == "0123"
    assert run_reads("failed", "4") == ""
    write(tmp_path / "source/2", "changed")
    assert run_reads("failed", "5") == "0123"
    assert run_reads("committed") == ""
    assert [opened.files.read(str(number)) for number in (0, 2)] == [b".", b"changed"]
    assert statuses(inprocess.run(opened)) == {"there#files": "idle"}


def test_times_are_kept_in_metadata_whichever_way_a_file_takes(server: S3Server, tmp_path: Path) -> None:
    bucket, connections = server.create_bucket(), OneConnection(server.access.connection)
    source, small = tmp_path / "source", ("a/empty", "a/small", "a/replaced")
    for number, (path, size) in enumerate((*dict.fromkeys(small, 9).items(), ("a/medium", SMALL + 1))):
        write(source / path, "x" * (0 if path == "a/empty" else size))
        os.utime(source / path, ns=(1, 1_600_000_000_123_456_789 + number))
    options = {**OPTIONS, "keep": Keep("t")}
    up = inprocess.open_job(
        Mirror("there", str(source), f"s3://store@{bucket}/tree", "unused", EachFolder(), **options), connections
    )
    assert statuses(inprocess.run(up)) == {"a#files": "committed"}
    os.utime(source / "a/replaced", ns=(1, 1_500_000_000_987_654_321))
    assert statuses(inprocess.run(up)) == {"a#files": "committed"}
    assert statuses(inprocess.run(up)) == {"a#files": "idle"}
    tree = open_tree(f"s3://store@{bucket}/tree", connections)
    for path in (*small, "a/medium"):
        found = tree.entry(path)
        assert found is not None
        assert found.modified == (source / path).stat().st_mtime_ns

    within = Mirror(
        "within", f"s3://store@{bucket}/tree", f"s3://store@{bucket}/copy", "unused", EachFolder(), **options
    )
    copies = inprocess.open_job(within, connections)
    assert statuses(inprocess.run(copies)) == {"a#files": "committed"}
    assert statuses(inprocess.run(copies)) == {"a#files": "idle"}
    properties = [unit.properties for unit in copies.journal.history("a#files").slots[-1].decision.units]
    assert properties == [{}]
