"""What survives a power failure, as the tests' own `Disk` has it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from airflow_gobblin.files import LocalFiles
from tests.faults import Disk, Faults, FaultyFiles

STAGED, PUBLISHED = "staging/u0", "target/u0"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    (tmp_path / "root").mkdir()
    return Disk(tmp_path / "root", tmp_path / "attic")


@pytest.fixture
def files(disk: Disk) -> FaultyFiles:
    found = FaultyFiles(LocalFiles(disk.root), Faults(), disk)
    found.make_folder("target")
    found.sync_folder("target")
    with found.create(f"{STAGED}/0") as out:
        out.write(b"row")
    found.sync_file(f"{STAGED}/0")
    return found


def names(disk: Disk) -> list[str]:
    return sorted(str(path.relative_to(disk.root)) for path in disk.root.rglob("*") if path.is_file())


def test_a_renamed_folder_has_its_old_name_until_the_new_one_is_synced(disk: Disk, files: FaultyFiles) -> None:
    files.sync_folder(STAGED)
    files.move_folder(STAGED, PUBLISHED)
    disk.lose_power()
    assert names(disk) == [f"{STAGED}/0"]
    files.move_folder(STAGED, PUBLISHED)
    files.sync_folder("target")
    disk.lose_power()
    assert names(disk) == [f"{PUBLISHED}/0"]
    assert not disk.unsynced()


def test_it_has_one_of_its_names_and_never_both_or_none(disk: Disk, files: FaultyFiles) -> None:
    files.sync_folder(STAGED)
    seen: Counter[str] = Counter()
    for seed in range(20):
        files.move_folder(STAGED, PUBLISHED)
        disk.lose_power(random.Random(seed))
        (name,) = names(disk)
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
    assert names(disk) == [f"{PUBLISHED}/0", f"{PUBLISHED}/1"]
    disk.lose_power()
    assert names(disk) == [f"{PUBLISHED}/0"]


def test_a_folder_that_was_removed_comes_back_with_what_was_in_it(disk: Disk, files: FaultyFiles) -> None:
    files.sync_folder(STAGED)
    files.move_folder(STAGED, PUBLISHED)
    files.sync_folder("target")
    files.unlink(f"{PUBLISHED}/0")
    files.remove_folder(PUBLISHED)
    assert not (disk.root / PUBLISHED).exists()
    disk.lose_power()
    assert names(disk) == [f"{PUBLISHED}/0"]
