"""Large results of PostgreSQL through DuckDB's scanner, which decodes binary COPY in half the time of ADBC's driver.

It strips the spaces of `char(n)`, so that type isn't read this way; nor are arrays. It reads a numeric NaN as 0, so where it
reads a 0, the server is asked whether there is a NaN.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.rows.sources.sql.dialects import MisreadError

EXTENSION = "duckdb_extension_postgres_scanner"
"""The package with the scanner for DuckDB's version; nothing is loaded from the network."""
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    # Checking the scanner's signature takes a fifth of a second, and protects nothing: it lies beside DuckDB itself.
    "allow_unsigned_extensions": "true",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_NUMBERS = count()
"""Of the results of this process, each of which has a name of its own for the database."""


def duckdb_is_installed() -> bool:
    """Return whether DuckDB and its scanner are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("duckdb", EXTENSION))


class DuckResult:
    """The rows of a query, in a transaction of a connection of its own; the query starts with the first look at them.

    :param first: statements that set up the transaction, before its first query.
    :param nan: a query for its rows with a numeric NaN.
    :param counters: a query for the number of scans in the transaction so far, and of the rows that they visited.
    :param batch_rows: the number of rows in a batch.
    :param cancel: called with the server process that runs the query, to stop it.
    """

    def __init__(
        self,
        uri: str,
        first: Sequence[str],
        query: str,
        nan: str,
        counters: str,
        batch_rows: int,
        cancel: Callable[[int], None],
    ) -> None:
        self._rows = query
        self._nan = nan
        self._batch_rows = batch_rows
        self._cancel = cancel
        self._done = False
        self._counters = counters
        self.visited = 0
        self._name = f"source_{next(_NUMBERS)}"
        self._connection: Any = _duckdb(os.getpid()).cursor()
        try:
            self._run("SET enable_progress_bar = false")  # shown where no script runs, as by `python -c`
            self._run(f"ATTACH {_literal(uri)} AS {self._name} (TYPE postgres)")
            self._run("BEGIN")
            for statement in first:
                self._run(f"CALL postgres_execute('{self._name}', {_literal(statement)})")
            ((self._pid,),) = self._query("SELECT pg_backend_pid()").fetchall()
        except BaseException:
            self._done = True
            _duckdb.cache_clear()  # after some errors it takes no more queries
            self.close()
            raise

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        doubtful, scans, visited = False, *self._counted()
        for batch in self._query(self._rows).to_arrow_reader(self._batch_rows):
            doubtful = doubtful or any(_has_zero(column) for column in batch.columns)
            yield batch
        scans_after, visited_after = self._counted()
        self.visited = visited_after - visited if scans_after - scans == 1 else 0
        self._done = True
        if doubtful and self._query(self._nan).fetchall():
            raise MisreadError("a numeric is NaN")

    def close(self) -> None:
        """End the transaction and close the connection, without waiting for data in transfer; safe to repeat."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if not self._done:
            _duckdb.cache_clear()
            with contextlib.suppress(Exception):
                self._cancel(self._pid)
        # DuckDB ends the process if it notices only on closing that the server is gone, so send a query first.
        for last in ("ROLLBACK", f"DETACH {self._name}"):
            with contextlib.suppress(Exception):
                connection.execute(last)
        with contextlib.suppress(Exception):
            connection.close()

    def _query(self, text: str) -> Any:
        return self._run(f"SELECT * FROM postgres_query('{self._name}', {_literal(text)})")

    def _counted(self) -> tuple[int, int]:
        ((scans, visited),) = self._query(self._counters).fetchall()
        return scans, visited

    def _run(self, text: str) -> Any:
        return self._connection.execute(text)


@lru_cache(maxsize=1)
def _duckdb(process: int) -> Any:
    """Return this process's DuckDB, with the scanner loaded: that takes 0.05 s, as long as to read 25,000 rows.

    :param process: its id. A forked one needs a DuckDB of its own.
    """
    import duckdb

    found = duckdb.connect(":memory:", config=_CONFIG)
    found.execute(f"LOAD {_literal(_extension())}")
    return found


def _has_zero(column: pa.Array) -> bool:
    return bool(pa.types.is_decimal(column.type) and pc.index(column, pa.scalar(0, column.type)).as_py() >= 0)


def _extension() -> str:
    spec = importlib.util.find_spec(EXTENSION)
    assert spec is not None
    assert spec.origin is not None
    return str(next(Path(spec.origin).parent.rglob("*.duckdb_extension")))


def _literal(text: str) -> str:
    """Return a text as a literal of DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"
