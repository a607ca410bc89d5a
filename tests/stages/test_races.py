"""Stages, and what they read, where others take a slot in the very moment: on real journals and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.faults import Call, Crash
from tests.stages.diamond import Diamond, dying, hooked


@pytest.fixture
def diamond(tmp_path: Path) -> Diamond:
    return Diamond(tmp_path)


@pytest.mark.slow
def test_a_restore_that_finds_another_ones_slot_pending_finishes_it(diamond: Diamond) -> None:
    to_restore(diamond)
    inprocess.run(before(diamond, "one/one/d/0000000003", lambda: die_in_restore(diamond)))
    assert diamond.slots("one")[3] == (Action.REWIND, True)
    diamond.grow(2)
    diamond.rest()
    assert len(diamond.rewinds("one")) == 1
    diamond.check()


@pytest.mark.slow
def test_a_stage_that_is_paused_just_before_it_restores_stays_as_it_is(diamond: Diamond) -> None:
    to_restore(diamond)
    pause = before(diamond, "one/one/d/0000000003", lambda: diamond.admin("one").pause("one", "it is looked at"))
    assert inprocess.run(pause)["one"].status == "paused"
    assert diamond.versions("one") == [6, 10]


def test_a_plan_is_given_up_only_once_what_was_decided_before_has_ended(diamond: Diamond) -> None:
    diamond.grow(6)
    diamond.rows += 4
    raw = diamond.opened(diamond.raw)
    plan = planned(raw, "a")
    again = RunRequest("raw/backfill", start=0, end=6, replace=True, datasets=("a",))
    with pytest.raises(Crash):
        inprocess.run(dying(diamond.opened(diamond.raw), "raw/a/o/0000000002"), request=again)
    assert raw.journal.history("a").pending is not None
    assert raw.committer.give_up(plan, plan.run, "a newer plan took its place")
    assert [slot.finished for slot in raw.journal.history("a").slots] == [True] * 3


def to_restore(diamond: Diamond) -> None:
    """Two versions, the second of which was made from what the source has taken back."""
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    diamond.rewind("a", 8)


def before(diamond: Diamond, key: str, act: Callable[[], object]) -> OpenJob:
    """The stage `one`, beside which something happens just before its first try to put a record."""
    waiting = [act]

    def hook(call: Call) -> None:
        if call.operation == "put" and call.subject == key and waiting:
            waiting.pop()()

    return hooked(diamond.opened(diamond.stages["one"]), hook)


def die_in_restore(diamond: Diamond) -> None:
    with pytest.raises(Crash):
        inprocess.run(dying(diamond.opened(diamond.stages["one"]), "one/one/o/0000000003"))


def planned(opened: OpenJob, urn: str) -> Plan:
    """The plan of a dataset, by a run that goes no further."""
    run = create_work_units(opened, RunRequest(f"{opened.job.name}/open"))
    plans = (opened.staging.plan(ref.token) for pack in run.packs for ref in pack.datasets)
    return next(plan for plan in plans if plan is not None and plan.urn == urn)
