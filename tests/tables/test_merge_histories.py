"""Merging by key in real tables, against a plain dictionary: random versions, ties, ranges that come late or again, rows that the
source no longer has, slots that are abandoned or carried out twice.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.steps.base import FenceResult
from airflow_gobblin.tables.port import Merge
from airflow_gobblin.testing.tables import MERGE, Row, TableBench, _Chain, assert_rows, tried
from tests.proofs import Proved, fresh_seed, some_and_whole
from tests.tables.delta.test_contract import DeltaBench
from tests.tables.test_iceberg_contract import IcebergBench
from tests.tables.test_memory_table import MemoryBench
from tests.tables.test_postgres import Bench as PostgresBench

MERGES = (MERGE, Merge(("id", "text"), None, ("position",)), Merge(("text",), "changed", ("position",)))
TEXTS = ("", "x", "ä", "it's \\N")
SLOTS = 8


class Source:
    """A table of a database, whose rows change and go. Each change has a position; many have equal times, or none."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._rows: dict[int, Row] = {}
        self._position = 0
        self._waiting: list[list[Row]] = []
        self._read: list[list[Row]] = []

    def change(self) -> None:
        """Change some rows; a range of positions waits to be read."""
        new: list[Row] = []
        for _ in range(self._chance.randrange(1, 12)):
            self._position += 1
            number = self._chance.randrange(8)
            changed = self._chance.choice([None, 0, 1, 1, 2, self._position])
            row: Row = {
                "id": number,
                "text": self._chance.choice(TEXTS),
                "changed": changed,
                "position": self._position,
            }
            self._rows[number] = row
            new.append(row)
        for row in self._chance.sample(new, self._chance.randrange(len(new) + 1) // 2):
            new.remove(row)  # it is gone before it could be read
        self._chance.shuffle(new)
        self._waiting.append(new)

    def read(self) -> list[Row]:
        """Return the rows of a range: of any that waits, so that an earlier one comes late; or of one that was read before."""
        if self._read and self._chance.random() < 0.15:
            return self._chance.choice(self._read)
        self._read.append(self._waiting.pop(self._chance.randrange(len(self._waiting))))
        return self._read[-1]


class Model:
    """A table as a dictionary."""

    def __init__(self, merge: Merge) -> None:
        self._merge = merge
        self.rows: dict[tuple[Any, ...], Row] = {}

    def take(self, rows: list[Row]) -> None:
        for row in rows:
            key = tuple(row[name] for name in self._merge.keys)
            if key not in self.rows or self._version(row) > self._version(self.rows[key]):
                self.rows[key] = row

    def _version(self, row: Row) -> tuple[Any, ...]:
        names = (*((self._merge.delta,) if self._merge.delta else ()), *self._merge.positions)
        return tuple((row[name] is not None, row[name] or 0) for name in names)


def play(chain: _Chain, seed: int) -> None:
    """Play a history of some slots.

    :raises AssertionError: the table isn't what the model is.
    """
    chance = random.Random(seed)
    merge = chance.choice(MERGES)
    source, model = Source(chance), Model(merge)
    late = []
    for _ in range(SLOTS):
        for _ in range(chance.choice([1, 1, 2])):
            source.change()
        rows = source.read()
        if chance.random() < 0.2:
            given_up = chain.decide(*rows, merge=merge)
            assert given_up.fence() is FenceResult.HOLDS
            given_up.ended(done=False)
            late.append(given_up)
        decided = chain.publish(*rows, merge=merge)
        model.take(rows)
        if late and chance.random() < 0.5:
            tried(chance.choice(late).carry_out)
        late.append(decided)
        assert_rows(chain, *model.rows.values())


@pytest.fixture(params=["memory", "delta", "iceberg", "postgres"])
def new_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], TableBench]:
    """Return a function that returns a bench of a format with a table of its own each time."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database")
        return lambda: PostgresBench(url, tmp_path)
    if request.param == "memory":
        return MemoryBench

    def new() -> TableBench:
        folder = tmp_path / uuid.uuid4().hex
        if request.param == "iceberg":
            return IcebergBench(folder)
        folder.mkdir()
        return DeltaBench(str(folder), NoConnections())

    return new


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("histories", some_and_whole([2], [60]))
def test_what_a_real_table_has_is_what_a_dictionary_has(
    new_bench: Callable[[], TableBench], histories: int, proved: Proved, request: pytest.FixtureRequest
) -> None:
    first = fresh_seed()
    print(f"seeds {first} to {first + histories - 1}")
    for seed in range(first, first + histories):
        play(_Chain(new_bench()).create(), seed)
    proved(
        f"merges against a dictionary, {request.node.callspec.params['new_bench']}",
        f"{histories} histories of {SLOTS} slots; 0 broke a promise",
        f"seeds {first} to {first + histories - 1}",
    )
