"""The work of mirrors passes the contract of works."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from airflow_gobblin.copy.finders import EachFolder
from airflow_gobblin.copy.options import Existing
from airflow_gobblin.job import Job
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.testing import WorkContract


class TestCopyWork(WorkContract):
    """Two file sets, to which files are added, and of which files change."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        source = tmp_path / "camera"
        for month in ("2026-01", "2026-02"):
            (source / month / "raw").mkdir(parents=True)
            (source / month / "one.jpg").write_bytes(b"one of " + month.encode())
            (source / month / "raw" / "two.jpg").write_bytes(b"two of " + month.encode())
        return source

    @pytest.fixture
    def make_job(self, source: Path) -> Callable[[str], Job]:
        return lambda target: Mirror(
            "photos", str(source), target, "unused", datasets=EachFolder(), existing=Existing.UPDATE
        )

    @pytest.fixture
    def grow(self, source: Path) -> Callable[[], None]:
        number = count()

        def grow() -> None:
            new = next(number)
            for folder in sorted(source.iterdir()):
                (folder / f"new {new}.jpg").write_bytes(b"new")
                (folder / "one.jpg").write_bytes(b"changed" + b"!" * (new + 1))

        return grow
