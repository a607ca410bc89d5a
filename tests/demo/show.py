"""The output of the demo: headlines, indented lines, tables, a line for each running task, and signs of life."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.services.airflow import TaskInstance

__all__ = ["Progress", "headline", "show", "signs_of_life", "table"]

SECONDS_OF_SILENCE = 10.0
"""After so long without a line, a line reports that something still runs."""
_spoken = threading.Event()


def headline(text: str) -> None:
    _print(f"\n=== {text}")


def show(text: str) -> None:
    _print(f"  {text}")


def _print(line: str) -> None:
    print(line, flush=True)
    _spoken.set()


@contextmanager
def signs_of_life(silence: float = SECONDS_OF_SILENCE) -> Iterator[None]:
    """Print a line whenever none was printed for a while.

    :param silence: how long, in seconds.
    """
    ended, started = threading.Event(), time.monotonic()

    def watch() -> None:
        while not ended.is_set():
            if not _spoken.wait(silence) and not ended.is_set():
                print(f"  … {time.monotonic() - started:.0f} s since the start", flush=True)
            _spoken.clear()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        _spoken.set()
        watching.join()


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table. Numbers get thousands separators and are aligned to the right."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [any(isinstance(value, int) for value in column) for column in zip(*rows, strict=True)]
    for row in cells:
        aligned = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        show("  ".join(aligned).rstrip())


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


class Progress:
    """Report each task of a run when it has ended, and those on Spark, which take their time, when they start."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._started = time.monotonic()
        self._shown: set[tuple[str, int, str]] = set()

    def show(self, tasks: Sequence[TaskInstance]) -> None:
        """Report what is new."""
        for task in tasks:
            state = _state_of(task)
            key = (task.task_id, task.map_index, state)
            if state and key not in self._shown:
                self._shown.add(key)
                label = f" [{task.label}]" if task.label else ""
                show(f"{self._run} {time.monotonic() - self._started:5.1f} s  {task.name}{label}: {state}")


def _state_of(task: TaskInstance) -> str:
    if task.state == "running" and task.name == "extract" and task.label != str(task.map_index):
        return "running on Spark"  # it has its label now, after a moment as a mere index
    return "" if task.state in (None, "none", "scheduled", "queued", "running") else str(task.state)
