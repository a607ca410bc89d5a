"""The checker finds what it is made for."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.checker import Verdict, compare, parquet_rows, sqlite_rows

ROWS = [(1, "a", 0.5, "2013-01-01T10:00:00Z"), (1, "a", 0.5, "2013-01-01T10:00:00Z"), (2, None, 1.0, None)]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (n INTEGER, s TEXT, x REAL, at TIMESTAMP WITH TIME ZONE)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
    return path


def published(folder: Path, rows: Sequence[tuple[object, ...]], name: str = "0.parquet") -> str:
    columns = list(zip(*rows, strict=True))
    times = pa.array([None if t is None else str(t).rstrip("Z") for t in columns[3]]).cast(pa.timestamp("us"))
    arrays = [*(pa.array(list(c)) for c in columns[:3]), times.cast(pa.timestamp("us", "UTC"))]
    pq.write_table(pa.table(arrays, names=["n", "s", "x", "at"]), folder / name)
    return str(folder / name)


def verdict(database: Path, *paths: str) -> Verdict:
    return compare("t", sqlite_rows(database, "t"), parquet_rows(paths))


def test_the_same_rows_in_another_order_are_the_same(database: Path, tmp_path: Path) -> None:
    found = verdict(database, published(tmp_path, ROWS[::-1]))
    assert found.ok
    assert (found.source_rows, found.published_rows) == (3, 3)


def test_a_planted_duplicate_is_found(database: Path, tmp_path: Path) -> None:
    found = verdict(database, published(tmp_path, [*ROWS, ROWS[0]]))
    assert not found.ok
    assert (found.missing.total(), found.unexpected.total()) == (0, 1)
    assert "1 too many" in str(found)


def test_a_file_that_is_named_twice_is_found(database: Path, tmp_path: Path) -> None:
    path = published(tmp_path, ROWS)
    assert verdict(database, path, path).unexpected.total() == 3


def test_a_planted_loss_is_found(database: Path, tmp_path: Path) -> None:
    found = verdict(database, published(tmp_path, ROWS[1:]))
    assert not found.ok
    assert (found.missing.total(), found.unexpected.total()) == (1, 0)
    assert "1 missing" in str(found)


def test_a_changed_value_is_found(database: Path, tmp_path: Path) -> None:
    found = verdict(database, published(tmp_path, [*ROWS[:2], (2, "", 1.0, None)]))
    assert (found.missing.total(), found.unexpected.total()) == (1, 1)


def test_nothing_published_is_found(database: Path) -> None:
    assert verdict(database).missing.total() == 3


def test_other_columns_are_found(database: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 1, 2]}), tmp_path / "0.parquet")
    found = verdict(database, str(tmp_path / "0.parquet"))
    assert not found.ok
    assert "columns" in str(found)
