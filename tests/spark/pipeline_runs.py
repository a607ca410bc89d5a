"""Runs of a pipeline's jobs on a warm Spark, each in a process of its own, which may be killed or stopped at any moment.

The processes are forked from one that has imported everything, and has no connection to Spark yet.
"""

from __future__ import annotations

import os
import signal
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pyspark.sql.connect.session  # noqa: F401 - so that no run has to import it

from airflow_gobblin import ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, Stage, State
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.session import REMOTE, spark_session
from airflow_gobblin.stages.outputs import Readable
from airflow_gobblin.testing import inprocess
from tests.protocol.rows import RowSource, Table
from tests.spark.pipeline_checks import DATASETS
from tests.spark.test_stages import run_stage

CODE = ("tests.spark.chained_stages",)
READS = {"one": ("a",), "two": ("a", "b"), "both": ("one", "one.marks", "two", "a"), "sums": ("one", "two")}
"""The stages, each after those that it reads; one of them has a channel, and one has state."""
STATES = {"sums": State(("parity",), "parity string, seen array<string>, made array<string>", buckets=2)}
_FORKING = get_context("forkserver")


@dataclass(frozen=True)
class Lake:
    """A pipeline as it is now: a source of two datasets, two stages of them, one that reads these two and the source, and one
    that keeps state of the two.

    :param rows: how many rows each dataset has.
    :param revision: those that are read from now on name it.
    """

    folder: Path
    rows: int = 0
    revision: int = 0

    @property
    def journal(self) -> str:
        return f"file://{self.folder}/journal"

    @property
    def pipeline(self) -> Pipeline:
        tables = tuple(Table(urn, ExtractKind.APPEND_ONLY, self.rows, self.revision) for urn in DATASETS)
        raw = Ingestion("raw", RowSource(tables), self._sink("raw"), self.journal, retention=timedelta(0))
        stages: dict[str, Stage] = {}
        for name, reads in READS.items():
            inputs: dict[str, Readable] = {}
            for read in reads:
                job, _, channel = read.partition(".")
                of = stages[job][channel] if channel else stages.get(job, raw[job])
                inputs[read.replace(".", "_")] = of
            channels = ("marks",) if name == "one" else ()
            stages[name] = Stage(
                name,
                Frame(f"chained.{name}"),
                inputs,
                self._sink(name),
                STATES.get(name),
                channels,
                retention=timedelta(0),
            )
        return Pipeline("chained", (raw, *stages.values()), self.journal, CODE)

    def _sink(self, name: str) -> ParquetSink:
        return ParquetSink(f"{self.folder}/{name}")

    def run(self, name: str, request: RunRequest, zips: tuple[str, ...]) -> tuple[DatasetReport, ...]:
        """Carry out a run of a job.

        :param zips: the code for Spark, which is reached by the environment.
        """
        import_kinds(CODE)
        job = self.pipeline[name]
        opened = OpenJob(job, Journal.create(job.journal, job.name), SparkConnections({}))
        if isinstance(job, Ingestion):
            return tuple(inprocess.run(opened, request=request).values())
        with spark_session(name, zips=zips) as spark:
            return (run_stage(spark, opened, request, CODE),)


class Run:
    """A run in a process of its own."""

    def __init__(self, lake: Lake, name: str, request: RunRequest, remote: str, zips: tuple[str, ...]) -> None:
        _FORKING.set_forkserver_preload([__name__])
        self.name = name
        self._reading, writing = _FORKING.Pipe(duplex=False)
        self._process = _FORKING.Process(target=_run, args=(writing, lake, name, request, remote, zips), daemon=True)
        self._process.start()
        writing.close()
        self._result: tuple[set[str], str] | None = None

    def wait(self, seconds: float = 240) -> bool:
        """Wait for its end for some time.

        :return: whether it has ended.
        """
        if self._result is None and self._reading.poll(seconds):
            try:
                self._result = self._reading.recv()
            except EOFError:
                self._result = {"killed"}, ""
        if self._result is not None:
            self._process.join(60)
        return self._result is not None

    @property
    def statuses(self) -> set[str]:
        """Those of its datasets at its end; "killed" if it came to none, and "failed" if it raised an error."""
        if not self.wait():
            self.kill()
            raise AssertionError(f"a run of {self.name} came to no end")
        assert self._result is not None
        return self._result[0]

    @property
    def details(self) -> str:
        return "" if self._result is None else self._result[1]

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        """Stop it, as by `kill -STOP`, until it goes on."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, which)


def _run(writing: Connection, lake: Lake, name: str, request: RunRequest, remote: str, zips: tuple[str, ...]) -> None:
    os.environ[REMOTE] = remote
    try:
        reports = lake.run(name, request, zips)
        result = {report.status.value for report in reports}, "\n".join(report.text for report in reports)
    except Exception:
        result = {"failed"}, traceback.format_exc()
    writing.send(result)
    writing.close()
    os._exit(0)  # threads of Spark's client may wait for an answer that never comes
