"""Many datasets: what is listed once, what is read together, and what isn't read at all."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal import journal
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import STEPS_PER_SHARD, Journal
from airflow_gobblin.model import plan as plans
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import (
    Dataset,
    DatasetRef,
    ExtractKind,
    Pack,
    StagedFile,
    UnitResult,
    UnitState,
    WorkUnit,
)
from airflow_gobblin.operators.task_logs import IDLE_LOGGED, log_reports
from airflow_gobblin.operators.tasks import CreateWorkUnitsOperator
from airflow_gobblin.rows.sources.base import DatasetPlan
from airflow_gobblin.run.announce import note_announced, unannounced
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import base
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.lab import Lab
from tests.protocol.rows import SCHEMA, LineSink, RowSource, Table

pytestmark = pytest.mark.slow

TABLES = tuple(Table(f"t{number:02d}", ExtractKind.APPEND_ONLY, 4) for number in range(10))


class Counted(MemoryStore):
    """Record what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []
        self.together: list[int] = []

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.asked.append(("put", key))
        return super().put_if_absent(key, data)

    def get(self, key: str) -> bytes | None:
        self.asked.append(("get", key))
        return super().get(key)

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        self.together.append(len(keys))
        return ((key, MemoryStore.get(self, key)) for key in keys)

    def list(self, prefix: str) -> Iterator[str]:
        self.asked.append(("list", prefix))
        return super().list(prefix)


@pytest.fixture
def store() -> Counted:
    return Counted()


@pytest.fixture
def lab(tmp_path: Path, store: Counted) -> Lab:
    """Ten datasets, all committed and announced."""
    lab = Lab(tmp_path, *TABLES, store=store)
    lab.run()
    opened = lab.opened()
    for slot, _ in [*unannounced(opened)]:
        note_announced(opened, slot, "run")
    lab.reopened()
    store.asked.clear()
    store.together.clear()
    return lab


HOME = [("get", "_homes/lab/0000000001"), ("get", "_homes/lab/0000000002")]
"""The home of the ingestion: the only other thing that is read, once per task; and planning looks again for a newer one."""


def test_the_recovery_check_of_idle_datasets_is_one_listing(lab: Lab, store: Counted) -> None:
    assert verify_recover(lab.opened(), RunRequest("next")) == ()
    assert store.asked == [*HOME, ("list", "lab/")]
    assert sum(store.together) == 0


def test_planning_idle_datasets_is_one_listing_and_one_read_and_writes_nothing(lab: Lab, store: Counted) -> None:
    run = create_work_units(lab.opened(), RunRequest("next"))
    assert not run.packs
    assert [note.status for note in run.notes] == ["idle"] * len(TABLES)
    assert [note.urn for note in run.notes] == [table.urn for table in TABLES], "in the order of the source"
    assert store.asked == [*HOME, HOME[1], ("list", "lab/")]
    assert store.together == [2 * len(TABLES)], "a decision and an outcome each"


def test_finishing_a_run_of_idle_datasets_reads_each_once(lab: Lab, store: Counted) -> None:
    run = create_work_units(lab.opened(), RunRequest("next"))
    lab.reopened()
    store.asked.clear()
    store.together.clear()
    reports = finish(lab.opened(), run)
    assert {report.status for report in reports} == {"idle"}
    assert [(what, key) for what, key in store.asked if what != "list"] == HOME
    assert store.together == [2 * len(TABLES)]


def test_what_is_announced_is_known_by_its_keys(lab: Lab, store: Counted) -> None:
    assert [*unannounced(lab.opened())] == []
    assert store.asked == [("list", "lab/")]
    assert sum(store.together) == 0


def test_only_what_may_be_pending_is_read(lab: Lab, store: Counted) -> None:
    lab.decide(*TABLES[1:], Table("t00", ExtractKind.APPEND_ONLY, 8))
    lab.reopened()
    store.together.clear()
    (report,) = verify_recover(lab.opened(), RunRequest("next"))
    assert (report.urn, report.status) == ("t00", "recovered")
    assert store.together[0] == 3, "two decisions and an outcome"


