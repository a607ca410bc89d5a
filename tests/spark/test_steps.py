"""Long commit sequences, written and carried out on Spark: the same sequence, the same files, without the journal there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_gobblin.commit import remote
from airflow_gobblin.errors import StepLostError
from airflow_gobblin.hooks.steps import StepsOnSpark
from airflow_gobblin.model.work import UnitResult, WorkUnit
from airflow_gobblin.operators import GobblinIngestion, SparkOptions
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import Phase, StepContext
from tests.services.spark_connect import SparkConnect
from tests.spark.acme_rows import RowsSource, SealedParquet
from tests.spark.runs import PlannedRun, extract_here, planned_run

URN = "acme.rows0"
UNITS, ROWS = 10, 20


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch, spark_connect: SparkConnect) -> None:
    monkeypatch.setattr(remote, "FILES_PER_PIECE", 4)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_WARM", spark_connect.connection)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", '{"conn_type": "spark", "host": "local[2]"}')


@pytest.fixture
def extracted(tmp_path: Path) -> PlannedRun:
    """A run whose units all have results, and whose long sequences go to a warm Spark."""
    planned = planned_run(tmp_path, RowsSource(UNITS, rows=ROWS), squares=True)
    extract_here(planned)
    use(planned, "spark_warm")
    return planned


def use(planned: PlannedRun, conn_id: str, above: int = 5) -> None:
    options = SparkOptions(conn_id=conn_id).submit_arguments()
    planned.opened.committer.runner = StepsOnSpark(planned.opened, options, above)


def done(stage: Callable[..., tuple[DatasetReport, ...]], planned: PlannedRun) -> DatasetReport:
    (report,) = stage(planned.run, planned.run.packs[0])
    return report


def check_published(planned: PlannedRun) -> None:
    """Every row exists once; nothing is left of the work."""
    rows = planned.opened.journal.read_dataset(URN).to_arrow().to_table().to_pylist()
    assert Counter(row["id"] for row in rows) == Counter(range(UNITS * ROWS))
    folder = planned.folder / "target" / planned.opened.staging.token_folder(planned.plan.token)
    assert not [path for name in ("in", "out", "answers") for path in folder.rglob(name)]


def test_a_long_sequence_is_written_and_carried_out_there(
    extracted: PlannedRun, caplog: pytest.LogCaptureFixture
) -> None:
    opened = extracted.opened
    use(extracted, "spark_here")
    with caplog.at_level("INFO"):
        assert done(partial(write_commit_steps, opened), extracted).status == "pending"
        decision = opened.journal.history(URN).slots[-1].decision
        assert (decision.steps, len(decision.shards)) == (UNITS + 1, 3)
        steps = list(opened.journal.steps(decision))
        assert steps == list(
            opened.job.work.publish(
                extracted.plan, _published(extracted), opened.files, opened.staging.token_folder(extracted.plan.token)
            )
        )
        use(extracted, "spark_warm")
        assert done(partial(execute_commit_steps, opened), extracted).status == "committed"
    for text in (
        "are written on Spark, in 3 pieces",
        "are carried out on Spark, in 3 pieces",
        "11 steps: 0 done before, 10 done on Spark",
    ):
        assert text in caplog.text
    check_published(extracted)


def test_a_phase_is_whole_there_before_the_next_and_its_steps_have_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each seal looks for all files, of which other tasks publish some; the sink names the seals first."""
    uri = "postgres://ann:hunter2@shop/acme"
    monkeypatch.setenv("AIRFLOW_CONN_ACME_DB", uri)
    sink = SealedParquet(f"{tmp_path}/target", expected=UNITS, conn_id="acme_db")
    planned = planned_run(tmp_path, RowsSource(UNITS, rows=ROWS, conn_id="acme_db"), uris={"acme_db": uri}, sink=sink)
    extract_here(planned)
    use(planned, "spark_warm")
    opened = planned.opened
    assert done(partial(write_commit_steps, opened), planned).status == "pending"
    decision = opened.journal.history(URN).slots[-1].decision
    assert [(shard.phase, shard.steps) for shard in decision.shards] == [
        *((Phase.PUBLISH, steps) for steps in (4, 4, 2)),
        *((Phase.SETTLE, steps) for steps in (4, 4, 2)),
    ]
    target = tmp_path / "target" / planned.plan.folder
    (first, *_) = (file for step in opened.journal.steps(decision) for file in step.files())
    blocker = tmp_path / "target" / first.path
    blocker.parent.mkdir(parents=True)
    blocker.write_bytes(b"somebody else's")
    assert done(partial(execute_commit_steps, opened), planned).status == "failed"
    assert not [*target.glob("*.seal")], "the next phase doesn't begin"
    blocker.unlink()
    assert done(partial(execute_commit_steps, opened), planned).status == "committed"
    assert [seal.read_text() for seal in target.glob("*.seal")] == ["shop/acme"] * UNITS
    check_published(planned)
    left = [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert not left, "a secret is in no record"


def _published(planned: PlannedRun) -> list[tuple[WorkUnit, UnitResult]]:
    return [(unit, planned.results[unit.id]) for unit in planned.plan.units]


def test_a_short_one_is_not(extracted: PlannedRun, caplog: pytest.LogCaptureFixture) -> None:
    use(extracted, "spark_warm", above=UNITS + 1)
    with caplog.at_level("INFO"):
        done(partial(write_commit_steps, extracted.opened), extracted)
        done(partial(execute_commit_steps, extracted.opened), extracted)
    assert "on Spark" not in caplog.text
    check_published(extracted)


def test_what_is_done_already_is_left_and_the_rest_is_recovered_there(
    extracted: PlannedRun, caplog: pytest.LogCaptureFixture
) -> None:
    opened = extracted.opened
    done(partial(write_commit_steps, opened), extracted)
    slot = opened.journal.history(URN).slots[-1]
    for step in list(opened.journal.steps(slot.decision))[:3]:
        step.execute(StepContext(opened.files))
    with caplog.at_level("INFO"):
        (report,) = verify_recover(opened, RunRequest("next"))
    assert report.status == "recovered"
    assert "11 steps: 3 done before, 7 done on Spark" in caplog.text
    check_published(extracted)


def test_a_step_that_cannot_be_done_is_named_and_the_others_are_done(extracted: PlannedRun) -> None:
    opened = extracted.opened
    done(partial(write_commit_steps, opened), extracted)
    slot = opened.journal.history(URN).slots[-1]
    step = list(opened.journal.steps(slot.decision))[4]
    foreign = extracted.folder / "target" / step.target  # type: ignore[attr-defined]
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_bytes(b"somebody else's")
    report = done(partial(execute_commit_steps, opened), extracted)
    assert (report.status, report.retryable) == ("failed", False)
    assert f"file {step.target!r} of dataset {URN!r}: another file is there" in report.detail  # type: ignore[attr-defined]
    assert opened.journal.state(URN).pending
    assert len(list(foreign.parent.glob("*.parquet"))) >= 1 + 4  # the other pieces went on
    foreign.unlink()
    assert done(partial(execute_commit_steps, opened), extracted).status == "committed"
    check_published(extracted)


def test_files_that_are_gone_decide_nothing(extracted: PlannedRun) -> None:
    opened = extracted.opened
    runner = opened.committer.runner
    assert runner is not None
    (file,) = extracted.results["u7"].files
    published = _published(extracted)
    (extracted.folder / "target" / file.path).unlink()
    with pytest.raises(StepLostError, match=r"can't publish staged file .* of unit 'u7': it is gone"):
        list(runner.write(extracted.plan, published, opened.staging.token_folder(extracted.plan.token)))
    assert opened.journal.history(URN).slots == ()


def test_an_application_that_comes_to_nothing_leaves_the_slot_pending(
    extracted: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = extracted.opened
    done(partial(write_commit_steps, opened), extracted)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_BROKEN", '{"conn_type": "spark", "host": "local[nothing]"}')
    use(extracted, "spark_broken")
    report = done(partial(execute_commit_steps, opened), extracted)
    assert (report.status, report.retryable) == ("failed", True)
    assert "can't carry out the commit steps of dataset 'acme.rows0' on Spark: " in report.detail
    assert opened.journal.state(URN).pending


def test_a_target_that_goes_while_spark_starts_is_the_cause_and_no_failure_of_the_dataset(
    extracted: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, target = extracted.opened, extracted.folder / "target"
    done(partial(write_commit_steps, opened), extracted)
    submit, away = StepsOnSpark._submit, target.with_name("away")

    def unmounted(runner: StepsOnSpark) -> object:
        target.rename(away)
        target.mkdir()
        return submit(runner)

    with monkeypatch.context() as patched:
        patched.setattr(StepsOnSpark, "_submit", unmounted)
        report = done(partial(execute_commit_steps, opened), extracted)
    assert (report.status, report.retryable) == ("failed", True)
    assert "workers, driver and executors share" in report.detail
    assert [*target.iterdir()] == []
    assert opened.journal.history(URN).slots[-1].failures == ()
    target.rmdir()
    away.rename(target)
    assert done(partial(execute_commit_steps, opened), extracted).status == "committed"
    assert opened.journal.read_dataset(URN).rows == UNITS * ROWS
    finish(opened, extracted.run)
    assert opened.staging.tokens() == ()  # files that the work left where it couldn't remove them are swept


def test_every_task_of_a_group_knows_how_steps_go_to_spark(extracted: PlannedRun) -> None:
    options = SparkOptions(conn_id="spark_warm", steps_above=7, durable=True, executor_cores=2)
    with DAG("acme", schedule=None) as dag:
        GobblinIngestion(extracted.opened.job, spark=options)
    names = ("verify_recover", "create_work_units", "pack.write_commit_steps", "pack.execute_commit_steps")
    stages: list[Any] = [dag.get_task(f"acme.{name}") for name in names]
    assert [stage.spark for stage in stages] == [options] * 4
    runner = stages[0]._open_job().committer.runner
    assert runner.above == 7
    assert runner._options == {"conn_id": "spark_warm", "conf": {}, "executor_cores": 2}
