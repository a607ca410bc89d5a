"""A real Spark standalone cluster for tests: one master, and workers that run executors with any Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.services.processes import children, command_line, start_process, stop_process, wait_for_line

__all__ = ["SparkStandalone", "running_spark_standalone"]


class SparkStandalone:
    """A master and its workers on 127.0.0.1, with logs and work files below one folder.

    The master's URL is `url`, and `rest_port` the port of its REST server. Submit with the settings of `conf`: they make
    executors use `executor_python`.

    :param worker_environment: additional variables of workers, and so of the drivers that run there.
    """

    def __init__(
        self,
        folder: Path,
        *,
        executor_python: Path | None = None,
        worker_environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._worker_environment = worker_environment or {}
        self._executor_python = executor_python or Path(sys.executable)
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self.rest_port = 0

    @property
    def conf(self) -> dict[str, str]:
        """Spark settings for applications submitted to this cluster."""
        return {
            "spark.pyspark.python": str(self._executor_python),
            "spark.pyspark.driver.python": sys.executable,
            "spark.driver.extraJavaOptions": os.environ["SPARK_DAEMON_JAVA_OPTS"],
            "spark.executor.extraJavaOptions": os.environ["SPARK_DAEMON_JAVA_OPTS"],
        }

    @property
    def connection(self) -> str:
        """An Airflow connection to it, as JSON."""
        host, port = self.url.rsplit(":", 1)
        extra = {"rest-port": self.rest_port}
        return json.dumps({"conn_type": "spark", "host": host, "port": int(port), "extra": extra})

    @property
    def drivers(self) -> list[str]:
        """The ids of the drivers that ran on its workers."""
        return sorted(path.name for path in self._folder.glob("work-*/driver-*"))

    @property
    def below_workers(self) -> list[psutil.Process]:
        """The processes of drivers and executors that run now, and of their Pythons."""
        return [child for worker in self.workers for child in children(worker)]

    @property
    def executors(self) -> list[psutil.Process]:
        """The processes of executors that run now."""
        return [process for process in self.below_workers if "CoarseGrainedExecutorBackend" in command_line(process)]

    @property
    def log_files(self) -> tuple[Path, ...]:
        """Every log file of the master, the workers and the executors so far."""
        return tuple(sorted((*self._folder.glob("*.log"), *self._folder.glob("work-*/*/*/std*"))))

    def start(self) -> None:
        """Start the master, without workers."""
        log = self._folder / "master.log"
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        java_options = {"SPARK_DAEMON_JAVA_OPTS": os.environ["SPARK_DAEMON_JAVA_OPTS"] + " -Dspark.master.rest.port=0"}
        command = _spark_class("org.apache.spark.deploy.master.Master", *options)
        self._master = start_process(command, log=log, env=java_options)
        self.url = wait_for_line(self._master, log, r"Starting Spark master at (spark://\S+)")[1]
        started = wait_for_line(
            self._master, log, r"Started REST server for submitting applications on \S+ with port (\d+)"
        )
        self.rest_port = int(started[1])
        wait_for_line(self._master, log, "I have been elected leader")

    def add_worker(self, *, cores: int = 2, memory: str = "2g", host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
        """Start a worker and wait until the master knows it. Its process group holds its executors too.

        :param host: an address of this host; Spark takes workers of different addresses for different hosts.
        """
        number = len(self.workers)
        log = self._folder / f"worker-{number}.log"
        options = ["--host", host, "--webui-port", "0", "--cores", str(cores), "--memory", memory]
        options += ["--work-dir", str(self._folder / f"work-{number}"), self.url]
        worker = start_process(
            _spark_class("org.apache.spark.deploy.worker.Worker", *options),
            log=log,
            env={
                "PYSPARK_PYTHON": str(self._executor_python),
                "SPARK_LOCAL_IP": host,
                **self._worker_environment,
            },
        )
        self.workers.append(worker)
        wait_for_line(worker, log, "Successfully registered with master")
        return worker

    def stop(self) -> None:
        """Stop workers, executors and the master."""
        for process in (*self.workers, *((self._master,) if self._master else ())):
            stop_process(process, first=signal.SIGTERM)
        self.workers.clear()
        self._master = None


@contextmanager
def running_spark_standalone(folder: Path, *, workers: int = 1, **options: Any) -> Iterator[SparkStandalone]:
    """Run a master and its workers with their files in `folder`, which exists and is empty.

    :param options: of the cluster.
    """
    cluster = SparkStandalone(folder, **options)
    try:
        cluster.start()
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.stop()


def _spark_class(name: str, *arguments: str) -> list[str]:
    return [os.path.join(os.environ["SPARK_HOME"], "bin", "spark-class"), name, *arguments]
