"""The reports and failures of single tasks; in a whole Airflow they are in `tests/airflow`."""

from __future__ import annotations

import errno
import gc
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin import Frame, ParquetSink, Pipeline, Stage
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import (
    GobblinError,
    LostRaceError,
    QuarantinedError,
    RecordError,
    StepConflictError,
    StoreError,
)
from airflow_gobblin.events.announcement import announce
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model import registry
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.watermark import TimestampWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, DatasetRef, ExtractKind, Pack
from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.operators.task_logs import COMMANDS_LOGGED, MAX_NAMES, log_replacing, pack_reference
from airflow_gobblin.operators.tasks import (
    CreateWorkUnitsOperator,
    ExecuteCommitStepsOperator,
    FinishOperator,
    VerifyRecoverOperator,
    WriteCommitStepsOperator,
    _raise_unless_good,
    failing_at_once,
)
from airflow_gobblin.run import decide
from airflow_gobblin.run.answers import answered
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport, failed
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.storage.stores import open_store
from airflow_gobblin.testing import inprocess
from tests.events.test_announcing import OutletEvents, statsd
from tests.lab import BrokenSource, Lab
from tests.operators.test_run_requests import context
from tests.protocol.rows import LineSink, Table
from tests.stages.diamond import Diamond

A = Table("a", ExtractKind.APPEND_ONLY, 4)
B = Table("b", ExtractKind.APPEND_ONLY, 4)
S = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)
MINE = RunRequest("shop/r1")


def of_run(**given: Any) -> Any:
    """The context of a task of the run that asks for `MINE`."""
    return {**context(), "outlet_events": OutletEvents(), **given}


def committed(folder: Path, *tables: Table, packs: int = 9) -> tuple[Lab, OpenJob, RunPlan]:
    """A run that was committed, whose plan still exists."""
    lab = Lab(folder / "lake", *tables, store=open_store(str(folder / "journal")), max_packs=packs)
    lab.ingestion = replace(lab.ingestion, journal=str(folder / "journal"))
    opened = lab.opened()
    plan = create_work_units(opened, MINE)
    inprocess.go_on(opened, plan, NoConnections())
    return lab, opened, plan


def swept(folder: Path, *tables: Table, packs: int = 9) -> tuple[Lab, dict[str, dict[str, Any]]]:
    """A run that was committed and whose plan a later one swept.

    :return: the references to its packs, by label.
    """
    lab, opened, plan = committed(folder, *tables, packs=packs)
    lab.run()
    assert opened.staging.run(plan.run) is None
    return lab, {pack.label: pack_reference(plan.run, pack) for pack in plan.packs}


def tear(folder: Path, key: str) -> None:
    """Cut off the first record of a dataset."""
    record = folder / "journal" / "lab" / key / "d" / "0000000001"
    record.chmod(0o600)
    os.truncate(record, 20)


