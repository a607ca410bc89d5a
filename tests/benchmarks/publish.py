"""Publishing staged files, from the last unit result to DONE: deciding, linking or completing uploads, the durable outcome.

    python -m tests.benchmarks.publish --rounds 3

Each contender publishes in a process that was started for it, whose start isn't counted. On a local disk, the least possible
work is to rename each file and to sync the folder. On an S3-like server, a versitygw of this machine, staged files are uploads
that the commit step completes, as Hadoop's magic committer does; Spark's v1 committer copies each file. The files are small:
publishing doesn't read them. For Spark's committers the job commit is compared, after the last task; for Iceberg's
append the work after the footers are read.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from airflow_gobblin.connections import Connections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.work import ExtractKind, StagedFile, UnitResult, UnitState
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.files import LocalFiles
from tests.benchmarks.contenders import publish_files, spark_commit
from tests.benchmarks.measure import Contender, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER, VERSIONS, jars, peers_python
from tests.benchmarks.results import JSON, Row, Target, keep, rows_of
from tests.protocol.rows import LineSink, RowSource, Table
from tests.services import s3
from tests.services.environment import use_environment

URN = "many"
DATA = b"a row\n"
OURS = "airflow_gobblin: write_commit_steps, execute_commit_steps"
FOLDERS = f"{OURS}, one folder per unit"
RENAMES = "a loop of os.rename, and fsync of the folder"
SPARK = "Spark's v1 committer, after the last task"
ICEBERG = "pyiceberg's append, after the footers are read"
S3A = "Spark's v1 committer over s3a, after the last task"
MAGIC = "Hadoop's magic committer over s3a, after the last task"
HADOOP, AWS = "3.4.2", "2.29.52"
S3A_JARS = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    *(f"software.amazon.awssdk:{name}:{AWS}" for name in ("s3", "s3-transfer-manager", "sts", "kms")),
)
CLOUD_JAR = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1"
"""By which Spark's writers know Hadoop's committers."""
OTHER_CLOUDS = (
    "com.*:*",
    "io.*:*",
    "joda-time:*",
    "net.*:*",
    "org.apache.hadoop:*",
    "org.apache.http*:*",
    "org.eclipse.*:*",
    "org.scala-lang*:*",
    "org.slf4j:*",
    "org.wildfly.*:*",
    "software.amazon.*:*",
)
"""Its dependencies: clients of every cloud, and the existing environment."""


@dataclass(frozen=True)
class Place:
    """Where files are staged and published.

    :param target: the target root.
    :param journal: the journal's URL.
    :param connection: the connection that both name, with its secret; empty where they name none.
    :param layout: how the files lie in the dataset's folder.
    """

    target: str
    journal: str
    connection: str = ""
    layout: Layout = Layout.FLAT

    @property
    def connections(self) -> Connections:
        """Where the connection is found."""
        return SparkConnections({s3.CONNECTION: self.connection} if self.connection else {})

    def open(self, units: int) -> OpenJob:
        """The stages, as a task that has just started has them."""
        source = RowSource((Table(URN, ExtractKind.APPEND_ONLY, units, unit_rows=1),))
        ingestion = Ingestion("publish", source, LineSink(self.target, layout=self.layout), self.journal)
        journal = Journal.create(self.journal, ingestion.name, self.connections)
        return OpenJob(ingestion, journal, self.connections)


def on_disk(folder: Path, layout: Layout = Layout.FLAT) -> Place:
    return Place(str(folder / "lake"), str(folder / "journal"), layout=layout)


def staged(place: Place, units: int, files: int) -> RunPlan:
    """A run up to the results of its extract; it waits for the disk once, at the end, because this isn't measured.

    :param units: how many work units share the files.
    """
    with patch.object(os, "fsync", lambda _: None):
        run = _staged(place, units, files)
    os.sync()
    return run


def _staged(place: Place, units: int, files: int) -> RunPlan:
    opened = place.open(units)
    run = create_work_units(opened, RunRequest("benchmark"))
    plan = opened.staging.plan(run.packs[0].datasets[0].token)
    assert isinstance(plan, Plan)
    for number, unit in enumerate(opened.staging.units(plan)):
        found = _stage(opened, plan, unit.id, len(range(number, files, units)), place.layout)
        result = UnitResult(
            unit.id,
            "attempt",
            UnitState.SUCCESSFUL,
            actual_high=unit.expected_high,
            files=found,
            rows_read=len(found),
            rows_written=len(found),
        )
        opened.staging.put_result(plan.token, result)
    return run


def _stage(opened: OpenJob, plan: Plan, unit: str, files: int, layout: Layout) -> tuple[StagedFile, ...]:
    """The files of a unit; on disk without waiting for it."""
    attempt = f"{opened.staging.token_folder(plan.token)}/attempt"
    if isinstance(opened.files, LocalFiles):
        root, checksum = Path(opened.files.root), hashlib.sha256(DATA).hexdigest()
        paths = [layout.path(f"{attempt}/{unit}", index, "txt") for index in range(files)]
        (root / paths[0]).parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            (root / path).write_bytes(DATA)
        stamps = (str((root / path).stat().st_mtime_ns) for path in paths)
        return tuple(StagedFile(path, len(DATA), checksum, 1, stamp) for path, stamp in zip(paths, stamps, strict=True))

    def upload(index: int) -> StagedFile:
        stems = (f"{attempt}/{unit}", f"{plan.folder}/{plan.token}-{unit}")
        out = opened.files.stage(*(layout.path(stem, index, "txt") for stem in stems))
        out.write(DATA)
        return out.finish(1)

    with ThreadPoolExecutor(opened.files.parallel) as pool:
        return tuple(pool.map(upload, range(files)))


def publish(place: Place, units: int, files: int) -> Once:
    """Ours: staged here, and published by a process that is started for it."""
    run = staged(place, units, files)
    secrets = {publish_files.CONNECTION: place.connection} if place.connection else {}
    asked = {"target": place.target, "journal": place.journal, "layout": place.layout, "run": run.run, "units": units}
    return run_program(Path(sys.executable), "publish_files", asked, secrets=secrets)


def _program(who: str, python: Path, name: str, **arguments: object) -> Contender:
    return Contender(who, lambda folder: run_program(python, name, {"folder": folder, **arguments}, secrets={}))


def measure_disk(rounds: int, files: int, units: int, *, peers: bool) -> list[Row]:
    """The rows of local disk.

    :param peers: whether Spark's committer and Iceberg's take part, too.
    """
    contenders = [
        Contender(OURS, lambda folder: publish(on_disk(folder), units, files)),
        _program(RENAMES, Path(sys.executable), "rename_files", files=files),
    ]
    if peers:
        contenders += [
            _program(SPARK, Path(sys.executable), "spark_commit", files=files),
            _program(ICEBERG, peers_python(), "iceberg_append", files=files),
        ]
    else:
        contenders.append(
            Contender(FOLDERS, lambda folder: publish(on_disk(folder, Layout.FOLDER_PER_UNIT), units, files))
        )
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        figures = alternately(contenders, rounds, Path(folder))
    return rows_of(
        f"Publishing {files:,} files on local disk, from the last unit result to DONE",
        figures,
        f"python -m tests.benchmarks.publish --rounds {rounds}",
        ours=OURS,
        targets=[Target(SPARK, 1)] if peers else [Target(RENAMES, 0.5)],
        versions={"pyiceberg": VERSIONS["pyiceberg"]} if peers else {},
    )


def measure_s3(rounds: int, files: int, units: int) -> list[Row]:
    """The rows of S3."""
    brought = ",".join(map(str, jars(*S3A_JARS, without=("software.amazon.awssdk:bundle",))))
    with_magic = ",".join([brought, *map(str, jars(CLOUD_JAR, without=OTHER_CLOUDS))])
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, s3.running(s3.versitygw(Path(folder) / "s3")) as server:
        access = server.access
        secrets = dict(
            zip(
                (spark_commit.ENDPOINT, spark_commit.KEY, spark_commit.SECRET),
                (access.endpoint, access.key, access.secret),
                strict=True,
            )
        )

        def ours(_: Path) -> Once:
            bucket = server.create_bucket()
            place = Place(access.url(f"{bucket}/lake"), access.url(f"{bucket}/journal"), access.connection)
            return publish(place, units, files)

        def spark(committer: str, jars: str, own: Path) -> Once:
            target = f"{server.create_bucket()}/lake/{URN}"
            asked = {"folder": own, "files": files, "jars": jars, "target": f"s3a://{target}", "committer": committer}
            once = run_program(Path(sys.executable), "spark_commit", asked, secrets=secrets)
            used = spark_commit.committer_of(access.filesystem().cat_file(f"{target}/_SUCCESS"))
            assert used == committer, f"{target} was committed by {used}, not by {committer}"
            return once

        contenders = [
            Contender(OURS, ours),
            Contender(MAGIC, partial(spark, "magic", with_magic)),
            Contender(S3A, partial(spark, "file", brought)),
        ]
        figures = alternately(contenders, rounds, Path(folder) / "rounds")
    return rows_of(
        f"Publishing {files:,} files on an S3-like server (versitygw), from the last unit result to DONE",
        figures,
        f"python -m tests.benchmarks.publish --rounds {rounds}",
        ours=OURS,
        targets=[Target(MAGIC, 1), Target(S3A, 5)],
        versions={"hadoop-aws": HADOOP, "AWS SDK": AWS},
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="on disk")
    parser.add_argument("--many-files", type=int, default=10_000, help="on disk, without the slow peers")
    parser.add_argument("--s3-files", type=int, default=200)
    parser.add_argument("--units", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    FOLDER.mkdir(parents=True, exist_ok=True)
    keep(measure_disk(asked.rounds, asked.files, asked.units, peers=True), asked.results)
    # The disk's own pauses are long, so this takes more rounds.
    keep(measure_disk(2 * asked.rounds, asked.many_files, asked.units, peers=False), asked.results)
    keep(measure_s3(asked.rounds, asked.s3_files, asked.units), asked.results)


if __name__ == "__main__":
    main()
