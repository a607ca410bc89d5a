"""Large files in parts, each copied by a task of its own and joined by one; and what late, repeated and broken tasks do.

Parts that are done when their file fails are used by the next driver.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.copy import bundles
from airflow_gobblin.copy.bundles import LEAST_PART, Bundle, parts_of
from airflow_gobblin.copy.conversion.converters import Gzip
from airflow_gobblin.copy.options import Compare, Existing, Keep
from airflow_gobblin.copy.transfer import splitting
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.copy.work import CopyBinding, CopyWork
from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.job import Attempt, UnitPart
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.work import BegunUnit, UnitResult, UnitState, WorkUnit
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import acls, s3_uploads
from airflow_gobblin.storage.files.hdfs import HdfsFiles
from airflow_gobblin.storage.files.objects import ObjectFiles
from airflow_gobblin.testing import inprocess
from tests.copy.mirrors import statuses
from tests.copy.test_reuse import copying
from tests.proofs import one_in
from tests.services.hdfs import Hdfs
from tests.services.s3 import S3Server

pytestmark = one_in(2, "split")

PART = 5 << 20
FAILED = UnitResult("copy_000001", "a0", UnitState.FAILED)
LARGE = os.urandom(2 * PART + 5)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bundles, splitting):
        monkeypatch.setattr(module, "LEAST_PART", PART)
    monkeypatch.setattr("airflow_gobblin.mirror.LEAST_PART", PART)
    monkeypatch.setattr(s3_uploads, "PART_BYTES", PART)


@pytest.mark.parametrize("above", [PART, PART + 1, 2 * PART, 7 * PART - 1])
@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 2 * PART, 2 * PART + 1, 13 * PART, 14 * PART + 3])
def test_parts_are_not_larger_than_the_bound_and_none_is_empty(size: int, above: int) -> None:
    starts = parts_of(size, above)
    sizes = [min(start + starts.step, size) - start for start in starts]
    assert sum(sizes) == size
    assert all(0 < one <= above for one in sizes)
    assert all(start % PART == 0 for start in starts)
    assert (len(starts) <= 1) == (size <= above)


@dataclass
class Split:
    """A mirror with a file of three parts, whose tasks are run one by one."""

    opened: OpenJob
    run: RunPlan
    source: Path

    @property
    def work(self) -> CopyWork:
        work = self.opened.staging.work(self.run.run)
        assert isinstance(work, CopyWork)
        return work

    @property
    def plan(self) -> Plan:
        (ref,) = (ref for pack in self.run.packs for ref in pack.datasets)
        plan = self.opened.staging.plan(ref.token)
        assert plan is not None
        return plan

    @property
    def unit(self) -> WorkUnit:
        (unit,) = (one for one in self.opened.staging.units(self.plan) if self.work.parts(one, self.plan) > 1)
        return unit

    def next(self, request: str) -> Split:
        """The next run, up to its plan."""
        return replace(self, run=create_work_units(self.opened, RunRequest(request)))

    @property
    def attempt(self) -> Attempt:
        folder = self.opened.staging.token_folder(self.plan.token)
        return Attempt("a0", self.opened.files, folder, self.opened.connections)

    def open(self) -> str:
        return self.work.open_parts(self.unit, self.plan, self.attempt)

    def part(self, number: int, place: str) -> UnitResult:
        return self.work.run(self.unit, self.plan, replace(self.attempt, part=UnitPart(number, place)))

    def parts(self, place: str) -> list[UnitResult]:
        found = [self.part(number, place) for number in range(self.work.parts(self.unit, self.plan))]
        assert [result.why for result in found] == [""] * 3
        return found

    def join(self, place: str, parts: list[UnitResult]) -> UnitResult:
        return self.work.join(self.unit, self.plan, self.attempt, place, parts)

    def close(self, place: str, parts: list[UnitResult], result: UnitResult) -> None:
        self.work.close_parts(self.unit, self.plan, self.attempt, place, parts, result)

    def fail(self, place: str, *numbers: int) -> list[UnitResult]:
        """A driver copies some parts, and fails then.

        :return: their results.
        """
        parts = [self.part(number, place) for number in numbers]
        for number, part in zip(numbers, parts, strict=True):
            assert part.why == ""
            self.opened.staging.put_part(self.plan.token, 3, number, part)
        failed = UnitResult(
            self.unit.id,
            "a0",
            UnitState.FAILED,
            failure=Failure.of(SourceError(operation="read", subject="large", cause="it fails")),
        )
        self.opened.staging.put_result(self.plan.token, failed)
        self.close(place, parts, failed)
        return parts

    def found_parts(self) -> tuple[str, dict[int, UnitResult]]:
        """The place and the parts that the next driver finds."""
        known = self.opened.staging.part_results((BegunUnit(self.plan.token, self.unit.id), *self.unit.begun), 3)
        place, found = self.work.finished_parts(self.unit, self.plan, self.attempt, known)
        return place, {**found}

    def go_on(self) -> tuple[UnitResult, list[int]]:
        """The next driver, up to the result.

        :return: that, and the parts that it copied.
        """
        place, found = self.found_parts()
        missing = [number for number in range(3) if number not in found]
        place = place or (self.open() if missing else "")
        results = found | {number: self.part(number, place) for number in missing}
        parts = [results[number] for number in range(3)]
        result = self.join(place, parts)
        self.close(place, parts, result)
        return result, missing

    def keep(self, result: UnitResult) -> None:
        """Accept a result, as the driver does, and copy the other files."""
        assert result.why == ""
        self.opened.staging.put_result(self.plan.token, result)
        inprocess.extract(self.opened, self.run, self.opened.connections)
        for pack in self.run.packs:
            write_commit_steps(self.opened, self.run, pack)

    def publish(self) -> dict[str, str]:
        for pack in self.run.packs:
            execute_commit_steps(self.opened, self.run, pack)
        return statuses({report.urn: report for report in finish(self.opened, self.run)})

    def change(self) -> None:
        (self.source / "large").write_bytes(LARGE[::-1])
        os.utime(self.source / "large", (1, 1))

    def published(self) -> dict[str, bytes]:
        return {name: self.opened.files.read(name) for name in ("large", "small") if self.opened.files.identity(name)}

    def left(self) -> list[Any]:
        """Open uploads, and files of parts."""
        parts = [path for path in self.opened.files.walk(self.opened.staging.folder) if "-parts-" in path]
        return [*self.opened.staging.open_uploads(), *parts]


def mirrored(source: Path, target: str, connections: Any = None, **options: Any) -> OpenJob:
    source.mkdir(exist_ok=True)
    for name, data in (("large", LARGE), ("small", b"x")):
        (source / name).write_bytes(data)
        os.utime(source / name, (time.time() - 60,) * 2)
    given = {"split_above": PART, "existing": Existing.UPDATE, **options}
    return inprocess.open_job(Mirror("m", str(source), target, "unused", **given), connections)


@pytest.fixture(params=["disk", "versitygw", "hdfs"])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Split:
    source = tmp_path / "source"
    if request.param == "disk":
        (tmp_path / "target").mkdir()
        opened = mirrored(source, str(tmp_path / "target"), keep=Keep("tp"))
    elif request.param == "hdfs":
        hdfs: Hdfs = request.getfixturevalue("hdfs")
        opened = mirrored(source, hdfs.url(hdfs.create_folder()), hdfs, keep=Keep("tp"))
    else:
        server: S3Server = request.getfixturevalue("versitygw")
        bucket = request.getfixturevalue("bucket")
        opened = mirrored(source, server.access.url(f"{bucket}/to"), server.access)
    return Split(opened, create_work_units(opened, RunRequest("split")), source)


def test_parts_are_joined_and_published_as_one_file(split: Split) -> None:
    place = split.open()
    parts = split.parts(place)
    result = split.join(place, parts)
    split.close(place, parts, result)
    (staged,) = result.files
    assert staged.size == len(LARGE)
    split.keep(result)
    assert split.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"x"}
    assert split.left() == []
    again = create_work_units(split.opened, RunRequest("again"))
    assert [pack for pack in again.packs if pack.datasets] == []


def test_a_part_that_is_tried_twice_is_joined_once(split: Split) -> None:
    place = split.open()
    first = split.parts(place)
    second = [split.part(2, place), split.part(0, place), split.part(1, place)]
    result = split.join(place, [second[1], first[1], second[0]])
    split.close(place, first, result)
    split.keep(result)
    assert split.publish() == {"m#files": "committed"}
    assert split.published()["large"] == LARGE
    assert split.left() == []


def test_a_late_part_and_a_late_join_harm_nothing_that_is_decided(split: Split) -> None:
    place = split.open()
    parts = split.parts(place)
    result = split.join(place, parts)
    split.keep(result)
    split.part(1, place)  # before the parts are removed
    late_join = split.join(place, parts).why
    assert late_join == "" or ("another try has joined it" in late_join and isinstance(split.opened.files, HdfsFiles))
    split.close(place, parts, result)
    split.part(1, place)
    split.join(place, parts)
    split.change()
    for late in (split.part(2, place), split.join(place, parts)):
        assert "changed since it was planned" in late.why or "large" in late.why
    assert split.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"x"}


@pytest.mark.parametrize("after", [0, 1, 2, 3], ids="after {} parts".format)
def test_a_source_that_changes_between_parts_fails_its_file_set(split: Split, after: int) -> None:
    place = split.open()
    parts = [split.part(number, place) for number in range(after)]
    assert {result.state for result in parts} <= {UnitState.SUCCESSFUL}
    split.change()
    late = split.part(after, place) if after < 3 else split.join(place, parts)
    split.close(place, [*parts, late], late)
    assert (late.state, late.files) == (UnitState.FAILED, ())
    assert "large" in late.why
    assert "changed since it was planned" in late.why
    consumed = after == 3 and isinstance(split.opened.files, HdfsFiles)
    assert bool(split.left()) == (after > 0 and not consumed), "it isn't known that no part can be used again"
    assert split.published() == {}
    assert statuses(inprocess.run(split.opened)) == {"m#files": "committed"}
    assert split.published() == {"large": LARGE[::-1], "small": b"x"}
    assert split.left() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_a_file_in_parts_keeps_what_a_whole_one_does(tmp_path: Path) -> None:
    opened = mirrored(tmp_path / "source", str(tmp_path / "target"), keep=Keep("tpugax"), split_above=PART)
    for name in ("large", "small"):
        file = tmp_path / "source" / name
        os.chown(file, 7, 8)
        file.chmod(0o2640)
        os.setxattr(file, "user.origin", name.encode())
        os.setxattr(file, acls.ACCESS, acls.encoded(("group::r--", "user:9:rw-"), 0o660)[0])
        os.utime(file, ns=(1, 1_600_000_000_123_456_789))
    split = Split(opened, create_work_units(opened, RunRequest("split")), tmp_path / "source")
    place = split.open()
    result = split.join(place, split.parts(place))
    assert result.properties == {}
    split.keep(result)
    assert split.publish() == {"m#files": "committed"}
    target = LocalTree(tmp_path / "target", keep=Keep("tpugax"))
    for source in LocalTree(tmp_path / "source", keep=Keep("tpugax")).walk():
        found = target.entry(source.path)
        assert found is not None
        assert (found.modified, found.attributes) == (source.modified, source.attributes)


def test_a_part_that_was_changed_is_not_joined(tmp_path: Path) -> None:
    opened = mirrored(tmp_path / "source", str(tmp_path / "target"))
    split = Split(opened, create_work_units(opened, RunRequest("split")), tmp_path / "source")
    place = split.open()
    parts = split.parts(place)
    os.utime(tmp_path / "target" / parts[1].files[0].path, (1, 1))
    assert "isn't as it was written" in split.join(place, parts).why
    os.unlink(tmp_path / "target" / parts[1].files[0].path)
    assert "large" in split.join(place, parts).why


def test_after_the_driver_has_given_up_a_late_part_fails_or_is_swept(split: Split) -> None:
    place = split.open()
    split.close(place, split.fail(place), FAILED)
    assert split.left() == []
    split.part(1, place)
    inprocess.extract(split.opened, split.run, split.opened.connections)  # the next try copies it as a whole
    for pack in split.run.packs:
        write_commit_steps(split.opened, split.run, pack)
    assert split.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"x"}
    assert split.left() == []


# Parts that the next driver uses


def test_the_next_driver_copies_only_the_parts_that_are_missing(split: Split) -> None:
    place = split.open()
    split.fail(place, 2, 0)
    again, found = split.found_parts()
    assert again == (place if isinstance(split.opened.files, ObjectFiles) else "")
    assert {*found} == {0, 2}
    with copying() as read:
        result, missing = split.go_on()
    assert missing == [1]
    assert len(read) == 2, "one part, and a look after joining them"
    split.keep(result)
    assert split.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"x"}
    assert split.left() == []


def test_if_all_parts_are_there_they_are_only_joined(split: Split) -> None:
    split.fail(split.open(), 0, 1, 2)
    result, missing = split.go_on()
    assert missing == []
    split.keep(result)
    assert split.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"x"}
    assert split.left() == []


def test_the_next_run_uses_them_while_the_difference_is_the_same(split: Split) -> None:
    split.fail(split.open(), 1)
    assert {report.status.value for report in finish(split.opened, split.run)} == {"failed"}
    again = split.next("again")
    assert again.plan.token == split.plan.token
    result, missing = again.go_on()
    assert missing == [0, 2]
    again.keep(result)
    assert again.publish() == {"m#files": "committed"}
    assert split.left() == []


def test_another_plan_uses_them_where_parts_are_files(split: Split) -> None:
    """An upload belongs to its plan."""
    split.fail(split.open(), 1)
    finish(split.opened, split.run)
    again = split
    for number in range(2):
        (split.source / "small").write_text(f"it has changed {number}")
        again = split.next(f"again {number}")
        assert again.plan.token != split.plan.token
        assert {*again.found_parts()[1]} == (set() if isinstance(split.opened.files, ObjectFiles) else {1})
        finish(split.opened, again.run)
    result, missing = again.go_on()
    assert missing == ([0, 1, 2] if isinstance(split.opened.files, ObjectFiles) else [0, 2])
    again.keep(result)
    assert again.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"it has changed 1"}
    assert split.left() == []


def test_other_parts_of_the_same_file_are_not_used(split: Split) -> None:
    """Such as those of a run with another bound."""
    place = split.open()
    parts = split.fail(place, 0)
    split.opened.staging.put_part(split.plan.token, 2, 1, parts[0])
    assert {*split.found_parts()[1]} == {0}


def test_parts_that_are_gone_or_were_changed_are_copied_again(split: Split) -> None:
    place, files = split.open(), split.opened.files
    first, second = split.fail(place, 0, 1)
    if isinstance(files, ObjectFiles):
        files.end_parts("large", place)
        expected = set()
    else:
        files.unlink(first.files[0].path)
        path = second.files[0].path
        files.unlink(path)
        with files.create(path) as out:
            out.write(b"another one")
        split.fail(place, 2)
        expected = {2}
    again, found = split.found_parts()
    assert (again, {*found}) == ("", expected)
    result, missing = split.go_on()
    assert missing == [number for number in range(3) if number not in expected]
    split.keep(result)
    assert split.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"x"}
    assert split.left() == []


def test_an_earlier_driver_that_is_still_at_work_takes_nothing_away(split: Split) -> None:
    place = split.open()
    parts = split.fail(place, 0)
    result, missing = split.go_on()
    assert missing == [1, 2]
    split.keep(result)
    late = [*parts, split.part(1, place), split.part(2, place)]
    joined = split.join(place, late) if all(part.files for part in late) else FAILED
    split.close(place, late, result if joined.files else joined)
    split.close(place, late, split.opened.staging.put_result(split.plan.token, joined))
    assert split.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"x"}


def test_of_two_uploads_the_one_with_more_parts_is_gone_on_with(
    tmp_path: Path, versitygw: S3Server, bucket: str
) -> None:
    opened = mirrored(tmp_path / "source", versitygw.access.url(f"{bucket}/to"), versitygw.access)
    split = Split(opened, create_work_units(opened, RunRequest("split")), tmp_path / "source")
    places = [split.open() for _ in range(2)]
    split.fail(places[0], 0)
    split.fail(places[1], 1, 2)
    place, found = split.found_parts()
    assert (place, {*found}) == (places[1], {1, 2})
    result, _ = split.go_on()
    split.keep(result)
    assert split.publish() == {"m#files": "committed"}
    assert split.published() == {"large": LARGE, "small": b"x"}
    assert split.left() == [], "the other one is aborted once the plan is done"


def test_what_a_part_wrote_before_it_failed_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = mirrored(tmp_path / "source", str(tmp_path / "target"))
    split = Split(opened, create_work_units(opened, RunRequest("split")), tmp_path / "source")
    monkeypatch.setattr(os, "fsync", lambda file: os.write(-1, b""))
    place = split.open()
    assert "Bad file descriptor" in split.part(1, place).why
    assert split.left() == []


@pytest.mark.parametrize(
    "options",
    [{"split_above": None}, {"convert": (Gzip(),)}, {"checksums": True}, {"split_above": len(LARGE)}],
    ids=["no bound", "converted", "checksums", "not above"],
)
def test_what_isnt_split(tmp_path: Path, options: dict[str, Any]) -> None:
    opened = mirrored(tmp_path / "source", str(tmp_path / "target"), **options)
    plan = create_work_units(opened, RunRequest("whole"))
    work = opened.staging.work(plan.run)
    assert isinstance(work, CopyWork)
    plans = [opened.staging.plan(ref.token) for pack in plan.packs for ref in pack.datasets]
    counts = {work.parts(unit, one) for one in plans if one is not None for unit in opened.staging.units(one)}
    assert counts == {1}


def test_a_file_set_that_is_compared_by_contents_isnt_split(split: Split) -> None:
    by_content = replace(split.plan, binding=replace(CopyBinding.of(split.plan), compare=Compare.CHECKSUM))
    assert split.work.parts(split.unit, split.plan) == 3
    assert split.work.parts(split.unit, by_content) == 1


def test_what_a_store_copies_by_itself_isnt_split(tmp_path: Path, versitygw: S3Server, bucket: str) -> None:
    opened = mirrored(tmp_path / "source", versitygw.access.url(f"{bucket}/to"), versitygw.access)
    (pack,) = create_work_units(opened, RunRequest("r")).packs
    (ref,) = pack.datasets
    plan, work = opened.staging.plan(ref.token), opened.job.work
    assert plan is not None
    assert isinstance(work, CopyWork)
    (unit,) = (one for one in opened.staging.units(plan) if Bundle.of(one).files[0].entry.path == "large")
    assert work.parts(unit, plan) == 3
    assert replace(work, source=versitygw.access.url(f"{bucket}/from")).parts(unit, plan) == 1


def test_a_bound_below_the_least_part_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ConfigurationError, match="a part has at least 16777216 bytes"):
        Mirror("m", str(tmp_path), "/elsewhere", "unused", split_above=LEAST_PART - 1)
