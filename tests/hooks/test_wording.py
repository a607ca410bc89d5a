"""Advice on what to do again, in Airflow's words and in plain ones."""

from __future__ import annotations

import re

import pytest

from airflow_gobblin.errors import GobblinError, Remedy, StepError
from airflow_gobblin.hooks.wording import worded, worded_error, worded_failure
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.status import Status
from airflow_gobblin.run.reports import DatasetReport
from tests.test_import_direction import AIRFLOW_SIDE, FLOOR, room_of
from tests.test_import_direction import modules as package_modules

TASKS = {
    Remedy.PLAN: "create_work_units",
    Remedy.EXTRACT: "extract",
    Remedy.WRITE_STEPS: "write_commit_steps",
    Remedy.CARRY_OUT: "execute_commit_steps",
    Remedy.REPEAT: "the task",
}
CORE = sorted(FLOOR.keys() - {*AIRFLOW_SIDE, "get_provider_info"})
CLEARING = re.compile(r"\bclear (the|it|extract|create_work|write_commit|execute_commit|verify_recover)", re.IGNORECASE)


def error(remedy: Remedy) -> StepError:
    return StepError(operation="read", subject="it", cause="it broke", hint="Nothing is lost", remedy=remedy)


@pytest.mark.parametrize("remedy", Remedy)
def test_each_remedy_names_its_task_in_airflow_and_none_elsewhere(remedy: Remedy) -> None:
    plain, reworded = str(error(remedy)), str(worded_error(error(remedy)))
    assert plain.startswith("can't read it: it broke. Nothing is lost. ")
    assert reworded.startswith("can't read it: it broke. Nothing is lost. ")
    assert TASKS[remedy] in reworded
    assert "clear" in reworded.lower()
    assert not CLEARING.search(plain)
    report = worded(DatasetReport("a", Status.FAILED, "it broke.", remedy=remedy))
    assert (report.detail, report.remedy) == (f"it broke. {reworded.partition('lost. ')[2]}", None)
    assert worded_failure(Failure.of(error(remedy))) == f"StepError: {reworded}"


def test_an_error_without_a_remedy_stays_as_it_is() -> None:
    plain = GobblinError(operation="read", subject="it", cause="it broke")
    assert worded_error(plain) is plain
    assert worded(DatasetReport("a", Status.LOST, "it broke.")).detail == "it broke."


def test_a_worded_error_keeps_its_class_its_notes_and_where_it_was_raised() -> None:
    with pytest.raises(StepError) as caught:
        raise error(Remedy.REPEAT)
    caught.value.add_note("Before that, one was done.")
    reworded = worded_error(caught.value)
    assert type(reworded) is StepError
    assert reworded.with_notes.endswith("Before that, one was done.")
    assert reworded.__traceback__ is caught.value.__traceback__
    assert caught.value.remedy is Remedy.REPEAT


@pytest.mark.parametrize("room", CORE)
def test_the_core_names_no_task_to_clear(room: str) -> None:
    modules = [module for module in package_modules() if room_of(module) == room]
    assert modules
    named = [str(module) for module in modules if CLEARING.search(module.read_text())]
    assert not named
