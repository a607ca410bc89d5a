from __future__ import annotations

import gc

import pytest

from airflow_gobblin.operators.frozen_heap import frozen_heap
from airflow_gobblin.spark.worker import NEW_OBJECTS

pytestmark = pytest.mark.usefixtures("thawed_heap")


def test_the_heap_is_thawed_also_after_an_error() -> None:
    before = gc.get_threshold()

    @frozen_heap()
    def fail() -> None:
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (NEW_OBJECTS, *before[1:])
        raise ValueError("this")

    with pytest.raises(ValueError, match="this"):
        fail()
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before)


def test_a_collector_that_is_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with frozen_heap():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_what_comes_while_it_is_frozen_is_collected() -> None:
    with frozen_heap():
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() >= 1


def test_a_heap_that_somebody_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        with frozen_heap():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
