"""What runs say of datasets that were not published: one cause, the true one, once; and what to do now."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.extraction import extract_unit
from airflow_gobblin.pipeline import Pipeline, RunRequest
from airflow_gobblin.plan import RunPlan
from airflow_gobblin.policy import CommitPolicy
from airflow_gobblin.reporting import incomplete
from airflow_gobblin.watermark import LongWatermark
from airflow_gobblin.work import ExtractKind
from tests.lab import Lab, stick
from tests.protocol.rows import NoConnections, Table

A = Table("a", ExtractKind.APPEND_ONLY, 10)
Run = tuple[Pipeline, RunPlan]


def told(run: Run) -> list[str]:
    """What is said of the dataset by `write_commit_steps`, `execute_commit_steps`, `finish`, and its error."""
    pipeline, plan = run
    (pack,) = plan.packs
    written, executed = pipeline.write_commit_steps(plan, pack), pipeline.execute_commit_steps(plan, pack)
    finished = pipeline.finish(plan)
    return [*(r.detail for r in (*written, *executed, *finished)), str(incomplete(pipeline.ingestion, finished))]


def only(lab: Lab, *units: str, **broken: tuple[str, ...]) -> Run:
    """A run of whose units only some were extracted."""
    pipeline = lab.pipeline(**broken)
    plan = pipeline.create_work_units(RunRequest("only"))
    for found, unit in pipeline.missing_units(plan.packs[0]):
        if unit.id in units:
            folder, job = pipeline.staging.token_folder(found.token), pipeline.staging.job(plan.run)
            result = extract_unit(job, found, unit, "x", pipeline.files, folder, NoConnections())
            pipeline.staging.put_result(found.token, result)
    return pipeline, plan


def test_a_unit_that_failed_is_the_cause_and_not_one_that_had_no_turn(tmp_path: Path) -> None:
    cause = "SourceError: can't read unit 'u1' of 'a': the line is dead"
    written, executed, finished, error = told(only(Lab(tmp_path, A), "u1", units=("a:u1",)))
    assert written == f"nothing of its 3 units is published: {cause}"
    assert executed == "nothing is decided for it in this run"
    assert finished.startswith(f"{written}. See the log of its extract")
    assert "no result" not in error
    assert error.count("the line is dead") == 1


def test_of_units_that_had_no_turn_that_is_the_cause(tmp_path: Path) -> None:
    written, _, finished, _ = told(only(Lab(tmp_path, A), "u1"))
    assert written == "nothing of its 3 units is published: it has no result: its extract did not finish"
    assert finished.startswith(f"{written}. See")


def test_of_a_part_the_units_cause_is_told(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, policy=CommitPolicy.SUCCESSFUL)
    *_, finished, _ = told(only(lab, "u1", "u2", units=("a:u1",)))
    assert finished.endswith("not published: 2 of 3 units: SourceError: can't read unit 'u1' of 'a': the line is dead")


@pytest.mark.parametrize("begin", [Lab.extracted, Lab.decide])
def test_an_abandoned_plan_tells_who_did_it_why_and_what_now(tmp_path: Path, begin: Callable[[Lab], Run]) -> None:
    lab = Lab(tmp_path, A)
    run = begin(lab)
    lab.admin.abandon("a", "the rows are wrong.")
    for text in told(run):
        assert "slot 1 was abandoned by ann: the rows are wrong. Clear create_work_units" in text
        assert ".." not in text


def test_the_cause_of_a_lost_plan_is_the_slot_that_beat_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    run = lab.extracted(replace(A, rows=12))
    lab.admin.set_watermark("a", LongWatermark(3), "not wanted.")
    pipeline, later = lab.extracted(replace(A, rows=14))
    pipeline.write_commit_steps(later, later.packs[0])
    pipeline.execute_commit_steps(later, later.packs[0])
    written, _, finished, _ = told(run)
    assert "slot 1 (set by ann: not wanted) raised the generation to 1" in written
    assert finished == written


def test_a_swept_plan_tells_what_came_since(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    run = lab.extracted()
    lab.run()
    lab.admin.rewind("a", LongWatermark(4), "wrong amounts.")
    written, _, finished, _ = told(run)
    assert "was swept: the newest slot is slot 2 (rewind by ann: wrong amounts)" in written
    assert finished == written


def test_an_unfinished_slot_tells_why_at_the_end_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    pipeline, plan = lab.decide()
    (pending,) = lab.journal.history("a").slots
    for step in [*lab.journal.steps(pending.decision)][:-1]:
        pipeline.files.unlink(step.source)  # type: ignore[union-attr]
    _, executed, finished, error = told((pipeline, plan))
    assert "neither it nor its staged file" in executed
    assert executed.rstrip(".") in finished
    assert finished.endswith("Clear execute_commit_steps")
    assert error.count("neither it nor its staged file") == 1


def test_a_sentence_ends_with_one_full_stop(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    stick(lab, A)
    pipeline = lab.pipeline()
    plan = pipeline.create_work_units(RunRequest("next"))
    text = str(incomplete(pipeline.ingestion, pipeline.finish(plan)))
    assert "neither it nor its staged file" in text
    assert not re.search(r"\.[.)]|\)\.\.", text)
    assert str(GobblinError(operation="do", subject="it", cause="no.", hint="Go.")) == "can't do it: no. Go."
