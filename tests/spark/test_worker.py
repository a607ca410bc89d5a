from __future__ import annotations

import gc

import pytest

from airflow_gobblin.spark.worker import NEW_OBJECTS, freeze_heap


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
