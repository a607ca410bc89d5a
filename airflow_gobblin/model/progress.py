"""The progress of a copy, while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_gobblin.model.naming import many, size
from airflow_gobblin.model.wire import record

_FILE = 64 << 10
"""The cost of a file besides its bytes, in bytes."""


@record("copy_progress")
@dataclass(frozen=True)
class Progress:
    """How far the units of a mirror are copied.

    :param files: the number of files that are copied; `bytes` is their size.
    :param all_files: the number of files that are to be copied; `all_bytes` is their size.
    :param seconds: how long it has taken.
    :param at: the time of this progress, for people.
    """

    files: int
    bytes: int
    all_files: int
    all_bytes: int
    seconds: float
    at: datetime

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def share(self) -> float:
        """The part that is done, by bytes and files, from 0 to 1."""
        whole = self.all_bytes + _FILE * self.all_files
        return (self.bytes + _FILE * self.files) / whole if whole else 1.0

    @property
    def left(self) -> float | None:
        """The seconds that the rest will take, at the pace so far; `None` if nothing is done yet."""
        return self.seconds * (1 - self.share) / self.share if self.share else None

    def __str__(self) -> str:
        """Return a line for people."""
        done = f"{self.files:,} of {many(self.all_files, 'file')}, {size(self.bytes)} of {size(self.all_bytes)}"
        left = "" if self.left is None else f", {self.left:,.0f} s left"
        return f"{done}, {size(round(self.rate))}/s{left}"


class ProgressCount:
    """The count of what is copied; any thread may add to it.

    :param units: the files and bytes of everything that is to be copied.
    """

    def __init__(self, units: Iterable[tuple[int, int]]) -> None:
        self.all_files = self.all_bytes = 0
        for files, of_bytes in units:
            self.all_files += files
            self.all_bytes += of_bytes
        self._files = self._bytes = 0
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def add(self, files: int, of_bytes: int) -> Progress:
        """Add what is copied now, and return the progress."""
        with self._lock:
            self._files += files
            self._bytes += of_bytes
            seconds = time.monotonic() - self._started
            return Progress(self._files, self._bytes, self.all_files, self.all_bytes, seconds, datetime.now(UTC))
