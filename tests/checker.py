"""The separate checker: are the published rows those of the source, each equally often?

It compares multisets of whole rows. The only thing it uses of the product is the list of files that the journal's reader gave.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Rows", "Verdict", "compare", "parquet_rows", "sqlite_rows"]

_EXAMPLES = 3


@dataclass(frozen=True)
class Rows:
    """Rows of one side, in any order.

    :param types: of the columns, as far as the side knows them.
    """

    columns: tuple[str, ...]
    rows: Iterable[tuple[Any, ...]]
    types: tuple[pa.DataType, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The result of the comparison.

    :param missing: rows that are not published, or not often enough.
    :param unexpected: rows that are published, and not or not so often in the source.
    """

    name: str
    source_rows: int
    published_rows: int
    missing: Counter[str]
    unexpected: Counter[str]
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.missing and not self.unexpected and not self.problem

    def __str__(self) -> str:
        counts = f"{self.name}: {self.source_rows:,} rows in the source, {self.published_rows:,} published"
        if self.ok:
            return f"{counts}, the same"
        if self.problem:
            return f"{counts}; {self.problem}"
        found = (
            f"{sum(rows.values()):,} {what}, as {'; '.join(list(rows)[:_EXAMPLES])}"
            for what, rows in (("missing", self.missing), ("too many", self.unexpected))
            if rows
        )
        return f"{counts}; {'; '.join(found)}"


def compare(name: str, source: Rows, published: Rows) -> Verdict:
    """Compare both sides as multisets."""
    if published.types and source.columns != published.columns:
        problem = f"the columns are {published.columns}, and in the source {source.columns}"
        return Verdict(name, _count(source), _count(published), Counter(), Counter(), problem)
    expected = Counter(_texts(source.rows, published.types))
    found = Counter(_texts(published.rows, published.types))
    return Verdict(name, expected.total(), found.total(), expected - found, found - expected)


def sqlite_rows(database: Path, table: str) -> Rows:
    """The rows of a table of SQLite."""
    with closing(sqlite3.connect(database)) as connection:
        cursor = connection.execute(f'SELECT * FROM "{table}"')
        return Rows(tuple(column[0] for column in cursor.description), cursor.fetchall())


def parquet_rows(paths: Sequence[str]) -> Rows:
    """The rows of Parquet files; a file counts as often as it is named."""
    if not paths:
        return Rows((), ())
    schema = pq.read_schema(paths[0])
    return Rows(tuple(schema.names), _rows_of_files(paths), tuple(schema.types))


def _rows_of_files(paths: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for path in paths:
        for batch in pq.ParquetFile(path).iter_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _count(rows: Rows) -> int:
    return sum(1 for _ in rows.rows)


def _texts(rows: Iterable[tuple[Any, ...]], types: tuple[pa.DataType, ...]) -> Iterator[str]:
    """Each row in one spelling, whichever side it is from."""
    spell = [_spelling(kind) for kind in types]
    for row in rows:
        yield (
            repr(tuple(f(v) if v is not None else None for f, v in zip(spell, row, strict=True)))
            if spell
            else repr(row)
        )


def _spelling(kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return _time
    return float if pa.types.is_floating(kind) else _same


def _time(value: str | datetime) -> str:
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return (time if time.tzinfo is None else time.astimezone(UTC)).isoformat()


def _same(value: Any) -> Any:
    return value
