"""Large sequences and many datasets: 100,000 commit steps, of 100 units or of as many as there are steps, and 10,000 datasets
with nothing to do on every kind of store.

    python -m tests.benchmarks.scale --rounds 1

Linear means: a quarter of the steps takes at least a fifth of the time. Each dataset of the many has one committed slot; their
records are made in memory and copied to each store before the clock runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from airflow_gobblin.commit.homes import Tenant
from airflow_gobblin.connections import Connections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from tests.benchmarks.contenders.reporting import Laps
from tests.benchmarks.journals import KINDS, NAME, NothingNew, filled, publish
from tests.benchmarks.measure import Contender, Figures, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.publish import on_disk, staged
from tests.benchmarks.results import JSON, Limit, Row, Target, keep, rows_of
from tests.protocol.rows import LineSink
from tests.services.environment import use_environment

UNITS = 100
SHARES = (0.25, 1.0)
STAGES = {"write_commit_steps": "deciding and writing", "execute_commit_steps": "carrying out"}
SECONDS = 10.0
"""The meaning of "in seconds" for the check of 10,000 datasets on local disk and SQL; on S3 it may be three times as much."""


def measure_steps(rounds: int, steps: int) -> list[Row]:
    """The rows of large sequences: of each stage, at a quarter and the whole of the steps."""
    taken: dict[tuple[str, int], list[Once]] = {}
    for number in range(1, rounds + 1):
        for share in SHARES:
            for stage, once in _stages(int(steps * share), UNITS).items():
                taken.setdefault((stage, int(steps * share)), []).append(once)
                print(f"  round {number} of {rounds}: {once.seconds:8.2f} s  {steps * share:,.0f}: {stage}", flush=True)
    rows: list[Row] = []
    for stage, words in STAGES.items():
        figures = [Figures(_steps(n), tuple(found)) for (of, n), found in taken.items() if of == stage]
        whole, quarter = _steps(steps), _steps(int(steps * SHARES[0]))
        rows += rows_of(
            f"{steps:,} commit steps on local disk, {words}",
            figures,
            f"python -m tests.benchmarks.scale --rounds {rounds} --steps {steps}",
            ours=whole,
            targets=[Target(quarter, SHARES[0] * 0.8)],
            limits=[Limit(whole, "peak_mb", 512)],
        )
    return rows


def measure_units(rounds: int, units: int) -> list[Row]:
    """The rows of very many units of one dataset, a file each; the summary of every unit is in its decision."""
    taken: dict[str, list[Once]] = {}
    for number in range(1, rounds + 1):
        for stage, once in _stages(units, units).items():
            taken.setdefault(stage, []).append(once)
            print(f"  round {number} of {rounds}: {once.seconds:8.2f} s  {units:,} units: {stage}", flush=True)
    rows: list[Row] = []
    who = f"airflow_gobblin, {units:,} units"
    for stage, words in STAGES.items():
        rows += rows_of(
            f"{units:,} work units of one dataset on local disk, {words}",
            [Figures(who, tuple(taken[stage]))],
            f"python -m tests.benchmarks.scale --rounds {rounds} --steps {units}",
            ours=who,
            limits=[Limit(who, "peak_mb", 512)],
        )
    return rows


def _steps(number: int) -> str:
    return f"airflow_gobblin, {number:,} steps"


def _stages(files: int, units: int) -> dict[str, Once]:
    """Each stage in a process of its own."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        run = staged(on_disk(Path(folder)), units, files)
        asked = {"folder": folder, "run": run.run, "units": units}
        return {
            stage: run_program(Path(sys.executable), "many_steps", {**asked, "stage": stage}, secrets={})
            for stage in STAGES
        }


def opened(datasets: int, target: str, journal: str, connections: Connections) -> OpenJob:
    """The job, with its journal."""
    made = Ingestion(NAME, NothingNew(datasets, 1), LineSink(target), journal)
    return OpenJob(made, Journal.create(journal, made.name, connections), connections)


def idle(datasets: int, open_job: Callable[[], OpenJob]) -> Once:
    """The first two tasks of a run that has nothing to do, with the opening of the journal."""
    request, clock = RunRequest("idle"), Laps()
    recovered = verify_recover(open_job(), request)
    clock.lap("recovery check")
    run = create_work_units(open_job(), request)
    clock.lap("planning")
    facts = {"idle": sum(note.status == "idle" for note in run.notes), "other": len(recovered) + len(run.packs)}
    assert facts == {"idle": datasets, "other": 0}, facts
    return Once(sum(clock.phases.values()), clock.phases, facts)


def measure_idle(rounds: int, datasets: int) -> list[Row]:
    """The rows of idle datasets."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, ExitStack() as stack:
        contenders = []
        for kind, where in KINDS.items():
            url, connections = stack.enter_context(filled(kind, Path(folder) / kind, datasets, 1))
            print(f"  the journal is on {where}", flush=True)
            target = f"{url.rpartition('/')[0]}/lake" if kind == "s3" else f"{folder}/lake"
            open_job = partial(opened, datasets, target, url, connections)
            open_job().committer.homes.settle(Tenant())  # as the run that published first has done
            publish(open_job().files, datasets)
            run = partial(idle, datasets, open_job)
            contenders.append(Contender(_journal(where), lambda _, run=run: run()))  # type: ignore[misc]
        figures = alternately(contenders, rounds, Path(folder) / "rounds")
    most = {_journal(where): SECONDS * (3 if kind == "s3" else 1) for kind, where in KINDS.items()}
    return rows_of(
        f"Recovery check and planning of {datasets:,} datasets with nothing to do",
        figures,
        f"python -m tests.benchmarks.scale --rounds {rounds} --datasets {datasets}",
        ours=_journal(KINDS["local"]),
        limits=[Limit(who, "seconds", seconds) for who, seconds in most.items()],
    )


def _journal(where: str) -> str:
    return f"airflow_gobblin, journal on {where}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--datasets", type=int, default=10_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    keep(measure_steps(asked.rounds, asked.steps), asked.results)
    keep(measure_units(asked.rounds, asked.steps), asked.results)
    keep(measure_idle(asked.rounds, asked.datasets), asked.results)


if __name__ == "__main__":
    main()
