"""The contract of works: a work's job publishes everything once, whatever happens to its attempts."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import NeverPublishedError
from airflow_gobblin.job import Attempt, Job
from airflow_gobblin.model import wire
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.work import UnitResult, UnitState, WorkUnit
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from airflow_gobblin.testing.failing_files import FailingFiles
from airflow_gobblin.testing.sinks import visible

__all__ = ["WorkContract"]

Act = Callable[[OpenJob, RunPlan, Connections], None]
"""An act in a run between its plan and `finish`."""


class WorkContract:
    """The suite of works that publish files. Override the fixtures `make_job` and `grow`, `connections` if it needs any, and
    `read` if two attempts may write the same thing as different bytes.
    """

    @pytest.fixture
    def make_job(self) -> Callable[[str], Job]:
        """Return a function that returns the job with a target root, otherwise always with the same work."""
        raise NotImplementedError("override the fixture `make_job`")

    @pytest.fixture
    def grow(self) -> Callable[[], None]:
        """Return a function that, each time it is called, adds to or changes what each of the job's datasets is made from."""
        raise NotImplementedError("override the fixture `grow`")

    @pytest.fixture
    def connections(self) -> Connections:
        """Return the connections of the job."""
        return NoConnections()

    @pytest.fixture
    def read(self) -> Callable[[bytes], Sequence[object]]:
        """Return a function that returns what a published file holds, from its content: by default, its content."""
        return lambda content: [content]

    @pytest.fixture
    def new_trial(
        self,
        make_job: Callable[[str], Job],
        connections: Connections,
        read: Callable[[bytes], Sequence[object]],
        tmp_path: Path,
    ) -> Callable[[], Trial]:
        """Return a function that opens the job with a target and a journal of its own each time."""
        return lambda: Trial(make_job(f"{tmp_path}/target-{uuid.uuid4().hex}"), connections, read)

    @pytest.fixture
    def trial(self, new_trial: Callable[[], Trial]) -> Trial:
        """Open the job."""
        return new_trial()

    # its record, datasets and plans

    def test_it_crosses_processes_without_a_secret(self, trial: Trial) -> None:
        work = trial.opened.job.work
        record = wire.dumps(work)
        assert wire.loads(record, type(work), "the work") == work
        for conn_id in work.connection_ids:
            assert trial.connections.uri(conn_id).encode() not in record

    def test_datasets_are_named_once_and_in_a_stable_order(self, trial: Trial) -> None:
        work = trial.opened.job.work
        datasets = [(dataset.urn, dataset.origin, dataset.holds) for dataset in work.datasets(trial.connections)]
        assert datasets, "the fixture `make_job` should have datasets"
        assert len({urn for urn, *_ in datasets}) == len(datasets)
        assert [(d.urn, d.origin, d.holds) for d in work.datasets(trial.connections)] == datasets

    def test_a_plan_publishes_nothing_and_is_the_same_each_time(self, trial: Trial) -> None:
        plans = [[units for _, units in trial.units(trial.plan())] for _ in range(2)]
        assert plans[0] == plans[1]
        assert any(plans[0]), "the fixture `make_job` should have something to publish"
        assert visible(trial.opened.files) == []

    # running units

    def test_a_unit_is_run_into_staged_files_of_its_own_attempt(self, trial: Trial) -> None:
        plan = trial.plan()
        first, second = ([*inprocess.run_units(trial.opened, plan, trial.connections)] for _ in range(2))
        assert visible(trial.opened.files) == []
        assert {result.state for _, result in first + second} == {UnitState.SUCCESSFUL}, first
        assert len({result.attempt for _, result in first + second}) == 2
        assert all(trial.opened.staging.intact(result) for _, result in first + second), "neither wrote over the other"

    def test_a_unit_that_fails_has_a_result_and_leaves_nothing(self, trial: Trial, tmp_path: Path) -> None:
        """Let the disk be full at each of the calls that it makes, in turn."""
        for plan, units in trial.units(trial.plan()):
            for unit in units[:1]:
                healthy = FailingFiles(tmp_path / "healthy", at=-1)
                trial.run_unit(unit, plan, healthy)
                for at, call in enumerate(healthy.calls):
                    files = FailingFiles(tmp_path / f"{uuid.uuid4().hex}", at)
                    result = trial.run_unit(unit, plan, files)
                    assert (result.state, result.files) == (UnitState.FAILED, ()), call
                    assert result.failure is not None, "with the first error"
                    assert [*files.walk(".")] == [], call

    def test_steps_are_the_same_each_time_and_naming_them_publishes_nothing(self, trial: Trial) -> None:
        run = trial.plan()
        results: defaultdict[str, list[UnitResult]] = defaultdict(list)
        for token, result in inprocess.run_units(trial.opened, run, trial.connections):
            results[token].append(result)
        for plan, units in trial.units(run):
            published = [*zip(units, results[plan.token], strict=True)]
            one, other = ([*trial.publish(plan, published)] for _ in range(2))
            assert one == other
            assert [wire.loads(wire.dumps(step), type(step), "a step") for step in one] == one
        assert visible(trial.opened.files) == []

    # runs, each compared with one that nothing happens to

    @pytest.mark.parametrize("disturbance", ["killed", "two attempts", "doubled", "cleared", "recovered"])
    def test_a_disturbed_run_publishes_what_an_undisturbed_one_does(
        self, new_trial: Callable[[], Trial], grow: Callable[[], None], disturbance: str
    ) -> None:
        calm, disturbed = new_trial(), new_trial()
        for _ in range(2):
            calm.run(inprocess.publish)
            disturbed.run(DISTURBANCES[disturbance])
            assert disturbed.published() == calm.published()
            assert calm.published(), "the fixture `make_job` should have something to publish"
            grow()

    def test_the_same_request_again_publishes_nothing_more(self, trial: Trial) -> None:
        request = RunRequest("once")
        inprocess.run(trial.opened, trial.connections, request)
        before = trial.published()
        reports = inprocess.run(trial.opened, trial.connections, request)
        assert [report for report in reports.values() if not report.ok] == []
        assert trial.published() == before


