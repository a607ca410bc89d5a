"""Batches across runs: what is held, when it is due, and what is seen of it meanwhile."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.admin.views import held
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError, RecordError
from airflow_gobblin.model.batch import Backlog, Batch, HeldBatch
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units, would_plan
from airflow_gobblin.run.replan import decide_and_plan_again
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.lab import Lab
from tests.protocol.rows import Table
from tests.services.environment import ROOT

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CLICKS = Table("clicks", ExtractKind.APPEND_ONLY, 3)


def lab(folder: Path, batch: Batch, *tables: Table) -> Lab:
    return Lab(folder / "lake", *tables, batch=batch)


def waits(made: Lab) -> dict[str, str]:
    opened = made.opened()
    found = held(made.journal, opened.files)
    return {} if found is None else dict(found.details)


def flush() -> RunRequest:
    return RunRequest(uuid.uuid4().hex, flush=True)


def test_what_is_below_all_bounds_is_held_and_nothing_is_read_or_written(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS)
    (report,) = made.run().values()
    assert (report.status, report.detail) == ("held", "3 rows, about 27 B, wait until 10 rows")
    assert report.status.green
    assert made.records().keys() == Lab(tmp_path / "other").records().keys()
    assert made.published() == {}
    assert waits(made) == {"clicks": report.detail}


def test_a_held_run_starts_no_spark(tmp_path: Path) -> None:
    assert create_work_units(lab(tmp_path, Batch(rows=10), CLICKS).opened(), RunRequest("run")).packs == ()


def test_a_folder_that_is_gone_stops_its_dataset_while_rows_wait_too(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS)
    later = (replace(CLICKS, rows=15), replace(CLICKS, urn="views"))
    assert made.run(replace(CLICKS, rows=12))["clicks"].status == "committed"
    (made.folder / "clicks").rename(tmp_path / "away")
    prospects = {one.urn: one for one in would_plan(made.opened(*later), RunRequest("look")).datasets}
    reports = made.run(*later)
    assert [prospects["clicks"].status, reports["clicks"].status] == ["failed", "failed"]
    for detail in (prospects["clicks"].detail, reports["clicks"].detail):
        assert "to which slot 1 published, is empty or not there" in detail
    (tmp_path / "away").rename(made.folder / "clicks")
    assert {report.status for report in made.run(*later).values()} == {"held"}


def test_rows_are_published_once_enough_of_them_wait(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS)
    statuses = []
    for rows in (3, 6, 9, 12, 15, 21, 22):
        statuses.append(made.run(replace(CLICKS, rows=rows))["clicks"].status)
        assert len(waits(made)) == (statuses[-1] == "held")
    assert statuses == ["held", "held", "held", "committed", "held", "held", "committed"]
    assert made.rows("clicks") == replace(CLICKS, rows=22).all_rows()
    assert made.run()["clicks"].status == "idle"
    assert waits(made) == {}


@pytest.mark.parametrize(
    ("batch", "rows", "waited", "used", "due"),
    [
        (Batch(rows=3), 3, None, 0.0, True),
        (Batch(rows=4), 3, None, 0.0, False),
        (Batch(bytes=30), 3, None, 0.0, True),
        (Batch(bytes=31), 3, None, 0.0, False),
        (Batch(age=HOUR), 3, HOUR, 0.0, True),
        (Batch(age=HOUR), 3, HOUR - timedelta(microseconds=1), 0.0, False),
        (Batch(rows=100, age=HOUR), 3, HOUR, 0.0, True),
        (Batch(rows=3, age=HOUR), 3, timedelta(0), 0.0, True),
        (Batch(rows=100), 3, None, 0.5, True),
        (Batch(rows=100), 3, None, 0.49, False),
        (Batch(rows=100, kept=0.2), 3, None, 0.2, True),
        (Batch(age=HOUR), 3, -HOUR, 0.0, False),
    ],
)
def test_one_bound_that_is_reached_is_enough(
    batch: Batch, rows: int, waited: timedelta | None, used: float, due: bool
) -> None:
    oldest = None if waited is None else NOON - waited
    assert batch.holds(Backlog(NOON, rows, 10 * rows, oldest, used=used)) is not due


def test_nothing_that_waits_is_not_held() -> None:
    assert not Batch(rows=3).holds(Backlog(NOON, 0))


def test_an_unknown_size_leaves_the_other_bounds() -> None:
    assert Batch(bytes=1, rows=4).holds(Backlog(NOON, 3))


def test_a_flush_publishes_what_waits(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS, replace(CLICKS, urn="views"))
    made.run()
    assert {*waits(made)} == {"clicks", "views"}
    reports = made.run(request=RunRequest("flushed", datasets=("clicks",), flush=True))
    assert reports["clicks"].status == "committed"
    assert made.rows("clicks") == CLICKS.all_rows()
    assert {*waits(made)} == {"views"}, "which the flush didn't ask for"


def test_a_flush_that_names_a_paused_dataset_is_not_green(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS, replace(CLICKS, urn="views"))
    made.run(replace(CLICKS, rows=12), replace(CLICKS, urn="views", rows=12))
    made.admin.pause("clicks", "to look at it")
    report = made.run(request=RunRequest("one", datasets=("clicks",), flush=True))["clicks"]
    assert (report.status, "to look at it" in report.detail) == ("failed", True)
    assert made.run(request=flush())["clicks"].status == "paused", "one of all passes it by"


def test_a_torn_record_of_what_is_held_keeps_no_run_from_anything(tmp_path: Path) -> None:
    """Only people read it."""
    made = lab(tmp_path, Batch(rows=10), CLICKS)
    (report,) = made.run().values()
    for torn in (b"", b"{}"):
        (path,) = (tmp_path / "lake/_gobblin").glob("*/h/*")
        path.write_bytes(torn)
        with pytest.raises(RecordError):
            waits(made)
        assert [one.status for one in made.run().values()] == ["held"]
        assert waits(made) == {"clicks": report.detail}
    made.run(replace(CLICKS, rows=12))
    assert waits(made) == {}


def test_what_waited_for_a_dataset_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS, replace(CLICKS, urn="views"))
    made.run()
    assert {*waits(made)} == {"clicks", "views"}
    made.run(CLICKS, request=RunRequest("one", datasets=("clicks",)))
    assert {*waits(made)} == {"clicks"}


def test_a_flush_that_is_retried_is_done_once(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS)
    request = RunRequest("flushed", flush=True)
    assert request.run_key("lab") != RunRequest("flushed").run_key("lab")
    made.run(request=request)
    report = made.run(replace(CLICKS, rows=5), request=request)["clicks"]
    assert report.detail.startswith("already committed")
    assert made.rows("clicks") == CLICKS.all_rows()


def test_a_flush_that_loses_plans_again(tmp_path: Path) -> None:
    """Others publish a part of what it planned, and then a part of what it planned again."""
    made = lab(tmp_path, Batch(rows=10), replace(CLICKS, rows=12))
    scheduled = made.extracted(request=RunRequest("scheduled"))
    request, opened = flush(), made.opened(replace(CLICKS, rows=15))
    plan = create_work_units(opened, request)
    inprocess.extract(opened, plan, NoConnections())
    published(made, *scheduled)
    assert made.rows("clicks").total() == 12
    assert decide_and_plan_again(opened, request, plan, plan.packs[0])
    again = opened.staging.run(plan.run)
    assert again is not None
    assert again.packs != plan.packs
    inprocess.extract(opened, again, NoConnections())
    assert made.run(request=RunRequest("backfill", 14, (), 13))["clicks"].rows == 1
    report = inprocess.go_on(opened, again, NoConnections(), request)["clicks"]
    assert (report.status, report.rows) == ("committed", 2)
    assert made.rows("clicks") == replace(CLICKS, rows=15).all_rows()


def published(made: Lab, opened: OpenJob, plan: RunPlan) -> dict[str, DatasetReport]:
    return inprocess.go_on(opened, plan, NoConnections())


def test_a_flush_is_done_when_what_waited_at_its_start_is_published(tmp_path: Path) -> None:
    """By others, though more waits by now."""
    made = lab(tmp_path, Batch(rows=10), replace(CLICKS, rows=12))
    request, opened = flush(), made.opened()
    first, second = (made.extracted(request=RunRequest(name)) for name in ("one", "two"))
    plan = create_work_units(opened, request)
    published(made, *made.extracted(request=RunRequest("three", 8, (), 0)))
    inprocess.extract(opened, plan, NoConnections())
    grown = made.opened(replace(CLICKS, rows=15))
    assert decide_and_plan_again(grown, request, plan, plan.packs[0])
    made.run(replace(CLICKS, rows=12), request=RunRequest("four", flush=True))
    (report,) = inprocess.go_on(grown, grown.staging.run(plan.run) or plan, NoConnections(), request).values()
    assert report.status == "covered"
    assert {published(made, *other)["clicks"].status for other in (first, second)} == {"covered"}
    assert made.rows("clicks") == replace(CLICKS, rows=12).all_rows()


def test_a_flush_that_a_person_gave_up_is_not_planned_again(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS)
    request = flush()
    opened, plan = made.extracted(request=request)
    made.admin.abandon("clicks", "not today")
    assert not decide_and_plan_again(opened, request, plan, plan.packs[0])
    assert inprocess.go_on(opened, plan, NoConnections(), request)["clicks"].status == "lost"


def test_a_backfill_is_not_held(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), replace(CLICKS, rows=40))
    made.run()
    again = RunRequest("again", start=4, end=6, replace=True)
    assert made.run(request=again)["clicks"].status == "committed"
    assert made.rows("clicks") == replace(CLICKS, rows=40).all_rows()


def test_the_rest_of_a_failed_batch_counts_as_waiting(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), replace(CLICKS, rows=12))
    made.ingestion = replace(made.ingestion, policy=CommitPolicy.SUCCESSFUL)
    assert made.run(units=("clicks:u1",))["clicks"].status == "partial"
    assert made.run()["clicks"].status == "held", "the four rows of the hole"
    assert made.run(replace(CLICKS, rows=18))["clicks"].status == "committed"
    assert made.rows("clicks") == replace(CLICKS, rows=18).all_rows()


def test_a_pending_slot_is_finished_though_the_rest_is_held(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), replace(CLICKS, rows=12))
    made.decide()
    made.run(replace(CLICKS, rows=13))
    assert made.rows("clicks") == replace(CLICKS, rows=12).all_rows()
    assert {*waits(made)} == {"clicks"}


def test_snapshots_are_not_held(tmp_path: Path) -> None:
    table = Table("countries", ExtractKind.SNAPSHOT_ONLY, 3)
    made = lab(tmp_path, Batch(rows=10), table)
    assert made.run()["countries"].status == "committed"


def test_a_look_ahead_shows_what_is_held_and_writes_nothing(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS)
    (one,) = would_plan(made.opened(), RunRequest("look")).datasets
    assert (one.status, one.detail) == ("held", "3 rows, about 27 B, wait until 10 rows")
    assert waits(made) == {}


@pytest.mark.slow
def test_any_boundaries_of_runs_give_the_same_rows(tmp_path: Path) -> None:
    for number, batch in enumerate((Batch(rows=1), Batch(rows=7), Batch(bytes=99), Batch(rows=1000))):
        made = lab(tmp_path / str(number), batch, CLICKS)
        for rows in range(0, 40, 3):
            made.run(replace(CLICKS, rows=rows))
        made.run(request=flush())
        assert made.rows("clicks") == replace(CLICKS, rows=39).all_rows() == Counter(made.rows("clicks"))


def test_the_page_of_batches(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "batches.md").read_text()
    (code,) = re.findall(r"<!-- test: batches -->\n```python\n(.*?)```", page, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(code.replace("/lake/", f"{tmp_path}/"), "batches.md", "exec"), defined)
    assert defined["orders"].batch == Batch(bytes=256 << 20, age=HOUR)
    (example,) = re.findall(r"^> held: (.+)$", page, re.MULTILINE)
    backlog = Backlog(NOON + timedelta(minutes=22, seconds=10), 41_203, 12_412_000, NOON)
    noon = "2026-01-31 13:00:00"
    assert str(HeldBatch(defined["orders"].batch, backlog)) == example.replace(noon, "2026-03-01 13:00:00")


# bad input


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({}, "it has no bound"),
        ({"bytes": 0}, "it is not above zero"),
        ({"rows": -1}, "it is not above zero"),
        ({"age": timedelta(0)}, "it is not above zero"),
        ({"rows": 1, "kept": 0.0}, "it is not a share"),
        ({"rows": 1, "kept": 1.1}, "it is not a share"),
    ],
)
def test_a_batch_without_meaning_is_refused(options: dict[str, object], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        Batch(**options)  # type: ignore[arg-type]


def test_an_age_needs_times(tmp_path: Path) -> None:
    made = lab(tmp_path, Batch(age=HOUR), CLICKS, replace(CLICKS, urn="timed", waited=7200.0))
    reports = made.run()
    assert reports["timed"].status == "committed"
    assert reports["clicks"].status == "failed"
    assert "the positions of its rows show no times" in reports["clicks"].text


def test_an_age_above_what_the_source_keeps_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"its source keeps rows for 1:00:00 only.*below 1:00:00"):
        Batch(age=HOUR).check(Backlog(NOON, 1, oldest=NOON, keeps=HOUR), "clicks")


def test_a_source_that_does_not_report_what_waits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lab(tmp_path, Batch(rows=10), CLICKS)
    monkeypatch.setattr(Table, "backlog", lambda *_: None)
    report = inprocess.run(made.opened(), NoConnections())["clicks"]
    assert report.status == "failed"
    assert "its source, a RowSource, doesn't report what waits" in report.text
