"""Stages on the tasks of the graph, with real journals and files: a diamond, and what a rewind of its source brings about."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import Attempt
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind, UnitResult, UnitState, WorkUnit
from airflow_gobblin.run import replan
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.stages.rewind import following, would_rewind, would_rewind_source
from airflow_gobblin.testing import inprocess
from tests.faults import Call, Crash, Faults, FaultyStore
from tests.stages.diamond import Diamond, dying
from tests.stages.lines import JoinedLines, evaluations, joined, lines


@pytest.fixture
def diamond(tmp_path: Path) -> Diamond:
    return Diamond(tmp_path)


def test_each_version_is_made_once_in_order_from_what_its_upstreams_published_for_it(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    reports = [diamond.run(name) for name in diamond.stages]
    assert [diamond.versions(name) for name in diamond.stages] == [[6, 10]] * 3, "one run makes all that are ready"
    assert diamond.slots("both") == {1: (Action.COMMIT, True), 2: (Action.COMMIT, True)}
    assert [(report.status, report.slot) for report in reports] == [("committed", 2)] * 3
    assert (reports[0].detail, reports[0].rows) == ("2 versions, in slots 1 to 2", 10)
    diamond.check()


@pytest.mark.slow
def test_what_was_made_stays_if_a_later_version_fails_and_the_next_run_goes_on_there(
    diamond: Diamond, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows in (6, 4, 5):
        diamond.grow(rows)
    run = JoinedLines.run

    def fails(work: JoinedLines, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        if plan.checkpoint is not None and plan.checkpoint.version.timestamp() == 10:
            return UnitResult(unit.id, attempt.id, UnitState.FAILED)
        return run(work, unit, plan, attempt)

    monkeypatch.setattr(JoinedLines, "run", fails)
    report = diamond.run("one")
    assert (report.status, diamond.versions("one")) == ("failed", [6])
    monkeypatch.undo()
    assert diamond.run("one").detail == "2 versions, in slots 2 to 3"
    diamond.rest()
    diamond.check()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["one/one/d/0000000002", "one/one/o/0000000002", "one/one/d/0000000003"])
def test_a_backlog_whose_run_died_is_gone_on_with_by_a_retry_and_each_version_is_made_once(
    diamond: Diamond, key: str
) -> None:
    for rows in (6, 4, 5):
        diamond.grow(rows)

    def die(call: Call) -> None:
        if call.operation == "put" and call.subject == key:
            raise Crash

    opened, request = diamond.opened(diamond.stages["one"]), RunRequest("one/late")
    run = create_work_units(opened, request)
    opened.journal.store = FaultyStore(opened.journal.store, Faults(hook=die))
    with pytest.raises(Crash):
        inprocess.go_on(opened, run, NoConnections(), request)
    again = diamond.opened(diamond.stages["one"])
    newest = again.staging.run(run.run)
    assert newest is not None
    assert inprocess.go_on(again, newest, NoConnections(), request)["one"].status == "committed"
    assert diamond.slots("one") == dict.fromkeys((1, 2, 3), (Action.COMMIT, True))
    diamond.rest()
    diamond.check()


@pytest.mark.slow
def test_a_late_try_of_a_run_changes_nothing_of_what_another_try_has_gone_on_with(diamond: Diamond) -> None:
    """It comes with the first plan when the run is at its second."""
    for rows in (6, 4, 5):
        diamond.grow(rows)
    opened, request = diamond.opened(diamond.stages["one"]), RunRequest("one/late")
    first = create_work_units(opened, request)
    inprocess.extract(opened, first, NoConnections())
    assert replan.decide_and_plan_again(opened, request, first, first.packs[0])
    second = opened.staging.run(first.run)
    assert second is not None
    assert second != first
    assert replan.decide_and_plan_again(diamond.opened(diamond.stages["one"]), request, first, first.packs[0])
    assert opened.staging.run(first.run) == second
    assert inprocess.go_on(opened, second, NoConnections(), request)["one"].detail == "3 versions, in slots 1 to 3"
    diamond.rest()
    diamond.check()


def test_a_run_makes_so_many_versions_and_leaves_the_others_to_the_next_one(
    diamond: Diamond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replan, "PLANS", 1)
    for rows in (6, 4, 5):
        diamond.grow(rows)
    assert [(diamond.run("one").status, diamond.versions("one")) for _ in range(3)] == [
        ("committed", [6, 10]),
        ("committed", [6, 10, 15]),
        ("idle", [6, 10, 15]),
    ]


@pytest.mark.slow
def test_a_plan_that_lost_a_parent_is_made_again_in_the_same_run(
    diamond: Diamond, monkeypatch: pytest.MonkeyPatch
) -> None:
    diamond.grow(6)
    run = JoinedLines.run

    def too_late(work: JoinedLines, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        result = run(work, unit, plan, attempt)
        monkeypatch.undo()
        diamond.rewind("a", 4)
        diamond.grow(2)
        return result

    monkeypatch.setattr(JoinedLines, "run", too_late)
    report = diamond.run("one")
    assert (report.status, report.slot, diamond.versions("one")) == ("committed", 1, [8])
    diamond.rest()
    diamond.check()


def test_files_that_were_cleaned_up_since_they_were_planned_lose_the_plan_and_it_is_made_again(
    diamond: Diamond, monkeypatch: pytest.MonkeyPatch
) -> None:
    diamond.grow(6)
    run, paths = JoinedLines.run, diamond.paths("a")

    def too_late(work: JoinedLines, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        monkeypatch.undo()
        diamond.rewind("a", 4)
        diamond.grow(2)
        assert not all(Path(path).exists() for path in paths)
        result = run(work, unit, plan, attempt)
        assert result.state is UnitState.FAILED
        return result

    monkeypatch.setattr(JoinedLines, "run", too_late)
    report = diamond.run("one")
    assert (report.status, report.slot, diamond.versions("one")) == ("committed", 1, [8])
    diamond.rest()
    diamond.check()


def test_units_whose_parents_were_taken_back_since_are_not_run(diamond: Diamond) -> None:
    diamond.grow(6)
    opened, request = diamond.opened(diamond.stages["one"]), RunRequest("one/late")
    plan = create_work_units(opened, request)
    assert len([*missing_units(opened, plan.packs[0])]) == 1
    diamond.rewind("a", 4)
    assert [*missing_units(opened, plan.packs[0])] == []
    assert inprocess.go_on(opened, plan, NoConnections())["one"].status == "waiting"


def test_what_a_person_gave_up_is_lost_and_not_made_again_by_its_run(diamond: Diamond) -> None:
    diamond.grow(6)
    opened, request = diamond.opened(diamond.stages["one"]), RunRequest("one/late")
    run = create_work_units(opened, request)
    plan = opened.staging.plan(run.packs[0].datasets[0].token)
    assert plan is not None
    assert opened.committer.give_up(plan, "", "it is wrong")
    assert inprocess.go_on(opened, run, NoConnections(), request)["one"].status == "lost"
    assert diamond.versions("one") == []


def test_a_stage_waits_for_every_upstream(diamond: Diamond) -> None:
    diamond.grow(6)
    diamond.run("one")
    assert diamond.run("both").status == "idle"
    diamond.run("two")
    assert diamond.run("both").status == "committed"


def test_a_version_without_rows_is_one_all_the_same(diamond: Diamond) -> None:
    for rows in (6, 0, 4):
        diamond.grow(rows)
    diamond.grow(0)
    diamond.rest()
    assert diamond.versions("both") == [6, 10]
    diamond.check()


@pytest.mark.slow
def test_stages_follow_a_rewind_of_the_source_by_themselves(diamond: Diamond) -> None:
    for rows in (6, 4, 5):
        diamond.grow(rows)
    diamond.rest()
    before = {name: evaluations(diamond.paths(name)) for name in diamond.stages}
    diamond.rewind("a", 8)
    diamond.rest()
    assert diamond.versions("both") == [6], "the others were made from what was taken back"
    diamond.grow(3)
    diamond.rest()
    assert [diamond.versions(name) for name in diamond.stages] == [[6, 18]] * 3
    diamond.check()
    for name, made in before.items():
        assert len(made & evaluations(diamond.paths(name))) == 1, f"the first version of {name} is as it was"
        (found,) = diamond.rewinds(name)
        assert re.search(
            r"(slot of .* was|slots of .* were) taken back, from which version 1970-01-01T00:00:10\+00:00 was made",
            found.reason,
        )


def test_a_source_that_starts_again_and_loses_nothing_causes_no_work(diamond: Diamond) -> None:
    diamond.grow(6)
    diamond.rest()
    before = {name: diamond.slots(name) for name in diamond.stages}
    end = datetime.fromtimestamp(6, UTC)
    for run in ("raw/6", "raw/6 again"):  # one that is cleared, and one that another run has done the work of
        inprocess.run(diamond.opened(diamond.raw), request=RunRequest(run, end, version=end))
        assert [diamond.run(name).status for name in diamond.stages] == ["idle"] * 3
    assert {name: diamond.slots(name) for name in before} == before


@pytest.mark.slow
def test_a_branch_that_restored_holds_the_barrier_until_the_other_has(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    diamond.rewind("a", 8)
    diamond.grow(2)
    assert diamond.run("one").status == "committed"
    assert diamond.versions("one") == [6, 12]
    assert diamond.run("both").status == "idle", "it restored, and the other branch is made from other roots"
    assert (diamond.versions("two"), diamond.versions("both")) == ([6, 10], [6])
    diamond.rest()
    diamond.check()


def test_a_parent_that_is_retired_after_the_plan_loses_it(diamond: Diamond) -> None:
    diamond.grow(6)
    opened, request = diamond.opened(diamond.stages["one"]), RunRequest("one/late")
    verify_recover(opened, request)
    plan = create_work_units(opened, request)
    diamond.rewind("a", 4)
    report = inprocess.go_on(opened, plan, NoConnections())["one"]
    assert (report.status, report.slot) == ("waiting", None), report
    assert "slot of 'raw/a' was taken back since it was planned" in report.detail
    assert report.detail.endswith("; the next run plans it again")
    diamond.grow(2)
    diamond.rest()
    diamond.check()


def test_a_late_attempt_publishes_nothing_beside_a_version_that_was_made_since(diamond: Diamond) -> None:
    diamond.grow(6)
    opened, request = diamond.opened(diamond.stages["one"]), RunRequest("one/late")
    verify_recover(opened, request)
    plan = create_work_units(opened, request)
    diamond.run("one")
    report = inprocess.go_on(opened, plan, NoConnections())["one"]
    assert (report.status, report.slot) == ("waiting", None)
    assert "could win no more and was swept: the newest slot is slot 1 " in report.detail
    assert diamond.slots("one") == {1: (Action.COMMIT, True)}


@pytest.mark.slow
@pytest.mark.parametrize("key", ["one/one/d/0000000003", "one/one/o/0000000003", "one/one/d/0000000004"])
def test_a_restore_that_died_is_completed_by_the_next_run(diamond: Diamond, key: str) -> None:
    """Before the decision to go back, before its outcome, and before the next version."""
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    diamond.rewind("a", 8)
    diamond.grow(2)

    def die(call: Call) -> None:
        if call.operation == "put" and call.subject == key:
            raise Crash

    opened = diamond.opened(diamond.stages["one"])
    opened.journal.store = FaultyStore(opened.journal.store, Faults(hook=die))
    with pytest.raises(Crash):
        inprocess.run(opened)
    diamond.rest()
    assert len(diamond.rewinds("one")) == 1
    assert diamond.versions("both") == [6, 12]
    diamond.check()


def test_a_stage_reads_everything_up_to_its_version_of_what_it_reads_whole(diamond: Diamond) -> None:
    a, b = (Input(diamond.journal, "raw", urn, whole=urn == "a") for urn in "ab")
    diamond.stages = {"facts": diamond.stage("facts", a, b)}
    diamond.grow(6)
    first = {urn: lines(diamond.paths(urn)) for urn in "ab"}
    diamond.grow(4)
    diamond.rest()
    both = {urn: lines(diamond.paths(urn)) for urn in "ab"}
    new = sorted({*both["b"]} - {*first["b"]})
    versions = [joined("facts", [first["a"], first["b"]]), joined("facts", [both["a"], new])]
    assert lines(diamond.paths("facts")) == sorted(row for rows in versions for row in rows)
    diamond.rewind("a", 4)
    diamond.run("facts")
    assert diamond.versions("facts") == [], "all of a is in the second version, and a part of it in the first"


def test_a_stage_waits_for_an_optional_upstream_that_is_too_far_behind(diamond: Diamond) -> None:
    late = Input(diamond.journal, "late", "c", required=False, at_most=timedelta(seconds=6))
    diamond.stages = {"most": diamond.stage("most", Input(diamond.journal, "raw", "a"), late)}
    diamond.grow(6)
    inprocess.open_job(diamond.late, journal=Journal.create(diamond.journal, "late"))
    assert diamond.run("most").status == "idle", "it has sealed nothing"
    diamond.grow_late(3)
    assert diamond.run("most").status == "committed"
    diamond.grow(4)
    assert diamond.run("most").status == "idle", "it is 7 behind"
    diamond.grow_late(7)
    diamond.rest()
    assert diamond.versions("most") == [6, 10]
    state = Journal.open(diamond.journal, "most").state("most")
    assert [state.checkpoints[slot].late for slot in state.versions] == [
        {"late/c": datetime.fromtimestamp(3, UTC)},
        {},
    ]
    a, c = lines(diamond.paths("a")), lines(diamond.paths("c"))
    assert lines(diamond.paths("most")) == sorted(
        row for rows in ([a[:6], c[:3]], [a[6:], c[3:]]) for row in joined("most", rows)
    )


@pytest.mark.slow
def test_an_optional_upstream_of_another_schedule_gives_each_version_what_it_has_sealed_up_to_it(
    diamond: Diamond,
) -> None:
    inputs = Input(diamond.journal, "raw", "a"), Input(diamond.journal, "late", "c", required=False)
    diamond.stages = {"most": diamond.stage("most", *inputs)}
    for rows, late in ((4, 5), (4, 6), (4, 0), (12, 8)):
        diamond.grow(rows)
        diamond.grow_late(late)
        diamond.rest()
    state = Journal.open(diamond.journal, "most").state("most")
    made = [state.checkpoints[slot] for slot in state.versions]
    consumed = [[slot.slot for slot in one.parents["late/c"]] for one in made]
    upto = [one.late["late/c"] for one in made]
    assert [one.version.timestamp() for one in made] == [4, 8, 12, 24]
    assert consumed == [[], [1], [2], [3]]
    assert [None if one is None else one.timestamp() for one in upto] == [None, 5, 11, 19]


@pytest.mark.slow
def test_two_that_restore_at_once_go_back_once(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    diamond.rewind("a", 8)
    work, opened = diamond.stages["one"].work, diamond.opened(diamond.stages["one"])
    history = opened.journal.history("one")
    restore = work.to_restore(history.state, opened.connections)
    assert restore is not None
    for _ in range(2):
        opened.committer.take_back(history, restore.units, restore.looked, "one/late", restore.why)
    assert diamond.versions("one") == [6]
    assert len(diamond.rewinds("one")) == 1


@pytest.mark.slow
def test_a_stage_is_rewound_by_version_and_all_below_it_follow_and_the_source_stays(diamond: Diamond) -> None:
    for rows in (6, 4, 5):
        diamond.grow(rows)
    diamond.rest()
    before = {name: evaluations(diamond.paths(name)) for name in diamond.stages}
    source = diamond.paths("a")
    admin = diamond.admin("one")
    admin.carry_out(would_rewind(admin, "one", datetime.fromtimestamp(7, UTC)), "the function was wrong")
    assert diamond.versions("one") == [6]
    diamond.rest()
    assert [diamond.versions(name) for name in diamond.stages] == [[6, 10, 15]] * 3
    assert [len(made & evaluations(diamond.paths(name))) for name, made in before.items()] == [1, 3, 1]
    assert diamond.paths("a") == source
    (mine,), (below,) = diamond.rewinds("one"), diamond.rewinds("both")
    assert (mine.actor, mine.reason, below.actor) == ("ann", "the function was wrong", "")
    diamond.check()


@pytest.mark.slow
def test_a_source_is_rewound_to_what_it_had_sealed_at_a_version_and_all_below_it_follow_as_foreseen(
    diamond: Diamond,
) -> None:
    for rows in (6, 4, 5):
        diamond.grow(rows)
    diamond.rest()
    paths = {urn: diamond.paths(urn) for urn in "ab"}
    diamond.revision += 1
    admin = Administration(Journal.open(diamond.journal, "raw", write=True), str(diamond.folder / "raw"), "ann")
    changes = would_rewind_source(admin, datetime.fromtimestamp(8, UTC))
    assert [change.urn for change in changes] == ["a", "b"]
    states = {f"{name}/{name}": Journal.open(diamond.journal, name).state(name) for name in diamond.stages}
    taken = {f"raw/{change.urn}": {ref.slot for ref in change.replaces} for change in changes}
    versions = (datetime.fromtimestamp(10, UTC), datetime.fromtimestamp(15, UTC))
    assert following(taken, states) == dict.fromkeys(states, versions)
    assert following({"one/one": {2, 3}}, states) == {"both/both": versions}
    for change in changes:
        admin.carry_out(change, "the rows were wrong")
    assert all({*diamond.paths(urn)} < {*before} for urn, before in paths.items())
    diamond.rest()
    assert [diamond.versions(name) for name in diamond.stages] == [[6]] * 3
    diamond.grow(0)
    diamond.rest()
    assert [diamond.versions(name) for name in diamond.stages] == [[6, 15]] * 3
    diamond.check()
    with pytest.raises(ConfigurationError, match=r"no version up to that is sealed.*--start"):
        would_rewind_source(admin, datetime.fromtimestamp(5, UTC))
    with pytest.raises(ConfigurationError, match="nothing to take back after 1970-01-01T00:00:15"):
        would_rewind_source(admin, datetime.fromtimestamp(15, UTC))
    assert len(would_rewind_source(admin, None)) == 2


@pytest.mark.slow
def test_a_stage_is_rewound_to_its_start(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    admin = diamond.admin("two")
    admin.carry_out(would_rewind(admin, "two", None), "all of it was wrong")
    assert diamond.versions("two") == []
    diamond.rest()
    diamond.check()


@pytest.mark.slow
def test_what_a_stage_cant_go_back_to_is_refused_by_name(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    admin = diamond.admin("one")
    with pytest.raises(ConfigurationError, match=r"nothing to take back after .*its newest is 1970-01-01T00:00:10"):
        would_rewind(admin, "one", datetime.fromtimestamp(10, UTC))
    with pytest.raises(ConfigurationError, match=r"it is a stage, and has versions.*airflow gobblin pipeline rewind"):
        admin.would_rewind("one", LongWatermark(3))
    source = Administration(Journal.open(diamond.journal, "raw", write=True), str(diamond.folder / "raw"), "ann")
    with pytest.raises(ConfigurationError, match="nothing to take back: it has no version"):
        would_rewind(source, "a", None)
    diamond.rows += 2
    planned = diamond.opened(diamond.raw)
    with pytest.raises(Crash):
        inprocess.run(dying(planned, "raw/a/o/0000000003"))
    with pytest.raises(ConfigurationError, match="slot 3 is pending"):
        would_rewind_source(source, datetime.fromtimestamp(6, UTC))


def test_an_input_that_is_read_whole_now_and_was_not_before_is_refused_by_name(diamond: Diamond) -> None:
    diamond.grow(6)
    diamond.run("one")
    diamond.stages["one"] = diamond.stage("one", Input(diamond.journal, "raw", "a", whole=True))
    diamond.grow(4)
    report = diamond.run("one")
    assert (report.status, diamond.versions("one")) == ("failed", [6])
    assert "it reads everything of 'raw/a' instead of what is new, and version 1970" in report.detail
    both = Input(diamond.journal, "raw", "a"), Input(diamond.journal, "raw", "a", whole=True)
    diamond.stages["one"] = diamond.stage("one", *both)
    assert "both what is new and everything of 'raw/a' instead of what is new" in diamond.run("one").detail


def test_other_inputs_than_those_of_its_versions_are_refused_by_name_until_it_is_rewound_to_its_start(
    diamond: Diamond,
) -> None:
    diamond.grow(6)
    diamond.run("one")
    diamond.stages["one"] = diamond.stage("one", Input(diamond.journal, "raw", "b"))
    diamond.grow(4)
    report = diamond.run("one")
    assert (report.status, diamond.versions("one")) == ("failed", [6])
    assert "it reads 'raw/a' no longer and 'raw/b' now, and version 1970-01-01T00:00:06+00:00 was made" in report.detail
    assert "`airflow gobblin pipeline rewind one --start --reason …`" in report.detail
    admin = diamond.admin("one")
    admin.carry_out(would_rewind(admin, "one", None), "it reads another dataset")
    assert diamond.run("one").status == "committed"
    assert lines(diamond.paths("one")) == joined("one", [lines(diamond.paths("b"))])


@pytest.mark.slow
def test_a_paused_stage_stays_as_it_is(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    diamond.rewind("a", 8)
    diamond.admin("one").pause("one", "it is looked at")
    assert diamond.run("one").status == "paused"
    assert diamond.versions("one") == [6, 10]


def test_an_upstream_whose_slots_each_replace_all_is_refused_by_name(diamond: Diamond) -> None:
    diamond.kind = ExtractKind.SNAPSHOT_ONLY
    diamond.grow(6)
    report = diamond.run("one")
    assert report.status == "failed"
    assert "can't read dataset 'a' of 'raw' in a stage: each of its slots holds a snapshot" in report.detail


@pytest.mark.slow
def test_a_stage_that_is_rewound_to_its_start_goes_on_from_an_upstream_that_begins_anew(diamond: Diamond) -> None:
    for rows in (3, 3, 3):
        diamond.grow(rows)
    diamond.rest()
    for folder in ("journal/raw", "journal/_seals/raw", "journal/_homes/raw", "raw"):
        shutil.rmtree(diamond.folder / folder)
    diamond.rows = 0
    diamond.grow(20)
    report = diamond.run("one")
    assert "its slots end at 1, and a stage that reads it has seen slot 3" in report.detail
    admin = diamond.admin("one")
    admin.carry_out(would_rewind(admin, "one", None), "its source begins anew")
    assert diamond.run("one").status == "committed"
    assert lines(diamond.paths("one")) == joined("one", [lines(diamond.paths("a"))])
