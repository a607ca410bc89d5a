"""One-off copies by the command: what they do, what they leave, and that they go on where they were killed."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import re
import shlex
import tarfile
from pathlib import Path

import pytest

from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.run import here
from tests.cli.command import Done, run
from tests.copy.mirrors import content
from tests.faults import Crash
from tests.services.environment import ROOT
from tests.services.s3 import S3Server


@pytest.fixture(autouse=True)
def here_is_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as the commands set it; gone after the test
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree of some files, one of them with a time."""
    for path in ("top", "deep/er/file", "deep/other"):
        write(tmp_path / "source" / path, path)
    os.utime(tmp_path / "source/top", ns=(1, 1_234_567_890_000_000_000))
    return tmp_path / "source"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy(*words: str) -> Done:
    return run(["gobblin", "copy", *words])


def test_a_tree_is_copied_and_nothing_is_left_but_a_released_claim(source: Path, tmp_path: Path) -> None:
    done = copy("source", "target", "--keep", "t", "-o", "json")
    assert done.status == 0, done.err
    (row,) = done.json
    assert (row["status"], row["files"], row["bytes"]) == ("committed", 3, 25)
    assert "3 files of 25 B copied, 0 in place of others, 0 deleted, in " in done.err
    target = tmp_path / "target"
    assert content(target) == content(source)
    assert (target / "top").stat().st_mtime_ns == 1_234_567_890_000_000_000
    left = {
        path.relative_to(target / "_gobblin").parts[0] for path in (target / "_gobblin").rglob("*") if path.is_file()
    }
    assert left == {"claims"}
    again = copy("source", "target", "--keep", "t", "-o", "json")
    assert (again.status, again.json[0]["status"]) == (0, "idle")


def test_a_dry_run_lists_every_act_and_makes_nothing(source: Path, tmp_path: Path) -> None:
    done = copy("source", "target", "--dry-run", "-o", "json")
    assert done.status == 0, done.err
    files = {row["path"] for row in done.json if row["act"] == "copy"}
    assert files == {"top", "deep/er/file", "deep/other"}
    assert not (tmp_path / "target").exists()


def test_options_are_those_of_a_mirror(source: Path, tmp_path: Path) -> None:
    copy("source", "target")
    write(source / "top", "longer than it was")
    write(source / "deep/skipped.tmp", "")
    (source / "deep/other").unlink()
    refused = copy("source", "target", "--exclude", "*.tmp")
    assert refused.status == 1
    assert "1 file of the target differ" in refused.err
    assert "Type the same again to go on" in refused.err
    done = copy("source", "target", "--exclude", "*.tmp", "--existing", "update", "--delete", "0.5", "-o", "json")
    assert done.status == 0, done.err
    assert (done.json[0]["replaced"], done.json[0]["deleted"]) == (1, 1)
    assert set(content(tmp_path / "target")) == {"top", "deep", "deep/er", "deep/er/file"}
    write(tmp_path / "rules", "- *.tmp\n- deep/er/**\n")
    assert copy("source", "filtered", "--filter-file", "rules").status == 0
    assert set(content(tmp_path / "filtered")) == {"top"}


def test_files_are_converted_and_archives_unpacked(source: Path, tmp_path: Path) -> None:
    (source / "deep/some.gz").write_bytes(gzip.compress(b"some"))
    with tarfile.open(source / "packed.tar.gz", "w:gz") as packed:
        packed.add(source / "top", "inside")
    done = copy("source", "target", "--unpack", "--convert", "gunzip", "--exclude", "deep/other", "--bandwidth", "20M")
    assert done.status == 0, done.err
    there = {path: data for path, data in content(tmp_path / "target").items() if data != "/"}
    assert there == {"top": b"top", "deep/er/file": b"deep/er/file", "deep/some": b"some", "packed/inside": b"top"}
    done = copy("source", "smaller", "--include", "top", "--convert", "gunzip", "--convert", "bzip2:9")
    assert done.status == 0, done.err
    assert bz2.decompress((tmp_path / "smaller/top.bz2").read_bytes()) == b"top"


def test_checks_keep_what_fails_them_from_being_published(source: Path, tmp_path: Path) -> None:
    write(source / "sums", f"{hashlib.sha256(b'another').hexdigest()}  top\n")
    for flags, expected in (
        (("--at-least-files", "5"), "at least 5 files: it has 4 files"),
        (("--at-least-bytes", "1.5Ki"), "at least 1,536 bytes: it has "),
        (("--sha256sums", "sums"), "checksums in 'sums': 'top' has another content"),
    ):
        done = copy("source", "target", *flags)
        assert (done.status, expected in done.err) == (1, True), done.err
        assert content(tmp_path / "target") == {}
    done = copy("source", "target", "--at-least-files", "4", "--at-least-bytes", "25")
    assert done.status == 0, done.err


