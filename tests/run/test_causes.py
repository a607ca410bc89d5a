"""The reports of runs on datasets that were not published: one cause, the true one, once; and what to do now."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.hooks.wording import worded
from airflow_gobblin.job import Attempt
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind, UnitResult
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import incomplete
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files import Files
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.workspace.claims import Claims
from tests.lab import Lab, stick
from tests.protocol.rows import LineSink, Table

A = Table("a", ExtractKind.APPEND_ONLY, 10)
Run = tuple[OpenJob, RunPlan]


def reported(run: Run) -> list[str]:
    """The reports on the dataset, in Airflow, by `write_commit_steps`, `execute_commit_steps`, `finish`, and its error."""
    opened, plan = run
    (pack,) = plan.packs
    written, executed = write_commit_steps(opened, plan, pack), execute_commit_steps(opened, plan, pack)
    written, executed, finished = (tuple(map(worded, some)) for some in (written, executed, finish(opened, plan)))
    return [*(r.detail for r in (*written, *executed, *finished)), str(incomplete(opened.job, finished))]


def only(lab: Lab, *units: str, **broken: tuple[str, ...]) -> Run:
    """A run of whose units only some were extracted."""
    opened = lab.opened(**broken)
    plan = create_work_units(opened, RunRequest("only"))
    for found, unit in missing_units(opened, plan.packs[0]):
        if unit.id in units:
            folder, job = opened.staging.token_folder(found.token), opened.staging.work(plan.run)
            result = job.run(unit, found, Attempt("x", opened.files, folder, NoConnections()))
            opened.staging.put_result(found.token, result)
    return opened, plan


def test_a_unit_that_failed_is_the_cause_and_not_one_that_had_no_turn(tmp_path: Path) -> None:
    cause = "SourceError: can't read unit 'u1' of 'a': the line is dead"
    written, executed, finished, error = reported(only(Lab(tmp_path, A), "u1", units=("a:u1",)))
    assert written.startswith(f"nothing of its 3 units is published: {cause}. See the log of its extract")
    assert executed == "nothing is decided for it in this run"
    assert finished == written
    assert "no result" not in error
    assert error.count("the line is dead") == 1


def test_of_units_that_had_no_turn_that_is_the_cause(tmp_path: Path) -> None:
    written, _, finished, _ = reported(only(Lab(tmp_path, A), "u1"))
    assert written.startswith(
        "nothing of its 3 units is published: it has no result: it was not extracted to its end. See the log"
    )
    assert finished == written


@record("test.mute_sink")
@dataclass(frozen=True)
class MuteSink(LineSink):
    """Can publish nothing."""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        raise ValueError("I have no steps")


def _mute(lab: Lab) -> None:
    sink = lab.ingestion.sink
    lab.ingestion = replace(lab.ingestion, sink=MuteSink(sink.target))


def _linked(lab: Lab) -> None:
    folder, elsewhere = lab.folder / "a", lab.folder.parent / "elsewhere"
    if folder.exists():
        folder.rename(elsewhere)
    else:
        elsewhere.mkdir()
    folder.symlink_to(elsewhere)


def _claimed(lab: Lab) -> None:
    lab.admin.release_claim("a", "it is another's now.")
    files = lab.opened().files
    Claims(files).check(Journal.create(MemoryStore(), "other"), "a", "a")


@pytest.mark.parametrize("published", [False, True], ids=["never published", "published before"])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [(_mute, "I have no steps"), (_linked, "is a link"), (_claimed, "belongs to dataset 'a' of ingestion 'other'")],
)
def test_that_the_steps_could_not_be_written_is_the_cause_at_the_end_too(
    tmp_path: Path, fault: Callable[[Lab], None], cause: str, published: bool
) -> None:
    """Though every unit has its result."""
    lab = Lab(tmp_path / "lake", A)
    if published:
        lab.run()
    _, plan = lab.extracted(replace(A, rows=14))
    fault(lab)
    written, executed, finished, error = reported((lab.opened(), plan))
    assert cause in written
    assert executed == "nothing is decided for it in this run"
    assert finished.endswith(". Once that is fixed, clear write_commit_steps with its downstream tasks.")
    assert written.startswith(finished.partition(". Once that is fixed")[0])
    assert "extract" not in finished
    assert error.count(cause) == 1


def test_the_newest_try_to_write_the_steps_is_reported(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    _, plan = lab.extracted()
    sink = lab.ingestion.sink
    _mute(lab)
    assert "I have no steps" in reported((lab.opened(), plan))[2]
    lab.ingestion = replace(lab.ingestion, sink=sink)
    _linked(lab)
    for _ in range(2):
        finished = reported((lab.opened(), plan))[2]
        assert "is a link" in finished
        assert "I have no steps" not in finished
    (lab.folder / "a").unlink()
    assert reported((lab.opened(), plan))[2] == "slot 1"


def test_that_the_steps_were_never_written_is_reported_and_not_that_the_extract_did_not_finish(tmp_path: Path) -> None:
    opened, plan = Lab(tmp_path, A).extracted()
    (report,) = finish(opened, plan)
    assert report.status == "failed"
    assert worded(report).detail == (
        "its 3 units have results, and its commit steps were not written. "
        "Once that is fixed, clear write_commit_steps with its downstream tasks."
    )


def test_of_a_part_the_units_cause_is_reported(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, policy=CommitPolicy.SUCCESSFUL)
    *_, finished, _ = reported(only(lab, "u1", "u2", units=("a:u1",)))
    assert finished.endswith("not published: 2 of 3 units: SourceError: can't read unit 'u1' of 'a': the line is dead")


@pytest.mark.parametrize("begin", [Lab.extracted, Lab.decide])
def test_an_abandoned_plan_shows_who_did_it_why_and_what_now(tmp_path: Path, begin: Callable[[Lab], Run]) -> None:
    lab = Lab(tmp_path, A)
    run = begin(lab)
    lab.admin.abandon("a", "the rows are wrong.")
    for text in reported(run):
        assert "slot 1 was abandoned by ann: the rows are wrong. Clear create_work_units" in text
        assert ".." not in text


def test_the_cause_of_a_lost_plan_is_the_slot_that_beat_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    run = lab.extracted(replace(A, rows=12))
    lab.admin.set_watermark("a", LongWatermark(3), "not wanted.")
    opened, later = lab.extracted(replace(A, rows=14))
    write_commit_steps(opened, later, later.packs[0])
    execute_commit_steps(opened, later, later.packs[0])
    written, _, finished, _ = reported(run)
    assert "slot 1 (set by ann: not wanted) raised the generation to 1" in written
    assert finished == written


def test_a_swept_plan_shows_what_came_since(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    run = lab.extracted()
    lab.run()
    lab.admin.rewind("a", LongWatermark(4), "wrong amounts.")
    written, _, finished, _ = reported(run)
    assert "was swept: the newest slot is slot 2 (rewind by ann: wrong amounts)" in written
    assert finished == written


def test_an_unfinished_slot_shows_why_at_the_end_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    (pending,) = lab.journal.history("a").slots
    for step in lab.journal.steps(pending.decision):
        opened.files.unlink(step.source)  # type: ignore[attr-defined]
    _, executed, finished, error = reported((opened, plan))
    assert "neither it nor its staged file" in executed
    assert executed.partition(". Once")[0].rstrip(".") in finished
    assert finished.endswith("Once that is fixed, clear execute_commit_steps.")
    assert error.count("neither it nor its staged file") == 1


def test_a_sentence_ends_with_one_full_stop(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    stick(lab, A)
    opened = lab.opened()
    plan = create_work_units(opened, RunRequest("next"))
    text = str(incomplete(opened.job, finish(opened, plan)))
    assert "neither it nor its staged file" in text
    assert not re.search(r"\.[.)]|\)\.\.", text)
    assert str(GobblinError(operation="do", subject="it", cause="no.", hint="Go.")) == "can't do it: no. Go."
