from __future__ import annotations

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_gobblin.spark.worker import (
    NEW_OBJECTS,
    freeze_heap,
    freeze_heap_once,
    schedule_as_batch,
    use_small_pages,
)


@pytest.mark.usefixtures("thawed_heap")
def test_the_heap_of_a_worker_is_frozen_once() -> None:
    before = gc.get_threshold()
    try:
        freeze_heap()
        frozen = gc.get_freeze_count()
        later: list[list[int]] = [[] for _ in range(10_000)]
        freeze_heap()
        # Not equal: objects that other threads free are counted no more.
        assert 0 < gc.get_freeze_count() < frozen + len(later)
        assert gc.get_threshold() == (NEW_OBJECTS, *before[1:])
    finally:
        gc.set_threshold(*before)


@pytest.mark.usefixtures("thawed_heap")
def test_later_tasks_of_a_worker_count_no_frozen_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    freeze_heap_once.cache_clear()
    try:
        freeze_heap_once()
        assert gc.get_freeze_count() > 0
        monkeypatch.delattr(gc, "get_freeze_count")
        freeze_heap_once()
    finally:
        gc.set_threshold(*before)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such policies")
@pytest.mark.parametrize(("chosen", "then"), [("SCHED_OTHER", "SCHED_BATCH"), ("SCHED_IDLE", "SCHED_IDLE")])
def test_a_task_is_scheduled_as_a_batch_unless_another_policy_is_chosen(chosen: str, then: str) -> None:
    def policy() -> int:
        os.sched_setscheduler(0, getattr(os, chosen), os.sched_param(0))
        schedule_as_batch()
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as own_thread:
        assert own_thread.submit(policy).result() == getattr(os, then)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no huge pages that nobody asked for")
def test_a_task_s_process_has_no_huge_pages() -> None:
    program = f"""
from pathlib import Path
from {use_small_pages.__module__} import use_small_pages
def allowed():
    return [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("THP_enabled")]
before = allowed()
use_small_pages()
print(before, allowed())
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert found in ("['1'] ['0']", "[] []")  # kernels before 5.0 don't report it
