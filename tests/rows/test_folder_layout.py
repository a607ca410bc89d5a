"""A dataset whose units are published as folders, from its first run to its last file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gobblin.admin import views
from airflow_gobblin.admin.export import export
from airflow_gobblin.admin.views import FileState
from airflow_gobblin.errors import StepConflictError
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.steps.publishing import FolderStep, MoveStep
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.workspace.manifests import manifest_path
from tests.lab import Lab, published_paths
from tests.protocol.rows import LineSink, Table

ROWS = Table("a", ExtractKind.APPEND_ONLY, 9)
"""Units of 4, 4 and 1 rows, and so of as many files."""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path, ROWS)
    made.ingestion = replace(made.ingestion, sink=LineSink(str(tmp_path), layout=Layout.FOLDER_PER_UNIT))
    return made


def folders(lab: Lab) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in (lab.folder / dataset_key("a")).iterdir() if path.is_dir())


def decided(lab: Lab) -> tuple[Slot, FolderStep]:
    """The slot that was decided, and its first step."""
    (slot,) = lab.journal.history("a").slots
    first, *_ = lab.journal.steps(slot.decision)
    assert isinstance(first, FolderStep)
    return slot, first


def test_a_unit_is_one_step_and_its_files_are_in_its_folder(lab: Lab) -> None:
    assert lab.run()["a"].status == "committed"
    assert lab.rows("a") == ROWS.all_rows()
    assert folders(lab) == ["u0", "u1", "u2"]
    (slot,) = lab.journal.history("a").slots
    steps = [*lab.journal.steps(slot.decision)]
    assert [type(step) for step in steps] == [FolderStep, FolderStep, MoveStep], "a single file needs no folder moved"
    assert lab.run(replace(ROWS, rows=12))["a"].status == "committed"
    assert lab.rows("a") == replace(ROWS, rows=12).all_rows()


def test_whoever_lists_files_sees_the_single_ones(lab: Lab) -> None:
    lab.run()
    files, urn = LocalFiles(lab.folder), dataset_key("a")
    there = sorted(files.walk(urn))
    assert len(there) == 9
    history = lab.journal.history("a")
    assert sorted(file.path for _, file in lab.journal.files(history, history.state.live)) == there
    checked = [*views.verify(lab.journal, files, "a")]
    assert sorted(check.path for check in checked) == there
    assert {check.state for check in checked} == {FileState.OK}
    assert sorted(file.path for unit in export(lab.journal, history).units for file in unit.files) == there
    manifest = json.loads((lab.folder / manifest_path(lab.journal, "a", 1)).read_bytes())
    assert sorted(file["path"] for file in manifest["added"]) == there
    assert [*views.audit(lab.journal, files, "a")] == []
    (lab.folder / there[4]).write_text("changed")
    assert [c.path for c in views.verify(lab.journal, files, "a") if c.state is FileState.CHANGED] == [there[4]]


def test_retired_units_go_with_their_folders_and_what_is_somebody_elses_stays(lab: Lab) -> None:
    lab.run()
    mine = next((lab.folder / dataset_key("a")).glob("*-u1")) / "mine.txt"
    mine.write_text("somebody else's")
    lab.admin.rewind("a", LongWatermark(4), "wrong rows")
    assert lab.run(replace(ROWS, rows=10))["a"].status == "committed"
    assert lab.journal.history("a").slots[1].decision.action is Action.REWIND
    lab.run(replace(ROWS, rows=11))
    assert lab.rows("a") == replace(ROWS, rows=11).all_rows()
    of_first = [*(lab.folder / dataset_key("a")).glob(f"{lab.journal.history('a').slots[0].decision.token}-*")]
    assert sorted(path.name.partition("-")[2] for path in of_first) == ["u0", "u1"], "u2 was empty"
    assert [path.name for path in mine.parent.iterdir()] == ["mine.txt"]


def test_an_abandoned_slot_leaves_nothing(lab: Lab) -> None:
    opened, _ = lab.decide()
    slot, first = decided(lab)
    opened.committer._carry_out(slot.decision, first)
    assert len(lab.published()) == 4
    lab.admin.abandon("a", "not wanted")
    lab.run()
    assert lab.rows("a") == ROWS.all_rows()
    assert folders(lab) == ["u0", "u1", "u2"]
    assert len(lab.published()) == 9


def test_an_executor_that_died_between_two_folders_is_finished_by_the_next_run(lab: Lab) -> None:
    opened, _ = lab.decide()
    slot, first = decided(lab)
    opened.committer._carry_out(slot.decision, first)
    assert published_paths(lab.journal, "a") == [], "a reader of the journal sees nothing of it"
    assert lab.run()["a"].status == "idle"
    assert lab.rows("a") == ROWS.all_rows()


def test_a_folder_in_the_way_is_named_and_stays(lab: Lab) -> None:
    opened, plan = lab.decide()
    slot, first = decided(lab)
    blocker = lab.folder / first.target / "0.txt"
    blocker.parent.mkdir(parents=True)
    blocker.write_text("somebody else's")
    with pytest.raises(StepConflictError, match=f"folder '{first.target}' of dataset 'a': something else is there"):
        opened.committer.execute(slot, "run")
    assert blocker.read_text() == "somebody else's"
    blocker.parent.rename(lab.folder / "elsewhere")
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    assert lab.rows("a") == ROWS.all_rows()


def test_what_lies_among_staged_files_is_not_published_with_them(lab: Lab) -> None:
    """Put there after the decision; before it, the files are published one by one."""
    opened, _ = lab.decide()
    slot, first = decided(lab)
    stray = lab.folder / first.source / "stray.txt"
    stray.write_text("somebody else's")
    with pytest.raises(StepConflictError, match=f"is among its files in its staged folder '{first.source}'"):
        opened.committer.execute(slot, "run")
    assert not (lab.folder / first.target).exists()
    stray.unlink()
    assert lab.run()["a"].status == "idle"
    assert lab.rows("a") == ROWS.all_rows()
