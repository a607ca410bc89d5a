"""Commands that look and change nothing."""

from __future__ import annotations

import getpass
import json
from dataclasses import replace
from pathlib import Path

import pytest
from airflow.utils import yaml

from airflow_gobblin.cli.showing import print_rows
from airflow_gobblin.journal import trimming
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.request import RunRequest
from tests.cli.conftest import CommandLine
from tests.faults import Crash, died
from tests.lab import Lab, stick
from tests.protocol.rows import Table

ORDERS = Table("orders", ExtractKind.APPEND_ONLY, 10)
ODD = Table("Odd [bold]\n", ExtractKind.SNAPSHOT_ONLY, 3)


def test_datasets(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS, ODD)
    lab.decide(replace(ORDERS, rows=14), ODD)
    odd, orders = command("datasets", "-o", "json").json
    assert (odd["urn"], odd["status"], odd["rows"], odd["watermark"]) == ("Odd [bold]\n", "pending", 3, None)
    assert repr("Odd [bold]\n") in command("datasets", "-o", "table").out
    expected = {"status": "pending", "watermark": "10", "slots": 2, "pending_slot": 2, "files": 3, "rows": 10}
    assert {name: orders[name] for name in expected} == expected


@pytest.mark.parametrize("output", ["table", "plain", "yaml", "json"])
def test_every_output_has_the_urn_as_it_is(lab: Lab, command: CommandLine, output: str) -> None:
    lab.run(replace(ODD, urn="Odd [bold]"), ORDERS)
    done = command("datasets", "-o", output)
    assert (done.status, done.err) == (0, "")
    assert "Odd [bold]" in done.out
    if output == "yaml":
        assert [row["rows"] for row in yaml.safe_load(done.out)] == [3, 10]


def test_datasets_by_search_and_by_page(lab: Lab, command: CommandLine) -> None:
    lab.run(*(replace(ORDERS, urn=urn) for urn in ("a", "B", "ab", "c")))
    found = command("datasets", "--search", "b", "-o", "json").json
    assert {row["urn"] for row in found} == {"B", "ab"}
    done = command("datasets", "--offset", "1", "--limit", "2", "-o", "json")
    assert (len(done.json), done.err) == (2, "2 of 4 datasets; see --offset and --limit\n")


