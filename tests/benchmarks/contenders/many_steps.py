"""One commit task over many staged files, alone in its process: its seconds, and its peak memory."""

from __future__ import annotations

from pathlib import Path

from airflow_gobblin.journal.history import Slot
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures
from tests.benchmarks.publish import URN, on_disk

TASKS = {task.__name__: task for task in (write_commit_steps, execute_commit_steps)}


def main() -> None:
    asked = arguments(folder="", run="", units="", stage="")
    opened = on_disk(Path(asked.folder)).open(int(asked.units))
    run = opened.staging.run(asked.run)
    assert run is not None
    clock = Laps()
    TASKS[asked.stage](opened, run, run.packs[0])
    seconds = clock.lap(asked.stage)
    slot: Slot = opened.journal.history(URN).slots[-1]
    print_figures(seconds, clock.phases, steps=slot.decision.steps, done=int(slot.done))


if __name__ == "__main__":
    main()
