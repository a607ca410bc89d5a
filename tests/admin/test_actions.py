"""Where an action works, and what it leaves alone. `tests/run/test_tasks.py` tests what each action does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.admin.export import ExportedDataset, export
from airflow_gobblin.commit.cleanup import Cleanup
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError, LostRaceError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.announce import unannounced
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import HighWatermarkStep
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace.claims import Claims
from tests.lab import Lab, stick
from tests.protocol.rows import Table

A = Table("a", ExtractKind.APPEND_ONLY, 10)


def test_the_target_is_named_as_the_sink_names_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    admin = Administration(lab.journal, tmp_path.as_uri(), "ann")
    admin.drop("a", "it was a test", delete_files=True)
    lab.run()
    assert lab.rows("a") == A.all_rows()
    assert len(lab.files("a")) == 3


@pytest.mark.parametrize("target", ["lake", "ftp://host/lake"])
def test_a_target_that_is_no_absolute_path_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(ConfigurationError, match="not an absolute path"):
        Administration(Lab(tmp_path, A).journal, target, "ann")


def test_a_target_where_the_dataset_is_not_published_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.decide()
    (tmp_path / "other").mkdir()
    admin = Administration(lab.journal, str(tmp_path / "other"), "ann")
    with pytest.raises(ConfigurationError, match=rf"target {tmp_path}/other .*published to {tmp_path}/lake"):
        admin.abandon("a", "wrong")
    assert lab.reopened().state("a").pending


def test_a_target_that_was_moved_is_known_by_its_mark(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run()
    (tmp_path / "lake").rename(tmp_path / "moved")
    Administration(lab.journal, str(tmp_path / "moved"), "ann").rewind("a", LongWatermark(4), "again")
    assert lab.reopened().state("a").watermark == LongWatermark(4)


def test_abandoning_a_slot_leaves_the_files_that_others_retired_to_their_retention(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("s", ExtractKind.SNAPSHOT_ONLY, 4), retention=timedelta(days=2))
    lab.run()
    lab.run(Table("s", ExtractKind.SNAPSHOT_ONLY, 4, 1))
    old = lab.files("s")
    lab.decide(Table("s", ExtractKind.SNAPSHOT_ONLY, 4, 2))
    lab.admin.abandon("s", "not yet")
    assert lab.files("s") == old


def test_a_rewinds_step_names_the_edge_that_is_left(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(A, unit_rows=2), policy="successful")
    lab.run(units=("a:u1",))
    slot = lab.admin.rewind("a", LongWatermark(8), "again")
    assert [*lab.journal.steps(slot.decision)] == []
    assert slot.decision.hand_over == HighWatermarkStep(LongWatermark(2))
    assert lab.journal.state("a").watermark == LongWatermark(2)


def test_a_dropped_dataset_that_left_the_source_is_cleaned_up_by_the_next_run(tmp_path: Path) -> None:
    other = Table("other", ExtractKind.APPEND_ONLY, 3)
    lab = Lab(tmp_path, A, other)
    lab.run()
    lab.admin.drop("a", "it is over", delete_files=True)
    lab.run(other)
    assert [path.name for path in (tmp_path / dataset_key("a")).glob("*")] == []


# Changes that are shown first, and then made


def test_a_change_shows_what_it_would_do_and_does_nothing_yet(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before = lab.records()
    rewind, skip, drop = (
        lab.admin.would_rewind("a", LongWatermark(5)),
        lab.admin.would_set_watermark("a", LongWatermark(30)),
        lab.admin.would_drop("a", delete_files=True),
    )
    assert [(c.before, c.after) for c in (rewind, skip, drop)] == [
        (LongWatermark(10), LongWatermark(4)),
        (LongWatermark(10), LongWatermark(30)),
        (LongWatermark(10), None),
    ]
    assert [sum(unit.rows_written for unit in c.retired) for c in (rewind, skip, drop)] == [6, 0, 10]
    assert lab.records() == before


def overtaken_by(action: str) -> AbstractContextManager[pytest.ExceptionInfo[LostRaceError]]:
    """Nothing is done of what was shown before another action took the slot."""
    return pytest.raises(LostRaceError, match=f"slot 2 was taken by a {action} just now; nothing was changed")


def test_a_change_is_not_made_once_the_dataset_has_changed(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    admin = lab.admin
    rewind, again = admin.would_rewind("a", LongWatermark(5)), admin.would_rewind("a", LongWatermark(1))
    lab.run(replace(A, rows=12))
    for change in (rewind, again):
        with overtaken_by("commit"):
            admin.carry_out(change, "wrong")
    assert lab.reopened().state("a").head == 2
    assert lab.rows("a") == replace(A, rows=12).all_rows()


def test_of_two_contradictory_actions_one_is_done_and_the_other_reports_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    admin = lab.admin
    rewind, skip = admin.would_rewind("a", LongWatermark(4)), admin.would_set_watermark("a", LongWatermark(30))
    admin.carry_out(skip, "these are not wanted")
    with overtaken_by("set"):
        admin.carry_out(rewind, "these were wrong")
    assert lab.reopened().state("a").watermark == LongWatermark(30)


def test_the_slot_to_abandon_is_the_one_that_was_meant(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    lab.run()
    lab.decide(replace(A, rows=12))
    with pytest.raises(LostRaceError, match=r"slot 1 of dataset 'a': it was finished just now"):
        lab.admin.abandon("a", "wrong", slot=1)
    assert lab.reopened().state("a").pending
    assert [slot.abandoned for slot in lab.admin.abandon("a", "wrong", slot=2)] == [True]


class Meanwhile(MemoryStore):
    """A store in which something happens, once, just before a record is put. :ivar before: the end of the record's key."""

    happens: Callable[[], object] | None = None
    before = "-released"

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.happens is not None and key.endswith(self.before):
            happens, self.happens = self.happens, None
            happens()
        return super().put_if_absent(key, data)


