"""Copies that a failed run finished are used again by the next one: by its plan, if that is still right, or taken from it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy import bundles
from airflow_gobblin.copy.checks import CopiedFileSet
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.conversion.converters import Gzip
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.finders import EachFolder, WholeTree
from airflow_gobblin.copy.options import Compare, Keep, Links
from airflow_gobblin.copy.transfer.local import DiskOrigin
from airflow_gobblin.errors import SourceError
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.limits import RunLimits
from airflow_gobblin.model.wire import record
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import STUCK_AFTER
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.copy.made_trees import NOBODY, open_folder, process_of_nobody
from tests.copy.mirrors import Trees, content, statuses

URN = "photos#files"
BAD = "f007"


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return filled(Trees(tmp_path, {"datasets": WholeTree()}), 12)


@pytest.fixture
def hundred(tmp_path: Path) -> Trees:
    return filled(Trees(tmp_path, {"datasets": WholeTree()}), 100)


def filled(trees: Trees, files: int) -> Trees:
    """Files that each have a size of their own."""
    for number in range(files):
        trees.write(f"f{number:03}", "." * (1000 + number))
    trees.target.mkdir(exist_ok=True)
    return trees


@contextmanager
def copying(*unreadable: str) -> Iterator[list[Entry]]:
    """The files of the source that are read to be copied.

    :param unreadable: those that can't be.
    """
    read: list[Entry] = []
    opens = DiskOrigin._open

    def counted(self: DiskOrigin, entry: Entry) -> Any:
        if entry.path in unreadable:
            raise SourceError(operation="read", subject=entry.path, cause="it can't be read", hint="Mend it.")
        read.append(entry)
        return opens(self, entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiskOrigin, "_open", counted)
        yield read


def fails(trees: Trees, *unreadable: str) -> list[Entry]:
    """A run that can't read some files, and publishes nothing.

    :return: what it read.
    """
    with copying(*unreadable or (BAD,)) as read:
        reports = trees.run()
    assert statuses(reports) == {URN: "failed"}
    assert "it can't be read" in reports[URN].text
    assert content(trees.target) == {}
    return read


def copies(trees: Trees, *names: str) -> None:
    """The next run reads just these files, publishes everything, and leaves nothing behind."""
    with copying() as read:
        reports = trees.run()
    assert statuses(reports) == {URN: "committed"}, reports[URN].text
    assert sorted(entry.path for entry in read) == sorted(names)
    assert sum(entry.size for entry in read) == sum((trees.source / name).stat().st_size for name in names)
    assert trees.equal()
    assert trees.staged() == []
    assert statuses(trees.run()) == {URN: "idle"}


def actions(trees: Trees) -> list[Action]:
    return [slot.decision.action for slot in trees.journal.history(URN).slots]


def every(trees: Trees) -> list[str]:
    return os.listdir(trees.source)


def test_of_a_hundred_files_the_next_run_reads_only_the_one_that_could_not_be_read(hundred: Trees) -> None:
    """The plan is still right: it is carried out, and answers the run that does it."""
    assert len(fails(hundred)) == 99
    copies(hundred, BAD)
    assert actions(hundred) == [Action.COMMIT]


def test_with_another_file_changed_it_reads_these_two(hundred: Trees) -> None:
    """The plan is given up, and the new one takes its copies."""
    assert len(fails(hundred)) == 99
    hundred.write("f003", "changed")
    copies(hundred, "f003", BAD)
    assert actions(hundred) == [Action.ABORT, Action.COMMIT]
    (abort, commit) = hundred.journal.history(URN).slots
    assert abort.decision.reason == "a newer plan took its place"
    assert abort.decision.token != commit.decision.token


def test_with_a_file_more_and_one_less_it_reads_the_new_one(trees: Trees) -> None:
    fails(trees)
    (trees.source / "f000").unlink()
    trees.write("deep/new")
    copies(trees, "deep/new", BAD)


def test_a_file_that_nobody_may_read() -> None:
    """As another user than root, and with the file mended by its permission."""
    with open_folder() as folder:
        trees = filled(Trees(folder, {"datasets": WholeTree()}), 12)
        trees.target.chmod(0o777)
        (trees.source / BAD).chmod(0)
        if os.geteuid() == 0:
            os.chown(trees.source / BAD, NOBODY, NOBODY)
        process_of_nobody(partial(fails_and_is_mended, trees))


def fails_and_is_mended(trees: Trees) -> None:
    with copying() as read:
        assert statuses(trees.run()) == {URN: "failed"}
    assert len(read) == 12  # one in vain
    (trees.source / BAD).chmod(0o644)
    copies(trees, BAD)


def test_run_after_run_only_what_is_missing_is_read(trees: Trees) -> None:
    """Though each gives the one before up: copies are handed on."""
    fails(trees)
    for name in ("f001", "f002", "f003", "f004", "f005"):
        trees.write(name, f"{name} is changed")
        assert [entry.path for entry in fails(trees)] == [name]
        assert len(trees.opened().staging.tokens()) <= 4, "of plans that are given up only the newest are kept"
    copies(trees, BAD)
    assert actions(trees) == [Action.ABORT] * 5 + [Action.COMMIT]


def test_several_files_and_bundles_may_fail(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MOST_FILES", 3)
    bad = ("f000", "f002", "f003", "f008", "f011")
    assert len(fails(trees, *bad)) == 12 - len(bad)
    trees.write("f001", "changed")
    copies(trees, "f001", *bad)


def test_where_very_many_files_fail_the_others_are_not_tried(hundred: Trees) -> None:
    bad = tuple(f"f{number:03}" for number in range(20, 60))
    assert len(fails(hundred, *bad)) == 20
    copies(hundred, *(name for name in every(hundred) if name >= "f020"))


def test_another_try_of_the_same_run_reads_only_what_is_missing(trees: Trees) -> None:
    opened = trees.opened()
    plan = create_work_units(opened, RunRequest("run"))
    with copying(BAD, "f008"):
        inprocess.extract(opened, plan, NoConnections())
    with copying(BAD) as read:
        inprocess.extract(opened, plan, NoConnections())
    assert [entry.path for entry in read] == ["f008"]
    with copying() as read:
        reports = inprocess.go_on(opened, plan, NoConnections())
    assert [entry.path for entry in read] == [BAD]
    assert statuses(reports) == {URN: "committed"}
    assert trees.equal()


def test_bundles_that_a_killed_driver_finished_are_not_copied_again(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "MOST_FILES", 2)
    killed_in_the_midst(trees)
    copies(trees, *(name for name in every(trees) if name >= "f006"))
    assert actions(trees) == [Action.COMMIT]


def test_with_a_change_their_copies_are_taken(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundles of the new plan are others."""
    monkeypatch.setattr(bundles, "MOST_FILES", 2)
    killed_in_the_midst(trees)
    trees.write("f0001", "new")
    copies(trees, "f0001", *(name for name in every(trees) if name >= "f006"))
    assert actions(trees) == [Action.ABORT, Action.COMMIT]


