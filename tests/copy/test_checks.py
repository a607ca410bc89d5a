"""Checks of a file set: a set that fails one isn't published, and everything else is."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.copy.checks import AtLeastBytes, AtLeastFiles, Checksums, CopiedFileSet
from airflow_gobblin.copy.conversion.converters import Gzip
from airflow_gobblin.copy.options import Delete
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.wire import record
from airflow_gobblin.testing import inprocess
from tests.copy.mirrors import Trees, statuses
from tests.copy.test_mirror_s3 import OneConnection
from tests.services.s3 import S3Server

A, B = "a#files", "b#files"


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """Two file sets, of three files and of one."""
    trees = Trees(tmp_path, {"delete": Delete(1)})
    for path in ("a/one", "a/two", "a/deep/three", "b/one"):
        trees.write(path)
    return trees


def sums(folder: Path) -> None:
    """Write a list of all files of a folder, as sha256sum does."""
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    (folder / "SHA256SUMS").write_bytes(subprocess.check_output(["sha256sum", *names], cwd=folder))


@pytest.mark.parametrize(
    ("check", "why"),
    [(AtLeastFiles(2), "at least 2 files: it has 1 file"), (AtLeastBytes(6), "at least 6 bytes: it has 5 bytes")],
)
def test_a_file_set_that_is_too_small_is_not_published(trees: Trees, check: Any, why: str) -> None:
    trees = trees.using(checks=(check,))
    reports = trees.run()
    assert statuses(reports) == {A: "committed", B: "failed"}
    assert f"can't publish file set 'b#files': {why}" in reports[B].text
    assert (trees.equal("a"), (trees.target / "b").exists()) == (True, False)
    assert statuses(trees.run()) == {A: "idle", B: "failed"}
    trees.write("b/two")
    assert statuses(trees.run()) == {A: "idle", B: "committed"}
    assert trees.equal()
    assert trees.staged() == []


def test_files_that_did_not_change_count(trees: Trees) -> None:
    trees = trees.using(checks=(AtLeastFiles(3), AtLeastBytes(5)))
    trees.run()
    trees.write("a/one", "changed")
    assert statuses(trees.run())[A] == "committed"
    (trees.source / "a/one").unlink()
    report = trees.run()[A]
    assert (report.status.value, (trees.target / "a/one").exists()) == ("failed", True), report.text
    assert "at least 3 files: it has 2 files" in report.text


def test_every_check_that_fails_is_reported(trees: Trees) -> None:
    text = trees.using(checks=(AtLeastFiles(9), AtLeastBytes(1), AtLeastBytes(999))).run()[B].text
    assert ("at least 9 files" in text, "at least 999 bytes" in text, "at least 1 byte" in text) == (True, True, False)


def test_a_list_of_checksums_is_kept_to(trees: Trees) -> None:
    trees = trees.using(checks=(Checksums(),))
    for name in "ab":
        trees.write(f"{name}/odd\nname")
        trees.write(f"{name}/odd\\name")
        sums(trees.source / name)
    trees.write("b/one", "eno/b")
    reports = trees.run()
    assert statuses(reports) == {A: "committed", B: "failed"}
    assert "'one' has another content" in reports[B].text
    trees.write("b/one")
    assert statuses(trees.run()) == {A: "idle", B: "committed"}

    trees.write("a/one", "changed")
    assert "'one' has another content" in trees.run()[A].text
    sums(trees.source / "a")
    assert statuses(trees.run())[A] == "committed"


@pytest.mark.parametrize("published", [False, True])
def test_a_file_that_is_listed_and_missing_is_named(trees: Trees, published: bool) -> None:
    trees = trees.using(checks=(Checksums("SHA256SUMS"),))
    for name in "ab":
        sums(trees.source / name)
    if published:
        trees.run()
    (trees.source / "a/deep/three").unlink()
    reports = trees.run()
    assert reports[A].status.value == "failed"
    assert "'deep/three' is missing" in reports[A].text
    assert (trees.target / "a/deep/three").exists() is published


def test_many_that_are_wrong_are_counted(trees: Trees) -> None:
    trees.write("b/SHA256SUMS", "".join(f"{'0' * 64}  file{number}\n" for number in range(30)))
    text = trees.using(checks=(Checksums(),)).run()[B].text
    assert text.count("is missing") == 20
    assert "and 10 more" in text


@pytest.mark.parametrize(
    ("listed", "why"),
    [(None, "there is no file 'b/SHA256SUMS'"), ("0123  one\n", "line 1 of 'SHA256SUMS'")],
)
def test_a_bad_list_is_named(trees: Trees, listed: str | None, why: str) -> None:
    sums(trees.source / "a")
    if listed is not None:
        trees.write("b/SHA256SUMS", listed)
    reports = trees.using(checks=(Checksums(),)).run()
    assert statuses(reports) == {A: "committed", B: "failed"}
    assert "SHA256SUMS" in reports[B].text
    assert why in reports[B].text


def test_names_and_contents_are_those_in_the_target(trees: Trees, tmp_path: Path) -> None:
    Trees.run(trees.using(convert=(Gzip(),)))
    shutil.copytree(trees.target / "b", tmp_path / "made")
    sums(tmp_path / "made")
    (tmp_path / "made/SHA256SUMS").rename(trees.source / "b/SHA256SUMS")
    (trees.source / "b/one").touch()
    trees = trees.using(convert=(Gzip(),), checks=(Checksums(),))
    assert statuses(trees.run())[B] == "committed"
    trees.write("b/one", "other")
    assert "'one.gz' has another content" in trees.run()[B].text


@record("test.broken_check")
@dataclass(frozen=True)
class Broken:
    def judge(self, file_set: CopiedFileSet) -> str | None:
        raise RuntimeError("a mistake in a check")


def test_a_check_that_raises_fails_the_file_set(trees: Trees) -> None:
    reports = trees.using(checks=(Broken(),)).run()
    assert statuses(reports) == {A: "failed", B: "failed"}
    assert "a mistake in a check" in reports[A].text


def test_checks_of_uploads(versitygw: S3Server, tmp_path: Path) -> None:
    bucket, connections = versitygw.create_bucket(), OneConnection(versitygw.access.connection)
    trees = Trees(tmp_path)
    trees.write("one")
    sums(trees.source)
    trees.write("one", "eno")
    mirror = Mirror("there", str(trees.source), f"s3://store@{bucket}/tree", "unused", checks=(Checksums(),))
    opened = inprocess.open_job(mirror, connections)
    (report,) = inprocess.run(opened).values()
    assert "'one' has another content" in report.text
    assert [*opened.files.walk("tree")] == []
    trees.write("one")
    (report,) = inprocess.run(opened).values()
    assert report.status.value == "committed"


@pytest.mark.parametrize("make", [lambda: AtLeastFiles(0), lambda: AtLeastBytes(True), lambda: Checksums("../x")])
def test_a_check_of_nothing_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_what_is_no_tuple_of_checks_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a tuple of checks"):
        Mirror("m", "/a", "/b", "unused", checks=[AtLeastFiles(1)])  # type: ignore[arg-type]