@pytest.mark.parametrize("stage", [WriteCommitStepsOperator, ExecuteCommitStepsOperator])
def test_a_cleared_pack_that_was_swept_reports_its_own_datasets_whatever_became_of_others(
    tmp_path: Path, stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, packs = swept(tmp_path, A, B)
    tear(tmp_path, "b")
    stage(task_id="cleared", job=lab.ingestion, pack=packs["a"]).execute(of_run())
    output = capsys.readouterr().out
    assert "dataset 'a': committed, already committed in slot 1 by run 'shop/r1'" in output
    assert "type: airflow dags trigger shop" in output
    assert "no longer kept" not in output
    assert "'b'" not in output
    with pytest.raises(AirflowFailException, match=r"1 dataset of 'b': b: failed .*it is torn"):
        stage(task_id="cleared", job=lab.ingestion, pack=packs["b"]).execute(of_run())


def test_a_cleared_extract_of_a_swept_pack_reports_what_is_committed_and_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, packs = swept(tmp_path, A, B)
    ExtractOperator(task_id="extract", job=lab.ingestion, pack=packs["a"]).execute(of_run())
    output = capsys.readouterr().out
    assert "nothing to do" in output
    assert "dataset 'a': committed, already committed in slot 1 by run 'shop/r1'" in output
    assert """'{"datasets": ["a"], "replace": true, "start": 0, "end": 4}'""" in output


def test_a_swept_pack_reports_for_how_many_of_its_datasets_there_is_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, packs = swept(tmp_path, A)
    for keys, left, answers in ((["a", "gone"], "1 dataset", 1), (["gone", "too"], "2 datasets", 0), ([], None, 1)):
        pack = {**packs["a"], "datasets": keys}
        WriteCommitStepsOperator(task_id="cleared", job=lab.ingestion, pack=pack).execute(of_run())
        output = capsys.readouterr().out
        assert output.count("already committed in slot 1") == answers
        assert ("no longer kept" in output) is (left is not None)
        assert left is None or f"the plan of 'a' is no longer kept, and for {left} the journal has no slot" in output


def test_a_torn_dataset_that_was_not_named_is_left_out_of_what_a_run_was_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab, _ = swept(tmp_path, A, B)
    tear(tmp_path, "b")
    lab.reopened()
    assert [(r.urn, r.status) for r in answered(lab.opened(), MINE)] == [("a", "committed")]
    assert "dataset 'b' can't be read, and is left out" in caplog.text
    assert answered(lab.opened(), replace(MINE, datasets=("a",))) == ()
    assert [(r.urn, r.status) for r in answered(lab.opened(), replace(MINE, datasets=("b",)))] == [("b", "failed")]


def test_a_reference_is_short_however_many_datasets_a_pack_has(tmp_path: Path) -> None:
    many = tuple(DatasetRef(f"d{n:03}", "token", 1) for n in range(MAX_NAMES // 4 + 1))
    assert pack_reference("r", Pack(0, "x", many))["datasets"] == []
    assert pack_reference("r", Pack(0, "x", many[1:]))["datasets"] == [ref.urn for ref in many[1:]]


def test_what_to_type_for_a_snapshot_is_another_run_and_not_more_than_a_few_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, packs = swept(tmp_path, S, *(Table(f"t{n}", ExtractKind.APPEND_ONLY, 2) for n in range(COMMANDS_LOGGED)))
    operator = WriteCommitStepsOperator(task_id="cleared", job=lab.ingestion, pack=packs["s"])
    operator.execute(of_run())
    output = capsys.readouterr().out
    assert "Dataset 's' is a snapshot, which each run publishes anew: airflow dags trigger shop" in output
    log_replacing(operator.log, lab.opened(), answered(lab.opened(), MINE), of_run())
    output = capsys.readouterr().out
    assert output.count("airflow dags trigger") == COMMANDS_LOGGED
    assert "… and so for 1 more dataset that this run had committed before" in output


def error_of(error: type[GobblinError]) -> GobblinError:
    return error(operation="publish", subject="dataset 'a'", cause="so it is", hint="Mend it.")


@pytest.mark.parametrize("error", [StepConflictError, RecordError, LostRaceError, QuarantinedError])
def test_what_no_retry_heals_fails_a_task_at_once(error: type[GobblinError]) -> None:
    with pytest.raises(AirflowFailException, match="so it is"), failing_at_once():
        raise error_of(error)
    with pytest.raises(AirflowFailException, match="so it is"):
        _raise_unless_good("publish", {"label": "a"}, [failed("publish", "a", error_of(error))])


@pytest.mark.parametrize("error", [error_of(StoreError), OSError("no space left")], ids=["store", "disk"])
def test_what_a_retry_may_heal_is_tried_again(error: Exception) -> None:
    with pytest.raises(type(error)), failing_at_once():
        raise error
    with pytest.raises(AirflowException) as caught:
        _raise_unless_good(
            "publish", {"label": "a"}, [failed("publish", "a", error), failed("publish", "b", error_of(RecordError))]
        )
    assert not isinstance(caught.value, AirflowFailException)
    assert "2 datasets of 'a'" in str(caught.value)


@pytest.mark.parametrize(("datasets", "gauged"), [((), True), (("a", "b"), False)])
def test_only_a_run_of_all_datasets_whose_plan_is_valid_reports_how_many_are_quarantined(
    tmp_path: Path, datasets: tuple[str, ...], gauged: bool
) -> None:
    lab = Lab(tmp_path / "lake", A, store=open_store(str(tmp_path / "journal")))
    lab.admin.set_watermark("b", TimestampWatermark(datetime.now(UTC) - timedelta(hours=1)), "it is stuck there")
    source = BrokenSource((A, B), unplannable=("b",))
    lab.ingestion = replace(lab.ingestion, journal=str(tmp_path / "journal"), source=source)
    opened = OpenJob(lab.ingestion, lab.reopened(), NoConnections())
    plan = create_work_units(opened, replace(MINE, datasets=datasets))
    task = SimpleNamespace(xcom_pull=lambda task_ids, key: plan.run)
    task_context: Any = {**context(conf={"datasets": [*datasets]}), "outlet_events": OutletEvents(), "ti": task}
    finish = FinishOperator(
        task_id="finish", job=lab.ingestion, plan=CreateWorkUnitsOperator(task_id="plan", job=lab.ingestion)
    )
    with statsd() as received:
        with pytest.raises(
            AirflowFailException, match="Clear create_work_units with its downstream tasks to plan anew"
        ):
            finish.execute(task_context)
        gauges = {line.partition(",")[0]: line for line in received()}
    assert gauges.get("gobblin.quarantines") == ("gobblin.quarantines,ingestion=lab:0|g" if gauged else None)
    assert gauges["gobblin.lag"].startswith("gobblin.lag,ingestion=lab,dataset=b:36"), (
        "it is reported where it is stuck"
    )


def test_a_swept_finish_gauges_nothing_and_reports_what_to_clear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, packs = swept(tmp_path, A)
    finish = FinishOperator(
        task_id="finish", job=lab.ingestion, plan=CreateWorkUnitsOperator(task_id="plan", job=lab.ingestion)
    )
    task = SimpleNamespace(xcom_pull=lambda task_ids, key: packs["a"]["run"])
    with statsd() as received:
        finish.execute(of_run(ti=task))
        assert not [line for line in received() if "quarantines" in line]
    output = capsys.readouterr().out
    assert "already committed in slot 1 by run 'shop/r1'" in output
    assert "no longer kept" not in output
    finish.execute(of_run(ti=task, dag_run=other_run()))
    assert (
        "the plan of this run is no longer kept, and for its datasets the journal has no slot"
        in capsys.readouterr().out
    )


def test_a_cleared_finish_reports_what_was_committed_before_and_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path / "lake", A, B, store=open_store(str(tmp_path / "journal")))
    lab.ingestion = replace(lab.ingestion, journal=str(tmp_path / "journal"))
    opened = lab.opened()
    plan = create_work_units(opened, MINE)
    for pack in plan.packs:  # one after the other, each as if the other's extract had failed
        inprocess.publish(opened, replace(plan, packs=(pack,)), NoConnections())
        if pack is plan.packs[0]:
            assert [r.status for r in finish(opened, plan)] == ["committed", "failed"]
    planner = CreateWorkUnitsOperator(task_id="plan", job=lab.ingestion)
    task = SimpleNamespace(xcom_pull=lambda task_ids, key: plan.run)
    FinishOperator(task_id="finish", job=lab.ingestion, plan=planner).execute(of_run(ti=task))
    output = capsys.readouterr().out
    assert "dataset 'a': already committed in slot 1 by run 'shop/r1'" in output
    assert """'{"datasets": ["a"], "replace": true, "start": 0, "end": 4}'""" in output
    assert output.count("already") == 1, "the dataset that was committed just now was not before"


@record("test.on_lost_disk")
@dataclass(frozen=True)
class OnLostDisk(LineSink):
    """Publish some datasets on a disk that is gone."""

    lost: tuple[str, ...] = ()

    def folder(self, dataset: Dataset) -> str:
        if dataset.urn in self.lost:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return super().folder(dataset)


def test_what_could_not_be_planned_is_tried_again_and_at_last_the_others_go_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A, B, store=open_store(str(tmp_path / "journal")))
    sink = OnLostDisk(str(lab.folder), lost=("b",))
    lab.ingestion = replace(lab.ingestion, journal=str(tmp_path / "journal"), sink=sink)
    create = CreateWorkUnitsOperator(task_id="plan", job=lab.ingestion)
    pushed: dict[str, str] = {}

    def of_try(number: int) -> Any:
        push = lambda key, value: pushed.update({key: value})  # noqa: E731
        return of_run(ti=SimpleNamespace(try_number=number, max_tries=2, xcom_push=push))

    for number in (1, 2):
        with pytest.raises(
            AirflowException, match=r"1 dataset can't be planned, .* by the next try; b: .*Stale file handle"
        ) as caught:
            create.execute(of_try(number))
        assert not isinstance(caught.value, AirflowFailException)
    assert pushed == {}
    (reference,) = create.execute(of_try(3))
    assert (reference["label"], reference["run"]) == ("a", pushed["run"])
    opened = OpenJob(lab.ingestion, lab.reopened(), NoConnections())
    run = opened.staging.run(reference["run"])
    assert run is not None
    inprocess.go_on(opened, run, NoConnections())
    assert opened.staging.runs() == (run.run,), "the plans of the first tries are swept"


def test_planning_reports_what_it_recovers_step_by_step_and_counts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path / "lake", A, store=open_store(str(tmp_path / "journal")))
    lab.ingestion = replace(lab.ingestion, journal=str(tmp_path / "journal"))
    lab.decide(request=replace(MINE, dag_run="shop/killed"))
    task = SimpleNamespace(try_number=1, max_tries=2, xcom_push=lambda key, value: None)
    with statsd() as received:
        CreateWorkUnitsOperator(task_id="plan", job=lab.ingestion).execute(of_run(ti=task))
        assert "gobblin.recoveries,ingestion=lab:1|c" in [*received()]
    output = capsys.readouterr().out
    assert "dataset 'a': recovered, slot 1, which an earlier run left, is done" in output
    assert "dataset 'a', slot 1: step 1 of 2 is done" in output


