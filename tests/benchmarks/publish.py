"""Publishing staged files on a local disk, from the last unit result to DONE: deciding, linking, the durable outcome.

    python -m tests.benchmarks.publish --files 1000 --rounds 5

The files are small: publishing doesn't look into them. The least that can be done is to rename each and to sync the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal import Journal, slot_name
from airflow_gobblin.pipeline import Pipeline, RunRequest
from airflow_gobblin.plan import Plan, RunPlan
from airflow_gobblin.work import ExtractKind, StagedFile, UnitResult, UnitState
from tests.benchmarks.measure import Contender, Once, alternately
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import Row, Target, keep, rows_of
from tests.protocol.rows import LineSink, NoConnections, RowSource, Table

URN = "many"
DATA = b"a row\n"
OURS = "airflow_gobblin: write_commit_steps, execute_commit_steps"
RENAMES = "a loop of os.rename, and fsync of the folder"


def opened(folder: Path, units: int) -> Pipeline:
    """The stages, as a task that has just started has them."""
    source = RowSource((Table(URN, ExtractKind.APPEND_ONLY, units, unit_rows=1),))
    ingestion = Ingestion("publish", source, LineSink(str(folder / "lake")), "unused")
    return Pipeline(ingestion, Journal.open(str(folder / "journal"), "publish"), NoConnections())


def staged(folder: Path, units: int, files: int) -> RunPlan:
    """A run up to the results of its extract, without waiting for the disk.

    :param units: how many work units share the files.
    """
    pipeline = opened(folder, units)
    run = pipeline.create_work_units(RunRequest("benchmark"))
    plan = pipeline.staging.plan(run.packs[0].datasets[0].token)
    assert isinstance(plan, Plan)
    attempt = f"{pipeline.staging.token_folder(plan.token)}/attempt"
    checksum = hashlib.sha256(DATA).hexdigest()
    os.makedirs(folder / "lake" / attempt)
    for number, unit in enumerate(plan.units):
        mine = range(number, files, units)
        paths = [f"{attempt}/{unit.id}-{index}.txt" for index in range(len(mine))]
        for path in paths:
            (folder / "lake" / path).write_bytes(DATA)
        found = [os.stat(folder / "lake" / path) for path in paths]
        result = UnitResult(
            unit.id,
            "attempt",
            UnitState.SUCCESSFUL,
            actual_high=unit.expected_high,
            files=tuple(
                StagedFile(p, len(DATA), checksum, 1, str(f.st_mtime_ns)) for p, f in zip(paths, found, strict=True)
            ),
            rows_read=len(paths),
            rows_written=len(paths),
        )
        pipeline.staging.put_result(plan.token, result)
    os.sync()
    return run


def publish(units: int, files: int, folder: Path) -> Once:
    """Ours: what the two tasks do once they have opened the journal, up to the outcome; the manifest comes after it."""
    run = staged(folder, units, files)
    writing, executing = opened(folder, units), opened(folder, units)
    started = time.time()
    (written,) = writing.write_commit_steps(run, run.packs[0])
    decided = time.time()
    (report,) = executing.execute_commit_steps(run, run.packs[0])
    ended = time.time()
    assert (written.status, report.status) == ("pending", "committed"), (written, report)
    done = os.stat(folder / "journal" / executing.journal.key(URN, "o", slot_name(1))).st_ctime  # when it got its name
    found = len(list((folder / "lake" / URN).glob("*.txt")))
    phases = {"write_commit_steps": decided - started, "execute_commit_steps to DONE": done - decided, "after": ended - done}
    return Once(done - started, phases, {"files": found})


def rename(files: int, folder: Path) -> Once:
    """The bare loop."""
    source, target = folder / "staged", folder / URN
    source.mkdir()
    target.mkdir()
    names = [f"{uuid.uuid4().hex}-{number}.txt" for number in range(files)]
    for name in names:
        (source / name).write_bytes(DATA)
    os.sync()
    started = time.perf_counter()
    for name in names:
        os.rename(source / name, target / name)
    handle = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(handle)
    os.close(handle)
    return Once(time.perf_counter() - started, {}, {"files": len(list(target.iterdir()))})


def measure(rounds: int, files: int, units: int) -> list[Row]:
    """The rows of this work."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    contenders = [Contender(OURS, partial(publish, units, files)), Contender(RENAMES, partial(rename, files))]
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        figures = alternately(contenders, rounds, Path(folder))
    return rows_of(
        f"Publishing {files:,} files on local disk, from the last unit result to DONE",
        figures,
        f"python -m tests.benchmarks.publish --files {files} --units {units} --rounds {rounds}",
        ours=OURS,
        targets=[Target(RENAMES, 0.5)] if files >= 10_000 else [],
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--units", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="write them into results.json")
    asked = parser.parse_args(words)
    rows = measure(asked.rounds, asked.files, asked.units)
    if asked.keep:
        keep(rows)
    for row in rows:
        print(f"{row.seconds:8.3f} s  {row.who}  {row.phases}")


if __name__ == "__main__":
    main()
