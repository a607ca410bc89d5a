"""Search for a secret, in every spelling, wherever a run of a real Airflow may have left it."""

from __future__ import annotations

import base64
import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Engine, create_engine, inspect, text

from tests.spellings import cores

__all__ = ["CommandLines", "Places", "owned_by_canary", "spellings"]


@dataclass(frozen=True)
class Places:
    """Where a secret might be found: folders by their content, the tables of databases, command lines."""

    folders: Mapping[str, Path]
    databases: Sequence[Engine]
    command_lines: CommandLines

    def with_secret(self, secret: str) -> dict[str, set[str]]:
        """The places that hold a secret, and where in each."""
        found = {what: {*map(str, files_with(secret, folder))} for what, folder in self.folders.items()}
        for engine in self.databases:
            found |= {f"table {table}": {table} for table in tables_with(secret, engine)}
        found["command lines"] = set(self.command_lines.with_secret(secret))
        return {what: where for what, where in found.items() if where}

    def expect_searched(self, *words: str, tables: Sequence[str]) -> None:
        """Expect some of the words, which are no secrets, everywhere, so that each place is really searched.

        :param tables: those of the databases that have one.
        """
        known = {*self.folders, "command lines", *(f"table {table}" for table in tables)}
        missing = known.difference(*(self.with_secret(word) for word in words))
        assert not missing, f"none of {words} is in {missing}"


def spellings(secret: str) -> tuple[bytes, ...]:
    """A secret in every spelling; in base64 at any place in a longer text."""
    data = secret.encode()
    encoded = [base64.b64encode, base64.urlsafe_b64encode]
    # The first and last characters of the base64 of a part depend on the text around it.
    in_base64 = [
        encode(b"\0" * shift + data)[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        for encode in encoded
        for shift in range(3)
    ]
    return tuple(dict.fromkeys([data, *(core.encode() for core in cores(secret).values()), *in_base64]))


def files_with(secret: str, folder: Path) -> Iterator[Path]:
    """The files below a folder that hold a secret, in their bytes or in their names."""
    wanted = spellings(secret)
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            data = str(path.relative_to(folder)).encode() + (path.read_bytes() if path.is_file() else b"")
            if any(spelling in data for spelling in wanted):
                yield path


def tables_with(secret: str, database: Engine) -> Iterator[str]:
    """The tables of a database that hold a secret, except Airflow's `connection`, which keeps connections, encrypted."""
    wanted = spellings(secret)
    with database.connect() as connection:
        for schema, table in _tables(database):
            rows = connection.execute(text(f'SELECT * FROM "{schema}"."{table}"'))
            values = (value for row in rows for value in row)
            texts = (value if isinstance(value, bytes) else str(value).encode() for value in values)
            if table != "connection" and any(spelling in found for found in texts for spelling in wanted):
                yield table


def _tables(database: Engine) -> Iterator[tuple[str, str]]:
    found = inspect(database)
    for schema in found.get_schema_names():
        if schema != "information_schema":
            yield from ((schema, table) for table in found.get_table_names(schema))


class CommandLines:
    """The command lines of all processes of this machine, as any user sees them, gathered while the block runs."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._gather)

    def __enter__(self) -> CommandLines:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def with_secret(self, secret: str) -> Iterator[str]:
        """The command lines that held a secret."""
        for line in self._seen.copy():
            if any(spelling in line for spelling in spellings(secret)):
                yield line.decode(errors="replace")

    def _gather(self) -> None:
        while not self._end.wait(0.1):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError):
                    self._seen.add(Path("/proc", pid, "cmdline").read_bytes())


def owned_by_canary(url: URL, password: str) -> URL:
    """Give a database to a user of its own, with a password."""
    user = f"canary_{uuid.uuid4().hex[:8]}"
    url = url.set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {user} LOGIN PASSWORD '{password}'"))
        connection.execute(text(f"ALTER DATABASE {url.database} OWNER TO {user}"))
    engine.dispose()
    return url.set(username=user, password=password)
