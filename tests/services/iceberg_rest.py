"""A real REST catalog of Iceberg tables: the server of Iceberg's test fixtures, which keeps its catalog in memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.services.processes import free_port, start_process, stop_process
from tests.services.s3 import S3Access

__all__ = ["IcebergRest", "running_iceberg_rest"]

_OF_SPARK = (
    *("avro", "hadoop-client-api", "hadoop-client-runtime", "jackson-annotations", "jackson-core", "jackson-databind"),
    *("jakarta.servlet-api", "RoaringBitmap", "slf4j-api"),
)
"""The jars that it takes, and that pyspark brings."""


@dataclass(frozen=True)
class IcebergRest:
    """A running catalog."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def uri(self) -> str:
        """The connection to it, as Airflow's."""
        return f"iceberg://127.0.0.1:{self.port}"


@contextmanager
def running_iceberg_rest(folder: Path, warehouse: str = "", store: S3Access | None = None) -> Iterator[IcebergRest]:
    """Run a catalog.

    :param folder: for its files.
    :param warehouse: where its tables are; by default in the folder.
    :param store: where that is, if it is in S3: the catalog's own access, of which it shows its clients nothing.
    """
    catalog = IcebergRest(free_port())
    spark = Path(os.environ["SPARK_HOME"], "jars")
    jars = [*Path(os.environ["ICEBERG_REST_JARS"]).glob("*.jar")]
    jars += [next(spark.glob(f"{name}-[0-9]*.jar")) for name in _OF_SPARK]
    if store is not None:
        jars += [
            *Path(os.environ["AWS_SDK_JARS"]).glob("*.jar"),
            *Path(os.environ["TABLE_JARS"]).glob("hadoop-aws-*.jar"),
        ]
        settings = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in store.s3a.items()
        )
        (folder / "core-site.xml").write_text(f"<configuration>{settings}</configuration>")
        jars.append(folder)
    command = [f"{os.environ['JAVA_HOME']}/bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx300m"]
    command += ["-XX:-UsePerfData", f"-Djava.io.tmpdir={folder}", "-cp", os.pathsep.join(map(str, jars))]
    environment = {
        "CATALOG_REST_PORT": str(catalog.port),
        "CATALOG_WAREHOUSE": warehouse or str(folder / "tables"),
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.inmemory.InMemoryCatalog",
        "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
    }
    log = folder / "log"
    process = start_process(
        [*command, "org.apache.iceberg.rest.RESTCatalogServer"], log=log, cwd=folder, env=environment
    )
    try:
        deadline = time.monotonic() + 180
        while not _answers(catalog):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command} doesn't start:\n{log.read_text()}")
            time.sleep(0.2)
        yield catalog
    finally:
        stop_process(process, first=signal.SIGTERM)


def _answers(catalog: IcebergRest) -> bool:
    try:
        return requests.get(f"{catalog.url}/v1/config", timeout=10).ok
    except requests.ConnectionError:
        return False
