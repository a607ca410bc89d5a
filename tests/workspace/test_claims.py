"""Claims: a folder of a target belongs to one journal, ingestion and dataset, and any other is stopped by name."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import ClaimError, ConfigurationError, LostRaceError, RecordError
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import NoteKind, now
from airflow_gobblin.model import wire
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.decide import _decide, write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.workspace import claims as module
from airflow_gobblin.workspace.claims import CHAIN, Claim, ClaimAction, Claims
from tests.faults import Call, Crash, FaultyFiles, died
from tests.lab import Lab, stick
from tests.protocol.attempts import Attempt
from tests.protocol.rows import LineSink, Table

T = TypeVar("T")
A, B = (Table(urn, ExtractKind.APPEND_ONLY, 10) for urn in "ab")


def claims(root: Path) -> Claims:
    return Claims(LocalFiles(root))


def journal(ingestion: str = "flights", store: MemoryStore | None = None) -> Journal:
    return Journal.create(store or MemoryStore(), ingestion)


def test_a_claim_is_valid_and_may_be_made_again(tmp_path: Path) -> None:
    mine = journal()
    for _ in range(3):
        claims(tmp_path).check(mine, "main.a", "a")
    (claim,) = claims(tmp_path).valid().values()
    assert (claim.owner, claim.folder) == ((mine.id, "flights", "main.a"), "a")
    assert [p.name for p in (tmp_path / CHAIN).iterdir() if p.is_file()] == ["0000000001"]


@pytest.mark.parametrize("folder", ["a", "a/b", "."])
def test_one_folder_is_not_for_two_datasets_nor_within_another(tmp_path: Path, folder: str) -> None:
    mine = journal()
    claims(tmp_path).check(mine, "main.a", "a")
    if folder == ".":
        with pytest.raises(ClaimError):
            claims(tmp_path.parent).check(mine, "main.b", tmp_path.name)
        return
    with pytest.raises(ClaimError) as caught:
        claims(tmp_path).check(mine, "main.b", folder)
    text = str(caught.value)
    assert f"dataset 'main.b' of ingestion 'flights' to {tmp_path}/{folder}" in text
    assert f"{tmp_path}/a belongs to dataset 'main.a' of ingestion 'flights' in journal {mine.id}" in text
    assert "Give the dataset a target of its own; or, if the other one is gone, `airflow gobblin release-claim`" in text
    assert list(claims(tmp_path).valid()) == ["a"]


def test_folders_beside_each_other_are_free(tmp_path: Path) -> None:
    mine = journal()
    for folder in ("a", "ab", "a-b", "a.b", "b/a"):
        claims(tmp_path).check(mine, f"main.{folder}", folder)
    assert len(claims(tmp_path).valid()) == 5


@pytest.mark.parametrize(("one", "other"), [("", "deep/inside"), ("deep/inside", "")])
def test_target_roots_within_each_other_are_seen(tmp_path: Path, one: str, other: str) -> None:
    """The folder of one dataset holds the other's target root."""
    outer, inner = (tmp_path, "deep"), (tmp_path / "deep" / "inside", "b")
    first, second = (outer, inner) if one == "" else (inner, outer)
    mine = journal()
    claims(first[0]).check(mine, "first", first[1])
    with pytest.raises(ClaimError, match="belongs to dataset 'first'"):
        claims(second[0]).check(mine, "second", second[1])
    claims(tmp_path / "elsewhere").check(mine, "second", second[1])


def test_a_root_below_is_found_among_many_files_and_folders_by_a_bounded_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = tmp_path / "t"
    for path in ("a/x/y/z/file", *(f"a/{number:03d}/deep/er/file" for number in range(40))):
        (outer / path).parent.mkdir(parents=True, exist_ok=True)
        (outer / path).write_text("")
    claims(outer / "a/x/y").check(journal("inner"), "i", "z")
    looked: list[str] = []
    folders = LocalFiles.folders

    def counted(self: LocalFiles, path: str) -> tuple[str, ...]:
        looked.append(path)
        return folders(self, path)

    monkeypatch.setattr(LocalFiles, "folders", counted)
    with pytest.raises(ClaimError, match="of ingestion 'inner'"):
        claims(outer).check(journal("outer"), "o", "a")
    looked.clear()
    monkeypatch.setattr(module, "_MOST_FOLDERS", 50)
    claims(outer).check(journal("outer"), "o", "a")
    assert len([path for path in looked if path.startswith("a")]) == 100, "50 before its claim, and again after it"
    with pytest.raises(ClaimError, match="of ingestion 'outer'"):
        claims(outer / "a/x/y").check(journal("inner"), "j", "more")