def quarantined(folder: Path) -> tuple[Lab, Meanwhile]:
    """An ingestion whose `a` is quarantined at slot 1: its staged files are gone."""
    store = Meanwhile()
    lab = Lab(folder, store=store, attempts=1)
    stick(lab, A)
    return lab, store


def test_a_release_that_meets_an_abandon_is_not_reported_as_done(tmp_path: Path) -> None:
    lab, store = quarantined(tmp_path)
    other = Administration(Journal.create(store, "lab"), str(tmp_path), "bob")
    store.happens = lambda: other.abandon("a", "its files are lost")
    with pytest.raises(LostRaceError, match="can't release slot 1 of dataset 'a': it was abandoned by bob just now"):
        lab.admin.release("a", "the disk is back")
    slot = lab.reopened().history("a").slots[0]
    assert slot.abandoned
    assert (lab.run(A)["a"].status, lab.rows("a")) == ("committed", A.all_rows())


def test_of_a_release_and_an_abandon_the_second_knows_of_the_first(tmp_path: Path) -> None:
    lab, _ = quarantined(tmp_path / "released")
    lab.admin.release("a", "the disk is back")
    assert not lab.reopened().state("a").quarantined
    assert [slot.abandoned for slot in lab.admin.abandon("a", "its files are lost", slot=1)] == [True]
    lab, _ = quarantined(tmp_path / "abandoned")
    lab.admin.abandon("a", "its files are lost")
    before = lab.records()
    with pytest.raises(LostRaceError, match="slot 1 of dataset 'a': it is not quarantined any more"):
        lab.admin.release("a", "the disk is back", slot=1)
    with pytest.raises(ConfigurationError, match="it is not quarantined"):
        lab.admin.release("a", "the disk is back")
    assert lab.records() == before


def test_the_slot_to_release_is_the_one_that_was_meant(tmp_path: Path) -> None:
    lab, _ = quarantined(tmp_path)
    lab.admin.abandon("a", "its files are lost")
    stick(lab, A)
    before = lab.records()
    with pytest.raises(LostRaceError, match="slot 1 of dataset 'a': it is not quarantined any more"):
        lab.admin.release("a", "the disk is back", slot=1)
    assert lab.records() == before
    lab.admin.release("a", "the disk is back", slot=2)
    assert not lab.reopened().state("a").quarantined