def killed(opened: OpenJob, plan: RunPlan, connections: Connections) -> None:
    """Let an attempt die after its first unit, whose result nobody accepts, and the next one run all units."""
    for _ in inprocess.run_units(opened, plan, connections):
        break
    inprocess.publish(opened, plan, connections)


def two_attempts(opened: OpenJob, plan: RunPlan, connections: Connections) -> None:
    """Let two attempts run all units, and take turns at being first."""
    attempts = [[*inprocess.run_units(opened, plan, connections)] for _ in range(2)]
    for number, results in enumerate(zip(*attempts, strict=True)):
        for token, result in results if number % 2 else reversed(results):
            opened.staging.put_result(token, result)
    _decide_and_execute(opened, plan)


def doubled(opened: OpenJob, plan: RunPlan, connections: Connections) -> None:
    """Let each result come twice."""
    for token, result in inprocess.run_units(opened, plan, connections):
        assert opened.staging.put_result(token, result) == opened.staging.put_result(token, result)
    _decide_and_execute(opened, plan)


def cleared(opened: OpenJob, plan: RunPlan, connections: Connections) -> None:
    """Carry out each task twice."""
    for _ in range(2):
        inprocess.extract(opened, plan, connections)
    for pack in plan.packs:
        for task in (write_commit_steps, write_commit_steps, execute_commit_steps, execute_commit_steps):
            task(opened, plan, pack)


def recovered(opened: OpenJob, plan: RunPlan, connections: Connections) -> None:
    """Let the run die once it has decided, and a later one finish it."""
    inprocess.extract(opened, plan, connections)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
    inprocess.run(opened, connections, RunRequest("recovery"))


DISTURBANCES: dict[str, Act] = {
    "killed": killed,
    "two attempts": two_attempts,
    "doubled": doubled,
    "cleared": cleared,
    "recovered": recovered,
}


def _decide_and_execute(opened: OpenJob, plan: RunPlan) -> None:
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)


class Trial:
    """A job with a target and a journal of its own.

    :param read: what a published file holds.
    """

    def __init__(self, job: Job, connections: Connections, read: Callable[[bytes], Sequence[object]]) -> None:
        self.opened = inprocess.open_job(job, connections)
        self.connections = connections
        self._read = read

    def plan(self) -> RunPlan:
        """Plan a run."""
        return create_work_units(self.opened, RunRequest(uuid.uuid4().hex))

    def units(self, plan: RunPlan) -> Iterator[tuple[Plan, list[WorkUnit]]]:
        """Yield the plan of each dataset of a run, with its units."""
        for pack in plan.packs:
            for ref in pack.datasets:
                found = self.opened.staging.plan(ref.token)
                assert found is not None
                yield found, [*self.opened.staging.units(found)]

    def run_unit(self, unit: WorkUnit, plan: Plan, files: FailingFiles) -> UnitResult:
        """Run a unit on other files than the target's."""
        work = self.opened.job.work
        with work.hold(self.connections) as held:
            folder = self.opened.staging.token_folder(plan.token)
            return work.run(unit, plan, Attempt("a0", files, folder, self.connections, held.of(plan)))

    def publish(self, plan: Plan, published: Sequence[tuple[WorkUnit, UnitResult]]) -> Iterator[object]:
        """Yield the steps that publish the results of units."""
        staging = self.opened.staging.token_folder(plan.token)
        yield from self.opened.job.work.publish(plan, published, self.opened.files, staging)

    def run(self, act: Act) -> None:
        """Carry out a run to which something happens.

        :raises AssertionError: it doesn't end well.
        """
        plan = self.plan()
        act(self.opened, plan, self.connections)
        assert [report for report in finish(self.opened, plan) if not report.ok] == []

    def published(self) -> dict[str, Counter[str]]:
        """Return what the published files of each dataset hold, as a reader of the journal sees them; of a dataset whose files
        the journal doesn't know, all that can be seen in the target, by its path.
        """
        found = {}
        datasets = [*self.opened.job.work.datasets(self.connections)]
        for dataset in datasets:
            if not dataset.holds.keeps_units:
                continue
            try:
                paths = self.opened.journal.read_dataset(dataset.urn).paths
            except NeverPublishedError:
                continue
            root = f"{self.opened.files.root}/"
            found[dataset.urn] = Counter(part for path in paths for part in self._parts(path.removeprefix(root)))
        if not all(dataset.holds.keeps_units for dataset in datasets):
            found["the target"] = Counter(
                f"{path}: {part}" for path in visible(self.opened.files) for part in self._parts(path)
            )
        return found

    def _parts(self, path: str) -> Iterator[str]:
        return map(repr, self._read(self.opened.files.read(path)))
