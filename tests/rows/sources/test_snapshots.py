"""A source of an author's own gives the reason why the units of a load that takes a dataset whole show one state of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import SourceError
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, ExtractKind, WorkUnit
from airflow_gobblin.rows.extraction import extract_unit
from airflow_gobblin.rows.sources.base import Consistency, DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from tests.lab import Lab
from tests.protocol.rows import RowSource, Table

WHOLE = Table("whole", ExtractKind.SNAPSHOT_ONLY, 10)
FIRST = Table("first", ExtractKind.SNAPSHOT_APPEND, 10)
OTHER = Table("other", ExtractKind.APPEND_ONLY, 10)


@record("test.said")
@dataclass(frozen=True)
class Said(RowSource):
    """Rows whose plans give the reason why their units show one state; plans of an append-only table give none."""

    said: Consistency = Consistency.ONE_UNIT

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        plan = super().plan(dataset, states, request, connections)
        return replace(plan, consistency=Consistency.ONE_UNIT if dataset.urn == OTHER.urn else self.said)


@record("test.shared")
@dataclass(frozen=True)
class Shared(Said):
    """The same, with snapshots to share.

    :param broken: whether none exists.
    """

    broken: bool = False
    log: ClassVar[list[str]] = []

    @contextmanager
    def snapshot(self, connections: Connections) -> Iterator[str]:
        self.log.append("asked")
        if self.broken:
            raise OSError("the line is dead")
        yield "../snapshot of my own"
        self.log.append("released")

    def read(self, unit: WorkUnit, schema: object, request: ReadRequest, connections: Connections) -> Reader:
        self.log.append(f"{unit.urn} {request.snapshot}".rstrip())
        return super().read(unit, schema, request, connections)


def run(folder: Path, source: Said) -> tuple[Lab, dict[str, DatasetReport]]:
    Shared.log.clear()
    lab = Lab(folder)
    lab.ingestion = replace(lab.ingestion, source=source, max_packs=1)
    return lab, lab.run()


def test_a_load_that_takes_all_by_several_units_and_gives_no_reason_is_refused_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    lab, reports = run(tmp_path, Said((WHOLE, FIRST, OTHER)))
    for urn in ("whole", "first"):
        assert reports[urn].status == "failed"
        assert "its source doesn't declare that these show one state of it" in reports[urn].detail
    assert reports["other"].status == "committed"
    assert lab.rows("other") == OTHER.all_rows()


def test_one_unit_needs_no_word(tmp_path: Path) -> None:
    _, reports = run(tmp_path, Said((replace(WHOLE, unit_rows=10), replace(FIRST, unit_rows=10))))
    assert {report.status for report in reports.values()} == {"committed"}


def test_only_the_first_load_of_a_snapshot_append_takes_all(tmp_path: Path) -> None:
    lab, _ = run(tmp_path, Said((FIRST,), Consistency.UNCHANGING))
    grown = replace(FIRST, rows=20)
    lab.ingestion = replace(lab.ingestion, source=Said((grown,)))
    assert lab.run()["first"].files == 3
    assert lab.rows("first") == grown.all_rows()


def test_a_plan_that_wants_a_snapshot_of_a_source_that_has_none_is_refused(tmp_path: Path) -> None:
    _, reports = run(tmp_path, Said((WHOLE,), Consistency.ONE_SNAPSHOT))
    assert "its plan wants one snapshot, and its source, a Said, has no method `snapshot`" in reports["whole"].detail


def test_a_pack_holds_one_snapshot_for_all_plans_that_want_one_and_then_lets_it_go(tmp_path: Path) -> None:
    lab, reports = run(tmp_path, Shared((OTHER, WHOLE, FIRST), Consistency.ONE_SNAPSHOT))
    assert {report.status for report in reports.values()} == {"committed"}
    held = [f"{urn} ../snapshot of my own" for urn in ("whole", "first")]
    assert Counter(Shared.log) == Counter({"asked": 1, "released": 1, "other": 3, held[0]: 3, held[1]: 3})
    assert Shared.log[-1] == "released"
    assert lab.rows("whole") == WHOLE.all_rows()


def test_no_snapshot_is_taken_where_no_plan_wants_one(tmp_path: Path) -> None:
    run(tmp_path, Shared((OTHER,), Consistency.ONE_SNAPSHOT))
    assert set(Shared.log) == {"other"}


def test_a_source_that_can_not_give_its_snapshot_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"OSError: the line is dead"):
        run(tmp_path, Shared((WHOLE, FIRST), Consistency.ONE_SNAPSHOT, broken=True))
    assert Shared.log == ["asked"]


def test_a_unit_whose_snapshot_nobody_holds_is_not_read(tmp_path: Path) -> None:
    source = Shared((WHOLE,), Consistency.ONE_SNAPSHOT)
    lab = Lab(tmp_path)
    lab.ingestion = replace(lab.ingestion, source=source)
    opened = lab.opened()
    run = create_work_units(opened, RunRequest("run"))
    ((plan, unit), *_) = missing_units(opened, run.packs[0])
    result = extract_unit(lab.ingestion.work, plan, unit, "a", opened.files, "s", NoConnections())
    assert "its plan is to be read in one snapshot, and none is held" in str(result.why)
