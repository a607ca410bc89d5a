"""A real Hive metastore server, for tests: from the jars that PySpark brings, on a port of its own, its tables in memory."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_gobblin.spark.session import LOG_SETTINGS
from tests.services.processes import free_port, start_process, stop_process

__all__ = ["Metastore", "running_metastore"]


@dataclass(frozen=True)
class Metastore:
    """A running metastore on 127.0.0.1."""

    port: int

    @property
    def settings(self) -> dict[str, str]:
        """The settings by which Spark knows it."""
        return {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": f"thrift://127.0.0.1:{self.port}",
        }


@contextmanager
def running_metastore(folder: Path) -> Iterator[Metastore]:
    """Run a metastore with its files in `folder`, which exists and is empty."""
    port, log = free_port(), folder / "metastore.log"
    settings = {
        "java.io.tmpdir": folder,
        "derby.stream.error.file": folder / "derby.log",
        "log4j2.configurationFile": LOG_SETTINGS.as_uri(),
        "hive.async.log.enabled": "false",  # PySpark has no jar for it
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": folder / "warehouse",
    }
    command = [f"{os.environ['JAVA_HOME']}/bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx300m"]
    command += ["-XX:-UsePerfData", *(f"-D{name}={value}" for name, value in settings.items())]
    command += ["-cp", os.path.join(os.environ["SPARK_HOME"], "jars", "*")]
    command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    process = start_process(command, log=log, cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command} doesn't start:\n{log.read_text()}")
            time.sleep(0.1)
        yield Metastore(port)
    finally:
        stop_process(process, first=signal.SIGTERM)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
