"""Sources that change under a mirror, before each call of the system that lists or copies them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.copy.options import Keep
from tests.copy.made_trees import open_folder, process_of_nobody
from tests.copy.mirrors import Trees, statuses
from tests.proofs import Proved, chosen_by, fresh_seed, sampled, shares

A, B = "a#files", "b#files"
OLD, NEW = "the target's", "as it was listed, " * 1000


class WatchedOs:
    """`os` as a module sees it, whose calls are counted.

    :param at: the number of the call before which something happens.
    """

    COUNTED = (
        "open",
        "lstat",
        "stat",
        "fstat",
        "scandir",
        "pread",
        "read",
        "lseek",
        "copy_file_range",
        "close",
        "chmod",
    )

    def __init__(self, at: int = -1, act: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self._at = at
        self._act = act

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._counted(real) if name in self.COUNTED else real

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count - 1 == self._at:
                self._act()
            return real(*arguments, **options)

        return call


def grow(file: Path) -> None:
    with file.open("a") as more:
        more.write("and more")


def cut(file: Path) -> None:
    os.truncate(file, 100)


def replace(file: Path) -> None:
    other = file.with_name("another")
    other.write_text("another file")
    other.rename(file)


def remove(file: Path) -> None:
    file.unlink()


def touch(file: Path) -> None:
    os.utime(file, ns=(1, 1_234_567_890_123_456_789))


def overwrite(file: Path) -> None:
    with file.open("r+") as same:
        same.write("?" * len(NEW))


def forbid(file: Path) -> None:
    file.chmod(0)


def lead_out(file: Path) -> None:
    """Its folder becomes a link to another one, out of the source."""
    outside = file.parents[3] / "outside"
    outside.mkdir()
    (outside / file.name).write_text("a secret")
    file.parent.rename(outside / "was")
    file.parent.symlink_to(outside)


CHANGES = [grow, cut, replace, remove, touch, overwrite, forbid, lead_out]


def new_trees(folder: Path, *, checksums: bool) -> Trees:
    trees = Trees(folder, {"keep": Keep("t"), "checksums": checksums})
    for name in "ab":
        for path in ("deep/file", "first", "last"):
            trees.write(f"{name}/{path}", NEW)
        old = trees.write(f"{name}/deep/file", OLD, at=trees.target)
        os.utime(old, ns=(1, 1))
    return trees


def disturbed(folder: Path, change: Callable[[Path], None], at: int, *, checksums: bool) -> int:
    """Change a file before a call, and look at what the run and the next one make of it.

    :return: how many calls there were.
    """
    trees = new_trees(folder, checksums=checksums)
    file, copy = trees.source / "a/deep/file", trees.target / "a/deep/file"
    watched = WatchedOs(at, lambda: change(file))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_AT_ONCE", "BLOCK"):
            patch.setattr(f"airflow_gobblin.copy.transfer.local.{name}", 4096)
        for module in ("transfer.local", "trees.local"):
            patch.setattr(f"airflow_gobblin.copy.{module}.os", watched)
        reports = trees.run()
    assert reports[B].status == "committed", reports[B].text
    assert trees.equal("b")
    if reports[A].status == "failed":
        assert "deep/file" in reports[A].text or (file.parent.is_symlink() and "deep" in reports[A].text)
        assert copy.read_text() == OLD
        assert not (trees.target / "a/last").exists(), "nothing of its file set is published"
    else:
        assert reports[A].status == "committed"
        assert copy.read_bytes() in possible(file)
    restore(file)
    again = trees.run()
    assert {report.status for report in again.values()} <= {"committed", "idle"}, again[A].text
    if file.exists():
        assert copy.read_bytes() == file.read_bytes()
    assert statuses(trees.run()) == {A: "idle", B: "idle"}
    return watched.count


def restore(file: Path) -> None:
    """Do what a person has to."""
    if file.parent.is_symlink():
        outside = file.parent.readlink()
        file.parent.unlink()
        (outside / "was").rename(file.parent)
    if file.exists():
        file.chmod(0o644)


def possible(file: Path) -> list[bytes]:
    """The possible contents of a copy: all of the file as it was or as it is, or nothing of it."""
    if not file.exists() or file.parent.is_symlink():
        return [NEW.encode(), OLD.encode()]
    return [NEW.encode(), file.read_bytes()] if os.access(file, os.R_OK) else [NEW.encode()]


@pytest.mark.slow
@shares(20)
@pytest.mark.parametrize("checksums", [False, True], ids=["by the kernel", "with checksums"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_at_any_moment_fails_its_file_set_or_is_whole_and_the_next_run_heals(
    change: Callable[[Path], None], checksums: bool, share: int, proved: Proved
) -> None:
    with open_folder() as folder:
        seed, calls = fresh_seed(), disturbed(folder / "calm", lambda file: None, -1, checksums=checksums)
        assert calls > 50
        print(f"seed {seed}")
        points = sampled(range(calls), share, seed)

        def play() -> None:
            for at in points:
                disturbed(folder / str(at), change, at, checksums=checksums)

        process_of_nobody(play)
    proved(f"a source's file, {change.__name__}, at each call", f"{len(points)} calls", chosen_by(share, seed))
