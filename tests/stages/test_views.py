"""Stages as people see them: by views, and by the commands."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, NeverPublishedError, RecordError
from airflow_gobblin.job import Attempt, Restore
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Note, NoteKind, now
from airflow_gobblin.journal.seals import Seals
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.work import UnitResult, UnitState, WorkUnit
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.stages.record import inputs_on_record, keep_inputs
from airflow_gobblin.stages.views import SourceView, StageView, graph, source_view, stage_view, versions_of
from airflow_gobblin.storage.stores import open_store
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.cli.command import Done, run
from tests.faults import Crash
from tests.stages.diamond import Diamond, dying
from tests.stages.lines import JoinedLines


@pytest.fixture
def diamond(tmp_path: Path) -> Diamond:
    return Diamond(tmp_path)


def seen(diamond: Diamond, name: str) -> StageView:
    return stage_view(Journal.open(diamond.journal, name), NoConnections())


def version(position: int) -> str:
    return f"version {datetime.fromtimestamp(position, UTC).isoformat()}"


def test_a_stage_shows_which_input_it_waits_for_and_how_many_versions_wait(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.run("one")
    diamond.run("both")
    found = seen(diamond, "both")
    made = Journal.open(diamond.journal, "one").history("one").slot(1).decision.at
    since = made.isoformat(timespec="seconds")
    assert found.why == f"it waits for 'two/two' to seal {version(6)}, which 'one/one' has sealed, since {since}"
    assert [(one.id, one.ahead) for one in found.inputs] == [("one/one", 2), ("two/two", 0)]
    diamond.run("two")
    assert seen(diamond, "both").why == f"{version(6)} is ready: the next run makes it"
    diamond.rest()
    assert seen(diamond, "both").why == "it has all that its inputs have sealed, and waits for their next version"


def test_a_version_of_several_channels_is_taken_back_as_one() -> None:
    units = tuple(UnitRef(slot, unit) for slot, unit in ((3, "v"), (3, "v-cancelled"), (4, "v")))
    assert Restore(units, {}, "their rows are gone").versions == 2


@pytest.mark.slow
def test_a_stage_shows_why_it_goes_back_and_why_it_did(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    diamond.rewind("a", 8)
    diamond.grow(2)
    assert seen(diamond, "one").why.startswith("the next run takes back 1 version: 1 slot of 'raw/a' was taken back")
    diamond.run("one")
    diamond.run("both")
    (restore,) = seen(diamond, "both").restores
    assert restore.actor == ""
    assert restore.reason.startswith("1 slot of 'one/one' was taken back")
    assert seen(diamond, "both").why.startswith(f"it waits for 'two/two' to seal {version(12)}, which 'one/one' has")


@pytest.mark.slow
def test_what_a_run_would_plan_of_a_stage_is_shown_with_what_it_takes_back_first(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    diamond.rewind("a", 8)
    diamond.grow(2)

    def looked() -> tuple[str, str]:
        (found,) = would_plan(diamond.opened(diamond.stages["one"]), RunRequest("look")).datasets
        return found.status, found.detail

    status, detail = looked()
    assert status == "pending"
    assert detail.startswith("1 version would be taken back: 1 slot of 'raw/a' was taken back")
    diamond.admin("one").pause("one", "it is looked at")
    assert looked()[0] == "paused"
    diamond.admin("one").resume("one", "seen")
    diamond.run("one")
    assert looked()[0] == "idle"


@pytest.mark.slow
def test_a_stage_shows_that_its_inputs_are_made_from_different_slots(diamond: Diamond) -> None:
    """One has made a version anew, from what its source has by now, and the other still has the version as it was."""
    for rows in (6, 4):
        diamond.grow(rows)
    for name in ("one", "two"):
        diamond.run(name)
    diamond.rewind("a", 8)
    diamond.rows -= 4
    diamond.grow(4)
    diamond.run("one")
    assert diamond.versions("one") == diamond.versions("two") == [6, 10]
    assert diamond.run("both").status == "committed"
    found = seen(diamond, "both")
    assert diamond.versions("both") == [6]
    assert found.why.startswith(
        f"it waits until {version(10)} of its inputs is made from the same slots of their sources"
    )
    assert "'one/one'" in found.why
    assert "'two/two'" in found.why


def test_a_stage_shows_which_optional_input_is_too_far_behind(diamond: Diamond) -> None:
    late = Input(diamond.journal, "late", "c", required=False, at_most=timedelta(seconds=6))
    diamond.stages = {"most": diamond.stage("most", Input(diamond.journal, "raw", "a"), late)}
    diamond.grow_late(3)
    diamond.grow(10)
    diamond.run("most")
    (seal,) = Seals(Journal.open(diamond.journal, "raw")).before(1)
    assert seen(diamond, "most").why == (
        f"it waits for 'late/c', further behind {version(10)} than an optional input may be, since "
        f"{seal.at.isoformat(timespec='seconds')}"
    )


def test_a_stage_shows_that_an_optional_input_has_never_published_anything(diamond: Diamond) -> None:
    late = Input(diamond.journal, "late", "c", required=False)
    diamond.stages = {"most": diamond.stage("most", Input(diamond.journal, "raw", "a"), late)}
    Journal.create(diamond.journal, "late")
    diamond.grow(6)
    diamond.run("most")
    diamond.grow(4)
    assert seen(diamond, "most").why == (
        f"it waits for 'late/c' to publish anything, to know what columns it is given for {version(10)}"
    )


def test_a_stage_that_is_paused_is_shown_as_such(diamond: Diamond) -> None:
    diamond.grow(6)
    diamond.rest()
    diamond.admin("one").pause("one", "it is looked at")
    assert "it is looked at" in seen(diamond, "one").why


def test_a_stage_shows_that_a_slot_is_pending_and_when_no_run_goes_on_with_it(diamond: Diamond) -> None:
    diamond.grow(6)
    with pytest.raises(Crash):
        inprocess.run(dying(diamond.opened(diamond.stages["one"]), "one/one/o/0000000001"))
    assert seen(diamond, "one").why == "slot 1 is pending: the next run finishes it"
    journal = Journal.open(diamond.journal, "one", write=True)
    for key in ("1", "2", "3"):
        journal.put_note("one", 1, Note(NoteKind.FAILED, key, now()))
    journal.put_note("one", 1, Note(NoteKind.QUARANTINED, "3", now()))
    assert diamond.run("one").status == "quarantined"
    assert seen(diamond, "one").why == (
        "slot 1 is quarantined after 3 failed runs, and no run goes on: release the stage, or abandon that slot"
    )
    diamond.admin("one").release("one", "the disk is back")
    diamond.run("one")
    assert diamond.versions("one") == [6]


def test_a_stage_shows_why_the_version_that_it_makes_next_failed(
    diamond: Diamond, monkeypatch: pytest.MonkeyPatch
) -> None:
    diamond.grow(6)
    failure = Failure.of(GobblinError(operation="evaluate", subject="stage 'one'", cause="no column 'row'"))

    def fails(work: JoinedLines, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
        return UnitResult(unit.id, attempt.id, UnitState.FAILED, failure=failure)

    monkeypatch.setattr(JoinedLines, "run", fails)
    assert diamond.run("one").status == "failed"
    monkeypatch.undo()
    ready = f"{version(6)} is ready: the next run makes it"
    assert seen(diamond, "one").why.startswith(f"{ready}; the last run that tried failed: ")
    assert "no column 'row'" in seen(diamond, "one").why
    diamond.run("one")
    diamond.grow(4)
    assert seen(diamond, "one").why == f"{version(10)} is ready: the next run makes it"


@pytest.mark.slow
def test_the_versions_of_a_stage_show_what_they_consumed(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    newest, oldest = versions_of(Journal.open(diamond.journal, "two"))
    assert (newest.version.timestamp(), newest.slot, newest.rows) == (10, 2, oldest.rows - 2)
    assert newest.consumed == {"raw/a": 1, "raw/b": 1}


def test_an_ingestion_shows_its_newest_version_of_which_nothing_was_taken_back(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    journal = Journal.open(diamond.journal, "raw")
    (newest, _) = Seals(journal).before(2)
    assert source_view(journal) == SourceView("raw", newest.upto, newest.at)
    diamond.rewind("b", 8)
    found = source_view(Journal.open(diamond.journal, "raw"))
    assert found.newest is not None
    assert found.newest.timestamp() == 6


def test_the_graph_of_a_stage_has_its_upstreams_first(diamond: Diamond) -> None:
    diamond.grow(6)
    diamond.rest()
    found = graph(Journal.open(diamond.journal, "both"), NoConnections())
    assert [one.name for one in found] == ["one", "two", "both"]


def test_inputs_are_on_record_once_and_anew_where_they_change() -> None:
    store = MemoryStore()
    one, two = (Input("memory", name, name) for name in ("one", "two"))
    at = datetime(2026, 3, 1, tzinfo=UTC)
    assert inputs_on_record(store, "both") is None
    for inputs in ([one], [one], [one, two]):
        keep_inputs(store, "both", inputs, at, f"run of {len(inputs)}")
    assert len([*store.list("_inputs/")]) == 2
    found = inputs_on_record(store, "both")
    assert found is not None
    assert (found.inputs, found.run) == ((one, two), "run of 2")


@pytest.mark.parametrize("torn", [b"", b"{}"])
def test_a_torn_record_of_inputs_keeps_no_stage_from_its_versions_and_is_followed_by_another(
    diamond: Diamond, torn: bytes
) -> None:
    """No rule relies on it."""
    diamond.grow(6)
    diamond.run("one")
    (path,) = (diamond.folder / "journal/_inputs/one").iterdir()
    path.write_bytes(torn)
    with pytest.raises(RecordError):
        seen(diamond, "one")
    diamond.grow(4)
    assert diamond.run("one").status == "committed"
    assert diamond.versions("one") == [6, 10]
    assert [one.id for one in seen(diamond, "one").inputs] == ["raw/a"]


def test_a_stage_that_is_dropped_whole_makes_its_versions_again_and_those_below_follow(diamond: Diamond) -> None:
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    admin = diamond.admin("one")
    (change,) = admin.would_drop_all(delete_files=True)
    admin.carry_out(change, "it begins anew")
    assert admin.after_drop_all() == ()
    with pytest.raises(NeverPublishedError, match="forgot it"):
        Journal.open(diamond.journal, "one").read_dataset("one")
    assert seen(diamond, "both").why.startswith("the next run takes back 2 versions: 2 slots of 'one/one' were")
    diamond.rest()
    assert diamond.versions("one") == diamond.versions("both") == [6, 10]
    diamond.check()


def test_what_is_no_stage_is_refused_by_name(diamond: Diamond) -> None:
    diamond.grow(6)
    diamond.rest()
    for look in (lambda journal: stage_view(journal, NoConnections()), versions_of):
        with pytest.raises(ConfigurationError, match="It is not a stage"):
            look(Journal.open(diamond.journal, "raw"))
        with pytest.raises(ConfigurationError, match="Did you mean 'both'"):
            look(Journal.open(diamond.journal, "bth"))


def test_stages_that_were_turned_round_are_shown_each_once(diamond: Diamond) -> None:
    """One read the other, and is read by it now; it has not been planned since."""
    diamond.grow(6)
    diamond.rest()
    turned = Input(diamond.journal, "both", "both", reach=frozenset({"raw/a"}))
    with closing(open_store(diamond.journal)) as store:
        keep_inputs(store, "one", [turned], datetime(2026, 3, 1, tzinfo=UTC), "later")
    found = graph(Journal.open(diamond.journal, "both"), NoConnections())
    assert sorted(one.name for one in found) == ["both", "one", "two"]


# By the commands


def typed(diamond: Diamond, name: str, stage: str, *words: str) -> Done:
    where = ("--journal", diamond.journal, "--target", str(diamond.folder / "lake"), "-o", "json")
    return run(["gobblin", "pipeline", name, stage, *words, *where])


@pytest.mark.slow
def test_the_commands(diamond: Diamond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    for rows in (6, 4):
        diamond.grow(rows)
    diamond.rest()
    shown = typed(diamond, "show", "both")
    assert shown.status == 0, shown.err
    assert [(one["stage"], one["versions"]) for one in shown.json] == [("one", 2), ("two", 2), ("both", 2)]
    assert [one["slot"] for one in typed(diamond, "versions", "both").json] == [2, 1]
    for words in ((), ("--to", "yesterday"), ("--start", "--to", "1970-01-01T00:00:07")):
        assert typed(diamond, "rewind", "one", *words, "--reason", "r", "--yes").status == 1
    done = typed(diamond, "rewind", "one", "--to", "1970-01-01T00:00:07", "--reason", "a fault", "--yes")
    assert done.status == 0, done.err
    assert "versions: 1970-01-01T00:00:10+00:00" in done.err
    assert (diamond.versions("one"), diamond.versions("both")) == ([6], [6, 10])
    (answer,) = typed(diamond, "why", "both").json
    assert "1 slot of 'one/one' was taken back" in answer["why"]
    assert "both/both follows in its next run: it takes back 1 version, 1970-01-01T00:00:10+00:00" in done.err
    again = typed(diamond, "rewind", "both", "two", "two", "--start", "--reason", "another fault", "--yes")
    assert [(one["dataset"], one["action"]) for one in again.json] == [("both", "rewind"), ("two", "rewind")]
    assert "follows" not in again.err
    lake = diamond.folder / "raw"
    where = ("--journal", diamond.journal, "--target", str(lake), "--reason", "the source was wrong", "--yes")
    source = run(["gobblin", "pipeline", "rewind", "raw", "--to", "1970-01-01T00:00:06", *where, "-o", "json"])
    assert [one["dataset"] for one in source.json] == ["a", "b"], source.err
    diamond.grow(0)
    diamond.rest()
    (answer,) = typed(diamond, "why", "one").json
    assert [(one["reason"], bool(one["actor"])) for one in answer["taken_back"]] == [("a fault", True)]
    diamond.check()
