"""A store whose listings are some time old, as in mounted file systems that cache attributes (NFS): decisions are
made once all the same, and nothing spins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_gobblin.journal import journal
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.announce import note_announced, unannounced
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.storage.stores import base
from airflow_gobblin.storage.stores.base import Store, put_or_read
from airflow_gobblin.storage.stores.memory import MemoryStore
from tests.faults import StaleStore
from tests.lab import Lab
from tests.protocol.rows import Table

LAG = 60
"""Seconds; the longest that NFS keeps what is in a folder, by default."""
AT_MOST = 300
"""Calls of a store, to be no spinning."""


class Clock:
    """Time that goes by as a process sleeps."""

    time = 1.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (base, journal):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=clock.sleep))
    return clock


class Counted(MemoryStore):
    """Fail a caller that calls too often.

    :param left: how many calls may still be made.
    """

    left = 1_000_000

    def count(self) -> None:
        self.left -= 1
        assert self.left > 0, "somebody spins"

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.count()
        return super().put_if_absent(key, data)

    def get(self, key: str) -> bytes | None:
        self.count()
        return super().get(key)


def rows(number: int) -> Table:
    return Table("a", ExtractKind.APPEND_ONLY, number)


def publish(lab: Lab, number: int) -> None:
    """A run up to its outcome: nothing is swept."""
    opened, plan = lab.decide(rows(number))
    execute_commit_steps(opened, plan, plan.packs[0])


@pytest.fixture
def store() -> Counted:
    return Counted()


@pytest.fixture
def lab(tmp_path: Path, store: Counted) -> Lab:
    """As it is seen without caches; one slot is done."""
    lab = Lab(tmp_path, rows(4), store=store)
    lab.run()
    return lab


def seen_late(
    lab: Lab, store: Store, clock: Clock, lag: Callable[[], float] = lambda: LAG, *, absent: bool = False
) -> Lab:
    """The same lab, on a host that caches."""
    return Lab(lab.folder, rows(4), store=StaleStore(store, lag, clock.now, absent=absent))


@pytest.mark.parametrize("absent", [False, True], ids=["listings", "and what was absent"])
def test_who_sees_a_slot_late_comes_to_an_answer(lab: Lab, store: Counted, clock: Clock, absent: bool) -> None:
    """Its own listing shows the slot as free, and the store answers that it isn't."""
    late = seen_late(lab, store, clock, absent=absent)
    opened, plan = late.extracted(rows(8))
    publish(lab, 8)
    store.left = AT_MOST
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "covered"
    assert clock.time < 2 * LAG
    assert lab.rows("a") == rows(8).all_rows()


def test_who_sees_an_outcome_late_comes_to_an_answer(lab: Lab, store: Counted, clock: Clock) -> None:
    """Its own listing shows a slot as unfinished, and the store answers that it isn't."""
    late = seen_late(lab, store, clock)
    rival, planned = late.extracted(rows(8))
    opened, plan = lab.decide(rows(8))
    clock.sleep(LAG)
    assert late.journal.history("a").pending
    execute_commit_steps(opened, plan, plan.packs[0])
    store.left = AT_MOST
    (report,) = write_commit_steps(rival, planned, planned.packs[0])
    assert report.status == "covered"
    assert clock.time < 3 * LAG
    assert lab.rows("a") == rows(8).all_rows()


def test_a_listing_that_never_catches_up_is_an_error_by_name(lab: Lab, store: Counted, clock: Clock) -> None:
    late = seen_late(lab, store, clock, lambda: float("inf"))
    opened, plan = late.extracted(rows(8))
    publish(lab, 8)
    store.left = AT_MOST
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "failed"
    assert "d/0000000002" in str(report.detail)
    assert "is not listed" in str(report.detail)
    assert clock.time < 4 * LAG


def test_what_was_absent_is_waited_for(store: Counted, clock: Clock) -> None:
    """A writer of an existing record gets that answer, and may not see the record at once."""
    late = StaleStore(store, lambda: 0.3, clock.now, absent=True)
    assert late.get("k") is None
    store.put_if_absent("k", b"theirs")
    assert put_or_read(late, "k", b"mine") == (b"theirs", False)


class Paused(StaleStore):
    """Something happens before a decision is put, once."""

    before: Callable[[], object] | None = None

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.before is not None and "/d/" in key:
            before, self.before = self.before, None
            before()
        return super().put_if_absent(key, data)


