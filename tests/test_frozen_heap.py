from __future__ import annotations

import gc
from pathlib import Path

import pytest

from airflow_gobblin.frozen_heap import frozen_heap
from airflow_gobblin.work import ExtractKind
from tests.lab import Lab
from tests.protocol.rows import Table


def test_the_heap_is_thawed_also_after_an_error() -> None:
    @frozen_heap()
    def fail() -> None:
        assert gc.get_freeze_count() > 0
        raise ValueError("this")

    with pytest.raises(ValueError, match="this"):
        fail()
    assert gc.get_freeze_count() == 0


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


def test_commit_steps_are_carried_out_with_a_frozen_heap(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, 8))
    pipeline, run = lab.decide()
    frozen: list[int] = []
    for pack in run.packs:
        pipeline.execute_commit_steps(run, pack, lambda *_: frozen.append(gc.get_freeze_count()))
    assert frozen
    assert all(frozen)
    assert gc.get_freeze_count() == 0
