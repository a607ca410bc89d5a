"""A table of another dataset is taken over: its former owner is shut out, for good and by name, and all of it is on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from airflow_gobblin.admin.views import list_slots
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.steps.base import CommitStep, StepContext
from tests.proofs import one_in
from tests.protocol.rows import Table
from tests.tables.labs import TableLab, up_to

pytestmark = one_in(2, "table_lab")

A = Table("a", ExtractKind.APPEND_ONLY, 12)
NewLab = Callable[..., TableLab]


def first(*numbers: int) -> Counter[str]:
    return Counter(A.row(n) for n in range(*numbers))


def late(lab: TableLab) -> tuple[StepContext, CommitStep]:
    """Decide a slot of a lab, and return its step, as a process that hangs has it."""
    opened, _ = lab.decide(A)
    slot = lab.journal.history("a").pending
    assert slot is not None
    (step,) = lab.journal.steps(slot.decision)
    return opened.committer._context_of(slot.decision), step


def taken(lab: TableLab) -> Slot:
    return lab.admin.take_over("a", lab.table("a"), "its journal is lost")


def test_a_table_of_another_dataset_is_refused_by_name_and_goes_on_once_it_is_taken_over(table_lab: NewLab) -> None:
    former = table_lab(A)
    former.run(request=up_to(4))
    heir = former.other("heir")
    refused = heir.run()["a"]
    assert refused.status == "failed"
    assert f"belongs to {former.owner('a')}" in refused.detail
    assert "airflow gobblin take-over" in refused.detail

    slot = taken(heir)

    assert slot.done
    assert (slot.decision.action, slot.decision.actor, slot.decision.reason) == (
        Action.TAKE_OVER,
        "ann",
        "its journal is lost",
    )
    assert [(one.slot, one.action, one.actor) for one in list_slots(heir.journal.history("a"))] == [
        (1, Action.TAKE_OVER, "ann")
    ]
    look = heir.open("a").look(heir.owner("a"))
    assert (look.owner, look.mark) == (heir.owner("a"), heir.journal.history("a").mark_before(2, look.id))
    assert heir.run()["a"].status == "committed"
    assert heir.table_rows("a") == first(4) + A.all_rows(), "the rows that are there stay"
    assert f"belongs to {heir.owner('a')}" in former.run()["a"].detail


def test_a_late_commit_of_the_former_owner_does_nothing(table_lab: NewLab) -> None:
    former = table_lab(A)
    former.run(request=up_to(4))
    context, step = late(former)
    heir = former.other("heir")
    taken(heir)
    with pytest.raises(GobblinError, match="belongs to"):
        step.execute(context)
    with pytest.raises(GobblinError, match="belongs to"):
        former.run()
    assert heir.table_rows("a") == first(4)
    (ended,) = former.admin.abandon("a", "it has lost its table")
    assert ended.abandoned


def test_a_table_that_is_taken_back_shuts_out_all_that_was_decided_before(table_lab: NewLab) -> None:
    former = table_lab(A)
    former.run(request=up_to(4))
    context, step = late(former)
    heir = former.other("heir")
    taken(heir)
    former.admin.abandon("a", "it has lost its table")
    taken(former)
    with pytest.raises(GobblinError):
        step.execute(context)
    assert "belongs to" in heir.run()["a"].detail
    assert former.run()["a"].status == "committed"
    assert former.table_rows("a") == A.all_rows()


@pytest.mark.slow
def test_a_take_over_that_died_is_finished_by_the_next_run(table_lab: NewLab, monkeypatch: pytest.MonkeyPatch) -> None:
    former = table_lab(A)
    former.run(request=up_to(4))
    heir = former
    for done in (False, True):
        heir = former.other(f"heir {done}")
        keeper = heir.admin
        monkeypatch.setattr(keeper._committer, "execute", lambda slot, _: slot)
        slot = keeper.take_over("a", heir.table("a"), "its journal is lost")
        assert not slot.finished
        if done:
            (step,) = heir.journal.steps(slot.decision)
            step.execute(heir.opened().committer._context_of(slot.decision))
        assert heir.run()["a"].status == "committed"
        assert heir.journal.history("a").slot(1).done
    assert heir.table_rows("a") == first(4) + A.all_rows() + A.all_rows()


def test_a_take_over_that_is_abandoned_never_comes(table_lab: NewLab, monkeypatch: pytest.MonkeyPatch) -> None:
    former = table_lab(A)
    former.run(request=up_to(4))
    heir = former.other("heir")
    keeper = heir.admin
    monkeypatch.setattr(keeper._committer, "execute", lambda slot, _: slot)
    slot = keeper.take_over("a", heir.table("a"), "its journal is lost")
    (step,), context = heir.journal.steps(slot.decision), heir.opened().committer._context_of(slot.decision)
    (ended,) = heir.admin.abandon("a", "it is wanted where it is")
    assert ended.abandoned
    with pytest.raises(GobblinError, match="shut out"):
        step.execute(context)
    assert former.open("a").look(former.owner("a")).owner == former.owner("a")
    assert former.run()["a"].status == "committed"
    assert former.table_rows("a") == A.all_rows()
    taken(heir)
    assert heir.open("a").look(heir.owner("a")).owner == heir.owner("a")


def test_a_take_over_that_is_done_can_not_be_abandoned(table_lab: NewLab, monkeypatch: pytest.MonkeyPatch) -> None:
    former = table_lab(A)
    former.run(request=up_to(4))
    heir = former.other("heir")
    keeper = heir.admin
    monkeypatch.setattr(keeper._committer, "execute", lambda slot, _: slot)
    slot = keeper.take_over("a", heir.table("a"), "its journal is lost")
    (step,) = heir.journal.steps(slot.decision)
    step.execute(heir.opened().committer._context_of(slot.decision))
    with pytest.raises(LostRaceError, match="finished"):
        heir.admin.abandon("a", "it is wanted where it is")


@pytest.mark.slow
def test_a_third_dataset_that_was_faster_is_named(table_lab: NewLab, monkeypatch: pytest.MonkeyPatch) -> None:
    former = table_lab(A)
    former.run(request=up_to(4))
    heir, third = former.other("heir"), former.other("third")
    keeper = heir.admin
    monkeypatch.setattr(keeper._committer, "execute", lambda slot, _: slot)
    slot = keeper.take_over("a", heir.table("a"), "its journal is lost")
    taken(third)
    (step,) = heir.journal.steps(slot.decision)
    with pytest.raises(GobblinError, match=f"belongs to {third.owner('a')}"):
        step.execute(heir.opened().committer._context_of(slot.decision))
    heir.admin.abandon("a", "another one has it")
    assert third.run()["a"].status == "committed"


def test_what_can_not_be_taken_over_is_refused_by_name(table_lab: NewLab) -> None:
    lab = table_lab(A)
    with pytest.raises(ConfigurationError, match="isn't there"):
        taken(lab)
    lab.run(request=up_to(4))
    with pytest.raises(ConfigurationError, match="this dataset's already"):
        taken(lab)
    with pytest.raises(ConfigurationError, match="reason"):
        lab.other("heir").admin.take_over("a", lab.table("a"), " ")
    late(lab)
    with pytest.raises(ConfigurationError, match="is pending"):
        taken(lab)
    assert lab.other("heir").journal.history("a").state.head == 0


def test_what_has_lost_its_table_refuses_a_rewind_by_name_and_is_dropped_without_its_rows(table_lab: NewLab) -> None:
    former = table_lab(A)
    former.run(request=up_to(4))
    heir = former.other("heir")
    taken(heir)
    with pytest.raises(ConfigurationError, match="was taken over: it belongs to"):
        former.admin.rewind("a", LongWatermark(2), "the rows are wrong")
    with pytest.raises(ConfigurationError, match="was taken over"):
        former.admin.drop("a", "it has ended", delete_files=True)
    former.admin.drop("a", "it has ended")
    assert heir.table_rows("a") == first(4)
