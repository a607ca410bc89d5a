"""State as JSON: to another journal, from another tool, and from Gobblin."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind
from tests.cli.conftest import CommandLine, on_disk
from tests.lab import Lab
from tests.protocol.rows import Table

ORDERS = Table("orders", ExtractKind.APPEND_ONLY, 10)
PRICES = Table("Prices", ExtractKind.SNAPSHOT_ONLY, 3)
WHY = ("--yes", "--reason", "we moved")


def moved(lab: Lab, folder: Path, command: CommandLine, state: str) -> Lab:
    """An ingestion of the same name on the same target, with another journal, which is empty.

    :param state: what was exported; it is put beside its folder.
    """
    folder.mkdir()
    (folder.parent / "state.json").write_text(state)
    made = on_disk(folder, command)
    made.folder = lab.folder
    made.ingestion = replace(lab.ingestion)
    command.where = (*command.where[:-1], str(lab.folder))
    return made


def test_an_ingestion_goes_on_at_another_target(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    """As the page on operations describes it."""
    lab.run(ORDERS)
    there = tmp_path / "there"
    command.where = (*command.where[:-1], str(there))
    refused = command("move", *WHY)
    assert refused.status == 1
    assert "it lacks the mark that was put there" in refused.err
    shutil.copytree(lab.folder, there)
    done = command("move", "--reason", "a larger disk", answer="y\n")
    assert done.status == 0, done.err
    assert f"action: move; from: {lab.folder}; to: {there}" in done.err
    shutil.rmtree(lab.folder)
    assert command("verify", "orders").status == 0
    assert command("audit").status == 0
    moved = Lab(there, replace(ORDERS, rows=14), store=lab.store)
    assert moved.run()["orders"].status == "committed"
    assert moved.rows("orders") == replace(ORDERS, rows=14).all_rows()


def written(folder: Path, *datasets: dict[str, Any], **more: Any) -> str:
    path = folder / "state.json"
    path.write_text(json.dumps({"datasets": datasets, **more}))
    return str(path)


def test_an_ingestion_goes_on_in_another_journal(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    """Covered ranges aren't read again; their files stay the old journal's."""
    lab.run(ORDERS)
    there = moved(lab, tmp_path / "there", command, command("export").out)
    state = str(tmp_path / "state.json")
    refused = command("import", state, *WHY)
    assert (refused.status, there.reopened().datasets()) == (1, ())
    assert "names published files, and these can't be taken over" in refused.err
    assert "--without-files" in refused.err
    before = lab.published()
    done = command("import", state, "--without-files", "--reason", "moved", answer="y\n")
    assert "action: import; watermark: none; becomes: 10" in done.err
    assert command("release-claim", "orders", *WHY).status == 0
    there.reopened()
    there.run(replace(ORDERS, rows=14))
    assert sorted(there.rows("orders")) == [f"orders/{n}" for n in (10, 11, 12, 13)]
    assert set(before) <= set(lab.published())
    assert lab.rows("orders") == ORDERS.all_rows()


def test_a_hole_stays_a_hole(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    lab.ingestion = replace(lab.ingestion, policy=CommitPolicy.SUCCESSFUL)
    lab.run(ORDERS, units=("orders:u1",))
    there = moved(lab, tmp_path / "there", command, command("export").out)
    assert command("import", str(tmp_path / "state.json"), "--without-files", *WHY).status == 0
    there.reopened()
    assert there.journal.state("orders").coverage == lab.journal.state("orders").coverage
    lab.admin.release_claim("orders", "moved")
    there.run(ORDERS)
    assert there.rows("orders") + lab.rows("orders") == ORDERS.all_rows()


def test_a_dataset_with_a_history_is_refused_until_it_is_dropped(
    lab: Lab, command: CommandLine, tmp_path: Path
) -> None:
    lab.run(ORDERS)
    before = lab.records()
    state = written(tmp_path, {"urn": "orders", "watermark": {"kind": "long", "value": 8}})
    done = command("import", state, *WHY)
    assert (done.status, lab.records()) == (1, before)
    assert "it has a history of 1 slot," in done.err
    assert command("drop", "orders", *WHY).status == 0
    assert command("import", state, *WHY).status == 0
    history = lab.reopened().history("orders")
    assert (history.state.watermark, history.state.generation) == (LongWatermark(8), 2)
    assert [s.decision.action for s in history.slots] == [Action.COMMIT, Action.DROP, Action.IMPORT]
    lab.run(replace(ORDERS, rows=12))
    assert sorted(lab.rows("orders")) == [f"orders/{n}" for n in (10, 11, 8, 9)]


@pytest.mark.parametrize(
    ("watermark", "options", "expected"),
    [
        ({"value": 41}, (), LongWatermark(41)),
        ({"value": 41}, ("--last-read",), LongWatermark(42)),
        ({"values": [5, 7]}, (), MultiLongWatermark((5, 7))),
        ({"value": 20260131120000}, ("--kind", "timestamp"), TimestampWatermark.from_json("2026-01-31T12:00:00+00:00")),
        (
            {"value": 20260131235959},
            ("--kind", "timestamp", "--last-read"),
            TimestampWatermark.from_json("2026-02-01T00:00:00+00:00"),
        ),
        (
            {"value": 2026013123},
            ("--kind", "timestamp", "--last-read"),
            TimestampWatermark.from_json("2026-02-01T00:00Z"),
        ),
        ({"value": 20260131}, ("--kind", "timestamp"), TimestampWatermark.from_json("2026-01-31T00:00Z")),
        ({"kind": "long", "value": 41}, ("--last-read",), LongWatermark(41)),
    ],
)
def test_watermarks_of_other_tools(
    lab: Lab, command: CommandLine, tmp_path: Path, watermark: Any, options: tuple[str, ...], expected: Watermark
) -> None:
    assert command("import", written(tmp_path, {"urn": "t", "watermark": watermark}), *options, *WHY).status == 0
    assert lab.reopened().state("t").watermark == expected


def gobblin_task(urn: str, mark: Any, state: str = "COMMITTED") -> dict[str, Any]:
    """A task as Gobblin's JobStateToJsonConverter writes it."""
    properties = {"dataset.urn": urn, "workunit.state.actual.high.water.mark": json.dumps(mark)}
    return {"task id": f"task_{urn}", "task state": state, "properties": properties}


