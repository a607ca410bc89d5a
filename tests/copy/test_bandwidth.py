"""A run reads no more bytes a second than it may."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.copy import bundles
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.finders import EachFolder
from airflow_gobblin.copy.options import Compare, Existing
from airflow_gobblin.copy.transfer import bandwidth
from airflow_gobblin.copy.transfer.bandwidth import Pace
from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import Attempt
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import UnitResult, WorkUnit
from airflow_gobblin.run.here import run_here
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.pack import _PackRun
from airflow_gobblin.testing import inprocess
from tests.copy.copies import Copying
from tests.copy.hostile_archives import tar


class Clock:
    """A clock that moves only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(bandwidth, "time", clock)
    return clock


@pytest.fixture
def copy(tmp_path: Path) -> Callable[..., None]:
    """Copy some files of 3,000,000 bytes together."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        (source / f"{number}").write_bytes(bytes([number]) * 1_000_000)

    def copy(bytes_a_second: int | None, share: float = 1.0) -> None:
        copying = Copying(str(source), str(tmp_path / "target"), bandwidth=bytes_a_second, share=share)
        result = copying.run()
        assert result.failure is None, result.why
        staged = copying.staged(result)
        assert {path.name: path.read_bytes() for path in staged.iterdir()} == {
            path.name: path.read_bytes() for path in source.iterdir()
        }

    return copy


def test_a_copy_takes_as_long_as_its_bytes(copy: Callable[..., None], clock: Clock) -> None:
    copy(100_000)
    assert clock.now == pytest.approx(30)


def test_a_task_has_its_share(copy: Callable[..., None], clock: Clock) -> None:
    copy(100_000, 0.25)
    assert clock.now == pytest.approx(120)


def test_without_a_limit_nobody_waits(copy: Callable[..., None], clock: Clock) -> None:
    copy(None)
    assert clock.now == 0


@pytest.mark.slow
def test_threads_keep_it_together() -> None:
    pace, started = Pace(100_000), time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(pace.wait, [5_000] * 8)]) == 8
    assert time.monotonic() - started >= 0.39


def test_a_copy_without_spark_shares_it_among_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    for number in range(3):
        (tmp_path / f"source/{number}").write_text("x")
    shares: list[float] = []
    run = CopyWork.run

    def noting(self: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        shares.append(attempt.share)
        return run(self, unit, plan, attempt)

    monkeypatch.setattr(CopyWork, "run", noting)
    monkeypatch.setattr(bundles, "MOST_FILES", 1)
    for threads, share in ((2, 1 / 2), (8, 1 / 3)):
        target = tmp_path / f"target{threads}"
        opened = inprocess.open_job(Mirror("m", str(tmp_path / "source"), str(target), "unused", bandwidth=1000))
        run_here(opened, RunRequest("r"), threads=threads, report=lambda progress: None)
        assert set(shares) == {share}
        shares.clear()


def test_what_planning_reads_keeps_to_it_too(tmp_path: Path, clock: Clock) -> None:
    for side in ("source", "target"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "file").write_bytes(bytes(1_000_000))
    (tmp_path / "source/archive.tar").write_bytes(tar(("a", bytes(500_000))))
    options: dict[str, Any] = {"compare": Compare.CHECKSUM, "existing": Existing.UPDATE, "unpack": Unpack()}
    mirror = Mirror("m", str(tmp_path / "source"), str(tmp_path / "target"), "unused", bandwidth=100_000, **options)
    create_work_units(inprocess.open_job(mirror), RunRequest("r"))
    archive = (tmp_path / "source/archive.tar").stat().st_size
    assert clock.now == pytest.approx((2_000_000 + archive) / 100_000)


def test_it_lets_something_through() -> None:
    with pytest.raises(ConfigurationError, match="it lets nothing through"):
        Mirror("m", "/from", "/to", "unused", bandwidth=0)


def test_all_tasks_of_all_packs_share_it(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / "source" / folder).mkdir(parents=True)
        (tmp_path / "source" / folder / "file").write_text("x")
    mirror = Mirror("m", str(tmp_path / "source"), str(tmp_path / "target"), "unused", EachFolder(), max_packs=3)
    opened = inprocess.open_job(mirror)
    run = create_work_units(opened, RunRequest("r"))
    pack = _PackRun(None, mirror.target, opened.staging.folder, (), SparkConnections({}), "a0")  # type: ignore[arg-type]
    assert len(run.packs) == 3
    assert pack._share(run.run, 4) == pytest.approx(1 / 12)
