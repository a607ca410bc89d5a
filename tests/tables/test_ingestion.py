"""Whole runs of ingestions into tables: appended, replaced, rewound, merged, killed, abandoned and swept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin import Pipeline
from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.admin.views import dataset_detail
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import Attempt
from airflow_gobblin.model.table import Mark
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.stage import Stage
from airflow_gobblin.stages.functions import Frame
from airflow_gobblin.stages.outputs import Output
from airflow_gobblin.steps.base import StepStatus
from airflow_gobblin.testing import inprocess
from airflow_gobblin.testing.memory_table import MemoryTableSink
from tests.proofs import one_in
from tests.protocol.rows import LineSink, RowSource, Table
from tests.services.s3 import CONNECTION, S3Server
from tests.tables.formats import EACH, ON_A_DISK, format_of, formats
from tests.tables.labs import TableLab, up_to

pytestmark = one_in(2, "table_lab")

URN = "main.a"
A = Table(URN, ExtractKind.APPEND_ONLY, 12)
S = Table("main.s", ExtractKind.SNAPSHOT_ONLY, 4)
NewLab = Callable[..., TableLab]

IN_S3 = ("delta on versitygw", "iceberg on versitygw", "iceberg_rest on versitygw")


def first(end: int) -> Counter[str]:
    return Counter(A.row(n) for n in range(end))


@formats(*EACH, "iceberg_rest")
def test_runs_append_to_a_table_once_each(table_lab: NewLab) -> None:
    lab = table_lab(A)
    assert lab.run(request=up_to(5))[URN].rows == 5
    assert lab.run()[URN].rows == 7
    version = lab.open(URN).look(lab.owner(URN)).version
    assert lab.run()[URN].status == "idle"
    assert lab.open(URN).look(lab.owner(URN)).version == version
    assert lab.table_rows(URN) == A.all_rows()


def test_a_snapshot_takes_the_place_of_all(table_lab: NewLab) -> None:
    lab = table_lab(S)
    lab.run()
    newer = replace(S, version=1, rows=3)
    lab.run(newer)
    assert lab.table_rows(S.urn) == newer.all_rows()
    assert lab.run(replace(S, rows=0, version=2))[S.urn].status in ("committed", "idle")


@formats(*EACH, "iceberg_rest", *IN_S3)
def test_a_backfill_that_replaces_and_a_rewind_take_units_out_by_one_commit(table_lab: NewLab) -> None:
    lab = table_lab(A)
    lab.run()
    amended = replace(A, version=1)
    lab.run(amended, request=RunRequest("again", 8, (URN,), 4, True))
    expected = A.all_rows() - Counter(A.row(n) for n in range(4, 8))
    assert lab.table_rows(URN) == expected + Counter(amended.row(n) for n in range(4, 8))
    lab.admin.rewind(URN, LongWatermark(4), "read it again")
    assert lab.table_rows(URN) == first(4)
    lab.run()
    assert lab.table_rows(URN) == first(4) + Counter(amended.row(n) for n in range(4, 12))
    lab.admin.rewind(URN, LongWatermark(0), "read it again")
    assert lab.table_rows(URN) == Counter()


@pytest.mark.parametrize("form", ["delta on versitygw", "iceberg on versitygw", "postgres"])
def test_the_workspace_may_be_in_an_object_store(
    request: pytest.FixtureRequest, tmp_path: Path, versitygw: S3Server, bucket: str, form: str
) -> None:
    lab = TableLab(tmp_path / "none", format_of(form, tmp_path / "tables", request.getfixturevalue), A)
    lab.connections = SparkConnections({**lab.format.uris, CONNECTION: versitygw.access.connection})
    lab.declare(workspace=versitygw.access.url(f"{bucket}/work"))
    lab.run(request=up_to(5))
    opened, plan = lab.decide(A)
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    assert lab.table_rows(URN) == A.all_rows()
    ann = Administration(lab.journal, lab.ingestion.sink.target, "ann", lab.connections)
    ann.rewind(URN, LongWatermark(4), "read it again")
    assert lab.table_rows(URN) == first(4)
    lab.decide(A)
    ann.abandon(URN, "not wanted")
    lab.run()
    assert lab.table_rows(URN) == A.all_rows()
    assert not (tmp_path / "none").exists()


def test_merged_rows_are_there_once_and_refuse_rewind_and_replace_by_name(table_lab: NewLab) -> None:
    table = replace(A, extract=ExtractKind.SNAPSHOT_APPEND)
    lab = table_lab(table)
    if not lab.format.merges:
        return
    lab.declare(merge=True)
    lab.run(request=up_to(5))
    lab.run()
    assert lab.table_rows(URN) == table.all_rows()
    with pytest.raises(ConfigurationError, match="merged"):
        lab.admin.rewind(URN, LongWatermark(4), "read it again")
    assert "merged" in lab.run(request=RunRequest("again", 8, (URN,), 4, True))[URN].detail


@formats(*EACH, "iceberg_rest")
@pytest.mark.parametrize("committed", [False, True])
def test_a_run_that_died_before_or_after_its_commit_is_finished_by_the_next(table_lab: NewLab, committed: bool) -> None:
    lab = table_lab(A)
    lab.run(request=up_to(4))
    opened, plan = lab.decide(A)
    slot = lab.journal.history(URN).pending
    assert slot is not None
    if committed:
        for step in lab.journal.steps(slot.decision):
            step.execute(opened.committer._context_of(slot.decision))
    lab.run()
    assert lab.table_rows(URN) == A.all_rows()
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    assert lab.table_rows(URN) == A.all_rows()


@formats(*EACH, "iceberg_rest", *IN_S3)
def test_an_abandoned_slot_is_fenced_and_read_again(table_lab: NewLab) -> None:
    lab = table_lab(A)
    lab.run(request=up_to(4))
    opened, _ = lab.decide(A)
    slot = lab.journal.history(URN).pending
    assert slot is not None
    steps = [*lab.journal.steps(slot.decision)]
    late = opened.committer._context_of(slot.decision)
    lab.admin.abandon(URN, "not wanted")
    assert lab.table_rows(URN) == first(4)
    lab.run()
    for step in steps:
        with pytest.raises((GobblinError, OSError)):
            step.execute(late)
    assert lab.table_rows(URN) == A.all_rows()


def test_a_slot_whose_commit_is_done_can_not_be_abandoned(table_lab: NewLab) -> None:
    lab = table_lab(A)
    opened, _ = lab.decide(A)
    slot = lab.journal.history(URN).pending
    assert slot is not None
    for step in lab.journal.steps(slot.decision):
        step.execute(opened.committer._context_of(slot.decision))
    with pytest.raises(LostRaceError, match="finished"):
        lab.admin.abandon(URN, "not wanted")
    assert lab.table_rows(URN) == A.all_rows()


@formats("memory", "files in memory")
def test_the_mark_follows_the_chain_when_it_was_trimmed_too(table_lab: NewLab) -> None:
    lab = table_lab(A)
    for end in (3, 6, 9):
        lab.run(request=up_to(end))
    history = lab.journal.history(URN)
    newest = history.slots[-1].decision
    assert newest.table is not None
    assert history.mark_before(newest.slot + 1, newest.table.id) == Mark(newest.slot, newest.token, True)
    lab.run()
    assert lab.table_rows(URN) == A.all_rows()


def test_a_dropped_table_stops_its_dataset_by_name_and_no_other(table_lab: NewLab) -> None:
    lab = table_lab(A, S)
    lab.run()
    opened, plan = lab.decide(replace(A, rows=20), replace(S, version=1))
    lab.format.drop("main__a")
    for pack in plan.packs:
        reports = {report.urn: report for report in execute_commit_steps(opened, plan, pack)}
        if URN in reports:
            assert "is gone" in reports[URN].detail
    assert lab.table_rows(S.urn) == replace(S, version=1).all_rows()


@pytest.mark.slow
def test_all_datasets_of_tables_are_dropped_with_their_rows_or_without(table_lab: NewLab) -> None:
    lab = table_lab(A, S)
    lab.run()
    for delete, left in ((True, Counter[str]()), (False, A.all_rows())):
        for change in lab.admin.would_drop_all(delete_files=delete):
            lab.admin.carry_out(change, "it has ended")
        assert lab.admin.after_drop_all() == ()
        assert lab.table_rows(URN) == left
        assert lab.run()[URN].status == "committed"
        assert lab.table_rows(URN) == left + A.all_rows(), (
            "the rows that stay are beside those that a later run publishes"
        )


@formats("memory", "files in memory")
def test_a_sweep_that_was_interrupted_is_completed(table_lab: NewLab) -> None:
    """It had removed the lists of a slot that is done, and not yet its plan."""
    lab = table_lab(A)
    opened, plan = lab.extracted(A)
    (token,) = [ref.token for pack in plan.packs for ref in pack.datasets]
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)
    opened.files.remove_tree(opened.staging.token_folder(token))
    lab.run()
    assert token not in opened.staging.tokens()
    assert lab.table_rows(URN) == A.all_rows()


@formats(*ON_A_DISK)
def test_data_files_of_an_attempt_that_comes_after_the_sweep_are_removed(table_lab: NewLab) -> None:
    lab = table_lab(A)
    opened = lab.opened(A)
    plan = create_work_units(opened, RunRequest("late"))
    late, unit = next(one for pack in plan.packs for one in missing_units(opened, pack))
    lab.run()
    assert opened.staging.plan(late.token) is None
    folder = opened.staging.token_folder(late.token)
    attempt = Attempt("late", opened.files, folder, lab.connections)
    opened.staging.put_result(late.token, opened.job.work.run(unit, late, attempt))
    assert lab.staged(URN, late.token)
    lab.run()
    assert not lab.staged(URN, late.token)
    assert lab.table_rows(URN) == A.all_rows()


@formats(*ON_A_DISK, *IN_S3)
def test_only_data_files_that_a_commit_named_are_left(table_lab: NewLab) -> None:
    """At the table's location: of a slot that is done those on its lists, of any other none."""
    lab = table_lab(A)
    opened, plan = lab.extracted(A)
    (token,) = [ref.token for pack in plan.packs for ref in pack.datasets]
    staged = lab.staged(URN, token)
    assert staged
    lab.stage_late(URN, token)
    inprocess.publish(opened, plan, opened.connections)
    lab.run()
    assert lab.staged(URN, token) == staged
    assert lab.table_rows(URN) == A.all_rows()
    more = replace(A, rows=16)
    lab.decide(more)
    decided = lab.journal.history(URN).pending
    assert decided is not None
    assert lab.staged(URN, decided.decision.token)
    lab.admin.abandon(URN, "not wanted")
    lab.run(more)
    assert not lab.staged(URN, decided.decision.token)
    assert lab.table_rows(URN) == more.all_rows()