def other_run() -> Any:
    """A run that committed nothing."""
    run = of_run()["dag_run"]
    return run.model_copy(update={"run_id": "r2"})


@pytest.mark.usefixtures("thawed_heap")
def test_what_was_in_memory_before_a_stage_is_kept_from_the_garbage_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "lake", A, store=open_store(str(tmp_path / "journal")))
    lab.ingestion = replace(lab.ingestion, journal=str(tmp_path / "journal"))
    _, plan = lab.extracted(request=MINE)
    write, frozen = decide.write_commit_steps, []

    def watched(self: OpenJob, run: RunPlan, pack: Pack) -> tuple[DatasetReport, ...]:
        frozen.append(gc.get_freeze_count())
        return write(self, run, pack)

    monkeypatch.setattr(decide, "write_commit_steps", watched)
    reference = pack_reference(plan.run, plan.packs[0])
    WriteCommitStepsOperator(task_id="write", job=lab.ingestion, pack=reference).execute(of_run())
    assert frozen
    assert all(frozen)
    assert gc.get_freeze_count() == 0


def test_the_tasks_of_a_stage_do_not_import_its_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They load Spark, and only its driver calls them."""
    monkeypatch.setattr(registry, "_awaited", {})  # it is the process's, and so that of later tests
    diamond = Diamond(tmp_path)
    diamond.grow(4)
    stage = Stage("lab", Frame("acme.lab"), {"rows": diamond.raw["a"]}, ParquetSink(f"{tmp_path}/clean"))
    pipeline = Pipeline("flights", (diamond.raw, stage), diamond.journal, ("no_module_of_this_name",))
    job, pushed = pipeline["lab"], SimpleNamespace(xcom_push=lambda key, value: None, try_number=1, max_tries=0)
    VerifyRecoverOperator(task_id="recover", job=job).execute(of_run())
    (pack,) = CreateWorkUnitsOperator(task_id="plan", job=job).execute(of_run(ti=pushed))
    with pytest.raises(AirflowException, match="it was not extracted to its end"):
        WriteCommitStepsOperator(task_id="write", job=job, pack=pack).execute(of_run())
    ExecuteCommitStepsOperator(task_id="execute", job=job, pack=pack).execute(of_run())


def test_extract_announces_the_versions_that_it_published_of_a_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diamond = Diamond(tmp_path)
    for _ in range(2):
        diamond.grow(4)
    stage = diamond.stage("lab", Input(diamond.journal, "raw", "a"))
    opened = diamond.opened(stage)
    plan = create_work_units(opened, MINE)
    pack = pack_reference(plan.run, plan.packs[0])

    def extract_here(_: Any) -> None:
        inprocess.extract(opened, opened.staging.run(plan.run) or plan, NoConnections())

    task_context = of_run()
    task = ExtractOperator(task_id="extract", job=stage, pack=pack)
    monkeypatch.setattr(task, "_run_driver", extract_here)
    task.execute(task_context)
    assert task_context["outlet_events"].added == [
        ("gobblin://lab/lab", {"urn": "lab", "watermark": None, "slot": 1, "rows": 4, "files": 1}),
        ("gobblin://lab/lab", {"urn": "lab", "watermark": None, "slot": 2, "rows": 4, "files": 1}),
        ("gobblin://lab/_versions", {"version": "1970-01-01T00:00:08+00:00"}),
    ]
    (noted,) = task.on_success_callback
    noted({**context(), "task": task})
    again = of_run()
    ExecuteCommitStepsOperator(task_id="execute", job=stage, pack=pack).execute(again)
    assert again["outlet_events"].added == []


def test_a_version_without_files_wakes_what_reads_it_and_is_no_publish(tmp_path: Path) -> None:
    diamond = Diamond(tmp_path)
    diamond.grow(4)
    stage = diamond.stage("lab", Input(diamond.journal, "raw", "a"))
    opened = diamond.opened(stage)
    inprocess.run(opened, request=RunRequest("first"))
    announce(opened, None, "first", of_run()).succeeded(context())
    diamond.idle(1)
    inprocess.run(opened, request=RunRequest("second"))
    (_, slot) = opened.journal.history("lab").slots
    assert (slot.decision.action, slot.files, slot.settled) == (Action.NOOP, 0, False)
    task_context = of_run()
    announcement = announce(opened, None, "second", task_context)
    assert task_context["outlet_events"].added == [
        ("gobblin://lab/_versions", {"version": "1970-01-01T00:00:05+00:00"})
    ]
    assert announcement.publications == ()
    announcement.succeeded(context())
    assert opened.journal.history("lab").slots[-1].settled
    again = of_run()
    announce(opened, None, "third", again)
    assert again["outlet_events"].added == []
