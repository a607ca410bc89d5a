"""A real schema registry, Apicurio's, which speaks as Confluent's does; in memory, on a port of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.services.processes import free_port, start_process, stop_process

__all__ = ["Registry", "running_registry"]


@dataclass(frozen=True)
class Registry:
    """A running registry."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    @property
    def uri(self) -> str:
        """The connection to it, as Airflow's."""
        return f"http://127.0.0.1:{self.port}?url={self.url}"

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[Any] = ()) -> int:
        """Register the next version of a subject.

        :return: the id of its schema.
        """
        body = {"schema": json.dumps(schema), "schemaType": kind, "references": [*references]}
        answer = requests.post(f"{self.url}/subjects/{subject}/versions", json=body, timeout=60)
        assert answer.ok, answer.text
        return int(answer.json()["id"])


@contextmanager
def running_registry(folder: Path) -> Iterator[Registry]:
    """Run a registry."""
    registry = Registry(free_port())
    (jar,) = Path(os.environ["REGISTRY"]).glob("*-runner.jar")
    command = [f"{os.environ['JAVA_HOME']}/bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx300m"]
    command += ["-XX:-UsePerfData", f"-Djava.io.tmpdir={folder}"]
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={registry.port}", "-jar", str(jar)]
    log = folder / "log"
    process = start_process(command, log=log, cwd=folder)
    try:
        deadline = time.monotonic() + 180
        while not _answers(registry):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command} doesn't start:\n{log.read_text()}")
            time.sleep(0.2)
        yield registry
    finally:
        stop_process(process, first=signal.SIGTERM)


def _answers(registry: Registry) -> bool:
    try:
        return requests.get(f"{registry.url}/subjects", timeout=10).ok
    except requests.ConnectionError:
        return False