@formats("memory", "files in memory")
def test_a_pending_commit_is_shown_with_its_status(table_lab: NewLab) -> None:
    lab = table_lab(A)
    opened, _ = lab.decide(A)
    shown = dataset_detail(lab.journal, opened.files, URN, datetime.now(UTC)).steps
    assert shown is not None
    assert [step.status for step in shown.steps if step.step == "table_commit_step"] == [StepStatus.TODO]


@formats("memory", "delta")
def test_a_dataset_does_not_move_between_a_table_and_files_until_it_is_dropped(table_lab: NewLab) -> None:
    lab = table_lab(A)
    lab.run(request=up_to(5))
    tabled, files = lab.ingestion, replace(lab.ingestion, sink=LineSink(str(lab.folder)))
    lab.ingestion = files
    report = lab.run()[URN]
    assert report.status == "failed"
    assert report.detail.endswith("drop the dataset, with its files.")
    former = lab.journal.history(URN).table
    assert former is not None
    assert f"its rows are in {former.table.name}, and those of this run would be in files" in report.detail
    assert lab.journal.read_dataset(URN).table is not None
    lab.admin.drop(URN, "its rows are to be files")
    assert lab.run()[URN].rows == 12
    assert lab.reopened().read_dataset(URN).rows == 12
    lab.ingestion = tabled
    report = lab.run(replace(A, rows=16))[URN]
    assert report.status == "failed"
    assert "its rows are in files, and those of this run would be in" in report.detail
    assert "or publish it under another name; or drop the dataset, with its files" in report.detail


