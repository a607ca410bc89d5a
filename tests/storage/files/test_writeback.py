"""The disk begins with a staged file while it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gobblin.storage.files import LocalFiles, local, writeback

MIB = 1 << 20


def test_the_disk_begins_with_each_few_mib_of_a_staged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []

    def begin(file: int, at: int, length: int) -> None:
        assert (tmp_path / "a").stat().st_size >= at + length  # nothing of it waits in Python's buffer
        writeback.begin_to_write(file, at, length)
        begun.append((at, length))

    monkeypatch.setattr(local, "begin_to_write", begin)
    staged = LocalFiles(tmp_path).stage("a", "b")
    for piece in (b"x" * (3 * MIB), b"y" * (2 * MIB), b"z" * 10, b"x" * (9 * MIB), b"end"):
        staged.write(piece)
    staged.finish(0)
    assert begun == [(0, 5 * MIB), (5 * MIB, 9 * MIB + 10)]
    assert (tmp_path / "a").stat().st_size == 14 * MIB + 13


def test_without_the_system_s_help_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_sync_file_range", lambda: None)
    writeback.begin_to_write(-1, 0, MIB)
