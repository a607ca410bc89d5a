"""A real Spark Connect server for tests: a Spark in local mode that stays warm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.services.processes import children, command_line, start_process, stop_process, wait_for_line

__all__ = ["SparkConnect", "running_spark_connect"]

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class SparkConnect:
    """A running server on 127.0.0.1, with its log in a file."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}/"

    @property
    def connection(self) -> str:
        """An Airflow connection to it, as JSON."""
        return json.dumps({"conn_type": "spark_connect", "host": "127.0.0.1", "port": self.port})

    @property
    def python_daemons(self) -> list[psutil.Process]:
        """The parents of its Python workers: one for each session that has run Python."""
        started = children(self.process, recursive=False)
        return [process for process in started if "pyspark.daemon" in command_line(process)]


@contextmanager
def running_spark_connect(
    folder: Path, conf: Mapping[str, str] | None = None, port: int = 0, executor_python: Path | None = None
) -> Iterator[SparkConnect]:
    """Run a server with two cores and its files in `folder`, which exists and is empty.

    :param conf: more of Spark's settings.
    :param port: where it listens; 0: on a free one.
    :param executor_python: the Python of its tasks, by default the one of the tests.
    """
    log = folder / "connect.log"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **(conf or {}),
    }
    command = [os.path.join(os.environ["SPARK_HOME"], "bin", "spark-submit"), "--master=local[2]", f"--class={_SERVER}"]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    # It leaves a folder for artifacts where it is started.
    python = {} if executor_python is None else {"PYSPARK_PYTHON": str(executor_python)}
    server = start_process([*command, "spark-internal"], log=log, env=python, cwd=folder)
    try:
        found = wait_for_line(server, log, r"Spark Connect server started at: \S+:(\d+)")[1]
        yield SparkConnect(int(found), log, server)
    finally:
        stop_process(server, first=signal.SIGTERM)
