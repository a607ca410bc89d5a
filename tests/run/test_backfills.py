"""Backfills: a run for a range, of some datasets, that fills what is open or replaces what is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, ExtractKind, Limits, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.reports import covered as reported
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.lab import Lab
from tests.protocol.rows import RowSource, Table

A, B = Table("a", ExtractKind.APPEND_ONLY, 20), Table("b", ExtractKind.APPEND_ONLY, 20)
S = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)


def backfill(
    start: int, end: int | None = None, *urns: str, replaces: bool = False, name: str = "backfill"
) -> RunRequest:
    return RunRequest(name, end, urns or ("a",), start, replaces)


def up_to(end: int) -> RunRequest:
    """As a scheduled run."""
    return RunRequest(f"up to {end}", datetime.fromtimestamp(end, UTC))


def covered(lab: Lab, urn: str = "a") -> str:
    return " ".join(str(part) for part in lab.journal.state(urn).coverage.ranges())


def edge(lab: Lab, urn: str = "a") -> LongWatermark:
    found = lab.journal.state(urn).watermark
    assert isinstance(found, LongWatermark)
    return found


def amended(table: Table) -> Table:
    """The table with other rows at the same positions."""
    return replace(table, version=table.version + 1)


def test_an_open_range_is_filled_and_the_watermark_waits_for_what_lies_before(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run(request=up_to(4))
    report = lab.run(request=backfill(10, 14))["a"]
    assert (report.status, report.rows, report.watermark) == ("committed", 4, LongWatermark(4))
    assert covered(lab) == "[0, 4) [10, 14)"
    assert lab.run()["a"].rows == 12, "rows that the backfill covered are not published again"
    assert lab.rows("a") == A.all_rows()
    assert edge(lab) == LongWatermark(20)


def test_what_other_runs_committed_of_several_positions_is_named_by_slots(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run(request=up_to(4))
    history = lab.journal.history("a")
    (slot,) = history.slots
    low, high = MultiLongWatermark((0, 0)), MultiLongWatermark((4, 4))
    units = {ref: replace(unit, low=low, actual_high=high) for ref, unit in history.state.live.items()}
    offsets = replace(history, state=replace(history.state, live=units))
    assert reported("a", Range(low, high), offsets).detail.endswith(
        f"was committed by another run: slot 1 by run {slot.decision.run!r}"
    )
    assert "without files" in reported("a", Range(high, MultiLongWatermark((5, 5))), offsets).detail


def test_a_first_run_may_be_a_backfill_and_the_first_load_still_begins_where_it_would_have(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    assert lab.run(request=backfill(10, 14))["a"].watermark == LongWatermark(0)
    lab.run()
    assert lab.rows("a") == A.all_rows()


def test_what_lies_before_the_origin_is_filled_for_itself(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.admin.set_watermark("a", LongWatermark(12), "older rows are not wanted")
    lab.run()
    assert lab.run(request=backfill(2, 6))["a"].watermark == LongWatermark(20)
    assert covered(lab) == "[2, 6) [12, 20)"
    assert lab.run()["a"].status == "idle"
    assert lab.rows("a") == Counter(A.row(n) for n in (*range(2, 6), *range(12, 20)))


def test_only_the_datasets_that_were_asked_for_are_backfilled(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B, S)
    assert set(lab.run(request=backfill(0, 4, "b"))) == {"b"}
    assert lab.journal.datasets() == ("b",)


@pytest.mark.parametrize("part", [(0, 4), (2, 3), (3, 9), (0, 20), (7, 30)])
def test_an_overlap_is_refused_by_name_and_nothing_changes(tmp_path: Path, part: tuple[int, int]) -> None:
    lab = Lab(tmp_path, A)
    lab.run(request=up_to(8))
    before, published = lab.records(), lab.published()
    report = lab.run(request=backfill(*part))["a"]
    assert report.status == "failed"
    assert "is covered already" in report.detail
    assert report.detail.endswith("or with an open range."), "to clear the run would ask for the same"
    assert "in slot 1 by run 'up to 8'" in report.detail
    assert '"replace": true' in report.detail
    assert (lab.records(), lab.published()) == (before, published)


def test_replacing_takes_units_whole_and_retires_their_files_in_one_outcome(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    old = lab.journal.read_dataset("a").paths
    now = amended(A)
    report = lab.run(now, request=backfill(6, 9, replaces=True))["a"]
    assert (report.slot, report.rows, report.watermark) == (2, 8, LongWatermark(20))
    decision = lab.journal.history("a").slot(2).decision
    assert decision.planned == Range(LongWatermark(4), LongWatermark(12))
    assert [str(ref.unit) for ref in decision.replaces] == ["u1", "u2"]
    assert lab.rows("a") == Counter(now.row(n) if 4 <= n < 12 else A.row(n) for n in range(20))
    assert covered(lab) == "[0, 20)"
    assert [Path(p).exists() for p in old] == [True] * 5, "until the next slot"
    lab.run(replace(now, rows=21))
    assert [Path(p).exists() for p in old] == [True, False, False, True, True]


def test_replacing_logs_that_the_range_is_widened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    lab = Lab(tmp_path, A)
    lab.run()
    lab.run(request=backfill(6, 9, replaces=True))
    assert "range [4, 12), widened from [6, 9) to the bounds of units, in place of 2 units of slots [1]" in caplog.text


def test_a_range_is_replaced_with_the_holes_in_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run(request=up_to(4))
    lab.run(request=backfill(8, 12))
    now = amended(A)
    assert lab.run(now, request=backfill(2, 10, replaces=True, name="anew"))["a"].watermark == LongWatermark(12)
    assert lab.rows("a") == Counter(now.row(n) for n in range(12))


def test_what_was_imported_or_skipped_can_be_replaced(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.admin.set_watermark("a", LongWatermark(0), "moved from another tool")
    lab.admin.set_watermark("a", LongWatermark(10), "moved on")
    lab.run()
    assert "without files (imported, or skipped)" in lab.run(request=backfill(2, 4))["a"].detail
    assert lab.run(request=backfill(2, 4, replaces=True))["a"].rows == 2
    assert covered(lab) == "[0, 20)"
    assert lab.rows("a") == Counter(A.row(n) for n in (2, 3, *range(10, 20)))
    first = lab.decide(request=backfill(4, 8, replaces=True, name="first"))
    lab.run(request=backfill(6, 7, replaces=True, name="second"))
    assert finished(*first)["a"].status == "committed", "it was decided before, and finished by the second"
    assert lab.rows("a") == Counter(A.row(n) for n in (*range(2, 8), *range(10, 20)))


def finished(opened: OpenJob, plan: RunPlan) -> dict[str, DatasetReport]:
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    return {report.urn: report for report in finish(opened, plan)}


def test_a_failed_unit_replaces_nothing_whatever_the_policy(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, policy=CommitPolicy.SUCCESSFUL)
    lab.run()
    report = lab.run(amended(A), request=backfill(0, 20, replaces=True), units=("a:u1",))["a"]
    assert report.status == "failed"
    assert lab.rows("a") == A.all_rows()


def test_limits_dont_cut_what_is_replaced(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.ingestion = replace(lab.ingestion, limits=Limits(rows=1))
    assert lab.run(request=backfill(0, 20, replaces=True))["a"].rows == 20


def test_asked_again_it_is_answered_and_with_another_request_it_is_done_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    asked = backfill(0, 4, replaces=True)
    assert lab.run(request=asked)["a"].slot == 2
    assert lab.run(request=asked)["a"].detail == "already committed in slot 2 by run 'backfill'"
    assert lab.run(request=replace(asked, request="once more"))["a"].slot == 3
    assert lab.rows("a") == A.all_rows()


def test_a_partial_backfill_is_completed_by_the_same_run(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, policy=CommitPolicy.SUCCESSFUL)
    lab.run(request=up_to(2))
    asked = backfill(4, 16)
    assert lab.run(request=asked, units=("a:u1",))["a"].status == "partial"
    assert lab.run(request=asked)["a"].rows == 4
    assert covered(lab) == "[0, 2) [4, 16)"


def test_a_snapshot_has_no_ranges(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, S)
    assert "is a snapshot" in lab.run(request=backfill(0, 4, "s"))["s"].detail
    reports = lab.run(request=RunRequest("all", 4, start=0))
    assert (reports["a"].status, reports["s"].status) == ("committed", "idle")
    assert "left out" in reports["s"].detail


def test_a_source_that_expresses_no_range_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    log = Log()
    opened = OpenJob(replace(lab.ingestion, source=log), lab.journal, NoConnections())
    (note,) = create_work_units(opened, backfill(0, 4)).notes
    assert note.status == "failed"
    assert "its source, a Log, can't express a range in its positions" in note.detail


@record("test.log")
@dataclass(frozen=True)
class Log:
    """A source whose positions aren't those of time, and that ignores ranges."""

    connection_ids: ClassVar[tuple[str, ...]] = ()

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return ()

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        return RowSource((A,)).datasets(connections)

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        raise AssertionError("it is not asked")

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        raise AssertionError("it is not asked")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"start": 4, "end": 4}, "is not before its end"),
        ({"start": datetime(2026, 2, 1, tzinfo=UTC), "end": datetime(2026, 1, 1, tzinfo=UTC)}, "is not before its end"),
        ({"start": 4, "end": datetime(2026, 1, 1, tzinfo=UTC)}, "can't be compared"),
        ({"replace": True}, "there is no start"),
        ({"end": 4}, "there is no start"),
    ],
)
def test_a_range_that_cant_be_is_refused(request_: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        RunRequest("run", **request_)  # type: ignore[arg-type]


def test_a_range_outside_the_data_and_a_dataset_that_isnt_there_are_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before = lab.records()
    report = lab.run(request=backfill(20, 30))["a"]
    assert (report.status, "ends at 20" in report.detail) == ("failed", True)
    with pytest.raises(ConfigurationError, match=r"\['nosuch'\].*has \['a'\]"):
        lab.run(request=backfill(0, 4, "nosuch"))
    assert lab.records() == before


def test_a_request_without_a_range_keeps_its_run_key() -> None:
    assert RunRequest("dag/run").run_key("i") == "1c131c865fe89cd4ee3ae89407973ca4"


def races() -> Iterator[tuple[RunRequest, RunRequest]]:
    scheduled, fills = RunRequest("scheduled"), backfill(10, 14, name="fills")
    yield scheduled, fills
    yield fills, scheduled
    for one in (scheduled, fills):
        yield one, backfill(2, 3, replaces=True, name="replaces")
        yield backfill(2, 3, replaces=True, name="replaces"), one
    yield backfill(2, 3, replaces=True, name="one"), backfill(1, 6, replaces=True, name="other")


@pytest.mark.parametrize(("first", "second"), [*races()], ids=lambda request: request.dag_run)
def test_a_backfill_and_another_run_at_once_publish_every_row_once(
    tmp_path: Path, first: RunRequest, second: RunRequest
) -> None:
    lab = Lab(tmp_path, A)
    lab.run(request=up_to(8))
    several = [lab.opened(), lab.opened()]
    plans = [create_work_units(p, request) for p, request in zip(several, (first, second), strict=True)]
    for opened, plan in zip(several, plans, strict=True):
        inprocess.extract(opened, plan, NoConnections())
    written = [write_commit_steps(p, plan, plan.packs[0])[0] for p, plan in zip(several, plans, strict=True)]
    assert written[0].status == "pending"
    finals = [finished(p, plan)["a"] for p, plan in zip(several, plans, strict=True)]
    assert finals[0].status == "committed"
    apart = "replaces" in (first.dag_run, second.dag_run)
    assert finals[1].status in (("committed",) if apart else ("covered", "lost"))
    expected = Counter(A.row(n) for part in lab.journal.state("a").coverage.ranges() for n in numbers(part))
    assert lab.rows("a") == expected
    lab.run()
    assert lab.rows("a") == A.all_rows()


def numbers(part: Range) -> range:
    assert isinstance(part.low, LongWatermark)
    assert isinstance(part.high, LongWatermark)
    return range(part.low.value, part.high.value)