def test_a_root_is_known_by_whatever_name_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "into").symlink_to("real/deep")
    claims(tmp_path / "real").check(journal(), "main.a", "deep")
    for root, folder in (
        (tmp_path / "link", "deep"),
        (tmp_path / "into", "b"),
        (tmp_path / "link/../real", "deep"),
    ):
        with pytest.raises(ClaimError, match=r"belongs to dataset 'main\.a'"):
            claims(root).check(journal(), "main.b", folder)


def test_an_empty_journal_is_no_first_run(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    published = lab.published()
    unmounted = Lab(tmp_path, replace(A, rows=20), store=MemoryStore())
    before = unmounted.records()
    report = unmounted.run()["a"]
    assert report.status == "failed"
    assert f"{tmp_path}/a belongs to this ingestion and dataset in journal {lab.journal.id}" in report.detail
    assert f"this is journal {unmounted.journal.id}" in report.detail
    assert "Is the journal's store the right one, and mounted?" in report.detail
    assert "release the claim, and set the watermark to what is published" in report.detail
    assert {key for key in unmounted.records().keys() - before.keys() if "/n/" not in key} == set(), "no slot is taken"
    assert lab.published() == published


def test_the_way_out_of_a_journal_that_is_lost(tmp_path: Path) -> None:
    Lab(tmp_path, A).run()
    lab = Lab(tmp_path, replace(A, rows=14), store=MemoryStore())
    released = lab.admin.release_claim("a", "the journal's disk is gone")
    assert (released.claim.urn, released.slot) == ("a", None)
    assert lab.records().keys() == {"_journal"}
    lab.admin.set_watermark("a", LongWatermark(10), "as published")
    assert lab.run()["a"].rows == 4
    assert sum(len(data.splitlines()) for data in lab.published().values()) == 14


def test_a_release_is_audited_and_frees_the_folder(tmp_path: Path) -> None:
    mine, other = journal(), journal("others")
    earlier = claims(tmp_path)
    earlier.check(mine, "main.a", "a")
    claims(tmp_path).release("a", "ann", "moved away")
    earlier.check(other, "their.a", "a")
    assert earlier.valid()["a"].owner == (other.id, "others", "their.a")
    release = (tmp_path / CHAIN / "0000000002").read_text()
    assert '"ann"' in release
    assert '"moved away"' in release


def noted(lab: Lab) -> list[tuple[int, str, str, str]]:
    """The claims that were released, as the journal records them: slot, what, by whom and why."""
    slots = lab.reopened().history("a").slots
    return [(s.decision.slot, note.event, note.actor, note.detail) for s in slots for note in s.releases]


def test_a_release_by_the_owner_is_in_its_journal(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.run(replace(A, rows=12))
    assert lab.admin.release_claim("a", "it moves away").slot == 2
    assert noted(lab) == [(2, "claim-released", "ann", "it moves away")]
    assert claims(tmp_path).valid() == {}
    state = lab.journal.state("a")
    lab.run()
    assert lab.reopened().state("a") == state
    assert lab.rows("a") == replace(A, rows=12).all_rows()


def test_a_release_before_the_first_slot_is_recorded_with_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.extracted()
    assert lab.admin.release_claim("a", "it moves away").slot == 0
    assert noted(lab) == []
    lab.run()
    assert noted(lab) == [(1, "claim-released", "ann", "it moves away")]


def test_a_claim_of_a_dataset_that_is_quarantined_is_not_released_and_leaves_it_so(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    stick(lab, A)
    failure = lab.journal.history("a").slots[-1].last_failure
    with pytest.raises(ConfigurationError, match="slot 1 is pending"):
        lab.admin.release_claim("a", "it moves away")
    history = lab.reopened().history("a")
    assert history.state.quarantined
    assert history.slots[-1].last_failure == failure != ""


def test_a_release_that_dies_after_its_note_can_be_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    with monkeypatch.context() as patch:
        patch.setattr(Claims, "release", died)
        with pytest.raises(Crash):
            lab.admin.release_claim("a", "it moves away")
    assert [*claims(tmp_path).valid()] == ["a"]
    lab.admin.release_claim("a", "once more")
    assert [why for *_, why in noted(lab)] == ["it moves away", "once more"]
    assert claims(tmp_path).valid() == {}


@pytest.mark.slow
def test_a_claim_of_a_dataset_that_cant_be_read_is_released_all_the_same(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    store = MemoryStore()
    for key, data in lab.records().items():
        store.put_if_absent(key, b"{" if key.endswith("d/0000000001") else data)
    torn = Lab(tmp_path, A, store=store)
    assert torn.admin.release_claim("a", "it is torn").slot is None
    assert claims(tmp_path).valid() == {}


def test_the_claim_to_release_is_the_one_that_was_meant(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    meant = lab.admin.claim("a")
    claims(tmp_path).release("a", "bob", "moved")
    before = lab.records()
    with pytest.raises(ClaimError, match="nobody claims it"):
        lab.admin.release_claim("a", "it moves away", meant)
    claims(tmp_path).check(journal("others"), "their.a", "a")
    with pytest.raises(ClaimError, match="somebody else claimed the folder"):
        lab.admin.release_claim("a", "it moves away", meant)
    assert claims(tmp_path).valid()["a"].urn == "their.a"
    assert lab.records() == before, "a claim that was not released is not noted"


def test_what_nobody_claims_cant_be_released(tmp_path: Path) -> None:
    with pytest.raises(
        ClaimError, match=r"No folder is claimed there. Is it the right target, and is it mounted here\?"
    ):
        claims(tmp_path).release("orders", "ann", "why")
    for folder in ("orders", *"abcdefghijkl"):
        claims(tmp_path).check(journal(), f"main.{folder}", folder)
    with pytest.raises(ClaimError, match=r"the claim on 'order' below .*nobody claims it. Did you mean 'orders'\?"):
        claims(tmp_path).release("order", "ann", "why")
    with pytest.raises(ClaimError, match=r"Claimed are 'a', .*'j' and 3 more\.$"):
        claims(tmp_path).release("X", "ann", "why")


def test_of_two_who_claim_at_once_one_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = journal(), journal("others")
    late, early = claims(tmp_path), claims(tmp_path)
    refuse = late._refuse

    def overtaken(claim: object) -> None:
        refuse(claim)  # type: ignore[arg-type]
        early.check(other, "their.a", "a")

    monkeypatch.setattr(late, "_refuse", overtaken)
    with pytest.raises(ClaimError, match=r"belongs to dataset 'their.a' of ingestion 'others'"):
        late.check(mine, "main.a", "a")


def test_two_datasets_of_one_run_on_one_folder(tmp_path: Path) -> None:
    """A sink that gives two datasets one folder: the first has it, and the second is stopped before anything is read."""
    lab = Lab(tmp_path, A, B)
    lab.ingestion = replace(lab.ingestion, sink=_OneFolder(str(tmp_path)))
    reports = lab.run()
    assert (reports["a"].status, reports["b"].status) == ("committed", "failed")
    assert "dataset 'b' of ingestion 'lab'" in reports["b"].detail
    assert "belongs to dataset 'a'" in reports["b"].detail
    assert lab.journal.history("b").slots == ()
    assert lab.rows("a") == A.all_rows()


@record("test.one_folder")
@dataclass(frozen=True)
class _OneFolder(LineSink):
    def folder(self, dataset: object) -> str:
        return "shared"


@pytest.mark.parametrize("folder", [".", "", "_gobblin/a", "../a", "/a", "a//b"])
def test_a_folder_that_can_be_none_is_refused_before_anything_is_decided(tmp_path: Path, folder: str) -> None:
    lab = Lab(tmp_path, A)
    lab.ingestion = replace(lab.ingestion, sink=_InFolder(str(tmp_path), where=folder))
    report = lab.run()["a"]
    assert report.status == "failed"
    assert f"can't plan dataset 'a' to folder {folder!r}" in report.detail
    assert "let the target be the one above it" in report.detail
    assert lab.journal.history("a").slots == ()
    assert claims(tmp_path).valid() == {}


@record("test.in_folder")
@dataclass(frozen=True)
class _InFolder(LineSink):
    where: str = ""

    def folder(self, dataset: object) -> str:
        return self.where


def test_a_claim_is_not_released_while_a_slot_is_pending(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    before = lab.records()
    with pytest.raises(ConfigurationError) as caught:
        lab.admin.release_claim("a", "it moves away")
    assert "slot 1 is pending, and is to be published to 'a'" in str(caught.value)
    assert "Let the next run finish it, or abandon it" in str(caught.value)
    other = Administration(Journal.create(lab.store, "others"), str(tmp_path), "ann")
    with pytest.raises(ConfigurationError, match="slot 1 is pending"):
        other.release_claim("a", "it moves away")
    assert lab.records().keys() - before.keys() == set()
    execute_commit_steps(opened, plan, plan.packs[0])
    assert lab.admin.release_claim("a", "it moves away").slot == 1


@pytest.mark.parametrize("recovering", [False, True])
def test_a_claim_that_another_journal_released_while_a_slot_was_pending_is_not_written_below(
    tmp_path: Path, recovering: bool
) -> None:
    """A user of another journal can't see the slot. It stays pending, by name."""
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    other = Lab(tmp_path, A, store=MemoryStore())
    other.admin.release_claim("a", "that journal seems to be lost")
    assert other.run()["a"].status == "committed"
    before = lab.published()
    if recovering:
        (report,) = verify_recover(opened, RunRequest("dag/next"))
    else:
        (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "failed"
    assert f"belongs to this ingestion and dataset in journal {other.journal.id}" in report.detail
    assert lab.published() == before
    assert lab.reopened().history("a").pending is not None
    lab.admin.abandon("a", "the other one goes on")
    assert lab.published() == before


@pytest.mark.parametrize("taken", [False, True])
def test_a_claim_that_another_journal_released_while_files_were_moved_is_noticed_before_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """Between the look at a claim and the moves there is no lock: files that were moved meanwhile are published by no outcome."""
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    other = Lab(tmp_path, A, store=MemoryStore())
    carry_out_all = opened.committer._carry_out_all

    def released(decision: Any) -> Any:
        other.admin.release_claim("a", "that journal seems to be lost")
        if taken:
            assert other.run()["a"].status == "committed"
        return carry_out_all(decision)

    monkeypatch.setattr(opened.committer, "_carry_out_all", released)
    (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    if not taken:
        assert report.status == "committed", "it is claimed anew"
        assert claims(tmp_path).valid()["a"].journal == lab.journal.id
        return
    assert report.status == "failed"
    assert f"belongs to this ingestion and dataset in journal {other.journal.id}" in report.detail
    assert lab.reopened().history("a").pending is not None
    lab.admin.abandon("a", "the other one goes on")
    assert {str(path) for path in lab.files("a")} == {*other.reopened().read_dataset("a").paths}
    assert other.rows("a") == A.all_rows()


def test_a_claim_that_is_lost_after_another_process_ended_the_slot_is_no_matter_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    late = lab.opened()
    carry_out_all = late.committer._carry_out_all

    def overtaken(decision: Any) -> Any:
        done = carry_out_all(decision)
        execute_commit_steps(opened, plan, plan.packs[0])
        lab.admin.release_claim("a", "it moves away")
        claims(tmp_path).check(journal("others"), "their.a", "a")
        return done

    monkeypatch.setattr(late.committer, "_carry_out_all", overtaken)
    (report,) = execute_commit_steps(late, plan, plan.packs[0])
    assert report.status == "committed"
    assert claims(tmp_path).valid()["a"].urn == "their.a"


def test_a_claim_that_another_journal_released_is_made_anew_where_the_folder_is_still_free(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.decide()
    other = Lab(tmp_path, A, store=MemoryStore())
    other.admin.release_claim("a", "that journal seems to be lost")
    (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "committed"
    note = create_work_units(other.opened(), RunRequest("dag/other")).notes[0]
    assert f"belongs to this ingestion and dataset in journal {lab.journal.id}" in note.detail


def test_a_folder_that_a_dataset_left_and_gave_up_is_no_matter_of_its_slots(tmp_path: Path) -> None:
    """It was published to one folder, to another, and goes on in the first; the other is somebody else's by now."""
    lab, other = (Lab(tmp_path, A, store=MemoryStore()) for _ in range(2))
    for rows, folder in ((10, "x"), (12, "y"), (14, "x")):
        if rows == 14:
            lab.admin.release_claim("y", "it is for others now")
            other.ingestion = replace(other.ingestion, sink=_InFolder(str(tmp_path), where="y"))
            assert other.run()["a"].status == "committed"
        lab.ingestion = replace(lab.ingestion, sink=_InFolder(str(tmp_path), where=folder))
        assert lab.run(replace(A, rows=rows))["a"].status == "committed"
    assert lab.rows("a") == replace(A, rows=14).all_rows()


def test_of_several_folders_of_a_dataset_the_one_of_its_slot_is_looked_at(tmp_path: Path) -> None:
    """It has claimed another one since; this one was released over another journal, and taken."""
    lab, other = (Lab(tmp_path, A, store=MemoryStore()) for _ in range(2))
    lab.ingestion = replace(lab.ingestion, sink=_InFolder(str(tmp_path), where="x"))
    opened, plan = lab.extracted()
    lab.ingestion = replace(lab.ingestion, sink=_InFolder(str(tmp_path), where="y"))
    create_work_units(lab.opened(), RunRequest("another"))
    write_commit_steps(opened, plan, plan.packs[0])
    other.admin.release_claim("x", "that journal seems to be lost")
    other.ingestion = replace(other.ingestion, sink=_InFolder(str(tmp_path), where="x"))
    assert other.run()["a"].status == "committed"
    before = lab.published()
    (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "failed"
    assert f"belongs to this ingestion and dataset in journal {other.journal.id}" in report.detail
    assert lab.published() == before


@pytest.mark.parametrize("taken", [False, True])
def test_a_release_in_the_moment_of_a_decision_lets_no_two_write_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """The claim is released after the task checked it, and before it decides."""
    lab = Lab(tmp_path, A)
    opened, plan = lab.extracted()
    decide = _decide

    def released(on: OpenJob, of: Plan) -> Slot | DatasetReport:
        Administration(Journal.create(lab.store, "lab"), str(tmp_path), "bob").release_claim("a", "it moves away")
        if taken:
            claims(tmp_path).check(journal("others"), "their.a", "a")
        return decide(on, of)

    monkeypatch.setattr("airflow_gobblin.run.decide._decide", released)
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    (slot,) = lab.reopened().history("a").slots
    claim = claims(tmp_path).valid()["a"]
    if taken:
        assert "belongs to dataset 'their.a'" in report.detail
        assert (slot.abandoned, slot.noted(NoteKind.CLEANED), claim.urn) == (True, True, "their.a")
    else:
        assert (slot.finished, claim.urn) == (False, "a")
    execute_commit_steps(opened, plan, plan.packs[0])
    assert bool(lab.files("a")) == (not taken)


def test_a_decision_in_the_moment_of_a_release_takes_the_claim_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A)
    opened, plan = lab.extracted()
    release = Claims.release

    def decided(self: Claims, *args: Any, **options: Any) -> Claim:
        write_commit_steps(opened, plan, plan.packs[0])
        return release(self, *args, **options)

    monkeypatch.setattr(Claims, "release", decided)
    with pytest.raises(LostRaceError, match="slot 1 of dataset 'a' was decided just now; it is claimed again"):
        Administration(Journal.create(lab.store, "lab"), str(tmp_path), "bob").release_claim("a", "it moves away")
    assert claims(tmp_path).valid()["a"].urn == "a"


def test_a_late_task_does_not_claim_the_folder_of_a_dropped_dataset_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was planned, or read the journal, before the drop; and it claims after it."""
    lab = Lab(tmp_path, A)
    lab.run()
    late, plan = lab.extracted(replace(A, rows=14))
    history = lab.journal.history("a")
    check = late.claims.check

    def dropped(*args: Any) -> bool:
        Administration(Journal.create(lab.store, "lab"), str(tmp_path), "bob").drop("a", "the shop was closed")
        return check(*args)

    monkeypatch.setattr(late.claims, "check", dropped)
    (report,) = write_commit_steps(late, plan, plan.packs[0])
    assert report.status == "lost"
    assert "it was dropped after this was planned" in report.detail
    assert claims(tmp_path).valid() == {}
    claims(tmp_path).check(journal("others"), "their.a", "a")
    with pytest.raises(LostRaceError):
        claims(tmp_path).check(lab.journal, "a", "a", history)
    claims(tmp_path).release("a", "ann", "they are gone")
    chain = claims(tmp_path)._files.records(CHAIN)
    number = len([*chain.list("")]) + 1
    void = Claim(ClaimAction.CLAIM, lab.journal.id, "lab", "a", "a", now(), generation=history.state.generation)
    assert chain.put_if_absent(f"{number:010d}", wire.dumps(void)), (
        "a claim that died on its way to look exists, and is void"
    )
    assert claims(tmp_path).valid() == {}
    assert lab.run()["a"].status == "committed", "it begins anew"


# Two roots, two chains


class _Turns:
    """Two attempts that hand over after so many calls.

    :param blocks: how many each makes in its turn, one after the other.
    """

    def __init__(self, blocks: tuple[int, ...]) -> None:
        self.blocks = iter(blocks)
        self.left: float = next(self.blocks)

    def before(self, attempt: Attempt, call: Call) -> None:
        if self.left <= 0:
            attempt.pause()
            self.left = next(self.blocks, math.inf)
        self.left -= 1

    def observe(self, call: Call, do: Callable[[], T]) -> T:
        return do()


def _claimed_by_turns(folder: Path, first: int, blocks: tuple[int, ...]) -> tuple[list[Attempt], list[str]]:
    """Let two claim nested folders, by the chains of two roots.

    :return: which did, and whose claims are valid.
    """
    places = ((folder / "t", "x"), (folder / "t" / "x", "b"))
    journals = journal("outer"), journal("inner")
    turns = _Turns(blocks)

    def claiming(number: int) -> Callable[[Attempt], None]:
        root, inside = places[number]
        return lambda attempt: void(Claims(FaultyFiles(LocalFiles(root), attempt)).check(journals[number], "a", inside))

    attempts = [Attempt(name, turns, claiming(n)) for n, name in enumerate(("outer", "inner"))]
    running = first
    while not all(attempt.ended for attempt in attempts):
        if attempts[running].ended:
            running = 1 - running
            turns.left = math.inf
        attempts[running].go_on()
        running = 1 - running
    return attempts, [claim.ingestion for root, _ in places for claim in claims(root).valid().values()]


def void(_: object) -> None:
    """Nothing."""


def _played(folder: Path) -> Counter[tuple[str, ...]]:
    """Whose claims are valid after each order with up to three changes."""
    seen: Counter[tuple[str, ...]] = Counter()
    orders = itertools.product((0, 1), range(0, 40, 4), (1, 4, 9, 17, 60), (1, 60))
    for number, (first, *blocks) in enumerate(orders):
        attempts, valid = _claimed_by_turns(folder / str(number), first, tuple(blocks))
        assert not any(attempt.failed for attempt in attempts), [attempt.error for attempt in attempts]
        refused = [attempt.name for attempt in attempts if isinstance(attempt.error, ClaimError)]
        assert len(valid) == 2 or sorted([*valid, *refused]) == ["inner", "outer"]
        seen[tuple(valid)] += 1
    return seen


@pytest.mark.slow
def test_of_two_who_claim_nested_folders_at_once_never_both_have_them(tmp_path: Path) -> None:
    """A claimant looks again, and gives way to any other that it sees then."""
    seen = _played(tmp_path)
    assert ("outer", "inner") not in seen, "both are valid"
    assert {("outer",), ("inner",)} <= set(seen), "each is first in some order"


@pytest.mark.slow
def test_without_the_second_look_both_would_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the orders above are those that matter."""
    monkeypatch.setattr(Claims, "_stay_or_give_way", lambda self, mine: None)
    assert ("outer", "inner") in _played(tmp_path)


def test_who_died_between_claim_and_look_looks_once_more(tmp_path: Path) -> None:
    outer, inner = tmp_path / "t", tmp_path / "t" / "x"
    mine, other = journal("outer"), journal("inner")
    link = Claim(ClaimAction.CLAIM, mine.id, "outer", "a", "x", now())
    LocalFiles(outer).records(CHAIN).put_if_absent("0000000001", wire.dumps(link))
    LocalFiles(inner).records(CHAIN).put_if_absent(
        "0000000001", wire.dumps(replace(link, journal=other.id, ingestion="inner", folder="b"))
    )
    with pytest.raises(ClaimError):
        claims(outer).check(mine, "a", "x")
    assert claims(outer).valid() == {}
    assert not claims(inner).check(other, "a", "b")
    assert [*claims(inner).valid()] == ["b"]


@pytest.mark.parametrize("before", ["a drop", "a watermark that was set", "a pause", "a release"])
def test_who_died_between_claim_and_look_looks_once_more_whatever_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    lab = Lab(tmp_path / "t", A)
    if before == "a watermark that was set":
        lab.admin.set_watermark("a", LongWatermark(2), "the rest is elsewhere")
    elif before == "a pause":
        lab.run(units=("a:u1",))
        lab.admin.pause("a", "its line is dead")
        lab.admin.resume("a", "it is mended")
        lab.admin.release_claim("a", "it was another's")
    else:
        lab.run()
        lab.admin.drop("a", "begin anew", delete_files=True) if before == "a drop" else None
        lab.admin.release_claim("a", "it was another's") if before == "a release" else None

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(Claims, "_stay_or_give_way", die)
        with pytest.raises(KeyboardInterrupt):
            lab.run(replace(A, rows=12))
    (mine,) = claims(tmp_path / "t").valid().values()
    other = replace(mine, journal="0" * 32, ingestion="inner", urn="b", folder="b")
    LocalFiles(tmp_path / "t" / "a").records(CHAIN).put_if_absent("0000000001", wire.dumps(other))
    assert lab.run(replace(A, rows=12))["a"].status == "failed", "somebody else has a folder in it"
    assert claims(tmp_path / "t").valid() == {}


@pytest.mark.parametrize("what", ["torn", "missing"])
def test_a_bad_link_stops_everything_and_is_named(tmp_path: Path, what: str) -> None:
    mine = journal()
    for urn in ("a", "b", "c"):
        claims(tmp_path).check(mine, urn, urn)
    second = tmp_path / CHAIN / "0000000002"
    if what == "torn":
        second.write_bytes(second.read_bytes()[:30])
    else:
        second.unlink()
    for _ in range(2):
        with pytest.raises(RecordError, match=f"{CHAIN}/0000000002 below {tmp_path}"):
            claims(tmp_path).check(mine, "a", "a")


def test_each_link_is_read_once_however_many_datasets_there_are(tmp_path: Path) -> None:
    class Counting(LocalFiles):
        reads = 0

        def read(self, path: str) -> bytes:
            self.reads += 1
            return super().read(path)

    mine, files = journal(), Counting(tmp_path)
    claims_of_run = Claims(files)
    for n in range(30):
        claims_of_run.check(mine, f"d{n}", f"d{n}")
    assert files.reads < 4 * 30


def test_a_drop_releases_no_claim_that_was_made_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop reaches the claim late: by then the next run has decided, and publishes to the folder."""
    lab = Lab(tmp_path, A)
    lab.run()
    admin = lab.admin
    release = admin._claims.release

    def release_late(*args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        lab.decide()
        return release(*args, **more)

    monkeypatch.setattr(admin._claims, "release", release_late)
    admin.drop("a", "begin anew", delete_files=True)
    assert lab.reopened().history("a").pending is not None
    assert [*claims(tmp_path).valid()] == ["a"]
    assert lab.run()["a"].status in ("committed", "idle")
    lab.admin.drop("a", "for good")
    assert [*claims(tmp_path).valid()] == []


def test_who_plans_while_a_dataset_is_being_dropped_claims_its_folder_anew(tmp_path: Path) -> None:
    """The claim is released after the drop is decided, so perhaps after the next run has planned."""
    lab = Lab(tmp_path, A)
    lab.run()
    lab.admin.drop("a", "begin anew", delete_files=True)
    opened, plan = lab.extracted()
    claims(tmp_path).release("a", "ann", "begin anew")
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
    assert [*claims(tmp_path).valid()] == ["a"]
