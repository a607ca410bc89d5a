"""Staging: what is written once, what is valid, and what may be swept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import LostRaceError, RecordError, SourceError, StepLostError, StoreError, TargetError
from airflow_gobblin.model import plan as plan_module
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import FinishedRun, Plan
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind, StagedFile, UnitResult, UnitState, WorkUnit
from airflow_gobblin.rows.work import RowsBinding
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish, sweep
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.base import put_or_read
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace import staging as staging_module
from airflow_gobblin.workspace.staging import MARKS, ROOT, PlanResults, Staging, staging_folder
from tests.copy.mirrors import Trees
from tests.faults import Crash, died
from tests.lab import Lab
from tests.protocol.rows import Table

A, B = (Table(urn, ExtractKind.APPEND_ONLY, 10) for urn in "ab")
PLAN = Plan("t", "i", "key", 0, "d", Holds.RANGES, "d", (), RowsBinding(""))


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(LocalFiles(tmp_path), staging_folder("flights", "0123456789abcdef"))


def staged(staging: Staging, name: str, data: bytes = b"row\n") -> StagedFile:
    path = f"{staging.token_folder('t')}/{name}"
    with staging.files.create(path) as out:
        out.write(data)
    found = staging.files.identity(path)
    assert found is not None
    return StagedFile(path, found.size, "", 1, found.stamp)


def good(attempt: str, *files: StagedFile) -> UnitResult:
    return UnitResult("u0", attempt, UnitState.SUCCESSFUL, files=files)


def bad(attempt: str, error: str) -> UnitResult:
    return UnitResult(
        "u0", attempt, UnitState.FAILED, failure=Failure.of(SourceError(operation="read", subject="u0", cause=error))
    )


def test_another_journal_has_another_folder() -> None:
    assert staging_folder("flights", "a" * 32) == f"{ROOT}/flights-{'a' * 12}"
    assert staging_folder("flights", "b" * 32) != staging_folder("flights", "a" * 32)


def test_a_plan_is_written_once(staging: Staging) -> None:
    assert staging.plan("t") is None
    staging.put_plan(PLAN)
    staging.put_plan(replace(PLAN, generation=5))
    assert staging.plan("t") == PLAN
    assert staging.tokens() == ("t",)


def test_what_is_staged_is_private_before_anything_else_is_there(staging: Staging, tmp_path: Path) -> None:
    staging.put_plan(PLAN)
    assert (tmp_path / staging.folder).stat().st_mode & 0o077 == 0


def test_what_a_run_has_besides_its_plan_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Barrier(2, timeout=60)

    def waiting(store: Any, key: str, data: bytes) -> tuple[bytes, bool]:
        if key.endswith(("/work", "/packs/0")):
            both.wait()
        return put_or_read(store, key, data)

    monkeypatch.setattr(LocalFiles, "parallel", 2)
    monkeypatch.setattr("airflow_gobblin.workspace.staging.put_or_read", waiting)
    trees = Trees(tmp_path)
    trees.write("a/file")
    opened = trees.opened()
    run = create_work_units(opened, RunRequest("key"))
    assert opened.staging.pack(run.run, 0) == run.packs[0]


def test_the_first_good_result_of_a_unit_is_valid(staging: Staging) -> None:
    first, second = good("a1", staged(staging, "a1/x")), good("a2", staged(staging, "a2/x"))
    assert staging.result("t", "u0") is None
    assert staging.put_result("t", first) == first
    assert staging.put_result("t", second) == first
    assert staging.result("t", "u0") == first


@pytest.mark.parametrize("what", ["gone", "changed"])
def test_a_result_is_valid_only_while_its_files_keep_their_identity(staging: Staging, what: str) -> None:
    first, second = good("a1", staged(staging, "a1/x")), good("a2", staged(staging, "a2/x"))
    staging.put_result("t", first)
    at = Path(staging.files.root) / first.files[0].path
    at.unlink()
    if what == "changed":
        at.write_bytes(b"other\n")
    assert staging.result("t", "u0") is None
    assert staging.put_result("t", second) == second
    assert staging.result("t", "u0") == second


def test_a_failed_result_belongs_to_its_attempt_and_is_in_no_ones_way(staging: Staging) -> None:
    staging.put_result("t", bad("a1", "it broke"))
    assert staging.result("t", "u0") is None
    assert staging.failed_results("t") == {"u0": bad("a1", "it broke")}
    staging.put_result("t", good("a2"))
    assert staging.result("t", "u0") == good("a2")


@pytest.mark.parametrize(("older", "newer"), [("a1", "a2"), ("a2", "a1"), ("a1", "a1")])
def test_of_failed_results_the_newest_is_reported(staging: Staging, older: str, newer: str) -> None:
    """Attempts have random names, so their order means nothing."""
    newest = replace(bad(newer, "StoreError: the disk is full"), ended=2.0)
    staging.put_result("t", replace(bad(older, "SourceDataError: a row is bad"), ended=1.0))
    staging.put_result("t", newest)
    assert staging.failed_results("t") == {"u0": newest}


def test_what_is_not_there_is_reported_with_the_way_out(staging: Staging) -> None:
    assert staging.run("r") is None
    assert staging.pack("r", 0) is None
    with pytest.raises(TargetError, match=r"lacks the mark in .*/marks/ that was put there when the run was planned"):
        staging.work("r")
    staging.files.records(staging.folder).put_if_absent(f"{MARKS}any", b"")
    with pytest.raises(StoreError, match=r"'r/r/work' in file://.*Plan it anew"):
        staging.work("r")


def test_a_token_is_removed_with_all_it_has(staging: Staging) -> None:
    staging.put_plan(PLAN)
    staging.put_result("t", good("a1", staged(staging, "a1/x")))
    staging.remove_token("t")
    staging.remove_token("t")
    assert staging.tokens() == ()
    assert [*staging.files.walk(staging.folder)] == []


def test_a_torn_plan_is_an_error_and_no_absence(staging: Staging) -> None:
    staging.put_plan(PLAN)
    at = Path(staging.files.root) / staging.folder / "p" / "t"
    at.write_bytes(at.read_bytes()[:50])
    with pytest.raises(RecordError, match="p/t"):
        staging.plan("t")
    ((token, found),) = staging.plans()
    assert token == "t"
    assert isinstance(found, RecordError)


# Reading more than once


@pytest.mark.parametrize("kept", [10_000, 3, 0])
def test_results_are_read_again_in_the_same_order_however_many_are_kept(
    staging: Staging, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(staging_module, "KEPT", kept)
    units = ("u3", "u0", "u2", "u1")
    put = {unit: replace(good("a1", staged(staging, f"a1/{unit}")), unit=unit) for unit in units[1:]}
    for result in put.values():
        staging.put_result("t", result)
    results = PlanResults(staging, with_units(*units), checked=True)
    assert [*results.read(units[:2]), *results.read(units[2:])] == [*put.values()]
    for _ in range(2):
        assert again(results, {"u2", "u1"}) == [put["u2"], put["u1"]]


def with_units(*units: str) -> Plan:
    return replace(PLAN, units=tuple(WorkUnit(unit, PLAN.urn) for unit in units))


def again(results: PlanResults, units: set[str]) -> list[UnitResult]:
    return [result for _, result in results.with_units(units)]


@pytest.mark.parametrize("kept", [10_000, 1])
def test_of_a_failed_unit_the_try_that_came_furthest_is_the_result_if_it_may_be_cut(
    staging: Staging, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(staging_module, "KEPT", kept)
    for unit in ("u0", "u2"):
        staging.put_result("t", replace(good("a1", staged(staging, f"a1/{unit}")), unit=unit))
    cut = {
        rows: replace(
            good("a1", staged(staging, f"a1/{rows}")),
            unit="u1",
            state=UnitState.FAILED,
            actual_high=LongWatermark(rows),
            rows_read=rows,
        )
        for rows in (3, 9, 5)
    }
    for result in cut.values():
        staging.put_result("t", result)
    staging.put_result("t", replace(good("a2"), unit="u1", state=UnitState.FAILED))
    units = ("u0", "u1", "u2")
    assert [r.unit for r in PlanResults(staging, with_units(*units), checked=True).read(units)] == ["u0", "u2"]
    for best, gone in ((9, ()), (5, (9,))):
        for rows in gone:
            (Path(staging.files.root) / cut[rows].files[0].path).unlink()
        results = PlanResults(staging, with_units(*units), checked=False, cut=True)
        assert {r.unit for r in results.read(units)} == {*units}
        found = again(results, {*units})
        assert [r.unit for r in found] == [*units]
        assert found[1] == replace(cut[best], state=UnitState.SUCCESSFUL)


def test_what_is_read_again_is_what_was_read_whatever_is_valid_now(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "KEPT", 0)
    first, second = good("a1", staged(staging, "a1/x")), good("a2", staged(staging, "a2/x"))
    staging.put_result("t", first)
    at = Path(staging.files.root) / first.files[0].path
    at.rename(at.with_name("aside"))
    staging.put_result("t", second)
    results = PlanResults(staging, with_units("u0"), checked=True)
    assert [*results.read(["u0"])] == [second]
    at.with_name("aside").rename(at)
    assert staging.result("t", "u0") == first
    assert again(results, {"u0"}) == [second]


def test_a_result_that_was_swept_before_it_is_read_again_is_lost(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "KEPT", 0)
    staging.put_result("t", good("a1"))
    results = PlanResults(staging, with_units("u0"), checked=False)
    assert [*results.read(["u0"])] == [good("a1")]
    staging.remove_token("t")
    with pytest.raises(StepLostError, match="the result of unit 'u0': it is gone"):
        again(results, {"u0"})


def test_the_units_that_are_done_are_those_whose_files_are_there(staging: Staging) -> None:
    for unit, names in {"u0": "xyz", "u1": "", "u2": "xyz"}.items():
        files = (staged(staging, f"a1/{unit}{name}") for name in names)
        staging.put_result("t", replace(good("a1", *files), unit=unit))
    (Path(staging.files.root) / staging.token_folder("t") / "a1" / "u2y").unlink()
    assert staging.done_units("t", ["u0", "u1", "u2", "u3"]) == {"u0", "u1"}


def test_a_driver_on_another_disk_sees_no_result_that_has_files(staging: Staging, tmp_path: Path) -> None:
    elsewhere = Staging(LocalFiles(tmp_path / "unshared"), staging.folder)
    result = good("a1", *(staged(staging, f"a1/{name}") for name in "xyz"))
    assert (staging.visible(result), elsewhere.visible(result)) == (True, False)
    assert elsewhere.visible(good("a1"))


# Large plans


def units_of(count: int) -> Iterator[WorkUnit]:
    return (WorkUnit(f"u{n}", "d", LongWatermark(n), LongWatermark(n + 1), weight=n) for n in range(count))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 7])
def test_the_units_of_a_large_plan_are_in_pieces(staging: Staging, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(plan_module, "UNITS_TOGETHER", 2)
    staging.put_plan(PLAN, units_of(count))
    plan = staging.plan("t")
    assert plan == replace(PLAN, units=(*units_of(min(count, 2)),), more=count > 2)
    assert [*staging.units(plan)] == [*units_of(count)]
    pieces = list((Path(staging.files.root) / staging.token_folder("t")).glob("units/*"))
    assert len(pieces) == max(0, (count - 1) // 2)
    staging.put_result("t", good("a1"))
    assert [unit.id for unit, done in staging.units_done(plan) if done] == (["u0"] if count else [])


def test_a_plan_that_is_swept_while_it_is_read_has_lost(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "UNITS_TOGETHER", 1)
    staging.put_plan(PLAN, units_of(3))
    plan = staging.plan("t")
    assert plan is not None
    reading = staging.units(plan)
    next(reading)
    staging.remove_token("t")
    with pytest.raises(LostRaceError, match="the work units of dataset 'd': its plan could win no more and was swept"):
        list(reading)
    assert staging.plan("t") is None
    assert not (Path(staging.files.root) / staging.token_folder("t")).exists()


# Sweeping


def tokens(lab: Lab) -> tuple[str, ...]:
    return lab.opened().staging.tokens()


def test_what_can_still_win_is_kept_however_old_it_is(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened = lab.opened()
    plan = create_work_units(opened, RunRequest("old"))
    inprocess.extract(opened, plan, NoConnections())
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(0, path.stat().st_mtime_ns if path.is_file() else 0))
    assert sweep(opened) == ()
    assert len(tokens(lab)) == 1


def test_what_an_unfinished_decision_names_is_kept(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    assert sweep(lab.opened()) == ()
    assert {r.status for r in execute_commit_steps(opened, plan, plan.packs[0])} == {"committed"}
    assert sweep(lab.opened()) == (plan.packs[0].datasets[0].token,)
    assert tokens(lab) == ()
    assert lab.rows("a") == A.all_rows()


def test_what_lost_is_swept_by_whoever_comes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    loser = create_work_units(lab.opened(), RunRequest("loser"))
    lab.admin.set_watermark("a", LongWatermark(10), "moved")
    assert sweep(lab.opened()) == (loser.packs[0].datasets[0].token,)


def test_what_a_late_attempt_wrote_without_a_plan_is_swept(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    late = lab.opened().staging
    late.put_result("gone", good("late", staged(Staging(late.files, late.folder), "late/x")))
    assert set(sweep(lab.opened())) == {"gone", "t"}
    assert tokens(lab) == ()


def test_what_cant_be_judged_is_kept_and_stops_no_other(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    kept = create_work_units(lab.opened(), RunRequest("kept"))
    (token,) = (d.token for p in kept.packs for d in p.datasets if d.urn == "a")
    staging = lab.opened().staging
    at = tmp_path / staging.folder / "p" / token
    at.write_bytes(at.read_bytes()[:50])
    run = tmp_path / staging.folder / "r" / kept.run / "run"
    run.write_bytes(run.read_bytes()[:50])
    staging.finish_run(kept.run)
    assert {r.status for r in lab.run().values()} == {"committed"}
    assert tokens(lab) == (token,)
    assert kept.run in staging.runs()
    with pytest.raises(RecordError):
        staging.run(kept.run)


def test_a_run_is_kept_until_it_was_reported_and_its_tokens_are_gone(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    execute_commit_steps(opened, plan, plan.packs[0])
    sweep(lab.opened())
    assert opened.staging.runs() == (plan.run,), "finish has not reported it yet"
    finish(opened, plan)
    sweep(lab.opened())
    assert opened.staging.runs() == ()


def dying_at(end: str) -> Callable[[LocalFiles, str, str], None]:
    """A link that kills the process if the name has this end."""
    link = LocalFiles.link
    return lambda files, source, target: died() if target.endswith(end) else link(files, source, target)


def test_the_runs_of_killed_tries_go_once_their_tokens_can_win_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One try was killed after its plan, one within it, and one before it."""
    lab = Lab(tmp_path, A)
    request = RunRequest("run")
    create_work_units(lab.opened(), request)
    for key in ("work", "run"):
        with monkeypatch.context() as patched:
            patched.setattr(LocalFiles, "link", dying_at(f"/{key}"))
            with pytest.raises(Crash):
                create_work_units(lab.opened(), request)
    staging = lab.opened().staging
    (tmp_path / staging.folder / "r" / "killed").mkdir()
    other = create_work_units(lab.opened(), RunRequest("of somebody else's"))
    assert len(staging.runs()) == 4
    assert lab.run(request=request)["a"].status == "committed"
    sweep(lab.opened())
    assert staging.runs() == (other.run,), "nobody said that it is over"


def test_what_a_late_driver_reports_of_a_run_that_is_gone_goes_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    execute_commit_steps(opened, plan, plan.packs[0])
    finish(opened, plan)
    sweep(lab.opened())
    assert opened.staging.runs() == ()
    opened.staging.put_report(plan.run, 0, "late", FinishedRun())
    assert opened.staging.runs() == (plan.run,)
    sweep(lab.opened())
    assert opened.staging.runs() == ()


def test_a_plan_that_cant_be_read_fails_its_dataset_and_no_other(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B, max_packs=1)
    opened = lab.opened()
    plan = create_work_units(opened, RunRequest("run"))
    (token,) = (d.token for d in plan.packs[0].datasets if d.urn == "a")
    at = tmp_path / opened.staging.folder / "p" / token
    at.write_bytes(b"")
    inprocess.extract(opened, plan, NoConnections())
    written = {r.urn: r for r in write_commit_steps(opened, plan, plan.packs[0])}
    assert (written["a"].status, written["b"].status) == ("failed", "pending")
    assert f"p/{token}" in written["a"].detail
    execute_commit_steps(opened, plan, plan.packs[0])
    assert {r.urn: r.status for r in finish(opened, plan)} == {"a": "failed", "b": "committed"}
