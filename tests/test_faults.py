"""Survival of a power failure, as the tests' own `Disk` has it."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_gobblin.storage.files import LocalFiles
from tests.faults import Disk, Faults, FaultyFiles, RealMedium, fsync

STAGED, PUBLISHED = "staging/u0", "target/u0"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "root").mkdir()
    disk = Disk(RealMedium(f"{tmp_path}/root", f"{tmp_path}/attic"))
    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr("tests.faults.plugged_in", [disk])
    return disk


@pytest.fixture
def files(disk: Disk, tmp_path: Path) -> FaultyFiles:
    found = FaultyFiles(LocalFiles(tmp_path / "root"), Faults(), disk)
    found.make_folder("target")
    found.sync_folder("target")
    with found.create(f"{STAGED}/0") as out:
        out.write(b"row")
    found.sync_file(f"{STAGED}/0")
    return found


def names(files: FaultyFiles) -> list[str]:
    root = Path(files.root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_renamed_folder_has_its_old_name_until_the_new_one_is_synced(disk: Disk, files: FaultyFiles) -> None:
    files.sync_folder(STAGED)
    files.move_folder(STAGED, PUBLISHED)
    disk.lose_power()
    assert names(files) == [f"{STAGED}/0"]
    files.move_folder(STAGED, PUBLISHED)
    files.sync_folder("target")
    disk.lose_power()
    assert names(files) == [f"{PUBLISHED}/0"]
    assert not disk.unsynced()


def test_it_has_one_of_its_names_and_never_both_or_none(disk: Disk, files: FaultyFiles) -> None:
    files.sync_folder(STAGED)
    seen: Counter[str] = Counter()
    for seed in range(20):
        files.move_folder(STAGED, PUBLISHED)
        disk.lose_power(random.Random(seed))
        (name,) = names(files)
        seen[name] += 1
        if name == f"{PUBLISHED}/0":
            files.move_folder(PUBLISHED, STAGED)
            files.sync_folder("staging")
    assert len(seen) == 2


def test_what_was_not_synced_in_a_folder_is_not_by_its_new_name(disk: Disk, files: FaultyFiles) -> None:
    files.sync_folder(STAGED)
    with files.create(f"{STAGED}/1") as out:
        out.write(b"row")
    files.move_folder(STAGED, PUBLISHED)
    files.sync_folder("target")
    assert names(files) == [f"{PUBLISHED}/0", f"{PUBLISHED}/1"]
    disk.lose_power()
    assert names(files) == [f"{PUBLISHED}/0"]


def test_a_folder_that_was_removed_comes_back_with_what_was_in_it(disk: Disk, files: FaultyFiles) -> None:
    files.sync_folder(STAGED)
    files.move_folder(STAGED, PUBLISHED)
    files.sync_folder("target")
    files.unlink(f"{PUBLISHED}/0")
    files.remove_folder(PUBLISHED)
    assert not Path(files.root, PUBLISHED).exists()
    disk.lose_power()
    assert names(files) == [f"{PUBLISHED}/0"]


def test_a_sync_of_a_folder_syncs_its_names_and_nothing_else(disk: Disk, files: FaultyFiles) -> None:
    """Not its own name, as `fsync` doesn't."""
    with os_open(files, STAGED) as handle:
        fsync(handle)
    disk.lose_power()
    assert names(files) == []


def test_a_file_that_was_not_synced_is_empty(disk: Disk, files: FaultyFiles) -> None:
    with files.create(f"{STAGED}/1") as out:
        out.write(b"row")
    files.sync_folder(STAGED)
    disk.lose_power()
    assert [files.read(f"{STAGED}/{name}") for name in ("0", "1")] == [b"row", b""]


def test_names_that_are_only_kept_are_not_counted(disk: Disk, files: FaultyFiles) -> None:
    files.link(f"{STAGED}/0", "target/0")
    files.unlink(f"{STAGED}/0")
    assert files.names(["target/0", f"{STAGED}/0"]) == [1, 0]


@contextmanager
def os_open(files: FaultyFiles, folder: str) -> Iterator[int]:
    handle = os.open(f"{files.root}/{folder}", os.O_RDONLY)
    yield handle
    os.close(handle)
