"""Where an action works, and what it leaves alone. What each does is in `test_pipeline.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_gobblin.administration import Administration
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.naming import dataset_key
from airflow_gobblin.steps import HighWatermarkStep
from airflow_gobblin.watermark import LongWatermark
from airflow_gobblin.work import ExtractKind
from tests.lab import Lab
from tests.protocol.rows import Table

A = Table("a", ExtractKind.APPEND_ONLY, 10)


def test_the_target_is_named_as_the_sink_names_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    admin = Administration(lab.journal, tmp_path.as_uri(), "ann")
    admin.drop("a", "it was a test", delete_files=True)
    lab.run()
    assert lab.rows("a") == A.all_rows()
    assert len(lab.files("a")) == 3


@pytest.mark.parametrize("target", ["lake", "ftp://host/lake"])
def test_a_target_that_is_no_absolute_path_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(ConfigurationError, match="not an absolute path"):
        Administration(Lab(tmp_path, A).journal, target, "ann")


def test_a_target_where_the_dataset_is_not_published_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.decide()
    (tmp_path / "other").mkdir()
    admin = Administration(lab.journal, str(tmp_path / "other"), "ann")
    with pytest.raises(ConfigurationError, match=rf"it is published to \['{tmp_path}/lake'\], not to {tmp_path}/other"):
        admin.abandon("a", "wrong")
    assert lab.reopened().state("a").pending


def test_a_target_that_was_moved_is_known_by_its_claims(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run()
    (tmp_path / "lake").rename(tmp_path / "moved")
    Administration(lab.journal, str(tmp_path / "moved"), "ann").rewind("a", LongWatermark(4), "again")
    assert lab.reopened().state("a").watermark == LongWatermark(4)


def test_abandoning_a_slot_leaves_the_files_that_others_retired_to_their_retention(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("s", ExtractKind.SNAPSHOT_ONLY, 4), retention=timedelta(days=2))
    lab.run()
    lab.run(Table("s", ExtractKind.SNAPSHOT_ONLY, 4, 1))
    old = lab.files("s")
    lab.decide(Table("s", ExtractKind.SNAPSHOT_ONLY, 4, 2))
    lab.admin.abandon("s", "not yet")
    assert lab.files("s") == old


def test_a_rewinds_step_tells_the_edge_that_is_left(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(A, unit_rows=2), policy="successful")
    lab.run(units=("a:u1",))
    slot = lab.admin.rewind("a", LongWatermark(8), "again")
    (step,) = lab.journal.steps(slot.decision)
    assert step == HighWatermarkStep(LongWatermark(2))
    assert lab.journal.state("a").watermark == LongWatermark(2)


def test_a_dropped_dataset_that_left_the_source_is_cleaned_up_by_the_next_run(tmp_path: Path) -> None:
    other = Table("other", ExtractKind.APPEND_ONLY, 3)
    lab = Lab(tmp_path, A, other)
    lab.run()
    lab.admin.drop("a", "it is over", delete_files=True)
    lab.run(other)
    assert [path.name for path in (tmp_path / dataset_key("a")).glob("*")] == []
