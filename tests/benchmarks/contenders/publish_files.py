"""Our two publishing tasks after they have opened the journal, up to the outcome; the manifest comes after it."""

from __future__ import annotations

import os
import time

from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from tests.benchmarks.contenders.reporting import arguments, print_figures

CONNECTION = "BENCHMARK_CONNECTION"
"""The variable that holds the connection of target and journal."""


def main() -> None:
    from airflow_gobblin.operators.frozen_heap import frozen_heap
    from tests.benchmarks.publish import URN, Place

    asked = arguments(target="", journal="", layout="flat", run="", units="")
    place = Place(asked.target, asked.journal, os.environ.get(CONNECTION, ""), Layout(asked.layout))
    writing, executing = place.open(int(asked.units)), place.open(int(asked.units))
    run = writing.staging.run(asked.run)
    assert run is not None
    started = time.perf_counter()
    with frozen_heap():
        (written,) = write_commit_steps(writing, run, run.packs[0])
    decided, done = time.perf_counter(), 0.0
    put_outcome = executing.journal.put_outcome

    def timed(*arguments: object, **named: object) -> object:
        nonlocal done
        outcome = put_outcome(*arguments, **named)  # type: ignore[arg-type]
        done = time.perf_counter()
        return outcome

    executing.journal.put_outcome = timed  # type: ignore[method-assign, assignment]
    with frozen_heap():
        (report,) = execute_commit_steps(executing, run, run.packs[0])
    ended = time.perf_counter()
    assert (written.status, report.status) == ("pending", "committed"), (written, report)
    found = sum(path.endswith(".txt") for path in executing.files.walk(URN))
    phases = {
        "write_commit_steps": decided - started,
        "execute_commit_steps to DONE": done - decided,
        "after": ended - done,
    }
    print_figures(done - started, phases, files=found)


if __name__ == "__main__":
    main()
