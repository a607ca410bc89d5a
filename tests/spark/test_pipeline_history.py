"""Random histories of a pipeline on real Spark, with kills of real processes, against one pass in plain Python.

The runs of all jobs are processes, driving a warm Spark. They are killed or stopped at any moment, as are Spark's Python workers
and Spark itself; versions are sealed early, runs are cleared, and nobody notifies a stage that there is work. Functions
give something else at each evaluation. A seed determines what happens, but not when exactly a kill hits.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import psutil
import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.ship import ship
from airflow_gobblin.stages.rewind import would_rewind
from tests.proofs import Proved, chosen_by, fresh_seed, shares
from tests.services.spark_connect import SparkConnect, running_spark_connect
from tests.spark.pipeline_checks import DATASETS, check_at_rest
from tests.spark.pipeline_runs import CODE, READS, Lake, Run
from tests.spark.test_kafka_history import Deck

HISTORIES = 50
ACTS, FEWER_ACTS = 6, 3
"""How much happens in a history: in a whole one, and in one of a share."""
PERIOD = 4
"""The rows of each dataset between two versions, whose ends are seconds."""
ROUNDS = 12
LEVELS = (("raw",), ("one", "two"), ("both", "sums"))
"""The jobs, in the order in which they run until nothing changes: those that don't read each other at once."""
RUN_SECONDS = 1.5
"""About as long as a run takes that makes a version."""
VICTIMS = ("", "", "run", "run", "stopped run", "worker")
"""The processes that are killed during an act; Spark itself once in a while."""
HAS_TO_HAPPEN = ("restores", "runs hit", "stopped runs hit", "workers hit")
"""A fifth as often as there are histories: more are played until it has, as a kill may come too late on a fast machine."""


