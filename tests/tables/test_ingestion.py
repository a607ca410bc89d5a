"""Ingestions whose sink is a table in memory: whole runs, killed ones, rewinds and replaced ranges."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin import Pipeline
from airflow_gobblin.admin.views import dataset_detail, verify
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError, TableError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import Attempt
from airflow_gobblin.model.table import Mark
from airflow_gobblin.model.verification import FileState
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.stage import Stage
from airflow_gobblin.stages.functions import Frame
from airflow_gobblin.stages.outputs import Output
from airflow_gobblin.steps.base import StepStatus
from airflow_gobblin.testing import inprocess
from airflow_gobblin.testing.memory_table import MemoryTable, MemoryTableSink
from tests.lab import Lab
from tests.protocol.rows import LineSink, RowSource, Table

A = Table("a", ExtractKind.APPEND_ONLY, 12)
S = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)


@pytest.fixture(params=["rows", "files"], ids=["rows are taken", "files stay"])
def new_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Lab]:
    """Return a function that makes an ingestion into tables in memory."""

    def make(*tables: Table, **options: Any) -> Lab:
        location = str(tmp_path / "tables" / "{dataset}") if request.param == "files" else ""
        name = f"{uuid.uuid4().hex}.{{dataset}}"
        lab = Lab(tmp_path / "work", *tables)
        lab.ingestion = replace(lab.ingestion, sink=MemoryTableSink(str(tmp_path / "work"), name, location, **options))
        return lab

    return make


def table_of(lab: Lab, table: Table) -> MemoryTable:
    sink, (dataset,) = lab.ingestion.sink, [d for d in lab.ingestion.source.datasets(None) if d.urn == table.urn]  # type: ignore[arg-type]
    assert isinstance(sink, MemoryTableSink)
    return sink.table_of(dataset)


def rows(lab: Lab, table: Table) -> Counter[str]:
    return Counter(row["row"].rstrip(" ") for row in table_of(lab, table).rows())


def up_to(end: int) -> RunRequest:
    return RunRequest(f"up to {end}", datetime.fromtimestamp(end, UTC))


def test_runs_append_to_a_table_once_each(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    assert lab.run(request=up_to(5))["a"].rows == 5
    assert lab.run()["a"].rows == 7
    assert lab.run()["a"].status == "idle"
    assert rows(lab, A) == A.all_rows()


def test_a_snapshot_takes_the_place_of_all(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(S)
    lab.run()
    newer = replace(S, version=1, rows=3)
    lab.run(newer)
    assert rows(lab, S) == newer.all_rows()
    assert lab.run(replace(S, rows=0, version=2))["s"].status in ("committed", "idle")


def test_a_backfill_that_replaces_takes_units_out_in_its_commit(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    lab.run()
    amended = replace(A, version=1)
    lab.run(amended, request=RunRequest("again", 8, ("a",), 4, True))
    expected = A.all_rows() - Counter(A.row(n) for n in range(4, 8))
    assert rows(lab, A) == expected + Counter(amended.row(n) for n in range(4, 8))


def test_a_rewind_takes_units_out_by_a_commit(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    lab.run()
    lab.admin.rewind("a", LongWatermark(4), "read it again")
    assert rows(lab, A) == Counter(A.row(n) for n in range(4))
    lab.run()
    assert rows(lab, A) == A.all_rows()


def test_what_is_merged_refuses_rewind_and_replace_by_name(new_lab: Callable[..., Lab], tmp_path: Path) -> None:
    table = replace(A, extract=ExtractKind.SNAPSHOT_APPEND)
    lab = new_lab(table, merge=True)
    if table_of(lab, table).location:
        lab.ingestion = replace(lab.ingestion, sink=replace(lab.ingestion.sink, location=""))  # type: ignore[type-var]
    lab.run()
    assert rows(lab, table) == table.all_rows()
    with pytest.raises(ConfigurationError, match="merged"):
        lab.admin.rewind("a", LongWatermark(4), "read it again")
    report = lab.run(request=RunRequest("again", 8, ("a",), 4, True))["a"]
    assert "merged" in report.detail


def test_a_run_that_died_before_or_after_its_commit_is_finished_by_the_next(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    lab.run(request=up_to(4))
    for committed in (False, True):
        table = replace(A, rows=8 if committed else 6)
        opened, plan = lab.decide(table)
        slot = lab.journal.history("a").pending
        assert slot is not None
        if committed:
            for step in lab.journal.steps(slot.decision):
                step.execute(opened.committer._context_of(slot.decision))
        lab.run(table)
        assert rows(lab, A) == table.all_rows()
        for pack in plan.packs:
            execute_commit_steps(opened, plan, pack)
        assert rows(lab, A) == table.all_rows()


def test_an_abandoned_slot_is_fenced_and_read_again(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    lab.run(request=up_to(4))
    opened, _ = lab.decide(A)
    slot = lab.journal.history("a").pending
    assert slot is not None
    steps = [*lab.journal.steps(slot.decision)]
    late = opened.committer._context_of(slot.decision)
    lab.admin.abandon("a", "not wanted")
    assert rows(lab, A) == Counter(A.row(n) for n in range(4))
    lab.run()
    for step in steps:
        with pytest.raises((GobblinError, OSError)):
            step.execute(late)
    assert rows(lab, A) == A.all_rows()


def test_a_slot_whose_commit_is_done_can_not_be_abandoned(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    opened, _ = lab.decide(A)
    slot = lab.journal.history("a").pending
    assert slot is not None
    for step in lab.journal.steps(slot.decision):
        step.execute(opened.committer._context_of(slot.decision))
    with pytest.raises(LostRaceError, match="finished"):
        lab.admin.abandon("a", "not wanted")
    assert rows(lab, A) == A.all_rows()


def test_the_mark_follows_the_chain_when_it_was_trimmed_too(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    for end in (3, 6, 9):
        lab.run(request=up_to(end))
    history = lab.journal.history("a")
    newest = history.slots[-1].decision
    assert newest.table is not None
    assert history.mark_before(newest.slot + 1, newest.table.id) == Mark(newest.slot, newest.token, True)
    lab.run()
    assert rows(lab, A) == A.all_rows()


def test_a_dropped_table_stops_its_dataset_by_name_and_no_other(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A, S)
    lab.run()
    opened, plan = lab.decide(replace(A, rows=20), replace(S, version=1))
    table_of(lab, A).drop()
    for pack in plan.packs:
        reports = {report.urn: report for report in execute_commit_steps(opened, plan, pack)}
        if "a" in reports:
            assert "is gone" in reports["a"].detail
    assert rows(lab, S) == replace(S, version=1).all_rows()


def test_a_sweep_that_was_interrupted_is_completed(new_lab: Callable[..., Lab]) -> None:
    """It had removed the lists of a slot that is done, and not yet its plan."""
    lab = new_lab(A)
    opened, plan = lab.extracted(A)
    (token,) = [ref.token for pack in plan.packs for ref in pack.datasets]
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)
    opened.files.remove_tree(opened.staging.token_folder(token))
    lab.run()
    assert token not in opened.staging.tokens()
    assert rows(lab, A) == A.all_rows()


def test_data_files_of_an_attempt_that_comes_after_the_sweep_are_removed(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    where = table_of(lab, A).location
    if not where:
        return
    opened = lab.opened(A)
    plan = create_work_units(opened, RunRequest("late"))
    late, unit = next(one for pack in plan.packs for one in missing_units(opened, pack))
    lab.run()
    assert opened.staging.plan(late.token) is None
    folder = opened.staging.token_folder(late.token)
    opened.staging.put_result(
        late.token, opened.job.work.run(unit, late, Attempt("late", opened.files, folder, NoConnections()))
    )
    assert [*Path(where, "data", "gobblin", late.token).rglob("*.parquet")]
    lab.run()
    assert not Path(where, "data", "gobblin", late.token).exists()
    assert rows(lab, A) == A.all_rows()


def test_only_data_files_that_a_commit_named_are_left(new_lab: Callable[..., Lab]) -> None:
    """At the table's location: of a slot that is done those on its lists, of any other none."""
    lab = new_lab(A)
    where = table_of(lab, A).location
    if not where:
        return
    opened, plan = lab.extracted(A)
    (token,) = [ref.token for pack in plan.packs for ref in pack.datasets]
    folder = Path(where, "data", "gobblin", token)
    staged = {*folder.rglob("*.parquet")}
    assert staged
    (folder / "late" / "0-x").mkdir(parents=True)
    (folder / "late" / "0-x" / "0.parquet").write_bytes(b"of a late attempt")
    inprocess.publish(opened, plan, opened.connections)
    lab.run()
    assert {*folder.rglob("*.parquet")} == staged
    assert rows(lab, A) == A.all_rows()
    more = replace(A, rows=16)
    lab.decide(more)
    decided = lab.journal.history("a").pending
    assert decided is not None
    assert [*Path(where, "data", "gobblin", decided.decision.token).rglob("*.parquet")]
    lab.admin.abandon("a", "not wanted")
    lab.run(more)
    assert not [*Path(where, "data", "gobblin", decided.decision.token).rglob("*.parquet")]
    assert rows(lab, A) == more.all_rows()


def test_a_table_of_another_journal_stops_by_name(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    lab.run(request=up_to(4))
    other = new_lab(A)
    other.ingestion = replace(other.ingestion, sink=lab.ingestion.sink)
    assert "belongs to" in other.run()["a"].detail
    assert rows(lab, A) == Counter(A.row(n) for n in range(4))


def test_verify_counts_what_the_table_has_of_each_unit(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    lab.run()
    opened = lab.opened()

    def states() -> set[FileState]:
        return {one.state for one in verify(lab.journal, opened.files, "a")}

    assert states() == {FileState.OK}
    table_of(lab, A).delete(lambda row: row["row"].rstrip(" ") == A.row(5))
    assert states() == {FileState.OK, FileState.CHANGED}
    table_of(lab, A).compact()
    assert states() == {FileState.MISSING}
    table_of(lab, A).drop()
    with pytest.raises(TableError, match="gone"):
        states()


def test_a_pending_commit_is_shown_with_its_status(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    opened, _ = lab.decide(A)
    shown = dataset_detail(lab.journal, opened.files, "a", datetime.now(UTC)).steps
    assert shown is not None
    assert [step.status for step in shown.steps if step.step == "table_commit_step"] == [StepStatus.TODO]


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