def killed_in_the_midst(trees: Trees) -> None:
    """A run of which three bundles are copied."""
    opened = trees.opened()
    plan = create_work_units(opened, RunRequest("run"))
    results = inprocess.run_units(opened, plan, NoConnections())
    for _, (token, result) in zip(range(3), results, strict=False):
        opened.staging.put_result(token, result)


def test_two_runs_that_find_the_same_difference_share_a_plan(trees: Trees) -> None:
    opened = trees.opened()
    plan = create_work_units(opened, RunRequest("first"))
    inprocess.extract(opened, plan, NoConnections())
    copies(trees)
    assert statuses(inprocess.go_on(opened, plan, NoConnections())) == {URN: "committed"}
    assert actions(trees) == [Action.COMMIT]


def test_a_plan_that_fails_run_after_run_is_noted_a_few_times(trees: Trees) -> None:
    """As plans of one run each are, though it is one plan."""
    for number in range(6):
        assert len(fails(trees)) == (0 if number else 11)
    assert len(trees.journal.history(URN).early_notes) == STUCK_AFTER
    with copying(BAD):
        assert f"no progress in {STUCK_AFTER} runs" in trees.run()[URN].text


def test_if_the_next_run_has_no_spark_to_take_them_the_one_after_does(trees: Trees) -> None:
    """A clean-up keeps what an open plan may take."""
    fails(trees)
    trees.write("f003", "changed")
    opened = trees.opened()
    finish(opened, create_work_units(opened, RunRequest("without Spark")))
    copies(trees, "f003", BAD)