def test_the_job_state_of_gobblin(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    tasks = [gobblin_task("orders", {"value": n}) for n in (3, 9, 6)]
    tasks += [gobblin_task("topic", {"values": values}) for values in ([5, 1], [2, 8])]
    (tmp_path / "job.json").write_text(json.dumps({"job name": "orders", "task states": tasks}))
    assert command("import", str(tmp_path / "job.json"), *WHY).status == 0
    lab.reopened()
    assert lab.journal.state("orders").watermark == LongWatermark(9)
    assert lab.journal.state("topic").watermark == MultiLongWatermark((5, 8))


FILE = {"path": "orders/x", "size": 1, "checksum": "0" * 64, "rows": 1}
TEN = {"kind": "long", "value": 10}
ZERO = {"kind": "long", "value": 0}
UNIT = {"unit": "u", "low": ZERO, "high": TEN, "files": []}
FAR = {"kind": "long", "value": 2**63 + 1}
COVERED = {"origin": ZERO, "intervals": [[[ZERO, TEN]]]}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "it has no list of datasets"),
        ({"datasets": {}}, "its datasets are not a list of objects"),
        ({"datasets": []}, "it has no dataset"),
        ({"datasets": [], "version": 2}, "it is of version 2, and the airflow-gobblin installed here knows 1"),
        ({"datasets": [], "version": True}, "it is of version True, and the airflow-gobblin installed here knows 1"),
        ({"datasets": [], "version": -1}, "it is of version -1, and the airflow-gobblin installed here knows 1"),
        ({"datasets": [{"urn": "a"}]}, "neither a watermark, nor covered ranges, nor published units"),
        ({"datasets": [{"watermark": TEN}]}, "one of its datasets has no URN"),
        ({"datasets": [{"urn": 5, "watermark": TEN}]}, "one of its datasets has no URN"),
        ({"datasets": [{"urn": "a", "watermark": {"kind": "long"}}]}, "expected an object with 'kind' and 'value'"),
        ({"datasets": [{"urn": "a", "watermark": 5}]}, "field 'watermark' of a dataset: expected an object, not 5"),
        ({"datasets": [{"urn": "a", "watermark": TEN, "schema": 5}]}, "field 'schema' of a dataset: expected a text"),
        ({"datasets": [{"urn": "a", "watermark": TEN, "schema": "x"}]}, "can't decode an Arrow schema: Invalid base64"),
        ({"datasets": [{"urn": "", "watermark": TEN}]}, "it has 0 bytes"),
        ({"datasets": [{"urn": "a", "watermark": TEN, "lag": 3}]}, "and not ['lag']"),
        ({"datasets": [{"urn": "a", "watermark": TEN}] * 2}, "it names ['a'] twice"),
        ({"datasets": [{"urn": "a", "watermark": {"kind": "acme.mark", "value": 1}}]}, "--module NAME"),
        ({"datasets": [{"urn": "a", "watermark": {"kind": "long", "value": "x"}}]}, "expected an integer"),
        ({"datasets": [{"urn": "a", "watermark": {"kind": "long", "value": 2**63 + 1}}]}, "the integers of 64 bits"),
        ({"datasets": [{"urn": "a", "watermark": {"kind": "multi_long", "value": []}}]}, "it has no position"),
        ({"datasets": [{"urn": "a", "coverage": {"origin": ZERO, "intervals": [[[ZERO, FAR]]]}}]}, "of 64 bits"),
        ({"datasets": [{"urn": "a", "watermark": {"value": "x"}}]}, "is not a Gobblin watermark"),
        ({"datasets": [{"urn": "a", "watermark": {"value": 2**63 + 1}}]}, "is not a Gobblin watermark"),
        ({"datasets": [{"urn": "a", "watermark": {"values": "57"}}]}, "is not a Gobblin watermark"),
        ({"datasets": [{"urn": "a", "watermark": {"values": []}}]}, "is not a Gobblin watermark"),
        ({"datasets": [{"urn": "a", "watermark": ZERO, "coverage": COVERED}]}, "don't reach to its watermark"),
        ({"datasets": [{"urn": "a", "coverage": COVERED, "units": [UNIT, UNIT]}]}, "two of its units have one name"),
        ({"datasets": [{"urn": "a", "coverage": COVERED, "units": [UNIT, {**UNIT, "unit": "v"}]}]}, "by another unit"),
        ({"datasets": [{"urn": "a", "watermark": TEN, "units": [UNIT]}]}, "which isn't covered"),
        ({"datasets": [{"urn": "a", "coverage": COVERED, "units": [{**UNIT, "low": None}]}]}, "a high and no low"),
        ({"datasets": [{"urn": "a", "coverage": COVERED, "units": [{**UNIT, "unit": "../x"}]}]}, "letters, digits"),
        (
            {"datasets": [{"urn": "a", "units": [{**UNIT, "low": None, "high": None, "files": [FILE]}]}]},
            "these can't be taken over",
        ),
        ({"task states": [gobblin_task("a", {"value": 1}, "FAILED")]}, "is FAILED: choose yourself where to go on"),
        ({"task states": [{"task id": "t", "properties": {}}]}, "has no 'dataset.urn'"),
        ({"task states": [gobblin_task("a", 5)]}, "no actual high watermark"),
        ({"task states": [gobblin_task("a", {"value": 2**63 + 1})]}, "no actual high watermark"),
        ({"task states": [gobblin_task("a", {"values": []})]}, "no actual high watermark"),
        ({"task states": [gobblin_task("a", {"value": 1}), gobblin_task("a", {"value": "2"})]}, "no actual high"),
        ({"task states": [{"task id": "t", "properties": ["x"]}]}, "'properties'"),
        ({"task states": [{"task id": "t", "properties": {"dataset.urn": ["a"]}}]}, "has no 'dataset.urn'"),
    ],
)
def test_a_bad_document_is_refused_and_changes_nothing(
    lab: Lab, command: CommandLine, tmp_path: Path, document: Any, expected: str
) -> None:
    (tmp_path / "state.json").write_text(json.dumps(document))
    done = command("import", str(tmp_path / "state.json"), *WHY)
    assert (done.status, done.out) == (1, "")
    assert expected in done.err
    assert not re.search(r"\w(Error|Exception)\b|Exported|\bNone\b", done.err), "Python's own words"
    sentences = re.split(r"(?<=\.) ", done.err)
    assert len(set(sentences)) == len(sentences), "nothing is reported twice"
    assert lab.reopened().datasets() == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none.json", "No such file or directory"),
        ("torn.json", "it is not JSON: Expecting property name enclosed in double quotes, in line 1, column 2"),
        ("latin.json", "it is not UTF-8: byte 1"),
        ("deep.json", "it is nested too deep"),
        ("twice.json", "an object has the key 'value' twice"),
        ("long.json", "an integer has 5000 digits"),
        ("not_a_number.json", "NaN is not a number in JSON"),
    ],
)
def test_a_file_that_cannot_be_read(lab: Lab, command: CommandLine, tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "torn.json").write_text("{")
    (tmp_path / "latin.json").write_bytes(b'"\xe4"')
    (tmp_path / "deep.json").write_text("[" * 200_000)
    (tmp_path / "twice.json").write_text('{"urn": "a", "watermark": {"kind": "long", "value": 1, "value": 2}}')
    (tmp_path / "long.json").write_text("9" * 5000)
    (tmp_path / "not_a_number.json").write_text("[NaN]")
    done = command("import", str(tmp_path / name), *WHY)
    assert done.status == 1
    assert f"can't read file '{tmp_path / name}': {expected}" in done.err
    assert "Error: " in done.err
    assert "Errno" not in done.err


