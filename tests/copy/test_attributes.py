"""Attributes that change while the content stays: they are set in place, and no byte is copied."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from airflow_gobblin.copy.options import Keep
from airflow_gobblin.errors import StepError
from airflow_gobblin.model.plan import ActKind
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.attributes import FileAttributesStep
from airflow_gobblin.steps.base import StepContext, StepStatus
from airflow_gobblin.steps.execution import carry_out
from airflow_gobblin.storage.files import Attributes, FileIdentity, LocalFiles
from tests.copy.made_trees import NOBODY, as_nobody, open_folder
from tests.copy.mirrors import Trees, statuses

A = "a#files"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """A file set that was mirrored, with permissions."""
    trees = Trees(tmp_path, {"keep": Keep("p"), "links": "copy"})
    trees.write("a/file").chmod(0o640)
    trees.write("a/deep/other").chmod(0o604)
    assert statuses(trees.run()) == {A: "committed"}
    return trees


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_permission_is_set_in_place(trees: Trees) -> None:
    before = (trees.target / "a/file").stat()
    (trees.source / "a/file").chmod(0o400)
    (prospect,) = would_plan(trees.opened(), RunRequest("r")).datasets
    assert prospect.outline is not None
    assert prospect.outline.counts == {ActKind.ATTRIBUTES: 1}
    assert statuses(trees.run()) == {A: "committed"}
    after = (trees.target / "a/file").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert mode(trees.target / "a/file") == 0o400
    assert statuses(trees.run()) == {A: "idle"}


def test_what_somebody_else_set_in_the_target_is_set_back(trees: Trees) -> None:
    (trees.target / "a/deep/other").chmod(0o666)
    assert statuses(trees.run()) == {A: "committed"}
    assert mode(trees.target / "a/deep/other") == 0o604
    assert statuses(trees.using(keep=Keep("t")).run()) == {A: "committed"}, "times weren't kept before"
    (trees.target / "a/deep/other").chmod(0o666)
    assert statuses(trees.using(keep=Keep("t")).run()) == {A: "idle"}, "permissions aren't kept"


def test_such_a_file_differs_as_one_with_another_content_does(trees: Trees) -> None:
    (trees.source / "a/file").chmod(0o400)
    assert statuses(trees.using(existing="skip").run()) == {A: "idle"}
    report = trees.using(existing="fail").run()[A]
    assert report.status == "failed"
    assert "1 file of the target differ from the source's: 'file'" in report.text
    assert mode(trees.target / "a/file") == 0o640


@root_only
def test_owners_of_files_and_of_links_are_set_in_place(trees: Trees) -> None:
    (trees.source / "a/link").symlink_to("file")
    trees = trees.using(keep=Keep("ugp"))
    trees.run()
    paths = [trees.target / path for path in ("a/file", "a/link")]
    before = [path.lstat().st_ino for path in paths]
    for path in ("a/file", "a/link"):
        os.chown(trees.source / path, 1234, 4321, follow_symlinks=False)
    (trees.source / "a/file").chmod(0o6750)
    assert statuses(trees.run()) == {A: "committed"}
    assert [path.lstat().st_ino for path in paths] == before
    assert [(path.lstat().st_uid, path.lstat().st_gid) for path in paths] == [(1234, 4321)] * 2
    assert mode(paths[0]) == 0o6750
    assert statuses(trees.run()) == {A: "idle"}


@root_only
def test_a_user_without_rights_sets_what_it_can_and_plans_nothing_else() -> None:
    with open_folder() as folder:
        trees = Trees(folder, {"keep": Keep("ugp")})
        trees.write("a/file")
        trees.write("a/roots", at=trees.target)
        for path in (trees.target, trees.target / "a"):
            path.chmod(0o777)
        os.utime(trees.write("a/roots"), ns=(1, 1))

        with as_nobody():
            trees.run()
            assert statuses(trees.run()) == {A: "idle"}
        os.chown(trees.source / "a/file", 1234, 4321)
        (trees.source / "a/file").chmod(0o6711)
        (trees.source / "a/roots").chmod(0o600)
        with as_nobody():
            assert statuses(trees.run()) == {A: "committed"}
            assert statuses(trees.run()) == {A: "idle"}
        assert mode(trees.target / "a/file") == 0o711, "special bits mean something else for another owner"
        assert mode(trees.target / "a/roots") == 0o644


# The step


def placed(root: Path) -> tuple[StepContext, FileIdentity]:
    files = LocalFiles(root)
    files.create("file").close()
    (root / "file").chmod(0o644)
    found = files.identity("file")
    assert found is not None
    return StepContext(files), found


def test_a_file_that_took_its_place_since_is_left(tmp_path: Path) -> None:
    context, identity = placed(tmp_path)
    step = FileAttributesStep("file", identity, Attributes(mode=0o600))
    (tmp_path / "file").rename(tmp_path / "before")
    assert step.verify(context) is StepStatus.DONE, "it is gone"
    step.execute(context)
    (tmp_path / "file").write_bytes(b"theirs")
    (tmp_path / "file").chmod(0o644)
    assert step.verify(context) is StepStatus.DONE
    step.execute(context)
    assert mode(tmp_path / "file") == 0o644
    (tmp_path / "before").rename(tmp_path / "file")
    assert [carry_out(step, context, A, 1) for _ in range(2)] == [True, False]
    assert mode(tmp_path / "file") == 0o600


@root_only
def test_what_cant_be_set_is_an_error_only_if_it_is_asked_for() -> None:
    with open_folder() as folder:
        context, identity = placed(folder)
        with as_nobody():
            carry_out(FileAttributesStep("file", identity, Attributes(mode=0o666)), context, A, 1)
            strict = FileAttributesStep("file", identity, Attributes(mode=0o666), strict=True)
            with pytest.raises(StepError, match=r"attributes of file 'file'.*Operation not permitted"):
                carry_out(strict, context, A, 1)
        assert mode(folder / "file") == 0o644


def test_an_error_of_the_disk_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, identity = placed(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "chmod", fail)
    with pytest.raises(StepError, match="Input/output error"):
        carry_out(FileAttributesStep("file", identity, Attributes(mode=0o600)), context, A, 1)


@root_only
def test_a_file_that_its_owner_may_not_read_is_set_too() -> None:
    with open_folder() as folder:
        context, identity = placed(folder)
        os.chown(folder / "file", NOBODY, NOBODY)
        (folder / "file").chmod(0)
        with as_nobody():
            carry_out(FileAttributesStep("file", identity, Attributes(mode=0o640)), context, A, 1)
        assert mode(folder / "file") == 0o640