class Server:
    """A warm Spark, started again when it was killed, where it was: its clients look for it there for ten minutes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count()
        self._running = ExitStack()
        self.spark = self._started()

    def _started(self, port: int = 0) -> SparkConnect:
        folder = self._folder / f"spark-{next(self._numbers)}"
        folder.mkdir()
        return self._running.enter_context(running_spark_connect(folder, {"spark.sql.shuffle.partitions": "2"}, port))

    def kill(self) -> None:
        self.spark.process.kill()
        self.close()
        self.spark = self._started(self.spark.port)

    def kill_a_worker(self) -> bool:
        """Kill a Python worker, which writes the rows of a stage.

        :return: whether there was one.
        """
        for daemon in self.spark.python_daemons:
            with suppress(psutil.Error):
                for worker in daemon.children():
                    worker.kill()
                    return True
        return False

    def close(self) -> None:
        self._running.close()


class World:
    """A pipeline, and what happens to it."""

    def __init__(self, server: Server, folder: Path, zips: tuple[str, ...], seed: int) -> None:
        self.server, self.zips = server, zips
        self.chance = random.Random(seed)
        self.lake = Lake(folder)
        self.numbers = count(1)
        self.cleared: list[RunRequest] = []
        self.late: list[Run] = []
        self.counts = Counter[str]()
        self.disturbed = False

    # Events

    def play(self, count: int, acts: Deck[Act], victims: Deck[str]) -> None:
        """Let so many things happen, and stages run, in which something may be killed."""
        self.finish(self.grow())
        self.finish([self.stage(name) for name in ("one", "two")])
        for _ in range(count):
            running = [*acts.draw()(self), *map(self.stage, self.chance.sample([*READS], 2))]
            victim = victims.draw()
            if victim and self.strike(victim, running):
                self.counts[f"{victim}s hit"] += 1
            elif victim:
                victims.put_back(victim)
            self.finish(running)
        self.rest()

    def strike(self, victim: str, running: Sequence[Run]) -> bool:
        """Kill or stop something after a while.

        :return: whether there was anything.
        """
        time.sleep(self.chance.random() * RUN_SECONDS)
        going = [run for run in running if not run.wait(0)]
        if not going:
            return False
        run = self.chance.choice(going)
        if victim == "run":
            run.kill()
        elif victim == "stopped run":
            run.stop()
            self.late.append(run)
        elif victim == "worker":
            self.disturbed = self.server.kill_a_worker()
            return self.disturbed
        else:
            self.disturbed = True
            self.server.kill()
        return True

    def finish(self, running: Sequence[Run]) -> None:
        """Wait for runs, which only fail if something beside them was killed."""
        for run in running:
            if run not in self.late:
                found = run.statuses
                assert self.disturbed or "failed" not in found, run.details
                self.counts.update(f"runs {status}" for status in found)
        self.disturbed = False

    def source(self, request: RunRequest) -> Run:
        return Run(self.lake, "raw", request, self.server.spark.url, self.zips)

    def stage(self, name: str) -> Run:
        request = RunRequest(f"{name}/{next(self.numbers)}")
        return Run(self.lake, name, request, self.server.spark.url, self.zips)

    def scheduled(self, position: int) -> Run:
        """A scheduled run of the source, whose interval ends at a position."""
        self.cleared.append(RunRequest(f"raw/{next(self.numbers)}", at(position), version=at(position)))
        return self.source(self.cleared[-1])

    def grow(self) -> Sequence[Run]:
        self.lake = Lake(self.lake.folder, self.lake.rows + PERIOD, self.lake.revision)
        return [self.scheduled(self.lake.rows)]

    def seal_early(self) -> Sequence[Run]:
        """A version comes before the one before it, beside it."""
        self.lake = Lake(self.lake.folder, self.lake.rows + 2 * PERIOD, self.lake.revision)
        return [self.scheduled(self.lake.rows), self.scheduled(self.lake.rows - PERIOD)]

    def clear(self) -> Sequence[Run]:
        """An earlier run comes once more."""
        return [self.source(self.chance.choice(self.cleared))]

    def rewind(self) -> Sequence[Run]:
        """The newest rows of a dataset are taken back, and are other ones from now on."""
        self.lake = Lake(self.lake.folder, self.lake.rows, self.lake.revision + 1)
        position = self.chance.randrange(max(self.lake.rows - 3 * PERIOD, 0), self.lake.rows)
        admin = self.admin("raw")
        with suppress(GobblinError):  # it hasn't come so far, or a slot of it is pending
            admin.rewind(self.chance.choice(DATASETS), LongWatermark(position), "the rows were wrong")
            self.counts["rewinds"] += 1
        return []

    def replace(self) -> Sequence[Run]:
        """Rows of any age are read again, and are other ones."""
        self.lake = Lake(self.lake.folder, self.lake.rows, self.lake.revision + 1)
        low = self.chance.randrange(self.lake.rows)
        high = min(self.lake.rows, low + self.chance.randrange(1, 2 * PERIOD))
        urn = self.chance.choice(DATASETS)
        self.counts["replacements"] += 1
        return [self.source(RunRequest(f"raw/{next(self.numbers)}", high, (urn,), low, replace=True))]

    def rewind_a_stage(self) -> Sequence[Run]:
        name = self.chance.choice([*READS])
        admin = self.admin(name)
        with suppress(GobblinError):  # it has no version yet, or a slot of it is pending
            made = admin.journal.state(name).checkpoints.values()
            to = self.chance.choice([None, *(one.version for one in made)])
            admin.carry_out(would_rewind(admin, name, to), "to see it again")
            self.counts["rewinds of stages"] += 1
        return []

    def admin(self, name: str) -> Administration:
        return Administration(Journal.create(self.lake.journal, name), f"{self.lake.folder}/{name}", "ann")

    def rest(self) -> None:
        """Let stopped runs go on, and then run everything until nothing changes."""
        for run in self.late:
            run.go_on()
            self.counts.update(f"late runs {status}" for status in run.statuses)
        self.lake = Lake(self.lake.folder, self.lake.rows + PERIOD, self.lake.revision)
        found = set[str]()
        for _ in range(ROUNDS):
            found.clear()
            for level in LEVELS:
                running = [self.scheduled(self.lake.rows) if name == "raw" else self.stage(name) for name in level]
                found.update(*(run.statuses for run in running))
                assert "failed" not in found, [run.details for run in running]
            if found <= {"idle", "covered"}:
                return
        raise AssertionError(f"it doesn't come to rest: {found}")


Act = Callable[[World], Sequence[Run]]
HAPPENING = (
    World.grow,
    World.seal_early,
    World.clear,
    World.rewind,
    World.replace,
    World.rewind,
    World.replace,
    World.rewind_a_stage,
)
"""The acts, each as often as the rest, but for those that take something back: those twice."""


def at(position: int) -> datetime:
    return datetime.fromtimestamp(position, UTC)


@shares(16)
@pytest.mark.timeout(7200)
def test_a_pipeline_on_spark_is_at_rest_what_one_pass_gives_whatever_is_killed(
    tmp_path: Path, share: int, proved: Proved
) -> None:
    seed, histories = fresh_seed(), HISTORIES // share
    zips = (str(ship(CODE, tmp_path / "code")),)
    chance = random.Random(seed)
    acts, victims = Deck[Act](HAPPENING, chance), Deck((*VICTIMS, *(("Spark",) if share == 1 else ())), chance)
    counts, server = Counter[str](), Server(tmp_path)
    try:
        for number in count():
            if number >= histories and all(counts[what] >= histories // 5 for what in HAS_TO_HAPPEN):
                break
            assert number < 4 * histories, counts
            folder = tmp_path / f"history-{number}"
            folder.mkdir()
            world = World(server, folder, zips, seed + number)
            try:
                world.play(ACTS if share == 1 else FEWER_ACTS, acts, victims)
                check_at_rest(world.lake.journal, READS, world.lake.rows, world.counts)
            except AssertionError as error:
                error.add_note(f"history {number} of seed {seed}: {dict(world.counts)}")
                raise
            counts += world.counts
    finally:
        server.close()
    figures = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    proved(
        "random histories of pipelines on real Spark",
        f"{number} histories: {figures}; none broke a promise",
        f"seeds {seed} to {seed + number - 1}; {chosen_by(share, seed)}",
    )
