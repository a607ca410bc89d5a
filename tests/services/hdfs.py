"""A real HDFS of one namenode and one datanode, for tests: on ports of its own, gone afterwards."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_gobblin.storage.webhdfs import WebHdfs
from tests.services.processes import free_port, start_process, stop_process

__all__ = ["Hdfs", "running_hdfs"]

USER = "root"
"""The user that the namenode runs as in the tests' eyes: it may do everything."""


@dataclass(frozen=True)
class Hdfs:
    """A running HDFS, which is the `Connections` of its one connection.

    :param port: of the namenode's WebHDFS.
    :param user: the user to be.
    """

    port: int
    superuser: str

    def uri(self, _conn_id: str) -> str:
        """The connection, as Airflow's."""
        return self.connection(self.superuser)

    def connection(self, user: str) -> str:
        """A connection for a user."""
        return f"webhdfs://{user}@127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        """A folder as a DAG author writes it."""
        return f"webhdfs://cluster@127.0.0.1:{self.port}/{path}"

    def client(self, user: str = "") -> WebHdfs:
        """A client of its own."""
        return WebHdfs(f"http://127.0.0.1:{self.port}", user or self.superuser)

    def create_folder(self) -> str:
        """A new folder.

        :return: its path, without a slash before it.
        """
        name = f"tests/{uuid.uuid4().hex[:12]}"
        self.client().make_folder(f"/{name}")
        return name


@contextmanager
def running_hdfs(folder: Path) -> Iterator[Hdfs]:
    """Run an HDFS with ACLs."""
    spark, hadoop = Path(os.environ["SPARK_HOME"], "jars"), Path(os.environ["HADOOP_JARS"])
    jars = [*hadoop.glob("*.jar"), *spark.glob("slf4j-api-*.jar"), *spark.glob("jcl-over-slf4j-*.jar")]
    port, details, log = free_port(), folder / "details.json", folder / "log"
    command = [f"{os.environ['JAVA_HOME']}/bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx300m"]
    command += ["-XX:-UsePerfData", f"-Djava.io.tmpdir={folder}", "-cp", os.pathsep.join(map(str, jars))]
    command += ["org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-format", "-nomr"]
    command += ["-nnhttpport", str(port), "-D", "dfs.namenode.acls.enabled=true", "-writeDetails", str(details)]
    # To close a file, the namenode must have heard of its last block; it is asked again after 5 ms, and not after 400.
    command += ["-D", "dfs.client.block.write.locateFollowingBlock.initial.delay.ms=5"]
    process = start_process(command, log=log, cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while not (details.exists() and details.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command} doesn't start:\n{log.read_text()}")
            time.sleep(0.1)
        top = WebHdfs(f"http://127.0.0.1:{port}").status("/")
        assert top is not None
        yield Hdfs(port, top["owner"])
    finally:
        stop_process(process, first=signal.SIGTERM)
