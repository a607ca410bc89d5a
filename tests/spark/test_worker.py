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
        freeze_heap()
        assert (gc.get_freeze_count(), gc.get_threshold()) == (frozen, (NEW_OBJECTS, *before[1:]))
        assert frozen > 0
    finally:
        gc.set_threshold(*before)
