"""A store on a disk: what it leaves there, and what it removes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores import open_store
from airflow_gobblin.storage.stores.local import LocalStore
from tests.faults import Crash, died

AGES_AGO = 1_000_000_000


def temporaries(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if ".tmp" in str(path.relative_to(root)) and path.is_file()]


def killed_at_link(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary file that a killed writer left."""
    before = temporaries(root)
    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "link", died)
        patched.setattr(LocalFiles, "unlink", died)
        with pytest.raises(Crash):
            LocalStore(LocalFiles(root)).put_if_absent("i/a/d/1", b"lost")
    (left,) = {*temporaries(root)} - {*before}
    return left


def test_opening_a_store_again_and_again_leaves_nothing_more(tmp_path: Path) -> None:
    open_store(str(tmp_path)).close()
    before = sorted(tmp_path.rglob("*"))
    for _ in range(3):
        open_store(str(tmp_path)).close()
    assert sorted(tmp_path.rglob("*")) == before


def test_opening_a_store_that_was_tried_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(str(tmp_path)).close()
    monkeypatch.setattr(os, "fsync", died)
    open_store(str(tmp_path)).close()
    with pytest.raises(Crash):
        open_store(str(tmp_path)).put_if_absent("i/a/d/0", b"written")


def test_what_a_killed_writer_left_is_removed_by_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    young = killed_at_link(tmp_path, monkeypatch)
    assert LocalStore(LocalFiles(tmp_path)).put_if_absent("i/a/d/0", b"written")
    assert temporaries(tmp_path) == [young]
    os.utime(young, (AGES_AGO, AGES_AGO))
    assert LocalStore(LocalFiles(tmp_path)).put_if_absent("i/a/d/1", b"written")
    assert not young.exists()
    assert young.name in [path.name for path in temporaries(tmp_path)], "it is moved away first"
    an_hour_later(tmp_path)
    store = LocalStore(LocalFiles(tmp_path))
    assert store.put_if_absent("i/a/d/2", b"written")
    assert temporaries(tmp_path) == []
    assert [*store.list("")] == ["i/a/d/0", "i/a/d/1", "i/a/d/2"]


def an_hour_later(root: Path) -> None:
    """As if the file was moved away so long ago."""
    (moved,) = root.glob(".tmp-*")
    moved.rename(root / f".tmp-1-{moved.name.rpartition('-')[2]}")


def test_a_writer_whose_temporary_file_is_removed_writes_it_again(tmp_path: Path) -> None:
    """At any moment before the record has its name: the clean-up needs no clock to be safe."""

    class Swept(LocalFiles):
        times = 0

        def link(self, source: str, target: str) -> None:
            if self.times < 2 and os.path.isdir(tmp_path / "i/a/d"):
                self.times += 1
                os.unlink(tmp_path / source)
            super().link(source, target)

    files = Swept(tmp_path)
    store = LocalStore(files)
    assert store.put_if_absent("i/a/d/1", b"one")
    assert files.times == 2
    assert store.get("i/a/d/1") == b"one"
    assert not store.put_if_absent("i/a/d/1", b"two")
    assert temporaries(tmp_path) == []


def test_a_writer_whose_temporary_file_never_lasts_fails_by_name(tmp_path: Path) -> None:
    class SweptAlways(LocalFiles):
        def link(self, source: str, target: str) -> None:
            os.unlink(tmp_path / source)
            super().link(source, target)

    with pytest.raises(Exception, match=r"write record 'i/a/d/1' .* removed again and again"):
        LocalStore(SweptAlways(tmp_path)).put_if_absent("i/a/d/1", b"one")
    assert [*LocalStore(LocalFiles(tmp_path)).list("")] == []


def test_a_full_disk_leaves_no_temporary_file(tmp_path: Path) -> None:
    class Full(LocalFiles):
        def sync_file(self, path: str) -> None:
            raise OSError(28, os.strerror(28))

    with pytest.raises(Exception, match="The disk is full"):
        LocalStore(Full(tmp_path)).put_if_absent("i/a/d/1", b"one")
    assert temporaries(tmp_path) == []


def test_no_folder_stays_of_records_that_were_trimmed(tmp_path: Path) -> None:
    store = LocalStore(LocalFiles(tmp_path))
    notes = [f"i/a/n/{slot:010d}/{number:06d}-failed" for slot in (1, 2) for number in (0, 1)]
    for key in [*notes, "i/a/d/0000000001"]:
        store.put_if_absent(key, b"")
    store.delete_many([*notes[:3], "i/a/d/0000000001"])
    assert [*store.list("")] == notes[3:]
    assert sorted(path.name for path in (tmp_path / "i/a/n").iterdir()) == ["0000000002"]
    assert (tmp_path / "i/a/d").is_dir()
    assert store.put_if_absent(notes[0], b"again")


def test_what_a_file_system_makes_for_itself_is_no_record(tmp_path: Path) -> None:
    """NFS keeps a removed file that is open as `.nfs…`."""
    store = LocalStore(LocalFiles(tmp_path))
    store.put_if_absent("i/a/d/0000000001", b"one")
    (tmp_path / "i/a/d/.nfs000000000000000100000002").write_bytes(b"gone")
    assert [*store.list("i/")] == ["i/a/d/0000000001"]