def test_only_some_datasets(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    state = written(tmp_path, *({"urn": urn, "watermark": TEN} for urn in "abc"))
    assert "the file has ['a', 'b', 'c']" in command("import", state, "--urn", "d", *WHY).err
    assert command("import", state, "--urn", "b", *WHY).status == 0
    assert lab.reopened().datasets() == ("b",)
    assert [d["urn"] for d in command("export", "--urn", "b").json["datasets"]] == ["b"]


def test_what_is_pending_is_not_exported(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    lab.run(ORDERS, PRICES)
    lab.decide(replace(ORDERS, rows=11), PRICES)
    done = command("export", "--file", str(tmp_path / "out.json"))
    assert (done.status, (tmp_path / "out.json").exists()) == (1, False)
    assert "a slot of orders, Prices is pending" in done.err


def test_an_import_that_was_done_already_is_not_done_again(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    """So an interrupted import can be repeated."""
    state = written(tmp_path, {"urn": "orders", "watermark": {"kind": "long", "value": 8}})
    assert command("import", state, *WHY).status == 0
    before = lab.records()
    done = command("import", state, *WHY, "-o", "json")
    assert (done.status, done.json) == (0, [])
    assert "orders is as in the file already" in done.err
    assert lab.records() == before
    lab.reopened()
    lab.run(replace(ORDERS, rows=12))
    assert "it has a history of 2 slots" in command("import", state, *WHY).err


def test_an_import_that_loses_reports_what_was_done_before(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    state = written(tmp_path, *({"urn": urn, "watermark": TEN} for urn in "abcd"))

    def start_one() -> None:
        lab.run(Table("c", ExtractKind.APPEND_ONLY, 3))

    why = ("--reason", "we moved", "-o", "json")
    done = command("import", state, *why, answer="y\n", meanwhile=start_one)
    assert (done.status, [(row["dataset"], row["action"]) for row in done.json]) == (
        1,
        [("a", "import"), ("b", "import")],
    )
    assert "can't import dataset 'c': slot 1 was taken by a commit just now" in done.err
    assert "Before that, 2 of 4 were done and stay so; they are listed." in done.err
    assert lab.reopened().datasets() == ("a", "b", "c")
    rest = command("import", state, *(word for urn in "abd" for word in ("--urn", urn)), *why, "--yes")
    assert [row["dataset"] for row in rest.json] == ["d"]
    assert "a is as in the file already" in rest.err


def test_import_from_the_standard_input(lab: Lab, command: CommandLine) -> None:
    document = json.dumps({"datasets": [{"urn": "a", "watermark": TEN}]})
    assert command("import", "-", *WHY, answer=document).status == 0
    assert lab.reopened().state("a").watermark == LongWatermark(10)