def test_a_stage_refuses_a_table_that_merges(tmp_path: Path) -> None:
    sink = MemoryTableSink(str(tmp_path), "{dataset}", merge=True)
    with pytest.raises(ConfigurationError, match="merges rows by their key"):
        Stage("stage", Frame("none"), {"flights": Output("raw", "flights")}, sink)


def test_a_stage_does_not_read_a_table(tmp_path: Path) -> None:
    journal = f"file://{tmp_path}/journal"
    raw = Ingestion("raw", RowSource((A,)), MemoryTableSink(f"{tmp_path}/raw", "{dataset}"), journal)
    reading = Stage("reading", Frame("none"), {"rows": raw["a"]}, LineSink(f"{tmp_path}/reading"))
    with pytest.raises(ConfigurationError, match="stage 'reading' reads 'raw/a', whose rows are in a table"):
        Pipeline("p", (raw, reading), journal)
    files = replace(raw, sink=LineSink(f"{tmp_path}/raw"))
    tabled = Stage(
        "tabled", Frame("none"), {"rows": files["a"]}, MemoryTableSink(f"{tmp_path}/one", "x"), channels=("odd",)
    )
    below = Stage("below", Frame("none"), {"rows": tabled}, LineSink(f"{tmp_path}/below"))
    with pytest.raises(ConfigurationError, match="whose rows are in a table"):
        Pipeline("p", (files, tabled, below), journal)
    Pipeline("p", (files, tabled, replace(below, reads={"rows": tabled["odd"]})), journal)
    twin = replace(tabled, name="twin", writes=MemoryTableSink(f"{tmp_path}/two", "x"))
    with pytest.raises(ConfigurationError, match="two stages write to table"):
        Pipeline("p", (files, tabled, twin), journal)
