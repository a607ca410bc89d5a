"""Search for a secret, in every spelling, wherever a run of a real Airflow may have left it."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine, inspect, text

from tests.spellings import cores

__all__ = ["CommandLines", "files_with", "spellings", "tables_with"]


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


def tables_with(secret: str, metadata: Engine) -> Iterator[str]:
    """The tables of Airflow's metadata that hold a secret, except `connection`, which keeps connections, encrypted."""
    wanted = spellings(secret)
    with metadata.connect() as connection:
        for table in inspect(metadata).get_table_names():
            values = (value for row in connection.execute(text(f'SELECT * FROM "{table}"')) for value in row)
            texts = (value if isinstance(value, bytes) else str(value).encode() for value in values)
            if table != "connection" and any(spelling in found for found in texts for spelling in wanted):
                yield table


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