def test_a_set_that_has_no_room_in_the_next_run_keeps_them(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": EachFolder()})
    for name in "ab":
        for number in range(5):
            trees.write(f"{name}/{number}", name * (number + 1))
    with copying("4"):
        assert statuses(trees.run()) == {"a#files": "failed", "b#files": "failed"}
    trees.write("b/0", "changed")
    limited = trees.using(limits=RunLimits(file_sets=1))
    read = []
    for _ in range(2):
        with copying() as of_run:
            limited.run()
        read += of_run
    assert sorted(entry.path for entry in read) == ["0", "4", "4"]
    assert trees.equal()


def test_links_and_odd_names_are_taken_too(trees: Trees) -> None:
    trees = trees.using(links=Links.COPY, keep=Keep("tp"))
    (trees.source / "link").symlink_to("f001")
    (trees.source / "empty").touch()
    odd = os.fsdecode(b"deep/\xff\xfe")
    trees.write(odd, "odd").chmod(0o640)
    fails(trees)
    trees.write("f003", "changed")
    copies(trees, "f003", BAD)
    assert (trees.target / odd).stat().st_mode == (trees.source / odd).stat().st_mode


def test_a_new_folder_still_appears_at_once(tmp_path: Path) -> None:
    """All of its files were put into one folder by one run, copied or taken."""
    trees = Trees(tmp_path, {"datasets": EachFolder()})
    for number in range(5):
        trees.write(f"a/{number}")
    with copying("4"):
        trees.run()
    trees.write("a/2", "changed")
    with copying() as read:
        assert statuses(trees.run()) == {"a#files": "committed"}
    assert sorted(entry.path for entry in read) == ["2", "4"]
    history = trees.journal.history("a#files")
    kinds = [type(step).__name__ for step in trees.journal.steps(history.slots[-1].decision)]
    assert "PlaceFolderStep" in kinds
    assert trees.equal()


# Copies that are not used again


def test_an_archive_is_unpacked_again(trees: Trees) -> None:
    """It is read to its end all the same."""
    trees = trees.using(unpack=Unpack())
    with tarfile.open(trees.source / "x.tar", "w") as archive:
        for name in ("f000", "f001"):
            archive.add(trees.source / name, name)
    with copying(BAD):
        assert statuses(trees.run()) == {URN: "failed"}
    trees.write("f003", "changed")
    with copying() as read:
        assert statuses(trees.run()) == {URN: "committed"}
    assert {entry.path for entry in read} == {"f003", BAD, "x.tar"}
    assert (trees.target / "x/f001").read_bytes() == (trees.source / "f001").read_bytes()


def test_a_file_that_changed_since_is_read_again(trees: Trees) -> None:
    """Though its size is the same."""
    fails(trees)
    trees.write("f003", "!" * (trees.source / "f003").stat().st_size)
    copies(trees, "f003", BAD)


def test_copies_made_by_other_options_are_not_used(trees: Trees) -> None:
    fails(trees)
    copies(trees.using(keep=Keep("t")), *every(trees))


def test_copies_of_a_plan_that_a_person_abandoned_are_not_used(trees: Trees) -> None:
    fails(trees)
    trees.admin.abandon(URN, "they are wrong")
    copies(trees, *every(trees))


def test_copies_that_somebody_changed_or_removed_are_not_used(trees: Trees) -> None:
    fails(trees)
    staged = trees.target / trees.opened().staging.folder / "s"
    for name, do in (("f001", Path.unlink), ("f002", lambda path: path.write_text("changed"))):
        (path,) = staged.rglob(name)
        do(path)
    copies(trees, "f001", "f002", BAD)


def test_where_contents_are_compared_no_time_shows_that_a_copy_is_right(trees: Trees) -> None:
    trees = trees.using(compare=Compare.CHECKSUM)
    fails(trees)
    copies(trees, *every(trees))


@record("test.bad_conversion")
@dataclass(frozen=True)
class Mended:
    """A converter of an author's own, which may be another one by the next run."""

    takes, gives = "", ".x"

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        return blocks


@pytest.mark.parametrize("converter", [Gzip(), Mended()], ids=["built in", "an author's"])
def test_what_a_converter_of_an_author_made_is_converted_again(trees: Trees, converter: Any) -> None:
    trees = trees.using(convert=(converter,))
    with copying(BAD):
        trees.run()
    with copying() as read:
        assert statuses(trees.run()) == {URN: "committed"}
    assert len(read) == (1 if isinstance(converter, Gzip) else 12)
    assert len(os.listdir(trees.target)) == 12 + 1


@record("test.fails_once")
@dataclass(frozen=True)
class AsLongAs:
    """A check that fails as long as a file is there."""

    path: str

    def judge(self, file_set: CopiedFileSet) -> str | None:
        return "they look damaged" if os.path.exists(self.path) else None


def test_copies_that_a_check_refused_are_made_anew(trees: Trees) -> None:
    """They may have been damaged on their way."""
    bad = trees.folder / "bad"
    bad.touch()
    trees = trees.using(checks=(AsLongAs(str(bad)),))
    with copying():
        reports = trees.run()
    assert "they look damaged" in reports[URN].text
    bad.unlink()
    copies(trees, *every(trees))