@pytest.mark.parametrize(
    ("backup", "flags"), [("target/_gobblin/backup", ()), ("before", ("--workspace", "."))], ids=["inside", "beside"]
)
def test_what_is_replaced_or_deleted_is_kept_in_the_backup(
    source: Path, tmp_path: Path, backup: str, flags: tuple[str, ...]
) -> None:
    assert copy("source", "target", *flags).status == 0
    write(source / "top", "another one")
    (source / "deep/other").unlink()
    done = copy("source", "target", "--existing", "update", "--delete", "0.5", "--backup", backup, *flags)
    assert done.status == 0, done.err
    assert content(tmp_path / "target") == content(source)
    (token,) = (tmp_path / backup).iterdir()
    kept = {path: data for path, data in content(token).items() if data != "/"}
    assert kept == {"top": b"top", "deep/other": b"deep/other"}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--convert", "rar"), "There are gunzip, bunzip2, unzstd"),
        (("--convert", "gunzip:3"), "no such converter"),
        (("--convert", "zstd:99"), "no such level"),
        (("--bandwidth", "20 M"), "is not a size"),
        (("--bandwidth", "0"), "it lets nothing through"),
        (("--at-least-bytes", "0"), "it checks nothing"),
        (("--sha256sums", "/etc/passwd"), "/etc/passwd"),
        (("--backup", "elsewhere"), "not a folder of yours below the workspace"),
        (("--workspace", "source"), "neither the target nor a folder above it"),
    ],
)
def test_an_odd_option_is_refused_and_nothing_made(
    source: Path, tmp_path: Path, flags: tuple[str, ...], expected: str
) -> None:
    done = copy("source", "target", *flags)
    assert (done.status != 0, expected in done.err) == (True, True), done.err
    assert not (tmp_path / "target").exists()


def test_a_copy_that_was_killed_goes_on_when_it_is_typed_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(here, "execute_commit_steps", die)
        with pytest.raises(Crash):
            copy("source", "target")
    assert content(tmp_path / "target") == {}, "it is decided, and nothing has its place"
    write(source / "new", "came meanwhile")
    done = copy("source", "target", "-o", "json")
    assert (done.status, done.json[0]["files"]) == (0, 1), done.err
    assert content(tmp_path / "target") == content(source)


def test_a_file_that_cannot_be_copied_is_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_unit = CopyWork.run

    def vanish(self: CopyWork, *arguments: object) -> object:
        (source / "top").unlink(missing_ok=True)
        return run_unit(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CopyWork, "run", vanish)
    done = copy("source", "target")
    assert done.status == 1
    assert "top" in done.err.partition("Error")[2]
    assert content(tmp_path / "target") == {}


def test_a_folder_of_another_job_and_bad_options_are_refused(source: Path, tmp_path: Path) -> None:
    assert copy("source", "target", "--journal", f"{tmp_path}/journal").status == 0
    write(source / "other/file", "")
    refused = copy("source/other", "target")
    assert refused.status == 1
    assert "belongs to dataset" in refused.err
    inside = copy("source", "source/copy")
    assert (inside.status, "lies in it" in inside.err) == (1, True)
    secret = copy("source", "s3://key:secret@bucket/tree")
    assert (secret.status, "key:secret" in secret.err) == (1, False)
    letters = copy("source", "target", "--keep", "z")
    assert (letters.status, "none of its letters" in letters.err) == (1, True)
    gone = copy("nowhere", "target2")
    assert (gone.status, "nowhere" in gone.err) == (1, True)


def test_progress_is_reported_while_it_runs(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_gobblin.cli import copying

    monkeypatch.setattr(copying, "_SECONDS", 0.0)
    for number in range(1200):
        write(source / f"many/{number}", "1234")
    lines = copy("source", "target", "-j", "2").err.splitlines()
    progress = [line for line in lines if re.match(r"[\d,]+ of 1,203 files, .* of 4\.8 kB, .*/s, \d+ s left$", line)]
    assert len(progress) >= 3, lines
    assert any(line.startswith("1,203 of 1,203 files") for line in progress)


@pytest.mark.slow
def test_a_tree_goes_to_s3_and_back(
    source: Path, tmp_path: Path, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = versitygw.create_bucket()
    monkeypatch.setenv("AIRFLOW_CONN_STORE", versitygw.access.connection)
    done = copy("source", f"s3://store@{bucket}/tree")
    assert done.status == 0, done.err
    assert copy(f"s3://store@{bucket}/tree", "back").status == 0
    assert content(tmp_path / "back") == content(source)
    left = versitygw.access.filesystem().find(f"{bucket}/tree/_gobblin")
    assert {key.partition("_gobblin/")[2].partition("/")[0] for key in left} == {"claims"}


def test_the_commands_of_the_page(source: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    lines = re.findall(r"^\$ airflow gobblin copy (.+)$", page, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line.replace("/srv/camera", str(source)).replace("/srv/photos", f"{tmp_path}/photos"))
        assert copy(*words).status == 0
    assert content(tmp_path / "photos") == content(source)


@pytest.mark.parametrize("given", ["sourze", "source/top", "file:///no/where"])
def test_a_source_that_is_not_there_makes_nothing_in_the_target(source: Path, tmp_path: Path, given: str) -> None:
    done = copy(given, "target")
    assert (done.status, done.out) == (1, "")
    assert "can't list " in done.err
    assert ": no folder is there. " in done.err
    assert not re.search(r"\w(Error|Exception)\b", done.err), "Python's own words"
    assert not (tmp_path / "target").exists()
    dry = copy(given, "target", "--dry-run")
    assert dry.status == 1
    assert not re.search(r"\w(Error|Exception)\b", dry.err.replace("Error: ", "")), "Python's own words"


def test_a_source_without_its_connection_makes_nothing_in_the_target(tmp_path: Path) -> None:
    done = copy("sftp://nobody@host/tree", "target")
    assert done.status == 1
    assert "can't use connection 'nobody': Airflow has no connection of this id" in done.err
    assert not (tmp_path / "target").exists()
