"""Works with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from airflow_gobblin.job import Attempt, Job, WorkPlan
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitResult, UnitState, WorkUnit
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.storage.files import Files, LocalFiles
from tests.run.test_other_work import Copying, WholeFilesWork
from tests.run.test_other_work import TestWholeFilesWork as WholeFilesSuite


class BrokenWork(WholeFilesSuite):
    broken: ClassVar[type[WholeFilesWork]]

    @pytest.fixture
    def make_job(self, folder: Any) -> Callable[[str], Job]:
        return lambda target: Copying(self.broken(str(folder), target))


class TestAWorkThatRaises(BrokenWork):
    caught_by = "test_a_unit_that_fails_has_a_result_and_leaves_nothing"

    @record("test.raising_work")
    @dataclass(frozen=True)
    class broken(WholeFilesWork):
        def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
            result = super().run(unit, plan, attempt)
            if result.failure is not None:
                raise OSError(result.failure.cause)
            return result


class TestAWorkThatLeavesWhatItWrote(BrokenWork):
    caught_by = "test_a_unit_that_fails_has_a_result_and_leaves_nothing"

    @record("test.leaving_work")
    @dataclass(frozen=True)
    class broken(WholeFilesWork):
        def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
            attempt.files.make_folder(attempt.folder)
            LocalFiles(attempt.files.root).create(f"{attempt.folder}/{secrets.token_hex(8)}").close()
            return super().run(unit, plan, attempt)


class TestAWorkWhoseAttemptsShareTheirFiles(BrokenWork):
    caught_by = "test_a_unit_is_run_into_staged_files_of_its_own_attempt"

    @record("test.sharing_work")
    @dataclass(frozen=True)
    class broken(WholeFilesWork):
        def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
            staged = f"{attempt.folder}/{unit.id}"
            attempt.files.remove_tree(attempt.folder)
            out = attempt.files.stage(staged, self._name(plan, unit.id))
            out.write(b"data")
            return UnitResult(unit.id, attempt.id, UnitState.SUCCESSFUL, unit.expected_high, (out.finish(0),))


class TestAWorkThatPublishesWhereItRuns(BrokenWork):
    caught_by = "test_a_unit_is_run_into_staged_files_of_its_own_attempt"

    @record("test.early_work")
    @dataclass(frozen=True)
    class broken(WholeFilesWork):
        def run(self, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
            result = super().run(unit, plan, attempt)
            attempt.files.make_folder(plan.folder)
            attempt.files.link(result.files[0].path, f"{plan.folder}/{secrets.token_hex(8)}")
            return result


class TestAWorkWhoseNamesAreRandom(BrokenWork):
    caught_by = "test_steps_are_the_same_each_time_and_naming_them_publishes_nothing"

    @record("test.random_work")
    @dataclass(frozen=True)
    class broken(WholeFilesWork):
        def publish(
            self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], files: Files, staging: str
        ) -> Iterator[CommitStep]:
            return super().publish(replace(plan, token=secrets.token_hex(16)), published, files, staging)


class TestAWorkWhoseNamesHaveNoToken(BrokenWork):
    """The second slot finds the files of the first."""

    caught_by = "test_a_disturbed_run_publishes_what_an_undisturbed_one_does"

    @record("test.tokenless_work")
    @dataclass(frozen=True)
    class broken(WholeFilesWork):
        def _name(self, plan: Plan, unit: str) -> str:
            return f"{plan.folder}/{unit}"


class TestAWorkThatPlansSomethingElseEachTime(BrokenWork):
    caught_by = "test_a_plan_publishes_nothing_and_is_the_same_each_time"

    @record("test.moody_work")
    @dataclass(frozen=True)
    class broken(WholeFilesWork):
        def plan(self, *arguments: Any) -> WorkPlan | None:
            found = super().plan(*arguments)
            if found is None:
                return None
            return replace(found, units=(replace(unit, id=f"u{secrets.token_hex(4)}") for unit in found.units))


class TestAWorkThatTellsItsSecret(BrokenWork):
    caught_by = "test_it_crosses_processes_without_a_secret"

    @record("test.telling_work")
    @dataclass(frozen=True)
    class broken(WholeFilesWork):
        connection_ids: tuple[str, ...] = ("db",)
        uri: str = "postgresql://user:password@host/db"

    @pytest.fixture
    def connections(self) -> Any:
        class Secret:
            def uri(self, conn_id: str) -> str:
                return "postgresql://user:password@host/db"

        return Secret()
