"""The views of datasets: cheap for a list of many, exact for one, and true."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_gobblin.admin.views import (
    AuditFinding,
    FileState,
    audit,
    dataset_detail,
    list_datasets,
    list_pending,
    list_slots,
    parse_position,
    verify,
)
from airflow_gobblin.errors import ConfigurationError, GobblinError, SourceError
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.journal.trimming import KEPT, TRIMMED_TOGETHER
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, TimestampWatermark, Watermark
from airflow_gobblin.model.work import Dataset, ExtractKind
from airflow_gobblin.rows.sources.base import DatasetPlan
from airflow_gobblin.run.announce import note_announced, unannounced
from airflow_gobblin.steps.base import StepContext, StepStatus
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from tests.lab import Lab
from tests.protocol.acts import Fences, TakeStep
from tests.protocol.rows import LineSink, RowSource, Table

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERS = Table("orders", ExtractKind.APPEND_ONLY, 10)
PRICES = Table("Prices", ExtractKind.SNAPSHOT_ONLY, 3)


def position(value: int) -> LongWatermark:
    return LongWatermark(value)


class CountingStore(MemoryStore):
    """Report what was asked of it."""

    listings = 0
    reads: Sequence[str] = ()

    def list(self, prefix: str) -> Iterator[str]:
        self.listings += 1
        return super().list(prefix)

    def get(self, key: str) -> bytes | None:
        self.reads = [*self.reads, key]
        return super().get(key)


def many(folder: Path, count: int) -> tuple[Lab, CountingStore]:
    """An ingestion of many datasets that have nothing but a watermark."""
    store = CountingStore()
    lab = Lab(folder, store=store)
    for number in range(count):
        lab.admin.set_watermark(
            f"t{number:04d}" if number % 2 else f"T{number:04d}", position(number), "to begin there"
        )
    lab.reopened()
    store.listings, store.reads = 0, ()
    return lab, store


def test_while_the_target_is_gone_no_pending_step_is_shown_as_lost(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", Table("a", ExtractKind.APPEND_ONLY, 10))
    lab.decide()
    lab.folder.rename(tmp_path / "away")
    steps = dataset_detail(lab.journal, LocalFiles(lab.folder), "a", NOW).steps
    assert steps is not None
    assert (steps.total, steps.states) == (4, {})
    assert "it is empty, not mounted, not shared, or another target" in steps.error
    (tmp_path / "away").rename(lab.folder)
    steps = dataset_detail(lab.journal, LocalFiles(lab.folder), "a", NOW).steps
    assert steps is not None
    assert (steps.states, steps.error) == ({"todo": 4}, "")


class Shop:
    def uri(self, conn_id: str) -> str:
        return f"postgres://ann:hunter2@shop/{conn_id}"


def test_a_step_is_shown_as_it_is_found_by_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.ingestion = replace(lab.ingestion, sink=LineSink(str(tmp_path), acts=Fences.MARK))
    opened, _ = lab.decide()
    (slot,) = lab.journal.history("orders").slots
    opened.committer._shut_out(slot.decision)
    verify, answers = TakeStep.verify, True

    def dialling(step: TakeStep, context: StepContext) -> StepStatus:
        uri = context.connections.uri("shop_db")
        if not answers:
            raise ValueError(f"no answer from {uri}")
        return verify(step, context)

    monkeypatch.setattr(TakeStep, "verify", dialling)

    def shown(connections: Shop | None) -> tuple[str, str]:
        detail = dataset_detail(lab.journal, LocalFiles(tmp_path), "orders", NOW, connections=connections)
        assert detail.steps is not None
        return next((step.status, step.detail) for step in detail.steps.steps if step.step == "test.take_step")

    assert shown(Shop()) == ("fenced", "")
    answers = False
    assert shown(Shop()) == ("unknown", "ValueError: no answer from postgres://***@shop/shop_db")
    assert "no connections were given here" in shown(None)[1]


def test_a_page_is_one_listing_and_the_records_of_its_datasets(tmp_path: Path) -> None:
    lab, store = many(tmp_path, 60)
    page = list_datasets(lab.journal, NOW, start=20, count=10)
    assert (len(page.views), page.total, page.start) == (10, 60, 20)
    assert (store.listings, len(store.reads)) == (1, 10)
    pages = [list_datasets(lab.journal, NOW, start=start, count=25) for start in (0, 25, 50)]
    assert [len(page.views) for page in pages] == [25, 25, 10]
    assert len({view.urn for page in pages for view in page.views}) == 60


def test_a_search_reads_those_whose_key_is_not_their_urn_and_its_page(tmp_path: Path) -> None:
    lab, store = many(tmp_path, 60)
    page = list_datasets(lab.journal, NOW, search="T000", count=3)
    assert (len(page.views), page.total) == (3, 10)
    assert (store.listings, len(store.reads)) == (
        2,
        30 + 1,
    )  # a key with a capital is a hash; of the page's, two were read for it


def test_a_search_again_knows_the_urns(tmp_path: Path) -> None:
    lab, store = many(tmp_path, 60)
    names: dict[str, str] = {}
    pages = [list_datasets(lab.journal, NOW, search="T00", start=n, count=25, names=names) for n in (0, 25, 50)]
    assert len({view.urn for page in pages for view in page.views}) == 60
    assert {page.total for page in pages} == {60}
    assert sorted(names.values()) == [f"T{number:04d}" for number in range(0, 60, 2)]
    assert len(store.reads) == 60, "those whose key is a hash are folded once"
    lab.admin.set_watermark("T0900", position(1), "to begin there")
    found = list_datasets(lab.reopened(), NOW, search="t09", names=names)
    assert [view.urn for view in found.views] == ["T0900"]


@pytest.mark.slow
def test_a_dataset_that_cannot_be_read_is_among_the_others(tmp_path: Path) -> None:
    lab, store = many(tmp_path, 6)
    store.delete("lab/t0003/d/0000000001")
    store.put_if_absent("lab/t0003/d/0000000001", b"{")
    store.put_if_absent("lab/t0001/d/0000000003", b"{}")
    views = list_datasets(lab.journal, NOW).views
    assert {view.key: view.status for view in views if view.status != "unpublished"} == {
        "t0001": "unreadable",
        "t0003": "unreadable",
    }
    pages = [list_datasets(lab.journal, NOW, start=start, count=2) for start in (0, 2, 4)]
    assert [view for page in pages for view in page.views] == [*views]
    assert {page.total for page in pages} == {6}


def test_what_a_dataset_has(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS, PRICES)
    lab.run()
    lab.run(replace(ORDERS, rows=14), PRICES)
    orders, prices = list_datasets(lab.journal, NOW).views
    assert (orders.watermark, orders.files, orders.rows, orders.head) == (position(14), 4, 14, 2)
    assert orders.bytes == sum(path.stat().st_size for path in lab.files("orders"))
    assert orders.last_commit is not None
    assert (orders.last_commit.slot, orders.last_commit.rows, orders.last_commit.rows_read) == (2, 4, 4)
    assert (prices.watermark, prices.rows, prices.lag) == (None, 3, None)


@pytest.mark.parametrize(("behind", "lag"), [(timedelta(hours=3), timedelta(hours=3)), (timedelta(-1), timedelta(0))])
def test_a_time_has_a_lag(tmp_path: Path, behind: timedelta, lag: timedelta) -> None:
    lab = Lab(tmp_path)
    lab.admin.set_watermark("a", TimestampWatermark(NOW - behind), "to begin there")
    assert [view.lag for view in list_datasets(lab.journal, NOW).views] == [lag]


def test_what_is_pending(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS, PRICES)
    lab.run()
    assert list_pending(lab.journal, NOW) == ()
    lab.decide(replace(ORDERS, rows=11), PRICES)
    orders, _ = list_pending(lab.journal, NOW)
    assert orders.pending is not None
    assert (orders.pending.slot, orders.pending.steps, orders.status) == (2, 2, "pending")
    assert orders.rows == 10


def test_what_failed_before_it_was_ever_published_is_seen_with_its_last_error(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with pytest.raises(SourceError):  # of its only dataset: the whole task is tried again
        lab.run(PRICES, unplannable=("Prices",))
    lab.run(ORDERS, PRICES, unplannable=("Prices",), units=("orders:u0", "orders:u1", "orders:u2"))
    listed, pending = list_datasets(lab.journal, NOW), list_pending(lab.journal, NOW)
    assert [(one.urn, one.status, one.head) for one in pending] == [
        ("orders", "unpublished", 0),
        ("Prices", "unpublished", 0),
    ]
    assert (listed.views, listed.total) == (pending, 2)
    assert pending[0].failure == "SourceError: can't read unit 'u0' of 'orders': the line is dead"
    assert pending[1].failure == "can't plan table 'Prices': it is gone"
    prices = dataset_detail(lab.journal, LocalFiles(tmp_path), "Prices", NOW)
    assert prices.view == pending[1]
    assert [note.detail for note in prices.notes] == ["can't plan table 'Prices': it is gone"]
    lab.run(ORDERS, PRICES)
    assert list_pending(lab.journal, NOW) == ()
    assert [(one.status, one.failure) for one in list_datasets(lab.journal, NOW).views] == [("ok", "")] * 2


def test_what_fails_after_it_was_dropped_is_seen_as_before_it_was_ever_published(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS, PRICES)
    lab.run()
    lab.admin.drop("Prices", "it is begun anew", delete_files=False)
    prices = {one.urn: one for one in list_datasets(lab.journal, NOW).views}["Prices"]
    assert (prices.status, prices.failure) == ("unpublished", "")
    assert list_pending(lab.journal, NOW) == ()
    lab.run(ORDERS, PRICES, unplannable=("Prices",))
    (prices,) = list_pending(lab.journal, NOW)
    assert (prices.urn, prices.status, prices.failure) == (
        "Prices",
        "unpublished",
        "can't plan table 'Prices': it is gone",
    )
    lab.run(ORDERS, PRICES)
    assert list_pending(lab.journal, NOW) == ()
    assert {one.status for one in list_datasets(lab.journal, NOW).views} == {"ok"}


def test_the_same_failure_is_noted_once_and_another_one_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for _ in range(3):
        lab.run(ORDERS, PRICES, unplannable=("Prices",))
    assert len([key for key in lab.records() if key.endswith("-unpublished")]) == 1
    lab.run(ORDERS, replace(PRICES, urn="Prices"), units=("Prices:u0",))
    assert len([key for key in lab.records() if key.endswith("-unpublished")]) == 2
    (prices,) = list_pending(lab.journal, NOW)
    assert "the line is dead" in prices.failure


def test_a_failure_whose_text_names_another_id_each_time_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = RowSource.plan

    def unplanned(self: RowSource, dataset: Dataset, *rest: Any) -> DatasetPlan:
        if dataset.urn == "Prices":
            raise SourceError(operation="plan", subject="table 'Prices'", cause=f"request {uuid4().hex} was refused")
        return plan(self, dataset, *rest)

    monkeypatch.setattr(RowSource, "plan", unplanned)
    lab = Lab(tmp_path)
    for _ in range(4):
        lab.run(ORDERS, PRICES)
    assert len([key for key in lab.records() if key.endswith("-unpublished")]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("published", [False, True], ids=["never published", "published before"])
def test_a_unit_that_fails_in_the_same_way_run_after_run_is_noted_three_times(tmp_path: Path, published: bool) -> None:
    """Though its table grows; and each run reports it, with its cause."""
    lab = Lab(tmp_path)
    if published:
        lab.run(replace(ORDERS, rows=4))
    broken = "u0" if published else "u1"
    details = [
        lab.run(replace(ORDERS, rows=20 + more), units=(f"orders:{broken}",))["orders"].detail for more in range(8)
    ]

    def notes() -> int:
        return sum(key.endswith("-unpublished") for key in lab.records())

    assert notes() == 3
    assert all("the line is dead" in detail for detail in details)
    assert ["has made no progress in 3 runs or more" in detail for detail in details] == [False] * 2 + [True] * 6
    detail = lab.run(replace(ORDERS, rows=30), units=("orders:u2",))["orders"].detail
    assert notes() == 4, "another unit failed"
    assert "no progress" not in detail
    lab.run(replace(ORDERS, rows=30), units=(f"orders:{broken}",))
    assert notes() == 5
    assert lab.run(replace(ORDERS, rows=30))["orders"].status == "committed"


def test_a_dataset_that_was_published_leaves_no_note_of_a_plan_that_failed(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.run(ORDERS, PRICES)
    before = lab.records()
    lab.run(ORDERS, PRICES, unplannable=("orders",))
    assert not [key for key in lab.records().keys() - before.keys() if key.endswith("-unpublished")]


@pytest.mark.slow
def test_slots_that_were_trimmed_are_still_known(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    count = TRIMMED_TOGETHER + KEPT + 2
    for rows in range(1, count + 1):
        opened = lab.opened(replace(ORDERS, rows=rows))
        for slot, _ in unannounced(opened):  # everything else stays
            note_announced(opened, slot, "run")
        lab.run()
    history = lab.journal.history("orders")
    assert history.trimmed
    slots = list_slots(history)
    assert [slot.slot for slot in slots] == [*range(count, 0, -1)]
    assert {(slot.action, slot.state, slot.rows) for slot in slots} == {(Action.COMMIT, "done", 1)}
    assert slots[-1].trimmed
    assert [slot.slot for slot in list_slots(history, start=3, count=2)] == [count - 3, count - 4]
    assert [check.state for check in verify(lab.journal, LocalFiles(tmp_path), "orders")] == [FileState.OK] * count
    assert [*audit(lab.journal, LocalFiles(tmp_path))] == []


def test_the_coverage_of_each_position(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.admin.set_watermark("topic", MultiLongWatermark((5, 7)), "to begin there")
    lab.admin.set_watermark("topic", MultiLongWatermark((6, 7)), "to skip one")
    first, second = dataset_detail(lab.journal, LocalFiles(tmp_path), "topic", NOW).coverage
    assert (first.origin, first.edge, first.ranges, first.gaps) == (
        position(5),
        position(6),
        (Range(position(5), position(6)),),
        (),
    )
    assert (second.origin, second.edge, second.ranges) == (position(7), position(7), ())


def test_a_copied_file_is_known_by_its_content(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    path = lab.files("orders")[0]
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    checks = {check.path: check for check in verify(lab.journal, LocalFiles(tmp_path), "orders")}
    check = checks[f"orders/{path.name}"]
    assert (check.state, check.detail) == (FileState.OK, "it was copied, or touched, since")


@pytest.mark.parametrize(("content", "found"), [(True, FileState.CHANGED), (False, FileState.OK)])
def test_only_reading_a_file_finds_a_change_that_keeps_its_identity(
    tmp_path: Path, content: bool, found: FileState
) -> None:
    import os

    lab = Lab(tmp_path, ORDERS)
    lab.run()
    path = lab.files("orders")[0]
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"X")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    states = {c.path: c.state for c in verify(lab.journal, LocalFiles(tmp_path), "orders", content=content)}
    assert states[f"orders/{path.name}"] == found


def test_a_folder_where_a_file_was_is_no_file(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    path = lab.files("orders")[0]
    path.unlink()
    path.mkdir()
    states = {c.path: c.state for c in verify(lab.journal, LocalFiles(tmp_path), "orders")}
    assert states[f"orders/{path.name}"] is FileState.CHANGED


# Audits


def findings(lab: Lab, urn: str | None = None) -> list[tuple[str, str]]:
    return [(found.check, found.level.value) for found in all_findings(lab, urn)]


def all_findings(lab: Lab, urn: str | None = None) -> list[AuditFinding]:
    return [*audit(lab.journal, LocalFiles(lab.folder), urn)]


def test_an_audit_of_what_adds_up_finds_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    lab.run(replace(ORDERS, rows=14))
    lab.admin.rewind("orders", position(11), "again")
    lab.run()
    assert all_findings(lab) == []


def test_an_audit_reports_holes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS, policy=CommitPolicy.SUCCESSFUL)
    lab.run(units=("orders:u1",))
    assert [(f.check, f.detail) for f in all_findings(lab)] == [("coverage", "[4, 8) is open: the next run plans it")]


def test_an_audit_reports_ranges_that_somebody_skipped(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    lab.admin.set_watermark("orders", position(20), "skip")
    (found,) = all_findings(lab)
    assert (found.level.value, found.slot) == ("note", 2)
    assert found.detail == "[10, 20) is committed, and no unit holds it: it was set or imported"


def wrong(lab: Lab, monkeypatch: pytest.MonkeyPatch, coverage: Coverage) -> list[AuditFinding]:
    """The findings of an audit of a dataset whose coverage differs from its records."""
    read = Journal.history

    def history(self: Journal, urn: str) -> History:
        found = read(self, urn)
        return replace(found, state=replace(found.state, coverage=coverage))

    monkeypatch.setattr(Journal, "history", history)
    return all_findings(lab, "orders")


def test_an_audit_finds_ranges_without_units_and_units_without_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    coverage = Coverage().add(Range(position(0), position(6))).add(Range(position(10), position(12)))
    found = [f.detail for f in wrong(lab, monkeypatch, coverage) if f.level.value == "problem"]
    assert found == [
        "unit u1 holds [4, 8), which is not all committed",
        "unit u2 holds [8, 10), which is not all committed",
        "[10, 12) is committed, and no unit holds it",
    ]


def test_an_audit_finds_units_that_overlap_and_rows_that_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    read = Journal.history

    def history(self: Journal, urn: str) -> History:
        found = read(self, urn)
        (slot,) = found.slots
        units = tuple(replace(u, low=position(0), rows_read=u.rows_read + 1) for u in slot.decision.units)
        changed = replace(slot, decision=replace(slot.decision, units=units))
        live = {
            ref: replace(u, low=position(0), rows_written=u.rows_written + 1) for ref, u in found.state.live.items()
        }
        return replace(found, slots=(changed,), state=replace(found.state, live=live))

    monkeypatch.setattr(Journal, "history", history)
    assert [f.detail for f in all_findings(lab, "orders")] == [
        "unit u1 holds a part of [0, 8) that another one holds, too",
        "unit u2 holds a part of [0, 10) that another one holds, too",
        "13 rows read, 10 published and 0 dropped",
        "13 rows written, and its files hold 10",
    ]


def test_an_audit_finds_files_that_are_gone_retired_and_nobodys(tmp_path: Path) -> None:
    lab = Lab(tmp_path, PRICES, retention=timedelta(days=1))
    lab.run()
    lab.run(replace(PRICES, version=1))
    assert [f.detail for f in all_findings(lab)] == ["1 file that it retired still there, until clean-up"]
    folder = lab.files("Prices")[0].parent
    (folder / "mine.txt").write_text("somebody's")
    new = {path.partition("/")[2] for path in (c.path for c in verify(lab.journal, LocalFiles(tmp_path), "Prices"))}
    (folder / new.pop()).unlink()
    assert findings(lab) == [("files", "problem"), ("files", "note"), ("files", "note")]
    assert all_findings(lab)[2].detail == f"1 file below its folder and in no slot: {folder.name}/mine.txt"


def test_an_audit_reports_what_is_pending_and_whose_steps_are_lost(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.decide()
    assert findings(lab) == [("state", "note")]
    (shard,) = lab.store.list("lab/orders/c/")
    lab.store.delete(shard)
    assert findings(lab) == [("state", "note"), ("journal", "problem")]
    detail = dataset_detail(lab.journal, LocalFiles(tmp_path), "orders", NOW)
    assert detail.steps is not None
    assert "they are missing" in detail.steps.error


def test_an_audit_finds_a_journal_that_lost_its_newest_slots(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    lab.run(replace(ORDERS, rows=12))
    for key in [*lab.store.list("lab/orders/")]:
        if "/0000000002" in key:
            lab.store.delete(key)
    lab.reopened()
    assert ("journal", "problem") in findings(lab)


def test_an_audit_names_records_of_the_store_that_nobody_knows(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    for known in ("_seals/lab/0000000001", f"_probe/{'0' * 32}-race", "_probe_passed/1", "_gobblin/claims/1"):
        lab.store.put_if_absent(known, b"x")
    assert all_findings(lab) == []
    for unknown in ("_homes/lab/1", "_seals/lab", "_leases/lab/0000000001", "_x"):
        lab.store.put_if_absent(unknown, b"x")
    (found,) = all_findings(lab)
    assert (found.urn, found.check, found.level) == ("", "journal", "problem")
    assert "4 records" in found.detail
    assert "'_homes/lab/1', '_leases/lab/0000000001', '_seals/lab', '_x'" in found.detail
    assert all_findings(lab, "orders") == [], "it isn't about one dataset"


# Positions


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("42", "long", position(42)),
        ("[5, 7]", "multi_long", MultiLongWatermark((5, 7))),
        ("2026-01-31T13:00:00+01:00", "timestamp", TimestampWatermark(NOW)),
        ("2026-01-31 12:00Z", "timestamp", TimestampWatermark(NOW)),
    ],
)
def test_positions_as_people_write_them(text: str, kind: str, expected: Watermark) -> None:
    assert parse_position(text, kind) == expected


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("4.2", "long", "Write an integer"),
        ("true", "long", "Write an integer"),
        ("9223372036854775809", "long", "beyond the integers of 64 bits. Write an integer: 42"),
        ("9" * 5000, "long", "an integer has 5000 digits"),
        ("5", "multi_long", "Write a list of integers"),
        ("[]", "multi_long", "it has no position. Write a list of integers"),
        ("[1, -9223372036854775809]", "multi_long", "beyond the integers of 64 bits"),
        ('{"file": 1, "line": 2, "file": 3}', "acme.mark", "an object has the key 'file' twice"),
        ("2026-01-31", "timestamp", "Write a time with its zone"),
        ("20260131", "timestamp", "Write a time with its zone"),
        ("yesterday", "timestamp", "expected a time in ISO 8601, with its zone. Write a time with its zone"),
        ("0001-01-01T00:00+05:00", "timestamp", "before the year 1, or after 9999. Write a time"),
        ("x", "acme.mark", "registered are"),
    ],
)
def test_positions_that_are_none(text: str, kind: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as caught:
        parse_position(text, kind)
    assert not re.search(r"\w(Error|Exception)\b|isoformat|tzinfo|datetime", str(caught.value)), "Python's own words"


def test_a_position_that_an_authors_own_type_can_not_read_is_an_error_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(value: object) -> LongWatermark:
        raise KeyError("letters")

    monkeypatch.setattr(LongWatermark, "from_json", fail)
    with pytest.raises(ConfigurationError, match="position '5': it is not a watermark of kind 'long': 'letters'"):
        parse_position("5", "long")


def test_a_dataset_that_is_not_there_names_near_ones(tmp_path: Path) -> None:
    lab = Lab(tmp_path, *(replace(ORDERS, urn=urn) for urn in ("main.orders", "main.customers")))
    with pytest.raises(GobblinError, match="it has no dataset yet"):
        dataset_detail(lab.journal, LocalFiles(tmp_path), "main.order", NOW)
    lab.run()
    with pytest.raises(ConfigurationError, match=r"2 datasets, and not this one. Did you mean 'main.orders'"):
        dataset_detail(lab.journal, LocalFiles(tmp_path), "main.order", NOW)
    with pytest.raises(ConfigurationError, match=r"It has 'main.customers', 'main.orders'"):
        dataset_detail(lab.journal, LocalFiles(tmp_path), "zzz", NOW)
