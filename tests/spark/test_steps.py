"""Long commit sequences, written and carried out on Spark: the same sequence, the same files, without the journal there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_gobblin import step_work
from airflow_gobblin.errors import StepLostError
from airflow_gobblin.hooks.steps import StepsOnSpark
from airflow_gobblin.operators import GobblinIngestion, SparkOptions
from airflow_gobblin.pipeline import RunRequest
from airflow_gobblin.reporting import DatasetReport
from airflow_gobblin.steps import HighWatermarkStep, StepContext
from airflow_gobblin.work import UnitResult
from tests.services.spark_connect import SparkConnect
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import PlannedRun, extract_here, planned_run

URN = "acme.rows0"
UNITS, ROWS = 10, 20


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch, spark_connect: SparkConnect) -> None:
    monkeypatch.setattr(step_work, "FILES_PER_PIECE", 4)
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
    planned.pipeline.committer.runner = StepsOnSpark(planned.pipeline, options, above)


def done(stage: Callable[..., tuple[DatasetReport, ...]], planned: PlannedRun) -> DatasetReport:
    (report,) = stage(planned.run, planned.run.packs[0])
    return report


def check_published(planned: PlannedRun) -> None:
    """Every row is there once; nothing is left of the work."""
    rows = planned.pipeline.journal.read_dataset(URN).to_arrow().to_table().to_pylist()
    assert Counter(row["id"] for row in rows) == Counter(range(UNITS * ROWS))
    folder = planned.folder / "target" / planned.pipeline.staging.token_folder(planned.plan.token)
    assert not [path for name in ("in", "out", "answers") for path in folder.rglob(name)]


def test_a_long_sequence_is_written_and_carried_out_there(
    extracted: PlannedRun, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = extracted.pipeline
    use(extracted, "spark_here")
    with caplog.at_level("INFO"):
        assert done(pipeline.write_commit_steps, extracted).status == "pending"
        decision = pipeline.journal.history(URN).slots[-1].decision
        assert (decision.steps, len(decision.shards)) == (UNITS + 1, 4)
        steps = list(pipeline.journal.steps(decision))
        assert steps[:-1] == list(pipeline.ingestion.sink.publish(extracted.plan, _results(extracted), pipeline.files))
        assert isinstance(steps[-1], HighWatermarkStep)
        use(extracted, "spark_warm")
        assert done(pipeline.execute_commit_steps, extracted).status == "committed"
    for said in (
        "are written on Spark, in 3 pieces",
        "are carried out on Spark, in 4 pieces",
        "of 11 steps: 0 were found done, 10 are done on Spark",
    ):
        assert said in caplog.text
    check_published(extracted)


def _results(planned: PlannedRun) -> list[UnitResult]:
    return [planned.results[unit.id] for unit in planned.plan.units]


def test_a_short_one_is_not(extracted: PlannedRun, caplog: pytest.LogCaptureFixture) -> None:
    use(extracted, "spark_warm", above=UNITS + 1)
    with caplog.at_level("INFO"):
        done(extracted.pipeline.write_commit_steps, extracted)
        done(extracted.pipeline.execute_commit_steps, extracted)
    assert "on Spark" not in caplog.text
    check_published(extracted)


def test_what_is_done_already_is_left_and_the_rest_is_recovered_there(
    extracted: PlannedRun, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = extracted.pipeline
    done(pipeline.write_commit_steps, extracted)
    slot = pipeline.journal.history(URN).slots[-1]
    for step in list(pipeline.journal.steps(slot.decision))[:3]:
        assert not isinstance(step, HighWatermarkStep)
        step.execute(StepContext(pipeline.files))
    with caplog.at_level("INFO"):
        (report,) = pipeline.verify_recover(RunRequest("next"))
    assert report.status == "recovered"
    assert "of 11 steps: 3 were found done, 7 are done on Spark" in caplog.text
    check_published(extracted)


def test_a_step_that_cannot_be_done_is_named_and_the_others_are_done(extracted: PlannedRun) -> None:
    pipeline = extracted.pipeline
    done(pipeline.write_commit_steps, extracted)
    slot = pipeline.journal.history(URN).slots[-1]
    step = list(pipeline.journal.steps(slot.decision))[4]
    assert not isinstance(step, HighWatermarkStep)
    foreign = extracted.folder / "target" / step.target  # type: ignore[attr-defined]
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_bytes(b"somebody else's")
    report = done(pipeline.execute_commit_steps, extracted)
    assert (report.status, report.retryable) == ("failed", False)
    assert f"file {step.target!r} of dataset {URN!r}: another file stands there" in report.detail  # type: ignore[attr-defined]
    assert pipeline.journal.state(URN).pending
    assert len(list(foreign.parent.glob("*.parquet"))) >= 1 + 4  # the other pieces went on
    foreign.unlink()
    assert done(pipeline.execute_commit_steps, extracted).status == "committed"
    check_published(extracted)


def test_files_that_are_gone_decide_nothing(extracted: PlannedRun) -> None:
    pipeline = extracted.pipeline
    runner = pipeline.committer.runner
    assert runner is not None
    (file,) = extracted.results["u7"].files
    results = _results(extracted)
    (extracted.folder / "target" / file.path).unlink()
    with pytest.raises(StepLostError, match=r"can't publish staged file .* of unit 'u7': it is gone"):
        list(runner.write(extracted.plan, results, pipeline.staging.token_folder(extracted.plan.token)))
    assert pipeline.journal.history(URN).slots == ()


def test_an_application_that_comes_to_nothing_leaves_the_slot_pending(
    extracted: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = extracted.pipeline
    done(pipeline.write_commit_steps, extracted)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_BROKEN", '{"conn_type": "spark", "host": "local[nothing]"}')
    use(extracted, "spark_broken")
    report = done(pipeline.execute_commit_steps, extracted)
    assert (report.status, report.retryable) == ("failed", True)
    assert "can't carry out the commit steps of dataset 'acme.rows0' on Spark: " in report.detail
    assert pipeline.journal.state(URN).pending


def test_every_task_of_a_group_knows_how_steps_go_to_spark(extracted: PlannedRun) -> None:
    options = SparkOptions(conn_id="spark_warm", steps_above=7, durable=True, executor_cores=2)
    with DAG("acme", schedule=None) as dag:
        GobblinIngestion(extracted.pipeline.ingestion, spark=options)
    names = ("verify_recover", "create_work_units", "pack.write_commit_steps", "pack.execute_commit_steps")
    stages: list[Any] = [dag.get_task(f"acme.{name}") for name in names]
    assert [stage.spark for stage in stages] == [options] * 4
    runner = stages[0]._open_pipeline().committer.runner
    assert runner.above == 7
    assert runner._options == {"conn_id": "spark_warm", "conf": {}, "executor_cores": 2}
