"""Tables with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only.

`tests/tables/test_mutants.py` has more of them, and faults of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow.dataset as ds
import pytest

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import TableMovedError
from airflow_gobblin.model.table import Mark, Owner
from airflow_gobblin.storage.files import Files
from airflow_gobblin.tables.port import Change, Look
from airflow_gobblin.testing import TableContract, memory_table
from airflow_gobblin.testing.memory_table import MemoryTable, _OpenMemoryTable
from tests.tables.test_memory_table import MemoryBench


class BrokenTable(TableContract):
    broken: ClassVar[type[_OpenMemoryTable]]

    @pytest.fixture
    def new_bench(self) -> Callable[[], MemoryBench]:
        broken = self.broken

        @dataclass(frozen=True)
        class Table(MemoryTable):
            def open(self, connections: Connections, files: Files) -> _OpenMemoryTable:
                return broken(self, files)

        def new() -> MemoryBench:
            bench = MemoryBench()
            bench.table = Table(bench.table.table)
            return bench

        return new


class TestATableThatCommitsAgainOnTheNewestVersion(BrokenTable):
    caught_by = "test_a_commit_on_an_old_look_does_nothing"

    class broken(_OpenMemoryTable):
        def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
            try:
                super().commit(look, change, owner, mark)
            except TableMovedError:
                super().commit(self.look(owner), change, owner, mark)


class TestATableThatDoesNotSeeThatItWasSetBack(BrokenTable):
    caught_by = "test_a_table_that_was_set_back_stops_by_name"

    class broken(_OpenMemoryTable):
        def look(self, owner: Owner) -> Look:
            return replace(super().look(owner), in_history=True)


class TestATableWhoseTakeOverLeavesTheMarkOfItsHeir(BrokenTable):
    caught_by = "test_a_take_over_moves_the_mark_of_the_heir_in_its_commit"

    class broken(_OpenMemoryTable):
        def take_over(self, look: Look, owner: Owner, mark: Mark | None = None) -> None:
            super().take_over(look, owner)


class TestATableThatAFenceMakesItsOwn(BrokenTable):
    caught_by = "test_a_mark_without_a_change_leaves_a_table_to_its_owner"

    class broken(_OpenMemoryTable):
        def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
            super().commit(look, change, owner, mark)
            state = memory_table._tables[self._table.table]
            memory_table._tables[self._table.table] = replace(state, owner=owner)


class TestATableThatReadsAnyVersionAsItIsNow(BrokenTable):
    caught_by = "test_it_is_read_as_it_is_and_as_a_mark_left_it"

    class broken(_OpenMemoryTable):
        def read(self, version: str = "") -> ds.Dataset:
            return super().read()
