"""Things that a file set may have of its own: options, metadata of its events, and its place in the target."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_gobblin.copy.finders import EachFolder, FileSet, Place, WholeTree
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep
from airflow_gobblin.copy.trees import Tree
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.events.publication import publication
from airflow_gobblin.events.structured import LOGGER, log_file_events
from airflow_gobblin.job import FileEvents
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.wire import record
from tests.copy.mirrors import Trees, statuses

TIME = 1_234_567_890_000_000_000


@record("tests.own_options")
@dataclass(frozen=True)
class OwnOptions:
    """Two folders: `own` has all options of its own."""

    def find(self, tree: Tree, mirror: str) -> Iterator[_Folder]:
        return map(_Folder, tree.folders())


@dataclass(frozen=True)
class _Folder:
    urn: str

    def file_sets(self, tree: Tree) -> list[FileSet]:
        plain = FileSet(self.urn, "files", self.urn, self.urn)
        own = FileSet(
            self.urn,
            "files",
            self.urn,
            self.urn,
            metadata={"owner": "ann"},
            keep=Keep("t"),
            compare=Compare.CHECKSUM,
            existing=Existing.SKIP,
        )
        return [own if self.urn == "own" else plain]


def test_a_file_set_may_have_options_of_its_own(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": OwnOptions(), "existing": "fail"})
    for name in ("own", "plain"):
        path = trees.write(f"{name}/file")
        os.utime(path, ns=(TIME, TIME))
    trees.run()
    times = {name: (trees.target / name / "file").stat().st_mtime_ns == TIME for name in ("own", "plain")}
    assert times == {"own": True, "plain": False}, "one keeps times"
    for name in ("own", "plain"):
        size = (trees.source / name / "file").stat().st_size
        trees.write(f"{name}/file", "x" * size)
        os.utime(trees.source / name / "file", ns=(TIME, TIME))
    assert statuses(trees.run()) == {"own#files": "idle", "plain#files": "idle"}
    trees.write("own/new")
    trees.write("plain/file", "longer than it was")
    assert statuses(trees.run()) == {"own#files": "committed", "plain#files": "failed"}
    assert (trees.target / "own/file").read_text() == "own/file", "content differs, and it is skipped"


def test_a_file_set_of_its_own_compares_by_its_content(tmp_path: Path) -> None:
    from airflow_gobblin.run.plan import would_plan
    from airflow_gobblin.run.request import RunRequest

    trees = Trees(tmp_path, {"datasets": OwnOptions()})
    for name in ("own", "plain"):
        os.utime(trees.write(f"{name}/file", "1234"), ns=(TIME, TIME))
        trees.write(f"{name}/file", "5678", at=trees.target)
    trees.write("own/new")
    (own, plain) = would_plan(trees.opened(), RunRequest("dry")).datasets
    assert plain.status.value == "idle", "sizes are equal, and the target's is newer"
    assert own.outline is not None
    assert [act.path for act in own.outline.first if act.kind.value != "folder"] == ["new"]


def test_metadata_is_in_the_events_of_a_file_set(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": OwnOptions()})
    for name in ("own", "plain"):
        trees.write(f"{name}/file")
    trees.run()
    own, plain = (trees.journal.history(f"{name}#files").slots[-1] for name in ("own", "plain"))
    assert publication("photos", own, None).event["metadata"] == {"owner": "ann"}
    assert "metadata" not in publication("photos", plain, None).event


def test_each_file_has_an_event_if_that_is_wanted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trees = Trees(tmp_path, {"delete": Delete(1), "file_events": True})
    for path in ("a/changes", "a/goes"):
        trees.write(path)
    trees.run()
    trees.write("a/changes", "has changed")
    trees.write("a/new\nname")
    (trees.source / "a/goes").unlink()
    trees.run()
    assert isinstance(trees.mirror, FileEvents)
    slot = trees.journal.history("a#files").slots[-1]
    with caplog.at_level("INFO", LOGGER):
        log_file_events(publication("photos", slot, None), trees.journal.steps(slot.decision))
    events = [json.loads(one.getMessage()) for one in caplog.records if one.name == LOGGER]
    assert {(one["act"], one["path"], one["bytes"]) for one in events} == {
        ("copy", "a/new\nname", 10),
        ("delete", "a/goes", 6),
        ("replace", "a/changes", 11),
    }
    assert {(one["event"], one["urn"], one["slot"]) for one in events} == {("file_published", "a#files", 2)}


def test_file_sets_lie_where_the_template_puts_them(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": EachFolder("in"), "place": "archive/{name}/{set}"})
    trees.write("in/a/file")
    trees.write("in/b/deep/file")
    for expected in ("committed", "idle"):
        assert set(statuses(trees.run()).values()) == {expected}
    assert (trees.target / "archive/a/files/file").read_text() == "in/a/file"
    assert (trees.target / "archive/b/files/deep/file").exists()
    assert not (trees.target / "in").exists()


def test_a_whole_tree_may_lie_in_a_folder_of_the_target(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": WholeTree(), "place": "all/{folder}"})
    trees.write("a/file")
    assert statuses(trees.run()) == {"photos#files": "committed"}
    assert (trees.target / "all/a/file").exists()


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("archive", "all file sets would have one folder"),
        ("{owner}", "'owner' is none of its parts"),
        ("{folder.__class__}", "is none of its parts"),
        ("{folder!r}", "is none of its parts"),
        ("{folder", "expected '}' before end of string"),
    ],
)
def test_a_template_that_cannot_work_is_refused(place: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Mirror("photos", "/a", "/b", "/journal", place=place)
    assert expected in str(caught.value)
    assert "such as 'archive/{folder}'" in str(caught.value)


def test_no_place_is_outside_of_the_target() -> None:
    with pytest.raises(ConfigurationError, match="plain relative path"):
        Place("{folder}").of(FileSet("a", "b", "a", "../a"))
    with pytest.raises(ConfigurationError, match="plain relative path"):
        Place("../{folder}").of(FileSet("a", "b", "a", "a"))


def test_two_file_sets_in_one_place_are_refused(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": EachFolder(), "place": "one/{set}"})
    for name in ("a", "b"):
        trees.write(f"{name}/file")
    with pytest.raises(ConfigurationError, match="have one folder"):
        trees.run()


@record("tests.given")
@dataclass(frozen=True)
class Given:
    """Each folder is a file set, whose copies get owner, group and permission."""

    keep: Keep

    def find(self, tree: Tree, mirror: str) -> Iterator[_Given]:
        return (_Given(name, self.keep) for name in tree.folders())


@dataclass(frozen=True)
class _Given:
    urn: str
    keep: Keep

    def file_sets(self, tree: Tree) -> list[FileSet]:
        return [FileSet(self.urn, "files", self.urn, f"lake/new/{self.urn}", keep=self.keep)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_its_copies_and_each_folder_that_is_made_for_them_get_owner_and_permission(tmp_path: Path) -> None:
    keep = Keep("t", owner="daemon", group=1234, permission=0o640, folder_permission=0o2750)
    trees = Trees(tmp_path, {"datasets": Given(keep)})
    for path in ("a/file", "a/deep/other", "b/file"):
        trees.write(path)
    (trees.target / "lake").mkdir(parents=True)
    before = (trees.target / "lake").stat()
    assert statuses(trees.run()) == {"a#files": "committed", "b#files": "committed"}
    new = trees.target / "lake/new"
    user = pwd.getpwnam("daemon").pw_uid
    for made in (new, *new.rglob("*")):
        found = made.stat()
        expected = 0o2750 if made.is_dir() else 0o640
        assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (user, 1234, expected), made
    after = (trees.target / "lake").stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid), "it was there"
    assert statuses(trees.run()) == {"a#files": "idle", "b#files": "idle"}
    (new / "a/file").chmod(0o600)
    os.chown(new / "b", 0, 0)
    assert statuses(trees.run()) == {"a#files": "committed", "b#files": "committed"}
    assert (new / "a/file").stat().st_mode & 0o7777 == 0o640
    assert (new / "b").stat().st_uid == user


def test_an_owner_that_nobody_knows_is_named(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": Given(Keep(group="no-such-group"))})
    trees.write("a/file")
    report = trees.run()["a#files"]
    assert report.status == "failed"
    assert "this host knows no group 'no-such-group'" in report.text
    with pytest.raises(ConfigurationError, match="it is not a permission"):
        Keep(permission=0o17777)
    for odd in (-1, 0xFFFFFFFF, "", True):
        with pytest.raises(ConfigurationError, match="no user has it"):
            Keep(owner=odd)
        with pytest.raises(ConfigurationError, match="no group has it"):
            Keep(group=odd)
