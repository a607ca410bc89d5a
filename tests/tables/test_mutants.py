"""Faults that a format or the step might have, each of which the contract of tables must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_gobblin.errors import GobblinError, TableMovedError
from airflow_gobblin.model.table import Mark, Owner, SlotOfStep
from airflow_gobblin.steps.base import FenceResult, StepContext, StepStatus
from airflow_gobblin.tables import commit as commits
from airflow_gobblin.tables.commit import TableCommitStep
from airflow_gobblin.tables.port import Change, Look
from airflow_gobblin.testing import memory_table
from airflow_gobblin.testing.memory_table import MemoryTable, _OpenMemoryTable
from airflow_gobblin.testing.tables import ForeignAct, TableContract, _Chain
from tests.tables.test_memory_table import MemoryBench

Mutate = Callable[[pytest.MonkeyPatch], None]
_commit, _look, _status, _fence = (
    _OpenMemoryTable.commit,
    _OpenMemoryTable.look,
    TableCommitStep._status,
    TableCommitStep.fence,
)


def retry_of_the_library(patch: pytest.MonkeyPatch) -> None:
    """The library builds the commit anew on the newest version, when its own was refused."""

    def commit(self: _OpenMemoryTable, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        try:
            _commit(self, look, change, owner, mark)
        except TableMovedError:
            _commit(self, _look(self, owner), change, owner, mark)

    patch.setattr(_OpenMemoryTable, "commit", commit)


def commit_on_another_handle(patch: pytest.MonkeyPatch) -> None:
    """The mark is read on one handle, and the commit is made on another, opened for it."""

    def commit(self: _OpenMemoryTable, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        _commit(self, _look(self, owner), change, owner, mark)

    patch.setattr(_OpenMemoryTable, "commit", commit)


def fence_without_a_new_head(patch: pytest.MonkeyPatch) -> None:
    """The fence only writes the mark, and a commit requires of the table no more than its head."""

    def commit(self: _OpenMemoryTable, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        state, now = look.at, memory_table._tables[self._table.table]
        assert isinstance(state, memory_table._State)
        if change.empty and not mark.done:
            marks = {**now.marks, owner.key: (mark, now.head)}
            memory_table._tables[self._table.table] = replace(now, marks=marks, owner=owner)
        else:
            at = now if (state.id, state.head) == (now.id, now.head) else state
            _commit(self, replace(look, at=at), change, owner, mark)

    patch.setattr(_OpenMemoryTable, "commit", commit)


def a_later_mark_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    def status(self: TableCommitStep, look: Look, slot: SlotOfStep) -> StepStatus:
        if look.mark is not None and look.mark.slot >= slot.slot and look.mark != slot.abandoned:
            return StepStatus.DONE
        return _status(self, look, slot)

    patch.setattr(TableCommitStep, "_status", status)


def an_older_mark_is_good_enough(patch: pytest.MonkeyPatch) -> None:
    def status(self: TableCommitStep, look: Look, slot: SlotOfStep) -> StepStatus:
        older = look.mark is None or look.mark.slot < slot.slot
        return _status(self, look, replace(slot, previous=look.mark) if older else slot)

    patch.setattr(TableCommitStep, "_status", status)


def an_error_means_that_nothing_happened(patch: pytest.MonkeyPatch) -> None:
    """The fence of a slot whose commit is valid reports that it holds."""

    def fence(self: TableCommitStep, context: StepContext) -> FenceResult:
        _fence(self, context)
        return FenceResult.HOLDS

    patch.setattr(TableCommitStep, "fence", property(lambda self: lambda context: fence(self, context)))


def undo_of_a_standing_commit(patch: pytest.MonkeyPatch) -> None:
    """To abandon a slot that is committed, the table is set back."""

    def fence(self: TableCommitStep, context: StepContext) -> FenceResult:
        if _fence(self, context) is FenceResult.WHOLE:
            assert isinstance(self.target.table, MemoryTable)
            self.target.table.roll_back()
        return FenceResult.HOLDS

    patch.setattr(TableCommitStep, "fence", property(lambda self: lambda context: fence(self, context)))


def the_rollback_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_OpenMemoryTable, "look", lambda self, owner: replace(_look(self, owner), in_history=True))


def the_owner_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_OpenMemoryTable, "look", lambda self, owner: replace(_look(self, owner), owner=None))


def the_form_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableCommitStep, "_check_form", lambda self, look: None)


def the_id_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def status(self: TableCommitStep, look: Look, slot: SlotOfStep) -> StepStatus:
        return _status(self, replace(look, id=self.target.id), replace(slot, previous=look.mark))

    patch.setattr(TableCommitStep, "_status", status)


def staged_files_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableCommitStep, "_is_lost", lambda self, context: False)
    read = memory_table._rows
    patch.setattr(memory_table, "_rows", lambda files, path: read(files, path) if files.identity(path) else ())


def what_leaves_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    def commit(self: _OpenMemoryTable, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        try:
            _commit(self, look, change, owner, mark)
        except TableMovedError:
            raise
        except GobblinError:
            _commit(self, look, replace(change, removes=()), owner, mark)

    patch.setattr(_OpenMemoryTable, "commit", commit)


def a_moved_table_is_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commits, "_TRIES", 1)


def chain() -> _Chain:
    return _Chain(MemoryBench()).create()


SUITE = TableContract()
NOTICED_BY: list[tuple[Mutate, Callable[[], object]]] = [
    (
        retry_of_the_library,
        lambda: SUITE.test_a_commit_on_an_old_look_does_nothing(chain(), "fence"),
    ),
    (commit_on_another_handle, lambda: SUITE.test_a_commit_on_an_old_look_does_nothing(chain(), "later slots")),
    (fence_without_a_new_head, lambda: SUITE.test_a_commit_on_an_old_look_does_nothing(chain(), "fence")),
    (a_later_mark_is_taken_for_done, lambda: SUITE.test_an_old_copy_of_the_journal_stops_by_name(chain())),
    (an_older_mark_is_good_enough, lambda: SUITE.test_a_mark_that_is_too_old_stops_by_name(chain())),
    (
        an_error_means_that_nothing_happened,
        lambda: SUITE.test_after_an_error_at_any_call_it_is_abandoned(chain(), True),
    ),
    (
        undo_of_a_standing_commit,
        lambda: SUITE.test_the_fence_of_a_slot_that_is_done_finds_the_whole(chain()),
    ),
    (the_rollback_is_not_seen, lambda: SUITE.test_a_table_that_was_set_back_stops_by_name(chain())),
    (
        commit_on_another_handle,
        lambda: SUITE.test_a_table_that_was_set_back_or_dropped_between_look_and_commit_stops_by_name(
            chain(), ForeignAct.ROLL_BACK
        ),
    ),
    (the_owner_is_not_looked_at, lambda: SUITE.test_a_table_of_another_dataset_stops_by_name(chain())),
    (the_form_is_not_looked_at, lambda: SUITE.test_columns_that_somebody_changed_stop_it_by_name(chain())),
    (the_id_is_not_looked_at, lambda: SUITE.test_a_dropped_table_stops_by_name(chain(), True)),
    (staged_files_are_not_looked_at, lambda: SUITE.test_a_staged_file_that_is_gone_is_lost_by_name(chain())),
    (what_leaves_is_not_counted, lambda: SUITE.test_units_that_somebody_changed_do_not_leave(chain)),
    (a_moved_table_is_not_looked_at_again, lambda: SUITE.test_commits_of_others_are_merged_with(chain)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutate", "test"), NOTICED_BY, ids=lambda one: getattr(one, "__name__", ""))
def test_the_contract_notices_it(mutate: Mutate, test: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    test()
    mutate(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, GobblinError)):
        test()
