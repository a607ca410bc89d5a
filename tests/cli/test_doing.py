"""Commands that change something: they show it, ask, and record who did it and why in the journal."""

from __future__ import annotations

import getpass
import re
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, NoteKind
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import FenceResult, StepContext
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.workspace.claims import CHAIN, Claims
from tests.cli.conftest import CommandLine
from tests.lab import Lab, stick
from tests.protocol.acts import Fences, TakeStep
from tests.protocol.rows import LineSink, Table

ORDERS = Table("orders", ExtractKind.APPEND_ONLY, 10)
WHY = ("--reason", "amounts were wrong")


def test_a_rewind_shows_what_it_does_and_asks(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    done = command("rewind", "orders", "--to", "5", *WHY, "-o", "json", answer="y\n")
    assert done.status == 0
    assert "watermark: 10; becomes: 4; open_again: [4, 10); files_retired: 2; rows_retired: 6" in done.err
    assert done.json == [
        {"dataset": "orders", "action": "rewind", "slot": 2, "actor": getpass.getuser(), "reason": "amounts were wrong"}
    ]
    lab.reopened()
    decision = lab.journal.history("orders").slots[-1].decision
    assert (decision.actor, decision.reason) == (getpass.getuser(), "amounts were wrong")
    assert lab.run(ORDERS)["orders"].rows == 6
    assert lab.rows("orders") == ORDERS.all_rows()


def test_where_no_journal_is_only_what_is_confirmed_makes_one(tmp_path: Path, command: CommandLine) -> None:
    Claims(LocalFiles(tmp_path / "lake")).check(Journal.create(MemoryStore(), "lost"), "old", "old")
    state = tmp_path / "state.json"
    state.write_text('{"datasets": [{"urn": "orders", "watermark": {"kind": "long", "value": 4}}]}')
    (tmp_path / "journal").mkdir()
    where = ("--journal", f"{tmp_path}/journals", "--name", "lab", "--target", f"{tmp_path}/lake", *WHY)
    start = ("set-watermark", "orders", "--kind", "long", "--to", "4", *where)
    for words in (start, ("import", str(state), *where), ("release-claim", "old", *where)):
        done = command(*words, answer="n\n")
        assert (done.status, f"Did you mean {tmp_path}/journal?" in done.err) == (1, True), done
        assert not (tmp_path / "journals").exists(), words
    assert command("release-claim", "nowhere", *where, "--yes").status == 1
    assert command("release-claim", "old", *where, "--yes").status == 0, "it needs none"
    assert not (tmp_path / "journals").exists()
    assert command(*start, "--yes").status == 0
    assert Journal.open(f"{tmp_path}/journals", "lab").state("orders").watermark == LongWatermark(4)


@pytest.mark.parametrize("answer", ["", "n\n", "\n", "yess\n"])
def test_without_a_yes_nothing_is_changed(lab: Lab, command: CommandLine, answer: str) -> None:
    lab.run(ORDERS)
    before = lab.records()
    for words in (("rewind", "orders", "--to", "5"), ("drop", "orders"), ("set-watermark", "orders", "--to", "50")):
        done = command(*words, *WHY, answer=answer)
        assert done.status == 1
        assert done.err.endswith("Nothing was changed.")
    assert lab.records() == before


def test_a_reason_is_needed(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    done = command("drop", "orders", "--yes")
    assert done.status == 2
    assert "--reason" in done.err
    done = command("drop", "orders", "--yes", "--reason", " ")
    assert done.status == 1
    assert "Say why" in done.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("rewind", "orders", "--to", "10"), "Give a position from 0 to before 10"),
        (("rewind", "orders", "--to", "12"), "12 is not within what is covered, [0, 10)"),
        (("rewind", "orders", "--to", "-1"), "a backfill fills the range before the start"),
        (("rewind", "ordres", "--to", "5"), "Did you mean 'orders'?"),
        (("rewind", "stock", "--to", "5"), "its next run reads all of it"),
        (("rewind", "orders", "--to", "five"), "Write an integer: 42"),
        (("rewind", "orders", "--to", "2026-01-01"), "Write an integer: 42"),
        (
            ("set-watermark", "orders", "--to", "3"),
            "A rewind can take back what is covered. Give a position from 0 to before 10",
        ),
        (("set-watermark", "orders", "--to", "3", "--kind", "timestamp"), "Leave --kind out"),
        (("set-watermark", "new", "--to", "3"), "Give --kind"),
        (("set-watermark", "new", "--to", "2026-01-01", "--kind", "timestamp"), "it has no time zone"),
        (("release", "orders"), "it is not quarantined"),
        (("abandon", "orders"), "no slot is pending, and no plan is open"),
        (("drop", "ordres"), "Did you mean 'orders'?"),
        (("release-claim", "nowhere"), "nobody claims it"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    lab: Lab, command: CommandLine, words: tuple[str, ...], expected: str
) -> None:
    lab.run(ORDERS, Table("stock", ExtractKind.SNAPSHOT_ONLY, 3))
    before = lab.records(), lab.published()
    done = command(*words, "--yes", *WHY)
    assert (done.status, done.out) == (1, "")
    assert expected in done.err
    assert not re.search(r"\w(Error|Exception)\b|invalid literal|NoneType|Traceback", done.err), "Python's own words"
    assert (lab.records(), lab.published()) == before


def test_set_watermark_skips_and_starts(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    assert command("set-watermark", "orders", "--to", "13", "--yes", *WHY).status == 0
    misspelt = command("set-watermark", "ordres", "--to", "3", "--kind", "long", *WHY, answer="n\n")
    assert "No dataset has this URN yet. Did you mean 'orders'?" in misspelt.err
    to = ("--to", "2026-01-31T12:00:00+01:00", "--kind", "timestamp")
    assert command("set-watermark", "new", *to, "--yes", *WHY).status == 0
    lab.reopened()
    assert lab.journal.state("orders").watermark == LongWatermark(13)
    assert lab.journal.state("new").watermark == TimestampWatermark.from_json("2026-01-31T11:00:00+00:00")
    assert [slot.decision.action for slot in lab.journal.history("new").slots] == [Action.SET]


def test_a_dataset_that_starts_too_late_is_dropped_and_starts_anew(lab: Lab, command: CommandLine) -> None:
    """Its start can't be moved, and each refusal states that."""
    start = ("set-watermark", "new", "--kind", "long", *WHY, "--yes", "--to")
    assert command(*start, "20").status == 0
    for refused in (command(*start, "5"), command("rewind", "new", *WHY, "--yes", "--to", "5")):
        assert refused.status == 1
        assert "it starts at 20, and nothing from there on is covered" in refused.err
        assert "drop the dataset and set its watermark anew" in refused.err
    assert command("drop", "new", *WHY, "--yes").status == 0
    assert command(*start, "5").status == 0
    assert lab.reopened().state("new").watermark == LongWatermark(5)


def test_abandon_takes_back_what_is_pending(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    lab.decide(replace(ORDERS, rows=14))
    done = command("abandon", "orders", *WHY, "-o", "json", answer="yes\n")
    assert "slot: 2; ranges: [10, 14); files: 1; rows: 4" in done.err
    assert (done.json[0]["action"], done.json[0]["slot"]) == ("abandon", 2)
    lab.reopened()
    assert lab.journal.history("orders").slots[-1].abandoned


def test_a_step_that_is_fenced_has_airflows_connections(
    lab: Lab, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.ingestion = replace(lab.ingestion, sink=LineSink(str(lab.folder), acts=Fences.MARK))
    lab.decide(ORDERS)
    fence, found = TakeStep.fence, []

    def dialling(step: TakeStep, context: StepContext) -> FenceResult:
        found.append(context.connections.uri("shop_db"))
        return fence(step, context)

    monkeypatch.setattr(TakeStep, "fence", dialling)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", "postgres://ann:hunter2@shop/db")
    done = command("abandon", "orders", *WHY, "--yes")
    assert done.status == 0, done.err
    assert lab.reopened().history("orders").slots[-1].abandoned
    assert [uri.rpartition("@")[2] for uri in found] == ["shop/db"]
    assert "hunter2" not in done.out + done.err


def test_release_lets_a_quarantined_dataset_go_on(lab: Lab, command: CommandLine) -> None:
    stick(lab, ORDERS)
    assert command("show", "orders", "-o", "json").json[0]["status"] == "quarantined"
    assert command("release", "orders", "--yes", *WHY).status == 0
    note = lab.reopened().notes("orders", 1)[-1]
    assert (note.event, note.actor, note.detail) == (NoteKind.RELEASED, getpass.getuser(), "amounts were wrong")
    assert command("show", "orders", "-o", "json").json[0]["status"] == "pending"


def test_every_plan_that_is_abandoned_is_listed(lab: Lab, command: CommandLine) -> None:
    for run in ("one", "two"):
        lab.extracted(ORDERS, request=RunRequest(run))
    done = command("abandon", "orders", *WHY, "-o", "json", answer="y\n")
    assert "open_plans: 2" in done.err
    assert [(row["action"], row["slot"]) for row in done.json] == [("abort", 1), ("abort", 2)]


def test_a_release_is_of_the_slot_that_was_shown(lab: Lab, command: CommandLine) -> None:
    stick(lab, ORDERS)
    seen: list[dict[str, bytes]] = []

    def abandon_it() -> None:
        lab.admin.abandon("orders", "its files are lost")
        stick(lab, ORDERS)
        seen.append(lab.records())

    done = command("release", "orders", *WHY, answer="y\n", meanwhile=abandon_it)
    assert (done.status, done.out) == (1, "")
    assert "can't release slot 1 of dataset 'orders': it is not quarantined any more. Look at it again" in done.err
    assert [lab.records()] == seen
    assert lab.reopened().state("orders").quarantined


def test_while_a_slot_is_pending_the_watermark_stays(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    lab.decide(replace(ORDERS, rows=14))
    before = lab.records()
    for words in (("rewind", "orders", "--to", "5"), ("set-watermark", "orders", "--to", "20"), ("drop", "orders")):
        done = command(*words, *WHY, "--yes")
        assert (done.status, done.out) == (1, "")
        assert "slot 2 is pending" in done.err
    assert lab.records() == before


@pytest.mark.parametrize("to", ["11", "15"])
def test_of_two_watermarks_the_one_that_was_answered_last_is_not_set(lab: Lab, command: CommandLine, to: str) -> None:
    lab.run(ORDERS)
    other = lambda: command("set-watermark", "orders", "--to", "13", "--yes", *WHY)  # noqa: E731
    done = command("set-watermark", "orders", "--to", to, *WHY, answer="y\n", meanwhile=other)
    assert (done.status, done.out) == (1, "")
    assert "slot 2 was taken by a set just now; nothing was changed" in done.err
    lab.reopened()
    assert (lab.journal.state("orders").watermark, lab.journal.state("orders").head) == (LongWatermark(13), 2)


@pytest.mark.parametrize("delete", [True, False])
def test_drop(lab: Lab, command: CommandLine, delete: bool) -> None:
    lab.run(ORDERS)
    files = lab.published()
    done = command("drop", "orders", *(["--delete-files"] if delete else []), "--yes", *WHY)
    assert done.status == 0
    assert (
        f"becomes: none; files_{'retired' if delete else 'left'}: 3; rows_{'retired' if delete else 'left'}: 10"
        in done.err
    )
    lab.reopened()
    assert lab.journal.state("orders").watermark is None
    lab.run(Table("other", ExtractKind.APPEND_ONLY, 1))
    assert files.keys() & lab.published().keys() == (set() if delete else files.keys())


def test_release_claim(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    done = command("release-claim", "orders", "--yes", *WHY, "-o", "json")
    assert (done.json[0]["dataset"], done.json[0]["folder"], done.json[0]["actor"]) == (
        "orders",
        "orders",
        getpass.getuser(),
    )
    assert command("release-claim", "orders", "--yes", *WHY).status == 1


def test_a_claim_of_another_journal_is_kept_at_the_target_only(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    before = lab.records()
    there = lab.folder.parent / "other"
    command.where = ("--journal", there.as_uri(), "--name", "lab", "--target", str(lab.folder))
    done = command("release-claim", "orders", "--yes", *WHY, "-o", "json")
    assert (done.status, done.json[0]["noted_on_slot"]) == (0, None)
    assert "kept with the claims at the target only, and not in this journal" in done.err
    assert lab.records() == before
    assert '"amounts were wrong"' in (lab.folder / CHAIN / "0000000002").read_text()


def test_what_the_source_has_removed_is_taken_back_only_on_request(lab: Lab, command: CommandLine) -> None:
    lab.run(replace(ORDERS, kept_from=0))
    lab.run(replace(ORDERS, rows=ORDERS.rows + 2, kept_from=5))
    before = lab.records()
    refused = command("rewind", "orders", "--to", "5", *WHY, "--yes")
    assert refused.status == 1
    assert "of which the source has removed or changed rows since: it had those from 5 on" in refused.err
    assert "Give a position from 8 on; or take back all the same" in refused.err
    assert lab.records() == before
    done = command("rewind", "orders", "--to", "5", "--lossy", *WHY, "--yes", "-o", "json")
    assert [row["action"] for row in done.json] == ["rewind"]
    assert lab.reopened().state("orders").watermark == LongWatermark(4)


def test_a_claim_that_is_another_one_by_now_is_not_released(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)

    def another() -> None:
        claims = Claims(LocalFiles(lab.folder))
        claims.release("orders", "bob", "moved")
        claims.check(Journal.create(MemoryStore(), "others"), "theirs", "orders")

    before = lab.records()
    done = command("release-claim", "orders", *WHY, answer="y\n", meanwhile=another)
    assert done.status == 1
    assert lab.records() == before
    assert "somebody else claimed the folder" in done.err
    assert Claims(LocalFiles(lab.folder)).valid()["orders"].urn == "theirs"


def test_pausing_shows_what_it_does_and_keeps_who_did_it(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    done = command("pause", "orders", *WHY, "-o", "json", answer="y\n")
    assert done.status == 0
    assert "dataset: orders; action: pause; watermark: 10" in done.err
    assert done.json == [
        {"dataset": "orders", "action": "pause", "slot": 2, "actor": getpass.getuser(), "reason": "amounts were wrong"}
    ]
    lab.reopened()
    assert lab.run(replace(ORDERS, rows=12))["orders"].status == "paused"
    assert command("datasets", "-o", "json").json[0]["status"] == "paused"
    assert command("show", "orders", "-o", "json").json[0]["paused"]["reason"] == "amounts were wrong"
    slot = command("history", "orders", "-o", "json").json[0]
    assert (slot["action"], slot["state"], slot["actor"], slot["reason"]) == (
        "pause",
        "done",
        getpass.getuser(),
        "amounts were wrong",
    )
    again = command("pause", "orders", *WHY, "--yes")
    assert again.status == 1
    assert f"it is paused by {getpass.getuser()}: amounts were wrong" in again.err
    assert command("resume", "orders", "--reason", "they are right", "--yes").status == 0
    lab.reopened()
    assert lab.run(replace(ORDERS, rows=12))["orders"].rows == 2


def test_all_datasets_are_dropped_once_it_is_confirmed(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS, replace(ORDERS, urn="stock"))
    assert command("drop", *WHY, "--yes").status == command("drop", "orders", "--all", *WHY, "--yes").status == 1
    assert command("drop", "--all", *WHY, answer="n\n").err.endswith("Nothing was changed.")
    done = command("drop", "--all", "--delete-files", *WHY, "-o", "json", answer="y\n")
    assert [(row["dataset"], row["action"]) for row in done.json] == [("orders", "drop"), ("stock", "drop")]
    assert lab.reopened().state("stock").live == {}
    assert lab.files("orders") == []
    assert command("drop", "--all", *WHY, "--yes", "-o", "json").json == []
    command.where = tuple("lap" if word == "lab" else word for word in command.where)
    misspelt = command("drop", "--all", *WHY, "--yes")
    assert (misspelt.status, "Did you mean 'lab'?" in misspelt.err) == (1, True), misspelt


def test_a_drop_warns_where_the_target_is_not_there(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    assert "taken for lost" not in command("drop", "orders", *WHY, answer="n\n").err
    lab.folder.rename(lab.folder.with_name("elsewhere"))
    for words in (("drop", "orders"), ("drop", "--all")):
        message = command(*words, *WHY, answer="n\n").err
        assert f"Target {lab.folder} is taken for lost: it lacks the mark" in message
        assert "type this where it is mounted" in message
