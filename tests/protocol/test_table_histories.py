"""Random histories of datasets in tables, and faults in the product, or in a format, that they catch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.commit.sweeping import Sweeper
from airflow_gobblin.journal.records import Decision, Outcome, OutcomeState
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.table import Mark, Owner
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.tables.layout import DATA_FOLDER
from airflow_gobblin.tables.port import Change, Look
from airflow_gobblin.testing import memory_table
from airflow_gobblin.testing.memory_table import _OpenMemoryTable
from tests.proofs import Proved, one_in, some_and_whole
from tests.protocol.mirror_histories import play_all
from tests.protocol.table_histories import Broken, play
from tests.tables.test_mutants import (
    Mutate,
    a_later_mark_is_taken_for_done,
    an_error_means_that_nothing_happened,
    an_older_mark_is_good_enough,
    commit_on_another_handle,
    fence_without_a_new_head,
    retry_of_the_library,
    the_form_is_not_looked_at,
    the_owner_is_not_looked_at,
    the_rollback_is_not_seen,
    undo_of_a_standing_commit,
    what_leaves_is_not_counted,
)

# A process that dies closes none of its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("known", "fresh"), some_and_whole((10, 20), (2_000, 2_000)))
def test_random_histories_of_tables_keep_every_promise(known: int, fresh: int, proved: Proved) -> None:
    calls, crashes = play_all(play, known, fresh, "random histories of tables", proved)
    assert crashes > (known + fresh) // 4
    assert calls > 100 * (known + fresh)


def outcome_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The outcome of a slot is written, and then it is committed to its table."""

    def carry_out(self: Committer, decision: Decision) -> Outcome | None:
        slot = self.journal.history(decision.urn).by_token(decision.token)
        outcome = None if slot is None else self.journal.put_outcome(slot, OutcomeState.DONE, "")
        for step in self.journal.steps(decision):
            self._carry_out(decision, step)
        return outcome

    patch.setattr(Committer, "_carry_out_all", carry_out)


def sweep_of_a_done_slot(patch: pytest.MonkeyPatch) -> None:
    """The data files of every token that is swept are removed, also those that a commit named."""

    def remove(self: Sweeper, token: str, plan: Plan | None) -> None:
        if plan is not None and plan.table is not None and plan.table.location:
            open_files(plan.table.location).remove_tree(f"{DATA_FOLDER}/{token}")

    patch.setattr(Sweeper, "_remove_data_files", remove)


def commit_that_does_not_require_the_owner(patch: pytest.MonkeyPatch) -> None:
    """A commit requires of the table its own mark and the form, and not that nobody took the table over."""
    commit = _OpenMemoryTable.commit

    def mutated(self: _OpenMemoryTable, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        now, was = memory_table._tables.get(self._table.table), look.at
        assert isinstance(was, memory_table._State)
        same = now is not None and (now.id, now.form, now.marks.get(owner.key)) == (
            was.id,
            was.form,
            was.marks.get(owner.key),
        )
        commit(self, replace(look, at=now) if same else look, change, owner, mark)

    patch.setattr(_OpenMemoryTable, "commit", mutated)


def take_over_that_moves_no_mark(patch: pytest.MonkeyPatch) -> None:
    """A table is taken over without the mark of the slot that does it: an earlier slot of the new owner isn't shut out."""
    take_over = _OpenMemoryTable.take_over
    patch.setattr(_OpenMemoryTable, "take_over", lambda self, look, owner, mark=None: take_over(self, look, owner))


MUTANTS: tuple[Mutate, ...] = (
    retry_of_the_library,
    commit_on_another_handle,
    fence_without_a_new_head,
    outcome_before_the_commit,
    a_later_mark_is_taken_for_done,
    undo_of_a_standing_commit,
    sweep_of_a_done_slot,
    an_error_means_that_nothing_happened,
    what_leaves_is_not_counted,
    the_rollback_is_not_seen,
    the_owner_is_not_looked_at,
    commit_that_does_not_require_the_owner,
    take_over_that_moves_no_mark,
)
"""Deliberate faults. `tests/tables/test_mutants.py` has those of formats and of the step, which the contract catches, too."""
SEEDS = range(300)


@one_in(8)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "mutate",
    [
        *MUTANTS,
        *(
            pytest.param(rare, marks=pytest.mark.soak)
            for rare in (the_form_is_not_looked_at, an_older_mark_is_good_enough)
        ),
    ],
    ids=lambda mutate: mutate.__name__,
)
def test_a_fault_is_caught(mutate: Mutate, monkeypatch: pytest.MonkeyPatch, proved: Proved) -> None:
    mutate(monkeypatch)
    for seed in SEEDS:
        try:
            play(seed)
        except Broken:
            monkeypatch.undo()
            play(seed)  # the unchanged product passes it
            proved(f"mutant {mutate.__name__}, by histories of tables", f"caught by history {seed}", f"{SEEDS}")
            return
    raise AssertionError(f"no history of {SEEDS} notices it")