def test_of_several_plans_each_is_aborted_and_the_error_gives_their_number(tmp_path: Path) -> None:
    store = Meanwhile()
    lab = Lab(tmp_path / "both", store=store)
    lab.extracted(A), lab.extracted(A)
    slots = lab.admin.abandon("a", "wrong source")
    assert [(s.decision.slot, s.decision.action, s.decision.actor) for s in slots] == [
        (1, Action.ABORT, "ann"),
        (2, Action.ABORT, "ann"),
    ]
    store = Meanwhile()
    lab = Lab(tmp_path / "one", store=store)
    lab.extracted(A), lab.extracted(A)
    store.before = "/d/0000000002"
    store.happens = lambda: Administration(Journal.create(store, "lab"), str(lab.folder), "bob").set_watermark(
        "a", LongWatermark(4), "never mind"
    )
    with overtaken_by("set") as caught:
        lab.admin.abandon("a", "wrong source")
    assert caught.value.__notes__ == ["Before that, 1 of 2 plans was aborted."]
    assert [s.decision.action for s in lab.reopened().history("a").slots] == [Action.ABORT, Action.SET]


def test_while_a_slot_is_pending_no_other_is_taken(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    rewind, skip = (
        lab.admin.would_rewind("a", LongWatermark(5)),
        lab.admin.would_set_watermark("a", LongWatermark(30)),
    )
    lab.decide(replace(A, rows=12))
    before, published = lab.records(), lab.published()
    refused: tuple[Callable[[], object], ...] = (
        lambda: lab.admin.rewind("a", LongWatermark(5), "wrong"),
        lambda: lab.admin.set_watermark("a", LongWatermark(30), "never mind"),
        lambda: lab.admin.drop("a", "it is over"),
        lambda: lab.admin.import_state(ExportedDataset("a", LongWatermark(4)), "moved"),
    )
    for act in refused:
        with pytest.raises(ConfigurationError, match="slot 2 is pending"):
            act()
    assert lab.records() == before
    for change in (rewind, skip):  # shown before it was
        with overtaken_by("commit"):
            lab.admin.carry_out(change, "wrong")
    left = {key: data for key, data in lab.records().items() if "/c/" not in key}  # steps of no decision are nothing
    assert left == {key: data for key, data in before.items() if "/c/" not in key}
    assert lab.published() == published


def test_of_two_watermarks_the_one_that_was_shown_before_the_other_was_set_is_not_set(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    admin = lab.admin
    near, far = admin.would_set_watermark("a", LongWatermark(20)), admin.would_set_watermark("a", LongWatermark(30))
    admin.carry_out(far, "these are not wanted")
    before = lab.records()
    with overtaken_by("set"):
        admin.carry_out(near, "nor are these")
    with pytest.raises(ConfigurationError, match="20 is not ahead of its watermark 30"):
        admin.set_watermark("a", LongWatermark(20), "nor are these")
    assert lab.records() == before
    assert lab.reopened().state("a").watermark == LongWatermark(30)


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_reason_is_needed(tmp_path: Path, reason: str) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    before = lab.records()
    admin = lab.admin
    for act in (
        lambda: admin.release("a", reason),
        lambda: admin.abandon("a", reason),
        lambda: admin.rewind("a", LongWatermark(4), reason),
        lambda: admin.set_watermark("a", LongWatermark(40), reason),
        lambda: admin.drop("a", reason),
        lambda: admin.import_state(ExportedDataset("b", LongWatermark(4)), reason),
        lambda: admin.release_claim("a", reason),
    ):
        with pytest.raises(ConfigurationError, match="reason"):
            act()
    assert lab.records() == before


def test_a_snapshot_gets_no_watermark(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("s", ExtractKind.SNAPSHOT_ONLY, 4))
    lab.run()
    with pytest.raises(ConfigurationError, match="it is a snapshot, and has no positions"):
        lab.admin.set_watermark("s", LongWatermark(4), "wrong")


# Imports


def moved(lab: Lab) -> tuple[Lab, ExportedDataset]:
    """An empty journal for the same target, and what the other one exports."""
    there = Lab(lab.folder, A)
    return there, export(lab.journal, lab.journal.history("a"))


def test_plans_made_before_an_import_lose(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened = lab.opened()
    plan = create_work_units(opened, RunRequest("before"))
    lab.admin.import_state(ExportedDataset("a", LongWatermark(6)), "from the other tool")
    inprocess.extract(opened, plan, NoConnections())
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "lost"
    lab.run()
    assert sorted(lab.rows("a")) == ["a/6", "a/7", "a/8", "a/9"]


def test_an_import_takes_over_what_is_covered_and_no_files(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    there, state = moved(lab)
    with pytest.raises(ConfigurationError, match="names published files, and these can't be taken over"):
        there.admin.import_state(state, "moved")
    assert there.reopened().datasets() == ()
    there.admin.import_state(replace(state, units=()), "moved")
    assert there.reopened().state("a").coverage == lab.journal.state("a").coverage
    assert [*unannounced(there.opened())] == []
    there.admin.rewind("a", LongWatermark(4), "again")
    lab.admin.release_claim("a", "moved")
    before = set(lab.published())
    there.run()
    assert sorted(there.rows("a")) == [f"a/{n}" for n in range(4, 10)]
    assert before <= set(lab.published())
    assert lab.rows("a") == A.all_rows()


def whole(folder: Path) -> Lab:
    """An ingestion of four datasets: published, never published, dropped before, and claimed only."""
    tables = [Table(urn, ExtractKind.APPEND_ONLY, 10) for urn in ("a", "b", "c", "d")]
    lab = Lab(folder, *tables[:3])
    lab.run(units=("b:u1",))
    lab.admin.drop("c", "it was over before")
    create_work_units(lab.opened(*tables), RunRequest("only planned", datasets=("d",)))
    return lab


def drop_all(admin: Administration, *, delete_files: bool = False) -> list[str]:
    done = [
        admin.carry_out(change, "the shop is closed").decision.urn
        for change in admin.would_drop_all(delete_files=delete_files)
    ]
    assert admin.after_drop_all() == ()
    return done


@pytest.mark.parametrize("delete", [False, True])
def test_a_whole_ingestion_is_dropped_each_dataset_by_a_slot_of_its_own(tmp_path: Path, delete: bool) -> None:
    lab = whole(tmp_path)
    assert drop_all(lab.admin, delete_files=delete) == ["a", "b", "d"]
    lab.reopened()
    for urn in "abcd":
        last = lab.journal.history(urn).slots[-1]
        assert (last.decision.action, last.done, last.decision.actor) == (Action.DROP, True, "ann")
    assert Claims(LocalFiles(str(tmp_path))).valid() == {}
    assert lab.opened().staging.tokens() == ()
    assert bool(lab.files("a")) is not delete
    assert lab.admin.would_drop_all() == ()


@pytest.mark.parametrize("name", ["put_decision", "put_outcome", "claims", "clean"])
def test_a_drop_of_all_that_was_killed_goes_on_when_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lab = whole(tmp_path)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    owner, method = {
        "put_decision": (Journal, "put_decision"),
        "put_outcome": (Journal, "put_outcome"),
        "claims": (Claims, "release"),
        "clean": (Cleanup, "clean"),
    }[name]
    with monkeypatch.context() as patched:
        patched.setattr(owner, method, die)
        with pytest.raises(KeyboardInterrupt):
            drop_all(lab.admin, delete_files=True)
    lab.reopened()
    drop_all(lab.admin, delete_files=True)
    assert lab.admin.would_drop_all() == ()
    assert Claims(LocalFiles(str(tmp_path))).valid() == {}
    assert lab.files("a") == []
    drops = [slot for slot in lab.journal.history("a").slots if slot.decision.action is Action.DROP]
    assert len(drops) == (2 if name == "claims" else 1)


@pytest.mark.slow
def test_a_drop_of_all_leaves_out_what_cannot_be_read_and_names_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, replace(A, urn="b"))
    lab.run()
    (torn,) = lab.store.list("lab/a/d/")
    lab.store.delete(torn)
    lab.store.put_if_absent(torn, b"torn")
    lab.reopened()
    assert [change.urn for change in lab.admin.would_drop_all()] == ["b"]
    for change in lab.admin.would_drop_all():
        lab.admin.carry_out(change, "over")
    (left,) = lab.admin.after_drop_all()
    assert left.startswith("dataset 'a' can't be read, and is left as it is: ")
    assert torn in left
    assert lab.journal.history("b").slots[-1].decision.action is Action.DROP
    assert lab.admin.would_drop_all() == ()
    assert len(lab.files("a")) == 3


def test_a_drop_of_all_changes_nothing_while_a_slot_is_pending(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, 4), Table("b", ExtractKind.APPEND_ONLY, 4))
    lab.run()
    lab.decide(Table("a", ExtractKind.APPEND_ONLY, 8), Table("b", ExtractKind.APPEND_ONLY, 4))
    before = lab.records()
    with pytest.raises(ConfigurationError, match=r"a slot is pending of 'a'.*abandon it"):
        lab.admin.would_drop_all()
    assert lab.records() == before
