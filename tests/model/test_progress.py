"""The progress of a copy: rate and the time that is left."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_gobblin.model.progress import Progress, ProgressCount

AT = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_line_for_people() -> None:
    assert str(Progress(1, 1_000_000, 4, 4_000_000, 2.0, AT)) == "1 of 4 files, 1.0 MB of 4.0 MB, 500.0 kB/s, 6 s left"
    assert str(Progress(0, 0, 1, 5, 0.0, AT)) == "0 of 1 file, 0 B of 5 B, 0 B/s"


def test_small_files_count_though_they_have_no_bytes() -> None:
    half = Progress(50, 0, 100, 0, 10.0, AT)
    assert (half.share, half.left, half.rate) == (0.5, 10.0, 0.0)


def test_nothing_to_copy_is_done() -> None:
    assert (Progress(0, 0, 0, 0, 1.0, AT).share, Progress(0, 0, 0, 0, 1.0, AT).left) == (1.0, 0.0)


def test_a_count_adds_up() -> None:
    count = ProgressCount([(1, 10), (2, 20), (3, 30)])
    count.add(1, 10)
    progress = count.add(3, 30)
    assert (progress.files, progress.bytes, progress.all_files, progress.all_bytes) == (4, 40, 6, 60)
    assert progress.seconds == pytest.approx(0, abs=5)
