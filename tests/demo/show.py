"""How the demo speaks: headlines, indented lines, tables, and a line for each task that runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.services.airflow import TaskInstance

__all__ = ["Progress", "headline", "say", "table"]


def headline(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table. Numbers get their thousands marked, and stand to the right."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [any(isinstance(value, int) for value in column) for column in zip(*rows, strict=True)]
    for row in cells:
        aligned = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        say("  ".join(aligned).rstrip())


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


class Progress:
    """Says of each task of a run that it has ended, and of those on Spark, which take their time, that they run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._started = time.monotonic()
        self._said: set[tuple[str, int, str]] = set()

    def show(self, tasks: Sequence[TaskInstance]) -> None:
        """Say what is new."""
        for task in tasks:
            state = _told(task)
            key = (task.task_id, task.map_index, state)
            if state and key not in self._said:
                self._said.add(key)
                label = f" [{task.label}]" if task.label else ""
                say(f"{self._run} {time.monotonic() - self._started:5.1f} s  {task.name}{label}: {state}")


def _told(task: TaskInstance) -> str:
    if task.state == "running" and task.name == "extract" and task.label != str(task.map_index):
        return "running on Spark"  # it has its label now, after a moment as a mere index
    return "" if task.state in (None, "none", "scheduled", "queued", "running") else str(task.state)