def test_show_verifies_each_step_of_the_pending_slot(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    opened, _ = lab.decide(replace(ORDERS, rows=20))
    (pending,) = lab.journal.history("orders").slots[1:]
    first, second, third = [*opened.journal.steps(pending.decision)][:3]
    files = opened.files
    files.link(first.source, first.target)  # type: ignore[attr-defined]
    files.unlink(second.source)  # type: ignore[attr-defined]
    Path(files.root, third.target).write_text("somebody's")  # type: ignore[attr-defined]
    (shown,) = command("show", "orders", "-o", "json").json
    steps = shown["steps"]
    assert (steps["total"], steps["states"]) == (4, {"done": 1, "lost": 1, "conflict": 1, "todo": 1})
    assert [step["status"] for step in steps["steps"]] == ["lost", "conflict", "todo", "done"]
    assert "total: 4" in command("show", "orders").out
    assert (shown["watermark"], shown["coverage"], shown["gaps"]) == ("10", ["[0, 10)"], [])


def test_show_lists_holes_and_failed_units(lab: Lab, command: CommandLine) -> None:
    lab.ingestion = replace(lab.ingestion, policy=CommitPolicy.SUCCESSFUL)
    lab.run(ORDERS, units=("orders:u1",))
    (shown,) = command("show", "orders", "-o", "json").json
    assert (shown["watermark"], shown["gaps"], shown["holes"]) == ("4", ["[4, 8)"], 1)
    assert [unit["unit"] for unit in shown["unpublished_units"]] == ["u1"]


def test_history_counts_units_by_state(lab: Lab, command: CommandLine) -> None:
    lab.ingestion = replace(lab.ingestion, policy=CommitPolicy.SUCCESSFUL)
    opened, plan = lab.extracted(ORDERS)
    (pack,) = plan.packs
    write_commit_steps(opened, plan, pack)
    assert command("history", "orders", "-o", "json").json[0]["units"] == {"successful": 3}
    execute_commit_steps(opened, plan, pack)
    assert command("history", "orders", "-o", "json").json[0]["units"] == {"committed": 3}
    lab.run(replace(ORDERS, rows=16), units=("orders:u1",))
    assert command("history", "orders", "-o", "json").json[0]["units"] == {"failed": 1, "committed": 1}


def test_history_is_newest_first_and_names_who_and_why(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS, request=RunRequest("shop/one"))
    lab.run(replace(ORDERS, rows=14), request=RunRequest("shop/two"))
    lab.admin.rewind("orders", lab.journal.state("orders").live[max(lab.journal.state("orders").live)].low, "wrong")  # type: ignore[arg-type]
    rows = command("history", "orders", "-o", "json").json
    assert [(r["slot"], r["action"], r["rows"], r["run"], r["actor"], r["reason"]) for r in rows] == [
        (3, "rewind", 0, "", "ann", "wrong"),
        (2, "commit", 4, "shop/two", "", ""),
        (1, "commit", 10, "shop/one", "", ""),
    ]
    assert command("show", "orders", "-o", "json").json[0]["last_commit"]["run"] == "shop/two"
    assert rows[0]["ranges"] == ["without [10, 14)"]
    assert [r["slot"] for r in command("history", "orders", "--offset", "1", "--limit", "1", "-o", "json").json] == [2]


@pytest.mark.slow
@pytest.mark.parametrize("trimmed", [False, True])
def test_history_names_who_released_a_slot_and_why(lab: Lab, command: CommandLine, trimmed: bool) -> None:
    stick(lab, ORDERS)
    assert command("release", "orders", "--yes", "--reason", "the disk is back").status == 0
    lab.reopened()
    lab.admin.abandon("orders", "its files are lost")
    for to in range(50 if trimmed else 1):
        lab.admin.set_watermark("orders", LongWatermark(to), "never mind")
    trimming.trim(lab.journal, lab.journal.history("orders"))
    history = lab.reopened().history("orders")
    assert [slot.slot for slot in history.trimmed[:1]] == ([1] if trimmed else [])
    row = command("history", "orders", "-o", "json").json[-1]
    assert (row["slot"], row["state"], row["actor"], row["reason"]) == (1, "abandoned", "", "")
    assert row["abandoned"] == {"actor": "ann", "reason": "its files are lost"}
    ((at, kind, actor, reason),) = (one.values() for one in row["releases"])
    assert (at[:2], kind, actor, reason) == ("20", "released", getpass.getuser(), "the disk is back")


def test_history_names_who_abandoned_what_somebody_else_asked_for(
    lab: Lab, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run(ORDERS)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "put_outcome", died)
        with pytest.raises(Crash):
            lab.admin.rewind("orders", LongWatermark(5), "amounts were wrong")
    assert command("abandon", "orders", "--yes", "--reason", "they are right").status == 0
    row = command("history", "orders", "-o", "json").json[0]
    assert (row["action"], row["state"], row["actor"], row["reason"]) == (
        "rewind",
        "abandoned",
        "ann",
        "amounts were wrong",
    )
    assert row["abandoned"] == {"actor": getpass.getuser(), "reason": "they are right"}
    assert "they are right" in command("history", "orders", "-o", "plain").out


def test_history_and_show_name_who_released_a_claim_and_why(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    done = command("release-claim", "orders", "--yes", "--reason", "it moves away", "-o", "json")
    assert (done.json[0]["noted_on_slot"], "at the target only" in done.err) == (1, False)
    (row,) = command("history", "orders", "-o", "json").json
    expected = {"event": "claim-released", "actor": getpass.getuser(), "reason": "it moves away"}
    assert [{name: one[name] for name in expected} for one in row["releases"]] == [expected]
    (shown,) = command("show", "orders", "-o", "json").json
    assert (shown["notes"][-1]["event"], shown["notes"][-1]["detail"]) == ("claim-released", "it moves away")


@pytest.mark.slow
def test_pending_shows_what_is_unfinished_and_what_is_unreadable(lab: Lab, command: CommandLine) -> None:
    tables = [replace(ORDERS, urn=urn) for urn in ("fine", "left", "torn")]
    lab.run(*tables)
    lab.decide(tables[0], replace(tables[1], rows=11), tables[2])
    (lab.folder.parent / "journal/lab/torn/d/0000000001").write_text("{")
    rows = command("pending", "-o", "json").json
    assert [(row["urn"], row["status"], row["slot"]) for row in rows] == [("left", "pending", 2)]
    rows = command("datasets", "-o", "json").json
    assert [(row["urn"], row["status"]) for row in rows] == [
        ("fine", "ok"),
        ("left", "pending"),
        ("torn", "unreadable"),
    ]
    assert "torn or no record" in rows[2]["error"]


def test_verify_is_green_while_all_files_are_as_published(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    done = command("verify", "orders", "-o", "json")
    assert (done.status, [row["state"] for row in done.json]) == (0, ["ok"] * 3)


def test_verify_finds_what_is_changed_and_missing(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    gone, longer, other = lab.files("orders")
    gone.unlink()
    longer.write_text("more than there was, by much")
    other.write_bytes(other.read_bytes()[::-1])
    done = command("verify", "orders", "-o", "json")
    assert done.status == 1
    assert done.err.endswith("3 of 3 files are not as published")
    states = {lab.folder / row["file"]: row["state"] for row in done.json}
    assert states == {gone: "missing", longer: "changed", other: "changed"}


def test_verify_of_all_datasets_lists_what_differs_and_sums_up(lab: Lab, command: CommandLine) -> None:
    assert command("verify").status == 1, "there is no such ingestion"
    lab.run(ORDERS, ODD)
    done = command("verify", "-o", "json")
    assert (done.status, done.json) == (0, [])
    assert "2 datasets compared: everything is as it should be" in done.err
    gone, longer, _ = lab.files("orders")
    gone.unlink()
    longer.write_text("more than there was, by much")
    done = command("verify", "-o", "json")
    assert done.status == 1
    assert {(row["dataset"], row["state"]) for row in done.json} == {("orders", "missing"), ("orders", "changed")}
    assert done.err.endswith("1 of 2 datasets differs: 1 changed, 1 missing")


@pytest.mark.slow
def test_verify_of_all_datasets_goes_on_behind_one_that_cannot_be_read(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS, replace(ORDERS, urn="a"), replace(ORDERS, urn="z"))
    (lab.folder.parent / "journal/lab/a/d/0000000001").write_text("{")
    lab.files("z")[0].unlink()
    done = command("verify", "-o", "json")
    assert (done.status, [row["dataset"] for row in done.json]) == (1, ["z"])
    assert done.err.endswith("1 of 3 datasets differs: 1 missing; 1 dataset can't be compared")
    assert "a: " in done.err


def test_verify_of_what_was_never_published_is_no_success(lab: Lab, command: CommandLine) -> None:
    stick(lab, ORDERS)
    done = command("verify")
    assert (done.status, "no run has published a dataset" in done.err) == (1, True), done


def test_verify_names_what_was_never_published_beside_what_was(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS, replace(ORDERS, urn="odd"), unplannable=("odd",))
    one, every = command("verify", "odd"), command("verify")
    assert (one.status, "no run has published it; the last failure: " in one.err) == (1, True), one
    assert (every.status, every.out, every.err) == (
        0,
        "",
        "Never published, so not compared: 'odd'\n1 dataset compared: everything is as it should be\n",
    )


def test_audit(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    sound = command("audit")
    assert (sound.status, sound.out) == (0, "")
    assert "Nothing was found: it all adds up." in sound.err
    lab.files("orders")[0].unlink()
    done = command("audit", "orders", "-o", "json")
    assert (done.status, done.err) == (1, "1 problem")
    assert [(row["check"], row["level"]) for row in done.json] == [("files", "problem")]
    assert command("verify", "orders").err == "1 of 3 files is not as published"


def test_audit_names_what_is_quarantined(lab: Lab, command: CommandLine) -> None:
    stick(lab, ORDERS)
    (row,) = command("audit", "-o", "json").json
    assert (row["slot"], row["finding"]) == (1, "quarantined after 1 failed run: release or abandon it")


@pytest.mark.parametrize("name", ["show", "history", "verify", "audit"])
def test_an_unknown_urn_names_near_ones(lab: Lab, command: CommandLine, name: str) -> None:
    lab.run(ORDERS, ODD)
    done = command(name, "order")
    assert (done.status, done.out) == (1, "")
    assert "can't find dataset 'order' of ingestion 'lab'" in done.err
    assert "Did you mean 'orders'?" in done.err


def test_looking_changes_nothing(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS, ODD)
    lab.decide(replace(ORDERS, rows=14), ODD)
    before = lab.records(), lab.published()
    for words in (
        ("datasets",),
        ("show", "orders"),
        ("history", "orders"),
        ("pending",),
        ("verify", "orders"),
        ("audit",),
    ):
        assert command(*words).status == 0
    command("export")
    assert (lab.records(), lab.published()) == before


def test_the_output_of_a_long_list_is_json_from_end_to_end(lab: Lab, command: CommandLine) -> None:
    lab.run(replace(ORDERS, urn="x" * 300), ORDERS)
    assert {row["urn"] for row in json.loads(command("datasets", "-o", "json").out)} == {"x" * 300, "orders"}


def test_a_count_below_zero_is_none(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    assert command("history", "orders", "--limit=-1").status == 2
    assert command("history", "orders", "--limit", "0", "-o", "json").json == []


def test_a_target_that_cannot_be_read_is_an_error_and_no_trace(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    (lab.folder / "_gobblin" / "claims").rename(lab.folder / "away")
    (lab.folder / "_gobblin" / "claims").write_text("a file where a folder was")
    done = command("audit", "orders")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("Error: ")


def test_a_table_has_no_columns_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"slot": 1, "batch": None, "note": ""}, {"slot": 0, "batch": None, "note": "a reason"}]
    print_rows(rows, "table")
    shown = capsys.readouterr().out
    assert "note" in shown
    assert "slot" in shown
    assert "batch" not in shown
    print_rows(rows, "json")
    assert "batch" in capsys.readouterr().out
