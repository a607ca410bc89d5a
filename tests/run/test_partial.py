"""The policy `partial`: of a unit that fails, what was read before is published, up to a position."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind, Limits
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport, incomplete
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.lab import Lab
from tests.protocol.rows import FailingRows, LineSink, RefusedRow, RowSource, Table

ROWS = Table("orders", ExtractKind.APPEND_ONLY, 20, unit_rows=10)
TIED = replace(ROWS, ties=4)


def lab(folder: Path, table: Table = ROWS, policy: CommitPolicy = CommitPolicy.PARTIAL, **options: Any) -> Lab:
    return Lab(folder, table, policy=policy, **options)


def run(made: Lab, *, after: int | None = None, request: RunRequest | None = None) -> DatasetReport:
    """A run, each of whose readers fails after some batches."""
    source = made.ingestion.source
    assert isinstance(source, RowSource)
    job = made.ingestion if after is None else replace(made.ingestion, source=FailingRows(source.tables, after))
    return inprocess.run(OpenJob(job, made.journal, NoConnections()), NoConnections(), request)["orders"]


def covered(made: Lab) -> str:
    return " ".join(str(part) for part in made.journal.state("orders").coverage.ranges())


def expect_covered(made: Lab, table: Table) -> None:
    """Expect each row of what is covered to be published once, and no other one."""
    assert made.rows("orders") == table.rows_in(made.journal.state("orders").coverage.ranges())


def test_what_was_read_before_an_error_of_the_reader_is_published(tmp_path: Path) -> None:
    made = lab(tmp_path)
    report = run(made, after=2)
    assert report.status == "partial"
    assert not report.ok
    assert "not published: 2 of 2 units, 2 of them only from where they failed on: " in report.detail
    assert "the line is dead" in report.detail
    assert covered(made) == "[0, 4) [10, 14)"
    assert report.watermark == LongWatermark(4)
    expect_covered(made, ROWS)
    assert run(made).status == "committed"
    assert made.rows("orders") == ROWS.all_rows()


@pytest.mark.parametrize("bad", range(20))
def test_a_bad_row_is_where_its_unit_is_cut(tmp_path: Path, bad: int) -> None:
    made = lab(tmp_path, checks=(RefusedRow(ROWS.row(bad)),))
    assert run(made).status == "partial"
    unit = 10 * (bad // 10)
    gaps = [Range(LongWatermark(bad), LongWatermark(unit + 10))]
    assert [*made.journal.state("orders").coverage.uncovered(Range(LongWatermark(0), LongWatermark(20)))] == gaps
    expect_covered(made, ROWS)


@pytest.mark.parametrize("bad", range(40))
def test_a_unit_is_cut_between_two_positions(tmp_path: Path, bad: int) -> None:
    """A position has four rows, and a batch three."""
    rows = TIED.rows_from(0, 20)
    made = lab(tmp_path, TIED, checks=(RefusedRow(rows[bad]),))
    run(made)
    expect_covered(made, TIED)
    assert made.journal.state("orders").coverage.covers(Range(LongWatermark(0), LongWatermark(_cut(bad))))


def _cut(bad: int) -> int:
    """Where a unit is cut: a batch that begins within a position can be cut after it only."""
    begin = bad - bad % 3
    return bad // 4 if begin % 4 == 0 or bad // 4 > begin // 4 else 0


@pytest.mark.parametrize("after", range(14))
def test_a_position_that_was_written_in_part_is_not_cut(tmp_path: Path, after: int) -> None:
    made = lab(tmp_path, TIED)
    run(made, after=after)
    expect_covered(made, TIED)
    whole = after * 3 // 4 if after * 3 % 4 == 0 else 0
    assert covered(made) == ("[0, 20)" if after == 14 else f"[0, {whole}) [10, {10 + whole})" if whole else "")


def test_a_unit_that_fails_at_once_publishes_nothing(tmp_path: Path) -> None:
    made = lab(tmp_path)
    report = run(made, after=0)
    assert (report.status, covered(made), made.rows("orders").total()) == ("failed", "", 0)


@pytest.mark.parametrize("policy", [CommitPolicy.FULL, CommitPolicy.SUCCESSFUL])
def test_other_policies_publish_nothing_of_it(tmp_path: Path, policy: CommitPolicy) -> None:
    made = lab(tmp_path, policy=policy)
    assert run(made, after=2).status == "failed"
    assert made.rows("orders").total() == 0


def test_a_try_that_succeeds_counts_and_else_the_one_that_came_furthest(tmp_path: Path) -> None:
    made = lab(tmp_path)
    for tries, expected in (((1, 3, 2), "[0, 6) [10, 16)"), ((2, 9), "[0, 20)")):
        made.admin.drop("orders", "anew", delete_files=True) if made.journal.datasets() else None
        plan = create_work_units(OpenJob(made.ingestion, made.journal, NoConnections()), RunRequest(uuid.uuid4().hex))
        for after in tries:
            failing = replace(made.ingestion, source=FailingRows((ROWS,), after))
            opened = OpenJob(failing, made.journal, NoConnections())
            opened.staging.files.unlink(f"{opened.staging.folder}/r/{plan.run}/work")
            opened.staging.put_run(plan, failing.work)
            inprocess.extract(opened, plan, NoConnections())
        made.ingestion = replace(made.ingestion, source=RowSource((ROWS,)))
        opened = OpenJob(made.ingestion, made.journal, NoConnections())
        reports = finish_without_extract(opened, plan)
        assert reports == {"partial" if "16" in expected else "committed"}
        assert covered(made) == expected
        expect_covered(made, ROWS)


def finish_without_extract(opened: OpenJob, plan: RunPlan) -> set[str]:
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)
    return {str(report.status) for report in finish(opened, plan)}


def test_the_same_run_again_publishes_the_rest(tmp_path: Path) -> None:
    made, request = lab(tmp_path), RunRequest("run")
    assert run(made, after=2, request=request).status == "partial"
    assert run(made, request=request).rows == 12
    assert made.rows("orders") == ROWS.all_rows()


def test_a_partial_run_may_be_green(tmp_path: Path) -> None:
    for partial_ok in (False, True):
        made = lab(tmp_path / str(partial_ok), partial_ok=partial_ok)
        assert (incomplete(made.ingestion, [run(made, after=2)]) is None) is partial_ok


def test_what_is_replaced_is_replaced_whole(tmp_path: Path) -> None:
    made = lab(tmp_path)
    run(made)
    before = made.published()
    assert run(made, after=2, request=RunRequest("again", 20, (), 0, replace=True)).status == "failed"
    assert made.published() == before


def test_limits_and_an_error_are_kept_both(tmp_path: Path) -> None:
    made = lab(tmp_path, limits=Limits(rows=6))
    assert run(made, after=1).status == "partial"
    assert covered(made) == "[0, 2) [10, 12)"
    while run(made).status != "idle":
        expect_covered(made, ROWS)
    assert made.rows("orders") == ROWS.all_rows()


@record("test.unordered_rows")
@dataclass(frozen=True)
class Unordered(RowSource):
    reads_in_order: ClassVar[bool] = False


def test_a_source_that_promises_no_order_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="its source, a Unordered, doesn't promise to read in order"):
        Ingestion("shop", Unordered((ROWS,)), LineSink(str(tmp_path)), "unused", policy=CommitPolicy.PARTIAL)


def test_snapshots_are_refused(tmp_path: Path) -> None:
    made = lab(tmp_path, Table("orders", ExtractKind.SNAPSHOT_ONLY, 4))
    assert "a snapshot is published whole or not at all" in run(made).text
