"""Commands that change something: they show it, ask, and leave who did it and why in the journal."""

from __future__ import annotations

import getpass
from dataclasses import replace

import pytest

from airflow_gobblin.records import Action, NoteKind
from airflow_gobblin.watermark import LongWatermark, TimestampWatermark
from airflow_gobblin.work import ExtractKind
from tests.cli.conftest import CommandLine
from tests.lab import Lab
from tests.protocol.rows import Table

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
    ("words", "says"),
    [
        (("rewind", "orders", "--to", "10"), "is not within what is covered"),
        (("rewind", "orders", "--to", "-1"), "is not within what is covered"),
        (("rewind", "orders", "--to", "five"), "Write an integer: 42"),
        (("rewind", "orders", "--to", "2026-01-01"), "Write an integer: 42"),
        (("set-watermark", "orders", "--to", "3"), "rewind moves back"),
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
    lab: Lab, command: CommandLine, words: tuple[str, ...], says: str
) -> None:
    lab.run(ORDERS)
    before = lab.records(), lab.published()
    done = command(*words, "--yes", *WHY)
    assert (done.status, done.out) == (1, "")
    assert says in done.err
    assert (lab.records(), lab.published()) == before


def test_set_watermark_skips_and_starts(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    assert command("set-watermark", "orders", "--to", "13", "--yes", *WHY).status == 0
    to = ("--to", "2026-01-31T12:00:00+01:00", "--kind", "timestamp")
    assert command("set-watermark", "new", *to, "--yes", *WHY).status == 0
    lab.reopened()
    assert lab.journal.state("orders").watermark == LongWatermark(13)
    assert lab.journal.state("new").watermark == TimestampWatermark.from_json("2026-01-31T11:00:00+00:00")
    assert [slot.decision.action for slot in lab.journal.history("new").slots] == [Action.SET]


def test_abandon_takes_back_what_is_pending(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    lab.decide(replace(ORDERS, rows=14))
    done = command("abandon", "orders", *WHY, "-o", "json", answer="yes\n")
    assert "slot: 2; ranges: [10, 14); files: 1; rows: 4" in done.err
    assert (done.json[0]["action"], done.json[0]["slot"]) == ("abandon", 2)
    lab.reopened()
    assert lab.journal.history("orders").slots[-1].abandoned


def test_release_lets_a_quarantined_dataset_go_on(lab: Lab, command: CommandLine) -> None:
    lab.ingestion = replace(lab.ingestion, attempts=1)
    pipeline, plan = lab.decide(ORDERS)
    (pending,) = lab.journal.history("orders").slots
    for step in [*lab.journal.steps(pending.decision)][:-1]:
        pipeline.files.unlink(step.source)  # type: ignore[union-attr]
    pipeline.execute_commit_steps(plan, plan.packs[0])
    assert command("show", "orders", "-o", "json").json[0]["status"] == "quarantined"
    assert command("release", "orders", "--yes", *WHY).status == 0
    note = lab.reopened().notes("orders", 1)[-1]
    assert (note.says, note.actor, note.detail) == (NoteKind.RELEASED, getpass.getuser(), "amounts were wrong")
    assert command("show", "orders", "-o", "json").json[0]["status"] == "pending"


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
