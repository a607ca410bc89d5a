"""Merging by key against a plain dictionary, on random versions, ties, late rows and keys of every kind."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_gobblin.errors import TableError
from airflow_gobblin.tables.arrow.merging import check_keys, merged, newest
from airflow_gobblin.tables.port import Merge

SCHEMA = pa.schema(
    [("a", pa.int64()), ("b", pa.string()), ("changed", pa.float64()), ("at", pa.int64()), ("value", pa.int64())]
)
MERGE = Merge(keys=("a", "b"), delta="changed", positions=("at",))
Row = Mapping[str, Any]


def version(row: Row, merge: Merge) -> tuple[Any, ...]:
    """How new a row is: null is older than all, NaN is newer."""
    names = (*([merge.delta] if merge.delta else []), *merge.positions)
    return tuple(_place(row[name]) for name in names)


def _place(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if str(value) == "nan" else (1, value)


class Oracle:
    """A table as a dictionary."""

    def __init__(self, merge: Merge) -> None:
        self.merge = merge
        self.rows: dict[tuple[Any, ...], Row] = {}

    def take(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = tuple(row[name] for name in self.merge.keys)
            if key not in self.rows or version(row, self.merge) > version(self.rows[key], self.merge):
                self.rows[key] = row

    @property
    def sorted(self) -> list[str]:
        return sorted(map(repr, map(dict, self.rows.values())))


@pytest.mark.parametrize("merge", [MERGE, Merge(("a", "b"), None, ("at",)), Merge(("b",), "changed", ("at",))], ids=str)
@pytest.mark.parametrize("seed", range(15))
def test_what_a_table_has_is_what_a_dictionary_has(merge: Merge, seed: int) -> None:
    chance, oracle, table, position = random.Random(seed), Oracle(merge), SCHEMA.empty_table(), 0
    published: list[list[Row]] = []
    for _ in range(12):
        rows: list[Row] = []
        for _ in range(chance.randrange(60)):
            position += 1  # positions distinguish all rows
            changed = chance.choice([None, math.nan, -0.0, 0.0, 1.5, 2.0, math.inf, -math.inf])
            key = {"a": chance.randrange(6), "b": chance.choice(["", "x", "ä"])}
            rows.append({**key, "changed": changed, "at": position, "value": chance.randrange(9)})
        chance.shuffle(rows)
        published.append(rows)
        for some in (rows, chance.choice(published)):  # one of old comes late, or again
            table = merged(table, pa.Table.from_pylist(some, SCHEMA), merge, "x")
            oracle.take(some)
            assert sorted(map(repr, table.to_pylist())) == oracle.sorted


def test_the_order_of_rows_decides_nothing() -> None:
    rows = [{"a": n % 3, "b": "x", "changed": float(n // 4), "at": n, "value": n} for n in range(30)]
    expected = sorted(newest(pa.Table.from_pylist(rows, SCHEMA), MERGE, "x")["value"].to_pylist())
    for seed in range(10):
        random.Random(seed).shuffle(rows)
        assert (
            sorted(newest(pa.Table.from_pylist(rows, SCHEMA), MERGE, "x")["value"].to_pylist())
            == expected
            == [27, 28, 29]
        )


@pytest.mark.parametrize("merge", [Merge(("a",), "changed"), Merge(("a",)), Merge(("a",), "changed", ("at",))], ids=str)
def test_two_rows_that_are_the_newest_of_a_key_are_refused_by_name(merge: Merge) -> None:
    rows = [{"a": n // 2, "b": "x", "changed": 1.0, "at": 5, "value": n} for n in range(6)]
    with pytest.raises(
        TableError, match=r"can't merge dataset 'x': 3 rows too many are the newest .*\{'a': 0\}.*\{'a': 2\}"
    ):
        newest(pa.Table.from_pylist(rows, SCHEMA), merge, "dataset 'x'")


def test_equal_older_versions_are_in_nobodys_way() -> None:
    rows = [{"a": 1, "b": "x", "changed": changed, "at": 5, "value": 0} for changed in (1.0, 1.0, 2.0)]
    assert newest(pa.Table.from_pylist(rows, SCHEMA), MERGE, "x")["changed"].to_pylist() == [2.0]


def test_an_equal_version_leaves_the_row_that_the_table_has() -> None:
    row = {"a": 1, "b": "x", "changed": None, "at": 5, "value": 0}
    table = pa.Table.from_pylist([row], SCHEMA)
    assert merged(table, pa.Table.from_pylist([{**row, "value": 1}], SCHEMA), MERGE, "x").equals(table)


def test_a_null_key_is_refused_by_name() -> None:
    rows = pa.Table.from_pylist([{"a": 1, "b": None}, {"a": 1, "b": "x"}], SCHEMA)
    for check in (check_keys, newest):
        with pytest.raises(TableError, match=r"dataset 'x': 1 row of 2 have null in column 'b', which is of the key"):
            check(rows, MERGE, "dataset 'x'")
    with pytest.raises(TableError, match="has no key"):
        newest(rows, Merge(()), "x")
    with pytest.raises(TableError, match="it has no column 'when', by which it is to be merged"):
        newest(rows, Merge(("a",), "when"), "x")


@pytest.mark.parametrize(
    "values",
    [
        [0.0, -0.0, math.nan, 1.5],
        [Decimal("1.0"), Decimal("-1.0"), Decimal("1.00")],
        [b"", b"\0", b"a"],
        [True, False],
        ["", "a", "A", "ä", "a\u0308"],
    ],
    ids=str,
)
def test_keys_of_every_kind_are_distinguished(values: list[Any]) -> None:
    """As values are: 0.0 is -0.0, and NaN is one key."""
    table = pa.table({"k": [*values, *values], "n": range(2 * len(values))})
    found = newest(table, Merge(("k",), "n"), "x")
    expected = {*map(_place, values)}
    assert {*map(_place, found["k"].to_pylist())} == expected
    assert found.num_rows == len(expected)


def test_no_rows_are_none() -> None:
    assert newest(SCHEMA.empty_table(), MERGE, "x").num_rows == 0
    assert merged(SCHEMA.empty_table(), SCHEMA.empty_table(), MERGE, "x").num_rows == 0
