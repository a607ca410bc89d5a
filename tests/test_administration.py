"""Where an action works, and what it leaves alone. What each does is in `test_pipeline.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_gobblin.administration import Administration
from airflow_gobblin.errors import ConfigurationError, LostRaceError
from airflow_gobblin.exported import ExportedDataset, export
from airflow_gobblin.naming import dataset_key
from airflow_gobblin.pipeline import RunRequest
from airflow_gobblin.steps import HighWatermarkStep
from airflow_gobblin.watermark import LongWatermark
from airflow_gobblin.work import ExtractKind
from tests import inprocess
from tests.lab import Lab
from tests.protocol.rows import NoConnections, Table

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


# What is shown before, and then done


def test_a_change_says_what_it_would_do_and_does_nothing_yet(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before = lab.records()
    rewind, skip, drop = (
        lab.admin.would_rewind("a", LongWatermark(5)),
        lab.admin.would_set_watermark("a", LongWatermark(30)),
        lab.admin.would_drop("a", delete_files=True),
    )
    assert [(c.before, c.after) for c in (rewind, skip, drop)] == [
        (LongWatermark(10), LongWatermark(4)),
        (LongWatermark(10), LongWatermark(30)),
        (LongWatermark(10), None),
    ]
    assert [sum(unit.rows_written for unit in c.retired) for c in (rewind, skip, drop)] == [6, 0, 10]
    assert lab.records() == before


def test_a_change_is_not_made_once_the_dataset_has_changed(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    admin = lab.admin
    rewind, again = admin.would_rewind("a", LongWatermark(5)), admin.would_rewind("a", LongWatermark(1))
    lab.run(replace(A, rows=12))
    for change in (rewind, again):
        with pytest.raises(LostRaceError, match="slot 2 was taken by a commit in this moment; nothing was changed"):
            admin.carry_out(change, "wrong")
    assert lab.reopened().state("a").head == 2
    assert lab.rows("a") == replace(A, rows=12).all_rows()


def test_of_two_contradictory_actions_one_is_done_and_the_other_says_so(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    admin = lab.admin
    rewind, skip = admin.would_rewind("a", LongWatermark(4)), admin.would_set_watermark("a", LongWatermark(30))
    admin.carry_out(skip, "these are not wanted")
    with pytest.raises(LostRaceError, match="slot 2 was taken by a set"):
        admin.carry_out(rewind, "these were wrong")
    assert lab.reopened().state("a").watermark == LongWatermark(30)


def test_the_slot_to_abandon_is_the_one_that_was_meant(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    lab.run()
    lab.decide(replace(A, rows=12))
    with pytest.raises(LostRaceError, match=r"slot 1 of dataset 'a': it was finished in this moment"):
        lab.admin.abandon("a", "wrong", slot=1)
    assert lab.reopened().state("a").pending
    assert lab.admin.abandon("a", "wrong", slot=2).abandoned


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_reason_is_needed(tmp_path: Path, reason: str) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before = lab.records()
    admin = lab.admin
    for act in (
        lambda: admin.release("a", reason),
        lambda: admin.abandon("a", reason),
        lambda: admin.rewind("a", LongWatermark(4), reason),
        lambda: admin.set_watermark("a", LongWatermark(40), reason),
        lambda: admin.drop("a", reason),
        lambda: admin.import_state(ExportedDataset("b", LongWatermark(4)), reason),
        lambda: admin.release_claim("a", reason),
    ):
        with pytest.raises(ConfigurationError, match="reason"):
            act()
    assert lab.records() == before


def test_a_snapshot_gets_no_watermark(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("s", ExtractKind.SNAPSHOT_ONLY, 4))
    lab.run()
    with pytest.raises(ConfigurationError, match="it is a snapshot, and has no positions"):
        lab.admin.set_watermark("s", LongWatermark(4), "wrong")


# Imports


def moved(lab: Lab) -> tuple[Lab, ExportedDataset]:
    """An empty journal for the same target, and what the other one exports."""
    there = Lab(lab.folder, A)
    return there, export(lab.journal, lab.journal.history("a"))


def test_plans_made_before_an_import_lose(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    pipeline = lab.pipeline()
    plan = pipeline.create_work_units(RunRequest("before"))
    lab.admin.import_state(ExportedDataset("a", LongWatermark(6)), "from the other tool")
    inprocess.extract(pipeline, plan, NoConnections())
    (report,) = pipeline.write_commit_steps(plan, plan.packs[0])
    assert report.status == "lost"
    lab.run()
    assert sorted(lab.rows("a")) == ["a/6", "a/7", "a/8", "a/9"]


def test_an_import_takes_over_what_is_covered_and_no_files(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    there, state = moved(lab)
    with pytest.raises(ConfigurationError, match="names published files, and these can't be taken over"):
        there.admin.import_state(state, "moved")
    assert there.reopened().datasets() == ()
    there.admin.import_state(replace(state, units=()), "moved")
    assert there.reopened().state("a").coverage == lab.journal.state("a").coverage
    assert [*there.pipeline().unannounced()] == []
    there.admin.rewind("a", LongWatermark(4), "again")
    lab.admin.release_claim("a", "moved")
    before = set(lab.published())
    there.run()
    assert sorted(there.rows("a")) == [f"a/{n}" for n in range(4, 10)]
    assert before <= set(lab.published())
    assert lab.rows("a") == A.all_rows()
