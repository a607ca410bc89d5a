"""One commit task over many staged files, alone in its process: its seconds, and what it has in memory at the peak."""

from __future__ import annotations

from pathlib import Path

from airflow_gobblin.journal import Slot
from tests.benchmarks.contenders.saying import Laps, arguments, say
from tests.benchmarks.publish import URN, on_disk


def main() -> None:
    asked = arguments(folder="", run="", units="", stage="")
    pipeline = on_disk(Path(asked.folder)).open(int(asked.units))
    run = pipeline.staging.run(asked.run)
    assert run is not None
    clock = Laps()
    getattr(pipeline, asked.stage)(run, run.packs[0])
    seconds = clock.lap(asked.stage)
    slot: Slot = pipeline.journal.history(URN).slots[-1]
    say(seconds, clock.phases, steps=slot.decision.steps, done=int(slot.done))


if __name__ == "__main__":
    main()