class LateNotes(Paused):
    """Notes are listed as they were when they were listed first, and all else as it is."""

    listed: frozenset[str] | None = None

    def list(self, prefix: str) -> Iterator[str]:
        keys = [*super().list(prefix)]
        notes = frozenset(key for key in keys if "/n/" in key)
        self.listed = notes if self.listed is None else self.listed
        return (key for key in keys if key not in notes - (self.listed or frozenset()))


@pytest.mark.parametrize("pending", [False, True], ids=["nothing pending", "a slot pending"])
def test_who_loses_a_slot_to_a_pause_has_read_it(lab: Lab, store: Counted, clock: Clock, pending: bool) -> None:
    """Whatever of the chain is listed late: the slot itself shows it."""
    deciding = LateNotes(store, lambda: 0, clock.now)
    rival = Lab(lab.folder, rows(8), store=deciding)
    opened, plan = rival.extracted(rows(12))
    if pending:
        lab.decide(rows(8))
        lab.admin.pause("a", "its source is being moved")
    else:
        deciding.before = lambda: lab.admin.pause("a", "its source is being moved")
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "paused"
    assert lab.run(rows(12))["a"].status == "paused"
    assert lab.rows("a") == rows(8 if pending else 4).all_rows(), "the decided slot is finished"


@pytest.mark.parametrize("absent", [False, True], ids=["listings", "and what was absent"])
def test_who_pauses_sees_late_that_somebody_resumed(lab: Lab, store: Counted, clock: Clock, absent: bool) -> None:
    """Otherwise the pause would be refused, as it is one already."""
    lab.admin.pause("a", "to look at it")
    late = seen_late(lab, store, clock, absent=absent)
    assert late.journal.state("a").paused
    lab.admin.resume("a", "it is well")
    late.admin.pause("a", "it isn't")
    assert str(lab.reopened().state("a").paused) == "paused by ann: it isn't"


@pytest.mark.parametrize("pending", [False, True], ids=["nothing pending", "a slot listed as pending"])
def test_who_pauses_and_sees_it_late_still_bars_those_who_are_deciding(
    lab: Lab, store: Counted, clock: Clock, pending: bool
) -> None:
    """The person's own listing doesn't show that a slot has ended, or was taken."""
    late = seen_late(lab, store, clock)
    opened, plan = lab.extracted(rows(8))
    if pending:
        write_commit_steps(opened, plan, plan.packs[0])
    assert (late.journal.history("a").pending is not None) == pending
    write_commit_steps(opened, plan, plan.packs[0])
    execute_commit_steps(opened, plan, plan.packs[0])
    deciding = Paused(store, lambda: 0, clock.now)
    deciding.before = lambda: late.admin.pause("a", "its source is being moved")
    opened, plan = Lab(lab.folder, rows(8), store=deciding).extracted(rows(12))
    store.left = AT_MOST
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    assert report.status == "paused"
    assert lab.rows("a") == rows(8).all_rows()


def test_a_slot_that_was_trimmed_is_not_taken_again_where_the_snapshot_is_seen_late(
    lab: Lab, store: Counted, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_gobblin.journal.trimming.KEPT", 1)
    monkeypatch.setattr("airflow_gobblin.journal.trimming.TRIMMED_TOGETHER", 2)

    def run(*numbers: int) -> None:
        for number in numbers:
            lab.run(rows(number))
            opened = lab.opened()
            for slot, _ in [*unannounced(opened)]:
                note_announced(opened, slot, "run")

    run(5, 6, 7)
    seen = Paused(store, lambda: LAG, clock.now)
    opened, plan = Lab(lab.folder, rows(7), store=seen).extracted(rows(8))
    seen.before = lambda: run(8, 10, 12, 14)
    before = lab.reopened().history("a").snapshot
    store.left = 10_000
    (report,) = write_commit_steps(opened, plan, plan.packs[0])
    history = lab.reopened().history("a")
    assert before is not None
    assert history.snapshot is not None
    assert before.slot < history.state.head - 4 < history.snapshot.slot
    assert report.status in ("covered", "lost", "failed")
    assert report.retryable or report.status != "failed"
    assert history.by_token(plan.packs[0].datasets[0].token) is None
    assert lab.rows("a") == rows(14).all_rows()