def test_many_datasets_are_read_a_few_at_a_time(lab: Lab, store: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_READ_TOGETHER", 10)
    found = dict(lab.journal.histories())
    assert [*found] == [table.urn for table in TABLES]
    assert all(isinstance(history, History) and history.state.head == 1 for history in found.values())
    assert store.together == [10] * 2


def test_one_that_cant_be_read_stops_no_other(lab: Lab, store: Counted) -> None:
    store.delete("lab/t07/d/0000000001")
    store.put_if_absent("lab/t07/d/0000000001", b"torn")
    found = dict(lab.journal.histories())
    assert [key for key, history in found.items() if not isinstance(history, History)] == ["t07"]


def test_a_source_may_look_at_every_state(lab: Lab) -> None:
    from airflow_gobblin.run.inputs import States

    states = States(lab.journal)
    assert len(states) == len(TABLES)
    assert {urn: state.head for urn, state in states.items()} == {table.urn: 1 for table in TABLES}
    assert states["nobody"].head == 0


def test_of_thousands_of_idle_datasets_the_log_gives_the_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ingestion = Ingestion("lab", RowSource(TABLES), LineSink(str(tmp_path)), str(tmp_path / "journal"))
    operator = CreateWorkUnitsOperator(task_id="create_work_units", job=ingestion)
    reports = [*(DatasetReport(f"t{n}", Status.IDLE) for n in range(10_000)), DatasetReport("bad", Status.FAILED)]
    log_reports(operator.log, reports)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == IDLE_LOGGED + 2
    assert sum("dataset 'bad': failed" in line for line in lines) == 1
    assert f"idle, too: {10_000 - IDLE_LOGGED:,} more datasets" in lines[-1]


def test_a_listing_may_be_longer_than_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_gobblin.storage.stores import sql

    monkeypatch.setattr(sql, "_KEYS_A_QUERY", 3)
    store = sql.SqlStore(f"sqlite:///{tmp_path}/journal.db")
    keys = [f"a/{number}" for number in range(9)]
    for key in [*keys, "b"]:
        store.put_if_absent(key, b"")
    assert [*store.list("a/")] == keys
    assert [*store.list("")] == [*keys, "b"]
    store.close()


def test_what_was_read_before_is_kept_up_to_a_size(lab: Lab, store: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Journal(store, "lab", lab.journal.id)
    monkeypatch.setattr(journal, "_BYTES_KEPT", 3000)
    for table in TABLES:
        fresh.history(table.urn)
    assert fresh._bytes_kept <= 3000


@pytest.fixture
def new_heap() -> None:
    """Have `gc.get_objects` give what is made from now on, without all that was imported, which would take seconds."""
    gc.collect()
    gc.freeze()


# One dataset of many files


class Watched(MemoryStore):
    """Count the results and staged files that are in memory whenever a shard of steps is put."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[int] = []

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if "/c/" in key:
            self.alive.append(alive())
        return super().put_if_absent(key, data)


def alive() -> int:
    gc.collect()  # how much it leaves by itself depends on how large the heap was before
    return sum(type(thing) in (UnitResult, StagedFile) for thing in gc.get_objects())


UNITS, FILES_A_UNIT = 200, 200


def extracted(tmp_path: Path, store: Watched | None = None) -> tuple[OpenJob, RunPlan, Plan]:
    """A dataset of 40,000 staged files, which are one: its results name it that many times."""
    opened = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, UNITS, unit_rows=1), store=store).opened()
    run = create_work_units(opened, RunRequest("run"))
    plan = opened.staging.plan(run.packs[0].datasets[0].token)
    assert plan is not None
    out = opened.files.stage(f"{opened.staging.token_folder(plan.token)}/attempt/file", "unused")
    out.write(b"row\n")
    files = (out.finish(1),) * FILES_A_UNIT
    for unit in plan.units:
        result = UnitResult(unit.id, "attempt", UnitState.SUCCESSFUL, actual_high=unit.expected_high, files=files)
        opened.staging.put_result(plan.token, result)
    return opened, run, plan


def test_while_steps_are_written_few_of_many_files_are_in_memory(tmp_path: Path, new_heap: None) -> None:
    store = Watched()
    opened, run, plan = extracted(tmp_path, store)
    (report,) = write_commit_steps(opened, run, run.packs[0])
    assert (report.status, report.files) == ("pending", UNITS * FILES_A_UNIT)
    assert len(store.alive) == UNITS * FILES_A_UNIT / STEPS_PER_SHARD
    assert 0 < max(store.alive) < UNITS * FILES_A_UNIT / 3
    decision = opened.journal.history("a").slots[0].decision
    targets = [file.path for step in opened.journal.steps(decision) for file in step.files()]
    assert targets == [f"a/{plan.token}-{unit.id}-{n}.txt" for unit in plan.units for n in range(FILES_A_UNIT)]


@pytest.mark.parametrize("slow", [False, True])
def test_of_many_results_few_are_in_memory_while_their_files_are_looked_at(
    tmp_path: Path, new_heap: None, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    if slow:  # then many files are looked at at once
        monkeypatch.setattr(base, "_SECONDS_OF_A_CALL", 0.0)
    opened, _, plan = extracted(tmp_path)
    found = opened.staging.results(plan.token, (unit.id for unit in plan.units))
    counts = [alive() for number, _ in enumerate(found) if number % 20 == 0]
    assert len(counts) == UNITS / 20
    assert 0 < max(counts) < UNITS * FILES_A_UNIT / 10
    assert [*missing_units(opened, Pack(0, "", (DatasetRef("a", plan.token, 0),)))] == []


def test_few_results_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, TABLES[0])
    opened = lab.opened()
    run = create_work_units(opened, RunRequest("run"))
    inprocess.extract(opened, run, NoConnections())
    asked: list[str] = []
    get = LocalStore.get

    def noted(self: LocalStore, key: str) -> bytes | None:
        asked.append(key)
        return get(self, key)

    monkeypatch.setattr(LocalStore, "get", noted)
    write_commit_steps(opened, run, run.packs[0])
    token = run.packs[0].datasets[0].token
    assert [key for key in asked if "/results/" in key] == [f"s/{token}/results/u0.0"]


def test_of_a_large_plan_few_units_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_heap: None
) -> None:
    """Neither while it is written, as the source gives them, nor while it is read through."""
    monkeypatch.setattr(plans, "UNITS_TOGETHER", 50)
    counts = []

    def watched(units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
        for number, unit in enumerate(units):
            if number % 50 == 0:
                counts.append(_units_in_memory())
            yield unit

    def plan(self: RowSource, dataset: Dataset, *_: Any) -> DatasetPlan:
        high = LongWatermark(1000)
        units = (WorkUnit(f"u{n}", "a", LongWatermark(n), LongWatermark(n + 1), weight=1) for n in range(high.value))
        return DatasetPlan(watched(units), SCHEMA, Range(LongWatermark(0), high))

    monkeypatch.setattr(RowSource, "plan", plan)
    opened = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, 1000)).opened()
    (pack,) = create_work_units(opened, RunRequest("run")).packs
    assert pack.weight == 1000
    missing = [unit.id for unit in watched(unit for _, unit in missing_units(opened, pack))]
    assert missing == [f"u{n}" for n in range(1000)]
    assert len(counts) == 40
    assert 0 < max(counts) <= 200


def _units_in_memory() -> int:
    gc.collect()
    return sum(type(thing) is WorkUnit for thing in gc.get_objects())
